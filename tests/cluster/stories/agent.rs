//! The main job: the agent as a real process, from a bootstrap token to a seed that is ready.

use gardenlet::api::coordination::LEASE;
use gardenlet::api::core::SECRET;
use gardenlet::api::gardener::SEED as SEEDS;
use serde_json::Value;

use crate::agent::Agent;
use crate::failure::{Result, ensure, equal};
use crate::lab::Lab;
use crate::wait;
use crate::world::{self, SEED, World};

/// A bootstrap token becomes a certificate, the seed registers, its lease is renewed, its condition becomes True.
pub(crate) fn joins(lab: &mut Lab) -> Result<()> {
    let world = World::build(lab)?;
    let mut agent = Agent::start(lab, world::agent(lab, "agent")?)?;
    ready(lab, &mut agent)?;
    let (garden, seed) = (lab.garden.client()?, lab.seed.client()?);
    let bootstrap = seed.find::<Value>(&SECRET, "garden", "gardenlet-kubeconfig-bootstrap")?;
    ensure(bootstrap.is_none(), || "the bootstrap Secret is still there".to_owned())?;
    let token = format!("bootstrap-token-{}", world.preparation.token_id());
    let token = garden.find::<Value>(&SECRET, "kube-system", &token)?;
    ensure(token.is_none(), || "the bootstrap token is still there".to_owned())?;
    let status = agent.terminate()?;
    equal("the exit code", &status.code(), &Some(0))
}

/// Waits until the Seed is ready and its lease is there.
fn ready(lab: &Lab, agent: &mut Agent) -> Result<()> {
    let garden = lab.garden.client()?;
    wait::until("the seed to be ready", 60, || {
        let running = agent.ensure_running();
        if running.is_err() {
            return Ok(Some(running));
        }
        let seed = garden.find::<Value>(&SEEDS, "", SEED)?;
        let conditions = seed.as_ref().and_then(|seed| seed["status"]["conditions"].as_array()).cloned();
        let is_ready = |c: &Value| c["type"] == "GardenletReady" && c["status"] == "True";
        Ok::<_, gardenlet::kube::Error>(conditions.unwrap_or_default().iter().any(is_ready).then_some(Ok(())))
    })??;
    garden.get::<Value>(&LEASE, "gardener-system-seed-lease", SEED).map(drop)?;
    Ok(())
}
