//! Looks in the clusters for the result of a task, and for what is missing. It changes nothing.

mod leaving;

use serde_json::Value;

use crate::api::core::{DEPLOYMENT, NAMESPACE, SERVICE, STATEFUL_SET};
use crate::api::extensions::{DNS_RECORD, EXTENSION};
use crate::api::gardener::BACKUP_ENTRY;
use crate::api::meta::{Key, Resource, text};
use crate::api::resources::MANAGED_RESOURCE;
use crate::backup;
use crate::base::clock::Timestamp;
use crate::base::error::chain;
use crate::components::rollout::{self, Account};
use crate::components::shoot as managed;
use crate::components::{etcd, exposure, kube_apiserver, kube_controller_manager, scale};
use crate::config::Settings;
use crate::config::control_plane::EtcdMode;
use crate::extension::{self, ExtensionClass, ExtensionObject, ReconcileMoment};
use crate::flow::{Failed, TaskStep};
use crate::kube::{Garden, Seed};
use crate::resources::ManagedResourceHead;
use crate::runtime::events;
use crate::shoot::client::ShootConnector;

use super::components::etcd::resource as etcd_resource;
use super::kinds::Operation;
use super::{look, records};

/// Events of a pod that are shown.
const EVENTS_MAX: usize = 5;

/// The result of a look.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Seen {
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
pub struct Looker<'a> {
    /// The garden.
    pub garden: &'a Garden,
    /// The seed.
    pub seed: &'a Seed,
    /// Makes clients of Shoots.
    pub shoots: &'a ShootConnector,
    /// The configuration.
    pub settings: &'a Settings,
    /// The Shoot's operation.
    pub operation: Operation,
    /// The Seed in the garden.
    pub of: &'a Value,
    /// The Shoot.
    pub shoot: &'a Value,
    /// Now.
    pub now: Timestamp,
}

/// Where the result of a task can be seen.
pub type Evidence = fn(&Looker<'_>) -> Result<Seen, Failed>;

/// The clusters show nothing of the task.
pub(super) const fn only_in_the_log(_: &Looker<'_>) -> Found {
    Ok(Seen::Nowhere)
}

pub(super) type Found = Result<Seen, Failed>;

pub(super) fn missing(why: impl Into<String>) -> Seen {
    Seen::Missing(vec![why.into()])
}

fn all(parts: Vec<Seen>) -> Seen {
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
    pub fn look(&self, evidence: Evidence) -> Seen {
        evidence(self).unwrap_or_else(|failed| Seen::Unread(failed.text))
    }

    pub(super) fn settings(&self) -> Found {
        Ok(look::settings(self.garden, self.shoot).err().map_or(Seen::There, |why| missing(why.text)))
    }

    pub(super) fn required_extensions(&self) -> Found {
        let missed = look::required_extensions(self.garden, self.of, self.shoot)?;
        Ok(missed.map_or(Seen::There, missing))
    }

    pub(super) fn namespace(&self) -> Found {
        self.exists(&NAMESPACE, self.plane())
    }

    pub(super) fn service(&self, name: &str) -> Found {
        self.exists(&SERVICE, name)
    }

    pub(super) fn deployment(&self, name: &str) -> Found {
        self.exists(&DEPLOYMENT, name)
    }

    pub(super) fn rolled_out(&self, name: &str) -> Found {
        self.rollout(&DEPLOYMENT, name)
    }

    pub(super) fn etcds_written(&self) -> Found {
        let written = etcd_resource(self.settings.edge.etcd.mode);
        let each = |role: etcd::Role| self.exists(&written, role.name());
        Ok(all(etcd::Role::ALL.into_iter().map(each).collect::<Result<_, _>>()?))
    }

    pub(super) fn etcds(&self) -> Found {
        let each = |role: etcd::Role| self.etcd(role);
        Ok(all(etcd::Role::ALL.into_iter().map(each).collect::<Result<_, _>>()?))
    }

    /// A ManagedResource exists.
    pub(super) fn written(&self, name: &str) -> Found {
        self.managed(name, false)
    }

    /// A ManagedResource exists, and its objects are healthy.
    pub(super) fn healthy(&self, name: &str) -> Found {
        self.managed(name, true)
    }

    /// The namespace of the control plane.
    pub(super) fn plane(&self) -> &str {
        text(&self.shoot["status"]["technicalID"])
    }

    fn key(&self, name: &str) -> Key {
        Key::new(self.plane(), name)
    }

    /// A field of the Shoot's status is not empty.
    pub(super) fn status(&self, field: &str) -> Found {
        Ok(match &self.shoot["status"][field] {
            Value::Null => missing(format!("status.{field} of the Shoot is empty")),
            _ => Seen::There,
        })
    }

    fn exists(&self, resource: &Resource, name: &str) -> Found {
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

    pub(super) fn exposure(&self) -> Found {
        Ok(match exposure::look(self.seed, self.plane(), &self.settings.edge.exposure) {
            Ok(exposure::Exposed::At(_)) => Seen::There,
            Ok(exposure::Exposed::Waiting(TaskStep::Again { why, .. })) | Err(why) => missing(why.text),
            Ok(exposure::Exposed::Waiting(TaskStep::Done)) => Seen::Nowhere,
        })
    }

    fn etcd(&self, role: etcd::Role) -> Found {
        let name = role.name();
        if self.settings.edge.etcd.mode == EtcdMode::Druid {
            return Ok(match etcd::druid::wait(self.seed, self.plane(), role)? {
                TaskStep::Done => Seen::There,
                TaskStep::Again { why, .. } => missing(why.text),
            });
        }
        let mut seen = self.rollout(&STATEFUL_SET, name)?;
        if let Seen::Missing(lines) = &mut seen
            && let Some(set) = self.seed.find::<Value>(&STATEFUL_SET, &Key::new(self.plane(), name))?
            && let Some(why) = etcd::claims::look(self.seed, &set)?
        {
            lines.insert(0, why.text);
        }
        Ok(seen)
    }

    fn rollout(&self, resource: &Resource, name: &str) -> Found {
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

    fn managed(&self, name: &str, must_be_healthy: bool) -> Found {
        let Some(found) =
            self.seed.find::<ManagedResourceHead>(&MANAGED_RESOURCE, &Key::new(self.plane(), name))?
        else {
            return Ok(missing(format!("ManagedResource {name} does not exist in the seed")));
        };
        let unhealthy = found.unhealthy(0).filter(|_| must_be_healthy);
        Ok(unhealthy.map_or(Seen::There, |why| missing(format!("ManagedResource {name} {why}"))))
    }

    /// The applier begins when it reaches the API server of the Shoot.
    pub(super) fn applied(&self) -> Found {
        let mut seen = self.managed(managed::RESOURCE_MANAGER, true)?;
        if let Seen::Missing(lines) = &mut seen
            && let Err(error) = self.shoots.open(self.plane())
        {
            let doubt = exposure::examine(self.seed, &self.settings.edge.exposure).ok().and_then(Result::err);
            let why = format!("its API server cannot be reached from here: {}", chain(&error));
            lines.splice(0..0, std::iter::once(why).chain(doubt));
        }
        Ok(seen)
    }

    pub(super) fn backup_entry(&self, must_be_ready: bool) -> Found {
        let uid = text(&self.shoot["status"]["uid"]);
        let entry = backup::garden::entry(
            text(&self.shoot["metadata"]["namespace"]),
            &backup::garden::entry_name(self.plane(), uid),
        );
        let found = entry.find(self.garden)?;
        Ok(match found {
            None => missing(format!("BackupEntry {} does not exist in the garden", entry.key.name)),
            Some(object) if must_be_ready => ready(&BACKUP_ENTRY, &entry.key.name, &object),
            Some(_) => Seen::There,
        })
    }

    /// Without a record, the Shoot may not need one.
    pub(super) fn record(&self, role: &str) -> Found {
        let target = self.target(role);
        let found = target.find(self.seed)?;
        Ok(found.map_or(Seen::Nowhere, |record| ready(&DNS_RECORD, &target.key.name, &record)))
    }

    pub(super) fn no_record(&self, role: &str) -> Found {
        let target = self.target(role);
        let why = || missing(format!("DNSRecord {} is still in the seed", target.key.name));
        Ok(target.find(self.seed)?.map_or(Seen::There, |_| why()))
    }

    pub(super) fn target(&self, role: &str) -> ExtensionObject {
        records::target(self.plane(), text(&self.shoot["metadata"]["name"]), role)
    }

    /// The workloads that still run, in the order in which they end.
    pub(super) fn control_plane_down(&self) -> Found {
        let left = |resource: &Resource, name: &str| -> Found {
            Ok(match scale::wait_down(self.seed, resource, &self.key(name))? {
                TaskStep::Done => Seen::There,
                TaskStep::Again { why, .. } => missing(why.text),
            })
        };
        let mut parts = Vec::new();
        for name in [scale::RESOURCE_MANAGER, kube_controller_manager::NAME, kube_apiserver::NAME] {
            parts.push(left(&DEPLOYMENT, name)?);
        }
        for role in etcd::Role::ALL {
            parts.push(left(&STATEFUL_SET, role.name())?);
        }
        Ok(all(parts))
    }

    pub(super) fn extensions(&self, moment: ReconcileMoment, must_be_ready: bool) -> Found {
        let registrations = look::registrations(self.garden)?;
        let wanted =
            extension::enabled(&self.shoot["spec"]["extensions"], &registrations, ExtensionClass::Shoot);
        let mut parts = Vec::new();
        for name in wanted.into_iter().filter(|each| each.moment == moment).map(|each| each.name) {
            let found: Option<Value> = self.seed.find(&EXTENSION, &Key::new(self.plane(), &name))?;
            parts.push(match found {
                None => missing(format!("Extension {name} does not exist in the seed")),
                Some(object) if must_be_ready => ready(&EXTENSION, &name, &object),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_druid_makes_the_stateful_sets() {
        for (mode, kind) in [(EtcdMode::Plain, "StatefulSet"), (EtcdMode::Druid, "Etcd")] {
            assert_eq!(etcd_resource(mode).kind, kind);
        }
    }
}
