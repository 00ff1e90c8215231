//! Checks whether applied objects are healthy and rolled out.
//!
//! Upstream runs two controllers with watches on every kind that was ever applied. Here one controller reads the bodies
//! of kinds that report health or progress. For other kinds it only needs to know which objects exist. `workload` and
//! `inventory` wake it when an object changes; objects that neither of them covers are polled.

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;

use super::error::Error;
use super::health;
use super::names::{self, APPLIED, HEALTHY, PROGRESSING, reason};
use super::object::{kind_key, skips_checks};
use super::progress::{self, RolloutProgress, is_read};
use super::removal::selector;
use super::remove::warnings;
use super::session::{Own, Session, managed_resource};
use super::status::{Present, with_status};
use super::survey;
use super::target::{Class, TargetCluster};
use super::trigger::is_checked;
use super::{ApplierContext, later};
use crate::api::condition::{Condition, ConditionStatus, status_of};
use crate::api::core::POD;
use crate::api::meta::{ALL_NAMESPACES, Key, Metadata, annotation, text};
use crate::api::resources::{ManagedResource, ObjectReference};
use crate::base::clock::Timestamp;
use crate::base::json::json;
use crate::base::sorted::{SortedMap, SortedSet};
use crate::format::view;
use crate::kube::{ErrorVerdict, ListParams};
use crate::limits;
use crate::runtime::controller::{ReconcileContext, ReconcileFailure, ReconcileOutcome, Reconciler};

/// Checks the objects of ManagedResources. Its keys are their keys.
#[derive(Debug)]
pub struct ChecksReconciler(pub(super) Arc<ApplierContext>);

impl Reconciler for ChecksReconciler {
    fn reconcile(&self, key: &Key, cx: &ReconcileContext) -> Result<ReconcileOutcome, ReconcileFailure> {
        if let Some(outcome) = self.0.check_calm(key, cx)? {
            return Ok(outcome);
        }
        self.0.calm.forget(key);
        let mut permit = self.0.memory.permit();
        let own = managed_resource(&self.0.client, key, &mut permit).map_err(Error::into_failure)?;
        let raw = match own {
            Own::Read { raw, .. } => raw,
            Own::Busy => return Ok(later()),
            // The applier reports it in a condition.
            Own::Gone | Own::TooLarge(_) => return Ok(ReconcileOutcome::Done),
        };
        let resource = view::look::<ManagedResource>(&raw).map_err(ReconcileFailure::terminal)?;
        let target = self.0.targets.of(&resource.metadata, &resource.spec.class);
        let is_checked =
            |t: &Arc<TargetCluster>| is_checked(t.class, &resource.metadata, &resource.spec.class);
        let Some(target) = target.filter(is_checked) else { return Ok(ReconcileOutcome::Done) };
        let session = self.0.session(&target, cx);
        let period = self.0.settings.check_period;
        let applied = status_of(&resource.status.conditions, APPLIED);
        if !matches!(applied, Some(ConditionStatus::True | ConditionStatus::Unknown)) {
            // The store may never have seen a difference, so nothing else would wake this key.
            return Ok(super::jittered(period));
        }
        let present = Present { conditions: &resource.status.conditions, now: cx.clock.now() };
        let Seen { conditions: found, has_gap } =
            look(session, present, &resource.status.resources).map_err(Error::into_failure)?;
        if has_gap && let Some(lanes) = self.0.lanes() {
            // If it was unhealthy before, its conditions stay, and nothing else would wake the applier.
            lanes.apply.add(key.clone());
        }
        let next = with_status(&raw, &found, None);
        let again = again(&found, present.now, period);
        let written = session.write_status(raw, &next).map_err(Error::into_failure)?;
        if found.iter().all(is_calm) {
            let version = text(&written["metadata"]["resourceVersion"]);
            self.0.calm.remember(key, version, &resource.status.resources);
        }
        // Watches of the objects wake this controller. Changes that they miss are found with the next full apply.
        let is_covered = again == period && self.0.covers(&target, &resource.status.resources, session);
        Ok(super::jittered(if is_covered { self.0.settings.sync_period } else { again }))
    }
}

impl ApplierContext {
    /// Checks a ManagedResource that was calm and has not changed since. `None` if it must be read, because it is not known, or
    /// one of its objects is not well any more.
    fn check_calm(
        &self,
        key: &Key,
        cx: &ReconcileContext,
    ) -> Result<Option<ReconcileOutcome>, ReconcileFailure> {
        let Some(head) = self.lanes().and_then(|lanes| lanes.managed.get(key)) else { return Ok(None) };
        let (metadata, class) = (&head.metadata, &head.spec.class);
        let Some(known) = self.calm.find(key, &metadata.resource_version) else { return Ok(None) };
        let is_ours = |target: &Arc<TargetCluster>| is_checked(target.class, metadata, class);
        let Some(target) = self.targets.of(metadata, class).filter(is_ours) else { return Ok(None) };
        let session = self.session(&target, cx);
        let objects = match target.class {
            Class::Seed => known,
            Class::Shoot => match doubtful(session, known).map_err(Error::into_failure)? {
                Some(objects) => objects,
                None => return Ok(Some(later())),
            },
        };
        let present = Present { conditions: &[], now: cx.clock.now() };
        let found = look(session, present, &objects).map_err(Error::into_failure)?;
        if !found.conditions.iter().all(is_calm) {
            return Ok(None);
        }
        if target.class == Class::Shoot {
            target.survey.learn(&objects);
        }
        let is_covered = self.covers(&target, &objects, session);
        let period = if is_covered { self.settings.sync_period } else { self.settings.check_period };
        Ok(Some(super::jittered(period)))
    }

    /// Whether changes of all these objects are noticed without polling. Kinds that are not listed yet are
    /// listed from now on.
    fn covers(&self, target: &Arc<TargetCluster>, objects: &[ObjectReference], session: Session<'_>) -> bool {
        let Some(lanes) = self.lanes().filter(|_| Arc::ptr_eq(target, &self.targets.seed)) else {
            return false;
        };
        let now = session.cx.clock.mono();
        let is_covered = |kind: &Key| {
            self.workloads.covers(kind) || target.inventory.covers(kind, now, self.settings.check_period)
        };
        let open: Vec<Key> = kinds_of(objects).into_iter().filter(|kind| !is_covered(kind)).collect();
        let is_covered = open.is_empty();
        open.into_iter().for_each(|kind| lanes.list.add(kind));
        is_covered
    }
}

/// Those of the objects that are not known to be well, after the lists that are due. `None` if someone else is listing.
/// Errors: the server cannot be asked now, which says nothing about the objects.
fn doubtful(
    session: Session<'_>,
    mut objects: Vec<ObjectReference>,
) -> Result<Option<Vec<ObjectReference>>, Error> {
    let (survey, now) = (&session.target.survey, session.cx.clock.mono());
    let kinds = kinds_of(&objects);
    if kinds.iter().any(|kind| survey.is_due(kind, now)) {
        let Some(_turn) = survey.turn() else { return Ok(None) };
        for kind in kinds.iter().filter(|kind| survey.is_due(kind, now)) {
            survey.put(kind, now, list_well(session, kind)?);
        }
    }
    objects.retain(|object| !survey.is_well(object));
    Ok(Some(objects))
}

/// The objects of a kind that are well; `None` if this list fails. Its objects are then read one by one, which tells what is
/// wrong, and does not keep those of other kinds from being checked.
fn list_well(session: Session<'_>, kind: &Key) -> Result<Option<Vec<u64>>, Error> {
    let Key { namespace: api_version, name } = kind;
    let mut well = Vec::new();
    let Some(resource) = session.resource(api_version, name)? else { return Ok(None) };
    let label_selector = names::applied_objects();
    let metadata_only = !is_read(api_version, name);
    let params = ListParams { label_selector, metadata_only, ..ListParams::default() };
    let listed =
        session.each(&resource, ALL_NAMESPACES, &params, &mut |object: Option<Value>| match object {
            Some(mut object) => {
                // The items of a list do not say what they are.
                (object["apiVersion"], object["kind"]) = (json!(api_version), json!(name));
                let is_ours = session.target.owner(annotation(&object, names::ORIGIN)).is_some();
                // The owner of the Shoot may make as many as he likes. Those beyond the limit are read one by one.
                if is_ours && well.len() < limits::SHOOT_SURVEY_OBJECTS_MAX && survey::is_well(&object) {
                    let metadata = &object["metadata"];
                    well.push(survey::id(text(&metadata["namespace"]), text(&metadata["name"])));
                }
            }
            None => well.clear(),
        });
    match listed {
        Ok(()) => Ok(Some(well)),
        // The token has just expired, or the server does not answer and nothing was sent.
        Err(error) if error.status_code() == Some(401) || error.postponed().is_some() => Err(error.into()),
        Err(_) => Ok(None),
    }
}

/// The kinds that a list of objects has.
fn kinds_of(objects: &[ObjectReference]) -> SortedSet<Key> {
    objects.iter().map(|object| kind_key(&object.api_version, &object.kind)).collect()
}

/// Whether a condition says that all is well.
fn is_calm(condition: &Condition) -> bool {
    let calm = if condition.kind == PROGRESSING { ConditionStatus::False } else { ConditionStatus::True };
    condition.status == calm
}

/// The shortest time between two checks of the objects of one ManagedResource.
const AGAIN_MIN: Duration = Duration::from_secs(2);

/// When to check again: soon after a failure or progress, then less and less often.
fn again(found: &[Condition], now: Timestamp, period: Duration) -> Duration {
    let moved_at = |c: &Condition| c.last_update_time.max(c.last_transition_time);
    let age = found.iter().filter(|c| !is_calm(c)).map(|c| now.since(moved_at(c))).min();
    age.map_or(period, |age| age.max(AGAIN_MIN).min(period))
}

/// What a check has found.
struct Seen {
    conditions: Vec<Condition>,
    /// One of the objects does not exist.
    has_gap: bool,
}

/// Both conditions: in each, the first problem in the order of the list wins.
fn look(session: Session<'_>, present: Present<'_>, objects: &[ObjectReference]) -> Result<Seen, Error> {
    let mut inventory = Inventory::new(session, objects);
    let (mut sick, mut running, mut has_gap) = (None, None, false);
    for object in objects {
        if sick.is_some() && (running.is_some() || !progress::concerns(&object.api_version, &object.kind)) {
            continue;
        }
        match inventory.find(object) {
            Ok(ObjectPresence::Missing) => {
                has_gap = true;
                sick = sick.or_else(|| Some(missing(present, object)));
            }
            Ok(ObjectPresence::Present) => {}
            Ok(ObjectPresence::Body(live)) => {
                sick = sick.or_else(|| unhealthy(session, present, object, &live));
                if running.is_none() {
                    running = progressing(session, present, object, &live)?;
                }
            }
            Err(error) => {
                let condition = unknown(present, object, error)?;
                sick = sick.or(Some(condition));
            }
        }
    }
    let healthy = || {
        present.with(HEALTHY, ConditionStatus::True, reason::RESOURCES_HEALTHY, "All resources are healthy.")
    };
    let text = "All resources have been fully rolled out.";
    let rolled_out = || present.with(PROGRESSING, ConditionStatus::False, reason::ROLLED_OUT, text);
    let conditions = vec![sick.unwrap_or_else(healthy), running.unwrap_or_else(rolled_out)];
    Ok(Seen { conditions, has_gap })
}

fn missing(present: Present<'_>, object: &ObjectReference) -> Condition {
    let ObjectReference { kind, namespace, name, .. } = object;
    let text = format!("Required {kind} {name:?} in namespace {namespace:?} is missing");
    present.with(HEALTHY, ConditionStatus::False, &format!("{kind}Missing"), &text)
}

fn unhealthy(
    session: Session<'_>,
    present: Present<'_>,
    object: &ObjectReference,
    live: &Value,
) -> Option<Condition> {
    if skips_checks(live) {
        return None;
    }
    let why = health::check_of(&object.api_version, &object.kind)?(live).err()?;
    let ObjectReference { kind, namespace, name, .. } = object;
    let text = format!("{kind} \"{namespace}/{name}\" is unhealthy: {why}{}", warnings(session, object));
    Some(present.with(HEALTHY, ConditionStatus::False, &format!("{kind}Unhealthy"), &text))
}

/// An undetermined state is reported only if it is not a transient weakness of the server.
fn unknown(present: Present<'_>, object: &ObjectReference, error: Error) -> Result<Condition, Error> {
    match &error {
        Error::Request(e) if matches!(e.verdict(), ErrorVerdict::Denied | ErrorVerdict::Invalid) => {
            let ObjectReference { kind, namespace, name, .. } = object;
            let text = format!("Error while checking {kind} \"{namespace}/{name}\": {}", error.text());
            Ok(present.with(HEALTHY, ConditionStatus::False, reason::HEALTH_CHECK_ERROR, &text))
        }
        _ => Err(error),
    }
}

fn progressing(
    session: Session<'_>,
    present: Present<'_>,
    object: &ObjectReference,
    live: &Value,
) -> Result<Option<Condition>, Error> {
    if skips_checks(live) {
        return Ok(None);
    }
    let why = match progress::check(live) {
        RolloutProgress::Done => return Ok(None),
        RolloutProgress::Running(why) => why,
        RolloutProgress::Pods(wanted) => {
            let pods = count_pods(session, object, live)?;
            if pods == wanted {
                return Ok(None);
            }
            "there are still non-terminated old pods".to_owned()
        }
    };
    let ObjectReference { kind, namespace, name, .. } = object;
    let text = format!("{kind} \"{namespace}/{name}\" is progressing: {why}");
    Ok(Some(present.with(PROGRESSING, ConditionStatus::True, &format!("{kind}Progressing"), &text)))
}

fn count_pods(session: Session<'_>, object: &ObjectReference, live: &Value) -> Result<i64, Error> {
    let label_selector = selector(&live["spec"]["selector"]);
    let params = ListParams { label_selector, ..ListParams::default() };
    let mut count = 0;
    session.each(&POD, &object.namespace, &params, &mut |pod: Option<Value>| match pod {
        Some(pod) => count += i64::from(progress::counts(&pod)),
        None => count = 0,
    })?;
    Ok(count)
}

/// The known state of an object.
enum ObjectPresence {
    Missing,
    Present,
    Body(Value),
}

/// Kinds whose objects need not be read, by namespace.
type NamespacedKind = (String, String, String);

/// Which objects exist. Several objects of a kind in a namespace are listed at once.
struct Inventory<'a> {
    session: Session<'a>,
    /// How many objects should exist.
    expected: SortedMap<NamespacedKind, usize>,
    listed: SortedMap<NamespacedKind, SortedSet<String>>,
}

impl<'a> Inventory<'a> {
    fn new(session: Session<'a>, objects: &[ObjectReference]) -> Self {
        let mut expected: SortedMap<NamespacedKind, usize> = SortedMap::new();
        objects.iter().for_each(|object| *expected.entry(place(object)).or_default() += 1);
        Self { session, expected, listed: SortedMap::new() }
    }

    fn find(&mut self, object: &ObjectReference) -> Result<ObjectPresence, Error> {
        let (api_version, kind) = (&object.api_version, &object.kind);
        if is_read(api_version, kind) {
            let found = self.session.find(object)?;
            return Ok(found.map_or(ObjectPresence::Missing, |(_, live)| ObjectPresence::Body(live)));
        }
        let inventory = &self.session.target.inventory;
        if inventory.has(&kind_key(api_version, kind), &object.namespace, &object.name)
            || self.is_listed(object)?
        {
            return Ok(ObjectPresence::Present);
        }
        let found = self.session.find::<Metadata>(object)?;
        Ok(found.map_or(ObjectPresence::Missing, |_| ObjectPresence::Present))
    }

    /// Whether a list contains the object. If not, it may still exist: without our label, or created since.
    fn is_listed(&mut self, object: &ObjectReference) -> Result<bool, Error> {
        let place = place(object);
        if self.expected.get(&place).is_none_or(|count| *count < 2) {
            return Ok(false);
        }
        if !self.listed.contains_key(&place) {
            let names = self.list(object)?;
            self.listed.insert(place.clone(), names);
        }
        Ok(self.listed.get(&place).is_some_and(|names| names.contains(&object.name)))
    }

    fn list(&self, object: &ObjectReference) -> Result<SortedSet<String>, Error> {
        let mut names = SortedSet::new();
        let Some(resource) = self.session.resource(&object.api_version, &object.kind)? else {
            return Ok(names);
        };
        let label_selector = names::applied_objects();
        let params = ListParams { label_selector, metadata_only: true, ..ListParams::default() };
        let mut add = |found: Option<Metadata>| match found {
            Some(found) if found.metadata.name.len() <= limits::SHOOT_NAME_BYTES_MAX => {
                names.insert(found.metadata.name);
            }
            // Objects with longer names are read one by one.
            Some(_) => {}
            None => names.clear(),
        };
        let listed = self.session.each(&resource, &object.namespace, &params, &mut add);
        match listed {
            Err(error) if !error.is_not_found() => Err(error.into()),
            _ => Ok(names),
        }
    }
}

fn place(object: &ObjectReference) -> NamespacedKind {
    (object.api_version.clone(), object.kind.clone(), object.namespace.clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn problems_are_checked_more_often() {
        let now = Timestamp::from_unix(1_000);
        let condition = |kind: &str, status: ConditionStatus, age_s: u64| {
            let at = now.minus(Duration::from_secs(age_s));
            Condition { status, ..Condition::initial(kind, at) }
        };
        let table = [
            (ConditionStatus::True, 1, ConditionStatus::False, 1, 60),
            (ConditionStatus::False, 0, ConditionStatus::False, 9, 2),
            (ConditionStatus::False, 20, ConditionStatus::False, 1, 20),
            (ConditionStatus::False, 900, ConditionStatus::False, 1, 60),
            (ConditionStatus::True, 1, ConditionStatus::True, 7, 7),
            (ConditionStatus::False, 20, ConditionStatus::True, 7, 7),
            (ConditionStatus::Unknown, 7, ConditionStatus::True, 20, 7),
        ];
        for (healthy, healthy_s, progressing, progressing_s, expected) in table {
            let found =
                [condition(HEALTHY, healthy, healthy_s), condition(PROGRESSING, progressing, progressing_s)];
            let got = again(&found, now, Duration::from_secs(60));
            assert_eq!(
                got,
                Duration::from_secs(expected),
                "{healthy} {healthy_s} {progressing} {progressing_s}"
            );
        }
    }
}
