//! Snapshots of a Shoot's etcd: taken by a pod of the agent's image, and restored onto a volume that has lost all data.

use std::fs;
use std::path::{Path, PathBuf};

use gardenlet::api::core::{CRON_JOB, PERSISTENT_VOLUME_CLAIM, POD};
use gardenlet::api::gardener::SHOOT;
use gardenlet::api::meta::Key;
use gardenlet::backup::garden::entry_name;
use gardenlet::kube::{Client, ListParams};
use serde_json::{Value, json};

use super::owner::Owner;
use super::{Name, PROJECT, ask_for_another, succeeded};
use crate::agent::Agent;
use crate::cluster::Cluster;
use crate::failure::{Doing, Failure, Result, ensure, equal};
use crate::image;
use crate::lab::Lab;
use crate::node::Node;
use crate::storage::FOLDERS;
use crate::wait;

const DIRECTORY: &str = "/var/lib/snapshots";
const JOB: &str = "etcd-main-snapshot";
const ETCD: &str = "statefulset/etcd-main";
const IMAGE: &str = concat!("docker.io/library/gardenlet:", env!("CARGO_PKG_VERSION"));
/// The longest time until a Shoot answers after its data was lost, and how long the act waits for it.
const BACK_IN_S: f64 = 120.0;
const BACK_WITHIN_S: u64 = 240;

/// The participants.
pub(super) struct Cast<'a> {
    pub(super) lab: &'a Lab,
    pub(super) garden: &'a Client,
    pub(super) node: &'a Node,
    pub(super) owner: &'a Owner<'a>,
    pub(super) name: Name,
}

/// Snapshots are enabled for a running Shoot. One is taken, and reports its result. After the volume has lost all data,
/// earlier data is restored and later data is not. Only its owner may read the directory.
pub(super) fn bring_everything_back(cast: &Cast<'_>, agent: &mut Agent) -> Result<()> {
    let Cast { lab, garden, node, owner, name } = *cast;
    let plane = name.plane();
    let began = wait::now();
    node.import(&image::of_the_agent(&lab.place)?)?;
    agent.reconfigure(|config| {
        config["edge"]["etcd"]["snapshots"] =
            json!({"store": "Directory", "directory": DIRECTORY, "image": IMAGE});
    })?;
    ask_for_another(garden, name)?;
    let shoot = succeeded(lab, garden, agent, (name, "Reconcile"))?;
    lab.seed.rolled_out(&plane, ETCD, 120)?;
    wait::until("the Shoot to answer", BACK_WITHIN_S, || owner.finds_everything().map(Some))?;
    println!("       {:6.1} s  snapshots are enabled", wait::seconds_since(began));
    // etcd has just been replaced, and the following loss of its data must be a failure of its own.
    owner.has_a_settled_server()?;

    let began = wait::now();
    let told = taken(&lab.seed, name, "first")?;
    println!("       {:6.1} s  a snapshot: {told}", wait::seconds_since(began));
    ensure(told["databaseBytes"].as_u64() > Some(0), || format!("the size of the database: {told}"))?;
    let uid = shoot["status"]["uid"].as_str().unwrap_or_default();
    let kept = Path::new(DIRECTORY).join(entry_name(&plane, uid));
    ensure(files(&kept)? > 0, || format!("{} is empty", kept.display()))?;
    is_private(&kept)?;

    owner.kubectl(&["create", "configmap", "later", "--from-literal=a=b"])?;
    let began = wait::now();
    lose_everything(lab, name)?;
    let back = || {
        owner.finds_everything()?;
        let later = owner.kubectl(&["get", "configmap", "later", "--ignore-not-found", "--output=name"])?;
        equal("data from after the snapshot", &later, &String::new()).map(Some)
    };
    wait::until("the data to be back", BACK_WITHIN_S, back)?;
    wait::measured("seconds until lost data is back", wait::seconds_since(began), BACK_IN_S)?;
    lab.seed.rolled_out(&plane, ETCD, 120)?;
    ask_for_another(garden, name)?;
    succeeded(lab, garden, agent, (name, "Reconcile"))?;
    let live: Value = garden.get(&SHOOT, &Key::new(PROJECT, name.0))?;
    equal("errors", &live["status"]["lastErrors"], &Value::Null)
}

/// Runs the job once, as docs/snapshots.md says, and returns the termination message of its pod.
pub(super) fn taken(cluster: &Cluster, name: Name, run: &str) -> Result<Value> {
    let (plane, seed) = (name.plane(), cluster.client()?);
    let namespace = format!("--namespace={plane}");
    let from = format!("--from=cronjob/{JOB}");
    seed.get::<Value>(&CRON_JOB, &Key::new(&plane, JOB))?;
    cluster.kubectl(&["create", "job", run, &from, &namespace])?;
    let params = ListParams { label_selector: format!("job-name={run}"), ..ListParams::default() };
    wait::until("the end of a snapshot", 90, || {
        let pods = seed.list::<Value>(&POD, &plane, &params)?.items;
        let ended =
            &pods.first().unwrap_or(&Value::Null)["status"]["containerStatuses"][0]["state"]["terminated"];
        if ended.is_null() {
            return Ok::<_, Failure>(None);
        }
        let told = ended["message"].as_str().unwrap_or_default();
        ensure(ended["exitCode"] == 0, || format!("the snapshot failed: {told}"))?;
        Ok(Some(serde_json::from_str(told)?))
    })
}

/// Files below a folder.
fn files(folder: &Path) -> Result<usize> {
    let mut found = 0;
    for entry in fs::read_dir(folder).doing(|| format!("read {}", folder.display()))?.flatten() {
        found += if entry.path().is_dir() { files(&entry.path())? } else { 1 };
    }
    Ok(found)
}

/// It belongs to etcd's user, and no other user may read it.
fn is_private(folder: &Path) -> Result<()> {
    use std::os::unix::fs::MetadataExt;
    let found = fs::metadata(folder).doing(|| format!("look at {}", folder.display()))?;
    equal("owner and mode", &(found.uid(), found.gid(), found.mode() & 0o777), &(65_532, 65_532, 0o700))
}

/// As if an administrator had replaced the disk: the volume is empty, and etcd starts again.
fn lose_everything(lab: &Lab, name: Name) -> Result<()> {
    let (plane, seed) = (name.plane(), lab.seed.client()?);
    let claim: Value = seed.get(&PERSISTENT_VOLUME_CLAIM, &Key::new(&plane, "main-etcd-etcd-main-0"))?;
    let volume = claim["spec"]["volumeName"].as_str().ok_or_else(|| Failure::new("no volume".to_owned()))?;
    let folder: PathBuf = Path::new(FOLDERS).join(volume);
    for entry in fs::read_dir(&folder).doing(|| format!("read {}", folder.display()))?.flatten() {
        fs::remove_dir_all(entry.path()).doing(|| format!("remove {}", entry.path().display()))?;
    }
    let namespace = format!("--namespace={plane}");
    lab.seed.kubectl(&["delete", "pod", "etcd-main-0", "--grace-period=1", &namespace]).map(drop)
}
