//! Hibernation of a Shoot, and the parts of its control plane that stay off meanwhile.
//!
//! Waking a Shoot up needs no special tasks: the objects of an awake Shoot are written with replicas.

use serde_json::Value;

use crate::base::clock::Timestamp;
use crate::extension::together;
use crate::flow::{Attempt, Failed, TaskStep};
use crate::kube::Seed;

use super::components::component::Turn;
use super::components::stopping;
use super::evidence::{LookResult, Looker, Seen, all, missing};
use super::times::STORE_PERIOD;
use super::work::Work;

/// Shuts the control plane down. Its Services stay, so that the address stays the same for the owner.
pub(super) fn control_plane(work: &mut Work, _: &Attempt) -> Result<TaskStep, Failed> {
    let now = work.now();
    // Writes of the applier must not fail because the server stops: they would not be retried before the Shoot is
    // awake.
    if !work.env.served.let_go(work.plane(), now) {
        return Ok(TaskStep::again(
            STORE_PERIOD,
            "the applier has not seen the hibernation of the Shoot yet",
        ));
    }
    let step = stop(&work.env.seed, work.plane(), now)?;
    if step != TaskStep::Done {
        return Ok(step);
    }
    work.env.connector.forget(work.plane());
    Ok(TaskStep::Done)
}

/// Stops the workloads of all components, turn by turn.
pub(crate) fn stop(seed: &Seed, namespace: &str, now: Timestamp) -> Result<TaskStep, Failed> {
    for turn in Turn::ALL {
        let steps = stopping(turn).map(|workload| {
            workload.stop(seed, namespace, now)?;
            workload.wait_stopped(seed, namespace)
        });
        let step = together(steps.collect())?;
        if step != TaskStep::Done {
            return Ok(step);
        }
    }
    Ok(TaskStep::Done)
}

/// The workloads that still run, in the order in which they stop.
pub(super) fn control_plane_seen(seen: &Looker<'_>) -> LookResult {
    let looks = Turn::ALL.into_iter().flat_map(stopping).map(|workload| {
        Ok(match workload.wait_stopped(seen.seed, seen.plane())? {
            TaskStep::Done => Seen::There,
            TaskStep::Again { why, .. } => missing(why.text),
        })
    });
    Ok(all(looks.collect::<Result<_, Failed>>()?))
}

/// Whether a Shoot is hibernated according to its status, and must stay so.
pub(crate) fn is_asleep(shoot: &Value) -> bool {
    shoot["spec"]["hibernation"]["enabled"] == true && shoot["status"]["hibernated"] == true
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::components::workload::Workload;
    use super::*;

    #[test]
    fn no_write_is_lost_because_a_server_stops_before_its_clients() {
        let names = |turn| stopping(turn).map(Workload::name).collect::<Vec<_>>();
        assert_eq!(
            names(Turn::Client),
            ["gardener-resource-manager", "kube-scheduler", "kube-controller-manager"]
        );
        assert_eq!(names(Turn::Server), ["kube-apiserver"]);
        assert_eq!(names(Turn::Store), ["etcd-main", "etcd-events"]);
    }

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
