//! The DNS record of the seed's ingress domain, `garden/seed-ingress`: it resolves all names of the domain to the
//! ingress gateway.
//!
//! Upstream installs the gateway and uses the address of its Service. This agent installs none, but another gardenlet
//! may have left one, or the seed's operator may have installed one. So the Service that `sni.ingress` names decides.
//! Without one of type LoadBalancer, nothing is written, and an existing record stays as it is.

use std::time::Duration;

use serde_json::Value;

use crate::api::core::{SECRET, SERVICE};
use crate::api::extensions::DNS_RECORD;
use crate::api::meta::{Key, text};
use crate::api::resources::GARDEN_NAMESPACE;
use crate::base::json::json;
use crate::extension::dns_record::Record;
use crate::extension::{DesiredExtension, ExtensionObject, ExtensionPatience};
use crate::flow::{Attempt, Failed, TaskStep};
use crate::kube::{Error, Garden, ListParams, Seed};
use crate::runtime::write;

use super::work::Work;

/// The name of the record, and of the Secret with its provider's credentials.
const NAME: &str = "seed-ingress";
/// As long as upstream waits for an address.
const ADDRESS_WITHIN: Duration = Duration::from_secs(60);
const ADDRESS_PERIOD: Duration = Duration::from_secs(5);
/// A record of another type has to be deleted first.
pub(super) const WITHIN: Duration = Duration::from_secs(120);

pub(super) fn target() -> ExtensionObject {
    ExtensionObject { resource: DNS_RECORD, key: Key::new(GARDEN_NAMESPACE, NAME) }
}

/// The Secret with the credentials.
pub(super) fn secret() -> Key {
    Key::new(GARDEN_NAMESPACE, NAME)
}

/// Writes the record once the gateway has an address.
pub(super) fn deploy(work: &mut Work, attempt: &Attempt) -> Result<TaskStep, Failed> {
    let gateway = &work.site.settings.ingress_gateway;
    let service = service(&work.site.seed, gateway)?;
    let Some(service) = service.filter(|service| service["spec"]["type"] == "LoadBalancer") else {
        return Ok(TaskStep::Done);
    };
    let Some(address) = address(&service) else {
        let why = format!("Service {gateway} has no address of a load balancer yet");
        if attempt.now.saturating_sub(attempt.begun) >= ADDRESS_WITHIN {
            return Err(Failed::new(why));
        }
        return Ok(TaskStep::again(ADDRESS_PERIOD, why));
    };
    copy_credentials(&work.site.garden, &work.site.seed, &work.live)?;
    work.has_record = true;
    target().deploy_if_needed(&work.site.seed, &desired(&work.live, address), work.place.clock.now())
}

/// Waits until its extension has created the record.
pub(super) fn wait(work: &Work, attempt: &Attempt) -> Result<TaskStep, Failed> {
    if !work.has_record {
        return Ok(TaskStep::Done);
    }
    target().wait_ready(&work.site.seed, ExtensionPatience::of(&DNS_RECORD), attempt)
}

/// Found by a list, because the agent has permission to list Services but not to read them.
fn service(seed: &Seed, key: &Key) -> Result<Option<Value>, Error> {
    let params =
        ListParams { field_selector: format!("metadata.name={}", key.name), ..ListParams::default() };
    let mut found = None;
    seed.list_all::<Value>(&SERVICE, &key.namespace, &params, &mut |service| found = Some(service))?;
    Ok(found)
}

/// The last address, as in upstream; the IP address if it has one.
fn address(service: &Value) -> Option<&str> {
    let last = service["status"]["loadBalancer"]["ingress"].as_array()?.last()?;
    ["ip", "hostname"].into_iter().map(|field| text(&last[field])).find(|address| !address.is_empty())
}

fn desired(seed: &Value, address: &str) -> DesiredExtension {
    let spec = &seed["spec"];
    let (secret, name) = (secret(), format!("*.{}", text(&spec["ingress"]["domain"])));
    let provider = &spec["dns"]["provider"]["type"];
    Record { provider, secret: &secret, name: &name, address, ip_stack: ip_stack(spec) }.desired()
}

fn ip_stack(spec: &Value) -> &'static str {
    let families = spec["networks"]["ipFamilies"].as_array().map(Vec::as_slice).unwrap_or_default();
    match families {
        [] => "ipv4",
        [one] if one == "IPv6" => "ipv6",
        [_] => "ipv4",
        _ => "dual-stack",
    }
}

/// Copies the provider's credentials from the garden to the seed.
pub(super) fn copy_credentials(garden: &Garden, seed: &Seed, live: &Value) -> Result<(), Failed> {
    let provider = &live["spec"]["dns"]["provider"];
    let reference = ["credentialsRef", "secretRef"].map(|field| &provider[field]);
    let reference = reference.into_iter().find(|reference| reference.is_object()).unwrap_or(&Value::Null);
    let (namespace, name) = (text(&reference["namespace"]), text(&reference["name"]));
    let kind = reference["kind"].as_str().unwrap_or("Secret");
    if kind != "Secret" {
        return Err(Failed::new(format!(
            "spec.dns.provider of the Seed refers to {kind} {namespace}/{name}: this version supports only a Secret"
        )));
    }
    let source = garden.find::<Value>(&SECRET, &Key::new(namespace, name))?.ok_or_else(|| {
        Failed::new(format!(
            "spec.dns.provider of the Seed refers to Secret {namespace}/{name}, which the garden does not have"
        ))
    })?;
    write::ensure(seed, &SECRET, &secret(), &|copy| set_copy(copy, &source))?;
    Ok(())
}

fn set_copy(copy: &mut Value, source: &Value) {
    if let Some(metadata) = copy["metadata"].as_object_mut() {
        metadata.retain(|field, _| !["labels", "annotations"].contains(&field.as_str()));
    }
    copy["type"] = json!("Opaque");
    copy["data"] = source["data"].clone();
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::extension::dns_record::record_type;

    #[test]
    fn targets_of_the_domain() {
        let service = |ingress: Value| json!({"status": {"loadBalancer": {"ingress": ingress}}});
        let table = [
            (json!({"status": {"loadBalancer": {}}}), None),
            (service(json!([])), None),
            (service(json!([{}])), None),
            (service(json!([{"ip": "10.0.0.1"}, {"ip": "10.0.0.2"}])), Some(("10.0.0.2", "A"))),
            (
                service(json!([{"ip": "2001:db8::1", "hostname": "x.example.org"}])),
                Some(("2001:db8::1", "AAAA")),
            ),
            (service(json!([{"ip": "", "hostname": "x.example.org"}])), Some(("x.example.org", "CNAME"))),
        ];
        for (service, expected) in table {
            assert_eq!(address(&service).map(|a| (a, record_type(a))), expected, "{service}");
        }
    }

    #[test]
    fn the_record_as_upstream_writes_it() {
        let seed =
            json!({"spec": {"dns": {"provider": {"type": "lab"}}, "ingress": {"domain": "i.example.org"}}});
        let desired = desired(&seed, "10.0.0.1");
        let expected = json!({
            "type": "lab", "name": "*.i.example.org", "recordType": "A", "values": ["10.0.0.1"],
            "secretRef": {"name": "seed-ingress", "namespace": "garden"},
        });
        assert_eq!(desired.spec, expected);
        assert_eq!(Value::Object(desired.annotations), json!({"dns.gardener.cloud/ip-stack": "ipv4"}));
        let table = [
            (json!([]), "ipv4"),
            (json!(["IPv4"]), "ipv4"),
            (json!(["IPv6"]), "ipv6"),
            (json!(["IPv4", "IPv6"]), "dual-stack"),
        ];
        for (families, expected) in table {
            assert_eq!(ip_stack(&json!({"networks": {"ipFamilies": families}})), expected);
        }
    }

    #[test]
    fn the_copy_has_the_credentials_alone() {
        let source = json!({"metadata": {"labels": {"a": "b"}}, "type": "x", "data": {"k": "dg=="}});
        let mut copy =
            json!({"metadata": {"name": "seed-ingress", "labels": {"c": "d"}}, "data": {"old": "eA=="}});
        set_copy(&mut copy, &source);
        assert_eq!(
            copy,
            json!({"metadata": {"name": "seed-ingress"}, "type": "Opaque", "data": {"k": "dg=="}})
        );
    }
}
