//! What is in a garden and in a seed before an agent starts: the share of gardener-operator, of whoever installed the
//! seed, and the registration of the gardener.cloud groups that the stand-in garden serves.

use std::path::PathBuf;

use gardenlet::base::clock::Clock;
use gardenlet::format::base64;
use gardenlet::kube::Method;
use serde_json::{Value, json};

use crate::agent::Options;
use crate::cluster::{Cluster, FRONT_PROXY, validity};
use crate::failure::Result;
use crate::lab::Lab;
use crate::support::api::kinds::Kind;
use crate::support::{self, TestCluster};
use crate::wait;

/// The seed that the stories register.
pub(crate) const SEED: &str = "edge-1";

/// The bootstrap token of [`SEED`].
pub(crate) const TOKEN_ID: &str = "ed9e01";
pub(crate) const TOKEN_SECRET: &str = "0123456789abcdef";

/// Group, version and priority of what a gardener-apiserver serves.
pub(crate) const GARDENER_APIS: &[(&str, &str, u16)] = &[
    ("core.gardener.cloud", "v1", 16),
    ("core.gardener.cloud", "v1beta1", 15),
    ("seedmanagement.gardener.cloud", "v1alpha1", 15),
    ("operations.gardener.cloud", "v1alpha1", 15),
    ("security.gardener.cloud", "v1alpha1", 15),
];

/// The name by which the garden's API server calls the stand-in garden: its certificate needs it.
pub(crate) const GARDENER_HOST: &str = "gardener-apiserver.garden.svc";

/// Makes groups of the garden a matter of a server on loopback, and waits until the garden serves them.
pub(crate) fn register(garden: &Cluster, server: &TestCluster, apis: &[(&str, &str, u16)]) -> Result<()> {
    let port = server.url().rsplit(':').next().and_then(|port| port.parse::<u16>().ok());
    let services = apis.iter().map(|(group, version, priority)| {
        json!({
            "apiVersion": "apiregistration.k8s.io/v1",
            "kind": "APIService",
            "metadata": {"name": format!("{version}.{group}")},
            "spec": {
                "group": group,
                "version": version,
                "groupPriorityMinimum": 10_000,
                "versionPriority": priority,
                "caBundle": base64::encode(server.ca().as_bytes()),
                "service": {"name": "gardener-apiserver", "namespace": "garden", "port": port},
            },
        })
    });
    let service = json!({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "gardener-apiserver", "namespace": "garden"},
        "spec": {"type": "ExternalName", "externalName": "localhost"},
    });
    let objects: Vec<Value> = [namespace("garden"), service].into_iter().chain(services).collect();
    garden.apply(&list(&objects))?;
    let client = garden.client()?;
    apis.iter().try_for_each(|(group, version, _)| {
        let path = format!("/apis/{group}/{version}");
        wait::until_true(&path, 30, || {
            client.raw(Method::Get, &path, None, "").is_ok_and(|response| response.is_success())
        })
    })
}

/// A server in this process for groups of the garden: the garden's API server calls it, shows its own certificate and
/// says who asks.
pub(crate) fn aggregated(garden: &Cluster, kinds: Vec<Kind>) -> TestCluster {
    let mut options = support::Options::new("gardener-apiserver", &Clock::system());
    options.builtin = false;
    options.kinds = kinds;
    options.front_proxy = Some((garden.front_proxy.certificate(), vec![FRONT_PROXY.to_owned()]));
    let server = TestCluster::start(options);
    let (from, until) = validity();
    server.server().set_identity(&server.authority().server(&[GARDENER_HOST.to_owned()], from, until));
    server
}

/// What gardener-operator puts into a garden, and a bootstrap token for one seed.
pub(crate) fn prepare_garden(garden: &Cluster) -> Result<()> {
    let agents = "gardener.cloud:system:seeds";
    let bootstrapper = "gardener.cloud:system:seed-bootstrapper";
    garden.apply(&list(&[
        namespace("garden"),
        namespace("gardener-system-public"),
        json!({
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": "gardener-info", "namespace": "gardener-system-public"},
            "data": {"gardenerAPIServer": "version: v1.150.0\n"},
        }),
        json!({
            "apiVersion": "v1",
            "kind": "Secret",
            "type": "bootstrap.kubernetes.io/token",
            "metadata": {"name": format!("bootstrap-token-{TOKEN_ID}"), "namespace": "kube-system"},
            "stringData": {
                "token-id": TOKEN_ID,
                "token-secret": TOKEN_SECRET,
                "usage-bootstrap-authentication": "true",
                "usage-bootstrap-signing": "true",
                "description": format!("A bootstrap token for the seed {SEED}."),
            },
        }),
        json!({
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {
                "name": "global-monitoring",
                "namespace": "garden",
                "labels": {"gardener.cloud/role": "global-monitoring"},
            },
            "stringData": {"username": "admin", "password": "admin"},
        }),
        cluster_role(
            bootstrapper,
            &json!([
                rule("certificates.k8s.io", &["certificatesigningrequests"], &["create", "get"]),
                rule(
                    "certificates.k8s.io",
                    &["certificatesigningrequests/seedclient", "certificatesigningrequests/shootclient"],
                    &["create"],
                ),
            ]),
        ),
        cluster_role_binding(bootstrapper, bootstrapper, &group("system:bootstrappers")),
        // The garden without SeedAuthorizer: its gardenlets may do everything.
        cluster_role(
            agents,
            &json!([
                {"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]},
                {"nonResourceURLs": ["*"], "verbs": ["get"]},
            ]),
        ),
        cluster_role_binding(agents, agents, &group(agents)),
    ]))
}

/// What an operator does before installing an agent: namespace, service account, role, bootstrap Secret.
pub(crate) fn prepare_seed(lab: &Lab) -> Result<()> {
    let role = "gardener.cloud:system:gardenlet";
    let account = json!({"kind": "ServiceAccount", "name": "gardenlet", "namespace": "garden"});
    let bootstrap = lab.garden.kubeconfig_text(&json!({"token": format!("{TOKEN_ID}.{TOKEN_SECRET}")}));
    lab.seed.apply(&list(&[
        namespace("garden"),
        json!({
            "apiVersion": "v1",
            "kind": "ServiceAccount",
            "metadata": {"name": "gardenlet", "namespace": "garden"},
        }),
        cluster_role(role, &seed_rules()),
        cluster_role_binding(role, role, &account),
        json!({
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": "gardenlet-kubeconfig-bootstrap", "namespace": "garden"},
            "stringData": {"kubeconfig": bootstrap},
        }),
    ]))
}

/// An agent on this machine that talks to the seed as its service account.
pub(crate) fn agent(lab: &Lab, name: &str) -> Result<Options> {
    let kubeconfig = seed_kubeconfig(lab, name)?;
    Ok(Options::new(name, config(lab, name))
        .environment("KUBECONFIG", kubeconfig)
        .environment("HOME", &lab.state)
        .environment("PATH", "/usr/bin:/bin"))
}

/// A kubeconfig with a token of the service account `garden/gardenlet`.
fn seed_kubeconfig(lab: &Lab, name: &str) -> Result<PathBuf> {
    let token =
        lab.seed.kubectl(&["create", "token", "gardenlet", "--namespace=garden", "--duration=24h"])?;
    let path = lab.state.join(format!("{name}-seed.kubeconfig"));
    lab.seed.write_kubeconfig_with(&path, &json!({"token": token.trim()}))?;
    Ok(path)
}

/// A configuration as the documentation shows it, with ports and files that do not meet those of another agent.
fn config(lab: &Lab, name: &str) -> Value {
    json!({
        "apiVersion": "gardenlet.config.gardener.cloud/v1alpha1",
        "kind": "GardenletConfiguration",
        "gardenClientConnection": {
            "bootstrapKubeconfig": {"name": "gardenlet-kubeconfig-bootstrap", "namespace": "garden"},
            "kubeconfigSecret": {"name": "gardenlet-kubeconfig", "namespace": "garden"},
        },
        "controllers": {"shootStatus": {"concurrentSyncs": 1}},
        "leaderElection": {"leaderElect": true, "resourceNamespace": "garden"},
        "logLevel": "debug",
        "logFormat": "text",
        "edge": {"stateDir": lab.state.join(format!("{name}-state"))},
        "seedConfig": {"metadata": {"name": SEED}, "spec": seed_spec()},
    })
}

/// The least that gardener-apiserver takes.
pub(crate) fn seed_spec() -> Value {
    let credentials = json!({"apiVersion": "v1", "kind": "Secret", "namespace": "garden", "name": "dns"});
    json!({
        "provider": {"type": "local", "region": "north", "zones": ["a"]},
        "networks": {"nodes": "10.77.0.0/16", "pods": "10.99.0.0/16", "services": "10.1.0.0/16"},
        "dns": {
            "internal": {"type": "local", "domain": "internal.example.org", "credentialsRef": credentials},
            "provider": {"type": "local", "credentialsRef": credentials},
        },
        "ingress": {"domain": "ingress.edge-1.example.org", "controller": {"kind": "nginx"}},
    })
}

/// The role of the chart that installs a gardenlet, as far as an agent of this kind may rely on it. What is *not* there
/// matters: no get of pods and nodes, no patch of leases.
fn seed_rules() -> Value {
    const ALL: &[&str] = &["create", "delete", "get", "list", "watch", "patch", "update"];
    const EVERYTHING: &[&str] =
        &["create", "delete", "deletecollection", "get", "list", "watch", "patch", "update"];
    const EXTENSIONS: &[&str] = &[
        "backupbuckets",
        "backupentries",
        "containerruntimes",
        "controlplanes",
        "dnsrecords",
        "extensions",
        "infrastructures",
        "networks",
        "operatingsystemconfigs",
        "selfhostedshootexposures",
        "workers",
    ];
    let statuses: Vec<String> = EXTENSIONS.iter().map(|kind| format!("{kind}/status")).collect();
    let statuses: Vec<&str> = statuses.iter().map(String::as_str).collect();
    json!([
        rule("", &["configmaps", "namespaces", "secrets", "serviceaccounts", "services"], EVERYTHING),
        rule(
            "apps",
            &["deployments", "deployments/scale", "statefulsets", "statefulsets/scale", "replicasets"],
            EVERYTHING,
        ),
        rule(
            "admissionregistration.k8s.io",
            &["validatingwebhookconfigurations", "mutatingwebhookconfigurations"],
            EVERYTHING,
        ),
        rule("networking.k8s.io", &["networkpolicies", "ingresses", "ingressclasses"], EVERYTHING),
        rule(
            "rbac.authorization.k8s.io",
            &["roles", "rolebindings", "clusterroles", "clusterrolebindings"],
            EVERYTHING,
        ),
        rule("rbac.authorization.k8s.io", &["roles", "clusterroles"], &["bind", "escalate"]),
        rule("resources.gardener.cloud", &["managedresources", "managedresources/status"], EVERYTHING),
        rule("autoscaling", &["horizontalpodautoscalers"], ALL),
        rule("autoscaling.k8s.io", &["verticalpodautoscalers"], ALL),
        rule("policy", &["poddisruptionbudgets"], ALL),
        rule("scheduling.k8s.io", &["priorityclasses"], ALL),
        rule("druid.gardener.cloud", &["etcds", "etcdcopybackupstasks"], ALL),
        rule("extensions.gardener.cloud", &[EXTENSIONS, &["bastions", "clusters"]].concat(), ALL),
        rule("extensions.gardener.cloud", &statuses, &["patch", "update"]),
        rule(
            "monitoring.coreos.com",
            &["servicemonitors", "scrapeconfigs", "prometheusrules", "prometheuses"],
            ALL,
        ),
        rule("", &["pods"], &["list", "watch", "delete", "deletecollection"]),
        rule("", &["pods/log"], &["get"]),
        rule("", &["pods/exec"], &["create"]),
        rule("", &["nodes"], &["list", "watch"]),
        rule("", &["endpoints", "persistentvolumes"], &["get", "list", "watch"]),
        rule("", &["persistentvolumeclaims"], &["get", "list", "watch", "patch", "update"]),
        rule("", &["events"], &["get", "list", "create", "patch", "update"]),
        rule(
            "apiextensions.k8s.io",
            &["customresourcedefinitions"],
            &["create", "get", "list", "watch", "patch", "update"],
        ),
        rule("coordination.k8s.io", &["leases"], &["create", "get", "list", "watch"]),
        named_rule("coordination.k8s.io", "leases", "gardenlet-leader-election", &["update"]),
        rule("operator.gardener.cloud", &["gardens"], &["get", "list", "watch"]),
        // Ours alone: a token of the account under whose name the embedded applier works, and its Lease.
        named_rule("", "serviceaccounts/token", "gardener-resource-manager", &["create"]),
        {"nonResourceURLs": ["/healthz", "/version"], "verbs": ["get"]},
    ])
}

fn list(objects: &[Value]) -> Value {
    json!({"apiVersion": "v1", "kind": "List", "items": objects})
}

fn namespace(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
}

fn rule(group: &str, resources: &[&str], verbs: &[&str]) -> Value {
    json!({"apiGroups": [group], "resources": resources, "verbs": verbs})
}

fn named_rule(group: &str, resource: &str, name: &str, verbs: &[&str]) -> Value {
    json!({"apiGroups": [group], "resources": [resource], "resourceNames": [name], "verbs": verbs})
}

fn cluster_role(name: &str, rules: &Value) -> Value {
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": {"name": name},
        "rules": rules,
    })
}

fn cluster_role_binding(name: &str, role: &str, subject: &Value) -> Value {
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": name},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
        "subjects": [subject],
    })
}

fn group(name: &str) -> Value {
    json!({"kind": "Group", "apiGroup": "rbac.authorization.k8s.io", "name": name})
}
