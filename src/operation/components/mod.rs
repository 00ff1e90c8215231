//! The tasks of components, one file for each. They write, await and delete what `crate::components` describes.

pub(super) mod etcd;
pub(super) mod kube_apiserver;
pub(super) mod kube_controller_manager;
mod managed_resource;
pub(super) mod resource_manager;
pub(super) mod system;

use std::time::Duration;

use crate::api::meta::{Key, Metadata, Resource};
use crate::components::scale;
use crate::flow::{Failed, TaskStep};
use crate::kube::{Error, Seed};

use super::work::Work;

/// How soon to check again whether something is gone.
const SOON: Duration = Duration::from_secs(1);

pub(super) fn wait_gone(seed: &Seed, resource: &Resource, key: &Key) -> Result<TaskStep, Failed> {
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

fn replicas(work: &Work, resource: &Resource, name: &str) -> Result<Option<i64>, Error> {
    scale::replicas(&work.env.seed, resource, &Key::new(work.plane(), name))
}

/// The replicas of a workload of a Shoot that is being hibernated. A running workload keeps running until the end of
/// the flow, and one that an earlier try has stopped does not start again.
fn kept(work: &Work, resource: &Resource, name: &str) -> Result<i64, Error> {
    Ok(replicas(work, resource, name)?.unwrap_or(0))
}
