//! With the real Gardener: a Shoot with a host moves to another seed.

use gardenlet::api::core::NAMESPACE;
use gardenlet::api::meta::Key;
use serde_json::{Value, json};

use super::super::owner::Owner;
use super::super::seeds::{Cast, FIRST, OF_THE_AGENTS, READY_WITHIN_S, SECOND};
use super::super::{COMPONENTS, end};
use super::{ANSWER_PATH, HOSTS, IN_SEED, ON_HOST, POD_READY_WITHIN_S, POOL};
use super::{apply_files, is_good, is_ready, is_served, is_well, join, kubelet, pool, server_of, serves};
use crate::failure::{Result, ensure};
use crate::host;
use crate::image;
use crate::lab::Lab;
use crate::second::NODE_ADDRESS;
use crate::site::Site;
use crate::stories::steps::{self, while_running};
use crate::wait;

const MOVED_WITHIN_S: u64 = 600;

/// The garden admits the Shoot, and its controllers install the registration without a deployment on both seeds. The Shoot moves
/// with its Node and its pod. Its host learns the new address, as a host with a fixed address for its server must.
pub(crate) fn keeps_its_node(lab: &mut Lab) -> Result<()> {
    // Ends after the cast.
    let site = Site::start(lab, &COMPONENTS)?;
    let mut cast = Cast::gather(lab, &site, &OF_THE_AGENTS)?;
    for component in &IN_SEED {
        site.node.import_component(lab, component)?;
        cast.second.node.import_component(lab, component)?;
    }
    for (agent, seed) in cast.agents.iter_mut().zip([FIRST, SECOND]) {
        agent.reconfigure(|config| config["edge"]["hosts"] = json!({"types": [HOSTS]}))?;
        while_running(&format!("Seed {seed} to be ready"), READY_WITHIN_S, agent, || {
            steps::is_seed_ready(&cast.garden, seed)
        })?;
    }
    apply_files(&lab.garden)?;
    cast.name = POOL;
    cast.create_this(lab, pool())?;
    is_served(lab, &cast.garden)?;
    let owner = Owner::new(lab, &cast.garden, POOL, &site.outside)?;
    owner.gets_in(image::API_SERVER.version())?;
    let mut host = join(lab, (&cast.garden, &owner), host::FIRST, &ON_HOST)?;
    serves(&owner)?;
    let uid = |owner: &Owner<'_>, what: &[&str]| {
        owner.kubectl(&[&["get", "--output=jsonpath={.metadata.uid}"], what].concat())
    };
    let (node, pod) = (["node", host::NAME], ["pod", "served"]);
    let before = [uid(&owner, &node)?, uid(&owner, &pod)?];

    let began = wait::now();
    cast.bind(SECOND)?;
    cast.reaches(lab, SECOND, "Restore Succeeded", MOVED_WITHIN_S)?;
    println!("       {:6.1} s  moved: Restore Succeeded", wait::seconds_since(began));
    cast.has_left(&lab.seed, (FIRST, SECOND))?;
    let server = server_of(&cast.garden, NODE_ADDRESS)?;
    host.follow(lab, &server)?;
    let owner = Owner::new(lab, &cast.garden, POOL, &site.outside)?;
    is_ready(&owner, &mut host)?;
    let client = owner.client()?;
    wait::until("the kubelet to answer", POD_READY_WITHIN_S, || is_good(&client, &kubelet()).map(Some))?;
    wait::until("the pod to answer", POD_READY_WITHIN_S, || is_good(&client, ANSWER_PATH).map(Some))?;
    println!("       {:6.1} s  until its pod answers from the other seed", wait::seconds_since(began));
    let after = [uid(&owner, &node)?, uid(&owner, &pod)?];
    ensure(before == after, || format!("its node and its pod are others: {before:?}, {after:?}"))?;
    is_well(&cast.garden)?;

    let Cast { agents: [_, two], garden, second, .. } = &mut cast;
    end::deletes(garden, two, POOL)?;
    let plane = Key::cluster(POOL.plane());
    ensure(second.cluster.client()?.find::<Value>(&NAMESPACE, &plane)?.is_none(), || {
        format!("{SECOND} still has namespace {plane}")
    })
}
