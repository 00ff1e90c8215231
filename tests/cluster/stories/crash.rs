//! The agent is killed again and again on its way: the end is the same as without, nothing is there twice, and the lease
//! is taken back at once.

use gardenlet::api::certificates::CERTIFICATE_SIGNING_REQUEST;
use gardenlet::kube::{Client, ListParams};
use serde_json::Value;

use crate::agent::Agent;
use crate::audit::{Audit, Request};
use crate::failure::{Failure, Result, ensure, equal};
use crate::lab::Lab;
use crate::snapshot::{Difference, Snapshot};
use crate::stories::steps::{installed, ready, register_demo};
use crate::wait;
use crate::world::{self, World};

/// How many times the agent is killed at least.
const KILLS_MIN: usize = 20;

/// What a run left in the garden and in the seed.
struct Left {
    garden: Difference,
    seed: Difference,
}

pub(crate) fn sigkill(lab: &mut Lab) -> Result<()> {
    let undisturbed = run(lab, |_, _| Ok(()))?;
    lab.reset()?;
    let mut kills = 0;
    let disturbed = run(lab, |lab, agent| {
        kills = kill_after_writes(lab, agent)?;
        Ok(())
    })?;
    ensure(kills >= KILLS_MIN, || format!("killed only {kills} times"))?;
    undisturbed.garden.ensure_same(&disturbed.garden, "the garden, undisturbed and disturbed")?;
    undisturbed.seed.ensure_same(&disturbed.seed, "the seed, undisturbed and disturbed")
}

/// The whole way of a seed with an extension; `disturb` happens while it is under way.
fn run(lab: &mut Lab, disturb: impl FnOnce(&Lab, &mut Agent) -> Result<()>) -> Result<Left> {
    let _world = World::build(lab)?;
    register_demo(lab, 0)?;
    let (garden, seed) = (Snapshot::take(&lab.garden)?, Snapshot::take(&lab.seed)?);
    let mut agent = Agent::start(lab, world::agent(lab, "agent")?)?;
    disturb(lab, &mut agent)?;
    ready(lab, &mut agent)?;
    let client = lab.garden.client()?;
    installed(&client, &mut agent)?;
    equal("certificate requests", &requests(&client)?, &1)?;
    agent.terminate()?;
    Ok(Left {
        garden: Snapshot::take(&lab.garden)?.since(&garden),
        seed: Snapshot::take(&lab.seed)?.since(&seed),
    })
}

/// Kills the agent after its first write, restarts it, kills it after its second write, and so on.
fn kill_after_writes(lab: &Lab, agent: &mut Agent) -> Result<usize> {
    let mut audits = [lab.garden.audit(), lab.seed.audit()];
    for life in 0..KILLS_MIN {
        let mut writes = 0;
        // A life in which nothing is left to write ends, too.
        let written = wait::until("writes", 5, || {
            writes += audits.iter_mut().map(new_writes).sum::<Result<usize>>()?;
            Ok::<_, Failure>((writes > life).then_some(()))
        });
        agent.ensure_running()?;
        agent.kill();
        let started = wait::now();
        agent.restart()?;
        agent.wait_log("Became leader", 10)?;
        let seconds = wait::seconds_since(started);
        ensure(seconds < 2.0, || format!("the lease was taken back after {seconds:.1} s"))?;
        drop(written);
    }
    Ok(KILLS_MIN)
}

/// How many requests of the agent changed something that is not a Lease.
fn new_writes(audit: &mut Audit) -> Result<usize> {
    let counts =
        |request: &&Request| request.is_write() && request.code() < 300 && !request.uri.contains("/leases");
    Ok(audit.requests()?.iter().filter(counts).count())
}

fn requests(garden: &Client) -> Result<usize> {
    let found = garden.list::<Value>(&CERTIFICATE_SIGNING_REQUEST, "", &ListParams::default())?;
    Ok(found.items.len())
}
