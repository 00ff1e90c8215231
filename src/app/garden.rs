//! The garden side: a state machine from "who are we" to "controllers run", then the watch over the certificate.
//!
//! Every stage is idempotent and goes on from what it finds, so a crash or a failure at any point is made good by doing
//! the same again. The heartbeat starts as soon as there is an identity: renewing the lease comes first.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use crate::api::core::{CONFIG_MAP, ConfigMap, NAMESPACE, SECRET};
use crate::api::gardener::SEED;
use crate::api::meta::{Key, Metadata};
use crate::base::backoff::Backoff;
use crate::base::stop::Stop;
use crate::config::version::GARDENER;
use crate::controllers::seed::register::{self, Action};
use crate::format::yaml;
use crate::identity::bootstrap::{Obtain, Obtained, Sources};
use crate::identity::rotation::{self, Rotation, Validity};
use crate::identity::{self, cleanup};
use crate::kube::request::ListParams;
use crate::kube::{self, Connection, Patch};

use super::clients::GardenClients;
use super::networks::{self, Mismatch};
use super::status::complain;
use super::{Shared, controllers, host, versions};

const PART: &str = "garden";
/// After a failed stage: the first delay and the longest.
const RETRY: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));
/// How often to look for the seed's namespace.
const NAMESPACE_POLL: Duration = Duration::from_millis(500);

/// Why a stage does not get further.
#[derive(Debug)]
enum Error {
    Identity(identity::Error),
    Kube { operation: String, source: kube::Error },
    Version(String),
    Config(String),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Identity(_) => f.write_str("get an identity for the garden"),
            Self::Kube { operation, .. } => f.write_str(operation),
            Self::Version(what) | Self::Config(what) => f.write_str(what),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Identity(source) => Some(source),
            Self::Kube { source, .. } => Some(source),
            Self::Version(_) | Self::Config(_) => None,
        }
    }
}

impl From<identity::Error> for Error {
    fn from(source: identity::Error) -> Self {
        Self::Identity(source)
    }
}

fn failed(operation: impl Into<String>) -> impl FnOnce(kube::Error) -> Error {
    let operation = operation.into();
    move |source| Error::Kube { operation, source }
}

/// How a stage ended.
enum Step {
    Done,
    Again(Duration),
    /// Somebody else must do something first.
    Waiting(String, Duration),
}

/// The stages, in order. The names are shown to operators.
const STAGES: [(&str, Stage); 8] = [
    ("checking the configuration against the seed", BringUp::check_networks),
    ("getting an identity", BringUp::obtain),
    ("trusting the garden's CA", BringUp::refresh_ca),
    ("finding the way to the garden", BringUp::find_host),
    ("removing bootstrap credentials", BringUp::clean_up),
    ("comparing versions", BringUp::compare_versions),
    ("registering the seed", BringUp::register),
    ("waiting for the seed's namespace", BringUp::await_namespace),
];

type Stage = fn(&mut BringUp) -> Result<Step, Error>;

struct BringUp {
    shared: Arc<Shared>,
    stop: Stop,
    obtain: Obtain,
    /// As the kubeconfig says.
    connection: Option<Connection>,
    /// Where the garden is from here, if not where the kubeconfig says.
    host: Option<&'static str>,
    garden: Option<GardenClients>,
    heartbeat: Option<std::thread::JoinHandle<()>>,
}

/// Runs until `stop`.
pub(super) fn run(shared: &Arc<Shared>, stop: &Stop) {
    let mut bring_up = BringUp::new(shared, stop);
    let finished = STAGES.iter().all(|(name, stage)| bring_up.until_done(name, *stage));
    if finished {
        bring_up.govern();
    }
    if let Some(heartbeat) = bring_up.heartbeat.take() {
        super::join("heartbeat", heartbeat);
    }
    shared.status.progress.end(PART);
}

impl BringUp {
    fn new(shared: &Arc<Shared>, stop: &Stop) -> Self {
        let settings = &shared.settings.garden_client_connection;
        let key =
            |s: &crate::config::settings::SecretReference| Key::new(s.namespace.clone(), s.name.clone());
        let sources = Sources {
            kubeconfig_secret: settings.kubeconfig_secret.as_ref().map(key),
            bootstrap_secret: settings.bootstrap_kubeconfig.as_ref().map(key),
            kubeconfig_path: settings.connection.kubeconfig.clone(),
            keep_bootstrap: shared.settings.edge.bootstrap_keep,
        };
        let seed_name = shared.settings.seed_config.name.clone();
        let clock = shared.env.clock.clone();
        let obtain = Obtain::new(sources, seed_name, settings.validity, clock, shared.state.clone());
        Self {
            shared: Arc::clone(shared),
            stop: stop.clone(),
            obtain,
            connection: None,
            host: None,
            garden: None,
            heartbeat: None,
        }
    }

    /// Repeats a stage until it is done; false if the agent stops before.
    fn until_done(&mut self, name: &str, stage: Stage) -> bool {
        let shared = Arc::clone(&self.shared);
        let mut backoff = Backoff::new(RETRY.0, RETRY.1);
        shared.status.stage(PART, name);
        log::info!(stage = name; "Bringing up the garden side");
        while !self.stop.is_stopped() {
            // A stage makes a few requests; each has its deadline.
            shared.status.progress.beat(PART, Duration::from_secs(600));
            let wait = match stage(self) {
                Ok(Step::Done) => {
                    shared.status.recovered(PART);
                    return true;
                }
                Ok(Step::Again(after)) => {
                    shared.status.recovered(PART);
                    backoff.reset();
                    after
                }
                Ok(Step::Waiting(why, after)) => {
                    if shared.status.problem(PART, &why) {
                        log::info!(stage = name, why = why.as_str(); "Waiting for the garden");
                    }
                    backoff.reset();
                    after
                }
                Err(error) => {
                    complain(&shared.status, PART, &error);
                    backoff.next_delay()
                }
            };
            self.stop.wait(&shared.env.clock, wait);
        }
        false
    }

    fn seed_name(&self) -> &str {
        &self.shared.settings.seed_config.name
    }

    fn garden(&self) -> Result<&GardenClients, Error> {
        self.garden.as_ref().ok_or_else(|| Error::Config("there is no connection to the garden".to_owned()))
    }

    /// The configured networks must be the seed's.
    fn check_networks(&mut self) -> Result<Step, Error> {
        let networks = &self.shared.settings.seed_config.spec["networks"];
        match networks::check(&self.shared.clients.seed, networks) {
            Ok(()) => Ok(Step::Done),
            Err(Mismatch::Differs(why)) => Err(Error::Config(why)),
            Err(Mismatch::Kube(operation, source)) => Err(failed(operation)(source)),
        }
    }

    fn obtain(&mut self) -> Result<Step, Error> {
        let shared = Arc::clone(&self.shared);
        let connect = |connection| shared.clients.garden_once(connection);
        match self.obtain.step(&shared.clients.seed, &connect)? {
            Obtained::Waiting { after, what } => {
                shared.status.stage(PART, &format!("getting an identity: waiting for {what}"));
                Ok(Step::Again(after))
            }
            Obtained::Ready(connection) => {
                cleanup::certificate(&connection)?;
                self.adopt(connection)?;
                Ok(Step::Done)
            }
        }
    }

    /// From now on the garden is reached over this connection.
    fn adopt(&mut self, connection: Connection) -> Result<(), Error> {
        let mut used = connection.clone();
        if let Some(host) = self.host {
            host.clone_into(&mut used.server);
        }
        let clients = self.shared.clients.use_garden(&used).map_err(failed("connect to the garden"))?;
        self.connection = Some(connection);
        if self.heartbeat.is_none() {
            self.heartbeat = controllers::start_heartbeat(&self.shared, &clients, &self.stop);
        }
        self.garden = Some(clients);
        Ok(())
    }

    fn refresh_ca(&mut self) -> Result<Step, Error> {
        let Some(connection) = self.connection.clone() else { return Ok(Step::Done) };
        let refreshed = cleanup::refreshed(&self.garden()?.controllers, &connection)?;
        if let Some(connection) = refreshed {
            if let Some(secret) = &self.shared.settings.garden_client_connection.kubeconfig_secret {
                let key = Key::new(secret.namespace.clone(), secret.name.clone());
                cleanup::store_refreshed(&self.shared.clients.seed, &key, &connection)?;
            }
            log::info!("The garden's CA has changed");
            self.adopt(connection)?;
        }
        Ok(Step::Done)
    }

    fn find_host(&mut self) -> Result<Step, Error> {
        let found = host::inside(&self.shared.clients.seed);
        self.host = found.map_err(failed("look for a garden in the seed cluster"))?;
        if let (Some(host), Some(connection)) = (self.host, self.connection.clone()) {
            log::info!(server = host; "The garden is in the seed cluster");
            self.adopt(connection)?;
        }
        Ok(Step::Done)
    }

    fn clean_up(&mut self) -> Result<Step, Error> {
        let Some(connection) = &self.connection else { return Ok(Step::Done) };
        if self.shared.settings.edge.bootstrap_keep {
            return Ok(Step::Done);
        }
        let current = cleanup::certificate(connection)?;
        let bootstrap = self.shared.settings.garden_client_connection.bootstrap_kubeconfig.as_ref();
        let bootstrap = bootstrap.map(|s| Key::new(s.namespace.clone(), s.name.clone()));
        let garden = &self.garden()?.controllers;
        cleanup::remove_bootstrap_credentials(
            garden,
            &self.shared.clients.seed,
            &current,
            bootstrap.as_ref(),
        )?;
        Ok(Step::Done)
    }

    fn compare_versions(&mut self) -> Result<Step, Error> {
        if self.shared.env.variable(versions::SWITCH) != Some("true") {
            for (cluster, client) in
                [("garden", &*self.garden()?.controllers), ("seed", &*self.shared.clients.seed)]
            {
                let version =
                    client.version().map_err(failed(format!("read the version of the {cluster}")))?;
                versions::check_kubernetes(cluster, &version.git_version).map_err(Error::Version)?;
            }
        }
        let (namespace, name) = ("gardener-system-public", "gardener-info");
        let info = self
            .garden()?
            .controllers
            .get::<ConfigMap>(&CONFIG_MAP, namespace, name)
            .map_err(failed(format!("read config map {namespace}/{name} of the garden")))?;
        let text = info.data.get("gardenerAPIServer").map(String::as_str).unwrap_or_default();
        let info = yaml::parse(text).unwrap_or_default();
        let theirs = info["version"].as_str().unwrap_or_default();
        versions::check_skew(GARDENER, theirs).map_err(Error::Version)?;
        Ok(Step::Done)
    }

    fn register(&mut self) -> Result<Step, Error> {
        let config = &self.shared.settings.seed_config;
        let garden = &self.garden()?.controllers;
        let wrong = || failed(format!("register Seed {}", config.name));
        let live = garden.find::<Value>(&SEED, "", &config.name).map_err(wrong())?;
        match register::decide(live.as_ref(), config) {
            Action::Nothing => {}
            Action::Create(object) => {
                garden.create::<Value>(&SEED, "", &object).map_err(wrong())?;
                log::info!(seed = config.name.as_str(); "Registered the Seed");
            }
            Action::Patch(patch) => {
                garden.patch::<Value>(&SEED, "", &config.name, "", &Patch::Merge(patch)).map_err(wrong())?;
                log::info!(seed = config.name.as_str(); "Brought the Seed to its configuration");
            }
        }
        Ok(Step::Done)
    }

    /// The garden makes it; until its authorizer knows the new Seed, the answer is 403.
    fn await_namespace(&mut self) -> Result<Step, Error> {
        let name = register::namespace_name(self.seed_name());
        let garden = &self.garden()?.controllers;
        match garden.get::<Metadata>(&NAMESPACE, "", &name) {
            Ok(_) => self.default_domains(&name).map(|()| Step::Done),
            Err(e) if e.is_not_found() || e.is_denied() => {
                Ok(Step::Waiting(format!("namespace {name} is not there yet: {e}"), NAMESPACE_POLL))
            }
            Err(e) => Err(failed(format!("read namespace {name} of the garden"))(e)),
        }
    }

    /// Without `dns.defaults`, the garden's default domains become the Seed's.
    fn default_domains(&self, namespace: &str) -> Result<(), Error> {
        let garden = &self.garden()?.controllers;
        let wrong = || failed("fill in the Seed's default domains");
        let seed = garden.get::<Value>(&SEED, "", self.seed_name()).map_err(wrong())?;
        if seed.pointer("/spec/dns/defaults").is_some_and(|d| !d.is_null()) {
            return Ok(());
        }
        let params = ListParams {
            label_selector: "gardener.cloud/role=default-domain".to_owned(),
            metadata_only: true,
            ..ListParams::default()
        };
        let mut secrets = Vec::new();
        garden
            .list_all::<Metadata>(&SECRET, namespace, &params, &mut |secret| secrets.push(secret))
            .map_err(wrong())?;
        let defaults = domains(secrets);
        if defaults.is_empty() {
            return Ok(());
        }
        let patch = Patch::Merge(json!({"spec": {"dns": {"defaults": defaults}}}));
        garden.patch::<Value>(&SEED, "", self.seed_name(), "", &patch).map_err(wrong()).map(drop)
    }

    /// Starts the controllers, then watches over the certificate.
    fn govern(&mut self) {
        let Ok(garden) = self.garden().cloned() else { return };
        let certificate = self.connection.as_ref().and_then(|c| cleanup::certificate(c).ok());
        let running =
            controllers::start_garden(&self.shared, &garden, &self.stop, certificate.map(|c| c.not_after));
        self.shared.status.stage(PART, "running");
        log::info!("The garden side runs");
        self.rotate(&garden, &running);
        running.end();
    }

    fn rotate(&mut self, garden: &GardenClients, running: &controllers::Running) {
        let shared = Arc::clone(&self.shared);
        let settings = &shared.settings.garden_client_connection;
        let rotation = match (&settings.kubeconfig_secret, &self.connection) {
            (Some(secret), Some(connection)) => Rotation::new(
                shared.env.clock.clone(),
                shared.state.clone(),
                Key::new(secret.namespace.clone(), secret.name.clone()),
                Validity {
                    validity: settings.validity,
                    jitter_percent_min: settings.auto_rotation_jitter_percentage_min,
                    jitter_percent_max: settings.auto_rotation_jitter_percentage_max,
                },
                connection,
            )
            .ok(),
            _ => None,
        };
        let Some(mut rotation) = rotation else {
            shared.status.progress.end(PART);
            while !self.stop.wait(&shared.env.clock, Duration::from_secs(3_600)) {}
            return;
        };
        while !self.stop.is_stopped() {
            shared.status.progress.beat(PART, Duration::from_secs(600));
            let wait = match rotation.step(&shared.clients.seed, &garden.controllers) {
                Ok(rotation::Step::Wait(after)) => {
                    shared.status.recovered(PART);
                    after
                }
                Ok(rotation::Step::Replace(connection)) => {
                    if let Err(error) = self.adopt(connection) {
                        complain(&shared.status, PART, &error);
                    }
                    running.certificate_changed(rotation.current().not_after);
                    Duration::ZERO
                }
                Err(error) => {
                    complain(&shared.status, PART, &error);
                    rotation::LOOK
                }
            };
            self.stop.wait(&shared.env.clock, wait);
        }
    }
}

/// Default domains from the garden's Secrets, the most important first.
fn domains(mut secrets: Vec<Metadata>) -> Vec<Value> {
    let annotation =
        |m: &Metadata, name: &str| m.metadata.annotations.get(&format!("dns.gardener.cloud/{name}")).cloned();
    let priority = |m: &Metadata| {
        annotation(m, "domain-default-priority").and_then(|p| p.parse::<i64>().ok()).unwrap_or(0)
    };
    secrets.sort_by(|a, b| priority(b).cmp(&priority(a)).then_with(|| a.metadata.name.cmp(&b.metadata.name)));
    let entry = |m: &Metadata| {
        let mut entry = json!({
            "type": annotation(m, "provider")?,
            "domain": annotation(m, "domain")?,
            "credentialsRef": {"apiVersion": "v1", "kind": "Secret", "namespace": "garden", "name": m.metadata.name},
        });
        if let Some(zone) = annotation(m, "zone") {
            entry["zone"] = json!(zone);
        }
        Some(entry)
    };
    secrets.iter().filter_map(entry).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn default_domains_come_by_priority() {
        let secret = |name: &str, priority: &str, zone: Option<&str>| {
            let mut secret = Metadata::default();
            secret.metadata.name = name.to_owned();
            let mut set = |key: &str, value: &str| {
                secret.metadata.annotations.insert(format!("dns.gardener.cloud/{key}"), value.to_owned());
            };
            set("provider", "local");
            set("domain", &format!("{name}.example.org"));
            set("domain-default-priority", priority);
            if let Some(zone) = zone {
                set("zone", zone);
            }
            secret
        };
        let found = domains(vec![secret("a", "1", None), secret("b", "10", Some("z")), Metadata::default()]);
        let reference =
            |name: &str| json!({"apiVersion": "v1", "kind": "Secret", "namespace": "garden", "name": name});
        assert_eq!(
            found,
            [
                json!({"type": "local", "domain": "b.example.org", "zone": "z", "credentialsRef": reference("b")}),
                json!({"type": "local", "domain": "a.example.org", "credentialsRef": reference("a")}),
            ]
        );
    }
}
