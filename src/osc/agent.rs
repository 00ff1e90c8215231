//! The configuration of gardener-node-agent.

use serde_json::Value;

use crate::base::json::json;
use crate::format::yaml::{self, Dialect};

use super::pool::NodePool;

/// The version of gardener-node-agent: its image has it as a tag, and it opens only the configuration whose name has it.
pub(crate) const VERSION: &str = "v1.150.0";
/// The folder of the agent.
pub(super) const FOLDER: &str = "/var/lib/gardener-node-agent";
/// The CAs with which the agent verifies the API server.
pub(super) const CA_FILE: &str = "/var/lib/gardener-node-agent/cluster-ca.crt";

/// The path of the agent's configuration.
pub(super) fn path() -> String {
    format!("{FOLDER}/config-{VERSION}.yaml")
}

/// The text of the configuration. A new machine also needs to know how it begins.
pub(super) fn configuration(pool: NodePool<'_>, server: &str, is_new: bool) -> String {
    let mut configuration = json!({
        "apiVersion": "nodeagent.config.gardener.cloud/v1alpha1", "kind": "NodeAgentConfiguration",
        "apiServer": {"caFile": CA_FILE, "server": server},
        // Fields without a value that the agent requires.
        "clientConnection": {"acceptContentTypes": "", "burst": 0, "contentType": "", "kubeconfig": "", "qps": 0},
        "logFormat": "", "logLevel": "", "server": {},
        "controllers": {
            "operatingSystemConfig": {"kubernetesVersion": pool.version(), "secretName": pool.key()},
            "systemdUnitCheck": {}, "token": {"syncPeriod": "12h0m0s"}},
    });
    if is_new {
        configuration["bootstrap"] = bootstrap(pool.worker);
    }
    yaml::emit(&configuration, Dialect::V4)
}

/// A machine with a volume for its kubelet formats it.
fn bootstrap(worker: &Value) -> Value {
    let Some(name) = worker["kubeletDataVolumeName"].as_str() else { return json!({}) };
    let volumes = worker["dataVolumes"].as_array();
    let volume = volumes.into_iter().flatten().find(|volume| volume["name"] == name);
    let size = volume.and_then(|volume| volume["size"].as_str());
    let bytes = size.and_then(|size| crate::format::quantity::Quantity::parse(size).ok());
    match bytes.and_then(|bytes| i64::try_from(bytes.whole()).ok()) {
        Some(bytes) => json!({ "kubeletDataVolumeSize": bytes }),
        None => json!({}),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_machine_formats_the_volume_of_its_kubelet() {
        let worker = json!({"kubeletDataVolumeName": "b", "dataVolumes": [
            {"name": "a", "size": "1Gi"}, {"name": "b", "size": "25Gi"}]});
        assert_eq!(bootstrap(&worker), json!({"kubeletDataVolumeSize": 26_843_545_600_i64}));
        assert_eq!(bootstrap(&json!({"dataVolumes": worker["dataVolumes"]})), json!({}));
        assert_eq!(bootstrap(&json!({"kubeletDataVolumeName": "c"})), json!({}));
    }
}
