//! `gardenlet node list`: the hosts of a Shoot, and what keeps each from being a ready node. It changes nothing.

use serde_json::Value;

use super::super::colour::{ColouredText, Tone};
use super::super::{Io, print, print_text};
use super::place::Place;
use crate::api::certificates::CERTIFICATE_SIGNING_REQUEST;
use crate::api::core::{NODE, SECRET};
use crate::api::meta::{ALL_NAMESPACES, Resource};
use crate::base::clock::{Clock, Timestamp};
use crate::base::error::chain;
use crate::base::json::json;
use crate::base::sorted::SortedMap;
use crate::format::human;
use crate::format::time::rfc3339;
use crate::hosts::requests::RequestsOfHosts;
use crate::hosts::state::{
    self, AppliedConfiguration, HostReadiness, HostRow, HostSurroundings, SeenNode, SeenToken,
};
use crate::hosts::{applied, critical, token};
use crate::kube::{Client, Error, ListItem, ListParams};

const SYSTEM: &str = "kube-system";
/// Of how many closed nodes the command finds out what they wait for: it reads pods for each.
const CLOSED_MAX: usize = 20;

/// Prints the hosts and returns the exit code. Errors: the Shoot does not answer.
pub(super) fn list(io: &mut Io<'_>, place: &Place, as_json: bool) -> Result<u8, String> {
    let now = Clock::system().now();
    let rows = read(&place.shoot, now)?;
    if as_json {
        return Ok(print(io, &format!("{}\n", document(&place.name.to_string(), &rows))));
    }
    if rows.is_empty() {
        let text = format!("Shoot {} has no node, and no token of a host.\n", place.name);
        return Ok(print(io, &text));
    }
    let text = table(&rows, now, io.colour);
    Ok(print_text(io, &text))
}

/// What the lists of a Shoot contain.
#[derive(Default)]
struct ReadHosts {
    nodes: Vec<SeenNode>,
    /// The nodes with the taint, as they are.
    closed: Vec<Value>,
    tokens: Vec<SeenToken>,
    /// The checksum of the configuration of each pool.
    checksums: SortedMap<String, String>,
}

fn read(shoot: &Client, now: Timestamp) -> Result<Vec<HostRow>, String> {
    let mut found = ReadHosts::default();
    let any = ListParams::default();
    each(shoot, &NODE, ALL_NAMESPACES, &any, &mut |node| match node {
        None => (found.nodes, found.closed) = (Vec::new(), Vec::new()),
        Some(node) => {
            let seen = SeenNode::read(&node);
            if seen.is_closed && found.closed.len() < CLOSED_MAX {
                found.closed.push(node);
            }
            found.nodes.push(seen);
        }
    })?;
    let tokens = ListParams { label_selector: token::HOST.to_owned(), ..any.clone() };
    each(shoot, &SECRET, SYSTEM, &tokens, &mut |secret| match secret {
        None => found.tokens.clear(),
        Some(secret) => found.tokens.extend(SeenToken::read(&secret)),
    })?;
    found.checksums = applied::wanted_by_pool(shoot)
        .map_err(|error| told("list what the pools of the Shoot apply", &error))?;
    let names = || {
        let nodes = found.nodes.iter().map(|node| node.name.as_str());
        nodes.chain(found.tokens.iter().map(|token| token.host.as_str()))
    };
    let mut requests = RequestsOfHosts::new(names());
    each(shoot, &CERTIFICATE_SIGNING_REQUEST, ALL_NAMESPACES, &any, &mut |request| match request {
        None => requests = RequestsOfHosts::new(names()),
        Some(request) => requests.add(&request),
    })?;
    let mut missing = SortedMap::new();
    for node in &found.closed {
        let waits = critical::missing(shoot, node).map_err(|error| told("read what nodes need", &error))?;
        if let Some(waits) = waits {
            missing.insert(SeenNode::read(node).name, waits);
        }
    }
    let around =
        HostSurroundings { checksums: &found.checksums, requests: &requests, missing: &missing, now };
    Ok(state::rows(&found.nodes, &found.tokens, &around))
}

/// Reads a list object by object. None: the list begins again. An object that cannot be read is left out.
fn each(
    shoot: &Client,
    resource: &Resource,
    namespace: &str,
    params: &ListParams,
    add: &mut dyn FnMut(Option<Value>),
) -> Result<(), String> {
    let listed = shoot.list_each::<Value>(resource, namespace, params, &mut |item| match item {
        ListItem::Object(object) => add(Some(object)),
        ListItem::Undecodable(_) => {}
        ListItem::Restart => add(None),
    });
    listed.map(drop).map_err(|error| told(&format!("list the {} of the Shoot", resource.plural), &error))
}

fn told(what: &str, error: &Error) -> String {
    format!("{what}: {}", chain(error))
}

const fn state_of(readiness: HostReadiness) -> &'static str {
    match readiness {
        HostReadiness::NotJoined => "NotJoined",
        HostReadiness::Ready => "Ready",
        HostReadiness::NotReady(_) => "NotReady",
        HostReadiness::Unknown(_) => "Unknown",
    }
}

const fn since(readiness: HostReadiness) -> Option<Timestamp> {
    match readiness {
        HostReadiness::NotReady(since) | HostReadiness::Unknown(since) => since,
        HostReadiness::NotJoined | HostReadiness::Ready => None,
    }
}

const fn configuration_of(configuration: AppliedConfiguration) -> &'static str {
    match configuration {
        AppliedConfiguration::Applied => "Applied",
        AppliedConfiguration::Behind => "Behind",
        AppliedConfiguration::None => "None",
    }
}

/// The rows for programs. What is unknown is left out.
fn document(shoot: &str, rows: &[HostRow]) -> Value {
    let hosts: Vec<Value> = rows
        .iter()
        .map(|row| {
            let mut host = json!({"name": row.name, "state": state_of(row.readiness),
                "cordoned": row.is_cordoned, "closed": row.is_closed});
            for (field, text) in
                [("pool", &row.pool), ("kubeletVersion", &row.version), ("whyNot", &row.why_not)]
            {
                if !text.is_empty() {
                    host[field] = json!(text);
                }
            }
            for (field, time) in [
                ("created", row.made),
                ("since", since(row.readiness)),
                ("identityEnds", row.identity_ends),
                ("tokenExpires", row.token_until),
            ] {
                if let Some(time) = time {
                    host[field] = json!(rfc3339(time));
                }
            }
            if let Some(configuration) = row.configuration {
                host["configuration"] = json!(configuration_of(configuration));
            }
            host
        })
        .collect();
    json!({"shoot": shoot, "hosts": hosts})
}

/// The titles of the columns; the reason follows them.
const TITLES: [&str; 7] = ["POOL", "HOST", "KUBELET", "AGE", "STATE", "CONFIGURATION", "IDENTITY ENDS"];
const WHY: &str = "WHY NOT";
/// What a cell has if nothing is known.
const UNKNOWN: &str = "-";
const STATE: usize = 4;

fn cells(row: &HostRow, now: Timestamp) -> [String; TITLES.len()] {
    let lasting = |from: Timestamp| human::lasting(now.since(from));
    let mut state = state_of(row.readiness).to_owned();
    if let Some(since) = since(row.readiness) {
        state = format!("{state} for {}", lasting(since));
    }
    for (is_so, word) in [(row.is_cordoned, ", cordoned"), (row.is_closed, ", closed")] {
        state.push_str(if is_so { word } else { "" });
    }
    let or_unknown = |text: String| if text.is_empty() { UNKNOWN.to_owned() } else { text };
    [
        row.pool.clone(),
        row.name.clone(),
        row.version.clone(),
        row.made.map(lasting).unwrap_or_default(),
        state,
        row.configuration.map(configuration_of).unwrap_or_default().to_owned(),
        row.identity_ends.map(rfc3339).unwrap_or_default(),
    ]
    .map(or_unknown)
}

fn tone(row: &HostRow) -> Tone {
    match row.readiness {
        HostReadiness::Ready if row.why_not.is_empty() => Tone::Good,
        HostReadiness::Ready | HostReadiness::NotJoined => Tone::Odd,
        HostReadiness::NotReady(_) | HostReadiness::Unknown(_) => Tone::Bad,
    }
}

fn table(rows: &[HostRow], now: Timestamp, colour: bool) -> ColouredText {
    let all: Vec<[String; TITLES.len()]> = rows.iter().map(|row| cells(row, now)).collect();
    let width = |column: usize| {
        let longest = all.iter().map(|cells| cells[column].chars().count()).max().unwrap_or_default();
        longest.max(TITLES[column].len())
    };
    let widths: [usize; TITLES.len()] = std::array::from_fn(width);
    let mut text = ColouredText::new(colour);
    for (title, width) in TITLES.iter().zip(widths) {
        text.toned(Tone::Strong, &format!("{title:<width$}"));
        text.plain("  ");
    }
    text.toned(Tone::Strong, WHY);
    text.plain("\n");
    for (row, cells) in rows.iter().zip(&all) {
        for (column, (cell, width)) in cells.iter().zip(widths).enumerate() {
            let padded = format!("{cell:<width$}");
            if column == STATE {
                text.toned(tone(row), &padded);
            } else {
                text.plain(&padded);
            }
            text.plain("  ");
        }
        let why = if row.why_not.is_empty() { UNKNOWN } else { &row.why_not };
        text.plain(why);
        text.plain("\n");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp::from_unix(1_767_225_600);

    fn row(name: &str, readiness: HostReadiness) -> HostRow {
        HostRow {
            name: name.to_owned(),
            pool: "shed".to_owned(),
            version: String::new(),
            made: None,
            readiness,
            is_cordoned: false,
            is_closed: false,
            configuration: None,
            identity_ends: None,
            token_until: None,
            why_not: String::new(),
        }
    }

    fn three() -> [HostRow; 3] {
        let good = HostRow {
            version: "v1.34.3".to_owned(),
            made: Some(Timestamp::from_unix(1_767_218_400)),
            configuration: Some(AppliedConfiguration::Applied),
            identity_ends: Some(Timestamp::from_unix(1_769_817_600)),
            ..row("a", HostReadiness::Ready)
        };
        let silent = HostRow {
            is_cordoned: true,
            is_closed: true,
            why_not: "its kubelet is silent".to_owned(),
            ..row("bb", HostReadiness::Unknown(Some(Timestamp::from_unix(1_767_225_300))))
        };
        let waits = HostRow {
            token_until: Some(Timestamp::from_unix(1_767_229_200)),
            why_not: "its token is unused".to_owned(),
            ..row("c", HostReadiness::NotJoined)
        };
        [good, silent, waits]
    }

    #[test]
    fn a_table_for_people() {
        let lines = [
            "POOL  HOST  KUBELET  AGE  STATE                              CONFIGURATION  IDENTITY ENDS         WHY NOT",
            "shed  a     v1.34.3  2 h  Ready                              Applied        2026-01-31T00:00:00Z  -",
            "shed  bb    -        -    Unknown for 5 min, cordoned, closed  -              -                     its kubelet is silent",
            "shed  c     -        -    NotJoined                          -              -                     its token is unused",
        ];
        let found = table(&three(), NOW, false);
        let words = |text: &str| {
            text.split("  ")
                .map(str::trim)
                .filter(|cell| !cell.is_empty())
                .map(str::to_owned)
                .collect::<Vec<_>>()
        };
        let found: Vec<Vec<String>> = found.as_str().lines().map(words).collect();
        assert_eq!(found, lines.map(words));
        let widths: Vec<Option<usize>> = table(&three(), NOW, false)
            .as_str()
            .lines()
            .map(|line| line.find("Applied").or(line.find("CONFIGURATION")))
            .collect();
        assert_eq!(widths[0], widths[1]);
    }

    #[test]
    fn a_document_for_programs_leaves_out_what_is_unknown() {
        let expected = json!({"shoot": "garden-p/h1", "hosts": [
            {"name": "a", "pool": "shed", "state": "Ready", "cordoned": false, "closed": false, "kubeletVersion": "v1.34.3",
                "created": "2025-12-31T22:00:00Z", "configuration": "Applied", "identityEnds": "2026-01-31T00:00:00Z"},
            {"name": "bb", "pool": "shed", "state": "Unknown", "since": "2025-12-31T23:55:00Z", "cordoned": true, "closed": true,
                "whyNot": "its kubelet is silent"},
            {"name": "c", "pool": "shed", "state": "NotJoined", "cordoned": false, "closed": false,
                "tokenExpires": "2026-01-01T01:00:00Z", "whyNot": "its token is unused"},
        ]});
        assert_eq!(document("garden-p/h1", &three()), expected);
    }
}
