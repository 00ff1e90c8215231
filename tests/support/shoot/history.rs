//! The history of a Shoot: every change of its last operation, from the log of the garden.

use serde_json::Value;

use crate::api::store::State;
use crate::cluster::{PATIENCE, TestCluster};
use crate::json::text;
use crate::pace;

const CORE: &str = "core.gardener.cloud";

/// One state of a last operation.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Operation {
    pub kind: String,
    pub state: String,
    pub progress: i64,
    pub description: String,
    /// Of the Shoot that it works on.
    pub generation: i64,
}

impl Operation {
    /// The last operation of a Shoot.
    pub fn of(shoot: &Value) -> Option<Self> {
        let last = shoot.pointer("/status/lastOperation").filter(|last| last.is_object())?;
        let field = |name: &str| text(last, name).to_owned();
        Some(Self {
            kind: field("/type"),
            state: field("/state"),
            progress: last["progress"].as_i64().unwrap_or_default(),
            description: field("/description"),
            generation: shoot["status"]["observedGeneration"].as_i64().unwrap_or_default(),
        })
    }

    /// `Create Succeeded 100`
    pub fn line(&self) -> String {
        format!("{} {} {}", self.kind, self.state, self.progress)
    }
}

/// All states of a Shoot's last operation, without repetitions, the oldest first.
pub fn operations(garden: &TestCluster, namespace: &str, name: &str) -> Vec<Operation> {
    let state = garden.store().read();
    let mut all: Vec<Operation> =
        shoots(&state, state.compacted, (namespace, name)).filter_map(Operation::of).collect();
    all.dedup();
    all
}

/// The start of a Shoot's first operation after a revision of the garden, in RFC 3339.
pub fn started(garden: &TestCluster, place: (&str, &str), revision: u64) -> Option<String> {
    let state = garden.store().read();
    let mut operations =
        shoots(&state, revision, place).filter_map(|shoot| shoot.pointer("/status/lastOperation"));
    let first = operations.find(|operation| operation["state"] == "Processing")?;
    Some(text(first, "/lastUpdateTime").to_owned())
}

/// A Shoot after each of its changes since a revision, the oldest first.
fn shoots<'a>(
    state: &'a State,
    revision: u64,
    (namespace, name): (&'a str, &'a str),
) -> impl Iterator<Item = &'a Value> {
    let of_shoot = state.since(revision).filter(move |change| {
        change.id.is_of(CORE, "shoots") && change.id.namespace == namespace && change.id.name == name
    });
    of_shoot.map(|change| &*change.after)
}

/// Where progress decreases within one run of an operation. A change of the Shoot, such as a request for reconciliation, starts
/// a new run, even if the previous one has not ended.
pub fn falls(operations: &[Operation]) -> Vec<String> {
    let pairs = operations.iter().zip(operations.iter().skip(1));
    let is_fall = |(before, after): &(&Operation, &Operation)| {
        let is_same = (&before.kind, before.generation) == (&after.kind, after.generation);
        is_same && before.state == "Processing" && after.progress < before.progress
    };
    pairs.filter(is_fall).map(|(before, after)| format!("{} -> {}", before.line(), after.line())).collect()
}

/// Waits until the last operation of a Shoot ends so, and its progress never fell. The Shoot as it is then.
pub fn wait_until(garden: &TestCluster, (namespace, name): (&str, &str), line: &str) -> Value {
    let found = garden.wait_on(&pace::clock(), PATIENCE, |garden| {
        let shoot = garden.get(CORE, "shoots", namespace, name)?;
        let is_observed = shoot["status"]["observedGeneration"] == shoot["metadata"]["generation"];
        let is_done = Operation::of(&shoot).is_some_and(|operation| operation.line() == line);
        (is_done && is_observed).then_some(shoot)
    });
    let shoot = found.unwrap_or_else(|| {
        let status = garden.get(CORE, "shoots", namespace, name).map(|shoot| shoot["status"].to_string());
        panic!("timed out waiting for {line} of {namespace}/{name}: {status:?}")
    });
    assert_eq!(falls(&operations(garden, namespace, name)), Vec::<String>::new());
    shoot
}

/// Waits until an operation of a Shoot has succeeded, whichever.
pub fn wait_for_success(garden: &TestCluster, (namespace, name): (&str, &str)) {
    let found = garden.wait_on(&pace::clock(), PATIENCE, |garden| {
        let shoot = garden.get(CORE, "shoots", namespace, name)?;
        (Operation::of(&shoot)?.state == "Succeeded").then_some(())
    });
    found.unwrap_or_else(|| {
        let status = garden.get(CORE, "shoots", namespace, name).map(|shoot| shoot["status"].to_string());
        panic!("timed out waiting for success of {namespace}/{name}: {status:?}")
    });
}

/// Waits until a Shoot is created.
pub fn wait_until_created(garden: &TestCluster, place: (&str, &str)) -> Value {
    wait_until(garden, place, "Create Succeeded 100")
}

#[test]
fn progress_falls_only_with_a_new_operation() {
    let operation = |kind: &str, state: &str, progress| Operation {
        kind: kind.to_owned(),
        state: state.to_owned(),
        progress,
        description: String::new(),
        generation: 1,
    };
    let good = [
        operation("Create", "Pending", 0),
        operation("Create", "Processing", 0),
        operation("Create", "Processing", 40),
        operation("Create", "Error", 40),
        operation("Create", "Processing", 0),
        operation("Create", "Processing", 90),
        operation("Reconcile", "Processing", 0),
    ];
    assert_eq!(falls(&good), Vec::<String>::new());
    let bad = [operation("Create", "Processing", 40), operation("Create", "Processing", 39)];
    assert_eq!(falls(&bad), ["Create Processing 40 -> Create Processing 39"]);
    let changed = [
        operation("Reconcile", "Processing", 41),
        Operation { generation: 2, ..operation("Reconcile", "Processing", 0) },
    ];
    assert_eq!(falls(&changed), Vec::<String>::new());
}
