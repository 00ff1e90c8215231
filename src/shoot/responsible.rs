//! Which seed is responsible for a Shoot, while it moves from one seed to another as well.
//!
//! The garden binds a Shoot to a seed in `spec.seedName`. The seed that has its control plane is in `status.seedName`. While they
//! differ, the Shoot leaves the second one. Both seeds see it then, and each part of the work belongs to one of them.

use serde_json::Value;

use crate::api::gardener::ShootHead;
use crate::api::meta::text;

/// The seeds of a Shoot; empty if unknown.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct ShootSeeds<'a> {
    /// To which the garden has bound it.
    wanted: &'a str,
    /// That has its control plane.
    present: &'a str,
}

impl<'a> ShootSeeds<'a> {
    pub(crate) fn of(shoot: &'a Value) -> Self {
        Self { wanted: text(&shoot["spec"]["seedName"]), present: text(&shoot["status"]["seedName"]) }
    }

    /// It is bound to another seed than the one that has its control plane.
    pub(crate) fn is_leaving(self) -> bool {
        !self.wanted.is_empty() && !self.present.is_empty() && self.wanted != self.present
    }

    /// Runs operations on it and keeps its ShootState: the seed that it leaves, until nothing of it is left there.
    pub(crate) fn operates(self) -> &'a str {
        if self.is_leaving() { self.present } else { self.wanted }
    }
}

impl<'a> ShootSeeds<'a> {
    /// How the Shoot moves, as this seed sees it. Kind and state are those of its last operation.
    pub(crate) fn moves(self, seed: &str, kind: &str, state: &str) -> Option<ShootMove<'a>> {
        let is_unrestored = kind == "Migrate" || kind == "Restore" && state != "Succeeded";
        match self {
            _ if self.is_leaving() && self.present == seed => Some(ShootMove::To(self.wanted)),
            _ if self.wanted != seed => None,
            _ if self.is_leaving() => Some(ShootMove::From(self.present)),
            _ => is_unrestored.then_some(ShootMove::Here),
        }
    }
}

/// How a Shoot moves, as one of its seeds sees it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ShootMove<'a> {
    /// It leaves for this seed.
    To(&'a str),
    /// It comes from this seed, which works on it until nothing of it is left there.
    From(&'a str),
    /// No other seed has it any more, and it is restored.
    Here,
}

impl<'a> ShootMove<'a> {
    pub(crate) fn of(shoot: &'a ShootHead, seed: &str) -> Option<Self> {
        let (status, last) = (&shoot.status, shoot.status.last_operation.as_ref());
        let seeds = ShootSeeds { wanted: &shoot.spec.seed_name, present: &status.seed_name };
        seeds.moves(seed, last.map_or("", |last| &last.kind), last.map_or("", |last| &last.state))
    }

    /// The direction, for programs.
    pub(crate) const fn direction(self) -> &'static str {
        match self {
            Self::To(_) => "leaving",
            Self::From(_) | Self::Here => "arriving",
        }
    }

    /// The same for people.
    pub(crate) fn words(self) -> String {
        match self {
            Self::To(seed) => format!("leaves for seed {seed}"),
            Self::From(seed) => format!("comes from seed {seed}"),
            Self::Here => "is restored after its move".to_owned(),
        }
    }
}

/// Whether a seed checks the health of a Shoot, and gives access to it: the one that has its control plane.
pub(crate) fn has_control_plane(status_seed_name: &str, seed: &str) -> bool {
    !status_seed_name.is_empty() && status_seed_name == seed
}

/// Whether another seed has the control plane of a Shoot.
pub(crate) fn has_control_plane_elsewhere(status_seed_name: &str, seed: &str) -> bool {
    !status_seed_name.is_empty() && status_seed_name != seed
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn each_work_belongs_to_one_seed() {
        // Desired and present seed; who operates, whether it leaves, whether seed `a` checks its health, whether another one does.
        let table = [
            ("a", "", "a", false, [false, false]),
            ("a", "a", "a", false, [true, false]),
            ("b", "a", "a", true, [true, false]),
            ("b", "b", "b", false, [false, true]),
            ("a", "b", "b", true, [false, true]),
            ("", "a", "", false, [true, false]),
            ("", "", "", false, [false, false]),
        ];
        for (wanted, present, operates, is_leaving, cares) in table {
            let seed = |name: &str| if name.is_empty() { Value::Null } else { json!(name) };
            let shoot = json!({"spec": {"seedName": seed(wanted)}, "status": {"seedName": seed(present)}});
            let seeds = ShootSeeds::of(&shoot);
            let planes = [has_control_plane(present, "a"), has_control_plane_elsewhere(present, "a")];
            let found = (seeds.operates(), seeds.is_leaving(), planes);
            assert_eq!(found, (operates, is_leaving, cares), "{shoot}");
        }
    }

    #[test]
    fn a_move_is_seen_from_both_seeds() {
        let (to, from) = (Some(ShootMove::To("b")), Some(ShootMove::From("a")));
        let here = Some(ShootMove::Here);
        // Desired and present seed, last operation; how seeds `a` and `b` see it.
        let table = [
            ("a", "", "Create", "Processing", None, None),
            ("a", "a", "Reconcile", "Succeeded", None, None),
            ("b", "a", "Reconcile", "Succeeded", to, from),
            ("b", "a", "Migrate", "Processing", to, from),
            ("b", "b", "Migrate", "Succeeded", None, here),
            ("b", "b", "Restore", "Error", None, here),
            ("b", "b", "Restore", "Succeeded", None, None),
            ("b", "b", "Reconcile", "Succeeded", None, None),
            // Bound to its seed again before it had left.
            ("a", "a", "Migrate", "Error", here, None),
        ];
        for (wanted, present, kind, state, seen_by_a, seen_by_b) in table {
            let last = json!({"type": kind, "state": state});
            let status = json!({"seedName": present, "lastOperation": last});
            let shoot = serde_json::from_value(json!({"spec": {"seedName": wanted}, "status": status}));
            let shoot: ShootHead = shoot.unwrap();
            let found = (ShootMove::of(&shoot, "a"), ShootMove::of(&shoot, "b"));
            assert_eq!(found, (seen_by_a, seen_by_b), "{shoot:?}");
        }
    }
}
