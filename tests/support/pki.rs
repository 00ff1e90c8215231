//! The certificates of a test cluster: a CA, what it signs, and the requests it reads.

use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use gardenlet::base::clock::Timestamp;
use rcgen::{
    BasicConstraints, Certificate, CertificateParams, CertificateSigningRequestParams, DistinguishedName,
    DnType, DnValue, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose, PKCS_RSA_SHA256,
    PublicKeyData, SanType, SignatureAlgorithm, SigningKey,
};
use ring::rand::SystemRandom;
use ring::signature::{KeyPair as _, RSA_PKCS1_SHA256, RsaKeyPair};
use time::OffsetDateTime;

use crate::encoding::from_pem;

const DAY: Duration = Duration::from_secs(86_400);

/// A certificate with its key, both PEM.
#[derive(Clone, Debug)]
pub struct Identity {
    pub certificate: String,
    pub key: String,
}

impl Identity {
    /// The same, followed by more certificates.
    #[must_use]
    pub fn then(mut self, certificates: &[String]) -> Self {
        self.certificate += &certificates.concat();
        self
    }
}

/// A certificate authority.
pub struct Authority {
    certificate: Certificate,
    issuer: Issuer<'static, KeyPair>,
    key: String,
}

impl std::fmt::Debug for Authority {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Authority")
    }
}

/// The time as certificates carry it.
pub fn offset_time(at: Timestamp) -> OffsetDateTime {
    OffsetDateTime::from_unix_timestamp(at.unix()).unwrap()
}

/// Give it one organization at most, because rcgen writes only one.
fn distinguished_name(common_name: &str, organizations: &[String]) -> DistinguishedName {
    let mut name = DistinguishedName::new();
    for group in organizations {
        name.push(DnType::OrganizationName, DnValue::Utf8String(group.clone()));
    }
    name.push(DnType::CommonName, DnValue::Utf8String(common_name.to_owned()));
    name
}

/// The name of a server: an address or a name in DNS.
fn alternative_name(name: &str) -> SanType {
    match name.parse::<IpAddr>() {
        Ok(address) => SanType::IpAddress(address),
        Err(_) => SanType::DnsName(name.try_into().unwrap()),
    }
}

fn params(
    common_name: &str,
    organizations: &[String],
    from: Timestamp,
    until: Timestamp,
) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = distinguished_name(common_name, organizations);
    params.not_before = offset_time(from);
    params.not_after = offset_time(until);
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature, KeyUsagePurpose::KeyEncipherment];
    params
}

impl Authority {
    /// A self-signed CA, valid for ten years around `now`.
    pub fn new(name: &str, now: Timestamp) -> Self {
        let key = KeyPair::generate().unwrap();
        let mut params = params(name, &[], now.minus(365 * DAY), now.plus(3_650 * DAY));
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages =
            vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign, KeyUsagePurpose::DigitalSignature];
        let certificate = params.self_signed(&key).unwrap();
        let pem = key.serialize_pem();
        Self { certificate, issuer: Issuer::new(params, key), key: pem }
    }

    /// The CA's certificate, PEM.
    pub fn certificate(&self) -> String {
        self.certificate.pem()
    }

    /// The CA's key, PEM: for a real kube-controller-manager.
    pub fn key(&self) -> &str {
        &self.key
    }

    /// A server certificate for loopback and the names that clients use in a cluster.
    pub fn server(&self, names: &[String], from: Timestamp, until: Timestamp) -> Identity {
        let mut params = params("kube-apiserver", &[], from, until);
        params.subject_alt_names = vec![SanType::IpAddress(IpAddr::V4(Ipv4Addr::LOCALHOST))];
        let usual = ["localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc"];
        for name in usual.into_iter().map(str::to_owned).chain(names.iter().cloned()) {
            params.subject_alt_names.push(alternative_name(&name));
        }
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        self.issue(&params)
    }

    /// A client certificate: user and groups as Kubernetes reads them. At most one group.
    pub fn client(&self, user: &str, groups: &[String], from: Timestamp, until: Timestamp) -> Identity {
        assert!(groups.len() <= 1, "rcgen writes one organization; use a token for more groups");
        let mut params = params(user, groups, from, until);
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        self.issue(&params)
    }

    /// A certificate for both sides on loopback: etcd's own, whose JSON gateway is a client of etcd.
    pub fn both(&self, common_name: &str, from: Timestamp, until: Timestamp) -> Identity {
        let mut params = params(common_name, &[], from, until);
        params.subject_alt_names = vec![SanType::IpAddress(IpAddr::V4(Ipv4Addr::LOCALHOST))];
        params.extended_key_usages =
            vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        self.issue(&params)
    }

    fn issue(&self, params: &CertificateParams) -> Identity {
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        Identity { certificate: certificate.pem(), key: key.serialize_pem() }
    }

    /// Signs a request as kube-controller-manager does for clients: subject and names as asked, usages given.
    pub fn sign(&self, request: &str, from: Timestamp, until: Timestamp) -> Result<String, String> {
        signed(&self.issuer, request, &Terms { from, until, usage: ExtendedKeyUsagePurpose::ClientAuth })
    }
}

/// What the signer decides about a certificate.
struct Terms {
    from: Timestamp,
    until: Timestamp,
    usage: ExtendedKeyUsagePurpose,
}

fn signed(issuer: &Issuer<'_, impl SigningKey>, request: &str, terms: &Terms) -> Result<String, String> {
    let mut request = CertificateSigningRequestParams::from_pem(request).map_err(|e| e.to_string())?;
    request.params.not_before = offset_time(terms.from);
    request.params.not_after = offset_time(terms.until);
    request.params.is_ca = IsCa::ExplicitNoCa;
    request.params.key_usages = vec![KeyUsagePurpose::DigitalSignature, KeyUsagePurpose::KeyEncipherment];
    request.params.extended_key_usages = vec![terms.usage.clone()];
    Ok(request.signed_by(issuer).map_err(|e| e.to_string())?.pem())
}

/// An RSA key in PKCS #1, which rcgen does not read.
struct RsaKey(RsaKeyPair);

impl PublicKeyData for RsaKey {
    fn der_bytes(&self) -> &[u8] {
        self.0.public_key().as_ref()
    }

    fn algorithm(&self) -> &'static SignatureAlgorithm {
        &PKCS_RSA_SHA256
    }
}

impl SigningKey for RsaKey {
    fn sign(&self, message: &[u8]) -> Result<Vec<u8>, rcgen::Error> {
        let mut signature = vec![0; self.0.public().modulus_len()];
        let signed = self.0.sign(&RSA_PKCS1_SHA256, &SystemRandom::new(), message, &mut signature);
        signed.map(|()| signature).map_err(|_| rcgen::Error::RemoteKeyError)
    }
}

/// A CA of Gardener.
pub struct RsaAuthority(Issuer<'static, RsaKey>);

impl RsaAuthority {
    /// Of the files that a kube-controller-manager is given.
    ///
    /// # Errors
    /// They do not contain a CA.
    pub fn read(certificate: &str, key: &str) -> Result<Self, String> {
        let pair = RsaKeyPair::from_der(&from_pem(key).ok_or("no key")?).map_err(|e| e.to_string())?;
        Issuer::from_ca_cert_pem(certificate, RsaKey(pair)).map(Self).map_err(|e| e.to_string())
    }

    /// Signs a request: subject and names as asked.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn sign(
        &self,
        request: &str,
        from: Timestamp,
        until: Timestamp,
        is_server: bool,
    ) -> Result<String, String> {
        let usage =
            if is_server { ExtendedKeyUsagePurpose::ServerAuth } else { ExtendedKeyUsagePurpose::ClientAuth };
        signed(&self.0, request, &Terms { from, until, usage })
    }
}

/// A request for a certificate, and its new key, both PEM. `names` are the names and addresses of a server.
pub fn request(subject: &Subject, names: &[&str]) -> (String, String) {
    let mut params = CertificateParams::default();
    params.distinguished_name = distinguished_name(&subject.common_name, &subject.organizations);
    params.subject_alt_names = names.iter().map(|name| alternative_name(name)).collect();
    let key = KeyPair::generate().unwrap();
    (params.serialize_request(&key).unwrap().pem().unwrap(), key.serialize_pem())
}

/// Common name and organizations of a subject.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Subject {
    pub common_name: String,
    pub organizations: Vec<String>,
}

fn subject(name: &x509_parser::x509::X509Name<'_>) -> Subject {
    Subject {
        common_name: name
            .iter_common_name()
            .filter_map(|n| n.as_str().ok())
            .next()
            .unwrap_or_default()
            .to_owned(),
        organizations: name.iter_organization().filter_map(|n| n.as_str().ok()).map(str::to_owned).collect(),
    }
}

/// The subject of a certificate, DER.
pub fn certificate_subject(der: &[u8]) -> Option<Subject> {
    let (_, certificate) = x509_parser::parse_x509_certificate(der).ok()?;
    Some(subject(certificate.subject()))
}

/// Subject of a request (PEM), and whether it asks for subject alternative names.
pub fn request_subject(pem: &str) -> Option<(Subject, bool)> {
    use x509_parser::prelude::{FromDer, ParsedExtension, X509CertificationRequest};
    let der = from_pem(pem)?;
    let (_, request) = X509CertificationRequest::from_der(&der).ok()?;
    let names = request.requested_extensions().is_some_and(|mut extensions| {
        extensions.any(
            |e| matches!(e, ParsedExtension::SubjectAlternativeName(san) if !san.general_names.is_empty()),
        )
    });
    Some((subject(&request.certification_request_info.subject), names))
}
