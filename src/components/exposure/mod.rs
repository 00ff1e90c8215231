//! Service `kube-apiserver-exposure`: exposes a Shoot outside the seed without an ingress gateway. It stays while the
//! Shoot is hibernated, so that its address stays too.

use std::net::IpAddr;
use std::time::Duration;

use serde_json::Value;

use super::apply::apply;
use super::archive;
use super::content::push;
use super::rollout::has_condition_ready;
use crate::api::core::{NODE, SERVICE};
use crate::api::meta::{ALL_NAMESPACES, Key, Metadata, text};
use crate::base::json::json;
use crate::base::sorted::SortedMap;
use crate::config::control_plane::{Exposure, ExposureType};
use crate::flow::{Failed, TaskStep};
use crate::format::address::flaw;
use crate::kube::{Client, Error, ErrorVerdict, ListParams, Seed};

/// The API server of a Shoot: the name of its Deployment and its Service, in certificates, and of its image.
pub(crate) const KUBE_APISERVER: &str = "kube-apiserver";
/// The name of the Service.
pub(crate) const NAME: &str = "kube-apiserver-exposure";
/// How often to check for a load balancer's address; the interval is upstream's.
pub(crate) const INTERVAL: Duration = Duration::from_secs(5);

/// The port of the Service. It is the default of HTTPS, so URLs omit it.
pub(crate) const PORT: u16 = 443;
/// The port of the Service for the agents of the tunnel, and of the server beside the API server.
pub(crate) const TUNNEL_PORT: u16 = 8_132;
/// The name of the port for agents of the tunnel.
const TUNNEL: &str = "tunnel";
/// The annotation with the ports that clients outside the seed may use.
const FROM_WORLD: &str = "networking.resources.gardener.cloud/from-world-to-ports";
/// The annotation that stores the chosen address of a node.
const ADDRESS: &str = "edge.gardenlet/exposure-address";

/// The address under which clients outside the seed reach a kube-apiserver.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Outside {
    /// A DNS name or an IP address; an IPv6 address has no brackets.
    pub host: String,
    /// The port.
    pub port: u16,
}

impl Outside {
    /// Host and port of a URL.
    pub(crate) fn authority(&self) -> String {
        authority(&self.host, self.port)
    }
}

/// Host and port of an HTTPS URL.
pub(crate) fn authority(host: &str, port: u16) -> String {
    let host = match host.parse::<IpAddr>() {
        Ok(IpAddr::V6(address)) => format!("[{address}]"),
        _ => host.to_owned(),
    };
    if port == PORT { host } else { format!("{host}:{port}") }
}

/// The state of an exposure.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Exposed {
    /// It has an address.
    At(Outside),
    /// [`TaskStep::Again`]: it waits for an address. A task that waits for it has the limit [`TIMEOUT`].
    Waiting(TaskStep),
}

/// What an exposure must offer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ExposureNeeds {
    /// The port that a new Service of type `NodePort` gets if it is free.
    pub(crate) port: Option<u16>,
    /// Whether agents of a tunnel connect through it.
    pub(crate) has_tunnel: bool,
}

/// Writes the Service and finds its address, and the port of the tunnel if there is one. Errors: a request fails; or no node
/// has an address, with the option to set.
pub(crate) fn ensure(
    seed: &Seed,
    namespace: &str,
    settings: &Exposure,
    needs: ExposureNeeds,
) -> Result<(Exposed, Option<u16>), Failed> {
    let address = match settings.kind {
        ExposureType::NodePort => Some(node_address(seed, namespace, settings)?),
        ExposureType::LoadBalancer | ExposureType::ClusterIp => None,
    };
    let wanted = fill(namespace, settings, address.as_deref(), needs.has_tunnel);
    if let (ExposureType::NodePort, Some(port)) = (settings.kind, needs.port) {
        claim(seed, namespace, &wanted, port)?;
    }
    let service = apply(seed, &SERVICE, &wanted)?;
    Ok((find(&service, settings.kind, address.as_deref()), tunnel_port(&service, settings.kind)))
}

/// The port at which agents of the tunnel connect, if it is known.
pub(crate) fn tunnel_port(service: &Value, kind: ExposureType) -> Option<u16> {
    let ports = service["spec"]["ports"].as_array()?;
    let port = ports.iter().find(|port| port["name"] == TUNNEL)?;
    match kind {
        ExposureType::NodePort => port["nodePort"].as_u64().and_then(|port| u16::try_from(port).ok()),
        ExposureType::LoadBalancer | ExposureType::ClusterIp => Some(TUNNEL_PORT),
    }
}

/// Creates the Service with a port of the nodes, if that is free.
fn claim(seed: &Seed, namespace: &str, wanted: &Value, port: u16) -> Result<(), Failed> {
    if seed.find::<Metadata>(&SERVICE, &Key::new(namespace, NAME))?.is_some() {
        return Ok(());
    }
    let mut with_port = wanted.clone();
    with_port["spec"]["ports"][0]["nodePort"] = json!(port);
    match seed.create::<Value>(&SERVICE, namespace, &with_port) {
        // Another Service has it, or the seed has other ports.
        Err(error) if error.verdict() == ErrorVerdict::Invalid => Ok(()),
        other => Ok(other.map(drop)?),
    }
}

/// The state according to the live Service and nodes. Writes nothing. Errors: a request fails; or no node has
/// an address, with the option to set.
pub(crate) fn look(seed: &Seed, namespace: &str, settings: &Exposure) -> Result<Exposed, Failed> {
    let Some(service) = seed.find::<Value>(&SERVICE, &Key::new(namespace, NAME))? else {
        if settings.kind == ExposureType::NodePort {
            node_address(seed, namespace, settings)?;
        }
        let why = format!("Service {namespace}/{NAME} does not exist yet");
        return Ok(Exposed::Waiting(TaskStep::again(INTERVAL, why)));
    };
    let chosen = text(&service["metadata"]["annotations"][ADDRESS]);
    Ok(find(&service, settings.kind, Some(chosen)))
}

/// The address under which the live Service exposes a Shoot. Writes nothing.
pub(crate) fn known(seed: &Seed, namespace: &str) -> Result<Option<Outside>, Error> {
    let Some(service) = seed.find::<Value>(&SERVICE, &Key::new(namespace, NAME))? else { return Ok(None) };
    let kind = match text(&service["spec"]["type"]) {
        "NodePort" => ExposureType::NodePort,
        "LoadBalancer" => ExposureType::LoadBalancer,
        _ => ExposureType::ClusterIp,
    };
    let address = service["metadata"]["annotations"][ADDRESS].as_str();
    Ok(match find(&service, kind, address) {
        Exposed::At(outside) => Some(outside),
        Exposed::Waiting(_) => None,
    })
}

/// The Service. `address` is a node's address, for type `NodePort`.
pub(crate) fn fill(namespace: &str, settings: &Exposure, address: Option<&str>, has_tunnel: bool) -> Value {
    let mut service = archive::object("exposure/service.yaml");
    if has_tunnel {
        let port = json!({"name": TUNNEL, "port": TUNNEL_PORT, "protocol": "TCP", "targetPort": TUNNEL_PORT});
        push(&mut service["spec"]["ports"], port);
        let ports = [PORT, TUNNEL_PORT].map(|port| format!("{{\"protocol\":\"TCP\",\"port\":{port}}}"));
        service["metadata"]["annotations"][FROM_WORLD] = json!(format!("[{}]", ports.join(",")));
    }
    service["metadata"]["namespace"] = json!(namespace);
    service["spec"]["type"] = json!(match settings.kind {
        ExposureType::NodePort => "NodePort",
        ExposureType::LoadBalancer => "LoadBalancer",
        ExposureType::ClusterIp => "ClusterIP",
    });
    let annotations = &mut service["metadata"]["annotations"];
    for (key, value) in &settings.annotations {
        annotations[key] = json!(value);
    }
    if let Some(address) = address {
        annotations[ADDRESS] = json!(address);
    }
    service
}

/// The address of the live Service.
fn find(service: &Value, kind: ExposureType, address: Option<&str>) -> Exposed {
    let (namespace, spec) = (text(&service["metadata"]["namespace"]), &service["spec"]);
    let (host, port, remedy) = match kind {
        ExposureType::NodePort => {
            let port = spec["ports"][0]["nodePort"].as_u64().and_then(|port| u16::try_from(port).ok());
            (address.unwrap_or_default(), port, "the seed's API server has given it no node port")
        }
        ExposureType::LoadBalancer => {
            let ingress = &service["status"]["loadBalancer"]["ingress"][0];
            let host =
                [&ingress["ip"], &ingress["hostname"]].map(text).into_iter().find(|host| !host.is_empty());
            let remedy = "no load balancer was assigned to it: install a load balancer controller in the seed, and \
                look at the Events of the Service, or set edge.exposure.type to NodePort";
            (host.unwrap_or_default(), Some(PORT), remedy)
        }
        ExposureType::ClusterIp => {
            (text(&spec["clusterIP"]), Some(PORT), "the seed's API server has given it no cluster IP")
        }
    };
    match port {
        Some(port) if !host.is_empty() => Exposed::At(Outside { host: host.to_owned(), port }),
        _ => {
            let why = format!("Service {namespace}/{NAME} has no address yet: {remedy}");
            Exposed::Waiting(TaskStep::again(INTERVAL, why))
        }
    }
}

/// The configured address, or a node's address.
fn node_address(seed: &Seed, namespace: &str, settings: &Exposure) -> Result<String, Failed> {
    if let Some(address) = &settings.address {
        return Ok(address.clone());
    }
    let nodes = nodes(seed)?;
    let service: Option<Value> = seed.find(&SERVICE, &Key::new(namespace, NAME))?;
    let before = service.as_ref().map_or("", |service| text(&service["metadata"]["annotations"][ADDRESS]));
    choose(nodes.values(), before).ok_or_else(|| Failed::new(NO_ADDRESS))
}

const NO_ADDRESS: &str = "no ready node of the seed has an ExternalIP or InternalIP under which the Shoot could be reached: set \
    edge.exposure.address to an address that leads to the nodes, or edge.exposure.type to LoadBalancer";

/// The nodes of the seed, by name.
fn nodes(seed: &Client) -> Result<SortedMap<String, Value>, Error> {
    let mut nodes = SortedMap::new();
    seed.list_all::<Value>(&NODE, ALL_NAMESPACES, &ListParams::default(), &mut |node| {
        nodes.insert(text(&node["metadata"]["name"]).to_owned(), node);
    })?;
    Ok(nodes)
}

/// The host at which clients reach Shoots, as far as it is known without a Shoot; or why they may not reach it.
pub(crate) fn examine(seed: &Client, settings: &Exposure) -> Result<Result<String, String>, Error> {
    if settings.kind != ExposureType::NodePort {
        return Ok(Ok(String::new()));
    }
    Ok(judge(nodes(seed)?.values(), settings.address.as_deref()))
}

/// What to do about an address that leads to no node.
pub const ADDRESS_REMEDY: &str =
    "leave edge.exposure.address out to use the addresses of the nodes, or write one that leads to them";

/// Whether the configured address can lead to no node that does not have it. A loopback address leads to this
/// host, where everything may be.
pub(crate) fn leads_nowhere(settings: &Exposure) -> bool {
    let address = settings.address.as_deref().and_then(|address| address.parse::<IpAddr>().ok());
    address.is_some_and(|address| flaw(address).is_some() && !address.to_canonical().is_loopback())
}

/// Compares the configured address with those of the nodes. A name may have any address.
fn judge<'n>(
    nodes: impl Iterator<Item = &'n Value> + Clone,
    address: Option<&str>,
) -> Result<String, String> {
    let Some(address) = address else { return choose(nodes, "").ok_or_else(|| NO_ADDRESS.to_owned()) };
    let Ok(wanted) = address.parse::<IpAddr>() else { return Ok(address.to_owned()) };
    let all = nodes.flat_map(|node| node["status"]["addresses"].as_array().into_iter().flatten());
    let own: Vec<IpAddr> = all.filter_map(|each| text(&each["address"]).parse().ok()).collect();
    let shown: Vec<String> = own.iter().take(ADDRESSES_NAMED_MAX).map(ToString::to_string).collect();
    let flaw = flaw(wanted).map(|flaw| format!(" {flaw}, and")).unwrap_or_default();
    if own.contains(&wanted) {
        return Ok(address.to_owned());
    }
    Err(format!(
        "edge.exposure.address {address}{flaw} is not an address of a node (they have {}): clients reach Shoots only if this \
         address leads to the nodes",
        if shown.is_empty() { "none".to_owned() } else { shown.join(", ") }
    ))
}

/// How many addresses of nodes a message names.
const ADDRESSES_NAMED_MAX: usize = 4;

/// The address that was chosen before if a node still has it, because clients know it. Otherwise the first ready node
/// with an external address, or with an internal one, in the given order.
fn choose<'n>(nodes: impl Iterator<Item = &'n Value> + Clone, before: &str) -> Option<String> {
    let addresses = |node: &'n Value, kind: &'static str| {
        let all = node["status"]["addresses"].as_array().into_iter().flatten();
        all.filter(move |address| kind.is_empty() || address["type"] == kind)
            .map(|address| text(&address["address"]))
    };
    if !before.is_empty() && nodes.clone().any(|node| addresses(node, "").any(|address| address == before)) {
        return Some(before.to_owned());
    }
    let ready = nodes.filter(|node| has_condition_ready(node));
    let first =
        |kind| ready.clone().find_map(|node| addresses(node, kind).find(|address| !address.is_empty()));
    first("ExternalIP").or_else(|| first("InternalIP")).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(kind: ExposureType) -> Exposure {
        Exposure { kind, address: None, annotations: SortedMap::new() }
    }

    #[test]
    fn is_as_in_the_golden_files() {
        let golden = include_str!("../../../tests/fixtures/components/exposure.yaml");
        let annotations = [("load-balancer.example.org/pool".to_owned(), "edge".to_owned())].into();
        let balanced = Exposure { annotations, ..settings(ExposureType::LoadBalancer) };
        let services = [
            ("shoot--p--node-port", settings(ExposureType::NodePort), Some("192.0.2.7")),
            ("shoot--p--load-balancer", balanced, None),
            ("shoot--p--cluster-ip", settings(ExposureType::ClusterIp), None),
        ];
        let all = services.map(|(namespace, settings, address)| fill(namespace, &settings, address, false));
        assert_eq!(archive::golden(&all), golden);
    }

    #[test]
    fn the_tunnel_has_a_port_of_its_own() {
        let kinds = [
            (ExposureType::NodePort, Some(30_132)),
            (ExposureType::LoadBalancer, Some(TUNNEL_PORT)),
            (ExposureType::ClusterIp, Some(TUNNEL_PORT)),
        ];
        for (kind, expected) in kinds {
            let without = fill("shoot--p--a", &settings(kind), Some("192.0.2.7"), false);
            assert_eq!(tunnel_port(&without, kind), None);
            let mut with = fill("shoot--p--a", &settings(kind), Some("192.0.2.7"), true);
            let opened = with["metadata"]["annotations"][FROM_WORLD].as_str().unwrap();
            assert_eq!(opened, r#"[{"protocol":"TCP","port":443},{"protocol":"TCP","port":8132}]"#);
            if kind == ExposureType::NodePort {
                assert_eq!(tunnel_port(&with, kind), None, "it has no node port yet");
                with["spec"]["ports"][0]["nodePort"] = json!(30_443);
                with["spec"]["ports"][1]["nodePort"] = json!(30_132);
            }
            assert_eq!(tunnel_port(&with, kind), expected);
        }
    }

    fn node(name: &str, ready: &str, addresses: &[(&str, &str)]) -> Value {
        let addresses: Vec<_> =
            addresses.iter().map(|(kind, address)| json!({"type": kind, "address": address})).collect();
        json!({"metadata": {"name": name}, "status": {
            "conditions": [{"type": "Ready", "status": ready}], "addresses": addresses}})
    }

    #[test]
    fn an_address_stays_while_a_node_has_it() {
        let a =
            node("a", "True", &[("Hostname", "a"), ("InternalIP", "10.0.0.1"), ("InternalIP", "fd00::1")]);
        let b = node("b", "True", &[("InternalIP", "10.0.0.2"), ("ExternalIP", "192.0.2.2")]);
        let gone = node("c", "False", &[("ExternalIP", "192.0.2.3")]);
        let table = [
            (vec![&a], "", Some("10.0.0.1")),
            (vec![&a, &b], "", Some("192.0.2.2")),
            (vec![&a, &b], "10.0.0.1", Some("10.0.0.1")),
            (vec![&a, &gone], "192.0.2.3", Some("192.0.2.3")),
            (vec![&a, &gone], "192.0.2.9", Some("10.0.0.1")),
            (vec![&gone], "", None),
            (vec![], "10.0.0.1", None),
        ];
        for (nodes, before, expected) in table {
            assert_eq!(choose(nodes.iter().copied(), before).as_deref(), expected, "{nodes:?} {before}");
        }
    }

    #[test]
    fn a_configured_address_is_one_of_a_node() {
        let a =
            node("a", "True", &[("Hostname", "a"), ("InternalIP", "10.0.0.1"), ("InternalIP", "fd00::1")]);
        let down = node("b", "False", &[("InternalIP", "10.0.0.2")]);
        let table = [
            (vec![&a], Some("10.0.0.1"), Ok("10.0.0.1")),
            (vec![&a], Some("fd00:0::1"), Ok("fd00:0::1")),
            (vec![&a, &down], Some("10.0.0.2"), Ok("10.0.0.2")),
            (vec![&a], Some("edge.example.org"), Ok("edge.example.org")),
            (vec![&a], None, Ok("10.0.0.1")),
            (vec![&down], None, Err("no ready node of the seed")),
            (
                vec![&a],
                Some("10.0.0.9"),
                Err("10.0.0.9 is not an address of a node (they have 10.0.0.1, fd00::1)"),
            ),
            (
                vec![&a],
                Some("192.0.2.10"),
                Err("192.0.2.10 is reserved for documentation, and is not an address of a node"),
            ),
            (vec![], Some("10.0.0.9"), Err("(they have none)")),
        ];
        for (nodes, address, expected) in table {
            match (judge(nodes.iter().copied(), address), expected) {
                (Ok(found), Ok(expected)) => assert_eq!(found, expected),
                (Err(why), Err(expected)) => assert!(why.contains(expected), "{why}"),
                (found, _) => panic!("{address:?}: {found:?}"),
            }
        }
    }

    #[test]
    fn an_address_that_leads_nowhere_is_no_doubt() {
        let table = [
            (None, false),
            (Some("10.0.0.9"), false),
            (Some("edge.example.org"), false),
            (Some("127.0.0.1"), false),
            (Some("::ffff:127.0.0.1"), false),
            (Some("192.0.2.10"), true),
            (Some("2001:db8::1"), true),
            (Some("0.0.0.0"), true),
            (Some("169.254.1.1"), true),
        ];
        for (address, expected) in table {
            let settings =
                Exposure { address: address.map(str::to_owned), ..settings(ExposureType::NodePort) };
            assert_eq!(leads_nowhere(&settings), expected, "{address:?}");
        }
    }

    #[test]
    fn a_service_tells_its_address() {
        use ExposureType::{ClusterIp, LoadBalancer, NodePort};
        let ports = json!([{"name": "kube-apiserver", "port": 443, "nodePort": 30_443}]);
        let ingress = |ingress: Value| json!({"status": {"loadBalancer": {"ingress": [ingress]}}});
        let at = |host: &str, port| Some(Outside { host: host.to_owned(), port });
        let table = [
            (NodePort, Some("192.0.2.7"), json!({"spec": {"ports": ports}}), at("192.0.2.7", 30_443)),
            (NodePort, Some("192.0.2.7"), json!({"spec": {"ports": [{"port": 443}]}}), None),
            (LoadBalancer, None, ingress(json!({"ip": "192.0.2.8"})), at("192.0.2.8", 443)),
            (LoadBalancer, None, ingress(json!({"hostname": "lb.example.org"})), at("lb.example.org", 443)),
            (LoadBalancer, None, json!({"status": {"loadBalancer": {}}}), None),
            (ClusterIp, None, json!({"spec": {"clusterIP": "10.0.0.9"}}), at("10.0.0.9", 443)),
            (ClusterIp, None, json!({"spec": {}}), None),
        ];
        for (kind, address, service, expected) in table {
            match (find(&service, kind, address), expected) {
                (Exposed::At(found), expected) => assert_eq!(Some(found), expected, "{service}"),
                (Exposed::Waiting(TaskStep::Again { after, why }), None) => {
                    assert_eq!(after.as_secs(), 5);
                    assert!(why.text.contains("kube-apiserver-exposure has no address yet: "), "{why}");
                    assert_eq!(kind == LoadBalancer, why.text.contains("edge.exposure.type"), "{why}");
                }
                (found, _) => panic!("{service}: {found:?}"),
            }
        }
    }

    #[test]
    fn an_address_is_part_of_a_url() {
        let table = [
            ("192.0.2.7", 443, "192.0.2.7"),
            ("192.0.2.7", 30_443, "192.0.2.7:30443"),
            ("2001:db8::7", 443, "[2001:db8::7]"),
            ("2001:db8::7", 30_443, "[2001:db8::7]:30443"),
            ("edge.example.org", 30_443, "edge.example.org:30443"),
        ];
        for (host, port, url) in table {
            let outside = Outside { host: host.to_owned(), port };
            assert_eq!(outside.authority(), url);
        }
    }
}
