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
use support::garden::prepare;
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
const SEED_REQUESTS_MAX: f64 = 3.0;
const SHOOT_REQUESTS_MAX: f64 = 6.0;
/// Those about nodes in addition.
const NODE_REQUESTS_MAX: f64 = 2.0;
/// The same to the garden, for all Shoots, half of them for the heartbeat: care writes nothing about healthy Shoots.
const GARDEN_REQUESTS_MAX: f64 = 60.0;
/// Less frequent requests get no line.
const OFTEN: f64 = 20.0;
/// A period of care: a shorter measurement is useless.
const PERIOD: Duration = Duration::from_secs(60);
/// What was applied is checked, and then listed, within this time.
const LISTED_WITHIN: Duration = Duration::from_secs(90);
/// All of them are checked within a period. A busy machine may need longer.
const PATIENCE: Duration = Duration::from_secs(300);

/// How much more memory a Shoot with a pool of hosts may take than one without workers, in bytes.
const POOL_BYTES_MAX: i64 = 60_000;

/// What the care of Shoots costs that have no workers, and of those with a pool.
pub(crate) fn measure_both(bench: &Bench, report: &mut Report) {
    let without = measure(bench, report, false);
    let with = measure(bench, report, true);
    let bytes = |memory: u64| i64::try_from(memory).unwrap();
    let each = (bytes(with) - bytes(without)) / bytes(SHOOTS as u64);
    let title = "memory (PSS) of a Shoot with a pool, beyond that of one without workers";
    report.check(title, format!("{each} bytes"), &POOL_BYTES_MAX.to_string(), each <= POOL_BYTES_MAX);
}

/// Measures an agent that checks its Shoots once a day, and one with the default period. A short run has no time for the
/// first one: it only serves a comparison of processor time, which is no test. Returns the memory (PSS) in bytes.
pub(crate) fn measure(bench: &Bench, report: &mut Report, of_hosts: bool) -> u64 {
    let (folder, what) = if of_hosts { ("care-of-hosts", "Shoots with pools") } else { ("care", "Shoots") };
    let scene = Scene::new(&bench.folder.join(folder), 0);
    object::prepare_garden(&scene.garden);
    object::prepare_seed(&scene.seed);
    if of_hosts {
        scene.garden.apply(&prepare::hosts());
    }
    let crowd = Crowd::new(SHOOTS, of_hosts, &bench.clock);
    let is_short = bench.plan.is_short();
    configure(&scene, of_hosts, if is_short { "1m" } else { "24h" });
    let (mut agent, _) = bench.start(&scene);
    wait_for(&mut agent, "the Seed to be ready", || scene.is_ready().then_some(()));
    scene.leave_alone();
    scene.seed.set_share(Share::none());
    crowd.settle(&scene.garden, &scene.seed, SEED);
    // The applier's and the Leases' part does not belong to care.
    let is_served = || (served(&scene) >= SHOOTS).then_some(());
    wait_within(&mut agent, PATIENCE, "all Shoots to be served", is_served);
    let before = if is_short { 0 } else { served(&scene) };
    let without = (!is_short).then(|| without_care(bench, report, &agent, what));
    if !is_short {
        agent.kill();
        configure(&scene, of_hosts, "1m");
        agent = bench.start(&scene).0;
    }
    let is_settled =
        || (are_well(&scene, crowd.conditions()) && served(&scene) >= before + SHOOTS).then_some(());
    wait_within(&mut agent, PATIENCE, "all Shoots to be healthy", is_settled);
    // The first lists of their objects, which are not repeated for a long time.
    pause(LISTED_WITHIN);
    let servers: [(&str, &TestCluster); 3] =
        [("garden", &scene.garden), ("seed", &scene.seed), ("Shoots", &crowd.server)];
    let marks = servers.map(|(_, cluster)| cluster.request_count());
    let with = Spent::of(bench, &agent);
    let (title, percent) = match without {
        Some(without) => ("processor time for their care", with.percent - without),
        None => ("processor time with their care", with.percent),
    };
    report.row(format!("{SHOOTS} {what}: {title}"), format!("{percent:.2} %"), "5 %");
    let minutes = with.whole.as_secs_f64() / 60.0;
    let of_nodes = if of_hosts { NODE_REQUESTS_MAX } else { 0.0 };
    let limits = [GARDEN_REQUESTS_MAX, SEED_REQUESTS_MAX, SHOOT_REQUESTS_MAX + of_nodes];
    let limits = [limits[0], limits[1] * SHOOTS as f64, limits[2] * SHOOTS as f64];
    for (((name, cluster), mark), limit) in servers.into_iter().zip(marks).zip(limits) {
        let requests = cluster.requests_since(mark);
        let per_minute = requests.len() as f64 / minutes;
        let title = format!("  requests to the {name} per minute");
        report.check(title, format!("{per_minute:.0}"), &format!("{limit:.0}"), per_minute <= limit);
        report.kinds("    ", &requests, minutes, OFTEN);
    }
    let memory = agent.memory();
    let of_pools = if of_hosts { POOL_BYTES_MAX.unsigned_abs() * SHOOTS as u64 } else { 0 };
    let pss_max = PSS_MAX + of_pools;
    report.check("  PSS", mb(memory.pss), &mb(pss_max), memory.pss <= pss_max);
    report.row("    of it anonymous (heap, stacks)", mb(memory.pss_anonymous), "");
    peak(report, "  peak while they are checked", memory);
    assert!(crowd.server.request_count() > marks[2] + SHOOTS, "not all Shoots were checked");
    if !of_hosts {
        flows(&scene, &mut agent, report);
    }
    memory.pss
}

/// The processor time in percent while the Shoots are only served.
fn without_care(bench: &Bench, report: &mut Report, agent: &Agent, what: &str) -> f64 {
    let percent = Spent::of(bench, agent).percent;
    report.row(format!("{SHOOTS} {what}: processor time without their care"), format!("{percent:.2} %"), "");
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
fn configure(scene: &Scene, of_hosts: bool, period: &str) {
    let text = std::fs::read_to_string(scene.config()).unwrap();
    let mut config: Value = serde_json::from_str(&text).unwrap();
    object::make_edge(&mut config);
    // As fast as the servers of the bench allow.
    for connection in ["gardenClientConnection", "seedClientConnection"] {
        config[connection]["qps"] = json!(1_000);
        config[connection]["burst"] = json!(1_000);
    }
    config["edge"]["exposure"] = json!({"type": "NodePort", "address": "127.0.0.1"});
    if of_hosts {
        config["edge"]["hosts"] = json!({"types": [prepare::HOSTS]});
    }
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

/// Whether each Shoot has that many conditions, and all are True.
fn are_well(scene: &Scene, count: usize) -> bool {
    let state = scene.garden.store().read();
    let mut shoots = state.of(CORE, "shoots", PROJECT_NAMESPACE);
    shoots.all(|(_, shoot)| {
        let conditions = list(shoot, "/status/conditions");
        conditions.len() == count && conditions.iter().all(|condition| condition["status"] == "True")
    })
}
