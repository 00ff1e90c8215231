//! The Seed object disappears while the agent runs: it is deleted, lost, or replaced by another one of the same name.

use std::time::Duration;

use serde_json::{Value, json};

use crate::charts;
use crate::story_extension::installed;
use crate::world::{Agent, CORE, LEASES, Options, World, wait_for};
use support::api::store::{Id, State};
use support::garden::prepare;
use support::json::text;

fn uid(world: &World) -> String {
    text(&world.garden.seed(world.name).unwrap(), "/metadata/uid").to_owned()
}

/// The Seed as another client would create it.
fn make_anew(world: &World) -> String {
    let seed = json!({"apiVersion": "core.gardener.cloud/v1beta1", "kind": "Seed",
        "metadata": {"name": world.name}, "spec": prepare::seed_spec()});
    world.garden.apply(&[seed]);
    uid(world)
}

fn registrations(world: &World) -> usize {
    world.garden.requests().iter().filter(|r| r.method == "POST" && r.path.ends_with("/seeds")).count()
}

fn wait_until_gone(world: &World) {
    world.garden.wait_for("the end of the Seed", |g| g.seed(world.name).is_none().then_some(()));
}

/// The agent serves the Seed with this uid: it owns the lease and the namespace.
fn serves(world: &World, agent: &Agent, uid: &str) {
    world.wait_until_ready();
    world.garden.wait_for("the lease of the new Seed", |g| {
        let lease = g.get(LEASES, "leases", "gardener-system-seed-lease", world.name)?;
        (text(&lease, "/metadata/ownerReferences/0/uid") == uid).then_some(())
    });
    world.wait_for_condition("GardenletReady", "True");
    let namespace = world.garden.get("", "namespaces", "", &format!("seed-{}", world.name)).unwrap();
    assert_eq!(text(&namespace, "/metadata/ownerReferences/0/uid"), uid);
    let seed = world.garden.seed(world.name).unwrap();
    assert_eq!(seed["metadata"]["finalizers"], json!(["gardener"]));
    assert_eq!(seed["metadata"]["labels"]["site"], "north", "it is as configured");
    wait_for("readiness", || (agent.get(2728, "/readyz").0 == 200).then_some(()));
    agent.wait_until_no_problem("garden");
}

#[test]
fn a_deleted_seed_stays_deleted_until_it_is_created_again() {
    let world = World::start(&Options::new("deleted"));
    let mut config = world.config();
    // Time will jump, and no part should lose a lease for that reason.
    config["leaderElection"] = json!({"leaderElect": false});
    let agent = world.agent_with(&config);
    world.wait_until_ready();
    let first = uid(&world);
    world.garden.delete(CORE, "seeds", "", "deleted");
    wait_until_gone(&world);
    agent.wait_for_problem("garden", &["Seed deleted was deleted in the garden", "restart the agent"]);
    world.wait_for_log(&["WARN", "The Seed was deleted", "seed=deleted"]);
    wait_for("an agent that is not ready", || {
        let (status, body) = agent.get(2728, "/readyz?verbose");
        (status == 500 && body.contains("[-]seed failed")).then_some(())
    });
    let page = wait_for("the end of the watches", || {
        Some(agent.get(2728, "/statusz").1).filter(|page| !page.contains("watch garden/"))
    });
    assert!(page.contains("problem: Seed deleted was deleted in the garden"), "{page}");
    // It waits for hours without a restart.
    world.wait_for_log(&["INFO", "The Seed is gone; its lease is not renewed", "seed=deleted"]);
    world.skip(Duration::from_secs(2 * 3_600));
    agent.lives();
    assert_eq!(agent.get(2728, "/healthz").0, 200);
    assert!(world.garden.seed("deleted").is_none());
    assert_eq!(registrations(&world), 1);

    let second = make_anew(&world);
    assert_ne!(first, second);
    serves(&world, &agent, &second);
    world.extend("echo", &charts::extension(), &json!({"greeting": "hello"}));
    installed(&world, "echo");
    assert_eq!(registrations(&world), 1);
    agent.stop();
}

#[test]
fn a_restart_joins_again() {
    let world = World::start(&Options::new("rejoining"));
    let agent = world.agent();
    world.wait_until_ready();
    world.garden.delete(CORE, "seeds", "", "rejoining");
    wait_until_gone(&world);
    agent.wait_for_problem("garden", &["was deleted in the garden"]);
    agent.stop();
    agent.launch();
    world.wait_until_ready();
    serves(&world, &agent, &uid(&world));
    agent.stop();
}

#[test]
fn a_seed_that_the_garden_has_lost_is_registered_again() {
    let world = World::start(&Options::new("lost"));
    let agent = world.agent();
    world.wait_until_ready();
    let first = uid(&world);
    // The garden comes back from a backup that does not contain the seed.
    world.garden.server().down();
    world.garden.store().write(|state: &mut State| {
        state.take(&Id::new(CORE, "seeds", "", "lost"));
        state.compact();
    });
    world.garden.server().up().unwrap();
    world.wait_for_log(&["WARN", "The garden has lost the Seed", "seed=lost"]);
    world.garden.wait_for("the Seed", |g| g.seed("lost"));
    assert_ne!(uid(&world), first);
    serves(&world, &agent, &uid(&world));
    assert_eq!(registrations(&world), 2);
    agent.stop();
}

#[test]
fn a_seed_that_is_replaced_at_once_is_joined() {
    let world = World::start(&Options::new("replaced"));
    let agent = world.agent();
    world.wait_until_ready();
    // Deletion, forced removal of the finalizers, and the new Seed: all before the agent sees it.
    world.garden.store().write(|state: &mut State| {
        let id = Id::new(CORE, "seeds", "", "replaced");
        let mut seed: Value = (*state.take(&id).unwrap()).clone();
        seed["metadata"]["uid"] = "11111111-2222-3333-4444-555555555555".into();
        seed["metadata"].as_object_mut().unwrap().remove("finalizers");
        seed["status"] = json!({});
        state.put(id, seed);
    });
    serves(&world, &agent, "11111111-2222-3333-4444-555555555555");
    assert_eq!(registrations(&world), 1);
    agent.stop();
}

#[test]
fn a_backup_bucket_blocks_the_deletion_of_the_seed_and_is_named() {
    let world = World::start(&Options::new("backed-up"));
    let mut config = world.config();
    let credentials = json!({"apiVersion": "v1", "kind": "Secret", "namespace": "garden", "name": "backup"});
    config["seedConfig"]["spec"]["backup"] = json!({"provider": "local", "credentialsRef": credentials});
    let agent = world.agent_with(&config);
    world.wait_until_ready();
    let bucket = |name: &str| {
        json!({"apiVersion": "core.gardener.cloud/v1beta1", "kind": "BackupBucket",
        "metadata": {"name": name},
        "spec": {"seedName": "backed-up", "provider": {"type": "local", "region": "north"},
            "credentialsRef": credentials}})
    };
    let own = uid(&world);
    // A bucket of another owner.
    world.garden.apply(&[bucket("foreign")]);
    world.garden.wait_for("the Seed's own bucket", |garden| garden.get(CORE, "backupbuckets", "", &own));
    world.garden.delete(CORE, "seeds", "", "backed-up");
    let says = |words: &[&str]| {
        world.garden.wait_for(&format!("an operation with {words:?}"), |g| {
            let operation = g.seed("backed-up")?["status"]["lastOperation"].clone();
            let description = text(&operation, "/description");
            let named = words.iter().all(|word| description.contains(word));
            (named && operation["state"] == "Processing" && operation["type"] == "Delete").then_some(())
        });
    };
    says(&["BackupBucket", "foreign"]);
    world.wait_for_log(&["WARN", "The Seed cannot be deleted yet", "seed=backed-up", "foreign"]);
    let events = world.garden.store().list("events.k8s.io", "events", "default");
    let event = events.iter().find(|e| e["reason"] == "ResourceReferenced").unwrap();
    assert_eq!((&event["regarding"]["name"], &event["action"]), (&json!("backed-up"), &json!("Delete")));
    assert!(text(event, "/note").contains("foreign"), "{event}");
    // Its own bucket is deleted with it, although no controller ever had its credentials.
    says(&["BackupBucket foreign: delete it"]);
    world.garden.delete(CORE, "backupbuckets", "", "foreign");
    wait_until_gone(&world);
    assert!(world.garden.store().list(CORE, "backupbuckets", "").is_empty());
    agent.stop();
}

/// Alerts and dashboards of Gardener use these words.
#[test]
fn an_unreadable_seed_namespace_is_reported_in_upstreams_words() {
    let world = World::start(&Options::new("unread"));
    let agent = world.agent();
    world.wait_until_ready();
    let refused = world.garden.faults().on("GET", "/namespaces/seed-unread").answer(503);
    let change = json!({"spec": {"settings": {"scheduling": {"visible": false}}}});
    world.garden.merge(CORE, "seeds", ("", "unread"), &change);
    world.garden.wait_for("an operation with this message", |g| {
        let operation = g.seed("unread")?["status"]["lastOperation"].clone();
        let description = text(&operation, "/description");
        let is_told = description.starts_with("failed to get seed namespace in garden cluster: ");
        (is_told && description.contains("503") && operation["state"] == "Error").then_some(())
    });
    refused.cancel();
    world.garden.wait_for("its end", |g| {
        (g.seed("unread")?["status"]["lastOperation"]["state"] == "Succeeded").then_some(())
    });
    agent.stop();
}
