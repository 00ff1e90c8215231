//! The released form of the agent: its image, deployed by its chart into the seed, and an extension with a running
//! container.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use gardenlet::api::coordination::LEASE;
use gardenlet::api::core::SERVICE;
use gardenlet::api::gardener::CONTROLLER_DEPLOYMENT;
use gardenlet::api::meta::Key;
use gardenlet::chart::child;
use gardenlet::kube::{Client, Patch};
use serde_json::{Value, json};

use crate::cluster;
use crate::failure::{Doing, Failure, Result, ensure, equal};
use crate::image;
use crate::lab::Lab;
use crate::node::{NODE, Node};
use crate::process;
use crate::sandbox::ADDRESS;
use crate::stories::inside::answers;
use crate::stories::steps::{is_installed, is_ready, register_demo};
use crate::wait;
use crate::world::{self, SEED, World};

/// The image of `packaging/image` runs as the chart of `packaging/chart` deploys it: without privileges on the machine,
/// with the permissions of its role in the seed. It joins the garden and installs an extension. The extension's
/// container runs and answers, and is replaced when the values change.
pub(crate) fn pod(lab: &mut Lab) -> Result<()> {
    // Pods reach this address; they have their own loopback network.
    lab.garden.front = Some(lab.garden.url().replace("127.0.0.1", ADDRESS));
    let world = World::without_access(lab)?;
    let node = Node::start(lab)?;
    node.import(&image::of_the_agent(&lab.place)?)?;
    let file = lab.place.join("chart.yaml");
    cluster::write(&file, &chart(lab, &world)?)?;
    lab.seed.kubectl(&["apply", "--filename", &file.display().to_string()])?;
    let result = runs(lab).and_then(|()| extension_answers(lab)).and_then(|()| stays(lab));
    // In all cases the output of the agents belongs to the logs of this story.
    let pods = ["logs", "--selector=role=gardenlet", "--namespace=garden", "--prefix", "--tail=-1"];
    let log = lab.seed.kubectl(&pods).unwrap_or_else(|failure| failure.to_string());
    let _ = fs::write(lab.place.join("gardenlet-pods.log"), log);
    result
}

/// The objects of the chart, rendered by the program itself.
fn chart(lab: &Lab, world: &World) -> Result<String> {
    let mut config = world::config(lab, "pod");
    config["gardenClientConnection"]["bootstrapKubeconfig"]["kubeconfig"] = json!(world.bootstrap(lab));
    // The chart has a volume for the state.
    config["edge"] = json!({});
    let values = lab.place.join("values.yaml");
    cluster::write(&values, &json!({"config": config}).to_string())?;
    let mut command = Command::new(lab.environment.agent());
    command.args(["render", "gardenlet", concat!(env!("CARGO_MANIFEST_DIR"), "/packaging/chart")]);
    process::run(command.args(["--namespace", "garden", "--values"]).arg(values))
}

/// All pods become ready, without privileges on the machine.
fn runs(lab: &Lab) -> Result<()> {
    lab.seed.rolled_out("garden", "deployment/gardenlet", 180)?;
    // A leader may render a chart at this moment.
    let mut processes = processes("/gardenlet")?;
    let renders = |process: &Path| {
        fs::read_to_string(process.join("cmdline")).is_ok_and(|line| line.contains(child::COMMAND))
    };
    processes.retain(|process| !renders(process));
    equal("the agents that run", &processes.len(), &2)?;
    processes.iter().try_for_each(|process| is_confined(process))
}

/// The kernel's view of a process: a user without privileges, a filter of system calls, a read-only root file system.
fn is_confined(process: &Path) -> Result<()> {
    let read =
        |name: &str| fs::read_to_string(process.join(name)).doing(|| format!("read {name} of the agent"));
    let status = read("status")?;
    let field = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        line.unwrap_or_default().split_whitespace().next().unwrap_or_default().to_owned()
    };
    let found = ["Uid", "Gid", "NoNewPrivs", "Seccomp", "CapEff", "CapBnd"].map(field);
    let nothing = "0000000000000000";
    equal(
        "user, filter and capabilities",
        &found,
        &["65532", "65532", "1", "2", nothing, nothing].map(str::to_owned),
    )?;
    let mounts = read("mountinfo")?;
    let root = mounts
        .lines()
        .map(|line| line.split(' ').collect::<Vec<_>>())
        .find(|words| words.get(4) == Some(&"/"));
    let options = root.and_then(|words| words.get(5).copied()).unwrap_or_default();
    ensure(options.split(',').any(|option| option == "ro"), || format!("the root file system: {options}"))
}

/// The processes of a program, as folders in /proc.
pub(super) fn processes(program: &str) -> Result<Vec<PathBuf>> {
    let all = fs::read_dir("/proc")?.flatten().map(|entry| entry.path());
    // Other processes may end meanwhile.
    let runs = |path: &PathBuf| fs::read_link(path.join("exe")).is_ok_and(|exe| exe == Path::new(program));
    Ok(all.filter(runs).collect())
}

fn extension_answers(lab: &Lab) -> Result<()> {
    let (garden, seed) = (lab.garden.client()?, lab.seed.client()?);
    wait::until("the seed to be ready", 180, || is_ready(&garden))?;
    register_demo(lab, 1)?;
    let name = wait::until("the extension to be healthy", 180, || is_installed(&garden))?;
    let service: Value = seed.get(&SERVICE, &Key::new(format!("extension-{name}"), "demo"))?;
    let address = service["spec"]["clusterIP"].as_str().ok_or_else(|| Failure::new("no clusterIP"))?;
    answers(&format!("{address}:80"), "GREETING=hello\n")?;
    let values = Patch::Merge(json!({"helm": {"values": {"replicas": 1, "greeting": "bye"}}}));
    garden.patch::<Value>(&CONTROLLER_DEPLOYMENT, &Key::cluster("demo"), &values)?;
    answers(&format!("{address}:80"), "GREETING=bye\n")?;
    wait::until("the extension to be healthy again", 180, || is_installed(&garden)).map(drop)
}

/// The seed's lease is renewed again, the kubelet has found all agents alive, and has restarted none of them.
fn stays(lab: &Lab) -> Result<()> {
    let garden = lab.garden.client()?;
    let first = renewed(&garden)?;
    wait::until("the next renewal", 30, || renewed(&garden).map(|next| (next != first).then_some(())))?;
    wait::until("probes of both agents", 180, || Ok::<_, Failure>((alive(lab)? >= 2).then_some(())))?;
    let restarts = "jsonpath={.items[*].status.containerStatuses[*].restartCount}";
    let pods = ["get", "pods", "--namespace=garden", "--selector=role=gardenlet", "--output", restarts];
    equal("restarts", lab.seed.kubectl(&pods)?.as_str(), "0 0")
}

fn renewed(garden: &Client) -> Result<Value> {
    let lease: Value = garden.get(&LEASE, &Key::new("gardener-system-seed-lease", SEED))?;
    Ok(lease["spec"]["renewTime"].clone())
}

/// The number of pods of the agent that passed the liveness probe; fails if one did not.
fn alive(lab: &Lab) -> Result<usize> {
    let metrics =
        lab.seed.kubectl(&["get", "--raw", &format!("/api/v1/nodes/{NODE}/proxy/metrics/probes")])?;
    let of_agents = |line: &&str| {
        line.starts_with("prober_probe_total{")
            && line.contains("namespace=\"garden\"")
            && line.contains("probe_type=\"Liveness\"")
    };
    let (good, bad): (Vec<_>, Vec<_>) =
        metrics.lines().filter(of_agents).partition(|line| line.contains("result=\"successful\""));
    ensure(bad.is_empty(), || format!("not alive: {bad:?}"))?;
    Ok(good.len())
}
