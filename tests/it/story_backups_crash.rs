//! The agent is killed after each of its writes for backups, while a bucket and entries are created, changed, moved and
//! deleted. It starts again, and the result is the same.

use gardenlet::api::gardener::OPERATION;
use serde_json::{Value, json};

use crate::faultpoints::{Fault, FaultPoints, Outcome, Point, change_nothing, created};
use crate::left::Words;
use crate::player::Manners;
use crate::story_backups::{Lab, PROJECT, credentials, entry_name, finalizers, is};
use crate::world::CORE;
use support::TestCluster;
use support::api::store::Id;
use support::encoding::base64;
use support::http::faults::Seen;

/// Whether a Secret of this name belongs to backups.
fn is_secret(name: &str) -> bool {
    ["bucket-", "entry-", "generated-", "backup"].iter().any(|prefix| name.starts_with(prefix))
}

/// Whether a write is for backups.
fn concerns(seen: &Seen) -> bool {
    let (resource, name) = (seen.info.resource.as_str(), seen.info.name.as_str());
    resource.starts_with("backup") || resource == "secrets" && (is_secret(name) || is_secret(created(seen)))
}

/// The whole story, with a kill after one write or without a kill.
fn run(at: Option<&Point>) -> Outcome {
    let mut points = None;
    let lab = Lab::prepare_and(
        "killed",
        &[credentials("first")],
        // Long enough that a busy machine does not lose it.
        |config| config["leaderElection"] = json!({"leaderElect": false}),
        |world, agent| points = Some(FaultPoints::of(world, agent, at, concerns)),
    );
    let points = points.unwrap();
    let wait = |what: &str, condition: &dyn Fn() -> Option<()>| {
        lab.wait_for(what, || {
            points.restart_if_due();
            condition()
        });
    };
    let entry_is =
        |n: usize, state: &str| lab.entry(&entry_name(n)).filter(|entry| is(entry, state)).map(drop);
    let asks = |operation: &str| json!({"metadata": {"annotations": {OPERATION: operation}}});
    let made = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"namespace": "garden", "name": "made"},
        "data": {"made": base64(b"by the extension")}});
    lab.world.seed.apply(&[made]);
    let status = json!({"generatedSecretRef": {"namespace": "garden", "name": "made"}, "providerStatus": {"id": "b-1"}});
    lab.player.behave("backupbuckets", Manners { status, ..Manners::default() });
    wait("the bucket", &|| lab.bucket().filter(|bucket| is(bucket, "Succeeded")).map(drop));
    for n in [1, 2] {
        lab.apply_entry(&entry_name(n), &json!({}));
    }
    wait("the entries", &|| entry_is(1, "Succeeded").and(entry_is(2, "Succeeded")));

    // Other credentials.
    let second = json!({"data": {"key": base64(b"second")}});
    lab.world.garden.merge("", "secrets", ("garden", "backup"), &second);
    lab.world.garden.merge(CORE, "backupbuckets", ("", &lab.bucket), &asks("reconcile"));
    wait("the new credentials", &|| {
        let copy = lab.secret(&format!("bucket-{}", lab.bucket))?;
        let is_new = copy["data"]["key"] == base64(b"second").as_str();
        lab.bucket().filter(|bucket| is_new && is(bucket, "Succeeded")).map(drop)
    });

    // One entry moves to another seed and back, the other one is deleted.
    let place = (PROJECT, entry_name(1));
    let place = (place.0, place.1.as_str());
    lab.world.garden.merge(CORE, "backupentries", place, &json!({"spec": {"seedName": "elsewhere"}}));
    wait("the entry to be let go of", &|| {
        lab.entry(place.1).filter(|entry| entry["status"]["seedName"].is_null()).map(drop)
    });
    let state = json!({"apiVersion": "core.gardener.cloud/v1beta1", "kind": "ShootState",
        "metadata": {"namespace": PROJECT, "name": "s1"},
        "spec": {"extensions": [{"kind": "BackupEntry", "name": place.1, "state": {"folder": "f"}}]}});
    lab.world.garden.apply(&[state]);
    let mut back = asks("restore");
    back["spec"] = json!({"seedName": "killed"});
    lab.world.garden.merge(CORE, "backupentries", place, &back);
    wait("the entry to be restored", &|| {
        let entry = lab.entry(place.1).filter(|entry| is(entry, "Succeeded"))?;
        entry["metadata"]["annotations"][OPERATION].is_null().then_some(())
    });
    let object = lab.object("backupentries", place.1).unwrap();
    assert_eq!(object["status"]["state"], json!({"folder": "f"}));
    lab.world.garden.delete(CORE, "backupentries", PROJECT, &entry_name(2));
    wait("the end of an entry", &|| lab.entry(&entry_name(2)).is_none().then_some(()));
    let mut objects = left(&lab, "in the middle");

    lab.world.garden.delete(CORE, "backupentries", PROJECT, place.1);
    wait("the end of the other entry", &|| lab.entry(place.1).is_none().then_some(()));
    lab.without_shoot();
    lab.world.garden.delete(CORE, "seeds", "", "killed");
    wait("the end of the Seed", &|| lab.world.garden.seed("killed").is_none().then_some(()));
    let held = lab.world.garden.get("", "secrets", "garden", "backup").unwrap();
    assert_eq!(finalizers(&held), Vec::<&str>::new(), "the credentials have no finalizer");
    objects.extend(left(&lab, "in the end"));
    points.restart_if_due();
    lab.end();
    Outcome { objects, points, problems: Vec::new() }
}

/// The objects for backups in garden and seed.
fn left(lab: &Lab, when: &str) -> Vec<(String, Value)> {
    let words = Words::new(&[]);
    let is_ours = |id: &Id| {
        id.plural.starts_with("backup")
            || id.plural == "secrets" && id.namespace == "garden" && is_secret(&id.name)
    };
    let of = |cluster: &TestCluster| words.left_in(cluster, is_ours);
    let mut all = [of(&lab.world.garden), of(&lab.world.seed)].concat();
    for (key, object) in &mut all {
        *key = format!("{when}: {key}");
        // A repeated request is executed again and changes the generation.
        if object["metadata"]["generation"] == object["status"]["observedGeneration"] {
            object["metadata"]["generation"] = json!("observed");
            object["status"]["observedGeneration"] = json!("present");
        }
        let is_reconciled = |kind: &Value| kind == "Create" || kind == "Reconcile";
        if is_reconciled(&object["status"]["lastOperation"]["type"]) {
            object["status"]["lastOperation"]["type"] = json!("Reconcile");
        }
    }
    all
}

#[test]
fn a_kill_changes_nothing_for_backups() {
    change_nothing("kills after writes for backups", &[(Fault::KillAfter, 4, 58)], &run(None), &run);
}
