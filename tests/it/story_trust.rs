//! The CAs that the agent trusts for its garden, and the CAs that extensions get.

use std::time::Duration;

use serde_json::{Value, json};

use crate::charts;
use crate::story_extension::installed;
use crate::story_outside::without_secrets;
use crate::world::{Agent, Options, World};
use support::encoding::from_base64;
use support::garden::prepare;
use support::json::text;
use support::pki::Authority;

const PUBLIC: &str = "gardener-system-public";
const CA: (&str, &str) = (PUBLIC, "kube-root-ca.crt");
const RBAC: &str = "rbac.authorization.k8s.io";

fn asked_for_the_ca(world: &World) -> bool {
    world.garden.requests().iter().any(|request| request.path.contains("/configmaps/kube-root-ca.crt"))
}

/// A configuration for clocks that jump.
fn without_election(mut config: Value) -> Value {
    config["leaderElection"] = json!({"leaderElect": false});
    config
}

/// The garden publishes the CA of its internal servers; for this connection it has a certificate that the system's CAs
/// verify.
#[test]
fn a_custom_kubeconfig_keeps_its_cas() {
    let world = World::start(&Options::new("owner"));
    let user = format!("gardener.cloud:system:seed:{}", world.name);
    let mut own: Value =
        serde_json::from_str(&world.garden.kubeconfig_for(&user, &["gardener.cloud:system:seeds"])).unwrap();
    let cluster = own["clusters"][0]["cluster"].as_object_mut().unwrap();
    assert!(cluster.remove("certificate-authority-data").is_some());
    let inside = Authority::new("inside", world.clock.now()).certificate();
    world.garden.wait_for("the published CA", |garden| garden.get("", "configmaps", CA.0, CA.1));
    world.garden.merge("", "configmaps", CA, &json!({"data": {"ca.crt": inside}}));
    let path = world.file("garden.kubeconfig", &own.to_string());
    for secret in [None, Some(json!({"name": "gardenlet-kubeconfig", "namespace": "garden"}))] {
        let mut config = without_election(without_secrets(&world));
        config["gardenClientConnection"] = json!({"kubeconfig": path, "kubeconfigSecret": secret});
        let mut variables = world.pod();
        let system = world.file("garden.pem", &world.garden.ca());
        variables.insert("SSL_CERT_FILE".to_owned(), system.display().to_string());
        let agent = Agent::new(&world, "host-1", &config, variables);
        agent.launch();
        world.wait_until_ready();
        world.skip(Duration::from_secs(320));
        world.garden.wait_for("a heartbeat", |_| world.beat());
        assert_eq!(agent.problem("garden"), None);
        agent.stop();
    }
    assert!(!asked_for_the_ca(&world));
    assert!(world.seed.get("", "secrets", "garden", "gardenlet-kubeconfig").is_none());
}

/// The seeds do not have their Role in `gardener-system-public`.
#[test]
fn a_garden_that_forbids_reading_its_published_objects() {
    let world = World::start(&Options::new("withheld"));
    let role = "gardener.cloud:system:read-kube-root-ca.crt";
    let mut missing = world.garden.get(RBAC, "roles", PUBLIC, role).unwrap();
    missing["metadata"] = json!({"name": role, "namespace": PUBLIC});
    world.garden.delete(RBAC, "roles", PUBLIC, role);
    let info = world.garden.faults().on("GET", "/configmaps/gardener-info").answer(403);
    let agent = world.agent_with(&without_election(world.config()));
    world.extend("echo", &charts::extension(), &json!({"greeting": "hello"}));
    world.wait_until_ready();
    installed(&world, "echo");
    let words = ["ConfigMap gardener-system-public/kube-root-ca.crt", "gardener-system-public/gardener-info"];
    let message = |world: &World| world.seed_condition("GardenletReady").map(|(_, _, message)| message);
    world.garden.wait_for("the remark in the condition", |_| {
        let message = message(&world)?;
        words.iter().all(|word| message.contains(word)).then_some(())
    });
    agent.wait_for_problem("garden permissions", &["403"]);
    assert_eq!(agent.problem("garden"), None);
    world.wait_for_log(&[
        "WARN",
        "Continuing without a ConfigMap that the garden publishes",
        "kube-root-ca.crt",
    ]);
    // An administrator corrects it; the agent notices it by itself.
    world.garden.apply(&[missing]);
    info.cancel();
    world.skip(Duration::from_secs(320));
    world.garden.wait_for("the end of the remark", |_| {
        (!message(&world)?.contains(PUBLIC) && agent.problem("garden permissions").is_none()).then_some(())
    });
    agent.stop();
}

/// The number of CAs in the newest kubeconfig for extensions.
fn handed_on(world: &World, namespace: &str) -> usize {
    let deployment = world.seed.get("apps", "deployments", namespace, "echo").unwrap();
    let name = text(&deployment, "/spec/template/spec/volumes/0/projected/sources/0/secret/name").to_owned();
    let secret = world.seed.get("", "secrets", namespace, &name).unwrap();
    let kubeconfig = from_base64(text(&secret, "/data/kubeconfig")).unwrap();
    let kubeconfig = gardenlet::format::yaml::parse(&String::from_utf8(kubeconfig).unwrap()).unwrap();
    let ca = from_base64(text(&kubeconfig, "/clusters/0/cluster/certificate-authority-data")).unwrap();
    String::from_utf8(ca).unwrap().matches("BEGIN CERTIFICATE").count()
}

#[test]
fn extensions_get_a_new_ca_at_once() {
    let world = World::start(&Options::calm("handing"));
    let agent = world.agent_with(&without_election(world.config()));
    let mut objects = prepare::extension("echo", &charts::extension(), &json!({"greeting": "hello"}));
    objects[0]["injectGardenKubeconfig"] = json!(true);
    world.garden.apply(&objects);
    world.wait_until_ready();
    let namespace = format!("extension-{}", installed(&world, "echo"));
    assert_eq!(handed_on(&world, &namespace), 1);
    let old = world.garden.authority();
    let (year, now) = (Duration::from_secs(365 * 86_400), world.clock.now());
    world.garden.rotate_ca();
    world.garden.server().set_identity(&old.server(&[], now.minus(year), now.plus(year)));
    world.skip(Duration::from_secs(320));
    world.seed.wait_for("both CAs to be handed on", |_| (handed_on(&world, &namespace) == 2).then_some(()));
    assert!(world.clock.now().since(now) < Duration::from_secs(3_600));
    agent.stop();
}
