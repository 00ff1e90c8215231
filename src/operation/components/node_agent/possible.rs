//! Whether the hosts of a pool can become what the Shoot says. What they cannot is refused before anything changes.

use serde_json::Value;

use crate::api::core::NODE;
use crate::api::extensions::WORKER;
use crate::api::meta::{ALL_NAMESPACES, annotation, text};
use crate::extension::CONFIGURATION_PROBLEM;
use crate::flow::{Attempt, Failed, TaskStep};
use crate::kube::ListParams;
use crate::limits;
use crate::osc::{APPLIED, drained_changes};
use crate::shoot::pools::POOL;

use super::super::super::nodes::{has_hosts, pools};
use super::super::super::providers::find;
use super::super::super::times::FIVE_SECONDS;
use super::super::super::work::Work;
use super::super::step_without_server;

/// Fields of a pool that ask for machines of a cloud.
const OF_MACHINES: [&str; 3] = ["zones", "volume", "dataVolumes"];

/// Errors: a pool asks for what hosts do not have, or for a change that a host makes only without pods.
pub(super) fn check(work: &mut Work, attempt: &Attempt) -> Result<TaskStep, Failed> {
    if !has_hosts(work) {
        return Ok(TaskStep::Done);
    }
    match look(work, attempt) {
        // A request that fails says nothing about the pools.
        Err(why) if why.codes.is_empty() => Ok(TaskStep::again(FIVE_SECONDS, why)),
        other => other,
    }
}

fn look(work: &Work, attempt: &Attempt) -> Result<TaskStep, Failed> {
    if let Some(why) = pools(work).find_map(|pool| of_machines(pool.worker)) {
        return Err(refused(why));
    }
    let live = find(work, &WORKER)?.unwrap_or_default();
    let before = live["spec"]["pools"].as_array();
    let mut changed: Vec<(&str, Vec<String>)> = pools(work)
        .filter_map(|pool| {
            let before = before.into_iter().flatten().find(|before| before["name"] == pool.name())?;
            Some((pool.name(), drained_changes(before, pool)))
        })
        .collect();
    changed.retain(|(_, changes)| !changes.is_empty());
    if changed.is_empty() {
        return Ok(TaskStep::Done);
    }
    if let Some(step) = step_without_server(work, attempt)? {
        let (pool, changes) = &changed[0];
        // Nodes stay while a Shoot is hibernated.
        let why = format!(
            "pool {pool:?} changes {}, and its hosts cannot be asked while the Shoot is hibernated: wake it up without this change first",
            changes.join(", ")
        );
        return if work.facts.sleeps { Err(refused(why)) } else { Ok(step) };
    }
    let client = work.env.connector.connect(work.plane())?;
    for (pool, changes) in changed {
        let params = ListParams {
            label_selector: format!("{POOL}={pool}"),
            metadata_only: true,
            ..ListParams::default()
        };
        let max = limits::SHOOT_NODES_MAX;
        let hosts = client.list_kept(&NODE, ALL_NAMESPACES, &params, max, &mut |node: Value| {
            // Nodes without an agent follow by other means.
            let has_agent = !annotation(&node, APPLIED).is_empty();
            has_agent.then(|| text(&node["metadata"]["name"]).to_owned())
        })?;
        if let Some(first) = hosts.first() {
            let more = if hosts.len() > 1 { format!(" and {} more", hosts.len() - 1) } else { String::new() };
            return Err(refused(format!(
                "pool {pool:?} changes {}, for which its hosts must be drained, and this agent cannot do that yet: keep it as it is, or let the \
                 hosts of the pool leave and join again ({first}{more})",
                changes.join(", "),
            )));
        }
    }
    Ok(TaskStep::Done)
}

fn of_machines(worker: &Value) -> Option<String> {
    let is_set = |field: &&&str| {
        let value = &worker[**field];
        !value.is_null() && value.as_array().is_none_or(|list| !list.is_empty())
    };
    let field = OF_MACHINES.iter().find(is_set)?;
    Some(format!(
        "pool {:?} has {field}, which hosts of the site do not have: remove it",
        text(&worker["name"])
    ))
}

fn refused(why: String) -> Failed {
    Failed { codes: vec![CONFIGURATION_PROBLEM.to_owned()], ..Failed::new(why) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::json::json;

    #[test]
    fn a_pool_of_hosts_has_no_machines() {
        for (worker, expected) in [
            (json!({"name": "a"}), None),
            (json!({"name": "a", "zones": []}), None),
            (json!({"name": "a", "zones": ["z1"]}), Some("zones")),
            (json!({"name": "a", "volume": {"size": "50Gi"}}), Some("volume")),
            (json!({"name": "a", "dataVolumes": [{"name": "d"}]}), Some("dataVolumes")),
        ] {
            let expected = expected.map(|field| {
                format!("pool \"a\" has {field}, which hosts of the site do not have: remove it")
            });
            assert_eq!(of_machines(&worker), expected);
        }
    }
}
