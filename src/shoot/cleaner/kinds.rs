//! What is deleted inside of a Shoot before its API server goes, in three stages.

use crate::api::core::{
    API_SERVICE, CRON_JOB, DAEMON_SET, DEPLOYMENT, INGRESS, JOB, MUTATING_WEBHOOK_CONFIGURATION,
    PERSISTENT_VOLUME_CLAIM, POD, REPLICA_SET, REPLICATION_CONTROLLER, SERVICE, STATEFUL_SET,
    VALIDATING_WEBHOOK_CONFIGURATION,
};
use crate::api::crd::CUSTOM_RESOURCE_DEFINITION;
use crate::api::meta::Resource;

const SNAPSHOT: Resource =
    Resource::new("snapshot.storage.k8s.io", "v1", "VolumeSnapshot", "volumesnapshots", true);
const SNAPSHOT_CONTENT: Resource =
    Resource::new("snapshot.storage.k8s.io", "v1", "VolumeSnapshotContent", "volumesnapshotcontents", false);

/// Objects of the system, and those that their owner wants to keep, stay.
const USUAL: &str = "gardener.cloud/role!=system-component,shoot.gardener.cloud/no-cleanup!=true";
/// Service `kubernetes` stays, too.
const SERVICES: &str =
    "gardener.cloud/role!=system-component,shoot.gardener.cloud/no-cleanup!=true,provider!=kubernetes";
/// The API server makes its own APIServices again and again.
const API_SERVICES: &str = "gardener.cloud/role!=system-component,!kube-aggregator.kubernetes.io/automanaged";

/// A part of the clean-up.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stage {
    /// Webhooks, which could refuse everything that comes after.
    Webhooks,
    /// What extends the API: definitions with all their objects, and aggregated APIs.
    Apis,
    /// What stands for something outside of the cluster, or runs.
    Resources,
}

/// A kind of objects, and which of them are deleted.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Kind {
    /// The kind.
    pub(super) resource: Resource,
    /// The label selector.
    pub(super) selector: &'static str,
    /// Many snapshots take their time.
    pub(super) is_snapshot: bool,
}

impl Stage {
    /// Its kinds. `is_short`: the owner wants only that to be deleted which may cost something outside.
    pub(super) fn kinds(self, is_short: bool) -> Vec<Kind> {
        let usual = |resource: Resource| {
            let is_snapshot = resource.group == SNAPSHOT.group;
            Kind { resource, selector: USUAL, is_snapshot }
        };
        let service = Kind { resource: SERVICE, selector: SERVICES, is_snapshot: false };
        match self {
            Self::Webhooks => {
                [MUTATING_WEBHOOK_CONFIGURATION, VALIDATING_WEBHOOK_CONFIGURATION].map(usual).into()
            }
            Self::Apis => {
                vec![Kind { selector: API_SERVICES, ..usual(API_SERVICE) }, usual(CUSTOM_RESOURCE_DEFINITION)]
            }
            Self::Resources => {
                let mut all = vec![service];
                all.extend([PERSISTENT_VOLUME_CLAIM, SNAPSHOT, SNAPSHOT_CONTENT].map(usual));
                if !is_short {
                    let others = [
                        CRON_JOB,
                        DAEMON_SET,
                        DEPLOYMENT,
                        INGRESS,
                        JOB,
                        POD,
                        REPLICA_SET,
                        REPLICATION_CONTROLLER,
                        STATEFUL_SET,
                    ];
                    all.extend(others.map(usual));
                }
                all
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_stays_is_named_by_its_labels() {
        let of = |stage: Stage, is_short| -> Vec<(String, &str)> {
            stage
                .kinds(is_short)
                .iter()
                .map(|kind| (kind.resource.kind.clone().into_owned(), kind.selector))
                .collect()
        };
        let webhooks = of(Stage::Webhooks, false);
        assert_eq!(webhooks.len(), 2);
        assert!(webhooks.iter().all(|(_, selector)| selector.contains("no-cleanup!=true")));
        let apis = of(Stage::Apis, false);
        // As upstream, nobody keeps an APIService by that label.
        assert_eq!(
            apis[0],
            (
                "APIService".to_owned(),
                "gardener.cloud/role!=system-component,!kube-aggregator.kubernetes.io/automanaged"
            )
        );
        assert_eq!((apis[1].0.as_str(), apis.len()), ("CustomResourceDefinition", 2));
        let short = of(Stage::Resources, true);
        let names: Vec<&str> = short.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["Service", "PersistentVolumeClaim", "VolumeSnapshot", "VolumeSnapshotContent"]);
        assert!(short[0].1.ends_with("provider!=kubernetes"));
        assert_eq!(of(Stage::Resources, false).len(), 13);
        let snapshots: Vec<bool> = Stage::Resources.kinds(true).iter().map(|kind| kind.is_snapshot).collect();
        assert_eq!(snapshots, [false, false, true, true]);
    }
}
