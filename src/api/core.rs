//! Kinds of the core group and of the built-in groups that the program names.

use std::fmt;

use serde::Deserialize;
use serde_json::{Value, json};

use super::meta::{ObjectMeta, Resource, or_default};
use crate::base::sorted::SortedMap;

/// v1 Secret.
pub const SECRET: Resource = Resource::new("", "v1", "Secret", "secrets", true);

/// v1 ConfigMap.
pub const CONFIG_MAP: Resource = Resource::new("", "v1", "ConfigMap", "configmaps", true);

/// v1 Namespace.
pub const NAMESPACE: Resource = Resource::new("", "v1", "Namespace", "namespaces", false);

/// v1 ServiceAccount.
pub const SERVICE_ACCOUNT: Resource = Resource::new("", "v1", "ServiceAccount", "serviceaccounts", true);

/// v1 Pod.
pub const POD: Resource = Resource::new("", "v1", "Pod", "pods", true);

/// v1 Node.
pub const NODE: Resource = Resource::new("", "v1", "Node", "nodes", false);

/// v1 Service.
pub const SERVICE: Resource = Resource::new("", "v1", "Service", "services", true);

/// v1 Endpoints.
pub const ENDPOINTS: Resource = Resource::new("", "v1", "Endpoints", "endpoints", true);

/// v1 PersistentVolumeClaim.
pub const PERSISTENT_VOLUME_CLAIM: Resource =
    Resource::new("", "v1", "PersistentVolumeClaim", "persistentvolumeclaims", true);

/// v1 ReplicationController.
pub const REPLICATION_CONTROLLER: Resource =
    Resource::new("", "v1", "ReplicationController", "replicationcontrollers", true);

/// events.k8s.io/v1 Event.
pub const EVENT: Resource = Resource::new("events.k8s.io", "v1", "Event", "events", true);

/// apps/v1 Deployment.
pub const DEPLOYMENT: Resource = Resource::new("apps", "v1", "Deployment", "deployments", true);

/// apps/v1 StatefulSet.
pub const STATEFUL_SET: Resource = Resource::new("apps", "v1", "StatefulSet", "statefulsets", true);

/// apps/v1 DaemonSet.
pub const DAEMON_SET: Resource = Resource::new("apps", "v1", "DaemonSet", "daemonsets", true);

/// apps/v1 ReplicaSet.
pub const REPLICA_SET: Resource = Resource::new("apps", "v1", "ReplicaSet", "replicasets", true);

/// batch/v1 Job.
pub const JOB: Resource = Resource::new("batch", "v1", "Job", "jobs", true);

/// batch/v1 CronJob.
pub const CRON_JOB: Resource = Resource::new("batch", "v1", "CronJob", "cronjobs", true);

/// networking.k8s.io/v1 NetworkPolicy.
pub const NETWORK_POLICY: Resource =
    Resource::new("networking.k8s.io", "v1", "NetworkPolicy", "networkpolicies", true);

/// networking.k8s.io/v1 Ingress.
pub const INGRESS: Resource = Resource::new("networking.k8s.io", "v1", "Ingress", "ingresses", true);

/// policy/v1 PodDisruptionBudget.
pub const POD_DISRUPTION_BUDGET: Resource =
    Resource::new("policy", "v1", "PodDisruptionBudget", "poddisruptionbudgets", true);

/// scheduling.k8s.io/v1 PriorityClass.
pub const PRIORITY_CLASS: Resource =
    Resource::new("scheduling.k8s.io", "v1", "PriorityClass", "priorityclasses", false);

/// admissionregistration.k8s.io/v1 MutatingWebhookConfiguration.
pub const MUTATING_WEBHOOK_CONFIGURATION: Resource = Resource::new(
    "admissionregistration.k8s.io",
    "v1",
    "MutatingWebhookConfiguration",
    "mutatingwebhookconfigurations",
    false,
);

/// admissionregistration.k8s.io/v1 ValidatingWebhookConfiguration.
pub const VALIDATING_WEBHOOK_CONFIGURATION: Resource = Resource::new(
    "admissionregistration.k8s.io",
    "v1",
    "ValidatingWebhookConfiguration",
    "validatingwebhookconfigurations",
    false,
);

/// apiregistration.k8s.io/v1 APIService.
pub const API_SERVICE: Resource =
    Resource::new("apiregistration.k8s.io", "v1", "APIService", "apiservices", false);

/// authentication.k8s.io/v1 TokenRequest: requests a token of a ServiceAccount with a lifetime in seconds. The answer
/// has the token in `status`, as `token` and `expirationTimestamp`.
pub fn token_request(lifetime_s: u64) -> Value {
    json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": lifetime_s}})
}

/// A Secret as the program reads it. Values are base64, as in JSON; its debug format omits them.
#[derive(Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(default)]
pub struct Secret {
    /// Metadata.
    pub metadata: ObjectMeta,
    /// Base64 by key.
    #[serde(deserialize_with = "or_default")]
    pub data: SortedMap<String, String>,
    /// Whether the data are immutable.
    #[serde(deserialize_with = "or_default")]
    pub immutable: bool,
    /// The type, such as `Opaque`, which determines the keys.
    #[serde(rename = "type", deserialize_with = "or_default")]
    pub kind: String,
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
pub struct ConfigMap {
    /// Metadata.
    pub metadata: ObjectMeta,
    /// Text by key.
    #[serde(deserialize_with = "or_default")]
    pub data: SortedMap<String, String>,
}
