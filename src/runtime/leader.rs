//! Leader election over a Lease of the seed, like client-go: based on changes that this process has seen on its own
//! monotonic clock, never on the timestamps of others.
//!
//! The holder id is stable per instance, so that a restarted process recognizes its own lease and continues at once.
//! Updates are PUTs with a resourceVersion, because the agent's role does not allow patches of leases. The [`Fence`]
//! holds the result.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::Value;

use crate::api::coordination::{LEASE, Lease};
use crate::api::meta::Key;
use crate::base::clock::{Clock, Mono};
use crate::base::error::chain;
use crate::base::json::json;
use crate::base::lock::IgnorePoison;
use crate::base::metrics::Metrics;
use crate::base::stop::Stop;
use crate::format::time::rfc3339_micros;
use crate::kube::{Client, Error, ErrorVerdict};
use crate::limits;

use super::fence::Fence;

/// The location and the timing of the Lease.
#[derive(Clone, Debug)]
pub(crate) struct Options {
    /// Namespace of the Lease.
    pub(crate) namespace: String,
    /// Name of the Lease.
    pub(crate) name: String,
    /// Our holder id: stable across restarts, and different from every other process.
    pub(crate) holder: String,
    /// How long others must see no change before they take over.
    pub(crate) lease_duration: Duration,
    /// How long we try to renew before we stop leading.
    pub(crate) renew_deadline: Duration,
    /// Time between two tries to acquire it.
    pub(crate) retry_period: Duration,
    /// Time between two renewals. Not shorter than `retry_period`.
    pub(crate) renew_period: Duration,
    /// What happens to the Lease at the end.
    pub(crate) keep: KeepLease,
}

/// Whether a Lease is kept at the end of its elector, because a new one starts at once. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(crate) struct KeepLease {
    wanted: Arc<AtomicBool>,
    ended: Stop,
    left: KeptLeases,
}

impl KeepLease {
    /// Leases are released, unless [`KeepLease::want`] changes that. After `ended`, they are always released.
    pub(crate) fn new(ended: &Stop, left: &KeptLeases) -> Self {
        Self { wanted: Arc::default(), ended: ended.clone(), left: left.clone() }
    }

    /// Called before the stop.
    pub(crate) fn want(&self, wanted: bool) {
        self.wanted.store(wanted, Ordering::SeqCst);
    }

    /// Whether Leases are kept.
    pub(crate) fn is_wanted(&self) -> bool {
        self.wanted.load(Ordering::SeqCst) && !self.ended.is_stopped()
    }
}

/// Leases that were kept and not yet taken over by an elector. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(crate) struct KeptLeases(Arc<Mutex<Vec<Elector>>>);

impl KeptLeases {
    fn add(&self, elector: Elector) {
        self.0.lock().ignore_poison().push(elector);
    }

    fn forget(&self, lease: &str) {
        self.0.lock().ignore_poison().retain(|left| left.options.name != lease);
    }

    /// No elector follows: releases those that are still ours.
    pub(crate) fn give_back(&self) {
        let left = std::mem::take(&mut *self.0.lock().ignore_poison());
        left.into_iter().for_each(|mut elector| elector.release());
    }
}

/// Metric: whether a Lease is held.
const MASTER: &str = "leader_election_master_status";

fn master(metrics: &Metrics, name: &str, is_held: bool) {
    let help = "Whether this process holds the lease (1) or not (0).";
    metrics.set(MASTER, help, &[("name", name)], if is_held { 1.0 } else { 0.0 });
}

/// Corrects the metric of a Lease: an elector that waits for an answer does not see that its Lease has expired.
pub(crate) fn refresh(metrics: &Metrics, name: &str, fence: &Fence) {
    if metrics.value(MASTER, &[("name", name)]).is_some() {
        master(metrics, name, fence.is_held());
    }
}

/// A listener that does nothing, for a kept Lease.
struct Nobody;

impl ElectionListener for Nobody {
    fn elected(&self) {}
    fn lost(&self) {}
}

/// The last observed state of the Lease, and when it changed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ObservedLease {
    lease: Option<Lease>,
    changed_at: Mono,
}

impl ObservedLease {
    /// Applies a fresh read: only a change updates the time.
    fn update(&mut self, lease: Option<Lease>, now: Mono) {
        let spec = |lease: &Option<Lease>| lease.as_ref().map(|l| l.spec.clone());
        if spec(&self.lease) != spec(&lease) || self.lease.is_none() {
            self.changed_at = now;
        }
        self.lease = lease;
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ElectionStep {
    /// There is no Lease: create it.
    Create,
    /// It is ours: renew it.
    Renew,
    /// It was released or has expired: take it.
    Take,
    /// Another process holds it.
    Stand,
}

/// Decides from the observed state.
pub(crate) fn decide(observed: &ObservedLease, holder: &str, now: Mono) -> ElectionStep {
    let Some(lease) = &observed.lease else { return ElectionStep::Create };
    let duration = Duration::from_secs(u64::try_from(lease.spec.lease_duration_seconds).unwrap_or(0));
    if lease.spec.holder_identity == holder {
        ElectionStep::Renew
    } else if lease.spec.holder_identity.is_empty() || now >= observed.changed_at.saturating_add(duration) {
        ElectionStep::Take
    } else {
        ElectionStep::Stand
    }
}

/// How long to wait after a try that took `lasted`. While we lead, the start of the try counts, because the
/// fence is measured from there.
fn pause(options: &Options, leading: bool, renewed: bool, lasted: Duration) -> Duration {
    let Options { retry_period, renew_period, .. } = *options;
    let least = retry_period / 4;
    let period = match (leading, renewed) {
        (false, _) => return retry_period,
        (true, true) => renew_period,
        // The longer period leaves time for fewer tries, so retries follow sooner.
        (true, false) if renew_period > retry_period => least,
        (true, false) => retry_period,
    };
    period.saturating_sub(lasted).max(least)
}

/// Notified by the elector.
pub(crate) trait ElectionListener: Send + Sync {
    /// We lead from now on.
    fn elected(&self);
    /// We do not lead any more, and must not write.
    fn lost(&self);
    /// Called before the Lease is released. Returns when none of our writes is in flight any more, or after a timeout.
    fn drain(&self) {}
    /// The Lease is older than our last write: the server was restored from a backup.
    fn restored(&self) {}
    /// Called before each try.
    fn trying(&self) {}
    /// Another process holds the Lease.
    fn standing_by(&self, holder: &str) {
        let _ = holder;
    }
}

/// Whether a request is in flight that a stop should cut off.
#[derive(Clone, Default)]
struct Busy(Arc<Mutex<bool>>);

impl Busy {
    fn with(&self, act: impl FnOnce(&mut bool)) {
        act(&mut self.0.lock().ignore_poison());
    }
}

/// Maintains one Lease. It has its own thread and its own client, so that no worker can delay it.
pub(crate) struct Elector {
    client: Client,
    clock: Clock,
    options: Options,
    fence: Fence,
    metrics: Metrics,
    listener: Arc<dyn ElectionListener>,
    observed: ObservedLease,
    leading: bool,
}

impl std::fmt::Debug for Elector {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Elector").field("options", &self.options).field("leading", &self.leading).finish()
    }
}

impl Elector {
    /// `fence` is closed until the Lease is ours.
    pub(crate) fn new(
        client: Client,
        clock: Clock,
        options: Options,
        fence: Fence,
        metrics: Metrics,
        listener: Arc<dyn ElectionListener>,
    ) -> Self {
        Self {
            client,
            clock,
            options,
            fence,
            metrics,
            listener,
            observed: ObservedLease::default(),
            leading: false,
        }
    }

    /// Campaigns until `stop`, then releases the Lease if it is ours. A stop cuts off a request in flight.
    pub(crate) fn run(&mut self, stop: &Stop) {
        let (busy, client) = (Busy::default(), self.client.clone());
        let asked = busy.clone();
        // Under the lock: the release that follows must not be cut off.
        stop.on_stop(move || {
            asked.with(|busy| {
                if *busy {
                    client.cut_off();
                }
            });
        });
        let mut failing = false;
        loop {
            // In this order, so that either we see the stop, or the stop sees the request.
            busy.with(|busy| *busy = true);
            let begun = self.clock.mono();
            let result = if stop.is_stopped() { None } else { Some(self.round()) };
            busy.with(|busy| *busy = false);
            let Some(result) = result else { break };
            match &result {
                Ok(_) => failing = false,
                Err(_) if stop.is_stopped() => {}
                Err(e) if !failing => {
                    failing = true;
                    let (err, lease) = (chain(e), self.lease_name());
                    log::warn!(lease = lease.as_str(), err = err.as_str(); "Cannot reach the leader lease");
                }
                Err(_) => {}
            }
            self.settle();
            let lasted = self.clock.mono().saturating_sub(begun);
            stop.wait(&self.clock, pause(&self.options, self.leading, result.unwrap_or(false), lasted));
        }
        if !self.leading {
            return;
        }
        if self.options.keep.is_wanted() {
            self.leave();
        } else {
            self.release();
        }
    }

    /// Keeps the Lease for the next elector, or for the end if there is none.
    fn leave(&mut self) {
        self.end_term();
        let (fence, listener) = (Fence::new(self.clock.clone(), &self.options.name), Arc::new(Nobody));
        let (client, clock, options) = (self.client.clone(), self.clock.clone(), self.options.clone());
        let mut left = Self::new(client, clock, options, fence, self.metrics.clone(), listener);
        left.observed = std::mem::take(&mut self.observed);
        self.options.keep.left.add(left);
    }

    fn key(&self) -> Key {
        Key::new(&self.options.namespace, &self.options.name)
    }

    fn lease_name(&self) -> String {
        self.key().to_string()
    }

    /// While we lead, one write with the known resourceVersion; otherwise one read and at most one write. Returns true
    /// if the Lease is ours for another period.
    fn round(&mut self) -> Result<bool, Error> {
        self.listener.trying();
        let begun = self.clock.mono();
        if self.leading {
            match self.put(&self.options.holder.clone(), false) {
                Ok(lease) => {
                    self.renewed(lease, begun);
                    return Ok(true);
                }
                // Another client wrote it, or it was deleted: read it.
                Err(e) if matches!(e.verdict(), ErrorVerdict::Conflict | ErrorVerdict::NotFound) => {}
                Err(e) => return Err(e),
            }
        }
        let lease = self.client.find::<Lease>(&LEASE, &self.key())?;
        if self.leading && self.has_gone_back(lease.as_ref()) {
            log::warn!(lease = self.lease_name().as_str(); "The lease is older than our last write: the server was restored to an older state");
            self.listener.restored();
        }
        self.observed.update(lease, self.clock.mono());
        let written = match decide(&self.observed, &self.options.holder, self.clock.mono()) {
            ElectionStep::Create => self.create(),
            ElectionStep::Renew => self.put(&self.options.holder.clone(), false),
            ElectionStep::Take => self.put(&self.options.holder.clone(), true),
            ElectionStep::Stand => {
                if let Some(lease) = &self.observed.lease {
                    self.listener.standing_by(&lease.spec.holder_identity);
                }
                self.step_down();
                return Ok(false);
            }
        };
        match written {
            Ok(lease) => {
                self.renewed(lease, begun);
                Ok(true)
            }
            // Another process was faster: the next round shows which one.
            Err(e) if matches!(e.verdict(), ErrorVerdict::Conflict | ErrorVerdict::AlreadyExists) => {
                Ok(false)
            }
            Err(e) => Err(e),
        }
    }

    /// Only we write a Lease that we hold.
    fn has_gone_back(&self, found: Option<&Lease>) -> bool {
        let Some(wrote) = &self.observed.lease else { return false };
        found.is_none_or(|found| found.is_older_than(wrote))
    }

    /// The Lease is ours, counted from before the request, because the server may have stored it at any time since.
    fn renewed(&mut self, lease: Lease, begun: Mono) {
        self.observed.update(Some(lease), self.clock.mono());
        self.fence.renew(begun, self.options.renew_deadline);
    }

    /// Notifies the listener when the fence has opened or closed.
    fn settle(&mut self) {
        if self.fence.is_held() && !self.leading {
            self.leading = true;
            self.options.keep.left.forget(&self.options.name);
            self.report();
            log::info!(lease = self.lease_name().as_str(), holder = self.options.holder.as_str(); "Became leader");
            self.listener.elected();
        } else if !self.fence.is_held() {
            self.step_down();
        }
    }

    fn step_down(&mut self) {
        if self.leading {
            log::warn!(lease = self.lease_name().as_str(); "Lost the leader lease");
            self.end_term();
        }
    }

    fn end_term(&mut self) {
        self.leading = false;
        self.fence.close();
        self.report();
        self.listener.lost();
    }

    fn report(&self) {
        master(&self.metrics, &self.options.name, self.leading);
    }

    fn create(&self) -> Result<Lease, Error> {
        let now = rfc3339_micros(self.clock.now());
        let object = json!({
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {"namespace": self.options.namespace, "name": self.options.name},
            "spec": self.spec(&self.options.holder, &now, &now, 0),
        });
        self.client.create(&LEASE, &self.options.namespace, &object)
    }

    fn put(&self, holder: &str, take: bool) -> Result<Lease, Error> {
        let now = rfc3339_micros(self.clock.now());
        let Some(old) = &self.observed.lease else { return self.create() };
        let acquired = if take { now.as_str() } else { old.spec.acquire_time.as_deref().unwrap_or(&now) };
        let transitions = old.spec.lease_transitions + i64::from(take);
        let object = json!({
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {
                "namespace": self.options.namespace,
                "name": self.options.name,
                "resourceVersion": old.metadata.resource_version,
                "labels": old.metadata.labels,
                "annotations": old.metadata.annotations,
            },
            "spec": self.spec(holder, acquired, &now, transitions),
        });
        self.client.replace_object(&LEASE, &self.key(), &object)
    }

    fn spec(&self, holder: &str, acquired: &str, renewed: &str, transitions: i64) -> Value {
        // A released lease lasts one second, as in upstream, so that no successor waits for it.
        let seconds = if holder.is_empty() { 1 } else { self.options.lease_duration.as_secs() };
        json!({
            "holderIdentity": holder,
            "leaseDurationSeconds": seconds,
            "acquireTime": acquired,
            "renewTime": renewed,
            "leaseTransitions": transitions,
        })
    }

    /// A renewal that was cut off may have succeeded: then the Lease has a version that we do not know.
    fn give_back(&mut self) -> Result<Lease, Error> {
        // Socket timeouts use real time.
        let clock = Clock::system();
        let client = self.client.clone();
        let in_time = || client.with_deadline(limits::RELEASE_TIME_MAX.saturating_sub(clock.mono()));
        self.client = in_time();
        match self.put("", false) {
            Err(e) if matches!(e.verdict(), ErrorVerdict::Conflict) => {
                self.client = in_time();
                let lease = self.client.get::<Lease>(&LEASE, &self.key())?;
                if lease.spec.holder_identity != self.options.holder {
                    return Ok(lease);
                }
                self.observed.update(Some(lease), self.clock.mono());
                self.client = in_time();
                self.put("", false)
            }
            other => other,
        }
    }

    fn release(&mut self) {
        self.end_term();
        self.listener.drain();
        match self.give_back() {
            Ok(_) => log::info!(lease = self.lease_name().as_str(); "Released the leader lease"),
            Err(e) => {
                let err = chain(&e);
                log::warn!(lease = self.lease_name().as_str(), err = err.as_str(); "Cannot release the leader lease");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::coordination::LeaseSpec;

    fn lease(holder: &str, renewed: &str) -> Lease {
        let spec = LeaseSpec {
            holder_identity: holder.to_owned(),
            lease_duration_seconds: 15,
            renew_time: Some(renewed.to_owned()),
            ..LeaseSpec::default()
        };
        Lease { spec, ..Lease::default() }
    }

    const fn s(seconds: u64) -> Mono {
        Duration::from_secs(seconds)
    }

    #[test]
    fn when_a_lease_may_be_taken() {
        let table = [
            ("there is none", None, 0, ElectionStep::Create),
            ("ours, from before the restart", Some(lease("me", "t")), 0, ElectionStep::Renew),
            ("ours, long expired", Some(lease("me", "t")), 100, ElectionStep::Renew),
            ("released", Some(lease("", "t")), 0, ElectionStep::Take),
            ("held", Some(lease("other", "t")), 14, ElectionStep::Stand),
            ("not renewed for its duration", Some(lease("other", "t")), 15, ElectionStep::Take),
        ];
        for (name, seen, after, expected) in table {
            let mut observed = ObservedLease::default();
            observed.update(seen, s(1_000));
            assert_eq!(decide(&observed, "me", s(1_000 + after)), expected, "{name}");
        }
    }

    fn options((lease, renew): (u64, u64), (retry, renewed): (u64, u64)) -> Options {
        Options {
            namespace: String::new(),
            name: String::new(),
            holder: String::new(),
            lease_duration: s(lease),
            renew_deadline: s(renew),
            retry_period: s(retry),
            renew_period: s(renewed),
            keep: KeepLease::default(),
        }
    }

    #[test]
    fn pauses() {
        let ms = Duration::from_millis;
        let (spared, written) = (options((15, 10), (2, 4)), options((15, 10), (2, 2)));
        let table = [
            ("standing by", &spared, false, false, ms(30), ms(2_000)),
            ("standing by, slowly", &spared, false, false, ms(5_000), ms(2_000)),
            ("renewed", &spared, true, true, ms(30), ms(3_970)),
            ("renewed, slowly", &spared, true, true, ms(4_500), ms(500)),
            ("refused", &spared, true, false, ms(30), ms(500)),
            ("not answered", &spared, true, false, ms(5_000), ms(500)),
            ("renewed, as written", &written, true, true, ms(30), ms(1_970)),
            ("refused, as written", &written, true, false, ms(30), ms(1_970)),
        ];
        for (name, options, leading, renewed, lasted, expected) in table {
            assert_eq!(pause(options, leading, renewed, lasted), expected, "{name}");
        }
    }

    /// The start times of consecutive failing tries, each taking `lasting`, until the lease has expired,
    /// counted from the last renewal.
    fn tries(options: &Options, lasting: Duration) -> Vec<Duration> {
        let mut begins = vec![pause(options, true, true, Duration::ZERO)];
        loop {
            let last = begins[begins.len() - 1];
            let next = last + lasting + pause(options, true, false, lasting);
            if next >= options.renew_deadline {
                return begins;
            }
            begins.push(next);
        }
    }

    #[test]
    fn fewer_renewals_lose_no_safety() {
        let written = options((15, 10), (2, 2));
        let spared = options((15, 10), (2, 4));
        let half = spared.renew_deadline / 2;
        for (name, options) in [("as written", &written), ("spared", &spared)] {
            // A refused renewal does not stop writes, which need half of the deadline, ...
            let refused = tries(options, Duration::from_millis(100));
            assert!(refused[1] + Duration::from_millis(100) <= half, "{name}: {refused:?}");
            // ... there are as many tries before the lease is given up, ...
            assert!(refused.len() >= 4, "{name}: {refused:?}");
            // ... and two of them if the first one times out.
            assert_eq!(tries(options, half).len(), 2, "{name}");
        }
    }

    #[test]
    fn only_a_change_that_we_saw_counts() {
        let mut observed = ObservedLease::default();
        observed.update(Some(lease("other", "2000-01-01T00:00:00.000000Z")), s(0));
        observed.update(Some(lease("other", "2000-01-01T00:00:00.000000Z")), s(10));
        assert_eq!(decide(&observed, "me", s(14)), ElectionStep::Stand);
        observed.update(Some(lease("other", "1999-01-01T00:00:00.000000Z")), s(14));
        assert_eq!(decide(&observed, "me", s(16)), ElectionStep::Stand);
        assert_eq!(decide(&observed, "me", s(29)), ElectionStep::Take);
    }
}
