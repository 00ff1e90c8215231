//! The state that the tasks of a Seed's reconciliation share, and what decides which of them are needed.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::Value;

use crate::api::gardener::{ControllerRegistration, OPERATION};
use crate::api::meta::{annotation, text};
use crate::base::clock::Mono;
use crate::base::lock::IgnorePoison;
use crate::base::sorted::SortedMap;
use crate::components::{cluster_identity, system};
use crate::controllers::Site;
use crate::extension::{EnabledExtension, ExtensionObject};
use crate::flow;
use crate::secrets::{Secrets, SecretsLocation};

use super::decide;
use super::operations::SeedOperation;

/// The state of the tasks.
pub(super) struct Work {
    pub(super) site: Arc<Site>,
    /// The seed's API server can protect objects from deletion.
    pub(super) has_policies: bool,
    /// All tasks run, not only those that check what may change without a new generation.
    pub(super) is_complete: bool,
    /// The Seed at the start of the flow.
    pub(super) live: Value,
    pub(super) zones: Vec<String>,
    /// The namespaces of the seed had their labels a few minutes ago.
    pub(super) is_labelled: bool,
    pub(super) cluster_identity: String,
    /// The generations of ManagedResources that this reconciliation has written or found correct, by name.
    pub(super) generations: SortedMap<String, i64>,
    /// Where the seed's Secrets are stored.
    pub(super) place: SecretsLocation,
    /// The Secrets that this reconciliation has requested.
    pub(super) secrets: Option<Secrets>,
    /// The Extension objects of this reconciliation.
    pub(super) wanted: Vec<EnabledExtension>,
    /// Extension objects that this reconciliation has deleted.
    pub(super) stale: Vec<ExtensionObject>,
    /// This reconciliation has found the ingress gateway and written its record.
    pub(super) has_record: bool,
}

impl Work {
    pub(super) fn registered(&self) -> Vec<Arc<ControllerRegistration>> {
        self.site.registrations.store().values()
    }

    /// Whether the configuration leaves a component to others.
    pub(super) fn lacks(&self, component: &str) -> bool {
        self.site.settings.edge.components.is_disabled(component)
    }

    /// The name of the Seed.
    pub(super) fn name(&self) -> &str {
        text(&self.live["metadata"]["name"])
    }

    /// The operation that the Seed's annotation names; empty for none.
    pub(super) fn asked(&self) -> &str {
        annotation(&self.live, OPERATION)
    }
}

/// State between reconciliations.
#[derive(Debug, Default)]
pub(super) struct SeedMemory {
    /// When all tasks were last done, and the Extension objects of that time: registrations change.
    complete: Mutex<Option<(Mono, Vec<EnabledExtension>)>>,
    /// When each of them was last found as it must be.
    seen: Mutex<SortedMap<RarelyChecked, Mono>>,
}

/// What rarely changes, and is not read again in each reconciliation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum RarelyChecked {
    /// The Seed's namespace in the garden.
    SeedNamespace,
    /// The labels of the seed's own namespaces.
    Labels,
}

/// How long that is assumed to be as it was.
const SELDOM_PERIOD: Duration = Duration::from_secs(600);

/// How long deployed objects are assumed to be correct.
const COMPLETE_PERIOD: Duration = Duration::from_secs(3_600);

impl SeedMemory {
    /// Makes the next reconciliation run all tasks.
    pub(super) fn forget(&self) {
        *self.complete.lock().ignore_poison() = None;
    }

    pub(super) fn was_seen(&self, what: RarelyChecked, now: Mono) -> bool {
        let seen = self.seen.lock().ignore_poison();
        seen.get(&what).is_some_and(|at| now < at.saturating_add(SELDOM_PERIOD))
    }

    pub(super) fn saw(&self, what: RarelyChecked, now: Mono) {
        self.seen.lock().ignore_poison().insert(what, now);
    }

    pub(super) fn is_recent(&self, now: Mono, wanted: &[EnabledExtension]) -> bool {
        let complete = self.complete.lock().ignore_poison();
        let is_recent = |(at, then): &(Mono, Vec<EnabledExtension>)| {
            now < at.saturating_add(COMPLETE_PERIOD) && then == wanted
        };
        complete.as_ref().is_some_and(is_recent)
    }

    pub(super) fn completed(&self, now: Mono, wanted: Vec<EnabledExtension>) {
        *self.complete.lock().ignore_poison() = Some((now, wanted));
    }
}

/// What decides which tasks are needed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct SeedTaskFacts {
    pub(super) is_complete: bool,
    pub(super) is_labelled: bool,
    pub(super) deploys_system: bool,
    pub(super) deploys_identity: bool,
    /// The agent installs the definitions of VerticalPodAutoscaler.
    pub(super) has_own_vpa: bool,
    pub(super) has_operation: bool,
    pub(super) has_backup: bool,
    pub(super) has_ingress_record: bool,
}

impl SeedTaskFacts {
    pub(super) fn new(work: &Work) -> Self {
        let spec = &work.live["spec"];
        Self {
            is_complete: work.is_complete,
            is_labelled: work.is_labelled,
            deploys_system: !work.lacks(system::NAME),
            deploys_identity: !work.lacks(cluster_identity::NAME),
            has_own_vpa: has_own_vpa(&work.live),
            has_operation: SeedOperation::named(work.asked()).is_some(),
            has_backup: !spec["backup"].is_null(),
            has_ingress_record: decide::manages_ingress_record(&work.live),
        }
    }

    pub(super) const fn is_complete(&self) -> bool {
        self.is_complete
    }

    pub(super) const fn writes_ingress_record(&self) -> bool {
        self.is_complete && self.has_ingress_record
    }
}

pub(super) fn has_own_vpa(seed: &Value) -> bool {
    seed["spec"]["settings"]["verticalPodAutoscaler"]["enabled"] != false
}

/// A task of the reconciliation. The clusters show nothing of it to `explain` yet.
pub(super) type Row = flow::TaskRow<Work, SeedTaskFacts, ()>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_rarely_changes_is_read_again_after_a_while() {
        let memory = SeedMemory::default();
        let at = |seconds| Mono::default().saturating_add(Duration::from_secs(seconds));
        assert!(!memory.was_seen(RarelyChecked::Labels, at(0)), "never seen");
        memory.saw(RarelyChecked::Labels, at(10));
        assert!(
            memory.was_seen(RarelyChecked::Labels, at(10)) && memory.was_seen(RarelyChecked::Labels, at(609))
        );
        assert!(
            !memory.was_seen(RarelyChecked::Labels, at(610))
                && !memory.was_seen(RarelyChecked::SeedNamespace, at(10))
        );
        memory.saw(RarelyChecked::Labels, at(610));
        assert!(memory.was_seen(RarelyChecked::Labels, at(700)));
    }
}
