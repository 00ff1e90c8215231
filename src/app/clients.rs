//! The clients of the agent: which connections exist, and who may use which.

use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use crate::base::stop::Stop;
use crate::config::settings::{ClientConnection, Settings};
use crate::kube::{self, Client, Connection, Garden, Options, Seed, in_cluster, kubeconfig};
use crate::net::ProxyEnv;

use super::{Environment, Error};

/// Deadline of a request to a Lease: two tries fit into the renew deadline of ten seconds.
const ELECTION_TIMEOUT: Duration = Duration::from_secs(5);
/// The longest that a controller's write may take.
pub(super) const WRITE_DEADLINE: Duration = Duration::from_secs(5);

/// See the module.
pub(super) struct Clients {
    /// For controllers.
    pub(super) seed: Seed,
    /// For the heartbeat alone.
    pub(super) seed_heartbeat: Seed,
    /// For leader election alone. It outlives the stop of the agent: the Lease is released last.
    pub(super) election: Client,
    /// Where the seed is: the applier has another identity there.
    pub(super) seed_connection: Connection,
    options: Options,
    garden: Mutex<Option<GardenClients>>,
}

/// The clients of the garden, once there is an identity.
#[derive(Clone, Debug)]
pub(super) struct GardenClients {
    /// For controllers.
    pub(super) controllers: Garden,
    /// For the heartbeat alone.
    pub(super) heartbeat: Garden,
}

impl Clients {
    pub(super) fn new(settings: &Settings, env: &Environment) -> Result<Self, Error> {
        let seed_connection = seed_connection(settings, env)?;
        let options = options(env);
        let seed_options = limited(&options, &settings.seed_client_connection);
        let unlimited = Options { qps: 0.0, ..options.clone() };
        let client =
            |options: &Options| Client::new(seed_connection.clone(), options.clone()).map_err(Error::Client);
        let election =
            client(&Options { stop: Stop::new(), ..unlimited.clone() })?.with_deadline(ELECTION_TIMEOUT);
        let garden_options = limited(&options, &settings.garden_client_connection.connection);
        Ok(Self {
            seed: Seed(client(&seed_options)?),
            seed_heartbeat: Seed(client(&unlimited)?),
            election,
            seed_connection: seed_connection.clone(),
            options: garden_options,
            garden: Mutex::default(),
        })
    }

    /// A client of the seed with another identity, for the applier.
    pub(super) fn seed_as(&self, connection: Connection) -> Result<Client, kube::Error> {
        Client::new(connection, Options { qps: 0.0, ..self.options.clone() })
    }

    /// The same for the election of the applier; it outlives the stop of the agent.
    pub(super) fn election_as(&self, connection: Connection) -> Result<Client, kube::Error> {
        let options = Options { qps: 0.0, stop: Stop::new(), ..self.options.clone() };
        Ok(Client::new(connection, options)?.with_deadline(ELECTION_TIMEOUT))
    }

    /// A client of the garden that is used for the bootstrap only.
    pub(super) fn garden_once(&self, connection: Connection) -> Result<Garden, kube::Error> {
        Client::new(connection, self.options.clone()).map(Garden)
    }

    /// The garden's clients over `connection`: new ones, or the present ones with another identity.
    pub(super) fn use_garden(&self, connection: &Connection) -> Result<GardenClients, kube::Error> {
        let mut garden = self.garden.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(clients) = garden.as_ref() {
            if *clients.controllers.connection() != *connection {
                clients.controllers.replace(connection.clone())?;
                clients.heartbeat.replace(connection.clone())?;
            }
            return Ok(clients.clone());
        }
        let heartbeat = Options { qps: 0.0, ..self.options.clone() };
        let clients = GardenClients {
            controllers: Garden(Client::new(connection.clone(), self.options.clone())?),
            heartbeat: Garden(Client::new(connection.clone(), heartbeat)?),
        };
        *garden = Some(clients.clone());
        Ok(clients)
    }
}

fn options(env: &Environment) -> Options {
    Options {
        clock: env.clock.clone(),
        dialer: env.dialer.clone(),
        proxy_env: ProxyEnv::from_lookup(|name| env.variable(name).map(str::to_owned)),
        stop: env.stop.clone(),
        metrics: env.metrics.clone(),
        ..Options::default()
    }
}

#[expect(clippy::cast_possible_truncation, reason = "a rate limit needs no more precision")]
fn limited(options: &Options, connection: &ClientConnection) -> Options {
    Options { qps: connection.qps as f32, burst: connection.burst, ..options.clone() }
}

/// A kubeconfig if one is named, else the pod's ServiceAccount.
fn seed_connection(settings: &Settings, env: &Environment) -> Result<Connection, Error> {
    if let Some(path) = &settings.seed_client_connection.kubeconfig {
        return load(path);
    }
    let host = env.variable("KUBERNETES_SERVICE_HOST").ok_or(Error::NoSeed)?;
    let port = env.variable("KUBERNETES_SERVICE_PORT").unwrap_or("443");
    Ok(in_cluster::connection(host, port, &env.service_account_dir))
}

fn load(path: &Path) -> Result<Connection, Error> {
    let read = kubeconfig::load(&[path.to_owned()]).and_then(|config| config.select(""));
    read.map_err(|source| Error::SeedConnection { place: path.display().to_string(), source })
}
