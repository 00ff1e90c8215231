//! A seed is handed over in the middle of the Go gardenlet's Seed flow: half of its components exist, one is not
//! applied yet, and its CA was just rotated. This agent continues, and does not damage unknown objects.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use gardenlet::base::clock::{Clock, Simulated};
use gardenlet::kube::Seed;
use gardenlet::pki::issue::{KeyUsage, ServerNames};
use gardenlet::secrets::{Options as Wanted, SecretConfig, Secrets, SecretsLocation, SecretsRotation};
use serde_json::{Value, json};

use crate::story_applier;
use crate::upstream::{self, End, GRM};
use crate::world::{CORE, LEASES, MANAGED_RESOURCES, Options, World};
use support::encoding::rfc3339;
use support::garden::prepare;
use support::http::record::Recorded;
use support::json::text;
use support::keys::FixtureKeys;

const ADMISSION: &str = "admissionregistration.k8s.io";
const CRDS: &str = "apiextensions.k8s.io";
const WEBHOOKS: [(&str, &str); 2] = [
    ("MutatingWebhookConfiguration", "mutatingwebhookconfigurations"),
    ("ValidatingWebhookConfiguration", "validatingwebhookconfigurations"),
];
const DAY: Duration = Duration::from_secs(86_400);
/// Definitions that the Go gardenlet had not installed yet.
const MISSING: [&str; 3] =
    ["machines.machine.sapcloud.io", "etcds.druid.gardener.cloud", "workers.extensions.gardener.cloud"];

/// One run of the secrets manager, like in the Go gardenlet's Seed flow, some time ago. Vectors from upstream's library
/// fix the names: `golden-secrets.json` and the tests of `src/secrets`.
fn secrets(world: &World, ago: Duration) {
    let place = SecretsLocation {
        client: Seed(world.seed.client()),
        namespace: "garden".to_owned(),
        identity: "gardenlet".to_owned(),
        keys: Arc::new(FixtureKeys::default()),
        clock: Clock::new(Simulated::new(world.clock.now().minus(ago), 1)),
    };
    let rotation = SecretsRotation { renews_cas: true, ..SecretsRotation::default() };
    let mut run = Secrets::load(place, &rotation).unwrap();
    let keep = Wanted { keep_old: true, ignore_old_after: Some(DAY), ..Wanted::default() };
    for name in ["ca-seed", "ca-istio-basic-auth-server"] {
        let ca = SecretConfig::Ca {
            name: name.to_owned(),
            common_name: if name == "ca-seed" { "kubernetes" } else { "istio-basic-auth-server" }.to_owned(),
            validity: Some(30 * DAY),
        };
        run.ensure(&ca, &keep).unwrap().unwrap();
    }
    let server = SecretConfig::Leaf {
        name: "gardener-resource-manager-server".to_owned(),
        common_name: GRM.1.to_owned(),
        organizations: Vec::new(),
        usage: KeyUsage::Server,
        names: ServerNames::default(),
        validity: None,
        skip_ca: true,
        with_chain: false,
    };
    let signed = Wanted { signed_by: Some("ca-seed".to_owned()), ..Wanted::default() };
    run.ensure(&server, &signed).unwrap().unwrap();
    run.clean_up().unwrap();
}

/// A component of upstream that this agent does not know.
fn weeder() -> String {
    "apiVersion: v1\ndata:\n  dep-config.yaml: |\n    servicesAndDependantSelectors: {}\nkind: ConfigMap\nmetadata:\n  \
     name: dependency-watchdog-weeder\n  namespace: garden\n---\napiVersion: apps/v1\nkind: Deployment\nmetadata:\n  \
     name: dependency-watchdog-weeder\n  namespace: garden\nspec:\n  replicas: 1\n  selector:\n    matchLabels:\n      \
     role: dependency-watchdog-weeder\n  template:\n    metadata:\n      labels:\n        \
     role: dependency-watchdog-weeder\n    spec:\n      containers:\n      - image: \
     registry.example.org/dependency-watchdog:v1.4.0\n        name: dwd\n      priorityClassName: \
     gardener-system-800\n"
        .to_owned()
}

/// The webhooks of gardener-resource-manager, which do not answer once it is scaled to 0, and those of an extension.
fn webhooks(world: &World) {
    story_applier::leave_webhooks(world);
    for (kind, plural) in WEBHOOKS {
        let object = json!({"kind": kind, "metadata": {"name": "of-an-extension"}});
        world.seed.create("admissionregistration.k8s.io/v1", plural, &object);
    }
}

/// The Go gardenlet was killed here.
fn midway(world: &World) {
    upstream::leave(world, End::Killed);
    // A CA that is older than that of a healthy seed, so that it is rotated.
    let present = world.seed.store().names("", "secrets", "garden");
    for name in present.iter().filter(|name| name.starts_with("ca-seed")) {
        world.seed.delete("", "secrets", "garden", name);
    }
    secrets(world, 25 * DAY);
    secrets(world, Duration::from_secs(1_800));
    upstream::component(world, "dependency-watchdog-weeder", &weeder());
    let map = "apiVersion: v1\ndata:\n  a: b\nkind: ConfigMap\nmetadata:\n  name: etcd-druid\n  namespace: garden\n";
    upstream::unapplied_component(world, "etcd-druid", map);
    // The flow would deploy it after the extensions, for which it waits.
    world.seed.delete("", "configmaps", "kube-system", "cluster-identity");
    let identity =
        world.seed.get(MANAGED_RESOURCES, "managedresources", "garden", "cluster-identity").unwrap();
    let secret = text(&identity, "/spec/secretRefs/0/name");
    world.seed.delete("", "secrets", "garden", secret);
    world.seed.merge(
        MANAGED_RESOURCES,
        "managedresources",
        ("garden", "cluster-identity"),
        &json!({"metadata": {"finalizers": null}}),
    );
    world.seed.delete(MANAGED_RESOURCES, "managedresources", "garden", "cluster-identity");
    for name in MISSING {
        world.seed.delete(CRDS, "customresourcedefinitions", "", name);
    }
    webhooks(world);
    let now = rfc3339(world.clock.now());
    let operation = json!({"type": "Reconcile", "state": "Processing", "progress": 42, "lastUpdateTime": now,
        "description": "Executing \"Seed reconciliation\": waiting for \"Waiting until required extensions are ready\""});
    world.garden.merge_status(
        CORE,
        "seeds",
        ("", world.name),
        &json!({"status": {"lastOperation": operation}}),
    );
}

/// The immutable parts of each Secret of the namespace `garden`, by its name.
fn kept(world: &World) -> BTreeMap<String, Value> {
    let all = world.seed.store().list("", "secrets", "garden");
    let of = |secret: &Value| json!([secret["metadata"]["uid"], secret["data"], secret["type"]]);
    all.iter().map(|secret| (text(secret, "/metadata/name").to_owned(), of(secret))).collect()
}

/// The specs of the ManagedResources, by their names.
fn managed(world: &World) -> BTreeMap<String, Value> {
    let all = world.seed.store().list(MANAGED_RESOURCES, "managedresources", "");
    let of = |managed: &Value| json!([managed["metadata"]["uid"], managed["spec"]]);
    all.iter().map(|managed| (text(managed, "/metadata/name").to_owned(), of(managed))).collect()
}

/// All earlier objects exist unchanged.
fn nothing_is_lost(before: &BTreeMap<String, Value>, after: &BTreeMap<String, Value>) {
    for (name, what) in before {
        assert_eq!(after.get(name), Some(what), "{name}");
    }
}

fn of_cas(names: &BTreeMap<String, Value>) -> BTreeSet<&str> {
    names.keys().map(String::as_str).filter(|name| name.starts_with("ca-")).collect()
}

/// It was scaled to 0, so it stops renewing its Lease.
fn resource_manager_obeys(world: &World) {
    world.seed.wait_for("the end of gardener-resource-manager", |seed| {
        let replicas = seed.get("apps", "deployments", GRM.0, GRM.1)?["spec"]["replicas"].clone();
        if replicas != 0 {
            upstream::resource_manager_renews(world);
            return None;
        }
        let released = json!({"spec": {"holderIdentity": "", "leaseDurationSeconds": 1}});
        seed.merge(LEASES, "leases", GRM, &json!(released));
        Some(())
    });
}

#[test]
fn a_seed_flow_that_the_go_gardenlet_began_is_completed() {
    let world = World::start(&Options::calm("halfway"));
    // The seed has a Shoot, which the agent checks.
    world.seed.apply(&prepare::access().1);
    midway(&world);
    let (secrets, mut resources) = (kept(&world), managed(&world));
    // The embedded applier has no webhooks that protect from deletions.
    assert!(resources.remove("system").is_some());
    let cas = of_cas(&secrets);
    assert!(cas.contains("ca-seed-fc28a8dd"), "{cas:?}");
    assert_eq!(cas.iter().filter(|name| name.starts_with("ca-seed-fc28a8dd-")).count(), 1, "{cas:?}");
    assert_eq!(cas.iter().filter(|name| name.starts_with("ca-seed-bundle-")).count(), 1, "{cas:?}");
    let class = world.seed.get("scheduling.k8s.io", "priorityclasses", "", "gardener-system-800");
    let mark = world.seed.request_count();

    let mut config = world.config();
    config["edge"]["resourceManager"] = json!("Embedded");
    let agent = world.agent_with(&config);
    resource_manager_obeys(&world);
    agent.wait_until_the_seed_side_runs();
    world.garden.wait_for("the end of the flow", |garden| {
        let seed = garden.seed(world.name)?;
        let ours = seed["status"]["gardener"]["name"] == "host-1";
        (ours && seed["status"]["lastOperation"]["state"] == "Succeeded").then_some(())
    });
    world.wait_for_condition("SeedSystemComponentsHealthy", "True");
    // Missing objects exist now.
    let map = world.seed.get("", "configmaps", "kube-system", "cluster-identity").unwrap();
    assert_eq!(
        map["data"]["cluster-identity"],
        world.garden.seed("halfway").unwrap()["status"]["clusterIdentity"]
    );
    for name in MISSING {
        assert!(world.seed.get(CRDS, "customresourcedefinitions", "", name).is_some(), "{name}");
    }
    assert_eq!(world.seed.store().names(ADMISSION, "validatingadmissionpolicies", "").len(), 2);
    let druid = world.seed.get("", "configmaps", "garden", "etcd-druid").unwrap();
    assert_eq!(druid["metadata"]["annotations"]["resources.gardener.cloud/origin"], "garden/etcd-druid");
    // Objects of the Go gardenlet's other components are kept.
    let uid = |object: &Option<Value>| object.as_ref().map(|object| object["metadata"]["uid"].clone());
    world.seed.delete("apps", "deployments", "garden", "dependency-watchdog-weeder");
    world.seed.wait_for("the Deployment again", |seed| {
        seed.get("apps", "deployments", "garden", "dependency-watchdog-weeder")
    });
    // Neither the first rounds nor the following minutes cause damage.
    world.pass(Duration::from_secs(300));
    let after = kept(&world);
    nothing_is_lost(&secrets, &after);
    assert_eq!(of_cas(&after), cas);
    nothing_is_lost(&resources, &managed(&world));
    assert_eq!(
        uid(&world.seed.get("scheduling.k8s.io", "priorityclasses", "", "gardener-system-800")),
        uid(&class)
    );
    let deleted: BTreeSet<String> = world
        .seed
        .requests_since(mark)
        .iter()
        .filter(|r| r.method == "DELETE" && r.status < 300 && r.user_agent.starts_with("gardenlet/"))
        .map(|r: &Recorded| r.path.clone())
        .collect();
    let expected = WEBHOOKS.map(|(_, plural)| format!("/apis/{ADMISSION}/v1/{plural}/{}", GRM.1));
    assert_eq!(deleted, expected.into());
    agent.stop();
}
