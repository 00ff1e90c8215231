//! Pods as a kubelet handles them. Only API servers run in them.

use std::net::TcpListener;

use gardenlet::api::core::{CONFIG_MAP, POD, SECRET};
use gardenlet::api::meta::Key;
use gardenlet::kube::Client;
use serde_json::{Value, json};

use super::etcd::{self, MEMBER};
use super::files::{Files, Find};
use super::jobs::{self, Ending};
use super::scene::{Hands, Scene, condition, is_alive, is_beside, is_ready, labels, place};
use super::server::Server;
use super::settings::{Settings, probe_token};
use super::{Listen, Shared, Trouble, network};
use crate::api::subresource::LOG;
use crate::controllers::signer::{self, Approved};
use crate::encoding::{from_rfc3339, sha256_hex};
use crate::json::{entry, list, text};
use crate::pki::RsaAuthority;

/// The state of a pod.
#[derive(PartialEq, Eq, Debug)]
enum State {
    /// It is not scheduled: the reason.
    Homeless(String),
    /// It is scheduled and waits: reason and message.
    Waiting(&'static str, String),
    /// Its program has ended with this message, and starts again later: the last line of its log, and what it told.
    Ended(String, String),
    Running {
        is_ready: bool,
    },
}

/// Handles all pods. True if one of them is not ready yet.
pub fn look(shared: &Shared, scene: &Scene) -> bool {
    let hands = &shared.hands;
    let mut waits = false;
    for namespace in &scene.namespaces {
        let name = text(namespace, "/metadata/name");
        let is_here = |pod: &&Value| text(pod, "/metadata/namespace") == name;
        let server = serve(shared, scene, namespace);
        for pod in scene.pods.iter().filter(is_here) {
            if !is_alive(pod) {
                match lingers(shared, pod) {
                    true => waits = true,
                    false if is_held(pod) => hold(hands, pod, &Value::Null),
                    false => hands.bury(pod),
                }
                continue;
            }
            if labels(pod)["role"] == "apiserver" && !shared.options.lingers.is_zero() && !is_held(pod) {
                hold(hands, pod, &json!([LINGERS]));
            }
            if pod["spec"]["restartPolicy"] == "Never" {
                waits |= run_to_its_end(shared, scene, pod);
                continue;
            }
            let state = state(shared, scene, pod, &server);
            waits |= state != State::Running { is_ready: true };
            write(hands, pod, &state);
        }
    }
    waits
}

/// The API server of this process knows no graceful deletion: a finalizer stands for it.
const LINGERS: &str = "test.gardener.cloud/lingers";

fn is_held(pod: &Value) -> bool {
    list(pod, "/metadata/finalizers").iter().any(|finalizer| finalizer == LINGERS)
}

fn hold(hands: &Hands, pod: &Value, finalizers: &Value) {
    hands.merge(&POD, pod, json!({"metadata": {"finalizers": finalizers}}));
}

/// Whether a pod in deletion still works.
fn lingers(shared: &Shared, pod: &Value) -> bool {
    let time = shared.options.lingers;
    let is_server = labels(pod)["role"] == "apiserver";
    let told = from_rfc3339(text(pod, "/metadata/deletionTimestamp"));
    is_server && told.is_some_and(|told| told.plus(time) > shared.hands.client.clock().now())
}

/// Plays the program of a Job, once its pod can start. Stories set the end of other programs themselves. True if it waits.
fn run_to_its_end(shared: &Shared, scene: &Scene, pod: &Value) -> bool {
    let Some(etcds) = shared.options.etcds.as_ref().filter(|_| jobs::is_played(pod) && !jobs::has_ended(pod))
    else {
        return false;
    };
    if let Some(state) = obstacle(shared, scene, pod) {
        write(&shared.hands, pod, &state);
        return true;
    }
    let (code, message) = match jobs::run(shared, scene, etcds, pod) {
        Ending::Waits => {
            write(&shared.hands, pod, &State::Running { is_ready: true });
            return true;
        }
        Ending::Ended(Ok(message)) => (0, message.to_string()),
        Ending::Ended(Err(message)) => (1, message.to_string()),
    };
    let container = &pod["spec"]["containers"][0];
    let (phase, reason) = if code == 0 { ("Succeeded", "Completed") } else { ("Failed", "Error") };
    let now = shared.hands.now();
    let ended =
        json!({"exitCode": code, "reason": reason, "message": message, "startedAt": now, "finishedAt": now});
    let told = json!([{"name": container["name"], "image": container["image"], "imageID": "", "restartCount": 0,
        "ready": false, "started": false, "state": {"terminated": ended}}]);
    shared.hands.set_status(&POD, pod, json!({"phase": phase, "startTime": now, "containerStatuses": told}));
    true
}

/// The API server of a Shoot.
enum Serving {
    Nobody,
    In(std::sync::Arc<Server>),
    /// The pod that ends with this error.
    Dead(String, String),
}

/// Finds the pod in which the API server of a namespace shall run, and lets it run there.
fn serve(shared: &Shared, scene: &Scene, namespace: &Value) -> Serving {
    let name = text(namespace, "/metadata/name");
    let deployment = Scene::find(&scene.deployments, name, "kube-apiserver");
    let chosen = deployment.and_then(|deployment| chosen(shared, scene, deployment));
    let running = shared.servers().get(name).cloned();
    let Some(pod) = chosen else {
        if let Some(server) = running {
            if is_ending(shared, scene, &server) {
                return Serving::In(server);
            }
            server.stop();
            server.set_controllers(None);
        }
        return Serving::Nobody;
    };
    let uid = text(pod, "/metadata/uid");
    if running.as_ref().and_then(|server| server.pod()).as_deref() != Some(uid) {
        let settings = match Settings::read(&pod["spec"], &finder(&shared.hands.client, name)) {
            Ok(settings) => settings,
            Err(why) => {
                shared.hands.complain(format!("kube-apiserver of {name}: {why}"));
                return Serving::Dead(uid.to_owned(), why);
            }
        };
        let has_port = running.is_some() || is_port_free(shared, scene, name);
        if !has_port || !settings.etcd.iter().all(|host| answers(scene, pod, host)) {
            return Serving::Nobody;
        }
        shared.server(namespace, scene).run(uid, settings);
    }
    let Some(server) = shared.servers().get(name).cloned() else { return Serving::Nobody };
    server.set_healthy(server.etcd().iter().all(|host| answers(scene, pod, host)));
    let find = finder(&shared.hands.client, name);
    let controllers = Controllers::of(scene, name, &find);
    server.set_controllers(controllers.as_ref().and_then(|running| running.file("root-ca")).as_deref());
    if let Some(running) = controllers {
        signer::sync(server.cluster.api(), &|approved| running.sign(approved));
    }
    Serving::In(server)
}

/// Whether the last pod of a server still works: in its deletion, or before somebody deletes it. Who looks at data that move must see
/// that it does not end with its Deployment.
fn is_ending(shared: &Shared, scene: &Scene, server: &Server) -> bool {
    let pod = server.pod();
    let mut pods = scene.pods.iter().filter(|found| pod.as_deref() == found["metadata"]["uid"].as_str());
    pods.any(|found| match is_alive(found) {
        true => shared.options.etcds.is_some(),
        false => lingers(shared, found),
    })
}

/// Whether a server that has not listened yet can listen at its address.
fn is_port_free(shared: &Shared, scene: &Scene, namespace: &str) -> bool {
    if shared.listens(namespace) == Listen::Anywhere {
        return true;
    }
    let Some(address) = network::node_port(scene, namespace) else { return false };
    let free = TcpListener::bind(address);
    if let Err(why) = &free {
        shared.hands.complain(format!("kube-apiserver of {namespace} cannot listen at {address}: {why}"));
    }
    free.is_ok()
}

/// The pod of an API server that counts: of the present template if there is one, and preferably the one in which it runs.
fn chosen<'a>(shared: &Shared, scene: &'a Scene, deployment: &Value) -> Option<&'a Value> {
    if !is_alive(deployment) || deployment["spec"]["replicas"] == 0 {
        return None;
    }
    let selector = &deployment["spec"]["selector"];
    let is_candidate = |pod: &&Value| {
        is_beside(pod, deployment)
            && is_alive(pod)
            && crate::api::selector::matches_spec(selector, labels(pod))
            && obstacle(shared, scene, pod).is_none()
    };
    let template = &deployment["spec"]["template"]["spec"];
    let running = shared.servers().get(text(deployment, "/metadata/namespace")).and_then(|s| s.pod());
    let rank = |pod: &&Value| {
        let is_present = ["/volumes", "/containers/0/args", "/containers/0/command", "/containers/0/image"]
            .iter()
            .all(|field| pod["spec"].pointer(field) == template.pointer(field));
        (is_present, running.as_deref() == pod["metadata"]["uid"].as_str())
    };
    scene.pods.iter().filter(is_candidate).max_by_key(rank)
}

/// Whether the Service that `host` names, in the namespace of the pod, has a ready endpoint.
pub fn answers(scene: &Scene, pod: &Value, host: &str) -> bool {
    let name = host.split('.').next().unwrap_or_default();
    let service = Scene::find(&scene.services, text(pod, "/metadata/namespace"), name);
    service.is_some_and(|service| scene.behind(service).any(is_ready))
}

/// The kube-controller-manager of a Shoot.
struct Controllers<'a> {
    pod: &'a Value,
    find: Find<'a>,
}

impl<'a> Controllers<'a> {
    /// If it runs.
    fn of(scene: &'a Scene, namespace: &str, find: Find<'a>) -> Option<Self> {
        let is_it = |pod: &&Value| {
            text(pod, "/metadata/namespace") == namespace
                && labels(pod)["role"] == "controller-manager"
                && is_ready(pod)
        };
        scene.pods.iter().find(is_it).map(|pod| Self { pod, find })
    }

    /// The file that argument `--<name>-file` names.
    fn file(&self, name: &str) -> Option<String> {
        let (container, flag) = (&self.pod["spec"]["containers"][0], format!("--{name}-file="));
        let mut arguments = ["/command", "/args"].into_iter().flat_map(|field| list(container, field));
        let path = arguments.find_map(|argument| argument.as_str()?.strip_prefix(&flag))?;
        Files::new(&self.pod["spec"], self.find).read(path).ok()
    }

    /// Signs a request with the files for its signer.
    fn sign(&self, approved: &Approved<'_>) -> Option<Result<String, String>> {
        let signer = approved.signer.strip_prefix("kubernetes.io/")?;
        let signer = match signer {
            // The flag has a shorter name.
            "kube-apiserver-client-kubelet" => "kubelet-client",
            other => other,
        };
        let file = |part: &str| self.file(&format!("cluster-signing-{signer}-{part}"));
        let authority = RsaAuthority::read(&file("cert")?, &file("key")?);
        let is_server = signer == "kubelet-serving";
        Some(authority.and_then(|ca| ca.sign(approved.pem, approved.from, approved.until, is_server)))
    }
}

/// Reads Secrets and ConfigMaps of a namespace.
pub fn finder<'a>(client: &'a Client, namespace: &'a str) -> impl Fn(&str, &str) -> Option<Value> + 'a {
    move |resource, name| {
        let resource = if resource == "secrets" { &SECRET } else { &CONFIG_MAP };
        client.find(resource, &Key::new(namespace, name)).ok().flatten()
    }
}

/// What keeps a pod from running. The volumes of a running pod are not checked again.
fn obstacle(shared: &Shared, scene: &Scene, pod: &Value) -> Option<State> {
    let (namespace, name) = place(pod);
    let image = text(pod, "/spec/containers/0/image");
    match shared.trouble_of(namespace, name) {
        Some(Trouble::NoRoom) => {
            let why = "0/1 nodes are available: 1 Insufficient memory. preemption: 0/1 nodes are available: \
                1 No preemption victims found for incoming pod.";
            return Some(State::Homeless(why.to_owned()));
        }
        Some(Trouble::NoImage) => {
            return Some(State::Waiting("ImagePullBackOff", format!("Back-off pulling image {image:?}")));
        }
        Some(Trouble::Dies) => {
            let why = format!("back-off 5m0s restarting failed container of pod {name}_{namespace}");
            return Some(State::Waiting("CrashLoopBackOff", why));
        }
        Some(Trouble::NeverReady | Trouble::Unbound | Trouble::NoAddress) | None => {}
    }
    if pod["status"]["phase"] == "Running" {
        return None;
    }
    let unbound = list(pod, "/spec/volumes").iter().any(|volume| {
        let claim = text(volume, "/persistentVolumeClaim/claimName");
        let found = Scene::find(&scene.claims, namespace, claim);
        !claim.is_empty() && found.is_none_or(|claim| claim["status"]["phase"] != "Bound")
    });
    if unbound {
        let why = "0/1 nodes are available: pod has unbound immediate PersistentVolumeClaims.";
        return Some(State::Homeless(why.to_owned()));
    }
    let find = finder(&shared.hands.client, namespace);
    let mounted = Files::new(&pod["spec"], &find).mounted();
    mounted.err().map(|why| State::Waiting("ContainerCreating", why))
}

fn state(shared: &Shared, scene: &Scene, pod: &Value, server: &Serving) -> State {
    if let Some(state) = obstacle(shared, scene, pod) {
        return state;
    }
    let (namespace, name) = place(pod);
    if shared.trouble_of(namespace, name) == Some(Trouble::NeverReady) {
        return State::Running { is_ready: false };
    }
    let etcds = shared.options.etcds.as_ref().filter(|_| name == MEMBER);
    if let Some(Err(refusal)) = etcds.map(|etcds| etcd::start(shared, scene, etcds, pod)) {
        return State::Ended(refusal.why, refusal.told);
    }
    if labels(pod)["app"] != "kubernetes" || labels(pod)["role"] != "apiserver" {
        return State::Running { is_ready: true };
    }
    match server {
        Serving::Dead(uid, why) if pod["metadata"]["uid"] == **uid => {
            State::Waiting("CrashLoopBackOff", why.clone())
        }
        Serving::In(server) => {
            let probe = &pod["spec"]["containers"][0]["readinessProbe"];
            let path = Some(text(probe, "/httpGet/path")).filter(|path| !path.is_empty());
            State::Running { is_ready: server.probe(path.unwrap_or("/readyz"), probe_token(probe)) }
        }
        _ => State::Running { is_ready: false },
    }
}

/// An address in the range that the Seeds of the tests declare.
fn address(pod: &Value) -> String {
    let digest = sha256_hex(text(pod, "/metadata/uid").as_bytes());
    let byte = |at: usize| u8::from_str_radix(&digest[at..at + 2], 16).unwrap_or_default();
    format!("10.51.{}.{}", byte(0), byte(2).clamp(1, 254))
}

/// The last lines of the container's log.
fn say(hands: &Hands, pod: &Value, text: &str) {
    if entry(pod, "/metadata/annotations", LOG) != Some(text) {
        hands.merge(&POD, pod, json!({"metadata": {"annotations": {LOG: text}}}));
    }
}

fn write(hands: &Hands, pod: &Value, state: &State) {
    let now = hands.now();
    let mark = |kind: &str, is_true: bool, reason: Option<&str>, message: Option<&str>| {
        let status = if is_true { "True" } else { "False" };
        let since = condition(pod, kind).filter(|before| before["status"] == status);
        let since = since.map_or_else(|| json!(now), |before| before["lastTransitionTime"].clone());
        let mut condition = json!({"type": kind, "status": status, "lastTransitionTime": since});
        for (key, value) in [("reason", reason), ("message", message)] {
            if let Some(value) = value {
                condition[key] = value.into();
            }
        }
        condition
    };
    let container = &pod["spec"]["containers"][0];
    let told = |is_ready: bool, state: Value| {
        json!([{"name": container["name"], "image": container["image"], "imageID": "", "restartCount": 0,
            "ready": is_ready, "started": state.get("running").is_some(), "state": state}])
    };
    let why_not = Some("ContainersNotReady");
    // `last` is what the container told when it ended.
    let waiting = |reason: &str, why: &str, last: &str| {
        let event = match reason {
            "ContainerCreating" => "FailedMount",
            "CrashLoopBackOff" => "BackOff",
            _ => "Failed",
        };
        hands.warn("Pod", pod, (event, why));
        let mut told = told(false, json!({"waiting": {"reason": reason, "message": why}}));
        let has_run = reason == "CrashLoopBackOff";
        if has_run {
            let ended = json!({"exitCode": 1, "reason": "Error", "message": last});
            told[0]["lastState"] = json!({"terminated": ended});
            told[0]["restartCount"] = 1.into();
            say(hands, pod, why);
        }
        let phase = if has_run { "Running" } else { "Pending" };
        json!({"phase": phase, "conditions": [mark("PodScheduled", true, None, None),
                mark("Ready", false, why_not, None), mark("ContainersReady", false, why_not, None)],
            "containerStatuses": told})
    };
    let status = match state {
        State::Homeless(why) => {
            hands.warn("Pod", pod, ("FailedScheduling", why));
            json!({"phase": "Pending", "conditions": [mark("PodScheduled", false, Some("Unschedulable"), Some(why))]})
        }
        State::Waiting(reason, why) => waiting(reason, why, ""),
        State::Ended(why, told) => waiting("CrashLoopBackOff", why, told),
        State::Running { is_ready } => {
            let why_not = why_not.filter(|_| !is_ready);
            let address = address(pod);
            let since = pod["status"].get("startTime").cloned().unwrap_or_else(|| json!(now));
            let running = json!({"running": {"startedAt": since}});
            json!({"phase": "Running", "podIP": address, "podIPs": [{"ip": address}], "startTime": since,
                "conditions": [mark("PodScheduled", true, None, None), mark("Initialized", true, None, None),
                    mark("Ready", *is_ready, why_not, None), mark("ContainersReady", *is_ready, why_not, None)],
                "containerStatuses": told(*is_ready, running)})
        }
    };
    hands.set_status(&POD, pod, status);
}
