//! Broken inputs for everything that parses text or bytes from outside: for every input, a parser returns a result or
//! an error, soon, and within its stack and memory.
//!
//! `cargo test --test mutate [-- --seed=N --seconds=N --target=NAME]`. The seed is printed; it is that of all tests, and
//! `tests/run --long` draws another one. Each target runs in its own process, which stores its current input in a file:
//! after a crash the input is found there. An input that fails is minimized before it is shown.

// A test program that prints to standard output; it may panic if its own requirements are missing.
#![allow(clippy::print_stdout, clippy::disallowed_methods, clippy::unwrap_used)]

mod corpus;
mod mutation;
mod targets;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::process::{Child, Command, ExitCode};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use support::options;
use support::random::Random;
use targets::{TARGETS, Target};

/// For all targets together.
const SECONDS: u64 = 30;
const SECONDS_LONG: u64 = 600;
/// The time beyond its share after which a process counts as hanging.
const GRACE: Duration = Duration::from_secs(120);
/// Attempts to minimize an input, and their time.
const ATTEMPTS: usize = 500;
const SHRINK_TIME: Duration = Duration::from_secs(20);
const SHOWN_BYTES: usize = 2_048;

/// The place and message of the last panic.
static PANIC: Mutex<String> = Mutex::new(String::new());

fn main() -> ExitCode {
    let seed = option("--seed=").and_then(|text| text.parse().ok()).unwrap_or_else(options::seed);
    let seconds = option("--seconds=").and_then(|text| text.parse().ok());
    let seconds = seconds.unwrap_or(if options::is_long() { SECONDS_LONG } else { SECONDS });
    let wanted = option("--target=");
    if let (Some(folder), Some(name)) = (option("--folder="), &wanted) {
        let target = TARGETS.iter().find(|target| target.name == name);
        return target.map_or(ExitCode::FAILURE, |target| run(target, seed, seconds, Path::new(&folder)));
    }
    println!("seed {seed}; repeat with: cargo test --test mutate -- --seed={seed}");
    let chosen: Vec<&Target> =
        TARGETS.iter().filter(|target| wanted.as_ref().is_none_or(|name| target.name == name)).collect();
    let share = seconds / u64::try_from(chosen.len().max(1)).unwrap_or(1);
    let failed = chosen.iter().filter(|target| !watch(target, seed, share.max(1))).count();
    println!("{} passed, {failed} failed, 0 skipped", chosen.len() - failed);
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn option(name: &str) -> Option<String> {
    std::env::args().find_map(|argument| argument.strip_prefix(name).map(str::to_owned))
}

/// Runs one target in its own process; returns whether it passed.
fn watch(target: &Target, seed: u64, seconds: u64) -> bool {
    let folder =
        std::env::temp_dir().join(format!("gardenlet-mutate-{}-{}", std::process::id(), target.name));
    let start = || -> std::io::Result<Child> {
        std::fs::create_dir_all(&folder)?;
        Command::new(std::env::current_exe()?)
            .args([format!("--target={}", target.name), format!("--seed={seed}")])
            .args([format!("--seconds={seconds}"), format!("--folder={}", folder.display())])
            .spawn()
    };
    let end = match start() {
        Ok(child) => wait(child, Duration::from_secs(seconds) + GRACE),
        Err(error) => Err(error.to_string()),
    };
    if let Err(reason) = &end {
        println!("{}: {reason}", target.name);
        let input = std::fs::read(folder.join("input")).unwrap_or_default();
        println!("  the last input: {}", shown(&input));
    }
    let passed = end == Ok(true);
    let _ = std::fs::remove_dir_all(folder);
    passed
}

/// Whether the process was successful; an error if it was killed.
fn wait(mut child: Child, patience: Duration) -> Result<bool, String> {
    let started = Instant::now();
    loop {
        match child.try_wait().map_err(|error| error.to_string())? {
            Some(status) if status.code().is_some() => return Ok(status.success()),
            Some(status) => return Err(format!("the process died ({status})")),
            None if started.elapsed() > patience => {
                let _ = child.kill();
                let _ = child.wait();
                return Err("the process hangs".to_owned());
            }
            None => std::thread::sleep(Duration::from_millis(50)),
        }
    }
}

/// The process of one target.
fn run(target: &'static Target, seed: u64, seconds: u64, folder: &Path) -> ExitCode {
    std::panic::set_hook(Box::new(|info| {
        *PANIC.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = info.to_string();
    }));
    let folder = folder.to_owned();
    let body = move || cases(target, seed, seconds, &folder);
    // Without optimisation a function uses several times the stack of the released one.
    let stack_bytes = if cfg!(debug_assertions) { 2 * target.stack_bytes } else { target.stack_bytes };
    let thread = std::thread::Builder::new().stack_size(stack_bytes).spawn(body);
    thread.ok().and_then(|thread| thread.join().ok()).unwrap_or(ExitCode::FAILURE)
}

fn cases(target: &Target, seed: u64, seconds: u64, folder: &Path) -> ExitCode {
    let mut random = Random::new(seed);
    let corpus = (target.corpus)();
    let started = Instant::now();
    let (mut count, mut longest) = (0_u64, Duration::ZERO);
    let mut failure = corpus
        .iter()
        .find_map(|input| judge(target, folder, input, &mut longest).err().map(|why| (input.clone(), why)));
    while failure.is_none() && started.elapsed().as_secs() < seconds {
        let input = mutation::mutated(&mut random, &corpus, target.words);
        failure = judge(target, folder, &input, &mut longest).err().map(|why| (input, why));
        count += 1;
    }
    let peak = peak_mib();
    println!(
        "{:<12} {count:>7} cases, the longest {} ms, memory {peak} MiB",
        target.name,
        longest.as_millis()
    );
    if let Some((input, why)) = failure {
        let (small, why) = shrunk(target, folder, input, why);
        println!("{} fails with seed {seed}: {why}\n  {}", target.name, shown(&small));
        return ExitCode::FAILURE;
    }
    if peak > target.memory_mib {
        println!("{} took more than {} MiB of memory", target.name, target.memory_mib);
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}

/// Passes one input to the target; the error describes the wrong answer.
fn judge(target: &Target, folder: &Path, input: &[u8], longest: &mut Duration) -> Result<(), String> {
    std::fs::write(folder.join("input"), input).map_err(|error| format!("keep the input: {error}"))?;
    let started = Instant::now();
    let answer = catch_unwind(AssertUnwindSafe(|| (target.check)(input, folder)));
    let took = started.elapsed();
    *longest = took.max(*longest);
    match answer {
        Err(_) => Err(PANIC.lock().unwrap_or_else(std::sync::PoisonError::into_inner).clone()),
        Ok(Err(why)) => Err(why),
        Ok(Ok(())) if took > target.patience => Err(format!("took {} ms", took.as_millis())),
        Ok(Ok(())) => Ok(()),
    }
}

/// Removes pieces, smaller and smaller ones, as long as the input still fails.
fn shrunk(target: &Target, folder: &Path, mut input: Vec<u8>, mut why: String) -> (Vec<u8>, String) {
    let started = Instant::now();
    let (mut attempts, mut longest) = (0, Duration::ZERO);
    let mut piece = input.len() / 2;
    while piece > 0 {
        let mut at = 0;
        while at < input.len() {
            attempts += 1;
            if attempts > ATTEMPTS || started.elapsed() > SHRINK_TIME {
                return (input, why);
            }
            let end = (at + piece).min(input.len());
            let less = [&input[..at], &input[end..]].concat();
            match judge(target, folder, &less, &mut longest) {
                Err(reason) => (input, why) = (less, reason),
                Ok(()) => at += piece,
            }
        }
        piece /= 2;
    }
    (input, why)
}

fn shown(input: &[u8]) -> String {
    let text = input[..input.len().min(SHOWN_BYTES / 4)].escape_ascii().to_string();
    format!("{} bytes: {text}", input.len())
}

/// The peak memory of this process; 0 where the system does not report it.
fn peak_mib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.and_then(|rest| rest.split_whitespace().next()?.parse::<u64>().ok()).unwrap_or(0) / 1_024
}
