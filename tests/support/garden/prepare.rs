//! The objects in a garden and in a seed before an agent starts, which gardener-operator and the operator of the seed create.
//! They are plain lists, for the stand-ins and for real API servers.

use flate2::{Compression, write::GzEncoder};
use gardenlet::base::clock::Timestamp;
use gardenlet::format::yaml;
use serde_json::{Value, json};

use super::authorizer::{SEEDS, bootstrap_token_id};
use crate::encoding::{base64, rfc3339};

const BOOTSTRAPPER: &str = "gardener.cloud:system:seed-bootstrapper";
const READERS: &str = "gardener.cloud:system:read-global-resources";

/// The parameters of the lists.
#[derive(Clone, Debug)]
pub struct Preparation {
    pub seed: String,
    pub gardener_version: String,
    pub token_secret: String,
    pub token_expires: Timestamp,
}

impl Preparation {
    /// With a bootstrap token that expires in a day.
    pub fn new(seed: &str, now: Timestamp) -> Self {
        Self {
            seed: seed.to_owned(),
            gardener_version: "v1.150.0".to_owned(),
            token_secret: "0123456789abcdef".to_owned(),
            token_expires: now.plus(std::time::Duration::from_secs(86_400)),
        }
    }

    pub fn token_id(&self) -> String {
        bootstrap_token_id("garden", &self.seed)
    }

    /// The bootstrap token.
    pub fn token(&self) -> String {
        format!("{}.{}", self.token_id(), self.token_secret)
    }

    /// What a garden needs: namespaces, version, identity, roles, token, a Secret that every seed gets.
    pub fn garden(&self) -> Vec<Value> {
        let mut all: Vec<Value> = [
            "garden",
            "gardener-system-public",
            "gardener-system-seed-lease",
            "gardener-system-shoot-issuer",
        ]
        .map(namespace)
        .into();
        all.extend([
            config_map("gardener-system-public", "gardener-info", "gardenerAPIServer",
                &format!("version: {}\nworkloadIdentityIssuerURL: https://issuer.garden.example.org\n", self.gardener_version)),
            config_map("kube-system", "cluster-identity", "cluster-identity", "garden-identity"),
            self.bootstrap_token(),
            json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "global-monitoring", "namespace": "garden",
                "labels": {"gardener.cloud/role": "global-monitoring"}}, "stringData": {"username": "admin", "password": "admin"}}),
            cluster_role(BOOTSTRAPPER, &json!([
                rule("certificates.k8s.io", &["certificatesigningrequests"], &["create", "get"]),
                rule("certificates.k8s.io", &["certificatesigningrequests/seedclient",
                    "certificatesigningrequests/shootclient"], &["create"]),
            ])),
            cluster_role_binding(BOOTSTRAPPER, &group("system:bootstrappers")),
        ]);
        all.extend(readers());
        all
    }

    /// The Secret of the bootstrap token.
    pub fn bootstrap_token(&self) -> Value {
        let description = format!(
            "A bootstrap token for the Gardenlet for seedmanagement.gardener.cloud/v1alpha1.Gardenlet resource garden/{}.",
            self.seed
        );
        json!({"apiVersion": "v1", "kind": "Secret", "type": "bootstrap.kubernetes.io/token",
            "metadata": {"name": format!("bootstrap-token-{}", self.token_id()), "namespace": "kube-system"},
            "stringData": {"token-id": self.token_id(), "token-secret": self.token_secret, "description": description,
                "expiration": rfc3339(self.token_expires), "usage-bootstrap-authentication": "true",
                "usage-bootstrap-signing": "true"}})
    }
}

/// The roles that let all authenticated users read some objects of a garden.
fn readers() -> Vec<Value> {
    let read: &[&str] = &["get", "list", "watch"];
    let mut all = vec![
        cluster_role(
            READERS,
            &json!([
                rule(
                    "core.gardener.cloud",
                    &["cloudprofiles", "controllerregistrations", "exposureclasses", "seeds"],
                    read
                ),
                rule("apiextensions.k8s.io", &["customresourcedefinitions"], read),
            ]),
        ),
        cluster_role_binding(READERS, &group("system:authenticated")),
    ];
    const USER_AUTH: &str = "gardener.cloud:system:user-auth";
    let reviews = [
        rule("authentication.k8s.io", &["tokenreviews"], &["create"]),
        rule("authorization.k8s.io", &["selfsubjectaccessreviews"], &["create"]),
    ];
    all.push(cluster_role(USER_AUTH, &json!(reviews)));
    all.push(cluster_role_binding(USER_AUTH, &group("system:authenticated")));
    for (namespace, name) in [
        ("kube-system", "cluster-identity"),
        ("gardener-system-public", "gardener-info"),
        ("gardener-system-public", "kube-root-ca.crt"),
    ] {
        let role = format!("gardener.cloud:system:read-{name}");
        all.push(json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role",
            "metadata": {"name": role, "namespace": namespace}, "rules": [named_rule("", "configmaps", name, read)]}));
        all.push(json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
            "metadata": {"name": role, "namespace": namespace}, "subjects": [group("system:authenticated")],
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": role}}));
    }
    all
}

/// A garden without SeedAuthorizer: its agents may do everything.
pub fn without_authorizer() -> Vec<Value> {
    let everything = json!([{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}, {"nonResourceURLs": ["*"], "verbs": ["get"]}]);
    vec![cluster_role(SEEDS, &everything), cluster_role_binding(SEEDS, &group(SEEDS))]
}

/// The accounts and roles that an operator applies, and separately the role for control planes of Shoots with its binding.
/// Only agents of stories about Shoots get that role, so that the other stories notice rules that the first role lacks.
pub fn access() -> (Vec<Value>, Vec<Value>) {
    // Agents that upgrade themselves get the roles for it with their chart.
    let all = manifest().filter(|object| !is_part(object, ":upgrade"));
    all.partition(|object| !is_part(object, ":shoots"))
}

/// The roles of an agent that upgrades itself, with their bindings.
pub fn upgrade_access() -> Vec<Value> {
    manifest().filter(|object| is_part(object, ":upgrade")).collect()
}

fn manifest() -> impl Iterator<Item = Value> {
    let all = yaml::parse_all(include_str!("../../../packaging/rbac.yaml"));
    all.into_iter().map(|document| document.value.unwrap())
}

fn is_part(object: &Value, part: &str) -> bool {
    object["metadata"]["name"].as_str().is_some_and(|name| name.ends_with(part))
}

/// What a seed holds before its agent starts: accounts and roles, and the bootstrap kubeconfig.
pub fn seed(bootstrap_kubeconfig: &str) -> Vec<Value> {
    let (mut all, _) = access();
    all.push(json!({"apiVersion": "v1", "kind": "Secret",
        "metadata": {"name": "gardenlet-kubeconfig-bootstrap", "namespace": "garden"},
        "stringData": {"kubeconfig": bootstrap_kubeconfig}}));
    all
}

/// The minimal configuration of an agent of this Seed, as the documentation shows it.
pub fn configuration(seed: &str) -> Value {
    json!({
        "apiVersion": "gardenlet.config.gardener.cloud/v1alpha1",
        "kind": "GardenletConfiguration",
        "gardenClientConnection": {
            "bootstrapKubeconfig": {"name": "gardenlet-kubeconfig-bootstrap", "namespace": "garden"},
            "kubeconfigSecret": {"name": "gardenlet-kubeconfig", "namespace": "garden"},
        },
        "seedConfig": {"metadata": {"name": seed}, "spec": seed_spec()},
    })
}

/// The spec of a Seed that gardener-apiserver accepts.
pub fn seed_spec() -> Value {
    let credentials = json!({"apiVersion": "v1", "kind": "Secret", "namespace": "garden", "name": "dns"});
    json!({"provider": {"type": "local", "region": "north", "zones": ["a"]},
        "networks": {"nodes": "10.50.0.0/16", "pods": "10.51.0.0/16", "services": "10.52.0.0/16"},
        "dns": {"internal": {"type": "local", "domain": "internal.example.org", "credentialsRef": credentials},
            "provider": {"type": "local", "credentialsRef": credentials}},
        "ingress": {"domain": "ingress.edge-1.example.org", "controller": {"kind": "nginx"}}})
}

/// What a Shoot needs besides a Seed of [`seed_spec`]: a CloudProfile and a Project, whose namespace is `garden-p`.
pub fn for_shoots() -> Vec<Value> {
    let machine = json!({"name": "none", "cpu": "1", "gpu": "0", "memory": "1Gi", "architecture": "amd64"});
    let image = json!({"name": "none", "versions": [
        {"version": "1.0.0", "architectures": ["amd64"], "cri": [{"name": "containerd"}]}]});
    vec![
        json!({"apiVersion": "core.gardener.cloud/v1beta1", "kind": "CloudProfile", "metadata": {"name": "local"},
            "spec": {"type": "local", "regions": [{"name": "north"}], "machineTypes": [machine], "machineImages": [image],
                "kubernetes": {"versions": [{"version": "1.34.3"}, {"version": "1.35.4"}]}}}),
        json!({"apiVersion": "core.gardener.cloud/v1beta1", "kind": "Project", "metadata": {"name": "p"},
            "spec": {"namespace": "garden-p"}}),
    ]
}

/// A minimal Shoot without workers.
pub fn shoot(name: &str) -> Value {
    json!({"apiVersion": "core.gardener.cloud/v1beta1", "kind": "Shoot",
        "metadata": {"name": name, "namespace": "garden-p"},
        "spec": {"cloudProfile": {"kind": "CloudProfile", "name": "local"}, "region": "north",
            "provider": {"type": "local"}, "kubernetes": {"version": "1.34.3"}, "purpose": "testing"}})
}

/// The type of hosts in `packaging/edge-hosts`, and the name of their CloudProfile and CredentialsBinding.
pub const HOSTS: &str = "hosts";

/// What the operator of a site applies to the garden for Shoots whose nodes are hosts, except the Project.
pub fn hosts() -> Vec<Value> {
    let files = [
        include_str!("../../../packaging/edge-hosts/hosts.yaml"),
        include_str!("../../../packaging/edge-hosts/project.yaml"),
        include_str!("../../../packaging/edge-hosts/credentials.yaml"),
    ];
    let all = files.into_iter().flat_map(yaml::parse_all).map(|document| document.value.unwrap());
    all.filter(|object| object["kind"] != "Project").collect()
}

/// The example of a Shoot of [`hosts`], with one pool for one node, which the test brings. It is not bound.
pub fn shoot_of_hosts(name: &str) -> Value {
    let mut shoot = yaml::parse(include_str!("../../../packaging/edge-hosts/shoot.yaml")).unwrap();
    shoot["metadata"]["name"] = json!(name);
    let spec = &mut shoot["spec"];
    spec["provider"]["workers"][0]["name"] = json!("pool");
    spec["provider"]["workers"][0]["maximum"] = json!(1);
    spec["networking"]["nodes"] = json!("10.67.0.0/24");
    spec.as_object_mut().unwrap().remove("seedName");
    shoot
}

/// An extension that is installed on every seed: its registration and its deployment.
pub fn extension(name: &str, chart: &[u8], values: &Value) -> Vec<Value> {
    vec![
        json!({"apiVersion": "core.gardener.cloud/v1", "kind": "ControllerDeployment", "metadata": {"name": name},
            "helm": {"rawChart": base64(chart), "values": values}}),
        json!({"apiVersion": "core.gardener.cloud/v1beta1", "kind": "ControllerRegistration", "metadata": {"name": name},
            "spec": {"deployment": {"policy": "Always", "deploymentRefs": [{"name": name}]},
                "resources": [{"kind": "Extension", "type": name}]}}),
    ]
}

/// What the operator of a site without a cloud applies to the garden: a Seed is not ready before its provider is installed.
pub fn provider() -> Vec<Value> {
    let text = include_str!("../../../packaging/no-provider/local.yaml");
    yaml::parse_all(text).into_iter().map(|document| document.value.unwrap()).collect()
}

/// An extension for backups without a workload: a story plays it. Shoots on a seed with backups wait for it.
pub fn backups(kind_type: &str) -> Vec<Value> {
    let mut all = provider();
    for object in &mut all {
        object["metadata"]["name"] = json!("backup-local");
        if object["kind"] == "ControllerRegistration" {
            object["spec"] = json!({
                "deployment": {"policy": "Always", "deploymentRefs": [{"name": "backup-local"}]},
                "resources": [{"kind": "BackupBucket", "type": kind_type}, {"kind": "BackupEntry", "type": kind_type}]});
        }
    }
    all
}

/// A registration for kinds of a type without a deployment. gardener-apiserver accepts no Seed before there is one for what it
/// uses.
pub fn promise(name: &str, kinds: &[&str], kind_type: &str) -> Value {
    let resources: Vec<Value> = kinds.iter().map(|kind| json!({"kind": kind, "type": kind_type})).collect();
    json!({"apiVersion": "core.gardener.cloud/v1beta1", "kind": "ControllerRegistration", "metadata": {"name": name},
        "spec": {"resources": resources}})
}

/// The same for backups.
pub fn promised_backups() -> Value {
    promise("promised-backups", &["BackupBucket", "BackupEntry"], "local")
}

/// The registration of [`provider`].
pub const PROVIDER: &str = "provider-local";

/// An archive of a chart, as a repository has it.
pub fn archive(chart: &str, files: &[(&str, &str)]) -> Vec<u8> {
    let mut tar = tar::Builder::new(GzEncoder::new(Vec::new(), Compression::fast()));
    for (path, content) in files {
        let mut header = tar::Header::new_gnu();
        header.set_size(content.len() as u64);
        header.set_mode(0o644);
        tar.append_data(&mut header, format!("{chart}/{path}"), content.as_bytes()).unwrap();
    }
    tar.into_inner().unwrap().finish().unwrap()
}

fn namespace(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
}

fn config_map(namespace: &str, name: &str, key: &str, value: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": namespace}, "data": {key: value}})
}

fn rule(group: &str, resources: &[&str], verbs: &[&str]) -> Value {
    json!({"apiGroups": [group], "resources": resources, "verbs": verbs})
}

fn named_rule(group: &str, resource: &str, name: &str, verbs: &[&str]) -> Value {
    json!({"apiGroups": [group], "resources": [resource], "resourceNames": [name], "verbs": verbs})
}

fn cluster_role(name: &str, rules: &Value) -> Value {
    json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": name}, "rules": rules})
}

fn cluster_role_binding(role: &str, subject: &Value) -> Value {
    json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": role},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role}, "subjects": [subject]})
}

fn group(name: &str) -> Value {
    json!({"kind": "Group", "apiGroup": "rbac.authorization.k8s.io", "name": name})
}

/// The namespace of the project in which [`bastion`] and [`backup_entry`] are.
pub const PROJECT: &str = "garden-p";

/// A Bastion for Shoot `s1`.
pub fn bastion(name: &str, seed: &str) -> Value {
    json!({"apiVersion": "operations.gardener.cloud/v1alpha1", "kind": "Bastion",
        "metadata": {"namespace": PROJECT, "name": name},
        "spec": {"shootRef": {"name": "s1"}, "seedName": seed, "providerType": "local", "sshPublicKey": "ssh-ed25519 AAAA me",
            "ingress": [{"ipBlock": {"cidr": "192.0.2.0/24"}}]}})
}

/// Shoot `s1` with a control plane and nodes, as the API server keeps it.
pub fn shoot_with_nodes(seed: &str, plane: &str) -> Value {
    let mut shoot = shoot("s1");
    shoot["metadata"]["uid"] = json!("uid-of-s1");
    shoot["metadata"]["labels"] = json!({format!("name.seed.gardener.cloud/{seed}"): "true"});
    shoot["spec"]["seedName"] = json!(seed);
    shoot["spec"]["provider"]["workers"] = json!([{"name": "pool"}]);
    shoot["status"] = json!({"seedName": seed, "technicalID": plane});
    shoot
}

/// A BackupEntry in a bucket.
pub fn backup_entry(name: &str, seed: &str, bucket: &str) -> Value {
    json!({"apiVersion": "core.gardener.cloud/v1beta1", "kind": "BackupEntry",
        "metadata": {"namespace": PROJECT, "name": name}, "spec": {"bucketName": bucket, "seedName": seed}})
}
