//! One real cluster on loopback: etcd, kube-apiserver, kube-controller-manager, and a scheduler if it needs one.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use gardenlet::api::core::{CONFIG_MAP, SERVICE_ACCOUNT};
use gardenlet::api::meta::{Key, Metadata};
use gardenlet::base::clock::{Clock, Timestamp};
use gardenlet::format::base64;
use gardenlet::kube::{self, Client, Connection, Method};
use rcgen::KeyPair;
use serde_json::{Value, json};

use crate::audit::Audit;
use crate::environment::Environment;
use crate::etcd::{Etcd, Stored};
use crate::failure::{Doing, Failure, Result};
use crate::process::{self, Process};
use crate::sandbox::ADDRESS;
use crate::wait;
use support::options::patience;
use support::pki::{Authority, Identity};

/// The differences between the clusters.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Role {
    pub(crate) name: &'static str,
    /// etcd's port; the next one is its peer port.
    etcd_port: u16,
    /// The API server's port; the next is the controller manager's, then the scheduler's.
    pub(crate) api_port: u16,
    pub(crate) service_range: &'static str,
    /// The address of the service `kubernetes`.
    service_address: &'static str,
    /// More names of the API server.
    server_names: &'static [&'static str],
    arguments: &'static [&'static str],
    controllers: &'static str,
    scheduler: bool,
}

/// The aggregated API of the in-process garden is a service of type ExternalName, so this cluster has no aggregator
/// routing.
pub(crate) const GARDEN: Role = Role {
    name: "garden",
    etcd_port: 12_379,
    api_port: 16_443,
    service_range: "10.0.0.0/24",
    service_address: "10.0.0.1",
    server_names: &[],
    arguments: &["--endpoint-reconciler-type=none"],
    controllers: "namespace-controller,serviceaccount-controller,serviceaccount-token-controller,\
        root-ca-certificate-publisher-controller,certificatesigningrequest-signing-controller,\
        certificatesigningrequest-approving-controller,certificatesigningrequest-cleaner-controller,\
        bootstrap-signer-controller,token-cleaner-controller,garbage-collector-controller,\
        clusterrole-aggregation-controller",
    scheduler: false,
};

pub(crate) const SEED: Role = Role {
    name: "seed",
    etcd_port: 22_379,
    api_port: 26_443,
    service_range: "10.1.0.0/16",
    service_address: "10.1.0.1",
    server_names: &[],
    arguments: &["--enable-aggregator-routing=true"],
    controllers: "*,bootstrap-signer-controller,token-cleaner-controller",
    scheduler: true,
};

/// The cluster of a Shoot that becomes a seed. A story starts it. Its API server has a node port of the seed, where the
/// agent of the seed finds it.
pub(crate) const SHOOT: Role = Role {
    name: "shoot",
    etcd_port: 32_379,
    api_port: 31_443,
    service_range: "10.2.0.0/16",
    service_address: "10.2.0.1",
    server_names: &["kube-apiserver.shoot--garden--s1.svc"],
    scheduler: false,
    ..SEED
};

/// Another seed, which a story starts. Its node is on a machine beside the sandbox.
pub(crate) const SECOND_SEED: Role = Role {
    name: "seed-2",
    etcd_port: 42_379,
    api_port: 36_443,
    service_range: "10.3.0.0/16",
    service_address: "10.3.0.1",
    ..SEED
};

/// The name in the client certificate that an API server shows to aggregated APIs.
pub(crate) const FRONT_PROXY: &str = "front-proxy-client";

/// Requests that are written to `<cluster>/audit.log`: those of agents, the decisions about their CSRs, and the
/// heartbeats of extensions.
const AUDIT_POLICY: &str = r"
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- {level: Metadata, userGroups: ['gardener.cloud:system:seeds', 'system:bootstrappers', 'system:serviceaccounts:garden']}
- level: Metadata
  userGroups: ['system:serviceaccounts']
  resources: [{group: coordination.k8s.io, resources: [leases], resourceNames: [gardener-extension-heartbeat]}]
- {level: None}
";

/// One cluster.
pub(crate) struct Cluster {
    pub(crate) role: Role,
    /// Keys, certificates and data.
    folder: PathBuf,
    state: PathBuf,
    environment: Environment,
    pub(crate) authority: Authority,
    /// Signs the client certificate for aggregated APIs.
    pub(crate) front_proxy: Authority,
    /// In the order of their start; they end in reverse order.
    servers: Vec<(Server, Process)>,
    /// The stored objects after the start of the cluster.
    pristine: Stored,
    /// The address of the API server in the kubeconfigs of agents, if it differs from the real one.
    pub(crate) front: Option<String>,
    /// The file with the authorizers of the API server, if they are not the usual ones.
    authorizers: Option<PathBuf>,
}

/// The programs of a cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Server {
    Etcd,
    Api,
    Controllers,
    Scheduler,
}

impl Server {
    const fn program(self) -> &'static str {
        match self {
            Self::Etcd => "etcd",
            Self::Api => "kube-apiserver",
            Self::Controllers => "kube-controller-manager",
            Self::Scheduler => "kube-scheduler",
        }
    }
}

impl Cluster {
    /// Writes keys, certificates and kubeconfigs.
    pub(crate) fn prepare(role: Role, environment: &Environment, state: &Path) -> Result<Self> {
        let folder = state.join(role.name);
        fs::create_dir_all(&folder).doing(|| format!("create {}", folder.display()))?;
        let (from, until) = validity();
        let authority = Authority::new(&format!("{}-ca", role.name), from);
        let front_proxy = Authority::new(&format!("{}-front-proxy-ca", role.name), from);
        write(&folder.join("ca.crt"), &authority.certificate())?;
        write(&folder.join("root-ca.crt"), &authority.certificate())?;
        write(&folder.join("ca.key"), authority.key())?;
        write(&folder.join("front-proxy-ca.crt"), &front_proxy.certificate())?;
        write_identity(&folder, FRONT_PROXY, &front_proxy.client(FRONT_PROXY, &[], from, until))?;
        write_identity(&folder, "server", &server_identity(&authority, &role))?;
        let tokens = KeyPair::generate()?;
        write(&folder.join("tokens.key"), &tokens.serialize_pem())?;
        write(&folder.join("tokens.pub"), &tokens.public_key_pem())?;
        write(&folder.join("audit.yaml"), AUDIT_POLICY)?;
        let cluster = Self {
            role,
            folder,
            state: state.to_owned(),
            environment: environment.clone(),
            authority,
            front_proxy,
            servers: Vec::new(),
            pristine: Stored::default(),
            front: None,
            authorizers: None,
        };
        cluster.write_kubeconfig(&cluster.kubeconfig(), "admin", Some("system:masters"))?;
        let users =
            [("controllers", "system:kube-controller-manager"), ("scheduler", "system:kube-scheduler")];
        for (file, user) in users {
            cluster.write_kubeconfig(&cluster.folder.join(format!("{file}.kubeconfig")), user, None)?;
        }
        Ok(cluster)
    }

    /// The address of the API server.
    pub(crate) fn url(&self) -> String {
        format!("https://127.0.0.1:{}", self.role.api_port)
    }

    /// The address of etcd.
    pub(crate) fn etcd_url(&self) -> String {
        format!("http://127.0.0.1:{}", self.role.etcd_port)
    }

    pub(crate) fn address(&self) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], self.role.api_port))
    }

    /// A certificate for a server at the addresses of the API server, with a new key.
    pub(crate) fn server_identity(&self) -> Identity {
        server_identity(&self.authority, &self.role)
    }

    /// The client certificate that the API server shows to aggregated APIs and trusts itself: its owner can impersonate
    /// others.
    pub(crate) fn front_proxy_identity(&self) -> Identity {
        let (from, until) = validity();
        self.front_proxy.client(FRONT_PROXY, &[], from, until)
    }

    /// The kubeconfig of a cluster administrator.
    pub(crate) fn kubeconfig(&self) -> PathBuf {
        self.state.join(format!("{}.kubeconfig", self.role.name))
    }

    /// Writes a kubeconfig for a user of this cluster, with a client certificate.
    pub(crate) fn write_kubeconfig(&self, path: &Path, user: &str, group: Option<&str>) -> Result<()> {
        let identity = self.sign(user, group);
        let user = json!({
            "client-certificate-data": base64::encode(identity.certificate.as_bytes()),
            "client-key-data": base64::encode(identity.key.as_bytes()),
        });
        self.write_kubeconfig_with(path, &user)
    }

    /// Writes a kubeconfig for this cluster with `user` as its credentials.
    pub(crate) fn write_kubeconfig_with(&self, path: &Path, user: &Value) -> Result<()> {
        write(path, &self.kubeconfig_text(user))
    }

    /// A kubeconfig for this cluster with `user` as its credentials, and no reference to a file.
    pub(crate) fn kubeconfig_text(&self, user: &Value) -> String {
        self.kubeconfig_at(&self.front.clone().unwrap_or_else(|| self.url()), user)
    }

    /// The same for a server at another address, whose certificate this cluster has signed.
    pub(crate) fn kubeconfig_at(&self, server: &str, user: &Value) -> String {
        json!({
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": self.role.name, "cluster": {
                "server": server,
                "certificate-authority-data": base64::encode(self.authority.certificate().as_bytes()),
            }}],
            "users": [{"name": "user", "user": user}],
            "contexts": [{"name": "context", "context": {"cluster": self.role.name, "user": "user"}}],
            "current-context": "context",
        })
        .to_string()
    }

    /// Requests of agents to this cluster from now on.
    pub(crate) fn audit(&self) -> Audit {
        Audit::from_now(&self.audit_log())
    }

    pub(crate) fn audit_log(&self) -> PathBuf {
        self.folder.join("audit.log")
    }

    /// A client of an administrator.
    pub(crate) fn client(&self) -> Result<Client> {
        self.client_of("admin", Some("system:masters"))
    }

    /// A client of a user with a certificate.
    pub(crate) fn client_of(&self, user: &str, group: Option<&str>) -> Result<Client> {
        let identity = self.sign(user, group);
        let connection = self.connection().with_certificate(identity.certificate, identity.key);
        Client::new(connection, kube::Options::default()).doing(|| format!("client of {user}"))
    }

    /// A client with a bearer token.
    pub(crate) fn client_with_token(&self, token: &str) -> Result<Client> {
        let connection = self.connection().with_token(token);
        Client::new(connection, kube::Options::default()).doing(|| "client with a token".to_owned())
    }

    /// A client certificate for a year.
    pub(crate) fn sign(&self, user: &str, group: Option<&str>) -> Identity {
        let groups: Vec<String> = group.into_iter().map(str::to_owned).collect();
        let (from, until) = validity();
        self.authority.client(user, &groups, from, until)
    }

    /// The address and the CA of the API server, without credentials.
    pub(crate) fn connection(&self) -> Connection {
        Connection::new(self.url()).with_ca(self.authority.certificate().as_bytes())
    }

    /// Runs kubectl as administrator.
    pub(crate) fn kubectl(&self, arguments: &[&str]) -> Result<String> {
        self.kubectl_as(&self.kubeconfig(), arguments)
    }

    /// Runs kubectl as the user of a kubeconfig.
    pub(crate) fn kubectl_as(&self, kubeconfig: &Path, arguments: &[&str]) -> Result<String> {
        let mut command = self.environment.command("kubectl")?;
        // Its discovery cache would otherwise be written to the home folder.
        command.env("KUBECACHEDIR", self.state.join("kubectl-cache"));
        process::run(command.arg("--kubeconfig").arg(kubeconfig).args(arguments))
    }

    /// Creates or changes objects as administrator, as `kubectl apply` does.
    pub(crate) fn apply(&self, objects: &Value) -> Result<()> {
        let file = self.folder.join("apply.json");
        write(&file, &objects.to_string())?;
        self.kubectl(&["apply", "--filename", &file.display().to_string()]).map(drop)
    }

    /// Waits until a workload such as `deployment/coredns` runs as its current spec describes.
    pub(crate) fn rolled_out(&self, namespace: &str, workload: &str, seconds: u64) -> Result<()> {
        let timeout = format!("--timeout={}s", patience(Duration::from_secs(seconds)).as_secs());
        self.kubectl(&["rollout", "status", workload, "--namespace", namespace, &timeout]).map(drop)
    }

    /// Starts one server; the others continue to run.
    pub(crate) fn start(&mut self, server: Server) -> Result<()> {
        let mut command = self.environment.command(server.program())?;
        command.args(self.arguments(server));
        let name = format!("{}-{}", self.role.name, server.program());
        self.servers.push((server, Process::start(&name, &self.state, command)?));
        Ok(())
    }

    /// Adds a CA to the CA bundle that the cluster publishes, which is the first step of a change of CA.
    pub(crate) fn add_authority(&mut self) -> Result<()> {
        let (from, _) = validity();
        let bundle = self.authority.certificate() + &Authority::new("new-ca", from).certificate();
        write(&self.folder.join("root-ca.crt"), &bundle)?;
        self.kill(Server::Controllers);
        self.start(Server::Controllers)?;
        let client = self.client()?;
        wait::until("the new CA to be published", 30, || {
            let map =
                client.find::<Value>(&CONFIG_MAP, &Key::new("gardener-system-public", "kube-root-ca.crt"))?;
            let text = map.as_ref().and_then(|map| map["data"]["ca.crt"].as_str());
            Ok::<_, kube::Error>(text.filter(|text| *text == bundle).map(drop))
        })
    }

    /// Publishes the cluster's own CA alone again.
    fn restore_authority(&mut self) -> Result<()> {
        let path = self.folder.join("root-ca.crt");
        let published = fs::read_to_string(&path).doing(|| format!("read {}", path.display()))?;
        if published != self.authority.certificate() {
            write(&path, &self.authority.certificate())?;
            self.kill(Server::Controllers);
        }
        Ok(())
    }

    /// Starts the API server again, with the authorizers of a file until the next reset.
    pub(crate) fn authorize_with(&mut self, file: &Path) -> Result<()> {
        self.authorizers = Some(file.to_owned());
        self.kill(Server::Api);
        self.start(Server::Api)?;
        self.wait_ready()
    }

    /// The API server will start again with the usual authorizers. Before, its objects are restored: it would wait for
    /// aggregated APIs that have ended.
    fn restore_authorizers(&mut self) -> Result<()> {
        if self.authorizers.take().is_none() {
            return Ok(());
        }
        self.kill(Server::Api);
        self.etcd().rewind(&self.pristine)
    }

    /// Ends one server at once; the others continue to run.
    pub(crate) fn kill(&mut self, server: Server) {
        self.servers.retain(|(running, _)| *running != server);
    }

    /// A running server: to stop and continue it by signals, for example.
    pub(crate) fn process(&mut self, server: Server) -> Option<&mut Process> {
        self.servers.iter_mut().find(|(running, _)| *running == server).map(|(_, process)| process)
    }

    /// Whether the API server reports that it is ready.
    pub(crate) fn is_ready(&self) -> bool {
        self.client().is_ok_and(|client| is_ready(&client))
    }

    /// Waits until the API server reports that it is ready and the controller manager has done its first work.
    pub(crate) fn wait_ready(&mut self) -> Result<()> {
        let what = format!("the {} API server", self.role.name);
        let client = self.client()?.with_deadline(Duration::from_secs(2));
        let mut was_ready = false;
        wait::until(&what, 90, || {
            if !was_ready {
                self.start_clients_again()?;
            }
            // A server that has ended will not become ready: waiting is useless.
            let running = self.servers.iter_mut().try_for_each(|(_, process)| process.ensure_running());
            if running.is_err() {
                return Ok(Some(running));
            }
            was_ready = is_ready(&client);
            if !was_ready {
                return Ok(None);
            }
            let account = client.find::<Metadata>(&SERVICE_ACCOUNT, &Key::new("default", "default"))?;
            Ok::<_, Failure>(account.map(|_| Ok(())))
        })?
    }

    /// The controller manager waits twenty seconds for an API server that knows its role, and then ends. An API server on
    /// a busy machine takes longer.
    fn start_clients_again(&mut self) -> Result<()> {
        for client in [Server::Controllers, Server::Scheduler] {
            if self.process(client).is_some_and(|process| process.ended().is_some()) {
                self.kill(client);
                self.start(client)?;
            }
        }
        Ok(())
    }

    pub(crate) fn start_servers(&mut self) -> Result<()> {
        let mut wanted = vec![Server::Etcd, Server::Api, Server::Controllers];
        wanted.extend(self.role.scheduler.then_some(Server::Scheduler));
        self.servers.retain_mut(|(_, process)| process.ended().is_none());
        wanted.retain(|server| self.process(*server).is_none());
        wanted.into_iter().try_for_each(|server| self.start(server))
    }

    /// Stores a snapshot, once the servers have done all their work at the start.
    pub(crate) fn remember(&mut self) -> Result<()> {
        self.pristine = self.etcd().settled()?;
        Ok(())
    }

    /// Restores the state of [`Cluster::remember`]. Running servers keep their memory: caches of objects, which follow
    /// the change, and of tokens, which two stories never share.
    pub(crate) fn rewind(&mut self) -> Result<()> {
        self.restore_authority()?;
        self.restore_authorizers()?;
        self.start_servers()?;
        self.wait_ready()?;
        self.etcd().rewind(&self.pristine)
    }

    /// Restores the state at the start by a new start.
    pub(crate) fn renew(&mut self) -> Result<()> {
        self.stop();
        self.authorizers = None;
        self.forget()?;
        self.start_servers()?;
        self.wait_ready()?;
        self.remember()
    }

    /// Makes the storage forget what has happened so far.
    pub(crate) fn compact(&self) -> Result<()> {
        self.etcd().compact()
    }

    fn etcd(&self) -> Etcd {
        Etcd(self.role.etcd_port)
    }

    pub(crate) fn stop(&mut self) {
        while let Some((_, process)) = self.servers.pop() {
            drop(process);
        }
    }

    /// Makes a backup of the whole storage, as the files of a stopped etcd; the API server waits.
    pub(crate) fn back_up(&mut self) -> Result<()> {
        self.kill(Server::Etcd);
        let (data, copy) = (self.path("etcd"), self.path("etcd-backup"));
        process::run(Command::new("sh").args([
            "-c",
            "rm -rf \"$2\" && cp -a \"$1\" \"$2\"",
            "sh",
            &data,
            &copy,
        ]))?;
        self.start(Server::Etcd)?;
        self.wait_ready()
    }

    /// Restores the backup as the manual of etcd describes: everything is stopped meanwhile.
    pub(crate) fn restore(&mut self) -> Result<()> {
        self.stop();
        self.forget()?;
        process::run(Command::new("mv").args([self.path("etcd-backup"), self.path("etcd")]))?;
        self.start_servers()?;
        self.wait_ready()
    }

    /// Deletes the whole storage.
    fn forget(&self) -> Result<()> {
        let data = self.folder.join("etcd");
        fs::remove_dir_all(&data).doing(|| format!("remove {}", data.display()))
    }

    fn arguments(&self, server: Server) -> Vec<String> {
        match server {
            Server::Etcd => self.etcd_arguments(),
            Server::Api => self.api_arguments(),
            Server::Controllers => self.controller_arguments(),
            Server::Scheduler => self.scheduler_arguments(),
        }
    }

    fn path(&self, name: &str) -> String {
        self.folder.join(name).display().to_string()
    }

    fn etcd_arguments(&self) -> Vec<String> {
        let clients = self.etcd_url();
        let peers = format!("http://127.0.0.1:{}", self.role.etcd_port + 1);
        vec![
            format!("--data-dir={}", self.path("etcd")),
            format!("--listen-client-urls={clients}"),
            format!("--advertise-client-urls={clients}"),
            format!("--listen-peer-urls={peers}"),
            format!("--initial-advertise-peer-urls={peers}"),
            format!("--initial-cluster=default={peers}"),
            "--unsafe-no-fsync".to_owned(),
            "--log-level=warn".to_owned(),
        ]
    }

    /// The keys for tokens of ServiceAccounts.
    pub(crate) fn signing_arguments(&self) -> [String; 2] {
        [
            format!("--service-account-key-file={}", self.path("tokens.pub")),
            format!("--service-account-signing-key-file={}", self.path("tokens.key")),
        ]
    }

    fn api_arguments(&self) -> Vec<String> {
        let role = &self.role;
        let mut arguments = vec![
            format!("--etcd-servers={}", self.etcd_url()),
            format!("--secure-port={}", role.api_port),
            "--bind-address=0.0.0.0".to_owned(),
            format!("--advertise-address={ADDRESS}"),
            format!("--tls-cert-file={}", self.path("server.crt")),
            format!("--tls-private-key-file={}", self.path("server.key")),
            format!("--client-ca-file={}", self.path("ca.crt")),
            format!("--service-account-issuer={}", self.url()),
            format!("--service-cluster-ip-range={}", role.service_range),
            match &self.authorizers {
                None => "--authorization-mode=Node,RBAC".to_owned(),
                Some(file) => format!("--authorization-config={}", file.display()),
            },
            "--enable-bootstrap-token-auth".to_owned(),
            "--allow-privileged".to_owned(),
            "--kubelet-preferred-address-types=InternalIP".to_owned(),
            format!("--requestheader-client-ca-file={}", self.path("front-proxy-ca.crt")),
            format!("--requestheader-allowed-names={FRONT_PROXY}"),
            "--requestheader-username-headers=X-Remote-User".to_owned(),
            "--requestheader-group-headers=X-Remote-Group".to_owned(),
            "--requestheader-extra-headers-prefix=X-Remote-Extra-".to_owned(),
            format!("--proxy-client-cert-file={}", self.path(&format!("{FRONT_PROXY}.crt"))),
            format!("--proxy-client-key-file={}", self.path(&format!("{FRONT_PROXY}.key"))),
            format!("--audit-policy-file={}", self.path("audit.yaml")),
            format!("--audit-log-path={}", self.path("audit.log")),
        ];
        arguments.extend(self.signing_arguments());
        arguments.extend(role.arguments.iter().map(|&argument| argument.to_owned()));
        arguments
    }

    fn controller_arguments(&self) -> Vec<String> {
        vec![
            format!("--kubeconfig={}", self.path("controllers.kubeconfig")),
            format!("--controllers={}", self.role.controllers),
            "--use-service-account-credentials".to_owned(),
            format!("--service-account-private-key-file={}", self.path("tokens.key")),
            format!("--root-ca-file={}", self.path("root-ca.crt")),
            format!("--cluster-signing-cert-file={}", self.path("ca.crt")),
            format!("--cluster-signing-key-file={}", self.path("ca.key")),
            "--leader-elect=false".to_owned(),
            "--bind-address=127.0.0.1".to_owned(),
            format!("--secure-port={}", self.role.api_port + 1),
        ]
    }

    fn scheduler_arguments(&self) -> Vec<String> {
        vec![
            format!("--kubeconfig={}", self.path("scheduler.kubeconfig")),
            "--leader-elect=false".to_owned(),
            "--bind-address=127.0.0.1".to_owned(),
            format!("--secure-port={}", self.role.api_port + 2),
            // It sometimes misses that a claim has got a class. It retries such a pod after this time and half a
            // minute.
            "--pod-max-in-unschedulable-pods-duration=15s".to_owned(),
        ]
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Whether an API server answers that it is ready.
pub(crate) fn is_ready(client: &Client) -> bool {
    client.raw(Method::Get, "/readyz", None, "").is_ok_and(|response| response.is_success())
}

/// Valid since an hour ago, for clocks that differ, and for a year.
pub(crate) fn validity() -> (Timestamp, Timestamp) {
    let now = Clock::system().now();
    (now.minus(Duration::from_secs(3_600)), now.plus(Duration::from_secs(365 * 86_400)))
}

fn server_identity(authority: &Authority, role: &Role) -> Identity {
    let (from, until) = validity();
    let names = [&[ADDRESS, role.service_address], role.server_names].concat();
    let names: Vec<String> = names.into_iter().map(str::to_owned).collect();
    authority.server(&names, from, until)
}

/// Writes `<folder>/<name>.crt` and `<folder>/<name>.key`.
pub(crate) fn write_identity(folder: &Path, name: &str, identity: &Identity) -> Result<()> {
    write(&folder.join(format!("{name}.crt")), &identity.certificate)?;
    write(&folder.join(format!("{name}.key")), &identity.key)
}

pub(crate) fn write(path: &Path, text: &str) -> Result<()> {
    fs::write(path, text).doing(|| format!("write {}", path.display()))
}
