//! `gardenlet rescue`: lets another seed restore a Shoot whose seed is gone for ever.
//!
//! In a move, the seed that a Shoot leaves writes into the garden that the Shoot has left. A lost seed cannot, so an administrator
//! of the garden does it with this command. What to write is decided anew before each write: a run after an interrupted one goes on where that
//! one ended, and a seed that comes back meanwhile stops it.

mod plan;

use std::fmt::Write as _;

use serde_json::Value;

use super::arguments::RescueArguments;
use super::bootstrap_token::garden_of;
use super::{Io, Variable, clusters, fail, print, question};
use crate::api::coordination::LEASE;
use crate::api::gardener::{BACKUP_BUCKET, BACKUP_ENTRY, SEED, SHOOT, SHOOT_STATE};
use crate::api::meta::{Key, Resource, text};
use crate::backup::garden::credentials;
use crate::base::clock::Clock;
use crate::base::error::chain;
use crate::controllers::lease::NAMESPACE as SEED_LEASES;
use crate::kube::request::ApiRequest;
use crate::kube::{Client, Error};
use plan::{GardenObjects, PlannedWrite, RescuePlan, entry_name};

/// How often something is written that others change at the same moment.
const WRITES_MAX: usize = 50;

pub(super) fn main(io: &mut Io<'_>, asked: &RescueArguments, variable: Variable<'_>) -> u8 {
    match rescue(io, asked, variable) {
        Ok(ending) => print(io, &format!("{ending}\n")),
        Err(why) => fail(io, format_args!("gardenlet rescue: {why}")),
    }
}

/// Done once the other seed is responsible. Returns what is true then.
fn rescue(io: &mut Io<'_>, asked: &RescueArguments, variable: Variable<'_>) -> Result<String, String> {
    let (_, connection) = garden_of(&asked.way, variable)?;
    let garden = Client::new(connection, clusters::options(variable)).map_err(|error| chain(&error))?;
    let (found, first) = look(&garden, asked)?;
    if first.writes.is_empty() {
        return Ok(plan::ending(&found.shoot, asked));
    }
    let _ = print(io, &describe(&first, asked));
    if !asked.is_confirmed {
        question::confirm(io, "Enter the name of the Shoot to write this: ", &asked.shoot.name)?;
    }
    for _ in 0..WRITES_MAX {
        let (found, plan) = look(&garden, asked)?;
        let Some(next) = plan.writes.first() else { return Ok(plan::ending(&found.shoot, asked)) };
        if !first.writes.iter().any(|write| write.what == next.what) {
            break;
        }
        match send(&garden, &found, next) {
            Ok(()) => {
                let _ = print(io, &format!("Written: {next}\n"));
            }
            Err(error) if error.is_conflict() => {}
            Err(error) => return Err(format!("{next}: {}; run the command again to go on", chain(&error))),
        }
    }
    Err("the garden changes while the command writes: run it again".to_owned())
}

fn look(garden: &Client, asked: &RescueArguments) -> Result<(GardenObjects, RescuePlan), String> {
    let found = read(garden, asked)?;
    let plan = plan::plan(&found, asked, Clock::system().now())
        .map_err(|wrong| format!("nothing is written now:\n  {}", wrong.join("\n  ")))?;
    Ok((found, plan))
}

fn read(garden: &Client, asked: &RescueArguments) -> Result<GardenObjects, String> {
    let get = |resource: &Resource, namespace: &str, name: &str| {
        let key = Key::new(namespace, name);
        if name.is_empty() {
            return Ok(Value::Null);
        }
        let found = garden.find::<Value>(resource, &key);
        found
            .map(Option::unwrap_or_default)
            .map_err(|error| format!("read {} {key}: {}", resource.kind, chain(&error)))
    };
    let (namespace, name) = (asked.shoot.namespace.as_str(), asked.shoot.name.as_str());
    let mut found = GardenObjects {
        shoot: get(&SHOOT, namespace, name)?,
        from: get(&SEED, "", &asked.from)?,
        lease: get(&LEASE, SEED_LEASES, &asked.from)?,
        to: get(&SEED, "", &asked.to)?,
        state: get(&SHOOT_STATE, namespace, name)?,
        ..GardenObjects::default()
    };
    let entry = entry_name(&found);
    found.entry = get(&BACKUP_ENTRY, namespace, &entry)?;
    found.source = get(&BACKUP_ENTRY, namespace, &format!("source-{entry}"))?;
    found.bucket = get(&BACKUP_BUCKET, "", text(&found.entry["spec"]["bucketName"]))?;
    if !found.bucket.is_null() {
        found.credentials = credentials(garden, &found.bucket).err().map(|failed| failed.text);
    }
    Ok(found)
}

fn describe(plan: &RescuePlan, asked: &RescueArguments) -> String {
    let RescueArguments { shoot, from, to, .. } = asked;
    let mut text = format!(
        "Seed {to} restores Shoot {shoot} from its ShootState and its last snapshot. Lost with seed {from}:\n"
    );
    for lost in &plan.lost {
        // Writing to a String cannot fail.
        let _ = writeln!(text, "  - {lost}");
    }
    text.push_str("To be written to the garden:\n");
    for (at, write) in plan.writes.iter().enumerate() {
        let _ = writeln!(text, "  {}. {write}", at + 1);
    }
    let _ = writeln!(
        text,
        "A seed that only lost its link to the garden still serves the Shoot to those who reach it. Switch its machines off before you go on."
    );
    text
}

/// Replaces the object that the plan is made of: the garden refuses that if somebody has changed it since.
fn send(garden: &Client, found: &GardenObjects, write: &PlannedWrite) -> Result<(), Error> {
    let PlannedWrite { resource, subresource, key, changes, .. } = write;
    let mut object = if **resource == SHOOT { &found.shoot } else { &found.entry }.clone();
    merge(&mut object, changes);
    let path = match *subresource {
        "" => resource.object_path(key),
        sub => resource.subresource_path(key, sub),
    };
    garden.fetch::<Value>(&ApiRequest::replace(path, &object)).map(drop)
}

fn merge(into: &mut Value, changes: &Value) {
    match changes {
        Value::Object(fields) => fields.iter().for_each(|(name, value)| merge(&mut into[name], value)),
        other => *into = other.clone(),
    }
}
