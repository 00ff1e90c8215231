//! Many runs of one story, each with a fault at another point: the choice of the points, and the result.

use std::fmt::Display;
use std::io::Write as _;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use support::options::{is_long, seed, variable};
use support::random::{Random, few};

/// Stories that run at the same time.
const PARALLEL: usize = 2;
/// A story may be too short for its fault. Then it is tried again.
const ATTEMPTS: usize = 3;
/// Chooses the points with these words, such as `StaleList`, `151` or `StaleList 151`.
const CHOICE: &str = "GARDENLET_TESTS_CRASH_AT";

/// Whether a run tries only some of the points.
pub fn is_limited() -> bool {
    !is_long() && variable(CHOICE).is_none()
}

/// The points at which a story is tried.
pub struct Sample<P> {
    what: &'static str,
    points: Vec<P>,
    all: usize,
}

impl<P: Display + Sync> Sample<P> {
    pub fn of(what: &'static str) -> Self {
        Self { what, points: Vec::new(), all: 0 }
    }

    /// Adds this many of these points, chosen by the seed of the run; in a long run all of them.
    #[must_use]
    pub fn with(mut self, count: usize, of: Vec<P>) -> Self {
        self.all += of.len();
        let seed = Random::named(seed(), self.what).number();
        let mut points = few(seed, if is_limited() { count } else { of.len() }, of);
        if let Some(words) = variable(CHOICE) {
            points.retain(|point| format!(" {point} ").contains(&format!(" {words} ")));
        }
        self.points.append(&mut points);
        self
    }

    /// Tries the story at each point. `attempt` returns whether the fault happened, or what is wrong.
    pub fn run(self, attempt: &(dyn Fn(&P) -> Result<bool, String> + Sync)) {
        let Self { what, points, all } = self;
        assert!(!points.is_empty(), "{what}: no such point among {all}");
        let next = AtomicUsize::new(0);
        let results = Mutex::new(Vec::new());
        std::thread::scope(|scope| {
            for _ in 0..PARALLEL {
                scope.spawn(|| {
                    while let Some(point) = points.get(next.fetch_add(1, Ordering::SeqCst)) {
                        let result = in_some_attempt(|| attempt(point));
                        results.lock().unwrap().push(result.map_err(|problem| format!("{point}, {problem}")));
                    }
                });
            }
        });
        let results = results.into_inner().unwrap();
        let happened = results.iter().filter(|result| **result == Ok(true)).count();
        let problems: Vec<String> = results.into_iter().filter_map(Result::err).collect();
        let (tried, names) = (points.len(), points.iter().map(P::to_string).collect::<Vec<_>>().join(", "));
        // Not captured by the test harness, which shows only the output of failures.
        let _ = writeln!(
            std::io::stderr(),
            "{what}: {tried} of {all} points (seed {}), {happened} happened, {} problems{}",
            seed(),
            problems.len(),
            if is_long() { String::new() } else { format!(": {names}") }
        );
        assert!(problems.is_empty(), "{}", problems.join("\n"));
        // Some writes do not happen in each run.
        assert!(happened * 4 >= tried * 3, "only {happened} of {tried} happened");
    }
}

/// Repeats a story in which the fault did not happen.
fn in_some_attempt(attempt: impl Fn() -> Result<bool, String>) -> Result<bool, String> {
    let once = || {
        let ended = catch_unwind(AssertUnwindSafe(&attempt));
        ended.unwrap_or_else(|_| Err("the story did not end, see above".to_owned()))
    };
    (0..ATTEMPTS).map(|_| once()).find(|result| *result != Ok(false)).unwrap_or(Ok(false))
}
