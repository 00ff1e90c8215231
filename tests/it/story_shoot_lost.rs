//! A seed is lost for ever, and another one restores its Shoot from what the garden and the bucket of the lost one have. Then the lost
//! one comes back after all.

use std::collections::BTreeMap;
use std::time::Duration;

use gardenlet::api::core::CONFIG_MAP;
use serde_json::{Value, json};

use crate::commands::command_with;
use crate::move_stage::{NAME, PLACE, Side, Stage};
use crate::story_shoot_move::{Identity, created, is_at};
use crate::world::{CORE, wait_for};
use support::cluster::PATIENCE;
use support::http::faults::Action;
use support::json::{list, text};
use support::options::is_long;
use support::pace;
use support::shoot::Trouble;
use support::shoot::buckets::Snapshot;
use support::shoot::history::Operation;
use support::shoot::object::technical_id;

/// Longer than an etcd-druid waits for a final snapshot.
const PATIENT: Duration = Duration::from_secs(600);

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

/// `gardenlet rescue` at a terminal, if there is an answer to its question.
fn rescue(stage: &Stage, answer: Option<&str>, more: &[&str]) -> Ended {
    let kubeconfig = stage.a.world.file("administrator.kubeconfig", &stage.garden().admin_kubeconfig());
    let shoot = format!("{}/{}", PLACE.0, PLACE.1);
    let (kubeconfig, from, to) = (
        format!("--kubeconfig={}", kubeconfig.display()),
        format!("--from={}", stage.a.name()),
        format!("--to={}", stage.b.name()),
    );
    let words = [&["rescue", &shoot, &kubeconfig, &from, &to], more].concat();
    let (code, output, errors) = command_with(answer, &words, &BTreeMap::new());
    Ended { code, output, errors }
}

/// The garden has the states of the extensions, which come a moment after the Shoot.
fn wait_for_state(stage: &Stage) {
    stage.garden().wait_for("a whole ShootState", |garden| {
        let state = garden.get(CORE, "shootstates", PLACE.0, PLACE.1)?;
        let states = list(&state, "/spec/extensions").iter();
        (states.filter(|entry| entry["kind"] == "Extension").count() == 2).then_some(())
    });
}

fn note(stage: &Stage, name: &str) {
    let map = json!({"metadata": {"name": name}});
    stage.owner().create::<Value>(&CONFIG_MAP, "default", &map).unwrap();
}

/// Takes the last snapshot of the first seed, and cuts its power after one more write.
fn lose(stage: &Stage) {
    let (side, plane) = (&stage.a, technical_id(NAME));
    side.agent.crash();
    let server = side.site.server(&plane).unwrap();
    let snapshot = Snapshot::of(server.cluster.store(), side.world.clock.now().unix(), false);
    let prefix = format!("{}/etcd-main", stage.entry_name());
    stage.etcds.buckets.put(&side.bucket(), &prefix, snapshot).unwrap();
    note(stage, "late");
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

/// Waits until the Shoot is restored on the second seed, with the loss of the late write and no other. The Shoot as it is then.
fn restored(stage: &Stage, before: &Identity) -> Value {
    let restored = stage.garden().wait_on(&pace::clock(), 4 * PATIENCE, |_| {
        let shoot = stage.shoot();
        let is_done = Operation::of(&shoot).is_some_and(|it| it.line() == "Restore Succeeded 100");
        is_done.then_some(shoot)
    });
    let restored = restored.unwrap_or_else(|| panic!("{}", stage.shoot()["status"]));
    is_at(stage, &stage.b, before);
    assert!(stage.b.stored("", "configmaps", ("default", "kept")).is_some());
    assert!(stage.b.stored("", "configmaps", ("default", "late")).is_none());
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
    restored
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
    // It waits for a final snapshot, because nobody can tell it that there is none.
    stage.b.seed().wait_for("the copy of the druid", |seed| {
        seed.get("druid.gardener.cloud", "etcdcopybackupstasks", &technical_id(NAME), NAME)
    });
    stage.a.world.skip(PATIENT);
    restored(&stage, &before);
    let etcd = stage.b.seed().get("druid.gardener.cloud", "etcds", &technical_id(NAME), "etcd-main");
    assert!(etcd.is_some());
    stage.b.agent.stop();
}

#[test]
fn a_shoot_of_a_lost_seed_comes_back_with_the_stated_loss() {
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

    // Killed after each write, before it knows that the garden has it.
    for left in (1..=5).rev() {
        let fault = stage.garden().faults().when(|seen| seen.user == "admin" && seen.is_write());
        let cut = fault.once().then(Action::DropAfter);
        let ended = rescue(&stage, Some("s1\n"), &[]);
        assert_eq!((ended.code, ended.writes(), cut.hits()), (1, 0, 1), "{}{}", ended.output, ended.errors);
        assert!(ended.output.contains(&format!("  {left}. ")), "{left}: {}", ended.output);
        assert!(!ended.output.contains(&format!("  {}. ", left + 1)), "{left}: {}", ended.output);
        cut.cancel();
    }
    let again = rescue(&stage, None, &["--yes"]);
    let done = format!("Shoot garden-p/s1 belongs to seed {}, whose agent restores it.", b.name());
    assert!(again.code == 0 && again.output.starts_with(&done), "{}{}", again.output, again.errors);

    let restored = restored(&stage, &before);
    let problems = stage.etcds.ledger.problems();
    let after = rescue(&stage, None, &["--yes"]);
    assert!(after.code == 0 && after.writes() == 0, "{}", after.errors);

    // The machines were not lost. Their agent does not touch the Shoot, and stops what is left of it.
    let version = |shoot: &Value| shoot["status"]["lastOperation"].clone();
    a.agent.launch();
    for (plural, name) in [
        ("deployments", "kube-controller-manager"),
        ("deployments", "kube-apiserver"),
        ("statefulsets", "etcd-main"),
        ("statefulsets", "etcd-events"),
    ] {
        a.seed().wait_for(name, |_| (replicas(a, plural, name) == 0).then_some(()));
    }
    assert_eq!(version(&stage.shoot()), version(&restored));
    assert_eq!(stage.etcds.ledger.problems(), problems);
    for side in [stage.a, stage.b] {
        side.agent.stop();
    }
}
