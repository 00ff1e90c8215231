//! kube-proxy on the nodes of a Shoot: a DaemonSet for each pool and version of Kubernetes, and what they share.
//!
//! Source: Gardener's component `pkg/component/kubernetes/proxy`.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::api::core::NODE;
use crate::api::meta::{ALL_NAMESPACES, Key, Metadata, text};
use crate::base::json::json;
use crate::base::sorted::SortedMap;
use crate::components::archive;
use crate::components::content::{annotate_references, name, name_volumes, unique_config_map};
use crate::components::managed::{self, Managed, manifests, unique_secret};
use crate::flow::{Attempt, Failed, TaskStep};
use crate::format::semver::Version;
use crate::format::yaml::{self, Dialect};
use crate::kube::ListParams;
use crate::secrets;
use crate::shoot::has_foreign_workers;
use crate::shoot::pools::{KUBERNETES_VERSION, POOL, Pool};

use super::super::delete::tasks::list_managed;
use super::super::evidence::only_in_the_log;
use super::super::row::Row;
use super::super::times::{FIVE_SECONDS, SHORT};
use super::super::work::Work;
use super::component::Component;
use super::managed_resource;

/// The name of the image, of the shared objects, and the beginning of those of DaemonSets.
const NAME: &str = "kube-proxy";
const MANAGED_RESOURCE: &str = "shoot-core-kube-proxy";
/// Selects the ManagedResources with a DaemonSet.
const OF_POOLS: &str = "component=kube-proxy,role=pool";
/// The variable with the mode of the proxies.
const MODE: &str = "KUBE_PROXY_MODE";
/// What upstream makes each node track at least.
const CONNECTIONS_PER_CORE: u64 = 524_288;

pub(super) static COMPONENT: Component = Component {
    needs_workers: true,
    images: &[NAME],
    create: &[
        Row::new("Deploying kube-proxy system component", deploy, |seen| seen.written(MANAGED_RESOURCE))
            .after(&NEEDS)
            .when(|facts| facts.serves_nodes() && facts.has_kube_proxy)
            .retrying(FIVE_SECONDS, SHORT),
        Row::new("Deleting stale kube-proxy DaemonSets", delete_stale, only_in_the_log)
            .after(&["Deploying kube-proxy system component"])
            .when(|facts| facts.serves_nodes() && facts.has_kube_proxy)
            .retrying(FIVE_SECONDS, SHORT)
            .last(),
        Row::new("Deleting kube-proxy", delete, only_in_the_log)
            .after(&NEEDS)
            .when(|facts| facts.serves_nodes() && !facts.has_kube_proxy)
            .retrying(FIVE_SECONDS, SHORT)
            .last(),
    ],
    ..Component::NONE
};

const NEEDS: [&str; 5] = [
    "Waiting until shoot control plane has been reconciled",
    "Waiting until shoot namespaces have been reconciled",
    "Waiting until extension resources handled after kube-apiserver are ready",
    "Initializing connection to Shoot",
    "Deploying Kubernetes scheduler",
];

/// The mode of the proxies, in their own words.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Mode {
    Iptables,
    Ipvs,
    Nftables,
}

impl Mode {
    /// From field `mode` of `spec.kubernetes.kubeProxy`.
    fn of(own: &Value) -> Self {
        match text(&own["mode"]) {
            "IPVS" => Self::Ipvs,
            "NFTables" => Self::Nftables,
            _ => Self::Iptables,
        }
    }

    const fn as_str(self) -> &'static str {
        match self {
            Self::Iptables => "iptables",
            Self::Ipvs => "ipvs",
            Self::Nftables => "nftables",
        }
    }
}

/// The input of what all proxies share.
struct ProxyInput<'a> {
    /// The namespace of the control plane.
    namespace: &'a str,
    /// Host and port of the API server.
    server: &'a str,
    /// The CAs of the API server.
    ca: &'a [u8],
    /// The ranges of pods.
    pods: &'a [String],
    /// `spec.kubernetes.kubeProxy` of the Shoot.
    own: &'a Value,
    /// The nodes are hosts of the site, which have other tasks as well.
    is_on_hosts: bool,
}

/// What all proxies share, and the names of what their volumes contain.
struct SharedObjects {
    managed: Managed,
    volumes: SortedMap<&'static str, String>,
}

/// The nodes of a pool that have one version.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct PoolVersion {
    pool: String,
    version: String,
}

impl PoolVersion {
    /// From the labels of a node. None if they cannot be part of a name, or do not name a version: the owner of the node has
    /// chosen them, and one bad node must not harm the others.
    fn read(pool: &str, version: &str) -> Option<Self> {
        let is_letter = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        let is_pool = !pool.is_empty() && pool.bytes().all(is_letter);
        let is_version = Version::parse(version).is_ok()
            && version.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
        (is_pool && is_version).then(|| Self { pool: pool.to_owned(), version: version.to_owned() })
    }

    /// The name of the ManagedResource with their DaemonSet.
    fn managed_name(&self) -> String {
        format!("{MANAGED_RESOURCE}-{}-v{}", self.pool, self.version)
    }
}

fn deploy(work: &mut Work, _: &Attempt) -> Result<TaskStep, Failed> {
    let outside = work.results.outside.need("the API server has no address yet")?;
    let own = &work.shoot["spec"]["kubernetes"]["kubeProxy"];
    let shared = shared(&ProxyInput {
        namespace: work.plane(),
        server: &outside.authority(),
        ca: work.secrets()?.ca_bundle(),
        pods: &work.view.pods,
        own,
        is_on_hosts: !has_foreign_workers(&work.shoot, &work.env.settings.edge.host_types),
    });
    let mut all = Vec::new();
    for nodes in &wanted(&work.view.pools, &live(work)?) {
        let image = work.env.images.find(NAME, &nodes.version)?;
        all.push(of_pool(work.plane(), nodes, &image, Mode::of(own), &shared.volumes)?);
    }
    managed_resource::deploy(work, &shared.managed)?;
    for managed in &all {
        managed_resource::deploy(work, managed)?;
    }
    Ok(TaskStep::Done)
}

/// The pools and versions that the nodes have.
fn live(work: &Work) -> Result<Vec<PoolVersion>, Failed> {
    let client = work.env.connector.connect(work.plane())?;
    let mut all = Vec::new();
    let params = ListParams { metadata_only: true, ..ListParams::default() };
    client.list_all::<Metadata>(&NODE, ALL_NAMESPACES, &params, &mut |node| {
        let labels = &node.metadata.labels;
        let read = labels.get(POOL).zip(labels.get(KUBERNETES_VERSION));
        all.extend(read.and_then(|(pool, version)| PoolVersion::read(pool, version)));
    })?;
    Ok(all)
}

/// Nodes keep their proxies until they have another version, or are gone.
fn wanted(pools: &[Pool], live: &[PoolVersion]) -> BTreeSet<PoolVersion> {
    let of_spec = pools
        .iter()
        .map(|pool| PoolVersion { pool: pool.name.clone(), version: pool.kubernetes_version.clone() });
    of_spec.chain(live.iter().cloned()).collect()
}

fn delete_stale(work: &mut Work, _: &Attempt) -> Result<TaskStep, Failed> {
    // The task before has written all that are wanted.
    remove_pools(work, &|name| !work.generations.contains_key(name))
}

fn delete(work: &mut Work, _: &Attempt) -> Result<TaskStep, Failed> {
    managed::remove(&work.env.seed, &Key::new(work.plane(), MANAGED_RESOURCE))?;
    remove_pools(work, &|_| true)
}

fn remove_pools(work: &Work, is_stale: &dyn Fn(&str) -> bool) -> Result<TaskStep, Failed> {
    for found in list_managed(work, OF_POOLS)? {
        if is_stale(&found.metadata.name) {
            managed::remove(&work.env.seed, &found.metadata.key())?;
        }
    }
    Ok(TaskStep::Done)
}

fn shared(input: &ProxyInput<'_>) -> SharedObjects {
    const SYSTEM: &str = "kube-system";
    let user = json!({"tokenFile": "/var/run/secrets/kubernetes.io/serviceaccount/token"});
    let kubeconfig = secrets::kubeconfig(input.namespace, "", input.server, input.ca, &user);
    let (_, mut secret) =
        unique_secret(SYSTEM, NAME, &SortedMap::from([("kubeconfig".to_owned(), kubeconfig)]));
    secret["type"] = json!("Opaque");
    let data = SortedMap::from([(
        "config.yaml".to_owned(),
        yaml::emit(&configuration(input.own, input.pods, input.is_on_hosts), Dialect::V4),
    )]);
    let mut configuration = unique_config_map(SYSTEM, "kube-proxy-config", &data);
    for (label, value) in [
        ("app", "kubernetes"),
        ("gardener.cloud/role", "system-component"),
        ("origin", "gardener"),
        ("role", "proxy"),
    ] {
        configuration["metadata"]["labels"][label] = json!(value);
    }
    let volumes = SortedMap::from([
        ("kubeconfig", name(&secret).to_owned()),
        ("kube-proxy-config", name(&configuration).to_owned()),
    ]);
    let mut objects = vec![configuration, secret];
    objects.extend(archive::objects("kube_proxy/objects.yaml"));
    let managed = Managed::for_shoot(input.namespace, MANAGED_RESOURCE, false, &manifests(&objects))
        .labelled(vec![("component", NAME.to_owned())]);
    SharedObjects { managed, volumes }
}

/// On a host of the site, the proxy leaves the number of connections that the kernel tracks as its owner has set it: the
/// kernel has one number for everything on the host, and nothing would set it back.
fn configuration(own: &Value, pods: &[String], is_on_hosts: bool) -> Value {
    let mode = Mode::of(own);
    let per_core = if is_on_hosts { 0 } else { CONNECTIONS_PER_CORE };
    let mut configuration = json!({
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1", "kind": "KubeProxyConfiguration",
        "clientConnection": {"kubeconfig": "/var/lib/kube-proxy-kubeconfig/kubeconfig"},
        "conntrack": {"maxPerCore": per_core},
        "metricsBindAddress": "0.0.0.0:10249",
        "mode": mode.as_str(),
    });
    if mode != Mode::Ipvs {
        configuration["clusterCIDR"] = json!(pods.join(","));
    }
    if own["featureGates"].is_object() {
        configuration["featureGates"] = own["featureGates"].clone();
    }
    configuration
}

/// The DaemonSet for the nodes of a pool that have one version. Errors: a volume has no Secret or ConfigMap.
fn of_pool(
    namespace: &str,
    nodes: &PoolVersion,
    image: &str,
    mode: Mode,
    volumes: &SortedMap<&str, String>,
) -> Result<Managed, String> {
    let PoolVersion { pool, version } = nodes;
    let mut object = archive::object("kube_proxy/daemon-set.yaml");
    object["metadata"]["name"] = json!(format!("{NAME}-{pool}-v{version}"));
    name_volumes(&mut object, volumes)?;
    let template = &mut object["spec"]["template"];
    template["spec"]["nodeSelector"] = json!({KUBERNETES_VERSION: version, POOL: pool});
    for containers in ["containers", "initContainers"] {
        for container in template["spec"][containers].as_array_mut().into_iter().flatten() {
            container["image"] = json!(image);
            let variables = container.get_mut("env").and_then(Value::as_array_mut);
            for variable in variables.into_iter().flatten().filter(|each| each["name"] == MODE) {
                variable["value"] = json!(mode.as_str());
            }
        }
    }
    for labels in ["/spec/selector/matchLabels", "/spec/template/metadata/labels"] {
        if let Some(labels) = object.pointer_mut(labels) {
            labels["pool"] = json!(pool);
            labels["version"] = json!(version);
        }
    }
    annotate_references(&mut object);
    let labels = vec![
        ("component", NAME.to_owned()),
        ("kubernetes-version", version.clone()),
        ("pool-name", pool.clone()),
        ("role", "pool".to_owned()),
    ];
    Ok(Managed::for_shoot(namespace, &nodes.managed_name(), false, &manifests(&[object])).labelled(labels))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::base64;

    fn input<'a>(pods: &'a [String], own: &'a Value, is_on_hosts: bool) -> ProxyInput<'a> {
        let server = "api.w4.p.internal.lab.local";
        ProxyInput { namespace: "shoot--p--w4", server, ca: b"", pods, own, is_on_hosts }
    }

    fn of(pool: &str, version: &str) -> PoolVersion {
        PoolVersion { pool: pool.to_owned(), version: version.to_owned() }
    }

    fn golden(text: &str) -> Vec<Value> {
        managed::golden_objects(text)
    }

    /// A configuration without the fields that only say that they have no value.
    fn without_defaults(value: &Value) -> Value {
        let Value::Object(fields) = value else { return value.clone() };
        let empty = [json!(null), json!(""), json!(0), json!("0"), json!("0s"), json!(false), json!({})];
        let kept = fields.iter().map(|(name, value)| (name.clone(), without_defaults(value)));
        kept.filter(|(_, value)| !empty.contains(value)).collect::<serde_json::Map<_, _>>().into()
    }

    #[test]
    fn shared_objects_are_the_golden_ones_except_for_listed_differences() {
        let mut golden =
            golden(include_str!("../../../../tests/fixtures/components/shoot/workers/kube-proxy.yaml"));
        let pods = ["100.96.0.0/11".to_owned()];
        let own = json!({"enabled": true, "mode": "IPTables"});
        let shared = shared(&input(&pods, &own, false));
        let mut ours = managed::objects_of(&shared.managed.golden());
        for (ours, golden) in ours.iter_mut().zip(&mut golden) {
            assert_eq!(ours["kind"], golden["kind"]);
            match text(&golden["kind"]) {
                "ConfigMap" => {
                    // Only what differs from the defaults is written.
                    let parse = |object: &Value| yaml::parse(text(&object["data"]["config.yaml"])).unwrap();
                    assert_eq!(parse(ours), without_defaults(&parse(golden)));
                    assert_eq!(ours["metadata"]["labels"], golden["metadata"]["labels"]);
                }
                "Secret" => {
                    let text = base64::decode(text(&ours["data"]["kubeconfig"]).as_bytes()).unwrap();
                    assert_eq!(
                        String::from_utf8(text).unwrap().trim_end(),
                        golden["stringData"]["kubeconfig"].as_str().unwrap()
                    );
                    assert_eq!(ours["metadata"]["labels"], golden["metadata"]["labels"]);
                }
                "Service" => {
                    golden["spec"]["ports"][0].as_object_mut().unwrap().remove("targetPort");
                    assert_eq!(ours, golden);
                }
                _ => assert_eq!(ours, golden),
            }
        }
        assert_eq!(ours.len(), golden.len());
    }

    #[test]
    fn daemon_sets_are_the_golden_ones_except_for_listed_differences() {
        let mut golden =
            golden(include_str!("../../../../tests/fixtures/components/shoot/workers/kube-proxy-pool.yaml"));
        let volumes = SortedMap::from([
            ("kubeconfig", "kube-proxy-af0d9fa3".to_owned()),
            ("kube-proxy-config", "kube-proxy-config-f6cb97e4".to_owned()),
        ]);
        let image = "registry.k8s.io/kube-proxy:v1.34.3";
        let pool = of_pool("shoot--p--w4", &of("pool1", "1.34.3"), image, Mode::Iptables, &volumes).unwrap();
        let text = pool.golden();
        let mut ours = managed::objects_of(&text);
        let golden = &mut golden[0];
        let pod = &mut golden["spec"]["template"]["spec"];
        // Its image is one more, for connections that hang after a start.
        pod["containers"].as_array_mut().unwrap().retain(|container| container["name"] != "conntrack-fix");
        let has_script = |object: &Value| object["name"].as_str().unwrap().contains("-script");
        pod["volumes"].as_array_mut().unwrap().retain(|volume| !has_script(volume));
        // The manifest contains the script.
        let cleanup = &mut pod["initContainers"][0];
        cleanup["volumeMounts"].as_array_mut().unwrap().retain(|mount| !has_script(mount));
        let command = &mut ours[0]["spec"]["template"]["spec"]["initContainers"][0]["command"];
        assert!(command[2].as_str().unwrap().contains("--cleanup"));
        cleanup["command"] = command.clone();
        // A host may have another name than its node.
        for container in ["containers/0", "initContainers/1"] {
            let container = format!("/spec/template/spec/{container}");
            let own = ours[0].pointer_mut(&container).unwrap();
            own["command"].as_array_mut().unwrap().retain(|word| word != "--hostname-override=$(NODE_NAME)");
            let variable = own.as_object_mut().unwrap().remove("env").unwrap();
            assert_eq!(variable[0]["valueFrom"]["fieldRef"]["fieldPath"], "spec.nodeName");
        }
        for path in ["/metadata/annotations", "/spec/template/metadata/annotations"] {
            *golden.pointer_mut(path).unwrap() = ours[0].pointer(path).unwrap().clone();
        }
        golden["spec"]["template"]["spec"]["volumes"][0]["secret"]["secretName"] =
            json!("kube-proxy-af0d9fa3");
        assert_eq!(&ours[0], golden);
        let object = yaml::parse(text.split_once("---\n").unwrap().0).unwrap();
        let labels = json!({"component": "kube-proxy", "kubernetes-version": "1.34.3", "origin": "gardener",
            "pool-name": "pool1", "role": "pool"});
        assert_eq!(
            (&object["metadata"]["name"], &object["metadata"]["labels"]),
            (&json!("shoot-core-kube-proxy-pool1-v1.34.3"), &labels)
        );
    }

    #[test]
    fn a_host_keeps_the_number_of_tracked_connections() {
        let pods = ["10.0.0.0/16".to_owned(), "fd00::/64".to_owned()];
        let of = |own: Value, is_on_hosts| configuration(&own, &pods, is_on_hosts);
        assert_eq!(of(json!({}), true)["conntrack"]["maxPerCore"], 0);
        assert_eq!(of(json!({}), false)["conntrack"]["maxPerCore"], 524_288);
        assert_eq!(of(json!({}), true)["clusterCIDR"], "10.0.0.0/16,fd00::/64");
        let ipvs = of(json!({"mode": "IPVS", "featureGates": {"A": true}}), true);
        assert_eq!((&ipvs["mode"], &ipvs["featureGates"]), (&json!("ipvs"), &json!({"A": true})));
        assert!(ipvs["clusterCIDR"].is_null());
        assert_eq!(Mode::of(&json!({"mode": "NFTables"})), Mode::Nftables);
    }

    #[test]
    fn labels_that_are_no_names_are_ignored() {
        let table = [
            ("pool1", "1.34.3", true),
            ("a-b", "1.34", true),
            ("", "1.34.3", false),
            ("Pool_1", "1.34.3", false),
            ("pool1", "v1.34.3", false),
            ("pool1", "1.34.3-rc.1", false),
            ("pool1", "latest", false),
        ];
        for (pool, version, expected) in table {
            assert_eq!(PoolVersion::read(pool, version).is_some(), expected, "{pool} {version}");
        }
    }

    #[test]
    fn nodes_keep_their_proxy_until_they_have_another_version() {
        let pool = |name: &str, version: &str| Pool {
            name: name.to_owned(),
            kubernetes_version: version.to_owned(),
            ..Pool::default()
        };
        let wanted =
            wanted(&[pool("a", "1.34.3"), pool("b", "1.33.5")], &[of("a", "1.33.5"), of("c", "1.34.3")]);
        let names: Vec<String> = wanted.iter().map(PoolVersion::managed_name).collect();
        assert_eq!(
            names,
            ["a-v1.33.5", "a-v1.34.3", "b-v1.33.5", "c-v1.34.3"]
                .map(|end| format!("shoot-core-kube-proxy-{end}"))
        );
    }
}
