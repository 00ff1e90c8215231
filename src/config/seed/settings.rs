//! Rules of `spec.settings` of a Seed.

use serde_json::Value;

use super::{ConfigProblems, SeedField, quoted, scalar, shown, unique_fields};
use crate::format::quantity::Quantity;

/// The feature gates of the autoscaler that Gardener v1.150 installs.
const AUTOSCALER_GATES: [&str; 3] = ["CPUStartupBoost", "InPlace", "PerVPAConfig"];
/// Native resources that are counted in whole numbers.
const COUNTED: [&str; 9] = [
    "pods",
    "resourcequotas",
    "services",
    "replicationcontrollers",
    "secrets",
    "configmaps",
    "persistentvolumeclaims",
    "services.nodeports",
    "services.loadbalancers",
];

/// Checks `spec.settings`.
pub(super) fn check(spec: &SeedField<'_>, problems: &mut ConfigProblems) {
    zones(spec, problems);
    capacity(&spec.at("settings.excessCapacityReservation.configs"), problems);
    autoscaler(&spec.at("settings.verticalPodAutoscaler"), problems);
}

fn zones(spec: &SeedField<'_>, problems: &mut ConfigProblems) {
    let zones: Vec<&str> = spec.r.items("provider.zones").filter_map(|zone| zone.value().as_str()).collect();
    let configured = spec.at("settings.loadBalancerServices.zones");
    if zones.len() <= 1 && !configured.items().is_empty() {
        problems.error(&configured.path, "needs at least two zones in provider.zones");
    }
    for zone in configured.items().iter().filter(|zone| !zones.contains(&zone.text("name"))) {
        let path = zone.place_of("name");
        problems.error(&path, format!("{} is not in provider.zones", quoted(zone.text("name"))));
    }
    unique_fields(&configured, "name", problems);
    let selection = spec.at("settings.zoneSelection");
    if !selection.is_absent() {
        selection.at("mode").require(problems);
        if zones.is_empty() {
            problems.error(&selection.path, "needs provider.zones");
        }
    }
    let routing = spec.at("settings.topologyAwareRouting.enabled");
    if routing.r.value() == &Value::Bool(true) && zones.len() <= 1 {
        problems.error(&routing.path, "needs at least two zones in provider.zones");
    }
}

fn capacity(configs: &SeedField<'_>, problems: &mut ConfigProblems) {
    for config in configs.items() {
        whole_numbers(&config.at("resources"), problems);
        for toleration in config.at("tolerations").items() {
            tolerate(&toleration, problems);
        }
    }
}

fn autoscaler(place: &SeedField<'_>, problems: &mut ConfigProblems) {
    for (gate, _) in place.at("featureGates").entries() {
        if !AUTOSCALER_GATES.contains(&gate) {
            let message = format!("unknown feature gate; known: {}", AUTOSCALER_GATES.join(", "));
            problems.error(&place.place_of(&format!("featureGates.{}", shown(gate))), message);
        }
    }
    let allowed = place.at("maxAllowed");
    for (name, _) in allowed.entries().filter(|(name, _)| !matches!(*name, "cpu" | "memory")) {
        problems.error(&allowed.place_of(&shown(name)), "unknown value; known: cpu, memory");
    }
}

/// Indivisible resources must have whole numbers.
fn whole_numbers(map: &SeedField<'_>, problems: &mut ConfigProblems) {
    for (name, value) in map.entries().filter(|(name, _)| is_counted(name)) {
        let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        if Quantity::parse(&text).is_ok_and(|amount| amount.milli() % 1_000 != 0) {
            let message = format!("must be a whole number: {}", shown(&text));
            problems.error(&map.place_of(&shown(name)), message);
        }
    }
}

/// Native resources by name; resources of device plugins always.
fn is_counted(name: &str) -> bool {
    let is_native = !name.contains('/') || name.contains("kubernetes.io/");
    let is_extended = || {
        !name.starts_with("requests.")
            && scalar::qualified_name_complaint(&format!("requests.{name}")).is_none()
    };
    COUNTED.contains(&name) || !is_native && is_extended()
}

/// A toleration, by the rules of the API server.
fn tolerate(place: &SeedField<'_>, problems: &mut ConfigProblems) {
    let [key, operator, value, effect] =
        ["key", "operator", "value", "effect"].map(|field| place.text(field));
    let mut wrong = |field: &str, message: String| problems.error(&place.place_of(field), message);
    if let Some(message) = Some(key).filter(|key| !key.is_empty()).and_then(scalar::qualified_name_complaint)
    {
        wrong("key", message);
    }
    match operator {
        "Exists" if !value.is_empty() => wrong("value", "must be empty with operator Exists".to_owned()),
        "Exists" => {}
        "" | "Equal" if key.is_empty() => wrong("operator", "must be Exists without a key".to_owned()),
        "" | "Equal" => {
            if let Some(message) = scalar::label_value_complaint(value) {
                wrong("value", message);
            }
        }
        other => wrong("operator", format!("unknown value {}; known: Equal, Exists", quoted(other))),
    }
    if !matches!(effect, "" | "NoSchedule" | "PreferNoSchedule" | "NoExecute") {
        let known = "NoSchedule, PreferNoSchedule, NoExecute";
        wrong("effect", format!("unknown value {}; known: {known}", quoted(effect)));
    } else if effect != "NoExecute" && !place.at("tolerationSeconds").is_absent() {
        wrong("effect", "must be NoExecute with tolerationSeconds".to_owned());
    }
}
