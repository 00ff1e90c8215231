//! Stopping and waiting. Pulling a [`Stop`] ends every wait of the program early.

use std::sync::{Arc, Condvar, Mutex, Weak};
use std::time::Duration;

use super::clock::Clock;
use super::lock::IgnorePoison;
use super::thread;

/// A thread that waits this long gives its unused stack back: less often would save less, more often cost time.
const REST_MIN: Duration = Duration::from_secs(1);

type Hook = Box<dyn FnOnce() + Send>;

#[derive(Default)]
struct State {
    stopped: bool,
    /// Grows with each [`Stop::wake`], so that a waiter notices a wake that came before its wait.
    wakes: u64,
    hooks: Vec<Hook>,
    /// Children, some of which may have been dropped; see [`Stop::child`].
    children: Vec<Weak<SharedStop>>,
}

#[derive(Default)]
struct SharedStop {
    state: Mutex<State>,
    changed: Condvar,
}

/// A stop signal that many threads share. Cheap to clone.
#[derive(Clone, Default)]
pub struct Stop(Arc<SharedStop>);

impl std::fmt::Debug for Stop {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Stop").field(&self.is_stopped()).finish()
    }
}

impl Stop {
    /// A signal that is not pulled yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// A new signal that is also pulled when `self` is. A dropped child costs its parent nothing: a program that runs
    /// for months creates many.
    #[must_use]
    pub(crate) fn child(&self) -> Self {
        let child = Self::new();
        let mut state = self.lock();
        if state.stopped {
            drop(state);
            child.stop();
            return child;
        }
        if state.children.len() == state.children.capacity() {
            // Only when the list would grow, so that a child costs constant time on average.
            state.children.retain(|child| child.strong_count() > 0);
        }
        state.children.push(Arc::downgrade(&child.0));
        drop(state);
        child
    }

    /// Pulls the signal: every waiter returns, and every hook runs once, in this thread.
    pub fn stop(&self) {
        let (hooks, children) = {
            let mut state = self.lock();
            state.stopped = true;
            (std::mem::take(&mut state.hooks), std::mem::take(&mut state.children))
        };
        self.0.changed.notify_all();
        for child in children.iter().filter_map(Weak::upgrade) {
            Self(child).stop();
        }
        for hook in hooks {
            hook();
        }
    }

    /// Whether the signal has been pulled.
    pub fn is_stopped(&self) -> bool {
        self.lock().stopped
    }

    /// Runs `hook` when the signal is pulled, or at once if it has been pulled already. A hook must not block.
    pub(crate) fn on_stop(&self, hook: impl FnOnce() + Send + 'static) {
        {
            let mut state = self.lock();
            if !state.stopped {
                state.hooks.push(Box::new(hook));
                return;
            }
        }
        hook();
    }

    /// Ends every running [`Stop::wait`] early without a stop.
    pub(crate) fn wake(&self) {
        self.lock().wakes += 1;
        self.0.changed.notify_all();
    }

    /// The number of [`Stop::wake`] calls, for [`Stop::wait_since`].
    pub(crate) fn wakes(&self) -> u64 {
        self.lock().wakes
    }

    /// Waits for `d` on `clock`, or until the signal is pulled or [`Stop::wake`] is called. True if it was pulled.
    pub fn wait(&self, clock: &Clock, d: Duration) -> bool {
        self.wait_since(clock, self.wakes(), d)
    }

    /// Like [`Stop::wait`], but returns at once if [`Stop::wake`] was called since [`Stop::wakes`] returned `wakes`:
    /// what the caller has read in between is then outdated.
    pub(crate) fn wait_since(&self, clock: &Clock, wakes: u64, d: Duration) -> bool {
        let deadline = clock.mono().saturating_add(d);
        if d >= REST_MIN {
            thread::release_unused_stack();
        }
        let mut state = self.lock();
        while !state.stopped && state.wakes == wakes {
            let left = deadline.saturating_sub(clock.mono());
            if left.is_zero() {
                break;
            }
            let woken = self.0.changed.wait_timeout(state, clock.real(left));
            state = woken.ignore_poison().0;
        }
        state.stopped
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        // The state is two plain values: no panic can leave it half changed.
        self.0.state.lock().ignore_poison()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_ends_with_the_time_or_the_stop() {
        let (clock, stop) = (Clock::system(), Stop::new());
        assert!(!stop.wait(&clock, Duration::from_millis(1)));
        let other = stop.clone();
        let waiter = thread::spawn("waiter", 64 << 10, move || {
            other.wait(&Clock::system(), Duration::from_secs(3_600))
        })
        .unwrap();
        stop.stop();
        assert!(waiter.join().unwrap());
        assert!(stop.wait(&clock, Duration::from_secs(3_600)));
    }

    #[test]
    fn a_child_is_pulled_with_its_parent_and_forgotten_when_it_is_dropped() {
        let parent = Stop::new();
        let kept: Vec<Stop> = (0..3).map(|_| parent.child()).collect();
        for _ in 0..10_000 {
            drop(parent.child());
        }
        assert!(parent.lock().children.capacity() <= 16, "{}", parent.lock().children.capacity());
        kept[0].stop();
        assert!(!parent.is_stopped() && !kept[1].is_stopped());
        parent.stop();
        assert!(kept.iter().all(Stop::is_stopped));
        assert!(parent.child().is_stopped());
    }

    #[test]
    fn a_wake_between_look_and_wait_is_not_lost() {
        let (clock, stop) = (Clock::system(), Stop::new());
        let seen = stop.wakes();
        stop.wake();
        assert!(!stop.wait_since(&clock, seen, Duration::from_secs(3_600)));
    }

    #[test]
    fn children_stop_with_their_parent_and_not_the_other_way_round() {
        let parent = Stop::new();
        let (a, b) = (parent.child(), parent.child());
        a.stop();
        assert!(!parent.is_stopped() && !b.is_stopped());
        parent.stop();
        assert!(b.is_stopped() && parent.child().is_stopped());
    }
}
