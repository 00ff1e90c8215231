//! The provider of hosts: what an extension does for the machines of a cloud, the agent does for the hosts of a site.
//!
//! It answers through the API, so that a real extension can take over: a task writes an extension object, this provider
//! writes its status as an extension would, and the task waits for it. It has no watch and no controller of its own; the task that
//! waits calls it.

use serde_json::Value;

use crate::api::core::SECRET;
use crate::api::extensions::NETWORK;
use crate::api::gardener::{OPERATION, has_workers};
use crate::api::meta::{Key, text};
use crate::base::clock::Timestamp;
use crate::base::json::json;
use crate::components::apply;
use crate::extension::ExtensionObject;
use crate::flow::Failed;
use crate::format::base64;
use crate::format::time::rfc3339;
use crate::kube::{Patch, Seed};
use crate::shoot::has_foreign_workers;

pub(crate) mod applied;
pub(crate) mod approval;
pub(crate) mod critical;
pub(crate) mod delay;
pub(crate) mod drain;
pub(crate) mod membership;
pub(crate) mod requests;
pub(crate) mod script;
pub(crate) mod state;
pub(crate) mod token;
mod user_data;

/// The kinds that are answered, besides Networks.
const KINDS: [&str; 4] = ["Infrastructure", "ControlPlane", "OperatingSystemConfig", "Worker"];
/// The purpose of the object that brings gardener-node-agent onto a new node.
const PROVISION: &str = "provision";
/// The entry of a Secret with user data.
const USER_DATA: &str = "cloud_config";
/// The types of Networks that are answered: the owner brings a network of their own.
const NETWORKS: [&str; 1] = ["none"];

/// Whether this provider answers the objects of a kind for a Shoot. `host_types` are the types of infrastructure whose nodes are
/// hosts of the site.
pub(crate) fn answers(kind: &str, shoot: &Value, host_types: &[String]) -> bool {
    let is_served = has_workers(shoot) && !has_foreign_workers(shoot, host_types);
    let is_known = if *kind == *NETWORK.kind {
        NETWORKS.contains(&text(&shoot["spec"]["networking"]["type"]))
    } else {
        KINDS.contains(&kind)
    };
    is_served && is_known
}

/// Answers the request in an object, if there is one. Errors: a request fails, or the object asks for what hosts do not have.
pub(crate) fn answer(
    client: &Seed,
    target: &ExtensionObject,
    shoot: &Value,
    now: Timestamp,
) -> Result<(), Failed> {
    let Some(object) = target.find(client)? else { return Ok(()) };
    let Some(status) = status(&target.resource.kind, &object, shoot, now) else { return Ok(()) };
    if object["spec"]["purpose"] == PROVISION {
        write_user_data(client, &object)?;
    }
    client.patch_status::<Value>(
        &target.resource,
        &target.key,
        &Patch::Merge(json!({ "status": status })),
    )?;
    if object["metadata"]["annotations"][OPERATION].is_string() {
        let done = Patch::Merge(json!({"metadata": {"annotations": {OPERATION: null}}}));
        client.patch::<Value>(&target.resource, &target.key, &done)?;
    }
    Ok(())
}

/// The name of the Secret with the user data, as upstream's library names it.
fn result_name(object: &Value) -> String {
    format!("osc-result-{}", text(&object["metadata"]["name"]))
}

/// Writes the script that brings gardener-node-agent onto a host. It is deleted with its object.
fn write_user_data(client: &Seed, object: &Value) -> Result<(), Failed> {
    let metadata = &object["metadata"];
    let script = user_data::script(&object["spec"]);
    let key = Key::new(text(&metadata["namespace"]), result_name(object));
    let owner = json!({"apiVersion": object["apiVersion"], "kind": object["kind"], "name": metadata["name"],
        "uid": metadata["uid"], "blockOwnerDeletion": true, "controller": true});
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret", "type": "Opaque",
        "metadata": {"name": key.name, "namespace": key.namespace, "ownerReferences": [owner]},
        "data": {USER_DATA: base64::encode(script.as_bytes())},
    });
    apply::apply(client, &SECRET, &secret)?;
    Ok(())
}

/// The patch of the status; none if nothing is requested.
fn status(kind: &str, object: &Value, shoot: &Value, now: Timestamp) -> Option<Value> {
    let (metadata, old) = (&object["metadata"], &object["status"]);
    let is_current = old["observedGeneration"] == metadata["generation"] && old["lastOperation"].is_object();
    let (operation, done) = match text(&metadata["annotations"][OPERATION]) {
        "migrate" => ("Migrate", "migrated"),
        "restore" => ("Restore", "restored"),
        // Its state is not complete yet.
        "wait-for-state" => return None,
        "" if is_current => return None,
        _ if old["lastOperation"].is_null() => ("Create", "reconciled"),
        _ => ("Reconcile", "reconciled"),
    };
    let mut status = json!({
        "observedGeneration": metadata["generation"],
        "lastError": null,
        "lastOperation": {
            "description": format!("Successfully {done} {kind}"), "lastUpdateTime": rfc3339(now), "progress": 100,
            "state": "Succeeded", "type": operation},
    });
    let networking = &shoot["spec"]["networking"];
    match kind {
        "Infrastructure" => {
            for network in ["nodes", "pods", "services"] {
                if let Some(range) = networking[network].as_str() {
                    status["networking"][network] = json!([range]);
                }
            }
        }
        "Network" => status["ipFamilies"] = object["spec"]["ipFamilies"].clone(),
        "OperatingSystemConfig" if object["spec"]["purpose"] == PROVISION => {
            status["cloudConfig"]["secretRef"] =
                json!({"name": result_name(object), "namespace": object["metadata"]["namespace"]});
        }
        // No machines are made: hosts join.
        "Worker" => {
            status["machineDeployments"] = json!([]);
            status["machineDeploymentsLastUpdateTime"] = json!(rfc3339(now));
        }
        _ => {}
    }
    Some(status)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp::from_unix(1_795_352_540);

    fn shoot(network: &str) -> Value {
        json!({"spec": {"provider": {"type": "hosts", "workers": [{"name": "a"}]}, "networking": {
            "type": network, "nodes": "10.0.0.0/16", "pods": "100.96.0.0/11", "services": "100.64.0.0/13"}}})
    }

    #[test]
    fn which_objects_are_answered() {
        let hosts = ["hosts".to_owned()];
        let of = |kind: &str, network: &str| answers(kind, &shoot(network), &hosts);
        assert!(of("Infrastructure", "calico") && of("ControlPlane", "none") && of("Network", "none"));
        assert!(!of("Network", "calico") && !of("ContainerRuntime", "none") && !of("Extension", "none"));
        assert!(!answers("Infrastructure", &shoot("none"), &[]), "another type");
        let workerless = json!({"spec": {"provider": {"type": "hosts"}}});
        assert!(!answers("Infrastructure", &workerless, &hosts));
    }

    #[test]
    fn requests_are_answered_once() {
        let object = |operation: &Value, observed: i64| {
            json!({"metadata": {"generation": 2, "annotations": {OPERATION: operation}},
                "status": {"observedGeneration": observed, "lastOperation": {"state": "Succeeded"}}})
        };
        let of = |object: &Value| {
            let status = status("ControlPlane", object, &shoot("none"), NOW)?;
            Some(text(&status["lastOperation"]["type"]).to_owned())
        };
        let table = [
            (object(&Value::Null, 2), None),
            (object(&Value::Null, 1), Some("Reconcile")),
            (object(&json!("reconcile"), 2), Some("Reconcile")),
            (object(&json!("restore"), 2), Some("Restore")),
            (object(&json!("migrate"), 2), Some("Migrate")),
            (object(&json!("wait-for-state"), 1), None),
            (json!({"metadata": {"generation": 1}}), Some("Create")),
        ];
        for (object, expected) in table {
            assert_eq!(of(&object).as_deref(), expected, "{object}");
        }
    }

    #[test]
    fn an_answer_satisfies_the_task_that_waits() {
        for (kind, field, expected) in [
            (
                "Infrastructure",
                "networking",
                json!({"nodes": ["10.0.0.0/16"], "pods": ["100.96.0.0/11"], "services": ["100.64.0.0/13"]}),
            ),
            ("Network", "ipFamilies", json!(["IPv4"])),
            (
                "OperatingSystemConfig",
                "cloudConfig",
                json!({"secretRef": {"name": "osc-result-a", "namespace": "n"}}),
            ),
            ("Worker", "machineDeployments", json!([])),
            ("ControlPlane", "lastError", Value::Null),
        ] {
            let mut object = json!({"metadata": {"name": "a", "namespace": "n", "generation": 1, "annotations": {"gardener.cloud/timestamp": rfc3339(NOW)}},
                "spec": {"ipFamilies": ["IPv4"], "purpose": PROVISION}});
            let status = status(kind, &object, &shoot("none"), NOW).unwrap();
            assert_eq!(status[field], expected, "{kind}");
            object["status"] = status;
            assert_eq!(crate::extension::check(&object), Ok(()), "{kind}");
        }
    }
}
