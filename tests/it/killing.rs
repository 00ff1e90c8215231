//! Stories in which the agent is killed after one of its writes. It starts again, and the result is the same.

use std::io::Write as _;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde_json::Value;

use crate::left::differences;
use crate::sampling::{self, Sample, Tried};
use crate::world::{Agent, is_write_of_agent};
use support::TestCluster;
use support::http::faults::{Action, Seen};
use support::options::{self, variable};

const SAMPLE_TIME: Duration = Duration::from_secs(10);
const PARALLEL: usize = 2;

/// Counts the writes that a story is about, and kills the agent after one of them.
pub(crate) struct Kill {
    at: Option<usize>,
    agent: Arc<Agent>,
    is_armed: AtomicBool,
    writes: AtomicUsize,
    hit: Mutex<Option<String>>,
    is_due: AtomicBool,
}

impl Kill {
    /// Starts to count the agent's own writes for which `concerns` is true.
    pub(crate) fn watch(
        clusters: &[&TestCluster],
        agent: &Arc<Agent>,
        at: Option<usize>,
        concerns: fn(&Seen) -> bool,
    ) -> Arc<Self> {
        let kill = Arc::new(Self {
            at,
            agent: agent.clone(),
            is_armed: AtomicBool::new(true),
            writes: AtomicUsize::new(0),
            hit: Mutex::default(),
            is_due: AtomicBool::new(false),
        });
        for cluster in clusters {
            let (told, asked) = (kill.clone(), kill.clone());
            let counts = move |seen: &Seen| {
                asked.is_armed.load(Ordering::SeqCst)
                    && is_write_of_agent(seen)
                    && seen.user != "admin"
                    && concerns(seen)
            };
            cluster
                .faults()
                .when(counts)
                .then(Action::TellAfter(Arc::new(move |seen: &Seen| told.count(seen))));
        }
        kill
    }

    /// Whether writes count from now on.
    pub(crate) fn arm(&self, is_armed: bool) {
        self.is_armed.store(is_armed, Ordering::SeqCst);
    }

    fn hit(&self) -> MutexGuard<'_, Option<String>> {
        self.hit.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn count(&self, seen: &Seen) {
        if self.at == Some(self.writes.fetch_add(1, Ordering::SeqCst)) {
            // It may just have been stopped, because the story is over.
            let Some(cable) = self.agent.present_cable() else { return };
            cable.cut();
            *self.hit() = Some(format!("{} {}", seen.method, seen.path));
            self.is_due.store(true, Ordering::SeqCst);
        }
    }

    /// Restarts the agent, if it was killed.
    pub(crate) fn restart_if_due(&self) {
        if self.is_due.swap(false, Ordering::SeqCst) {
            self.agent.crash_and_restart();
        }
    }
}

/// The objects at the end of a story, and the object that kills its agent.
pub(crate) struct Outcome {
    pub(crate) objects: Vec<(String, Value)>,
    pub(crate) kill: Arc<Kill>,
}

/// Stories that differ only in the time of the kill.
pub(crate) struct Killing {
    /// The name of the writes that count.
    pub(crate) what: &'static str,
    /// The minimum number of these writes.
    pub(crate) writes_min: usize,
    /// A normal run tries one point in this many.
    pub(crate) step: usize,
}

impl Killing {
    /// Calls `run` without a kill, then with a kill after each of the chosen writes.
    pub(crate) fn changes_nothing(&self, run: &(dyn Fn(Option<usize>) -> Outcome + Sync)) {
        let undisturbed = run(None);
        let count = undisturbed.kill.writes.load(Ordering::SeqCst);
        assert!(count >= self.writes_min, "{count} {}", self.what);
        let seed = options::seed();
        let points = match variable("GARDENLET_TESTS_CRASH_AT") {
            Some(one) => vec![one.parse().unwrap()],
            None => sampling::some((0..count).collect(), self.step, seed),
        };
        let least = points.len();
        let sample = Sample { points: &points, first: least, least, time: SAMPLE_TIME, parallel: PARALLEL };
        let Tried { tried, happened, problems } = sample.run(&|point| judge(*point, &undisturbed, run));
        let _ = writeln!(
            std::io::stderr(),
            "killed after {tried} of {count} {} (seed {seed}): {happened} happened, {} made a difference",
            self.what,
            problems.len()
        );
        assert!(problems.is_empty(), "{}", problems.join("\n"));
        // Some writes do not happen in each run.
        let is_most = happened * 4 >= tried * 3 || happened >= self.writes_min;
        assert!(is_most, "only {happened} of {tried} kills happened");
    }
}

/// Whether the kill happened, and what differs.
fn judge(
    point: usize,
    undisturbed: &Outcome,
    run: &(dyn Fn(Option<usize>) -> Outcome + Sync),
) -> (bool, Vec<String>) {
    let Ok(outcome) = catch_unwind(AssertUnwindSafe(|| run(Some(point)))) else {
        return (true, vec![format!("{point}: the story did not end, see above")]);
    };
    let hit = outcome.kill.hit().clone();
    let Some(hit) = hit else { return (false, Vec::new()) };
    let found = differences(&undisturbed.objects, &outcome.objects);
    let problem = (!found.is_empty()).then(|| format!("{point}, {hit}:\n  {}", found.join("\n  ")));
    (true, problem.into_iter().collect())
}
