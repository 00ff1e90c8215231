//! `gardenlet node script`: a token for one host, and the script with which the host joins.

use serde_json::Value;

use super::super::{Io, say};
use super::arguments::ScriptArguments;
use super::place::Place;
use crate::api::core::{DEPLOYMENT, NAMESPACE, NODE, SECRET, SERVICE};
use crate::api::extensions::{OPERATING_SYSTEM_CONFIG, WORKER};
use crate::api::meta::{Key, Resource, text};
use crate::base::clock::{Clock, Timestamp};
use crate::base::error::chain;
use crate::base::json::json;
use crate::components::{exposure, webhooks};
use crate::config::Settings;
use crate::config::settings::ResourceManager;
use crate::format::base64;
use crate::format::time::rfc3339;
use crate::hosts::membership;
use crate::hosts::script::{HostFacts, ShootFacts};
use crate::hosts::token::{self, HostToken, JOINING};
use crate::kube::{Client, Patch};
use crate::osc;
use crate::runtime::write;
use crate::shoot::pools::POOL;

/// Makes a token, and the script.
pub(super) fn script(
    io: &mut Io<'_>,
    place: &Place,
    asked: &ScriptArguments,
    settings: &Settings,
) -> Result<String, String> {
    let shoot = &place.name;
    check_approver(place, settings)?;
    let (host, now) = (asked.host.as_str(), Clock::system().now());
    let replaces = replaced(&place.shoot, asked)?;
    let worker: Value = required(&place.seed, &WORKER, &Key::new(place.plane.as_str(), shoot.name.as_str()))?;
    let pools = worker["spec"]["pools"].as_array();
    let pool = pools.into_iter().flatten().find(|pool| pool["name"] == asked.pool.as_str());
    let pool = pool.ok_or_else(|| {
        let names = worker["spec"]["pools"].as_array().into_iter().flatten().map(|pool| text(&pool["name"]));
        format!(
            "Shoot {} has no pool {:?}: it has {}",
            shoot,
            asked.pool,
            names.collect::<Vec<_>>().join(", ")
        )
    })?;
    let facts = shoot_facts(place, asked, pool, settings)?;
    let until = now.plus(asked.ttl);
    let (secret, token) = HostToken { host, pool: &asked.pool, replaces: &replaces, until }.secret();
    membership::admit(&place.shoot, host, &asked.pool)
        .map_err(|error| format!("make host {host} a member of pool {}: {}", asked.pool, chain(&error)))?;
    write_token(place, host, &secret, until)?;
    say(
        io,
        format_args!(
            "Written: {}; Secret {}, valid until {}; all three in the Shoot. Annotation {JOINING} of namespace {} in the seed.\n",
            membership::words(host),
            token::key(host),
            rfc3339(until),
            place.plane
        ),
    );
    let host = HostFacts { name: host, address: &asked.address, token: &token, until, replaces: &replaces };
    Ok(facts.script(&host))
}

/// Errors: nobody would approve the certificates of the host.
fn check_approver(place: &Place, settings: &Settings) -> Result<(), String> {
    place.check_type(settings)?;
    let key = Key::new(place.plane.as_str(), webhooks::NAME);
    let other = place.seed.find::<Value>(&DEPLOYMENT, &key);
    let other = other.map_err(|error| format!("read Deployment {key}: {}", chain(&error)))?;
    let runs = other.is_some_and(|other| other["spec"]["replicas"].as_i64().unwrap_or(1) > 0);
    if runs || settings.edge.resource_manager == ResourceManager::External {
        return Err(
            "a gardener-resource-manager serves the Shoot, and approves certificates of machines only: let this agent serve it \
             (edge.resourceManager)"
                .to_owned(),
        );
    }
    Ok(())
}

fn required(client: &Client, resource: &Resource, key: &Key) -> Result<Value, String> {
    let found = client.find::<Value>(resource, key);
    let found = found.map_err(|error| format!("read {} {key}: {}", resource.kind, chain(&error)))?;
    found
        .ok_or_else(|| format!("there is no {} {key} yet: wait until the Shoot is reconciled", resource.kind))
}

/// The uid of the Node whose place the host takes; empty if there is none. Errors: there is one, and nobody has said so.
fn replaced(shoot: &Client, asked: &ScriptArguments) -> Result<String, String> {
    let host = asked.host.as_str();
    let node = shoot.find::<Value>(&NODE, &Key::cluster(host));
    let node = node.map_err(|error| format!("read Node {host}: {}", chain(&error)))?;
    match node {
        Some(_) if !asked.takes_place => Err(format!(
            "node {host} exists: choose another name, or add --rejoin if this host takes its place"
        )),
        Some(node) if node["metadata"]["labels"][POOL] != asked.pool.as_str() => Err(format!(
            "node {host} is in pool {:?}, and a Node stays in its pool: remove the host first, or print the script for its pool",
            text(&node["metadata"]["labels"][POOL])
        )),
        Some(node) => Ok(text(&node["metadata"]["uid"]).to_owned()),
        None => Ok(String::new()),
    }
}

/// Replaces the token of the host, and lets the agent look for its requests.
fn write_token(place: &Place, host: &str, secret: &Value, until: Timestamp) -> Result<(), String> {
    let key = token::key(host);
    let failed = |error: crate::kube::Error| format!("write Secret {key}: {}", chain(&error));
    let other = place.shoot.find::<Value>(&SECRET, &key).map_err(failed)?.unwrap_or_default();
    if !other.is_null() && token::host_of(&other) != host {
        return Err(format!(
            "Secret {key} is the token of another: delete it, or choose another name for the host"
        ));
    }
    write::delete(&place.shoot, &SECRET, &key).map_err(failed)?;
    place.shoot.create::<Value>(&SECRET, &key.namespace, secret).map_err(failed)?;
    // The token of another host may live longer.
    let last = place.joining.map_or(until, |other| other.max(until));
    let patch = Patch::Merge(json!({"metadata": {"annotations": {JOINING: rfc3339(last)}}}));
    place
        .seed
        .patch_blindly(&NAMESPACE, &Key::cluster(place.plane.as_str()), &patch)
        .map_err(|error| format!("annotate namespace {} of the seed: {}", place.plane, chain(&error)))
}

/// Hosts of images, each with its first mirror.
fn mirrors(settings: &Settings) -> Vec<String> {
    let all = settings.edge.registries.iter();
    all.filter_map(|each| Some(format!("{} {}", each.host, each.mirrors.first()?))).collect()
}

/// What the script says about the Shoot.
fn shoot_facts(
    place: &Place,
    asked: &ScriptArguments,
    pool: &Value,
    settings: &Settings,
) -> Result<ShootFacts, String> {
    let (seed, plane) = (&place.seed, place.plane.as_str());
    let key = text(&pool["nodeAgentSecretName"]).to_owned();
    let init = required(seed, &OPERATING_SYSTEM_CONFIG, &Key::new(plane, format!("{key}-init")))?;
    let reference = text(&pool["userDataSecretRef"]["name"]);
    let user_data = required(seed, &SECRET, &Key::new(plane, reference))?;
    let encoded = text(&user_data["data"][text(&pool["userDataSecretRef"]["key"])]);
    let user_data = base64::decode(encoded.as_bytes()).ok().and_then(|bytes| String::from_utf8(bytes).ok());
    let (server, ca) =
        osc::connection_of(&init["spec"]).ok_or("the objects of the pool name no API server")?;
    let exposure = required(seed, &SERVICE, &Key::new(plane, exposure::NAME))?;
    let tunnel = exposure::tunnel_port(&exposure, settings.edge.exposure.kind);
    let ranges = |network: &str| {
        let spec = &place.known["spec"]["networking"][network];
        let status = place.known["status"]["networking"][network].as_array().cloned().unwrap_or_default();
        let all = status.iter().chain([spec]).filter_map(Value::as_str);
        all.map(str::to_owned).collect::<Vec<_>>()
    };
    Ok(ShootFacts {
        shoot: place.name.to_string(),
        pool: asked.pool.clone(),
        server,
        ca,
        tunnel,
        version: text(&pool["kubernetesVersion"]).to_owned(),
        architecture: text(&pool["architecture"]).to_owned(),
        network: text(&place.known["spec"]["networking"]["type"]).to_owned(),
        nodes: ranges("nodes"),
        pods: ranges("pods"),
        services: ranges("services"),
        kubelet: pool["kubeletConfig"].clone(),
        key,
        registries: mirrors(settings),
        user_data: user_data
            .ok_or_else(|| format!("Secret {plane}/{reference} has no user data that can be read"))?,
    })
}
