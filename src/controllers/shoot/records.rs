//! The DNS records of a Shoot's API server: `<shoot>-internal` and `<shoot>-external`.

use std::net::IpAddr;

use serde_json::{Value, json};

use crate::api::core::SECRET;
use crate::api::extensions::DNS_RECORD;
use crate::api::meta::{Key, text};
use crate::base::clock::Timestamp;
use crate::extension::{Patience, Target, Wish};
use crate::flow::{Attempt, Failed, Step};
use crate::kube::{Garden, Seed};
use crate::runtime::write;

/// A desired record.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Record {
    /// `internal` or `external`.
    pub(super) role: &'static str,
    /// The namespace of the control plane.
    pub(super) namespace: String,
    /// The name of the Shoot.
    pub(super) shoot: String,
    /// The type of its provider.
    pub(super) provider: String,
    /// The provider's zone, if known.
    pub(super) zone: Option<String>,
    /// Its domain name.
    pub(super) domain: String,
    /// The address of the API server: an IP address or a name.
    pub(super) address: String,
    /// In seconds.
    pub(super) ttl: u32,
    /// The Secret of the garden with the provider's credentials.
    pub(super) credentials: Key,
}

impl Record {
    fn name(&self) -> String {
        format!("{}-{}", self.shoot, self.role)
    }

    fn secret(&self) -> Key {
        Key::new(self.namespace.as_str(), format!("dnsrecord-{}", self.name()))
    }

    fn target(&self) -> Target {
        Target { resource: DNS_RECORD, key: Key::new(self.namespace.as_str(), self.name()) }
    }

    /// Waits until its extension has created it.
    pub(super) fn wait(&self, seed: &Seed, attempt: &Attempt) -> Result<Step, Failed> {
        self.target().wait_ready(seed, Patience::of(&DNS_RECORD), attempt)
    }

    fn wish(&self) -> Wish {
        let kind = match self.address.parse() {
            Ok(IpAddr::V4(_)) => "A",
            Ok(IpAddr::V6(_)) => "AAAA",
            Err(_) => "CNAME",
        };
        let mut wish = Wish::new(json!({
            "type": self.provider,
            "secretRef": {"name": self.secret().name, "namespace": self.namespace},
            "name": self.domain,
            "recordType": kind,
            "values": [self.address],
            "ttl": self.ttl,
        }));
        if let Some(zone) = &self.zone {
            wish.spec["zone"] = json!(zone);
        }
        wish.labels = [("gardener.cloud/role", "controlplane"), ("role", self.role)]
            .map(|(key, value)| (key.to_owned(), json!(value)))
            .into_iter()
            .collect();
        let stack = if kind == "AAAA" { "ipv6" } else { "ipv4" };
        wish.annotations.insert("dns.gardener.cloud/ip-stack".to_owned(), json!(stack));
        wish
    }
}

/// Writes the record with the credentials of its provider. Not finished while an older record must be deleted first.
pub(super) fn deploy(
    (garden, seed): (&Garden, &Seed),
    record: &Record,
    is_asked: bool,
    now: Timestamp,
) -> Result<Step, Failed> {
    bring_credentials(garden, seed, record)?;
    record.target().deploy_or_replace(seed, &record.wish(), is_asked, now)
}

/// Deletes a Shoot's record from the namespace of its control plane, and waits until it is gone.
pub(super) fn destroy(
    seed: &Seed,
    (namespace, shoot, role): (&str, &str, &str),
    attempt: &Attempt,
    now: Timestamp,
) -> Result<Step, Failed> {
    let name = format!("{shoot}-{role}");
    let target = Target { resource: DNS_RECORD, key: Key::new(namespace, name) };
    match target.find(seed)? {
        None => return Ok(Step::Done),
        Some(live) if live["metadata"]["deletionTimestamp"].is_null() => target.delete(seed, now)?,
        Some(_) => {}
    }
    target.wait_gone(seed, Patience::of(&DNS_RECORD), attempt)
}

fn bring_credentials(garden: &Garden, seed: &Seed, record: &Record) -> Result<(), Failed> {
    let Record { role, credentials, .. } = record;
    let source = garden.find::<Value>(&SECRET, credentials)?.ok_or_else(|| {
        Failed::new(format!(
            "the {role} domain of the Shoot refers to Secret {credentials}, which the garden does not have: create it, or set \
             the provider type to unmanaged"
        ))
    })?;
    write::ensure(seed, &SECRET, &record.secret(), |copy| {
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
        let wish = record.wish();
        let expected = json!({"name": "api.s1.p.internal.lab.local", "recordType": "A", "ttl": 120, "type": "lab",
            "secretRef": {"name": "dnsrecord-s1-internal", "namespace": "shoot--p--s1"}, "values": ["10.77.0.20"]});
        assert_eq!(wish.spec, expected);
        assert_eq!(
            Value::Object(wish.labels),
            json!({"gardener.cloud/role": "controlplane", "role": "internal"})
        );
        assert_eq!(Value::Object(wish.annotations), json!({"dns.gardener.cloud/ip-stack": "ipv4"}));
        let table = [("2001:db8::1", "AAAA"), ("lb.example.org", "CNAME"), ("10.0.0.1", "A")];
        for (address, kind) in table {
            record.address = address.to_owned();
            assert_eq!(record.wish().spec["recordType"], kind, "{address}");
        }
        record.zone = Some("z".to_owned());
        assert_eq!(record.wish().spec["zone"], "z");
        assert_eq!(record.target().key.name, "s1-internal");
    }
}
