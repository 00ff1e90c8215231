//! The agent is killed again and again: the result is the same as without kills, there are no duplicates, and the lease
//! remains with the same holder.

use std::time::Duration;

use gardenlet::api::certificates::CERTIFICATE_SIGNING_REQUEST;
use gardenlet::api::coordination::LEASE;
use gardenlet::api::gardener::CONTROLLER_DEPLOYMENT;
use gardenlet::api::meta::{ALL_NAMESPACES, Key};
use gardenlet::kube::{Client, ListParams, Patch};
use serde_json::{Value, json};

use crate::agent::Agent;
use crate::audit::{Audit, Request};
use crate::failure::{Result, ensure, equal};
use crate::lab::Lab;
use crate::snapshot::{Difference, Snapshot};
use crate::stories::steps::{installed, ready, register_demo};
use crate::wait;
use crate::world::{self, World};

/// The minimum number of kills, and that with `tests/run --long`.
const KILLS_MIN: usize = 20;
const KILLS_LONG: usize = 120;
/// The time until a restarted agent leads again.
const LEASE_BACK_S: f64 = 10.0;
/// If nothing is written for this time, the extension gets new values.
const QUIET: Duration = Duration::from_secs(2);

/// The objects of a run in the garden and in the seed.
struct Left {
    garden: Difference,
    seed: Difference,
}

pub(crate) fn sigkill(lab: &mut Lab) -> Result<()> {
    let undisturbed = run(lab, |_, _| Ok(()))?;
    lab.reset()?;
    let wanted = if lab.environment.long { KILLS_LONG } else { KILLS_MIN };
    let mut kills = 0;
    let disturbed = run(lab, |lab, agent| {
        kills = kill_after_writes(lab, agent, wanted)?;
        Ok(())
    })?;
    ensure(kills >= wanted, || format!("killed only {kills} times"))?;
    undisturbed.garden.ensure_same(&disturbed.garden, "the garden, undisturbed and disturbed")?;
    undisturbed.seed.ensure_same(&disturbed.seed, "the seed, undisturbed and disturbed")
}

/// The whole life of a seed with an extension; `disturb` runs in the middle of it.
fn run(lab: &mut Lab, disturb: impl FnOnce(&Lab, &mut Agent) -> Result<()>) -> Result<Left> {
    let _world = World::build(lab)?;
    register_demo(lab, 0)?;
    let (garden, seed) = (Snapshot::take(&lab.garden)?, Snapshot::take(&lab.seed)?);
    let mut agent = Agent::start(lab, world::agent(lab, "agent")?)?;
    disturb(lab, &mut agent)?;
    ready(lab, &mut agent)?;
    let client = lab.garden.client()?;
    installed(&client, &mut agent)?;
    greet(lab, "the end")?;
    wait::until("the last values", 60, || greeting(lab).map(|found| (found == "the end").then_some(())))?;
    installed(&client, &mut agent)?;
    equal("certificate requests", &requests(&client)?, &1)?;
    agent.terminate()?;
    Ok(Left {
        garden: Snapshot::take(&lab.garden)?.since(&garden),
        seed: Snapshot::take(&lab.seed)?.since(&seed),
    })
}

/// Kills the agent after its first write three times, after its second three times, and so on. When nothing remains to
/// be written, the extension gets new values. Ends after the wanted number of kills that followed a write, or after
/// five times as many lives; returns the number of kills.
fn kill_after_writes(lab: &Lab, agent: &mut Agent, wanted: usize) -> Result<usize> {
    let mut audits = [lab.garden.audit(), lab.seed.audit()];
    let (mut kills, mut term, mut slowest) = (0, None, 0.0_f64);
    for life in 0.. {
        let (mut writes, enough) = (0, 1 + life / 3);
        let written = wait::briefly(QUIET, || {
            writes += audits.iter_mut().map(new_writes).sum::<Result<usize>>()?;
            Ok((writes >= enough).then_some(()))
        })?;
        agent.ensure_running()?;
        agent.kill();
        let started = wait::now();
        agent.skip_log();
        agent.restart()?;
        // The applier has a Lease of its own.
        agent.wait_log("Became leader lease=garden/gardenlet-leader-election", 30)?;
        slowest = slowest.max(wait::seconds_since(started));
        let now = Term::read(lab)?;
        equal("the term of the leader", &now, term.get_or_insert_with(|| now.clone()))?;
        kills += usize::from(writes > 0);
        if kills >= wanted || life > 5 * wanted {
            break;
        }
        if written.is_none() {
            greet(lab, &format!("life {life}"))?;
        }
    }
    wait::measured("seconds until the lease is back", slowest, LEASE_BACK_S)?;
    Ok(kills)
}

/// Who leads, and since when. A new process that is the same instance continues the term. Another instance would wait until
/// the lease expires, and begin a new one.
#[derive(Clone, Debug, PartialEq)]
struct Term([Value; 3]);

impl Term {
    fn read(lab: &Lab) -> Result<Self> {
        let lease: Value =
            lab.seed.client()?.get(&LEASE, &Key::new("garden", "gardenlet-leader-election"))?;
        let spec = &lease["spec"];
        ensure(spec["holderIdentity"].as_str().is_some_and(|holder| !holder.is_empty()), || {
            format!("nobody leads: {spec}")
        })?;
        Ok(Self(["holderIdentity", "acquireTime", "leaseTransitions"].map(|field| spec[field].clone())))
    }
}

/// Gives the extension other values.
fn greet(lab: &Lab, greeting: &str) -> Result<()> {
    let values = Patch::Merge(json!({"helm": {"values": {"replicas": 0, "greeting": greeting}}}));
    lab.garden.client()?.patch::<Value>(&CONTROLLER_DEPLOYMENT, &Key::cluster("demo"), &values)?;
    Ok(())
}

/// The number of requests of the agent that changed something other than a Lease.
fn new_writes(audit: &mut Audit) -> Result<usize> {
    let counts =
        |request: &&Request| request.is_write() && request.code() < 300 && !request.uri.contains("/leases");
    Ok(audit.requests()?.iter().filter(counts).count())
}

/// The greeting in the extension's ConfigMap.
pub(super) fn greeting(lab: &Lab) -> Result<String> {
    let selected = ["--selector", "resources.gardener.cloud/managed-by=gardener", "--all-namespaces"];
    let output = "--output=jsonpath={.items[?(@.metadata.name=='demo')].data.greeting}";
    lab.seed.kubectl(&[&["get", "configmaps", output], &selected[..]].concat())
}

fn requests(garden: &Client) -> Result<usize> {
    let found = garden.list::<Value>(&CERTIFICATE_SIGNING_REQUEST, ALL_NAMESPACES, &ListParams::default())?;
    Ok(found.items.len())
}
