//! Certificate signing requests.

use super::meta::Resource;

/// certificates.k8s.io/v1 CertificateSigningRequest.
pub const CSR: Resource = Resource::new(
    "certificates.k8s.io",
    "v1",
    "CertificateSigningRequest",
    "certificatesigningrequests",
    false,
);
