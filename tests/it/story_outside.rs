//! An agent outside its seed: kubeconfigs from files, named in the configuration or in the environment.

use gardenlet::base::sorted::SortedMap;
use serde_json::{Value, json};

use crate::charts;
use crate::story_extension::installed;
use crate::world::{Agent, Options, World};
use support::garden::prepare::{self, Preparation};
use support::json::text;

/// Client certificates for garden and seed, as files. The seed's user has the agent's own roles.
pub fn files(world: &World) -> (String, String) {
    let user = format!("gardener.cloud:system:seed:{}", world.name);
    let garden = world.garden.kubeconfig_for(&user, &["gardener.cloud:system:seeds"]);
    // The bindings of the agent's account, for another user.
    for mut binding in prepare::seed("").into_iter().filter(|o| text(o, "/subjects/0/name") == "gardenlet") {
        let role = text(&binding, "/metadata/name").to_owned();
        binding["metadata"]["name"] = json!(format!("{role}:outside"));
        binding["subjects"] = json!([{"kind": "User", "name": "outside"}]);
        world.seed.apply(&[binding]);
    }
    let seed = world.seed.kubeconfig_for("outside", &[]);
    let path = |name, content: &str| world.file(name, content).to_str().unwrap().to_owned();
    (path("garden.kubeconfig", &garden), path("seed.kubeconfig", &seed))
}

pub fn without_secrets(world: &World) -> Value {
    let mut config = world.config();
    config.as_object_mut().unwrap().remove("gardenClientConnection");
    config
}

fn lives_outside(world: &World, agent: &Agent) {
    world.extend("echo", &charts::extension(), &json!({"greeting": "hello"}));
    agent.launch();
    world.wait_until_ready();
    installed(world, "echo");
    // Its certificate belongs to the operator.
    assert!(world.requests().is_empty());
    assert!(world.seed.get("", "secrets", "garden", "gardenlet-kubeconfig").is_none());
    let token = format!("bootstrap-token-{}", Preparation::new(world.name, world.clock.now()).token_id());
    assert!(world.garden.get("", "secrets", "kube-system", &token).is_some());
    agent.stop();
}

#[test]
fn kubeconfigs_of_the_configuration() {
    let world = World::start(&Options::new("outside"));
    let (garden, seed) = files(&world);
    let mut config = without_secrets(&world);
    config["gardenClientConnection"] = json!({"kubeconfig": garden});
    config["seedClientConnection"] = json!({"kubeconfig": seed});
    lives_outside(&world, &Agent::new(&world, "host-1", &config, SortedMap::new()));
}

#[test]
fn kubeconfigs_of_the_environment() {
    let world = World::start(&Options::new("environs"));
    let (garden, seed) = files(&world);
    let variables = [("GARDEN_KUBECONFIG".to_owned(), garden), ("KUBECONFIG".to_owned(), seed)].into();
    lives_outside(&world, &Agent::new(&world, "host-1", &without_secrets(&world), variables));
}
