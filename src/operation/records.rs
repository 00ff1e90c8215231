//! The DNS records of a Shoot's API server: `<shoot>-internal` and `<shoot>-external`.

use serde_json::Value;

use crate::api::core::SECRET;
use crate::api::extensions::DNS_RECORD;
use crate::api::meta::{Key, text};
use crate::base::json::json;
use crate::extension::{DesiredExtension, ExtensionObject, ExtensionPatience, dns_record};
use crate::flow::{Failed, TaskStep};
use crate::kube::{Garden, Seed};
use crate::runtime::write;

use super::objects::{Desired, Leaving, ObjectRow};
use super::requests;
use super::work::Work;

/// The role of the record in the internal domain.
pub(super) const INTERNAL: &str = "internal";
/// The role of the record in the owner's domain.
pub(super) const EXTERNAL: &str = "external";

#[derive(Clone, PartialEq, Eq, Debug)]
struct Record {
    /// Either `internal` or `external`.
    role: &'static str,
    /// The namespace of the control plane.
    namespace: String,
    /// The name of the Shoot.
    shoot: String,
    /// The type of its provider.
    provider: String,
    /// The provider's zone, if known.
    zone: Option<String>,
    domain: String,
    /// The address of the API server: an IP address or a name.
    address: String,
    /// A number of seconds.
    ttl: u32,
    /// The Secret of the garden with the provider's credentials.
    credentials: Key,
}

impl Record {
    fn target(&self) -> ExtensionObject {
        target(&self.namespace, &self.shoot, self.role)
    }

    fn secret(&self) -> Key {
        Key::new(self.namespace.as_str(), format!("dnsrecord-{}-{}", self.shoot, self.role))
    }

    fn desired(&self) -> DesiredExtension {
        let is_ipv6 = dns_record::record_type(&self.address) == "AAAA";
        let record = dns_record::Record {
            provider: &json!(self.provider),
            secret: &self.secret(),
            name: &self.domain,
            address: &self.address,
            ip_stack: if is_ipv6 { "ipv6" } else { "ipv4" },
        };
        let mut content = record.desired();
        content.spec["ttl"] = json!(self.ttl);
        if let Some(zone) = &self.zone {
            content.spec["zone"] = json!(zone);
        }
        content.labels = [("gardener.cloud/role", "controlplane"), ("role", self.role)]
            .map(|(key, value)| (key.to_owned(), json!(value)))
            .into_iter()
            .collect();
        content
    }
}

/// The record in the internal domain.
pub(super) const INTERNAL_RECORD: ObjectRow = ObjectRow {
    cluster: |work| &work.env.seed.0,
    desired: |work| Ok(desired(work, INTERNAL)),
    write: |work, desired| deploy(work, INTERNAL, requests::INTERNAL_RECORD, desired),
    leaving: |work| leaving(work, INTERNAL),
    moving: |work| leaving(work, INTERNAL),
};

/// The record in the owner's domain.
pub(super) const EXTERNAL_RECORD: ObjectRow = ObjectRow {
    cluster: |work| &work.env.seed.0,
    desired: |work| Ok(desired(work, EXTERNAL)),
    write: |work, desired| deploy(work, EXTERNAL, requests::EXTERNAL_RECORD, desired),
    leaving: |work| leaving(work, EXTERNAL),
    moving: |work| leaving(work, EXTERNAL),
};

fn desired(work: &Work, role: &'static str) -> Vec<Desired> {
    let of = |record: Record| Desired {
        target: record.target(),
        content: record.desired(),
        patience: ExtensionPatience::of(&DNS_RECORD),
    };
    wanted(work, role).map(of).into_iter().collect()
}

/// Writes a record with the credentials of its provider. The garden may request that it is written even if nothing has
/// changed. Not finished while an older record must be deleted first.
fn deploy(work: &Work, role: &'static str, request: &str, desired: &Desired) -> Result<TaskStep, Failed> {
    if let Some(record) = wanted(work, role) {
        copy_credentials(&work.env.garden, &work.env.seed, &record)?;
    }
    if work.facts.restores() {
        return desired.restore(work);
    }
    let is_asked = !work.facts.operation.is_deletion() && requests::asks(&work.shoot, request);
    desired.target.deploy_or_replace(&work.env.seed, &desired.content, is_asked, work.now())
}

/// The record, also of a domain that the Shoot does not have any more.
fn leaving(work: &Work, role: &str) -> Result<Vec<Leaving>, Failed> {
    Leaving::live(&work.env.seed, target(work.plane(), &work.view.name, role))
}

/// The record, if the domain is managed and the address of the API server is known.
fn wanted(work: &Work, role: &'static str) -> Option<Record> {
    let view = &work.view;
    let dns = if role == INTERNAL { Some(&view.internal) } else { view.external.as_ref() };
    let (dns, outside) = (dns.filter(|dns| dns.is_managed())?, work.outside()?);
    Some(Record {
        role,
        namespace: view.technical_id.clone(),
        shoot: view.name.clone(),
        provider: dns.provider.clone(),
        zone: Some(dns.zone.clone()).filter(|zone| !zone.is_empty()),
        domain: dns.server(),
        address: outside.host.clone(),
        ttl: work.env.settings.controllers.shoot.dns_entry_ttl_seconds,
        credentials: Key::new(text(&dns.credentials["namespace"]), text(&dns.credentials["name"])),
    })
}

/// The record of a Shoot's role in the namespace of its control plane.
pub(super) fn target(namespace: &str, shoot: &str, role: &str) -> ExtensionObject {
    ExtensionObject { resource: DNS_RECORD, key: Key::new(namespace, format!("{shoot}-{role}")) }
}

fn copy_credentials(garden: &Garden, seed: &Seed, record: &Record) -> Result<(), Failed> {
    let Record { role, credentials, .. } = record;
    let source = garden.find::<Value>(&SECRET, credentials)?.ok_or_else(|| {
        Failed::new(format!(
            "the {role} domain of the Shoot refers to Secret {credentials}, which the garden does not have: create it, or set \
             the provider type to unmanaged"
        ))
    })?;
    write::ensure(seed, &SECRET, &record.secret(), &|copy| {
        copy["type"] = json!(match text(&source["type"]) {
            "" => "Opaque",
            kind => kind,
        });
        copy["data"] = source["data"].clone();
    })?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As the Go gardenlet wrote it for a Shoot with the same names.
    #[test]
    fn a_record_is_as_upstream_writes_it() {
        let mut record = Record {
            role: "internal",
            namespace: "shoot--p--s1".to_owned(),
            shoot: "s1".to_owned(),
            provider: "lab".to_owned(),
            zone: None,
            domain: "api.s1.p.internal.lab.local".to_owned(),
            address: "10.77.0.20".to_owned(),
            ttl: 120,
            credentials: Key::new("garden", "internal"),
        };
        let content = record.desired();
        let expected = json!({"name": "api.s1.p.internal.lab.local", "recordType": "A", "ttl": 120, "type": "lab",
            "secretRef": {"name": "dnsrecord-s1-internal", "namespace": "shoot--p--s1"}, "values": ["10.77.0.20"]});
        assert_eq!(content.spec, expected);
        assert_eq!(
            Value::Object(content.labels),
            json!({"gardener.cloud/role": "controlplane", "role": "internal"})
        );
        assert_eq!(Value::Object(content.annotations), json!({"dns.gardener.cloud/ip-stack": "ipv4"}));
        let table = [("2001:db8::1", "AAAA"), ("lb.example.org", "CNAME"), ("10.0.0.1", "A")];
        for (address, kind) in table {
            record.address = address.to_owned();
            assert_eq!(record.desired().spec["recordType"], kind, "{address}");
        }
        record.zone = Some("z".to_owned());
        assert_eq!(record.desired().spec["zone"], "z");
        assert_eq!(record.target().key.name, "s1-internal");
    }
}
