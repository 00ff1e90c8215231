//! The API server of a Shoot: that of the tests, started with the arguments of a Deployment `kube-apiserver`.

use std::net::SocketAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use gardenlet::base::clock::Clock;
use gardenlet::format::cidr::Cidr;
use gardenlet::kube::connection::ServerTrust;
use gardenlet::kube::{self, Client, Connection, Method};
use serde_json::{Value, json};

use super::host::APPLIED;
use super::ledger::Tenure;
use super::settings::Settings;
use crate::TestCluster;
use crate::api::store::Id;
use crate::cluster::{Authorization, Options};
use crate::controllers::Share;
use crate::controllers::workloads::HOLD;
use crate::encoding::rfc3339_micro;
use crate::json::{entry, set, text};

const RBAC: &str = "rbac.authorization.k8s.io";
const LEASES: &str = "coordination.k8s.io";
/// How often kube-controller-manager renews its Lease.
const RENEWAL: Duration = Duration::from_secs(2);
/// How often the agent of a node renews its Lease.
const AGENT_RENEWAL: Duration = Duration::from_secs(10);

/// What runs.
#[derive(Default)]
struct Life {
    /// The UID of the pod in which it runs; none while it does not.
    pod: Option<String>,
    /// The hosts of etcd.
    etcd: Vec<String>,
    /// The client that probes, with its token.
    prober: Option<(String, Client)>,
    /// Whether kube-controller-manager runs, too.
    has_controllers: bool,
    /// Whether its workloads run on nodes.
    has_nodes: bool,
}

/// An API server with its data. The data replace etcd: they survive a restart of the server.
pub struct Server {
    /// Its storage, its requests, its faults.
    pub cluster: TestCluster,
    /// The UID of the namespace that it belongs to. A later one of the same name has data of its own.
    pub namespace_uid: String,
    life: Mutex<Life>,
    /// Its place in the chain of the Shoot's data, if somebody keeps a ledger.
    tenure: Mutex<Option<Tenure>>,
}

impl Server {
    /// A server with nothing in its storage but what every cluster has. It does not listen yet. `port`: 0 for any.
    pub fn new(namespace: &str, namespace_uid: &str, clock: &Clock, port: u16) -> Self {
        let mut options = Options::new(namespace, clock);
        options.authorization = Authorization::Rbac;
        options.share = Share::none();
        options.port = port;
        let cluster = TestCluster::start(options);
        cluster.server().down();
        cluster.apply(&policy());
        Self {
            cluster,
            namespace_uid: namespace_uid.to_owned(),
            life: Mutex::default(),
            tenure: Mutex::default(),
        }
    }

    fn life(&self) -> MutexGuard<'_, Life> {
        self.life.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells the ledger from now on when it serves.
    pub fn enter(&self, tenure: Tenure) {
        *self.tenure.lock().unwrap_or_else(PoisonError::into_inner) = Some(tenure);
    }

    fn tell(&self, tell: impl FnOnce(&Tenure)) {
        let tenure = self.tenure.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(tenure) = &*tenure {
            tell(tenure);
        }
    }

    /// Where it listens, or would.
    pub fn address(&self) -> SocketAddr {
        self.cluster.server().address()
    }

    /// The UID of the pod in which it runs.
    pub fn pod(&self) -> Option<String> {
        self.life().pod.clone()
    }

    /// The hosts of its etcd.
    pub fn etcd(&self) -> Vec<String> {
        self.life().etcd.clone()
    }

    /// Starts again in this pod.
    pub fn run(&self, pod: &str, settings: Settings) {
        let server = self.cluster.server();
        server.down();
        server.set_identity(&settings.identity);
        server.set_client_authorities(&[settings.client_authorities]);
        server.set_front_proxy(&settings.front_proxy);
        server.set_anonymous(settings.anonymous);
        server.set_tokens(settings.tokens, settings.accounts);
        server.set_version(&settings.version);
        server.set_documents(settings.documents);
        self.serve_at(&settings.service_range);
        self.cluster.store().write(|state| {
            let kinds: Vec<_> = state.kinds.all().cloned().collect();
            for kind in kinds {
                let version = kind.api_version(&kind.storage);
                let is_off =
                    |entry: &String| *entry == version || *entry == format!("{version}/{}", kind.plural);
                if settings.disabled.iter().any(is_off) {
                    state.kinds.remove(&kind.group, &kind.plural);
                }
            }
        });
        {
            let mut life = self.life();
            life.pod = Some(pod.to_owned());
            life.etcd = settings.etcd;
            life.prober = None;
        }
        server.set_healthy(true);
        self.tell(Tenure::serves);
        server.up().unwrap();
    }

    /// Stops. The data stay.
    pub fn stop(&self) {
        if self.life().pod.take().is_some() {
            self.cluster.server().down();
            self.tell(Tenure::stops);
        }
    }

    /// Service `kubernetes` has the first address of the range.
    fn serve_at(&self, range: &str) {
        let Some(range) = Cidr::parse(range) else { return };
        let address = range.nth(1).to_string();
        let id = Id::new("", "services", "default", "kubernetes");
        let present = self.cluster.get("", "services", "default", "kubernetes");
        let Some(mut service) = present.filter(|service| service["spec"]["clusterIP"] != address) else {
            return;
        };
        set(&mut service, "/spec/clusterIP", address.clone());
        set(&mut service, "/spec/clusterIPs", json!([address]));
        self.cluster.store().write(|state| drop(state.put(id, service)));
    }

    /// Whether etcd answers.
    pub fn set_healthy(&self, is_healthy: bool) {
        self.cluster.server().set_healthy(is_healthy);
    }

    /// Probes as a kubelet does: without a check of the certificate.
    pub fn probe(&self, path: &str, token: Option<&str>) -> bool {
        if self.pod().is_none() {
            return false;
        }
        let token = token.unwrap_or_default();
        let client = self.prober(token);
        client.is_some_and(|client| {
            client.raw(Method::Get, path, None, "").is_ok_and(|response| response.is_success())
        })
    }

    fn prober(&self, token: &str) -> Option<Client> {
        let mut life = self.life();
        if let Some((_, client)) = life.prober.as_ref().filter(|(known, _)| known == token) {
            return Some(client.clone());
        }
        let connection = Connection::new(self.cluster.url()).with_trust(ServerTrust::Insecure);
        let connection = if token.is_empty() { connection } else { connection.with_token(token) };
        let options = kube::Options {
            user_agent: "kube-probe".to_owned(),
            timeout: Duration::from_secs(5),
            ..kube::Options::default()
        };
        let client = Client::new(connection, options).ok()?;
        life.prober = Some((token.to_owned(), client.clone()));
        Some(client)
    }

    /// What kube-controller-manager does while it runs: namespaces get the CA and their default account, owned objects
    /// go with their owners, its Lease is renewed. `ca`: the bundle that it publishes.
    pub fn set_controllers(&self, ca: Option<&str>) {
        let is_running = ca.is_some() && self.pod().is_some();
        if std::mem::replace(&mut self.life().has_controllers, is_running) != is_running {
            self.share();
        }
        if let Some(ca) = ca.filter(|_| is_running) {
            self.cluster.set_root_ca(ca);
            self.renew_lease("kube-controller-manager", RENEWAL);
            self.run_daemons();
            self.run_agents();
        }
    }

    fn share(&self) {
        let life = self.life();
        let (is_running, workloads) = (life.has_controllers, life.has_controllers && life.has_nodes);
        drop(life);
        self.cluster.set_share(Share {
            namespaces: is_running,
            garbage: is_running,
            workloads,
            ..Share::none()
        });
    }

    /// What is meant for nodes runs on them from now on.
    pub fn has_nodes(&self) {
        self.life().has_nodes = true;
        self.share();
    }

    /// A host of a pool joins, unless it is there: it is ready, and everything runs on it.
    pub fn join(&self, name: &str, pool: &str) {
        self.has_nodes();
        if self.cluster.get("", "nodes", "", name).is_some() {
            return;
        }
        let version = self.cluster.server().shared.version();
        let labels = json!({"worker.gardener.cloud/pool": pool, "kubernetes.io/hostname": name});
        let ready = json!({"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "kubelet is posting ready status"});
        self.cluster.create("v1", "nodes", &json!({"metadata": {"name": name, "labels": labels}}));
        let status = json!({"status": {"conditions": [ready], "nodeInfo": {"kubeletVersion": version}}});
        self.cluster.merge_status("", "nodes", ("", name), &status);
    }

    /// Each node has a ready pod of each DaemonSet, of its present template. Those of a DaemonSet that is [held](HOLD) stay.
    fn run_daemons(&self) {
        if !self.life().has_nodes {
            return;
        }
        for node in self.cluster.store().names("", "nodes", "") {
            for daemons in self.cluster.store().all("apps", "daemonsets", "") {
                let (namespace, name) =
                    (text(&daemons, "/metadata/namespace"), text(&daemons, "/metadata/name"));
                let is_held = entry(&daemons, "/metadata/annotations", HOLD).is_some();
                let name = format!("{name}-{node}");
                let mut spec = daemons["spec"]["template"]["spec"].clone();
                spec["nodeName"] = json!(node);
                match self.cluster.get("", "pods", namespace, &name) {
                    Some(pod) if is_held || pod["spec"]["volumes"] == spec["volumes"] => continue,
                    Some(_) => self.cluster.delete("", "pods", namespace, &name),
                    None => {}
                }
                let labels = &daemons["spec"]["template"]["metadata"]["labels"];
                let owner = json!({"apiVersion": "apps/v1", "kind": "DaemonSet", "name": daemons["metadata"]["name"],
                    "uid": daemons["metadata"]["uid"], "controller": true});
                let metadata = json!({"name": name, "namespace": namespace, "labels": labels, "ownerReferences": [owner]});
                let pod = json!({"metadata": metadata, "spec": spec});
                self.cluster.create("v1", "pods", &pod);
                let ready = json!({"type": "Ready", "status": "True"});
                let status = json!({"status": {"phase": "Running", "conditions": [ready]}});
                self.cluster.merge_status("", "pods", (namespace, &name), &status);
            }
        }
    }

    /// The agents of nodes work that have applied something, except on a node that is [held](HOLD).
    fn run_agents(&self) {
        for node in self.cluster.store().all("", "nodes", "") {
            let has = |annotation: &str| entry(&node, "/metadata/annotations", annotation).is_some();
            if has(APPLIED) && !has(HOLD) {
                let node = text(&node, "/metadata/name");
                self.renew_lease(&format!("gardener-node-agent-{node}"), AGENT_RENEWAL);
            }
        }
    }

    fn renew_lease(&self, name: &str, period: Duration) {
        let namespace = "kube-system";
        let now = self.cluster.clock().now();
        let Some(lease) = self.cluster.get(LEASES, "leases", namespace, name) else {
            let spec = json!({"holderIdentity": "stand-in", "leaseDurationSeconds": 15, "renewTime": rfc3339_micro(now)});
            let lease = json!({"metadata": {"name": name, "namespace": namespace}, "spec": spec});
            self.cluster.create("coordination.k8s.io/v1", "leases", &lease);
            return;
        };
        let due = rfc3339_micro(now.minus(period));
        if lease["spec"]["renewTime"].as_str().is_none_or(|renewed| *renewed < *due) {
            let patch = json!({"spec": {"renewTime": rfc3339_micro(now)}});
            self.cluster.merge(LEASES, "leases", (namespace, name), &patch);
        }
    }
}

/// The roles that an API server creates at its start, as far as bindings refer to them, and the rights that its node authorizer gives.
fn policy() -> Vec<Value> {
    let everything = json!([{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}, {"nonResourceURLs": ["*"], "verbs": ["*"]}]);
    let requests = json!({"apiGroups": ["certificates.k8s.io"], "resources": ["certificatesigningrequests"],
        "verbs": ["create", "get", "list", "watch"]});
    let nodes = json!({"apiGroups": [""], "resources": ["nodes", "nodes/status"],
        "verbs": ["create", "get", "list", "watch", "patch", "update"]});
    let role = |name: &str, rules: &Value| json!({"apiVersion": format!("{RBAC}/v1"), "kind": "ClusterRole", "metadata": {"name": name}, "rules": rules});
    let binding = |name: &str, group: &str| {
        json!({"apiVersion": format!("{RBAC}/v1"), "kind": "ClusterRoleBinding",
        "metadata": {"name": name}, "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": name},
        "subjects": [{"apiGroup": RBAC, "kind": "Group", "name": group}]})
    };
    vec![
        role("cluster-admin", &everything),
        role("system:node-bootstrapper", &json!([requests])),
        role("system:node", &json!([requests, nodes])),
        binding("cluster-admin", "system:masters"),
        binding("system:node", "system:nodes"),
    ]
}
