//! The packet filter of the sandbox: addresses that drop all packets.

use std::net::Ipv4Addr;

use crate::environment::Environment;
use crate::failure::{Failure, Result};
use crate::process;

/// A packet filter that drops the packets to and from a server, until it is dropped itself.
pub(crate) struct Swallowed {
    environment: Environment,
    address: Ipv4Addr,
    port: u16,
}

impl Swallowed {
    pub(crate) fn begin(environment: &Environment, address: Ipv4Addr, port: u16) -> Result<Self> {
        let swallowed = Self { environment: environment.clone(), address, port };
        swallowed.rules("--insert")?;
        Ok(swallowed)
    }

    /// The number of dropped packets to the server.
    pub(crate) fn count(&self) -> Result<u64> {
        let mut command = self.environment.command("iptables")?;
        let table = process::run(command.args(["--wait", "--list-rules", "INPUT", "--verbose"]))?;
        let (to, port) = (format!("-d {}/32 ", self.address), format!("--dport {} ", self.port));
        let rule = table.lines().find(|line| line.contains(&to) && line.contains(&port));
        // ... -c PACKETS BYTES ...
        let count = rule.and_then(|rule| rule.split(" -c ").nth(1)?.split(' ').next()?.parse().ok());
        count.ok_or_else(|| Failure::new(format!("no count of swallowed packets in:\n{table}")))
    }

    fn rules(&self, action: &str) -> Result<()> {
        let (address, port) = (self.address.to_string(), self.port.to_string());
        for (end, port_of) in [("--destination", "--dport"), ("--source", "--sport")] {
            let mut command = self.environment.command("iptables")?;
            command.args(["--wait", action, "INPUT", end, &address, "--protocol", "tcp", port_of, &port]);
            process::run(command.args(["--jump", "DROP"]))?;
        }
        Ok(())
    }
}

impl Drop for Swallowed {
    fn drop(&mut self) {
        if let Err(error) = self.rules("--delete") {
            println!("       the packet filter was not removed: {error}");
        }
    }
}
