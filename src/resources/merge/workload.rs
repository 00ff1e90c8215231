//! Deployments, StatefulSets, DaemonSets, Jobs and other kinds with a pod template.

use serde_json::Value;

use super::super::object::{find_map, is_empty, map_at, set, text};
use super::Preserved;

const RESTARTED_AT: &str = "kubectl.kubernetes.io/restartedAt";

/// Keeps fields of other writers: replicas, claims, selectors, restarts, sizes of containers.
pub(super) fn merge(preserved: Preserved, kind: &str, live: &Value, new: &mut Value) {
    match kind {
        "Deployment" | "StatefulSet" => keep_replicas(preserved, live, new),
        "Job" => keep_job(live, new),
        _ => {}
    }
    if kind == "StatefulSet" {
        set(new, &["spec"], "volumeClaimTemplates", live["spec"]["volumeClaimTemplates"].clone());
    }
    let template: &[&str] =
        if kind == "CronJob" { &["spec", "jobTemplate", "spec", "template"] } else { &["spec", "template"] };
    let live_template = template.iter().fold(live, |value, key| &value[*key]);
    keep_template(preserved, live_template, new, template);
}

fn keep_replicas(preserved: Preserved, live: &Value, new: &mut Value) {
    if preserved.replicas || new["spec"]["replicas"].is_null() {
        set(new, &["spec"], "replicas", live["spec"]["replicas"].clone());
    }
}

/// The server creates the selector of a Job and labels its pods; both are immutable afterwards.
fn keep_job(live: &Value, new: &mut Value) {
    set(new, &["spec"], "selector", live["spec"]["selector"].clone());
    let Some(kept) = live["spec"]["template"]["metadata"]["labels"].as_object() else { return };
    let labels = map_at(new, &["spec", "template", "metadata", "labels"]);
    for (key, value) in kept {
        labels.entry(key.clone()).or_insert_with(|| value.clone());
    }
}

fn keep_template(preserved: Preserved, live: &Value, new: &mut Value, path: &[&str]) {
    let Some(template) = path.iter().try_fold(&mut *new, |value, key| value.get_mut(*key)) else { return };
    let restarted = &live["metadata"]["annotations"][RESTARTED_AT];
    if !is_empty(restarted) {
        set(template, &["metadata", "annotations"], RESTARTED_AT, restarted.clone());
    }
    if preserved.resources {
        keep_sizes(live, template);
    }
}

/// Keeps CPU and memory of containers with the same name, because another program in the cluster scales them.
fn keep_sizes(live: &Value, template: &mut Value) {
    let containers = find_map(template, &["spec"]).and_then(|s| s.get_mut("containers"));
    let Some(containers) = containers.and_then(Value::as_array_mut) else { return };
    for container in containers {
        let name = text(&container["name"]).to_owned();
        let mut old = live["spec"]["containers"].as_array().into_iter().flatten();
        let Some(old) = old.find(|c| c["name"] == name.as_str()) else { continue };
        for list in ["requests", "limits"] {
            for resource in ["cpu", "memory"] {
                let kept = &old["resources"][list][resource];
                if !kept.is_null() {
                    set(container, &["resources", list], resource, kept.clone());
                }
            }
        }
    }
}
