//! What people see of moves: `status`, the page, the metrics, `explain` and `doctor` of a seed from which Shoots leave, and to
//! which others come. The test writes what the other seed would.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::commands::command;
use crate::story_operating::Desk;
use crate::story_probes::series;
use crate::world::{Agent, CORE, Options, World, wait_for};
use support::json::{list, text};
use support::options::is_long;
use support::shoot::object::{PROJECT_NAMESPACE, ShootObject};

/// The other seed.
const OTHER: &str = "elsewhere";

/// Another Seed, with an older gardenlet and without backups.
fn add_other(world: &World) {
    let spec = world.garden.seed(world.name).unwrap()["spec"].clone();
    let seed = json!({"apiVersion": format!("{CORE}/v1beta1"), "kind": "Seed", "metadata": {"name": OTHER}, "spec": spec});
    world.garden.apply(&[seed]);
    let status = json!({"gardener": {"id": "i", "name": "n", "version": "v1.149.1"}});
    world.garden.merge_status(CORE, "seeds", ("", OTHER), &json!({"status": status}));
}

/// A Shoot that the agent only looks at, on a seed and with a last operation.
fn add_shoot(world: &World, name: &str, present: &str, last: (&str, &str, u32)) {
    let shoot =
        ShootObject::workerless(name).bound_to(world.name).annotated("shoot.gardener.cloud/ignore", "true");
    world.garden.apply(&[shoot.build()]);
    world.garden.wait_for("the first look of the agent", |garden| {
        let shoot = garden.get(CORE, "shoots", PROJECT_NAMESPACE, name)?;
        shoot["status"]["lastOperation"].is_object().then_some(())
    });
    let (kind, state, progress) = last;
    let last = json!({"type": kind, "state": state, "progress": progress, "description": "d",
        "lastUpdateTime": gardenlet::format::time::rfc3339(world.clock.now())});
    let status = json!({"lastOperation": last, "seedName": present, "observedGeneration": 1});
    world.garden.merge_status(CORE, "shoots", (PROJECT_NAMESPACE, name), &json!({"status": status}));
}

fn bind(world: &World, name: &str) {
    world.move_in_storage((CORE, "shoots"), (PROJECT_NAMESPACE, name));
}

fn moves(agent: &Agent) -> BTreeMap<String, (Value, Value, Value)> {
    let page: Value = serde_json::from_str(&agent.get(2728, "/statusz?format=json").1).unwrap();
    let one = |shoot: &Value| {
        let told = (shoot["move"].clone(), shoot["otherSeed"].clone(), shoot["progress"].clone());
        (text(shoot, "/name").to_owned(), told)
    };
    list(&page, "/shoots").iter().map(one).collect()
}

#[test]
fn a_move_is_told_on_both_sides() {
    if !is_long() {
        return;
    }
    let world = World::start(&Options { factor: 1, ..Options::calm("move-told") });
    let site = world.site();
    let mut config = world.edge_config();
    config["controllers"] = json!({"shoot": {"respectSyncPeriodOverwrite": true}});
    let agent = world.agent_of(&site, &config);
    agent.launch();
    world.wait_until_ready();
    add_other(&world);
    let reconciled = ("Reconcile", "Succeeded", 100);
    add_shoot(&world, "stays", world.name, reconciled);
    add_shoot(&world, "waits", world.name, reconciled);
    add_shoot(&world, "leaves", world.name, ("Migrate", "Processing", 40));
    add_shoot(&world, "comes", OTHER, ("Migrate", "Processing", 60));
    add_shoot(&world, "arrives", world.name, ("Migrate", "Succeeded", 100));
    bind(&world, "waits");
    bind(&world, "leaves");

    let expected = [
        ("arrives", (json!("arriving"), Value::Null, json!(100))),
        ("comes", (json!("arriving"), json!(OTHER), json!(60))),
        ("leaves", (json!("leaving"), json!(OTHER), json!(40))),
        ("stays", (Value::Null, Value::Null, json!(100))),
        ("waits", (json!("leaving"), json!(OTHER), json!(100))),
    ];
    let expected: BTreeMap<String, _> = expected.map(|(name, told)| (name.to_owned(), told)).into();
    wait_for("the moves on the page", || (moves(&agent) == expected).then_some(()));
    let (_, output, _) = command(&["status", &format!("--address={}:2728", agent.probes)], &BTreeMap::new());
    for (name, words) in [
        ("leaves", "Migrate Processing 40 %, "),
        ("leaves", "leaves for seed elsewhere"),
        ("comes", "comes from seed elsewhere"),
        ("arrives", "is restored after its move"),
    ] {
        let line = output.lines().find(|line| line.starts_with(&format!("  garden-p/{name}: ")));
        assert!(line.is_some_and(|line| line.contains(words)), "{name} {words}: {output}");
    }
    let metrics = agent.get(2729, "/metrics").1;
    let count =
        |direction: &str| series(&metrics, &format!("gardenlet_moving_shoots{{direction=\"{direction}\"}}"));
    assert_eq!((count("leaving"), count("arriving")), (Some(2.0), Some(2.0)));

    let desk = Desk::new(&world, |_| {});
    let versions = "Seed move-told has no spec.backup; Seed elsewhere has no spec.backup; status.gardener.version is \"v1.150.0\" in \
        Seed move-told and \"v1.149.1\" in Seed elsewhere, and must be equal";
    for (name, words) in [
        ("stays", "- it cannot move to another seed, because this Seed has no spec.backup: both Seeds need"),
        ("waits", "- it leaves for seed elsewhere\n"),
        ("waits", versions),
        ("leaves", "- it leaves for seed elsewhere\n"),
        ("comes", "- seed elsewhere works on it until nothing of it is left there"),
        (
            "comes",
            "its data cannot be restored here: edge.etcd.snapshots of this configuration needs store S3",
        ),
        ("arrives", "- it is restored after its move\n"),
    ] {
        let told = desk.explain(&["shoot", &format!("garden-p/{name}")]);
        assert!(told.contains(words), "{words}: {told}");
        // The constraint of the garden names it, too, as long as a Shoot has not left.
        assert_eq!(told.contains("v1.149.1"), matches!(name, "waits" | "leaves"), "{name}: {told}");
    }
    let (_, told) = desk.doctor();
    let line = format!("odd          garden: Shoots: garden-p/waits waits to move: {versions}\n");
    assert!(told.contains(&line), "{told}");
    // Some gardens let a seed read its own Seed only.
    world.expect_refusals();
    world.garden.faults().on("GET", "/seeds/elsewhere").answer(403);
    let told = [desk.explain(&["shoot", "garden-p/waits"]), desk.doctor().1];
    for told in told {
        let words = "compare status.gardener.version and spec.backup of both Seeds with an account";
        assert!(told.contains("Seed elsewhere cannot be read: ") && told.contains(words), "{told}");
    }
    agent.stop();
}
