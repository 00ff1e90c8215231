//! The namespace of a seed in the garden, and the Secrets that are copied into it.

use gardenlet::api::core::{NAMESPACE, SECRET};
use gardenlet::api::meta::{CLUSTER_SCOPED, Key};
use serde_json::{Value, json};

use super::manager::Manager;
use crate::api::failure::Failure;
use crate::api::write::Patch;
use crate::json::{entry, text};

/// Roles of Secrets that stay in `garden`.
const NOT_COPIED: [&str; 5] =
    ["controlplane", "controlplane-cert", "helm-pull-secret", "oci-ca-bundle", "resource-reference"];
const ROLE: &str = "gardener.cloud/role";

pub fn sync(manager: &Manager, seed: &Value) -> Result<(), Failure> {
    if !text(seed, "/metadata/deletionTimestamp").is_empty() {
        return Ok(());
    }
    let seed_name = text(seed, "/metadata/name");
    let name = format!("seed-{seed_name}");
    match manager.cluster.get(&NAMESPACE, &Key::cluster(&name))? {
        None => {
            let owner = json!({"apiVersion": "core.gardener.cloud/v1beta1", "kind": "Seed", "name": seed_name,
                "uid": seed["metadata"]["uid"], "controller": true, "blockOwnerDeletion": true});
            let object =
                json!({"metadata": {"name": name, "labels": {ROLE: "seed"}, "ownerReferences": [owner]}});
            manager.cluster.create(&NAMESPACE, CLUSTER_SCOPED, &object)?;
        }
        Some(namespace) if !text(&namespace, "/metadata/deletionTimestamp").is_empty() => return Ok(()),
        Some(_) => {}
    }
    copy_secrets(manager, &name)
}

fn copy_secrets(manager: &Manager, namespace: &str) -> Result<(), Failure> {
    let role = |o: &Value| entry(o, "/metadata/labels", ROLE).map(str::to_owned);
    let wanted = |o: &&Value| role(o).is_some_and(|r| !NOT_COPIED.contains(&r.as_str()));
    let sources = manager.cluster.list(&SECRET, "garden")?;
    let copies = manager.cluster.list(&SECRET, namespace)?;
    for source in sources.iter().filter(wanted) {
        let name = text(source, "/metadata/name");
        let copy = copies.iter().find(|c| text(c, "/metadata/name") == name);
        let fields = json!({"metadata": {"labels": source["metadata"]["labels"],
            "annotations": source["metadata"]["annotations"]}, "data": source["data"]});
        match copy {
            None => {
                let mut object = fields;
                object["metadata"]["name"] = name.into();
                object["type"] = source["type"].clone();
                manager.cluster.create(&SECRET, namespace, &object)?;
            }
            Some(copy)
                if copy["data"] != source["data"]
                    || ["labels", "annotations"]
                        .iter()
                        .any(|field| copy["metadata"][field] != source["metadata"][field]) =>
            {
                manager.cluster.patch(&SECRET, &Key::new(namespace, name), "", &Patch::Merge(fields))?;
            }
            Some(_) => {}
        }
    }
    for copy in copies.iter().filter(wanted) {
        let name = text(copy, "/metadata/name");
        if !sources.iter().filter(wanted).any(|s| text(s, "/metadata/name") == name) {
            manager.cluster.delete(&SECRET, &Key::of(copy))?;
        }
    }
    Ok(())
}
