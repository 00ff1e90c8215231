//! Reads a client certificate: its subject, validity and names.

use x509_parser::certificate::X509Certificate;
use x509_parser::oid_registry::OID_X509_EXT_SUBJECT_ALT_NAME;
use x509_parser::pem::Pem;
use x509_parser::prelude::FromDer as _;
use x509_parser::x509::{X509Name, X509Version};

use crate::base::clock::Timestamp;

use super::Error;
use super::request::Subject;

/// The part of a certificate that the agent reads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Certificate {
    /// The subject.
    pub subject: Subject,
    /// Start of the validity.
    pub not_before: Timestamp,
    /// End of the validity.
    pub not_after: Timestamp,
    /// The public key, as DER `SubjectPublicKeyInfo`.
    pub(crate) public_key: Vec<u8>,
    /// Whether it may sign certificates. Certificates of version 1 do not specify it; they count as CAs.
    pub(crate) is_ca: bool,
}

impl Certificate {
    /// Reads the first certificate of a PEM text. Errors: if there is none, or it is malformed.
    pub fn parse_pem(text: &str) -> Result<Self, Error> {
        let label = "CERTIFICATE";
        let block = Pem::iter_from_buffer(text.as_bytes())
            .filter_map(Result::ok)
            .find(|block| block.label == label)
            .ok_or(Error::NoPem { label })?;
        Self::parse_der(&block.contents)
    }

    /// Reads all certificates of a PEM text and skips everything else.
    pub(crate) fn parse_bundle(pem: &[u8]) -> Vec<Self> {
        let blocks = Pem::iter_from_buffer(pem).filter_map(Result::ok);
        blocks.filter_map(|block| Self::parse_der(&block.contents).ok()).collect()
    }

    /// Reads a certificate. Errors: if it is malformed.
    pub fn parse_der(der: &[u8]) -> Result<Self, Error> {
        let (_, certificate) = X509Certificate::from_der(der)
            .map_err(|e| Error::Malformed { what: "certificate", reason: e.to_string() })?;
        // The parser accepts names that it could not read completely; nobody could sign a request with such a name.
        if !X509Name::from_der(certificate.subject().as_raw()).is_ok_and(|(rest, _)| rest.is_empty()) {
            return Err(Error::Malformed { what: "certificate", reason: "its subject is broken".to_owned() });
        }
        let validity = certificate.validity();
        Ok(Self {
            subject: subject(&certificate),
            not_before: Timestamp::from_unix(validity.not_before.timestamp()),
            not_after: Timestamp::from_unix(validity.not_after.timestamp()),
            public_key: certificate.public_key().raw.to_vec(),
            is_ca: certificate.version() == X509Version::V1 || certificate.is_ca(),
        })
    }
}

fn subject(certificate: &X509Certificate<'_>) -> Subject {
    let name = certificate.subject();
    let text = |value: &x509_parser::x509::AttributeTypeAndValue<'_>| value.as_str().unwrap_or("").to_owned();
    Subject {
        common_name: name.iter_common_name().next().map(text).unwrap_or_default(),
        organizations: name.iter_organization().map(text).collect(),
        name: name.as_raw().to_vec(),
        alternative_names: alternative_names(certificate),
    }
}

/// The bytes of the extension.
fn alternative_names(certificate: &X509Certificate<'_>) -> Vec<u8> {
    let extension = certificate.extensions().iter().find(|e| e.oid == OID_X509_EXT_SUBJECT_ALT_NAME);
    extension.map(|e| e.value.to_vec()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, DnType, KeyPair, SanType, date_time_ymd};

    use super::*;

    #[test]
    fn subject_names_and_dates_are_read() {
        let mut params = CertificateParams::new(vec!["edge-1.example.org".to_owned()]).unwrap();
        params.subject_alt_names.push(SanType::IpAddress("fd00::1".parse().unwrap()));
        params.distinguished_name.push(DnType::OrganizationName, "gardener.cloud:system:seeds");
        params.distinguished_name.push(DnType::CommonName, "gardener.cloud:system:seed:edge-1");
        params.not_before = date_time_ymd(2025, 1, 2);
        params.not_after = date_time_ymd(2026, 1, 2);
        let pair = KeyPair::generate().unwrap();
        let made = params.self_signed(&pair).unwrap();
        let read = Certificate::parse_pem(&format!("# noise\n{}", made.pem())).unwrap();
        assert_eq!(read.subject.common_name, "gardener.cloud:system:seed:edge-1");
        assert_eq!(read.subject.organizations, ["gardener.cloud:system:seeds"]);
        let address = [&[0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0][..], &[1]].concat();
        let names = [&[0x30, 38, 0x82, 18][..], b"edge-1.example.org", &[0x87, 16], &address].concat();
        assert_eq!(read.subject.alternative_names, names);
        let certificate = X509Certificate::from_der(made.der()).unwrap().1;
        assert_eq!(read.subject.name, certificate.subject().as_raw());
        assert_eq!(read.public_key, rcgen::PublicKeyData::subject_public_key_info(&pair));
        assert!(!read.is_ca);
        assert_eq!((read.not_before.unix(), read.not_after.unix()), (1_735_776_000, 1_767_312_000));
    }

    #[test]
    fn invalid_certificates_are_errors() {
        assert!(matches!(Certificate::parse_pem("hello"), Err(Error::NoPem { label: "CERTIFICATE" })));
        let broken = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
        assert!(matches!(Certificate::parse_pem(broken), Err(Error::Malformed { what: "certificate", .. })));
    }

    #[test]
    fn a_broken_subject_is_an_error() {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, "a name");
        let mut der = params.self_signed(&KeyPair::generate().unwrap()).unwrap().der().to_vec();
        assert!(Certificate::parse_der(&der).is_ok());
        // The type of the last attribute, and type and length of its text.
        let place = der.windows(4).rposition(|bytes| bytes == [0x55, 4, 3, 0x0c]).unwrap();
        der[place..place + 5].fill(b'-');
        let error = Certificate::parse_der(&der).unwrap_err();
        assert!(
            matches!(&error, Error::Malformed { reason, .. } if reason == "its subject is broken"),
            "{error}"
        );
    }
}
