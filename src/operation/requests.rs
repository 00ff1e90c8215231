//! Tasks that the garden requests with an annotation of the Shoot.

use serde_json::Value;

use crate::api::meta::annotation;

/// The annotation: tasks, comma-separated.
pub(crate) const TASKS: &str = "shoot.gardener.cloud/tasks";

/// The request for new pods of the control plane.
pub(super) const RESTART_PODS: &str = "restartControlPlanePods";
/// The request for the record of the internal domain.
pub(super) const INTERNAL_RECORD: &str = "deployDNSRecordInternal";
/// The request for the record of the owner's domain.
pub(super) const EXTERNAL_RECORD: &str = "deployDNSRecordExternal";

/// The request to reconcile the infrastructure of nodes.
pub(super) const INFRASTRUCTURE: &str = "deployInfrastructure";

/// The request for new pods of CoreDNS.
pub(super) const RESTART_ADDONS: &str = "restartCoreAddons";

/// Each request with the name of the task that fulfils it.
const FULFILLED: [(&str, &str); 5] = [
    (INTERNAL_RECORD, "Deploying internal domain DNS record"),
    (EXTERNAL_RECORD, "Deploying external domain DNS record"),
    (RESTART_PODS, "Restarting control plane pods"),
    (INFRASTRUCTURE, "Waiting until Shoot infrastructure has been reconciled"),
    (RESTART_ADDONS, "Deploying CoreDNS system component"),
];

/// The tasks that the garden requests.
pub(crate) fn asked(shoot: &Value) -> impl Iterator<Item = &str> {
    annotation(shoot, TASKS).split(',').map(str::trim).filter(|task| !task.is_empty())
}

/// Whether the garden requests a task.
pub(super) fn asks(shoot: &Value, task: &str) -> bool {
    asked(shoot).any(|asked| asked == task)
}

/// The requests at the start of a flow (in `shoot`) that the flow has fulfilled.
pub(crate) fn fulfilled(shoot: &Value, is_done: impl Fn(&str) -> bool) -> Vec<&'static str> {
    let is_fulfilled = |(asked, task): &(&str, &str)| asks(shoot, asked) && is_done(task);
    FULFILLED.into_iter().filter(is_fulfilled).map(|(asked, _)| asked).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::facts::Facts;
    use super::super::kinds::Operation;
    use super::*;

    #[test]
    fn requested_tasks_are_removed_once_done() {
        let names = FULFILLED.map(|(_, task)| task);
        let all = "restartControlPlanePods,deployDNSRecordInternal, deployDNSRecordExternal,deployInfrastructure,restartCoreAddons";
        let table = [
            (
                all,
                &names[..],
                &[
                    "deployDNSRecordInternal",
                    "deployDNSRecordExternal",
                    "restartControlPlanePods",
                    "deployInfrastructure",
                    "restartCoreAddons",
                ][..],
            ),
            // The others were requested after the flow had started.
            ("restartControlPlanePods", &names, &["restartControlPlanePods"]),
            // It is hibernated.
            (all, &names[2..3], &["restartControlPlanePods"]),
            (all, &[], &[]),
            ("", &names, &[]),
        ];
        let internal = json!({"metadata": {"annotations": {TASKS: INTERNAL_RECORD}}});
        assert!(asks(&internal, INTERNAL_RECORD) && !asks(&internal, "deployDNSRecord"));
        for (asked, done, expected) in table {
            let shoot = json!({"metadata": {"annotations": {TASKS: asked}}});
            assert_eq!(fulfilled(&shoot, |name| done.contains(&name)), expected, "{asked} {done:?}");
        }
        let asleep = Facts { is_hibernated: true, restarts_pods: true, ..Facts::default() };
        let tasks = super::super::table(Operation::Reconcile).outline(&asleep);
        let skipped = names.map(|name| tasks.iter().find(|task| task.name == name).unwrap().is_skipped);
        assert_eq!(skipped, [true, true, false, true, true]);
    }
}
