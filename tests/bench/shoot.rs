//! One Shoot, from its object in the garden to its API server: the duration of its steps, and the resources that the
//! agent uses for it.
//!
//! The node is simulated (`tests/support/shoot`): its pods start at once, and `minReadySeconds` pass as on a real one.
//! `tests/cluster` shows the times of a real node.

use std::fs;
use std::time::Duration;

use gardenlet::base::clock::Timestamp;
use serde_json::{Value, json};

use crate::agent::{Agent, Busy, Memory, wait_for, wait_within};
use crate::report::{Report, mb, ms};
use crate::scene::Scene;
use crate::{Bench, pause};
use support::encoding::from_rfc3339;
use support::http::faults::Action;
use support::http::record::Recorded;
use support::json::text;
use support::shoot::Site;
use support::shoot::object::{self, PROJECT_NAMESPACE, ShootObject};

const NAME: &str = "s1";
const CORE: &str = "core.gardener.cloud";
/// Budget of the agent's own processor time for a Shoot, without RSA keys. It depends on the machine, so only a long run
/// tests it.
const OWN_MAX: Duration = Duration::from_secs(2);
/// The thread that generates RSA keys.
const KEYS: &str = "rsa-keys";
/// Shorter steps get no line.
const STEP_MIN: Duration = Duration::from_millis(100);
/// RSA keys are generated only while the processor is idle, which takes long on a busy machine.
const PATIENCE: Duration = Duration::from_secs(600);
/// The memory that the agent may use at all: as the systemd unit and the chart.
const MEMORY_BYTES_MAX: usize = 256 << 20;
/// An object in a list of the Shoot, the lists, and how many of them are read.
const FLOOD_BYTES: usize = 229_000_000;
const FLOODED: [&str; 3] =
    ["validatingwebhookconfigurations", "mutatingwebhookconfigurations", "customresourcedefinitions"];
const FLOODS_MIN: u32 = 6;
/// Budget of the memory in the meantime.
const FLOODED_BYTES_MAX: u64 = 30_000_000;
/// The users besides the agent that send requests to the API servers: simulations and probes.
const OTHERS: [&str; 2] = ["admin", "health-check"];

/// Measures the creation, and a reconciliation without changes.
pub(crate) fn measure(bench: &Bench, report: &mut Report) {
    let (scene, site) = Scene::for_shoots(&bench.folder.join("shoot"));
    let files = (&*scene.config(), &*scene.log());
    let mut agent = Agent::start_within(MEMORY_BYTES_MAX >> 10, &bench.program, files, &bench.clock);
    let keys = agent.watch_threads(KEYS);
    wait_for(&mut agent, "the Seed to be ready", || scene.is_ready().then_some(()));
    let mut round = Round { scene: &scene, site: &site, agent: &mut agent, keys: &keys };
    round.rest();
    let (before, applied) = (round.agent.memory(), bench.clock.now());
    let spent = round.run("Create", &|| scene.garden.apply(&[ShootObject::workerless(NAME).build()]));
    report.row("Shoot: from its object to Create Succeeded", ms(spent.time), "");
    for (at, step, task) in steps(&fs::read_to_string(scene.log()).unwrap(), applied) {
        let name = format!("  {:5.1} s  {task}", at.as_secs_f64());
        report.row(name, format!("{:.1} s", step.as_secs_f64()), "");
    }
    let own = spent.own;
    let name = "  processor time without RSA keys";
    if bench.plan.is_long() {
        report.check(name, ms(own), &ms(OWN_MAX), own <= OWN_MAX);
    } else {
        report.row(name, ms(own), &ms(OWN_MAX));
    }
    report.row("  processor time for RSA keys", ms(spent.keys), "");
    spent.tell_requests(report);
    round.rest();
    let after = round.agent.memory();
    let grown = after.pss.saturating_sub(before.pss);
    report.row("  PSS before and after", format!("{}, {}", mb(before.pss), mb(after.pss)), "");
    report.row("    for the Shoot", mb(grown), "");
    let asked = json!({"metadata": {"annotations": {"gardener.cloud/operation": "reconcile"}}});
    let ask = || scene.garden.merge(CORE, "shoots", (PROJECT_NAMESPACE, NAME), &asked);
    let spent = round.run("Reconcile", &|| drop(ask()));
    report.row("Shoot: a reconciliation that changes nothing", ms(spent.time), "");
    report.row("  processor time", ms(spent.own + spent.keys), "");
    spent.tell_requests(report);
    assert_eq!(site.complaints(), Vec::<String>::new());
    round.flood(report);
}

struct Round<'a> {
    scene: &'a Scene,
    site: &'a Site,
    agent: &'a mut Agent,
    keys: &'a Busy,
}

/// The resources of an operation.
struct Spent {
    time: Duration,
    /// Processor time without RSA keys, and that of the keys.
    own: Duration,
    keys: Duration,
    /// By server.
    requests: Vec<(&'static str, Vec<Recorded>)>,
}

impl Round<'_> {
    /// Waits until the agent is idle: after an operation it generates keys for the next one.
    fn rest(&mut self) {
        pause(Duration::from_secs(3));
        let Self { agent, keys, .. } = self;
        let mut last = None;
        loop {
            let now = keys.so_far();
            if last.replace(now) == Some(now) {
                return;
            }
            agent.ensure_running();
            pause(Duration::from_secs(2));
        }
    }

    /// The owner of the Shoot puts a server of his own behind some API groups: its lists have one object that does not fit
    /// into the agent's memory.
    fn flood(&mut self, report: &mut Report) {
        let within = self.site.server(&object::technical_id(NAME)).unwrap();
        let is_care = |path: &str| FLOODED.iter().any(|plural| path.contains(plural));
        let floods = within.cluster.faults().when(move |seen| seen.method == "GET" && is_care(&seen.path));
        let floods = floods.then(Action::Flood(FLOOD_BYTES));
        self.agent.reset_peak();
        let Self { scene, .. } = *self;
        let told = || {
            let shoot = scene.garden.get(CORE, "shoots", PROJECT_NAMESPACE, NAME)?;
            let constraints = shoot["status"]["constraints"].as_array()?.clone();
            let found = constraints.into_iter().find(|found| found["type"] == "HibernationPossible")?;
            (found["status"] == "Unknown").then_some(())
        };
        wait_within(self.agent, PATIENCE, "the constraint that the webhooks are unknown", told);
        // Each check asks again.
        let enough = || (floods.hits() >= FLOODS_MIN).then_some(());
        wait_within(self.agent, PATIENCE, "more checks", enough);
        floods.cancel();
        let Memory { rss_peak, .. } = self.agent.memory();
        let name =
            format!("  peak of the memory while its server sends objects of {}", mb(FLOOD_BYTES as u64));
        report.check(name, mb(rss_peak), &mb(FLOODED_BYTES_MAX), rss_peak <= FLOODED_BYTES_MAX);
        let well = || {
            let shoot = scene.garden.get(CORE, "shoots", PROJECT_NAMESPACE, NAME)?;
            (shoot["metadata"]["labels"]["shoot.gardener.cloud/status"] == "healthy").then_some(())
        };
        wait_within(self.agent, PATIENCE, "a healthy Shoot", well);
    }

    /// The API server of the Shoot has none before it exists.
    fn marks(&self) -> [usize; 3] {
        let shoot = self.site.server(&object::technical_id(NAME));
        let of_shoot = shoot.map_or(0, |server| server.cluster.request_count());
        [self.scene.garden.request_count(), self.scene.seed.request_count(), of_shoot]
    }

    fn run(&mut self, kind: &str, begin: &dyn Fn()) -> Spent {
        let Self { scene, .. } = *self;
        let ([garden, seed, shoot], clock) = (self.marks(), &scene.clock);
        let (busy, keys, begun) = (self.agent.cpu().0, self.keys.so_far(), clock.mono());
        begin();
        let done = || {
            let shoot = scene.garden.get(CORE, "shoots", PROJECT_NAMESPACE, NAME)?;
            let last = &shoot["status"]["lastOperation"];
            (last["type"] == kind && last["state"] == "Succeeded").then_some(())
        };
        wait_within(self.agent, PATIENCE, kind, done);
        let (time, all) = (clock.mono() - begun, self.agent.cpu().0 - busy);
        let keys = self.keys.so_far() - keys;
        let within = self.site.server(&object::technical_id(NAME)).unwrap();
        let requests = [
            ("garden", scene.garden.requests_since(garden)),
            ("seed", scene.seed.requests_since(seed)),
            ("Shoot", within.cluster.requests_since(shoot)),
        ];
        Spent { time, own: all.saturating_sub(keys), keys, requests: requests.map(of_agent).into() }
    }
}

fn of_agent((server, mut requests): (&'static str, Vec<Recorded>)) -> (&'static str, Vec<Recorded>) {
    requests.retain(|request| !OTHERS.contains(&request.user.as_str()));
    (server, requests)
}

impl Spent {
    fn tell_requests(&self, report: &mut Report) {
        for (server, requests) in &self.requests {
            let writes = requests.iter().filter(|request| request.is_write()).count();
            let name = format!("  requests to the {server}, writes among them");
            report.row(name, format!("{}, {writes}", requests.len()), "");
        }
    }
}

/// Tasks of the flow from the log: the time when each was done, and the time since the one before. Several run at once,
/// so a step shows how long the flow waited, and not the duration of a task.
fn steps(log: &str, begin: Timestamp) -> Vec<(Duration, Duration, String)> {
    let lines = log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let (mut last, mut found) = (begin, Vec::new());
    for line in lines.filter(|line| line["msg"] == "The task is done") {
        let Some(at) = from_rfc3339(text(&line, "/ts")) else { continue };
        let step = at.since(last);
        last = at;
        if step >= STEP_MIN {
            found.push((at.since(begin), step, text(&line, "/task").to_owned()));
        }
    }
    found
}
