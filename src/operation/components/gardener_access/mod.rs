//! Permissions of Gardener and of the project's members in the cluster of a Shoot.

use crate::components::archive;
use crate::components::managed::Managed;
use crate::flow::{Attempt, Failed, TaskStep};
use crate::shoot::access;

use super::super::facts::Facts;
use super::super::row::Row;
use super::super::times::{FIVE_SECONDS, SHORT};
use super::super::work::Work;
use super::component::Component;
use super::managed_resource;

const MANAGED_RESOURCE: &str = "shoot-core-gardeneraccess";

const DEPLOY: &str = "Deploying Gardener shoot access resources";

pub(super) static COMPONENT: Component = Component {
    create: &[Row::new(DEPLOY, deploy, |seen| seen.written(MANAGED_RESOURCE))
        .after(&["Renewing shoot access secrets after creation of new ServiceAccount signing key"])
        .retrying(FIVE_SECONDS, SHORT)],
    delete: &[Row::new(DEPLOY, deploy, |seen| seen.written(MANAGED_RESOURCE))
        .after(&["Waiting until gardener-resource-manager reports readiness"])
        .when(Facts::cleans)
        .retrying(FIVE_SECONDS, SHORT)],
    ..Component::NONE
};

fn deploy(work: &mut Work, _: &Attempt) -> Result<TaskStep, Failed> {
    access::ensure_kubeconfigs(&work.env.seed, &work.view, work.outside(), work.secrets()?.ca_bundle())?;
    let objects = objects(&work.view.technical_id);
    managed_resource::deploy(work, &objects)
}

fn objects(namespace: &str) -> Managed {
    Managed::for_shoot(namespace, MANAGED_RESOURCE, true, &archive::text("gardener_access/permissions.yaml"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn permissions_are_those_of_a_go_gardenlet() {
        let golden = include_str!("../../../../tests/fixtures/components/shoot/gardeneraccess.yaml");
        objects("shoot--p--s2").assert_for_shoot(golden, true);
    }
}
