//! A garden and a seed in the state in which a Go gardenlet of Gardener v1.150 and its gardener-resource-manager leave
//! them, object by object from upstream's source; and the writes of that gardener-resource-manager to a seed while it
//! lives. Names, checksums and texts are computed and written here independently: the test compares the program's own
//! ones with them.

use std::collections::BTreeMap;
use std::time::Duration;

use gardenlet::components::crds;
use gardenlet::format::{brotli, yaml};
use gardenlet::pki::issue::{Authority, CertificateIssuer, CertificateTemplate, ServerNames, common_name};
use gardenlet::pki::request::{self, Subject};
use gardenlet::pki::{AnyKey, PrivateKey};
use gardenlet::secrets::SecretConfig;
use serde_json::{Map, Value, json};

use crate::charts;
use crate::world::{CORE, LEASES, MANAGED_RESOURCES, World};
use support::encoding::{base64, from_base64, rfc3339, rfc3339_micro, sha256_hex};
use support::json::text;
use support::{TestCluster, garden::prepare};

pub const GRM: (&str, &str) = ("garden", "gardener-resource-manager");
/// The identity that client-go's leader election gives to a pod's process: host name and a random id.
pub const GRM_HOLDER: &str = "gardener-resource-manager-7d9f5c6b8-x2x4v_0d3e2f46-3b9a-4d0c-9a52-6f6d2f6f8a11";
const GO_HOLDER: &str = "gardenlet-6bb7f9cd6b-kk2jz_5a1fd1ab-8d5c-4d94-b0a7-3a8f1c0f7d55";
const CLASS_FINALIZER: &str = "resources.gardener.cloud/gardener-resource-manager-seed";
const COLLECTABLE: &str = "resources.gardener.cloud/garbage-collectable-reference";
const MANAGED_BY: &str = "resources.gardener.cloud/managed-by";
const DESCRIPTION: &str = "DO NOT EDIT - This resource is managed by gardener-resource-manager.\nAny modifications \
    are discarded and the resource is returned to the original state.";
/// ManagedResources of the Go gardenlet's Seed flow that equal those of this program.
pub const SYSTEM: [&str; 2] = ["cluster-identity", "system"];

/// How the Go gardenlet ended.
#[derive(Clone, Copy, Debug)]
pub enum End {
    /// In order: it released its Lease.
    Stopped,
    /// Its Lease expires.
    Killed,
}

/// Puts garden and seed into the state after the Go gardenlet has served them for a while and ended. Returns the name
/// of the installation of extension `echo`.
pub fn leave(world: &World, end: End) -> String {
    kubeconfig(world);
    let installation = registration(world);
    let provider = installed_by_go(world, prepare::PROVIDER);
    namespaces(world);
    world.seed.apply(&crds::all().collect::<Vec<_>>());
    let foreign = crds::Foreign { is_garden: false, vpa: true, machines: true, etcd: true };
    world.seed.apply(&crds::foreign(foreign).collect::<Vec<_>>());
    world.seed.wait_for("the kinds", |seed| seed.api().kind(MANAGED_RESOURCES, "managedresources"));
    components(world);
    authorities(world);
    let manifests = MANIFESTS.map(|(file, text)| (format!("extension-echo_templates_{file}"), text));
    extension(world, &installation, "echo", &manifests);
    let map = ("no-provider_templates_configmap.yaml".to_owned(), PROVIDER_MANIFEST);
    extension(world, &provider, prepare::PROVIDER, &[map]);
    policies(world, &[&format!("extension-{installation}"), &format!("extension-{provider}")]);
    leases(world, end);
    conditions(world, &[&installation, &provider]);
    settled(&world.seed);
    settled(&world.garden);
    installation
}

/// Waits until each namespace has the objects of its own controllers: later objects then come from the agent.
fn settled(cluster: &TestCluster) {
    for namespace in cluster.api().store.list("", "namespaces", "") {
        let name = text(&namespace, "/metadata/name");
        for (plural, own) in [("configmaps", "kube-root-ca.crt"), ("serviceaccounts", "default")] {
            cluster.wait_for("a new namespace", |cluster| cluster.get("", plural, name, own));
        }
    }
}

/// The accepted certificate; its bootstrap credentials are deleted.
fn kubeconfig(world: &World) {
    let subject = Subject {
        common_name: format!("gardener.cloud:system:seed:{}", world.name),
        organizations: vec!["gardener.cloud:system:seeds".to_owned()],
        ..Subject::default()
    };
    let key = PrivateKey::generate().unwrap();
    let request = request::build(&subject, &key).unwrap();
    let (now, month) = (world.clock.now(), Duration::from_secs(30 * 86_400));
    let from = now.minus(month / 3);
    let certificate = world.garden.authority().sign(&request.pem, from, from.plus(month)).unwrap();
    let text = format!(
        "apiVersion: v1\nclusters:\n- cluster:\n    certificate-authority-data: {}\n    server: {}\n  name: gardenlet\n\
         contexts:\n- context:\n    cluster: gardenlet\n    user: gardenlet\n  name: gardenlet\n\
         current-context: gardenlet\nkind: Config\npreferences: {{}}\nusers:\n- name: gardenlet\n  user:\n    \
         client-certificate-data: {}\n    client-key-data: {}\n",
        base64(world.garden.ca().as_bytes()),
        world.garden.url(),
        base64(certificate.as_bytes()),
        base64(key.to_pem().expose().as_bytes()),
    );
    world.seed.apply(&[json!({"apiVersion": "v1", "kind": "Secret", "type": "Opaque",
        "metadata": {"name": "gardenlet-kubeconfig", "namespace": "garden"}, "data": {"kubeconfig": base64(text.as_bytes())}})]);
    world.seed.delete("", "secrets", "garden", "gardenlet-kubeconfig-bootstrap");
    let token = format!("bootstrap-token-{}", world.preparation.token_id());
    world.garden.delete("", "secrets", "kube-system", &token);
}

/// The Seed, and an installation of it.
fn registration(world: &World) -> String {
    let config = world.config();
    let mut labels = config["seedConfig"]["metadata"]["labels"].clone();
    labels["gardener.cloud/role"] = json!("seed");
    world.garden.apply(&[
        json!({"apiVersion": "core.gardener.cloud/v1beta1", "kind": "Seed",
        "metadata": {"name": world.name, "labels": labels, "annotations": {"owner": "me", "by": "hand"}, "finalizers": ["gardener"]},
        "spec": config["seedConfig"]["spec"]}),
    ]);
    let namespace = format!("seed-{}", world.name);
    world.garden.wait_for("the seed's namespace", |g| g.get("", "namespaces", "", &namespace));
    world.garden.apply(&prepare::extension("echo", &charts::extension(), &json!({"greeting": "hello"})));
    installed_by_go(world, "echo")
}

/// The name of the installation of a registration, once it has the finalizer.
fn installed_by_go(world: &World, registration: &str) -> String {
    let found = world.garden.wait_for("an installation", |g| g.installations(registration).pop());
    let name = text(&found, "/metadata/name").to_owned();
    let finalizers = json!({"metadata": {"finalizers": ["core.gardener.cloud/controllerinstallation"]}});
    world.garden.merge(CORE, "controllerinstallations", ("", &name), &finalizers);
    name
}

fn condition(kind: &str, (status, reason, message): (&str, &str, &str), at: &str) -> Value {
    json!({"type": kind, "status": status, "reason": reason, "message": message, "lastTransitionTime": at,
        "lastUpdateTime": at})
}

/// The time since when all conditions are good.
fn since(world: &World) -> String {
    rfc3339(world.clock.now().minus(Duration::from_secs(86_400)))
}

/// The state of the garden when all conditions are good.
fn conditions(world: &World, installations: &[&str]) {
    let at = since(world);
    let of = |kind, told| condition(kind, told, &at);
    let status = json!({"status": {"conditions": [
        of("Valid", ("True", "RegistrationValid", "chart could be rendered successfully.")),
        of("Installed", ("True", "InstallationSuccessful", "The controller was successfully installed in the seed cluster.")),
        of("Healthy", ("True", "ControllerHealthy", "The controller running in the seed cluster is healthy.")),
        of("Progressing", ("False", "ControllerRolledOut", "The controller has been rolled out successfully.")),
        of("Required", ("False", "NoExtensionObjects", "no extension objects exist in the seed having the kind/type \
            combinations the controller is responsible for")),
    ]}});
    for installation in installations {
        world.garden.merge_status(CORE, "controllerinstallations", ("", installation), &status);
    }
    let certificate = world.certificate().unwrap();
    let status = json!({"status": {
    "gardener": {"id": "9f".repeat(32), "name": "gardenlet-6bb7f9cd6b-kk2jz", "version": "v1.150.0"},
    "kubernetesVersion": world.seed.client().version().unwrap().git_version,
    "clusterIdentity": cluster_identity(world),
    "observedGeneration": world.garden.seed(world.name).unwrap()["metadata"]["generation"],
    "clientCertificateExpirationTimestamp": rfc3339(certificate.not_after),
    "capacity": {"shoots": "50"}, "allocatable": {"shoots": "45"},
    "lastOperation": {"type": "Reconcile", "state": "Succeeded", "progress": 100, "lastUpdateTime": at,
        "description": "Seed cluster has been successfully reconciled."},
    "conditions": [
        of("GardenletReady", ("True", "GardenletReady", "Gardenlet is posting ready status.")),
        of("ExtensionsReady", ("True", "AllExtensionsReady", "All extensions installed into the seed cluster are ready \
            and healthy.")),
        of("SeedSystemComponentsHealthy", ("True", "SystemComponentsRunning", "All system components are healthy.")),
    ]}});
    world.garden.merge_status(CORE, "seeds", ("", world.name), &status);
}

/// The default name of the seed.
fn cluster_identity(world: &World) -> String {
    text(&world.seed.get("", "namespaces", "", "kube-system").unwrap(), "/metadata/uid").to_owned()
}

/// The permissions of `garden/gardenlet` from the Go gardenlet's chart (`charts/gardener/gardenlet`, without kinds that
/// this program does not know), instead of those of `packaging/rbac.yaml`.
pub fn roles(world: &World) {
    const RBAC: &str = "rbac.authorization.k8s.io";
    let name = "gardener.cloud:system:gardenlet";
    let all = ["create", "delete", "deletecollection", "get", "list", "watch", "patch", "update"].as_slice();
    let rule = |group: &str, resources: &[&str], verbs: &[&str]| json!({"apiGroups": [group], "resources": resources, "verbs": verbs});
    let mut lease = rule("coordination.k8s.io", &["leases"], &["update"]);
    lease["resourceNames"] = json!(["gardenlet-leader-election"]);
    let kinds = [
        "backupbuckets",
        "backupentries",
        "bastions",
        "clusters",
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
    let rules = json!([
        rule("operator.gardener.cloud", &["gardens"], &["get", "list", "watch"]),
        rule("", &["endpoints"], &["get", "list", "watch"]),
        rule("", &["nodes"], &["list", "watch"]),
        rule("", &["pods"], &["list", "watch", "delete", "deletecollection"]),
        rule("", &["configmaps", "namespaces", "secrets", "serviceaccounts", "services"], all),
        rule("", &["events"], &["get", "list", "create", "patch", "update"]),
        rule(
            "admissionregistration.k8s.io",
            &["mutatingwebhookconfigurations", "validatingwebhookconfigurations"],
            all,
        ),
        rule("apiextensions.k8s.io", &["customresourcedefinitions"], &["create", "get", "list", "watch", "patch", "update"]),
        rule("apps", &["deployments", "deployments/scale", "statefulsets", "statefulsets/scale", "replicasets"], all),
        rule("extensions.gardener.cloud", &kinds, &["create", "delete", "get", "list", "watch", "patch", "update"]),
        rule("networking.k8s.io", &["networkpolicies"], all),
        rule(
            "autoscaling.k8s.io",
            &["verticalpodautoscalers"],
            &["create", "delete", "get", "list", "watch", "patch", "update"],
        ),
        rule("resources.gardener.cloud", &["managedresources"], all),
        rule("coordination.k8s.io", &["leases"], &["create", "get", "list", "watch"]),
        lease,
        {"nonResourceURLs": ["/healthz", "/version"], "verbs": ["get"]},
    ]);
    world.seed.merge(RBAC, "clusterroles", ("", name), &json!({"rules": rules}));
    let daemon_sets = json!({"rules": [rule("apps", &["daemonsets"], &["create"])]});
    world.seed.merge(RBAC, "roles", ("garden", name), &daemon_sets);
    world.seed.delete(RBAC, "roles", "kube-system", name);
    world.seed.delete(RBAC, "rolebindings", "kube-system", name);
    let election = format!("{name}:leader-election");
    world.seed.delete(RBAC, "rolebindings", "garden", &election);
    world.seed.delete(RBAC, "roles", "garden", &election);
    world.seed.delete(RBAC, "clusterrolebindings", "", "gardener.cloud:system:gardener-resource-manager");
}

/// Its central NetworkPolicies, like the golden files of upstream, in a seed with other addresses.
fn policies(world: &World, extensions: &[&str]) {
    let (shoot, services) = ("shoot--a--b", "100.64.0.0/13");
    world.seed.apply(&[json!({"apiVersion": "extensions.gardener.cloud/v1alpha1", "kind": "Cluster", "metadata": {"name": shoot},
        "spec": {"cloudProfile": {}, "seed": {}, "shoot": {"spec": {"networking": {"services": services}}}}})]);
    let golden = yaml::parse_all(include_str!("../fixtures/network-policies/golden.yaml"));
    let all = golden.into_iter().map(|document| document.value.unwrap());
    let central: Vec<Value> = all.filter(|policy| policy["metadata"].get("labels").is_none()).collect();
    assert_eq!(central.len(), 6);
    for namespace in ["garden", shoot].iter().chain(extensions) {
        for policy in &central {
            let mut policy = policy.clone();
            policy["metadata"]["namespace"] = json!(namespace);
            let name = text(&policy, "/metadata/name").to_owned();
            let egress = &mut policy["spec"]["egress"];
            match name.as_str() {
                "allow-to-dns" => egress[0]["to"][4]["ipBlock"]["cidr"] = json!("10.52.0.10/32"),
                "allow-to-runtime-apiserver" => {
                    egress[0]["to"][0]["ipBlock"]["cidr"] = json!("10.50.0.1/32");
                    egress[0]["ports"][0]["port"] = json!(6443);
                }
                "allow-to-private-networks" if *namespace != shoot => {
                    egress[0]["to"][3]["ipBlock"] = json!({"cidr": "100.64.0.0/10"});
                }
                _ => {}
            }
            world.seed.apply(&[policy]);
        }
    }
}

/// The labels of its namespaces.
fn namespaces(world: &World) {
    let consider = "high-availability-config.resources.gardener.cloud";
    let garden = json!({"metadata": {
        "labels": {"role": "garden", "gardener.cloud/role": "garden", "pod-security.kubernetes.io/enforce": "privileged",
            format!("{consider}/consider"): "true"},
        "annotations": {format!("{consider}/zones"): "a"}}});
    world.seed.merge("", "namespaces", ("", "garden"), &garden);
    let system = json!({"metadata": {"labels": {"role": "kube-system"}}});
    world.seed.merge("", "namespaces", ("", "kube-system"), &system);
}

/// gardener-resource-manager with its account and role (upstream `pkg/component/gardener/resourcemanager`), and the
/// ManagedResources it applies: for the Seed flow, and of a class that is not the seed's.
fn components(world: &World) {
    let labels = json!({"app": "gardener-resource-manager", "gardener.cloud/role": "controlplane"});
    let role = "gardener-resource-manager-seed";
    world.seed.merge(
        "",
        "serviceaccounts",
        GRM,
        &json!({"metadata": {"labels": labels}, "automountServiceAccountToken": false}),
    );
    world.seed.apply(&[
        json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": role, "labels": labels},
            "rules": [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]}),
        json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": role, "labels": labels},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
            "subjects": [{"kind": "ServiceAccount", "name": GRM.1, "namespace": GRM.0}]}),
        json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": GRM.1, "namespace": GRM.0,
            "labels": {"app": "gardener-resource-manager", "high-availability-config.resources.gardener.cloud/skip": "true"}},
            "spec": {"replicas": 2, "revisionHistoryLimit": 2, "selector": {"matchLabels": labels},
                "template": {"metadata": {"labels": labels}, "spec": {"serviceAccountName": GRM.1,
                    "containers": [{"name": GRM.1, "image": "registry.example.org/gardener-resource-manager:v1.150.0"}]}}}}),
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shoot--a--b", "labels": {"gardener.cloud/role": "shoot"}}}),
    ]);
    let class = |name: &str, value: i64, of: &str| {
        json!({"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass",
        "metadata": {"name": name}, "value": value, "description": format!("PriorityClass for {of}")})
    };
    // In upstream's order.
    let system = |level: i64, of| class(&format!("gardener-system-{level}"), 999_998_000 + level, of);
    let mut all = [900, 800, 700, 600].map(|level| system(level, "Seed system components")).to_vec();
    all.push(class("gardener-reserve-excess-capacity", -5, "reserving excess capacity on a Seed cluster"));
    all.extend([500, 400, 300, 200, 100].map(|level| system(level, "Shoot control plane components")));
    let all: Vec<String> = all.iter().map(|object| yaml::emit(object, yaml::Dialect::V4)).collect();
    component(world, "system", &all.join("---\n"));
    let references = format!("referenced-resources-{}", world.name);
    let spec = json!({"class": "seed", "keepObjects": false, "forceOverwriteAnnotations": false});
    managed(&world.seed, (&references, &references), &json!({}), spec, &BTreeMap::new());
    resource_manager_applies(world, &references);
    let text = |text: &str| base64(text.as_bytes());
    world.seed.apply(&[json!({"apiVersion": "v1", "kind": "Secret", "type": "Opaque",
        "metadata": {"name": "seed-global-monitoring", "namespace": "garden", "labels": {
            "gardener.cloud/role": "global-monitoring", "gardener.cloud/purpose": "global-monitoring-secret-replica"}},
        "data": {"username": text("admin"), "password": text("admin"), "auth": text("admin:$2a$10$as-upstream-made-it")}})]);
    let identity = json!({"apiVersion": "v1", "kind": "ConfigMap", "immutable": true,
        "metadata": {"name": "cluster-identity", "namespace": "kube-system"},
        "data": {"cluster-identity": cluster_identity(world), "origin": "seed"}});
    component(world, "cluster-identity", &yaml::emit(&identity, yaml::Dialect::V4));
    // Of another class, and not applied yet: it must stay unapplied.
    let metadata =
        json!({"name": "shoot-core", "namespace": "shoot--a--b", "labels": {"origin": "gardener"}});
    world.seed.apply(&[json!({"apiVersion": "resources.gardener.cloud/v1alpha1", "kind": "ManagedResource",
        "metadata": metadata, "spec": {"secretRefs": [{"name": "managedresource-shoot-core-00000000"}],
            "injectLabels": {"shoot.gardener.cloud/no-cleanup": "true"}}})]);
}

/// The CA of the seed with its bundle, and other Secrets of the Go gardenlet's secrets manager: a CA that this program
/// does not use, and the serving certificate of gardener-resource-manager, whose checksum depends on Go's own
/// structures.
fn authorities(world: &World) {
    const SEED_CA: &str = "ca-seed-fc28a8dd";
    let from = world.clock.now().minus(Duration::from_secs(86_400));
    let until = from.plus(Duration::from_secs(30 * 86_400));
    let template = CertificateTemplate {
        subject: common_name(SEED_CA),
        names: ServerNames::default(),
        not_before_unix_s: from.unix(),
        not_after_unix_s: until.unix(),
        usage: None,
        authority: Authority::CertificatesAndRevocations,
    };
    let key = AnyKey::from_pem(include_bytes!("../fixtures/keys/rsa-3072-2.pem")).unwrap();
    let certificate = template.sign(&key, &CertificateIssuer::itself(&template, &key).unwrap()).unwrap();
    let pems = vec![certificate.clone().into_bytes()];
    let bundle =
        SecretConfig::CertificateBundle { name: "ca-seed-bundle".to_owned(), pems }.checksum().to_string();
    let bundle_name = format!("ca-seed-bundle-{}", &sha256_hex(bundle.as_bytes())[..8]);
    let secret = |name: &str, config: &str, checksum: &str, data: &[(&str, &str)]| {
        let data: Map<String, Value> =
            data.iter().map(|(key, text)| ((*key).to_owned(), json!(base64(text.as_bytes())))).collect();
        json!({"apiVersion": "v1", "kind": "Secret", "type": "Opaque", "immutable": true, "data": data,
            "metadata": {"name": name, "namespace": "garden", "labels": {"name": config,
                "managed-by": "secrets-manager", "manager-identity": "gardenlet", "checksum-of-config": checksum,
                "last-rotation-initiation-time": "", "issued-at-time": from.unix().to_string()}}})
    };
    let key_pem = key.to_pem();
    let pair = [("ca.crt", certificate.as_str()), ("ca.key", key_pem.as_str())];
    let mut ca = secret(SEED_CA, "ca-seed", "16473382070636541080", &pair);
    ca["metadata"]["labels"]["valid-until-time"] = json!(until.unix().to_string());
    let mut bundle = secret(&bundle_name, "ca-seed-bundle", &bundle, &[("bundle.crt", &certificate)]);
    bundle["metadata"]["labels"]["bundle-for"] = json!("ca-seed");
    let second = "ca-istio-basic-auth-server";
    let server = "gardener-resource-manager-server";
    world.seed.apply(&[
        ca,
        bundle,
        secret(&format!("{second}-0a1b2c3d"), second, "1", &pair),
        secret(&format!("{server}-4e5f6071"), server, "2", &[("tls.crt", "of Go"), ("tls.key", "of Go")]),
    ]);
}

/// A component of the Seed flow. Its stream has other bytes than ours, like that of Go's encoder: an empty block of
/// metadata before its end.
pub fn component(world: &World, name: &str, manifests: &str) {
    unapplied_component(world, name, manifests);
    resource_manager_applies(world, name);
}

/// The same, but not applied yet.
pub fn unapplied_component(world: &World, name: &str, manifests: &str) {
    let mut stream = brotli::encode(manifests.as_bytes());
    let end = stream.pop().unwrap();
    stream.extend([0b0000_0110, end]);
    let data = BTreeMap::from([("data.yaml.br".to_owned(), stream)]);
    let labels = json!({"gardener.cloud/role": "seed-system-component"});
    let spec = json!({"class": "seed", "keepObjects": false});
    managed(&world.seed, (name, &format!("managedresource-{name}")), &labels, spec, &data);
}

/// Secret and ManagedResource in `garden`.
fn managed(
    seed: &TestCluster,
    (name, secret): (&str, &str),
    labels: &Value,
    mut spec: Value,
    data: &BTreeMap<String, Vec<u8>>,
) {
    let secret = unique(secret, data.values());
    let encoded: Map<String, Value> = data.iter().map(|(k, v)| (k.clone(), json!(base64(v)))).collect();
    spec["secretRefs"] = json!([{"name": secret}]);
    let reference =
        format!("reference.resources.gardener.cloud/secret-{}", &sha256_hex(secret.as_bytes())[..8]);
    seed.apply(&[
        json!({"apiVersion": "v1", "kind": "Secret", "type": "Opaque", "immutable": true, "data": encoded,
            "metadata": {"name": secret, "namespace": "garden", "labels": {COLLECTABLE: "true"}}}),
        json!({"apiVersion": "resources.gardener.cloud/v1alpha1", "kind": "ManagedResource", "spec": spec,
            "metadata": {"name": name, "namespace": "garden", "labels": labels, "annotations": {reference: secret},
                "finalizers": [CLASS_FINALIZER]}}),
    ]);
}

/// The name of a Secret with its checksum.
fn unique<'a>(name: &str, values: impl Iterator<Item = &'a Vec<u8>>) -> String {
    let digests: String = values.map(|value| sha256_hex(value)).collect();
    format!("{name}-{}", &sha256_hex(digests.as_bytes())[..8])
}

/// The name that the Secret of a ManagedResource should have according to its content.
pub fn secret_name(seed: &TestCluster, managed: &str) -> String {
    let object = seed.get(MANAGED_RESOURCES, "managedresources", "garden", managed).unwrap();
    let secret = seed.get("", "secrets", "garden", text(&object, "/spec/secretRefs/0/name")).unwrap();
    let values = secret["data"].as_object().unwrap().values();
    let values: Vec<Vec<u8>> = values.map(|value| from_base64(value.as_str().unwrap()).unwrap()).collect();
    unique(managed, values.iter())
}

/// An installed extension.
fn extension(world: &World, installation: &str, registration: &str, manifests: &[(String, &str)]) {
    let namespace = format!("extension-{installation}");
    world.seed.apply(&[json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace,
        "labels": {"gardener.cloud/role": "extension", "controllerregistration.core.gardener.cloud/name": registration,
            "high-availability-config.resources.gardener.cloud/consider": "true"},
        "annotations": {"high-availability-config.resources.gardener.cloud/zones": "a"}}})]);
    let labels =
        json!({"controllerinstallation-name": installation, "controllerregistration-name": registration});
    let manifest = |(file, manifest): &(String, &str)| {
        let manifest = manifest
            .replace("NAMESPACE", &namespace)
            .replace("value: SEED", &format!("value: {}", world.name));
        (file.clone(), format!("\n---\n{manifest}\n---\n").into_bytes())
    };
    let data = manifests.iter().map(manifest).collect();
    let spec = json!({"class": "seed"});
    managed(&world.seed, (installation, installation), &labels, spec, &data);
    resource_manager_applies(world, installation);
}

/// The Leases of agent and seed.
fn leases(world: &World, end: End) {
    let now = rfc3339_micro(world.clock.now());
    let (holder, seconds) = match end {
        End::Stopped => ("", 1),
        End::Killed => (GO_HOLDER, 15),
    };
    world.seed.apply(&[
        json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "metadata": {"name": "gardenlet-leader-election", "namespace": "garden"},
            "spec": {"holderIdentity": holder, "leaseDurationSeconds": seconds, "acquireTime": now, "renewTime": now,
                "leaseTransitions": 7}}),
        json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "metadata": {"name": GRM.1, "namespace": GRM.0}, "spec": held_by_resource_manager(world)}),
    ]);
    let seed = world.garden.seed(world.name).unwrap();
    let owner = json!({"apiVersion": "core.gardener.cloud/v1beta1", "kind": "Seed", "name": world.name,
        "uid": seed["metadata"]["uid"]});
    world.garden.apply(&[json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": {"name": world.name, "namespace": "gardener-system-seed-lease", "ownerReferences": [owner]},
        "spec": {"holderIdentity": world.name, "leaseDurationSeconds": 2, "renewTime": now}})]);
}

fn held_by_resource_manager(world: &World) -> Value {
    let now = rfc3339_micro(world.clock.now());
    json!({"holderIdentity": GRM_HOLDER, "leaseDurationSeconds": 15, "acquireTime": now, "renewTime": now,
        "leaseTransitions": 3})
}

/// gardener-resource-manager lives.
pub fn resource_manager_renews(world: &World) {
    world.seed.merge(LEASES, "leases", GRM, &json!({"spec": held_by_resource_manager(world)}));
}

/// It is scaled to 0, and releases its Lease.
pub fn resource_manager_ends(world: &World) {
    world.seed.merge("apps", "deployments", GRM, &json!({"spec": {"replicas": 0}}));
    let released = json!({"spec": {"holderIdentity": "", "leaseDurationSeconds": 1}});
    world.seed.merge(LEASES, "leases", GRM, &released);
}

/// Applies a ManagedResource of `garden` as gardener-resource-manager does; all conditions are good.
pub fn resource_manager_applies(world: &World, name: &str) {
    let seed = &world.seed;
    let managed = seed.get(MANAGED_RESOURCES, "managedresources", "garden", name).unwrap();
    let secret = seed.get("", "secrets", "garden", text(&managed, "/spec/secretRefs/0/name")).unwrap();
    let (mut hashed, mut objects) = (Vec::new(), Vec::new());
    for (key, value) in secret["data"].as_object().into_iter().flatten() {
        let raw = from_base64(value.as_str().unwrap()).unwrap();
        let plain = if key.ends_with(".br") { brotli::decode(&raw, 1 << 20).unwrap() } else { raw.clone() };
        for document in yaml::parse_all(&String::from_utf8(plain).unwrap()) {
            objects.push(document.value.unwrap());
            hashed.extend_from_slice(&raw);
        }
    }
    let mut references: Vec<Value> = objects.iter().map(reference).collect();
    references.sort_by_key(place);
    // Definitions come first; objects are retried until their kind exists.
    objects.sort_by_key(|object| object["kind"] != "CustomResourceDefinition");
    for object in objects {
        apply(seed, name, object);
    }
    let at = since(world);
    let status = json!({"status": {
    "observedGeneration": managed["metadata"]["generation"],
    "resources": references,
    "secretsDataChecksum": sha256_hex(&hashed),
    "conditions": [
        condition("ResourcesHealthy", ("True", "ResourcesHealthy", "All resources are healthy."), &at),
        condition("ResourcesProgressing", ("False", "ResourcesRolledOut", "All resources have been fully rolled out."), &at),
        condition("ResourcesApplied", ("True", "ApplySucceeded", "All resources are applied."), &at),
    ]}});
    seed.merge_status(MANAGED_RESOURCES, "managedresources", ("garden", name), &status);
}

fn reference(object: &Value) -> Value {
    let metadata = &object["metadata"];
    let mut labels = metadata["labels"].clone();
    labels[MANAGED_BY] = json!("gardener");
    let mut found = json!({"apiVersion": object["apiVersion"], "kind": object["kind"], "name": metadata["name"], "labels": labels});
    if metadata["namespace"].is_string() {
        found["namespace"] = metadata["namespace"].clone();
    }
    found
}

/// group/kind/namespace/name; no namespace counts as `default`.
fn place(reference: &Value) -> String {
    let group = text(reference, "/apiVersion").rsplit_once('/').map_or("", |(group, _)| group);
    let namespace = reference["namespace"].as_str().unwrap_or("default");
    format!("{group}/{}/{namespace}/{}", text(reference, "/kind"), text(reference, "/name"))
}

fn apply(seed: &TestCluster, managed: &str, mut object: Value) {
    object["metadata"]["labels"][MANAGED_BY] = json!("gardener");
    object["metadata"]["annotations"] = json!({"resources.gardener.cloud/description": DESCRIPTION,
        "resources.gardener.cloud/origin": format!("garden/{managed}")});
    if object["spec"]["template"].is_object() {
        object["spec"]["template"]["metadata"]["labels"][MANAGED_BY] = json!("gardener");
    }
    let (group, kind) = (text(&object, "/apiVersion"), text(&object, "/kind"));
    let group = group.split_once('/').map_or("", |(group, _)| group);
    let plural =
        seed.wait_for(kind, |seed| Some(seed.store().read().kinds.by_name(group, kind)?.plural.clone()));
    let at = (text(&object, "/metadata/namespace"), text(&object, "/metadata/name"));
    if seed.get(group, &plural, at.0, at.1).is_some() {
        seed.merge(group, &plural, at, &object);
    } else {
        seed.create(text(&object, "/apiVersion"), &plural, &object);
    }
}

/// The version of everything that is stored except Leases and pods, by place. An equal version means no write. Waits
/// for the cluster's own controllers, which also write Deployments.
pub fn versions(cluster: &TestCluster) -> BTreeMap<String, String> {
    let settled = |d: &Value| d["status"]["observedGeneration"] == d["metadata"]["generation"];
    cluster.wait_for("the controllers", |c| {
        c.store().list("apps", "deployments", "").iter().all(settled).then_some(())
    });
    let state = cluster.store().read();
    let all = state.objects.iter().filter(|(id, _)| id.group != LEASES && id.plural != "pods");
    let place =
        |id: &support::api::store::Id| format!("{}.{} {}/{}", id.plural, id.group, id.namespace, id.name);
    all.map(|(id, object)| (place(id), text(object, "/metadata/resourceVersion").to_owned())).collect()
}

/// The chart of `packaging/no-provider` as the Go gardenlet writes it.
const PROVIDER_MANIFEST: &str = "apiVersion: v1\ndata:\n  about: |\n    This seed has no infrastructure provider. Nobody answers \
     objects of the kinds ControlPlane, DNSRecord, Infrastructure and\n    Worker: Shoots have no workers here, and people make \
     the DNS records.\nkind: ConfigMap\nmetadata:\n  name: no-provider\n  namespace: NAMESPACE\n";

/// The chart of `charts::extension` as the Go gardenlet writes it for greeting `hello`: keys in alphabetical order,
/// fields of apps/v1 that Go always writes, `SEED_NAME` in each container.
const MANIFESTS: [(&str, &str); 7] = [
    (
        "account.yaml",
        "apiVersion: v1\nkind: ServiceAccount\nmetadata:\n  name: echo\n  namespace: NAMESPACE\n",
    ),
    (
        "binding.yaml",
        "apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRoleBinding\nmetadata:\n  name: echo\nroleRef:\n  \
         apiGroup: rbac.authorization.k8s.io\n  kind: ClusterRole\n  name: echo\nsubjects:\n- kind: ServiceAccount\n  \
         name: echo\n  namespace: NAMESPACE\n",
    ),
    (
        "configmap.yaml",
        "apiVersion: v1\ndata:\n  greeting: hello\nkind: ConfigMap\nmetadata:\n  name: echo\n  namespace: NAMESPACE\n",
    ),
    (
        "crd.yaml",
        "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata:\n  name: echoes.example.org\n\
         spec:\n  group: example.org\n  names:\n    kind: Echo\n    listKind: EchoList\n    plural: echoes\n    \
         singular: echo\n  scope: Namespaced\n  versions:\n  - name: v1\n    schema:\n      openAPIV3Schema:\n        \
         properties:\n          spec:\n            properties:\n              text:\n                type: string\n            \
         type: object\n        type: object\n    served: true\n    storage: true\n",
    ),
    (
        "deployment.yaml",
        "apiVersion: apps/v1\nkind: Deployment\nmetadata:\n  labels:\n    app: echo\n  name: echo\n  namespace: NAMESPACE\n\
         spec:\n  replicas: 1\n  selector:\n    matchLabels:\n      app: echo\n  strategy: {}\n  template:\n    metadata:\n      \
         labels:\n        app: echo\n    spec:\n      containers:\n      - args:\n        - --greeting=hello\n        env:\n        \
         - name: SEED_NAME\n          value: SEED\n        image: registry.example.org/echo:1\n        name: echo\n        \
         resources: {}\n      serviceAccountName: echo\nstatus: {}\n",
    ),
    (
        "echo.yaml",
        "apiVersion: example.org/v1\nkind: Echo\nmetadata:\n  name: first\n  namespace: NAMESPACE\nspec:\n  text: hello\n",
    ),
    (
        "role.yaml",
        "apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRole\nmetadata:\n  name: echo\nrules:\n- apiGroups:\n  - \
         example.org\n  resources:\n  - echoes\n  verbs:\n  - get\n  - list\n  - watch\n",
    ),
];
