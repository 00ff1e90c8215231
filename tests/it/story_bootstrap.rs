//! From a bootstrap token to a seed that is ready in its garden. Every object is compared with the one that upstream's
//! agent would have written.

use std::time::Duration;

use gardenlet::base::clock::Timestamp;
use gardenlet::format::base64;
use gardenlet::kube::{InlineOrFile, kubeconfig};
use gardenlet::pki::Certificate;
use serde_json::{Value, json};

use crate::world::{CORE, CSRS, LEASES, MANAGED_RESOURCES, Options, World};
use support::encoding::from_rfc3339;
use support::json::{list, text};
use support::pki;

#[test]
fn a_seed_joins_its_garden() {
    let world = World::start(&Options::calm("join"));
    let agent = world.agent();
    world.wait_until_ready();
    let request = certificate_request(&world);
    let certificate = kubeconfig_secret(&world);
    assert_eq!(request["status"]["certificate"], base64::encode(certificate.as_bytes()));
    bootstrap_credentials_are_gone(&world);
    seed_spec(&world);
    seed_status(&world, &certificate);
    seed_lease(&world);
    seed_namespaces(&world);
    definitions(&world);
    leader_leases(&world);
    let (status, body) = agent.get(2728, "/healthz");
    assert_eq!((status, body.as_str()), (200, "ok"));
    agent.stop();
    for name in ["gardenlet-leader-election", "gardener-resource-manager"] {
        let lease = world.seed.get(LEASES, "leases", "garden", name).unwrap();
        assert_eq!(
            (text(&lease, "/spec/holderIdentity"), &lease["spec"]["leaseDurationSeconds"]),
            ("", &json!(1))
        );
    }
}

/// facts: §3.2.
fn certificate_request(world: &World) -> Value {
    let all = world.garden.store().list(CSRS, "certificatesigningrequests", "");
    assert_eq!(all.len(), 1);
    let request = all[0].clone();
    let name = text(&request, "/metadata/name");
    // SHA-512/256 in base64url without padding.
    assert_eq!(name.strip_prefix("seed-csr-").unwrap().len(), 43, "{name}");
    let spec = &request["spec"];
    assert_eq!(spec["signerName"], "kubernetes.io/kube-apiserver-client");
    assert_eq!(spec["usages"], json!(["digital signature", "key encipherment", "client auth"]));
    assert_eq!(spec.get("expirationSeconds"), None);
    assert_eq!(spec["username"], format!("system:bootstrap:{}", world.preparation.token_id()));
    let pem = String::from_utf8(base64::decode(text(spec, "/request").as_bytes()).unwrap()).unwrap();
    assert!(pem.starts_with("-----BEGIN CERTIFICATE REQUEST-----"), "{pem}");
    let (subject, has_names) = pki::request_subject(&pem).unwrap();
    assert_eq!(subject.organizations, ["gardener.cloud:system:seeds"]);
    assert_eq!((subject.common_name.as_str(), has_names), ("gardener.cloud:system:seed:join", false));
    request
}

/// facts: §3.4. Returns the certificate.
fn kubeconfig_secret(world: &World) -> String {
    let secret = world.seed.get("", "secrets", "garden", "gardenlet-kubeconfig").unwrap();
    assert_eq!((secret["type"].as_str(), secret["data"].as_object().unwrap().len()), (Some("Opaque"), 1));
    assert_eq!(secret["metadata"].get("annotations"), None);
    let text = base64::decode(secret["data"]["kubeconfig"].as_str().unwrap().as_bytes()).unwrap();
    let text = String::from_utf8(text).unwrap();
    let read: Value = gardenlet::format::yaml::parse(&text).unwrap();
    assert_eq!(read["current-context"], "gardenlet");
    for kind in ["clusters", "contexts", "users"] {
        assert_eq!(
            (list(&read, &format!("/{kind}")).len(), &read[kind][0]["name"]),
            (1, &json!("gardenlet"))
        );
    }
    assert_eq!(read["contexts"][0]["context"], json!({"cluster": "gardenlet", "user": "gardenlet"}));
    let ca = base64::encode(world.garden.ca().as_bytes());
    assert_eq!(
        read["clusters"][0]["cluster"],
        json!({"server": world.garden.url(), "certificate-authority-data": ca})
    );
    let user: Vec<&String> = read["users"][0]["user"].as_object().unwrap().keys().collect();
    assert_eq!(user, ["client-certificate-data", "client-key-data"]);
    let connection = kubeconfig::parse(&text, std::path::Path::new("/")).unwrap().current().unwrap();
    let certificate = connection.identity.certificate.unwrap();
    let (InlineOrFile::Inline(chain), InlineOrFile::Inline(key)) = (certificate.chain, certificate.key)
    else {
        panic!("not inline")
    };
    assert!(key.starts_with(b"-----BEGIN EC PRIVATE KEY-----"));
    String::from_utf8(chain.to_vec()).unwrap()
}

/// facts: §3.4, §3.5.
fn bootstrap_credentials_are_gone(world: &World) {
    let token = format!("bootstrap-token-{}", world.preparation.token_id());
    assert_eq!(world.seed.get("", "secrets", "garden", "gardenlet-kubeconfig-bootstrap"), None);
    assert_eq!(world.garden.get("", "secrets", "kube-system", &token), None);
}

/// facts: §5.
fn seed_spec(world: &World) {
    let seed = world.garden.seed("join").unwrap();
    let metadata = &seed["metadata"];
    assert_eq!(
        metadata["labels"],
        json!({"gardener.cloud/role": "seed", "site": "north", "name.seed.gardener.cloud/join": "true",
            "seed.gardener.cloud/provider": "local", "seed.gardener.cloud/region": "north"})
    );
    assert_eq!(metadata["annotations"], json!({"owner": "me"}));
    assert_eq!(metadata["finalizers"], json!(["gardener"]));
    let configured = support::garden::prepare::seed_spec();
    for (key, value) in configured.as_object().unwrap() {
        for (field, value) in value.as_object().unwrap() {
            assert_eq!(&seed["spec"][key][field], value, "{key}.{field}");
        }
    }
}

/// facts: §5, the table of writers.
fn seed_status(world: &World, certificate: &str) {
    let seed = world.garden.seed("join").unwrap();
    let status = &seed["status"];
    let agent = &status["gardener"];
    let id = text(agent, "/id");
    assert!(id.len() == 64 && id.bytes().all(|b| b.is_ascii_hexdigit()), "{id}");
    assert_eq!((text(agent, "/name"), text(agent, "/version")), ("host-1", "v1.150.0"));
    assert_eq!(status["kubernetesVersion"], "v1.34.3");
    assert_eq!(status["observedGeneration"], seed["metadata"]["generation"]);
    let kube_system = world.seed.get("", "namespaces", "", "kube-system").unwrap();
    assert_eq!(status["clusterIdentity"], kube_system["metadata"]["uid"]);
    assert_eq!(status["capacity"], json!({"shoots": "50"}));
    assert_eq!(status["allocatable"], json!({"shoots": "45"}));
    let expires = from_rfc3339(text(status, "/clientCertificateExpirationTimestamp")).unwrap();
    assert_eq!(expires, Certificate::parse_pem(certificate).unwrap().not_after);
    let operation = &status["lastOperation"];
    assert_eq!(
        (&operation["type"], &operation["state"], &operation["progress"], &operation["description"]),
        (
            &json!("Reconcile"),
            &json!("Succeeded"),
            &json!(100),
            &json!("Seed cluster has been successfully reconciled.")
        )
    );
    let (status, reason, message) = world.seed_condition("GardenletReady").unwrap();
    assert_eq!(
        (status.as_str(), reason.as_str(), message.as_str()),
        ("True", "GardenletReady", "Gardenlet is posting ready status.")
    );
}

/// facts: §6.
fn seed_lease(world: &World) {
    let uid = world.garden.seed("join").unwrap()["metadata"]["uid"].clone();
    let lease = world.garden.get(LEASES, "leases", "gardener-system-seed-lease", "join").unwrap();
    assert_eq!(
        lease["metadata"]["ownerReferences"],
        json!([{"apiVersion": "core.gardener.cloud/v1beta1", "kind": "Seed", "name": "join", "uid": uid}])
    );
    let spec = lease["spec"].as_object().unwrap();
    let keys: Vec<&String> = spec.keys().collect();
    assert_eq!(keys, ["holderIdentity", "leaseDurationSeconds", "renewTime"]);
    assert_eq!((&spec["holderIdentity"], &spec["leaseDurationSeconds"]), (&json!("join"), &json!(2)));
    // 2025-01-02T03:04:05.678901Z: other programs cannot read it without microseconds.
    assert_eq!(text(&lease, "/spec/renewTime").len(), 27);
    let gap = world.pass(Duration::from_secs(30));
    world.measured("the longest gap between two heartbeats", gap, Duration::from_secs(40));
}

fn seed_namespaces(world: &World) {
    let namespace = world.seed.get("", "namespaces", "", "garden").unwrap();
    let labels = &namespace["metadata"]["labels"];
    for (key, value) in [
        ("role", "garden"),
        ("gardener.cloud/role", "garden"),
        ("pod-security.kubernetes.io/enforce", "privileged"),
        ("high-availability-config.resources.gardener.cloud/consider", "true"),
    ] {
        assert_eq!(labels[key], value, "{labels}");
    }
    let zones =
        &namespace["metadata"]["annotations"]["high-availability-config.resources.gardener.cloud/zones"];
    assert_eq!(zones, "a");
    let system = world.seed.get("", "namespaces", "", "kube-system").unwrap();
    assert_eq!(system["metadata"]["labels"]["role"], "kube-system");
}

/// The agent installs what upstream's agent expects in its seed.
fn definitions(world: &World) {
    let names = world.seed.store().names("apiextensions.k8s.io", "customresourcedefinitions", "");
    assert!(names.contains(&format!("managedresources.{MANAGED_RESOURCES}")), "{names:?}");
    let extensions = names.iter().filter(|name| name.ends_with(".extensions.gardener.cloud")).count();
    assert_eq!(extensions, 13, "{names:?}");
}

/// Both leases have one holder, which is stable across restarts.
fn leader_leases(world: &World) {
    let id = world.garden.get(CORE, "seeds", "", "join").unwrap()["status"]["gardener"]["id"].clone();
    let holder = format!("host-1_{}", id.as_str().unwrap());
    for name in ["gardenlet-leader-election", "gardener-resource-manager"] {
        let lease = world.seed.get(LEASES, "leases", "garden", name).unwrap();
        assert_eq!(lease["spec"]["holderIdentity"], holder, "{name}");
        assert_eq!(lease["spec"]["leaseDurationSeconds"], 15);
        let renewed = from_rfc3339(text(&lease, "/spec/renewTime")).unwrap();
        world.measured(
            &format!("since the renewal of {name}"),
            world.clock.now().since(renewed),
            Duration::from_secs(15),
        );
        assert!(renewed > Timestamp::from_unix(1_767_600_000));
    }
}
