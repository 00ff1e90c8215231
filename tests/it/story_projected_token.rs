//! Pods whose ServiceAccount mounts no token get a projected one, as charts for Gardener expect.

use std::time::Duration;

use gardenlet::format::brotli;
use serde_json::{Value, json};

use crate::charts;
use crate::story_extension::installed;
use crate::world::{MANAGED_RESOURCES, Options, World, condition, wait_for};
use support::encoding::{base64, from_base64};
use support::http::record::Recorded;
use support::json::text;

const VOLUME: &str = "kube-api-access-gardener";

/// An extension from Gardener's template for charts, with an account without tokens.
const TEMPLATE: &str = "apiVersion: v1
kind: ServiceAccount
metadata:
  name: echo
  namespace: {{ .Release.Namespace }}
automountServiceAccountToken: false
---
apiVersion: apps/v1
kind: Deployment
metadata:
  name: echo
  namespace: {{ .Release.Namespace }}
spec:
  replicas: 1
  selector: {matchLabels: {app: echo}}
  template:
    metadata: {labels: {app: echo}}
    spec:
      serviceAccountName: echo
      initContainers:
      - name: first
        image: registry.example.org/echo:1
      containers:
      - name: echo
        image: registry.example.org/echo:1
";

fn has_token(workload: &Value) -> bool {
    let volumes = workload["spec"]["template"]["spec"]["volumes"].as_array();
    volumes.is_some_and(|volumes| volumes.iter().any(|volume| volume["name"] == VOLUME))
}

/// All manifests of a ManagedResource, as its Secret has them.
fn manifests(world: &World, managed: &str) -> String {
    let managed = world.seed.get(MANAGED_RESOURCES, "managedresources", "garden", managed).unwrap();
    let secret = world.seed.get("", "secrets", "garden", text(&managed, "/spec/secretRefs/0/name")).unwrap();
    let mut all = String::new();
    for (key, value) in secret["data"].as_object().unwrap() {
        let mut bytes = from_base64(value.as_str().unwrap()).unwrap();
        if key.ends_with(".br") {
            bytes = brotli::decode(&bytes, 1 << 20).unwrap();
        }
        all += &String::from_utf8(bytes).unwrap();
    }
    all
}

/// Makes the applier apply a ManagedResource once more.
fn apply_again(world: &World, managed: &str) {
    let operation = json!({"metadata": {"annotations": {"gardener.cloud/operation": "reconcile"}}});
    let mark = world.seed.request_count();
    world.seed.merge(MANAGED_RESOURCES, "managedresources", ("garden", managed), &operation);
    wait_for("another round", || {
        let object = world.seed.get(MANAGED_RESOURCES, "managedresources", "garden", managed)?;
        let is_asked = object["metadata"]["annotations"]["gardener.cloud/operation"].is_string();
        let requests = world.seed.requests_since(mark);
        let has_read = requests.iter().any(|r| r.method == "GET" && r.info.resource == "deployments");
        (!is_asked && has_read).then_some(())
    });
}

#[test]
fn pods_without_a_mounted_token_get_one_and_nothing_is_written_twice() {
    let world = World::start(&Options::new("mounting"));
    let agent = world.agent();
    let chart = charts::archive("extension-echo", &[("templates/all.yaml", TEMPLATE)]);
    world.extend("echo", &chart, &json!({}));
    world.wait_until_ready();
    let name = installed(&world, "echo");
    let namespace = format!("extension-{name}");
    let deployment = world.seed.get("apps", "deployments", &namespace, "echo").unwrap();
    assert!(has_token(&deployment), "{deployment}");
    let spec = &deployment["spec"]["template"]["spec"];
    for container in [&spec["containers"][0], &spec["initContainers"][0]] {
        let mounts = json!([{"name": VOLUME, "readOnly": true,
            "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount"}]);
        assert_eq!(container["volumeMounts"], mounts);
    }
    // The manifest equals the one of another gardenlet.
    let manifests = manifests(&world, &name);
    assert!(manifests.contains("automountServiceAccountToken: false"), "{manifests}");
    assert!(!manifests.contains(VOLUME), "{manifests}");
    let mark = world.seed.request_count();
    for _ in 0..3 {
        apply_again(&world, &name);
    }
    let requests = world.seed.requests_since(mark);
    let writes: Vec<String> = requests
        .iter()
        .filter(|r| r.is_write() && r.info.resource == "deployments")
        .map(Recorded::line)
        .collect();
    assert_eq!(writes, Vec::<String>::new());
    agent.stop();
}

#[test]
fn a_later_account_takes_effect_and_an_existing_job_stays_unchanged() {
    let world = World::start(&Options::new("late"));
    let template = json!({"metadata": {"labels": {"app": "x"}}, "spec": {"serviceAccountName": "late",
        "restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}});
    let metadata = |name: &str| json!({"name": name, "namespace": "garden"});
    let job = json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata("done"), "spec": {"template": template}});
    let mut deployment = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata("late"),
        "spec": {"selector": {"matchLabels": {"app": "x"}}, "template": template}});
    deployment["spec"]["template"]["spec"]["restartPolicy"] = Value::Null;
    // Another applier has created it.
    world.seed.apply(std::slice::from_ref(&job));
    let agent = world.agent();
    world.wait_until_ready();
    let data = json!({"k": base64(format!("{job}\n---\n{deployment}\n").as_bytes())});
    let spec = json!({"class": "seed", "secretRefs": [{"name": "late"}]});
    world.seed.apply(&[
        json!({"apiVersion": "v1", "kind": "Secret", "metadata": metadata("late"), "data": data}),
        json!({"apiVersion": "resources.gardener.cloud/v1alpha1", "kind": "ManagedResource", "metadata": metadata("late"),
            "spec": spec}),
    ]);
    let get = |plural: &str, name: &str| {
        world.seed.get(if plural == "jobs" { "batch" } else { "apps" }, plural, "garden", name)
    };
    let found = wait_for("the workload", || get("deployments", "late"));
    assert!(!has_token(&found), "{found}");
    world.seed.apply(&[json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata("late"),
        "automountServiceAccountToken": false})]);
    let created = world.clock.now();
    wait_for("the token", || has_token(&get("deployments", "late")?).then_some(()));
    let took = world.clock.now().since(created);
    world.measured("until a late account has its effect", took, Duration::from_secs(600));
    wait_for("success", || {
        let managed = world.seed.get(MANAGED_RESOURCES, "managedresources", "garden", "late")?;
        condition(&managed, "ResourcesApplied").filter(|(status, ..)| status == "True")
    });
    assert!(!has_token(&get("jobs", "done").unwrap()));
    agent.stop();
}
