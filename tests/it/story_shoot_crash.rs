//! The agent is killed while it creates a Shoot: before or after one of its writes, and so at each border between two
//! tasks. It starts again, and the result is the same, with the earlier keys and certificates and without duplicates.
//!
//! A kill cuts all connections and loses everything but the state directory. A kill before a write has the effect of a
//! kill after the tasks before it that only wait.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use gardenlet::base::clock::Clock;
use gardenlet::base::stop::Stop;
use serde_json::{Value, json};

use crate::left::{Words, differences};
use crate::sampling::{self, Sample, Tried};
use crate::world::{Agent, Options, World, is_write_of_agent};
use support::TestCluster;
use support::cluster::PATIENCE;
use support::http::faults::{Action, Seen};
use support::json::{entry, list, text};
use support::options::{self, variable};
use support::pace;
use support::shoot::Site;
use support::shoot::history;
use support::shoot::object::{PROJECT_NAMESPACE, Workerless, technical_id};

use Point::{After, Before};

const NAME: &str = "s1";
/// A normal run tries one border in this many.
const STEP: usize = 2;
/// It also tries at least this many other points, and more while there is time. `GARDENLET_TESTS_LONG` tries all of
/// them. `GARDENLET_TESTS_SEED` repeats a choice.
const SAMPLE: usize = 4;
const SAMPLE_TIME: Duration = Duration::from_secs(15);
/// On musl a normal run tries one point in this many.
const MUSL_STEP: usize = 8;
/// The time between two comparisons of everything: six seconds for the agent.
const LOOK: Duration = Duration::from_millis(300);
/// Creations that run at the same time.
const PARALLEL: usize = 2;

/// Where the agent is killed. Writes have names: see [`name_of`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Point<S = String> {
    /// The write has no effect.
    Before(S),
    /// The write took effect, but the agent gets no answer.
    After(S),
}

impl<S: Into<String>> Point<S> {
    pub(crate) fn owned(self) -> Point {
        match self {
            Before(write) => Before(write.into()),
            After(write) => After(write.into()),
        }
    }
}

/// The borders between tasks: the task that has ended last, and the point. Tasks that this Shoot omits, or that have
/// nothing to do for it, have no border.
pub static BORDERS: [(&str, Point<&str>); 26] = [
    ("nothing", Before("garden: PATCH shoots s1")),
    ("finalizer", After("garden: PATCH shoots s1")),
    ("start of the operation", After("garden: PATCH shoots/status s1 Processing")),
    ("Check required extensions exist", Before("seed: POST namespaces shoot--p--s1")),
    ("Deploying control plane namespace", Before("garden: PATCH shoots/status s1 clusterIdentity")),
    ("Ensuring Shoot cluster identity", Before("seed: POST secrets referenced-resources-<hash>")),
    ("Deploying referenced resources", Before("seed: POST services kube-apiserver")),
    (
        "Deploying Kubernetes API server service in the Seed cluster",
        After("seed: POST services kube-apiserver-exposure"),
    ),
    (
        "Waiting until Kubernetes API server service in the Seed cluster has reported readiness",
        Before("seed: POST secrets ca"),
    ),
    ("Initializing secrets management", Before("garden: PATCH shoots/status s1 advertisedAddresses")),
    (
        "Ensuring advertised addresses for the Shoot",
        After("garden: PATCH shoots/status s1 advertisedAddresses"),
    ),
    ("Deploying external domain DNS record", Before("seed: POST configmaps etcd-main-config")),
    ("Deploying main and events ETCDs", After("seed: POST statefulsets etcd-events")),
    (
        "Waiting until main and event ETCDs have been reconciled",
        Before("seed: POST configmaps audit-policy-config-<hash>"),
    ),
    ("Deploying Kubernetes API server", After("seed: POST deployments kube-apiserver")),
    (
        "Waiting until Kubernetes API server rolled out",
        Before("seed: POST secrets managedresource-shoot-core-gardener-resource-manager-<hash>"),
    ),
    (
        "Deploying gardener-resource-manager",
        After("seed: POST managedresources shoot-core-gardener-resource-manager"),
    ),
    (
        "Waiting until gardener-resource-manager reports readiness",
        Before("seed: POST secrets managedresource-shoot-core-namespaces-<hash>"),
    ),
    (
        "Deploying shoot namespaces system component",
        After("seed: POST managedresources shoot-core-namespaces"),
    ),
    (
        "Deploying Gardener shoot access resources",
        After("seed: POST managedresources shoot-core-gardeneraccess"),
    ),
    (
        "Deploying Kubernetes controller manager",
        After("seed: POST managedresources shoot-core-kube-controller-manager"),
    ),
    (
        "Initializing connection to Shoot",
        Before("seed: POST secrets managedresource-shoot-core-cluster-identity-<hash>"),
    ),
    ("Deploying shoot cluster identity", After("seed: POST managedresources shoot-core-cluster-identity")),
    ("Deploying shoot system resources", After("seed: POST managedresources shoot-core-system")),
    ("all tasks", Before("garden: PATCH shoots/status s1 Succeeded")),
    ("success", After("garden: PATCH shoots/status s1 Succeeded")),
];

/// Counts the writes for a Shoot, and kills the agent at one of them.
pub(crate) struct Kill {
    at: Option<Point>,
    agent: Arc<Agent>,
    words: Words,
    /// The count of each write.
    counts: Mutex<BTreeMap<String, usize>>,
    /// All writes in their order, until the agent is killed.
    pub(crate) order: Mutex<Vec<String>>,
    /// The names of requests by server and number.
    names: Mutex<BTreeMap<(String, u64), String>>,
    pub(crate) happened: AtomicBool,
    /// True from the kill until the agent starts again.
    due: AtomicBool,
}

pub(crate) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Kill {
    pub(crate) fn new(agent: &Arc<Agent>, at: Option<Point>) -> Arc<Self> {
        Arc::new(Self {
            at,
            agent: agent.clone(),
            words: words(),
            counts: Mutex::default(),
            order: Mutex::default(),
            names: Mutex::default(),
            happened: AtomicBool::new(false),
            due: AtomicBool::new(false),
        })
    }

    pub(crate) fn watch(self: &Arc<Self>, cluster: &TestCluster) {
        let (kill, server) = (self.clone(), cluster.name.clone());
        let is_before = move |seen: &Seen| {
            // While its connections are cut, the agent might still use one to make another write.
            is_of_agent(seen) && kill.due.load(Ordering::SeqCst)
                || concerns(seen, &server) && kill.counts(&server, seen)
        };
        cluster.faults().when(is_before).then(Action::Drop);
        let (kill, server) = (self.clone(), cluster.name.clone());
        let is_after = move |seen: &Seen| {
            let name = locked(&kill.names).get(&(server.clone(), seen.sequence)).cloned();
            name.is_some_and(|name| kill.at == Some(After(name)))
        };
        let kill = self.clone();
        cluster.faults().when(is_after).then(Action::TellAfter(Arc::new(move |_: &Seen| kill.cut())));
    }

    /// Counts a write. True if the agent was killed before it.
    fn counts(&self, server: &str, seen: &Seen) -> bool {
        let name = self.words.clean(&name_of(server, seen));
        let name = {
            let mut counts = locked(&self.counts);
            let count = counts.entry(name.clone()).or_default();
            *count += 1;
            if *count > 1 { format!("{name} #{count}") } else { name }
        };
        locked(&self.names).insert((server.to_owned(), seen.sequence), name.clone());
        locked(&self.order).push(name.clone());
        let is_it = self.at == Some(Before(name));
        if is_it {
            self.cut();
        }
        is_it
    }

    /// The agent has no connections any longer.
    fn cut(&self) {
        self.due.store(true, Ordering::SeqCst);
        self.agent.cable().cut();
        self.happened.store(true, Ordering::SeqCst);
    }
}

/// `seed: POST secrets ca`. The name of a patch of the Shoot's status contains its state, because some patches come in
/// any number.
pub fn name_of(server: &str, seen: &Seen) -> String {
    let server = if server == technical_id(NAME) { "shoot" } else { server };
    let (info, slash) = (&seen.info, if seen.info.subresource.is_empty() { "" } else { "/" });
    let object = if info.name.is_empty() { created(seen) } else { &info.name };
    let name = format!("{server}: {} {}{slash}{} {object}", seen.method, info.resource, info.subresource);
    let status = seen.body.as_ref().map(|body| &body["status"]);
    match status.filter(|_| info.resource == "shoots" && info.subresource == "status") {
        None => name,
        Some(status) if status["lastOperation"]["state"].is_string() => {
            format!("{name} {}", text(status, "/lastOperation/state"))
        }
        Some(status) => {
            let fields: Vec<&str> = status.as_object().into_iter().flatten().map(|(key, _)| &**key).collect();
            format!("{name} {}", fields.join(" "))
        }
    }
}

fn created(seen: &Seen) -> &str {
    seen.body.as_ref().map_or("", |body| text(body, "/metadata/name"))
}

/// Whether it is a write of the agent: the site itself uses an administrator's identity.
fn is_of_agent(seen: &Seen) -> bool {
    is_write_of_agent(seen) && seen.user != "admin"
}

/// Whether it is a write of the agent for the Shoot. Events, Leases and review requests do not count.
pub fn concerns(seen: &Seen, server: &str) -> bool {
    let (info, plane) = (&seen.info, technical_id(NAME));
    let is_passing = ["events", "leases", "tokenreviews"].contains(&info.resource.as_str());
    let is_near = [PROJECT_NAMESPACE, &plane].contains(&info.namespace.as_str());
    let is_plane = [info.name.as_str(), created(seen)].contains(&plane.as_str());
    is_of_agent(seen) && !is_passing && (server == plane || is_near || is_plane)
}

/// Values that differ in each run.
pub fn words() -> Words {
    Words::new(&[
        // The number is a digest of the name.
        (
            r#""reference\.resources\.gardener\.cloud/(secret|configmap)-[0-9a-f]{8}":"([^"]*)""#,
            r#""$1 $2":"""#,
        ),
        (r"-[0-9a-f]{8}(-[a-z0-9]{5})?\b", "-<hash>"),
        (r"-[0-9a-f]{10}\b", "-<template>"),
        (r#""[0-9a-f]{8}""#, r#""<hash>""#),
        (r#""[0-9a-f]{10}""#, r#""<template>""#),
        ("Bearer [A-Za-z0-9]{128}", "Bearer <token>"),
        (r#""checksum-of-signing-ca":"[0-9a-f]+""#, r#""checksum-of-signing-ca":"<hash>""#),
        (r#""(checksum-of-config|issued-at-time|valid-until-time)":"\d+""#, r#""$1":"<number>""#),
        (r#""nodePort":\d+"#, r#""nodePort":"<port>""#),
        (r#""resourceVersion":"\d+""#, r#""resourceVersion":"<version>""#),
        (r"\b10\.\d+\.\d+\.\d+\b", "<address>"),
        // At its start an agent reconciles earlier Shoots.
        (r#""type":"(Create|Reconcile)""#, r#""type":"<operation>""#),
    ])
}

/// The objects at the end of a creation.
struct Outcome {
    objects: Vec<(String, Value)>,
    kill: Arc<Kill>,
    problems: Vec<String>,
}

/// Garden, seed and Shoot, as far as they belong to the Shoot.
fn left(world: &World, site: &Site) -> Vec<(String, Value)> {
    let (words, plane) = (words(), technical_id(NAME));
    // A ShootState has the data of the seed's Secrets, a minute later.
    let is_ours =
        |id: &support::api::store::Id| id.namespace == PROJECT_NAMESPACE && id.plural != "shootstates";
    let mut all = words.left_in(&world.garden, is_ours);
    all.extend(words.left_in(&world.seed, |id| id.namespace == plane || id.name == plane));
    // It follows the Shoot, however often that changes.
    for (_, cluster) in all.iter_mut().filter(|(_, object)| object["kind"] == "Cluster") {
        cluster["metadata"]["generation"] = Value::Null;
        // Findings of care at the time when the Shoot was copied.
        for list in ["conditions", "constraints"] {
            cluster["spec"]["shoot"]["status"][list] = Value::Null;
        }
        cluster["spec"]["shoot"]["metadata"]["labels"]["shoot.gardener.cloud/status"] = Value::Null;
        cluster["spec"]["seed"]["status"]["conditions"] = Value::Null;
    }
    if let Some(server) = site.server(&plane) {
        all.extend(words.left_in(&server.cluster, |id| id.group != "coordination.k8s.io"));
    }
    all
}

/// Data of all keys, certificates and static tokens by the names of their Secrets.
pub(crate) fn secrets(world: &World) -> BTreeMap<String, Value> {
    let mut all = world.seed.store().list("", "secrets", &technical_id(NAME));
    all.retain(|secret| entry(secret, "/metadata/labels", "managed-by") == Some("secrets-manager"));
    all.into_iter()
        .map(|secret| (text(&secret, "/metadata/name").to_owned(), secret["data"].clone()))
        .collect()
}

/// One creation. `undisturbed`: the expected result.
fn run(at: Option<&Point>, undisturbed: Option<&Outcome>) -> Outcome {
    let world = World::start(&Options::new("shoot-crash"));
    let site = world.site();
    let mut config = world.edge_config();
    config["edge"]["exposure"] = json!({"type": "NodePort", "address": "127.0.0.1"});
    // Long enough that a busy machine does not lose it.
    config["leaderElection"] = json!({"leaseDuration": "300s", "renewDeadline": "200s", "retryPeriod": "2s"});
    let agent = Arc::new(world.agent_of(&site, &config));
    agent.launch();
    world.wait_until_ready();
    let kill = Kill::new(&agent, at.cloned());
    kill.watch(&world.garden);
    kill.watch(&world.seed);
    let window = json!({"begin": "220000+0000", "end": "230000+0000"});
    world.garden.apply(&[Workerless::new(NAME).with("/spec/maintenance/timeWindow", window).build()]);
    let (over, before) = (Stop::new(), Mutex::default());
    let objects = std::thread::scope(|scope| {
        scope.spawn(|| restart_when_due(&kill, &over, (&world, &site), &before));
        let ended = catch_unwind(AssertUnwindSafe(|| settled(&world, &site, undisturbed)));
        over.stop();
        ended.unwrap_or_else(|panic| resume_unwind(panic))
    });
    let after = secrets(&world);
    let before: BTreeMap<String, Value> = before.into_inner().unwrap();
    let mut problems = Vec::new();
    for (name, _) in before.iter().filter(|(name, data)| after.get(*name) != Some(data)) {
        problems.push(format!("Secret {name} is missing, or has other data"));
    }
    let operations = history::operations(&world.garden, PROJECT_NAMESPACE, NAME);
    // A restarted operation starts with progress 0.
    problems.extend(history::falls(&operations).into_iter().filter(|fall| !fall.ends_with(" Processing 0")));
    for operation in operations.iter().filter(|operation| ["Error", "Failed"].contains(&&*operation.state)) {
        problems.push(format!("{}: {}", operation.line(), operation.description));
    }
    if operations.iter().all(|operation| operation.line() != "Create Succeeded 100") {
        problems.push("it was never created".to_owned());
    }
    problems.extend(site.complaints());
    Outcome { objects, kill, problems }
}

/// Waits for the API server of the Shoot, because its writes count, too; and restarts the agent after the kill.
/// `before`: the Secrets at that time.
pub(crate) fn restart_when_due(
    kill: &Arc<Kill>,
    over: &Stop,
    (world, site): (&World, &Site),
    before: &Mutex<BTreeMap<String, Value>>,
) {
    let real = Clock::system();
    let mut is_watched = false;
    loop {
        let is_over = over.wait(&real, Duration::from_millis(2));
        if let Some(server) = site.server(&technical_id(NAME)).filter(|_| !is_watched) {
            kill.watch(&server.cluster);
            is_watched = true;
        }
        if kill.due.load(Ordering::SeqCst) {
            kill.agent.crash();
            *locked(before) = secrets(world);
            kill.due.store(false, Ordering::SeqCst);
            kill.agent.launch();
        }
        if is_over {
            return;
        }
    }
}

fn settled(world: &World, site: &Site, undisturbed: Option<&Outcome>) -> Vec<(String, Value)> {
    history::wait_for_success(&world.garden, (PROJECT_NAMESPACE, NAME));
    rest(world, site, undisturbed.map(|undisturbed| undisturbed.objects.as_slice()))
}

/// Whether care has found everything healthy, and the label matches, which a separate request writes.
fn is_well(shoot: &Value) -> bool {
    let conditions = list(shoot, "/status/conditions");
    shoot["metadata"]["labels"]["shoot.gardener.cloud/status"] == "healthy"
        && conditions.iter().all(|condition| condition["status"] == "True")
}

/// The objects at the end: once they equal those of a run without a kill or, without an example, once nothing changes
/// any longer.
pub(crate) fn rest(world: &World, site: &Site, example: Option<&[(String, Value)]>) -> Vec<(String, Value)> {
    let (clock, real) = (pace::clock(), Clock::system());
    let deadline = clock.mono() + PATIENCE;
    let mut last = Vec::new();
    loop {
        let found = left(world, site);
        let mut different = differences(example.unwrap_or(&last), &found);
        // Findings of care change at their own time.
        let shoot = found.iter().find(|(_, object)| object["kind"] == "Shoot").map(|(_, shoot)| shoot);
        if !shoot.is_some_and(is_well) {
            different.push(format!("the Shoot is not well: {shoot:?}"));
        }
        if different.is_empty() {
            return found;
        }
        assert!(clock.mono() < deadline, "still different:\n  {}", different.join("\n  "));
        last = found;
        let again = clock.mono() + LOOK;
        while clock.mono() < again {
            Stop::new().wait(&real, Duration::from_millis(5));
        }
    }
}

/// The points to try, and how many of them must be tried: the borders, and others at random.
fn plan(undisturbed: &Kill, seed: u64) -> (Vec<Point>, usize) {
    let mut all: Vec<Point> = BORDERS.iter().map(|(_, point)| point.clone().owned()).collect();
    let writes = locked(&undisturbed.order).clone();
    let mut others: Vec<Point> = writes.into_iter().flat_map(|w| [Before(w.clone()), After(w)]).collect();
    // How often progress is reported depends on time.
    let is_progress = |point: &Point| format!("{point:?}").contains("shoots/status s1 lastOperation");
    others.retain(|point| !all.contains(point) && !is_progress(point));
    if let Some(one) = variable("GARDENLET_TESTS_CRASH_AT") {
        all.append(&mut others);
        all.retain(|point| format!("{point:?}").contains(&one));
        let count = all.len();
        return (all, count);
    }
    if cfg!(target_env = "musl") && !options::is_long() {
        // With this machine's libc, the same code has already run with all of them.
        all = all.into_iter().step_by(MUSL_STEP).collect();
        others.clear();
    } else {
        all = sampling::some(all, STEP, seed);
    }
    sampling::order(all, others, SAMPLE, seed)
}

/// The border at that point, if there is one.
fn border_of(point: &Point) -> Option<&'static (&'static str, Point<&'static str>)> {
    BORDERS.iter().find(|(_, border)| border.clone().owned() == *point)
}

/// Whether the agent was killed, and the problems.
fn judge(point: &Point, undisturbed: &Outcome) -> (bool, Vec<String>) {
    let Ok(outcome) = catch_unwind(AssertUnwindSafe(|| run(Some(point), Some(undisturbed)))) else {
        return (true, vec![format!("{point:?}: it did not end as without a kill, see above")]);
    };
    let happened = outcome.kill.happened.load(Ordering::SeqCst);
    let mut found = Vec::new();
    if !outcome.problems.is_empty() {
        found.push(format!("{point:?}:\n  {}", outcome.problems.join("\n  ")));
    }
    if let Some((task, _)) = border_of(point).filter(|_| !happened) {
        found.push(format!("after {task}: there was no request {point:?}"));
    }
    (happened, found)
}

#[test]
fn a_kill_at_any_border_of_a_creation_changes_nothing() {
    let undisturbed = run(None, None);
    assert_eq!(undisturbed.problems, Vec::<String>::new());
    let seed = options::seed();
    let (points, least) = plan(&undisturbed.kill, seed);
    let borders = points.iter().filter(|point| border_of(point).is_some()).count();
    let sample = Sample { points: &points, first: borders, least, time: SAMPLE_TIME, parallel: PARALLEL };
    let Tried { tried, happened, problems } = sample.run(&|point| judge(point, &undisturbed));
    // Not captured by the test harness, which shows only the output of failures.
    let _ = writeln!(
        std::io::stderr(),
        "killed at {tried} of {} points of a creation (seed {seed}): {happened} happened, {} made a difference",
        points.len(),
        problems.len()
    );
    assert!(problems.is_empty(), "{}", problems.join("\n"));
    // Several threads make a different number of writes each time.
    assert!(happened * 4 >= tried * 3, "only {happened} of {tried} happened");
}
