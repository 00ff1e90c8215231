//! Failures below a Shoot while no agent runs: killed pods, and a power cut.

use gardenlet::api::core::POD;
use gardenlet::base::clock::Mono;
use gardenlet::kube::ListParams;
use serde_json::Value;

use super::Name;
use super::owner::Owner;
use crate::cluster::Cluster;
use crate::failure::{Failure, Result, ensure};
use crate::lab::Lab;
use crate::node::Node;
use crate::wait;

/// The longest time until a Shoot answers again after a pod was killed, and after a power cut.
const POD_BACK_IN_S: f64 = 60.0;
const POWER_BACK_IN_S: f64 = 120.0;
/// How long an act waits for it.
const BACK_WITHIN_S: u64 = 240;

/// etcd, then kube-apiserver: all processes of the pod are killed. Then the stored data is readable again, and more
/// can be stored.
pub(super) fn pods_come_back(node: &Node, seed: &Cluster, (name, owner): (Name, &Owner<'_>)) -> Result<()> {
    for role in ["main", "apiserver"] {
        let pod = pod(seed, name, role)?;
        let killed = node.kill_pod(&name.plane(), &pod)?;
        ensure(killed == 2, || format!("{killed} containers of pod {pod} were killed"))?;
        comes_back(&format!("pod {pod} was killed"), (wait::now(), POD_BACK_IN_S), owner)?;
    }
    Ok(())
}

/// The name of the one pod with that role.
fn pod(seed: &Cluster, name: Name, role: &str) -> Result<String> {
    let params = ListParams { label_selector: format!("role={role}"), ..ListParams::default() };
    let pods = seed.client()?.list::<Value>(&POD, &name.plane(), &params)?.items;
    let [pod] = pods.as_slice() else {
        return Err(Failure::new(format!("{} pods with role {role}", pods.len())));
    };
    Ok(pod["metadata"]["name"].as_str().unwrap_or_default().to_owned())
}

/// The whole site ends at once: node, pods, and the servers of the seed. The garden is away before and after. After the
/// power is back, the Shoot is back. Only then the garden comes back.
pub(super) fn power_comes_back(
    node: &mut Node,
    lab: &mut Lab,
    (name, owner): (Name, &Owner<'_>),
) -> Result<()> {
    let before = pod(&lab.seed, name, "apiserver")?;
    lab.garden.stop();
    lab.seed.stop();
    node.cut_power(lab)?;
    ensure(owner.finds_everything().is_err(), || "a Shoot without power answers".to_owned())?;
    let began = wait::now();
    lab.seed.start_servers()?;
    lab.seed.wait_ready()?;
    println!("       {:6.1} s  the seed answers after a power cut", wait::seconds_since(began));
    node.start_again(lab, &lab.seed)?;
    comes_back("the power was back", (began, POWER_BACK_IN_S), owner)?;
    // The same pod, in new containers: it was not replaced.
    let after = pod(&lab.seed, name, "apiserver")?;
    ensure(after == before, || format!("the pod was {before}, and is {after}"))?;
    lab.garden.start_servers()?;
    lab.garden.wait_ready()
}

/// Measures the time since the cause.
fn comes_back(since: &str, (began, limit): (Mono, f64), owner: &Owner<'_>) -> Result<()> {
    wait::until(&format!("the Shoot after {since}"), BACK_WITHIN_S, || owner.finds_everything().map(Some))?;
    let took = wait::seconds_since(began);
    println!("       {took:6.1} s  after {since}: the Shoot answers");
    wait::measured(&format!("seconds without the Shoot after {since}"), took, limit)
}
