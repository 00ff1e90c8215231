//! Certificate signing requests.

use serde::Deserialize;

use super::meta::{ObjectMeta, Resource, or_default};

/// certificates.k8s.io/v1 CertificateSigningRequest.
pub const CERTIFICATE_SIGNING_REQUEST: Resource = Resource::new(
    "certificates.k8s.io",
    "v1",
    "CertificateSigningRequest",
    "certificatesigningrequests",
    false,
);

/// A CertificateSigningRequest as the program reads it.
#[derive(Clone, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(default)]
pub struct CertificateSigningRequest {
    /// Metadata.
    pub metadata: ObjectMeta,
    /// What the requester asked for.
    pub spec: CertificateSigningRequestSpec,
    /// The signer's answer.
    pub status: CertificateSigningRequestStatus,
}

/// See [`CertificateSigningRequest`].
#[derive(Clone, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct CertificateSigningRequestSpec {
    /// The user that created it, as the server saw them.
    #[serde(deserialize_with = "or_default")]
    pub username: String,
    /// The signer.
    #[serde(deserialize_with = "or_default")]
    pub signer_name: String,
}

/// See [`CertificateSigningRequest`].
#[derive(Clone, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct CertificateSigningRequestStatus {
    /// Base64 of the PEM certificate.
    #[serde(deserialize_with = "or_default")]
    pub certificate: String,
    /// `Approved`, `Denied`, `Failed`.
    #[serde(deserialize_with = "or_default")]
    pub conditions: Vec<CertificateSigningRequestCondition>,
}

/// See [`CertificateSigningRequest`].
#[derive(Clone, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(default)]
pub struct CertificateSigningRequestCondition {
    /// `Approved`, `Denied` or `Failed`.
    #[serde(rename = "type")]
    pub kind: String,
    /// Machine-readable reason.
    #[serde(deserialize_with = "or_default")]
    pub reason: String,
    /// Text for people.
    #[serde(deserialize_with = "or_default")]
    pub message: String,
}
