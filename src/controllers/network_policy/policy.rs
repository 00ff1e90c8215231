//! A desired NetworkPolicy, and the digest of a live one: a text that is equal if nothing needs to be written.

use serde_json::Value;

use crate::api::core::NETWORK_POLICY;
use crate::api::meta::{Key, annotation, text};
use crate::base::json::json;
use crate::components::managed::sha256_hex;

/// The annotation that every policy of Gardener has.
const DESCRIPTION: &str = "gardener.cloud/description";
/// The labels of policies that a Service requests.
const SERVICE_NAME: &str = "networking.resources.gardener.cloud/service-name";
const SERVICE_NAMESPACE: &str = "networking.resources.gardener.cloud/service-namespace";

/// The policy that closes a namespace.
pub(super) const DENY_ALL: &str = "deny-all";
/// The names of the central policies.
pub(super) const CENTRAL: [&str; 6] = [
    "allow-to-blocked-cidrs",
    "allow-to-dns",
    "allow-to-private-networks",
    "allow-to-public-networks",
    "allow-to-runtime-apiserver",
    DENY_ALL,
];

/// The length of a digest that distinguishes two policies.
const DIGEST_LENGTH: usize = 24;
/// A placeholder for the namespace of a policy in digests, so that the policies of all Shoots are equal. No text of an
/// API object contains it.
const HERE: &str = "\u{1}";
/// The separator between the parts of a digest.
const BETWEEN: char = '\u{2}';

#[derive(Clone, Debug, PartialEq)]
pub(super) struct Policy {
    pub(super) name: String,
    /// The Service that requests it; `None` for a central policy.
    pub(super) service: Option<Key>,
    pub(super) description: String,
    pub(super) spec: Value,
}

impl Policy {
    /// Sets the live object, or an empty one, to the desired state. Labels and annotations of other writers stay.
    pub(super) fn fill(&self, object: &mut Value) {
        let metadata = &mut object["metadata"];
        metadata["annotations"][DESCRIPTION] = json!(self.description);
        if let Some(service) = &self.service {
            metadata["labels"][SERVICE_NAME] = json!(service.name);
            metadata["labels"][SERVICE_NAMESPACE] = json!(service.namespace);
        }
        object["spec"] = normal(&self.spec);
    }

    /// The digest of the object that [`Self::fill`] creates.
    pub(super) fn look(&self, namespace: &str) -> String {
        let mut object = json!({"metadata": {"namespace": namespace, "name": self.name}});
        self.fill(&mut object);
        look(&object)
    }

    /// The object to create.
    pub(super) fn object(&self, namespace: &str) -> Value {
        let mut object = json!({
            "apiVersion": NETWORK_POLICY.api_version(),
            "kind": NETWORK_POLICY.kind,
            "metadata": {"namespace": namespace, "name": self.name},
        });
        self.fill(&mut object);
        object
    }
}

/// What a digest tells about a live policy of ours.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct LivePolicy {
    pub(super) name: String,
    /// The Service that requested it; `None` for a central policy.
    pub(super) service: Option<Key>,
}

/// The digest of a live policy; empty if it is not ours.
pub(super) fn look(object: &Value) -> String {
    let metadata = &object["metadata"];
    let (namespace, name) = (text(&metadata["namespace"]), text(&metadata["name"]));
    let description = annotation(object, DESCRIPTION);
    let label = |key: &str| text(&metadata["labels"][key]);
    let service = (label(SERVICE_NAMESPACE), label(SERVICE_NAME));
    let is_asked_for = !service.0.is_empty() && !service.1.is_empty();
    // The description distinguishes it from an operator's policy with the same name.
    if !is_asked_for && (description.is_empty() || !CENTRAL.contains(&name)) {
        return String::new();
    }
    // A policy with the name of a central one is a central one, whatever its labels are.
    let service = if is_asked_for && !CENTRAL.contains(&name) { service } else { ("", "") };
    let here = |text: &str| text.replace(namespace, HERE);
    let content = here(&format!("{description}{BETWEEN}{}", normal(&object["spec"])));
    let digest = sha256_hex(content.as_bytes());
    let digest = digest.get(..DIGEST_LENGTH).unwrap_or_default();
    [here(name).as_str(), here(service.0).as_str(), here(service.1).as_str(), digest]
        .join(&String::from(BETWEEN))
}

pub(super) fn seen(look: &str, namespace: &str) -> Option<LivePolicy> {
    let mut parts = look.split(BETWEEN).map(|part| part.replace(HERE, namespace));
    let (name, of, service) = (parts.next()?, parts.next()?, parts.next()?);
    let service = (!service.is_empty()).then(|| Key::new(of, service));
    (!name.is_empty()).then_some(LivePolicy { name, service })
}

/// A spec as an API server stores it: without empty lists, and with the protocol of each port.
fn normal(spec: &Value) -> Value {
    let mut spec = spec.clone();
    for direction in ["ingress", "egress"] {
        for rule in spec[direction].as_array_mut().into_iter().flatten() {
            for port in rule["ports"].as_array_mut().into_iter().flatten() {
                if port["protocol"].is_null() {
                    port["protocol"] = json!("TCP");
                }
            }
        }
    }
    prune(&mut spec);
    spec
}

fn prune(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.values_mut().for_each(prune);
            fields
                .retain(|_, field| !field.is_null() && field.as_array().is_none_or(|list| !list.is_empty()));
        }
        Value::Array(items) => items.iter_mut().for_each(prune),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::look as look_at;
    use super::*;

    fn policy(service: Option<Key>) -> Policy {
        let spec = json!({"podSelector": {}, "ingress": [], "egress": [{"ports": [{"port": 443}], "to": []}],
            "policyTypes": ["Egress"]});
        let name = if service.is_some() { "egress-to-b-x" } else { "allow-to-dns" };
        Policy { name: name.to_owned(), service, description: "From a to b.".to_owned(), spec }
    }

    #[test]
    fn the_digest_is_that_of_the_stored_policy_and_equal_in_all_namespaces() {
        for service in [None, Some(Key::new("b", "x")), Some(Key::new("a", "x"))] {
            let policy = policy(service.clone());
            let stored = policy.object("a");
            let expected = json!({"podSelector": {}, "egress": [{"ports": [{"port": 443, "protocol": "TCP"}]}],
                "policyTypes": ["Egress"]});
            assert_eq!(stored["spec"], expected);
            let look = policy.look("a");
            assert_eq!(look_at(&stored), look);
            assert_eq!(seen(&look, "a"), Some(LivePolicy { name: policy.name.clone(), service }));
            let other = Policy { description: "From c to b.".to_owned(), ..policy.clone() };
            assert_ne!(other.look("a"), look);
        }
        let of = |namespace: &str| {
            let policy = Policy {
                description: format!("Within shoot--p--{namespace}."),
                ..policy(Some(Key::new(format!("shoot--p--{namespace}"), "x")))
            };
            policy.look(&format!("shoot--p--{namespace}"))
        };
        assert_eq!(of("one"), of("two"));
    }

    #[test]
    fn every_change_of_a_policy_shows() {
        let stored = policy(Some(Key::new("b", "x"))).object("a");
        let look = look_at(&stored);
        let table = [
            ("/metadata/annotations/gardener.cloud~1description", json!("other")),
            ("/metadata/labels/networking.resources.gardener.cloud~1service-name", json!("y")),
            ("/spec/podSelector", json!({"matchLabels": {"a": "b"}})),
            ("/spec/egress/0/ports/0/port", json!(444)),
            ("/spec/policyTypes/0", json!("Ingress")),
        ];
        for (place, value) in table {
            let mut other = stored.clone();
            *other.pointer_mut(place).unwrap() = value;
            assert_ne!(look_at(&other), look, "{place}");
        }
        let mut others = stored.clone();
        others["metadata"]["annotations"]["a"] = json!("b");
        others["metadata"]["labels"]["a"] = json!("b");
        others["metadata"]["resourceVersion"] = json!("7");
        assert_eq!(look_at(&others), look, "additions of others are ignored");
    }

    #[test]
    fn policies_of_others_are_not_ours() {
        let mut own = policy(None).object("a");
        own["metadata"]["annotations"] = json!({});
        assert_eq!(look(&own), "", "an operator may use the name");
        let other = json!({"metadata": {"namespace": "a", "name": "other", "annotations": {DESCRIPTION: "x"}}, "spec": {}});
        assert_eq!(look(&other), "");
        assert_eq!(seen("", "a"), None);
    }
}
