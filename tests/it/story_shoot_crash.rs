//! The agent is killed while it creates a Shoot: before or after one of its writes, and so at each border between two
//! tasks. It starts again, and the result is the same, with the earlier keys and certificates and without duplicates.
//!
//! A kill before a write has the effect of a kill after the tasks before it that only wait.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use gardenlet::base::clock::Clock;
use gardenlet::base::stop::Stop;
use serde_json::{Value, json};

use crate::faultpoints::{Fault, FaultPoints, Outcome, Point, after, before, created};
use crate::left::{Words, differences};
use crate::nodes::{self, Nodes};
use crate::sampling::{Sample, is_limited};
use crate::world::{Agent, Options, World};
use support::cluster::PATIENCE;
use support::http::faults::Seen;
use support::json::{entry, list, text};
use support::pace;
use support::shoot::Site;
use support::shoot::history;
use support::shoot::object::{PROJECT_NAMESPACE, technical_id};

const NAME: &str = "s1";
/// The time between two comparisons of everything: six seconds for the agent.
const LOOK: Duration = Duration::from_millis(300);

/// The borders between tasks: the task that has ended last, and the point. Tasks that this Shoot omits, or that have
/// nothing to do for it, have no border.
pub(crate) static BORDERS: [(&str, Point); 26] = [
    ("nothing", before("garden: PATCH shoots s1")),
    ("finalizer", after("garden: PATCH shoots s1")),
    ("start of the operation", after("garden: PATCH shoots/status s1 Processing")),
    ("Check required extensions exist", before("seed: POST namespaces shoot--p--s1")),
    ("Deploying control plane namespace", before("garden: PATCH shoots/status s1 clusterIdentity")),
    ("Ensuring Shoot cluster identity", before("seed: POST secrets referenced-resources-<hash>")),
    ("Deploying referenced resources", before("seed: POST services kube-apiserver")),
    (
        "Deploying Kubernetes API server service in the Seed cluster",
        after("seed: POST services kube-apiserver-exposure"),
    ),
    (
        "Waiting until Kubernetes API server service in the Seed cluster has reported readiness",
        before("seed: POST secrets ca"),
    ),
    ("Initializing secrets management", before("garden: PATCH shoots/status s1 advertisedAddresses")),
    (
        "Ensuring advertised addresses for the Shoot",
        after("garden: PATCH shoots/status s1 advertisedAddresses"),
    ),
    ("Deploying external domain DNS record", before("seed: POST configmaps etcd-main-config")),
    ("Deploying main and events ETCDs", after("seed: POST statefulsets etcd-events")),
    (
        "Waiting until main and event ETCDs have been reconciled",
        before("seed: POST configmaps audit-policy-config-<hash>"),
    ),
    ("Deploying Kubernetes API server", after("seed: POST deployments kube-apiserver")),
    (
        "Waiting until Kubernetes API server rolled out",
        before("seed: POST secrets managedresource-shoot-core-gardener-resource-manager-<hash>"),
    ),
    (
        "Deploying gardener-resource-manager",
        after("seed: POST managedresources shoot-core-gardener-resource-manager"),
    ),
    (
        "Waiting until gardener-resource-manager reports readiness",
        before("seed: POST secrets managedresource-shoot-core-namespaces-<hash>"),
    ),
    (
        "Deploying shoot namespaces system component",
        after("seed: POST managedresources shoot-core-namespaces"),
    ),
    (
        "Deploying Gardener shoot access resources",
        after("seed: POST managedresources shoot-core-gardeneraccess"),
    ),
    (
        "Deploying Kubernetes controller manager",
        after("seed: POST managedresources shoot-core-kube-controller-manager"),
    ),
    (
        "Initializing connection to Shoot",
        before("seed: POST secrets managedresource-shoot-core-cluster-identity-<hash>"),
    ),
    ("Deploying shoot cluster identity", after("seed: POST managedresources shoot-core-cluster-identity")),
    ("Deploying shoot system resources", after("seed: POST managedresources shoot-core-system")),
    ("all tasks", before("garden: PATCH shoots/status s1 Succeeded")),
    ("success", after("garden: PATCH shoots/status s1 Succeeded")),
];

/// The same, of what only a Shoot with a pool of hosts has.
static BORDERS_OF_HOSTS: [(&str, Point); 20] = [
    (
        "Deploying Kubernetes API server service in the Seed cluster",
        before("seed: POST secrets cloudprovider"),
    ),
    ("Deploying cloud provider account secret", before("seed: POST secrets ca-kubelet")),
    ("CAs of nodes", after("seed: POST secrets ssh-keypair-<hash>")),
    ("the CA of kubelets in the garden", after("garden: POST configmaps s1.ca-kubelet")),
    ("Initializing secrets management", after("garden: POST secrets s1.ssh-keypair")),
    ("Deploying Shoot infrastructure", after("seed: POST infrastructures s1")),
    ("the infrastructure is answered", before("seed: PATCH infrastructures s1")),
    (
        "Waiting until shoot infrastructure has been reconciled",
        after("garden: PATCH shoots/status s1 networking"),
    ),
    ("the way to nodes", before("seed: POST configmaps kube-apiserver-egress-selector-config-<hash>")),
    ("Deploying Kubernetes API server", after("seed: POST managedresources shoot-core-kube-apiserver")),
    ("Deploying shoot control plane components", after("seed: POST controlplanes s1")),
    ("Waiting until shoot control plane has been reconciled", after("seed: PATCH controlplanes s1")),
    ("Deploying Kubernetes scheduler", before("seed: POST deployments kube-scheduler")),
    ("the roles of the scheduler", after("seed: POST managedresources shoot-core-kube-scheduler")),
    ("Deploying the agent of the tunnel", after("seed: POST managedresources shoot-core-konnectivity-agent")),
    ("Deploying shoot network plugin", before("seed: PATCH networks/status s1")),
    (
        "Deploying kube-proxy system component",
        before("seed: POST managedresources shoot-core-kube-proxy-pool-v1.34.3"),
    ),
    (
        "Deploying metrics-server system component",
        after("seed: POST managedresources shoot-core-metrics-server"),
    ),
    ("Deploying CoreDNS system component", after("seed: POST managedresources shoot-core-coredns")),
    ("the agent of the tunnel", after("shoot: POST daemonsets konnectivity-agent")),
];

/// Counts the writes for the Shoot from now on. Those to its own API server count while a story is [`with_restarts`].
pub(crate) fn points_of(world: &World, agent: &Arc<Agent>, at: Option<&Point>) -> Arc<FaultPoints> {
    FaultPoints::of(world, agent, at, concerns)
}

/// Whether a write in garden or seed is for the Shoot.
fn concerns(seen: &Seen) -> bool {
    let (info, plane) = (&seen.info, technical_id(NAME));
    let is_near = [PROJECT_NAMESPACE, &plane].contains(&info.namespace.as_str());
    let is_plane = [info.name.as_str(), created(seen)].contains(&plane.as_str());
    is_lasting(seen) && (is_near || is_plane)
}

/// Events, Leases and review requests do not count.
pub(crate) fn is_lasting(seen: &Seen) -> bool {
    !["events", "leases", "tokenreviews"].contains(&seen.info.resource.as_str())
}

/// Runs a story of the Shoot, and restarts the agent when it was killed; returns also the Secrets at that time.
pub(crate) fn with_restarts<T>(
    points: &Arc<FaultPoints>,
    (world, site): (&World, &Site),
    story: impl FnOnce() -> T,
) -> (T, BTreeMap<String, Value>) {
    let (mut is_watched, mut before) = (false, BTreeMap::new());
    let look = |is_between_lives: bool| {
        if is_between_lives {
            before = secrets(world);
        }
        if let Some(server) = site.server(&technical_id(NAME)).filter(|_| !is_watched) {
            points.watch("shoot", &server.cluster, is_lasting);
            is_watched = true;
            nodes::join(world, NAME, &server);
        }
    };
    let end = points.restarting(look, story);
    (end, before)
}

/// Values that differ in each run.
fn words() -> Words {
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
        (r#""(nodePort|port)":3\d{4}"#, r#""$1":"<port>""#),
        (r"-port=3\d{4}\b", "-port=<port>"),
        (r#""caBundle":"[^"]+""#, r#""caBundle":"<CA>""#),
        (r#""resourceVersion":"\d+""#, r#""resourceVersion":"<version>""#),
        (r"\b10\.\d+\.\d+\.\d+\b", "<address>"),
        // At its start an agent reconciles earlier Shoots.
        (r#""type":"(Create|Reconcile|Restore)""#, r#""type":"<operation>""#),
    ])
}

/// Garden, seed and Shoot, as far as they belong to the Shoot.
pub(crate) fn left(world: &World, site: &Site) -> Vec<(String, Value)> {
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
    // Each run has other CAs, and another address of the API server, which files name.
    for (_, config) in all.iter_mut().filter(|(_, object)| object["kind"] == "OperatingSystemConfig") {
        let files = config["spec"]["files"].as_array_mut();
        for file in files.into_iter().flatten() {
            let path = text(file, "/path");
            if [".crt", ".pem"].iter().any(|end| path.ends_with(end)) || path.contains("/config-") {
                file["content"] = Value::Null;
            }
        }
    }
    if let Some(server) = site.server(&plane) {
        // Nobody compares what the stand-in for kubelets writes.
        let counts = |id: &support::api::store::Id| id.group != "coordination.k8s.io" && id.plural != "pods";
        let mut within = words.left_in(&server.cluster, counts);
        // Its account may come before it or after it, and then its pods get a token with a second write.
        for (_, daemons) in within.iter_mut().filter(|(_, object)| object["kind"] == "DaemonSet") {
            daemons["metadata"]["generation"] = Value::Null;
            daemons["status"]["observedGeneration"] = Value::Null;
        }
        all.extend(within);
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

/// A Shoot to create, and the borders between the tasks of its creation.
struct Creation {
    nodes: Nodes,
    borders: &'static [(&'static str, Point)],
    /// How many borders a normal run tries.
    few: usize,
    undisturbed: OnceLock<Outcome>,
}

static WORKERLESS: Creation =
    Creation { nodes: Nodes::Nobody, borders: &BORDERS, few: 7, undisturbed: OnceLock::new() };

static OF_HOSTS: Creation =
    Creation { nodes: Nodes::Hosts, borders: &BORDERS_OF_HOSTS, few: 2, undisturbed: OnceLock::new() };

/// One creation. `undisturbed`: the expected result.
fn run(creation: &Creation, at: Option<&Point>, undisturbed: Option<&Outcome>) -> Outcome {
    let world = World::start(&Options::new("shoot-crash"));
    let site = world.site();
    let object = creation.nodes.shoot(&world, NAME);
    let agent = Arc::new(world.agent_of(&site, &creation.nodes.config(&world)));
    agent.launch();
    world.wait_until_ready();
    let points = points_of(&world, &agent, at);
    let window = json!({"begin": "220000+0000", "end": "230000+0000"});
    world.garden.apply(&[object.with("/spec/maintenance/timeWindow", window).build()]);
    let (objects, before) = with_restarts(&points, (&world, &site), || settled(&world, &site, undisturbed));
    let after = secrets(&world);
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
    Outcome { objects, points, problems }
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
    rest_of(|| left(world, site), example)
}

/// The same of other objects, among which is a Shoot.
pub(crate) fn rest_of(
    left: impl Fn() -> Vec<(String, Value)>,
    example: Option<&[(String, Value)]>,
) -> Vec<(String, Value)> {
    let (clock, real) = (pace::clock(), Clock::system());
    let deadline = clock.mono() + PATIENCE;
    let mut last = Vec::new();
    loop {
        let found = left();
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

/// All points of writes that are no borders. How often progress is reported depends on time.
pub(crate) fn others(undisturbed: &Outcome, borders: &[Point]) -> Vec<Point> {
    let writes = undisturbed.points.writes();
    let lasting = writes.iter().filter(|write| !write.contains("shoots/status s1 lastOperation"));
    let both = lasting
        .flat_map(|write| [Fault::KillBefore, Fault::KillAfter].map(|fault| Point::named(fault, write)));
    both.filter(|point| !borders.contains(point)).collect()
}

/// The result of a story with a fault; there must be one at a border.
pub(crate) fn verdict(
    (point, borders): (&Point, &[Point]),
    outcome: Outcome,
    undisturbed: &[(String, Value)],
) -> Result<bool, String> {
    let happened = outcome.verdict(undisturbed)?;
    if happened || !borders.contains(point) {
        Ok(happened)
    } else {
        Err("there was no such request".to_owned())
    }
}

impl Creation {
    /// Several tests compare with the same one.
    fn undisturbed(&self) -> &Outcome {
        let outcome = self.undisturbed.get_or_init(|| run(self, None, None));
        assert_eq!(outcome.problems, Vec::<String>::new());
        outcome
    }

    fn borders(&self) -> Vec<Point> {
        self.borders.iter().map(|(_, point)| point.clone()).collect()
    }

    fn changes_nothing(&self, sample: Sample<Point>) {
        let (undisturbed, borders) = (self.undisturbed(), self.borders());
        let attempt = |point: &Point| {
            verdict((point, &borders), run(self, Some(point), Some(undisturbed)), &undisturbed.objects)
        };
        sample.run(&attempt);
    }

    /// Points for one fault that are no borders.
    fn elsewhere(&self, fault: Fault) -> Vec<Point> {
        let mut points = others(self.undisturbed(), &self.borders());
        // Several threads make a different number of other writes each time.
        points
            .retain(|point| point.fault == fault && (!is_limited() || point.to_string().contains(": POST ")));
        points
    }
}

#[test]
fn a_kill_at_any_border_of_a_creation_changes_nothing() {
    let sample = Sample::of("kills at borders of a creation");
    WORKERLESS.changes_nothing(sample.with(WORKERLESS.few, WORKERLESS.borders()));
}

#[test]
fn a_kill_before_any_write_of_a_creation_changes_nothing() {
    let sample = Sample::of("kills before writes of a creation");
    WORKERLESS.changes_nothing(sample.with(1, WORKERLESS.elsewhere(Fault::KillBefore)));
}

#[test]
fn a_kill_after_any_write_of_a_creation_changes_nothing() {
    let sample = Sample::of("kills after writes of a creation");
    WORKERLESS.changes_nothing(sample.with(1, WORKERLESS.elsewhere(Fault::KillAfter)));
}

/// A run without `--long` tries few of the points that both creations have.
#[test]
fn a_kill_in_a_creation_with_a_pool_changes_nothing() {
    let sample = Sample::of("kills in a creation with a pool");
    let few = if is_limited() { 0 } else { usize::MAX };
    let (before, after) = (OF_HOSTS.elsewhere(Fault::KillBefore), OF_HOSTS.elsewhere(Fault::KillAfter));
    OF_HOSTS
        .changes_nothing(sample.with(OF_HOSTS.few, OF_HOSTS.borders()).with(few, before).with(few, after));
}
