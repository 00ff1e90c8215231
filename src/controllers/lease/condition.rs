//! The Seed's condition `GardenletReady`: True while the heartbeat succeeds. A worker writes it on changes only, so it
//! cannot slow down the heartbeat. Remarks about a healthy seed are added to its message, which no program reads.

use std::sync::Arc;

use crate::api::condition::{self, Condition, ConditionStatus, Finding};
use crate::api::gardener::SEED;
use crate::api::meta::Key;
use crate::base::clock::Timestamp;
use crate::runtime::controller::{ReconcileContext, ReconcileFailure, ReconcileOutcome, Reconciler};
use crate::runtime::group::ControllerGroup;
use crate::runtime::queue::Retry;
use crate::runtime::write;

use crate::controllers::Site;

/// The type of the condition.
pub(crate) const GARDENLET_READY: &str = "GardenletReady";

pub(crate) fn add(site: &Arc<Site>, group: &mut ControllerGroup) {
    let resync = site.settings.controllers.seed.lease_resync;
    let lane = group.lane("seed-lease", 1, Retry::up_to(resync));
    let own = site.own_seed();
    group.wake(&lane, &site.seeds, move |change| own(change).map(|_| change.key.clone()));
    group.run(lane, ReadyCondition { site: Arc::clone(site) });
}

/// Restores the condition after another writer (the garden after missed beats, a reconciliation of the
/// Seed) has changed it.
struct ReadyCondition {
    site: Arc<Site>,
}

const MESSAGE: &str = "Gardenlet is posting ready status.";

/// The desired condition, if it differs from the present one.
fn decide(
    conditions: &[Condition],
    healthy: bool,
    remark: Option<&str>,
    now: Timestamp,
) -> Option<Condition> {
    if !healthy {
        // The garden notices it by the Lease. A dead agent could not write this condition either.
        return None;
    }
    let current = condition::find_or_init(conditions, GARDENLET_READY, now);
    let message = remark.map_or_else(|| MESSAGE.to_owned(), |remark| format!("{MESSAGE} {remark}"));
    let finding = Finding::new(GARDENLET_READY, message);
    let wanted = current.updated(now, ConditionStatus::True, finding);
    (condition::find(conditions, GARDENLET_READY) != Some(&wanted)).then_some(wanted)
}

impl Reconciler for ReadyCondition {
    fn reconcile(&self, key: &Key, cx: &ReconcileContext) -> Result<ReconcileOutcome, ReconcileFailure> {
        let Some(seed) = self.site.seeds.store().get(key) else { return Ok(ReconcileOutcome::Done) };
        let healthy = self.site.beat.is_healthy(&cx.clock);
        let remark = (self.site.remarks)();
        if let Some(wanted) = decide(&seed.status.conditions, healthy, remark.as_deref(), cx.clock.now()) {
            write::conditions(&self.site.garden, &SEED, key, &seed.status.conditions, &[wanted])?;
        }
        Ok(ReconcileOutcome::After(self.site.settings.controllers.seed.lease_resync))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ready(status: ConditionStatus, reason: &str) -> Condition {
        let then = Timestamp::from_unix(100);
        let message = "Gardenlet is posting ready status.";
        Condition::initial(GARDENLET_READY, then).updated(then, status, Finding::new(reason, message))
    }

    #[test]
    fn when_the_condition_is_written() {
        let now = Timestamp::from_unix(200);
        let good = ready(ConditionStatus::True, GARDENLET_READY);
        assert_eq!(decide(std::slice::from_ref(&good), true, None, now), None);
        assert_eq!(decide(&[], false, None, now), None);
        let other = [
            ready(ConditionStatus::Unknown, "StatusUnknown"),
            ready(ConditionStatus::Progressing, GARDENLET_READY),
        ];
        for before in other {
            let wanted = decide(std::slice::from_ref(&before), true, None, now).unwrap();
            assert_eq!((wanted.status, wanted.reason.as_str()), (ConditionStatus::True, "GardenletReady"));
            assert_eq!(wanted.last_transition_time, now);
        }
        assert!(decide(&[], true, None, now).is_some());
        let remarked =
            decide(std::slice::from_ref(&good), true, Some("Somebody else applies."), now).unwrap();
        assert_eq!(remarked.message, "Gardenlet is posting ready status. Somebody else applies.");
        assert_eq!(
            (remarked.status, remarked.last_transition_time),
            (ConditionStatus::True, good.last_transition_time)
        );
        assert_eq!(decide(std::slice::from_ref(&remarked), true, None, now).unwrap().message, good.message);
    }
}
