//! Workloads of a control plane: how they stop, how long they keep their replicas, and when they are gone.

use std::time::Duration;

use crate::api::core::{DEPLOYMENT, STATEFUL_SET};
use crate::api::meta::{Key, Metadata, Resource};
use crate::base::clock::Timestamp;
use crate::components::scale;
use crate::flow::{Failed, TaskStep};
use crate::kube::{Error, Seed};

use super::super::work::Work;
use super::etcd::{Role, druid};

/// A workload of a control plane.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Workload {
    /// A Deployment of this name.
    Deployment(&'static str),
    /// An etcd, which the agent or an etcd-druid runs.
    Etcd(Role),
}

impl Workload {
    /// The name of its objects.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Deployment(name) => name,
            Self::Etcd(role) => role.name(),
        }
    }

    /// Whether the state of its snapshots counts for its health.
    pub(crate) const fn has_snapshots(self) -> bool {
        matches!(self, Self::Etcd(role) if role.has_snapshots())
    }

    /// The kind that has the pods.
    const fn resource(self) -> Resource {
        match self {
            Self::Deployment(_) => DEPLOYMENT,
            Self::Etcd(_) => STATEFUL_SET,
        }
    }

    /// Removes its replicas. Nothing is written if it is missing or has none.
    pub(crate) fn stop(self, seed: &Seed, namespace: &str, now: Timestamp) -> Result<(), Error> {
        let key = Key::new(namespace, self.name());
        match self {
            Self::Etcd(role) if druid::runs(seed, &key)? => druid::scale(seed, namespace, role, 0, now),
            _ => scale::to(seed, &self.resource(), &key, 0),
        }
    }

    /// Checks once whether its pods are gone.
    pub(crate) fn wait_stopped(self, seed: &Seed, namespace: &str) -> Result<TaskStep, Failed> {
        let key = Key::new(namespace, self.name());
        if let Self::Etcd(role) = self
            && druid::runs(seed, &key)?
        {
            let step = druid::wait(seed, namespace, role)?;
            if step != TaskStep::Done {
                return Ok(step);
            }
        }
        // A druid names its StatefulSet after the Etcd.
        scale::wait_down(seed, &self.resource(), &key)
    }
}

/// How soon to check again whether something is gone.
const SOON: Duration = Duration::from_secs(1);

pub(crate) fn wait_gone(seed: &Seed, resource: &Resource, key: &Key) -> Result<TaskStep, Failed> {
    let Some(found) = seed.find::<Metadata>(resource, key)? else {
        return Ok(TaskStep::Done);
    };
    let finalizers = found.metadata.finalizers.join(", ");
    let why = match finalizers.as_str() {
        "" => String::new(),
        finalizers => {
            format!(": it has finalizers {finalizers}, and the controllers that set them must remove them")
        }
    };
    Ok(TaskStep::again(SOON, format!("{} {key} is still there{why}", resource.kind)))
}

pub(super) fn replicas(work: &Work, resource: &Resource, name: &str) -> Result<Option<i64>, Error> {
    scale::replicas(&work.env.seed, resource, &Key::new(work.plane(), name))
}

/// The replicas of a workload of a Shoot that is being hibernated. A running workload keeps running until the end of
/// the flow, and one that an earlier try has stopped does not start again.
pub(super) fn kept(work: &Work, resource: &Resource, name: &str) -> Result<i64, Error> {
    Ok(replicas(work, resource, name)?.unwrap_or(0))
}
