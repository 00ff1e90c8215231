//! A separate network next to the sandbox, connected by a cable: its clients are not on the node.

use std::process::Command;

use crate::balancer;
use crate::environment::Environment;
use crate::failure::Result;
use crate::lab::Lab;
use crate::process::{self, Process};
use crate::wait;

/// Private addresses that nothing else in the sandbox has. To an agent, an address for documentation is a problem.
pub(crate) const INSIDE_ADDRESS: &str = "10.66.0.1";
const OUTSIDE_ADDRESS: &str = "10.66.0.2";
/// The end of the cable in the sandbox.
const CABLE: &str = "outside";

/// It ends when dropped.
#[derive(Debug)]
pub(crate) struct Outside {
    environment: Environment,
    /// The network exists as long as this process, which only waits.
    holder: Process,
}

impl Outside {
    pub(crate) fn start(lab: &Lab) -> Result<Self> {
        let mut command = lab.command("unshare")?;
        command.args(["--net", "sleep", "infinity"]);
        let holder = Process::start("outside", &lab.state, command)?;
        let mut outside = Self { environment: lab.environment.clone(), holder };
        let own = std::fs::read_link("/proc/self/ns/net")?;
        let its = format!("/proc/{}/ns/net", outside.holder.id());
        wait::until("the network outside", 10, || {
            outside.holder.ensure_running()?;
            Ok::<_, crate::failure::Failure>((std::fs::read_link(&its)? != own).then_some(()))
        })?;
        let id = outside.holder.id().to_string();
        let ip = |arguments: &str| process::run(Command::new("ip").args(arguments.split(' ')));
        ip(&format!("link add {CABLE} type veth peer name cable netns {id}"))?;
        ip(&format!("address add {INSIDE_ADDRESS}/30 dev {CABLE}"))?;
        ip(&format!("link set {CABLE} up"))?;
        for arguments in [
            "link set lo up".to_owned(),
            format!("address add {OUTSIDE_ADDRESS}/30 dev cable"),
            "link set cable up".to_owned(),
            // Only the addresses that a load balancer announces.
            format!("route add {} via {INSIDE_ADDRESS}", balancer::RANGE),
        ] {
            process::run(outside.command("ip")?.args(arguments.split(' ')))?;
        }
        Ok(outside)
    }

    /// A command that runs in this network.
    pub(crate) fn command(&self, program: &str) -> Result<Command> {
        let mut command = self.environment.command("nsenter")?;
        command.arg(format!("--net=/proc/{}/ns/net", self.holder.id()));
        command.arg(self.environment.command(program)?.get_program());
        Ok(command)
    }
}
