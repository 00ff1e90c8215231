//! The applier of ManagedResources in a seed, the agent or a gardener-resource-manager, and the consequences of that
//! choice.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use gardenlet::components::crds;
use serde_json::{Value, json};

use crate::charts;
use crate::story_extension::installed;
use crate::world::{Agent, CORE, LEASES, MANAGED_RESOURCES, Options, World, wait_for};
use support::encoding::rfc3339_micro;
use support::garden::prepare;
use support::http::faults::{Action, Seen, failure};
use support::http::record::Recorded;
use support::json::text;

const GRM: (&str, &str) = ("garden", "gardener-resource-manager");
const EXTENSIONS: &str = "extensions.gardener.cloud";

/// A deployed gardener-resource-manager, and the lease of a live one.
fn deploy(world: &World) {
    let labels = json!({"app": "gardener-resource-manager"});
    world.seed.apply(&[json!({"apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": "gardener-resource-manager", "namespace": "garden"},
        "spec": {"replicas": 2, "selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels},
            "spec": {"containers": [{"name": "c", "image": "i"}]}}}})]);
    let lease = json!({"metadata": {"name": "gardener-resource-manager", "namespace": "garden"}, "spec": lease_of(world)});
    world.seed.create("coordination.k8s.io/v1", "leases", &lease);
}

/// The other resource manager. Stories that run at the same time share a log, so each has a name of its own.
fn other(world: &World) -> String {
    format!("gardener-resource-manager-{}", world.name)
}

fn lease_of(world: &World) -> Value {
    let now = rfc3339_micro(world.clock.now());
    json!({"holderIdentity": other(world), "leaseDurationSeconds": 15, "acquireTime": now,
        "renewTime": now, "leaseTransitions": 3})
}

fn renew(world: &World) {
    world.seed.merge(LEASES, "leases", GRM, &json!({"spec": lease_of(world)}));
}

fn replicas(world: &World) -> Value {
    world.seed.get("apps", "deployments", GRM.0, GRM.1).unwrap()["spec"]["replicas"].clone()
}

fn holder(world: &World, lease: &str) -> String {
    let lease = world.seed.get(LEASES, "leases", "garden", lease).unwrap_or_default();
    text(&lease, "/spec/holderIdentity").to_owned()
}

fn agent_with(world: &World, resource_manager: &str) -> Agent {
    let mut config = world.config();
    config["edge"]["resourceManager"] = json!(resource_manager);
    world.agent_with(&config)
}

fn ready_message(world: &World) -> String {
    world.seed_condition("GardenletReady").map(|c| c.2).unwrap_or_default()
}

#[test]
fn an_explicit_choice_scales_a_resource_manager_to_zero() {
    let world = World::start(&Options::calm("chosen"));
    deploy(&world);
    let agent = agent_with(&world, "Embedded");
    world.seed.wait_for("the scale-down of the other one", |_| {
        renew(&world);
        (replicas(&world) == 0).then_some(())
    });
    world.wait_for_log(&["INFO", "Scaled to 0", "deployment=gardener-resource-manager"]);
    world.wait_until_ready();
    // Another client scales it up again, and it acquires the lease first.
    world.seed.merge("apps", "deployments", GRM, &json!({"spec": {"replicas": 1}}));
    world.seed.wait_for("its second scale-down", |_| {
        renew(&world);
        (replicas(&world) == 0).then_some(())
    });
    world.skip(Duration::from_secs(20));
    world.seed.wait_for("the lease", |_| holder(&world, GRM.1).starts_with("host-1_").then_some(()));
    agent.stop();
}

#[test]
fn without_that_choice_a_resource_manager_continues_and_conditions_report_it() {
    let world = World::start(&Options::calm("default"));
    deploy(&world);
    world.extend("echo", &charts::extension(), &json!({"greeting": "hello"}));
    let agent = world.agent();
    let upstream = "Gardenlet is posting ready status.";
    let passive = format!(
        "{upstream} The embedded applier of ManagedResources is passive: lease garden/gardener-resource-manager is held \
         by {}.",
        other(&world)
    );
    world.garden.wait_for("a condition with this message", |_| {
        renew(&world);
        (ready_message(&world) == passive).then_some(())
    });
    assert_eq!(world.seed_condition("GardenletReady").unwrap().0, "True");
    world.garden.wait_for("an installation with this message", |_| {
        renew(&world);
        let (status, reason, message) = world.installation_condition("echo", "Installed")?;
        let told = message.ends_with(passive.strip_prefix(upstream)?);
        (status == "False" && reason == "InstallationPending" && told).then_some(())
    });
    assert_eq!(replicas(&world), 2);
    let is_told = |line: &&String| line.contains(&other(&world)) && line.contains("stays passive");
    assert_eq!(world.log().iter().filter(is_told).count(), 1);

    world.skip(Duration::from_secs(20));
    installed(&world, "echo");
    world.garden.wait_for("the usual message", |_| (ready_message(&world) == upstream).then_some(()));
    assert_eq!(replicas(&world), 2);
    agent.stop();
}

#[test]
fn reports_of_another_resource_manager_are_passed_on_at_once() {
    let world = World::start(&Options::calm("external"));
    deploy(&world);
    world.extend("echo", &charts::extension(), &json!({"greeting": "hello"}));
    let mut config = world.config();
    config["edge"]["resourceManager"] = json!("External");
    // The next periodic round would be too late for this test.
    config["controllers"] = json!({"controllerInstallationCare": {"syncPeriod": "24h"}});
    let agent = world.agent_with(&config);
    let name = world.seed.wait_for("the ManagedResource", |seed| {
        let names = seed.store().names(MANAGED_RESOURCES, "managedresources", "garden");
        names.into_iter().find(|name| name.starts_with("echo-"))
    });
    let report = |status: &str, message: &str| {
        let condition = |kind: &str, status: &str| {
            json!({"type": kind, "status": status, "reason": "R", "message": message,
                "lastTransitionTime": "2026-01-01T00:00:00Z", "lastUpdateTime": "2026-01-01T00:00:00Z"})
        };
        let conditions = [
            condition("ResourcesApplied", "True"),
            condition("ResourcesHealthy", status),
            condition("ResourcesProgressing", "False"),
        ];
        let status = json!({"status": {"observedGeneration": 1, "conditions": conditions}});
        world.seed.merge_status(MANAGED_RESOURCES, "managedresources", ("garden", &name), &status);
    };
    let wait_for_healthy = |status: &str, words: &str| {
        world.garden.wait_for("the condition", |_| {
            let (found, _, message) = world.installation_condition("echo", "Healthy")?;
            (found == status && message.contains(words)).then_some(())
        });
    };
    report("True", "fine");
    wait_for_healthy("True", "healthy");
    // Before that, no watch could report a change.
    world.seed.wait_for("the watch of ManagedResources", |seed| {
        let requests = seed.requests();
        requests
            .iter()
            .any(|r| r.path.ends_with("/managedresources") && r.query.contains("watch="))
            .then_some(())
    });
    let mark = world.seed.request_count();
    const REPORTS: usize = 12;
    for n in 0..REPORTS {
        report("False", &format!("broken {n}"));
        wait_for_healthy("False", &format!("is False: broken {n}"));
    }
    // The agent knows all of it from the watch. The reconciler of the installation may read the object meanwhile, but
    // not for each report.
    let asked = world.seed.requests_since(mark);
    let reads: Vec<String> =
        asked.iter().filter(|r| r.method == "GET" && r.path.ends_with(&name)).map(Recorded::line).collect();
    assert!(reads.len() < REPORTS, "{reads:?}");
    assert_eq!(replicas(&world), 2);
    assert_eq!(holder(&world, GRM.1), other(&world));
    agent.stop();
}

#[test]
fn a_new_account_interrupts_the_applier_only_briefly() {
    let world = World::start(&Options::calm("renamed"));
    world.extend("echo", &charts::extension(), &json!({"greeting": "hello"}));
    let agent = world.agent();
    let name = installed(&world, "echo");
    let account = world.seed.get("", "serviceaccounts", GRM.0, GRM.1).unwrap();
    world.seed.delete("", "serviceaccounts", GRM.0, GRM.1);
    let begun = world.clock.mono();
    let fresh =
        json!({"metadata": {"name": GRM.1, "namespace": GRM.0, "labels": account["metadata"]["labels"]}});
    let mark = world.seed.request_count();
    world.seed.create("v1", "serviceaccounts", &fresh);
    let values = json!({"helm": {"values": {"greeting": "from the new account"}}});
    world.garden.merge(CORE, "controllerdeployments", ("", "echo"), &values);
    world.seed.wait_for("the new value", |seed| {
        let map = seed.get("", "configmaps", &format!("extension-{name}"), "echo")?;
        (map["data"]["greeting"] == "from the new account").then_some(())
    });
    let lasted = world.clock.mono().saturating_sub(begun);
    world.measured("an interruption by a new account", lasted, Duration::from_secs(120));
    let tokens = world.seed.requests_since(mark).iter().filter(|r| r.path.ends_with("/token")).count();
    assert!((1..=4).contains(&tokens), "{tokens} tokens");
    agent.stop();
}

#[test]
fn the_lease_is_released_only_after_the_last_write() {
    let world = World::start(&Options::calm("drained"));
    world.extend("echo", &charts::extension(), &json!({"greeting": "hello"}));
    let agent = world.agent();
    let name = installed(&world, "echo");
    let written = Arc::new(AtomicBool::new(false));
    let told = Arc::clone(&written);
    let slow =
        world.seed.faults().on("PUT", "/configmaps/echo").once().then(Action::Delay(Duration::from_secs(4)));
    let tell = Action::TellAfter(Arc::new(move |_| told.store(true, Ordering::SeqCst)));
    world.seed.faults().on("PUT", "/configmaps/echo").then(tell);
    let values = json!({"helm": {"values": {"greeting": "late"}}});
    world.garden.merge(CORE, "controllerdeployments", ("", "echo"), &values);
    wait_for("a slow write", || (slow.hits() == 1).then_some(()));
    // Another instance leads: the term ends in order.
    let spec = json!({"holderIdentity": "host-2_x", "leaseDurationSeconds": 15, "renewTime": rfc3339_micro(world.clock.now())});
    world.seed.merge(LEASES, "leases", ("garden", "gardenlet-leader-election"), &json!({"spec": spec}));
    world.seed.wait_for("the lease to be free", |_| {
        let free = holder(&world, GRM.1).is_empty();
        assert!(!free || written.load(Ordering::SeqCst), "a write came after the lease was released");
        free.then_some(())
    });
    let map = world.seed.get("", "configmaps", &format!("extension-{name}"), "echo").unwrap();
    assert_eq!(map["data"]["greeting"], "late");
    agent.stop();
}

#[test]
fn only_kinds_of_registered_extensions_are_listed() {
    let world = World::start(&Options::new("lists"));
    let agent = world.agent();
    world.wait_until_ready();
    world.extend("echo", &charts::extension(), &json!({"greeting": "hello"}));
    // Another one of the same kind and type, which is not the primary one: it counts, too.
    let mut second = prepare::extension("second", &[], &json!({}));
    second[0] = json!({"apiVersion": "core.gardener.cloud/v1beta1", "kind": "ControllerDeployment",
        "metadata": {"name": "second"}, "type": "custom", "providerConfig": {}});
    second[1]["spec"]["resources"] = json!([{"kind": "Extension", "type": "echo", "primary": false}]);
    world.garden.apply(&second);
    installed(&world, "echo");
    let object = json!({"apiVersion": "extensions.gardener.cloud/v1alpha1", "kind": "Extension",
        "metadata": {"name": "echo", "namespace": "garden"}, "spec": {"type": "echo"}});
    world.seed.create("extensions.gardener.cloud/v1alpha1", "extensions", &object);
    let required = |registration: &str, status: &str| {
        world.garden.wait_for(&format!("Required={status} of {registration}"), |_| {
            world.installation_condition(registration, "Required").filter(|c| c.0 == status)
        })
    };
    for registration in ["echo", "second"] {
        let (_, reason, message) = required(registration, "True");
        assert_eq!(reason, "ExtensionObjectsExist");
        assert_eq!(message, "extension objects still exist in the seed: [Extension/echo]");
    }
    world.seed.delete(EXTENSIONS, "extensions", "garden", "echo");
    ["echo", "second"].into_iter().for_each(|registration| drop(required(registration, "False")));
    let listed = |r: &&Recorded| {
        r.method == "GET"
            && r.info.group == EXTENSIONS
            && r.info.verb == "list"
            && r.info.namespace.is_empty()
    };
    let kinds: std::collections::BTreeSet<String> =
        world.seed.requests().iter().filter(listed).map(|r| r.path.clone()).collect();
    // Besides Extensions: the kinds that the provider of the seed serves, and the kinds that the controllers of backups
    // watch.
    let served = [
        "backupbuckets",
        "backupentries",
        "controlplanes",
        "dnsrecords",
        "extensions",
        "infrastructures",
        "workers",
    ];
    let expected = served.map(|kind| format!("/apis/extensions.gardener.cloud/v1alpha1/{kind}"));
    assert_eq!(kinds.into_iter().collect::<Vec<_>>(), expected);
    agent.stop();
}

const ADMISSION: &str = "admissionregistration.k8s.io";
const WEBHOOKS: [(&str, &str); 2] = [
    ("MutatingWebhookConfiguration", "mutatingwebhookconfigurations"),
    ("ValidatingWebhookConfiguration", "validatingwebhookconfigurations"),
];

/// What remains of a gardener-resource-manager with zero replicas.
pub fn leave_webhooks(world: &World) {
    let service = json!({"namespace": "garden", "name": "gardener-resource-manager", "port": 443});
    let webhook = json!({"name": "high-availability-config.resources.gardener.cloud", "failurePolicy": "Fail",
        "sideEffects": "None", "admissionReviewVersions": ["v1"], "clientConfig": {"service": service}});
    for (kind, _) in WEBHOOKS {
        world.seed.apply(&[json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": kind,
            "metadata": {"name": "gardener-resource-manager"}, "webhooks": [webhook]})]);
    }
}

fn webhooks(world: &World) -> usize {
    WEBHOOKS.iter().filter(|(_, plural)| world.seed.get(ADMISSION, plural, "", GRM.1).is_some()).count()
}

/// The server refuses writes of an extension's objects, as it does when a webhook does not answer.
fn refuse_writes(world: &World) -> support::http::faults::Ordered {
    let mut refusal = failure(500, None);
    refusal.message = "Internal error occurred: failed calling webhook \
        \"high-availability-config.resources.gardener.cloud\": failed to call webhook: Post \
        \"https://gardener-resource-manager.garden.svc:443/webhooks\": no endpoints available for service \
        \"gardener-resource-manager\""
        .to_owned();
    let removed = AtomicU32::new(0);
    let is_refused = move |seen: &Seen| {
        if seen.method == "DELETE" && seen.path.contains("webhookconfigurations") {
            removed.fetch_add(1, Ordering::SeqCst);
        }
        let is_write = matches!(seen.method.as_str(), "POST" | "PUT") && seen.path.contains("/configmaps");
        is_write && removed.load(Ordering::SeqCst) < 2
    };
    world.seed.faults().when(is_refused).then(Action::Refuse(refusal))
}

const COMMAND: &str = "unless it comes back, run: kubectl delete \
    mutatingwebhookconfiguration,validatingwebhookconfiguration gardener-resource-manager";

#[test]
fn leftover_webhooks_are_reported_with_the_command_that_removes_them() {
    let world = World::start(&Options::calm("hooked"));
    leave_webhooks(&world);
    let refused = refuse_writes(&world);
    world.extend("echo", &charts::extension(), &json!({"greeting": "hello"}));
    let agent = world.agent();
    world
        .garden
        .wait_for("a condition with this message", |_| ready_message(&world).contains(COMMAND).then_some(()));
    world.garden.wait_for("an installation with this message", |_| {
        let (status, reason, message) = world.installation_condition("echo", "Installed")?;
        let is_told = message.contains("failed calling webhook") && message.contains(COMMAND);
        (status == "False" && reason == "InstallationPending" && is_told).then_some(())
    });
    assert!(refused.hits() > 0);
    let both = "MutatingWebhookConfiguration and ValidatingWebhookConfiguration";
    agent.wait_for_problem("gardener-resource-manager-webhooks", &[both, COMMAND]);
    // Nothing was removed: the operator has to do that.
    assert_eq!(webhooks(&world), 2);
    for (_, plural) in WEBHOOKS {
        world.seed.delete(ADMISSION, plural, "", GRM.1);
    }
    refused.cancel();
    world.skip(Duration::from_secs(300));
    installed(&world, "echo");
    let upstream = "Gardenlet is posting ready status.";
    world.garden.wait_for("the usual message", |_| (ready_message(&world) == upstream).then_some(()));
    agent.wait_until_no_problem("gardener-resource-manager-webhooks");
    agent.stop();
}

#[test]
fn an_explicit_choice_removes_leftover_webhooks() {
    let world = World::start(&Options::calm("unhooked"));
    leave_webhooks(&world);
    refuse_writes(&world);
    world.extend("echo", &charts::extension(), &json!({"greeting": "hello"}));
    let agent = agent_with(&world, "Embedded");
    installed(&world, "echo");
    assert_eq!(webhooks(&world), 0);
    world.wait_for_log(&["INFO", "Removed webhook configurations", "kind=ValidatingWebhookConfiguration"]);
    agent.stop();
    // Another client restores them: the next start checks again.
    leave_webhooks(&world);
    let agent = agent_with(&world, "Embedded");
    world.seed.wait_for("their end", |_| (webhooks(&world) == 0).then_some(()));
    agent.stop();
}

/// Definitions with an extra category; `true` for those that were repaired.
fn spoil(world: &World) {
    for mut definition in crds::all() {
        definition["spec"]["names"]["categories"] = json!(["spoiled"]);
        world.seed.apply(&[definition]);
    }
}

fn is_repaired(world: &World, name: &str) -> bool {
    let definition = world.seed.get("apiextensions.k8s.io", "customresourcedefinitions", "", name).unwrap();
    definition["spec"]["names"]["categories"] != json!(["spoiled"])
}

#[test]
fn in_the_cluster_of_the_garden_its_operator_keeps_its_objects() {
    let world = World::start(&Options::calm("hosting"));
    crate::role::put_garden_into(&world.seed);
    spoil(&world);
    deploy(&world);
    leave_webhooks(&world);
    let agent = agent_with(&world, "Embedded");
    world.seed.wait_for("a definition to be repaired", |_| {
        renew(&world);
        is_repaired(&world, "workers.extensions.gardener.cloud").then_some(())
    });
    agent.wait_for_problem(GRM.1, &["belongs to gardener-operator", "edge.resourceManager: External"]);
    for kept in ["managedresources.resources", "extensions.extensions", "backupbuckets.extensions"] {
        assert!(!is_repaired(&world, &format!("{kept}.gardener.cloud")), "{kept}");
    }
    assert_eq!((replicas(&world), webhooks(&world)), (json!(2), 2));
    agent.stop();
}

#[test]
fn a_self_hosted_shoot_is_refused() {
    let world = World::start(&Options::calm("own-host"));
    let labels = json!({"metadata": {"labels": {"gardener.cloud/role": "shoot"}}});
    world.seed.merge("", "namespaces", ("", "kube-system"), &labels);
    let agent = world.agent();
    for part in ["garden", "seed"] {
        agent.wait_for_problem(part, &["self-hosted shoot", "not supported"]);
    }
    assert!(world.garden.get(CORE, "seeds", "", "own-host").is_none());
    assert!(
        world
            .seed
            .get("apiextensions.k8s.io", "customresourcedefinitions", "", "workers.extensions.gardener.cloud")
            .is_none()
    );
    world.seed.merge(
        "",
        "namespaces",
        ("", "kube-system"),
        &json!({"metadata": {"labels": {"gardener.cloud/role": null}}}),
    );
    world.skip(Duration::from_secs(60));
    world.wait_until_ready();
    agent.stop();
}
