//! `gardenlet node list`: what an operator reads about the hosts of a Shoot.

use serde_json::{Value, json};

use crate::nodes::POOL;
use crate::story_host_join::Stand;
use support::json::{entry, text};
use support::shoot::host::{APPLIED, Host};

/// The answer for programs: the hosts by their names.
fn listed(stand: &Stand) -> Vec<Value> {
    let (code, output, told) = stand.command(None, &["list", &stand.place(), "-o", "json"]);
    assert_eq!((code, told.as_str()), (0, ""), "{output}");
    let found: Value = serde_json::from_str(&output).unwrap();
    assert_eq!(found["shoot"], stand.place());
    found["hosts"].as_array().unwrap().clone()
}

fn host<'v>(hosts: &'v [Value], name: &str) -> &'v Value {
    hosts.iter().find(|host| host["name"] == name).unwrap_or_else(|| panic!("{name}: {hosts:?}"))
}

/// A host that is ready, one that is behind, one that is silent, and one that has not joined yet.
#[test]
fn a_list_says_what_keeps_each_host_from_being_ready() {
    let stand = Stand::begin("host-list", "n1");
    let server = stand.server();
    let cluster = &server.cluster;
    assert_eq!(listed(&stand), Vec::<Value>::new());
    let (code, output, _) = stand.command(None, &["list", &stand.place()]);
    assert_eq!(
        (code, output),
        (0, format!("Shoot {} has no node, and no token of a host.\n", stand.place()))
    );

    let good = Host::new(&server, &stand.print("good", &[]), "10.67.0.1");
    good.join();
    good.await_end();
    for name in ["late", "silent"] {
        server.join(name, POOL);
        let patch = json!({"metadata": {"annotations": {APPLIED: "old"}}});
        cluster.merge("", "nodes", ("", name), &patch);
    }
    let silent = json!({"type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown",
        "message": "Kubelet stopped posting node status.", "lastTransitionTime": "2026-01-01T00:00:00Z"});
    cluster.merge_status("", "nodes", ("", "silent"), &json!({"status": {"conditions": [silent]}}));
    stand.print("shed", &["--ttl=3h"]);

    let seen = || (cluster.store().all("", "nodes", ""), stand.tokens());
    let before = seen();
    let hosts = listed(&stand);
    assert_eq!(seen(), before, "a list writes");
    let names: Vec<&str> = hosts.iter().map(|host| text(host, "/name")).collect();
    assert_eq!(names, ["good", "late", "shed", "silent"]);
    assert!(hosts.iter().all(|host| host["pool"] == POOL), "{hosts:?}");
    let good = host(&hosts, "good");
    assert_eq!(
        (&good["state"], &good["configuration"], good.get("whyNot")),
        (&json!("Ready"), &json!("Applied"), None)
    );
    assert!(good["identityEnds"].is_string() && good["created"].is_string(), "{good}");
    let late = host(&hosts, "late");
    assert_eq!((&late["state"], &late["configuration"]), (&json!("Ready"), &json!("Behind")));
    assert!(text(late, "/whyNot").contains("it has not applied the last change of its pool"), "{late}");
    assert_eq!(late.get("identityEnds"), None, "nobody has seen its certificate");
    let silent = host(&hosts, "silent");
    assert_eq!((&silent["state"], &silent["since"]), (&json!("Unknown"), &json!("2026-01-01T00:00:00Z")));
    let shed = host(&hosts, "shed");
    assert_eq!((&shed["state"], shed.get("configuration")), (&json!("NotJoined"), None));
    let until = entry(shed, "", "tokenExpires").unwrap();
    assert_eq!(text(shed, "/whyNot"), format!("its token is unused: run its script there before {until}"));

    let (code, output, _) = stand.command(None, &["list", &stand.place()]);
    assert_eq!((code, output.lines().count()), (0, 5), "{output}");
    assert!(output.starts_with("POOL  HOST    KUBELET"), "{output}");
    let (_, yaml, _) = stand.command(None, &["list", &stand.place(), "-o", "yaml"]);
    assert!(yaml.contains("state: NotJoined"), "{yaml}");
    stand.end();
}
