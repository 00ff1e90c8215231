//! Installed, Healthy and Progressing, from the conditions of the installation's ManagedResource (Gardener's
//! `controllerinstallation-care`).

use std::sync::Arc;
use std::time::Duration;

use crate::api::condition::{self, Condition, ConditionStatus, Finding};
use crate::api::gardener::{CONTROLLER_INSTALLATION, ControllerInstallation};
use crate::api::meta::Key;
use crate::api::resources::{GARDEN_NAMESPACE, MANAGED_RESOURCE, installation_of};
use crate::base::clock::Timestamp;
use crate::base::error::chain;
use crate::kube::{self};
use crate::resources::ManagedResourceHead;
use crate::runtime::controller::{ReconcileContext, ReconcileFailure, ReconcileOutcome, Reconciler};
use crate::runtime::group::ControllerGroup;
use crate::runtime::queue::Retry;
use crate::runtime::write;

use super::Site;

pub(crate) fn add(site: &Arc<Site>, group: &mut ControllerGroup) {
    let settings = &site.settings.controllers;
    let sync_period = settings.controller_installation_care_sync_period;
    let workers = settings.controller_installation_care_workers;
    let lane = group.lane("controllerinstallation-care", workers, Retry::up_to(sync_period));
    group.wake(&lane, &site.installations, |change| {
        let (old, new) = (change.old.as_deref(), change.new.as_deref());
        is_told_otherwise(old, new).then(|| change.key.clone())
    });
    group.wake(&lane, &site.managed, |change| wants_care(change.old.as_deref(), change.new.as_deref()));
    group.run(lane, CareReconciler { site: Arc::clone(site) });
}

/// The conditions that are written here.
const KINDS: [&str; 3] = ["Installed", "Healthy", "Progressing"];

struct CareReconciler {
    site: Arc<Site>,
}

/// Whether the garden's conditions have changed, or are seen for the first time. A decision from the cache may have
/// seen a state before our own last write, and so have found nothing to write.
fn is_told_otherwise(old: Option<&ControllerInstallation>, new: Option<&ControllerInstallation>) -> bool {
    let told = |installation: &ControllerInstallation| {
        let all = installation.status.conditions.iter();
        let told = all.filter(|c| KINDS.contains(&c.kind.as_str()));
        told.map(|c| (c.kind.clone(), c.status, c.reason.clone(), c.message.clone())).collect::<Vec<_>>()
    };
    old.is_none() || old.map(told) != new.map(told)
}

/// The installation to check after a change of a ManagedResource. `None`: there is none.
fn wants_care(old: Option<&ManagedResourceHead>, new: Option<&ManagedResourceHead>) -> Option<Key> {
    let generations = |w: &ManagedResourceHead| (w.metadata.generation, w.status.observed_generation);
    let told = match (old, new) {
        (Some(old), Some(new)) => {
            old.status.conditions != new.status.conditions || generations(old) != generations(new)
        }
        _ => true,
    };
    told.then(|| installation_of(&new.or(old)?.metadata)).flatten()
}

/// How soon to check again for a ManagedResource that does not exist yet.
const AGAIN_SOON: Duration = Duration::from_secs(1);

impl Reconciler for CareReconciler {
    fn reconcile(&self, key: &Key, cx: &ReconcileContext) -> Result<ReconcileOutcome, ReconcileFailure> {
        let Some(installation) = self.site.installations.store().get(key) else {
            return Ok(ReconcileOutcome::Done);
        };
        // Without a deployment there is no ManagedResource.
        if installation.metadata.deletion_timestamp.is_some() || installation.spec.deployment_ref.is_none() {
            return Ok(ReconcileOutcome::Done);
        }
        let read = self.managed(&key.name);
        let old = &installation.status.conditions;
        let now = cx.clock.now();
        let wanted = match &read {
            Ok(managed) => judge(managed, (self.site.remarks)().as_deref(), old, now),
            Err(e) => unreadable(&key.name, &chain(e), old, now),
        };
        write::conditions(&self.site.garden, &CONTROLLER_INSTALLATION, key, old, &wanted)?;
        match read {
            Ok(_) => Ok(ReconcileOutcome::After(
                self.site.settings.controllers.controller_installation_care_sync_period,
            )),
            Err(e) if e.is_not_found() => Ok(ReconcileOutcome::After(AGAIN_SOON)),
            Err(e) => Err(e.into()),
        }
    }
}

impl CareReconciler {
    /// An object that is missing in the informer may be new, or the informer may not be running.
    fn managed(&self, name: &str) -> Result<Arc<ManagedResourceHead>, kube::Error> {
        let key = Key::new(GARDEN_NAMESPACE, name);
        let read = || self.site.seed.get::<ManagedResourceHead>(&MANAGED_RESOURCE, &key).map(Arc::new);
        self.site.managed.store().get(&key).map_or_else(read, Ok)
    }
}

fn set(
    old: &[Condition],
    kind: &str,
    now: Timestamp,
    status: ConditionStatus,
    reason: &str,
    message: &str,
) -> Condition {
    condition::find_or_init(old, kind, now).updated(now, status, Finding::new(reason, message))
}

fn unreadable(name: &str, error: &str, old: &[Condition], now: Timestamp) -> Vec<Condition> {
    let message = format!("Failed to get ManagedResource \"{GARDEN_NAMESPACE}/{name}\": {error}");
    let unknown = |kind| set(old, kind, now, ConditionStatus::Unknown, "SeedReadError", &message);
    KINDS.map(unknown).to_vec()
}

/// The three conditions, as Gardener's `controllerinstallation-care` sets them.
fn judge(
    managed: &ManagedResourceHead,
    remark: Option<&str>,
    old: &[Condition],
    now: Timestamp,
) -> Vec<Condition> {
    let set = |kind, (status, reason, message): (ConditionStatus, &str, String)| {
        set(old, kind, now, status, reason, &message)
    };
    let installed = match applied(managed) {
        Ok(()) => {
            let message = "The controller was successfully installed in the seed cluster.";
            (ConditionStatus::True, "InstallationSuccessful", message.to_owned())
        }
        Err(why) => {
            let message = remark.map_or_else(|| why.clone(), |remark| format!("{why}. {remark}"));
            (ConditionStatus::False, "InstallationPending", message)
        }
    };
    let healthy = match expect(managed, "ResourcesHealthy", ConditionStatus::True) {
        Ok(()) => {
            let message = "The controller running in the seed cluster is healthy.";
            (ConditionStatus::True, "ControllerHealthy", message.to_owned())
        }
        Err(why) => (ConditionStatus::False, "ControllerNotHealthy", why),
    };
    let progressing = match expect(managed, "ResourcesProgressing", ConditionStatus::False) {
        Ok(()) => {
            let message = "The controller has been rolled out successfully.";
            (ConditionStatus::False, "ControllerRolledOut", message.to_owned())
        }
        Err(why) => (ConditionStatus::True, "ControllerNotRolledOut", why),
    };
    vec![set("Installed", installed), set("Healthy", healthy), set("Progressing", progressing)]
}

fn applied(managed: &ManagedResourceHead) -> Result<(), String> {
    let (observed, generation) = (managed.status.observed_generation, managed.metadata.generation);
    if observed != generation {
        let key = managed.metadata.key();
        let why = managed.apply_problem().map(|why| format!(": {why}")).unwrap_or_default();
        return Err(format!(
            "observed generation of managed resource {key} outdated ({observed}/{generation}){why}"
        ));
    }
    expect(managed, "ResourcesApplied", ConditionStatus::True)
}

fn expect(managed: &ManagedResourceHead, kind: &str, status: ConditionStatus) -> Result<(), String> {
    let key = managed.metadata.key();
    match managed.status.conditions.iter().find(|c| c.kind == kind) {
        None => Err(format!("condition {kind} for managed resource {key} has not been reported yet")),
        Some(c) if c.status == status => Ok(()),
        Some(c) => Err(format!("condition {kind} of managed resource {key} is {}: {}", c.status, c.message)),
    }
}

#[cfg(test)]
mod tests;
