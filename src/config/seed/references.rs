//! Rules for references of a Seed: credentials, extensions, resources.

use super::{ConfigProblems, SeedField, dns_name, scalar, shown, unique_fields};

type Kind = (&'static str, &'static str);

const SECRET: Kind = ("v1", "Secret");
const CONFIG_MAP: Kind = ("v1", "ConfigMap");
const INTERNAL_SECRET: Kind = ("core.gardener.cloud/v1beta1", "InternalSecret");
const WORKLOAD_IDENTITY: Kind = ("security.gardener.cloud/v1alpha1", "WorkloadIdentity");

/// A reference to credentials by namespace and name.
pub(super) fn credentials(place: &SeedField<'_>, problems: &mut ConfigProblems) {
    let kinds = [SECRET, INTERNAL_SECRET, WORKLOAD_IDENTITY];
    if place.is_absent() {
        problems.error(&place.path, format!("must be given: {}", names(&kinds)));
        return;
    }
    for key in ["namespace", "name"] {
        place.at(key).require(problems);
        dns_name(&place.at(key), problems);
    }
    kind(place, &kinds, problems);
}

/// Extensions of the seed itself, each type once.
pub(super) fn extensions(list: &SeedField<'_>, problems: &mut ConfigProblems) {
    for place in list.items() {
        let of = place.at("type");
        of.require(problems);
        if let Some(message) =
            Some(place.text("type")).filter(|t| !t.is_empty()).and_then(scalar::dns_label_complaint)
        {
            problems.error(&of.path, message);
        }
    }
    unique_fields(list, "type", problems);
}

/// Objects of the garden to which the Seed refers, each name once.
pub(super) fn resources(list: &SeedField<'_>, problems: &mut ConfigProblems) {
    for place in list.items() {
        place.at("name").require(problems);
        place.at("resourceRef.name").require(problems);
        kind(&place.at("resourceRef"), &[SECRET, CONFIG_MAP, WORKLOAD_IDENTITY], problems);
    }
    unique_fields(list, "name", problems);
}

fn kind(place: &SeedField<'_>, known: &[Kind], problems: &mut ConfigProblems) {
    let fields = ["apiVersion", "kind"].map(|key| place.at(key));
    for field in &fields {
        field.require(problems);
    }
    let (version, kind) = (place.text("apiVersion"), place.text("kind"));
    if !known.contains(&(version, kind)) && fields.iter().all(|field| !field.is_empty()) {
        let message = format!("must be {}, not {} {}", names(known), shown(version), shown(kind));
        problems.error(&place.path, message);
    }
}

fn names(kinds: &[Kind]) -> String {
    let names: Vec<String> = kinds.iter().map(|(version, kind)| format!("{version} {kind}")).collect();
    names.join(" or ")
}
