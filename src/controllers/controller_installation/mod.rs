//! Extensions: a ControllerInstallation's chart becomes a ManagedResource of the seed (Gardener's
//! `controllerinstallation`; `-care` and `-required` are separate controllers).
//!
//! Woken by a new installation, a changed reference (the garden writes the resourceVersion of registration, deployment
//! and seed into the installation's spec), and a deletion. A success is final until then.

mod access;
mod act;
mod delete;
mod hosts;
mod inject;
mod objects;
mod observe;
pub(crate) mod preview;
mod pull;
mod render;
mod resources;
mod status;
mod typed;
mod values;

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;

use crate::api::gardener::{
    CONTROLLER_INSTALLATION, CONTROLLER_REGISTRATION, ControllerDeployment, ControllerInstallation,
    HelmDeployment, INSTALLATION_FINALIZER,
};
use crate::api::meta::{Key, Metadata};
use crate::api::resources::installation_of;
use crate::config::version::GARDENER;
use crate::resources::ManagedResourceHead;
use crate::runtime::controller::{ReconcileContext, ReconcileFailure, ReconcileOutcome, Reconciler};
use crate::runtime::group::ControllerGroup;
use crate::runtime::queue::RETRY_DEFAULT;
use crate::runtime::write;

use super::Site;
use observe::{garden_identity, registration};
use status::{InstallationConditions, settled};

/// The finalizer of installations.
pub(crate) const FINALIZER: &str = INSTALLATION_FINALIZER;
/// How often an installation is reconciled without a cause, like the resync of upstream's informers. It repairs manual
/// changes in the seed and picks up the garden's CA.
const RESYNC: Duration = Duration::from_secs(10 * 3_600);

pub(crate) fn add(site: &Arc<Site>, group: &mut ControllerGroup) {
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
    group.run(lane, InstallationReconciler { site: Arc::clone(site) });
}

struct InstallationReconciler {
    site: Arc<Site>,
}

/// Whether a change of an installation requires a reconciliation.
fn wants_reconcile(old: Option<&ControllerInstallation>, new: &ControllerInstallation) -> bool {
    old.is_none_or(|old| {
        old.metadata.deletion_timestamp.is_some() != new.metadata.deletion_timestamp.is_some()
            || old.spec != new.spec
    })
}

/// The installation to roll out again, because its ManagedResource was deleted or the seed's storage was restored to an
/// older state. Nothing changes in the garden in these cases.
fn wants_rollout(old: Option<&ManagedResourceHead>, new: Option<&ManagedResourceHead>) -> Option<Key> {
    let went_back = |old: &ManagedResourceHead| {
        new.is_none_or(|new| {
            new.metadata.uid != old.metadata.uid || new.metadata.generation < old.metadata.generation
        })
    };
    old.filter(|old| went_back(old)).and_then(|old| installation_of(&old.metadata))
}

impl Reconciler for InstallationReconciler {
    fn reconcile(&self, key: &Key, cx: &ReconcileContext) -> Result<ReconcileOutcome, ReconcileFailure> {
        let Some(installation) = self.site.installations.store().get(key) else {
            return Ok(ReconcileOutcome::Done);
        };
        if installation.spec.seed_ref.is_none() {
            return Ok(ReconcileOutcome::Done);
        }
        let is_leaving = installation.metadata.deletion_timestamp.is_some();
        if !is_leaving && installation.spec.deployment_ref.is_none() {
            return self.without_deployment(key, &installation, cx);
        }
        let deployment = if is_leaving {
            if !installation.metadata.finalizers.iter().any(|f| f == FINALIZER) {
                return Ok(ReconcileOutcome::Done);
            }
            None
        } else {
            // Other programs handle a deployment without a chart, so we set neither finalizer nor conditions.
            let Some(deployment) = self.deployment(&installation)? else { return Ok(ReconcileOutcome::Done) };
            self.warn_of_hosts(&installation, cx);
            Some(deployment)
        };
        let mut verdict = InstallationConditions::new(&installation.status.conditions, cx.clock.now());
        let result = match &deployment {
            None => delete::step(self, &installation, &mut verdict),
            Some((deployment, helm)) => self.install(&installation, deployment, helm, &mut verdict, cx),
        };
        if result.as_ref().is_err_and(|failure| failure.postponed().is_some()) {
            // The error does not concern the installation, so nothing is reported.
            return result.map(|_| ReconcileOutcome::Done);
        }
        if result.is_err() {
            self.tell(&installation, &verdict, cx);
        }
        let written = self.write_conditions(key, &installation, verdict);
        let outcome = result.and_then(|step| match step {
            delete::InstallationProgress::Finish => {
                delete::finish(self, &installation).map(|()| ReconcileOutcome::Done)
            }
            delete::InstallationProgress::Wait(after) => Ok(ReconcileOutcome::After(after)),
            delete::InstallationProgress::Installed => Ok(ReconcileOutcome::After(RESYNC)),
        });
        settled(outcome, written)
    }
}

impl InstallationReconciler {
    fn install(
        &self,
        installation: &ControllerInstallation,
        deployment: &ControllerDeployment,
        helm: &HelmDeployment,
        verdict: &mut InstallationConditions,
        cx: &ReconcileContext,
    ) -> Result<delete::InstallationProgress, ReconcileFailure> {
        let metadata = &installation.metadata;
        let key = metadata.key();
        write::finalizer(&self.site.garden, &CONTROLLER_INSTALLATION, &key, metadata, FINALIZER, true)?;
        let name = registration(installation);
        self.read::<Metadata>(&CONTROLLER_REGISTRATION, name, "ControllerRegistration", verdict)?;
        let seed = self.seed_object(verdict)?;
        let resources = self.resources(deployment, helm, verdict)?;
        self.ensure_namespace(installation, &seed)?;
        let identity = seed.pointer("/status/clusterIdentity").and_then(Value::as_str).unwrap_or_default();
        if identity.is_empty() {
            return Err(ReconcileFailure::retry("the Seed has no status.clusterIdentity yet"));
        }
        let namespace = objects::namespace_name(&key.name);
        let inject = deployment.inject_garden_kubeconfig == Some(true);
        let kubeconfig = inject.then(|| access::ensure_kubeconfig(self, &namespace)).transpose()?;
        let mix_in = values::mix_in(values::GardenerValues {
            seed: &seed,
            version: GARDENER,
            garden_identity: &garden_identity(&self.site.garden)?,
            feature_gates: &self.site.settings.feature_gates,
            generic_kubeconfig: kubeconfig.as_deref(),
        });
        let input = render::ChartInput { helm, resources, mix_in };
        let rendered = render::objects(self, installation, input, verdict, cx)?;
        let kubeconfig = kubeconfig.as_deref().filter(|_| inject::wants_kubeconfig(rendered.values()));
        let garden = access::ensure_token(self, &key.name, name, kubeconfig)?;
        let injection = inject::Injection { namespace: &namespace, seed_name: self.site.seed_name(), garden };
        let data = render::data(rendered, injection, verdict)?;
        self.apply(&key.name, name, &data, verdict)?;
        Ok(delete::InstallationProgress::Installed)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::api::condition::Condition;
    use crate::base::clock::Timestamp;

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
    fn an_installation_is_rolled_out_again_when_its_managed_resource_went_back() {
        let managed = |uid: &str, generation: u64, namespace: &str| -> Option<ManagedResourceHead> {
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
            assert_eq!(woken, expected.then(|| Key::cluster("ci")), "{name}");
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
