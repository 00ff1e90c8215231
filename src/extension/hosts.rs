//! Types of infrastructure whose nodes are hosts of the site. No extension serves them, but the agent itself. Pure.
//!
//! Two must agree about it: a registration in the garden that has no deployment, and `edge.hosts.types` of the agent. With one
//! of them alone, nobody would serve the type, or two would.

use std::sync::Arc;

use serde_json::Value;

use crate::api::gardener::{ControllerInstallation, ControllerRegistration, INSTALLATION_FINALIZER};
use crate::api::meta::text;

/// The option with the types that the agent serves.
const OPTION: &str = "edge.hosts.types";
/// The beginning of the finalizers of extensions.
const EXTENSION_FINALIZERS: &str = "extensions.gardener.cloud/";
/// The kinds whose type names the provider of the nodes.
const KINDS: [&str; 2] = ["Infrastructure", "Worker"];

/// Whether the nodes of a type of infrastructure are hosts of the site. `host_types` are those of the option. As in the garden,
/// upper and lower case are the same.
pub(crate) fn is_host_type(type_name: &str, host_types: &[String]) -> bool {
    host_types.iter().any(|known| known.eq_ignore_ascii_case(type_name))
}

/// Who serves the types of an installation.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum HostService {
    /// Its deployment, or another program.
    Others,
    /// The agent of the seed itself.
    Agent,
    /// Nobody, or two. The text says why, and what to change.
    Unclear(String),
}

/// Who serves the types of an installation. `host_types` are those of the option.
pub(crate) fn service(
    installation: &ControllerInstallation,
    registration: Option<&ControllerRegistration>,
    host_types: &[String],
) -> HostService {
    let has_deployment = installation.spec.deployment_ref.is_some();
    let name = &installation.spec.registration_ref.name;
    let is_named = |type_name: &str| is_host_type(type_name, host_types);
    let types = || {
        let resources = registration.into_iter().flat_map(|registration| &registration.spec.resources);
        resources
            .filter(|resource| KINDS.contains(&resource.kind.as_str()))
            .map(|resource| &resource.type_name)
    };
    if types().next().is_none() {
        return HostService::Others;
    }
    let is_left = installation.metadata.finalizers.iter().any(|known| known == INSTALLATION_FINALIZER);
    if !has_deployment && is_left {
        return HostService::Unclear(format!(
            "ControllerRegistration {name} has no deployment any more, but what it had deployed is still in the seed: delete \
             ControllerInstallation {}, and the garden makes a new one",
            installation.metadata.name
        ));
    }
    match types().find(|type_name| is_named(type_name) == has_deployment) {
        None if has_deployment => HostService::Others,
        None => HostService::Agent,
        Some(type_name) if has_deployment => HostService::Unclear(format!(
            "{OPTION} names {type_name}, but ControllerRegistration {name} has a deployment that serves this type: remove the type \
             from {OPTION}, or the deployment from the registration"
        )),
        Some(type_name) => HostService::Unclear(format!(
            "ControllerRegistration {name} has no deployment, so nobody serves type {type_name}: add the type to {OPTION}, or a \
             deployment to the registration"
        )),
    }
}

/// Why it is unclear who serves a type of infrastructure.
pub(crate) fn unclear(
    type_name: &str,
    registrations: &[Arc<ControllerRegistration>],
    installations: &[Arc<ControllerInstallation>],
    host_types: &[String],
) -> Option<String> {
    let serves = |registration: &&Arc<ControllerRegistration>| {
        let mut resources = registration.spec.resources.iter();
        resources.any(|resource| {
            KINDS.contains(&resource.kind.as_str()) && resource.type_name.eq_ignore_ascii_case(type_name)
        })
    };
    registrations.iter().filter(serves).find_map(|registration| {
        let mut own = installations
            .iter()
            .filter(|installation| installation.spec.registration_ref.name == registration.metadata.name);
        own.find_map(|installation| match service(installation, Some(registration), host_types) {
            HostService::Unclear(why) => Some(why),
            _ => None,
        })
    })
}

/// Why the nodes of a Shoot cannot be hosts of the site, from its Infrastructure: an extension has made it, and still holds it.
pub(crate) fn held_by_extension(infrastructure: &Value) -> Option<String> {
    let finalizers = infrastructure["metadata"]["finalizers"].as_array().into_iter().flatten();
    let holder = finalizers.map(text).find(|finalizer| finalizer.starts_with(EXTENSION_FINALIZERS))?;
    let type_name = text(&infrastructure["spec"]["type"]);
    Some(format!(
        "{OPTION} names {type_name}, but an extension has made the nodes of this Shoot (its Infrastructure has finalizer {holder}): \
         remove the type from {OPTION} and give the registration its deployment again, or delete the Shoots of this type first"
    ))
}

#[cfg(test)]
mod tests {
    use crate::base::json::json;

    use super::*;

    fn registration(resources: &Value) -> ControllerRegistration {
        let object = json!({"metadata": {"name": "r"}, "spec": {"resources": resources}});
        serde_json::from_value(object).unwrap()
    }

    fn installation(deployment: &Value) -> ControllerInstallation {
        let object = json!({"metadata": {"name": "i"},
            "spec": {"registrationRef": {"name": "r"}, "deploymentRef": deployment}});
        serde_json::from_value(object).unwrap()
    }

    #[test]
    fn an_extension_holds_what_it_has_made() {
        let of = |finalizers: &Value| {
            held_by_extension(&json!({"metadata": {"finalizers": finalizers}, "spec": {"type": "local"}}))
        };
        assert_eq!(of(&Value::Null), None);
        assert_eq!(of(&json!(["example.org/other"])), None);
        let why = of(&json!(["extensions.gardener.cloud/provider-local"])).unwrap();
        assert!(
            why.contains("names local") && why.contains("finalizer extensions.gardener.cloud/provider-local"),
            "{why}"
        );
        assert_eq!(held_by_extension(&Value::Null), None, "a Shoot that is new");
    }

    #[test]
    fn registration_and_option_must_agree() {
        let hosts =
            json!([{"kind": "Infrastructure", "type": "hosts"}, {"kind": "Network", "type": "flannel"}]);
        let other = json!([{"kind": "Extension", "type": "hosts"}]);
        let (none, some) = (Value::Null, json!({"name": "d"}));
        let table = [
            (&hosts, &none, "hosts", "Agent"),
            (&hosts, &some, "others", "Others"),
            (
                &hosts,
                &some,
                "hosts",
                "has a deployment that serves this type: remove the type from edge.hosts.types",
            ),
            (&hosts, &none, "others", "nobody serves type hosts: add the type to edge.hosts.types"),
            // It says nothing about nodes.
            (&other, &none, "hosts", "Others"),
            (&other, &some, "hosts", "Others"),
        ];
        for (resources, deployment, host_type, expected) in table {
            let (registration, installation) = (registration(resources), installation(deployment));
            let host_types = [host_type.to_owned()];
            let found = service(&installation, Some(&registration), &host_types);
            let text = match &found {
                HostService::Unclear(why) => why.clone(),
                other => format!("{other:?}"),
            };
            assert!(text.contains(expected), "{resources} {deployment} {host_type}: {text}");
            let unclear = unclear("Hosts", &[Arc::new(registration)], &[Arc::new(installation)], &host_types);
            assert_eq!(unclear.is_some(), matches!(found, HostService::Unclear(_)));
        }
        assert_eq!(service(&installation(&none), None, &[]), HostService::Others, "an unknown registration");
        let mut left = installation(&none);
        left.metadata.finalizers.push(INSTALLATION_FINALIZER.to_owned());
        let found = service(&left, Some(&registration(&hosts)), &["hosts".to_owned()]);
        let HostService::Unclear(why) = found else { panic!("{found:?}") };
        assert!(why.contains("still in the seed: delete ControllerInstallation i"), "{why}");
        assert!(is_host_type("Hosts", &["hosts".to_owned()]) && !is_host_type("host", &["hosts".to_owned()]));
    }
}
