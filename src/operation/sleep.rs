//! Hibernation of a Shoot, and the parts of its control plane that stay off meanwhile.
//!
//! Waking a Shoot up needs no special tasks: the objects of an awake Shoot are written with replicas.

use serde_json::Value;

use crate::components::scale;
use crate::flow::{Attempt, Failed, TaskStep};

use super::times::STORE_PERIOD;
use super::work::Work;

/// Shuts the control plane down. Its Services stay, so that the address stays the same for the owner.
pub(super) fn control_plane(work: &mut Work, _: &Attempt) -> Result<TaskStep, Failed> {
    let (mode, now) = (work.env.settings.edge.etcd.mode, work.now());
    // Writes of the applier must not fail because the server stops: they would not be retried before the Shoot is
    // awake.
    if !work.env.served.let_go(work.plane(), now) {
        return Ok(TaskStep::again(
            STORE_PERIOD,
            "the applier has not seen the hibernation of the Shoot yet",
        ));
    }
    let step = scale::control_plane_down(&work.env.seed, mode, work.plane(), now)?;
    if step != TaskStep::Done {
        return Ok(step);
    }
    work.env.connector.forget(work.plane());
    Ok(TaskStep::Done)
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
