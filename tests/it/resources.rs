//! The applier of ManagedResources against the in-process server: the objects it writes, the conditions it reports, and
//! the small number of its requests.

// Test code outside of test functions; specs are literals.
#![allow(clippy::panic, clippy::needless_pass_by_value)]

use std::sync::Arc;
use std::time::Duration;

use gardenlet::api::meta::Key;
use gardenlet::base::clock::{Clock, Simulated, Timestamp};
use gardenlet::base::metrics::Metrics;
use gardenlet::base::stop::Stop;
use gardenlet::format::{base64, brotli};
use gardenlet::kube::{Applier, Client, Connection, Options as ClientOptions};
use gardenlet::resources::{ApplierSettings, ManagedResourceApplier, TargetCluster};
use gardenlet::runtime::controller::{ReconcileContext, ReconcileFailure, ReconcileOutcome, Reconciler};
use gardenlet::runtime::fence::Fence;
use gardenlet::runtime::source::WatchSource;
use serde_json::{Value, json};

use support::http::faults::{Action, Seen, failure};
use support::http::record::Recorded;
use support::{Options, TestCluster};

const FINALIZER: &str = "resources.gardener.cloud/gardener-resource-manager-seed";
const GROUP: &str = "resources.gardener.cloud";

/// A seed with an applier, whose rounds the tests call one by one.
struct Rig {
    seed: TestCluster,
    time: Arc<Simulated>,
    resources: ManagedResourceApplier,
    cx: ReconcileContext,
}

impl Rig {
    fn new(name: &str) -> Self {
        let time = Simulated::new(Timestamp::from_unix(1_790_000_000), 1);
        let clock = Clock::new(time.clone());
        let seed = TestCluster::start(Options::new(name, &clock));
        seed.create(
            "apiextensions.k8s.io/v1",
            "customresourcedefinitions",
            &crd(GROUP, "v1alpha1", "ManagedResource"),
        );
        seed.wait_for("the kind", |c| c.api().kind(GROUP, "managedresources"));
        seed.create("v1", "namespaces", &json!({"metadata": {"name": "garden"}}));
        let client = client(&seed, &clock);
        let cx = ReconcileContext {
            clock: clock.clone(),
            stop: Stop::new(),
            metrics: Metrics::new(),
            events: gardenlet::runtime::events::EventRecorder::new("test"),
        };
        Self { resources: ManagedResourceApplier::new(client, ApplierSettings::default()), seed, time, cx }
    }

    /// A Secret with manifests, and the ManagedResource that refers to it.
    fn install(&self, name: &str, spec: Value, manifests: &[Value]) {
        self.secret(name, manifests);
        let mut all = json!({"class": "seed", "secretRefs": [{"name": name}]});
        all.as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
        let object = managed_resource(name, &json!({"spec": all}));
        self.seed.create("resources.gardener.cloud/v1alpha1", "managedresources", &object);
    }

    /// Writes the Secret with manifests, also if it exists.
    fn secret(&self, name: &str, manifests: &[Value]) {
        let text: Vec<String> = manifests.iter().map(Value::to_string).collect();
        self.secret_with(name, &[("data.yaml", text.join("\n---\n").as_bytes())]);
    }

    fn secret_with(&self, name: &str, data: &[(&str, &[u8])]) {
        if self.seed.get("", "secrets", "garden", name).is_some() {
            self.seed.delete("", "secrets", "garden", name);
        }
        let data: Value = data
            .iter()
            .map(|(key, bytes)| ((*key).to_owned(), json!(base64::encode(bytes))))
            .collect::<serde_json::Map<_, _>>()
            .into();
        self.seed.create(
            "v1",
            "secrets",
            &json!({"metadata": {"name": name, "namespace": "garden"}, "data": data}),
        );
    }

    /// One round of the applier.
    fn round(&self, name: &str) -> Result<ReconcileOutcome, ReconcileFailure> {
        self.resources.applying().reconcile(&Key::new("garden", name), &self.cx)
    }

    /// Rounds until there is nothing more to do, as the queue would call them, but without its delays.
    fn settle(&self, name: &str) {
        let mut last = String::new();
        for _ in 0..20 {
            match self.round(name) {
                Ok(ReconcileOutcome::Done) => return,
                Ok(ReconcileOutcome::After(d)) if (3_240..=3_960).contains(&d.as_secs()) => return,
                Ok(ReconcileOutcome::At(_)) => panic!("the applier never waits for a fixed time"),
                Ok(ReconcileOutcome::After(d) | ReconcileOutcome::GoOn(d)) => {
                    assert_eq!(d, Duration::from_secs(5));
                    last = "pending".to_owned();
                    self.time.advance(d);
                }
                Err(failure) => {
                    last = failure.text();
                    // Discovery asks again only after a while.
                    self.time.advance(Duration::from_secs(30));
                }
            }
            // Deletions with foreground propagation take the server a moment.
            Stop::new().wait(&Clock::system(), Duration::from_millis(10));
        }
        panic!("{name} did not settle: {last}");
    }

    /// One check of health and progress.
    fn check(&self, name: &str) -> ReconcileOutcome {
        self.resources.checks().reconcile(&Key::new("garden", name), &self.cx).unwrap()
    }

    fn managed_resource(&self, name: &str) -> Value {
        self.seed.get(GROUP, "managedresources", "garden", name).unwrap()
    }

    /// `status reason: message` of a condition; empty if there is none.
    fn condition(&self, name: &str, kind: &str) -> String {
        let object = self.managed_resource(name);
        let conditions = object["status"]["conditions"].as_array().cloned().unwrap_or_default();
        let Some(c) = conditions.iter().find(|c| c["type"] == kind) else { return String::new() };
        format!(
            "{} {}: {}",
            c["status"].as_str().unwrap(),
            c["reason"].as_str().unwrap(),
            c["message"].as_str().unwrap()
        )
    }

    fn get(&self, plural: &str, name: &str) -> Option<Value> {
        self.seed.get("", plural, "garden", name)
    }

    fn writes(&self, since: usize) -> Vec<String> {
        let all = self.seed.requests();
        all[since..].iter().filter(|r| r.is_write()).map(Recorded::line).collect()
    }
}

fn client(seed: &TestCluster, clock: &Clock) -> Applier {
    client_under(seed, clock, None)
}

/// A client that writes under a lease.
fn client_under(seed: &TestCluster, clock: &Clock, lease: Option<&Fence>) -> Applier {
    let identity =
        seed.client_identity("system:serviceaccount:garden:gardener-resource-manager", &["system:masters"]);
    let connection =
        Connection::new(seed.url()).with_ca(seed.ca()).with_certificate(identity.certificate, identity.key);
    let permit = lease.map(|lease| lease.permit(Duration::from_secs(5)));
    let options = ClientOptions { clock: clock.clone(), qps: 0.0, permit, ..ClientOptions::default() };
    Applier(Client::new(connection, options).unwrap())
}

fn managed_resource(name: &str, rest: &Value) -> Value {
    json!({"apiVersion": "resources.gardener.cloud/v1alpha1", "kind": "ManagedResource",
        "metadata": {"name": name, "namespace": "garden"}, "spec": rest["spec"]})
}

/// A CustomResourceDefinition without a schema.
fn crd(group: &str, version: &str, kind: &str) -> Value {
    let singular = kind.to_lowercase();
    let schema = json!({"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}});
    json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{singular}s.{group}")},
        "spec": {"group": group, "scope": "Namespaced",
            "names": {"kind": kind, "plural": format!("{singular}s"), "singular": singular, "listKind": format!("{kind}List")},
            "versions": [{"name": version, "served": true, "storage": true, "schema": schema, "subresources": {"status": {}}}]}})
}

fn config_map(name: &str, value: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "garden"}, "data": {"key": value}})
}

fn deployment(name: &str, replicas: u32) -> Value {
    let labels = json!({"app": name});
    json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name, "namespace": "garden"},
        "spec": {"replicas": replicas, "selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels},
            "spec": {"containers": [{"name": "c", "image": "i"}]}}}})
}

#[test]
fn objects_are_created_updated_and_removed() {
    let rig = Rig::new("apply");
    rig.install(
        "mr",
        json!({"injectLabels": {"injected": "yes"}}),
        &[config_map("a", "1"), config_map("b", "1")],
    );
    rig.settle("mr");

    let a = rig.get("configmaps", "a").unwrap();
    assert_eq!(a["data"], json!({"key": "1"}));
    assert_eq!(
        a["metadata"]["labels"],
        json!({"injected": "yes", "resources.gardener.cloud/managed-by": "gardener"})
    );
    assert_eq!(a["metadata"]["annotations"]["resources.gardener.cloud/origin"], "garden/mr");
    let mr = rig.managed_resource("mr");
    assert_eq!(mr["metadata"]["finalizers"], json!([FINALIZER]));
    assert_eq!(mr["status"]["observedGeneration"], mr["metadata"]["generation"]);
    let labels = json!({"injected": "yes", "resources.gardener.cloud/managed-by": "gardener"});
    let reference = |name: &str| json!({"apiVersion": "v1", "kind": "ConfigMap", "namespace": "garden", "name": name, "labels": labels});
    assert_eq!(mr["status"]["resources"], json!([reference("a"), reference("b")]));
    assert_eq!(mr["status"]["secretsDataChecksum"].as_str().unwrap().len(), 64);
    assert_eq!(rig.condition("mr", "ResourcesApplied"), "True ApplySucceeded: All resources are applied.");
    assert!(rig.condition("mr", "ResourcesHealthy").starts_with("Unknown ChecksPending: "));
    assert!(rig.condition("mr", "ResourcesProgressing").starts_with("Unknown ChecksPending: "));

    rig.secret("mr", &[config_map("a", "2"), config_map("c", "1")]);
    rig.settle("mr");
    assert_eq!(rig.get("configmaps", "a").unwrap()["data"], json!({"key": "2"}));
    assert!(rig.get("configmaps", "b").is_none());
    assert!(rig.get("configmaps", "c").is_some());
}

#[test]
fn changes_of_others_are_reverted_but_their_metadata_stays() {
    let rig = Rig::new("drift");
    rig.install("mr", json!({}), &[config_map("a", "1")]);
    rig.settle("mr");
    let theirs = json!({"data": {"key": "x", "other": "y"}, "metadata": {"labels": {"theirs": "1"}}});
    rig.seed.merge("", "configmaps", ("garden", "a"), &theirs);
    rig.settle("mr");
    let a = rig.get("configmaps", "a").unwrap();
    assert_eq!(a["data"], json!({"key": "1"}));
    assert_eq!(a["metadata"]["labels"]["theirs"], "1");
}

#[test]
fn nothing_is_written_when_nothing_changes() {
    let rig = Rig::new("quiet");
    rig.install("mr", json!({}), &[config_map("a", "1"), deployment("d", 1)]);
    rig.settle("mr");
    // A controller rolls it out at its own pace: until then each check may find a change.
    rig.seed.wait_for("the rollout", |seed| {
        let deployment = seed.get("apps", "deployments", "garden", "d")?;
        (deployment["status"]["readyReplicas"] == 1).then_some(())
    });
    rig.settle("mr");
    let before = rig.seed.requests().len();
    rig.settle("mr");
    rig.check("mr");
    rig.check("mr");
    let first = rig.writes(before);
    assert!(first.len() <= 1, "the first check reports: {first:?}");
    let before = rig.seed.requests().len();
    rig.settle("mr");
    rig.check("mr");
    assert_eq!(rig.writes(before), Vec::<String>::new());
}

#[test]
fn a_managed_resource_is_deleted_with_its_objects() {
    let rig = Rig::new("delete");
    rig.install("mr", json!({}), &[config_map("a", "1"), deployment("d", 1)]);
    rig.settle("mr");
    rig.seed.delete("", "secrets", "garden", "mr");
    rig.seed.delete(GROUP, "managedresources", "garden", "mr");
    let outcome = rig.round("mr").unwrap();
    assert_eq!(outcome, ReconcileOutcome::After(Duration::from_secs(5)));
    let pending = "DeletionPending: The resources are currently being deleted.";
    assert_eq!(rig.condition("mr", "ResourcesHealthy"), format!("False {pending}"));
    assert_eq!(rig.condition("mr", "ResourcesProgressing"), format!("True {pending}"));
    let applied = rig.condition("mr", "ResourcesApplied");
    assert!(applied.starts_with("Progressing DeletionPending: deletion of old resource "), "{applied}");
    assert!(applied.contains("\"apps/v1/Deployment/garden/d\" is still pending"), "{applied}");
    rig.settle("mr");
    assert!(rig.seed.get(GROUP, "managedresources", "garden", "mr").is_none());
    assert!(rig.get("configmaps", "a").is_none());
    assert!(rig.seed.get("apps", "deployments", "garden", "d").is_none());
    let deletions = rig.seed.requests();
    let of_deployment =
        deletions.iter().find(|r| r.method == "DELETE" && r.path.ends_with("/deployments/d")).unwrap();
    assert_eq!(of_deployment.body.as_ref().unwrap()["propagationPolicy"], "Foreground");
    let of_config_map =
        deletions.iter().find(|r| r.method == "DELETE" && r.path.ends_with("/configmaps/a")).unwrap();
    assert!(of_config_map.body.as_ref().unwrap().get("propagationPolicy").is_none());
}

#[test]
fn what_pods_mount_is_deleted_after_their_workload() {
    let rig = Rig::new("mounted");
    let in_other = |mut object: Value| {
        object["metadata"]["namespace"] = json!("default");
        object
    };
    rig.install("mr", json!({}), &[config_map("a", "1"), in_other(config_map("b", "1")), deployment("d", 1)]);
    rig.settle("mr");
    let hold = |finalizers: Value| {
        let patch = json!({"metadata": {"finalizers": finalizers}});
        rig.seed.merge("apps", "deployments", ("garden", "d"), &patch);
    };
    hold(json!(["test/hold"]));
    rig.seed.delete(GROUP, "managedresources", "garden", "mr");
    for _ in 0..3 {
        assert_eq!(rig.round("mr").unwrap(), ReconcileOutcome::After(Duration::from_secs(5)));
        let a = rig.get("configmaps", "a").expect("a pod may still need it");
        assert!(a["metadata"]["deletionTimestamp"].is_null());
    }
    assert!(rig.seed.get("", "configmaps", "default", "b").is_none(), "no workload is in its namespace");
    let applied = rig.condition("mr", "ResourcesApplied");
    for object in ["apps/v1/Deployment/garden/d", "v1/ConfigMap/garden/a"] {
        assert!(
            applied.contains(&format!("deletion of old resource \"{object}\" is still pending")),
            "{applied}"
        );
    }
    hold(Value::Null);
    rig.settle("mr");
    assert!(rig.get("configmaps", "a").is_none());
    assert!(rig.seed.get(GROUP, "managedresources", "garden", "mr").is_none());
}

#[test]
fn objects_stay_if_asked() {
    let rig = Rig::new("keep");
    let mut kept = config_map("kept", "1");
    kept["metadata"]["annotations"] = json!({"resources.gardener.cloud/keep-object": "true"});
    rig.install("one", json!({}), &[kept, config_map("gone", "1")]);
    rig.install("all", json!({"keepObjects": true}), &[config_map("stays", "1")]);
    for name in ["one", "all"] {
        rig.settle(name);
        rig.seed.delete(GROUP, "managedresources", "garden", name);
        rig.settle(name);
        assert!(rig.seed.get(GROUP, "managedresources", "garden", name).is_none(), "{name}");
    }
    assert!(rig.get("configmaps", "kept").is_some());
    assert!(rig.get("configmaps", "gone").is_none());
    assert!(rig.get("configmaps", "stays").is_some());
}

#[test]
fn a_kind_and_its_objects_are_created_and_deleted_together() {
    let rig = Rig::new("crd");
    let object = json!({"apiVersion": "example.org/v1", "kind": "Widget", "metadata": {"name": "w", "namespace": "garden"}});
    rig.install("mr", json!({}), &[object, crd("example.org", "v1", "Widget")]);
    rig.settle("mr");
    assert!(rig.seed.get("example.org", "widgets", "garden", "w").is_some());
    assert_eq!(rig.condition("mr", "ResourcesApplied"), "True ApplySucceeded: All resources are applied.");
    rig.check("mr");
    assert_eq!(rig.condition("mr", "ResourcesHealthy"), "True ResourcesHealthy: All resources are healthy.");
    rig.seed.delete(GROUP, "managedresources", "garden", "mr");
    rig.settle("mr");
    assert!(rig.seed.get(GROUP, "managedresources", "garden", "mr").is_none());
    assert!(
        rig.seed
            .get("apiextensions.k8s.io", "customresourcedefinitions", "", "widgets.example.org")
            .is_none()
    );
}

#[test]
fn old_objects_are_deleted_before_new_ones_are_created() {
    let rig = Rig::new("order");
    rig.install("mr", json!({}), &[config_map("old", "1")]);
    rig.settle("mr");
    rig.seed.merge("", "configmaps", ("garden", "old"), &json!({"metadata": {"finalizers": ["test/hold"]}}));
    rig.secret("mr", &[config_map("new", "1")]);
    assert_eq!(rig.round("mr").unwrap(), ReconcileOutcome::After(Duration::from_secs(5)));
    assert!(rig.get("configmaps", "new").is_none());
    let applied = rig.condition("mr", "ResourcesApplied");
    assert!(applied.starts_with("Progressing DeletionPending: "), "{applied}");
    rig.seed.merge("", "configmaps", ("garden", "old"), &json!({"metadata": {"finalizers": null}}));
    rig.settle("mr");
    assert!(rig.get("configmaps", "new").is_some());
    assert!(rig.get("configmaps", "old").is_none());
}

#[test]
fn finalizers_are_removed_when_the_deletion_takes_too_long() {
    let rig = Rig::new("finalize");
    rig.install("mr", json!({}), &[config_map("a", "1")]);
    rig.settle("mr");
    let hold = json!({"metadata": {"finalizers": ["test/hold"],
        "annotations": {"resources.gardener.cloud/finalize-deletion-after": "1m"}}});
    rig.seed.merge("", "configmaps", ("garden", "a"), &hold);
    rig.seed.delete(GROUP, "managedresources", "garden", "mr");
    for _ in 0..3 {
        assert_eq!(rig.round("mr").unwrap(), ReconcileOutcome::After(Duration::from_secs(5)));
        assert!(rig.get("configmaps", "a").is_some());
    }
    rig.time.advance(Duration::from_secs(60));
    rig.settle("mr");
    assert!(rig.get("configmaps", "a").is_none());
}

#[test]
fn compressed_and_broken_documents() {
    let rig = Rig::new("decode");
    let text = format!("{}\n---\na: [\n---\n{}", config_map("a", "1"), config_map("b", "1"));
    rig.install("mr", json!({}), &[]);
    rig.secret_with("mr", &[("data.yaml.br", &brotli::encode(text.as_bytes())), ("more.yaml", b"just text")]);
    rig.settle("mr");
    assert!(rig.get("configmaps", "a").is_some());
    assert!(rig.get("configmaps", "b").is_some());
    let applied = rig.condition("mr", "ResourcesApplied");
    assert!(
        applied.starts_with("False DecodingFailed: Could not decode all new resources: document 1 of key"),
        "{applied}"
    );
    assert!(applied.contains("key \"more.yaml\""), "{applied}");
    let mr = rig.managed_resource("mr");
    assert_eq!(mr["status"]["resources"].as_array().unwrap().len(), 2);
    assert_eq!(mr["status"]["observedGeneration"], mr["metadata"]["generation"]);
}

#[test]
fn a_document_that_is_not_an_object_fails_when_it_is_applied() {
    let rig = Rig::new("nameless");
    rig.install("mr", json!({}), &[json!({"apiVersion": "v1", "data": {}}), config_map("a", "1")]);
    assert!(rig.round("mr").is_err());
    // The objects before it are applied; the condition still says that nothing was applied.
    assert!(rig.get("configmaps", "a").is_some());
    assert_eq!(
        rig.condition("mr", "ResourcesApplied"),
        "False ApplyFailed: error during apply of object \"v1//default/\": not an object: kind is missing"
    );
    let status = rig.managed_resource("mr")["status"].clone();
    for field in ["resources", "secretsDataChecksum", "observedGeneration"] {
        assert!(status[field].is_null(), "{status}");
    }
}

#[test]
fn health_is_checked_despite_wait_for_state() {
    let rig = Rig::new("waits");
    rig.install("mr", json!({}), &[config_map("a", "1")]);
    rig.settle("mr");
    let wait = json!({"metadata": {"annotations": {"gardener.cloud/operation": "wait-for-state"}}});
    rig.seed.merge(GROUP, "managedresources", ("garden", "mr"), &wait);
    rig.seed.delete("", "configmaps", "garden", "a");
    assert_ne!(rig.check("mr"), ReconcileOutcome::Done);
    let healthy = rig.condition("mr", "ResourcesHealthy");
    assert!(healthy.starts_with("False ConfigMapMissing: "), "{healthy}");
    assert_eq!(rig.round("mr").unwrap(), ReconcileOutcome::Done);
}

#[test]
fn a_missing_secret_is_reported_and_waited_for() {
    let rig = Rig::new("secret");
    rig.install("mr", json!({}), &[config_map("a", "1")]);
    rig.seed.delete("", "secrets", "garden", "mr");
    assert!(rig.round("mr").is_err());
    assert_eq!(
        rig.condition("mr", "ResourcesApplied"),
        "False CannotReadSecret: secret \"mr\" does not exist"
    );
    rig.secret("mr", &[config_map("a", "1")]);
    rig.settle("mr");
    assert_eq!(rig.condition("mr", "ResourcesApplied"), "True ApplySucceeded: All resources are applied.");
}

#[test]
fn ignored_managed_resources_and_objects() {
    let rig = Rig::new("ignore");
    let mut once = config_map("once", "1");
    once["metadata"]["annotations"] = json!({"resources.gardener.cloud/ignore": "true"});
    rig.install("mr", json!({}), &[once.clone()]);
    rig.settle("mr");
    rig.seed.merge("", "configmaps", ("garden", "once"), &json!({"data": {"key": "theirs"}}));
    rig.settle("mr");
    assert_eq!(rig.get("configmaps", "once").unwrap()["data"]["key"], "theirs");

    let mark = json!({"metadata": {"annotations": {"resources.gardener.cloud/ignore": "true"}}});
    rig.seed.merge(GROUP, "managedresources", ("garden", "mr"), &mark);
    rig.secret("mr", &[config_map("new", "1")]);
    assert_eq!(rig.round("mr").unwrap(), ReconcileOutcome::Done);
    assert!(rig.get("configmaps", "new").is_none());
    let text = "ManagedResourceIgnored: ManagedResource is marked to be ignored.";
    assert_eq!(rig.condition("mr", "ResourcesApplied"), format!("True {text}"));
    assert_eq!(rig.condition("mr", "ResourcesHealthy"), format!("True {text}"));
    assert_eq!(rig.condition("mr", "ResourcesProgressing"), format!("False {text}"));
    rig.seed.delete(GROUP, "managedresources", "garden", "mr");
    rig.settle("mr");
    assert!(rig.get("configmaps", "once").is_none());
}

#[test]
fn released_objects_stay_without_our_labels() {
    let rig = Rig::new("release");
    rig.install("mr", json!({}), &[config_map("a", "1"), config_map("b", "1")]);
    rig.settle("mr");
    rig.seed.merge(
        "",
        "configmaps",
        ("garden", "b"),
        &json!({"metadata": {"annotations": {"resources.gardener.cloud/origin": "garden/other"}}}),
    );
    let ignored = |name: &str| {
        let mut object = config_map(name, "2");
        object["metadata"]["annotations"] = json!({"resources.gardener.cloud/mode": "Ignore"});
        object
    };
    rig.secret("mr", &[ignored("a"), ignored("b")]);
    rig.settle("mr");
    let a = rig.get("configmaps", "a").unwrap();
    assert_eq!(a["data"], json!({"key": "1"}));
    assert!(a["metadata"].get("annotations").is_none_or(|all| all.as_object().unwrap().is_empty()), "{a}");
    let b = rig.get("configmaps", "b").unwrap();
    assert_eq!(b["metadata"]["annotations"]["resources.gardener.cloud/origin"], "garden/other");
    assert_eq!(rig.managed_resource("mr")["status"]["resources"], json!([]));
}

#[test]
fn immutable_objects_are_created_again() {
    let rig = Rig::new("immutable");
    let fixed = |value: &str| {
        let mut object = config_map("fixed", value);
        object["immutable"] = json!(true);
        object
    };
    rig.install("mr", json!({}), &[fixed("1")]);
    rig.settle("mr");
    rig.secret("mr", &[fixed("2")]);
    let failure = rig.round("mr").unwrap_err().text();
    assert!(
        failure.starts_with(
            "error during apply of object \"v1/ConfigMap/garden/fixed\": deleted to be created again"
        ),
        "{failure}"
    );
    assert!(
        rig.condition("mr", "ResourcesApplied")
            .starts_with("False ApplyFailed: error during apply of object")
    );
    rig.settle("mr");
    assert_eq!(rig.get("configmaps", "fixed").unwrap()["data"]["key"], "2");
}

#[test]
fn autoscaled_replicas_stay() {
    let rig = Rig::new("scale");
    let scaler = json!({"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": "h", "namespace": "garden"},
        "spec": {"maxReplicas": 9, "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "scaled"}}});
    rig.install("mr", json!({}), &[deployment("scaled", 1), deployment("fixed", 1), scaler]);
    rig.settle("mr");
    for name in ["scaled", "fixed"] {
        rig.seed.merge("apps", "deployments", ("garden", name), &json!({"spec": {"replicas": 5}}));
    }
    rig.settle("mr");
    let replicas =
        |name: &str| rig.seed.get("apps", "deployments", "garden", name).unwrap()["spec"]["replicas"].clone();
    assert_eq!((replicas("scaled"), replicas("fixed")), (json!(5), json!(1)));
}

#[test]
fn health_and_progress_are_reported() {
    let rig = Rig::new("health");
    let mut held = deployment("d", 2);
    held["metadata"]["annotations"] = json!({"test.gardener.cloud/hold": "yes"});
    rig.install("mr", json!({}), &[held, config_map("a", "1"), config_map("b", "1")]);
    let before = rig.seed.requests().len();
    let ReconcileOutcome::After(period) = rig.check("mr") else { panic!("there is no further check") };
    assert!((54..=66).contains(&period.as_secs()), "{period:?}");
    let requests = rig.seed.requests().len() - before;
    assert_eq!(requests, 1, "no objects are checked before they are applied");
    rig.settle("mr");
    let ReconcileOutcome::After(soon) = rig.check("mr") else { panic!("there is no further check") };
    assert!(soon < Duration::from_secs(3), "{soon:?}");
    let sick =
        "False DeploymentUnhealthy: Deployment \"garden/d\" is unhealthy: observed generation outdated (0/1)";
    assert_eq!(rig.condition("mr", "ResourcesHealthy"), sick);
    let running = "True DeploymentProgressing: Deployment \"garden/d\" is progressing: observed generation outdated (0/1)";
    assert_eq!(rig.condition("mr", "ResourcesProgressing"), running);
    rig.time.advance(Duration::from_secs(900));
    let ReconcileOutcome::After(period) = rig.check("mr") else { panic!("there is no further check") };
    assert!((54..=66).contains(&period.as_secs()), "{period:?}");

    rig.seed.merge(
        "apps",
        "deployments",
        ("garden", "d"),
        &json!({"metadata": {"annotations": {"test.gardener.cloud/hold": null}}}),
    );
    rig.seed.wait_for("the Deployment", |c| {
        let found = c.get("apps", "deployments", "garden", "d")?;
        let is_observed = found["status"]["observedGeneration"] == found["metadata"]["generation"];
        (is_observed && c.store().names("", "pods", "garden").len() == 2).then_some(())
    });
    rig.check("mr");
    assert_eq!(rig.condition("mr", "ResourcesHealthy"), "True ResourcesHealthy: All resources are healthy.");
    assert_eq!(
        rig.condition("mr", "ResourcesProgressing"),
        "False ResourcesRolledOut: All resources have been fully rolled out."
    );

    let surplus = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "surplus", "namespace": "garden",
        "labels": {"app": "d"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    rig.seed.create("v1", "pods", &surplus);
    // Otherwise the stand-in could start it after it has ended.
    rig.seed.wait_for("the surplus pod", |c| {
        (c.get("", "pods", "garden", "surplus")?["status"]["phase"] == "Running").then_some(())
    });
    rig.check("mr");
    let running = "True DeploymentProgressing: Deployment \"garden/d\" is progressing: there are still non-terminated old pods";
    assert_eq!(rig.condition("mr", "ResourcesProgressing"), running);
    rig.seed.merge_status("", "pods", ("garden", "surplus"), &json!({"status": {"phase": "Succeeded"}}));
    rig.check("mr");
    let condition = rig.condition("mr", "ResourcesProgressing");
    assert!(condition.starts_with("False ResourcesRolledOut: "), "{condition}");

    rig.seed.delete("", "configmaps", "garden", "b");
    rig.check("mr");
    let missing = "False ConfigMapMissing: Required ConfigMap \"b\" in namespace \"garden\" is missing";
    assert_eq!(rig.condition("mr", "ResourcesHealthy"), missing);
    rig.settle("mr");
    rig.check("mr");
    assert_eq!(rig.condition("mr", "ResourcesHealthy"), "True ResourcesHealthy: All resources are healthy.");
}

#[test]
fn objects_of_other_classes_are_not_touched_and_can_be_handed_over() {
    let rig = Rig::new("class");
    rig.install("mr", json!({"class": "other"}), &[config_map("a", "1")]);
    assert_eq!(rig.round("mr").unwrap(), ReconcileOutcome::Done);
    assert!(rig.managed_resource("mr")["metadata"].get("finalizers").is_none());
    rig.seed.merge(GROUP, "managedresources", ("garden", "mr"), &json!({"spec": {"class": "seed"}}));
    rig.settle("mr");
    assert!(rig.get("configmaps", "a").is_some());
    rig.seed.merge(GROUP, "managedresources", ("garden", "mr"), &json!({"spec": {"class": "other"}}));
    rig.settle("mr");
    assert!(rig.get("configmaps", "a").is_none());
    assert!(rig.managed_resource("mr")["metadata"].get("finalizers").is_none_or(|f| *f == json!([])));
}

#[test]
fn without_the_lease_nothing_is_written() {
    let mut rig = Rig::new("fence");
    rig.install("mr", json!({}), &[config_map("a", "1")]);
    rig.settle("mr");
    let garbage = json!({"metadata": {"name": "unused", "namespace": "garden",
        "labels": {"resources.gardener.cloud/garbage-collectable-reference": "true"}}});
    rig.seed.create("v1", "secrets", &garbage);
    rig.time.advance(Duration::from_secs(700));
    rig.secret("mr", &[config_map("b", "1")]);
    let lease = Fence::new(rig.cx.clock.clone(), "garden/gardener-resource-manager");
    let client = client_under(&rig.seed, &rig.cx.clock, Some(&lease));
    rig.resources = ManagedResourceApplier::new(client, ApplierSettings::default());
    let before = rig.seed.requests().len();
    let key = Key::new("garden", "mr");
    let failures = [
        rig.round("mr").unwrap_err(),
        rig.resources.checks().reconcile(&key, &rig.cx).unwrap_err(),
        rig.resources.garbage_collector().reconcile(&Key::default(), &rig.cx).unwrap_err(),
    ];
    for failure in failures {
        assert!(failure.text().contains("garden/gardener-resource-manager"), "{failure}");
        assert!(failure.postponed().is_some(), "{failure}");
    }
    assert_eq!(rig.writes(before), Vec::<String>::new());
}

#[test]
fn the_next_round_completes_an_interrupted_one() {
    let count = {
        let rig = Rig::new("count");
        rig.install("mr", json!({}), &[config_map("a", "1"), deployment("d", 0)]);
        let before = rig.seed.requests().len();
        rig.settle("mr");
        rig.writes(before).len()
    };
    assert!(count >= 5, "{count}");
    let faults = [
        Action::Refuse(failure(500, None)),
        Action::Refuse(failure(409, None)),
        Action::Drop,
        Action::DropAfter,
    ];
    for (broken, fault) in
        (0..count).flat_map(|broken| faults.iter().map(move |fault| (broken, fault.clone())))
    {
        let rig = Rig::new("break");
        rig.install("mr", json!({}), &[config_map("a", "1"), deployment("d", 0)]);
        let skip = u32::try_from(broken).unwrap();
        rig.seed.faults().when(Seen::is_write).skip(skip).once().then(fault);
        rig.settle("mr");
        assert!(rig.get("configmaps", "a").is_some(), "{broken}");
        assert!(rig.seed.get("apps", "deployments", "garden", "d").is_some(), "{broken}");
        assert_eq!(
            rig.condition("mr", "ResourcesApplied"),
            "True ApplySucceeded: All resources are applied.",
            "{broken}"
        );
    }
}

#[test]
fn unreferenced_objects_are_deleted_after_ten_minutes() {
    let rig = Rig::new("garbage");
    let label = json!({"resources.gardener.cloud/garbage-collectable-reference": "true"});
    let secret = |name: &str, labels: &Value| {
        rig.seed.create(
            "v1",
            "secrets",
            &json!({"metadata": {"name": name, "namespace": "garden", "labels": labels}}),
        );
    };
    secret("used", &label);
    secret("named", &label);
    secret("unused", &label);
    secret("unlabelled", &json!({}));
    let mut user = managed_resource("user", &json!({"spec": {"secretRefs": []}}));
    user["metadata"]["annotations"] = json!({"reference.resources.gardener.cloud/secret-0a1b2c3d": "used",
        "reference.resources.gardener.cloud/secret-foo": "named"});
    rig.seed.create("resources.gardener.cloud/v1alpha1", "managedresources", &user);
    let collect = || rig.resources.garbage_collector().reconcile(&Key::default(), &rig.cx).unwrap();
    rig.time.advance(Duration::from_secs(599));
    assert_eq!(collect(), ReconcileOutcome::After(Duration::from_secs(12 * 3_600)));
    assert!(rig.get("secrets", "unused").is_some());
    rig.time.advance(Duration::from_secs(60));
    secret("young", &label);
    collect();
    assert!(rig.get("secrets", "unused").is_none());
    for name in ["used", "named", "unlabelled", "young"] {
        assert!(rig.get("secrets", name).is_some(), "{name}");
    }
}

#[test]
fn a_request_for_a_round_is_removed_first() {
    let rig = Rig::new("operation");
    rig.install("mr", json!({}), &[config_map("a", "1")]);
    let request =
        json!({"metadata": {"annotations": {"gardener.cloud/operation": "reconcile", "other": "stays"}}});
    rig.seed.merge(GROUP, "managedresources", ("garden", "mr"), &request);
    rig.settle("mr");
    assert_eq!(rig.managed_resource("mr")["metadata"]["annotations"], json!({"other": "stays"}));
    let first = rig.seed.requests().into_iter().find(Recorded::is_write).unwrap();
    assert_eq!((first.method.as_str(), first.path.ends_with("/managedresources/mr")), ("PATCH", true));
}

#[test]
fn forced_labels_and_annotations_replace_those_of_others() {
    let rig = Rig::new("force");
    let force = json!({"forceOverwriteLabels": true, "forceOverwriteAnnotations": true});
    rig.install("mr", force, &[config_map("a", "1")]);
    rig.settle("mr");
    let theirs = json!({"metadata": {"labels": {"theirs": "1"}, "annotations": {"theirs": "1"}}});
    rig.seed.merge("", "configmaps", ("garden", "a"), &theirs);
    rig.settle("mr");
    let metadata = rig.get("configmaps", "a").unwrap()["metadata"].clone();
    assert_eq!(metadata["labels"], json!({"resources.gardener.cloud/managed-by": "gardener"}));
    assert!(metadata["annotations"].get("theirs").is_none());
}

#[test]
fn claims_are_deleted_with_their_set_if_asked() {
    for asked in [true, false] {
        let rig = Rig::new("claims");
        let labels = json!({"app": "s"});
        let set = json!({"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "s", "namespace": "garden"},
            "spec": {"serviceName": "s", "selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels},
                "spec": {"containers": [{"name": "c", "image": "i"}]}}, "volumeClaimTemplates": [{"metadata": {"name": "v"}}]}});
        rig.install("mr", json!({"deletePersistentVolumeClaims": asked}), &[set]);
        rig.settle("mr");
        for (name, app) in [("v-s-0", "s"), ("other", "other")] {
            let claim = json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim",
                "metadata": {"name": name, "namespace": "garden", "labels": {"app": app}}, "spec": {}});
            rig.seed.create("v1", "persistentvolumeclaims", &claim);
        }
        rig.secret("mr", &[]);
        rig.settle("mr");
        assert_eq!(rig.get("persistentvolumeclaims", "v-s-0").is_none(), asked);
        assert!(rig.get("persistentvolumeclaims", "other").is_some());
    }
}

#[test]
fn the_reason_why_a_service_remains_is_reported() {
    let rig = Rig::new("events");
    let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s", "namespace": "garden"},
        "spec": {"type": "LoadBalancer", "ports": [{"port": 80}]}});
    rig.install("mr", json!({}), &[service]);
    rig.settle("mr");
    rig.seed.merge("", "services", ("garden", "s"), &json!({"metadata": {"finalizers": ["test/hold"]}}));
    for (n, kind) in [(0, "Warning"), (1, "Normal"), (2, "Warning")] {
        let event = json!({"apiVersion": "v1", "kind": "Event", "metadata": {"name": format!("e{n}"), "namespace": "garden"},
            "involvedObject": {"kind": "Service", "name": "s", "namespace": "garden"}, "type": kind, "reason": "SyncFailed",
            "message": format!("message {n}")});
        rig.seed.create("v1", "events", &event);
    }
    rig.secret("mr", &[]);
    rig.round("mr").unwrap();
    let expected = "Progressing DeletionPending: deletion of old resource \"v1/Service/garden/s\" is still pending \
        (SyncFailed: message 0; SyncFailed: message 2)";
    assert_eq!(rig.condition("mr", "ResourcesApplied"), expected);
    rig.seed.merge("", "services", ("garden", "s"), &json!({"metadata": {"finalizers": null}}));
    rig.settle("mr");
}

#[test]
fn a_conflict_is_resolved_within_the_round() {
    let rig = Rig::new("conflict");
    rig.install("mr", json!({}), &[config_map("a", "1")]);
    rig.settle("mr");
    rig.secret("mr", &[config_map("a", "2")]);
    let conflict = rig.seed.faults().on("PUT", "/configmaps/a").once().answer(409);
    rig.round("mr").unwrap();
    assert_eq!(conflict.hits(), 1);
    assert_eq!(rig.get("configmaps", "a").unwrap()["data"]["key"], "2");
    let conflict = rig.seed.faults().on("PUT", "/configmaps/a").times(2).answer(409);
    rig.secret("mr", &[config_map("a", "3")]);
    assert!(rig.round("mr").is_err());
    assert_eq!(conflict.hits(), 2);
    assert!(rig.condition("mr", "ResourcesApplied").starts_with("False ApplyFailed: "));
    rig.settle("mr");
}

#[test]
fn many_objects_are_checked_with_few_requests() {
    let rig = Rig::new("many");
    let objects: Vec<Value> = (0..300).map(|n| config_map(&format!("c{n}"), "1")).collect();
    rig.install("mr", json!({}), &objects);
    rig.settle("mr");
    let before = rig.seed.requests().len();
    rig.check("mr");
    let asked: Vec<String> = rig.seed.requests()[before..].iter().map(Recorded::line).collect();
    // The ManagedResource, two pages of metadata, the status.
    assert_eq!(asked.len(), 4, "{asked:?}");
    assert_eq!(rig.condition("mr", "ResourcesHealthy"), "True ResourcesHealthy: All resources are healthy.");
}

#[test]
fn an_object_without_our_label_is_not_missing() {
    let rig = Rig::new("unlabelled");
    rig.install("mr", json!({}), &[config_map("a", "1"), config_map("b", "1")]);
    rig.settle("mr");
    let unlabelled = json!({"metadata": {"labels": {"resources.gardener.cloud/managed-by": null}}});
    rig.seed.merge("", "configmaps", ("garden", "b"), &unlabelled);
    rig.check("mr");
    assert_eq!(rig.condition("mr", "ResourcesHealthy"), "True ResourcesHealthy: All resources are healthy.");
}

#[test]
fn a_refused_deletion_is_reported_and_tried_again() {
    let rig = Rig::new("refused");
    rig.install("mr", json!({}), &[config_map("a", "1"), config_map("b", "1")]);
    rig.settle("mr");
    rig.seed.merge("", "configmaps", ("garden", "b"), &json!({"metadata": {"finalizers": ["test/hold"]}}));
    rig.seed.delete(GROUP, "managedresources", "garden", "mr");
    let refused = rig.seed.faults().on("DELETE", "/configmaps/a").answer(403);
    assert_eq!(rig.round("mr").unwrap(), ReconcileOutcome::After(Duration::from_secs(5)));
    let applied = rig.condition("mr", "ResourcesApplied");
    assert!(
        applied.starts_with(
            "Progressing DeletionPending: error during deletion of old resource \"v1/ConfigMap/garden/a\": "
        ),
        "{applied}"
    );
    assert!(
        applied.ends_with("; deletion of old resource \"v1/ConfigMap/garden/b\" is still pending"),
        "{applied}"
    );
    rig.seed.merge("", "configmaps", ("garden", "b"), &json!({"metadata": {"finalizers": null}}));
    assert!(rig.round("mr").is_err());
    let applied = rig.condition("mr", "ResourcesApplied");
    assert!(applied.starts_with("False DeletionFailed: error during deletion of old resource "), "{applied}");
    refused.cancel();
    rig.settle("mr");
    assert!(rig.seed.get(GROUP, "managedresources", "garden", "mr").is_none());
}

#[test]
fn a_second_cluster_is_served_as_long_as_it_is_a_target() {
    let rig = Rig::new("two-targets");
    let other = TestCluster::start(Options::new("shoot", &rig.cx.clock));
    let key = Key::new("shoot--a--b", "core");
    rig.seed.create("v1", "namespaces", &json!({"metadata": {"name": key.namespace}}));
    other.create("v1", "namespaces", &json!({"metadata": {"name": "garden"}}));
    let manifest = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "echo", "namespace": "garden"},
        "data": {"a": "b"}});
    let metadata = json!({"name": key.name, "namespace": key.namespace});
    let secret =
        json!({"metadata": metadata, "data": {"echo.json": base64::encode(manifest.to_string().as_bytes())}});
    rig.seed.create("v1", "secrets", &secret);
    let object = json!({"apiVersion": "resources.gardener.cloud/v1alpha1", "kind": "ManagedResource", "metadata": metadata,
        "spec": {"secretRefs": [{"name": key.name}]}});
    rig.seed.create("resources.gardener.cloud/v1alpha1", "managedresources", &object);
    let own = || rig.seed.get(GROUP, "managedresources", &key.namespace, &key.name);
    let applied = || other.get("", "configmaps", "garden", "echo");
    let round = |resources: &ManagedResourceApplier| resources.applying().reconcile(&key, &rig.cx).unwrap();

    // No applier is responsible yet.
    assert_eq!(round(&rig.resources), ReconcileOutcome::Done);
    assert_eq!((own().unwrap().get("status"), applied()), (None, None));

    let Applier(client) = client(&other, &rig.cx.clock);
    let managed = WatchSource::default();
    rig.resources.set_target(&key.namespace, Some(TargetCluster::shoot(client.clone(), "one")), &managed);
    assert_ne!(round(&rig.resources), ReconcileOutcome::Done);
    assert_eq!(
        applied().unwrap()["metadata"]["annotations"]["resources.gardener.cloud/origin"],
        "one:shoot--a--b/core"
    );
    assert_eq!(rig.get("configmaps", "echo"), None, "it does not belong to the seed");
    assert_eq!(
        own().unwrap()["metadata"]["finalizers"],
        json!(["resources.gardener.cloud/gardener-resource-manager"])
    );
    rig.resources.checks().reconcile(&key, &rig.cx).unwrap();
    let conditions = own().unwrap()["status"]["conditions"].clone();
    let status = |kind: &str| {
        conditions.as_array().unwrap().iter().find(|c| c["type"] == kind).unwrap()["status"].clone()
    };
    assert_eq!((status("ResourcesApplied"), status("ResourcesHealthy")), (json!("True"), json!("True")));

    // Without the target, the objects remain in its cluster, even if the ManagedResource is deleted.
    rig.resources.set_target(&key.namespace, None, &managed);
    rig.seed.delete(GROUP, "managedresources", &key.namespace, &key.name);
    assert_eq!(round(&rig.resources), ReconcileOutcome::Done);
    assert!(own().is_some() && applied().is_some());

    // The target returns, with another applier: the deletion continues.
    let successor =
        ManagedResourceApplier::new(self::client(&rig.seed, &rig.cx.clock), ApplierSettings::default());
    successor.set_target(&key.namespace, Some(TargetCluster::shoot(client, "one")), &managed);
    assert_eq!(round(&successor), ReconcileOutcome::After(Duration::from_secs(5)));
    assert_eq!(round(&successor), ReconcileOutcome::Done);
    assert!(own().is_none() && applied().is_none());
}
