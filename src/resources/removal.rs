//! Decides about an object that left the set, or whose ManagedResource is being deleted.

use std::time::Duration;

use serde_json::Value;

use super::names;
use super::object::{group_of, text};
use crate::api::meta::{annotation, is_true};
use crate::api::resources::{GARBAGE_COLLECTABLE, ObjectReference};
use crate::base::clock::Timestamp;
use crate::format::duration;

/// The decision about one object.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Fate {
    /// It is gone, or must stay: remove its record.
    Done,
    /// Delete it, if it is not being deleted already. Its record stays until a later check finds it gone.
    Delete(Deletion),
}

/// How an object is deleted.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Deletion {
    /// Whether the deletion waits for dependents.
    pub(super) foreground: bool,
    /// Whether it is already being deleted, so that only waiting is left.
    pub(super) is_running: bool,
    /// Label selector of volume claims to delete with it; empty if there are none.
    pub(super) claims: String,
    /// Whether its deletion has taken so long that its finalizers are removed.
    pub(super) finalize: bool,
}

/// The circumstances of a decision.
#[derive(Clone, Copy, Debug)]
pub(super) struct Circumstances {
    /// Whether volume claims of StatefulSets are deleted with them.
    pub(super) delete_claims: bool,
    /// Whether a collector deletes unused Secrets and ConfigMaps.
    pub(super) collector_runs: bool,
    pub(super) now: Timestamp,
    /// When the deletion of the object started.
    pub(super) deleted_at: Option<Timestamp>,
}

/// Whether an object has pods.
pub(super) fn is_workload(object: &ObjectReference) -> bool {
    match group_of(&object.api_version) {
        "apps" | "batch" => true,
        "" => object.kind == "Pod" || object.kind == "ReplicationController",
        _ => false,
    }
}

/// Whether pods need the object to start.
pub(super) fn is_mounted(object: &ObjectReference) -> bool {
    let kinds = ["ConfigMap", "Secret", "ServiceAccount"];
    group_of(&object.api_version).is_empty() && kinds.contains(&&*object.kind)
}

/// Decides about one live object.
pub(super) fn fate(live: &Value, circumstances: Circumstances) -> Fate {
    let keep = is_true(annotation(live, names::KEEP_OBJECT));
    if keep || (circumstances.collector_runs && is_collectable(live)) {
        return Fate::Done;
    }
    let group = group_of(text(&live["apiVersion"]));
    let since = circumstances.deleted_at.map(|at| circumstances.now.since(at));
    let patience = finalize_after(live);
    Fate::Delete(Deletion {
        foreground: matches!(group, "apps" | "extensions" | "batch"),
        is_running: since.is_some(),
        claims: if circumstances.delete_claims { claim_selector(live) } else { String::new() },
        finalize: since.zip(patience).is_some_and(|(since, patience)| since >= patience),
    })
}

fn is_collectable(live: &Value) -> bool {
    live["apiVersion"] == "v1"
        && (live["kind"] == "Secret" || live["kind"] == "ConfigMap")
        && is_true(text(&live["metadata"]["labels"][GARBAGE_COLLECTABLE]))
}

/// Selector of the volume claims of a StatefulSet; empty for other kinds, and without claim templates.
fn claim_selector(live: &Value) -> String {
    let is_set = live["kind"] == "StatefulSet" && group_of(text(&live["apiVersion"])) == "apps";
    let has_templates = live["spec"]["volumeClaimTemplates"].as_array().is_some_and(|list| !list.is_empty());
    if is_set && has_templates { match_labels(&live["spec"]["selector"]).join(",") } else { String::new() }
}

/// A LabelSelector as text for a list request.
pub(super) fn selector(selector: &Value) -> String {
    let mut terms = match_labels(selector);
    for expression in selector["matchExpressions"].as_array().into_iter().flatten() {
        let key = text(&expression["key"]);
        let values: Vec<&str> = expression["values"].as_array().into_iter().flatten().map(text).collect();
        let values = values.join(",");
        terms.push(match text(&expression["operator"]) {
            "In" => format!("{key} in ({values})"),
            "NotIn" => format!("{key} notin ({values})"),
            "DoesNotExist" => format!("!{key}"),
            _ => key.to_owned(),
        });
    }
    terms.join(",")
}

/// The claims of a StatefulSet have these labels, but need not match the rest of its selector.
fn match_labels(selector: &Value) -> Vec<String> {
    let labels = selector["matchLabels"].as_object().into_iter().flatten();
    labels.map(|(key, value)| format!("{key}={}", text(value))).collect()
}

fn finalize_after(live: &Value) -> Option<Duration> {
    duration::parse(annotation(live, names::FINALIZE_DELETION_AFTER)).ok()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const NOW: Timestamp = Timestamp::from_unix(1_000);

    fn calm() -> Circumstances {
        Circumstances { delete_claims: false, collector_runs: false, now: NOW, deleted_at: None }
    }

    fn live(api_version: &str, kind: &str) -> Value {
        json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": "x", "uid": "u"}})
    }

    fn delete(foreground: bool) -> Fate {
        Fate::Delete(Deletion { foreground, ..Deletion::default() })
    }

    #[test]
    fn workloads_go_before_what_their_pods_mount() {
        let table = [
            ("apps/v1", "Deployment", true, false),
            ("batch/v1", "CronJob", true, false),
            ("v1", "Pod", true, false),
            ("v1", "ConfigMap", false, true),
            ("v1", "Secret", false, true),
            ("v1", "ServiceAccount", false, true),
            ("v1", "Service", false, false),
            ("example.org/v1", "Secret", false, false),
            ("rbac.authorization.k8s.io/v1", "Role", false, false),
        ];
        for (api_version, kind, has_pods, is_needed) in table {
            let object = ObjectReference {
                api_version: api_version.into(),
                kind: kind.into(),
                ..ObjectReference::default()
            };
            assert_eq!(
                (is_workload(&object), is_mounted(&object)),
                (has_pods, is_needed),
                "{api_version} {kind}"
            );
        }
    }

    #[test]
    fn propagation_depends_on_the_group() {
        let table = [
            ("apps/v1", "Deployment", true),
            ("extensions/v1beta1", "Ingress", true),
            ("batch/v1", "Job", true),
            ("v1", "Service", false),
            ("networking.k8s.io/v1", "Ingress", false),
            ("apps.example.org/v1", "Deployment", false),
        ];
        for (api_version, kind, foreground) in table {
            assert_eq!(fate(&live(api_version, kind), calm()), delete(foreground), "{api_version} {kind}");
        }
    }

    #[test]
    fn kept_objects() {
        for (value, expected) in
            [("true", Fate::Done), ("1", Fate::Done), ("false", delete(false)), ("", delete(false))]
        {
            let mut object = live("v1", "Service");
            object["metadata"]["annotations"] = json!({"resources.gardener.cloud/keep-object": value});
            assert_eq!(fate(&object, calm()), expected, "{value}");
        }
    }

    #[test]
    fn the_collector_gets_its_own_objects() {
        let table = [
            ("v1", "Secret", "true", true, Fate::Done),
            ("v1", "ConfigMap", "true", true, Fate::Done),
            ("v1", "Secret", "true", false, delete(false)),
            ("v1", "Secret", "1", true, Fate::Done),
            ("v1", "Secret", "no", true, delete(false)),
            ("v1", "Service", "true", true, delete(false)),
            ("x/v1", "Secret", "true", true, delete(false)),
        ];
        for (api_version, kind, label, collector_runs, expected) in table {
            let mut object = live(api_version, kind);
            object["metadata"]["labels"] =
                json!({"resources.gardener.cloud/garbage-collectable-reference": label});
            assert_eq!(
                fate(&object, Circumstances { collector_runs, ..calm() }),
                expected,
                "{api_version} {kind} {label}"
            );
        }
    }

    #[test]
    fn claims_go_with_their_set_if_asked() {
        let mut set = live("apps/v1", "StatefulSet");
        set["spec"] = json!({"selector": {"matchLabels": {"a": "1", "b": "2"},
            "matchExpressions": [{"key": "c", "operator": "In", "values": ["3", "4"]}, {"key": "d", "operator": "Exists"},
                {"key": "e", "operator": "DoesNotExist"}, {"key": "f", "operator": "NotIn", "values": ["5"]}]}});
        let claims =
            |set: &Value, delete_claims: bool| match fate(set, Circumstances { delete_claims, ..calm() }) {
                Fate::Delete(deletion) => deletion.claims,
                Fate::Done => "kept".to_owned(),
            };
        assert_eq!(claims(&set, true), "");
        set["spec"]["volumeClaimTemplates"] = json!([{"metadata": {"name": "data"}}]);
        assert_eq!(claims(&set, true), "a=1,b=2");
        assert_eq!(selector(&set["spec"]["selector"]), "a=1,b=2,c in (3,4),d,!e,f notin (5)");
        assert_eq!(claims(&set, false), "");
        set["kind"] = json!("Deployment");
        assert_eq!(claims(&set, true), "");
    }

    #[test]
    fn finalizers_are_removed_after_a_time() {
        let table = [
            ("1m", Some(59), true, false),
            ("1m", Some(60), true, true),
            ("1h30m", Some(5_400), true, true),
            ("0", Some(0), true, true),
            ("", Some(900), true, false),
            ("soon", Some(900), true, false),
            ("1m", None, false, false),
        ];
        for (annotation, since, is_running, finalize) in table {
            let mut object = live("v1", "Namespace");
            object["metadata"]["annotations"] =
                json!({"resources.gardener.cloud/finalize-deletion-after": annotation});
            let deleted_at = since.map(|s| NOW.minus(Duration::from_secs(s)));
            let expected = Fate::Delete(Deletion { is_running, finalize, ..Deletion::default() });
            assert_eq!(
                fate(&object, Circumstances { deleted_at, ..calm() }),
                expected,
                "{annotation} {since:?}"
            );
        }
    }
}
