//! Projects: the namespace of their Shoots, which is deleted last.

use gardenlet::api::core::NAMESPACE;
use gardenlet::api::gardener::{PROJECT, SHOOT};
use gardenlet::api::meta::{ALL_NAMESPACES, CLUSTER_SCOPED, Key};
use serde_json::{Value, json};

use super::manager::Manager;
use crate::api::failure::Failure;
use crate::api::write::Patch;
use crate::json::{entry, list, text};

const FINALIZER: &str = "gardener";
const MADE_HERE: &str = "namespace.gardener.cloud/created-by-project-controller";
const OF_PROJECT: &str = "namespace.gardener.cloud/project";

pub fn sync(manager: &Manager) -> Result<(), Failure> {
    for project in manager.cluster.list(&PROJECT, ALL_NAMESPACES)? {
        if text(&project, "/metadata/deletionTimestamp").is_empty() {
            keep(manager, &project)?;
        } else {
            end(manager, &project)?;
        }
    }
    Ok(())
}

/// Finalizer, namespace, status.
fn keep(manager: &Manager, project: &Value) -> Result<(), Failure> {
    let name = text(project, "/metadata/name");
    let metadata = &project["metadata"];
    if !list(metadata, "/finalizers").iter().any(|f| f == FINALIZER) {
        let patch =
            json!({"metadata": {"finalizers": [FINALIZER], "resourceVersion": metadata["resourceVersion"]}});
        manager.cluster.patch(&PROJECT, &Key::cluster(name), "", &Patch::Merge(patch))?;
        return Ok(());
    }
    let namespace = text(project, "/spec/namespace");
    if namespace.is_empty() {
        let patch = json!({"spec": {"namespace": format!("garden-{name}")}});
        return manager.cluster.patch(&PROJECT, &Key::cluster(name), "", &Patch::Merge(patch)).map(drop);
    }
    let wanted = json!({"metadata": {
        "labels": {"gardener.cloud/role": "project", "project.gardener.cloud/name": name},
        "annotations": {OF_PROJECT: metadata["uid"]}}});
    match manager.cluster.get(&NAMESPACE, &Key::cluster(namespace))? {
        None => {
            let mut object = wanted;
            object["metadata"]["name"] = namespace.into();
            object["metadata"]["annotations"][MADE_HERE] = "true".into();
            object["metadata"]["ownerReferences"] = json!([{"apiVersion": "core.gardener.cloud/v1beta1",
                "kind": "Project", "name": name, "uid": metadata["uid"], "controller": true, "blockOwnerDeletion": true}]);
            manager.cluster.create(&NAMESPACE, CLUSTER_SCOPED, &object)?;
        }
        Some(found) if entry(&found, "/metadata/labels", "project.gardener.cloud/name") != Some(name) => {
            manager.cluster.patch(&NAMESPACE, &Key::cluster(namespace), "", &Patch::Merge(wanted))?;
        }
        Some(_) => {}
    }
    if project["status"]["phase"] == "Ready"
        && project["status"]["observedGeneration"] == metadata["generation"]
    {
        return Ok(());
    }
    let status = json!({"status": {"phase": "Ready", "observedGeneration": metadata["generation"]}});
    manager.cluster.patch(&PROJECT, &Key::cluster(name), "status", &Patch::Merge(status)).map(drop)
}

/// Waits until its Shoots are gone, then deletes the namespace.
fn end(manager: &Manager, project: &Value) -> Result<(), Failure> {
    let namespace = text(project, "/spec/namespace");
    if namespace.is_empty() {
        return release(manager, project);
    }
    if !manager.cluster.list(&SHOOT, namespace)?.is_empty() {
        return Ok(());
    }
    if let Some(found) = manager.cluster.get(&NAMESPACE, &Key::cluster(namespace))? {
        let is_ours = entry(&found, "/metadata/annotations", MADE_HERE) == Some("true");
        if is_ours && text(&found, "/metadata/deletionTimestamp").is_empty() {
            manager.cluster.delete(&NAMESPACE, &Key::cluster(namespace))?;
        }
        if is_ours {
            return Ok(());
        }
    }
    release(manager, project)
}

fn release(manager: &Manager, project: &Value) -> Result<(), Failure> {
    let left = list(project, "/metadata/finalizers").iter().filter(|f| *f != FINALIZER);
    let left = json!({"metadata": {"finalizers": left.collect::<Vec<_>>(),
        "resourceVersion": project["metadata"]["resourceVersion"]}});
    let name = text(project, "/metadata/name");
    manager.cluster.patch(&PROJECT, &Key::cluster(name), "", &Patch::Merge(left)).map(drop)
}
