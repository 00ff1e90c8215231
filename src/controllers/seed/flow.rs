//! The tasks that prepare the seed cluster, and their order (Gardener's `reconciler_reconcile.go`).
//!
//! A reconciliation without changes skips tasks that were done within the last hour: the cluster was correct then, and
//! the applier keeps it so. Upstream writes Extensions each minute, and so triggers their reconciliation each minute.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde_json::{Value, json};

use crate::api::core::{CONFIG_MAP, ConfigMap, DEPLOYMENT, NAMESPACE};
use crate::api::crd::CUSTOM_RESOURCE_DEFINITION;
use crate::api::gardener::{ControllerRegistration, OPERATION};
use crate::api::meta::{Key, Metadata, annotation, text};
use crate::api::resources::GARDEN_NAMESPACE;
use crate::backup;
use crate::base::backoff::delay_after;
use crate::base::clock::Mono;
use crate::base::sorted::SortedMap;
use crate::components::crds::Foreign;
use crate::components::managed::{self, Managed};
use crate::components::{cluster_identity, crds, install, scale, system, webhooks};
use crate::config::settings::ResourceManager;
use crate::controllers::Site;
use crate::controllers::site::is_garden;
use crate::extension::{EnabledExtension, ExtensionObject, required};
use crate::flow::{self, Attempt, Failed, Flow, TaskStep};
use crate::runtime::write;
use crate::secrets::{Secrets, SecretsLocation};

use super::decide;
use super::operations::{self, Operation};
use super::{authorities, extensions, garden_secrets, ingress, references};

/// The state of the tasks.
pub(super) struct Work {
    pub(super) site: Arc<Site>,
    /// The seed's API server can protect objects from deletion.
    pub(super) has_policies: bool,
    /// The Seed at the start of the flow.
    pub(super) live: Value,
    pub(super) zones: Vec<String>,
    /// The namespaces of the seed had their labels a few minutes ago.
    pub(super) is_labelled: bool,
    pub(super) cluster_identity: String,
    /// The generations of ManagedResources that this reconciliation has written or found correct, by name.
    pub(super) generations: SortedMap<String, i64>,
    /// Where the seed's Secrets are stored.
    pub(super) place: SecretsLocation,
    /// The Secrets that this reconciliation has requested.
    pub(super) secrets: Option<Secrets>,
    /// The Extension objects of this reconciliation.
    pub(super) wanted: Vec<EnabledExtension>,
    /// Extension objects that this reconciliation has deleted.
    pub(super) stale: Vec<ExtensionObject>,
    /// This reconciliation has found the ingress gateway and written its record.
    pub(super) has_record: bool,
}

impl Work {
    pub(super) fn registered(&self) -> Vec<Arc<ControllerRegistration>> {
        self.site.registrations.store().values()
    }

    /// Whether the configuration leaves a component to others.
    fn lacks(&self, component: &str) -> bool {
        self.site.settings.edge.components.is_disabled(component)
    }

    /// The name of the Seed.
    fn name(&self) -> &str {
        text(&self.live["metadata"]["name"])
    }

    /// The operation that the Seed's annotation names; empty for none.
    fn asked(&self) -> &str {
        annotation(&self.live, OPERATION)
    }
}

/// State between reconciliations.
#[derive(Debug, Default)]
pub(super) struct Memory {
    /// When all tasks were last done, and the Extension objects of that time: registrations change.
    complete: Mutex<Option<(Mono, Vec<EnabledExtension>)>>,
    /// When each of them was last found as it must be.
    seen: Mutex<SortedMap<Seldom, Mono>>,
}

/// What rarely changes, and is not read again in each reconciliation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Seldom {
    /// The Seed's namespace in the garden.
    SeedNamespace,
    /// The labels of the seed's own namespaces.
    Labels,
}

/// How long that is assumed to be as it was.
const SELDOM_PERIOD: Duration = Duration::from_secs(600);

/// How long deployed objects are assumed to be correct.
const COMPLETE_PERIOD: Duration = Duration::from_secs(3_600);

impl Memory {
    /// Makes the next reconciliation run all tasks.
    pub(super) fn forget(&self) {
        *self.complete.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    pub(super) fn was_seen(&self, what: Seldom, now: Mono) -> bool {
        let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        seen.get(&what).is_some_and(|at| now < at.saturating_add(SELDOM_PERIOD))
    }

    pub(super) fn saw(&self, what: Seldom, now: Mono) {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).insert(what, now);
    }

    pub(super) fn is_recent(&self, now: Mono, wanted: &[EnabledExtension]) -> bool {
        let complete = self.complete.lock().unwrap_or_else(PoisonError::into_inner);
        let is_recent = |(at, then): &(Mono, Vec<EnabledExtension>)| {
            now < at.saturating_add(COMPLETE_PERIOD) && then == wanted
        };
        complete.as_ref().is_some_and(is_recent)
    }

    pub(super) fn completed(&self, now: Mono, wanted: Vec<EnabledExtension>) {
        *self.complete.lock().unwrap_or_else(PoisonError::into_inner) = Some((now, wanted));
    }
}

/// Definitions take a fraction of a second, unless another owner's definitions conflict.
const DEFINITIONS_WITHIN: Duration = Duration::from_secs(30);
/// As long as upstream waits for a ManagedResource.
const MANAGED_WITHIN: Duration = Duration::from_secs(120);
/// The applier has retried by then. Errors that only a person can fix are reported.
const APPLY_WITHIN: Duration = Duration::from_secs(10);
/// Reading a store is cheap.
const STORE_PERIOD: Duration = Duration::from_secs(1);
/// As long as upstream waits for extensions.
const EXTENSIONS_WITHIN: Duration = Duration::from_secs(60);

/// What decides which tasks are needed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Facts {
    /// All tasks run, not only those that check what may change without a new generation.
    is_complete: bool,
    is_labelled: bool,
    deploys_system: bool,
    deploys_identity: bool,
    /// The agent installs the definitions of VerticalPodAutoscaler.
    has_own_vpa: bool,
    has_operation: bool,
    has_backup: bool,
    has_ingress_record: bool,
}

impl Facts {
    fn new(work: &Work, is_complete: bool) -> Self {
        let spec = &work.live["spec"];
        Self {
            is_complete,
            is_labelled: work.is_labelled,
            deploys_system: !work.lacks(system::NAME),
            deploys_identity: !work.lacks(cluster_identity::NAME),
            has_own_vpa: has_own_vpa(&work.live),
            has_operation: Operation::named(work.asked()).is_some(),
            has_backup: !spec["backup"].is_null(),
            has_ingress_record: ingress::is_managed(&work.live),
        }
    }

    const fn is_complete(&self) -> bool {
        self.is_complete
    }

    const fn writes_ingress_record(&self) -> bool {
        self.is_complete && self.has_ingress_record
    }
}

fn has_own_vpa(seed: &Value) -> bool {
    seed["spec"]["settings"]["verticalPodAutoscaler"]["enabled"] != false
}

/// The flow of one reconciliation. Without `is_complete`, it checks only what may change without a new generation.
pub(super) fn build(work: &Work, is_complete: bool) -> Flow<Work> {
    Flow::new("Seed reconciliation", &ROWS, &Facts::new(work, is_complete))
}

type Row = flow::TaskRow<Work, Facts, ()>;

static ROWS: [Row; 19] = [
    Row::new("Labelling namespaces", |work, _| namespaces(work), ())
        .when(|facts| facts.is_complete || !facts.is_labelled),
    // No component of this agent needs these certificates, and a key takes half a minute on a small board.
    Row::new("Generating CA certificates for seed cluster", |work, _| authorities::ensure(work), ())
        .after(&["Labelling namespaces"])
        .when(Facts::is_complete)
        .within(authorities::WITHIN),
    Row::new("Reading the Secrets of the seed's namespace", |work, _| read_secrets(work), ())
        .after(&["Labelling namespaces"])
        .when(Facts::is_complete),
    Row::new("Performing the operation of the annotation", |work, _| perform(work), ())
        .when(|facts| facts.has_operation),
    Row::new("Deploying custom resource definitions", install_own, ())
        .when(Facts::is_complete)
        .within(DEFINITIONS_WITHIN),
    Row::new("Deploying custom resource definitions of other projects", install_foreign, ())
        .when(Facts::is_complete)
        .within(DEFINITIONS_WITHIN),
    Row::new("Looking for VerticalPodAutoscaler", |work, _| require_vpa(work), ())
        .when(|facts| facts.is_complete && !facts.has_own_vpa),
    Row::new("Deploying system resources", deploy_system, ())
        .after(&[
            "Labelling namespaces",
            "Deploying custom resource definitions",
            "Deploying custom resource definitions of other projects",
            "Looking for VerticalPodAutoscaler",
        ])
        .when(|facts| facts.is_complete && facts.deploys_system)
        .within(MANAGED_WITHIN),
    Row::new("Deploying referenced resources", |work, _| deploy_referenced(work), ())
        .after(&["Deploying system resources"])
        .when(Facts::is_complete),
    Row::new("Waiting until required extensions are ready", |work, _| required_extensions(work), ())
        .after(&["Deploying referenced resources"])
        .within(EXTENSIONS_WITHIN),
    Row::new("Deploying cluster-identity", deploy_identity, ())
        .after(&["Waiting until required extensions are ready"])
        .when(|facts| facts.is_complete && facts.deploys_identity)
        .within(MANAGED_WITHIN),
    // The objects that extensions reconcile for the seed itself.
    Row::new("Deploying extension resources", |work, _| extensions::deploy(work), ())
        .after(&["Waiting until required extensions are ready"])
        .when(Facts::is_complete),
    Row::new(
        "Waiting until extension resources are ready",
        |work, attempt| extensions::wait(work, attempt),
        (),
    )
    .after(&["Deploying extension resources"])
    .when(Facts::is_complete),
    Row::new("Deleting stale extension resources", |work, _| extensions::delete_stale(work), ())
        .after(&["Waiting until extension resources are ready", "Deploying cluster-identity"])
        .when(Facts::is_complete),
    Row::new(
        "Waiting until stale extension resources are deleted",
        |work, attempt| extensions::wait_gone(work, attempt),
        (),
    )
    .after(&["Deleting stale extension resources"])
    .when(Facts::is_complete),
    Row::new("Deploying managed ingress DNS record", ingress::deploy, ())
        .after(&["Waiting until extension resources are ready", "Deploying cluster-identity"])
        .when(Facts::writes_ingress_record)
        .within(ingress::WITHIN),
    Row::new(
        "Waiting until managed ingress DNS record is reconciled",
        |work, attempt| ingress::wait(work, attempt),
        (),
    )
    .after(&["Deploying managed ingress DNS record"])
    .when(Facts::writes_ingress_record),
    Row::new("Deploying BackupBucket for seed", |work, _| deploy_bucket(work), ())
        .after(&["Waiting until required extensions are ready"])
        .when(|facts| facts.is_complete && facts.has_backup)
        .last(),
    Row::new("Cleaning up CA certificates", |work, _| authorities::clean_up(work), ())
        .after(&[
            "Generating CA certificates for seed cluster",
            "Reading the Secrets of the seed's namespace",
            "Performing the operation of the annotation",
            "Waiting until stale extension resources are deleted",
            "Waiting until managed ingress DNS record is reconciled",
        ])
        .when(Facts::is_complete)
        .last(),
];

fn install_own(work: &mut Work, attempt: &Attempt) -> Result<TaskStep, Failed> {
    let is_garden = is_garden(&work.site.seed)?;
    install_definitions(work, attempt, crds::own(is_garden))
}

fn install_foreign(work: &mut Work, attempt: &Attempt) -> Result<TaskStep, Failed> {
    let wanted = Foreign {
        is_garden: is_garden(&work.site.seed)?,
        vpa: has_own_vpa(&work.live) && !work.lacks("vpa-crds"),
        machines: !work.lacks("machine-crds"),
        etcd: !work.lacks("etcd-crds"),
    };
    install_definitions(work, attempt, crds::foreign(wanted))
}

fn deploy_system(work: &mut Work, attempt: &Attempt) -> Result<TaskStep, Failed> {
    let is_protected = attempt.tries == 0 && is_protected(work)?;
    deploy_and_wait(work, attempt, system::NAME, &|_| system::fill(is_protected))
}

fn deploy_referenced(work: &Work) -> Result<TaskStep, Failed> {
    references::deploy(&work.site.garden, &work.site.seed, &work.live)?;
    Ok(TaskStep::Done)
}

fn read_secrets(work: &Work) -> Result<TaskStep, Failed> {
    garden_secrets::reconcile(&work.site.garden, &work.site.seed, work.name())?;
    Ok(TaskStep::Done)
}

fn perform(work: &Work) -> Result<TaskStep, Failed> {
    if let Some(operation) = Operation::named(work.asked()) {
        let kubeconfig = &work.site.settings.garden_client_connection.kubeconfig_secret;
        operations::perform(&work.site.seed, operation, kubeconfig.as_ref())?;
    }
    operations::acknowledge(&work.site.garden, work.name(), work.asked())
}

fn namespaces(work: &Work) -> Result<TaskStep, Failed> {
    let is_garden = is_garden(&work.site.seed)?;
    let garden = Key::cluster(GARDEN_NAMESPACE);
    write::ensure(&work.site.seed, &NAMESPACE, &garden, |namespace| {
        decide::label_garden(namespace, &work.zones, is_garden);
    })?;
    let system = Key::cluster("kube-system");
    write::ensure(&work.site.seed, &NAMESPACE, &system, |namespace| {
        namespace["metadata"]["labels"]["role"] = json!("kube-system");
    })?;
    Ok(TaskStep::Done)
}

/// Whether the agent itself protects extension objects. A gardener-resource-manager does it with webhooks while it
/// runs.
fn is_protected(work: &Work) -> Result<bool, Failed> {
    Ok(work.has_policies
        && match work.site.settings.edge.resource_manager {
            ResourceManager::External => false,
            ResourceManager::Embedded => true,
            ResourceManager::Auto => {
                let key = Key::new(webhooks::NAMESPACE, webhooks::NAME);
                scale::replicas(&work.site.seed, &DEPLOYMENT, &key)?.is_none_or(|replicas| replicas == 0)
            }
        })
}

fn install_definitions(
    work: &Work,
    attempt: &Attempt,
    wanted: impl IntoIterator<Item = Value>,
) -> Result<TaskStep, Failed> {
    Ok(match install::ensure(&work.site.seed, wanted)? {
        install::Step::Done => TaskStep::Done,
        install::Step::Again(waiting) => {
            let all: Vec<String> = waiting.iter().map(ToString::to_string).collect();
            let why = format!("custom resource definitions are not ready: {}", all.join("; "));
            if waiting.iter().any(|waiting| waiting.why.needs_a_person()) {
                return Err(Failed::new(why));
            }
            // Each check reads all definitions, so slow ones are checked less and less often.
            TaskStep::again(delay_after(install::AGAIN, install::AGAIN_MAX, attempt.tries), why)
        }
    })
}

/// The Seed's settings say that another program installs it.
fn require_vpa(work: &Work) -> Result<TaskStep, Failed> {
    const NAME: &str = "verticalpodautoscalers.autoscaling.k8s.io";
    match work.site.seed.find::<Metadata>(&CUSTOM_RESOURCE_DEFINITION, &Key::cluster(NAME))? {
        Some(_) => Ok(TaskStep::Done),
        None => Err(Failed::new(
            "VPA is required for seed cluster: install it, or remove spec.settings.verticalPodAutoscaler.enabled=false \
             from the Seed",
        )),
    }
}

/// Writes a ManagedResource at the first attempt, then waits until its objects are healthy.
fn deploy_and_wait(
    work: &mut Work,
    attempt: &Attempt,
    name: &str,
    fill: &dyn Fn(&Work) -> Managed,
) -> Result<TaskStep, Failed> {
    let key = Key::new(GARDEN_NAMESPACE, name);
    let found = work.site.managed.store().get(&key);
    if attempt.tries == 0 {
        if found.is_some_and(|found| found.apply_problem().is_some()) {
            // The applier's own backoff grows to five minutes, and the obstacle may be gone.
            managed::apply_again(&work.site.seed, &key)?;
        }
        let generation = managed::deploy(&work.site.seed, &fill(work))?;
        work.generations.insert(name.to_owned(), generation);
    }
    let generation = work.generations.get(name).copied().unwrap_or_default();
    let found = work.site.managed.store().get(&key);
    let why =
        found.map_or_else(|| Some("does not exist yet".to_owned()), |found| found.unhealthy(generation));
    Ok(match why {
        None => TaskStep::Done,
        Some(why) => {
            let remedy = remedy(&why);
            let why = format!("ManagedResource {key} {why}{remedy}");
            if !remedy.is_empty() && attempt.now.saturating_sub(attempt.begun) >= APPLY_WITHIN {
                return Err(Failed::new(why));
            }
            TaskStep::again(STORE_PERIOD, why)
        }
    })
}

/// The remedy for an object with an immutable field. The API server has two texts for this error.
fn remedy(why: &str) -> &'static str {
    let is_fixed = why.contains("may not be changed") || why.contains("field is immutable");
    if is_fixed {
        ": delete this object unless others need it as it is; the agent creates it again"
    } else {
        ""
    }
}

fn deploy_bucket(work: &Work) -> Result<TaskStep, Failed> {
    backup::garden::deploy_bucket(&work.site.garden, &work.live, work.place.clock.now())?;
    Ok(TaskStep::Done)
}

fn required_extensions(work: &Work) -> Result<TaskStep, Failed> {
    if !(work.site.registrations.store().is_synced() && work.site.installations.store().is_synced()) {
        return Ok(TaskStep::again(STORE_PERIOD, "registrations and installations have not been read yet"));
    }
    let registrations = work.registered();
    let required = required::of_seed(&work.live, &registrations);
    let missing = required::missing(&required, &registrations, &work.site.installations.store().values());
    Ok(missing.map_or(TaskStep::Done, |why| TaskStep::again(STORE_PERIOD, why)))
}

/// The identity is written once. A cluster with an identity of another owner keeps it, and the Seed must match it.
fn deploy_identity(work: &mut Work, attempt: &Attempt) -> Result<TaskStep, Failed> {
    let key = Key::new(cluster_identity::NAMESPACE, cluster_identity::NAME);
    let found = work.site.seed.find::<ConfigMap>(&CONFIG_MAP, &key)?;
    let seed = (text(&work.live["metadata"]["name"]), work.cluster_identity.as_str());
    if let Some(map) = found
        && cluster_identity::is_of_others(&map.data, seed)?
    {
        return Ok(TaskStep::Done);
    }
    let fill = |work: &Work| cluster_identity::fill(&work.cluster_identity);
    deploy_and_wait(work, attempt, cluster_identity::NAME, &fill)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_can_run() {
        assert_eq!(flow::problems(&ROWS), [""; 0]);
    }

    #[test]
    fn what_rarely_changes_is_read_again_after_a_while() {
        let memory = Memory::default();
        let at = |seconds| Mono::default().saturating_add(Duration::from_secs(seconds));
        assert!(!memory.was_seen(Seldom::Labels, at(0)), "never seen");
        memory.saw(Seldom::Labels, at(10));
        assert!(memory.was_seen(Seldom::Labels, at(10)) && memory.was_seen(Seldom::Labels, at(609)));
        assert!(!memory.was_seen(Seldom::Labels, at(610)) && !memory.was_seen(Seldom::SeedNamespace, at(10)));
        memory.saw(Seldom::Labels, at(610));
        assert!(memory.was_seen(Seldom::Labels, at(700)));
    }
}
