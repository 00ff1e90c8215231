//! A Shoot gets another minor version of Kubernetes while a client writes into it.

use std::sync::Mutex;

use gardenlet::api::core::POD;
use gardenlet::api::gardener::CLOUD_PROFILE;
use gardenlet::api::meta::Key;
use gardenlet::base::clock::Mono;
use gardenlet::base::stop::Stop;
use gardenlet::kube::{Client, ListParams, Patch};
use serde_json::{Value, json};

use super::owner::Owner;
use super::sleep::changed;
use super::writer::{self, Write};
use super::{Name, extensions, watch};
use crate::agent::Agent;
use crate::failure::{Failure, Result};
use crate::lab::Lab;
use crate::wait;

/// The longest time between two attempts, on average.
const APART_S: f64 = 0.25;
/// The longest time without a successful new connection.
const GAP_S: f64 = 5.0;
/// The CloudProfile of Shoots without nodes.
pub(super) const PROFILE: &str = "local";

/// Another version, while nobody looks.
pub(super) fn to(lab: &Lab, garden: &Client, agent: &mut Agent, (name, version): (Name, &str)) -> Result<()> {
    changed(lab, garden, agent, (name, &wish(version)))?;
    the_last_server_ends(lab, name)
}

fn wish(version: &str) -> Value {
    json!({"spec": {"kubernetes": {"version": version.trim_start_matches('v')}}})
}

/// Shoots may have the versions of their CloudProfile.
pub(super) fn offer(garden: &Client, profile: &str, version: &str) -> Result<()> {
    let key = Key::cluster(profile);
    let found: Value = garden.get(&CLOUD_PROFILE, &key)?;
    let mut versions = found["spec"]["kubernetes"]["versions"].as_array().cloned().unwrap_or_default();
    versions.push(json!({"version": version.trim_start_matches('v')}));
    let patch = Patch::Merge(json!({"spec": {"kubernetes": {"versions": versions}}}));
    Ok(garden.patch::<Value>(&CLOUD_PROFILE, &key, &patch).map(drop)?)
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
        scope.spawn(|| writer::until(&over, word, &writes, &|| Ok(vec![owner.client()?])));
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
pub(super) fn the_last_server_ends(lab: &Lab, name: Name) -> Result<()> {
    let params = ListParams { label_selector: "role=apiserver".to_owned(), ..ListParams::default() };
    wait::until("the end of the old server", 90, || {
        let pods = lab.seed.client()?.list::<Value>(&POD, &name.plane(), &params)?.items;
        Ok::<_, Failure>((pods.len() == 1).then_some(()))
    })
}

fn judge(writes: &[Write], (owner, word): (&Owner<'_>, &str), began: Mono) -> Result<()> {
    let gap = writer::judge(writes, (owner, word))?;
    wait::measured("seconds between two tries to write", 1.0 / writer::pace(writes), APART_S)?;
    wait::measured("seconds without an acknowledged write", gap.seconds, GAP_S).map_err(|failure| {
        let after = gap.since.saturating_sub(began).as_secs_f64();
        let why = gap.why.unwrap_or_default();
        Failure::new(format!("{failure}; it began {after:.1} s after the change: {why}"))
    })
}
