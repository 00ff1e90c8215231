//! Bad days of the tunnel: what public reports tell of, on a host that is a node.

use std::collections::BTreeMap;
use std::time::Duration;

use gardenlet::api::core::SERVICE;
use gardenlet::api::meta::Key;
use gardenlet::base::clock::Clock;
use gardenlet::base::stop::Stop;
use gardenlet::base::thread;
use gardenlet::kube::{Client, Method, Patch};
use serde_json::{Value, json};

use super::super::owner::Owner;
use super::super::rotation::{ask_for, reached};
use super::super::scene::Scene;
use super::super::{ask_for_another, sleep, succeeded};
use super::restarts::Calls;
use super::{ANSWER_PATH, KUBELET_PORT, POD_READY_WITHIN_S, POOL, TUNNEL_SERVER};
use super::{is_good, is_ready, is_well, kubelet, readiness, serves};
use crate::failure::{Failure, Result, ensure};
use crate::host::{self, Host};
use crate::lab::Lab;
use crate::node::Containers;
use crate::process;
use crate::wait;

/// How long packets are dropped.
const DROPPED_FOR_S: u64 = 120;
/// The tunnel is back this long after its network.
const BACK_WITHIN_S: u64 = 60;
/// Logs that are asked for while no kubelet answers, and how many at once.
const LOGS: usize = 1_000;
const AT_ONCE: usize = 50;
const LOG_WITHIN: Duration = Duration::from_secs(3);
/// How much more memory server and agent may hold afterwards, in kB, and how many more goroutines.
const GROWTH_MAX_KB: i64 = 24_000;
const GOROUTINES_MAX: i64 = 40;
const CALM_WITHIN_S: u64 = 120;
const ROTATED_WITHIN_S: u64 = 600;
/// Without a call that succeeds while the CAs of the tunnel are rotated.
const ROTATION_GAP_MAX_S: f64 = 30.0;
/// Where server and agent tell about themselves, each in its own network.
const ADMIN: &str = "http://127.0.0.1:8133/metrics";
const AGENT: &str = "konnectivity-agent";
const EXPOSURE: &str = "kube-apiserver-exposure";

pub(super) fn machine(scene: &Scene) -> Result<&Host> {
    scene.host.as_ref().ok_or_else(|| Failure::new("no host has joined"))
}

/// A rule of the host's packet filter, until it is dropped.
pub(super) struct Rule<'a> {
    host: &'a Host,
    rule: String,
}

impl<'a> Rule<'a> {
    fn add(host: &'a Host, rule: &str) -> Result<Self> {
        let rule = Self { host, rule: rule.to_owned() };
        rule.change("--insert")?;
        Ok(rule)
    }

    fn change(&self, action: &str) -> Result<()> {
        let mut command = self.host.command("iptables")?;
        process::run(command.args(["--wait", action]).args(self.rule.split(' '))).map(drop)
    }
}

impl Drop for Rule<'_> {
    fn drop(&mut self) {
        if let Err(failure) = self.change("--delete") {
            println!("       a rule of the host stays: {failure}");
        }
    }
}

/// Drops the packets of the tunnel in both directions.
pub(super) fn cut_off(host: &Host, port: i64) -> Result<[Rule<'_>; 2]> {
    let out = Rule::add(host, &format!("OUTPUT --protocol tcp --dport {port} --jump DROP"))?;
    Ok([out, Rule::add(host, &format!("INPUT --protocol tcp --sport {port} --jump DROP"))?])
}

/// Waits until the kubelet answers again.
pub(super) fn is_back(client: &Client, what: &str) -> Result<()> {
    let began = wait::now();
    wait::until("the kubelet to answer", BACK_WITHIN_S, || is_good(client, &kubelet()).map(Some))?;
    println!("       {:6.1} s  until the kubelet answers after {what}", wait::seconds_since(began));
    Ok(())
}

/// All of them, one after the other.
pub(in super::super) fn pass(lab: &mut Lab, scene: &mut Scene) -> Result<()> {
    let client = scene.owner(lab, POOL)?.client()?.with_deadline(LOG_WITHIN);
    packets_are_dropped(lab, scene, &client)?;
    kubelet_falls_silent(lab, scene, &client)?;
    network_of_pods_breaks(lab, scene, &client)?;
    another_port(lab, scene, &client)?;
    is_well(&scene.garden)
}

/// Nothing refuses or resets: a router has lost its state. Packets of the tunnel get lost in both directions.
fn packets_are_dropped(lab: &Lab, scene: &Scene, client: &Client) -> Result<()> {
    let port = tunnel_port(lab)?;
    let host = machine(scene)?;
    {
        let _cut = cut_off(host, port)?;
        wait::until_true("the tunnel to fail", DROPPED_FOR_S, || is_good(client, &kubelet()).is_err())?;
        Stop::new().wait(&Clock::system(), Duration::from_secs(DROPPED_FOR_S));
    }
    is_back(client, "two minutes without packets")
}

pub(super) fn tunnel_port(lab: &Lab) -> Result<i64> {
    let service = service(lab)?;
    let ports = service["spec"]["ports"].as_array().cloned().unwrap_or_default();
    let port = ports.iter().find(|port| port["name"] == "tunnel").and_then(|port| port["nodePort"].as_i64());
    port.ok_or_else(|| Failure::new("the tunnel has no port"))
}

fn service(lab: &Lab) -> Result<Value> {
    Ok(lab.seed.client()?.get::<Value>(&SERVICE, &Key::new(POOL.plane(), EXPOSURE))?)
}

/// The memory of a program in a container, and its goroutines if it tells them, as the server does.
fn burden(lab: &Lab, containers: &Containers, name: &str) -> Result<(i64, i64)> {
    let id = containers.process_of(name)?.ok_or_else(|| Failure::new(format!("no container {name} runs")))?;
    let status = std::fs::read_to_string(format!("/proc/{id}/status"))?;
    let field = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap_or_default();
    let memory = field.trim().trim_end_matches(" kB").parse().unwrap_or_default();
    let mut command = lab.environment.command("nsenter")?;
    command.arg(format!("--net=/proc/{id}/ns/net")).args(["curl", "--silent", "--max-time", "5", ADMIN]);
    let metrics = process::run(&mut command)?;
    let line = metrics.lines().find_map(|line| line.strip_prefix("go_goroutines "));
    Ok((memory, line.and_then(|count| count.parse().ok()).unwrap_or_default()))
}

fn burdens(lab: &Lab, scene: &Scene) -> Result<BTreeMap<&'static str, (i64, i64)>> {
    let host = &machine(scene)?.containers;
    let server = burden(lab, scene.site.node.containers(), TUNNEL_SERVER)?;
    Ok([(TUNNEL_SERVER, server), (AGENT, burden(lab, host, AGENT)?)].into())
}

/// A kubelet that answers nobody makes neither server nor agent grow.
fn kubelet_falls_silent(lab: &Lab, scene: &Scene, client: &Client) -> Result<()> {
    let before = burdens(lab, scene)?;
    ensure(before[TUNNEL_SERVER].1 > 0, || {
        "the server of the tunnel does not tell its goroutines".to_owned()
    })?;
    let path = "/api/v1/namespaces/default/pods/served/log";
    let host = machine(scene)?;
    {
        let _silent = Rule::add(host, &format!("INPUT --protocol tcp --dport {KUBELET_PORT} --jump DROP"))?;
        let ask = |count: usize| {
            let client = client.clone();
            thread::spawn("logs", 1 << 20, move || {
                (0..count).filter(|_| is_good(&client, path).is_ok()).count()
            })
        };
        let threads: std::io::Result<Vec<_>> = (0..AT_ONCE).map(|_| ask(LOGS / AT_ONCE)).collect();
        let answered: usize = threads?.into_iter().filter_map(|thread| thread.join().ok()).sum();
        println!("                 {LOGS} logs, {answered} answered; then {:?}", burdens(lab, scene)?);
    }
    is_back(client, "a silent kubelet")?;
    wait::until("memory and goroutines as before", CALM_WITHIN_S, || {
        let now = burdens(lab, scene)?;
        let is_calm = |(name, (memory, goroutines)): (&&str, &(i64, i64))| {
            let (memory_before, goroutines_before) = before[name];
            *memory <= memory_before + GROWTH_MAX_KB && *goroutines <= goroutines_before + GOROUTINES_MAX
        };
        if now.iter().all(is_calm) {
            println!("                 kB and goroutines before {before:?}, after {now:?}");
            return Ok(Some(()));
        }
        Err(Failure::new(format!("{now:?} after {before:?}")))
    })
}

/// The agent needs no network of pods, no taint keeps it away, and a deleted one comes back.
fn network_of_pods_breaks(lab: &Lab, scene: &Scene, client: &Client) -> Result<()> {
    let owner = scene.owner(lab, POOL)?;
    let host = machine(scene)?;
    let network = host.network_of_pods();
    let hidden = network.with_extension("hidden");
    std::fs::rename(&network, &hidden)?;
    let outcome = without_network(&owner, client);
    std::fs::rename(&hidden, &network)?;
    outcome?;
    owner.kubectl(&["taint", "node", host::NAME, "broken-"])?;
    wait::until("the node to be ready", POD_READY_WITHIN_S, || {
        owner.kubectl(&["wait", "node", host::NAME, "--for=condition=Ready", "--timeout=3s"]).map(Some)
    })?;
    // The taint has removed its pods.
    wait::until_true("the end of the pod", POD_READY_WITHIN_S, || {
        owner.kubectl(&["get", "pod", "served"]).is_err()
    })?;
    serves(&owner)
}

fn without_network(owner: &Owner<'_>, client: &Client) -> Result<()> {
    wait::until("the node not to be ready", POD_READY_WITHIN_S, || {
        Ok::<_, Failure>((readiness(owner, host::NAME)? != "True").then_some(()))
    })?;
    for effect in ["NoSchedule", "NoExecute"] {
        owner.kubectl(&["taint", "node", host::NAME, &format!("broken=yes:{effect}")])?;
    }
    loses_its_agents(owner)?;
    is_back(client, "its agent was deleted on a node without a network of pods")
}

/// The agents of the tunnel are deleted, and others come.
pub(super) fn loses_its_agents(owner: &Owner<'_>) -> Result<()> {
    let pods = ["--namespace=kube-system", "--selector=app=konnectivity-agent"];
    let names = || owner.kubectl(&[&["get", "pod", "--output=name"], &pods[..]].concat());
    let before = names()?;
    owner.kubectl(&[&["delete", "pod", "--wait=false"], &pods[..]].concat())?;
    wait::until_true("another agent of the tunnel", POD_READY_WITHIN_S, || {
        names().is_ok_and(|names| !names.is_empty() && names.lines().all(|name| !before.contains(name)))
    })?;
    is_rolled_out(owner)
}

/// Waits until the agents of the tunnel run as they should.
pub(super) fn is_rolled_out(owner: &Owner<'_>) -> Result<()> {
    wait::until("the agents of the tunnel", POD_READY_WITHIN_S, || {
        let agents =
            owner.kubectl(&["get", "daemonset", AGENT, "--namespace=kube-system", "--output=json"])?;
        let agents: Value = serde_json::from_str(&agents)?;
        let status = &agents["status"];
        let is_done = status["observedGeneration"] == agents["metadata"]["generation"]
            && status["updatedNumberScheduled"] == status["desiredNumberScheduled"]
            && status["numberReady"] == status["desiredNumberScheduled"];
        if is_done { Ok(Some(())) } else { Err(Failure::new(status.to_string())) }
    })
}

/// The port of the tunnel changes, and its agents follow.
fn another_port(lab: &Lab, scene: &mut Scene, client: &Client) -> Result<()> {
    let before = tunnel_port(lab)?;
    let mut ports = service(lab)?["spec"]["ports"].clone();
    for port in ports.as_array_mut().into_iter().flatten().filter(|port| port["name"] == "tunnel") {
        port["nodePort"] = json!(if before == 32_767 { 32_766 } else { 32_767 });
    }
    let patch = Patch::Merge(json!({"spec": {"ports": ports}}));
    lab.seed.client()?.patch::<Value>(&SERVICE, &Key::new(POOL.plane(), EXPOSURE), &patch)?;
    ask_for_another(&scene.garden, POOL)?;
    succeeded(lab, &scene.garden, &mut scene.agent, (POOL, "Reconcile"))?;
    let now = tunnel_port(lab)?;
    ensure(now != before, || "the agent gave the tunnel its old port back".to_owned())?;
    let owner = scene.owner(lab, POOL)?;
    let written = wait::until("the new port of the agents", POD_READY_WITHIN_S, || {
        let arguments = "--output=jsonpath={.spec.template.spec.containers[0].args}";
        let written = owner.kubectl(&["get", "daemonset", AGENT, "--namespace=kube-system", arguments])?;
        Ok::<_, Failure>(written.contains(&format!("--proxy-server-port={now}")).then_some(written))
    })?;
    ensure(!written.contains(&format!("={before}")), || format!("the arguments of the agents: {written}"))?;
    is_rolled_out(&owner)?;
    is_back(client, "the port of the tunnel changed")
}

/// All CAs are rotated under calls each second. The test signs the certificates of the kubelet again between the steps, which a
/// host will do itself.
pub(in super::super) fn gets_new_authorities(lab: &mut Lab, scene: &mut Scene) -> Result<()> {
    let client = scene.owner(lab, POOL)?.client()?.with_deadline(LOG_WITHIN);
    let (first, path) = (client.clone(), kubelet());
    let calls = Calls::start("kubelet", move || is_good(&first, &path))?;
    ask_for(&scene.garden, POOL, "rotate-ca-start")?;
    let phase = |phase: &'static str| [("certificateAuthorities", phase)];
    let Scene { garden, agent, .. } = scene;
    reached(lab, garden, agent, (POOL, &phase("Prepared"), ROTATED_WITHIN_S))?;
    calls.end(ROTATION_GAP_MAX_S)?;
    if let Some(host) = &mut scene.host {
        host.renew(lab, &POOL.plane())?;
    }
    let owner = scene.owner(lab, POOL)?;
    let client = owner.client()?.with_deadline(LOG_WITHIN);
    is_back(&client, "its kubelet got new certificates")?;
    let second = client.clone();
    let calls = Calls::start("pod", move || is_good(&second, ANSWER_PATH))?;
    drop(owner);
    ask_for(&scene.garden, POOL, "rotate-ca-complete")?;
    let Scene { garden, agent, .. } = scene;
    reached(lab, garden, agent, (POOL, &phase("Completed"), ROTATED_WITHIN_S))?;
    // The owner's kubeconfig is from before the completion, and has both CAs.
    calls.end(ROTATION_GAP_MAX_S)?;
    let client = scene.owner(lab, POOL)?.client()?.with_deadline(LOG_WITHIN);
    is_back(&client, "the completion")?;
    is_well(&scene.garden)
}

/// The nodes of a hibernated Shoot stay, and the host is ready again when it wakes up.
pub(in super::super) fn sleeps_and_wakes(lab: &mut Lab, scene: &mut Scene) -> Result<()> {
    let uid = |scene: &Scene| {
        scene.owner(lab, POOL)?.kubectl(&["get", "node", host::NAME, "--output=jsonpath={.metadata.uid}"])
    };
    let before = uid(scene)?;
    for enabled in [true, false] {
        let patch = json!({"spec": {"hibernation": {"enabled": enabled}}});
        sleep::changed(lab, &scene.garden, &mut scene.agent, (POOL, &patch))?;
    }
    let after = wait::until("the owner to get in", POD_READY_WITHIN_S, || uid(scene).map(Some))?;
    ensure(before == after, || "the node is another one".to_owned())?;
    let owner = Owner::new(lab, &scene.garden, POOL, &scene.site.outside)?;
    if let Some(host) = &mut scene.host {
        is_ready(&owner, host)?;
    }
    is_back(&owner.client()?.with_deadline(LOG_WITHIN), "a hibernation")?;
    let answer = owner.client()?.raw(Method::Get, ANSWER_PATH, None, "")?;
    ensure(answer.status == 200, || "the pod does not answer".to_owned())?;
    is_well(&scene.garden)
}
