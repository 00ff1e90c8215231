//! Signs approved certificate requests.

use std::time::Duration;

use gardenlet::base::clock::Timestamp;
use serde_json::{Value, json};

use crate::api::remove::Options;
use crate::api::write::Patch;
use crate::api::{Api, Target, User};
use crate::encoding::{base64, from_base64, from_rfc3339};
use crate::json::{list, text};

/// The signer of certificates of any client.
pub const CLIENT: &str = "kubernetes.io/kube-apiserver-client";

/// The validity that kube-controller-manager gives by default.
const DEFAULT_LIFETIME: Duration = Duration::from_secs(365 * 86_400);
/// Certificates are valid from a little earlier on, for clocks that are behind.
const BACKDATE: Duration = Duration::from_secs(300);

/// Requests that were decided are kept for this time, undecided ones longer.
const KEEP_DECIDED: Duration = Duration::from_secs(3_600);
const KEEP_PENDING: Duration = Duration::from_secs(86_400);

/// An approved request.
pub struct Approved<'a> {
    pub signer: &'a str,
    pub pem: &'a str,
    pub from: Timestamp,
    pub until: Timestamp,
}

/// `sign` returns a certificate, or why there is none; nothing if another component signs for this signer.
pub fn sync(api: &Api, sign: &dyn Fn(&Approved<'_>) -> Option<Result<String, String>>) {
    let Some(kind) = api.kind("certificates.k8s.io", "certificatesigningrequests") else { return };
    for request in api.store.all("certificates.k8s.io", "certificatesigningrequests", "") {
        if is_over(&request, api.clock.now()) {
            // Another thread may have deleted it.
            let _ = api.delete(
                &Target::new(kind.clone(), "", text(&request, "/metadata/name")),
                &Options::default(),
            );
            continue;
        }
        if !is_due(&request) {
            continue;
        }
        let pem = from_base64(text(&request, "/spec/request")).unwrap_or_default();
        let seconds = request["spec"]["expirationSeconds"].as_u64().map(Duration::from_secs);
        let now = api.clock.now();
        let approved = Approved {
            signer: text(&request, "/spec/signerName"),
            pem: &String::from_utf8_lossy(&pem),
            from: now.minus(BACKDATE),
            until: now.plus(seconds.unwrap_or(DEFAULT_LIFETIME)),
        };
        let status = match sign(&approved) {
            None => continue,
            Some(Ok(certificate)) => json!({"certificate": base64(certificate.as_bytes())}),
            Some(Err(why)) => {
                let mut conditions = list(&request, "/status/conditions").to_vec();
                conditions.push(json!({"type": "Failed", "status": "True", "reason": "SignerValidationFailure", "message": why}));
                json!({"conditions": conditions})
            }
        };
        let target = Target::new(kind.clone(), "", text(&request, "/metadata/name")).subresource("status");
        // Another thread may have deleted it.
        let _ = api.patch(&target, &Patch::Merge(json!({"status": status})), &User::system());
    }
}

fn is_over(request: &Value, now: Timestamp) -> bool {
    let decided =
        list(request, "/status/conditions").iter().find(|c| c["type"] == "Approved" || c["type"] == "Denied");
    let (since, keep) = match decided {
        Some(condition) => (text(condition, "/lastUpdateTime"), KEEP_DECIDED),
        None => (text(request, "/metadata/creationTimestamp"), KEEP_PENDING),
    };
    from_rfc3339(since).is_some_and(|since| now > since.plus(keep))
}

fn is_due(request: &Value) -> bool {
    let has = |kind: &str| list(request, "/status/conditions").iter().any(|c| c["type"] == kind);
    has("Approved") && !has("Denied") && !has("Failed") && text(request, "/status/certificate").is_empty()
}
