//! The properties of an API server that the tests rely on, as checks that the stand-in and a real kube-apiserver both pass. A
//! wrong assumption about the real server fails in `tests/cluster`.

mod access;
mod custom;
mod life;
mod objects;
mod patches;
mod protection;
mod refusals;
mod watches;

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use gardenlet::api::core::{CONFIG_MAP, NAMESPACE};
use gardenlet::api::meta::{CLUSTER_SCOPED, Key};
use gardenlet::base::clock::Clock;
use gardenlet::kube::{Client, Error};
use serde_json::{Value, json};

use super::options::patience;

/// The outcome of a check: what was not as expected.
pub type Outcome = Result<(), String>;

/// One check. It has a namespace of its own.
pub struct Check {
    pub name: &'static str,
    pub run: fn(&Place<'_>) -> Outcome,
}

/// Where a check runs: a client of a cluster-admin and a fresh namespace.
pub struct Place<'a> {
    pub client: &'a Client,
    pub namespace: String,
}

impl Place<'_> {
    /// The key of an object in the namespace.
    fn key(&self, name: &str) -> Key {
        Key::new(&self.namespace, name)
    }
}

/// All checks.
pub fn checks() -> Vec<Check> {
    [
        objects::CHECKS,
        patches::CHECKS,
        refusals::CHECKS,
        life::CHECKS,
        watches::CHECKS,
        custom::CHECKS,
        protection::CHECKS,
        access::CHECKS,
    ]
    .into_iter()
    .flatten()
    .map(|(name, run)| Check { name, run: *run })
    .collect()
}

/// Checks at the same time: most of them wait for the server.
const PARALLEL: usize = 4;

/// Runs all checks; the names and reasons of those that failed.
pub fn run(client: &Client) -> Vec<String> {
    let (checks, next, failed) = (checks(), AtomicUsize::new(0), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..PARALLEL {
            scope.spawn(|| {
                loop {
                    let number = next.fetch_add(1, Ordering::SeqCst);
                    let Some(check) = checks.get(number) else { return };
                    if let Err(why) = run_one(client, number, check) {
                        failed.lock().unwrap().push(format!("{}: {why}", check.name));
                    }
                }
            });
        }
    });
    failed.into_inner().unwrap()
}

fn run_one(client: &Client, number: usize, check: &Check) -> Outcome {
    let namespace = format!("semantics-{number}");
    let object = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}});
    client
        .create::<Value>(&NAMESPACE, CLUSTER_SCOPED, &object)
        .map_err(|e| format!("namespace: {}", chain(&e)))?;
    (check.run)(&Place { client, namespace })
}

/// A named check function, as the parts list them.
type Named = (&'static str, fn(&Place<'_>) -> Outcome);

fn chain(error: &Error) -> String {
    let mut text = error.to_string();
    let mut source = std::error::Error::source(error);
    while let Some(cause) = source {
        text.push_str(&format!(": {cause}"));
        source = cause.source();
    }
    text
}

/// Turns a call that must work into an outcome.
fn ok<T>(what: &str, result: Result<T, Error>) -> Result<T, String> {
    result.map_err(|e| format!("{what}: {}", chain(&e)))
}

/// Compares.
#[allow(clippy::needless_pass_by_value)] // both are mostly temporaries of the caller
fn equal<T: PartialEq + std::fmt::Debug>(what: &str, found: T, expected: T) -> Outcome {
    if found == expected { Ok(()) } else { Err(format!("{what}: found {found:?}, expected {expected:?}")) }
}

/// Requires.
fn ensure(condition: bool, what: impl Into<String>) -> Outcome {
    if condition { Ok(()) } else { Err(what.into()) }
}

/// A call that must be refused with this code and reason.
fn refused<T>(what: &str, result: Result<T, Error>, code: u16, reason: &str) -> Result<String, String> {
    match result {
        Ok(_) => Err(format!("{what}: was not refused")),
        Err(Error::Api(failure)) if failure.code == code && failure.reason == reason => Ok(failure.message),
        Err(Error::Api(f)) => {
            Err(format!("{what}: {} {:?} ({}), expected {code} {reason:?}", f.code, f.reason, f.message))
        }
        Err(e) => Err(format!("{what}: {}", chain(&e))),
    }
}

/// Repeats until the condition holds, for at most twenty seconds: a real server accepts a token for ten more.
fn until(what: &str, mut condition: impl FnMut() -> Result<bool, String>) -> Outcome {
    let (clock, stop) = (Clock::system(), gardenlet::base::stop::Stop::new());
    let deadline = clock.mono() + patience(Duration::from_secs(20));
    while clock.mono() < deadline {
        if condition()? {
            return Ok(());
        }
        stop.wait(&clock, Duration::from_millis(20));
    }
    Err(format!("timed out waiting for {what}"))
}

impl Place<'_> {
    fn config_map(&self, name: &str, value: &str) -> Result<Value, String> {
        let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"key": value}});
        ok("create a ConfigMap", self.client.create(&CONFIG_MAP, &self.namespace, &object))
    }
}
