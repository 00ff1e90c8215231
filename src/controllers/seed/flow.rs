//! The tasks that prepare the seed cluster, and their order (Gardener's `reconciler_reconcile.go`).
//!
//! A reconciliation without changes skips tasks that were done within the last hour: the cluster was correct then, and
//! the applier keeps it so. Upstream writes Extensions each minute, and so triggers their reconciliation each minute.

use std::time::Duration;

use crate::api::core::NAMESPACE;
use crate::api::meta::Key;
use crate::api::resources::GARDEN_NAMESPACE;
use crate::backup;
use crate::base::json::json;
use crate::controllers::site::is_garden;
use crate::extension::required;
use crate::flow::{Failed, Flow, TaskStep};
use crate::runtime::write;

use super::decide;
use super::operations::{self, SeedOperation};
use super::work::{Row, SeedTaskFacts, Work};
use super::{authorities, components, extensions, garden_secrets, ingress};

/// Reading a store is cheap.
const STORE_PERIOD: Duration = Duration::from_secs(1);
/// As long as upstream waits for extensions.
const EXTENSIONS_WITHIN: Duration = Duration::from_secs(60);

/// The flow of one reconciliation.
pub(super) fn build(work: &Work) -> Flow<Work> {
    Flow::new("Seed reconciliation", rows(), &SeedTaskFacts::new(work))
}

/// All tasks.
fn rows() -> impl Iterator<Item = &'static Row> {
    ROWS.iter().chain(components::rows())
}

static ROWS: [Row; 13] = [
    Row::new("Labelling namespaces", |work, _| namespaces(work), ())
        .when(|facts| facts.is_complete || !facts.is_labelled),
    // No component of this agent needs these certificates, and a key takes half a minute on a small board.
    Row::new("Generating CA certificates for seed cluster", |work, _| authorities::ensure(work), ())
        .after(&["Labelling namespaces"])
        .when(SeedTaskFacts::is_complete)
        .within(authorities::WITHIN),
    Row::new("Reading the Secrets of the seed's namespace", |work, _| read_secrets(work), ())
        .after(&["Labelling namespaces"])
        .when(SeedTaskFacts::is_complete),
    Row::new("Performing the operation of the annotation", |work, _| perform(work), ())
        .when(|facts| facts.has_operation),
    Row::new("Waiting until required extensions are ready", |work, _| required_extensions(work), ())
        .after(&["Deploying referenced resources"])
        .within(EXTENSIONS_WITHIN),
    // The objects that extensions reconcile for the seed itself.
    Row::new("Deploying extension resources", |work, _| extensions::deploy(work), ())
        .after(&["Waiting until required extensions are ready"])
        .when(SeedTaskFacts::is_complete),
    Row::new(
        "Waiting until extension resources are ready",
        |work, attempt| extensions::wait(work, attempt),
        (),
    )
    .after(&["Deploying extension resources"])
    .when(SeedTaskFacts::is_complete),
    Row::new("Deleting stale extension resources", |work, _| extensions::delete_stale(work), ())
        .after(&["Waiting until extension resources are ready", "Deploying cluster-identity"])
        .when(SeedTaskFacts::is_complete),
    Row::new(
        "Waiting until stale extension resources are deleted",
        |work, attempt| extensions::wait_gone(work, attempt),
        (),
    )
    .after(&["Deleting stale extension resources"])
    .when(SeedTaskFacts::is_complete),
    Row::new("Deploying managed ingress DNS record", ingress::deploy, ())
        .after(&["Waiting until extension resources are ready", "Deploying cluster-identity"])
        .when(SeedTaskFacts::writes_ingress_record)
        .within(ingress::WITHIN),
    Row::new(
        "Waiting until managed ingress DNS record is reconciled",
        |work, attempt| ingress::wait(work, attempt),
        (),
    )
    .after(&["Deploying managed ingress DNS record"])
    .when(SeedTaskFacts::writes_ingress_record),
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
        .when(SeedTaskFacts::is_complete)
        .last(),
];

fn read_secrets(work: &Work) -> Result<TaskStep, Failed> {
    garden_secrets::reconcile(&work.site.garden, &work.site.seed, work.name())?;
    Ok(TaskStep::Done)
}

fn perform(work: &Work) -> Result<TaskStep, Failed> {
    if let Some(operation) = SeedOperation::named(work.asked()) {
        let kubeconfig = &work.site.settings.garden_client_connection.kubeconfig_secret;
        operations::perform(&work.site.seed, operation, kubeconfig.as_ref())?;
    }
    operations::acknowledge(&work.site.garden, work.name(), work.asked())
}

fn namespaces(work: &Work) -> Result<TaskStep, Failed> {
    let is_garden = is_garden(&work.site.seed)?;
    let garden = Key::cluster(GARDEN_NAMESPACE);
    write::ensure(&work.site.seed, &NAMESPACE, &garden, &|namespace| {
        decide::label_garden(namespace, &work.zones, is_garden);
    })?;
    let system = Key::cluster("kube-system");
    write::ensure(&work.site.seed, &NAMESPACE, &system, &|namespace| {
        namespace["metadata"]["labels"]["role"] = json!("kube-system");
    })?;
    Ok(TaskStep::Done)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_can_run() {
        assert_eq!(crate::flow::problems(rows()), [""; 0]);
    }
}
