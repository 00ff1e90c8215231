//! The riskiest part of a Shoot, with real programs: its control plane in the node of the seed.

use std::net::IpAddr;
use std::path::PathBuf;

use gardenlet::api::core::{PERSISTENT_VOLUME_CLAIM, SERVICE};
use gardenlet::api::meta::Key;
use gardenlet::components::crds;
use gardenlet::format::base64;
use gardenlet::kube::{Client, ListParams, Seed};
use gardenlet::pki::issue::{KeyUsage, ServerNames};
use gardenlet::secrets::{Options, SecretConfig, TokenUser};
use serde_json::{Value, json};

use crate::cluster;
use crate::failure::{Failure, Result, ensure, equal};
use crate::image::{self, Component};
use crate::lab::Lab;
use crate::outside::Outside;
use crate::process;
use crate::secrets::Secrets;
use crate::site::Site;
use crate::wait;
use crate::writer::Writer;

use super::components;

const NAMESPACE: &str = "shoot--test--one";
/// The objects of a Shoot besides workloads: one of each kind that Gardener writes for a Shoot without workers.
const AROUND: &str = include_str!("control_plane/around.yaml");
/// The workloads in the order of their dependencies, with their manifests.
const WORKLOADS: [(&str, &str); 3] = [
    ("statefulset/etcd-main", include_str!("control_plane/etcd.yaml")),
    ("deployment/kube-apiserver", include_str!("control_plane/kube-apiserver.yaml")),
    ("deployment/kube-controller-manager", include_str!("control_plane/kube-controller-manager.yaml")),
];
/// Their programs, of the first minor version of the Shoot, and of the next one.
const FIRST: [Component; 3] = [image::ETCD, image::API_SERVER, image::CONTROLLERS];
const NEXT: [Component; 3] = [image::ETCD, image::NEXT_API_SERVER, image::NEXT_CONTROLLERS];

/// etcd stores its data on a volume. kube-apiserver finds it by name and listens on port 443 without privileges. Both
/// have certificates of the secrets manager. A client outside has access through a load balancer, but no client that
/// trusts another CA. kube-controller-manager works, and data survives the end of etcd. An account with only the
/// agent's roles writes and deletes all objects, and needs every rule of the role for control planes.
pub(crate) fn comes_up(lab: &mut Lab) -> Result<()> {
    has_versions(lab, &[FIRST])
}

/// The same, and then a new minor version takes over.
pub(crate) fn changes_its_version(lab: &mut Lab) -> Result<()> {
    has_versions(lab, &[FIRST, NEXT])
}

fn has_versions(lab: &mut Lab, versions: &[[Component; 3]]) -> Result<()> {
    let site = Site::start(lab, &versions.concat())?;
    let seed = Seed(lab.seed.client()?);
    components::installed(&seed, &all_definitions)?;
    let mut writer = Writer::new(lab)?;
    for object in namespace_and_service() {
        writer.put(&object)?;
    }
    writer.put_all(&AROUND.replace("${namespace}", NAMESPACE))?;
    let address = wait::until("the address of the load balancer", 10, || address(&writer.client))?;
    let secrets = make_secrets(writer.client.clone(), address)?;
    let kubeconfig_with = |bundle| kubeconfig(lab, &secrets, address, bundle);
    let shoot = Shoot { outside: Some(&site.outside), lab, kubeconfig: kubeconfig_with("ca-bundle")? };
    for &components in versions {
        deploy(lab, &mut writer, &secrets, components)?;
        let version = components[1].version();
        shoot.answers(version)?;
        // The address of an agent that is not a pod.
        Shoot { outside: None, ..shoot.clone() }.answers(version)?;
        shoot.has_controllers(version)?;
    }
    let stranger = Shoot { kubeconfig: kubeconfig_with("ca-client-bundle")?, ..shoot.clone() };
    let refusal = stranger.kubectl(&["get", "--raw", "/version"]).err().map(|failure| failure.to_string());
    let says = refusal.unwrap_or_default();
    ensure(says.contains("unknown authority"), || format!("the client with another CA: {says:?}"))?;
    survives(lab, &shoot)?;
    writer.touch()?;
    let log = writer.log(NAMESPACE, "role=apiserver")?;
    ensure(!log.is_empty(), || "the log of kube-apiserver is empty".to_owned())?;
    writer.look_for_causes(NAMESPACE, "etcd-main")?;
    writer.write_for_a_druid(NAMESPACE)?;
    writer.write_snapshots(NAMESPACE)?;
    writer.look_after(NAMESPACE)?;
    is_removed(lab, &seed, &mut writer)?;
    writer.needed_its_role()
}

/// The objects that every seed of this agent has.
fn all_definitions() -> Vec<Value> {
    let foreign = crds::Foreign { is_garden: false, vpa: true, machines: true, etcd: true };
    crds::all().chain(crds::foreign(foreign)).collect()
}

fn namespace_and_service() -> [Value; 2] {
    let ports = json!([{"name": "kube-apiserver", "port": 443, "targetPort": 443}]);
    [
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}),
        json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "kube-apiserver", "namespace": NAMESPACE},
            "spec": {"type": "LoadBalancer", "ports": ports, "selector": {"app": "kubernetes", "role": "apiserver"}}}),
    ]
}

fn address(seed: &Client) -> Result<Option<IpAddr>> {
    let service: Value = seed.get(&SERVICE, &Key::new(NAMESPACE, "kube-apiserver"))?;
    let ingress = &service["status"]["loadBalancer"]["ingress"][0]["ip"];
    Ok(ingress.as_str().and_then(|text| text.parse().ok()))
}

/// All Secrets to which the manifest refers, and an administrator's certificate.
fn make_secrets(seed: Client, address: IpAddr) -> Result<Secrets> {
    let mut secrets = Secrets::new(seed, NAMESPACE)?;
    for name in ["ca", "ca-client", "ca-front-proxy", "ca-etcd"] {
        let common_name = if name == "ca" { "kubernetes" } else { name }.to_owned();
        secrets.with_bundle(&SecretConfig::Ca { name: name.to_owned(), common_name, validity: None })?;
    }
    let key = SecretConfig::RsaKey { name: "service-account-key".to_owned(), bits: 2_048, for_ssh: false };
    secrets.with_bundle(&key)?;
    let health =
        TokenUser { username: "system:health".to_owned(), user_id: "health".to_owned(), groups: vec![] };
    let tokens = [("health".to_owned(), health)].into();
    let tokens = SecretConfig::StaticToken { name: "kube-apiserver-static-token".to_owned(), tokens };
    secrets.one(&tokens, &Options::default())?;
    let etcd = ["etcd-main-local", "etcd-main-client", "*.etcd-main-peer"].map(str::to_owned).to_vec();
    let etcd = ServerNames { dns: etcd, addresses: vec![] };
    let server = ServerNames { dns: vec!["kube-apiserver".to_owned()], addresses: vec![address] };
    let leaves = [
        ("ca-etcd", leaf("etcd-server-main", "etcd-server", "", KeyUsage::Both, etcd)),
        ("ca-etcd", leaf("etcd-client", "etcd-client", "", KeyUsage::Client, ServerNames::default())),
        ("ca", leaf("kube-apiserver", "kube-apiserver", "", KeyUsage::Server, server)),
        ("ca-front-proxy", client("kube-aggregator", "system:kube-aggregator", "")),
        ("ca-client", client("kube-controller-manager", "system:kube-controller-manager", "")),
        ("ca-client", client("admin", "admin", "system:masters")),
    ];
    leaves.iter().try_for_each(|(ca, leaf)| secrets.signed(leaf, ca).map(drop))?;
    Ok(secrets)
}

fn client(name: &str, user: &str, group: &str) -> SecretConfig {
    leaf(name, user, group, KeyUsage::Client, ServerNames::default())
}

fn leaf(
    name: &str,
    common_name: &str,
    organization: &str,
    usage: KeyUsage,
    names: ServerNames,
) -> SecretConfig {
    SecretConfig::Leaf {
        name: name.to_owned(),
        common_name: common_name.to_owned(),
        organizations: Some(organization.to_owned()).filter(|text| !text.is_empty()).into_iter().collect(),
        usage,
        names,
        validity: None,
        skip_ca: true,
        with_chain: false,
    }
}

/// A kubeconfig of an administrator who trusts a given CA bundle.
fn kubeconfig(lab: &Lab, secrets: &Secrets, address: IpAddr, bundle: &str) -> Result<PathBuf> {
    let data = |config, key| Ok::<_, Failure>(base64::encode(secrets.entry(config, key)?.as_bytes()));
    let kubeconfig = json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "shoot", "cluster": {
            "server": format!("https://{address}"),
            "certificate-authority-data": data(bundle, "bundle.crt")?,
        }}],
        "users": [{"name": "user", "user": {
            "client-certificate-data": data("admin", "tls.crt")?,
            "client-key-data": data("admin", "tls.key")?,
        }}],
        "contexts": [{"name": "shoot", "context": {"cluster": "shoot", "user": "user"}}],
        "current-context": "shoot",
    });
    let path = lab.place.join(format!("{bundle}.kubeconfig"));
    cluster::write(&path, &kubeconfig.to_string())?;
    Ok(path)
}

/// Writes the workloads with the images of `components`, and waits until each runs before it writes the next.
fn deploy(lab: &Lab, writer: &mut Writer, secrets: &Secrets, components: [Component; 3]) -> Result<()> {
    for ((workload, manifest), component) in WORKLOADS.iter().zip(components) {
        writer.put_all(&filled(manifest, secrets, component)?)?;
        lab.seed.rolled_out(NAMESPACE, workload, 180).map_err(|failure| explained(lab, &failure))?;
    }
    Ok(())
}

/// A manifest with names, image and token.
fn filled(manifest: &str, secrets: &Secrets, component: Component) -> Result<String> {
    let mut text = manifest.replace("${namespace}", NAMESPACE).replace("${image}", &component.reference());
    for (config, name) in secrets.names() {
        text = text.replace(&format!("${{secret/{config}}}"), &name);
    }
    let tokens = secrets.entry("kube-apiserver-static-token", "static_tokens.csv")?;
    text = text.replace("${token}", tokens.split(',').next().unwrap_or_default());
    let unfilled = text.split("${").nth(1).and_then(|rest| rest.split('}').next());
    equal("an unreplaced placeholder", &unfilled, &None)?;
    Ok(text)
}

/// A failure, with the output of the pods.
fn explained(lab: &Lab, failure: &Failure) -> Failure {
    let ask = |arguments: &[&str]| lab.seed.kubectl(arguments).unwrap_or_else(|other| other.to_string());
    let namespace = format!("--namespace={NAMESPACE}");
    let pods = ask(&["get", "pods,persistentvolumeclaims", "--output=wide", &namespace]);
    let events = ask(&["events", "--types=Warning", &namespace]);
    let mut logs = String::new();
    for name in ask(&["get", "pods", "--output=name", &namespace]).lines() {
        logs += &format!("{name}:\n{}\n", ask(&["logs", name, "--tail=12", &namespace]));
    }
    Failure::new(format!("{failure}\n{pods}\n{events}\n{logs}"))
}

/// The Shoot's API server, as an administrator reaches it: from outside, or on the node's machine.
#[derive(Clone)]
struct Shoot<'a> {
    outside: Option<&'a Outside>,
    lab: &'a Lab,
    kubeconfig: PathBuf,
}

impl Shoot<'_> {
    fn kubectl(&self, arguments: &[&str]) -> Result<String> {
        let command = self.outside.map(|outside| outside.command("kubectl"));
        let mut command = command.unwrap_or_else(|| self.lab.command("kubectl"))?;
        command.env("KUBECACHEDIR", self.kubeconfig.with_extension("cache"));
        process::run(command.arg("--kubeconfig").arg(&self.kubeconfig).args(arguments))
    }

    /// It is ready, and has that version: after a rollout the old one still answers for some seconds.
    fn answers(&self, version: &str) -> Result<()> {
        wait::until(&format!("the shoot's API server {version}"), 60, || {
            let said: Value = serde_json::from_str(&self.kubectl(&["get", "--raw", "/version"])?)?;
            ensure(said["gitVersion"] == version, || format!("its version is {}", said["gitVersion"]))?;
            self.kubectl(&["get", "--raw", "/readyz"]).map(|text| (text == "ok").then_some(()))
        })
    }

    /// kube-controller-manager creates the objects that every namespace has.
    fn has_controllers(&self, version: &str) -> Result<()> {
        let name = format!("probe-{}", version.replace('.', "-"));
        self.kubectl(&["create", "namespace", &name])?;
        wait::until("the objects of kube-controller-manager", 60, || {
            let account = self.kubectl(&["get", "serviceaccount/default", "--namespace", &name]);
            let map = self.kubectl(&["get", "configmap/kube-root-ca.crt", "--namespace", &name]);
            account.and(map).map(Some)
        })
        .map(drop)
    }
}

/// Stored data exists after etcd was removed and created again on its volume.
fn survives(lab: &Lab, shoot: &Shoot<'_>) -> Result<()> {
    shoot.kubectl(&["create", "configmap", "kept", "--from-literal=a=b"])?;
    let pod = ["delete", "pod", "etcd-main-0", "--namespace", NAMESPACE, "--timeout=60s"];
    lab.seed.kubectl(&pod)?;
    lab.seed.rolled_out(NAMESPACE, "statefulset/etcd-main", 120)?;
    let kept = ["get", "configmap", "kept", "--output=jsonpath={.data.a}"];
    wait::until("the stored data", 60, || shoot.kubectl(&kept).map(|text| (text == "b").then_some(())))
}

/// With the namespace the claim of etcd is deleted, and with the claim its volume.
fn is_removed(lab: &Lab, seed: &Client, writer: &mut Writer) -> Result<()> {
    let claims = || seed.list::<Value>(&PERSISTENT_VOLUME_CLAIM, NAMESPACE, &ListParams::default());
    equal("claims", &claims()?.items.len(), &1)?;
    writer.remove_all()?;
    wait::until("the end of the volume", 30, || {
        lab.seed
            .kubectl(&["get", "persistentvolumes", "--output=name"])
            .map(|all| all.is_empty().then_some(()))
    })
}
