//! Whether the agents of the nodes of a Shoot work, and have applied what their pools have.
//!
//! Source: `CheckNodeAgentLeases`, `CheckNodesSystemdUnits` and the check of operating systems in `pkg/gardenlet/controller/shoot/care`.

use std::time::Duration;

use serde_json::Value;

use crate::api::condition::Finding;
use crate::api::coordination::LEASE;
use crate::api::meta::text;
use crate::base::clock::Mono;
use crate::base::cut;
use crate::base::sorted::SortedMap;
use crate::hosts::applied::{self, AppliedConfig};
use crate::kube::{Client, Error, ListItem, ListParams};
use crate::limits;

/// How often Leases and Secrets are read while all is well.
const PERIOD: Duration = Duration::from_secs(290);
/// An agent renews its Lease every ten seconds.
const LEASE_LASTS: Duration = Duration::from_secs(40);
/// The name of an agent's Lease, before that of its node.
const LEASE_PREFIX: &str = "gardener-node-agent-";
/// The condition of a node about the units of its system.
const UNITS: &str = "SystemdUnitsReady";
const TIME_BYTES_MAX: usize = 32;

/// What a node says about its agent.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct SeenAgent {
    config: AppliedConfig,
    /// What is wrong with the units of its system.
    units: Option<String>,
}

impl SeenAgent {
    /// None: the node has no agent.
    pub(super) fn of(node: &Value) -> Option<Self> {
        let config = AppliedConfig::of(node)?;
        let conditions = node["status"]["conditions"].as_array();
        let units = conditions.into_iter().flatten().find(|condition| condition["type"] == UNITS);
        let bad = units.filter(|units| units["status"] != "True");
        let units =
            bad.map(|units| cut::head(text(&units["message"]), limits::SHOOT_NODE_BYTES_MAX).to_owned());
        Some(Self { config, units })
    }
}

/// What is known about the agents of a Shoot between two checks.
#[derive(Debug, Default)]
pub(super) struct KnownAgents {
    read: Option<Mono>,
    /// The checksum of each Secret with what nodes apply.
    wanted: SortedMap<String, String>,
    /// By node: the time in the Lease of its agent, and since when it is this one, by the clock of this agent. The clock of a host may be wrong.
    leases: SortedMap<String, (String, Mono)>,
}

impl KnownAgents {
    /// Reads Leases and Secrets, if that is due. Errors: they cannot be listed.
    pub(super) fn look(&mut self, client: &Client, is_well: bool, at: Mono) -> Result<(), Error> {
        if is_well && self.read.is_some_and(|read| at.saturating_sub(read) < PERIOD) {
            return Ok(());
        }
        self.wanted = applied::wanted(client)?;
        let mut found = SortedMap::new();
        client.list_each::<Value>(&LEASE, "kube-system", &ListParams::default(), &mut |item| match item {
            ListItem::Object(lease) if found.len() < limits::SHOOT_NODES_MAX => {
                let Some(node) = text(&lease["metadata"]["name"]).strip_prefix(LEASE_PREFIX) else { return };
                let time = cut::head(text(&lease["spec"]["renewTime"]), TIME_BYTES_MAX);
                found.insert(node.to_owned(), time.to_owned());
            }
            ListItem::Restart => found = SortedMap::new(),
            ListItem::Object(_) | ListItem::Undecodable(_) => {}
        })?;
        self.leases = renewed(&self.leases, found, at);
        self.read = Some(at);
        Ok(())
    }

    /// What is wrong with the agent of a node that is ready, as far as the last look can say.
    pub(super) fn fault(&self, node: &str, agent: &SeenAgent) -> Option<Finding> {
        let read = self.read?;
        let wanted = self.wanted.get(&agent.config.secret);
        if let Some(why) = wanted.and_then(|wanted| agent.config.lateness(node, wanted)) {
            return Some(Finding::new("OperatingSystemConfigOutdated", why));
        }
        let why = match self.leases.get(node) {
            None => Some(format!("gardener-node-agent is not running on node {node:?}")),
            Some((_, since)) if read.saturating_sub(*since) >= LEASE_LASTS => {
                Some(format!("gardener-node-agent stopped running on node {node:?}"))
            }
            Some(_) => None,
        };
        if let Some(why) = why {
            return Some(Finding::new("NodeAgentUnhealthy", why));
        }
        let why = agent.units.as_ref()?;
        let text = format!("systemd units are not healthy on node {node:?}: {why}");
        Some(Finding::new("SystemdUnitsNotReady", text))
    }
}

/// The Leases that were found, each with the moment since which it has its time.
fn renewed(
    known: &SortedMap<String, (String, Mono)>,
    found: SortedMap<String, String>,
    at: Mono,
) -> SortedMap<String, (String, Mono)> {
    let since = |(node, time): (String, String)| {
        let before = known.get(&node).filter(|(old, _)| *old == time);
        let since = before.map_or(at, |(_, since)| *since);
        (node, (time, since))
    };
    found.into_iter().map(since).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::json::json;
    use crate::osc::{APPLIED, SECRET_NAME};

    const fn at(seconds: u64) -> Mono {
        Duration::from_secs(seconds)
    }

    #[test]
    fn what_is_wrong_with_agents() {
        let node = |applied: &str, units: &Value| {
            let node = json!({"metadata": {"labels": {SECRET_NAME: "s"}, "annotations": {APPLIED: applied}},
                "status": {"conditions": [{"type": UNITS, "status": units, "message": "unit x failed"}]}});
            SeenAgent::of(&node).unwrap()
        };
        let leases = |since: u64| SortedMap::from([("n".to_owned(), ("t".to_owned(), at(since)))]);
        let wanted = SortedMap::from([("s".to_owned(), "new".to_owned())]);
        let well = || node("new", &json!("True"));
        let table = [
            (Some(100), leases(100), well(), ""),
            (Some(100), leases(61), well(), ""),
            (None, SortedMap::new(), well(), ""),
            (Some(100), leases(100), node("old", &json!("True")), "OperatingSystemConfigOutdated: the last"),
            (
                Some(100),
                SortedMap::new(),
                well(),
                "NodeAgentUnhealthy: gardener-node-agent is not running on node \"n\"",
            ),
            (
                Some(100),
                leases(60),
                well(),
                "NodeAgentUnhealthy: gardener-node-agent stopped running on node \"n\"",
            ),
            (
                Some(100),
                leases(100),
                node("new", &json!("False")),
                "SystemdUnitsNotReady: systemd units are not healthy on node \"n\": unit x failed",
            ),
        ];
        for (read, leases, agent, expected) in table {
            let known = KnownAgents { read: read.map(at), wanted: wanted.clone(), leases };
            let found = known.fault("n", &agent);
            let text = found.map_or(String::new(), |found| format!("{}: {}", found.reason, found.message));
            assert!(
                text.starts_with(expected) && text.is_empty() == expected.is_empty(),
                "{expected}: {text}"
            );
        }
    }

    #[test]
    fn a_lease_counts_from_the_moment_at_which_it_changed() {
        let found = |time: &str| SortedMap::from([("n".to_owned(), time.to_owned())]);
        let first = renewed(&SortedMap::new(), found("a"), at(5));
        assert_eq!(first["n"], ("a".to_owned(), at(5)));
        let same = renewed(&first, found("a"), at(50));
        assert_eq!(same["n"], ("a".to_owned(), at(5)));
        assert_eq!(renewed(&same, found("b"), at(60))["n"], ("b".to_owned(), at(60)));
        assert!(renewed(&same, SortedMap::new(), at(60)).is_empty());
    }
}
