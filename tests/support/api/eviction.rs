//! Evictions: deletions of pods that ask their disruption budget first. Nobody counts the pods of a budget here: its status is what a test writes.

use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::failure::Failure;
use super::remove::Options;
use super::write::Patch;
use super::{Api, Target, User, selector};
use crate::json::{list, text};

const POLICY: &str = "policy";
const BUDGETS: &str = "poddisruptionbudgets";
const REFUSAL: &str = "Cannot evict pod as it would violate the pod's disruption budget.";

/// POST to `pods/<name>/eviction`.
pub fn evict(api: &Api, target: &Target, eviction: &Value, user: &User) -> Result<Value, Failure> {
    if text(eviction, "/metadata/name") != target.name {
        return Err(Failure::bad_request("name in URL does not match name in Eviction object"));
    }
    let of = Target { subresource: String::new(), ..target.clone() };
    let pod = api.get(&of)?;
    if !is_ending(&pod) {
        let budgets = budgets(api, &pod);
        if budgets.len() > 1 {
            let why = "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.";
            return Err(Failure::new(500, "", why));
        }
        for budget in budgets {
            use_up(api, &pod, &budget, user)?;
        }
    }
    let mut options = Options::parse(&eviction["deleteOptions"]);
    options.user = Some(user.clone());
    api.delete(&of, &options)?;
    Ok(json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}))
}

/// Whether its end disrupts nothing.
fn is_ending(pod: &Value) -> bool {
    let is_deleted = !text(pod, "/metadata/deletionTimestamp").is_empty();
    is_deleted || ["Succeeded", "Failed", "Pending"].contains(&text(pod, "/status/phase"))
}

/// The budgets of a pod. One without a selector is that of no pod.
fn budgets(api: &Api, pod: &Value) -> Vec<Value> {
    let all = api.store.all(POLICY, BUDGETS, text(pod, "/metadata/namespace"));
    let is_of_pod = |budget: &&Arc<Value>| {
        let selector = &budget["spec"]["selector"];
        let is_empty = selector.as_object().is_none_or(Map::is_empty);
        !is_empty && selector::matches_spec(selector, &pod["metadata"]["labels"])
    };
    all.iter().filter(is_of_pod).map(|budget| (**budget).clone()).collect()
}

fn number(budget: &Value, field: &str) -> i64 {
    budget["status"][field].as_i64().unwrap_or_default()
}

/// Takes one disruption from the budget.
fn use_up(api: &Api, pod: &Value, budget: &Value, user: &User) -> Result<(), Failure> {
    let (name, allowed) = (text(budget, "/metadata/name"), number(budget, "disruptionsAllowed"));
    let (healthy, desired) = (number(budget, "currentHealthy"), number(budget, "desiredHealthy"));
    let is_ready = list(pod, "/status/conditions")
        .iter()
        .any(|condition| condition["type"] == "Ready" && condition["status"] == "True");
    if !is_ready && healthy >= desired && desired > 0 {
        return Ok(());
    }
    let generation = budget["metadata"]["generation"].as_i64().unwrap_or_default();
    if number(budget, "observedGeneration") < generation {
        let why = format!("The disruption budget {name} is still being processed by the server.");
        return Err(refusal(&why, Some(10)));
    }
    if allowed == 0 {
        let why =
            format!("The disruption budget {name} needs {desired} healthy pods and has {healthy} currently");
        return Err(refusal(&why, None));
    }
    let disrupted = json!({(text(pod, "/metadata/name")): api.now()});
    let status = json!({"status": {"disruptionsAllowed": allowed - 1, "disruptedPods": disrupted}});
    let Some(kind) = api.kind(POLICY, BUDGETS) else { return Ok(()) };
    let target = Target::new(kind, text(budget, "/metadata/namespace"), name).subresource("status");
    api.patch(&target, &Patch::Merge(status), user).map(drop)
}

fn refusal(why: &str, retry_after_s: Option<u32>) -> Failure {
    let details = json!({"causes": [{"reason": "DisruptionBudget", "message": why}]});
    Failure { details: Some(details), retry_after_s, ..Failure::new(429, "TooManyRequests", REFUSAL) }
}
