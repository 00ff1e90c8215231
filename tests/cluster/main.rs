//! Stories on real servers: etcd, kube-apiserver, kube-controller-manager, kubelet, and the agent as a real process.
//!
//! `cargo test --test cluster` runs the part `run`; `-- --part NAME` runs another one (`stories::Part`), and may be given
//! several times, also with names separated by commas. `-- words` runs the stories of all parts whose names contain one
//! of the words, or with `--exact` have one of them as their whole name. `--list` names the stories; `--keep` leaves
//! everything running until Enter is pressed. The program starts itself a second time inside a sandbox (`sandbox.rs`).
//! No packet leaves the sandbox, and all its processes end with the run.
//!
//! One line is printed per story: how it ended, and its name. If it did not pass, the reason follows on lines that begin
//! with seven spaces, and an empty line ends it. The last line is always `N passed, N failed, N skipped`.

// The harness prints to standard output.
#![allow(clippy::print_stdout, clippy::print_stderr)]

mod agent;
mod arguments;
mod audit;
mod balancer;
mod chart;
mod cluster;
mod druid;
mod environment;
mod etcd;
mod failure;
mod filter;
mod gardener;
mod gate;
mod gateway;
mod host;
mod image;
mod lab;
mod machine;
mod mirror;
mod names;
mod node;
mod outside;
mod process;
mod registry;
mod sandbox;
mod second;
mod secrets;
mod site;
mod size;
mod snapshot;
mod storage;
mod stories;
mod systemd;
mod tokens;
mod wait;
mod world;
mod writer;

use std::process::ExitCode;

use environment::Environment;
use failure::Failure;
use lab::Lab;
use stories::table::{self, STORIES};
use stories::{Stage, Story};

/// Before each line of a reason.
const INDENT: &str = "       ";

fn main() -> ExitCode {
    let (environment, chosen) = match choose() {
        Ok(both) => both,
        Err(failure) => {
            println!("cluster: {failure}\n0 passed, 1 failed, 0 skipped");
            return ExitCode::FAILURE;
        }
    };
    if environment.arguments.list {
        chosen.iter().for_each(|story| println!("{}", story.name));
        return ExitCode::SUCCESS;
    }
    if environment.state.is_some() {
        return run(&environment, &chosen);
    }
    match environment.missing_peers() {
        Some(missing) => leave_out(&environment, chosen.len(), &missing),
        None => sandbox::enter(&environment).unwrap_or_else(|failure| {
            println!("cluster: {failure}\n0 passed, 1 failed, 0 skipped");
            ExitCode::FAILURE
        }),
    }
}

/// The stories that the arguments name, in the order of the table.
fn choose() -> failure::Result<(Environment, Vec<&'static Story>)> {
    table::check()?;
    let environment = Environment::read()?;
    let arguments = &environment.arguments;
    let wanted = |story: &&Story| arguments.want(story.part, story.name);
    let chosen: Vec<&Story> = STORIES.iter().filter(wanted).collect();
    let names: Vec<&str> = chosen.iter().map(|story| story.name).collect();
    if let Some(word) = arguments.word_without_story(&names) {
        return Err(Failure::new(format!("no chosen story is meant by {word:?}; --list shows them")));
    }
    Ok((environment, chosen))
}

/// On a machine without the real servers: a failure in CI, otherwise skipped, with a clear message.
fn leave_out(environment: &Environment, stories: usize, missing: &str) -> ExitCode {
    println!("cluster: LEFT OUT: {stories} stories on real servers did not run: {missing}");
    if environment.ci {
        println!("0 passed, {stories} failed, 0 skipped");
        return ExitCode::FAILURE;
    }
    println!("0 passed, 0 failed, {stories} skipped");
    ExitCode::SUCCESS
}

/// Inside the sandbox: the servers, then the stories in their order.
fn run(environment: &Environment, chosen: &[&Story]) -> ExitCode {
    let end_with_outside = sandbox::end_with_outside(environment.arguments.keep);
    let started = wait::now();
    let lab = end_with_outside.map_err(Failure::from).and_then(|()| Lab::start(environment.clone()));
    let mut stage = match lab {
        Ok(lab) => Stage::new(lab),
        Err(failure) => {
            println!("FAILED {:6.1} s  the servers start", wait::seconds_since(started));
            print_reason(&failure.to_string());
            println!("0 passed, {} failed, 0 skipped", chosen.len().max(1));
            return ExitCode::FAILURE;
        }
    };
    println!("       {:6.1} s  garden and seed are up", wait::seconds_since(started));
    let (mut passed, mut failed, mut skipped) = (0, 0, 0);
    for story in chosen {
        let missing = story.missing(environment);
        if let Some(missing) = missing.as_ref().filter(|_| !environment.ci) {
            println!("skip            {}", story.name);
            print_reason(missing);
            skipped += 1;
            continue;
        }
        let started = wait::now();
        let result = match missing {
            Some(missing) => Err(Failure::new(missing)),
            None => stage.run(story),
        };
        let seconds = wait::seconds_since(started);
        match result {
            Ok(()) => {
                println!("ok     {seconds:6.1} s  {}", story.name);
                passed += 1;
            }
            Err(failure) => {
                println!("FAILED {seconds:6.1} s  {}", story.name);
                print_reason(&format!("{failure}\n{}", stage.lab.explained(story.name)));
                failed += 1;
            }
        }
    }
    if environment.arguments.keep {
        stage.lab.keep();
    }
    drop(stage);
    println!("{passed} passed, {failed} failed, {skipped} skipped");
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn print_reason(reason: &str) {
    reason.lines().for_each(|line| println!("{INDENT}{line}"));
    println!();
}
