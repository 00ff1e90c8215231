//! Many healthy Shoots, without a flow for each of them: their objects are written into the storage of garden and seed, and one
//! API server answers for all of them.

use gardenlet::base::clock::{Clock, Timestamp};
use serde_json::{Value, json};

use super::PREFIX;
use super::object::PROJECT_NAMESPACE;
use crate::api::store::Id;
use crate::controllers::Share;
use crate::encoding::{base64, rfc3339};
use crate::garden::prepare;
use crate::{Options, TestCluster};

const CORE: &str = "core.gardener.cloud";
const GROUP: &str = "resources.gardener.cloud";
/// ManagedResources of each Shoot, of class `seed` and without one.
const MANAGED: [(&str, &str); 7] = [
    ("referenced-resources", "seed"),
    ("shoot-core-cluster-identity", ""),
    ("shoot-core-gardeneraccess", ""),
    ("shoot-core-kube-controller-manager", ""),
    ("shoot-core-namespaces", ""),
    ("shoot-core-system", ""),
    ("shoot-gardener-resource-manager", "seed"),
];
/// The same of a Shoot with a pool of hosts in addition.
const MANAGED_OF_HOSTS: [&str; 7] = [
    "shoot-core-coredns",
    "shoot-core-konnectivity-agent",
    "shoot-core-kube-apiserver",
    "shoot-core-kube-proxy",
    "shoot-core-kube-proxy-pool-v1.34.3",
    "shoot-core-kube-scheduler",
    "shoot-core-metrics-server",
];
const EXTENSIONS: &str = "extensions.gardener.cloud";
/// The host of all Shoots with a pool.
const HOST: &str = "h1";
/// A pod template is most of a workload: about as many bytes as that of kube-apiserver.
const ARGUMENTS: usize = 90;

/// Many Shoots.
pub struct Crowd {
    /// The API server of all of them.
    pub server: TestCluster,
    count: usize,
    of_hosts: bool,
}

/// The name of a Shoot.
pub fn name(n: usize) -> String {
    format!("c{n}")
}

/// The namespace of its control plane.
pub fn plane(n: usize) -> String {
    format!("{PREFIX}p--{}", name(n))
}

impl Crowd {
    /// Starts the API server. `of_hosts`: the Shoots have a pool of one host. In `packaging/edge-hosts` is their type.
    pub fn new(count: usize, of_hosts: bool, clock: &Clock) -> Self {
        let mut options = Options::new("crowd", clock);
        options.share = Share::none();
        options.server_names = (0..count).map(|n| format!("kube-apiserver.{}.svc", plane(n))).collect();
        let crowd = Self { server: TestCluster::start(options), count, of_hosts };
        if of_hosts {
            let labels = json!({"worker.gardener.cloud/pool": "pool"});
            crowd.server.create("v1", "nodes", &json!({"metadata": {"name": HOST, "labels": labels}}));
            let status = json!({"conditions": [{"type": "Ready", "status": "True"}],
                "nodeInfo": {"kubeletVersion": "v1.34.3"}});
            crowd.server.merge_status("", "nodes", ("", HOST), &json!({"status": status}));
        }
        crowd
    }

    /// How many conditions each Shoot has.
    pub fn conditions(&self) -> usize {
        if self.of_hosts { 5 } else { 4 }
    }

    fn shoot(&self, n: usize, seed: &str, now: Timestamp) -> Value {
        let object = if self.of_hosts { prepare::shoot_of_hosts(&name(n)) } else { prepare::shoot(&name(n)) };
        shoot(object, n, seed, now)
    }

    /// Makes the Shoots, on the Seed of that name. The controllers for namespaces and workloads of the seed must have stopped.
    pub fn settle(&self, garden: &TestCluster, seed: &TestCluster, seed_name: &str) {
        let now = seed.clock().now();
        seed.store().write(|state| {
            for n in 0..self.count {
                for (id, object) in self.of_seed(n, now) {
                    state.put(id, object);
                }
            }
        });
        garden.store().write(|state| {
            for n in 0..self.count {
                let id = Id::new(CORE, "shoots", PROJECT_NAMESPACE, &name(n));
                state.put(id, self.shoot(n, seed_name, now));
            }
        });
    }

    fn of_seed(&self, n: usize, now: Timestamp) -> Vec<(Id, Value)> {
        let (namespace, address) = (plane(n), self.server.server().address());
        let head = |name: &str| {
            json!({"name": name, "namespace": namespace, "uid": uid(n, name), "generation": 1,
            "creationTimestamp": rfc3339(now)})
        };
        let within = |group: &str, plural: &str, name: &str| Id::new(group, plural, &namespace, name);
        let mut all = Vec::new();
        let labels = json!({"gardener.cloud/role": "shoot", "kubernetes.io/metadata.name": namespace});
        let space = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace,
            "uid": uid(n, ""), "labels": labels, "creationTimestamp": rfc3339(now)}, "status": {"phase": "Active"}});
        all.push((Id::new("", "namespaces", "", &namespace), space));
        let cluster = json!({"apiVersion": "extensions.gardener.cloud/v1alpha1", "kind": "Cluster",
            "metadata": {"name": namespace, "uid": uid(n, "cluster"), "generation": 1},
            "spec": {"cloudProfile": {}, "seed": {}, "shoot": self.shoot(n, "", now)}});
        all.push((Id::new("extensions.gardener.cloud", "clusters", "", &namespace), cluster));
        // Its cluster IP would be unreachable.
        let name = "kube-apiserver-exposure";
        let mut metadata = head(name);
        metadata["annotations"] = json!({"edge.gardenlet/exposure-address": "127.0.0.1"});
        let ports =
            json!([{"name": "kube-apiserver", "port": 443, "nodePort": address.port(), "protocol": "TCP"}]);
        let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": metadata,
            "spec": {"type": "NodePort", "clusterIP": "None", "ports": ports}});
        all.push((within("", "services", name), service));
        let authority = self.server.authority();
        let pair = json!({"ca.crt": base64(authority.certificate().as_bytes()),
            "ca.key": base64(authority.key().as_bytes())});
        let bundle = json!({"bundle.crt": base64(authority.certificate().as_bytes())});
        for (name, of, data) in [
            ("ca", "ca", &pair),
            ("ca-bundle", "ca-bundle", &bundle),
            ("ca-client", "ca-client", &pair),
            ("ca-etcd", "ca-etcd", &pair),
        ] {
            let mut metadata = head(name);
            let until = (now.unix() + 10 * 365 * 86_400).to_string();
            metadata["labels"] = json!({"managed-by": "secrets-manager", "manager-identity": "gardenlet", "name": of,
                "persist": "true", "valid-until-time": until});
            let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": data,
                "type": "Opaque", "immutable": true});
            all.push((within("", "secrets", name), secret));
        }
        for name in ["kube-apiserver", "kube-controller-manager"] {
            all.push((within("apps", "deployments", name), workload("Deployment", head(name), now)));
        }
        for name in ["etcd-events", "etcd-main"] {
            all.push((within("apps", "statefulsets", name), workload("StatefulSet", head(name), now)));
        }
        for (name, class) in MANAGED {
            all.push((within(GROUP, "managedresources", name), managed(head(name), class, now)));
        }
        if self.of_hosts {
            all.extend(self.of_nodes(&within, &head, now));
        }
        all
    }

    /// What only a Shoot with nodes has.
    fn of_nodes(
        &self,
        within: &dyn Fn(&str, &str, &str) -> Id,
        head: &dyn Fn(&str) -> Value,
        now: Timestamp,
    ) -> Vec<(Id, Value)> {
        let scheduler = "kube-scheduler";
        let mut all =
            vec![(within("apps", "deployments", scheduler), workload("Deployment", head(scheduler), now))];
        for name in MANAGED_OF_HOSTS {
            all.push((within(GROUP, "managedresources", name), managed(head(name), "", now)));
        }
        let done = json!({"observedGeneration": 1, "lastOperation": {"type": "Create", "state": "Succeeded",
            "progress": 100, "description": "", "lastUpdateTime": rfc3339(now)}});
        for (kind, plural) in [
            ("Infrastructure", "infrastructures"),
            ("ControlPlane", "controlplanes"),
            ("Network", "networks"),
        ] {
            let object = json!({"apiVersion": format!("{EXTENSIONS}/v1alpha1"), "kind": kind,
                "metadata": head(plural), "spec": {"type": prepare::HOSTS}, "status": done});
            all.push((within(EXTENSIONS, plural, plural), object));
        }
        let data = json!({"tls.crt": base64(self.server.authority().certificate().as_bytes())});
        for name in ["ca-kubelet", "ca-metrics-server", "ca-vpn", "konnectivity-agent", "konnectivity-server"]
        {
            let mut metadata = head(name);
            metadata["labels"] =
                json!({"managed-by": "secrets-manager", "manager-identity": "gardenlet", "name": name});
            let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": data,
                "type": "Opaque", "immutable": true});
            all.push((within("", "secrets", name), secret));
        }
        all
    }
}

/// An identity that no other object has.
fn uid(n: usize, name: &str) -> String {
    let sum = name.bytes().fold(0_u64, |sum, byte| (sum * 31 + u64::from(byte)) % 0xffff_ffff);
    format!("{sum:08x}-0000-4000-8000-{n:012}")
}

fn conditions(all: &[(&str, &str, &str)], now: Timestamp) -> Value {
    let condition = |(kind, status, reason): &(&str, &str, &str)| {
        json!({"type": kind, "status": status, "reason": reason, "message": "As it should be.",
            "lastTransitionTime": rfc3339(now), "lastUpdateTime": rfc3339(now)})
    };
    all.iter().map(condition).collect()
}

fn shoot(mut shoot: Value, n: usize, seed: &str, now: Timestamp) -> Value {
    let label = format!("name.seed.gardener.cloud/{seed}");
    shoot["metadata"]["labels"] = json!({label: "true"});
    // The flow leaves it alone, where such a word counts.
    shoot["metadata"]["annotations"] = json!({"shoot.gardener.cloud/ignore": "true"});
    shoot["metadata"]["uid"] = json!(uid(n, "shoot"));
    shoot["metadata"]["generation"] = json!(1);
    shoot["metadata"]["creationTimestamp"] = json!(rfc3339(now));
    shoot["metadata"]["finalizers"] = json!(["gardener"]);
    shoot["spec"]["seedName"] = json!(seed);
    shoot["status"] = json!({"seedName": seed, "technicalID": plane(n), "uid": uid(n, "shoot"), "hibernated": false,
        "observedGeneration": 1, "gardener": {"id": "", "name": "", "version": ""},
        "lastOperation": {"type": "Create", "state": "Succeeded", "progress": 100, "lastUpdateTime": rfc3339(now),
            "description": "Shoot cluster has been successfully reconciled."}});
    shoot
}

fn workload(kind: &str, mut metadata: Value, now: Timestamp) -> Value {
    metadata["labels"] = json!({"gardener.cloud/role": "controlplane"});
    let arguments: Vec<String> = (0..ARGUMENTS)
        .map(|n| format!("--some-flag-of-it-{n}=/srv/kubernetes/folder-{n}/file-{n}.crt"))
        .collect();
    let mounts: Vec<Value> = (0..ARGUMENTS / 4)
        .map(|n| json!({"name": format!("v{n}"), "mountPath": format!("/srv/{n}")}))
        .collect();
    let container = json!({"name": "main", "image": "x:v1", "args": arguments, "volumeMounts": mounts});
    let progress = [("Available", "True", "Yes"), ("Progressing", "True", "NewReplicaSetAvailable")];
    json!({"apiVersion": "apps/v1", "kind": kind, "metadata": metadata,
        "spec": {"replicas": 1, "selector": {"matchLabels": {"app": "x"}},
            "template": {"metadata": {"labels": {"app": "x"}}, "spec": {"containers": [container]}}},
        "status": {"observedGeneration": 1, "replicas": 1, "readyReplicas": 1, "updatedReplicas": 1,
            "availableReplicas": 1, "conditions": conditions(&progress, now)}})
}

fn managed(metadata: Value, class: &str, now: Timestamp) -> Value {
    let of = [
        ("ResourcesApplied", "True", "ApplySucceeded"),
        ("ResourcesHealthy", "True", "ResourcesHealthy"),
        ("ResourcesProgressing", "False", "ResourcesRolledOut"),
    ];
    let mut spec = json!({"secretRefs": []});
    if !class.is_empty() {
        spec["class"] = json!(class);
    }
    json!({"apiVersion": format!("{GROUP}/v1alpha1"), "kind": "ManagedResource", "metadata": metadata, "spec": spec,
        "status": {"observedGeneration": 1, "conditions": conditions(&of, now)}})
}
