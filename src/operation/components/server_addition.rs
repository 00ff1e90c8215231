//! What a component adds to the pod of the API server.

use serde_json::Value;

use crate::api::meta::Resource;
use crate::components::content::push;

/// What a component adds to each pod of the API server.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct ServerAddition {
    /// Containers beside the server.
    pub containers: Vec<Value>,
    /// Volumes of the pod. They name their Secrets and ConfigMaps.
    pub volumes: Vec<Value>,
    /// Mounts of the server itself.
    pub mounts: Vec<Value>,
    /// Arguments of the server.
    pub arguments: Vec<String>,
    /// Objects that the volumes name.
    pub objects: Vec<(Resource, Value)>,
}

impl ServerAddition {
    /// Adds everything but the arguments to the spec of a pod. Its first container is the server.
    pub(super) fn add_to(&self, pod: &mut Value) {
        self.mounts.iter().for_each(|mount| push(&mut pod["containers"][0]["volumeMounts"], mount.clone()));
        self.containers.iter().for_each(|container| push(&mut pod["containers"], container.clone()));
        self.volumes.iter().for_each(|volume| push(&mut pod["volumes"], volume.clone()));
    }
}
