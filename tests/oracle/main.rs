//! Random templates, rendered by this engine and by real Helm: both outputs must be equal, and if one fails, the other
//! must fail, too. And random configurations of Secrets, whose checksums must equal those of Go's library.
//!
//! `cargo test --test oracle [-- --seed=N --cases=N]`. The seed is printed. It is that of all tests,
//! so that a failure comes from a change of the code; `tests/run --long` draws another one, and tries many more cases.
//! Cases that our engine renders are sent to Helm by the hundred; of the cases that it refuses, a sample is sent one by
//! one. A case that differs is minimized before it is shown.

// A test program that prints to standard output.
#![allow(clippy::print_stdout, clippy::disallowed_methods)]

mod grammar;
mod hashes;
mod oracle;
mod tree;

use std::path::PathBuf;
use std::process::ExitCode;

use gardenlet::format::base64;
use gardenlet::limits::RENDER_STACK_BYTES;
use oracle::{Helm, Outcome, PANICKED, ours};
use support::options::{self, variable};
use support::random::Random;
use tree::Tree;

const CASES: usize = 8_000;
const CASES_LONG: usize = 200_000;
/// Configurations of Secrets.
const CONFIGS: usize = 1_000;
const CONFIGS_LONG: usize = 50_000;
/// Cases that Helm renders at a time: its start takes as long as some hundred of them.
const BATCH: usize = 400;
/// Of the cases that our engine refuses, one in this many is sent to Helm.
const REFUSED: usize = 20;
/// Differences that are minimized and shown; there are usually few causes.
const SHOWN: usize = 10;
/// Attempts to minimize a case.
const ATTEMPTS: usize = 200;

struct Plan {
    seed: u64,
    cases: usize,
    configs: usize,
}

fn main() -> ExitCode {
    // Templates recurse: all run on one deep stack, because a new one for each case takes longer than the case.
    let run = std::thread::Builder::new().stack_size(RENDER_STACK_BYTES).spawn(compare);
    run.ok().and_then(|thread| thread.join().ok()).unwrap_or(ExitCode::FAILURE)
}

fn compare() -> ExitCode {
    let plan = Plan::read();
    let folder = std::env::temp_dir().join(format!("gardenlet-oracle-{}", std::process::id()));
    let templates = against("helm", "random templates", |program| {
        let result = run(&plan, &Helm::new(program, folder.clone()));
        let _ = std::fs::remove_dir_all(&folder);
        result
    });
    let hashes = against("config-hash", "checksums of Secrets", |program| {
        hashes::run(plan.seed, plan.configs, &program)
    });
    let count = |wanted: Verdict| [templates, hashes].iter().filter(|verdict| **verdict == wanted).count();
    let failed = count(Verdict::Failed);
    if failed > 0 {
        println!("repeat with: cargo test --test oracle -- --seed={}", plan.seed);
    }
    println!("{} passed, {failed} failed, {} skipped", count(Verdict::Passed), count(Verdict::Skipped));
    if failed > 0 { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

#[derive(Clone, Copy, PartialEq)]
enum Verdict {
    Passed,
    Failed,
    Skipped,
}

/// Compares with a program of the tools, if it exists; `run` returns how many cases differ.
fn against(name: &str, what: &str, run: impl FnOnce(PathBuf) -> Result<usize, String>) -> Verdict {
    let cache = variable("GARDENLET_TEST_CACHE").map_or_else(
        || PathBuf::from(variable("HOME").unwrap_or_default()).join(".cache/gardenlet-tests"),
        PathBuf::from,
    );
    let program = cache.join("bin").join(name);
    if !program.is_file() {
        println!("LEFT OUT: {what} against {name}: it is not there (tests/run builds it)");
        return if options::in_ci() { Verdict::Failed } else { Verdict::Skipped };
    }
    match run(program) {
        Ok(0) => Verdict::Passed,
        Ok(different) => {
            println!("{what}: {different} cases differ");
            Verdict::Failed
        }
        Err(message) => {
            println!("{what}: {message}");
            Verdict::Failed
        }
    }
}

impl Plan {
    fn read() -> Self {
        let option = |name: &str| {
            std::env::args()
                .find_map(|argument| argument.strip_prefix(name).and_then(|text| text.parse::<u64>().ok()))
        };
        let (usual, configs) = if options::is_long() { (CASES_LONG, CONFIGS_LONG) } else { (CASES, CONFIGS) };
        let cases = option("--cases=").and_then(|cases| usize::try_from(cases).ok()).unwrap_or(usual);
        Self { seed: option("--seed=").unwrap_or_else(options::seed), cases, configs }
    }
}

/// Returns how many cases differ.
fn run(plan: &Plan, helm: &Helm) -> Result<usize, String> {
    let mut random = Random::new(plan.seed);
    let (mut rendered, mut refused, mut asked, mut different) = (0, 0, 0, 0);
    let mut left = plan.cases;
    while left > 0 {
        let mut batch: Vec<(Tree, String)> = Vec::new();
        while left > 0 && batch.len() < BATCH {
            left -= 1;
            let tree = grammar::template(&mut random);
            match ours(&tree.text()) {
                Ok(text) => batch.push((tree, text)),
                // Cases that only our limits refuse would take Helm hours.
                Err(message) if message.contains(" has more than ") => refused += 1,
                Err(message) => {
                    refused += 1;
                    if refused % REFUSED == 0 || message == PANICKED {
                        asked += 1;
                        different += judge(helm, &tree, &Err(message), &helm.one(&tree.text())?, different)?;
                    }
                }
            }
        }
        rendered += batch.len();
        let cases: Vec<String> = batch.iter().map(|(tree, _)| tree.text()).collect();
        let found = helm.batch(&cases)?;
        for (n, (tree, text)) in batch.into_iter().enumerate() {
            let theirs = found.get(&n).cloned().unwrap_or_else(|| Err("no result".to_owned()));
            different += judge(helm, &tree, &Ok(text), &theirs, different)?;
        }
    }
    println!(
        "seed {}: {rendered} templates rendered, {refused} refused, of them {asked} also shown to helm",
        plan.seed
    );
    Ok(different)
}

/// 1 if the outcomes differ.
fn judge(helm: &Helm, tree: &Tree, own: &Outcome, theirs: &Outcome, before: usize) -> Result<usize, String> {
    if !differ(own, theirs) || is_about_cut_characters(helm, tree)? {
        return Ok(0);
    }
    if before < SHOWN {
        let (tree, own, theirs) = shrink(helm, tree.clone(), own.clone(), theirs.clone())?;
        println!("differs: {}", tree.text());
        println!("  helm:      {theirs:?}\n  gardenlet: {own:?}");
    }
    Ok(1)
}

/// Whether an argument is a text with a part of a character.
fn is_cut(argument: &str) -> bool {
    let bytes = ours(&format!("{{{{ {argument} | toString | b64enc }}}}")).ok();
    let bytes = bytes.and_then(|text| base64::decode(text.trim().as_bytes()).ok());
    bytes.is_some_and(|bytes| std::str::from_utf8(&bytes).is_err())
}

/// Whether the outcomes differ only because of texts with a part of a character: Go's libraries keep, replace or escape the
/// part, each in its own way, and docs/rendering.md says that ours differ. With another text in their place, there is no
/// difference.
fn is_about_cut_characters(helm: &Helm, tree: &Tree) -> Result<bool, String> {
    let Some(whole) = tree.replaced(&is_cut, "\"x\"") else { return Ok(false) };
    let text = whole.text();
    Ok(!differ(&ours(&text), &helm.one(&text)?))
}

/// tests/charts compares messages; here it only matters that there is one.
fn differ(own: &Outcome, theirs: &Outcome) -> bool {
    match (own, theirs) {
        (Ok(own), Ok(theirs)) => own != theirs,
        (Err(message), Err(_)) => message == PANICKED,
        _ => true,
    }
}

fn shrink(
    helm: &Helm,
    mut tree: Tree,
    mut own: Outcome,
    mut theirs: Outcome,
) -> Result<(Tree, Outcome, Outcome), String> {
    let mut attempts = 0;
    'again: loop {
        for simple in tree.simpler() {
            if attempts == ATTEMPTS {
                break 'again;
            }
            attempts += 1;
            let text = simple.text();
            let (new_own, new_theirs) = (ours(&text), helm.one(&text)?);
            // The kind of difference stays the same, or one cause would turn into another.
            let same_kind = own.is_ok() == new_own.is_ok() && theirs.is_ok() == new_theirs.is_ok();
            if same_kind && differ(&new_own, &new_theirs) {
                (tree, own, theirs) = (simple, new_own, new_theirs);
                continue 'again;
            }
        }
        break;
    }
    Ok((tree, own, theirs))
}
