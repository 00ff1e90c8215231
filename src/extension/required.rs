//! The extensions that a seed or a Shoot needs before it is reconciled, and which of them are missing. Pure.
//!
//! Source: `pkg/utils/gardener` (`ComputeRequiredExtensionsForSeed`, `ComputeRequiredExtensionsForShoot`,
//! `RequiredExtensionsReady`).

use std::sync::Arc;

use serde_json::Value;

use crate::api::condition::{self, ConditionStatus, urgency};
use crate::api::gardener::{ControllerInstallation, ControllerRegistration, ControllerResource, has_workers};
use crate::api::meta::text;
use crate::base::sorted::SortedSet;

use super::enabled::{ExtensionClass, types};
use super::problem;
use crate::flow::Failed;

/// A kind of extension objects and the type of an object, such as `Infrastructure` and `local`.
pub(crate) type RequiredExtensions = SortedSet<(&'static str, String)>;

/// Kinds that the provider of a seed must have.
const OF_PROVIDER: [&str; 3] = ["ControlPlane", "Infrastructure", "Worker"];

/// The extensions that the spec of a Seed requires.
pub(crate) fn of_seed(seed: &Value, registrations: &[Arc<ControllerRegistration>]) -> RequiredExtensions {
    let provider = text(&seed["spec"]["provider"]["type"]);
    let mut all: RequiredExtensions = OF_PROVIDER.map(|kind| (kind, provider.to_owned())).into();
    if let Some(dns) = seed["spec"]["dns"]["provider"]["type"].as_str() {
        all.insert(("DNSRecord", dns.to_owned()));
    }
    all.extend(
        types(&seed["spec"]["extensions"], registrations, ExtensionClass::Seed)
            .into_iter()
            .map(|name| ("Extension", name)),
    );
    all
}

/// The extensions that a Shoot requires. `dns` contains the types of its DNS providers, except for
/// unmanaged records. `backup` is the type of the seed's backup provider.
pub(crate) fn of_shoot(
    shoot: &Value,
    seed: &Value,
    dns: &[&str],
    backup: Option<&str>,
    registrations: &[Arc<ControllerRegistration>],
) -> RequiredExtensions {
    let mut all =
        RequiredExtensions::from([("ControlPlane", text(&seed["spec"]["provider"]["type"]).to_owned())]);
    all.extend(dns.iter().map(|&name| ("DNSRecord", name.to_owned())));
    if let Some(backup) = backup {
        all.extend(["BackupBucket", "BackupEntry"].map(|kind| (kind, backup.to_owned())));
    }
    let named = &shoot["spec"]["extensions"];
    let types = types(named, registrations, ExtensionClass::of(shoot));
    all.extend(types.into_iter().map(|name| ("Extension", name)));
    if has_workers(shoot) {
        all.extend(of_workers(&shoot["spec"]));
    }
    all
}

/// The extensions that make the nodes of a Shoot.
fn of_workers(spec: &Value) -> impl Iterator<Item = (&'static str, String)> {
    let provider = text(&spec["provider"]["type"]).to_owned();
    let mut all: Vec<(&'static str, String)> =
        OF_PROVIDER.into_iter().map(|kind| (kind, provider.clone())).collect();
    all.push(("Network", text(&spec["networking"]["type"]).to_owned()));
    for worker in spec["provider"]["workers"].as_array().into_iter().flatten() {
        all.push(("OperatingSystemConfig", text(&worker["machine"]["image"]["name"]).to_owned()));
        for runtime in worker["cri"]["containerRuntimes"].as_array().into_iter().flatten() {
            all.push(("ContainerRuntime", text(&runtime["type"]).to_owned()));
        }
    }
    all.into_iter().filter(|(_, name)| !name.is_empty())
}

/// The required extensions that no registration supports, as `kind/type`.
pub(crate) fn unregistered(
    required: &RequiredExtensions,
    registrations: &[Arc<ControllerRegistration>],
) -> Vec<String> {
    let is_missing = |(kind, name): &&(&'static str, String)| {
        let mut all = registrations.iter().flat_map(|registration| &registration.spec.resources);
        !all.any(|resource| supports(resource, kind, name))
    };
    required.iter().filter(is_missing).map(|(kind, name)| format!("{kind}/{name}")).collect()
}

fn supports(resource: &ControllerResource, kind: &str, name: &str) -> bool {
    resource.kind == *kind && resource.type_name.eq_ignore_ascii_case(name)
}

/// A text with what is missing; `None` if every extension is installed and healthy.
pub(crate) fn missing(
    required: &RequiredExtensions,
    registrations: &[Arc<ControllerRegistration>],
    installations: &[Arc<ControllerInstallation>],
) -> Option<String> {
    let mut complaints: Vec<String> = Vec::new();
    let mut unsupported: Vec<String> = Vec::new();
    for (kind, name) in required {
        let mut installed = registrations
            .iter()
            .filter(|registration| registration.spec.resources.iter().any(|it| supports(it, kind, name)))
            .flat_map(|registration| installations_of(installations, &registration.metadata.name));
        let complaint = match installed.next() {
            None => {
                unsupported.push(format!("{kind}/{name}"));
                continue;
            }
            Some(first) => std::iter::once(first)
                .chain(installed)
                .map(unready)
                // One healthy installation is enough.
                .reduce(|one, other| one.and_then(|why| other.map(|_| why))),
        };
        if let Some(Some(why)) = complaint
            && !complaints.contains(&why)
        {
            complaints.push(why);
        }
    }
    if !unsupported.is_empty() {
        let all = unsupported.join(", ");
        complaints.insert(0, format!(
                "no ControllerInstallation of this seed supports {all}: register an extension for it in the garden"
            ));
    }
    (!complaints.is_empty())
        .then(|| format!("extension controllers missing or unready: {}", complaints.join("; ")))
}

/// No extension has started to work on an object of this kind and type, with the likely reason.
pub(crate) fn unheard(
    kind: &'static str,
    type_name: &str,
    registrations: &[Arc<ControllerRegistration>],
    installations: &[Arc<ControllerInstallation>],
) -> Failed {
    let why = "extension did not record a last operation yet";
    match missing(&RequiredExtensions::from([(kind, type_name.to_owned())]), registrations, installations) {
        None => Failed::new(format!("{why}; it is installed and healthy, so check its log")),
        Some(missing) => problem(format!("{why}; {missing}")),
    }
}

fn installations_of<'a>(
    installations: &'a [Arc<ControllerInstallation>],
    registration: &'a str,
) -> impl Iterator<Item = &'a ControllerInstallation> {
    installations.iter().map(|i| &**i).filter(move |i| i.spec.registration_ref.name == registration)
}

/// Why an installation is not ready, by the most urgent of its conditions.
fn unready(installation: &ControllerInstallation) -> Option<String> {
    let wanted = [
        ("Installed", ConditionStatus::True),
        ("Healthy", ConditionStatus::True),
        ("Progressing", ConditionStatus::False),
    ];
    let name = &installation.metadata.name;
    let find = |kind: &str| condition::find(&installation.status.conditions, kind);
    let bad = wanted.into_iter().filter(|(kind, status)| find(kind).is_none_or(|it| it.status != *status));
    let order = |kind: &str| urgency(kind, find(kind).map_or("Unknown", |it| it.status.as_str()));
    let (worst, _) = bad.min_by_key(|(kind, _)| order(kind))?;
    // A chart that cannot be rendered is the reason for all others.
    let invalid = find("Valid").filter(|valid| valid.status == ConditionStatus::False);
    Some(match invalid.or_else(|| find(worst)) {
        None => format!("ControllerInstallation {name} has no condition {worst} yet"),
        Some(it) => {
            format!("ControllerInstallation {name}: condition {} is {}: {}", it.kind, it.status, it.message)
        }
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn registration(name: &str, resources: &Value) -> Arc<ControllerRegistration> {
        let object = json!({"metadata": {"name": name}, "spec": {"resources": resources}});
        Arc::new(serde_json::from_value(object).unwrap())
    }

    fn installation(name: &str, registration: &str, statuses: [&str; 3]) -> Arc<ControllerInstallation> {
        let conditions: Vec<Value> = ["Installed", "Healthy", "Progressing"]
            .into_iter()
            .zip(statuses)
            .filter(|(_, status)| !status.is_empty())
            .map(|(kind, status)| json!({"type": kind, "status": status, "message": format!("about {kind}")}))
            .collect();
        let object = json!({"metadata": {"name": name}, "spec": {"registrationRef": {"name": registration}},
            "status": {"conditions": conditions}});
        Arc::new(serde_json::from_value(object).unwrap())
    }

    #[test]
    fn extensions_that_a_seed_requires() {
        let registrations = [
            registration(
                "a",
                &json!([{"kind": "Extension", "type": "auto", "autoEnable": ["shoot", "seed"]}]),
            ),
            registration(
                "b",
                &json!([{"kind": "Extension", "type": "off", "autoEnable": ["seed"]},
                {"kind": "Extension", "type": "shoots", "autoEnable": ["shoot"]},
                {"kind": "Network", "type": "net", "autoEnable": ["seed"]}]),
            ),
        ];
        let seed = json!({"spec": {"provider": {"type": "lab"}, "dns": {"provider": {"type": "dyn"}},
            "extensions": [{"type": "named"}, {"type": "off", "disabled": true}]}});
        let found: Vec<String> =
            of_seed(&seed, &registrations).into_iter().map(|(kind, name)| format!("{kind}/{name}")).collect();
        let expected = [
            "ControlPlane/lab",
            "DNSRecord/dyn",
            "Extension/auto",
            "Extension/named",
            "Infrastructure/lab",
            "Worker/lab",
        ];
        assert_eq!(found, expected);
        let plain = json!({"spec": {"provider": {"type": "lab"}}});
        assert_eq!(of_seed(&plain, &[]).len(), 3);
    }

    #[test]
    fn extensions_that_make_nodes_are_required() {
        let shoot = json!({"spec": {"provider": {"type": "hosts", "workers": [
            {"machine": {"image": {"name": "host"}}},
            {"machine": {"image": {"name": "other"}}, "cri": {"containerRuntimes": [{"type": "gvisor"}]}},
        ]}, "networking": {"type": "flannel"}}});
        let seed = json!({"spec": {"provider": {"type": "lab"}}});
        let of = |shoot: &Value| {
            let all = of_shoot(shoot, &seed, &[], None, &[]).into_iter();
            all.map(|(kind, name)| format!("{kind}/{name}")).collect::<Vec<_>>()
        };
        let expected = [
            "ContainerRuntime/gvisor",
            "ControlPlane/hosts",
            "ControlPlane/lab",
            "Infrastructure/hosts",
            "Network/flannel",
            "OperatingSystemConfig/host",
            "OperatingSystemConfig/other",
            "Worker/hosts",
        ];
        assert_eq!(of(&shoot), expected);
        assert_eq!(of(&json!({"spec": {"provider": {"type": "hosts"}}})), ["ControlPlane/lab"]);
    }

    const NOBODY: &str = "no ControllerInstallation of this seed supports ControlPlane/Lab, Worker/Lab: register an \
        extension for it in the garden";

    #[test]
    fn the_cause_comes_before_what_nobody_knows() {
        let of = |statuses: &[(&str, &str)]| {
            let conditions: Vec<Value> = statuses
                .iter()
                .map(|(kind, status)| json!({"type": kind, "status": status, "message": "m"}))
                .collect();
            let object = json!({"metadata": {"name": "x"}, "spec": {"registrationRef": {"name": "x"}},
                "status": {"conditions": conditions}});
            unready(&serde_json::from_value(object).unwrap()).unwrap_or_default()
        };
        let well = [("Installed", "True"), ("Healthy", "True"), ("Progressing", "False")];
        let table = [
            (vec![("Installed", "Unknown"), ("Valid", "False")], "condition Valid is False"),
            (vec![("Installed", "Unknown"), ("Healthy", "False")], "condition Healthy is False"),
            (vec![("Valid", "Unknown"), ("Installed", "Unknown")], "condition Installed is Unknown"),
            (vec![("Healthy", "False")], "condition Healthy is False"),
            (vec![("Healthy", "True")], "has no condition Installed yet"),
            // It was installed before the chart broke: the extension works.
            ([&[("Valid", "False")], &well[..]].concat(), ""),
        ];
        for (statuses, expected) in table {
            let found = of(&statuses);
            assert!(
                found.contains(expected) && found.is_empty() == expected.is_empty(),
                "{statuses:?}: {found}"
            );
        }
    }

    #[test]
    fn missing_extensions_are_named() {
        let required =
            RequiredExtensions::from([("ControlPlane", "Lab".to_owned()), ("Worker", "Lab".to_owned())]);
        let both = json!([{"kind": "ControlPlane", "type": "lab"}, {"kind": "Worker", "type": "lab"}]);
        let registrations = [registration("lab", &both)];
        let good = ["True", "True", "False"];
        let table = [
            (vec![installation("lab-1", "lab", good)], None),
            (vec![], Some(NOBODY)),
            (vec![installation("other-1", "other", good)], Some(NOBODY)),
            (
                vec![installation("lab-1", "lab", ["True", "False", "False"])],
                Some("ControllerInstallation lab-1: condition Healthy is False: about Healthy"),
            ),
            (
                vec![installation("lab-1", "lab", ["True", "True", "True"])],
                Some("ControllerInstallation lab-1: condition Progressing is True: about Progressing"),
            ),
            (
                vec![installation("lab-1", "lab", ["", "", ""])],
                Some("ControllerInstallation lab-1 has no condition Installed yet"),
            ),
            (
                vec![
                    installation("lab-1", "lab", ["False", "True", "False"]),
                    installation("lab-2", "lab", good),
                ],
                None,
            ),
        ];
        for (installations, expected) in table {
            let expected = expected.map(|text| format!("extension controllers missing or unready: {text}"));
            assert_eq!(missing(&required, &registrations, &installations), expected);
        }
    }
}
