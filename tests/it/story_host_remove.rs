//! `gardenlet node remove`: hosts leave a Shoot, as the disruption budgets of their pods allow, or because they are lost.

use serde_json::{Value, json};

use crate::nodes::POOL;
use crate::story_host_join::Stand;
use support::TestCluster;
use support::api::failure::Failure;
use support::controllers::workloads::HOLD;
use support::http::faults::Action;
use support::json::list;

const OUT_OF_SERVICE: &str = "node.kubernetes.io/out-of-service";
const UNINSTALL: &str = "sudo sh join.sh --uninstall";

/// A pod on a host.
fn pod(cluster: &TestCluster, host: &str, name: &str, more: &Value) {
    let mut pod = json!({"metadata": {"name": name, "namespace": "default", "labels": {"app": name}},
        "spec": {"nodeName": host, "containers": [{"name": "c", "image": "i"}]}});
    for (part, fields) in more.as_object().into_iter().flatten() {
        for (field, value) in fields.as_object().into_iter().flatten() {
            pod[part][field] = value.clone();
        }
    }
    pod["metadata"]["annotations"][HOLD] = json!("its phase stays");
    cluster.create("v1", "pods", &pod);
    let ready = json!({"type": "Ready", "status": "True"});
    let phase = more["status"]["phase"].as_str().unwrap_or("Running");
    let status = json!({"status": {"phase": phase, "conditions": [ready]}});
    cluster.merge_status("", "pods", ("default", name), &status);
}

/// A pod with a controller of this kind. Its uid is that of an object that stays, so nobody deletes the pod with it.
fn owned_by(cluster: &TestCluster, kind: &str) -> Value {
    let there = cluster.get("", "namespaces", "", "default").unwrap();
    let owner = json!({"apiVersion": "apps/v1", "kind": kind, "name": "o", "uid": there["metadata"]["uid"], "controller": true});
    json!({"metadata": {"ownerReferences": [owner]}})
}

/// A budget of the pods with this name that allows so many disruptions.
fn budget(cluster: &TestCluster, name: &str, allowed: i64) {
    let selector = json!({"matchLabels": {"app": name}});
    if cluster.get("policy", "poddisruptionbudgets", "default", name).is_none() {
        let spec = json!({"minAvailable": 1, "selector": selector});
        let budget = json!({"metadata": {"name": name, "namespace": "default"}, "spec": spec});
        cluster.create("policy/v1", "poddisruptionbudgets", &budget);
    }
    let status = json!({"observedGeneration": 1, "disruptionsAllowed": allowed, "currentHealthy": 1, "desiredHealthy": 1 - allowed});
    cluster.merge_status("policy", "poddisruptionbudgets", ("default", name), &json!({"status": status}));
}

fn set_ready(cluster: &TestCluster, host: &str, status: &str) {
    let ready = json!({"type": "Ready", "status": status, "message": "told"});
    cluster.merge_status("", "nodes", ("", host), &json!({"status": {"conditions": [ready]}}));
}

/// The names of the pods of the story.
fn pods(stand: &Stand) -> Vec<String> {
    stand.server().cluster.store().names("", "pods", "default")
}

fn node(stand: &Stand, host: &str) -> Option<Value> {
    stand.server().cluster.get("", "nodes", "", host)
}

/// The command, at a terminal if there is an answer.
/// Whether a pool has the host, or its agent may still read what a pool has.
fn belongs(cluster: &TestCluster, host: &str) -> bool {
    let pools = cluster.get("", "configmaps", "kube-system", "edge-hosts").unwrap();
    let name = format!("gardener.cloud:node-agent:{host}");
    let binding = cluster.get("rbac.authorization.k8s.io", "rolebindings", "kube-system", &name);
    pools["data"][host].is_string() || binding.is_some()
}

fn remove(stand: &Stand, answer: Option<&str>, host: &str, more: &[&str]) -> (u8, String, String) {
    stand.command(answer, &[&["remove", &stand.place(), host], more].concat())
}

/// A budget holds a pod: at the end of the time nothing is deleted. Then it lets the pod go, and the host leaves.
#[test]
fn pods_leave_a_host_as_their_budgets_allow() {
    let stand = Stand::begin("host-remove", "n2");
    let server = stand.server();
    let cluster = &server.cluster;
    stand.print("one", &["--ttl=3h"]);
    for host in ["one", "two"] {
        server.join(host, POOL);
    }
    pod(cluster, "one", "web", &owned_by(cluster, "ReplicaSet"));
    pod(cluster, "one", "tool", &json!({}));
    pod(cluster, "one", "daemon", &owned_by(cluster, "DaemonSet"));
    pod(cluster, "one", "done", &json!({"status": {"phase": "Succeeded"}}));
    let mirror = json!({"metadata": {"annotations": {"kubernetes.io/config.mirror": "x"}}});
    pod(cluster, "one", "mirror", &mirror);
    pod(cluster, "two", "other", &json!({}));
    budget(cluster, "web", 0);

    let (code, _, told) = remove(&stand, None, "one", &[]);
    assert_eq!(code, 1);
    assert!(told.contains("confirm with --yes"), "{told}");
    let (code, plan, told) = remove(&stand, Some("two\n"), "one", &[]);
    assert_eq!(code, 1, "{plan}");
    assert!(told.contains("Enter the name of the host") && told.contains("nothing was written"), "{told}");
    assert!(
        plan.contains("default/tool (nothing makes it again)") && !plan.contains("default/daemon"),
        "{plan}"
    );
    assert_eq!(node(&stand, "one").unwrap()["spec"]["unschedulable"], Value::Null);

    let (code, output, told) = remove(&stand, Some("one\n"), "one", &["--grace=3s"]);
    assert_eq!(code, 1, "{output}");
    for part in [
        "1 pod is still on node one after 3s:",
        "default/web: The disruption budget web needs 1 healthy pods and has 1 currently",
        "Nothing was deleted, and the node stays closed to new pods",
        "kubectl uncordon one",
    ] {
        assert!(told.contains(part), "{part}: {told}");
    }
    assert_eq!(output.matches("Evict Pod default/web").count(), 1, "{output}");
    assert_eq!(pods(&stand), ["daemon", "done", "mirror", "other", "web"]);
    assert_eq!(node(&stand, "one").unwrap()["spec"]["unschedulable"], true);
    let [token] = <[String; 1]>::try_from(stand.tokens()).unwrap();

    budget(cluster, "web", 1);
    let (code, output, told) = remove(&stand, None, "one", &["--grace=1m", "--yes"]);
    assert_eq!(code, 0, "{told}");
    let is_write = |line: &&str| ["Update ", "Evict ", "Delete "].iter().any(|word| line.starts_with(word));
    let writes: Vec<&str> = output.lines().filter(is_write).collect();
    let secret = format!("Delete Secret kube-system/{token}");
    assert_eq!(writes, ["Evict Pod default/web", &secret, "Delete Node one"], "{output}");
    assert!(output.contains(UNINSTALL), "{output}");
    assert!(output.contains("Remove the host from ConfigMap kube-system/edge-hosts"), "{output}");
    assert!(!belongs(cluster, "one"), "it may become a node again");
    assert_eq!((node(&stand, "one"), stand.tokens()), (None, Vec::new()));
    assert_eq!(pods(&stand), ["daemon", "done", "mirror", "other"]);
    assert!(node(&stand, "two").is_some());

    let (code, output, told) = remove(&stand, None, "one", &["--yes"]);
    assert_eq!((code, told.as_str()), (0, ""));
    assert!(output.contains("nothing is left to remove") && output.contains(UNINSTALL), "{output}");
    stand.end();
}

/// The command ends at one of its writes, before it or after. Another run goes on.
#[test]
fn a_removal_that_was_interrupted_goes_on() {
    let stand = Stand::begin("host-again", "n3");
    let server = stand.server();
    let cluster = &server.cluster;
    let unable = || Failure::internal("etcdserver: request timed out");
    let points = [
        ("PATCH", "/nodes/one", Action::Refuse(unable())),
        ("PATCH", "/nodes/one", Action::RefuseAfter(unable())),
        ("DELETE", "/secrets/bootstrap-token-", Action::Refuse(unable())),
        ("DELETE", "/secrets/bootstrap-token-", Action::RefuseAfter(unable())),
        ("DELETE", "/rolebindings/gardener.cloud:node-agent:one", Action::Refuse(unable())),
        ("DELETE", "/rolebindings/gardener.cloud:node-agent:one", Action::RefuseAfter(unable())),
        ("PATCH", "/configmaps/edge-hosts", Action::Refuse(unable())),
        ("PATCH", "/configmaps/edge-hosts", Action::RefuseAfter(unable())),
        ("DELETE", "/nodes/one", Action::Refuse(unable())),
        ("DELETE", "/nodes/one", Action::RefuseAfter(unable())),
    ];
    for (method, path, action) in points {
        stand.print("one", &["--ttl=3h"]);
        server.join("one", POOL);
        pod(cluster, "one", "web", &owned_by(cluster, "ReplicaSet"));
        cluster.faults().on(method, path).once().then(action);
        let (code, _, told) = remove(&stand, None, "one", &["--yes"]);
        assert_eq!(code, 1, "{method} {path}");
        assert!(told.contains("run the command again to go on"), "{told}");
        let (code, _, told) = remove(&stand, None, "one", &["--yes"]);
        assert_eq!((code, told.as_str()), (0, ""), "{method} {path}");
        assert_eq!((node(&stand, "one"), stand.tokens(), pods(&stand)), (None, vec![], vec![]));
        assert!(!belongs(cluster, "one"), "{method} {path}");
    }
    stand.end();
}

/// A lost host: its pods with volumes are deleted by force. One that is there is not lost.
#[test]
fn a_lost_host_is_removed_and_one_that_is_there_is_not() {
    let stand = Stand::begin("host-lost", "n4");
    let server = stand.server();
    let cluster = &server.cluster;
    server.join("one", POOL);
    let claim = json!([{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}]);
    let mut database = owned_by(cluster, "StatefulSet");
    database["spec"] = json!({"volumes": claim});
    database["metadata"]["finalizers"] = json!(["example.org/hold"]);
    pod(cluster, "one", "database", &database);
    pod(cluster, "one", "web", &owned_by(cluster, "ReplicaSet"));
    let lost = |answer: Option<&str>| remove(&stand, answer, "one", &["--lost", "--grace=1s"]);

    let (code, output, told) = lost(Some("one\n"));
    assert_eq!((code, output.as_str()), (1, ""));
    assert!(told.contains("node one is not lost: it is Ready. Remove it without --lost"), "{told}");
    set_ready(cluster, "one", "False");
    assert!(lost(Some("one\n")).2.contains("its kubelet still reports: told"));
    assert_eq!(list(&node(&stand, "one").unwrap(), "/spec/taints"), &[] as &[Value]);

    set_ready(cluster, "one", "Unknown");
    let (code, plan, told) = lost(Some("no\n"));
    assert_eq!(code, 1);
    assert!(told.contains("nothing was written"), "{told}");
    assert!(plan.contains("default/database") && plan.contains("Switch it off before you go on"), "{plan}");

    let (code, output, told) = lost(Some("one\n"));
    assert_eq!(code, 0, "{told}");
    assert!(output.contains("Delete Pod default/database by force\nDelete Node one\n"), "{output}");
    assert!(output.contains("If one is ever switched on again") && output.contains(UNINSTALL), "{output}");
    assert_eq!(node(&stand, "one"), None);
    let left = cluster.get("", "pods", "default", "database").unwrap();
    assert_eq!(left["status"]["phase"], "Failed", "its controller does not count it");
    assert!(left["metadata"]["deletionTimestamp"].is_string());
    // The garbage collector of Kubernetes deletes it, because its Node is gone.
    assert!(pods(&stand).contains(&"web".to_owned()));
    assert_eq!(lost(Some("one\n")).0, 0);
    stand.end();
}

/// A lost host comes back while its pods are awaited.
#[test]
fn a_host_that_comes_back_meanwhile_stays() {
    let stand = Stand::begin("host-returns", "n5");
    let server = stand.server();
    let cluster = &server.cluster;
    server.join("one", POOL);
    set_ready(cluster, "one", "Unknown");
    let claim = json!([{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}]);
    pod(cluster, "one", "database", &json!({"spec": {"volumes": claim}}));
    let mine = server.clone();
    let back = Action::TellAfter(std::sync::Arc::new(move |_| set_ready(&mine.cluster, "one", "True")));
    cluster.faults().on("PATCH", "/nodes/one").once().then(back);
    let (code, output, told) = remove(&stand, None, "one", &["--lost", "--yes"]);
    assert_eq!(code, 1, "{output}");
    assert!(told.contains("it is Ready") && told.contains("kubectl taint node one"), "{told}");
    let node = node(&stand, "one").unwrap();
    assert!(list(&node, "/spec/taints").iter().any(|taint| taint["key"] == OUT_OF_SERVICE), "{node}");
    assert_eq!(pods(&stand), ["database"]);
    stand.end();
}
