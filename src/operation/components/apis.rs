//! The APIs that the API server of a Shoot serves, and for which there are controllers.

use serde_json::Value;

use crate::base::json::json;

/// APIs that are useless without workers. A Shoot may enable them.
const WITHOUT_WORKERS: [&str; 5] =
    ["apps/v1", "autoscaling/v2", "batch/v1", "policy/v1", "storage.k8s.io/v1/csinodes"];

/// Which APIs are enabled and disabled, by default and by `spec.kubernetes.kubeAPIServer`.
pub(super) fn switched(server: &Value, has_workers: bool) -> Value {
    let off = if has_workers { &[][..] } else { &WITHOUT_WORKERS };
    let mut all: serde_json::Map<String, Value> =
        off.iter().map(|api| ((*api).to_owned(), json!(false))).collect();
    all.extend(server["runtimeConfig"].as_object().cloned().unwrap_or_default());
    Value::Object(all)
}
