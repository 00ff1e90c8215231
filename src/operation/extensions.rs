//! `Extension` objects of a Shoot: those that are reconciled before its API server, and those after it.
//!
//! `AfterWorker` never happens for a Shoot without workers: such an extension is skipped, as in upstream.

use crate::api::extensions::{
    CONTAINER_RUNTIME, CONTROL_PLANE, EXTENSION, INFRASTRUCTURE, NETWORK, OPERATING_SYSTEM_CONFIG,
    SELF_HOSTED_SHOOT_EXPOSURE, WORKER,
};
use crate::api::meta::{Key, Resource};
use crate::extension::{Class, Enabled, Moment, Patience, Target, enabled, together};
use crate::flow::{Attempt, Failed, Step};

use super::times::FIVE_MINUTES;
use super::work::Work;

/// The objects of a Shoot.
fn wanted(work: &Work) -> Vec<Enabled> {
    enabled(&work.shoot["spec"]["extensions"], &work.env.registered(), Class::Shoot)
}

/// Their types.
pub(super) fn names(work: &Work) -> Vec<String> {
    wanted(work).into_iter().map(|extension| extension.name).collect()
}

fn target(work: &Work, name: &str) -> Target {
    Target { resource: EXTENSION, key: Key::new(work.plane(), name) }
}

/// Writes the objects of a lifecycle moment and triggers their extensions.
pub(super) fn deploy(work: &mut Work, moment: Moment) -> Result<Step, Failed> {
    let now = work.now();
    for extension in wanted(work).into_iter().filter(|extension| extension.moment == moment) {
        target(work, &extension.name).deploy(&work.env.seed, &extension.wish(Class::Shoot), now)?;
    }
    Ok(Step::Done)
}

/// Waits until their extensions have reconciled them.
pub(super) fn wait(work: &Work, moment: Moment, attempt: &Attempt) -> Result<Step, Failed> {
    let extensions = wanted(work).into_iter().filter(|extension| extension.moment == moment);
    let looks = extensions.map(|extension| {
        target(work, &extension.name).wait_ready(&work.env.seed, extension.patience(), attempt)
    });
    together(looks.collect())
}

/// The objects to delete at a lifecycle moment. Their type decides, because an object may have another name.
fn leaving(work: &Work, moment: Moment) -> Result<Vec<(Target, Patience)>, Failed> {
    let wanted = wanted(work);
    let all = Target::with_types(&work.env.seed, &EXTENSION, work.plane(), Class::Shoot.as_str())?;
    let of = |(target, kind): (Target, String)| {
        let by = |name: &str| wanted.iter().find(|extension| extension.name == name);
        let extension = by(&target.key.name).or_else(|| by(&kind))?;
        (extension.deleted == moment).then(|| (target, extension.patience()))
    };
    Ok(all.into_iter().filter_map(of).collect())
}

/// Deletes the objects of a lifecycle moment.
pub(super) fn delete(work: &mut Work, moment: Moment) -> Result<Step, Failed> {
    delete_each(work, leaving(work, moment)?.into_iter().map(|(target, _)| target).collect())
}

/// A failed deletion does not stop the others.
fn delete_each(work: &Work, targets: Vec<Target>) -> Result<Step, Failed> {
    let now = work.now();
    let delete =
        |target: Target| target.delete(&work.env.seed, now).map(|()| Step::Done).map_err(Failed::from);
    together(targets.into_iter().map(delete).collect())
}

/// Waits until they are gone.
pub(super) fn wait_deleted(work: &Work, moment: Moment, attempt: &Attempt) -> Result<Step, Failed> {
    let looks = leaving(work, moment)?
        .into_iter()
        .map(|(target, patience)| target.wait_gone(&work.env.seed, patience, attempt));
    together(looks.collect())
}

/// Waits until the Shoot has none.
pub(super) fn wait_none(work: &mut Work, attempt: &Attempt) -> Result<Step, Failed> {
    let all = Target::of_class(&work.env.seed, &EXTENSION, work.plane(), Class::Shoot.as_str())?;
    let patience = Patience::of(&EXTENSION);
    together(all.into_iter().map(|target| target.wait_gone(&work.env.seed, patience, attempt)).collect())
}

/// Kinds of a Shoot's extension objects, except records.
const KINDS: [Resource; 8] = [
    CONTAINER_RUNTIME,
    CONTROL_PLANE,
    EXTENSION,
    INFRASTRUCTURE,
    NETWORK,
    OPERATING_SYSTEM_CONFIG,
    SELF_HOSTED_SHOOT_EXPOSURE,
    WORKER,
];

fn all(work: &Work) -> Result<Vec<Target>, Failed> {
    let mut all = Vec::new();
    for resource in &KINDS {
        all.extend(Target::of_class(&work.env.seed, resource, work.plane(), Class::Shoot.as_str())?);
    }
    Ok(all)
}

/// Deletes the objects of all kinds.
pub(super) fn delete_all(work: &mut Work, _: &Attempt) -> Result<Step, Failed> {
    delete_each(work, all(work)?)
}

/// Waits until they are gone.
pub(super) fn wait_all_deleted(work: &mut Work, attempt: &Attempt) -> Result<Step, Failed> {
    let look = |target: Target| {
        let patience = Patience { timeout: FIVE_MINUTES, ..Patience::of(&target.resource) };
        target.wait_gone(&work.env.seed, patience, attempt)
    };
    together(all(work)?.into_iter().map(look).collect())
}

/// Stale objects of this Shoot. Their type decides, because an object may have another name.
fn stale(work: &Work) -> Result<Vec<Target>, Failed> {
    let wanted = wanted(work);
    let is_wanted = |name: &str| wanted.iter().any(|extension| extension.name == name);
    let all = Target::with_types(&work.env.seed, &EXTENSION, work.plane(), Class::Shoot.as_str())?;
    let stale = all.into_iter().filter(|(target, kind)| !is_wanted(&target.key.name) && !is_wanted(kind));
    Ok(stale.map(|(target, _)| target).collect())
}

/// Deletes the stale objects.
pub(super) fn delete_stale(work: &mut Work, _: &Attempt) -> Result<Step, Failed> {
    delete_each(work, stale(work)?)
}

/// Waits until the stale objects are gone.
pub(super) fn wait_stale(work: &mut Work, attempt: &Attempt) -> Result<Step, Failed> {
    let patience = Patience::of(&EXTENSION);
    let looks = stale(work)?.into_iter().map(|target| target.wait_gone(&work.env.seed, patience, attempt));
    together(looks.collect())
}
