//! Whether the garden should have the state of a Shoot, and when the state is checked.

use std::time::Duration;

use serde_json::Value;

use crate::api::meta::text;
use crate::base::clock::{Mono, Timestamp};
use crate::shoot::ShootSeeds;
use crate::shoot::state::StateDigest;

/// The delay from the first change to the check, so that simultaneous changes are written together.
const SETTLE: Duration = Duration::from_secs(10);
/// The shortest time between two checks.
const SPACING: Duration = Duration::from_secs(30);
/// How soon to check again whether a Shoot was created or moved (as in upstream), and to write a lost event again.
pub(crate) const UNREADY: Duration = Duration::from_secs(600);
/// As in upstream: the period varies by at most this much, so that not all ShootStates are written at once.
const SPREAD_MAX: Duration = Duration::from_secs(900);

/// The decision about the ShootState of a Shoot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ShootStateDecision {
    /// This agent must not write it.
    Nothing,
    /// Check again after this time.
    Later(Duration),
    /// It must have the present state.
    Due,
}

/// Whether a Shoot whose last operation has this type and state has a state to keep, and has it on this seed. Before its first
/// operation, the type is empty.
pub(crate) fn is_ready(last: &str, state: &str) -> bool {
    match last {
        "" | "Migrate" => false,
        "Create" | "Restore" => state == "Succeeded",
        _ => true,
    }
}

/// Decides from the garden's Shoot.
pub(crate) fn decide(shoot: &Value, seed: &str) -> ShootStateDecision {
    // The seed to which a Shoot is to move has nothing of it yet, and must not overwrite what it needs.
    let is_ours = ShootSeeds::of(shoot).operates() == seed;
    if !is_ours || !shoot["metadata"]["deletionTimestamp"].is_null() {
        return ShootStateDecision::Nothing;
    }
    let last = &shoot["status"]["lastOperation"];
    if is_ready(text(&last["type"]), text(&last["state"])) {
        ShootStateDecision::Due
    } else {
        ShootStateDecision::Later(UNREADY)
    }
}

/// Whether to check now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum CheckTurn {
    Wait(Mono),
    Look,
}

/// What the garden has.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct KeptState {
    pub(crate) digest: StateDigest,
    pub(crate) at: Timestamp,
    /// The resourceVersion that was read.
    pub(crate) version: String,
    /// It has the state of machines, which must stay even if the seed does not have it.
    pub(crate) has_machines: bool,
}

/// The memory about a ShootState between two checks.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct ShootStateMemory {
    /// Something has changed, and the check is due then.
    due: Option<Mono>,
    /// The time of the last check.
    looked: Option<Mono>,
    /// The time of the next check without changes.
    next: Option<Mono>,
    /// What the garden has.
    pub(crate) known: Option<KeptState>,
    /// What the ShootState lacked at the last check, if that was reported.
    lacked: Option<StateDigest>,
}

impl ShootStateMemory {
    /// After a check. `lacked` is what the ShootState lacks, if that was reported.
    pub(crate) fn looked(at: Mono, next: Mono, known: KeptState, lacked: Option<StateDigest>) -> Self {
        Self { due: None, looked: Some(at), next: Some(next), known: Some(known), lacked }
    }

    /// Whether to report an incomplete ShootState: after each write, and when it lacks something else than before.
    pub(crate) fn is_news(&self, lacks: Option<StateDigest>, is_written: bool) -> bool {
        lacks.is_some() && (is_written || lacks != self.lacked)
    }

    /// Nothing needs to be done before that time, unless something changes. The ShootState is read again then: a migration
    /// writes it, too.
    pub(crate) fn rest(&mut self, until: Mono) {
        (self.due, self.next, self.known) = (None, Some(until), None);
    }

    /// Called for a change or when a check may be due. A failed check stays due.
    pub(crate) fn turn(&mut self, now: Mono) -> CheckTurn {
        let due = match (self.due, self.next) {
            (Some(due), _) => due,
            (None, Some(next)) if next <= now => next,
            _ => {
                let spaced = self.looked.map_or(now, |looked| looked.saturating_add(SPACING));
                now.saturating_add(SETTLE).max(spaced)
            }
        };
        self.due = Some(due);
        if due <= now { CheckTurn::Look } else { CheckTurn::Wait(due) }
    }
}

/// How much the period varies.
fn spread(period: Duration) -> Duration {
    SPREAD_MAX.min(period / 10)
}

/// Whether a ShootState of that time is written again, even if it is correct.
pub(crate) fn is_due(written: Timestamp, period: Duration, now: Timestamp) -> bool {
    // A time in the future was written while a clock was wrong.
    now < written || now.since(written) >= period.saturating_sub(spread(period))
}

/// When a ShootState of that time is checked again; `chance` (0 to 1) chooses the time.
pub(crate) fn next(written: Timestamp, period: Duration, now: Timestamp, chance: f64) -> Duration {
    let age = now.since(written);
    let until = (period.saturating_sub(spread(period))).saturating_add((2 * spread(period)).mul_f64(chance));
    // Never at once: otherwise checks without work would follow each other.
    until.saturating_sub(age).max(SPACING)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const fn s(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    const fn kept() -> KeptState {
        KeptState {
            digest: [1; 32],
            at: Timestamp::from_unix(1),
            version: String::new(),
            has_machines: false,
        }
    }

    #[test]
    fn which_states_are_kept() {
        let shoot = |change: &dyn Fn(&mut Value)| {
            let mut shoot = json!({"metadata": {}, "spec": {"seedName": "edge", "provider": {"type": "local"}},
                "status": {"lastOperation": {"type": "Reconcile", "state": "Processing"}}});
            change(&mut shoot);
            decide(&shoot, "edge")
        };
        let operation = |kind: &'static str, state: &'static str| {
            shoot(&|shoot| shoot["status"]["lastOperation"] = json!({"type": kind, "state": state}))
        };
        let later = ShootStateDecision::Later(s(600));
        let table = [
            (shoot(&|_| {}), ShootStateDecision::Due),
            (shoot(&|shoot| shoot["spec"]["seedName"] = json!("other")), ShootStateDecision::Nothing),
            (shoot(&|shoot| shoot["status"]["seedName"] = json!("edge")), ShootStateDecision::Due),
            // Before its migration, a Shoot is still where it was.
            (shoot(&|shoot| shoot["status"]["seedName"] = json!("other")), ShootStateDecision::Nothing),
            (
                shoot(&|shoot| {
                    shoot["spec"]["seedName"] = json!("other");
                    shoot["status"]["seedName"] = json!("edge");
                }),
                ShootStateDecision::Due,
            ),
            (shoot(&|shoot| shoot["spec"]["provider"]["workers"] = json!([{}])), ShootStateDecision::Due),
            (
                shoot(&|shoot| shoot["metadata"]["deletionTimestamp"] = json!("x")),
                ShootStateDecision::Nothing,
            ),
            (shoot(&|shoot| shoot["status"] = json!({})), later),
            (operation("Create", "Processing"), later),
            (operation("Create", "Failed"), later),
            (operation("Create", "Succeeded"), ShootStateDecision::Due),
            (operation("Restore", "Error"), later),
            (operation("Restore", "Succeeded"), ShootStateDecision::Due),
            (operation("Migrate", "Succeeded"), later),
            (operation("Reconcile", "Failed"), ShootStateDecision::Due),
        ];
        for (n, (found, expected)) in table.into_iter().enumerate() {
            assert_eq!(found, expected, "{n}");
        }
    }

    #[test]
    fn changes_are_gathered() {
        let mut memo = ShootStateMemory::default();
        // The first of many changes is checked ten seconds later, together with all until then.
        assert_eq!(memo.turn(s(100)), CheckTurn::Wait(s(110)));
        assert_eq!(memo.turn(s(105)), CheckTurn::Wait(s(110)));
        assert_eq!(memo.turn(s(110)), CheckTurn::Look);
        // A failed check stays due until one succeeds.
        assert_eq!(memo.turn(s(111)), CheckTurn::Look);
        let mut memo = ShootStateMemory::looked(s(111), s(20_000), kept(), None);
        assert_eq!(memo.turn(s(112)), CheckTurn::Wait(s(141)));
        assert_eq!(memo.turn(s(140)), CheckTurn::Wait(s(141)));
        assert_eq!(memo.turn(s(141)), CheckTurn::Look);
        // Without a change, a check becomes due eventually.
        let mut memo = ShootStateMemory::looked(s(141), s(20_000), kept(), None);
        assert_eq!(memo.turn(s(20_000)), CheckTurn::Look);
        let mut memo = ShootStateMemory::default();
        memo.rest(s(600));
        assert_eq!(memo.turn(s(300)), CheckTurn::Wait(s(310)));
        // While it rests, a migration may write.
        let mut memo = ShootStateMemory::looked(s(1), s(2), kept(), None);
        memo.rest(s(600));
        assert_eq!(memo.known, None);
    }

    #[test]
    fn an_incomplete_state_is_reported_once_and_with_each_write() {
        let (one, other) = (Some([2; 32]), Some([3; 32]));
        let memo = |lacks| ShootStateMemory::looked(s(1), s(2), kept(), lacks);
        for (before, lacks, is_written, expected) in [
            (None, None, true, false),
            (None, one, false, true),
            (one, one, false, false),
            (one, one, true, true),
            (one, other, false, true),
            (one, None, false, false),
        ] {
            assert_eq!(
                memo(before).is_news(lacks, is_written),
                expected,
                "{before:?} {lacks:?} {is_written}"
            );
        }
        assert!(ShootStateMemory::default().is_news(one, false));
    }

    #[test]
    fn no_change_waits_for_a_minute() {
        for change in 0..60 {
            let mut memo = ShootStateMemory::looked(s(1_000), s(20_000), kept(), None);
            let CheckTurn::Wait(until) = memo.turn(s(1_000 + change)) else { panic!("a look at once") };
            assert!(until.saturating_sub(s(1_000 + change)) <= s(30), "{change}");
        }
    }

    #[test]
    fn the_period_is_a_safety_net() {
        let (written, hours) = (Timestamp::from_unix(1_767_600_000), |hours: u64| s(3_600 * hours));
        let due = |after: Duration| is_due(written, hours(6), written.plus(after));
        assert!(!due(Duration::ZERO) && !due(hours(6) - s(901)) && due(hours(6) - s(900)) && due(hours(9)));
        assert!(is_due(written, hours(6), written.minus(s(1))));
        let next = |age: Duration, chance| next(written, hours(6), written.plus(age), chance);
        assert_eq!(next(Duration::ZERO, 0.0), hours(6) - s(900));
        assert_eq!(next(Duration::ZERO, 1.0), hours(6) + s(900));
        assert_eq!(next(hours(5), 0.0), s(2_700));
        assert_eq!(next(hours(9), 0.0), s(30));
        // Whenever it is, the check is due then.
        assert!(due(next(Duration::ZERO, 0.0)));
    }
}
