//! The webhooks of a gardener-resource-manager. A client that stops that program must also remove the webhooks: their
//! failurePolicy is `Fail`, so the API server refuses most writes to the seed while no server answers them.

use serde_json::Value;

use crate::api::core::DEPLOYMENT;
use crate::api::meta::{Key, Metadata, Resource, text};
use crate::kube::{Client, DeleteParams, Error};

pub(crate) const NAMESPACE: &str = "garden";
/// Its name, which its Deployment, its Service and its webhook configurations share.
pub(crate) const NAME: &str = "gardener-resource-manager";

/// The kinds of its webhook configurations.
static CONFIGURATIONS: [Resource; 2] = [
    Resource::new(
        "admissionregistration.k8s.io",
        "v1",
        "MutatingWebhookConfiguration",
        "mutatingwebhookconfigurations",
        false,
    ),
    Resource::new(
        "admissionregistration.k8s.io",
        "v1",
        "ValidatingWebhookConfiguration",
        "validatingwebhookconfigurations",
        false,
    ),
];

/// The API server's message when a required webhook does not answer.
const UNREACHABLE: &str = "failed calling webhook";

/// Configurations that refuse writes because no server answers them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Blocking(Vec<&'static str>);

impl Blocking {
    /// The problem in one sentence.
    pub(crate) fn problem(&self) -> String {
        let s = if self.0.len() == 1 { "refuses" } else { "refuse" };
        format!(
            "{} {NAME} {s} writes to the seed, because no {NAME} is ready to answer",
            self.0.join(" and ")
        )
    }

    /// The command that removes the configurations.
    pub fn command(&self) -> String {
        format!("kubectl delete {} {NAME}", self.0.join(",").to_lowercase())
    }

    /// Problem and command, for messages.
    pub(crate) fn remark(&self) -> String {
        format!("{}; unless it comes back, run: {}", self.problem(), self.command())
    }
}

/// The remedy for an error of [`is_unanswered`], for callers that cannot query the seed.
pub(crate) fn remedy() -> String {
    let all = Blocking(CONFIGURATIONS.iter().filter_map(kind).collect());
    format!("a webhook of {NAME} does not answer; unless it comes back, run: {}", all.command())
}

/// Looks for configurations that refuse writes. Errors: the first call that fails.
pub fn blocking(seed: &Client) -> Result<Option<Blocking>, Error> {
    let mut found = Vec::new();
    for resource in &CONFIGURATIONS {
        if let Some(configuration) = seed.find::<Value>(resource, &Key::cluster(NAME))? {
            found.push((resource, configuration));
        }
    }
    // Without webhooks, nothing else needs to be read.
    if found.is_empty() {
        return Ok(None);
    }
    let deployment = seed.find::<Value>(&DEPLOYMENT, &Key::new(NAMESPACE, NAME))?;
    let kinds = found.iter().filter(|(_, configuration)| blocks(configuration, deployment.as_ref()));
    let kinds: Vec<&'static str> = kinds.filter_map(|(resource, _)| kind(resource)).collect();
    Ok((!kinds.is_empty()).then_some(Blocking(kinds)))
}

fn kind(resource: &Resource) -> Option<&'static str> {
    ["MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"]
        .into_iter()
        .find(|kind| *kind == resource.kind)
}

/// Whether a configuration has a required webhook that no server answers.
fn blocks(configuration: &Value, deployment: Option<&Value>) -> bool {
    let is_answered = deployment.is_some_and(|d| d["status"]["readyReplicas"].as_i64().unwrap_or(0) > 0);
    let mut webhooks = configuration["webhooks"].as_array().into_iter().flatten();
    !is_answered
        && webhooks.any(|webhook| {
            let service = &webhook["clientConfig"]["service"];
            let is_theirs = text(&service["namespace"]) == NAMESPACE && text(&service["name"]) == NAME;
            // The default failurePolicy is `Fail`.
            is_theirs && webhook["failurePolicy"] != "Ignore"
        })
}

/// Removes both configurations and returns the kinds of those that existed. Errors: the
/// first call that fails.
pub fn remove(seed: &Client) -> Result<Vec<&'static str>, Error> {
    let (key, mut removed) = (Key::cluster(NAME), Vec::new());
    for resource in &CONFIGURATIONS {
        if seed.find::<Metadata>(resource, &key)?.is_none() {
            continue;
        }
        match seed.delete(resource, &key, &DeleteParams::default()) {
            Err(error) if !error.is_not_found() => return Err(error),
            _ => removed.extend(kind(resource)),
        }
    }
    Ok(removed)
}

/// Whether an error means that a webhook of gardener-resource-manager did not answer.
pub fn is_unanswered(message: &str) -> bool {
    message.contains(UNREACHABLE) && message.contains("gardener")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn configurations_block_without_a_ready_server() {
        let webhook = |name: &str, policy: Option<&str>| {
            let mut webhook =
                json!({"name": "x", "clientConfig": {"service": {"namespace": "garden", "name": name}}});
            if let Some(policy) = policy {
                webhook["failurePolicy"] = json!(policy);
            }
            webhook
        };
        let (fail, ignore) = (webhook(NAME, Some("Fail")), webhook(NAME, Some("Ignore")));
        let deployment = |replicas: i64, ready: Option<i64>| {
            let mut deployment = json!({"spec": {"replicas": replicas}, "status": {}});
            if let Some(ready) = ready {
                deployment["status"]["readyReplicas"] = json!(ready);
            }
            Some(deployment)
        };
        let table = [
            ("no deployment", json!([fail]), None, true),
            ("scaled to nothing", json!([fail]), deployment(0, None), true),
            ("not ready", json!([fail]), deployment(2, Some(0)), true),
            ("ready", json!([fail]), deployment(2, Some(1)), false),
            ("default policy", json!([webhook(NAME, None)]), None, true),
            ("ignored", json!([ignore]), None, false),
            ("one of two", json!([ignore, fail]), None, true),
            ("another service", json!([webhook("other", Some("Fail"))]), None, false),
            ("no webhooks", json!(null), None, false),
        ];
        for (name, webhooks, deployment, expected) in table {
            assert_eq!(blocks(&json!({"webhooks": webhooks}), deployment.as_ref()), expected, "{name}");
        }
    }

    #[test]
    fn words() {
        let both = Blocking(vec!["MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"]);
        assert_eq!(
            both.remark(),
            "MutatingWebhookConfiguration and ValidatingWebhookConfiguration gardener-resource-manager refuse writes to \
             the seed, because no gardener-resource-manager is ready to answer; unless it comes back, run: kubectl delete \
             mutatingwebhookconfiguration,validatingwebhookconfiguration gardener-resource-manager"
        );
        let one = Blocking(vec!["MutatingWebhookConfiguration"]);
        assert!(
            one.problem()
                .starts_with("MutatingWebhookConfiguration gardener-resource-manager refuses writes")
        );
    }

    #[test]
    fn errors_of_webhooks() {
        let table = [
            (
                "error during apply of object \"apps/v1/Deployment/a/b\": 500 InternalError: Internal error occurred: failed \
                 calling webhook \"high-availability-config.resources.gardener.cloud\": failed to call webhook: Post \
                 \"https://gardener-resource-manager.garden.svc:443/webhooks\": no endpoints available",
                true,
            ),
            ("failed calling webhook \"policy.example.com\": failed to call webhook", false),
            ("404 NotFound: gardener", false),
        ];
        for (message, expected) in table {
            assert_eq!(is_unanswered(message), expected, "{message}");
        }
    }
}
