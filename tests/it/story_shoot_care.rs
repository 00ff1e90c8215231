//! The conditions of a Shoot follow the state of its control plane, with and without thresholds, and while the garden
//! is away.

use std::time::Duration;

use gardenlet::base::clock::Timestamp;
use serde_json::{Value, json};

use crate::charts;
use crate::story_extension::installed;
use crate::story_offline::pass;
use crate::story_operating::Desk;
use crate::world::{
    AGENT, Agent, CORE, LEASES, MANAGED_RESOURCES, Options, World, condition_texts, wait_for,
};
use support::TestCluster;
use support::encoding::{base64, from_rfc3339, rfc3339_micro};
use support::json::{list, text};
use support::shoot::history::wait_until_created;
use support::shoot::object::{self, PROJECT_NAMESPACE, ShootObject, technical_id};
use support::shoot::{Site, Trouble};

pub const NAME: &str = "s1";
pub const PLACE: (&str, &str) = (PROJECT_NAMESPACE, NAME);
const SERVER: &str = "APIServerAvailable";
const PLANE: &str = "ControlPlaneHealthy";
const OBSERVABILITY: &str = "ObservabilityComponentsHealthy";
const SYSTEM: &str = "SystemComponentsHealthy";
const MANAGED: &str = "resources.gardener.cloud/v1alpha1";

/// A configuration of a seed at the edge.
pub fn config(world: &World) -> Value {
    let mut config = world.edge_config();
    config["edge"]["exposure"] = json!({"type": "NodePort", "address": "127.0.0.1"});
    config
}

/// A world with a healthy Shoot.
pub fn cared_for(world: &World, site: &Site, config: &Value) -> Agent {
    let agent = world.agent_of(site, config);
    agent.launch();
    world.wait_until_ready();
    world.garden.apply(&[ShootObject::workerless(NAME).build()]);
    wait_until_created(&world.garden, PLACE);
    wait_until_well(world);
    agent
}

pub fn wait_until_well(world: &World) {
    for (kind, reason) in [
        (SERVER, "HealthzRequestSucceeded"),
        (PLANE, "ControlPlaneRunning"),
        (OBSERVABILITY, "ObservabilityComponentsRunning"),
        (SYSTEM, "SystemComponentsRunning"),
    ] {
        wait_for_condition(world, kind, "True", reason);
    }
    // A separate request writes the label later.
    wait_for("a healthy Shoot", || {
        let shoot = world.garden.get(CORE, "shoots", PLACE.0, PLACE.1)?;
        (shoot["metadata"]["labels"]["shoot.gardener.cloud/status"] == "healthy").then_some(())
    });
}

fn find(shoot: &Value, list_of: &str, kind: &str) -> Option<Value> {
    list(shoot, &format!("/status/{list_of}")).iter().find(|c| c["type"] == kind).cloned()
}

/// Waits for status and reason in one of the lists.
pub fn wait_for_entry(world: &World, list_of: &str, (kind, status, reason): (&str, &str, &str)) -> Value {
    let last = std::cell::RefCell::new(Value::Null);
    let found = world.garden.wait_on(&support::pace::clock(), support::cluster::PATIENCE, |garden| {
        let found = find(&garden.get(CORE, "shoots", PLACE.0, PLACE.1)?, list_of, kind)?;
        let is_it = found["status"] == status && found["reason"] == reason;
        last.replace(found.clone());
        is_it.then_some(found)
    });
    found.unwrap_or_else(|| panic!("waited in vain for {kind} {status} {reason}: {}", last.borrow()))
}

fn wait_for_condition(world: &World, kind: &str, status: &str, reason: &str) -> Value {
    wait_for_entry(world, "conditions", (kind, status, reason))
}

/// Waits until a constraint disappears.
pub fn wait_until_absent(world: &World, kind: &str) {
    wait_for(&format!("{kind} to vanish"), || {
        let shoot = world.garden.get(CORE, "shoots", PLACE.0, PLACE.1)?;
        find(&shoot, "constraints", kind).is_none().then_some(())
    });
}

/// `explain` names the cause.
fn is_explained(world: &World, words: &[&str]) {
    let told = Desk::new(world, object::make_edge).explain(&["shoot", &format!("{}/{}", PLACE.0, PLACE.1)]);
    assert!(words.iter().all(|word| told.contains(word)), "{words:?}: {told}");
}

fn since(condition: &Value) -> Timestamp {
    from_rfc3339(text(condition, "/lastTransitionTime")).unwrap()
}

/// A ManagedResource in the namespace of the Shoot whose manifest is not YAML.
fn install_sick(seed: &TestCluster, name: &str, class: &Value, label: &str) {
    let mut metadata = json!({"name": name, "namespace": technical_id(NAME)});
    let data = json!({"k": base64(b"a: [")});
    seed.create("v1", "secrets", &json!({"metadata": metadata, "data": data}));
    if !label.is_empty() {
        metadata["labels"] = json!({"care.gardener.cloud/condition-type": label});
    }
    let spec = json!({"class": class, "secretRefs": [{"name": name}]});
    seed.create(
        MANAGED,
        "managedresources",
        &json!({"apiVersion": MANAGED, "kind": "ManagedResource", "metadata": metadata, "spec": spec}),
    );
}

/// kube-controller-manager starts last, and no task waits for it.
#[test]
fn a_control_plane_that_has_just_started_may_settle() {
    let world = World::start(&Options::new("shoot-settles"));
    let site = world.site();
    let agent = world.agent_of(&site, &config(&world));
    agent.launch();
    world.wait_until_ready();
    site.trouble(&technical_id(NAME), "kube-controller-manager", Some(Trouble::NoImage));
    world.garden.apply(&[ShootObject::workerless(NAME).build()]);
    let shoot = wait_until_created(&world.garden, PLACE);
    let created = from_rfc3339(text(&shoot, "/status/lastOperation/lastUpdateTime")).unwrap();
    wait_for_condition(&world, PLANE, "Progressing", "DeploymentUnhealthy");
    let ill = wait_for_condition(&world, PLANE, "False", "DeploymentUnhealthy");
    assert!(since(&ill).since(created) > Duration::from_secs(60), "{ill} {created:?}");
    site.trouble(&technical_id(NAME), "kube-controller-manager", None);
    wait_until_well(&world);
    agent.stop();
}

#[test]
fn conditions_become_bad_and_good_again() {
    let world = World::start(&Options::new("shoot-cared"));
    let site = world.site();
    let agent = cared_for(&world, &site, &config(&world));
    let (namespace, seed) = (technical_id(NAME), &world.seed);
    let shoot = site.server(&namespace).unwrap();

    // The API server reports that it is unhealthy, goes away, and comes back.
    let sick = shoot.cluster.faults().on("GET", "/healthz").answer(500);
    let told = wait_for_condition(&world, SERVER, "False", "HealthzRequestError");
    assert!(text(&told, "/message").contains("status code 500"), "{told}");
    sick.cancel();
    wait_for_condition(&world, SERVER, "True", "HealthzRequestSucceeded");
    let (cut, begun) = (shoot.cluster.server(), world.clock.now());
    cut.down();
    let down = wait_for_condition(&world, SERVER, "False", "APIServerDown");
    wait_for_condition(&world, SYSTEM, "Unknown", "ConditionCheckError");
    world.measured("until a server counts as down", since(&down).since(begun), Duration::from_secs(60));
    is_explained(&world, &[SERVER, "APIServerDown"]);
    // The check continues although the seed has lost the object meanwhile: the applier knows the address.
    seed.delete("", "secrets", &namespace, "gardener-internal");
    let before = site.routes().dials(&namespace);
    wait_for("more attempts", || (site.routes().dials(&namespace) >= before + 4).then_some(()));
    let ended = world.clock.now();
    cut.up().unwrap();
    let up = wait_for_condition(&world, SERVER, "True", "HealthzRequestSucceeded");
    world.measured("until a server counts as up", since(&up).since(ended), Duration::from_secs(30));
    wait_until_well(&world);

    // An etcd is missing.
    let etcd = seed.get("apps", "statefulsets", &namespace, "etcd-events").unwrap();
    seed.delete("apps", "statefulsets", &namespace, "etcd-events");
    wait_for_condition(&world, PLANE, "False", "EtcdMissing");
    let again = json!({"metadata": {"name": "etcd-events", "namespace": namespace, "labels": etcd["metadata"]["labels"]},
        "spec": etcd["spec"]});
    seed.create("apps/v1", "statefulsets", &again);
    wait_for_condition(&world, PLANE, "True", "ControlPlaneRunning");

    // A foreign Deployment counts, too.
    site.trouble(&namespace, "foreign", Some(Trouble::NoImage));
    let labels = json!({"app": "foreign"});
    let template =
        json!({"metadata": {"labels": labels}, "spec": {"containers": [{"name": "x", "image": "x:v1"}]}});
    let metadata = json!({"name": "foreign", "namespace": namespace,
        "labels": {"gardener.cloud/role": "controlplane"}});
    seed.create(
        "apps/v1",
        "deployments",
        &json!({"metadata": metadata,
        "spec": {"replicas": 1, "selector": {"matchLabels": labels}, "template": template}}),
    );
    let told = wait_for_condition(&world, PLANE, "False", "DeploymentUnhealthy");
    assert!(text(&told, "/message").starts_with("Deployment \"foreign\" is unhealthy: "), "{told}");
    site.trouble(&namespace, "foreign", None);
    wait_for_condition(&world, PLANE, "True", "ControlPlaneRunning");

    // The class and the label of a ManagedResource select the condition to which it contributes.
    for (kind, class, label) in
        [(PLANE, json!("seed"), ""), (SYSTEM, Value::Null, ""), (OBSERVABILITY, json!("seed"), OBSERVABILITY)]
    {
        install_sick(seed, "sick", &class, label);
        wait_for_condition(&world, kind, "False", "DecodingFailed");
        seed.delete(MANAGED_RESOURCES, "managedresources", &namespace, "sick");
        seed.delete("", "secrets", &namespace, "sick");
        wait_until_well(&world);
    }

    // An ignored one is a constraint.
    let name = "shoot-core-namespaces";
    let ignore = |value: Value| {
        let annotations = json!({"resources.gardener.cloud/ignore": value});
        seed.merge(
            MANAGED_RESOURCES,
            "managedresources",
            (&namespace, name),
            &json!({"metadata": {"annotations": annotations}}),
        );
    };
    ignore(json!("true"));
    let told = wait_for_entry(
        &world,
        "constraints",
        ("HasIgnoredManagedResources", "False", "ManagedResourcesIgnored"),
    );
    assert!(text(&told, "/message").ends_with(name), "{told}");
    ignore(Value::Null);
    wait_until_absent(&world, "HasIgnoredManagedResources");
    agent.stop();
    assert_eq!(site.complaints(), Vec::<String>::new());
}

/// While another holder has its Lease and does nothing, the applier of the agent does nothing, either.
#[test]
fn an_applier_that_has_stopped_is_reported() {
    let world = World::start(&Options::new("shoot-unserved"));
    let site = world.site();
    let agent = cared_for(&world, &site, &config(&world));
    let lease = ("garden", "gardener-resource-manager");
    let taken = json!({"spec": {"holderIdentity": "somebody-else", "leaseDurationSeconds": 36_000,
        "renewTime": rfc3339_micro(world.clock.now())}});
    world.seed.merge(LEASES, "leases", lease, &taken);
    let told = wait_for_condition(&world, PLANE, "False", "ResourceManagerNotServing");
    assert!(text(&told, "/message").contains("somebody-else"), "{told}");
    is_explained(&world, &[PLANE, "ResourceManagerNotServing"]);
    world.seed.delete(LEASES, "leases", lease.0, lease.1);
    wait_until_well(&world);
    agent.stop();
}

/// The agent checks the CAs when it starts.
#[test]
fn a_ca_that_expires_within_a_year_is_a_constraint() {
    let world = World::start(&Options::new("shoot-aged"));
    let site = world.site();
    let mut config = config(&world);
    config["controllers"]["shoot"] = json!({"reconcileInMaintenanceOnly": true});
    let agent = world.agent_of(&site, &config);
    agent.launch();
    world.wait_until_ready();
    let window = json!({"timeWindow": {"begin": "030000+0000", "end": "040000+0000"}});
    world.garden.apply(&[ShootObject::workerless(NAME).with("/spec/maintenance", window).build()]);
    wait_until_created(&world.garden, PLACE);
    wait_until_well(&world);
    agent.stop();
    let (namespace, seed) = (technical_id(NAME), &world.seed);
    let until = world.clock.now().unix() + 300 * 86_400;
    let ca = seed.store().list("", "secrets", &namespace).into_iter().find(|secret| {
        let labels = &secret["metadata"]["labels"];
        labels["name"] == "ca-client" && labels["persist"] == "true"
    });
    let ca = text(&ca.unwrap(), "/metadata/name").to_owned();
    let labels = json!({"valid-until-time": until.to_string()});
    seed.merge("", "secrets", (&namespace, &ca), &json!({"metadata": {"labels": labels}}));
    agent.launch();
    let kind = "CACertificateValiditiesAcceptable";
    let told = wait_for_entry(&world, "constraints", (kind, "False", "ExpiringCACertificates"));
    assert!(text(&told, "/message").contains("\"ca-client\" (expiring at "), "{told}");

    // The secrets manager reverts a change of its label.
    let operation = json!({"metadata": {"annotations": {"gardener.cloud/operation": "reconcile"}}});
    world.garden.merge(CORE, "shoots", PLACE, &operation);
    wait_until_absent(&world, kind);
    agent.stop();
}

#[test]
fn a_threshold_delays_conditions() {
    let world = World::start(&Options::new("shoot-patient"));
    let site = world.site();
    let mut config = config(&world);
    config["controllers"]["shootCare"]["conditionThresholds"] = json!([{"type": SERVER, "duration": "1m"}]);
    let agent = cared_for(&world, &site, &config);
    // The operation is no longer recent.
    world.pass(Duration::from_secs(120));
    let shoot = site.server(&technical_id(NAME)).unwrap();
    let begun = world.clock.now();
    let sick = shoot.cluster.faults().on("GET", "/healthz").answer(500);
    let worried = wait_for_condition(&world, SERVER, "Progressing", "HealthzRequestError");
    let failed = wait_for_condition(&world, SERVER, "False", "HealthzRequestError");
    for (told, seconds) in [(&worried, 60), (&failed, 180)] {
        let what = format!("until {SERVER} is {}", text(told, "/status"));
        world.measured(&what, since(told).since(begun), Duration::from_secs(seconds));
    }
    // The garden stores whole seconds.
    assert!(since(&failed).since(since(&worried)) >= Duration::from_secs(60), "{worried} {failed}");
    sick.cancel();
    wait_until_well(&world);
    agent.stop();
}

#[test]
fn a_garden_that_comes_back_gets_the_conditions_with_their_times() {
    let world = World::start(&Options::new("shoot-remote"));
    let site = world.site();
    let agent = cared_for(&world, &site, &config(&world));
    let shoot = site.server(&technical_id(NAME)).unwrap();
    world.garden.server().down();
    let sick = shoot.cluster.faults().on("GET", "/healthz").answer(500);
    let asked = shoot.cluster.request_count();
    // The agent checks it again and again, although it cannot report the result.
    world.seed.wait_for("looks at the API server", |_| {
        let requests = shoot.cluster.requests_since(asked);
        let refused = requests.iter().filter(|r| r.path == "/healthz" && r.status == 500).count();
        (refused >= 6).then_some(())
    });
    pass(&world, Duration::from_secs(120), Duration::from_secs(5));
    let back = world.clock.now();
    world.garden.server().up().unwrap();
    let told = wait_for_condition(&world, SERVER, "False", "HealthzRequestError");
    assert!(since(&told) < back.minus(Duration::from_secs(60)), "{told} {back:?}");
    sick.cancel();
    wait_until_well(&world);

    // A healthy Shoot causes no writes in the garden.
    let mark = world.garden.request_count();
    world.pass(Duration::from_secs(180));
    let writes =
        world.garden.requests_since(mark).into_iter().filter(|r| r.is_write() && r.path.contains("/shoots/"));
    assert_eq!(writes.map(|r| r.line()).collect::<Vec<_>>(), Vec::<String>::new());
    agent.stop();
}

/// The conditions that an extension writes for its Shoot in this object.
fn report(world: &World, status: &str, codes: &[&str]) {
    let condition = json!({"type": PLANE, "status": status, "reason": "Backend", "message": "no quota", "codes": codes,
        "lastTransitionTime": "2026-01-01T00:00:00Z", "lastUpdateTime": "2026-01-01T00:00:00Z"});
    let status = json!({"status": {"conditions": [condition]}});
    let place = (technical_id(NAME), "echo");
    world.seed.merge_status("extensions.gardener.cloud", "extensions", (&place.0, place.1), &status);
}

fn beat(world: &World, namespace: &str) {
    let renewed = json!({"spec": {"renewTime": rfc3339_micro(world.clock.now())}});
    world.seed.merge(LEASES, "leases", (namespace, "gardener-extension-heartbeat"), &renewed);
}

#[test]
fn conditions_of_extensions_count_while_they_are_alive() {
    let world = World::start(&Options::new("shoot-extended"));
    let site = world.site();
    world.extend("echo", &charts::extension(), &json!({"greeting": "hello"}));
    let agent = cared_for(&world, &site, &config(&world));
    let namespace = format!("extension-{}", installed(&world, "echo"));
    let lease = json!({"metadata": {"name": "gardener-extension-heartbeat", "namespace": namespace},
        "spec": {"holderIdentity": "echo", "leaseDurationSeconds": 30}});
    world.seed.create("coordination.k8s.io/v1", "leases", &lease);
    beat(&world, &namespace);
    let object = |name: &str| {
        json!({"apiVersion": "extensions.gardener.cloud/v1alpha1", "kind": "Extension",
            "metadata": {"name": name, "namespace": technical_id(NAME)}, "spec": {"type": name}})
    };
    world.seed.create("extensions.gardener.cloud/v1alpha1", "extensions", &object("echo"));

    report(&world, "False", &["ERR_INFRA_QUOTA_EXCEEDED"]);
    let told = wait_for_condition(&world, PLANE, "False", "ExtensionUnhealthyReport");
    assert_eq!(told["codes"], json!(["ERR_INFRA_QUOTA_EXCEEDED"]));
    assert!(text(&told, "/message").contains("no quota"), "{told}");
    beat(&world, &namespace);
    report(&world, "Progressing", &[]);
    let told = wait_for_condition(&world, PLANE, "Progressing", "ExtensionBackend");
    assert_eq!(told["codes"], Value::Null);
    beat(&world, &namespace);
    report(&world, "True", &[]);
    wait_for_condition(&world, PLANE, "True", "ControlPlaneRunning");

    // Conditions of an extension that was silent for too long do not count.
    world.pass(Duration::from_secs(320));
    let told = wait_for_condition(&world, PLANE, "Unknown", "ExtensionOutdatedHealthCheckReport");
    assert_eq!(condition_texts(&told).0, "Unknown");
    is_explained(&world, &[PLANE, "ExtensionOutdatedHealthCheckReport", "Extension \"echo\""]);
    beat(&world, &namespace);
    wait_for_condition(&world, PLANE, "True", "ControlPlaneRunning");

    // Next to an object without an extension, no object counts.
    report(&world, "False", &[]);
    wait_for_condition(&world, PLANE, "False", "ExtensionUnhealthyReport");
    world.seed.create("extensions.gardener.cloud/v1alpha1", "extensions", &object("nobodys"));
    wait_for_condition(&world, PLANE, "True", "ControlPlaneRunning");
    let warning = "Ignoring the conditions that extensions report for the Shoot";
    world.wait_for_log(&[warning, "no ControllerRegistration serves Extension/nobodys"]);
    agent.stop();
}

/// A hibernated Shoot gets no requests.
#[test]
fn a_hibernated_shoot_gets_no_requests_from_care() {
    let world = World::start(&Options::new("shoot-dreams"));
    let site = world.site();
    let agent = world.agent_of(&site, &config(&world));
    agent.launch();
    world.wait_until_ready();
    world.garden.apply(&[ShootObject::workerless(NAME).hibernated().build()]);
    wait_until_created(&world.garden, PLACE);
    for kind in [SERVER, PLANE, OBSERVABILITY, SYSTEM] {
        wait_for_condition(&world, kind, "True", "ConditionNotChecked");
    }
    for kind in [
        "HibernationPossible",
        "MaintenancePreconditionsSatisfied",
        "CACertificateValiditiesAcceptable",
        "CRDsWithProblematicConversionWebhooks",
    ] {
        wait_for_entry(&world, "constraints", (kind, "True", "ConstraintNotChecked"));
    }
    let mark = world.seed.request_count();
    world.pass(Duration::from_secs(300));
    let asked = world.seed.requests_since(mark).into_iter().filter(|r| {
        r.user == AGENT
            && r.info.verb == "list"
            && ["deployments", "statefulsets"].contains(&r.info.resource.as_str())
    });
    assert_eq!(asked.map(|r| r.line()).collect::<Vec<_>>(), Vec::<String>::new());
    assert!(site.server(&technical_id(NAME)).is_none_or(|server| server.cluster.requests().is_empty()));
    agent.stop();
}
