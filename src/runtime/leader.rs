//! Leader election over a Lease of the seed, as client-go does it: judged by changes that this process saw on its own
//! monotonic clock, never by the timestamps of others.
//!
//! The holder id is stable per instance, so that a restarted process finds its own lease and goes on at once. Updates are
//! PUTs with a resourceVersion: the agent's role grants no patch on leases. What the outcome allows is in the
//! [`Fence`].

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde_json::{Value, json};

use crate::api::coordination::{LEASE, Lease};
use crate::base::clock::{Clock, Mono};
use crate::base::error::chain;
use crate::base::metrics::Metrics;
use crate::base::stop::Stop;
use crate::format::time::rfc3339_micros;
use crate::kube::{Client, Error, Verdict};
use crate::limits;

use super::fence::Fence;

/// Where the Lease is and how it is kept.
#[derive(Clone, Debug)]
pub struct Options {
    /// Namespace of the Lease.
    pub namespace: String,
    /// Name of the Lease.
    pub name: String,
    /// Who we are: stable over restarts, different from every other process.
    pub holder: String,
    /// How long others must see no change before they take over.
    pub lease_duration: Duration,
    /// How long we try to renew before we stop to lead.
    pub renew_deadline: Duration,
    /// Time between two tries to get it.
    pub retry_period: Duration,
    /// Time between two renewals. Not shorter than `retry_period`.
    pub renew_period: Duration,
    /// What becomes of the Lease at the end.
    pub keep: Keep,
}

/// Whether a Lease is kept at the end of its elector, because we begin anew at once. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Keep {
    wanted: Arc<AtomicBool>,
    /// Nothing begins anew any more.
    ended: Stop,
    left: Left,
}

impl Keep {
    /// Leases are released, unless [`Keep::want`] says otherwise. After `ended` they are released in any case.
    pub fn new(ended: &Stop, left: &Left) -> Self {
        Self { wanted: Arc::default(), ended: ended.clone(), left: left.clone() }
    }

    /// Says it before the stop.
    pub fn want(&self, wanted: bool) {
        self.wanted.store(wanted, Ordering::SeqCst);
    }

    /// Whether Leases are kept.
    pub fn is_wanted(&self) -> bool {
        self.wanted.load(Ordering::SeqCst) && !self.ended.is_stopped()
    }
}

/// Leases that were kept and that no elector has taken yet. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Left(Arc<Mutex<Vec<Elector>>>);

impl Left {
    fn add(&self, elector: Elector) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(elector);
    }

    fn forget(&self, lease: &str) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).retain(|left| left.options.name != lease);
    }

    /// Nobody will take them: releases those that still are ours.
    pub fn give_back(&self) {
        let left = std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner));
        left.into_iter().for_each(|mut elector| elector.release());
    }
}

/// Hears nothing: of a Lease that is left.
struct Nobody;

impl Listener for Nobody {
    fn elected(&self) {}
    fn lost(&self) {}
}

/// What we saw of the Lease, and when.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Observed {
    lease: Option<Lease>,
    changed_at: Mono,
}

impl Observed {
    /// Takes a fresh read into account: only a change moves the time.
    fn update(&mut self, lease: Option<Lease>, now: Mono) {
        let spec = |lease: &Option<Lease>| lease.as_ref().map(|l| l.spec.clone());
        if spec(&self.lease) != spec(&lease) || self.lease.is_none() {
            self.changed_at = now;
        }
        self.lease = lease;
    }
}

/// What to do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// There is no Lease: create it.
    Create,
    /// It is ours: renew it.
    Renew,
    /// It was released or has expired: take it.
    Take,
    /// Somebody else holds it.
    Stand,
}

/// Decides from what was seen.
pub fn decide(observed: &Observed, holder: &str, now: Mono) -> Step {
    let Some(lease) = &observed.lease else { return Step::Create };
    let duration = Duration::from_secs(u64::try_from(lease.spec.lease_duration_seconds).unwrap_or(0));
    if lease.spec.holder_identity == holder {
        Step::Renew
    } else if lease.spec.holder_identity.is_empty() || now >= observed.changed_at.saturating_add(duration) {
        Step::Take
    } else {
        Step::Stand
    }
}

/// How long to wait after a try that `lasted` so long. While we lead, what counts is when it began, since the fence is
/// measured from there.
fn pause(options: &Options, leading: bool, renewed: bool, lasted: Duration) -> Duration {
    let Options { retry_period, renew_period, .. } = *options;
    let least = retry_period / 4;
    let period = match (leading, renewed) {
        (false, _) => return retry_period,
        (true, true) => renew_period,
        // The longer period leaves time for fewer tries, so they follow each other sooner.
        (true, false) if renew_period > retry_period => least,
        (true, false) => retry_period,
    };
    period.saturating_sub(lasted).max(least)
}

/// What the elector tells the rest of the program.
pub trait Listener: Send + Sync {
    /// We lead from now on.
    fn elected(&self);
    /// We do not lead any more. Nothing may be written.
    fn lost(&self);
    /// Called before the Lease is released: returns when nothing of ours writes any more, after a while in any case.
    fn drain(&self) {}
    /// The Lease came back older than it was written: the server was restored from a backup.
    fn restored(&self) {}
    /// Called before each try.
    fn trying(&self) {}
    /// Somebody else holds the Lease.
    fn standing(&self, holder: &str) {
        let _ = holder;
    }
}

/// Whether a request runs that a stop should cut off.
#[derive(Clone, Default)]
struct Busy(Arc<Mutex<bool>>);

impl Busy {
    fn with(&self, act: impl FnOnce(&mut bool)) {
        act(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner));
    }
}

/// Keeps one Lease. Runs on a thread of its own with a client of its own, so that no worker can delay it.
pub struct Elector {
    client: Client,
    clock: Clock,
    options: Options,
    fence: Fence,
    metrics: Metrics,
    listener: Arc<dyn Listener>,
    observed: Observed,
    leading: bool,
}

impl std::fmt::Debug for Elector {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Elector").field("options", &self.options).field("leading", &self.leading).finish()
    }
}

impl Elector {
    /// `fence` is closed until the Lease is ours.
    pub fn new(
        client: Client,
        clock: Clock,
        options: Options,
        fence: Fence,
        metrics: Metrics,
        listener: Arc<dyn Listener>,
    ) -> Self {
        Self {
            client,
            clock,
            options,
            fence,
            metrics,
            listener,
            observed: Observed::default(),
            leading: false,
        }
    }

    /// Campaigns until `stop`, then releases the Lease if it is ours. A request that runs then is cut off.
    pub fn run(&mut self, stop: &Stop) {
        let (busy, client) = (Busy::default(), self.client.clone());
        let asked = busy.clone();
        // Under the lock: the release that comes next must not be cut off.
        stop.on_stop(move || {
            asked.with(|busy| {
                if *busy {
                    client.cut_off();
                }
            });
        });
        let mut failing = false;
        loop {
            // In this order: either we see the stop, or the stop sees us.
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
                    log::warn!(lease = lease.as_str(), err = err.as_str(); "The leader lease cannot be reached");
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

    fn lease_name(&self) -> String {
        format!("{}/{}", self.options.namespace, self.options.name)
    }

    /// While we lead, one write with the resourceVersion that we know; otherwise one read and at most one write. True if the
    /// Lease is ours for another while.
    fn round(&mut self) -> Result<bool, Error> {
        self.listener.trying();
        let begun = self.clock.mono();
        if self.leading {
            match self.put(&self.options.holder.clone(), false) {
                Ok(lease) => {
                    self.renewed(lease, begun);
                    return Ok(true);
                }
                // Somebody else wrote it, or it was deleted: see what it says.
                Err(e) if matches!(e.verdict(), Verdict::Conflict | Verdict::NotFound) => {}
                Err(e) => return Err(e),
            }
        }
        let lease = self.client.find::<Lease>(&LEASE, &self.options.namespace, &self.options.name)?;
        if self.leading && self.has_gone_back(lease.as_ref()) {
            log::warn!(lease = self.lease_name().as_str(); "The lease is older than it was written: the server was restored to an older state");
            self.listener.restored();
        }
        self.observed.update(lease, self.clock.mono());
        let written = match decide(&self.observed, &self.options.holder, self.clock.mono()) {
            Step::Create => self.create(),
            Step::Renew => self.put(&self.options.holder.clone(), false),
            Step::Take => self.put(&self.options.holder.clone(), true),
            Step::Stand => {
                if let Some(lease) = &self.observed.lease {
                    self.listener.standing(&lease.spec.holder_identity);
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
            // Somebody was faster: the next round sees who.
            Err(e) if matches!(e.verdict(), Verdict::Conflict | Verdict::AlreadyExists) => Ok(false),
            Err(e) => Err(e),
        }
    }

    /// Nobody but us writes a Lease that we hold.
    fn has_gone_back(&self, found: Option<&Lease>) -> bool {
        let Some(wrote) = &self.observed.lease else { return false };
        found.is_none_or(|found| found.is_older_than(wrote))
    }

    /// The Lease is ours, counted from before the request: the server may have stored it at any moment since.
    fn renewed(&mut self, lease: Lease, begun: Mono) {
        self.observed.update(Some(lease), self.clock.mono());
        self.fence.renew(begun, self.options.renew_deadline);
    }

    /// Tells the listener when the fence has opened or has run out.
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
        self.metrics.set(
            "leader_election_master_status",
            "Whether this process holds the lease (1) or not (0).",
            &[("name", &self.options.name)],
            if self.leading { 1.0 } else { 0.0 },
        );
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
        self.client.replace_object(&LEASE, &self.options.namespace, &self.options.name, "", &object)
    }

    fn spec(&self, holder: &str, acquired: &str, renewed: &str, transitions: i64) -> Value {
        // A released lease lasts one second, as upstream: nobody waits for it.
        let seconds = if holder.is_empty() { 1 } else { self.options.lease_duration.as_secs() };
        json!({
            "holderIdentity": holder,
            "leaseDurationSeconds": seconds,
            "acquireTime": acquired,
            "renewTime": renewed,
            "leaseTransitions": transitions,
        })
    }

    /// A renewal that was cut off may have come through: then the Lease has a version that we have not seen.
    fn give_back(&mut self) -> Result<Lease, Error> {
        // Sockets wait in real time.
        let clock = Clock::system();
        let client = self.client.clone();
        let in_time = || client.with_deadline(limits::RELEASE_TIME_MAX.saturating_sub(clock.mono()));
        self.client = in_time();
        match self.put("", false) {
            Err(e) if matches!(e.verdict(), Verdict::Conflict) => {
                self.client = in_time();
                let lease = self.client.get::<Lease>(&LEASE, &self.options.namespace, &self.options.name)?;
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
                log::warn!(lease = self.lease_name().as_str(), err = err.as_str(); "The leader lease was not released");
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
    fn who_may_take_a_lease() {
        let table = [
            ("there is none", None, 0, Step::Create),
            ("ours, from before the restart", Some(lease("me", "t")), 0, Step::Renew),
            ("ours, long expired", Some(lease("me", "t")), 100, Step::Renew),
            ("released", Some(lease("", "t")), 0, Step::Take),
            ("held", Some(lease("other", "t")), 14, Step::Stand),
            ("not renewed for its duration", Some(lease("other", "t")), 15, Step::Take),
        ];
        for (name, seen, after, expected) in table {
            let mut observed = Observed::default();
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
            keep: Keep::default(),
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

    /// When the tries begin that fail one after the other, each after `lasting`, until the lease has run out: counted from
    /// the last renewal.
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
    fn fewer_renewals_give_nothing_away() {
        let written = options((15, 10), (2, 2));
        let spared = options((15, 10), (2, 4));
        let half = spared.renew_deadline / 2;
        for (name, options) in [("as written", &written), ("spared", &spared)] {
            // A renewal that is refused keeps nobody from writing, which needs half of the deadline, ...
            let refused = tries(options, Duration::from_millis(100));
            assert!(refused[1] + Duration::from_millis(100) <= half, "{name}: {refused:?}");
            // ... there are as many tries before the lease is given up, ...
            assert!(refused.len() >= 4, "{name}: {refused:?}");
            // ... and two of them if the first is not answered at all.
            assert_eq!(tries(options, half).len(), 2, "{name}");
        }
    }

    #[test]
    fn only_a_change_that_we_saw_counts() {
        let mut observed = Observed::default();
        observed.update(Some(lease("other", "2000-01-01T00:00:00.000000Z")), s(0));
        observed.update(Some(lease("other", "2000-01-01T00:00:00.000000Z")), s(10));
        assert_eq!(decide(&observed, "me", s(14)), Step::Stand);
        observed.update(Some(lease("other", "1999-01-01T00:00:00.000000Z")), s(14));
        assert_eq!(decide(&observed, "me", s(16)), Step::Stand);
        assert_eq!(decide(&observed, "me", s(29)), Step::Take);
    }
}
