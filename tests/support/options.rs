//! What a run of the tests may be asked for. `tests/run` sets the variables; a test program started by hand reads the same.

use std::io::Write as _;
use std::time::Duration;

/// Every choice that tests make by chance comes from this seed: sampled points, random charts, broken inputs. So two runs of
/// the same commit try the same. `tests/run --seed` sets another one, and `--long` draws one.
pub const SEED: u64 = 20_261_127;

/// In CI, the machine may be several times slower than the one on which a deadline was chosen.
const CI_PATIENCE: u32 = 4;

/// A variable that is set and not empty.
#[allow(clippy::disallowed_methods)] // test options come from the environment
pub fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|text| !text.is_empty())
}

/// Whether the tests may take hours: all points, more objects, and limits of speed.
pub fn is_long() -> bool {
    variable("GARDENLET_TESTS_LONG").is_some()
}

/// Whether everything must run, on a machine of unknown speed.
pub fn in_ci() -> bool {
    variable("CI").is_some_and(|value| value != "false")
}

/// `GARDENLET_TESTS_SEED`, otherwise [`SEED`].
pub fn seed() -> u64 {
    seed_of(variable("GARDENLET_TESTS_SEED").as_deref())
}

fn seed_of(given: Option<&str>) -> u64 {
    given.map_or(SEED, |text| text.parse().expect("GARDENLET_TESTS_SEED is a number"))
}

/// How long to wait in real time for what must happen. Such a deadline is a promise that the test ends, not a measurement:
/// in CI it is four times as long. What must happen *in* a certain time is a figure for [`measured`].
pub fn patience(limit: Duration) -> Duration {
    patience_of(limit, in_ci())
}

fn patience_of(limit: Duration, in_ci: bool) -> Duration {
    if in_ci { limit * CI_PATIENCE } else { limit }
}

/// Prints a figure that depends on the speed of the machine, with its limit. Only a long run, which has the machine to
/// itself, demands the limit.
///
/// # Errors
/// In a long run: the figure, if it is above the limit.
pub fn measured(what: &str, figure: f64, limit: f64) -> Result<(), String> {
    let line = format!("{what}: {figure:.1}, at most {limit:.1}");
    // The test harness captures only what the printing macros write.
    drop(writeln!(std::io::stderr(), "measured: {line}"));
    verdict(line, figure <= limit, is_long())
}

fn verdict(line: String, is_good: bool, is_long: bool) -> Result<(), String> {
    if is_good || !is_long { Ok(()) } else { Err(line) }
}

#[test]
fn a_seed_is_fixed_unless_another_one_is_given() {
    assert_eq!((seed_of(None), seed_of(Some("7"))), (SEED, 7));
}

#[test]
fn only_ci_waits_longer() {
    let limit = Duration::from_secs(30);
    assert_eq!((patience_of(limit, false), patience_of(limit, true)), (limit, limit * 4));
}

#[test]
fn only_a_long_run_demands_a_limit() {
    let verdict = |is_good, is_long| verdict("gap: 6.0, at most 5.0".to_owned(), is_good, is_long).is_ok();
    assert_eq!([verdict(true, true), verdict(false, false), verdict(false, true)], [true, true, false]);
}
