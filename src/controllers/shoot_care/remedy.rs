//! How webhooks that could keep a Shoot from waking up are changed. Pure.
//!
//! Source: `pkg/gardenlet/controller/shoot/care/webhook_remediation.go`. One difference: a slow webhook of Leases gets
//! its three seconds at once; upstream first writes fifteen, and three in its next round.

use serde_json::Value;

use crate::api::meta::text;
use crate::base::json::json;

use super::webhooks::{
    LEASES_TIMEOUT_S_MAX, Labels, TIMEOUT_S_MAX, WARNING, WebhookTarget, is_of_leases, is_slower, left_out,
    targets,
};

const EXCLUDED: &str = "remediation.webhook.shoot.gardener.cloud/exclude";
const PREFACE: &str = "ATTENTION: Gardener has modified this webhook configuration, because it could interfere with the operation of \
    the cluster. Please follow the best practices for webhooks \
    (https://kubernetes.io/docs/reference/access-authn-authz/extensible-admission-controllers/#best-practices-and-warnings), \
    and then remove this annotation. The following was modified:";

/// Whether a configuration may be changed.
pub(super) fn is_open(configuration: &Value) -> bool {
    let label = |name: &str| text(&configuration["metadata"]["labels"][name]);
    label(EXCLUDED) != "true" && label("resources.gardener.cloud/managed-by") != "gardener"
}

/// A strategic merge patch that fixes a configuration; `None` if it needs none.
pub(super) fn patch(configuration: &Value) -> Option<Value> {
    let mut notes = Vec::new();
    let webhooks = configuration["webhooks"].as_array().into_iter().flatten();
    let changed: Vec<Value> = webhooks.filter_map(|webhook| mend(webhook, &mut notes)).collect();
    let notes: Vec<String> = notes.into_iter().map(|note| format!("\n- {note}")).collect();
    (!changed.is_empty()).then(|| {
        json!({"metadata": {"annotations": {WARNING: format!("{PREFACE}{}", notes.concat())}}, "webhooks": changed})
    })
}

/// The changes of a webhook, with its name.
fn mend(webhook: &Value, notes: &mut Vec<String>) -> Option<Value> {
    let name = text(&webhook["name"]);
    let mut note =
        |field: &str, what: String| notes.push(format!("{field} of webhook \"{name}\" was {what}"));
    let mut changed = json!({"name": name});
    let seconds = match is_of_leases(webhook) {
        true => LEASES_TIMEOUT_S_MAX,
        false => TIMEOUT_S_MAX,
    };
    if is_slower(webhook, seconds) {
        changed["timeoutSeconds"] = json!(seconds);
        note("timeoutSeconds", format!("set to {seconds}"));
    }
    if webhook["failurePolicy"] != "Ignore" {
        let met = targets(webhook);
        if met.iter().any(|target| target.object.is_none() && target.namespace.is_none()) {
            changed["failurePolicy"] = json!("Ignore");
            note("failurePolicy", "set to Ignore".to_owned());
        }
        let labels = |of: fn(&WebhookTarget) -> Option<Labels>| {
            left_out(met.iter().filter_map(move |target| of(target)).flatten())
        };
        let selectors =
            [("objectSelector", labels(|t| t.object)), ("namespaceSelector", labels(|t| t.namespace))];
        for (field, more) in selectors.into_iter().filter(|(_, more)| !more.is_empty()) {
            let words: Vec<String> =
                more.iter().map(|e| format!("{} NotIn {}", text(&e["key"]), text(&e["values"][0]))).collect();
            note(field, format!("extended with {}", words.join(", ")));
            let mut all = webhook[field]["matchExpressions"].as_array().cloned().unwrap_or_default();
            all.extend(more);
            changed[field] = json!({"matchExpressions": all});
        }
    }
    (changed.as_object().map_or(0, serde_json::Map::len) > 1).then_some(changed)
}
