//! Collects the facts of the verdict, and the page around it.

use crate::base::clock::{Mono, Timestamp};
use crate::base::metrics::Metrics;
use crate::kube::{ANSWERED, REACHABLE};
use crate::runtime::pool::FailedKey;

use super::super::status::{PATIENCE_OF_WATCHES, Snapshot};
use super::verdict::{self, Failed, PartFacts, Peer, VerdictFacts};
use super::{Sources, StatusReport, objects, tell};

/// Converts a moment of the monotonic clock to a time of day.
pub(super) fn at(since: Mono, snapshot: &Snapshot) -> Timestamp {
    snapshot.now.minus(snapshot.mono.saturating_sub(since))
}

impl StatusReport {
    pub(in crate::app) fn of(snapshot: &Snapshot, sources: Option<&Sources>) -> Self {
        let (verdict, mut problems) = verdict::judge(&facts(snapshot, sources), snapshot.now);
        problems
            .iter_mut()
            .for_each(|problem| problem.remedy = verdict::remedy(&problem.place, &snapshot.call));
        let mut report = Self::new(verdict, problems, snapshot.now);
        tell::agent(&mut report, snapshot, sources);
        if let Some(stores) = &snapshot.stores {
            tell::shoots(&mut report, stores);
            tell::installations(&mut report, stores);
        }
        tell::leases(&mut report, snapshot, sources);
        if let Some(sources) = sources {
            tell::servers(&mut report, snapshot, sources);
            tell::clusters(&mut report, snapshot);
        }
        tell::parts(&mut report, snapshot);
        if let Some(sources) = sources {
            tell::work(&mut report, sources);
        }
        tell::watches(&mut report, snapshot);
        report
    }
}

fn facts(snapshot: &Snapshot, sources: Option<&Sources>) -> VerdictFacts {
    let at = |since| at(since, snapshot);
    let part = |(name, part): (&&'static str, &super::super::status::PartStatus)| PartFacts {
        name,
        stage: part.stage.clone(),
        problem: part.problem.clone().map(|problem| (problem, at(part.since))),
    };
    let is_late = |watch: &&super::super::status::Watch| {
        !watch.view.synced && snapshot.mono >= watch.since.saturating_add(PATIENCE_OF_WATCHES)
    };
    let failed = |failed: FailedKey| Failed {
        controller: failed.controller,
        key: failed.key,
        error: failed.error,
        since: at(failed.since),
        is_final: failed.is_final,
    };
    // An agent that does not lead does not use the garden, so its state does not matter.
    let names: &[&'static str] = if snapshot.leading { &["garden", "seed"] } else { &["seed"] };
    let stores = snapshot.stores.as_ref();
    VerdictFacts {
        leading: snapshot.leading,
        leader: snapshot.leader.clone(),
        adrift_since: snapshot.adrift_since.map(at),
        was_ready: snapshot.was_ready,
        parts: snapshot.parts.iter().map(part).collect(),
        stuck: snapshot.stuck.clone(),
        late: snapshot.watches.iter().filter(is_late).map(|watch| (watch.name, at(watch.since))).collect(),
        peers: sources.map(|sources| peers(&sources.metrics, names)).unwrap_or_default(),
        lease: snapshot.lease_trouble.clone().map(|(since, why)| (why, at(since))),
        expires: snapshot.validity.map(|validity| validity.expires),
        creating: stores.and_then(objects::creating),
        listing: stores.is_none_or(|stores| !stores.are_synced()),
        objects: objects::problems(stores, sources.map(|sources| &sources.managed), snapshot.now),
        failed: sources.map(|it| it.pool.failed().into_iter().map(failed).collect()).unwrap_or_default(),
    }
}

fn peers(metrics: &Metrics, names: &[&'static str]) -> Vec<Peer> {
    let peer = |name: &&'static str| {
        let labels = [("peer", *name)];
        let is_reachable = metrics.value(REACHABLE, &labels)? > 0.0;
        Some(Peer {
            name,
            is_reachable,
            answered: answered(metrics, name),
            why: metrics.reason(REACHABLE, &labels).filter(|_| !is_reachable),
        })
    };
    names.iter().filter_map(peer).collect()
}

/// The time of a server's last answer.
#[expect(clippy::cast_possible_truncation, reason = "whole seconds")]
pub(super) fn answered(metrics: &Metrics, peer: &str) -> Option<Timestamp> {
    metrics.value(ANSWERED, &[("peer", peer)]).map(|at| Timestamp::from_unix(at as i64))
}
