//! What a deletion finds in the seed. It decides which tasks are needed.

use serde_json::Value;

use crate::api::core::{DEPLOYMENT, NAMESPACE};
use crate::api::meta::{Key, Metadata};
use crate::kube::{Error, Seed};
use crate::shoot::access;

use super::super::components::kube_apiserver;
use super::super::components::kube_controller_manager;

/// The state in the seed before the flow.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Found {
    /// The namespace exists and is not being deleted.
    pub(crate) has_namespace: bool,
    /// The Deployment of the API server exists and is not being deleted.
    pub(crate) has_server: bool,
    /// The cluster may have been used: its API server answers, or has issued a token.
    pub(crate) was_served: bool,
    /// The Deployment of the controllers exists and is not being deleted.
    pub(crate) has_controllers: bool,
}

impl Found {
    /// Everything: for a description of the longest flow.
    pub(crate) const ALL: Self =
        Self { has_namespace: true, has_server: true, was_served: true, has_controllers: true };

    /// Whether the content of the cluster can and must be deleted. Without an API server there is nothing to clean, and
    /// neither in a cluster that was never reachable.
    pub(crate) const fn is_usable(&self) -> bool {
        self.has_namespace && self.has_server && self.was_served
    }

    pub(crate) fn read(seed: &Seed, namespace: &str) -> Result<Self, Error> {
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

#[cfg(test)]
mod tests {
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
            assert_eq!(found.is_usable(), expected, "{found:?}");
        }
    }
}
