//! Events during the creation of a Shoot: the garden goes away, or its owner requests something else.

use serde_json::{Value, json};

use crate::story_operating::events;
use crate::world::{Agent, CORE, MANAGED_RESOURCES, Options, World, condition};
use support::json::{list, text};
use support::shoot::history::{self, wait_until_created};
use support::shoot::object::{PROJECT_NAMESPACE, ShootObject, technical_id};
use support::shoot::{Site, Trouble};

const NAME: &str = "s1";
const PLACE: (&str, &str) = (PROJECT_NAMESPACE, NAME);
const SERVER: &str = "kube-apiserver";

/// A Shoot whose API server cannot start: its image cannot be pulled.
fn stuck(world: &World, site: &Site) -> Agent {
    let mut config = world.edge_config();
    config["edge"]["exposure"] = json!({"type": "NodePort", "address": "127.0.0.1"});
    let agent = world.agent_of(site, &config);
    agent.launch();
    world.wait_until_ready();
    site.trouble(&technical_id(NAME), SERVER, Some(Trouble::NoImage));
    world.garden.apply(&[ShootObject::workerless(NAME).build()]);
    wait_for_the_server(world);
    agent
}

fn shoot(world: &World) -> Value {
    world.garden.get(CORE, "shoots", PLACE.0, PLACE.1).unwrap()
}

/// Waits until the flow only waits for the API server.
fn wait_for_the_server(world: &World) {
    world.garden.wait_for("the wait for the API server", |_| {
        let waits = "Waiting until Kubernetes API server rolled out";
        (shoot(world)["status"]["lastOperation"]["description"] == waits).then_some(())
    });
}

fn is_healthy(world: &World, name: &str) -> bool {
    let managed = world.seed.get(MANAGED_RESOURCES, "managedresources", &technical_id(NAME), name);
    let is_true =
        |managed: &Value, kind: &str| condition(managed, kind).is_some_and(|found| found.0 == "True");
    managed
        .is_some_and(|managed| is_true(&managed, "ResourcesApplied") && is_true(&managed, "ResourcesHealthy"))
}

#[test]
fn a_garden_that_goes_away_midway_gets_the_result_later() {
    let world = World::start(&Options::new("shoot-alone"));
    let site = world.site();
    let agent = stuck(&world, &site);
    world.garden.server().down();
    // Care may have written until then.
    let before = shoot(&world);

    // Steps that need only the seed are done.
    site.trouble(&technical_id(NAME), SERVER, None);
    world.seed.wait_for("the Shoot's own objects to be applied", |_| {
        let all = ["shoot-core-system", "shoot-core-cluster-identity", "shoot-core-kube-controller-manager"];
        all.iter().all(|name| is_healthy(&world, name)).then_some(())
    });
    let server = site.server(&technical_id(NAME)).unwrap();
    assert!(server.cluster.get("", "configmaps", "kube-system", "shoot-info").is_some());
    assert_eq!(shoot(&world), before);

    // The garden gets the result, and no step is repeated: progress does not decrease.
    world.garden.server().up().unwrap();
    let after = wait_until_created(&world.garden, PLACE);
    assert_eq!(after["status"]["lastErrors"], Value::Null);
    let began = events(&world.garden, NAME, "Reconciling");
    assert_eq!(began.len(), 1, "{began:?}");
    assert_eq!(began[0]["type"], "Normal");
    world.garden.wait_for("the event", |garden| events(garden, NAME, "Reconciled").pop());
    assert_eq!(site.complaints(), Vec::<String>::new());
    agent.stop();
}

#[test]
fn a_change_by_the_owner_midway_ends_the_current_operation() {
    let world = World::start(&Options::new("shoot-other"));
    let site = world.site();
    let agent = stuck(&world, &site);
    let first = shoot(&world);
    let generation = |shoot: &Value, pointer: &str| shoot.pointer(pointer).and_then(Value::as_i64).unwrap();
    assert_eq!(generation(&first, "/status/observedGeneration"), generation(&first, "/metadata/generation"));

    // The next round starts with the new request, and finds the earlier results.
    let secrets = || world.seed.store().names("", "secrets", &technical_id(NAME));
    let made = secrets();
    let operation = json!({"metadata": {"annotations": {"gardener.cloud/operation": "reconcile"}}});
    world.garden.merge(CORE, "shoots", PLACE, &operation);
    let second = world.garden.wait_for("the next round", |_| {
        let shoot = shoot(&world);
        let observed = generation(&shoot, "/status/observedGeneration");
        (observed > generation(&first, "/status/observedGeneration")).then_some(shoot)
    });
    assert_eq!(second["status"]["lastOperation"]["type"], "Create");
    assert_eq!(second["metadata"]["annotations"]["gardener.cloud/operation"], Value::Null);
    wait_for_the_server(&world);
    assert_eq!(secrets(), made);

    // A start that fails becomes an error. The Shoot continues as soon as the cause is resolved.
    let error = world.garden.wait_for("the error", |_| {
        let errors = list(&shoot(&world), "/status/lastErrors").to_vec();
        errors.into_iter().find(|e| e["taskID"] == "Waiting until Kubernetes API server rolled out")
    });
    assert!(text(&error, "/description").contains("kube-apiserver:v1.34.3"), "{error}");
    let told = world.garden.wait_for("the event", |garden| events(garden, NAME, "ReconcileError").pop());
    assert_eq!(told["type"], "Warning");
    site.trouble(&technical_id(NAME), SERVER, None);
    let done = world.garden.wait_for("the Shoot to be created", |_| {
        let shoot = shoot(&world);
        (shoot["status"]["lastOperation"]["state"] == "Succeeded").then_some(shoot)
    });
    assert_eq!(done["status"]["lastOperation"]["type"], "Create");
    assert_eq!(generation(&done, "/status/observedGeneration"), generation(&done, "/metadata/generation"));
    let states: Vec<String> =
        history::operations(&world.garden, PLACE.0, PLACE.1).iter().map(|o| o.state.clone()).collect();
    assert!(!states.contains(&"Failed".to_owned()), "{states:?}");

    assert_eq!(site.complaints(), Vec::<String>::new());
    agent.stop();
}
