//! The deletion of a Shoot: the state at its start decides which tasks are needed (Gardener's `reconciler_delete.go`
//! and `reconciler_force_delete.go`).

pub(super) mod flow;
pub(super) mod force;
mod tasks;

use serde_json::Value;

use crate::api::core::{DEPLOYMENT, NAMESPACE};
use crate::api::meta::{Key, Metadata};
use crate::components::{kube_apiserver, kube_controller_manager};
use crate::kube::{Error, Seed};
use crate::shoot::{access, cleaner};

/// The state in the seed before the flow.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Found {
    /// The namespace exists and is not being deleted.
    has_namespace: bool,
    /// The Deployment of the API server exists and is not being deleted.
    has_server: bool,
    /// The cluster may have been used: its API server answers, or has issued a token.
    was_served: bool,
    /// The Deployment of kube-controller-manager exists and is not being deleted.
    has_controllers: bool,
}

impl Found {
    /// Reads the state.
    ///
    /// # Errors
    /// A request to the seed fails.
    pub(super) fn read(seed: &Seed, namespace: &str) -> Result<Self, Error> {
        let is_live =
            |found: Option<Metadata>| found.is_some_and(|it| it.metadata.deletion_timestamp.is_none());
        let has = |name: &str| Ok::<_, Error>(is_live(seed.find(&DEPLOYMENT, &Key::new(namespace, name))?));
        let has_namespace = is_live(seed.find(&NAMESPACE, &Key::cluster(namespace))?);
        if !has_namespace {
            return Ok(Self::default());
        }
        let server: Option<Value> = seed.find(&DEPLOYMENT, &Key::new(namespace, kube_apiserver::NAME))?;
        let answers = |server: &Value| server["status"]["readyReplicas"].as_i64().is_some_and(|n| n > 0);
        // The owner may have used it before any token was requested.
        let was_served = server.as_ref().is_some_and(answers) || access::was_ever_given(seed, namespace)?;
        let is_live = |server: &Value| server["metadata"]["deletionTimestamp"].is_null();
        Ok(Self {
            has_namespace,
            has_server: server.as_ref().is_some_and(is_live),
            was_served,
            has_controllers: has(kube_controller_manager::NAME)?,
        })
    }
}

/// What the flow skips.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Plan {
    /// The namespace exists and is not being deleted.
    pub(super) has_namespace: bool,
    /// Start the API server and delete the content of the cluster.
    pub(super) cleans: bool,
    /// kube-controller-manager exists.
    pub(super) has_controllers: bool,
    /// The owner keeps API extensions until the API server is deleted.
    pub(super) skips_apis: bool,
}

impl Plan {
    /// Without an API server there is nothing to clean, and neither in a cluster that was never reachable.
    pub(super) fn new(shoot: &Value, found: Found) -> Self {
        let Found { has_namespace, has_server, was_served, has_controllers } = found;
        Self {
            has_namespace,
            cleans: has_namespace && has_server && was_served,
            has_controllers,
            skips_apis: cleaner::skips(shoot),
        }
    }

    /// For `explain`: the longest plan.
    pub(super) fn whole(shoot: &Value) -> Self {
        let found = Found { has_namespace: true, has_server: true, was_served: true, has_controllers: true };
        Self::new(shoot, found)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_a_cluster_that_was_reachable_is_cleaned() {
        let table = [
            ([true, true, true], true),
            ([true, true, false], false),
            ([true, false, true], false),
            ([false, true, true], false),
            ([false, false, false], false),
        ];
        for ([has_namespace, has_server, was_served], expected) in table {
            let found = Found { has_namespace, has_server, was_served, has_controllers: true };
            let plan = Plan::new(&json!({}), found);
            assert_eq!((plan.cleans, plan.has_namespace), (expected, has_namespace), "{found:?}");
        }
        let kept = json!({"metadata": {"annotations": {"shoot.gardener.cloud/skip-cleanup": ""}}});
        assert!(Plan::whole(&kept).skips_apis && !Plan::whole(&json!({})).skips_apis);
    }
}
