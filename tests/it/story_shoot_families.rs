//! Shoots on sites with IPv6: on a dual-stack seed, and on a seed without IPv4.

use std::sync::Arc;

use gardenlet::api::meta::Key;
use gardenlet::kube;
use serde_json::{Value, json};

use crate::world::{Agent, CORE, Options, World};
use support::api::store::Id;
use support::encoding::from_base64;
use support::json::{list, text};
use support::shoot::history::wait_until_created;
use support::shoot::object::{PROJECT_NAMESPACE, ShootObject, technical_id};
use support::shoot::owner;
use support::shoot::{Options as SiteOptions, Site};

const NAME: &str = "s1";
/// The address of the nodes under which clients find Shoots.
const ADDRESS: &str = "fd00:50::7";
const NO_ENDPOINTS: &str = "--endpoint-reconciler-type=none";

fn site(world: &World, ranges: &[&str]) -> Site {
    let ranges = json!({"metadata": {"name": "kubernetes"}, "spec": {"cidrs": ranges}});
    let id = Id::new("networking.k8s.io", "servicecidrs", "", "kubernetes");
    world.seed.store().write(|state| drop(state.put(id, ranges)));
    let mut options = SiteOptions::default();
    options.node_addresses.push(ADDRESS.to_owned());
    world.site_with(options)
}

/// The Shoot after its creation by an agent with these networks of its Seed.
fn created(world: &World, site: &Site, networks: &Value, shoot: ShootObject) -> (Agent, Value) {
    let mut config = world.edge_config();
    config["seedConfig"]["spec"]["networks"] = networks.clone();
    config["edge"]["exposure"] = json!({"type": "NodePort", "address": ADDRESS});
    let agent = world.agent_of(site, &config);
    agent.launch();
    world.wait_until_ready();
    let seed = world.garden.get(CORE, "seeds", "", world.name).unwrap();
    assert_eq!(seed["spec"]["networks"]["ipFamilies"], networks["ipFamilies"]);
    world.garden.apply(&[shoot.build()]);
    (agent, wait_until_created(&world.garden, (PROJECT_NAMESPACE, NAME)))
}

/// The families of both Services of the API server, and the first address of each.
fn services_have(world: &World, families: &[&str], range: &str) {
    for name in ["kube-apiserver", "kube-apiserver-exposure"] {
        let service = world.seed.get("", "services", &technical_id(NAME), name).unwrap();
        assert_eq!(service["spec"]["ipFamilies"], json!(families), "{name}");
        assert_eq!(list(&service, "/spec/clusterIPs").len(), families.len(), "{name}");
        assert!(text(&service, "/spec/clusterIP").starts_with(range), "{name}: {}", service["spec"]);
    }
}

fn arguments(world: &World) -> Vec<Value> {
    let server = world.seed.get("apps", "deployments", &technical_id(NAME), "kube-apiserver").unwrap();
    list(&server, "/spec/template/spec/containers/0/args").to_vec()
}

/// The published address is written with brackets, and leads to the server.
fn is_reached(world: &World, site: &Site, shoot: &Value) {
    let url = text(shoot, "/status/advertisedAddresses/0/url");
    let port = url.strip_prefix(&format!("https://[{ADDRESS}]:")).and_then(|port| port.parse().ok());
    assert!(port.is_some_and(|port| site.routes().find(ADDRESS, port).is_some()), "{url}");
    let secret = world.seed.get("", "secrets", &technical_id(NAME), "gardener").unwrap();
    let written = String::from_utf8(from_base64(text(&secret, "/data/kubeconfig")).unwrap()).unwrap();
    assert!(written.contains(&format!("server: {url}\n")), "{written}");

    let (clock, dialer) = (world.clock.clone(), Arc::new(site.routes()));
    let options = kube::Options { clock, dialer, ..kube::Options::default() };
    let client = owner::client(&world.garden, &Key::new(PROJECT_NAMESPACE, NAME), options);
    owner::wait_until_admitted(&world.garden, &client);
}

/// The pod of the API server has addresses of both families, of which it would advertise the IPv6 one.
#[test]
fn a_shoot_is_created_on_a_dual_stack_seed() {
    let world = World::start(&Options::new("shoot-dual-stack"));
    let site = site(&world, &["10.52.0.0/16", "fd00:52::/108"]);
    let networks = json!({"ipFamilies": ["IPv4", "IPv6"], "nodes": "10.50.0.0/16", "pods": "10.51.0.0/16",
        "services": "10.52.0.0/16", "shootDefaults": {"services": "100.64.0.0/13"}});
    let (agent, shoot) = created(&world, &site, &networks, ShootObject::workerless(NAME));
    services_have(&world, &["IPv4", "IPv6"], "10.52.");
    let arguments = arguments(&world);
    assert!(arguments.contains(&json!("--service-cluster-ip-range=100.64.0.0/13")), "{arguments:?}");
    assert!(arguments.contains(&json!(NO_ENDPOINTS)), "{arguments:?}");
    is_reached(&world, &site, &shoot);
    assert_eq!(site.complaints(), Vec::<String>::new());
    agent.stop();
}

/// Seed and Shoot have the same family, so the API server keeps the arguments of upstream.
#[test]
fn a_shoot_is_created_on_an_ipv6_only_seed() {
    let world = World::start(&Options::new("shoot-ipv6-only"));
    let site = site(&world, &["fd00:52::/108"]);
    let networks = json!({"ipFamilies": ["IPv6"], "nodes": "fd00:50::/64", "pods": "fd00:51::/64",
        "services": "fd00:52::/108", "shootDefaults": {"services": "fd00:64::/108"}});
    let shoot = ShootObject::workerless(NAME).with("/spec/networking", json!({"ipFamilies": ["IPv6"]}));
    let (agent, shoot) = created(&world, &site, &networks, shoot);
    assert_eq!(shoot["spec"]["networking"]["services"], "fd00:64::/108");
    services_have(&world, &["IPv6"], "fd00:52::");
    let arguments = arguments(&world);
    assert!(arguments.contains(&json!("--service-cluster-ip-range=fd00:64::/108")), "{arguments:?}");
    assert!(!arguments.contains(&json!(NO_ENDPOINTS)), "{arguments:?}");
    is_reached(&world, &site, &shoot);
    let server = site.server(&technical_id(NAME)).unwrap();
    let own = server.cluster.get("", "services", "default", "kubernetes").unwrap();
    assert_eq!(own["spec"]["clusterIP"], "fd00:64::1");
    assert_eq!(site.complaints(), Vec::<String>::new());
    agent.stop();
}
