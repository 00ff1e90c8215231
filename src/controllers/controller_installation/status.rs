//! Reports the state of an installation: the conditions `Valid` and `Installed`, and an event for a failure.

use crate::api::condition::{self, Condition, ConditionStatus, Finding};
use crate::api::gardener::{CONTROLLER_INSTALLATION, ControllerInstallation};
use crate::api::meta::{Key, ObjectMeta};
use crate::base::clock::Timestamp;
use crate::base::error::chain;
use crate::kube;
use crate::runtime::controller::{ReconcileContext, ReconcileFailure, ReconcileOutcome};
use crate::runtime::events::{Event, InvolvedObject};
use crate::runtime::write;

use super::InstallationReconciler;

/// The two conditions of this controller, as far as they are known.
#[derive(Debug)]
pub(super) struct InstallationConditions {
    now: Timestamp,
    pub(super) valid: Condition,
    pub(super) installed: Condition,
}

impl InstallationConditions {
    pub(super) fn new(old: &[Condition], now: Timestamp) -> Self {
        let load = |kind| condition::find_or_init(old, kind, now);
        Self { now, valid: load("Valid"), installed: load("Installed") }
    }

    pub(super) fn valid(&mut self, status: ConditionStatus, reason: &str, message: &str) {
        self.valid = self.valid.updated(self.now, status, Finding::new(reason, message));
    }

    pub(super) fn installed(&mut self, status: ConditionStatus, reason: &str, message: &str) {
        self.installed = self.installed.updated(self.now, status, Finding::new(reason, message));
    }
}

/// Conditions that could not be written are written in the next round. It must come soon, because an installed chart
/// has its next round in an hour.
pub(super) fn settled(
    outcome: Result<ReconcileOutcome, ReconcileFailure>,
    written: Result<(), kube::Error>,
) -> Result<ReconcileOutcome, ReconcileFailure> {
    match (outcome, written) {
        (Ok(_) | Err(ReconcileFailure::Terminal(_)), Err(e)) => Err(e.into()),
        (outcome, _) => outcome,
    }
}

impl InstallationReconciler {
    /// Emits an event with the message of a failed condition. Transient errors without a condition emit none, for
    /// example a Seed without identity or a broken connection.
    pub(super) fn tell(
        &self,
        installation: &ControllerInstallation,
        verdict: &InstallationConditions,
        cx: &ReconcileContext,
    ) {
        let InstallationConditions { valid, installed, .. } = verdict;
        let (reason, note) = if valid.status == ConditionStatus::False {
            (valid.reason.as_str(), valid.message.as_str())
        } else if installed.reason.ends_with("Failed") {
            (installed.reason.as_str(), installed.message.as_str())
        } else {
            return;
        };
        let ObjectMeta { name, uid, deletion_timestamp, .. } = &installation.metadata;
        let about = InvolvedObject { resource: &CONTROLLER_INSTALLATION, namespace: "", name, uid };
        let action = if deletion_timestamp.is_some() { "Delete" } else { "Reconcile" };
        let controller = "controllerinstallation-controller";
        cx.events.tell(
            &self.site.garden,
            &cx.clock,
            about,
            Event { controller, warning: true, reason, action, note },
        );
    }

    /// Called after success and failure. A deleted installation needs no conditions.
    pub(super) fn write_conditions(
        &self,
        key: &Key,
        installation: &ControllerInstallation,
        verdict: InstallationConditions,
    ) -> Result<(), kube::Error> {
        let old = &installation.status.conditions;
        let wanted = [verdict.valid, verdict.installed];
        match write::conditions(&self.site.garden, &CONTROLLER_INSTALLATION, key, old, &wanted) {
            Err(e) if !e.is_not_found() => {
                let (err, key) = (chain(&e), key.to_string());
                log::warn!(controller = "controllerinstallation", key = key.as_str(), err = err.as_str(); "Cannot write the conditions");
                Err(e)
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn conditions_that_were_not_written_bring_the_key_back() {
        let lost = || Err(kube::Error::Limited);
        let after = || Ok(ReconcileOutcome::After(Duration::from_secs(3_600)));
        for outcome in [Ok(ReconcileOutcome::Done), after(), Err(ReconcileFailure::terminal("no chart"))] {
            assert!(matches!(settled(outcome, lost()), Err(ReconcileFailure::Retry(_))));
        }
        let later = Err(ReconcileFailure::later(Duration::from_secs(5), "another one first"));
        assert!(matches!(settled(later, lost()), Err(ReconcileFailure::Later(..))));
        assert!(matches!(settled(after(), Ok(())), Ok(ReconcileOutcome::After(_))));
        assert!(matches!(settled(Ok(ReconcileOutcome::Done), Ok(())), Ok(ReconcileOutcome::Done)));
        assert!(matches!(
            settled(Err(ReconcileFailure::terminal("no chart")), Ok(())),
            Err(ReconcileFailure::Terminal(_))
        ));
    }
}
