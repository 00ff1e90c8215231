//! Decides what to write to the Seed. Pure.

use serde_json::Value;

use crate::api::condition::{self, Condition, ConditionStatus, Finding};
use crate::api::meta::text;
use crate::base::clock::Timestamp;
use crate::base::json::json;
use crate::base::sorted::SortedMap;
use crate::flow::FlowProgress;
use crate::format::quantity::{self, Quantity};
use crate::format::time::rfc3339 as time;
use crate::format::view;

/// `status.gardener`: only the agent that is named there reconciles shoots.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Agent {
    /// It has 64 hexadecimal digits.
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) version: String,
}

/// The input of a reconciliation.
#[derive(Clone, Debug, Default)]
pub(super) struct Observed {
    pub(super) live: Value,
    pub(super) agent: Agent,
    pub(super) kubernetes_version: String,
    pub(super) cluster_identity: String,
    pub(super) certificate_expiry: Option<Timestamp>,
    pub(super) capacity: SortedMap<String, String>,
    pub(super) reserved: SortedMap<String, String>,
}

impl Observed {
    pub(super) fn deleting(&self) -> bool {
        self.live.pointer("/metadata/deletionTimestamp").is_some_and(|t| !t.is_null())
    }

    pub(super) fn zones(&self) -> Vec<String> {
        let zones = self.live.pointer("/spec/provider/zones").and_then(Value::as_array);
        zones.into_iter().flatten().filter_map(|zone| zone.as_str().map(str::to_owned)).collect()
    }

    fn conditions(&self) -> Vec<Condition> {
        view::look(&self.live["status"]["conditions"]).unwrap_or_default()
    }
}

/// Whether this reconciliation has something to report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// The status is already correct.
    Steady,
    /// The status is written at the start and at the end of the reconciliation.
    Begin,
}

pub(super) fn phase(observed: &Observed) -> Phase {
    let status = &observed.live["status"];
    let operation = &status["lastOperation"];
    let kind = if observed.deleting() { "Delete" } else { "Reconcile" };
    let done = if observed.deleting() { "Processing" } else { "Succeeded" };
    let unchanged = operation["type"] == kind
        && operation["state"] == done
        && expected_status(observed)
            .iter()
            .all(|(field, value)| says_the_same(field, &status[*field], value));
    if unchanged { Phase::Steady } else { Phase::Begin }
}

/// Whether a field of the status has the expected value. The garden normalizes quantities: `1000` comes back as `1k`.
fn says_the_same(field: &str, live: &Value, expected: &Value) -> bool {
    if !matches!(field, "capacity" | "allocatable") {
        return live == expected;
    }
    let amounts = |value: &Value| value.as_object().cloned().unwrap_or_default();
    let (live, expected) = (amounts(live), amounts(expected));
    let same = |(name, value)| live.get(name).is_some_and(|live| quantity::same(text(live), text(value)));
    live.len() == expected.len() && expected.iter().all(same)
}

/// The fields of the status that depend only on facts.
fn expected_status(observed: &Observed) -> Vec<(&'static str, Value)> {
    let agent = &observed.agent;
    let mut fields = vec![
        ("gardener", json!({"id": agent.id, "name": agent.name, "version": agent.version})),
        ("kubernetesVersion", json!(observed.kubernetes_version)),
        ("observedGeneration", observed.live["metadata"]["generation"].clone()),
        ("clusterIdentity", json!(observed.cluster_identity)),
    ];
    if let Some(expiry) = observed.certificate_expiry {
        fields.push(("clientCertificateExpirationTimestamp", json!(time(expiry))));
    }
    if !observed.capacity.is_empty() {
        fields.push(("capacity", json!(observed.capacity)));
        fields.push(("allocatable", json!(allocatable(&observed.capacity, &observed.reserved))));
    }
    fields
}

/// Capacity minus reserved resources.
fn allocatable(
    capacity: &SortedMap<String, String>,
    reserved: &SortedMap<String, String>,
) -> SortedMap<String, String> {
    let rest = |name: &String, total: &String| {
        let rest = Quantity::parse(total).ok()? - Quantity::parse(reserved.get(name)?).ok()?;
        Some(rest.to_string())
    };
    capacity
        .iter()
        .map(|(name, total)| (name.clone(), rest(name, total).unwrap_or_else(|| total.clone())))
        .collect()
}

/// The identity that the Seed was given; it never changes.
pub(super) fn cluster_identity(live: &Value) -> Option<&str> {
    live.pointer("/status/clusterIdentity").and_then(Value::as_str).filter(|identity| !identity.is_empty())
}

/// The Seed for the PUT request at the start of a reconciliation.
pub(super) fn begun(observed: &Observed, now: Timestamp) -> Value {
    let mut object = observed.live.clone();
    for (field, value) in expected_status(observed) {
        object["status"][field] = value;
    }
    let (kind, description) = if observed.deleting() {
        ("Delete", "Deletion of Seed cluster in progress.")
    } else {
        ("Reconcile", "Reconciliation of Seed cluster initialized.")
    };
    object["status"]["lastOperation"] = operation(kind, "Processing", 0, description, now);
    let first = (!observed.deleting())
        .then(|| bootstrapped(&observed.conditions(), ConditionStatus::Progressing, now));
    if let Some(first) = first.flatten() {
        let mut list = object["status"]["conditions"].as_array().cloned().unwrap_or_default();
        list.retain(|condition| condition["type"] != BOOTSTRAPPED);
        list.push(json!(first));
        object["status"]["conditions"] = Value::Array(list);
    }
    object
}

/// A condition of older gardenlets; newer ones report the same in the last operation. Some tools still wait for it.
const BOOTSTRAPPED: &str = "Bootstrapped";

/// The condition, if it changes: a Seed that was ready once is bootstrapped. It alone causes no patch.
fn bootstrapped(conditions: &[Condition], status: ConditionStatus, now: Timestamp) -> Option<Condition> {
    let before = condition::find_or_init(conditions, BOOTSTRAPPED, now);
    let (reason, message) = match status {
        ConditionStatus::True => {
            ("BootstrappingSucceeded", "Seed cluster has been bootstrapped successfully.")
        }
        _ => ("BootstrapProgressing", "Seed cluster is currently being bootstrapped."),
    };
    (before.status != ConditionStatus::True)
        .then(|| before.updated(now, status, Finding::new(reason, message)))
}

/// The patch after a successful reconciliation: the conditions must be checked again.
pub(super) fn succeeded(observed: &Observed, now: Timestamp) -> Value {
    let description = "Seed cluster has been successfully reconciled.";
    let mut status = json!({"lastOperation": operation("Reconcile", "Succeeded", 100, description, now)});
    let before = observed.conditions();
    let mut conditions = reset(&before, now);
    conditions.extend(bootstrapped(&before, ConditionStatus::True, now));
    if !conditions.is_empty() {
        status["conditions"] = json!(conditions);
    }
    json!({ "status": status })
}

/// The patch after a failed reconciliation.
pub(super) fn failed(observed: &Observed, error: &str, now: Timestamp) -> Value {
    let kind = if observed.deleting() { "Delete" } else { "Reconcile" };
    let description = format!("{error} Operation will be retried.");
    let progress =
        observed.live.pointer("/status/lastOperation/progress").and_then(Value::as_u64).unwrap_or(0);
    let progress = if progress >= 100 { 0 } else { progress };
    json!({"status": {"lastOperation": operation(kind, "Error", progress, &description, now)}})
}

/// The patch while the seed's namespace is missing, unless the Seed already says so.
pub(crate) fn without_namespace(live: &Value, why: &str, now: Timestamp) -> Option<Value> {
    let patch = failed(&Observed { live: live.clone(), ..Observed::default() }, why, now);
    let (last, next) = (&live["status"]["lastOperation"], &patch["status"]["lastOperation"]);
    ["type", "state", "description"].iter().any(|field| last[field] != next[field]).then_some(patch)
}

/// The patch during a reconciliation.
pub(super) fn going_on(progress: &FlowProgress, now: Timestamp) -> Value {
    let (percent, description) = (u64::from(progress.percent), progress.description.as_str());
    json!({"status": {"lastOperation": operation("Reconcile", "Processing", percent, description, now)}})
}

/// Whether the last operation already has this description.
pub(super) fn says(observed: &Observed, why: &str) -> bool {
    observed.live.pointer("/status/lastOperation/description").is_some_and(|text| text == why)
}

/// The patch of a blocked deletion. The deletion continues, so its state stays `Processing`.
pub(super) fn blocked(why: &str, now: Timestamp) -> Value {
    json!({"status": {"lastOperation": operation("Delete", "Processing", 0, why, now)}})
}

fn operation(kind: &str, state: &str, progress: u64, description: &str, now: Timestamp) -> Value {
    json!({
        "type": kind,
        "state": state,
        "progress": progress,
        "description": description,
        "lastUpdateTime": time(now),
    })
}

/// Condition types that a successful round sets to Progressing.
const RESET: [&str; 4] =
    ["BackupBucketsReady", "ExtensionsReady", "GardenletReady", "SeedSystemComponentsHealthy"];

fn reset(conditions: &[Condition], now: Timestamp) -> Vec<Condition> {
    let known =
        conditions.iter().filter(|c| RESET.contains(&c.kind.as_str()) && c.status != ConditionStatus::False);
    known.map(|c| c.reset_to_progressing(now)).collect()
}

/// Whether the agent supports a seed of this version: 1.32 is the oldest.
pub(super) fn is_supported(version: &str) -> bool {
    let mut parts = version.trim_start_matches('v').split(['.', '-', '+']);
    let mut number = || parts.next().and_then(|part| part.parse::<u32>().ok());
    match (number(), number()) {
        (Some(1), Some(minor)) => minor >= 32,
        (Some(major), Some(_)) => major > 1,
        _ => false,
    }
}

/// Labels the seed's namespace `garden`, which exists before the agent does.
pub(super) fn label_garden(namespace: &mut Value, zones: &[String], is_garden: bool) {
    let metadata = &mut namespace["metadata"];
    metadata["labels"]["role"] = json!("garden");
    if is_garden {
        return;
    }
    metadata["labels"]["gardener.cloud/role"] = json!("garden");
    metadata["labels"]["pod-security.kubernetes.io/enforce"] = json!("privileged");
    metadata["labels"]["high-availability-config.resources.gardener.cloud/consider"] = json!("true");
    metadata["annotations"]["high-availability-config.resources.gardener.cloud/zones"] =
        json!(zones.join(","));
}

/// Whether Gardener manages the records of a Seed's ingress domain.
pub(super) fn manages_ingress_record(seed: &Value) -> bool {
    let spec = &seed["spec"];
    spec["dns"]["provider"].is_object() && spec["ingress"]["domain"].is_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn observed() -> Observed {
        Observed {
            live: json!({
                "metadata": {"name": "edge-1", "generation": 3, "resourceVersion": "7"},
                "spec": {"provider": {"zones": ["a", "b"]}},
                "status": {"conditions": [
                    {"type": "GardenletReady", "status": "True", "lastTransitionTime": "2025-01-01T00:00:00Z",
                     "lastUpdateTime": "2025-01-01T00:00:00Z", "reason": "GardenletReady", "message": "m"},
                    {"type": "ExtensionsReady", "status": "False", "lastTransitionTime": "2025-01-01T00:00:00Z",
                     "lastUpdateTime": "2025-01-01T00:00:00Z", "reason": "r", "message": "m"},
                ]},
            }),
            agent: Agent { id: "ab".to_owned(), name: "host".to_owned(), version: "v1.150.0".to_owned() },
            kubernetes_version: "v1.34.3".to_owned(),
            cluster_identity: "uid-1".to_owned(),
            certificate_expiry: Some(Timestamp::from_unix(1_735_787_045)),
            capacity: SortedMap::from([("shoots".to_owned(), "50".to_owned())]),
            reserved: SortedMap::from([("shoots".to_owned(), "5".to_owned())]),
        }
    }

    const NOW: Timestamp = Timestamp::from_unix(1_767_225_600);

    #[test]
    fn the_first_round_writes_what_the_garden_reads() {
        let observed = observed();
        assert_eq!(phase(&observed), Phase::Begin);
        let status = begun(&observed, NOW)["status"].clone();
        assert_eq!(status["gardener"], json!({"id": "ab", "name": "host", "version": "v1.150.0"}));
        assert_eq!(status["kubernetesVersion"], "v1.34.3");
        assert_eq!(status["observedGeneration"], 3);
        assert_eq!(status["clusterIdentity"], "uid-1");
        assert_eq!(status["clientCertificateExpirationTimestamp"], "2025-01-02T03:04:05Z");
        assert_eq!(
            (&status["capacity"]["shoots"], &status["allocatable"]["shoots"]),
            (&json!("50"), &json!("45"))
        );
        assert_eq!(
            status["lastOperation"],
            json!({"type": "Reconcile", "state": "Processing", "progress": 0,
                "description": "Reconciliation of Seed cluster initialized.", "lastUpdateTime": "2026-01-01T00:00:00Z"})
        );
    }

    #[test]
    fn a_round_that_changes_nothing_writes_nothing() {
        let mut observed = observed();
        observed.live = begun(&observed, NOW);
        assert_eq!(phase(&observed), Phase::Begin);
        observed.live["status"]["lastOperation"] =
            succeeded(&observed, NOW)["status"]["lastOperation"].clone();
        assert_eq!(phase(&observed), Phase::Steady);
        let changes: [fn(&mut Observed); 5] = [
            |o| o.live["metadata"]["generation"] = json!(4),
            |o| o.agent.id = "cd".to_owned(),
            |o| o.kubernetes_version = "v1.35.0".to_owned(),
            |o| o.certificate_expiry = Some(NOW),
            |o| o.live["status"]["lastOperation"]["state"] = json!("Error"),
        ];
        for change in changes {
            let mut other = observed.clone();
            change(&mut other);
            assert_eq!(phase(&other), Phase::Begin);
        }
    }

    #[test]
    fn quantities_that_the_garden_normalizes_are_no_change() {
        let mut observed = observed();
        observed.capacity =
            [("shoots", "1000"), ("memory", "2048Mi")].map(|(k, v)| (k.to_owned(), v.to_owned())).into();
        observed.live = begun(&observed, NOW);
        observed.live["status"]["lastOperation"] =
            succeeded(&observed, NOW)["status"]["lastOperation"].clone();
        observed.live["status"]["capacity"] = json!({"shoots": "1k", "memory": "2Gi"});
        observed.live["status"]["allocatable"] = json!({"shoots": "995", "memory": "2Gi"});
        assert_eq!(phase(&observed), Phase::Steady);
        let changes = [
            json!({"shoots": "1001", "memory": "2Gi"}),
            json!({"shoots": "1k"}),
            json!({"shoots": "1k", "memory": "2Gi", "pods": "1"}),
            Value::Null,
        ];
        for capacity in changes {
            observed.live["status"]["capacity"] = capacity;
            assert_eq!(phase(&observed), Phase::Begin, "{observed:?}");
        }
    }

    #[test]
    fn success_requests_new_checks_of_conditions_that_were_not_false() {
        let patch = succeeded(&observed(), NOW);
        let conditions = patch["status"]["conditions"].as_array().unwrap();
        assert_eq!(conditions.len(), 2);
        assert_eq!(
            (&conditions[0]["type"], &conditions[0]["status"]),
            (&json!("GardenletReady"), &json!("Progressing"))
        );
        assert_eq!(
            patch["status"]["lastOperation"]["description"],
            "Seed cluster has been successfully reconciled."
        );
    }

    #[test]
    fn the_first_rounds_bootstrap_the_seed() {
        let mut observed = observed();
        let of = |object: &Value| {
            let list = object["status"]["conditions"].as_array().cloned().unwrap_or_default();
            let mut found = list.into_iter().filter(|c| c["type"] == "Bootstrapped");
            let first = found.next().map(|c| (c["status"].clone(), c["reason"].clone()));
            assert_eq!(found.next(), None);
            first
        };
        let progressing = Some((json!("Progressing"), json!("BootstrapProgressing")));
        assert_eq!(of(&begun(&observed, NOW)), progressing);
        // A condition that failed before, under another gardenlet.
        observed.live["status"]["conditions"].as_array_mut().unwrap().push(json!({
            "type": "Bootstrapped", "status": "False", "lastTransitionTime": "2025-01-01T00:00:00Z",
            "lastUpdateTime": "2025-01-01T00:00:00Z", "reason": "BootstrappingFailed", "message": "m",
        }));
        let begun_again = begun(&observed, NOW);
        assert_eq!(of(&begun_again), progressing);
        assert_eq!(begun_again["status"]["conditions"].as_array().unwrap().len(), 3);
        observed.live = begun_again;
        assert_eq!(of(&succeeded(&observed, NOW)), Some((json!("True"), json!("BootstrappingSucceeded"))));
        observed.live["status"]["conditions"] = succeeded(&observed, NOW)["status"]["conditions"].clone();
        // From then on, it stays and causes no write.
        let later = Timestamp::from_unix(NOW.unix() + 1);
        assert_eq!(of(&begun(&observed, later)), of(&observed.live));
        assert_eq!(of(&succeeded(&observed, later)), None);
        let mut deleting = observed.clone();
        deleting.live["status"]["conditions"] = Value::Null;
        deleting.live["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        assert_eq!(of(&begun(&deleting, NOW)), None);
    }

    #[test]
    fn a_failure_says_that_it_is_retried() {
        let patch = failed(&observed(), "no route.", NOW);
        assert_eq!(patch["status"]["lastOperation"]["description"], "no route. Operation will be retried.");
        assert_eq!(patch["status"]["lastOperation"]["state"], "Error");
    }

    #[test]
    fn which_versions_are_supported() {
        let table = [
            ("v1.32.0", true),
            ("v1.31.9", false),
            ("1.36", true),
            ("v1.34.3-gke.1", true),
            ("v2.0.0", true),
            ("x", false),
        ];
        for (version, expected) in table {
            assert_eq!(is_supported(version), expected, "{version}");
        }
    }

    #[test]
    fn the_garden_namespace_is_labelled() {
        let mut namespace = json!({"metadata": {"name": "garden"}});
        label_garden(&mut namespace, &["a".to_owned(), "b".to_owned()], false);
        assert_eq!(
            namespace["metadata"],
            json!({
                "name": "garden",
                "labels": {
                    "role": "garden",
                    "gardener.cloud/role": "garden",
                    "pod-security.kubernetes.io/enforce": "privileged",
                    "high-availability-config.resources.gardener.cloud/consider": "true",
                },
                "annotations": {"high-availability-config.resources.gardener.cloud/zones": "a,b"},
            })
        );
    }

    #[test]
    fn gardener_manages_the_record_of_a_domain_with_a_provider() {
        let table = [
            (json!({"dns": {"provider": {"type": "x"}}, "ingress": {"domain": "d"}}), true),
            (json!({"dns": {}, "ingress": {"domain": "d"}}), false),
            (json!({"dns": {"provider": {"type": "x"}}}), false),
        ];
        for (spec, expected) in table {
            assert_eq!(manages_ingress_record(&json!({"spec": spec})), expected, "{spec}");
        }
    }
}
