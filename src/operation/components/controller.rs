//! What the controllers of a control plane have in common: a Deployment, its Service, its PodDisruptionBudget, and the
//! kubeconfig that they share.

use serde_json::Value;

use crate::api::core::{DEPLOYMENT, POD_DISRUPTION_BUDGET, SERVICE};
use crate::base::json::json;
use crate::components::apply::{Keep, apply, apply_keeping};
use crate::components::archive;
use crate::kube::{Error, Seed};

/// The Deployment in a component's folder, without the names of its volumes.
pub(super) fn deployment(folder: &str, namespace: &str, image: &str, replicas: i64) -> Value {
    let mut object = archive::object(&format!("{folder}/deployment.yaml"));
    object["metadata"]["namespace"] = json!(namespace);
    object["spec"]["replicas"] = json!(replicas);
    object["spec"]["template"]["spec"]["containers"][0]["image"] = json!(image);
    object
}

/// Sets the name of the Secret that is the first source of a projected volume.
pub(super) fn set_source(deployment: &mut Value, volume: &str, secret: &str) {
    let volumes = deployment["spec"]["template"]["spec"]["volumes"].as_array_mut();
    for each in volumes.into_iter().flatten().filter(|each| each["name"] == volume) {
        each["projected"]["sources"][0]["secret"]["name"] = json!(secret);
    }
}

/// Adds arguments to the command of the first container.
pub(super) fn add_arguments(deployment: &mut Value, arguments: Vec<String>) {
    let command = &mut deployment["spec"]["template"]["spec"]["containers"][0]["command"];
    if let Some(command) = command.as_array_mut() {
        command.extend(arguments.into_iter().map(Value::String));
    }
}

/// The Service and the PodDisruptionBudget in a component's folder.
pub(super) fn others(folder: &str, namespace: &str) -> [Value; 2] {
    ["service", "pdb"].map(|file| {
        let mut object = archive::object(&format!("{folder}/{file}.yaml"));
        object["metadata"]["namespace"] = json!(namespace);
        object
    })
}

/// Writes everything to the seed and keeps the container's live resource requests. Returns the Deployment.
/// Errors: a request fails.
pub(super) fn write(seed: &Seed, [service, budget]: [Value; 2], deployment: &Value) -> Result<Value, Error> {
    apply(seed, &SERVICE, &service)?;
    apply(seed, &POD_DISRUPTION_BUDGET, &budget)?;
    apply_keeping(seed, &DEPLOYMENT, deployment, Keep { resources: true })
}
