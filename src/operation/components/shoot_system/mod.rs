//! Information for components and people in the cluster of a Shoot.

use serde_json::Value;

use crate::base::json::json;
use crate::components::archive;
use crate::components::content::{name, push};
use crate::components::exposure::PORT;
use crate::components::managed::{Managed, manifests};
use crate::flow::{Attempt, Failed, TaskStep};
use crate::format::semver::Version;
use crate::shoot::{Outside, inside};

use super::super::extensions;
use super::super::facts::Facts;
use super::super::row::Row;
use super::super::times::{FIVE_SECONDS, SHORT};
use super::super::work::Work;
use super::component::Component;
use super::managed_resource;

const MANAGED_RESOURCE: &str = "shoot-core-system";

pub(super) static COMPONENT: Component = Component {
    create: &[Row::new("Deploying shoot system resources", deploy, |seen| seen.written(MANAGED_RESOURCE))
        .after(&[
            "Deploying referenced resources",
            "Waiting until extension resources handled after kube-apiserver are ready",
            "Initializing connection to Shoot",
        ])
        .when(Facts::is_awake)
        .retrying(FIVE_SECONDS, SHORT)],
    ..Component::NONE
};

fn deploy(work: &mut Work, _: &Attempt) -> Result<TaskStep, Failed> {
    let client = work.env.connector.connect(work.plane())?;
    let minor = Version::parse(&work.view.kubernetes_version).map_or(0, |version| version.minor);
    let info = inside::info(&work.view, &extensions::names(work));
    let rules = inside::rules_of_readers(&client, &work.view.encrypted)?;
    let mut outside = None;
    if work.view.has_workers {
        outside = Some(work.results.outside.need("the API server has no address yet")?);
    }
    let objects =
        objects(&SystemInput { namespace: work.plane(), info: &info, minor, rules: &rules, outside });
    managed_resource::deploy(work, &objects)
}

/// The input of the objects.
struct SystemInput<'a> {
    /// The namespace of the control plane.
    namespace: &'a str,
    /// The entries of ConfigMap `shoot-info`.
    info: &'a Value,
    /// The minor version of Kubernetes.
    minor: u64,
    /// The rules of the readers' ClusterRole.
    rules: &'a [Value],
    /// The address at which pods and nodes reach the API server; only with workers.
    outside: Option<&'a Outside>,
}

/// From Kubernetes 1.33 on, a NetworkPolicy isolates namespace `kube-system`. With workers, there are policies for its pods,
/// their priorities, and the endpoints of the API server.
fn objects(input: &SystemInput<'_>) -> Managed {
    let metadata = json!({"name": "shoot-info", "namespace": "kube-system"});
    let mut objects =
        vec![json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": input.info})];
    objects.extend(input.outside.into_iter().flat_map(endpoints));
    objects.extend(input.outside.into_iter().flat_map(|outside| policies(outside.port)));
    if input.minor >= 33 {
        objects.push(archive::object("shoot_system/deny-all.yaml"));
    }
    objects.push(json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
        "metadata": {"name": "gardener.cloud:system:read-only"}, "rules": input.rules,
    }));
    if input.outside.is_some() {
        objects.extend(archive::objects("shoot_system/priority-classes.yaml"));
    }
    Managed::for_shoot(input.namespace, MANAGED_RESOURCE, false, &manifests(&objects))
}

/// The endpoints of Service `default/kubernetes`. The API server does not write them, because it knows only addresses
/// that nodes do not reach. Kubernetes mirrors Endpoints unless a label forbids it.
fn endpoints(outside: &Outside) -> [Value; 2] {
    let port = json!([{"name": "https", "port": outside.port, "protocol": "TCP"}]);
    let kind = if outside.host.contains(':') { "IPv6" } else { "IPv4" };
    let metadata = |label: &str, value: &str| json!({"name": "kubernetes", "namespace": "default", "labels": {label: value}});
    [
        json!({
            "apiVersion": "v1", "kind": "Endpoints",
            "metadata": metadata("endpointslice.kubernetes.io/skip-mirror", "true"),
            "subsets": [{"addresses": [{"ip": outside.host}], "ports": port}],
        }),
        json!({
            "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": kind,
            "metadata": metadata("kubernetes.io/service-name", "kubernetes"),
            "endpoints": [{"addresses": [outside.host], "conditions": {"ready": true}}], "ports": port,
        }),
    ]
}

/// The NetworkPolicies of namespace `kube-system`. Upstream's API server always has port 443. Most network plugins
/// look at the port behind the Service.
fn policies(port: u16) -> Vec<Value> {
    let mut all = archive::objects("shoot_system/policies.yaml");
    for policy in all.iter_mut().filter(|policy| name(policy).ends_with("--allow-to-apiserver")) {
        if port != PORT {
            push(&mut policy["spec"]["egress"][0]["ports"], json!({"port": port, "protocol": "TCP"}));
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::yaml;
    use crate::shoot::view;

    #[test]
    fn objects_are_those_of_a_go_gardenlet() {
        let golden = include_str!("../../../../tests/fixtures/components/shoot/system.yaml");
        let documents: Vec<Value> =
            golden.split("\n---\n").map(|document| yaml::parse(document).unwrap()).collect();
        let rules = documents[2]["rules"].as_array().unwrap();
        let input = SystemInput {
            namespace: "shoot--p--s2",
            info: &documents[0]["data"],
            minor: 34,
            rules,
            outside: None,
        };
        objects(&input).assert_for_shoot(golden, false);
        let old = objects(&SystemInput { minor: 32, ..input }).golden();
        assert!(!old.contains("NetworkPolicy"), "{old}");
    }

    #[test]
    fn with_workers_only_endpoints_and_ports_differ() {
        let golden = include_str!("../../../../tests/fixtures/components/shoot/workers/system.yaml");
        let documents: Vec<Value> =
            golden.split("\n---\n").map(|document| yaml::parse(document).unwrap()).collect();
        let readers = documents.iter().find(|document| document["kind"] == "ClusterRole").unwrap();
        let info = inside::info(&view::tests::golden("w4"), &[]);
        let with = |port| {
            let outside = Outside { host: "192.0.2.7".to_owned(), port };
            let input = SystemInput {
                namespace: "shoot--p--s2",
                info: &info,
                minor: 34,
                rules: readers["rules"].as_array().unwrap(),
                outside: Some(&outside),
            };
            let text = objects(&input).golden();
            let (_, own) = text.split_once("---\n# data.yaml.br\n").unwrap();
            own.trim_end().split("\n---\n").map(|document| yaml::parse(document).unwrap()).collect::<Vec<_>>()
        };
        let mut ours = with(PORT);
        let endpoints: Vec<Value> = ours.drain(1..3).collect();
        assert_eq!(ours, documents);
        assert_eq!(endpoints[0]["subsets"][0]["addresses"], json!([{"ip": "192.0.2.7"}]));
        assert_eq!(endpoints[1]["endpoints"][0]["addresses"], json!(["192.0.2.7"]));
        let other = with(30_443);
        assert_eq!(other[2]["ports"][0]["port"], 30_443);
        let ports = other[3]["spec"]["egress"][0]["ports"].as_array().unwrap();
        assert_eq!(ports.iter().map(|port| &port["port"]).collect::<Vec<_>>(), [443, 30_443]);
    }
}
