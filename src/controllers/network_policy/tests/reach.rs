//! Reachability: a model of NetworkPolicies as Kubernetes defines them, over the policies of a seed with a Shoot, an
//! extension and the namespace `garden`. It checks that every required flow is allowed, that others are blocked, and
//! that the removal of any single policy breaks something.

use std::net::IpAddr;

use super::*;
use crate::api::selector::selects;
use crate::components::archive;
use crate::format::cidr::Cidr;

type Labels = SortedMap<String, String>;

fn labels(value: &Value) -> Labels {
    serde_json::from_value(value.clone()).unwrap_or_default()
}

#[derive(Clone, Debug)]
struct Pod {
    namespace: &'static str,
    labels: Labels,
}

/// One side of a connection: a pod, or an endpoint with only an address.
#[derive(Clone, Debug)]
struct End {
    pod: Option<Pod>,
    address: IpAddr,
}

#[derive(Default)]
struct Model {
    namespaces: SortedMap<&'static str, Labels>,
    /// Name, namespace, spec.
    policies: Vec<(String, String, Value)>,
    ends: SortedMap<&'static str, End>,
}

impl Model {
    fn is_peer(&self, namespace: &str, peer: &Value, end: &End) -> bool {
        let block = &peer["ipBlock"];
        if let Some(range) = block["cidr"].as_str() {
            let within = |range: &str| Cidr::parse(range).unwrap().contains(end.address);
            let excepted =
                block["except"].as_array().into_iter().flatten().any(|range| within(range.as_str().unwrap()));
            return within(range) && !excepted;
        }
        let Some(pod) = &end.pod else { return false };
        let in_namespace = match &peer["namespaceSelector"] {
            Value::Null => pod.namespace == namespace,
            selector => selects(selector, &self.namespaces[pod.namespace]),
        };
        in_namespace && (peer["podSelector"].is_null() || selects(&peer["podSelector"], &pod.labels))
    }

    /// Whether the policies of one side allow the other side.
    fn lets(&self, side: &End, other: &End, (direction, peers): (&str, &str), port: (&str, u16)) -> bool {
        let Some(pod) = &side.pod else { return true };
        let kind = if direction == "egress" { "Egress" } else { "Ingress" };
        let concerns = |spec: &Value| {
            spec["policyTypes"].as_array().unwrap().contains(&json!(kind))
                && selects(&spec["podSelector"], &pod.labels)
        };
        let mut specs = self
            .policies
            .iter()
            .filter(|(_, namespace, spec)| namespace == pod.namespace && concerns(spec))
            .peekable();
        if specs.peek().is_none() {
            return true;
        }
        let mut rules = specs.flat_map(|(_, _, spec)| spec[direction].as_array().into_iter().flatten());
        rules.any(|rule| {
            let ports = rule["ports"].as_array();
            let fits = |allowed: &Value| allowed["protocol"] == port.0 && allowed["port"] == port.1;
            let from = rule[peers].as_array();
            ports.is_none_or(|ports| ports.iter().any(fits))
                && from.is_none_or(|from| from.iter().any(|peer| self.is_peer(pod.namespace, peer, other)))
        })
    }

    fn reaches(&self, from: &str, to: &str, port: (&str, u16)) -> bool {
        let (from, to) = (&self.ends[from], &self.ends[to]);
        self.lets(from, to, ("egress", "to"), port) && self.lets(to, from, ("ingress", "from"), port)
    }
}

const SHOOT: &str = "shoot--p--s1";
const OTHER: &str = "shoot--p--s2";
const EXTENSION: &str = "extension-lab";

/// A seed with all of these, with or without exposed API servers.
fn seed(is_exposed: bool) -> Model {
    let mut stage =
        Stage::new(&json!({"pods": "10.51.0.0/16", "services": "10.52.0.0/16", "nodes": "10.50.0.0/16",
        "ipFamilies": ["IPv4"], "blockCIDRs": ["169.254.169.254/32"]}));
    let cluster = json!({"spec": {"shoot": {"spec": {"networking": {"services": "100.64.0.0/13"}}}}});
    stage.shoot = Some(ShootNetworks::read(&cluster));
    let mut model = Model::default();
    let namespaces: [(&'static str, &[(&str, &str)]); 6] = [
        ("garden", &[]),
        (SHOOT, &[("gardener.cloud/role", "shoot")]),
        (OTHER, &[("gardener.cloud/role", "shoot")]),
        (EXTENSION, &[("gardener.cloud/role", "extension")]),
        ("kube-system", &[("gardener.cloud/role", "kube-system")]),
        ("default", &[]),
    ];
    for (name, of) in namespaces {
        stage.namespace(name, of);
        model.namespaces.insert(name, stage.policy_watches.namespace(name).unwrap().metadata.labels.clone());
    }
    let (mut services, mut pods) = (Vec::new(), Vec::new());
    for plane in [SHOOT, OTHER] {
        // As the agent's components write them.
        let etcds = documents(include_str!("../../../../tests/fixtures/components/etcd-plain.yaml"));
        for object in etcds {
            match object["kind"].as_str().unwrap() {
                "Service" => services.push((plane, object)),
                "StatefulSet" => pods.push((
                    plane,
                    object["metadata"]["name"].as_str().unwrap().to_owned(),
                    template(&object),
                )),
                _ => {}
            }
        }
        for component in ["kube_apiserver", "kube_controller_manager"] {
            services.push((plane, archive::object(&format!("{component}/service.yaml"))));
            let workload = archive::object(&format!("{component}/deployment.yaml"));
            pods.push((plane, component.to_owned(), template(&workload)));
        }
        if is_exposed {
            services.push((plane, archive::object("exposure/service.yaml")));
        }
    }
    let all = ["dns", "public-networks", "private-networks", "blocked-cidrs", "runtime-apiserver"];
    let central = || -> Value {
        all.iter().map(|to| (format!("networking.gardener.cloud/to-{to}"), json!("allowed"))).collect()
    };
    let labelled = |app: &str, asked: &[&str]| {
        let mut labels = central();
        labels["app"] = json!(app);
        for label in asked {
            labels[format!("networking.resources.gardener.cloud/to-{label}")] = json!("allowed");
        }
        labels
    };
    let mut extension = webhook(&json!({"app": "extension"}));
    // The API server of the seed calls its webhook too.
    extension["metadata"]["annotations"]["networking.resources.gardener.cloud/from-world-to-ports"] =
        json!(r#"[{"protocol":"TCP","port":9443}]"#);
    services.push((EXTENSION, extension));
    pods.push((
        EXTENSION,
        "extension".to_owned(),
        labelled("extension", &["all-shoots-kube-apiserver-tcp-443"]),
    ));
    pods.push((EXTENSION, "alone".to_owned(), json!({"app": "alone"})));
    pods.push(("garden", "monitor".to_owned(), labelled("monitor", &["all-shoots-all-scrape-targets"])));
    pods.push((
        "garden",
        "dashboard".to_owned(),
        labelled("dashboard", &["all-shoots-kube-apiserver-tcp-443"]),
    ));
    let snapshots = include_str!("../../../../tests/fixtures/components/etcd-plain-snapshots.yaml");
    let job = documents(snapshots).into_iter().rfind(|object| object["kind"] == "CronJob").unwrap();
    for plane in [SHOOT, OTHER] {
        pods.push((plane, "snapshot".to_owned(), template(&job["spec"]["jobTemplate"])));
        pods.push((plane, "helper".to_owned(), labelled("helper", &["kube-controller-manager-tcp-10257"])));
    }
    pods.push(("kube-system", "dns".to_owned(), json!({"k8s-app": "kube-dns"})));
    pods.push((
        "default",
        "stranger".to_owned(),
        labelled("stranger", &["etcd-main-client-tcp-2379", "all-shoots-kube-apiserver-tcp-443"]),
    ));
    let chart = yaml_of_agent();
    pods.push(("garden", "agent".to_owned(), template(&chart.0)));
    for (namespace, service) in &services {
        stage.service(namespace, service);
    }
    for (number, (namespace, name, of)) in (1_u8..).zip(pods) {
        stage.pod(namespace, &name, &of);
        let address = IpAddr::from([10, 51, 0, number]);
        let name: &'static str =
            Box::leak(if namespace == OTHER { format!("other {name}") } else { name }.into_boxed_str());
        model.ends.insert(name, End { pod: Some(Pod { namespace, labels: labels(&of) }), address });
    }
    for (name, address) in [
        ("API server of the seed", "10.50.0.1"),
        ("node", "10.50.0.2"),
        ("client", "203.0.113.9"),
        ("internet", "198.51.100.7"),
        ("site", "192.168.7.7"),
        ("metadata service", "169.254.169.254"),
        ("DNS of the node", "169.254.20.10"),
        ("address of DNS", "10.52.0.10"),
        ("network of the Shoot", "100.64.0.1"),
    ] {
        model.ends.insert(name, End { pod: None, address: address.parse().unwrap() });
    }
    for name in model.namespaces.keys() {
        let policies = stage.policies(name).into_iter();
        model.policies.extend(policies.map(|policy| {
            let spec = policy.object(name)["spec"].clone();
            (policy.name, (*name).to_owned(), spec)
        }));
    }
    model.policies.push(("of the agent's chart".to_owned(), "garden".to_owned(), chart.1["spec"].clone()));
    model
}

/// The agent's Deployment, and the policy of its chart.
fn yaml_of_agent() -> (Value, Value) {
    let all = yaml::parse_all(include_str!("../../../../packaging/kustomize/base/gardenlet.yaml"));
    let of = |kind: &str| {
        let mut values = all.iter().map(|document| document.value.clone().unwrap());
        values.find(|value| value["kind"] == kind).unwrap()
    };
    (of("Deployment"), of("NetworkPolicy"))
}

const ETCD: (&str, u16) = ("TCP", 2379);
const HTTPS: (&str, u16) = ("TCP", 443);
const SEED: (&str, u16) = ("TCP", 6443);
const WEBHOOK: (&str, u16) = ("TCP", 10250);

/// The required flows. Without an exposure, nothing connects from outside.
const NEEDED: &[(&str, &str, (&str, u16))] = &[
    ("kube_apiserver", "etcd-main", ETCD),
    ("kube_apiserver", "etcd-events", ETCD),
    // Snapshots, to a bucket at the site or elsewhere.
    ("snapshot", "etcd-main", ETCD),
    ("other snapshot", "other etcd-main", ETCD),
    ("snapshot", "dns", ("UDP", 8053)),
    ("snapshot", "internet", HTTPS),
    ("snapshot", "site", HTTPS),
    ("kube_controller_manager", "kube_apiserver", HTTPS),
    ("agent", "kube_apiserver", HTTPS),
    ("dashboard", "kube_apiserver", HTTPS),
    ("extension", "kube_apiserver", HTTPS),
    ("other kube_apiserver", "other etcd-main", ETCD),
    ("other kube_apiserver", "other etcd-events", ETCD),
    ("other kube_controller_manager", "other kube_apiserver", HTTPS),
    ("agent", "other kube_apiserver", HTTPS),
    ("dashboard", "other kube_apiserver", HTTPS),
    ("extension", "other kube_apiserver", HTTPS),
    // Webhooks of extensions.
    ("kube_apiserver", "extension", WEBHOOK),
    ("other kube_apiserver", "extension", WEBHOOK),
    ("API server of the seed", "extension", ("TCP", 9443)),
    ("helper", "kube_controller_manager", ("TCP", 10257)),
    ("other helper", "other kube_controller_manager", ("TCP", 10257)),
    // Metrics.
    ("monitor", "kube_apiserver", HTTPS),
    ("monitor", "other kube_apiserver", HTTPS),
    ("monitor", "etcd-main", ("TCP", 2381)),
    ("monitor", "etcd-main", ETCD),
    ("monitor", "etcd-events", ("TCP", 2381)),
    ("monitor", "etcd-events", ETCD),
    ("monitor", "other etcd-main", ("TCP", 2381)),
    ("monitor", "other etcd-main", ETCD),
    ("monitor", "other etcd-events", ("TCP", 2381)),
    ("monitor", "other etcd-events", ETCD),
    // DNS.
    ("kube_apiserver", "dns", ("UDP", 8053)),
    ("kube_controller_manager", "dns", ("TCP", 53)),
    ("etcd-main", "address of DNS", ("UDP", 53)),
    ("other etcd-main", "dns", ("UDP", 53)),
    ("extension", "dns", ("UDP", 8053)),
    ("kube_controller_manager", "DNS of the node", ("UDP", 53)),
    ("monitor", "dns", ("TCP", 8053)),
    ("agent", "dns", ("UDP", 53)),
    // The API server of the seed.
    ("etcd-main", "API server of the seed", SEED),
    ("other etcd-main", "API server of the seed", SEED),
    ("extension", "API server of the seed", SEED),
    ("monitor", "API server of the seed", SEED),
    ("agent", "API server of the seed", SEED),
    // The garden, backups, identity providers.
    ("agent", "internet", HTTPS),
    ("kube_apiserver", "internet", HTTPS),
    ("other kube_apiserver", "internet", HTTPS),
    ("extension", "internet", HTTPS),
    ("monitor", "internet", HTTPS),
    ("etcd-main", "site", HTTPS),
    ("other etcd-main", "site", HTTPS),
    ("kube_apiserver", "site", HTTPS),
    ("extension", "site", HTTPS),
    ("monitor", "site", HTTPS),
    ("helper", "metadata service", ("TCP", 80)),
    ("other helper", "metadata service", ("TCP", 80)),
    ("extension", "metadata service", ("TCP", 80)),
    ("monitor", "metadata service", ("TCP", 80)),
];

const FROM_OUTSIDE: &[(&str, &str, (&str, u16))] = &[
    ("client", "kube_apiserver", HTTPS),
    ("node", "kube_apiserver", HTTPS),
    ("client", "other kube_apiserver", HTTPS),
];

/// The forbidden flows, with or without exposure.
const BLOCKED: &[(&str, &str, (&str, u16))] = &[
    ("client", "etcd-main", ETCD),
    ("node", "etcd-main", ETCD),
    ("client", "kube_controller_manager", ("TCP", 10257)),
    ("client", "kube_apiserver", ("TCP", 8443)),
    ("client", "extension", WEBHOOK),
    ("client", "monitor", HTTPS),
    ("client", "helper", HTTPS),
    ("client", "other helper", HTTPS),
    ("client", "alone", HTTPS),
    ("kube_controller_manager", "etcd-main", ETCD),
    ("kube_controller_manager", "internet", HTTPS),
    ("kube_controller_manager", "API server of the seed", SEED),
    ("kube_apiserver", "API server of the seed", SEED),
    ("kube_apiserver", "etcd-main", ("TCP", 2380)),
    ("kube_apiserver", "metadata service", ("TCP", 80)),
    ("kube_apiserver", "network of the Shoot", HTTPS),
    ("kube_apiserver", "stranger", HTTPS),
    ("etcd-main", "kube_apiserver", HTTPS),
    ("etcd-main", "etcd-events", ETCD),
    ("other kube_apiserver", "etcd-main", ETCD),
    ("snapshot", "etcd-events", ETCD),
    ("snapshot", "kube_apiserver", HTTPS),
    ("snapshot", "API server of the seed", SEED),
    ("other snapshot", "etcd-main", ETCD),
    ("client", "snapshot", HTTPS),
    ("other kube_controller_manager", "kube_apiserver", HTTPS),
    ("agent", "etcd-main", ETCD),
    ("extension", "etcd-main", ETCD),
    ("stranger", "etcd-main", ETCD),
    ("monitor", "extension", WEBHOOK),
    ("kube_apiserver", "dns", ("TCP", 443)),
    ("dns", "kube_apiserver", ("TCP", 8443)),
];

/// The first flow that violates the tables.
fn broken(closed: &Model, exposed: &Model) -> Option<String> {
    let line = |(from, to, port): &(&str, &str, (&str, u16))| format!("{from} -> {to} {port:?}");
    let missing = NEEDED
        .iter()
        .find(|(from, to, port)| !closed.reaches(from, to, *port) || !exposed.reaches(from, to, *port));
    let outside = FROM_OUTSIDE.iter().find(|(from, to, port)| !exposed.reaches(from, to, *port));
    let open = BLOCKED
        .iter()
        .find(|(from, to, port)| closed.reaches(from, to, *port) || exposed.reaches(from, to, *port));
    let hidden = FROM_OUTSIDE.iter().find(|(from, to, port)| closed.reaches(from, to, *port));
    let wanted = missing.or(outside).map(|flow| format!("blocked: {}", line(flow)));
    wanted.or_else(|| open.or(hidden).map(|flow| format!("open: {}", line(flow))))
}

#[test]
fn required_flows_are_allowed_and_others_blocked() {
    assert_eq!(broken(&seed(false), &seed(true)), None);
}

#[test]
fn removing_any_policy_breaks_a_flow() {
    let (mut closed, mut exposed) = (seed(false), seed(true));
    let all: SortedMap<(String, String), ()> =
        exposed.policies.iter().map(|(name, namespace, _)| ((namespace.clone(), name.clone()), ())).collect();
    assert!(
        closed
            .policies
            .iter()
            .all(|(name, namespace, _)| all.contains_key(&(namespace.clone(), name.clone())))
    );
    let (mut allows, mut needless) = (0, Vec::new());
    for (namespace, name) in all.keys() {
        let whole = [closed.policies.clone(), exposed.policies.clone()];
        for model in [&mut closed, &mut exposed] {
            model.policies.retain(|(other, of, _)| other != name || of != namespace);
        }
        let found = broken(&closed, &exposed);
        let [first, second] = whole;
        (closed.policies, exposed.policies) = (first, second);
        let is_allow = name != DENY_ALL;
        allows += usize::from(is_allow);
        if !found.is_some_and(|found| found.starts_with(if is_allow { "blocked: " } else { "open: " })) {
            needless.push(format!("{namespace}/{name}"));
        }
    }
    assert_eq!(needless, Vec::<String>::new());
    assert!(allows > 40, "{allows}");
}
