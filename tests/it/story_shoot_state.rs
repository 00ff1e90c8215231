//! The ShootState in the garden: the keys of a Shoot and the states of its extensions, soon after each change, with the
//! smallest number of writes. The test plays the extension.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use gardenlet::base::clock::Timestamp;
use serde_json::{Value, json};

use crate::story_offline::pass;
use crate::world::{CORE, Options, World};
use support::cluster::TestCluster;
use support::encoding::{from_rfc3339, rfc3339};
use support::http::faults::{Action, Seen};
use support::http::record::Recorded;
use support::json::{entry, list, text};
use support::shoot::history::wait_until_created;
use support::shoot::object::{PROJECT_NAMESPACE, ShootObject, technical_id};

const GROUP: &str = "extensions.gardener.cloud";
const NAME: &str = "s1";
const PLACE: (&str, &str) = (PROJECT_NAMESPACE, NAME);
/// The time after which a change is in the garden.
const WITHIN: Duration = Duration::from_secs(60);
/// The Secrets of a Shoot without workers that cannot be created again, by the name of their configuration.
const KEPT: [&str; 7] = [
    "ca",
    "ca-client",
    "ca-etcd",
    "ca-front-proxy",
    "kube-apiserver-etcd-encryption-key",
    "kube-apiserver-static-token",
    "service-account-key",
];

fn config(world: &World) -> Value {
    let mut config = world.edge_config();
    config["edge"]["exposure"] = json!({"type": "NodePort", "address": "127.0.0.1"});
    // They are longer than the jumps of the clock.
    config["leaderElection"] =
        json!({"leaderElect": true, "leaseDuration": "60h", "renewDeadline": "50h", "retryPeriod": "2s"});
    config
}

fn state(world: &World) -> Option<Value> {
    world.garden.get(CORE, "shootstates", PLACE.0, PLACE.1)
}

fn written_at(state: &Value) -> Timestamp {
    from_rfc3339(entry(state, "/metadata/annotations", "gardener.cloud/timestamp").unwrap()).unwrap()
}

/// The number of writes.
fn writes(world: &World) -> usize {
    let state = world.garden.store().read();
    state.since(state.compacted).filter(|change| change.id.is_of(CORE, "shootstates")).count()
}

/// Waits for a ShootState that contains a change made at `since`, and prints how long that took.
fn wait_for_state(world: &World, what: &str, since: Timestamp, is_it: impl Fn(&Value) -> bool) -> Value {
    let found = world.garden.wait_for(what, |_| state(world).filter(|state| is_it(state)));
    let took = written_at(&found).since(since);
    world.measured(what, took, WITHIN);
    found
}

fn extension<'a>(state: &'a Value, name: &str) -> Option<&'a Value> {
    list(state, "/spec/extensions").iter().find(|entry| entry["kind"] == "Extension" && entry["name"] == name)
}

/// Writes the extension's status; returns the time of the change.
fn says(world: &World, name: &str, status: &Value) -> Timestamp {
    let now = world.clock.now();
    world.seed.merge_status(GROUP, "extensions", (&technical_id(NAME), name), &json!({ "status": status }));
    now
}

/// Of a class that no reconciliation of the Shoot handles, so that none deletes it.
fn make_extension(world: &World, name: &str) {
    let object = json!({"apiVersion": format!("{GROUP}/v1alpha1"), "kind": "Extension", "metadata": {"name": name, "namespace": technical_id(NAME)},
        "spec": {"type": name, "class": "seed"}});
    world.seed.create(&format!("{GROUP}/v1alpha1"), "extensions", &object);
}

fn has_number(state: &Value, number: i64) -> bool {
    extension(state, "lab").is_some_and(|entry| entry["state"] == json!({"number": number}))
}

/// The ShootState has each persisted Secret with the data of the seed, and no other Secret.
fn the_secrets_are_there(world: &World, state: &Value) {
    let all = world.seed.store().list("", "secrets", &technical_id(NAME));
    let kept: Vec<_> =
        all.iter().filter(|s| entry(s, "/metadata/labels", "persist") == Some("true")).collect();
    let entries = list(state, "/spec/gardener");
    assert_eq!(entries.len(), kept.len(), "{state}");
    for secret in &kept {
        let name = &secret["metadata"]["name"];
        let found = entries.iter().find(|entry| entry["name"] == *name).unwrap();
        let data = json!({"data": secret["data"], "immutable": true, "type": "Opaque"});
        let expected =
            json!({"name": name, "type": "secret", "labels": secret["metadata"]["labels"], "data": data});
        assert_eq!(found, &expected);
        assert_eq!(entry(found, "/labels", "managed-by"), Some("secrets-manager"));
    }
    let configs: Vec<&str> = entries.iter().filter_map(|e| entry(e, "/labels", "name")).collect();
    let missing: Vec<&&str> = KEPT.iter().filter(|name| !configs.contains(name)).collect();
    assert!(missing.is_empty(), "{missing:?} of {configs:?}");
}

/// A rotation creates Secrets and deletes others.
fn a_secret_comes_and_goes(world: &World, labels: &Value) {
    let id = technical_id(NAME);
    let secret = json!({"metadata": {"name": "extra-1", "namespace": id, "labels": labels},
        "data": {"key": "a2V5"}, "immutable": true, "type": "Opaque"});
    let is_there =
        |state: &Value| list(state, "/spec/gardener").iter().any(|entry| entry["name"] == "extra-1");
    let now = world.clock.now();
    world.seed.create("v1", "secrets", &secret);
    wait_for_state(world, "the new Secret", now, is_there);
    let now = world.clock.now();
    world.seed.delete("", "secrets", &id, "extra-1");
    wait_for_state(world, "the end of the Secret", now, |state| !is_there(state));
}

fn a_state_and_what_it_names(world: &World) {
    let id = technical_id(NAME);
    make_extension(world, "lab");
    let secret = json!({"metadata": {"name": "of-lab", "namespace": id}, "data": {"a": "Yg=="}});
    world.seed.create("v1", "secrets", &secret);
    let resources = json!([{"name": "own",
        "resourceRef": {"apiVersion": "v1", "kind": "Secret", "name": "of-lab"}}]);
    let now = says(world, "lab", &json!({"state": {"number": 0}, "resources": resources}));
    let state = wait_for_state(world, "the state", now, |state| has_number(state, 0));
    assert_eq!(extension(&state, "lab").unwrap()["resources"], resources);
    let kept = &list(&state, "/spec/resources")[0];
    let place = (&kept["apiVersion"], &kept["kind"], &kept["name"], &kept["data"]["data"]);
    assert_eq!(place, (&json!("v1"), &json!("Secret"), &json!("of-lab"), &json!({"a": "Yg=="})));
    says(world, "lab", &json!({"resources": null}));
    world
        .garden
        .wait_for("no resources", |_| list(&state_of(world), "/spec/resources").is_empty().then_some(()));
}

fn state_of(world: &World) -> Value {
    state(world).unwrap_or_default()
}

/// A hundred changes, one each second.
fn many_changes_are_few_writes(world: &World) {
    let (before, begun) = (writes(world), world.clock.mono());
    let mut now = world.clock.now();
    for number in 1..=100 {
        now = says(world, "lab", &json!({"state": {"number": number}}));
        world.time.advance(Duration::from_secs(1));
    }
    wait_for_state(world, "the last state", now, |state| has_number(state, 100));
    let written = writes(world) - before;
    let seconds = usize::try_from((world.clock.mono() - begun).as_secs()).unwrap();
    assert!((1..=2 + seconds / 10).contains(&written), "{written} writes in {seconds} s");
    // Changes of other fields cause no write.
    let before = writes(world);
    let when = rfc3339(world.clock.now());
    let condition = json!({"type": "Healthy", "status": "True", "reason": "r", "message": "m",
        "lastTransitionTime": when, "lastUpdateTime": when});
    says(world, "lab", &json!({"conditions": [condition]}));
    let now = says(world, "lab", &json!({"state": {"number": 101}}));
    wait_for_state(world, "another state", now, |state| has_number(state, 101));
    assert_eq!(writes(world) - before, 1);
}

fn is_report(event: &Value, name: &str) -> bool {
    let part = format!("the state of Extension {name}: ");
    event["reason"] == "ShootStateIncomplete" && text(event, "/note").contains(&part)
}

/// Gives an extension a state that is too large, and waits for an event about it. The garden refuses the first event, and the agent
/// writes another one ten minutes later.
fn a_large_state_is_reported(world: &World, name: &'static str) {
    let is_it = move |seen: &Seen| seen.body.as_ref().is_some_and(|body| is_report(body, name));
    let lost = world.garden.faults().when(is_it).once().answer(500);
    make_extension(world, name);
    says(world, name, &json!({"state": {"all": "x".repeat(1_400_000)}}));
    world.garden.wait_for("the event that is lost", |_| (lost.hits() > 0).then_some(()));
    let is_there = |garden: &TestCluster| {
        let events = garden.store().list("events.k8s.io", "events", PLACE.0);
        events.iter().any(|event| is_report(event, name)).then_some(())
    };
    // On a busy machine the agent may give up on another one.
    let is_told = (0..3).any(|_| {
        pass(world, Duration::from_secs(660), Duration::from_secs(120));
        world.garden.wait_within(Duration::from_secs(30), "an event", is_there).is_some()
    });
    assert!(is_told, "no event about {name}");
}

/// The agent asks only for kinds that a Shoot without workers can have.
fn only_possible_kinds_are_listed(world: &World) {
    let is_list = |r: &&Recorded| r.info.verb == "list" && r.info.group == GROUP;
    let is_of_shoot = |r: &&Recorded| {
        r.info.namespace == technical_id(NAME) || r.info.object_name().starts_with(&technical_id(NAME))
    };
    let requests = world.seed.requests();
    let listed = requests.iter().filter(is_list).filter(is_of_shoot).map(|r| r.info.resource.as_str());
    let listed: BTreeSet<&str> = listed.collect();
    assert_eq!(listed, ["backupentries", "dnsrecords", "extensions"].into());
}

fn reads(world: &World, mark: usize) -> usize {
    let is_read = |r: &&Recorded| r.info.resource == "shootstates" && !r.is_write() && r.status == 200;
    world.garden.requests_since(mark).iter().filter(is_read).count()
}

#[test]
fn data_that_cannot_be_created_again_is_stored_in_the_garden() {
    let world = World::start(&Options::new("shoot-state"));
    let site = world.site();
    let agent = world.agent_of(&site, &config(&world));
    agent.launch();
    world.wait_until_ready();
    world.garden.apply(&[ShootObject::workerless(NAME).build()]);
    let shoot = wait_until_created(&world.garden, PLACE);
    let operation = text(&shoot, "/status/lastOperation/lastUpdateTime");
    let created = from_rfc3339(operation).unwrap();
    let state = wait_for_state(&world, "the ShootState", created, |_| true);
    the_secrets_are_there(&world, &state);
    assert_eq!(state["spec"].as_object().unwrap().len(), 1, "{state}");
    only_possible_kinds_are_listed(&world);

    a_secret_comes_and_goes(
        &world,
        &json!({"managed-by": "secrets-manager", "persist": "true", "name": "extra"}),
    );
    // Extensions keep Secrets of their own.
    a_secret_comes_and_goes(&world, &json!({"persist": "true"}));
    a_state_and_what_it_names(&world);
    many_changes_are_few_writes(&world);

    // After a restart the agent reads the ShootState from the garden, and writes nothing.
    let (before, mark) = (writes(&world), world.garden.request_count());
    agent.stop();
    agent.launch();
    world.garden.wait_for("a read of the ShootState", |_| (reads(&world, mark) > 0).then_some(()));
    let now = says(&world, "lab", &json!({"state": {"number": 200}}));
    wait_for_state(&world, "a state after the restart", now, |state| has_number(state, 200));
    assert_eq!(writes(&world) - before, 1);

    // Changes without a garden cause one write, when the garden is back.
    let before = writes(&world);
    world.garden.server().down();
    for number in 201..=205 {
        says(&world, "lab", &json!({"state": {"number": number}}));
        pass(&world, Duration::from_secs(120), Duration::from_secs(120));
    }
    let now = world.clock.now();
    world.garden.server().up().unwrap();
    wait_for_state(&world, "the state of the outage", now, |state| has_number(state, 205));
    assert_eq!(writes(&world) - before, 1);

    // A too large state is omitted and reported; the rest is stored.
    a_large_state_is_reported(&world, "huge");
    let now = says(&world, "lab", &json!({"state": {"number": 300}}));
    let state = wait_for_state(&world, "the smaller state", now, |state| has_number(state, 300));
    assert_eq!(extension(&state, "huge"), None);
    the_secrets_are_there(&world, &state);
    // That is reported even if the stored state does not change.
    let before = writes(&world);
    a_large_state_is_reported(&world, "vast");
    assert_eq!(writes(&world), before);

    // The safety net: nothing has changed, and it is written.
    let before = written_at(&state_of(&world));
    pass(&world, Duration::from_secs(7 * 3_600), Duration::from_secs(1_800));
    world.garden.wait_for("another ShootState", |_| {
        (written_at(&state_of(&world)) > before.plus(Duration::from_secs(3_600))).then_some(())
    });

    // No ShootState is written for a Shoot that is being deleted.
    let gone = gardenlet::api::meta::Key::new(PLACE.0, PLACE.1);
    agent.stop();
    let garden = gardenlet::kube::Garden(world.garden.client());
    assert!(!gardenlet::shoot::state::delete(&garden, &gone).unwrap());
    assert_eq!(self::state(&world), None);
    assert!(gardenlet::shoot::state::delete(&garden, &gone).unwrap());
}

fn reports(garden: &TestCluster, operation: &str, state: &str) {
    let last = json!({"type": operation, "state": state, "progress": 10, "description": "d",
        "lastUpdateTime": "2026-01-01T00:00:00Z"});
    garden.merge_status(CORE, "shoots", PLACE, &json!({"status": {"lastOperation": last}}));
}

/// Before the next request of this kind, a migration begins and writes the ShootState. The state of the extension is its mark.
fn migrates_before(world: &World, method: &'static str, mark: &'static str) -> impl Fn() -> u32 {
    let garden = world.garden.clone();
    let migrate = Action::Tell(Arc::new(move |_: &Seen| {
        reports(&garden, "Migrate", "Processing");
        let lab = json!({"kind": "Extension", "name": "lab", "state": {"of": mark}});
        garden.merge(CORE, "shootstates", PLACE, &json!({"spec": {"extensions": [lab]}}));
    }));
    let ordered = world.garden.faults().on(method, "/shootstates/s1").once().then(migrate);
    move || ordered.hits()
}

fn is_of(world: &World, mark: &str) {
    assert_eq!(extension(&state_of(world), "lab").unwrap()["state"], json!({"of": mark}));
}

#[test]
fn a_write_under_way_loses_against_a_migration() {
    let world = World::start(&Options::new("state-race"));
    let site = world.site();
    let mut config = config(&world);
    config["controllers"]["shoot"]["respectSyncPeriodOverwrite"] = json!(true);
    let agent = world.agent_of(&site, &config);
    agent.launch();
    world.wait_until_ready();
    world.garden.apply(&[ShootObject::workerless(NAME).build()]);
    wait_until_created(&world.garden, PLACE);
    // The test plays the migration.
    let ignored = json!({"metadata": {"annotations": {"shoot.gardener.cloud/ignore": "true"}}});
    world.garden.merge(CORE, "shoots", PLACE, &ignored);
    make_extension(&world, "lab");
    let now = says(&world, "lab", &json!({"state": {"number": 1}}));
    wait_for_state(&world, "the first state", now, |state| has_number(state, 1));

    let hits = migrates_before(&world, "PATCH", "the first migration");
    says(&world, "lab", &json!({"state": {"number": 2}}));
    world.garden.wait_for("the write under way", |_| (hits() > 0).then_some(()));
    pass(&world, Duration::from_secs(700), Duration::from_secs(120));
    is_of(&world, "the first migration");

    // What the agent reads for the first time may be of a migration, too.
    agent.stop();
    reports(&world.garden, "Reconcile", "Succeeded");
    let hits = migrates_before(&world, "GET", "the second migration");
    agent.launch();
    world.garden.wait_for("the read", |_| (hits() > 0).then_some(()));
    pass(&world, Duration::from_secs(700), Duration::from_secs(120));
    is_of(&world, "the second migration");

    // Without a migration, the agent writes again.
    reports(&world.garden, "Reconcile", "Succeeded");
    let now = says(&world, "lab", &json!({"state": {"number": 3}}));
    wait_for_state(&world, "the state after the migrations", now, |state| has_number(state, 3));
    agent.stop();
}
