//! Installed, Healthy and Progressing, from the conditions of the installation's ManagedResource (Gardener's
//! `controllerinstallation-care`).

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::api::condition::{self, Condition, Finding, Status};
use crate::api::gardener::{CONTROLLER_INSTALLATION, ControllerInstallation};
use crate::api::meta::Key;
use crate::api::resources::MANAGED_RESOURCE;
use crate::base::clock::Timestamp;
use crate::base::error::chain;
use crate::kube::{self, Garden, Seed};
use crate::resources::Watched;
use crate::runtime::controller::{Context, Failure, Outcome, Reconciler};
use crate::runtime::store::Store;
use crate::runtime::write;

use super::objects::GARDEN_NAMESPACE;

/// The controller.
pub struct CareReconciler {
    /// The garden.
    pub garden: Garden,
    /// The seed.
    pub seed: Seed,
    /// Installations of this seed.
    pub installations: Store<ControllerInstallation>,
    /// The ManagedResources of the seed.
    pub managed: Store<Watched>,
    /// What stands in the way of all ManagedResources, if something does, as a sentence.
    pub remarks: Arc<dyn Fn() -> Option<String> + Send + Sync>,
    /// `controllerInstallationCare.syncPeriod`.
    pub sync_period: Duration,
}

impl fmt::Debug for CareReconciler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CareReconciler").field("sync_period", &self.sync_period).finish_non_exhaustive()
    }
}

/// The installation whose care a change of a ManagedResource wakes. `None`: not there.
pub fn wants_care(old: Option<&Watched>, new: Option<&Watched>) -> Option<Key> {
    let generations = |w: &Watched| (w.metadata.generation, w.status.observed_generation);
    let told = match (old, new) {
        (Some(old), Some(new)) => {
            old.status.conditions != new.status.conditions || generations(old) != generations(new)
        }
        _ => true,
    };
    told.then(|| installation_of(new.or(old)?)).flatten()
}

/// The installation that has to be rolled out again: somebody took its ManagedResource away, or the seed's storage was
/// restored to an older state. Nothing in the garden changes then.
pub fn wants_rollout(old: Option<&Watched>, new: Option<&Watched>) -> Option<Key> {
    let went_back = |old: &Watched| {
        new.is_none_or(|new| {
            new.metadata.uid != old.metadata.uid || new.metadata.generation < old.metadata.generation
        })
    };
    old.filter(|old| went_back(old)).and_then(installation_of)
}

/// Whose ManagedResource this is.
fn installation_of(managed: &Watched) -> Option<Key> {
    let name = managed.metadata.labels.get(INSTALLATION_LABEL).filter(|name| !name.is_empty())?;
    (managed.metadata.namespace == GARDEN_NAMESPACE).then(|| Key::new("", name.as_str()))
}

const INSTALLATION_LABEL: &str = "controllerinstallation-name";

/// How soon to look again for a ManagedResource that is not there yet.
const AGAIN_SOON: Duration = Duration::from_secs(1);

impl Reconciler for CareReconciler {
    fn name(&self) -> &'static str {
        "controllerinstallation-care"
    }

    fn reconcile(&self, key: &Key, cx: &Context) -> Result<Outcome, Failure> {
        let Some(installation) = self.installations.get(key) else { return Ok(Outcome::Done) };
        if installation.metadata.deletion_timestamp.is_some() {
            return Ok(Outcome::Done);
        }
        let read = self.managed(&key.name);
        let old = &installation.status.conditions;
        let now = cx.clock.now();
        let wanted = match &read {
            Ok(managed) => judge(managed, (self.remarks)().as_deref(), old, now),
            Err(e) => unreadable(&key.name, &chain(e), old, now),
        };
        cx.may_write()?;
        write::conditions(&self.garden, &CONTROLLER_INSTALLATION, key, old, &wanted)?;
        match read {
            Ok(_) => Ok(Outcome::After(self.sync_period)),
            Err(e) if e.is_not_found() => Ok(Outcome::After(AGAIN_SOON)),
            Err(e) => Err(e.into()),
        }
    }
}

impl CareReconciler {
    /// What the informer does not know may be new, or the informer is not at work.
    fn managed(&self, name: &str) -> Result<Arc<Watched>, kube::Error> {
        let known = self.managed.get(&Key::new(GARDEN_NAMESPACE, name));
        known.map_or_else(
            || self.seed.get::<Watched>(&MANAGED_RESOURCE, GARDEN_NAMESPACE, name).map(Arc::new),
            Ok,
        )
    }
}

fn set(
    old: &[Condition],
    kind: &str,
    now: Timestamp,
    status: Status,
    reason: &str,
    message: &str,
) -> Condition {
    condition::find_or_init(old, kind, now).updated(now, status, Finding::new(reason, message))
}

fn unreadable(name: &str, error: &str, old: &[Condition], now: Timestamp) -> Vec<Condition> {
    let message = format!("Failed to get ManagedResource \"{GARDEN_NAMESPACE}/{name}\": {error}");
    let unknown = |kind| set(old, kind, now, Status::Unknown, "SeedReadError", &message);
    ["Installed", "Healthy", "Progressing"].map(unknown).to_vec()
}

/// The three conditions, by the table of `controllers.md` §5.1.
fn judge(managed: &Watched, remark: Option<&str>, old: &[Condition], now: Timestamp) -> Vec<Condition> {
    let set = |kind, (status, reason, message): (Status, &str, String)| {
        set(old, kind, now, status, reason, &message)
    };
    let installed = match applied(managed) {
        Ok(()) => {
            let message = "The controller was successfully installed in the seed cluster.";
            (Status::True, "InstallationSuccessful", message.to_owned())
        }
        Err(why) => {
            let message = remark.map_or_else(|| why.clone(), |remark| format!("{why}. {remark}"));
            (Status::False, "InstallationPending", message)
        }
    };
    let healthy = match expect(managed, "ResourcesHealthy", Status::True) {
        Ok(()) => {
            let message = "The controller running in the seed cluster is healthy.";
            (Status::True, "ControllerHealthy", message.to_owned())
        }
        Err(why) => (Status::False, "ControllerNotHealthy", why),
    };
    let progressing = match expect(managed, "ResourcesProgressing", Status::False) {
        Ok(()) => {
            let message = "The controller has been rolled out successfully.";
            (Status::False, "ControllerRolledOut", message.to_owned())
        }
        Err(why) => (Status::True, "ControllerNotRolledOut", why),
    };
    vec![set("Installed", installed), set("Healthy", healthy), set("Progressing", progressing)]
}

fn applied(managed: &Watched) -> Result<(), String> {
    let (observed, generation) = (managed.status.observed_generation, managed.metadata.generation);
    if observed != generation {
        let key = managed.metadata.key();
        let why = managed.apply_problem().map(|why| format!(": {why}")).unwrap_or_default();
        return Err(format!(
            "observed generation of managed resource {key} outdated ({observed}/{generation}){why}"
        ));
    }
    expect(managed, "ResourcesApplied", Status::True)
}

fn expect(managed: &Watched, kind: &str, status: Status) -> Result<(), String> {
    let key = managed.metadata.key();
    match managed.status.conditions.iter().find(|c| c.kind == kind) {
        None => Err(format!("condition {kind} for managed resource {key} has not been reported yet")),
        Some(c) if c.status == status => Ok(()),
        Some(c) => Err(format!("condition {kind} of managed resource {key} is {}: {}", c.status, c.message)),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    const NOW: Timestamp = Timestamp::from_unix(1_000);

    fn managed(observed: i64, conditions: &[(&str, &str)]) -> Watched {
        let conditions: Vec<Value> = conditions
            .iter()
            .map(|(kind, status)| json!({"type": kind, "status": status, "reason": "r", "message": "why"}))
            .collect();
        serde_json::from_value(json!({
            "metadata": {"namespace": "garden", "name": "ci", "generation": 2},
            "spec": {"secretRefs": []},
            "status": {"observedGeneration": observed, "conditions": conditions},
        }))
        .unwrap()
    }

    #[test]
    fn each_row_of_the_table() {
        let good =
            [("ResourcesApplied", "True"), ("ResourcesHealthy", "True"), ("ResourcesProgressing", "False")];
        let bad = [
            ("ResourcesApplied", "False"),
            ("ResourcesHealthy", "Unknown"),
            ("ResourcesProgressing", "True"),
        ];
        let not = |kind, status| format!("condition {kind} of managed resource garden/ci is {status}: why");
        let missing =
            |kind| format!("condition {kind} for managed resource garden/ci has not been reported yet");
        let table = [
            (
                managed(2, &good),
                [
                    (
                        "True",
                        "InstallationSuccessful",
                        "The controller was successfully installed in the seed cluster.".to_owned(),
                    ),
                    (
                        "True",
                        "ControllerHealthy",
                        "The controller running in the seed cluster is healthy.".to_owned(),
                    ),
                    (
                        "False",
                        "ControllerRolledOut",
                        "The controller has been rolled out successfully.".to_owned(),
                    ),
                ],
            ),
            (
                managed(2, &bad),
                [
                    ("False", "InstallationPending", not("ResourcesApplied", "False")),
                    ("False", "ControllerNotHealthy", not("ResourcesHealthy", "Unknown")),
                    ("True", "ControllerNotRolledOut", not("ResourcesProgressing", "True")),
                ],
            ),
            (
                managed(2, &[]),
                [
                    ("False", "InstallationPending", missing("ResourcesApplied")),
                    ("False", "ControllerNotHealthy", missing("ResourcesHealthy")),
                    ("True", "ControllerNotRolledOut", missing("ResourcesProgressing")),
                ],
            ),
            (
                managed(1, &good),
                [
                    (
                        "False",
                        "InstallationPending",
                        "observed generation of managed resource garden/ci outdated (1/2)".to_owned(),
                    ),
                    (
                        "True",
                        "ControllerHealthy",
                        "The controller running in the seed cluster is healthy.".to_owned(),
                    ),
                    (
                        "False",
                        "ControllerRolledOut",
                        "The controller has been rolled out successfully.".to_owned(),
                    ),
                ],
            ),
        ];
        for (managed, expected) in table {
            let found = judge(&managed, None, &[], NOW);
            let found: Vec<_> =
                found.iter().map(|c| (c.status.as_str(), c.reason.as_str(), c.message.clone())).collect();
            assert_eq!(found, expected);
        }
    }

    #[test]
    fn what_stands_in_the_way_is_said_while_an_installation_waits() {
        let remark = Some("Somebody else applies.");
        let message = |managed: &Watched| judge(managed, remark, &[], NOW)[0].message.clone();
        let expected = "condition ResourcesApplied for managed resource garden/ci has not been reported yet. Somebody else applies.";
        assert_eq!(message(&managed(2, &[])), expected);
        let expected = "The controller was successfully installed in the seed cluster.";
        assert_eq!(message(&managed(2, &[("ResourcesApplied", "True")])), expected);
    }

    #[test]
    fn what_wakes_the_care() {
        let labelled = |mut watched: Watched, namespace: &str, label: &str| {
            watched.metadata.namespace = namespace.to_owned();
            watched.metadata.labels.insert("controllerinstallation-name".to_owned(), label.to_owned());
            Some(watched)
        };
        let plain = labelled(managed(2, &[("ResourcesApplied", "True")]), "garden", "ci");
        let mut annotated = plain.clone();
        annotated.as_mut().unwrap().metadata.annotations.insert("a".to_owned(), "b".to_owned());
        let unhealthy = labelled(managed(2, &[("ResourcesApplied", "False")]), "garden", "ci");
        let outdated = labelled(managed(1, &[("ResourcesApplied", "True")]), "garden", "ci");
        let mut reworded = plain.clone();
        reworded.as_mut().unwrap().status.conditions[0].message = "other".to_owned();
        let table = [
            ("new", &None, &plain, true),
            ("gone", &plain, &None, true),
            ("same", &plain, &annotated, false),
            ("other status", &plain, &unhealthy, true),
            ("other message", &plain, &reworded, true),
            ("other observed generation", &plain, &outdated, true),
            ("of nobody", &None, &labelled(managed(2, &[]), "garden", ""), false),
            ("elsewhere", &None, &labelled(managed(2, &[]), "shoot--a--b", "ci"), false),
        ];
        for (name, old, new, expected) in table {
            let woken = wants_care(old.as_ref(), new.as_ref());
            assert_eq!(woken, expected.then(|| Key::new("", "ci")), "{name}");
        }
        let generation = |generation| {
            let mut watched = plain.clone();
            watched.as_mut().unwrap().metadata.generation = generation;
            watched
        };
        let mut another = plain.clone();
        another.as_mut().unwrap().metadata.uid = "other".to_owned();
        let table = [
            ("new", &None, &plain, false),
            ("same", &plain, &plain, false),
            ("rolled out", &generation(2), &generation(3), false),
            ("restored", &generation(3), &generation(2), true),
            ("made anew", &plain, &another, true),
            ("gone", &plain, &None, true),
            ("elsewhere", &labelled(managed(2, &[]), "shoot--a--b", "ci"), &None, false),
        ];
        for (name, old, new, expected) in table {
            let woken = wants_rollout(old.as_ref(), new.as_ref());
            assert_eq!(woken, expected.then(|| Key::new("", "ci")), "{name}");
        }
    }

    #[test]
    fn an_unreadable_resource_makes_all_three_unknown() {
        let conditions = unreadable("ci", "404", &[], NOW);
        let kinds: Vec<_> = conditions.iter().map(|c| c.kind.as_str()).collect();
        assert_eq!(kinds, ["Installed", "Healthy", "Progressing"]);
        for c in conditions {
            assert_eq!((c.status, c.reason.as_str()), (Status::Unknown, "SeedReadError"));
            assert_eq!(c.message, "Failed to get ManagedResource \"garden/ci\": 404");
        }
    }
}
