//! A whole test cluster: the server, its CA, its users, its controllers.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use gardenlet::base::clock::{Clock, Timestamp};
use gardenlet::kube;
use serde_json::{Value, json};

use super::api::rbac;
use super::api::request::Info;
use super::api::store::{State, Store, settle};
use super::api::{Admission, Api, Connect, Target, User, builtin, kinds::Kind, kinds::Kinds};
use super::controllers::{Controllers, Share};
use super::encoding::base64;
use super::http::faults::Faults;
use super::http::record::Recorded;
use super::http::server::{Authorizer, Decision, Parts, Server, Webhook};
use super::options::patience;
use super::pace;
use super::pki::{Authority, Identity};

/// The longest time that a test waits for anything, on the clock of [`pace`](super::pace).
pub const PATIENCE: Duration = Duration::from_secs(30);

/// Who may do what.
pub enum Authorization {
    /// Every authenticated user may do everything.
    Open,
    /// Roles and bindings in the storage decide; `system:masters` may do everything.
    Rbac,
    Custom(Box<dyn Authorizer>),
}

/// How to start a cluster.
pub struct Options {
    pub name: String,
    pub clock: Clock,
    pub version: String,
    /// 0: any free port.
    pub port: u16,
    /// The built-in kinds, or none for a server that only serves groups of its own.
    pub builtin: bool,
    /// Kinds that are compiled in beyond the built-in ones.
    pub kinds: Vec<Kind>,
    pub authorization: Authorization,
    /// The part of kube-controller-manager's work that is done.
    pub share: Share,
    /// The time from the creation of a CustomResourceDefinition until its kind is served.
    pub crd_delay: Duration,
    /// The number of past changes that watches and paged lists can read.
    pub log_max: usize,
    /// CA (PEM) and common names of a front proxy that may speak for others.
    pub front_proxy: Option<(String, Vec<String>)>,
    pub webhook: Option<Webhook>,
    /// Answers subresources that are not part of their object.
    pub connect: Option<Connect>,
    /// Decides whether an object may be created.
    pub admission: Option<Admission>,
    /// Names and addresses in the server certificate beyond the usual ones.
    pub server_names: Vec<String>,
}

impl Options {
    pub fn new(name: &str, clock: &Clock) -> Self {
        Self {
            name: name.to_owned(),
            clock: clock.clone(),
            version: "v1.34.3".to_owned(),
            port: 0,
            builtin: true,
            kinds: Vec::new(),
            authorization: Authorization::Open,
            share: Share::default(),
            crd_delay: Duration::ZERO,
            log_max: 20_000,
            front_proxy: None,
            webhook: None,
            connect: None,
            admission: None,
            server_names: Vec::new(),
        }
    }
}

struct Open;

impl Authorizer for Open {
    fn decide(&self, _state: &State, user: &User, info: &Info) -> Decision {
        let open = ["/healthz", "/livez", "/readyz", "/version"];
        let allowed = user.is_in("system:authenticated")
            || (info.resource.is_empty() && open.contains(&info.path.as_str()));
        allowed.then_some(()).ok_or_else(String::new)
    }
}

struct Rbac;

impl Authorizer for Rbac {
    fn decide(&self, state: &State, user: &User, info: &Info) -> Decision {
        rbac::allows(state, user, info).then_some(()).ok_or_else(String::new)
    }
}

/// A running cluster. It ends when it is dropped.
pub struct TestCluster {
    pub name: String,
    server: Server,
    authorities: Mutex<Vec<Arc<Authority>>>,
    controllers: Controllers,
    server_names: Vec<String>,
}

impl TestCluster {
    /// Starts a cluster with the namespaces that every cluster has.
    pub fn start(options: Options) -> Self {
        let authority = Arc::new(Authority::new(&format!("{}-ca", options.name), options.clock.now()));
        let builtin = if options.builtin { builtin::kinds() } else { Vec::new() };
        let kinds = Kinds::new(builtin.into_iter().chain(options.kinds));
        let store = Store::new(kinds, options.log_max);
        let clock = options.clock.clone();
        let api = Api {
            store,
            clock,
            namespaces: options.builtin,
            crd_delay: options.crd_delay,
            admission: options.admission,
            is_dry: false,
            is_strict: false,
            warnings: Arc::default(),
        };
        let server = Server::start(Parts {
            api: api.clone(),
            authorizer: match options.authorization {
                Authorization::Open => Box::new(Open),
                Authorization::Rbac => Box::new(Rbac),
                Authorization::Custom(authorizer) => authorizer,
            },
            identity: server_identity(&authority, &options.server_names, &options.clock),
            client_authorities: vec![authority.certificate()],
            front_proxy: options.front_proxy,
            version: options.version,
            serves_core: options.builtin,
            webhook: options.webhook,
            connect: options.connect,
            port: options.port,
        })
        .unwrap();
        let controllers = Controllers::start(&api, &authority, options.share);
        let authorities = Mutex::new(vec![authority]);
        let cluster =
            Self { name: options.name, server, authorities, controllers, server_names: options.server_names };
        if options.builtin {
            for namespace in ["default", "kube-system", "kube-public", "kube-node-lease"] {
                cluster.create("v1", "namespaces", &json!({"metadata": {"name": namespace}}));
            }
            cluster.create("v1", "services", &own_service());
            cluster.create("v1", "endpoints", &own_endpoints());
        }
        cluster
    }

    pub fn api(&self) -> &Api {
        &self.server.shared.api
    }

    /// The storage, for direct access.
    pub fn store(&self) -> &Store {
        &self.server.shared.api.store
    }

    pub fn clock(&self) -> &Clock {
        &self.server.shared.api.clock
    }

    pub fn faults(&self) -> &Faults {
        &self.server.shared.faults
    }

    /// The server itself: to stop and start it, and for certificates, tokens and health.
    pub fn server(&self) -> &Server {
        &self.server
    }

    /// All requests so far.
    pub fn requests(&self) -> Vec<Recorded> {
        self.server.shared.record.all()
    }

    /// How many requests there were so far: a mark for [`TestCluster::requests_since`].
    pub fn request_count(&self) -> usize {
        self.server.shared.record.count()
    }

    /// The requests after a mark.
    pub fn requests_since(&self, mark: usize) -> Vec<Recorded> {
        self.server.shared.record.since(mark)
    }

    /// Bytes received and sent on the wire, TLS included, and connections taken, so far.
    pub fn traffic(&self) -> (u64, u64, u64) {
        let traffic = &self.server.shared.traffic;
        let read =
            |counter: &std::sync::atomic::AtomicU64| counter.load(std::sync::atomic::Ordering::Relaxed);
        (read(&traffic.received), read(&traffic.sent), read(&traffic.connections))
    }

    /// Starts or stops parts of kube-controller-manager's work.
    pub fn set_share(&self, share: Share) {
        self.controllers.set_share(share);
    }

    /// Namespaces get this CA to trust.
    pub fn set_root_ca(&self, certificate: &str) {
        self.controllers.set_root_ca(certificate);
    }

    /// Drops the history: watches and paged lists that need it get 410.
    pub fn compact(&self) {
        self.store().write(State::compact);
    }

    /// Restores the state of a revision, as from a backup. Connections end, and versions continue from there.
    pub fn restore(&self, revision: u64) {
        self.store().write(|state| state.restore(revision));
        self.server.cut();
    }

    /// The same. Then others write until the versions are higher than before.
    pub fn restore_and_go_on(&self, revision: u64) {
        self.store().write(|state| {
            let before = state.revision;
            state.restore(revision);
            state.go_on_to(before + 100);
        });
        self.server.cut();
    }

    pub fn url(&self) -> String {
        self.server.url()
    }

    /// The CA's certificate that signs now, PEM.
    pub fn ca(&self) -> String {
        self.authority().certificate()
    }

    pub fn authority(&self) -> Arc<Authority> {
        self.authorities.lock().unwrap_or_else(PoisonError::into_inner).last().unwrap().clone()
    }

    fn now(&self) -> Timestamp {
        self.clock().now()
    }

    /// A client certificate, valid for a year around now.
    pub fn client_identity(&self, user: &str, groups: &[&str]) -> Identity {
        let year = Duration::from_secs(365 * 86_400);
        let groups: Vec<String> = groups.iter().map(|g| (*g).to_owned()).collect();
        self.authority().client(user, &groups, self.now().minus(year), self.now().plus(year))
    }

    /// A kubeconfig (JSON, which is YAML) with a client certificate for this user.
    pub fn kubeconfig_for(&self, user: &str, groups: &[&str]) -> String {
        let identity = self.client_identity(user, groups);
        self.kubeconfig(&json!({"client-certificate-data": base64(identity.certificate.as_bytes()),
            "client-key-data": base64(identity.key.as_bytes())}))
    }

    /// A kubeconfig of a cluster-admin.
    pub fn admin_kubeconfig(&self) -> String {
        self.kubeconfig_for("admin", &["system:masters"])
    }

    /// A kubeconfig with a bearer token.
    pub fn bootstrap_kubeconfig(&self, token: &str) -> String {
        self.kubeconfig(&json!({"token": token}))
    }

    /// A client of a cluster-admin.
    pub fn client(&self) -> kube::Client {
        self.client_from(&self.admin_kubeconfig(), kube::Options::default())
    }

    /// A client with a kubeconfig and options of its own. It uses the cluster's clock and has no rate limit.
    pub fn client_from(&self, kubeconfig: &str, options: kube::Options) -> kube::Client {
        let connection =
            kube::kubeconfig::parse(kubeconfig, std::path::Path::new("/")).unwrap().current().unwrap();
        let options = kube::Options { qps: 0.0, clock: self.clock().clone(), ..options };
        kube::Client::new(connection, options).unwrap()
    }

    fn kubeconfig(&self, user: &Value) -> String {
        let cluster =
            json!({"server": self.url(), "certificate-authority-data": base64(self.ca().as_bytes())});
        json!({"apiVersion": "v1", "kind": "Config", "current-context": self.name,
            "clusters": [{"name": self.name, "cluster": cluster}], "users": [{"name": "user", "user": user}],
            "contexts": [{"name": self.name, "context": {"cluster": self.name, "user": "user"}}]})
        .to_string()
    }

    /// Replaces the CA: the server shows a certificate of the new one at once; it accepts client certificates of
    /// both CAs, and signs new ones with the new CA.
    pub fn rotate_ca(&self) {
        let mut authorities = self.authorities.lock().unwrap_or_else(PoisonError::into_inner);
        let name = format!("{}-ca-{}", self.name, authorities.len() + 1);
        let authority = Arc::new(Authority::new(&name, self.now()));
        authorities.push(authority.clone());
        let certificates: Vec<String> = authorities.iter().map(|a| a.certificate()).collect();
        self.server.set_identity(&server_identity(&authority, &self.server_names, self.clock()));
        self.server.set_client_authorities(&certificates);
        self.controllers.set_authority(&authority);
    }

    /// Shows a server certificate that was valid only in this time.
    pub fn serve_certificate(&self, from: Timestamp, until: Timestamp) {
        self.server.set_identity(&self.authority().server(&self.server_names, from, until));
    }

    /// Creates an object without the network. `api_version` is that of the object.
    pub fn create(&self, api_version: &str, plural: &str, object: &Value) -> Value {
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        let kind =
            self.api().kind(group, plural).unwrap_or_else(|| panic!("no kind {plural} of {api_version}"));
        let namespace = object["metadata"]["namespace"].as_str().unwrap_or_default();
        let target = Target { version: version.to_owned(), ..Target::new(kind, namespace, "") };
        self.api().create(&target, object.clone(), &User::system()).unwrap()
    }

    /// Creates complete objects (with `apiVersion` and `kind`) without the network, in order.
    pub fn apply(&self, objects: &[Value]) {
        for object in objects {
            let api_version = object["apiVersion"].as_str().unwrap();
            let group = api_version.split_once('/').map_or("", |(group, _)| group);
            let kind = object["kind"].as_str().unwrap();
            let kind =
                self.store().read().kinds.by_name(group, kind).unwrap_or_else(|| panic!("no kind {kind}"));
            self.create(api_version, &kind.plural, object);
        }
    }

    /// An object in its storage version.
    pub fn get(&self, group: &str, plural: &str, namespace: &str, name: &str) -> Option<Value> {
        self.store().get(group, plural, namespace, name)
    }

    /// Merges into an object without the network.
    pub fn merge(&self, group: &str, plural: &str, (namespace, name): (&str, &str), patch: &Value) -> Value {
        let target = Target::new(self.api().kind(group, plural).unwrap(), namespace, name);
        self.api().patch(&target, &super::api::write::Patch::Merge(patch.clone()), &User::system()).unwrap()
    }

    /// Merges into the status of an object without the network.
    pub fn merge_status(
        &self,
        group: &str,
        plural: &str,
        (namespace, name): (&str, &str),
        patch: &Value,
    ) -> Value {
        let target =
            Target::new(self.api().kind(group, plural).unwrap(), namespace, name).subresource("status");
        self.api().patch(&target, &super::api::write::Patch::Merge(patch.clone()), &User::system()).unwrap()
    }

    /// Deletes an object without the network, as a user would: finalizers keep it.
    pub fn delete(&self, group: &str, plural: &str, namespace: &str, name: &str) {
        let target = Target::new(self.api().kind(group, plural).unwrap(), namespace, name);
        self.api().delete(&target, &super::api::remove::Options::default()).unwrap();
    }

    /// Waits until `condition` returns something. It looks after each change of the storage. Panics after [`PATIENCE`].
    pub fn wait_for<T>(&self, what: &str, condition: impl Fn(&Self) -> Option<T>) -> T {
        self.wait_on(&pace::clock(), PATIENCE, condition)
            .unwrap_or_else(|| panic!("{}: timed out waiting for {what}", self.name))
    }

    /// The same with a real deadline of its own, and without a panic.
    pub fn wait_within<T>(
        &self,
        real: Duration,
        _what: &str,
        condition: impl Fn(&Self) -> Option<T>,
    ) -> Option<T> {
        self.wait_on(&Clock::system(), real, condition)
    }

    /// All waits end here: the limit is stretched where the machine may be slow.
    pub fn wait_on<T>(
        &self,
        clock: &Clock,
        limit: Duration,
        condition: impl Fn(&Self) -> Option<T>,
    ) -> Option<T> {
        let deadline = clock.mono() + patience(limit);
        loop {
            let revision = self.store().read().revision;
            if let Some(found) = condition(self) {
                return Some(found);
            }
            let left = deadline.saturating_sub(clock.mono());
            if left.is_zero() {
                return None;
            }
            // A condition may depend on requests and time, too, so look regularly.
            self.store().wait_after(revision, left.min(Duration::from_millis(20)));
            settle();
        }
    }
}

impl Drop for TestCluster {
    fn drop(&mut self) {
        self.controllers.stop();
        self.server.down();
    }
}

/// The Service of the API server itself.
fn own_service() -> Value {
    json!({"metadata": {"name": "kubernetes", "namespace": "default",
            "labels": {"component": "apiserver", "provider": "kubernetes"}},
        "spec": {"clusterIP": "10.52.0.1", "ports": [{"name": "https", "port": 443, "targetPort": 6443}]}})
}

/// The address that the API server announces.
fn own_endpoints() -> Value {
    json!({"metadata": {"name": "kubernetes", "namespace": "default"},
        "subsets": [{"addresses": [{"ip": "10.50.0.1"}], "ports": [{"name": "https", "port": 6443, "protocol": "TCP"}]}]})
}

fn server_identity(authority: &Authority, names: &[String], clock: &Clock) -> Identity {
    let year = Duration::from_secs(365 * 86_400);
    authority.server(names, clock.now().minus(year), clock.now().plus(year))
}
