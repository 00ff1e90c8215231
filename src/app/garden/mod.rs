//! The garden side: a state machine from finding an identity to running controllers, followed by the watch over
//! certificate and Seed.
//!
//! Every stage is idempotent and continues from what it finds, so the agent recovers from a crash or a failure by
//! running the same stage again. The heartbeat starts as soon as there is an identity, because renewing the lease has
//! priority. When the registered Seed is gone or replaced, the controllers end and the registration starts again.

mod certificate;
mod exposure;
mod handed;
mod registration;
mod trust;
mod withheld;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::base::backoff::Backoff;
use crate::base::clock::Mono;
use crate::base::random;
use crate::base::stop::Stop;
use crate::components::hosting;
use crate::config::settings::Settings;
use crate::config::version::GARDENER;
use crate::identity::bootstrap::{BootstrapProgress, IdentityBootstrap, IdentitySources};
use crate::identity::trial::{self, IdentityTrial};
use crate::identity::{self, cleanup};
use crate::kube::{self, Connection, ErrorVerdict};

use super::clients::GardenClients;
use super::networks::{self, Mismatch};
use super::status::{CertificateValidity, complain};
use super::{AgentContext, Environment, controllers, host, versions};

pub(super) const PART: &str = "garden";
/// The first and the longest delay after a failed stage.
const RETRY: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));
/// The first and the longest delay before a new registration. After a term of the longest delay, the delay
/// starts again with the first.
const EPISODES: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));
/// A stage makes a few requests; each has its deadline.
const PATIENCE: Duration = Duration::from_secs(600);

/// The longest delay for which a server's Retry-After is honoured.
const THROTTLED_MAX: Duration = Duration::from_secs(300);
/// Delay after a denied certificate request: each try leaves another request behind.
const DENIED: Duration = Duration::from_secs(20);
/// Agents that saw a garden outage spread their lists over this time.
const SPREAD: Duration = Duration::from_secs(5);

/// Why a stage cannot continue.
#[derive(Debug)]
enum Error {
    Identity(identity::Error),
    Kube {
        operation: String,
        source: kube::Error,
    },
    Version(String),
    Config(String),
    /// The same, with a cause that the error itself does not name.
    Explained {
        cause: String,
        source: Box<Error>,
    },
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Identity(_) => f.write_str("get an identity for the garden"),
            Self::Kube { operation, .. } => f.write_str(operation),
            Self::Version(what) | Self::Config(what) => f.write_str(what),
            Self::Explained { cause, .. } => f.write_str(cause),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Identity(source) => Some(source),
            Self::Kube { source, .. } => Some(source),
            Self::Explained { source, .. } => Some(&**source),
            Self::Version(_) | Self::Config(_) => None,
        }
    }
}

impl From<identity::Error> for Error {
    fn from(source: identity::Error) -> Self {
        Self::Identity(source)
    }
}

impl Error {
    /// The underlying error of the client, if there is one.
    fn client(&self) -> Option<&kube::Error> {
        match self {
            Self::Kube { source, .. } => Some(source),
            Self::Identity(source) => source.cause(),
            Self::Explained { source, .. } => source.client(),
            Self::Version(_) | Self::Config(_) => None,
        }
    }

    fn verdict(&self) -> Option<ErrorVerdict> {
        self.client().map(kube::Error::verdict)
    }

    /// Whether the error concerns an identity, ours or the server's.
    fn is_about_identity(&self) -> bool {
        self.client().is_some_and(|error| {
            matches!(trial::judge(Some(error)), IdentityTrial::Refused | IdentityTrial::Untrusted)
        })
    }

    /// Whether the garden, or the network to it, failed. Other agents saw the same and will reconnect at the same time.
    fn is_common(&self) -> bool {
        matches!(self.verdict(), Some(ErrorVerdict::Unreachable | ErrorVerdict::Throttled(_)))
    }

    /// Whether the garden explicitly refused the request.
    fn is_refusal(&self) -> bool {
        match self {
            Self::Identity(source) => source.is_refusal(),
            Self::Explained { source, .. } => source.is_refusal(),
            _ => false,
        }
    }

    /// When to try again: not before the server allows it, and later after a refusal.
    fn delay(&self, pause: Duration) -> Duration {
        match self.verdict() {
            Some(ErrorVerdict::Throttled(Some(after))) => after.min(THROTTLED_MAX) + pause,
            _ if self.is_refusal() => DENIED + pause,
            _ => pause,
        }
    }
}

/// How long to wait before the initial lists. A single agent does not wait, and no heartbeat waits.
fn spread(was_in_trouble: bool, unit: f64) -> Duration {
    if was_in_trouble { SPREAD.mul_f64(unit) } else { Duration::ZERO }
}

fn failed(operation: impl Into<String>) -> impl FnOnce(kube::Error) -> Error {
    let operation = operation.into();
    move |source| Error::Kube { operation, source }
}

/// How a stage ended.
enum StageResult {
    Done,
    Again(Duration),
    /// Another party must do something first.
    Waiting(String, Duration),
}

/// The stages, in order. The names are shown to operators.
const ACCESS: [(&str, Stage); 6] = [
    ("checking the configuration against the seed", BringUp::check_networks),
    ("getting an identity", BringUp::obtain),
    ("trusting the garden's CA", BringUp::refresh_ca),
    ("finding the garden's address", BringUp::find_host),
    ("removing bootstrap credentials", BringUp::clean_up),
    ("comparing versions", BringUp::compare_versions),
];
/// The stages that every Seed passes. A later Seed of the same name passes them again.
const REGISTRATION: [(&str, Stage); 2] = [
    ("registering the seed", BringUp::register),
    ("waiting for the seed's namespace", BringUp::await_namespace),
];

type Stage = fn(&mut BringUp) -> Result<StageResult, Error>;

struct BringUp {
    shared: Arc<AgentContext>,
    stop: Stop,
    obtain: IdentityBootstrap,
    /// The connection that the kubeconfig describes.
    connection: Option<Connection>,
    /// The garden's address as seen from here, if it differs from the kubeconfig.
    host: Option<&'static str>,
    garden: Option<GardenClients>,
    heartbeat: Option<std::thread::JoinHandle<()>>,
    /// The garden could not be reached, or returned Retry-After.
    was_in_trouble: bool,
    /// When the Seed was last seen by the registration.
    registered_at: Mono,
    /// When the Seed was last compared with the fact that its namespace is missing.
    told_at: Mono,
    keeper: Option<certificate::CertificateRotation>,
    withheld: withheld::Withheld,
    /// When the configured address of Shoots is compared with the nodes next.
    exposure_due: Mono,
    /// Bootstrap credentials that the agent may not remove.
    left: Vec<String>,
}

/// It runs until `stop` is set.
pub(super) fn run(shared: &Arc<AgentContext>, stop: &Stop) {
    let mut bring_up = BringUp::new(shared, stop);
    bring_up.forget_withheld();
    if bring_up.pass(&ACCESS) {
        bring_up.serve_seeds();
    }
    if let Some(heartbeat) = bring_up.heartbeat.take() {
        super::join("heartbeat", heartbeat);
    }
    shared.status.progress.end(PART);
}

impl BringUp {
    fn new(shared: &Arc<AgentContext>, stop: &Stop) -> Self {
        let settings = &shared.settings.garden_client_connection;
        let sources = sources(&shared.settings, &shared.env);
        let seed_name = shared.settings.seed_config.name.clone();
        let clock = shared.env.clock.clone();
        let obtain =
            IdentityBootstrap::new(sources, seed_name, settings.validity, clock, shared.state.clone());
        Self {
            shared: Arc::clone(shared),
            stop: stop.clone(),
            obtain,
            connection: None,
            host: None,
            garden: None,
            heartbeat: None,
            was_in_trouble: false,
            registered_at: Mono::default(),
            told_at: Mono::default(),
            keeper: None,
            withheld: withheld::Withheld::default(),
            exposure_due: Mono::default(),
            left: Vec::new(),
        }
    }

    /// Runs stages in order. Returns false if the agent stops before the last one.
    fn pass(&mut self, stages: &[(&str, Stage)]) -> bool {
        stages.iter().all(|(name, stage)| self.until_done(name, *stage))
    }

    /// Serves the Seed, and later Seeds of the same name.
    fn serve_seeds(&mut self) {
        let clock = self.shared.env.clock.clone();
        let mut again = Backoff::new(EPISODES.0, EPISODES.1);
        while self.pass(&REGISTRATION) {
            self.stop.wait(&clock, spread(std::mem::take(&mut self.was_in_trouble), random::unit()));
            let begun = clock.mono();
            self.govern();
            if clock.mono().saturating_sub(begun) >= EPISODES.1 {
                again.reset();
            }
            self.stop.wait(&clock, again.next_delay());
        }
    }

    /// Repeats a stage until it succeeds. Returns false if the agent stops first.
    fn until_done(&mut self, name: &str, stage: Stage) -> bool {
        let shared = Arc::clone(&self.shared);
        let mut backoff = Backoff::new(RETRY.0, RETRY.1);
        shared.status.stage(PART, name);
        log::info!(stage = name; "Bringing up the garden side");
        while !self.stop.is_stopped() {
            shared.status.progress.beat(PART, PATIENCE);
            let wait = match stage(self) {
                Ok(StageResult::Done) => {
                    shared.status.recovered(PART);
                    return true;
                }
                Ok(StageResult::Again(after)) => {
                    shared.status.recovered(PART);
                    backoff.reset();
                    after
                }
                Ok(StageResult::Waiting(why, after)) => {
                    if shared.status.problem(PART, &why) {
                        log::info!(stage = name, why = why.as_str(); "Waiting for the garden");
                    }
                    backoff.reset();
                    after
                }
                Err(error) => {
                    let error = self.explained(error);
                    complain(&shared.status, PART, &error);
                    self.was_in_trouble |= error.is_common();
                    error.delay(backoff.next_delay())
                }
            };
            let wait = wait.min(self.keep_certificate(None));
            self.stop.wait(&shared.env.clock, wait);
        }
        false
    }

    /// Adds what is wrong with our own identity if the server does not accept it.
    fn explained(&mut self, error: Error) -> Error {
        if self.connection.is_none() || !error.is_about_identity() {
            return error;
        }
        if let Some(keeper) = &mut self.keeper {
            keeper.in_doubt = true;
        }
        match self.identity_problem() {
            Some(cause) => Error::Explained { cause, source: Box::new(error) },
            None => error,
        }
    }

    fn seed_name(&self) -> &str {
        &self.shared.settings.seed_config.name
    }

    fn garden(&self) -> Result<&GardenClients, Error> {
        self.garden.as_ref().ok_or_else(|| Error::Config("there is no connection to the garden".to_owned()))
    }

    /// Checks that the configured networks match the seed's.
    fn check_networks(&mut self) -> Result<StageResult, Error> {
        let operation = "read namespace kube-system of the seed";
        if hosting::is_self_hosted_shoot(&self.shared.clients.seed).map_err(failed(operation))? {
            return Err(Error::Config(hosting::SELF_HOSTED.to_owned()));
        }
        let networks = &self.shared.settings.seed_config.spec["networks"];
        match networks::check(&self.shared.clients.seed, networks) {
            Ok(()) => {
                self.doubt_exposure();
                Ok(StageResult::Done)
            }
            Err(Mismatch::Differs(why)) => Err(Error::Config(why)),
            Err(Mismatch::Kube(operation, source)) => Err(failed(operation)(source)),
        }
    }

    fn obtain(&mut self) -> Result<StageResult, Error> {
        let shared = Arc::clone(&self.shared);
        let connect = |connection| shared.clients.garden_once(connection);
        match self.obtain.step(&shared.clients.seed, &connect)? {
            BootstrapProgress::Waiting { after, what } => {
                shared.status.stage(PART, &format!("getting an identity: waiting for {what}"));
                Ok(StageResult::Again(after))
            }
            BootstrapProgress::Ready(connection) => {
                cleanup::certificate(&connection)?;
                self.adopt(connection)?;
                self.keeper = certificate::CertificateRotation::new(&shared, self.connection.as_ref());
                // Before the first request, so that problems visible from here are reported by name.
                self.tell_problem();
                Ok(StageResult::Done)
            }
        }
    }

    /// Uses this connection for the garden from now on.
    fn adopt(&mut self, connection: Connection) -> Result<(), Error> {
        let clients = self
            .shared
            .clients
            .use_garden(&self.as_reached(&connection))
            .map_err(failed("connect to the garden"))?;
        self.shared.status.know("garden address", self.as_reached(&connection).server);
        let certificate = cleanup::certificate(&connection).ok();
        let validity =
            certificate.map(|it| CertificateValidity { begins: it.not_before, expires: it.not_after });
        self.shared.status.certificate(validity);
        self.connection = Some(connection);
        if self.heartbeat.is_none() {
            self.heartbeat = controllers::start_heartbeat(&self.shared, &clients, &self.stop);
        }
        self.garden = Some(clients);
        Ok(())
    }

    /// The connection with the server address as seen from here.
    fn as_reached(&self, connection: &Connection) -> Connection {
        let mut used = connection.clone();
        if let Some(host) = self.host {
            host.clone_into(&mut used.server);
        }
        used
    }

    fn find_host(&mut self) -> Result<StageResult, Error> {
        let found = host::inside(&self.shared.clients.seed);
        self.host = found.map_err(failed("check whether the garden runs in the seed cluster"))?;
        if let (Some(host), Some(connection)) = (self.host, self.connection.clone()) {
            log::info!(server = host; "The garden is in the seed cluster");
            self.adopt(connection)?;
        }
        Ok(StageResult::Done)
    }

    fn compare_versions(&mut self) -> Result<StageResult, Error> {
        if self.shared.env.variable(versions::SWITCH) != Some("true") {
            for (cluster, client) in
                [("garden", &*self.garden()?.controllers), ("seed", &*self.shared.clients.seed)]
            {
                let version =
                    client.version().map_err(failed(format!("read the version of the {cluster}")))?;
                let label = if cluster == "garden" { "garden Kubernetes" } else { "seed Kubernetes" };
                self.shared.status.know(label, version.git_version.as_str());
                versions::check_kubernetes(cluster, &version.git_version).map_err(Error::Version)?;
            }
        }
        let Some(info) = self.gardener_info()? else { return Ok(StageResult::Done) };
        let theirs = versions::gardener(&info);
        self.shared.status.know("garden version", &theirs);
        versions::check_skew(GARDENER, &theirs).map_err(Error::Version)?;
        Ok(StageResult::Done)
    }

    /// Starts the controllers and watches certificate and Seed until the registered Seed is gone or replaced.
    fn govern(&mut self) {
        let Ok(garden) = self.garden().cloned() else { return };
        let shared = Arc::clone(&self.shared);
        let episode = self.stop.child();
        let certificate = self.connection.as_ref().and_then(|c| cleanup::certificate(c).ok());
        let mut handed = self.handed();
        let running = controllers::start_garden(&shared, &garden, &episode, certificate.map(|c| c.not_after));
        shared.status.stage(PART, "running");
        log::info!("The garden side runs");
        while !episode.is_stopped() && !running.has_lost_its_seed() {
            shared.status.progress.beat(PART, PATIENCE);
            let wait = self.keep_certificate(Some(&running));
            self.hand_on(&mut handed, &running);
            self.read_again();
            self.doubt_exposure();
            episode.wait(&shared.env.clock, wait);
        }
        episode.stop();
        running.end();
    }
}

/// The possible sources of an identity.
pub(super) fn sources(settings: &Settings, env: &Environment) -> IdentitySources {
    IdentitySources::new(settings, &|name| env.variable(name).map(str::to_owned))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kube::error::StatusFailure;

    fn answered(code: u16, after_s: Option<u64>) -> Error {
        let retry_after = after_s.map(Duration::from_secs);
        let failure = StatusFailure { code, retry_after, ..StatusFailure::default() };
        failed("test")(kube::Error::Api(Box::new(failure)))
    }

    #[test]
    fn agents_spread_their_reconnects_and_honour_retry_after() {
        let s = Duration::from_secs;
        let refused = identity::Error::Refused { name: "r".to_owned(), how: "denied", why: String::new() };
        let denied = identity::Error::Bootstrap { place: "p".to_owned(), source: Box::new(refused) };
        let table = [
            (answered(429, Some(20)), true, 23),
            (answered(429, None), true, 3),
            (answered(503, Some(86_400)), true, 303),
            (answered(500, None), true, 3),
            (answered(403, Some(20)), false, 3),
            (Error::Config("c".to_owned()), false, 3),
            (identity::Error::kube("x")(kube::Error::Limited).into(), true, 3),
            (denied.into(), false, 23),
        ];
        for (error, is_common, delay_s) in table {
            assert_eq!((error.is_common(), error.delay(s(3))), (is_common, s(delay_s)), "{error:?}");
        }
        assert_eq!((spread(false, 0.9), spread(true, 0.0), spread(true, 1.0)), (s(0), s(0), s(5)));
    }
}
