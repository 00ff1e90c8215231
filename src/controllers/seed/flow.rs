//! The tasks that prepare the seed cluster, and their order (Gardener's `reconciler_reconcile.go`).
//!
//! A reconciliation without changes skips tasks that were done within the last hour: the cluster was correct then, and
//! the applier keeps it so. Upstream writes Extensions each minute, and so triggers their reconciliation each minute.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde_json::{Value, json};

use crate::api::core::{CONFIG_MAP, ConfigMap, DEPLOYMENT, NAMESPACE};
use crate::api::crd::CUSTOM_RESOURCE_DEFINITION;
use crate::api::gardener::{ControllerInstallation, ControllerRegistration, OPERATION};
use crate::api::meta::{Key, Metadata, text};
use crate::api::resources::GARDEN_NAMESPACE;
use crate::backup;
use crate::base::backoff::delay_after;
use crate::base::clock::Mono;
use crate::base::sorted::SortedMap;
use crate::components::crds::Foreign;
use crate::components::managed::{self, Managed};
use crate::components::{cluster_identity, crds, install, scale, system, webhooks};
use crate::config::settings::{Components, ResourceManager, SecretReference};
use crate::controllers::site::is_garden;
use crate::extension::{Enabled, Target, required};
use crate::flow::{Attempt, Failed, Flow, Step, TaskId};
use crate::kube::{Garden, Seed};
use crate::resources::Watched;
use crate::runtime::store::Store;
use crate::runtime::write;
use crate::secrets::{Place, Secrets};

use super::decide;
use super::operations::{self, Operation};
use super::{authorities, extensions, garden_secrets, ingress, references};

/// The state of the tasks.
pub(super) struct Work {
    pub(super) garden: Garden,
    pub(super) seed: Seed,
    pub(super) installations: Store<ControllerInstallation>,
    pub(super) registrations: Store<ControllerRegistration>,
    pub(super) managed: Store<Watched>,
    pub(super) components: Components,
    pub(super) resource_manager: ResourceManager,
    /// The seed's API server can protect objects from deletion.
    pub(super) has_policies: bool,
    pub(super) kubeconfig: Option<SecretReference>,
    /// The Seed at the start of the flow.
    pub(super) live: Value,
    pub(super) zones: Vec<String>,
    /// The namespaces of the seed had their labels a few minutes ago.
    pub(super) is_labelled: bool,
    pub(super) cluster_identity: String,
    /// The generations of ManagedResources that this reconciliation has written or found correct, by name.
    pub(super) generations: SortedMap<String, i64>,
    /// Where the seed's Secrets are stored.
    pub(super) place: Place,
    /// The Secrets that this reconciliation has requested.
    pub(super) secrets: Option<Secrets>,
    /// The Extension objects of this reconciliation.
    pub(super) wanted: Vec<Enabled>,
    /// Extension objects that this reconciliation has deleted.
    pub(super) stale: Vec<Target>,
    /// `sni.ingress`: the Service of the ingress gateway.
    pub(super) gateway: Key,
    /// This reconciliation has found the ingress gateway and written its record.
    pub(super) has_record: bool,
}

impl Work {
    pub(super) fn registered(&self) -> Vec<Arc<ControllerRegistration>> {
        self.registrations.values()
    }
}

/// State between reconciliations.
#[derive(Debug, Default)]
pub(super) struct Memory {
    /// When all tasks were last done, and the Extension objects of that time: registrations change.
    complete: Mutex<Option<(Mono, Vec<Enabled>)>>,
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

    pub(super) fn is_recent(&self, now: Mono, wanted: &[Enabled]) -> bool {
        let complete = self.complete.lock().unwrap_or_else(PoisonError::into_inner);
        let is_recent =
            |(at, then): &(Mono, Vec<Enabled>)| now < at.saturating_add(COMPLETE_PERIOD) && then == wanted;
        complete.as_ref().is_some_and(is_recent)
    }

    pub(super) fn completed(&self, now: Mono, wanted: Vec<Enabled>) {
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

/// The flow of one reconciliation. Without `is_complete`, it checks only what may change without a new generation.
pub(super) fn build(work: &Work, is_complete: bool) -> Flow<Work> {
    let mut flow = Flow::new("Seed reconciliation");
    let spec = &work.live["spec"];
    let without = |component: &str| !is_complete || work.components.is_disabled(component);

    let namespaces = flow
        .task("Labelling namespaces", |work: &mut Work, _| namespaces(work))
        .skip_if(work.is_labelled && !is_complete)
        .add();
    let others = add_what_nobody_waits_for(&mut flow, work, namespaces, is_complete);
    let [definitions, foreign, vpa] = add_definitions(&mut flow, work, is_complete);
    let system = flow
        .task("Deploying system resources", |work: &mut Work, attempt| {
            let is_protected = attempt.tries == 0 && is_protected(work)?;
            deploy_and_wait(work, attempt, system::NAME, &|_| system::fill(is_protected))
        })
        .after(&[namespaces, definitions, foreign, vpa])
        .skip_if(without(system::NAME))
        .within(MANAGED_WITHIN)
        .add();
    let referenced = flow
        .task("Deploying referenced resources", |work: &mut Work, _| {
            references::deploy(&work.garden, &work.seed, &work.live)?;
            Ok(Step::Done)
        })
        .after(&[system])
        .skip_if(!is_complete)
        .add();
    let required = flow
        .task("Waiting until required extensions are ready", |work: &mut Work, _| required_extensions(work))
        .after(&[referenced])
        .within(EXTENSIONS_WITHIN)
        .add();
    let identity = flow
        .task("Deploying cluster-identity", |work: &mut Work, attempt| deploy_identity(work, attempt))
        .after(&[required])
        .skip_if(without(cluster_identity::NAME))
        .within(MANAGED_WITHIN)
        .add();
    let objects = add_extension_objects(&mut flow, work, (required, identity), is_complete);
    flow.task("Deploying BackupBucket for seed", |work: &mut Work, _| deploy_bucket(work))
        .after(&[required])
        .skip_if(!is_complete || spec["backup"].is_null())
        .add();
    flow.task("Cleaning up CA certificates", |work: &mut Work, _| authorities::clean_up(work))
        .after(&others)
        .after(&objects)
        .skip_if(!is_complete)
        .add();
    flow
}

/// The kinds that other tasks create objects of.
fn add_definitions(flow: &mut Flow<Work>, work: &Work, is_complete: bool) -> [TaskId; 3] {
    let vpa = work.live["spec"]["settings"]["verticalPodAutoscaler"]["enabled"] != false;
    let definitions = flow
        .task("Deploying custom resource definitions", |work: &mut Work, attempt| {
            let is_garden = is_garden(&work.seed)?;
            install_definitions(work, attempt, crds::own(is_garden))
        })
        .skip_if(!is_complete)
        .within(DEFINITIONS_WITHIN)
        .add();
    let components = work.components.clone();
    let foreign = flow
        .task("Deploying custom resource definitions of other projects", move |work: &mut Work, attempt| {
            let wanted = Foreign {
                is_garden: is_garden(&work.seed)?,
                vpa: vpa && !components.is_disabled("vpa-crds"),
                machines: !components.is_disabled("machine-crds"),
                etcd: !components.is_disabled("etcd-crds"),
            };
            install_definitions(work, attempt, crds::foreign(wanted))
        })
        .skip_if(!is_complete)
        .within(DEFINITIONS_WITHIN)
        .add();
    let vpa = flow
        .task("Looking for VerticalPodAutoscaler", |work: &mut Work, _| require_vpa(work))
        .skip_if(!is_complete || vpa)
        .add();
    [definitions, foreign, vpa]
}

/// Tasks that no component depends on.
fn add_what_nobody_waits_for(
    flow: &mut Flow<Work>,
    work: &Work,
    namespaces: TaskId,
    is_complete: bool,
) -> [TaskId; 3] {
    let asked = text(&work.live["metadata"]["annotations"][OPERATION]).to_owned();
    let operation = Operation::named(&asked);
    // No component of this agent needs these certificates, and a key takes half a minute on a small board.
    let authorities = flow
        .task("Generating CA certificates for seed cluster", |work: &mut Work, _| authorities::ensure(work))
        .after(&[namespaces])
        .skip_if(!is_complete)
        .within(authorities::WITHIN)
        .add();
    let secrets = flow
        .task("Reading the Secrets of the seed's namespace", |work: &mut Work, _| {
            garden_secrets::reconcile(&work.garden, &work.seed, text(&work.live["metadata"]["name"]))?;
            Ok(Step::Done)
        })
        .after(&[namespaces])
        .skip_if(!is_complete)
        .add();
    let operation = flow
        .task("Performing the operation of the annotation", move |work: &mut Work, _| {
            if let Some(operation) = Operation::named(&asked) {
                operations::perform(&work.seed, operation, work.kubeconfig.as_ref())?;
            }
            operations::acknowledge(&work.garden, text(&work.live["metadata"]["name"]), &asked)
        })
        .skip_if(operation.is_none())
        .add();
    [authorities, secrets, operation]
}

/// The objects that extensions reconcile for the seed itself. Returns the tasks without dependents so far.
fn add_extension_objects(
    flow: &mut Flow<Work>,
    work: &Work,
    (required, identity): (TaskId, TaskId),
    is_complete: bool,
) -> [TaskId; 2] {
    let deployed = flow
        .task("Deploying extension resources", |work: &mut Work, _| extensions::deploy(work))
        .after(&[required])
        .skip_if(!is_complete)
        .add();
    let ready = flow
        .task("Waiting until extension resources are ready", |work: &mut Work, attempt| {
            extensions::wait(work, attempt)
        })
        .after(&[deployed])
        .skip_if(!is_complete)
        .add();
    let deleted = flow
        .task("Deleting stale extension resources", |work: &mut Work, _| extensions::delete_stale(work))
        .after(&[ready, identity])
        .skip_if(!is_complete)
        .add();
    let gone = flow
        .task("Waiting until stale extension resources are deleted", |work: &mut Work, attempt| {
            extensions::wait_gone(work, attempt)
        })
        .after(&[deleted])
        .skip_if(!is_complete)
        .add();
    let has_record = ingress::is_managed(&work.live);
    let record = flow
        .task("Deploying managed ingress DNS record", |work: &mut Work, attempt| {
            ingress::deploy(work, attempt)
        })
        .after(&[ready, identity])
        .skip_if(!is_complete || !has_record)
        .within(ingress::WITHIN)
        .add();
    let reconciled = flow
        .task("Waiting until managed ingress DNS record is reconciled", |work: &mut Work, attempt| {
            ingress::wait(work, attempt)
        })
        .after(&[record])
        .skip_if(!is_complete || !has_record)
        .add();
    [gone, reconciled]
}

fn namespaces(work: &Work) -> Result<Step, Failed> {
    let is_garden = is_garden(&work.seed)?;
    let garden = Key::cluster(GARDEN_NAMESPACE);
    write::ensure(&work.seed, &NAMESPACE, &garden, |namespace| {
        decide::label_garden(namespace, &work.zones, is_garden);
    })?;
    let system = Key::cluster("kube-system");
    write::ensure(&work.seed, &NAMESPACE, &system, |namespace| {
        namespace["metadata"]["labels"]["role"] = json!("kube-system");
    })?;
    Ok(Step::Done)
}

/// Whether the agent itself protects extension objects. A gardener-resource-manager does it with webhooks while it
/// runs.
fn is_protected(work: &Work) -> Result<bool, Failed> {
    Ok(work.has_policies
        && match work.resource_manager {
            ResourceManager::External => false,
            ResourceManager::Embedded => true,
            ResourceManager::Auto => {
                let key = Key::new(webhooks::NAMESPACE, webhooks::NAME);
                scale::replicas(&work.seed, &DEPLOYMENT, &key)?.is_none_or(|replicas| replicas == 0)
            }
        })
}

fn install_definitions(
    work: &Work,
    attempt: &Attempt,
    wanted: impl IntoIterator<Item = Value>,
) -> Result<Step, Failed> {
    Ok(match install::ensure(&work.seed, wanted)? {
        install::Step::Done => Step::Done,
        install::Step::Again(waiting) => {
            let all: Vec<String> = waiting.iter().map(ToString::to_string).collect();
            let why = format!("custom resource definitions are not ready: {}", all.join("; "));
            if waiting.iter().any(|waiting| waiting.why.needs_a_person()) {
                return Err(Failed::new(why));
            }
            // Each check reads all definitions, so slow ones are checked less and less often.
            Step::again(delay_after(install::AGAIN, install::AGAIN_MAX, attempt.tries), why)
        }
    })
}

/// The Seed's settings say that another program installs it.
fn require_vpa(work: &Work) -> Result<Step, Failed> {
    const NAME: &str = "verticalpodautoscalers.autoscaling.k8s.io";
    match work.seed.find::<Metadata>(&CUSTOM_RESOURCE_DEFINITION, &Key::cluster(NAME))? {
        Some(_) => Ok(Step::Done),
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
) -> Result<Step, Failed> {
    let key = Key::new(GARDEN_NAMESPACE, name);
    let found = work.managed.get(&key);
    if attempt.tries == 0 {
        if found.is_some_and(|found| found.apply_problem().is_some()) {
            // The applier's own backoff grows to five minutes, and the obstacle may be gone.
            managed::apply_again(&work.seed, &key)?;
        }
        let generation = managed::deploy(&work.seed, &fill(work))?;
        work.generations.insert(name.to_owned(), generation);
    }
    let generation = work.generations.get(name).copied().unwrap_or_default();
    let found = work.managed.get(&key);
    let why =
        found.map_or_else(|| Some("does not exist yet".to_owned()), |found| found.unhealthy(generation));
    Ok(match why {
        None => Step::Done,
        Some(why) => {
            let remedy = remedy(&why);
            let why = format!("ManagedResource {key} {why}{remedy}");
            if !remedy.is_empty() && attempt.now.saturating_sub(attempt.begun) >= APPLY_WITHIN {
                return Err(Failed::new(why));
            }
            Step::again(STORE_PERIOD, why)
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

fn deploy_bucket(work: &Work) -> Result<Step, Failed> {
    backup::garden::deploy_bucket(&work.garden, &work.live, work.place.clock.now())?;
    Ok(Step::Done)
}

fn required_extensions(work: &Work) -> Result<Step, Failed> {
    if !(work.registrations.is_synced() && work.installations.is_synced()) {
        return Ok(Step::again(STORE_PERIOD, "registrations and installations have not been read yet"));
    }
    let registrations = work.registered();
    let required = required::of_seed(&work.live, &registrations);
    let missing = required::missing(&required, &registrations, &work.installations.values());
    Ok(missing.map_or(Step::Done, |why| Step::again(STORE_PERIOD, why)))
}

/// The identity is written once. A cluster with an identity of another owner keeps it, and the Seed must match it.
fn deploy_identity(work: &mut Work, attempt: &Attempt) -> Result<Step, Failed> {
    let found = work
        .seed
        .find::<ConfigMap>(&CONFIG_MAP, &Key::new(cluster_identity::NAMESPACE, cluster_identity::NAME))?;
    let seed = (text(&work.live["metadata"]["name"]), work.cluster_identity.as_str());
    if let Some(map) = found
        && cluster_identity::is_of_others(&map.data, seed)?
    {
        return Ok(Step::Done);
    }
    let fill = |work: &Work| cluster_identity::fill(&work.cluster_identity);
    deploy_and_wait(work, attempt, cluster_identity::NAME, &fill)
}

#[cfg(test)]
mod tests {
    use super::*;

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
