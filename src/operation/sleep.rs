//! Hibernation of a Shoot, and the parts of its control plane that stay off meanwhile.
//!
//! Waking a Shoot up needs no special tasks: the objects of an awake Shoot are written with replicas.

use serde_json::Value;

use crate::api::core::{DEPLOYMENT, STATEFUL_SET};
use crate::api::meta::{Key, Resource};
use crate::components::etcd::{Role, druid};
use crate::components::{kube_apiserver, kube_controller_manager, scale};
use crate::config::control_plane::EtcdMode;
use crate::flow::{Attempt, Failed, Step};
use crate::kube::Error;

use super::pods;
use super::times::STORE_PERIOD;
use super::work::Work;

fn replicas(work: &Work, resource: &Resource, name: &str) -> Result<Option<i64>, Error> {
    scale::replicas(&work.env.seed, resource, &Key::new(work.plane(), name))
}

/// The replicas of a workload of a Shoot that is being hibernated. A running workload keeps running until the end of
/// the flow, and one that an earlier try has stopped does not start again.
fn kept(work: &Work, resource: &Resource, name: &str) -> Result<i64, Error> {
    Ok(replicas(work, resource, name)?.unwrap_or(0))
}

/// The current number of replicas for an etcd.
pub(super) fn etcd_replicas(work: &Work, role: Role) -> Result<u32, Failed> {
    if !work.facts.is_hibernated {
        return Ok(1);
    }
    let resource = match work.env.settings.edge.etcd.mode {
        EtcdMode::Plain => &STATEFUL_SET,
        EtcdMode::Druid => &druid::ETCD,
    };
    Ok(u32::try_from(kept(work, resource, role.name())?).unwrap_or(0))
}

/// The current number of replicas for kube-controller-manager.
pub(super) fn controller_replicas(work: &Work) -> Result<i64, Failed> {
    if !work.facts.is_hibernated {
        return Ok(pods::replicas(work));
    }
    Ok(kept(work, &DEPLOYMENT, kube_controller_manager::NAME)?)
}

/// Whether the API server is off and must stay off, so that it cannot be used.
pub(super) fn is_off(work: &Work) -> Result<bool, Failed> {
    Ok(work.facts.is_hibernated && replicas(work, &DEPLOYMENT, kube_apiserver::NAME)? == Some(0))
}

/// Shuts the control plane down. Its Services stay, so that the address stays the same for the owner.
pub(super) fn control_plane(work: &mut Work, _: &Attempt) -> Result<Step, Failed> {
    let (mode, now) = (work.env.settings.edge.etcd.mode, work.now());
    // Writes of the applier must not fail because the server stops: they would not be retried before the Shoot is
    // awake.
    if !work.env.served.let_go(work.plane(), now) {
        return Ok(Step::again(STORE_PERIOD, "the applier has not seen the hibernation of the Shoot yet"));
    }
    let step = scale::control_plane_down(&work.env.seed, mode, work.plane(), now)?;
    if step != Step::Done {
        return Ok(step);
    }
    work.env.connector.forget(work.plane());
    Ok(Step::Done)
}

/// Whether a Shoot is hibernated according to its status, and must stay so.
pub fn is_asleep(shoot: &Value) -> bool {
    shoot["spec"]["hibernation"]["enabled"] == true && shoot["status"]["hibernated"] == true
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_shoot_is_asleep_once_status_and_spec_agree() {
        let shoot = |wants: bool, is: bool| json!({"spec": {"hibernation": {"enabled": wants}}, "status": {"hibernated": is}});
        let all = [(true, true, true), (true, false, false), (false, true, false), (false, false, false)];
        for (wants, is, expected) in all {
            assert_eq!(is_asleep(&shoot(wants, is)), expected, "{wants} {is}");
        }
        assert!(!is_asleep(&json!({})));
    }
}
