//! NetworkPolicies on real servers: the server accepts them unchanged, stores the fields that the agent compares, and
//! reports pods. The pods do not run.

use std::collections::{BTreeMap, BTreeSet};

use gardenlet::api::core::{NAMESPACE, NETWORK_POLICY, POD, SERVICE_ACCOUNT};
use gardenlet::api::meta::Key;
use gardenlet::kube::{Client, DeleteParams, ListParams, Patch};
use serde_json::{Value, json};

use crate::agent::Agent;
use crate::failure::{Failure, Result, ensure, equal};
use crate::lab::Lab;
use crate::stories::steps::{ready, while_running};
use crate::wait;
use crate::world::{self, World};
use support::garden::prepare;
use support::policies::{CENTRAL, EXTENSION, OF_EXTENSION, OF_SHOOT, SHOOT, cluster, plane, pod};

const WITHIN_S: u64 = 30;
/// The time after the end of a pod.
const GONE_IN_S: f64 = 10.0;

fn names(all: &[&[&str]]) -> BTreeSet<String> {
    all.concat().into_iter().map(str::to_owned).collect()
}

/// The policies of a namespace, by name.
fn policies(seed: &Client, namespace: &str) -> Result<BTreeMap<String, Value>> {
    let all = seed.list::<Value>(&NETWORK_POLICY, namespace, &ListParams::default())?.items;
    let name = |policy: &Value| policy["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    Ok(all.into_iter().map(|policy| (name(&policy), policy)).collect())
}

fn wait_for(seed: &Client, agent: &mut Agent, namespace: &str, expected: &BTreeSet<String>) -> Result<()> {
    while_running(&format!("the policies of {namespace}"), WITHIN_S, agent, || {
        let found: BTreeSet<String> = policies(seed, namespace)?.into_keys().collect();
        if found == *expected { Ok(Some(())) } else { Err(Failure::new(format!("{found:?}"))) }
    })
}

fn list(items: &[Value]) -> Value {
    json!({"apiVersion": "v1", "kind": "List", "items": items})
}

/// A control plane and an extension may connect to each other. A pod is deleted and created again; a policy is changed
/// by hand; after a restart nothing is written; a namespace is deleted.
pub(crate) fn come_and_go(lab: &mut Lab) -> Result<()> {
    let _world = World::build(lab)?;
    lab.seed.apply(&list(&prepare::access().1))?;
    let mut agent = Agent::start(lab, world::agent(lab, "agent")?)?;
    ready(lab, &mut agent)?;
    let seed = lab.seed.client()?;
    let (namespaces, rest): (Vec<Value>, Vec<Value>) =
        plane().into_iter().partition(|object| object["kind"] == "Namespace");
    lab.seed.apply(&list(&[cluster("100.64.0.0/13")]))?;
    lab.seed.apply(&list(&namespaces))?;
    while_running("the accounts of the pods", WITHIN_S, &mut agent, || {
        let found =
            [SHOOT, EXTENSION].map(|name| seed.find::<Value>(&SERVICE_ACCOUNT, &Key::new(name, "default")));
        let [first, second] = found;
        Ok(first?.and(second?).map(drop))
    })?;
    lab.seed.apply(&list(&rest))?;
    let (of_shoot, of_extension) = (names(&[&CENTRAL, &OF_SHOOT]), names(&[&CENTRAL, &OF_EXTENSION]));
    wait_for(&seed, &mut agent, "garden", &names(&[&CENTRAL]))?;
    wait_for(&seed, &mut agent, SHOOT, &of_shoot)?;
    wait_for(&seed, &mut agent, EXTENSION, &of_extension)?;
    let before = policies(&seed, SHOOT)?;
    let rule = &before["allow-to-runtime-apiserver"]["spec"]["egress"][0];
    ensure(rule["to"][0]["ipBlock"]["cidr"].is_string() && rule["ports"][0]["port"].is_u64(), || {
        rule.to_string()
    })?;

    let began = wait::now();
    let at_once = DeleteParams { grace_period_seconds: Some(0), ..DeleteParams::default() };
    seed.delete(&POD, &Key::new(SHOOT, "manager"), &at_once)?;
    let less = of_shoot.iter().filter(|name| !name.ends_with("kube-apiserver-tcp-443")).cloned().collect();
    wait_for(&seed, &mut agent, SHOOT, &less)?;
    wait::measured("seconds until a policy is gone", wait::seconds_since(began), GONE_IN_S)?;
    lab.seed.apply(&list(&[pod(SHOOT, "manager", &["kube-apiserver-tcp-443"])]))?;
    wait_for(&seed, &mut agent, SHOOT, &of_shoot)?;

    let by_hand = Patch::Merge(json!({"spec": {"egress": [{}]}}));
    seed.patch::<Value>(&NETWORK_POLICY, &Key::new(SHOOT, "allow-to-dns"), &by_hand)?;
    while_running("the change to be undone", WITHIN_S, &mut agent, || {
        let spec = &policies(&seed, SHOOT)?["allow-to-dns"]["spec"];
        Ok((*spec == before["allow-to-dns"]["spec"]).then_some(()))
    })?;
    let before = policies(&seed, SHOOT)?;
    agent.kill();
    agent.restart()?;
    // Its next repair shows that it works again.
    seed.delete(&NETWORK_POLICY, &Key::new(EXTENSION, "deny-all"), &DeleteParams::default())?;
    wait_for(&seed, &mut agent, EXTENSION, &of_extension)?;
    equal("policies that were correct before", &policies(&seed, SHOOT)?, &before)?;
    seed.delete(&NAMESPACE, &Key::cluster(SHOOT), &DeleteParams::default())?;
    wait_for(&seed, &mut agent, SHOOT, &BTreeSet::new())?;
    wait_for(&seed, &mut agent, EXTENSION, &names(&[&CENTRAL]))?;
    agent.ensure_running()
}
