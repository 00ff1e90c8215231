//! The agent of the seed is killed while a host joins: before or after one of its writes. It starts again, and the host is a node of which
//! nothing else is left.

use std::time::Duration;

use gardenlet::format::time::rfc3339;
use serde_json::{Value, json};

use crate::faultpoints::{Fault, FaultPoints, Outcome, Point};
use crate::left::Words;
use crate::nodes::POOL;
use crate::sampling::Sample;
use crate::story_host_change::DELAY;
use crate::story_host_join::{JOINING, Stand, TOKENS};
use crate::world::{Options, World};
use support::api::store::Id;
use support::encoding::{base64, sha256_hex};
use support::http::faults::Seen;
use support::json::{entry, text};
use support::shoot::host::{AGENT, CSRS, Host};

const NAME: &str = "k1";
const HOST: &str = "shed";
/// How many points a normal run tries.
const FEW: usize = 4;
/// The writes of each join, as they begin: sorted, because the node may be open before its kubelet serves.
const WRITES: [&str; 6] = [
    "seed: PATCH namespaces shoot--p--k1",
    "shoot: DELETE secrets bootstrap-token-",
    "shoot: PATCH nodes shed",
    "shoot: PUT certificatesigningrequests/approval csr-",
    "shoot: PUT certificatesigningrequests/approval csr-",
    "shoot: PUT certificatesigningrequests/approval node-agent-csr-",
];

/// Whether it is a write of the approver, besides those of the operations that a restarted agent begins.
fn concerns(seen: &Seen) -> bool {
    let annotations = seen.body.as_ref().map(|body| &body["metadata"]["annotations"]);
    match seen.info.resource.as_str() {
        "certificatesigningrequests" => true,
        // Care spreads the delays of agents at its own time.
        "nodes" => annotations.is_none_or(|all| all.get(DELAY).is_none()),
        "secrets" => seen.info.name.starts_with(TOKENS),
        "namespaces" => annotations.is_some_and(|all| all.get(JOINING).is_some()),
        _ => false,
    }
}

/// What the command `node script` writes; returns what the stand-in for the host takes from the script.
fn write_token(stand: &Stand) -> String {
    let id = &sha256_hex(HOST.as_bytes())[..6];
    let until = rfc3339(stand.world.clock.now().plus(Duration::from_secs(86_400)));
    let mut secret = json!({"type": "bootstrap.kubernetes.io/token", "metadata": {
        "name": format!("{TOKENS}{id}"), "namespace": "kube-system", "labels": {"edge.gardenlet/host": HOST}}});
    let (usage, rest) = ("usage-bootstrap-authentication", "0123456789abcdef");
    for (name, value) in [("token-id", id), ("token-secret", rest), ("expiration", &until), (usage, "true")] {
        secret["data"][name] = json!(base64(value.as_bytes()));
    }
    stand.server().cluster.create("v1", "secrets", &secret);
    let group = "rbac.authorization.k8s.io";
    let binding = json!({
        "metadata": {"name": format!("gardener.cloud:node-agent:{HOST}"), "namespace": "kube-system"},
        "roleRef": {"apiGroup": group, "kind": "Role", "name": format!("gardener.cloud:node-agents:{POOL}")},
        "subjects": [{"apiGroup": group, "kind": "User", "name": format!("{AGENT}{HOST}")}]});
    stand.server().cluster.create(&format!("{group}/v1"), "rolebindings", &binding);
    let patch = json!({"metadata": {"annotations": {JOINING: until}}});
    stand.world.seed.merge("", "namespaces", ("", &stand.plane()), &patch);
    let reads = stand.pool_secret().unwrap();
    let reads = text(&reads, "/metadata/name");
    format!("HOST_NAME='{HOST}'\nPOOL='{POOL}'\nPOOL_SECRET='{reads}'\n{id}.{rest}\n")
}

/// A host joins, with a kill at one write or without.
fn run(at: Option<&Point>) -> Outcome {
    let stand = Stand::on(World::start(&Options::new("host-crash")), World::site, NAME);
    let server = stand.server();
    let points = FaultPoints::new(&stand.agent, at);
    points.watch("seed", &stand.world.seed, concerns);
    points.watch("shoot", &server.cluster, concerns);
    let script = write_token(&stand);
    points.restarting(
        |_| {},
        || {
            let host = Host::new(&server, &script, "10.67.0.1").patient();
            host.join();
            host.await_end();
            stand.wait_until_nobody_joins();
            server.cluster.wait_for("the delay of the agent", |cluster| {
                let node = cluster.get("", "nodes", "", HOST)?;
                entry(&node, "/metadata/annotations", DELAY).map(drop)
            });
        },
    );
    let nodes = server.cluster.store().names("", "nodes", "");
    let mut problems = Vec::new();
    if nodes != [HOST] || !stand.tokens().is_empty() || stand.joining().is_some() {
        problems.push(format!("left are {nodes:?}, {:?}, {:?}", stand.tokens(), stand.joining()));
    }
    let objects = left(&stand);
    stand.end();
    Outcome { objects, points, problems }
}

fn left(stand: &Stand) -> Vec<(String, Value)> {
    let counts = |id: &Id| ["nodes", CSRS.1].contains(&id.plural.as_str()) || id.name.starts_with(TOKENS);
    Words::new(&[]).left_in(&stand.server().cluster, counts)
}

#[test]
fn a_kill_while_a_host_joins_changes_nothing() {
    let undisturbed = run(None);
    assert_eq!(undisturbed.problems, Vec::<String>::new());
    let mut writes = undisturbed.points.writes();
    // The care for the Shoot opens nodes, too, at its own time.
    writes.retain(|write| !write.contains(" #"));
    writes.sort();
    for (write, expected) in writes.iter().zip(WRITES) {
        assert!(write.starts_with(expected), "{writes:?}");
    }
    assert_eq!(writes.len(), WRITES.len(), "{writes:?}");
    let at = |write: &String| [Fault::KillBefore, Fault::KillAfter].map(|fault| Point::named(fault, write));
    let points: Vec<Point> = writes.iter().flat_map(at).collect();
    let attempt = |point: &Point| run(Some(point)).verdict(&undisturbed.objects);
    Sample::of("kills while a host joins").with(FEW, points).run(&attempt);
}
