//! A seed moves from the Go gardenlet to this agent, and back. The next one finds everything it needs, and does not
//! write correct objects again.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use gardenlet::format::yaml;
use serde_json::{Value, json};

use crate::handover::Expect::{Is, Like};
use crate::handover::{Found, MICRO_TIME, Row, expected_by_the_go_gardenlet};
use crate::upstream::{self, End, GRM_HOLDER, SYSTEM, versions};
use crate::world::{Agent, CORE, LEASES, MANAGED_RESOURCES, Options, World};
use support::TestCluster;
use support::encoding::from_rfc3339;
use support::garden::prepare;
use support::http::record::Recorded;
use support::json::text;

const DEPLOYMENTS: &str = "controllerdeployments";
const SHOOT_CLASS: &str = "managedresources.resources.gardener.cloud shoot--a--b/shoot-core";

/// The number of changes of each kind that agents have made in a cluster since a mark, without renewals of Leases.
/// Tokens are not objects.
fn writes(cluster: &TestCluster, mark: usize) -> BTreeMap<String, usize> {
    let ours = |r: &Recorded| r.is_write() && r.status < 300 && r.user_agent.starts_with("gardenlet/");
    let is_object = |r: &Recorded| r.info.group != LEASES && r.info.subresource != "token";
    let mut found = BTreeMap::new();
    for request in cluster.requests_since(mark).iter().filter(|r| ours(r) && is_object(r)) {
        *found.entry(format!("{} {}", request.method, request.path)).or_default() += 1;
    }
    found
}

fn counted(all: &[(&str, usize)]) -> BTreeMap<String, usize> {
    all.iter().map(|(line, count)| ((*line).to_owned(), *count)).collect()
}

/// The differences between two states.
fn changed(before: &BTreeMap<String, String>, after: &BTreeMap<String, String>) -> BTreeSet<String> {
    let places: BTreeSet<&String> = before.keys().chain(after.keys()).collect();
    places.into_iter().filter(|place| before.get(*place) != after.get(*place)).cloned().collect()
}

fn agent_with(world: &World, resource_manager: Option<&str>) -> Agent {
    let mut config = world.config();
    if let Some(choice) = resource_manager {
        config["edge"]["resourceManager"] = json!(choice);
    }
    world.agent_with(&config)
}

/// Waits until this agent is in the Seed's status and all conditions are good, while gardener-resource-manager lives.
fn at_home(world: &World) {
    world.garden.wait_for("the agent to be ready", |garden| {
        upstream::resource_manager_renews(world);
        let seed = garden.seed(world.name)?;
        let ours = seed["status"]["gardener"]["name"] == "host-1";
        let done = seed["status"]["lastOperation"]["state"] == "Succeeded";
        let ready = world.seed_condition("GardenletReady").is_some_and(|c| c.0 == "True");
        let extensions = world.seed_condition("ExtensionsReady").is_some_and(|c| c.0 == "True");
        (ours && done && ready && extensions).then_some(())
    });
}

/// Time passes, and gardener-resource-manager lives.
fn a_minute(world: &World) {
    for _ in 0..15 {
        upstream::resource_manager_renews(world);
        world.pass(Duration::from_secs(4));
    }
}

fn greet(world: &World, greeting: &str) {
    let values = json!({"helm": {"values": {"greeting": greeting}}});
    world.garden.merge(CORE, DEPLOYMENTS, ("", "echo"), &values);
}

fn greeting(world: &World, installation: &str) -> Value {
    let map = world.seed.get("", "configmaps", &format!("extension-{installation}"), "echo").unwrap();
    map["data"]["greeting"].clone()
}

fn wait_for_installed(world: &World) {
    world.garden.wait_for("the installation", |_| {
        upstream::resource_manager_renews(world);
        let installed = world.installation_condition("echo", "Installed")?;
        let healthy = world.installation_condition("echo", "Healthy")?;
        (installed.0 == "True" && healthy.0 == "True").then_some(())
    });
}

/// A new value, which our agent writes and gardener-resource-manager applies.
fn a_new_value_while_the_resource_manager_lives(world: &World, installation: &str) {
    let (mark, before) = (world.seed.request_count(), versions(&world.seed));
    greet(world, "again");
    world.seed.wait_for("a new generation", |seed| {
        upstream::resource_manager_renews(world);
        let managed = seed.get(MANAGED_RESOURCES, "managedresources", "garden", installation)?;
        (managed["metadata"]["generation"] == 2).then_some(())
    });
    assert_eq!(greeting(world, installation), "hello", "our applier does not write yet");
    upstream::resource_manager_applies(world, installation);
    wait_for_installed(world);
    assert_eq!(greeting(world, installation), "again");
    let managed =
        format!("/apis/resources.gardener.cloud/v1alpha1/namespaces/garden/managedresources/{installation}");
    let patched = format!("PATCH {managed}");
    let expected = counted(&[("POST /api/v1/namespaces/garden/secrets", 1), (&patched, 1)]);
    assert_eq!(writes(&world.seed, mark), expected);
    untouched(&before, &versions(&world.seed));
}

/// The ManagedResources of the Go gardenlet's own components, and one of another class, are unchanged.
fn untouched(before: &BTreeMap<String, String>, after: &BTreeMap<String, String>) {
    let others = SYSTEM.map(|name| format!("managedresources.resources.gardener.cloud garden/{name}"));
    for place in others.iter().map(String::as_str).chain([SHOOT_CLASS]) {
        assert!(before.contains_key(place), "{place}");
        assert_eq!(before.get(place), after.get(place), "{place}");
    }
}

fn takes_over(name: &'static str, end: End) {
    let world = World::start(&Options::calm(name));
    // The seed has a Shoot, which the agent checks.
    world.seed.apply(&prepare::access().1);
    let installation = upstream::leave(&world, end);
    let before = (versions(&world.seed), versions(&world.garden), world.garden.seed(name).unwrap());
    let agent = world.agent();
    at_home(&world);
    a_minute(&world);
    nothing_is_written_that_is_right(&world, &before);
    let stage = agent.status.lock().unwrap().parts()["managedresource-applier"].stage.clone();
    assert!(stage.starts_with("passive: "), "{stage}");
    world.wait_for_condition("SeedSystemComponentsHealthy", "True");
    a_new_value_while_the_resource_manager_lives(&world, &installation);
    the_embedded_applier_goes_on(&world, &agent, &installation);
    agent.stop();
}

/// Versions in the seed, versions in the garden, and the Seed.
type Before = (BTreeMap<String, String>, BTreeMap<String, String>, Value);

fn nothing_is_written_that_is_right(world: &World, (seed, garden, before): &Before) {
    // In the seed: nothing but its own Lease.
    assert_eq!(writes(&world.seed, 0), counted(&[]));
    assert_eq!(changed(seed, &versions(&world.seed)), BTreeSet::new());
    // In the garden: no certificate request, and of all objects the Seed alone.
    let name = world.name;
    assert_eq!(
        changed(garden, &versions(&world.garden)),
        [format!("seeds.core.gardener.cloud /{name}")].into()
    );
    let path = format!("PATCH /apis/core.gardener.cloud/v1beta1/seeds/{name}");
    let (put, patched) = (path.replace("PATCH", "PUT") + "/status", format!("{path}/status"));
    // The registration resets fields that the server had defaulted, as upstream's does; the server sets them again. The
    // status contains the agent, the end of its operation, its readiness and the waiting applier: it is not written
    // with each heartbeat.
    let written = writes(&world.garden, 0);
    assert_eq!(written.keys().collect::<Vec<_>>(), [&path, &patched, &put]);
    assert!(written.values().all(|count| *count < 10), "{written:?}");
    let after = world.garden.seed(name).unwrap();
    assert_eq!(after["spec"], before["spec"]);
    for field in ["labels", "annotations", "finalizers", "generation", "uid"] {
        assert_eq!(after["metadata"][field], before["metadata"][field], "{field}");
    }
}

/// gardener-resource-manager ends, and the embedded applier continues its work.
fn the_embedded_applier_goes_on(world: &World, agent: &Agent, installation: &str) {
    let (mark, before) = (world.seed.request_count(), versions(&world.seed));
    upstream::resource_manager_ends(world);
    agent.wait_until_the_seed_side_runs();
    for _ in 0..15 {
        world.pass(Duration::from_secs(4));
    }
    // Each object was checked, and only the Deployment that was scaled has changed.
    let scaled = "deployments.apps garden/gardener-resource-manager".to_owned();
    let others = changed(&before, &versions(&world.seed));
    assert_eq!(others, [scaled].into(), "{:#?}", writes(&world.seed, mark));
    greet(world, "at last");
    world.seed.wait_for("the last value", |_| (greeting(world, installation) == "at last").then_some(()));
    // The applier keeps the Go gardenlet's objects as it finds them, as the other applier did.
    world.seed.delete("scheduling.k8s.io", "priorityclasses", "", "gardener-system-900");
    let operation = json!({"metadata": {"annotations": {"gardener.cloud/operation": "reconcile"}}});
    world.seed.merge(MANAGED_RESOURCES, "managedresources", ("garden", "system"), &operation);
    world.seed.wait_for("the priority class", |seed| {
        seed.get("scheduling.k8s.io", "priorityclasses", "", "gardener-system-900")
    });
    assert_eq!(before.get(SHOOT_CLASS), versions(&world.seed).get(SHOOT_CLASS));
}

#[test]
fn a_seed_that_the_go_gardenlet_released_is_taken_over() {
    takes_over("moved", End::Stopped);
}

#[test]
fn a_seed_whose_go_gardenlet_died_is_taken_over() {
    takes_over("orphaned", End::Killed);
}

/// On a host, with the account of the Go gardenlet and the additions of `docs/moving.md`.
#[test]
fn the_permissions_of_the_go_gardenlet_with_one_addition_are_enough() {
    let world = World::start(&Options::calm("borrowed"));
    let installation = upstream::leave(&world, End::Stopped);
    upstream::roles(&world);
    let more = crate::docs::blocks(&crate::docs::read("docs/moving.md"), "yaml");
    let more = yaml::parse(&more[0]).unwrap();
    world.seed.apply(more["items"].as_array().unwrap());
    let agent = world.agent();
    at_home(&world);
    a_new_value_while_the_resource_manager_lives(&world, &installation);
    upstream::resource_manager_ends(&world);
    agent.wait_until_the_seed_side_runs();
    greet(&world, "by ours");
    world.seed.wait_for("a value of ours", |_| (greeting(&world, &installation) == "by ours").then_some(()));
    agent.stop();
    let mark = world.seed.request_count();
    // Nothing was refused: each world checks that at its end. Without the additions a request is refused.
    world.expect_refusals();
    world.seed.delete("rbac.authorization.k8s.io", "rolebindings", "garden", "gardenlet-applier");
    agent.launch();
    crate::world::wait_for("a refusal", || {
        let asked = world.seed.requests_since(mark);
        asked
            .iter()
            .any(|r| r.status == 403 && r.path.ends_with("/gardener-resource-manager/token"))
            .then_some(())
    });
    let refused: Vec<String> =
        world.seed.requests().iter().filter(|r| r.status == 403).map(Recorded::line).collect();
    assert!(refused.iter().all(|line| line.contains("/gardener-resource-manager/token")), "{refused:?}");
    agent.stop();
}

/// The agent has worked for a while, and has a new certificate; then it stops.
fn gives_back(name: &'static str, resource_manager: Option<&str>, applier: &[Row]) {
    let world = World::start(&Options::calm(name));
    // The seed has a Shoot, which the agent checks.
    world.seed.apply(&prepare::access().1);
    let installation = upstream::leave(&world, End::Stopped);
    let agent = agent_with(&world, resource_manager);
    at_home(&world);
    let renew = json!({"metadata": {"annotations": {"gardener.cloud/operation": "renew"}}});
    let first = world.certificate_pem();
    world.seed.merge("", "secrets", ("garden", "gardenlet-kubeconfig"), &renew);
    world.seed.wait_for("another certificate", |_| {
        upstream::resource_manager_renews(&world);
        (world.certificate_pem() != first).then_some(())
    });
    let until = world.certificate().unwrap().not_after;
    world.garden.wait_for("its end in the Seed", |garden| {
        upstream::resource_manager_renews(&world);
        let seed = garden.seed(name)?;
        let told = from_rfc3339(text(&seed, "/status/clientCertificateExpirationTimestamp"));
        (told == Some(until) && seed["status"]["lastOperation"]["state"] == "Succeeded").then_some(())
    });
    a_new_value_while_the_resource_manager_lives(&world, &installation);
    if resource_manager.is_none() {
        upstream::resource_manager_ends(&world);
        agent.wait_until_the_seed_side_runs();
        greet(&world, "by ours");
        world
            .seed
            .wait_for("a value of ours", |_| (greeting(&world, &installation) == "by ours").then_some(()));
        crate::story_extension::installed(&world, "echo");
    }
    agent.stop();
    let found = Found::of(&world, &installation);
    assert_eq!(found.problems(applier), Vec::<String>::new());
    let rows = expected_by_the_go_gardenlet(&world, &installation);
    assert_eq!(found.problems(&rows), Vec::<String>::new());
    // The table must be able to find differences.
    for (object, ..) in &rows {
        let mut without = Found::of(&world, &installation);
        without.0.insert(object, Some(json!({"spec": {"holderIdentity": "x"}, "another": 1})));
        assert!(!without.problems(&rows).is_empty(), "{object}");
    }
}

#[test]
fn the_go_gardenlet_finds_its_objects_after_the_embedded_applier() {
    let applier = [
        ("applier", "/spec/holderIdentity", Is(json!("")), "gardener-resource-manager elects itself by it"),
        ("applier", "/spec/leaseDurationSeconds", Is(json!(1)), "as above"),
        ("applier", "/spec/renewTime", Like(MICRO_TIME), "as above"),
        (
            "resource manager",
            "/spec/replicas",
            Is(json!(0)),
            "as the operator left it; the Seed flow sets it",
        ),
    ];
    gives_back("returned", None, &applier);
}

#[test]
fn the_go_gardenlet_finds_its_objects_after_an_external_applier() {
    let applier = [
        ("applier", "/spec/holderIdentity", Is(json!(GRM_HOLDER)), "it goes on"),
        ("resource manager", "/spec/replicas", Is(json!(2)), "as upstream"),
    ];
    gives_back("lent", Some("External"), &applier);
}
