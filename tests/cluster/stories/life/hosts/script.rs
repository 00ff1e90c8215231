//! A host joins by the script that the agent prints: with systemd, containerd, the real kubelet and Gardener's agent of a node.

use std::collections::BTreeSet;

use gardenlet::api::gardener::SHOOT;
use gardenlet::api::meta::Key;
use serde_json::{Value, json};

use super::super::scene::Scene;
use super::super::{ask_for_another, succeeded};
use super::{HOSTS, IN_SEED, POOL, apply_files, is_served, is_well, pool, serves};
use crate::failure::{Failure, Result, ensure};
use crate::host;
use crate::image;
use crate::lab::Lab;
use crate::machine::Cable;
use crate::mirror::Mirror;
use crate::stories::steps;
use crate::systemd::{SystemHost, SystemHostSettings};
use crate::wait;

/// A host whose name has capital letters in the command.
const SHED: SystemHostSettings = SystemHostSettings {
    name: "shed",
    cable: Cable { name: "shed", inside: "10.67.0.1", outside: "10.67.0.2" },
    memory_mb: None,
};
const NODE_READY_WITHIN_S: u64 = 60;
const TOKEN_GONE_WITHIN_S: u64 = 60;
/// The images that agents of nodes and kubelets pull.
const PULLED: [image::Component; 5] =
    [image::NODE_AGENT, image::KUBELET, image::TUNNEL_AGENT, image::PROXY, image::DNS];

/// The script makes a node of a host, on which a pod runs.
pub(crate) fn joins(lab: &mut Lab, scene: &mut Scene) -> Result<()> {
    let mirror = Mirror::start(lab)?;
    let registries = offer(lab, &mirror)?;
    scene.import(lab, &IN_SEED)?;
    scene.agent.reconfigure(|config| {
        config["edge"]["hosts"] = json!({"types": [HOSTS]});
        let all =
            registries.iter().map(|host| json!({"host": host, "mirrors": [mirror.url()], "insecure": true}));
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
    let stand_in = "printf '#!/bin/sh\\n' >/usr/local/sbin/modprobe\nchmod 755 /usr/local/sbin/modprobe\n";
    host.run_script(stand_in)?;
    let shoot = format!("{}/{}", super::super::PROJECT, POOL.0);
    let script = scene.agent.command(&["node", "script", &shoot, host::POOL, "--name=SHED", "--ttl=10m"])?;
    println!("                 the script has {} bytes", script.len());
    let began = wait::now();
    let output = host.run_script(&script)?;
    let said =
        format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    ensure(output.status.success(), || format!("the script: {said}"))?;
    println!("       {:6.1} s  until the script ended", wait::seconds_since(began));
    let owner = scene.owner(lab, POOL)?;
    wait::until("the node to be ready", NODE_READY_WITHIN_S, || {
        Ok::<_, Failure>((super::readiness(&owner, SHED.name)? == "True").then_some(()))
    })?;
    println!("       {:6.1} s  until the node was ready", wait::seconds_since(began));
    wait::until("the end of the token", TOKEN_GONE_WITHIN_S, || {
        let secrets = ["get", "secret", "--namespace=kube-system", "--output=name"];
        let tokens = ["--field-selector=type=bootstrap.kubernetes.io/token"];
        let left = owner.kubectl(&[&secrets[..], &tokens].concat())?;
        if left.is_empty() { Ok(Some(())) } else { Err(Failure::new(format!("left are {left}"))) }
    })?;
    println!("       {:6.1} s  until the token was gone", wait::seconds_since(began));
    serves(&owner)?;
    drop(owner);
    ask_for_another(&scene.garden, POOL)?;
    succeeded(lab, &scene.garden, &mut scene.agent, (POOL, "Reconcile"))?;
    is_well(&scene.garden)?;
    let found = scene.garden.get::<Value>(&SHOOT, &Key::new(super::super::PROJECT, POOL.0))?;
    ensure(found["status"]["lastErrors"].is_null(), || found["status"]["lastErrors"].to_string())?;
    super::goes(lab, scene)
}

/// Offers what hosts pull. Returns the registries that the images are named after.
fn offer(lab: &Lab, mirror: &Mirror) -> Result<BTreeSet<String>> {
    let mut registries = BTreeSet::new();
    for component in PULLED {
        registries.insert(mirror.add(&component.image(&lab.environment)?)?);
    }
    let [mut pause, serve] = image::basic(&lab.environment, &lab.state)?;
    "registry.k8s.io/pause:3.10".clone_into(&mut pause.reference);
    for image in [&pause, &serve, &image::tools(&lab.environment)?] {
        registries.insert(mirror.add(image)?);
    }
    Ok(registries)
}
