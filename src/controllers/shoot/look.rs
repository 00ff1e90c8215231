//! Read-only view of an operation, for `explain`.

use std::sync::Arc;

use serde_json::Value;

use crate::api::gardener::{
    CONTROLLER_INSTALLATION, CONTROLLER_REGISTRATION, ControllerInstallation, ControllerRegistration,
};
use crate::api::meta::{ALL_NAMESPACES, text};
use crate::components::kube_apiserver;
use crate::extension::required;
use crate::flow::{Failed, Outline};
use crate::kube::{Error, Garden, ListParams};
use crate::shoot::{Sources, View};

use super::{begin, decide, deletion, flow, surroundings};

/// The registrations of the garden.
///
/// # Errors
/// A request fails.
pub fn registrations(garden: &Garden) -> Result<Vec<Arc<ControllerRegistration>>, Error> {
    let mut all = Vec::new();
    let mut add = |each| all.push(Arc::new(each));
    garden.list_all(&CONTROLLER_REGISTRATION, ALL_NAMESPACES, &ListParams::default(), &mut add)?;
    Ok(all)
}

/// Checks that every extension that the Shoot needs is installed on its Seed. Returns what is missing.
///
/// # Errors
/// A request fails; or an input that every operation of the Shoot needs.
pub fn required_extensions(garden: &Garden, seed: &Value, shoot: &Value) -> Result<Option<String>, Failed> {
    let around = surroundings::read(garden, shoot, seed.clone())?;
    let (project, secrets) = (around.project.as_str(), around.secrets.as_slice());
    let view = View::new(Sources { shoot, seed, project, garden: &around.garden, secrets });
    let registrations = registrations(garden)?;
    let mut installations: Vec<Arc<ControllerInstallation>> = Vec::new();
    let field_selector = format!("spec.seedRef.name={}", text(&seed["metadata"]["name"]));
    let params = ListParams { field_selector, ..ListParams::default() };
    let mut add = |each| installations.push(Arc::new(each));
    garden.list_all(&CONTROLLER_INSTALLATION, ALL_NAMESPACES, &params, &mut add)?;
    let (dns, backup) = (view.dns_types(), view.backup["provider"].as_str());
    let required = required::of_shoot(shoot, seed, (&dns, backup), &registrations);
    Ok(required::missing(&required, &registrations, &installations))
}

/// Checks that the settings of the API server, and the garden objects that they refer to, are valid.
///
/// # Errors
/// A request fails; or the problem.
pub fn settings(garden: &Garden, shoot: &Value) -> Result<(), Failed> {
    let kubernetes = &shoot["spec"]["kubernetes"];
    let texts = kube_apiserver::read(garden, text(&shoot["metadata"]["namespace"]), kubernetes)?;
    Ok(kube_apiserver::check(kubernetes, &texts)?)
}

/// The tasks of the Shoot's current or last operation. Its spec and status decide which tasks are skipped.
pub fn outline(shoot: &Value) -> Vec<Outline> {
    if shoot["status"]["lastOperation"]["type"] == "Delete" {
        let operation = decide::operation(shoot);
        return begin::deletion_flow(operation, deletion::Plan::whole(shoot)).outline();
    }
    let view = View::new(Sources { shoot, seed: &Value::Null, project: "", garden: "", secrets: &[] });
    let mut plan = begin::plan(shoot, &view);
    // The last task of a re-encryption updates the status, and a new Shoot has nothing encrypted at its start.
    if shoot["status"]["lastOperation"]["type"] == "Create" {
        (plan.rewrites_objects, plan.ends_rewrite) = (true, true);
    }
    flow::build(plan).outline()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn skipped(shoot: &Value) -> Vec<String> {
        outline(shoot).into_iter().filter(|task| task.is_skipped).map(|task| task.name).collect()
    }

    #[test]
    fn tasks_are_skipped_as_in_the_flow() {
        let made = |kind: &str| {
            json!({"status": {"lastOperation": {"type": kind}, "credentials": {"encryptionAtRest": {
            "provider": {"type": "aescbc"}}}}})
        };
        let all = outline(&made("Create"));
        assert!(all.iter().enumerate().all(|(index, task)| task.needs.iter().all(|need| *need < index)));
        assert_eq!(all[0].name, "Create botanist");
        let labels = |name: &String| name.contains("encryption");
        assert!(!skipped(&made("Create")).iter().any(labels));
        assert_eq!(skipped(&made("Reconcile")).iter().filter(|name| labels(name)).count(), 2);
        let mut asleep = made("Reconcile");
        asleep["spec"]["hibernation"]["enabled"] = json!(true);
        assert!(skipped(&asleep).contains(&"Waiting until Kubernetes API server rolled out".to_owned()));
    }
}
