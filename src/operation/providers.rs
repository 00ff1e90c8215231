//! Extension objects of a Shoot with nodes: its infrastructure, its control plane, its network, and the runtimes of its containers.

use serde_json::Value;

use crate::api::extensions::{
    CONTAINER_RUNTIME, CONTROL_PLANE, INFRASTRUCTURE, NETWORK, OPERATING_SYSTEM_CONFIG, WORKER,
};
use crate::api::gardener::SHOOT;
use crate::api::meta::{Key, Resource, text};
use crate::api::patch::difference;
use crate::base::json::json;
use crate::base::sorted::SortedSet;
use crate::extension::{DesiredExtension, ExtensionObject, ExtensionPatience};
use crate::flow::{Attempt, Failed, TaskStep};
use crate::format::base64;
use crate::kube::Patch;
use crate::shoot::pools::POOL;
use crate::shoot::rotation::SSH_KEYPAIR;

use super::objects::{Desired, Leaving, ObjectRow, trigger};
use super::requests;
use super::work::Work;
use super::{cloud_provider, cluster};

/// What all nodes share, such as their network.
pub(super) const INFRASTRUCTURE_OBJECT: ObjectRow = ObjectRow {
    desired: |work| {
        Ok(one(work, &INFRASTRUCTURE, text(&work.shoot["spec"]["provider"]["type"]), infrastructure(work)))
    },
    write: |work, desired| {
        if work.facts.restores() {
            return desired.restore(work);
        }
        let is_asked = requests::asks(&work.shoot, requests::INFRASTRUCTURE);
        desired.target.deploy_or_replace(&work.env.seed, &desired.content, is_asked, work.now())
    },
    leaving: |work| live(work, &INFRASTRUCTURE),
    moving: |work| live(work, &INFRASTRUCTURE),
    ..ObjectRow::NONE
};

/// What the provider adds to the control plane.
pub(super) const CONTROL_PLANE_OBJECT: ObjectRow = ObjectRow {
    desired: |work| {
        Ok(one(work, &CONTROL_PLANE, text(&work.shoot["spec"]["provider"]["type"]), control_plane(work)))
    },
    write: trigger,
    leaving: |work| live(work, &CONTROL_PLANE),
    moving: |work| live(work, &CONTROL_PLANE),
    ..ObjectRow::NONE
};

/// The network of pods.
pub(super) const NETWORK_OBJECT: ObjectRow = ObjectRow {
    desired: |work| {
        Ok(one(work, &NETWORK, text(&work.shoot["spec"]["networking"]["type"]), network(&work.shoot)))
    },
    write: trigger,
    leaving: |work| live(work, &NETWORK),
    moving: |work| live(work, &NETWORK),
    ..ObjectRow::NONE
};

/// The runtimes of each pool.
pub(super) const CONTAINER_RUNTIMES: ObjectRow = ObjectRow {
    desired: |work| {
        Ok(runtimes(&work.shoot).map(|(name, spec)| object(work, &CONTAINER_RUNTIME, &name, spec)).collect())
    },
    write: trigger,
    leaving: |work| all(work, &CONTAINER_RUNTIME),
    moving: |work| all(work, &CONTAINER_RUNTIME),
    ..ObjectRow::NONE
};

/// The runtimes that no pool has any more.
pub(super) const STALE_RUNTIMES: ObjectRow = ObjectRow {
    leaving: |work| {
        let wanted: SortedSet<String> = runtimes(&work.shoot).map(|(name, _)| name).collect();
        let mut found = all(work, &CONTAINER_RUNTIME)?;
        found.retain(|leaving| !wanted.contains(&leaving.target.key.name));
        Ok(found)
    },
    ..ObjectRow::NONE
};

/// What makes nodes: these objects move together.
pub(super) const OF_NODES: ObjectRow = ObjectRow {
    moving: |work| {
        let kinds = [CONTAINER_RUNTIME, NETWORK, OPERATING_SYSTEM_CONFIG, WORKER];
        Ok(kinds.iter().map(|kind| all(work, kind)).collect::<Result<Vec<_>, _>>()?.concat())
    },
    ..ObjectRow::NONE
};

pub(super) fn object(work: &Work, resource: &Resource, name: &str, spec: Value) -> Desired {
    Desired {
        target: ExtensionObject { resource: resource.clone(), key: Key::new(work.plane(), name) },
        content: DesiredExtension::new(spec),
        patience: ExtensionPatience::of(resource),
    }
}

/// The one object of its kind, with the name of the Shoot.
pub(super) fn one(work: &Work, resource: &Resource, type_name: &str, mut spec: Value) -> Vec<Desired> {
    spec["type"] = json!(type_name);
    vec![object(work, resource, &work.view.name, spec)]
}

pub(super) fn live(work: &Work, resource: &Resource) -> Result<Vec<Leaving>, Failed> {
    let key = Key::new(work.plane(), work.view.name.as_str());
    Leaving::live(&work.env.seed, ExtensionObject { resource: resource.clone(), key })
}

pub(super) fn all(work: &Work, resource: &Resource) -> Result<Vec<Leaving>, Failed> {
    Leaving::all(work, resource, ExtensionPatience::of(resource))
}

/// The fields that a spec has if they are there.
pub(super) fn add(spec: &mut Value, field: &str, value: &Value) {
    if !value.is_null() {
        spec[field] = value.clone();
    }
}

fn of_provider(work: &Work, configuration: &str) -> Value {
    let mut spec = json!({
        "region": work.view.region,
        "secretRef": {"name": cloud_provider::NAME, "namespace": work.plane()},
    });
    add(&mut spec, "providerConfig", &work.shoot["spec"]["provider"][configuration]);
    spec
}

fn infrastructure(work: &Work) -> Value {
    let mut spec = of_provider(work, "infrastructureConfig");
    add_ssh_key(work, &mut spec);
    spec
}

/// The key that opens the nodes, if they may be opened.
pub(super) fn add_ssh_key(work: &Work, spec: &mut Value) {
    let made = work.results.secrets.get();
    let key = made.and_then(|made| made.data(SSH_KEYPAIR)).and_then(|pair| pair.get("id_rsa.pub"));
    if let Some(key) = key.filter(|_| work.view.has_ssh) {
        spec["sshPublicKey"] = json!(base64::encode(key));
    }
}

fn control_plane(work: &Work) -> Value {
    let mut spec = of_provider(work, "controlPlaneConfig");
    if let Some(status) = work.results.infrastructure.get() {
        add(&mut spec, "infrastructureProviderStatus", status);
    }
    spec
}

fn network(shoot: &Value) -> Value {
    let networking = &shoot["spec"]["networking"];
    let range = |network: &str| match &shoot["status"]["networking"][network][0] {
        Value::Null => networking[network].clone(),
        known => known.clone(),
    };
    let mut spec = json!({"podCIDR": range("pods"), "serviceCIDR": range("services")});
    add(&mut spec, "ipFamilies", &networking["ipFamilies"]);
    add(&mut spec, "providerConfig", &networking["providerConfig"]);
    spec
}

/// The name and the spec of each runtime.
fn runtimes(shoot: &Value) -> impl Iterator<Item = (String, Value)> {
    let workers = shoot["spec"]["provider"]["workers"].as_array().into_iter().flatten();
    workers.flat_map(|worker| {
        let pool = text(&worker["name"]);
        worker["cri"]["containerRuntimes"].as_array().into_iter().flatten().map(move |runtime| {
            let mut spec = json!({
                "type": runtime["type"], "binaryPath": "/var/bin/containerruntimes",
                // The first label is an older name of the second.
                "workerPool": {"name": pool, "selector": {"matchLabels": {
                    "worker.garden.sapcloud.io/group": pool, POOL: pool}}},
            });
            add(&mut spec, "providerConfig", &runtime["providerConfig"]);
            (format!("{}-{pool}", text(&runtime["type"])), spec)
        })
    })
}

/// The live object with the name of the Shoot.
pub(super) fn find(work: &Work, resource: &Resource) -> Result<Option<Value>, Failed> {
    let key = Key::new(work.plane(), work.view.name.as_str());
    Ok(ExtensionObject { resource: resource.clone(), key }.find(&work.env.seed)?)
}

/// Whether the provider's part of the control plane is there and stays for now.
fn has_control_plane(work: &Work) -> Result<bool, Failed> {
    let found = find(work, &CONTROL_PLANE)?;
    Ok(found.is_some_and(|object| object["metadata"]["deletionTimestamp"].is_null()))
}

/// For a deletion: the provider's part of the control plane must work while the cluster is emptied, for example to remove load
/// balancers. One that is gone or going stays so.
pub(super) fn keep_control_plane(work: &mut Work, _: &Attempt) -> Result<TaskStep, Failed> {
    if !has_control_plane(work)? {
        return Ok(TaskStep::Done);
    }
    let infrastructure = find(work, &INFRASTRUCTURE)?.unwrap_or_default();
    work.results.infrastructure.set(infrastructure["status"]["providerStatus"].clone());
    CONTROL_PLANE_OBJECT.deploy(work)
}

/// Waits until the kept one works.
pub(super) fn wait_kept_control_plane(work: &mut Work, attempt: &Attempt) -> Result<TaskStep, Failed> {
    if !has_control_plane(work)? {
        return Ok(TaskStep::Done);
    }
    CONTROL_PLANE_OBJECT.wait(work, attempt)
}

/// Waits until the infrastructure is there, and takes over what it says about networks.
pub(super) fn wait_infrastructure(work: &mut Work, attempt: &Attempt) -> Result<TaskStep, Failed> {
    let step = INFRASTRUCTURE_OBJECT.wait(work, attempt)?;
    if step != TaskStep::Done {
        return Ok(step);
    }
    let found = find(work, &INFRASTRUCTURE)?.unwrap_or_default();
    if let Some(patch) = networking(&work.shoot, &found["status"]) {
        let patched = work.env.garden.patch_status::<Value>(&SHOOT, &work.key(), &Patch::Merge(patch))?;
        let mut known = work.shoot.clone();
        known["status"] = patched["status"].clone();
        cluster::sync(&work.env, &known, &work.inputs)?;
        // Not earlier: a retry sees by it that the `Cluster` does not contain the networks yet.
        work.view = work.inputs.view(&known);
        work.shoot = known;
    }
    work.results.infrastructure.set(found["status"]["providerStatus"].clone());
    Ok(TaskStep::Done)
}

/// The patch of a Shoot's status with the networks that its infrastructure has; none if it is known. Networks that the
/// infrastructure does not name are those of the spec.
fn networking(shoot: &Value, infrastructure: &Value) -> Option<Value> {
    let mut wanted = json!({});
    for network in ["nodes", "pods", "services"] {
        let own = &shoot["spec"]["networking"][network];
        let made = &infrastructure["networking"][network];
        let legacy = &infrastructure["nodesCIDR"];
        let ranges = match (made.as_array().filter(|all| !all.is_empty()), network) {
            (Some(_), _) => made.clone(),
            (None, "nodes") if own.is_null() && legacy.is_string() => json!([legacy]),
            _ if own.is_string() => json!([own]),
            _ => continue,
        };
        wanted[network] = ranges;
    }
    add(&mut wanted, "egressCIDRs", &infrastructure["egressCIDRs"]);
    let changed = difference(&shoot["status"]["networking"], &wanted)?;
    Some(json!({"status": {"networking": changed}}))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_network_has_the_ranges_of_the_shoot() {
        let shoot = json!({
            "spec": {"networking": {"type": "lab", "ipFamilies": ["IPv4"], "pods": "100.96.0.0/11", "services": "100.64.0.0/13",
                "providerConfig": {"kind": "C"}}},
            "status": {"networking": {"pods": ["100.128.0.0/11"]}}});
        let expected = json!({"ipFamilies": ["IPv4"], "podCIDR": "100.128.0.0/11", "serviceCIDR": "100.64.0.0/13",
            "providerConfig": {"kind": "C"}});
        assert_eq!(network(&shoot), expected);
    }

    /// As the Go gardenlet wrote it for a pool of the same name.
    #[test]
    fn each_pool_has_its_runtimes() {
        let shoot = json!({"spec": {"provider": {"workers": [
            {"name": "pool1", "cri": {"name": "containerd"}},
            {"name": "pool2", "cri": {"name": "containerd", "containerRuntimes": [{"type": "lab"}]}},
        ]}}});
        let spec = json!({"binaryPath": "/var/bin/containerruntimes", "type": "lab", "workerPool": {"name": "pool2", "selector": {
            "matchLabels": {"worker.garden.sapcloud.io/group": "pool2", "worker.gardener.cloud/pool": "pool2"}}}});
        assert_eq!(runtimes(&shoot).collect::<Vec<_>>(), [("lab-pool2".to_owned(), spec)]);
    }

    #[test]
    fn networks_of_the_infrastructure_become_those_of_the_shoot() {
        let spec = json!({"networking": {"pods": "100.96.0.0/11", "services": "100.64.0.0/13"}});
        let mut shoot = json!({ "spec": spec });
        let status = json!({"nodesCIDR": "10.250.0.0/16", "egressCIDRs": ["192.0.2.1/32"]});
        let patch = networking(&shoot, &status).unwrap();
        let expected = json!({"nodes": ["10.250.0.0/16"], "pods": ["100.96.0.0/11"], "services": ["100.64.0.0/13"],
            "egressCIDRs": ["192.0.2.1/32"]});
        assert_eq!(patch, json!({"status": {"networking": expected}}));
        shoot["status"]["networking"] = expected;
        assert_eq!(networking(&shoot, &status), None);
        let wider =
            json!({"networking": {"pods": ["100.96.0.0/11", "fd00::/64"]}, "nodesCIDR": "10.250.0.0/16"});
        let patch = networking(&shoot, &wider).unwrap();
        assert_eq!(
            patch["status"]["networking"],
            json!({"pods": ["100.96.0.0/11", "fd00::/64"], "egressCIDRs": null})
        );
    }
}
