//! The health of a Shoot on a real node in the garden, and the time until the garden has it: all conditions are good
//! after its creation, then its API server is cut off, and comes back.

use gardenlet::api::core::{POD, SERVICE};
use gardenlet::api::gardener::SHOOT;
use gardenlet::api::meta::Key;
use gardenlet::base::clock::Mono;
use gardenlet::kube::{Client, ListParams, Patch};
use serde_json::{Value, json};

use super::{Name, PROJECT};
use crate::agent::Agent;
use crate::cluster::Cluster;
use crate::failure::{Failure, Result, ensure};
use crate::node::Node;
use crate::stories::steps::while_running;
use crate::wait;

const SERVER: &str = "APIServerAvailable";
const CONDITIONS: [&str; 4] =
    [SERVER, "ControlPlaneHealthy", "ObservabilityComponentsHealthy", "SystemComponentsHealthy"];
/// Constraints that always exist.
const CONSTRAINTS: [&str; 2] = ["HibernationPossible", "MaintenancePreconditionsSatisfied"];
/// The longest time until all conditions are good: programs that lost the API server may wait before they start again.
const WELL_WITHIN_S: u64 = 300;
/// The garden has a cut within this time: as `False` without a threshold, as `Progressing` with one.
const TOLD_IN_S: f64 = 75.0;
/// With a threshold of a minute, it is `False` within this time.
const FALSE_IN_S: f64 = 180.0;
/// The garden has its end within this time.
const BACK_IN_S: f64 = 45.0;
/// How long an act waits for each of them.
const TOLD_WITHIN_S: u64 = 300;
/// The label of a Shoot that sums up its conditions.
const STATUS: &str = "shoot.gardener.cloud/status";
/// A label that no pod has.
const NOBODY: &str = "test.gardener.cloud/nobody";

/// The threshold of a minute from upstream's sample, for the configuration of an agent.
pub(super) fn be_patient(config: &mut Value) {
    config["controllers"]["shootCare"]["conditionThresholds"] = json!([{"type": SERVER, "duration": "1m"}]);
}

/// All conditions become `True`, no constraint is violated, and its label is `healthy`.
pub(super) fn is_told_to_be_good(garden: &Client, agent: &mut Agent, name: Name) -> Result<()> {
    let began = wait::now();
    while_running("all conditions of the Shoot to be True", WELL_WITHIN_S, agent, || {
        let shoot: Value = garden.get(&SHOOT, &Key::new(PROJECT, name.0))?;
        let status = &shoot["status"];
        let is_true = |list: &str, kind: &&str| found(status, list, kind)["status"] == "True";
        let is_well = CONDITIONS.iter().all(|kind| is_true("conditions", kind))
            && CONSTRAINTS.iter().all(|kind| is_true("constraints", kind))
            && shoot["metadata"]["labels"][STATUS] == "healthy"
            // During an operation, failed checks are reported as `Progressing`.
            && status["lastOperation"]["state"] == "Succeeded";
        if is_well {
            return Ok(Some(()));
        }
        Err(Failure::new(format!(
            "{} {} {}",
            shoot["metadata"]["labels"], status["conditions"], status["constraints"]
        )))
    })?;
    println!("       {:6.1} s  all conditions are True", wait::seconds_since(began));
    Ok(())
}

/// The API server is cut off: its Services have no endpoints, and its connections end with its processes, which the
/// kubelet restarts. The garden gets the cut in time, and its end, too. `is_patient`: the agent has a threshold
/// ([`be_patient`]); then the last operation must have ended a minute ago.
pub(super) fn follows_a_cut(
    node: &Node,
    seed: &Cluster,
    (garden, agent): (&Client, &mut Agent),
    (name, is_patient): (Name, bool),
) -> Result<()> {
    let client = seed.client()?;
    cut(&client, name, true)?;
    let began = wait::now();
    node.kill_pod(&name.plane(), &pod(&client, name)?)?;
    if is_patient {
        is_told(garden, agent, (name, &["True", "Progressing"]), (began, TOLD_IN_S))?;
        is_told(garden, agent, (name, &["Progressing", "False"]), (began, FALSE_IN_S))?;
    } else {
        is_told(garden, agent, (name, &["True", "False"]), (began, TOLD_IN_S))?;
    }
    // Meanwhile its containers run again, so that the cut ends when the Services have endpoints.
    wait::until("the API server to be ready again", 120, || {
        let pod: Value = client.get(&POD, &Key::new(name.plane(), &pod(&client, name)?))?;
        let conditions = pod["status"]["conditions"].as_array().cloned().unwrap_or_default();
        let is_ready = conditions.iter().any(|c| c["type"] == "Ready" && c["status"] == "True");
        Ok::<_, Failure>(is_ready.then_some(()))
    })?;
    cut(&client, name, false)?;
    let ended = wait::now();
    is_told(garden, agent, (name, &["False", "True"]), (ended, BACK_IN_S))?;
    is_told_to_be_good(garden, agent, name)
}

/// Waits until the condition of the API server changes from one status to the other, without a third one between them:
/// without a threshold it is never `Progressing`. Measures the time since the cause.
fn is_told(
    garden: &Client,
    agent: &mut Agent,
    (name, [from, to]): (Name, &[&str; 2]),
    (began, limit): (Mono, f64),
) -> Result<()> {
    let told = while_running(&format!("{SERVER} to be {to}"), TOLD_WITHIN_S, agent, || {
        let condition = found(&status(garden, name)?, "conditions", SERVER);
        let status = &condition["status"];
        if status == to {
            return Ok(Some(Ok(condition)));
        }
        let failure = Failure::new(format!("between {from} and {to}: {condition}"));
        if status == from { Err(failure) } else { Ok(Some(Err(failure))) }
    })??;
    let took = wait::seconds_since(began);
    println!("       {took:6.1} s  {SERVER} is {to}: {}", told["reason"]);
    wait::measured(&format!("seconds until {SERVER} is {to}"), took, limit)
}

fn status(garden: &Client, name: Name) -> Result<Value> {
    Ok(garden.get::<Value>(&SHOOT, &Key::new(PROJECT, name.0))?["status"].clone())
}

/// An entry of a list of conditions; null if it is missing.
fn found(status: &Value, list: &str, kind: &str) -> Value {
    let mut all = status[list].as_array().into_iter().flatten();
    all.find(|entry| entry["type"] == kind).cloned().unwrap_or_default()
}

/// The pod of the API server.
fn pod(client: &Client, name: Name) -> Result<String> {
    let params = ListParams { label_selector: "role=apiserver".to_owned(), ..ListParams::default() };
    let pods = client.list::<Value>(&POD, &name.plane(), &params)?.items;
    let pod = pods.first().ok_or_else(|| Failure::new("there is no pod of the API server"))?;
    Ok(pod["metadata"]["name"].as_str().unwrap_or_default().to_owned())
}

/// Removes the endpoints of all Services of the API server, or restores them.
fn cut(client: &Client, name: Name, is_cut: bool) -> Result<()> {
    let services = client.list::<Value>(&SERVICE, &name.plane(), &ListParams::default())?.items;
    let mut of_server = 0;
    for service in services.iter().filter(|service| service["spec"]["selector"]["role"] == "apiserver") {
        let nobody = if is_cut { json!("true") } else { Value::Null };
        let patch = Patch::Merge(json!({"spec": {"selector": {NOBODY: nobody}}}));
        let service = service["metadata"]["name"].as_str().unwrap_or_default();
        client.patch::<Value>(&SERVICE, &Key::new(name.plane(), service), &patch)?;
        of_server += 1;
    }
    ensure(of_server > 0, || "no Service leads to the API server".to_owned())
}
