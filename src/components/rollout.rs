//! Waits until a Deployment or a StatefulSet of a control plane has rolled out, and explains a delay from its
//! conditions, its pods, their events and the last lines of their logs.

use std::time::Duration;

use serde_json::Value;

use crate::api::core::{EVENT, POD};
use crate::api::meta::{Key, Resource, text};
use crate::flow::{Attempt, Failed, TaskStep};
use crate::format::human;
use crate::kube::{List, ListParams, Seed};
use crate::limits;

/// How often it is checked.
const AGAIN: Duration = Duration::from_secs(2);
/// After this time, the text about a pod that runs but is not ready includes its last log lines.
const SILENT: Duration = Duration::from_secs(45);

/// The known facts about a workload that is not ready.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Trouble {
    /// The problem and the remedy.
    pub(crate) text: String,
    /// The container whose last log lines help.
    pub(crate) log: Option<Container>,
}

/// A container with a log.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Container {
    pub(crate) pod: String,
    pub(crate) name: String,
    /// Use the log of the previous run, because the present one has not started.
    pub(crate) previous: bool,
    /// It ended without a request.
    pub(crate) crashed: bool,
}

/// Checks a Deployment or a StatefulSet once. Errors: a request fails; or the workload is missing.
pub fn wait(seed: &Seed, resource: &Resource, key: &Key, attempt: &Attempt) -> Result<TaskStep, Failed> {
    wait_for(seed, key, &find(seed, resource, key)?, attempt)
}

/// Reads a Deployment or a StatefulSet. Errors: a request fails; or the workload is missing.
pub(crate) fn find(seed: &Seed, resource: &Resource, key: &Key) -> Result<Value, Failed> {
    let found = seed.find(resource, key)?;
    found.ok_or_else(|| Failed::new(format!("{} {key} does not exist: it was deleted", resource.kind)))
}

/// Like [`wait`], for a workload that was just read.
pub(crate) fn wait_for(
    seed: &Seed,
    key: &Key,
    workload: &Value,
    attempt: &Attempt,
) -> Result<TaskStep, Failed> {
    if let Err(why) = rolled_out(workload) {
        return Ok(TaskStep::again(AGAIN, explain(seed, key, workload, &why, attempt)?));
    }
    if workload["spec"]["replicas"] == 0 || workload["kind"] != "Deployment" {
        return Ok(TaskStep::Done);
    }
    // A pod of the previous version may work until it has ended: such a kube-apiserver still encrypts with the old key.
    let pods = pods(seed, key, workload)?;
    let (running, wanted) = (pods.iter().filter(|pod| may_run(pod)).count(), replicas(workload));
    if usize::try_from(wanted).is_ok_and(|wanted| wanted == running) {
        return Ok(TaskStep::Done);
    }
    let going = pods.iter().filter(|pod| may_run(pod) && !is_to_stay(pod)).count();
    let kind = text(&workload["kind"]);
    let pods = human::counted(running, "pod");
    let why = format!("{kind} {key} has {pods} ({going} ending), and needs {wanted}");
    Ok(TaskStep::again(AGAIN, why))
}

fn explain(seed: &Seed, key: &Key, workload: &Value, why: &str, attempt: &Attempt) -> Result<Failed, Failed> {
    let account = Account::of(seed, key, workload)?;
    let is_slow = attempt.now.saturating_sub(attempt.begun) >= SILENT;
    let lines = account.log.as_ref().filter(|container| container.crashed || is_slow);
    let lines = lines.map(|container| log(seed, &key.namespace, container)).unwrap_or_default();
    let mut sentence = account.sentence(text(&workload["kind"]), key, why);
    if !lines.is_empty() {
        sentence = format!("{sentence}; its last lines: {lines}");
    }
    Ok(Failed::new(sentence))
}

/// Everything that is known about a workload that has not rolled out.
#[derive(Clone, PartialEq, Debug, Default)]
pub(crate) struct Account {
    /// The problem of its newest pod and the remedy, if known.
    pub(crate) trouble: Option<String>,
    pub(crate) pod: Option<Value>,
    /// Events (`events.k8s.io`) about that pod, or about the workload if there is no pod.
    pub(crate) events: Vec<Value>,
    /// The container whose last log lines help.
    log: Option<Container>,
}

impl Account {
    fn of(seed: &Seed, key: &Key, workload: &Value) -> Result<Self, Failed> {
        let pods = pods(seed, key, workload)?;
        let newest = newest(&pods);
        let about = &newest.unwrap_or(workload)["metadata"];
        let name = newest.map_or(key.name.as_str(), |_| text(&about["name"]));
        let params = ListParams {
            field_selector: regarding(name, text(&about["uid"])),
            limit: limits::ROLLOUT_OBJECTS_MAX,
            ..ListParams::default()
        };
        // Without permission to read events, or without any, the answer contains what is known otherwise.
        let events =
            seed.list::<Value>(&EVENT, &key.namespace, &params).map(|list| list.items).unwrap_or_default();
        let found = trouble(workload, newest, &events);
        let (trouble, log) = found.map_or((None, None), |trouble| (Some(trouble.text), trouble.log));
        Ok(Self { trouble, pod: newest.cloned(), events, log })
    }

    fn sentence(&self, kind: &str, key: &Key, why: &str) -> String {
        let trouble = self.trouble.as_ref().map(|trouble| format!("; {trouble}")).unwrap_or_default();
        format!("{kind} {key}: {why}{trouble}")
    }

    /// The last log lines of the failing container, joined into one line. Empty if there is none, or if
    /// they cannot be read.
    pub(crate) fn last_lines(&self, seed: &Seed, namespace: &str) -> String {
        self.log.as_ref().map(|container| log(seed, namespace, container)).unwrap_or_default()
    }
}

/// Selects the Events about an object, but not about an earlier one with its name.
pub(crate) fn regarding(name: &str, uid: &str) -> String {
    match uid {
        "" => format!("regarding.name={name}"),
        uid => format!("regarding.name={name},regarding.uid={uid}"),
    }
}

/// Why a workload has not rolled out, as a sentence with further findings; `None` if it has.
pub(crate) fn look(seed: &Seed, resource: &Resource, key: &Key) -> Result<Option<(String, Account)>, Failed> {
    let Some(mut workload) = seed.find::<Value>(resource, key)? else {
        return Ok(Some((format!("{} {key} does not exist", resource.kind), Account::default())));
    };
    workload["kind"] = Value::from(&*resource.kind);
    let Err(why) = rolled_out(&workload) else { return Ok(None) };
    let account = Account::of(seed, key, &workload)?;
    Ok(Some((account.sentence(&resource.kind, key, &why), account)))
}

/// Whether the pods of a workload match its template and are ready. Errors: what is missing.
pub(crate) fn rolled_out(workload: &Value) -> Result<(), String> {
    if !is_seen(workload) {
        return Err("its controller has not seen it yet".to_owned());
    }
    let (status, wanted) = (&workload["status"], replicas(workload));
    let (updated, ready) = (number(&status["updatedReplicas"]), number(&status["readyReplicas"]));
    if workload["kind"] == "StatefulSet" {
        let is_updated =
            text(&status["updateRevision"]) == text(&status["currentRevision"]) || updated >= wanted;
        return match ready >= wanted && is_updated {
            true => Ok(()),
            false => Err(format!("{} ready", human::of_pods(ready, wanted))),
        };
    }
    if let Some(failure) = condition(workload, "ReplicaFailure").filter(is_true) {
        return Err(refused(text(&failure["message"])));
    }
    let is_new = condition(workload, "Progressing").is_none_or(|progressing| {
        progressing["status"] == "True" && progressing["reason"] == "NewReplicaSetAvailable"
    });
    if is_new && is_available(workload) && updated >= wanted {
        return Ok(());
    }
    let available = number(&status["availableReplicas"]);
    let updated = human::of_pods(updated, wanted);
    Err(format!("{updated} of the present version, {ready} ready, {available} available"))
}

/// Whether all pods of a Deployment are ready, and it has not been available before. Its `minReadySeconds` protect a rollout,
/// in which the previous pods serve until the new ones have proved themselves. Here are no previous pods.
pub(crate) fn is_first_start(deployment: &Value) -> bool {
    let (status, wanted) = (&deployment["status"], replicas(deployment));
    let counts = ["replicas", "updatedReplicas", "readyReplicas"];
    let are_all = counts.iter().all(|field| number(&status[field]) == wanted);
    is_seen(deployment) && wanted > 0 && are_all && !is_available(deployment)
}

fn number(value: &Value) -> i64 {
    value.as_i64().unwrap_or_default()
}

/// Whether its controller has seen its present generation.
fn is_seen(workload: &Value) -> bool {
    number(&workload["status"]["observedGeneration"]) >= number(&workload["metadata"]["generation"])
}

fn condition<'a>(workload: &'a Value, kind: &str) -> Option<&'a Value> {
    let conditions = workload["status"]["conditions"].as_array();
    conditions.into_iter().flatten().find(|condition| condition["type"] == kind)
}

fn is_true(condition: &&Value) -> bool {
    condition["status"] == "True"
}

fn is_available(deployment: &Value) -> bool {
    condition(deployment, "Available").is_some_and(|available| is_true(&available))
}

/// Whether condition `Ready` of a node or a pod is True.
pub(crate) fn has_condition_ready(node: &Value) -> bool {
    condition(node, "Ready").is_some_and(|ready| is_true(&ready))
}

fn replicas(workload: &Value) -> i64 {
    workload["spec"]["replicas"].as_i64().unwrap_or(1)
}

/// Adds advice for pods that cannot be created.
fn refused(message: &str) -> String {
    let advice = if message.contains("no PriorityClass") {
        "; the agent creates this class with ManagedResource garden/system: check whether that is applied"
    } else {
        ""
    };
    format!("its pods are refused: {message}{advice}")
}

/// Why the newest pod is not ready, if known.
pub(crate) fn trouble(workload: &Value, pod: Option<&Value>, events: &[Value]) -> Option<Trouble> {
    let only = |text: String| Some(Trouble { text, log: None });
    let warning = events.iter().filter(|event| event["type"] == "Warning").max_by_key(|event| time(event));
    let note = |reasons: &[&str]| {
        let event = warning.filter(|event| reasons.contains(&text(&event["reason"])))?;
        Some(text(&event["note"]).to_owned())
    };
    let Some(pod) = pod else {
        // A Deployment reports it in a condition.
        let is_set = workload["kind"] == "StatefulSet";
        return is_set.then(|| note(&["FailedCreate"]))?.and_then(|message| only(refused(&message)));
    };
    let name = text(&pod["metadata"]["name"]);
    let conditions = pod["status"]["conditions"].as_array().into_iter().flatten();
    let scheduled = conditions.into_iter().find(|condition| condition["type"] == "PodScheduled");
    if let Some(scheduled) = scheduled.filter(|condition| condition["status"] == "False") {
        return only(unschedulable(name, text(&scheduled["message"])));
    }
    let specs = ["initContainerStatuses", "containerStatuses"];
    let lists = specs.iter().flat_map(|list| pod["status"][*list].as_array().into_iter().flatten());
    for container in lists.filter(|container| container["ready"] != true) {
        if let Some(trouble) = container_trouble(name, container) {
            return Some(trouble);
        }
    }
    if let Some(message) =
        note(&["FailedMount", "FailedAttachVolume", "FailedCreatePodSandBox", "FailedScheduling"])
    {
        return only(format!("pod {name} does not start: {message}"));
    }
    None
}

fn time(event: &Value) -> &str {
    let fields =
        [&event["series"]["lastObservedTime"], &event["eventTime"], &event["deprecatedLastTimestamp"]];
    fields.into_iter().map(text).max().unwrap_or_default()
}

fn unschedulable(pod: &str, message: &str) -> String {
    if message.contains("PersistentVolumeClaim") {
        return format!(
            "pod {pod} waits for its volume ({message}): check its PersistentVolumeClaim, and give the cluster a default \
             StorageClass or a PersistentVolume that fits"
        );
    }
    format!("no node has room for pod {pod} ({message}): free processor time and memory there, or add a node")
}

fn container_trouble(pod: &str, container: &Value) -> Option<Trouble> {
    let name = text(&container["name"]);
    let state = &container["state"];
    let waiting = &state["waiting"];
    let (reason, message) = (text(&waiting["reason"]), text(&waiting["message"]));
    if matches!(reason, "ErrImagePull" | "ImagePullBackOff" | "InvalidImageName" | "ErrImageNeverPull") {
        let image = text(&container["image"]);
        let text = format!(
            "container {name} of pod {pod} cannot get image {image} ({reason}: {message}): import the image on the node or \
             let the node reach its registry, or name another one with IMAGEVECTOR_OVERWRITE"
        );
        return Some(Trouble { text, log: None });
    }
    if matches!(reason, "CreateContainerConfigError" | "CreateContainerError" | "RunContainerError") {
        let text = format!("container {name} of pod {pod} cannot be started ({reason}: {message})");
        return Some(Trouble { text, log: None });
    }
    let log =
        |previous, crashed| Some(Container { pod: pod.to_owned(), name: name.to_owned(), previous, crashed });
    let ended = [&state["terminated"], &container["lastState"]["terminated"]];
    if let Some(ended) = ended.into_iter().find(|ended| ended.is_object()) {
        let code = &ended["exitCode"];
        let count = container["restartCount"].as_u64().and_then(|count| usize::try_from(count).ok());
        let restarts = human::counted(count.unwrap_or_default(), "restart");
        let text = format!(
            "container {name} of pod {pod} ended with exit code {code} ({}), after {restarts}: if its last lines name a \
             setting of the Shoot, correct it there",
            text(&ended["reason"])
        );
        return Some(Trouble { text, log: log(state["terminated"].is_null(), true) });
    }
    let text = format!("container {name} of pod {pod} runs but is not ready yet");
    state["running"].is_object().then(|| Trouble { text, log: log(false, false) })
}

/// The pods of a workload that have not ended.
pub(super) fn pods(seed: &Seed, key: &Key, workload: &Value) -> Result<Vec<Value>, Failed> {
    let labels = workload["spec"]["selector"]["matchLabels"].as_object().into_iter().flatten();
    let all: Vec<String> = labels.map(|(key, value)| format!("{key}={}", text(value))).collect();
    let params = ListParams {
        label_selector: all.join(","),
        // Otherwise ended pods could fill the page and hide the running one.
        field_selector: "status.phase!=Failed,status.phase!=Succeeded".to_owned(),
        limit: limits::ROLLOUT_OBJECTS_MAX,
        ..ListParams::default()
    };
    let list: List<Value> = seed.list(&POD, &key.namespace, &params)?;
    Ok(list.items)
}

/// The newest pod that is not being deleted.
fn newest(pods: &[Value]) -> Option<&Value> {
    let alive = pods.iter().filter(|pod| is_to_stay(pod));
    alive.max_by_key(|pod| text(&pod["metadata"]["creationTimestamp"]))
}

fn is_to_stay(pod: &Value) -> bool {
    pod["metadata"]["deletionTimestamp"].is_null()
}

/// Whether containers of a pod that has not ended may still run: not if its node evicted it or is lost.
///
/// Source: `DeploymentHasExactNumberOfPods` in Gardener's `pkg/utils/kubernetes/health`.
fn may_run(pod: &Value) -> bool {
    let reason = text(&pod["status"]["reason"]);
    let is_stale = reason.starts_with("OutOf")
        || ["Evicted", "NodeAffinity", "NodeLost", "Preempting"].iter().any(|word| reason.contains(word));
    let mut conditions = pod["status"]["conditions"].as_array().into_iter().flatten();
    let is_over = conditions.any(|condition| match text(&condition["type"]) {
        "DisruptionTarget" => condition["status"] == "True",
        "Ready" => condition["status"] == "False" && condition["reason"] == "PodCompleted",
        _ => false,
    });
    !is_stale && !is_over
}

/// The last lines of a container's log, joined into one line. Empty if they cannot be read.
fn log(seed: &Seed, namespace: &str, container: &Container) -> String {
    let path = POD.subresource_path(&Key::new(namespace, &container.pod), "log");
    let (name, lines, previous) = (&container.name, limits::ROLLOUT_LOG_LINES, container.previous);
    let query = format!("{path}?container={name}&tailLines={lines}&previous={previous}&limitBytes=65536");
    match seed.get_raw(&query) {
        Ok(answer) if answer.is_success() => last(&String::from_utf8_lossy(&answer.body)),
        _ => String::new(),
    }
}

/// The end of a text, limited in length, in one line.
fn last(text: &str) -> String {
    let line =
        text.lines().map(str::trim_end).filter(|line| !line.is_empty()).collect::<Vec<_>>().join(" | ");
    let mut from = line.len().saturating_sub(limits::ROLLOUT_LOG_BYTES_MAX);
    while !line.is_char_boundary(from) {
        from += 1;
    }
    line[from..].to_owned()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::base::clock::Mono;
    use crate::kube::{Client, Connection, Options};
    use crate::net::testing::{Act, TestServer};

    fn deployment(status: &Value) -> Value {
        json!({"kind": "Deployment", "metadata": {"generation": 2}, "spec": {"replicas": 1}, "status": status})
    }

    fn status(progress: &str, available: &str) -> Value {
        json!({"observedGeneration": 2, "updatedReplicas": 1, "conditions": [
            {"type": "Progressing", "status": "True", "reason": progress}, {"type": "Available", "status": available}]})
    }

    #[test]
    fn a_workload_is_rolled_out_or_says_why_not() {
        let failure = json!({"observedGeneration": 2, "conditions": [{"type": "ReplicaFailure", "status": "True",
            "message": "no PriorityClass with name gardener-system-500 was found"}]});
        let set = |status: Value| json!({"kind": "StatefulSet", "metadata": {"generation": 1}, "spec": {"replicas": 1}, "status": status});
        let table = [
            (deployment(&status("NewReplicaSetAvailable", "True")), ""),
            (
                deployment(&status("ReplicaSetUpdated", "True")),
                "1 of 1 pod is of the present version, 0 ready",
            ),
            (deployment(&status("NewReplicaSetAvailable", "False")), "0 ready, 0 available"),
            (deployment(&json!({"observedGeneration": 1})), "has not seen it"),
            (deployment(&failure), "ManagedResource garden/system"),
            (set(json!({"observedGeneration": 1, "readyReplicas": 1})), ""),
            (set(json!({"observedGeneration": 1})), "0 of 1 pod is ready"),
            (
                set(
                    json!({"observedGeneration": 1, "readyReplicas": 1, "updateRevision": "b", "currentRevision": "a"}),
                ),
                "1 of 1 pod is ready",
            ),
        ];
        for (workload, words) in table {
            let why = rolled_out(&workload).err().unwrap_or_default();
            assert!(why.contains(words) && why.is_empty() == words.is_empty(), "{why}");
        }
    }

    #[test]
    fn the_first_start_of_a_server_replaces_nothing() {
        let counted = |replicas: i64, updated: i64, ready: i64, available: &str| {
            deployment(
                &json!({"observedGeneration": 2, "replicas": replicas, "updatedReplicas": updated, "readyReplicas": ready,
                "conditions": [{"type": "Available", "status": available}]}),
            )
        };
        let table = [
            (counted(1, 1, 1, "False"), true),
            (counted(1, 1, 0, "False"), false),
            (counted(1, 1, 1, "True"), false),
            // The previous pod ends, or serves.
            (counted(2, 1, 1, "False"), false),
            (counted(2, 1, 2, "True"), false),
            (counted(1, 0, 1, "False"), false),
            (
                deployment(
                    &json!({"observedGeneration": 2, "replicas": 1, "updatedReplicas": 1, "readyReplicas": 1}),
                ),
                true,
            ),
            (
                deployment(
                    &json!({"observedGeneration": 1, "replicas": 1, "updatedReplicas": 1, "readyReplicas": 1}),
                ),
                false,
            ),
            (deployment(&json!({})), false),
        ];
        for (deployment, expected) in table {
            assert_eq!(is_first_start(&deployment), expected, "{deployment}");
        }
        let mut asleep = counted(0, 0, 0, "False");
        asleep["spec"]["replicas"] = json!(0);
        assert!(!is_first_start(&asleep));
    }

    fn pod(status: &Value) -> Value {
        json!({"metadata": {"name": "p"}, "status": status})
    }

    fn container(state: &Value) -> Value {
        pod(
            &json!({"containerStatuses": [{"name": "c", "image": "i:1", "ready": false, "restartCount": 3, "state": state,
            "lastState": {"terminated": null}}]}),
        )
    }

    #[test]
    fn the_pod_shows_the_remedy() {
        let unscheduled = |message: &str| {
            pod(&json!({"conditions": [{"type": "PodScheduled", "status": "False", "message": message}]}))
        };
        let table = [
            (unscheduled("0/1 nodes are available: 1 Insufficient memory."), "no node has room", None),
            (unscheduled("pod has unbound immediate PersistentVolumeClaims"), "waits for its volume", None),
            (
                container(&json!({"waiting": {"reason": "ImagePullBackOff", "message": "no"}})),
                "cannot get image i:1 (ImagePullBackOff: no)",
                None,
            ),
            (
                container(&json!({"terminated": {"exitCode": 1, "reason": "Error"}})),
                "exit code 1 (Error), after 3",
                Some(false),
            ),
            (container(&json!({"running": {}})), "is not ready yet", Some(false)),
        ];
        for (pod, words, previous) in table {
            let trouble = trouble(&deployment(&json!({})), Some(&pod), &[]).unwrap();
            assert!(trouble.text.contains(words), "{}", trouble.text);
            assert_eq!(trouble.log.map(|log| log.previous), previous, "{words}");
        }
        let mut looping = container(&json!({"waiting": {"reason": "CrashLoopBackOff"}}));
        looping["status"]["containerStatuses"][0]["lastState"] = json!({"terminated": {"exitCode": 2}});
        let log = trouble(&deployment(&json!({})), Some(&looping), &[]).unwrap().log.unwrap();
        assert!(log.previous && log.crashed);
    }

    #[test]
    fn events_show_other_reasons() {
        let event = |reason: &str, note: &str, at: &str| json!({"type": "Warning", "reason": reason, "note": note, "eventTime": at});
        let creating = container(&json!({"waiting": {"reason": "ContainerCreating"}}));
        let events = [event("FailedMount", "old", "1"), event("FailedMount", "secret \"s\" not found", "2")];
        let found = trouble(&deployment(&json!({})), Some(&creating), &events).unwrap();
        assert_eq!(found.text, "pod p does not start: secret \"s\" not found");
        assert_eq!(trouble(&deployment(&json!({})), Some(&creating), &[]), None);
        let set = json!({"kind": "StatefulSet"});
        let refused = [event("FailedCreate", "no PriorityClass with name x was found", "1")];
        assert!(trouble(&set, None, &refused).unwrap().text.contains("garden/system"));
        assert_eq!(trouble(&set, None, &[]), None);
    }

    #[test]
    fn ended_pods_are_not_listed() {
        let server = TestServer::plain(|seen| {
            assert!(
                seen.path.contains("fieldSelector=status.phase%21%3DFailed%2Cstatus.phase%21%3DSucceeded")
            );
            Act::json(200, r#"{"metadata":{},"items":[{"metadata":{"name":"p"}}]}"#)
        });
        let seed = Seed(Client::new(Connection::new(server.url()), Options::default()).unwrap());
        assert_eq!(pods(&seed, &Key::new("n", "a"), &json!({})).unwrap().len(), 1);
    }

    #[test]
    fn a_pod_that_ends_may_still_run() {
        let pod = |metadata: Value, status: Value| json!({"metadata": metadata, "status": status});
        let going = || json!({"deletionTimestamp": "2026-01-05T08:00:00Z"});
        let with = |condition: Value| json!({"conditions": [condition]});
        let table = [
            (pod(json!({}), json!({"phase": "Running"})), true),
            (pod(going(), json!({"phase": "Running"})), true),
            (pod(json!({}), json!({"phase": "Pending"})), true),
            (pod(going(), json!({"reason": "NodeLost"})), false),
            (pod(json!({}), json!({"reason": "OutOfcpu"})), false),
            (pod(json!({}), with(json!({"type": "DisruptionTarget", "status": "True"}))), false),
            (
                pod(json!({}), with(json!({"type": "Ready", "status": "False", "reason": "PodCompleted"}))),
                false,
            ),
            (pod(json!({}), with(json!({"type": "Ready", "status": "False", "reason": "x"}))), true),
        ];
        for (pod, expected) in table {
            assert_eq!(may_run(&pod), expected, "{pod}");
        }
    }

    /// A kube-apiserver of the previous version encrypts with the old key.
    #[test]
    fn a_deployment_waits_for_the_end_of_old_pods() {
        let answer = |pods: &'static str| {
            let server = TestServer::plain(move |_| Act::json(200, pods));
            let seed = Seed(Client::new(Connection::new(server.url()), Options::default()).unwrap());
            let done = json!({"observedGeneration": 1, "updatedReplicas": 1, "readyReplicas": 1, "availableReplicas": 1,
                "conditions": [{"type": "Available", "status": "True"}]});
            let live = json!({"kind": "Deployment", "metadata": {"generation": 1}, "spec": {"replicas": 1}, "status": done});
            wait_for(
                &seed,
                &Key::new("n", "a"),
                &live,
                &Attempt { begun: Mono::default(), now: Mono::default(), tries: 0 },
            )
            .unwrap()
        };
        let one = r#"{"metadata":{},"items":[{"metadata":{"name":"new"}}]}"#;
        assert_eq!(answer(one), TaskStep::Done);
        let two = r#"{"metadata":{},"items":[{"metadata":{"name":"new"}},
            {"metadata":{"name":"old","deletionTimestamp":"2026-01-05T08:00:00Z"},"status":{"phase":"Running"}}]}"#;
        let TaskStep::Again { why, .. } = answer(two) else { panic!("it did not wait") };
        assert!(why.text.contains("2 pods (1 ending)"), "{}", why.text);
    }

    #[test]
    fn last_lines_are_short() {
        assert_eq!(last("a\n\nb  \n"), "a | b");
        assert!(last(&"é".repeat(5_000)).len() <= limits::ROLLOUT_LOG_BYTES_MAX);
    }
}
