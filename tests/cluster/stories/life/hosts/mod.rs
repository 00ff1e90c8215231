//! Shoots with a pool of hosts.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use gardenlet::api::core::{CONFIG_MAP, SECRET};
use gardenlet::api::gardener::SHOOT;
use gardenlet::api::meta::Key;
use gardenlet::kube::{Client, Method};
use serde_json::{Value, json};

use super::end;
use super::garden::apply;
use super::owner::Owner;
use super::scene::Scene;
use super::{Name, PROJECT, ask_for_another, shoot, succeeded};
use crate::cluster::Cluster;
use crate::failure::{Failure, Result, ensure, equal};
use crate::host::{self, ControlPlane, Host, HostSettings};
use crate::image;
use crate::lab::Lab;
use crate::outside;
use crate::stories::steps;
use crate::wait;
use crate::world;

mod apart;
pub(super) mod days;
pub(crate) mod moving;
pub(super) mod pair;
pub(super) mod restarts;
pub(super) mod script;
pub(super) mod versions;

/// The type of infrastructure in `packaging/edge-hosts`, and the name of its binding.
const HOSTS: &str = "hosts";
/// The Shoot with a pool.
const POOL: Name = Name("h");
/// The images of the pods of each host, and those in the seed.
const ON_HOST: [image::Component; 4] = [image::TUNNEL_AGENT, image::PROXY, image::DNS, image::METRICS_SERVER];
const IN_SEED: [image::Component; 2] = [image::SCHEDULER, image::TUNNEL_SERVER];
const KUBELET_PORT: u16 = 10_250;
/// The beginning of what the pod answers.
const ANSWER: &str = "serve\n8080";
/// CoreDNS says that it is ready after half a minute.
const NAME_WITHIN_S: u64 = 120;
/// metrics-server asks the kubelets each minute, and needs two answers.
const USAGE_WITHIN_S: u64 = 240;
/// Where it answers, through the API server.
const ANSWER_PATH: &str = "/api/v1/namespaces/default/pods/served:8080/proxy/";
/// Care looks each minute.
const WELL_WITHIN_S: u64 = 240;
const FORWARDED_PORT: u16 = 18_080;
const DIAL_WITHIN: Duration = Duration::from_secs(5);
const ACCOUNT_WITHIN_S: u64 = 60;
const NODE_READY_WITHIN_S: u64 = 120;
const POD_READY_WITHIN_S: u64 = 120;
/// The server of the tunnel: its Deployment and its container.
const TUNNEL_SERVER: &str = "konnectivity-server";

/// A pod runs on a host to which no connection leads from the seed. Its log and an answer of it come through the tunnel, and the
/// Shoot is deleted. The normal run has no metrics-server.
pub(crate) fn run_a_pod(lab: &mut Lab, scene: &mut Scene) -> Result<()> {
    joins(lab, scene, &ON_HOST[..3])?;
    serves(&scene.owner(lab, POOL)?)?;
    goes(lab, scene)
}

/// The same host, with everything that it needs.
pub(super) fn comes(lab: &mut Lab, scene: &mut Scene) -> Result<()> {
    joins(lab, scene, &ON_HOST)?;
    serves(&scene.owner(lab, POOL)?)
}

/// Its owner uses the host in every way, and its conditions are good.
pub(super) fn is_used(lab: &mut Lab, scene: &mut Scene) -> Result<()> {
    comes(lab, scene)?;
    let owner = scene.owner(lab, POOL)?;
    forwards_a_port(lab, &owner)?;
    finds_a_service(&owner)?;
    says_what_is_used(&owner)?;
    // Now there is a kubelet that the API server must reach.
    ask_for_another(&scene.garden, POOL)?;
    succeeded(lab, &scene.garden, &mut scene.agent, (POOL, "Reconcile"))?;
    is_well(&scene.garden)
}

/// The Shoot is deleted; its kubelet ends the pods.
pub(super) fn goes(lab: &mut Lab, scene: &mut Scene) -> Result<()> {
    end::goes(lab, &scene.garden, &mut scene.agent, (&scene.before, POOL))?;
    scene.host = None;
    Ok(())
}

/// The Shoot is deleted by force, without its API server. Its host stays as it is: nobody can ask it for anything.
pub(super) fn goes_by_force(lab: &mut Lab, scene: &mut Scene) -> Result<()> {
    end::force_needs_no_server(lab, &scene.garden, &mut scene.agent, (&scene.before, POOL))?;
    machine_runs(scene)?;
    scene.host = None;
    Ok(())
}

fn machine_runs(scene: &mut Scene) -> Result<()> {
    let host = scene.host.as_mut().ok_or_else(|| Failure::new("no host has joined"))?;
    host.ensure_running()?;
    let served = host.containers.process_of("served")?;
    ensure(served.is_some(), || "the pod of the host has ended".to_owned())
}

/// A Shoot with a pool is created, and a host joins it.
fn joins(lab: &mut Lab, scene: &mut Scene, on_host: &[image::Component]) -> Result<()> {
    scene.import(lab, &IN_SEED)?;
    scene.agent.reconfigure(|config| config["edge"]["hosts"] = json!({"types": [HOSTS]}))?;
    steps::ready(lab, &mut scene.agent)?;
    apply_files(&lab.garden)?;
    lab.garden.apply(&pool())?;
    succeeded(lab, &scene.garden, &mut scene.agent, (POOL, "Create"))?;
    is_served(lab, &scene.garden)?;
    let owner = scene.owner(lab, POOL)?;
    owner.gets_in(image::API_SERVER.version())?;
    let machine = join(lab, (&scene.garden, &owner), host::FIRST, on_host)?;
    drop(owner);
    scene.host = Some(machine);
    Ok(())
}

/// What a garden needs for such Shoots.
fn apply_files(garden: &Cluster) -> Result<()> {
    ["edge-hosts/hosts.yaml", "edge-hosts/project.yaml", "edge-hosts/credentials.yaml"]
        .into_iter()
        .try_for_each(|file| apply(garden, file))
}

/// A host joins, and is ready. No connection leads from the seed to it.
fn join(
    lab: &Lab,
    (garden, owner): (&Client, &Owner<'_>),
    settings: HostSettings,
    images: &[image::Component],
) -> Result<Host> {
    has_a_place(owner, settings.node.name)?;
    let server = server_of(garden, outside::INSIDE_ADDRESS)?;
    let plane = ControlPlane { namespace: &POOL.plane(), server: &server };
    let mut machine = Host::start(lab, settings, plane, images)?;
    is_ready(owner, &mut machine)?;
    let kubelet = SocketAddr::new(settings.node.ip()?, KUBELET_PORT);
    let direct = TcpStream::connect_timeout(&kubelet, DIAL_WITHIN);
    ensure(direct.is_err(), || "a connection from the seed reaches the kubelet".to_owned())?;
    Ok(machine)
}

/// The owner says to which pool a host belongs for which no script was printed.
fn has_a_place(owner: &Owner<'_>, name: &str) -> Result<()> {
    let pools = ["configmap", "edge-hosts", "--namespace=kube-system"];
    if owner.kubectl(&[&["create"], &pools[..]].concat()).is_err() {
        // A host before it has made it.
        owner.kubectl(&[&["get"], &pools[..]].concat())?;
    }
    let entry = json!({"data": {name: host::POOL}}).to_string();
    owner.kubectl(&[&["patch"], &pools[..], &["--type=merge", "--patch", &entry]].concat()).map(drop)
}

/// The URL of the Shoot, which has this address.
fn server_of(garden: &Client, address: &str) -> Result<String> {
    let found = garden.get::<Value>(&SHOOT, &Key::new(PROJECT, POOL.0))?;
    let server = found["status"]["advertisedAddresses"][0]["url"].as_str().unwrap_or_default().to_owned();
    ensure(server.contains(address), || format!("the address of the Shoot: {server}"))?;
    Ok(server)
}

/// Waits until the node is ready.
fn is_ready(owner: &Owner<'_>, machine: &mut Host) -> Result<()> {
    wait::until("the node to be ready", NODE_READY_WITHIN_S, || {
        machine.ensure_running()?;
        Ok::<_, Failure>((readiness(owner, machine.name())? == "True").then_some(()))
    })
}

/// The status of a node's condition `Ready`.
fn readiness(owner: &Owner<'_>, node: &str) -> Result<String> {
    condition(owner, node, "Ready")
}

/// The status of a condition of a node.
fn condition(owner: &Owner<'_>, node: &str, kind: &str) -> Result<String> {
    let status = format!("jsonpath={{.status.conditions[?(@.type=='{kind}')].status}}");
    owner.kubectl(&["get", "node", node, "--output", &status])
}

/// The path that leads to the kubelet of the first host.
fn kubelet() -> String {
    kubelet_of(host::NAME)
}

/// The path that leads to the kubelet of a host.
fn kubelet_of(node: &str) -> String {
    format!("/api/v1/nodes/{node}/proxy/healthz")
}

/// A pod runs on the host, and its log and an answer of it come through the tunnel.
fn serves(owner: &Owner<'_>) -> Result<()> {
    // Controllers make it in each new namespace.
    wait::until("the account of pods", ACCOUNT_WITHIN_S, || {
        owner.kubectl(&["get", "serviceaccount", "default"]).map(Some)
    })?;
    // A host that was set up by hand has the image, and another one pulls it.
    let image = format!("--image={}", image::SERVE);
    owner.kubectl(&["run", "served", &image, "--image-pull-policy=IfNotPresent", "--port=8080"])?;
    runs(owner, "served")?;
    let log = wait::until("the log of the pod", POD_READY_WITHIN_S, || {
        owner.kubectl(&["logs", "served"]).map(Some)
    })?;
    ensure(log.contains("serves port 8080"), || format!("the log of the pod: {log}"))?;
    let answer = owner.kubectl(&["get", "--raw", ANSWER_PATH])?;
    ensure(answer.contains(ANSWER), || format!("the answer of the pod: {answer}"))
}

/// Waits until a pod runs.
fn runs(owner: &Owner<'_>, pod: &str) -> Result<()> {
    wait::until("the pod to be ready", POD_READY_WITHIN_S, || {
        let phase = owner.kubectl(&["get", "pod", pod, "--output=jsonpath={.status.phase}"])?;
        if phase == "Running" {
            return Ok(Some(()));
        }
        let about = owner.kubectl(&["describe", "pod", pod])?;
        Err(Failure::new(format!("{phase}\n{about}")))
    })
}

/// Whether a path of the Shoot is answered.
fn is_good(client: &Client, path: &str) -> Result<()> {
    let answer = client.raw(Method::Get, path, None, "")?;
    ensure(answer.status == 200, || String::from_utf8_lossy(&answer.body).into_owned())
}

/// Waits until all conditions of the Shoot are True.
fn is_well(garden: &Client) -> Result<()> {
    wait::until("all conditions of the Shoot to be True", WELL_WITHIN_S, || {
        let shoot = garden.get::<Value>(&SHOOT, &Key::new(PROJECT, POOL.0))?;
        let conditions = shoot["status"]["conditions"].as_array().cloned().unwrap_or_default();
        let ill: Vec<&Value> = conditions.iter().filter(|condition| condition["status"] != "True").collect();
        if ill.is_empty() && conditions.iter().any(|condition| condition["type"] == "EveryNodeReady") {
            return Ok(Some(()));
        }
        Err(Failure::new(format!("{ill:?}")))
    })
}

/// Waits until a condition of the Shoot is not True for this reason.
fn is_unwell(garden: &Client, kind: &str, reason: &str) -> Result<()> {
    wait::until(&format!("condition {kind} not to be True"), WELL_WITHIN_S, || {
        let shoot = garden.get::<Value>(&SHOOT, &Key::new(PROJECT, POOL.0))?;
        let conditions = shoot["status"]["conditions"].as_array().cloned().unwrap_or_default();
        let found = conditions.iter().find(|it| it["type"] == kind).unwrap_or(&Value::Null);
        if found["status"] != "True" && found["message"].as_str().is_some_and(|it| it.contains(reason)) {
            return Ok(Some(()));
        }
        Err(Failure::new(found.to_string()))
    })
}

/// The agent serves the type itself, and passes credentials on to seed and garden.
fn is_served(lab: &Lab, garden: &Client) -> Result<()> {
    let conditions = "jsonpath={range .items[?(@.spec.registrationRef.name=='edge-hosts')].status.conditions[*]}{.type}={.status} {end}";
    let conditions = lab.garden.kubectl(&["get", "controllerinstallations", "--output", conditions])?;
    for expected in ["Valid=True", "Installed=True", "Healthy=True", "Progressing=False", "Required=False"] {
        ensure(conditions.contains(expected), || format!("the installation of edge-hosts: {conditions}"))?;
    }
    let secret = lab.seed.client()?.get::<Value>(&SECRET, &Key::new(POOL.plane(), "cloudprovider"))?;
    equal("the purpose", &secret["metadata"]["labels"], &json!({"gardener.cloud/purpose": "cloudprovider"}))?;
    for (kind, name, field) in [(&CONFIG_MAP, "ca-kubelet", "ca.crt"), (&SECRET, "ssh-keypair", "id_rsa.pub")]
    {
        let copy = garden.get::<Value>(kind, &Key::new(PROJECT, format!("{}.{name}", POOL.0)))?;
        ensure(copy["data"][field].is_string(), || format!("{name} in the garden has no {field}"))?;
    }
    Ok(())
}

/// Another way through the tunnel: a connection that carries any protocol.
fn forwards_a_port(lab: &Lab, owner: &Owner<'_>) -> Result<()> {
    let mut forwarding = owner.forward(lab, "pod/served", &format!("{FORWARDED_PORT}:8080"))?;
    let answer = wait::until("the forwarded port", POD_READY_WITHIN_S, || {
        forwarding.ensure_running()?;
        let mut stream = TcpStream::connect(SocketAddr::from(([127, 0, 0, 1], FORWARDED_PORT)))?;
        stream.write_all(b"GET / HTTP/1.0\r\n\r\n")?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        Ok::<_, Failure>(answer.contains(ANSWER).then_some(()))
    });
    forwarding.kill();
    answer
}

/// CoreDNS knows the name of a Service, kube-proxy its address, and a command runs in a pod.
fn finds_a_service(owner: &Owner<'_>) -> Result<()> {
    owner.kubectl(&["expose", "pod", "served", "--port=80", "--target-port=8080"])?;
    owner.kubectl(&[
        "run",
        "tools",
        &format!("--image={}", image::TOOLS),
        "--image-pull-policy=IfNotPresent",
    ])?;
    let ask = ["exec", "tools", "--", "/bin/busybox", "wget", "-q", "-O", "-", "http://served.default/"];
    wait::until("the answer of a Service", NAME_WITHIN_S, || {
        let answer = owner.kubectl(&ask)?;
        Ok::<_, Failure>(answer.contains(ANSWER).then_some(()))
    })
}

/// An API whose server is a pod: the API server reaches it through the tunnel.
fn says_what_is_used(owner: &Owner<'_>) -> Result<()> {
    wait::until("what the node and the pods use", USAGE_WITHIN_S, || {
        let nodes = owner.kubectl(&["top", "node", host::NAME, "--no-headers"])?;
        let pods = owner.kubectl(&["top", "pod", "served", "--no-headers"])?;
        Ok::<_, Failure>((nodes.starts_with(host::NAME) && pods.starts_with("served")).then_some(()))
    })
}

fn pool() -> Value {
    let mut shoot = shoot(POOL, image::API_SERVER.version());
    let machine =
        json!({"type": "host", "architecture": "amd64", "image": {"name": "host", "version": "1.0.0"}});
    shoot["spec"]["provider"]["type"] = json!(HOSTS);
    // The garden looks for a Seed of the same type otherwise.
    shoot["spec"]["seedName"] = json!(world::SEED);
    shoot["spec"]["cloudProfile"] = json!({"kind": "CloudProfile", "name": HOSTS});
    shoot["spec"]["credentialsBindingName"] = json!(HOSTS);
    shoot["spec"]["provider"]["workers"] =
        json!([{"name": host::POOL, "machine": machine, "minimum": 1, "maximum": 1}]);
    shoot["spec"]["networking"] = json!({
        "type": "none", "nodes": "10.67.0.0/24", "pods": "100.96.0.0/11", "services": "100.64.0.0/13"});
    shoot
}
