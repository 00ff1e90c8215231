//! The program as a process of its own: what it may take from its host.

use std::fs;
use std::process::{Child, Command, Stdio};

use gardenlet::limits;
use serde_json::json;

use crate::charts;
use crate::story_extension::installed;
use crate::story_outside::{files, without_secrets};
use crate::world::{Options, World, own_address, wait_for};

/// Ended with the test, however it ends.
struct Process(Child);

impl Process {
    fn start(world: &World) -> Self {
        let (garden, seed) = files(world);
        let mut config = without_secrets(world);
        config["edge"]["stateDir"] = json!(world.path("state"));
        config["server"] = json!({"healthProbes": {"bindAddress": own_address()}, "metrics": {"bindAddress": own_address()}});
        let config = world.file("config.yaml", &config.to_string());
        let child = Command::new(env!("CARGO_BIN_EXE_gardenlet"))
            .arg("--config")
            .arg(config)
            .env_clear()
            .env("GARDEN_KUBECONFIG", garden)
            .env("KUBECONFIG", seed)
            .stderr(Stdio::from(fs::File::create(world.path("log")).unwrap()))
            .spawn()
            .unwrap();
        Self(child)
    }

    /// The names of its threads.
    fn threads(&self) -> Vec<String> {
        let tasks = fs::read_dir(format!("/proc/{}/task", self.0.id())).unwrap();
        // A thread may end between the listing and here.
        let names = tasks.filter_map(|task| fs::read_to_string(task.unwrap().path().join("comm")).ok());
        names.map(|name| name.trim().to_owned()).collect()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn threads_and_watches_have_a_maximum() {
    let world = World::start(&Options::real("frugal"));
    let process = Process::start(&world);
    world.extend("echo", &charts::extension(), &json!({"greeting": "hello"}));
    world.wait_until_ready();
    installed(&world, "echo");
    let watches = |threads: &[String]| threads.iter().filter(|name| name.starts_with("watch ")).count();
    // Of Seed, installations, registrations and managed resources at least: what counts them can fail.
    let threads = wait_for("the watches", || {
        let threads = process.threads();
        (watches(&threads) >= 4 && threads.iter().any(|name| name == "heartbeat")).then_some(threads)
    });
    assert!(watches(&threads) <= limits::WATCHES_MAX, "{threads:?}");
    assert!(threads.len() <= limits::THREADS_MAX, "{threads:?}");
}
