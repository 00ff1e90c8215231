//! Shoots that cannot be created. `explain` names upstream's task and the remedy. The Shoot is created once the
//! remedy is applied.

use gardenlet::api::core::{NODE, PERSISTENT_VOLUME_CLAIM, POD, SERVICE};
use gardenlet::api::gardener::SHOOT;
use gardenlet::api::meta::{ALL_NAMESPACES, Key, Resource, text};
use gardenlet::format::quantity::Quantity;
use gardenlet::kube::{Client, ListParams};
use serde_json::{Value, json};

use super::{Name, PROJECT, ask_for_another, shoot, succeeded};
use crate::agent::Agent;
use crate::failure::{Failure, Result, ensure};
use crate::image;
use crate::lab::Lab;
use crate::node::NODE as NODE_NAME;
use crate::site::Site;
use crate::storage;
use crate::stories::steps::while_running;
use crate::wait;
use support::garden::prepare::PROVIDER;

/// The longest time until `explain` reports a cause, and how long the act waits for it.
const EXPLAINED_IN_S: f64 = 30.0;
const EXPLAINED_WITHIN_S: u64 = 120;
/// The time that the seed may take to show it.
const SHOWN_WITHIN_S: u64 = 180;
/// The flow tries the first two tasks for a minute before they fail.
const FAILED_WITHIN_S: u64 = 240;
/// The other tasks wait at most ten minutes.
const ENDED_WITHIN_S: u64 = 660;
/// The pod that reserves all processor time.
const FILLER: &str = "filler";

/// The problem of a Shoot.
struct Cause {
    shoot: Name,
    /// The id of its error.
    task: &'static str,
    /// Parts of the message: the cause and the remedy.
    words: [&'static str; 2],
}

const AUDIT: Cause = Cause {
    shoot: Name("s4"),
    task: "Create botanist",
    words: [
        "ConfigMap garden-p/absent of the garden does not exist: create it",
        "or change spec.kubernetes.kubeAPIServer.auditConfig.auditPolicy.configMapRef.name of the Shoot",
    ],
};
const ADMISSION: Cause = Cause {
    shoot: Name("s5"),
    task: "Create botanist",
    words: [
        "the configuration of admission plugin PodSecurity in the Shoot is no PodSecurityConfiguration",
        "correct its apiVersion and kind",
    ],
};
/// The Shoot that has all other problems, one after the other.
const UNLUCKY: Name = Name("s6");
const EXTENSION: Cause = Cause {
    shoot: UNLUCKY,
    task: "Check required extensions",
    words: [
        "no ControllerInstallation of this seed supports ControlPlane/local",
        "register an extension for it in the garden",
    ],
};
const ADDRESS: Cause = Cause {
    shoot: UNLUCKY,
    task: "Waiting until Kubernetes API server service in the Seed cluster has reported readiness",
    words: [
        "Service shoot--p--s6/kube-apiserver-exposure has no address yet",
        "install a load balancer controller in the seed, and look at the Events of the Service",
    ],
};
const CLAIM: Cause = Cause {
    shoot: UNLUCKY,
    task: "Waiting until main and event ETCDs have been reconciled",
    words: [
        "PersistentVolumeClaim main-etcd-etcd-main-0 is Pending",
        "it names no StorageClass: mark one of the seed as default, or name one in edge.etcd",
    ],
};
const ROOM: Cause = Cause {
    words: [
        "no node has room for pod etcd-main-0 (0/1 nodes are available: 1 Insufficient cpu.",
        "free processor time and memory there, or add a node",
    ],
    ..CLAIM
};
const IMAGE: Cause = Cause {
    shoot: UNLUCKY,
    task: "Waiting until Kubernetes API server rolled out",
    words: [
        "cannot get image registry.k8s.io/kube-apiserver:",
        "import the image on the node or let the node reach its registry",
    ],
};

/// Three Shoots are created: one without its audit policy, one with a wrong admission configuration, and one with all
/// problems that a seed can have. That one is created in the end. With `--long` each of its waits ends with an error
/// first.
pub(super) fn is_explained(lab: &Lab, garden: &Client, agent: &mut Agent, site: &Site) -> Result<()> {
    let place = Place { lab, garden, site };
    place.break_everything()?;
    agent.reconfigure(|config| config["edge"]["exposure"] = json!({"type": "LoadBalancer"}))?;
    let causes = [AUDIT, ADMISSION, EXTENSION];
    for cause in &causes {
        lab.garden.apply(&broken(cause.shoot))?;
    }
    for cause in &causes {
        place.is_told(agent, cause)?;
    }
    for cause in &causes {
        place.has_failed(agent, cause, FAILED_WITHIN_S)?;
    }
    place.serve(&["ControlPlane", "DNSRecord", "Infrastructure", "Worker"])?;
    ask_for_another(garden, UNLUCKY)?;
    let began = wait::now();
    place.happens(agent, &ADDRESS, (&SERVICE, "kube-apiserver-exposure", "LoadBalancer"))?;
    site.balance(true);
    place.happens(agent, &CLAIM, (&PERSISTENT_VOLUME_CLAIM, "main-etcd-etcd-main-0", "Pending"))?;
    place.make_default_class(true)?;
    place.happens(agent, &ROOM, (&POD, "etcd-main-0", "Insufficient cpu"))?;
    lab.seed.kubectl(&["delete", "pod", FILLER, "--namespace=default", "--grace-period=1"])?;
    place.happens(agent, &IMAGE, (&POD, "kube-apiserver-", "ImagePull"))?;
    site.node.import_component(lab, &image::API_SERVER)?;
    succeeded(lab, garden, agent, (UNLUCKY, "Create"))?;
    println!("       {:6.1} s  a Shoot was created despite four problems", wait::seconds_since(began));
    Ok(())
}

/// A Shoot with a problem in its own spec.
fn broken(name: Name) -> Value {
    let mut shoot = shoot(name, image::API_SERVER.version());
    let server = &mut shoot["spec"]["kubernetes"]["kubeAPIServer"];
    if name.0 == AUDIT.shoot.0 {
        server["auditConfig"] = json!({"auditPolicy": {"configMapRef": {"name": "absent"}}});
    }
    if name.0 == ADMISSION.shoot.0 {
        let config = json!({"apiVersion": "pod-security.admission.config.k8s.io/v1", "kind": "Nonsense"});
        server["admissionPlugins"] = json!([{"name": "PodSecurity", "config": config}]);
    }
    shoot
}

/// The participants of the story.
struct Place<'a> {
    lab: &'a Lab,
    garden: &'a Client,
    site: &'a Site,
}

impl Place<'_> {
    /// Removes what a Shoot needs: the installation for its control plane, addresses, volumes, processor time, an
    /// image.
    fn break_everything(&self) -> Result<()> {
        self.serve(&["DNSRecord", "Infrastructure", "Worker"])?;
        self.site.balance(false);
        self.make_default_class(false)?;
        self.fill()?;
        self.site.node.remove_component(&image::API_SERVER)
    }

    /// Lets the extension of the seed's provider serve these kinds.
    fn serve(&self, kinds: &[&str]) -> Result<()> {
        let resources: Vec<Value> = kinds.iter().map(|kind| json!({"kind": kind, "type": "local"})).collect();
        let patch = json!({"spec": {"resources": resources}}).to_string();
        let arguments = ["patch", "controllerregistration", PROVIDER, "--type=merge", "--patch", &patch];
        self.lab.garden.kubectl(&arguments).map(drop)
    }

    fn make_default_class(&self, is_default: bool) -> Result<()> {
        let mut class = storage::class();
        class["metadata"]["annotations"]["storageclass.kubernetes.io/is-default-class"] =
            json!(is_default.to_string());
        self.lab.seed.apply(&class)
    }

    /// Lets one pod reserve all remaining processor time. No other pod has a higher priority.
    fn fill(&self) -> Result<()> {
        let seed = self.lab.seed.client()?;
        let node: Value = seed.get(&NODE, &Key::cluster(NODE_NAME))?;
        let pods = seed.list::<Value>(&POD, ALL_NAMESPACES, &ListParams::default())?.items;
        let containers =
            pods.iter().flat_map(|pod| pod["spec"]["containers"].as_array().into_iter().flatten());
        let requests = containers.map(|container| millicores(&container["resources"]["requests"]["cpu"]));
        let left = millicores(&node["status"]["allocatable"]["cpu"]) - requests.sum::<i128>();
        self.lab.seed.apply(&json!({
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": FILLER, "namespace": "default"},
            "spec": {
                "priorityClassName": "system-node-critical",
                "automountServiceAccountToken": false,
                "containers": [{"name": "filler", "image": image::PAUSE, "imagePullPolicy": "Never",
                    "resources": {"requests": {"cpu": format!("{left}m")}}}],
            },
        }))?;
        wait::until("the pod that takes all processor time", 60, || {
            let pod: Value = seed.get(&POD, &Key::new("default", FILLER))?;
            let is_running = pod["status"]["phase"] == "Running";
            if is_running { Ok(Some(())) } else { Err(Failure::new(pod["status"].to_string())) }
        })
    }

    /// Waits until an object of the control plane shows the cause with a word, and then until `explain` reports the
    /// cause. Other objects may show it earlier.
    fn happens(
        &self,
        agent: &mut Agent,
        cause: &Cause,
        (resource, prefix, word): (&Resource, &str, &str),
    ) -> Result<()> {
        let seed = self.lab.seed.client()?;
        while_running(&format!("{} {prefix} with {word:?}", resource.kind), SHOWN_WITHIN_S, agent, || {
            let mut found = seed.list::<Value>(resource, &cause.shoot.plane(), &ListParams::default())?.items;
            found.retain(|object| text(&object["metadata"]["name"]).starts_with(prefix));
            let is_shown = found.iter().any(|object| object.to_string().contains(word));
            if is_shown { Ok(Some(())) } else { Err(Failure::new(format!("{found:?}"))) }
        })?;
        self.is_told(agent, cause)?;
        if self.lab.environment.long {
            self.has_failed(agent, cause, ENDED_WITHIN_S)?;
        }
        Ok(())
    }

    /// `explain` names task, cause and remedy.
    fn is_told(&self, agent: &mut Agent, cause: &Cause) -> Result<()> {
        let began = wait::now();
        let name = format!("{PROJECT}/{}", cause.shoot.0);
        wait::until(&format!("{:?} of {name}", cause.words[0]), EXPLAINED_WITHIN_S, || {
            agent.ensure_running()?;
            let told = agent.command(&["explain", "shoot", &name, "--output=json"])?;
            let all: Value = serde_json::from_str(&told)?;
            let mut tasks = all["tasks"].as_array().into_iter().flatten();
            let task = tasks.find(|task| task["task"] == cause.task).cloned().unwrap_or_default();
            let notes = task["notes"].to_string();
            let is_told = cause.words.iter().all(|words| notes.contains(words));
            if is_told { Ok(Some(())) } else { Err(Failure::new(format!("{task}"))) }
        })?;
        let took = wait::seconds_since(began);
        println!("       {took:6.1} s  explained: {}", cause.words[0]);
        wait::measured("seconds until a cause is explained", took, EXPLAINED_IN_S)
    }

    /// The one error of the Shoot has the same words, and no code.
    fn has_failed(&self, agent: &mut Agent, cause: &Cause, within_s: u64) -> Result<()> {
        let name = cause.shoot.0;
        let errors = while_running(&format!("the error of {name}"), within_s, agent, || {
            let shoot: Value = self.garden.get(&SHOOT, &Key::new(PROJECT, name))?;
            let errors = shoot["status"]["lastErrors"].as_array().cloned().unwrap_or_default();
            let is_it = |error: &Value| {
                let description = error["description"].as_str().unwrap_or_default();
                error["taskID"] == cause.task && cause.words.iter().all(|words| description.contains(words))
            };
            if errors.iter().any(is_it) { Ok(Some(errors)) } else { Err(Failure::new(format!("{errors:?}"))) }
        })?;
        ensure(errors.len() == 1 && errors[0]["codes"].is_null(), || format!("errors of {name}: {errors:?}"))
    }
}

fn millicores(quantity: &Value) -> i128 {
    Quantity::parse(quantity.as_str().unwrap_or("0")).map_or(0, |quantity| quantity.milli())
}
