//! The heartbeat: renews the seed's Lease in the garden while the seed answers (Gardener's `lease` and `seed-lease`).
//!
//! It has its own thread and connections from the start, and waits for no worker, no cache and no lock that a worker
//! may hold. [`LeaseHealth`] exports its state as plain atomics.

pub(super) mod beat;
mod condition;
mod pace;

use std::fmt;
use std::time::Duration;

use serde_json::Value;

use crate::api::coordination::{LEASE, Lease};
use crate::api::gardener::SEED;
use crate::api::meta::{Key, Metadata};
use crate::base::backoff::Backoff;
use crate::base::clock::{Clock, Mono, Timestamp};
use crate::base::error::chain;
use crate::base::json::json;
use crate::base::metrics::Metrics;
use crate::base::stop::Stop;
use crate::format::time::rfc3339_micros;
use crate::kube::{self, ErrorVerdict, Garden, Patch, Seed};
use crate::runtime::fence::{Fence, NotHeld};
use crate::runtime::health::ThreadProgress;

pub(crate) use beat::{BeatOutcome, LeaseHealth};
pub(crate) use condition::add;
use pace::HeartbeatPace;

/// Namespace of the seeds' Leases in the garden.
pub(crate) const NAMESPACE: &str = "gardener-system-seed-lease";

/// Metric: how often the Lease is renewed.
pub(crate) const INTERVAL: &str = "gardenlet_seed_lease_interval_seconds";

/// The retry delay while the Seed does not exist yet. Its registration is in progress, and the first beat must not wait
/// a whole period for it.
const UNREGISTERED_RETRY: Duration = Duration::from_millis(100);
/// The retry delay after the Seed was deleted.
const GONE_RETRY: Duration = Duration::from_secs(10);

/// The settings of the heartbeat.
#[derive(Clone, Debug)]
pub(crate) struct HeartbeatOptions {
    /// Name of the Seed, of its Lease and of the holder.
    pub(crate) seed_name: String,
    /// Field `leaseResyncSeconds` of the configuration.
    pub(crate) resync: Duration,
    /// The longest interval while renewals are slow. A value up to `resync` disables longer intervals.
    pub(crate) interval_max: Duration,
    /// Field `leaseResyncMissThreshold` of the configuration.
    pub(crate) miss_threshold: u32,
    /// The timeout of the seed's `/healthz`.
    pub(crate) probe_timeout: Duration,
    /// The timeout of one renewal.
    pub(crate) renew_timeout: Duration,
    /// `/livez` reports the thread as stuck when it has made no progress for this long.
    pub(crate) stall_timeout: Duration,
}

/// Why a heartbeat was missed.
#[derive(Debug)]
pub(crate) enum MissedBeat {
    /// The seed's API server does not answer its health check.
    Seed(kube::Error),
    /// The seed answers, but not with 200.
    Unhealthy(u16),
    /// The Lease could not be renewed.
    Lease(kube::Error),
    /// No Seed exists yet that could own the Lease; its registration is in progress.
    Unregistered,
    NotLeader(NotHeld),
}

/// The outcome of a beat for its readers.
fn outcome(result: &Result<(), MissedBeat>) -> BeatOutcome {
    match result {
        Ok(()) => BeatOutcome::Renewed,
        Err(MissedBeat::Lease(_)) => BeatOutcome::Offline,
        Err(_) => BeatOutcome::Unwell,
    }
}

impl fmt::Display for MissedBeat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Seed(_) => f.write_str("the seed's /healthz"),
            Self::Unhealthy(status) => write!(f, "the seed's /healthz answered {status}"),
            Self::Lease(_) => f.write_str("renew the seed's lease in the garden"),
            Self::Unregistered => f.write_str("the Seed is not registered yet"),
            Self::NotLeader(_) => f.write_str("not the leader"),
        }
    }
}

impl std::error::Error for MissedBeat {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Seed(source) | Self::Lease(source) => Some(source),
            Self::NotLeader(source) => Some(source),
            Self::Unhealthy(_) | Self::Unregistered => None,
        }
    }
}

/// The heartbeat of one seed. It must not share its clients.
#[derive(Debug)]
pub(crate) struct Heartbeat {
    pub(crate) options: HeartbeatOptions,
    /// The seed, over connections of the heartbeat alone.
    pub(crate) seed: Seed,
    /// The garden, over connections of the heartbeat alone.
    pub(crate) garden: Garden,
    /// The garden client of the watches. They restart when the garden was restored.
    pub(crate) watching: Garden,
    pub(crate) clock: Clock,
    /// Whether this instance leads.
    pub(crate) fence: Fence,
    /// The state for the rest of the program.
    pub(crate) beat: LeaseHealth,
    /// For `/livez`.
    pub(crate) progress: ThreadProgress,
    pub(crate) metrics: Metrics,
}

/// State of the previous beats.
#[derive(Debug, Default)]
struct PreviousBeats {
    /// The last one failed.
    failing: bool,
    beaten: bool,
    /// The Seed existed and is gone.
    gone: bool,
    /// When the seed's health was checked, if the last beat checked it successfully.
    well_at: Option<Mono>,
}

/// Whether a beat can skip the seed's health check: the seed was healthy at the last beat and has stored the leader's
/// Lease since. Never twice in a row, because a seed can store objects and still be unhealthy.
fn is_known_to_be_well(well_at: Option<Mono>, renewed_at: Option<Mono>) -> bool {
    well_at.is_some() && renewed_at > well_at
}

/// The known state of the Lease.
#[derive(Debug, Default)]
struct KnownLease {
    /// The Seed's uid, once it was read. The Lease names the Seed as its owner.
    seed_uid: Option<String>,
    /// This process has written the Lease, so one patch renews it.
    written: bool,
    /// The Lease as we last wrote it.
    lease: Option<Lease>,
}

/// Whether a server failed to answer, as opposed to a missing object.
fn is_failing(error: &kube::Error) -> bool {
    error.status_code().is_some_and(|code| code >= 500 || code == 429)
}

impl Heartbeat {
    /// Beats until `stop`. Runs on a thread of its own.
    pub(crate) fn run(&self, stop: &Stop) {
        let mut known = KnownLease::default();
        let mut past = PreviousBeats::default();
        let o = &self.options;
        let mut pace = HeartbeatPace::new(o.resync, o.interval_max, o.miss_threshold);
        let mut unregistered = Backoff::new(UNREGISTERED_RETRY, o.resync);
        self.beat.begin(self.clock.mono(), pace.threshold());
        while !stop.is_stopped() {
            let begun = self.clock.mono();
            self.progress.beat("heartbeat", self.patience());
            let result = self.once(&mut known, &mut pace, &mut past.well_at);
            if !stop.is_stopped() {
                self.report(&result, &mut past, pace.threshold());
            }
            let spent = self.clock.mono().saturating_sub(begun);
            let until_next =
                |interval: Duration| interval.saturating_sub(spent).max(Duration::from_millis(100));
            let pause = match result {
                Err(MissedBeat::Unregistered) if past.gone => GONE_RETRY.max(o.resync),
                Err(MissedBeat::Unregistered) => unregistered.next_delay(),
                // After a miss, do not wait longer than the usual interval, even on a slow link.
                Err(_) => until_next(o.resync),
                Ok(()) => until_next(self.measured(&pace)),
            };
            stop.wait(&self.clock, pause);
        }
        self.beat.pause();
        self.garden.go_first(None);
        self.progress.end("heartbeat");
    }

    /// The interval, also exported as a metric.
    fn measured(&self, pace: &HeartbeatPace) -> Duration {
        let help = "Time between two renewals of the seed's lease.";
        self.metrics.set(INTERVAL, help, &[], pace.interval().as_secs_f64());
        pace.interval()
    }

    /// Longer than the longest beat: both timeouts and the pause, twice, and the longest pause.
    fn patience(&self) -> Duration {
        let o = &self.options;
        let beat = o.probe_timeout + o.renew_timeout + o.resync.max(o.interval_max);
        (beat * 2 + GONE_RETRY).max(o.stall_timeout)
    }

    fn once(
        &self,
        known: &mut KnownLease,
        pace: &mut HeartbeatPace,
        well_at: &mut Option<Mono>,
    ) -> Result<(), MissedBeat> {
        self.may_write()?;
        if !is_known_to_be_well(well_at.take(), self.fence.renewed_at()) {
            let asked_at = self.clock.mono();
            self.probe()?;
            *well_at = Some(asked_at);
        }
        let begun = self.clock.mono();
        self.renew(known)?;
        pace.took(self.clock.mono().saturating_sub(begun));
        Ok(())
    }

    /// Checked before each write: earlier requests took time, and the client of the heartbeat has no permit.
    fn may_write(&self) -> Result<(), MissedBeat> {
        self.fence.check(self.options.renew_timeout).map_err(MissedBeat::NotLeader)
    }

    fn probe(&self) -> Result<(), MissedBeat> {
        let seed = self.seed.with_deadline(self.options.probe_timeout);
        let response = seed.get_raw("/healthz").map_err(MissedBeat::Seed)?;
        if response.status == 200 { Ok(()) } else { Err(MissedBeat::Unhealthy(response.status)) }
    }

    /// Renews the Lease, usually with one small patch.
    fn renew(&self, known: &mut KnownLease) -> Result<(), MissedBeat> {
        let garden = self.garden.with_deadline(self.options.renew_timeout);
        let name = &self.options.seed_name;
        let key = Key::new(NAMESPACE, name);
        self.may_write()?;
        if known.written {
            match self.renew_known(&garden, known, self.clock.now()) {
                // The authorizer forgets the lease together with its Seed: 403 may mean the same as 404.
                Err(e) if e.is_not_found() || e.is_denied() => *known = KnownLease::default(),
                other => return other.map_err(MissedBeat::Lease),
            }
        }
        let uid = match &known.seed_uid {
            Some(uid) => uid.clone(),
            None => match garden.find::<Metadata>(&SEED, &Key::cluster(name)) {
                Ok(seed) => seed.ok_or(MissedBeat::Unregistered)?.metadata.uid,
                // The garden's own API is unavailable, but Leases do not need it: renew an existing Lease without its
                // owner.
                Err(e) if is_failing(&e) => {
                    let patch =
                        Patch::Merge(json!({"spec": spec(name, self.options.resync, self.clock.now())}));
                    let renewed = garden.patch::<Value>(&LEASE, &key, &patch);
                    return renewed.map(drop).map_err(|_| MissedBeat::Lease(e));
                }
                Err(e) => return Err(MissedBeat::Lease(e)),
            },
        };
        // Not earlier: the first answer contains the garden's time.
        let lease = lease(name, &uid, self.options.resync, self.clock.now());
        known.seed_uid = Some(uid);
        self.may_write()?;
        match garden.create::<Value>(&LEASE, NAMESPACE, &lease) {
            Err(e) if e.is_already_exists() => {
                let patch = json!({
                    "metadata": {"ownerReferences": lease["metadata"]["ownerReferences"]},
                    "spec": lease["spec"],
                });
                let patch = Patch::Merge(patch);
                self.may_write()?;
                garden.patch::<Value>(&LEASE, &key, &patch).map_err(MissedBeat::Lease)?;
            }
            other => drop(other.map_err(MissedBeat::Lease)?),
        }
        known.written = true;
        Ok(())
    }

    /// Sends the version that we wrote: a mismatch means that another client has written the Lease, or that the garden
    /// was restored from a backup.
    fn renew_known(
        &self,
        garden: &kube::Client,
        known: &mut KnownLease,
        now: Timestamp,
    ) -> Result<(), kube::Error> {
        let name = &self.options.seed_name;
        let mut patch = json!({"spec": spec(name, self.options.resync, now)});
        if let Some(wrote) = &known.lease {
            patch["metadata"] = json!({"resourceVersion": wrote.metadata.resource_version});
        }
        let key = Key::new(NAMESPACE, name);
        let conflict = match garden.patch(&LEASE, &key, &Patch::Merge(patch)) {
            Err(e) if known.lease.is_some() && matches!(e.verdict(), ErrorVerdict::Conflict) => e,
            other => return other.map(|lease| known.lease = Some(lease)),
        };
        let found = garden.get::<Lease>(&LEASE, &key)?;
        if known.lease.take().is_some_and(|wrote| found.is_older_than(&wrote)) {
            log::warn!(seed = name.as_str(); "The seed's lease is older than our last write: the garden was restored to an older state");
            self.watching.begin_anew()?;
        }
        if self.may_write().is_err() { Err(conflict) } else { self.renew_known(garden, known, now) }
    }

    fn report(&self, result: &Result<(), MissedBeat>, past: &mut PreviousBeats, threshold: Duration) {
        let is_cut_off = matches!(result, Err(MissedBeat::Lease(error)) if error.is_cut_off());
        // The garden is unreachable: the Lease gets priority. Limited in time, because this thread may hang.
        self.garden.go_first(is_cut_off.then(|| self.clock.mono().saturating_add(threshold)));
        if matches!(result, Err(MissedBeat::Unregistered)) {
            return self.pause(past);
        }
        if std::mem::take(&mut past.gone) {
            self.beat.begin(self.clock.mono(), threshold);
        }
        past.beaten |= result.is_ok();
        self.beat.record(outcome(result), self.clock.mono(), threshold);
        self.beat.explain(result.as_ref().err().map(|missed| chain(missed)), self.clock.mono());
        let label = if result.is_ok() { "success" } else { "error" };
        self.metrics.add(
            "gardenlet_seed_lease_renewals_total",
            "Renewals of the seed's lease by result.",
            &[("result", label)],
            1.0,
        );
        match result {
            Ok(()) if past.failing => {
                past.failing = false;
                log::info!(seed = self.options.seed_name.as_str(); "Renewed the seed's lease again");
            }
            Err(missed) if !past.failing => {
                past.failing = true;
                let err = chain(missed);
                log::warn!(seed = self.options.seed_name.as_str(), err = err.as_str(); "Cannot renew the seed's lease");
            }
            _ => {}
        }
    }

    /// Handles a missing Seed. Before the first beat, its registration is in progress and has as long as any other
    /// beat. A Seed that existed was deleted: no beat is due then, and a failing probe would only restart the agent.
    fn pause(&self, past: &mut PreviousBeats) {
        let seed = self.options.seed_name.as_str();
        if !past.beaten {
            log::debug!(seed; "There is no Seed yet");
        } else if !std::mem::replace(&mut past.gone, true) {
            log::info!(seed; "The Seed is gone; its lease is not renewed");
            self.beat.end();
        }
    }
}

fn spec(seed_name: &str, resync: Duration, now: Timestamp) -> Value {
    json!({"holderIdentity": seed_name, "leaseDurationSeconds": resync.as_secs(), "renewTime": rfc3339_micros(now)})
}

fn lease(seed_name: &str, seed_uid: &str, resync: Duration, now: Timestamp) -> Value {
    json!({
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {
            "name": seed_name,
            "namespace": NAMESPACE,
            "ownerReferences": [
                {"apiVersion": "core.gardener.cloud/v1beta1", "kind": "Seed", "name": seed_name, "uid": seed_uid}
            ],
        },
        "spec": spec(seed_name, resync, now),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_that_stores_the_lease_is_checked_every_other_beat() {
        let s = |seconds: u64| Some(Duration::from_secs(seconds));
        let table = [
            ("the first beat", None, s(5), false),
            ("after one without a check, or a miss", None, s(9), false),
            ("not stored since", s(10), s(9), false),
            ("stored since", s(10), s(11), true),
            ("no leader election", s(10), None, false),
        ];
        for (name, well_at, renewed_at, expected) in table {
            assert_eq!(is_known_to_be_well(well_at, renewed_at), expected, "{name}");
        }
    }

    #[test]
    fn the_lease_is_the_one_that_the_garden_expects() {
        let now = Timestamp::from_unix(1_735_787_045).plus(Duration::from_micros(678_901));
        assert_eq!(
            lease("edge-1", "u-1", Duration::from_secs(5), now),
            json!({
                "apiVersion": "coordination.k8s.io/v1",
                "kind": "Lease",
                "metadata": {
                    "namespace": "gardener-system-seed-lease",
                    "name": "edge-1",
                    "ownerReferences": [{
                        "apiVersion": "core.gardener.cloud/v1beta1", "kind": "Seed", "name": "edge-1", "uid": "u-1",
                    }],
                },
                "spec": {
                    "holderIdentity": "edge-1",
                    "leaseDurationSeconds": 5,
                    "renewTime": "2025-01-02T03:04:05.678901Z",
                },
            })
        );
    }
}
