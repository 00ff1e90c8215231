//! Machines beside the sandbox: each has a network of its own, with a cable to the sandbox, and a node also has its own
//! mounts.

use std::path::PathBuf;
use std::process::Command;

use crate::environment::Environment;
use crate::failure::{Failure, Result};
use crate::lab::Lab;
use crate::process::{self, Process};
use crate::wait;

/// The name of the other end of a cable, in the network of the machine.
pub(crate) const DEVICE: &str = "cable";

/// What the programs of a node keep outside of their own folders: empty file systems in memory. Folders for volumes are
/// those of the sandbox, where the harness makes them.
const OWN_FOLDERS: &str = "\
    for folder in /run /var/lib/containerd /var/lib/kubelet /var/lib/cni /var/log; do
        mkdir -p $folder && mount -t tmpfs machine $folder || exit
    done
    exec sleep infinity";

/// The cable between the sandbox and a machine: a network of four addresses.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cable {
    /// Its end in the sandbox, and the name of the machine.
    pub(crate) name: &'static str,
    pub(crate) inside: &'static str,
    pub(crate) outside: &'static str,
}

/// It ends when dropped.
#[derive(Debug)]
pub(crate) struct Machine {
    environment: Environment,
    /// The namespaces exist as long as this process, which only waits. Without it, this is the sandbox itself.
    holder: Option<Process>,
    has_mounts: bool,
}

impl Machine {
    /// The sandbox.
    pub(crate) fn sandbox(lab: &Lab) -> Self {
        Self { environment: lab.environment.clone(), holder: None, has_mounts: false }
    }

    /// A machine without files of its own: for clients.
    pub(crate) fn with_network(lab: &Lab, cable: &Cable) -> Result<Self> {
        Self::start(lab, cable, &["--net", "sleep", "infinity"])
    }

    /// A machine that a node can run on.
    pub(crate) fn with_mounts(lab: &Lab, cable: &Cable) -> Result<Self> {
        let machine = Self::start(lab, cable, &["--net", "--mount", "sh", "-c", OWN_FOLDERS])?;
        Ok(Self { has_mounts: true, ..machine })
    }

    fn start(lab: &Lab, cable: &Cable, arguments: &[&str]) -> Result<Self> {
        let mut command = lab.command("unshare")?;
        command.args(arguments);
        let mut holder = Process::start(cable.name, &lab.state, command)?;
        let comm = format!("/proc/{}/comm", holder.id());
        wait::until(&format!("machine {}", cable.name), 10, || {
            holder.ensure_running()?;
            Ok::<_, Failure>((std::fs::read_to_string(&comm)? == "sleep\n").then_some(()))
        })?;
        let id = holder.id();
        let machine = Self { environment: lab.environment.clone(), holder: Some(holder), has_mounts: false };
        let Cable { name, inside, outside } = cable;
        let sandbox = Self::sandbox(lab);
        sandbox.ip(&format!("link add {name} type veth peer name {DEVICE} netns {id}"))?;
        sandbox.ip(&format!("address add {inside}/30 dev {name}"))?;
        sandbox.ip(&format!("link set {name} up"))?;
        machine.ip("link set lo up")?;
        machine.ip(&format!("address add {outside}/30 dev {DEVICE}"))?;
        machine.ip(&format!("link set {DEVICE} up"))?;
        Ok(machine)
    }

    /// Runs `ip` in its network, with words that are separated by spaces.
    pub(crate) fn ip(&self, arguments: &str) -> Result<()> {
        process::run(self.command("ip")?.args(arguments.split(' '))).map(drop)
    }

    /// A command that runs on this machine.
    pub(crate) fn command(&self, program: &str) -> Result<Command> {
        let own = self.environment.command(program)?;
        let Some(network) = self.namespace("net") else { return Ok(own) };
        let mut command = self.environment.command("nsenter")?;
        command.arg(format!("--net={network}"));
        command.args(self.namespace("mnt").filter(|_| self.has_mounts).map(|path| format!("--mount={path}")));
        command.arg(own.get_program());
        Ok(command)
    }

    /// The path of its network namespace; none for the sandbox.
    pub(crate) fn network(&self) -> Option<String> {
        self.namespace("net")
    }

    /// The path of its mount namespace.
    pub(crate) fn mounts(&self) -> PathBuf {
        self.namespace("mnt").map_or_else(|| PathBuf::from("/proc/self/ns/mnt"), PathBuf::from)
    }

    fn namespace(&self, kind: &str) -> Option<String> {
        self.holder.as_ref().map(|holder| format!("/proc/{}/ns/{kind}", holder.id()))
    }
}
