//! The work of gardener-controller-manager and gardener-scheduler. It looks at everything after each change and regularly.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use gardenlet::api::gardener::SEED;
use gardenlet::api::meta::{ALL_NAMESPACES, Key};
use gardenlet::base::clock::{Clock, Mono};
use gardenlet::base::stop::Stop;
use gardenlet::base::thread;
use serde_json::{Value, json};

use super::port::Cluster;
use super::scheduler::{self, Strategy};
use super::{approver, buckets, installations, lifecycle, moving, namespaces, projects, shoots};
use crate::api::failure::Failure;
use crate::api::store::{Store, rest};
use crate::api::write::Patch;
use crate::encoding::rfc3339;
use crate::json::list;

/// The parts that run; all by default.
#[derive(Clone, Debug)]
pub struct Share {
    /// Requests of agents are approved.
    pub approver: bool,
    /// `seed-<name>` is made and filled.
    pub namespaces: bool,
    /// Silent agents and failing buckets are reported.
    pub lifecycle: bool,
    /// ControllerInstallations are created and deleted, and ExtensionsReady is updated.
    pub installations: bool,
    /// Projects get their namespace.
    pub projects: bool,
    /// Shoots keep a finalizer while they need extensions, and get the label with their status.
    pub shoots: bool,
    /// Shoots that move get their constraint, and their ShootState stays.
    pub moving: bool,
    /// Shoots are bound to Seeds, by this strategy.
    pub scheduler: Option<Strategy>,
}

impl Default for Share {
    fn default() -> Self {
        Self {
            approver: true,
            namespaces: true,
            lifecycle: true,
            installations: true,
            projects: true,
            shoots: true,
            moving: true,
            scheduler: Some(Strategy::SameRegion),
        }
    }
}

impl Share {
    pub fn none() -> Self {
        Self {
            approver: false,
            namespaces: false,
            lifecycle: false,
            installations: false,
            projects: false,
            shoots: false,
            moving: false,
            scheduler: None,
        }
    }
}

/// What the parts work with.
pub struct Manager {
    pub cluster: Box<dyn Cluster>,
    pub clock: Clock,
    share: Mutex<Share>,
    stopping: Stop,
    /// Next look at the lease of a seed.
    pub next_looks: Mutex<BTreeMap<String, Mono>>,
}

impl Manager {
    pub fn now(&self) -> String {
        rfc3339(self.clock.now())
    }

    /// Writes a condition of a Seed if it changes. The list is merged by type, as several write to it.
    pub fn set_seed_condition(
        &self,
        seed: &Value,
        kind: &str,
        (status, reason, message): (&str, &str, &str),
    ) -> Result<(), Failure> {
        let old = list(seed, "/status/conditions").iter().find(|c| c["type"] == kind);
        let same = |key: &str, value: &str| old.is_some_and(|c| c[key] == value);
        if same("status", status) && same("reason", reason) && same("message", message) {
            return Ok(());
        }
        let now = self.now();
        let transition = if same("status", status) {
            old.unwrap()["lastTransitionTime"].clone()
        } else {
            now.clone().into()
        };
        let condition = json!({"type": kind, "status": status, "reason": reason, "message": message,
            "lastTransitionTime": transition, "lastUpdateTime": now});
        let patch = Patch::Strategic(json!({"status": {"conditions": [condition]}}));
        self.cluster.patch(&SEED, &Key::of(seed), "status", &patch).map(drop)
    }
}

/// The shortest pause between two rounds.
const ROUND_MIN: Duration = Duration::from_millis(3);

/// The running manager.
pub struct Running {
    pub manager: Arc<Manager>,
    store: Store,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Running {
    /// Starts it. Changes of `store` wake it; objects elsewhere are read every `period` (real time).
    pub fn start(
        cluster: Box<dyn Cluster>,
        clock: &Clock,
        store: &Store,
        share: Share,
        period: Duration,
    ) -> Self {
        let manager = Arc::new(Manager {
            cluster,
            clock: clock.clone(),
            share: Mutex::new(share),
            stopping: Stop::new(),
            next_looks: Mutex::default(),
        });
        let (running, waking, real) = (manager.clone(), store.clone(), Clock::system());
        let thread = thread::spawn("garden-manager", 1 << 20, move || {
            while !running.stopping.is_stopped() {
                let (revision, began) = (waking.read().revision, real.mono());
                // After a failure (the object changed, the server is down) the next round tries again.
                let _ = sync(&running);
                rest(&running.stopping, began, ROUND_MIN);
                waking.wait_after(revision, period);
            }
        });
        Self { manager, store: store.clone(), thread: Mutex::new(Some(thread.unwrap())) }
    }

    /// Changes what is done.
    pub fn set_share(&self, share: Share) {
        *self.manager.share.lock().unwrap_or_else(PoisonError::into_inner) = share;
        self.store.wake();
    }

    pub fn stop(&self) {
        self.manager.stopping.stop();
        self.store.wake();
        if let Some(thread) = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take() {
            let _ = thread.join();
        }
    }
}

fn sync(manager: &Manager) -> Result<(), Failure> {
    let share = manager.share.lock().unwrap_or_else(PoisonError::into_inner).clone();
    let approved = if share.approver { approver::sync(manager) } else { Ok(()) };
    let seeds = manager.cluster.list(&SEED, ALL_NAMESPACES)?;
    for seed in &seeds {
        if share.namespaces {
            namespaces::sync(manager, seed)?;
        }
        if share.lifecycle {
            lifecycle::sync(manager, seed)?;
        }
    }
    if share.lifecycle {
        buckets::sync(manager, &seeds)?;
    }
    if share.installations {
        installations::sync(manager, &seeds)?;
    }
    if share.projects {
        projects::sync(manager)?;
    }
    if share.shoots {
        shoots::sync(manager)?;
    }
    if share.moving {
        moving::sync(manager, &seeds)?;
    }
    if let Some(strategy) = share.scheduler {
        scheduler::sync(manager, strategy)?;
    }
    approved
}
