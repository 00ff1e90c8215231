//! The identity of the seed's cluster.

use crate::api::core::{CONFIG_MAP, ConfigMap};
use crate::api::meta::Key;
use crate::components::cluster_identity;
use crate::flow::{Attempt, Failed, TaskStep};

use super::super::work::{Row, Work};
use super::component::{Leaving, ManagedResource, SeedComponent};
use super::deploy::{MANAGED_WITHIN, deploy_and_wait};

pub(super) static COMPONENT: SeedComponent = SeedComponent {
    managed_resource: Some(ManagedResource {
        name: |_| cluster_identity::NAME.to_owned(),
        leaves: Leaving::WithExtensions,
    }),
    rows: &[Row::new("Deploying cluster-identity", deploy, ())
        .after(&["Waiting until required extensions are ready"])
        .when(|facts| facts.is_complete && facts.deploys_identity)
        .within(MANAGED_WITHIN)],
};

/// The identity is written once. A cluster with an identity of another owner keeps it, and the Seed must match it.
fn deploy(work: &mut Work, attempt: &Attempt) -> Result<TaskStep, Failed> {
    let key = Key::new(cluster_identity::NAMESPACE, cluster_identity::NAME);
    let found = work.site.seed.find::<ConfigMap>(&CONFIG_MAP, &key)?;
    if let Some(map) = found
        && cluster_identity::is_of_others(&map.data, work.name(), &work.cluster_identity)?
    {
        return Ok(TaskStep::Done);
    }
    let fill = |work: &Work| Ok(cluster_identity::fill(&work.cluster_identity));
    deploy_and_wait(work, attempt, cluster_identity::NAME, &fill)
}
