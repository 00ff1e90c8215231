//! A Shoot whose agent is killed during the creation.

use std::collections::BTreeMap;

use gardenlet::api::core::{DEPLOYMENT, NAMESPACE, SECRET, STATEFUL_SET};
use gardenlet::api::gardener::SHOOT;
use gardenlet::api::meta::{Key, Resource};
use gardenlet::kube::{Client, ListParams};
use serde_json::Value;

use gardenlet::api::resources::MANAGED_RESOURCE;
use gardenlet::operation::components::namespaces;
use gardenlet::secrets::labels;

use super::owner::Owner;
use super::{Name, PROJECT, apply, ask_for_another, health, succeeded};
use crate::agent::Agent;
use crate::failure::{Result, ensure, equal};
use crate::image;
use crate::lab::Lab;
use crate::outside::Outside;
use crate::snapshot::{Difference, Snapshot};
use crate::stories::steps::while_running;
use crate::wait;

/// The agent is killed as soon as one of these objects exists, while its task is still running.
const MOMENTS: [(&Resource, &str); 4] = [
    (&NAMESPACE, ""),
    (&STATEFUL_SET, "etcd-main"),
    (&DEPLOYMENT, "kube-apiserver"),
    (&MANAGED_RESOURCE, namespaces::MANAGED_RESOURCE),
];

/// The longest time until the ShootState of the last reconciliation is written, and all conditions are reported.
const STORED_WITHIN_S: u64 = 60;

/// Values that differ between two Shoots of a project, and placeholders for them.
const OWN: [(&str, &str); 9] = [
    (r"shoot--p--s\d", "<plane>"),
    (r"\bs[12]\b", "<shoot>"),
    (r"-[0-9a-f]{8}\b", "-<hash>"),
    (r"\b[0-9a-f]{63}\b", "<hash>"),
    (r#"ReplicaSet "[^"]+""#, "ReplicaSet <name>"),
    (r"https://10\.66\.0\.1:\d+", "https://<exposure>"),
    (r"Bearer [A-Za-z0-9]+", "Bearer <token>"),
    (r"-----BEGIN [A-Z ]+-----[^-]+-----END [A-Z ]+-----", "<pem>"),
    (r"\b10\.1\.\d+\.\d+\b", "<service>"),
];

/// The agent is killed four times while it creates a Shoot. Secrets of the secrets manager do not change, and the
/// result is that of the Shoot that was created without kills.
pub(super) fn lead_to_the_same(
    lab: &Lab,
    garden: &Client,
    agent: &mut Agent,
    (undisturbed, outside, name): (&Owner<'_>, &Outside, Name),
) -> Result<()> {
    let seed = lab.seed.client()?;
    apply(lab, name, image::API_SERVER.version())?;
    let began = wait::now();
    let mut made = BTreeMap::new();
    for (resource, object) in MOMENTS {
        let plane = name.plane();
        let (namespace, object) = if object.is_empty() { ("", &*plane) } else { (&*plane, object) };
        while_running(&format!("{} {object}", resource.kind), 120, agent, || {
            Ok(seed.find::<Value>(resource, &Key::new(namespace, object))?)
        })?;
        agent.kill();
        let shoot: Value = garden.get(&SHOOT, &Key::new(PROJECT, name.0))?;
        let last = &shoot["status"]["lastOperation"];
        println!(
            "                 {:6.1} s  killed at {}: {object}, {} %",
            wait::seconds_since(began),
            resource.kind,
            last["progress"]
        );
        equal("the operation", &last["state"], &Value::from("Processing"))?;
        made = kept(&made, secrets(&seed, name)?)?;
        agent.restart()?;
    }
    succeeded(lab, garden, agent, (name, "Create"))?;
    println!("       {:6.1} s  Create Succeeded, with {} kills", wait::seconds_since(began), MOMENTS.len());
    kept(&made, secrets(&seed, name)?)?;
    ensure(made.contains_key("ca"), || format!("only {:?} existed before the last kill", made.keys()))?;
    let owner = Owner::new(lab, garden, name, outside)?;
    owner.gets_in(image::API_SERVER.version())?;
    // The Clusters keep the findings of care at the start of the last reconciliation.
    for name in [undisturbed.name, name] {
        health::is_told_to_be_good(garden, agent, name)?;
        ask_for_another(garden, name)?;
        succeeded(lab, garden, agent, (name, "Reconcile"))?;
    }
    is_the_same(lab, undisturbed, &owner)
}

/// The data of all Secrets of the secrets manager, by name.
fn secrets(seed: &Client, name: Name) -> Result<BTreeMap<String, Value>> {
    let label_selector = labels::selector("gardenlet");
    let found =
        seed.list::<Value>(&SECRET, &name.plane(), &ListParams { label_selector, ..ListParams::default() })?;
    let text = |secret: &Value| secret["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    Ok(found.items.into_iter().map(|secret| (text(&secret), secret["data"].clone())).collect())
}

/// The current Secrets, if all earlier ones are unchanged.
fn kept(before: &BTreeMap<String, Value>, now: BTreeMap<String, Value>) -> Result<BTreeMap<String, Value>> {
    let lost: Vec<_> =
        before.iter().filter(|(name, data)| now.get(*name) != Some(data)).map(|(name, _)| name).collect();
    ensure(lost.is_empty(), || format!("Secrets that a kill of the agent has changed: {lost:?}"))?;
    Ok(now)
}

/// Compares two Shoots in the garden, in the seed and inside. Only the values of [`OWN`] may differ.
fn is_the_same(lab: &Lab, one: &Owner<'_>, two: &Owner<'_>) -> Result<()> {
    let manager = "deployment/kube-controller-manager";
    [one, two].into_iter().try_for_each(|owner| lab.seed.rolled_out(&owner.name.plane(), manager, 120))?;
    let (garden, seed) = (lab.garden.client()?, lab.seed.client()?);
    let in_garden = |owner: &Owner<'_>| -> Result<Difference> {
        let begin = format!(" {PROJECT}/{}", owner.name.0);
        Snapshot::of_one(&garden, |key| key.contains(&begin), &OWN)
    };
    let in_seed = |owner: &Owner<'_>| Snapshot::of_one(&seed, |key| key.contains(&owner.name.plane()), &OWN);
    let inside =
        |owner: &Owner<'_>| Snapshot::of_one(&owner.client()?, |key| !key.contains(" default/"), &OWN);
    let compare = |what: &str, look: &dyn Fn(&Owner<'_>) -> Result<Difference>| {
        wait::until(what, STORED_WITHIN_S, || {
            let (first, second) = (look(one)?, look(two)?);
            ensure(first.changed.len() > 3, || format!("{what}: {:?}", first.keys()))?;
            first.ensure_same(&second, &format!("{what}, undisturbed and disturbed")).map(Some)
        })
    };
    let compared =
        [compare("the garden", &in_garden), compare("the seed", &in_seed), compare("the Shoot", &inside)];
    let failures: Vec<String> =
        compared.into_iter().filter_map(Result::err).map(|failure| failure.to_string()).collect();
    ensure(failures.is_empty(), || failures.join("\n"))
}
