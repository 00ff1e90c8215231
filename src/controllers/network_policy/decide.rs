//! Plans the writes in a namespace and their order. Pure.
//!
//! `deny-all` is created after all policies that allow traffic, and deleted before them.

use std::sync::Arc;

use crate::api::meta::Key;
use crate::base::sorted::{SortedMap, SortedSet};

use super::policy::{DENY_ALL, LivePolicy, Policy, seen};

/// The writer of the policies that Services request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum ServicePolicyWriter {
    #[default]
    Unknown,
    /// The agent, while its applier holds the lease.
    Ours,
    Others,
}

/// The desired state of a namespace, as far as it is known.
#[derive(Debug, Default)]
pub(super) struct DesiredPolicies {
    pub(super) policies: Vec<Policy>,
    /// The names of central policies that cannot be created yet.
    pub(super) unknown: Vec<&'static str>,
    /// Services with invalid requests: their policies stay as they are.
    pub(super) unclear: SortedSet<Key>,
    /// Whether the agent writes the central policies.
    pub(super) has_central: bool,
    /// Who writes the policies of Services.
    pub(super) writer: ServicePolicyWriter,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum PolicyWrite {
    Create(Policy),
    Change(Policy),
    Delete(String),
}

/// The steps in order, and whether the namespace stays open because some allowed traffic is not known yet.
#[derive(Debug, Default, PartialEq)]
pub(super) struct PolicyPlan {
    pub(super) steps: Vec<PolicyWrite>,
    pub(super) stays_open: bool,
}

/// Plans the steps. `live` has the digests of the namespace's policies.
pub(super) fn plan(namespace: &str, wanted: DesiredPolicies, live: &[Arc<str>]) -> PolicyPlan {
    let there: SortedMap<String, (LivePolicy, &str)> = live
        .iter()
        .filter_map(|look| seen(look, namespace).map(|seen| (seen.name.clone(), (seen, look.as_ref()))))
        .collect();
    let stays = |seen: &LivePolicy| match &seen.service {
        None => !wanted.has_central || wanted.unknown.contains(&seen.name.as_str()),
        Some(service) => wanted.writer != ServicePolicyWriter::Ours || wanted.unclear.contains(service),
    };
    let names: SortedSet<&str> = wanted.policies.iter().map(|policy| policy.name.as_str()).collect();
    let obsolete = there
        .values()
        .map(|(seen, _)| seen)
        .filter(|seen| !names.contains(seen.name.as_str()) && !stays(seen));
    let (closing, mut deletes): (Vec<String>, Vec<String>) =
        obsolete.map(|seen| seen.name.clone()).partition(|name| name == DENY_ALL);
    deletes.sort_unstable();
    let is_known = wanted.unknown.is_empty()
        && wanted.unclear.is_empty()
        && wanted.writer != ServicePolicyWriter::Unknown;
    let (mut opens, mut closes, mut stays_open) = (SortedMap::new(), None, false);
    for policy in wanted.policies {
        let known = there.get(&policy.name);
        if known.is_some_and(|(_, look)| *look == policy.look(namespace)) {
            continue;
        }
        let is_closing = policy.name == DENY_ALL;
        if is_closing && !is_known {
            stays_open = true;
            continue;
        }
        let name = policy.name.clone();
        let step = if known.is_some() { PolicyWrite::Change(policy) } else { PolicyWrite::Create(policy) };
        if is_closing { closes = Some(step) } else { drop(opens.insert(name, step)) }
    }
    let first = closing.into_iter().map(PolicyWrite::Delete);
    let last = deletes.into_iter().map(PolicyWrite::Delete);
    PolicyPlan { steps: first.chain(opens.into_values()).chain(closes).chain(last).collect(), stays_open }
}
