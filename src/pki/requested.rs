//! Certificate requests of others, as far as somebody who approves them must know.

use std::net::IpAddr;

use x509_parser::prelude::{FromDer as _, GeneralName, ParsedExtension, X509CertificationRequest, X509Name};

use crate::format::base64;

use super::{Error, key};

const LABEL: &str = "CERTIFICATE REQUEST";
/// The object identifier of the attribute with extensions.
const EXTENSION_REQUEST: &str = "1.2.840.113549.1.9.14";

/// What a request asks for.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct RequestedCertificate {
    pub(crate) common_name: String,
    pub(crate) organizations: Vec<String>,
    /// The names of its server.
    pub(crate) dns: Vec<String>,
    /// The addresses of its server.
    pub(crate) addresses: Vec<IpAddr>,
    /// It has alternative names of other kinds, such as mail addresses, or parts of a subject that are not listed here.
    pub(crate) has_others: bool,
}

impl RequestedCertificate {
    /// Reads a request in PEM. Errors: it is malformed, or its text is not the one that encodes it: another program could read another
    /// request in such a text, and that one would be signed.
    pub(crate) fn parse(pem: &[u8]) -> Result<Self, Error> {
        let malformed = |reason: String| Error::Malformed { what: "certificate request", reason };
        let contents = contents(pem).ok_or(Error::NoPem { label: LABEL })?;
        if key::pem(LABEL, &contents).as_bytes() != pem {
            return Err(malformed("its text has more than one form".to_owned()));
        }
        let (rest, request) =
            X509CertificationRequest::from_der(&contents).map_err(|error| malformed(error.to_string()))?;
        let attributes = request.certification_request_info.iter_attributes();
        let extensions = attributes.filter(|each| each.oid.to_id_string() == EXTENSION_REQUEST).count();
        if !rest.is_empty() || extensions > 1 {
            return Err(malformed("it has more than one content".to_owned()));
        }
        let subject = &request.certification_request_info.subject;
        // The parser accepts names that it could not read completely.
        if !X509Name::from_der(subject.as_raw()).is_ok_and(|(rest, _)| rest.is_empty()) {
            return Err(malformed("its subject is broken".to_owned()));
        }
        let text = |value: &x509_parser::x509::AttributeTypeAndValue<'_>| {
            value.as_str().map(str::to_owned).map_err(|error| malformed(error.to_string()))
        };
        let mut names = subject.iter_common_name().map(text).collect::<Result<Vec<_>, _>>()?;
        let organizations = subject.iter_organization().map(text).collect::<Result<Vec<_>, _>>()?;
        let has_others =
            names.len() > 1 || subject.iter_attributes().count() > names.len() + organizations.len();
        let common_name = names.pop().unwrap_or_default();
        let mut requested = Self { common_name, organizations, has_others, ..Self::default() };
        for extension in request.requested_extensions().into_iter().flatten() {
            match extension {
                ParsedExtension::SubjectAlternativeName(names) => {
                    names.general_names.iter().for_each(|name| requested.add(name));
                }
                // What a key may be used for, the signer decides by the object of the request.
                ParsedExtension::KeyUsage(_) | ParsedExtension::ExtendedKeyUsage(_) => {}
                _ => requested.has_others = true,
            }
        }
        Ok(requested)
    }

    fn add(&mut self, name: &GeneralName<'_>) {
        match name {
            GeneralName::DNSName(name) => self.dns.push((*name).to_owned()),
            GeneralName::IPAddress(bytes) => {
                let v4 = <[u8; 4]>::try_from(*bytes).map(IpAddr::from);
                let address = v4.or_else(|_| <[u8; 16]>::try_from(*bytes).map(IpAddr::from));
                match address {
                    Ok(address) => self.addresses.push(address),
                    Err(_) => self.has_others = true,
                }
            }
            _ => self.has_others = true,
        }
    }
}

/// The bytes of the only block in a text.
fn contents(pem: &[u8]) -> Option<Vec<u8>> {
    let text = str::from_utf8(pem).ok()?;
    let body = text.strip_prefix(&format!("-----BEGIN {LABEL}-----\n"))?;
    let body = body.strip_suffix(&format!("-----END {LABEL}-----\n"))?;
    base64::decode(body.replace('\n', "").as_bytes()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pki::PrivateKey;
    use crate::pki::request::{Subject, build};

    fn of(subject: &Subject) -> RequestedCertificate {
        let request = build(subject, &PrivateKey::generate().unwrap()).unwrap();
        RequestedCertificate::parse(request.pem.as_bytes()).unwrap()
    }

    #[test]
    fn reads_what_is_requested() {
        // A DNS name, an address of each family, and a mail address.
        let names = [
            &[0x30, 0x20][..],
            &[0x82, 0x02, b'h', b'1'],
            &[0x87, 0x04, 10, 0, 0, 7],
            &[0x87, 0x10, 0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1],
            &[0x81, 0x02, b'a', b'@'],
        ]
        .concat();
        let subject = Subject {
            common_name: "system:node:h1".to_owned(),
            organizations: vec!["system:nodes".to_owned()],
            ..Subject::default()
        };
        let plain = of(&subject);
        assert_eq!((plain.common_name.as_str(), plain.has_others), ("system:node:h1", false));
        assert_eq!(plain.organizations, ["system:nodes"]);
        let named = of(&Subject { alternative_names: names, ..subject });
        assert_eq!(named.dns, ["h1"]);
        assert_eq!(named.addresses, ["10.0.0.7".parse::<IpAddr>().unwrap(), "fd00::1".parse().unwrap()]);
        assert!(named.has_others);
    }

    /// Go skips a block whose ends differ, and takes the next one.
    #[test]
    fn a_text_in_which_others_could_read_another_request_is_refused() {
        let subject = |name: &str| Subject { common_name: name.to_owned(), ..Subject::default() };
        let of = |name: &str| build(&subject(name), &PrivateKey::generate().unwrap()).unwrap().pem;
        let (good, other) = (of("good"), of("other"));
        assert_eq!(RequestedCertificate::parse(good.as_bytes()).unwrap().common_name, "good");
        let broken_end = good.replace("END CERTIFICATE REQUEST", "END X");
        for text in [
            format!("{broken_end}{other}"),
            format!("{good}{other}"),
            format!("{other}{good}"),
            format!("\n{good}"),
            format!("text\n{good}"),
            format!("{good}\n"),
            good.replacen('\n', "\r\n", 1),
            good.replacen("-----\n", "-----\nHeader: x\n\n", 1),
            good.replace("CERTIFICATE REQUEST", "NEW CERTIFICATE REQUEST"),
            good.trim_end().to_owned(),
        ] {
            assert!(RequestedCertificate::parse(text.as_bytes()).is_err(), "{text}");
        }
    }

    #[test]
    fn bytes_after_a_request_are_refused() {
        let subject = Subject { common_name: "n".to_owned(), ..Subject::default() };
        let pem = build(&subject, &PrivateKey::generate().unwrap()).unwrap().pem;
        let mut der = contents(pem.as_bytes()).unwrap();
        assert_eq!(key::pem(LABEL, &der), pem);
        der.push(0);
        assert!(RequestedCertificate::parse(key::pem(LABEL, &der).as_bytes()).is_err());
    }

    #[test]
    fn what_is_no_request_is_an_error() {
        for text in [
            "",
            "-----BEGIN CERTIFICATE-----\nAA==\n-----END CERTIFICATE-----\n",
            "-----BEGIN CERTIFICATE REQUEST-----\nAAAA\n-----END CERTIFICATE REQUEST-----\n",
        ] {
            assert!(RequestedCertificate::parse(text.as_bytes()).is_err(), "{text}");
        }
    }
}
