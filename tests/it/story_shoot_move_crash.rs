//! The agents of both seeds are killed while a Shoot moves between them: each before or after one of its writes, and so at each border
//! between two tasks. They start again, at once or after ten minutes, and the Shoot arrives with its data and its identities.
//!
//! All the time a client writes to the Shoot, and a checker compares the data of both seeds.

use std::fmt;
use std::time::Duration;

use serde_json::{Value, json};

use crate::faultpoints::{FaultPoints, Point, after, before, created as named};
use crate::left::{Words, differences};
use crate::move_stage::{Acknowledged, NAME, PLACE, Stage, Writer, is_observed, missing};
use crate::sampling::{Sample, is_limited};
use crate::story_shoot_crash::{is_lasting, left, rest_of};
use crate::story_shoot_move::{RESTORED, created, has_left, is_at};
use crate::world::{CORE, wait_for};
use support::http::faults::Seen;
use support::json::text;
use support::shoot::history::{self, Operation};
use support::shoot::object::{PROJECT_NAMESPACE, technical_id};

/// A normal run tries this many moves.
const FEW: usize = 1;
/// How long an agent may be away.
const AWAY: Duration = Duration::from_secs(600);

/// The borders between the tasks of a migration: the task that has ended last, and the point.
static SOURCE: [(&str, Point); 35] = [
    ("start of the operation", after("garden: PATCH shoots/status s1 Processing")),
    (
        "Ensuring that the gardener-resource-manager is scaled to 1",
        before("seed: PATCH managedresources shoot-core-cluster-identity"),
    ),
    ("one object is kept", after("seed: PATCH managedresources shoot-core-cluster-identity")),
    (
        "Configuring Managed Resources objects to be kept in the Shoot",
        before("seed: DELETE managedresources shoot-core-cluster-identity"),
    ),
    (
        "Deleting all Managed Resources from the Shoot's namespace",
        after("seed: DELETE managedresources shoot-core-system"),
    ),
    ("Waiting until ManagedResources are deleted", before("seed: PATCH extensions early")),
    ("Migrating extensions before kube-apiserver", after("seed: PATCH extensions early")),
    (
        "Waiting until extensions that should be handled before kube-apiserver have been migrated",
        before("garden: PATCH shootstates s1"),
    ),
    ("Persisting ShootState in garden cluster", after("garden: PATCH shootstates s1")),
    ("the same, read back", before("seed: DELETE extensions early")),
    ("Deleting extensions before kube-apiserver", after("seed: DELETE extensions early")),
    (
        "Waiting until shoot managed resources have been deleted",
        before("seed: DELETE deployments kube-apiserver"),
    ),
    ("Deleting kube-apiserver deployment", after("seed: DELETE deployments kube-apiserver")),
    ("Stopping Kubernetes controller manager", after("seed: PATCH deployments kube-controller-manager")),
    ("Waiting until kube-apiserver has been deleted", before("seed: PATCH extensions late")),
    ("Migrating extensions after kube-apiserver", after("seed: PATCH extensions late")),
    ("Migrating external domain DNS record", after("seed: PATCH dnsrecords s1-external")),
    ("Migrating internal domain DNS record", after("seed: PATCH dnsrecords s1-internal")),
    (
        "Waiting until extensions that should be handled after kube-apiserver have been migrated",
        before("seed: DELETE extensions late"),
    ),
    ("Deleting extensions after kube-apiserver", after("seed: DELETE extensions late")),
    ("Waiting until all extensions have been deleted", before("seed: POST jobs etcd-main-snapshot-final")),
    ("the Job exists", after("seed: POST jobs etcd-main-snapshot-final")),
    ("Creating ETCD Snapshot", before("seed: PATCH statefulsets etcd-main")),
    ("one etcd stops", after("seed: PATCH statefulsets etcd-main")),
    ("Stopping main and events etcd", before("garden: PATCH backupentries shoot--p--s1--<uid>")),
    ("Migrating BackupEntry to new seed", after("garden: PATCH backupentries shoot--p--s1--<uid>")),
    ("Deleting DNSRecords from the Shoot namespace", after("seed: DELETE dnsrecords s1-internal")),
    ("the entry is released", before("garden: PATCH backupentries/status shoot--p--s1--<uid> #2")),
    ("Waiting for BackupEntry to be migrated to new seed", before("seed: DELETE statefulsets etcd-main")),
    ("Destroying main and events etcd", after("seed: DELETE statefulsets etcd-events")),
    ("Waiting until main and event etcd have been destroyed", before("seed: DELETE namespaces shoot--p--s1")),
    ("Deleting shoot namespace in Seed", after("seed: DELETE namespaces shoot--p--s1")),
    ("Waiting until shoot namespace in Seed has been deleted", before("seed: DELETE clusters shoot--p--s1")),
    ("all tasks", before("garden: PATCH shoots/status s1 Succeeded")),
    ("success", after("garden: PATCH shoots/status s1 Succeeded")),
];

/// The same of a restoration.
static TARGET: [(&str, Point); 36] = [
    ("start of the operation", after("garden: PATCH shoots/status s1 Processing")),
    ("Check required extensions exist", before("seed: POST namespaces shoot--p--s1")),
    ("Deploying control plane namespace", after("seed: POST namespaces shoot--p--s1")),
    ("Deploying referenced resources", after("seed: POST managedresources referenced-resources")),
    ("the entry is wanted", before("garden: POST backupentries source-shoot--p--s1--<uid>")),
    ("Deploying source backup entry", after("garden: POST backupentries source-shoot--p--s1--<uid>")),
    ("Deploying Kubernetes API server service in the Seed cluster", before("seed: POST secrets ca")),
    ("one Secret of the ShootState", after("seed: POST secrets ca")),
    ("all Secrets of the ShootState", before("seed: POST secrets etcd-server-main-<hash>")),
    ("Initializing secrets management", after("seed: POST secrets kube-controller-manager-server-<hash>")),
    ("an object without its state", after("seed: POST extensions early")),
    ("the state is there", after("seed: PATCH extensions/status early")),
    ("Deploying extension resources before kube-apiserver", after("seed: PATCH extensions early")),
    ("a record without its state", after("seed: POST dnsrecords s1-external")),
    ("Deploying external domain DNS record", after("seed: PATCH dnsrecords s1-external")),
    (
        "Waiting until the source backup entry has been reconciled",
        before("garden: PATCH backupentries shoot--p--s1--<uid>"),
    ),
    ("Deploying BackupEntry for ETCD data", after("garden: PATCH backupentries shoot--p--s1--<uid>")),
    ("the entry is restored", after("seed: PATCH backupentries shoot--p--s1--<uid>")),
    (
        "Waiting until the BackupEntry for ETCD data has been reconciled",
        before("seed: POST jobs etcd-main-copy"),
    ),
    ("Copying etcd backups to new seed's backup bucket", after("seed: POST jobs etcd-main-copy")),
    ("Waiting until etcd backups are copied", before("seed: DELETE jobs etcd-main-copy")),
    ("Destroying copy etcd backups task resource", after("seed: DELETE jobs etcd-main-copy")),
    ("etcd never starts empty", after("seed: POST configmaps etcd-main-restore")),
    ("the etcd is not there", before("seed: POST statefulsets etcd-main")),
    ("the etcd restores", after("seed: POST statefulsets etcd-main")),
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
    ("Initializing connection to Shoot", before("garden: DELETE backupentries source-shoot--p--s1--<uid>")),
    ("Destroying source backup entry", after("garden: DELETE backupentries source-shoot--p--s1--<uid>")),
    (
        "Allowing the restored etcd to start without backups",
        after("seed: DELETE configmaps etcd-main-restore"),
    ),
    ("Deploying extension resources after kube-apiserver", after("seed: PATCH extensions late")),
    (
        "Waiting until source backup entry has been deleted",
        after("garden: PATCH backupentries source-shoot--p--s1--<uid> #4"),
    ),
    ("all tasks", before("garden: PATCH shoots/status s1 Succeeded")),
    ("success", after("garden: PATCH shoots/status s1 Succeeded")),
];

/// What the migration of a hibernated Shoot does besides.
static WAKES: [(&str, Point); 16] = [
    ("start of the operation", after("garden: PATCH shoots/status s1 Processing")),
    ("Initializing secrets management", before("seed: PATCH statefulsets etcd-main")),
    ("one etcd is woken", after("seed: PATCH statefulsets etcd-main")),
    ("Deploying main and events etcd", after("seed: PATCH statefulsets etcd-events")),
    ("Waiting until main and event etcd report readiness", before("seed: PATCH deployments kube-apiserver")),
    ("the API server is woken", after("seed: PATCH deployments kube-apiserver")),
    (
        "Ensuring that the gardener-resource-manager is scaled to 1",
        before("seed: PATCH managedresources shoot-core-cluster-identity"),
    ),
    (
        "Configuring Managed Resources objects to be kept in the Shoot",
        before("seed: DELETE managedresources shoot-core-cluster-identity"),
    ),
    ("Waiting until ManagedResources are deleted", before("seed: PATCH extensions early")),
    ("Persisting ShootState in garden cluster", after("garden: PATCH shootstates s1")),
    ("Deleting kube-apiserver deployment", after("seed: DELETE deployments kube-apiserver")),
    ("the Job exists", after("seed: POST jobs etcd-main-snapshot-final")),
    ("one etcd stops again", after("seed: PATCH statefulsets etcd-main #2")),
    ("the entry is released", before("garden: PATCH backupentries/status shoot--p--s1--<uid> #2")),
    ("Deleting shoot namespace in Seed", after("seed: DELETE namespaces shoot--p--s1")),
    ("success", after("garden: PATCH shoots/status s1 Succeeded")),
];

/// The end of its restoration, and the hibernation after it.
static SLEEPS: [(&str, Point); 16] = [
    ("Copying etcd backups to new seed's backup bucket", after("seed: POST jobs etcd-main-copy")),
    ("the etcd restores", after("seed: POST statefulsets etcd-main")),
    ("Deploying Kubernetes API server", after("seed: POST deployments kube-apiserver")),
    ("Destroying source backup entry", after("garden: DELETE backupentries source-shoot--p--s1--<uid>")),
    ("all tasks", before("garden: PATCH shoots/status s1 Succeeded")),
    ("it is restored, and awake", after("garden: PATCH shoots/status s1 Succeeded")),
    ("start of the hibernation", before("seed: PATCH cronjobs etcd-main-snapshot")),
    ("no snapshots are taken", after("seed: PATCH cronjobs etcd-main-snapshot")),
    ("the API server is awake", before("seed: PATCH deployments kube-controller-manager")),
    ("the controllers end", after("seed: PATCH deployments kube-controller-manager")),
    ("the API server ends", after("seed: PATCH deployments kube-apiserver")),
    ("the etcd is awake", before("seed: PATCH statefulsets etcd-main")),
    ("one etcd ends", after("seed: PATCH statefulsets etcd-main")),
    ("both etcds end", after("seed: PATCH statefulsets etcd-events")),
    ("no name leads to it", after("seed: DELETE dnsrecords s1-external")),
    ("it is hibernated", after("garden: PATCH shoots/status s1 Succeeded #2")),
];

/// Where the agent of the source is away for ten minutes: nobody serves the data.
const SOURCE_ABSENT: [Point; 3] = [
    after("seed: DELETE deployments kube-apiserver"),
    after("seed: POST jobs etcd-main-snapshot-final"),
    after("garden: PATCH backupentries shoot--p--s1--<uid>"),
];

/// The same of the target: the data are in the old bucket, in both, or in the new one.
const TARGET_ABSENT: [Point; 4] = [
    before("garden: POST backupentries source-shoot--p--s1--<uid>"),
    after("seed: POST jobs etcd-main-copy"),
    before("seed: POST statefulsets etcd-main"),
    before("garden: DELETE backupentries source-shoot--p--s1--<uid>"),
];

fn points(all: &[(&str, Point)]) -> Vec<Point> {
    all.iter().map(|(_, point)| point.clone()).collect()
}

/// What happens to the agents in one move.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
struct Kills {
    source: Option<Point>,
    target: Option<Point>,
    /// Until an agent starts again.
    away: Duration,
}

impl Kills {
    /// A kill at each border, two in each move.
    fn at_borders(source: &[Point], target: &[Point]) -> Vec<Self> {
        let nth = |all: &[Point], n: usize| Some(all[n % all.len()].clone());
        (0..source.len().max(target.len()))
            .map(|n| Self { source: nth(source, n), target: nth(target, n), away: Duration::ZERO })
            .collect()
    }

    /// One agent is away, while the other one works.
    fn absences() -> Vec<Self> {
        let source = SOURCE_ABSENT.map(|point| Self { source: Some(point), target: None, away: AWAY });
        let target = TARGET_ABSENT.map(|point| Self { source: None, target: Some(point), away: AWAY });
        source.into_iter().chain(target).collect()
    }
}

/// `source KillAfter seed: POST jobs etcd-main-snapshot-final`
impl fmt::Display for Kills {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let away = if self.away.is_zero() { "" } else { " away for a while" };
        let named =
            |whose: &str, point: &Option<Point>| point.as_ref().map(|point| format!("{whose} {point}{away}"));
        let all = [named("source", &self.source), named("target", &self.target)];
        f.write_str(&all.into_iter().flatten().collect::<Vec<_>>().join(" and "))
    }
}

/// Whether a write is for the Shoot, or for its backups.
fn concerns(seen: &Seen) -> bool {
    let (info, plane) = (&seen.info, technical_id(NAME));
    let is_near = [PROJECT_NAMESPACE, &plane].contains(&info.namespace.as_str());
    let is_named = [info.name.as_str(), named(seen)].iter().any(|name| name.contains(&plane));
    is_lasting(seen) && (is_near || is_named)
}

/// Garden, target and Shoot at the end, as far as they do not depend on what the clients did.
fn left_at_target(stage: &Stage) -> Vec<(String, Value)> {
    // They depend on the UID of the Shoot, on the order of requests, and on whether an agent that starts reconciles once more.
    let words = Words::new(&[
        ("(Restoration|Reconciliation) of BackupEntry", "<operation> of BackupEntry"),
        ("successfully (restored|reconciled)", "successfully <done>"),
        ("--advertise-address=[0-9.]+", "--advertise-address=<address>"),
        (r"(https://[a-z0-9.]+):\d+", "$1:<port>"),
        (r#""schedule":"\d+ "#, r#""schedule":"<minute> "#),
    ]);
    let mut all = left(&stage.b.world, &stage.b.site);
    all.retain(|(key, _)| !key.contains("/configmaps default/written-"));
    for (_, object) in &mut all {
        *object = serde_json::from_str(&words.clean(&object.to_string())).unwrap();
        // An agent that starts again asks again, or does not have to ask.
        let place = match text(object, "/kind") {
            "Shoot" | "BackupEntry" => "",
            "Cluster" => "/spec/shoot",
            _ => continue,
        };
        for path in ["/metadata/generation", "/status/observedGeneration"] {
            if let Some(number) = object.pointer_mut(&format!("{place}{path}")) {
                *number = Value::Null;
            }
        }
    }
    all
}

/// The state of a Shoot that moves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Way {
    Awake,
    /// It is woken to move, and hibernated again by an operation of its own.
    Hibernated,
}

/// Waits until the Shoot is restored, and nothing waits for an agent. An agent that starts may reconcile it once more.
fn arrived(stage: &Stage, way: Way) {
    let (target, garden) = (stage.b.name(), stage.garden());
    stage.wait_for("the end of the move", |shoot| {
        let is_there = shoot["spec"]["seedName"] == target && shoot["status"]["seedName"] == target;
        let is_done = Operation::of(shoot).is_some_and(|operation| operation.state == "Succeeded");
        let was_restored = || {
            history::operations(garden, PLACE.0, PLACE.1).iter().any(|operation| operation.line() == RESTORED)
        };
        let is_asleep = shoot["status"]["hibernated"] == true;
        let is_so = is_asleep == (way == Way::Hibernated);
        is_there && is_done && is_observed(shoot) && is_so && was_restored()
    });
}

/// Hibernates the Shoot, or wakes it up.
fn hibernate(stage: &Stage, is_on: bool) {
    let spec = json!({"spec": {"hibernation": {"enabled": is_on}}});
    stage.garden().merge(CORE, "shoots", PLACE, &spec);
    stage.wait_for("the end of the operation", |shoot| {
        let is_done = Operation::of(shoot).is_some_and(|operation| operation.state == "Succeeded");
        is_done && is_observed(shoot) && shoot["status"]["hibernated"] == is_on
    });
}

/// How a move ended.
struct Moved {
    objects: Vec<(String, Value)>,
    /// Whether each kill happened.
    happened: [bool; 2],
    problems: Vec<String>,
}

/// One move. `undisturbed`: the expected objects at its end.
fn run(way: Way, kills: &Kills, undisturbed: Option<&[(String, Value)]>) -> Moved {
    let stage = Stage::start("kill-source", "kill-target");
    let before = created(&stage);
    let writer = Writer::start(stage.owner());
    wait_for("some writes", || (writer.count() > 20).then_some(()));
    // Nobody writes to a hibernated one.
    let (writer, mut written) = match way {
        Way::Awake => (Some(writer), Acknowledged::new()),
        Way::Hibernated => (None, writer.end()),
    };
    if way == Way::Hibernated {
        hibernate(&stage, true);
    }
    let sides = [(&stage.a, &kills.source), (&stage.b, &kills.target)];
    let [source, target] =
        sides.map(|(side, point)| FaultPoints::of(&side.world, &side.agent, point.as_ref(), concerns));
    let look = |is_between_lives: bool| {
        if is_between_lives && !kills.away.is_zero() {
            stage.a.world.skip(kills.away);
        }
    };
    stage.bind(&stage.b);
    let story = || {
        arrived(&stage, way);
        written.extend(writer.map_or_else(Vec::new, Writer::end));
        // Only a long run compares everything.
        let objects = if is_limited() { Vec::new() } else { rest_of(|| left_at_target(&stage), undisturbed) };
        if way == Way::Hibernated {
            let pods = stage.b.seed().store().names("", "pods", &technical_id(NAME));
            assert_eq!(pods, [""; 0]);
            hibernate(&stage, false);
        }
        assert_eq!(missing(&stage.b, &written), [""; 0]);
        objects
    };
    let objects = source.restarting(look, || target.restarting(look, story));
    is_at(&stage, &stage.b, &before);
    has_left(&stage, &stage.a);
    // While an agent is away, others may lose patience.
    let is_bad = |state: &str| state == "Failed" || state == "Error" && kills.away.is_zero();
    let operations = history::operations(stage.garden(), PLACE.0, PLACE.1);
    let bad = operations.iter().filter(|operation| is_bad(&operation.state));
    let problems = bad.map(|operation| format!("{}: {}", operation.line(), operation.description));
    let problems = problems.collect();
    stage.end();
    let happened = [source, target].map(|points| points.hit().is_some());
    Moved { objects, happened, problems }
}

/// Whether all kills happened. Errors: what is wrong.
fn verdict(kills: &Kills, moved: Moved, undisturbed: &[(String, Value)]) -> Result<bool, String> {
    let Moved { objects, happened, mut problems } = moved;
    problems.extend(differences(undisturbed, &objects));
    let expected = [kills.source.is_some(), kills.target.is_some()];
    if happened != expected {
        problems.push(format!("not all of these requests were there: {happened:?}"));
    }
    if problems.is_empty() { Ok(true) } else { Err(problems.join("\n  ")) }
}

#[test]
fn a_kill_of_each_agent_in_a_move_changes_nothing() {
    let way = Way::Awake;
    let undisturbed = if is_limited() { Vec::new() } else { run(way, &Kills::default(), None).objects };
    let mut sample =
        Sample::of("kills during a move").with(FEW, Kills::at_borders(&points(&SOURCE), &points(&TARGET)));
    if !is_limited() {
        sample = sample.with(0, Kills::absences());
    }
    sample.run(&|kills| {
        let expected = (!is_limited()).then_some(undisturbed.as_slice());
        verdict(kills, run(way, kills, expected), &undisturbed)
    });
}

#[test]
fn a_kill_of_each_agent_in_a_move_of_a_hibernated_shoot_changes_nothing() {
    if is_limited() {
        return;
    }
    let way = Way::Hibernated;
    let undisturbed = run(way, &Kills::default(), None).objects;
    let kills = Kills::at_borders(&points(&WAKES), &points(&SLEEPS));
    Sample::of("kills during a move of a hibernated Shoot")
        .with(0, kills)
        .run(&|kills| verdict(kills, run(way, kills, Some(&undisturbed)), &undisturbed));
}
