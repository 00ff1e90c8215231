//! The cost of the garden's objects that need extensions: requests for each, and memory. The bench plays the
//! extensions, which are quick.

use gardenlet::api::gardener::SEED as SEEDS;
use serde_json::{Value, json};

use crate::Bench;
use crate::agent::{Agent, wait_for};
use crate::report::{Report, mb};
use crate::scene::{SEED, Scene};
use support::api::store::Id;
use support::encoding::base64;
use support::garden::prepare::{PROJECT, backup_entry, bastion, shoot_with_nodes};
use support::http::record::Recorded;
use support::json::text;
use support::player::Player;
use support::shoot::object;

const CORE: &str = "core.gardener.cloud";
const OPERATIONS: &str = "operations.gardener.cloud";
/// First only Bastions, then together with this many BackupEntries.
const FEW: usize = 50;
const MANY: usize = 250;
/// Budgets: requests for an object until it is ready, and memory while all of them exist.
const REQUESTS_MAX: usize = 18;
const PSS_MAX: u64 = 16_000_000;

/// Measures.
pub(crate) fn measure(bench: &Bench, report: &mut Report) {
    let scene = Scene::crowded(&bench.folder.join("objects"), 0);
    object::prepare_garden(&scene.garden);
    object::prepare_seed(&scene.seed);
    scene.garden.apply(&[json!({"apiVersion": "v1", "kind": "Secret",
        "metadata": {"namespace": "garden", "name": "backup"}, "data": {"key": base64(b"key")}})]);
    let config: Value = serde_json::from_str(&std::fs::read_to_string(scene.config()).unwrap()).unwrap();
    std::fs::write(scene.config(), with_backup(config).to_string()).unwrap();
    let plane = object::technical_id("s1");
    let id = Id::new(CORE, "shoots", PROJECT, "s1");
    scene.garden.store().write(|state| drop(state.put(id, shoot_with_nodes(SEED, &plane))));
    scene.seed.create("v1", "namespaces", &json!({"metadata": {"name": plane}}));
    let (mut agent, _) = bench.start(&scene);
    let player = Player::of(&["backupbuckets", "backupentries", "bastions"]);
    let playing = player.start(scene.seed.client());
    wait_for(&mut agent, "the Seed to be ready", || scene.is_ready().then_some(()));
    let seed = scene.garden.get(&SEEDS.group, &SEEDS.plural, "", SEED).unwrap();
    let bucket = text(&seed, "/metadata/uid").to_owned();
    wait_for(&mut agent, "the bucket", || {
        scene.garden.get(CORE, "backupbuckets", "", &bucket).filter(is_ready)
    });
    let before = agent.memory().pss;
    report.row("no objects of extensions: PSS", mb(before), "");

    let few: Vec<Value> = (0..FEW).map(|n| bastion(&format!("few-{n}"), SEED)).collect();
    make(&scene, &mut agent, report, &few, &format!("{FEW} Bastions"));
    let many = (0..MANY).flat_map(|n| {
        [bastion(&format!("many-{n}"), SEED), backup_entry(&format!("entry-of-{n}"), SEED, &bucket)]
    });
    let many: Vec<Value> = many.collect();
    make(&scene, &mut agent, report, &many, &format!("{} more, half of them BackupEntries", 2 * MANY));
    drop(playing);
}

fn with_backup(mut config: Value) -> Value {
    config["seedConfig"]["spec"]["backup"] = json!({"provider": "local", "region": "north",
        "credentialsRef": {"apiVersion": "v1", "kind": "Secret", "namespace": "garden", "name": "backup"}});
    config
}

fn is_ready(object: &Value) -> bool {
    let status = &object["status"];
    status["observedGeneration"] == object["metadata"]["generation"]
        && (status["conditions"][0]["status"] == "True" || status["lastOperation"]["state"] == "Succeeded")
}

/// Creates them all at once, and waits until they are ready.
fn make(scene: &Scene, agent: &mut Agent, report: &mut Report, objects: &[Value], title: &str) {
    let marks = (scene.garden.request_count(), scene.seed.request_count());
    scene.garden.apply(objects);
    wait_for(agent, title, || {
        let is_there = |object: &Value| {
            let (group, plural) = place(object);
            let name = text(object, "/metadata/name");
            scene.garden.get(group, plural, PROJECT, name).is_some_and(|object| is_ready(&object))
        };
        objects.iter().all(is_there).then_some(())
    });
    let requests = [scene.garden.requests_since(marks.0), scene.seed.requests_since(marks.1)].concat();
    let of = |name: &str| requests.iter().filter(|request| concerns(request, name)).count();
    let counts: Vec<usize> = objects.iter().map(|object| of(text(object, "/metadata/name"))).collect();
    let most = counts.iter().copied().max().unwrap_or_default();
    let mean = counts.iter().sum::<usize>() as f64 / counts.len() as f64;
    let value = format!("{mean:.1}, at most {most}");
    report.check(
        format!("{title}: requests for each"),
        value,
        &REQUESTS_MAX.to_string(),
        most <= REQUESTS_MAX,
    );
    let memory = agent.memory();
    report.check("  PSS", mb(memory.pss), &mb(PSS_MAX), memory.pss <= PSS_MAX);
}

fn place(object: &Value) -> (&'static str, &'static str) {
    if object["kind"] == "Bastion" { (OPERATIONS, "bastions") } else { (CORE, "backupentries") }
}

/// Whether the agent sent a request for an object or the Secret of its credentials.
fn concerns(request: &Recorded, name: &str) -> bool {
    let named = request.info.name.as_str();
    request.user_agent.starts_with("gardenlet/")
        && (named == name || named.strip_prefix("entry-") == Some(name))
}
