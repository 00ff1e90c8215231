//! A link that is dead and does not say so: packets vanish, nobody closes a connection.

use std::net::Ipv4Addr;

use gardenlet::api::coordination::LEASE;
use serde_json::Value;

use crate::agent::Agent;
use crate::failure::{Result, equal};
use crate::filter::Swallowed;
use crate::lab::Lab;
use crate::stories::steps::ready;
use crate::world::{self, World};

/// What goes to the garden is lost, and what comes from it.
fn swallow(lab: &Lab) -> Result<Swallowed> {
    Swallowed::begin(&lab.environment, Ipv4Addr::LOCALHOST, lab.garden.address().port())
}

/// A dead link is noticed by heartbeat and watches, and soon after its return the lease is renewed.
pub(crate) fn dead(lab: &mut Lab) -> Result<()> {
    let _world = World::build(lab)?;
    let mut agent = Agent::start(lab, world::agent(lab, "agent")?)?;
    ready(lab, &mut agent)?;
    let swallowed = swallow(lab)?;
    agent.wait_log("The seed's lease was not renewed", 15)?;
    // Idle connections: fifteen seconds of keepalive, and a machine that is busy.
    agent.wait_log("The watch broke off", 30)?;
    drop(swallowed);
    agent.wait_log("The seed's lease is renewed again", 20)?;
    ready(lab, &mut agent)
}

/// A garden that swallows packets holds up no stop: the leader's lease is given back.
pub(crate) fn stop(lab: &mut Lab) -> Result<()> {
    let _world = World::build(lab)?;
    let mut agent = Agent::start(lab, world::agent(lab, "agent")?)?;
    ready(lab, &mut agent)?;
    let swallowed = swallow(lab)?;
    // From here on it opens connections that nobody takes.
    agent.wait_log("The watch broke off", 30)?;
    let status = agent.terminate()?;
    drop(swallowed);
    equal("the exit code", &status.code(), &Some(0))?;
    let lease = lab.seed.client()?.get::<Value>(&LEASE, "garden", "gardenlet-leader-election")?;
    equal("the holder", &lease["spec"]["holderIdentity"].as_str(), &Some(""))
}
