//! Shoots that the agent does not touch: those that this version cannot serve, those that their owners let it ignore,
//! and those that wait for their maintenance time windows.

use std::collections::BTreeMap;
use std::time::Duration;

use gardenlet::base::clock::Timestamp;
use serde_json::{Value, json};

use crate::story_offline::pass;
use crate::story_operating::Desk;
use crate::world::{AGENT, CORE, Options, World, condition, wait_for};
use support::api::store::Id;
use support::encoding::from_rfc3339;
use support::http::record::Recorded;
use support::json::{list, text};
use support::shoot::history::{self, wait_until, wait_until_created};
use support::shoot::object::{self, PROJECT_NAMESPACE, ShootObject, technical_id};

const APPLIER: &str = "system:serviceaccount:garden:gardener-resource-manager";
const NAME: &str = "s1";
const PLACE: (&str, &str) = (PROJECT_NAMESPACE, NAME);

fn shoot(world: &World, name: &str) -> Value {
    world.garden.get(CORE, "shoots", PROJECT_NAMESPACE, name).unwrap()
}

/// Objects of a Shoot that another gardenlet left in the seed.
fn control_plane(name: &str) -> Vec<Value> {
    let id = technical_id(name);
    let deployment = |name: &str| {
        let labels = json!({"app": name});
        json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name, "namespace": id},
            "spec": {"replicas": 1, "selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels},
                "spec": {"containers": [{"name": "c", "image": "i"}]}}}})
    };
    let labels = json!({"managed-by": "secrets-manager", "manager-identity": "gardenlet", "name": "ca"});
    vec![
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": id,
            "labels": {"gardener.cloud/role": "shoot"}}}),
        json!({"apiVersion": "extensions.gardener.cloud/v1alpha1", "kind": "Cluster", "metadata": {"name": id},
            "spec": {"shoot": {"metadata": {"name": name}}, "seed": {}, "cloudProfile": {}}}),
        json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "ca", "namespace": id, "labels": labels},
            "stringData": {"ca.crt": "a", "ca.key": "b"}}),
        json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "shoot-access-x", "namespace": id,
            "labels": {"resources.gardener.cloud/purpose": "token-requestor", "resources.gardener.cloud/class": "shoot"},
            "annotations": {"serviceaccount.resources.gardener.cloud/name": "x",
                "serviceaccount.resources.gardener.cloud/namespace": "kube-system"}}}),
        json!({"apiVersion": "resources.gardener.cloud/v1alpha1", "kind": "ManagedResource",
            "metadata": {"name": "shoot-core-system", "namespace": id}, "spec": {"secretRefs": []}}),
        deployment("kube-apiserver"),
        deployment("gardener-resource-manager"),
    ]
}

/// Writes into the garden that another gardenlet served the Shoot here.
fn taken_over(world: &World, shoot: ShootObject, last: &Value) {
    let object = shoot.bound_to(world.name).build();
    let name = text(&object, "/metadata/name").to_owned();
    world.garden.apply(&[object]);
    let place = (PROJECT_NAMESPACE, name.as_str());
    world.garden.merge(CORE, "shoots", place, &json!({"metadata": {"finalizers": ["gardener"]}}));
    let status = json!({"technicalID": technical_id(&name), "uid": "8c1f", "seedName": world.name, "observedGeneration": 1,
        "gardener": {"id": "x", "name": "other", "version": "v1.150.0"}, "lastOperation": last});
    world.garden.merge_status(CORE, "shoots", place, &json!({ "status": status }));
    world.seed.apply(&control_plane(&name));
}

/// The objects of some Shoots in the seed, without those that the seed's own controllers write.
fn standing(world: &World, names: &[&str]) -> BTreeMap<Id, Value> {
    let ids: Vec<String> = names.iter().map(|name| technical_id(name)).collect();
    let state = world.seed.store().read();
    let of_shoot = |id: &&Id| ids.contains(&id.namespace) || ids.contains(&id.name);
    let kept = |id: &&Id| {
        let of_controllers = ["pods", "serviceaccounts", POLICIES].contains(&id.plural.as_str())
            || id.name == "kube-root-ca.crt";
        !["apps", "events.k8s.io"].contains(&id.group.as_str()) && !of_controllers
    };
    let all = state.objects.iter().filter(|(id, _)| of_shoot(id) && kept(id));
    all.map(|(id, object)| (id.clone(), (**object).clone())).collect()
}

/// NetworkPolicies belong to the namespace, whatever program serves the Shoot.
const POLICIES: &str = "networkpolicies";

fn writes(world: &World, names: &[&str], mark: usize) -> Vec<String> {
    let ids: Vec<String> = names.iter().map(|name| technical_id(name)).collect();
    let is_ours = |request: &Recorded| {
        let about = &request.info;
        [AGENT, APPLIER].contains(&request.user.as_str())
            && request.is_write()
            && about.resource != POLICIES
            && (ids.contains(&about.namespace) || ids.contains(&about.name))
    };
    world.seed.requests_since(mark).iter().filter(|r| is_ours(r)).map(Recorded::line).collect()
}

#[test]
fn shoots_that_cannot_be_served_are_not_touched() {
    let world = World::start(&Options::new("shoot-untouched"));
    object::prepare_garden(&world.garden);
    object::prepare_seed(&world.seed);
    let agent = world.agent_with(&world.edge_config());
    world.wait_until_ready();
    // Until then, the status of its Shoots reports that they wait for the Seed.
    world.garden.wait_for("healthy components of the Seed", |_| {
        let found = condition(&world.garden.seed(world.name)?, "SeedSystemComponentsHealthy")?;
        (found.0 == "True").then_some(())
    });
    agent.stop();

    let workers = json!([{"name": "a", "minimum": 1, "maximum": 1, "machine": {"type": "none"}}]);
    let with_workers = |name: &str| {
        let shoot = ShootObject::workerless(name)
            .with("/spec/provider/workers", workers.clone())
            .with("/spec/credentialsBindingName", "b");
        shoot.with("/spec/networking", json!({"type": "calico", "services": object::SERVICES}))
    };
    let succeeded = json!({"type": "Reconcile", "state": "Succeeded", "progress": 100, "description": "d",
        "lastUpdateTime": "2026-01-05T07:00:00Z"});
    let migrated = json!({"type": "Migrate", "state": "Succeeded", "progress": 100, "description": "d",
        "lastUpdateTime": "2026-01-05T07:00:00Z"});
    let all = ["fresh", "old", "comes"];
    taken_over(&world, with_workers("old"), &succeeded);
    taken_over(&world, ShootObject::workerless("comes"), &migrated);
    world.garden.apply(&[with_workers("fresh").bound_to(world.name).build()]);
    let (before, mark) = (standing(&world, &all), world.seed.request_count());
    assert!(before.len() >= 8, "{:?}", before.keys());

    agent.launch();
    let says = |name: &str, words: &str| {
        world.garden.wait_for(&format!("{words} of {name}"), |_| {
            let status = shoot(&world, name)["status"].clone();
            let errors = list(&status, "/lastErrors").iter().map(|error| text(error, "/description"));
            let mut all = errors.chain([text(&status, "/lastOperation/description")]);
            let is_said = all.any(|said| said.contains(words));
            is_said.then(|| status.clone())
        })
    };
    let fresh = says("fresh", "does not serve Shoots with workers");
    assert_eq!((text(&fresh, "/lastOperation/state"), text(&fresh, "/uid")), ("Error", ""));
    // It is a problem, and does not look like one in progress.
    let page = wait_for("both problems", || {
        let page = agent.get(2728, "/statusz").1;
        let told = ["fresh", "old"].map(|name| format!("Shoot {PROJECT_NAMESPACE}/{name}"));
        told.iter().all(|name| page.contains(name)).then_some(page)
    });
    assert!(page.contains("Create Error: This gardenlet does not serve Shoots with workers"), "{page}");
    let old = says("old", "does not serve Shoots with workers");
    assert_eq!(old["lastOperation"]["state"], "Error");
    // Without its keys, it would become another cluster.
    let comes = says("comes", "the garden has no ShootState");
    assert_eq!(text(&comes, "/lastOperation/type"), "Restore");
    assert_eq!(comes["lastErrors"][0]["taskID"], "initializeOperation");

    // Changes of these Shoots change nothing in the seed.
    let confirmation = json!({"metadata": {"annotations": {"confirmation.gardener.cloud/deletion": "true"}}});
    for name in ["old", "fresh"] {
        world.garden.merge(CORE, "shoots", (PROJECT_NAMESPACE, name), &confirmation);
        world.garden.delete(CORE, "shoots", PROJECT_NAMESPACE, name);
    }
    pass(&world, Duration::from_secs(120), Duration::from_secs(2));
    assert_eq!(writes(&world, &all, mark), Vec::<String>::new());
    assert_eq!(standing(&world, &all), before);
    for name in all {
        let states = history::operations(&world.garden, PROJECT_NAMESPACE, name);
        assert!(states.iter().all(|operation| operation.state != "Failed"), "{name}: {states:?}");
    }
    let old = shoot(&world, "old");
    assert!(list(&old, "/metadata/finalizers").contains(&json!("gardener")));
    assert_eq!(old["status"]["technicalID"], json!(technical_id("old")));
    agent.stop();
}

#[test]
fn doctor_names_shoots_that_cannot_be_served() {
    let world = World::start(&Options::real("shoot-doctor"));
    object::prepare_garden(&world.garden);
    object::prepare_seed(&world.seed);
    let agent = world.agent_with(&world.edge_config());
    world.wait_until_ready();
    let desk = Desk::new(&world, |_| {});
    assert!(!desk.doctor().1.contains("with workers"));
    let workers = json!([{"name": "a", "minimum": 1, "maximum": 1, "machine": {"type": "none"}}]);
    let shoot = ShootObject::workerless("w").bound_to(world.name).with("/spec/provider/workers", workers);
    let shoot = shoot.with("/spec/credentialsBindingName", "b");
    world.garden.apply(&[shoot
        .with("/spec/networking", json!({"type": "calico", "services": object::SERVICES}))
        .build()]);
    let (code, output) = desk.doctor();
    let said = "garden: Shoots: 1 with workers, which this agent does not change: garden-p/w";
    assert!(code == 0 && output.contains(said), "{output}");
    agent.stop();
}

/// A seed that follows annotations of owners, and reconciles in windows only. Leases are longer than the jumps of the
/// clock.
fn patient(world: &World) -> Value {
    let mut config = world.edge_config();
    config["edge"]["exposure"] = json!({"type": "NodePort", "address": "127.0.0.1"});
    config["controllers"]["shoot"]["respectSyncPeriodOverwrite"] = json!(true);
    config["controllers"]["shoot"]["reconcileInMaintenanceOnly"] = json!(true);
    config["controllers"]["shoot"]["progressReportPeriod"] = json!("2s");
    config["leaderElection"] =
        json!({"leaderElect": true, "leaseDuration": "60h", "renewDeadline": "50h", "retryPeriod": "2s"});
    config
}

#[test]
fn a_shoot_waits_for_its_window_and_an_ignored_one_is_only_shown_to_extensions() {
    let world = World::start(&Options::new("shoot-window"));
    let site = world.site();
    let agent = world.agent_of(&site, &patient(&world));
    agent.launch();
    world.wait_until_ready();
    let window = json!({"begin": "103000+0100", "end": "113000+0100"});
    world.garden.apply(&[ShootObject::workerless(NAME).with("/spec/maintenance/timeWindow", window).build()]);
    let created = wait_until_created(&world.garden, PLACE);

    // The owner changes an ignored Shoot. Only its `Cluster` follows, for the extensions.
    let ignored = |value: Value| json!({"metadata": {"annotations": {"shoot.gardener.cloud/ignore": value}}});
    world.garden.merge(CORE, "shoots", PLACE, &ignored(json!("true")));
    let mark = world.seed.request_count();
    world.garden.merge(CORE, "shoots", PLACE, &json!({"spec": {"purpose": "evaluation"}}));
    world.seed.wait_for("the change in the Cluster", |seed| {
        let cluster = seed.get("extensions.gardener.cloud", "clusters", "", &technical_id(NAME))?;
        (cluster["spec"]["shoot"]["spec"]["purpose"] == "evaluation").then_some(())
    });
    let now = shoot(&world, NAME);
    assert_eq!(now["status"]["lastOperation"], created["status"]["lastOperation"]);
    assert_eq!(now["status"]["observedGeneration"], created["metadata"]["generation"]);
    // The applier may still report the results of ManagedResources, and its last token may arrive.
    let served = ["/clusters/", "/managedresources/", "/secrets/shoot-access-"];
    let is_other = |line: &String| !served.iter().any(|part| line.contains(part));
    let others: Vec<String> = writes(&world, &[NAME], mark).into_iter().filter(is_other).collect();
    assert_eq!(others, Vec::<String>::new());

    // A change takes effect at once, whatever the window.
    world.garden.merge(CORE, "shoots", PLACE, &ignored(Value::Null));
    world.garden.merge(CORE, "shoots", PLACE, &json!({"spec": {"purpose": "development"}}));
    wait_until(&world.garden, PLACE, "Reconcile Succeeded 100");

    // Half past nine in UTC: the agent starts in the middle of the window, and reconciles the Shoot once.
    agent.stop();
    let middle = from_rfc3339("2026-01-05T09:35:00Z").unwrap();
    world.time.advance(middle.since(world.clock.now()));
    let mark = world.garden.store().read().revision;
    let started = || history::started(&world.garden, PLACE, mark);
    agent.launch();
    world.wait_until_ready();
    // No operation starts later than 15 minutes before the window closes. A jump of the clock may pass over that time and
    // the planned start: then the Shoot waits for the window of the next day. While the operation runs, only real time
    // passes: a slow machine needs many jumps for it.
    let second_of_day = |at: Timestamp| at.unix().rem_euclid(86_400);
    let (opens, last_start) = (34_200, 36_900);
    let give_up = world.clock.now().plus(Duration::from_secs(3 * 86_400));
    while started().is_none() && world.clock.now() < give_up {
        let is_near = (opens - 1_800..=last_start).contains(&second_of_day(world.clock.now()));
        let jump = Duration::from_secs(if is_near { 60 } else { 1_800 });
        pass(&world, jump, jump);
    }
    let at = world.garden.wait_for("an operation in the window", |_| started());
    // A jump may fall between the decision and the time that the operation writes.
    let written = second_of_day(from_rfc3339(&at).unwrap());
    assert!((opens..=last_start + 120).contains(&written), "{at}");
    let ended = world.garden.wait_for("the end of the operation", |_| {
        let last = shoot(&world, NAME)["status"]["lastOperation"].clone();
        (last["state"] == "Succeeded").then_some(last)
    });
    // Nothing starts outside the window.
    while !(opens - 1_860..opens).contains(&second_of_day(world.clock.now())) {
        pass(&world, Duration::from_secs(1_800), Duration::from_secs(1_800));
    }
    assert_eq!(shoot(&world, NAME)["status"]["lastOperation"], ended);
    assert_eq!(site.complaints(), Vec::<String>::new());
    agent.stop();
}
