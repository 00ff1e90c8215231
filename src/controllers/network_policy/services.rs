//! The policies that Services request (gardener-resource-manager's `networkpolicy`): they allow traffic to the pods of
//! a Service from pods with certain labels. A policy exists while some pod has its label.

use std::sync::Arc;

use serde_json::Value;

use super::policy::Policy;
use crate::api::meta::{Key, ObjectMeta, text};
use crate::api::selector::selects;
use crate::base::json::json;
use crate::base::sorted::{SortedMap, SortedSet};
use crate::components::managed::sha256_hex;
use crate::format::view;

/// The prefix of labels and annotations.
const PREFIX: &str = "networking.resources.gardener.cloud/";
const SELECTORS: &str = "namespace-selectors";
const ALIAS: &str = "pod-label-selector-namespace-alias";
const WORLD: &str = "from-world-to-ports";
const FROM: (&str, &str) = ("from-", "-allowed-ports");
const ALLOWED: &str = "allowed";
/// The maximum length of a label name, and the length to which a longer one is cut before its digest.
const LABEL_LENGTH_MAX: usize = 63;
const LABEL_LENGTH_CUT: usize = 57;
const DIGEST_LENGTH: usize = 5;

/// All relevant fields of a Service as a text; empty if it requests nothing.
pub(super) fn look(service: &Value) -> String {
    let (metadata, spec) = (&service["metadata"], &service["spec"]);
    let is_selecting = spec["selector"].as_object().is_some_and(|selector| !selector.is_empty());
    if !is_selecting || !metadata["deletionTimestamp"].is_null() {
        return String::new();
    }
    let annotations = metadata["annotations"].as_object().into_iter().flatten();
    let ours: SortedMap<&str, &Value> =
        annotations.filter_map(|(key, value)| Some((key.strip_prefix(PREFIX)?, value))).collect();
    let ports = spec["ports"].as_array().into_iter().flatten();
    let ports: Vec<Value> =
        ports.map(|port| json!({"protocol": port["protocol"], "port": target(port)})).collect();
    json!({"name": metadata["name"], "selector": spec["selector"], "annotations": ours, "ports": ports})
        .to_string()
}

/// A server defaults a missing target port to the port itself.
fn target(port: &Value) -> &Value {
    if port["targetPort"].is_null() { &port["port"] } else { &port["targetPort"] }
}

/// The relevant labels of a pod, one per line; empty if it needs no policy.
pub(super) fn look_of_pod(pod: &Value) -> String {
    let labels = pod["metadata"]["labels"].as_object().into_iter().flatten();
    let ours = labels.filter(|(_, value)| value.as_str() == Some(ALLOWED));
    let ours: Vec<&str> =
        ours.filter_map(|(key, _)| key.strip_prefix(PREFIX)).filter(|name| name.starts_with("to-")).collect();
    ours.join("\n")
}

/// The labels of pods, from their digests.
pub(super) fn carried(pods: &[Arc<str>]) -> SortedSet<String> {
    pods.iter().flat_map(|pod| pod.lines()).map(str::to_owned).collect()
}

/// A port to which policies allow traffic, in the form of a policy.
#[derive(Clone, Debug, PartialEq)]
struct Port {
    protocol: String,
    port: Value,
}

impl Port {
    fn read(port: &Value) -> Self {
        let protocol = port["protocol"].as_str().unwrap_or("TCP").to_owned();
        Self { protocol, port: port["port"].clone() }
    }

    fn name(&self) -> String {
        self.port.as_str().map_or_else(|| self.port.to_string(), str::to_owned)
    }

    fn object(&self) -> Value {
        json!({"protocol": self.protocol, "port": self.port})
    }
}

/// A Service that may request policies.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Service {
    key: Key,
    /// Replaces its namespace in labels of pods elsewhere.
    alias: String,
    selector: Value,
    /// Selectors of namespaces whose pods may connect, besides its own namespace.
    namespaces: Vec<Value>,
    /// Parts of the names of policies, and of the labels of pods.
    ways: Vec<(String, String, Port)>,
    /// Ports that are open to everyone.
    world: Option<Vec<Value>>,
}

/// A Service has an invalid request.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct InvalidRequest {
    pub(super) service: Key,
    pub(super) annotation: String,
}

impl Service {
    /// Parses a text of [`look`]; `None` if it requests nothing.
    pub(super) fn read(namespace: &str, look: &str) -> Result<Option<Self>, InvalidRequest> {
        let Ok(service) = view::json(look.as_bytes()) else { return Ok(None) };
        let (name, annotations) = (text(&service["name"]), &service["annotations"]);
        let list =
            |annotation: &str| match annotations[annotation].as_str().map(|text| view::json(text.as_bytes()))
            {
                None => Ok(None),
                Some(Ok(Value::Null)) => Ok(Some(Vec::new())),
                Some(Ok(Value::Array(items))) if items.iter().all(Value::is_object) => Ok(Some(items)),
                Some(_) => Err(InvalidRequest {
                    service: Key::new(namespace, name),
                    annotation: format!("{PREFIX}{annotation}"),
                }),
            };
        let id = |port: &Port| format!("{name}-{}-{}", port.protocol.to_lowercase(), port.name());
        let ports = service["ports"].as_array().into_iter().flatten().map(Port::read);
        let mut ways: Vec<(String, String, Port)> = ports.map(|port| (id(&port), id(&port), port)).collect();
        for annotation in annotations.as_object().into_iter().flatten().map(|(annotation, _)| annotation) {
            let Some(from) = annotation.strip_prefix(FROM.0).and_then(|rest| rest.strip_suffix(FROM.1))
            else {
                continue;
            };
            for port in list(annotation)?.unwrap_or_default().iter().map(Port::read) {
                ways.push((format!("{}-via-{from}", id(&port)), from.to_owned(), port));
            }
        }
        let alias = annotations[ALIAS].as_str().unwrap_or(namespace).to_owned();
        let namespaces = list(SELECTORS)?.unwrap_or_default();
        // Without a port, the policy would open all of them.
        let world = list(WORLD)?.filter(|ports| !ports.is_empty());
        let selector = json!({"matchLabels": service["selector"]});
        Ok(Some(Self { key: Key::new(namespace, name), alias, selector, namespaces, ways, world }))
    }

    /// Whether pods of another namespace may connect to it.
    pub(super) fn is_open_to(&self, namespace: &ObjectMeta) -> bool {
        namespace.name != self.key.namespace
            && self.namespaces.iter().any(|selector| selects(selector, &namespace.labels))
    }

    /// The policies in its own namespace. `carried` has the pod labels of its namespace and of those to
    /// which it is open.
    pub(super) fn within(&self, carried: &SortedMap<&str, Arc<SortedSet<String>>>) -> Vec<Policy> {
        let mut policies: Vec<Policy> = self.world().into_iter().collect();
        for (namespace, labels) in carried {
            let is_own = *namespace == self.key.namespace;
            for (id, label, port) in self.wanted(is_own, labels) {
                policies.push(self.ingress(namespace, &id, &label, port));
                if is_own {
                    policies.push(self.egress(namespace, &id, &label, port));
                }
            }
        }
        policies
    }

    /// The policies in another namespace to which it is open.
    pub(super) fn elsewhere(&self, namespace: &str, carried: &SortedSet<String>) -> Vec<Policy> {
        let wanted = self.wanted(false, carried);
        wanted.map(|(id, label, port)| self.egress(namespace, &id, &label, port)).collect()
    }

    /// The connections that pods with these labels request, with the keys of the labels.
    fn wanted<'a>(
        &'a self,
        is_own: bool,
        carried: &'a SortedSet<String>,
    ) -> impl Iterator<Item = (String, String, &'a Port)> {
        let infix = if is_own { String::new() } else { format!("{}-", self.alias) };
        self.ways.iter().filter_map(move |(id, way, port)| {
            let label = shortened(format!("to-{infix}{way}"));
            carried.contains(&label).then(|| (id.clone(), format!("{PREFIX}{label}"), port))
        })
    }

    fn policy(&self, name: String, description: String, spec: Value) -> Policy {
        Policy { name, service: Some(self.key.clone()), description, spec }
    }

    fn ingress(&self, from: &str, id: &str, label: &str, port: &Port) -> Policy {
        let is_own = from == self.key.namespace;
        let name = if is_own { format!("ingress-to-{id}") } else { format!("ingress-to-{id}-from-{from}") };
        let description = format!(
            "Allows ingress {} traffic to port {} for pods selected by the {} service selector from pods running in namespace \
             {from} labeled with {{map[{label}:{ALLOWED}] []}}.",
            port.protocol,
            port.name(),
            self.key
        );
        let peer = peer(&json!({"matchLabels": {label: ALLOWED}}), (!is_own).then_some(from));
        let spec = json!({"podSelector": self.selector, "policyTypes": ["Ingress"],
            "ingress": [{"from": [peer], "ports": [port.object()]}]});
        self.policy(name, description, spec)
    }

    fn egress(&self, from: &str, id: &str, label: &str, port: &Port) -> Policy {
        let own = self.key.namespace.as_str();
        let is_own = from == own;
        let name = if is_own { format!("egress-to-{id}") } else { format!("egress-to-{own}-{id}") };
        let description = format!(
            "Allows egress {} traffic to port {} from pods running in namespace {from} labeled with {{map[{label}:{ALLOWED}] \
             []}} to pods selected by the {} service selector.",
            port.protocol,
            port.name(),
            self.key
        );
        let peer = peer(&self.selector, (!is_own).then_some(own));
        let spec = json!({"podSelector": {"matchLabels": {label: ALLOWED}}, "policyTypes": ["Egress"],
            "egress": [{"to": [peer], "ports": [port.object()]}]});
        self.policy(name, description, spec)
    }

    fn world(&self) -> Option<Policy> {
        let ports = self.world.as_ref()?;
        let named = ports.iter().map(|port| {
            let protocol =
                port["protocol"].as_str().map(|protocol| format!("{protocol}/")).unwrap_or_default();
            format!("{protocol}{}", Port::read(port).name())
        });
        let description = format!(
            "Allows ingress traffic from everywhere to ports [{}] for pods selected by the {} service selector.",
            named.collect::<Vec<_>>().join(" "),
            self.key
        );
        let spec =
            json!({"podSelector": self.selector, "policyTypes": ["Ingress"], "ingress": [{"ports": ports}]});
        Some(self.policy(format!("ingress-to-{}-from-world", self.key.name), description, spec))
    }
}

fn peer(pods: &Value, namespace: Option<&str>) -> Value {
    match namespace {
        None => json!({"podSelector": pods}),
        Some(name) => json!({
            "podSelector": pods,
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": name}},
        }),
    }
}

/// Shortens a label name that is too long for Kubernetes, with a digest at its end.
fn shortened(name: String) -> String {
    match name.get(..LABEL_LENGTH_CUT) {
        Some(begin) if name.len() > LABEL_LENGTH_MAX => {
            let digest = sha256_hex(name.as_bytes());
            format!("{begin}-{}", digest.get(..DIGEST_LENGTH).unwrap_or_default())
        }
        _ => name,
    }
}
