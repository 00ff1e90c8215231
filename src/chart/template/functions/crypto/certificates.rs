//! Certificates, as Go's `crypto/x509` writes those that sprig asks for: for servers and clients, one common name,
//! valid from now on.

use std::net::IpAddr;

use ring::digest;
use x509_parser::pem::Pem;
use x509_parser::prelude::{FromDer as _, ParsedExtension, X509Certificate};

use super::super::{Answer, Args, Cause};
use super::Pair;
use super::keys::{self, Key};
use crate::base::random;
use crate::chart::value::{Text, Value};
use crate::format::time::{Civil, layout};
use crate::format::{base64, der};
use crate::pki::key::pem;

/// `buildCustomCert`: takes both parts out of Base64 and looks whether they are what they should be.
pub(super) fn build_custom(a: &Args<'_>) -> Answer {
    let cert = base64::decode(a.bytes(0)).map_err(|_| "unable to decode base64 certificate")?;
    let key = base64::decode(a.bytes(1)).map_err(|_| "unable to decode base64 private key")?;
    let block = first_block(&cert)?;
    X509Certificate::from_der(&block.contents)
        .map_err(|_| "error parsing certificate: decodedCert.Bytes: x509: malformed certificate")?;
    Key::from_pem(&key).map_err(|e| format!("error parsing private key: {e}"))?;
    Ok(Value::native(Pair { cert: Text::from(cert), key: Text::from(key) }))
}

fn first_block(text: &[u8]) -> Result<Pem, Cause> {
    let block = Pem::iter_from_buffer(text).find_map(Result::ok);
    block.ok_or_else(|| "unable to decode certificate".into())
}

/// `genCA`, `genCAWithKey`.
pub(super) fn authority(a: &Args<'_>) -> Answer {
    let key = given_or_new_key(a, 2)?;
    let template = Template { authority: true, ..Template::new(a, &Value::Nil, &Value::Nil, a.int(1))? };
    template.issue(&key, &Issuer::itself(&template, &key)?)
}

/// `genSelfSignedCert`, `genSelfSignedCertWithKey`.
pub(super) fn self_signed(a: &Args<'_>) -> Answer {
    let key = given_or_new_key(a, 4)?;
    let template = Template::new(a, a.any(1), a.any(2), a.int(3))?;
    template.issue(&key, &Issuer::itself(&template, &key)?)
}

/// `genSignedCert`, `genSignedCertWithKey`.
pub(super) fn signed(a: &Args<'_>) -> Answer {
    let key = given_or_new_key(a, 5)?;
    let Value::Native(object) = a.any(4) else { return Err("no certificate".into()) };
    let ca = object.as_any().downcast_ref::<Pair>().ok_or("no certificate")?;
    let block = first_block(ca.cert.as_bytes())?;
    let (_, parsed) = X509Certificate::from_der(&block.contents)
        .map_err(|_| "error parsing certificate: decodedSignerCert.Bytes: x509: malformed certificate")?;
    let issuer_key =
        Key::from_pem(ca.key.as_bytes()).map_err(|e| format!("error parsing private key: {e}"))?;
    let template = Template::new(a, a.any(1), a.any(2), a.int(3))?;
    template.issue(&key, &Issuer::of(&parsed, &issuer_key)?)
}

fn given_or_new_key(a: &Args<'_>, index: usize) -> Result<Key, Cause> {
    match a.rest(index) {
        [] => keys::rsa_2048(a),
        _ => Ok(Key::from_pem(a.bytes(index)).map_err(|e| format!("parsing private key: {e}"))?),
    }
}

/// What a certificate shall say.
struct Template {
    subject: Vec<u8>,
    addresses: Vec<IpAddr>,
    names: Vec<Text>,
    not_before: Vec<u8>,
    not_after: Vec<u8>,
    authority: bool,
}

impl Template {
    fn new(a: &Args<'_>, addresses: &Value, names: &Value, days: i64) -> Result<Self, Cause> {
        // Go's durations are nanoseconds, and wrap.
        const DAY_NANOS: i64 = 86_400_000_000_000;
        let addresses = items(addresses).iter().map(address).collect::<Result<_, _>>()?;
        let names = items(names).iter().map(dns_name).collect::<Result<_, _>>()?;
        let now = a.engine.shared.options.clock.now();
        let nanos = i128::from(now.unix_nanos()) + i128::from(days.wrapping_mul(DAY_NANOS));
        let until = i64::try_from(nanos.div_euclid(1_000_000_000)).unwrap_or(i64::MAX);
        Ok(Self {
            subject: name(a.bytes(0))?,
            addresses,
            names,
            not_before: time(now.unix())?,
            not_after: time(until)?,
            authority: false,
        })
    }

    /// Signs what the template says about the key.
    fn issue(&self, key: &Key, issuer: &Issuer<'_>) -> Answer {
        let failed = |e: String| format!("error creating certificate: {e}");
        let algorithm = issuer.key.signature_algorithm().map_err(failed)?;
        let (key_algorithm, key_bits) = key.public().map_err(failed)?;
        if issuer.key.public().map_err(failed)?.1 != issuer.public_bits {
            return Err(
                failed("x509: provided PrivateKey doesn't match parent's PublicKey".to_owned()).into()
            );
        }
        let validity = der::sequence(&[&self.not_before, &self.not_after]);
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
        let signature = issuer.key.sign(&body).map_err(failed)?;
        let certificate = der::sequence(&[&body, &algorithm, &der::bit_string(&signature)]);
        let cert = Text::from(pem("CERTIFICATE", &certificate));
        Ok(Value::native(Pair { cert, key: Text::from(key.to_pem()) }))
    }

    fn extensions(&self, key_bits: &[u8], issuer: &Issuer<'_>) -> Result<Vec<Vec<u8>>, Cause> {
        /// Server and client authentication.
        const EXTENDED_USAGE: [u8; 22] =
            [0x30, 0x14, 0x06, 0x08, 0x2b, 6, 1, 5, 5, 7, 3, 1, 0x06, 0x08, 0x2b, 6, 1, 5, 5, 7, 3, 2];
        // Digital signature, key encipherment, and for an authority signing certificates: bits from the left.
        let usage: u8 = if self.authority { 0xa4 } else { 0xa0 };
        let unused = if self.authority { 2 } else { 5 };
        let constraints = if self.authority { &der::BOOLEAN_TRUE[..] } else { &[] };
        let mut out = vec![
            extension(0x0f, true, &[der::BIT_STRING, 2, unused, usage]),
            extension(0x25, false, &EXTENDED_USAGE),
            extension(0x13, true, &der::sequence(&[constraints])),
        ];
        if self.authority {
            let id = digest::digest(&digest::SHA256, key_bits);
            out.push(extension(0x0e, false, &der::element(der::OCTET_STRING, &id.as_ref()[..20])));
        }
        if issuer.name != self.subject && !issuer.key_id.is_empty() {
            let id = der::element(0x80, &issuer.key_id);
            out.push(extension(0x23, false, &der::sequence(&[&id])));
        }
        if !self.names.is_empty() || !self.addresses.is_empty() {
            let mut names: Vec<Vec<u8>> = Vec::new();
            for name in &self.names {
                if !name.as_bytes().is_ascii() {
                    let shown = super::super::super::unquote::quote(name.as_bytes());
                    let message = format!("x509: {shown} cannot be encoded as an IA5String");
                    return Err(format!("error creating certificate: {message}").into());
                }
                names.push(der::element(0x82, name.as_bytes()));
            }
            names.extend(self.addresses.iter().map(|address| match address.to_canonical() {
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

/// Who signs.
struct Issuer<'k> {
    name: Vec<u8>,
    /// What its certificate says is its key.
    public_bits: Vec<u8>,
    /// The identifier of that key, if the certificate has one.
    key_id: Vec<u8>,
    key: &'k Key,
}

impl<'k> Issuer<'k> {
    fn itself(template: &Template, key: &'k Key) -> Result<Self, Cause> {
        let name = template.subject.clone();
        // A key that cannot sign is told first, then one that cannot be certified.
        let certified = key.signature_algorithm().and_then(|_| key.public());
        let (_, public_bits) = certified.map_err(|e| format!("error creating certificate: {e}"))?;
        Ok(Self { name, public_bits, key_id: Vec::new(), key })
    }

    fn of(certificate: &X509Certificate<'_>, key: &'k Key) -> Result<Self, Cause> {
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

fn items(list: &Value) -> Vec<Value> {
    match list {
        Value::List(list) => list.items().to_vec(),
        _ => Vec::new(),
    }
}

fn address(item: &Value) -> Result<IpAddr, Cause> {
    let Value::Str(text) = item else {
        let shown = super::super::to_text(item)?;
        return Err(format!("error parsing ip: {} is not a string", shown.to_str()).into());
    };
    let text = text.to_str();
    Ok(text.parse().map_err(|_| format!("error parsing ip: {text}"))?)
}

fn dns_name(item: &Value) -> Result<Text, Cause> {
    if let Value::Str(text) = item {
        return Ok(text.clone());
    }
    let shown = super::super::to_text(item)?;
    Err(format!("error processing alternate dns name: {} is not a string", shown.to_str()).into())
}

/// A distinguished name with at most a common name.
fn name(common: &[u8]) -> Result<Vec<u8>, Cause> {
    const COMMON_NAME: [u8; 3] = [0x55, 0x04, 0x03];
    if common.is_empty() {
        return Ok(der::sequence(&[]));
    }
    let invalid = "error creating certificate: asn1: string not valid UTF-8";
    std::str::from_utf8(common).map_err(|_| invalid)?;
    let attribute = der::sequence(&[&der::oid(&COMMON_NAME), &der::text(common)]);
    Ok(der::sequence(&[&der::element(der::SET, &attribute)]))
}

/// RFC 5280: two digits of the year until 2049.
fn time(unix_s: i64) -> Result<Vec<u8>, Cause> {
    let civil = Civil::of_unix(unix_s, 0, 0);
    let text = |pattern| layout::format_civil(&civil, pattern);
    match civil.year {
        1950..2050 => Ok(der::element(der::UTC_TIME, text("060102150405Z").as_bytes())),
        0..=9999 => Ok(der::element(der::GENERALIZED_TIME, text("20060102150405Z").as_bytes())),
        _ => {
            Err("error creating certificate: asn1: structure error: cannot represent time as GeneralizedTime"
                .into())
        }
    }
}
