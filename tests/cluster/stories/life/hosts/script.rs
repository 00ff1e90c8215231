//! A host joins by the script that the agent prints: with systemd, containerd, the real kubelet and Gardener's agent of a node.

use std::collections::BTreeSet;
use std::process::Output;

use serde_json::json;

use super::super::owner::Owner;
use super::super::scene::Scene;
use super::super::{PROJECT, ask_for_another, succeeded};
use super::{ANSWER, ANSWER_PATH, HOSTS, IN_SEED, POD_READY_WITHIN_S, POOL};
use super::{apart, apply_files, is_served, is_well, pool, readiness, serves};
use crate::failure::{Failure, Result, ensure};
use crate::host;
use crate::image::{self, Component};
use crate::lab::Lab;
use crate::machine::Cable;
use crate::mirror::Mirror;
use crate::stories::steps;
use crate::systemd::{SystemHost, SystemHostSettings};
use crate::wait;

const SHED: SystemHostSettings = SystemHostSettings {
    name: "shed",
    cable: Cable { name: "shed", inside: "10.67.0.1", outside: "10.67.0.2" },
    memory_mb: None,
};
const NODE_READY_WITHIN_S: u64 = 120;
const TOKEN_GONE_WITHIN_S: u64 = 120;
/// From the start of the script to a node that is ready, with images on the next machine.
const READY_IN_S: f64 = 60.0;
/// The images that agents of nodes and kubelets pull.
const PULLED: [Component; 5] =
    [image::NODE_AGENT, image::KUBELET, image::TUNNEL_AGENT, image::PROXY, image::DNS];
/// What an owner has on a host, line by line: files with their digests, links, rules and chains of the packet filter, devices of the network,
/// and mounts of pods. Tables of the packet filter without rules stay.
const STATE: &str = r"cd /
find etc opt -type f -exec md5sum {} +
find etc opt -type l -printf 'link %p %l\n'
iptables-save | sed -n '/^-A/p; s/^:\([^ ]*\) -.*/chain \1/p'
ip -o link | cut -d: -f2 | cut -d@ -f1 | sed 's/^/device/'
cut -d' ' -f2 /proc/mounts | sed -n '\,^/var/lib/kubelet/,p; \,^/run/containerd,p' | sed 's/^/mount /'";

/// The script makes a node of a host, on which a pod runs. The normal run has no metrics-server, and deletes a Shoot with another host.
pub(crate) fn joins(lab: &mut Lab, scene: &mut Scene) -> Result<()> {
    let host = prepare(lab, scene, &PULLED)?;
    let script = print(scene, &[])?;
    join(lab, scene, &host, &script)?;
    apart::are_refused(lab, scene, SHED.name)?;
    serves(&scene.owner(lab, POOL)?)?;
    ask_for_another(&scene.garden, POOL)?;
    succeeded(lab, &scene.garden, &mut scene.agent, (POOL, "Reconcile")).map(drop)
}

/// A node comes back by itself after its host was off. It leaves no trace on the host, which then joins again.
pub(crate) fn stays_and_leaves(lab: &mut Lab, scene: &mut Scene) -> Result<()> {
    let images = [&PULLED[..], &[image::METRICS_SERVER]].concat();
    let mut host = prepare(lab, scene, &images)?;
    let before = state(&host)?;
    let script = print(scene, &[])?;
    join(lab, scene, &host, &script)?;
    serves(&scene.owner(lab, POOL)?)?;
    is_well(&scene.garden)?;
    let again = wait::now();
    host.power_off()?;
    host.power_on(lab)?;
    comes_back(lab, scene, "a power cut")?;
    host.reboot(lab)?;
    comes_back(lab, scene, "a reboot")?;
    println!("       {:6.1} s  until it was back twice", wait::seconds_since(again));
    let refused = scene.agent.command(&["node", "script", &shoot(), host::POOL, "--name=shed"]);
    ensure(refused.is_err_and(|why| why.to_string().contains("--rejoin")), || {
        "a second host gets a token for the node".to_owned()
    })?;
    leaves(&host, &script)?;
    let after = state(&host)?;
    let other: Vec<&String> = before.symmetric_difference(&after).collect();
    ensure(other.is_empty(), || format!("the host is not as it was: {other:#?}"))?;
    leaves(&host, &script)?;
    let script = print(scene, &["--rejoin"])?;
    join(lab, scene, &host, &script)?;
    drop(host);
    super::goes(lab, scene)
}

fn state(host: &SystemHost) -> Result<BTreeSet<String>> {
    Ok(host.run(&["sh", "-c", STATE])?.lines().map(str::to_owned).collect())
}

fn shoot() -> String {
    format!("{PROJECT}/{}", POOL.0)
}

/// A Shoot with a pool, and a host that can pull images.
fn prepare(lab: &mut Lab, scene: &mut Scene, images: &[Component]) -> Result<SystemHost> {
    let mirror = Mirror::start(lab)?;
    let registries = offer(lab, &mirror, images)?;
    scene.import(lab, &IN_SEED)?;
    scene.agent.reconfigure(|config| {
        config["edge"]["hosts"] = json!({"types": [HOSTS]});
        let mirrors = [mirror.url()];
        let all = registries.iter().map(|host| json!({"host": host, "mirrors": mirrors, "insecure": true}));
        config["edge"]["registries"] = all.collect();
    })?;
    steps::ready(lab, &mut scene.agent)?;
    apply_files(&lab.garden)?;
    lab.garden.apply(&pool())?;
    succeeded(lab, &scene.garden, &mut scene.agent, (POOL, "Create"))?;
    is_served(lab, &scene.garden)?;
    let host = SystemHost::start(lab, SHED)?;
    host.connect_pods("100.96.0.0/24")?;
    host.write("/etc/resolv.conf", "nameserver 10.67.0.1\n")?;
    // The modules of the kernel are those of this machine.
    host.run_script("printf '#!/bin/sh\\n' >/usr/local/sbin/modprobe\nchmod 755 /usr/local/sbin/modprobe\n")?;
    scene.mirror = Some(mirror);
    Ok(host)
}

/// Offers what hosts pull. Returns the registries that the images are named after.
fn offer(lab: &Lab, mirror: &Mirror, images: &[Component]) -> Result<BTreeSet<String>> {
    let mut registries = BTreeSet::new();
    for component in images {
        registries.insert(mirror.add(&component.image(&lab.environment)?)?);
    }
    let [mut pause, serve] = image::basic(&lab.environment, &lab.state)?;
    "registry.k8s.io/pause:3.10".clone_into(&mut pause.reference);
    for image in [&pause, &serve, &image::tools(&lab.environment)?] {
        registries.insert(mirror.add(image)?);
    }
    Ok(registries)
}

/// The script for the host, whose name its owner writes with capital letters.
fn print(scene: &Scene, more: &[&str]) -> Result<String> {
    let (shoot, name) = (shoot(), format!("--name={}", SHED.name.to_uppercase()));
    let words = ["node", "script", &shoot, host::POOL, &name, "--ttl=10m"];
    scene.agent.command(&[&words[..], more].concat())
}

/// Runs the script until the host is a node that all pods may come to, and its token is gone.
fn join(lab: &Lab, scene: &Scene, host: &SystemHost, script: &str) -> Result<()> {
    let began = wait::now();
    succeeds("the script", &host.run_script(script)?)?;
    let owner = scene.owner(lab, POOL)?;
    wait::until("the node to be ready", NODE_READY_WITHIN_S, || is_ready(&owner))?;
    wait::measured(
        "seconds from the script to a node that is ready",
        wait::seconds_since(began),
        READY_IN_S,
    )?;
    wait::until("the end of the token", TOKEN_GONE_WITHIN_S, || {
        let secrets = ["get", "secret", "--namespace=kube-system", "--output=name"];
        let tokens = ["--field-selector=type=bootstrap.kubernetes.io/token"];
        let left = owner.kubectl(&[&secrets[..], &tokens].concat())?;
        if left.is_empty() { Ok(Some(())) } else { Err(Failure::new(format!("left are {left}"))) }
    })?;
    println!("       {:6.1} s  until it was open to all pods", wait::seconds_since(began));
    Ok(())
}

fn is_ready(owner: &Owner<'_>) -> Result<Option<()>> {
    Ok((readiness(owner, SHED.name)? == "True").then_some(()))
}

fn succeeds(what: &str, output: &Output) -> Result<()> {
    let said = [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text).into_owned());
    ensure(output.status.success(), || format!("{what}: {}", said.concat()))
}

/// The node is ready again, and its pod answers through the tunnel.
fn comes_back(lab: &Lab, scene: &Scene, what: &str) -> Result<()> {
    let (owner, began) = (scene.owner(lab, POOL)?, wait::now());
    wait::until(&format!("the pod to answer after {what}"), POD_READY_WITHIN_S, || {
        let answer = owner.kubectl(&["get", "--raw", ANSWER_PATH])?;
        Ok::<_, Failure>(answer.contains(ANSWER).then_some(()))
    })?;
    wait::until("the node to be ready", NODE_READY_WITHIN_S, || is_ready(&owner))?;
    println!("       {:6.1} s  until the pod answered after {what}", wait::seconds_since(began));
    Ok(())
}

/// The script removes what it and the agent of the node have written.
fn leaves(host: &SystemHost, script: &str) -> Result<()> {
    host.write("/tmp/join.sh", script)?;
    succeeds("the removal", &host.run_script("sh /tmp/join.sh --uninstall\nrm /tmp/join.sh\n")?)
}
