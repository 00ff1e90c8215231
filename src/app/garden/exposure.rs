//! Whether clients reach Shoots at the configured address.

use std::time::Duration;

use crate::base::error::chain;
use crate::components::exposure;

use super::BringUp;

/// Name of the address of Shoots on the status page.
const PART: &str = "exposure";
/// How often the address is compared with those of the nodes.
const LOOK: Duration = Duration::from_secs(3_600);
/// The same, after the nodes could not be read.
const RETRY: Duration = Duration::from_secs(60);

impl BringUp {
    /// Warns if clients may not reach Shoots at the configured address. A router or a load balancer may lead to the nodes, so
    /// only an address that leads nowhere is a problem. The agent continues.
    pub(super) fn doubt_exposure(&mut self) {
        let (status, now) = (&self.shared.status, self.shared.env.clock.mono());
        let settings = &self.shared.settings.edge.exposure;
        if settings.address.is_none() || now < self.exposure_due {
            return;
        }
        let doubt = match exposure::examine(&self.shared.clients.seed, settings) {
            Ok(found) => found.err(),
            Err(error) => {
                self.exposure_due = now.saturating_add(RETRY);
                log::info!(err = chain(&error).as_str(); "Cannot compare the address of Shoots with those of the nodes");
                return;
            }
        };
        self.exposure_due = now.saturating_add(LOOK);
        let Some(why) = doubt else { return status.forget(PART) };
        let is_news = if exposure::leads_nowhere(settings) {
            status.doing(PART, "in doubt");
            status.problem(PART, &format!("{why}; {}", exposure::ADDRESS_REMEDY))
        } else {
            status.doing(PART, &why)
        };
        if is_news {
            log::warn!(why = why.as_str(); "Clients may not reach Shoots at the configured address");
        }
    }
}
