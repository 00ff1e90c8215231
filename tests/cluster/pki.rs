//! The certificate authority of a cluster and what it signs. Everything is ECDSA, because it is quick to make.

use std::fs;
use std::path::Path;

use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer,
    KeyPair, KeyUsagePurpose,
};

use crate::failure::{Doing, Result};

/// A certificate and its key, in PEM.
#[derive(Clone, Debug)]
pub(crate) struct Identity {
    pub(crate) certificate: String,
    pub(crate) key: String,
}

impl Identity {
    /// Writes `<folder>/<name>.crt` and `<folder>/<name>.key`.
    pub(crate) fn write(&self, folder: &Path, name: &str) -> Result<()> {
        write(&folder.join(format!("{name}.crt")), &self.certificate)?;
        write(&folder.join(format!("{name}.key")), &self.key)
    }
}

/// A certificate authority.
pub(crate) struct Authority {
    pub(crate) identity: Identity,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    pub(crate) fn new(name: &str) -> Result<Self> {
        let mut params = params(name, None, &[])?;
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages =
            vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign, KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages.clear();
        let key = KeyPair::generate()?;
        let certificate = params.self_signed(&key)?.pem();
        let identity = Identity { certificate, key: key.serialize_pem() };
        Ok(Self { identity, issuer: Issuer::new(params, key) })
    }

    /// A certificate for a user, perhaps with a group, or for a server with names and addresses.
    pub(crate) fn sign(&self, name: &str, group: Option<&str>, hosts: &[&str]) -> Result<Identity> {
        let key = KeyPair::generate()?;
        let certificate = params(name, group, hosts)?.signed_by(&key, &self.issuer)?.pem();
        Ok(Identity { certificate, key: key.serialize_pem() })
    }
}

fn params(name: &str, group: Option<&str>, hosts: &[&str]) -> Result<CertificateParams> {
    let hosts: Vec<String> = hosts.iter().map(|&host| host.to_owned()).collect();
    let mut params = CertificateParams::new(hosts)?;
    let mut subject = DistinguishedName::new();
    subject.push(DnType::CommonName, name);
    if let Some(group) = group {
        subject.push(DnType::OrganizationName, group);
    }
    params.distinguished_name = subject;
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature, KeyUsagePurpose::KeyEncipherment];
    params.extended_key_usages =
        vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
    Ok(params)
}

/// A key pair for signing tokens: private, public.
pub(crate) fn token_keys() -> Result<(String, String)> {
    let key = KeyPair::generate()?;
    Ok((key.serialize_pem(), key.public_key_pem()))
}

pub(crate) fn write(path: &Path, text: &str) -> Result<()> {
    fs::write(path, text).doing(|| format!("write {}", path.display()))
}
