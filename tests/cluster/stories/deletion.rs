//! The deletion of a Seed on real servers. Before it, objects that extensions manage are protected from accidental
//! deletion. It deletes all objects of the Seed, and reports the objects of other owners.

use gardenlet::api::crd::CUSTOM_RESOURCE_DEFINITION;
use gardenlet::api::extensions::EXTENSION;
use gardenlet::api::gardener::SEED as SEEDS;
use gardenlet::api::meta::{ALL_NAMESPACES, Key, Resource};
use gardenlet::kube::{Client, DeleteParams, Error, ListParams, Patch};
use serde_json::{Value, json};

use crate::agent::Agent;
use crate::failure::{Failure, Result, ensure, equal};
use crate::lab::Lab;
use crate::stories::steps::{ready, while_running};
use crate::world::{self, SEED, World};

const WITHIN_S: u64 = 150;
const MACHINES: Resource = Resource::new("machine.sapcloud.io", "v1alpha1", "Machine", "machines", true);
const POLICIES: Resource = Resource::new(
    "admissionregistration.k8s.io",
    "v1",
    "ValidatingAdmissionPolicy",
    "validatingadmissionpolicies",
    false,
);

/// The whole story.
pub(crate) fn in_full(lab: &mut Lab) -> Result<()> {
    let _world = World::build(lab)?;
    let (garden, seed) = (lab.garden.client()?, lab.seed.client()?);
    // An operator's definition in one of the API groups of a Seed's definitions. The server records its creator.
    lab.seed.apply(&definition("telemetries", "telemetry.istio.io"))?;
    let before = definitions(&seed)?;
    let mut agent = Agent::start(lab, world::agent(lab, "agent")?)?;
    ready(lab, &mut agent)?;
    ensure(definitions(&seed)?.len() > before.len() + 20, || "too few definitions".to_owned())?;
    is_protected(&seed, &mut agent)?;

    let machine = json!({"apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "Machine",
        "metadata": {"namespace": "default", "name": "a", "finalizers": ["example.org/hold"]}});
    seed.create::<Value>(&MACHINES, "default", &machine)?;
    garden.delete(&SEEDS, &Key::cluster(SEED), &DeleteParams::default())?;
    says(&garden, &mut agent, &["machines.machine.sapcloud.io", "default/a (finalizers: example.org/hold)"])?;
    let left = seed.list::<Value>(&POLICIES, ALL_NAMESPACES, &ListParams::default())?.items;
    equal("policies", &left.iter().filter(|policy| is_ours(policy)).count(), &0)?;
    seed.delete(&MACHINES, &Key::new("default", "a"), &DeleteParams::default())?;
    let release = Patch::Merge(json!({"metadata": {"finalizers": null}}));
    seed.patch::<Value>(&MACHINES, &Key::new("default", "a"), &release)?;
    while_running("the end of the Seed", WITHIN_S, &mut agent, || {
        Ok(garden.find::<Value>(&SEEDS, &Key::cluster(SEED))?.is_none().then_some(()))
    })?;
    equal("remaining definitions", &definitions(&seed)?, &before)?;
    agent.ensure_running()
}

fn is_ours(policy: &Value) -> bool {
    policy["metadata"]["name"].as_str().is_some_and(|name| name.ends_with(".resources.gardener.cloud"))
}

/// The API server refuses the deletions that the webhook of gardener-resource-manager would refuse.
fn is_protected(seed: &Client, agent: &mut Agent) -> Result<()> {
    let object = |name: &str| {
        json!({"apiVersion": "extensions.gardener.cloud/v1alpha1", "kind": "Extension",
            "metadata": {"namespace": "default", "name": name}, "spec": {"type": "x", "class": "garden"}})
    };
    let delete = |name: &str| seed.delete(&EXTENSION, &Key::new("default", name), &DeleteParams::default());
    // The server needs a moment to load a policy.
    while_running("the protection", WITHIN_S, agent, || {
        if seed.find::<Value>(&EXTENSION, &Key::new("default", "a"))?.is_none() {
            seed.create::<Value>(&EXTENSION, "default", &object("a"))?;
        }
        Ok(is_refused(delete("a")).then_some(()))
    })?;
    for name in ["b", "c", "d"] {
        seed.create::<Value>(&EXTENSION, "default", &object(name))?;
    }
    let all = ListParams::default();
    let delete_all = || seed.delete_collection(&EXTENSION, "default", &all, &DeleteParams::default());
    ensure(is_refused(delete_all()), || "all of them may be deleted".to_owned())?;
    for (name, value) in [("a", "1"), ("b", "t"), ("c", "true"), ("d", "True")] {
        let patch = Patch::Merge(
            json!({"metadata": {"annotations": {"confirmation.gardener.cloud/deletion": value}}}),
        );
        seed.patch::<Value>(&EXTENSION, &Key::new("default", name), &patch)?;
    }
    for name in ["a", "b", "c"] {
        delete(name)?;
    }
    delete_all()?;
    equal("objects", &seed.list::<Value>(&EXTENSION, "default", &all)?.items.len(), &0)?;
    let worker = "workers.extensions.gardener.cloud";
    let refused = seed.delete(&CUSTOM_RESOURCE_DEFINITION, &Key::cluster(worker), &DeleteParams::default());
    ensure(is_refused(refused), || format!("{worker} may be deleted"))
}

fn is_refused(result: std::result::Result<(), Error>) -> bool {
    matches!(result, Err(Error::Api(failure)) if failure.code == 403
        && failure.message.contains("must have a \"confirmation.gardener.cloud/deletion\" annotation to delete"))
}

fn definition(plural: &str, group: &str) -> Value {
    let schema = json!({"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}});
    json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.{group}")},
        "spec": {"group": group, "scope": "Namespaced", "names": {"plural": plural, "kind": "Telemetry"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": schema}]}})
}

fn definitions(seed: &Client) -> Result<Vec<String>> {
    let params = ListParams { metadata_only: true, ..ListParams::default() };
    let all = seed.list::<Value>(&CUSTOM_RESOURCE_DEFINITION, ALL_NAMESPACES, &params)?.items;
    Ok(all.iter().filter_map(|one| one["metadata"]["name"].as_str().map(str::to_owned)).collect())
}

/// Waits until the operation of the deletion reports what it waits for.
fn says(garden: &Client, agent: &mut Agent, words: &[&str]) -> Result<()> {
    while_running(&format!("a deletion with {words:?}"), WITHIN_S, agent, || {
        let Some(seed) = garden.find::<Value>(&SEEDS, &Key::cluster(SEED))? else { return Ok(None) };
        let operation = &seed["status"]["lastOperation"];
        let why = operation["description"].as_str().unwrap_or_default();
        if operation["state"] == "Processing" && words.iter().all(|word| why.contains(word)) {
            return Ok(Some(()));
        }
        Err(Failure::new(operation.to_string()))
    })
}
