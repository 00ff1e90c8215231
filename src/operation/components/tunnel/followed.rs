//! Whether every agent of the tunnel has the certificate and the CAs of a prepared rotation.

use serde_json::Value;

use crate::api::core::{DAEMON_SET, NODE, POD};
use crate::api::meta::{ALL_NAMESPACES, Key, text};
use crate::components::rollout::has_condition_ready;
use crate::flow::{Attempt, Failed, TaskStep};
use crate::kube::ListParams;

use super::super::super::times::FIVE_SECONDS;
use super::super::super::work::Work;
use super::super::managed_resource::step_until_applied;
use super::super::step_without_server;
use super::{AGENT, CERTIFICATE, MANAGED_RESOURCE};

/// The completion drops the old CA. An agent that still has its certificate would never get in again, and its host would be
/// lost. Hosts that are not ready are not waited for.
pub(super) fn wait(work: &mut Work, attempt: &Attempt) -> Result<TaskStep, Failed> {
    if let Some(step) = step_without_server(work, attempt)? {
        return Ok(step);
    }
    if let Some(step) = step_until_applied(work, MANAGED_RESOURCE) {
        return Ok(step);
    }
    let client = work.env.connector.connect(work.plane())?;
    let Some(agents) = client.find::<Value>(&DAEMON_SET, &Key::new("kube-system", AGENT))? else {
        return Ok(TaskStep::Done);
    };
    let (mut nodes, mut pods) = (Vec::new(), Vec::new());
    client.list_all::<Value>(&NODE, ALL_NAMESPACES, &ListParams::default(), &mut |node| {
        if has_condition_ready(&node) {
            nodes.push(text(&node["metadata"]["name"]).to_owned());
        }
    })?;
    let params = ListParams { label_selector: format!("app={AGENT}"), ..ListParams::default() };
    client.list_all::<Value>(&POD, "kube-system", &params, &mut |pod| pods.push(AgentPod::read(&pod)))?;
    let wanted = certificate(&agents["spec"]["template"]["spec"]);
    let late: Vec<&String> = nodes.iter().filter(|node| !has_followed(node, wanted, &pods)).collect();
    Ok(match late.first() {
        None => TaskStep::Done,
        Some(node) => TaskStep::again(
            FIVE_SECONDS,
            format!(
                "{} of {} agents of the tunnel do not run with the new certificate yet, among them that of node {node}",
                late.len(),
                nodes.len()
            ),
        ),
    })
}

/// The pod of an agent.
#[derive(Clone, PartialEq, Eq, Debug)]
struct AgentPod {
    node: String,
    /// The Secret with its certificate and CAs.
    secret: String,
    is_ready: bool,
}

impl AgentPod {
    fn read(pod: &Value) -> Self {
        Self {
            node: text(&pod["spec"]["nodeName"]).to_owned(),
            secret: certificate(&pod["spec"]).to_owned(),
            is_ready: has_condition_ready(pod) && pod["metadata"]["deletionTimestamp"].is_null(),
        }
    }
}

fn certificate(spec: &Value) -> &str {
    let mut volumes = spec["volumes"].as_array().into_iter().flatten();
    let volume = volumes.find(|volume| volume["name"] == CERTIFICATE);
    volume.map_or("", |volume| text(&volume["secret"]["secretName"]))
}

/// Whether the agent of a node runs with this Secret.
fn has_followed(node: &str, secret: &str, pods: &[AgentPod]) -> bool {
    pods.iter().any(|pod| pod.node == node && pod.secret == secret && pod.is_ready)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::json::json;

    #[test]
    fn an_agent_has_followed_if_it_runs_with_the_new_certificate() {
        let pod = |node: &str, secret: &str, ready: &str, deleted: &Value| {
            let volumes = json!([{"name": "other", "secret": {"secretName": "x"}},
                {"name": CERTIFICATE, "secret": {"secretName": secret}}]);
            AgentPod::read(&json!({"metadata": {"deletionTimestamp": deleted},
                "spec": {"nodeName": node, "volumes": volumes},
                "status": {"conditions": [{"type": "Ready", "status": ready}]}}))
        };
        let pods = [
            pod("old", "s1", "True", &Value::Null),
            pod("new", "s2", "True", &Value::Null),
            pod("silent", "s2", "False", &Value::Null),
            pod("going", "s2", "True", &json!("2026-01-01T00:00:00Z")),
            // It is replaced: both are there for a moment.
            pod("both", "s1", "True", &json!("2026-01-01T00:00:00Z")),
            pod("both", "s2", "True", &Value::Null),
        ];
        let followed: Vec<&str> = ["old", "new", "silent", "going", "both", "none"]
            .into_iter()
            .filter(|node| has_followed(node, "s2", &pods))
            .collect();
        assert_eq!(followed, ["new", "both"]);
    }
}
