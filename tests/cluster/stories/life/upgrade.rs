//! A Shoot gets another minor version of Kubernetes while a client writes into it.

use std::sync::Mutex;
use std::time::Duration;

use gardenlet::api::core::{CONFIG_MAP, POD};
use gardenlet::api::gardener::CLOUD_PROFILE;
use gardenlet::api::meta::{Key, text};
use gardenlet::base::clock::{Clock, Mono};
use gardenlet::base::stop::Stop;
use gardenlet::kube::{Client, ListParams, Patch};
use serde_json::{Value, json};

use super::owner::Owner;
use super::sleep::changed;
use super::{Name, extensions, watch};
use crate::agent::Agent;
use crate::failure::{Failure, Result, ensure, equal};
use crate::lab::Lab;
use crate::wait;

/// Five writes a second.
const PERIOD: Duration = Duration::from_millis(200);
/// The longest time between two attempts, on average.
const APART_S: f64 = 0.25;
/// A write that takes longer has failed.
const ANSWER_WITHIN: Duration = Duration::from_secs(2);
/// The longest time without a successful new connection.
const GAP_S: f64 = 5.0;
/// The label of the writer's objects.
const LABEL: &str = "writer";
/// The CloudProfile of all Shoots.
const PROFILE: &str = "local";

/// One write over its own connection.
#[derive(Clone, Debug)]
struct Write {
    name: String,
    at: Mono,
    /// Why it was not acknowledged.
    failed: Option<String>,
}

/// Another version, while nobody looks.
pub(super) fn to(lab: &Lab, garden: &Client, agent: &mut Agent, (name, version): (Name, &str)) -> Result<()> {
    changed(lab, garden, agent, (name, &wish(version)))?;
    the_last_server_ends(lab, name)
}

fn wish(version: &str) -> Value {
    json!({"spec": {"kubernetes": {"version": version.trim_start_matches('v')}}})
}

/// Shoots may have the versions of their CloudProfile.
pub(super) fn offer(garden: &Client, version: &str) -> Result<()> {
    let profile: Value = garden.get(&CLOUD_PROFILE, &Key::cluster(PROFILE))?;
    let mut versions = profile["spec"]["kubernetes"]["versions"].as_array().cloned().unwrap_or_default();
    versions.push(json!({"version": version.trim_start_matches('v')}));
    let patch = Patch::Merge(json!({"spec": {"kubernetes": {"versions": versions}}}));
    Ok(garden.patch::<Value>(&CLOUD_PROFILE, &Key::cluster(PROFILE), &patch).map(drop)?)
}

/// All acknowledged writes exist afterwards. The longest time without access is printed. `word` is part of the names of
/// the written objects, and their label.
pub(super) fn loses_nothing(
    lab: &Lab,
    garden: &Client,
    agent: &mut Agent,
    (owner, version, word): (&Owner<'_>, &str, &str),
) -> Result<()> {
    owner.has_a_settled_server()?;
    let (name, asked) = (owner.name, extensions::asked(lab, owner.name)?);
    let (over, writes, seen) = (Stop::new(), Mutex::new(Vec::new()), Mutex::new(Vec::new()));
    let seed = lab.seed.client()?;
    let patch = wish(version);
    let began = wait::now();
    let result = std::thread::scope(|scope| {
        scope.spawn(|| write_until((owner, word), &over, &writes));
        scope.spawn(|| watch::until(&seed, name, &over, &seen));
        let result =
            changed(lab, garden, agent, (name, &patch)).and_then(|_| the_last_server_ends(lab, name));
        over.stop();
        result
    });
    result?;
    println!(
        "       {:6.1} s  {version}: Reconcile Succeeded, and its old server ended",
        wait::seconds_since(began)
    );
    extensions::asked_since(lab, name, asked)?;
    owner.gets_in(version)?;
    owner.finds_everything()?;
    lab.seed.rolled_out(&name.plane(), "deployment/kube-controller-manager", 120)?;
    let writes = writes.into_inner().unwrap_or_default();
    judge(&writes, (owner, word), began)
        .map_err(|failure| watch::explained(&failure, &seen.into_inner().unwrap_or_default(), began))
}

/// The old server serves for a while after it got the signal to end.
fn the_last_server_ends(lab: &Lab, name: Name) -> Result<()> {
    let params = ListParams { label_selector: "role=apiserver".to_owned(), ..ListParams::default() };
    wait::until("the end of the old server", 90, || {
        let pods = lab.seed.client()?.list::<Value>(&POD, &name.plane(), &params)?.items;
        Ok::<_, Failure>((pods.len() == 1).then_some(()))
    })
}

fn judge(writes: &[Write], (owner, word): (&Owner<'_>, &str), began: Mono) -> Result<()> {
    let acknowledged: Vec<&str> =
        writes.iter().filter(|write| write.failed.is_none()).map(|write| write.name.as_str()).collect();
    let (gap, pace) = (longest_gap(writes), pace(writes));
    let longest = gap.seconds;
    println!(
        "                 {} of {} writes acknowledged, {longest:.1} s without, {pace:.1} tried in a second",
        acknowledged.len(),
        writes.len()
    );
    ensure(acknowledged.len() > 50, || format!("only {} writes were acknowledged", acknowledged.len()))?;
    wait::measured("seconds between two tries to write", 1.0 / pace, APART_S)?;
    let params = ListParams { label_selector: format!("{LABEL}={word}"), ..ListParams::default() };
    let mut found = Vec::new();
    owner.client()?.list_all::<Value>(&CONFIG_MAP, "default", &params, &mut |map| {
        found.push(text(&map["metadata"]["name"]).to_owned());
    })?;
    let lost: Vec<&&str> =
        acknowledged.iter().filter(|name| !found.iter().any(|known| known == **name)).collect();
    equal("acknowledged writes that are lost", &lost, &Vec::new())?;
    wait::measured("seconds without an acknowledged write", longest, GAP_S).map_err(|failure| {
        let after = gap.since.saturating_sub(began).as_secs_f64();
        let why = gap.why.unwrap_or_default();
        Failure::new(format!("{failure}; it began {after:.1} s after the change: {why}"))
    })
}

/// The number of attempts in a second.
fn pace(writes: &[Write]) -> f64 {
    let ends = writes.first().zip(writes.last());
    let seconds = ends.map(|(first, last)| last.at.saturating_sub(first.at).as_secs_f64());
    seconds.filter(|seconds| *seconds > 0.0).map_or(0.0, |seconds| writes.len() as f64 / seconds)
}

/// A time without an acknowledged write.
#[derive(Debug, Default)]
struct Gap {
    seconds: f64,
    /// The last acknowledged write before it.
    since: Mono,
    /// Why the first write in it failed.
    why: Option<String>,
}

/// The longest time between two acknowledged writes if those between have failed. Writes may also fail until the end.
fn longest_gap(writes: &[Write]) -> Gap {
    let mut longest = Gap::default();
    let mut failing: Option<&Write> = None;
    let mut since = writes.first().map(|write| write.at).unwrap_or_default();
    for write in writes {
        if write.failed.is_some() {
            failing = failing.or(Some(write));
        }
        let seconds = write.at.saturating_sub(since).as_secs_f64();
        if let Some(first) = failing.filter(|_| seconds > longest.seconds) {
            longest = Gap { seconds, since, why: first.failed.clone() };
        }
        if write.failed.is_none() {
            (failing, since) = (None, write.at);
        }
    }
    longest
}

/// Five writes a second, each over a new connection to the address that the owner knows.
fn write_until((owner, word): (&Owner<'_>, &str), over: &Stop, writes: &Mutex<Vec<Write>>) {
    let clock = Clock::system();
    let mut due = clock.mono();
    for number in 0.. {
        let left = due.saturating_sub(clock.mono());
        if over.wait(&clock, left) {
            return;
        }
        due += PERIOD;
        let name = format!("{word}-{number}");
        let failed = write(owner, word, &name).err().map(|failure| failure.to_string());
        let write = Write { name, at: wait::now(), failed };
        writes.lock().unwrap_or_else(std::sync::PoisonError::into_inner).push(write);
    }
}

fn write(owner: &Owner<'_>, word: &str, name: &str) -> Result<()> {
    let object = json!({"metadata": {"name": name, "namespace": "default", "labels": {LABEL: word}}});
    let client = owner.client()?.with_deadline(ANSWER_WITHIN);
    Ok(client.create::<Value>(&CONFIG_MAP, "default", &object).map(drop)?)
}
