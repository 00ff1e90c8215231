//! The cost of the care of many healthy Shoots: memory, and processor time compared with an agent without care.
//!
//! One API server answers for all Shoots, to leave processor time for the agent. Their objects are as large as real
//! ones.

use std::time::Duration;

use gardenlet::base::clock::Mono;
use serde_json::{Value, json};

use crate::agent::{Agent, wait_for, wait_within};
use crate::report::{Report, mb};
use crate::scene::{SEED, Scene};
use crate::{Bench, pause, peak};
use support::TestCluster;
use support::controllers::Share;
use support::json::list;
use support::shoot::crowd::Crowd;
use support::shoot::object::{self, PROJECT_NAMESPACE, ShootObject};

const SHOOTS: usize = 250;
const CORE: &str = "core.gardener.cloud";
/// Budget of memory, in bytes.
const PSS_MAX: u64 = 20_000_000;
/// The same while this many flows run.
const FLOWS: usize = 10;
const PSS_WITH_FLOWS_MAX: u64 = 35_000_000;
/// Requests of all parts of the agent per minute, for each Shoot. They are a test instead of processor time, which
/// depends on the machine and on what runs beside.
const SEED_REQUESTS_MAX: f64 = 10.0;
const SHOOT_REQUESTS_MAX: f64 = 6.0;
/// The same to the garden, for all Shoots, half of them for the heartbeat: care writes nothing about healthy Shoots.
const GARDEN_REQUESTS_MAX: f64 = 60.0;
/// Less frequent requests get no line.
const OFTEN: f64 = 20.0;
/// A period of care: a shorter measurement is useless.
const PERIOD: Duration = Duration::from_secs(60);
/// All of them are checked within a period. A busy machine may need longer.
const PATIENCE: Duration = Duration::from_secs(300);

/// Measures an agent that checks its Shoots once a day, and one with the default period. A short run has no time for the
/// first one: it only serves a comparison of processor time, which is no test.
pub(crate) fn measure(bench: &Bench, report: &mut Report) {
    let scene = Scene::new(&bench.folder.join("care"), 0);
    object::prepare_garden(&scene.garden);
    object::prepare_seed(&scene.seed);
    let crowd = Crowd::new(SHOOTS, &bench.clock);
    let is_short = bench.plan.is_short();
    configure(&scene, if is_short { "1m" } else { "24h" });
    let (mut agent, _) = bench.start(&scene);
    wait_for(&mut agent, "the Seed to be ready", || scene.is_ready().then_some(()));
    scene.leave_alone();
    scene.seed.set_share(Share::none());
    crowd.settle(&scene.garden, &scene.seed, SEED);
    // The applier's and the Leases' part does not belong to care.
    let is_served = || (served(&scene) >= SHOOTS).then_some(());
    wait_within(&mut agent, PATIENCE, "all Shoots to be served", is_served);
    let before = if is_short { 0 } else { served(&scene) };
    let without = (!is_short).then(|| without_care(bench, report, &agent));
    if !is_short {
        agent.kill();
        configure(&scene, "1m");
        agent = bench.start(&scene).0;
    }
    let is_settled = || (are_well(&scene) && served(&scene) >= before + SHOOTS).then_some(());
    wait_within(&mut agent, PATIENCE, "all Shoots to be healthy", is_settled);
    let servers: [(&str, &TestCluster); 3] =
        [("garden", &scene.garden), ("seed", &scene.seed), ("Shoots", &crowd.server)];
    let marks = servers.map(|(_, cluster)| cluster.request_count());
    let with = Spent::of(bench, &agent);
    let (title, percent) = match without {
        Some(without) => ("processor time for their care", with.percent - without),
        None => ("processor time with their care", with.percent),
    };
    report.row(format!("{SHOOTS} Shoots: {title}"), format!("{percent:.2} %"), "5 %");
    let minutes = with.whole.as_secs_f64() / 60.0;
    let limits = [GARDEN_REQUESTS_MAX, SEED_REQUESTS_MAX * SHOOTS as f64, SHOOT_REQUESTS_MAX * SHOOTS as f64];
    for (((name, cluster), mark), limit) in servers.into_iter().zip(marks).zip(limits) {
        let requests = cluster.requests_since(mark);
        let per_minute = requests.len() as f64 / minutes;
        let title = format!("  requests to the {name} per minute");
        report.check(title, format!("{per_minute:.0}"), &format!("{limit:.0}"), per_minute <= limit);
        report.kinds("    ", &requests, minutes, OFTEN);
    }
    let memory = agent.memory();
    report.check("  PSS", mb(memory.pss), &mb(PSS_MAX), memory.pss <= PSS_MAX);
    report.row("    of it anonymous (heap, stacks)", mb(memory.pss_anonymous), "");
    peak(report, "  peak while they are checked", memory);
    assert!(crowd.server.request_count() > marks[2] + SHOOTS, "not all Shoots were checked");
    flows(&scene, &mut agent, report);
}

/// The processor time in percent while the Shoots are only served.
fn without_care(bench: &Bench, report: &mut Report, agent: &Agent) -> f64 {
    let percent = Spent::of(bench, agent).percent;
    report.row(format!("{SHOOTS} Shoots: processor time without their care"), format!("{percent:.2} %"), "");
    let memory = agent.memory();
    let anonymous = mb(memory.pss_anonymous);
    report.row("  PSS", format!("{}, of it anonymous {anonymous}", mb(memory.pss)), "");
    percent
}

/// Ten more Shoots are created at the same time. The agent's workloads get no pods, so that the flows continue to wait.
fn flows(scene: &Scene, agent: &mut Agent, report: &mut Report) {
    let names: Vec<String> = (0..FLOWS).map(|n| format!("f{n}")).collect();
    let shoots = names.iter().map(|name| ShootObject::workerless(name).with("/spec/seedName", SEED).build());
    scene.garden.apply(&shoots.collect::<Vec<_>>());
    let has_etcd = |name: &String| {
        let plane = object::technical_id(name);
        scene.seed.get("apps", "statefulsets", &plane, "etcd-main").is_some()
    };
    wait_within(agent, PATIENCE, "ten flows", || names.iter().all(is_running(scene)).then_some(()));
    agent.reset_peak();
    // RSA keys are generated one after the other; the others wait for theirs.
    wait_within(agent, PATIENCE, "the etcds of two", || {
        (names.iter().filter(|name| has_etcd(name)).count() >= 2).then_some(())
    });
    assert!(names.iter().all(is_running(scene)), "a flow has ended");
    let memory = agent.memory();
    let title = format!("  PSS with {FLOWS} flows besides");
    report.check(title, mb(memory.pss), &mb(PSS_WITH_FLOWS_MAX), memory.pss <= PSS_WITH_FLOWS_MAX);
    peak(report, "    peak meanwhile", memory);
}

/// Whether an operation of a Shoot is running.
fn is_running(scene: &Scene) -> impl Fn(&String) -> bool {
    |name| {
        let shoot = scene.garden.get(CORE, "shoots", PROJECT_NAMESPACE, name).unwrap_or_default();
        shoot["status"]["lastOperation"]["state"] == "Processing"
    }
}

/// The resources of an idle agent.
struct Spent {
    percent: f64,
    /// From the start of the idle time on.
    whole: Duration,
}

impl Spent {
    fn of(bench: &Bench, agent: &Agent) -> Self {
        let begin = bench.clock.mono();
        pause(bench.plan.warm_up.max(PERIOD / 2));
        agent.reset_peak();
        let (from, busy): (Mono, Duration) = (bench.clock.mono(), agent.busy());
        // Half of a long measurement, which would take more than an hour otherwise.
        pause((bench.plan.idle / 2).max(PERIOD));
        let (time, spent) = (bench.clock.mono() - from, agent.busy().saturating_sub(busy));
        let percent = spent.as_secs_f64() / time.as_secs_f64() * 100.0;
        Self { percent, whole: bench.clock.mono() - begin }
    }
}

/// The configuration of a seed at the edge, with the period of care.
fn configure(scene: &Scene, period: &str) {
    let text = std::fs::read_to_string(scene.config()).unwrap();
    let mut config: Value = serde_json::from_str(&text).unwrap();
    object::make_edge(&mut config);
    // As fast as the servers of the bench allow.
    for connection in ["gardenClientConnection", "seedClientConnection"] {
        config[connection]["qps"] = json!(1_000);
        config[connection]["burst"] = json!(1_000);
    }
    config["edge"]["exposure"] = json!({"type": "NodePort", "address": "127.0.0.1"});
    config["resources"]["capacity"]["shoots"] = json!((SHOOTS + FLOWS).to_string());
    config["controllers"]["shoot"] = json!({"respectSyncPeriodOverwrite": true});
    config["controllers"]["shootCare"] = json!({"syncPeriod": period});
    std::fs::write(scene.config(), config.to_string()).unwrap();
}

/// How often the applier has started to serve a Shoot, from the log.
fn served(scene: &Scene) -> usize {
    let log = std::fs::read_to_string(scene.log()).unwrap_or_default();
    log.lines().filter(|line| line.contains("Serving the cluster of the Shoot")).count()
}

fn are_well(scene: &Scene) -> bool {
    let state = scene.garden.store().read();
    let mut shoots = state.of(CORE, "shoots", PROJECT_NAMESPACE);
    shoots.all(|(_, shoot)| {
        let conditions = list(shoot, "/status/conditions");
        conditions.len() == 4 && conditions.iter().all(|condition| condition["status"] == "True")
    })
}
