//! Snapshots of an etcd without a druid: the additions to its StatefulSet, which restores the newest snapshot to an
//! empty volume, and the CronJob that takes snapshots. Both run the agent's own program. An init container copies it to
//! the etcd pod, because it has to start etcd in the image of etcd.

use serde_json::Value;

use super::Input;
use crate::api::core::{self, CRON_JOB};
use crate::api::meta::{Key, text};
use crate::base::clock::Timestamp;
use crate::base::json::json;
use crate::components::apply::{Keep, patch};
use crate::flow::Failed;
use crate::format::time::rfc3339;
use crate::kube::{Error, Patch, Seed};
use crate::runtime::write;
use crate::snapshot::s3::credentials::UNKNOWN;

/// The label of the CronJobs and their pods. It selects all of a seed.
pub(crate) const SELECTOR: &str = "app=etcd-main-snapshot";
/// The name of the CronJob.
pub const NAME: &str = "etcd-main-snapshot";
/// The Secret in which the extension of a BackupEntry describes how to reach the bucket.
pub(crate) const SECRET: &str = "etcd-backup";
/// The same for the bucket of the seed from which the Shoot moves.
pub(crate) const SOURCE_SECRET: &str = "source-etcd-backup";

/// The ConfigMap with variables for the start of etcd-main while its Shoot moves.
pub(super) const RESTORE: &str = "etcd-main-restore";

/// Since when snapshots are taken on the present schedule: an annotation of the CronJob.
pub(crate) const SINCE: &str = "snapshots.gardenlet.gardener.cloud/since";

const INSTALLER: &str = "agent";
const DIRECTORY: &str = "/var/etcd/snapshots";
const BUCKET: &str = "/var/etcd/backup";
/// A restoration runs before the start: the number of probes in half an hour.
const STARTS_MAX: u64 = 900;
/// No probe succeeds during a defragmentation: the number of probes in five minutes.
const PAUSES_MAX: u64 = 60;

/// Where snapshots are stored.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Store<'a> {
    /// In a directory of the node.
    Directory(&'a str),
    /// In the bucket that [`SECRET`] names.
    Bucket,
}

/// The settings for snapshots.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Snapshots<'a> {
    /// Where they are stored.
    pub store: Store<'a>,
    /// The owner's unique name: no other Shoot ever has it, not even a later one of the same name.
    pub entry: &'a str,
    /// The image of the agent.
    pub image: &'a str,
    /// How many snapshots are kept.
    pub keep: u32,
    /// The cron schedule, in UTC.
    pub schedule: &'a str,
    /// When etcd may be defragmented: start and end of the maintenance time window.
    pub window: (&'a str, &'a str),
    /// There is no running etcd to take snapshots from.
    pub is_suspended: bool,
    /// The present time.
    pub now: Timestamp,
}

impl Snapshots<'_> {
    /// The directory of this Shoot on the node: its pods cannot see other directories.
    fn volume(&self) -> (Value, &'static str, String) {
        match self.store {
            Store::Directory(path) => {
                let path = format!("{}/{}", path.trim_end_matches('/'), self.entry);
                let volume =
                    json!({"name": "snapshots", "hostPath": {"path": path, "type": "DirectoryOrCreate"}});
                (volume, DIRECTORY, "etcd-main".to_owned())
            }
            Store::Bucket => {
                // An etcd with data starts without it too.
                let secret = json!({"secretName": SECRET, "defaultMode": 416, "optional": true});
                let volume = json!({"name": "snapshots", "secret": secret});
                (volume, BUCKET, format!("{}/etcd-main", self.entry))
            }
        }
    }

    pub(super) fn arguments(&self) -> [String; 2] {
        let (_, path, prefix) = self.volume();
        let store = match self.store {
            Store::Directory(_) => "directory",
            Store::Bucket => "s3",
        };
        [format!("--{store}={path}"), format!("--prefix={prefix}")]
    }

    /// Lets the pod of a StatefulSet restore a volume without data.
    pub(super) fn add_to(&self, set: &mut Value) {
        let pod = &mut set["spec"]["template"]["spec"];
        let (volume, path, _) = self.volume();
        let program = |is_read_only: bool| {
            let mut mount = json!({"name": INSTALLER, "mountPath": "/agent"});
            if is_read_only {
                mount["readOnly"] = json!(true);
            }
            mount
        };
        let mut store = json!({"name": "snapshots", "mountPath": path});
        let mut installer = json!({
            "name": INSTALLER, "image": self.image, "imagePullPolicy": "IfNotPresent",
            "args": ["etcd", "install", "/agent"],
            "resources": {"requests": {"cpu": "10m", "memory": "20Mi"}},
            "securityContext": {"allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]},
                "readOnlyRootFilesystem": true},
            "volumeMounts": [program(false)],
        });
        match self.store {
            // The node creates the directory for root. Nothing else in the pod may change its owner.
            Store::Directory(_) => {
                push(&mut installer["args"], json!(format!("--give={path}")));
                push(&mut installer["volumeMounts"], store.clone());
                let context = &mut installer["securityContext"];
                context["capabilities"]["add"] = json!(["CHOWN"]);
                (context["runAsNonRoot"], context["runAsUser"]) = (json!(false), json!(0));
            }
            Store::Bucket => store["readOnly"] = json!(true),
        }
        pod["initContainers"] = json!([installer]);
        for volume in [json!({"name": INSTALLER, "emptyDir": {}}), volume] {
            push(&mut pod["volumes"], volume);
        }
        let etcd = &mut pod["containers"][0];
        let mut command: Vec<String> = [
            "/agent/gardenlet",
            "etcd",
            "start",
            "--etcd=/usr/local/bin/etcd",
            "--etcdutl=/usr/local/bin/etcdutl",
            "--etcd-config=/var/etcd/config/etcd.conf.yaml",
            "--data-dir=/var/etcd/data/new.etcd",
        ]
        .map(str::to_owned)
        .into();
        command.extend(self.arguments());
        etcd["command"] = json!(command);
        etcd["startupProbe"]["failureThreshold"] = json!(STARTS_MAX);
        etcd["livenessProbe"]["failureThreshold"] = json!(PAUSES_MAX);
        // It comes and goes without a new pod template.
        let restore = json!({"name": RESTORE, "optional": true});
        etcd["envFrom"] = json!([{"configMapRef": restore}]);
        for mount in [program(true), store] {
            push(&mut etcd["volumeMounts"], mount);
        }
    }

    pub(super) fn cron_job(&self, input: &Input<'_>) -> Value {
        let mut more = vec![format!("--keep={}", self.keep)];
        let (begin, end) = self.window;
        if !begin.is_empty() && !end.is_empty() {
            more.push(format!("--maintenance-window={begin},{end}"));
        }
        self.cron_job_with(input, more)
    }

    /// The CronJob with arguments of its own.
    pub(super) fn cron_job_with(&self, input: &Input<'_>, mut more: Vec<String>) -> Value {
        let names = [("agent", self.image), ("schedule", self.schedule)];
        let mut job = input.manifest("etcd/plain/cron-job.yaml", &names);
        job["spec"]["suspend"] = json!(self.is_suspended);
        let template = &mut job["spec"]["jobTemplate"]["spec"]["template"];
        let pod = &mut template["spec"];
        let (volume, path, _) = self.volume();
        push(&mut pod["volumes"], volume);
        let mut mount = json!({"name": "snapshots", "mountPath": path});
        match self.store {
            // The directory is on the node that has the volume of etcd.
            Store::Directory(_) => {
                let etcd = json!({"topologyKey": "kubernetes.io/hostname",
                    "labelSelector": {"matchLabels": {"app": "etcd-statefulset", "role": "main"}}});
                let required = "requiredDuringSchedulingIgnoredDuringExecution";
                pod["affinity"] = json!({"podAffinity": {required: [etcd]}});
            }
            Store::Bucket => {
                mount["readOnly"] = json!(true);
                for to in ["public", "private"] {
                    let label = format!("networking.gardener.cloud/to-{to}-networks");
                    template["metadata"]["labels"][label] = json!("allowed");
                }
            }
        }
        let container = &mut template["spec"]["containers"][0];
        push(&mut container["volumeMounts"], mount);
        more.extend(self.arguments());
        more.into_iter().for_each(|argument| push(&mut container["args"], json!(argument)));
        job
    }
}

pub(super) fn push(list: &mut Value, item: Value) {
    if let Value::Array(list) = list {
        list.push(item);
    }
}

/// Whether a live StatefulSet restores snapshots.
pub(super) fn are_on(set: &Value) -> bool {
    let mut first = set["spec"]["template"]["spec"]["initContainers"].as_array().into_iter().flatten();
    first.any(|container| container["name"] == INSTALLER)
}

/// Writes the CronJob. Its StatefulSet already exists, so everyone who finds the StatefulSet can find the
/// CronJob. Errors: a request fails.
pub fn deploy(seed: &Seed, input: &Input<'_>, snapshots: &Snapshots<'_>) -> Result<(), Error> {
    let mut desired = snapshots.cron_job(input);
    let key = Key::new(input.namespace, NAME);
    let Some(live) = seed.find::<Value>(&CRON_JOB, &key)? else {
        return seed.create::<Value>(&CRON_JOB, input.namespace, &desired).map(drop);
    };
    begin_anew(&live, &mut desired, snapshots.now);
    match patch(&live, &desired, Keep::default()) {
        None => Ok(()),
        Some(patch) => seed.patch::<Value>(&CRON_JOB, &key, &Patch::Merge(patch)).map(drop),
    }
}

/// A new or changed schedule is not late before its first run.
fn begin_anew(live: &Value, desired: &mut Value, now: Timestamp) {
    let (before, after) = (&live["spec"], &desired["spec"]);
    let wakes = before["suspend"] == true && after["suspend"] != true;
    if wakes || before["schedule"] != after["schedule"] {
        desired["metadata"]["annotations"][SINCE] = json!(rfc3339(now));
    }
}

/// Deletes the CronJob and its jobs. Errors: a request fails. A missing CronJob is no error.
pub fn delete(seed: &Seed, namespace: &str) -> Result<(), Error> {
    write::delete(seed, &CRON_JOB, &Key::new(namespace, NAME)).map(drop)
}

/// Checks the Secret of a bucket, because pods that use it could only wait for it, or fail.
pub(crate) fn check_secret(seed: &Seed, namespace: &str, name: &str) -> Result<(), Failed> {
    let secret: Option<Value> = seed.find(&core::SECRET, &Key::new(namespace, name))?;
    let why = match &secret {
        None => Some("does not exist: the extension of BackupEntries creates it, and the Seed needs spec.backup for that".to_owned()),
        Some(secret) => unfit(secret),
    };
    why.map_or(Ok(()), |why| Err(Failed::new(format!("Secret {namespace}/{name} {why}"))))
}

/// Why a Secret does not name a bucket that the agent can use: the end of a sentence.
pub(crate) fn unfit(secret: &Value) -> Option<String> {
    let is_there = |key: &str| !text(&secret["data"][key]).is_empty();
    let mut missing: Vec<&str> = vec!["accessKeyID", "secretAccessKey", "bucketName"];
    // Storage with its own endpoint usually has no regions.
    missing.extend((!is_there("endpoint")).then_some("region"));
    missing.retain(|key| !is_there(key));
    let unknown: Vec<&str> = UNKNOWN.iter().copied().filter(|key| is_there(key)).collect();
    let what = match (missing.as_slice(), unknown.as_slice()) {
        ([], []) => return None,
        ([], unknown) => format!("has {}, which is not supported", unknown.join(", ")),
        (missing, _) => format!("has no {}", missing.join(", ")),
    };
    Some(format!(
        "{what}: the agent keeps snapshots in storage that speaks S3, with a key of its own; use a provider of backups that is such, or, \
         unless the Shoot moves, edge.etcd.snapshots.store: Directory"
    ))
}
