//! What an etcd without a druid needs when its Shoot moves to another seed: on the old seed a last snapshot, on the new one a copy of it. Both
//! are Jobs with the agent's own program, so they go on while the agent is away.
//!
//! A Job belongs to one operation, which its annotation names: a repeated task finds the Job of its own operation, and replaces one
//! that failed or that another operation has left.

use serde_json::Value;

use super::super::Input;
use super::ended::EndedPod;
use super::snapshots::{self, RESTORE, SOURCE_SECRET, Snapshots, Store};
use crate::api::core::{CONFIG_MAP, CRON_JOB, JOB, POD};
use crate::api::meta::{Key, Metadata, Resource, annotation, text};
use crate::base::json::json;
use crate::components::apply::apply;
use crate::components::archive;
use crate::components::rollout::trouble;
use crate::flow::{Failed, TaskStep};
use crate::kube::{DeleteParams, Error, List, ListParams, Propagation, Seed};
use crate::limits;
use crate::runtime::write;

/// The annotation of a Shoot whose owner accepts that data are lost. Its value is `true`, or [`SINCE_SNAPSHOT`]. It is removed once the
/// Shoot is restored, because it does not hold for the next move.
pub(crate) const ACCEPT_LOSS: &str = "edge.gardenlet/accept-data-loss";
/// What no snapshot has may be lost, but there must be one.
pub(crate) const SINCE_SNAPSHOT: &str = "since-last-snapshot";
/// The variable that keeps an etcd without data from starting empty, while it is `true`.
pub(crate) const NEVER_EMPTY: &str = "GARDENLET_ETCD_NEVER_EMPTY";
/// The variable with the revision that the restored data must reach.
pub(crate) const AT_LEAST: &str = "GARDENLET_ETCD_AT_LEAST";
/// The variable with the file in which a start that fails says why.
pub(crate) const RESULT: &str = "GARDENLET_ETCD_RESULT";
/// The Job that takes the last snapshot.
pub(crate) const FINAL_JOB: &str = "etcd-main-snapshot-final";
/// The Job that copies the snapshots of the old seed.
pub(crate) const COPY_JOB: &str = "etcd-main-copy";

/// The annotation of a Job with the operation to which it belongs.
const OPERATION: &str = "moving.gardenlet.gardener.cloud/operation";
/// How often a Job is checked.
const AGAIN: std::time::Duration = std::time::Duration::from_secs(2);

/// What becomes of a Job.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum JobStep {
    Create,
    Keep,
    /// It is deleted, and created once it is gone.
    Replace,
    /// It is being deleted.
    Wait,
}

/// The state of a Job.
#[derive(Clone, PartialEq, Eq, Debug)]
enum JobState {
    Running,
    Succeeded,
    /// With the reason of its controller.
    Failed(String),
}

fn state(job: &Value) -> JobState {
    let find = |kind: &str| {
        let mut all = job["status"]["conditions"].as_array().into_iter().flatten();
        all.find(|condition| condition["type"] == kind && condition["status"] == "True")
    };
    match (find("Complete"), find("Failed")) {
        (Some(_), _) => JobState::Succeeded,
        (None, Some(failed)) => {
            JobState::Failed(format!("{}: {}", text(&failed["reason"]), text(&failed["message"])))
        }
        (None, None) => JobState::Running,
    }
}

fn judge(live: Option<&Value>, desired: &Value) -> JobStep {
    let Some(live) = live else { return JobStep::Create };
    if !live["metadata"]["deletionTimestamp"].is_null() {
        return JobStep::Wait;
    }
    let container = |job: &Value| job["spec"]["template"]["spec"]["containers"][0]["args"].clone();
    let is_ours = annotation(live, OPERATION) == annotation(desired, OPERATION);
    match state(live) {
        JobState::Succeeded if is_ours => JobStep::Keep,
        // Somebody may have accepted a loss meanwhile.
        JobState::Running if is_ours && container(live) == container(desired) => JobStep::Keep,
        _ => JobStep::Replace,
    }
}

/// Without its pods, a Job of `batch/v1` would leave them behind.
fn delete_job(seed: &Seed, key: &Key, uid: &str) -> Result<(), Error> {
    let uid = (!uid.is_empty()).then(|| uid.to_owned());
    let params = DeleteParams { propagation: Some(Propagation::Background), uid, ..DeleteParams::default() };
    match seed.delete(&JOB, key, &params) {
        Err(error) if !error.is_not_found() && !error.is_conflict() => Err(error),
        _ => Ok(()),
    }
}

/// Brings a Job about. Done once the Job of this operation runs or has succeeded.
fn deploy(seed: &Seed, namespace: &str, mut job: Value, operation: &str) -> Result<TaskStep, Failed> {
    job["metadata"]["namespace"] = json!(namespace);
    job["metadata"]["annotations"][OPERATION] = json!(operation);
    let key = Key::new(namespace, text(&job["metadata"]["name"]));
    let live: Option<Value> = seed.find(&JOB, &key)?;
    let again = |why: &str| Ok(TaskStep::again(AGAIN, format!("Job {key} {why}")));
    match judge(live.as_ref(), &job) {
        JobStep::Keep => Ok(TaskStep::Done),
        JobStep::Wait => again("is being deleted"),
        JobStep::Replace => {
            let uid = live.as_ref().map_or("", |live| text(&live["metadata"]["uid"]));
            delete_job(seed, &key, uid)?;
            again("is replaced")
        }
        JobStep::Create => match seed.create::<Value>(&JOB, namespace, &job) {
            Err(error) if error.is_already_exists() => again("was created just now"),
            other => Ok(other.map(|_| TaskStep::Done)?),
        },
    }
}

/// The Job that takes the last snapshot. It always uses the bucket, because the other seed cannot read a directory.
pub(super) fn final_job(input: &Input<'_>, snapshots: &Snapshots<'_>) -> Value {
    let in_bucket = Snapshots { store: Store::Bucket, ..*snapshots };
    let mut cron = in_bucket.cron_job_with(input, vec!["--final".to_owned()]);
    let mut spec = cron["spec"]["jobTemplate"]["spec"].take();
    let metadata = &mut spec["template"]["metadata"];
    metadata["labels"]["app"] = json!(FINAL_JOB);
    metadata["annotations"]["cluster-autoscaler.kubernetes.io/safe-to-evict"] = json!("false");
    let labels = json!({"app": FINAL_JOB, "gardener.cloud/role": "controlplane"});
    let metadata = json!({"name": FINAL_JOB, "namespace": input.namespace, "labels": labels});
    json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": spec})
}

/// The Job that copies the snapshots of the Shoot from the bucket of the old seed.
pub(super) fn copy_job(namespace: &str, snapshots: &Snapshots<'_>, accepts_loss: bool) -> Value {
    let mut job = archive::object("etcd/plain/copy-job.yaml");
    job["metadata"]["namespace"] = json!(namespace);
    let container = &mut job["spec"]["template"]["spec"]["containers"][0];
    container["image"] = json!(snapshots.image);
    let in_bucket = Snapshots { store: Store::Bucket, ..*snapshots };
    let mut more = vec!["--from-s3=/var/etcd/source-backup".to_owned()];
    more.extend(in_bucket.arguments());
    more.extend(accepts_loss.then(|| "--accept-loss".to_owned()));
    more.into_iter().for_each(|argument| snapshots::push(&mut container["args"], json!(argument)));
    job
}

/// Takes the last snapshot of etcd-main. Call it once nobody writes to etcd any more, and after [`suspend`]. `operation` names the
/// operation, and no other one of this Shoot. Done once the Job exists; [`wait`] follows.
pub(crate) fn take_final(
    seed: &Seed,
    input: &Input<'_>,
    snapshots: &Snapshots<'_>,
    operation: &str,
) -> Result<TaskStep, Failed> {
    deploy(seed, input.namespace, final_job(input, snapshots), operation)
}

/// Copies the snapshots from the bucket of the old seed. Call it while there is no etcd-main: an etcd that has its data needs no copy. Done once the
/// Job exists; [`wait`] follows.
pub(crate) fn copy(
    seed: &Seed,
    namespace: &str,
    snapshots: &Snapshots<'_>,
    accepts_loss: bool,
    operation: &str,
) -> Result<TaskStep, Failed> {
    snapshots::check_secret(seed, namespace, SOURCE_SECRET)?;
    deploy(seed, namespace, copy_job(namespace, snapshots, accepts_loss), operation)
}

/// The pods of a Job, but not those of an earlier one with its name.
fn pods_of(seed: &Seed, job: &Value) -> Result<Vec<Value>, Error> {
    let metadata = &job["metadata"];
    let params = ListParams {
        label_selector: format!("app={}", text(&metadata["name"])),
        limit: limits::ROLLOUT_OBJECTS_MAX,
        ..ListParams::default()
    };
    let mut list: List<Value> = seed.list(&POD, text(&metadata["namespace"]), &params)?;
    let is_own = |pod: &Value| {
        let mut owners = pod["metadata"]["ownerReferences"].as_array().into_iter().flatten();
        owners.any(|owner| owner["uid"] == metadata["uid"])
    };
    list.items.retain(is_own);
    Ok(list.items)
}

/// Checks a Job once. Errors: it failed, with what its last pod told; or it is missing.
pub(crate) fn wait(seed: &Seed, namespace: &str, job: &str) -> Result<TaskStep, Failed> {
    let key = Key::new(namespace, job);
    let Some(live) = seed.find::<Value>(&JOB, &key)? else {
        return Err(Failed::new(format!("Job {key} does not exist: it was deleted")));
    };
    let state = state(&live);
    if state == JobState::Succeeded {
        return Ok(TaskStep::Done);
    }
    explain(&key, &state, &pods_of(seed, &live)?)
}

/// What is known about a Job that has not succeeded.
fn explain(key: &Key, state: &JobState, pods: &[Value]) -> Result<TaskStep, Failed> {
    let ended = pods.iter().filter_map(EndedPod::read).max_by_key(EndedPod::rank);
    let failure = ended.as_ref().and_then(|ended| {
        let (why, code) = (ended.failure.as_ref()?, ended.exit_code);
        let is_told = why.ends_with(&format!("(exit code {code})"));
        Some(if is_told { why.clone() } else { format!("{why} (exit code {code})") })
    });
    if let JobState::Failed(reason) = state {
        let advice = match &ended {
            Some(ended) if ended.told["acceptable"] == true => {
                format!("; annotate the Shoot with {ACCEPT_LOSS}=true to accept what is lost")
            }
            _ => String::new(),
        };
        let why = failure.as_ref().unwrap_or(reason);
        return Err(Failed::new(format!("Job {key} failed: {why}{advice}")));
    }
    let alive = pods.iter().find(|pod| EndedPod::read(pod).is_none());
    let why = match (alive, failure) {
        (Some(pod), _) => {
            let found = trouble(&Value::Null, Some(pod), &[]).map(|trouble| trouble.text);
            found.unwrap_or_else(|| format!("pod {} runs", text(&pod["metadata"]["name"])))
        }
        (None, Some(failure)) => format!("a pod failed, and the next one follows: {failure}"),
        (None, None) => "it has no pod yet".to_owned(),
    };
    Ok(TaskStep::again(AGAIN, format!("Job {key} has not ended: {why}")))
}

/// What the last pod of a Job told, for messages: of [`COPY_JOB`], `lost` says what is lost. `None` if it is not known.
pub(crate) fn told(seed: &Seed, namespace: &str, job: &str) -> Result<Option<Value>, Error> {
    let Some(live) = seed.find::<Value>(&JOB, &Key::new(namespace, job))? else { return Ok(None) };
    let ended = pods_of(seed, &live)?.iter().filter_map(EndedPod::read).max_by_key(EndedPod::rank);
    Ok(ended.map(|ended| ended.told).filter(|told| !told.is_null()))
}

/// Deletes both Jobs with their pods. A missing one is no error.
pub(crate) fn delete(seed: &Seed, namespace: &str) -> Result<(), Error> {
    [FINAL_JOB, COPY_JOB].iter().try_for_each(|job| delete_job(seed, &Key::new(namespace, *job), ""))
}

/// With which data an etcd may start that has none in its volume.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum FirstData {
    /// Whatever its store has, or nothing: the owner accepts a loss.
    Any,
    /// The newest data of its store.
    Stored {
        /// The revision that the last copy to the store has reached. `None`: what an earlier copy has reached, if there was one.
        copied: Option<u64>,
    },
}

/// Lets the pod of etcd-main know that its Shoot is restored, and with which data its etcd may start. Call it before the StatefulSet is written.
pub(crate) fn begin_restore(seed: &Seed, namespace: &str, first: FirstData) -> Result<(), Error> {
    let labels = json!({"gardener.cloud/role": "controlplane"});
    let metadata = json!({"name": RESTORE, "namespace": namespace, "labels": labels});
    let mut data = json!({NEVER_EMPTY: "true", RESULT: "/dev/termination-log"});
    match first {
        FirstData::Any => data[NEVER_EMPTY] = json!("false"),
        FirstData::Stored { copied: Some(revision) } => data[AT_LEAST] = json!(revision.to_string()),
        FirstData::Stored { copied: None } => {
            let earlier = seed.find::<Value>(&CONFIG_MAP, &Key::new(namespace, RESTORE))?;
            let revision = earlier.map(|map| map["data"][AT_LEAST].clone());
            if let Some(revision) = revision.filter(Value::is_string) {
                data[AT_LEAST] = revision;
            }
        }
    }
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data});
    apply(seed, &CONFIG_MAP, &map).map(drop)
}

/// Whether the data of etcd-main are still to be restored.
pub(crate) fn is_restoring(seed: &Seed, namespace: &str) -> Result<bool, Error> {
    Ok(seed.find::<Metadata>(&CONFIG_MAP, &Key::new(namespace, RESTORE))?.is_some())
}

/// Call it after etcd has its data.
pub(crate) fn end_restore(seed: &Seed, namespace: &str) -> Result<(), Error> {
    write::delete(seed, &CONFIG_MAP, &Key::new(namespace, RESTORE)).map(drop)
}

/// Ends the snapshots on a schedule: deletes the CronJob, and checks once whether its Jobs and pods are gone. A pod that still runs could write a
/// snapshot behind the last one.
pub(crate) fn suspend(seed: &Seed, namespace: &str) -> Result<TaskStep, Failed> {
    snapshots::delete(seed, namespace)?;
    let list = |resource: &Resource, fields: &str| {
        let params = ListParams {
            label_selector: snapshots::SELECTOR.to_owned(),
            field_selector: fields.to_owned(),
            limit: limits::ROLLOUT_OBJECTS_MAX,
            ..ListParams::default()
        };
        seed.list::<Value>(resource, namespace, &params).map(|list| list.items)
    };
    let jobs = list(&JOB, "")?;
    for job in jobs.iter().filter(|job| job["metadata"]["deletionTimestamp"].is_null()) {
        let metadata = &job["metadata"];
        delete_job(seed, &Key::new(namespace, text(&metadata["name"])), text(&metadata["uid"]))?;
    }
    let pods = list(&POD, "status.phase!=Failed,status.phase!=Succeeded")?;
    let left = jobs.first().map(|job| (JOB, job)).or_else(|| pods.first().map(|pod| (POD, pod)));
    Ok(left.map_or(TaskStep::Done, |(resource, object)| {
        let name = text(&object["metadata"]["name"]);
        let why = format!(
            "{} {namespace}/{name} of {} {} has not ended yet",
            resource.kind,
            CRON_JOB.kind,
            snapshots::NAME
        );
        TaskStep::again(AGAIN, why)
    }))
}

#[cfg(test)]
mod tests;
