//! Collects Secrets and ConfigMaps that nothing refers to any more.
//!
//! Gardener never changes the content of such objects: a new content gets a new object, and its users refer to it in an
//! annotation. Old objects without such an annotation in their namespace are deleted. This is done in the seed, and in
//! each served cluster of a Shoot.

use std::sync::Arc;
use std::time::Duration;

use super::error::Error;
use super::session::Session;
use super::{ApplierContext, jittered};
use crate::api::core::{CONFIG_MAP, CRON_JOB, DAEMON_SET, DEPLOYMENT, JOB, POD, SECRET, STATEFUL_SET};
use crate::api::meta::{ALL_NAMESPACES, Key, Metadata, ObjectMeta, Resource};
use crate::api::resources::{GARBAGE_COLLECTABLE, MANAGED_RESOURCE, REFERENCE_PREFIX};
use crate::base::clock::Timestamp;
use crate::base::sorted::SortedMap;
use crate::kube::{DeleteParams, ListItem, ListParams};
use crate::runtime::controller::{ReconcileContext, ReconcileFailure, ReconcileOutcome, Reconciler};

/// Younger ones stay, because their user may not be written yet.
const AGE_MIN: Duration = Duration::from_secs(600);

const PROMETHEUS: Resource = Resource::new("monitoring.coreos.com", "v1", "Prometheus", "prometheuses", true);

/// All kinds whose annotations count.
const USERS: [Resource; 8] =
    [DEPLOYMENT, STATEFUL_SET, DAEMON_SET, JOB, CRON_JOB, POD, MANAGED_RESOURCE, PROMETHEUS];

/// The longest delay before the first collection in a Shoot that is served: collections that start together
/// are spread over this time.
const FIRST_MAX: Duration = Duration::from_secs(3_600);
/// How soon to retry an unreachable Shoot.
const AWAY_AGAIN: Duration = Duration::from_secs(600);

/// Collects garbage. Its keys are those of [`key`].
#[derive(Debug)]
pub struct GarbageCollector(pub(super) Arc<ApplierContext>);

/// The key of the cluster whose ManagedResources are in a namespace of the seed. An empty namespace means
/// the seed itself.
pub(super) fn key(namespace: &str) -> Key {
    Key::new(namespace, "garbage")
}

/// The delay before the first collection in a Shoot. No object that was created at that time is garbage before.
pub(super) fn first(chance: f64) -> Duration {
    AGE_MIN + (FIRST_MAX - AGE_MIN).mul_f64(chance)
}

impl Reconciler for GarbageCollector {
    fn reconcile(&self, key: &Key, cx: &ReconcileContext) -> Result<ReconcileOutcome, ReconcileFailure> {
        // A cluster that is not served any more gets a new key when it is served again.
        let Some(target) = self.0.targets.at(&key.namespace) else { return Ok(ReconcileOutcome::Done) };
        let failure = match collect(self.0.session(&target, cx)) {
            Ok(()) if key.namespace.is_empty() => {
                return Ok(ReconcileOutcome::After(self.0.settings.collect_period));
            }
            Ok(()) => return Ok(jittered(self.0.settings.collect_period)),
            Err(error) => error,
        };
        if !key.namespace.is_empty() && failure.is_away() {
            // The check of the cluster reports the failure.
            return Err(ReconcileFailure::later(AWAY_AGAIN, failure));
        }
        Err(failure.into_failure())
    }
}

fn collect(session: Session<'_>) -> Result<(), Error> {
    let mut garbage = Garbage::default();
    for (resource, kind) in [(&SECRET, Kind::Secret), (&CONFIG_MAP, Kind::ConfigMap)] {
        let label_selector = format!("{GARBAGE_COLLECTABLE}=true");
        each(session, resource, label_selector, &mut |seen| {
            if let Ok(meta) = seen {
                garbage.suspect(kind, meta, session.now());
            }
        })?;
    }
    for user in USERS {
        if garbage.0.is_empty() {
            return Ok(());
        }
        each(session, &user, String::new(), &mut |seen| match seen {
            Ok(meta) => garbage.spare(&meta),
            // It may refer to anything.
            Err(key) if key.name.is_empty() => garbage.0.clear(),
            Err(key) => garbage.spare_all(&key.namespace),
        })?;
    }
    let mut problems = Vec::new();
    for (suspect, version) in &garbage.0 {
        match delete(session, suspect, version) {
            Ok(()) => {}
            Err(error) if error.is_postponed() => return Err(error),
            Err(error) => problems.push(error.text()),
        }
    }
    if problems.is_empty() { Ok(()) } else { Err(Error::Several(problems)) }
}

/// Calls back with each object, or with the key of an unreadable one, which may contain references.
fn each(
    session: Session<'_>,
    resource: &Resource,
    label_selector: String,
    see: &mut dyn FnMut(Result<ObjectMeta, Key>),
) -> Result<(), Error> {
    let params = ListParams { label_selector, metadata_only: true, ..ListParams::default() };
    // A restarted list repeats objects, which is harmless for suspects and spared ones.
    let mut see_item = |item: ListItem<Metadata>| match item {
        ListItem::Object(object) => see(Ok(object.metadata)),
        ListItem::Undecodable(object) => see(Err(object.key)),
        ListItem::Restart => {}
    };
    match session.target.client.list_each(resource, ALL_NAMESPACES, &params, &mut see_item) {
        Err(error) if !error.is_not_found() => Err(error.into()),
        _ => Ok(()),
    }
}

fn delete(session: Session<'_>, suspect: &Suspect, version: &ObjectVersion) -> Result<(), Error> {
    let resource = if suspect.kind == Kind::Secret { &SECRET } else { &CONFIG_MAP };
    let (namespace, name) = (suspect.namespace.as_str(), suspect.name.as_str());
    let live = crate::base::json::json!({"metadata": {"namespace": namespace, "name": name}});
    let params = DeleteParams {
        uid: Some(version.uid.clone()),
        resource_version: Some(version.resource_version.clone()),
        ..DeleteParams::default()
    };
    log::info!(kind = &*resource.kind, namespace, name; "Deleting an object that nothing refers to");
    match session.delete(resource, &live, &params) {
        Err(Error::Request(error)) if error.is_not_found() || error.is_conflict() => Ok(()),
        result => result,
    }
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Kind {
    Secret,
    ConfigMap,
}

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Suspect {
    kind: Kind,
    namespace: String,
    name: String,
}

/// The object must still be the same one when it is deleted.
#[derive(Clone, PartialEq, Eq, Debug)]
struct ObjectVersion {
    uid: String,
    resource_version: String,
}

/// The objects to delete, as far as is known.
#[derive(Debug, Default)]
struct Garbage(SortedMap<Suspect, ObjectVersion>);

impl Garbage {
    /// An object that may be garbage.
    fn suspect(&mut self, kind: Kind, meta: ObjectMeta, now: Timestamp) {
        let is_old = meta.creation_timestamp.is_some_and(|at| now.since(at) > AGE_MIN);
        if is_old && meta.deletion_timestamp.is_none() {
            let suspect = Suspect { kind, namespace: meta.namespace, name: meta.name };
            let version = ObjectVersion { uid: meta.uid, resource_version: meta.resource_version };
            self.0.insert(suspect, version);
        }
    }

    /// Spares the suspects that an object's annotations refer to.
    fn spare(&mut self, user: &ObjectMeta) {
        for (annotation, name) in &user.annotations {
            if let Some(kind) = reference_kind(annotation) {
                self.0.remove(&Suspect { kind, namespace: user.namespace.clone(), name: name.clone() });
            }
        }
    }

    /// Spares all suspects of a namespace, because an unreadable object may refer to them.
    fn spare_all(&mut self, namespace: &str) {
        self.0.retain(|suspect, _| suspect.namespace != namespace && !namespace.is_empty());
    }
}

/// The kind that an annotation refers to: `reference.resources.gardener.cloud/{secret|configmap}-<suffix>: <name>`.
/// Gardener writes eight hex digits as the suffix, others any text; upstream accepts each one without another dash.
fn reference_kind(annotation: &str) -> Option<Kind> {
    let (kind, suffix) = annotation.strip_prefix(REFERENCE_PREFIX)?.split_once('-')?;
    match kind {
        _ if suffix.contains('-') => None,
        "secret" => Some(Kind::Secret),
        "configmap" => Some(Kind::ConfigMap),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp::from_unix(10_000);

    fn meta(namespace: &str, name: &str, age_s: u64) -> ObjectMeta {
        ObjectMeta {
            name: name.into(),
            namespace: namespace.into(),
            uid: "u".into(),
            resource_version: "7".into(),
            creation_timestamp: Some(NOW.minus(Duration::from_secs(age_s))),
            ..ObjectMeta::default()
        }
    }

    fn user(namespace: &str, annotation: &str, name: &str) -> ObjectMeta {
        let annotations = SortedMap::from([(annotation.to_owned(), name.to_owned())]);
        ObjectMeta { annotations, ..meta(namespace, "user", 1) }
    }

    #[test]
    fn only_old_objects_are_suspects() {
        for (age_s, expected) in [(601, 1), (600, 0), (0, 0)] {
            let mut garbage = Garbage::default();
            garbage.suspect(Kind::Secret, meta("a", "x", age_s), NOW);
            assert_eq!(garbage.0.len(), expected, "{age_s}");
        }
        let mut garbage = Garbage::default();
        garbage.suspect(
            Kind::Secret,
            ObjectMeta { deletion_timestamp: Some(NOW), ..meta("a", "x", 9_000) },
            NOW,
        );
        garbage.suspect(Kind::Secret, ObjectMeta { creation_timestamp: None, ..meta("a", "x", 9_000) }, NOW);
        assert!(garbage.0.is_empty());
    }

    #[test]
    fn referenced_objects_are_spared() {
        let secret = "reference.resources.gardener.cloud/secret-12ab34cd";
        let table = [
            (Kind::Secret, "a", secret, "x", true),
            (Kind::ConfigMap, "a", "reference.resources.gardener.cloud/configmap-12ab34cd", "x", true),
            (Kind::Secret, "b", secret, "x", false),
            (Kind::Secret, "a", secret, "y", false),
            (Kind::ConfigMap, "a", secret, "x", false),
            (Kind::Secret, "a", "reference.resources.gardener.cloud/secret-12ab34", "x", true),
            (Kind::Secret, "a", "reference.resources.gardener.cloud/secret-12ab34cz", "x", true),
            (Kind::Secret, "a", "reference.resources.gardener.cloud/secret-foo", "x", true),
            (Kind::ConfigMap, "a", "reference.resources.gardener.cloud/configmap-foo", "x", true),
            (Kind::Secret, "a", "reference.resources.gardener.cloud/secret-", "x", true),
            (Kind::Secret, "a", "reference.resources.gardener.cloud/secret", "x", false),
            (Kind::Secret, "a", "reference.resources.gardener.cloud/secret-foo-bar", "x", false),
            (Kind::Secret, "a", "reference.resources.gardener.cloud/volume-12ab34cd", "x", false),
            (Kind::Secret, "a", "secret-12ab34cd", "x", false),
        ];
        for (kind, namespace, annotation, name, spared) in table {
            let mut garbage = Garbage::default();
            garbage.suspect(kind, meta("a", "x", 9_000), NOW);
            garbage.spare(&user(namespace, annotation, name));
            assert_eq!(garbage.0.is_empty(), spared, "{kind:?} {namespace} {annotation} {name}");
        }
    }
}
