//! A real node for the seed: containerd, runc, CNI plugins, kubelet and kube-proxy.
//!
//! Files outside of the state folder are in the sandbox's own `/run` and `/var/lib`; the control groups are below a
//! folder with the name of the state folder, which the sandbox removes.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::json;

use crate::cluster;
use crate::failure::{Doing, Failure, Result};
use crate::image::{self, Component};
use crate::lab::Lab;
use crate::process::{self, Process};
use crate::sandbox::{self, ADDRESS};
use crate::wait;

/// The name of the node.
pub(crate) const NODE: &str = "n1";
/// Its address.
pub(crate) const ZONE: &str = "shed-1";
/// The cluster DNS, if it exists: the tenth address of the seed's service range, where Gardener expects it.
pub(crate) const DNS_ADDRESS: &str = "10.1.0.10";
pub(crate) const DNS_DOMAIN: &str = "cluster.local";

const POD_RANGE: &str = "10.99.0.0/16";
const SOCKET: &str = "/run/containerd/containerd.sock";
const CGROUPS: &str = "/sys/fs/cgroup";
const CONTAINERD_CONFIG: &str = "containerd.toml";

/// Ends with everything it runs when dropped.
#[derive(Debug)]
pub(crate) struct Node {
    // Dropped in this order.
    proxy: Process,
    kubelet: Process,
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
        let mut node = Self { proxy, kubelet, containers };
        node.wait_ready(lab)?;
        Ok(node)
    }

    /// Makes the images of an archive available to pods.
    pub(crate) fn import(&self, archive: &Path) -> Result<()> {
        self.containers.import(archive)
    }

    /// Makes the image of a component available to pods. It stays for later nodes.
    pub(crate) fn import_component(&self, lab: &Lab, component: &Component) -> Result<()> {
        if self.containers.has(&component.reference())? {
            return Ok(());
        }
        let archive = component.write(&lab.environment, &lab.state)?;
        let imported = self.containers.import(&archive);
        fs::remove_file(&archive).doing(|| format!("remove {}", archive.display()))?;
        imported
    }

    /// Removes the image of a component for new pods. Running pods continue.
    pub(crate) fn remove_component(&self, component: &Component) -> Result<()> {
        self.containers.ctr(&["images", "remove", "--sync", &component.reference()]).map(drop)
    }

    /// Kills all processes of a pod, including the holder of its namespaces; the kubelet has to notice that. Returns
    /// the number of killed containers.
    pub(crate) fn kill_pod(&self, namespace: &str, name: &str) -> Result<usize> {
        let label = |key: &str, value: &str| format!("labels.\"io.kubernetes.pod.{key}\"=={value}");
        let filter = [label("namespace", namespace), label("name", name)].join(",");
        let containers = self.containers.ctr(&["containers", "list", "--quiet", &filter])?;
        let running = self.containers.ctr(&["tasks", "list", "--quiet"])?;
        let killed = containers.lines().filter(|id| running.lines().any(|task| task == *id));
        killed
            .map(|id| self.containers.ctr(&["tasks", "kill", "--signal", "KILL", id]))
            .collect::<Result<Vec<_>>>()
            .map(|all| all.len())
    }

    /// A power cut: kubelet, containerd and all containers end at once, and everything that is not on a disk is lost.
    /// Volumes stay, and so do the files of kubelet and containerd in `/var/lib`.
    pub(crate) fn cut_power(&mut self, lab: &Lab) -> Result<()> {
        self.kubelet.kill();
        self.proxy.kill();
        self.containers.process.kill();
        wait::until("the end of everything in containers", 20, || {
            let left = contained()?;
            if left.is_empty() {
                return Ok::<_, Failure>(Some(()));
            }
            // Some of them end together with others before their turn.
            let _ = process::run(Command::new("kill").arg("-KILL").args(left));
            Ok(None)
        })?;
        sandbox::remove_cgroups(Path::new(CGROUPS), &groups(lab));
        process::run(Command::new("sh").args(["-c", LOSE_MEMORY])).map(drop)
    }

    /// The power is back: everything starts as after a boot. Does not wait for the node to be ready.
    pub(crate) fn start_again(&mut self, lab: &Lab) -> Result<()> {
        let folder = lab.state.join("node");
        self.containers.process = start_containerd(lab, &folder, &self.containers.ctr)?;
        self.kubelet = start_kubelet(lab, &folder)?;
        self.proxy = start_proxy(lab, &folder)?;
        Ok(())
    }

    fn wait_ready(&mut self, lab: &Lab) -> Result<()> {
        let condition = "jsonpath={.status.conditions[?(@.type=='Ready')].status}";
        wait::until("the node to be ready", 60, || {
            let running = self.kubelet.ensure_running().and_then(|()| self.proxy.ensure_running());
            if running.is_err() {
                return Ok(Some(running));
            }
            let ready = lab.seed.kubectl(&["get", "node", NODE, "--output", condition])?;
            Ok::<_, Failure>((ready == "True").then_some(Ok(())))
        })?
    }
}

/// containerd, and its containers.
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
        cluster::write(&folder.join(CONTAINERD_CONFIG), &containerd_config(plugins, &networks))?;
        let ctr = lab.environment.program("ctr").ok_or_else(|| Failure::new("ctr not found"))?;
        Ok(Self { process: start_containerd(lab, folder, &ctr)?, ctr })
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
    /// A container continues without containerd, so that the next node would find it.
    fn drop(&mut self) {
        let tasks = self.ctr(&["tasks", "list", "--quiet"]).unwrap_or_default();
        for task in tasks.lines() {
            let _ = self.ctr(&["tasks", "kill", "--signal", "KILL", task]);
            let _ = self.ctr(&["tasks", "delete", "--force", task]);
        }
        // Also the ended ones. Their files are deleted with them.
        let containers = self.ctr(&["containers", "list", "--quiet"]).unwrap_or_default();
        let all: Vec<&str> = ["containers", "delete"].into_iter().chain(containers.lines()).collect();
        let _ = self.ctr(&all);
        self.process.kill();
        // containerd's records of them.
        let _ = process::run(Command::new("sh").args(["-c", FORGET]));
    }
}

/// Starts containerd, and waits until it answers.
fn start_containerd(lab: &Lab, folder: &Path, ctr: &Path) -> Result<Process> {
    let mut command = lab.command("containerd")?;
    command.arg("--config").arg(folder.join(CONTAINERD_CONFIG));
    let mut process = Process::start("node-containerd", &lab.state, command)?;
    wait::until("containerd", 20, || {
        let running = process.ensure_running();
        if running.is_err() {
            return Ok(Some(running));
        }
        process::run(Command::new(ctr).args(["--address", SOCKET, "version"])).map(|_| Some(Ok(())))
    })??;
    Ok(process)
}

/// The processes in containers, which have their own process ids, and their holders.
fn contained() -> Result<Vec<String>> {
    let own = fs::read_link("/proc/self/ns/pid")?;
    // Other processes may end meanwhile.
    let is_contained = |folder: &Path| {
        let is_holder =
            fs::read_link(folder.join("exe")).is_ok_and(|exe| exe.ends_with("containerd-shim-runc-v2"));
        is_holder || fs::read_link(folder.join("ns/pid")).is_ok_and(|namespace| namespace != own)
    };
    let all = fs::read_dir("/proc")?.flatten().filter(|entry| is_contained(&entry.path()));
    let names = all.map(|entry| entry.file_name().to_string_lossy().into_owned());
    Ok(names.filter(|name| name.bytes().all(|byte| byte.is_ascii_digit())).collect())
}

/// What a machine loses without power, besides processes and control groups: mounts, network devices, files in memory.
const LOSE_MEMORY: &str = "\
    awk '$2 ~ \"^/(run|var/lib)/(containerd|netns|kubelet)/\" { print $2 }' /proc/mounts | sort -r | xargs -r umount -l
    rm -rf /run/containerd /run/netns
    ip link delete cni0";

/// Unmounts and removes everything of a node's containers, so that the next one starts with images only: content,
/// snapshots and the index of both. Importing them takes longer than all the rest.
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

/// `restrict_oom_score_adj`: without it runc cannot lower its children's score where it may not lower the parent's.
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
    let groups = groups(lab);
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
    // Any route works: the address of a service is translated after routing.
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

/// The name of the folder for the control groups of the kubelet.
fn groups(lab: &Lab) -> String {
    lab.state.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

/// Creates that folder in every hierarchy.
fn make_cgroups(name: &str) {
    let root = Path::new(CGROUPS);
    if root.join("cgroup.controllers").is_file() {
        let controllers = fs::read_to_string(root.join("cgroup.controllers")).unwrap_or_default();
        for controller in controllers.split_whitespace() {
            // It exists already, or cannot be created here; the kubelet reports which one it lacks.
            let _ = fs::write(root.join("cgroup.subtree_control"), format!("+{controller}"));
        }
        let _ = fs::create_dir_all(root.join(name));
        return;
    }
    for hierarchy in fs::read_dir(root).into_iter().flatten().flatten() {
        let _ = fs::create_dir_all(hierarchy.path().join(name));
    }
}
