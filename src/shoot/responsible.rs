//! Which seed is responsible for a Shoot, while it moves from one seed to another as well.
//!
//! The garden binds a Shoot to a seed in `spec.seedName`. The seed that has its control plane is in `status.seedName`. While they
//! differ, the Shoot leaves the second one. Both seeds see it then, and each part of the work belongs to one of them.

use serde_json::Value;

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

/// Whether a seed checks the health of a Shoot, and gives access to it: the one that has its control plane.
pub(crate) fn has_control_plane(status_seed_name: &str, seed: &str) -> bool {
    !status_seed_name.is_empty() && status_seed_name == seed
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn each_work_belongs_to_one_seed() {
        // Desired and present seed; who operates, whether it leaves, whether seed `a` checks its health.
        let table = [
            ("a", "", "a", false, false),
            ("a", "a", "a", false, true),
            ("b", "a", "a", true, true),
            ("b", "b", "b", false, false),
            ("a", "b", "b", true, false),
            ("", "a", "", false, true),
            ("", "", "", false, false),
        ];
        for (wanted, present, operates, is_leaving, cares) in table {
            let seed = |name: &str| if name.is_empty() { Value::Null } else { json!(name) };
            let shoot = json!({"spec": {"seedName": seed(wanted)}, "status": {"seedName": seed(present)}});
            let seeds = ShootSeeds::of(&shoot);
            let found = (seeds.operates(), seeds.is_leaving(), has_control_plane(present, "a"));
            assert_eq!(found, (operates, is_leaving, cares), "{shoot}");
        }
    }
}
