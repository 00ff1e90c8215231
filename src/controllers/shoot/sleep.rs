//! How a Shoot goes to sleep, and what of its control plane stays off while it sleeps.
//!
//! A Shoot that wakes up needs no tasks of its own: what is written for a Shoot that is awake has replicas again.

use serde_json::Value;

use crate::api::core::{DEPLOYMENT, STATEFUL_SET};
use crate::api::meta::{Key, Resource};
use crate::components::etcd::{Role, druid};
use crate::components::{kube_apiserver, kube_controller_manager, scale};
use crate::config::control_plane::EtcdMode;
use crate::extension::Moment;
use crate::flow::{Attempt, Failed, Step};
use crate::kube::Error;

use super::tasks::{STORE_PERIOD, Work};
use super::{extensions, pods, records};

fn replicas(work: &Work, resource: &Resource, name: &str) -> Result<Option<i64>, Error> {
    scale::replicas(&work.seed, resource, &Key::new(work.plane(), name))
}

/// The replicas of a workload of a Shoot that is to sleep. One that runs goes on until the end of the flow, and what an earlier
/// try has ended does not begin again.
fn kept(work: &Work, resource: &Resource, name: &str) -> Result<i64, Error> {
    Ok(replicas(work, resource, name)?.unwrap_or(0))
}

/// How many replicas an etcd is to have now.
pub(super) fn etcd_replicas(work: &Work, role: Role) -> Result<u32, Failed> {
    if !work.view.wants_hibernation {
        return Ok(1);
    }
    let resource = match work.settings.edge.etcd.mode {
        EtcdMode::Plain => &STATEFUL_SET,
        EtcdMode::Druid => &druid::ETCD,
    };
    Ok(u32::try_from(kept(work, resource, role.name())?).unwrap_or(0))
}

/// How many replicas kube-controller-manager is to have now.
pub(super) fn controller_replicas(work: &Work) -> Result<i64, Failed> {
    if !work.view.wants_hibernation {
        return Ok(pods::replicas(work));
    }
    Ok(kept(work, &DEPLOYMENT, kube_controller_manager::NAME)?)
}

/// Whether nothing can be asked of the API server, because it is off, and is to be.
pub(super) fn is_off(work: &Work) -> Result<bool, Failed> {
    Ok(work.view.wants_hibernation && replicas(work, &DEPLOYMENT, kube_apiserver::NAME)? == Some(0))
}

/// Ends the control plane. Its Services stay, and so does the address at which its owner finds it when it is awake again.
pub(super) fn control_plane(work: &mut Work, _: &Attempt) -> Result<Step, Failed> {
    let (mode, now) = (work.settings.edge.etcd.mode, work.place.clock.now());
    // What it has begun must not fail with the server, for nobody would try again before the Shoot is awake.
    if !work.served.let_go(work.plane(), now) {
        return Ok(Step::again(STORE_PERIOD, "the applier has not seen yet that the Shoot goes to sleep"));
    }
    let step = scale::control_plane_down(&work.seed, mode, work.plane(), now)?;
    if step != Step::Done {
        return Ok(step);
    }
    work.connector.forget(work.plane());
    Ok(Step::Done)
}

/// Extensions that work before the API server is there hibernate when it is gone.
pub(super) fn extensions(work: &mut Work, _: &Attempt) -> Result<Step, Failed> {
    extensions::deploy(work, Moment::Before)
}

pub(super) fn wait_extensions(work: &mut Work, attempt: &Attempt) -> Result<Step, Failed> {
    extensions::wait(work, Moment::Before, attempt)
}

/// Nobody shall look for a server that sleeps.
fn record(work: &Work, role: &str, attempt: &Attempt) -> Result<Step, Failed> {
    records::destroy(&work.seed, (work.plane(), &work.view.name, role), attempt, work.place.clock.now())
}

pub(super) fn internal_record(work: &mut Work, attempt: &Attempt) -> Result<Step, Failed> {
    record(work, "internal", attempt)
}

pub(super) fn external_record(work: &mut Work, attempt: &Attempt) -> Result<Step, Failed> {
    record(work, "external", attempt)
}

/// Whether a Shoot sleeps, as its status says, and is to.
pub fn is_asleep(shoot: &Value) -> bool {
    shoot["spec"]["hibernation"]["enabled"] == true && shoot["status"]["hibernated"] == true
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_shoot_sleeps_as_soon_as_it_is_said() {
        let shoot = |wants: bool, is: bool| json!({"spec": {"hibernation": {"enabled": wants}}, "status": {"hibernated": is}});
        let all = [(true, true, true), (true, false, false), (false, true, false), (false, false, false)];
        for (wants, is, expected) in all {
            assert_eq!(is_asleep(&shoot(wants, is)), expected, "{wants} {is}");
        }
        assert!(!is_asleep(&json!({})));
    }
}
