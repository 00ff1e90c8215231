//! Certificates that tests make, also unusual ones.

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer,
    KeyPair, KeyUsagePurpose, SanType, date_time_ymd,
};

use support::pki::Identity;

/// A file of `tests/fixtures/certificates`. The script `make` in that folder describes each file.
macro_rules! fixture {
    ($name:literal) => {
        include_str!(concat!("../fixtures/certificates/", $name))
    };
}
pub(crate) use fixture;

/// The default name of the server.
pub const HOST: &str = "api.garden.test";

/// PEM of something that is not a certificate.
pub const JUNK: &str = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";

/// A CA of a test; it signs with its own key.
pub type Ca = CertifiedIssuer<'static, KeyPair>;

pub fn named(name: &str) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, name);
    params.not_before = date_time_ymd(2020, 1, 1);
    params.not_after = date_time_ymd(2120, 1, 1);
    params
}

pub fn ca_params(name: &str) -> CertificateParams {
    let mut params = named(name);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    params
}

pub fn key() -> KeyPair {
    KeyPair::generate().unwrap()
}

pub fn root(params: CertificateParams) -> Ca {
    Ca::self_signed(params, key()).unwrap()
}

pub fn below(parent: &Ca, params: CertificateParams) -> Ca {
    Ca::signed_by(params, key(), parent).unwrap()
}

/// A server certificate for 127.0.0.1 and [`HOST`], with the changes of `change`.
pub fn server(change: impl FnOnce(&mut CertificateParams)) -> CertificateParams {
    let mut params = named("server");
    params.subject_alt_names =
        vec![SanType::IpAddress([127, 0, 0, 1].into()), SanType::DnsName(HOST.try_into().unwrap())];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    change(&mut params);
    params
}

pub fn issued(by: &Issuer<'static, KeyPair>, params: &CertificateParams) -> Identity {
    with_key(by, params, &key())
}

pub fn with_key(by: &Issuer<'static, KeyPair>, params: &CertificateParams, key: &KeyPair) -> Identity {
    Identity { certificate: params.signed_by(key, by).unwrap().pem(), key: key.serialize_pem() }
}

/// A certificate for this name alone.
pub fn only(name: &str) -> CertificateParams {
    server(|p| p.subject_alt_names = vec![SanType::DnsName(name.try_into().unwrap())])
}

pub fn until_2021(mut params: CertificateParams) -> CertificateParams {
    params.not_after = date_time_ymd(2021, 1, 1);
    params
}
