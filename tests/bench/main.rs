//! The resources of the released program: size, memory, threads, start time, and its requests while nothing happens.
//! The real binary runs as a separate process against the simulated servers in this one. It also compares the rendering
//! of charts with helm.
//!
//! Figures are printed. Only counts and sizes are tests, including memory: a busy machine must not fail them.

// A bench ends at the first error, and prints.
#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout, unreachable_pub)]
// Figures are small, and shown with two digits.
#![allow(clippy::cast_precision_loss)]

mod agent;
mod care;
mod charts;
mod objects;
mod render;
mod report;
mod scene;
mod shoot;
mod stores;

use std::fs::{File, Permissions};
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use gardenlet::base::clock::{Clock, Mono};
use gardenlet::base::stop::Stop;
use gardenlet::limits;

use agent::{Agent, Memory, wait_for};
use report::{Report, mb, ms};
use scene::Scene;

/// Extensions on the seed: the basis of the memory budget.
const EXTENSIONS: usize = 10;
/// On a crowded seed: extensions, and ManagedResources in addition to theirs.
const CROWD: (usize, usize) = (100, 2_000);
/// Budget of the crowded seed's memory, and of a peak above the resident memory.
const CROWD_BYTES_MAX: u64 = 20_000_000;
const PEAK_MAX: f64 = 1.5;
/// Budget of the released binary, and of the one for small boards.
const BINARY_BYTES_MAX: u64 = 7_000_000;
const BOARD_BINARY_BYTES_MAX: u64 = 5_960_000;
/// The recorded bytes of the binaries.
const SIZES: &str = include_str!("sizes.txt");
/// The maximum growth since then.
const GROWTH_PERCENT_MAX: u64 = 5;
/// Memory of an idle agent.
const IDLE_BYTES_MAX: u64 = 9_500_000;
/// Requests to the garden in a minute without work.
const GARDEN_REQUESTS_MAX: u64 = 33;
/// Requests to an idle seed in a minute, and the writes among them, which wear out its flash.
const SEED_REQUESTS_MAX: u64 = 66;
const SEED_WRITES_MAX: u64 = 30;
/// Additional requests that may fall into any period.
const EDGE_REQUESTS: u64 = 3;
/// The minimum that Linux maps.
const PAGE_BYTES: usize = 4 << 10;
/// The interval between two memory samples.
const SAMPLE: Duration = Duration::from_secs(10);

const STARTS_OF_LONG: usize = 10;

/// The durations of the measurements.
struct Plan {
    /// The time before the agent counts as idle.
    warm_up: Duration,
    /// The duration of the idle measurement.
    idle: Duration,
    /// The number of attempts for each start.
    starts: usize,
}

impl Plan {
    /// Whether only what is tested counts.
    fn is_short(&self) -> bool {
        self.starts == 1
    }

    /// Whether the machine has nothing else to do.
    fn is_long(&self) -> bool {
        self.starts == STARTS_OF_LONG
    }

    fn parse<'a>(mut arguments: impl Iterator<Item = &'a str>) -> Self {
        let length = arguments.find(|a| ["--short", "--long"].contains(a));
        let (warm_up, idle, starts) = match length {
            Some("--short") => (5, 20, 1),
            Some("--long") => (300, 600, STARTS_OF_LONG),
            // All installed objects are checked once more after a minute.
            _ => (90, 120, 5),
        };
        Self { warm_up: Duration::from_secs(warm_up), idle: Duration::from_secs(idle), starts }
    }
}

/// `bench PROGRAM FOLDER [--short | --long] [--care | --idle | --objects | --render | --shoot | --stores] [--helm=HELM]
/// [--left-out=WHY] [TARGET=PROGRAM ...]`: the program to run, a folder for files, helm for the comparison, and
/// programs of which only the size is measured. `--render` only compares the rendering of charts; `--stores` only
/// measures an object in a store; `--idle` only measures an idle agent; `--shoot` only measures a Shoot; `--care` only
/// measures the care of many Shoots; `--objects` only measures objects for extensions.
fn main() -> ExitCode {
    // `cargo bench` adds its own option.
    let arguments: Vec<String> = std::env::args().skip(1).filter(|argument| argument != "--bench").collect();
    let [program, folder, rest @ ..] = arguments.as_slice() else {
        println!("start this with tests/bench/run");
        return ExitCode::from(2);
    };
    let plan = Plan::parse(rest.iter().map(String::as_str));
    let mut report = Report::default();
    let mut helm = None;
    rest.iter().filter_map(|argument| argument.split_once('=')).for_each(|(name, value)| match name {
        "--left-out" => report.leave_out(value),
        "--helm" => helm = Some(PathBuf::from(value)),
        target => size(&mut report, target, value),
    });
    report.note(format!(
        "load {:.1} on {} processors; {} extensions; {} s to warm up, {} s idle",
        agent::load(),
        agent::processors(),
        EXTENSIONS,
        plan.warm_up.as_secs(),
        plan.idle.as_secs()
    ));
    let bench = Bench {
        plan,
        program: page_by_page(Path::new(program), &Path::new(folder).join("gardenlet")),
        folder: PathBuf::from(folder),
        clock: Clock::system(),
    };
    let only = |word: &str| rest.iter().any(|argument| argument == word);
    let is_part = ["--stores", "--idle", "--shoot", "--care", "--objects"].into_iter().any(only);
    if only("--stores") {
        bench.stores(&mut report);
    } else if only("--idle") {
        bench.rest(&mut report);
    } else if only("--shoot") {
        shoot::measure(&bench, &mut report);
    } else if only("--care") {
        care::measure_both(&bench, &mut report);
    } else if only("--objects") {
        objects::measure(&bench, &mut report);
    } else if !only("--render") {
        bench.run(&mut report);
    }
    if let Some(helm) = helm.filter(|_| !is_part) {
        let demands_ratio = !bench.plan.is_short();
        let Bench { program: own, folder, clock, .. } = bench;
        let helm = page_by_page(&helm, &folder.join("helm"));
        render::Rival { own, helm, folder, clock, demands_ratio }.compare(&mut report);
    }
    report.print();
    if report.failed() == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// A copy of a program, written page by page. Linux maps programs in the pieces in which their files were written, so
/// one that was written at once would seem to use more memory than it does, and a different amount each time.
fn page_by_page(program: &Path, copy: &Path) -> PathBuf {
    let bytes = std::fs::read(program).unwrap();
    let mut file = File::create(copy).unwrap();
    bytes.chunks(PAGE_BYTES).for_each(|page| file.write_all(page).unwrap());
    file.set_permissions(Permissions::from_mode(0o755)).unwrap();
    copy.to_owned()
}

fn size(report: &mut Report, target: &str, program: &str) {
    let bytes = std::fs::metadata(program).unwrap().len();
    let value = format!("{bytes} bytes");
    let is_board = target == "armv7-unknown-linux-musleabihf";
    let max = if is_board { BOARD_BINARY_BYTES_MAX } else { BINARY_BYTES_MAX };
    report.check(format!("binary, {target}"), value, &max.to_string(), bytes <= max);
    if let Some(recorded) = recorded(SIZES, target) {
        let percent = (bytes as f64 / recorded as f64 - 1.0) * 100.0;
        let holds = bytes <= recorded + recorded * GROWTH_PERCENT_MAX / 100;
        let budget = format!("+{GROWTH_PERCENT_MAX} %");
        report.check(
            format!("  against {recorded} in tests/bench/sizes.txt"),
            format!("{percent:+.1} %"),
            &budget,
            holds,
        );
    }
}

/// The recorded size of a binary: lines of its name and its bytes.
fn recorded(sizes: &str, name: &str) -> Option<u64> {
    sizes.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.trim().parse().ok())
}

struct Bench {
    plan: Plan,
    program: PathBuf,
    folder: PathBuf,
    clock: Clock,
}

impl Bench {
    fn run(&self, report: &mut Report) {
        let mut bootstraps = Vec::new();
        for n in 1..self.plan.starts {
            let scene = Scene::new(&self.folder.join(format!("start-{n}")), 0);
            bootstraps.push(self.start(&scene).1);
        }
        let scene = Scene::new(&self.folder.join("main"), EXTENSIONS);
        let (mut agent, first) = self.start(&scene);
        bootstraps.push(first);
        report.times("start to first lease, with bootstrap", &bootstraps, "1000 ms");
        self.settle(report, &scene, &mut agent);
        self.idle(report, &scene, &mut agent);
        self.list_again(report, &scene, &mut agent);
        self.restart(report, &scene, agent);
        drop(scene);
        self.crowd(report);
        self.stores(report);
        objects::measure(self, report);
        shoot::measure(self, report);
        if self.plan.is_short() {
            care::measure(self, report, false);
        } else {
            care::measure_both(self, report);
        }
    }

    /// A seed with extensions, and without work.
    fn rest(&self, report: &mut Report) {
        let scene = Scene::new(&self.folder.join("main"), EXTENSIONS);
        let (mut agent, _) = self.start(&scene);
        self.settle(report, &scene, &mut agent);
        self.idle(report, &scene, &mut agent);
    }

    /// An idle seed, and thousands of objects that the agent watches.
    fn stores(&self, report: &mut Report) {
        let scene = Scene::crowded(&self.folder.join("stores"), 0);
        let (mut agent, _) = self.start(&scene);
        wait_for(&mut agent, "the Seed to be ready", || scene.is_ready().then_some(()));
        scene.leave_alone();
        stores::measure(report, &scene, &mut agent);
    }

    /// A seed with a hundred extensions and thousands of ManagedResources: its memory is a test.
    fn crowd(&self, report: &mut Report) {
        let scene = Scene::crowded(&self.folder.join("crowd"), CROWD.0);
        let (mut agent, _) = self.start(&scene);
        let begin = self.clock.mono();
        wait_for(&mut agent, "the Seed to be ready", || scene.is_ready().then_some(()));
        scene.manage(CROWD.1);
        scene.extend();
        let all = CROWD.0 + CROWD.1;
        wait_for(&mut agent, "all ManagedResources", || scene.are_managed(all).then_some(()));
        wait_for(&mut agent, "the extensions", || scene.is_settled().then_some(()));
        let took = (self.clock.mono() - begin).as_secs_f64();
        let name = format!("{} extensions, {} ManagedResources", CROWD.0, CROWD.1);
        report.row(format!("{name}: all applied and healthy"), format!("{took:.1} s"), "");
        pause(self.plan.warm_up);
        let memory = agent.memory();
        let holds = memory.pss <= CROWD_BYTES_MAX;
        report.check("  PSS", mb(memory.pss), &mb(CROWD_BYTES_MAX), holds);
        peak(report, "  peak since the start (VmHWM)", memory);
        self.list_again(report, &scene, &mut agent);
        peak(report, "  peak while all lists were read again", agent.memory());
        counts(report, &scene, &agent);
    }

    /// Starts the agent; returns how long it took until the Lease was written.
    fn start(&self, scene: &Scene) -> (Agent, Duration) {
        let mark = scene.garden.request_count();
        let mut agent = Agent::start(&self.program, &scene.config(), &scene.log(), &self.clock);
        let beat = wait_for(&mut agent, "the first lease", || scene.first_beat(mark));
        let took = beat.since(agent.started);
        (agent, took)
    }

    fn settle(&self, report: &mut Report, scene: &Scene, agent: &mut Agent) {
        wait_for(agent, "the Seed to be ready", || scene.garden.seed_condition("edge-1", "GardenletReady"));
        let (begin, cpu, children) = (self.clock.mono(), agent.cpu(), agent.watch_children());
        scene.extend();
        wait_for(agent, "the extensions", || scene.is_settled().then_some(()));
        let (took, after) = (self.clock.mono() - begin, agent.cpu());
        report.row(
            format!("{EXTENSIONS} extensions installed and healthy"),
            format!("{:.1} s", took.as_secs_f64()),
            "",
        );
        let spent = format!("{} + {} in children", ms(after.0 - cpu.0), ms(after.1 - cpu.1));
        report.row("  processor time for it", spent, "");
        report.row("  peak memory of a rendering child (VmHWM)", mb(children.finish()), "");
        pause(self.plan.warm_up);
    }

    fn idle(&self, report: &mut Report, scene: &Scene, agent: &mut Agent) {
        let marks = scene.clusters().map(|(_, cluster)| (cluster.request_count(), cluster.traffic()));
        let (busy, switches, begin) = (agent.busy(), agent.switches(), self.clock.mono());
        let samples = self.sample(agent);
        let time = self.clock.mono() - begin;
        let minutes = time.as_secs_f64() / 60.0;
        memory(report, &samples);
        for (name, bytes) in agent.parts() {
            report.row(format!("  PSS of {name}"), mb(bytes), "");
        }
        let spent = agent.busy().saturating_sub(busy);
        report.row(
            "idle processor time",
            format!("{:.3} %", spent.as_secs_f64() / time.as_secs_f64() * 100.0),
            "0.1 %",
        );
        let switches = agent.switches() - switches;
        report.row("idle wake-ups per minute", format!("{:.0}", switches as f64 / minutes), "");
        for ((name, cluster), (mark, before)) in scene.clusters().into_iter().zip(marks) {
            let (after, requests) = (cluster.traffic(), cluster.requests_since(mark));
            let per_minute = |count: u64| format!("{:.1}", count as f64 / minutes);
            let (all, writes) =
                (requests.len() as u64, requests.iter().filter(|r| r.is_write()).count() as u64);
            let title = format!("idle requests to the {name} per minute");
            let mut check = |title: String, count: u64, max: u64| {
                let holds = count as f64 <= max as f64 * minutes + EDGE_REQUESTS as f64;
                report.check(title, per_minute(count), &max.to_string(), holds);
            };
            if name == "seed" {
                check(title, all, SEED_REQUESTS_MAX);
                check("  of them writes".to_owned(), writes, SEED_WRITES_MAX);
            } else {
                check(title, all, GARDEN_REQUESTS_MAX);
            }
            let bytes = (after.0 - before.0 + after.1 - before.1) as f64 / minutes / 1e3;
            report.row("  bytes per minute, both ways, TLS included", format!("{bytes:.1} kB"), "");
            report.row("  new connections per minute", per_minute(after.2 - before.2), "");
            report.kinds("  ", &requests, minutes, 0.0);
        }
        counts(report, scene, agent);
    }

    /// Samples the memory until the idle time is over.
    fn sample(&self, agent: &mut Agent) -> Vec<Memory> {
        let end: Mono = self.clock.mono() + self.plan.idle;
        let mut samples = Vec::new();
        loop {
            agent.ensure_running();
            samples.push(agent.memory());
            let left = end.saturating_sub(self.clock.mono());
            if left.is_zero() {
                return samples;
            }
            pause(left.min(SAMPLE));
        }
    }

    /// Every informer lists again, because the servers have dropped its version.
    fn list_again(&self, report: &mut Report, scene: &Scene, agent: &mut Agent) {
        let watches = scene.open_watches().len();
        agent.reset_peak();
        let marks = scene.clusters().map(|(_, cluster)| cluster.request_count());
        scene.forget();
        wait_for(agent, "all watches to be back", || {
            let is_listed = |r: &support::http::record::Recorded| r.info.verb == "list";
            let listed = scene
                .clusters()
                .iter()
                .zip(marks)
                .all(|((_, c), mark)| c.requests_since(mark).iter().any(is_listed));
            (listed && scene.open_watches().len() >= watches).then_some(())
        });
        pause(Duration::from_secs(5));
        let memory = agent.memory();
        report.row(
            "resident after all lists were read again, and peak",
            format!("{}, {}", mb(memory.rss), mb(memory.rss_peak)),
            "",
        );
    }

    fn restart(&self, report: &mut Report, scene: &Scene, agent: Agent) {
        let (mut orderly, mut crashed, mut ends) = (Vec::new(), Vec::new(), Vec::new());
        let mut agent = agent;
        for _ in 0..self.plan.starts {
            ends.push(agent.terminate(&self.clock));
            let (next, took) = self.start(scene);
            orderly.push(took);
            next.kill();
            let (next, took) = self.start(scene);
            crashed.push(took);
            agent = next;
        }
        report.times("start to first lease, after an orderly stop", &orderly, "100 ms");
        report.times("start to first lease, after SIGKILL", &crashed, "100 ms");
        report.times("orderly stop", &ends, "");
        wait_for(&mut agent, "the extensions", || scene.is_settled().then_some(()));
        pause(self.plan.warm_up);
        let memory = agent.memory();
        report.row(
            "after a restart: PSS, of it anonymous",
            format!("{}, {}", mb(memory.pss), mb(memory.pss_anonymous)),
            "8 MB",
        );
        report.row(
            "after a restart: resident, peak",
            format!("{}, {}", mb(memory.rss), mb(memory.rss_peak)),
            "",
        );
    }
}

/// The peak of resident memory, compared with the current one.
fn peak(report: &mut Report, name: &str, memory: Memory) {
    let factor = memory.rss_peak as f64 / memory.rss as f64;
    let value = format!("{}, {factor:.2} times", mb(memory.rss_peak));
    report.check(name, value, &format!("{PEAK_MAX} times"), factor <= PEAK_MAX);
}

fn memory(report: &mut Report, samples: &[Memory]) {
    let range = |of: fn(&Memory) -> u64| {
        let (least, most) = (samples.iter().map(of).min().unwrap(), samples.iter().map(of).max().unwrap());
        if mb(least) == mb(most) { mb(most) } else { format!("{} to {}", mb(least), mb(most)) }
    };
    let most = samples.iter().map(|m| m.pss).max().unwrap();
    report.check("PSS, idle", range(|m| m.pss), &mb(IDLE_BYTES_MAX), most <= IDLE_BYTES_MAX);
    report.row("  of it anonymous (heap, stacks)", range(|m| m.pss_anonymous), "");
    let last = samples.last().unwrap();
    let factor = last.rss_peak as f64 / last.rss as f64;
    report.row("resident, idle", range(|m| m.rss), "");
    report.row(
        "  peak since the start (VmHWM)",
        format!("{}, {factor:.2} times", mb(last.rss_peak)),
        "1.5 times",
    );
}

fn counts(report: &mut Report, scene: &Scene, agent: &Agent) {
    let threads = agent.threads();
    let count: usize = threads.values().sum();
    report.check(
        "threads",
        count.to_string(),
        &limits::THREADS_MAX.to_string(),
        count <= limits::THREADS_MAX,
    );
    let names = threads.iter().map(|(name, n)| if *n == 1 { name.clone() } else { format!("{name} ({n})") });
    report.row(format!("  {}", names.collect::<Vec<_>>().join(", ")), String::new(), "");
    let watches = scene.open_watches();
    report.check("watches", watches.len().to_string(), "24", watches.len() <= 24);
    report.row(format!("  {}", watches.join(", ")), String::new(), "");
}

/// Real time for other processes; no figure depends on its precision.
pub(crate) fn pause(real: Duration) {
    Stop::new().wait(&Clock::system(), real);
}
