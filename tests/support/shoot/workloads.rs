//! Deployments and StatefulSets: their pods and their status, if no kube-controller-manager runs.

use std::time::Duration;

use gardenlet::api::core::{DEPLOYMENT, PERSISTENT_VOLUME_CLAIM, POD, REPLICA_SET, STATEFUL_SET};
use gardenlet::base::clock::Timestamp;
use serde_json::{Value, json};

use super::scene::{Hands, Scene, condition, is_alive, is_beside, is_of, is_ready, labels, owned_by, place};
use crate::controllers::workloads::HOLD;
use crate::encoding::{from_rfc3339, sha256_hex};
use crate::json::{entry, list, set, text};

const REVISION: &str = "deployment.kubernetes.io/revision";

/// Handles all workloads. True if one of them is not available yet. `min_ready`: instead of what Deployments say.
pub fn look(hands: &Hands, scene: &Scene, min_ready: Option<Duration>) -> bool {
    let now = hands.client.clock().now();
    let mut waits = false;
    for deployment in scene.deployments.iter().filter(|d| is_served(d)) {
        waits |= look_at_deployment(hands, scene, deployment, (now, min_ready));
    }
    for set in scene.stateful_sets.iter().filter(|s| is_served(s)) {
        waits |= look_at_stateful_set(hands, scene, set);
    }
    waits
}

fn is_served(workload: &Value) -> bool {
    is_alive(workload) && entry(workload, "/metadata/annotations", HOLD).is_none()
}

fn replicas(workload: &Value) -> usize {
    workload["spec"]["replicas"].as_u64().unwrap_or(1) as usize
}

/// Ten digits that stand for a template.
fn hash(template: &Value) -> String {
    sha256_hex(template.to_string().as_bytes())[..10].to_owned()
}

/// The same number under several names; zero is left out, as Go leaves it out.
fn counts(numbers: &[(&str, usize)]) -> Value {
    let value = |n: usize| if n == 0 { Value::Null } else { n.into() };
    Value::Object(numbers.iter().map(|(name, n)| ((*name).to_owned(), value(*n))).collect())
}

/// How long pods must have been ready at this time.
type Patience = (Timestamp, Option<Duration>);

fn look_at_deployment(hands: &Hands, scene: &Scene, deployment: &Value, patience: Patience) -> bool {
    let (namespace, name) = place(deployment);
    let (wanted, hash) = (replicas(deployment), hash(&deployment["spec"]["template"]));
    let sets: Vec<&Value> = scene.replica_sets.iter().filter(|set| is_of(set, deployment)).collect();
    let own_name = format!("{name}-{hash}");
    let own = sets.iter().find(|set| text(set, "/metadata/name") == own_name);
    let Some(own) = own else {
        let before =
            sets.iter().filter_map(|set| entry(set, "/metadata/annotations", REVISION)?.parse::<u32>().ok());
        let revision = before.max().unwrap_or(0) + 1;
        hands.create(&REPLICA_SET, namespace, &replica_set(deployment, &hash, revision));
        if entry(deployment, "/metadata/annotations", REVISION) != Some(&revision.to_string()) {
            let patch = json!({"metadata": {"annotations": {REVISION: revision.to_string()}}});
            hands.merge(&DEPLOYMENT, deployment, patch);
        }
        return true;
    };
    let pods: Vec<&Value> = scene
        .pods
        .iter()
        .filter(|pod| is_alive(pod) && is_beside(pod, deployment) && sets.iter().any(|set| is_of(pod, set)))
        .collect();
    let (new, old): (Vec<&Value>, Vec<&Value>) = pods.iter().partition(|pod| is_of(pod, own));
    let available = |pod: &&&Value| is_available(pod, deployment, patience);
    let recreates = deployment["spec"]["strategy"]["type"] == "Recreate";
    if !recreates || old.is_empty() {
        let missing = (0..wanted).map(|i| format!("{own_name}-{i}"));
        for name in missing.filter(|name| new.iter().all(|pod| text(pod, "/metadata/name") != name)) {
            hands.create(&POD, namespace, &pod(own, &name, ("ReplicaSet", "pod-template-hash", &hash)));
        }
    }
    let is_there = new.iter().filter(available).count() >= wanted;
    let surplus = new.iter().filter(|pod| index(pod).is_none_or(|index| index >= wanted));
    surplus.chain(old.iter().filter(|_| recreates || is_there)).for_each(|pod| hands.delete(&POD, pod));
    let is_complete = is_there && pods.len() == wanted;
    if is_complete {
        let past = sets.iter().filter(|set| text(set, "/metadata/name") != own_name);
        past.for_each(|set| hands.delete(&REPLICA_SET, set));
    }
    let n_available = pods.iter().filter(available).count();
    let mut status = counts(&[
        ("replicas", pods.len()),
        ("updatedReplicas", new.len()),
        ("readyReplicas", pods.iter().filter(|pod| is_ready(pod)).count()),
        ("availableReplicas", n_available),
        ("unavailableReplicas", wanted.saturating_sub(n_available)),
    ]);
    status["observedGeneration"] = deployment["metadata"]["generation"].clone();
    status["conditions"] =
        conditions(deployment, &own_name, (n_available >= wanted, is_complete), &hands.now());
    hands.set_status(&DEPLOYMENT, deployment, status);
    !is_complete
}

/// The number at the end of the name of a pod.
fn index(pod: &Value) -> Option<usize> {
    text(pod, "/metadata/name").rsplit('-').next()?.parse().ok()
}

/// Whether a pod has been ready for long enough.
fn is_available(pod: &Value, workload: &Value, (now, min_ready): Patience) -> bool {
    let told = Duration::from_secs(workload["spec"]["minReadySeconds"].as_u64().unwrap_or(0));
    let since = condition(pod, "Ready").and_then(|c| from_rfc3339(text(c, "/lastTransitionTime")));
    is_ready(pod) && since.is_some_and(|since| since.plus(min_ready.unwrap_or(told)) <= now)
}

fn conditions(deployment: &Value, set: &str, (is_available, is_complete): (bool, bool), now: &str) -> Value {
    let one = |kind: &str, status: &str, (reason, message): (&str, String)| {
        let before = condition(deployment, kind).filter(|before| before["status"] == status);
        let since = before.map_or_else(|| json!(now), |before| before["lastTransitionTime"].clone());
        json!({"type": kind, "status": status, "reason": reason, "message": message, "lastUpdateTime": now,
            "lastTransitionTime": since})
    };
    let available = if is_available {
        ("MinimumReplicasAvailable", "Deployment has minimum availability.".to_owned())
    } else {
        ("MinimumReplicasUnavailable", "Deployment does not have minimum availability.".to_owned())
    };
    let progress = if is_complete {
        ("NewReplicaSetAvailable", format!("ReplicaSet {set:?} has successfully progressed."))
    } else {
        ("ReplicaSetUpdated", format!("ReplicaSet {set:?} is progressing."))
    };
    json!([
        one("Available", if is_available { "True" } else { "False" }, available),
        one("Progressing", "True", progress)
    ])
}

fn replica_set(deployment: &Value, hash: &str, revision: u32) -> Value {
    let mut template = deployment["spec"]["template"].clone();
    set(&mut template, "/metadata/labels/pod-template-hash", hash);
    let mut selector = deployment["spec"]["selector"].clone();
    set(&mut selector, "/matchLabels/pod-template-hash", hash);
    json!({"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": {
            "name": format!("{}-{hash}", text(deployment, "/metadata/name")), "labels": template["metadata"]["labels"],
            "annotations": {REVISION: revision.to_string()},
            "ownerReferences": owned_by(deployment, "apps/v1", "Deployment")},
        "spec": {"replicas": deployment["spec"]["replicas"], "selector": selector, "template": template}})
}

/// A pod of the template of its owner, with a label for the template.
fn pod(owner: &Value, name: &str, (kind, label, hash): (&str, &str, &str)) -> Value {
    let template = &owner["spec"]["template"];
    let mut labels = template["metadata"]["labels"].clone();
    labels[label] = hash.into();
    json!({"apiVersion": "v1", "kind": "Pod", "spec": template["spec"], "metadata": {"name": name, "labels": labels,
        "annotations": template["metadata"]["annotations"], "ownerReferences": owned_by(owner, "apps/v1", kind)}})
}

fn look_at_stateful_set(hands: &Hands, scene: &Scene, stateful: &Value) -> bool {
    let (namespace, name) = place(stateful);
    let wanted = replicas(stateful);
    let revision = format!("{name}-{}", hash(&stateful["spec"]["template"]));
    let pods: Vec<&Value> = scene.pods.iter().filter(|pod| is_alive(pod) && is_of(pod, stateful)).collect();
    let is_new = |pod: &&&Value| labels(pod)["controller-revision-hash"] == *revision;
    for i in 0..wanted {
        let name = format!("{name}-{i}");
        for claim in list(stateful, "/spec/volumeClaimTemplates") {
            make_claim(hands, scene, stateful, claim, &name);
        }
        match pods.iter().find(|pod| text(pod, "/metadata/name") == name) {
            None => hands.create(&POD, namespace, &member(stateful, &name, &revision)),
            Some(pod) if !is_new(&pod) => hands.delete(&POD, pod),
            Some(_) => {}
        }
    }
    let surplus = pods.iter().filter(|pod| index(pod).is_none_or(|index| index >= wanted));
    surplus.for_each(|pod| hands.delete(&POD, pod));
    let n_new = pods.iter().filter(is_new).count();
    let n_ready = pods.iter().filter(|pod| is_ready(pod)).count();
    let is_complete = n_new == wanted && n_ready == wanted && pods.len() == wanted;
    let mut status = counts(&[
        ("currentReplicas", n_new),
        ("updatedReplicas", n_new),
        ("readyReplicas", n_ready),
        ("availableReplicas", n_ready),
    ]);
    status["replicas"] = pods.len().into();
    status["observedGeneration"] = stateful["metadata"]["generation"].clone();
    if is_complete || stateful["status"]["currentRevision"].is_null() {
        status["currentRevision"] = revision.clone().into();
    }
    status["updateRevision"] = revision.into();
    hands.set_status(&STATEFUL_SET, stateful, status);
    !is_complete
}

fn claim_name(claim: &Value, pod: &str) -> String {
    format!("{}-{pod}", text(claim, "/metadata/name"))
}

fn make_claim(hands: &Hands, scene: &Scene, stateful: &Value, template: &Value, pod: &str) {
    let (namespace, name) = (text(stateful, "/metadata/namespace"), claim_name(template, pod));
    if Scene::find(&scene.claims, namespace, &name).is_some() {
        return;
    }
    let claim = json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "spec": template["spec"],
        "metadata": {"name": name, "labels": stateful["spec"]["selector"]["matchLabels"]}});
    hands.create(&PERSISTENT_VOLUME_CLAIM, namespace, &claim);
}

/// A pod with a name and volumes that are its own.
fn member(stateful: &Value, name: &str, revision: &str) -> Value {
    let mut pod = pod(stateful, name, ("StatefulSet", "controller-revision-hash", revision));
    pod["metadata"]["labels"]["statefulset.kubernetes.io/pod-name"] = name.into();
    let mut volumes = list(&pod, "/spec/volumes").to_vec();
    for claim in list(stateful, "/spec/volumeClaimTemplates") {
        volumes.retain(|volume| volume["name"] != claim["metadata"]["name"]);
        volumes.push(json!({"name": claim["metadata"]["name"],
            "persistentVolumeClaim": {"claimName": claim_name(claim, name)}}));
    }
    set(&mut pod, "/spec/volumes", volumes);
    pod
}
