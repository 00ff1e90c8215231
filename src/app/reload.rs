//! Applies another configuration without restarting the process: the parts end in order and start again, and the agent
//! keeps its leases.

use std::sync::{Arc, Mutex, MutexGuard};

use crate::base::lock::IgnorePoison;
use crate::base::stop::Stop;
use crate::base::thread;
use crate::config::settings::Settings;
use crate::kube::Connection;
use crate::limits;
use crate::runtime::leader::{KeepLease, KeptLeases};

use super::clients;
use super::{AgentStatus, Environment, Error};

/// Signals for the parts between two restarts.
#[derive(Clone, Debug, Default)]
pub(super) struct RestartSignals {
    pub(super) stop: Stop,
    /// The parts restart at once, so leases are not released.
    pub(super) keep_leases: KeepLease,
}

/// The part of the status page for a configuration that was refused.
pub(super) const PART: &str = "configuration";

/// Notes that a configuration was refused, until a good one comes.
pub(super) fn refused(status: &AgentStatus, why: &str) {
    status.doing(PART, "the last good one is in use");
    status.problem(PART, &format!("{why}: correct it and reload, or the next start of the agent fails"));
}

#[derive(Debug, Default)]
struct State {
    next: Option<Arc<Settings>>,
    /// The parts could not start with the last settings.
    has_returned: bool,
    round: Option<(RestartSignals, Arc<Settings>)>,
    left: KeptLeases,
}

/// Receives the settings to use from now on. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Reloader(Arc<Mutex<State>>);

impl Reloader {
    /// Without a pending change.
    pub fn new() -> Self {
        Self::default()
    }

    /// Restarts the parts with these settings. If that start fails, the agent returns to the present settings.
    pub fn offer(&self, settings: Arc<Settings>) {
        let round = {
            let mut state = self.lock();
            let round = state.round.as_ref().map(|(round, present)| {
                round.keep_leases.want(has_same_leases(present, &settings));
                round.clone()
            });
            (state.next, state.has_returned) = (Some(settings), false);
            round
        };
        if let Some(round) = round {
            round.stop.stop();
        }
    }

    /// Starts a round with `settings`.
    pub(super) fn begin(&self, settings: &Arc<Settings>, stop: &Stop) -> RestartSignals {
        let mut state = self.lock();
        let round = RestartSignals { stop: stop.child(), keep_leases: KeepLease::new(stop, &state.left) };
        if state.next.is_some() {
            round.stop.stop();
        }
        state.round = Some((round.clone(), Arc::clone(settings)));
        round
    }

    /// No round follows: leases that the last round kept are released.
    pub(super) fn end(&self) {
        let left = self.lock().left.clone();
        left.give_back();
    }

    /// The parts could not start with the settings of the last offer, and have started with those before.
    pub(super) fn returned(&self) {
        self.lock().has_returned = true;
    }

    /// Whether the settings in use are not those of the last offer.
    pub(super) fn has_returned(&self) -> bool {
        self.lock().has_returned
    }

    /// The settings that were offered.
    pub(super) fn take(&self) -> Option<Arc<Settings>> {
        self.lock().next.take()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Plain values: a panic does not leave them half changed.
        self.0.lock().ignore_poison()
    }
}

/// A stop that is pulled some time after the main stop, and makes the agent release its leases even if a part still
/// runs. That part can no longer write: its clients refuse to, and their connections are shut.
pub(super) fn late(env: &Environment) -> Stop {
    let (late, clock) = (Stop::new(), env.clock.clone());
    let pulled = late.clone();
    env.stop.on_stop(move || {
        let body = move || {
            pulled.wait(&clock, limits::PARTS_END_TIME_MAX);
            pulled.stop();
        };
        // Detached: the thread ends with the agent.
        if thread::spawn("late", limits::SMALL_STACK_BYTES, body).is_err() {
            log::warn!(
                "No thread for a timely release of leases; they are released when all parts have ended"
            );
        }
    });
    late
}

/// Whether the next round uses the same leases and may keep them.
fn has_same_leases(old: &Settings, new: &Settings) -> bool {
    old.leader_election == new.leader_election
        && old.edge.state_dir == new.edge.state_dir
        && old.edge.resource_manager.is_here() == new.edge.resource_manager.is_here()
        && old.seed_client_connection.kubeconfig == new.seed_client_connection.kubeconfig
}

/// The content of the kubeconfig files, to detect changes. Files that they refer to are read at each handshake.
#[derive(Debug, PartialEq)]
pub(super) struct Files {
    seed: Connection,
    garden: Option<Connection>,
}

impl Files {
    /// Reads the files. Errors: a file cannot be read.
    pub(super) fn read(settings: &Settings, env: &Environment) -> Result<Self, Error> {
        let garden = settings.garden_client_connection.connection.kubeconfig.as_deref();
        Ok(Self {
            seed: clients::seed_connection(settings, env)?,
            garden: garden.map(|path| clients::load("garden", path)).transpose()?,
        })
    }
}

/// Whether the parts must restart: always, unless only log settings differ.
pub(super) fn needs_restart(old: &Settings, new: &Settings) -> bool {
    let mut same = new.clone();
    (same.log_level, same.log_format) = (old.log_level, old.log_format);
    if let Some(document) = same.document.as_object_mut() {
        for key in ["logLevel", "logFormat"] {
            document.insert(key.to_owned(), old.document[key].clone());
        }
    }
    same != *old
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config;

    fn settings(more: &str) -> Arc<Settings> {
        let credentials = "{apiVersion: v1, kind: Secret, namespace: garden, name: d}";
        let text = format!(
            "apiVersion: gardenlet.config.gardener.cloud/v1alpha1\nkind: GardenletConfiguration\nseedConfig:\n  metadata: {{name: edge-1}}\n  spec:\n    provider: {{type: local, region: north}}\n    \
             networks: {{pods: 10.51.0.0/16, services: 10.52.0.0/16}}\n    dns:\n      provider: {{type: local, \
             credentialsRef: {credentials}}}\n      internal: {{type: local, domain: i.example.org, credentialsRef: \
             {credentials}}}\n    ingress: {{domain: i.example.org, controller: {{kind: nginx}}}}\n{more}\n"
        );
        Arc::new(config::load(&text, "c.yaml").unwrap().settings)
    }

    #[test]
    fn log_settings_change_in_place_and_all_others_by_a_restart() {
        let old = settings("");
        let table = [
            ("", false, true),
            ("logLevel: debug\nlogFormat: text", false, true),
            ("edge: {workers: 4}", true, true),
            ("seedClientConnection: {kubeconfig: /k}", true, false),
            ("edge: {stateDir: /state}", true, false),
            ("edge: {resourceManager: External}", true, false),
            ("edge: {resourceManager: Embedded}", true, true),
            ("leaderElection: {resourceName: other}", true, false),
        ];
        for (more, restart, same_leases) in table {
            let new = settings(more);
            assert_eq!(
                (needs_restart(&old, &new), has_same_leases(&old, &new)),
                (restart, same_leases),
                "{more}"
            );
        }
    }

    #[test]
    fn offered_settings_end_the_current_or_next_round() {
        let (reloader, stop) = (Reloader::new(), Stop::new());
        let first = reloader.begin(&settings(""), &stop);
        reloader.offer(settings("edge: {workers: 4}"));
        assert!(first.stop.is_stopped() && first.keep_leases.is_wanted() && !stop.is_stopped());
        assert!(reloader.begin(&settings(""), &stop).stop.is_stopped(), "it was not taken yet");
        assert_eq!(reloader.take().unwrap().edge.workers, 4);
        let last = reloader.begin(&settings(""), &stop);
        assert!(!last.stop.is_stopped() && reloader.take().is_none());
        reloader.offer(settings("edge: {stateDir: /state}"));
        assert!(!last.keep_leases.is_wanted());
    }
}
