//! Kinds of the core group and of the built-in groups that the program names.

use std::fmt;

use serde::Deserialize;
use serde_json::Value;

use super::meta::{ObjectMeta, Resource};
use crate::base::json::json;
use crate::base::sorted::SortedMap;

/// The kind `Secret` of `v1`.
pub const SECRET: Resource = Resource::new("", "v1", "Secret", "secrets", true);

/// The kind `ConfigMap` of `v1`.
pub const CONFIG_MAP: Resource = Resource::new("", "v1", "ConfigMap", "configmaps", true);

/// The kind `Namespace` of `v1`.
pub const NAMESPACE: Resource = Resource::new("", "v1", "Namespace", "namespaces", false);

/// The kind `ServiceAccount` of `v1`.
pub const SERVICE_ACCOUNT: Resource = Resource::new("", "v1", "ServiceAccount", "serviceaccounts", true);

/// The kind `Pod` of `v1`.
pub const POD: Resource = Resource::new("", "v1", "Pod", "pods", true);

/// The kind `Node` of `v1`.
pub const NODE: Resource = Resource::new("", "v1", "Node", "nodes", false);

/// The kind `Service` of `v1`.
pub const SERVICE: Resource = Resource::new("", "v1", "Service", "services", true);

pub(crate) const ENDPOINTS: Resource = Resource::new("", "v1", "Endpoints", "endpoints", true);

/// The kind `PersistentVolumeClaim` of `v1`.
pub const PERSISTENT_VOLUME_CLAIM: Resource =
    Resource::new("", "v1", "PersistentVolumeClaim", "persistentvolumeclaims", true);

pub(crate) const REPLICATION_CONTROLLER: Resource =
    Resource::new("", "v1", "ReplicationController", "replicationcontrollers", true);

/// The kind `Event` of `events.k8s.io/v1`.
pub const EVENT: Resource = Resource::new("events.k8s.io", "v1", "Event", "events", true);

/// The kind `Deployment` of `apps/v1`.
pub const DEPLOYMENT: Resource = Resource::new("apps", "v1", "Deployment", "deployments", true);

/// The kind `StatefulSet` of `apps/v1`.
pub const STATEFUL_SET: Resource = Resource::new("apps", "v1", "StatefulSet", "statefulsets", true);

pub(crate) const DAEMON_SET: Resource = Resource::new("apps", "v1", "DaemonSet", "daemonsets", true);

/// The kind `ReplicaSet` of `apps/v1`.
pub const REPLICA_SET: Resource = Resource::new("apps", "v1", "ReplicaSet", "replicasets", true);

/// The kind `Job` of `batch/v1`.
pub const JOB: Resource = Resource::new("batch", "v1", "Job", "jobs", true);

/// The kind `CronJob` of `batch/v1`.
pub const CRON_JOB: Resource = Resource::new("batch", "v1", "CronJob", "cronjobs", true);

/// The kind `NetworkPolicy` of `networking.k8s.io/v1`.
pub const NETWORK_POLICY: Resource =
    Resource::new("networking.k8s.io", "v1", "NetworkPolicy", "networkpolicies", true);

pub(crate) const INGRESS: Resource = Resource::new("networking.k8s.io", "v1", "Ingress", "ingresses", true);

pub(crate) const POD_DISRUPTION_BUDGET: Resource =
    Resource::new("policy", "v1", "PodDisruptionBudget", "poddisruptionbudgets", true);

pub(crate) const PRIORITY_CLASS: Resource =
    Resource::new("scheduling.k8s.io", "v1", "PriorityClass", "priorityclasses", false);

/// The kind `MutatingWebhookConfiguration` of `admissionregistration.k8s.io/v1`.
pub const MUTATING_WEBHOOK_CONFIGURATION: Resource = Resource::new(
    "admissionregistration.k8s.io",
    "v1",
    "MutatingWebhookConfiguration",
    "mutatingwebhookconfigurations",
    false,
);

/// The kind `ValidatingWebhookConfiguration` of `admissionregistration.k8s.io/v1`.
pub const VALIDATING_WEBHOOK_CONFIGURATION: Resource = Resource::new(
    "admissionregistration.k8s.io",
    "v1",
    "ValidatingWebhookConfiguration",
    "validatingwebhookconfigurations",
    false,
);

pub(crate) const API_SERVICE: Resource =
    Resource::new("apiregistration.k8s.io", "v1", "APIService", "apiservices", false);

/// authentication.k8s.io/v1 TokenRequest: requests a token of a ServiceAccount with a lifetime in seconds. The answer
/// has the token in `status`, as `token` and `expirationTimestamp`.
pub(crate) fn token_request(lifetime_s: u64) -> Value {
    json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": lifetime_s}})
}

/// A Secret as the program reads it. Values are base64, as in JSON; its debug format omits them.
#[derive(Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(default)]
pub struct Secret {
    pub(crate) metadata: ObjectMeta,
    /// The values in base64, by key.
    pub(crate) data: SortedMap<String, String>,
    /// Whether the data are immutable.
    pub(crate) immutable: bool,
    /// The type, such as `Opaque`, which determines the keys.
    #[serde(rename = "type")]
    pub(crate) kind: String,
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let keys: Vec<&str> = self.data.keys().map(String::as_str).collect();
        f.debug_struct("Secret").field("metadata", &self.metadata).field("keys", &keys).finish()
    }
}

/// A ConfigMap as the program reads it.
#[derive(Clone, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct ConfigMap {
    pub(crate) metadata: ObjectMeta,
    /// The values as texts, by key.
    pub(crate) data: SortedMap<String, String>,
}
