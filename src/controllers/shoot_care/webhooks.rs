//! Finds webhooks of the owner that could keep a Shoot from waking up or its nodes from joining. Pure.
//!
//! Source: `pkg/gardenlet/operation/botanist/matchers`, `pkg/gardenlet/controller/shoot/care/constraints.go`.

use serde_json::Value;

use crate::api::meta::text;
use crate::api::selector::matches;
use crate::base::cut::head;
use crate::base::json::json;
use crate::components::webhooks;
use crate::limits;

/// The longest timeout of a webhook for critical resources.
pub(super) const TIMEOUT_S_MAX: i64 = 15;
/// The longest timeout of a webhook for Leases in kube-system: with a longer one, leaders would lose them.
pub(super) const LEASES_TIMEOUT_S_MAX: i64 = 3;
/// Marks a webhook configuration that Gardener has changed, until its owner removes it.
pub(super) const WARNING: &str = "gardener.cloud/warning";

/// Labels of a namespace or of an object.
pub(super) type Labels = &'static [(&'static str, &'static str)];

const KUBE_SYSTEM: Labels = &[
    ("shoot.gardener.cloud/no-cleanup", "true"),
    ("gardener.cloud/purpose", "kube-system"),
    ("kubernetes.io/metadata.name", "kube-system"),
];
const DEFAULT: Labels = &[("kubernetes.io/metadata.name", "default")];
const PODS: Labels = &[("shoot.gardener.cloud/no-cleanup", "true"), ("origin", "gardener")];

/// A resource that the cluster needs to write. Absent labels always match.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct WebhookTarget {
    group: &'static str,
    versions: &'static [&'static str],
    /// The resource, with a subresource after a slash.
    resource: &'static str,
    is_of_cluster: bool,
    /// Labels of the object.
    pub(super) object: Option<Labels>,
    /// Labels of its namespace.
    pub(super) namespace: Option<Labels>,
}

const fn within(
    group: &'static str,
    versions: &'static [&'static str],
    resource: &'static str,
) -> WebhookTarget {
    WebhookTarget {
        group,
        versions,
        resource,
        is_of_cluster: false,
        object: None,
        namespace: Some(KUBE_SYSTEM),
    }
}

const fn by_default(resource: &'static str) -> WebhookTarget {
    WebhookTarget { namespace: Some(DEFAULT), ..within("", V1, resource) }
}

const fn cluster(
    group: &'static str,
    versions: &'static [&'static str],
    resource: &'static str,
) -> WebhookTarget {
    WebhookTarget { is_of_cluster: true, namespace: None, ..within(group, versions, resource) }
}

const V1: &[&str] = &["v1"];
const UP_TO_BETA: &[&str] = &["v1", "v1beta1"];
const APPS: &[&str] = &["v1", "v1beta1", "v1beta2"];
const RBAC: &[&str] = &["v1", "v1alpha1", "v1beta1"];
const RBAC_GROUP: &str = "rbac.authorization.k8s.io";
const EXTENSIONS: &[&str] = &["v1beta1"];

/// Leases in kube-system that leaders must be able to renew.
const LEASES: WebhookTarget =
    WebhookTarget { object: Some(&[]), ..within("coordination.k8s.io", UP_TO_BETA, "leases") };

const NAMESPACES: WebhookTarget =
    WebhookTarget { is_of_cluster: true, object: Some(KUBE_SYSTEM), ..within("", V1, "namespaces") };

/// Everything that a cluster needs to wake up.
const TARGETS: [WebhookTarget; 46] = [
    WebhookTarget { object: Some(PODS), ..within("", V1, "pods") },
    WebhookTarget { object: Some(PODS), ..within("", V1, "pods/status") },
    within("", V1, "configmaps"),
    by_default("endpoints"),
    within("", V1, "endpoints"),
    within("", V1, "secrets"),
    within("", V1, "serviceaccounts"),
    within("", V1, "services"),
    within("", V1, "services/status"),
    by_default("services"),
    by_default("services/status"),
    cluster("", V1, "nodes"),
    cluster("", V1, "nodes/status"),
    NAMESPACES,
    WebhookTarget { resource: "namespaces/status", ..NAMESPACES },
    within("apps", APPS, "controllerrevisions"),
    within("apps", APPS, "daemonsets"),
    within("apps", APPS, "daemonsets/status"),
    within("apps", APPS, "deployments"),
    within("apps", APPS, "deployments/scale"),
    within("apps", APPS, "replicasets"),
    within("apps", APPS, "replicasets/status"),
    within("apps", APPS, "replicasets/scale"),
    within("extensions", EXTENSIONS, "controllerrevisions"),
    within("extensions", EXTENSIONS, "daemonsets"),
    within("extensions", EXTENSIONS, "daemonsets/status"),
    within("extensions", EXTENSIONS, "deployments"),
    within("extensions", EXTENSIONS, "deployments/scale"),
    within("extensions", EXTENSIONS, "replicasets"),
    within("extensions", EXTENSIONS, "replicasets/status"),
    within("extensions", EXTENSIONS, "replicasets/scale"),
    within("extensions", EXTENSIONS, "networkpolicies"),
    WebhookTarget { namespace: None, ..within("coordination.k8s.io", UP_TO_BETA, "leases") },
    within("networking.k8s.io", UP_TO_BETA, "networkpolicies"),
    cluster(RBAC_GROUP, RBAC, "clusterroles"),
    cluster(RBAC_GROUP, RBAC, "clusterrolebindings"),
    within(RBAC_GROUP, RBAC, "roles"),
    within(RBAC_GROUP, RBAC, "rolebindings"),
    cluster("apiextensions.k8s.io", UP_TO_BETA, "customresourcedefinitions"),
    cluster("apiextensions.k8s.io", UP_TO_BETA, "customresourcedefinitions/status"),
    cluster("apiregistration.k8s.io", UP_TO_BETA, "apiservices"),
    cluster("apiregistration.k8s.io", UP_TO_BETA, "apiservices/status"),
    cluster("certificates.k8s.io", V1, "certificatesigningrequests"),
    cluster("certificates.k8s.io", V1, "certificatesigningrequests/status"),
    cluster("certificates.k8s.io", V1, "certificatesigningrequests/approval"),
    cluster("scheduling.k8s.io", UP_TO_BETA, "priorityclasses"),
];

impl WebhookTarget {
    /// Whether one of the webhook's rules matches the cluster's requests for it.
    fn is_met(&self, webhook: &Value, rule: &Value) -> bool {
        let object = selects(&webhook["objectSelector"], self.object);
        let ignores_namespace = self.is_of_cluster && !self.resource.starts_with("namespaces");
        object
            && (ignores_namespace || selects(&webhook["namespaceSelector"], self.namespace))
            && self.is_ruled(rule)
    }

    fn is_ruled(&self, rule: &Value) -> bool {
        let any = |list: &str, fits: &dyn Fn(&str) -> bool| {
            rule[list].as_array().into_iter().flatten().any(|value| fits(text(value)))
        };
        let (resource, sub) = parts(self.resource);
        let is_in_scope = match text(&rule["scope"]) {
            "Cluster" => self.is_of_cluster,
            "Namespaced" => !self.is_of_cluster,
            _ => true,
        };
        is_in_scope
            && any("operations", &|operation| matches!(operation, "CREATE" | "UPDATE" | "*"))
            && any("apiGroups", &|group| group == "*" || group == self.group)
            && any("apiVersions", &|version| version == "*" || self.versions.contains(&version))
            && any("resources", &|named| {
                let (of, with) = parts(named);
                (of == "*" || of == resource) && (with == "*" || with == sub)
            })
    }
}

fn parts(resource: &str) -> (&str, &str) {
    resource.split_once('/').unwrap_or((resource, ""))
}

/// Whether a selector matches labels. A missing selector or missing labels always match.
fn selects(selector: &Value, labels: Option<Labels>) -> bool {
    let Some(labels) = labels else { return true };
    let value = |key: &str| labels.iter().find(|(name, _)| *name == key).map(|(_, value)| *value);
    // No server stores an unknown operator.
    matches(selector, &value, true)
}

fn rules(webhook: &Value) -> impl Iterator<Item = &Value> {
    webhook["rules"].as_array().into_iter().flatten()
}

/// Whether the webhook matches Leases of kube-system.
pub(super) fn is_of_leases(webhook: &Value) -> bool {
    rules(webhook).any(|rule| LEASES.is_met(webhook, rule))
}

/// The targets that the webhook matches.
pub(super) fn targets(webhook: &Value) -> Vec<&'static WebhookTarget> {
    static ALL: [WebhookTarget; TARGETS.len()] = TARGETS;
    ALL.iter().filter(|target| rules(webhook).any(|rule| target.is_met(webhook, rule))).collect()
}

/// Whether its timeout is longer than this, or is not set.
pub(super) fn is_slower(webhook: &Value, seconds: i64) -> bool {
    webhook["timeoutSeconds"].as_i64().is_none_or(|timeout| timeout > seconds)
}

/// Whether a webhook may block writes that the cluster needs.
pub(super) fn is_problematic(webhook: &Value) -> bool {
    if is_slower(webhook, LEASES_TIMEOUT_S_MAX) && is_of_leases(webhook) {
        return true;
    }
    let policy = &webhook["failurePolicy"];
    let may_fail = policy.is_string() && policy != "Fail";
    (!may_fail || is_slower(webhook, TIMEOUT_S_MAX)) && !targets(webhook).is_empty()
}

/// The problem of a cluster's webhooks.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum WebhookProblem {
    /// One of them blocks writes that the cluster needs.
    Problematic(String),
    /// One of them did, and was changed.
    Remediated(String),
}

/// Whether a list of configurations should include it, because Gardener did not create it.
pub(super) fn is_foreign(configuration: &Value) -> bool {
    let label = |name: &str| text(&configuration["metadata"]["labels"][name]);
    label("app") != webhooks::NAME && label("resources.gardener.cloud/managed-by") != "gardener"
}

/// The first problem of a configuration. `kind` is its kind.
pub(super) fn problem(kind: &str, configuration: &Value) -> Option<WebhookProblem> {
    let metadata = &configuration["metadata"];
    let short = |value| head(text(value), limits::SHOOT_NAME_BYTES_MAX);
    let name = short(&metadata["name"]);
    let mut webhooks = configuration["webhooks"].as_array().into_iter().flatten();
    if let Some(webhook) = webhooks.find(|webhook| is_problematic(webhook)) {
        let policy =
            if webhook["failurePolicy"].is_null() { "nil" } else { short(&webhook["failurePolicy"]) };
        let timeout = webhook["timeoutSeconds"]
            .as_i64()
            .map_or_else(|| "no timeoutSeconds".to_owned(), |seconds| format!("a timeout of {seconds}s"));
        return Some(WebhookProblem::Problematic(format!(
            "{kind} \"{name}\" is problematic: webhook \"{}\" with failurePolicy \"{policy}\" and {timeout} might keep the \
             cluster from waking up, and worker nodes from joining it",
            short(&webhook["name"])
        )));
    }
    let is_marked = !text(&metadata["annotations"][WARNING]).is_empty();
    is_marked.then(|| {
        WebhookProblem::Remediated(format!(
            "{kind} \"{name}\" is problematic and was remediated by Gardener: its annotation {WARNING} says how; remove it when \
             the webhook is as it should be"
        ))
    })
}

/// The labels that a selector must exclude, as unique expressions.
pub(super) fn left_out<'a>(labels: impl Iterator<Item = &'a (&'static str, &'static str)>) -> Vec<Value> {
    let mut seen: Vec<(&str, &str)> = Vec::new();
    for label in labels {
        if !seen.contains(label) {
            seen.push(*label);
        }
    }
    seen.into_iter().map(|(key, value)| json!({"key": key, "operator": "NotIn", "values": [value]})).collect()
}

#[cfg(test)]
mod tests {
    use super::super::remedy;
    use super::*;

    fn rule(group: &str, versions: &[&str], resource: &str) -> Value {
        json!({"apiGroups": [group], "apiVersions": versions, "resources": [resource], "operations": ["CREATE"]})
    }

    #[expect(clippy::needless_pass_by_value, reason = "it reads better")]
    fn webhook(rule: Value) -> Value {
        json!({"name": "w", "failurePolicy": "Fail", "timeoutSeconds": 3, "rules": [rule]})
    }

    fn with(mut webhook: Value, field: &str, value: Value) -> Value {
        webhook[field] = value;
        webhook
    }

    /// Tests every row of the table: a webhook matches it, but not with the labels excluded, nor in another group.
    #[test]
    fn each_target_is_matched_by_its_labels_and_group() {
        for target in &TARGETS {
            let exact = webhook(rule(target.group, &target.versions[..1], target.resource));
            assert!(targets(&exact).contains(&target), "{target:?}");
            for (group, version, resource) in [
                ("other", target.versions[0], target.resource),
                (target.group, "v0", target.resource),
                (target.group, target.versions[0], "others"),
            ] {
                assert!(targets(&webhook(rule(group, &[version], resource))).is_empty(), "{target:?}");
            }
            for scope in ["Cluster", "Namespaced"] {
                let mut scoped = rule(target.group, &["*"], target.resource);
                scoped["scope"] = json!(scope);
                let is_met = targets(&webhook(scoped)).contains(&target);
                assert_eq!(is_met, (scope == "Cluster") == target.is_of_cluster, "{target:?} {scope}");
            }
            for (field, labels) in
                [("objectSelector", target.object), ("namespaceSelector", target.namespace)]
            {
                let Some(labels) = labels else { continue };
                let selector = json!({"matchExpressions": left_out(labels.iter())});
                let spared = with(exact.clone(), field, selector);
                assert!(!targets(&spared).contains(&target), "{target:?} {field}");
                let chosen = json!({"matchLabels": {(labels[0].0): labels[0].1}});
                assert!(targets(&with(exact.clone(), field, chosen)).contains(&target), "{target:?} {field}");
            }
        }
    }

    #[test]
    fn rules_may_name_many_things() {
        let table = [
            (rule("*", &["*"], "*/*"), true),
            (rule("*", &["*"], "*"), true),
            (rule("", &["v1"], "pods/*"), true),
            (rule("", &["v1"], "*/status"), true),
            (rule("", &["v1"], "pods/exec"), false),
            (rule("", &["v1"], "*/exec"), false),
            (rule("", &["v1"], "events"), false),
        ];
        for (rule, expected) in table {
            assert_eq!(is_problematic(&webhook(rule.clone())), expected, "{rule}");
        }
        for (operation, expected) in
            [("CREATE", true), ("UPDATE", true), ("*", true), ("DELETE", false), ("CONNECT", false)]
        {
            let mut rule = rule("", &["v1"], "pods");
            rule["operations"] = json!([operation]);
            assert_eq!(is_problematic(&webhook(rule)), expected, "{operation}");
        }
    }

    #[test]
    fn policy_and_timeout_say_whether_it_is_a_problem() {
        let pods = || webhook(rule("", &["v1"], "pods"));
        let leases = || webhook(rule("coordination.k8s.io", &["v1"], "leases"));
        let others = || webhook(rule("", &["v1"], "events"));
        let case = |webhook: Value, policy: Value, timeout: Value| {
            with(with(webhook, "failurePolicy", policy), "timeoutSeconds", timeout)
        };
        let (fail, ignore, none) = (json!("Fail"), json!("Ignore"), Value::Null);
        let table = [
            (case(pods(), fail.clone(), json!(1)), true),
            (case(pods(), none.clone(), json!(1)), true),
            (case(pods(), ignore.clone(), json!(15)), false),
            (case(pods(), ignore.clone(), json!(16)), true),
            (case(pods(), ignore.clone(), none.clone()), true),
            (case(leases(), ignore.clone(), json!(3)), false),
            (case(leases(), ignore.clone(), json!(4)), true),
            (case(leases(), ignore.clone(), none.clone()), true),
            (case(leases(), fail.clone(), json!(3)), true),
            (case(others(), fail.clone(), json!(30)), false),
            (case(others(), none.clone(), none.clone()), false),
        ];
        for (webhook, expected) in table {
            assert_eq!(is_problematic(&webhook), expected, "{webhook}");
        }
        // Leases of other namespaces are needed, but less urgently.
        let elsewhere = json!({"matchExpressions": left_out(KUBE_SYSTEM.iter())});
        let spared = with(leases(), "namespaceSelector", elsewhere);
        assert!(is_problematic(&spared) && !is_of_leases(&spared));
        // A webhook with a label selector for objects does not match Leases without labels.
        let labelled = with(leases(), "objectSelector", json!({"matchLabels": {"a": "b"}}));
        assert!(!is_of_leases(&labelled));
    }

    #[test]
    fn selectors_take_labels() {
        let expression = |key: &str, operator: &str, values: &[&str]| json!({"matchExpressions": [{"key": key, "operator": operator, "values": values}]});
        let key = "kubernetes.io/metadata.name";
        let table = [
            (Value::Null, true),
            (json!({}), true),
            (json!({"matchLabels": {key: "kube-system"}}), true),
            (json!({"matchLabels": {key: "other"}}), false),
            (json!({"matchLabels": {"other": "x"}}), false),
            (expression(key, "In", &["a", "kube-system"]), true),
            (expression(key, "In", &["a"]), false),
            (expression("other", "In", &["a"]), false),
            (expression(key, "NotIn", &["kube-system"]), false),
            (expression("other", "NotIn", &["kube-system"]), true),
            (expression(key, "Exists", &[]), true),
            (expression("other", "Exists", &[]), false),
            (expression(key, "DoesNotExist", &[]), false),
            (expression("other", "DoesNotExist", &[]), true),
        ];
        for (selector, expected) in table {
            assert_eq!(selects(&selector, Some(KUBE_SYSTEM)), expected, "{selector}");
            assert!(selects(&selector, None), "{selector}");
        }
    }

    #[test]
    fn whose_configurations_count() {
        let with_labels = |labels: Value| json!({"metadata": {"name": "c", "labels": labels}});
        let (app, managed) =
            ("gardener-resource-manager", json!({"resources.gardener.cloud/managed-by": "gardener"}));
        let excluded = json!({"remediation.webhook.shoot.gardener.cloud/exclude": "true"});
        // Whether it is checked, and whether it is changed.
        let table = [
            (json!({}), (true, true)),
            (json!({"app": app}), (false, true)),
            (managed, (false, false)),
            (excluded, (true, false)),
        ];
        for (labels, expected) in table {
            let configuration = with_labels(labels.clone());
            assert_eq!((is_foreign(&configuration), remedy::is_open(&configuration)), expected, "{labels}");
        }
    }

    /// A fixed webhook is not a problem any more, and is fixed only once.
    #[test]
    fn a_fixed_webhook_is_no_problem() {
        let all = TARGETS.iter().map(|target| webhook(rule(target.group, target.versions, target.resource)));
        let everything = webhook(rule("*", &["*"], "*/*"));
        let slow =
            with(with(everything.clone(), "timeoutSeconds", json!(30)), "failurePolicy", json!("Ignore"));
        for (webhook, must) in all.map(|w| (w, true)).chain([(everything, true), (slow, true)]) {
            assert_eq!(is_problematic(&webhook), must, "{webhook}");
            let configuration = json!({"metadata": {"name": "c"}, "webhooks": [webhook]});
            assert!(matches!(problem("K", &configuration), Some(WebhookProblem::Problematic(_))));
            let patch = remedy::patch(&configuration).unwrap();
            let mut mended = configuration.clone();
            mended["metadata"]["annotations"] = patch["metadata"]["annotations"].clone();
            for (field, value) in patch["webhooks"][0].as_object().unwrap() {
                mended["webhooks"][0][field] = value.clone();
            }
            assert!(matches!(problem("K", &mended), Some(WebhookProblem::Remediated(_))), "{mended}");
            assert_eq!(remedy::patch(&mended), None, "{mended}");
        }
    }

    #[test]
    fn changes_are_reported() {
        let pods = with(webhook(rule("", &["v1"], "pods")), "timeoutSeconds", json!(30));
        let pods = with(
            pods,
            "namespaceSelector",
            json!({"matchExpressions": [{"key": "mine", "operator": "DoesNotExist"}]}),
        );
        let patch =
            remedy::patch(&json!({"webhooks": [pods, webhook(rule("", &["v1"], "events"))]})).unwrap();
        let changed = patch["webhooks"].as_array().unwrap();
        assert_eq!(changed.len(), 1);
        assert_eq!((&changed[0]["timeoutSeconds"], &changed[0]["failurePolicy"]), (&json!(15), &Value::Null));
        let namespaces = changed[0]["namespaceSelector"]["matchExpressions"].as_array().unwrap();
        assert_eq!((namespaces.len(), &namespaces[0]["key"]), (1 + KUBE_SYSTEM.len(), &json!("mine")));
        assert_eq!(changed[0]["objectSelector"]["matchExpressions"].as_array().unwrap().len(), PODS.len());
        let note = text(&patch["metadata"]["annotations"][WARNING]);
        for said in [
            "\n- timeoutSeconds of webhook \"w\" was set to 15",
            "\n- objectSelector of webhook \"w\" was extended with shoot.gardener.cloud/no-cleanup NotIn true, origin NotIn gardener",
            "\n- namespaceSelector of webhook \"w\" was extended with",
        ] {
            assert!(note.contains(said), "{note}");
        }
        // The timeout of a webhook without matches is reduced too, as in upstream.
        let slow = with(webhook(rule("", &["v1"], "events")), "timeoutSeconds", json!(30));
        let patch = remedy::patch(&json!({"webhooks": [slow]})).unwrap();
        assert_eq!(patch["webhooks"], json!([{"name": "w", "timeoutSeconds": 15}]));
        let nodes = webhook(rule("", &["v1"], "nodes"));
        let patch = remedy::patch(&json!({"webhooks": [nodes]})).unwrap();
        assert_eq!(patch["webhooks"], json!([{"name": "w", "failurePolicy": "Ignore"}]));
    }
}
