//! Namespace `kube-system` of a Shoot.

use crate::base::json::json;
use crate::base::sorted::SortedSet;
use crate::components::archive;
use crate::components::managed::{Managed, manifests};
use crate::flow::{Attempt, Failed, TaskStep};
use crate::shoot::pools::{self, Pool};

use super::super::facts::Facts;
use super::super::row::Row;
use super::super::times::{FIVE_SECONDS, SHORT, TWO_MINUTES};
use super::super::work::Work;
use super::component::Component;
use super::managed_resource::{self, wait_healthy};

/// The name of the ManagedResource.
pub const MANAGED_RESOURCE: &str = "shoot-core-namespaces";

const ZONES: &str = "high-availability-config.resources.gardener.cloud/zones";

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
    let objects = objects(&work.view.technical_id, &work.view.pools);
    managed_resource::deploy(work, &objects)
}

fn wait(work: &mut Work, _: &Attempt) -> Result<TaskStep, Failed> {
    wait_healthy(work, MANAGED_RESOURCE)
}

/// Webhooks spread system components over the zones of the pools that they may run on.
fn objects(namespace: &str, pools: &[Pool]) -> Managed {
    let zones: SortedSet<&str> =
        pools::of_system_components(pools).flat_map(|pool| &pool.zones).map(String::as_str).collect();
    let mut object = archive::object("namespaces/namespaces.yaml");
    object["metadata"]["annotations"][ZONES] = json!(zones.into_iter().collect::<Vec<_>>().join(","));
    Managed::for_shoot(namespace, MANAGED_RESOURCE, true, &manifests(&[object]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_namespace_is_that_of_a_go_gardenlet() {
        let golden = include_str!("../../../../tests/fixtures/components/shoot/namespaces.yaml");
        objects("shoot--p--s2", &[]).assert_for_shoot(golden, true);
    }

    #[test]
    fn its_zones_are_those_of_pools_for_system_components() {
        let pool = |zones: &[&str], allows_system_components| Pool {
            zones: zones.iter().map(|zone| (*zone).to_owned()).collect(),
            allows_system_components,
            maximum: 1,
            ..Pool::default()
        };
        let pools = [pool(&["b", "a"], true), pool(&["a"], true), pool(&["c"], false)];
        let golden = include_str!("../../../../tests/fixtures/components/shoot/namespaces.yaml");
        let golden = golden.replace(&format!("{ZONES}: \"\""), &format!("{ZONES}: a,b"));
        assert!(golden.contains("a,b"), "{golden}");
        objects("shoot--p--s2", &pools).assert_for_shoot(&golden, true);
    }
}
