//! Checks whether the desired agent can be deployed.

use std::path::Path;

use serde_json::Value;

use crate::api::core::{CONFIG_MAP, DEPLOYMENT};
use crate::api::meta::{Key, text};
use crate::base::json::json;
use crate::config;
use crate::extension::problem;
use crate::flow::Failed;
use crate::kube::{Client, InlineOrFile};

use super::values::{self, AgentAccess};
use super::{NAME, NAMESPACE};

/// Reads a file of this agent, limited to the size of a configuration. Errors: it cannot be read,
/// or is not text.
pub(crate) fn read(path: &Path) -> Result<String, Failed> {
    let failed = |why: &dyn std::fmt::Display| Failed::new(format!("read {}: {why}", path.display()));
    let bytes = InlineOrFile::File(path.to_owned()).load().map_err(|error| failed(&error))?;
    String::from_utf8(bytes.to_vec()).map_err(|error| failed(&error))
}

/// The configuration of the new agent, validated with the agent's own rules. `place` is the location of
/// `own`. Kubeconfigs are given by their content. Errors: the reason why it is invalid.
pub(crate) fn configuration(
    own: &Value,
    parent: Option<&Value>,
    seed: &str,
    place: &'static str,
) -> Result<Value, Failed> {
    let mut config = values::configuration(own, parent, seed);
    let mut checked = config.clone();
    checked["apiVersion"] = json!("gardenlet.config.gardener.cloud/v1alpha1");
    checked["kind"] = json!("GardenletConfiguration");
    // The reader expects kubeconfigs to be files, which do not exist yet.
    values::connect(&mut checked, AgentAccess::Certificate);
    config::load(&checked.to_string(), place).map_err(|problems| {
        let first = problems.first().map(ToString::to_string).unwrap_or_default();
        problem(format!("{place} is invalid: {first}"))
    })?;
    for at in ["gardenClientConnection", "seedClientConnection"] {
        let path = text(&config[at]["kubeconfig"]).to_owned();
        if !path.is_empty() {
            config[at]["kubeconfig"] = json!(read(Path::new(&path))?);
        }
    }
    Ok(config)
}

/// Refuses a second agent for another seed in one cluster: the two would conflict. Errors: another agent
/// exists; or a request to the cluster fails.
pub(crate) fn refuse_another(client: &Client, name: &str) -> Result<(), Failed> {
    let found = client.find::<Value>(&DEPLOYMENT, &Key::new(NAMESPACE, NAME))?;
    let Some(map) = found.as_ref().and_then(values::config_map_of) else { return Ok(()) };
    let found = client.find::<Value>(&CONFIG_MAP, &Key::new(NAMESPACE, map))?;
    match found.as_ref().and_then(values::seed_of) {
        Some(other) if other != name => Err(problem(format!(
            "found existing gardenlet deployment with ConfigMap {map} which uses seed name {other:?} - this seed name doesn't \
             match to {name:?}: check whether spec.shoot.name is the right Shoot, or remove that gardenlet"
        ))),
        _ => Ok(()),
    }
}
