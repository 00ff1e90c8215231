//! Read-only view of an operation, for `explain`.

use std::sync::Arc;

use serde_json::Value;

use crate::api::gardener::{
    CONTROLLER_INSTALLATION, CONTROLLER_REGISTRATION, ControllerInstallation, ControllerRegistration,
};
use crate::api::meta::{ALL_NAMESPACES, text};
use crate::extension::{hosts, required};
use crate::flow::Failed;
use crate::kube::{Error, Garden, ListParams};

use super::inputs;

/// The registrations of the garden.
pub(crate) fn registrations(garden: &Garden) -> Result<Vec<Arc<ControllerRegistration>>, Error> {
    let mut all = Vec::new();
    let mut add = |each| all.push(Arc::new(each));
    garden.list_all(&CONTROLLER_REGISTRATION, ALL_NAMESPACES, &ListParams::default(), &mut add)?;
    Ok(all)
}

/// Checks that every extension that the Shoot needs is installed on its Seed, or that the agent serves the type (`host_types`).
/// Returns what is missing.
/// Errors: a request fails; or an input that every operation of the Shoot needs.
pub(crate) fn required_extensions(
    garden: &Garden,
    seed: &Value,
    shoot: &Value,
    host_types: &[String],
) -> Result<Option<String>, Failed> {
    let view = inputs::read(garden, shoot, seed.clone())?.view(shoot);
    let registrations = registrations(garden)?;
    let mut installations: Vec<Arc<ControllerInstallation>> = Vec::new();
    let field_selector = format!("spec.seedRef.name={}", text(&seed["metadata"]["name"]));
    let params = ListParams { field_selector, ..ListParams::default() };
    let mut add = |each| installations.push(Arc::new(each));
    garden.list_all(&CONTROLLER_INSTALLATION, ALL_NAMESPACES, &params, &mut add)?;
    let (dns, backup) = (view.dns_types(), view.backup["provider"].as_str());
    let required = required::of_shoot(shoot, seed, &dns, backup, &registrations);
    let unclear = hosts::unclear(&view.provider, &registrations, &installations, host_types);
    if let Some(why) = unclear.filter(|_| view.has_workers) {
        return Ok(Some(why));
    }
    Ok(required::missing(&required, &registrations, &installations))
}
