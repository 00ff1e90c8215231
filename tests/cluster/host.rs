//! A host beside the sandbox that is a node of a Shoot: containerd and a kubelet on a machine of its own. It reaches the address
//! of the Shoot; nothing in the sandbox can connect to it.

use std::path::{Path, PathBuf};
use std::process::Command;

use gardenlet::api::core::SECRET;
use gardenlet::format::base64;
use gardenlet::kube::{Client, ListParams};
use gardenlet::pki::AnyKey;
use gardenlet::pki::issue::{
    Authority, CertificateIssuer, CertificateTemplate, KeyUsage, ServerNames, subject,
};
use serde_json::{Value, json};

use crate::cluster;
use crate::failure::{Failure, Result};
use crate::image::{self, Component};
use crate::lab::Lab;
use crate::machine::{Cable, Machine};
use crate::node::{self, Containers, NodeSettings};
use crate::process::{self, Process};

/// Its pool in the Shoot.
pub(crate) const POOL: &str = "pool1";
/// The first host of a Shoot.
pub(crate) const FIRST: HostSettings = HostSettings {
    node: NodeSettings {
        name: "h1",
        address: "10.67.0.2",
        pod_range: "100.96.0.0/24",
        dns_address: DNS_ADDRESS,
        masquerades: true,
    },
    cable: Cable { name: "host", inside: "10.67.0.1", outside: "10.67.0.2" },
};
/// The second one.
pub(crate) const SECOND: HostSettings = HostSettings {
    node: NodeSettings { name: "h2", address: "10.67.0.6", pod_range: "100.96.1.0/24", ..FIRST.node },
    cable: Cable { name: "host2", inside: "10.67.0.5", outside: "10.67.0.6" },
};
/// The name of the first host as a node.
pub(crate) const NAME: &str = FIRST.node.name;
/// The tenth address of the range of Services.
const DNS_ADDRESS: &str = "100.64.0.10";
/// A kubelet that wants as much of the memory to be free says that memory is short.
const PRESSED: &str = "99%";
const DAY_S: i64 = 86_400;

/// What distinguishes hosts. Nothing outside of a host has a route to its pods.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HostSettings {
    pub(crate) node: NodeSettings,
    cable: Cable,
}

/// Where the control plane of a Shoot is: its namespace in the first seed, and the URL of the Shoot.
#[derive(Clone, Copy)]
pub(crate) struct ControlPlane<'a> {
    pub(crate) namespace: &'a str,
    pub(crate) server: &'a str,
}

/// It ends when dropped.
pub(crate) struct Host {
    // Dropped in this order.
    kubelet: Process,
    pub(crate) containers: Containers,
    /// The URL of the Shoot.
    server: String,
}

/// The CAs of a Shoot, from the namespace of its control plane.
struct Authorities<'a> {
    seed: &'a Client,
    plane: &'a str,
    /// The host that they sign for.
    host: &'a NodeSettings,
}

impl Host {
    /// Starts a host of a pool with the images of `components`. Its kubelet uses certificates that an administrator has signed by hand.
    pub(crate) fn start(
        lab: &Lab,
        settings: HostSettings,
        plane: ControlPlane<'_>,
        components: &[Component],
    ) -> Result<Self> {
        let HostSettings { node, cable } = settings;
        let machine = Machine::with_mounts(lab, &cable)?;
        machine.ip(&format!("route add default via {} src {}", cable.inside, node.address))?;
        refuse_connections(lab, node.address)?;
        let containers = Containers::on(lab, node, machine)?;
        components.iter().try_for_each(|component| containers.import_component(lab, component))?;
        containers.import(&image::of_tools(&lab.environment, &lab.state)?)?;
        let kubelet = start_kubelet(lab, &containers, plane, json!({}))?;
        Ok(Self { kubelet, containers, server: plane.server.to_owned() })
    }

    /// Starts its kubelet again, with certificates that the present CAs have signed.
    pub(crate) fn renew(&mut self, lab: &Lab, namespace: &str) -> Result<()> {
        self.restart(lab, namespace, json!({}))
    }

    /// Starts its kubelet again, which says from now on that its memory is short.
    pub(crate) fn lack_memory(&mut self, lab: &Lab, namespace: &str) -> Result<()> {
        let pressed =
            json!({"memory.available": PRESSED, "nodefs.available": "0%", "imagefs.available": "0%"});
        self.restart(lab, namespace, json!({"evictionHard": pressed}))
    }

    fn restart(&mut self, lab: &Lab, namespace: &str, own: Value) -> Result<()> {
        self.kubelet.kill();
        let plane = ControlPlane { namespace, server: &self.server };
        self.kubelet = start_kubelet(lab, &self.containers, plane, own)?;
        Ok(())
    }

    /// Starts its kubelet again, which finds its control plane at another URL. Its certificates stay as they are.
    pub(crate) fn follow(&mut self, lab: &Lab, server: &str) -> Result<()> {
        self.kubelet.kill();
        let place = &self.containers.place;
        let file = place.folder.join(node::KUBECONFIG);
        let mut kubeconfig: Value = serde_json::from_slice(&std::fs::read(&file)?)?;
        kubeconfig["clusters"][0]["cluster"]["server"] = json!(server);
        cluster::write(&file, &kubeconfig.to_string())?;
        server.clone_into(&mut self.server);
        self.kubelet = node::start_kubelet_again(lab, place)?;
        Ok(())
    }

    /// Its name as a node.
    pub(crate) fn name(&self) -> &'static str {
        self.containers.place.settings.name
    }

    /// The file that describes the network of its pods.
    pub(crate) fn network_of_pods(&self) -> PathBuf {
        self.containers.place.network_of_pods()
    }

    /// Makes the images of an archive available to its pods.
    pub(crate) fn import(&self, archive: &Path) -> Result<()> {
        self.containers.import(archive)
    }

    /// A command that runs on the host.
    pub(crate) fn command(&self, program: &str) -> Result<Command> {
        self.containers.place.machine.command(program)
    }

    pub(crate) fn ensure_running(&mut self) -> Result<()> {
        self.kubelet.ensure_running()
    }
}

/// The sandbox answers the host, and begins no connection to it.
pub(crate) fn refuse_connections(lab: &Lab, address: &str) -> Result<()> {
    for chain in ["OUTPUT", "FORWARD"] {
        let mut command = lab.environment.command("iptables")?;
        command.args(["--wait", "--insert", chain, "--destination", address, "--protocol", "tcp"]);
        command.args(["--match", "conntrack", "--ctstate", "NEW", "--jump", "REJECT"]);
        process::run(command.args(["--reject-with", "tcp-reset"]))?;
    }
    Ok(())
}

/// `own` overrides the configuration of the kubelet.
fn start_kubelet(lab: &Lab, containers: &Containers, plane: ControlPlane<'_>, own: Value) -> Result<Process> {
    let (seed, place) = (lab.seed.client()?, &containers.place);
    let (folder, host) = (place.folder.as_path(), &place.settings);
    let authorities = Authorities { seed: &seed, plane: plane.namespace, host };
    let user = format!("system:node:{}", host.name);
    cluster::write(
        &folder.join(node::KUBECONFIG),
        &authorities.kubeconfig(plane.server, &user, "system:nodes")?,
    )?;
    let (certificate, key) = authorities.sign("ca-kubelet", &user, "system:nodes", KeyUsage::Server)?;
    let file = |name: &str, text: &str| -> Result<String> {
        let path = folder.join(name);
        cluster::write(&path, text)?;
        Ok(display(&path))
    };
    let config = json!({
        "authentication": {
            "anonymous": {"enabled": false},
            "webhook": {"enabled": true},
            "x509": {"clientCAFile": file("kubelet-ca.crt", &authorities.entry("ca-kubelet-bundle", "bundle.crt")?)?},
        },
        "authorization": {"mode": "Webhook"},
        "tlsCertFile": file("kubelet.crt", &certificate)?,
        "tlsPrivateKeyFile": file("kubelet.key", &key)?,
    });
    let version = image::API_SERVER.version().trim_start_matches('v');
    let labels = [
        ("worker.gardener.cloud/pool", POOL),
        ("worker.gardener.cloud/kubernetes-version", version),
        ("worker.gardener.cloud/system-components", "true"),
    ];
    node::run_kubelet(lab, place, node::overlaid(config, own), &labels)
}

/// A kubeconfig of any user of a Shoot, whose certificate an administrator of the seed has signed by hand.
pub(crate) fn kubeconfig(lab: &Lab, plane: ControlPlane<'_>, user: &str, group: &str) -> Result<String> {
    let authorities = Authorities { seed: &lab.seed.client()?, plane: plane.namespace, host: &FIRST.node };
    authorities.kubeconfig(plane.server, user, group)
}

fn display(path: &Path) -> String {
    path.display().to_string()
}

impl Authorities<'_> {
    /// An entry of the newest Secret of a CA, or of a bundle.
    fn entry(&self, name: &str, entry: &str) -> Result<String> {
        let label_selector = format!("managed-by=secrets-manager,name={name}");
        let params = ListParams { label_selector, ..ListParams::default() };
        let mut all = Vec::new();
        self.seed.list_all::<Value>(&SECRET, self.plane, &params, &mut |secret| {
            let issued = secret["metadata"]["labels"]["issued-at-time"].as_str().map(str::to_owned);
            let made = secret["metadata"]["creationTimestamp"].as_str().unwrap_or_default().to_owned();
            let text = secret["data"][entry].as_str().and_then(|text| base64::decode(text.as_bytes()).ok());
            all.extend(text.map(|text| ((issued, made), text)));
        })?;
        all.sort();
        let found = all
            .pop()
            .map(|(_, text)| text)
            .ok_or_else(|| Failure::new(format!("no Secret of {name} has {entry}")))?;
        Ok(String::from_utf8_lossy(&found).into_owned())
    }

    fn kubeconfig(&self, server: &str, user: &str, group: &str) -> Result<String> {
        let (certificate, key) = self.sign("ca-client", user, group, KeyUsage::Client)?;
        let ca = self.entry("ca-bundle", "bundle.crt")?;
        let encoded = |text: &str| base64::encode(text.as_bytes());
        let kubeconfig = json!({"apiVersion": "v1", "kind": "Config", "current-context": "c",
            "clusters": [{"name": "c", "cluster": {"server": server, "certificate-authority-data": encoded(&ca)}}],
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
            "users": [{"name": "u", "user": {
                "client-certificate-data": encoded(&certificate), "client-key-data": encoded(&key)}}]});
        Ok(kubeconfig.to_string())
    }

    /// A certificate for the host, and its key.
    fn sign(&self, ca: &str, user: &str, group: &str, usage: KeyUsage) -> Result<(String, String)> {
        let signing = AnyKey::from_pem(self.entry(ca, "ca.key")?.as_bytes()).map_err(Failure::new)?;
        let key = AnyKey::new_p256().map_err(Failure::new)?;
        let now = self.seed.clock().now().unix();
        let template = CertificateTemplate {
            subject: subject(user, &[group.to_owned()]),
            names: ServerNames { dns: vec![self.host.name.to_owned()], addresses: vec![self.host.ip()?] },
            not_before_unix_s: now - 60,
            not_after_unix_s: now + DAY_S,
            usage: Some(usage),
            authority: Authority::No,
        };
        let certificate = self.entry(ca, "ca.crt")?;
        let issuer = CertificateIssuer::of_pem(certificate.as_bytes(), &signing)?;
        Ok((template.sign(&key, &issuer)?, key.to_pem()))
    }
}
