//! The agent is killed after each of its writes for Bastions, while one is made, changed and deleted: it starts again, and ends
//! where it would have ended.

use std::io::Write as _;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde_json::{Value, json};

use crate::left::{Words, differences};
use crate::sampling::{Sample, Tried, variable};
use crate::story_bastions::{Lab, reached_at, works};
use crate::support::TestCluster;
use crate::support::api::store::Id;
use crate::support::http::faults::{Action, Seen};
use crate::world::{Agent, World, is_write_of_agent};

const SAMPLE_TIME: Duration = Duration::from_secs(10);
const PARALLEL: usize = 2;

/// Counts the writes for Bastions, and kills the agent after one of them.
struct Kill {
    at: Option<usize>,
    agent: Arc<Agent>,
    writes: AtomicUsize,
    hit: Mutex<Option<String>>,
    is_due: AtomicBool,
}

impl Kill {
    fn watch(world: &World, agent: &Arc<Agent>, at: Option<usize>) -> Arc<Self> {
        let kill = Arc::new(Self {
            at,
            agent: agent.clone(),
            writes: AtomicUsize::new(0),
            hit: Mutex::default(),
            is_due: AtomicBool::new(false),
        });
        for cluster in [&*world.garden, &world.seed] {
            let told = kill.clone();
            let tell = Action::TellAfter(Arc::new(move |seen: &Seen| told.count(seen)));
            let concerns = |seen: &Seen| is_write_of_agent(seen) && seen.info.resource == "bastions";
            cluster.faults().when(concerns).then(tell);
        }
        kill
    }

    fn count(&self, seen: &Seen) {
        if self.at == Some(self.writes.fetch_add(1, Ordering::SeqCst)) {
            self.agent.cable().cut();
            self.is_due.store(true, Ordering::SeqCst);
            *self.hit.lock().unwrap_or_else(PoisonError::into_inner) =
                Some(format!("{} {}", seen.method, seen.path));
        }
    }

    /// Brings the agent back, if it was killed.
    fn restart_if_due(&self) {
        if self.is_due.swap(false, Ordering::SeqCst) {
            self.agent.crash_and_restart();
        }
    }
}

struct Outcome {
    objects: Vec<(String, Value)>,
    kill: Arc<Kill>,
}

/// The whole story, killed after one write or after none.
fn run(at: Option<usize>) -> Outcome {
    let mut kill = None;
    let lab = Lab::start("killed-bastions", |world, agent| kill = Some(Kill::watch(world, agent, at)));
    let kill = kill.unwrap();
    let wait = |what: &str, condition: &dyn Fn() -> Option<()>| {
        lab.wait_for(what, || {
            kill.restart_if_due();
            condition()
        });
    };
    let is_at = |ip: &str| {
        let bastion = lab.bastion("b1").filter(works)?;
        (bastion["status"]["ingress"]["ip"] == ip).then_some(())
    };
    lab.player.behave("bastions", reached_at("192.0.2.10"));
    lab.make("b1", |_| {});
    wait("the Bastion", &|| is_at("192.0.2.10"));
    lab.player.behave("bastions", reached_at("192.0.2.11"));
    lab.change("b1", &json!({"spec": {"ingress": [{"ipBlock": {"cidr": "198.51.100.0/24"}}]}}));
    wait("the other address", &|| is_at("192.0.2.11"));
    let objects = left(&lab);
    let annotations = json!({"confirmation.gardener.cloud/force-deletion": "true"});
    lab.change("b1", &json!({"metadata": {"annotations": annotations}}));
    lab.world.garden.delete(
        crate::story_bastions::OPERATIONS,
        "bastions",
        crate::story_bastions::PROJECT,
        "b1",
    );
    wait("the end", &|| lab.bastion("b1").is_none().then_some(()));
    assert_eq!(lab.object("b1"), None);
    kill.restart_if_due();
    lab.end();
    Outcome { objects, kill }
}

fn left(lab: &Lab) -> Vec<(String, Value)> {
    let words = Words::new(&[]);
    let of = |cluster: &TestCluster| words.left_in(cluster, |id: &Id| id.plural == "bastions");
    let mut all = [of(&lab.world.garden), of(&lab.world.seed)].concat();
    for (_, object) in &mut all {
        // What is asked twice is done twice.
        object["status"]["lastOperation"]["type"] = Value::Null;
    }
    all
}

fn judge(point: usize, undisturbed: &Outcome) -> (bool, Vec<String>) {
    let Ok(outcome) = catch_unwind(AssertUnwindSafe(|| run(Some(point)))) else {
        return (true, vec![format!("{point}: the story did not end, see above")]);
    };
    let hit = outcome.kill.hit.lock().unwrap_or_else(PoisonError::into_inner).clone();
    let Some(hit) = hit else { return (false, Vec::new()) };
    let found = differences(&undisturbed.objects, &outcome.objects);
    let problem = (!found.is_empty()).then(|| format!("{point}, {hit}:\n  {}", found.join("\n  ")));
    (true, problem.into_iter().collect())
}

#[test]
fn a_kill_changes_nothing_for_bastions() {
    let undisturbed = run(None);
    let count = undisturbed.kill.writes.load(Ordering::SeqCst);
    let points: Vec<usize> = match variable("GARDENLET_TESTS_CRASH_AT") {
        Some(one) => vec![one.parse().unwrap()],
        None => (0..count).collect(),
    };
    let least = points.len();
    let sample = Sample { points: &points, first: least, least, time: SAMPLE_TIME, parallel: PARALLEL };
    let Tried { tried, happened, problems } = sample.run(&|point| judge(*point, &undisturbed));
    let _ = writeln!(
        std::io::stderr(),
        "killed after {tried} of {count} writes for Bastions: {happened} happened, {} made a difference",
        problems.len()
    );
    assert!(problems.is_empty(), "{}", problems.join("\n"));
    assert!(count >= 7 && happened * 4 >= tried * 3, "only {happened} of {tried} kills happened");
}
