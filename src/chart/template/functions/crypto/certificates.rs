//! Certificates as Go's `crypto/x509` writes them for sprig: for servers and clients, with one common name, valid from
//! now on.

use std::net::IpAddr;

use x509_parser::pem::Pem;
use x509_parser::prelude::{FromDer as _, X509Certificate};

use super::super::{Args, Cause, FunctionResult};
use super::{Pair, RSA_SIGNATURE_STEPS, SIGNATURE_STEPS, keys};
use crate::chart::value::{GoString, Value};
use crate::format::base64;
use crate::pki::issue::{
    Authority, CertificateIssuer, CertificateTemplate, KeyUsage, ServerNames, common_name,
};
use crate::pki::{self, AnyKey};

/// `buildCustomCert`: decodes both parts and checks them.
pub(super) fn build_custom(a: &Args<'_>) -> FunctionResult {
    let cert = base64::decode(a.bytes(0)).map_err(|_| "unable to decode base64 certificate")?;
    let key = base64::decode(a.bytes(1)).map_err(|_| "unable to decode base64 private key")?;
    let block = first_block(&cert)?;
    X509Certificate::from_der(&block.contents)
        .map_err(|_| "error parsing certificate: decodedCert.Bytes: x509: malformed certificate")?;
    AnyKey::from_pem(&key).map_err(|e| format!("error parsing private key: {e}"))?;
    Ok(Value::native(Pair { cert: GoString::from(cert), key: GoString::from(key) }))
}

fn first_block(text: &[u8]) -> Result<Pem, Cause> {
    let block = Pem::iter_from_buffer(text).find_map(Result::ok);
    block.ok_or_else(|| "unable to decode certificate".into())
}

/// `genCA`, `genCAWithKey`.
pub(super) fn authority(a: &Args<'_>) -> FunctionResult {
    let key = given_or_new_key(a, 2)?;
    let template = CertificateTemplate {
        authority: Authority::Certificates,
        ..template(a, &Value::Nil, &Value::Nil, a.int(1))?
    };
    count_signature(a, &key)?;
    issue(&template, &key, CertificateIssuer::itself(&template, &key))
}

/// `genSelfSignedCert`, `genSelfSignedCertWithKey`.
pub(super) fn self_signed(a: &Args<'_>) -> FunctionResult {
    let key = given_or_new_key(a, 4)?;
    let template = template(a, a.any(1), a.any(2), a.int(3))?;
    count_signature(a, &key)?;
    issue(&template, &key, CertificateIssuer::itself(&template, &key))
}

/// `genSignedCert`, `genSignedCertWithKey`.
pub(super) fn signed(a: &Args<'_>) -> FunctionResult {
    let key = given_or_new_key(a, 5)?;
    let Value::Native(object) = a.any(4) else { return Err("no certificate".into()) };
    let ca = object.as_any().downcast_ref::<Pair>().ok_or("no certificate")?;
    let block = first_block(ca.cert.as_bytes())?;
    X509Certificate::from_der(&block.contents)
        .map_err(|_| "error parsing certificate: decodedSignerCert.Bytes: x509: malformed certificate")?;
    let issuer_key =
        AnyKey::from_pem(ca.key.as_bytes()).map_err(|e| format!("error parsing private key: {e}"))?;
    let template = template(a, a.any(1), a.any(2), a.int(3))?;
    count_signature(a, &issuer_key)?;
    issue(&template, &key, CertificateIssuer::of_pem(ca.cert.as_bytes(), &issuer_key))
}

fn count_signature(a: &Args<'_>, key: &AnyKey) -> Result<(), Cause> {
    let steps = if key.is_rsa() { RSA_SIGNATURE_STEPS } else { SIGNATURE_STEPS };
    Ok(a.engine.shared.charge(steps)?)
}

fn issue(
    template: &CertificateTemplate,
    key: &AnyKey,
    issuer: Result<CertificateIssuer<'_>, pki::Error>,
) -> FunctionResult {
    let signed = issuer.and_then(|issuer| template.sign(key, &issuer));
    let cert = signed.map_err(|e| match e {
        pki::Error::Sign(why) => format!("error creating certificate: {why}"),
        other => format!("error creating certificate: {other}"),
    })?;
    Ok(Value::native(Pair { cert: GoString::from(cert), key: GoString::from(key.to_pem()) }))
}

fn given_or_new_key(a: &Args<'_>, index: usize) -> Result<AnyKey, Cause> {
    match a.rest(index) {
        [] => keys::rsa_2048(a),
        _ => Ok(AnyKey::from_pem(a.bytes(index)).map_err(|e| format!("parsing private key: {e}"))?),
    }
}

fn template(a: &Args<'_>, addresses: &Value, names: &Value, days: i64) -> Result<CertificateTemplate, Cause> {
    // Go's durations are nanoseconds, and overflow.
    const DAY_NANOS: i64 = 86_400_000_000_000;
    let addresses = items(addresses).iter().map(address).collect::<Result<_, _>>()?;
    let names = items(names).iter().map(dns_name).collect::<Result<Vec<_>, _>>()?;
    let now = a.engine.shared.options.clock.now();
    let nanos = i128::from(now.unix_nanos()) + i128::from(days.wrapping_mul(DAY_NANOS));
    let invalid = "error creating certificate: asn1: string not valid UTF-8";
    Ok(CertificateTemplate {
        subject: common_name(std::str::from_utf8(a.bytes(0)).map_err(|_| invalid)?),
        names: ServerNames { dns: names.iter().map(ascii).collect::<Result<_, _>>()?, addresses },
        not_before_unix_s: now.unix(),
        not_after_unix_s: i64::try_from(nanos.div_euclid(1_000_000_000)).unwrap_or(i64::MAX),
        usage: Some(KeyUsage::Both),
        authority: Authority::No,
    })
}

fn ascii(name: &GoString) -> Result<String, Cause> {
    if name.as_bytes().is_ascii() {
        return Ok(name.to_str().into_owned());
    }
    let shown = super::super::super::unquote::quote(name.as_bytes());
    let message = format!("x509: {shown} cannot be encoded as an IA5String");
    Err(format!("error creating certificate: {message}").into())
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

fn dns_name(item: &Value) -> Result<GoString, Cause> {
    if let Value::Str(text) = item {
        return Ok(text.clone());
    }
    let shown = super::super::to_text(item)?;
    Err(format!("error processing alternate dns name: {} is not a string", shown.to_str()).into())
}
