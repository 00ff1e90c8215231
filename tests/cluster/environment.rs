//! The options of the harness, and the programs on this machine. Read once, at the start.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::arguments::Arguments;
use crate::druid;
use crate::failure::{Failure, Result};
use crate::gardener::Program;
use crate::image;
use support::options;

/// The folder for the second start of this program in the sandbox; unset outside.
pub(crate) const STATE_VARIABLE: &str = "GARDENLET_CLUSTER_STATE";

/// Programs that all stories need.
const SERVERS: &[&str] = &["etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl"];
/// Programs of the node.
const NODE: &[&str] =
    &["kubelet", "kube-proxy", "containerd", "containerd-shim-runc-v2", "runc", "ctr", "iptables"];
/// Programs that run in the node: its cluster DNS, and a control plane.
const CONTROL_PLANE: &[&str] = &[
    image::DNS.program,
    image::ETCD.program,
    image::RESTORER,
    image::API_SERVER.program,
    image::CONTROLLERS.program,
];
/// The same in the next minor version.
const NEXT_CONTROL_PLANE: &[&str] =
    &[image::NEXT_API_SERVER.program, image::NEXT_CONTROLLERS.program, image::NEXT_SCHEDULER.program];
/// The same in the newest minor version.
const NEWEST_CONTROL_PLANE: &[&str] = &[image::NEWEST_API_SERVER.program, image::NEWEST_CONTROLLERS.program];
/// The programs of a Shoot with nodes besides.
const NODES: &[&str] = &[
    image::SCHEDULER.program,
    image::TUNNEL_SERVER.program,
    image::TUNNEL_AGENT.program,
    image::PROXY.program,
    "busybox",
    "iptables",
];
/// Programs of a host with systemd, on which Gardener's agent of a node runs.
const SYSTEM_HOST: &[&str] =
    &["systemctl", "journalctl", "dbus-daemon", "busybox", "registry", image::NODE_AGENT.program];
/// Gardener's own programs.
const GARDENER: &[&str] =
    &[Program::Api.name(), Program::Admission.name(), Program::Controllers.name(), Program::Scheduler.name()];
/// Programs of stories about snapshots.
const SNAPSHOTS: &[&str] = &["etcd-3.5", "etcdutl-3.5"];
/// Programs of stories about charts in registries.
const CHARTS: &[&str] = &["helm", "registry"];
/// Programs of the sandbox.
const SANDBOX: &[&str] = &["unshare", "nsenter", "ip", "mount"];
/// A terminal for a command that asks.
const TERMINAL: &[&str] = &["script"];

/// Where distributions install CNI plugins.
const CNI_FOLDERS: &[&str] = &["/usr/lib/cni", "/opt/cni/bin"];

#[derive(Clone, Debug)]
pub(crate) struct Environment {
    pub(crate) arguments: Arguments,
    pub(crate) ci: bool,
    /// Whether stories may take longer, with more objects and more attempts.
    pub(crate) long: bool,
    /// Set inside the sandbox.
    pub(crate) state: Option<PathBuf>,
    /// Where the logs of failed stories are stored.
    pub(crate) logs: PathBuf,
    /// Folders with programs; the first match is used.
    path: Vec<PathBuf>,
    temporary: PathBuf,
    /// Another build of the agent than the one that cargo made for this test.
    agent: Option<PathBuf>,
}

impl Environment {
    #[allow(clippy::disallowed_methods)] // the one place of the harness that reads the environment
    pub(crate) fn read() -> Result<Self> {
        let folder = |name: &str| options::variable(name).map(PathBuf::from);
        let home = folder("HOME").unwrap_or_else(|| PathBuf::from("/root"));
        let cache = folder("GARDENLET_TEST_CACHE").unwrap_or_else(|| home.join(".cache/gardenlet-tests"));
        let mut path: Vec<PathBuf> = folder("KUBEBUILDER_ASSETS").into_iter().collect();
        path.push(cache.join("bin"));
        path.extend(std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default()));
        path.extend(["/usr/sbin", "/sbin"].map(PathBuf::from));
        let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap_or(Path::new("target"));
        Ok(Self {
            arguments: Arguments::read(std::env::args().skip(1))?,
            ci: options::in_ci(),
            long: options::is_long(),
            state: folder(STATE_VARIABLE),
            logs: target.join("cluster-logs"),
            path,
            temporary: std::env::temp_dir(),
            agent: folder("GARDENLET_BINARY"),
        })
    }

    /// The path of a program, if there is one.
    pub(crate) fn program(&self, name: &str) -> Option<PathBuf> {
        self.path.iter().map(|folder| folder.join(name)).find(|path| path.is_file())
    }

    /// A command with the path of a program, and with a `PATH` that contains the others.
    pub(crate) fn command(&self, name: &str) -> Result<Command> {
        let path = self.program(name).ok_or_else(|| Failure::new(format!("{name} not found")))?;
        let mut command = Command::new(path);
        command.env("PATH", self.search_path());
        Ok(command)
    }

    /// A `PATH` for child processes.
    pub(crate) fn search_path(&self) -> OsString {
        std::env::join_paths(&self.path).unwrap_or_default()
    }

    pub(crate) fn cni_folder(&self) -> Option<&'static str> {
        CNI_FOLDERS.iter().copied().find(|folder| Path::new(folder).join("bridge").is_file())
    }

    /// The agent's program.
    pub(crate) fn agent(&self) -> PathBuf {
        self.agent.clone().unwrap_or_else(|| PathBuf::from(env!("CARGO_BIN_EXE_gardenlet")))
    }

    /// Whether the agent's program comes from another build, for example a released one.
    pub(crate) fn has_agent(&self) -> bool {
        self.agent.is_some()
    }

    pub(crate) fn temporary(&self) -> &Path {
        &self.temporary
    }

    /// Why no story can run on this machine.
    pub(crate) fn missing_peers(&self) -> Option<String> {
        // 0::0 in the first line of the map and uid 0 in /proc/self: the sandbox needs root.
        let root =
            std::fs::metadata("/proc/self").is_ok_and(|me| std::os::unix::fs::MetadataExt::uid(&me) == 0);
        if !root {
            return Some("needs root for its own namespaces".to_owned());
        }
        self.missing(&[SANDBOX, SERVERS])
    }

    /// Why a story with the real Gardener cannot run on this machine.
    pub(crate) fn missing_gardener(&self) -> Option<String> {
        self.missing(&[GARDENER])
    }

    /// Why a story with a real registry cannot run on this machine.
    pub(crate) fn missing_registry(&self) -> Option<String> {
        self.missing(&[CHARTS])
    }

    /// Why a story about snapshots cannot run on this machine.
    pub(crate) fn missing_snapshots(&self) -> Option<String> {
        self.missing(&[SNAPSHOTS])
    }

    /// Why a story with a server of S3 cannot run on this machine.
    pub(crate) fn missing_bucket(&self) -> Option<String> {
        self.missing(&[&["versitygw"]])
    }

    /// Why a story with snapshots of etcd-backup-restore cannot run on this machine.
    pub(crate) fn missing_backup_restore(&self) -> Option<String> {
        self.missing(&[&["etcd-backup-restore"]])
    }

    /// Why a story with an operator at a terminal cannot run on this machine.
    pub(crate) fn missing_terminal(&self) -> Option<String> {
        self.missing(&[TERMINAL])
    }

    /// Why a story with two seeds, their nodes and a server of S3 cannot run on this machine.
    pub(crate) fn missing_sites(&self) -> Option<String> {
        let servers = self.missing_gardener().or_else(|| self.missing_control_plane());
        let others = servers.or_else(|| self.missing_image());
        others.or_else(|| self.missing_bucket()).or_else(|| self.missing_terminal())
    }

    /// Why a story with an etcd-druid cannot run on this machine.
    pub(crate) fn missing_druid(&self) -> Option<String> {
        self.missing(&[druid::PROGRAMS])
    }

    /// Why a story with dead links cannot run on this machine.
    pub(crate) fn missing_filter(&self) -> Option<String> {
        self.missing(&[&["iptables"]])
    }

    /// Why a story with a real node cannot run on this machine.
    pub(crate) fn missing_node(&self) -> Option<String> {
        self.missing(&[NODE]).or_else(|| {
            self.cni_folder().is_none().then(|| "no CNI plugins (containernetworking-plugins)".to_owned())
        })
    }

    /// Why a story with a control plane in a real node, and with extensions that work for it, cannot run on this machine.
    pub(crate) fn missing_control_plane(&self) -> Option<String> {
        self.missing_node().or_else(|| self.missing(&[CONTROL_PLANE, &[image::EXTENSION.0]]))
    }

    /// Why a host with systemd cannot run on this machine.
    pub(crate) fn missing_system_host(&self) -> Option<String> {
        self.missing_node().or_else(|| self.missing(&[SYSTEM_HOST]))
    }

    /// Why a Shoot with nodes cannot run on this machine.
    pub(crate) fn missing_nodes(&self) -> Option<String> {
        self.missing_control_plane().or_else(|| self.missing(&[NODES]))
    }

    /// Why the nodes of a Shoot cannot run all their components and a webhook on this machine.
    pub(crate) fn missing_whole_nodes(&self) -> Option<String> {
        let programs = [image::METRICS_SERVER.program, image::EXTENSION.0];
        self.missing_nodes().or_else(|| self.missing(&[&programs]))
    }

    /// Why a control plane of the next minor version of Kubernetes cannot run on this machine.
    pub(crate) fn missing_next(&self) -> Option<String> {
        self.missing(&[NEXT_CONTROL_PLANE])
    }

    /// Why a control plane of the newest minor version of Kubernetes cannot run on this machine.
    pub(crate) fn missing_newest(&self) -> Option<String> {
        self.missing(&[NEWEST_CONTROL_PLANE])
    }

    /// Why a story with an extension in a real node cannot run on this machine.
    pub(crate) fn missing_extension(&self) -> Option<String> {
        self.missing_node().or_else(|| self.missing(&[&[image::EXTENSION.0, "python3"]]))
    }

    /// Why the agent cannot be packed into an image on this machine.
    pub(crate) fn missing_image(&self) -> Option<String> {
        (!image::can_be_made()).then(|| "no static program (cross/build makes one)".to_owned())
    }

    fn missing(&self, lists: &[&[&str]]) -> Option<String> {
        let absent: Vec<&str> =
            lists.iter().copied().flatten().copied().filter(|name| self.program(name).is_none()).collect();
        (!absent.is_empty()).then(|| format!("not found: {} (tests/run installs them)", absent.join(", ")))
    }
}
