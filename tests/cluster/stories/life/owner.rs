//! The owner of a Shoot: outside of the site, with the kubeconfig that the garden issues.

use std::path::PathBuf;

use gardenlet::api::gardener::SHOOT;
use gardenlet::api::meta::Key;
use gardenlet::format::base64;
use gardenlet::kube::{Client, Connection, Method};
use serde_json::{Value, json};

use super::{Name, PROJECT};
use crate::cluster;
use crate::failure::{Failure, Result, ensure, equal};
use crate::gardener::users;
use crate::lab::Lab;
use crate::outside::Outside;
use crate::process::{self, Process};
use crate::wait;

/// The owner's data in a Secret.
pub(super) const WORDS: &str = "plain-words";
/// The kubelet probes servers every ten seconds, and restarts one after three failures in a row. Once a server has been
/// ready for this time, a probe has succeeded, and earlier failures no longer count.
const SETTLED_AFTER_S: f64 = 15.0;
/// A restarted server may take its whole time to end.
const SETTLED_WITHIN_S: u64 = 120;
/// The time after its creation until a Shoot gives its owner all permissions.
const RIGHTS_WITHIN_S: u64 = 60;

pub(super) struct Owner<'a> {
    pub(super) name: Name,
    outside: &'a Outside,
    kubeconfig: PathBuf,
}

impl<'a> Owner<'a> {
    /// Requests a kubeconfig of an administrator from the garden.
    pub(super) fn new(lab: &Lab, garden: &Client, name: Name, outside: &'a Outside) -> Result<Self> {
        let request = json!({"apiVersion": "authentication.gardener.cloud/v1alpha1", "kind": "AdminKubeconfigRequest",
            "spec": {"expirationSeconds": 3_600}});
        let path = SHOOT.subresource_path(&Key::new(PROJECT, name.0), "adminkubeconfig");
        let body = request.to_string();
        let answer = garden.raw(Method::Post, &path, Some(body.as_bytes()), "application/json")?;
        let answer: Value = serde_json::from_slice(&answer.body)?;
        let text = answer["status"]["kubeconfig"].as_str().unwrap_or_default();
        let text =
            base64::decode(text.as_bytes()).map_err(|_| Failure::new(format!("no kubeconfig: {answer}")))?;
        let path = lab.place.join(format!("{}.kubeconfig", name.0));
        cluster::write(&path, &String::from_utf8_lossy(&text))?;
        Ok(Self { name, outside, kubeconfig: path })
    }

    pub(super) fn kubectl(&self, arguments: &[&str]) -> Result<String> {
        let mut command = self.outside.command("kubectl")?;
        command.env("KUBECACHEDIR", self.kubeconfig.with_extension("cache"));
        command.arg("--kubeconfig").arg(&self.kubeconfig).arg("--request-timeout=5s");
        process::run(command.args(arguments))
    }

    /// Forwards a port of this machine to a pod while the process runs.
    pub(super) fn forward(&self, lab: &Lab, pod: &str, ports: &str) -> Result<Process> {
        let mut command = lab.command("kubectl")?;
        command.arg("--kubeconfig").arg(&self.kubeconfig).args(["port-forward", pod, ports]);
        Process::start("port-forward", &lab.state, command)
    }

    /// The same connection to another address of the same port.
    pub(super) fn connection_to(&self, address: &str) -> Result<Connection> {
        let client = self.client()?;
        let known = client.connection();
        let port = known.server.rsplit(':').next().unwrap_or_default();
        Ok(Connection { server: format!("https://{address}:{port}"), ..(*known).clone() })
    }

    /// A client of the same administrator on the node.
    pub(super) fn client(&self) -> Result<Client> {
        users::client(&self.kubeconfig)
    }

    /// The server has that version and gives access only to administrators, and the standard objects of each Shoot
    /// exist.
    pub(super) fn gets_in(&self, wanted: &str) -> Result<()> {
        let version: Value = serde_json::from_str(&self.kubectl(&["get", "--raw", "/version"])?)?;
        equal("the version", &version["gitVersion"], &json!(wanted))?;
        let whoami = self.kubectl(&["auth", "whoami"])?;
        ensure(whoami.contains("gardener.cloud:system:admins"), || format!("the owner is {whoami}"))?;
        // Permissions and `shoot-info` are in ManagedResources for which, as in upstream, no task of the flow waits.
        let namespaces = wait::until("namespaces for the owner", RIGHTS_WITHIN_S, || {
            self.kubectl(&["get", "namespaces", "--output=name"]).map(Some)
        })?;
        ensure(namespaces.contains("namespace/kube-system"), || format!("namespaces: {namespaces}"))?;
        let info = ["get", "configmap", "shoot-info", "--namespace=kube-system", "--output=json"];
        let info = wait::until("shoot-info", RIGHTS_WITHIN_S, || self.kubectl(&info).map(Some))?;
        let info: Value = serde_json::from_str(&info)?;
        equal("shoot-info", &info["data"]["shootName"], &json!(self.name.0))
    }

    /// The Secret `kept`, and a ConfigMap beside it with other words.
    pub(super) fn keeps_a_secret(&self) -> Result<()> {
        self.kubectl(&["create", "secret", "generic", "kept", &format!("--from-literal=a={WORDS}")])?;
        self.kubectl(&["create", "configmap", "open", "--from-literal=a=open-words"]).map(drop)
    }

    /// A write succeeds, and earlier data is unchanged.
    pub(super) fn finds_everything(&self) -> Result<()> {
        let marked = format!("--overwrite=true a={}", gardenlet::base::random::hex(4));
        let marked: Vec<&str> = marked.split(' ').collect();
        self.kubectl(&[&["annotate", "configmap", "open"], &marked[..]].concat())?;
        let kept = self.kubectl(&["get", "secret", "kept", "--output=jsonpath={.data.a}"])?;
        equal("the stored words", kept.as_str(), base64::encode(WORDS.as_bytes()).as_str())
    }

    /// No server is about to be restarted. After its etcd was away, the kubelet may already have told the server to end:
    /// it then answers for another 15 seconds.
    pub(super) fn has_a_settled_server(&self) -> Result<()> {
        let client = self.client()?;
        let mut since = wait::now();
        wait::until_true("the server to stay ready", SETTLED_WITHIN_S, || {
            if !cluster::is_ready(&client) {
                since = wait::now();
            }
            wait::seconds_since(since) >= SETTLED_AFTER_S
        })
    }
}
