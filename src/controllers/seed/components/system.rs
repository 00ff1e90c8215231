//! The objects that a seed needs for all Shoots: priority classes, and the protection of extension objects.

use crate::api::core::DEPLOYMENT;
use crate::api::meta::Key;
use crate::components::{deletion_protection, scale, system, webhooks};
use crate::config::settings::ResourceManager;
use crate::flow::{Attempt, Failed, TaskStep};

use super::super::work::{Row, Work};
use super::component::{Leaving, ManagedResource, SeedComponent};
use super::deploy::{MANAGED_WITHIN, deploy_and_wait};

pub(super) static COMPONENT: SeedComponent = SeedComponent {
    managed_resource: Some(ManagedResource { name: |_| system::NAME.to_owned(), leaves: Leaving::Last }),
    rows: &[Row::new("Deploying system resources", deploy, ())
        .after(&[
            "Labelling namespaces",
            "Deploying custom resource definitions",
            "Deploying custom resource definitions of other projects",
            "Looking for VerticalPodAutoscaler",
        ])
        .when(|facts| facts.is_complete && facts.deploys_system)
        .within(MANAGED_WITHIN)],
};

fn deploy(work: &mut Work, attempt: &Attempt) -> Result<TaskStep, Failed> {
    deploy_and_wait(work, attempt, system::NAME, &|work| {
        let protection = is_protected(work)?.then(deletion_protection::manifests);
        Ok(system::fill(protection.as_deref()))
    })
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
