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

use super::{Facts, Found, Operation, inputs};

/// The registrations of the garden.
///
/// # Errors
/// A request fails.
pub fn registrations(garden: &Garden) -> Result<Vec<Arc<ControllerRegistration>>, Error> {
    let mut all = Vec::new();
    let params = ListParams::default();
    garden
        .list_all(&CONTROLLER_REGISTRATION, ALL_NAMESPACES, &params, &mut |each| all.push(Arc::new(each)))?;
    Ok(all)
}

/// Checks that every extension that the Shoot needs is installed on its Seed. Returns what is missing.
///
/// # Errors
/// A request fails; or an input that every operation of the Shoot needs.
pub fn required_extensions(garden: &Garden, seed: &Value, shoot: &Value) -> Result<Option<String>, Failed> {
    let view = inputs::read(garden, shoot, seed.clone())?.view(shoot);
    let registrations = registrations(garden)?;
    let mut installations: Vec<Arc<ControllerInstallation>> = Vec::new();
    let field_selector = format!("spec.seedRef.name={}", text(&seed["metadata"]["name"]));
    let params = ListParams { field_selector, ..ListParams::default() };
    garden.list_all(&CONTROLLER_INSTALLATION, ALL_NAMESPACES, &params, &mut |each| {
        installations.push(Arc::new(each))
    })?;
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

/// The tasks of the Shoot's current or last operation, as far as its spec and status tell which are skipped; none if this
/// version does not support the operation.
pub fn outline(operation: Operation, shoot: &Value) -> Vec<Outline> {
    let view = View::new(Sources { shoot, seed: &Value::Null, project: "", garden: "", secrets: &[] });
    let mut facts = Facts::new(operation, shoot, &view, Found::ALL);
    // The last task of a re-encryption updates the status, and a new Shoot has nothing encrypted at its start.
    facts.changes_encryption |= operation == Operation::Create;
    operation.table().map_or_else(Vec::new, |table| table.outline(&facts))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn skipped(operation: Operation, shoot: &Value) -> Vec<&'static str> {
        outline(operation, shoot).into_iter().filter(|task| task.is_skipped).map(|task| task.name).collect()
    }

    #[test]
    fn tasks_are_skipped_as_in_the_flow() {
        let shoot =
            json!({"status": {"credentials": {"encryptionAtRest": {"provider": {"type": "aescbc"}}}}});
        let all = outline(Operation::Create, &shoot);
        assert!(all.iter().enumerate().all(|(index, task)| task.needs.iter().all(|need| *need < index)));
        assert_eq!(all[0].name, "Create botanist");
        let labels = |name: &&&str| name.contains("encryption");
        assert!(!skipped(Operation::Create, &shoot).iter().any(|name| labels(&name)));
        assert_eq!(skipped(Operation::Reconcile, &shoot).iter().filter(labels).count(), 2);
        let mut asleep = shoot;
        asleep["spec"]["hibernation"]["enabled"] = json!(true);
        assert!(
            skipped(Operation::Reconcile, &asleep)
                .contains(&"Waiting until Kubernetes API server rolled out")
        );
    }
}
