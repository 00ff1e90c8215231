//! Somebody writes into a Shoot all the time, and remembers what was acknowledged.

use std::sync::Mutex;
use std::time::Duration;

use gardenlet::api::core::CONFIG_MAP;
use gardenlet::api::meta::text;
use gardenlet::base::clock::{Clock, Mono};
use gardenlet::base::stop::Stop;
use gardenlet::kube::{Client, ListParams};
use serde_json::{Value, json};

use super::owner::Owner;
use crate::failure::{Failure, Result, ensure, equal};
use crate::wait;

/// Five writes a second.
const PERIOD: Duration = Duration::from_millis(200);
/// A write that takes longer has failed.
const ANSWER_WITHIN: Duration = Duration::from_secs(2);
/// The label of the writer's objects.
const LABEL: &str = "writer";

/// One write over its own connection.
#[derive(Clone, Debug)]
pub(super) struct Write {
    name: String,
    at: Mono,
    /// Why it was not acknowledged.
    failed: Option<String>,
}

impl Write {
    pub(super) const fn is_acknowledged(&self) -> bool {
        self.failed.is_none()
    }
}

/// Five writes a second until `over`. `word` is part of the names of the objects, and their label. `client` gives a new
/// connection for each write, or those to several places, of which one serves.
pub(super) fn until(
    over: &Stop,
    word: &str,
    writes: &Mutex<Vec<Write>>,
    clients: &dyn Fn() -> Result<Vec<Client>>,
) {
    let clock = Clock::system();
    let mut due = clock.mono();
    for number in 0.. {
        let left = due.saturating_sub(clock.mono());
        if over.wait(&clock, left) {
            return;
        }
        due += PERIOD;
        let name = format!("{word}-{number}");
        let failed = write(clients, word, &name).err().map(|failure| failure.to_string());
        let write = Write { name, at: wait::now(), failed };
        writes.lock().unwrap_or_else(std::sync::PoisonError::into_inner).push(write);
    }
}

fn write(clients: &dyn Fn() -> Result<Vec<Client>>, word: &str, name: &str) -> Result<()> {
    let object = json!({"metadata": {"name": name, "namespace": "default", "labels": {LABEL: word}}});
    let mut failure = Failure::new("there is no place to write to");
    for client in clients()? {
        match client.with_deadline(ANSWER_WITHIN).create::<Value>(&CONFIG_MAP, "default", &object) {
            Ok(_) => return Ok(()),
            Err(refused) => failure = Failure::from(refused),
        }
    }
    Err(failure)
}

/// All acknowledged writes exist. Returns the longest time without one.
pub(super) fn judge(writes: &[Write], (owner, word): (&Owner<'_>, &str)) -> Result<Gap> {
    let acknowledged: Vec<&str> =
        writes.iter().filter(|write| write.is_acknowledged()).map(|write| write.name.as_str()).collect();
    let (gap, pace) = (longest_gap(writes), pace(writes));
    let longest = gap.seconds;
    println!(
        "                 {} of {} writes acknowledged, {longest:.1} s without, {pace:.1} tried in a second",
        acknowledged.len(),
        writes.len()
    );
    ensure(acknowledged.len() > 50, || format!("only {} writes were acknowledged", acknowledged.len()))?;
    let params = ListParams { label_selector: format!("{LABEL}={word}"), ..ListParams::default() };
    let mut found = Vec::new();
    owner.client()?.list_all::<Value>(&CONFIG_MAP, "default", &params, &mut |map| {
        found.push(text(&map["metadata"]["name"]).to_owned());
    })?;
    let lost: Vec<&&str> =
        acknowledged.iter().filter(|name| !found.iter().any(|known| known == **name)).collect();
    equal("acknowledged writes that are lost", &lost, &Vec::new())?;
    Ok(gap)
}

/// The number of attempts in a second.
pub(super) fn pace(writes: &[Write]) -> f64 {
    let ends = writes.first().zip(writes.last());
    let seconds = ends.map(|(first, last)| last.at.saturating_sub(first.at).as_secs_f64());
    seconds.filter(|seconds| *seconds > 0.0).map_or(0.0, |seconds| writes.len() as f64 / seconds)
}

/// A time without an acknowledged write.
#[derive(Debug, Default)]
pub(super) struct Gap {
    pub(super) seconds: f64,
    /// The last acknowledged write before it.
    pub(super) since: Mono,
    /// Why the first write in it failed.
    pub(super) why: Option<String>,
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
