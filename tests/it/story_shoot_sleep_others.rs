//! Other participants in the hibernation of a Shoot: extensions that hibernate while its API server answers or after
//! its end, and the DNS records of a server that is not reachable. The test plays the extensions.

use serde_json::{Value, json};

use crate::story_seed_objects::answer_in;
use crate::story_shoot_others::{reconcile_at, register, wait_for_task, with_names};
use crate::story_shoot_sleep::{NAME, ask, pods, until};
use crate::world::{CORE, Options, World};
use support::json::{entry, text};
use support::shoot::history::wait_until_created;
use support::shoot::object::{PROJECT_NAMESPACE, ShootObject, technical_id};

const GROUP: &str = "extensions.gardener.cloud";
const EXTENSIONS: &str = "extensions";
const RECORDS: &str = "dnsrecords";
const PLACE: (&str, &str) = (PROJECT_NAMESPACE, NAME);
const DONE: &str = "Reconcile Succeeded 100";

fn answer(world: &World, plural: &'static str, names: &[&str]) {
    for name in names {
        answer_in(world, plural, (&technical_id(NAME), name), None);
    }
}

/// Whether an extension has this request.
fn is_asked(world: &World, name: &str) -> bool {
    let object = world.seed.get(GROUP, EXTENSIONS, &technical_id(NAME), name).unwrap();
    entry(&object, "/metadata/annotations", "gardener.cloud/operation").is_some()
}

fn tasks(world: &World) -> String {
    let shoot = world.garden.get(CORE, "shoots", PLACE.0, PLACE.1).unwrap();
    entry(&shoot, "/metadata/annotations", "shoot.gardener.cloud/tasks").unwrap_or_default().to_owned()
}

/// A record is deleted, and its extension removes the finalizer.
fn release(world: &World, name: &str) {
    let key = (technical_id(NAME), name);
    let going = world.seed.wait_for(&format!("the deletion of {name}"), |seed| {
        let record = seed.get(GROUP, RECORDS, &key.0, key.1)?;
        record["metadata"]["deletionTimestamp"].is_string().then_some(record)
    });
    assert_eq!(entry(&going, "/metadata/annotations", "confirmation.gardener.cloud/deletion"), Some("true"));
    assert_eq!(world.garden.get(CORE, "shoots", PLACE.0, PLACE.1).unwrap()["status"]["hibernated"], false);
    world.seed.merge(GROUP, RECORDS, (&key.0, key.1), &json!({"metadata": {"finalizers": null}}));
}

#[test]
fn extensions_hibernate_in_reverse_order_and_records_are_deleted() {
    let world = World::start(&Options::new("shoot-sleep-named"));
    let site = world.site();
    register(&world, "early", &{
        let mut early = reconcile_at("BeforeKubeAPIServer");
        early["autoEnable"] = json!(["shoot"]);
        early
    });
    register(&world, "older", &json!({"globallyEnabled": true}));
    let agent = world.agent_of(&site, &with_names(&world));
    agent.launch();
    world.wait_until_ready();
    world.garden.apply(&[ShootObject::workerless(NAME).build()]);
    answer(&world, EXTENSIONS, &["early"]);
    answer(&world, RECORDS, &["s1-external", "s1-internal"]);
    answer(&world, EXTENSIONS, &["older"]);
    wait_until_created(&world.garden, PLACE);

    ask(&world, true);
    wait_for_task(
        &world,
        "Waiting until extension resources hibernated before kube-apiserver hibernation are ready",
    );
    // Extensions that need the API server still have it, and the Cluster announces the hibernation.
    assert_eq!(pods(&world).len(), 4);
    assert_eq!(["older", "early"].map(|name| is_asked(&world, name)), [true, false]);
    let cluster = world.seed.get(GROUP, "clusters", "", &technical_id(NAME)).unwrap();
    assert_eq!(cluster["spec"]["shoot"]["spec"]["hibernation"]["enabled"], true);
    answer(&world, EXTENSIONS, &["older"]);
    wait_for_task(
        &world,
        "Waiting until extension resources hibernated after kube-apiserver hibernation are ready",
    );
    assert_eq!(pods(&world), [""; 0]);
    assert!(is_asked(&world, "early"));
    answer(&world, EXTENSIONS, &["early"]);
    for name in ["s1-internal", "s1-external"] {
        release(&world, name);
    }
    let asleep = until(&world, DONE);
    assert_eq!(
        (&asleep["status"]["hibernated"], &asleep["status"]["lastErrors"]),
        (&json!(true), &Value::Null)
    );
    assert_eq!(world.seed.store().names(GROUP, RECORDS, &technical_id(NAME)), [""; 0]);

    // The garden requests the records; they exist before clients use the Shoot.
    ask(&world, false);
    answer(&world, EXTENSIONS, &["early"]);
    answer(&world, RECORDS, &["s1-external", "s1-internal"]);
    answer(&world, EXTENSIONS, &["older"]);
    let awake = until(&world, DONE);
    assert_eq!(awake["status"]["hibernated"], false);
    assert!(!tasks(&world).contains("deployDNSRecordInternal"), "{}", tasks(&world));
    let record = world.seed.get(GROUP, RECORDS, &technical_id(NAME), "s1-internal").unwrap();
    assert_eq!(text(&record, "/spec/name"), "api.s1.p.internal.example.org");
    assert_eq!(site.complaints(), Vec::<String>::new());
    agent.stop();
}
