//! Shoots are deleted: with everything in them, although some objects are blocked, and by force when their API servers
//! no longer exist.

use std::time::Duration;

use gardenlet::api::core::{CONFIG_MAP, DEPLOYMENT, VALIDATING_WEBHOOK_CONFIGURATION};
use gardenlet::api::crd::CUSTOM_RESOURCE_DEFINITION;
use gardenlet::api::gardener::SHOOT;
use gardenlet::api::meta::{Key, Resource};
use gardenlet::base::clock::Mono;
use gardenlet::kube::{Client, DeleteParams, Method, Patch};
use serde_json::{Value, json};

use super::owner::Owner;
use super::{Name, PROJECT, extensions};
use crate::agent::Agent;
use crate::failure::{Doing, Failure, Result, ensure};
use crate::lab::Lab;
use crate::snapshot::Snapshot;
use crate::stories::steps::{self, while_running};
use crate::wait;

/// The time after the start of a deletion when finalizers are removed.
const GRACE_S: u64 = 20;
/// The longest time for the rest of a deletion: two stages wait for finalizers that long, and pods end.
const DELETED_WITHIN_S: u64 = 3 * GRACE_S + 120;
const FORCED_WITHIN_S: u64 = 120;
/// A client does not wait for an API server that may end at any time.
const ANSWER_WITHIN: Duration = Duration::from_secs(2);
/// The first deleted objects, while the API server runs: the webhook that does not answer, and the definition of the
/// blocked custom resource.
const FIRST: [(Resource, &str); 2] =
    [(VALIDATING_WEBHOOK_CONFIGURATION, "dead"), (CUSTOM_RESOURCE_DEFINITION, "things.example.org")];

/// Garden and seed before a Shoot was created.
pub(super) struct Before {
    garden: Snapshot,
    seed: Snapshot,
}

/// Call it before the Shoot is created.
pub(super) fn look(lab: &Lab) -> Result<Before> {
    Ok(Before { garden: Snapshot::take(&lab.garden)?, seed: Snapshot::take(&lab.seed)? })
}

/// A Shoot with a blocked custom resource, a webhook that does not answer, and other objects is deleted as soon as its
/// grace periods are over. Its owner sees both deleted while its API server still answers, and the second one not
/// before the end of its grace period. Its extensions are deleted before the API server and after it, according to
/// their registration.
pub(super) fn everything_goes(
    lab: &Lab,
    garden: &Client,
    agent: &mut Agent,
    (before, owner): (&Before, &Owner<'_>),
) -> Result<()> {
    fill(&owner.client()?)?;
    let annotations: serde_json::Map<String, Value> = ["webhooks", "extended-apis", "kubernetes-resources"]
        .map(|stage| {
            let name = format!("shoot.gardener.cloud/cleanup-{stage}-finalize-grace-period-seconds");
            (name, json!(GRACE_S.to_string()))
        })
        .into_iter()
        .collect();
    annotate(garden, owner.name, &Value::Object(annotations))?;
    let (mut audit, began) = (lab.seed.audit(), wait::now());
    let shoot = owner.client()?.with_deadline(ANSWER_WITHIN);
    let mut seen = Seen { shoot, began, gone: [None, None] };
    delete(garden, owner.name)?;
    is_gone(garden, agent, (owner.name, DELETED_WITHIN_S), &mut || seen.look())?;
    println!("       {:6.1} s  deleted, with a grace period of {GRACE_S} s", wait::seconds_since(began));
    seen.judge()?;
    extensions::went_in_their_order(&audit.requests()?, owner.name)?;
    nothing_stays(lab, before, owner.name)
}

/// A Shoot with nothing of its owner in it is deleted.
pub(super) fn goes(
    lab: &Lab,
    garden: &Client,
    agent: &mut Agent,
    (before, name): (&Before, Name),
) -> Result<()> {
    deletes(garden, agent, name)?;
    nothing_stays(lab, before, name)
}

/// An agent deletes a Shoot with nothing of its owner in it.
pub(super) fn deletes(garden: &Client, agent: &mut Agent, name: Name) -> Result<()> {
    let began = wait::now();
    delete(garden, name)?;
    is_gone(garden, agent, (name, DELETED_WITHIN_S), &mut || ())?;
    println!("       {:6.1} s  deleted", wait::seconds_since(began));
    Ok(())
}

/// The owner's view of a deletion.
struct Seen {
    shoot: Client,
    /// When it began.
    began: Mono,
    /// When the API server first answered that these are deleted, in seconds since then.
    gone: [Option<f64>; 2],
}

impl Seen {
    /// A server that does not answer proves nothing.
    fn look(&mut self) {
        for (gone, (resource, name)) in self.gone.iter_mut().zip(FIRST) {
            if gone.is_none() && matches!(self.shoot.find::<Value>(&resource, &Key::cluster(name)), Ok(None))
            {
                *gone = Some(wait::seconds_since(self.began));
            }
        }
    }

    fn judge(&self) -> Result<()> {
        println!("                 seen as deleted after this many seconds: {:.1?}", self.gone);
        let [Some(_), Some(definition)] = self.gone else {
            return Err(Failure::new(format!(
                "the API server ended before these: {FIRST:?} {:?}",
                self.gone
            )));
        };
        ensure(definition >= GRACE_S as f64, || {
            format!("a custom resource with a finalizer had only {definition:.1} s of {GRACE_S}")
        })
    }
}

/// The API server of the Shoot no longer exists. The agent sends it no requests, and the Shoot is deleted.
pub(super) fn force_needs_no_server(
    lab: &Lab,
    garden: &Client,
    agent: &mut Agent,
    (before, name): (&Before, Name),
) -> Result<()> {
    let (seed, plane) = (lab.seed.client()?, name.plane());
    // Without the annotation for force, a deletion would end by itself.
    agent.kill();
    seed.delete(&DEPLOYMENT, &Key::new(&plane, "kube-apiserver"), &DeleteParams::default())?;
    let held = json!({"apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": "held", "namespace": plane, "finalizers": ["example.org/nobody"]}});
    seed.create::<Value>(&CONFIG_MAP, &plane, &held)?;
    // The garden allows force only after an error.
    let stuck = json!({"status": {"lastErrors": [{"description": "stuck", "taskID": "Cleaning Kubernetes resources",
        "codes": ["ERR_CLEANUP_CLUSTER_RESOURCES"]}]}});
    garden.patch_status::<Value>(&SHOOT, &Key::new(PROJECT, name.0), &Patch::Merge(stuck))?;
    delete(garden, name)?;
    annotate(garden, name, &json!({"confirmation.gardener.cloud/force-deletion": "true"}))?;
    let began = wait::now();
    agent.restart()?;
    steps::ready(lab, agent)?;
    is_gone(garden, agent, (name, FORCED_WITHIN_S), &mut || ())?;
    println!("       {:6.1} s  deleted by force, without its API server", wait::seconds_since(began));
    nothing_stays(lab, before, name)
}

/// Objects that block a deletion, and others.
fn fill(shoot: &Client) -> Result<()> {
    let in_default = |name: &str| json!({"name": name, "namespace": "default"});
    let held =
        |name: &str| json!({"name": name, "namespace": "default", "finalizers": ["example.org/nobody"]});
    let schema = json!({"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}});
    create(
        shoot,
        "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
        &json!({"apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition", "metadata": {"name": "things.example.org"}, "spec": {
            "group": "example.org", "scope": "Namespaced", "names": {"kind": "Thing", "plural": "things"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": schema}]}}),
    )?;
    let thing = json!({"apiVersion": "example.org/v1", "kind": "Thing", "metadata": held("stuck")});
    wait::until("the custom resource", 60, || {
        create(shoot, "/apis/example.org/v1/namespaces/default/things", &thing).map(Some)
    })?;
    for (kind, path) in [("ConfigMap", "configmaps"), ("Secret", "secrets")] {
        for index in 0..20 {
            let name = format!("many-{index}");
            let object = json!({"apiVersion": "v1", "kind": kind, "metadata": in_default(&name)});
            create(shoot, &format!("/api/v1/namespaces/default/{path}"), &object)?;
        }
    }
    create(
        shoot,
        "/api/v1/namespaces",
        &json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "own"}}),
    )?;
    for metadata in [in_default("plain"), held("held")] {
        let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": {"ports": [{"port": 80}]}});
        create(shoot, "/api/v1/namespaces/default/services", &service)?;
    }
    // Last: from now on, it refuses changes of these.
    create(
        shoot,
        "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations",
        &json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration", "metadata": {"name": "dead"},
        "webhooks": [{"name": "dead.example.org", "failurePolicy": "Fail", "sideEffects": "None", "timeoutSeconds": 1,
            "admissionReviewVersions": ["v1"], "clientConfig": {"url": "https://192.0.2.1/dead"},
            "rules": [{"apiGroups": ["", "apiextensions.k8s.io", "example.org"], "apiVersions": ["*"], "operations": ["*"],
                "resources": ["services", "customresourcedefinitions", "things"]}]}]}),
    )?;
    wait::until("the webhook to refuse", 60, || {
        let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": in_default("tried"),
            "spec": {"ports": [{"port": 80}]}});
        let (path, body) = ("/api/v1/namespaces/default/services?dryRun=All", service.to_string());
        let answer = shoot.raw(Method::Post, path, Some(body.as_bytes()), "application/json")?;
        Ok::<_, Failure>((answer.status == 500).then_some(()))
    })
}

fn create(shoot: &Client, path: &str, object: &Value) -> Result<()> {
    let body = object.to_string();
    let answer = shoot.raw(Method::Post, path, Some(body.as_bytes()), "application/json")?;
    let text = String::from_utf8_lossy(&answer.body);
    ensure(answer.is_success() || answer.status == 409, || format!("POST {path}: {} {text}", answer.status))
}

fn annotate(garden: &Client, name: Name, annotations: &Value) -> Result<()> {
    let patch = Patch::Merge(json!({"metadata": {"annotations": annotations}}));
    garden
        .patch::<Value>(&SHOOT, &Key::new(PROJECT, name.0), &patch)
        .doing(|| format!("annotate Shoot {}", name.0))
        .map(drop)
}

fn delete(garden: &Client, name: Name) -> Result<()> {
    annotate(garden, name, &json!({"confirmation.gardener.cloud/deletion": "true"}))?;
    garden
        .delete(&SHOOT, &Key::new(PROJECT, name.0), &DeleteParams::default())
        .doing(|| format!("delete Shoot {}", name.0))
}

/// Waits for the end of a Shoot. `meanwhile` is called again and again.
fn is_gone(
    garden: &Client,
    agent: &mut Agent,
    (name, seconds): (Name, u64),
    meanwhile: &mut dyn FnMut(),
) -> Result<()> {
    while_running(&format!("the end of Shoot {}", name.0), seconds, agent, || {
        meanwhile();
        match garden.find::<Value>(&SHOOT, &Key::new(PROJECT, name.0))? {
            None => Ok(Some(())),
            Some(shoot) => {
                let status = &shoot["status"];
                Err(Failure::new(format!("{} {}", status["lastOperation"], status["lastErrors"])))
            }
        }
    })
}

/// All new objects of the Shoot are deleted from garden and seed, and no other object is missing.
fn nothing_stays(lab: &Lab, before: &Before, name: Name) -> Result<()> {
    let plane = name.plane();
    let of_shoot = format!(" {PROJECT}/{}", name.0);
    // The provisioner of a volume keeps it or removes it.
    let concerns = |key: &str| {
        let is_volume = key.starts_with("/PersistentVolume ");
        !is_volume
            && (key.contains(&plane) || key.ends_with(&of_shoot) || key.contains(&format!("{of_shoot}.")))
    };
    is_as_before(lab, before, concerns)
}

/// All new objects for whose keys `concerns` is true are deleted from garden and seed, and no earlier one is missing or
/// changed.
pub(super) fn is_as_before(lab: &Lab, before: &Before, concerns: impl Fn(&str) -> bool) -> Result<()> {
    wait::until("the end of the deletion", 60, || {
        for (what, earlier, cluster) in
            [("garden", &before.garden, &lab.garden), ("seed", &before.seed, &lab.seed)]
        {
            let difference = Snapshot::take(cluster)?.since(earlier);
            let new: Vec<&str> = difference.keys().into_iter().filter(|key| concerns(key)).collect();
            ensure(new.is_empty(), || format!("left in the {what}: {new:?}"))?;
            let gone: Vec<&String> = difference.gone.iter().filter(|key| concerns(key)).collect();
            ensure(gone.is_empty(), || format!("missing in the {what}: {gone:?}"))?;
        }
        Ok::<_, Failure>(Some(()))
    })
}
