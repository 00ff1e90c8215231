//! The program as a separate process, beside a world.

use std::fs;
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;

use crate::story_outside::{files, without_secrets};
use crate::world::{World, own_address};

/// A process that ends with the test, also if the test fails.
pub struct Process(pub Child);

impl Process {
    /// A process that finds its servers by the environment.
    pub fn start(world: &World) -> Self {
        let (garden, seed) = files(world);
        Self::start_with(world, &[("GARDEN_KUBECONFIG", &garden), ("KUBECONFIG", &seed)])
    }

    /// A process with only these variables. It writes to the file `log`.
    pub fn start_with(world: &World, variables: &[(&str, &str)]) -> Self {
        let mut config = without_secrets(world);
        config["edge"]["stateDir"] = json!(world.path("state"));
        config["server"] = json!({"healthProbes": {"bindAddress": own_address()}, "metrics": {"bindAddress": own_address()}});
        let config = world.file("config.yaml", &config.to_string());
        Self::of(world, Command::new(env!("CARGO_BIN_EXE_gardenlet")).arg("--config").arg(config), variables)
    }

    /// Like [`Process::start_with`] for an agent that ran before: its state directory is mounted read-only.
    pub fn start_read_only(world: &World, variables: &[(&str, &str)]) -> Self {
        Self::of(world, &mut read_only(world, "run"), &[variables, &[PATH]].concat())
    }

    /// What `doctor` prints there.
    pub fn examine_read_only(world: &World, variables: &[(&str, &str)]) -> String {
        let mut command = read_only(world, "doctor");
        let ended = command.env_clear().envs(variables.iter().copied().chain([PATH])).output().unwrap();
        String::from_utf8(ended.stdout).unwrap()
    }

    fn of(world: &World, command: &mut Command, variables: &[(&str, &str)]) -> Self {
        let child = command
            .env_clear()
            // One heap for all threads, as in the released programs: the system's allocator keeps free memory once per
            // thread.
            .env("MALLOC_ARENA_MAX", "1")
            .envs(variables.iter().copied())
            .stderr(Stdio::from(fs::File::create(world.path("log")).unwrap()))
            .spawn()
            .unwrap();
        Self(child)
    }

    pub fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.0), signal).unwrap();
    }

    /// The names of its threads.
    pub fn threads(&self) -> Vec<String> {
        let tasks = fs::read_dir(format!("/proc/{}/task", self.0.id())).unwrap();
        // A thread may end between the listing and this read.
        let names = tasks.filter_map(|task| fs::read_to_string(task.unwrap().path().join("comm")).ok());
        names.map(|name| name.trim().to_owned()).collect()
    }

    /// A line of its status in `/proc`, in KiB.
    pub fn memory(&self, name: &str) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.0.id())).unwrap();
        let line = status.lines().find(|line| line.starts_with(name)).unwrap();
        line.split_whitespace().nth(1).unwrap().parse().unwrap()
    }

    /// Resets the peak.
    pub fn forget_peak(&self) {
        fs::write(format!("/proc/{}/clear_refs", self.0.id()), "5").unwrap();
    }
}

const PATH: (&str, &str) = ("PATH", "/usr/sbin:/usr/bin:/sbin:/bin");

/// A command of the program in a mount namespace of its own, with a state directory that is mounted read-only.
fn read_only(world: &World, word: &str) -> Command {
    let script =
        "mount --bind \"$1\" \"$1\" && mount -o remount,bind,ro \"$1\" && exec \"$2\" \"$3\" --config \"$4\"";
    let (state, config) = (world.path("state"), world.path("config.yaml"));
    let mut command = Command::new("/usr/bin/unshare");
    command.args(["--user", "--map-root-user", "--mount", "/bin/sh", "-c", script, "sh"]);
    command.arg(state).args([env!("CARGO_BIN_EXE_gardenlet"), word]).arg(config);
    command
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
