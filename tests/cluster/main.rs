//! Stories on real servers: etcd, kube-apiserver, kube-controller-manager, kubelet, and the agent as a real process.
//!
//! `cargo test --test cluster [-- words]` runs the stories whose names contain one of the words; `--list` names them,
//! `--shoots` runs only those whose Shoots run in a node, `--others` only the others; `--keep` leaves everything
//! running until Enter is pressed. The program starts itself a second time inside a sandbox (`sandbox.rs`). No packet
//! leaves the sandbox, and all its processes end with the run.
//!
//! One line is printed per story. The last line is always `N passed, N failed, N skipped`.

// The harness prints to standard output.
#![allow(clippy::print_stdout, clippy::print_stderr)]

mod agent;
mod audit;
mod balancer;
mod chart;
mod cluster;
mod environment;
mod etcd;
mod failure;
mod filter;
mod gate;
mod image;
mod lab;
mod names;
mod node;
mod outside;
mod process;
mod registry;
mod sandbox;
mod secrets;
mod site;
mod size;
mod snapshot;
mod storage;
mod stories;
mod tokens;
mod wait;
mod world;
mod writer;

use std::process::ExitCode;

use environment::Environment;
use failure::Failure;
use lab::Lab;
use stories::{STORIES, Story};

fn main() -> ExitCode {
    let environment = Environment::read();
    let chosen: Vec<&Story> = STORIES.iter().filter(|story| story.is_wanted(&environment)).collect();
    if environment.list {
        chosen.iter().for_each(|story| println!("{}", story.name));
        return ExitCode::SUCCESS;
    }
    if chosen.is_empty() {
        println!(
            "cluster: no story has one of these words in its name; --list shows them\n0 passed, 1 failed, 0 skipped"
        );
        return ExitCode::FAILURE;
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
    let end_with_outside = sandbox::end_with_outside(environment.keep);
    let (mut passed, mut failed, mut skipped) = (0, 0, 0);
    let started = wait::now();
    let mut lab = match end_with_outside.map_err(Failure::from).and_then(|()| Lab::start(environment.clone()))
    {
        Ok(lab) => lab,
        Err(failure) => {
            println!("FAILED {:6.1} s  the servers start: {failure}", wait::seconds_since(started));
            println!("0 passed, {} failed, 0 skipped", chosen.len().max(1));
            return ExitCode::FAILURE;
        }
    };
    println!("       {:6.1} s  garden and seed are up", wait::seconds_since(started));
    for story in chosen {
        let missing = story.missing(environment);
        if let Some(missing) = missing.as_ref().filter(|_| !environment.ci) {
            println!("skip            {}: {missing}", story.name);
            skipped += 1;
            continue;
        }
        let started = wait::now();
        let result = match missing {
            Some(missing) => Err(Failure::new(missing)),
            None => stories::run(story, &mut lab),
        };
        let seconds = wait::seconds_since(started);
        match result {
            Ok(()) => {
                println!("ok     {seconds:6.1} s  {}", story.name);
                passed += 1;
            }
            Err(failure) => {
                println!("FAILED {seconds:6.1} s  {}: {failure}", story.name);
                lab.explain(story.name);
                failed += 1;
            }
        }
    }
    if environment.keep {
        lab.keep();
    }
    drop(lab);
    println!("{passed} passed, {failed} failed, {skipped} skipped");
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
