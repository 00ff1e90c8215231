//! A host that joins a Shoot: what gardener-node-agent and the kubelet on it send to the API server, in their order.

use std::collections::BTreeSet;
use std::time::Duration;

use gardenlet::api::certificates::CERTIFICATE_SIGNING_REQUEST;
use gardenlet::api::core::{NODE, SECRET};
use gardenlet::api::meta::Key;
use gardenlet::base::clock::Mono;
use gardenlet::kube::connection::ServerTrust;
use gardenlet::kube::{self, Client, Connection, Error, Patch};
use serde_json::{Value, json};

use super::server::Server;
use crate::encoding::{base64, from_base64, sha256_hex};
use crate::json::{entry, list, text};
use crate::options::measured;
use crate::pki::{self, Identity, Subject};

pub const CSRS: (&str, &str) = ("certificates.k8s.io", "certificatesigningrequests");
/// The user of an agent, before the name of its host; and its group.
pub const AGENT: &str = "gardener.cloud:node-agent:machine:";
pub const AGENTS: &str = "gardener.cloud:node-agents";
pub const NODE_USER: &str = "system:node:";
pub const NODES: &str = "system:nodes";
/// The taint with which a kubelet registers its Node.
pub const NOT_READY: &str = "node.gardener.cloud/critical-components-not-ready";
/// What the agent has applied.
pub const APPLIED: &str = "checksum/cloud-config-data";
/// An agent asks for its certificate for 30 days.
const AGENT_CERTIFICATE_S: u64 = 2_592_000;
/// Requests are read every two seconds while a host may join, and signed a moment later.
const ANSWER_WITHIN: Duration = Duration::from_secs(30);
/// A token goes two looks after its host has joined.
const END_WITHIN: Duration = Duration::from_secs(60);

/// What a certificate is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Purpose {
    Agent,
    Kubelet,
    Server,
}

impl Purpose {
    fn signer(self) -> &'static str {
        match self {
            Self::Agent => "kubernetes.io/kube-apiserver-client",
            Self::Kubelet => "kubernetes.io/kube-apiserver-client-kubelet",
            Self::Server => "kubernetes.io/kubelet-serving",
        }
    }

    fn usages(self) -> Value {
        match self {
            Self::Agent => json!(["digital signature", "key encipherment", "client auth"]),
            Self::Kubelet => json!(["digital signature", "client auth"]),
            Self::Server => json!(["digital signature", "server auth"]),
        }
    }

    /// The subject of the host's own certificate.
    pub fn subject(self, host: &str) -> Subject {
        let (prefix, group) = if self == Self::Agent { (AGENT, AGENTS) } else { (NODE_USER, NODES) };
        Subject { common_name: format!("{prefix}{host}"), organizations: vec![group.to_owned()] }
    }
}

/// A request that was sent, and its key.
pub struct Asked {
    pub name: String,
    key: String,
}

/// The host, as the script of its owner knows it.
#[derive(Clone)]
pub struct Host<'a> {
    server: &'a Server,
    pub name: String,
    pub address: String,
    /// `<id>.<secret>`
    pub token: String,
    pool: String,
    /// The Secret with what it applies.
    secret: String,
    /// A part of the names of its requests, which are the same in each run of a story.
    round: String,
    /// Whether its story says how long answers take.
    is_timed: bool,
}

/// The value of a variable of a script.
pub fn variable<'t>(script: &'t str, name: &str) -> Option<&'t str> {
    let line = script.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('='))?;
    Some(line.trim_matches('\''))
}

/// The tokens in a script.
pub fn tokens(script: &str) -> BTreeSet<String> {
    let is_part = |part: &str, length: usize| {
        part.len() == length && part.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit())
    };
    let words = script.split(|c: char| !(c.is_ascii_alphanumeric() || c == '.'));
    let is_token =
        |word: &&str| word.split_once('.').is_some_and(|(id, rest)| is_part(id, 6) && is_part(rest, 16));
    words.filter(is_token).map(str::to_owned).collect()
}

impl<'a> Host<'a> {
    /// The host for which a script was printed.
    pub fn new(server: &'a Server, script: &str, address: &str) -> Self {
        let value = |name: &str| variable(script, name).unwrap_or_default().to_owned();
        let tokens = tokens(script);
        assert_eq!(tokens.len(), 1, "{tokens:?}");
        Self {
            server,
            name: value("HOST_NAME"),
            address: address.to_owned(),
            token: tokens.into_iter().next().unwrap_or_default(),
            pool: value("POOL"),
            secret: value("POOL_SECRET"),
            round: String::new(),
            is_timed: true,
        }
    }

    /// The same in a story in which answers may take long.
    #[must_use]
    pub fn patient(self) -> Self {
        Self { is_timed: false, ..self }
    }

    fn measured(&self, what: &str, began: Mono, limit: Duration) {
        let took = self.server.cluster.clock().mono() - began;
        if self.is_timed {
            let what = format!("{}: {what}, in seconds of its world", self.server.cluster.name);
            measured(&what, took.as_secs_f64(), limit.as_secs_f64()).unwrap();
        }
    }

    /// The same, whose requests have other names.
    #[must_use]
    pub fn again(&self, round: &str) -> Self {
        Self { round: round.to_owned(), ..self.clone() }
    }

    fn client(&self, identify: impl FnOnce(Connection) -> Connection) -> Client {
        let connection = Connection::new(self.server.cluster.url()).with_trust(ServerTrust::Insecure);
        let options = kube::Options {
            user_agent: "host".to_owned(),
            qps: 0.0,
            clock: self.server.cluster.clock().clone(),
            ..kube::Options::default()
        };
        Client::new(identify(connection), options).unwrap()
    }

    /// A client with its token.
    pub fn beginner(&self) -> Client {
        self.client(|connection| connection.with_token(self.token.as_str()))
    }

    /// A client with a certificate.
    pub fn with(&self, identity: &Identity) -> Client {
        self.client(|connection| {
            connection.with_certificate(identity.certificate.as_str(), identity.key.as_str())
        })
    }

    /// Sends a request for a certificate.
    ///
    /// # Errors
    /// The server refuses it.
    pub fn ask(
        &self,
        client: &Client,
        purpose: Purpose,
        subject: &Subject,
        names: &[&str],
    ) -> Result<Asked, Error> {
        let digest = sha256_hex(format!("{purpose:?}{subject:?}{names:?}{}", self.name).as_bytes());
        let prefix = if purpose == Purpose::Agent { "node-agent-csr-" } else { "csr-" };
        let name = format!("{prefix}{}{}", self.round, &digest[..43]);
        let (pem, key) = pki::request(subject, names);
        let mut spec = json!({"signerName": purpose.signer(), "usages": purpose.usages(), "request": base64(pem.as_bytes())});
        if purpose == Purpose::Agent {
            spec["expirationSeconds"] = json!(AGENT_CERTIFICATE_S);
        }
        let request = json!({"apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest",
            "metadata": {"name": name}, "spec": spec});
        client.create::<Value>(&CERTIFICATE_SIGNING_REQUEST, "", &request)?;
        Ok(Asked { name, key })
    }

    /// The answer to a request: its type and message.
    pub fn answer(&self, asked: &Asked) -> Option<(String, String)> {
        let request = self.server.cluster.get(CSRS.0, CSRS.1, "", &asked.name)?;
        let answer = list(&request, "/status/conditions").first()?;
        Some((text(answer, "/type").to_owned(), text(answer, "/message").to_owned()))
    }

    /// Waits until a request has an answer, which comes soon.
    pub fn await_answer(&self, asked: &Asked) -> (String, String) {
        let cluster = &self.server.cluster;
        let began = cluster.clock().mono();
        let answer = cluster.wait_for(&format!("the answer to {}", asked.name), |_| self.answer(asked));
        self.measured("the answer to a request of a host", began, ANSWER_WITHIN);
        answer
    }

    /// Waits for the certificate.
    pub fn receive(&self, asked: &Asked) -> Identity {
        let (answer, why) = self.await_answer(asked);
        assert_eq!(answer, "Approved", "{}: {why}", asked.name);
        let certificate =
            self.server.cluster.wait_for(&format!("the certificate of {}", asked.name), |cluster| {
                let request = cluster.get(CSRS.0, CSRS.1, "", &asked.name)?;
                Some(text(&request, "/status/certificate").to_owned()).filter(|pem| !pem.is_empty())
            });
        let certificate = String::from_utf8(from_base64(&certificate).unwrap()).unwrap();
        Identity { certificate, key: asked.key.clone() }
    }

    /// The certificate of its agent.
    pub fn agent(&self) -> Identity {
        let asked = self.ask(&self.beginner(), Purpose::Agent, &Purpose::Agent.subject(&self.name), &[]);
        self.receive(&asked.unwrap())
    }

    /// The certificate of its kubelet.
    pub fn kubelet(&self) -> Identity {
        let asked = self.ask(&self.beginner(), Purpose::Kubelet, &Purpose::Kubelet.subject(&self.name), &[]);
        self.receive(&asked.unwrap())
    }

    /// The kubelet makes its Node, unless it is there.
    pub fn register(&self, kubelet: &Client) {
        self.server.has_nodes();
        let labels = json!({"worker.gardener.cloud/pool": self.pool, "kubernetes.io/hostname": self.name,
            "worker.gardener.cloud/gardener-node-agent-secret-name": self.secret});
        let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": self.name, "labels": labels},
            "spec": {"taints": [{"key": NOT_READY, "effect": "NoSchedule"}]}});
        match kubelet.create::<Value>(&NODE, "", &node) {
            Err(Error::Api(failure)) if failure.code == 409 => {}
            made => drop(made.unwrap()),
        }
    }

    /// The kubelet asks for the certificate of its server.
    pub fn ask_to_serve(&self, kubelet: &Client) -> Asked {
        let names = [self.name.as_str(), self.address.as_str()];
        self.ask(kubelet, Purpose::Server, &Purpose::Server.subject(&self.name), &names).unwrap()
    }

    /// The kubelet reports that its Node is ready, with its addresses.
    pub fn report(&self, kubelet: &Client) {
        let version = self.server.cluster.server().shared.version();
        let ready = json!({"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "kubelet is posting ready status"});
        let addresses = json!([{"type": "Hostname", "address": self.name}, {"type": "InternalIP", "address": self.address}]);
        let status = json!({"status": {"conditions": [ready], "addresses": addresses, "nodeInfo": {"kubeletVersion": version}}});
        kubelet
            .patch_status::<Value>(&NODE, &Key::cluster(self.name.as_str()), &Patch::Merge(status))
            .unwrap();
    }

    /// The agent has applied what its pool has.
    pub fn apply(&self, agent: &Client) {
        let secret = agent.get::<Value>(&SECRET, &Key::new("kube-system", self.secret.as_str())).unwrap();
        let checksum = entry(&secret, "/metadata/annotations", "checksum/data-script").unwrap();
        let patch = json!({"metadata": {"annotations": {APPLIED: checksum}}});
        agent.patch::<Value>(&NODE, &Key::cluster(self.name.as_str()), &Patch::Merge(patch)).unwrap();
    }

    /// Joins, step by step. Returns the identities of its agent and its kubelet.
    pub fn join(&self) -> (Identity, Identity) {
        let agent = self.agent();
        let kubelet = self.kubelet();
        let node = self.with(&kubelet);
        self.register(&node);
        let asked = self.ask_to_serve(&node);
        self.report(&node);
        self.receive(&asked);
        self.apply(&self.with(&agent));
        (agent, kubelet)
    }

    /// Takes the place of its Node. Its agent finds the Node, so it applies everything before the kubelet has a certificate. `applied`
    /// runs between the two, and `certified` before the kubelet asks for the certificate of its server.
    pub fn join_again(&self, applied: impl FnOnce(), certified: impl FnOnce()) {
        let agent = self.agent();
        self.apply(&self.with(&agent));
        applied();
        let node = self.with(&self.kubelet());
        certified();
        let asked = self.ask_to_serve(&node);
        self.report(&node);
        self.receive(&asked);
    }

    /// Waits until it is open to all pods and its token is gone.
    pub fn await_end(&self) {
        let began = self.server.cluster.clock().mono();
        let id = self.token.split('.').next().unwrap_or_default().to_owned();
        self.server.cluster.wait_for("the end of the token", |cluster| {
            let is_gone =
                cluster.get("", "secrets", "kube-system", &format!("bootstrap-token-{id}")).is_none();
            is_gone.then_some(())
        });
        assert!(!self.is_closed(), "the token went before the node was open");
        self.measured("the end of the token of a host", began, END_WITHIN);
    }

    /// Whether ordinary pods must not come to it.
    pub fn is_closed(&self) -> bool {
        let node = self.server.cluster.get("", "nodes", "", &self.name);
        node.is_some_and(|node| list(&node, "/spec/taints").iter().any(|taint| taint["key"] == NOT_READY))
    }
}
