//! Certificate requests of others, as far as somebody who approves them must know.

use std::net::IpAddr;

use x509_parser::prelude::{
    FromDer as _, GeneralName, ParsedExtension, Pem, X509CertificationRequest, X509Name,
};

use super::Error;

const LABEL: &str = "CERTIFICATE REQUEST";

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
    /// Reads the first request of a PEM text. Errors: there is none, or it is malformed.
    pub(crate) fn parse(pem: &[u8]) -> Result<Self, Error> {
        let block = Pem::iter_from_buffer(pem).find_map(Result::ok).filter(|block| block.label == LABEL);
        let block = block.ok_or(Error::NoPem { label: LABEL })?;
        let malformed = |reason: String| Error::Malformed { what: "certificate request", reason };
        let (_, request) = X509CertificationRequest::from_der(&block.contents)
            .map_err(|error| malformed(error.to_string()))?;
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
