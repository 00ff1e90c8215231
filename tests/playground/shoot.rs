//! The Shoot of the story: what its owner applies, how far the agent is with it, and how its owner gets access.

use std::time::Duration;

use gardenlet::api::core;
use gardenlet::api::meta::{ALL_NAMESPACES, Key};
use gardenlet::base::clock::Timestamp;
use gardenlet::base::error::chain;
use gardenlet::kube::{self, Client, Connection, Error};
use gardenlet::pki::certificate::Certificate;
use serde_json::{Value, json};

use crate::World;
use crate::screen::Screen;
use support::controllers::Share;
use support::encoding::{from_base64, from_rfc3339, rfc3339};
use support::json::{entry, list, text};
use support::shoot::object::{self, MANAGED, PROJECT_NAMESPACE, ShootObject};
use support::shoot::owner::{self, connection};
use support::shoot::{Listen, Options, Site};
use support::{TestCluster, garden::Garden};

pub const NAME: &str = "first";
pub const NAMESPACE: &str = PROJECT_NAMESPACE;
const CORE: &str = "core.gardener.cloud";
/// Instead of the `minReadySeconds` of the workloads, for which a later reconciliation would wait half a minute.
pub const MIN_READY: Duration = Duration::from_secs(1);
/// What is real here and what is not.
pub const ABOUT: [&str; 4] = [
    "Real: the agent, everything it writes, its keys and certificates, each request over TLS.",
    "Simulated: the etcd of the Shoot is memory, and its API server is that of the tests, started with the Secrets and",
    "arguments that the agent writes. There is no node: pods run at once, and are available after one second instead of",
    "thirty. With a real node the same takes half a minute (tests/cluster).",
];

/// Prepares garden and seed for Shoots, and starts the stand-in for the nodes of the seed.
pub fn prepare(garden: &Garden, seed: &TestCluster) -> Site {
    object::prepare_garden(garden);
    object::prepare_seed(seed);
    site(seed)
}

/// Starts the stand-in for the nodes of the seed.
pub fn site(seed: &TestCluster) -> Site {
    let [node, class] = equipment();
    seed.apply(&[node.clone(), class]);
    seed.merge_status("", "nodes", ("", "node"), &json!({"status": node["status"]}));
    let options = Options { listen: Listen::NodePort, min_ready: Some(MIN_READY), ..Options::default() };
    Site::in_process_with(seed, Share::default(), options)
}

/// A node at the address of this machine, and a class of volumes.
fn equipment() -> [Value; 2] {
    let ready = json!({"type": "Ready", "status": "True"});
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "node"}, "status": {
        "conditions": [ready], "addresses": [{"type": "ExternalIP", "address": "127.0.0.1"}]}});
    let default = json!({"storageclass.kubernetes.io/is-default-class": "true"});
    let class = json!({"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": "local-path",
        "annotations": default}, "provisioner": "example.org/local"});
    [node, class]
}

/// Changes a configuration so that the agent exposes Shoots at ports of this machine.
pub fn configure(config: &mut Value) {
    object::make_edge(config);
    // At an address of the node of `site`.
    config["edge"]["exposure"] = json!({"type": "NodePort"});
}

/// What its owner applies.
pub fn manifest() -> Value {
    ShootObject::workerless(NAME).build()
}

/// The namespace of its control plane.
pub fn control_plane() -> String {
    object::technical_id(NAME)
}

/// The Shoot in the garden.
pub fn find(world: &World) -> Option<Value> {
    world.garden.get(CORE, "shoots", PROJECT_NAMESPACE, NAME)
}

/// `Create Succeeded, 100 %`
pub fn operation(shoot: &Value) -> String {
    let last = &shoot["status"]["lastOperation"];
    format!("{} {}, {} %", text(last, "/type"), text(last, "/state"), last["progress"])
}

/// Whether it is created, and everything that belongs into it is applied.
pub fn is_up(world: &World) -> Option<()> {
    let shoot = find(world)?;
    (operation(&shoot) == "Create Succeeded, 100 %" && unhealthy(world).is_empty()).then_some(())
}

/// Whether the agent reports that all its conditions are good.
pub fn is_healthy(world: &World) -> Option<()> {
    let status = entry(&find(world)?, "/metadata/labels", "shoot.gardener.cloud/status")? == "healthy";
    status.then_some(())
}

/// ManagedResources that are not applied and healthy.
pub fn unhealthy(world: &World) -> Vec<&'static str> {
    let is_well = |name: &str| {
        let managed = world.seed.get("resources.gardener.cloud", "managedresources", &control_plane(), name);
        let managed = managed.unwrap_or_default();
        let conditions = list(&managed, "/status/conditions");
        let is_true = |kind: &str| conditions.iter().any(|c| c["type"] == kind && c["status"] == "True");
        is_true("ResourcesApplied") && is_true("ResourcesHealthy")
    };
    MANAGED.into_iter().filter(|name| !is_well(name)).collect()
}

/// The kubeconfig that the garden issues to an administrator.
pub fn kubeconfig(world: &World) -> Result<String, String> {
    owner::kubeconfig(&world.garden, &Key::new(PROJECT_NAMESPACE, NAME)).map_err(|error| chain(&error))
}

/// Connects as kubectl does: through the machine's network, with nothing but the kubeconfig.
fn client(world: &World, connection: Connection) -> Client {
    Client::new(connection, kube::Options { clock: world.clock.clone(), ..kube::Options::default() }).unwrap()
}

/// What an administrator sees with the kubeconfig from the garden alone.
pub fn namespaces(world: &World) -> Result<Vec<Value>, String> {
    let client = client(world, connection(&kubeconfig(world)?));
    let mut all = Vec::new();
    let found = client
        .list_all(&core::NAMESPACE, ALL_NAMESPACES, &kube::ListParams::default(), &mut |one| all.push(one));
    found.map_err(|error| chain(&error))?;
    Ok(all)
}

/// The status with which the Shoot answers an administrator of the seed, whose certificate another CA has signed.
pub fn stranger(world: &World) -> u16 {
    let Ok(kubeconfig) = kubeconfig(world) else { return 0 };
    let other = world.seed.client_identity("admin", &["system:masters"]);
    let connection = connection(&kubeconfig).with_certificate(other.certificate, other.key);
    match client(world, connection).get::<Value>(&core::NAMESPACE, &Key::cluster("default")) {
        Err(Error::Api(failure)) => failure.code,
        Ok(_) => 200,
        Err(_) => 0,
    }
}

/// Shows how its owner gets access.
///
/// # Errors
/// The reason why the owner gets no access.
pub fn visit(world: &World, screen: &Screen) -> Result<(), String> {
    let text_of = kubeconfig(world)?;
    let parsed: Value = serde_json::from_str(&text_of).map_err(|error| error.to_string())?;
    let pem = from_base64(text(&parsed, "/users/0/user/client-certificate-data")).unwrap_or_default();
    let pem = String::from_utf8(pem).map_err(|error| error.to_string())?;
    let certificate = Certificate::parse_pem(&pem).map_err(|error| error.to_string())?;
    let (who, groups) = (&certificate.subject.common_name, certificate.subject.organizations.join(", "));
    let server = connection(&text_of).server;
    screen.say("garden", &format!("issues a kubeconfig for {server}"));
    let until = rfc3339(certificate.not_after);
    screen.say(
        "garden",
        &format!("signs its certificate with {NAME}.ca-client: {who} of {groups}, until {until}"),
    );
    screen.plain("\n             $ kubectl --kubeconfig=first.yaml get namespaces");
    let all = namespaces(world)?;
    for line in table(&all, world.clock.now()) {
        screen.plain(&format!("             {line}"));
    }
    Ok(())
}

/// Namespaces as kubectl shows them.
fn table(namespaces: &[Value], now: Timestamp) -> Vec<String> {
    let row = |name: &str, status: &str, age: &str| format!("{name:<17} {status:<8} {age}");
    let line = |namespace: &Value| {
        let born = from_rfc3339(text(namespace, "/metadata/creationTimestamp")).unwrap_or(now);
        let age = format!("{}s", now.since(born).as_secs());
        row(text(namespace, "/metadata/name"), text(namespace, "/status/phase"), &age)
    };
    std::iter::once(row("NAME", "STATUS", "AGE")).chain(namespaces.iter().map(line)).collect()
}
