//! Maintains the identity for the garden from the first connection on, independently of the other stages. It renews the
//! certificate in time, bootstraps a new one when the garden refuses the present one, and follows the garden's CAs.

use std::path::Path;
use std::time::Duration;

use crate::api::gardener::SEED;
use crate::app::AgentContext;
use crate::app::controllers::RunningControllers;
use crate::app::status::complain;
use crate::base::backoff::Backoff;
use crate::base::clock::{Mono, Timestamp};
use crate::base::error::chain;
use crate::base::redact;
use crate::deployer::token;
use crate::format::duration;
use crate::format::time::rfc3339;
use crate::identity::bootstrap::{BootstrapProgress, IdentitySources};
use crate::identity::rotation::{self, KubeconfigRotation, KubeconfigValidity};
use crate::identity::secret::{self, KubeconfigOperation};
use crate::identity::trial::{self, IdentityRefusals};
use crate::identity::{self, cleanup};
use crate::kube::Connection;
use crate::runtime::events::{Event, InvolvedObject};

use super::trust::{CA_LOOK, CA_OVERLAP};
use super::{BringUp, Error, RETRY, StageResult, sources};

/// Name of this part on the status page: a certificate may fail while everything else works.
const PART: &str = "garden certificate";
/// Name of what remains of a bootstrap.
const LEFT: &str = "bootstrap credentials";
/// How often the agent tries to remove leftover credentials from the garden.
const LEFT_LOOK: Duration = Duration::from_secs(300);
/// Longest time between two tries to get a new identity: an operator may be supplying a credential right now.
const RETRY_MAX: Duration = Duration::from_secs(10);
/// Time between two tries of a refused identity.
const TRIAL: Duration = Duration::from_secs(3);
pub(super) const TRIAL_TIMEOUT: Duration = Duration::from_secs(5);

/// The rotation, and when it is checked next.
pub(super) struct CertificateRotation {
    rotation: KubeconfigRotation,
    due: Mono,
    retry: Backoff,
    pub(super) refusals: IdentityRefusals,
    /// The number of 401 responses that the garden's clients had seen at the last check.
    unauthorized: u64,
    /// A handshake failed because of an identity, the server's or ours.
    pub(super) in_doubt: bool,
    /// The bootstrap credentials of a new identity still exist.
    clean_up: bool,
    /// When the credentials that are left over are looked at next.
    left_due: Mono,
    pub(super) ca_due: Mono,
    pub(super) narrow_at: Mono,
}

impl CertificateRotation {
    /// `None` if there is no Secret to keep a certificate in.
    pub(super) fn new(shared: &AgentContext, connection: Option<&Connection>) -> Option<Self> {
        let settings = &shared.settings.garden_client_connection;
        let secret = settings.kubeconfig_secret.as_ref()?;
        let rotation = KubeconfigRotation::new(
            shared.env.clock.clone(),
            shared.time.garden_clock(),
            shared.state.clone(),
            secret.key(),
            KubeconfigValidity {
                validity: settings.validity,
                jitter_percent_min: settings.auto_rotation_jitter_percentage_min,
                jitter_percent_max: settings.auto_rotation_jitter_percentage_max,
            },
            connection?,
        )
        .ok()?;
        shared.status.stage(PART, "watched");
        let now = shared.env.clock.mono();
        Some(Self {
            rotation,
            due: Mono::default(),
            retry: Backoff::new(RETRY.0, RETRY_MAX),
            refusals: IdentityRefusals::default(),
            unauthorized: shared.clients.unauthorized.wakes(),
            in_doubt: false,
            clean_up: false,
            left_due: now.saturating_add(LEFT_LOOK),
            ca_due: now.saturating_add(CA_LOOK),
            narrow_at: now.saturating_add(CA_OVERLAP),
        })
    }
}

impl CertificateRotation {
    /// Keeps the same identity with other CAs.
    pub(super) fn adopted(&mut self, connection: &Connection) -> Result<(), Error> {
        Ok(self.rotation.adopted(connection)?)
    }
}

/// Whether the error means that a due renewal failed. The keeper explains failures of a bootstrap itself. Upstream
/// emits no event for other errors.
const fn is_rotation(error: &Error) -> bool {
    matches!(error, Error::Explained { .. } | Error::Identity(identity::Error::Renew { .. }))
}

/// The event's text, in upstream's words. The remaining time is rounded down so that repeated events of one
/// failure are counted as one.
fn rotation_failed(not_after: Timestamp, now: Timestamp, cause: &str) -> String {
    let left = not_after.unix().saturating_sub(now.unix());
    let unit = if left.abs() < 7_200 { 60 } else { 3_600 };
    let left = duration::format_nanos((left / unit * unit).saturating_mul(1_000_000_000));
    let until = rfc3339(not_after).replace('T', " ").replace('Z', " +0000 UTC");
    format!(
        "Failed to rotate the kubeconfig for the Garden API Server. Certificate expires in {left} ({until}): {cause}"
    )
}

impl BringUp {
    /// Runs a step of the rotation if one is due. Returns the time until the next step.
    pub(super) fn keep_certificate(&mut self, running: Option<&RunningControllers>) -> Duration {
        let Some(mut keeper) = self.keeper.take() else { return rotation::LOOK };
        let now = self.shared.env.clock.mono();
        if now >= keeper.due || keeper.in_doubt {
            let wait = self.keep(&mut keeper, running);
            keeper.due = self.shared.env.clock.mono().saturating_add(wait);
        }
        let left = keeper.due.saturating_sub(self.shared.env.clock.mono());
        self.keeper = Some(keeper);
        left
    }

    /// Emits an event of the Seed if the garden can be reached.
    fn tell(&self, warning: bool, reason: &str, note: &str) {
        let (Ok(garden), shared) = (self.garden(), &self.shared) else { return };
        let (name, uid) = (self.seed_name(), shared.registration.uid());
        let about = InvolvedObject { resource: &SEED, namespace: "", name, uid: &uid };
        let news = Event { controller: "gardenlet", warning, reason, action: "Renew", note };
        shared.events.tell(&garden.controllers, &shared.env.clock, about, news);
    }

    /// Emits the event that Gardener's alerts look for: it is about the Seed, but recorded in the seed cluster.
    fn tell_as_upstream(&self, not_after: Timestamp, cause: &str) {
        let shared = &self.shared;
        let (name, uid) = (self.seed_name(), shared.registration.uid());
        let about = InvolvedObject { resource: &SEED, namespace: "", name, uid: &uid };
        let note = rotation_failed(not_after, shared.time.garden_clock().now(), cause);
        let news = Event {
            controller: "certificate-manager",
            warning: true,
            reason: "GardenletCertificateRotationFailed",
            action: "Reconcile",
            note: &note,
        };
        shared.events.tell(&shared.clients.seed, &shared.env.clock, about, news);
    }

    fn keep(&mut self, keeper: &mut CertificateRotation, running: Option<&RunningControllers>) -> Duration {
        let shared = self.shared.clone();
        match self.look(keeper, running) {
            Ok(after) => {
                keeper.retry.reset();
                if keeper.refusals.is_refused() { after.min(TRIAL) } else { after }
            }
            Err(error) => {
                complain(&shared.status, PART, &error);
                let until = rfc3339(keeper.rotation.current().not_after);
                let note = format!("the certificate is valid until {until}: {}", chain(&error));
                self.tell(true, "CertificateNotRenewed", &note);
                if is_rotation(&error) {
                    self.tell_as_upstream(keeper.rotation.current().not_after, &chain(&error));
                }
                error.delay(keeper.retry.next_delay())
            }
        }
    }

    fn look(
        &mut self,
        keeper: &mut CertificateRotation,
        running: Option<&RunningControllers>,
    ) -> Result<Duration, Error> {
        let shared = self.shared.clone();
        self.try_identity(keeper, running.is_some())?;
        let garden = self.garden()?.identity.clone();
        match keeper.rotation.step(&shared.clients.seed, &garden)? {
            rotation::RotationStep::Wait(after) => {
                if keeper.clean_up {
                    self.clean_up()?;
                    keeper.clean_up = false;
                }
                self.look_for_left(keeper);
                self.tell_problem();
                self.tell_left();
                self.follow_ca(keeper)?;
                Ok(after)
            }
            // A connection that cannot be used is offered again by the next step, with the Secret's content at that
            // time.
            rotation::RotationStep::Replace(connection) => self.exchange(keeper, &connection, running),
            rotation::RotationStep::Bootstrap => self.bootstrap_again(keeper, running),
        }
    }

    /// Reports what the agent itself can find out about the identity.
    pub(super) fn tell_problem(&self) {
        let status = &self.shared.status;
        status.doing(PART, "watched");
        let Some(cause) = self.identity_problem() else { return status.recovered(PART) };
        if status.problem(PART, &cause) {
            log::warn!(cause = cause.as_str(); "The identity for the garden has a problem");
        }
    }

    /// The stage: removes the credentials that bootstrapped the certificate.
    pub(super) fn clean_up(&mut self) -> Result<StageResult, Error> {
        let Some(connection) = &self.connection else { return Ok(StageResult::Done) };
        if self.shared.settings.edge.bootstrap_keep {
            return Ok(StageResult::Done);
        }
        let current = cleanup::certificate(connection)?;
        let IdentitySources { kubeconfig_secret, bootstrap_secret: bootstrap, .. } =
            sources(&self.shared.settings, &self.shared.env);
        if let Some(key) = &kubeconfig_secret
            && secret::load(&self.shared.clients.seed, key)?
                .is_some_and(|stored| stored.operation == KubeconfigOperation::Rebootstrap)
        {
            // Keep the credentials for the next identity: a recreated token has the same name.
            return Ok(StageResult::Done);
        }
        let garden = &self.garden()?.controllers;
        let seed = &self.shared.clients.seed;
        // Without this Secret, somebody else supplies the certificate.
        let own = kubeconfig_secret.map(|_| token::key("garden", self.seed_name()));
        let (bootstrap, own) = (bootstrap.as_ref(), own.as_ref());
        self.left = cleanup::remove_bootstrap_credentials(garden, seed, &current, bootstrap, own)?;
        self.tell_left();
        Ok(StageResult::Done)
    }

    /// Tries to remove leftover credentials again: somebody may have deleted them, or allowed the agent to do it.
    fn look_for_left(&mut self, keeper: &mut CertificateRotation) {
        let now = self.shared.env.clock.mono();
        if self.left.is_empty() || now < keeper.left_due {
            return;
        }
        keeper.left_due = now.saturating_add(LEFT_LOOK);
        if let Err(error) = self.clean_up() {
            log::debug!(err = chain(&error).as_str(); "Cannot look at the bootstrap credentials in the garden");
        }
    }

    /// Shows bootstrap credentials that still exist, unless they are meant to stay.
    pub(super) fn tell_left(&self) {
        let (status, settings) = (&self.shared.status, &self.shared.settings);
        let files = sources(settings, &self.shared.env).bootstrap_files;
        let files = files.iter().filter(|file| file.exists()).map(|file| left(file));
        let all: Vec<String> = self.left.iter().cloned().chain(files).collect();
        if settings.edge.bootstrap_keep || all.is_empty() {
            return status.forget(LEFT);
        }
        let all = all.join(", ");
        status.doing(
            LEFT,
            &format!("left over: {all}; delete them, unless you want the agent to use them again"),
        );
    }

    /// Switches to another identity.
    fn exchange(
        &mut self,
        keeper: &mut CertificateRotation,
        connection: &Connection,
        running: Option<&RunningControllers>,
    ) -> Result<Duration, Error> {
        let before = keeper.rotation.current().clone();
        self.adopt(connection.clone())?;
        keeper.rotation.adopted(connection)?;
        keeper.refusals = IdentityRefusals::default();
        self.shared.status.stage(PART, "watched");
        if *keeper.rotation.current() == before {
            let server = redact::url(&connection.server);
            log::info!(seed = self.seed_name(), server = &*server; "Using another address or trust for the garden");
            return Ok(Duration::ZERO);
        }
        log::info!(seed = self.seed_name(); "Using another certificate for the garden");
        let not_after = keeper.rotation.current().not_after;
        self.tell(
            false,
            "CertificateRenewed",
            &format!("another certificate, valid until {}", rfc3339(not_after)),
        );
        if let Some(running) = running {
            running.certificate_changed(not_after);
        }
        Ok(Duration::ZERO)
    }

    /// Checks with the garden whether it still accepts the identity, if there is doubt.
    fn try_identity(&mut self, keeper: &mut CertificateRotation, is_running: bool) -> Result<(), Error> {
        let shared = &self.shared;
        let expired = shared.time.garden_clock().now() >= keeper.rotation.current().not_after;
        let unauthorized = shared.clients.unauthorized.wakes();
        let silent = is_running && !shared.status.beat.is_healthy(&shared.env.clock);
        let in_doubt = std::mem::take(&mut keeper.in_doubt)
            || std::mem::replace(&mut keeper.unauthorized, unauthorized) != unauthorized;
        if !(in_doubt || expired || silent || keeper.refusals.is_refused()) {
            return Ok(());
        }
        let answer = self.garden()?.controllers.with_deadline(TRIAL_TIMEOUT).version();
        keeper.refusals.record(trial::judge(answer.as_ref().err()), shared.env.clock.mono());
        keeper.unauthorized = shared.clients.unauthorized.wakes();
        keeper.rotation.lost = keeper.refusals.is_final(expired, shared.env.clock.mono());
        Ok(())
    }

    /// What is wrong with the identity, as far as the agent can find out by itself.
    pub(super) fn identity_problem(&self) -> Option<String> {
        let connection = self.connection.as_ref()?;
        trial::examine(connection, self.shared.time.garden_clock().now())
    }

    /// Describes why an identity must be replaced.
    fn loss(&self, keeper: &CertificateRotation) -> String {
        if !keeper.rotation.lost {
            return "a new identity was asked for".to_owned();
        }
        self.identity_problem().unwrap_or_else(|| {
            let name = &keeper.rotation.current().subject.common_name;
            if keeper.refusals.is_untrusted() {
                "the garden's server shows a certificate of a CA that is not trusted; a bootstrap kubeconfig can bring \
                 the present CA"
                    .to_owned()
            } else {
                format!("the garden does not take the client certificate of {name} any more")
            }
        })
    }

    fn bootstrap_again(
        &mut self,
        keeper: &mut CertificateRotation,
        running: Option<&RunningControllers>,
    ) -> Result<Duration, Error> {
        let (shared, cause) = (self.shared.clone(), self.loss(keeper));
        let connect = |connection| shared.clients.garden_once(connection);
        let obtained = self.obtain.again(&shared.clients.seed, &connect);
        match obtained {
            Ok(BootstrapProgress::Waiting { after, what }) => {
                shared.status.doing(PART, &format!("waiting for {what}"));
                if shared.status.problem(PART, &cause) {
                    log::warn!(cause = cause.as_str(), what = what.as_str(); "Waiting for a new identity for the garden");
                }
                Ok(after)
            }
            Ok(BootstrapProgress::Ready(connection)) => {
                keeper.clean_up = true;
                let lost = keeper.rotation.lost;
                let wait = self.exchange(keeper, &connection, running)?;
                if lost {
                    // Not earlier: the garden accepts no event from an unknown client.
                    self.tell(true, "IdentityLost", &format!("another identity was needed: {cause}"));
                }
                Ok(wait)
            }
            Err(source) => {
                shared.status.doing(PART, "getting a new identity");
                Err(Error::Explained { cause, source: Box::new(source.into()) })
            }
        }
    }
}

/// A file that is left over. One that systemd hands over is a copy, and the unit does not start without its original.
fn left(file: &Path) -> String {
    match file.strip_prefix("/run/credentials").ok().and_then(Path::file_name) {
        Some(name) => format!(
            "credential {} of the service (remove its LoadCredential= before you delete the file that it names)",
            name.display()
        ),
        None => format!("file {}", file.display()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kube;

    #[test]
    fn only_a_certificate_that_was_due_is_a_failed_rotation() {
        let read = || identity::Error::kube("read secret s")(kube::Error::Limited);
        let connect =
            Error::Kube { operation: "connect to the garden".to_owned(), source: kube::Error::Limited };
        let lost = Error::Explained { cause: "lost".to_owned(), source: Box::new(read().into()) };
        let table = [
            (identity::Error::Renew { source: Box::new(read()) }.into(), true),
            (lost, true),
            (read().into(), false),
            (connect, false),
            (Error::Config("c".to_owned()), false),
        ];
        for (error, expected) in table {
            assert_eq!(is_rotation(&error), expected, "{error:?}");
        }
    }

    #[test]
    fn a_failed_renewal_is_told_in_upstreams_words() {
        let at =
            |unix| rotation_failed(Timestamp::from_unix(1_767_600_000), Timestamp::from_unix(unix), "denied");
        let told = |left: &str| {
            format!(
                "Failed to rotate the kubeconfig for the Garden API Server. Certificate expires in {left} \
                 (2026-01-05 08:00:00 +0000 UTC): denied"
            )
        };
        let table = [
            (1_767_600_000 - 90_061, "25h0m0s"),
            (1_767_600_000 - 90_000, "25h0m0s"),
            (1_767_600_000 - 3_700, "1h1m0s"),
            (1_767_600_000, "0s"),
            (1_767_600_000 + 100, "-1m0s"),
        ];
        for (now, left) in table {
            assert_eq!(at(now), told(left), "{now}");
        }
    }

    #[test]
    fn a_copy_that_systemd_hands_over_cannot_be_deleted() {
        let told = left(Path::new("/run/credentials/gardenlet.service/bootstrap-kubeconfig"));
        assert!(
            told.starts_with("credential bootstrap-kubeconfig of the service (remove its Load"),
            "{told}"
        );
        assert_eq!(left(Path::new("/etc/b.kubeconfig")), "file /etc/b.kubeconfig");
    }
}
