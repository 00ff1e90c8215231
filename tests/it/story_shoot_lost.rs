//! A seed is lost for ever, and another one restores its Shoot from what the garden and the bucket of the lost one have. Then the lost
//! one comes back after all: after the end of the rescue, or before it.

use std::collections::BTreeMap;

use gardenlet::api::core::CONFIG_MAP;
use serde_json::{Value, json};

use crate::commands::command_with;
use crate::faultpoints::{FaultPoints, after};
use crate::move_stage::{EXTENSIONS, NAME, PLACE, Side, Stage, is_observed};
use crate::story_shoot_move::{Identity, RESTORED, created, has_left, is_at};
use crate::world::{CORE, wait_for};
use support::cluster::PATIENCE;
use support::http::faults::{Action, Seen};
use support::json::{entry, list, text};
use support::options::is_long;
use support::pace;
use support::shoot::Trouble;
use support::shoot::buckets::Snapshot;
use support::shoot::history::Operation;
use support::shoot::object::technical_id;

/// What the command of an administrator of the garden ends with.
struct Ended {
    code: u8,
    output: String,
    errors: String,
}

impl Ended {
    fn writes(&self) -> usize {
        self.output.lines().filter(|line| line.starts_with("Written: ")).count()
    }
}

/// `gardenlet rescue` of the Shoot of the first seed at a terminal, if there is an answer to its question.
fn rescue(stage: &Stage, answer: Option<&str>, more: &[&str]) -> Ended {
    rescue_from(stage, [&stage.a, &stage.b], answer, more)
}

fn rescue_from(stage: &Stage, [from, to]: [&Side; 2], answer: Option<&str>, more: &[&str]) -> Ended {
    let kubeconfig = stage.a.world.file("administrator.kubeconfig", &stage.garden().admin_kubeconfig());
    let shoot = format!("{}/{}", PLACE.0, PLACE.1);
    let (kubeconfig, from, to) = (
        format!("--kubeconfig={}", kubeconfig.display()),
        format!("--from={}", from.name()),
        format!("--to={}", to.name()),
    );
    let words = [&["rescue", &shoot, &kubeconfig, &from, &to], more].concat();
    let (code, output, errors) = command_with(answer, &words, &BTreeMap::new());
    Ended { code, output, errors }
}

/// Runs it until it is killed after its first write, before it knows that the garden has it.
fn rescue_once(stage: &Stage, sides: [&Side; 2]) -> Ended {
    let fault = stage.garden().faults().when(|seen| seen.user == "admin" && seen.is_write());
    let cut = fault.once().then(Action::DropAfter);
    let ended = rescue_from(stage, sides, Some("s1\n"), &[]);
    assert_eq!((ended.code, ended.writes(), cut.hits()), (1, 0, 1), "{}{}", ended.output, ended.errors);
    cut.cancel();
    ended
}

/// The garden has the states of the extensions, which come a moment after the Shoot.
fn wait_for_state(stage: &Stage) {
    stage.garden().wait_for("a whole ShootState", |garden| {
        let state = garden.get(CORE, "shootstates", PLACE.0, PLACE.1)?;
        let states = list(&state, "/spec/extensions").iter();
        (states.filter(|entry| entry["kind"] == "Extension").count() == EXTENSIONS.len()).then_some(())
    });
}

fn note(stage: &Stage, name: &str) {
    let map = json!({"metadata": {"name": name}});
    stage.owner().create::<Value>(&CONFIG_MAP, "default", &map).unwrap();
}

/// Cuts the link of a seed: its agent ends, and the control plane goes on, with one more write after its last snapshot.
fn cut_off(stage: &Stage, side: &Side, late: &str) {
    side.agent.crash();
    let server = side.site.server(&technical_id(NAME)).unwrap();
    let snapshot = Snapshot::of(server.cluster.store(), side.world.clock.now().unix(), false);
    let prefix = format!("{}/etcd-main", stage.entry_name());
    stage.etcds.buckets.put(&side.bucket(), &prefix, snapshot).unwrap();
    note(stage, late);
}

/// The same, and then cuts its power.
fn lose(stage: &Stage) {
    let (side, plane) = (&stage.a, technical_id(NAME));
    cut_off(stage, side, "late");
    side.site.trouble(&plane, "kube-apiserver", Some(Trouble::Dies));
    let pods = side.seed().store().names("", "pods", &plane);
    let ends = pods.iter().filter(|pod| pod.starts_with("kube-apiserver"));
    ends.for_each(|pod| side.seed().delete("", "pods", &plane, pod));
    wait_for("the end of the API server", || {
        stage.etcds.ledger.serving(text(&stage.shoot(), "/status/uid")).is_empty().then_some(())
    });
}

fn replicas(side: &Side, plural: &str, name: &str) -> Value {
    side.seed().get("apps", plural, &technical_id(NAME), name).unwrap()["spec"]["replicas"].clone()
}

/// The Shoot as soon as it is restored; `None` if that takes too long.
fn arrived(stage: &Stage) -> Option<Value> {
    stage.garden().wait_on(&pace::clock(), 4 * PATIENCE, |_| {
        let shoot = stage.shoot();
        let is_done = Operation::of(&shoot).is_some_and(|it| it.line() == RESTORED);
        is_done.then_some(shoot)
    })
}

/// It is on the second seed with the loss of the late write and no other, and an Event has told it.
fn has_lost_the_late_write(stage: &Stage, before: &Identity, restored: &Value) {
    let b = &stage.b;
    is_at(stage, b, before);
    assert!(b.stored("", "configmaps", ("default", "kept")).is_some());
    assert!(b.stored("", "configmaps", ("default", "late")).is_none());
    let problems = stage.etcds.ledger.problems();
    let lost = problems.iter().filter_map(|problem| problem.split_once("lost are "));
    let mut lost: Vec<String> =
        lost.flat_map(|(_, all)| serde_json::from_str::<Vec<String>>(all).unwrap()).collect();
    // The controllers are at work until the end.
    lost.retain(|what| !what.starts_with("leases "));
    assert_eq!((problems.len(), lost), (1, vec!["configmaps late".to_owned()]), "{problems:?}");
    // It does not hold for the next move.
    assert_eq!(restored["metadata"]["annotations"]["edge.gardenlet/accept-data-loss"], Value::Null);
    wait_for("the event about the loss", || stage.events().iter().any(|it| it == "DataLost").then_some(()));
    wait_for("the end of what is to be told", || {
        let namespace = b.seed().get("", "namespaces", "", &technical_id(NAME))?;
        entry(&namespace, "/metadata/annotations", "edge.gardenlet/data-lost").is_none().then_some(())
    });
}

/// An etcd-druid runs the etcds of the new seed.
#[test]
fn a_shoot_of_a_lost_seed_comes_back_with_a_druid() {
    if !is_long() {
        return;
    }
    let stage = Stage::start_with("lost-plain", "lost-druid", |config| {
        if config["seedConfig"]["metadata"]["name"] == "lost-druid" {
            config["edge"]["etcd"] = json!({"mode": "Druid"});
        }
    });
    let before = created(&stage);
    wait_for_state(&stage);
    note(&stage, "kept");
    lose(&stage);
    stage.a.world.wait_for_condition("GardenletReady", "Unknown");
    let done = rescue(&stage, None, &["--yes"]);
    assert!(done.code == 0 && done.writes() == 5, "{}{}", done.output, done.errors);
    // Nobody can tell it that there is no final snapshot.
    let copy = stage.b.seed().wait_for("the copy of the druid", |seed| {
        seed.get("druid.gardener.cloud", "etcdcopybackupstasks", &technical_id(NAME), NAME)
    });
    assert_eq!(copy["spec"]["waitForFinalSnapshot"]["enabled"], false);
    let restored = arrived(&stage).unwrap_or_else(|| panic!("{}", stage.shoot()["status"]));
    has_lost_the_late_write(&stage, &before, &restored);
    let etcd = stage.b.seed().get("druid.gardener.cloud", "etcds", &technical_id(NAME), "etcd-main");
    assert!(etcd.is_some());
    stage.b.agent.stop();
}

#[test]
fn a_shoot_of_a_lost_seed_comes_back_with_the_stated_loss() {
    if !is_long() {
        return;
    }
    let stage = Stage::start("lost-old", "lost-new");
    let before = created(&stage);
    let (a, b) = (&stage.a, &stage.b);
    wait_for_state(&stage);
    note(&stage, "kept");
    let refused = rescue(&stage, None, &["--yes"]);
    assert!(
        refused.code == 1 && refused.errors.contains("lost-old: its condition GardenletReady is True"),
        "{}",
        refused.errors
    );
    lose(&stage);
    a.world.wait_for_condition("GardenletReady", "Unknown");

    // Nobody confirms it.
    for (answer, why) in [(None, "confirm with --yes"), (Some("other\n"), "nothing was written")] {
        let asked = rescue(&stage, answer, &[]);
        assert!(asked.code == 1 && asked.writes() == 0 && asked.errors.contains(why), "{}", asked.errors);
        for words in ["Lost with seed lost-old:", "  1. Bind the Shoot", "  5. Let the new seed restore"] {
            assert!(asked.output.contains(words), "{words}: {}", asked.output);
        }
    }
    assert_eq!(text(&stage.shoot(), "/spec/seedName"), a.name());

    // Killed after each write.
    for left in (1..=5).rev() {
        let ended = rescue_once(&stage, [a, b]);
        assert!(ended.output.contains(&format!("  {left}. ")), "{left}: {}", ended.output);
        assert!(!ended.output.contains(&format!("  {}. ", left + 1)), "{left}: {}", ended.output);
    }
    // The agent of the new seed is killed after the copy, which says what is lost. There is no second one, once there is an etcd.
    let makes_etcd = after("seed: POST statefulsets etcd-main");
    let concerns = |seen: &Seen| seen.info.namespace == technical_id(NAME);
    let points = FaultPoints::of(&b.world, &b.agent, Some(&makes_etcd), concerns);
    let again = rescue(&stage, None, &["--yes"]);
    let done = format!("Shoot garden-p/s1 belongs to seed {}, whose agent restores it", b.name());
    assert!(again.code == 0 && again.output.starts_with(&done), "{}{}", again.output, again.errors);

    let restored = points.restarting(|_| {}, || arrived(&stage));
    let restored = restored.unwrap_or_else(|| panic!("{}", stage.shoot()["status"]));
    assert!(points.hit().is_some());
    has_lost_the_late_write(&stage, &before, &restored);
    let problems = stage.etcds.ledger.problems();
    let later = rescue(&stage, None, &["--yes"]);
    let there = format!("Shoot garden-p/s1 is on seed {} already, and there is nothing to rescue", b.name());
    assert!(later.code == 0 && later.writes() == 0 && later.output.starts_with(&there), "{}", later.output);

    // The machines were not lost. Their agent does not touch the Shoot, and stops what is left of it.
    let version = |shoot: &Value| shoot["status"]["lastOperation"].clone();
    let schedule = || a.seed().get("batch", "cronjobs", &technical_id(NAME), "etcd-main-snapshot");
    assert!(schedule().is_some());
    a.agent.launch();
    for (plural, name) in [
        ("deployments", "kube-controller-manager"),
        ("deployments", "kube-apiserver"),
        ("statefulsets", "etcd-main"),
        ("statefulsets", "etcd-events"),
    ] {
        a.seed().wait_for(name, |_| (replicas(a, plural, name) == 0).then_some(()));
    }
    // Its snapshots would get into the old bucket.
    wait_for("the end of its snapshots", || schedule().is_none().then_some(()));
    assert_eq!(version(&stage.shoot()), version(&restored));
    assert_eq!(stage.etcds.ledger.problems(), problems);
    takes_no_old_data(&stage, &before);
    for side in [stage.a, stage.b] {
        side.agent.stop();
    }
}

/// The Shoot comes back to the seed that was not lost. It gets its present data only after what is left of its etcd has gone.
fn takes_no_old_data(stage: &Stage, before: &Identity) {
    let (side, plane) = (&stage.a, technical_id(NAME));
    let sees = |what: &str, is_so: &dyn Fn(&Value) -> bool| {
        let found =
            stage.garden().wait_on(&pace::clock(), 4 * PATIENCE, |_| is_so(&stage.shoot()).then_some(()));
        found.unwrap_or_else(|| panic!("waited in vain for {what}: {}", stage.shoot()["status"]));
    };
    // It has power again.
    side.site.trouble(&plane, "kube-apiserver", None);
    stage.bind(side);
    let claim = "main-etcd-etcd-main-0";
    for (group, plural, name) in
        [("apps", "statefulsets", "etcd-main"), ("", "persistentvolumeclaims", claim)]
    {
        let words = format!("{name} from an earlier time of the Shoot here");
        sees(&words, &|shoot| {
            let mut errors =
                list(shoot, "/status/lastErrors").iter().map(|error| text(error, "/description"));
            errors.any(|why| why.contains(&words) && why.contains(&stage.b.bucket()))
        });
        side.seed().delete(group, plural, &plane, name);
    }
    sees("the end of the move", &|shoot| {
        let is_done = Operation::of(shoot).is_some_and(|it| it.line() == RESTORED);
        is_done && is_observed(shoot) && shoot["status"]["seedName"] == side.name()
    });
    is_at(stage, side, before);
    has_left(stage, &stage.b);
}

/// The agent of a seed starts without the Secret of its bucket, which is brought back after a while.
fn lacks_secret(stage: &Stage, side: &Side) {
    let (seed, plane) = (side.seed(), technical_id(NAME));
    let data = seed.get("", "secrets", &plane, "etcd-backup").unwrap()["data"].clone();
    seed.delete("", "secrets", &plane, "etcd-backup");
    side.agent.launch();
    stage.wait_for("the demand for the Secret", |shoot| {
        let mut errors = list(shoot, "/status/lastErrors").iter().map(|error| text(error, "/description"));
        errors.any(|why| {
            why.contains("Secret shoot--p--s1/etcd-backup of the seed") && why.contains("bind the Shoot")
        })
    });
    let all = [("deployments", "kube-apiserver"), ("statefulsets", "etcd-main")];
    assert!(all.iter().all(|(plural, name)| replicas(side, plural, name) == 1));
    for (name, _) in EXTENSIONS {
        let object = stage.object(side, "extensions", name).unwrap();
        assert_eq!(entry(&object, "/metadata/annotations", "gardener.cloud/operation"), None, "{name}");
    }
    let secret = json!({"metadata": {"name": "etcd-backup", "namespace": plane}, "data": data});
    seed.create("v1", "secrets", &secret);
}

/// Then it is not lost, and hands over what it has, although the garden says already that the other seed has the backups.
#[test]
fn a_seed_that_comes_back_before_the_end_of_its_rescue_loses_nothing() {
    if !is_long() {
        return;
    }
    let stage = Stage::start("back-old", "back-new");
    let before = created(&stage);
    // How many writes of the rescue there were. The third one gives the backups away, the fourth one releases them.
    let cuts: &[usize] = if is_long() { &[3, 4, 1, 2] } else { &[3, 4] };
    let mut sides = [&stage.a, &stage.b];
    for writes in cuts {
        let [from, to] = sides;
        wait_for_state(&stage);
        let late = format!("late-{writes}");
        cut_off(&stage, from, &late);
        from.world.wait_for_condition("GardenletReady", "Unknown");
        for _ in 0..*writes {
            rescue_once(&stage, sides);
        }
        match writes {
            3 => lacks_secret(&stage, from),
            _ => from.agent.launch(),
        }
        let restored = stage.wait_for("the end of the move", |shoot| {
            let is_done = Operation::of(shoot).is_some_and(|it| it.line() == RESTORED);
            is_done && is_observed(shoot) && shoot["status"]["seedName"] == to.name()
        });
        is_at(&stage, to, &before);
        has_left(&stage, from);
        assert!(to.stored("", "configmaps", ("default", &late)).is_some(), "after write {writes}");
        assert_eq!(restored["metadata"]["annotations"]["edge.gardenlet/accept-data-loss"], Value::Null);
        sides = [to, from];
    }
    assert!(!stage.events().iter().any(|event| event == "DataLost"));
    stage.end();
}
