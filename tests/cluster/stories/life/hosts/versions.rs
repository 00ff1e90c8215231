//! The control plane of a Shoot gets the next minor version while a host with a kubelet of the old one is its node.

use std::time::Duration;

use gardenlet::api::core::DEPLOYMENT;
use gardenlet::api::gardener::SHOOT;
use gardenlet::api::meta::Key;
use gardenlet::api::resources::MANAGED_RESOURCE;
use gardenlet::kube::ListParams;
use serde_json::{Value, json};

use super::super::owner::Owner;
use super::super::scene::Scene;
use super::super::{PROJECT, sleep, upgrade};
use super::restarts::Calls;
use super::{ANSWER_PATH, HOSTS, POD_READY_WITHIN_S, POOL};
use super::{goes, is_good, is_well, kubelet, readiness};
use crate::failure::{Failure, Result, ensure, equal};
use crate::host;
use crate::image::{self, Component};
use crate::lab::Lab;
use crate::wait;

/// What changes its version.
const NEXT: [Component; 3] = [image::NEXT_API_SERVER, image::NEXT_CONTROLLERS, image::NEXT_SCHEDULER];
/// A call that takes longer has failed.
const CALL_WITHIN: Duration = Duration::from_secs(5);
/// The longest time without a good answer, in seconds.
const GAP_MAX_S: f64 = 30.0;

/// Its node and its pods stay as they are, whether the pool keeps its version or not. At the end the Shoot is deleted.
pub(in super::super) fn get_ahead_of_a_host(lab: &mut Lab, scene: &mut Scene) -> Result<()> {
    let (old, new) = (image::API_SERVER.version(), image::NEXT_API_SERVER.version());
    scene.import(lab, &NEXT)?;
    upgrade::offer(&scene.garden, HOSTS, new)?;
    let owner = scene.owner(lab, POOL)?;
    let (before, client) = (Kept::read(&owner)?, owner.client()?.with_deadline(CALL_WITHIN));
    equal("the version of its kubelet", before.kubelet.as_str(), old)?;
    let asked = client.clone();
    let calls = [
        Calls::start("kubelet", move || is_good(&client, &kubelet()))?,
        Calls::start("pod", move || is_good(&asked, ANSWER_PATH))?,
    ];
    drop(owner);
    // As its owner keeps the version of the pool: the garden allows three minor versions between them.
    let mut spec = json!({"kubernetes": {"version": numbers(new)}});
    spec["provider"]["workers"] = workers(scene, Some(old))?;
    changes(lab, scene, &spec, "its pool keeps its version")?;
    upgrade::the_last_server_ends(lab, POOL)?;
    for calls in calls {
        calls.end(GAP_MAX_S)?;
    }
    for component in &NEXT {
        runs_with(lab, component)?;
    }
    let owner = scene.owner(lab, POOL)?;
    owner.gets_in(new)?;
    before.is_there(&owner)?;
    runs_proxies(lab, &owner, &[(old, 1)])?;
    drop(owner);
    is_well(&scene.garden)?;

    let spec = json!({"provider": {"workers": workers(scene, None)?}});
    changes(lab, scene, &spec, "its pool gets that of the control plane, and its node does not follow")?;
    let owner = scene.owner(lab, POOL)?;
    runs_proxies(lab, &owner, &[(old, 1), (new, 0)])?;
    before.is_there(&owner)?;
    drop(owner);
    is_well(&scene.garden)?;
    goes(lab, scene)
}

/// What must stay: who the node and its pods are, and how often their containers started.
#[derive(PartialEq, Eq, Debug)]
struct Kept {
    kubelet: String,
    node: String,
    pod: String,
    proxy: String,
}

impl Kept {
    fn read(owner: &Owner<'_>) -> Result<Self> {
        const POD: &str = "{.metadata.uid} {.status.containerStatuses[*].restartCount}";
        let node =
            |path: &str| owner.kubectl(&["get", "node", host::NAME, &format!("--output=jsonpath={path}")]);
        let proxies = ["get", "pods", "--namespace=kube-system", "--selector=app=kubernetes,role=proxy"];
        let each = format!("--output=jsonpath={{range .items[*]}}{POD}{{end}}");
        Ok(Self {
            kubelet: node("{.status.nodeInfo.kubeletVersion}")?,
            node: node("{.metadata.uid}")?,
            pod: owner.kubectl(&["get", "pod", "served", &format!("--output=jsonpath={POD}")])?,
            proxy: owner.kubectl(&[&proxies[..], &[&each]].concat())?,
        })
    }

    fn is_there(&self, owner: &Owner<'_>) -> Result<()> {
        equal("the node is ready", readiness(owner, host::NAME)?.as_str(), "True")?;
        equal("the node and its pods", &Self::read(owner)?, self)?;
        is_good(&owner.client()?, ANSWER_PATH)
    }
}

/// The pools of the Shoot, with this version of their own or with that of the control plane.
fn workers(scene: &Scene, version: Option<&str>) -> Result<Value> {
    let shoot = scene.garden.get::<Value>(&SHOOT, &Key::new(PROJECT, POOL.0))?;
    let mut workers = shoot["spec"]["provider"]["workers"].clone();
    for pool in workers.as_array_mut().into_iter().flatten() {
        match version {
            Some(version) => pool["kubernetes"]["version"] = json!(numbers(version)),
            None => pool["kubernetes"] = Value::Null,
        }
    }
    Ok(workers)
}

fn numbers(version: &str) -> &str {
    version.trim_start_matches('v')
}

/// Its owner changes the spec, and the agent reconciles the Shoot.
fn changes(lab: &Lab, scene: &mut Scene, spec: &Value, what: &str) -> Result<()> {
    let began = wait::now();
    sleep::changed(lab, &scene.garden, &mut scene.agent, (POOL, &json!({"spec": spec})))?;
    println!("       {:6.1} s  {what}: Reconcile Succeeded", wait::seconds_since(began));
    Ok(())
}

/// The Deployment of a component has its image, and all of its pods are of that.
fn runs_with(lab: &Lab, component: &Component) -> Result<()> {
    let name = component.name();
    lab.seed.rolled_out(&POOL.plane(), &format!("deployment/{name}"), POD_READY_WITHIN_S)?;
    let live = lab.seed.client()?.get::<Value>(&DEPLOYMENT, &Key::new(POOL.plane(), name))?;
    let containers = live["spec"]["template"]["spec"]["containers"].as_array().cloned().unwrap_or_default();
    let image = containers.iter().find(|container| container["name"] == name).map(|it| &it["image"]);
    ensure(image == Some(&json!(component.reference())), || format!("{name} has the image {image:?}"))
}

/// kube-proxy has a DaemonSet for each version that the pool wants or one of its nodes has, with so many pods.
fn runs_proxies(lab: &Lab, owner: &Owner<'_>, expected: &[(&str, usize)]) -> Result<()> {
    let name = |version: &str| format!("kube-proxy-{}-v{}", host::POOL, numbers(version));
    // What is being deleted may still run.
    let wanted: Vec<String> =
        expected.iter().map(|(version, _)| format!("shoot-core-{}", name(version))).collect();
    equal("ManagedResources of kube-proxy", &managed(lab)?, &wanted)?;
    let expected: Vec<String> =
        expected.iter().map(|(version, count)| format!("{} {count} {count}", name(version))).collect();
    wait::until("the pods of kube-proxy", POD_READY_WITHIN_S, || {
        let found = proxies(owner)?;
        if found == expected { Ok(Some(())) } else { Err(Failure::new(format!("{found:?}"))) }
    })
}

/// The ManagedResources of kube-proxy for pools that stay.
fn managed(lab: &Lab) -> Result<Vec<String>> {
    let label_selector = "component=kube-proxy,role=pool".to_owned();
    let params = ListParams { label_selector, ..ListParams::default() };
    let all = lab.seed.client()?.list::<Value>(&MANAGED_RESOURCE, &POOL.plane(), &params)?.items;
    let stay = all.iter().filter(|managed| managed["metadata"]["deletionTimestamp"].is_null());
    Ok(stay.map(|it| it["metadata"]["name"].as_str().unwrap_or_default().to_owned()).collect())
}

/// The DaemonSets of kube-proxy: a name, how many of its pods are ready, and how many shall be.
fn proxies(owner: &Owner<'_>) -> Result<Vec<String>> {
    let each = "--output=jsonpath={range .items[*]}{.metadata.name} {.status.numberReady} {.status.desiredNumberScheduled}\n{end}";
    let all = owner.kubectl(&["get", "daemonsets", "--namespace=kube-system", each])?;
    Ok(all.lines().filter(|line| line.starts_with("kube-proxy-")).map(str::to_owned).collect())
}
