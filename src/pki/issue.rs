//! Certificates that the program signs, in the format of Go's `crypto/x509`: for the secrets manager, and for Helm's
//! `genCA` and related functions.

use std::net::IpAddr;

use ring::digest;
use x509_parser::pem::Pem;
use x509_parser::prelude::{FromDer as _, ParsedExtension, X509Certificate};

use super::key::pem;
use super::request::{Subject, distinguished_name};
use super::{AnyKey, Error};
use crate::base::random;
use crate::format::der;
use crate::format::time::{Civil, layout};

/// The key usage of a certificate.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum KeyUsage {
    /// Server authentication.
    Server,
    /// Client authentication.
    Client,
    /// Server and client authentication.
    Both,
}

impl KeyUsage {
    /// Whether a server may present the certificate.
    pub(crate) const fn is_server(self) -> bool {
        matches!(self, Self::Server | Self::Both)
    }

    /// Whether a client may present the certificate.
    pub(crate) const fn is_client(self) -> bool {
        matches!(self, Self::Client | Self::Both)
    }
}

/// The names of a server.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ServerNames {
    /// DNS names.
    pub dns: Vec<String>,
    /// IP addresses.
    pub addresses: Vec<IpAddr>,
}

/// Whether a certificate is a CA.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Authority {
    /// No CA.
    No,
    /// Signs certificates.
    Certificates,
    /// Signs certificates and revocation lists.
    CertificatesAndRevocations,
}

/// The content of a new certificate.
#[derive(Clone, Debug)]
pub struct CertificateTemplate {
    /// The subject in DER; see [`common_name`] and [`subject`].
    pub subject: Vec<u8>,
    /// The names of the server.
    pub names: ServerNames,
    /// Start of the validity, in seconds since 1970.
    pub not_before_unix_s: i64,
    /// End of the validity.
    pub not_after_unix_s: i64,
    /// The key usage; `None`: that of a CA.
    pub usage: Option<KeyUsage>,
    /// Whether it is a CA.
    pub authority: Authority,
}

/// A distinguished name with at most a common name, in DER.
pub fn common_name(name: &str) -> Vec<u8> {
    if name.is_empty() {
        return der::sequence(&[]);
    }
    distinguished_name(&Subject { common_name: name.to_owned(), ..Subject::default() })
}

/// A distinguished name of organizations and a common name, in DER.
pub fn subject(name: &str, organizations: &[String]) -> Vec<u8> {
    let organizations = organizations.to_vec();
    distinguished_name(&Subject { common_name: name.to_owned(), organizations, ..Subject::default() })
}

/// The issuer.
#[derive(Clone, Debug)]
pub struct CertificateIssuer<'k> {
    name: Vec<u8>,
    /// The public key in its certificate.
    public_bits: Vec<u8>,
    /// The identifier of that key, if the certificate has one.
    key_id: Vec<u8>,
    key: &'k AnyKey,
}

impl<'k> CertificateIssuer<'k> {
    /// The issuer of a self-signed certificate. Errors: if certificates do not support the type of the key.
    pub fn itself(template: &CertificateTemplate, key: &'k AnyKey) -> Result<Self, Error> {
        // The error about a key that cannot sign comes first, then the error about a key without certificates.
        let (_, public_bits) = key.signature_algorithm().and_then(|_| key.public()).map_err(Error::Sign)?;
        Ok(Self { name: template.subject.clone(), public_bits, key_id: Vec::new(), key })
    }

    /// The issuer whose certificate is the first of a PEM text. Errors: if there is none.
    pub fn of_pem(text: &[u8], key: &'k AnyKey) -> Result<Self, Error> {
        let label = "CERTIFICATE";
        let block = Pem::iter_from_buffer(text).find_map(Result::ok).ok_or(Error::NoPem { label })?;
        let (_, certificate) = X509Certificate::from_der(&block.contents)
            .map_err(|e| Error::Malformed { what: "certificate", reason: e.to_string() })?;
        let key_id = certificate.extensions().iter().find_map(|e| match e.parsed_extension() {
            ParsedExtension::SubjectKeyIdentifier(id) => Some(id.0.to_vec()),
            _ => None,
        });
        Ok(Self {
            name: certificate.subject().as_raw().to_vec(),
            public_bits: certificate.public_key().subject_public_key.data.to_vec(),
            key_id: key_id.unwrap_or_default(),
            key,
        })
    }
}

impl CertificateTemplate {
    /// Signs a certificate for the key; returns PEM. Errors: in Go's words: a key that cannot sign, an issuer
    /// with another key, a name or time that cannot be encoded.
    pub fn sign(&self, key: &AnyKey, issuer: &CertificateIssuer<'_>) -> Result<String, Error> {
        let algorithm = issuer.key.signature_algorithm().map_err(Error::Sign)?;
        let (key_algorithm, key_bits) = key.public().map_err(Error::Sign)?;
        if issuer.key.public().map_err(Error::Sign)?.1 != issuer.public_bits {
            let text = "x509: provided PrivateKey doesn't match parent's PublicKey";
            return Err(Error::Sign(text.to_owned()));
        }
        let validity = der::sequence(&[&time(self.not_before_unix_s)?, &time(self.not_after_unix_s)?]);
        let key_info = der::sequence(&[&key_algorithm, &der::bit_string(&key_bits)]);
        let extensions = der::element(der::SEQUENCE, &self.extensions(&key_bits, issuer)?.concat());
        let body = der::sequence(&[
            &der::element(0xa0, &der::unsigned(&[2])),
            &der::unsigned(&random::bytes::<16>()),
            &algorithm,
            &issuer.name,
            &validity,
            &self.subject,
            &key_info,
            &der::element(0xa3, &extensions),
        ]);
        let signature = issuer.key.sign(&body).map_err(Error::Sign)?;
        Ok(pem("CERTIFICATE", &der::sequence(&[&body, &algorithm, &der::bit_string(&signature)])))
    }

    fn extensions(&self, key_bits: &[u8], issuer: &CertificateIssuer<'_>) -> Result<Vec<Vec<u8>>, Error> {
        const SERVER: &[u8] = &[0x2b, 6, 1, 5, 5, 7, 3, 1];
        const CLIENT: &[u8] = &[0x2b, 6, 1, 5, 5, 7, 3, 2];
        // Digital signature and key encipherment, then certificate signing and CRL signing: bits from the left.
        let (bits, unused) = match self.authority {
            Authority::No => (0xa0, 5),
            Authority::Certificates => (0xa4, 2),
            Authority::CertificatesAndRevocations => (0xa6, 1),
        };
        let is_authority = self.authority != Authority::No;
        let constraints = if is_authority { &der::BOOLEAN_TRUE[..] } else { &[] };
        let mut out = vec![extension(0x0f, true, &[der::BIT_STRING, 2, unused, bits])];
        if let Some(usage) = self.usage {
            let server = usage.is_server().then(|| der::oid(SERVER));
            let client = usage.is_client().then(|| der::oid(CLIENT));
            let purposes: Vec<u8> = server.into_iter().chain(client).flatten().collect();
            out.push(extension(0x25, false, &der::element(der::SEQUENCE, &purposes)));
        }
        out.push(extension(0x13, true, &der::sequence(&[constraints])));
        if is_authority {
            let id = digest::digest(&digest::SHA256, key_bits);
            out.push(extension(0x0e, false, &der::element(der::OCTET_STRING, &id.as_ref()[..20])));
        }
        if issuer.name != self.subject && !issuer.key_id.is_empty() {
            let id = der::element(0x80, &issuer.key_id);
            out.push(extension(0x23, false, &der::sequence(&[&id])));
        }
        let ServerNames { dns, addresses } = &self.names;
        if !dns.is_empty() || !addresses.is_empty() {
            let mut names = Vec::new();
            for name in dns {
                if !name.is_ascii() {
                    return Err(Error::Sign(format!("x509: {name:?} cannot be encoded as an IA5String")));
                }
                names.push(der::element(0x82, name.as_bytes()));
            }
            names.extend(addresses.iter().map(|address| match address.to_canonical() {
                IpAddr::V4(v4) => der::element(0x87, &v4.octets()),
                IpAddr::V6(v6) => der::element(0x87, &v6.octets()),
            }));
            let nameless = self.subject == der::sequence(&[]);
            out.push(extension(0x11, nameless, &der::element(der::SEQUENCE, &names.concat())));
        }
        Ok(out)
    }
}

/// An extension below 2.5.29.
fn extension(number: u8, critical: bool, value: &[u8]) -> Vec<u8> {
    let critical = if critical { &der::BOOLEAN_TRUE[..] } else { &[] };
    let value = der::element(der::OCTET_STRING, value);
    der::sequence(&[&der::oid(&[0x55, 0x1d, number]), critical, &value])
}

/// RFC 5280: two digits of the year until 2049.
fn time(unix_s: i64) -> Result<Vec<u8>, Error> {
    let civil = Civil::of_unix(unix_s, 0, 0);
    let text = |pattern| layout::format_civil(&civil, pattern);
    match civil.year {
        1950..2050 => Ok(der::element(der::UTC_TIME, text("060102150405Z").as_bytes())),
        0..=9999 => Ok(der::element(der::GENERALIZED_TIME, text("20060102150405Z").as_bytes())),
        _ => {
            let text = "asn1: structure error: cannot represent time as GeneralizedTime";
            Err(Error::Sign(text.to_owned()))
        }
    }
}
