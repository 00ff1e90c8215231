//! Reports agents that do not renew their Lease.

use std::sync::PoisonError;
use std::time::Duration;

use gardenlet::api::coordination::LEASE;
use gardenlet::api::meta::Key;
use serde_json::Value;

use super::manager::Manager;
use crate::api::failure::Failure;
use crate::encoding::from_rfc3339;
use crate::json::{list, text};

/// How often the Lease of a seed is checked.
const PERIOD: Duration = Duration::from_secs(10);
/// How long an agent may be silent.
const MONITOR_PERIOD: Duration = Duration::from_secs(40);

pub fn sync(manager: &Manager, seed: &Value) -> Result<(), Failure> {
    let name = text(seed, "/metadata/name");
    let now = manager.clock.mono();
    {
        let mut looks = manager.next_looks.lock().unwrap_or_else(PoisonError::into_inner);
        let next = looks.entry(name.to_owned()).or_insert(now + PERIOD);
        if now < *next {
            return Ok(());
        }
        *next = now + PERIOD;
    }
    if list(seed, "/status/conditions").is_empty() {
        return Ok(());
    }
    let lease = manager.cluster.get(&LEASE, &Key::new("gardener-system-seed-lease", name))?;
    let renewed = lease.as_ref().and_then(|l| from_rfc3339(text(l, "/spec/renewTime")));
    if renewed.is_some_and(|at| at.plus(MONITOR_PERIOD) >= manager.clock.now()) {
        return Ok(());
    }
    let why = ("Unknown", "StatusUnknown", "Gardenlet stopped posting status updates.");
    manager.set_seed_condition(seed, "GardenletReady", why)
}
