//! Five hundred objects of the garden at once that need extensions, on real servers: Bastions and BackupEntries. The
//! story plays the extensions, which are quick.

use gardenlet::api::core::SECRET;
use gardenlet::api::extensions;
use gardenlet::api::gardener::{BACKUP_BUCKET, BACKUP_ENTRY, BASTION, SEED};
use gardenlet::api::meta::{ALL_NAMESPACES, Key, Resource};
use gardenlet::kube::{Client, DeleteParams, ListParams};
use serde_json::{Value, json};

use crate::agent::Agent;
use crate::audit::Request;
use crate::failure::{Failure, Result, ensure, equal};
use crate::lab::Lab;
use crate::size::{Bounds, Size};
use crate::stories::backups::section;
use crate::stories::bastions::{is_of_agent, prepare};
use crate::stories::steps::{ready, while_running};
use crate::wait;
use crate::world::{self, World};
use support::garden::prepare::{PROJECT, backup_entry, bastion, promised_backups};
use support::player::Player;

const EACH: usize = 250;
/// A busy machine may need long for thousands of requests.
const WITHIN_S: u64 = 240;
/// Limits for the agent while it works on all of them.
const MOST: Bounds = Bounds { threads: 44, bytes: 16 << 20 };
/// Requests to garden and seed for one object until it is ready. Lists and watches of all objects are counted
/// separately.
const REQUESTS_EACH_MAX: usize = 18;

struct Place {
    garden: Client,
    seed: Client,
}

fn bastion_name(n: usize) -> String {
    format!("b{n}")
}

fn entry_name(n: usize) -> String {
    format!("shoot--p--s{n}--0000-{n}")
}

/// Whether its extension has completed the operation.
fn is_ready(object: &Value) -> bool {
    let status = &object["status"];
    status["observedGeneration"] == object["metadata"]["generation"]
        && (status["conditions"][0]["status"] == "True" || status["lastOperation"]["state"] == "Succeeded")
}

impl Place {
    fn all(&self) -> Result<Vec<Value>> {
        let params = ListParams::default();
        let mut all = self.garden.list::<Value>(&BASTION, PROJECT, &params)?.items;
        all.extend(self.garden.list::<Value>(&BACKUP_ENTRY, PROJECT, &params)?.items);
        Ok(all)
    }

    /// The objects for them in the seed.
    fn of_seed(&self, resource: &Resource) -> Result<Vec<String>> {
        let all = self.seed.list::<Value>(resource, ALL_NAMESPACES, &ListParams::default())?.items;
        let name = |object: &Value| object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        Ok(all.iter().map(name).collect())
    }
}

/// All are created, become ready and are deleted.
pub(crate) fn five_hundred(lab: &mut Lab) -> Result<()> {
    let world = World::build(lab)?;
    let mut options = world::agent(lab, "agent")?;
    lab.garden.apply(&promised_backups())?;
    options.config["seedConfig"]["spec"]["backup"] = section(lab)?;
    // As fast as the servers allow.
    for connection in ["gardenClientConnection", "seedClientConnection"] {
        options.config[connection]["qps"] = json!(1_000);
        options.config[connection]["burst"] = json!(1_000);
    }
    let mut agent = Agent::start(lab, options)?;
    let player = Player::of(&["backupbuckets", "backupentries", "bastions"]);
    let _playing = player.start(lab.seed.client()?);
    ready(lab, &mut agent)?;
    let place = Place { garden: lab.garden.client()?, seed: lab.seed.client()? };
    prepare(lab, &world, &place.garden)?;
    let uid = place.garden.get::<Value>(&SEED, &Key::cluster(world::SEED))?["metadata"]["uid"].clone();
    let bucket = uid.as_str().unwrap_or_default().to_owned();
    while_running("the bucket", WITHIN_S, &mut agent, || {
        Ok(place.garden.find::<Value>(&BACKUP_BUCKET, &Key::cluster(&bucket))?.filter(is_ready).map(drop))
    })?;
    let size = Size::watch(agent.id())?;
    let (mut garden, mut seed) = (lab.garden.audit(), lab.seed.audit());
    let begun = wait::now();
    let items: Vec<Value> = (1..=EACH)
        .flat_map(|n| {
            [bastion(&bastion_name(n), world::SEED), backup_entry(&entry_name(n), world::SEED, &bucket)]
        })
        .collect();
    for item in &items {
        let resource = if item["kind"] == *BASTION.kind { &BASTION } else { &BACKUP_ENTRY };
        place.garden.create::<Value>(resource, PROJECT, item)?;
    }
    while_running("all to be ready", WITHIN_S, &mut agent, || {
        let all = place.all()?;
        match all.iter().find(|object| !is_ready(object)) {
            Some(other) => Err(Failure::new(other["status"].to_string())),
            None => Ok((all.len() == items.len()).then_some(())),
        }
    })?;
    let made_in = wait::seconds_since(begun);
    let most = most_of_one(&[garden.requests()?, seed.requests()?].concat());
    println!("                         ready in {made_in:.1} s, at most {most} requests for one");
    ensure(most <= REQUESTS_EACH_MAX, || format!("{most} requests for one object"))?;

    for n in 1..=EACH {
        place.garden.delete(&BASTION, &Key::new(PROJECT, bastion_name(n)), &DeleteParams::default())?;
        place.garden.delete(&BACKUP_ENTRY, &Key::new(PROJECT, entry_name(n)), &DeleteParams::default())?;
    }
    while_running("the end of all", WITHIN_S, &mut agent, || {
        let left = place.all()?;
        left.first().map_or(Ok(Some(())), |one| Err(Failure::new(format!("{} are left: {one}", left.len()))))
    })?;
    println!("                         deleted after {:.1} s", wait::seconds_since(begun) - made_in);
    size.print("the end");
    for resource in [&extensions::BASTION, &extensions::BACKUP_ENTRY] {
        equal("remaining objects", &json!(place.of_seed(resource)?), &json!([]))?;
    }
    let mut secrets = place.of_seed(&SECRET)?;
    secrets.retain(|name| name.starts_with("entry-"));
    equal("remaining credentials", &json!(secrets), &json!([]))?;
    size.ensure_small(&MOST, lab.environment.has_agent())?;
    agent.ensure_running()
}

/// The highest number of requests to both servers for one object, with the Secret of its credentials.
fn most_of_one(requests: &[Request]) -> usize {
    let names: Vec<String> =
        requests.iter().filter(|request| is_of_agent(request)).map(|request| request.info().name).collect();
    let of = |name: &str| {
        names.iter().filter(|other| other.strip_prefix("entry-").unwrap_or(other) == name).count()
    };
    (1..=EACH).flat_map(|n| [of(&bastion_name(n)), of(&entry_name(n))]).max().unwrap_or_default()
}
