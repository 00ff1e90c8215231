//! Objects of extensions: flows write them, wait for them, migrate, restore and delete them. The test plays the
//! extension.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use gardenlet::api::gardener::OPERATION;
use gardenlet::api::meta::{Key, Resource};
use gardenlet::base::clock::{Clock, Mono, Simulated, Timestamp};
use gardenlet::components::crds;
use gardenlet::extension::{
    DesiredExtension, ExtensionObject, ExtensionPatience, ExtensionResourceState, TIMESTAMP,
};
use gardenlet::flow::{
    Attempt, Failed, Flow, FlowObserver, FlowProgress, FlowTurn, TaskError, TaskFunction, TaskRow, TaskStep,
};
use gardenlet::kube::Client;
use serde_json::{Value, json};

use support::encoding::rfc3339;
use support::http::faults::{Action, Seen, failure};
use support::json::text;
use support::{Options, TestCluster};

const GROUP: &str = "extensions.gardener.cloud";
const EXTENSION: Resource = Resource::new(GROUP, "v1alpha1", "Extension", "extensions", true);
const DNS_RECORD: Resource = Resource::new(GROUP, "v1alpha1", "DNSRecord", "dnsrecords", true);
const FINALIZER: &str = "extensions.gardener.cloud/lab";

/// A seed with the kinds of extensions.
struct Lab {
    seed: TestCluster,
    time: Arc<Simulated>,
    clock: Clock,
    /// The requests to the extension, in order.
    asked: Vec<String>,
    /// The extension's answer to all requests, if it does not succeed.
    error: Option<Value>,
    /// How long flows wanted to wait.
    waited: Duration,
}

/// The context of a flow's tasks.
struct Context {
    client: Client,
    clock: Clock,
    target: ExtensionObject,
    desired: DesiredExtension,
    memory: ExtensionResourceState,
}

struct Silent;

impl FlowObserver for Silent {
    fn progress(&mut self, _: &FlowProgress) {}
}

impl Lab {
    fn new(name: &str) -> Self {
        let time = Simulated::new(Timestamp::from_unix(1_767_600_000), 1);
        let clock = Clock::new(time.clone());
        let seed = TestCluster::start(Options::new(name, &clock));
        seed.apply(&crds::extensions().collect::<Vec<_>>());
        for kind in [&EXTENSION, &DNS_RECORD] {
            seed.wait_for("the kind", |seed| seed.api().kind(GROUP, &kind.plural));
        }
        seed.create("v1", "namespaces", &json!({"metadata": {"name": "garden"}}));
        Self { seed, time, clock, asked: Vec::new(), error: None, waited: Duration::ZERO }
    }

    fn context(&self, resource: Resource, name: &str, spec: Value) -> Context {
        Context {
            client: self.seed.client(),
            clock: self.clock.clone(),
            target: ExtensionObject { resource, key: Key::new("garden", name) },
            desired: DesiredExtension::new(spec),
            memory: ExtensionResourceState::default(),
        }
    }

    fn object(&self, cx: &Context) -> Option<Value> {
        self.seed.get(GROUP, &cx.target.resource.plural, "garden", &cx.target.key.name)
    }

    /// Runs a flow to its end, while the extension works and time passes.
    fn run(&mut self, mut flow: Flow<Context>, cx: &mut Context) -> Vec<TaskError> {
        loop {
            let clock = self.clock.clone();
            let turn = flow.turn(cx, &|| clock.mono(), &mut Silent);
            self.extension(cx);
            match turn {
                FlowTurn::Ended(ended) => return ended,
                FlowTurn::Again(after) => self.pass(after),
            }
        }
    }

    fn pass(&mut self, time: Duration) {
        self.waited += time;
        self.time.advance(time);
    }

    /// One round of the extension. It behaves like Gardener's library for extensions.
    fn extension(&mut self, cx: &Context) {
        let Some(object) = self.object(cx) else { return };
        let plural = cx.target.resource.plural.as_ref();
        let key = ("garden", cx.target.key.name.as_str());
        let annotations = &object["metadata"]["annotations"];
        let operation = annotations[OPERATION].as_str().unwrap_or_default().to_owned();
        if !object["metadata"]["deletionTimestamp"].is_null() {
            self.asked.push("delete".to_owned());
            self.report(&object, plural, "Delete");
            if self.error.is_none() {
                self.seed.merge(GROUP, plural, key, &json!({"metadata": {"finalizers": null}}));
            }
            return;
        }
        let kind = match operation.as_str() {
            "" | "wait-for-state" => return,
            "migrate" => "Migrate",
            "restore" => "Restore",
            _ if object["status"]["lastOperation"].is_null() => "Create",
            _ => "Reconcile",
        };
        self.asked.push(format!("{operation} {}", object["spec"]));
        if kind == "Restore" {
            assert_eq!(object["status"]["state"], json!({"zone": "z-1"}), "there is no state to restore");
        }
        self.report(&object, plural, kind);
        let finalizers = if kind == "Migrate" { Value::Null } else { json!([FINALIZER]) };
        let done = json!({"metadata": {"annotations": {OPERATION: null}, "finalizers": finalizers}});
        self.seed.merge(GROUP, plural, key, &done);
    }

    fn report(&self, object: &Value, plural: &str, kind: &str) {
        let now = rfc3339(self.clock.now());
        let (state, progress) = if self.error.is_some() { ("Error", 50) } else { ("Succeeded", 100) };
        let operation = json!({"type": kind, "state": state, "progress": progress, "description": "by the test",
            "lastUpdateTime": now});
        let status = json!({"status": {"lastOperation": operation, "lastError": self.error,
            "observedGeneration": object["metadata"]["generation"], "state": {"zone": "z-1"}}});
        self.seed.merge_status(GROUP, plural, ("garden", text(object, "/metadata/name")), &status);
    }
}

type Task = TaskRow<Context, (), ()>;

const ASKING: &str = "Asking";

/// A flow that asks the extension, and waits for its answer.
fn flow(ask: Task, wait: TaskFunction<Context>) -> Flow<Context> {
    Flow::new("test", &[ask, TaskRow::new("Waiting", wait, ()).after(&[ASKING])], &())
}

fn wait_ready(cx: &mut Context, attempt: &Attempt) -> Result<TaskStep, Failed> {
    cx.target.wait_ready(&cx.client, ExtensionPatience::of(&cx.target.resource), attempt)
}

fn ready() -> Flow<Context> {
    let deploy: TaskFunction<Context> = |cx, _| {
        cx.target.deploy(&cx.client, &cx.desired, cx.clock.now())?;
        Ok(TaskStep::Done)
    };
    flow(TaskRow::new(ASKING, deploy, ()), wait_ready)
}

fn needed() -> Flow<Context> {
    let deploy: TaskFunction<Context> =
        |cx, _| cx.target.deploy_if_needed(&cx.client, &cx.desired, cx.clock.now());
    flow(TaskRow::new(ASKING, deploy, ()).within(Duration::from_secs(120)), wait_ready)
}

fn gone() -> Flow<Context> {
    let delete: TaskFunction<Context> = |cx, _| {
        cx.target.delete(&cx.client, cx.clock.now())?;
        Ok(TaskStep::Done)
    };
    let wait: TaskFunction<Context> =
        |cx, attempt| cx.target.wait_gone(&cx.client, ExtensionPatience::of(&cx.target.resource), attempt);
    flow(TaskRow::new(ASKING, delete, ()), wait)
}

fn migrated() -> Flow<Context> {
    let migrate: TaskFunction<Context> = |cx, _| {
        cx.target.migrate(&cx.client, cx.clock.now())?;
        Ok(TaskStep::Done)
    };
    let wait: TaskFunction<Context> = |cx, attempt| {
        cx.target.wait_migrated(&cx.client, ExtensionPatience::of(&cx.target.resource), attempt)
    };
    flow(TaskRow::new(ASKING, migrate, ()), wait)
}

fn restored() -> Flow<Context> {
    let restore: TaskFunction<Context> = |cx, _| {
        cx.target.restore(&cx.client, &cx.desired, &cx.memory, cx.clock.now())?;
        Ok(TaskStep::Done)
    };
    flow(TaskRow::new(ASKING, restore, ()), wait_ready)
}

fn good(errors: &[TaskError]) {
    assert!(errors.is_empty(), "{errors:?}");
}

#[test]
fn an_object_is_reconciled_each_time_and_deleted_with_a_confirmation() {
    let mut lab = Lab::new("lab");
    let mut cx = lab.context(EXTENSION, "lab", json!({"type": "lab", "class": "seed"}));
    cx.desired.labels.insert("ours".to_owned(), json!("yes"));
    good(&lab.run(ready(), &mut cx));
    let first = lab.object(&cx).unwrap();
    assert_eq!(first["metadata"]["labels"], json!({"ours": "yes"}));
    let asked_at = text(&first, "/metadata/annotations/gardener.cloud~1timestamp").to_owned();
    lab.time.advance(Duration::from_secs(60));
    good(&lab.run(ready(), &mut cx));
    let second = lab.object(&cx).unwrap();
    assert_ne!(second["metadata"]["annotations"][TIMESTAMP], asked_at);
    assert_eq!(second["spec"], first["spec"]);
    assert_eq!(lab.asked.len(), 2, "{:?}", lab.asked);
    let all = ExtensionObject::of_class(&cx.client, &EXTENSION, "garden", "seed").unwrap();
    assert_eq!(all, [cx.target.clone()]);
    assert_eq!(ExtensionObject::of_class(&cx.client, &EXTENSION, "garden", "shoot").unwrap(), []);
    let mark = lab.seed.request_count();
    good(&lab.run(gone(), &mut cx));
    assert_eq!(lab.object(&cx), None);
    let requests = lab.seed.requests_since(mark);
    let writes: Vec<&str> = requests.iter().filter(|r| r.is_write()).map(|r| r.method.as_str()).collect();
    assert_eq!(writes, ["PATCH", "DELETE"]);
    good(&lab.run(gone(), &mut cx));
    good(&lab.run(migrated(), &mut cx));
}

#[test]
fn an_extension_with_errors_gets_time_to_recover_and_its_codes_are_kept() {
    let mut lab = Lab::new("errors");
    let mut cx = lab.context(EXTENSION, "lab", json!({"type": "lab"}));
    lab.error = Some(json!({"description": "no quota", "codes": ["ERR_INFRA_QUOTA_EXCEEDED"]}));
    let begun = lab.clock.mono();
    let ended = lab.run(ready(), &mut cx);
    let took = lab.clock.mono() - begun;
    assert!(
        took.as_secs() >= 35 && lab.waited.as_secs() < 45,
        "{took:?}, of which it waited {:?}",
        lab.waited
    );
    let failed = &ended[0].failed;
    let expected =
        "Error while waiting for Extension garden/lab to become ready: error during reconciliation: no quota";
    assert_eq!(
        (failed.text.as_str(), failed.codes.as_slice()),
        (expected, &["ERR_INFRA_QUOTA_EXCEEDED".to_owned()][..])
    );
    // The extension recovers by itself; the next flow requests the operation again.
    lab.error = None;
    good(&lab.run(ready(), &mut cx));
    lab.error = Some(json!({"description": "still in use"}));
    let ended = lab.run(gone(), &mut cx);
    let expected = "Error while waiting for Extension garden/lab to be deleted: error during reconciliation: still in use";
    assert_eq!(ended[0].failed.text, expected);
    lab.error = None;
    good(&lab.run(gone(), &mut cx));
}

#[test]
fn the_wait_for_a_silent_extension_ends_with_a_timeout() {
    let mut lab = Lab::new("silence");
    let mut cx = lab.context(EXTENSION, "lab", json!({"type": "lab"}));
    let (mut flow, begun) = (ready(), lab.clock.mono());
    let ended = loop {
        let now = || -> Mono { lab.clock.mono() };
        match flow.turn(&mut cx, &now, &mut Silent) {
            FlowTurn::Ended(ended) => break ended,
            FlowTurn::Again(after) => lab.pass(after),
        }
    };
    let took = lab.clock.mono() - begun;
    assert!(
        took.as_secs() >= 180 && lab.waited.as_secs() < 190,
        "{took:?}, of which it waited {:?}",
        lab.waited
    );
    let expected =
        "Error while waiting for Extension garden/lab to become ready: observed generation outdated (0/1)";
    assert_eq!(ended[0].failed.text, expected);
}

#[test]
fn a_correct_record_is_not_written_again() {
    let mut lab = Lab::new("record");
    let spec = |kind: &str, value: &str| {
        json!({"type": "lab", "class": "seed", "name": "*.i.example.org", "recordType": kind, "values": [value],
            "secretRef": {"name": "dns", "namespace": "garden"}})
    };
    let mut cx = lab.context(DNS_RECORD, "seed-ingress", spec("A", "10.0.0.1"));
    good(&lab.run(needed(), &mut cx));
    lab.time.advance(Duration::from_secs(60));
    let mark = lab.seed.request_count();
    good(&lab.run(needed(), &mut cx));
    assert!(lab.seed.requests_since(mark).iter().all(|r| !r.is_write()));
    cx.desired.spec = spec("A", "10.0.0.2");
    good(&lab.run(needed(), &mut cx));
    let uid = lab.object(&cx).unwrap()["metadata"]["uid"].clone();
    cx.desired.spec = spec("CNAME", "lb.example.org");
    good(&lab.run(needed(), &mut cx));
    let record = lab.object(&cx).unwrap();
    assert_eq!(record["spec"], cx.desired.spec);
    assert_ne!(record["metadata"]["uid"], uid);
    let asked: Vec<&str> = lab.asked.iter().map(|line| line.split(' ').next().unwrap()).collect();
    assert_eq!(asked, ["reconcile", "reconcile", "delete", "reconcile"]);
}

/// An object moves: its state exists before the agent requests the restoration. A crash after any of the writes, or a
/// flow that starts again, gives the same result.
#[test]
fn an_object_is_migrated_and_restored_despite_crashes() {
    let story = |lost: Option<usize>| {
        let mut lab = Lab::new("moving");
        let mut cx = lab.context(EXTENSION, "lab", json!({"type": "lab"}));
        let writes = Arc::new(AtomicUsize::new(0));
        let counter = writes.clone();
        let is_it = move |seen: &Seen| {
            seen.is_write() && counter.fetch_add(1, Ordering::SeqCst) == lost.unwrap_or(usize::MAX)
        };
        lab.seed.faults().when(is_it).then(Action::RefuseAfter(failure(500, None)));
        let again = |lab: &mut Lab, cx: &mut Context, flow: fn() -> Flow<Context>| {
            if !lab.run(flow(), cx).is_empty() {
                good(&lab.run(flow(), cx));
            }
        };
        again(&mut lab, &mut cx, ready);
        again(&mut lab, &mut cx, migrated);
        cx.memory.state = lab.object(&cx).unwrap()["status"]["state"].clone();
        again(&mut lab, &mut cx, gone);
        assert_eq!(lab.object(&cx), None);
        again(&mut lab, &mut cx, restored);
        let object = lab.object(&cx).unwrap();
        assert_eq!(object["status"]["lastOperation"]["type"], "Restore");
        assert_eq!(object["status"]["state"], json!({"zone": "z-1"}));
        assert_eq!(object["metadata"]["annotations"][OPERATION], Value::Null);
        writes.load(Ordering::SeqCst)
    };
    let writes = story(None);
    assert_eq!(writes, 7);
    for lost in 0..writes {
        story(Some(lost));
    }
}
