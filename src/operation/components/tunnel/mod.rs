//! The tunnel through which the API server of a Shoot reaches nodes and pods: Konnectivity (`sigs.k8s.io/apiserver-network-proxy`).
//! Its server runs beside kube-apiserver, and an agent on each node connects to it from inside the Shoot.
//!
//! Both sides authenticate with certificates of the CA that upstream uses for its VPN. An agent names the host that it
//! runs on; the server believes it, because all agents have the same certificate.

use crate::api::core::CONFIG_MAP;
use crate::api::meta::Key;
use crate::base::json::json;
use crate::base::sorted::SortedMap;
use crate::components::archive;
use crate::components::content::{annotate_references, name, name_volumes, push, unique_config_map};
use crate::components::managed::{self, Managed, manifests, unique_secret};
use crate::flow::{Attempt, Failed, TaskStep};
use crate::format::yaml::{self, Dialect};
use crate::pki::issue::{KeyUsage, ServerNames};
use crate::shoot::rotation::CA_TUNNEL;
use crate::shoot::secrets::Certificate;
use crate::shoot::{Outside, ShootView};

use super::super::evidence::only_in_the_log;
use super::super::row::Row;
use super::super::times::{FIFTEEN_MINUTES, FIVE_MINUTES, FIVE_SECONDS, SHORT};
use super::super::work::Work;
use super::component::Component;
use super::managed_resource;
use super::server_addition::ServerAddition;

mod followed;
mod probe;

/// The image, the certificate and the container of the server.
const SERVER: &str = "konnectivity-server";
/// The image, the certificate and the DaemonSet of the agents.
const AGENT: &str = "konnectivity-agent";
const MANAGED_RESOURCE: &str = "shoot-core-konnectivity-agent";
/// The volume of an agent with its certificate and the CAs of the server.
const CERTIFICATE: &str = "certificate";

pub(super) static COMPONENT: Component = Component {
    needs_workers: true,
    images: &[SERVER, AGENT],
    certificates,
    beside_server,
    create: &[
        Row::new(
            "Waiting until the agents of the tunnel have followed the rotation of CAs",
            followed::wait,
            only_in_the_log,
        )
        .after(&["Deploying control plane namespace"])
        .when(|facts| facts.has_tunnel && facts.completes_authorities())
        .retrying(FIVE_SECONDS, FIVE_MINUTES),
        Row::new("Deploying konnectivity-agent system component", deploy, |seen| {
            seen.written(MANAGED_RESOURCE)
        })
        .after(&["Initializing connection to Shoot", "Waiting until shoot namespaces have been reconciled"])
        .when(|facts| facts.has_tunnel && facts.is_awake())
        .retrying(FIVE_SECONDS, SHORT),
        Row::new("Deleting konnectivity-agent system component", delete, only_in_the_log)
            .after(&[
                "Waiting until Kubernetes API server rolled out",
                "Waiting until shoot namespaces have been reconciled",
            ])
            .when(|facts| facts.has_workers && !facts.has_tunnel)
            .retrying(FIVE_SECONDS, SHORT),
        Row::new(
            "Waiting until the Kubernetes API server can connect to the Shoot workers",
            probe::wait,
            only_in_the_log,
        )
        .after(&[
            "Deploying konnectivity-agent system component",
            "Deleting konnectivity-agent system component",
            "Deploying shoot system resources",
            "Deploying kube-proxy system component",
            "Deploying CoreDNS system component",
            "Deploying metrics-server system component",
        ])
        .when(|facts| facts.has_workers && facts.waits_awake())
        .within(FIFTEEN_MINUTES),
    ],
    ..Component::NONE
};

/// Whether agents connect to the server, also where the option says that they are not needed any more.
pub(super) fn is_in_use(work: &Work) -> bool {
    work.facts.has_tunnel || work.env.managed.get(&Key::new(work.plane(), MANAGED_RESOURCE)).is_some()
}

/// Agents verify the address that they dial, so the server's certificate waits for it.
fn certificates(view: &ShootView, outside: Option<&Outside>) -> Vec<Certificate> {
    if !view.has_workers {
        return Vec::new();
    }
    let agent = Certificate::new(CA_TUNNEL, AGENT, AGENT, KeyUsage::Client, ServerNames::default());
    let server = outside.map(|outside| {
        let mut names = ServerNames::default();
        match outside.host.parse() {
            Ok(address) => names.addresses.push(address),
            Err(_) => names.dns.push(outside.host.clone()),
        }
        Certificate::new(CA_TUNNEL, SERVER, SERVER, KeyUsage::Server, names)
    });
    std::iter::once(agent).chain(server).collect()
}

fn beside_server(work: &Work, replicas: i64) -> Result<Option<ServerAddition>, Failed> {
    if !work.facts.has_tunnel {
        return Ok(None);
    }
    let made = work.secrets()?;
    Ok(Some(addition(&ServerInput {
        namespace: work.plane(),
        image: &work.env.images.find(SERVER, &work.view.kubernetes_version)?,
        replicas,
        ca: made.bundle(CA_TUNNEL),
        certificate: made.current(SERVER),
    })))
}

/// The input of the server.
struct ServerInput<'a> {
    namespace: &'a str,
    image: &'a str,
    /// How many API servers there are, each with its own server.
    replicas: i64,
    /// The Secret with the CAs of agents.
    ca: &'a str,
    /// The Secret with the certificate of the server.
    certificate: &'a str,
}

fn addition(input: &ServerInput<'_>) -> ServerAddition {
    // The API server parses a text that begins with a brace as strict JSON, so this one is YAML.
    let selections = json!({
        "apiVersion": "apiserver.k8s.io/v1beta1", "kind": "EgressSelectorConfiguration", "egressSelections": [
            {"name": "cluster", "connection": {
                "proxyProtocol": "GRPC", "transport": {"uds": {"udsName": "/run/konnectivity/server.sock"}}}},
            {"name": "controlplane", "connection": {"proxyProtocol": "Direct"}},
            {"name": "etcd", "connection": {"proxyProtocol": "Direct"}}]});
    let file = "egress-selector-configuration.yaml";
    let data = SortedMap::from([(file.to_owned(), yaml::emit(&selections, Dialect::V4))]);
    let configuration = unique_config_map(input.namespace, "kube-apiserver-egress-selector-config", &data);
    let mut server = archive::object("tunnel/server.yaml");
    server["image"] = json!(input.image);
    // With a higher count than there are servers, agents connect anew each second.
    push(&mut server["args"], json!(format!("--server-count={}", input.replicas.max(1))));
    let volume = "egress-selection-config";
    ServerAddition {
        containers: vec![server],
        volumes: vec![
            json!({"name": "konnectivity", "emptyDir": {}}),
            json!({"name": CA_TUNNEL, "secret": {"defaultMode": 420, "secretName": input.ca}}),
            json!({"name": SERVER, "secret": {"defaultMode": 416, "secretName": input.certificate}}),
            json!({"name": volume, "configMap": {"defaultMode": 420, "name": name(&configuration)}}),
        ],
        mounts: vec![
            json!({"mountPath": "/run/konnectivity", "name": "konnectivity"}),
            json!({"mountPath": "/etc/kubernetes/egress", "name": volume}),
        ],
        arguments: vec![format!("--egress-selector-config-file=/etc/kubernetes/egress/{file}")],
        objects: vec![(CONFIG_MAP, configuration)],
    }
}

fn deploy(work: &mut Work, _: &Attempt) -> Result<TaskStep, Failed> {
    let (made, outside) = (work.secrets()?, work.results.outside.need("the API server has no address yet")?);
    let port = *work.results.tunnel_port.need("the tunnel has no port yet")?;
    let mut files = made
        .tls_files(AGENT)
        .ok_or_else(|| Failed::new("the agents of the tunnel have no certificate yet"))?;
    files.insert("ca.crt".to_owned(), made.bundle_of(CA_TUNNEL).to_vec());
    let image = work.env.images.find(AGENT, &work.view.kubernetes_version)?;
    let objects = agents(work.plane(), &outside.host, port, &image, &files)?;
    managed_resource::deploy(work, &objects)
}

/// The nodes are reached without it now.
fn delete(work: &mut Work, _: &Attempt) -> Result<TaskStep, Failed> {
    managed::remove(&work.env.seed, &Key::new(work.plane(), MANAGED_RESOURCE))?;
    Ok(TaskStep::Done)
}

/// The agents in the cluster of the Shoot. `files` are their certificate and the CAs of the server.
fn agents(
    namespace: &str,
    host: &str,
    port: u16,
    image: &str,
    files: &SortedMap<String, Vec<u8>>,
) -> Result<Managed, String> {
    let (key, mut secret) = unique_secret("kube-system", AGENT, files);
    secret["type"] = json!("Opaque");
    let mut daemon_set = archive::object("tunnel/agent.yaml");
    name_volumes(&mut daemon_set, &SortedMap::from([(CERTIFICATE, key.name)]))?;
    let container = &mut daemon_set["spec"]["template"]["spec"]["containers"][0];
    container["image"] = json!(image);
    push(&mut container["args"], json!(format!("--proxy-server-host={host}")));
    push(&mut container["args"], json!(format!("--proxy-server-port={port}")));
    annotate_references(&mut daemon_set);
    let objects = [secret, archive::object("tunnel/account.yaml"), daemon_set];
    Ok(Managed::for_shoot(namespace, MANAGED_RESOURCE, false, &manifests(&objects)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::secrets::SecretConfig;
    use crate::shoot::view::tests::golden;

    #[test]
    fn the_server_presents_the_address_that_agents_dial() {
        let of = |outside: Option<&Outside>| certificates(&golden("w4"), outside);
        let early = of(None);
        assert_eq!((early.len(), early[0].config.name()), (1, AGENT));
        let late = of(Some(&Outside { host: "192.0.2.1".into(), port: 30_443 }));
        let SecretConfig::Leaf { name, names, .. } = &late[1].config else { panic!("{late:?}") };
        assert_eq!((late.len(), name.as_str(), late[1].authority), (2, SERVER, CA_TUNNEL));
        assert_eq!(names.addresses, ["192.0.2.1".parse::<std::net::IpAddr>().unwrap()]);
        assert!(certificates(&golden("s2"), None).is_empty());
    }

    #[test]
    fn the_server_waits_for_as_many_as_there_are() {
        let of = |replicas| {
            addition(&ServerInput { namespace: "n", image: "i", replicas, ca: "ca", certificate: "server" })
        };
        let two = of(2);
        let arguments = two.containers[0]["args"].as_array().unwrap();
        assert!(arguments.iter().any(|argument| argument == "--server-count=2"));
        assert!(two.containers[0]["readinessProbe"].is_null(), "the API server must serve without agents");
        let text = two.objects[0].1["data"]["egress-selector-configuration.yaml"].as_str().unwrap();
        assert!(!text.starts_with('{'), "{text}");
        assert!(
            of(0).containers[0]["args"]
                .as_array()
                .unwrap()
                .iter()
                .any(|argument| argument == "--server-count=1")
        );
    }

    #[test]
    fn another_certificate_or_ca_rolls_the_agents() {
        let files = |ca: &str| {
            SortedMap::from([
                ("ca.crt".to_owned(), ca.as_bytes().to_vec()),
                ("tls.crt".to_owned(), b"c".to_vec()),
            ])
        };
        let golden =
            |ca: &str, port| agents("shoot--p--w4", "192.0.2.1", port, "i", &files(ca)).unwrap().golden();
        let first = golden("A", 30_132);
        assert!(
            first.contains("--proxy-server-host=192.0.2.1") && first.contains("--proxy-server-port=30132")
        );
        let secret = |text: &str| {
            let name = text.lines().find_map(|line| line.trim().strip_prefix("secretName: ")).unwrap();
            name.to_owned()
        };
        assert_eq!(secret(&first), secret(&golden("A", 30_133)));
        assert_ne!(secret(&first), secret(&golden("B", 30_132)));
    }
}
