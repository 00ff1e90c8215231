//! The stored objects of a Shoot are written again, because the key or the list of encrypted resources has changed.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use gardenlet::base::clock::Timestamp;
use serde_json::{Value, json};

use crate::story_offline::pass;
use crate::story_operating::Desk;
use crate::story_shoot_rotation::{NAME, ask_for, created, shoot, wait_for_phases};
use crate::world::{CORE, Options, World};
use support::TestCluster;
use support::api::failure::Failure;
use support::api::store::Store;
use support::http::faults::{Action, Seen};
use support::http::record::Recorded;
use support::json::{entry, list, text};
use support::options::is_long;
use support::shoot::object::{self, PROJECT_NAMESPACE, ShootObject, technical_id};

const KEY_NAME: &str = "credentials.gardener.cloud/key-name";
/// The number of objects to write again, in a long run and in a normal one.
const MANY: [usize; 2] = [2_000, 500];
/// The agent is killed after this many equal parts of them.
const KILLS: [usize; 3] = [1, 33, 67];

/// No client waits that long for an answer.
const HOUR: Duration = Duration::from_secs(3_600);

fn secret(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name, "namespace": "default"}})
}

/// The value of the label that a request sets.
fn label(body: Option<&Value>) -> Option<&Value> {
    body?["metadata"]["labels"].as_object()?.get(KEY_NAME)
}

fn is_labelling(seen: &Seen) -> bool {
    seen.method == "PATCH" && label(seen.body.as_ref()).is_some_and(Value::is_string)
}

/// Requests that added the label to an object, or removed it.
fn rewrites(cluster: &TestCluster, is_on: bool) -> Vec<Recorded> {
    let mut all = cluster.requests();
    all.retain(|request| {
        let set = label(request.body.as_ref()).is_some_and(|value| value.is_string() == is_on);
        request.method == "PATCH" && request.status == 200 && set
    });
    all
}

/// The highest number of requests within one second.
fn most_in_a_second(requests: &[Recorded]) -> usize {
    let times: Vec<Timestamp> = requests.iter().map(|request| request.at).collect();
    let within = |from: usize| {
        let end = times[from].plus(Duration::from_secs(1));
        times[from..].iter().take_while(|at| **at < end).count()
    };
    (0..times.len()).map(within).max().unwrap_or_default()
}

fn labels_of_secrets(cluster: &TestCluster) -> usize {
    let secrets = cluster.store().list("", "secrets", "default");
    secrets.iter().filter(|secret| entry(secret, "/metadata/labels", KEY_NAME).is_some()).count()
}

#[test]
fn many_objects_are_written_again_once_and_at_a_limited_rate() {
    let many = MANY[usize::from(!is_long())];
    let kills_at = KILLS.map(|percent| many * percent / 100);
    let world = World::start(&Options::calm("shoot-many"));
    let site = world.site();
    let agent = created(&world, &site, ShootObject::workerless(NAME));
    let server = site.server(&technical_id(NAME)).unwrap();
    let cluster = &server.cluster;
    let names: Vec<String> = (0..many).map(|n| format!("many-{n:04}")).collect();
    for name in &names {
        cluster.create("v1", "secrets", &secret(name));
    }
    // Each of these takes effect, but the agent gets no answer.
    let (count, due) = (Arc::new(AtomicUsize::new(0)), Arc::new(Mutex::new(0)));
    let (counter, cable, kills) = (count, Arc::new(Mutex::new(agent.cable())), due.clone());
    let wire = cable.clone();
    let labelled = cluster.faults().when(is_labelling).then(Action::TellAfter(Arc::new(move |_: &Seen| {
        if kills_at.contains(&(counter.fetch_add(1, Ordering::SeqCst) + 1)) {
            wire.lock().unwrap().cut();
            *kills.lock().unwrap() += 1;
        }
    })));
    ask_for(&world, "rotate-etcd-encryption-key");
    for kill in 1..=KILLS.len() {
        world.seed.wait_for(&format!("kill {kill}"), |_| (*due.lock().unwrap() >= kill).then_some(()));
        agent.crash_and_restart();
        *cable.lock().unwrap() = agent.cable();
    }
    for part in 1..=10 {
        world.seed.wait_for(&format!("part {part}"), |_| {
            (labelled.hits() as usize >= many * part / 10).then_some(())
        });
    }
    world.garden.wait_for("the second step", |_| {
        let rotation = &shoot(&world)["status"]["credentials"]["rotation"];
        (rotation["etcdEncryptionKey"]["phase"] != "Preparing").then_some(())
    });
    for part in (0..10).rev() {
        world.seed.wait_for(&format!("part {part} of the labels"), |_| {
            (labels_of_secrets(cluster) <= many * part / 10).then_some(())
        });
    }
    wait_for_phases(&world, &[("etcdEncryptionKey", "Completed")]);
    let (on, off) = (rewrites(cluster, true), rewrites(cluster, false));
    for (requests, what) in [(&on, "labelled"), (&off, "freed")] {
        let mut times: BTreeMap<&str, usize> = BTreeMap::new();
        for request in requests {
            *times.entry(request.info.name.as_str()).or_default() += 1;
        }
        let missing = names.iter().filter(|name| !times.contains_key(name.as_str())).count();
        let twice: Vec<_> = times.iter().filter(|(_, count)| **count > 1).collect();
        assert_eq!((missing, twice), (0, vec![]), "{what}");
        let most = most_in_a_second(requests);
        assert!(most <= 100, "{what}: {most}");
    }
    assert_eq!(labels_of_secrets(cluster), 0);
    agent.stop();
}

/// Owners of Shoots have webhooks that refuse every change.
#[test]
fn a_refused_object_is_named_and_delays_no_other() {
    let world = World::start(&Options::new("shoot-refused"));
    let site = world.site();
    let agent = created(&world, &site, ShootObject::workerless(NAME));
    let server = site.server(&technical_id(NAME)).unwrap();
    let cluster = &server.cluster;
    for name in ["a", "held", "slow", "z", "busy", "gone"] {
        cluster.create("v1", "secrets", &secret(name));
    }
    let refusal =
        Failure::new(403, "Forbidden", "admission webhook \"no.example.org\" denied the request: hands off");
    let of = |name: &'static str| move |seen: &Seen| is_labelling(seen) && seen.info.name == name;
    let refused = cluster.faults().when(of("held")).then(Action::Refuse(refusal));
    // The same for a webhook that does not answer.
    let slow = cluster.faults().when(of("slow")).then(Action::Silence(HOUR));
    let conflict = Failure::conflict("", "secrets", "busy", "it was changed");
    let busy = cluster.faults().when(of("busy")).times(2).then(Action::Refuse(conflict));
    cluster.faults().when(of("gone")).then(Action::Refuse(Failure::not_found("", "secrets", "gone")));
    ask_for(&world, "rotate-etcd-encryption-key");
    world.seed.wait_for("the refusal", |_| (refused.hits() > 0).then_some(()));
    // As long as upstream tries it.
    pass(&world, Duration::from_secs(600), Duration::from_secs(20));
    let error = world.garden.wait_for("the error", |_| {
        let errors = list(&shoot(&world), "/status/lastErrors").to_vec();
        errors.into_iter().find(|error| text(error, "/taskID").starts_with("Labeling resources"))
    });
    let said = text(&error, "/description");
    let told =
        Desk::new(&world, object::make_edge).explain(&["shoot", &format!("{PROJECT_NAMESPACE}/{NAME}")]);
    for words in
        ["secrets default/held", "secrets default/slow", "webhook no.example.org", "delete its configuration"]
    {
        assert!(said.contains(words) && told.contains(words), "{said}: {told}");
    }
    assert_eq!(shoot(&world)["status"]["credentials"]["rotation"]["etcdEncryptionKey"]["phase"], "Preparing");
    // Each attempt waits for the slow one.
    cluster.wait_for("the others", |cluster| {
        ((labels_of_secrets(cluster), busy.hits()) == (3, 2)).then_some(())
    });
    // It continues automatically.
    refused.cancel();
    slow.cancel();
    wait_for_phases(&world, &[("etcdEncryptionKey", "Completed")]);
    assert_eq!(labels_of_secrets(cluster), 0);
    agent.stop();
}

/// A kube-apiserver of the old version encrypts with the old key until it ends. If it stored objects after they were
/// written again, they would become unreadable once that key is deleted.
#[test]
fn nothing_is_written_again_while_an_old_server_runs() {
    let world = World::start(&Options::new("shoot-lingers"));
    let options =
        support::shoot::Options { lingers: Duration::from_secs(40), ..support::shoot::Options::default() };
    let site = world.site_with(options);
    let agent = created(&world, &site, ShootObject::workerless(NAME));
    let server = site.server(&technical_id(NAME)).unwrap();
    server.cluster.create("v1", "secrets", &secret("a"));
    let (seed, found) = (world.seed.store().clone(), Arc::new(Mutex::new(Vec::new())));
    let (servers, seen) = (move || servers(&seed), found.clone());
    let tell = Action::Tell(Arc::new(move |_: &Seen| seen.lock().unwrap().push(servers())));
    let labelled = server.cluster.faults().when(is_labelling).then(tell);
    ask_for(&world, "rotate-etcd-encryption-key");
    wait_for_phases(&world, &[("etcdEncryptionKey", "Completed")]);
    let found = found.lock().unwrap();
    assert!(labelled.hits() > 0 && found.iter().all(|count| *count == 1), "{found:?}");
    agent.stop();
}

/// How many pods of kube-apiserver there are.
fn servers(seed: &Store) -> usize {
    let pods = seed.list("", "pods", &technical_id(NAME));
    pods.iter().filter(|pod| pod["metadata"]["labels"]["role"] == "apiserver").count()
}

fn encrypted(world: &World, resources: &Value) {
    let spec =
        json!({"spec": {"kubernetes": {"kubeAPIServer": {"encryptionConfig": {"resources": resources}}}}});
    world.garden.merge(CORE, "shoots", (PROJECT_NAMESPACE, NAME), &spec);
    world.garden.wait_for("the note of what is encrypted", |_| {
        let shoot = shoot(world);
        let at_rest = &shoot["status"]["credentials"]["encryptionAtRest"];
        let is_noted = list(at_rest, "/resources") == list(resources, "");
        let is_over = shoot["status"]["lastOperation"]["state"] == "Succeeded"
            && shoot["status"]["observedGeneration"] == shoot["metadata"]["generation"];
        (is_noted && is_over).then_some(())
    });
}

#[test]
fn other_resources_are_encrypted() {
    let world = World::start(&Options::new("shoot-others"));
    let site = world.site();
    let agent = created(&world, &site, ShootObject::workerless(NAME));
    let server = site.server(&technical_id(NAME)).unwrap();
    let cluster = &server.cluster;
    cluster.create("v1", "secrets", &secret("untouched"));
    cluster.apply(&[
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "map", "namespace": "default"}}),
        json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": "things.example.org"},
            "spec": {"group": "example.org", "scope": "Namespaced", "names": {"plural": "things", "singular": "thing", "kind": "Thing", "listKind": "ThingList"},
                "versions": [{"name": "v1", "served": true, "storage": true,
                    "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}]}}),
    ]);
    cluster.wait_for("the kind", |cluster| {
        let definition =
            cluster.get("apiextensions.k8s.io", "customresourcedefinitions", "", "things.example.org")?;
        let conditions = list(&definition, "/status/conditions").to_vec();
        conditions.iter().any(|c| c["type"] == "Established" && c["status"] == "True").then_some(())
    });
    cluster.apply(&[json!({"apiVersion": "example.org/v1", "kind": "Thing",
        "metadata": {"name": "thing", "namespace": "default"}})]);
    // Another program serves this API group and does not answer: its objects are stored elsewhere.
    let service = json!({"name": "s", "namespace": "default"});
    cluster.apply(&[json!({"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService",
        "metadata": {"name": "v1.away.example.org"},
        "spec": {"group": "away.example.org", "version": "v1", "groupPriorityMinimum": 1, "versionPriority": 1,
            "service": service, "insecureSkipTLSVerify": true}})]);

    let names = |is_on| {
        let mut names: Vec<String> = rewrites(cluster, is_on)
            .iter()
            .map(|request| format!("{} {}", request.info.resource, request.info.name))
            .collect();
        names.retain(|name| ["map", "thing", "untouched"].iter().any(|end| name.ends_with(end)));
        names.sort_unstable();
        names
    };
    encrypted(&world, &json!(["configmaps", "things.example.org"]));
    assert_eq!(names(true), ["configmaps map", "things thing"]);
    assert_eq!(names(false), ["configmaps map", "things thing"]);
    // Objects that are no longer encrypted are written again, too; the others are not touched.
    encrypted(&world, &json!(["configmaps"]));
    assert_eq!(names(true), ["configmaps map", "things thing", "things thing"]);
    assert_eq!(names(false), ["configmaps map", "things thing", "things thing"]);

    // Another provider needs another key, and all encrypted objects are written again.
    let mark = cluster.request_count();
    let provider = json!({"spec": {"kubernetes": {"kubeAPIServer": {"encryptionConfig": {"provider": {"type": "secretbox"}}}}}});
    world.garden.merge(CORE, "shoots", (PROJECT_NAMESPACE, NAME), &provider);
    let done = wait_for_phases(&world, &[("etcdEncryptionKey", "Completed")]);
    let at_rest = json!({"provider": {"type": "secretbox"}, "resources": ["configmaps"]});
    assert_eq!(done["status"]["credentials"]["encryptionAtRest"], at_rest);
    let written = |name: &str| {
        let all = cluster.requests_since(mark).into_iter();
        all.filter(|request| request.method == "PATCH" && request.info.name == name).count()
    };
    assert_eq!(["map", "thing", "untouched"].map(written), [2, 0, 2]);
    assert_eq!(site.complaints(), Vec::<String>::new());
    agent.stop();
}
