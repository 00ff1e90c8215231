//! Certificate requests, and the names that client-go and the Go gardenlet give them.

use rcgen::{CertificateParams, DistinguishedName, DnType, DnValue, KeyPair, PublicKeyData as _, SanType};
use ring::digest;

use crate::format::base64;

use super::{Error, PrivateKey};

/// Who a certificate is for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Subject {
    /// `CN`.
    pub common_name: String,
    /// Each `O`, in order.
    pub organizations: Vec<String>,
    /// Subject alternative names. The garden approves no seed request that has any.
    pub names: AlternativeNames,
}

/// Subject alternative names by kind.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AlternativeNames {
    /// DNS names.
    pub dns: Vec<String>,
    /// Addresses.
    pub ips: Vec<std::net::IpAddr>,
    /// E-mail addresses.
    pub emails: Vec<String>,
    /// URIs.
    pub uris: Vec<String>,
}

/// A signed request.
#[derive(Clone, Debug)]
pub struct Request {
    /// PEM `CERTIFICATE REQUEST`.
    pub pem: String,
    /// The public key, as DER `SubjectPublicKeyInfo`.
    pub public_key: Vec<u8>,
}

/// Builds and signs a request (ECDSA with SHA-256).
///
/// # Errors
/// If the subject cannot be encoded or the key cannot sign.
pub fn build(subject: &Subject, key: &PrivateKey) -> Result<Request, Error> {
    let sign = |e: rcgen::Error| Error::Sign(e.to_string());
    let pair = KeyPair::try_from(key.pkcs8()).map_err(sign)?;
    let mut params = CertificateParams::default();
    params.distinguished_name = distinguished_name(subject)?;
    params.subject_alt_names = alternative_names(&subject.names)?;
    let request = params.serialize_request(&pair).map_err(sign)?;
    Ok(Request { pem: request.pem().map_err(sign)?, public_key: pair.subject_public_key_info() })
}

fn distinguished_name(subject: &Subject) -> Result<DistinguishedName, Error> {
    let mut name = DistinguishedName::new();
    // rcgen keeps one value per type; the garden knows one group, and a present certificate with several is refused.
    match subject.organizations.as_slice() {
        [] => {}
        [one] => name.push(DnType::OrganizationName, dn_value(one)),
        _ => return Err(Error::Sign("a subject with several organizations is not supported".to_owned())),
    }
    name.push(DnType::CommonName, dn_value(&subject.common_name));
    Ok(name)
}

/// A PrintableString where the characters allow it, as Go does.
fn dn_value(text: &str) -> DnValue {
    match text.try_into() {
        Ok(printable) => DnValue::PrintableString(printable),
        Err(_) => DnValue::Utf8String(text.to_owned()),
    }
}

fn alternative_names(names: &AlternativeNames) -> Result<Vec<SanType>, Error> {
    let ia5 = |text: &String| {
        text.as_str().try_into().map_err(|_| Error::Sign(format!("alternative name {text:?} is not ASCII")))
    };
    let mut out = Vec::new();
    for name in &names.dns {
        out.push(SanType::DnsName(ia5(name)?));
    }
    out.extend(names.ips.iter().copied().map(SanType::IpAddress));
    for email in &names.emails {
        out.push(SanType::Rfc822Name(ia5(email)?));
    }
    for uri in &names.uris {
        out.push(SanType::URI(ia5(uri)?));
    }
    Ok(out)
}

/// The name of a CertificateSigningRequest: `prefix` and a digest of key, subject and usages, so that the same request
/// finds itself again after a crash (client-go's `digestedName`).
pub fn digested_name(prefix: &str, public_key: &[u8], subject: &Subject, usages: &[&str]) -> String {
    let mut context = digest::Context::new(&digest::SHA512_256);
    let mut part = |bytes: &[u8]| {
        context.update(base64::encode_url(bytes).as_bytes());
        context.update(b"|");
    };
    part(public_key);
    part(subject.common_name.as_bytes());
    for organization in &subject.organizations {
        part(organization.as_bytes());
    }
    for usage in usages {
        part(usage.as_bytes());
    }
    format!("{prefix}{}", base64::encode_url(context.finish().as_ref()))
}

#[cfg(test)]
mod tests {
    use x509_parser::prelude::{FromDer as _, X509CertificationRequest};

    use super::*;

    fn seed() -> Subject {
        Subject {
            common_name: "gardener.cloud:system:seed:edge-1".to_owned(),
            organizations: vec!["gardener.cloud:system:seeds".to_owned()],
            names: AlternativeNames::default(),
        }
    }

    fn parse(request: &Request) -> Vec<u8> {
        let body: String = request.pem.lines().filter(|line| !line.starts_with('-')).collect();
        base64::decode(body.as_bytes()).unwrap()
    }

    #[test]
    fn a_seed_request_names_the_seed_and_nothing_else() {
        let key = PrivateKey::generate().unwrap();
        let request = build(&seed(), &key).unwrap();
        assert!(request.pem.starts_with("-----BEGIN CERTIFICATE REQUEST-----"));
        let der = parse(&request);
        let (rest, parsed) = X509CertificationRequest::from_der(&der).unwrap();
        assert!(rest.is_empty());
        let info = &parsed.certification_request_info;
        assert_eq!(
            info.subject.to_string(),
            "O=gardener.cloud:system:seeds, CN=gardener.cloud:system:seed:edge-1"
        );
        assert_eq!(info.subject_pki.raw, request.public_key);
        assert!(parsed.requested_extensions().is_none_or(|mut all| all.next().is_none()));
        assert_eq!(parsed.signature_algorithm.algorithm.to_id_string(), "1.2.840.10045.4.3.2");
    }

    #[test]
    fn alternative_names_are_carried_over() {
        let mut subject = seed();
        subject.names = AlternativeNames {
            dns: vec!["edge-1.example.org".to_owned()],
            ips: vec!["10.1.2.3".parse().unwrap()],
            emails: vec!["a@example.org".to_owned()],
            uris: vec!["spiffe://edge/1".to_owned()],
        };
        let request = build(&subject, &PrivateKey::generate().unwrap()).unwrap();
        let der = parse(&request);
        let (_, parsed) = X509CertificationRequest::from_der(&der).unwrap();
        assert_eq!(parsed.requested_extensions().unwrap().count(), 1);
    }

    #[test]
    fn the_name_is_the_one_that_the_go_programs_compute() {
        // Computed with SHA-512/256 over base64url(part) and a bar for each part.
        let name = digested_name("seed-csr-", b"key", &seed(), &["digital signature", "client auth"]);
        assert_eq!(name, "seed-csr-bUBqIU3vCA7uZ2RceXiRqVOFQf8GL6nvpvZPlad_V-4");
        assert_ne!(name, digested_name("seed-csr-", b"key2", &seed(), &["digital signature", "client auth"]));
    }
}
