//! Feature gates of the Go program (Gardener v1.150): its own (`pkg/gardenlet/features`), and those that the library of
//! Kubernetes API servers registers in the same place (k8s.io/apiserver v0.36). Charts see the values of all gates;
//! unknown gates are refused.

use serde_json::{Map, Value};

use super::shown::shown;
use super::{ConfigProblem, ConfigProblems};
use crate::base::sorted::SortedMap;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    Alpha,
    Beta,
    /// General availability, or deprecated: no gate switches all of them.
    Other,
}

struct Gate {
    name: &'static str,
    stage: Stage,
    default: bool,
    locked: bool,
}

const fn gate(name: &'static str, stage: Stage, default: bool) -> Gate {
    Gate { name, stage, default, locked: false }
}

const fn alpha(name: &'static str) -> Gate {
    gate(name, Stage::Alpha, false)
}

const fn beta(name: &'static str) -> Gate {
    gate(name, Stage::Beta, true)
}

const fn locked(name: &'static str, value: bool) -> Gate {
    Gate { locked: true, ..gate(name, Stage::Other, value) }
}

const GARDENLET: [Gate; 11] = [
    alpha("DefaultSeccompProfile"),
    beta("IstioTLSTermination"),
    locked("DoNotCopyBackupCredentials", true),
    beta("OpenTelemetryCollector"),
    alpha("VictoriaLogsBackend"),
    beta("CustomDNSServerInNodeLocalDNS"),
    alpha("VPNBondingModeRoundRobin"),
    alpha("PrometheusHealthChecks"),
    alpha("RemoveVali"),
    beta("DisableNginxIngressInSeed"),
    alpha("RemoveHTTPProxyLegacyPort"),
];

const LIBRARY: [Gate; 44] = [
    beta("APIResponseCompression"),
    beta("APIServerIdentity"),
    locked("APIServerTracing", true),
    alpha("APIServingWithRoutine"),
    locked("AggregatedDiscoveryRemoveBetaType", true),
    beta("AllowParsingUserUIDFromCertAuth"),
    alpha("AllowUnsafeMalformedObjectDeletion"),
    locked("AnonymousAuthConfigurableEndpoints", true),
    locked("AuthorizeWithSelectors", true),
    locked("BtreeWatchCache", true),
    alpha("CBORServingAndStorage"),
    beta("ComponentFlagz"),
    beta("ComponentStatusz"),
    gate("ConcurrentWatchObjectDecode", Stage::Beta, false),
    locked("ConsistentListFromCache", true),
    beta("ConstrainedImpersonation"),
    gate("CoordinatedLeaderElection", Stage::Beta, false),
    locked("DeclarativeValidation", true),
    beta("DeclarativeValidationBeta"),
    gate("DeclarativeValidationTakeover", Stage::Other, false),
    beta("DetectCacheInconsistency"),
    gate("KMSv1", Stage::Other, false),
    beta("ListFromCacheSnapshot"),
    alpha("ManifestBasedAdmissionControlConfig"),
    gate("MutatingAdmissionPolicy", Stage::Other, true),
    beta("OpenAPIEnums"),
    beta("RemoteRequestHeaderUID"),
    locked("ResilientWatchCacheInitialization", true),
    locked("RetryGenerateName", true),
    locked("SeparateCacheWatchRPC", false),
    alpha("ShardedListAndWatch"),
    beta("SizeBasedListCostEstimate"),
    alpha("StorageVersionAPI"),
    beta("StorageVersionHash"),
    locked("StreamingCollectionEncodingToJSON", true),
    locked("StreamingCollectionEncodingToProtobuf", true),
    locked("StructuredAuthenticationConfiguration", true),
    beta("StructuredAuthenticationConfigurationEgressSelector"),
    beta("StructuredAuthenticationConfigurationJWKSMetrics"),
    beta("TokenRequestServiceAccountUIDValidation"),
    beta("UnauthenticatedHTTP2DOSMitigation"),
    beta("UnknownVersionInteroperabilityProxy"),
    beta("WatchCacheInitializationPostStartHook"),
    beta("WatchList"),
];

const ALL_ALPHA: &str = "AllAlpha";
const ALL_BETA: &str = "AllBeta";

fn all() -> impl Iterator<Item = &'static Gate> {
    const STAGES: [Gate; 2] = [gate(ALL_ALPHA, Stage::Other, false), gate(ALL_BETA, Stage::Other, false)];
    GARDENLET.iter().chain(&LIBRARY).chain(&STAGES)
}

/// Every known gate with its value: the configured one; else the configured value of its stage's
/// gate; else the default.
pub(super) fn effective(written: &Map<String, Value>) -> SortedMap<String, bool> {
    let of = |name: &str| written.get(name).and_then(Value::as_bool);
    let of_stage = |stage| match stage {
        Stage::Alpha => of(ALL_ALPHA),
        Stage::Beta => of(ALL_BETA),
        Stage::Other => None,
    };
    let value = |gate: &Gate| of(gate.name).or_else(|| of_stage(gate.stage)).unwrap_or(gate.default);
    all().map(|gate| (gate.name.to_owned(), value(gate))).collect()
}

/// Checks `featureGates` and completes it: every gate of the Go program with its value. The library's gates appear only
/// if the configuration names them.
pub(super) fn complete(document: &mut Value, problems: &mut ConfigProblems) {
    let mut gates = document.get("featureGates").and_then(Value::as_object).cloned().unwrap_or_default();
    for (name, value) in &gates {
        if let Some(complaint) = complaint(name, value == &Value::Bool(true)) {
            problems.errors.push(ConfigProblem::new(&format!("featureGates.{}", shown(name)), complaint));
        }
    }
    let values = effective(&gates);
    let own = GARDENLET.iter().filter_map(|gate| values.get_key_value(gate.name));
    gates.extend(own.map(|(name, value)| (name.clone(), Value::Bool(*value))));
    if let Some(document) = document.as_object_mut() {
        document.insert("featureGates".to_owned(), Value::Object(gates));
    }
}

fn complaint(name: &str, value: bool) -> Option<String> {
    match all().find(|gate| gate.name == name) {
        Some(gate) if gate.locked && value != gate.default => Some(format!("is locked to {}", gate.default)),
        Some(_) => None,
        None => {
            let known = GARDENLET.map(|gate| gate.name).join(", ");
            Some(format!(
                "unknown feature gate; known: {known}, {ALL_ALPHA}, {ALL_BETA}, and those of k8s.io/apiserver v0.36"
            ))
        }
    }
}
