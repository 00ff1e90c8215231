//! The central policies of a namespace (Gardener's `pkg/controller/networkpolicy`): which ones it has, according to its
//! labels, and what they allow.

use std::net::IpAddr;

use serde_json::Value;

use super::policy::{DENY_ALL, Policy};
use crate::api::meta::{ObjectMeta, text};
use crate::api::resources::GARDEN_NAMESPACE;
use crate::api::selector::selects;
use crate::base::json::json;
use crate::base::sorted::SortedMap;
use crate::format::cidr::Cidr;

/// Kinds of namespaces with different policies.
const GARDEN: u8 = 1;
const SHOOT: u8 = 2;
const EXTENSION: u8 = 4;
const ISTIO: u8 = 8;
const HANDLER: u8 = 16;
const ADDITIONAL: u8 = 32;

/// Namespaces with pods of Gardener's own programs.
const PLANES: u8 = GARDEN | SHOOT | EXTENSION | ADDITIONAL;
/// Namespaces with policies that Services request.
const HANDLED: u8 = GARDEN | SHOOT | EXTENSION | ISTIO | HANDLER;

/// Private networks (RFC 1918), carrier-grade NAT (RFC 6598).
const PRIVATE_V4: [&str; 4] = ["10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10"];
/// Link local, unique local.
const PRIVATE_V6: [&str; 2] = ["fe80::/10", "fc00::/7"];
/// The addresses of the node-local DNS cache.
const NODE_LOCAL_DNS: [&str; 2] = ["169.254.20.10/32", "fd30:1319:f1e:230b::1/128"];
/// The position of cluster DNS among the addresses of Services.
const DNS_ADDRESS: u32 = 10;

/// The prefix of namespaces that are named by a technical id.
const TECHNICAL_ID: &str = "shoot-";

/// Whether a namespace has central policies, or policies that its Services request.
pub(super) fn is_handled(namespace: &ObjectMeta) -> bool {
    classes(namespace, &[]) & HANDLED != 0
}

/// Whether the networks of a Shoot matter in the namespace.
pub(super) fn is_of_shoot(namespace: &str) -> bool {
    namespace.starts_with(TECHNICAL_ID)
}

fn classes(namespace: &ObjectMeta, additional: &[Value]) -> u8 {
    let labels = &namespace.labels;
    let of_role = match labels.get("gardener.cloud/role").map(String::as_str) {
        Some("shoot") => SHOOT,
        Some("extension") => EXTENSION,
        Some("istio-system" | "istio-ingress") => ISTIO,
        _ => 0,
    };
    let flag = |is_so: bool, class: u8| if is_so { class } else { 0 };
    of_role
        | flag(namespace.name == GARDEN_NAMESPACE, GARDEN)
        | flag(labels.contains_key("handler.exposureclass.gardener.cloud/name"), HANDLER)
        | flag(additional.iter().any(|selector| selects(selector, labels)), ADDITIONAL)
}

/// `seedConfig.spec.networks` as written in the configuration: upstream does not apply defaults either.
#[derive(Clone, Debug, Default)]
pub(super) struct Networks {
    families: Vec<String>,
    /// The networks of pods, Services and nodes.
    own: Vec<String>,
    services: Vec<String>,
    blocked: Vec<String>,
}

impl Networks {
    pub(super) fn read(networks: &Value) -> Self {
        let list = |field: &str| texts(&networks[field]);
        Self {
            families: list("ipFamilies"),
            own: ["pods", "services", "nodes"].into_iter().flat_map(list).collect(),
            services: list("services"),
            blocked: list("blockCIDRs"),
        }
    }

    /// The excluded ranges of an address family.
    fn exceptions(&self, family: &str) -> Vec<String> {
        let own = if self.families == [family] { self.own.as_slice() } else { &[] };
        self.blocked.iter().chain(own).cloned().collect()
    }
}

/// The networks of a Shoot. Its control plane must not treat them as private networks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ShootNetworks {
    v4: Vec<String>,
    v6: Vec<String>,
}

impl ShootNetworks {
    /// Reads them from its `Cluster`.
    pub(super) fn read(cluster: &Value) -> Self {
        let shoot = &cluster["spec"]["shoot"];
        let wanted = &shoot["spec"]["networking"];
        let mut all = Vec::new();
        for networking in [wanted, &shoot["status"]["networking"]] {
            for field in ["nodes", "pods", "services"] {
                all.extend(texts(&networking[field]).into_iter().filter(|_| wanted.is_object()));
            }
        }
        let families = texts(&wanted["ipFamilies"]);
        let is_v4 = families.is_empty() || families == ["IPv4"];
        if is_v4 { Self { v4: all, v6: Vec::new() } } else { Self { v4: Vec::new(), v6: all } }
    }
}

/// A text, or a list of texts.
fn texts(value: &Value) -> Vec<String> {
    let list = value.as_array().map_or(std::slice::from_ref(value), Vec::as_slice);
    list.iter().map(text).filter(|text| !text.is_empty()).map(str::to_owned).collect()
}

/// The input of the central policies.
#[derive(Debug)]
pub(super) struct CentralPolicyInput<'a> {
    pub(super) networks: &'a Networks,
    /// Field `controllers.networkPolicy.additionalNamespaceSelectors` of the configuration.
    pub(super) additional: &'a [Value],
    /// Rules to the API server of the seed; `None` while unknown.
    pub(super) api_server: Option<&'a [Value]>,
    /// `None` while unknown. It matters only in namespaces of Shoots.
    pub(super) shoot: Option<&'a ShootNetworks>,
}

/// The central policies of a namespace, and the names of the missing ones that cannot be created yet.
#[derive(Debug, Default)]
pub(super) struct CentralPolicies {
    pub(super) policies: Vec<Policy>,
    pub(super) unknown: Vec<&'static str>,
}

/// A central policy that allows something: its name, the namespaces that have it, its description. The label of pods is
/// its name without the first word.
type CentralPolicyRow = (&'static str, u8, &'static str);

const API_SERVER: &str = "allow-to-runtime-apiserver";
const PUBLIC: &str = "allow-to-public-networks";
const PRIVATE: &str = "allow-to-private-networks";
const BLOCKED: &str = "allow-to-blocked-cidrs";
const DNS: &str = "allow-to-dns";

const TABLE: [CentralPolicyRow; 5] = [
    (
        API_SERVER,
        PLANES | ISTIO,
        "egress traffic from pods labeled with '${label}=allowed' to the endpoints in the default namespace of the kube-apiserver \
         of the runtime cluster.",
    ),
    (
        PUBLIC,
        PLANES,
        "egress from pods labeled with '${label}=allowed' to all public network IPs, except for private networks (RFC1918), \
         carrier-grade NAT (RFC6598), and explicitly blocked addresses configured by human operators. In practice, this blocks \
         egress traffic to all networks in the cluster and only allows egress traffic to public IPv4 addresses.",
    ),
    (
        PRIVATE,
        PLANES,
        "egress from pods labeled with '${label}=allowed' to the private networks (RFC1918) and carrier-grade NAT (RFC6598), \
         except for cluster-specific networks.",
    ),
    (
        BLOCKED,
        PLANES,
        "egress from pods labeled with '${label}=allowed' to explicitly blocked addresses configured by human operators.",
    ),
    (
        DNS,
        PLANES | ISTIO | HANDLER,
        "egress from pods labeled with '${label}=allowed' to DNS running in 'kube-system'. In practice, most of the pods which \
         require network egress need this label.",
    ),
];

/// See [`CentralPolicies`].
pub(super) fn policies(namespace: &ObjectMeta, given: &CentralPolicyInput<'_>) -> CentralPolicies {
    let classes = classes(namespace, given.additional);
    let mut central = CentralPolicies::default();
    for (name, of, description) in TABLE {
        if classes & of == 0 {
            continue;
        }
        let Some(egress) = egress(name, &namespace.name, given) else {
            central.unknown.push(name);
            continue;
        };
        let label = name.replacen("allow-", "networking.gardener.cloud/", 1);
        central.policies.push(Policy {
            name: name.to_owned(),
            service: None,
            description: format!("Allows {}", description.replace("${label}", &label)),
            spec: json!({"podSelector": {"matchLabels": {label: "allowed"}}, "policyTypes": ["Egress"], "egress": egress}),
        });
    }
    if classes != 0 {
        central.policies.push(Policy {
            name: DENY_ALL.to_owned(),
            service: None,
            description: "Disables all ingress and egress traffic into/from this namespace.".to_owned(),
            spec: json!({"podSelector": {}, "policyTypes": ["Ingress", "Egress"]}),
        });
    }
    central
}

/// The rules of a policy of [`TABLE`]; `None` while they are unknown.
fn egress(name: &str, namespace: &str, given: &CentralPolicyInput<'_>) -> Option<Value> {
    let networks = given.networks;
    match name {
        API_SERVER => given.api_server.map(|rules| json!(rules)),
        PUBLIC => Some(to_public(networks)),
        PRIVATE if is_of_shoot(namespace) => given.shoot.map(|shoot| to_private(networks, shoot)),
        PRIVATE => Some(to_private(networks, &ShootNetworks::default())),
        BLOCKED => {
            Some(networks.blocked.iter().map(|cidr| json!({"to": [{"ipBlock": {"cidr": cidr}}]})).collect())
        }
        _ => Some(to_dns(networks)),
    }
}

/// A range, minus the `exceptions` inside it.
fn block(range: &str, exceptions: &[String]) -> Value {
    let mut except: Vec<&String> = Vec::new();
    if let Some(whole) = Cidr::parse(range) {
        let is_part = |part: Cidr| whole.overlaps(part) && whole.prefix() < part.prefix();
        for exception in exceptions {
            if Cidr::parse(exception).is_some_and(is_part) && !except.contains(&exception) {
                except.push(exception);
            }
        }
    }
    json!({"ipBlock": {"cidr": range, "except": except}})
}

fn to_public(networks: &Networks) -> Value {
    let owned = |ranges: &[&str]| ranges.iter().map(|range| (*range).to_owned()).collect::<Vec<_>>();
    let v4 = [owned(&PRIVATE_V4), networks.blocked.clone()].concat();
    // With IPv6, the networks of a cluster may be public.
    let v6 = [owned(&PRIVATE_V6), networks.exceptions("IPv6")].concat();
    json!([{"to": [block("0.0.0.0/0", &v4), block("::/0", &v6)]}])
}

fn to_private(networks: &Networks, shoot: &ShootNetworks) -> Value {
    let rule = |ranges: &[&str], exceptions: Vec<String>| json!({"to": ranges.iter().map(|range| block(range, &exceptions)).collect::<Vec<_>>()});
    let v4 = [networks.exceptions("IPv4"), shoot.v4.clone()].concat();
    let v6 = [networks.exceptions("IPv6"), shoot.v6.clone()].concat();
    json!([rule(&PRIVATE_V4, v4), rule(&PRIVATE_V6, v6)])
}

fn to_dns(networks: &Networks) -> Value {
    let pods = |name: &str| {
        json!({
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "kube-system"}},
            "podSelector": {"matchExpressions": [{"key": "k8s-app", "operator": "In", "values": [name]}]},
        })
    };
    let mut to = vec![pods("kube-dns"), pods("node-local-dns")];
    let servers = networks.services.iter().filter_map(|range| Cidr::parse(range));
    let servers = servers.map(|range| single(range.nth(DNS_ADDRESS)));
    let addresses = NODE_LOCAL_DNS.map(str::to_owned).into_iter().chain(servers);
    to.extend(addresses.map(|cidr| json!({"ipBlock": {"cidr": cidr}})));
    let port = |port: u16, protocol: &str| json!({"port": port, "protocol": protocol});
    json!([{"to": to, "ports": [port(53, "UDP"), port(53, "TCP"), port(8053, "UDP"), port(8053, "TCP")]}])
}

/// The CIDR of one address.
fn single(address: IpAddr) -> String {
    format!("{address}/{}", if address.is_ipv4() { 32 } else { 128 })
}

/// Rules to the API server: one for each subset of Endpoints `default/kubernetes`, and one for the addresses of its
/// name, where it listens on `port`. `None` if no address is known.
pub(super) fn to_api_server(endpoints: &Value, of_name: &[IpAddr], port: u16) -> Option<Vec<Value>> {
    let rule = |addresses: Vec<IpAddr>, ports: Value| {
        let unique: SortedMap<IpAddr, Value> = addresses
            .into_iter()
            .map(|address| (address, json!({"ipBlock": {"cidr": single(address)}})))
            .collect();
        // A rule without addresses would allow everything.
        (!unique.is_empty()).then(|| json!({"to": unique.into_values().collect::<Vec<_>>(), "ports": ports}))
    };
    let subsets = endpoints["subsets"].as_array().into_iter().flatten();
    let mut rules: Vec<Value> = subsets
        .filter_map(|subset| {
            let addresses = subset["addresses"].as_array().into_iter().flatten();
            let ports = subset["ports"].as_array().into_iter().flatten();
            let ports =
                ports.map(|port| json!({"port": port["port"], "protocol": port["protocol"]})).collect();
            rule(addresses.filter_map(|address| text(&address["ip"]).parse().ok()).collect(), ports)
        })
        .collect();
    rules.extend(rule(of_name.to_vec(), json!([{"port": port, "protocol": "TCP"}])));
    (!rules.is_empty()).then_some(rules)
}
