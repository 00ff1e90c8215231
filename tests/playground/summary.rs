//! The summary: one line for each thing that had to become ready.

use std::time::Duration;

use serde_json::Value;

use crate::screen::Screen;
use crate::{EXTENSION, SEED, World, shoot};
use support::json::{list, text};

/// The conditions of a good installation.
pub const INSTALLATION: [(&str, &str); 5] = [
    ("Valid", "True"),
    ("Installed", "True"),
    ("Healthy", "True"),
    ("Progressing", "False"),
    ("Required", "False"),
];

/// Prints it, with the time that it took. Returns whether everything is good.
pub fn print(world: &World, screen: &Screen, took: Duration) -> bool {
    screen.title("Summary");
    let mut good = true;
    let mut check = |is_good: bool, what: &str, how: &str| {
        screen.verdict(is_good, what, how);
        good &= is_good;
    };
    let seed = world.garden.seed(SEED).unwrap_or_default();
    let operation = format!(
        "{} {}",
        text(&seed, "/status/lastOperation/type"),
        text(&seed, "/status/lastOperation/state")
    );
    check(
        operation == "Reconcile Succeeded",
        &format!("Seed {SEED} is registered and reconciled"),
        &operation,
    );
    for kind in ["GardenletReady", "ExtensionsReady"] {
        let (status, how) = condition(&seed, kind);
        check(status == "True", &format!("Seed {SEED}: {kind}"), &how);
    }
    let kubeconfig = world.seed.get("", "secrets", "garden", "gardenlet-kubeconfig").is_some();
    let bootstrap = world.seed.get("", "secrets", "garden", "gardenlet-kubeconfig-bootstrap").is_some();
    check(kubeconfig && !bootstrap, "the bootstrap token became a certificate", "and was removed");
    let beats =
        world.garden.requests().iter().filter(|r| r.is_write() && r.path.contains("seed-lease")).count();
    check(beats > 0, "the seed's Lease was renewed", &format!("{beats} times"));
    let installation = world.garden.installations(EXTENSION).pop().unwrap_or_default();
    for (kind, wanted) in INSTALLATION {
        let (status, how) = condition(&installation, kind);
        check(status == wanted, &format!("ControllerInstallation {EXTENSION}: {kind}={wanted}"), &how);
    }
    let namespace = format!("extension-{}", text(&installation, "/metadata/name"));
    for (group, plural, name) in [
        ("apps", "deployments", "echo"),
        ("", "configmaps", "echo"),
        ("", "serviceaccounts", "echo"),
        ("example.org", "echoes", "first"),
    ] {
        let found = world.seed.get(group, plural, &namespace, name).is_some();
        check(found, &format!("{plural}/{name} in the seed"), &namespace);
    }
    check_shoot(world, &mut check);
    let free = world.seed.get("coordination.k8s.io", "leases", "garden", "gardenlet-leader-election");
    let holder = free.map(|lease| text(&lease, "/spec/holderIdentity").to_owned()).unwrap_or_default();
    check(
        holder.is_empty(),
        "the leader's lease was given back",
        if holder.is_empty() { "at the end" } else { &holder },
    );
    let asked = |requests: usize, place: &str| format!("{requests} requests to the {place}");
    let (garden, seeds) = (world.garden.requests().len(), world.seed.requests().len());
    screen.plain(&format!(
        "\n{} in {:.1} s (20 s at most, if nobody else keeps the machine busy), with {} and {}.",
        if good { "Everything became ready" } else { "Not everything became ready" },
        took.as_secs_f64(),
        asked(garden, "garden"),
        asked(seeds, "seed"),
    ));
    good
}

/// The Shoot, and who has access to it, after the agent's end.
fn check_shoot(world: &World, check: &mut dyn FnMut(bool, &str, &str)) {
    let found = shoot::find(world).unwrap_or_default();
    let operation = shoot::operation(&found);
    // A person may have asked for more than the story.
    let is_up = operation.ends_with(" Succeeded, 100 %");
    check(is_up, &format!("Shoot {} is up", shoot::NAME), &operation);
    let missing = shoot::unhealthy(world);
    check(missing.is_empty(), "everything in it is applied and healthy", &missing.join(", "));
    let seen = shoot::namespaces(world);
    let is_in = seen.as_ref().is_ok_and(|all| all.iter().any(|n| n["metadata"]["name"] == "kube-system"));
    let how =
        seen.map_or_else(|why| why, |all| format!("and sees {} namespaces, without the agent", all.len()));
    check(is_in, "its owner has access with the garden's kubeconfig", &how);
    let code = shoot::stranger(world);
    check(code == 401, "an administrator of the seed has none", &format!("{code}"));
    let complaints = world.site.complaints();
    check(complaints.is_empty(), "the stand-in for its node had no complaints", &complaints.join("; "));
}

/// Status, and reason with message.
fn condition(object: &Value, kind: &str) -> (String, String) {
    let found = list(object, "/status/conditions").iter().find(|c| c["type"] == kind);
    let Some(found) = found else { return (String::new(), "is missing".to_owned()) };
    (text(found, "/status").to_owned(), format!("{}: {}", text(found, "/reason"), text(found, "/message")))
}
