//! The hosts of a Shoot that is hibernated. Their pods leave before its API server ends, and may come again when it is awake. The Nodes stay.
//!
//! Upstream deletes the machines. It waits until no Node is left, which leaves hosts out.

use std::time::Duration;

use serde_json::Value;

use crate::api::core::NODE;
use crate::api::meta::{ALL_NAMESPACES, Key, text};
use crate::base::json::json;
use crate::components::rollout::has_condition_ready;
use crate::flow::{Attempt, Failed, TaskStep};
use crate::hosts::drain::{self, RemainingPod};
use crate::kube::{Client, ListItem, ListParams, Patch};
use crate::limits;
use crate::shoot::pools::POOL;

use super::super::super::nodes::has_hosts;
use super::super::super::times::{FIVE_SECONDS, MINUTE, THREE_MINUTES};
use super::super::super::work::Work;
use super::super::server_serves;

/// The label of a Node that was closed to new pods for a reason of the agent. It opens no others.
const CLOSED_FOR: &str = "edge.gardenlet/closed-for";
const HIBERNATION: &str = "hibernation";

/// How an attempt makes pods leave.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Emptying {
    /// As their disruption budgets allow.
    Evicting,
    /// Without asking budgets: all hosts are emptied, so budgets would hold some pods for ever.
    Deleting,
    /// The Shoot is hibernated although some pods are left.
    Over,
}

fn emptying(since: Duration) -> Emptying {
    match since {
        _ if since < MINUTE => Emptying::Evicting,
        _ if since < THREE_MINUTES => Emptying::Deleting,
        _ => Emptying::Over,
    }
}

/// Empties the hosts that are there. Absent ones are not waited for.
pub(super) fn empty(work: &mut Work, attempt: &Attempt) -> Result<TaskStep, Failed> {
    // Without an API server, the Shoot is asleep already, or nobody can ask its hosts.
    if !has_hosts(work) || !server_serves(work)? {
        return Ok(TaskStep::Done);
    }
    let way = emptying(attempt.now.saturating_sub(attempt.begun));
    let why = match ask(work, way) {
        Ok(left) if left.is_empty() => return Ok(TaskStep::Done),
        Ok(left) => {
            format!("{} pods are still on hosts, among them {}: {}", left.len(), left[0].key, left[0].why)
        }
        Err(why) => why.text,
    };
    if way == Emptying::Over {
        log::warn!(namespace = work.plane(), why = why.as_str(); "Hibernating a Shoot whose hosts are not empty");
        return Ok(TaskStep::Done);
    }
    Ok(TaskStep::again(FIVE_SECONDS, why))
}

fn ask(work: &Work, way: Emptying) -> Result<Vec<RemainingPod>, Failed> {
    let client = work.env.connector.connect(work.plane())?;
    let mut hosts = Vec::new();
    let params = ListParams { label_selector: POOL.to_owned(), ..ListParams::default() };
    client.list_each::<Value>(&NODE, ALL_NAMESPACES, &params, &mut |item| match item {
        ListItem::Object(node) if has_condition_ready(&node) && hosts.len() < limits::SHOOT_NODES_MAX => {
            let is_open = node["spec"]["unschedulable"] != true;
            hosts.push((text(&node["metadata"]["name"]).to_owned(), is_open));
        }
        ListItem::Restart => hosts.clear(),
        ListItem::Object(_) | ListItem::Undecodable(_) => {}
    })?;
    // A pod that leaves a host must not come to the next one.
    for (host, _) in hosts.iter().filter(|(_, is_open)| *is_open) {
        let labels = json!({CLOSED_FOR: HIBERNATION});
        let patch = json!({"metadata": {"labels": labels}, "spec": {"unschedulable": true}});
        client.patch_blindly(&NODE, &Key::cluster(host.as_str()), &Patch::Merge(patch))?;
    }
    let mut left = Vec::new();
    for (host, _) in hosts {
        left.extend(match way {
            Emptying::Evicting => drain::turn(&client, &host, &mut |_| ())?,
            Emptying::Deleting | Emptying::Over => drain::end(&client, &host)?,
        });
    }
    Ok(left)
}

/// Opens the hosts again that were closed for the hibernation.
pub(super) fn open(work: &mut Work, _: &Attempt) -> Result<TaskStep, Failed> {
    if has_hosts(work) {
        let client = work.env.connector.connect(work.plane())?;
        open_all(&client)?;
    }
    Ok(TaskStep::Done)
}

fn open_all(client: &Client) -> Result<(), Failed> {
    let mut closed = Vec::new();
    let label_selector = format!("{CLOSED_FOR}={HIBERNATION}");
    let params = ListParams { label_selector, metadata_only: true, ..ListParams::default() };
    client.list_all::<Value>(&NODE, ALL_NAMESPACES, &params, &mut |node| {
        closed.push(text(&node["metadata"]["name"]).to_owned());
    })?;
    for host in closed {
        let labels = json!({CLOSED_FOR: null});
        let patch = json!({"metadata": {"labels": labels}, "spec": {"unschedulable": null}});
        client.patch_blindly(&NODE, &Key::cluster(host), &Patch::Merge(patch))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn budgets_count_for_a_minute_and_pods_for_three() {
        let table = [
            (0, Emptying::Evicting),
            (59, Emptying::Evicting),
            (60, Emptying::Deleting),
            (179, Emptying::Deleting),
            (180, Emptying::Over),
        ];
        for (seconds, expected) in table {
            assert_eq!(emptying(Duration::from_secs(seconds)), expected, "{seconds}");
        }
    }
}
