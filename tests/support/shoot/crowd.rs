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
/// The objects of ManagedResources in the cluster of a Shoot: ManagedResource, group and version, kind, plural, and names.
const OBJECTS: [ObjectRow; 6] = [
    ("shoot-core-cluster-identity", "v1", "ConfigMap", "configmaps", &["cluster-identity"]),
    (
        "shoot-core-gardeneraccess",
        "rbac.authorization.k8s.io/v1",
        "ClusterRoleBinding",
        "clusterrolebindings",
        &["a:1", "a:2"],
    ),
    ("shoot-core-namespaces", "v1", "Namespace", "namespaces", &["kube-system"]),
    ("shoot-core-system", "v1", "ConfigMap", "configmaps", &["shoot-info"]),
    ("shoot-core-system", "rbac.authorization.k8s.io/v1", "ClusterRole", "clusterroles", &["s:1"]),
    (
        "shoot-core-system",
        "rbac.authorization.k8s.io/v1",
        "ClusterRoleBinding",
        "clusterrolebindings",
        &["s:1"],
    ),
];
/// Those of a Shoot with a pool in addition: as many, and of the same kinds, as it really has.
const OBJECTS_OF_HOSTS: [ObjectRow; 33] = [
    (
        "shoot-core-system",
        "scheduling.k8s.io/v1",
        "PriorityClass",
        "priorityclasses",
        &["p-900", "p-800", "p-700", "p-600"],
    ),
    (
        "shoot-core-system",
        "networking.k8s.io/v1",
        "NetworkPolicy",
        "networkpolicies",
        &["n1", "n2", "n3", "n4", "n5"],
    ),
    ("shoot-core-system", "v1", "Endpoints", "endpoints", &["kubernetes"]),
    ("shoot-core-system", "discovery.k8s.io/v1", "EndpointSlice", "endpointslices", &["kubernetes"]),
    ("shoot-core-coredns", "v1", "ConfigMap", "configmaps", &["coredns", "coredns-custom"]),
    ("shoot-core-coredns", "v1", "Service", "services", &["kube-dns"]),
    ("shoot-core-coredns", "v1", "ServiceAccount", "serviceaccounts", &["coredns"]),
    ("shoot-core-coredns", "apps/v1", "Deployment", "deployments", &["coredns"]),
    (
        "shoot-core-coredns",
        "autoscaling/v2",
        "HorizontalPodAutoscaler",
        "horizontalpodautoscalers",
        &["coredns"],
    ),
    ("shoot-core-coredns", "networking.k8s.io/v1", "NetworkPolicy", "networkpolicies", &["coredns"]),
    ("shoot-core-coredns", "policy/v1", "PodDisruptionBudget", "poddisruptionbudgets", &["coredns"]),
    ("shoot-core-coredns", "rbac.authorization.k8s.io/v1", "ClusterRole", "clusterroles", &["c:1"]),
    (
        "shoot-core-coredns",
        "rbac.authorization.k8s.io/v1",
        "ClusterRoleBinding",
        "clusterrolebindings",
        &["c:1"],
    ),
    ("shoot-core-konnectivity-agent", "v1", "ServiceAccount", "serviceaccounts", &["konnectivity-agent"]),
    ("shoot-core-konnectivity-agent", "v1", "Secret", "secrets", &["konnectivity-agent"]),
    ("shoot-core-konnectivity-agent", "apps/v1", "DaemonSet", "daemonsets", &["konnectivity-agent"]),
    ("shoot-core-kube-apiserver", "rbac.authorization.k8s.io/v1", "ClusterRole", "clusterroles", &["k:1"]),
    (
        "shoot-core-kube-apiserver",
        "rbac.authorization.k8s.io/v1",
        "ClusterRoleBinding",
        "clusterrolebindings",
        &["k:1"],
    ),
    (
        "shoot-core-kube-proxy",
        "v1",
        "ConfigMap",
        "configmaps",
        &["kube-proxy-1", "kube-proxy-2", "kube-proxy-3"],
    ),
    ("shoot-core-kube-proxy", "v1", "Secret", "secrets", &["kube-proxy"]),
    ("shoot-core-kube-proxy", "v1", "Service", "services", &["kube-proxy"]),
    ("shoot-core-kube-proxy", "v1", "ServiceAccount", "serviceaccounts", &["kube-proxy"]),
    (
        "shoot-core-kube-proxy",
        "rbac.authorization.k8s.io/v1",
        "ClusterRoleBinding",
        "clusterrolebindings",
        &["x:1"],
    ),
    (
        "shoot-core-kube-proxy-pool-v1.34.3",
        "apps/v1",
        "DaemonSet",
        "daemonsets",
        &["kube-proxy-pool-v1.34.3"],
    ),
    ("shoot-core-metrics-server", "v1", "Secret", "secrets", &["metrics-server"]),
    ("shoot-core-metrics-server", "v1", "Service", "services", &["metrics-server"]),
    ("shoot-core-metrics-server", "v1", "ServiceAccount", "serviceaccounts", &["metrics-server"]),
    (
        "shoot-core-metrics-server",
        "apiregistration.k8s.io/v1",
        "APIService",
        "apiservices",
        &["v1beta1.metrics.k8s.io"],
    ),
    ("shoot-core-metrics-server", "apps/v1", "Deployment", "deployments", &["metrics-server"]),
    (
        "shoot-core-metrics-server",
        "policy/v1",
        "PodDisruptionBudget",
        "poddisruptionbudgets",
        &["metrics-server"],
    ),
    ("shoot-core-metrics-server", "rbac.authorization.k8s.io/v1", "ClusterRole", "clusterroles", &["m:1"]),
    (
        "shoot-core-metrics-server",
        "rbac.authorization.k8s.io/v1",
        "ClusterRoleBinding",
        "clusterrolebindings",
        &["m:1", "m:2"],
    ),
    ("shoot-core-metrics-server", "rbac.authorization.k8s.io/v1", "RoleBinding", "rolebindings", &["m:1"]),
];
const EXTENSIONS: &str = "extensions.gardener.cloud";
/// A row of [`OBJECTS`].
type ObjectRow = (&'static str, &'static str, &'static str, &'static str, &'static [&'static str]);
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
        self.fill(now);
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

    fn objects(&self) -> impl Iterator<Item = &'static ObjectRow> {
        let of_hosts: &[ObjectRow] = if self.of_hosts { &OBJECTS_OF_HOSTS } else { &[] };
        OBJECTS.iter().chain(of_hosts)
    }

    /// Makes the objects of ManagedResources, once for all Shoots: the applier of each finds them as they should be, but for their
    /// origin.
    fn fill(&self, now: Timestamp) {
        self.server.store().write(|state| {
            for row in self.objects() {
                for name in row.4 {
                    let mut object = desired(row, name);
                    let metadata = &mut object["metadata"];
                    (metadata["uid"], metadata["generation"]) = (json!(uid(0, name)), json!(1));
                    match row.2 {
                        "Deployment" => object["status"] = rolled_out(now),
                        "DaemonSet" => object["status"] = on_each_node(),
                        _ => {}
                    }
                    if object["status"].is_object() {
                        // No controller follows what the appliers change.
                        object["status"]["observedGeneration"] = json!(i64::from(u32::MAX));
                    }
                    state.put(Id::new(group_of(row.1), row.3, space_of(row.3, name), name), object);
                }
            }
            // The pod of each Deployment.
            let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x", "namespace": "kube-system",
                "uid": uid(0, "x"), "labels": {"app": "x"}}, "spec": {}, "status": {"phase": "Running"}});
            state.put(Id::new("", "pods", "kube-system", "x"), pod);
        });
    }

    /// The content of the Secret of a ManagedResource.
    fn manifests(&self, managed: &str) -> String {
        let of_it = self.objects().filter(|(owner, ..)| *owner == managed);
        let all = of_it.flat_map(|row| row.4.iter().map(|name| desired(row, name).to_string()));
        all.collect::<Vec<_>>().join("\n---\n")
    }

    /// A ManagedResource, and the Secret with its objects if it has some.
    fn managed(
        &self,
        within: &dyn Fn(&str, &str, &str) -> Id,
        head: &dyn Fn(&str) -> Value,
        (name, class): (&str, &str),
        now: Timestamp,
    ) -> Vec<(Id, Value)> {
        let mut object = managed(head(name), class, now);
        let manifests = self.manifests(name);
        let mut all = Vec::new();
        if !manifests.is_empty() {
            let of_it = format!("managedresource-{name}");
            let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": head(&of_it), "type": "Opaque",
                "data": {"objects.yaml": base64(manifests.as_bytes())}});
            object["spec"]["secretRefs"] = json!([{"name": of_it}]);
            all.push((within("", "secrets", &of_it), secret));
        }
        all.push((within(GROUP, "managedresources", name), object));
        all
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
            all.extend(self.managed(&within, &head, (name, class), now));
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
            all.extend(self.managed(within, head, (name, ""), now));
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
    json!({"apiVersion": "apps/v1", "kind": kind, "metadata": metadata, "status": rolled_out(now),
        "spec": {"replicas": 1, "selector": {"matchLabels": {"app": "x"}}, "template": template()}})
}

fn template() -> Value {
    let arguments: Vec<String> = (0..ARGUMENTS)
        .map(|n| format!("--some-flag-of-it-{n}=/srv/kubernetes/folder-{n}/file-{n}.crt"))
        .collect();
    let mounts: Vec<Value> = (0..ARGUMENTS / 4)
        .map(|n| json!({"name": format!("v{n}"), "mountPath": format!("/srv/{n}")}))
        .collect();
    let container = json!({"name": "main", "image": "x:v1", "args": arguments, "volumeMounts": mounts});
    json!({"metadata": {"labels": {"app": "x"}}, "spec": {"containers": [container]}})
}

/// The status of a Deployment or a StatefulSet.
fn rolled_out(now: Timestamp) -> Value {
    let progress = [("Available", "True", "Yes"), ("Progressing", "True", "NewReplicaSetAvailable")];
    json!({"observedGeneration": 1, "replicas": 1, "readyReplicas": 1, "updatedReplicas": 1,
        "availableReplicas": 1, "conditions": conditions(&progress, now)})
}

/// An object of a ManagedResource.
fn desired((_, api_version, kind, plural, _): &ObjectRow, name: &str) -> Value {
    let mut metadata = json!({"name": name});
    let space = space_of(plural, name);
    if !space.is_empty() {
        metadata["namespace"] = json!(space);
    }
    let mut object = json!({"apiVersion": api_version, "kind": kind, "metadata": metadata});
    if *kind == "Secret" {
        object["type"] = json!("Opaque");
    }
    if ["Deployment", "DaemonSet"].contains(kind) {
        object["spec"] = json!({"selector": {"matchLabels": {"app": "x"}}, "template": template()});
    }
    object
}

/// The status of a DaemonSet on the only node.
fn on_each_node() -> Value {
    json!({"observedGeneration": 1, "currentNumberScheduled": 1, "desiredNumberScheduled": 1, "numberReady": 1,
        "updatedNumberScheduled": 1, "numberAvailable": 1})
}

fn group_of(api_version: &str) -> &str {
    api_version.split_once('/').map_or("", |(group, _)| group)
}

/// The namespace of an object.
fn space_of(plural: &str, name: &str) -> &'static str {
    match plural {
        "priorityclasses" | "clusterroles" | "clusterrolebindings" | "apiservices" | "namespaces" => "",
        "endpoints" | "endpointslices" if name == "kubernetes" => "default",
        _ => "kube-system",
    }
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
