//! Who runs the etcds of a Shoot stays the same for its life, whatever the configuration says later.

use serde_json::{Value, json};

use crate::story_shoot_care::{self, NAME, PLACE};
use crate::story_shoot_delete::Scene;
use crate::world::{CORE, Options, World};
use support::json::text;
use support::shoot::history::{wait_for_success, wait_until_created};
use support::shoot::object::{ShootObject, technical_id};

const DRUID: &str = "druid.gardener.cloud";
const CHOICE: &str = "/metadata/annotations/edge.gardenlet~1etcd";

fn etcd(world: &World) -> Option<Value> {
    world.seed.get(DRUID, "etcds", &technical_id(NAME), "etcd-main")
}

fn stateful_set(world: &World) -> Option<Value> {
    world.seed.get("apps", "statefulsets", &technical_id(NAME), "etcd-main")
}

fn choice(world: &World) -> String {
    let namespace = world.seed.get("", "namespaces", "", &technical_id(NAME));
    namespace.map(|namespace| text(&namespace, CHOICE).to_owned()).unwrap_or_default()
}

#[test]
fn a_new_configuration_changes_no_existing_etcd() {
    let world = World::start(&Options::new("shoot-etcd-stays"));
    let site = world.site();
    let mut config = story_shoot_care::config(&world);
    let agent = world.agent_of(&site, &config);
    agent.launch();
    world.wait_until_ready();
    world.garden.apply(&[ShootObject::workerless(NAME).build()]);
    wait_until_created(&world.garden, PLACE);
    assert_eq!(choice(&world), "Plain");
    let before = stateful_set(&world).unwrap();

    // For new Shoots only. No druid runs here, so an Etcd would never become ready.
    config["edge"]["etcd"]["mode"] = json!("Druid");
    agent.reload(&config);
    let reconcile = json!({"metadata": {"annotations": {"gardener.cloud/operation": "reconcile"}}});
    world.garden.merge(CORE, "shoots", PLACE, &reconcile);
    world.garden.wait_for("the start of the reconciliation", |garden| {
        let shoot = garden.get(CORE, "shoots", PLACE.0, PLACE.1)?;
        (shoot["status"]["lastOperation"]["type"] == "Reconcile").then_some(())
    });
    wait_for_success(&world.garden, PLACE);
    assert_eq!((etcd(&world), choice(&world).as_str()), (None, "Plain"));
    assert_eq!(stateful_set(&world).unwrap()["metadata"]["uid"], before["metadata"]["uid"]);
    agent.stop();
}

#[test]
fn an_etcd_of_a_druid_stays_with_it() {
    let scene = Scene::new("shoot-etcd-druid");
    let (world, plane) = (scene.world(), technical_id(NAME));
    // Another gardenlet has created it.
    let metadata = |name: &str| json!({"name": name, "namespace": plane});
    world.seed.apply(&[
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": plane}}),
        json!({"apiVersion": "druid.gardener.cloud/v1alpha1", "kind": "Etcd", "metadata": metadata("etcd-main"),
            "spec": {"replicas": 1, "storageCapacity": "80Gi"}}),
        json!({"apiVersion": "druid.gardener.cloud/v1alpha1", "kind": "Etcd", "metadata": metadata("etcd-events"),
            "spec": {"replicas": 1}}),
    ]);
    scene.create();
    let asked = world.seed.wait_for("a request to the druid", |_| {
        let etcd = etcd(world)?;
        let is_asked = etcd["metadata"]["annotations"]["gardener.cloud/operation"] == "reconcile";
        (is_asked && choice(world) == "Druid").then_some(etcd)
    });
    assert_eq!(asked["spec"]["storageCapacity"], "80Gi", "a volume keeps its size");
    assert!(
        asked["spec"]["etcd"]["peerUrlTls"].is_object() || asked["spec"]["etcd"]["clientUrlTls"].is_object()
    );
    assert_eq!(stateful_set(world), None);
    // Without a configuration that names a druid, and before a druid has made a StatefulSet.
    let unready = ("ControlPlaneHealthy", "Progressing", "EtcdUnhealthy");
    story_shoot_care::wait_for_entry(world, "conditions", unready);

    scene.delete();
    scene.wait_until_gone();
    assert_eq!(etcd(world), None);
}
