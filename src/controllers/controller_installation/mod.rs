//! Extensions: a ControllerInstallation's chart becomes a ManagedResource of the seed (Gardener's
//! `controllerinstallation`, with `-care` and `-required` beside it).
//!
//! Woken by a new installation, a changed reference (the garden writes the resourceVersion of registration, deployment and
//! seed into the installation's spec), and a deletion. Success is final until then.

mod access;
mod delete;
mod inject;
mod objects;
pub mod preview;
mod pull;
mod render;
mod resources;
mod typed;
mod values;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use crate::api::condition::{self, Condition, Finding, Status};
use crate::api::core::{CONFIG_MAP, ConfigMap, NAMESPACE, SECRET};
use crate::api::gardener::{
    CONTROLLER_DEPLOYMENT, CONTROLLER_INSTALLATION, CONTROLLER_REGISTRATION, ControllerDeployment,
    ControllerInstallation, HelmDeployment, SEED,
};
use crate::api::meta::{Key, Metadata, ObjectMeta};
use crate::api::resources::{GARDEN_NAMESPACE, MANAGED_RESOURCE, installation_of};
use crate::base::clock::Timestamp;
use crate::base::error::chain;
use crate::chart::child::Renderer;
use crate::config::version::GARDENER;
use crate::kube::{self, Garden, Patch, Seed};
use crate::oci::Puller;
use crate::resources::Watched;
use crate::runtime::controller::{Context, Failure, Outcome, Reconciler};
use crate::runtime::events::{About, News};
use crate::runtime::group::Group;
use crate::runtime::queue::RETRY_DEFAULT;
use crate::runtime::store::Store;
use crate::runtime::write;

use super::Site;
use super::site::is_garden;

/// The finalizer of installations.
pub const FINALIZER: &str = "core.gardener.cloud/controllerinstallation";
/// How often an installation is looked at without a cause: as upstream's informers repeat what they know. What somebody
/// else has changed in the seed, and the garden's CA, are made good then.
const RESYNC: Duration = Duration::from_secs(10 * 3_600);
const POD_SECURITY_ANNOTATION: &str = "security.gardener.cloud/pod-security-enforce";

/// Adds the controller.
pub fn add(site: &Site, group: &mut Group) {
    let settings = &site.settings;
    let workers = settings.controllers.controller_installation_workers;
    let lane = group.lane("controllerinstallation", workers, RETRY_DEFAULT);
    group.wake(&lane, &site.installations, |change| {
        let new = change.new.as_deref()?;
        wants_reconcile(change.old.as_deref(), new).then(|| change.key.clone())
    });
    group.wake(&lane, &site.managed, |change| wants_rollout(change.old.as_deref(), change.new.as_deref()));
    let known = site.installations.store().clone();
    group.wake_on(&lane, &site.garden_moved, move || known.all().into_iter().map(|(key, _)| key));
    let reconciler = InstallationReconciler {
        garden: site.garden.clone(),
        seed: site.seed.clone(),
        installations: site.installations.store().clone(),
        seed_name: site.seed_name().to_owned(),
        version: GARDENER.to_owned(),
        feature_gates: settings.feature_gates.clone(),
        renderer: site.renderer.clone(),
        charts: Arc::clone(&site.charts),
        garden_address: settings.garden_client_connection.garden_cluster_address.clone(),
    };
    group.run(lane, reconciler);
}

struct InstallationReconciler {
    garden: Garden,
    seed: Seed,
    installations: Store<ControllerInstallation>,
    seed_name: String,
    /// Gardener's version, as in `status.gardener.version` of the Seed.
    version: String,
    /// Every known gate.
    feature_gates: BTreeMap<String, bool>,
    renderer: Renderer,
    charts: Arc<Puller>,
    /// `gardenClientConnection.gardenClusterAddress`: where extensions find the garden, if not where the agent does.
    garden_address: Option<String>,
}

/// Whether a change of an installation needs a round.
fn wants_reconcile(old: Option<&ControllerInstallation>, new: &ControllerInstallation) -> bool {
    old.is_none_or(|old| {
        old.metadata.deletion_timestamp.is_some() != new.metadata.deletion_timestamp.is_some()
            || old.spec != new.spec
    })
}

/// The installation that has to be rolled out again: somebody took its ManagedResource away, or the seed's storage was
/// restored to an older state. Nothing in the garden changes then.
fn wants_rollout(old: Option<&Watched>, new: Option<&Watched>) -> Option<Key> {
    let went_back = |old: &Watched| {
        new.is_none_or(|new| {
            new.metadata.uid != old.metadata.uid || new.metadata.generation < old.metadata.generation
        })
    };
    old.filter(|old| went_back(old)).and_then(|old| installation_of(&old.metadata))
}

/// The two conditions that this controller writes, as far as they are known.
#[derive(Debug)]
struct Verdict {
    now: Timestamp,
    valid: Condition,
    installed: Condition,
}

impl Verdict {
    fn new(old: &[Condition], now: Timestamp) -> Self {
        let load = |kind| condition::find_or_init(old, kind, now);
        Self { now, valid: load("Valid"), installed: load("Installed") }
    }

    fn valid(&mut self, status: Status, reason: &str, message: &str) {
        self.valid = self.valid.updated(self.now, status, Finding::new(reason, message));
    }

    fn installed(&mut self, status: Status, reason: &str, message: &str) {
        self.installed = self.installed.updated(self.now, status, Finding::new(reason, message));
    }
}

impl Reconciler for InstallationReconciler {
    fn reconcile(&self, key: &Key, cx: &Context) -> Result<Outcome, Failure> {
        let Some(installation) = self.installations.get(key) else { return Ok(Outcome::Done) };
        if installation.spec.seed_ref.is_none() {
            return Ok(Outcome::Done);
        }
        let deployment = if installation.metadata.deletion_timestamp.is_some() {
            if !installation.metadata.finalizers.iter().any(|f| f == FINALIZER) {
                return Ok(Outcome::Done);
            }
            None
        } else {
            // Others install what has no chart: neither finalizer nor conditions are ours then.
            let Some(deployment) = self.deployment(&installation)? else { return Ok(Outcome::Done) };
            Some(deployment)
        };
        let mut verdict = Verdict::new(&installation.status.conditions, cx.clock.now());
        let result = match &deployment {
            None => delete::step(self, &installation, &mut verdict),
            Some((deployment, helm)) => self.install(&installation, (deployment, helm), &mut verdict, cx),
        };
        if result.as_ref().is_err_and(|failure| failure.postponed().is_some()) {
            // It says nothing about the installation, and nothing is told.
            return result.map(|_| Outcome::Done);
        }
        if result.is_err() {
            self.tell(&installation, &verdict, cx);
        }
        let written = self.write_conditions(key, &installation, verdict);
        let outcome = result.and_then(|step| match step {
            delete::Step::Finish => delete::finish(self, &installation).map(|()| Outcome::Done),
            delete::Step::Wait(after) => Ok(Outcome::After(after)),
            delete::Step::Installed => Ok(Outcome::After(RESYNC)),
        });
        settled(outcome, written)
    }
}

/// Conditions that were not written are written by the next round: then there must be one.
fn settled(outcome: Result<Outcome, Failure>, written: Result<(), kube::Error>) -> Result<Outcome, Failure> {
    match (outcome, written) {
        (Ok(Outcome::Done) | Err(Failure::Terminal(_)), Err(e)) => Err(e.into()),
        (outcome, _) => outcome,
    }
}

impl InstallationReconciler {
    /// An event of what failed, as the condition says it. What no condition tells is on its way: the Seed that has no
    /// identity yet, a connection that broke.
    fn tell(&self, installation: &ControllerInstallation, verdict: &Verdict, cx: &Context) {
        let Verdict { valid, installed, .. } = verdict;
        let (reason, note) = if valid.status == Status::False {
            (valid.reason.as_str(), valid.message.as_str())
        } else if installed.reason.ends_with("Failed") {
            (installed.reason.as_str(), installed.message.as_str())
        } else {
            return;
        };
        let ObjectMeta { name, uid, deletion_timestamp, .. } = &installation.metadata;
        let about = About { resource: &CONTROLLER_INSTALLATION, namespace: "", name, uid };
        let action = if deletion_timestamp.is_some() { "Delete" } else { "Reconcile" };
        let controller = "controllerinstallation-controller";
        cx.events.tell(
            &self.garden,
            &cx.clock,
            about,
            News { controller, warning: true, reason, action, note },
        );
    }

    /// Written in all cases, good or bad; an installation that is gone needs none.
    fn write_conditions(
        &self,
        key: &Key,
        installation: &ControllerInstallation,
        verdict: Verdict,
    ) -> Result<(), kube::Error> {
        let old = &installation.status.conditions;
        let wanted = [verdict.valid, verdict.installed];
        match write::conditions(&self.garden, &CONTROLLER_INSTALLATION, key, old, &wanted) {
            Err(e) if !e.is_not_found() => {
                let (err, key) = (chain(&e), key.to_string());
                log::warn!(controller = "controllerinstallation", key = key.as_str(), err = err.as_str(); "Conditions were not written");
                Err(e)
            }
            _ => Ok(()),
        }
    }

    fn install(
        &self,
        installation: &ControllerInstallation,
        (deployment, helm): (&ControllerDeployment, &HelmDeployment),
        verdict: &mut Verdict,
        cx: &Context,
    ) -> Result<delete::Step, Failure> {
        let finalizers = installation.metadata.finalizers.as_slice();
        let read = (finalizers, installation.metadata.resource_version.as_str());
        let key = installation.metadata.key();
        write::finalizer(&self.garden, &CONTROLLER_INSTALLATION, &key, read, FINALIZER, true)?;
        let name = registration(installation);
        self.read::<Metadata>(&CONTROLLER_REGISTRATION, name, "ControllerRegistration", verdict)?;
        let seed = self.seed_object(verdict)?;
        let resources = self.resources(deployment, helm, verdict)?;
        self.ensure_namespace(installation, &seed)?;
        let identity = seed.pointer("/status/clusterIdentity").and_then(Value::as_str).unwrap_or_default();
        if identity.is_empty() {
            return Err(Failure::retry("the Seed has no status.clusterIdentity yet"));
        }
        let namespace = objects::namespace_name(&key.name);
        let inject = deployment.inject_garden_kubeconfig == Some(true);
        let kubeconfig = inject.then(|| access::ensure_kubeconfig(self, &namespace)).transpose()?;
        let mix_in = values::mix_in(values::Facts {
            seed: &seed,
            version: &self.version,
            garden_identity: &garden_identity(&self.garden)?,
            feature_gates: &self.feature_gates,
            generic_kubeconfig: kubeconfig.as_deref(),
        });
        let input = render::Input { helm, resources, mix_in };
        let rendered = render::objects(self, installation, input, verdict, cx)?;
        let kubeconfig = kubeconfig.as_deref().filter(|_| inject::wants_kubeconfig(rendered.values()));
        let garden = access::ensure_token(self, (&key.name, name), kubeconfig)?;
        let injection = inject::Injection { namespace: &namespace, seed_name: &self.seed_name, garden };
        let data = render::data(rendered, injection, verdict)?;
        self.bring(&key.name, name, &data, verdict)?;
        Ok(delete::Step::Installed)
    }

    /// Writes the Secret and the ManagedResource, and the result into `Installed`.
    fn bring(
        &self,
        name: &str,
        registration: &str,
        data: &BTreeMap<String, String>,
        verdict: &mut Verdict,
    ) -> Result<(), Failure> {
        self.write_manifests(name, registration, data).inspect_err(|e| {
            let message = format!("Creation of ManagedResource \"{name}\" failed: {}", e.text());
            verdict.installed(Status::False, "InstallationFailed", &message);
        })?;
        if verdict.installed.status == Status::Unknown {
            let message = format!("Installation of ManagedResource \"{name}\" is still pending.");
            verdict.installed(Status::False, "InstallationPending", &message);
        }
        Ok(())
    }

    /// What the deployment's values are templates over.
    fn resources(
        &self,
        deployment: &ControllerDeployment,
        helm: &HelmDeployment,
        verdict: &mut Verdict,
    ) -> Result<Value, Failure> {
        if !matches!(helm.values, Value::Null | Value::Object(_)) {
            // Not what it is: values may hold secrets.
            let why = "chart values cannot be unmarshalled: helm.values must be a map";
            verdict.valid(Status::False, "ChartInformationInvalid", why);
            return Err(Failure::terminal(why));
        }
        resources::resolve(&self.garden, &deployment.resources, &helm.values).map_err(|e| {
            let why = format!(
                "helm values cannot be rendered: failed resolving resource references: {}",
                chain(&e)
            );
            verdict.valid(Status::False, "RenderingHelmValuesFailed", &why);
            e.into()
        })
    }

    /// Reads an object that the installation depends on; if it cannot, says so in `Valid`.
    fn read<T: serde::de::DeserializeOwned>(
        &self,
        resource: &crate::api::meta::Resource,
        name: &str,
        what: &str,
        verdict: &mut Verdict,
    ) -> Result<T, Failure> {
        self.garden.get::<T>(resource, "", name).map_err(|e| {
            let (status, suffix, problem) = if e.is_not_found() {
                (Status::False, "NotFound", "does not exist")
            } else {
                (Status::Unknown, "ReadError", "cannot be read")
            };
            let reason = format!("{}{suffix}", what.trim_start_matches("Controller"));
            verdict.valid(status, &reason, &format!("Referenced {what} {problem}: {}", chain(&e)));
            e.into()
        })
    }

    fn seed_object(&self, verdict: &mut Verdict) -> Result<Value, Failure> {
        self.read(&SEED, &self.seed_name, "Seed", verdict)
    }

    /// The deployment and its chart, if it has one.
    fn deployment(
        &self,
        installation: &ControllerInstallation,
    ) -> Result<Option<(ControllerDeployment, HelmDeployment)>, Failure> {
        let Some(reference) = &installation.spec.deployment_ref else { return Ok(None) };
        let mut found: ControllerDeployment = self.garden.get(&CONTROLLER_DEPLOYMENT, "", &reference.name)?;
        Ok(found.helm.take().map(|helm| (found, helm)))
    }

    fn ensure_namespace(&self, installation: &ControllerInstallation, seed: &Value) -> Result<(), Failure> {
        let zones = seed.pointer("/spec/provider/zones").and_then(Value::as_array);
        let zones: Vec<String> =
            zones.into_iter().flatten().filter_map(|zone| zone.as_str().map(str::to_owned)).collect();
        let facts = objects::NamespaceFacts {
            registration: registration(installation),
            zones: &zones,
            seed_is_garden: is_garden(&self.seed)?,
            pod_security: installation.metadata.annotations.get(POD_SECURITY_ANNOTATION).map(String::as_str),
        };
        let key = Key::new("", objects::namespace_name(&installation.metadata.name));
        write::ensure(&self.seed, &NAMESPACE, &key, |namespace| objects::label_namespace(namespace, facts))?;
        Ok(())
    }

    /// Secret first: a ManagedResource never refers to one that does not exist.
    fn write_manifests(
        &self,
        name: &str,
        registration: &str,
        data: &BTreeMap<String, String>,
    ) -> Result<(), Failure> {
        let (secret, wanted) = objects::secret(name, data);
        write::ensure(&self.seed, &SECRET, &secret, |object| objects::set_secret(object, &wanted))?;
        let key = Key::new(GARDEN_NAMESPACE, name);
        self.release_old_secrets(&key, &secret)?;
        write::ensure(&self.seed, &MANAGED_RESOURCE, &key, |object| {
            objects::set_managed_resource(object, name, registration, &secret.name);
        })?;
        Ok(())
    }

    /// Secrets that were referred to may be collected as garbage once they are not: older agents did not say so.
    fn release_old_secrets(&self, managed_resource: &Key, present: &Key) -> Result<(), Failure> {
        let live = self.seed.find::<Value>(
            &MANAGED_RESOURCE,
            &managed_resource.namespace,
            &managed_resource.name,
        )?;
        let old = live.as_ref().map(objects::referenced_secrets).unwrap_or_default();
        for secret in old.into_iter().filter(|secret| secret != present) {
            if let Some(found) = self.seed.find::<Metadata>(&SECRET, &secret.namespace, &secret.name)?
                && found.metadata.labels.get(objects::GARBAGE_LABEL).is_none_or(|value| value != "true")
            {
                let patch = json!({"metadata": {"labels": {objects::GARBAGE_LABEL: "true"}}});
                let patch = Patch::Strategic(patch);
                self.seed.patch::<Value>(&SECRET, &secret.namespace, &secret.name, "", &patch)?;
            }
        }
        Ok(())
    }
}

/// `cluster-identity` of the garden.
fn garden_identity(garden: &Garden) -> Result<String, Failure> {
    let map = garden.get::<ConfigMap>(&CONFIG_MAP, "kube-system", "cluster-identity")?;
    let identity = map.data.get("cluster-identity").cloned();
    identity.ok_or_else(|| {
        Failure::retry("config map kube-system/cluster-identity of the garden has no identity")
    })
}

fn registration(installation: &ControllerInstallation) -> &str {
    &installation.spec.registration_ref.name
}

#[cfg(test)]
mod tests {
    use super::*;

    fn installation(deployment_version: &str, deleting: bool) -> ControllerInstallation {
        serde_json::from_value(json!({
            "metadata": {"name": "ci", "deletionTimestamp": deleting.then_some("2025-01-01T00:00:00Z")},
            "spec": {
                "registrationRef": {"name": "reg"}, "seedRef": {"name": "edge-1"},
                "deploymentRef": {"name": "d", "resourceVersion": deployment_version},
            },
            "status": {"conditions": []},
        }))
        .unwrap()
    }

    #[test]
    fn conditions_that_were_not_written_bring_the_key_back() {
        let lost = || Err(kube::Error::Limited);
        let after = Ok(Outcome::After(Duration::from_secs(5)));
        let final_ones = [Ok(Outcome::Done), Err(Failure::terminal("no chart"))];
        for outcome in final_ones {
            assert!(matches!(settled(outcome, lost()), Err(Failure::Retry(_))));
        }
        assert!(matches!(settled(after, lost()), Ok(Outcome::After(_))));
        assert!(matches!(settled(Ok(Outcome::Done), Ok(())), Ok(Outcome::Done)));
        assert!(matches!(settled(Err(Failure::terminal("no chart")), Ok(())), Err(Failure::Terminal(_))));
    }

    #[test]
    fn an_installation_is_rolled_out_again_when_its_managed_resource_went_back() {
        let managed = |uid: &str, generation: u64, namespace: &str| -> Option<Watched> {
            let labels = json!({"controllerinstallation-name": "ci"});
            let metadata = json!({"name": "m", "namespace": namespace, "uid": uid, "generation": generation,
                "labels": labels});
            Some(serde_json::from_value(json!({"metadata": metadata})).unwrap())
        };
        let plain = managed("a", 2, "garden");
        let table = [
            ("new", None, plain.clone(), false),
            ("same", plain.clone(), plain.clone(), false),
            ("rolled out", plain.clone(), managed("a", 3, "garden"), false),
            ("restored", managed("a", 3, "garden"), plain.clone(), true),
            ("made anew", plain.clone(), managed("b", 2, "garden"), true),
            ("gone", plain, None, true),
            ("elsewhere", managed("a", 2, "shoot--a--b"), None, false),
        ];
        for (name, old, new, expected) in table {
            let woken = wants_rollout(old.as_ref(), new.as_ref());
            assert_eq!(woken, expected.then(|| Key::new("", "ci")), "{name}");
        }
    }

    #[test]
    fn what_wakes_the_controller() {
        let a = installation("1", false);
        let mut status_only = a.clone();
        status_only.status.conditions = vec![Condition::initial("Valid", Timestamp::from_unix(0))];
        assert!(wants_reconcile(None, &a));
        assert!(!wants_reconcile(Some(&a), &status_only));
        assert!(wants_reconcile(Some(&a), &installation("2", false)));
        assert!(wants_reconcile(Some(&a), &installation("1", true)));
    }
}
