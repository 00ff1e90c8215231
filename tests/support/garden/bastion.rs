//! What gardener-apiserver does to Bastions.

use std::time::Duration;

use serde_json::{Value, json};

use super::kinds::CORE;
use super::rules::{Operations, operation, refuse};
use super::shoot::is_workerless;
use crate::api::failure::Failure;
use crate::api::rules::{Rules, Write};
use crate::encoding::{from_rfc3339, rfc3339};
use crate::json::{list, map, set, text};

/// How long a Bastion lives after its last heartbeat.
const TIME_TO_LIVE: Duration = Duration::from_secs(3_600);

/// Bastions: they follow their Shoot.
pub struct Bastion {
    pub operations: Operations,
}

/// Takes over what the Shoot says.
fn follow(bastion: &mut Value, write: &Write<'_>, is_new: bool) -> Result<(), Failure> {
    let (namespace, name) = (text(bastion, "/metadata/namespace"), text(bastion, "/spec/shootRef/name"));
    let refused = |why: &str| {
        let why = format!("Invalid value: {name:?}: {why}");
        Err(refuse(write, bastion, "spec.shootRef.name", &why))
    };
    if name.is_empty() {
        return Err(refuse(write, bastion, "spec.shootRef.name", "Required value: shoot is required"));
    }
    let Some(shoot) = write.state.get(CORE, "shoots", namespace, name) else {
        return refused(&format!("shoot {namespace}/{name} not found"));
    };
    if is_new && !text(shoot, "/metadata/deletionTimestamp").is_empty() {
        return refused("shoot is in deletion");
    }
    let seed = text(shoot, "/spec/seedName");
    if seed.is_empty() {
        return refused("shoot is not yet assigned to a seed");
    }
    let is_open = !is_workerless(shoot)
        && shoot.pointer("/spec/provider/workersSettings/sshAccess/enabled") != Some(&Value::Bool(false));
    if text(bastion, "/metadata/deletionTimestamp").is_empty() && !is_open {
        return refused("ssh access is disabled for worker nodes");
    }
    set(bastion, "/spec/seedName", seed);
    set(bastion, "/spec/providerType", text(shoot, "/spec/provider/type"));
    if is_new {
        map(bastion, "/metadata/annotations").insert("gardener.cloud/created-by".into(), write.user.into());
    }
    let mut owners = list(bastion, "/metadata/ownerReferences").to_vec();
    owners.retain(|owner| owner["uid"] != shoot["metadata"]["uid"]);
    owners.push(json!({"apiVersion": "core.gardener.cloud/v1beta1", "kind": "Shoot", "name": text(shoot, "/metadata/name"),
        "uid": shoot["metadata"]["uid"], "controller": true, "blockOwnerDeletion": true}));
    set(bastion, "/metadata/ownerReferences", owners);
    Ok(())
}

fn beat(bastion: &mut Value, at: &str) {
    set(bastion, "/status/lastHeartbeatTimestamp", at);
    let until = from_rfc3339(at).map(|at| rfc3339(at.plus(TIME_TO_LIVE))).unwrap_or_default();
    set(bastion, "/status/expirationTimestamp", until);
}

impl Rules for Bastion {
    fn create(&self, object: &mut Value, write: &Write<'_>) -> Result<(), Failure> {
        follow(object, write, true)?;
        beat(object, write.now);
        Ok(())
    }

    fn update(&self, old: &Value, new: &mut Value, write: &Write<'_>) -> Result<(), Failure> {
        if write.subresource.is_empty() {
            // Upstream refuses any change without the Shoot, and lets a Bastion follow its Shoot to another seed.
            let (namespace, name) = (text(new, "/metadata/namespace"), text(new, "/spec/shootRef/name"));
            let shoot = write.state.get(CORE, "shoots", namespace, name);
            if shoot.is_some_and(|shoot| text(shoot, "/spec/seedName") == text(new, "/spec/seedName")) {
                follow(new, write, false)?;
            }
            if operation(new) == "keepalive" {
                beat(new, write.now);
            }
        } else {
            let at = text(new, "/status/lastHeartbeatTimestamp").to_owned();
            if !at.is_empty() {
                beat(new, &at);
            }
        }
        self.operations.update(old, new, write)
    }

    fn operation_bumps(&self, old: &Value, asked: &Value, write: &Write<'_>) -> bool {
        self.operations.operation_bumps(old, asked, write)
    }
}
