//! A real node for a seed: containerd, runc, CNI plugins, kubelet and kube-proxy.
//!
//! Files outside of the state folder are in the `/run` and `/var/lib` of the sandbox, or of the machine of a second node; the
//! control groups are below a folder with the name of the state folder, which the sandbox removes.

use std::fs::{self, Permissions};
use std::net::IpAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};

use crate::cluster::{self, Cluster};
use crate::failure::{Doing, Failure, Result};
use crate::image::{self, Component};
use crate::lab::Lab;
use crate::machine::Machine;
use crate::process::{self, Process};
use crate::sandbox::{self, ADDRESS};
use crate::wait;

/// What distinguishes the nodes of seeds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NodeSettings {
    pub(crate) name: &'static str,
    pub(crate) address: &'static str,
    pub(crate) pod_range: &'static str,
    /// The cluster DNS, if it exists: the tenth address of the range of Services, where Gardener expects it.
    pub(crate) dns_address: &'static str,
    /// Whether its pods leave it with its own address. Otherwise there must be a way back to them.
    pub(crate) masquerades: bool,
}

impl NodeSettings {
    /// Its address.
    pub(crate) fn ip(&self) -> Result<IpAddr> {
        self.address.parse().map_err(|error| Failure::new(format!("{}: {error}", self.address)))
    }
}

/// The name of the first seed's node.
pub(crate) const NODE: &str = "n1";
/// The node of the first seed.
pub(crate) const FIRST: NodeSettings = NodeSettings {
    name: NODE,
    address: ADDRESS,
    pod_range: "10.99.0.0/16",
    dns_address: "10.1.0.10",
    masquerades: false,
};
pub(crate) const ZONE: &str = "shed-1";
pub(crate) const DNS_DOMAIN: &str = "cluster.local";

/// The configuration of the kubelet.
const KUBELET: &str = "kubelet.yaml";
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

/// Where a node runs, and its own settings and files.
#[derive(Debug)]
pub(crate) struct Place {
    pub(crate) settings: NodeSettings,
    pub(crate) machine: Machine,
    pub(crate) folder: PathBuf,
}

impl Place {
    /// Starts a program of the node.
    pub(crate) fn start(&self, lab: &Lab, program: &str, arguments: &[String]) -> Result<Process> {
        let mut command = self.machine.command(program)?;
        command.args(arguments);
        Process::start(&format!("{}-{program}", self.settings.name), &lab.state, command)
    }

    /// Runs a script on the machine of the node.
    fn run(&self, script: &str) -> Result<()> {
        process::run(self.machine.command("sh")?.args(["-c", script])).map(drop)
    }

    fn ctr(&self, arguments: &[&str]) -> Result<String> {
        process::run(self.machine.command("ctr")?.args(["--address", SOCKET]).args(arguments))
    }

    /// The file that describes the network of its pods.
    pub(crate) fn network_of_pods(&self) -> PathBuf {
        self.folder.join("cni").join("10-lab.conflist")
    }

    fn file(&self, name: &str) -> String {
        self.folder.join(name).display().to_string()
    }
}

impl Node {
    /// Starts the node of the first seed and waits until it is ready.
    pub(crate) fn start(lab: &Lab) -> Result<Self> {
        Self::on(lab, &lab.seed, FIRST, Machine::sandbox(lab))
    }

    /// Starts a node of a seed on a machine, and waits until it is ready.
    pub(crate) fn on(lab: &Lab, seed: &Cluster, settings: NodeSettings, machine: Machine) -> Result<Self> {
        let containers = Containers::on(lab, settings, machine)?;
        let place = &containers.place;
        let kubelet = start_kubelet(lab, seed, place)?;
        let proxy = start_proxy(lab, seed, place)?;
        let mut node = Self { proxy, kubelet, containers };
        node.wait_ready(seed)?;
        Ok(node)
    }

    /// Makes the images of an archive available to pods.
    pub(crate) fn import(&self, archive: &Path) -> Result<()> {
        self.containers.import(archive)
    }

    /// Makes the image of a component available to pods. It stays for later nodes.
    pub(crate) fn import_component(&self, lab: &Lab, component: &Component) -> Result<()> {
        self.containers.import_component(lab, component)
    }

    /// Removes the image of a component for new pods. Running pods continue.
    pub(crate) fn remove_component(&self, component: &Component) -> Result<()> {
        self.containers.ctr(&["images", "remove", "--sync", &component.reference()]).map(drop)
    }

    /// Kills all processes of a pod, including the holder of its namespaces; the kubelet has to notice that. Returns
    /// the number of killed containers.
    pub(crate) fn kill_pod(&self, namespace: &str, name: &str) -> Result<usize> {
        self.containers.kill(&[("pod.namespace", namespace), ("pod.name", name)])
    }

    /// Its containerd.
    pub(crate) fn containers(&self) -> &Containers {
        &self.containers
    }

    /// Kills the container of this name in each pod of a namespace; the kubelet starts it again. Returns how many there were.
    pub(crate) fn kill_container(&self, namespace: &str, name: &str) -> Result<usize> {
        self.containers.kill(&[("pod.namespace", namespace), ("container.name", name)])
    }

    /// A power cut: kubelet, containerd and all containers end at once, and everything that is not on a disk is lost.
    /// Volumes stay, and so do the files of kubelet and containerd in `/var/lib`.
    pub(crate) fn cut_power(&mut self, lab: &Lab) -> Result<()> {
        self.kubelet.kill();
        self.proxy.kill();
        self.containers.process.kill();
        let place = &self.containers.place;
        let group = format!("{}/{}", groups(lab), place.settings.name);
        wait::until("the end of everything in containers", 20, || {
            let left = contained(&place.machine.mounts(), &group)?;
            if left.is_empty() {
                return Ok::<_, Failure>(Some(()));
            }
            // Some of them end together with others before their turn.
            let _ = process::run(Command::new("kill").arg("-KILL").args(left));
            Ok(None)
        })?;
        sandbox::remove_cgroups(Path::new(CGROUPS), &group);
        place.run(LOSE_MEMORY)
    }

    /// The power is back: everything starts as after a boot. Does not wait for the node to be ready.
    pub(crate) fn start_again(&mut self, lab: &Lab, seed: &Cluster) -> Result<()> {
        let place = &self.containers.place;
        self.containers.process = start_containerd(lab, place)?;
        self.kubelet = start_kubelet(lab, seed, place)?;
        self.proxy = start_proxy(lab, seed, place)?;
        Ok(())
    }

    fn wait_ready(&mut self, seed: &Cluster) -> Result<()> {
        let condition = "jsonpath={.status.conditions[?(@.type=='Ready')].status}";
        wait::until("the node to be ready", 60, || {
            let running = self.kubelet.ensure_running().and_then(|()| self.proxy.ensure_running());
            if running.is_err() {
                return Ok(Some(running));
            }
            let name = self.containers.place.settings.name;
            let ready = seed.kubectl(&["get", "node", name, "--output", condition])?;
            Ok::<_, Failure>((ready == "True").then_some(Ok(())))
        })?
    }
}

/// containerd, and its containers.
#[derive(Debug)]
pub(crate) struct Containers {
    process: Process,
    pub(crate) place: Place,
}

impl Containers {
    /// Starts containerd on a machine, with the images that each node has.
    pub(crate) fn on(lab: &Lab, settings: NodeSettings, machine: Machine) -> Result<Self> {
        let folder = lab.state.join(settings.name);
        fs::create_dir_all(&folder).doing(|| format!("create {}", folder.display()))?;
        let containers = Self::start(lab, Place { settings, machine, folder })?;
        if !containers.has(image::PAUSE)? {
            for archive in image::build_basic(&lab.environment, &containers.place.folder)? {
                containers.import(&archive)?;
            }
        }
        Ok(containers)
    }

    /// Makes the image of a component available to pods. It stays for later nodes.
    pub(crate) fn import_component(&self, lab: &Lab, component: &Component) -> Result<()> {
        if self.has(&component.reference())? {
            return Ok(());
        }
        let archive = component.write(&lab.environment, &lab.state)?;
        let imported = self.import(&archive);
        fs::remove_file(&archive).doing(|| format!("remove {}", archive.display()))?;
        imported
    }

    fn start(lab: &Lab, place: Place) -> Result<Self> {
        let plugins = lab.environment.cni_folder().ok_or_else(|| Failure::new("no CNI plugins"))?;
        let networks = place.folder.join("cni");
        fs::create_dir_all(&networks).doing(|| format!("create {}", networks.display()))?;
        let pods = network(place.settings.pod_range, place.settings.masquerades);
        cluster::write(&place.network_of_pods(), &pods.to_string())?;
        let runtime = place.folder.join("runc");
        cluster::write(&runtime, RUNTIME)?;
        fs::set_permissions(&runtime, Permissions::from_mode(0o755))
            .doing(|| format!("make {} a program", runtime.display()))?;
        let config = containerd_config(plugins, &networks, &runtime);
        cluster::write(&place.folder.join(CONTAINERD_CONFIG), &config)?;
        Ok(Self { process: start_containerd(lab, &place)?, place })
    }

    pub(crate) fn import(&self, archive: &Path) -> Result<()> {
        self.ctr(&["images", "import", &archive.display().to_string()]).map(drop)
    }

    /// Kills the running containers with these labels of the kubelet. Returns how many there were.
    pub(crate) fn kill(&self, labels: &[(&str, &str)]) -> Result<usize> {
        let running = self.running(labels)?;
        running
            .iter()
            .try_for_each(|(id, _)| self.ctr(&["tasks", "kill", "--signal", "KILL", id]).map(drop))?;
        Ok(running.len())
    }

    /// The process of the running container of this name.
    pub(crate) fn process_of(&self, name: &str) -> Result<Option<String>> {
        Ok(self.running(&[("container.name", name)])?.pop().map(|(_, process)| process))
    }

    /// The running containers with these labels of the kubelet: their names, and their processes.
    fn running(&self, labels: &[(&str, &str)]) -> Result<Vec<(String, String)>> {
        let label = |(key, value): &(&str, &str)| format!("labels.\"io.kubernetes.{key}\"=={value}");
        let filter = labels.iter().map(label).collect::<Vec<_>>().join(",");
        let containers = self.ctr(&["containers", "list", "--quiet", &filter])?;
        // A line has the name, the process and the state.
        let tasks = self.ctr(&["tasks", "list"])?;
        let running = tasks.lines().filter_map(|line| {
            let mut words = line.split_whitespace();
            let (id, process) = (words.next()?, words.next()?);
            let is_wanted = words.next() == Some("RUNNING") && containers.lines().any(|known| known == id);
            is_wanted.then(|| (id.to_owned(), process.to_owned()))
        });
        Ok(running.collect())
    }

    fn has(&self, reference: &str) -> Result<bool> {
        Ok(self.ctr(&["images", "list", "--quiet"])?.lines().any(|line| line == reference))
    }

    fn ctr(&self, arguments: &[&str]) -> Result<String> {
        self.place.ctr(&[&["--namespace", "k8s.io"], arguments].concat())
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
        let _ = self.place.run(FORGET);
    }
}

/// Starts containerd, and waits until it answers.
fn start_containerd(lab: &Lab, place: &Place) -> Result<Process> {
    let mut process =
        place.start(lab, "containerd", &["--config".to_owned(), place.file(CONTAINERD_CONFIG)])?;
    wait::until("containerd", 20, || {
        let running = process.ensure_running();
        if running.is_err() {
            return Ok(Some(running));
        }
        place.ctr(&["version"]).map(|_| Some(Ok(())))
    })??;
    Ok(process)
}

/// The processes in the containers of a node, and their holders, but not those of another node. The former have their own process ids and
/// are in control groups below `group`. The latter see the mounts of the machine.
fn contained(mounts: &Path, group: &str) -> Result<Vec<String>> {
    let (own, mounts) = (fs::read_link("/proc/self/ns/pid")?, fs::read_link(mounts)?);
    // Other processes may end meanwhile.
    let links_to = |link: PathBuf, to: &Path| fs::read_link(link).ok().map(|found| found == to);
    let is_contained = |folder: &Path| {
        let is_holder =
            fs::read_link(folder.join("exe")).is_ok_and(|exe| exe.ends_with("containerd-shim-runc-v2"));
        if is_holder {
            return links_to(folder.join("ns/mnt"), &mounts) == Some(true);
        }
        links_to(folder.join("ns/pid"), &own) == Some(false)
            && fs::read_to_string(folder.join("cgroup")).is_ok_and(|groups| groups.contains(group))
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

/// A network whose pods have addresses of a range, and may leave the node with its own address.
pub(crate) fn network(pod_range: &str, masquerades: bool) -> Value {
    json!({
        "cniVersion": "0.4.0",
        "name": "lab",
        "plugins": [
            {"type": "bridge", "bridge": "cni0", "isGateway": true,
                "ipMasq": masquerades, "hairpinMode": true, "ipam": {
                "type": "host-local",
                "ranges": [[{"subnet": pod_range}]],
                "routes": [{"dst": "0.0.0.0/0"}],
            }},
            {"type": "loopback"},
        ],
    })
}

/// The machine of the tests may not have this capability, and then it cannot give it to a container that asks for it.
pub(crate) const RUNTIME: &str = r#"#!/bin/sh
previous=
for argument; do
  [ "$previous" != --bundle ] || sed -i 's/"CAP_SYS_RESOURCE",//g; s/,"CAP_SYS_RESOURCE"//g' "$argument/config.json"
  previous=$argument
done
exec runc "$@"
"#;

/// `restrict_oom_score_adj`: without it runc cannot lower its children's score where it may not lower the parent's.
fn containerd_config(plugins: &str, networks: &Path, runtime: &Path) -> String {
    format!(
        r#"version = 2
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{}"
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "{plugins}"
    conf_dir = "{}"
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
    BinaryName = "{}"
"#,
        image::PAUSE,
        networks.display(),
        runtime.display()
    )
}

fn start_kubelet(lab: &Lab, seed: &Cluster, place: &Place) -> Result<Process> {
    let kubeconfig = place.folder.join(KUBECONFIG);
    let user = format!("system:node:{}", place.settings.name);
    seed.write_kubeconfig(&kubeconfig, &user, Some("system:nodes"))?;
    let own = json!({
        "authentication": {"anonymous": {"enabled": true}, "webhook": {"enabled": false}},
        "authorization": {"mode": "AlwaysAllow"},
    });
    run_kubelet(lab, place, own, &[])
}

/// The kubelet's kubeconfig, in the folder of a node.
pub(crate) const KUBECONFIG: &str = "kubelet.kubeconfig";

/// Starts a kubelet with the fields of `own` in its configuration, and with these labels of its node besides.
pub(crate) fn run_kubelet(lab: &Lab, place: &Place, own: Value, labels: &[(&str, &str)]) -> Result<Process> {
    let NodeSettings { name, dns_address, .. } = place.settings;
    let groups = format!("{}/{name}", groups(lab));
    make_cgroups(&groups);
    let config = json!({
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": format!("/{groups}"),
        "clusterDNS": [dns_address],
        "clusterDomain": DNS_DOMAIN,
        "containerRuntimeEndpoint": format!("unix://{SOCKET}"),
        "evictionHard": {"nodefs.available": "0%", "imagefs.available": "0%"},
        "failSwapOn": false,
        "imageMinimumGCAge": "24h",
        "resolvConf": "",
        "syncFrequency": "1s",
    });
    cluster::write(&place.folder.join(KUBELET), &overlaid(config, own).to_string())?;
    let labels = std::iter::once(("topology.kubernetes.io/zone", ZONE)).chain(labels.iter().copied());
    let labels = labels.map(|(label, value)| format!("{label}={value}")).collect::<Vec<_>>().join(",");
    start_kubelet_of(lab, place, &[format!("--node-labels={labels}")])
}

/// A configuration in which the fields of `own` replace others.
pub(crate) fn overlaid(mut config: Value, own: Value) -> Value {
    if let (Some(config), Value::Object(own)) = (config.as_object_mut(), own) {
        config.extend(own);
    }
    config
}

/// Starts a kubelet with the files that it has. The labels of its Node stay.
pub(crate) fn start_kubelet_again(lab: &Lab, place: &Place) -> Result<Process> {
    start_kubelet_of(lab, place, &[])
}

fn start_kubelet_of(lab: &Lab, place: &Place, arguments: &[String]) -> Result<Process> {
    let NodeSettings { name, address, .. } = place.settings;
    let own = [
        format!("--config={}", place.file(KUBELET)),
        format!("--kubeconfig={}", place.file(KUBECONFIG)),
        format!("--cert-dir={}", place.folder.display()),
        format!("--hostname-override={name}"),
        format!("--node-ip={address}"),
    ];
    place.start(lab, "kubelet", &[&own[..], arguments].concat())
}

fn start_proxy(lab: &Lab, seed: &Cluster, place: &Place) -> Result<Process> {
    let NodeSettings { name, address, pod_range, .. } = place.settings;
    // Any route works: the address of a service is translated after routing.
    place.machine.ip(&format!("route replace {} dev lo src {address}", seed.role.service_range))?;
    let kubeconfig = place.folder.join("proxy.kubeconfig");
    seed.write_kubeconfig(&kubeconfig, "system:kube-proxy", None)?;
    place.start(
        lab,
        "kube-proxy",
        &[
            format!("--kubeconfig={}", kubeconfig.display()),
            format!("--hostname-override={name}"),
            "--proxy-mode=iptables".to_owned(),
            format!("--cluster-cidr={pod_range}"),
            "--conntrack-max-per-core=0".to_owned(),
        ],
    )
}

/// The name of the folder for the control groups of the kubelet.
pub(crate) fn groups(lab: &Lab) -> String {
    lab.state.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

/// Creates that folder in every hierarchy.
fn make_cgroups(name: &str) {
    let root = Path::new(CGROUPS);
    if root.join("cgroup.controllers").is_file() {
        let mut folder = root.to_owned();
        for part in Path::new(name) {
            let controllers = fs::read_to_string(folder.join("cgroup.controllers")).unwrap_or_default();
            for controller in controllers.split_whitespace() {
                // It exists already, or cannot be created here; the kubelet reports which one it lacks.
                let _ = fs::write(folder.join("cgroup.subtree_control"), format!("+{controller}"));
            }
            folder.push(part);
            let _ = fs::create_dir_all(&folder);
        }
        return;
    }
    for hierarchy in fs::read_dir(root).into_iter().flatten().flatten() {
        let _ = fs::create_dir_all(hierarchy.path().join(name));
    }
}
