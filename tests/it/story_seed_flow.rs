//! The objects that a Seed's rounds write into the seed cluster, their waits, and their errors for bad input.

use std::time::Duration;

use serde_json::{Value, json};

use crate::world::{CORE, MANAGED_RESOURCES, Options, World};
use support::encoding::from_base64;
use support::garden::prepare;
use support::http::record::Recorded;
use support::json::text;

const PRIORITY_CLASSES: &str = "scheduling.k8s.io";

fn operation(world: &World) -> Value {
    world.garden.seed(world.name).map(|seed| seed["status"]["lastOperation"].clone()).unwrap_or_default()
}

/// Waits until the Seed's last operation failed for a reason.
fn fails(world: &World, words: &[&str]) {
    world.garden.wait_for(&format!("an error with {words:?}"), |_| {
        let operation = operation(world);
        let description = text(&operation, "/description");
        (operation["state"] == "Error" && words.iter().all(|word| description.contains(word))).then_some(())
    });
}

fn asks(world: &World, spec: &Value) {
    world.garden.merge(CORE, "seeds", ("", world.name), &json!({"spec": spec}));
}

#[test]
fn a_ready_seed_has_what_control_planes_need() {
    let world = World::start(&Options::new("equipped"));
    let token = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "login", "namespace": "garden",
        "labels": {"a": "b"}}, "type": "Opaque", "data": {"k": "dg=="}});
    world.garden.apply(&[token]);
    let mut config = world.config();
    let reference = json!({"apiVersion": "v1", "kind": "Secret", "name": "login"});
    config["seedConfig"]["spec"]["resources"] = json!([{"name": "login", "resourceRef": reference}]);
    let agent = world.agent_with(&config);
    world.wait_until_ready();
    let seed = &world.seed;
    let mut classes = seed.store().names(PRIORITY_CLASSES, "priorityclasses", "");
    classes.retain(|name| name.starts_with("gardener-"));
    assert_eq!(classes.len(), 10, "{classes:?}");
    let class = seed.get(PRIORITY_CLASSES, "priorityclasses", "", "gardener-system-500").unwrap();
    assert_eq!(class["value"], 999_998_500);
    for (group, plural) in [
        ("autoscaling.k8s.io", "verticalpodautoscalers"),
        ("machine.sapcloud.io", "machines"),
        ("druid.gardener.cloud", "etcds"),
    ] {
        assert!(seed.api().kind(group, plural).is_some(), "{plural}.{group}");
    }
    let identity = seed.get("", "configmaps", "kube-system", "cluster-identity").unwrap();
    let known = world.garden.seed(world.name).unwrap();
    assert_eq!(identity["data"]["cluster-identity"], known["status"]["clusterIdentity"]);
    assert_eq!((&identity["data"]["origin"], &identity["immutable"]), (&json!("seed"), &json!(true)));
    let copy = seed.wait_for("the copy", |seed| seed.get("", "secrets", "garden", "ref-login"));
    assert_eq!((&copy["data"], &copy["metadata"]["labels"]["a"]), (&json!({"k": "dg=="}), &Value::Null));
    let replica = seed.get("", "secrets", "garden", "seed-global-monitoring").unwrap();
    let auth = from_base64(text(&replica, "/data/auth")).unwrap();
    assert!(String::from_utf8(auth).unwrap().starts_with("admin:$2a$10$"));
    let system = seed.get(MANAGED_RESOURCES, "managedresources", "garden", "system").unwrap();
    assert_eq!(system["metadata"]["labels"]["gardener.cloud/role"], "seed-system-component");
    // Deleted objects are created again.
    seed.delete(MANAGED_RESOURCES, "managedresources", "garden", "system");
    seed.wait_for("the ManagedResource again", |seed| {
        let again = seed.get(MANAGED_RESOURCES, "managedresources", "garden", "system")?;
        (again["metadata"]["uid"] != system["metadata"]["uid"]).then_some(())
    });
    seed.wait_for("the classes again", |seed| {
        seed.get(PRIORITY_CLASSES, "priorityclasses", "", "gardener-system-500")
    });
    // None of them remains after the Seed.
    world.wait_until_ready();
    world.garden.delete(CORE, "seeds", "", world.name);
    world.garden.wait_for("the end of the Seed", |g| g.seed(world.name).is_none().then_some(()));
    assert!(seed.store().list(MANAGED_RESOURCES, "managedresources", "").is_empty());
    assert!(seed.get(PRIORITY_CLASSES, "priorityclasses", "", "gardener-system-500").is_none());
    agent.stop();
}

/// Upstream's scheduler and operators use these words.
#[test]
fn a_seed_waits_for_its_provider_and_reports_it() {
    let world = World::start(&Options::new("bare"));
    world.garden.delete(CORE, "controllerregistrations", "", prepare::PROVIDER);
    let agent = world.agent();
    // The garden accepts no Seed of a type that nobody has registered. The agent tries again.
    world.garden.wait_for("two refusals", |garden| {
        let refused = |r: &&Recorded| r.method == "POST" && r.info.resource == "seeds" && r.status == 403;
        (garden.requests().iter().filter(refused).count() >= 2).then_some(())
    });
    assert!(world.garden.seed("bare").is_none());
    let kinds = ["ControlPlane", "DNSRecord", "Infrastructure", "Worker"];
    world.garden.apply(&[prepare::promise("promised", &kinds, "local")]);
    let missing = "no ControllerInstallation of this seed supports ControlPlane/local, DNSRecord/local, \
                   Infrastructure/local, Worker/local";
    fails(
        &world,
        &["Waiting until required extensions are ready", "extension controllers missing or unready", missing],
    );
    // One attempt takes a minute, and then there is a pause: no burst of requests.
    let mark = world.garden.request_count();
    let since = world.clock.mono();
    crate::world::wait_for("five minutes", || {
        (world.clock.mono().saturating_sub(since) > Duration::from_secs(300)).then_some(())
    });
    let about_seed = |path: &str| path.contains("/seeds/bare");
    let is_ours = |agent: &str| agent.starts_with("gardenlet/");
    let asked = world.garden.requests_since(mark);
    let writes =
        asked.iter().filter(|r| r.is_write() && is_ours(&r.user_agent) && about_seed(&r.path)).count();
    assert!(writes <= 24, "{writes} writes in five minutes");
    world.garden.apply(&prepare::provider()[1..]);
    world.wait_until_ready();
    agent.stop();
}

#[test]
fn operations_requested_by_annotation_are_executed_and_acknowledged() {
    let world = World::start(&Options::new("rotated"));
    let agent = world.agent();
    world.wait_until_ready();
    let seed = &world.seed;
    let renewed = "serviceaccount.resources.gardener.cloud/token-renew-timestamp";
    let workload = "workloadidentity.security.gardener.cloud/token-renew-timestamp";
    let secret = |name: &str, labels: Value, annotation: &str| {
        json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name, "namespace": "garden", "labels": labels,
            "annotations": {annotation: "2040-01-01T00:00:00Z"}}})
    };
    let requestor = |class: &str| json!({"resources.gardener.cloud/purpose": "token-requestor", "resources.gardener.cloud/class": class});
    let identity = json!({"security.gardener.cloud/purpose": "workload-identity-token-requestor"});
    seed.apply(&[secret("of-a-shoot", requestor("shoot"), renewed), secret("cloud", identity, workload)]);
    let annotated = |name: &str, annotation: &str| {
        let secret = seed.get("", "secrets", "garden", name).unwrap();
        secret["metadata"]["annotations"][annotation].is_string()
    };
    let perform = |operation: &str| {
        let annotation = json!({"metadata": {"annotations": {"gardener.cloud/operation": operation}}});
        world.garden.merge(CORE, "seeds", ("", world.name), &annotation);
        world.garden.wait_for("the acknowledgement", |g| {
            g.seed(world.name)?["metadata"]["annotations"]["gardener.cloud/operation"].is_null().then_some(())
        });
    };
    perform("renew-workload-identity-tokens");
    assert!(!annotated("cloud", workload) && annotated("of-a-shoot", renewed));
    seed.apply(&[secret("of-the-garden", requestor("other"), renewed)]);
    let class = json!({"metadata": {"labels": {"resources.gardener.cloud/class": "garden"}}});
    seed.merge("", "secrets", ("garden", "of-the-garden"), &class);
    perform("renew-garden-access-secrets");
    assert!(annotated("of-a-shoot", renewed));
    let first = world.certificate_pem();
    perform("renew-kubeconfig");
    seed.wait_for("another certificate", |_| (world.certificate_pem() != first).then_some(()));
    agent.stop();
}

#[test]
fn bad_input_is_reported_and_nothing_is_lost() {
    let world = World::start(&Options::new("muddled"));
    let agent = world.agent();
    world.wait_until_ready();
    // A domain without its provider, for all seeds.
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "internal", "namespace": "garden",
        "labels": {"gardener.cloud/role": "internal-domain"}, "annotations": {"dns.gardener.cloud/domain": "i.example.org"}}});
    world.garden.apply(&[secret]);
    world.garden.wait_for("its copy", |g| g.get("", "secrets", "seed-muddled", "internal"));
    asks(&world, &json!({"settings": {"scheduling": {"visible": false}}}));
    fails(&world, &["Secret seed-muddled/internal", "no annotation dns.gardener.cloud/provider: add it"]);
    world.garden.delete("", "secrets", "garden", "internal");
    world.garden.wait_for("the end of the copy", |g| {
        g.get("", "secrets", "seed-muddled", "internal").is_none().then_some(())
    });
    world.wait_until_ready();
    // A reference to a missing object.
    let reference = json!({"apiVersion": "v1", "kind": "Secret", "name": "nothing"});
    asks(&world, &json!({"resources": [{"name": "r", "resourceRef": reference}]}));
    fails(
        &world,
        &["spec.resources of the Seed refers to Secret garden/nothing, which the garden does not have"],
    );
    asks(&world, &json!({"resources": null}));
    world.wait_until_ready();
    agent.stop();
}

#[test]
fn an_existing_cluster_identity_is_kept() {
    let world = World::start(&Options::new("named"));
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "cluster-identity", "namespace": "kube-system"},
        "data": {"cluster-identity": "of-a-garden", "origin": "garden"}});
    world.seed.apply(&[map]);
    let agent = world.agent();
    world.wait_until_ready();
    assert_eq!(world.garden.seed("named").unwrap()["status"]["clusterIdentity"], "of-a-garden");
    let found = world.seed.get("", "configmaps", "kube-system", "cluster-identity").unwrap();
    assert_eq!(found["data"]["origin"], "garden");
    let managed = world.seed.store().names(MANAGED_RESOURCES, "managedresources", "garden");
    assert!(!managed.iter().any(|name| name == "cluster-identity"), "{managed:?}");
    agent.stop();
}

#[test]
fn what_a_conflict_has_stopped_is_written_in_the_same_round() {
    let world = World::start(&Options::new("conflicted"));
    let agent = world.agent();
    world.wait_until_ready();
    let place = ("garden", "system");
    let keeps = |keeps: Value| json!({"spec": {"keepObjects": keeps}});
    world.seed.merge(MANAGED_RESOURCES, "managedresources", place, &keeps(json!(true)));
    let conflict = world.seed.faults().on("PATCH", "/managedresources/system").once().answer(409);
    let mark = world.garden.request_count();
    asks(&world, &json!({"settings": {"scheduling": {"visible": false}}}));
    world.garden.wait_for("the end of the round", |_| {
        let ends = |r: &Recorded| r.is_write() && r.path.ends_with("/seeds/conflicted/status");
        let is_over =
            world.garden.requests_since(mark).iter().any(ends) && operation(&world)["state"] == "Succeeded";
        let seed = world.garden.seed(world.name)?;
        (is_over && seed["status"]["observedGeneration"] == seed["metadata"]["generation"]).then_some(())
    });
    let found = world.seed.get(MANAGED_RESOURCES, "managedresources", "garden", "system").unwrap();
    assert_eq!((conflict.hits(), found["spec"]["keepObjects"] == true), (1, false), "{found}");
    agent.stop();
}
