//! The objects inside a Shoot that are deleted before its API server, in three stages.

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

/// System components, and objects that their owner wants to keep, stay.
const USUAL: &str = "gardener.cloud/role!=system-component,shoot.gardener.cloud/no-cleanup!=true";
/// Service `kubernetes` stays too.
const SERVICES: &str =
    "gardener.cloud/role!=system-component,shoot.gardener.cloud/no-cleanup!=true,provider!=kubernetes";
/// The API server makes its own APIServices again, and the applier those of ManagedResources, which go with these.
const API_SERVICES: &str = "gardener.cloud/role!=system-component,!kube-aggregator.kubernetes.io/automanaged,\
    resources.gardener.cloud/managed-by!=gardener";

/// A part of the clean-up.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum CleanupStage {
    /// Webhooks, which could refuse the following requests.
    Webhooks,
    /// API extensions: definitions with all their objects, and aggregated APIs.
    Apis,
    /// Objects that run, or represent resources outside the cluster.
    Resources,
}

/// A kind of objects, and which of them are deleted.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Kind {
    pub(super) resource: Resource,
    pub(super) selector: &'static str,
    /// Many snapshots take a while.
    pub(super) is_snapshot: bool,
}

impl CleanupStage {
    /// Its kinds. With `is_short`, only objects are deleted that may cost something outside the cluster.
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
    fn labels_protect_objects() {
        let of = |stage: CleanupStage, is_short| -> Vec<(String, &str)> {
            stage
                .kinds(is_short)
                .iter()
                .map(|kind| (kind.resource.kind.clone().into_owned(), kind.selector))
                .collect()
        };
        let webhooks = of(CleanupStage::Webhooks, false);
        assert_eq!(webhooks.len(), 2);
        assert!(webhooks.iter().all(|(_, selector)| selector.contains("no-cleanup!=true")));
        let apis = of(CleanupStage::Apis, false);
        // As in upstream, that label does not protect an APIService.
        assert_eq!(
            apis[0],
            (
                "APIService".to_owned(),
                "gardener.cloud/role!=system-component,!kube-aggregator.kubernetes.io/automanaged,\
                 resources.gardener.cloud/managed-by!=gardener"
            )
        );
        assert_eq!((apis[1].0.as_str(), apis.len()), ("CustomResourceDefinition", 2));
        let short = of(CleanupStage::Resources, true);
        let names: Vec<&str> = short.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["Service", "PersistentVolumeClaim", "VolumeSnapshot", "VolumeSnapshotContent"]);
        assert!(short[0].1.ends_with("provider!=kubernetes"));
        assert_eq!(of(CleanupStage::Resources, false).len(), 13);
        let snapshots: Vec<bool> =
            CleanupStage::Resources.kinds(true).iter().map(|kind| kind.is_snapshot).collect();
        assert_eq!(snapshots, [false, false, true, true]);
    }
}
