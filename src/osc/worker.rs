//! The pools in a Worker object: what an extension makes nodes of.
//!
//! Source: `pkg/component/extensions/worker`.

use serde_json::Value;

use crate::base::json::json;

use super::labels::labels;
use super::pool::NodePool;

/// Fields that a pool has under the same name.
const SAME: [&str; 8] = [
    "annotations",
    "dataVolumes",
    "kubeletDataVolumeName",
    "priority",
    "providerConfig",
    "taints",
    "updateStrategy",
    "zones",
];

/// A pool of a Worker. `user_data` is the name of the Secret with which a new node begins, `profile` is the spec of the CloudProfile,
/// and `live` the Worker so far.
pub(crate) fn worker_pool(pool: NodePool<'_>, user_data: &str, profile: &Value, live: &Value) -> Value {
    let (worker, machine) = (pool.worker, &pool.worker["machine"]);
    let count = |field: &str| if worker[field].is_null() { json!(0) } else { worker[field].clone() };
    let mut wanted = json!({
        "name": pool.name(), "minimum": count("minimum"), "maximum": count("maximum"),
        "maxSurge": count("maxSurge"), "maxUnavailable": count("maxUnavailable"),
        "machineType": machine["type"], "architecture": pool.architecture(),
        "machineImage": {"name": machine["image"]["name"], "version": machine["image"]["version"]},
        "labels": labels(pool), "nodeAgentSecretName": pool.key(), "kubernetesVersion": pool.version(),
        "userDataSecretRef": {"name": user_data, "key": "cloud_config"},
    });
    for field in SAME.iter().filter(|field| !worker[**field].is_null()) {
        wanted[*field] = worker[*field].clone();
    }
    if pool.kubelet().is_object() {
        wanted["kubeletConfig"] = pool.kubelet().clone();
    }
    for field in ["name", "type", "size", "encrypted"] {
        if !worker["volume"][field].is_null() {
            wanted["volume"][field] = worker["volume"][field].clone();
        }
    }
    let known = pool.machine_type(profile);
    if let Some(template) = node_template(&wanted, known, live) {
        wanted["nodeTemplate"] = template;
    }
    let creation = known.map_or(&Value::Null, |known| &known["machineCreationTimeout"]);
    let mut settings = worker["machineControllerManager"].clone();
    if settings["machineCreationTimeout"].is_null() && !creation.is_null() {
        settings["machineCreationTimeout"] = creation.clone();
    }
    if !settings.is_null() {
        wanted["machineControllerManager"] = settings;
    }
    if let Some(scaler) = scaler(&worker["clusterAutoscaler"]) {
        wanted["clusterAutoscaler"] = scaler;
    }
    wanted
}

/// What a node will offer before there is one: as known so far, or as the CloudProfile says for another machine type.
fn node_template(wanted: &Value, known: Option<&Value>, live: &Value) -> Option<Value> {
    let pools = live["spec"]["pools"].as_array();
    let before = pools.into_iter().flatten().find(|pool| pool["name"] == wanted["name"]);
    if let Some(before) = before.filter(|before| before["machineType"] == wanted["machineType"]) {
        return Some(before["nodeTemplate"].clone()).filter(|template| !template.is_null());
    }
    let known = known?;
    Some(json!({"capacity": {"cpu": known["cpu"], "gpu": known["gpu"], "memory": known["memory"]}}))
}

/// Fractions are texts in a Worker, and numbers in a Shoot.
fn scaler(own: &Value) -> Option<Value> {
    let mut scaler = own.as_object()?.clone();
    for field in ["scaleDownUtilizationThreshold", "scaleDownGpuUtilizationThreshold"] {
        if let Some(value) = scaler.get_mut(field).filter(|value| value.is_number()) {
            *value = json!(value.to_string());
        }
    }
    Some(scaler.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::yaml;

    #[test]
    fn a_pool_is_the_golden_one() {
        let golden = yaml::parse(include_str!("../../tests/fixtures/osc/worker-pool.yaml")).unwrap();
        let shoot =
            json!({"spec": {"kubernetes": {"version": "1.34.3", "kubelet": golden["kubeletConfig"]}}});
        let worker = json!({"name": "pool1", "minimum": 1, "maximum": golden["maximum"], "maxSurge": 1, "maxUnavailable": 0,
            "cri": {"name": "containerd"}, "volume": {"size": "50Gi", "type": "fast"}, "updateStrategy": "AutoRollingUpdate",
            "zones": golden["zones"], "systemComponents": {"allow": true},
            "machine": {"type": "lab", "architecture": "amd64", "image": {"name": "lab", "version": "1.0.0"}}});
        let capacity = &golden["nodeTemplate"]["capacity"];
        let profile = json!({"machineTypes": [{"name": "lab", "cpu": capacity["cpu"], "gpu": capacity["gpu"], "memory": capacity["memory"]}]});
        let pool = NodePool { shoot: &shoot, worker: &worker, has_hosts: false };
        let user_data = "osc-result-gardener-node-agent-pool1-0157e2ac9768c50d-init";
        assert_eq!(worker_pool(pool, user_data, &profile, &Value::Null), golden);
    }

    #[test]
    fn what_a_node_offers_stays_known() {
        let shoot = json!({"spec": {"kubernetes": {"version": "1.34.3"}}});
        let worker = json!({"name": "a", "machine": {"type": "t"}, "clusterAutoscaler": {"scaleDownUtilizationThreshold": 0.5}});
        let pool = NodePool { shoot: &shoot, worker: &worker, has_hosts: false };
        let live = |machine: &str| json!({"spec": {"pools": [{"name": "a", "machineType": machine, "nodeTemplate": {"capacity": {"cpu": "7"}}}]}});
        let profile = json!({"machineTypes": [{"name": "t", "cpu": "1", "gpu": "0", "memory": "2Gi",
            "machineCreationTimeout": "9m0s"}]});
        let of = |live: &Value| worker_pool(pool, "s", &profile, live);
        assert_eq!(of(&live("t"))["nodeTemplate"]["capacity"], json!({"cpu": "7"}));
        assert_eq!(of(&live("u"))["nodeTemplate"]["capacity"]["cpu"], "1");
        assert_eq!(of(&Value::Null)["machineControllerManager"]["machineCreationTimeout"], "9m0s");
        assert_eq!(of(&Value::Null)["clusterAutoscaler"], json!({"scaleDownUtilizationThreshold": "0.5"}));
        let unknown = worker_pool(pool, "s", &json!({}), &Value::Null);
        assert_eq!(unknown["nodeTemplate"], Value::Null);
    }
}
