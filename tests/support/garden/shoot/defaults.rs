//! The defaults of a Shoot.

use serde_json::{Value, json};

use super::is_workerless;
use crate::json::{default, elements, list, set, text};
use crate::options;
use crate::random::Random;

/// Sets the defaults that depend on nothing else. The window for maintenance is any full hour.
pub fn complete(shoot: &mut Value) {
    default(shoot, "/spec/purpose", "evaluation");
    default(shoot, "/spec/schedulerName", "default-scheduler");
    default(shoot, "/spec/networking/ipFamilies", json!(["IPv4"]));
    let server = "/spec/kubernetes/kubeAPIServer";
    default(shoot, &format!("{server}/requests/maxNonMutatingInflight"), 400);
    default(shoot, &format!("{server}/requests/maxMutatingInflight"), 200);
    default(shoot, &format!("{server}/eventTTL"), "1h0m0s");
    default(shoot, &format!("{server}/logging/verbosity"), 2);
    default(shoot, &format!("{server}/encryptionConfig/provider/type"), "aescbc");
    let rotation = "/spec/maintenance/autoRotation/credentials/etcdEncryptionKey/rotationPeriod";
    default(shoot, rotation, "672h0m0s");
    default(shoot, "/spec/maintenance/autoUpdate/kubernetesVersion", true);
    if !is_workerless(shoot) {
        of_nodes(shoot);
    }
    if shoot["spec"]["maintenance"]["timeWindow"].is_null() {
        let hour = Random::named(options::seed(), text(shoot, "/metadata/name")).below(24);
        let window = json!({"begin": format!("{hour:02}0000+0000"), "end": format!("{:02}0000+0000", (hour + 1) % 24)});
        set(shoot, "/spec/maintenance/timeWindow", window);
    }
    for field in ["id", "name", "version"] {
        default(shoot, &format!("/status/gardener/{field}"), "");
    }
    default(shoot, "/status/hibernated", false);
    default(shoot, "/status/technicalID", "");
    default(shoot, "/status/uid", "");
}

/// The defaults of a Shoot with workers. An admission plugin, which not every garden enables, adds a vertical pod autoscaler.
fn of_nodes(shoot: &mut Value) {
    let kubernetes = json!({
        "kubeAPIServer": {"defaultNotReadyTolerationSeconds": 300, "defaultUnreachableTolerationSeconds": 300},
        "kubeControllerManager": {"nodeCIDRMaskSize": 24, "nodeMonitorGracePeriod": "40s"},
        "kubeProxy": {"enabled": true, "mode": "IPTables"},
        "kubeScheduler": {"profile": "balanced"},
        "kubelet": {
            "failSwapOn": true, "imageGCHighThresholdPercent": 50, "imageGCLowThresholdPercent": 40,
            "imageMaximumGCAge": "0s", "imageMinimumGCAge": "2m0s", "serializeImagePulls": true,
            "kubeReserved": {"cpu": "80m", "memory": "1Gi", "pid": "20k"}},
    });
    for (component, settings) in kubernetes.as_object().into_iter().flatten() {
        for (name, value) in settings.as_object().into_iter().flatten() {
            default(shoot, &format!("/spec/kubernetes/{component}/{name}"), value.clone());
        }
    }
    default(shoot, "/spec/maintenance/autoUpdate/machineImageVersion", true);
    default(shoot, "/spec/provider/workersSettings/sshAccess/enabled", true);
    default(shoot, "/spec/systemComponents/coreDNS/autoscaling/mode", "horizontal");
    let worker = [
        ("/cri/name", json!("containerd")),
        ("/machine/architecture", json!("amd64")),
        ("/maxSurge", json!(1)),
        ("/maxUnavailable", json!(0)),
        ("/systemComponents/allow", json!(true)),
        ("/updateStrategy", json!("AutoRollingUpdate")),
    ];
    for pool in elements(shoot, "/spec/provider/workers") {
        for (field, value) in &worker {
            default(pool, field, value.clone());
        }
    }
}

/// Completes the images of machines: the first of the profile's spec, in its last version.
pub fn images(shoot: &mut Value, profile: &Value) {
    for pool in elements(shoot, "/spec/provider/workers") {
        default(pool, "/machine/image/name", text(profile, "/machineImages/0/name"));
        let name = text(pool, "/machine/image/name");
        let known = list(profile, "/machineImages").iter().find(|known| text(known, "/name") == name);
        let versions = known.map_or(&[][..], |known| list(known, "/versions"));
        if let Some(newest) = versions.iter().map(|v| text(v, "/version")).max_by_key(|v| numbers(v)) {
            default(pool, "/machine/image/version", newest);
        }
    }
}

/// Completes a Kubernetes version, or none at all, to the newest one of the profile's spec that is supported and fits.
pub fn version(shoot: &mut Value, profile: &Value, now: &str) {
    let asked = text(shoot, "/spec/kubernetes/version");
    if asked.split('.').count() >= 3 {
        return;
    }
    let fits = |v: &&str| asked.is_empty() || v.strip_prefix(asked).is_some_and(|rest| rest.starts_with('.'));
    let usable = list(profile, "/kubernetes/versions")
        .iter()
        .filter(|v| text(v, "/classification") != "preview" && !is_expired(v, now));
    let newest = usable.map(|v| text(v, "/version")).filter(fits).max_by_key(|v| numbers(v));
    if let Some(newest) = newest.map(str::to_owned) {
        set(shoot, "/spec/kubernetes/version", newest);
    }
}

/// Whether a version of a profile has ended.
pub fn is_expired(version: &Value, now: &str) -> bool {
    let until = text(version, "/expirationDate");
    !until.is_empty() && until <= now
}

/// The numbers of a version.
pub fn numbers(version: &str) -> Vec<u32> {
    version.split('.').map(|part| part.parse().unwrap_or(0)).collect()
}
