//! Environment variables that every workload of an extension gets.

use serde_json::{Value, json};

/// Sets `SEED_NAME` in all containers of an object, if it belongs to the groups `apps` or `batch` and names the
/// extension's namespace.
///
/// # Errors
/// A kind of these groups that has no containers where they are expected, such as ReplicaSet (as upstream).
pub(super) fn seed_name(object: &mut Value, namespace: &str, seed_name: &str) -> Result<(), String> {
    let group = object["apiVersion"].as_str().and_then(|v| v.split_once('/')).map_or("", |(group, _)| group);
    if !matches!(group, "apps" | "batch") || object["metadata"]["namespace"] != namespace {
        return Ok(());
    }
    let kind = object["kind"].as_str().unwrap_or_default().to_owned();
    let template = match kind.as_str() {
        "Deployment" | "StatefulSet" | "DaemonSet" | "Job" => "/spec/template/spec",
        "CronJob" => "/spec/jobTemplate/spec/template/spec",
        _ => {
            return Err(format!(
                "environment cannot be injected into objects of kind {kind} in group {group}"
            ));
        }
    };
    let Some(pod) = object.pointer_mut(template) else { return Ok(()) };
    for list in ["initContainers", "containers"] {
        for container in pod.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten() {
            if !container.is_object() {
                return Err(format!("{list} of a {kind} holds something that is no container"));
            }
            set_env(container, "SEED_NAME", seed_name);
        }
    }
    Ok(())
}

fn set_env(container: &mut Value, name: &str, value: &str) {
    let wanted = json!({"name": name, "value": value});
    match container.get_mut("env").and_then(Value::as_array_mut) {
        Some(env) => match env.iter_mut().find(|e| e["name"] == name) {
            Some(present) => *present = wanted,
            None => env.push(wanted),
        },
        None => container["env"] = json!([wanted]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn deployment(namespace: &str) -> Value {
        json!({
            "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d", "namespace": namespace},
            "spec": {"template": {"spec": {
                "containers": [{"name": "a"}, {"name": "b", "env": [{"name": "SEED_NAME", "value": "x"}, {"name": "Y"}]}],
                "initContainers": [{"name": "i"}],
            }}},
        })
    }

    #[test]
    fn all_containers_of_the_extensions_namespace_get_it() {
        let mut object = deployment("extension-ci");
        seed_name(&mut object, "extension-ci", "edge-1").unwrap();
        let pod = &object["spec"]["template"]["spec"];
        let set = json!({"name": "SEED_NAME", "value": "edge-1"});
        assert_eq!(pod["containers"][0]["env"], json!([set]));
        assert_eq!(pod["containers"][1]["env"], json!([set, {"name": "Y"}]));
        assert_eq!(pod["initContainers"][0]["env"], json!([set]));
    }

    #[test]
    fn other_namespaces_and_groups_are_left_alone() {
        let untouched = [
            deployment("other"),
            json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"namespace": "extension-ci"}}),
            json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"}}),
        ];
        for before in untouched {
            let mut object = before.clone();
            seed_name(&mut object, "extension-ci", "edge-1").unwrap();
            assert_eq!(object, before);
        }
    }

    #[test]
    fn a_replica_set_is_an_error() {
        let mut object =
            json!({"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": {"namespace": "n"}});
        let error = seed_name(&mut object, "n", "s").unwrap_err();
        assert_eq!(error, "environment cannot be injected into objects of kind ReplicaSet in group apps");
    }

    #[test]
    fn what_is_no_container_is_an_error() {
        for odd in [json!("text"), json!(null), json!([1])] {
            let mut object = deployment("n");
            object["spec"]["template"]["spec"]["containers"] = json!([odd]);
            let error = seed_name(&mut object, "n", "s").unwrap_err();
            assert_eq!(error, "containers of a Deployment holds something that is no container");
        }
    }

    #[test]
    fn a_cron_job_has_its_template_deeper() {
        let mut object = json!({
            "apiVersion": "batch/v1", "kind": "CronJob", "metadata": {"namespace": "n"},
            "spec": {"jobTemplate": {"spec": {"template": {"spec": {"containers": [{"name": "a"}]}}}}},
        });
        seed_name(&mut object, "n", "s").unwrap();
        let container = &object["spec"]["jobTemplate"]["spec"]["template"]["spec"]["containers"][0];
        assert_eq!(container["env"][0]["value"], "s");
    }
}
