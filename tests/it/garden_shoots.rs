//! Shoots in the in-process garden, as users, the scheduler and an agent see them. `tests/support/garden/shoot/golden`
//! contains what the real servers made of a Shoot.

use gardenlet::api::core::CONFIG_MAP;
use gardenlet::api::gardener::{CLOUD_PROFILE, INTERNAL_SECRET, PROJECT, SHOOT, SHOOT_STATE};
use gardenlet::api::meta::{CLUSTER_SCOPED, Key, Resource};
use gardenlet::base::clock::{Clock, Simulated, Timestamp};
use gardenlet::format::yaml;
use gardenlet::kube::request::ApiRequest;
use gardenlet::kube::{self, Client, DeleteParams, Error, Patch};
use gardenlet::pki::AnyKey;
use gardenlet::pki::issue::{Authority, CertificateIssuer, CertificateTemplate, ServerNames, common_name};
use serde_json::{Value, json};

use support::TestCluster;
use support::api::{Target, User};
use support::encoding::from_base64;
use support::garden::Garden;
use support::garden::manager::Share;
use support::garden::prepare::{self, Preparation};
use support::json::{entry, list, map, remove, set, text};
use support::{Options, pace};

const CORE: &str = "core.gardener.cloud";
const TIME: Timestamp = Timestamp::from_unix(1_750_000_000);
const OPERATION: &str = "gardener.cloud/operation";

/// A garden with everything that Shoots need, except a Seed. It does not notice silent agents.
pub(crate) fn garden() -> Garden {
    let clock = Clock::new(Simulated::paced(pace::clock(), TIME, 20));
    let garden = Garden::start(&clock);
    garden.set_manager_share(Share { lifecycle: false, ..Share::default() });
    garden.apply(&Preparation::new("edge-1", TIME).garden());
    garden.apply(&prepare::provider());
    garden.apply(&prepare::for_shoots());
    garden.wait_for("the namespace of the project", |g| g.get("", "namespaces", "", "garden-p"));
    garden
}

/// A Seed that accepts Shoots, with changes of its spec.
pub(crate) fn seed(name: &str, change: impl FnOnce(&mut Value)) -> Value {
    let mut spec = prepare::seed_spec();
    spec["networks"]["shootDefaults"] = json!({"services": "100.64.0.0/13"});
    change(&mut spec);
    json!({"apiVersion": "core.gardener.cloud/v1beta1", "kind": "Seed", "metadata": {"name": name}, "spec": spec})
}

/// Writes the conditions that the agent of a Seed reports when the Seed is reconciled.
fn make_ready(garden: &Garden, name: &str) {
    let status = json!({"status": {"lastOperation": {"type": "Reconcile", "state": "Succeeded", "progress": 100},
        "conditions": [{"type": "GardenletReady", "status": "True"}]}});
    garden.merge_status(CORE, "seeds", ("", name), &status);
}

pub(crate) fn add_seed(garden: &Garden, name: &str) {
    garden.apply(&[seed(name, |_| {})]);
    make_ready(garden, name);
}

pub(crate) fn shoot(garden: &Garden, name: &str) -> Value {
    garden.get(CORE, "shoots", "garden-p", name).unwrap()
}

/// A Shoot on Seed `edge-1`.
pub(crate) fn add_bound(garden: &Garden, name: &str) -> Value {
    let mut object = prepare::shoot(name);
    object["spec"]["seedName"] = "edge-1".into();
    garden.apply(&[object]);
    settled(garden, name)
}

/// The Shoot after gardener-controller-manager has changed it.
fn settled(garden: &Garden, name: &str) -> Value {
    garden.wait_for("finalizer and label", |g| {
        let shoot = g.get(CORE, "shoots", "garden-p", name)?;
        let labelled = entry(&shoot, "/metadata/labels", "shoot.gardener.cloud/status").is_some();
        (labelled && !list(&shoot, "/metadata/finalizers").is_empty()).then_some(shoot)
    })
}

pub(crate) fn agent(garden: &Garden, seed: &str) -> Client {
    let user = format!("gardener.cloud:system:seed:{seed}");
    let kubeconfig = garden.kubeconfig_for(&user, &["gardener.cloud:system:seeds"]);
    garden.client_from(&kubeconfig, kube::Options::default())
}

pub(crate) fn patch(client: &Client, name: &str, subresource: &str, patch: &Value) -> Result<Value, Error> {
    let key = Key::new("garden-p", name);
    let path = match subresource {
        "" => SHOOT.object_path(&key),
        subresource => SHOOT.subresource_path(&key, subresource),
    };
    client.fetch(&ApiRequest::patch(path, &Patch::Strategic(patch.clone())))
}

fn annotate(client: &Client, name: &str, key: &str, value: &Value) -> Result<Value, Error> {
    patch(client, name, "", &json!({"metadata": {"annotations": {key: value}}}))
}

/// Code and message of a refusal.
pub(crate) fn refusal<T: std::fmt::Debug>(result: Result<T, Error>) -> (u16, String) {
    match result.unwrap_err() {
        Error::Api(failure) => (failure.code, failure.message),
        other => panic!("{other:?}"),
    }
}

pub(crate) fn generation(object: &Value) -> i64 {
    object["metadata"]["generation"].as_i64().unwrap()
}

/// A golden object without the parts that differ between servers.
fn golden(text: &str) -> Value {
    let mut object = yaml::parse(text).unwrap();
    comparable(&mut object);
    object
}

fn comparable(object: &mut Value) {
    for key in ["uid", "resourceVersion", "creationTimestamp"] {
        remove(object, &format!("/metadata/{key}"));
    }
    map(object, "/metadata/annotations").remove("kubectl.kubernetes.io/last-applied-configuration");
    if map(object, "/metadata/annotations").is_empty() {
        remove(object, "/metadata/annotations");
    }
    remove(object, "/spec/maintenance/timeWindow");
    remove(object, "/metadata/ownerReferences/0/uid");
    if entry(object, "/metadata/annotations", "namespace.gardener.cloud/project").is_some() {
        map(object, "/metadata/annotations").insert("namespace.gardener.cloud/project".into(), "UID".into());
    }
}

#[test]
fn a_shoot_gets_the_same_defaults_as_in_the_real_garden() {
    let clock = Clock::new(Simulated::paced(pace::clock(), TIME, 20));
    let garden = Garden::start(&clock);
    garden.set_manager_share(Share { lifecycle: false, ..Share::default() });
    let documents =
        yaml::parse_all(include_str!("../support/garden/shoot/golden/cloudprofile-and-project.yaml"));
    let client = garden.client();
    for document in documents {
        let object = document.value.unwrap();
        let kind = if object["kind"] == "Project" { &PROJECT } else { &CLOUD_PROFILE };
        client.create::<Value>(kind, CLUSTER_SCOPED, &object).unwrap();
    }
    let mut namespace = garden.wait_for("the namespace", |g| g.get("", "namespaces", "", "garden-p"));
    comparable(&mut namespace);
    assert_eq!(namespace, golden(include_str!("../support/garden/shoot/golden/project-namespace.yaml")));
    let mut project = garden.wait_for("the project", |g| {
        g.get(CORE, "projects", "", "p").filter(|p| p["status"]["phase"] == "Ready")
    });
    comparable(&mut project);
    let mut expected = golden(include_str!("../support/garden/shoot/golden/project.yaml"));
    // One of its controllers records the time of the last activity.
    remove(&mut expected, "/status/lastActivityTimestamp");
    assert_eq!(project, expected);

    let object = yaml::parse(include_str!("../support/garden/shoot/golden/shoot-workerless.yaml")).unwrap();
    client.create::<Value>(&SHOOT, "garden-p", &object).unwrap();
    let kinds = ["ControlPlane", "DNSRecord", "Infrastructure", "Network", "OperatingSystemConfig", "Worker"];
    garden.apply(&[prepare::promise("lab", &kinds, "lab")]);
    garden.apply(&[seed("lab1", |spec| {
        spec["provider"] = json!({"type": "lab", "region": "lab-1"});
        let credentials = spec["dns"]["internal"]["credentialsRef"].clone();
        spec["dns"]["provider"]["type"] = json!("lab");
        spec["dns"]["defaults"] =
            json!([{"type": "lab", "domain": "shoots.lab.local", "credentialsRef": credentials}]);
    })]);
    make_ready(&garden, "lab1");
    let expected = golden(include_str!("../support/garden/shoot/golden/shoot-workerless-bound.yaml"));
    garden.wait_for("the Shoot to be bound and held", |g| {
        let mut shoot = g.get(CORE, "shoots", "garden-p", "s1")?;
        // The scheduler had not run before there was a Seed.
        remove(&mut shoot, "/status/lastOperation");
        comparable(&mut shoot);
        (shoot["metadata"]["finalizers"] == expected["metadata"]["finalizers"]).then_some(())
    });
    let mut found = shoot(&garden, "s1");
    remove(&mut found, "/status/lastOperation");
    comparable(&mut found);
    assert_eq!(found, expected);

    // It was recorded after its creation, so the tasks were done.
    let object = yaml::parse(include_str!("../support/garden/shoot/golden/shoot-with-workers.yaml")).unwrap();
    client.create::<Value>(&SHOOT, "garden-p", &object).unwrap();
    let mut found = settled(&garden, "w1");
    map(&mut found, "/metadata/annotations").remove("shoot.gardener.cloud/tasks");
    comparable(&mut found);
    let expected = golden(include_str!("../support/garden/shoot/golden/shoot-with-workers-bound.yaml"));
    for part in ["/metadata/labels", "/metadata/annotations", "/metadata/finalizers", "/spec"] {
        assert_eq!(found.pointer(part), expected.pointer(part), "{part}");
    }
}

#[test]
fn bad_shoots_are_refused() {
    let garden = garden();
    let client = garden.client();
    garden.apply(&[
        seed("edge-1", |_| {}),
        seed("tainted", |spec| spec["taints"] = json!([{"key": "t"}])),
        seed("without", |spec| drop(remove(spec, "/networks/shootDefaults"))),
    ]);
    garden.merge(
        CORE,
        "cloudprofiles",
        ("", "local"),
        &json!({"spec": {"kubernetes": {"versions": [{"version": "1.34.3"},
        {"version": "1.33.1", "expirationDate": "2020-01-01T00:00:00Z"}]}}}),
    );
    let workerless = "this field should not be set for workerless Shoot clusters";
    let fields: [(&str, Value); 18] = [
        ("/spec/secretBindingName", json!("x")),
        ("/spec/credentialsBindingName", json!("x")),
        ("/spec/addons", json!({})),
        ("/spec/networking/type", json!("calico")),
        ("/spec/networking/providerConfig", json!({})),
        ("/spec/networking/pods", json!("10.60.0.0/16")),
        ("/spec/networking/nodes", json!("10.61.0.0/16")),
        ("/spec/kubernetes/kubeScheduler", json!({})),
        ("/spec/kubernetes/kubeProxy", json!({})),
        ("/spec/kubernetes/kubelet", json!({})),
        ("/spec/kubernetes/clusterAutoscaler", json!({})),
        ("/spec/kubernetes/verticalPodAutoscaler", json!({"enabled": true})),
        ("/spec/provider/infrastructureConfig", json!({})),
        ("/spec/provider/controlPlaneConfig", json!({})),
        ("/spec/provider/workersSettings", json!({})),
        ("/spec/systemComponents", json!({})),
        ("/spec/maintenance/autoUpdate/machineImageVersion", json!(true)),
        ("/spec/maintenance/autoRotation/credentials/sshKeypair", json!({})),
    ];
    let mut table: Vec<(&str, Value, u16, &str)> =
        fields.into_iter().map(|(at, value)| (at, value, 422, workerless)).collect();
    table.extend([
        ("/metadata/name", json!("a--b"), 422, "two consecutive hyphens"),
        ("/metadata/name", json!("twenty-one-is-too-long"), 400, "must not exceed 21 characters"),
        ("/spec/region", Value::Null, 422, "spec.region: Required value"),
        ("/spec/region", json!("south"), 403, "spec.region: Unsupported value"),
        ("/spec/provider/type", json!("other"), 403, "spec.provider.type: Invalid value"),
        ("/spec/cloudProfile", Value::Null, 422, "spec.cloudProfile.name: Required value"),
        (
            "/spec/cloudProfile/name",
            json!("none"),
            500,
            "cloudprofile.core.gardener.cloud \"none\" not found",
        ),
        (
            "/spec/exposureClassName",
            json!("none"),
            403,
            "exposureclasses.core.gardener.cloud \"none\" not found",
        ),
        ("/spec/kubernetes/version", json!("1.30.0"), 403, "spec.kubernetes.version: Unsupported value"),
        ("/spec/kubernetes/version", json!("1.33.1"), 403, "it has expired"),
        ("/spec/purpose", json!("fun"), 422, "spec.purpose: Unsupported value"),
        (
            "/spec/maintenance/timeWindow",
            json!({"begin": "22:00", "end": "230000+0000"}),
            422,
            "timeWindow.begin",
        ),
        (
            "/spec/maintenance/timeWindow",
            json!({"begin": "220000+0000", "end": "221000+0000"}),
            422,
            "between 30m and 6h",
        ),
        (
            "/spec/maintenance/timeWindow",
            json!({"begin": "220000+0000", "end": "230000-0600"}),
            422,
            "between 30m and 6h",
        ),
        ("/spec/extensions", json!([{"type": "x"}]), 403, "non-registered extension type: Extension \"x\""),
        (
            "/spec/dns",
            json!({"domain": "a.b", "providers": [{"type": "x", "primary": true}]}),
            403,
            "DNSRecord \"x\"",
        ),
        ("/spec/seedName", json!("none"), 500, "seed.core.gardener.cloud \"none\" not found"),
        ("/spec/seedName", json!("tainted"), 403, "taints are not tolerated"),
        ("/spec/seedName", json!("without"), 422, "spec.networking.services: Required value"),
    ]);
    for (at, value, code, why) in table {
        let mut object = prepare::shoot("bad");
        set(&mut object, at, value.clone());
        let (found, message) = refusal(client.create::<Value>(&SHOOT, "garden-p", &object));
        assert!(found == code && message.contains(why), "{at} {value}: {found} {message}");
    }
    let mut overlapping = prepare::shoot("bad");
    overlapping["spec"]["seedName"] = "edge-1".into();
    overlapping["spec"]["networking"] = json!({"services": "10.52.0.0/20"});
    let (code, message) = refusal(client.create::<Value>(&SHOOT, "garden-p", &overlapping));
    assert!(
        code == 403 && message.contains("must not overlap with the seed's services network"),
        "{message}"
    );
    // A namespace without a project, and a maintenance window in another place.
    let (code, message) = refusal(client.create::<Value>(&SHOOT, "garden", &{
        let mut object = prepare::shoot("bad");
        object["metadata"]["namespace"] = "garden".into();
        object
    }));
    assert!(code == 403 && message.contains("belongs to no project"), "{message}");
    let mut good = prepare::shoot("good");
    good["spec"]["maintenance"] = json!({"timeWindow": {"begin": "233000+0100", "end": "003000+0100"}});
    good["spec"]["kubernetes"] = json!({"version": "1.34"});
    let good: Value = client.create(&SHOOT, "garden-p", &good).unwrap();
    assert_eq!(good["spec"]["kubernetes"]["version"], "1.34.3");
    let (code, message) = refusal(client.create::<Value>(&SHOOT, "garden-p", &prepare::shoot("good")));
    assert!(code == 409, "{message}");
}

#[test]
fn immutable_fields_cannot_change() {
    let garden = garden();
    add_seed(&garden, "edge-1");
    add_bound(&garden, "s1");
    let client = garden.client();
    let table = [
        (json!({"spec": {"region": "south"}}), "spec.region: Invalid value"),
        (json!({"spec": {"provider": {"type": "other"}}}), "spec.provider.type: Invalid value"),
        (json!({"spec": {"networking": {"services": "10.60.0.0/16"}}}), "field is immutable"),
        (json!({"spec": {"networking": {"ipFamilies": ["IPv6"]}}}), "field is immutable"),
        (json!({"spec": {"kubernetes": {"version": "1.33.9"}}}), "downgrade is not supported"),
        (json!({"spec": {"kubernetes": {"version": "1.36.0"}}}), "cannot skip a minor version"),
        (json!({"spec": {"provider": {"workers": [{"name": "w"}]}}}), "cannot get workers"),
        (json!({"spec": {"systemComponents": {}}}), "workerless"),
    ];
    for (change, why) in table {
        let (code, message) = refusal(patch(&client, "s1", "", &change));
        assert!(code == 422 && message.contains(why), "{change}: {code} {message}");
    }
    for (seed, why) in [(json!("edge-2"), "use the shoots/binding subresource"), (Value::Null, "to 'nil'")] {
        let (code, message) = refusal(patch(&client, "s1", "", &json!({"spec": {"seedName": seed}})));
        assert!(code == 403 && message.contains(why), "{seed}: {code} {message}");
    }
    let updated = patch(&client, "s1", "", &json!({"spec": {"kubernetes": {"version": "1.35.4"}}})).unwrap();
    assert_eq!(generation(&updated), 2);
    // A name that the agent has assigned cannot change.
    patch(&client, "s1", "status", &json!({"status": {"uid": "u", "technicalID": "shoot--p--s1"}})).unwrap();
    for status in [json!({"uid": "v"}), json!({"technicalID": "shoot--p--s2"})] {
        let (code, message) = refusal(patch(&client, "s1", "status", &json!({"status": status})));
        assert!(code == 422 && message.contains("field is immutable"), "{message}");
    }
    // The version is removed from the profile. Finalizers and labels of the Shoot can still change.
    garden.merge(
        CORE,
        "cloudprofiles",
        ("", "local"),
        &json!({"spec": {"kubernetes": {"versions": [{"version": "1.36.1"}]}}}),
    );
    patch(&client, "s1", "", &json!({"metadata": {"finalizers": ["gardener"]}})).unwrap();
    let (code, message) = refusal(patch(&client, "s1", "", &json!({"spec": {"purpose": "production"}})));
    assert!(code == 403 && message.contains("spec.kubernetes.version"), "{message}");
}

/// The numbers are those of the real garden. A Shoot is created, bound and reconciled on request. Its credentials are
/// rotated in three steps. Then it is deleted.
#[test]
fn generations_move_as_in_the_real_garden() {
    let garden = garden();
    let client = garden.client();
    let created: Value = client.create(&SHOOT, "garden-p", &prepare::shoot("s1")).unwrap();
    assert_eq!(generation(&created), 1);
    add_seed(&garden, "edge-1");
    assert_eq!(generation(&settled(&garden, "s1")), 2);
    let agent = agent(&garden, "edge-1");
    let finalizers = json!({"metadata": {"finalizers": ["gardener"]}});
    let status =
        |status: Value| generation(&patch(&agent, "s1", "status", &json!({"status": status})).unwrap());
    let operation = |value: &str| annotate(&client, "s1", OPERATION, &json!(value)).unwrap();
    // An operation waits while the Shoot was never reconciled.
    remove_last_operation(&garden, "s1");
    assert_eq!(generation(&operation("reconcile")), 2);
    annotate(&client, "s1", OPERATION, &Value::Null).unwrap();
    assert_eq!(generation(&patch(&agent, "s1", "", &finalizers).unwrap()), 2);
    status(json!({"lastOperation": {"type": "Create", "state": "Processing"}}));
    let (code, message) = refusal(annotate(&client, "s1", OPERATION, &json!("rotate-credentials-start")));
    assert!(code == 422 && message.contains("was not created yet"), "{message}");
    assert_eq!(status(json!({"observedGeneration": 2, "lastOperation": {"state": "Succeeded"}})), 2);

    let reconciled = operation("reconcile");
    assert_eq!((generation(&reconciled), entry(&reconciled, "/metadata/annotations", OPERATION)), (3, None));
    let started = operation("rotate-credentials-start");
    let asked = entry(&started, "/metadata/annotations", OPERATION);
    assert_eq!((generation(&started), asked), (4, Some("rotate-credentials-start")));
    let rotation = |all: &str, key: &str| {
        json!({"lastOperation": {"type": "Reconcile", "state": "Processing"}, "credentials": {"rotation": {
            "certificateAuthorities": {"phase": all}, "serviceAccountKey": {"phase": all},
            "etcdEncryptionKey": {"phase": key, "autoCompleteAfterPrepared": true}}}})
    };
    assert_eq!(status(rotation("Preparing", "Preparing")), 4);
    assert_eq!(generation(&annotate(&agent, "s1", OPERATION, &Value::Null).unwrap()), 4);
    for (operation, why) in [
        ("rotate-credentials-start", "certificateAuthorities is under way"),
        ("rotate-credentials-complete", "certificateAuthorities is not prepared"),
        ("rotate-serviceaccount-key-complete", "serviceAccountKey is not prepared"),
    ] {
        let (code, message) = refusal(annotate(&client, "s1", OPERATION, &json!(operation)));
        assert!(code == 422 && message.contains(why), "{operation}: {message}");
    }
    assert_eq!(status(rotation("Prepared", "Prepared")), 5);
    assert_eq!(status(rotation("Prepared", "Completed")), 5);
    assert_eq!(generation(&operation("rotate-credentials-complete")), 6);
    annotate(&agent, "s1", OPERATION, &Value::Null).unwrap();
    let maintained =
        annotate(&client, "s1", "maintenance.gardener.cloud/operation", &json!("reconcile")).unwrap();
    assert_eq!(generation(&maintained), 6, "maintenance waits for its window");

    let delete = || client.delete(&SHOOT, &Key::new("garden-p", "s1"), &DeleteParams::default());
    let (code, message) = refusal(delete());
    assert!(
        code == 403 && message.contains("must have a \"confirmation.gardener.cloud/deletion\" annotation"),
        "{message}"
    );
    let confirmed = annotate(&client, "s1", "confirmation.gardener.cloud/deletion", &json!("true")).unwrap();
    let by = entry(&confirmed, "/metadata/annotations", "deletion.gardener.cloud/confirmed-by");
    assert_eq!((generation(&confirmed), by), (6, Some("admin")));
    delete().unwrap();
    delete().unwrap();
    assert_eq!(generation(&shoot(&garden, "s1")), 7);
    garden.wait_for("the end of the finalizers of extensions", |g| {
        let shoot = g.get(CORE, "shoots", "garden-p", "s1")?;
        (shoot["metadata"]["finalizers"] == json!(["gardener"])).then_some(())
    });
    assert_eq!(generation(&shoot(&garden, "s1")), 7);
    patch(&agent, "s1", "", &json!({"metadata": {"$deleteFromPrimitiveList/finalizers": ["gardener"]}}))
        .unwrap();
    assert!(garden.get(CORE, "shoots", "garden-p", "s1").is_none());
}

/// The scheduler may have reported that there was no Seed.
fn remove_last_operation(garden: &Garden, name: &str) {
    garden.merge_status(CORE, "shoots", ("garden-p", name), &json!({"status": {"lastOperation": null}}));
}

#[test]
fn a_failed_shoot_moves_only_by_a_retry() {
    let garden = garden();
    add_seed(&garden, "edge-1");
    add_bound(&garden, "s1");
    let (client, agent) = (garden.client(), agent(&garden, "edge-1"));
    let failed = json!({"status": {"lastOperation": {"type": "Create", "state": "Failed"}}});
    patch(&agent, "s1", "status", &failed).unwrap();
    assert_eq!(generation(&annotate(&client, "s1", OPERATION, &json!("reconcile")).unwrap()), 1);
    let retried = annotate(&client, "s1", OPERATION, &json!("retry")).unwrap();
    assert_eq!((generation(&retried), entry(&retried, "/metadata/annotations", OPERATION)), (2, None));
}

#[test]
fn a_confined_shoot_waits_for_its_window_but_wakes_up_at_once() {
    let garden = garden();
    add_seed(&garden, "edge-1");
    add_bound(&garden, "s1");
    let client = garden.client();
    let change = |spec: Value| patch(&client, "s1", "", &json!({"spec": spec})).unwrap();
    change(json!({"maintenance": {"confineSpecUpdateRollout": true}}));
    assert_eq!(generation(&shoot(&garden, "s1")), 1);
    assert_eq!(generation(&change(json!({"purpose": "production"}))), 1);
    assert_eq!(generation(&change(json!({"hibernation": {"enabled": true}}))), 2);
    // The agent has done all of its tasks but one; waking up adds the tasks for names again.
    const TASKS: &str = "shoot.gardener.cloud/tasks";
    annotate(&client, "s1", TASKS, &json!("deployInfrastructure,deployDNSRecordIngress")).unwrap();
    let woken = change(json!({"hibernation": {"enabled": false}}));
    let expected =
        "deployInfrastructure,deployDNSRecordIngress,deployDNSRecordInternal,deployDNSRecordExternal";
    assert_eq!((generation(&woken), entry(&woken, "/metadata/annotations", TASKS)), (3, Some(expected)));
}

#[test]
fn a_deletion_can_be_forced_only_after_an_error() {
    const FORCE: &str = "confirmation.gardener.cloud/force-deletion";
    let garden = garden();
    add_seed(&garden, "edge-1");
    add_bound(&garden, "s1");
    let (client, agent) = (garden.client(), agent(&garden, "edge-1"));
    let refused = |why: &str| {
        let (code, message) = refusal(annotate(&client, "s1", FORCE, &json!("true")));
        assert!(code == 422 && message.contains(why), "{message}");
    };
    refused("has no deletionTimestamp");
    patch(&agent, "s1", "", &json!({"metadata": {"finalizers": ["gardener"]}})).unwrap();
    annotate(&client, "s1", "confirmation.gardener.cloud/deletion", &json!("true")).unwrap();
    client.delete(&SHOOT, &Key::new("garden-p", "s1"), &DeleteParams::default()).unwrap();
    refused("no last error has a code");
    let errors = |code: &str| json!({"status": {"lastErrors": [{"description": "x", "codes": [code]}]}});
    patch(&agent, "s1", "status", &errors("ERR_RETRYABLE_CONFIGURATION_PROBLEM")).unwrap();
    refused("no last error has a code");
    patch(&agent, "s1", "status", &errors("ERR_CLEANUP_CLUSTER_RESOURCES")).unwrap();
    let before = generation(&shoot(&garden, "s1"));
    assert_eq!(generation(&annotate(&client, "s1", FORCE, &json!("true")).unwrap()), before + 1);
    let (code, message) = refusal(annotate(&client, "s1", FORCE, &Value::Null));
    assert!(code == 422 && message.contains("cannot be removed"), "{message}");
}

#[test]
fn an_agent_works_on_its_shoots_and_cannot_bind_them() {
    let garden = garden();
    add_seed(&garden, "edge-1");
    garden.apply(&[seed("edge-2", |_| {})]);
    add_bound(&garden, "s1");
    let (own, other) = (agent(&garden, "edge-1"), agent(&garden, "edge-2"));
    let status = json!({"status": {"conditions": [{"type": "APIServerAvailable", "status": "True"}]}});
    patch(&own, "s1", "status", &status).unwrap();
    let more = json!({"status": {"conditions": [{"type": "ControlPlaneHealthy", "status": "Unknown"}],
        "constraints": [{"type": "HibernationPossible", "status": "True"}], "seedName": "edge-1"}});
    let merged = patch(&own, "s1", "status", &more).unwrap();
    let types: Vec<&str> = list(&merged, "/status/conditions").iter().map(|c| text(c, "/type")).collect();
    assert!(types.len() == 2 && types.contains(&"APIServerAvailable"), "merged by type: {types:?}");
    assert_eq!(merged["status"]["hibernated"], false);
    assert_eq!(refusal(patch(&other, "s1", "status", &status)).0, 403);
    assert_eq!(refusal(patch(&own, "s1", "binding", &json!({"spec": {"seedName": "edge-2"}}))).0, 403);
    // The server ignores changes of the spec in an update of the status.
    let sneaky = patch(&own, "s1", "status", &json!({"spec": {"purpose": "production"}})).unwrap();
    assert_eq!(sneaky["spec"]["purpose"], "testing");
    // Both gardenlets may write a Shoot that is moving.
    patch(&own, "s1", "status", &json!({"status": {"seedName": "edge-2"}})).unwrap();
    let labels = shoot(&garden, "s1")["metadata"]["labels"].clone();
    for seed in ["edge-1", "edge-2"] {
        assert_eq!(labels[format!("name.seed.gardener.cloud/{seed}")], "true");
    }
    assert_eq!(labels["provider.extensions.gardener.cloud/local"], "true");
    // An agent cannot remove the labels of the server.
    let bare = json!({"metadata": {"labels": {"name.seed.gardener.cloud/edge-1": null, "x": "y"}}});
    let kept = patch(&own, "s1", "", &bare).unwrap();
    assert_eq!(kept["metadata"]["labels"]["name.seed.gardener.cloud/edge-1"], "true");
}

fn dependent(kind: &str, name: &str, owner: &Value) -> Value {
    let api_version = if kind == "ConfigMap" { "v1" } else { "core.gardener.cloud/v1beta1" };
    json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": name, "namespace": "garden-p",
        "ownerReferences": [{"apiVersion": "core.gardener.cloud/v1beta1", "kind": "Shoot", "controller": true,
            "blockOwnerDeletion": true, "name": owner["metadata"]["name"], "uid": owner["metadata"]["uid"]}]}})
}

#[test]
fn the_objects_of_a_shoot_are_deleted_with_it() {
    let garden = garden();
    add_seed(&garden, "edge-1");
    let owner = add_bound(&garden, "s1");
    add_bound(&garden, "s2");
    let agent = agent(&garden, "edge-1");
    agent.create::<Value>(&CONFIG_MAP, "garden-p", &dependent("ConfigMap", "s1.ca-cluster", &owner)).unwrap();
    let mut secret = dependent("InternalSecret", "s1.ca-client", &owner);
    secret["stringData"] = json!({"ca.crt": "x"});
    let secret: Value = agent.create(&INTERNAL_SECRET, "garden-p", &secret).unwrap();
    assert_eq!((&secret["type"], &secret["data"]["ca.crt"]), (&json!("Opaque"), &json!("eA==")));
    assert!(secret.get("stringData").is_none());
    let foreign = dependent("InternalSecret", "s3.ca-client", &owner);
    assert_eq!(refusal(agent.create::<Value>(&INTERNAL_SECRET, "garden-p", &foreign)).0, 403);
    let state = json!({"apiVersion": "core.gardener.cloud/v1beta1", "kind": "ShootState", "metadata": {"name": "s1"}});
    agent.create::<Value>(&SHOOT_STATE, "garden-p", &state).unwrap();
    let key = Key::new("garden-p", "s1");
    let delete_state = || agent.delete(&SHOOT_STATE, &key, &DeleteParams::default());
    assert_eq!(refusal(delete_state()).0, 403);
    let confirmation = json!({"metadata": {"annotations": {"confirmation.gardener.cloud/deletion": "true"}}});
    agent.patch::<Value>(&SHOOT_STATE, &key, &Patch::Merge(confirmation.clone())).unwrap();
    delete_state().unwrap();

    let client = garden.client();
    patch(&client, "s1", "", &confirmation).unwrap();
    client.delete(&SHOOT, &key, &DeleteParams::default()).unwrap();
    garden.wait_for("the end of the Shoot and of what it owns", |g| {
        let gone = g.get(CORE, "shoots", "garden-p", "s1").is_none()
            && g.get(CORE, "internalsecrets", "garden-p", "s1.ca-client").is_none()
            && g.get("", "configmaps", "garden-p", "s1.ca-cluster").is_none();
        gone.then_some(())
    });
    // A Project waits for its last Shoots. Its namespace is deleted with it.
    let project = Key::cluster("p");
    client.patch::<Value>(&PROJECT, &project, &Patch::Merge(confirmation.clone())).unwrap();
    client.delete(&PROJECT, &project, &DeleteParams::default()).unwrap();
    let (code, message) = refusal(client.create::<Value>(&SHOOT, "garden-p", &prepare::shoot("late")));
    assert!(code == 403 && message.contains("already marked for deletion"), "{message}");
    assert!(garden.get(CORE, "projects", "", "p").is_some());
    patch(&client, "s2", "", &confirmation).unwrap();
    client.delete(&SHOOT, &Key::new("garden-p", "s2"), &DeleteParams::default()).unwrap();
    garden.wait_for("the end of the Project", |g| {
        let gone =
            g.get(CORE, "projects", "", "p").is_none() && g.get("", "namespaces", "", "garden-p").is_none();
        gone.then_some(())
    });
}

#[test]
fn shoots_are_bound_as_soon_as_a_seed_accepts_them() {
    let garden = garden();
    garden.apply(&[seed("edge-1", |_| {}), prepare::shoot("s1")]);
    let said = |part: &str| {
        garden.wait_for(part, |g| {
            let shoot = g.get(CORE, "shoots", "garden-p", "s1")?;
            let last = &shoot["status"]["lastOperation"];
            let said = text(last, "/description").contains(part);
            said.then(|| (last["type"].clone(), last["state"].clone(), generation(&shoot)))
        })
    };
    let failed = said(
        "Failed to schedule Shoot: none of the 1 seeds is eligible: {edge-1 => it was never reconciled}",
    );
    assert_eq!(failed, (json!("Create"), json!("Pending"), 1));
    let ready = json!({"status": {"lastOperation": {"state": "Succeeded"},
        "conditions": [{"type": "GardenletReady", "status": "False"}], "allocatable": {"shoots": "1"}}});
    garden.merge_status(CORE, "seeds", ("", "edge-1"), &ready);
    said("{edge-1 => GardenletReady is not True}");
    let ready = json!({"status": {"conditions": [{"type": "GardenletReady", "status": "True"}]}});
    garden.merge_status(CORE, "seeds", ("", "edge-1"), &ready);
    let bound = settled(&garden, "s1");
    assert_eq!((text(&bound, "/spec/seedName"), generation(&bound)), ("edge-1", 2));
    assert_eq!(text(&bound, "/spec/networking/services"), "100.64.0.0/13");
    // The next one finds no room; the scheduler ignores a Shoot of another scheduler.
    let mut alone = prepare::shoot("alone");
    alone["spec"]["schedulerName"] = "other".into();
    garden.apply(&[alone, prepare::shoot("s2")]);
    garden.wait_for("the refusal", |g| {
        let shoot = g.get(CORE, "shoots", "garden-p", "s2")?;
        text(&shoot, "/status/lastOperation/description")
            .contains("does not have available capacity")
            .then_some(())
    });
    assert_eq!(shoot(&garden, "alone")["status"]["lastOperation"], Value::Null);
    // If the Seed has no range for Services, the server refuses the binding, and the Shoot's status has the reason.
    let other = json!({"status": {"allocatable": {"shoots": "9"}}});
    garden.apply(&[seed("edge-0", |spec| drop(remove(spec, "/networks/shootDefaults")))]);
    make_ready(&garden, "edge-0");
    garden.wait_for("the other refusal", |g| {
        let shoot = g.get(CORE, "shoots", "garden-p", "s2")?;
        let said = text(&shoot, "/status/lastOperation/description");
        (said.starts_with("Failed to schedule Shoot: ")
            && said.contains("spec.networking.services: Required value"))
        .then_some(())
    });
    garden.delete(CORE, "seeds", "", "edge-0");
    garden.merge_status(CORE, "seeds", ("", "edge-1"), &other);
    assert_eq!(text(&settled(&garden, "s2"), "/spec/seedName"), "edge-1");
}

#[test]
fn a_binding_changes_the_seed_and_nothing_else() {
    let garden = garden();
    garden.set_manager_share(Share { lifecycle: false, scheduler: None, ..Share::default() });
    let backup = |spec: &mut Value| {
        let credentials = spec["dns"]["internal"]["credentialsRef"].clone();
        spec["backup"] = json!({"provider": "local", "credentialsRef": credentials});
    };
    let full = json!({"status": {"allocatable": {"shoots": "0"}}});
    garden.apply(&[
        prepare::promised_backups(),
        seed("edge-1", backup),
        seed("edge-2", backup),
        seed("plain", |_| {}),
        seed("full", backup),
    ]);
    garden.merge_status(CORE, "seeds", ("", "full"), &full);
    garden.apply(&[prepare::shoot("s1")]);
    let client = garden.client();
    let bind = |seed: Value| {
        patch(&client, "s1", "binding", &json!({"spec": {"seedName": seed, "purpose": "production"}}))
    };
    for (to, code, why) in [
        (json!("none"), 500, "not found"),
        (json!("full"), 403, "maximum number of shoots"),
        (Value::Null, 500, "already assigned to the same seed"),
    ] {
        let (found, message) = refusal(bind(to));
        assert!(found == code && message.contains(why), "{message}");
    }
    let bound = bind(json!("edge-1")).unwrap();
    assert_eq!(
        (text(&bound, "/spec/seedName"), text(&bound, "/spec/purpose"), generation(&bound)),
        ("edge-1", "testing", 2)
    );
    let (code, message) = refusal(bind(json!("edge-1")));
    assert!(code == 500 && message.contains("already assigned to the same seed"), "{message}");
    let (code, message) = refusal(bind(json!("plain")));
    assert!(code == 403 && message.contains("backup is not configured for seed \"plain\""), "{message}");
    let moved = bind(json!("edge-2")).unwrap();
    assert_eq!((text(&moved, "/spec/seedName"), generation(&moved)), ("edge-2", 3));
    let (code, message) = refusal(bind(Value::Null));
    assert!(code == 403, "{message}");
    // The documentation sends the whole object, which works, too.
    let mut whole = settled(&garden, "s1");
    whole["spec"]["seedName"] = "edge-1".into();
    let kind = garden.api().kind(CORE, "shoots").unwrap();
    let target = Target::new(kind, "garden-p", "s1").subresource("binding");
    let put = garden.api().update(&target, whole, &User::system()).unwrap();
    assert_eq!((text(&put, "/spec/seedName"), generation(&put)), ("edge-1", 4));
    let confirmation = json!({"metadata": {"annotations": {"confirmation.gardener.cloud/deletion": "true"}}});
    patch(&client, "s1", "", &confirmation).unwrap();
    patch(&client, "s1", "", &json!({"metadata": {"finalizers": ["gardener"]}})).unwrap();
    client.delete(&SHOOT, &Key::new("garden-p", "s1"), &DeleteParams::default()).unwrap();
    let (code, message) = refusal(bind(json!("edge-2")));
    assert!(code == 422 && message.contains("marked for deletion"), "{message}");
}

#[test]
fn extensions_must_be_registered_for_such_shoots() {
    let garden = garden();
    let client = garden.client();
    let resources = json!([{"kind": "Extension", "type": "for-workers"}, {"kind": "DNSRecord", "type": "names"},
        {"kind": "Extension", "type": "for-all", "workerlessSupported": true}]);
    garden.apply(&[json!({"apiVersion": "core.gardener.cloud/v1beta1", "kind": "ControllerRegistration",
        "metadata": {"name": "ext"}, "spec": {"resources": resources}})]);
    let create = |name: &str, spec: Value| {
        let mut object = prepare::shoot(name);
        object["spec"].as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
        client.create::<Value>(&SHOOT, "garden-p", &object)
    };
    let (code, message) = refusal(create("s1", json!({"extensions": [{"type": "for-workers"}]})));
    assert!(
        code == 403 && message.contains("non-registered extension type: Extension \"for-workers\""),
        "{message}"
    );
    let good = create("s1", json!({"extensions": [{"type": "for-all"}]})).unwrap();
    let label = entry(&good, "/metadata/labels", "extensions.extensions.gardener.cloud/for-all");
    assert_eq!(label, Some("true"));
    let dns = |kind: &str| json!({"dns": {"domain": "s.example.org", "providers": [{"type": kind, "primary": true}]}});
    create("s2", dns("names")).unwrap();
    create("s3", dns("unmanaged")).unwrap();
    assert_eq!(refusal(create("s4", dns("other"))).0, 403);
    // Without the registration, the label is removed.
    let bare = patch(&client, "s1", "", &json!({"spec": {"extensions": null}})).unwrap();
    assert_eq!(entry(&bare, "/metadata/labels", "extensions.extensions.gardener.cloud/for-all"), None);
}

/// The right to create Shoots does not include the right to choose their Seed.
#[test]
fn a_user_who_names_the_seed_must_be_allowed_to_bind() {
    let garden = garden();
    add_seed(&garden, "edge-1");
    let role = |name: &str, resource: &str, verb: &str, user: &str| {
        let rules = json!([{"apiGroups": [CORE], "resources": [resource], "verbs": [verb]}]);
        let reference = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name});
        let kind = |kind: &str| json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": kind, "metadata": {"name": name}});
        let (mut role, mut binding) = (kind("ClusterRole"), kind("ClusterRoleBinding"));
        role["rules"] = rules;
        binding["roleRef"] = reference;
        binding["subjects"] =
            json!([{"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": user}]);
        garden.apply(&[role, binding]);
    };
    role("create", "shoots", "create", "dora");
    let dora = garden.client_from(&garden.kubeconfig_for("dora", &[]), kube::Options::default());
    let mut named = prepare::shoot("s1");
    named["spec"]["seedName"] = "edge-1".into();
    let (code, message) = refusal(dora.create::<Value>(&SHOOT, "garden-p", &named));
    assert!(code == 403 && message.contains("not allowed to set .spec.seedName"), "{message}");
    let created: Value = dora.create(&SHOOT, "garden-p", &prepare::shoot("s2")).unwrap();
    assert_eq!(entry(&created, "/metadata/annotations", "gardener.cloud/created-by"), Some("dora"));
    role("bind", "shoots/binding", "update", "dora");
    dora.create::<Value>(&SHOOT, "garden-p", &named).unwrap();
}

#[test]
fn an_exposure_class_limits_the_seeds_of_its_shoots() {
    let garden = garden();
    let class = json!({"apiVersion": "core.gardener.cloud/v1beta1", "kind": "ExposureClass", "metadata": {"name": "inside"},
        "handler": "inside", "scheduling": {"seedSelector": {"matchLabels": {"net": "inside"}},
            "tolerations": [{"key": "inside"}]}});
    let inside = {
        let mut seed = seed("inside", |spec| spec["taints"] = json!([{"key": "inside"}]));
        seed["metadata"]["labels"] = json!({"net": "inside"});
        seed
    };
    garden.apply(&[class, inside, seed("edge-1", |_| {})]);
    make_ready(&garden, "edge-1");
    make_ready(&garden, "inside");
    let mut exposed = prepare::shoot("exposed");
    exposed["spec"]["exposureClassName"] = "inside".into();
    garden.apply(&[exposed, prepare::shoot("usual")]);
    assert_eq!(text(&settled(&garden, "exposed"), "/spec/seedName"), "inside");
    assert_eq!(text(&settled(&garden, "usual"), "/spec/seedName"), "edge-1");
}

/// A CA with an RSA key, as the secrets manager stores it: certificate and key, PEM.
fn client_authority(now: Timestamp) -> (String, String) {
    let key = AnyKey::new_rsa(2048, &|| false).unwrap();
    let template = CertificateTemplate {
        subject: common_name("ca-client-58f8e9ac"),
        names: ServerNames::default(),
        not_before_unix_s: now.unix() - 3_600,
        not_after_unix_s: now.unix() + 365 * 86_400,
        usage: None,
        authority: Authority::CertificatesAndRevocations,
    };
    let certificate = template.sign(&key, &CertificateIssuer::itself(&template, &key).unwrap()).unwrap();
    (certificate, key.to_pem())
}

const SELF_REVIEW: Resource =
    Resource::new("authentication.k8s.io", "v1", "SelfSubjectReview", "selfsubjectreviews", false);

#[test]
fn an_admin_kubeconfig_leads_into_the_shoot() {
    let garden = garden();
    add_seed(&garden, "edge-1");
    let owner = add_bound(&garden, "s1");
    let inside = TestCluster::start(Options::new("inside", garden.clock()));
    let (client, agent) = (garden.client(), agent(&garden, "edge-1"));
    let ask = |client: &Client, subresource: &str, seconds: u64| {
        let path = format!("/apis/core.gardener.cloud/v1beta1/namespaces/garden-p/shoots/s1/{subresource}");
        let body = json!({"apiVersion": "authentication.gardener.cloud/v1alpha1", "kind": "AdminKubeconfigRequest",
            "spec": {"expirationSeconds": seconds}});
        let body = body.to_string();
        let answer =
            client.raw(kube::Method::Post, &path, Some(body.as_bytes()), "application/json").unwrap();
        (answer.status, serde_json::from_slice::<Value>(&answer.body).unwrap())
    };
    let refused = |code: u16, why: &str| {
        let (status, answer) = ask(&client, "adminkubeconfig", 3_600);
        assert!(status == code && text(&answer, "/message").contains(why), "{status} {answer}");
    };
    assert_eq!(ask(&client, "adminkubeconfig", 599).0, 422);
    refused(422, "no kube-apiserver addresses");
    let addresses = json!([{"name": "external", "url": inside.url()}, {"name": "internal", "url": "https://api.internal"},
        {"name": "service-account-issuer", "url": "https://issuer"}]);
    patch(&agent, "s1", "status", &json!({"status": {"advertisedAddresses": addresses}})).unwrap();
    refused(500, "could not get client CA secret");
    let (certificate, key) = client_authority(garden.clock().now());
    let mut secret = dependent("InternalSecret", "s1.ca-client", &owner);
    secret["stringData"] = json!({"ca.crt": certificate, "ca.key": key});
    agent.create::<Value>(&INTERNAL_SECRET, "garden-p", &secret).unwrap();
    refused(500, "could not get cluster CA");
    let mut map = dependent("ConfigMap", "s1.ca-cluster", &owner);
    map["data"] = json!({"ca.crt": inside.ca()});
    agent.create::<Value>(&CONFIG_MAP, "garden-p", &map).unwrap();
    inside.server().set_client_authorities(&[certificate]);

    let user =
        garden.client_from(&garden.kubeconfig_for("somebody", &["developers"]), kube::Options::default());
    assert_eq!(ask(&user, "adminkubeconfig", 3_600).0, 403, "without the permission");
    for (subresource, group) in [
        ("adminkubeconfig", "gardener.cloud:system:admins"),
        ("viewerkubeconfig", "gardener.cloud:system:viewers"),
    ] {
        let (status, answer) = ask(&client, subresource, 1_000_000);
        assert_eq!((status, &answer["spec"]["expirationSeconds"]), (201, &json!(86_400)), "{answer}");
        let kubeconfig =
            String::from_utf8(from_base64(text(&answer, "/status/kubeconfig")).unwrap()).unwrap();
        let contexts: Value = serde_json::from_str(&kubeconfig).unwrap();
        let names: Vec<&str> = list(&contexts, "/contexts").iter().map(|c| text(c, "/name")).collect();
        assert_eq!(names, ["garden-p--s1-external", "garden-p--s1-internal"]);
        let me: Value = inside
            .client_from(&kubeconfig, kube::Options::default())
            .create(
                &SELF_REVIEW,
                CLUSTER_SCOPED,
                &json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}),
            )
            .unwrap();
        assert_eq!(me["status"]["userInfo"]["username"], "admin");
        assert_eq!(me["status"]["userInfo"]["groups"], json!([group, "system:authenticated"]));
    }
}

#[test]
fn the_subresources_are_discovered() {
    let garden = garden();
    let path = "/apis/core.gardener.cloud/v1beta1";
    let answer = garden.client().raw(kube::Method::Get, path, None, "").unwrap();
    let document: Value = serde_json::from_slice(&answer.body).unwrap();
    let names: Vec<&str> = list(&document, "/resources").iter().map(|r| text(r, "/name")).collect();
    for name in ["shoots/status", "shoots/binding", "shoots/adminkubeconfig", "shoots/viewerkubeconfig"] {
        assert!(names.contains(&name), "{name} is not in {names:?}");
    }
    let path = PROJECT.subresource_path(&Key::cluster("p"), "binding");
    let nowhere = garden.client().fetch::<Value>(&ApiRequest::patch(path, &Patch::Merge(json!({}))));
    assert_eq!(refusal(nowhere).0, 404, "only Shoots are bound");
}
