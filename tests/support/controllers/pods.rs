//! The pods of Deployments: one for each replica, of the current template. Nothing runs in them.

use serde_json::{Value, json};

use super::workloads::HOLD;
use crate::api::remove::Options;
use crate::api::{Api, Target, User};
use crate::json::{list, text};

/// `left_out`: namespaces whose workloads another component handles.
pub fn sync(api: &Api, left_out: &dyn Fn(&str) -> bool) {
    let (Some(deployments), Some(pods)) = (api.kind("apps", "deployments"), api.kind("", "pods")) else {
        return;
    };
    for deployment in api.store.all(&deployments.group, &deployments.plural, "") {
        let held = deployment["metadata"]["annotations"].get(HOLD).is_some();
        let namespace = text(&deployment, "/metadata/namespace");
        if held || left_out(namespace) || !text(&deployment, "/metadata/deletionTimestamp").is_empty() {
            continue;
        }
        let wanted = names(&deployment);
        let present = owned(api, &deployment, namespace);
        for name in present.iter().filter(|name| !wanted.contains(name)) {
            // Another thread may have deleted it.
            let _ = api.delete(&Target::new(pods.clone(), namespace, name), &Options::default());
        }
        for name in wanted.iter().filter(|name| !present.contains(name)) {
            let _ = api.create(
                &Target::new(pods.clone(), namespace, ""),
                pod(&deployment, name),
                &User::system(),
            );
        }
    }
}

fn names(deployment: &Value) -> Vec<String> {
    let replicas = deployment["spec"]["replicas"].as_i64().unwrap_or(1);
    let (name, hash) = (text(deployment, "/metadata/name"), hash(&deployment["spec"]["template"]));
    (0..replicas).map(|i| format!("{name}-{hash}-{i}")).collect()
}

/// Ten digits that stand for a template.
fn hash(template: &Value) -> String {
    let text = template.to_string();
    let sum = text.bytes().fold(5_381_u64, |sum, byte| sum.wrapping_mul(33) ^ u64::from(byte));
    format!("{:010x}", sum & 0xff_ffff_ffff)
}

fn owned(api: &Api, deployment: &Value, namespace: &str) -> Vec<String> {
    let uid = text(deployment, "/metadata/uid");
    let pods = api.store.all("", "pods", namespace);
    let ours = pods.iter().filter(|p| list(p, "/metadata/ownerReferences").iter().any(|o| o["uid"] == uid));
    ours.map(|p| text(p, "/metadata/name").to_owned()).collect()
}

fn pod(deployment: &Value, name: &str) -> Value {
    let template = &deployment["spec"]["template"];
    let owner = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": deployment["metadata"]["name"],
        "uid": deployment["metadata"]["uid"], "controller": true, "blockOwnerDeletion": true});
    json!({"apiVersion": "v1", "kind": "Pod", "spec": template["spec"], "metadata": {"name": name,
        "labels": template["metadata"]["labels"], "annotations": template["metadata"]["annotations"],
        "ownerReferences": [owner]}})
}
