//! The effect of the configuration on the garden, at each start.

use serde_json::{Value, json};

use crate::world::{LEASES, Options, World};
use support::json::text;

/// Creates a Secret of a default domain, which the garden copies for the seed.
fn make_domain(world: &World, name: &str, annotations: &Value) {
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name, "namespace": "garden",
        "labels": {"gardener.cloud/role": "default-domain"}, "annotations": annotations}});
    world.garden.apply(&[secret]);
    world.garden.wait_for("the copy of the Secret", |garden| garden.get("", "secrets", "seed-domains", name));
}

fn wait_for_domains(world: &World, expected: &[&str]) {
    world.garden.wait_for(&format!("the domains {expected:?}"), |garden| {
        let seed = garden.seed("domains")?;
        let defaults = seed["spec"]["dns"]["defaults"].as_array()?;
        let found: Vec<&str> = defaults.iter().map(|domain| text(domain, "/domain")).collect();
        (found == expected).then_some(())
    });
}

#[test]
fn default_domains_are_read_from_the_garden_at_each_start() {
    let world = World::start(&Options::new("domains"));
    let agent = world.agent();
    world.wait_until_ready();
    agent.stop();
    let annotations = |priority: &str, domain: &str| {
        json!({"dns.gardener.cloud/provider": "local", "dns.gardener.cloud/domain": domain,
            "dns.gardener.cloud/domain-default-priority": priority})
    };
    make_domain(&world, "first", &annotations("1", "first.example.org"));
    let agent = world.agent();
    wait_for_domains(&world, &["first.example.org"]);
    agent.stop();
    make_domain(&world, "second", &annotations("2", "second.example.org"));
    let agent = world.agent();
    wait_for_domains(&world, &["second.example.org", "first.example.org"]);
    agent.stop();
    make_domain(&world, "third", &json!({"dns.gardener.cloud/domain": "third.example.org"}));
    let agent = world.agent();
    world.wait_for_log(&["Secret seed-domains/third has no annotation dns.gardener.cloud/provider"]);
    agent.stop();
}

#[test]
fn the_duration_of_the_lease_is_configurable() {
    let world = World::start(&Options::new("lasting"));
    let mut config = world.config();
    config["controllers"] = json!({"seed": {"leaseResyncSeconds": 3}});
    let agent = world.agent_with(&config);
    world.wait_until_ready();
    let lease = world.garden.get(LEASES, "leases", "gardener-system-seed-lease", "lasting").unwrap();
    assert_eq!(lease["spec"]["leaseDurationSeconds"], 3);
    agent.stop();
}

#[test]
fn a_connection_without_verification_is_reported() {
    let world = World::start(&Options::new("trusting"));
    let token = std::fs::read_to_string(world.path("serviceaccount").join("token")).unwrap();
    let kubeconfig = world.seed.bootstrap_kubeconfig(&token);
    let mut kubeconfig = gardenlet::format::yaml::parse(&kubeconfig).unwrap();
    kubeconfig["clusters"][0]["cluster"]["certificate-authority-data"] = Value::Null;
    kubeconfig["clusters"][0]["cluster"]["insecure-skip-tls-verify"] = json!(true);
    let path = world.file("trusting.kubeconfig", &kubeconfig.to_string());
    let mut config = world.config();
    config["seedClientConnection"] = json!({"kubeconfig": path});
    let agent = world.agent_with(&config);
    let line = world.wait_for_log(&[
        "WARN",
        "The connection is not protected against attackers in the network",
        "cluster=seed",
    ]);
    assert!(line.contains("insecure-skip-tls-verify accepts any server"), "{line}");
    world.wait_until_ready();
    let lines = world.log();
    assert_eq!(lines.iter().filter(|line| line.contains("is not protected against")).count(), 1);
    agent.stop();
}
