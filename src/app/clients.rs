//! The clients of the agent: which connections exist, and which parts may use them.

use std::path::Path;
use std::sync::Mutex;
use std::time::Duration;

use crate::base::garden_time::GardenTime;
use crate::base::lock::IgnorePoison;
use crate::base::sorted::SortedSet;
use crate::base::stop::Stop;
use crate::base::workers::Workers;
use crate::config::settings::{ClientConnection, LeaderElection, Settings};
use crate::kube::{
    self, Client, Connection, Garden, Options, RequestGate, RequestGates, Seed, in_cluster, kubeconfig,
};
use crate::net::DailyTraffic;
use crate::runtime::fence::Fence;
use crate::shoot::client::{ShootConnector, ShootServers};

use super::{Environment, Error};

/// How much time must be left before the renew deadline when a write starts. It is also the deadline of a request to a
/// Lease, so that two tries fit into the renew deadline.
pub(super) fn write_deadline(election: &LeaderElection) -> Duration {
    (election.renew_deadline / 2).min(Duration::from_secs(5))
}

/// How long a write under the leader's lease may take.
fn write_timeout(election: &LeaderElection) -> Duration {
    if election.leader_elect { lease_write_timeout(election) } else { Duration::MAX }
}

/// How long a write under a lease may take. Other agents take over when the whole lease duration has passed, not when
/// our renew deadline has. An API server gives its webhooks ten seconds by default, so a shorter deadline would never
/// succeed while a webhook is dead.
fn lease_write_timeout(election: &LeaderElection) -> Duration {
    election.lease_duration.saturating_sub(election.renew_deadline) + write_deadline(election)
}

pub(super) struct Clients {
    /// For dedicated threads: informers, and the flows of the seed and garden sides.
    pub(super) seed: Seed,
    /// For workers. A slow seed must not block clients of other servers.
    pub(super) seed_of_workers: Seed,
    /// For the heartbeat alone.
    pub(super) seed_heartbeat: Seed,
    /// For leader election alone. It outlives the stop of the agent, because the Lease is released last.
    pub(super) election: Client,
    /// How to reach the seed: the applier uses another identity there.
    pub(super) seed_connection: Connection,
    /// How long a write of the applier may take. The applier always has a lease.
    pub(super) applier_write_timeout: Duration,
    /// Woken by each 401 response of the garden.
    pub(super) unauthorized: Stop,
    /// Limits that workers and charts share.
    pub(super) workers: Workers,
    /// Connections to the API servers of Shoots.
    doors: ShootServers,
    options: Options,
    seed_gate: RequestGate,
    garden_gate: RequestGate,
    election_timeout: Duration,
    garden: Mutex<Option<GardenClients>>,
    /// Garden servers for which the log already has a warning about weak connections.
    warned: Mutex<SortedSet<String>>,
}

/// The clients of the garden, available once there is an identity.
#[derive(Clone, Debug)]
pub(super) struct GardenClients {
    pub(super) controllers: Garden,
    /// For the heartbeat alone.
    pub(super) heartbeat: Garden,
    /// For certificate renewal, which the heartbeat may be waiting for.
    pub(super) identity: Garden,
}

impl Clients {
    pub(super) fn new(
        settings: &Settings,
        env: &Environment,
        time: &GardenTime,
        fence: &Fence,
    ) -> Result<Self, Error> {
        let seed_connection = seed_connection(settings, env)?;
        warn_of_weakness(SEED, &seed_connection);
        let election_timeout = write_deadline(&settings.leader_election);
        // Writes to Leases need no permit: the leader's lease grants it, and the seed's heartbeat checks it itself.
        let unlimited = Options {
            qps: 0.0,
            write_timeout: write_timeout(&settings.leader_election),
            ..options(env, time)
        };
        let workers = Workers::new(settings.edge.workers);
        let gates = RequestGates::new(&workers);
        let (seed_gate, garden_gate) = (gates.gate(), gates.gate());
        let options = Options { permit: Some(fence.permit(election_timeout)), ..unlimited.clone() };
        let unlimited = Options { gate: Some(seed_gate.clone()), ..unlimited };
        let options_of_seed = Options { gate: Some(seed_gate.clone()), ..options.clone() };
        let seed_options = limited(&options_of_seed, &settings.seed_client_connection);
        let client =
            |options: &Options| Client::new(seed_connection.clone(), options.clone()).map_err(Error::Client);
        let election = client(&Options { stop: Stop::new(), ..unlimited.clone() })?
            .ungated()
            .with_deadline(election_timeout);
        let garden_options = Options {
            tells_time: true,
            peer: "garden",
            daily: Some(DailyTraffic::default()),
            ..limited(&options, &settings.garden_client_connection.connection)
        };
        let seed = client(&seed_options)?;
        Ok(Self {
            seed: Seed(seed.ungated()),
            seed_of_workers: Seed(seed),
            seed_heartbeat: Seed(client(&unlimited)?.ungated()),
            election,
            seed_connection: seed_connection.clone(),
            applier_write_timeout: lease_write_timeout(&settings.leader_election),
            unauthorized: Stop::new(),
            workers,
            doors: ShootServers::new(gates),
            options: garden_options,
            seed_gate,
            garden_gate,
            election_timeout,
            garden: Mutex::default(),
            warned: Mutex::default(),
        })
    }

    /// A client of the seed with another identity, for the applier, which writes under its own lease. The client wakes
    /// `refused` when the server refuses its token.
    pub(super) fn seed_as(
        &self,
        connection: Connection,
        lease: &Fence,
        refused: &Stop,
    ) -> Result<Client, kube::Error> {
        let options = Options {
            qps: 0.0,
            peer: SEED,
            permit: Some(lease.permit(self.election_timeout)),
            write_timeout: self.applier_write_timeout,
            gate: Some(self.seed_gate.clone()),
            daily: None,
            unauthorized: Some(refused.clone()),
            ..self.options.clone()
        };
        Client::new(connection, options)
    }

    /// Clients of the clusters of Shoots for the applier, which writes under its own lease.
    pub(super) fn served_shoots(&self, lease: &Fence) -> ShootConnector {
        let options = Options {
            permit: Some(lease.permit(self.election_timeout)),
            write_timeout: self.applier_write_timeout,
            ..self.options.clone()
        };
        ShootConnector::new(self.seed_of_workers.clone(), options, &self.doors)
    }

    /// Clients of the clusters of Shoots for operations, which write under the leader's lease.
    pub(super) fn shoots(&self) -> ShootConnector {
        ShootConnector::new(self.seed_of_workers.clone(), self.options.clone(), &self.doors)
    }

    /// The same for the applier's leader election. It outlives the stop of the agent.
    pub(super) fn election_as(&self, connection: Connection, refused: &Stop) -> Result<Client, kube::Error> {
        let options = Options {
            qps: 0.0,
            peer: SEED,
            stop: Stop::new(),
            permit: None,
            gate: Some(self.seed_gate.clone()),
            daily: None,
            unauthorized: Some(refused.clone()),
            ..self.options.clone()
        };
        Ok(Client::new(connection, options)?.ungated().with_deadline(self.election_timeout))
    }

    /// A client of the garden that only the bootstrap uses.
    pub(super) fn garden_once(&self, connection: Connection) -> Result<Garden, kube::Error> {
        self.warn_once(&connection);
        Client::new(connection, self.options.clone()).map(Garden)
    }

    fn warn_once(&self, connection: &Connection) {
        let mut warned = self.warned.lock().ignore_poison();
        if connection.weakness().is_some() && warned.insert(connection.server.clone()) {
            warn_of_weakness("garden", connection);
        }
    }

    /// The garden's clients over `connection`: new ones, or the present ones with a new identity.
    pub(super) fn use_garden(&self, connection: &Connection) -> Result<GardenClients, kube::Error> {
        let mut garden = self.garden.lock().ignore_poison();
        self.warn_once(connection);
        if let Some(clients) = garden.as_ref() {
            // Update each one separately: if one fails, the next try repairs it.
            for client in [&clients.controllers, &clients.heartbeat, &clients.identity] {
                if *client.connection() != *connection {
                    client.replace(connection.clone())?;
                }
            }
            return Ok(clients.clone());
        }
        let options = Options {
            unauthorized: Some(self.unauthorized.clone()),
            gate: Some(self.garden_gate.clone()),
            ..self.options.clone()
        };
        let heartbeat = Options { qps: 0.0, permit: None, ..options.clone() };
        let client = |options| Client::new(connection.clone(), options);
        let clients = GardenClients {
            controllers: Garden(client(options.clone())?),
            heartbeat: Garden(client(heartbeat)?.ungated()),
            identity: Garden(client(options)?.ungated()),
        };
        *garden = Some(clients.clone());
        Ok(clients)
    }
}

/// The seed's label in metrics.
const SEED: &str = "seed";

fn warn_of_weakness(cluster: &str, connection: &Connection) {
    if let Some(weakness) = connection.weakness() {
        log::warn!(cluster = cluster, weakness = weakness; "The connection is not protected against attackers in the network");
    }
}

fn options(env: &Environment, time: &GardenTime) -> Options {
    Options {
        peer: SEED,
        clock: env.clock.clone(),
        time: Some(time.clone()),
        dialer: env.dialer.clone(),
        proxy_env: env.proxies(),
        stop: env.stop.clone(),
        metrics: env.metrics.clone(),
        system_cas: env.system_cas(),
        ..Options::default()
    }
}

#[expect(clippy::cast_possible_truncation, reason = "a rate limit needs no more precision")]
fn limited(options: &Options, connection: &ClientConnection) -> Options {
    Options { qps: connection.qps as f32, burst: connection.burst, ..options.clone() }
}

/// Uses the configured kubeconfig, or the pod's ServiceAccount if none is configured.
pub(super) fn seed_connection(settings: &Settings, env: &Environment) -> Result<Connection, Error> {
    let seed = &settings.seed_client_connection;
    let kubeconfig = seed.kubeconfig.as_deref();
    let variable = |name: &str| env.variable(name).map(str::to_owned);
    let found = in_cluster::or_kubeconfig(kubeconfig, &seed.context, &variable, &env.service_account_dir);
    let place = kubeconfig.map(|path| path.display().to_string()).unwrap_or_default();
    found.map_err(|source| Error::Kubeconfig { cluster: "seed", place, source })?.ok_or(Error::NoSeed)
}

pub(super) fn load(cluster: &'static str, path: &Path) -> Result<Connection, Error> {
    let read = kubeconfig::load(&[path.to_owned()]).and_then(|config| config.current());
    read.map_err(|source| Error::Kubeconfig { cluster, place: path.display().to_string(), source })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_write_outlives_the_lease_under_which_it_began() {
        let s = Duration::from_secs;
        let table = [(15, 10, 5, 10), (60, 40, 5, 25), (9, 6, 3, 6)];
        for (lease, renew, deadline, timeout) in table {
            let election = LeaderElection {
                leader_elect: true,
                lease_duration: s(lease),
                renew_deadline: s(renew),
                retry_period: s(2),
                renew_period: s(4),
                resource_name: String::new(),
                resource_namespace: String::new(),
            };
            assert_eq!((write_deadline(&election), write_timeout(&election)), (s(deadline), s(timeout)));
            // A write starts at the latest when `deadline` is left of the renew deadline.
            assert!(s(renew) - s(deadline) + s(timeout) <= s(lease));
            let alone = LeaderElection { leader_elect: false, ..election };
            assert_eq!(write_timeout(&alone), Duration::MAX);
        }
    }
}
