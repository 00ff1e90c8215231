//! Snapshots of a Shoot's etcd: their CronJob is created, suspended during hibernation, and deleted; conditions report
//! their results.

use serde_json::{Value, json};

use crate::story_shoot_care::{self, NAME, PLACE, wait_for_entry, wait_until_well};
use crate::story_shoot_sleep::{ask, until};
use crate::world::{CORE, Options, World, wait_for};
use support::encoding::rfc3339;
use support::json::text;
use support::shoot::history::wait_for_success;
use support::shoot::object::{ShootObject, technical_id};

const JOB: &str = "etcd-main-snapshot";
const IMAGE: &str = "registry.example.org/gardenlet:1";
const DONE: &str = "Reconcile Succeeded 100";

fn job(world: &World) -> Option<Value> {
    world.seed.get("batch", "cronjobs", &technical_id(NAME), JOB)
}

fn etcd(world: &World) -> Value {
    world.seed.get("apps", "statefulsets", &technical_id(NAME), "etcd-main").unwrap()
}

fn reconcile(world: &World) {
    let annotations = json!({"gardener.cloud/operation": "reconcile"});
    world.garden.merge(CORE, "shoots", PLACE, &json!({"metadata": {"annotations": annotations}}));
}

/// A pod of the CronJob that has ended.
fn end(world: &World, name: &str, code: i64, told: &Value) {
    let namespace = technical_id(NAME);
    let template = &job(world).unwrap()["spec"]["jobTemplate"]["spec"]["template"];
    let metadata = json!({"name": name, "namespace": namespace, "labels": template["metadata"]["labels"]});
    world.seed.create("v1", "pods", &json!({"metadata": metadata, "spec": template["spec"]}));
    let ended =
        json!({"exitCode": code, "finishedAt": rfc3339(world.clock.now()), "message": told.to_string()});
    let container = json!({"name": "snapshot", "image": IMAGE, "imageID": "", "ready": false, "restartCount": 0,
        "state": {"terminated": ended}});
    let phase = if code == 0 { "Succeeded" } else { "Failed" };
    let status = json!({"status": {"phase": phase, "containerStatuses": [container]}});
    world.seed.merge_status("", "pods", (&namespace, name), &status);
}

#[test]
fn snapshots_are_taken_reported_and_disabled() {
    let world = World::start(&Options::new("shoot-snapshots"));
    let site = world.site();
    let off = story_shoot_care::config(&world);
    let mut config = off.clone();
    config["edge"]["etcd"]["snapshots"] = json!({"store": "Directory", "directory": "/var/lib/snapshots"});
    let agent = world.agent_of(&site, &config);
    agent.launch();
    world.wait_until_ready();

    // The image of the agent is not configured.
    world.garden.apply(&[ShootObject::workerless(NAME).build()]);
    let shoot = || world.garden.get(CORE, "shoots", PLACE.0, PLACE.1).unwrap();
    wait_for("an error with a remedy", || {
        let error = shoot()["status"]["lastErrors"][0]["description"].to_string();
        error.contains("edge.etcd.snapshots.image").then_some(())
    });
    config["edge"]["etcd"]["snapshots"]["image"] = json!(IMAGE);
    agent.reload(&config);
    reconcile(&world);
    wait_for_success(&world.garden, PLACE);
    wait_until_well(&world);
    let entry = format!("{}--{}", technical_id(NAME), text(&shoot(), "/status/uid"));
    let pod = etcd(&world)["spec"]["template"]["spec"].clone();
    assert_eq!(
        (&pod["initContainers"][0]["image"], &pod["initContainers"][1]),
        (&json!(IMAGE), &Value::Null)
    );
    assert!(pod["volumes"].to_string().contains(&format!("/var/lib/snapshots/{entry}")), "{pod}");
    let asked = job(&world).unwrap();
    assert_eq!((&asked["spec"]["suspend"], &asked["spec"]["timeZone"]), (&json!(false), &json!("Etc/UTC")));

    // One fails, the next one does not.
    let plane = |status: &str, reason: &str| {
        reconcile(&world);
        wait_for_entry(&world, "conditions", ("ControlPlaneHealthy", status, reason))
    };
    end(&world, "first", 1, &json!({"error": "no room in the directory"}));
    let told = plane("False", "EtcdUnhealthy");
    let words = "Etcd \"etcd-main\" is unhealthy: its last snapshot failed at ";
    assert!(text(&told, "/message").starts_with(words), "{told}");
    assert!(text(&told, "/message").ends_with("no room in the directory"), "{told}");
    let taken = json!({"snapshot": "a", "databaseBytes": 4096, "databaseBytesInUse": 1024, "time": "2026-01-05T08:00:00Z"});
    end(&world, "second", 0, &taken);
    plane("True", "ControlPlaneRunning");
    let lines = [
        "gardenlet_etcd_database_bytes 4096",
        "gardenlet_etcd_database_in_use_bytes 1024",
        "gardenlet_etcd_snapshot_timestamp_seconds 1767600000",
    ];
    wait_for("the metrics", || {
        let metrics = agent.get(2729, "/metrics").1;
        lines.iter().all(|line| metrics.contains(line)).then_some(())
    });

    // It is hibernated, and there is nothing to save.
    ask(&world, true);
    until(&world, DONE);
    assert_eq!(job(&world).unwrap()["spec"]["suspend"], true);
    ask(&world, false);
    until(&world, DONE);
    let awake = job(&world).unwrap();
    assert_eq!(
        (&awake["spec"]["suspend"], &awake["metadata"]["uid"]),
        (&json!(false), &asked["metadata"]["uid"])
    );
    assert!(!text(&awake, "/metadata/annotations/snapshots.gardenlet.gardener.cloud~1since").is_empty());

    // Snapshots are disabled: the data stays.
    let before = etcd(&world);
    agent.reload(&off);
    reconcile(&world);
    wait_for("the end of the CronJob", || job(&world).is_none().then_some(()));
    wait_for("an etcd that is as it was", || {
        let now = etcd(&world);
        let pod = &now["spec"]["template"]["spec"];
        let is_plain = pod["initContainers"].is_null() && pod["volumes"].as_array().unwrap().len() == 4;
        (is_plain && now["metadata"]["uid"] == before["metadata"]["uid"]).then_some(())
    });
    wait_until_well(&world);
}
