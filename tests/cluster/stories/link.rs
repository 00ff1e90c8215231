//! A link that is dead and does not say so: packets vanish, nobody closes a connection.

use gardenlet::api::coordination::LEASE;
use serde_json::Value;

use crate::agent::Agent;
use crate::failure::{Result, equal};
use crate::lab::Lab;
use crate::process;
use crate::stories::steps::ready;
use crate::world::{self, World};

/// The port of the garden's API server.
const GARDEN_PORT: &str = "16443";

/// The packet filter swallows what goes to the garden and what comes from it, until dropped.
struct Swallowed<'a>(&'a Lab);

impl<'a> Swallowed<'a> {
    fn begin(lab: &'a Lab) -> Result<Self> {
        let swallowed = Self(lab);
        swallowed.rules("--insert")?;
        Ok(swallowed)
    }

    fn rules(&self, action: &str) -> Result<()> {
        for direction in ["--dport", "--sport"] {
            let mut command = self.0.command("iptables")?;
            command.args(["--wait", action, "INPUT", "--protocol", "tcp", direction, GARDEN_PORT]);
            process::run(command.args(["--jump", "DROP"]))?;
        }
        Ok(())
    }
}

impl Drop for Swallowed<'_> {
    fn drop(&mut self) {
        if let Err(error) = self.rules("--delete") {
            println!("       the packet filter stays: {error}");
        }
    }
}

/// A dead link is noticed by heartbeat and watches, and soon after its return the lease is renewed.
pub(crate) fn dead(lab: &mut Lab) -> Result<()> {
    let _world = World::build(lab)?;
    let mut agent = Agent::start(lab, world::agent(lab, "agent")?)?;
    ready(lab, &mut agent)?;
    let swallowed = Swallowed::begin(lab)?;
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
    let swallowed = Swallowed::begin(lab)?;
    // From here on it opens connections that nobody takes.
    agent.wait_log("The watch broke off", 30)?;
    let status = agent.terminate()?;
    drop(swallowed);
    equal("the exit code", &status.code(), &Some(0))?;
    let lease = lab.seed.client()?.get::<Value>(&LEASE, "garden", "gardenlet-leader-election")?;
    equal("the holder", &lease["spec"]["holderIdentity"].as_str(), &Some(""))
}
