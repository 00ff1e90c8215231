//! A Shoot gets its Seed as soon as the agent has made the Seed ready, and not while the agent is silent.

use std::time::Duration;

use serde_json::{Value, json};

use crate::world::{CORE, Options, World, condition};
use support::garden::prepare;
use support::json::{entry, text};
use support::shoot::object::{self, ShootObject};

fn shoot(world: &World, name: &str) -> Option<Value> {
    world.garden.get(CORE, "shoots", "garden-p", name)
}

fn wait_until_not_scheduled(world: &World, name: &str, why: &str) -> Value {
    world.garden.wait_for(why, |_| {
        let shoot = shoot(world, name)?;
        let said = text(&shoot, "/status/lastOperation/description");
        said.contains(why).then(|| shoot.clone())
    })
}

fn wait_until_bound(world: &World, name: &str) -> Value {
    world.garden.wait_for("the Shoot to be bound", |_| {
        shoot(world, name)
            .filter(|s| text(s, "/spec/seedName") == world.name && s["metadata"]["finalizers"].is_array())
    })
}

/// The Seed as it was when the Shoot was bound.
fn seed_at_binding(world: &World, name: &str) -> Value {
    let state = world.garden.store().read();
    let binds = |c: &&support::api::store::Change| {
        c.id.is_of(CORE, "shoots") && c.id.name == name && text(&c.after, "/spec/seedName") == world.name
    };
    let revision = state.since(state.compacted).find(binds).unwrap().revision;
    let seeds = state.at(revision, CORE, "seeds").unwrap();
    let seed = seeds.values().find(|s| text(s, "/metadata/name") == world.name).unwrap();
    (**seed).clone()
}

#[test]
fn a_shoot_is_bound_when_the_agent_has_made_its_seed_ready() {
    let world = World::start(&Options::calm("bound"));
    // The agent may not write control planes: it handles no Shoots, however long the story takes.
    world.expect_refusals();
    world.garden.apply(&prepare::for_shoots());
    world.garden.wait_for("the namespace", |g| g.get("", "namespaces", "", "garden-p"));
    world.garden.apply(&[prepare::shoot("s1")]);
    let waiting =
        wait_until_not_scheduled(&world, "s1", "Failed to schedule Shoot: none of the 0 seeds is eligible");
    assert_eq!(waiting["metadata"]["generation"], 1);

    let mut config = world.config();
    config["seedConfig"]["spec"]["networks"]["shootDefaults"] = json!({"services": "100.64.0.0/13"});
    let agent = world.agent_with(&config);
    let bound = wait_until_bound(&world, "s1");
    let seed = seed_at_binding(&world, "s1");
    assert_eq!(condition(&seed, "GardenletReady").unwrap().0, "True");
    assert!(seed["status"]["lastOperation"].is_object());
    assert_eq!(text(&bound, "/spec/networking/services"), "100.64.0.0/13");
    assert_eq!(bound["metadata"]["generation"], 2);
    assert_eq!(entry(&bound, "/metadata/labels", "name.seed.gardener.cloud/bound"), Some("true"));

    // A silent agent gets no more Shoots, and the garden keeps its seed.
    world.wait_until_ready();
    agent.stop();
    world.skip(Duration::from_secs(60));
    world.wait_for_condition("GardenletReady", "Unknown");
    world.garden.apply(&[prepare::shoot("s2")]);
    wait_until_not_scheduled(&world, "s2", "{bound => GardenletReady is not True}");
    agent.launch();
    wait_until_bound(&world, "s2");
    assert_eq!(condition(&seed_at_binding(&world, "s2"), "GardenletReady").unwrap().0, "True");

    // The first one was not handled.
    let first = shoot(&world, "s1").unwrap();
    assert_eq!((text(&first, "/status/uid"), &first["metadata"]["generation"]), ("", &json!(2)));
    agent.stop();
}

#[test]
fn a_seed_at_the_edge_accepts_shoots_without_dns_names() {
    let world = World::start(&Options::new("edge-bound"));
    let site = world.site();
    let agent = world.agent_of(&site, &world.edge_config());
    agent.launch();
    world.garden.apply(&[ShootObject::workerless("s1").build()]);
    let bound = wait_until_bound(&world, "s1");
    // Neither a domain nor a DNS extension.
    assert_eq!(bound["spec"]["dns"], json!({}));
    assert_eq!(text(&bound, "/spec/networking/services"), object::SERVICES);
    world.wait_until_ready();
    let seed = world.garden.seed(world.name).unwrap();
    assert_eq!(text(&seed, "/spec/dns/internal/type"), "unmanaged");
    agent.stop();
    assert_eq!(site.complaints(), Vec::<String>::new());
}
