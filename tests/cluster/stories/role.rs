//! What agents asked of the real seed in all stories before this one, and what the packaged roles allow.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::audit::{self, Audit};
use crate::failure::{Result, ensure, equal};
use crate::lab::Lab;
use crate::support::api::rbac;
use crate::support::api::request::Info;
use crate::support::garden::prepare;

const AGENT: &str = "system:serviceaccount:garden:gardenlet";

/// Everything that agents asked for under their own account is allowed by a rule of `packaging/rbac.yaml` that is not for
/// control planes of Shoots, or by what everybody is allowed. Answers tell less: a server may refuse for moments what it was just told to allow.
pub(crate) fn is_enough(lab: &mut Lab) -> Result<()> {
    let (mut roles, _) = prepare::access();
    roles.retain(|object| matches!(object["kind"].as_str(), Some("Role" | "ClusterRole")));
    let asked: BTreeSet<_> = Audit::of_all(&lab.seed.audit_log())
        .requests()?
        .iter()
        .filter(|request| request.user.username == AGENT)
        .map(audit::Request::info)
        .map(|info| (format!("{} {}", info.verb, info.path), allows(&roles, &info)))
        .collect();
    let refused: Vec<_> = asked.iter().filter(|(_, allowed)| !allowed).map(|(what, _)| what).collect();
    equal("asked for and not allowed", &refused, &Vec::new())?;
    // Some stories have no agents.
    ensure(asked.len() > 10 || !lab.environment.wants_all(), || {
        format!("agents asked for {} things only", asked.len())
    })
}

fn allows(roles: &[Value], info: &Info) -> bool {
    let within = |role: &Value| {
        role["metadata"]["namespace"].as_str().is_none_or(|namespace| namespace == info.namespace)
    };
    let rules = roles
        .iter()
        .filter(|role| within(role))
        .flat_map(|role| role["rules"].as_array().into_iter().flatten());
    rules.into_iter().any(|rule| rbac::covers(rule, info)) || rbac::is_everybodys(info)
}
