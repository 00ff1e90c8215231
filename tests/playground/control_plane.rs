//! The events in the namespace of a control plane, in few words: the agent reports its tasks itself.

use std::collections::BTreeSet;

use serde_json::Value;

use support::api::store::Change;
use support::json::{list, text};
use support::shoot::PREFIX;

/// What was printed about the namespaces of control planes.
#[derive(Default)]
pub struct Teller {
    /// The number of Secrets that are not printed yet.
    secrets: usize,
    told: BTreeSet<String>,
}

/// Whether this is in the namespace of a control plane.
pub fn holds(change: &Change) -> bool {
    change.id.namespace.starts_with(PREFIX)
}

impl Teller {
    /// The lines for a change. Secrets are counted, and printed before the next line.
    pub fn lines(&mut self, change: &Change) -> Vec<String> {
        self.secrets += usize::from(change.id.plural == "secrets" && change.before.is_none());
        let news = news(change).filter(|line| self.told.insert(line.clone()));
        let Some(news) = news else { return Vec::new() };
        let count = std::mem::take(&mut self.secrets);
        let secrets = (count > 0).then(|| format!("Secrets in {}: {count} more", change.id.namespace));
        secrets.into_iter().chain([news]).collect()
    }
}

fn news(change: &Change) -> Option<String> {
    let object = &change.after;
    let what = format!("{} {}/{}", text(object, "/kind"), change.id.namespace, change.id.name);
    let is_new = change.before.is_none();
    match change.id.plural.as_str() {
        _ if change.deleted => None,
        "deployments" | "statefulsets" if is_new => Some(format!("{what} is created")),
        "deployments" | "statefulsets" => is_available(object).then(|| format!("{what} is available")),
        "services" if object["spec"]["type"] == "NodePort" => {
            Some(format!("{what} leads to port {} of the node", object["spec"]["ports"][0]["nodePort"]))
        }
        "managedresources" => {
            let conditions = list(object, "/status/conditions");
            let is_true = |kind: &str| conditions.iter().any(|c| c["type"] == kind && c["status"] == "True");
            (is_true("ResourcesApplied") && is_true("ResourcesHealthy"))
                .then(|| format!("{what} is applied and healthy"))
        }
        _ => None,
    }
}

fn is_available(workload: &Value) -> bool {
    let wanted = workload["spec"]["replicas"].as_u64().unwrap_or(1);
    wanted > 0 && workload["status"]["availableReplicas"] == wanted
}
