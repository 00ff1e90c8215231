//! What an operator sees of the hosts of a Shoot: whether they are ready, what they have applied, and why not. Pure.

use serde_json::Value;

use crate::api::bootstrap_token;
use crate::api::meta::text;
use crate::base::clock::Timestamp;
use crate::base::cut;
use crate::base::sorted::SortedMap;
use crate::format::time::{parse_rfc3339, rfc3339};
use crate::limits;
use crate::osc::APPLIED;
use crate::shoot::pools::POOL;

use super::requests::{HostRequests, RequestAnswer, RequestsOfHosts, SeenRequest};
use super::{critical, token};

/// Whether a host is a ready node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum HostReadiness {
    /// There is no Node yet.
    NotJoined,
    Ready,
    /// Its kubelet says so, since this time.
    NotReady(Option<Timestamp>),
    /// Its kubelet has been silent since this time.
    Unknown(Option<Timestamp>),
}

/// How far a node is with the configuration of its pool.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum AppliedConfiguration {
    Applied,
    /// It has applied an older one.
    Behind,
    /// It has applied none.
    None,
}

/// A Node, as its object tells.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct SeenNode {
    pub(crate) name: String,
    pub(crate) pool: String,
    /// The version of its kubelet.
    version: String,
    made: Option<Timestamp>,
    readiness: HostReadiness,
    /// What the condition Ready says.
    message: String,
    is_cordoned: bool,
    /// Only pods that each node needs may come.
    pub(crate) is_closed: bool,
    /// The checksum of what its agent has applied.
    applied: String,
}

impl SeenNode {
    pub(crate) fn read(node: &Value) -> Self {
        let head = |value: &Value| cut::one_line(cut::head(text(value), limits::SHOOT_NODE_BYTES_MAX));
        let (metadata, status) = (&node["metadata"], &node["status"]);
        let conditions = status["conditions"].as_array();
        let ready = conditions.into_iter().flatten().find(|condition| condition["type"] == "Ready");
        let since = ready.and_then(|ready| parse_rfc3339(text(&ready["lastTransitionTime"])).ok());
        Self {
            name: text(&metadata["name"]).to_owned(),
            pool: head(&metadata["labels"][POOL]),
            version: head(&status["nodeInfo"]["kubeletVersion"]),
            made: parse_rfc3339(text(&metadata["creationTimestamp"])).ok(),
            readiness: match ready.map(|ready| text(&ready["status"])) {
                Some("True") => HostReadiness::Ready,
                Some("Unknown") => HostReadiness::Unknown(since),
                _ => HostReadiness::NotReady(since),
            },
            message: ready.map(|ready| head(&ready["message"])).unwrap_or_default(),
            is_cordoned: node["spec"]["unschedulable"] == true,
            is_closed: critical::is_closed(node),
            applied: head(&metadata["annotations"][APPLIED]),
        }
    }
}

/// The token of a host.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct SeenToken {
    pub(crate) host: String,
    pool: String,
    made: Option<Timestamp>,
    /// None if it never expires.
    until: Option<Timestamp>,
}

impl SeenToken {
    /// None if the Secret is that of another program.
    pub(crate) fn read(secret: &Value) -> Option<Self> {
        let join = token::read(secret)?;
        // Only the description names the pool.
        let description = bootstrap_token::field(secret, "description");
        let pool = description.strip_prefix(&format!("Host {} joins pool ", join.host));
        Some(Self {
            pool: pool.and_then(|pool| pool.strip_suffix('.')).unwrap_or_default().to_owned(),
            made: join.made,
            until: token::expiration(secret),
            host: join.host,
        })
    }
}

/// What is known besides nodes and tokens.
#[derive(Debug)]
pub(crate) struct HostSurroundings<'a> {
    /// The checksum of the configuration of each pool, by its name.
    pub(crate) checksums: &'a SortedMap<String, String>,
    pub(crate) requests: &'a RequestsOfHosts,
    /// What closed nodes wait for, by the name of the node.
    pub(crate) missing: &'a SortedMap<String, String>,
    pub(crate) now: Timestamp,
}

/// A row of the list. Facts that are unknown are None or empty.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct HostRow {
    pub(crate) name: String,
    pub(crate) pool: String,
    /// The version of its kubelet.
    pub(crate) version: String,
    /// When its Node was made.
    pub(crate) made: Option<Timestamp>,
    pub(crate) readiness: HostReadiness,
    pub(crate) is_cordoned: bool,
    pub(crate) is_closed: bool,
    pub(crate) configuration: Option<AppliedConfiguration>,
    /// When the certificate of its kubelet expires.
    pub(crate) identity_ends: Option<Timestamp>,
    /// When its token expires.
    pub(crate) token_until: Option<Timestamp>,
    /// One sentence; empty if nothing is wrong.
    pub(crate) why_not: String,
}

/// One row for each Node, and for each host that has a token and no Node, sorted by pool and name.
pub(crate) fn rows(nodes: &[SeenNode], tokens: &[SeenToken], around: &HostSurroundings<'_>) -> Vec<HostRow> {
    let token_of = |host: &str| tokens.iter().find(|token| token.host == host);
    let mut rows: Vec<HostRow> =
        nodes.iter().map(|node| of_node(node, token_of(&node.name), around)).collect();
    let is_node = |host: &str| nodes.iter().any(|node| node.name == host);
    rows.extend(tokens.iter().filter(|token| !is_node(&token.host)).map(|token| of_token(token, around)));
    rows.sort_by(|a, b| (&a.pool, &a.name).cmp(&(&b.pool, &b.name)));
    rows
}

fn of_node(node: &SeenNode, token: Option<&SeenToken>, around: &HostSurroundings<'_>) -> HostRow {
    let requests = around.requests.of(&node.name);
    let configuration = match (node.applied.as_str(), around.checksums.get(&node.pool)) {
        ("", _) => Some(AppliedConfiguration::None),
        (_, None) => None,
        (applied, Some(wanted)) if applied == wanted => Some(AppliedConfiguration::Applied),
        _ => Some(AppliedConfiguration::Behind),
    };
    HostRow {
        name: node.name.clone(),
        pool: node.pool.clone(),
        version: node.version.clone(),
        made: node.made,
        readiness: node.readiness,
        is_cordoned: node.is_cordoned,
        is_closed: node.is_closed,
        configuration,
        identity_ends: requests.identity.as_ref().and_then(|identity| identity.ends),
        token_until: token.and_then(|token| token.until),
        why_not: why_not(node, configuration, &requests, token, around).unwrap_or_default(),
    }
}

/// The first thing that an operator has to know, in the order in which one needs the other.
fn why_not(
    node: &SeenNode,
    configuration: Option<AppliedConfiguration>,
    requests: &HostRequests,
    token: Option<&SeenToken>,
    around: &HostSurroundings<'_>,
) -> Option<String> {
    let name = &node.name;
    let rejoins = token.filter(|token| token.until.is_none_or(|until| around.now < until));
    match node.readiness {
        HostReadiness::Unknown(_) | HostReadiness::NotReady(_) if rejoins.is_some() => {
            return Some(format!(
                "a script was printed with which a host takes its place{}",
                until(rejoins.and_then(|token| token.until))
            ));
        }
        HostReadiness::Unknown(_) => {
            return Some(
                "its kubelet is silent: see whether the host is on and reaches the API server".to_owned(),
            );
        }
        HostReadiness::NotReady(_) if node.message.is_empty() => {
            return Some("its kubelet has not said yet that it is ready".to_owned());
        }
        HostReadiness::NotReady(_) => return Some(format!("its kubelet says: {}", node.message)),
        HostReadiness::Ready | HostReadiness::NotJoined => {}
    }
    const JOURNAL: &str = "journalctl --unit=gardener-node-agent on the host says why";
    match configuration {
        Some(AppliedConfiguration::None) => {
            return Some(format!("it has not applied the configuration of its pool yet: {JOURNAL}"));
        }
        Some(AppliedConfiguration::Behind) => {
            return Some(format!("it has not applied the last change of its pool: {JOURNAL}"));
        }
        Some(AppliedConfiguration::Applied) | None => {}
    }
    server(requests.server.as_ref()).or_else(|| {
        let missing = around.missing.get(name);
        if node.is_closed {
            return Some(missing.map_or_else(
                || {
                    "closed to other pods until the agent of the seed has seen that all it needs runs"
                        .to_owned()
                },
                |missing| format!("closed to other pods: {missing}"),
            ));
        }
        let cordoned = || format!("cordoned: kubectl uncordon {name} lets pods come again");
        node.is_cordoned.then(cordoned)
    })
}

/// Why nobody can read the logs of its pods.
fn server(request: Option<&SeenRequest>) -> Option<String> {
    const WITHOUT: &str = "its kubelet has no new certificate of its server, so logs and exec may fail";
    let request = request?;
    match &request.answer {
        RequestAnswer::Signed => None,
        RequestAnswer::Open => {
            let since = request.made.map(|made| format!(" since {}", rfc3339(made))).unwrap_or_default();
            Some(format!("{WITHOUT}: its request is open{since}"))
        }
        RequestAnswer::Refused(why) => Some(format!("{WITHOUT}: its request was refused: {why}")),
    }
}

fn of_token(token: &SeenToken, around: &HostSurroundings<'_>) -> HostRow {
    // An earlier script of the host had a token of the same name.
    let join = around.requests.of(&token.host).join.filter(|request| request.made >= token.made);
    let until = until(token.until);
    let why_not = match join.as_ref().map(|join| (&join.answer, join.is_of_kubelet)) {
        _ if token.until.is_some_and(|until| until <= around.now) => {
            "its token has expired: print its script again".to_owned()
        }
        None => format!("its token is unused: run its script there{until}"),
        Some((RequestAnswer::Open, _)) => "it joins: its request for a certificate is open".to_owned(),
        Some((RequestAnswer::Refused(why), _)) => {
            format!("its request for a certificate was refused: {why}")
        }
        Some((RequestAnswer::Signed, false)) => {
            "it joins: gardener-node-agent has its certificate, and brings the kubelet".to_owned()
        }
        Some((RequestAnswer::Signed, true)) => {
            "it joins: the kubelet has its certificate, and makes the Node".to_owned()
        }
    };
    HostRow {
        name: token.host.clone(),
        pool: token.pool.clone(),
        version: String::new(),
        made: None,
        readiness: HostReadiness::NotJoined,
        is_cordoned: false,
        is_closed: false,
        configuration: None,
        identity_ends: None,
        token_until: token.until,
        why_not,
    }
}

/// Until when a script is good.
fn until(end: Option<Timestamp>) -> String {
    end.map(|end| format!(" before {}", rfc3339(end))).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::json::json;
    use crate::format::base64;
    use crate::osc::NOT_READY;

    const NOW: Timestamp = Timestamp::from_unix(1_767_225_600);
    const SERVER: &str = "kubernetes.io/kubelet-serving";

    fn node(name: &str, ready: &Value) -> Value {
        json!({"metadata": {"name": name, "labels": {POOL: "a"}, "annotations": {APPLIED: "new"},
                "creationTimestamp": "2025-12-31T00:00:00Z"},
            "spec": {}, "status": {"conditions": [{"type": "MemoryPressure", "status": "False"}, ready],
                "nodeInfo": {"kubeletVersion": "v1.34.3"}}})
    }

    fn ready(status: &str, message: &str) -> Value {
        json!({"type": "Ready", "status": status, "message": message, "lastTransitionTime": "2025-12-31T23:00:00Z"})
    }

    fn secret(host: &str, until: &str) -> Value {
        let encoded = |text: &str| json!(base64::encode(text.as_bytes()));
        json!({"metadata": {"labels": {token::HOST: host}, "creationTimestamp": "2025-12-31T23:30:00Z"},
            "data": {"description": encoded(&format!("Host {host} joins pool b.")), "expiration": encoded(until)}})
    }

    fn request(user: &str, signer: &str, made: &str, status: &Value) -> Value {
        json!({"metadata": {"creationTimestamp": made}, "spec": {"username": user, "signerName": signer}, "status": status})
    }

    /// The rows of nodes and tokens, with these requests.
    fn told(nodes: &[Value], tokens: &[Value], requests: &[Value]) -> Vec<HostRow> {
        let nodes: Vec<SeenNode> = nodes.iter().map(SeenNode::read).collect();
        let tokens: Vec<SeenToken> = tokens.iter().filter_map(SeenToken::read).collect();
        let names = nodes.iter().map(|node| node.name.as_str());
        let hosts = tokens.iter().map(|token| token.host.as_str());
        let mut seen = RequestsOfHosts::new(names.chain(hosts));
        requests.iter().for_each(|request| seen.add(request));
        let around = HostSurroundings {
            checksums: &SortedMap::from([("a".to_owned(), "new".to_owned())]),
            requests: &seen,
            missing: &SortedMap::from([("n".to_owned(), "pod kube-proxy-x is not ready".to_owned())]),
            now: NOW,
        };
        rows(&nodes, &tokens, &around)
    }

    #[test]
    fn why_a_node_is_not_as_it_should_be() {
        let good = || node("n", &ready("True", "kubelet is posting ready status"));
        let with = |pointer: &str, value: Value| {
            let mut node = good();
            let (parent, field) = pointer.rsplit_once('/').unwrap();
            node.pointer_mut(parent).unwrap()[field] = value;
            node
        };
        let closed = json!([{"key": NOT_READY, "effect": "NoSchedule"}]);
        let mut silent_and_closed = with("/spec/taints", closed.clone());
        silent_and_closed["status"]["conditions"] =
            json!([ready("Unknown", "Kubelet stopped posting node status.")]);
        let table = [
            (good(), ""),
            (node("n", &ready("Unknown", "x")), "its kubelet is silent: see whether the host is on"),
            (silent_and_closed, "its kubelet is silent: "),
            (
                node("n", &ready("False", "cni plugin not\ninitialized")),
                "its kubelet says: cni plugin not initialized",
            ),
            (with("/status/conditions", json!([])), "its kubelet has not said yet that it is ready"),
            (
                with("/metadata/annotations", json!({})),
                "it has not applied the configuration of its pool yet: ",
            ),
            (
                with("/metadata/annotations", json!({APPLIED: "old"})),
                "it has not applied the last change of its pool: ",
            ),
            (with("/spec/taints", closed), "closed to other pods: pod kube-proxy-x is not ready"),
            (with("/spec/unschedulable", json!(true)), "cordoned: kubectl uncordon n "),
        ];
        for (node, expected) in table {
            let found = told(std::slice::from_ref(&node), &[], &[]).remove(0).why_not;
            assert!(
                found.starts_with(expected) && found.is_empty() == expected.is_empty(),
                "{found}: {node}"
            );
        }
        let mut other = good();
        other["metadata"]["name"] = json!("m");
        other["spec"]["taints"] = json!([{"key": NOT_READY}]);
        let found = told(&[other], &[], &[]).remove(0).why_not;
        assert!(found.starts_with("closed to other pods until the agent of the seed"), "{found}");
    }

    #[test]
    fn what_is_unknown_is_not_told() {
        let row = told(&[node("n", &ready("True", ""))], &[], &[]).remove(0);
        assert_eq!((row.pool.as_str(), row.version.as_str()), ("a", "v1.34.3"));
        assert_eq!(row.configuration, Some(AppliedConfiguration::Applied));
        assert_eq!((row.identity_ends, row.token_until), (None, None));
        let mut foreign = node("n", &ready("True", ""));
        foreign["metadata"]["labels"] = json!({POOL: "gone"});
        assert_eq!(told(&[foreign], &[], &[]).remove(0).configuration, None, "its pool has no Secret");
        let since = Timestamp::from_unix(1_767_222_000);
        let silent = told(&[node("n", &ready("Unknown", ""))], &[], &[]).remove(0);
        assert_eq!(silent.readiness, HostReadiness::Unknown(Some(since)));
    }

    #[test]
    fn a_kubelet_without_a_certificate_of_its_server_is_named() {
        let table = [
            (json!({"conditions": [{"type": "Denied", "message": "wrong"}]}), "was refused: wrong"),
            (Value::Null, "its request is open since 2025-12-31T23:59:00Z"),
        ];
        for (status, expected) in table {
            let asked = request("system:node:n", SERVER, "2025-12-31T23:59:00Z", &status);
            let found = told(&[node("n", &ready("True", ""))], &[], &[asked]).remove(0).why_not;
            assert!(
                found.starts_with("its kubelet has no new certificate") && found.ends_with(expected),
                "{found}"
            );
        }
    }

    #[test]
    fn hosts_that_have_not_joined_have_a_row() {
        let key = token::key("h").name;
        let user = format!("system:bootstrap:{}", key.trim_start_matches("bootstrap-token-"));
        let asked = |signer: &str, made: &str, status: &Value| request(&user, signer, made, status);
        let (agent, early, late) =
            ("kubernetes.io/kube-apiserver-client", "2025-12-31T23:00:00Z", "2025-12-31T23:59:00Z");
        let denied = json!({"conditions": [{"type": "Denied", "message": "node h exists"}]});
        let (good, over) = ("2026-01-01T01:00:00Z", "2026-01-01T00:00:00Z");
        let table = [
            (good, None, "its token is unused: run its script there before 2026-01-01T01:00:00Z"),
            ("", None, "its token is unused: run its script there"),
            (over, None, "its token has expired: print its script again"),
            (good, Some(asked(agent, early, &denied)), "its token is unused: run its script there before "),
            (
                good,
                Some(asked(agent, late, &denied)),
                "its request for a certificate was refused: node h exists",
            ),
            (good, Some(asked(agent, late, &Value::Null)), "it joins: its request for a certificate is open"),
        ];
        for (until, asked, expected) in table {
            let asked: Vec<Value> = asked.into_iter().collect();
            let row = told(&[], &[secret("h", until)], &asked).remove(0);
            assert_eq!((row.pool.as_str(), row.readiness), ("b", HostReadiness::NotJoined));
            assert!(row.why_not.starts_with(expected), "{expected}: {}", row.why_not);
        }
    }

    #[test]
    fn rows_are_sorted_and_each_host_has_one() {
        let nodes = [node("z", &ready("Unknown", "")), node("c", &ready("True", ""))];
        let good = "2026-01-01T01:00:00Z";
        let rows = told(&nodes, &[secret("d", good), secret("z", good)], &[]);
        let names: Vec<&str> = rows.iter().map(|row| row.name.as_str()).collect();
        assert_eq!(names, ["c", "z", "d"]);
        assert!(
            rows[1].why_not.starts_with("a script was printed with which a host takes its place"),
            "{rows:?}"
        );
        assert_eq!(rows[1].token_until, Some(Timestamp::from_unix(1_767_229_200)));
    }
}
