//! Looks in the clusters for the result of a task, and for what is missing. It changes nothing.

mod leaving;

use serde_json::Value;

use crate::api::core::{DEPLOYMENT, NAMESPACE, SERVICE};
use crate::api::extensions::{DNS_RECORD, EXTENSION};
use crate::api::gardener::{BACKUP_ENTRY, SHOOT_STATE};
use crate::api::meta::{Key, Resource, text};
use crate::api::resources::MANAGED_RESOURCE;
use crate::backup;
use crate::base::clock::Timestamp;
use crate::components::rollout::{self, Account};
use crate::config::Settings;
use crate::extension::{self, ExtensionClass, ExtensionObject, ReconcileMoment};
use crate::flow::Failed;
use crate::kube::{Garden, Seed};
use crate::resources::ManagedResourceHead;
use crate::runtime::events;
use crate::shoot::client::ShootConnector;

use super::kinds::Operation;
use super::{look, records};

/// Events of a pod that are shown.
const EVENTS_MAX: usize = 5;

/// The result of a look.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Seen {
    /// The result of the task exists.
    There,
    /// The result is missing, for these reasons.
    Missing(Vec<String>),
    /// Only the agent knows the result.
    Nowhere,
    /// The result could not be read, for this reason.
    Unread(String),
}

/// Reads the objects that a task waits for in garden, seed and Shoot.
pub(crate) struct Looker<'a> {
    pub(crate) garden: &'a Garden,
    pub(crate) seed: &'a Seed,
    /// Makes clients of Shoots.
    pub(crate) shoots: &'a ShootConnector,
    pub(crate) settings: &'a Settings,
    pub(crate) operation: Operation,
    /// The Seed in the garden.
    pub(crate) of: &'a Value,
    pub(crate) shoot: &'a Value,
    pub(crate) now: Timestamp,
}

/// How far an object must be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Expect {
    Exists,
    /// It exists, and its controller reports that it is well.
    Ready,
}

/// Where the result of a task can be seen.
pub(crate) type Evidence = fn(&Looker<'_>) -> Result<Seen, Failed>;

/// The clusters show nothing of the task.
pub(super) const fn only_in_the_log(_: &Looker<'_>) -> LookResult {
    Ok(Seen::Nowhere)
}

pub(super) type LookResult = Result<Seen, Failed>;

pub(super) fn missing(why: impl Into<String>) -> Seen {
    Seen::Missing(vec![why.into()])
}

pub(super) fn all(parts: Vec<Seen>) -> Seen {
    let mut missing = Vec::new();
    for part in parts {
        match part {
            Seen::There => {}
            Seen::Missing(why) => missing.extend(why),
            other => return other,
        }
    }
    if missing.is_empty() { Seen::There } else { Seen::Missing(missing) }
}

impl Looker<'_> {
    /// Looks for the result of a task.
    pub(crate) fn look(&self, evidence: Evidence) -> Seen {
        evidence(self).unwrap_or_else(|failed| Seen::Unread(failed.text))
    }

    pub(super) fn required_extensions(&self) -> LookResult {
        let missed =
            look::required_extensions(self.garden, self.of, self.shoot, &self.settings.edge.host_types)?;
        Ok(missed.map_or(Seen::There, missing))
    }

    pub(super) fn namespace(&self) -> LookResult {
        self.exists(&NAMESPACE, self.plane())
    }

    pub(super) fn service(&self, name: &str) -> LookResult {
        self.exists(&SERVICE, name)
    }

    pub(super) fn deployment(&self, name: &str) -> LookResult {
        self.exists(&DEPLOYMENT, name)
    }

    pub(super) fn rolled_out(&self, name: &str) -> LookResult {
        self.rollout(&DEPLOYMENT, name)
    }

    /// A ManagedResource exists.
    pub(super) fn written(&self, name: &str) -> LookResult {
        self.managed(name, Expect::Exists)
    }

    /// A ManagedResource exists, and its objects are healthy.
    pub(super) fn healthy(&self, name: &str) -> LookResult {
        self.managed(name, Expect::Ready)
    }

    /// The namespace of the control plane.
    pub(super) fn plane(&self) -> &str {
        text(&self.shoot["status"]["technicalID"])
    }

    fn key(&self, name: &str) -> Key {
        Key::new(self.plane(), name)
    }

    /// A field of the Shoot's status is not empty.
    pub(super) fn status(&self, field: &str) -> LookResult {
        Ok(match &self.shoot["status"][field] {
            Value::Null => missing(format!("status.{field} of the Shoot is empty")),
            _ => Seen::There,
        })
    }

    pub(super) fn exists(&self, resource: &Resource, name: &str) -> LookResult {
        let namespace = if resource.namespaced { self.plane() } else { "" };
        let found: Option<Value> = self.seed.find(resource, &Key::new(namespace, name))?;
        Ok(match found {
            None => missing(format!("{} {name} does not exist in the seed", resource.kind)),
            Some(object) if !object["metadata"]["deletionTimestamp"].is_null() => {
                missing(format!("{} {name} is being deleted", resource.kind))
            }
            Some(_) => Seen::There,
        })
    }

    pub(super) fn rollout(&self, resource: &Resource, name: &str) -> LookResult {
        let key = self.key(name);
        let found = rollout::look(self.seed, resource, &key)?;
        Ok(found.map_or(Seen::There, |(why, account)| Seen::Missing(self.account(why, &account))))
    }

    /// Describes the pod, its Events and its last log lines.
    fn account(&self, why: String, account: &Account) -> Vec<String> {
        let mut lines = vec![why];
        if let Some(pod) = &account.pod {
            let node = text(&pod["spec"]["nodeName"]);
            let place = if node.is_empty() { "no node yet".to_owned() } else { format!("node {node}") };
            let (name, phase) = (text(&pod["metadata"]["name"]), text(&pod["status"]["phase"]));
            lines.push(format!("its newest pod: {name}, {phase}, {place}"));
        }
        let mut newest: Vec<&Value> = account.events.iter().collect();
        newest.sort_by_key(|event| events::last_seen(event));
        let first = newest.len().saturating_sub(EVENTS_MAX);
        lines.extend(newest[first..].iter().map(|each| events::describe(each, self.now)));
        let last = account.last_lines(self.seed, self.plane());
        if !last.is_empty() {
            lines.push(format!("its last lines: {last}"));
        }
        lines
    }

    fn managed(&self, name: &str, expected: Expect) -> LookResult {
        let Some(found) =
            self.seed.find::<ManagedResourceHead>(&MANAGED_RESOURCE, &Key::new(self.plane(), name))?
        else {
            return Ok(missing(format!("ManagedResource {name} does not exist in the seed")));
        };
        let unhealthy = found.unhealthy(0).filter(|_| expected == Expect::Ready);
        Ok(unhealthy.map_or(Seen::There, |why| missing(format!("ManagedResource {name} {why}"))))
    }

    pub(super) fn backup_entry(&self, expected: Expect) -> LookResult {
        let entry = backup::garden::entry(self.shoot);
        let found = entry.find(self.garden)?;
        Ok(match found {
            None => missing(format!("BackupEntry {} does not exist in the garden", entry.key.name)),
            Some(object) if expected == Expect::Ready => ready(&BACKUP_ENTRY, &entry.key.name, &object),
            Some(_) => Seen::There,
        })
    }

    /// The garden has what another seed needs.
    pub(super) fn shoot_state(&self) -> LookResult {
        let key = Key::of(self.shoot);
        let found: Option<Value> = self.garden.find(&SHOOT_STATE, &key)?;
        Ok(found.map_or_else(|| missing(format!("the garden has no ShootState {key}")), |_| Seen::There))
    }

    /// Without a record, the Shoot may not need one.
    pub(super) fn record(&self, role: &str) -> LookResult {
        let target = self.target(role);
        let found = target.find(self.seed)?;
        Ok(found.map_or(Seen::Nowhere, |record| ready(&DNS_RECORD, &target.key.name, &record)))
    }

    pub(super) fn no_record(&self, role: &str) -> LookResult {
        let target = self.target(role);
        let why = || missing(format!("DNSRecord {} is still in the seed", target.key.name));
        Ok(target.find(self.seed)?.map_or(Seen::There, |_| why()))
    }

    pub(super) fn target(&self, role: &str) -> ExtensionObject {
        records::target(self.plane(), text(&self.shoot["metadata"]["name"]), role)
    }

    /// An extension object with the name of the Shoot.
    pub(super) fn object(&self, resource: &Resource, expected: Expect) -> LookResult {
        let name = text(&self.shoot["metadata"]["name"]);
        let found: Option<Value> = self.seed.find(resource, &Key::new(self.plane(), name))?;
        Ok(match found {
            None => missing(format!("{} {name} does not exist in the seed", resource.kind)),
            Some(object) if expected == Expect::Ready => ready(resource, name, &object),
            Some(_) => Seen::There,
        })
    }

    pub(super) fn extensions(&self, moment: ReconcileMoment, expected: Expect) -> LookResult {
        let registrations = look::registrations(self.garden)?;
        let wanted = extension::enabled(
            &self.shoot["spec"]["extensions"],
            &registrations,
            ExtensionClass::of(self.shoot),
        );
        let mut parts = Vec::new();
        for name in wanted.into_iter().filter(|each| each.moment == moment).map(|each| each.name) {
            let found: Option<Value> = self.seed.find(&EXTENSION, &Key::new(self.plane(), &name))?;
            parts.push(match found {
                None => missing(format!("Extension {name} does not exist in the seed")),
                Some(object) if expected == Expect::Ready => ready(&EXTENSION, &name, &object),
                Some(_) => Seen::There,
            });
        }
        Ok(all(parts))
    }
}

fn ready(resource: &Resource, name: &str, object: &Value) -> Seen {
    match extension::check(object) {
        Ok(()) => Seen::There,
        Err(unready) => {
            let why = unready.into_failed().text;
            missing(format!("{} {name}: {why}: look at its extension, with gardenlet explain", resource.kind))
        }
    }
}
