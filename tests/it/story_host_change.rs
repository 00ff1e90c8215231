//! The owner of a Shoot changes a pool to which a host has joined.

use std::time::Duration;

use serde_json::{Value, json};

use crate::nodes::POOL;
use crate::story_host_join::Stand;
use crate::world::CORE;
use support::controllers::workloads::HOLD;
use support::json::{entry, list, text};
use support::shoot::history::wait_until;
use support::shoot::host::Host;

/// What the operation does after all others.
const APPLYING: &str = "Waiting until all shoot worker nodes have updated the operating system config";
pub(crate) const DELAY: &str = "node-agent.gardener.cloud/reconciliation-delay";

/// Changes the settings of the pool's kubelets. The settings of a pool replace those of the Shoot as a whole.
fn change(stand: &Stand, settings: &Value) {
    let (garden, place) = (&stand.world.garden, stand.in_garden());
    let shoot = garden.get(CORE, "shoots", place.0, place.1).unwrap();
    let mut workers = shoot["spec"]["provider"]["workers"].clone();
    let mut own = shoot["spec"]["kubernetes"]["kubelet"].clone();
    own.as_object_mut().unwrap().extend(settings.as_object().unwrap().clone());
    workers[0]["kubernetes"]["kubelet"] = own;
    garden.merge(CORE, "shoots", place, &json!({"spec": {"provider": {"workers": workers}}}));
}

fn last_operation(stand: &Stand) -> Value {
    let place = stand.in_garden();
    let shoot = stand.world.garden.get(CORE, "shoots", place.0, place.1).unwrap();
    shoot["status"]["lastOperation"].clone()
}

/// An operation waits for the hosts that are there, until their agents have applied what has changed. It does not wait for an absent host.
#[test]
fn an_operation_waits_until_ready_hosts_have_applied_a_change() {
    let stand = Stand::begin("host-applies", "j12");
    let (server, garden) = (stand.server(), &stand.world.garden);
    let attic = Host::new(&server, &stand.print("attic", &[]), "10.67.0.1");
    let (agent, _) = attic.join();
    let shed = Host::new(&server, &stand.print("shed", &[]), "10.67.0.2");
    shed.join();
    // They do not restart their kubelets at the same time.
    server.cluster.wait_for("the delays", |cluster| {
        let delay = |host: &str| {
            let node = cluster.get("", "nodes", "", host)?;
            entry(&node, "/metadata/annotations", DELAY).map(str::to_owned)
        };
        (delay("attic")? == "0s" && delay("shed")? == "2m30s").then_some(())
    });
    let away = json!({"status": {"conditions": [{"type": "Ready", "status": "Unknown"}]}});
    server.cluster.merge_status("", "nodes", ("", "shed"), &away);

    let before = stand.pool_secret().unwrap();
    change(&stand, &json!({"maxPods": 50}));
    let is_applying = || text(&last_operation(&stand), "/description").contains(APPLYING).then_some(());
    garden.wait_for(APPLYING, |_| is_applying());
    assert_ne!(stand.pool_secret().unwrap(), before);
    stand.world.skip(Duration::from_secs(60));
    assert_eq!(last_operation(&stand)["state"], "Processing");
    attic.apply(&attic.with(&agent));
    wait_until(garden, stand.in_garden(), "Reconcile Succeeded 100");
    stand.end();
}

/// A change for which a host must be drained is refused before anything changes, and made as soon as the host has left.
#[test]
fn a_change_that_needs_a_drained_host_is_refused_while_there_is_one() {
    let stand = Stand::begin("host-change", "j11");
    let server = stand.server();
    let host = Host::new(&server, &stand.print("shed", &[]), "10.67.0.1");
    host.join();
    host.await_end();
    let (garden, place) = (&stand.world.garden, stand.in_garden());
    let applied = stand.pool_secret().unwrap();
    let generation = || {
        let server = stand.world.seed.get("apps", "deployments", &stand.plane(), "kube-apiserver").unwrap();
        server["metadata"]["generation"].clone()
    };
    let before = generation();

    change(&stand, &json!({"kubeReserved": {"memory": "300Mi"}}));
    let refusal = garden.wait_for("the refusal", |garden| {
        let shoot = garden.get(CORE, "shoots", place.0, place.1)?;
        let errors = list(&shoot, "/status/lastErrors");
        errors.iter().find(|error| error["codes"] == json!(["ERR_CONFIGURATION_PROBLEM"])).cloned()
    });
    let why = text(&refusal, "/description");
    assert!(why.contains("pool \"pool\" changes kubernetes.kubelet.kubeReserved"), "{why}");
    assert!(why.contains("let the hosts of the pool leave and join again (shed)"), "{why}");
    assert_eq!(
        (stand.pool_secret().unwrap(), generation()),
        (applied.clone(), before),
        "something has changed"
    );

    // Nobody can ask for hosts while the Shoot sleeps, and nodes stay.
    change(&stand, &json!({}));
    let sleep = |enabled: bool| {
        garden.merge(CORE, "shoots", place, &json!({"spec": {"hibernation": {"enabled": enabled}}}));
    };
    sleep(true);
    wait_until(garden, place, "Reconcile Succeeded 100");
    for enabled in [true, false] {
        change(&stand, &json!({"kubeReserved": {"memory": "300Mi"}}));
        sleep(enabled);
        garden.wait_for("the refusal to a Shoot that sleeps", |garden| {
            let shoot = garden.get(CORE, "shoots", place.0, place.1)?;
            let is_seen = shoot["status"]["observedGeneration"] == shoot["metadata"]["generation"];
            let last = &shoot["status"]["lastOperation"];
            let is_refused = text(last, "/description").contains("wake it up without this change first");
            (is_seen && last["state"] == "Failed" && is_refused).then_some(())
        });
    }
    change(&stand, &json!({}));
    wait_until(garden, place, "Reconcile Succeeded 100");
    change(&stand, &json!({"kubeReserved": {"memory": "300Mi"}}));
    garden.wait_for("the refusal of an awake Shoot", |_| {
        let last = last_operation(&stand);
        (last["state"] == "Failed" && text(&last, "/description").contains("shed")).then_some(())
    });
    let server = stand.server();
    server.cluster.delete("", "nodes", "", "shed");
    let retry = json!({"metadata": {"annotations": {"gardener.cloud/operation": "retry"}}});
    garden.merge(CORE, "shoots", place, &retry);
    wait_until(garden, place, "Reconcile Succeeded 100");
    server.cluster.wait_for("the new setting", |_| (stand.pool_secret()? != applied).then_some(()));
    stand.end();
}

/// The condition of the nodes names an agent that has stopped, and one whose system is not well.
#[test]
fn conditions_name_the_agents_of_nodes() {
    let stand = Stand::begin("host-agents", "j13");
    let server = stand.server();
    let host = Host::new(&server, &stand.print("shed", &[]), "10.67.0.1");
    host.join();
    host.await_end();
    let condition = || {
        let (space, name) = stand.in_garden();
        let shoot = stand.world.garden.get(CORE, "shoots", space, name)?;
        list(&shoot, "/status/conditions").iter().find(|it| it["type"] == "EveryNodeReady").cloned()
    };
    let wait_for = |reason: &str| {
        stand.world.garden.wait_for(reason, |_| condition().filter(|it| it["reason"] == reason))
    };
    wait_for("EveryNodeReady");
    let hold = |value: Value| {
        let held = json!({"metadata": {"annotations": {HOLD: value}}});
        server.cluster.merge("", "nodes", ("", "shed"), &held);
    };
    hold(json!("yes"));
    let found = wait_for("NodeAgentUnhealthy");
    assert_eq!(found["message"], "gardener-node-agent stopped running on node \"shed\"");
    hold(Value::Null);
    wait_for("EveryNodeReady");

    let node = server.cluster.get("", "nodes", "", "shed").unwrap();
    let mut conditions = node["status"]["conditions"].clone();
    let units = json!({"type": "SystemdUnitsReady", "status": "False", "reason": "UnhealthyUnits", "message": "x.service"});
    conditions.as_array_mut().unwrap().push(units);
    server.cluster.merge_status("", "nodes", ("", "shed"), &json!({"status": {"conditions": conditions}}));
    let found = wait_for("SystemdUnitsNotReady");
    assert_eq!(found["message"], "systemd units are not healthy on node \"shed\": x.service");
    stand.end();
}

/// The pods of a Shoot leave its hosts before it is hibernated, whatever their budgets say, and may come again when it is awake. An absent host is
/// not waited for, and one that its owner has closed stays closed.
#[test]
fn hosts_are_empty_while_their_shoot_sleeps() {
    let stand = Stand::begin("host-sleeps", "j14");
    let server = stand.server();
    let cluster = &server.cluster;
    for host in ["away", "closed", "open"] {
        server.join(host, POOL);
        let place = json!({"metadata": {"name": format!("pod-of-{host}"), "namespace": "default",
            "labels": {"app": host}}, "spec": {"nodeName": host, "containers": [{"name": "c", "image": "x"}]}});
        cluster.create("v1", "pods", &place);
    }
    let budget = json!({"metadata": {"name": "open", "namespace": "default"},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "open"}}}});
    cluster.create("policy/v1", "poddisruptionbudgets", &budget);
    let away = json!({"status": {"conditions": [{"type": "Ready", "status": "Unknown"}]}});
    cluster.merge_status("", "nodes", ("", "away"), &away);
    cluster.merge("", "nodes", ("", "closed"), &json!({"spec": {"unschedulable": true}}));
    let (garden, place) = (&stand.world.garden, stand.in_garden());
    let sleep = |enabled: bool| {
        garden.merge(CORE, "shoots", place, &json!({"spec": {"hibernation": {"enabled": enabled}}}));
        wait_until(garden, place, "Reconcile Succeeded 100");
    };
    let closed = || {
        let is_closed = |host: &&str| {
            let node = stand.server().cluster.get("", "nodes", "", host).unwrap();
            node["spec"]["unschedulable"] == true
        };
        ["away", "closed", "open"].into_iter().filter(is_closed).collect::<Vec<_>>()
    };
    sleep(true);
    assert_eq!(stand.server().cluster.store().names("", "pods", "default"), ["pod-of-away"]);
    assert_eq!(closed(), ["closed", "open"]);
    sleep(false);
    assert_eq!(closed(), ["closed"]);
    stand.end();
}
