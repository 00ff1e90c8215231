//! `gardenlet rebootstrap`: requests a new identity from a bootstrap credential.
//!
//! The request is an annotation on the Secret with the agent's kubeconfig, like a request for renewal. A running agent
//! sees it within seconds, a stopped agent when it starts. The present identity works until the new one exists.

use serde_json::Value;

use crate::api::core::SECRET;
use crate::api::gardener::OPERATION;
use crate::api::meta::{Metadata, ObjectMeta};
use crate::base::error::chain;
use crate::config::settings::Settings;
use crate::identity::secret::OPERATION_REBOOTSTRAP;
use crate::kube::{Client, Options, Patch};

use super::{Environment, clients, garden};

/// Writes the request to the seed, unless it is there already, and returns a description of what is true then. `announce` gets
/// the write before it is sent. Errors: a text for an operator, with the places where bootstrap credentials were searched.
pub fn rebootstrap(
    settings: &Settings,
    env: &Environment,
    announce: &mut dyn FnMut(&str),
) -> Result<String, String> {
    let sources = garden::sources(settings, env);
    let key = sources.kubeconfig_secret.clone().ok_or_else(|| {
        "gardenClientConnection.kubeconfigSecret is not set: the agent uses a kubeconfig of yours, which it cannot replace"
            .to_owned()
    })?;
    let connection = clients::seed_connection(settings, env).map_err(|error| chain(&error))?;
    let options = Options {
        clock: env.clock.clone(),
        dialer: env.dialer.clone(),
        proxy_env: env.proxies(),
        system_cas: env.system_cas(),
        ..Options::default()
    };
    let seed = Client::new(connection, options).map_err(|error| chain(&error))?;
    let credentials = sources.credentials(&seed).map_err(|error| chain(&error))?;
    let places: Vec<&str> = credentials.iter().map(|credential| credential.place.as_str()).collect();
    let found = seed.find::<Metadata>(&SECRET, &key);
    let found = found.map_err(|error| format!("read secret {key} of the seed: {}", chain(&error)))?;
    let Some(secret) = found else {
        return Ok(format!(
            "There is no secret {key} in the seed: the agent has no identity and makes one by itself, with the bootstrap \
             kubeconfig in {}.\n",
            places.join(" or ")
        ));
    };
    if !is_requested(&secret.metadata) {
        announce(&format!(
            "To be written to the seed: annotation {OPERATION}={OPERATION_REBOOTSTRAP} of Secret {key}\n"
        ));
        let patch = Patch::annotation(OPERATION, OPERATION_REBOOTSTRAP);
        let written = seed.patch::<Value>(&SECRET, &key, &patch);
        written.map_err(|error| format!("annotate secret {key} of the seed: {}", chain(&error)))?;
    }
    Ok(format!(
        "Secret {key} of the seed is annotated with {OPERATION}={OPERATION_REBOOTSTRAP}. A running agent \
         gets a new identity within seconds, a stopped agent gets it when it starts. The present identity works until then. \
         The agent requests the new one with the bootstrap kubeconfig in {}.\n",
        places.join(" or ")
    ))
}

/// Whether an earlier request waits for the agent.
fn is_requested(secret: &ObjectMeta) -> bool {
    secret.annotations.get(OPERATION).is_some_and(|operation| operation == OPERATION_REBOOTSTRAP)
}
