//! The Seed: registered from the configuration, its status kept, its seed cluster prepared (Gardener's `seed`).
//!
//! Woken by a new generation of the Seed and once per `controllers.seed.syncPeriod`. What a round does not have to change
//! it does not write: an idle seed costs the garden one read per period. Upstream writes `Processing` and `Succeeded` in
//! each period; readers look at state, generation and the agent's identity, which stay true.

mod act;
mod decide;
mod delete;
mod error;
mod observe;
pub mod register;
mod registration;
mod status;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::Value;

use crate::api::gardener::{self, SEED};
use crate::api::meta::Key;
use crate::base::clock::{Mono, Timestamp};
use crate::kube::{Garden, Seed};
use crate::runtime::controller::{Context, Failure, Outcome, Reconciler};
use crate::runtime::group::Group;
use crate::runtime::queue::Retry;

use super::Site;

pub use decide::Agent;
use decide::Phase;
pub use error::Error;
pub use registration::{Absence, Registration};

/// The finalizer of objects that Gardener looks after.
pub const FINALIZER: &str = "gardener";

/// Adds the controller.
pub fn add(site: &Site, group: &mut Group) {
    let lane = group.lane("seed", 1, Retry::up_to(RETRY_MAX));
    let own = site.own_seed();
    group.wake(&lane, &site.seeds, move |change| {
        wants_reconcile(change.old.as_deref(), own(change)?).then(|| change.key.clone())
    });
    let key = site.seed_key();
    group.wake_on(&lane, &site.certificate_changed, move || [key.clone()]);
    let settings = &site.settings;
    let reconciler = SeedReconciler {
        garden: site.garden.clone(),
        seed: site.seed.clone(),
        agent: site.agent.clone(),
        certificate_expiry: Arc::clone(&site.certificate_expiry),
        capacity: settings.resources.capacity.clone(),
        reserved: settings.resources.reserved.clone(),
        sync_period: settings.controllers.seed.sync_period,
        registration: site.registration.clone(),
        any_version: site.any_version,
        definitions_at: Mutex::default(),
        patient_until: site.clock.mono().saturating_add(DEFINITIONS_PATIENCE),
    };
    group.run(lane, reconciler);
}

/// Until when the agent's certificate is valid; the rotation replaces it.
pub(super) type CertificateExpiry = Arc<dyn Fn() -> Option<Timestamp> + Send + Sync>;

struct SeedReconciler {
    garden: Garden,
    seed: Seed,
    /// Who we are: `status.gardener`.
    agent: Agent,
    certificate_expiry: CertificateExpiry,
    /// `resources.capacity`.
    capacity: BTreeMap<String, String>,
    /// `resources.reserved`.
    reserved: BTreeMap<String, String>,
    sync_period: Duration,
    /// Which Seed is served.
    registration: Registration,
    any_version: bool,
    /// When the definitions were last made right.
    definitions_at: Mutex<Option<Mono>>,
    /// Until then definitions that are not ready are no error.
    patient_until: Mono,
}

/// After a conflicting write of others.
const CONFLICT_RETRY: Duration = Duration::from_millis(50);

/// How long definitions may take at the start.
const DEFINITIONS_PATIENCE: Duration = Duration::from_secs(30);
/// The longest delay after a failure.
const RETRY_MAX: Duration = Duration::from_secs(60);

impl Reconciler for SeedReconciler {
    fn reconcile(&self, key: &Key, cx: &Context) -> Result<Outcome, Failure> {
        let Some(live) = self.garden.find::<Value>(&SEED, "", &key.name)? else {
            return Ok(Outcome::Done);
        };
        let uid = live["metadata"]["uid"].as_str().unwrap_or_default();
        if !self.registration.is_of(uid) {
            // Somebody made it anew: it is registered first.
            return Ok(Outcome::Done);
        }
        let mut observed = self.observe(live)?;
        if observed.deleting() {
            self.registration.is_deleted(observed.live["metadata"]["uid"].as_str().unwrap_or_default());
        }
        let phase = decide::phase(&observed);
        if matches!(phase, Phase::Begin) {
            let object = decide::begun(&observed, cx.clock.now());
            match self.garden.replace_object::<Value>(&SEED, "", &key.name, "status", &object) {
                // The garden and our own heartbeat write conditions at the same time: look again.
                Err(e) if e.is_conflict() => return Ok(Outcome::After(CONFLICT_RETRY)),
                other => observed.live = other?,
            }
        }
        let result = if observed.deleting() {
            delete::step(self, key, &observed)
        } else {
            self.prepare(key, &observed, cx)
        };
        self.finish(key, &observed, &phase, result, cx)
    }
}

/// Whether a change of the Seed needs a round: a new generation, or a deletion.
fn wants_reconcile(old: Option<&gardener::Seed>, new: &gardener::Seed) -> bool {
    old.is_none_or(|old| {
        old.metadata.generation != new.metadata.generation
            || old.metadata.deletion_timestamp.is_some() != new.metadata.deletion_timestamp.is_some()
    })
}
