//! The Shoot of the story: what its owner applies, how far it is, and how its owner gets in.

use std::path::Path;
use std::time::Duration;

use gardenlet::api::core::NAMESPACE;
use gardenlet::api::gardener::SHOOT;
use gardenlet::base::clock::Timestamp;
use gardenlet::base::error::chain;
use gardenlet::kube::{self, Client, Connection, Error};
use gardenlet::pki::certificate::Certificate;
use serde_json::{Value, json};

use crate::World;
use crate::screen::Screen;
use crate::support::controllers::Share;
use crate::support::encoding::{from_base64, from_rfc3339, rfc3339};
use crate::support::json::{list, text};
use crate::support::shoot::object::{self, MANAGED, PROJECT_NAMESPACE, Workerless};
use crate::support::shoot::{Listen, Options, Site};
use crate::support::{TestCluster, garden::Garden};

pub const NAME: &str = "first";
const CORE: &str = "core.gardener.cloud";
/// `minReadySeconds` of the kube-apiserver are thirty. Nobody wants to watch them go by.
pub const MIN_READY: Duration = Duration::from_secs(1);
/// What a reader may believe.
pub const ABOUT: [&str; 4] = [
    "Real: the agent, what it writes, its keys and certificates, each request over TLS.",
    "Stand-ins: its etcd, which is memory, and its API server, which begins with the Secrets and arguments",
    "that the agent gives it. There is no node: pods run at once, and count as available after one second,",
    "not thirty. A real node needs most of a minute for all of it (tests/cluster).",
];

/// What garden and seed need for Shoots, and who plays the nodes of the seed.
pub fn prepare(garden: &Garden, seed: &TestCluster) -> Site {
    object::prepare_garden(garden);
    object::prepare_seed(seed);
    let options = Options { listen: Listen::NodePort, min_ready: Some(MIN_READY), ..Options::default() };
    Site::in_process_with(seed, Share::default(), options)
}

/// Makes a configuration that of an agent whose Shoots are reached at a port of this machine.
pub fn configure(config: &mut Value) {
    object::make_edge(config);
    config["edge"]["exposure"] = json!({"type": "NodePort", "address": "127.0.0.1"});
}

/// What its owner applies.
pub fn manifest() -> Value {
    Workerless::new(NAME).build()
}

/// The namespace of its control plane.
pub fn control_plane() -> String {
    object::technical_id(NAME)
}

/// As the garden has it.
pub fn find(world: &World) -> Option<Value> {
    world.garden.get(CORE, "shoots", PROJECT_NAMESPACE, NAME)
}

/// `Create Succeeded, 100 %`
pub fn operation(shoot: &Value) -> String {
    let last = &shoot["status"]["lastOperation"];
    format!("{} {}, {} %", text(last, "/type"), text(last, "/state"), last["progress"])
}

/// Whether it is created, and everything is applied that belongs into it.
pub fn is_up(world: &World) -> Option<()> {
    let shoot = find(world)?;
    (operation(&shoot) == "Create Succeeded, 100 %" && unhealthy(world).is_empty()).then_some(())
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
    let body = json!({"apiVersion": "authentication.gardener.cloud/v1alpha1", "kind": "AdminKubeconfigRequest",
        "spec": {"expirationSeconds": 3_600}});
    let client = world.garden.client();
    let answer: Value = client
        .create_sub(&SHOOT, PROJECT_NAMESPACE, NAME, "adminkubeconfig", &body)
        .map_err(|error| chain(&error))?;
    let decoded = from_base64(text(&answer, "/status/kubeconfig")).unwrap_or_default();
    String::from_utf8(decoded).map_err(|error| error.to_string())
}

/// A connection as a kubeconfig says.
fn connection(kubeconfig: &str) -> Connection {
    kube::kubeconfig::parse(kubeconfig, Path::new("/")).unwrap().select("").unwrap()
}

/// As kubectl would connect: through the machine's network, with nothing but the kubeconfig.
fn client(world: &World, connection: Connection) -> Client {
    Client::new(connection, kube::Options { clock: world.clock.clone(), ..kube::Options::default() }).unwrap()
}

/// What an administrator sees with the kubeconfig from the garden alone.
pub fn namespaces(world: &World) -> Result<Vec<Value>, String> {
    let client = client(world, connection(&kubeconfig(world)?));
    let mut all = Vec::new();
    let found = client.list_all(&NAMESPACE, "", &kube::ListParams::default(), &mut |one| all.push(one));
    found.map_err(|error| chain(&error))?;
    Ok(all)
}

/// What the Shoot says to an administrator of the seed, whose certificate another CA has signed.
pub fn stranger(world: &World) -> u16 {
    let Ok(kubeconfig) = kubeconfig(world) else { return 0 };
    let other = world.seed.client_identity("admin", &["system:masters"]);
    let connection = connection(&kubeconfig).with_certificate(other.certificate, other.key);
    match client(world, connection).get::<Value>(&NAMESPACE, "", "default") {
        Err(Error::Api(failure)) => failure.code,
        Ok(_) => 200,
        Err(_) => 0,
    }
}

/// Shows how its owner gets in.
///
/// # Errors
/// Why it did not work.
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
