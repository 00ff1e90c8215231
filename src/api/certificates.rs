//! Certificate signing requests.

use serde::Deserialize;

use super::meta::{ObjectMeta, Resource};

/// The kind `CertificateSigningRequest` of `certificates.k8s.io/v1`.
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
pub(crate) struct CertificateSigningRequest {
    pub(crate) metadata: ObjectMeta,
    /// What the requester asked for.
    pub(crate) spec: CertificateSigningRequestSpec,
    pub(crate) status: CertificateSigningRequestStatus,
}

#[derive(Clone, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct CertificateSigningRequestSpec {
    /// The user that created it, as the server saw them.
    pub(crate) username: String,
    pub(crate) signer_name: String,
}

#[derive(Clone, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct CertificateSigningRequestStatus {
    /// Base64 of the PEM certificate.
    pub(crate) certificate: String,
    /// `Approved`, `Denied`, `Failed`.
    pub(crate) conditions: Vec<CertificateSigningRequestCondition>,
}

#[derive(Clone, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct CertificateSigningRequestCondition {
    /// `Approved`, `Denied` or `Failed`.
    #[serde(rename = "type")]
    pub(crate) kind: String,
    /// The reason, for machines to read.
    pub(crate) reason: String,
    /// The text is for people.
    pub(crate) message: String,
}
