//! What the controllers of a site share: its two clusters, the configuration, the agent's own identity, and the watches
//! that several of them need.

use std::fmt;
use std::sync::Arc;

use serde::Deserialize;
use serde_json::Value;

use crate::api::core::NAMESPACE;
use crate::api::extensions;
use crate::api::gardener::{
    BACKUP_BUCKET, CONTROLLER_INSTALLATION, CONTROLLER_REGISTRATION, ControllerInstallation,
    ControllerRegistration, SEED, SHOOT, Seed, ShootHead,
};
use crate::api::meta::{ALL_NAMESPACES, Key, ObjectMeta, Resource};
use crate::base::clock::Timestamp;
use crate::base::workers::Workers;
use crate::chart::child::Renderer;
use crate::components::images::Images;
use crate::config::settings::Settings;
use crate::deployer::ParentAgent;
use crate::extension::changed::ExtensionHead;
use crate::kube;
use crate::kube::request::ListParams;
use crate::oci::Puller;
use crate::pki::keys::RsaKeys;
use crate::resources::ManagedResourceHead;
use crate::runtime::group::ControllerGroup;
use crate::runtime::informer::{Options, PartialObject};
use crate::runtime::source::{Notice, WatchSource};
use crate::runtime::store::Change;
use crate::shoot;

// Their files, not their folders, because the controllers there import this file.
use super::lease::beat::LeaseHealth;
use super::seed::decide::Agent;
use super::seed::registration::SeedRegistration;
use super::token_requestor::shared::TokenRequestorState as Tokens;

pub(crate) struct Site {
    pub(crate) settings: Arc<Settings>,
    pub(crate) garden: kube::Garden,
    pub(crate) seed: kube::Seed,
    /// Our identity: the Seed's `status.gardener`.
    pub(crate) agent: Agent,
    /// The Seed that is served.
    pub(crate) registration: SeedRegistration,
    pub(crate) beat: LeaseHealth,
    /// A sentence for the messages of conditions, if there is something to report.
    pub(crate) remarks: Arc<dyn Fn() -> Option<String> + Send + Sync>,
    /// The expiry of the agent's certificate. The rotation replaces it.
    pub(crate) certificate_expiry: Arc<dyn Fn() -> Option<Timestamp> + Send + Sync>,
    /// Limits that requests and charts share.
    pub(crate) workers: Workers,
    pub(crate) renderer: Renderer,
    pub(crate) keys: Arc<dyn RsaKeys>,
    /// Pulls charts from registries.
    pub(crate) charts: Arc<Puller>,
    /// `EXPERIMENTAL_DISABLE_KUBERNETES_VERSION_CHECK`.
    pub(crate) any_version: bool,
    /// The Seed, and child seeds.
    pub(crate) seeds: WatchSource<Seed>,
    /// Installations of this seed.
    pub(crate) installations: WatchSource<ControllerInstallation>,
    pub(crate) registrations: WatchSource<ControllerRegistration>,
    /// The ManagedResources of the seed; watched while the agent leads.
    pub(crate) managed: WatchSource<ManagedResourceHead>,
    /// The images of control planes.
    pub(crate) images: Images,
    /// What an agent in a Shoot inherits.
    pub(crate) parent: ParentAgent,
    /// The namespaces of the seed; watched while the agent leads.
    pub(crate) namespaces: WatchSource<Namespace>,
    /// The Shoots of this seed.
    pub(crate) heads: WatchSource<ShootHead>,
    /// The BackupBuckets of this seed.
    pub(crate) buckets: WatchSource<ExtensionHead>,
    /// The extension objects of BackupEntries in the seed.
    pub(crate) entry_objects: WatchSource<ExtensionHead>,
    /// Clients of the clusters of Shoots, for operations.
    pub(crate) shoots: shoot::client::ShootConnector,
    /// The clusters of Shoots that the applier serves.
    pub(crate) served: shoot::ServedShoots,
    /// The state that all token requestors share.
    pub(crate) tokens: Tokens,
    /// Raised when the agent's certificate was replaced.
    pub(crate) certificate_changed: Notice,
    /// Raised when the garden has another address or other CAs, which extensions get.
    pub(crate) garden_moved: Notice,
}

impl fmt::Debug for Site {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Site").field("agent", &self.agent).finish_non_exhaustive()
    }
}

impl Site {
    /// The name of the Seed.
    pub(crate) fn seed_name(&self) -> &str {
        &self.settings.seed_config.name
    }

    /// The key of the Seed.
    pub(crate) fn seed_key(&self) -> Key {
        Key::cluster(self.seed_name())
    }

    /// Returns the served Seed from a change of Seeds, in its state after the change. It ignores child seeds, and a new
    /// Seed with the same name.
    pub(crate) fn own_seed(&self) -> impl Fn(&Change<Seed>) -> Option<&Seed> + use<> {
        let (own, registration) = (self.seed_key(), self.registration.clone());
        move |change| {
            change.new.as_deref().filter(|new| change.key == own && registration.is_of(&new.metadata.uid))
        }
    }
}

/// Starts the watches that several controllers need.
pub(crate) fn watch(site: &Site, group: &mut ControllerGroup) {
    let (garden, name) = (&site.garden, site.seed_name());
    // The list also contains child seeds.
    let own = Options {
        label_selector: format!("name.seed.gardener.cloud/{name}=true"),
        ..Options::all("garden/seeds", SEED)
    };
    group.watch(garden, own, &site.seeds);
    let ours = Options {
        field_selector: format!("spec.seedRef.name={name}"),
        ..Options::all("garden/controllerinstallations", CONTROLLER_INSTALLATION)
    };
    group.watch(garden, ours, &site.installations);
    let all = Options::all("garden/controllerregistrations", CONTROLLER_REGISTRATION);
    group.watch(garden, all, &site.registrations);
    let shoots = Options {
        label_selector: format!("name.seed.gardener.cloud/{name}=true"),
        ..Options::all("garden/shoots", SHOOT)
    };
    group.watch(garden, shoots, &site.heads);
    let buckets = Options {
        field_selector: format!("spec.seedName={name}"),
        ..Options::all("garden/backupbuckets", BACKUP_BUCKET)
    };
    group.watch(garden, buckets, &site.buckets);
    let objects = Options::all("seed/backupentries", extensions::BACKUP_ENTRY);
    group.watch(&site.seed, objects, &site.entry_objects);
}

/// A namespace of the seed.
#[derive(Debug, Deserialize)]
pub(crate) struct Namespace {
    pub(crate) metadata: ObjectMeta,
}

impl PartialObject for Namespace {
    fn metadata(&self) -> &ObjectMeta {
        &self.metadata
    }
}

/// Watches the namespaces of the seed, for controllers that need no garden.
pub(crate) fn watch_namespaces(
    seed: &kube::Client,
    namespaces: &WatchSource<Namespace>,
    group: &mut ControllerGroup,
) {
    let options = Options { metadata_only: true, ..Options::all("seed/namespaces", NAMESPACE) };
    group.watch(seed, options, namespaces);
}

/// A kind that exists only in a garden's own cluster.
const OPERATOR_GARDEN: Resource =
    Resource::new("operator.gardener.cloud", "v1alpha1", "Garden", "gardens", false);

/// Whether the seed cluster runs a garden of its own. Errors: a request fails. A missing kind is no error.
pub(crate) fn is_garden(seed: &kube::Client) -> Result<bool, kube::Error> {
    let one = ListParams { limit: 1, ..ListParams::default() };
    match seed.list::<Value>(&OPERATOR_GARDEN, ALL_NAMESPACES, &one) {
        Ok(list) => Ok(!list.items.is_empty()),
        Err(e) if e.is_not_found() => Ok(false),
        Err(e) => Err(e),
    }
}

impl PartialObject for Seed {
    fn metadata(&self) -> &ObjectMeta {
        &self.metadata
    }
}

impl PartialObject for ControllerInstallation {
    fn metadata(&self) -> &ObjectMeta {
        &self.metadata
    }
}

impl PartialObject for ControllerRegistration {
    fn metadata(&self) -> &ObjectMeta {
        &self.metadata
    }
}

impl PartialObject for ShootHead {
    fn metadata(&self) -> &ObjectMeta {
        &self.metadata
    }
}
