//! What a move needs is away, damaged or incomplete: a bucket, a snapshot, the ShootState, the garden. The Shoot waits with an error
//! that names place, cause and remedy, and arrives after the remedy. All the time a checker looks at the data of both seeds.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};

use crate::move_stage::{Acknowledged, PLACE, Side, Stage, Writer, missing};
use crate::story_shoot_move::{Identity, RESTORED, created, has_left, is_at};
use crate::world::{CORE, wait_for};
use support::TestCluster;
use support::api::store::Id;
use support::garden::authorizer::USER_PREFIX;
use support::http::faults::{Action, Ordered, Seen};
use support::json::{list, text};
use support::options::is_long;
use support::shoot::buckets::{Buckets, Fault, Snapshot};
use support::shoot::history::Operation;
use support::shoot::jobs::{COPY, FINAL};
use support::shoot::object::technical_id;
use support::shoot::said;

/// How long a seed has no garden.
const AWAY: Duration = Duration::from_secs(600);
const ACCEPTS: (&str, &str) = ("edge.gardenlet/accept-data-loss", "true");

/// A Shoot with the objects that a client has written.
struct Mover {
    stage: Stage,
    before: Identity,
    written: Acknowledged,
}

impl Mover {
    fn start(a: &'static str, b: &'static str) -> Self {
        let stage = Stage::start(a, b);
        let before = created(&stage);
        let writer = Writer::start(stage.owner());
        wait_for("some writes", || (writer.count() > 20).then_some(()));
        let written = writer.end();
        Self { stage, before, written }
    }

    fn shelf(&self, side: &Side) -> Shelf {
        Shelf {
            buckets: self.stage.etcds.buckets.clone(),
            bucket: side.bucket(),
            prefix: format!("{}/etcd-main", self.stage.entry_name()),
            kept: Arc::default(),
        }
    }

    /// Waits until the operation has failed with a message that has all these words.
    fn complains(&self, operation: &str, words: &[&str]) {
        self.stage.wait_for(&format!("an error of {operation} with {words:?}"), |shoot| {
            let is_it = Operation::of(shoot).is_some_and(|last| last.kind == operation);
            let mut errors = list(shoot, "/status/lastErrors").iter();
            is_it && errors.any(|error| words.iter().all(|word| text(error, "/description").contains(word)))
        });
    }

    /// It arrives with everything that it was.
    fn arrives(&self, from: &Side, to: &Side) {
        self.stage.until(RESTORED);
        is_at(&self.stage, to, &self.before);
        has_left(&self.stage, from);
        assert_eq!(missing(to, &self.written), [""; 0]);
    }

    fn annotate(&self, (name, value): (&str, &str)) {
        let patch = json!({"metadata": {"annotations": {name: value}}});
        self.stage.garden().merge(CORE, "shoots", PLACE, &patch);
    }
}

/// The snapshots of the Shoot in one bucket.
#[derive(Clone)]
struct Shelf {
    buckets: Buckets,
    bucket: String,
    prefix: String,
    /// What was there before somebody damaged it.
    kept: Arc<Mutex<Vec<Snapshot>>>,
}

impl Shelf {
    fn set(&self, fault: Fault, is_on: bool) {
        self.buckets.set_fault(&self.bucket, fault, is_on);
    }

    /// Keeps the good snapshots, and then harms those in the bucket.
    fn harm(&self, harm: impl FnOnce(&Self)) {
        *self.kept.lock().unwrap() = self.buckets.all(&self.bucket, &self.prefix);
        harm(self);
    }

    fn damage(&self) {
        self.harm(|shelf| shelf.buckets.damage(&shelf.bucket, &shelf.prefix));
    }

    fn unmark(&self) {
        self.harm(|shelf| shelf.buckets.unmark(&shelf.bucket, &shelf.prefix));
    }

    fn clear(&self) {
        self.harm(|shelf| shelf.buckets.remove(&shelf.bucket, &shelf.prefix));
    }

    /// Somebody brings a copy of what was there.
    fn bring_back(&self) {
        for snapshot in self.kept.lock().unwrap().drain(..) {
            self.buckets.put(&self.bucket, &self.prefix, snapshot).unwrap();
        }
    }
}

/// Lets something happen before the first such request is processed.
fn at_first(
    cluster: &TestCluster,
    is_it: impl Fn(&Seen) -> bool + Send + 'static,
    deed: impl Fn() + Send + Sync + 'static,
) {
    cluster.faults().when(is_it).once().then(Action::Tell(Arc::new(move |_: &Seen| deed())));
}

/// The new seed begins to read what the old one has left.
fn reads_source(seen: &Seen) -> bool {
    seen.method == "POST"
        && seen.info.resource == "backupentries"
        && seen.body.as_ref().is_some_and(|body| text(body, "/metadata/name").starts_with("source-"))
}

/// The old seed gives the Shoot away.
fn leaves(seen: &Seen) -> bool {
    let last = |field: &str| seen.body.as_ref().map_or("", |body| text(body, field));
    seen.info.resource == "shoots"
        && last("/status/lastOperation/type") == "Migrate"
        && last("/status/lastOperation/state") == "Succeeded"
}

#[test]
fn a_move_waits_for_its_bucket_and_for_a_good_snapshot() {
    if !is_long() {
        return;
    }
    let mover = Mover::start("lacks-old", "lacks-new");
    let (stage, shelf) = (&mover.stage, mover.shelf(&mover.stage.a));
    shelf.set(Fault::Away, true);
    let is_job = |seen: &Seen| seen.method == "POST" && seen.info.resource == "jobs";
    let jobs = stage.a.seed().faults().when(is_job).then(Action::Tell(Arc::new(|_: &Seen| ())));
    let harmed = shelf.clone();
    at_first(stage.garden(), reads_source, move || harmed.damage());
    stage.bind(&stage.b);
    mover.complains("Migrate", &[FINAL, &shelf.bucket, said::UNREACHABLE]);
    assert!(jobs.hits() < 5, "a Job that fails is reported: {} were made", jobs.hits());
    shelf.set(Fault::Away, false);
    mover.complains("Restore", &[COPY, &shelf.bucket, said::BROKEN, ACCEPTS.0]);
    assert!(stage.b.stored("", "namespaces", ("", "default")).is_none(), "no API server without data");
    shelf.bring_back();
    mover.arrives(&stage.a, &stage.b);
    mover.stage.end();
}

/// What is stored is damaged on the way, or nobody stores it.
#[test]
fn a_bucket_that_keeps_nothing_is_noticed() {
    if !is_long() {
        return;
    }
    let mover = Mover::start("keeps-old", "keeps-new");
    let stage = &mover.stage;
    let (source, target) = (mover.shelf(&stage.a), mover.shelf(&stage.b));
    source.set(Fault::Damages, true);
    target.set(Fault::Away, true);
    stage.bind(&stage.b);
    mover.complains("Migrate", &[FINAL, &source.bucket, said::SPOILED]);
    source.set(Fault::Damages, false);
    mover.complains("Restore", &[COPY, &target.bucket, said::UNREACHABLE]);
    target.set(Fault::Away, false);
    target.set(Fault::Damages, true);
    mover.complains("Restore", &[COPY, &target.bucket, said::SPOILED]);
    target.set(Fault::Damages, false);
    mover.arrives(&stage.a, &stage.b);
    mover.stage.end();
}

#[test]
fn a_snapshot_that_is_not_final_moves_only_if_the_owner_accepts_it() {
    if !is_long() {
        return;
    }
    let mover = Mover::start("final-old", "final-new");
    let (stage, shelf) = (&mover.stage, mover.shelf(&mover.stage.a));
    let harmed = shelf.clone();
    at_first(stage.garden(), reads_source, move || harmed.unmark());
    stage.bind(&stage.b);
    wait_for_copy(&mover, &stage.b);
    mover.complains("Restore", &[COPY, &shelf.bucket, said::NOT_FINAL, ACCEPTS.0]);
    mover.annotate(ACCEPTS);
    // It was the last one nevertheless.
    mover.arrives(&stage.a, &stage.b);
    mover.stage.end();
}

/// Lets the time pass for which a copy waits.
fn wait_for_copy(mover: &Mover, side: &Side) {
    side.seed().wait_for("the pod of the copy", |seed| {
        seed.get("batch", "jobs", &technical_id(PLACE.1), COPY).filter(|job| job["status"]["active"] == 1)
    });
    mover.stage.a.world.skip(AWAY);
}

#[test]
fn a_missing_snapshot_can_be_brought_back() {
    if !is_long() {
        return;
    }
    let mover = Mover::start("gone-old", "gone-new");
    let (stage, shelf) = (&mover.stage, mover.shelf(&mover.stage.a));
    let harmed = shelf.clone();
    at_first(stage.garden(), reads_source, move || harmed.clear());
    stage.bind(&stage.b);
    wait_for_copy(&mover, &stage.b);
    mover.complains("Restore", &[COPY, &shelf.bucket, said::NO_SNAPSHOT, ACCEPTS.0]);
    shelf.bring_back();
    mover.arrives(&stage.a, &stage.b);

    // On the way back, the copy is lost before etcd has started with it. It is made again.
    let back = copies(&stage.a);
    let (harmed, target) = (mover.shelf(&stage.a), stage.a.bucket());
    at_first(stage.a.seed(), starts_etcd, move || harmed.clear());
    stage.bind(&stage.a);
    mover.complains("Restore", &["etcd-main-0", &target, said::NEVER_EMPTY]);
    mover.arrives(&stage.b, &stage.a);
    assert_eq!(back.hits(), 2);

    // An older snapshot is there instead of the copy. etcd could start with it, and would lack everything.
    let again = copies(&stage.b);
    let (harmed, older) = (mover.shelf(&stage.b), Snapshot::empty(0, false));
    at_first(stage.b.seed(), starts_etcd, move || {
        harmed.clear();
        harmed.buckets.put(&harmed.bucket, &harmed.prefix, older.clone()).unwrap();
    });
    stage.bind(&stage.b);
    mover.complains("Restore", &["etcd-main-0", &stage.b.bucket(), said::OLDER]);
    mover.arrives(&stage.a, &stage.b);
    assert_eq!(again.hits(), 2);
    mover.stage.end();
}

/// An etcd is told to start with the copy.
fn starts_etcd(seen: &Seen) -> bool {
    let is_main = |body: &Value| text(body, "/metadata/name") == "etcd-main";
    seen.method == "POST" && seen.info.resource == "statefulsets" && seen.body.as_ref().is_some_and(is_main)
}

/// Counts the Jobs that copy.
fn copies(side: &Side) -> Ordered {
    let is_copy = |body: &Value| text(body, "/metadata/name") == COPY;
    let is_job = move |seen: &Seen| {
        seen.method == "POST" && seen.info.resource == "jobs" && seen.body.as_ref().is_some_and(is_copy)
    };
    side.seed().faults().when(is_job).then(Action::Tell(Arc::new(|_: &Seen| ())))
}

/// The copy breaks in the new bucket, before etcd has started with it. It is made again, from what the old bucket has.
#[test]
fn a_copy_that_breaks_is_made_again() {
    if !is_long() {
        return;
    }
    let mover = Mover::start("breaks-old", "breaks-new");
    let stage = &mover.stage;
    let copies = copies(&stage.b);
    let (source, target) = (mover.shelf(&stage.a), mover.shelf(&stage.b));
    // One that etcd could start with, and that lacks everything.
    let older = Snapshot::empty(0, false);
    let (both, old_copy) = ([source.clone(), target.clone()], target.clone());
    at_first(stage.b.seed(), starts_etcd, move || {
        both.iter().for_each(Shelf::damage);
        old_copy.buckets.put(&old_copy.bucket, &old_copy.prefix, older.clone()).unwrap();
    });
    stage.bind(&stage.b);
    mover.complains("Restore", &["etcd-main-0", &target.bucket, "is broken", "copied from the bucket"]);
    mover.complains("Restore", &[COPY, &source.bucket, "is broken", ACCEPTS.0]);
    assert!(stage.b.stored("", "namespaces", ("", "default")).is_none(), "no API server without data");
    source.bring_back();
    mover.arrives(&stage.a, &stage.b);
    assert!(copies.hits() >= 3, "{} copies", copies.hits());
    mover.stage.end();
}

/// The keys and the CAs stay, but the data are those of a new Shoot: only with the owner's consent.
#[test]
fn a_shoot_begins_empty_only_if_its_owner_accepts_it() {
    if !is_long() {
        return;
    }
    let mover = Mover::start("empty-old", "empty-new");
    let (stage, shelf) = (&mover.stage, mover.shelf(&mover.stage.a));
    let harmed = shelf.clone();
    at_first(stage.garden(), reads_source, move || harmed.damage());
    stage.bind(&stage.b);
    mover.complains("Restore", &[COPY, said::BROKEN, ACCEPTS.0]);
    let kept = stage.b.persisted();
    mover.annotate(ACCEPTS);
    stage.garden().wait_for("the end of the move", |_| {
        Operation::of(&stage.shoot()).filter(|operation| operation.line() == RESTORED)
    });
    let problems = stage.etcds.ledger.problems();
    assert!(problems.len() == 1 && problems[0].contains("begins empty"), "{problems:?}");
    assert_eq!(missing(&stage.b, &mover.written).len(), mover.written.len());
    assert_eq!(stage.b.persisted(), kept);
}

#[test]
fn an_incomplete_shoot_state_stops_the_move_until_it_is_complete() {
    if !is_long() {
        return;
    }
    let mover = Mover::start("state-old", "state-new");
    let stage = &mover.stage;
    let lost = Arc::new(Mutex::new(Value::Null));
    // Each Secret with a key that is lost; the last time all of them.
    let rounds: [(&'static [&'static str], &[&str]); 3] = [
        (&["ca"], &["ShootState garden-p/s1", "ca", ACCEPTS.0]),
        (&["service-account-key", "kube-apiserver-etcd-encryption-key"], &["service-account-key"]),
        (&[], &["has no ShootState garden-p/s1", "backup of the garden"]),
    ];
    let mut places = [&stage.a, &stage.b];
    for (names, words) in rounds {
        let [from, to] = places;
        let (store, lost_one) = (stage.garden().store().clone(), lost.clone());
        at_first(stage.garden(), leaves, move || {
            let id = Id::new(CORE, "shootstates", PLACE.0, PLACE.1);
            store.write(|state| {
                let mut found = (*state.objects[&id]).clone();
                *lost_one.lock().unwrap() = found["spec"].clone();
                let entries = found["spec"]["gardener"].as_array_mut().unwrap();
                entries.retain(|entry| !names.contains(&text(entry, "/labels/name")));
                if names.is_empty() {
                    state.take(&id);
                } else {
                    state.put(id.clone(), found);
                }
            });
        });
        stage.bind(to);
        mover.complains("Restore", words);
        let spec = lost.lock().unwrap().clone();
        if names.is_empty() {
            let metadata = json!({"name": PLACE.1, "namespace": PLACE.0});
            let state = json!({"metadata": metadata, "spec": spec});
            stage.garden().create("core.gardener.cloud/v1beta1", "shootstates", &state);
        } else {
            stage.garden().merge(CORE, "shootstates", PLACE, &json!({"spec": spec}));
        }
        mover.arrives(from, to);
        places = [to, from];
    }
    mover.stage.end();
}

/// The agent of a seed works, and reaches its seed, but not the garden.
fn has_no_garden_for_a_while(is_source: bool) {
    let (a, b) = if is_source { ("link-old", "cable-new") } else { ("cable-old", "link-new") };
    let mover = Mover::start(a, b);
    let stage = &mover.stage;
    let side = if is_source { &stage.a } else { &stage.b };
    let (is_cut, user) = (Arc::new(AtomicBool::new(false)), format!("{USER_PREFIX}{}", side.name()));
    let cut = is_cut.clone();
    stage
        .garden()
        .faults()
        .when(move |seen| seen.user == user && cut.load(Ordering::SeqCst))
        .then(Action::Drop);
    // The source has deleted the API server; the target has the entry of the source.
    let cut = is_cut.clone();
    let begins = move || cut.store(true, Ordering::SeqCst);
    if is_source {
        let is_end = |seen: &Seen| {
            seen.method == "DELETE"
                && seen.info.resource == "deployments"
                && seen.info.name == "kube-apiserver"
        };
        at_first(stage.a.seed(), is_end, begins);
    } else {
        at_first(stage.garden(), reads_source, begins);
    }
    stage.bind(&stage.b);
    stage.wait_for("the cut", |_| is_cut.load(Ordering::SeqCst));
    stage.a.world.skip(AWAY);
    stage.check();
    is_cut.store(false, Ordering::SeqCst);
    mover.arrives(&stage.a, &stage.b);
    mover.stage.end();
}

#[test]
fn a_source_without_a_garden_goes_on_later() {
    if is_long() {
        has_no_garden_for_a_while(true);
    }
}

#[test]
fn a_target_without_a_garden_goes_on_later() {
    if is_long() {
        has_no_garden_for_a_while(false);
    }
}
