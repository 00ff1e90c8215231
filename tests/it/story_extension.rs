//! An extension is registered in the garden: the agent installs its chart in the seed, watches it, renews it and
//! removes it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde_json::{Value, json};

use crate::charts;
use crate::world::{AGENT, CORE, MANAGED_RESOURCES, Options, World, condition};
use support::garden::prepare;
use support::http::faults::{Action, Seen};
use support::http::record::Recorded;
use support::json::text;

const DEPLOYMENTS: &str = "controllerdeployments";
const APPLIER: &str = "system:serviceaccount:garden:gardener-resource-manager";
const REGISTRATIONS: &str = "controllerregistrations";

#[test]
fn a_chart_is_installed_renewed_and_removed() {
    let world = World::start(&Options::new("extended"));
    let agent = world.agent();
    world.garden.apply(&prepare::extension("echo", &charts::extension(), &json!({"greeting": "hello"})));
    world.wait_until_ready();
    let name = installed(&world, "echo");
    what_stands_in_the_seed(&world, &name, "hello");
    world.wait_for_condition("ExtensionsReady", "True");

    let values = json!({"helm": {"values": {"greeting": "good morning"}}});
    world.garden.merge(CORE, DEPLOYMENTS, ("", "echo"), &values);
    world.seed.wait_for("the new value", |seed| {
        let echo = seed.get("example.org", "echoes", &format!("extension-{name}"), "first")?;
        (echo["spec"]["text"] == "good morning").then_some(())
    });
    what_stands_in_the_seed(&world, &name, "good morning");
    assert_eq!(installed(&world, "echo"), name);

    world.garden.delete(CORE, REGISTRATIONS, "", "echo");
    world.garden.wait_for("the end of the installation", |_| {
        world.garden.installations("echo").is_empty().then_some(())
    });
    nothing_is_left(&world, &name);
    agent.stop();
    // The Secret of the first values is garbage: it has no references, and it is deleted when it is old enough.
    world.time.advance(Duration::from_secs(11 * 60));
    agent.launch();
    world.seed.wait_for("the collection of garbage", |seed| {
        // Secrets of existing ManagedResources, and copies from the garden.
        let managed = seed.store().list(MANAGED_RESOURCES, "managedresources", "garden");
        let mut expected: Vec<String> =
            managed.iter().map(|m| text(m, "/spec/secretRefs/0/name").to_owned()).collect();
        expected.extend(["gardenlet-kubeconfig", "seed-global-monitoring"].map(str::to_owned));
        let is_of_ca = |name: &String| name.starts_with("ca-seed-");
        expected.extend(seed.store().names("", "secrets", "garden").into_iter().filter(is_of_ca));
        expected.sort();
        (seed.store().names("", "secrets", "garden") == expected).then_some(())
    });
    agent.stop();
}

/// Waits until the installation of a registration is healthy, and returns its name.
pub fn installed(world: &World, registration: &str) -> String {
    world.garden.wait_for(&format!("the installation of {registration}"), |_| {
        let installation = world.garden.installations(registration).pop()?;
        let says = |kind: &str| condition(&installation, kind).map(|(status, reason, _)| (status, reason));
        let expected = [
            ("Valid", "True", "RegistrationValid"),
            ("Installed", "True", "InstallationSuccessful"),
            ("Healthy", "True", "ControllerHealthy"),
            ("Progressing", "False", "ControllerRolledOut"),
            ("Required", "False", "NoExtensionObjects"),
        ];
        let good = expected
            .into_iter()
            .all(|(kind, status, reason)| says(kind) == Some((status.to_owned(), reason.to_owned())));
        good.then(|| text(&installation, "/metadata/name").to_owned())
    })
}

fn what_stands_in_the_seed(world: &World, name: &str, greeting: &str) {
    let seed = &world.seed;
    let namespace = format!("extension-{name}");
    let object = seed.get("", "namespaces", "", &namespace).unwrap();
    let labels = &object["metadata"]["labels"];
    assert_eq!(labels["gardener.cloud/role"], "extension");
    assert_eq!(labels["controllerregistration.core.gardener.cloud/name"], "echo");
    let managed = seed.get(MANAGED_RESOURCES, "managedresources", "garden", name).unwrap();
    assert_eq!(
        managed["metadata"]["labels"],
        json!({"controllerinstallation-name": name, "controllerregistration-name": "echo"})
    );
    let secret = text(&managed, "/spec/secretRefs/0/name");
    assert_eq!(managed["spec"], json!({"class": "seed", "secretRefs": [{"name": secret}]}));
    let data = seed.get("", "secrets", "garden", secret).unwrap();
    assert_eq!((&data["immutable"], &data["type"]), (&json!(true), &json!("Opaque")));
    let deployment = seed.get("apps", "deployments", &namespace, "echo").unwrap();
    let container = &deployment["spec"]["template"]["spec"]["containers"][0];
    assert_eq!(container["env"], json!([{"name": "SEED_NAME", "value": "extended"}]));
    assert_eq!(container["args"], json!([format!("--greeting={greeting}")]));
    assert_eq!(deployment["metadata"]["labels"]["resources.gardener.cloud/managed-by"], "gardener");
    let map = seed.get("", "configmaps", &namespace, "echo").unwrap();
    assert_eq!(map["data"], json!({"greeting": greeting}));
    assert!(seed.get("", "serviceaccounts", &namespace, "echo").is_some());
    assert!(seed.get("rbac.authorization.k8s.io", "clusterroles", "", "echo").is_some());
    assert!(seed.get("rbac.authorization.k8s.io", "clusterrolebindings", "", "echo").is_some());
    let echo = seed.get("example.org", "echoes", &namespace, "first").unwrap();
    assert_eq!(echo["spec"], json!({"text": greeting}));
}

/// facts: nothing of an installation survives it.
pub fn nothing_is_left(world: &World, name: &str) {
    let seed = &world.seed;
    let gone = |what: &str, found: Option<Value>| assert_eq!(found, None, "{what}");
    gone("namespace", seed.get("", "namespaces", "", &format!("extension-{name}")));
    gone("managed resource", seed.get(MANAGED_RESOURCES, "managedresources", "garden", name));
    gone("role", seed.get("rbac.authorization.k8s.io", "clusterroles", "", "echo"));
    gone("binding", seed.get("rbac.authorization.k8s.io", "clusterrolebindings", "", "echo"));
    let definition = "echoes.example.org";
    gone("definition", seed.get("apiextensions.k8s.io", "customresourcedefinitions", "", definition));
}

/// The budget of docs/numbers.md: an idle seed gets at most 66 requests a minute, 30 of which are writes, which wear
/// out its flash. The garden gets 33.
#[test]
fn an_idle_agent_sends_few_requests() {
    let world = World::start(&Options::new("idle"));
    let mut config = world.config();
    // A slow machine must not lose the Lease. It is renewed as often as with the usual duration.
    config["leaderElection"] = json!({"leaseDuration": "300s", "renewDeadline": "200s"});
    let agent = world.agent_with(&config);
    world.extend("echo", &charts::extension(), &json!({"greeting": "hello"}));
    world.wait_until_ready();
    installed(&world, "echo");
    // All installed objects are checked once more after a minute.
    world.let_pass(Duration::from_secs(90));
    let (mark, begin) = (world.seed.request_count(), world.clock.mono());
    let mark_of_garden = world.garden.request_count();
    world.let_pass(Duration::from_secs(240));
    let minutes = (world.clock.mono() - begin).as_secs_f64() / 60.0;
    let (all, of_garden) =
        (world.seed.requests().split_off(mark), world.garden.requests().split_off(mark_of_garden));
    let of_agent: Vec<&Recorded> =
        all.iter().filter(|request| [AGENT, APPLIER].contains(&request.user.as_str())).collect();
    let writes = of_agent.iter().filter(|request| request.is_write()).count();
    let mut kinds = BTreeMap::<String, usize>::new();
    for request in &of_agent {
        let what = if request.info.resource.is_empty() { &request.path } else { &request.info.resource };
        *kinds.entry(format!("{} {what}", request.info.verb)).or_default() += 1;
    }
    // Discovery is renewed now and then, with a request per group.
    let within = |count: usize, max: f64| count as f64 <= max * minutes + 10.0;
    assert!(within(of_agent.len(), 66.0), "{} in {minutes:.1} minutes: {kinds:#?}", of_agent.len());
    let own =
        of_garden.iter().filter(|request| request.user.starts_with("gardener.cloud:system:seed:")).count();
    assert!(
        within(own, 33.0) && own > 0,
        "{own} of {} to the garden in {minutes:.1} minutes",
        of_garden.len()
    );
    assert!(within(writes, 30.0) && writes > 0, "{writes} in {minutes:.1} minutes: {kinds:#?}");
    agent.stop();
}

/// The extension is unhealthy for a moment. When it is healthy again, the agent has not yet seen its own report of the
/// failure.
#[test]
fn a_report_is_corrected_although_the_watch_is_late() {
    let world = World::start(&Options::new("late-watch"));
    let is_late = Arc::new(AtomicBool::new(false));
    let begins = is_late.clone();
    let late = Action::Late(Arc::new(move |_| begins.swap(false, Ordering::SeqCst)), Duration::from_secs(60));
    let is_watch = |seen: &Seen| seen.is_watch() && seen.info.resource == "controllerinstallations";
    world.garden.faults().when(is_watch).then(late);
    let mut config = world.config();
    config["controllers"] = json!({"controllerInstallationCare": {"syncPeriod": "24h"}});
    let agent = world.agent_with(&config);
    world.garden.apply(&prepare::extension("echo", &charts::extension(), &json!({"greeting": "hello"})));
    let place = (&*format!("extension-{}", installed(&world, "echo")), "echo");
    let well = world.seed.get("apps", "deployments", place.0, place.1).unwrap();
    is_late.store(true, Ordering::SeqCst);
    let ill = json!({"status": {"conditions": [{"type": "Available", "status": "False"}]}});
    world.seed.merge_status("apps", "deployments", place, &ill);
    world.garden.wait_for("the report", |_| {
        world.installation_condition("echo", "Healthy").filter(|c| c.0 == "False")
    });
    world.seed.merge_status("apps", "deployments", place, &json!({"status": well["status"]}));
    installed(&world, "echo");
    agent.stop();
}
