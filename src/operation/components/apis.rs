//! The APIs that the API server of a Shoot serves, and for which there are controllers.

use serde_json::Value;

use crate::base::json::json;

/// APIs that are useless without workers. A Shoot may enable them.
const WITHOUT_WORKERS: [&str; 5] =
    ["apps/v1", "autoscaling/v2", "batch/v1", "policy/v1", "storage.k8s.io/v1/csinodes"];

/// Which APIs `spec.kubernetes.kubeAPIServer` enables and disables.
pub(super) fn switched(server: &Value) -> Value {
    let mut all: serde_json::Map<String, Value> =
        WITHOUT_WORKERS.iter().map(|api| ((*api).to_owned(), json!(false))).collect();
    all.extend(server["runtimeConfig"].as_object().cloned().unwrap_or_default());
    Value::Object(all)
}
