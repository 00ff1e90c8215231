//! Deletes the content of a Shoot's cluster before its API server (Gardener's `cleanup.go`).
//!
//! A [`CleanupSweep`] goes through all objects of a stage page by page, and deletes them or removes their finalizers. One step
//! makes only a few requests. If objects are left at the end of a sweep, another one starts.

mod decide;
mod kinds;

use std::time::Duration;

use serde_json::Value;

use crate::api::core::NAMESPACE;
use crate::api::meta::{ALL_NAMESPACES, Key, Metadata, ObjectMeta, Resource};
use crate::base::clock::Timestamp;
use crate::base::cut::cut;
use crate::base::error::chain;
use crate::base::json::json;
use crate::flow::{Failed, TaskStep};
use crate::format::time::{parse_rfc3339, rfc3339};
use crate::kube::{Client, DeleteParams, Error, ErrorVerdict, ListParams, Patch, Propagation, Seed};
use crate::limits;

use decide::{Fate, Patience};
use kinds::Kind;

pub(crate) use decide::skips;
pub(crate) use kinds::CleanupStage;

/// Since when the resources of a Shoot are being deleted: an annotation of its namespace in the seed.
const BEGUN: &str = "shoot.gardener.cloud/cleanup-kubernetes-resources-start-time";
/// The time between two sweeps.
const AGAIN: Duration = Duration::from_secs(5);
/// The time between two steps of a sweep. It limits the requests per second.
const GO_ON: Duration = Duration::from_secs(1);

/// The remaining objects after a sweep.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
struct RemainingObjects {
    count: usize,
    /// Some of them, with details.
    names: Vec<String>,
    error: Option<String>,
}

impl RemainingObjects {
    fn add(&mut self, name: String) {
        self.count += 1;
        if self.names.len() < limits::CLEANUP_NAMES_MAX {
            self.names.push(name);
        }
    }

    /// `None` if no object is left.
    fn failed(&self, stage: CleanupStage) -> Option<Failed> {
        if self.count == 0 {
            return None;
        }
        let mut text = format!("remaining objects are still present: {}", self.names.join(", "));
        let more = self.count - self.names.len();
        if more > 0 {
            text.push_str(&format!(", and {more} more"));
        }
        if let Some(error) = &self.error {
            text.push_str(&format!(" (last error: {error})"));
        }
        let name = stage.annotation();
        text.push_str(&format!(
            "; remove their finalizers, or let their controllers do it; annotation {name} of the Shoot shortens the \
             time until the agent removes them"
        ));
        Some(Failed { codes: decide::code(), ..Failed::new(text) })
    }
}

/// A sweep over the objects of a stage.
#[derive(Debug)]
pub(crate) struct CleanupSweep {
    stage: CleanupStage,
    /// The index of the kind in the list of kinds, and the page.
    place: (usize, String),
    left: RemainingObjects,
    /// The remaining objects of the previous sweep.
    before: Option<Failed>,
}

/// The input of a sweep.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CleanupTerms<'a> {
    /// The Shoot in the garden.
    pub(crate) shoot: &'a Value,
    /// Since when resources are being deleted ([`begun`]).
    pub(crate) begun: Option<Timestamp>,
    pub(crate) now: Timestamp,
}

impl CleanupSweep {
    /// Its part of the clean-up.
    pub(crate) const fn stage(&self) -> CleanupStage {
        self.stage
    }

    /// A sweep that has not started.
    pub(crate) fn new(stage: CleanupStage) -> Self {
        Self { stage, place: (0, String::new()), left: RemainingObjects::default(), before: None }
    }

    /// Continues. It is done when no object is left. Errors: the server did not answer; or an annotation of
    /// the Shoot is invalid. A refused request is no error: its objects remain.
    pub(crate) fn step(&mut self, client: &Client, terms: &CleanupTerms<'_>) -> Result<TaskStep, Failed> {
        let kinds = self.stage.kinds(skips(terms.shoot));
        let mut budget = limits::CLEANUP_WRITES_MAX;
        let mut pages = limits::CLEANUP_PAGES_MAX;
        while let Some(kind) = kinds.get(self.place.0) {
            if budget == 0 || pages == 0 {
                // If the time runs out before this sweep ends, the error contains what is known by then.
                let known = self.before.clone().or_else(|| self.left.failed(self.stage));
                let known = known.unwrap_or_else(|| Failed::new("the objects are being deleted"));
                return Ok(TaskStep::again(GO_ON, known));
            }
            let patience = decide::patience(terms.shoot, self.stage, kind)?;
            pages -= 1;
            let rest = self.page(client, kind, patience, terms, &mut budget)?;
            let is_through = rest.is_empty();
            self.place = if is_through { (self.place.0 + 1, rest) } else { (self.place.0, rest) };
        }
        self.before = std::mem::take(&mut self.left).failed(self.stage);
        self.place = (0, String::new());
        Ok(self.before.clone().map_or(TaskStep::Done, |failed| TaskStep::again(AGAIN, failed)))
    }

    /// One page; returns the start of the next one.
    fn page(
        &mut self,
        client: &Client,
        kind: &Kind,
        patience: Patience,
        terms: &CleanupTerms<'_>,
        budget: &mut usize,
    ) -> Result<String, Failed> {
        let params = ListParams {
            label_selector: kind.selector.to_owned(),
            limit: limits::CLEANUP_PAGE_ITEMS,
            continue_token: self.place.1.clone(),
            metadata_only: true,
            ..ListParams::default()
        };
        let page = match client.list::<Metadata>(&kind.resource, ALL_NAMESPACES, &params) {
            Ok(page) => page,
            // The server does not have this kind.
            Err(error) if error.is_not_found() => return Ok(String::new()),
            // The server refuses the list, or its answer has no limits. Objects of other kinds are still deleted.
            Err(error) if is_of_kind(&error) => {
                self.left.add(format!("{} of all names, which cannot be listed", kind.resource.plural));
                self.left.error = Some(chain(&error));
                return Ok(String::new());
            }
            Err(error) => {
                // The page may have expired: the kind is read again.
                self.place.1.clear();
                let failed = Failed::from(error);
                let text = format!("list {} of the Shoot: {}", kind.resource.plural, failed.text);
                return Err(Failed { text, ..failed });
            }
        };
        for Metadata { metadata, .. } in &page.items {
            // Something creates such objects repeatedly: they are deleted, but not waited for.
            let is_late = self.stage == CleanupStage::Resources
                && !kind.is_snapshot
                && decide::is_late(metadata, terms.begun, patience);
            let fate = decide::fate(metadata, patience, terms.now);
            if fate != Fate::Wait {
                *budget = budget.saturating_sub(1);
            }
            match act(client, &kind.resource, metadata, fate, patience) {
                Err(error) if error.is_not_found() => {}
                Ok(()) | Err(_) if is_late => {}
                Ok(()) => self.left.add(name(kind, metadata)),
                Err(error) if error.postponed().is_some() => return Err(error.into()),
                Err(error) => {
                    self.left.add(name(kind, metadata));
                    // Another client has changed it: the next sweep reads it again.
                    if !error.is_conflict() {
                        self.left.error = Some(chain(&error));
                    }
                }
            }
        }
        Ok(page.metadata.continue_token)
    }
}

/// Whether the failure of a list concerns a single kind.
fn is_of_kind(error: &Error) -> bool {
    (error.failure().is_some() || error.verdict() == ErrorVerdict::Invalid) && !error.is_gone()
}

/// Names existing objects of a stage for people: some of each kind. Changes nothing.
pub(crate) fn look(client: &Client, shoot: &Value, stage: CleanupStage) -> Result<Vec<String>, Error> {
    let mut found = Vec::new();
    for kind in stage.kinds(skips(shoot)) {
        let params = ListParams {
            label_selector: kind.selector.to_owned(),
            limit: limits::CLEANUP_PAGE_ITEMS,
            metadata_only: true,
            ..ListParams::default()
        };
        match client.list::<Metadata>(&kind.resource, ALL_NAMESPACES, &params) {
            Ok(page) => found.extend(page.items.iter().map(|object| name(&kind, &object.metadata))),
            Err(error) if error.is_not_found() => {}
            Err(error) => return Err(error),
        }
    }
    Ok(found)
}

/// The time after which the finalizers of an object of a stage are removed; longer for snapshots. Errors: the
/// annotation of the Shoot is not a number of seconds.
pub(crate) fn finalized_after(shoot: &Value, stage: CleanupStage) -> Result<Duration, String> {
    let kinds = stage.kinds(true);
    let first = kinds.first().map(|kind| decide::patience(shoot, stage, kind));
    first.map_or(Ok(Duration::ZERO), |patience| patience.map(|patience| patience.finalize))
}

fn name(kind: &Kind, object: &ObjectMeta) -> String {
    let finalizers = match object.finalizers.as_slice() {
        [] => String::new(),
        all => format!(" (finalizers {})", all.join(", ")),
    };
    cut(format!("{} {}{finalizers}", kind.resource.kind, object.key()), limits::CLEANUP_NAME_BYTES_MAX)
}

fn act(
    client: &Client,
    resource: &Resource,
    object: &ObjectMeta,
    fate: Fate,
    patience: Patience,
) -> Result<(), Error> {
    let ObjectMeta { namespace, name, uid, resource_version, .. } = object;
    let key = object.key();
    match fate {
        Fate::Wait => Ok(()),
        Fate::Delete => {
            let params = DeleteParams {
                propagation: Some(Propagation::Background),
                uid: Some(uid.clone()),
                grace_period_seconds: Some(patience.grace_s),
                ..DeleteParams::default()
            };
            client.delete(resource, &key, &params)
        }
        Fate::Finalize => {
            let kind = &*resource.kind;
            log::warn!(kind, namespace = namespace.as_str(), name = name.as_str(); "Removing finalizers of an object in a Shoot that is being deleted");
            let patch = json!({"metadata": {"finalizers": null, "resourceVersion": resource_version}});
            client.patch_blindly(resource, &key, &Patch::Merge(patch))
        }
    }
}

/// Since when the resources of a Shoot are being deleted. The namespace of its control plane stores it.
/// Errors: a request to the seed fails; or the annotation is not a time.
pub(crate) fn begun(seed: &Seed, namespace: &str, now: Timestamp) -> Result<Timestamp, Failed> {
    let key = Key::cluster(namespace);
    let found = seed.get::<Metadata>(&NAMESPACE, &key)?;
    let Some(text) = found.metadata.annotations.get(BEGUN) else {
        let patch = Patch::annotation(BEGUN, rfc3339(now));
        seed.patch_blindly(&NAMESPACE, &key, &patch)?;
        return Ok(now);
    };
    parse_rfc3339(text).map_err(|_| {
        let text = format!("annotation {BEGUN} of namespace {namespace} in the seed is {text:?}: set it to a time as in RFC 3339, or remove it");
        Failed::new(text)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn remaining_objects_are_named_with_the_remedy() {
        let mut left = RemainingObjects::default();
        assert_eq!(left.failed(CleanupStage::Apis), None);
        for index in 0..=limits::CLEANUP_NAMES_MAX {
            left.add(format!("Service default/s{index}"));
        }
        left.error = Some("denied".to_owned());
        let failed = left.failed(CleanupStage::Apis).unwrap();
        assert_eq!(failed.codes, ["ERR_CLEANUP_CLUSTER_RESOURCES"]);
        for part in [
            "Service default/s0, ",
            ", and 1 more (last error: denied); ",
            "cleanup-extended-apis-finalize-grace-period-seconds",
        ] {
            assert!(failed.text.contains(part), "{}", failed.text);
        }
    }
}
