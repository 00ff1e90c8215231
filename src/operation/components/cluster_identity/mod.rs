//! The identity of the cluster of a Shoot.

use crate::base::json::json;
use crate::components::archive;
use crate::components::cluster_identity::{NAME, ORIGIN_KEY};
use crate::components::managed::{Managed, manifests};
use crate::flow::{Attempt, Failed, TaskStep};

use super::super::facts::Facts;
use super::super::row::Row;
use super::super::times::{FIVE_SECONDS, SHORT};
use super::super::work::Work;
use super::component::Component;
use super::managed_resource;

const MANAGED_RESOURCE: &str = "shoot-core-cluster-identity";

pub(super) static COMPONENT: Component = Component {
    create: &[Row::new("Deploying shoot cluster identity", deploy, |seen| seen.written(MANAGED_RESOURCE))
        .after(&["Ensuring Shoot cluster identity", "Initializing connection to Shoot"])
        .when(Facts::is_awake)
        .retrying(FIVE_SECONDS, SHORT)
        .last()],
    ..Component::NONE
};

fn deploy(work: &mut Work, _: &Attempt) -> Result<TaskStep, Failed> {
    let objects = objects(&work.view.technical_id, &work.view.cluster_identity);
    managed_resource::deploy(work, &objects)
}

fn objects(namespace: &str, identity: &str) -> Managed {
    let mut map = archive::object("cluster_identity/config-map.yaml");
    map["data"][NAME] = json!(identity);
    map["data"][ORIGIN_KEY] = json!("shoot");
    Managed::for_shoot(namespace, MANAGED_RESOURCE, false, &manifests(&[map]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_identity_is_that_of_a_go_gardenlet() {
        let identity = "shoot--p--s2-6fedff37-803d-40b4-80ba-66e284a593e8-lab-garden";
        let golden = include_str!("../../../../tests/fixtures/components/shoot/cluster-identity.yaml");
        objects("shoot--p--s2", identity).assert_for_shoot(golden, false);
    }
}
