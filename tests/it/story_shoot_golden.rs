//! The control plane of a Shoot with nodes, compared with that of the Go gardenlet, with one pool and with two. An extension
//! whose part the test plays makes the network of its pods and a runtime of its containers.

use std::collections::BTreeSet;

use gardenlet::format::yaml;
use serde_json::{Value, json};

use crate::charts;
use crate::left::Words;
use crate::nodes::{HOST, Nodes};
use crate::story_seed_objects::answer_in;
use crate::story_shoot_others::with_names;
use crate::world::{Options, World};
use support::garden::prepare;
use support::json::text;
use support::shoot::history::{wait_until, wait_until_created};
use support::shoot::object::{PROJECT_NAMESPACE, technical_id};

const NAME: &str = "w1";
const PLACE: (&str, &str) = (PROJECT_NAMESPACE, NAME);
const GROUP: &str = "extensions.gardener.cloud";
/// The type of network and container runtime.
const LAB: &str = "lab";
/// Kind and name of each object in the namespace of the Shoot `w1` of the Go gardenlet, and those that two pools add.
const ONE_POOL: &str = include_str!("../fixtures/control-plane/workers/names.txt");
const DIFFERENCES: &str = include_str!("../../docs/differences.md");
/// The headlines of the differences of each.
const OF_NODES: &str = "Objects of a namespace with nodes";
const OF_TWO_POOLS: &str = "Objects of a namespace with monitoring and addons";
const TWO_POOLS: &str = include_str!("../fixtures/control-plane/workers/names-two-pools.txt");
/// Objects that Kubernetes derives from workloads and Services.
const DERIVED: [&str; 9] = [
    "ControllerRevision",
    "Endpoints",
    "EndpointSlice",
    "Event",
    "Job",
    "Lease",
    "PersistentVolumeClaim",
    "Pod",
    "ReplicaSet",
];

/// Kind and name of each object in the namespace of the Shoot, without digests.
fn names(world: &World) -> BTreeSet<String> {
    let words = Words::new(&[(r"-[0-9a-f]{8}$", ""), (r"-[0-9a-f]{16}-", "-<key>-")]);
    let state = world.seed.store().read();
    let ours = state.objects.iter().filter(|(id, _)| id.namespace == technical_id(NAME));
    let kind =
        |plural: &str| state.kinds.all().find(|kind| kind.plural == plural).map(|kind| kind.kind.clone());
    ours.filter_map(|(id, _)| kind(&id.plural).map(|kind| format!("{kind} {}", words.clean(&id.name))))
        .filter(|name| name != "ConfigMap kube-root-ca.crt")
        .filter(|name| DERIVED.iter().all(|kind| !name.starts_with(&format!("{kind} "))))
        .collect()
}

/// Rows of the documentation: kinds and names in backquotes in the first column of the table below this headline. A `*` at
/// the end of a name matches the rest.
fn listed(headline: &str) -> Vec<&'static str> {
    let section = DIFFERENCES.split("\n## ").find(|section| section.starts_with(&format!("{headline}\n")));
    let rows = section.unwrap().lines().filter_map(|line| line.strip_prefix("| `"));
    let cells = rows.filter_map(|row| row.split(" | ").next());
    let quoted =
        cells.flat_map(|cell| cell.split('`').filter(|text| text.contains(' ') && !text.starts_with(',')));
    quoted.collect()
}

fn is_named(pattern: &str, name: &str) -> bool {
    pattern.strip_suffix('*').map_or(pattern == name, |start| name.starts_with(start))
}

/// The documentation lists each object that only one of the two programs has, and no other.
fn are_golden(world: &World, golden: &BTreeSet<&str>, what: &str) {
    let ours = names(world);
    let ours: BTreeSet<&str> = ours.iter().map(String::as_str).collect();
    let differ: BTreeSet<&str> = ours.symmetric_difference(golden).copied().collect();
    let own = listed(what);
    let all: Vec<&str> = ["Objects of a namespace", OF_NODES, what].into_iter().flat_map(listed).collect();
    let is_listed = |name: &&&str| all.iter().any(|pattern| is_named(pattern, name));
    let unlisted: Vec<&&str> = differ.iter().filter(|name| !is_listed(name)).collect();
    let is_outdated = |pattern: &&&str| !differ.iter().any(|name| is_named(pattern, name));
    let outdated: Vec<&&str> = own.iter().filter(is_outdated).collect();
    assert!(
        unlisted.is_empty() && outdated.is_empty(),
        "docs/differences.md: missing are {unlisted:#?}, and outdated are {outdated:#?}"
    );
}

/// An object without what differs in each run, and without its status.
fn comparable(mut object: Value) -> Value {
    let metadata = object["metadata"].as_object_mut().unwrap();
    metadata.retain(|field, _| ["annotations", "labels", "name", "namespace"].contains(&field.as_str()));
    if metadata.get("annotations").is_some_and(|all| all["gardener.cloud/timestamp"].is_string()) {
        metadata["annotations"]["gardener.cloud/timestamp"] = json!("<time>");
    }
    if object["spec"]["sshPublicKey"].is_string() {
        object["spec"]["sshPublicKey"] = json!("<key>");
    }
    object.as_object_mut().unwrap().remove("status");
    object
}

fn is_golden(world: &World, golden: &str, change: impl FnOnce(&mut Value)) {
    let mut golden = yaml::parse(golden).unwrap();
    change(&mut golden);
    let plural = format!("{}s", text(&golden, "/kind").to_lowercase());
    let found = world.seed.get(GROUP, &plural, &technical_id(NAME), text(&golden, "/metadata/name"));
    assert_eq!(comparable(found.unwrap()), comparable(golden));
}

/// What the garden has for it, except the project.
fn prepare_garden(world: &World) {
    let profile =
        yaml::parse_all(include_str!("../support/garden/shoot/golden/cloudprofile-and-project.yaml"));
    let mut profile = profile[0].value.clone().unwrap();
    let spec = &mut profile["spec"];
    spec["machineImages"][0]["versions"] = json!([{"version": "1.0.0"}, {"version": "1.1.0"}]);
    let mut large = spec["machineTypes"][0].clone();
    large["name"] = json!("lab-big");
    spec["machineTypes"].as_array_mut().unwrap().push(large);
    spec["seedSelector"] = json!({"providerTypes": ["*"]});
    let hosts = ["ControlPlane", "Infrastructure", "OperatingSystemConfig", "Worker"];
    let mut extension =
        prepare::extension("lab-network", &charts::extension(), &json!({"greeting": "hello"}));
    extension[1]["spec"]["resources"] =
        json!([{"kind": "Network", "type": LAB}, {"kind": "ContainerRuntime", "type": LAB}]);
    let binding = json!({"apiVersion": "security.gardener.cloud/v1alpha1", "kind": "CredentialsBinding",
        "metadata": {"name": "cb", "namespace": PROJECT_NAMESPACE}, "provider": {"type": LAB},
        "credentialsRef": {"apiVersion": "v1", "kind": "Secret", "namespace": PROJECT_NAMESPACE, "name": "creds"}});
    let secret = json!({"apiVersion": "v1", "kind": "Secret",
        "metadata": {"name": "creds", "namespace": PROJECT_NAMESPACE}, "stringData": {"labKey": "lab-value"}});
    world.garden.apply(&[profile, prepare::promise("lab-hosts", &hosts, LAB), secret, binding]);
    world.garden.apply(&extension);
}

/// The second pool of the Go gardenlet's Shoot, and what its owner changed besides.
fn second_pool(shoot: &Value) -> Value {
    let mut workers = shoot["spec"]["provider"]["workers"].clone();
    workers.as_array_mut().unwrap().push(json!({
        "name": "pool2", "minimum": 1, "maximum": 3,
        "annotations": {"example.org/note": "hello"}, "labels": {"example.org/team": "blue"},
        "cri": {"name": "containerd", "containerRuntimes": [{"type": LAB}]},
        "kubernetes": {"version": "1.33.5", "kubelet": {"maxPods": 60}},
        "machine": {"type": "lab-big", "image": {"name": LAB, "version": "1.1.0"}},
        "systemComponents": {"allow": false}, "sysctls": {"net.core.somaxconn": "1024"},
        "taints": [{"key": "example.org/dedicated", "value": "blue", "effect": "NoExecute"}]}));
    json!({"spec": {"provider": {"workers": workers}, "purpose": "evaluation",
        "kubernetes": {"kubelet": {"maxPods": 120}}, "systemComponents": {"nodeLocalDNS": {"enabled": true}},
        "addons": {"kubernetesDashboard": {"enabled": true}, "nginxIngress": {"enabled": true}}}})
}

#[test]
fn control_planes_with_nodes_are_those_of_the_go_gardenlet() {
    let world = World::start(&Options::new("shoot-golden"));
    let site = world.site();
    prepare_garden(&world);
    let mut config = with_names(&world);
    world.seed.delete("", "secrets", "garden", "wildcard");
    config["leaderElection"] = Nodes::Hosts.config(&world)["leaderElection"].clone();
    config["edge"]["hosts"] = json!({"types": [LAB]});
    let agent = world.agent_of(&site, &config);
    agent.launch();
    world.wait_until_ready();
    let mut shoot =
        yaml::parse(include_str!("../support/garden/shoot/golden/shoot-with-workers.yaml")).unwrap();
    shoot["spec"]["seedName"] = json!(world.name);
    // Hosts have neither, so their agent refuses them.
    for pool in shoot["spec"]["provider"]["workers"].as_array_mut().unwrap() {
        let pool = pool.as_object_mut().unwrap();
        pool.retain(|field, _| !["zones", "volume", "dataVolumes"].contains(&field.as_str()));
    }
    world.garden.apply(&[shoot]);
    let plane = technical_id(NAME);
    for name in ["w1-internal", "w1-external"] {
        answer_in(&world, "dnsrecords", (&plane, name), None);
    }
    answer_in(&world, "networks", (&plane, NAME), None);
    let shoot = wait_until_created(&world.garden, PLACE);
    site.server(&plane).unwrap().join(HOST, "pool1");

    is_golden(&world, include_str!("../fixtures/control-plane/workers/infrastructure-w1.yaml"), |_| {});
    // Hosts have no infrastructure that an extension could describe.
    is_golden(&world, include_str!("../fixtures/control-plane/workers/controlplane-w1.yaml"), |golden| {
        drop(golden["spec"].as_object_mut().unwrap().remove("infrastructureProviderStatus"));
    });
    is_golden(&world, include_str!("../fixtures/control-plane/workers/network-w1.yaml"), |_| {});
    let secret = world.seed.get("", "secrets", &plane, "cloudprovider").unwrap();
    assert_eq!(secret["data"], json!({"labKey": support::encoding::base64(b"lab-value")}));
    are_golden(&world, &ONE_POOL.lines().collect(), OF_NODES);

    world.garden.merge("core.gardener.cloud", "shoots", PLACE, &second_pool(&shoot));
    answer_in(&world, "containerruntimes", (&plane, "lab-pool2"), None);
    answer_in(&world, "networks", (&plane, NAME), None);
    wait_until(&world.garden, PLACE, "Reconcile Succeeded 100");
    is_golden(
        &world,
        include_str!("../fixtures/control-plane/workers/containerruntime-lab-pool2.yaml"),
        |_| {},
    );
    are_golden(&world, &ONE_POOL.lines().chain(TWO_POOLS.lines()).collect(), OF_TWO_POOLS);
    agent.stop();
}
