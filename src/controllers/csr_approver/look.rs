//! Reads the requests for certificates in the cluster of a Shoot, and answers them.

use std::time::Duration;

use serde_json::Value;

use crate::api::bootstrap_token;
use crate::api::certificates::CERTIFICATE_SIGNING_REQUEST;
use crate::api::core::{NODE, SECRET};
use crate::api::meta::{ALL_NAMESPACES, Key, Resource, annotation, text};
use crate::base::clock::Timestamp;
use crate::base::cut;
use crate::base::error::chain;
use crate::base::json::json;
use crate::base::sorted::SortedMap;
use crate::format::base64;
use crate::format::time::{parse_rfc3339, rfc3339};
use crate::hosts::approval::{self, JoinToken, JoinedNode, Joins, Judgement, NodeRequest, TakeoverStep};
use crate::hosts::{critical, token};
use crate::kube::{Client, Error, ListItem, ListParams, Patch, unless_absent};
use crate::limits;
use crate::osc::APPLIED;
use crate::pki::requested::RequestedCertificate;
use crate::runtime::write;

/// How long a token without an end counts, from each look on.
const ENDLESS: Duration = Duration::from_secs(600);

/// A kubelet that takes the place of another asks for the certificate of its server within this time after its own, and requests are looked
/// at often until then.
const SETTLED: Duration = Duration::from_secs(45);

/// A request that nobody has answered.
struct OpenRequest {
    name: String,
    uid: String,
    request: NodeRequest,
    /// Older ones of the same user for the same purpose: nobody waits for them.
    superseded: Vec<String>,
}

/// The requests without an answer, by user and signer.
#[derive(Default)]
struct OpenRequests(SortedMap<String, OpenRequest>);

impl OpenRequests {
    /// Adds one, or replaces an older one.
    fn add(&mut self, object: &Value) {
        let (metadata, spec) = (&object["metadata"], &object["spec"]);
        let (user, signer) = (text(&spec["username"]), text(&spec["signerName"]));
        if is_answered(object) || !approval::is_of_nodes(signer) {
            return;
        }
        let key = format!("{signer} {user}");
        if !self.0.contains_key(&key) && self.0.len() >= limits::SHOOT_REQUESTS_MAX {
            return;
        }
        let name = text(&metadata["name"]).to_owned();
        let request = read(object);
        let uid = text(&metadata["uid"]).to_owned();
        let mut open = OpenRequest { name, uid, request, superseded: Vec::new() };
        if let Some(mut other) = self.0.remove(&key) {
            let age = |open: &OpenRequest| (open.request.made, open.name.clone());
            open.superseded = std::mem::take(&mut other.superseded);
            if age(&other) > age(&open) {
                std::mem::swap(&mut other.superseded, &mut open.superseded);
                std::mem::swap(&mut other, &mut open);
            }
            if open.superseded.len() < limits::SHOOT_REQUESTS_SUPERSEDED_MAX {
                open.superseded.push(other.name);
            }
        }
        self.0.insert(key, open);
    }
}

/// Answers the requests that it may answer. Returns how many stay open. Errors: a request to the server fails. The other requests for
/// certificates still get their answers.
pub(super) fn look(client: &Client, namespace: &str, now: Timestamp) -> Result<usize, Error> {
    let joins = Cluster { client };
    let mut requests = OpenRequests::default();
    let mut outcome = list(client, &mut requests);
    let mut open = 0;
    for (_, each) in requests.0.iter() {
        let judgement = approval::judge(&each.request, &joins);
        if matches!(judgement, Judgement::Open(_)) {
            open += 1;
        }
        let noted = note(client, &judgement, now);
        if let Err(error) = noted.and_then(|()| act(client, namespace, each, &judgement)) {
            outcome = Err(error);
        }
    }
    outcome.map(|()| open)
}

fn act(client: &Client, namespace: &str, open: &OpenRequest, judgement: &Judgement) -> Result<(), Error> {
    let user = open.request.username.as_str();
    let tell = |what: &str, why: &str| {
        log::info!(namespace = namespace, user = user, signer = open.request.signer.as_str(), answer = what, why = why;
            "Answered the certificate request of a host");
    };
    match judgement {
        Judgement::Foreign => return Ok(()),
        Judgement::Open(why) => {
            log::debug!(namespace = namespace, user = user, why = why.as_str(); "The request of a host stays open");
        }
        Judgement::Denied(why) => {
            let why = cut::head(why, limits::SHOOT_NODE_BYTES_MAX);
            answer(client, open, "Denied", "RequestDenied", why)?;
            tell("denied", why);
        }
        Judgement::Approved | Judgement::ApprovedInPlace(..) => {
            answer(client, open, "Approved", "RequestApproved", "Approved by the gardenlet of the seed.")?;
            tell("approved", "");
        }
    }
    for name in &open.superseded {
        write::delete(client, &CERTIFICATE_SIGNING_REQUEST, &Key::cluster(name.as_str()))?;
    }
    Ok(())
}

/// Prepares the answer to a host that takes the place of a Node. The Node has the checksum of the host before, and the agent of this one
/// compares nothing else, so it goes. The token gets the time of its last use.
fn note(client: &Client, judgement: &Judgement, now: Timestamp) -> Result<(), Error> {
    let Judgement::ApprovedInPlace(host, step) = judgement else { return Ok(()) };
    let annotate = |resource: &Resource, key: &Key, annotation: &str, value: Value| {
        let patch = Patch::Merge(json!({"metadata": {"annotations": {annotation: value}}}));
        unless_absent(client.patch_blindly(resource, key, &patch)).map(drop)
    };
    match step {
        TakeoverStep::Begins => annotate(&NODE, &Key::cluster(host.as_str()), APPLIED, Value::Null),
        TakeoverStep::Ends => {
            let key = token::key(host);
            // Only the first use counts, or a token could be used again and again.
            match client.find::<Value>(&SECRET, &key)? {
                Some(secret) if annotation(&secret, token::USED).is_empty() => {
                    annotate(&SECRET, &key, token::USED, json!(rfc3339(now)))
                }
                _ => Ok(()),
            }
        }
    }
}

/// Reads the requests one by one: users decide how large they are.
fn list(client: &Client, requests: &mut OpenRequests) -> Result<(), Error> {
    let params = ListParams::default();
    client
        .list_each::<Value>(&CERTIFICATE_SIGNING_REQUEST, ALL_NAMESPACES, &params, &mut |item| match item {
            ListItem::Object(object) => requests.add(&object),
            ListItem::Undecodable(_) => {}
            ListItem::Restart => *requests = OpenRequests::default(),
        })
        .map(drop)
}

fn is_answered(object: &Value) -> bool {
    object["status"]["conditions"].as_array().is_some_and(|all| !all.is_empty())
}

fn read(object: &Value) -> NodeRequest {
    let spec = &object["spec"];
    let encoded = text(&spec["request"]);
    let pem = base64::decode(encoded.as_bytes()).ok();
    let is_small = encoded.len() <= limits::SHOOT_REQUEST_BYTES_MAX;
    let usages = spec["usages"].as_array().into_iter().flatten();
    NodeRequest {
        signer: text(&spec["signerName"]).to_owned(),
        username: text(&spec["username"]).to_owned(),
        usages: usages.map(|usage| cut::head(text(usage), limits::SHOOT_NODE_BYTES_MAX).to_owned()).collect(),
        made: parse_rfc3339(text(&object["metadata"]["creationTimestamp"])).ok(),
        asked: pem.filter(|_| is_small).and_then(|pem| RequestedCertificate::parse(&pem).ok()),
    }
}

/// Writes the answer, unless somebody else has answered meanwhile.
fn answer(client: &Client, open: &OpenRequest, kind: &str, reason: &str, message: &str) -> Result<(), Error> {
    let key = Key::cluster(open.name.as_str());
    let Some(mut object) = client.find::<Value>(&CERTIFICATE_SIGNING_REQUEST, &key)? else { return Ok(()) };
    if is_answered(&object) || text(&object["metadata"]["uid"]) != open.uid {
        return Ok(());
    }
    object["status"]["conditions"] =
        json!([{"type": kind, "status": "True", "reason": reason, "message": message}]);
    match client.replace_subresource::<Value>(&CERTIFICATE_SIGNING_REQUEST, &key, "approval", &object) {
        Err(error) if !(error.is_conflict() || error.is_not_found()) => Err(error),
        _ => Ok(()),
    }
}

/// Deletes the tokens of hosts that are nodes now: both their agent and their kubelet have used them. Opens these nodes to all
/// pods. Returns until when the last of the others is valid. Errors: a request to the server fails.
pub(super) fn tokens(client: &Client, now: Timestamp) -> Result<Option<Timestamp>, Error> {
    let params = ListParams {
        label_selector: token::HOST.to_owned(),
        field_selector: "type=bootstrap.kubernetes.io/token".to_owned(),
        ..ListParams::default()
    };
    let mut found = Vec::new();
    client.list_all::<Value>(&SECRET, "kube-system", &params, &mut |secret| found.push(secret))?;
    let mut last = None;
    for secret in &found {
        let Some(JoinToken { host, replaces, used, .. }) = token::read(secret) else { continue };
        // One that never expires was made by hand.
        let until = token::expiration(secret).unwrap_or(now.plus(ENDLESS));
        let until = Some(until).filter(|until| now < *until);
        // A node that the host takes the place of is that of another host until its kubelet has a certificate.
        let may_be_joined = replaces.is_empty() || used.is_some_and(|used| used.plus(SETTLED) <= now);
        if may_be_joined && has_joined(client, &host)? {
            write::delete(client, &SECRET, &Key::of(secret))?;
            log::info!(host = host.as_str(); "The host has joined");
        } else {
            last = last.max(until);
        }
    }
    Ok(last)
}

/// Whether the host is a node whose agent has applied everything, and that all pods may come to.
fn has_joined(client: &Client, host: &str) -> Result<bool, Error> {
    let Some(node) = client.find::<Value>(&NODE, &Key::cluster(host))? else { return Ok(false) };
    if critical::is_closed(&node) {
        critical::open(client, &node)?;
        return Ok(false);
    }
    Ok(!annotation(&node, APPLIED).is_empty())
}

/// The cluster of a Shoot, as far as requests need it.
struct Cluster<'a> {
    client: &'a Client,
}

impl Joins for Cluster<'_> {
    fn token(&self, id: &str) -> Result<Option<JoinToken>, String> {
        let found = self.client.find::<Value>(&SECRET, &bootstrap_token::key(id));
        found.map(|secret| secret.as_ref().and_then(token::read)).map_err(|error| chain(&error))
    }

    fn node(&self, name: &str) -> Result<Option<JoinedNode>, String> {
        let found = self.client.find::<Value>(&NODE, &Key::cluster(name));
        found.map(|node| node.as_ref().map(joined)).map_err(|error| chain(&error))
    }

    fn other_with(&self, name: &str, asked: &RequestedCertificate) -> Result<Option<String>, String> {
        let mut other = None;
        let listed =
            self.client.list_each::<Value>(&NODE, ALL_NAMESPACES, &ListParams::default(), &mut |item| {
                let ListItem::Object(node) = item else { return };
                let own = text(&node["metadata"]["name"]);
                if own != name && joined(&node).has_one_of(asked) {
                    other = Some(own.to_owned());
                }
            });
        listed.map(|_| other).map_err(|error| chain(&error))
    }
}

fn joined(node: &Value) -> JoinedNode {
    let addresses = || node["status"]["addresses"].as_array().into_iter().flatten();
    let of = |kinds: &'static [&'static str]| {
        addresses().filter(|each| kinds.contains(&text(&each["type"]))).map(|each| text(&each["address"]))
    };
    JoinedNode {
        uid: text(&node["metadata"]["uid"]).to_owned(),
        names: of(&["Hostname", "InternalDNS", "ExternalDNS"]).map(str::to_owned).collect(),
        addresses: of(&["InternalIP", "ExternalIP"]).filter_map(|address| address.parse().ok()).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(name: &str, user: &str, signer: &str, made: &str) -> Value {
        json!({"metadata": {"name": name, "uid": name, "creationTimestamp": made},
            "spec": {"username": user, "signerName": signer, "usages": ["client auth"], "request": "AAAA"}})
    }

    #[test]
    fn the_newest_request_of_a_user_is_answered_and_older_ones_go() {
        let (client, serving) = ("kubernetes.io/kube-apiserver-client", "kubernetes.io/kubelet-serving");
        let at = |second: u32| format!("2026-01-01T00:00:{second:02}Z");
        let mut requests = OpenRequests::default();
        for (name, user, signer, second) in [
            ("b", "u", client, 2),
            ("c", "u", client, 3),
            ("a", "u", client, 1),
            ("d", "u", serving, 1),
            ("e", "v", client, 1),
            ("f", "v", "example.org/other", 9),
        ] {
            requests.add(&request(name, user, signer, &at(second)));
        }
        let mut answered = request("g", "w", client, &at(1));
        answered["status"]["conditions"] = json!([{"type": "Approved"}]);
        requests.add(&answered);
        let found: Vec<(&str, Vec<&str>)> = requests
            .0
            .iter()
            .map(|(_, open)| (open.name.as_str(), open.superseded.iter().map(String::as_str).collect()))
            .collect();
        assert_eq!(found, [("c", vec!["b", "a"]), ("e", vec![]), ("d", vec![])]);
    }

    #[test]
    fn requests_of_many_users_have_a_bound_and_large_ones_are_not_read() {
        let mut requests = OpenRequests::default();
        for user in 0..=limits::SHOOT_REQUESTS_MAX {
            let user = format!("u{user}");
            requests.add(&request(&user, &user, "kubernetes.io/kubelet-serving", "2026-01-01T00:00:00Z"));
        }
        assert_eq!(requests.0.len(), limits::SHOOT_REQUESTS_MAX);
        let mut large = request("a", "u", "kubernetes.io/kubelet-serving", "2026-01-01T00:00:00Z");
        large["spec"]["request"] = json!("A".repeat(limits::SHOOT_REQUEST_BYTES_MAX + 4));
        assert_eq!(read(&large).asked, None);
    }
}
