//! A real extension: a chart like those of Gardener's own extensions, whose program runs in the node of the seed.

use std::process::Command;

use gardenlet::api::core::{MUTATING_WEBHOOK_CONFIGURATION, POD};
use gardenlet::api::extensions::DNS_RECORD;
use gardenlet::api::gardener::CONTROLLER_INSTALLATION;
use gardenlet::api::meta::{ALL_NAMESPACES, Key, Resource};
use gardenlet::base::clock::Clock;
use gardenlet::kube::{Client, ListParams};
use serde_json::{Value, json};

use crate::agent::Agent;
use crate::audit::{Audit, Request};
use crate::chart;
use crate::cluster;
use crate::failure::{Failure, Result, equal};
use crate::image;
use crate::lab::Lab;
use crate::node::Node;
use crate::process;
use crate::stories::pod::processes;
use crate::stories::steps::{
    components_are, condition, installations, is_installed, is_ready, is_well, while_running,
};
use crate::wait;
use crate::world::{self, World};
use support::garden::prepare::{self, PROVIDER};
use support::pki::Authority;

/// Its objects in the seed.
const NAME: &str = "gardener-extension-dns-lab";
/// Its registration, and the type of the objects for which it is responsible.
const REGISTRATION: &str = "dns-lab";
const TYPE: &str = "lab";
const VERTICAL_POD_AUTOSCALER: Resource =
    Resource::new("autoscaling.k8s.io", "v1", "VerticalPodAutoscaler", "verticalpodautoscalers", true);

/// The time until a Seed reports that a component is unhealthy, and that it is healthy again.
const SICK_IN_S: f64 = 60.0;
const WELL_IN_S: f64 = 30.0;
/// How long the story waits for each of them.
const TOLD_WITHIN_S: u64 = 120;

/// The garden accepts no Seed before somebody has registered for its provider. Then the Seed waits for the extensions of
/// its provider and of its DNS, and names them. The packaged provider of sites
/// without a cloud provides the first. The other one has everything that charts of extensions have: its pod gets the
/// priority of the chart's class, uses the API server with the token of the applier, and serves a webhook. Then the
/// Seed is ready. While the extension hangs, its ControllerInstallation and the Seed report it; then both are healthy
/// again.
pub(crate) fn lives(lab: &mut Lab) -> Result<()> {
    let _world = World::without_provider(lab)?;
    let garden = lab.garden.client()?;
    let mut options = world::agent(lab, "agent")?;
    options.config["seedConfig"]["spec"]["dns"]["provider"]["type"] = json!(TYPE);
    let mut agent = Agent::start(lab, options)?;
    // The Seed waits at the same time.
    let node = Node::start(lab)?;
    node.import(&image::of_extension(&lab.environment, &lab.place)?)?;
    agent.wait_log("given Seed uses non-registered provider type", 60)?;
    let promised = [
        prepare::promise("promised", &["ControlPlane"], "local"),
        prepare::promise("promised-dns", &["DNSRecord"], TYPE),
    ];
    lab.garden.apply(&world::list(&promised))?;
    // It waits for a minute. Its last operation has the same message, but not for long: the next attempt starts soon.
    let lacking = "ControlPlane/local, DNSRecord/lab, Infrastructure/local, Worker/local";
    agent.wait_log(&format!("no ControllerInstallation of this seed supports {lacking}"), 120)?;
    install_provider(lab, &garden, &mut agent)?;

    let mut audit = lab.seed.audit();
    lab.garden.apply(&registration()?)?;
    let name = while_running("the extension to be healthy", 120, &mut agent, || is_installed(&garden))?;
    let namespace = format!("extension-{name}");
    has_priority_and_scaler(&lab.seed.client()?, &namespace)?;
    renews_its_heartbeat(&mut audit, &namespace)?;
    serves_its_webhook(&lab.seed.client()?)?;
    while_running("the Seed to be ready", 180, &mut agent, || is_ready(&garden))?;
    while_running("its components to be healthy", 60, &mut agent, || components_are(&garden, "True"))?;

    hangs(&garden, &mut agent, &name)?;
    while_running("the Seed to be ready again", 90, &mut agent, || is_ready(&garden))?;
    agent.ensure_running()
}

/// The steps that the documentation gives to the operator of a site without a cloud.
fn install_provider(lab: &Lab, garden: &Client, agent: &mut Agent) -> Result<()> {
    let render = concat!(env!("CARGO_MANIFEST_DIR"), "/packaging/no-provider/render");
    let file = lab.place.join("provider.yaml");
    cluster::write(&file, &process::run(Command::new("python3").args([render, "local"]))?)?;
    lab.garden.kubectl(&["apply", "--filename", &file.display().to_string()])?;
    while_running("the provider to be healthy", 60, agent, || {
        let all =
            garden.list::<Value>(&CONTROLLER_INSTALLATION, ALL_NAMESPACES, &ListParams::default())?.items;
        let is_done = |i: &Value| i["spec"]["registrationRef"]["name"] == PROVIDER && is_well(i);
        Ok(all.iter().any(is_done).then_some(()))
    })
}

/// The extension is installed if an object of its type is wanted, like those of Gardener.
fn registration() -> Result<Value> {
    registration_of("OnDemand", "", &json!([{"kind": "DNSRecord", "type": TYPE}]))
}

/// The same for other kinds and types. It reconciles objects of `types` (separated by commas), and ignores others.
pub(crate) fn registration_of(policy: &str, types: &str, resources: &Value) -> Result<Value> {
    let authority = Authority::new("dns-lab-webhook-ca", Clock::system().now());
    let ca = json!({"certificate": authority.certificate(), "key": authority.key()});
    let values = json!({"types": types, "webhook": {"ca": ca}});
    let mut objects = prepare::extension(REGISTRATION, &chart::extension()?, &values);
    for object in &mut objects {
        if object["kind"] == "ControllerRegistration" {
            object["spec"]["deployment"]["policy"] = json!(policy);
            object["spec"]["resources"] = resources.clone();
        }
    }
    Ok(json!({"apiVersion": "v1", "kind": "List", "items": objects}))
}

fn has_priority_and_scaler(seed: &Client, namespace: &str) -> Result<()> {
    let pods = seed.list::<Value>(&POD, namespace, &ListParams::default())?.items;
    let priorities: Vec<&Value> = pods.iter().map(|pod| &pod["spec"]["priority"]).collect();
    equal("the priorities of its pods", &priorities, &vec![&json!(999_998_850)])?;
    let scaler = seed.get::<Value>(&VERTICAL_POD_AUTOSCALER, &Key::new(namespace, format!("{NAME}-vpa")))?;
    equal("the target of the autoscaler", &scaler["spec"]["targetRef"]["name"], &json!(NAME))
}

/// The API server lets its account write the Lease again and again.
fn renews_its_heartbeat(audit: &mut Audit, namespace: &str) -> Result<()> {
    let account = format!("system:serviceaccount:{namespace}:{NAME}");
    let mut beats = 0;
    wait::until("two heartbeats of the extension", 30, || {
        let requests = audit.requests()?;
        let is_beat = |request: &&Request| {
            request.user.username == account && request.verb == "patch" && request.code() == 200
        };
        beats += requests.iter().filter(is_beat).count();
        Ok::<_, Failure>((beats >= 2).then_some(()))
    })
}

/// The API server calls its webhook for a DNSRecord, and the answer changes the object.
fn serves_its_webhook(seed: &Client) -> Result<()> {
    seed.get::<Value>(&MUTATING_WEBHOOK_CONFIGURATION, &Key::cluster(NAME))?;
    let record = json!({"apiVersion": "extensions.gardener.cloud/v1alpha1", "kind": "DNSRecord",
        "metadata": {"name": "www", "namespace": "default"},
        "spec": {"type": TYPE, "name": "www.example.org", "recordType": "A", "values": ["192.0.2.1"],
            "secretRef": {"name": "dns", "namespace": "default"}}});
    let record = seed.create::<Value>(&DNS_RECORD, "default", &record)?;
    equal("the time to live", &record["spec"]["ttl"], &json!(300))
}

/// A hanging process answers no probe.
fn hangs(garden: &Client, agent: &mut Agent, name: &str) -> Result<()> {
    let found = processes(image::EXTENSION.2)?;
    let [process] = found.as_slice() else {
        return Err(Failure::new(format!("processes of the extension: {found:?}")));
    };
    let id = process.file_name().unwrap_or_default().display().to_string();
    let signal =
        |signal: &str| process::run(Command::new("sh").args(["-c", &format!("kill -{signal} {id}")]));
    let mut both_say = |status: &str, limit: f64| {
        let began = wait::now();
        let what = format!("installation and Seed are {status}");
        let reason = while_running(&what, TOLD_WITHIN_S, agent, || {
            let installation = garden.get::<Value>(&CONTROLLER_INSTALLATION, &Key::cluster(name))?;
            if condition(&installation, "Healthy") == status {
                return components_are(garden, status);
            }
            Ok(None)
        })?;
        wait::measured(&format!("seconds until {what}"), wait::seconds_since(began), limit)?;
        Ok::<_, Failure>(reason)
    };
    signal("STOP")?;
    let reason = both_say("False", SICK_IN_S)?;
    equal("why the Seed is unhealthy", reason.as_str(), "DeploymentUnhealthy")?;
    signal("CONT")?;
    both_say("True", WELL_IN_S)?;
    while_running("the installation to be as before", 60, agent, || {
        Ok(installations(garden)?.iter().all(is_well).then_some(()))
    })
}
