//! The in-process garden, as an agent sees it.

use std::time::Duration;

use gardenlet::api::certificates::CERTIFICATE_SIGNING_REQUEST;
use gardenlet::api::coordination::LEASE;
use gardenlet::api::core::{CONFIG_MAP, NAMESPACE, SECRET};
use gardenlet::api::gardener::{CONTROLLER_INSTALLATION, CONTROLLER_REGISTRATION, SEED, SHOOT};
use gardenlet::api::meta::{CLUSTER_SCOPED, Key, Resource};
use gardenlet::base::clock::{Clock, Simulated, Timestamp};
use gardenlet::kube::{self, Client, DeleteParams, Error, ListParams, Patch};
use rcgen::{CertificateParams, DnType, KeyPair};
use serde_json::{Value, json};

use support::encoding::{base64, from_base64};
use support::garden::Garden;
use support::garden::prepare::{self, Preparation};
use support::pace;
use support::pki::certificate_subject;

const TIME: Timestamp = Timestamp::from_unix(1_750_000_000);

fn garden() -> (Garden, Preparation) {
    let clock = Clock::new(Simulated::paced(pace::clock(), TIME, 20));
    let garden = Garden::start(&clock);
    let preparation = Preparation::new("edge-1", TIME);
    garden.apply(&preparation.garden());
    garden.apply(&prepare::provider());
    (garden, preparation)
}

fn agent(garden: &Garden, seed: &str) -> Client {
    let user = format!("gardener.cloud:system:seed:{seed}");
    let kubeconfig = garden.kubeconfig_for(&user, &["gardener.cloud:system:seeds"]);
    garden.client_from(&kubeconfig, kube::Options::default())
}

fn seed(name: &str) -> Value {
    json!({"apiVersion": "core.gardener.cloud/v1beta1", "kind": "Seed", "metadata": {"name": name,
        "labels": {"gardener.cloud/role": "seed"}}, "spec": prepare::seed_spec()})
}

fn request(name: &str, subject: (&str, &str)) -> Value {
    let mut params = CertificateParams::default();
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(DnType::OrganizationName, subject.0);
    params.distinguished_name.push(DnType::CommonName, subject.1);
    let pem = params.serialize_request(&KeyPair::generate().unwrap()).unwrap().pem().unwrap();
    json!({"apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest", "metadata": {"name": name},
        "spec": {"request": base64(pem.as_bytes()), "signerName": "kubernetes.io/kube-apiserver-client",
            "expirationSeconds": 86_400, "usages": ["digital signature", "key encipherment", "client auth"]}})
}

#[test]
fn a_bootstrap_token_becomes_a_certificate() {
    let (garden, preparation) = garden();
    let kubeconfig = garden.bootstrap_kubeconfig(&preparation.token());
    let client = garden.client_from(&kubeconfig, kube::Options::default());
    let right = request("seed-csr-a", ("gardener.cloud:system:seeds", "gardener.cloud:system:seed:edge-1"));
    client.create::<Value>(&CERTIFICATE_SIGNING_REQUEST, CLUSTER_SCOPED, &right).unwrap();
    let wrong = request("seed-csr-b", ("gardener.cloud:system:others", "gardener.cloud:system:seed:edge-1"));
    client.create::<Value>(&CERTIFICATE_SIGNING_REQUEST, CLUSTER_SCOPED, &wrong).unwrap();
    let signed = garden.wait_for("the certificate", |g| {
        let request = g.get("certificates.k8s.io", "certificatesigningrequests", "", "seed-csr-a")?;
        request["status"]["certificate"].is_string().then_some(request)
    });
    assert_eq!(signed["spec"]["username"], format!("system:bootstrap:{}", preparation.token_id()));
    assert_eq!(signed["status"]["conditions"][0]["reason"], "AutoApproved");
    let pem =
        String::from_utf8(from_base64(signed["status"]["certificate"].as_str().unwrap()).unwrap()).unwrap();
    let subject = certificate_subject(&support::encoding::from_pem(&pem).unwrap()).unwrap();
    assert_eq!(subject.common_name, "gardener.cloud:system:seed:edge-1");
    let pending = garden.get("certificates.k8s.io", "certificatesigningrequests", "", "seed-csr-b").unwrap();
    assert_eq!(pending["status"], json!({}));
    // A bootstrap token has no other use, and it expires.
    let denied = |e: Error| e.status_code().unwrap();
    assert_eq!(
        client.list::<Value>(&SECRET, "garden", &ListParams::default()).map(drop).map_err(denied),
        Err(403)
    );
    garden.delete("", "secrets", "kube-system", &format!("bootstrap-token-{}", preparation.token_id()));
    assert_eq!(client.version().map(drop).map_err(denied), Err(401));
}

#[test]
fn a_seed_is_completed_and_gets_its_namespace() {
    let (garden, _) = garden();
    let client = agent(&garden, "edge-1");
    assert!(client.get::<Value>(&NAMESPACE, &Key::cluster("seed-edge-1")).unwrap_err().is_denied());
    let created: Value = client.create(&SEED, CLUSTER_SCOPED, &seed("edge-1")).unwrap();
    let labels = json!({"gardener.cloud/role": "seed", "name.seed.gardener.cloud/edge-1": "true",
        "seed.gardener.cloud/provider": "local", "seed.gardener.cloud/region": "north"});
    assert_eq!(created["metadata"]["labels"], labels);
    assert_eq!(created["spec"]["settings"]["scheduling"]["visible"], true);
    assert_eq!(created["spec"]["networks"]["ipFamilies"], json!(["IPv4"]));
    garden.wait_for("the namespace", |g| g.get("", "secrets", "seed-edge-1", "global-monitoring"));
    let namespace: Value = client.get(&NAMESPACE, &Key::cluster("seed-edge-1")).unwrap();
    assert_eq!(namespace["metadata"]["ownerReferences"][0]["uid"], created["metadata"]["uid"]);
    let secrets = client.list::<Value>(&SECRET, "seed-edge-1", &ListParams::default()).unwrap();
    assert_eq!(secrets.items.len(), 1);
    // The agent replaces the labels; the server keeps its own.
    let patch = Patch::Merge(json!({"metadata": {"labels": {"gardener.cloud/role": "seed", "site": "north",
        "name.seed.gardener.cloud/edge-1": null, "seed.gardener.cloud/region": null}}}));
    let patched: Value = client.patch(&SEED, &Key::cluster("edge-1"), &patch).unwrap();
    assert_eq!(patched["metadata"]["labels"]["name.seed.gardener.cloud/edge-1"], "true");
    assert_eq!(patched["metadata"]["generation"], 1);
}

#[test]
fn operations_move_the_generation() {
    let (garden, _) = garden();
    garden.apply(&[seed("edge-1")]);
    let annotate = |value: &str| {
        let patch = json!({"metadata": {"annotations": {"gardener.cloud/operation": value}}});
        garden.merge("core.gardener.cloud", "seeds", ("", "edge-1"), &patch)
    };
    let seed = annotate("reconcile");
    assert_eq!(seed["metadata"]["generation"], 2);
    assert!(seed["metadata"]["annotations"]["gardener.cloud/operation"].is_null());
    let seed = annotate("renew-kubeconfig");
    assert_eq!(
        (&seed["metadata"]["generation"], &seed["metadata"]["annotations"]["gardener.cloud/operation"]),
        (&json!(3), &json!("renew-kubeconfig"))
    );
    let client = garden.client();
    let other = Patch::Merge(
        json!({"metadata": {"annotations": {"gardener.cloud/operation": "renew-garden-access-secrets"}}}),
    );
    assert_eq!(
        client.patch::<Value>(&SEED, &Key::cluster("edge-1"), &other).unwrap_err().status_code(),
        Some(422)
    );
    let status = Patch::Merge(json!({"status": {"clusterIdentity": "x"}}));
    client.patch_status::<Value>(&SEED, &Key::cluster("edge-1"), &status).unwrap();
    let status = Patch::Merge(json!({"status": {"clusterIdentity": "y"}}));
    assert_eq!(
        client.patch_status::<Value>(&SEED, &Key::cluster("edge-1"), &status).unwrap_err().status_code(),
        Some(422)
    );
    assert_eq!(garden.seed("edge-1").unwrap()["metadata"]["generation"], 3);
}

#[test]
fn an_agent_has_the_permissions_of_the_table() {
    let (garden, _) = garden();
    garden.apply(&[seed("edge-1"), seed("edge-2")]);
    garden.wait_for("the namespaces", |g| g.get("", "namespaces", "", "seed-edge-2"));
    let client = agent(&garden, "edge-1");
    let allowed = |r: &Resource, namespace: &str, labels: &str, fields: &str| {
        let params = ListParams {
            label_selector: labels.into(),
            field_selector: fields.into(),
            ..ListParams::default()
        };
        match client.list::<Value>(r, namespace, &params) {
            Ok(_) => true,
            Err(e) if e.status_code() == Some(403) => false,
            Err(e) => panic!("{e:?}"),
        }
    };
    let table = [
        (&CONTROLLER_INSTALLATION, "", "", "", false),
        (&CONTROLLER_INSTALLATION, "", "", "spec.seedRef.name=edge-1", true),
        (&CONTROLLER_INSTALLATION, "", "", "spec.seedRef.name=edge-2", false),
        (&CONTROLLER_REGISTRATION, "", "", "", true),
        (&SHOOT, "", "", "", false),
        (&SHOOT, "", "", "spec.seedName=edge-1", false),
        (&SHOOT, "", "name.seed.gardener.cloud/edge-1=true", "", true),
        (&SHOOT, "", "name.seed.gardener.cloud/edge-1", "", true),
        (&SHOOT, "", "name.seed.gardener.cloud/edge-2", "", false),
        (&SEED, "", "", "", true),
        (&SECRET, "", "", "", false),
        (&SECRET, "garden", "", "", false),
        (&SECRET, "seed-edge-1", "", "", true),
        (&SECRET, "seed-edge-2", "", "", false),
        (&CONFIG_MAP, "gardener-system-public", "", "", false),
        (&CONFIG_MAP, "gardener-system-public", "", "metadata.name=gardener-info", true),
        (&LEASE, "gardener-system-seed-lease", "", "", false),
        (&LEASE, "gardener-system-seed-lease", "", "metadata.name=edge-1", true),
        (&NAMESPACE, "", "", "metadata.name=seed-edge-1", true),
        (&NAMESPACE, "", "", "metadata.name=seed-edge-2", false),
    ];
    for (resource, namespace, labels, fields, expected) in table {
        let found = allowed(resource, namespace, labels, fields);
        assert_eq!(
            found, expected,
            "{} in {namespace:?}, labels {labels:?}, fields {fields:?}",
            resource.plural
        );
    }
    let dns = client.find::<Value>(&SECRET, &Key::new("garden", "dns")).unwrap();
    assert!(dns.is_none(), "the agent could read a credential of the seed");
    assert!(client.get::<Value>(&SECRET, &Key::new("garden", "global-monitoring")).unwrap_err().is_denied());
    let lease = |name: &str| json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": name}});
    client.create::<Value>(&LEASE, "gardener-system-seed-lease", &lease("edge-1")).unwrap();
    let foreign = client.create::<Value>(&LEASE, "gardener-system-seed-lease", &lease("edge-2"));
    assert!(foreign.unwrap_err().is_denied());
    let foreign = request("seed-csr-x", ("gardener.cloud:system:seeds", "gardener.cloud:system:seed:edge-2"));
    assert!(
        client
            .create::<Value>(&CERTIFICATE_SIGNING_REQUEST, CLUSTER_SCOPED, &foreign)
            .unwrap_err()
            .is_denied()
    );
    let status =
        Patch::Strategic(json!({"status": {"conditions": [{"type": "GardenletReady", "status": "True"}]}}));
    client.patch_status::<Value>(&SEED, &Key::cluster("edge-1"), &status).unwrap();
    assert!(client.patch_status::<Value>(&SEED, &Key::cluster("edge-2"), &status).unwrap_err().is_denied());
}

#[test]
fn a_silent_agent_is_noticed() {
    let (garden, _) = garden();
    garden.apply(&[seed("edge-1")]);
    let client = agent(&garden, "edge-1");
    let ready = Patch::Strategic(json!({"status": {"conditions": [
        {"type": "GardenletReady", "status": "True", "reason": "GardenletReady", "message": "x"},
        {"type": "SeedSystemComponentsHealthy", "status": "True"}]}}));
    client.patch_status::<Value>(&SEED, &Key::cluster("edge-1"), &ready).unwrap();
    let lease = json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "edge-1"},
        "spec": {"holderIdentity": "edge-1", "renewTime": support::encoding::rfc3339_micro(garden.clock().now())}});
    client.create::<Value>(&LEASE, "gardener-system-seed-lease", &lease).unwrap();
    let unknown = garden.wait_for("the condition", |g| {
        g.seed_condition("edge-1", "GardenletReady").filter(|c| c["status"] == "Unknown")
    });
    assert_eq!(unknown["reason"], "StatusUnknown");
    assert!(garden.clock().now() >= TIME.plus(Duration::from_secs(40)));
    assert_eq!(garden.seed_condition("edge-1", "SeedSystemComponentsHealthy").unwrap()["status"], "True");
}

#[test]
fn installations_follow_registrations() {
    let (garden, _) = garden();
    garden.apply(&[seed("edge-1")]);
    garden.apply(&prepare::extension("ext", b"chart", &json!({"a": 1})));
    let first = garden.wait_for("an installation", |g| g.installations("ext").pop());
    let name = first["metadata"]["name"].as_str().unwrap().to_owned();
    assert!(name.starts_with("ext-") && name.len() == 9, "{name}");
    let deployment = garden.get("core.gardener.cloud", "controllerdeployments", "", "ext").unwrap();
    assert_eq!(first["spec"]["deploymentRef"]["resourceVersion"], deployment["metadata"]["resourceVersion"]);
    garden.merge(
        "core.gardener.cloud",
        "controllerdeployments",
        ("", "ext"),
        &json!({"helm": {"values": {"a": 2}}}),
    );
    let changed = garden.wait_for("the new version", |g| {
        let next = g.installations("ext").pop()?;
        (next["spec"]["deploymentRef"] != first["spec"]["deploymentRef"]).then_some(next)
    });
    assert_eq!(changed["metadata"]["name"], name.as_str());
    // Required holds the installation, then its finalizer does, then it is deleted.
    let (client, key) = (agent(&garden, "edge-1"), Key::cluster(&name));
    let required = |status: &str| {
        let patch =
            Patch::Strategic(json!({"status": {"conditions": [{"type": "Required", "status": status}]}}));
        client.patch_status::<Value>(&CONTROLLER_INSTALLATION, &key, &patch).unwrap()
    };
    required("True");
    let hold = json!({"metadata": {"finalizers": ["core.gardener.cloud/controllerinstallation"]}});
    client.patch::<Value>(&CONTROLLER_INSTALLATION, &key, &Patch::Merge(hold)).unwrap();
    garden.client().delete(&CONTROLLER_REGISTRATION, &Key::cluster("ext"), &DeleteParams::default()).unwrap();
    required("False");
    garden.wait_for("the deletion", |g| {
        g.installations("ext").pop().filter(|i| i["metadata"]["deletionTimestamp"].is_string())
    });
    let release = Patch::Merge(json!({"metadata": {"finalizers": null}}));
    client.patch::<Value>(&CONTROLLER_INSTALLATION, &key, &release).unwrap();
    garden.wait_for("the end", |g| {
        (g.installations("ext").is_empty()
            && g.get("core.gardener.cloud", "controllerregistrations", "", "ext").is_none())
        .then_some(())
    });
}

#[test]
fn a_deployment_is_served_in_two_versions() {
    let (garden, _) = garden();
    let old = json!({"apiVersion": "core.gardener.cloud/v1beta1", "kind": "ControllerDeployment", "metadata": {"name": "old"},
        "type": "helm", "providerConfig": {"chart": "Y2hhcnQ=", "values": {"a": 1}}});
    garden.apply(&[old]);
    let client = garden.client();
    let read = |version: &'static str| {
        let r = Resource::new(
            "core.gardener.cloud",
            version,
            "ControllerDeployment",
            "controllerdeployments",
            false,
        );
        client.get::<Value>(&r, &Key::cluster("old")).unwrap()
    };
    assert_eq!(read("v1")["helm"], json!({"rawChart": "Y2hhcnQ=", "values": {"a": 1}}));
    assert_eq!(read("v1beta1")["providerConfig"], json!({"chart": "Y2hhcnQ=", "values": {"a": 1}}));
    assert_eq!(read("v1beta1")["type"], "helm");
}
