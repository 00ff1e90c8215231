//! `Extension` objects of class `seed`: extensions reconcile them for the seed itself, not for one of its Shoots.

use std::sync::Arc;

use serde_json::Value;

use crate::api::extensions::EXTENSION;
use crate::api::gardener::ControllerRegistration;
use crate::api::meta::Key;
use crate::api::resources::GARDEN_NAMESPACE;
use crate::extension::{
    EnabledExtension, ExtensionClass, ExtensionObject, ExtensionPatience, enabled, together,
};
use crate::flow::{Attempt, Failed, TaskStep};

use super::work::Work;

/// The objects of a Seed.
pub(super) fn wanted(seed: &Value, registrations: &[Arc<ControllerRegistration>]) -> Vec<EnabledExtension> {
    enabled(&seed["spec"]["extensions"], registrations, ExtensionClass::Seed)
}

fn target(name: &str) -> ExtensionObject {
    ExtensionObject { resource: EXTENSION, key: Key::new(GARDEN_NAMESPACE, name) }
}

/// Writes the objects and triggers their extensions.
pub(super) fn deploy(work: &mut Work) -> Result<TaskStep, Failed> {
    work.wanted = wanted(&work.live, &work.registered());
    let now = work.place.clock.now();
    for wanted in &work.wanted {
        target(&wanted.name).deploy(&work.site.seed, &wanted.desired(ExtensionClass::Seed), now)?;
    }
    Ok(TaskStep::Done)
}

/// Waits until all extensions have reconciled them.
pub(super) fn wait(work: &Work, attempt: &Attempt) -> Result<TaskStep, Failed> {
    let looks =
        work.wanted.iter().map(|w| target(&w.name).wait_ready(&work.site.seed, w.patience(), attempt));
    together(looks.collect())
}

/// Deletes stale objects of this class.
pub(super) fn delete_stale(work: &mut Work) -> Result<TaskStep, Failed> {
    let all = ExtensionObject::with_types(
        &work.site.seed,
        &EXTENSION,
        GARDEN_NAMESPACE,
        ExtensionClass::Seed.as_str(),
    )?;
    let is_wanted = |name: &str| work.wanted.iter().any(|wanted| wanted.name == name);
    let now = work.place.clock.now();
    let mut stale = Vec::new();
    // Compare by type, because an object may have another name.
    for (target, _) in
        all.into_iter().filter(|(target, kind)| !is_wanted(&target.key.name) && !is_wanted(kind))
    {
        target.delete(&work.site.seed, now)?;
        stale.push(target);
    }
    work.stale = stale;
    Ok(TaskStep::Done)
}

/// Waits until they are gone.
pub(super) fn wait_gone(work: &Work, attempt: &Attempt) -> Result<TaskStep, Failed> {
    let patience = ExtensionPatience::of(&EXTENSION);
    together(work.stale.iter().map(|target| target.wait_gone(&work.site.seed, patience, attempt)).collect())
}
