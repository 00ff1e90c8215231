//! A Shoot is bound to another seed once more while its new seed restores it: back to the seed that it has left, or on to a third one.
//! The garden allows that at any time. The seed in the middle either has nothing of the data yet, and passes on what it got; or the data are
//! between two buckets, and the Shoot stays until it is bound to this seed again; or they are here, and it moves as usual.
//!
//! All the time a checker compares the data of all seeds.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde_json::{Value, json};

use crate::faultpoints::{FaultPoints, Point, after, before, created as named};
use crate::move_stage::{Acknowledged, NAME, PLACE, Side, Stage, Writer, is_observed, missing};
use crate::sampling::{Sample, is_limited};
use crate::story_shoot_crash::is_lasting;
use crate::story_shoot_move::{Identity, RESTORED, created, has_left, is_at};
use crate::world::{CORE, wait_for};
use support::api::store::Id;
use support::http::faults::Seen;
use support::json::{list, text};
use support::options::is_long;
use support::shoot::buckets::Snapshot;
use support::shoot::history::{self, Operation};
use support::shoot::object::{PROJECT_NAMESPACE, technical_id};

/// Longer than a task waits for an etcd.
const LONG: Duration = Duration::from_secs(4_000);

/// What the seed in the middle does with the Shoot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Fate {
    /// It passes on what it got.
    PassedOn,
    /// It keeps the Shoot until it is bound here again.
    Stays,
    /// It has the data, and the Shoot leaves with them.
    Leaves,
}

/// Where the agent of the seed in the middle is killed, and what becomes of the Shoot, which is bound to another seed before that agent
/// starts again.
static BORDERS: [(Point, Fate); 7] = [
    (before("seed: POST namespaces shoot--p--s1"), Fate::PassedOn),
    (after("seed: POST namespaces shoot--p--s1"), Fate::PassedOn),
    (before("garden: POST backupentries source-shoot--p--s1--<uid>"), Fate::PassedOn),
    (after("garden: POST backupentries source-shoot--p--s1--<uid>"), Fate::Stays),
    (before("seed: DELETE jobs etcd-main-copy"), Fate::Stays),
    (before("garden: DELETE backupentries source-shoot--p--s1--<uid>"), Fate::Stays),
    (after("garden: DELETE backupentries source-shoot--p--s1--<uid>"), Fate::Leaves),
];

/// A Shoot that is bound once more.
#[derive(Clone, Debug)]
struct Rebinding {
    point: Point,
    fate: Fate,
    /// To a third seed, and not back.
    goes_on: bool,
}

impl Rebinding {
    /// One for each border.
    fn all(goes_on: bool) -> Vec<Self> {
        BORDERS.iter().map(|(point, fate)| Self { point: point.clone(), fate: *fate, goes_on }).collect()
    }
}

/// `back KillBefore seed: POST namespaces shoot--p--s1`
impl fmt::Display for Rebinding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", if self.goes_on { "on" } else { "back" }, self.point)
    }
}

/// A Shoot with the objects that a client has written.
struct Traveller {
    before: Identity,
    written: Acknowledged,
}

impl Traveller {
    fn of(stage: &Stage) -> Self {
        let before = created(stage);
        let writer = Writer::start(stage.owner());
        wait_for("some writes", || (writer.count() > 20).then_some(()));
        Self { before, written: writer.end() }
    }

    /// It arrives with everything that it was. An agent that starts may reconcile it once more.
    fn arrives(&self, stage: &Stage, to: &Side) {
        stage.wait_for("the end of the move", |shoot| {
            let is_there = shoot["spec"]["seedName"] == to.name() && shoot["status"]["seedName"] == to.name();
            let is_done = Operation::of(shoot).is_some_and(|last| {
                last.state == "Succeeded" && ["Restore", "Reconcile"].contains(&&*last.kind)
            });
            is_there && is_done && is_observed(shoot)
        });
        is_at(stage, to, &self.before);
        assert_eq!(missing(to, &self.written), [""; 0]);
    }
}

fn concerns(seen: &Seen) -> bool {
    let (info, plane) = (&seen.info, technical_id(NAME));
    let is_near = [PROJECT_NAMESPACE, &plane].contains(&info.namespace.as_str());
    let is_named = [info.name.as_str(), named(seen)].iter().any(|name| name.contains(&plane));
    is_lasting(seen) && (is_near || is_named)
}

/// The agent of a seed is killed at a point from now on.
fn killed(side: &Side, point: &Point) -> Arc<FaultPoints> {
    FaultPoints::of(&side.world, &side.agent, Some(point), concerns)
}

/// Begins something, and binds the Shoot to another seed after the kill and before the agent starts again.
fn bind_when_killed(stage: &Stage, points: &FaultPoints, to: &Side, begin: impl FnOnce()) {
    let is_bound = AtomicBool::new(false);
    let look = |is_between_lives: bool| {
        if is_between_lives {
            is_bound.store(true, Ordering::SeqCst);
            stage.bind(to);
        }
    };
    points.restarting(look, || {
        begin();
        stage.wait_for("the kill", |_| is_bound.load(Ordering::SeqCst));
    });
}

/// A seed to which the Shoot comes back. Meanwhile its old namespace accepts nothing.
fn came_back(side: &Side) -> &Side {
    side.world.expect_refusals();
    side
}

/// The Shoot stays on a seed, and its status says why and until when. Nothing of it changes meanwhile.
fn stays(stage: &Stage, side: &Side) {
    let words = format!("bind it to seed {} again", side.name());
    let operations = || history::operations(stage.garden(), PLACE.0, PLACE.1);
    let migrations =
        || operations().iter().filter(|operation| operation.line() == "Migrate Processing 0").count();
    let begun = migrations();
    let shoot = stage.wait_for("the reason why it stays", |shoot| {
        text(shoot, "/status/lastOperation/description").contains(&words)
    });
    assert_eq!(text(&shoot, "/status/lastOperation/type"), "Restore");
    let before = made(side);
    stage.a.world.skip(Duration::from_secs(60));
    assert_eq!((migrations(), made(side)), (begun, before));
}

/// What operations make of the Shoot in a seed.
fn made(side: &Side) -> Vec<(Id, Value)> {
    const KINDS: [&str; 7] = [
        "configmaps",
        "deployments",
        "dnsrecords",
        "extensions",
        "managedresources",
        "namespaces",
        "statefulsets",
    ];
    let (state, plane) = (side.seed().store().read(), technical_id(NAME));
    let of_shoot = state
        .objects
        .iter()
        .filter(|(id, _)| KINDS.contains(&id.plural.as_str()) && (id.namespace == plane || id.name == plane));
    let one = |object: &Value| json!([object["metadata"]["annotations"], object["spec"], object["data"]]);
    of_shoot.map(|(id, object)| (id.clone(), one(object))).collect()
}

fn run(case: &Rebinding) -> Result<bool, String> {
    let stage = Stage::start("again-old", "again-middle");
    let third = case.goes_on.then(|| stage.third("again-next"));
    let traveller = Traveller::of(&stage);
    let (a, b) = (&stage.a, &stage.b);
    let to = third.as_ref().unwrap_or_else(|| came_back(a));
    bind_when_killed(&stage, &killed(b, &case.point), to, || stage.bind(b));
    if case.fate == Fate::Stays {
        stays(&stage, b);
        stage.bind(b);
        traveller.arrives(&stage, b);
        has_left(&stage, a);
        stage.bind(to);
    }
    traveller.arrives(&stage, to);
    has_left(&stage, b);
    if case.goes_on {
        has_left(&stage, a);
    }
    // The seed in the middle has not served it, or has restored it.
    let mut served = history::operations(stage.garden(), PLACE.0, PLACE.1);
    // While a succeeded Shoot waits for its next seed, only the description changes.
    served.dedup_by_key(|operation| operation.line());
    let restored = served.iter().filter(|operation| operation.line() == RESTORED).count();
    let bad: Vec<&Operation> =
        served.iter().filter(|operation| ["Error", "Failed"].contains(&&*operation.state)).collect();
    let expected = if case.fate == Fate::Stays { 2 } else { 1 };
    let problem = (restored != expected || !bad.is_empty())
        .then(|| format!("restored {restored} times, not {expected}; errors: {bad:?}"));
    stage.end();
    third.into_iter().for_each(Side::end);
    problem.map_or(Ok(true), Err)
}

#[test]
fn a_shoot_that_is_bound_once_more_keeps_its_data() {
    if is_limited() {
        return;
    }
    let all = [Rebinding::all(false), Rebinding::all(true)].concat();
    Sample::of("Shoots that are bound once more").with(0, all).run(&run);
}

/// The garden refuses the entry with which the new seed would read the backups. Everything else that it restores without data is there:
/// keys, objects of extensions, records.
#[test]
fn a_seed_that_cannot_read_the_backups_passes_them_on() {
    if !is_long() {
        return;
    }
    for goes_on in [false, true] {
        let stage = Stage::start("refused-old", "refused-middle");
        let third = goes_on.then(|| stage.third("refused-next"));
        let traveller = Traveller::of(&stage);
        let (a, b) = (came_back(&stage.a), came_back(&stage.b));
        let (is_refused, middle) = (Arc::new(AtomicBool::new(true)), b.name());
        let refused = is_refused.clone();
        let reads = move |seen: &Seen| {
            let body = seen.body.as_ref();
            seen.method == "POST"
                && seen.info.resource == "backupentries"
                && body.is_some_and(|body| body["spec"]["seedName"] == middle)
                && refused.load(Ordering::SeqCst)
        };
        stage.garden().faults().when(reads).answer(500);
        stage.bind(b);
        stage.wait_for("an error of the restoration", |shoot| {
            Operation::of(shoot).is_some_and(|last| (&*last.kind, &*last.state) == ("Restore", "Error"))
        });
        for (plural, name) in [("extensions", "early"), ("dnsrecords", "s1-external")] {
            wait_for(&format!("{plural} {name}"), || stage.object(b, plural, name));
        }
        assert_eq!(b.persisted().len(), traveller.before.secrets().len());
        stage.bind(third.as_ref().unwrap_or(a));
        traveller.arrives(&stage, third.as_ref().unwrap_or(a));
        has_left(&stage, b);
        is_refused.store(false, Ordering::SeqCst);
        // The seed can restore it later.
        stage.bind(b);
        traveller.arrives(&stage, b);
        has_left(&stage, third.as_ref().unwrap_or(a));
        stage.end();
        third.into_iter().for_each(Side::end);
    }
}

/// The seed in the middle has given the entry away, and must not write it any more.
#[test]
fn a_shoot_that_was_passed_on_goes_on() {
    if !is_long() {
        return;
    }
    let stage = Stage::start("given-old", "given-middle");
    let third = stage.third("given-next");
    let traveller = Traveller::of(&stage);
    let (a, b) = (&stage.a, &stage.b);
    let namespace = killed(b, &before("seed: POST namespaces shoot--p--s1"));
    let given = killed(b, &after("garden: PATCH backupentries shoot--p--s1--<uid>"));
    bind_when_killed(&stage, &namespace, &third, || stage.bind(b));
    bind_when_killed(&stage, &given, b, || ());
    let words = format!("bind it to seed {}", third.name());
    stage.wait_for("the way out", |shoot| {
        list(shoot, "/status/lastErrors").iter().any(|error| text(error, "/description").contains(&words))
    });
    stage.bind(a);
    stage.wait_for("the same from its status", |shoot| {
        let words = format!("bind it to seed {};", third.name());
        text(shoot, "/status/lastOperation/description").contains(&words)
    });
    stage.bind(&third);
    traveller.arrives(&stage, &third);
    has_left(&stage, a);
    has_left(&stage, b);
    stage.end();
    third.end();
}

/// It comes back to its seed at the end of a migration, and is bound to the other one again before it is restored.
#[test]
fn a_shoot_that_came_back_stays_until_it_is_restored() {
    if !is_long() {
        return;
    }
    let stage = Stage::start("homely-old", "homely-new");
    let traveller = Traveller::of(&stage);
    let (a, b) = (came_back(&stage.a), &stage.b);
    let left = killed(a, &before("seed: DELETE clusters shoot--p--s1"));
    let namespace = killed(a, &after("seed: POST namespaces shoot--p--s1"));
    bind_when_killed(&stage, &left, a, || stage.bind(b));
    bind_when_killed(&stage, &namespace, b, || ());
    stays(&stage, a);
    stage.bind(a);
    traveller.arrives(&stage, a);
    stage.bind(b);
    traveller.arrives(&stage, b);
    has_left(&stage, a);
    stage.end();
}

/// A hibernated Shoot has lost its volume, and nobody knows a snapshot of it.
#[test]
fn a_woken_etcd_does_not_begin_empty() {
    if !is_long() {
        return;
    }
    let stage = Stage::start("lost-old", "lost-new");
    let traveller = Traveller::of(&stage);
    let (a, b, plane) = (&stage.a, &stage.b, technical_id(NAME));
    let data = a.site.server(&plane).unwrap();
    let sleep = json!({"spec": {"hibernation": {"enabled": true}}});
    stage.garden().merge(CORE, "shoots", PLACE, &sleep);
    stage.until("Reconcile Succeeded 100");
    let snapshot = Snapshot::of(data.cluster.store(), a.world.clock.now().unix(), false);
    for claim in a.seed().store().names("", "persistentvolumeclaims", &plane) {
        a.seed().delete("", "persistentvolumeclaims", &plane, &claim);
    }
    stage.bind(b);
    wait_for("an etcd that does not start empty", || {
        let pod = a.seed().get("", "pods", &plane, "etcd-main-0")?;
        let why = text(&pod, "/status/containerStatuses/0/state/waiting/message").to_owned();
        why.contains("does not start empty").then_some(())
    });
    a.world.skip(LONG);
    stage.wait_for("an error of the migration", |shoot| {
        let mut errors = list(shoot, "/status/lastErrors").iter();
        errors.any(|error| text(error, "/description").contains("does not start empty"))
    });
    let prefix = format!("{}/etcd-main", stage.entry_name());
    stage.etcds.buckets.put(&a.bucket(), &prefix, snapshot).unwrap();
    stage.wait_for("the end of the move", |shoot| {
        Operation::of(shoot).is_some_and(|last| last.line() == "Reconcile Succeeded 100")
            && is_observed(shoot)
            && shoot["status"]["seedName"] == b.name()
    });
    stage.garden().merge(CORE, "shoots", PLACE, &json!({"spec": {"hibernation": {"enabled": false}}}));
    traveller.arrives(&stage, b);
    has_left(&stage, a);
    stage.end();
}
