//! Writes the ManagedResources of a seed's components.

use std::time::Duration;

use crate::api::meta::Key;
use crate::api::resources::GARDEN_NAMESPACE;
use crate::components::managed::{self, Managed};
use crate::flow::{Attempt, Failed, TaskStep};

use super::super::work::Work;

/// As long as upstream waits for a ManagedResource.
pub(super) const MANAGED_WITHIN: Duration = Duration::from_secs(120);
/// The applier has retried by then. Errors that only a person can fix are reported.
const APPLY_WITHIN: Duration = Duration::from_secs(10);
/// Reading a store is cheap.
const STORE_PERIOD: Duration = Duration::from_secs(1);

/// Writes a ManagedResource once in a round, then waits until its objects are healthy.
pub(super) fn deploy_and_wait(
    work: &mut Work,
    attempt: &Attempt,
    name: &str,
    fill: &dyn Fn(&Work) -> Result<Managed, Failed>,
) -> Result<TaskStep, Failed> {
    let key = Key::new(GARDEN_NAMESPACE, name);
    let found = work.site.managed.store().get(&key);
    // Not by the number of the attempt: one that met a conflict has written nothing.
    if work.generations.get(name).is_none() {
        if found.is_some_and(|found| found.apply_problem().is_some()) {
            // The applier's own backoff grows to five minutes, and the obstacle may be gone.
            managed::apply_again(&work.site.seed, &key)?;
        }
        let generation = managed::deploy(&work.site.seed, &fill(work)?)?;
        work.generations.insert(name.to_owned(), generation);
    }
    let generation = work.generations.get(name).copied().unwrap_or_default();
    let found = work.site.managed.store().get(&key);
    let why =
        found.map_or_else(|| Some("does not exist yet".to_owned()), |found| found.unhealthy(generation));
    Ok(match why {
        None => TaskStep::Done,
        Some(why) => {
            let remedy = remedy(&why);
            let why = format!("ManagedResource {key} {why}{remedy}");
            if !remedy.is_empty() && attempt.now.saturating_sub(attempt.begun) >= APPLY_WITHIN {
                return Err(Failed::new(why));
            }
            TaskStep::again(STORE_PERIOD, why)
        }
    })
}

/// The remedy for an object with an immutable field. The API server has two texts for this error.
fn remedy(why: &str) -> &'static str {
    let is_fixed = why.contains("may not be changed") || why.contains("field is immutable");
    if is_fixed {
        ": delete this object unless others need it as it is; the agent creates it again"
    } else {
        ""
    }
}
