//! Installations without a deployment: the agent itself serves their types, or nobody does.

use std::sync::Arc;
use std::time::Duration;

use crate::api::condition::{self, Condition, ConditionStatus, Finding};
use crate::api::gardener::{CONTROLLER_INSTALLATION, ControllerInstallation, ControllerRegistration};
use crate::api::meta::Key;
use crate::base::clock::Timestamp;
use crate::extension::hosts::{self, HostService};
use crate::runtime::controller::{ReconcileContext, ReconcileFailure, ReconcileOutcome};
use crate::runtime::events::{Event, InvolvedObject};
use crate::runtime::write;

use super::observe::registration;
use super::{InstallationReconciler, RESYNC};

/// The watches of installations and registrations are not in step.
const REGISTRATION_AGAIN: Duration = Duration::from_secs(5);
/// The reason of a condition and of an event about types that nobody serves, or two.
const UNCLEAR: &str = "HostTypesUnclear";

impl InstallationReconciler {
    /// The registration that the garden saw, or a later one, if it is known already.
    fn known_registration(
        &self,
        installation: &ControllerInstallation,
    ) -> Option<Arc<ControllerRegistration>> {
        let found = self.site.registrations.store().get(&Key::cluster(registration(installation)))?;
        let seen = &installation.spec.registration_ref.resource_version;
        (!is_behind(&found.metadata.resource_version, seen)).then_some(found)
    }

    fn service(&self, installation: &ControllerInstallation, found: &ControllerRegistration) -> HostService {
        hosts::service(installation, Some(found), &self.site.settings.edge.host_types)
    }

    /// Reports an installation that has no deployment.
    pub(super) fn without_deployment(
        &self,
        key: &Key,
        installation: &ControllerInstallation,
        cx: &ReconcileContext,
    ) -> Result<ReconcileOutcome, ReconcileFailure> {
        let Some(found) = self.known_registration(installation) else {
            return Ok(ReconcileOutcome::After(REGISTRATION_AGAIN));
        };
        let old = &installation.status.conditions;
        let Some(wanted) = conditions(&self.service(installation, &found), old, cx.clock.now()) else {
            return Ok(ReconcileOutcome::Done);
        };
        write::conditions(&self.site.garden, &CONTROLLER_INSTALLATION, key, old, &wanted)?;
        Ok(ReconcileOutcome::After(RESYNC))
    }

    /// Tells if the agent is to serve the types of an installation that has a deployment. The installation works, so that
    /// its conditions say nothing about it.
    pub(super) fn warn_of_hosts(&self, installation: &ControllerInstallation, cx: &ReconcileContext) {
        let Some(found) = self.known_registration(installation) else { return };
        let HostService::Unclear(why) = self.service(installation, &found) else { return };
        let (name, uid) = (installation.metadata.name.as_str(), installation.metadata.uid.as_str());
        log::warn!(controller = "controllerinstallation", key = name, why = why.as_str(); "It is unclear who serves a type");
        let about = InvolvedObject { resource: &CONTROLLER_INSTALLATION, namespace: "", name, uid };
        let controller = "controllerinstallation-controller";
        let event = Event { controller, warning: true, reason: UNCLEAR, action: "Reconcile", note: &why };
        cx.events.tell(&self.site.garden, &cx.clock, about, event);
    }
}

/// Whether a known version is older than one that the garden saw. The versions of a kind are numbers that grow. A finalizer changes
/// that of a registration, which the garden writes into its installations later.
fn is_behind(known: &str, seen: &str) -> bool {
    let number = |version: &str| version.parse::<u64>().ok();
    number(known).zip(number(seen)).is_some_and(|(known, seen)| known < seen)
}

/// The conditions of an installation without a deployment. None if the agent has nothing to say about it.
fn conditions(service: &HostService, old: &[Condition], now: Timestamp) -> Option<Vec<Condition>> {
    const SERVED: &str = "The agent of this seed serves the types of this registration itself.";
    let set = |kind, status, reason, message: &str| {
        condition::find_or_init(old, kind, now).updated(now, status, Finding::new(reason, message))
    };
    let (yes, no) = (ConditionStatus::True, ConditionStatus::False);
    match service {
        HostService::Others => None,
        HostService::Agent => Some(vec![
            set("Valid", yes, "RegistrationValid", SERVED),
            set("Installed", yes, "InstallationSuccessful", SERVED),
            set("Healthy", yes, "ControllerHealthy", SERVED),
            set("Progressing", no, "ControllerRolledOut", SERVED),
        ]),
        HostService::Unclear(why) => {
            Some(vec![set("Valid", no, UNCLEAR, why), set("Installed", no, "InstallationPending", why)])
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_registration_that_changed_after_its_installation_is_known() {
        for (known, seen, expected) in
            [("7", "7", false), ("9", "10", true), ("10", "9", false), ("7", "", false), ("a", "b", false)]
        {
            assert_eq!(is_behind(known, seen), expected, "{known} {seen}");
        }
    }

    #[test]
    fn what_the_garden_is_told() {
        let now = Timestamp::from_unix(1_795_352_540);
        let of = |service: &HostService| {
            let all = conditions(service, &[], now).into_iter().flatten();
            all.map(|each| format!("{} {}", each.kind, each.status)).collect::<Vec<_>>()
        };
        assert_eq!(
            of(&HostService::Agent),
            ["Valid True", "Installed True", "Healthy True", "Progressing False"]
        );
        assert_eq!(of(&HostService::Unclear("why".to_owned())), ["Valid False", "Installed False"]);
        assert!(of(&HostService::Others).is_empty());
    }
}
