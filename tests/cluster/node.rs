//! A real node for the seed: containerd, runc, CNI plugins, kubelet and kube-proxy.
//!
//! Everything they write outside of the state folder is in the sandbox's own `/run` and `/var/lib`; the control groups
//! are below a folder with the name of the state folder, which the sandbox removes.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::json;

use crate::cluster;
use crate::failure::{Doing, Failure, Result};
use crate::image::{self, Component};
use crate::lab::Lab;
use crate::process::{self, Process};
use crate::sandbox::ADDRESS;
use crate::wait;

/// The name of the node.
pub(crate) const NODE: &str = "n1";
/// Where it is.
pub(crate) const ZONE: &str = "shed-1";
/// The cluster DNS, if there is one: the tenth address of the seed's service range, where Gardener expects it.
pub(crate) const DNS_ADDRESS: &str = "10.1.0.10";
pub(crate) const DNS_DOMAIN: &str = "cluster.local";

const POD_RANGE: &str = "10.99.0.0/16";
const SOCKET: &str = "/run/containerd/containerd.sock";

/// Ends with everything it runs when dropped.
#[derive(Debug)]
pub(crate) struct Node {
    // Dropped in this order.
    _proxy: Process,
    _kubelet: Process,
    containers: Containers,
}

impl Node {
    /// Starts the node of the seed and waits until it is ready.
    pub(crate) fn start(lab: &mut Lab) -> Result<Self> {
        let folder = lab.state.join("node");
        fs::create_dir_all(&folder).doing(|| format!("create {}", folder.display()))?;
        let containers = Containers::start(lab, &folder)?;
        if !containers.has(image::PAUSE)? {
            for archive in image::build_basic(&lab.environment, &folder)? {
                containers.import(&archive)?;
            }
        }
        let kubelet = start_kubelet(lab, &folder)?;
        let proxy = start_proxy(lab, &folder)?;
        let mut node = Self { _proxy: proxy, _kubelet: kubelet, containers };
        node.wait_ready(lab)?;
        Ok(node)
    }

    /// Makes the images of an archive available to pods.
    pub(crate) fn import(&self, archive: &Path) -> Result<()> {
        self.containers.import(archive)
    }

    /// Makes the image of a component available to pods. It stays for the nodes that come after this one.
    pub(crate) fn import_component(&self, lab: &Lab, component: &Component) -> Result<()> {
        if self.containers.has(&component.reference())? {
            return Ok(());
        }
        let archive = component.write(&lab.environment, &lab.state)?;
        let imported = self.containers.import(&archive);
        fs::remove_file(&archive).doing(|| format!("remove {}", archive.display()))?;
        imported
    }

    fn wait_ready(&mut self, lab: &Lab) -> Result<()> {
        let condition = "jsonpath={.status.conditions[?(@.type=='Ready')].status}";
        wait::until("the node to be ready", 60, || {
            let running = self._kubelet.ensure_running().and_then(|()| self._proxy.ensure_running());
            if running.is_err() {
                return Ok(Some(running));
            }
            let ready = lab.seed.kubectl(&["get", "node", NODE, "--output", condition])?;
            Ok::<_, Failure>((ready == "True").then_some(Ok(())))
        })?
    }
}

/// containerd, and the containers that it started.
#[derive(Debug)]
struct Containers {
    process: Process,
    ctr: PathBuf,
}

impl Containers {
    fn start(lab: &Lab, folder: &Path) -> Result<Self> {
        let plugins = lab.environment.cni_folder().ok_or_else(|| Failure::new("no CNI plugins"))?;
        let networks = folder.join("cni");
        fs::create_dir_all(&networks).doing(|| format!("create {}", networks.display()))?;
        cluster::write(&networks.join("10-lab.conflist"), &network().to_string())?;
        let config = folder.join("containerd.toml");
        cluster::write(&config, &containerd_config(plugins, &networks))?;
        let mut command = lab.command("containerd")?;
        command.arg("--config").arg(&config);
        let mut process = Process::start("node-containerd", &lab.state, command)?;
        let ctr = lab.environment.program("ctr").ok_or_else(|| Failure::new("ctr not found"))?;
        wait::until("containerd", 20, || {
            let running = process.ensure_running();
            if running.is_err() {
                return Ok(Some(running));
            }
            process::run(Command::new(&ctr).args(["--address", SOCKET, "version"])).map(|_| Some(Ok(())))
        })??;
        Ok(Self { process, ctr })
    }

    fn import(&self, archive: &Path) -> Result<()> {
        self.ctr(&["images", "import", &archive.display().to_string()]).map(drop)
    }

    fn has(&self, reference: &str) -> Result<bool> {
        Ok(self.ctr(&["images", "list", "--quiet"])?.lines().any(|line| line == reference))
    }

    fn ctr(&self, arguments: &[&str]) -> Result<String> {
        let prefix = ["--address", SOCKET, "--namespace", "k8s.io"];
        process::run(Command::new(&self.ctr).args(prefix).args(arguments))
    }
}

impl Drop for Containers {
    /// A container outlives containerd, so that the next node would meet it.
    fn drop(&mut self) {
        let tasks = self.ctr(&["tasks", "list", "--quiet"]).unwrap_or_default();
        for task in tasks.lines() {
            let _ = self.ctr(&["tasks", "kill", "--signal", "KILL", task]);
            let _ = self.ctr(&["tasks", "delete", "--force", task]);
        }
        // Also those that have ended. What is written in them goes with them.
        let containers = self.ctr(&["containers", "list", "--quiet"]).unwrap_or_default();
        let all: Vec<&str> = ["containers", "delete"].into_iter().chain(containers.lines()).collect();
        let _ = self.ctr(&all);
        self.process.kill();
        // What containerd remembers of them.
        let _ = process::run(Command::new("sh").args(["-c", FORGET]));
    }
}

/// Unmounts and removes everything of a node's containers, so that the next one starts with nothing but images: content,
/// snapshots and the index of both. Their import takes longer than all the rest.
const FORGET: &str = "\
    awk '$2 ~ \"^/(run|var/lib)/(containerd|netns|kubelet)/\" { print $2 }' /proc/mounts | sort -r | xargs -r umount -l
    rm -rf /run/containerd /var/lib/containerd/io.containerd.grpc.* /var/lib/containerd/io.containerd.runtime.*
    rm -rf /var/lib/kubelet /var/lib/cni /run/netns
    ip link delete cni0 || true";

fn network() -> serde_json::Value {
    json!({
        "cniVersion": "0.4.0",
        "name": "lab",
        "plugins": [
            {"type": "bridge", "bridge": "cni0", "isGateway": true, "ipMasq": false, "hairpinMode": true, "ipam": {
                "type": "host-local",
                "ranges": [[{"subnet": POD_RANGE}]],
                "routes": [{"dst": "0.0.0.0/0"}],
            }},
            {"type": "loopback"},
        ],
    })
}

/// `restrict_oom_score_adj`: without it runc cannot lower its children's score where the parent's may not be lowered.
fn containerd_config(plugins: &str, networks: &Path) -> String {
    format!(
        r#"version = 2
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{}"
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "{plugins}"
    conf_dir = "{}"
"#,
        image::PAUSE,
        networks.display()
    )
}

fn start_kubelet(lab: &Lab, folder: &Path) -> Result<Process> {
    let groups = lab.state.file_name().unwrap_or_default().to_string_lossy().into_owned();
    make_cgroups(&groups);
    let config = json!({
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "authentication": {"anonymous": {"enabled": true}, "webhook": {"enabled": false}},
        "authorization": {"mode": "AlwaysAllow"},
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": format!("/{groups}"),
        "clusterDNS": [DNS_ADDRESS],
        "clusterDomain": DNS_DOMAIN,
        "containerRuntimeEndpoint": format!("unix://{SOCKET}"),
        "evictionHard": {"nodefs.available": "0%", "imagefs.available": "0%"},
        "failSwapOn": false,
        "imageMinimumGCAge": "24h",
        "resolvConf": "",
        "syncFrequency": "1s",
    });
    let path = folder.join("kubelet.yaml");
    cluster::write(&path, &config.to_string())?;
    let kubeconfig = folder.join("kubelet.kubeconfig");
    lab.seed.write_kubeconfig(&kubeconfig, &format!("system:node:{NODE}"), Some("system:nodes"))?;
    let mut command = lab.command("kubelet")?;
    command.arg("--config").arg(&path).arg("--kubeconfig").arg(&kubeconfig).arg("--cert-dir").arg(folder);
    command.args(["--hostname-override", NODE, "--node-ip", ADDRESS]);
    command.arg(format!("--node-labels=topology.kubernetes.io/zone={ZONE}"));
    Process::start("node-kubelet", &lab.state, command)
}

fn start_proxy(lab: &Lab, folder: &Path) -> Result<Process> {
    // Any route will do: the address of a service is translated after routing.
    let range = lab.seed.role.service_range;
    process::run(Command::new("ip").args(["route", "replace", range, "dev", "lo", "src", ADDRESS]))?;
    let kubeconfig = folder.join("proxy.kubeconfig");
    lab.seed.write_kubeconfig(&kubeconfig, "system:kube-proxy", None)?;
    let mut command = lab.command("kube-proxy")?;
    command.arg("--kubeconfig").arg(&kubeconfig);
    command.args(["--hostname-override", NODE, "--proxy-mode", "iptables", "--cluster-cidr", POD_RANGE]);
    command.args(["--conntrack-max-per-core", "0"]);
    Process::start("node-kube-proxy", &lab.state, command)
}

/// The folder below which the kubelet makes its control groups, in every hierarchy.
fn make_cgroups(name: &str) {
    let root = Path::new("/sys/fs/cgroup");
    if root.join("cgroup.controllers").is_file() {
        let controllers = fs::read_to_string(root.join("cgroup.controllers")).unwrap_or_default();
        for controller in controllers.split_whitespace() {
            // Already there, or not to be had here; the kubelet says which one it misses.
            let _ = fs::write(root.join("cgroup.subtree_control"), format!("+{controller}"));
        }
        let _ = fs::create_dir_all(root.join(name));
        return;
    }
    for hierarchy in fs::read_dir(root).into_iter().flatten().flatten() {
        let _ = fs::create_dir_all(hierarchy.path().join(name));
    }
}
