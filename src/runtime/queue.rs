//! The work queue of one controller: keys, never objects. A key is queued at most once, is never processed twice at the
//! same time, and returns later after a failure. The queue takes the time as an argument and holds no lock; the pool
//! (`pool.rs`) guards it.
//!
//! The contract is client-go's work queue (ordered list, dirty set, processing set; delays and the rate limiter as
//! layers around it), with one difference: taking a key drops its timer, because the following reconciliation decides
//! again when to run next.

use std::collections::VecDeque;
use std::time::Duration;

use crate::base::backoff;
use crate::base::clock::Mono;
use crate::base::sorted::{SortedMap, SortedSet};
use crate::limits;

/// The backoff of a key.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Retry {
    /// After the first failure.
    pub(crate) first: Duration,
    pub(crate) max: Duration,
}

impl Retry {
    /// From 5 ms, controller-runtime's default, to `max`.
    pub(crate) const fn up_to(max: Duration) -> Self {
        Self { first: Duration::from_millis(5), max }
    }
}

/// Upstream's longest delay is 1000 s. A seed that returns after a night must not wait a quarter of an hour.
pub(crate) const RETRY_DEFAULT: Retry = Retry::up_to(Duration::from_secs(300));

#[derive(Debug)]
pub(crate) struct Queue<K> {
    retry: Retry,
    ready: VecDeque<K>,
    /// All pending keys: those in `ready`, and those that were added while being processed.
    dirty: SortedSet<K>,
    processing: SortedSet<K>,
    timers: SortedMap<K, Mono>,
    due: SortedSet<(Mono, K)>,
    failures: SortedMap<K, u32>,
    /// Total number of keys that were queued, and of those that were retried after a failure.
    totals: (u64, u64),
}

impl<K: Ord + Clone> Queue<K> {
    pub(crate) const fn new(retry: Retry) -> Self {
        Self {
            retry,
            ready: VecDeque::new(),
            dirty: SortedSet::new(),
            processing: SortedSet::new(),
            timers: SortedMap::new(),
            due: SortedSet::new(),
            failures: SortedMap::new(),
            totals: (0, 0),
        }
    }

    /// Queues `key` now. False if the queue is full; the caller must list again later then.
    pub(crate) fn add(&mut self, key: K) -> bool {
        if self.dirty.contains(&key) {
            return true;
        }
        if self.dirty.len() >= limits::QUEUE_KEYS_MAX {
            return false;
        }
        self.dirty.insert(key.clone());
        self.totals.0 += 1;
        if !self.processing.contains(&key) {
            self.ready.push_back(key);
        }
        true
    }

    /// Queues `key` at `at`, or earlier if an earlier timer is set.
    pub(crate) fn add_at(&mut self, key: K, at: Mono) -> bool {
        if self.timers.get(&key).is_some_and(|set| *set <= at) {
            return true;
        }
        if self.timers.len() >= limits::QUEUE_KEYS_MAX {
            return false;
        }
        self.clear_timer(&key);
        self.due.insert((at, key.clone()));
        self.timers.insert(key, at);
        true
    }

    /// The next key to process; [`Queue::done`] must follow.
    pub(crate) fn take(&mut self, now: Mono) -> Option<K> {
        self.fire(now);
        let key = self.ready.pop_front()?;
        self.dirty.remove(&key);
        self.processing.insert(key.clone());
        self.clear_timer(&key);
        Some(key)
    }

    /// The processing of `key` has ended. If it was added meanwhile, it is queued again.
    pub(crate) fn done(&mut self, key: &K) {
        self.processing.remove(key);
        if self.dirty.contains(key) {
            self.ready.push_back(key.clone());
        }
    }

    /// It succeeded: the backoff is reset.
    pub(crate) fn forget(&mut self, key: &K) {
        self.failures.remove(key);
    }

    /// It failed: the key returns with backoff, but not sooner than `least`. Returns the delay.
    pub(crate) fn retry(&mut self, key: K, now: Mono, least: Duration) -> Duration {
        let failures = self.failures.entry(key.clone()).or_insert(0);
        let delay = backoff::delay_after(self.retry.first, self.retry.max, *failures).max(least);
        *failures = failures.saturating_add(1);
        self.totals.1 += 1;
        self.add_at(key, now.saturating_add(delay));
        delay
    }

    /// The number of consecutive failures of `key`.
    pub(crate) fn failures(&self, key: &K) -> u32 {
        self.failures.get(key).copied().unwrap_or(0)
    }

    /// When the next timer expires.
    pub(crate) fn next_due(&self) -> Option<Mono> {
        self.due.first().map(|(at, _)| *at)
    }

    /// The number of queued keys.
    pub(crate) fn depth(&self) -> usize {
        self.ready.len()
    }

    /// The number of keys that failed the last time.
    pub(crate) fn failing(&self) -> usize {
        self.failures.len()
    }

    /// Total number of keys that were queued, and of those that were retried after a failure.
    pub(crate) const fn totals(&self) -> (u64, u64) {
        self.totals
    }

    /// Drops all queued keys. Running reconciliations end on their own.
    pub(crate) fn clear(&mut self) {
        let processing = std::mem::take(&mut self.processing);
        *self = Self { processing, totals: self.totals, ..Self::new(self.retry) };
    }

    fn fire(&mut self, now: Mono) {
        while self.due.first().is_some_and(|(at, _)| *at <= now) {
            let Some((_, key)) = self.due.pop_first() else { return };
            self.timers.remove(&key);
            self.add(key);
        }
    }

    fn clear_timer(&mut self, key: &K) {
        if let Some(at) = self.timers.remove(key) {
            self.due.remove(&(at, key.clone()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::random;

    const fn s(seconds: u64) -> Mono {
        Duration::from_secs(seconds)
    }

    fn queue() -> Queue<u8> {
        Queue::new(Retry { first: s(1), max: s(8) })
    }

    #[test]
    fn a_key_is_queued_once_and_processed_once() {
        let mut q = queue();
        assert!(q.add(1) && q.add(2) && q.add(1));
        assert_eq!(q.take(s(0)), Some(1));
        q.add(1);
        assert_eq!((q.take(s(0)), q.take(s(0))), (Some(2), None));
        q.done(&1);
        assert_eq!(q.take(s(0)), Some(1));
    }

    #[test]
    fn the_earlier_timer_wins_and_taking_the_key_drops_it() {
        let mut q = queue();
        q.add_at(1, s(10));
        q.add_at(1, s(5));
        q.add_at(1, s(20));
        assert_eq!((q.next_due(), q.take(s(4))), (Some(s(5)), None));
        assert_eq!(q.take(s(5)), Some(1));
        q.done(&1);
        q.add_at(1, s(30));
        q.add(1);
        assert_eq!(q.take(s(6)), Some(1));
        q.done(&1);
        assert_eq!((q.next_due(), q.take(s(99))), (None, None));
    }

    #[test]
    fn failures_back_off_until_a_success() {
        let mut q = queue();
        let delays: Vec<u64> = (0..5).map(|_| q.retry(7, s(0), s(0)).as_secs()).collect();
        assert_eq!(delays, [1, 2, 4, 8, 8]);
        q.forget(&7);
        assert_eq!(q.retry(7, s(0), s(0)), s(1));
        assert_eq!(q.retry(8, s(0), s(9)), s(9));
    }

    #[test]
    fn a_full_queue_refuses_keys() {
        let mut q = Queue::new(RETRY_DEFAULT);
        for n in 0..limits::QUEUE_KEYS_MAX {
            assert!(q.add(n));
        }
        assert!(!q.add(usize::MAX));
        assert!(q.add(0));
    }

    /// The naive implementation: a list of queued keys and a list of keys being processed.
    #[derive(Default)]
    struct Model {
        waiting: Vec<u8>,
        working: Vec<u8>,
        timers: Vec<(Mono, u8)>,
    }

    impl Model {
        fn add(&mut self, key: u8) {
            if !self.waiting.contains(&key) {
                self.waiting.push(key);
            }
        }

        fn fire(&mut self, now: Mono) {
            self.timers.sort_unstable();
            let (due, later) = self.timers.iter().partition(|(at, _)| *at <= now);
            self.timers = later;
            let due: Vec<(Mono, u8)> = due;
            due.into_iter().for_each(|(_, key)| self.add(key));
        }

        fn can_take(&self, key: u8) -> bool {
            self.waiting.contains(&key) && !self.working.contains(&key)
        }
    }

    #[test]
    fn it_behaves_like_the_naive_version() {
        let seed = u64::from_be_bytes(random::bytes());
        let mut state = seed | 1;
        let mut next = move |n: u64| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state % n
        };
        let (mut q, mut model, mut now) = (queue(), Model::default(), s(0));
        for step in 0..20_000 {
            let key = u8::try_from(next(6)).unwrap();
            match next(5) {
                0 => {
                    q.add(key);
                    model.fire(now);
                    model.add(key);
                }
                1 => {
                    let at = now + s(next(4) + 1);
                    q.add_at(key, at);
                    let earlier = model.timers.iter().any(|(set, k)| *k == key && *set <= at);
                    if !earlier {
                        model.timers.retain(|(_, k)| *k != key);
                        model.timers.push((at, key));
                    }
                }
                2 => {
                    let taken = q.take(now);
                    model.fire(now);
                    match taken {
                        Some(key) => {
                            assert!(model.can_take(key), "seed {seed} step {step}: took {key}");
                            model.waiting.retain(|k| *k != key);
                            model.timers.retain(|(_, k)| *k != key);
                            model.working.push(key);
                        }
                        None => assert!(
                            model.waiting.iter().all(|k| !model.can_take(*k)),
                            "seed {seed} step {step}: nothing taken of {:?}",
                            model.waiting
                        ),
                    }
                }
                3 => {
                    if let Some(key) = model.working.pop() {
                        q.done(&key);
                    }
                }
                _ => now += s(next(2)),
            }
        }
    }
}
