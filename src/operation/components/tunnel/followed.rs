//! Whether every agent of the tunnel has the certificate and the CAs of a prepared rotation.

use serde_json::Value;

use crate::api::core::{DAEMON_SET, NODE};
use crate::api::meta::{ALL_NAMESPACES, Key};
use crate::components::rollout::is_node_ready;
use crate::flow::{Attempt, Failed, TaskStep};
use crate::kube::ListParams;

use super::super::super::times::FIVE_SECONDS;
use super::super::super::work::Work;
use super::{AGENT, MANAGED_RESOURCE};

/// The completion drops the old CA. An agent that still has its certificate would never get in again, and its host would be
/// lost. Hosts that are not ready are not waited for.
pub(super) fn wait(work: &mut Work, _: &Attempt) -> Result<TaskStep, Failed> {
    let managed = work.env.managed.get(&Key::new(work.plane(), MANAGED_RESOURCE));
    if managed.is_some_and(|managed| !managed.is_applied()) {
        let why = format!("ManagedResource {MANAGED_RESOURCE} is not applied yet");
        return Ok(TaskStep::again(FIVE_SECONDS, why));
    }
    let client = work.env.connector.connect(work.plane())?;
    let Some(agents) = client.find::<Value>(&DAEMON_SET, &Key::new("kube-system", AGENT))? else {
        return Ok(TaskStep::Done);
    };
    let (mut ready, mut lost) = (0, 0);
    client.list_all::<Value>(&NODE, ALL_NAMESPACES, &ListParams::default(), &mut |node| {
        *if is_node_ready(&node) { &mut ready } else { &mut lost } += 1;
    })?;
    Ok(match missing(&agents, ready, lost) {
        0 => TaskStep::Done,
        missing => TaskStep::again(
            FIVE_SECONDS,
            format!(
                "{missing} of {ready} agents of the tunnel on ready nodes do not run with the new certificate yet"
            ),
        ),
    })
}

/// How many agents on ready nodes are old, or not ready. `ready` and `lost` are counts of nodes.
fn missing(agents: &Value, ready: i64, lost: i64) -> i64 {
    let status = &agents["status"];
    let count = |name: &str| status[name].as_i64().unwrap_or_default();
    if status["observedGeneration"] != agents["metadata"]["generation"] {
        return ready;
    }
    let old = count("desiredNumberScheduled") - count("updatedNumberScheduled") - lost;
    let silent = ready - count("numberReady");
    old.max(silent).clamp(0, ready)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::json::json;

    #[test]
    fn agents_that_have_not_followed() {
        let of = |desired: i64, updated: i64, running: i64| {
            json!({"metadata": {"generation": 2}, "status": {"observedGeneration": 2,
                "desiredNumberScheduled": desired, "updatedNumberScheduled": updated, "numberReady": running}})
        };
        let table = [
            (of(3, 3, 3), (3, 0), 0),
            (of(3, 2, 3), (3, 0), 1),
            (of(3, 3, 2), (3, 0), 1),
            // A host is off: nobody replaces its agent.
            (of(3, 2, 2), (2, 1), 0),
            (of(3, 1, 2), (2, 1), 1),
            // No host has joined.
            (of(0, 0, 0), (0, 0), 0),
            // The controller has not seen the new agents.
            (json!({"metadata": {"generation": 2}, "status": {"observedGeneration": 1}}), (3, 0), 3),
        ];
        for (agents, (ready, lost), expected) in table {
            assert_eq!(missing(&agents, ready, lost), expected, "{agents}");
        }
    }
}
