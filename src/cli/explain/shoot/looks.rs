//! Looks in the clusters for the result of a task, and for what is missing. It changes nothing.

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
use crate::controllers::shoot::look;
use crate::extension::{self, Class, Moment};
use crate::flow::{Failed, Step};
use crate::kube::{Garden, Seed};
use crate::resources::Watched;
use crate::shoot::client::Connector;

use super::super::decide::{EVENTS_MAX, event, when};

/// The result of a look.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Seen {
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
pub(super) struct Looker<'a> {
    pub(super) garden: &'a Garden,
    pub(super) seed: &'a Seed,
    pub(super) shoots: &'a Connector,
    pub(super) settings: &'a Settings,
    /// The Seed in the garden.
    pub(super) of: &'a Value,
    pub(super) shoot: &'a Value,
    pub(super) now: Timestamp,
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
    pub(super) fn look(&self, task: &str) -> Seen {
        self.task(task).unwrap_or_else(|failed| Seen::Unread(failed.text))
    }

    fn task(&self, task: &str) -> Found {
        match task {
            "Create botanist" => {
                Ok(look::settings(self.garden, self.shoot).err().map_or(Seen::There, |why| missing(why.text)))
            }
            "Check required extensions" | "Check required extensions exist" => {
                let missed = look::required_extensions(self.garden, self.of, self.shoot)?;
                Ok(missed.map_or(Seen::There, missing))
            }
            "Deploying control plane namespace" => self.exists(&NAMESPACE, self.plane()),
            "Ensuring Shoot cluster identity" => Ok(self.is_told("clusterIdentity")),
            "Ensuring advertised addresses for the Shoot" => Ok(self.is_told("advertisedAddresses")),
            "Deploying referenced resources" => self.managed(managed::REFERENCED, false),
            "Deploying Kubernetes API server service in the Seed cluster" => {
                self.exists(&SERVICE, kube_apiserver::NAME)
            }
            "Waiting until Kubernetes API server service in the Seed cluster has reported readiness" => {
                Ok(self.exposure())
            }
            "Deploying internal domain DNS record" => self.record("internal"),
            "Deploying external domain DNS record" => self.record("external"),
            "Deploying BackupEntry for ETCD data" => self.backup_entry(false),
            "Waiting until the BackupEntry for ETCD data has been reconciled" => self.backup_entry(true),
            "Deploying extension resources before kube-apiserver" => self.extensions(Moment::Before, false),
            "Waiting until extension resources handled before kube-apiserver are ready" => {
                self.extensions(Moment::Before, true)
            }
            "Deploying extension resources after kube-apiserver" => self.extensions(Moment::After, false),
            "Waiting until extension resources handled after kube-apiserver are ready" => {
                self.extensions(Moment::After, true)
            }
            _ => self.sleep(task),
        }
    }

    /// The tasks of a hibernation. They treat extensions at other moments than a reconciliation does.
    fn sleep(&self, task: &str) -> Found {
        match task {
            "Hibernating extension resources before kube-apiserver hibernation" => {
                self.extensions(Moment::After, false)
            }
            "Waiting until extension resources hibernated before kube-apiserver hibernation are ready" => {
                self.extensions(Moment::After, true)
            }
            "Hibernating control plane" => self.control_plane_down(),
            "Hibernating extension resources after kube-apiserver hibernation" => {
                self.extensions(Moment::Before, false)
            }
            "Waiting until extension resources hibernated after kube-apiserver hibernation are ready" => {
                self.extensions(Moment::Before, true)
            }
            "Destroying internal domain DNS record if hibernated" => self.no_record("internal"),
            "Destroying external domain DNS record if hibernated" => self.no_record("external"),
            _ => match self.leaving(task) {
                Some(found) => found,
                None => self.workload(task),
            },
        }
    }

    fn workload(&self, task: &str) -> Found {
        match task {
            "Deploying main and events ETCDs" => {
                let written = written_for(self.settings.edge.etcd.mode);
                let each = |role: etcd::Role| self.exists(&written, role.name());
                Ok(all(etcd::Role::ALL.into_iter().map(each).collect::<Result<_, _>>()?))
            }
            "Waiting until main and event ETCDs have been reconciled" => {
                let each = |role: etcd::Role| self.etcd(role);
                Ok(all(etcd::Role::ALL.into_iter().map(each).collect::<Result<_, _>>()?))
            }
            "Deploying Kubernetes API server" => self.exists(&DEPLOYMENT, kube_apiserver::NAME),
            "Waiting until Kubernetes API server rolled out" => {
                self.rollout(&DEPLOYMENT, kube_apiserver::NAME)
            }
            "Deploying gardener-resource-manager" => self.managed(managed::RESOURCE_MANAGER, false),
            "Waiting until gardener-resource-manager reports readiness" => self.applied(),
            "Deploying shoot namespaces system component" => self.managed(managed::NAMESPACES, false),
            "Waiting until shoot namespaces have been reconciled" => self.managed(managed::NAMESPACES, true),
            "Deploying Gardener shoot access resources" => self.managed(managed::GARDENER_ACCESS, false),
            "Deploying Kubernetes controller manager" => {
                self.exists(&DEPLOYMENT, kube_controller_manager::NAME)
            }
            "Waiting until kube-controller-manager reports readiness" => {
                self.rollout(&DEPLOYMENT, kube_controller_manager::NAME)
            }
            "Deploying shoot system resources" => self.managed(managed::SYSTEM, false),
            "Deploying shoot cluster identity" => self.managed(managed::CLUSTER_IDENTITY, false),
            _ => Ok(Seen::Nowhere),
        }
    }

    /// The namespace of the control plane.
    pub(super) fn plane(&self) -> &str {
        text(&self.shoot["status"]["technicalID"])
    }

    pub(super) fn key(&self, name: &str) -> Key {
        Key::new(self.plane(), name)
    }

    fn is_told(&self, field: &str) -> Seen {
        match &self.shoot["status"][field] {
            Value::Null => missing(format!("status.{field} of the Shoot is empty")),
            _ => Seen::There,
        }
    }

    fn exists(&self, resource: &Resource, name: &str) -> Found {
        let found: Option<Value> = self.seed.find(resource, &self.key(name))?;
        Ok(match found {
            None => missing(format!("{} {name} does not exist in the seed", resource.kind)),
            Some(object) if !object["metadata"]["deletionTimestamp"].is_null() => {
                missing(format!("{} {name} is being deleted", resource.kind))
            }
            Some(_) => Seen::There,
        })
    }

    fn exposure(&self) -> Seen {
        match exposure::look(self.seed, self.plane(), &self.settings.edge.exposure) {
            Ok(exposure::Exposed::At(_)) => Seen::There,
            Ok(exposure::Exposed::Waiting(Step::Again { why, .. })) | Err(why) => missing(why.text),
            Ok(exposure::Exposed::Waiting(Step::Done)) => Seen::Nowhere,
        }
    }

    fn etcd(&self, role: etcd::Role) -> Found {
        let name = role.name();
        if self.settings.edge.etcd.mode == EtcdMode::Druid {
            return Ok(match etcd::druid::wait(self.seed, self.plane(), role)? {
                Step::Done => Seen::There,
                Step::Again { why, .. } => missing(why.text),
            });
        }
        let mut seen = self.rollout(&STATEFUL_SET, name)?;
        if let Seen::Missing(lines) = &mut seen
            && let Some(set) = self.seed.find::<Value>(&STATEFUL_SET, &self.key(name))?
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
        let mut events: Vec<&Value> = account.events.iter().collect();
        events.sort_by_key(|event| when(event));
        let first = events.len().saturating_sub(EVENTS_MAX);
        lines.extend(events[first..].iter().map(|each| event(each, self.now)));
        let last = account.last_lines(self.seed, self.plane());
        if !last.is_empty() {
            lines.push(format!("its last lines: {last}"));
        }
        lines
    }

    fn managed(&self, name: &str, must_be_healthy: bool) -> Found {
        let Some(found) = self.seed.find::<Watched>(&MANAGED_RESOURCE, &self.key(name))? else {
            return Ok(missing(format!("ManagedResource {name} does not exist in the seed")));
        };
        let unhealthy = found.unhealthy(0).filter(|_| must_be_healthy);
        Ok(unhealthy.map_or(Seen::There, |why| missing(format!("ManagedResource {name} {why}"))))
    }

    /// The applier begins when it reaches the API server of the Shoot.
    fn applied(&self) -> Found {
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

    fn backup_entry(&self, must_be_ready: bool) -> Found {
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
    fn record(&self, role: &str) -> Found {
        let name = format!("{}-{role}", text(&self.shoot["metadata"]["name"]));
        let found: Option<Value> = self.seed.find(&DNS_RECORD, &self.key(&name))?;
        Ok(found.map_or(Seen::Nowhere, |record| ready(&DNS_RECORD, &name, &record)))
    }

    fn no_record(&self, role: &str) -> Found {
        let name = format!("{}-{role}", text(&self.shoot["metadata"]["name"]));
        let found: Option<Value> = self.seed.find(&DNS_RECORD, &self.key(&name))?;
        Ok(found.map_or(Seen::There, |_| missing(format!("DNSRecord {name} is still in the seed"))))
    }

    /// The workloads that still run, in the order in which they end.
    fn control_plane_down(&self) -> Found {
        let left = |resource: &Resource, name: &str| -> Found {
            Ok(match scale::wait_down(self.seed, resource, &self.key(name))? {
                Step::Done => Seen::There,
                Step::Again { why, .. } => missing(why.text),
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

    fn extensions(&self, moment: Moment, must_be_ready: bool) -> Found {
        let registrations = look::registrations(self.garden)?;
        let wanted = extension::enabled(&self.shoot["spec"]["extensions"], &registrations, Class::Shoot);
        let mut parts = Vec::new();
        for name in wanted.into_iter().filter(|each| each.moment == moment).map(|each| each.name) {
            let found: Option<Value> = self.seed.find(&EXTENSION, &self.key(&name))?;
            parts.push(match found {
                None => missing(format!("Extension {name} does not exist in the seed")),
                Some(object) if must_be_ready => ready(&EXTENSION, &name, &object),
                Some(_) => Seen::There,
            });
        }
        Ok(all(parts))
    }
}

/// The object that the agent writes for an etcd.
const fn written_for(mode: EtcdMode) -> Resource {
    match mode {
        EtcdMode::Plain => STATEFUL_SET,
        EtcdMode::Druid => etcd::druid::ETCD,
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
            assert_eq!(written_for(mode).kind, kind);
        }
    }
}
