//! A host of a site beside the sandbox, as its owner has it before it becomes a node: systemd as the first process,
//! containerd, and the files of this machine's distribution. The script `boot` makes it of namespaces. It reaches what listens
//! in the sandbox, and nothing else; the sandbox cannot connect to it.

use std::fs;
use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use crate::cluster;
use crate::environment::Environment;
use crate::failure::{Doing, Failure, Result};
use crate::host;
use crate::lab::Lab;
use crate::machine::{Cable, Machine};
use crate::node;
use crate::process::{self, Process};
use crate::sandbox;
use crate::wait;

const BOOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/cluster/boot");
/// The whole environment of a command.
const VARIABLES: [&str; 2] =
    ["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root"];
const SCRIPT: &str = "/run/script";
const SCRIPT_ENDS_WITHIN_S: &str = "900";
const NETWORK_OF_PODS: &str = "/etc/cni/net.d/10-host.conflist";
const BOOTED_WITHIN_S: u64 = 60;
/// systemd kills what has not stopped after 90 s.
const STOPPED_WITHIN_S: u64 = 150;
const KILLED_WITHIN_S: u64 = 20;

/// What distinguishes such hosts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SystemHostSettings {
    /// The name that it gives itself.
    pub(crate) name: &'static str,
    pub(crate) cable: Cable,
    /// The size of its memory; none for that of this machine.
    pub(crate) memory_mb: Option<u32>,
}

/// It ends when dropped, and nothing of it is left but its journal among the logs of the story.
pub(crate) struct SystemHost {
    settings: SystemHostSettings,
    environment: Environment,
    /// The folder of its disk.
    folder: PathBuf,
    /// Where its journal is stored in the end.
    logs: PathBuf,
    /// The path of its control groups in each hierarchy.
    groups: String,
    power: Option<Power>,
}

/// What a host has while it is on.
struct Power {
    // Dropped in this order.
    process: Process,
    /// Its first process.
    init: u32,
    /// Its network.
    _machine: Machine,
}

impl SystemHost {
    /// Installs a host and boots it.
    pub(crate) fn start(lab: &Lab, settings: SystemHostSettings) -> Result<Self> {
        let folder = lab.place.join(format!("{}-disk", settings.name));
        fs::create_dir_all(&folder).doing(|| format!("create {}", folder.display()))?;
        cluster::write(&folder.join("runc"), node::RUNTIME)?;
        host::refuse_connections(lab, settings.cable.outside)?;
        let mut host = Self {
            settings,
            environment: lab.environment.clone(),
            folder,
            logs: lab.place.clone(),
            groups: format!("{}/{}", node::groups(lab), settings.name),
            power: None,
        };
        host.power_on(lab)?;
        Ok(host)
    }

    /// Boots it with the files that it has, until containerd answers.
    pub(crate) fn power_on(&mut self, lab: &Lab) -> Result<()> {
        let SystemHostSettings { name, cable, memory_mb } = self.settings;
        let machine = Machine::with_network(lab, &cable)?;
        machine.ip(&format!("route add default via {}", cable.inside))?;
        let mut command = machine.command(BOOT)?;
        command.arg(&self.folder).args([&self.groups, name, cable.outside]);
        command.args(memory_mb.map(|size| size.to_string()));
        let mut process = Process::start(&format!("{name}-console"), &self.logs, command)?;
        let init = wait::until(&format!("systemd on {name}"), BOOTED_WITHIN_S, || {
            process.ensure_running()?;
            Ok::<_, Failure>(systemd_below(process.id()))
        })?;
        self.power = Some(Power { process, init, _machine: machine });
        wait::until(&format!("containerd on {name}"), BOOTED_WITHIN_S, || {
            self.power.as_mut().map_or(Ok(()), |power| power.process.ensure_running())?;
            self.run(&["systemctl", "is-active", "--quiet", "dbus.service"])?;
            self.run(&["ctr", "version"]).map(Some)
        })
        .map(drop)
    }

    /// Power is cut: everything in memory is lost, its files stay.
    pub(crate) fn power_off(&mut self) -> Result<()> {
        if let Some(mut power) = self.power.take() {
            if power.process.ended().is_none() {
                // It may end by itself meanwhile. All others end with it.
                let _ = process::run(Command::new("kill").args(["-KILL", &power.init.to_string()]));
            }
            power.wait_for_end(KILLED_WITHIN_S)?;
        }
        self.leave()
    }

    /// It stops all services, and boots again.
    pub(crate) fn reboot(&mut self, lab: &Lab) -> Result<()> {
        // The command may end together with the host.
        let _ = self.run(&["systemctl", "reboot"]);
        self.wait_for_reboot(lab)
    }

    /// It reboots by itself: waits until it is on again.
    pub(crate) fn wait_for_reboot(&mut self, lab: &Lab) -> Result<()> {
        let power = self.power.as_mut().ok_or_else(|| self.settings.is_off())?;
        power.wait_for_end(STOPPED_WITHIN_S)?;
        self.power = None;
        self.leave()?;
        self.power_on(lab)
    }

    /// Its address in the network of its cable.
    pub(crate) fn address(&self) -> &'static str {
        self.settings.cable.outside
    }

    /// A command that runs on the host as root, with an environment of its own. It is not in the host's control groups.
    pub(crate) fn command(&self, program: &str) -> Result<Command> {
        let power = self.power.as_ref().ok_or_else(|| self.settings.is_off())?;
        let mut command = self.environment.command("nsenter")?;
        command.args(["--target", &power.init.to_string(), "--all", "--wdns=/", "/usr/bin/env", "-i"]);
        command.args(VARIABLES).arg(program);
        Ok(command)
    }

    /// Runs a command on the host to its end, and returns its output.
    pub(crate) fn run(&self, words: &[&str]) -> Result<String> {
        let (program, arguments) = words.split_first().ok_or_else(|| Failure::new("no command"))?;
        process::run(self.command(program)?.args(arguments))
    }

    /// Writes a file of the host, and makes its folders.
    pub(crate) fn write(&self, path: &str, text: &str) -> Result<()> {
        self.install(path, "644", text)
    }

    /// The text of a file of the host.
    pub(crate) fn read(&self, path: &str) -> Result<String> {
        self.run(&["cat", path])
    }

    /// Gives its pods addresses of a range. They leave the host with its address.
    pub(crate) fn connect_pods(&self, range: &str) -> Result<()> {
        self.write(NETWORK_OF_PODS, &node::network(range, true).to_string())
    }

    /// Runs a script as root of the host. A script that fails is no failure of this function.
    pub(crate) fn run_script(&self, text: &str) -> Result<Output> {
        self.install(SCRIPT, "755", text)?;
        let output =
            self.command("timeout")?.args([SCRIPT_ENDS_WITHIN_S, SCRIPT]).stdin(Stdio::null()).output();
        output.doing(|| format!("run a script on {}", self.settings.name))
    }

    /// What a unit has written since the host was installed.
    pub(crate) fn journal(&self, unit: &str) -> Result<String> {
        process::run(self.journalctl()?.args(["--output=cat", "--unit", unit]))
    }

    /// Reads the journal from outside: that also works when the host is off.
    fn journalctl(&self) -> Result<Command> {
        let mut command = self.environment.command("journalctl")?;
        command.arg("--no-pager").arg("--directory").arg(self.folder.join("disk/files/var/log/journal"));
        Ok(command)
    }

    fn install(&self, path: &str, mode: &str, text: &str) -> Result<()> {
        let mut command = self.command("install")?;
        command.args(["-D", "-m", mode, "/dev/stdin", path]).stdin(Stdio::piped());
        command.stdout(Stdio::null()).stderr(Stdio::piped());
        let what = || format!("write {path} on {}", self.settings.name);
        let mut child = command.spawn().doing(what)?;
        // The complaint of a command that ends without reading is better than that of a broken pipe.
        let written = child.stdin.take().map_or(Ok(()), |mut pipe| pipe.write_all(text.as_bytes()));
        let output = child.wait_with_output().doing(what)?;
        if !output.status.success() {
            let complaint = String::from_utf8_lossy(&output.stderr);
            return Err(Failure::new(format!("{}: {}", what(), complaint.trim())));
        }
        written.doing(what)
    }

    /// Removes what its processes leave outside: the control groups, and the cable, whose other end is in a network that ends
    /// some time later.
    fn leave(&self) -> Result<()> {
        let mut unplug = self.environment.command("ip")?;
        // It may have ended with the network.
        let _ = process::run(unplug.args(["link", "delete", self.settings.cable.name]));
        sandbox::end_cgroups(&self.groups)
    }

    fn end(&mut self) -> Result<()> {
        self.power_off()?;
        let journal = process::run(&mut self.journalctl()?)?;
        cluster::write(&self.logs.join(format!("{}-journal.log", self.settings.name)), &journal)?;
        // Without loop devices it may be a folder.
        let _ = process::run(self.environment.command("umount")?.arg(self.folder.join("disk")));
        fs::remove_dir_all(&self.folder).doing(|| format!("remove {}", self.folder.display()))
    }
}

impl Drop for SystemHost {
    fn drop(&mut self) {
        if let Err(failure) = self.end() {
            println!("       host {} was not removed: {failure}", self.settings.name);
        }
    }
}

impl Power {
    fn wait_for_end(&mut self, seconds: u64) -> Result<()> {
        wait::until("the end of a host", seconds, || Ok::<_, Failure>(self.process.ended().map(drop)))
    }
}

impl SystemHostSettings {
    fn is_off(&self) -> Failure {
        Failure::new(format!("host {} is off", self.name))
    }
}

/// The child of a process that has become systemd. Before, it has the files of the sandbox.
fn systemd_below(process: u32) -> Option<u32> {
    let children = fs::read_to_string(format!("/proc/{process}/task/{process}/children")).ok()?;
    let is_systemd = |child: &&str| {
        fs::read_to_string(format!("/proc/{child}/comm")).is_ok_and(|name| name == "systemd\n")
    };
    children.split_whitespace().find(is_systemd)?.parse().ok()
}
