//! The state that the tasks of an operation share.

use std::fmt;
use std::sync::Arc;

use serde_json::Value;

use crate::api::gardener::{ControllerInstallation, ControllerRegistration};
use crate::api::meta::Key;
use crate::base::clock::{Clock, Timestamp};
use crate::base::sorted::{SortedMap, SortedSet};
use crate::components::images::Images;
use crate::config::settings::Settings;
use crate::deployer::ParentAgent;
use crate::extension::ExtensionObject;
use crate::flow::Failed;
use crate::kube::{Garden, Seed};
use crate::pki::keys::RsaKeys;
use crate::resources::ManagedResourceHead;
use crate::runtime::store::Store;
use crate::secrets::{self, Secrets, SecretsLocation};
use crate::shoot::cleaner::CleanupSweep;
use crate::shoot::client::ShootConnector;
use crate::shoot::rewrite::EncryptionRewrite;
use crate::shoot::rewrite::accounts::AccountSecretsRotation;
use crate::shoot::secrets::{ShootSecrets, clean_up};
use crate::shoot::served::ServedShoots;
use crate::shoot::{Outside, ShootView};

use super::facts::Facts;
use super::inputs::GardenInputs;
use super::results::Results;

/// The manager of a Shoot's Secrets, as in upstream.
const IDENTITY: &str = "gardenlet";

/// What the operations on all Shoots of a seed use.
pub(crate) struct Environment {
    pub(crate) garden: Garden,
    pub(crate) seed: Seed,
    pub(crate) settings: Arc<Settings>,
    /// The installations of this seed.
    pub(crate) installations: Store<ControllerInstallation>,
    pub(crate) registrations: Store<ControllerRegistration>,
    /// The ManagedResources of the seed.
    pub(crate) managed: Store<ManagedResourceHead>,
    /// It generates the RSA keys.
    pub keys: Arc<dyn RsaKeys>,
    /// The images of control planes.
    pub(crate) images: Images,
    /// Facts about the agent's own pod.
    pub(crate) parent: ParentAgent,
    /// Makes clients of Shoots.
    pub(crate) connector: ShootConnector,
    /// The clusters of Shoots that the applier serves.
    pub(crate) served: ServedShoots,
}

impl fmt::Debug for Environment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Environment").field("seed", &self.settings.seed_config.name).finish_non_exhaustive()
    }
}

impl Environment {
    pub(super) fn registered(&self) -> Vec<Arc<ControllerRegistration>> {
        self.registrations.values()
    }
}

/// The state of an operation on a Shoot.
pub(crate) struct Work {
    pub(super) env: Arc<Environment>,
    /// The Shoot at the start of the operation.
    pub(super) shoot: Value,
    pub(super) view: ShootView,
    pub(super) facts: Facts,
    pub(super) inputs: GardenInputs,
    pub(super) place: SecretsLocation,
    /// The Secrets that this operation has read and asked for.
    pub(super) session: Option<Secrets>,
    pub(super) results: Results,
    /// The garden objects that the settings of the API server refer to are gone: it keeps its settings.
    pub(super) keeps_server: bool,
    /// The generations of ManagedResources that this operation has written or found correct, by name.
    pub(super) generations: SortedMap<String, i64>,
    /// Extension objects that this operation has written, if it writes them once.
    pub(super) written: SortedSet<ExtensionObject>,
    /// Objects to rewrite because their encryption changes.
    pub(super) rewrite: EncryptionRewrite,
    /// ServiceAccounts whose tokens are renewed.
    pub(super) accounts: AccountSecretsRotation,
    /// How far the deletion of the content of the cluster is.
    pub(super) sweeps: Vec<CleanupSweep>,
}

impl fmt::Debug for Work {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Work").field("shoot", &self.key()).field("facts", &self.facts).finish_non_exhaustive()
    }
}

impl Work {
    /// The state at the start of an operation.
    pub(crate) fn new(
        env: Arc<Environment>,
        shoot: Value,
        view: ShootView,
        facts: Facts,
        inputs: GardenInputs,
        clock: Clock,
    ) -> Self {
        let place = SecretsLocation {
            client: env.seed.clone(),
            namespace: view.technical_id.clone(),
            identity: IDENTITY.to_owned(),
            keys: Arc::clone(&env.keys),
            clock,
        };
        Self {
            env,
            shoot,
            view,
            facts,
            inputs,
            place,
            session: None,
            results: Results::default(),
            keeps_server: false,
            generations: SortedMap::new(),
            written: SortedSet::new(),
            rewrite: EncryptionRewrite::default(),
            accounts: AccountSecretsRotation::default(),
            sweeps: Vec::new(),
        }
    }

    /// The key of the Shoot.
    pub(crate) fn key(&self) -> Key {
        Key::new(self.view.namespace.as_str(), self.view.name.as_str())
    }

    /// The Shoot at the start of the operation, with what the operation has written to its status.
    pub(crate) const fn shoot(&self) -> &Value {
        &self.shoot
    }

    /// What decides which tasks are needed.
    pub(crate) const fn facts(&self) -> &Facts {
        &self.facts
    }

    /// What was read from the garden for the operation.
    pub(crate) const fn inputs(&self) -> &GardenInputs {
        &self.inputs
    }

    /// Deletes Secrets that this operation did not request.
    pub(crate) fn clean_up(&mut self) -> Result<(), secrets::Error> {
        match &mut self.session {
            Some(session) => clean_up(session),
            None => Ok(()),
        }
    }

    /// The namespace of the control plane.
    pub(super) fn plane(&self) -> &str {
        &self.view.technical_id
    }

    pub(super) fn now(&self) -> Timestamp {
        self.place.clock.now()
    }

    pub(super) fn secrets(&self) -> Result<&ShootSecrets, Failed> {
        self.results.secrets.need("the Secrets of the Shoot do not exist yet")
    }

    /// The address of the API server outside the seed, once it is known.
    pub(super) const fn outside(&self) -> Option<&Outside> {
        self.results.outside.get()
    }
}
