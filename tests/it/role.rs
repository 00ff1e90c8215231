//! The roles of `packaging/roles.txt` match the requests of the agent to its seed. The seed refuses no request (every
//! story checks that at its end), and some story uses each rule (`packaging/roles --unused`, at the end of the `it`
//! lane of tests/run). Only the applier uses the powerful account.

use gardenlet::components::crds;
use serde_json::{Value, json};

use crate::charts;
use crate::packaging;
use crate::story_extension::installed;
use crate::story_operating::Desk;
use crate::story_operating::events;
use crate::world::{CORE, MANAGED_RESOURCES, Options, World};
use support::TestCluster;
use support::garden::prepare;
use support::http::record::Recorded;
use support::json::text;

const APPLIER: &str = "system:serviceaccount:garden:gardener-resource-manager";
const DEFINITIONS: &str = "apiextensions.k8s.io";
const RBAC: &str = "rbac.authorization.k8s.io";
const ROLE: &str = "gardener.cloud:system:gardenlet";

/// One line of a file for `packaging/roles --unused`: verb, group, resource or path, namespace, name.
pub fn use_of(request: &Recorded) -> String {
    let info = &request.info;
    let thing = match (info.resource.as_str(), info.subresource.as_str()) {
        ("", _) => request.path.clone(),
        (resource, "") => resource.to_owned(),
        (resource, sub) => format!("{resource}/{sub}"),
    };
    [&info.verb, &info.group, &thing, &info.namespace, &info.name].map(String::as_str).join("\t")
}

/// A seed with work that other stories do not have: definitions to repair, and a gardener-resource-manager that must
/// give way with its webhooks.
fn occupy(seed: &TestCluster) {
    for mut definition in crds::all() {
        definition["spec"]["names"]["categories"] = json!(["spoiled"]);
        seed.apply(&[definition]);
    }
    let labels = json!({"app": "manager"});
    let webhooks = |kind: &str| {
        json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": kind,
            "metadata": {"name": "gardener-resource-manager"}})
    };
    seed.apply(&[
        webhooks("MutatingWebhookConfiguration"),
        webhooks("ValidatingWebhookConfiguration"),
        json!({"apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {"name": "gardener-resource-manager", "namespace": "garden"},
            "spec": {"replicas": 1, "selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels},
                "spec": {"containers": [{"name": "c", "image": "i"}]}}}}),
    ]);
}

/// A seed in whose cluster the garden runs.
pub fn put_garden_into(seed: &TestCluster) {
    let schema = json!({"openAPIV3Schema": {"type": "object"}});
    seed.apply(&[json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "gardens.operator.gardener.cloud"},
        "spec": {"group": "operator.gardener.cloud", "scope": "Cluster", "names": {"plural": "gardens", "kind": "Garden"},
            "versions": [{"name": "v1alpha1", "served": true, "storage": true, "schema": schema}]}})]);
    let is_served = |seed: &TestCluster| seed.api().kind("operator.gardener.cloud", "gardens").map(drop);
    seed.wait_for("the kind Garden", is_served);
    let service = |name: &str| {
        json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": name, "namespace": "garden"},
            "spec": {"clusterIP": "10.52.0.9", "ports": [{"port": 443}]}})
    };
    seed.apply(&[
        json!({"apiVersion": "operator.gardener.cloud/v1alpha1", "kind": "Garden", "metadata": {"name": "own"}}),
        service("virtual-garden-kube-apiserver"),
        service("virtual-garden-kube-apiserver-mtls"),
    ]);
}

/// An extension that serves all kinds and has access to the garden.
fn extension() -> Vec<Value> {
    let mut objects = prepare::extension("echo", &charts::extension(), &json!({"greeting": "hello"}));
    objects[0]["injectGardenKubeconfig"] = json!(true);
    let kinds = gardenlet::api::extensions::SERVED.iter();
    objects[1]["spec"]["resources"] = kinds.map(|kind| json!({"kind": kind.kind, "type": "echo"})).collect();
    objects
}

#[test]
fn rare_requests_are_allowed() {
    let world = World::start(&Options::new("modest"));
    occupy(&world.seed);
    let mut config = world.config();
    config["edge"]["resourceManager"] = json!("Embedded");
    let agent = world.agent_with(&config);
    world.garden.apply(&extension());
    let name = installed(&world, "echo");
    Desk::new(&world, |_| {}).explain(&["secret", "gardenlet-kubeconfig"]);
    let values = json!({"helm": {"values": {"greeting": "bye"}}});
    world.garden.merge(CORE, "controllerdeployments", ("", "echo"), &values);
    world.seed.wait_for("the new greeting", |seed| {
        let map = seed.get("", "configmaps", &format!("extension-{name}"), "echo")?;
        (map["data"]["greeting"] == "bye").then_some(())
    });
    world.seed.wait_for("the definitions to be repaired", |seed| {
        let is_spoiled = |definition: &Value| {
            let found =
                seed.get(DEFINITIONS, "customresourcedefinitions", "", text(definition, "/metadata/name"));
            found.is_none_or(|found| found["spec"]["names"]["categories"] == json!(["spoiled"]))
        };
        (!crds::all().any(|definition| is_spoiled(&definition))).then_some(())
    });
    world.seed.wait_for("gardener-resource-manager to make room", |seed| {
        let deployment = seed.get("apps", "deployments", "garden", "gardener-resource-manager")?;
        (deployment["spec"]["replicas"] == 0).then_some(())
    });
    // The agent creates one event for a certificate that it cannot renew, and then counts repetitions in it.
    let refused = world.garden.faults().on("POST", "/certificatesigningrequests").answer(503);
    let renew = json!({"metadata": {"annotations": {"gardener.cloud/operation": "renew"}}});
    world.seed.merge("", "secrets", ("garden", "gardenlet-kubeconfig"), &renew);
    world.seed.wait_for("an event that is counted", |seed| {
        let told = events(seed, world.name, "GardenletCertificateRotationFailed").pop()?;
        (told["series"]["count"].as_i64() >= Some(2)).then_some(())
    });
    refused.cancel();
    world.garden.delete(CORE, "controllerregistrations", "", "echo");
    world.garden.wait_for("the end of the installation", |garden| {
        garden.installations("echo").is_empty().then_some(())
    });
    agent.stop();
}

#[test]
fn the_agent_may_check_for_a_garden_in_its_cluster() {
    let world = World::start(&Options::new("modest-host"));
    put_garden_into(&world.seed);
    let agent = world.agent();
    world.garden.wait_for("the Seed to be ready", |_| {
        let (status, ..) = world.seed_condition("GardenletReady")?;
        (status == "True").then_some(())
    });
    agent.stop();
}

#[test]
fn other_requests_are_refused() {
    let world = World::start(&Options::new("modest-2"));
    let token = std::fs::read_to_string(world.path("serviceaccount").join("token")).unwrap();
    let kubeconfig = world.seed.bootstrap_kubeconfig(&token);
    let client = world.seed.client_from(&kubeconfig, gardenlet::kube::Options::default());
    for path in ["/api/v1/pods/x", "/api/v1/namespaces/garden/configmaps/x", "/apis/apps/v1/deployments"] {
        let response = client.raw(gardenlet::kube::Method::Get, path, None, "").unwrap();
        assert_eq!(response.status, 403, "{path}");
    }
    world.expect_refusals();
}

/// If another program applies ManagedResources, no request uses the account, and its rules do not exist.
#[test]
fn only_the_applier_uses_its_account() {
    let world = World::start(&Options::new("modest-3"));
    let binding = "gardener.cloud:system:gardener-resource-manager";
    world.seed.delete(RBAC, "clusterrolebindings", "", binding);
    world.seed.delete("", "serviceaccounts", "garden", "gardener-resource-manager");
    let external = packaging::rendered("everything");
    let is_of_garden = |o: &&Value| o["kind"] == "Role" && text(o, "/metadata/namespace") == "garden";
    let role =
        external.iter().filter(is_of_garden).find(|role| !text(role, "/metadata/name").contains("election"));
    let rules = json!({"rules": role.unwrap()["rules"]});
    assert!(!rules.to_string().contains("serviceaccounts"), "{rules}");
    world.seed.merge(RBAC, "roles", ("garden", ROLE), &rules);

    let mut config = world.config();
    config["edge"]["resourceManager"] = json!("External");
    let agent = world.agent_with(&config);
    world.garden.apply(&extension());
    let name = world.seed.wait_for("the ManagedResource", |seed| {
        let names = seed.store().names(MANAGED_RESOURCES, "managedresources", "garden");
        names.into_iter().find(|name| name.starts_with("echo-"))
    });
    let condition = |(kind, status): (&str, &str)| {
        json!({"type": kind, "status": status, "reason": "R", "message": "m",
            "lastTransitionTime": "2026-01-01T00:00:00Z", "lastUpdateTime": "2026-01-01T00:00:00Z"})
    };
    let conditions =
        [("ResourcesApplied", "True"), ("ResourcesHealthy", "True"), ("ResourcesProgressing", "False")];
    let status = json!({"status": {"observedGeneration": 1, "conditions": conditions.map(condition)}});
    world.seed.merge_status(MANAGED_RESOURCES, "managedresources", ("garden", &name), &status);
    installed(&world, "echo");
    world.garden.delete(CORE, "controllerregistrations", "", "echo");
    world.garden.wait_for("the end of the installation", |garden| {
        garden.installations("echo").is_empty().then_some(())
    });
    agent.stop();
    let of_applier = |request: &&Recorded| request.user == APPLIER || request.path.ends_with("/token");
    let requests = world.seed.requests();
    assert_eq!(
        requests.iter().filter(of_applier).map(Recorded::line).collect::<Vec<_>>(),
        Vec::<String>::new()
    );
}
