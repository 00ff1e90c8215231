//! The in-process server itself: with kubectl, and over a plain TLS connection.

use std::process::Command;

use gardenlet::base::clock::Clock;
use gardenlet::kube::{self, WarmConnections};
use serde_json::json;

use support::cluster::Authorization;
use support::garden::Garden;
use support::garden::prepare::{self, Preparation};
use support::{Options, TestCluster, semantics};

/// Runs kubectl if this machine has it; returns `None` otherwise.
fn kubectl(cluster: &TestCluster, arguments: &[&str]) -> Option<String> {
    let file = std::env::temp_dir().join(format!("kubeconfig-{}-{}", std::process::id(), cluster.name));
    std::fs::write(&file, cluster.admin_kubeconfig()).unwrap();
    let home = std::env::temp_dir().join(format!("kubectl-{}", std::process::id()));
    let output =
        Command::new("kubectl").env("HOME", home).arg("--kubeconfig").arg(&file).args(arguments).output();
    let output = output.ok()?;
    let text =
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "kubectl {arguments:?}: {text}");
    Some(text)
}

#[test]
fn kubectl_reads_and_writes() {
    let cluster = TestCluster::start(Options::new("seed", &Clock::system()));
    cluster
        .wait_for("the root CA of the namespace", |c| c.get("", "configmaps", "default", "kube-root-ca.crt"));
    let secret = json!({"metadata": {"name": "s", "namespace": "default"}, "stringData": {"a": "b"}});
    cluster.create("v1", "secrets", &secret);
    let Some(secrets) = kubectl(&cluster, &["get", "secrets", "-A"]) else { return };
    assert!(secrets.contains("default") && secrets.contains('s') && secrets.contains("AGE"), "{secrets}");
    let object = kubectl(&cluster, &["get", "secret", "s", "-o", "yaml"]).unwrap();
    assert!(object.contains("a: Yg=="), "{object}");
    let manifest = std::env::temp_dir().join(format!("namespace-{}.yaml", std::process::id()));
    // Not `create namespace`, which uses protobuf.
    std::fs::write(&manifest, "apiVersion: v1\nkind: Namespace\nmetadata: {name: x}\n").unwrap();
    kubectl(&cluster, &["apply", "--validate=false", "-f", manifest.to_str().unwrap()]).unwrap();
    kubectl(&cluster, &["label", "namespace", "x", "a=b"]).unwrap();
    kubectl(&cluster, &["delete", "namespace", "x"]).unwrap();
    assert!(cluster.get("", "namespaces", "", "x").is_none());
}

#[test]
fn it_behaves_like_a_real_server() {
    let mut options = Options::new("seed", &Clock::system());
    options.authorization = Authorization::Rbac;
    let cluster = TestCluster::start(options);
    let failed = semantics::run(&cluster.client());
    assert!(failed.is_empty(), "{failed:#?}");
}

#[test]
fn kubectl_reads_objects_of_gardener() {
    let clock = Clock::system();
    let garden = Garden::start(&clock);
    garden.apply(&Preparation::new("edge-1", clock.now()).garden());
    garden.apply(&prepare::provider());
    garden.apply(&[
        json!({"apiVersion": "core.gardener.cloud/v1beta1", "kind": "Seed", "metadata": {"name": "edge-1"},
        "spec": prepare::seed_spec()}),
    ]);
    let Some(seeds) = kubectl(&garden, &["get", "seeds"]) else { return };
    assert!(seeds.contains("edge-1"), "{seeds}");
    assert!(kubectl(&garden, &["get", "bbc", "-A"]).unwrap().contains("No resources found"));
    let definition = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "managedresources.resources.gardener.cloud"}, "spec": {"group": "resources.gardener.cloud",
            "scope": "Namespaced", "names": {"plural": "managedresources", "kind": "ManagedResource", "shortNames": ["mr"]},
            "versions": [{"name": "v1alpha1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {
                "type": "object", "x-kubernetes-preserve-unknown-fields": true}}}]}});
    garden.apply(&[definition]);
    garden.wait_for("the kind", |g| {
        g.store().read().kinds.by_name("resources.gardener.cloud", "ManagedResource")
    });
    garden.apply(&[json!({"apiVersion": "resources.gardener.cloud/v1alpha1", "kind": "ManagedResource",
        "metadata": {"name": "m", "namespace": "garden"}, "spec": {"class": "seed"}})]);
    let objects = kubectl(&garden, &["get", "mr", "-n", "garden", "-o", "yaml"]).unwrap();
    assert!(objects.contains("class: seed"), "{objects}");
}

/// A client keeps connections to the servers that it used last.
#[test]
fn a_client_closes_connections_that_were_not_used_recently() {
    let clusters = ["a", "b", "c"].map(|name| TestCluster::start(Options::new(name, &Clock::system())));
    let warm = WarmConnections::up_to(2);
    let clients = clusters.each_ref().map(|cluster| {
        let options = kube::Options { warm: Some(warm.clone()), ..kube::Options::default() };
        cluster.client_from(&cluster.admin_kubeconfig(), options)
    });
    let mut seen = vec![Vec::new(); 3];
    for n in [0, 0, 1, 0, 2, 0, 1, 1, 0] {
        let before = clusters[n].request_count();
        clients[n].version().unwrap();
        let asked = clusters[n].requests_since(before);
        seen[n].push(asked.iter().find(|r| r.path == "/version").unwrap().connection);
    }
    let is_kept = |n: usize| seen[n].windows(2).map(|pair| pair[0] == pair[1]).collect::<Vec<_>>();
    assert_eq!(is_kept(0), [true, true, true, true], "each time one of the two servers used last");
    assert_eq!(is_kept(1), [false, true], "two other servers were used in between");
}
