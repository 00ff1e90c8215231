//! What agents asked of the real seed in all stories before this one, and what the packaged roles allow.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::audit::{Audit, Request};
use crate::failure::{Result, ensure, equal};
use crate::lab::Lab;
use crate::support::api::rbac;
use crate::support::api::request::Info;
use crate::support::garden::prepare;

const AGENT: &str = "system:serviceaccount:garden:gardenlet";

/// Everything that agents asked for under their own account is allowed by a rule of `packaging/rbac.yaml`, or by what everybody
/// is allowed. Only what a Shoot has may need the rules for control planes. Answers tell less: a server may refuse for
/// moments what it was just told to allow.
pub(crate) fn is_enough(lab: &mut Lab) -> Result<()> {
    let asked = all_allowed(&Audit::of_all(&lab.seed.audit_log()).requests()?, is_of_shoot)?;
    // Some stories have no agents.
    ensure(asked > 10 || !lab.environment.wants_all(), || format!("agents asked for {asked} things only"))
}

/// The same of an agent that makes Shoots, which may need those rules for whatever it does.
pub(super) fn allows_with_shoots(audit: &mut Audit) -> Result<()> {
    let asked = all_allowed(&audit.requests()?, |_| true)?;
    ensure(asked > 100, || format!("the agent asked for {asked} things only"))
}

/// Kinds without a namespace that only the flow of a Shoot reads: before it makes an etcd, it looks whether an etcd-druid guards
/// the objects.
const OF_FLOWS: [&str; 1] = ["validatingwebhookconfigurations"];

/// Kinds that the care of Shoots lists for all of them at once.
const OF_CARE: [&str; 3] = ["cronjobs", "deployments", "statefulsets"];

/// Whether it is in the namespace of a Shoot, has its name, or is what only its flow or its care reads.
fn is_of_shoot(info: &Info) -> bool {
    let is_named = [&info.namespace, &info.name].iter().any(|name| name.starts_with("shoot--"));
    let is_of_care =
        info.namespace.is_empty() && info.verb == "list" && OF_CARE.contains(&info.resource.as_str());
    is_named || is_of_care || OF_FLOWS.contains(&info.resource.as_str())
}

/// Whether only an agent that upgrades itself asks for it: its own roles, and the other objects of its chart.
fn is_of_upgrade(info: &Info) -> bool {
    let is_own = info.namespace == "garden" && info.name.starts_with("gardenlet");
    let kinds = ["configmaps", "poddisruptionbudgets"];
    let is_new =
        info.namespace == "garden" && info.verb == "create" && kinds.contains(&info.resource.as_str());
    info.group == "rbac.authorization.k8s.io" || info.resource == "priorityclasses" || is_own || is_new
}

/// Returns how many different things agents asked for. The rules for control planes count where `with_shoots` says so.
fn all_allowed(requests: &[Request], with_shoots: fn(&Info) -> bool) -> Result<usize> {
    let (core, of_shoots) = prepare::access();
    let upgrade = prepare::upgrade_access();
    let is_allowed = |info: &Info| {
        allows(&core, info)
            || (with_shoots(info) && allows(&of_shoots, info))
            || (is_of_upgrade(info) && allows(&upgrade, info))
    };
    let asked: BTreeSet<_> = requests
        .iter()
        .filter(|request| request.user.username == AGENT)
        .map(Request::info)
        .map(|info| (format!("{} {}", info.verb, info.path), is_allowed(&info)))
        .collect();
    let refused: Vec<_> = asked.iter().filter(|(_, allowed)| !allowed).map(|(what, _)| what).collect();
    equal("asked for and not allowed", &refused, &Vec::new())?;
    Ok(asked.len())
}

fn allows(roles: &[Value], info: &Info) -> bool {
    let within = |role: &Value| {
        role["metadata"]["namespace"].as_str().is_none_or(|namespace| namespace == info.namespace)
    };
    let rules = roles
        .iter()
        .filter(|role| matches!(role["kind"].as_str(), Some("Role" | "ClusterRole")) && within(role))
        .flat_map(|role| role["rules"].as_array().into_iter().flatten());
    rules.into_iter().any(|rule| rbac::covers(rule, info)) || rbac::is_everybodys(info)
}
