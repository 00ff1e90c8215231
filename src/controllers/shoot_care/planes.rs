//! The state of the Shoots' namespaces in the seed. The workloads of all Shoots are read with one list that many checks
//! share, and reduced to what the conditions need: a list per Shoot would be most of the cost of the checks.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::Value;

use crate::api::coordination::LEASE;
use crate::api::core::{DEPLOYMENT, STATEFUL_SET};
use crate::api::extensions::{BACKUP_ENTRY, EXTENSION};
use crate::api::gardener::ControllerRegistration;
use crate::api::meta::{ALL_NAMESPACES, Key, Resource, text};
use crate::base::clock::{Mono, Timestamp};
use crate::base::error::chain;
use crate::base::lock::IgnorePoison;
use crate::base::sorted::{SortedMap, SortedSet};
use crate::controllers::Site;
use crate::extension::HEARTBEAT;
use crate::format::time::parse_rfc3339;
use crate::kube::{Error, ListItem, ListParams};
use crate::operation::components;
use crate::operation::components::etcd::{druid, mode};
use crate::operation::components::workload::Workload;
use crate::resources::check_object;

use super::decide::{Plane, SeenWorkload};
use super::reports::{self, ExtensionReport};

/// The cached state of all namespaces.
pub(super) struct Planes {
    site: Arc<Site>,
    last: Mutex<Option<Read>>,
}

/// The result of one read.
#[derive(Clone)]
struct Read {
    at: Mono,
    planes: Arc<SortedMap<String, Plane>>,
}

/// What the extension objects of one namespace report, before the heartbeats of their extensions are known.
#[derive(Default)]
struct ExtensionConditions {
    /// The types of all its objects, by kind.
    types: SortedSet<(&'static str, String)>,
    reports: Vec<ExtensionReport>,
}

impl Planes {
    /// Without any data.
    pub(super) fn new(site: &Arc<Site>) -> Self {
        Self { site: Arc::clone(site), last: Mutex::default() }
    }

    /// The state of a namespace, not older than `age_max`. Concurrent callers share one read.
    pub(super) fn of(&self, namespace: &str, now: Mono, age_max: Duration) -> Result<Plane, Error> {
        let mut last = self.last.lock().ignore_poison();
        let fresh = last.clone().filter(|read| now.saturating_sub(read.at) <= age_max);
        let read = match fresh {
            Some(read) => read,
            None => last.insert(Read { at: now, planes: Arc::new(self.read("")?) }).clone(),
        };
        Ok(read.planes.get(namespace).cloned().unwrap_or_default())
    }

    /// The present state of a namespace.
    pub(super) fn now(&self, namespace: &str) -> Result<Plane, Error> {
        Ok(self.read(namespace)?.remove(namespace).unwrap_or_default())
    }

    fn read(&self, namespace: &str) -> Result<SortedMap<String, Plane>, Error> {
        let mut planes = SortedMap::<String, Plane>::new();
        self.each(&DEPLOYMENT, namespace, &mut |object| match object {
            None => planes.clear(),
            Some(object) => {
                let (namespace, name) = place(&object);
                let is_to_run =
                    object["spec"]["replicas"] != 0 && object["metadata"]["deletionTimestamp"].is_null();
                let workload = SeenWorkload { health: check_object(&object), is_to_run };
                planes.entry(namespace).or_default().deployments.insert(name, workload);
            }
        })?;
        let etcds = self.etcds(namespace)?;
        for ((namespace, name), health) in etcds {
            planes.entry(namespace).or_default().etcds.insert(name, health);
        }
        let reports = match self.reports(namespace) {
            Err(error) if error.postponed().is_some() => return Err(error),
            // As in upstream, the rest of a control plane is checked without them.
            Err(error) => {
                log::warn!(err = chain(&error).as_str(); "Cannot read the conditions that extensions report for Shoots");
                SortedMap::new()
            }
            Ok(reports) => reports,
        };
        for (namespace, reports) in reports {
            planes.entry(namespace).or_default().reports = reports;
        }
        Ok(planes)
    }

    /// By namespace and name. What counts for a Shoot is the object of those who run its etcds, as `etcd::mode` decides.
    ///
    /// Etcd objects are listed only if there can be some: a namespace has the choice for a druid, which the watch shows, or an
    /// Etcd owns a StatefulSet. The configuration is only for Shoots that have no etcd yet. This misses an Etcd that another
    /// gardenlet has created, until its druid has made the StatefulSet or the agent has reconciled the Shoot.
    fn etcds(&self, namespace: &str) -> Result<SortedMap<(String, String), Health>, Error> {
        let mut found = SortedMap::new();
        let of_druids = self.of_druids(namespace);
        let mut has_druid = !of_druids.is_empty();
        self.each(&STATEFUL_SET, namespace, &mut |object| match object {
            None => found.clear(),
            Some(object) => {
                let place = place(&object);
                let is_etcd =
                    |each: Workload| matches!(each, Workload::Etcd(_)) && each.name() == place.1.as_str();
                if components::workloads().any(is_etcd) && !of_druids.contains(&place.0) {
                    has_druid |= druid::has_made(&object);
                    found.insert(place, check_object(&object));
                }
            }
        })?;
        if has_druid {
            let mut etcds = Vec::new();
            self.each(&druid::ETCD, namespace, &mut |object| match object {
                None => etcds.clear(),
                Some(object) => etcds.push((place(&object), druid::health(&object))),
            })?;
            found.extend(etcds);
        }
        Ok(found)
    }

    /// The namespaces that have the choice for a druid: this one, or all of them.
    fn of_druids(&self, namespace: &str) -> SortedSet<String> {
        let namespaces = self.site.namespaces.store();
        let looked = match namespace {
            "" => namespaces.values(),
            name => namespaces.get(&Key::cluster(name)).into_iter().collect(),
        };
        let chosen = looked.iter().filter(|found| mode::is_druids(&found.metadata));
        chosen.map(|found| found.metadata.name.clone()).collect()
    }

    /// Reads objects of control planes one by one. `None` means that earlier objects are void.
    fn each(
        &self,
        resource: &Resource,
        namespace: &str,
        each: &mut dyn FnMut(Option<Value>),
    ) -> Result<(), Error> {
        let label_selector = "gardener.cloud/role=controlplane".to_owned();
        self.list(resource, namespace, &ListParams { label_selector, ..ListParams::default() }, each)
    }

    /// Reads objects one by one. `None` means that earlier objects are void.
    pub(super) fn list(
        &self,
        resource: &Resource,
        namespace: &str,
        params: &ListParams,
        each: &mut dyn FnMut(Option<Value>),
    ) -> Result<(), Error> {
        let listed = self.site.seed.list_each::<Value>(resource, namespace, params, &mut |item| match item {
            ListItem::Object(object) => each(Some(object)),
            ListItem::Undecodable(object) => {
                let (kind, key, err) = (&*resource.kind, object.key.to_string(), object.why.to_string());
                log::warn!(kind, key = key.as_str(), err = err.as_str(); "Cannot read an object of a control plane");
            }
            ListItem::Restart => each(None),
        });
        match listed {
            // The kind does not exist, so there are no objects.
            Err(error) if error.is_not_found() => Ok(()),
            other => other.map(drop),
        }
    }

    /// Reports of extensions, by namespace.
    fn reports(&self, namespace: &str) -> Result<SortedMap<String, Vec<ExtensionReport>>, Error> {
        let mut voices = SortedMap::<String, ExtensionConditions>::new();
        self.list(&EXTENSION, namespace, &ListParams::default(), &mut |object| match object {
            None => voices.clear(),
            Some(object) => add(voices.entry(place(&object).0).or_default(), "Extension", &object),
        })?;
        // Without it, Shoots of this seed have no BackupEntries.
        if self.site.settings.seed_config.spec["backup"].is_object() {
            let mut entries = Vec::new();
            self.list(&BACKUP_ENTRY, ALL_NAMESPACES, &ListParams::default(), &mut |object| match object {
                None => entries.clear(),
                Some(object) => entries.push(object),
            })?;
            for object in entries {
                // `<namespace>--<uid of the Shoot>`
                let name = place(&object).1;
                let of = name
                    .rsplit_once("--")
                    .map(|(of, _)| of)
                    .filter(|of| namespace.is_empty() || *of == namespace);
                if let Some(of) = of {
                    add(voices.entry(of.to_owned()).or_default(), "BackupEntry", &object);
                }
            }
        }
        let types: SortedSet<_> = voices.values().flat_map(|voices| voices.types.iter().cloned()).collect();
        let beats: SortedMap<_, _> = types
            .into_iter()
            .map(|of| self.beat(of.0, &of.1).map(|beat| (of, beat)))
            .collect::<Result<_, _>>()?;
        Ok(voices
            .into_iter()
            .map(|(namespace, voices)| (namespace.clone(), believed(&namespace, voices, &beats)))
            .collect())
    }

    /// When the extension of a kind and type last renewed its Lease; an inner `Err` says why the extension is unknown.
    fn beat(&self, kind: &str, type_name: &str) -> Result<Result<Option<Timestamp>, String>, Error> {
        let serves = |registration: &ControllerRegistration| {
            let mut resources = registration.spec.resources.iter();
            resources.any(|r| r.kind == kind && r.type_name.eq_ignore_ascii_case(type_name))
        };
        let registrations = self.site.registrations.store().values();
        let Some(registration) = registrations.iter().find(|registration| serves(registration)) else {
            return Ok(Err(format!("no ControllerRegistration serves {kind}/{type_name}")));
        };
        let name = &registration.metadata.name;
        let installations = self.site.installations.store().values();
        let Some(installation) = installations.iter().find(|i| i.spec.registration_ref.name == *name) else {
            return Ok(Err(format!(
                "ControllerRegistration {name} has no ControllerInstallation on this seed"
            )));
        };
        let namespace = format!("extension-{}", installation.metadata.name);
        let lease = self.site.seed.find::<Value>(&LEASE, &Key::new(&namespace, HEARTBEAT))?;
        let renewed = lease.map(|lease| parse_rfc3339(text(&lease["spec"]["renewTime"])));
        Ok(Ok(renewed.and_then(Result::ok)))
    }
}

/// What is wrong with an object.
type Health = Result<(), String>;

type Beats = SortedMap<(&'static str, String), Result<Option<Timestamp>, String>>;

/// The reports of a namespace; none if the extension of one of its objects is unknown, as in upstream.
fn believed(namespace: &str, voices: ExtensionConditions, beats: &Beats) -> Vec<ExtensionReport> {
    let of = |kind, type_name: &str| beats.get(&(kind, type_name.to_owned()));
    let unknown = voices.types.iter().find_map(|(kind, name)| of(*kind, name)?.as_ref().err());
    if let Some(why) = unknown {
        log::warn!(namespace = namespace, why = why.as_str(); "Ignoring the conditions that extensions report for the Shoot");
        return Vec::new();
    }
    let with_beat = |report: ExtensionReport| {
        let beat = of(report.kind, &report.type_name).and_then(|beat| beat.as_ref().ok().copied().flatten());
        ExtensionReport { beat, ..report }
    };
    voices.reports.into_iter().map(with_beat).collect()
}

fn add(voices: &mut ExtensionConditions, kind: &'static str, object: &Value) {
    voices.types.insert((kind, text(&object["spec"]["type"]).to_owned()));
    voices.reports.extend(reports::of_object(kind, object));
}

fn place(object: &Value) -> (String, String) {
    let field = |name: &str| text(&object["metadata"][name]).to_owned();
    (field("namespace"), field("name"))
}

/// An error in a sentence.
pub(super) fn words(error: &Error) -> String {
    format!("Could not read the control plane in the seed: {}", chain(error))
}
