//! A Shoot whose etcds an etcd-druid runs moves from one seed to another and back. These stories are for long runs.

use std::time::Duration;

use serde_json::{Value, json};

use crate::move_stage::{NAME, PLACE, Side, Stage, Writer, missing};
use crate::story_shoot_move::{created, has_left, is_at, moved};
use crate::world::{CORE, wait_for};
use support::json::{entry, list, text};
use support::options::is_long;
use support::shoot::history::Operation;
use support::shoot::object::technical_id;

const DRUID: &str = "druid.gardener.cloud";

fn stage(a: &'static str, b: &'static str) -> Stage {
    Stage::start_with(a, b, |config| config["edge"]["etcd"] = json!({"mode": "Druid"}))
}

fn etcd(side: &Side) -> Option<Value> {
    side.seed().get(DRUID, "etcds", &technical_id(NAME), "etcd-main")
}

/// The EtcdCopyBackupsTasks that a seed has ever had.
fn copies(side: &Side) -> Vec<String> {
    let state = side.seed().store().read();
    let tasks = state.since(state.compacted).filter(|change| change.id.is_of(DRUID, "etcdcopybackupstasks"));
    let mut names: Vec<String> = tasks.map(|change| change.id.name.clone()).collect();
    names.dedup();
    names
}

#[test]
fn a_shoot_of_a_druid_moves_and_comes_back() {
    if !is_long() {
        return;
    }
    let stage = stage("druid-there", "druid-back");
    let before = created(&stage);
    let (a, b) = (&stage.a, &stage.b);
    let store = etcd(a).unwrap()["spec"]["backup"]["store"].clone();
    let prefix = format!("{}/etcd-main", stage.entry_name());
    assert_eq!(
        (text(&store, "/container"), text(&store, "/prefix"), text(&store, "/secretRef/name")),
        (a.bucket().as_str(), prefix.as_str(), "etcd-backup")
    );
    let writer = Writer::start(stage.owner());
    wait_for("some writes", || (writer.count() > 20).then_some(()));
    for (from, to) in [(a, b), (b, a)] {
        moved(&stage, from, to);
        let count = writer.count();
        wait_for("writes to the new place", || (writer.count() > count + 20).then_some(()));
        is_at(&stage, to, &before);
        has_left(&stage, from);
        assert!(etcd(from).is_none() && etcd(to).is_some());
        assert_eq!(copies(to), [NAME]);
    }
    let written = writer.end();
    assert_eq!(missing(a, &written), [""; 0]);
    stage.end();
}

/// The copy of a druid succeeds, too, if there is nothing to copy.
#[test]
fn no_server_starts_on_an_etcd_that_begins_empty() {
    if !is_long() {
        return;
    }
    let stage = stage("druid-full", "druid-empty");
    created(&stage);
    let (a, b) = (&stage.a, &stage.b);
    b.agent.stop();
    stage.bind(b);
    stage.garden().wait_for("the end of the migration", |_| {
        let operation = Operation::of(&stage.shoot())?;
        (operation.line() == "Migrate Succeeded 100").then_some(())
    });
    stage.etcds.buckets.remove(&a.bucket(), &stage.entry_name());
    b.agent.launch();
    let error = stage.garden().wait_for("an etcd that has begun empty", |_| {
        a.world.skip(Duration::from_secs(30));
        let shoot = stage.shoot();
        let mut all = list(&shoot, "/status/lastErrors").iter().map(|error| text(error, "/description"));
        all.find(|error| error.contains("has begun empty")).map(str::to_owned)
    });
    assert!(error.contains("edge.gardenlet/accept-data-loss=true"), "{error}");
    let server = b.seed().get("apps", "deployments", &technical_id(NAME), "kube-apiserver");
    assert_eq!(server, None);
    assert_eq!(stage.etcds.ledger.problems(), [""; 0]);

    let accept = json!({"metadata": {"annotations": {"edge.gardenlet/accept-data-loss": "true"}}});
    stage.garden().merge(CORE, "shoots", PLACE, &accept);
    let restored = stage.garden().wait_for("the end of the restoration", |_| {
        a.world.skip(Duration::from_secs(30));
        let shoot = stage.shoot();
        // A reconciliation may follow at once.
        let lines = ["Restore Succeeded 100", "Reconcile Succeeded 100"];
        lines.contains(&Operation::of(&shoot)?.line().as_str()).then_some(shoot)
    });
    assert_eq!(entry(&restored, "/status", "seedName"), Some(b.name()));
}
