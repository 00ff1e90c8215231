//! `gardenlet rebootstrap`: requests a new identity from a bootstrap credential.
//!
//! The request is an annotation on the Secret with the agent's kubeconfig, like a request for renewal. A running agent
//! sees it within seconds, a stopped agent when it starts. The present identity works until the new one exists.

use serde_json::Value;

use crate::api::core::SECRET;
use crate::api::gardener::OPERATION;
use crate::base::error::chain;
use crate::config::settings::Settings;
use crate::identity::secret::OPERATION_REBOOTSTRAP;
use crate::kube::{Client, Options, Patch};

use super::{Environment, clients, garden};

/// Writes the request to the seed and returns a description of what was done. Errors: a text for an operator,
/// with the places where bootstrap credentials were searched.
pub fn rebootstrap(settings: &Settings, env: &Environment) -> Result<String, String> {
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
    let patch = Patch::annotation(OPERATION, OPERATION_REBOOTSTRAP);
    match seed.patch::<Value>(&SECRET, &key, &patch) {
        Ok(_) => Ok(format!(
            "Secret {key} of the seed is annotated with {OPERATION}={OPERATION_REBOOTSTRAP}. A running agent \
             gets a new identity within seconds, a stopped agent gets it when it starts. The present identity works until then. \
             The agent requests the new one with the bootstrap kubeconfig in {}.\n",
            places.join(" or ")
        )),
        Err(error) if error.is_not_found() => Ok(format!(
            "There is no secret {key} in the seed: the agent has no identity and makes one by itself, with the bootstrap \
             kubeconfig in {}.\n",
            places.join(" or ")
        )),
        Err(error) => Err(format!("annotate secret {key} of the seed: {}", chain(&error))),
    }
}
