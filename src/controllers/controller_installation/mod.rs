//! Extensions: a ControllerInstallation's chart becomes a ManagedResource of the seed (Gardener's
//! `controllerinstallation`, with `-care` and `-required` beside it).
//!
//! Woken by a new installation, a changed reference (the garden writes the resourceVersion of registration, deployment and
//! seed into the installation's spec), and a deletion. Success is final until then.

mod care;
mod delete;
mod inject;
mod objects;
mod render;
mod required;
mod values;

use std::collections::BTreeMap;
use std::fmt;

use serde_json::Value;

use crate::api::condition::{self, Condition, Finding, Status};
use crate::api::core::{CONFIG_MAP, ConfigMap, NAMESPACE, SECRET};
use crate::api::gardener::{
    CONTROLLER_DEPLOYMENT, CONTROLLER_INSTALLATION, CONTROLLER_REGISTRATION, ControllerDeployment,
    ControllerInstallation, SEED,
};
use crate::api::meta::{Key, Metadata};
use crate::api::resources::MANAGED_RESOURCE;
use crate::base::clock::Timestamp;
use crate::base::error::chain;
use crate::chart::child::Renderer;
use crate::kube::{self, Garden, Seed};
use crate::runtime::controller::{Context, Failure, Outcome, Reconciler};
use crate::runtime::store::Store;
use crate::runtime::write;

pub use care::CareReconciler;
pub use required::{ExistingTypes, RequiredReconciler, TypesReconciler, kinds};

/// The finalizer of installations.
pub const FINALIZER: &str = "core.gardener.cloud/controllerinstallation";
const POD_SECURITY_ANNOTATION: &str = "security.gardener.cloud/pod-security-enforce";

/// The controller.
pub struct InstallationReconciler {
    /// The garden.
    pub garden: Garden,
    /// The seed.
    pub seed: Seed,
    /// Installations of this seed.
    pub installations: Store<ControllerInstallation>,
    /// Name of the Seed.
    pub seed_name: String,
    /// Gardener's version, as in `status.gardener.version`.
    pub version: String,
    /// Every known gate.
    pub feature_gates: BTreeMap<String, bool>,
    /// Renders charts.
    pub renderer: Renderer,
    /// Whether the seed cluster runs a garden of its own.
    pub seed_is_garden: fn(&kube::Client) -> Result<bool, kube::Error>,
}

impl fmt::Debug for InstallationReconciler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InstallationReconciler").field("seed_name", &self.seed_name).finish_non_exhaustive()
    }
}

/// Whether a change of an installation needs a round.
pub fn wants_reconcile(old: Option<&ControllerInstallation>, new: &ControllerInstallation) -> bool {
    old.is_none_or(|old| {
        old.metadata.deletion_timestamp.is_some() != new.metadata.deletion_timestamp.is_some()
            || old.spec != new.spec
    })
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
    fn name(&self) -> &'static str {
        "controllerinstallation"
    }

    fn reconcile(&self, key: &Key, cx: &Context) -> Result<Outcome, Failure> {
        let Some(installation) = self.installations.get(key) else { return Ok(Outcome::Done) };
        if installation.spec.seed_ref.is_none() {
            return Ok(Outcome::Done);
        }
        let mut verdict = Verdict::new(&installation.status.conditions, cx.clock.now());
        let deleting = installation.metadata.deletion_timestamp.is_some();
        let result = if deleting {
            delete::step(self, &installation, &mut verdict, cx)
        } else {
            self.install(&installation, &mut verdict, cx)
        };
        let written = self.write_conditions(key, &installation, verdict);
        let outcome = result.and_then(|step| match step {
            delete::Step::Finish => delete::finish(self, &installation, cx).map(|()| Outcome::Done),
            delete::Step::Wait(after) => Ok(Outcome::After(after)),
            delete::Step::Done => Ok(Outcome::Done),
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
        verdict: &mut Verdict,
        cx: &Context,
    ) -> Result<delete::Step, Failure> {
        let name = &installation.metadata.name;
        cx.may_write()?;
        let finalizers = installation.metadata.finalizers.as_slice();
        let read = (finalizers, installation.metadata.resource_version.as_str());
        let key = installation.metadata.key();
        write::finalizer(&self.garden, &CONTROLLER_INSTALLATION, &key, read, FINALIZER, true)?;
        self.read::<Metadata>(&CONTROLLER_REGISTRATION, registration(installation), "Registration", verdict)?;
        let seed = self.seed_object(verdict)?;
        let Some(deployment) = self.deployment(installation)? else { return Ok(delete::Step::Done) };
        let Some(helm) = &deployment.helm else { return Ok(delete::Step::Done) };
        self.ensure_namespace(installation, &seed, cx)?;
        let identity = seed.pointer("/status/clusterIdentity").and_then(Value::as_str).unwrap_or_default();
        if identity.is_empty() {
            return Err(Failure::retry("the Seed has no status.clusterIdentity yet"));
        }
        let garden_identity = self.garden_identity()?;
        let facts = values::Facts {
            seed: &seed,
            version: &self.version,
            garden_identity: &garden_identity,
            feature_gates: &self.feature_gates,
        };
        let values = values::chart_values(&helm.values, facts).map_err(|why| {
            verdict.valid(Status::False, "ChartInformationInvalid", &why);
            Failure::terminal(why)
        })?;
        let data = render::manifests(self, installation, &deployment, helm, &values, verdict, cx)?;
        cx.may_write()?;
        self.write_manifests(name, registration(installation), &data).inspect_err(|e| {
            let message = format!("Creation of ManagedResource \"{name}\" failed: {}", e.text());
            verdict.installed(Status::False, "InstallationFailed", &message);
        })?;
        if verdict.installed.status == Status::Unknown {
            let message = format!("Installation of ManagedResource \"{name}\" is still pending.");
            verdict.installed(Status::False, "InstallationPending", &message);
        }
        Ok(delete::Step::Done)
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
            let (status, suffix) =
                if e.is_not_found() { (Status::False, "NotFound") } else { (Status::Unknown, "ReadError") };
            verdict.valid(
                status,
                &format!("{what}{suffix}"),
                &format!("Referenced {what} could not be read: {}", chain(&e)),
            );
            e.into()
        })
    }

    fn seed_object(&self, verdict: &mut Verdict) -> Result<Value, Failure> {
        self.read(&SEED, &self.seed_name, "Seed", verdict)
    }

    fn deployment(
        &self,
        installation: &ControllerInstallation,
    ) -> Result<Option<ControllerDeployment>, Failure> {
        let Some(reference) = &installation.spec.deployment_ref else { return Ok(None) };
        Ok(Some(self.garden.get(&CONTROLLER_DEPLOYMENT, "", &reference.name)?))
    }

    fn ensure_namespace(
        &self,
        installation: &ControllerInstallation,
        seed: &Value,
        cx: &Context,
    ) -> Result<(), Failure> {
        let zones = seed.pointer("/spec/provider/zones").and_then(Value::as_array);
        let zones: Vec<String> =
            zones.into_iter().flatten().filter_map(|zone| zone.as_str().map(str::to_owned)).collect();
        let facts = objects::NamespaceFacts {
            registration: registration(installation),
            zones: &zones,
            seed_is_garden: (self.seed_is_garden)(&self.seed)?,
            pod_security: installation.metadata.annotations.get(POD_SECURITY_ANNOTATION).map(String::as_str),
        };
        cx.may_write()?;
        let key = Key::new("", objects::namespace_name(&installation.metadata.name));
        write::ensure(&self.seed, &NAMESPACE, &key, |namespace| objects::label_namespace(namespace, facts))?;
        Ok(())
    }

    fn garden_identity(&self) -> Result<String, Failure> {
        let map = self.garden.get::<ConfigMap>(&CONFIG_MAP, "kube-system", "cluster-identity")?;
        let identity = map.data.get("cluster-identity").cloned();
        identity.ok_or_else(|| {
            Failure::retry("config map kube-system/cluster-identity of the garden has no identity")
        })
    }

    /// Secret first: a ManagedResource never refers to one that does not exist.
    fn write_manifests(
        &self,
        name: &str,
        registration: &str,
        data: &BTreeMap<String, String>,
    ) -> Result<(), Failure> {
        let size = objects::data_bytes(data);
        if size > objects::SECRET_DATA_BYTES_MAX {
            let max = objects::SECRET_DATA_BYTES_MAX;
            let why = format!(
                "the rendered manifests have {size} bytes; a Secret holds at most {max}: split the chart"
            );
            return Err(Failure::terminal(why));
        }
        let (secret, object) = objects::secret(name, data);
        match self.seed.create::<Value>(&SECRET, &secret.namespace, &object) {
            // Its name is its content, and it is immutable.
            Err(e) if e.is_already_exists() => {}
            other => drop(other?),
        }
        let key = Key::new(objects::GARDEN_NAMESPACE, name);
        write::ensure(&self.seed, &MANAGED_RESOURCE, &key, |object| {
            objects::set_managed_resource(object, name, registration, &secret.name);
        })?;
        Ok(())
    }
}

fn registration(installation: &ControllerInstallation) -> &str {
    &installation.spec.registration_ref.name
}

#[cfg(test)]
mod tests {
    use serde_json::json;

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
        let after = Ok(Outcome::After(std::time::Duration::from_secs(5)));
        let final_ones = [Ok(Outcome::Done), Err(Failure::terminal("no chart"))];
        for outcome in final_ones {
            assert!(matches!(settled(outcome, lost()), Err(Failure::Retry(_))));
        }
        assert!(matches!(settled(after, lost()), Ok(Outcome::After(_))));
        assert!(matches!(settled(Ok(Outcome::Done), Ok(())), Ok(Outcome::Done)));
        assert!(matches!(settled(Err(Failure::terminal("no chart")), Ok(())), Err(Failure::Terminal(_))));
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
