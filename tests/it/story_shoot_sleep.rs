//! A Shoot is hibernated and woken up. Meanwhile none of its pods run and its API server gets no requests. Afterwards
//! it has the same data and the same address.

use std::time::Duration;

use serde_json::{Value, json};

use crate::story_offline::pass;
use crate::story_operating::Desk;
use crate::world::{Agent, CORE, MANAGED_RESOURCES, Options, World, condition};
use support::cluster::PATIENCE;
use support::http::faults::Action;
use support::http::faults::failure;
use support::json::{list, text};
use support::pace;
use support::shoot::history::{self, Operation, wait_until, wait_until_created};
use support::shoot::object::{self, MANAGED, PROJECT_NAMESPACE, ShootObject, technical_id};
use support::shoot::{Options as SiteOptions, Site, Trouble};

pub(crate) const NAME: &str = "s1";
const PLACE: (&str, &str) = (PROJECT_NAMESPACE, NAME);
const DONE: &str = "Reconcile Succeeded 100";
const HOUR: Duration = Duration::from_secs(3_600);
/// The workloads of a Shoot with their kinds.
const WORKLOADS: [(&str, &str); 4] = [
    ("deployments", "kube-apiserver"),
    ("deployments", "kube-controller-manager"),
    ("statefulsets", "etcd-main"),
    ("statefulsets", "etcd-events"),
];

/// Leases are longer than the jumps of the clock.
fn config(world: &World) -> Value {
    let mut config = world.edge_config();
    config["edge"]["exposure"] = json!({"type": "NodePort", "address": "127.0.0.1"});
    config["controllers"]["shoot"]["progressReportPeriod"] = json!("2s");
    config["leaderElection"] =
        json!({"leaderElect": true, "leaseDuration": "60h", "renewDeadline": "50h", "retryPeriod": "2s"});
    config
}

fn begun(world: &World, site: &Site) -> Agent {
    let agent = world.agent_of(site, &config(world));
    agent.launch();
    world.wait_until_ready();
    agent
}

fn shoot(world: &World) -> Value {
    world.garden.get(CORE, "shoots", PLACE.0, PLACE.1).unwrap()
}

pub(crate) fn ask(world: &World, hibernated: bool) {
    let spec = json!({"spec": {"hibernation": {"enabled": hibernated}}});
    world.garden.merge(CORE, "shoots", PLACE, &spec);
}

pub(crate) fn pods(world: &World) -> Vec<String> {
    world.seed.store().names("", "pods", &technical_id(NAME))
}

fn replicas(world: &World) -> Vec<i64> {
    let one = |(plural, name): (&str, &str)| {
        let found = world.seed.get("apps", plural, &technical_id(NAME), name);
        found.map_or(-1, |found| found["spec"]["replicas"].as_i64().unwrap_or(1))
    };
    WORKLOADS.map(one).to_vec()
}

/// Services with their addresses and ports.
fn services(world: &World) -> Vec<Value> {
    let all = world.seed.store().list("", "services", &technical_id(NAME));
    all.iter().map(|service| json!([service["metadata"]["uid"], service["spec"]])).collect()
}

/// The applier's conditions for the Shoot's objects.
fn said(world: &World) -> Vec<Value> {
    let find = |name: &&str| world.seed.get(MANAGED_RESOURCES, "managedresources", &technical_id(NAME), name);
    MANAGED.iter().filter_map(find).map(|managed| managed["status"]["conditions"].clone()).collect()
}

fn is_asleep(world: &World) {
    assert_eq!(shoot(world)["status"]["hibernated"], true);
    assert_eq!(pods(world), [""; 0]);
    assert_eq!(replicas(world), [0; 4]);
}

/// Waits for the end of an operation, which may follow another one.
pub(crate) fn until(world: &World, line: &str) -> Value {
    let found = world.garden.wait_on(&pace::clock(), PATIENCE, |_| {
        let shoot = shoot(world);
        let is_observed = shoot["status"]["observedGeneration"] == shoot["metadata"]["generation"];
        let last = Operation::of(&shoot)?;
        (is_observed && last.line() == line).then_some(shoot)
    });
    found.unwrap_or_else(|| panic!("waited in vain for {line}: {}", shoot(world)["status"]))
}

fn is_awake(world: &World) {
    let awake = until(world, DONE);
    assert_eq!(awake["status"]["hibernated"], false);
    assert_eq!(awake["status"]["lastErrors"], Value::Null);
    assert_eq!(replicas(world), [1; 4]);
}

fn note(site: &Site) {
    let server = site.server(&technical_id(NAME)).unwrap();
    let map = json!({"metadata": {"name": "kept", "namespace": "default"}, "data": {"a": "b"}});
    server.cluster.create("v1", "configmaps", &map);
}

fn has_note(site: &Site) {
    let server = site.server(&technical_id(NAME)).unwrap();
    assert!(server.pod().is_some(), "the API server does not run");
    assert_eq!(server.cluster.get("", "configmaps", "default", "kept").unwrap()["data"]["a"], "b");
}

#[test]
fn a_shoot_is_hibernated_and_wakes_up_with_its_data() {
    let world = World::start(&Options::new("shoot-sleep"));
    // No server is ready for that long: who waits for it waits in vain.
    let min_ready = Some(240 * HOUR);
    let site = world.site_with(SiteOptions { min_ready, ..SiteOptions::default() });
    let agent = begun(&world, &site);
    world.garden.apply(&[ShootObject::workerless(NAME).build()]);
    let created = wait_until_created(&world.garden, PLACE);
    assert_eq!(created["status"]["hibernated"], false);
    note(&site);
    let before = services(&world);

    ask(&world, true);
    let asleep = wait_until(&world.garden, PLACE, DONE);
    is_asleep(&world);
    assert_eq!(asleep["status"]["lastErrors"], Value::Null);
    let operations = history::operations(&world.garden, PLACE.0, PLACE.1);
    assert!(operations.iter().any(|o| o.description.contains("Hibernating control plane")), "{operations:?}");
    world.seed.wait_for("the Cluster with this state", |seed| {
        let cluster = seed.get("extensions.gardener.cloud", "clusters", "", &technical_id(NAME))?;
        let shoot = &cluster["spec"]["shoot"];
        (shoot["spec"]["hibernation"]["enabled"] == true && shoot["status"]["hibernated"] == true)
            .then_some(())
    });
    assert_eq!(services(&world), before);
    assert_eq!(asleep["status"]["advertisedAddresses"], created["status"]["advertisedAddresses"]);
    let told = Desk::new(&world, object::make_edge).explain(&["shoot", &format!("{}/{}", PLACE.0, PLACE.1)]);
    assert!(told.contains("it is hibernated: its control plane has no pods"), "{told}");

    // There are no connections to it, and the conditions of its objects stay.
    let (conditions, dials) = (said(&world), site.routes().dials(&technical_id(NAME)));
    assert_eq!(conditions.len(), MANAGED.len());
    assert!(dials > 0);
    pass(&world, 10 * HOUR, HOUR / 6);
    is_asleep(&world);
    assert_eq!(site.routes().dials(&technical_id(NAME)), dials);
    assert_eq!(said(&world), conditions);

    // A reconciliation during hibernation does not wake it up.
    let operation = json!({"metadata": {"annotations": {"gardener.cloud/operation": "reconcile"}}});
    world.garden.merge(CORE, "shoots", PLACE, &operation);
    wait_until(&world.garden, PLACE, DONE);
    is_asleep(&world);
    assert_eq!(site.routes().dials(&technical_id(NAME)), dials);

    ask(&world, false);
    is_awake(&world);
    let server = world.seed.get("apps", "deployments", &technical_id(NAME), "kube-apiserver").unwrap();
    assert_eq!(condition(&server, "Available").unwrap().0, "False", "it is not ready for `minReadySeconds`");
    has_note(&site);
    assert_eq!(services(&world), before);
    assert_eq!(shoot(&world)["status"]["advertisedAddresses"], created["status"]["advertisedAddresses"]);
    assert_eq!(site.complaints(), Vec::<String>::new());
    agent.stop();
}

#[test]
fn a_shoot_may_be_created_hibernated() {
    let world = World::start(&Options::new("shoot-born-asleep"));
    let site = world.site();
    let agent = begun(&world, &site);
    world.garden.apply(&[ShootObject::workerless(NAME).hibernated().build()]);
    wait_until_created(&world.garden, PLACE);
    is_asleep(&world);
    let made = |world: &World| {
        let state = world.seed.store().read();
        let plane = technical_id(NAME);
        state.since(state.compacted).any(|change| change.id.is_of("", "pods") && change.id.namespace == plane)
    };
    assert!(!made(&world), "it had a pod");
    assert_eq!(site.routes().dials(&technical_id(NAME)), 0);
    // Its first server has the version that its owner has chosen meanwhile.
    let spec = json!({"hibernation": {"enabled": false}, "kubernetes": {"version": "1.35.4"}});
    world.garden.merge(CORE, "shoots", PLACE, &json!({ "spec": spec }));
    is_awake(&world);
    assert!(site.server(&technical_id(NAME)).unwrap().pod().is_some());
    assert_eq!(site.complaints(), Vec::<String>::new());
    agent.stop();
}

/// Its API server was never created, and is not created now.
#[test]
fn a_shoot_may_be_hibernated_during_its_creation() {
    let world = World::start(&Options::new("shoot-early-sleep"));
    let site = world.site();
    let agent = begun(&world, &site);
    site.trouble(&technical_id(NAME), "etcd-main", Some(Trouble::NoRoom));
    world.garden.apply(&[ShootObject::workerless(NAME).build()]);
    world.garden.wait_for("the wait for etcd", |_| {
        let waits = "Waiting until main and event ETCDs have been reconciled";
        (shoot(&world)["status"]["lastOperation"]["description"] == waits).then_some(())
    });
    world.seed.wait_for("the pods of both etcds", |_| (pods(&world).len() == 2).then_some(()));
    ask(&world, true);
    until(&world, "Create Succeeded 100");
    is_asleep(&world);
    site.trouble(&technical_id(NAME), "etcd-main", None);
    ask(&world, false);
    is_awake(&world);
    assert_eq!(site.complaints(), Vec::<String>::new());
    agent.stop();
}

/// The API server has ended, and etcd cannot.
#[test]
fn a_shoot_may_be_woken_up_during_its_hibernation() {
    let world = World::start(&Options::new("shoot-half-asleep"));
    let site = world.site();
    let agent = begun(&world, &site);
    world.garden.apply(&[ShootObject::workerless(NAME).build()]);
    wait_until_created(&world.garden, PLACE);
    note(&site);
    let refused = world.seed.faults().when(|seen| {
        let spec = seen.body.as_ref().map(|body| body["spec"]["replicas"].clone());
        seen.info.resource == "statefulsets" && spec == Some(json!(0))
    });
    let refused = refused.then(Action::Refuse(failure(500, None)));
    ask(&world, true);
    world.garden.wait_for("the end of the API server", |_| (replicas(&world) == [0, 0, 1, 1]).then_some(()));
    world.garden.wait_for("the refusal", |_| (refused.hits() > 0).then_some(()));
    let status = shoot(&world)["status"].clone();
    assert_eq!((&status["hibernated"], text(&status, "/lastOperation/state")), (&json!(false), "Processing"));
    ask(&world, false);
    is_awake(&world);
    has_note(&site);
    refused.cancel();
    // The flow does not wait for the pod of kube-controller-manager.
    world.seed.wait_for("four pods", |_| (pods(&world).len() == 4).then_some(()));
    assert_eq!(list(&shoot(&world), "/status/advertisedAddresses").len(), 1);
    assert_eq!(site.complaints(), Vec::<String>::new());
    agent.stop();
}
