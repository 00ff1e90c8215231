//! A Seed is deleted completely: the agent's objects, the leftovers of a Go gardenlet, and the definitions, unless they
//! have objects of other owners. Until then objects that extensions manage are protected from accidental deletion.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use gardenlet::api::extensions::EXTENSION;
use gardenlet::api::meta::{Key, Resource};
use gardenlet::components::crds;
use gardenlet::kube::{Client, DeleteParams, Error, ListParams, Patch};
use serde_json::{Value, json};

use crate::faultpoints::{Fault, FaultPoints, Outcome, Point, change_nothing};
use crate::left::Words;
use crate::upstream::{self, End};
use crate::world::{Agent, CORE, MANAGED_RESOURCES, Options, World};
use support::TestCluster;
use support::api::crd::made_by;
use support::api::store::Id;
use support::garden::prepare;
use support::http::faults::Seen;
use support::json::text;

const CRDS: &str = "apiextensions.k8s.io";
const DEFINITIONS: &str = "customresourcedefinitions";
const ADMISSION: &str = "admissionregistration.k8s.io";
const GROUP: &str = "extensions.gardener.cloud";
const CONFIRMATION: &str = "confirmation.gardener.cloud/deletion";
const MACHINE: (&str, &str) = ("machine.sapcloud.io", "machines");
const LAST: &str = "managedresources.resources.gardener.cloud";

fn delete_seed(world: &World) {
    world.garden.delete(CORE, "seeds", "", world.name);
}

fn wait_until_gone(world: &World) {
    world.garden.wait_for("the end of the Seed", |g| g.seed(world.name).is_none().then_some(()));
}

/// Waits until the operation of the deletion reports what it waits for.
fn says(world: &World, words: &[&str]) {
    world.garden.wait_for(&format!("a deletion with {words:?}"), |garden| {
        let operation = garden.seed(world.name)?["status"]["lastOperation"].clone();
        let description = text(&operation, "/description");
        let is_it = operation["type"] == "Delete" && operation["state"] == "Processing";
        (is_it && words.iter().all(|word| description.contains(word))).then_some(())
    });
}

fn definitions(seed: &TestCluster) -> Vec<String> {
    seed.store().names(CRDS, DEFINITIONS, "")
}

/// A definition of a kind without a schema, as another owner would install it.
fn definition(plural: &str, group: &str, version: &str) -> Value {
    let schema = json!({"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}});
    json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.{group}")},
        "spec": {"group": group, "scope": "Namespaced", "names": {"plural": plural, "kind": format!("Kind{plural}")},
            "versions": [{"name": version, "served": true, "storage": true, "schema": schema}]}})
}

/// Marks a program of this name as the creator of the object.
fn name_maker(seed: &TestCluster, (group, plural, namespace, name): (&str, &str, &str, &str), manager: &str) {
    seed.store().write(|state| {
        let id = Id::new(group, plural, namespace, name);
        let mut object = Value::clone(&state.objects[&id]);
        object["metadata"]["managedFields"] = made_by(manager);
        state.put(id, object);
    });
}

/// The positions of requests in their order.
fn place(lines: &[String], part: &str) -> usize {
    lines.iter().position(|line| line.contains(part)).unwrap_or_else(|| panic!("there is no request {part}"))
}

fn deletions(world: &World) -> Vec<String> {
    let all = world.seed.requests();
    let ours = all
        .iter()
        .filter(|r| r.method == "DELETE" && r.user_agent.starts_with("gardenlet/") && r.status < 300);
    ours.map(|request| format!("{}$", request.path)).collect()
}

#[test]
fn a_seed_is_deleted_with_the_objects_made_for_it() {
    let world = World::start(&Options::new("finished"));
    let seed = &world.seed;
    // An operator has installed one of the definitions, and another object.
    let autoscalers = crds::Foreign { is_garden: false, vpa: true, machines: false, etcd: false };
    seed.apply(&crds::foreign(autoscalers).collect::<Vec<_>>());
    seed.apply(&[definition("things", "example.org", "v1")]);
    let agent = world.agent();
    world.wait_until_ready();
    assert!(definitions(seed).len() > 20);
    let policies = || seed.store().names(ADMISSION, "validatingadmissionpolicies", "");
    assert_eq!(policies().len(), 2);
    delete_seed(&world);
    wait_until_gone(&world);
    assert_eq!(
        definitions(seed),
        [
            "things.example.org",
            "verticalpodautoscalercheckpoints.autoscaling.k8s.io",
            "verticalpodautoscalers.autoscaling.k8s.io"
        ]
    );
    assert_eq!(
        (policies(), seed.store().names("scheduling.k8s.io", "priorityclasses", "")),
        (vec![], vec![])
    );
    assert!(
        seed.get("", "secrets", "garden", "gardenlet-kubeconfig").is_some(),
        "the Secret of the agent was deleted"
    );
    let deleted = deletions(&world);
    let system = place(&deleted, "/managedresources/system$");
    let first = place(&deleted, "/customresourcedefinitions/");
    assert!(
        place(&deleted, "/managedresources/cluster-identity$") < system && system < first,
        "{deleted:#?}"
    );
    assert!(deleted.last().unwrap().contains(LAST), "{deleted:#?}");
    // After a restart the agent joins again.
    agent.stop();
    agent.launch();
    world.wait_until_ready();
    assert_eq!(policies().len(), 2);
    agent.stop();
}

/// Definitions of the Go gardenlet that this agent does not install, at least one of each group.
const OF_GO: [(&str, &str, &str); 13] = [
    ("persistentvolumeclaimautoscalers", "autoscaling.gardener.cloud", "v1alpha1"),
    ("wasmplugins", "extensions.istio.io", "v1alpha1"),
    ("fluentbits", "fluentbit.fluent.io", "v1alpha2"),
    ("servicemonitors", "monitoring.coreos.com", "v1"),
    ("destinationrules", "networking.istio.io", "v1beta1"),
    ("gateways", "networking.istio.io", "v1beta1"),
    ("virtualservices", "networking.istio.io", "v1beta1"),
    ("opentelemetrycollectors", "opentelemetry.io", "v1beta1"),
    ("vlsingles", "operator.victoriametrics.com", "v1"),
    ("perses", "perses.dev", "v1alpha2"),
    ("persesdashboards", "perses.dev", "v1alpha2"),
    ("authorizationpolicies", "security.istio.io", "v1"),
    ("telemetries", "telemetry.istio.io", "v1"),
];

/// Objects that it writes without a ManagedResource.
const OBJECTS: [(&str, &str, &str, &str); 8] = [
    ("autoscaling.k8s.io/v1", "verticalpodautoscalers", "garden", "gardenlet-vpa"),
    ("autoscaling.k8s.io/v1", "verticalpodautoscalers", "garden", "gardener-resource-manager-vpa"),
    ("monitoring.coreos.com/v1", "servicemonitors", "garden", "seed-gardener-resource-manager"),
    ("networking.istio.io/v1beta1", "destinationrules", "default", "kube-apiserver-ingress"),
    ("networking.istio.io/v1beta1", "gateways", "garden", "kube-apiserver-ingress"),
    ("networking.istio.io/v1beta1", "virtualservices", "garden", "kube-apiserver-ingress"),
    ("policy/v1", "poddisruptionbudgets", "garden", "gardener-resource-manager"),
    ("v1", "services", "garden", "gardener-resource-manager"),
];

/// Operators, and the objects they manage.
const COMPONENTS: [&str; 6] = [
    "dependency-watchdog-weeder",
    "etcd-druid",
    "fluent-bit",
    "fluent-operator",
    "victoria-logs",
    "victoria-operator",
];

/// The objects of a Go gardenlet besides those of [`upstream::leave`].
fn leave(world: &World) {
    upstream::leave(world, End::Stopped);
    let seed = &world.seed;
    for (plural, group, version) in OF_GO {
        seed.apply(&[definition(plural, group, version)]);
        seed.wait_for(plural, |seed| seed.api().kind(group, plural));
    }
    for name in definitions(seed) {
        name_maker(seed, (CRDS, DEFINITIONS, "", &name), "gardenlet");
    }
    for (version, plural, namespace, name) in OBJECTS {
        let group = version.split_once('/').map_or("", |(group, _)| group);
        if seed.get(group, plural, namespace, name).is_none() {
            let kind = seed.api().kind(group, plural).unwrap().kind.clone();
            let ports = json!({"ports": [{"port": 443}]});
            seed.create(
                version,
                plural,
                &json!({"kind": kind, "metadata": {"namespace": namespace, "name": name}, "spec": ports}),
            );
        }
    }
    name_maker(seed, ("apps", "deployments", upstream::GRM.0, upstream::GRM.1), "gardenlet");
    for name in COMPONENTS {
        let map = format!(
            "apiVersion: v1\ndata:\n  a: b\nkind: ConfigMap\nmetadata:\n  name: {name}\n  namespace: garden\n"
        );
        upstream::component(world, name, &map);
    }
    let role =
        |name: &str| json!({"metadata": {"name": name, "labels": {"gardener.cloud/role": "istio-system"}}});
    seed.create("v1", "namespaces", &role("istio-system"));
    let labels = json!({"gardener.cloud/role": "seed-system-component"});
    for name in ["istio", "istio-system"] {
        let secret = format!("managedresource-{name}-e3b0c442");
        seed.create("v1", "secrets", &json!({"metadata": {"namespace": "istio-system", "name": secret}}));
        seed.apply(&[json!({"apiVersion": "resources.gardener.cloud/v1alpha1", "kind": "ManagedResource",
            "metadata": {"namespace": "istio-system", "name": name, "labels": labels},
            "spec": {"class": "seed", "secretRefs": [{"name": secret}]}})]);
    }
}

#[test]
fn leftovers_of_a_go_gardenlet_are_deleted_in_order() {
    let world = World::start(&Options::new("inherited"));
    // The seed has the namespace of a Shoot.
    world.seed.apply(&prepare::access().1);
    leave(&world);
    let seed = &world.seed;
    // An operator of the seed has changed this one, and a foreign component has no label.
    name_maker(seed, (CRDS, DEFINITIONS, "", "perses.perses.dev"), "kubectl-edit");
    let agent = world.agent();
    world.wait_until_ready();
    delete_seed(&world);
    // A forgotten Shoot has left these.
    says(&world, &["definition clusters.extensions.gardener.cloud of", "shoot--a--b (no finalizers)"]);
    seed.delete(GROUP, "clusters", "", "shoot--a--b");
    says(
        &world,
        &[
            "definition managedresources.resources.gardener.cloud of",
            "shoot--a--b/shoot-core (no finalizers)",
        ],
    );
    seed.delete(MANAGED_RESOURCES, "managedresources", "shoot--a--b", "shoot-core");
    wait_until_gone(&world);
    assert_eq!(definitions(seed), ["perses.perses.dev"]);
    for (version, plural, namespace, name) in OBJECTS {
        let group = version.split_once('/').map_or("", |(group, _)| group);
        assert_eq!(seed.get(group, plural, namespace, name), None, "{plural} {name}");
    }
    assert_eq!(seed.get("apps", "deployments", upstream::GRM.0, upstream::GRM.1), None);
    assert_eq!(seed.get("", "namespaces", "", "istio-system"), None);
    for name in COMPONENTS {
        assert_eq!(seed.get("", "configmaps", "garden", name), None, "{name}");
    }
    let deleted = deletions(&world);
    let at = |name: &str| place(&deleted, &format!("/managedresources/{name}$"));
    assert!(
        at("fluent-bit") < at("fluent-operator") && at("victoria-logs") < at("victoria-operator"),
        "{deleted:#?}"
    );
    assert!(COMPONENTS.iter().all(|name| at(name) < at("system")), "{deleted:#?}");
    assert!(at("istio-system") < place(&deleted, "/namespaces/istio-system$"), "{deleted:#?}");
    assert!(at("system") < place(&deleted, "/deployments/gardener-resource-manager$"), "{deleted:#?}");
    assert!(deleted.last().unwrap().contains(LAST), "{deleted:#?}");
    agent.stop();
}

#[test]
fn objects_of_others_hold_their_definition_and_are_listed() {
    let world = World::start(&Options::new("shared"));
    let seed = &world.seed;
    let agent = world.agent();
    world.wait_until_ready();
    let machine = |name: &str, finalizers: Value| {
        json!({"apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "Machine",
            "metadata": {"namespace": "default", "name": name, "finalizers": finalizers}})
    };
    seed.apply(&[machine("a", json!(["example.org/hold"])), machine("b", json!([]))]);
    let echo = json!({"apiVersion": "extensions.gardener.cloud/v1alpha1", "kind": "Extension",
        "metadata": {"namespace": "default", "name": "of-somebody"}, "spec": {"type": "x", "class": "garden"}});
    seed.apply(&[echo]);
    delete_seed(&world);
    let extensions =
        "definition extensions.extensions.gardener.cloud of the seed cluster is deleted with the Seed";
    says(&world, &[extensions, "default/of-somebody (no finalizers). Delete them"]);
    world.wait_for_log(&["WARN", "The Seed cannot be deleted yet", "seed=shared", "default/of-somebody"]);
    // Other deletions do not wait for it, and there are not too many requests.
    seed.wait_for("the deletion of unused objects", |seed| {
        (!definitions(seed).iter().any(|name| name == "workers.extensions.gardener.cloud")).then_some(())
    });
    let mark = seed.request_count();
    let begun = world.clock.mono();
    let listed = |r: &&support::http::record::Recorded| {
        r.info.verb == "list" && r.info.resource == "machines" && r.user_agent.starts_with("gardenlet/")
    };
    let looks = crate::world::wait_for("five minutes and five looks", || {
        let looks = seed.requests_since(mark).iter().filter(listed).count();
        let is_over = world.clock.mono().saturating_sub(begun) > Duration::from_secs(300);
        (is_over && looks >= 5).then_some(looks)
    });
    let minutes = world.minutes_since(begun);
    assert!(looks <= 8 * minutes, "{looks} looks in {minutes} minutes");
    seed.delete(GROUP, "extensions", "default", "of-somebody");
    says(
        &world,
        &[
            "definition machines.machine.sapcloud.io of",
            "default/a (finalizers: example.org/hold), default/b (no finalizers)",
        ],
    );
    seed.delete(MACHINE.0, MACHINE.1, "default", "b");
    seed.delete(MACHINE.0, MACHINE.1, "default", "a");
    says(&world, &["default/a (deleting, finalizers: example.org/hold)"]);
    // The definition that installs all others is the last one.
    assert!(definitions(seed).iter().any(|name| name == LAST));
    seed.merge(MACHINE.0, MACHINE.1, ("default", "a"), &json!({"metadata": {"finalizers": null}}));
    wait_until_gone(&world);
    assert_eq!(definitions(seed), Vec::<String>::new());
    agent.stop();
}

fn is_refused(result: Result<(), Error>) -> bool {
    matches!(result, Err(Error::Api(failure)) if failure.code == 403
        && failure.message.contains("must have a \"confirmation.gardener.cloud/deletion\" annotation to delete"))
}

fn delete(client: &Client, resource: &Resource, (namespace, name): (&str, &str)) -> Result<(), Error> {
    client.delete(resource, &Key::new(namespace, name), &DeleteParams::default())
}

#[test]
fn objects_that_extensions_manage_are_protected_from_deletion() {
    let world = World::start(&Options::new("protected"));
    let agent = world.agent();
    world.wait_until_ready();
    let (seed, client) = (&world.seed, world.seed.client());
    let object = |name: &str| {
        json!({"apiVersion": "extensions.gardener.cloud/v1alpha1", "kind": "Extension",
            "metadata": {"namespace": "default", "name": name}, "spec": {"type": "x", "class": "garden"}})
    };
    seed.apply(&["a", "b", "c", "d"].map(object));
    assert!(is_refused(delete(&client, &EXTENSION, ("default", "a"))));
    let all = ListParams::default();
    let delete_all = || client.delete_collection(&EXTENSION, "default", &all, &DeleteParams::default());
    assert!(is_refused(delete_all()));
    assert_eq!(seed.store().names(GROUP, "extensions", "default").len(), 4);
    let confirm = |name: &str, value: &str| {
        let patch = Patch::Merge(json!({"metadata": {"annotations": {CONFIRMATION: value}}}));
        client.patch::<Value>(&EXTENSION, &Key::new("default", name), &patch).unwrap();
    };
    confirm("a", "yes");
    assert!(is_refused(delete(&client, &EXTENSION, ("default", "a"))));
    for (name, value) in [("a", "1"), ("b", "t"), ("c", "true")] {
        confirm(name, value);
        delete(&client, &EXTENSION, ("default", name)).unwrap();
    }
    confirm("d", "true");
    delete_all().unwrap();
    assert_eq!(seed.store().names(GROUP, "extensions", "default"), Vec::<String>::new());
    let definition = gardenlet::api::crd::CUSTOM_RESOURCE_DEFINITION;
    assert!(is_refused(delete(&client, &definition, ("", "workers.extensions.gardener.cloud"))));
    seed.apply(&[self::definition("things", "example.org", "v1")]);
    delete(&client, &definition, ("", "things.example.org")).unwrap();
    agent.stop();
}

/// In this case gardener-resource-manager adds the protection.
#[test]
fn another_applier_protects_from_deletion_too() {
    let world = World::start(&Options::new("external"));
    let mut config = world.config();
    config["edge"]["resourceManager"] = json!("External");
    let agent = world.agent_with(&config);
    let managed = world.seed.wait_for("ManagedResource system", |seed| {
        seed.get(MANAGED_RESOURCES, "managedresources", "garden", "system")
    });
    let secret = world.seed.get("", "secrets", "garden", text(&managed, "/spec/secretRefs/0/name")).unwrap();
    let stream = support::encoding::from_base64(text(&secret, "/data/data.yaml.br")).unwrap();
    let manifests = String::from_utf8(gardenlet::format::brotli::decode(&stream, 1 << 20).unwrap()).unwrap();
    assert!(
        manifests.contains("PriorityClass") && !manifests.contains("ValidatingAdmissionPolicy"),
        "{manifests}"
    );
    agent.stop();
}

fn is_of_the_seed(seen: &Seen) -> bool {
    let kinds = ["managedresources", DEFINITIONS, "seeds", "namespaces", "extensions", "deployments"];
    kinds.contains(&seen.info.resource.as_str())
}

/// A deletion of a Seed with components of a Go gardenlet and a foreign object, with a kill after one write or without
/// a kill.
fn run(at: Option<&Point>) -> Outcome {
    let world = World::start(&Options::new("killed"));
    let seed = &world.seed;
    seed.apply(&crds::managed_resource().collect::<Vec<_>>());
    seed.wait_for("the kind", |seed| seed.api().kind(MANAGED_RESOURCES, "managedresources"));
    for name in ["fluent-operator", "fluent-bit"] {
        let map = format!(
            "apiVersion: v1\ndata:\n  a: b\nkind: ConfigMap\nmetadata:\n  name: {name}\n  namespace: garden\n"
        );
        upstream::unapplied_component(&world, name, &map);
    }
    let mut config = world.config();
    config["leaderElection"] = json!({"leaderElect": false});
    let agent = Arc::new(Agent::new(&world, "host-1", &config, world.pod()));
    agent.launch();
    world.wait_until_ready();
    let machine = json!({"apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "Machine",
        "metadata": {"namespace": "default", "name": "a"}});
    seed.apply(&[machine]);
    let points = FaultPoints::of(&world, &agent, at, is_of_the_seed);
    delete_seed(&world);
    world.garden.wait_for("the end of the Seed", |garden| {
        let Some(live) = garden.seed(world.name) else { return Some(()) };
        points.restart_if_due();
        let why = text(&live, "/status/lastOperation/description");
        if why.contains("default/a (no finalizers)")
            && seed.get(MACHINE.0, MACHINE.1, "default", "a").is_some()
        {
            seed.delete(MACHINE.0, MACHINE.1, "default", "a");
        }
        None
    });
    let words = Words::new(&[]);
    let counts = |id: &Id| {
        [CRDS, ADMISSION, "scheduling.k8s.io", MANAGED_RESOURCES, GROUP].contains(&id.group.as_str())
    };
    let objects = words.left_in(seed, counts);
    // The very last write needs no restart.
    drop(catch_unwind(AssertUnwindSafe(|| agent.crash())));
    Outcome { objects, points, problems: Vec::new() }
}

#[test]
fn a_kill_changes_nothing_for_the_deletion_of_a_seed() {
    let run = |at: Option<&Point>| {
        let outcome = run(at);
        assert_eq!(outcome.objects, []);
        outcome
    };
    change_nothing("kills after writes of a Seed's deletion", &[(Fault::KillAfter, 4, 70)], &run(None), &run);
}

/// The garden runs in the cluster of the seed: its objects stay.
#[test]
fn deleting_a_seed_in_the_cluster_of_its_garden_keeps_the_garden() {
    let world = World::start(&Options::new("hosting"));
    crate::role::put_garden_into(&world.seed);
    world.seed.apply(&crds::all().collect::<Vec<_>>());
    world.seed.wait_for("the kind", |seed| seed.api().kind(MANAGED_RESOURCES, "managedresources"));
    upstream::unapplied_component(
        &world,
        "garden-system",
        "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: x\n  namespace: garden\n",
    );
    let mut config = world.config();
    config["edge"]["resourceManager"] = json!("External");
    let agent = world.agent_with(&config);
    world.garden.wait_for("the Seed to be ready", |_| {
        let (status, ..) = world.seed_condition("GardenletReady")?;
        (status == "True").then_some(())
    });
    let before = definitions(&world.seed);
    delete_seed(&world);
    // There is no applier, so no object is deleted.
    world.garden.delete(CORE, "controllerregistrations", "", prepare::PROVIDER);
    world.garden.wait_for("the end of the Seed", |garden| {
        for managed in world.seed.store().list(MANAGED_RESOURCES, "managedresources", "") {
            let name = text(&managed, "/metadata/name");
            assert!(
                name != "garden-system" || managed["metadata"]["deletionTimestamp"].is_null(),
                "{managed}"
            );
            if managed["metadata"]["deletionTimestamp"].is_string() {
                let none = json!({"metadata": {"finalizers": null}});
                world.seed.merge(MANAGED_RESOURCES, "managedresources", ("garden", name), &none);
            }
        }
        garden.seed(world.name).is_none().then_some(())
    });
    let after = definitions(&world.seed);
    assert!(before.iter().all(|name| after.contains(name)), "{after:?}");
    agent.stop();
}
