//! Approves the certificates of hosts in the clusters of Shoots, as gardener-resource-manager does it for machines (its `csr-approver`).
//! It needs no garden.
//!
//! Woken by the namespaces of control planes. While hosts may join, the requests are read every two seconds; at other times only so often
//! that certificates are renewed. There is no watch into a Shoot.

mod look;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::api::core::NAMESPACE;
use crate::api::meta::Key;
use crate::base::clock::Timestamp;
use crate::base::json::json;
use crate::base::lock::IgnorePoison;
use crate::base::random;
use crate::base::sorted::SortedMap;
use crate::controllers::Namespace;
use crate::extension::hosts::is_host_type;
use crate::format::time::parse_rfc3339;
use crate::hosts::token::JOINING;
use crate::kube::{self, Patch, Seed};
use crate::osc::MANAGED_RESOURCE;
use crate::resources::ManagedResourceHead;
use crate::runtime::controller::{ReconcileContext, ReconcileFailure, ReconcileOutcome, Reconciler};
use crate::runtime::group::ControllerGroup;
use crate::runtime::queue::Retry;
use crate::runtime::source::WatchSource;
use crate::runtime::store::Store;
use crate::shoot::ServedShoots;
use crate::shoot::namespace::PROVIDER;

/// An unreachable server blocks a worker for seconds.
const WORKERS: u32 = 2;
/// How often requests are read while hosts may join, or one of them is open.
const SOON: Duration = Duration::from_secs(2);
/// How often, if one stays open.
const LATER: Duration = Duration::from_secs(30);
/// After so many looks at open requests, nobody waits for them.
const LOOKS_MAX: u32 = 30;
/// How often at other times. Kubelets and agents wait 15 minutes for an answer, and renew their certificates days before the end.
const SELDOM: Duration = Duration::from_secs(720);
/// How often the cluster of a Shoot is tried that is not served.
const UNSERVED: Duration = Duration::from_secs(10);
/// How often a Shoot is looked for that has no nodes.
const WITHOUT_NODES: Duration = Duration::from_secs(60);

pub(crate) fn add(approver: CsrApprover, group: &mut ControllerGroup) {
    let lane = group.lane("csr-approver", WORKERS, Retry::up_to(Duration::from_secs(60)));
    let types = approver.host_types.clone();
    group.wake(&lane, &approver.spaces, move |change| {
        let facts = |space: &Option<Arc<Namespace>>| space.as_deref().and_then(|space| facts(space, &types));
        (facts(&change.old) != facts(&change.new)).then(|| change.key.clone())
    });
    group.run(lane, approver);
}

/// What decides whether a namespace is of interest, and how often: its uid, and until when hosts may join.
fn facts(space: &Namespace, host_types: &[String]) -> Option<(String, Option<Timestamp>)> {
    let metadata = &space.metadata;
    let label = |name: &str| metadata.labels.get(name).map_or("", String::as_str);
    let is_ours = label("gardener.cloud/role") == "shoot" && is_host_type(label(PROVIDER), host_types);
    let until = metadata.annotations.get(JOINING).and_then(|until| parse_rfc3339(until).ok());
    (is_ours && metadata.deletion_timestamp.is_none()).then(|| (metadata.uid.clone(), until))
}

/// The state of the controller.
#[derive(Debug)]
pub(crate) struct CsrApprover {
    seed: Seed,
    served: ServedShoots,
    spaces: WatchSource<Namespace>,
    /// The types of infrastructure whose nodes are hosts of the site.
    host_types: Vec<String>,
    /// The ManagedResources of the seed.
    managed: Store<ManagedResourceHead>,
    /// What is known of each namespace.
    known: Mutex<SortedMap<String, KnownJoins>>,
}

/// The state of a namespace between two looks.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct KnownJoins {
    /// The tokens were read once.
    is_known: bool,
    /// Until when the last token is valid.
    until: Option<Timestamp>,
    /// How often requests were open without a pause.
    looks: u32,
}

/// When to look again.
fn pause(is_joining: bool, looks: u32) -> Duration {
    match (is_joining, looks) {
        (true, _) | (false, 1..=LOOKS_MAX) => SOON,
        (false, 0) => SELDOM.mul_f64(0.9 + 0.2 * random::unit()),
        (false, _) => LATER,
    }
}

impl Reconciler for CsrApprover {
    fn reconcile(&self, key: &Key, cx: &ReconcileContext) -> Result<ReconcileOutcome, ReconcileFailure> {
        let namespace = key.name.as_str();
        let mut known = self.known.lock().ignore_poison().remove(namespace).unwrap_or_default();
        let Some(space) = self.spaces.store().get(key) else { return Ok(ReconcileOutcome::Done) };
        let Some((_, annotated)) = facts(&space, &self.host_types) else { return Ok(ReconcileOutcome::Done) };
        if self.managed.get(&Key::new(namespace, MANAGED_RESOURCE)).is_none() {
            return Ok(ReconcileOutcome::After(WITHOUT_NODES));
        }
        let now = cx.clock.now();
        let Some(shoot) = self.served.client(namespace, now) else {
            let is_joining = annotated.is_some_and(|until| now < until);
            return Ok(ReconcileOutcome::After(if is_joining { SOON } else { UNSERVED }));
        };
        let open = look::look(&shoot, namespace, now)?;
        // The Shoot may have brought its tokens along from another seed.
        if annotated.is_some() || known.until.is_some() || !known.is_known {
            known.until = look::tokens(&shoot, now)?;
            known.is_known = true;
            if annotated.is_some() && known.until.is_none() {
                self.end_joining(key, &space)?;
            }
        }
        known.looks = if open == 0 { 0 } else { known.looks.saturating_add(1) };
        self.known.lock().ignore_poison().insert(namespace.to_owned(), known);
        Ok(ReconcileOutcome::After(pause(known.until.is_some(), known.looks)))
    }
}

impl CsrApprover {
    /// `spaces` are the namespaces of the seed, and `managed` its ManagedResources.
    pub(crate) fn new(
        seed: Seed,
        served: ServedShoots,
        spaces: WatchSource<Namespace>,
        managed: Store<ManagedResourceHead>,
        host_types: Vec<String>,
    ) -> Self {
        Self { seed, served, spaces, host_types, managed, known: Mutex::default() }
    }

    /// No host joins any more, unless somebody has printed another script since.
    fn end_joining(&self, key: &Key, space: &Namespace) -> Result<(), kube::Error> {
        let version = &space.metadata.resource_version;
        let patch =
            Patch::Merge(json!({"metadata": {"resourceVersion": version, "annotations": {JOINING: null}}}));
        match self.seed.patch_blindly(&NAMESPACE, key, &patch) {
            Err(error) if error.is_conflict() || error.is_not_found() => Ok(()),
            other => other,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::meta::ObjectMeta;

    #[test]
    fn namespaces_of_shoots_with_hosts_are_of_interest() {
        let types = ["hosts".to_owned()];
        let of = |role: &str, provider: &str, until: &str| {
            let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
            let metadata = ObjectMeta {
                uid: "1".to_owned(),
                labels: [pair("gardener.cloud/role", role), pair(PROVIDER, provider)].into_iter().collect(),
                annotations: [pair(JOINING, until)].into_iter().collect(),
                ..ObjectMeta::default()
            };
            facts(&Namespace { metadata }, &types)
        };
        let until = Timestamp::from_unix(1_767_225_600);
        assert_eq!(of("shoot", "hosts", "2026-01-01T00:00:00Z"), Some(("1".to_owned(), Some(until))));
        assert_eq!(of("shoot", "hosts", ""), Some(("1".to_owned(), None)));
        assert_eq!(of("shoot", "other", ""), None);
        assert_eq!(of("seed", "hosts", ""), None);
    }

    #[test]
    fn requests_are_read_often_while_somebody_waits() {
        assert_eq!(pause(true, 0), SOON);
        assert_eq!(pause(false, 1), SOON);
        assert_eq!(pause(false, LOOKS_MAX), SOON);
        assert_eq!(pause(false, LOOKS_MAX + 1), LATER);
        assert!(pause(false, 0) >= SELDOM.mul_f64(0.9));
    }
}
