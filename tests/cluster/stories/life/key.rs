//! The key that encrypts etcd's data is replaced alone, while a client changes Secrets over one long connection.

use std::collections::BTreeMap;
use std::time::Duration;

use gardenlet::api::core::SECRET;
use gardenlet::api::meta::{Key, text};
use gardenlet::base::clock::Clock;
use gardenlet::base::stop::Stop;
use gardenlet::format::base64;
use gardenlet::kube::{Client, ListParams, Patch};
use serde_json::{Value, json};

use super::Name;
use super::owner::Owner;
use super::rotation::{Amount, ask_for, begins_with, fill, many, reached, stored_with};
use super::stored::raw_below;
use crate::agent::Agent;
use crate::failure::{Failure, Result, ensure, equal};
use crate::lab::Lab;
use crate::wait;

/// Secrets that are changed again and again.
const CHANGED: usize = 5;
/// The interval between two changes.
const PERIOD: Duration = Duration::from_millis(100);
/// A write that takes longer has failed.
const ANSWER_WITHIN: Duration = Duration::from_secs(10);
/// The minimum number of acknowledged writes while both steps of the rotation write all Secrets again.
const ACKNOWLEDGED_MIN: usize = 100;
/// The time for both steps, the second of which starts automatically.
const REPLACED_WITHIN_S: u64 = 900;

/// A long connection leads to the old API server, which knows the old keys, for as long as that runs. Whatever was
/// written meanwhile, all Secrets can be read afterwards, and etcd stores them with the new key.
pub(super) fn is_replaced_while_somebody_writes(
    lab: &Lab,
    garden: &Client,
    agent: &mut Agent,
    owner: &Owner<'_>,
) -> Result<()> {
    let (name, shoot) = (owner.name, owner.client()?);
    for n in 0..CHANGED {
        shoot.create::<Value>(&SECRET, "default", &json!({"metadata": {"name": changed(n)}}))?;
    }
    let count = Amount::of(lab).all;
    fill(&shoot, count)?;
    let looked_at = [many(0), many(count - 1)].into_iter().chain((0..CHANGED).map(changed));
    let looked_at: Vec<String> = looked_at.collect();
    let before = stored_with(lab, name, &looked_at)?;
    let (over, began) = (Stop::new(), wait::now());
    let (result, writes) = std::thread::scope(|scope| {
        let writer = scope.spawn(|| write_until(&shoot, &over));
        let phases = [("etcdEncryptionKey", "Completed")];
        let result = ask_for(garden, name, "rotate-etcd-encryption-key")
            .and_then(|()| reached(lab, garden, agent, (name, &phases, REPLACED_WITHIN_S)));
        over.stop();
        (result, writer.join())
    });
    result?;
    println!("       {:6.1} s  another encryption key", wait::seconds_since(began));
    all_can_be_read(owner, &writes.map_err(|_| Failure::new("the writer panicked"))?, count)?;
    let after = stored_with(lab, name, &looked_at)?;
    ensure(before != after, || format!("etcd still has {after:?}"))?;
    nothing_has_another(lab, name, (&after, count + CHANGED))
}

/// The API server may answer from its cache. In etcd, each Secret must start with the key, and there are at least so
/// many.
fn nothing_has_another(lab: &Lab, name: Name, (key, least): (&str, usize)) -> Result<()> {
    let all = raw_below(lab, name, "/registry/secrets")?;
    ensure(all.len() >= least, || format!("etcd has only {} Secrets", all.len()))?;
    let others: Vec<&String> =
        all.iter().filter(|(_, value)| !begins_with(value, key)).map(|(secret, _)| secret).collect();
    equal("Secrets with another key", &others, &Vec::new())
}

fn changed(n: usize) -> String {
    format!("changed-{}", n % CHANGED)
}

/// Writes numbers from zero on into the Secrets in turn. Returns for each whether it was acknowledged.
fn write_until(shoot: &Client, over: &Stop) -> Vec<bool> {
    let (clock, shoot) = (Clock::system(), shoot.with_deadline(ANSWER_WITHIN));
    let mut writes = Vec::new();
    while !over.wait(&clock, PERIOD) {
        let n = writes.len();
        let patch = Patch::Merge(json!({"stringData": {"n": n.to_string()}}));
        writes.push(shoot.patch_blindly(&SECRET, &Key::new("default", changed(n)), &patch).is_ok());
    }
    writes
}

/// All Secrets exist with the last written value.
fn all_can_be_read(owner: &Owner<'_>, writes: &[bool], count: usize) -> Result<()> {
    let acknowledged = writes.iter().filter(|is_acknowledged| **is_acknowledged).count();
    println!("                 {acknowledged} of {} writes acknowledged", writes.len());
    ensure(acknowledged >= ACKNOWLEDGED_MIN, || format!("only {acknowledged} writes were acknowledged"))?;
    let mut found: BTreeMap<String, Option<usize>> = BTreeMap::new();
    owner.client()?.list_all::<Value>(&SECRET, "default", &ListParams::default(), &mut |secret| {
        found.insert(text(&secret["metadata"]["name"]).to_owned(), number(&secret));
    })?;
    let other: Vec<String> = (0..count).map(many).filter(|name| !found.contains_key(name)).collect();
    equal("lost Secrets", &other, &Vec::new())?;
    let other: Vec<usize> = (0..count).filter(|n| found[&many(*n)] != Some(*n)).collect();
    equal("Secrets with changed values", &other, &Vec::new())?;
    let value = |n: usize| found.get(&changed(n)).copied().flatten();
    let wrong: Vec<_> = (0..CHANGED).map(|n| (n, value(n))).filter(|at| !may_be(writes, *at)).collect();
    equal("Secrets without the last written value", &wrong, &Vec::new())
}

/// Whether a Secret may have that value: the last acknowledged one, or one with an unknown result.
fn may_be(writes: &[bool], (secret, value): (usize, Option<usize>)) -> bool {
    let last = (0..writes.len()).rfind(|n| n % CHANGED == secret && writes[*n]);
    let is_unknown = value.is_some_and(|n| n % CHANGED == secret && writes.get(n) == Some(&false));
    is_unknown || last.is_some() && value == last
}

/// The number in a Secret.
fn number(secret: &Value) -> Option<usize> {
    let bytes = base64::decode(text(&secret["data"]["n"]).as_bytes()).ok()?;
    String::from_utf8(bytes).ok()?.parse().ok()
}
