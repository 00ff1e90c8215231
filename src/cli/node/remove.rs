//! `gardenlet node remove`: takes a host out of a Shoot.
//!
//! Each step looks at what is there, so another run continues an interrupted one. The command deletes the token before the Node: without a
//! Node of its name, a host that has a token could join again.

use std::fmt::Write as _;
use std::time::Duration;

use serde_json::Value;

use super::super::{Io, print, question};
use super::arguments::RemoveArguments;
use super::place::Place;
use crate::api::core::{NODE, SECRET};
use crate::api::meta::{ALL_NAMESPACES, Key, Resource, text};
use crate::base::clock::Clock;
use crate::base::error::chain;
use crate::base::json::json;
use crate::base::sorted::SortedSet;
use crate::base::stop::Stop;
use crate::config::Settings;
use crate::format::{duration, human};
use crate::hosts::drain::{self, LeavingPod, RemainingPod};
use crate::hosts::{critical, membership, token};
use crate::kube::{Client, DeleteParams, Error, ErrorVerdict, ListItem, ListParams, Patch};
use crate::runtime::write;

/// The pause between two looks at the pods of the host.
const PAUSE: Duration = Duration::from_secs(2);
/// How often the Node is written while others change it.
const WRITES_MAX: usize = 10;
/// The taint that says that a host is off and stays off. Kubernetes deletes its pods by force then, and detaches their volumes.
const OUT_OF_SERVICE: &str = "node.kubernetes.io/out-of-service";
const VALUE: &str = "nodeshutdown";
const VOLUME_ATTACHMENT: Resource =
    Resource::new("storage.k8s.io", "v1", "VolumeAttachment", "volumeattachments", false);
/// The condition Ready is not True.
const NOT_READY: &str = "The kubelet of the host does not say that it is ready, so pods may never end. If the host never comes back, use --lost.";
/// A budget waits for a pod that has left, and this one waits for a node.
const NO_OTHERS: &str = "No other node is ready and open, so pods that are made again wait, and their budgets hold the rest of them: delete those \
    yourself, with kubectl delete pod.";
const AGAIN: &str = "run the command again to go on";

/// Removes the host. Returns what the operator has to run on it.
pub(super) fn remove(
    io: &mut Io<'_>,
    place: &Place,
    asked: &RemoveArguments,
    settings: &Settings,
) -> Result<String, String> {
    place.check_type(settings)?;
    let (shoot, clock) = (&place.shoot, Clock::system());
    let mut removal = Removal { shoot, asked, clock, uid: String::new() };
    let (node, token, is_member) = (removal.node()?, removal.token()?, removal.is_member()?);
    if node.is_none() && token.is_none() && !is_member {
        return Ok(format!(
            "Shoot {} has no Node {}, no token for it, and no pool to which it belongs: nothing is left to remove.\n{}",
            place.name,
            asked.host,
            on_the_host(asked)
        ));
    }
    let (mut pods, mut has_others) = (Vec::new(), true);
    if let Some(node) = &node {
        text(&node["metadata"]["uid"]).clone_into(&mut removal.uid);
        removal.check(node)?;
        pods = drain::pods(shoot, &asked.host).map_err(|error| told("read the pods of the host", &error))?;
        has_others = removal.has_others()?;
    }
    let plan =
        RemovalPlan { asked, node: node.as_ref(), pods: &pods, token: token.as_ref(), is_member, has_others };
    let _ = print(io, &format!("Host {} of Shoot {}:\n{}", asked.host, place.name, plan.text()));
    if !asked.is_confirmed {
        question::confirm(io, "Enter the name of the host to remove it: ", &asked.host)?;
    }
    if let Some(node) = &node {
        if asked.is_lost { removal.lose(io)? } else { removal.empty(io, node)? }
    }
    removal.delete_token(io)?;
    removal.end_membership(io)?;
    if node.is_some() {
        removal.delete_node(io)?;
    }
    Ok(format!("Host {} is no longer a node of Shoot {}.\n{}", asked.host, place.name, on_the_host(asked)))
}

/// What the operator has to run on the host.
fn on_the_host(asked: &RemoveArguments) -> String {
    let host = &asked.host;
    let begin = if asked.is_lost {
        format!("If {host} is ever switched on again, run this there. It still has its certificates")
    } else {
        format!("Run this on {host}. It still has its certificates")
    };
    format!(
        "{begin}, and its kubelet tries to become a node again:\n  sudo sh join.sh --uninstall\n\
         Any script that this agent has printed does it, also an expired one.\n"
    )
}

fn told(what: &str, error: &Error) -> String {
    format!("{what}: {}; {AGAIN}", chain(error))
}

/// A removal that has begun.
struct Removal<'a> {
    shoot: &'a Client,
    asked: &'a RemoveArguments,
    clock: Clock,
    /// The uid of the Node, as it was when the command began.
    uid: String,
}

impl Removal<'_> {
    fn key(&self) -> Key {
        Key::cluster(self.asked.host.as_str())
    }

    fn node(&self) -> Result<Option<Value>, String> {
        let found = self.shoot.find::<Value>(&NODE, &self.key());
        found.map_err(|error| told(&format!("read Node {}", self.asked.host), &error))
    }

    /// The key of the Secret with the token of the host, if there is one.
    fn token(&self) -> Result<Option<Key>, String> {
        let key = token::key(&self.asked.host);
        let found = self.shoot.find::<Value>(&SECRET, &key);
        let found = found.map_err(|error| told(&format!("read Secret {key}"), &error))?;
        Ok(found.filter(|secret| token::host_of(secret) == self.asked.host).map(|_| key))
    }

    /// Errors: the Node is not the one to remove.
    fn check(&self, node: &Value) -> Result<(), String> {
        if text(&node["metadata"]["uid"]) != self.uid {
            return Err(format!("another host has become node {} meanwhile: it stays", self.asked.host));
        }
        if self.asked.is_lost { check_lost(node) } else { Ok(()) }
    }

    /// Closes the node, and lets its pods leave.
    fn empty(&self, io: &mut Io<'_>, node: &Value) -> Result<(), String> {
        let host = &self.asked.host;
        if node["spec"]["unschedulable"] != true {
            let _ = print(io, &format!("Update Node {host}: spec.unschedulable=true\n"));
        }
        drain::cordon(self.shoot, node).map_err(|error| told(&format!("update Node {host}"), &error))?;
        let deadline = self.clock.mono().saturating_add(self.asked.grace);
        let mut announced = SortedSet::new();
        loop {
            let turn = drain::turn(self.shoot, host, &mut |pod| {
                if announced.insert(pod.key.clone()) {
                    let _ = print(io, &format!("Evict Pod {}\n", pod.key));
                }
            });
            let remaining = match turn {
                Ok(left) if left.is_empty() => return Ok(()),
                Ok(left) => left,
                // An API server that restarts needs a moment.
                Err(error) if is_passing(&error) && self.clock.mono() < deadline => {
                    self.wait();
                    continue;
                }
                Err(error) => return Err(told(&format!("empty node {host}"), &error)),
            };
            if self.clock.mono() >= deadline {
                return Err(over(self.asked, &remaining, self.node()?.as_ref(), self.has_others()?));
            }
            self.wait();
        }
    }

    /// Whether pods can go to another node.
    fn has_others(&self) -> Result<bool, String> {
        let (mut found, params) = (false, ListParams::default());
        let listed = self.shoot.list_each::<Value>(&NODE, ALL_NAMESPACES, &params, &mut |item| {
            let ListItem::Object(node) = item else { return };
            let is_other = text(&node["metadata"]["name"]) != self.asked.host;
            let is_open = node["spec"]["unschedulable"] != true && !critical::is_closed(&node);
            found |= is_other && is_open && readiness(&node).0 == "True";
        });
        listed.map(|_| found).map_err(|error| told("list the nodes of the Shoot", &error))
    }

    fn wait(&self) {
        Stop::new().wait(&self.clock, PAUSE);
    }

    /// Says that the host stays off, and waits until nothing uses its volumes.
    fn lose(&self, io: &mut Io<'_>) -> Result<(), String> {
        let host = &self.asked.host;
        let _ = print(io, &format!("Update Node {host}: taint {OUT_OF_SERVICE}={VALUE}:NoExecute\n"));
        self.write_node(&|node| match tainted(node) {
            None => Ok(()),
            Some(patch) => self.shoot.patch_blindly(&NODE, &self.key(), &patch),
        })?;
        let deadline = self.clock.mono().saturating_add(self.asked.grace);
        loop {
            // A host that is there again is not lost.
            let Some(node) = self.node()? else { return Ok(()) };
            self.check(&node)?;
            let pods = drain::pods(self.shoot, host);
            let mut pods = pods.map_err(|error| told("read the pods of the host", &error))?;
            pods.retain(|pod| pod.has_claims);
            let attachments = self.attachments()?;
            if pods.is_empty() && attachments.is_empty() {
                return Ok(());
            }
            if self.clock.mono() >= deadline {
                return self.force(io, &pods, &attachments);
            }
            self.wait();
        }
    }

    /// Deletes what Kubernetes has not deleted in time.
    fn force(&self, io: &mut Io<'_>, pods: &[LeavingPod], attachments: &[String]) -> Result<(), String> {
        for pod in pods {
            let _ = print(io, &format!("Delete Pod {} by force\n", pod.key));
            drain::delete_by_force(self.shoot, pod)
                .map_err(|error| told(&format!("delete Pod {}", pod.key), &error))?;
        }
        if !attachments.is_empty() {
            let names = attachments.join(", ");
            let text = format!(
                "VolumeAttachment {names} is still there: Kubernetes detaches it some minutes after the Node is gone.\n"
            );
            let _ = print(io, &text);
        }
        Ok(())
    }

    /// The names of the volumes that are attached to the host.
    fn attachments(&self) -> Result<Vec<String>, String> {
        let mut names = Vec::new();
        let params = ListParams::default();
        let listed = self.shoot.list_each::<Value>(
            &VOLUME_ATTACHMENT,
            ALL_NAMESPACES,
            &params,
            &mut |item| match item {
                ListItem::Object(each) if each["spec"]["nodeName"] == self.asked.host.as_str() => {
                    names.push(text(&each["metadata"]["name"]).to_owned());
                }
                ListItem::Restart => names.clear(),
                ListItem::Object(_) | ListItem::Undecodable(_) => {}
            },
        );
        match listed {
            Err(error) if !error.is_not_found() => Err(told("list the volumes of the host", &error)),
            _ => Ok(names),
        }
    }

    fn delete_token(&self, io: &mut Io<'_>) -> Result<(), String> {
        let Some(key) = self.token()? else { return Ok(()) };
        let _ = print(io, &format!("Delete Secret {key}\n"));
        let deleted = write::delete(self.shoot, &SECRET, &key);
        deleted.map(drop).map_err(|error| told(&format!("delete Secret {key}"), &error))
    }

    fn is_member(&self) -> Result<bool, String> {
        let found = membership::exists(self.shoot, &self.asked.host);
        found.map_err(|error| told("read to which pool the host belongs", &error))
    }

    fn end_membership(&self, io: &mut Io<'_>) -> Result<(), String> {
        if !self.is_member()? {
            return Ok(());
        }
        let _ = print(io, &format!("Remove the host from {}\n", membership::words(&self.asked.host)));
        let ended = membership::end(self.shoot, &self.asked.host);
        ended.map_err(|error| told("remove the host from its pool", &error))
    }

    fn delete_node(&self, io: &mut Io<'_>) -> Result<(), String> {
        let _ = print(io, &format!("Delete Node {}\n", self.asked.host));
        self.write_node(&|node| {
            // A kubelet that is there again has changed it.
            let part = |name: &str| Some(text(&node["metadata"][name]).to_owned());
            let params = DeleteParams {
                uid: part("uid"),
                resource_version: part("resourceVersion"),
                ..DeleteParams::default()
            };
            self.shoot.delete(&NODE, &self.key(), &params)
        })
    }

    /// Writes the Node as it is now, if it may be written. A Node that is gone needs nothing.
    fn write_node(&self, write: &dyn Fn(&Value) -> Result<(), Error>) -> Result<(), String> {
        for _ in 0..WRITES_MAX {
            let Some(node) = self.node()? else { return Ok(()) };
            self.check(&node)?;
            match write(&node) {
                Err(error) if error.is_conflict() => {}
                Err(error) if !error.is_not_found() => {
                    return Err(told(&format!("write Node {}", self.asked.host), &error));
                }
                _ => return Ok(()),
            }
        }
        Err(format!("Node {} changes all the time: {AGAIN}", self.asked.host))
    }
}

/// Whether the next request may succeed.
fn is_passing(error: &Error) -> bool {
    matches!(error.verdict(), ErrorVerdict::Unreachable | ErrorVerdict::Throttled(_))
}

/// The status of condition Ready, and its message.
fn readiness(node: &Value) -> (&str, &str) {
    let mut conditions = node["status"]["conditions"].as_array().into_iter().flatten();
    let ready = conditions.find(|condition| condition["type"] == "Ready");
    ready.map_or(("", ""), |ready| (text(&ready["status"]), text(&ready["message"])))
}

/// Errors: the host is there. Its pods would run twice.
fn check_lost(node: &Value) -> Result<(), String> {
    let name = text(&node["metadata"]["name"]);
    let why = match readiness(node) {
        ("Unknown", _) => return Ok(()),
        ("True", _) => "it is Ready".to_owned(),
        ("False", message) => format!("its kubelet still reports: {message}"),
        _ => "Kubernetes has not judged it yet: wait a minute".to_owned(),
    };
    let taint = if has_taint(node) {
        format!("; kubectl taint node {name} {OUT_OF_SERVICE}- lets pods come again")
    } else {
        String::new()
    };
    Err(format!(
        "node {name} is not lost: {why}. Remove it without --lost, or switch the host off and wait a minute{taint}"
    ))
}

fn has_taint(node: &Value) -> bool {
    node["spec"]["taints"].as_array().into_iter().flatten().any(|taint| taint["key"] == OUT_OF_SERVICE)
}

/// The patch that adds the taint; none if it is there.
fn tainted(node: &Value) -> Option<Patch> {
    let mut taints = node["spec"]["taints"].as_array().cloned().unwrap_or_default();
    taints.push(json!({"key": OUT_OF_SERVICE, "value": VALUE, "effect": "NoExecute"}));
    let patch = json!({"metadata": {"resourceVersion": node["metadata"]["resourceVersion"]}, "spec": {"taints": taints}});
    (!has_taint(node)).then_some(Patch::Merge(patch))
}

/// The time limit is over.
fn over(
    asked: &RemoveArguments,
    remaining: &[RemainingPod],
    node: Option<&Value>,
    has_others: bool,
) -> String {
    let host = &asked.host;
    let are = if remaining.len() == 1 { "is" } else { "are" };
    let mut text = format!(
        "{} {are} still on node {host} after {}:\n",
        human::counted(remaining.len(), "pod"),
        duration::format(asked.grace)
    );
    for pod in remaining {
        // Writing to a String cannot fail.
        let _ = writeln!(text, "  {}: {}", pod.key, pod.why);
    }
    if node.is_some_and(|node| readiness(node).0 != "True") {
        let _ = writeln!(text, "{NOT_READY}");
    }
    if !has_others {
        let _ = writeln!(text, "{NO_OTHERS}");
    }
    let _ = write!(
        text,
        "Nothing was deleted, and the node stays closed to new pods. Change what holds these pods, and run the command again, with a \
         longer --grace if they need time. To keep the host: kubectl uncordon {host}"
    );
    text
}

/// What will be done.
struct RemovalPlan<'a> {
    asked: &'a RemoveArguments,
    node: Option<&'a Value>,
    /// The pods that have to leave.
    pods: &'a [LeavingPod],
    token: Option<&'a Key>,
    /// Whether it belongs to a pool.
    is_member: bool,
    /// Whether pods can go to another node.
    has_others: bool,
}

impl RemovalPlan<'_> {
    fn text(&self) -> String {
        let (host, grace) = (&self.asked.host, duration::format(self.asked.grace));
        let mut steps = Vec::new();
        match self.node {
            Some(_) if self.asked.is_lost => {
                steps.push(format!("taint Node {host} with {OUT_OF_SERVICE}: Kubernetes deletes its pods by force, and detaches their volumes"));
                let named = named(self.pods.iter().filter(|pod| pod.has_claims));
                if !named.is_empty() {
                    steps.push(format!("wait up to {grace} until pods with volumes are gone, and delete the rest by force:{named}"));
                }
            }
            Some(node) => {
                if node["spec"]["unschedulable"] != true {
                    steps.push(format!("close Node {host} to new pods"));
                }
                let named = named(self.pods.iter());
                if !named.is_empty() {
                    steps.push(format!("evict pods, and wait up to {grace} until they are gone:{named}"));
                }
            }
            None => {}
        }
        steps.extend(self.token.map(|key| format!("delete Secret {key}, the token of the host")));
        if self.is_member {
            steps.push(format!(
                "remove the host from {}, so that it does not become a node again",
                membership::words(host)
            ));
        }
        steps.extend(self.node.map(|_| format!("delete Node {host}")));
        let mut text = String::new();
        for (number, step) in steps.iter().enumerate() {
            // Writing to a String cannot fail.
            let _ = writeln!(text, "  {}. {step}", number + 1);
        }
        match self.node {
            Some(_) if self.asked.is_lost => text.push_str(
                "Its pods start elsewhere with the same volumes. If the host still runs, and only its connection is cut, two pods write to one \
                 volume. Switch it off before you go on.\n",
            ),
            Some(node) => {
                if readiness(node).0 != "True" {
                    let _ = writeln!(text, "{NOT_READY}");
                }
                text.push_str("What pods keep on the host itself, such as emptyDir volumes, is lost.\n");
                if !self.has_others {
                    let _ = writeln!(text, "{NO_OTHERS}");
                }
            }
            None => {}
        }
        text
    }
}

/// The pods, each on a line of its own.
fn named<'p>(pods: impl Iterator<Item = &'p LeavingPod>) -> String {
    let line = |pod: &LeavingPod| {
        let alone = if pod.is_replaced { "" } else { " (nothing makes it again)" };
        format!("\n       {}{alone}", pod.key)
    };
    pods.map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(is_lost: bool) -> RemoveArguments {
        let grace = Duration::from_secs(300);
        RemoveArguments { host: "h1".to_owned(), grace, is_lost, is_confirmed: false }
    }

    fn node(ready: &str) -> Value {
        json!({"metadata": {"name": "h1", "resourceVersion": "7"}, "spec": {},
            "status": {"conditions": [{"type": "Ready", "status": ready, "message": "told"}]}})
    }

    #[test]
    fn only_a_silent_host_is_lost() {
        let mut tainted = node("True");
        tainted["spec"]["taints"] = json!([{"key": OUT_OF_SERVICE}]);
        let mut new = node("True");
        new["status"] = json!({});
        let table = [
            (node("Unknown"), ""),
            (node("True"), "node h1 is not lost: it is Ready. Remove it without --lost"),
            (node("False"), "node h1 is not lost: its kubelet still reports: told."),
            (new, "node h1 is not lost: Kubernetes has not judged it yet"),
            (tainted, "kubectl taint node h1 node.kubernetes.io/out-of-service- lets pods come again"),
        ];
        for (node, expected) in table {
            let found = check_lost(&node).err().unwrap_or_default();
            assert!(found.contains(expected) && found.is_empty() == expected.is_empty(), "{found}");
        }
    }

    #[test]
    fn the_taint_is_added_once_and_others_stay() {
        let mut node = node("Unknown");
        node["spec"]["taints"] = json!([{"key": "node.kubernetes.io/unreachable", "effect": "NoExecute"}]);
        let expected = json!({"metadata": {"resourceVersion": "7"}, "spec": {"taints": [
            {"key": "node.kubernetes.io/unreachable", "effect": "NoExecute"},
            {"key": OUT_OF_SERVICE, "value": "nodeshutdown", "effect": "NoExecute"}]}});
        assert_eq!(tainted(&node), Some(Patch::Merge(expected)));
        node["spec"]["taints"] = json!([{"key": OUT_OF_SERVICE, "value": VALUE, "effect": "NoExecute"}]);
        assert_eq!(tainted(&node), None);
    }

    #[test]
    fn the_end_of_the_time_names_pods_and_what_to_do() {
        let remaining = [RemainingPod {
            key: Key::new("default", "web-0"),
            why: "The disruption budget web needs 1 healthy pods and has 1 currently".to_owned(),
        }];
        let found = over(&asked(false), &remaining, Some(&node("True")), true);
        for part in [
            "1 pod is still on node h1 after 5m0s:\n  default/web-0: The disruption budget web needs",
            "Nothing was deleted, and the node stays closed",
            "kubectl uncordon h1",
        ] {
            assert!(found.contains(part), "{part}: {found}");
        }
        assert!(!found.contains("--lost") && !found.contains("kubectl delete pod"), "{found}");
        let alone = over(&asked(false), &remaining, Some(&node("True")), false);
        assert!(alone.contains("No other node is ready") && alone.contains("kubectl delete pod"), "{alone}");
        assert!(over(&asked(false), &remaining, Some(&node("Unknown")), true).contains("use --lost"));
    }

    #[test]
    fn the_plan_lists_what_is_written() {
        let pod = |name: &str| LeavingPod {
            key: Key::new("default", name),
            is_replaced: name != "tool",
            ..LeavingPod::default()
        };
        let pods = [pod("web-0"), pod("tool")];
        let key = Key::new("kube-system", "bootstrap-token-abcdef");
        let (node, unknown) = (node("True"), node("Unknown"));
        let plan = |is_lost: bool, node: Option<&Value>, token: Option<&Key>, pods: &[LeavingPod]| {
            let is_member = token.is_some();
            RemovalPlan { asked: &asked(is_lost), node, pods, token, is_member, has_others: true }.text()
        };
        let expected = "  1. close Node h1 to new pods\n  2. evict pods, and wait up to 5m0s until they are gone:\n       \
            default/web-0\n       default/tool (nothing makes it again)\n  \
            3. delete Secret kube-system/bootstrap-token-abcdef, the token of the host\n  4. remove the host from ConfigMap \
            kube-system/edge-hosts and RoleBinding kube-system/gardener.cloud:node-agent:h1, so that it does not become a node again\n  \
            5. delete Node h1\n\
            What pods keep on the host itself, such as emptyDir volumes, is lost.\n";
        assert_eq!(plan(false, Some(&node), Some(&key), &pods), expected);
        let unused = plan(false, None, Some(&key), &[]);
        assert!(unused.starts_with("  1. delete Secret kube-system/bootstrap-token-abcdef, the token of the host\n  2. remove the host from "), "{unused}");
        let silent = plan(false, Some(&unknown), None, &[]);
        assert!(silent.contains("\n  2. delete Node h1\n") && silent.contains("use --lost"), "{silent}");
        let lost = plan(true, Some(&node), None, &pods);
        assert!(lost.starts_with("  1. taint Node h1 with node.kubernetes.io/out-of-service: "), "{lost}");
        assert!(
            lost.contains("\n  2. delete Node h1\n") && lost.contains("Switch it off before you go on"),
            "{lost}"
        );
    }
}
