//! Jobs in the namespaces of Shoots whose pods run the agent's program: the final snapshot of etcd-main, and the copy of
//! snapshots from one bucket to another. Their pods end with a message, as `--result=/dev/termination-log` writes it.
//!
//! - `etcd snapshot` stores what etcd-main holds at that moment, whoever still writes to it: to end the writers is the work of
//!   who makes the Job. It waits while etcd-main does not answer. It is a final one if `--final` is among its arguments, or if
//!   the Job is called so. It reads back what it has stored, and stores nothing if the newest snapshot is a final one of the
//!   same revision.
//! - `etcd copy` copies the newest snapshot from the bucket of Secret `source-etcd-backup` to that of Secret `etcd-backup`, and
//!   drops the mark. It reads back what it has stored. Without a final snapshot it waits for `--wait`, and then fails; with a
//!   broken one it fails at once. With `--accept-loss` it takes at once what there is, which may be nothing.
//!
//! What it says then is in [`said`].

use std::time::Duration;

use gardenlet::api::core::POD;
use gardenlet::api::meta::Resource;
use serde_json::{Value, json};

use super::Shared;
use super::etcd::{self, Etcds, flag};
use super::files::Files;
use super::kubelet::{answers, finder};
use super::said;
use super::scene::{Scene, is_alive, is_of, owned_by, place};
use crate::encoding::{from_rfc3339, rfc3339};
use crate::json::{list, text};

pub const JOB: Resource = Resource::new("batch", "v1", "Job", "jobs", true);
/// The name of the Job that takes the last snapshot.
pub const FINAL: &str = "etcd-main-snapshot-final";
/// The name of the Job that copies it.
pub const COPY: &str = "etcd-main-copy";
/// The Secret of the present bucket.
pub const SECRET: &str = "etcd-backup";
/// The Secret of the bucket that a Shoot comes from.
pub const SOURCE_SECRET: &str = "source-etcd-backup";
/// How long a copy waits for a final snapshot, unless an option sets it.
const PATIENCE_S: u64 = 300;

/// The state of a pod that runs to its end.
pub enum Ending {
    /// It is not at its end.
    Waits,
    /// The message of a success, or of a failure.
    Ended(Result<Value, Value>),
}

impl Ending {
    fn failed(why: String) -> Self {
        Self::Ended(Err(json!({"error": why})))
    }
}

/// Makes the pods of Jobs, and counts them. True if one of them is not at its end.
pub fn look(shared: &Shared, scene: &Scene) -> bool {
    let mut waits = false;
    for job in scene.jobs.iter().filter(|job| is_alive(job)) {
        waits |= look_at(shared, scene, job);
    }
    waits
}

fn is_over(job: &Value) -> bool {
    let ends = |condition: &Value| ["Complete", "Failed"].contains(&text(condition, "/type"));
    list(job, "/status/conditions").iter().any(ends)
}

fn look_at(shared: &Shared, scene: &Scene, job: &Value) -> bool {
    if is_over(job) {
        return false;
    }
    let (hands, (namespace, name)) = (&shared.hands, place(job));
    let pods: Vec<&Value> = scene.pods.iter().filter(|pod| is_alive(pod) && is_of(pod, job)).collect();
    let in_phase = |phase: &str| pods.iter().filter(|pod| pod["status"]["phase"] == *phase).count();
    let (succeeded, failed) = (in_phase("Succeeded"), in_phase("Failed"));
    let active = pods.len() - succeeded - failed;
    let limit = usize::try_from(job["spec"]["backoffLimit"].as_u64().unwrap_or(6)).unwrap_or(6);
    let now = hands.now();
    let since = Some(text(job, "/status/startTime")).filter(|since| !since.is_empty()).unwrap_or(&now);
    let limit_of_time = job["spec"]["activeDeadlineSeconds"].as_u64().map(Duration::from_secs);
    let is_late = limit_of_time.is_some_and(|time| {
        from_rfc3339(since).is_some_and(|since| since.plus(time) <= hands.client.clock().now())
    });
    let mut status = json!({"startTime": since, "active": active, "succeeded": succeeded, "failed": failed});
    let end = |kind: &str, reason: &str, message: &str| {
        json!([{"type": kind, "status": "True", "reason": reason, "message": message, "lastProbeTime": now,
            "lastTransitionTime": now}])
    };
    if succeeded > 0 {
        status["completionTime"] = json!(now);
        status["conditions"] =
            end("Complete", "CompletionsReached", "Reached expected number of succeeded pods");
    } else if failed > limit {
        status["conditions"] =
            end("Failed", "BackoffLimitExceeded", "Job has reached the specified backoff limit");
    } else if is_late {
        pods.iter().for_each(|pod| hands.delete(&POD, pod));
        status["conditions"] =
            end("Failed", "DeadlineExceeded", "Job was active longer than specified deadline");
    } else if active == 0 {
        hands.create(&POD, namespace, &pod(job, &format!("{name}-{failed}")));
    }
    hands.set_status(&JOB, job, status);
    true
}

fn pod(job: &Value, name: &str) -> Value {
    let template = &job["spec"]["template"];
    let mut labels = template["metadata"]["labels"].clone();
    labels["batch.kubernetes.io/job-name"] = job["metadata"]["name"].clone();
    labels["job-name"] = job["metadata"]["name"].clone();
    json!({"apiVersion": "v1", "kind": "Pod", "spec": template["spec"], "metadata": {"name": name, "labels": labels,
        "annotations": template["metadata"]["annotations"], "ownerReferences": owned_by(job, "batch/v1", "Job")}})
}

/// Whether a pod is one of a Job that this file plays.
pub fn is_played(pod: &Value) -> bool {
    let is_job = list(pod, "/metadata/ownerReferences").iter().any(|owner| owner["kind"] == "Job");
    is_job && matches!(etcd::words(&pod["spec"]).first(), Some(&"snapshot" | &"copy"))
}

/// Whether a pod has run to its end.
pub fn has_ended(pod: &Value) -> bool {
    ["Succeeded", "Failed"].contains(&text(pod, "/status/phase"))
}

/// Runs the program in a pod whose volumes can be mounted.
pub fn run(shared: &Shared, scene: &Scene, etcds: &Etcds, pod: &Value) -> Ending {
    let words = etcd::words(&pod["spec"]);
    if words.first() == Some(&"copy") {
        return copy(shared, etcds, pod, &words).unwrap_or_else(Ending::failed);
    }
    match answers(scene, pod, "etcd-main-client") {
        true => Ending::Ended(take(shared, etcds, pod, &words).map_err(|why| json!({"error": why}))),
        false => Ending::Waits,
    }
}

fn take(shared: &Shared, etcds: &Etcds, pod: &Value, words: &[&str]) -> Result<Value, String> {
    let (namespace, name) = place(pod);
    let (folder, prefix) = (needed(words, "s3")?, needed(words, "prefix")?);
    let find = finder(&shared.hands.client, namespace);
    let bucket = etcd::bucket(&Files::new(&pod["spec"], &find), folder)?;
    let is_final = words.contains(&"--final") || name.starts_with(FINAL);
    let now = shared.hands.client.clock().now();
    let snapshot = etcd::snapshot(shared, namespace, now, is_final);
    let newest = etcds.buckets.list(&bucket, prefix)?.pop();
    let is_there = newest.filter(|newest| {
        is_final && newest.is_final && !newest.is_broken && newest.revision == snapshot.revision
    });
    let stored = match is_there {
        Some(newest) => newest,
        None => {
            etcds.buckets.put(&bucket, prefix, snapshot.clone())?;
            snapshot
        }
    };
    let file = stored.file();
    read_back(etcds, &bucket, prefix, &file)?;
    Ok(
        json!({"snapshot": file, "revision": stored.revision, "databaseBytes": 4096, "databaseBytesInUse": 1024,
        "time": rfc3339(now)}),
    )
}

/// Deletes what was stored if it is not what was sent.
fn read_back(etcds: &Etcds, bucket: &str, prefix: &str, file: &str) -> Result<(), String> {
    let read = etcds.buckets.list(bucket, prefix)?.into_iter().find(|found| found.file() == file);
    if read.is_some_and(|read| !read.is_broken) {
        return Ok(());
    }
    etcds.buckets.drop_file(bucket, prefix, file);
    Err(format!("snapshot {file} {}: s3://{bucket}/{prefix}", said::SPOILED))
}

fn copy(shared: &Shared, etcds: &Etcds, pod: &Value, words: &[&str]) -> Result<Ending, String> {
    let find = finder(&shared.hands.client, place(pod).0);
    let files = Files::new(&pod["spec"], &find);
    let prefix = needed(words, "prefix")?;
    let source = etcd::bucket(&files, &mounted(&pod["spec"], SOURCE_SECRET)?)?;
    let target = etcd::bucket(&files, &mounted(&pod["spec"], SECRET)?)?;
    let from = format!("s3://{source}/{prefix}");
    let newest = etcds.buckets.list(&source, prefix).map(|mut all| all.pop());
    let why = match &newest {
        Ok(Some(newest)) if newest.is_broken => {
            format!("{from}: snapshot {} {}the checksum is wrong", newest.file(), said::BROKEN)
        }
        Ok(Some(newest)) if newest.is_final => String::new(),
        Ok(Some(newest)) => format!("{from}: the newest full snapshot {} {}", newest.file(), said::NOT_FINAL),
        Ok(None) => format!("{from}: {}", said::NO_SNAPSHOT),
        Err(why) => why.clone(),
    };
    // A broken one does not get better.
    let is_broken =
        newest.as_ref().is_ok_and(|newest| newest.as_ref().is_some_and(|newest| newest.is_broken));
    let accepts_loss = words.contains(&"--accept-loss");
    let is_hopeless = is_broken || newest.is_ok() && accepts_loss;
    if !why.is_empty() && !is_hopeless && is_patient(shared, pod, words) {
        return Ok(Ending::Waits);
    }
    let newest = newest?;
    if !why.is_empty() && !accepts_loss {
        return Ok(Ending::Ended(Err(json!({"error": why, "acceptable": true}))));
    }
    let mut told = json!({"time": rfc3339(shared.hands.client.clock().now()), "startsEmpty": false});
    if !why.is_empty() {
        told["lost"] = json!(why);
    }
    match newest.filter(|newest| !newest.is_broken) {
        Some(mut copied) => {
            copied.is_final = false;
            (told["snapshot"], told["revision"]) = (json!(copied.file()), json!(copied.revision));
            let file = copied.file();
            etcds.buckets.put(&target, prefix, copied)?;
            read_back(etcds, &target, prefix, &file)?;
        }
        None => told["startsEmpty"] = json!(etcds.buckets.list(&target, prefix)?.is_empty()),
    }
    Ok(Ending::Ended(Ok(told)))
}

/// Whether the program still waits for something better.
fn is_patient(shared: &Shared, pod: &Value, words: &[&str]) -> bool {
    let seconds = flag(words, "wait").and_then(|text| text.parse().ok()).unwrap_or(PATIENCE_S);
    let begun = from_rfc3339(text(pod, "/status/startTime"));
    begun.is_none_or(|begun| begun.plus(Duration::from_secs(seconds)) > shared.hands.client.clock().now())
}

fn needed<'a>(words: &[&'a str], name: &str) -> Result<&'a str, String> {
    flag(words, name).ok_or_else(|| format!("--{name} is missing"))
}

/// The folder in which a Secret is mounted.
fn mounted(spec: &Value, secret: &str) -> Result<String, String> {
    let volume = list(spec, "/volumes").iter().find(|volume| text(volume, "/secret/secretName") == secret);
    let volume = volume.ok_or_else(|| format!("Secret {secret} is not mounted"))?;
    let mut mounts = list(spec, "/containers/0/volumeMounts").iter();
    let mount = mounts.find(|mount| mount["name"] == volume["name"]);
    mount
        .map(|mount| text(mount, "/mountPath").to_owned())
        .ok_or_else(|| format!("Secret {secret} is not mounted"))
}
