//! The stand for Shoots that move between seeds: what the garden says about a move, and data that go from one site to another
//! through buckets.

use gardenlet::api::core::CONFIG_MAP;
use gardenlet::api::gardener::{BACKUP_ENTRY, SHOOT, SHOOT_STATE};
use gardenlet::api::meta::Key;
use gardenlet::kube::{Client, DeleteParams, Patch};
use serde_json::{Value, json};
use std::time::Duration;

use crate::garden_shoots::{add_bound, agent, garden, generation, patch, refusal, seed, shoot};
use crate::shoot_stand::{Rig, SHOOT as PLANE};
use crate::world::{CORE, condition_texts};
use support::backups::credentials;
use support::controllers::Share;
use support::encoding::base64;
use support::garden::Garden;
use support::garden::manager::Share as ManagerShare;
use support::garden::prepare;
use support::json::{list, text};
use support::shoot::buckets::{Fault, RAISE};
use support::shoot::etcd::Etcds;
use support::shoot::jobs::{COPY, FINAL, SECRET, SOURCE_SECRET};
use support::shoot::said;
use support::shoot::{Options as SiteOptions, Site};

const PLACE: (&str, &str) = ("garden-p", "s1");
const PREFIX: &str = "entry/etcd-main";
const BUCKETS: [&str; 2] = ["bucket-a", "bucket-b"];

/// Two Seeds between which Shoots move, and `s1` on the first one.
fn two_seeds() -> Garden {
    let garden = garden();
    garden.set_manager_share(ManagerShare { lifecycle: false, scheduler: None, ..ManagerShare::default() });
    garden.apply(&[prepare::promised_backups()]);
    for name in ["edge-1", "edge-2"] {
        let backup = |spec: &mut Value| {
            let credentials = spec["dns"]["internal"]["credentialsRef"].clone();
            spec["backup"] = json!({"provider": "local", "credentialsRef": credentials});
        };
        garden.apply(&[seed(name, backup)]);
        ready(&garden, name, "v1");
    }
    add_bound(&garden, PLACE.1);
    let begun = json!({"seedName": "edge-1", "lastOperation": {"type": "Create", "state": "Succeeded", "progress": 100}});
    garden.merge_status(CORE, "shoots", PLACE, &json!({ "status": begun }));
    garden
}

fn ready(garden: &Garden, name: &str, version: &str) {
    let generation = garden.seed(name).unwrap()["metadata"]["generation"].clone();
    let conditions: Vec<Value> = ["GardenletReady", "SeedSystemComponentsHealthy"]
        .map(|kind| json!({"type": kind, "status": "True"}))
        .into();
    let status = json!({"gardener": {"id": "i", "name": "n", "version": version}, "observedGeneration": generation,
        "conditions": conditions, "lastOperation": {"type": "Reconcile", "state": "Succeeded", "progress": 100}});
    garden.merge_status(CORE, "seeds", ("", name), &json!({ "status": status }));
}

fn bind(client: &Client, seed: &str) {
    patch(client, PLACE.1, "binding", &json!({"spec": {"seedName": seed}})).unwrap();
}

fn constraint(garden: &Garden) -> Option<(String, String, String)> {
    let shoot = shoot(garden, PLACE.1);
    let mut all = list(&shoot, "/status/constraints").iter();
    all.find(|constraint| constraint["type"] == "ReadyForMigration").map(condition_texts)
}

/// Lets the agent of a seed report an operation.
fn operates(agent: &Client, kind: &str, state: &str) -> Value {
    let last = json!({"status": {"lastOperation": {"type": kind, "state": state}}});
    patch(agent, PLACE.1, "status", &last).unwrap()
}

/// The same at the end of the migration, with the Seed that is responsible from now on.
fn leaves(agent: &Client) -> Value {
    let last = json!({"type": "Migrate", "state": "Succeeded"});
    patch(agent, PLACE.1, "status", &json!({"status": {"lastOperation": last, "seedName": "edge-2"}}))
        .unwrap()
}

fn is_guarded(garden: &Garden) -> bool {
    let state = garden.get(CORE, "shootstates", PLACE.0, PLACE.1).unwrap();
    list(&state, "/metadata/finalizers").iter().any(|finalizer| finalizer == "core.gardener.cloud/shootstate")
}

#[test]
fn a_move_is_constrained_and_freezes_the_shoot() {
    let garden = two_seeds();
    let (client, one, two) = (garden.client(), agent(&garden, "edge-1"), agent(&garden, "edge-2"));
    ready(&garden, "edge-2", "v2");
    let before = generation(&shoot(&garden, "s1"));
    bind(&client, "edge-2");
    let bound = shoot(&garden, "s1");
    assert_eq!(generation(&bound), before + 1);
    for name in ["edge-1", "edge-2"] {
        assert_eq!(bound["metadata"]["labels"][format!("name.seed.gardener.cloud/{name}")], "true");
    }
    garden.wait_for("the other version", |garden| {
        constraint(garden).filter(|found| found.2.contains("(v2/v1)"))
    });
    ready(&garden, "edge-2", "v1");
    garden.wait_for("the ready Seed", |garden| {
        constraint(garden).filter(|found| found.1 == "DestinationSeedReady")
    });

    let purpose = json!({"spec": {"purpose": "production"}});
    let refused = |words: &str| {
        let (code, message) = refusal(patch(&client, "s1", "", &purpose));
        assert!(code == 403 && message.contains(words), "{message}");
    };
    refused("because shoot has been rescheduled to a new seed");
    // Both agents may work on it.
    let progress = json!({"status": {"lastOperation": {"progress": 10}}});
    patch(&two, "s1", "status", &progress).unwrap();
    let migrating = operates(&one, "Migrate", "Processing");
    assert_eq!(generation(&migrating), before + 1);
    refused("cannot change shoot spec during Migrate operation that is in state Processing");
    patch(
        &client,
        "s1",
        "",
        &json!({"metadata": {"annotations": {"confirmation.gardener.cloud/deletion": "true"}}}),
    )
    .unwrap();
    let delete = || client.delete(&SHOOT, &Key::new(PLACE.0, PLACE.1), &DeleteParams::default());
    let (code, message) = refusal(delete());
    assert!(code == 403 && message.contains("cannot mark shoot for deletion during Migrate"), "{message}");
    // Another binding is not refused.
    bind(&client, "edge-1");
    bind(&client, "edge-2");
    garden.wait_for("the constraint, until the Shoot has left", constraint);
    assert_eq!(generation(&leaves(&one)), before + 4);
    garden.wait_for("no constraint", |garden| constraint(garden).is_none().then_some(()));
    operates(&two, "Restore", "Error");
    refused("cannot change shoot spec during Restore operation that is in state Error");
    operates(&two, "Restore", "Succeeded");
    patch(&client, "s1", "", &purpose).unwrap();
    delete().unwrap();
}

#[test]
fn what_a_move_needs_stays_and_belongs_to_both_seeds() {
    let garden = two_seeds();
    let (client, one, two) = (garden.client(), agent(&garden, "edge-1"), agent(&garden, "edge-2"));
    let state = json!({"apiVersion": "core.gardener.cloud/v1beta1", "kind": "ShootState", "metadata": {"name": "s1"}});
    one.create::<Value>(&SHOOT_STATE, PLACE.0, &state).unwrap();
    let read = |agent: &Client| agent.get::<Value>(&SHOOT_STATE, &Key::new(PLACE.0, PLACE.1));
    assert_eq!(refusal(read(&two)).0, 403);
    bind(&client, "edge-2");
    for agent in [&one, &two] {
        read(agent).unwrap();
        agent.get::<Value>(&SHOOT, &Key::new(PLACE.0, PLACE.1)).unwrap();
    }
    assert!(!is_guarded(&garden));
    operates(&one, "Migrate", "Processing");
    garden.wait_for("the finalizer", |garden| is_guarded(garden).then_some(()));

    // The entry of the source may be made while the Shoot is restored, and as long as the original is as it was.
    let uid = shoot(&garden, "s1")["metadata"]["uid"].clone();
    let bucket = |name: &str, seed: &str| {
        json!({"apiVersion": "core.gardener.cloud/v1beta1", "kind": "BackupBucket", "metadata": {"name": name},
            "spec": {"provider": {"type": "local", "region": "north"}, "seedName": seed}})
    };
    garden.apply(&[bucket(BUCKETS[0], "edge-1"), bucket(BUCKETS[1], "edge-2")]);
    let entry = |name: &str, seed: &str| {
        let mut entry = prepare::backup_entry(name, seed, BUCKETS[0]);
        entry["metadata"]["ownerReferences"] =
            json!([{"apiVersion": "core.gardener.cloud/v1beta1", "kind": "Shoot", "name": "s1", "uid": uid}]);
        entry
    };
    garden.apply(&[entry("e", "edge-1")]);
    one.patch::<Value>(
        &BACKUP_ENTRY,
        &Key::new(PLACE.0, "e"),
        &Patch::Merge(json!({"spec": {"seedName": "edge-2"}})),
    )
    .unwrap();
    let source = || two.create::<Value>(&BACKUP_ENTRY, PLACE.0, &entry("source-e", "edge-2"));
    let (code, message) = refusal(source());
    assert!(code == 403 && message.contains("only allowed during shoot Restore operation"), "{message}");
    leaves(&one);
    operates(&two, "Restore", "Processing");
    let moved = Patch::Merge(json!({"spec": {"bucketName": BUCKETS[1]}}));
    let key = Key::new(PLACE.0, "e");
    two.patch::<Value>(&BACKUP_ENTRY, &key, &moved).unwrap();
    let (code, message) = refusal(source());
    assert!(code == 403 && message.contains("must equal specification of original"), "{message}");
    two.patch::<Value>(&BACKUP_ENTRY, &key, &Patch::Merge(json!({"spec": {"bucketName": BUCKETS[0]}})))
        .unwrap();
    source().unwrap();
    assert!(is_guarded(&garden));
    operates(&two, "Restore", "Succeeded");
    garden.wait_for("the end of the finalizer", |garden| (!is_guarded(garden)).then_some(()));
}

/// A site whose etcds share buckets and ledger with others.
fn rig(name: &str, etcds: &Etcds, lingers: Duration) -> Rig {
    let options = SiteOptions { etcds: Some(etcds.at(name)), lingers, ..SiteOptions::default() };
    let rig = Rig::with(name, |seed| Site::in_process_with(seed, Share::default(), options));
    let namespace = json!({"metadata": {"annotations": {"shoot.gardener.cloud/uid": "uid-1"}}});
    rig.seed.merge("", "namespaces", ("", PLANE), &namespace);
    rig
}

fn add_bucket(rig: &Rig, secret: &str, bucket: &str) {
    let mut data = credentials();
    data["bucketName"] = json!(base64(bucket.as_bytes()));
    rig.seed.create(
        "v1",
        "secrets",
        &json!({"metadata": {"name": secret, "namespace": PLANE}, "data": data}),
    );
}

/// A pod in which the agent's program runs, with the Secrets of buckets.
fn program(arguments: &[&str], secrets: &[&str]) -> Value {
    let folder = |secret: &&str| json!({"name": secret, "mountPath": format!("/var/etcd/{secret}")});
    let volume = |secret: &&str| json!({"name": secret, "secret": {"secretName": secret, "optional": true}});
    let container = json!({"name": "etcd", "image": "registry.example.org/gardenlet:1", "args": arguments,
        "volumeMounts": secrets.iter().map(folder).collect::<Vec<_>>()});
    json!({"containers": [container], "volumes": secrets.iter().map(volume).collect::<Vec<_>>()})
}

fn add_etcd(rig: &Rig) {
    let prefix = format!("--prefix={PREFIX}");
    let mut pod = program(&["etcd", "start", "--s3=/var/etcd/etcd-backup", &prefix], &[SECRET]);
    pod["containers"][0]["envFrom"] =
        json!([{"configMapRef": {"name": "etcd-main-restore", "optional": true}}]);
    rig.apply_etcd_of(&pod);
}

/// Starts a Job, and waits for its end: the kind of its condition, and the message of its last pod.
fn ended(rig: &Rig, name: &str, arguments: &[&str], secrets: &[&str]) -> (String, Value) {
    let mut pod = program(arguments, secrets);
    pod["restartPolicy"] = json!("Never");
    let spec = json!({"backoffLimit": 1, "template": {"metadata": {"labels": {"app": name}}, "spec": pod}});
    rig.seed.create(
        "batch/v1",
        "jobs",
        &json!({"metadata": {"name": name, "namespace": PLANE}, "spec": spec}),
    );
    let job = rig.seed.wait_for(&format!("the end of {name}"), |seed| {
        let job = seed.get("batch", "jobs", PLANE, name)?;
        job["status"]["conditions"].is_array().then_some(job)
    });
    let kind = text(&job, "/status/conditions/0/type").to_owned();
    let pods = rig.seed.store().list("", "pods", PLANE);
    let is_its = |pod: &&Value| pod["metadata"]["ownerReferences"][0]["uid"] == job["metadata"]["uid"];
    let last = pods.iter().rfind(is_its).unwrap();
    let message = text(last, "/status/containerStatuses/0/state/terminated/message");
    rig.seed.delete("batch", "jobs", PLANE, name);
    (kind, serde_json::from_str(message).unwrap())
}

fn take(rig: &Rig) -> (String, Value) {
    let prefix = format!("--prefix={PREFIX}");
    ended(rig, FINAL, &["etcd", "snapshot", "--final", "--s3=/var/etcd/etcd-backup", &prefix], &[SECRET])
}

fn copy(rig: &Rig, more: &[&str]) -> (String, Value) {
    let prefix = format!("--prefix={PREFIX}");
    let arguments: Vec<&str> =
        ["etcd", "copy", "--wait=0", &prefix].into_iter().chain(more.iter().copied()).collect();
    ended(rig, COPY, &arguments, &[SOURCE_SECRET, SECRET])
}

fn note(client: &Client, name: &str) -> Value {
    client.create(&CONFIG_MAP, "default", &json!({"metadata": {"name": name}})).unwrap()
}

/// Ends the API server, whose pod may work for a while.
fn end_server(rig: &Rig) {
    rig.seed.delete("apps", "deployments", PLANE, "kube-apiserver");
}

fn wait_for_no_server(rig: &Rig) {
    rig.seed.wait_for("the end of the API server", |_| {
        (rig.pod("kube-apiserver").is_null() && rig.site.server(PLANE)?.pod().is_none()).then_some(())
    });
}

fn begin(rig: &Rig) -> Client {
    add_etcd(rig);
    rig.apply_server("v1.34.3");
    rig.wait_until_available();
    rig.admin()
}

#[test]
fn data_move_from_one_site_to_another() {
    let etcds = Etcds::default();
    let (one, two) = (rig("move-one", &etcds, Duration::ZERO), rig("move-two", &etcds, Duration::ZERO));
    add_bucket(&one, SECRET, BUCKETS[0]);
    let kept = note(&begin(&one), "kept");
    assert_eq!(etcds.ledger.serving("uid-1"), [format!("move-one/{PLANE}")]);
    end_server(&one);
    wait_for_no_server(&one);
    let (kind, told) = take(&one);
    assert_eq!(kind, "Complete", "{told}");
    let stored = etcds.buckets.all(BUCKETS[0], PREFIX);
    assert!(stored.len() == 1 && told["snapshot"] == stored[0].file(), "{stored:?}");
    assert!(stored[0].is_final && stored[0].file().ends_with(".gz.final"));
    // It is not taken twice.
    assert_eq!(take(&one).1["snapshot"], told["snapshot"]);
    assert_eq!(etcds.buckets.all(BUCKETS[0], PREFIX).len(), 1);

    add_bucket(&two, SOURCE_SECRET, BUCKETS[0]);
    add_bucket(&two, SECRET, BUCKETS[1]);
    let (kind, told) = copy(&two, &[]);
    assert_eq!(kind, "Complete", "{told}");
    let copied = etcds.buckets.all(BUCKETS[1], PREFIX);
    assert!(copied.len() == 1 && !copied[0].is_final, "{copied:?}");
    let client = begin(&two);
    let found: Value = client.get(&CONFIG_MAP, &Key::new("default", "kept")).unwrap();
    assert_eq!(found["metadata"], kept["metadata"]);
    let new = note(&client, "new");
    assert!(text(&new, "/metadata/resourceVersion").parse::<u64>().unwrap() > RAISE);
    assert_eq!(etcds.ledger.problems(), [""; 0]);

    // Data on a volume need no bucket; a new volume begins with the newest snapshot.
    etcds.buckets.set_fault(BUCKETS[1], Fault::Away, true);
    two.seed.delete("", "pods", PLANE, "etcd-main-0");
    two.seed
        .wait_for("the same data", |_| client.get::<Value>(&CONFIG_MAP, &Key::new("default", "new")).ok());
    etcds.buckets.set_fault(BUCKETS[1], Fault::Away, false);
    two.seed.delete("", "namespaces", "", PLANE);
    two.seed.wait_for("the end of the namespace", |_| two.site.server(PLANE).is_none().then_some(()));
    // The server leaves the site before it has ended.
    two.seed
        .wait_for("nobody who serves the data", |_| etcds.ledger.serving("uid-1").is_empty().then_some(()));
    for rig in [one, two] {
        assert_eq!(rig.site.complaints(), Vec::<String>::new());
    }
}

#[test]
fn faults_of_buckets_are_reported() {
    let etcds = Etcds::default();
    let (one, two) = (rig("fault-one", &etcds, Duration::ZERO), rig("fault-two", &etcds, Duration::ZERO));
    add_bucket(&one, SECRET, BUCKETS[0]);
    begin(&one);
    end_server(&one);
    wait_for_no_server(&one);
    let failed = |(kind, told): (String, Value), words: &str| {
        assert!(kind == "Failed" && text(&told, "/error").contains(words), "{kind} {told}");
    };
    let buckets = &etcds.buckets;
    buckets.set_fault(BUCKETS[0], Fault::Away, true);
    failed(take(&one), said::UNREACHABLE);
    buckets.set_fault(BUCKETS[0], Fault::Away, false);
    buckets.set_fault(BUCKETS[0], Fault::Damages, true);
    failed(take(&one), said::SPOILED);
    buckets.set_fault(BUCKETS[0], Fault::Damages, false);
    buckets.remove(BUCKETS[0], "entry/");
    assert_eq!(take(&one).0, "Complete");

    add_bucket(&two, SECRET, BUCKETS[1]);
    failed(copy(&two, &[]), &format!("/var/etcd/{SOURCE_SECRET}/accessKeyID: no such file"));
    add_bucket(&two, SOURCE_SECRET, BUCKETS[0]);
    buckets.unmark(BUCKETS[0], PREFIX);
    let refused = copy(&two, &[]);
    assert_eq!(refused.1["acceptable"], true);
    failed(refused, said::NOT_FINAL);
    let (kind, told) = copy(&two, &["--accept-loss"]);
    assert!(kind == "Complete" && text(&told, "/lost").contains(said::NOT_FINAL), "{told}");
    buckets.damage(BUCKETS[0], PREFIX);
    failed(copy(&two, &[]), said::BROKEN);
    buckets.set_fault(BUCKETS[0], Fault::Away, true);
    failed(copy(&two, &["--accept-loss"]), said::UNREACHABLE);
    buckets.damage(BUCKETS[1], PREFIX);
    let never = json!({"metadata": {"name": "etcd-main-restore", "namespace": PLANE},
        "data": {"GARDENLET_ETCD_NEVER_EMPTY": "true"}});
    two.seed.create("v1", "configmaps", &never);
    add_etcd(&two);
    two.seed.wait_for("an etcd that does not start", |_| {
        let why = "/status/containerStatuses/0/state/waiting/message";
        text(&two.pod("etcd-main"), why).contains("is broken").then_some(())
    });
    // Without a snapshot it begins empty if it may, which the ledger does not miss.
    buckets.remove(BUCKETS[1], "entry/");
    two.seed.wait_for("an etcd that does not start empty", |_| {
        let why = "/status/containerStatuses/0/state/waiting/message";
        text(&two.pod("etcd-main"), why).contains(said::NEVER_EMPTY).then_some(())
    });
    two.seed.delete("", "configmaps", PLANE, "etcd-main-restore");
    two.apply_server("v1.34.3");
    two.wait_until_available();
    let problems = etcds.ledger.problems();
    assert!(problems.len() == 1 && problems[0].contains("begins empty"), "{problems:?}");
}

/// A snapshot that is taken while the API server still works is too early.
#[test]
fn an_api_server_that_ends_still_writes() {
    let etcds = Etcds::default();
    let long = Duration::from_secs(86_400);
    let (one, two) = (rig("late-one", &etcds, long), rig("late-two", &etcds, Duration::ZERO));
    add_bucket(&one, SECRET, BUCKETS[0]);
    let client = begin(&one);
    end_server(&one);
    one.seed.wait_for("the end of its pod to begin", |_| {
        one.pod("kube-apiserver")["metadata"]["deletionTimestamp"].is_string().then_some(())
    });
    assert_eq!(take(&one).0, "Complete");
    note(&client, "late");
    add_bucket(&two, SOURCE_SECRET, BUCKETS[0]);
    add_bucket(&two, SECRET, BUCKETS[1]);
    assert_eq!(copy(&two, &[]).0, "Complete");
    begin(&two);
    let problems = etcds.ledger.problems();
    let has = |words: &str| problems.iter().any(|problem| problem.contains(words));
    assert!(has("at the same time") && has("configmaps late"), "{problems:?}");
}
