//! A separate network next to the sandbox: its clients are not on the node.

use std::process::Command;

use crate::balancer;
use crate::failure::Result;
use crate::lab::Lab;
use crate::machine::{Cable, Machine};

/// Private addresses that nothing else in the sandbox has. To an agent, an address for documentation is a problem.
pub(crate) const INSIDE_ADDRESS: &str = "10.66.0.1";
const CABLE: Cable = Cable { name: "outside", inside: INSIDE_ADDRESS, outside: "10.66.0.2" };

/// It ends when dropped.
#[derive(Debug)]
pub(crate) struct Outside(Machine);

impl Outside {
    pub(crate) fn start(lab: &Lab) -> Result<Self> {
        let outside = Self(Machine::with_network(lab, &CABLE)?);
        // Only the addresses that a load balancer announces.
        outside.knows(balancer::RANGE)?;
        Ok(outside)
    }

    /// Leads to an address or a range through the sandbox.
    pub(crate) fn knows(&self, range: &str) -> Result<()> {
        self.0.ip(&format!("route add {range} via {INSIDE_ADDRESS}"))
    }

    /// A command that runs in this network.
    pub(crate) fn command(&self, program: &str) -> Result<Command> {
        self.0.command(program)
    }
}
