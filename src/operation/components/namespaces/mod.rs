//! Namespace `kube-system` of a Shoot.

use crate::components::archive;
use crate::components::managed::Managed;
use crate::flow::{Attempt, Failed, TaskStep};

use super::super::facts::Facts;
use super::super::row::Row;
use super::super::times::{FIVE_SECONDS, SHORT, TWO_MINUTES};
use super::super::work::Work;
use super::component::Component;
use super::managed_resource::{self, wait_healthy};

/// The name of the ManagedResource.
pub const MANAGED_RESOURCE: &str = "shoot-core-namespaces";

pub(super) static COMPONENT: Component = Component {
    create: &[
        Row::new("Deploying shoot namespaces system component", deploy, |seen| {
            seen.written(MANAGED_RESOURCE)
        })
        .after(&["Renewing shoot access secrets after creation of new ServiceAccount signing key"])
        .retrying(FIVE_SECONDS, SHORT),
        Row::new("Waiting until shoot namespaces have been reconciled", wait, |seen| {
            seen.healthy(MANAGED_RESOURCE)
        })
        .after(&["Deploying shoot namespaces system component"])
        .when(Facts::waits_awake)
        .within(TWO_MINUTES),
    ],
    ..Component::NONE
};

fn deploy(work: &mut Work, _: &Attempt) -> Result<TaskStep, Failed> {
    let objects = objects(&work.view.technical_id);
    managed_resource::deploy(work, &objects)
}

fn wait(work: &mut Work, _: &Attempt) -> Result<TaskStep, Failed> {
    wait_healthy(work, MANAGED_RESOURCE)
}

fn objects(namespace: &str) -> Managed {
    Managed::for_shoot(namespace, MANAGED_RESOURCE, true, &archive::text("namespaces/namespaces.yaml"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_namespace_is_that_of_a_go_gardenlet() {
        let golden = include_str!("../../../../tests/fixtures/components/shoot/namespaces.yaml");
        objects("shoot--p--s2").assert_for_shoot(golden, true);
    }
}
