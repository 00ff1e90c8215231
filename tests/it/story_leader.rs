//! Several instances of the agent, and another program: which of them works, and which waits.

use std::time::Duration;

use serde_json::{Value, json};

use crate::charts;
use crate::story_extension::installed;
use crate::world::{Agent, CORE, LEASES, MANAGED_RESOURCES, Options, World};
use support::encoding::rfc3339_micro;
use support::http::faults::{Action, failure};
use support::json::text;

fn holder(world: &World, lease: &str) -> Option<String> {
    let lease = world.seed.get(LEASES, "leases", "garden", lease)?;
    Some(text(&lease, "/spec/holderIdentity").to_owned())
}

fn wait_for_holder(world: &World, lease: &str, host: &str) {
    world.seed.wait_for(&format!("{host} to hold {lease}"), |_| {
        holder(world, lease).filter(|holder| holder.starts_with(&format!("{host}_")))
    });
}

#[test]
fn a_second_agent_waits_and_takes_over() {
    let world = World::start(&Options::calm("twice"));
    world.extend("echo", &charts::extension(), &json!({"greeting": "hello"}));
    let first = world.agent();
    world.wait_until_ready();
    let name = installed(&world, "echo");
    let second = Agent::new(&world, "host-2", &world.config(), world.pod());
    let before = world.garden.server().shared.record.count();
    second.launch();
    crate::world::wait_for("the second to answer", || {
        std::net::TcpStream::connect((second.probes.as_str(), 2728)).ok()
    });
    world.pass(Duration::from_secs(40));
    // It is alive and ready, and makes no writes.
    for path in ["/healthz", "/readyz", "/livez"] {
        assert_eq!(second.get(2728, path).0, 200, "{path}");
    }
    assert!(second.status.lock().unwrap().parts().is_empty());
    assert!(second.get(2728, "/statusz").1.contains("leading: false"));
    let beats = world.garden.server().shared.record.since(before);
    assert!(beats.iter().all(|r| !r.path.contains("certificatesigningrequests")), "{beats:?}");

    first.crash();
    world.skip(Duration::from_secs(20));
    for lease in ["gardenlet-leader-election", "gardener-resource-manager"] {
        wait_for_holder(&world, lease, "host-2");
    }
    // The identity is in the seed: administrators of the garden have nothing to do.
    world.garden.wait_for("the second agent in the Seed's status", |_| {
        let seed = world.garden.seed("twice")?;
        (seed["status"]["gardener"]["name"] == "host-2").then_some(())
    });
    world.wait_until_ready();
    assert_eq!(world.requests().len(), 1);
    let values = json!({"helm": {"values": {"greeting": "from the second"}}});
    world.garden.merge(CORE, "controllerdeployments", ("", "echo"), &values);
    world.seed.wait_for("the new value", |seed| {
        let echo = seed.get("example.org", "echoes", &format!("extension-{name}"), "first")?;
        (echo["spec"]["text"] == "from the second").then_some(())
    });

    // The first comes back and waits. It takes over at once when the second ends in order.
    first.launch();
    world.pass(Duration::from_secs(20));
    assert!(holder(&world, "gardenlet-leader-election").unwrap().starts_with("host-2_"));
    second.stop();
    wait_for_holder(&world, "gardenlet-leader-election", "host-1");
    world.wait_until_ready();
    first.stop();
}

#[test]
fn a_restarted_agent_continues_with_its_own_lease() {
    let world = World::start(&Options::calm("again"));
    let agent = world.agent();
    world.wait_until_ready();
    let before = holder(&world, "gardenlet-leader-election").unwrap();
    for _ in 0..3 {
        let place = world.seed.server().shared.record.count();
        agent.crash_and_restart();
        // One read of the lease, then its renewal: the agent does not wait for it to expire. A renewal of the old life
        // may still arrive.
        let asked = world.seed.wait_for("the lease", |seed| {
            let since = seed.server().shared.record.since(place);
            let lease: Vec<String> = since
                .into_iter()
                .filter(|r| r.path.ends_with("/leases/gardenlet-leader-election") && r.status == 200)
                .map(|r| r.method)
                .collect();
            let new = &lease[lease.iter().position(|method| method == "GET")?..];
            (new.len() >= 2).then(|| new.to_vec())
        });
        assert_eq!(asked[..2], ["GET".to_owned(), "PUT".to_owned()]);
        world.wait_until_ready();
    }
    let lease = world.seed.get(LEASES, "leases", "garden", "gardenlet-leader-election").unwrap();
    assert_eq!(lease["spec"]["holderIdentity"], before);
    assert_eq!(lease["spec"]["leaseTransitions"], 0);
    assert_eq!(world.requests().len(), 1);
    agent.stop();
}

/// The lease of a live gardener-resource-manager.
fn foreign_lease(world: &World) -> Value {
    let now = rfc3339_micro(world.clock.now());
    json!({"metadata": {"name": "gardener-resource-manager", "namespace": "garden"}, "spec": {
        "holderIdentity": "gardener-resource-manager-7d9f_x", "leaseDurationSeconds": 15, "acquireTime": now,
        "renewTime": now, "leaseTransitions": 3}})
}

#[test]
fn the_applier_leaves_a_seed_to_a_living_resource_manager() {
    let world = World::start(&Options::calm("managed"));
    world.extend("echo", &charts::extension(), &json!({"greeting": "hello"}));
    world.seed.create("coordination.k8s.io/v1", "leases", &foreign_lease(&world));
    let place = ("garden", "gardener-resource-manager");
    let renew = || {
        let renewed = json!({"spec": foreign_lease(&world)["spec"]});
        world.seed.merge(LEASES, "leases", place, &renewed);
    };
    let agent = world.agent();
    let name = world.seed.wait_for("the ManagedResource", |seed| {
        renew();
        seed.store().names(MANAGED_RESOURCES, "managedresources", "garden").pop()
    });
    world.garden.wait_for("the seed to be ready", |_| {
        renew();
        world.seed_condition("GardenletReady").filter(|c| c.0 == "True")
    });
    for _ in 0..15 {
        renew();
        world.pass(Duration::from_secs(4));
    }
    renew();
    let parts = agent.status.lock().unwrap().parts();
    let stage = "passive: gardener-resource-manager-7d9f_x applies ManagedResources";
    assert_eq!(parts["managedresource-applier"].stage, stage);
    assert_eq!(agent.problem("managedresource-applier"), None);
    world.wait_for_log(&[
        "INFO",
        "Another resource manager runs in this seed",
        "gardener-resource-manager-7d9f_x",
    ]);
    let managed = world.seed.get(MANAGED_RESOURCES, "managedresources", "garden", &name).unwrap();
    assert_eq!((managed.get("status"), managed["metadata"].get("finalizers")), (None, None));
    assert!(world.seed.get("", "configmaps", &format!("extension-{name}"), "echo").is_none());
    // Its installation waits, and the condition has the reason.
    let (status, reason, _) = world.installation_condition("echo", "Installed").unwrap();
    assert_eq!((status.as_str(), reason.as_str()), ("False", "InstallationPending"));

    // It dies: the embedded one takes over.
    world.skip(Duration::from_secs(20));
    wait_for_holder(&world, "gardener-resource-manager", "host-1");
    installed(&world, "echo");
    let lease = world.seed.get(LEASES, "leases", "garden", "gardener-resource-manager").unwrap();
    // The transitions continue from the other's count; on a busy machine our applier may have lost the lease once more.
    assert!(lease["spec"]["leaseTransitions"].as_i64() >= Some(4), "{lease}");
    agent.stop();
}

#[test]
fn without_an_election_the_agent_leads_at_once() {
    let world = World::start(&Options::new("alone"));
    let mut config = world.config();
    config["leaderElection"] = json!({"leaderElect": false});
    let agent = world.agent_with(&config);
    world.wait_until_ready();
    assert_eq!(holder(&world, "gardenlet-leader-election"), None);
    agent.stop();
}

/// The median time between renewals of a lease during a minute.
fn usual_pause(world: &World, lease: &str) -> Duration {
    let before = world.seed.server().shared.record.count();
    world.pass(Duration::from_secs(60));
    let path = format!("/leases/{lease}");
    let since = world.seed.server().shared.record.since(before);
    let times: Vec<_> =
        since.iter().filter(|r| r.method == "PUT" && r.path.ends_with(&path)).map(|r| r.at).collect();
    let mut between: Vec<_> = times.windows(2).map(|pair| pair[1].since(pair[0])).collect();
    between.sort_unstable();
    between[between.len() / 2]
}

#[test]
fn leases_are_renewed_every_four_seconds_or_as_configured() {
    let world = World::start(&Options::calm("paced"));
    let mut pauses = Vec::new();
    for (election, seconds) in [(json!({}), 4), (json!({"retryPeriod": "2s"}), 2)] {
        let mut config = world.config();
        config["leaderElection"] = election;
        let agent = world.agent_with(&config);
        world.wait_until_ready();
        for lease in ["gardenlet-leader-election", "gardener-resource-manager"] {
            wait_for_holder(&world, lease, "host-1");
            let usual = usual_pause(&world, lease);
            // On a slow machine renewals are late, but never early.
            assert!(usual > Duration::from_millis(seconds * 1_000 - 500), "{lease}: {usual:?}");
            world.measured(
                &format!("renewals of {lease} every {seconds} s"),
                usual,
                Duration::from_millis(seconds * 1_000 + 500),
            );
            pauses.push(usual);
        }
        agent.stop();
    }
    assert!(pauses[..2].iter().all(|long| pauses[2..].iter().all(|short| short < long)), "{pauses:?}");
}

#[test]
fn a_refused_renewal_does_not_stop_writes() {
    let world = World::start(&Options::calm("refused"));
    let agent = world.agent();
    world.wait_until_ready();
    wait_for_holder(&world, "gardenlet-leader-election", "host-1");
    let path = "/leases/gardenlet-leader-election";
    let seed = world.seed.server();
    let before = seed.shared.record.count();
    world.seed.faults().on("PUT", path).once().then(Action::Refuse(failure(500, None)));
    let (pause, usual) = world.seed.wait_for("a refused renewal and the next two", |_| {
        let mut tries = seed.shared.record.since(before);
        tries.retain(|r| r.method == "PUT" && r.path.ends_with(path));
        let refused = tries.iter().position(|r| r.status == 500)?;
        let [refused, next, after] = tries.get(refused..refused + 3)? else { return None };
        Some((next.at.since(refused.at), after.at.since(next.at)))
    });
    // It does not wait for the time of the next renewal.
    assert!(pause < usual, "{pause:?} {usual:?}");
    world.measured("until a refused renewal is repeated", pause, Duration::from_millis(1_500));
    let lease = world.seed.get(LEASES, "leases", "garden", "gardenlet-leader-election").unwrap();
    assert_eq!(lease["spec"]["leaseTransitions"], 0);
    agent.stop();
}
