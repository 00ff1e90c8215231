//! What the DNS records of a Seed and of a Shoot have in common.

use std::net::IpAddr;

use serde_json::Value;

use super::DesiredExtension;
use crate::api::meta::Key;
use crate::base::json::json;

/// A desired DNSRecord.
pub(crate) struct Record<'a> {
    /// The type of the provider.
    pub(crate) provider: &'a Value,
    /// The Secret of the seed with the credentials of the provider.
    pub(crate) secret: &'a Key,
    pub(crate) name: &'a str,
    /// An IP address or a name.
    pub(crate) address: &'a str,
    /// Either `ipv4`, `ipv6` or `dual-stack`.
    pub(crate) ip_stack: &'a str,
}

/// The type of a record with this address.
pub(crate) fn record_type(address: &str) -> &'static str {
    match address.parse() {
        Ok(IpAddr::V4(_)) => "A",
        Ok(IpAddr::V6(_)) => "AAAA",
        Err(_) => "CNAME",
    }
}

impl Record<'_> {
    pub(crate) fn desired(&self) -> DesiredExtension {
        let mut desired = DesiredExtension::new(json!({
            "type": self.provider,
            "secretRef": {"name": self.secret.name, "namespace": self.secret.namespace},
            "name": self.name,
            "recordType": record_type(self.address),
            "values": [self.address],
        }));
        desired.annotations.insert("dns.gardener.cloud/ip-stack".to_owned(), json!(self.ip_stack));
        desired
    }
}
