//! The first hour of a binary: bootstrap, Lease, a chart that is rendered, applied and healthy, an orderly end. For
//! released binaries of any processor, natively or in an emulator.
//!
//! `cargo test --test boards [-- PROGRAM [EMULATOR [ARGUMENT ...]]]`; `cross/try` runs it for the output of
//! `cross/build`. Garden and seed are simulated in this process.

// A test program that prints to standard output and ends at the first error.
#![allow(clippy::print_stdout, clippy::disallowed_methods, clippy::unwrap_used, clippy::panic)]
#![allow(dead_code, unreachable_pub)]

#[path = "../bench/agent.rs"]
mod agent;
#[path = "../bench/scene.rs"]
mod scene;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use gardenlet::base::clock::Clock;
use gardenlet::base::stop::Stop;

use agent::{Agent, wait_for};
use scene::Scene;

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let program = arguments.next().unwrap_or_else(|| env!("CARGO_BIN_EXE_gardenlet").to_owned());
    let emulator: Vec<String> = arguments.collect();
    let folder = std::env::temp_dir().join(format!("gardenlet-boards-{}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    let run = || live(&folder, &Binary::new(&folder, Path::new(&program), &emulator));
    let is_good = std::panic::catch_unwind(run).is_ok();
    if !is_good {
        println!("{}", fs::read_to_string(folder.join("agent.log")).unwrap_or_default());
    }
    let _ = fs::remove_dir_all(&folder);
    println!("{} passed, {} failed, 0 skipped", u8::from(is_good), u8::from(!is_good));
    if is_good { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn live(folder: &Path, binary: &Binary) {
    let clock = Clock::system();
    let scene = Scene::new(folder, 1);
    let mut agent = Agent::start(binary.program(), &scene.config(), &scene.log(), &clock);
    wait_for(&mut agent, "the first request", || (scene.seed.request_count() > 0).then_some(()));
    binary.has_started();
    wait_for(&mut agent, "the first lease", || scene.first_beat(0));
    wait_for(&mut agent, "the Seed to be ready", || scene.is_ready().then_some(()));
    scene.extend();
    wait_for(&mut agent, "the extension", || scene.is_settled().then_some(()));
    agent.terminate(&clock);
}

/// The program to start.
enum Binary {
    /// This machine runs it.
    Native(PathBuf),
    /// An emulator runs it.
    Emulated(Emulated),
}

/// Three files, because the agent starts its own program to render charts. In an emulator that program is the loaded
/// file, which the kernel cannot start. So once the emulator has loaded it, a script that calls the emulator replaces
/// it.
struct Emulated {
    start: PathBuf,
    loaded: PathBuf,
    again: PathBuf,
}

impl Binary {
    fn new(folder: &Path, program: &Path, emulator: &[String]) -> Self {
        if emulator.is_empty() {
            return Self::Native(program.canonicalize().unwrap());
        }
        let path = |name: &str| folder.join(name);
        let (loaded, kept) = (path("gardenlet"), path("kept"));
        fs::copy(program, &loaded).unwrap();
        fs::copy(program, &kept).unwrap();
        let (start, again) = (path("start"), path("again"));
        script(&start, emulator, &loaded);
        script(&again, emulator, &kept);
        Self::Emulated(Emulated { start, loaded, again })
    }

    fn program(&self) -> &Path {
        match self {
            Self::Native(program) => program,
            Self::Emulated(emulated) => &emulated.start,
        }
    }

    /// Call it when the emulator has loaded the program, and before a chart is rendered.
    fn has_started(&self) {
        if let Self::Emulated(Emulated { loaded, again, .. }) = self {
            fs::rename(again, loaded).unwrap();
        }
    }
}

/// A script that runs a program in the emulator, which is found by its path: the agent does not pass on its
/// environment.
fn script(path: &Path, emulator: &[String], program: &Path) {
    let words = emulator.join(" ");
    fs::write(path, format!("#!/bin/sh\nexec {words} {} \"$@\"\n", program.display())).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
}

/// Real time for other processes; no figure depends on its precision.
pub(crate) fn pause(real: Duration) {
    Stop::new().wait(&Clock::system(), real);
}
