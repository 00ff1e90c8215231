//! A Shoot gets the next minor version of Kubernetes while somebody writes into it.

use std::sync::Mutex;
use std::time::Duration;

use gardenlet::api::core::{CONFIG_MAP, POD};
use gardenlet::api::meta::text;
use gardenlet::base::clock::{Clock, Mono};
use gardenlet::base::stop::Stop;
use gardenlet::kube::{Client, ListParams};
use serde_json::{Value, json};

use super::Name;
use super::owner::Owner;
use super::sleep::changed;
use crate::agent::Agent;
use crate::failure::{Failure, Result, ensure, equal};
use crate::image;
use crate::lab::Lab;
use crate::wait;

/// Five writes a second.
const PERIOD: Duration = Duration::from_millis(200);
/// A write that takes longer has failed.
const ANSWER_WITHIN: Duration = Duration::from_secs(2);
/// How long no new connection may come about.
const GAP_S: f64 = 5.0;
/// What the writer's objects are labelled with.
const LABEL: &str = "writer";

/// One write, each over a connection of its own.
#[derive(Clone, Debug)]
struct Write {
    name: String,
    at: Mono,
    /// Why it was not acknowledged.
    failed: Option<String>,
}

/// Everything that was acknowledged meanwhile is there afterwards, and no time in which nobody got in was longer than five
/// seconds.
pub(super) fn loses_nothing(
    lab: &Lab,
    garden: &Client,
    agent: &mut Agent,
    (name, owner): (Name, &Owner<'_>),
) -> Result<()> {
    let (over, writes) = (Stop::new(), Mutex::new(Vec::new()));
    let version = image::NEXT_API_SERVER.version();
    let patch = json!({"spec": {"kubernetes": {"version": version.trim_start_matches('v')}}});
    let began = wait::now();
    let result = std::thread::scope(|scope| {
        scope.spawn(|| write_until(owner, &over, &writes));
        let result =
            changed(lab, garden, agent, (name, &patch)).and_then(|_| the_last_server_ends(lab, name));
        over.stop();
        result
    });
    result?;
    println!(
        "       {:6.1} s  {version}: Reconcile Succeeded, and its last server ended",
        wait::seconds_since(began)
    );
    owner.gets_in(version)?;
    owner.finds_everything()?;
    lab.seed.rolled_out(&name.plane(), "deployment/kube-controller-manager", 120)?;
    let writes = writes.into_inner().unwrap_or_default();
    judge(&writes, owner)
}

/// The server of before serves for a while after it was told to end.
fn the_last_server_ends(lab: &Lab, name: Name) -> Result<()> {
    let params = ListParams { label_selector: "role=apiserver".to_owned(), ..ListParams::default() };
    wait::until("the end of the server of before", 90, || {
        let pods = lab.seed.client()?.list::<Value>(&POD, &name.plane(), &params)?.items;
        Ok::<_, Failure>((pods.len() == 1).then_some(()))
    })
}

fn judge(writes: &[Write], owner: &Owner<'_>) -> Result<()> {
    let acknowledged: Vec<&str> =
        writes.iter().filter(|write| write.failed.is_none()).map(|write| write.name.as_str()).collect();
    let (longest, why) = longest_gap(writes);
    println!(
        "                 {} of {} writes acknowledged, {longest:.1} s without",
        acknowledged.len(),
        writes.len()
    );
    ensure(acknowledged.len() > 50, || format!("only {} writes were acknowledged", acknowledged.len()))?;
    let params = ListParams { label_selector: format!("{LABEL}=upgrade"), ..ListParams::default() };
    let mut found = Vec::new();
    owner.client()?.list_all::<Value>(&CONFIG_MAP, "default", &params, &mut |map| {
        found.push(text(&map["metadata"]["name"]).to_owned());
    })?;
    let lost: Vec<&&str> =
        acknowledged.iter().filter(|name| !found.iter().any(|known| known == **name)).collect();
    equal("acknowledged writes that are lost", &lost, &Vec::new())?;
    ensure(longest <= GAP_S, || format!("no write was acknowledged for {longest:.1} s: {why}"))
}

/// The longest time between two acknowledged writes of which those between have failed, in seconds, and the first reason.
fn longest_gap(writes: &[Write]) -> (f64, String) {
    let (mut longest, mut why) = (0.0, String::new());
    let mut failing: Option<&Write> = None;
    let mut last = writes.first().map(|write| write.at).unwrap_or_default();
    for write in writes {
        match (&write.failed, failing) {
            (Some(_), None) => failing = Some(write),
            (None, Some(first)) => {
                let gap = write.at.saturating_sub(last).as_secs_f64();
                if gap > longest {
                    (longest, why) = (gap, first.failed.clone().unwrap_or_default());
                }
                failing = None;
            }
            _ => {}
        }
        if write.failed.is_none() {
            last = write.at;
        }
    }
    // Nobody may get in at the end, either.
    match (failing, writes.last()) {
        (Some(first), Some(end)) if end.at.saturating_sub(last).as_secs_f64() > longest => {
            (end.at.saturating_sub(last).as_secs_f64(), first.failed.clone().unwrap_or_default())
        }
        _ => (longest, why),
    }
}

/// Five writes a second, each over a new connection to the address that the owner knows.
fn write_until(owner: &Owner<'_>, over: &Stop, writes: &Mutex<Vec<Write>>) {
    let clock = Clock::system();
    let mut due = clock.mono();
    for number in 0.. {
        let left = due.saturating_sub(clock.mono());
        if over.wait(&clock, left) {
            return;
        }
        due += PERIOD;
        let name = format!("write-{number}");
        let failed = write(owner, &name).err().map(|failure| failure.to_string());
        let write = Write { name, at: clock.mono(), failed };
        writes.lock().unwrap_or_else(std::sync::PoisonError::into_inner).push(write);
    }
}

fn write(owner: &Owner<'_>, name: &str) -> Result<()> {
    let object = json!({"metadata": {"name": name, "namespace": "default", "labels": {LABEL: "upgrade"}}});
    let client = owner.client()?.with_deadline(ANSWER_WITHIN);
    Ok(client.create::<Value>(&CONFIG_MAP, "default", &object).map(drop)?)
}
