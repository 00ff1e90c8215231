//! Two hosts of a Shoot that cannot reach each other, short memory, and a second API server for some time.

use std::time::Duration;

use gardenlet::api::core::DEPLOYMENT;
use gardenlet::api::meta::Key;
use gardenlet::base::clock::Clock;
use gardenlet::base::stop::Stop;
use gardenlet::kube::{Client, Patch};
use serde_json::{Value, json};

use super::super::owner::Owner;
use super::super::scene::Scene;
use super::super::{ask_for_another, succeeded};
use super::days::{cut_off, is_back, is_rolled_out, loses_its_agents, machine, tunnel_port};
use super::restarts::Calls;
use super::{KUBELET_PORT, NODE_READY_WITHIN_S, ON_HOST, POD_READY_WITHIN_S, POOL};
use super::{condition, is_good, is_unwell, is_well, join, kubelet, kubelet_of, serves};
use crate::failure::{Failure, Result, ensure};
use crate::host::{self, Host};
use crate::lab::Lab;
use crate::process;
use crate::wait;

/// A call that takes longer has failed.
const CALL_WITHIN: Duration = Duration::from_secs(5);
/// How often each kubelet is asked at the beginning.
const ASKED: usize = 20;
/// How long the first host is cut off.
const CUT_OFF_FOR: Duration = Duration::from_secs(60);
/// The longest time without a good answer, in seconds: of the other host, and while API servers come and go.
const OTHER_GAP_MAX_S: f64 = 10.0;
const GAP_MAX_S: f64 = 60.0;
/// Long enough for the connections that an agent makes each two seconds.
const QUIET_FOR: Duration = Duration::from_secs(20);
const SETTLED_WITHIN_S: u64 = 240;

/// The agent of each host leads to it, whatever became of the other one.
pub(in super::super) fn answers_for_itself(lab: &mut Lab, scene: &mut Scene) -> Result<()> {
    let owner = scene.owner(lab, POOL)?;
    let second = join(lab, (&scene.garden, &owner), host::SECOND, &ON_HOST)?;
    is_rolled_out(&owner)?;
    cannot_reach_each_other(machine(scene)?, &second)?;
    let client = owner.client()?.with_deadline(CALL_WITHIN);
    for node in [host::NAME, host::SECOND.node.name] {
        let path = kubelet_of(node);
        wait::until(&format!("the kubelet of {node}"), POD_READY_WITHIN_S, || {
            is_good(&client, &path).map(Some)
        })?;
        let answered = (0..ASKED).filter(|_| is_good(&client, &path).is_ok()).count();
        ensure(answered == ASKED, || format!("{node} answered {answered} of {ASKED} times"))?;
    }
    one_is_cut_off(lab, scene, &client)?;
    // The owner removes it.
    drop(second);
    owner.kubectl(&["delete", "node", host::SECOND.node.name])?;
    is_rolled_out(&owner)?;
    drop(owner);
    is_well(&scene.garden)
}

/// A dial that the server sent through the agent of the other host would fail.
fn cannot_reach_each_other(first: &Host, second: &Host) -> Result<()> {
    let asks = |host: &Host, address: &str| -> Result<String> {
        let url = format!("https://{address}:{KUBELET_PORT}/healthz");
        let mut command = host.command("curl")?;
        process::run(command.args(["--silent", "--insecure", "--max-time", "5", &url]))
    };
    // Each of them asks, and each address is right: only the way between them is missing.
    asks(first, host::FIRST.node.address)?;
    asks(second, host::SECOND.node.address)?;
    for (host, other) in [(first, host::SECOND), (second, host::FIRST)] {
        let answer = asks(host, other.node.address);
        ensure(answer.is_err(), || format!("{} reaches the kubelet of {}", host.name(), other.node.name))?;
    }
    Ok(())
}

fn one_is_cut_off(lab: &Lab, scene: &Scene, client: &Client) -> Result<()> {
    let (asked, path) = (client.clone(), kubelet_of(host::SECOND.node.name));
    let calls = Calls::start("the other host", move || is_good(&asked, &path))?;
    {
        let _cut = cut_off(machine(scene)?, tunnel_port(lab)?)?;
        Stop::new().wait(&Clock::system(), CUT_OFF_FOR);
        ensure(is_good(client, &kubelet()).is_err(), || "a host that is cut off answers".to_owned())?;
    }
    is_back(client, "only its own tunnel was cut off")?;
    calls.end(OTHER_GAP_MAX_S)
}

/// On a host without memory, the agent of the tunnel starts again, and stays. Other pods have to leave.
pub(in super::super) fn lacks_memory(lab: &mut Lab, scene: &mut Scene) -> Result<()> {
    if let Some(host) = &mut scene.host {
        host.lack_memory(lab, &POOL.plane())?;
    }
    let owner = scene.owner(lab, POOL)?;
    is_pressed(&owner, "True")?;
    let phase = || owner.kubectl(&["get", "pod", "served", "--output=jsonpath={.status.phase}"]);
    wait::until("the pod to be evicted", SETTLED_WITHIN_S, || {
        // It may end well.
        Ok::<_, Failure>(["Failed", "Succeeded"].contains(&phase()?.as_str()).then_some(()))
    })?;
    loses_its_agents(&owner)?;
    let client = owner.client()?.with_deadline(CALL_WITHIN);
    is_back(&client, "its agent was deleted on a node without memory")?;
    is_unwell(&scene.garden, "EveryNodeReady", "MemoryPressure")?;
    drop(owner);
    if let Some(host) = &mut scene.host {
        host.renew(lab, &POOL.plane())?;
    }
    let owner = scene.owner(lab, POOL)?;
    is_pressed(&owner, "False")?;
    owner.kubectl(&["delete", "pod", "served"])?;
    serves(&owner)?;
    drop(owner);
    is_well(&scene.garden)
}

/// Waits until the node says, or does not say, that its memory is short.
fn is_pressed(owner: &Owner<'_>, expected: &str) -> Result<()> {
    wait::until("the pressure of memory", SETTLED_WITHIN_S + NODE_READY_WITHIN_S, || {
        let (pressure, ready) =
            (condition(owner, host::NAME, "MemoryPressure")?, condition(owner, host::NAME, "Ready")?);
        Ok::<_, Failure>((pressure == expected && ready == "True").then_some(()))
    })
}

/// A second API server comes, and goes. Agents find each one behind the only address.
pub(in super::super) fn gets_a_second_server(lab: &mut Lab, scene: &mut Scene) -> Result<()> {
    let client = scene.owner(lab, POOL)?.client()?.with_deadline(CALL_WITHIN);
    let asked = client.clone();
    let calls = Calls::start("kubelet", move || is_good(&asked, &kubelet()))?;
    for replicas in [2, 1] {
        let key = Key::new(POOL.plane(), "kube-apiserver");
        let wanted = Patch::Merge(json!({"spec": {"replicas": replicas}}));
        lab.seed.client()?.patch::<Value>(&DEPLOYMENT, &key, &wanted)?;
        ask_for_another(&scene.garden, POOL)?;
        succeeded(lab, &scene.garden, &mut scene.agent, (POOL, "Reconcile"))?;
        let live = lab.seed.client()?.get::<Value>(&DEPLOYMENT, &key)?;
        let counts = [&live["spec"]["replicas"], &live["status"]["readyReplicas"]];
        ensure(counts == [&json!(replicas); 2], || format!("API servers: {counts:?}"))?;
        Stop::new().wait(&Clock::system(), QUIET_FOR);
        let answered = (0..ASKED).filter(|_| is_good(&client, &kubelet()).is_ok()).count();
        println!("                 {replicas} API servers: {answered} of {ASKED} calls answered");
        ensure(answered == ASKED, || format!("{replicas} API servers: {answered} of {ASKED} calls"))?;
    }
    calls.end(GAP_MAX_S)?;
    is_well(&scene.garden)
}
