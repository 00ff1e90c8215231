//! Components on the nodes of Shoots that a site may ask for: `edge.components.nodes`. They need nothing but their image.

use crate::api::meta::Key;
use crate::base::json::json;
use crate::components::archive;
use crate::components::managed::{self, Managed, manifests};
use crate::flow::{Attempt, Failed, TaskStep};

use super::super::evidence::Evidence;
use super::super::facts::Facts;
use super::super::row::Row;
use super::super::times::{FIVE_SECONDS, SHORT};
use super::super::work::Work;
use super::managed_resource;

/// What must be there before their objects.
const NEEDS: [&str; 3] = [
    "Initializing connection to Shoot",
    "Waiting until shoot namespaces have been reconciled",
    "Waiting until extension resources handled after kube-apiserver are ready",
];

/// A task for such a component. The Shoot does not wait for it.
pub(super) const fn row(
    name: &'static str,
    run: fn(&mut Work, &Attempt) -> Result<TaskStep, Failed>,
    evidence: Evidence,
    when: fn(&Facts) -> bool,
) -> Row {
    Row::new(name, run, evidence).after(&NEEDS).when(when).retrying(FIVE_SECONDS, SHORT).last()
}

/// A component of this kind.
pub(super) struct OptionalComponent {
    /// The name in the option, of its image, and of its DaemonSet.
    pub(super) name: &'static str,
    pub(super) managed_resource: &'static str,
    /// The path of its objects among those of components.
    pub(super) manifest: &'static str,
}

/// Writes the ManagedResource of a component.
pub(super) fn deploy(work: &mut Work, component: &OptionalComponent) -> Result<TaskStep, Failed> {
    let image = work.env.images.find(component.name, &work.view.kubernetes_version)?;
    let objects = objects(work.plane(), &image, component);
    managed_resource::deploy(work, &objects)
}

/// Deletes it. The seed is asked only if it had the component.
pub(super) fn delete(work: &Work, component: &OptionalComponent) -> Result<TaskStep, Failed> {
    let key = Key::new(work.plane(), component.managed_resource);
    if work.env.managed.get(&key).is_some() {
        managed::remove(&work.env.seed, &key)?;
    }
    Ok(TaskStep::Done)
}

/// Its objects. `namespace` is that of the control plane.
pub(super) fn objects(namespace: &str, image: &str, component: &OptionalComponent) -> Managed {
    let mut all = archive::objects(component.manifest);
    for object in all.iter_mut().filter(|object| object["kind"] == "DaemonSet") {
        object["spec"]["template"]["spec"]["containers"][0]["image"] = json!(image);
    }
    Managed::for_shoot(namespace, component.managed_resource, false, &manifests(&all))
}
