//! `Extension` objects of a Shoot: those that are reconciled before its API server, and those after it. And what a
//! deletion does with objects of all kinds.
//!
//! `AfterWorker` never happens for a Shoot without workers: such an extension is skipped, as in upstream. With workers, it is
//! reconciled once their objects are written.

use crate::api::extensions::{
    CONTAINER_RUNTIME, CONTROL_PLANE, EXTENSION, INFRASTRUCTURE, NETWORK, OPERATING_SYSTEM_CONFIG,
    SELF_HOSTED_SHOOT_EXPOSURE, WORKER,
};
use crate::api::meta::{Key, Resource};
use crate::extension::{
    EnabledExtension, ExtensionClass, ExtensionObject, ExtensionPatience, ReconcileMoment, enabled,
};
use crate::flow::Failed;

use super::objects::{Desired, Leaving, ObjectRow, trigger};
use super::times::FIVE_MINUTES;
use super::work::Work;

/// Those that are reconciled before the API server; a deletion deletes those that must go before it.
pub(super) const BEFORE: ObjectRow = ObjectRow {
    desired: |work| Ok(desired(work, ReconcileMoment::Before)),
    leaving: |work| leaving(work, |extension| extension.deleted == ReconcileMoment::Before),
    moving: |work| leaving(work, |extension| extension.migrated == ReconcileMoment::Before),
    ..ANY
};

/// Those that are reconciled after the API server; a deletion deletes those that must go after it.
pub(super) const AFTER: ObjectRow = ObjectRow {
    desired: |work| Ok(desired(work, ReconcileMoment::After)),
    leaving: |work| leaving(work, |extension| extension.deleted == ReconcileMoment::After),
    moving: |work| leaving(work, |extension| extension.migrated == ReconcileMoment::After),
    ..ANY
};

/// Those that are reconciled after the objects of workers.
pub(super) const AFTER_WORKERS: ObjectRow =
    ObjectRow { desired: |work| Ok(desired(work, ReconcileMoment::AfterWorker)), ..ANY };

/// Those that no extension of the Shoot needs.
pub(super) const STALE: ObjectRow = ObjectRow { leaving: stale, ..ANY };

pub(super) const ANY: ObjectRow = ObjectRow {
    write: trigger,
    leaving: |work| Leaving::all(work, &EXTENSION, ExtensionPatience::of(&EXTENSION)),
    ..ObjectRow::NONE
};

/// The objects of all kinds, except records.
pub(super) const ALL_KINDS: ObjectRow = ObjectRow { leaving: of_all_kinds, ..ANY };

/// The objects of a Shoot.
fn wanted(work: &Work) -> Vec<EnabledExtension> {
    enabled(&work.shoot["spec"]["extensions"], &work.env.registered(), ExtensionClass::of(&work.shoot))
}

pub(super) fn names(work: &Work) -> Vec<String> {
    wanted(work).into_iter().map(|extension| extension.name).collect()
}

fn desired(work: &Work, moment: ReconcileMoment) -> Vec<Desired> {
    let of = |extension: EnabledExtension| Desired {
        target: ExtensionObject { resource: EXTENSION, key: Key::new(work.plane(), extension.name.as_str()) },
        content: extension.desired(ExtensionClass::Shoot),
        patience: extension.patience(),
    };
    wanted(work).into_iter().filter(|extension| extension.moment == moment).map(of).collect()
}

fn with_types(work: &Work) -> Result<Vec<(ExtensionObject, String)>, Failed> {
    Ok(ExtensionObject::with_types(&work.env.seed, &EXTENSION, work.plane(), ExtensionClass::Shoot.as_str())?)
}

/// The objects to delete or to release at a lifecycle moment. Their type decides, because an object may have another name.
fn leaving(work: &Work, is_due: fn(&EnabledExtension) -> bool) -> Result<Vec<Leaving>, Failed> {
    let wanted = wanted(work);
    let of = |(target, kind): (ExtensionObject, String)| {
        let by = |name: &str| wanted.iter().find(|extension| extension.name == name);
        let extension = by(&target.key.name).or_else(|| by(&kind))?;
        is_due(extension).then(|| Leaving::of(target, extension.patience()))
    };
    Ok(with_types(work)?.into_iter().filter_map(of).collect())
}

/// Their type decides, because an object may have another name.
fn stale(work: &Work) -> Result<Vec<Leaving>, Failed> {
    let wanted = wanted(work);
    let is_wanted = |name: &str| wanted.iter().any(|extension| extension.name == name);
    let all = with_types(work)?.into_iter();
    let stale = all.filter(|(target, kind)| !is_wanted(&target.key.name) && !is_wanted(kind));
    Ok(stale.map(|(target, _)| Leaving::of(target, ExtensionPatience::of(&EXTENSION))).collect())
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

fn of_all_kinds(work: &Work) -> Result<Vec<Leaving>, Failed> {
    let mut all = Vec::new();
    for resource in &KINDS {
        let patience = ExtensionPatience { timeout: FIVE_MINUTES, ..ExtensionPatience::of(resource) };
        all.extend(Leaving::all(work, resource, patience)?);
    }
    Ok(all)
}
