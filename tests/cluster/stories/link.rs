//! A dead link without a sign: packets are dropped, but no connection is closed.

use std::net::Ipv4Addr;

use gardenlet::api::coordination::LEASE;
use gardenlet::api::meta::Key;
use serde_json::Value;

use crate::agent::Agent;
use crate::failure::{Result, equal};
use crate::filter::Swallowed;
use crate::lab::Lab;
use crate::stories::steps::ready;
use crate::wait;
use crate::world::{self, World};

/// The longest time until the agent ends.
const STOPPED_IN_S: f64 = 15.0;

/// Packets to the garden are lost, and packets from it, too.
fn swallow(lab: &Lab) -> Result<Swallowed> {
    Swallowed::begin(&lab.environment, Ipv4Addr::LOCALHOST, lab.garden.address().port())
}

/// Heartbeat and watches notice a dead link, and after its return the lease is renewed.
pub(crate) fn dead(lab: &mut Lab) -> Result<()> {
    let _world = World::build(lab)?;
    let mut agent = Agent::start(lab, world::agent(lab, "agent")?)?;
    ready(lab, &mut agent)?;
    let swallowed = swallow(lab)?;
    agent.wait_log("Cannot renew the seed's lease", 60)?;
    // Idle connections: fifteen seconds of keepalive. Without it, they would notice nothing.
    agent.wait_log("The watch was interrupted", 60)?;
    drop(swallowed);
    agent.wait_log("Renewed the seed's lease again", 60)?;
    ready(lab, &mut agent)
}

/// A garden that drops packets does not delay a stop: the leader's lease is released.
pub(crate) fn stop(lab: &mut Lab) -> Result<()> {
    let _world = World::build(lab)?;
    let mut agent = Agent::start(lab, world::agent(lab, "agent")?)?;
    ready(lab, &mut agent)?;
    let swallowed = swallow(lab)?;
    // From here on its new connections are never established.
    agent.wait_log("The watch was interrupted", 60)?;
    let began = wait::now();
    let status = agent.terminate()?;
    wait::measured("seconds until the agent ends", wait::seconds_since(began), STOPPED_IN_S)?;
    drop(swallowed);
    equal("the exit code", &status.code(), &Some(0))?;
    let lease = lab.seed.client()?.get::<Value>(&LEASE, &Key::new("garden", "gardenlet-leader-election"))?;
    equal("the holder", &lease["spec"]["holderIdentity"].as_str(), &Some(""))
}
