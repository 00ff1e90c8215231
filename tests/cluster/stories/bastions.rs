//! Fifty Bastions at once on real servers, from their creation to their deletion. Their Shoot is only an object; the
//! story plays the extension.

use gardenlet::api::core::NAMESPACE;
use gardenlet::api::extensions;
use gardenlet::api::gardener::BASTION;
use gardenlet::api::meta::{ALL_NAMESPACES, Key};
use gardenlet::kube::{Client, DeleteParams, ListParams, Patch};
use serde_json::{Value, json};

use crate::agent::Agent;
use crate::audit::Request;
use crate::failure::{Failure, Result, ensure, equal};
use crate::lab::Lab;
use crate::stories::steps::{ready, while_running};
use crate::wait;
use crate::world::{self, World};
use support::api::store::Id;
use support::garden::prepare;
use support::player::{Manners, Player};

const PROJECT: &str = "garden-p";
const AGENT: &str = "system:serviceaccount:garden:gardenlet";
const PLANE: &str = "shoot--p--s1";
const BASTIONS: usize = 50;
const WITHIN_S: u64 = 60;
/// Requests to the garden and to the seed for one Bastion until it can be used. Lists of all of them are counted
/// separately.
const REQUESTS_EACH_MAX: usize = 14;
/// Lists of all objects until all can be used, and until all are deleted: one in five seconds.
const LOOKS_MAX: usize = 24;

struct Place {
    garden: Client,
    seed: Client,
}

fn name(n: usize) -> String {
    format!("b{n}")
}

impl Place {
    fn bastions(&self) -> Result<Vec<Value>> {
        Ok(self.garden.list::<Value>(&BASTION, PROJECT, &ListParams::default())?.items)
    }

    fn wait_for_all(&self, agent: &mut Agent, what: &str, is_it: impl Fn(&Value) -> bool) -> Result<()> {
        while_running(what, WITHIN_S, agent, || {
            let all = self.bastions()?;
            match all.iter().find(|bastion| !is_it(bastion)) {
                Some(other) => Err(Failure::new(other["status"].to_string())),
                None => Ok((all.len() == BASTIONS).then_some(())),
            }
        })
    }
}

/// Whether it can be used at this address in its current state.
fn is_at(bastion: &Value, ip: &str) -> bool {
    bastion["status"]["conditions"][0]["status"] == "True"
        && bastion["status"]["observedGeneration"] == bastion["metadata"]["generation"]
        && bastion["status"]["ingress"]["ip"] == ip
}

fn reached_at(ip: &str) -> Manners {
    Manners { status: json!({"ingress": {"ip": ip}}), ..Manners::default() }
}

/// Fifty are created, changed while the agent is killed, and deleted.
pub(crate) fn fifty(lab: &mut Lab) -> Result<()> {
    let world = World::build(lab)?;
    let mut agent = Agent::start(lab, world::agent(lab, "agent")?)?;
    ready(lab, &mut agent)?;
    let place = Place { garden: lab.garden.client()?, seed: lab.seed.client()? };
    prepare(lab, &world, &place.garden)?;
    let player = Player::of(&["bastions"]);
    player.behave("bastions", reached_at("192.0.2.10"));
    let _playing = player.start(lab.seed.client()?);

    let (mut garden, mut seed) = (lab.garden.audit(), lab.seed.audit());
    let begun = wait::now();
    let items: Vec<Value> = (1..=BASTIONS).map(|n| prepare::bastion(&name(n), world::SEED)).collect();
    lab.garden.apply(&json!({"apiVersion": "v1", "kind": "List", "items": items}))?;
    place.wait_for_all(&mut agent, "fifty Bastions", |bastion| is_at(bastion, "192.0.2.10"))?;
    let made_in = wait::seconds_since(begun);
    let (of_garden, of_seed) = (garden.requests()?, seed.requests()?);
    let most = most_of_one(&of_garden, &of_seed);
    println!("                         usable in {made_in:.1} s, at most {most} requests for one");
    ensure(most <= REQUESTS_EACH_MAX, || format!("{most} requests for one Bastion"))?;

    // Other addresses are allowed; the agent is killed meanwhile.
    player.behave("bastions", reached_at("192.0.2.11"));
    let others = json!({"spec": {"ingress": [{"ipBlock": {"cidr": "198.51.100.0/24"}}]}});
    player.asked();
    for n in 1..=BASTIONS {
        place.garden.patch::<Value>(&BASTION, &Key::new(PROJECT, name(n)), &Patch::Merge(others.clone()))?;
    }
    while_running("a request for the first one", WITHIN_S, &mut agent, || {
        Ok((!player.asked().is_empty()).then_some(()))
    })?;
    agent.kill();
    agent.restart()?;
    place.wait_for_all(&mut agent, "the other address of all", |bastion| is_at(bastion, "192.0.2.11"))?;

    for n in 1..=BASTIONS {
        place.garden.delete(&BASTION, &Key::new(PROJECT, name(n)), &DeleteParams::default())?;
    }
    while_running("the end of all", WITHIN_S, &mut agent, || Ok(place.bastions()?.is_empty().then_some(())))?;
    let left = place.seed.list::<Value>(&extensions::BASTION, ALL_NAMESPACES, &ListParams::default())?.items;
    equal("remaining objects", &json!(left), &json!([]))?;
    let looks = [of_seed, seed.requests()?].concat().iter().filter(|r| is_look(r)).count();
    ensure(looks <= LOOKS_MAX, || format!("{looks} lists of all objects"))?;
    agent.ensure_running()
}

/// The Shoot with its control plane.
pub(crate) fn prepare(lab: &Lab, world: &World, garden: &Client) -> Result<()> {
    lab.garden.apply(&json!({"apiVersion": "v1", "kind": "List", "items": prepare::for_shoots()}))?;
    wait::until("the namespace of the project", 30, || {
        garden.find::<Value>(&NAMESPACE, &Key::cluster(PROJECT))
    })?;
    let shoot = prepare::shoot_with_nodes(world::SEED, PLANE);
    let id = Id::new("core.gardener.cloud", "shoots", PROJECT, "s1");
    world.gardener.store().write(|state| drop(state.put(id, shoot)));
    lab.seed.apply(&json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": PLANE}}))
}

pub(crate) fn is_of_agent(request: &Request) -> bool {
    let user = request.user.username.as_str();
    user == AGENT || user.starts_with("gardener.cloud:system:seed:")
}

fn is_look(request: &Request) -> bool {
    is_of_agent(request) && request.info().resource == "bastions" && request.verb == "list"
}

/// The highest number of requests that the agent made to both servers for one Bastion.
fn most_of_one(garden: &[Request], seed: &[Request]) -> usize {
    let all: Vec<_> = garden.iter().chain(seed).filter(|r| is_of_agent(r)).map(Request::info).collect();
    let of = |n: usize| all.iter().filter(|it| it.resource == "bastions" && it.name == name(n)).count();
    (1..=BASTIONS).map(of).max().unwrap_or_default()
}
