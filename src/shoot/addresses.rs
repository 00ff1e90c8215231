//! The names and addresses of a Shoot's API server, and which of them the garden, kubeconfigs and certificates use.
//! Pure.
//!
//! Without DNS records, no name of the Shoot can be resolved. Upstream advertises the internal name nevertheless. This
//! agent advertises only the address of the exposure.

use std::net::{IpAddr, Ipv4Addr};

use serde_json::Value;

use super::view::ShootView;
use crate::api::meta::text;
use crate::base::json::json;
pub use crate::components::exposure::Outside;
use crate::components::exposure::{self, KUBE_APISERVER, authority};
use crate::config::control_plane::ExposureType;
use crate::pki::issue::ServerNames;

/// The API server for clients outside the cluster: host, and port unless it is 443. Without DNS records,
/// it is the exposure's.
pub(crate) fn out_of_cluster(view: &ShootView, outside: Option<&Outside>) -> String {
    let Some(outside) = outside else { return view.internal.server() };
    match &view.external {
        _ if view.internal.is_managed() => authority(&view.internal.server(), outside.port),
        Some(external) if external.is_managed() => authority(&external.server(), outside.port),
        _ => outside.authority(),
    }
}

/// The address that the API server advertises in its cluster, derived from its Service; none unless both domains have
/// records. It is in an otherwise unused range, as in upstream, and proxies on nodes forward it to the server.
pub(crate) fn advertise(view: &ShootView, service: &str) -> Option<String> {
    let [_, rest @ ..] = service.parse::<Ipv4Addr>().ok().filter(|_| view.uses_dns())?.octets();
    Some(Ipv4Addr::from([240, rest[0], rest[1], rest[2]]).to_string())
}

/// Whether the API server can write the endpoints of the Service `kubernetes` in its cluster. It refuses to start if the
/// address that it advertises is not of the family of its Services, whose ranges are `services`. Without [`advertise`],
/// which has IPv4 addresses, it advertises the address of its pod, the IPv6 one if there is one: like `service`, through
/// which it is reached, the pod has an address of each family of the seed.
pub fn writes_endpoints(services: &[String], advertised: Option<&str>, service: &Value) -> bool {
    let is_ipv6 = |address: &str| address.contains(':');
    let advertises_ipv6 = match (advertised, service["spec"]["ipFamilies"].as_array()) {
        (Some(address), _) => is_ipv6(address),
        (None, Some(families)) => families.iter().any(|family| family == "IPv6"),
        (None, None) => is_ipv6(text(&service["spec"]["clusterIP"])),
    };
    services.first().is_none_or(|range| is_ipv6(range) == advertises_ipv6)
}

/// Checks that nodes and pods can use the address of an exposure: nodes may have no DNS, and pods reach only addresses.
/// Errors: what to set.
pub(crate) fn check_for_nodes(outside: &Outside, kind: ExposureType) -> Result<(), String> {
    if kind == ExposureType::ClusterIp {
        return Err("the Shoot has workers, and nodes outside the seed do not reach an exposure of type ClusterIP: set \
            edge.exposure.type to NodePort or LoadBalancer"
            .to_owned());
    }
    if outside.host.parse::<IpAddr>().is_ok() {
        return Ok(());
    }
    Err(format!(
        "the Shoot has workers, so its API server needs an IP address, and {} is a name: set edge.exposure.address to an IP \
         address that leads to the nodes of the seed, or use a load balancer that has one",
        outside.host
    ))
}

/// The API server for clients in the cluster: a name without port.
pub fn in_cluster(view: &ShootView) -> String {
    format!("{KUBE_APISERVER}.{}.svc", view.technical_id)
}

/// Names and addresses for the certificate of the API server.
pub(crate) fn server_names(view: &ShootView, outside: Option<&Outside>) -> ServerNames {
    let mut names =
        ServerNames { dns: service_names(KUBE_APISERVER, &view.technical_id), addresses: Vec::new() };
    if view.uses_dns() {
        names.dns.push("localhost".to_owned());
        names.addresses.extend([IpAddr::from([127, 0, 0, 1]), IpAddr::from([0, 0, 0, 0, 0, 0, 0, 1])]);
    }
    names.dns.extend([view.technical_id.clone(), view.internal.server()]);
    if let Some(external) = &view.external {
        names.dns.extend([external.domain.clone(), external.server()]);
    }
    names.addresses.extend(view.server_addresses());
    match outside.map(|outside| (outside, outside.host.parse())) {
        Some((_, Ok(address))) if !names.addresses.contains(&address) => names.addresses.push(address),
        Some((outside, Err(_))) if !names.dns.contains(&outside.host) => names.dns.push(outside.host.clone()),
        _ => {}
    }
    names
}

/// The names of a Service, from the shortest to the longest.
pub(crate) fn service_names(service: &str, namespace: &str) -> Vec<String> {
    ["", ".svc", ".svc.cluster.local"].iter().map(|end| format!("{service}.{namespace}{end}")).fold(
        vec![service.to_owned()],
        |mut all, name| {
            all.push(name);
            all
        },
    )
}

/// The issuer of ServiceAccount tokens. It is a name even if it cannot be resolved, because it must not
/// change with the address.
pub(crate) fn issuer(view: &ShootView) -> String {
    view.managed_issuer().unwrap_or_else(|| own_issuer(view))
}

fn own_issuer(view: &ShootView) -> String {
    match text(&view.kubernetes["kubeAPIServer"]["serviceAccountConfig"]["issuer"]) {
        "" => usual_issuer(view),
        own => own.to_owned(),
    }
}

fn usual_issuer(view: &ShootView) -> String {
    format!("https://{}", view.internal.server())
}

/// `status.advertisedAddresses`. Without DNS records, it contains only `unmanaged` for the API server, once the
/// exposure has an address.
pub(crate) fn advertised(view: &ShootView, outside: Option<&Outside>) -> Vec<Value> {
    let entry = |name: &str, url: String| json!({"name": name, "url": url});
    if view.is_without_dns() {
        let address = |outside: &Outside| entry("unmanaged", format!("https://{}", outside.authority()));
        // The garden's or the owner's issuer can be reached even if the names of the Shoot cannot.
        let issuer = Some(issuer(view)).filter(|issuer| *issuer != usual_issuer(view));
        let issuer = issuer.map(|issuer| entry("service-account-issuer", issuer));
        return outside.map(address).into_iter().chain(issuer).collect();
    }
    let port = outside.map_or(exposure::PORT, |outside| outside.port);
    let url = |server: String| format!("https://{}", authority(&server, port));
    let external = view.external.as_ref().filter(|dns| dns.is_managed()).map(|dns| ("external", dns));
    let internal = Some(("internal", &view.internal)).filter(|(_, dns)| dns.is_managed());
    let mut all: Vec<Value> =
        external.into_iter().chain(internal).map(|(name, dns)| entry(name, url(dns.server()))).collect();
    all.push(entry("service-account-issuer", issuer(view)));
    all
}

/// The port in `status.advertisedAddresses`, unless it is the usual one.
pub(crate) fn advertised_port(shoot: &Value) -> Option<u16> {
    let all = shoot["status"]["advertisedAddresses"].as_array().into_iter().flatten();
    let mut servers = all.filter(|each| each["name"] != "service-account-issuer");
    let (rest, port) = text(&servers.next()?["url"]).rsplit_once(':')?;
    // The colon may belong to the scheme, or to an IPv6 address.
    (rest.contains("://")).then(|| port.parse().ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::super::view::tests::golden;
    use super::*;

    #[test]
    fn nodes_need_an_address() {
        use ExposureType::{ClusterIp, LoadBalancer, NodePort};
        let table = [
            (NodePort, "192.0.2.7", ""),
            (LoadBalancer, "2001:db8::7", ""),
            (NodePort, "edge.example.org", "edge.example.org is a name: set edge.exposure.address"),
            (LoadBalancer, "lb.example.org", "lb.example.org is a name"),
            (ClusterIp, "10.0.0.9", "set edge.exposure.type to NodePort or LoadBalancer"),
        ];
        for (kind, host, why) in table {
            let found = check_for_nodes(&at(host, 443), kind).err().unwrap_or_default();
            assert!(found.contains(why) && found.is_empty() == why.is_empty(), "{host}: {found}");
        }
    }

    fn at(host: &str, port: u16) -> Outside {
        Outside { host: host.to_owned(), port }
    }

    #[test]
    fn names_in_the_certificate_are_those_of_a_go_gardenlet() {
        // From the golden certificates; the exposure's address is ours.
        let joined = |names: ServerNames| {
            let addresses: Vec<String> = names.addresses.iter().map(ToString::to_string).collect();
            format!("{} {}", names.dns.join(","), addresses.join(","))
        };
        let service = |n| {
            format!(
                "kube-apiserver,kube-apiserver.{n},kube-apiserver.{n}.svc,kube-apiserver.{n}.svc.cluster.local"
            )
        };
        assert_eq!(
            joined(server_names(&golden("s1"), None)),
            format!(
                "{},localhost,shoot--p--s1,api.s1.p.internal.lab.local,s1.p.shoots.lab.local,api.s1.p.shoots.lab.local \
                 127.0.0.1,::1,100.64.0.1",
                service("shoot--p--s1")
            )
        );
        let s2 = format!("{},shoot--p--s2,api.s2.p.internal.lab.local", service("shoot--p--s2"));
        let table = [
            (None, format!("{s2} 100.64.0.1")),
            (Some(at("192.0.2.7", 30_443)), format!("{s2} 100.64.0.1,192.0.2.7")),
            (Some(at("fd00::7", 443)), format!("{s2} 100.64.0.1,fd00::7")),
            (Some(at("lb.example.org", 443)), format!("{s2},lb.example.org 100.64.0.1")),
            (Some(at("100.64.0.1", 443)), format!("{s2} 100.64.0.1")),
        ];
        for (outside, expected) in table {
            assert_eq!(joined(server_names(&golden("s2"), outside.as_ref())), expected, "{outside:?}");
        }
    }

    #[test]
    fn the_port_of_an_advertised_address() {
        let table = [
            ("https://api.s1.example.org:32128", Some(32_128)),
            ("https://[2001:db8::1]:30443", Some(30_443)),
            ("https://[2001:db8::1]", None),
            ("https://api.s1.example.org", None),
            ("", None),
        ];
        for (url, expected) in table {
            let issuer = json!({"name": "service-account-issuer", "url": "https://issuer.example.org:1"});
            let addresses = json!([issuer, {"name": "external", "url": url}]);
            let shoot = json!({"status": {"advertisedAddresses": addresses}});
            assert_eq!(advertised_port(&shoot), expected, "{url}");
        }
        assert_eq!(advertised_port(&json!({})), None);
    }

    #[test]
    fn only_reachable_addresses_are_advertised() {
        let told = |name: &str, outside: Option<Outside>| {
            let view = golden(name);
            let all: Vec<String> = advertised(&view, outside.as_ref())
                .iter()
                .map(|entry| format!("{}={}", text(&entry["name"]), text(&entry["url"])))
                .collect();
            (all.join(" "), out_of_cluster(&view, outside.as_ref()))
        };
        let s1 = |port: &str| {
            format!(
                "external=https://api.s1.p.shoots.lab.local{port} internal=https://api.s1.p.internal.lab.local{port} \
                 service-account-issuer=https://api.s1.p.internal.lab.local"
            )
        };
        let table = [
            ("s1", None, s1(""), "api.s1.p.internal.lab.local"),
            ("s1", Some(at("10.77.0.20", 443)), s1(""), "api.s1.p.internal.lab.local"),
            ("s1", Some(at("10.77.0.20", 30_443)), s1(":30443"), "api.s1.p.internal.lab.local:30443"),
            ("s2", None, String::new(), "api.s2.p.internal.lab.local"),
            (
                "s2",
                Some(at("192.0.2.7", 30_443)),
                "unmanaged=https://192.0.2.7:30443".into(),
                "192.0.2.7:30443",
            ),
            ("s2", Some(at("fd00::7", 443)), "unmanaged=https://[fd00::7]".into(), "[fd00::7]"),
        ];
        for (name, outside, all, host) in table {
            assert_eq!(told(name, outside.clone()), (all, host.to_owned()), "{name} {outside:?}");
        }
    }

    #[test]
    fn the_advertised_address_is_that_of_a_go_gardenlet() {
        let table = [
            ("s1", "10.1.136.172", Some("240.1.136.172")),
            ("s1", "fd00::1", None),
            ("s1", "None", None),
            ("s2", "10.1.136.172", None),
        ];
        for (name, service, expected) in table {
            assert_eq!(advertise(&golden(name), service).as_deref(), expected, "{name} {service}");
        }
    }

    #[test]
    fn endpoints_are_of_the_family_of_the_services() {
        let (v4, v6) = ("100.64.0.0/13", "fd00:9::/108");
        // The range of Services, the advertised address, the families of the server's Service and its address.
        let table = [
            (v4, None, json!(["IPv4"]), "10.1.0.9", true),
            (v4, None, json!(["IPv4", "IPv6"]), "10.1.0.9", false),
            (v4, None, json!(["IPv6", "IPv4"]), "fd00::9", false),
            (v4, None, json!(["IPv6"]), "fd00::9", false),
            (v6, None, json!(["IPv6"]), "fd00::9", true),
            (v6, None, json!(["IPv4", "IPv6"]), "10.1.0.9", true),
            (v6, None, json!(["IPv4"]), "10.1.0.9", false),
            (v4, None, Value::Null, "10.1.0.9", true),
            (v4, None, Value::Null, "fd00::9", false),
            (v4, Some("240.1.0.9"), json!(["IPv4", "IPv6"]), "10.1.0.9", true),
            (v6, Some("240.1.0.9"), json!(["IPv4", "IPv6"]), "10.1.0.9", false),
        ];
        for (range, advertised, families, address, expected) in table {
            let service = json!({"spec": {"clusterIP": address, "ipFamilies": families}});
            let found = writes_endpoints(&[range.to_owned()], advertised, &service);
            assert_eq!(found, expected, "{range} {advertised:?} {service}");
        }
    }

    #[test]
    fn the_issuer_is_the_owners_or_the_internal_name() {
        let mut view = golden("s2");
        assert_eq!(issuer(&view), "https://api.s2.p.internal.lab.local");
        view.kubernetes["kubeAPIServer"]["serviceAccountConfig"] = json!({"issuer": "https://me"});
        assert_eq!(issuer(&view), "https://me");
        // The garden's issuer wins, once the garden has a host for it.
        view.wants_managed_issuer = true;
        assert_eq!(issuer(&view), "https://me");
        view.issuer_host = "issuers.example.org".to_owned();
        let managed = format!("https://issuers.example.org/projects/p/shoots/{}/issuer", view.uid);
        assert_eq!(issuer(&view), managed);
        let told: Vec<Value> = advertised(&view, Some(&at("192.0.2.7", 443)));
        assert_eq!(told[1], json!({"name": "service-account-issuer", "url": managed}));
        assert_eq!((told.len(), &told[0]["name"]), (2, &json!("unmanaged")));
        assert_eq!(in_cluster(&view), "kube-apiserver.shoot--p--s2.svc");
    }
}
