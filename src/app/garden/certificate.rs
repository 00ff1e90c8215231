//! Watching over the certificate for the garden, from the first registration on, whatever else stands still.

use std::time::Duration;

use crate::api::meta::Key;
use crate::app::Shared;
use crate::app::controllers::Running;
use crate::app::status::complain;
use crate::base::backoff::Backoff;
use crate::base::clock::Mono;
use crate::identity::rotation::{self, Rotation, Validity};
use crate::kube::Connection;

use super::{BringUp, RETRY};

/// Its name among the parts: a certificate may be in trouble while the rest is not.
const PART: &str = "garden certificate";

/// The rotation, and when it is looked at again.
pub(super) struct Keeper {
    rotation: Rotation,
    due: Mono,
    retry: Backoff,
}

impl Keeper {
    /// `None` without a Secret to keep a certificate in.
    pub(super) fn new(shared: &Shared, connection: Option<&Connection>) -> Option<Self> {
        let settings = &shared.settings.garden_client_connection;
        let secret = settings.kubeconfig_secret.as_ref()?;
        let rotation = Rotation::new(
            shared.env.clock.clone(),
            shared.state.clone(),
            Key::new(secret.namespace.clone(), secret.name.clone()),
            Validity {
                validity: settings.validity,
                jitter_percent_min: settings.auto_rotation_jitter_percentage_min,
                jitter_percent_max: settings.auto_rotation_jitter_percentage_max,
            },
            connection?,
        )
        .ok()?;
        shared.status.stage(PART, "watched");
        Some(Self { rotation, due: Mono::default(), retry: Backoff::new(RETRY.0, RETRY.1) })
    }
}

impl BringUp {
    /// A step of the rotation if one is due. Returns how long there is nothing to do.
    pub(super) fn keep_certificate(&mut self, running: Option<&Running>) -> Duration {
        let Some(mut keeper) = self.keeper.take() else { return rotation::LOOK };
        let now = self.shared.env.clock.mono();
        if now >= keeper.due {
            let wait = self.rotate(&mut keeper, running);
            keeper.due = self.shared.env.clock.mono().saturating_add(wait);
        }
        let left = keeper.due.saturating_sub(self.shared.env.clock.mono());
        self.keeper = Some(keeper);
        left
    }

    fn rotate(&mut self, keeper: &mut Keeper, running: Option<&Running>) -> Duration {
        let shared = self.shared.clone();
        let result = match self.garden() {
            Ok(garden) => {
                let step = keeper.rotation.step(&shared.clients.seed, &garden.controllers);
                step.map_err(super::Error::from)
            }
            Err(error) => Err(error),
        };
        // A connection that cannot be used is offered again by the next step, as the Secret describes it then.
        let result = result.and_then(|step| match step {
            rotation::Step::Wait(after) => Ok(after),
            rotation::Step::Replace(connection) => {
                self.adopt(connection.clone())?;
                keeper.rotation.adopted(&connection)?;
                log::info!(seed = self.seed_name(); "Using another certificate for the garden");
                if let Some(running) = running {
                    running.certificate_changed(keeper.rotation.current().not_after);
                }
                Ok(Duration::ZERO)
            }
        });
        match result {
            Ok(after) => {
                keeper.retry.reset();
                shared.status.recovered(PART);
                after
            }
            Err(error) => {
                complain(&shared.status, PART, &error);
                keeper.retry.next_delay()
            }
        }
    }
}
