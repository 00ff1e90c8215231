//! Many runs of one story, each with a fault at another point: the choice of the points, and the time limit.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock};
use std::time::Duration;

use gardenlet::base::clock::Clock;
use support::options::is_long;

/// The first points, then the others in the order of a seed; and how many of all must be tried. Of the others that is
/// `few`, or all of them in a long run.
pub fn order<P>(mut first: Vec<P>, mut others: Vec<P>, few: usize, seed: u64) -> (Vec<P>, usize) {
    let least = first.len() + if is_long() { others.len() } else { few.min(others.len()) };
    shuffle(&mut others, seed);
    first.append(&mut others);
    (first, least)
}

/// One in `n` points, chosen by a seed; in a long run all of them.
pub fn some<P>(mut points: Vec<P>, n: usize, seed: u64) -> Vec<P> {
    if !is_long() {
        shuffle(&mut points, seed);
        points.truncate(points.len().div_ceil(n));
    }
    points
}

/// An order that depends on the seed.
fn shuffle<P>(points: &mut [P], seed: u64) {
    let mut state = seed | 1;
    for place in (1..points.len()).rev() {
        // xorshift64
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        let chosen = usize::try_from(state % (place as u64 + 1)).unwrap_or_default();
        points.swap(place, chosen);
    }
}

/// The points to try.
pub struct Sample<'a, P> {
    /// In the order in which they are tried.
    pub points: &'a [P],
    /// How many are tried before the time starts to count.
    pub first: usize,
    /// How many are tried even after the time limit.
    pub least: usize,
    pub time: Duration,
    /// How many are tried at the same time.
    pub parallel: usize,
}

/// The results of a sample.
pub struct Tried {
    /// How many points were tried.
    pub tried: usize,
    /// At how many of them the fault happened.
    pub happened: usize,
    pub problems: Vec<String>,
}

impl<P: Sync> Sample<'_, P> {
    /// Tries the points. `attempt` returns whether the fault happened at a point, and the resulting problems.
    pub fn run(&self, attempt: &(dyn Fn(&P) -> (bool, Vec<String>) + Sync)) -> Tried {
        let (next, happened) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let problems = Mutex::new(Vec::new());
        let (real, deadline) = (Clock::system(), OnceLock::new());
        std::thread::scope(|scope| {
            for _ in 0..self.parallel {
                scope.spawn(|| {
                    loop {
                        let place = next.fetch_add(1, Ordering::SeqCst);
                        let Some(point) = self.points.get(place) else { return };
                        let is_late = || real.mono() > *deadline.get_or_init(|| real.mono() + self.time);
                        if place >= self.first && is_late() && place >= self.least {
                            return;
                        }
                        let (has_happened, found) = attempt(point);
                        happened.fetch_add(usize::from(has_happened), Ordering::SeqCst);
                        problems.lock().unwrap().extend(found);
                    }
                });
            }
        });
        // Each thread has taken one number that it did not use.
        let tried = next.into_inner().saturating_sub(self.parallel).min(self.points.len());
        Tried { tried, happened: happened.into_inner(), problems: problems.into_inner().unwrap() }
    }
}
