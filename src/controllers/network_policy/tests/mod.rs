//! Tables, golden files of upstream, and a [`Stage`] that holds namespaces, Services and pods.

mod reach;

use serde_json::json;

use super::decide::PolicyPlan;
use super::policy::{DENY_ALL, Policy};
use super::*;
use crate::format::yaml;
use crate::runtime::informer::InformerCache;
use crate::runtime::marks::{ListedMarks, Mark};

/// A seed as the watches deliver it, and the other inputs of policies.
pub(super) struct Stage {
    pub(super) policy_watches: NetworkPolicyWatches,
    pub(super) networks: Networks,
    additional: Vec<Value>,
    pub(super) rules: Option<Vec<Value>>,
    pub(super) shoot: Option<ShootNetworks>,
    version: u32,
}

impl Stage {
    pub(super) fn new(networks: &Value) -> Self {
        let policy_watches = NetworkPolicyWatches::default();
        for kept in [&policy_watches.policies, &policy_watches.services, &policy_watches.pods] {
            kept.retain(&ListedMarks::new());
        }
        policy_watches.namespaces().retain(&ListedMarks::new());
        policy_watches.set_service_policy_writer(ServicePolicyWriter::Ours);
        let endpoints = json!({"subsets": [{"addresses": [{"ip": "10.50.0.1"}], "ports": [{"port": 6443, "protocol": "TCP"}]}]});
        Self {
            policy_watches,
            networks: Networks::read(networks),
            additional: Vec::new(),
            rules: central::to_api_server(&endpoints, &[], 443),
            shoot: Some(ShootNetworks::default()),
            version: 0,
        }
    }

    fn put(&mut self, kept: &dyn InformerCache, mut object: Value) {
        self.version += 1;
        object["metadata"]["resourceVersion"] = json!(self.version.to_string());
        let key = |field: &str| object["metadata"][field].as_str().unwrap_or_default().to_owned();
        let key = Key::new(key("namespace"), key("name"));
        kept.put(key, serde_json::from_value(object).unwrap()).unwrap();
    }

    pub(super) fn namespace(&mut self, name: &str, labels: &[(&str, &str)]) {
        let mut all: SortedMap<&str, &str> = labels.iter().copied().collect();
        all.insert("kubernetes.io/metadata.name", name);
        let namespaces = self.policy_watches.namespaces().clone();
        self.put(&namespaces, json!({"metadata": {"name": name, "labels": all}}));
    }

    pub(super) fn terminate(&mut self, name: &str) {
        let labels = self.policy_watches.namespace(name).unwrap().metadata.labels.clone();
        let metadata = json!({"name": name, "labels": labels, "deletionTimestamp": "2026-01-01T00:00:00Z"});
        let namespaces = self.policy_watches.namespaces().clone();
        self.put(&namespaces, json!({"metadata": metadata}));
    }

    pub(super) fn service(&mut self, namespace: &str, service: &Value) {
        let mut service = service.clone();
        service["metadata"]["namespace"] = json!(namespace);
        let services = self.policy_watches.services.clone();
        self.put(&services, service);
    }

    pub(super) fn pod(&mut self, namespace: &str, name: &str, labels: &Value) {
        let pods = self.policy_watches.pods.clone();
        self.put(&pods, json!({"metadata": {"namespace": namespace, "name": name, "labels": labels}}));
    }

    pub(super) fn end_pod(&self, namespace: &str, name: &str) {
        self.policy_watches.pods.remove(&Key::new(namespace, name));
    }

    fn live(&mut self, object: Value) {
        let policies = self.policy_watches.policies.clone();
        self.put(&policies, object);
    }

    fn wanted(&self, namespace: &str) -> DesiredPolicies {
        let namespace = self.policy_watches.namespace(namespace).unwrap();
        let given = CentralPolicyInput {
            networks: &self.networks,
            additional: &self.additional,
            api_server: self.rules.as_deref(),
            shoot: self.shoot.as_ref(),
        };
        let CentralPolicies { policies, unknown } = central::policies(&namespace.metadata, &given);
        let writer = self.policy_watches.writer();
        let mut wanted =
            DesiredPolicies { policies, unknown, writer, has_central: true, ..DesiredPolicies::default() };
        if writer == ServicePolicyWriter::Ours {
            self.policy_watches.ask(&namespace.metadata, &mut wanted).unwrap();
        }
        wanted
    }

    pub(super) fn plan(&self, namespace: &str) -> PolicyPlan {
        decide::plan(namespace, self.wanted(namespace), &self.policy_watches.policies.within(namespace))
    }

    /// The final policies of a namespace that starts with none.
    pub(super) fn policies(&self, namespace: &str) -> Vec<Policy> {
        let plan = decide::plan(namespace, self.wanted(namespace), &[]);
        let created = plan.steps.into_iter().map(|step| match step {
            PolicyWrite::Create(policy) => policy,
            other => panic!("{other:?}"),
        });
        created.collect()
    }

    fn names(&self, namespace: &str) -> Vec<String> {
        self.policies(namespace).into_iter().map(|policy| policy.name).collect()
    }

    fn act(&mut self, namespace: &str) -> Vec<String> {
        let mut lines = Vec::new();
        for step in self.plan(namespace).steps {
            match step {
                PolicyWrite::Create(policy) => {
                    lines.push(format!("create {}", policy.name));
                    self.live(policy.object(namespace));
                }
                PolicyWrite::Change(policy) => {
                    lines.push(format!("change {}", policy.name));
                    self.live(policy.object(namespace));
                }
                PolicyWrite::Delete(name) => {
                    lines.push(format!("delete {name}"));
                    self.policy_watches.policies.remove(&Key::new(namespace, name));
                }
            }
        }
        lines
    }
}

pub(super) fn documents(text: &str) -> Vec<Value> {
    yaml::parse_all(text).into_iter().map(|document| document.value.unwrap()).collect()
}

/// The Service of an extension, like in charts of Gardener's extensions.
pub(super) fn webhook(selector: &Value) -> Value {
    json!({"metadata": {"name": "gardener-extension-provider-local", "annotations": {
            "networking.resources.gardener.cloud/from-all-webhook-targets-allowed-ports": r#"[{"protocol":"TCP","port":10250}]"#,
            "networking.resources.gardener.cloud/namespace-selectors": r#"[{"matchLabels":{"gardener.cloud/role":"shoot"}}]"#,
            "networking.resources.gardener.cloud/pod-label-selector-namespace-alias": "extensions"}},
        "spec": {"selector": selector, "ports": [{"name": "webhook", "port": 443, "protocol": "TCP", "targetPort": 10250}]}})
}

/// The labels of pods of a workload.
pub(super) fn template(workload: &Value) -> Value {
    workload["spec"]["template"]["metadata"]["labels"].clone()
}

#[test]
fn policies_are_those_of_upstream() {
    let golden = documents(include_str!("../../../../tests/fixtures/network-policies/golden.yaml"));
    let (shoot, extensions) =
        ("shoot--p--s2", ["extension-provider-lab-ms68p", "extension-provider-lab-smkst"]);
    let mut stage = Stage::new(&json!({"pods": "10.2.0.0/16", "services": "10.1.0.0/16"}));
    let endpoints = json!({"subsets": [{"addresses": [{"ip": "10.77.0.1"}], "ports": [{"port": 26_443, "protocol": "TCP"}]}]});
    stage.rules = central::to_api_server(&endpoints, &[], 443);
    let cluster = json!({"spec": {"shoot": {"spec": {"networking": {"ipFamilies": ["IPv4"], "services": "100.64.0.0/13"}}}}});
    stage.shoot = Some(ShootNetworks::read(&cluster));
    stage.namespace(shoot, &[("gardener.cloud/role", "shoot")]);
    for extension in extensions {
        stage.namespace(extension, &[("gardener.cloud/role", "extension")]);
        let selector = json!({"app.kubernetes.io/instance": "provider-lab", "app.kubernetes.io/name": "gardener-extension-provider-local"});
        stage.service(extension, &webhook(&selector));
    }
    for service in documents(include_str!("../../../../tests/fixtures/network-policies/services.yaml")) {
        stage.service(shoot, &service);
    }
    for text in [
        include_str!("../../../../tests/fixtures/control-plane/deployment-kube-apiserver.yaml"),
        include_str!("../../../../tests/fixtures/control-plane/deployment-kube-controller-manager.yaml"),
    ] {
        let workload = yaml::parse(text).unwrap();
        stage.pod(shoot, workload["metadata"]["name"].as_str().unwrap(), &template(&workload));
    }
    let mut compared = 0;
    for namespace in [shoot, extensions[0], extensions[1]] {
        let of = |object: &&Value| object["metadata"]["namespace"] == namespace;
        let policies = stage.policies(namespace);
        for expected in golden.iter().filter(of) {
            let policy =
                policies.iter().find(|policy| policy.name == expected["metadata"]["name"].as_str().unwrap());
            let policy = policy.unwrap_or_else(|| panic!("no {}", expected["metadata"]["name"]));
            assert_eq!(policy.object(namespace), *expected);
            assert_eq!(policy.look(namespace), policy::look(expected));
            compared += 1;
        }
        if namespace == shoot {
            assert_eq!(policies.len(), golden.iter().filter(of).count(), "{:?}", stage.names(namespace));
        }
    }
    assert_eq!((compared, golden.len()), (14, 14));
}

#[test]
fn a_namespace_has_the_policies_of_its_kind() {
    let all = "blocked-cidrs dns private-networks public-networks runtime-apiserver all";
    type Kind<'a> = (&'a str, &'a [(&'a str, &'a str)], &'a str);
    let table: &[Kind<'_>] = &[
        ("garden", &[], all),
        ("shoot--p--s1", &[("gardener.cloud/role", "shoot")], all),
        ("any", &[("gardener.cloud/role", "extension")], all),
        ("istio-system", &[("gardener.cloud/role", "istio-system")], "dns runtime-apiserver all"),
        ("istio-ingress", &[("gardener.cloud/role", "istio-ingress")], "dns runtime-apiserver all"),
        ("handler", &[("handler.exposureclass.gardener.cloud/name", "x")], "dns all"),
        ("team", &[("team", "platform")], all),
        ("other", &[("team", "other"), ("gardener.cloud/role", "kube-system")], ""),
        ("default", &[], ""),
    ];
    let mut stage = Stage::new(&json!({"services": "10.1.0.0/16"}));
    stage.additional = vec![json!({"matchLabels": {"team": "platform"}})];
    for (name, labels, expected) in table {
        stage.namespace(name, labels);
        let names = stage.names(name);
        let short: Vec<&str> = names
            .iter()
            .map(|name| name.trim_start_matches("allow-to-").trim_start_matches("deny-"))
            .collect();
        assert_eq!(short.join(" "), *expected, "{name}");
        assert!(names.last().is_none_or(|last| last == DENY_ALL), "{name}");
    }
}

fn spec(stage: &Stage, namespace: &str, name: &str) -> Value {
    let policies = stage.policies(namespace);
    policies.iter().find(|policy| policy.name == name).unwrap().object(namespace)["spec"].clone()
}

#[test]
fn networks_are_excluded_from_ranges_of_their_family() {
    let networks = |families: Value| {
        json!({"pods": "10.2.0.0/16", "services": "10.1.0.0/16", "nodes": "192.168.3.0/24", "ipFamilies": families,
            "blockCIDRs": ["169.254.169.254/32", "10.7.7.7/32", "10.0.0.0/8", "fd00:7::/64"]})
    };
    let shoot = json!({"spec": {"shoot": {"spec": {"networking": {"services": "100.64.0.0/13"}},
        "status": {"networking": {"services": ["100.64.0.0/13"], "pods": ["100.96.0.0/11"]}}}}});
    let v6 = json!({"spec": {"shoot": {"spec": {"networking": {"ipFamilies": ["IPv6"], "services": "fd00:9::/108"}}}}});
    let none =
        json!({"spec": {"shoot": {"spec": {}, "status": {"networking": {"services": ["10.9.0.0/16"]}}}}});
    let table = [
        (
            json!(["IPv4"]),
            &shoot,
            json!({"10.0.0.0/8": ["10.7.7.7/32", "10.2.0.0/16", "10.1.0.0/16"],
            "192.168.0.0/16": ["192.168.3.0/24"], "100.64.0.0/10": ["100.64.0.0/13", "100.96.0.0/11"], "fc00::/7": ["fd00:7::/64"]}),
        ),
        (
            json!(null),
            &shoot,
            json!({"10.0.0.0/8": ["10.7.7.7/32"], "100.64.0.0/10": ["100.64.0.0/13", "100.96.0.0/11"],
            "fc00::/7": ["fd00:7::/64"]}),
        ),
        (
            json!(["IPv4", "IPv6"]),
            &v6,
            json!({"10.0.0.0/8": ["10.7.7.7/32"], "fc00::/7": ["fd00:7::/64", "fd00:9::/108"]}),
        ),
        (json!(["IPv6"]), &none, json!({"10.0.0.0/8": ["10.7.7.7/32"], "fc00::/7": ["fd00:7::/64"]})),
    ];
    for (families, cluster, expected) in table {
        let mut stage = Stage::new(&networks(families.clone()));
        stage.namespace("shoot--p--s1", &[("gardener.cloud/role", "shoot")]);
        stage.shoot = Some(ShootNetworks::read(cluster));
        let spec = spec(&stage, "shoot--p--s1", "allow-to-private-networks");
        let mut found = json!({});
        for peer in spec["egress"].as_array().unwrap().iter().flat_map(|rule| rule["to"].as_array().unwrap())
        {
            let block = &peer["ipBlock"];
            if !block["except"].is_null() {
                found[block["cidr"].as_str().unwrap()] = block["except"].clone();
            }
        }
        assert_eq!(found, expected, "{families}");
    }
    let mut stage =
        Stage::new(&json!({"services": "fd00:1::/108", "pods": "2001:db8::/48", "ipFamilies": ["IPv6"],
        "blockCIDRs": ["169.254.169.254/32"]}));
    stage.namespace("garden", &[]);
    let public = spec(&stage, "garden", "allow-to-public-networks");
    let to = &public["egress"][0]["to"];
    assert_eq!(to[0]["ipBlock"]["except"][4], "169.254.169.254/32");
    assert_eq!(to[1]["ipBlock"]["except"], json!(["fe80::/10", "fc00::/7", "2001:db8::/48", "fd00:1::/108"]));
    let blocked = spec(&stage, "garden", "allow-to-blocked-cidrs");
    assert_eq!(blocked["egress"], json!([{"to": [{"ipBlock": {"cidr": "169.254.169.254/32"}}]}]));
    let dns = spec(&stage, "garden", "allow-to-dns");
    assert_eq!(dns["egress"][0]["to"][4], json!({"ipBlock": {"cidr": "fd00:1::a/128"}}));
}

#[test]
fn the_api_server_is_reached_by_endpoints_and_name() {
    let subset = |addresses: &[&str], port: u16| {
        let addresses: Vec<Value> = addresses.iter().map(|ip| json!({"ip": ip})).collect();
        json!({"addresses": addresses, "ports": [{"name": "https", "port": port, "protocol": "TCP"}]})
    };
    let rule = |ranges: &[&str], port: u16| {
        let to: Vec<Value> = ranges.iter().map(|range| json!({"ipBlock": {"cidr": range}})).collect();
        json!({"to": to, "ports": [{"port": port, "protocol": "TCP"}]})
    };
    let resolved: Vec<std::net::IpAddr> = vec!["203.0.113.9".parse().unwrap(), "fd00::9".parse().unwrap()];
    let (named, unnamed) = (resolved.as_slice(), &resolved[..0]);
    let table = [
        (
            json!([subset(&["10.0.0.2", "10.0.0.1", "10.0.0.2"], 6443)]),
            unnamed,
            Some(vec![rule(&["10.0.0.1/32", "10.0.0.2/32"], 6443)]),
        ),
        (
            json!([subset(&["10.0.0.1"], 6443), subset(&["fd00::1"], 443)]),
            named,
            Some(vec![
                rule(&["10.0.0.1/32"], 6443),
                rule(&["fd00::1/128"], 443),
                rule(&["203.0.113.9/32", "fd00::9/128"], 443),
            ]),
        ),
        // A rule without addresses would allow everything.
        (json!([{"notReadyAddresses": [{"ip": "10.0.0.1"}], "ports": [{"port": 6443}]}]), unnamed, None),
        (json!(null), named, Some(vec![rule(&["203.0.113.9/32", "fd00::9/128"], 443)])),
        (json!(null), unnamed, None),
    ];
    for (subsets, resolved, expected) in table {
        assert_eq!(
            central::to_api_server(&json!({"subsets": subsets}), resolved, 443),
            expected,
            "{subsets}"
        );
    }
}

/// A Service that requests every kind of policy.
fn asking() -> Value {
    json!({"metadata": {"name": "web", "annotations": {
            "networking.resources.gardener.cloud/namespace-selectors": r#"[{"matchLabels":{"team":"a"}}]"#,
            "networking.resources.gardener.cloud/from-scrapers-allowed-ports": r#"[{"port":"metrics"}]"#,
            "networking.resources.gardener.cloud/from-world-to-ports": r#"[{"protocol":"UDP","port":53},{"port":443}]"#}},
        "spec": {"selector": {"app": "web"}, "ports": [{"port": 80, "protocol": "TCP", "targetPort": 8080}, {"port": 53, "protocol": "UDP"}]}})
}

fn peers() -> Stage {
    let mut stage = Stage::new(&json!({}));
    stage.namespace("garden", &[]);
    stage.namespace("team-a", &[("team", "a")]);
    stage.service("garden", &asking());
    stage
}

/// The names of policies that Services request.
fn asked(stage: &Stage, namespace: &str) -> Vec<String> {
    let policies = stage.policies(namespace).into_iter();
    policies.filter(|policy| policy.service.is_some()).map(|policy| policy.name).collect()
}

fn allowed(label: &str) -> Value {
    json!({format!("networking.resources.gardener.cloud/{label}"): "allowed"})
}

#[test]
fn pods_get_the_policies_of_their_labels() {
    let table: &[(&str, &str, &str, &str)] = &[
        (
            "garden",
            "to-web-tcp-8080",
            "egress-to-web-tcp-8080 ingress-to-web-from-world ingress-to-web-tcp-8080",
            "",
        ),
        (
            "garden",
            "to-web-udp-53",
            "egress-to-web-udp-53 ingress-to-web-from-world ingress-to-web-udp-53",
            "",
        ),
        (
            "garden",
            "to-scrapers",
            "egress-to-web-tcp-metrics-via-scrapers ingress-to-web-from-world ingress-to-web-tcp-metrics-via-scrapers",
            "",
        ),
        ("garden", "to-garden-web-tcp-8080", "ingress-to-web-from-world", ""),
        ("team-a", "to-web-tcp-8080", "ingress-to-web-from-world", ""),
        (
            "team-a",
            "to-garden-web-tcp-8080",
            "ingress-to-web-from-world ingress-to-web-tcp-8080-from-team-a",
            "egress-to-garden-web-tcp-8080",
        ),
        (
            "team-a",
            "to-garden-scrapers",
            "ingress-to-web-from-world ingress-to-web-tcp-metrics-via-scrapers-from-team-a",
            "egress-to-garden-web-tcp-metrics-via-scrapers",
        ),
    ];
    for (namespace, label, there, elsewhere) in table {
        let mut stage = peers();
        stage.pod(namespace, "client", &allowed(label));
        assert_eq!(asked(&stage, "garden").join(" "), *there, "{namespace} {label}");
        assert_eq!(asked(&stage, "team-a").join(" "), *elsewhere, "{namespace} {label}");
        stage.end_pod(namespace, "client");
        assert_eq!(asked(&stage, "garden"), ["ingress-to-web-from-world"], "{namespace} {label}");
        assert_eq!(asked(&stage, "team-a"), Vec::<String>::new(), "{namespace} {label}");
    }
    let world = spec(&peers(), "garden", "ingress-to-web-from-world");
    assert_eq!(
        world["ingress"],
        json!([{"ports": [{"protocol": "UDP", "port": 53}, {"protocol": "TCP", "port": 443}]}])
    );
    let description = &peers().policies("garden")[5].description;
    assert_eq!(
        description,
        "Allows ingress traffic from everywhere to ports [UDP/53 443] for pods selected by the garden/web service selector."
    );
}

#[test]
fn a_deleted_or_changed_service_removes_its_policies() {
    let both = |stage: &Stage| (asked(stage, "garden").len(), asked(stage, "team-a").len());
    let mut stage = peers();
    stage.pod("team-a", "client", &allowed("to-garden-web-tcp-8080"));
    assert_eq!(both(&stage), (2, 1));
    let table: &[(&str, Value, (usize, usize))] = &[
        (
            "/metadata/annotations/networking.resources.gardener.cloud~1namespace-selectors",
            json!("[]"),
            (1, 0),
        ),
        (
            "/metadata/annotations/networking.resources.gardener.cloud~1from-world-to-ports",
            json!("[]"),
            (1, 1),
        ),
        ("/spec/selector", json!({}), (0, 0)),
        ("/spec/selector", json!(null), (0, 0)),
        ("/spec/ports/0/targetPort", json!(8081), (1, 0)),
        ("/metadata/deletionTimestamp", json!("2026-01-01T00:00:00Z"), (0, 0)),
    ];
    for (place, value, expected) in table {
        let mut service = asking();
        service["metadata"]["deletionTimestamp"] = json!(null);
        *service.pointer_mut(place).unwrap() = value.clone();
        stage.service("garden", &service);
        assert_eq!(both(&stage), *expected, "{place} {value}");
    }
    stage.service("garden", &asking());
    assert_eq!(both(&stage), (2, 1));
    stage.terminate("team-a");
    assert_eq!(asked(&stage, "garden").len(), 1);
    let mut stage = peers();
    stage.pod("team-a", "client", &allowed("to-garden-web-tcp-8080"));
    stage.terminate("garden");
    assert_eq!(asked(&stage, "team-a").len(), 0);
    // Services in other namespaces request nothing.
    stage.service("team-a", &asking());
    stage.pod("team-a", "other", &allowed("to-web-tcp-8080"));
    assert_eq!(asked(&stage, "team-a").len(), 0);
}

#[test]
fn a_label_that_is_too_long_is_shortened() {
    let mut stage = Stage::new(&json!({}));
    let long = "extension-with-a-name-of-more-than-forty-characters";
    stage.namespace(long, &[("gardener.cloud/role", "extension")]);
    stage.namespace("shoot--p--s1", &[("gardener.cloud/role", "shoot")]);
    let mut service = webhook(&json!({"app": "x"}));
    service["metadata"]["annotations"]["networking.resources.gardener.cloud/pod-label-selector-namespace-alias"] =
        json!(null);
    stage.service(long, &service);
    // Upstream's `ShortenNetworkPolicyLabelKeyIfTooLong` creates this name.
    let name = format!("to-{long}-all-webhook-targets");
    let digest = crate::components::managed::sha256_hex(name.as_bytes());
    stage.pod("shoot--p--s1", "api", &allowed(&format!("{}-{}", &name[..57], &digest[..5])));
    let policies = stage.policies("shoot--p--s1");
    let policy = policies.iter().find(|policy| policy.service.is_some()).unwrap();
    let labels = policy.spec["podSelector"]["matchLabels"].as_object().unwrap();
    let (prefix, name) = labels.keys().next().unwrap().split_once('/').unwrap();
    assert_eq!((prefix, name.len()), ("networking.resources.gardener.cloud", 63));
}

#[test]
fn invalid_requests_change_nothing() {
    let mut stage = peers();
    stage.pod("team-a", "client", &allowed("to-garden-web-tcp-8080"));
    stage.act("garden");
    stage.act("team-a");
    assert_eq!((stage.act("garden"), stage.act("team-a")), (vec![], vec![]));
    for annotation in ["namespace-selectors", "from-world-to-ports", "from-x-allowed-ports"] {
        for value in ["{", "{}", "7", "[7]"] {
            let mut service = asking();
            service["metadata"]["annotations"][format!("networking.resources.gardener.cloud/{annotation}")] =
                json!(value);
            stage.service("garden", &service);
            assert_eq!(stage.act("garden"), Vec::<String>::new(), "{annotation} {value}");
            let unclear = stage.wanted("garden").unclear;
            assert_eq!(unclear, [Key::new("garden", "web")].into(), "{annotation} {value}");
        }
    }
    // A namespace is not closed while it is unclear which pods may connect to its pods.
    stage.policy_watches.policies.remove(&Key::new("garden", DENY_ALL));
    assert!(stage.plan("garden").stays_open);
    stage.service("garden", &asking());
    assert_eq!(stage.act("garden"), ["create deny-all"]);
}

#[test]
fn a_namespace_is_closed_last_and_opened_first() {
    let mut stage = peers();
    stage.pod("garden", "client", &allowed("to-web-tcp-8080"));
    let central = ["blocked-cidrs", "dns", "private-networks", "public-networks", "runtime-apiserver"];
    let mut expected: Vec<String> = central.iter().map(|name| format!("create allow-to-{name}")).collect();
    let own = ["egress-to-web-tcp-8080", "ingress-to-web-from-world", "ingress-to-web-tcp-8080", "deny-all"];
    expected.extend(own.iter().map(|name| format!("create {name}")));
    assert_eq!(stage.act("garden"), expected);
    assert_eq!(stage.act("garden"), Vec::<String>::new());
    // Changed manually.
    let mut by_hand = stage.policies("garden")[0].object("garden");
    by_hand["spec"]["egress"] = json!([{}]);
    stage.live(by_hand);
    assert_eq!(stage.act("garden"), ["change allow-to-blocked-cidrs"]);
    stage.end_pod("garden", "client");
    assert_eq!(stage.act("garden"), ["delete egress-to-web-tcp-8080", "delete ingress-to-web-tcp-8080"]);
    // A namespace that does not belong to Gardener any more.
    let mut other = peers();
    other.namespace("old", &[]);
    let closed = Policy { name: DENY_ALL.to_owned(), ..stage.policies("garden").pop().unwrap() };
    other.live(closed.object("old"));
    other.live(stage.policies("garden")[0].object("old"));
    other.live(json!({"metadata": {"namespace": "old", "name": "deny-all-of-mine"}, "spec": {}}));
    let mut mine = json!({"metadata": {"namespace": "old", "name": "allow-to-dns"}, "spec": {}});
    other.live(mine.clone());
    assert_eq!(other.act("old"), ["delete deny-all", "delete allow-to-blocked-cidrs"]);
    // The same name in its own namespace: it becomes ours.
    mine["metadata"]["namespace"] = json!("garden");
    other.live(mine);
    assert!(other.act("garden").contains(&"create allow-to-dns".to_owned()));
}

#[test]
fn a_namespace_stays_open_until_everything_is_known() {
    let closes = |stage: &Stage| {
        let plan = stage.plan("shoot--p--s1");
        let closes = plan
            .steps
            .iter()
            .any(|step| matches!(step, PolicyWrite::Create(policy) if policy.name == DENY_ALL));
        assert_eq!(closes, !plan.stays_open);
        closes
    };
    let stage = || {
        let mut stage = Stage::new(&json!({}));
        stage.namespace("shoot--p--s1", &[("gardener.cloud/role", "shoot")]);
        stage
    };
    assert!(closes(&stage()));
    assert!(!closes(&Stage { rules: None, ..stage() }));
    assert!(!closes(&Stage { shoot: None, ..stage() }));
    for (writer, expected) in [(ServicePolicyWriter::Unknown, false), (ServicePolicyWriter::Others, true)] {
        let stage = stage();
        stage.policy_watches.set_service_policy_writer(writer);
        assert_eq!(closes(&stage), expected, "{writer:?}");
    }
    // Live policies stay while their desired state or their writer is unknown.
    let mut full = stage();
    full.service("shoot--p--s1", &webhook(&json!({"app": "x"})));
    full.pod("shoot--p--s1", "a", &allowed("to-all-webhook-targets"));
    let there = full.act("shoot--p--s1");
    assert_eq!(there.len(), 8, "{there:?}");
    full.end_pod("shoot--p--s1", "a");
    for writer in [ServicePolicyWriter::Unknown, ServicePolicyWriter::Others] {
        full.policy_watches.set_service_policy_writer(writer);
        (full.rules, full.shoot) = (None, None);
        assert_eq!(full.act("shoot--p--s1"), Vec::<String>::new());
        assert!(!full.plan("shoot--p--s1").stays_open, "it is closed");
    }
}

#[test]
fn a_pod_among_many_equal_ones_is_no_change() {
    let mut stage = peers();
    let policy_watches = stage.policy_watches.clone();
    let news = Arc::new(Mutex::new(Vec::new()));
    let (known, telling) = (policy_watches.pods.clone(), Arc::clone(&news));
    let _listening =
        policy_watches.pods.listen(move |altered| telling.lock().unwrap().push(is_news(&known, altered)));
    let told = || std::mem::take(&mut *news.lock().unwrap());
    stage.pod("garden", "a", &allowed("to-x"));
    stage.pod("garden", "b", &allowed("to-x"));
    stage.pod("garden", "c", &json!({"app": "c"}));
    stage.pod("team-a", "a", &allowed("to-x"));
    assert_eq!(told(), [true, false, false, true]);
    stage.end_pod("garden", "a");
    stage.end_pod("garden", "b");
    stage.end_pod("garden", "c");
    assert_eq!(told(), [false, true, false]);
    let mut all = ListedMarks::new();
    all.insert(Mark::of(&Key::new("team-a", "a")));
    policy_watches.pods.retain(&all);
    assert_eq!(told(), Vec::<bool>::new());
}
