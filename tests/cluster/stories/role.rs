//! The requests of agents to the real seed, and the permissions of the packaged roles: after each story its own ones, and
//! once those of all stories before.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::audit::{Audit, Request};
use crate::failure::{Result, ensure, equal};
use crate::lab::Lab;
use support::api::rbac;
use support::api::request::Info;
use support::garden::prepare;

const AGENT: &str = "system:serviceaccount:garden:gardenlet";

/// A rule of `packaging/rbac.yaml`, or a permission that all users have, allows each request of agents under their own
/// account. Only requests for Shoots may need the rules for control planes. The answers do not show this: a server may
/// refuse a request for a moment after it was allowed.
pub(crate) fn is_enough(lab: &mut Lab) -> Result<()> {
    let asked = allows(&mut Audit::of_all(&lab.seed.audit_log()))?;
    // Some stories have no agents.
    ensure(asked > 10 || !lab.environment.arguments.want_whole_parts(), || {
        format!("agents made only {asked} different requests")
    })
}

/// The same for the next requests in the log. Returns the number of different ones.
pub(super) fn allows(audit: &mut Audit) -> Result<usize> {
    all_allowed(&audit.requests()?, is_of_shoot)
}

/// The same for an agent that serves Shoots, which may use those rules for all its requests.
pub(super) fn allows_with_shoots(audit: &mut Audit) -> Result<usize> {
    all_allowed(&audit.requests()?, |_| true)
}

/// Cluster-scoped kinds that only the flow of a Shoot uses. It creates the Cluster, and the path of that request has no
/// name. Before it creates an etcd, it checks whether an etcd-druid protects the objects.
const OF_FLOWS: [&str; 2] = ["clusters", "validatingwebhookconfigurations"];

/// Kinds that the care of Shoots lists for all Shoots at once.
const OF_CARE: [&str; 3] = ["cronjobs", "deployments", "statefulsets"];

/// Whether the object is in the namespace of a Shoot, has its name, or only its flow or its care uses the kind.
fn is_of_shoot(info: &Info) -> bool {
    let is_named = [&info.namespace, &info.name].iter().any(|name| name.starts_with("shoot--"));
    let is_of_care =
        info.namespace.is_empty() && info.verb == "list" && OF_CARE.contains(&info.resource.as_str());
    is_named || is_of_care || OF_FLOWS.contains(&info.resource.as_str())
}

/// Whether only an agent that upgrades itself makes the request: for its own roles, and the other objects of its chart.
fn is_of_upgrade(info: &Info) -> bool {
    let is_own = info.namespace == "garden" && info.name.starts_with("gardenlet");
    let kinds = ["configmaps", "poddisruptionbudgets"];
    let is_new =
        info.namespace == "garden" && info.verb == "create" && kinds.contains(&info.resource.as_str());
    info.group == "rbac.authorization.k8s.io" || info.resource == "priorityclasses" || is_own || is_new
}

/// Returns the number of different requests of agents. The rules for control planes count if `with_shoots` is true.
fn all_allowed(requests: &[Request], with_shoots: fn(&Info) -> bool) -> Result<usize> {
    let (core, of_shoots) = prepare::access();
    let upgrade = prepare::upgrade_access();
    let is_allowed = |info: &Info| {
        allowed(&core, info)
            || (with_shoots(info) && allowed(&of_shoots, info))
            || (is_of_upgrade(info) && allowed(&upgrade, info))
    };
    let asked: BTreeSet<_> = requests
        .iter()
        .filter(|request| request.user.username == AGENT)
        .map(Request::info)
        .map(|info| (format!("{} {}", info.verb, info.path), is_allowed(&info)))
        .collect();
    let refused: Vec<_> = asked.iter().filter(|(_, allowed)| !allowed).map(|(what, _)| what).collect();
    equal("requests without permission", &refused, &Vec::new())?;
    Ok(asked.len())
}

fn allowed(roles: &[Value], info: &Info) -> bool {
    let within = |role: &Value| {
        role["metadata"]["namespace"].as_str().is_none_or(|namespace| namespace == info.namespace)
    };
    let rules = roles
        .iter()
        .filter(|role| matches!(role["kind"].as_str(), Some("Role" | "ClusterRole")) && within(role))
        .flat_map(|role| role["rules"].as_array().into_iter().flatten());
    rules.into_iter().any(|rule| rbac::covers(rule, info)) || rbac::is_everybodys(info)
}
