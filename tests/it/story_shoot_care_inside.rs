//! What care checks and does inside a Shoot: webhooks that could prevent its wake-up, definitions, pods.

use serde_json::{Value, json};

use crate::story_shoot_care::{NAME, cared_for, config, wait_for_entry, wait_until_absent, wait_until_well};
use crate::world::{Options, World};
use support::TestCluster;
use support::http::faults::Action;
use support::json::{entry, list, text};
use support::shoot::object::technical_id;

const ADMISSION: &str = "admissionregistration.k8s.io";
const VALIDATING: &str = "validatingwebhookconfigurations";

/// Gets requests for Secrets of all namespaces, and fails with its server.
fn dangerous() -> Value {
    json!({"metadata": {"name": "dangerous"}, "webhooks": [{"name": "all.example.org", "failurePolicy": "Fail",
        "timeoutSeconds": 10, "sideEffects": "None", "admissionReviewVersions": ["v1"],
        "clientConfig": {"url": "https://192.0.2.1/"},
        "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "resources": ["secrets"], "operations": ["CREATE"]}]}]})
}

fn wait_for_webhooks(world: &World, status: &str, reason: &str) -> Value {
    let told = wait_for_entry(world, "constraints", ("HibernationPossible", status, reason));
    wait_for_entry(world, "constraints", ("MaintenancePreconditionsSatisfied", status, reason));
    told
}

fn apply(cluster: &TestCluster, object: &Value) {
    cluster.create("admissionregistration.k8s.io/v1", VALIDATING, object);
}

#[test]
fn webhooks_and_definitions_are_constraints() {
    let world = World::start(&Options::new("shoot-hooked"));
    let site = world.site();
    let agent = cared_for(&world, &site, &config(&world));
    let shoot = &site.server(&technical_id(NAME)).unwrap().cluster;
    wait_for_webhooks(&world, "True", "NoProblematicWebhooks");
    apply(shoot, &dangerous());
    let told = wait_for_webhooks(&world, "False", "ProblematicWebhooks");
    assert_eq!(told["codes"], json!(["ERR_PROBLEMATIC_WEBHOOK"]));
    let what = "ValidatingWebhookConfiguration \"dangerous\" is problematic: webhook \"all.example.org\"";
    assert!(text(&told, "/message").starts_with(what), "{told}");
    shoot.delete(ADMISSION, VALIDATING, "", "dangerous");
    wait_for_webhooks(&world, "True", "NoProblematicWebhooks");
    // Its configuration is unchanged.
    let writes = shoot.requests().into_iter().filter(|r| r.is_write() && r.path.contains("/dangerous"));
    assert_eq!(writes.filter(|r| r.user != "admin").count(), 0);

    // Objects in two versions, which only a webhook can read.
    let version = |name: &str, storage: bool| {
        json!({"name": name, "served": true, "storage": storage,
            "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}})
    };
    let client = json!({"url": "https://192.0.2.1/"});
    let definition = json!({"metadata": {"name": "things.example.org"}, "spec": {"group": "example.org", "scope": "Namespaced",
        "names": {"plural": "things", "singular": "thing", "kind": "Thing", "listKind": "ThingList"},
        "conversion": {"strategy": "Webhook", "webhook": {"clientConfig": client, "conversionReviewVersions": ["v1"]}},
        "versions": [version("v1", true), version("v2", false)]}});
    shoot.create("apiextensions.k8s.io/v1", "customresourcedefinitions", &definition);
    let stored = |versions: &[&str]| {
        let status = json!({"status": {"storedVersions": versions}});
        shoot.merge_status(
            "apiextensions.k8s.io",
            "customresourcedefinitions",
            ("", "things.example.org"),
            &status,
        );
    };
    stored(&["v1", "v2"]);
    let kind = "CRDsWithProblematicConversionWebhooks";
    let told = wait_for_entry(&world, "constraints", (kind, "False", kind));
    assert!(text(&told, "/message").contains("things.example.org"), "{told}");
    stored(&["v2"]);
    wait_until_absent(&world, kind);
    wait_until_well(&world);
    agent.stop();
}

/// The owner of a Shoot can put a server of his own behind an API group.
#[test]
fn answers_without_limits_do_not_reach_the_agent() {
    let world = World::start(&Options::new("shoot-flooding"));
    let site = world.site();
    let agent = cared_for(&world, &site, &config(&world));
    let shoot = &site.server(&technical_id(NAME)).unwrap().cluster;
    wait_for_webhooks(&world, "True", "NoProblematicWebhooks");
    let floods = shoot.faults().on("GET", VALIDATING).then(Action::Flood(8 << 20));
    let told = wait_for_webhooks(&world, "Unknown", "ConditionCheckError");
    // It is named, and nothing was concluded from its absence.
    let message = text(&told, "/message");
    assert!(message.contains("ValidatingWebhookConfiguration flood: the object is too long"), "{message}");
    // A page without an end is not read to its end. Other checks continue.
    floods.cancel();
    let floods = shoot.faults().on("GET", "customresourcedefinitions").then(Action::Flood(64 << 20));
    apply(shoot, &dangerous());
    wait_for_webhooks(&world, "False", "ProblematicWebhooks");
    let kind = "CRDsWithProblematicConversionWebhooks";
    let told = wait_for_entry(&world, "constraints", (kind, "Unknown", "ConditionCheckError"));
    assert!(text(&told, "/message").contains("page of a list"), "{told}");
    assert_eq!(agent.get(2728, "/livez").0, 200);
    let skipped =
        agent.metrics.lock().unwrap().value("gardenlet_api_skipped_objects_total", &[("peer", "shoot")]);
    assert!(skipped.is_some_and(|skipped| skipped >= 1.0), "{skipped:?}");
    floods.cancel();
    shoot.delete(ADMISSION, VALIDATING, "", "dangerous");
    wait_for_webhooks(&world, "True", "NoProblematicWebhooks");
    wait_until_absent(&world, kind);
    wait_until_well(&world);
    agent.stop();
}

#[test]
fn webhooks_are_repaired_and_finished_pods_are_deleted() {
    let world = World::start(&Options::new("shoot-mended"));
    let site = world.site();
    let mut config = config(&world);
    config["controllers"]["shootCare"]["webhookRemediatorEnabled"] = json!(true);
    let agent = cared_for(&world, &site, &config);
    let shoot = &site.server(&technical_id(NAME)).unwrap().cluster;
    let mut excluded = dangerous();
    excluded["metadata"] = json!({"name": "excluded", "labels": {"remediation.webhook.shoot.gardener.cloud/exclude": "true",
        "app": "gardener-resource-manager"}});
    apply(shoot, &excluded);
    apply(shoot, &dangerous());
    let pod = |name: &str, namespace: &str| {
        let containers = json!([{"name": "x", "image": "x"}]);
        shoot.create(
            "v1",
            "pods",
            &json!({"metadata": {"name": name, "namespace": namespace}, "spec": {"containers": containers}}),
        );
        let status = json!({"status": {"phase": "Failed", "reason": "Evicted"}});
        shoot.merge_status("", "pods", (namespace, name), &status);
    };
    pod("evicted", "kube-system");
    pod("evicted", "default");

    let told = wait_for_webhooks(&world, "False", "RemediatedWebhooks");
    assert!(text(&told, "/message").contains("\"dangerous\""), "{told}");
    let mended = shoot.get(ADMISSION, VALIDATING, "", "dangerous").unwrap();
    let webhook = &mended["webhooks"][0];
    let left_out = list(webhook, "/namespaceSelector/matchExpressions");
    assert!(left_out.contains(
        &json!({"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": ["kube-system"]})
    ));
    assert_eq!((&webhook["failurePolicy"], &webhook["timeoutSeconds"]), (&json!("Fail"), &json!(10)));
    let note = entry(&mended, "/metadata/annotations", "gardener.cloud/warning").unwrap();
    assert!(note.contains("namespaceSelector of webhook \"all.example.org\" was extended"), "{note}");
    assert_eq!(
        shoot.get(ADMISSION, VALIDATING, "", "excluded").unwrap()["webhooks"][0]["namespaceSelector"],
        Value::Null
    );
    let remove = json!({"metadata": {"annotations": {"gardener.cloud/warning": null}}});
    shoot.merge(ADMISSION, VALIDATING, ("", "dangerous"), &remove);
    wait_for_webhooks(&world, "True", "NoProblematicWebhooks");

    shoot.wait_for("the end of the pod", |shoot| {
        shoot.get("", "pods", "kube-system", "evicted").is_none().then_some(())
    });
    assert!(shoot.get("", "pods", "default", "evicted").is_some());
    agent.stop();
}
