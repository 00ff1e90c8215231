//! What a host with systemd can do before it is a node, and what it cannot do.

use std::fs;
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use crate::failure::{Failure, Result, ensure, equal};
use crate::image;
use crate::lab::Lab;
use crate::machine::Cable;
use crate::mirror::{self, Mirror};
use crate::systemd::{SystemHost, SystemHostSettings};
use crate::wait;

const MEMORY_MB: u32 = 512;
const SETTINGS: SystemHostSettings = SystemHostSettings {
    name: "shed",
    cable: Cable { name: "shed", inside: "10.67.0.1", outside: "10.67.0.2" },
    memory_mb: Some(MEMORY_MB),
};
/// A setting of the kernel that only the whole machine of the tests has.
const SETTING: &str = "/proc/sys/vm/max_map_count";
const UNIT: &str = "web.service";
const WEB_PORT: u16 = 8080;
const DIAL_WITHIN: Duration = Duration::from_secs(5);
const ANSWERS_WITHIN_S: u64 = 20;

/// Everything that an agent of a node needs on its host: systemd, containerd, a way to the sandbox, images from a mirror, and files
/// that stay. Nothing reaches the host, and the host changes nothing of this machine.
pub(crate) fn lives(lab: &mut Lab) -> Result<()> {
    let mut host = SystemHost::start(lab, SETTINGS)?;
    has_little_memory(&host)?;
    changes_no_setting(&host)?;
    serves_itself_alone(&host)?;
    let mirror = Mirror::start(lab)?;
    pulls(lab, &host, &mirror)?;
    host.write("/etc/kept/file", "kept")?;
    host.write("/run/lost", "lost")?;
    host.reboot(lab)?;
    keeps_its_files(&host)?;
    host.power_off()?;
    ensure(host.run(&["true"]).is_err(), || "a command runs on a host without power".to_owned())?;
    ensure(host.journal(UNIT)?.contains("Started"), || "the journal is lost without power".to_owned())?;
    host.power_on(lab)?;
    keeps_its_files(&host)?;
    drop(host);
    leaves_nothing(lab)
}

fn has_little_memory(host: &SystemHost) -> Result<()> {
    let total = host.run(&["grep", "MemTotal:", "/proc/meminfo"])?;
    ensure(total.contains(&(MEMORY_MB << 10).to_string()), || format!("its memory: {total}"))?;
    let limits =
        "cat /sys/fs/cgroup/memory.max /sys/fs/cgroup/memory/memory.limit_in_bytes 2>/dev/null || true";
    let limit = host.run(&["sh", "-c", limits])?;
    equal("the limit of its memory", limit.trim(), &(u64::from(MEMORY_MB) << 20).to_string())
}

/// It writes a setting of the kernel, and reads it back. Swap is that of the host.
fn changes_no_setting(host: &SystemHost) -> Result<()> {
    let before = fs::read_to_string(SETTING)?;
    host.run(&["sh", "-c", &format!("echo 70001 >{SETTING}")])?;
    equal("the setting on the host", host.read(SETTING)?.trim(), "70001")?;
    equal("the setting of the machine", &fs::read_to_string(SETTING)?, &before)?;
    equal("lines about swap", &host.read("/proc/swaps")?.lines().count(), &1)?;
    let write = host.run(&["sh", "-c", "echo 1 >/proc/sys/kernel/printk_delay"]);
    ensure(write.is_err(), || "it changes a setting that it has no file for".to_owned())
}

/// A unit that it enables answers on the host. No connection leads there, and none leads out of the sandbox.
fn serves_itself_alone(host: &SystemHost) -> Result<()> {
    let unit = format!(
        "[Service]\nExecStart=/usr/bin/busybox httpd -f -p {WEB_PORT} -h /etc\n[Install]\nWantedBy=multi-user.target\n"
    );
    host.write(&format!("/etc/systemd/system/{UNIT}"), &unit)?;
    let output = host.run_script(
        "#!/bin/bash\nset -e\nsystemctl daemon-reload\nsystemctl enable --now web\necho done\n",
    )?;
    let complaint = String::from_utf8_lossy(&output.stderr);
    ensure(output.status.success(), || format!("the script: {complaint}"))?;
    equal("what the script says", &*output.stdout, b"done\n".as_slice())?;
    let failed = host.run_script("echo no; exit 3\n")?;
    equal("the exit code of a script", &failed.status.code(), &Some(3))?;
    let dial =
        |address: &str| host.run(&["timeout", "2", "bash", "-c", &format!("exec 3<>/dev/tcp/{address}")]);
    wait::until("the answer of a unit", ANSWERS_WITHIN_S, || {
        dial(&format!("{}/{WEB_PORT}", host.address())).map(Some)
    })?;
    ensure(dial("192.0.2.1/80").is_err(), || "a connection leads out of the sandbox".to_owned())?;
    let address = format!("{}:{WEB_PORT}", host.address());
    let address: SocketAddr = address.parse().map_err(|error| Failure::new(format!("{address}: {error}")))?;
    let direct = TcpStream::connect_timeout(&address, DIAL_WITHIN);
    ensure(direct.is_err(), || "a connection from the sandbox reaches the host".to_owned())
}

/// The image of the agent comes through the mirror, and its program runs; a container reaches the sandbox, too.
fn pulls(lab: &Lab, host: &SystemHost, mirror: &Mirror) -> Result<()> {
    let agent = image::NODE_AGENT.image(&lab.environment)?;
    let kubelet = image::KUBELET.image(&lab.environment)?;
    for image in [&agent, &kubelet, &image::tools(&lab.environment)?] {
        let registry = mirror.add(image)?;
        host.write(&mirror::path_of_hosts_toml(&registry), &mirror.hosts_toml())?;
        let started = wait::now();
        host.run(&["ctr", "images", "pull", "--hosts-dir", "/etc/containerd/certs.d", &image.reference])?;
        println!("       {} was pulled in {:.1} s", image.reference, wait::seconds_since(started));
    }
    let missing =
        host.run(&["ctr", "images", "pull", "--hosts-dir", "/etc/containerd/certs.d", "lab.local/none:1"]);
    ensure(missing.is_err(), || "an image is pulled that nobody has".to_owned())?;
    host.run(&["ctr", "images", "mount", &agent.reference, "/mnt"])?;
    let version = host.run(&["/mnt/gardener-node-agent", "--version"])?;
    ensure(version.contains(image::NODE_AGENT.version()), || format!("the agent's version: {version}"))?;
    host.connect_pods("100.96.0.0/24")?;
    let ask = format!("busybox ip address; busybox wget -q -O - {}/v2/", mirror.url());
    let shell = ["ctr", "run", "--rm", "--cni", image::TOOLS, "once", "/bin/busybox", "sh", "-c", &ask];
    let told = host.run(&shell)?;
    ensure(told.contains("inet 100.96.0.") && told.ends_with("{}"), || format!("a container: {told}"))
}

fn keeps_its_files(host: &SystemHost) -> Result<()> {
    equal("a file", host.read("/etc/kept/file")?.as_str(), "kept")?;
    ensure(host.read("/run/lost").is_err(), || "a file in memory is still there".to_owned())?;
    let images = host.run(&["ctr", "images", "list", "--quiet"])?;
    ensure(images.contains(image::TOOLS), || format!("its images: {images}"))?;
    wait::until("its unit to run again", ANSWERS_WITHIN_S, || {
        host.run(&["systemctl", "is-active", "--quiet", UNIT]).map(Some)
    })
    .map(drop)
}

fn leaves_nothing(lab: &Lab) -> Result<()> {
    let state = lab.state.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let mounts = fs::read_to_string("/proc/mounts")?;
    ensure(!mounts.contains("shed-disk"), || format!("its mounts are left: {mounts}"))?;
    let hierarchies = fs::read_dir("/sys/fs/cgroup")?.flatten().map(|entry| entry.path());
    let left =
        hierarchies.map(|hierarchy| hierarchy.join(&state).join(SETTINGS.name)).find(|path| path.exists());
    ensure(left.is_none(), || format!("control groups are left: {left:?}"))?;
    let disk = lab.place.join("shed-disk");
    ensure(!disk.exists(), || format!("its disk is left: {}", disk.display()))?;
    let journal = lab.place.join("shed-journal.log");
    ensure(journal.is_file(), || format!("its journal is not kept: {}", journal.display()))
}
