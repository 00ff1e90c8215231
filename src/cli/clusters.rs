//! The clusters of a configuration, for commands that read from them.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;

use crate::api::gardener::{CONTROLLER_DEPLOYMENT, CONTROLLER_INSTALLATION};
use crate::api::meta::{ALL_NAMESPACES, text};
use crate::base::clock::Clock;
use crate::base::error::chain;
use crate::config::Settings;
use crate::identity::bootstrap::IdentitySources;
use crate::identity::secret;
use crate::kube::in_cluster::{self, SERVICE_ACCOUNT_DIRECTORY};
use crate::kube::request::ListParams;
use crate::kube::{self, Client, Connection, Options, kubeconfig};
use crate::net::{ProxyEnv, ProxyPolicy, SystemCas, SystemDialer};
use crate::oci;

use super::Variable;

/// The time limit of a command's request; the agent waits longer.
const TIMEOUT: Duration = Duration::from_secs(15);

/// A variable that has a value.
pub(super) fn set(variable: Variable<'_>, name: &str) -> Option<String> {
    variable(name).filter(|value| !value.is_empty())
}

pub(super) fn proxy_env(variable: Variable<'_>) -> ProxyEnv {
    ProxyEnv::from_lookup(|name| set(variable, name))
}

pub(super) fn system_cas(variable: Variable<'_>) -> SystemCas {
    SystemCas::from_lookup(|name| set(variable, name))
}

/// The settings of the agent's clients that matter for a few requests.
pub(super) fn options(variable: Variable<'_>) -> Options {
    Options {
        timeout: TIMEOUT,
        proxy_env: proxy_env(variable),
        system_cas: system_cas(variable),
        ..Options::default()
    }
}

/// The settings for requests to registries.
pub(super) fn network(variable: Variable<'_>) -> oci::RegistryNetwork {
    oci::RegistryNetwork {
        dialer: Arc::new(SystemDialer),
        proxy: ProxyPolicy::from_env(&proxy_env(variable)),
        system_cas: system_cas(variable),
        clock: Clock::system(),
        silence: oci::SILENCE,
    }
}

/// An obstacle and its remedy.
pub(super) type Obstacle = (String, &'static str);

pub(super) fn seed(settings: &Settings, variable: Variable<'_>) -> Result<Connection, Obstacle> {
    let seed = &settings.seed_client_connection;
    let directory = Path::new(SERVICE_ACCOUNT_DIRECTORY);
    match in_cluster::or_kubeconfig(seed.kubeconfig.as_deref(), &seed.context, variable, directory) {
        Ok(Some(connection)) => Ok(connection),
        Ok(None) => Err((
            "the configuration does not say how to reach the seed".to_owned(),
            "run in a pod of the seed, or set seedClientConnection.kubeconfig or KUBECONFIG",
        )),
        Err(error) => Err(unreadable(&error, "correct the kubeconfig of the seed")),
    }
}

/// The connection to the garden, and the place of its kubeconfig.
pub(super) struct Garden {
    pub(super) connection: Connection,
    pub(super) place: String,
    pub(super) is_bootstrap: bool,
}

/// Finds the connection as the agent does: a stored Secret, a bootstrap credential, a kubeconfig on this host.
pub(super) fn garden(settings: &Settings, variable: Variable<'_>, seed: &Client) -> Result<Garden, Obstacle> {
    let sources = IdentitySources::new(settings, &|name| set(variable, name));
    if let Some(key) = &sources.kubeconfig_secret {
        let loaded = secret::load(seed, key);
        if let Some(stored) = loaded.map_err(|e| (chain(&e), "write a kubeconfig into the Secret"))? {
            let place = format!("secret {key} of the seed");
            return Ok(Garden { connection: stored.connection, place, is_bootstrap: false });
        }
        if sources.wants_bootstrap() {
            let found = sources
                .credentials(seed)
                .map_err(|e| (chain(&e), "create a bootstrap token in the garden"))?;
            if let Some(first) = found.into_iter().next() {
                let place = format!("bootstrap credential in {}", first.place);
                return Ok(Garden { connection: first.connection, place, is_bootstrap: true });
            }
        }
    }
    let path = sources.kubeconfig_path.ok_or((
        "neither the kubeconfig Secret nor a bootstrap Secret holds a kubeconfig".to_owned(),
        "create a bootstrap token in the garden, and store it in the bootstrap Secret of the seed",
    ))?;
    let place = format!("kubeconfig {}", path.display());
    let connection = garden_of(path)?;
    Ok(Garden { connection, place, is_bootstrap: false })
}

/// The connection of a kubeconfig on this host.
pub(super) fn garden_of(path: PathBuf) -> Result<Connection, Obstacle> {
    let read = kubeconfig::load(&[path]).and_then(|config| config.current());
    read.map_err(|e| unreadable(&e, "correct the kubeconfig of the garden"))
}

fn unreadable(error: &kubeconfig::Error, remedy: &'static str) -> Obstacle {
    let text = chain(error);
    let is_denied = text.contains("Permission denied");
    (text, if is_denied { "run this command as root, because only root may read the file" } else { remedy })
}

/// The deployments of a seed, or all deployments, with the names of release and installation that their charts see.
pub(super) fn deployments(
    garden: &kube::Garden,
    seed: &str,
    all: bool,
) -> Result<Vec<(String, String, String)>, kube::Error> {
    let (resource, field_selector) = match all {
        true => (CONTROLLER_DEPLOYMENT, String::new()),
        false => (CONTROLLER_INSTALLATION, format!("spec.seedRef.name={seed}")),
    };
    let (mut found, params) = (Vec::new(), ListParams { field_selector, ..ListParams::default() });
    garden.list_all(&resource, ALL_NAMESPACES, &params, &mut |each: Value| {
        let name = text(&each["metadata"]["name"]).to_owned();
        let of = |reference: &str| text(&each["spec"][reference]["name"]).to_owned();
        let names = match all {
            true => (name.clone(), name.clone(), name),
            false => (of("deploymentRef"), of("registrationRef"), name),
        };
        found.extend((!names.0.is_empty()).then_some(names));
    })?;
    Ok(found)
}
