//! Charts that helm has pushed to a real registry with TLS and users.

use gardenlet::api::core::CONFIG_MAP;
use gardenlet::api::gardener::CONTROLLER_DEPLOYMENT;
use gardenlet::api::meta::Key;
use gardenlet::kube::{Client, Patch};
use serde_json::{Value, json};

use crate::agent::Agent;
use crate::failure::{Result, ensure};
use crate::lab::Lab;
use crate::registry::Registry;
use crate::stories::steps::{installations, installed, ready, while_running};
use crate::tokens::Tokens;
use crate::world::{self, World};
use support::garden::prepare;

/// By reference, by tag and by digest; then without the registry, in a program that was killed and restarted.
pub(crate) fn installs(lab: &mut Lab) -> Result<()> {
    let _world = World::build(lab)?;
    let mut registry = Registry::start(lab)?;
    let digest = registry.push_demo(lab)?;
    let mut agent = Agent::start(lab, world::agent(lab, "agent")?)?;
    ready(lab, &mut agent)?;
    let (garden, seed) = (lab.garden.client()?, lab.seed.client()?);
    lab.garden.apply(&json!({"apiVersion": "v1", "kind": "List", "items": registry.secrets()}))?;

    let repository = Registry::repository();
    let mut objects = prepare::extension("demo", b"", &Value::Null);
    objects[0]["helm"] = chart(&json!({"ref": format!("oci://{repository}:1.0.0")}), "by reference");
    lab.garden.apply(&json!({"apiVersion": "v1", "kind": "List", "items": objects}))?;
    let name = installed(&garden, &mut agent)?;
    wait_for_greeting(&seed, &mut agent, &name, "by reference")?;

    let rollouts = [
        (json!({"ref": null, "repository": repository, "tag": "1.0.0"}), "by tag"),
        (json!({"ref": null, "repository": repository, "tag": "gone", "digest": digest}), "by digest"),
    ];
    for (place, greeting) in &rollouts {
        roll_out(&garden, place, greeting)?;
        wait_for_greeting(&seed, &mut agent, &name, greeting)?;
    }
    // The condition reports an unknown tag, and the last chart continues to run.
    roll_out(&garden, &json!({"digest": null}), "never")?;
    while_running("the condition with the unknown tag", 60, &mut agent, || {
        let found = installations(&garden)?;
        let text = found.iter().map(|installation| installation["status"].to_string()).collect::<String>();
        Ok((text.contains("OCIChartCannotBePulled") && text.contains("MANIFEST_UNKNOWN")).then_some(()))
    })?;
    registry.kill();
    agent.kill();
    agent.restart()?;
    roll_out(&garden, &json!({"digest": digest}), "without a registry")?;
    wait_for_greeting(&seed, &mut agent, &name, "without a registry")?;
    installed(&garden, &mut agent)?;
    agent.ensure_running()
}

/// The same from a registry without users, whose token service gives out tokens.
pub(crate) fn gets_tokens(lab: &mut Lab) -> Result<()> {
    let _world = World::build(lab)?;
    let registry = Registry::start_with_tokens(lab)?;
    registry.push_demo(lab)?;
    let asked = || registry.tokens.as_ref().map_or(0, Tokens::asked);
    ensure(asked() > 0, || "helm has requested no token".to_owned())?;
    let mut agent = Agent::start(lab, world::agent(lab, "agent")?)?;
    ready(lab, &mut agent)?;
    let (garden, seed) = (lab.garden.client()?, lab.seed.client()?);
    lab.garden.apply(&json!({"apiVersion": "v1", "kind": "List", "items": registry.secrets()}))?;
    let mut objects = prepare::extension("demo", b"", &Value::Null);
    let place = json!({"repository": Registry::repository(), "tag": "1.0.0"});
    objects[0]["helm"] = chart(&place, "with a token");
    lab.garden.apply(&json!({"apiVersion": "v1", "kind": "List", "items": objects}))?;
    let name = installed(&garden, &mut agent)?;
    wait_for_greeting(&seed, &mut agent, &name, "with a token")?;
    ensure(asked() > 0, || "the agent has requested no token".to_owned())
}

/// The chart at a place, with the Secrets for access to it.
pub(crate) fn chart(place: &Value, greeting: &str) -> Value {
    let mut repository = place.clone();
    repository["pullSecretRef"] = json!({"name": "oci-pull"});
    repository["caBundleSecretRef"] = json!({"name": "oci-ca"});
    json!({"ociRepository": repository, "values": {"replicas": 0, "greeting": greeting}})
}

fn roll_out(garden: &Client, place: &Value, greeting: &str) -> Result<()> {
    let patch = Patch::Merge(json!({"helm": chart(place, greeting)}));
    garden.patch::<Value>(&CONTROLLER_DEPLOYMENT, &Key::cluster("demo"), &patch)?;
    Ok(())
}

/// Waits until the ConfigMap of the chart has this greeting.
pub(crate) fn wait_for_greeting(seed: &Client, agent: &mut Agent, name: &str, expected: &str) -> Result<()> {
    let namespace = format!("extension-{name}");
    while_running(&format!("the greeting {expected:?}"), 60, agent, || {
        let map = seed.find::<Value>(&CONFIG_MAP, &Key::new(&namespace, "demo"))?;
        Ok(map.filter(|map| map["data"]["greeting"] == expected).map(drop))
    })
}
