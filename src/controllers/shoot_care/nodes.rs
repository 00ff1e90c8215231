//! Whether the nodes of a Shoot are well, and whether its API server reaches them.
//!
//! Source: Gardener's `pkg/gardenlet/controller/shoot/care`, without what it says about machines.

use std::time::Duration;

use serde_json::Value;

use crate::api::condition::Finding;
use crate::api::core::NODE;
use crate::api::meta::{ALL_NAMESPACES, text};
use crate::base::clock::Mono;
use crate::base::cut;
use crate::base::error::chain;
use crate::base::sorted::SortedMap;
use crate::components::rollout::has_condition_ready;
use crate::extension::CONFIGURATION_PROBLEM;
use crate::format::semver::Version;
use crate::hosts::critical;
use crate::hosts::delay::{self, DelayedNode};
use crate::kube::{Client, Error, ListItem, ListParams};
use crate::limits;
use crate::shoot::kubelet;
use crate::shoot::pools::{POOL, Pool};

use super::agents::{KnownAgents, SeenAgent};

/// How often nodes are read while all is well.
const PERIOD: Duration = Duration::from_secs(45);
/// How often a node is reached through the API server while all were reached: at every third check, by default.
const REACH_PERIOD: Duration = Duration::from_secs(150);
/// How many new nodes one look opens to all pods. Others are opened at the next one.
const CLOSED_MAX: usize = 10;
/// What the API server says of a kubelet whose server has no certificate.
const BARE: &str = "tls: internal error";
/// How long a kubelet may wait for the certificate of its server.
const BARE_MAX: Duration = Duration::from_secs(300);
/// The conditions of a node that must not be true.
const PRESSURES: [&str; 4] = ["DiskPressure", "MemoryPressure", "PIDPressure", "NetworkUnavailable"];
/// What a kubelet says if its owner must change something.
const OF_CONFIGURATION: [&str; 3] =
    ["kubelethasinsufficientmemory", "kubelethasdiskpressure", "kubelethasinsufficientpid"];

/// A node, as far as conditions need it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct SeenNode {
    name: String,
    /// Its pool; empty if it belongs to none.
    pool: String,
    /// The version of its kubelet.
    version: String,
    is_ready: bool,
    /// What is wrong with it.
    why: Option<String>,
    /// What is wrong with its agent, or with the certificate of its kubelet.
    fault: Option<Finding>,
}

/// What is known about the nodes of a Shoot.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct NodeFindings {
    /// The nodes, or why they are unknown.
    pub(super) nodes: Result<Vec<SeenNode>, String>,
    /// Why the API server does not reach the kubelet of a node.
    pub(super) tunnel: Option<String>,
}

/// The state of the nodes between two checks.
#[derive(Debug, Default)]
pub(super) struct KnownNodes {
    read: Option<Mono>,
    findings: Option<NodeFindings>,
    /// When each node was reached the last time, and why it was not.
    reached: SortedMap<String, (Mono, Option<String>)>,
    /// Since when the kubelets have no certificate of their server.
    bare: SortedMap<String, Mono>,
    agents: KnownAgents,
}

impl KnownNodes {
    /// Reads the nodes, and asks the kubelet of one of them, if that is due.
    pub(super) fn look(
        &mut self,
        client: &Client,
        delay_max: Duration,
        is_well: bool,
        at: Mono,
    ) -> NodeFindings {
        let is_fresh = self.read.is_some_and(|read| at.saturating_sub(read) < PERIOD);
        if let Some(findings) = self.findings.as_ref().filter(|_| is_well && is_fresh) {
            return findings.clone();
        }
        self.read = Some(at);
        let mut to_do = NodesToDo::default();
        let mut nodes = list(client, &mut to_do).map_err(|error| chain(&error));
        if nodes.is_ok()
            && let Err(error) = delay::spread(client, std::mem::take(&mut to_do.delays), delay_max)
        {
            log::debug!(why = chain(&error).as_str(); "Cannot write the delays of agents of nodes");
        }
        for node in &to_do.closed {
            // The next look tries again.
            if let Err(error) = critical::open(client, node) {
                log::debug!(why = chain(&error).as_str(); "Cannot open a node to all pods");
            }
        }
        if let Ok(nodes) = &mut nodes {
            self.reach(client, nodes, at);
            self.find_faults(client, nodes, &to_do.agents, is_well, at);
        }
        let tunnel = self.reached.iter().find_map(|(node, (_, why))| {
            why.as_ref().map(|why| format!("The API server cannot reach the kubelet of node {node}: {why}"))
        });
        let findings = NodeFindings { nodes, tunnel };
        self.findings = Some(findings.clone());
        findings
    }

    /// Looks at what is wrong with the agents of ready nodes, and with the certificates of their kubelets.
    fn find_faults(
        &mut self,
        client: &Client,
        nodes: &mut [SeenNode],
        agents: &SortedMap<String, SeenAgent>,
        is_well: bool,
        at: Mono,
    ) {
        if !agents.is_empty()
            && let Err(error) = self.agents.look(client, is_well, at)
        {
            log::debug!(why = chain(&error).as_str(); "Cannot read what the agents of nodes do");
        }
        self.bare = bare(&self.reached, &self.bare, at);
        for node in nodes.iter_mut().filter(|node| node.is_ready) {
            let since = self.bare.get(&node.name);
            node.fault = if since.is_some_and(|since| at.saturating_sub(*since) >= BARE_MAX) {
                let text = format!(
                    "The kubelet of node {:?} has no certificate of its server, so nobody reads logs of its pods: see the certificate requests \
                     of the node",
                    node.name
                );
                Some(Finding::new("KubeletServingCertificateMissing", text))
            } else {
                agents.get(&node.name).and_then(|agent| self.agents.fault(&node.name, agent))
            };
        }
    }

    /// Asks the kubelets that are due. Nodes that are not ready are not asked: theirs is another problem.
    fn reach(&mut self, client: &Client, nodes: &[SeenNode], at: Mono) {
        let is_there = |name: &String| nodes.iter().any(|node| node.name == *name && node.is_ready);
        self.reached.retain(|name, _| is_there(name));
        let ready = nodes.iter().filter(|node| node.is_ready).map(|node| node.name.as_str());
        for node in due(ready, &self.reached, at) {
            let answer = kubelet::ask(client, &node);
            self.reached.insert(node, (at, answer.err()));
        }
    }
}

/// Since when each kubelet has had no certificate of its server, as far as the last answers say. `before` is what was known so far.
fn bare(
    reached: &SortedMap<String, (Mono, Option<String>)>,
    before: &SortedMap<String, Mono>,
    now: Mono,
) -> SortedMap<String, Mono> {
    let is_bare = |why: &Option<String>| why.as_ref().is_some_and(|why| why.contains(BARE));
    let bare = reached.iter().filter(|(_, (_, why))| is_bare(why));
    bare.map(|(node, _)| (node.clone(), before.get(node).copied().unwrap_or(now))).collect()
}

/// The nodes to ask now: the one that was asked first, and the same among those that were not reached. None if all were
/// reached, the last one a short time ago.
fn due<'a>(
    ready: impl Iterator<Item = &'a str> + Clone,
    reached: &SortedMap<String, (Mono, Option<String>)>,
    now: Mono,
) -> Vec<String> {
    let last = |node: &&str| reached.get(*node).map(|(at, _)| *at);
    let is_broken = |node: &&str| reached.get(*node).is_some_and(|(_, why)| why.is_some());
    let is_new = ready.clone().any(|node| last(&node).is_none());
    let is_recent = ready
        .clone()
        .filter_map(|node| last(&node))
        .max()
        .is_some_and(|at| now.saturating_sub(at) < REACH_PERIOD);
    if is_recent && !is_new && !ready.clone().any(|node| is_broken(&node)) {
        return Vec::new();
    }
    let first = ready.clone().min_by_key(last);
    let broken = ready.filter(|node| is_broken(node) && first != Some(node)).min_by_key(last);
    first.into_iter().chain(broken).map(str::to_owned).collect()
}

/// What a look at the nodes finds to do.
#[derive(Debug, Default)]
struct NodesToDo {
    /// Some of those that ordinary pods may not come to yet.
    closed: Vec<Value>,
    /// The nodes whose agents delay changes.
    delays: Vec<DelayedNode>,
    /// What nodes say about their agents.
    agents: SortedMap<String, SeenAgent>,
}

/// Reads the nodes one by one: their owner decides how large they are.
fn list(client: &Client, to_do: &mut NodesToDo) -> Result<Vec<SeenNode>, Error> {
    let mut nodes = Vec::new();
    client.list_each::<Value>(&NODE, ALL_NAMESPACES, &ListParams::default(), &mut |item| match item {
        ListItem::Object(node) if nodes.len() < limits::SHOOT_NODES_MAX => {
            nodes.push(read(&node));
            to_do.delays.extend(DelayedNode::of(&node));
            let agent = SeenAgent::of(&node);
            to_do.agents.extend(agent.map(|agent| (text(&node["metadata"]["name"]).to_owned(), agent)));
            if critical::is_closed(&node) && to_do.closed.len() < CLOSED_MAX {
                to_do.closed.push(node);
            }
        }
        ListItem::Object(_) | ListItem::Undecodable(_) => {}
        ListItem::Restart => {
            nodes.clear();
            *to_do = NodesToDo::default();
        }
    })?;
    Ok(nodes)
}

fn read(node: &Value) -> SeenNode {
    let conditions = || node["status"]["conditions"].as_array().into_iter().flatten();
    let find = |kind: &str| conditions().find(|condition| condition["type"] == kind);
    let said = |kind: &str, condition: &Value| {
        let (reason, message) = (text(&condition["reason"]), text(&condition["message"]));
        format!("condition {kind} is {}: {reason}: {message}", text(&condition["status"]))
    };
    let ready = find("Ready");
    let is_ready = has_condition_ready(node);
    let pressed = || {
        PRESSURES
            .iter()
            .find_map(|kind| find(kind).filter(|it| it["status"] == "True").map(|it| said(kind, it)))
    };
    let why = match ready {
        None => Some("it has no condition Ready yet".to_owned()),
        Some(ready) if !is_ready => Some(said("Ready", ready)),
        Some(_) => pressed(),
    };
    let version = text(&node["status"]["nodeInfo"]["kubeletVersion"]);
    SeenNode {
        name: text(&node["metadata"]["name"]).to_owned(),
        pool: text(&node["metadata"]["labels"][POOL]).to_owned(),
        version: cut::head(version.trim_start_matches('v'), limits::SHOOT_NODE_VERSION_BYTES_MAX).to_owned(),
        is_ready,
        why: why.map(|why| cut::head(&why, limits::SHOOT_NODE_BYTES_MAX).to_owned()),
        fault: None,
    }
}

/// The first problem of the nodes, pool by pool.
pub(super) fn problem(pools: &[Pool], nodes: &[SeenNode]) -> Option<Finding> {
    pools.iter().find_map(|pool| {
        let own = || nodes.iter().filter(|node| node.pool == pool.name);
        own()
            .find_map(unhealthy)
            .or_else(|| own().find_map(|node| other_version(pool, node)))
            .or_else(|| missing(pool, own().count()))
            .or_else(|| own().find_map(|node| node.fault.clone()))
    })
}

fn unhealthy(node: &SeenNode) -> Option<Finding> {
    let why = node.why.as_ref()?;
    let text = format!("Node \"{}\" in worker group \"{}\" is unhealthy: {why}", node.name, node.pool);
    let is_of_owner = OF_CONFIGURATION.iter().any(|word| text.to_lowercase().contains(word));
    let codes = if is_of_owner { vec![CONFIGURATION_PROBLEM.to_owned()] } else { Vec::new() };
    Some(Finding { codes, ..Finding::new("NodeUnhealthy", text) })
}

/// A kubelet of the same minor version must not be older than its pool. A newer one is the business of its owner.
fn other_version(pool: &Pool, node: &SeenNode) -> Option<Finding> {
    let (wanted, found) = (&pool.kubernetes_version, &node.version);
    let Ok(own) = Version::parse(found) else {
        let text = format!("Node \"{}\" has a kubelet with the version {found:?}, which is none", node.name);
        return Some(Finding::new("VersionParseError", text));
    };
    let wanted = Version::parse(wanted).ok()?;
    let is_older = (own.major, own.minor) == (wanted.major, wanted.minor) && own < wanted;
    let text = format!(
        "The kubelet version for node \"{}\" (v{found}) does not match the desired Kubernetes version (v{})",
        node.name, pool.kubernetes_version
    );
    is_older.then(|| Finding::new("KubeletVersionMismatch", text))
}

fn missing(pool: &Pool, count: usize) -> Option<Finding> {
    let count = i64::try_from(count).unwrap_or(i64::MAX);
    (count < pool.minimum).then(|| {
        let text = format!(
            "Not enough worker nodes registered in worker pool \"{}\" to meet minimum desired machine count. ({count}/{}).",
            pool.name, pool.minimum
        );
        Finding::new("MissingNodes", text)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::json::json;
    use crate::kube::{Connection, Options};

    fn node(name: &str, conditions: &Value) -> SeenNode {
        read(&json!({"metadata": {"name": name, "labels": {"worker.gardener.cloud/pool": "a"}},
            "status": {"nodeInfo": {"kubeletVersion": "v1.34.3"}, "conditions": conditions}}))
    }

    fn ready() -> Value {
        json!({"type": "Ready", "status": "True"})
    }

    fn pool(name: &str, minimum: i64) -> Pool {
        Pool { name: name.to_owned(), kubernetes_version: "1.34.3".to_owned(), minimum, ..Pool::default() }
    }

    #[test]
    fn what_is_wrong_with_nodes() {
        let disk = json!({"type": "DiskPressure", "status": "True", "reason": "KubeletHasDiskPressure"});
        let away =
            json!({"type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown", "message": "m"});
        let other = |version: &str| SeenNode { version: version.to_owned(), ..node("n", &json!([ready()])) };
        let table = [
            (vec![node("n", &json!([ready()]))], 1, ""),
            (vec![], 0, ""),
            (
                vec![node("n", &json!([]))],
                1,
                "NodeUnhealthy: Node \"n\" in worker group \"a\" is unhealthy: it has no condition Ready",
            ),
            (
                vec![node("n", &json!([away]))],
                1,
                "NodeUnhealthy: Node \"n\" in worker group \"a\" is unhealthy: condition Ready is Unknown",
            ),
            (
                vec![node("n", &json!([ready(), disk]))],
                1,
                "NodeUnhealthy: Node \"n\" in worker group \"a\" is unhealthy: condition DiskPressure",
            ),
            (
                vec![other("1.34.2")],
                1,
                "KubeletVersionMismatch: The kubelet version for node \"n\" (v1.34.2)",
            ),
            (vec![other("1.34.4")], 1, ""),
            (vec![other("1.34.3+vendor")], 1, ""),
            (vec![other("1.33.5")], 1, ""),
            (vec![other("x")], 1, "VersionParseError"),
            (
                vec![node("n", &json!([ready()]))],
                2,
                "MissingNodes: Not enough worker nodes registered in worker pool \"a\"",
            ),
        ];
        for (nodes, minimum, expected) in table {
            let found = problem(&[pool("b", 0), pool("a", minimum)], &nodes);
            let text = found.map_or(String::new(), |found| format!("{}: {}", found.reason, found.message));
            assert!(
                text.starts_with(expected) && text.is_empty() == expected.is_empty(),
                "{expected}: {text}"
            );
        }
        let codes = problem(&[pool("a", 1)], &[node("n", &json!([ready(), disk]))]).unwrap().codes;
        assert_eq!(codes, [CONFIGURATION_PROBLEM]);
    }

    #[test]
    fn a_kubelet_is_without_a_certificate_since_the_first_answer_that_says_so() {
        let at = Duration::from_secs;
        let answer = |why: Option<&str>| SortedMap::from([("n".to_owned(), (at(9), why.map(str::to_owned)))]);
        let first = bare(&answer(Some("remote error: tls: internal error")), &SortedMap::new(), at(10));
        assert_eq!(first, SortedMap::from([("n".to_owned(), at(10))]));
        let later =
            answer(Some("status code 503: error trying to reach service: remote error: tls: internal error"));
        assert_eq!(bare(&later, &first, at(400)), first, "it counts from the first one");
        for other in [None, Some("no agent available")] {
            assert!(bare(&answer(other), &first, at(400)).is_empty(), "{other:?}");
        }
    }

    #[test]
    fn the_condition_names_a_kubelet_without_a_certificate_after_five_minutes() {
        let client =
            Client::new(Connection::new("http://127.0.0.1:9".to_owned()), Options::default()).unwrap();
        let at = Duration::from_secs;
        let why = Some(format!("remote {BARE}"));
        let reached = SortedMap::from([("n".to_owned(), (at(0), why))]);
        let mut known = KnownNodes { reached, ..KnownNodes::default() };
        let mut reason = |now: u64| {
            let mut nodes = [node("n", &json!([ready()]))];
            known.find_faults(&client, &mut nodes, &SortedMap::new(), true, at(now));
            problem(&[pool("a", 1)], &nodes).map(|found| found.reason)
        };
        assert_eq!((reason(0), reason(299)), (None, None));
        assert_eq!(reason(300).as_deref(), Some("KubeletServingCertificateMissing"));
    }

    #[test]
    fn each_node_is_asked_in_turn_and_a_lost_one_each_time() {
        let mono = |seconds| Mono::default().saturating_add(Duration::from_secs(seconds));
        let reached = |entries: &[(&str, u64, bool)]| {
            let of = |(node, at, is_lost): &(&str, u64, bool)| {
                ((*node).to_owned(), (mono(*at), is_lost.then(|| "w".to_owned())))
            };
            entries.iter().map(of).collect::<SortedMap<_, _>>()
        };
        let due =
            |nodes: &[&'static str], entries, now| due(nodes.iter().copied(), &reached(entries), mono(now));
        let nodes = ["a", "b", "c"];
        let all = [("a", 3, false), ("b", 1, false), ("c", 2, false)];
        assert_eq!(due(&nodes, &[], 9), ["a"]);
        assert_eq!(due(&nodes, &all[..1], 9), ["b"], "one was never asked");
        assert!(due(&nodes, &all, 152).is_empty(), "the last one was asked a short time ago");
        assert_eq!(due(&nodes, &all, 153), ["b"]);
        assert_eq!(due(&nodes, &[("a", 1, false), ("b", 3, true), ("c", 2, true)], 9), ["a", "c"]);
        assert_eq!(due(&nodes, &[("a", 1, true), ("b", 3, false), ("c", 2, false)], 9), ["a"]);
        assert_eq!(due(&nodes, &[("a", 1, true), ("b", 3, true), ("c", 2, true)], 9), ["a", "c"]);
        assert!(due(&[], &[], 9).is_empty());
    }
}
