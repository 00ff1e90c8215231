//! Volumes for claims, like those of the provisioner of a small distribution: each is a folder of the node.
//!
//! The class waits for the first consumer. The scheduler requests a volume with an annotation of the claim, and
//! kube-controller-manager binds the claim to the volume that names it.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};

use gardenlet::api::core::PERSISTENT_VOLUME_CLAIM;
use gardenlet::api::meta::{ALL_NAMESPACES, CLUSTER_SCOPED, Key, Resource};
use gardenlet::kube::{Client, DeleteParams, ListParams};
use serde_json::{Value, json};

use crate::failure::{Doing, Result};

const PERSISTENT_VOLUME: Resource = Resource::new("", "v1", "PersistentVolume", "persistentvolumes", false);
const CLASS: &str = "folders";
const PROVISIONER: &str = "gardenlet.test/folders";
/// The place of the folders: in memory, where a database that syncs its files does not wait for a disk.
pub(crate) const FOLDERS: &str = "/var/lib/volumes";
/// The user who may write to them. `fsGroup` of a pod does not change folders of a node, so that the owner must be
/// right at once.
const OWNER: u32 = 65_532;
const MODE: u32 = 0o770;

/// The class, the default one: a StatefulSet of Gardener names none.
pub(crate) fn class() -> Value {
    json!({
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": CLASS, "annotations": {"storageclass.kubernetes.io/is-default-class": "true"}},
        "provisioner": PROVISIONER,
        "volumeBindingMode": "WaitForFirstConsumer",
        "reclaimPolicy": "Delete",
    })
}

/// Creates a volume for each claim that waits for one, and removes the volumes whose claims are deleted.
pub(crate) fn look(client: &Client) -> Result<()> {
    let volumes = client.list::<Value>(&PERSISTENT_VOLUME, ALL_NAMESPACES, &ListParams::default())?.items;
    for name in volumes.iter().filter_map(released) {
        remove(&folder(name))?;
        client.delete(&PERSISTENT_VOLUME, &Key::cluster(name), &DeleteParams::default())?;
    }
    let claims =
        client.list::<Value>(&PERSISTENT_VOLUME_CLAIM, ALL_NAMESPACES, &ListParams::default())?.items;
    for volume in claims.iter().filter_map(wanted) {
        let is_there = volumes.iter().any(|other| other["metadata"]["name"] == volume["metadata"]["name"]);
        if !is_there {
            make(Path::new(volume["spec"]["hostPath"]["path"].as_str().unwrap_or_default()))?;
            client.create::<Value>(&PERSISTENT_VOLUME, CLUSTER_SCOPED, &volume)?;
        }
    }
    Ok(())
}

/// The name of a volume of ours that is no longer in use.
fn released(volume: &Value) -> Option<&str> {
    let is_ours = volume["spec"]["storageClassName"] == CLASS && volume["status"]["phase"] == "Released";
    volume["metadata"]["name"].as_str().filter(|_| is_ours)
}

/// The volume for a claim that waits for one on a node.
fn wanted(claim: &Value) -> Option<Value> {
    let (metadata, spec) = (&claim["metadata"], &claim["spec"]);
    let node = metadata["annotations"]["volume.kubernetes.io/selected-node"].as_str()?;
    let waits = claim["status"]["phase"] == "Pending" && spec["storageClassName"] == CLASS;
    let name = format!("pvc-{}", metadata["uid"].as_str()?);
    waits.then(|| {
        json!({
            "apiVersion": "v1",
            "kind": "PersistentVolume",
            // Without the annotation kube-controller-manager would remove it itself, and fail.
            "metadata": {"name": name, "annotations": {"pv.kubernetes.io/provisioned-by": PROVISIONER}},
            "spec": {
                "storageClassName": CLASS,
                "capacity": {"storage": spec["resources"]["requests"]["storage"]},
                "accessModes": spec["accessModes"],
                "persistentVolumeReclaimPolicy": "Delete",
                "hostPath": {"path": folder(&name), "type": "Directory"},
                "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [
                    {"key": "kubernetes.io/hostname", "operator": "In", "values": [node]},
                ]}]}},
                "claimRef": {
                    "apiVersion": "v1",
                    "kind": "PersistentVolumeClaim",
                    "namespace": metadata["namespace"],
                    "name": metadata["name"],
                    "uid": metadata["uid"],
                },
            },
        })
    })
}

fn folder(volume: &str) -> PathBuf {
    Path::new(FOLDERS).join(volume)
}

fn make(folder: &Path) -> Result<()> {
    let made = fs::create_dir_all(folder)
        .and_then(|()| chown(folder, Some(OWNER), Some(OWNER)))
        .and_then(|()| fs::set_permissions(folder, Permissions::from_mode(MODE)));
    made.doing(|| format!("make {}", folder.display()))
}

fn remove(folder: &Path) -> Result<()> {
    match fs::remove_dir_all(folder) {
        Err(err) if err.kind() == std::io::ErrorKind::NotFound => Ok(()),
        other => other.doing(|| format!("remove {}", folder.display())),
    }
}

/// All folders. They are removed when dropped, after the node that has them in its containers.
#[derive(Debug)]
pub(crate) struct Folders;

impl Drop for Folders {
    fn drop(&mut self) {
        if let Err(failure) = remove(Path::new(FOLDERS)) {
            println!("       the volumes were not removed: {failure}");
        }
    }
}
