//! The owner of a Shoot changes a pool to which a host has joined.

use serde_json::{Value, json};

use crate::story_host_join::Stand;
use crate::world::CORE;
use support::json::{list, text};
use support::shoot::history::wait_until;
use support::shoot::host::Host;
use support::shoot::object::PROJECT_NAMESPACE;

const NAME: &str = "j11";

/// A change for which a host must be drained is refused before anything changes, and made as soon as the host has left. Others go through.
#[test]
fn a_change_that_needs_a_drained_host_is_refused_while_there_is_one() {
    let stand = Stand::begin("host-change", NAME);
    let server = stand.server();
    let host = Host::new(&server, &stand.print("shed", &[]), "10.67.0.1");
    host.join();
    host.await_end();
    let garden = &stand.world.garden;
    let place = (PROJECT_NAMESPACE, NAME);
    let change = |kubelet: &Value| {
        let shoot = garden.get(CORE, "shoots", place.0, place.1).unwrap();
        let mut workers = shoot["spec"]["provider"]["workers"].clone();
        // The settings of a pool replace those of the Shoot as a whole.
        let mut own = shoot["spec"]["kubernetes"]["kubelet"].clone();
        let settings = own.as_object_mut().unwrap();
        settings.extend(kubelet.as_object().unwrap().clone());
        workers[0]["kubernetes"]["kubelet"] = own;
        garden.merge(CORE, "shoots", place, &json!({"spec": {"provider": {"workers": workers}}}));
    };
    change(&json!({"maxPods": 50}));
    wait_until(garden, place, "Reconcile Succeeded 100");
    let applied = stand.pool_secret().unwrap();
    let generation = || {
        let server = stand.world.seed.get("apps", "deployments", &stand.plane(), "kube-apiserver").unwrap();
        server["metadata"]["generation"].clone()
    };
    let before = generation();

    change(&json!({"maxPods": 50, "kubeReserved": {"memory": "300Mi"}}));
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

    server.cluster.delete("", "nodes", "", "shed");
    let retry = json!({"metadata": {"annotations": {"gardener.cloud/operation": "retry"}}});
    garden.merge(CORE, "shoots", place, &retry);
    wait_until(garden, place, "Reconcile Succeeded 100");
    server.cluster.wait_for("the new setting", |_| (stand.pool_secret()? != applied).then_some(()));
    stand.end();
}
