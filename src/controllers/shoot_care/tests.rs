//! The decisions, row by row.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use super::basis::Basis;
use super::constraints::{ConstraintInput, ShootFindings, constraints};
use crate::operation::components::component::Duty;

use super::decide::{
    CONDITIONS, CheckInput, EVERY_NODE, Plane, SeenWorkload, ServerHealth, kinds, not_running, pardon,
};
use super::nodes::NodeFindings;
use super::reports::{self, ExtensionReport};
use super::webhooks::WebhookProblem;
use super::{Reason, reason};
use crate::api::condition::{self, Condition, ConditionStatus, Finding};
use crate::api::gardener::{ShootHead, ShootStatus};
use crate::api::meta::Key;
use crate::base::clock::Timestamp;
use crate::config::care::ShootCare;
use crate::resources::ManagedResourceHead;
use crate::runtime::store::Change;
use crate::shoot::pools::Pool;

const NOW: Timestamp = Timestamp::from_unix(1_767_225_600);

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_unix(NOW.unix() + seconds)
}

#[expect(clippy::needless_pass_by_value, reason = "it reads better")]
fn status(last: Value, errors: usize) -> ShootStatus {
    let errors: Vec<Value> = (0..errors).map(|_| json!({"description": "x"})).collect();
    serde_json::from_value(json!({"lastOperation": last, "lastErrors": errors})).unwrap()
}

fn succeeded() -> ShootStatus {
    status(json!({"type": "Reconcile", "state": "Succeeded", "lastUpdateTime": "2025-01-01T00:00:00Z"}), 0)
}

/// A healthy Shoot, with the changes of a test.
struct Scene {
    care: ShootCare,
    status: ShootStatus,
    old: Vec<Condition>,
    is_asleep: bool,
    server: ServerHealth,
    plane: Result<Plane, String>,
    managed: Vec<Arc<ManagedResourceHead>>,
    duty: Duty,
    applier: Option<String>,
    pools: Vec<Pool>,
    nodes: Option<NodeFindings>,
}

impl Default for Scene {
    fn default() -> Self {
        let well = || SeenWorkload { health: Ok(()), is_to_run: true };
        let deployments = ["kube-apiserver", "kube-controller-manager"].map(|name| (name.to_owned(), well()));
        let etcds = ["etcd-events", "etcd-main"].map(|name| (name.to_owned(), Ok(())));
        let plane = Plane { deployments: deployments.into(), etcds: etcds.into(), reports: Vec::new() };
        Self {
            care: ShootCare::default(),
            status: succeeded(),
            old: Vec::new(),
            is_asleep: false,
            server: ServerHealth::Well,
            plane: Ok(plane),
            managed: Vec::new(),
            duty: Duty::default(),
            applier: None,
            pools: Vec::new(),
            nodes: None,
        }
    }
}

impl Scene {
    fn facts(&self) -> CheckInput<'_> {
        CheckInput {
            now: NOW,
            care: &self.care,
            status: &self.status,
            old: &self.old,
            is_asleep: self.is_asleep,
            server: &self.server,
            plane: self.plane.as_ref().map_err(String::as_str),
            managed: &self.managed,
            duty: self.duty,
            applier: self.applier.as_deref(),
            pools: &self.pools,
            nodes: self.nodes.as_ref(),
        }
    }

    /// Status and reason of each condition, in the order of `CONDITIONS`.
    fn says(&self) -> [(ConditionStatus, String); 4] {
        let all = self.facts().conditions();
        let kinds: [&str; 4] = kinds(false).try_into().unwrap();
        kinds.map(|kind| {
            let condition = condition::find(&all, kind).unwrap();
            (condition.status, condition.reason.clone())
        })
    }

    fn plane(&mut self) -> &mut Plane {
        self.plane.as_mut().unwrap()
    }
}

fn managed(name: &str, class: &str, label: &str, healthy: &str) -> Arc<ManagedResourceHead> {
    let condition = |kind: &str, status: &str| {
        json!({"type": kind, "status": status, "reason": format!("{name}Reason"), "message": "why",
            "lastTransitionTime": "2025-12-31T23:00:00Z"})
    };
    let progressing = if healthy == "rolling" { "True" } else { "False" };
    let healthy = if healthy == "rolling" { "True" } else { healthy };
    let conditions = [
        condition("ResourcesApplied", "True"),
        condition("ResourcesHealthy", healthy),
        condition("ResourcesProgressing", progressing),
    ];
    let object = json!({"metadata": {"name": name, "namespace": "shoot--a--b", "generation": 1,
            "labels": {"care.gardener.cloud/condition-type": label}},
        "spec": {"class": class}, "status": {"observedGeneration": 1, "conditions": conditions}});
    Arc::new(serde_json::from_value(object).unwrap())
}

fn report(says: &str, status: &str, beat: Option<Timestamp>) -> ExtensionReport {
    let object = json!({"metadata": {"name": "echo"}, "spec": {"type": "echo"}, "status": {"conditions": [
        {"type": says, "status": status, "reason": "Backend", "message": "no quota", "codes": ["ERR_X"]},
        {"type": "SomethingElse", "status": "False"}]}});
    let mut all = reports::of_object("Extension", &object);
    assert_eq!(all.len(), 1);
    ExtensionReport { beat, ..all.pop().unwrap() }
}

#[test]
fn each_check_has_its_reason() {
    type Change = fn(&mut Scene);
    use ConditionStatus::{False, Progressing, True, Unknown};
    let table: &[(&str, Change, usize, ConditionStatus, &str)] = &[
        ("well 0", |_| {}, 0, True, "HealthzRequestSucceeded"),
        ("well 1", |_| {}, 1, True, "ControlPlaneRunning"),
        ("well 2", |_| {}, 2, True, "ObservabilityComponentsRunning"),
        ("well 3", |_| {}, 3, True, "SystemComponentsRunning"),
        ("stopped", |s| s.server = ServerHealth::Stopped, 0, False, "APIServerDown"),
        ("stopped", |s| s.server = ServerHealth::Stopped, 3, Unknown, "ConditionCheckError"),
        ("unreached", |s| s.server = ServerHealth::Unreached("x".into()), 0, False, "APIServerDown"),
        ("unreached", |s| s.server = ServerHealth::Unreached("x".into()), 3, Unknown, "ConditionCheckError"),
        ("silent", |s| s.server = ServerHealth::Silent("x".into()), 0, False, "HealthzRequestFailed"),
        ("silent", |s| s.server = ServerHealth::Silent("x".into()), 3, True, "SystemComponentsRunning"),
        ("sick", |s| s.server = ServerHealth::Sick(500, "x".into()), 0, False, "HealthzRequestError"),
        ("no etcd", |s| drop(s.plane().etcds.remove("etcd-main")), 1, False, "EtcdMissing"),
        (
            "etcd",
            |s| drop(s.plane().etcds.insert("etcd-main".into(), Err("x".into()))),
            1,
            False,
            "EtcdUnhealthy",
        ),
        (
            "no deployment",
            |s| drop(s.plane().deployments.remove("kube-controller-manager")),
            1,
            False,
            "DeploymentMissing",
        ),
        ("no manager", |s| s.duty.has_own_applier = true, 1, False, "DeploymentMissing"),
        (
            "any deployment",
            |s| {
                let ill = SeenWorkload { health: Err("x".into()), is_to_run: true };
                s.plane().deployments.insert("foreign".into(), ill);
            },
            1,
            False,
            "DeploymentUnhealthy",
        ),
        ("unreadable", |s| s.plane = Err("x".into()), 1, Unknown, "ConditionCheckError"),
        ("applier", |s| s.applier = Some("x".into()), 1, False, "ResourceManagerNotServing"),
        (
            "applier of a server that is away",
            |s| (s.applier, s.server) = (Some("x".into()), ServerHealth::Silent("x".into())),
            1,
            True,
            "ControlPlaneRunning",
        ),
        ("seed", |s| s.managed = vec![managed("A", "seed", "", "False")], 1, False, "AReason"),
        ("seed", |s| s.managed = vec![managed("A", "seed", "", "False")], 3, True, "SystemComponentsRunning"),
        (
            "labelled",
            |s| s.managed = vec![managed("A", "seed", "SystemComponentsHealthy", "False")],
            3,
            False,
            "AReason",
        ),
        (
            "labelled otherwise",
            |s| s.managed = vec![managed("A", "seed", "SystemComponentsHealthy", "False")],
            1,
            True,
            "ControlPlaneRunning",
        ),
        ("shoot", |s| s.managed = vec![managed("A", "", "", "False")], 3, False, "AReason"),
        ("shoot", |s| s.managed = vec![managed("A", "", "", "False")], 1, True, "ControlPlaneRunning"),
        (
            "observability",
            |s| s.managed = vec![managed("A", "seed", "ObservabilityComponentsHealthy", "Unknown")],
            2,
            False,
            "AReason",
        ),
        (
            "the first by name",
            |s| s.managed = vec![managed("A", "", "", "True"), managed("B", "", "", "False")],
            3,
            False,
            "BReason",
        ),
        ("rolling", |s| s.managed = vec![managed("A", "", "", "rolling")], 3, False, "AReason"),
        (
            "rolling, with patience",
            |s| {
                s.managed = vec![managed("A", "", "", "rolling")];
                s.care.progressing_threshold = Some(Duration::from_secs(3_600));
            },
            3,
            True,
            "SystemComponentsRunning",
        ),
        (
            "rolling for too long",
            |s| {
                s.managed = vec![managed("A", "", "", "rolling")];
                s.care.progressing_threshold = Some(Duration::from_secs(3_599));
            },
            3,
            False,
            "ProgressingRolloutStuck",
        ),
        (
            "an extension first",
            |s| {
                s.plane().etcds.clear();
                s.plane().reports = vec![report("ControlPlaneHealthy", "False", None)];
            },
            1,
            False,
            "ExtensionUnhealthyReport",
        ),
        (
            "an extension at work",
            |s| s.plane().reports = vec![report("SystemComponentsHealthy", "Progressing", None)],
            3,
            Progressing,
            "ExtensionBackend",
        ),
        ("asleep 0", |s| s.is_asleep = true, 0, True, "ConditionNotChecked"),
        ("asleep 1", |s| (s.is_asleep, s.plane) = (true, Err("x".into())), 1, True, "ConditionNotChecked"),
        (
            "pardoned",
            |s| {
                s.server = ServerHealth::Stopped;
                s.status = status(json!({"type": "Create", "state": "Processing"}), 1);
            },
            0,
            Progressing,
            "APIServerDown",
        ),
    ];
    for (name, change, index, status, reason) in table {
        let mut scene = Scene::default();
        change(&mut scene);
        assert_eq!(scene.says()[*index], (*status, (*reason).to_owned()), "{name}");
    }
}

#[test]
fn a_report_counts_while_its_extension_lives() {
    let stale = Some(Duration::from_secs(300));
    let kind = "ControlPlaneHealthy";
    use ConditionStatus::{False, Progressing, Unknown};
    let (outdated, unhealthy) = ("ExtensionOutdatedHealthCheckReport", "ExtensionUnhealthyReport");
    let table = [
        ("True", Some(at(-10)), stale, None),
        ("False", Some(at(-300)), stale, Some((False, unhealthy))),
        ("Unknown", Some(at(-300)), stale, Some((False, unhealthy))),
        ("Progressing", Some(at(-300)), stale, Some((Progressing, "ExtensionBackend"))),
        ("True", Some(at(-301)), stale, Some((Unknown, outdated))),
        ("Progressing", Some(at(-301)), stale, Some((Unknown, outdated))),
        ("True", None, stale, Some((Unknown, outdated))),
        ("True", None, None, None),
        ("False", None, None, Some((False, unhealthy))),
    ];
    for (status, beat, stale, expected) in table {
        let mut scene = Scene::default();
        scene.care.stale_reports = stale;
        scene.plane().reports = vec![report(kind, status, beat)];
        let all = scene.facts().conditions();
        let condition = condition::find(&all, kind).unwrap();
        let (status_now, reason) = expected.unwrap_or((ConditionStatus::True, "ControlPlaneRunning"));
        assert_eq!((condition.status, condition.reason.as_str()), (status_now, reason), "{status} {beat:?}");
        let codes: &[&str] = match expected {
            Some((False | Progressing, _)) => &["ERR_X"],
            _ => &[],
        };
        assert_eq!(condition.codes, codes, "{status} {beat:?}");
        // Other conditions do not show it.
        assert_eq!(scene.says()[3].0, ConditionStatus::True);
    }
}

/// The table of upstream's thresholds, through the whole decision.
#[test]
fn a_threshold_counts_from_the_last_transition() {
    use ConditionStatus::{False, Progressing, True, Unknown};
    let minute = Some(Duration::from_secs(60));
    // The previous status, its duration, its reason, the time since the last operation succeeded, and the result.
    let table = [
        (True, 0, "x", 900, None, False),
        (True, 0, "x", 900, minute, Progressing),
        (Progressing, 10, "HealthzRequestFailed", 900, None, False),
        (Progressing, 60, "HealthzRequestFailed", 900, minute, Progressing),
        (Progressing, 61, "HealthzRequestFailed", 900, minute, False),
        (Progressing, 61, "HealthzRequestFailed", 60, minute, Progressing),
        (False, 900, "HealthzRequestFailed", 900, None, False),
        (False, 900, "HealthzRequestFailed", 900, minute, False),
        (False, 900, "HealthzRequestFailed", 60, minute, Progressing),
        (False, 900, "APIServerDown", 900, minute, Progressing),
        (Unknown, 10, "x", 10, minute, False),
        (Unknown, 10, "x", 10, None, False),
    ];
    for (before, since, reason, done, threshold, expected) in table {
        let mut scene = Scene { server: ServerHealth::Silent("x".to_owned()), ..Scene::default() };
        let done = crate::format::time::rfc3339(at(-done));
        scene.status = status(json!({"type": "Reconcile", "state": "Succeeded", "lastUpdateTime": done}), 0);
        if let Some(threshold) = threshold {
            scene.care.thresholds.insert(CONDITIONS[0].to_owned(), threshold);
        }
        let old = Condition::initial(CONDITIONS[0], at(-since)).updated(
            at(-since),
            before,
            Finding::new(reason, "m"),
        );
        scene.old = vec![Condition { last_transition_time: at(-since), ..old }];
        let next = scene.facts().conditions();
        assert_eq!(next[0].status, expected, "{before} {since} {reason} {threshold:?}");
        let transition = if expected == before { at(-since) } else { NOW };
        assert_eq!(next[0].last_transition_time, transition, "{before} {since} {reason}");
    }
}

#[test]
fn who_is_pardoned() {
    let last = |kind: &str, state: &str| json!({"type": kind, "state": state});
    let table = [
        (Value::Null, 0, true),
        (last("Create", "Processing"), 1, true),
        (last("Create", "Error"), 1, true),
        (last("Create", "Succeeded"), 0, false),
        (last("Delete", "Error"), 1, true),
        (last("Reconcile", "Processing"), 0, true),
        (last("Reconcile", "Processing"), 1, false),
        (last("Reconcile", "Error"), 0, false),
        (last("Reconcile", "Succeeded"), 0, false),
    ];
    for (last, errors, is_pardoned) in table {
        let status = status(last.clone(), errors);
        let old = Condition::initial("X", at(-50)).updated(
            at(-50),
            ConditionStatus::Progressing,
            Finding::new("R", "m"),
        );
        let old = Condition { last_transition_time: at(-50), ..old };
        let finding = Finding { codes: vec!["ERR_X".to_owned()], ..Finding::new("R", "m") };
        let next = pardon(&status, &old, old.updated(NOW, ConditionStatus::False, finding), NOW);
        let expected = if is_pardoned { ConditionStatus::Progressing } else { ConditionStatus::False };
        assert_eq!((next.status, next.codes.len()), (expected, 1), "{last} {errors}");
        let since = if is_pardoned { at(-50) } else { NOW };
        assert_eq!(next.last_transition_time, since, "{last}: a pardon does not restart");
        let unknown = old.unknown(NOW, "x");
        assert_eq!(pardon(&status, &old, unknown.clone(), NOW), unknown);
    }
}

#[test]
fn messages_without_an_api_server() {
    let table = [
        (Value::Null, "Shoot control plane has not been fully created yet."),
        (
            json!({"type": "Create", "state": "Succeeded"}),
            "Shoot control plane has not been fully created yet.",
        ),
        (json!({"type": "Delete"}), "Shoot control plane has already been or is about to be deleted."),
        (json!({"type": "Reconcile"}), "Shoot control plane is not running at the moment."),
    ];
    for (last, expected) in table {
        assert_eq!(not_running(&status(last, 0)), expected);
    }
}

fn nothing_inside() -> ShootFindings {
    ShootFindings { webhooks: Ok(None), definitions: Ok(Vec::new()) }
}

struct Case<'a> {
    scene: Scene,
    basis: Basis,
    authorities: Result<&'a [(String, Timestamp)], &'a str>,
    inside: Result<ShootFindings, String>,
}

impl Default for Case<'_> {
    fn default() -> Self {
        Self {
            scene: Scene::default(),
            basis: Basis::default(),
            authorities: Ok(&[]),
            inside: Ok(nothing_inside()),
        }
    }
}

impl Case<'_> {
    /// The existing ones: the prefix of the type, status, reason.
    fn says(&self) -> Vec<String> {
        let more = ConstraintInput {
            basis: &self.basis,
            authorities: self.authorities,
            inside: self.inside.as_ref().map_err(String::as_str),
        };
        let all = constraints(&self.scene.facts(), &[], &more);
        all.iter().map(|c| format!("{} {} {}", &c.kind[..2], c.status, c.reason)).collect()
    }
}

#[test]
fn existing_constraints() {
    let well = ["Hi True NoProblematicWebhooks", "Ma True NoProblematicWebhooks"];
    let with = |more: &'static str| [well.as_slice(), &[more]].concat();
    assert_eq!(Case::default().says(), well);

    let expiring = [("ca".to_owned(), at(364 * 86_400)), ("ca-etcd".to_owned(), at(366 * 86_400))];
    let case = Case { authorities: Ok(&expiring), ..Case::default() };
    assert_eq!(case.says(), with("CA False ExpiringCACertificates"));
    let case = Case { authorities: Ok(&expiring[1..]), ..Case::default() };
    assert_eq!(case.says(), well);
    let case = Case { authorities: Err("x"), ..Case::default() };
    assert_eq!(case.says(), with("CA Unknown ConditionCheckError"));

    let inside = ShootFindings { definitions: Ok(vec!["a.b".to_owned()]), ..nothing_inside() };
    let case = Case { inside: Ok(inside), ..Case::default() };
    assert_eq!(case.says(), with("CR False CRDsWithProblematicConversionWebhooks"));
    for (problem, reason) in [
        (WebhookProblem::Problematic("x".to_owned()), "ProblematicWebhooks"),
        (WebhookProblem::Remediated("x".to_owned()), "RemediatedWebhooks"),
    ] {
        let inside = ShootFindings { webhooks: Ok(Some(problem)), ..nothing_inside() };
        let case = Case { inside: Ok(inside), ..Case::default() };
        assert_eq!(case.says(), [format!("Hi False {reason}"), format!("Ma False {reason}")]);
    }
    let unread = ShootFindings { definitions: Err("x".to_owned()), ..nothing_inside() };
    let case = Case { inside: Ok(unread), ..Case::default() };
    assert_eq!(case.says(), with("CR Unknown ConditionCheckError"));
    let unknown = ["Hi Unknown ConditionCheckError", "Ma Unknown ConditionCheckError"];
    let definitions = Ok(vec!["a.b".to_owned()]);
    let unread = ShootFindings { webhooks: Err("x".to_owned()), definitions };
    let case = Case { inside: Ok(unread), ..Case::default() };
    let found = "CR False CRDsWithProblematicConversionWebhooks";
    assert_eq!(case.says(), [unknown.as_slice(), &[found]].concat());
    let case = Case { inside: Err("x".to_owned()), ..Case::default() };
    assert_eq!(case.says(), unknown);
    let mut case = Case::default();
    case.scene.server = ServerHealth::Unreached("x".to_owned());
    assert_eq!(case.says(), unknown);
    case.scene.server = ServerHealth::Stopped;
    assert_eq!(case.says(), ["Hi False ConstraintNotChecked", "Ma False ConstraintNotChecked"]);

    let mut ignored = (*managed("a", "seed", "", "True")).clone();
    ignored.metadata.annotations.insert("resources.gardener.cloud/ignore".to_owned(), "true".to_owned());
    let mut case = Case::default();
    case.scene.managed = vec![Arc::new(ignored)];
    assert_eq!(case.says(), with("Ha False ManagedResourcesIgnored"));

    case.scene.is_asleep = true;
    let asleep = ["Hi", "Ma", "CA", "CR"].map(|kind| format!("{kind} True ConstraintNotChecked"));
    assert_eq!(case.says(), [asleep.as_slice(), &["Ha False ManagedResourcesIgnored".to_owned()]].concat());
}

#[test]
fn a_key_that_cannot_be_rotated_in_time() {
    let cluster = |rotated: &str, schedules: Value| {
        json!({"spec": {"shoot": {"metadata": {"creationTimestamp": "2020-01-01T00:00:00Z"},
            "spec": {"maintenance": {"timeWindow": {"begin": "220000+0000", "end": "230000+0000"},
                "autoRotation": {"credentials": {"etcdEncryptionKey": {"rotationPeriod": "672h0m0s"}}}},
                "hibernation": {"schedules": schedules}},
            "status": {"credentials": {"rotation": {"etcdEncryptionKey": {"lastInitiationTime": rotated}}}}}}})
    };
    let nightly = json!([{"start": "0 20 * * *", "end": "0 6 * * *"}]);
    let table = [
        ("2025-12-31T00:00:00Z", nightly.clone(), None),
        ("2025-01-01T00:00:00Z", json!([]), None),
        ("2025-01-01T00:00:00Z", nightly, Some("Au False MaintenanceWindowDuringHibernation")),
        ("2025-01-01T00:00:00Z", json!([{"start": "0 2 * * *", "end": "0 6 * * *"}]), None),
        ("2025-01-01T00:00:00Z", json!([{"start": "nonsense"}]), None),
    ];
    for (rotated, schedules, expected) in table {
        let basis = Basis::read(&cluster(rotated, schedules.clone()), &[]).unwrap();
        let says = Case { basis, ..Case::default() }.says();
        assert_eq!(says.get(2).map(String::as_str), expected, "{rotated} {schedules}");
    }
    let mut never = cluster("", json!([]));
    never["spec"]["shoot"]["status"] = json!({});
    let basis = Basis::read(&never, &[]).unwrap();
    assert_eq!(basis.key_is_due.unwrap().unix(), 1_577_836_800 + 672 * 3_600);
    never["spec"]["shoot"]["spec"]["maintenance"]["autoRotation"] = Value::Null;
    assert_eq!(Basis::read(&never, &[]).unwrap().key_is_due, None);
    assert_eq!(Basis::read(&json!({"spec": {"seed": {}}}), &[]), None);
}

#[test]
fn reasons_to_check_a_shoot() {
    let head = |seed: &str, kind: &str, state: &str| -> ShootHead {
        let last = json!({"type": kind, "state": state});
        serde_json::from_value(
            json!({"metadata": {"name": "s"}, "status": {"seedName": seed, "lastOperation": last}}),
        )
        .unwrap()
    };
    let idle = || head("edge", "Reconcile", "Succeeded");
    let table = [
        (None, Some(idle()), Some(Reason::New)),
        (Some(idle()), None, Some(Reason::Gone)),
        (Some(idle()), Some(idle()), None),
        (Some(head("", "", "")), Some(head("edge", "", "")), Some(Reason::Asked)),
        (
            Some(head("edge", "Create", "Processing")),
            Some(head("edge", "Create", "Succeeded")),
            Some(Reason::Asked),
        ),
        (Some(head("edge", "Create", "Processing")), Some(idle()), Some(Reason::Asked)),
        (Some(head("edge", "Reconcile", "Error")), Some(idle()), None),
        (Some(idle()), Some(head("edge", "Reconcile", "Processing")), None),
        (Some(head("edge", "Delete", "Processing")), Some(head("edge", "Delete", "Succeeded")), None),
        (Some(head("edge", "Reconcile", "Processing")), Some(head("edge", "Delete", "Succeeded")), None),
    ];
    for (old, new, expected) in table {
        let shared = |head: &Option<ShootHead>| head.clone().map(Arc::new);
        let change = Change { key: Key::new("p", "s"), old: shared(&old), new: shared(&new) };
        assert_eq!(reason(&change), expected, "{old:?} {new:?}");
    }
}

#[test]
fn only_hosts_of_the_site_are_cared_for() {
    let own = ["local".to_owned()];
    let read = |workers: Value, host_types: &[String]| {
        let spec = json!({"provider": {"type": "local", "workers": workers}});
        let basis = Basis::read(&json!({"spec": {"shoot": {"spec": spec}}}), host_types).unwrap();
        (!basis.pools.is_empty(), basis.has_foreign_workers)
    };
    assert_eq!(read(json!([]), &[]), (false, false));
    assert_eq!(read(json!([{"name": "a"}]), &[]), (true, true));
    assert_eq!(read(json!([{"name": "a"}]), &own), (true, false));
}

#[test]
fn nodes_and_the_way_to_them_count_with_workers() {
    let says = |scene: &Scene, kind: &str| {
        let all = scene.facts().conditions();
        condition::find(&all, kind).map(|found| format!("{} {}", found.status, found.reason))
    };
    let pool = Pool { name: "a".to_owned(), minimum: 1, ..Pool::default() };
    let mut scene = Scene::default();
    assert_eq!(says(&scene, EVERY_NODE), None, "without workers");
    scene.pools = vec![pool];
    assert_eq!(says(&scene, EVERY_NODE).as_deref(), Some("Unknown ConditionCheckError"));
    scene.nodes = Some(NodeFindings { nodes: Err("x".to_owned()), tunnel: None });
    assert_eq!(says(&scene, EVERY_NODE).as_deref(), Some("Unknown ConditionCheckError"));
    scene.nodes = Some(NodeFindings { nodes: Ok(Vec::new()), tunnel: None });
    assert_eq!(says(&scene, EVERY_NODE).as_deref(), Some("False MissingNodes"));
    scene.pools[0].minimum = 0;
    assert_eq!(says(&scene, EVERY_NODE).as_deref(), Some("True EveryNodeReady"));
    assert_eq!(says(&scene, CONDITIONS[3]).as_deref(), Some("True SystemComponentsRunning"));
    scene.nodes = Some(NodeFindings { nodes: Ok(Vec::new()), tunnel: Some("no way".to_owned()) });
    assert_eq!(says(&scene, CONDITIONS[3]).as_deref(), Some("False TunnelConnectionBroken"));
    scene.server = ServerHealth::Stopped;
    assert_eq!(says(&scene, EVERY_NODE).as_deref(), Some("Unknown ConditionCheckError"));
    scene.is_asleep = true;
    assert_eq!(says(&scene, EVERY_NODE).as_deref(), Some("True ConditionNotChecked"));
}
