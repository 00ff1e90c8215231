//! CertificateSigningRequests: the object to create, and the meaning of its status.

use serde_json::Value;

use crate::api::certificates::CertificateSigningRequest;
use crate::base::json::json;
use crate::format::base64;
use crate::pki::request::{Subject, digested_name};

/// Prefix of the names of seed requests, including renewals.
pub(crate) const NAME_PREFIX: &str = "seed-csr-";
pub(crate) const SIGNER: &str = "kubernetes.io/kube-apiserver-client";
/// The usages of the certificate; the garden approves exactly these.
pub(crate) const USAGES: [&str; 3] = ["digital signature", "key encipherment", "client auth"];
/// The common group of all gardenlets of seeds.
pub(crate) const SEEDS_GROUP: &str = "gardener.cloud:system:seeds";
/// Prefix of their user names.
pub(crate) const SEED_USER_PREFIX: &str = "gardener.cloud:system:seed:";

/// The subject of a seed's first certificate.
pub(crate) fn seed_subject(seed: &str) -> Subject {
    Subject {
        common_name: format!("{SEED_USER_PREFIX}{seed}"),
        organizations: vec![SEEDS_GROUP.to_owned()],
        ..Subject::default()
    }
}

/// The name of the object: the same request always has the same name.
pub(crate) fn name(public_key: &[u8], subject: &Subject) -> String {
    digested_name(NAME_PREFIX, public_key, subject, &USAGES)
}

/// The object to create. If `expiration_s` is absent, the signer decides.
pub(crate) fn object(name: &str, request_pem: &str, expiration_s: Option<u64>) -> Value {
    let mut spec = json!({
        "request": base64::encode(request_pem.as_bytes()),
        "signerName": SIGNER,
        "usages": USAGES,
    });
    if let Some(seconds) = expiration_s {
        spec["expirationSeconds"] = json!(seconds);
    }
    json!({
        "apiVersion": "certificates.k8s.io/v1",
        "kind": "CertificateSigningRequest",
        "metadata": {"name": name},
        "spec": spec,
    })
}

/// The state of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// Not approved yet, or not signed yet.
    Pending,
    /// The certificate, PEM.
    Issued(String),
    /// It will never be signed: `denied`, `failed` or `replaced by another object`, and the reason.
    Refused(&'static str, String),
}

/// Reads the status. `uid` is the UID of the object that the agent created.
pub(crate) fn judge(csr: &CertificateSigningRequest, uid: &str) -> State {
    if !uid.is_empty() && csr.metadata.uid != uid {
        return State::Refused("replaced by another object", format!("uid {}", csr.metadata.uid));
    }
    let condition = |kind: &str| csr.status.conditions.iter().find(|c| c.kind == kind);
    for (kind, how) in [("Denied", "denied"), ("Failed", "failed")] {
        if let Some(c) = condition(kind) {
            return State::Refused(how, format!("{}: {}", c.reason, c.message));
        }
    }
    if condition("Approved").is_none() || csr.status.certificate.is_empty() {
        return State::Pending;
    }
    match base64::decode(csr.status.certificate.as_bytes()).map(String::from_utf8) {
        Ok(Ok(pem)) => State::Issued(pem),
        _ => State::Refused("failed", "the certificate in the status is not base64 of PEM".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn csr(status: &Value) -> CertificateSigningRequest {
        serde_json::from_value(json!({"metadata": {"name": "seed-csr-x", "uid": "u1"}, "status": status}))
            .unwrap()
    }

    #[test]
    fn the_object_is_what_the_garden_approves() {
        assert_eq!(
            object("seed-csr-x", "PEM", Some(172_800)),
            json!({
                "apiVersion": "certificates.k8s.io/v1",
                "kind": "CertificateSigningRequest",
                "metadata": {"name": "seed-csr-x"},
                "spec": {
                    "request": "UEVN",
                    "signerName": "kubernetes.io/kube-apiserver-client",
                    "usages": ["digital signature", "key encipherment", "client auth"],
                    "expirationSeconds": 172_800,
                },
            })
        );
        assert_eq!(object("n", "PEM", None)["spec"].get("expirationSeconds"), None);
        let subject = seed_subject("edge-1");
        assert_eq!(subject.common_name, "gardener.cloud:system:seed:edge-1");
        assert_eq!(subject.organizations, ["gardener.cloud:system:seeds"]);
    }

    #[test]
    fn what_a_status_means() {
        let approved = json!({"type": "Approved", "status": "True", "reason": "AutoApproved"});
        let denied = json!({"type": "Denied", "status": "True", "reason": "No", "message": "not today"});
        let failed = json!({"type": "Failed", "status": "True", "reason": "Signer", "message": "broken"});
        let table = [
            (json!({}), State::Pending),
            (json!({"conditions": [approved]}), State::Pending),
            (json!({"certificate": "UEVN"}), State::Pending),
            (json!({"conditions": [approved], "certificate": "UEVN"}), State::Issued("PEM".to_owned())),
            (json!({"conditions": [denied]}), State::Refused("denied", "No: not today".to_owned())),
            (
                json!({"conditions": [approved, failed]}),
                State::Refused("failed", "Signer: broken".to_owned()),
            ),
        ];
        for (status, expected) in table {
            assert_eq!(judge(&csr(&status), "u1"), expected, "{status}");
        }
        assert!(matches!(judge(&csr(&json!({})), "u2"), State::Refused("replaced by another object", _)));
    }
}
