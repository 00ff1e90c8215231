//! Bad input of a Seed's rounds: the Seed shows each problem with the object and the remedy. It costs few requests
//! however long it lasts, does not damage objects of others, and disappears soon after its correction.

use std::time::Duration;

use serde_json::{Value, json};

use crate::story_operating::Desk;
use crate::world::{CORE, LEASES, MANAGED_RESOURCES, Options, World};
use support::TestCluster;
use support::garden::prepare;
use support::http::record::Recorded;
use support::json::text;

const CRDS: &str = "apiextensions.k8s.io";
const SCHEDULING: &str = "scheduling.k8s.io";

/// Waits until the Seed's last operation failed for a reason, and an event has the same reason.
fn fails(world: &World, words: &[&str]) {
    let says = |text: &str| words.iter().all(|word| text.contains(word));
    let why = world.garden.wait_for(&format!("an error with {words:?}"), |g| {
        let operation = g.seed(world.name)?["status"]["lastOperation"].clone();
        let why = text(&operation, "/description").to_owned();
        (operation["state"] == "Error" && says(&why)).then_some(why)
    });
    assert!(why.ends_with(" Operation will be retried."), "{why}");
    world.garden.wait_for(&format!("an event with {words:?}"), |garden| {
        let events = garden.store().list("events.k8s.io", "events", "default");
        let told = events.iter().any(|event| {
            let is_ours = event["reason"] == "ReconcileError" && event["regarding"]["name"] == world.name;
            is_ours && event["type"] == "Warning" && says(text(event, "/note"))
        });
        told.then_some(())
    });
}

/// Requests of the agent and its applier, without renewals of Leases.
fn asked(cluster: &TestCluster, mark: usize) -> Vec<Recorded> {
    let mut all = cluster.requests_since(mark);
    all.retain(|r| r.user_agent.starts_with("gardenlet/") && r.info.group != LEASES);
    all
}

/// In ten minutes an idle seed gets some 500 requests, and its garden some 20. A round makes some 30 requests to the
/// seed and 12 to the garden; there is one round per minute.
fn is_patient(world: &World) {
    let clusters: [&TestCluster; 2] = [&world.garden, &world.seed];
    let marks = clusters.map(TestCluster::request_count);
    world.pass(Duration::from_secs(600));
    for ((cluster, mark), most) in clusters.into_iter().zip(marks).zip([160, 1_000]) {
        let all = asked(cluster, mark);
        let writes = all.iter().filter(|r| r.is_write()).count();
        let lines = || all.iter().map(Recorded::line).collect::<Vec<_>>().join("\n");
        assert!(all.len() <= most, "{}: {} requests\n{}", cluster.name, all.len(), lines());
        assert!(writes <= 80, "{}: {writes} writes\n{}", cluster.name, lines());
    }
}

/// Waits until the Seed is ready. That takes at most the longest pause between two rounds and one round.
fn recovers(world: &World) {
    let begun = world.clock.mono();
    world.wait_until_ready();
    let took = world.clock.mono().saturating_sub(begun);
    world.measured("until the Seed is ready again", took, Duration::from_secs(150));
}

#[test]
fn a_provider_that_is_not_registered() {
    let world = World::start(&Options::new("foreign-cloud"));
    let mut config = world.config();
    config["seedConfig"]["spec"]["provider"]["type"] = json!("nimbus");
    world.garden.apply(&[prepare::promise("promised", &["ControlPlane"], "nimbus")]);
    let agent = world.agent_with(&config);
    let missing = "no ControllerInstallation of this seed supports ControlPlane/nimbus, Infrastructure/nimbus, \
                   Worker/nimbus: register an extension for it in the garden";
    fails(&world, &["Waiting until required extensions are ready", missing]);
    is_patient(&world);
    let resources =
        ["ControlPlane", "Infrastructure", "Worker"].map(|kind| json!({"kind": kind, "type": "nimbus"}));
    let mut provider = prepare::provider();
    provider[0]["metadata"]["name"] = json!("provider-nimbus");
    provider[1]["metadata"]["name"] = json!("provider-nimbus");
    provider[1]["spec"]["deployment"]["deploymentRefs"][0]["name"] = json!("provider-nimbus");
    provider[1]["spec"]["resources"] = json!(resources);
    world.garden.apply(&provider);
    recovers(&world);
    agent.stop();
}

#[test]
fn a_domain_secret_without_its_provider() {
    let world = World::start(&Options::new("no-domain"));
    let domain = json!({"dns.gardener.cloud/domain": "internal.example.org"});
    world.garden.apply(&[
        json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "internal", "namespace": "garden",
        "labels": {"gardener.cloud/role": "internal-domain"}, "annotations": domain}}),
    ]);
    let agent = world.agent();
    let words = ["Secret seed-no-domain/internal", "no annotation dns.gardener.cloud/provider: add it"];
    fails(&world, &words);
    is_patient(&world);
    fails(&world, &words);
    let mended = json!({"metadata": {"annotations": {"dns.gardener.cloud/provider": "local"}}});
    world.garden.merge("", "secrets", ("garden", "internal"), &mended);
    recovers(&world);
    agent.stop();
}

#[test]
fn a_cluster_with_the_identity_of_another_one() {
    let world = World::start(&Options::new("doppelganger"));
    let spec = world.config()["seedConfig"]["spec"].clone();
    world.garden.apply(&[json!({"apiVersion": "core.gardener.cloud/v1beta1", "kind": "Seed",
        "metadata": {"name": world.name}, "spec": spec})]);
    let status = json!({"status": {"clusterIdentity": "the-first"}});
    world.garden.merge_status(CORE, "seeds", ("", world.name), &status);
    // For example, a copy of its storage.
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "immutable": true,
        "metadata": {"name": "cluster-identity", "namespace": "kube-system"},
        "data": {"cluster-identity": "the-second", "origin": "seed"}});
    world.seed.apply(&[map]);
    let map = || world.seed.get("", "configmaps", "kube-system", "cluster-identity");
    let before = map();
    let agent = world.agent();
    let words = [
        "ConfigMap kube-system/cluster-identity of the seed says that this cluster is \"the-second\" (origin \"seed\")",
        "Seed doppelganger has status.clusterIdentity \"the-first\"",
        "delete it, and the agent creates it again",
    ];
    fails(&world, &words);
    is_patient(&world);
    assert_eq!(map(), before);
    world.seed.delete("", "configmaps", "kube-system", "cluster-identity");
    recovers(&world);
    assert_eq!(map().unwrap()["data"], json!({"cluster-identity": "the-first", "origin": "seed"}));
    agent.stop();
}

/// A definition of VerticalPodAutoscaler that shares only its name with ours.
fn autoscaler(version: &str) -> Value {
    let schema = json!({"openAPIV3Schema": {"type": "object", "description": "of somebody else"}});
    json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "verticalpodautoscalers.autoscaling.k8s.io", "labels": {"owner": "somebody"},
            "annotations": {"api-approved.kubernetes.io": "https://github.com/kubernetes/kubernetes/pull/63797"}},
        "spec": {"group": "autoscaling.k8s.io", "scope": "Namespaced",
            "names": {"kind": "VerticalPodAutoscaler", "plural": "verticalpodautoscalers"},
            "versions": [{"name": version, "served": true, "storage": true, "schema": schema}]}})
}

#[test]
fn a_definition_of_another_owner() {
    let world = World::start(&Options::new("preoccupied"));
    let name = "verticalpodautoscalers.autoscaling.k8s.io";
    let found = || world.seed.get(CRDS, "customresourcedefinitions", "", name);
    world.seed.apply(&[autoscaler("v1beta1")]);
    let before = world.seed.wait_for("the definition", |_| {
        let definition = found()?;
        crate::world::condition(&definition, "Established").filter(|c| c.0 == "True").map(|_| definition)
    });
    let agent = world.agent();
    let words = [
        name,
        "belongs to another program and does not serve v1",
        "update it, or delete it if it has no objects, and the agent installs its own",
    ];
    fails(&world, &words);
    is_patient(&world);
    assert_eq!(found().unwrap(), before);
    // Its owner updates it; the agent changes nothing else in it.
    world.seed.merge(
        CRDS,
        "customresourcedefinitions",
        ("", name),
        &json!({"spec": autoscaler("v1")["spec"]}),
    );
    recovers(&world);
    let after = found().unwrap();
    assert_eq!(after["spec"]["versions"], autoscaler("v1")["spec"]["versions"]);
    assert_eq!(after["metadata"]["labels"], before["metadata"]["labels"]);
    agent.stop();
}

#[test]
fn a_priority_class_with_another_value() {
    let world = World::start(&Options::new("unimportant"));
    let name = "gardener-system-500";
    let class = || world.seed.get(SCHEDULING, "priorityclasses", "", name);
    world.seed.apply(&[json!({"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass",
        "metadata": {"name": name}, "value": 5})]);
    let before = class();
    let agent = world.agent();
    let words = [
        "ManagedResource garden/system",
        "PriorityClass",
        name,
        "may not be changed in an update",
        "delete this object unless others need it as it is; the agent creates it again",
    ];
    fails(&world, &words);
    is_patient(&world);
    assert_eq!(class(), before);
    world.seed.delete(SCHEDULING, "priorityclasses", "", name);
    recovers(&world);
    assert_eq!(class().unwrap()["value"], 999_998_500);
    let system = world.seed.get(MANAGED_RESOURCES, "managedresources", "garden", "system").unwrap();
    assert_eq!(crate::world::condition(&system, "ResourcesApplied").unwrap().0, "True");
    agent.stop();
}

#[test]
fn doctor_reports_why_the_seed_fails() {
    let world = World::start(&Options::real("ailing"));
    world.seed.apply(&[autoscaler("v1beta1")]);
    let agent = world.agent();
    let words = "belongs to another program and does not serve v1";
    fails(&world, &[words]);
    let desk = Desk::new(&world, |_| {});
    // Not while a round is running.
    crate::world::wait_for("the words of the Seed", || {
        let (code, output) = desk.doctor();
        let lines: Vec<&str> = output.lines().collect();
        let is_told = lines[0].starts_with("BROKEN: garden: last operation: ") && lines[0].contains(words);
        (code == 1
            && is_told
            && lines[1].trim() == "fix what the message names; the agent tries again within a minute")
            .then_some(())
    });
    agent.stop();
}
