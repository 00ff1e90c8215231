//! Certificate requests (RFC 2986), and the names that client-go and the Go gardenlet give them.
//!
//! The encoder is written by hand: subject and names of the current certificate go into the next request byte for byte,
//! and the available libraries keep only the parts that they know.

use ring::digest;

use crate::format::{base64, der};

use super::{Error, PrivateKey, key};

/// The subject of a certificate.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Subject {
    /// The common name, `CN`, of the subject.
    pub common_name: String,
    /// Each `O`, in order.
    pub organizations: Vec<String>,
    /// The whole distinguished name in DER, as in a certificate; empty to use the two fields above.
    pub name: Vec<u8>,
    /// Subject alternative names (`GeneralNames` in DER); empty for none. The garden approves only
    /// seed requests without them.
    pub alternative_names: Vec<u8>,
}

/// A signed request.
#[derive(Clone, Debug)]
pub struct CertificateRequest {
    /// PEM `CERTIFICATE REQUEST`.
    pub pem: String,
    /// The public key, as DER `SubjectPublicKeyInfo`.
    pub(crate) public_key: Vec<u8>,
}

/// Object identifiers in DER, without tag and length.
const COMMON_NAME: &[u8] = &[0x55, 0x04, 0x03];
const ORGANIZATION: &[u8] = &[0x55, 0x04, 0x0a];
const SUBJECT_ALTERNATIVE_NAME: &[u8] = &[0x55, 0x1d, 0x11];
const EXTENSION_REQUEST: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x09, 0x0e];
const ECDSA_WITH_SHA256: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x04, 0x03, 0x02];
/// `[0]`: the attributes of a request.
const ATTRIBUTES: u8 = 0xa0;

/// Builds and signs a request (ECDSA with SHA-256). Errors: if the key cannot sign.
pub fn build(subject: &Subject, key: &PrivateKey) -> Result<CertificateRequest, Error> {
    let public_key = key.public_key();
    let version = der::element(der::INTEGER, &[0]);
    let name = if subject.name.is_empty() { distinguished_name(subject) } else { subject.name.clone() };
    let attributes = der::element(ATTRIBUTES, &attributes(subject));
    let info = der::sequence(&[&version, &name, &public_key, &attributes]);
    let algorithm = der::sequence(&[&der::oid(ECDSA_WITH_SHA256)]);
    let signature = der::bit_string(&key.sign(&info)?);
    let request = der::sequence(&[&info, &algorithm, &signature]);
    Ok(CertificateRequest { pem: key::pem("CERTIFICATE REQUEST", &request), public_key })
}

/// In Go's order: one set of all organizations, then the common name.
pub(super) fn distinguished_name(subject: &Subject) -> Vec<u8> {
    let attribute = |kind: &[u8], text: &str| der::sequence(&[&der::oid(kind), &der::text(text.as_bytes())]);
    let organizations = subject.organizations.iter().map(|o| attribute(ORGANIZATION, o)).collect::<Vec<_>>();
    let organizations = if organizations.is_empty() { Vec::new() } else { der::set_of(organizations) };
    let common_name = der::set_of(vec![attribute(COMMON_NAME, &subject.common_name)]);
    der::sequence(&[&organizations, &common_name])
}

/// One attribute that requests one extension, if there are alternative names.
fn attributes(subject: &Subject) -> Vec<u8> {
    if subject.alternative_names.is_empty() {
        return Vec::new();
    }
    let names = der::element(der::OCTET_STRING, &subject.alternative_names);
    let extension = der::sequence(&[&der::oid(SUBJECT_ALTERNATIVE_NAME), &names]);
    let extensions = der::set_of(vec![der::sequence(&[&extension])]);
    der::sequence(&[&der::oid(EXTENSION_REQUEST), &extensions])
}

/// The name of a CertificateSigningRequest: `prefix` and a digest of key, subject and usages, so that the agent finds
/// the same request again after a crash (client-go's `digestedName`).
pub(crate) fn digested_name(prefix: &str, public_key: &[u8], subject: &Subject, usages: &[&str]) -> String {
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
    use ring::signature::{ECDSA_P256_SHA256_ASN1, UnparsedPublicKey};
    use x509_parser::prelude::{FromDer as _, ParsedExtension, X509CertificationRequest, X509Name};

    use super::*;

    fn seed() -> Subject {
        Subject {
            common_name: "gardener.cloud:system:seed:edge-1".to_owned(),
            organizations: vec!["gardener.cloud:system:seeds".to_owned()],
            ..Subject::default()
        }
    }

    fn parse(request: &CertificateRequest) -> Vec<u8> {
        assert!(request.pem.starts_with("-----BEGIN CERTIFICATE REQUEST-----"));
        let body: String = request.pem.lines().filter(|line| !line.starts_with('-')).collect();
        base64::decode(body.as_bytes()).unwrap()
    }

    /// Checks that the request parses to its last byte and carries a valid signature of its key.
    fn checked(der: &[u8]) -> X509CertificationRequest<'_> {
        let (rest, parsed) = X509CertificationRequest::from_der(der).unwrap();
        assert!(rest.is_empty());
        let info = &parsed.certification_request_info;
        let key = UnparsedPublicKey::new(
            &ECDSA_P256_SHA256_ASN1,
            info.subject_pki.subject_public_key.data.as_ref(),
        );
        key.verify(info.raw, parsed.signature_value.data.as_ref()).unwrap();
        assert_eq!(parsed.signature_algorithm.algorithm.to_id_string(), "1.2.840.10045.4.3.2");
        parsed
    }

    #[test]
    fn a_seed_request_names_the_seed_and_nothing_else() {
        let key = PrivateKey::generate().unwrap();
        let request = build(&seed(), &key).unwrap();
        let der = parse(&request);
        let parsed = checked(&der);
        let info = &parsed.certification_request_info;
        assert_eq!(
            info.subject.to_string(),
            "O=gardener.cloud:system:seeds, CN=gardener.cloud:system:seed:edge-1"
        );
        assert_eq!(info.subject_pki.raw, request.public_key);
        assert!(parsed.requested_extensions().is_none_or(|mut all| all.next().is_none()));
    }

    /// Compares with another writer of requests.
    #[test]
    fn the_request_is_the_one_that_others_write() {
        use rcgen::{CertificateParams, DistinguishedName, DnType, DnValue, KeyPair};
        let key = PrivateKey::generate().unwrap();
        let pair = KeyPair::try_from(key.pkcs8()).unwrap();
        let mut params = CertificateParams::new(vec!["edge.example.org".to_owned()]).unwrap();
        params.distinguished_name = DistinguishedName::new();
        let printable = |text: &str| DnValue::PrintableString(text.try_into().unwrap());
        params.distinguished_name.push(DnType::OrganizationName, printable("gardener.cloud:system:seeds"));
        params.distinguished_name.push(DnType::CommonName, DnValue::Utf8String("Saat_1\u{e4}".to_owned()));
        let theirs = params.serialize_request(&pair).unwrap();
        let subject = Subject {
            common_name: "Saat_1\u{e4}".to_owned(),
            alternative_names: [&[0x30, 18, 0x82, 16][..], b"edge.example.org"].concat(),
            ..seed()
        };
        let ours = build(&subject, &key).unwrap();
        assert_eq!(ours.public_key, rcgen::PublicKeyData::subject_public_key_info(&pair));
        let (ours, theirs) = (parse(&ours), theirs.der().to_vec());
        let info = |der: &[u8]| checked(der).certification_request_info.raw.to_vec();
        assert_eq!(info(&ours), info(&theirs));
    }

    #[test]
    fn several_organizations_are_one_set_in_go() {
        let mut subject = seed();
        subject.organizations = vec!["zebras".to_owned(), "ants".to_owned(), "und_mehr".to_owned()];
        let request = build(&subject, &PrivateKey::generate().unwrap()).unwrap();
        let der = parse(&request);
        let name = checked(&der).certification_request_info.subject.to_string();
        // Sorted by their bytes, which begin with the length.
        assert_eq!(name, "O=ants + O=zebras + O=und_mehr, CN=gardener.cloud:system:seed:edge-1");
    }

    /// Country, two organizational units, three organizations in two sets, a mail address: the request
    /// repeats the certificate's bytes.
    #[test]
    fn the_name_of_a_certificate_is_kept_byte_for_byte() {
        let attribute = |kind: &[u8], tag: u8, text: &str| {
            let value = der::element(tag, text.as_bytes());
            der::sequence(&[&der::oid(kind), &value])
        };
        let (country, unit, mail): (&[u8], &[u8], &[u8]) =
            (&[0x55, 4, 6], &[0x55, 4, 11], &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 9, 1]);
        let parts = [
            der::set_of(vec![attribute(country, der::PRINTABLE_STRING, "DE")]),
            der::set_of(vec![
                attribute(ORGANIZATION, der::UTF8_STRING, "gardener.cloud:system:seeds"),
                attribute(ORGANIZATION, der::UTF8_STRING, "site-operators"),
            ]),
            der::set_of(vec![attribute(ORGANIZATION, der::PRINTABLE_STRING, "Example")]),
            der::set_of(vec![attribute(unit, der::UTF8_STRING, "B\u{fc}ro")]),
            der::set_of(vec![attribute(COMMON_NAME, der::UTF8_STRING, "gardener.cloud:system:seed:edge-1")]),
            der::set_of(vec![attribute(mail, 0x16, "a@example.org")]),
        ];
        let name = der::element(der::SEQUENCE, &parts.concat());
        let (_, read) = X509Name::from_der(&name).unwrap();
        let subject = Subject {
            common_name: "gardener.cloud:system:seed:edge-1".to_owned(),
            organizations: read.iter_organization().map(|o| o.as_str().unwrap().to_owned()).collect(),
            name: name.clone(),
            // Two DNS names, an address, a URI and an unknown kind.
            alternative_names: b"\x30\x21\x82\x01a\x82\x01b\x87\x04\x0a\x01\x02\x03\x86\x08http://x\x88\x03\x2a\x03\x04\x86\x04u://".to_vec(),
        };
        assert_eq!(subject.organizations, ["site-operators", "gardener.cloud:system:seeds", "Example"]);
        let request = build(&subject, &PrivateKey::generate().unwrap()).unwrap();
        let der = parse(&request);
        let parsed = checked(&der);
        assert_eq!(parsed.certification_request_info.subject.as_raw(), name);
        let extensions: Vec<_> = parsed.requested_extensions().unwrap().collect();
        let [ParsedExtension::SubjectAlternativeName(names)] = extensions.as_slice() else {
            panic!("{extensions:?}")
        };
        assert_eq!(names.general_names.len(), 6);
    }

    #[test]
    fn the_name_is_the_one_that_the_go_programs_compute() {
        // Computed with SHA-512/256 over base64url(part) and a bar for each part.
        let name = digested_name("seed-csr-", b"key", &seed(), &["digital signature", "client auth"]);
        assert_eq!(name, "seed-csr-bUBqIU3vCA7uZ2RceXiRqVOFQf8GL6nvpvZPlad_V-4");
        assert_ne!(name, digested_name("seed-csr-", b"key2", &seed(), &["digital signature", "client auth"]));
    }
}
