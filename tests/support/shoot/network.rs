//! Services and claims: addresses, endpoints, the ways to API servers, volumes.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};

use gardenlet::api::core::{PERSISTENT_VOLUME_CLAIM, SERVICE};
use gardenlet::api::meta::{CLUSTER_SCOPED, Resource};
use serde_json::{Value, json};

use super::scene::{ENDPOINT_SLICE, Hands, Scene, is_alive, is_ready, owned_by, place};
use super::{Manager, Shared, Trouble};
use crate::json::{list, text};

const PERSISTENT_VOLUME: Resource = Resource::new("", "v1", "PersistentVolume", "persistentvolumes", false);
/// Addresses of load balancers, from a range for documentation that no network uses.
const BALANCERS: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 1);
const SERVICE_OF: &str = "kubernetes.io/service-name";

/// Gives each Service of type LoadBalancer the lowest free address.
pub fn balance(shared: &Shared, scene: &Scene) {
    let hands = &shared.hands;
    let given = |service: &Value| {
        text(service, "/status/loadBalancer/ingress/0/ip").parse::<Ipv4Addr>().ok().map(u32::from)
    };
    let mut taken: Vec<u32> = scene.services.iter().filter_map(given).collect();
    let waits = |service: &&Value| {
        let (namespace, name) = place(service);
        service["spec"]["type"] == "LoadBalancer"
            && given(service).is_none()
            && shared.trouble_of(namespace, name) != Some(Trouble::NoAddress)
    };
    for service in scene.services.iter().filter(waits) {
        let free = (u32::from(BALANCERS)..).find(|address| !taken.contains(address)).unwrap_or_default();
        taken.push(free);
        let status = json!({"loadBalancer": {"ingress": [{"ip": Ipv4Addr::from(free)}]}});
        hands.set_status(&SERVICE, service, status);
    }
}

/// Writes the EndpointSlices of each Service.
pub fn write_slices(hands: &Hands, scene: &Scene) {
    for service in scene.services.iter().filter(|s| is_alive(s) && s["spec"]["selector"].is_object()) {
        let (namespace, name) = place(service);
        let ready =
            |pod: &Value| json!({"ready": is_ready(pod), "serving": is_ready(pod), "terminating": false});
        let endpoints: Vec<Value> = scene
            .behind(service)
            .filter(|pod| pod["status"]["podIP"].is_string())
            .map(|pod| {
                json!({"addresses": [pod["status"]["podIP"]], "conditions": ready(pod), "targetRef": {"kind": "Pod",
                    "namespace": namespace, "name": pod["metadata"]["name"], "uid": pod["metadata"]["uid"]}})
            })
            .collect();
        let port = |port: &Value| {
            let number = [&port["targetPort"], &port["port"]].into_iter().find(|n| n.is_u64()).cloned();
            json!({"name": port.get("name").cloned().unwrap_or_else(|| json!("")), "protocol": "TCP", "port": number})
        };
        let ports: Vec<Value> = list(service, "/spec/ports").iter().map(port).collect();
        let slice_name = format!("{name}-stand-in");
        match Scene::find(&scene.slices, namespace, &slice_name) {
            None => {
                let slice = json!({"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
                    "metadata": {"name": slice_name, "labels": {SERVICE_OF: name},
                        "ownerReferences": owned_by(service, "v1", "Service")},
                    "endpoints": endpoints, "ports": ports});
                hands.create(&ENDPOINT_SLICE, namespace, &slice);
            }
            Some(slice) if slice["endpoints"] != json!(endpoints) || slice["ports"] != json!(ports) => {
                let patch = json!({"endpoints": endpoints, "ports": ports});
                hands.merge(&ENDPOINT_SLICE, slice, patch);
            }
            Some(_) => {}
        }
    }
}

/// Tells dialers where the Services of each Shoot are.
pub fn write_routes(shared: &Shared, scene: &Scene) {
    for namespace in &scene.namespaces {
        let name = text(namespace, "/metadata/name");
        let server = shared.servers().get(name).map(|server| server.address());
        let sidecar = shared.sidecars().get(name).map(|sidecar| sidecar.address);
        let mut routes = BTreeMap::new();
        for service in scene.services.iter().filter(|s| text(s, "/metadata/namespace") == name) {
            let selector = &service["spec"]["selector"];
            let is_server = selector["app"] == "kubernetes" && selector["role"] == "apiserver";
            let is_etcd = text(service, "/metadata/name") == "etcd-main-client";
            for address in addresses(shared, service) {
                let beside = sidecar.filter(|_| is_etcd && address.ends_with(":8080"));
                routes.insert(address, beside.or(server.filter(|_| is_server)));
            }
        }
        shared.routes.set(name, routes);
    }
}

/// All addresses of a Service, as `host:port`.
fn addresses(shared: &Shared, service: &Value) -> Vec<String> {
    let (namespace, name) = place(service);
    let mut all = Vec::new();
    for port in list(service, "/spec/ports") {
        let number = &port["port"];
        let names = ["", ".cluster.local"].map(|end| format!("{name}.{namespace}.svc{end}:{number}"));
        all.extend(names);
        let ingress = list(service, "/status/loadBalancer/ingress").iter().map(|i| text(i, "/ip"));
        let hosts = ingress.chain([text(service, "/spec/clusterIP")]).filter(|host| !host.is_empty());
        all.extend(hosts.map(|host| format!("{host}:{number}")));
        if let Some(port) = port["nodePort"].as_u64() {
            all.extend(shared.options.node_addresses.iter().map(|host| format!("{host}:{port}")));
        }
    }
    all
}

/// The port of the nodes that leads to the API server of a namespace.
pub fn node_port(scene: &Scene, namespace: &str) -> Option<SocketAddr> {
    let mut services = scene.services.iter().filter(|service| {
        let selector = &service["spec"]["selector"];
        text(service, "/metadata/namespace") == namespace
            && selector["app"] == "kubernetes"
            && selector["role"] == "apiserver"
    });
    let port = services.find_map(|service| list(service, "/spec/ports").first()?["nodePort"].as_u64())?;
    Some(SocketAddr::from((Ipv4Addr::LOCALHOST, u16::try_from(port).ok()?)))
}

/// Binds claims. True if one of them waits.
pub fn bind(shared: &Shared, scene: &Scene) -> bool {
    let hands = &shared.hands;
    let mut waits = false;
    for claim in scene.claims.iter().filter(|c| is_alive(c) && c["status"]["phase"] != "Bound") {
        let (namespace, name) = place(claim);
        if shared.trouble_of(namespace, name) == Some(Trouble::Unbound) {
            let why = "waiting for a volume to be created, either by external provisioner \"none\" or manually created";
            hands.warn("PersistentVolumeClaim", claim, ("ExternalProvisioning", why));
            hands.set_status(&PERSISTENT_VOLUME_CLAIM, claim, json!({"phase": "Pending"}));
            continue;
        }
        if shared.trouble_of(namespace, name) == Some(Trouble::NoRoom) {
            // Classes of real seeds wait until a node is chosen.
            let why = "waiting for a pod to be scheduled";
            hands.warn("PersistentVolumeClaim", claim, ("WaitForPodScheduled", why));
            hands.set_status(&PERSISTENT_VOLUME_CLAIM, claim, json!({"phase": "Pending"}));
            continue;
        }
        waits = true;
        let volume = format!("pvc-{}", text(claim, "/metadata/uid"));
        let capacity = json!({"storage": claim["spec"]["resources"]["requests"]["storage"]});
        if shared.options.manager == Manager::Theirs {
            // kube-controller-manager binds what names the claim.
            hands.create(&PERSISTENT_VOLUME, CLUSTER_SCOPED, &volume_for(claim, &volume, &capacity));
            continue;
        }
        hands.merge(&PERSISTENT_VOLUME_CLAIM, claim, json!({"spec": {"volumeName": volume}}));
        let status =
            json!({"phase": "Bound", "accessModes": claim["spec"]["accessModes"], "capacity": capacity});
        hands.set_status(&PERSISTENT_VOLUME_CLAIM, claim, status);
    }
    waits
}

fn volume_for(claim: &Value, name: &str, capacity: &Value) -> Value {
    let (namespace, of) = place(claim);
    json!({"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name},
        "spec": {"storageClassName": text(claim, "/spec/storageClassName"), "capacity": capacity,
            "accessModes": claim["spec"]["accessModes"], "persistentVolumeReclaimPolicy": "Retain",
            "hostPath": {"path": format!("/var/lib/none/{name}")}, "claimRef": {"apiVersion": "v1",
                "kind": "PersistentVolumeClaim", "namespace": namespace, "name": of, "uid": claim["metadata"]["uid"]}}})
}
