//! Read-only view of an operation, for `explain`.

use std::sync::Arc;

use serde_json::Value;

use crate::api::gardener::{
    CONTROLLER_INSTALLATION, CONTROLLER_REGISTRATION, ControllerInstallation, ControllerRegistration,
};
use crate::api::meta::text;
use crate::components::kube_apiserver;
use crate::extension::required;
use crate::flow::{Failed, Outline};
use crate::kube::{Error, Garden, ListParams};
use crate::shoot::{Sources, View};

use super::{begin, decide, deletion, flow, surroundings};

/// What the garden has registered.
///
/// # Errors
/// The client's.
pub fn registrations(garden: &Garden) -> Result<Vec<Arc<ControllerRegistration>>, Error> {
    let mut all = Vec::new();
    let params = ListParams::default();
    garden.list_all(&CONTROLLER_REGISTRATION, "", &params, &mut |each| all.push(Arc::new(each)))?;
    Ok(all)
}

/// Whether every extension that the Shoot needs is installed on its Seed: what is missing, in words.
///
/// # Errors
/// The client's; what an operation of the Shoot cannot begin without.
pub fn required_extensions(garden: &Garden, seed: &Value, shoot: &Value) -> Result<Option<String>, Failed> {
    let around = surroundings::read(garden, shoot, seed.clone())?;
    let (project, secrets) = (around.project.as_str(), around.secrets.as_slice());
    let view = View::new(Sources { shoot, seed, project, garden: &around.garden, secrets });
    let registrations = registrations(garden)?;
    let mut installations: Vec<Arc<ControllerInstallation>> = Vec::new();
    let field_selector = format!("spec.seedRef.name={}", text(&seed["metadata"]["name"]));
    let params = ListParams { field_selector, ..ListParams::default() };
    garden.list_all(&CONTROLLER_INSTALLATION, "", &params, &mut |each| installations.push(Arc::new(each)))?;
    let (dns, backup) = (view.dns_types(), view.backup["provider"].as_str());
    let required = required::of_shoot(shoot, seed, (&dns, backup), &registrations);
    Ok(required::missing(&required, &registrations, &installations))
}

/// Whether the settings of the API server, and what they name in the garden, can be used.
///
/// # Errors
/// The client's; what is wrong with them.
pub fn settings(garden: &Garden, shoot: &Value) -> Result<(), Failed> {
    let kubernetes = &shoot["spec"]["kubernetes"];
    let texts = kube_apiserver::read(garden, text(&shoot["metadata"]["namespace"]), kubernetes)?;
    Ok(kube_apiserver::check(kubernetes, &texts)?)
}

/// The tasks of the Shoot's present or last operation. Its spec and its status decide which tasks are skipped.
pub fn outline(shoot: &Value) -> Vec<Outline> {
    if shoot["status"]["lastOperation"]["type"] == "Delete" {
        let operation = decide::operation(shoot);
        return begin::deletion_flow(operation, deletion::Plan::whole(shoot)).outline();
    }
    let view = View::new(Sources { shoot, seed: &Value::Null, project: "", garden: "", secrets: &[] });
    let mut plan = begin::plan(shoot, &view);
    // The last task of an encryption notes what it has done, and a Shoot that is being made has nothing encrypted at its
    // beginning.
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
    fn tasks_are_left_out_as_in_the_flow() {
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
