//! Which CAs the agent trusts for the garden. The kubeconfig in the Secret follows the CAs that the garden publishes. A
//! kubeconfig that an operator supplies stays unchanged, as in upstream.

use std::time::Duration;

use crate::api::meta::Key;
use crate::config::settings::SecretReference;
use crate::identity::{self, cleanup, secret};
use crate::kube::{self, Connection};

use super::certificate::{CertificateRotation, TRIAL_TIMEOUT};
use super::withheld::CA;
use super::{BringUp, Error, StageResult};

/// How often the garden's published CAs are read.
pub(super) const CA_LOOK: Duration = Duration::from_secs(300);
/// A CA that is not published any more stays trusted for at least this long, because servers change their certificates
/// one after the other.
pub(super) const CA_OVERLAP: Duration = Duration::from_secs(3_600);

/// Whether the garden answers but does not show its CA. The present CAs stay valid then. Any other
/// error needs another try.
fn is_withheld(error: &identity::Error) -> bool {
    match error {
        identity::Error::NoKubeconfig { .. } => true,
        other => matches!(other.cause().and_then(kube::Error::status_code), Some(403 | 404)),
    }
}

impl BringUp {
    /// The Secret with the kubeconfig, if there is one.
    fn kept(&self) -> Option<Key> {
        let secret = self.shared.settings.garden_client_connection.kubeconfig_secret.as_ref();
        secret.map(SecretReference::key)
    }

    /// Whether the agent may change the trusted CAs: the Secret holds the kubeconfig.
    fn owns_trust(&self) -> Result<bool, Error> {
        let Some(key) = self.kept() else { return Ok(false) };
        Ok(secret::load(&self.shared.clients.seed, &key)?.is_some())
    }

    /// The CAs that the garden publishes; `None` if the agent may not read them.
    fn published(&mut self) -> Result<Option<String>, Error> {
        match cleanup::published(&self.garden()?.controllers) {
            Ok(pem) => {
                self.given(CA);
                Ok(Some(pem))
            }
            Err(error) if is_withheld(&error) => {
                self.withheld(CA, &error);
                Ok(None)
            }
            Err(error) => Err(error.into()),
        }
    }

    /// The stage: adds the published CAs to the trusted ones.
    pub(super) fn refresh_ca(&mut self) -> Result<StageResult, Error> {
        let Some(connection) = self.connection.clone() else { return Ok(StageResult::Done) };
        if self.owns_trust()?
            && let Some(published) = self.published()?
            && let Some(connection) = cleanup::widened(&connection, &published)
        {
            self.store_trust(connection.clone())?;
            if let Some(keeper) = &mut self.keeper {
                keeper.adopted(&connection)?;
            }
        }
        Ok(StageResult::Done)
    }

    /// Trusts other CAs from now on.
    fn store_trust(&mut self, connection: Connection) -> Result<(), Error> {
        if let Some(key) = self.kept() {
            cleanup::store_refreshed(&self.shared.clients.seed, &key, &connection)?;
        }
        log::info!("The garden's CA has changed");
        self.adopt(connection)
    }

    /// Adds the published CAs to the trusted ones. After the overlap, it drops the older ones if the
    /// published ones are enough.
    pub(super) fn follow_ca(&mut self, keeper: &mut CertificateRotation) -> Result<(), Error> {
        let now = self.shared.env.clock.mono();
        if now < keeper.ca_due || keeper.refusals.is_refused() {
            return Ok(());
        }
        keeper.ca_due = now.saturating_add(CA_LOOK);
        let Some(connection) = self.connection.clone() else { return Ok(()) };
        if !self.owns_trust()? {
            return Ok(());
        }
        // Other parts report whether the garden can be reached.
        let Ok(Some(published)) = self.published() else { return Ok(()) };
        if let Some(wider) = cleanup::widened(&connection, &published) {
            keeper.narrow_at = now.saturating_add(CA_OVERLAP);
            return self.trust(keeper, &wider);
        }
        match cleanup::narrowed(&connection, &published) {
            Some(narrow) if now >= keeper.narrow_at && self.suffices(&narrow) => self.trust(keeper, &narrow),
            _ => Ok(()),
        }
    }

    /// Whether the garden can be reached with these CAs alone.
    fn suffices(&self, connection: &Connection) -> bool {
        let client = self.shared.clients.garden_once(self.as_reached(connection));
        client.is_ok_and(|client| client.with_deadline(TRIAL_TIMEOUT).version().is_ok())
    }

    fn trust(&mut self, keeper: &mut CertificateRotation, connection: &Connection) -> Result<(), Error> {
        self.store_trust(connection.clone())?;
        keeper.adopted(connection)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kube::error::StatusFailure;

    #[test]
    fn only_a_refusal_lets_the_agent_continue_without_the_published_ca() {
        let answered = |code| {
            let failure = StatusFailure { code, ..StatusFailure::default() };
            identity::Error::kube("read")(kube::Error::Api(Box::new(failure)))
        };
        let table = [
            (answered(403), true),
            (answered(404), true),
            (answered(401), false),
            (answered(429), false),
            (answered(503), false),
            (identity::Error::kube("read")(kube::Error::Stopped), false),
            (identity::Error::NoKubeconfig { place: "c".to_owned(), remedy: "r" }, true),
        ];
        for (error, expected) in table {
            assert_eq!(is_withheld(&error), expected, "{error:?}");
        }
    }
}
