//! Feature gates of the Go program (Gardener v1.150, `pkg/gardenlet/features`): charts see their values, and unknown
//! ones are refused.

use std::collections::BTreeMap;

use serde_json::Value;

use super::{Problem, Problems};

struct Gate {
    name: &'static str,
    default: bool,
    locked: bool,
}

const fn off(name: &'static str) -> Gate {
    Gate { name, default: false, locked: false }
}

const fn on(name: &'static str) -> Gate {
    Gate { name, default: true, locked: false }
}

const GATES: [Gate; 11] = [
    off("DefaultSeccompProfile"),
    on("IstioTLSTermination"),
    Gate { name: "DoNotCopyBackupCredentials", default: true, locked: true },
    on("OpenTelemetryCollector"),
    off("VictoriaLogsBackend"),
    on("CustomDNSServerInNodeLocalDNS"),
    off("VPNBondingModeRoundRobin"),
    off("PrometheusHealthChecks"),
    off("RemoveVali"),
    on("DisableNginxIngressInSeed"),
    off("RemoveHTTPProxyLegacyPort"),
];

/// Gates that the library of the Go program knows everywhere: they switch all gates of a stage.
const STAGES: [&str; 2] = ["AllAlpha", "AllBeta"];

/// Checks `featureGates` and completes it: every known gate, with its effective value.
pub(super) fn complete(document: &mut Value, problems: &mut Problems) {
    let written = document.get("featureGates").and_then(Value::as_object).cloned().unwrap_or_default();
    let mut gates: BTreeMap<&str, bool> = GATES.iter().map(|gate| (gate.name, gate.default)).collect();
    for (name, value) in &written {
        let path = format!("featureGates.{name}");
        let value = value.as_bool().unwrap_or_default();
        match GATES.iter().find(|gate| gate.name == name) {
            Some(gate) if gate.locked && value != gate.default => {
                problems.errors.push(Problem::new(&path, format!("is locked to {}", gate.default)));
            }
            Some(gate) => {
                gates.insert(gate.name, value);
            }
            None if STAGES.contains(&name.as_str()) => {
                problems.warnings.push(Problem::new(&path, "has no effect here: set the gates one by one"));
            }
            None => {
                let known: Vec<&str> = GATES.iter().map(|gate| gate.name).collect();
                problems
                    .errors
                    .push(Problem::new(&path, format!("unknown feature gate; known: {}", known.join(", "))));
            }
        }
    }
    if let Some(document) = document.as_object_mut() {
        document.insert("featureGates".to_owned(), gates.into_iter().collect());
    }
}
