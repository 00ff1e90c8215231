//! The data of etcd-main, if they outlive their namespace: they begin with the newest snapshot of the bucket, as those of an
//! etcd that the agent's program starts, and they are on the volume of its claim.
//!
//! What is played is `gardenlet etcd start` in the pod of the StatefulSet: a new claim gets the newest intact snapshot under
//! `--prefix` in the bucket of the Secret that is mounted at `--s3`, and nothing if there is none, unless the environment of the
//! container forbids that. Damaged snapshots are passed over, unless the environment forbids that, too; if all are damaged, or nobody
//! answers, the pod does not run, and tells why. A claim that has data starts without the bucket.
//! There are no deltas, and other members than the first one do not count.

use gardenlet::base::clock::Timestamp;
use serde_json::{Value, json};

use super::Shared;
use super::buckets::{Buckets, Snapshot};
use super::files::{Files, Find};
use super::kubelet::finder;
use super::ledger::Ledger;
use super::said;
use super::scene::{Scene, place};
use super::server::Server;
use crate::json::{entry, list, text};

/// The variable that keeps the program from starting an empty etcd.
const NEVER_EMPTY: &str = "GARDENLET_ETCD_NEVER_EMPTY";
const AT_LEAST: &str = "GARDENLET_ETCD_AT_LEAST";
/// The variable with the file for the reason of a failed start.
const RESULT: &str = "GARDENLET_ETCD_RESULT";
/// The first pod of etcd-main.
pub const MEMBER: &str = "etcd-main-0";

/// What the etcds of all sites of a test share.
#[derive(Clone, Debug, Default)]
pub struct Etcds {
    /// The name of the site, in complaints.
    pub site: String,
    pub buckets: Buckets,
    pub ledger: Ledger,
}

impl Etcds {
    /// The same for another site.
    #[must_use]
    pub fn at(&self, site: &str) -> Self {
        Self { site: site.to_owned(), ..self.clone() }
    }
}

/// The volume of a claim.
#[derive(Debug)]
pub struct Volume {
    /// The UID of the claim.
    claim: String,
    /// With what it began.
    snapshot: Option<Snapshot>,
}

/// The arguments after `gardenlet etcd` of the first container.
pub fn words(spec: &Value) -> Vec<&str> {
    let container = &spec["containers"][0];
    let all = ["/command", "/args"].into_iter().flat_map(|field| list(container, field));
    let words = all.filter_map(Value::as_str).skip_while(|word| *word != "etcd");
    words.skip(1).collect()
}

/// The value of `--name=value`.
pub fn flag<'a>(words: &[&'a str], name: &str) -> Option<&'a str> {
    words.iter().find_map(|word| word.strip_prefix("--")?.strip_prefix(name)?.strip_prefix('='))
}

/// The bucket of the Secret in a folder.
///
/// # Errors
/// A file is missing.
pub fn bucket(files: &Files<'_>, folder: &str) -> Result<String, String> {
    for key in ["accessKeyID", "secretAccessKey"] {
        files.read(&format!("{folder}/{key}"))?;
    }
    files.read(&format!("{folder}/bucketName"))
}

/// Why the program ends.
#[derive(Debug)]
pub struct Refusal {
    pub why: String,
    /// Its termination message.
    pub told: String,
}

/// Lets etcd start in a pod.
///
/// # Errors
/// The program ends.
pub fn start(shared: &Shared, scene: &Scene, etcds: &Etcds, pod: &Value) -> Result<(), Refusal> {
    let (namespace, _) = place(pod);
    let claims = list(pod, "/spec/volumes").iter();
    let mut claims = claims.map(|volume| text(volume, "/persistentVolumeClaim/claimName"));
    let claim = claims.find(|claim| !claim.is_empty()).unwrap_or_default();
    let claim = Scene::find(&scene.claims, namespace, claim).map_or("", |claim| text(claim, "/metadata/uid"));
    if shared.volumes().get(namespace).is_some_and(|volume| volume.claim == claim) {
        return Ok(());
    }
    let snapshot = newest(shared, etcds, pod).map_err(|failure| {
        let (why, is_unusable) = match failure {
            Failure::Store(why) => (why, false),
            Failure::Snapshots(why) => (why, true),
        };
        let find = finder(&shared.hands.client, namespace);
        let tells = variable(&find, &pod["spec"], RESULT).as_deref() == Some("/dev/termination-log");
        let told = json!({"error": why, "unusable": is_unusable}).to_string();
        Refusal { why, told: if tells { told } else { String::new() } }
    })?;
    shared.volumes().insert(namespace.to_owned(), Volume { claim: claim.to_owned(), snapshot });
    // An API server with the data of another volume is another one.
    if let Some(server) = shared.servers().remove(namespace) {
        server.stop();
    }
    Ok(())
}

enum Failure {
    /// The store cannot be read.
    Store(String),
    /// What it has cannot be restored.
    Snapshots(String),
}

fn newest(shared: &Shared, etcds: &Etcds, pod: &Value) -> Result<Option<Snapshot>, Failure> {
    let words = words(&pod["spec"]);
    let (Some(folder), Some(prefix)) = (flag(&words, "s3"), flag(&words, "prefix")) else { return Ok(None) };
    let find = finder(&shared.hands.client, place(pod).0);
    let bucket = bucket(&Files::new(&pod["spec"], &find), folder).map_err(Failure::Store)?;
    let mut all = etcds.buckets.list(&bucket, prefix).map_err(Failure::Store)?;
    let is_moving = variable(&find, &pod["spec"], NEVER_EMPTY).as_deref() == Some("true");
    if let Some(newest) = all.last().filter(|newest| newest.is_broken && is_moving) {
        let file = newest.file();
        return Err(Failure::Snapshots(format!("snapshot {file} of s3://{bucket}/{prefix} is broken")));
    }
    let n_all = all.len();
    all.retain(|snapshot| !snapshot.is_broken);
    if all.is_empty() && n_all > 0 {
        let why = format!("no snapshot of s3://{bucket}/{prefix} can be restored: {n_all} are broken");
        return Err(Failure::Snapshots(why));
    }
    if all.is_empty() && is_moving {
        let why = said::NEVER_EMPTY;
        let why = format!("there are no data, and s3://{bucket}/{prefix} has no snapshots: {why}");
        return Err(Failure::Snapshots(why));
    }
    let reached = all.last().map_or(0, |newest| newest.revision);
    let at_least = variable(&find, &pod["spec"], AT_LEAST).map_or(0, |text| text.parse().unwrap());
    if is_moving && reached < at_least {
        let why = said::OLDER;
        let why = format!("s3://{bucket}/{prefix} ends with revision {reached}, not {at_least}: {why}");
        return Err(Failure::Snapshots(why));
    }
    Ok(all.pop())
}

/// A variable of the container's environment.
fn variable(find: Find<'_>, spec: &Value, name: &str) -> Option<String> {
    let mut maps = list(spec, "/containers/0/envFrom").iter().filter_map(|from| {
        let name = text(from, "/configMapRef/name");
        if name.is_empty() { None } else { find("configmaps", name) }
    });
    maps.find_map(|map| entry(&map, "/data", name).map(str::to_owned))
}

/// Gives a new API server the data of its namespace.
pub fn fill(shared: &Shared, etcds: &Etcds, namespace: &Value, server: &Server) {
    let name = text(namespace, "/metadata/name");
    let snapshot = shared.volumes().get(name).and_then(|volume| volume.snapshot.clone());
    let snapshot = snapshot.filter(|snapshot| snapshot.content.is_some());
    if let Some(snapshot) = &snapshot {
        snapshot.load_into(server.cluster.store());
    }
    let owner = entry(namespace, "/metadata/annotations", "shoot.gardener.cloud/uid").unwrap_or(name);
    let place = format!("{}/{name}", etcds.site);
    let from = snapshot.map(|snapshot| snapshot.revision);
    server.enter(etcds.ledger.begin(owner, &place, server.cluster.store(), from));
}

/// What etcd-main of a namespace holds at this moment.
pub fn snapshot(shared: &Shared, namespace: &str, now: Timestamp, is_final: bool) -> Snapshot {
    if let Some(server) = shared.servers().get(namespace) {
        return Snapshot::of(server.cluster.store(), now.unix(), is_final);
    }
    match shared.volumes().get(namespace).and_then(|volume| volume.snapshot.clone()) {
        Some(snapshot) => Snapshot { is_final, ..snapshot },
        None => Snapshot::empty(now.unix(), is_final),
    }
}

#[test]
fn arguments_are_found_after_the_name_of_the_command() {
    let spec = serde_json::json!({"containers": [{"command": ["/agent/gardenlet", "etcd", "start", "--s3=/a"],
        "args": ["--prefix=p/etcd-main"]}]});
    let words = words(&spec);
    assert_eq!(words, ["start", "--s3=/a", "--prefix=p/etcd-main"]);
    assert_eq!((flag(&words, "s3"), flag(&words, "prefix")), (Some("/a"), Some("p/etcd-main")));
    assert_eq!(flag(&words, "s"), None);
}
