//! Required: whether the seed has extension objects that an installation serves (Gardener's
//! `controllerinstallation-required`). The garden does not delete an installation that is required.
//!
//! Upstream watches twelve kinds for it. Here each kind that an installation serves is listed periodically and reduced
//! to the set of its types. A changed set wakes the installations that serve the kind. Kinds without an installation
//! are not listed: no condition depends on them.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde::Deserialize;

use crate::api::condition::{self, Condition, ConditionStatus, Finding};
use crate::api::extensions;
use crate::api::gardener::{CONTROLLER_INSTALLATION, ControllerInstallation, ControllerResource};
use crate::api::meta::{ALL_NAMESPACES, Key};
use crate::base::clock::Timestamp;
use crate::base::lock::IgnorePoison;
use crate::base::sorted::{SortedMap, SortedSet};
use crate::kube::request::ListParams;
use crate::runtime::controller::{ReconcileContext, ReconcileFailure, ReconcileOutcome, Reconciler};
use crate::runtime::group::ControllerGroup;
use crate::runtime::pool::Lane;
use crate::runtime::queue::{RETRY_DEFAULT, Retry};
use crate::runtime::store::Store;
use crate::runtime::write;

use super::Site;

/// The types of existing extension objects, by kind. A kind that was not listed yet is absent. Cheap to clone.
#[derive(Clone, Debug, Default)]
struct ExistingTypes(Arc<Mutex<SortedMap<String, SortedSet<String>>>>);

impl ExistingTypes {
    fn snapshot(&self) -> SortedMap<String, SortedSet<String>> {
        self.0.lock().ignore_poison().clone()
    }

    fn forget(&self, kind: &str) {
        self.0.lock().ignore_poison().remove(kind);
    }

    /// Stores a list; true if it differs from the previous one, or is the first.
    fn replace(&self, kind: &str, types: SortedSet<String>) -> bool {
        let mut all = self.0.lock().ignore_poison();
        if all.get(kind) == Some(&types) {
            return false;
        }
        all.insert(kind.to_owned(), types);
        true
    }
}

/// How often the types of extension objects are listed.
const TYPES_PERIOD: Duration = Duration::from_secs(120);

/// Adds the controller and its lister.
pub(crate) fn add(site: &Arc<Site>, group: &mut ControllerGroup) {
    let workers = site.settings.controllers.controller_installation_required_workers;
    let required = group.lane("controllerinstallation-required", workers, RETRY_DEFAULT);
    let lister = group.lane("controllerinstallation-required-types", 1, Retry::up_to(TYPES_PERIOD));
    group.wake(&required, &site.installations, |change| change.new.is_some().then(|| change.key.clone()));
    let installations = site.installations.store().clone();
    group.wake(&required, &site.registrations, move |change| {
        installations_of(&installations, &change.key.name)
    });
    let types = ExistingTypes::default();
    let reconciler =
        RequiredReconciler { site: Arc::clone(site), types: types.clone(), lister: lister.clone() };
    let types = TypesReconciler { site: Arc::clone(site), types, wake: required.clone() };
    group.run(required, reconciler);
    group.run(lister, types);
}

/// The installations of a registration.
fn installations_of(all: &Store<ControllerInstallation>, registration: &str) -> Vec<Key> {
    let ours = |object: &ControllerInstallation| object.spec.registration_ref.name == registration;
    all.all().into_iter().filter(|(_, object)| ours(object)).map(|(key, _)| key).collect()
}

/// Lists the extension objects of one kind while the kind is served. Its key is the kind's name.
struct TypesReconciler {
    site: Arc<Site>,
    types: ExistingTypes,
    /// The queue of [`RequiredReconciler`].
    wake: Lane,
}

#[derive(Deserialize)]
#[serde(default)]
#[derive(Default)]
struct ExtensionObject {
    spec: ExtensionSpec,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct ExtensionSpec {
    #[serde(rename = "type")]
    type_name: String,
    class: String,
}

impl Reconciler for TypesReconciler {
    fn reconcile(&self, key: &Key, _: &ReconcileContext) -> Result<ReconcileOutcome, ReconcileFailure> {
        let Some(resource) = extensions::SERVED.iter().find(|r| r.kind == key.name.as_str()) else {
            return Ok(ReconcileOutcome::Done);
        };
        let served_by = self.served_by(&key.name);
        if served_by.is_empty() {
            // The next installation that serves the kind requests a new list.
            self.types.forget(&key.name);
            return Ok(ReconcileOutcome::Done);
        }
        let mut types = SortedSet::new();
        let mut see = |object: ExtensionObject| {
            if matches!(object.spec.class.as_str(), "" | "shoot" | "seed") {
                types.insert(object.spec.type_name);
            }
        };
        match self.site.seed.list_all(resource, ALL_NAMESPACES, &ListParams::default(), &mut see) {
            // A kind that is not served has no objects.
            Err(e) if !e.is_not_found() => return Err(e.into()),
            _ => {}
        }
        if self.types.replace(&key.name, types) {
            served_by.into_iter().for_each(|installation| self.wake.add(installation));
        }
        Ok(ReconcileOutcome::After(TYPES_PERIOD))
    }
}

impl TypesReconciler {
    /// The installations whose registration names the kind.
    fn served_by(&self, kind: &str) -> Vec<Key> {
        let serves = |object: &ControllerInstallation| {
            let registration = Key::cluster(object.spec.registration_ref.name.as_str());
            let registration = self.site.registrations.store().get(&registration);
            registration.is_some_and(|r| r.spec.resources.iter().any(|resource| resource.kind == kind))
        };
        self.site
            .installations
            .store()
            .all()
            .into_iter()
            .filter(|(_, o)| serves(o))
            .map(|(key, _)| key)
            .collect()
    }
}

struct RequiredReconciler {
    site: Arc<Site>,
    types: ExistingTypes,
    /// The queue of [`TypesReconciler`].
    lister: Lane,
}

impl Reconciler for RequiredReconciler {
    fn reconcile(&self, key: &Key, cx: &ReconcileContext) -> Result<ReconcileOutcome, ReconcileFailure> {
        let Some(installation) = self.site.installations.store().get(key) else {
            return Ok(ReconcileOutcome::Done);
        };
        let registration = Key::cluster(installation.spec.registration_ref.name.as_str());
        let Some(registration) = self.site.registrations.store().get(&registration) else {
            return Ok(ReconcileOutcome::Done);
        };
        let old = &installation.status.conditions;
        let served = &registration.spec.resources;
        let existing = self.types.snapshot();
        for unknown in served.iter().filter(|r| !existing.contains_key(&r.kind)) {
            self.lister.add(Key::new("", unknown.kind.as_str()));
        }
        if let Some(wanted) = decide(served, &existing, old, cx.clock.now()) {
            write::conditions(&self.site.garden, &CONTROLLER_INSTALLATION, key, old, &[wanted])?;
        }
        Ok(ReconcileOutcome::Done)
    }
}

/// The condition; `None` while the list of a served kind is missing.
fn decide(
    served: &[ControllerResource],
    existing: &SortedMap<String, SortedSet<String>>,
    old: &[Condition],
    now: Timestamp,
) -> Option<Condition> {
    let exists =
        |r: &&ControllerResource| existing.get(&r.kind).is_some_and(|types| types.contains(&r.type_name));
    // It does not matter whether the registration is the primary one of its kind and type.
    let needed: SortedSet<String> =
        served.iter().filter(exists).map(|r| format!("{}/{}", r.kind, r.type_name)).collect();
    let (status, reason, message) = if !needed.is_empty() {
        let objects = needed.into_iter().collect::<Vec<_>>().join(" ");
        let message = format!("extension objects still exist in the seed: [{objects}]");
        (ConditionStatus::True, "ExtensionObjectsExist", message)
    } else if served.iter().all(|r| existing.contains_key(&r.kind)) {
        let message = "no extension objects exist in the seed having the kind/type combinations the controller is \
             responsible for";
        (ConditionStatus::False, "NoExtensionObjects", message.to_owned())
    } else {
        return None;
    };
    Some(condition::find_or_init(old, "Required", now).updated(now, status, Finding::new(reason, message)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn served() -> Vec<ControllerResource> {
        let resource = |kind: &str, name: &str| ControllerResource {
            kind: kind.to_owned(),
            type_name: name.to_owned(),
            ..ControllerResource::default()
        };
        vec![resource("Infrastructure", "local"), resource("Worker", "local")]
    }

    fn existing(pairs: &[(&str, &[&str])]) -> SortedMap<String, SortedSet<String>> {
        let set = |types: &[&str]| types.iter().map(|t| (*t).to_owned()).collect();
        pairs.iter().map(|(kind, types)| ((*kind).to_owned(), set(types))).collect()
    }

    #[test]
    fn when_an_installation_is_required() {
        let now = Timestamp::from_unix(1);
        let none = "no extension objects exist in the seed having the kind/type combinations the controller is \
            responsible for";
        let some = "extension objects still exist in the seed: [Worker/local]";
        let both = "extension objects still exist in the seed: [Infrastructure/local Worker/local]";
        let table = [
            (existing(&[]), None),
            (existing(&[("Infrastructure", &[])]), None),
            (
                existing(&[("Infrastructure", &[]), ("Worker", &["other"])]),
                Some(("False", "NoExtensionObjects", none)),
            ),
            (existing(&[("Worker", &["local"])]), Some(("True", "ExtensionObjectsExist", some))),
            (
                existing(&[("Infrastructure", &["local"]), ("Worker", &["local", "x"])]),
                Some(("True", "ExtensionObjectsExist", both)),
            ),
        ];
        for (existing, expected) in table {
            let found = decide(&served(), &existing, &[], now);
            let found = found.as_ref().map(|c| (c.status.as_str(), c.reason.as_str(), c.message.as_str()));
            assert_eq!(found, expected, "{existing:?}");
        }
    }

    #[test]
    fn the_first_list_counts_as_a_change_even_if_it_is_empty() {
        let types = ExistingTypes::default();
        assert!(types.replace("Worker", SortedSet::new()));
        assert!(!types.replace("Worker", SortedSet::new()));
        assert!(types.replace("Worker", SortedSet::from(["local".to_owned()])));
        types.forget("Worker");
        assert!(types.replace("Worker", SortedSet::from(["local".to_owned()])));
    }
}
