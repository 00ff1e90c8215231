//! Bad input for the controllers of backups, Bastions and ManagedSeeds. The report of each problem has its place and
//! its remedy. The agent deletes no foreign object, and no controller retries without pauses.

use std::time::Duration;

use gardenlet::api::gardener::OPERATION;
use gardenlet::base::clock::Mono;
use gardenlet::extension::TIMESTAMP;
use serde_json::{Value, json};

use crate::player::{GROUP, Manners};
use crate::story_backups::{Lab as Backups, PROJECT, credentials, entry_name, finalizers, is};
use crate::story_bastions::{self, Lab as Bastions, OPERATIONS, reached_at};
use crate::story_managed_seed::{self, Lab as Managed};
use crate::world::{CORE, World};
use support::api::store::Id;
use support::http::record::Recorded;
use support::json::text;

const PROBLEM: &str = "ERR_CONFIGURATION_PROBLEM";
/// An object of another owner.
const MINE: &str = "example.org/mine";
/// The time in which no controller may retry without pauses.
const WHILE: Duration = Duration::from_secs(300);
/// Requests of the agent for an object with a reported problem: retries of few requests with pauses that grow to five
/// minutes, or a check every half minute.
const REQUESTS_MAX: u64 = 60;
const REQUESTS_A_MINUTE_MAX: u64 = 16;
/// An extension that answers at once gets the first request and then at most one a minute.
const ASKED_A_MINUTE_MAX: u64 = 1;

/// Counts the agent's requests for an object.
struct Watched<'w> {
    world: &'w World,
    since: Mono,
    marks: (usize, usize),
}

impl<'w> Watched<'w> {
    fn begin(world: &'w World) -> Self {
        let marks = (world.garden.request_count(), world.seed.request_count());
        Self { world, since: world.clock.mono(), marks }
    }

    /// Requests that name the object, to both servers.
    fn requests(&self, name: &str) -> Vec<Recorded> {
        let all =
            [self.world.garden.requests_since(self.marks.0), self.world.seed.requests_since(self.marks.1)];
        let is_it = |r: &Recorded| {
            r.user_agent.starts_with("gardenlet/") && r.info.name.ends_with(name) && !name.is_empty()
        };
        all.concat().into_iter().filter(is_it).collect()
    }

    /// The time that has passed and allows more requests: on a busy machine it is longer than the wait.
    fn minutes(&self) -> u64 {
        self.world.clock.mono().saturating_sub(self.since).as_secs() / 60 + 1
    }

    /// Checks that no controller retries these without pauses.
    fn ensure_calm(&self, names: &[&str]) {
        self.world.skip(WHILE);
        let max = REQUESTS_MAX + REQUESTS_A_MINUTE_MAX * self.minutes();
        for name in names {
            let count = self.requests(name).len() as u64;
            assert!(count <= max, "{count} requests for {name}, {max} are enough");
        }
    }

    /// Checks that nothing was deleted for this object.
    fn ensure_nothing_deleted(&self, name: &str) {
        let deletes = self.requests(name).into_iter().filter(|r| r.method == "DELETE");
        assert_eq!(deletes.map(|r| r.line()).collect::<Vec<_>>(), Vec::<String>::new());
    }
}

/// A problem: its name, the object, the words of its report, its code.
struct Row {
    name: String,
    more: Value,
    words: &'static str,
    codes: Value,
}

fn row(name: impl Into<String>, more: Value, words: &'static str, code: &str) -> Row {
    let codes = if code.is_empty() { Value::Null } else { json!([code]) };
    Row { name: name.into(), more, words, codes }
}

fn secret(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Secret", "namespace": "garden", "name": name})
}

impl Backups {
    fn put_bucket(&self, name: &str, more: &Value) {
        let mut bucket = json!({"apiVersion": "core.gardener.cloud/v1beta1", "kind": "BackupBucket", "metadata": {"name": name},
            "spec": {"provider": {"type": "local", "region": "north"}, "credentialsRef": secret("backup"), "seedName": self.world.name}});
        for (field, value) in more.as_object().into_iter().flatten() {
            bucket["spec"][field] = value.clone();
        }
        self.world.garden.apply(&[bucket]);
    }

    fn any_bucket(&self, name: &str) -> Option<Value> {
        self.world.garden.get(CORE, "backupbuckets", "", name)
    }

    /// Waits for `lastError` and returns it, in accelerated time.
    fn wait_for_error(&self, what: &str, words: &str, object: impl Fn() -> Option<Value>) -> Value {
        self.wait_for(&format!("{what}: {words}"), || {
            self.world.time.advance(Duration::from_secs(1));
            let error = object()?["status"]["lastError"].clone();
            text(&error, "/description").contains(words).then_some(error)
        })
    }
}

#[test]
fn bad_buckets_and_entries() {
    let lab = Backups::start("bad-backups", |_| {});
    let world = &lab.world;
    // A foreign finalizer holds credentials that are deleted.
    let mut going = credentials("going");
    going["metadata"]["name"] = json!("going");
    going["metadata"]["finalizers"] = json!([MINE]);
    world.garden.apply(&[going]);
    world.garden.delete("", "secrets", "garden", "going");
    let mut empty = credentials("");
    empty["metadata"]["name"] = json!("empty");
    empty.as_object_mut().unwrap().remove("data");
    world.garden.apply(&[empty]);
    let kind = |version: &str, kind: &str, name: &str| json!({"credentialsRef": {"apiVersion": version, "kind": kind, "namespace": "garden", "name": name}});
    let long = "b".repeat(250);
    let buckets = [
        row(
            "of-no-kind",
            kind("v1", "ConfigMap", "backup"),
            "garden/backup, v1 ConfigMap: set credentialsRef to a v1 Secret",
            PROBLEM,
        ),
        row(
            "of-an-identity",
            kind("security.gardener.cloud/v1alpha1", "WorkloadIdentity", "backup"),
            "spec.credentialsRef refers to WorkloadIdentity garden/backup, which the garden does not have: create it",
            PROBLEM,
        ),
        row(
            "of-nobody",
            kind("v1", "Secret", ""),
            "refers to Secret garden/, which the garden does not have",
            PROBLEM,
        ),
        row(
            "of-the-going",
            kind("v1", "Secret", "going"),
            "refers to Secret garden/going, which is being deleted: create it again",
            PROBLEM,
        ),
        row(&long, json!({}), "the name of the BackupBucket is too long: Secret garden/bucket-bbb", PROBLEM),
    ];
    let entries = [
        row(
            "in-nothing",
            json!({"spec": {"bucketName": "nothing"}}),
            "BackupBucket \"nothing\": not found: create it",
            PROBLEM,
        ),
        row(&long, json!({}), "the name of the BackupEntry is too long: Secret garden/entry-bbb", PROBLEM),
        row(
            "of-nowhere",
            json!({"metadata": {"annotations": {OPERATION: "restore"}}}),
            "the garden has no ShootState garden-p/s1",
            "",
        ),
    ];
    buckets.iter().for_each(|row| lab.put_bucket(&row.name, &row.more));
    // The garden lets nobody delete a bucket that has entries: this one gets lost.
    lab.put_bucket("nothing", &json!({"seedName": "another"}));
    entries.iter().for_each(|row| lab.apply_entry(&row.name, &row.more));
    let lost = Id::new(CORE, "backupbuckets", "", "nothing");
    world.garden.store().write(|state| drop(state.take(&lost)));
    for Row { name, words, codes, .. } in &buckets {
        let error = lab.wait_for_error(name, words, || lab.any_bucket(name));
        assert_eq!(error["codes"], *codes, "{name}");
    }
    for Row { name, words, codes, .. } in &entries {
        let error = lab.wait_for_error(name, words, || lab.entry(name));
        assert_eq!(error["codes"], *codes, "{name}");
    }
    // The extension decides about a Secret without data: some providers need none.
    lab.put_bucket("of-no-data", &kind("v1", "Secret", "empty"));
    lab.wait_for("the bucket without data", || {
        lab.any_bucket("of-no-data").filter(|bucket| is(bucket, "Succeeded"))
    });
    // No extension serves this type.
    lab.player.behave("backupbuckets", Manners { is_silent: true, ..Manners::default() });
    lab.player.behave("backupentries", Manners { is_silent: true, ..Manners::default() });
    lab.put_bucket("of-no-type", &json!({"provider": {"type": "nobody", "region": "north"}}));
    let unsupported =
        "no ControllerInstallation of this seed supports BackupBucket/nobody: register an extension";
    let error = lab.wait_for_error("of-no-type", unsupported, || lab.any_bucket("of-no-type"));
    assert_eq!(error["codes"], json!([PROBLEM]));
    lab.apply_entry("unheard", &json!({}));
    lab.wait_for_error("unheard", "supports BackupEntry/local", || lab.entry("unheard"));
    // The entry is removed while its extension works. Its object stays, since the agent does not know what is in the
    // bucket.
    lab.apply_entry("taken", &json!({}));
    lab.wait_for("the object", || lab.object("backupentries", "taken"));
    world.garden.merge(CORE, "backupentries", (PROJECT, "taken"), &json!({"metadata": {"finalizers": null}}));
    world.garden.delete(CORE, "backupentries", PROJECT, "taken");

    let watched = Watched::begin(world);
    let names: Vec<&str> = buckets.iter().chain(&entries).map(|row| row.name.as_str()).collect();
    watched.ensure_calm(&[names.as_slice(), &["of-no-type", "unheard", "taken"]].concat());
    watched.ensure_nothing_deleted("taken");
    assert!(lab.object("backupentries", "taken").is_some());
    let going = world.garden.get("", "secrets", "garden", "going").unwrap();
    assert_eq!(finalizers(&going), [MINE]);
    // Objects with too long names can be deleted.
    world.garden.delete(CORE, "backupbuckets", "", &long);
    world.garden.delete(CORE, "backupentries", PROJECT, &long);
    lab.wait_for("the end of both", || {
        (lab.any_bucket(&long).is_none() && lab.entry(&long).is_none()).then_some(())
    });
    lab.end();
}

/// The last operation that an extension reports, with a given time.
fn last(state: &str, at: &str) -> Value {
    json!({"type": "Reconcile", "state": state, "progress": 100, "description": "by the test", "lastUpdateTime": at})
}

#[test]
fn bad_answers_of_extensions_for_backups() {
    let lab = Backups::start("bad-answers", |_| {});
    let world = &lab.world;
    let asked = |name: &str| lab.player.asked().iter().filter(|(_, of, _)| of == name).count() as u64;
    let is_asked_seldom = |watched: &Watched<'_>, name: &str| {
        let mut count = asked(name);
        let until = world.clock.mono() + WHILE;
        lab.wait_for("five minutes", || {
            world.time.advance(Duration::from_secs(1));
            (world.clock.mono() >= until).then_some(())
        });
        count += asked(name);
        let max = 2 + ASKED_A_MINUTE_MAX * watched.minutes();
        assert!(count <= max, "{count} requests to {name}, {max} are enough");
    };
    // It answers at once, and its clock is years behind.
    lab.player.asked();
    let late = json!({"lastOperation": last("Succeeded", "2020-01-01T00:00:00Z")});
    lab.player.behave("backupentries", Manners { status: late, ..Manners::default() });
    let watched = Watched::begin(world);
    lab.apply_entry("late", &json!({}));
    lab.wait_for_error("late", "the last operation of the extension is of 2020-01-01T00:00:00Z", || {
        lab.entry("late")
    });
    is_asked_seldom(&watched, "late");
    // It gives up at once.
    let refused = json!({"description": "no quota", "codes": ["ERR_INFRA_QUOTA_EXCEEDED"]});
    lab.player.behave("backupentries", Manners { error: Some(("Failed", refused)), ..Manners::default() });
    let watched = Watched::begin(world);
    lab.apply_entry("given-up", &json!({}));
    let error = lab.wait_for_error("given-up", "no quota", || lab.entry("given-up"));
    assert_eq!(error["codes"], json!(["ERR_INFRA_QUOTA_EXCEEDED"]));
    is_asked_seldom(&watched, "given-up");
    // It refers to credentials that do not exist.
    lab.player.behave("backupentries", Manners::default());
    for (name, reference, words) in [
        ("half", json!({"name": "nowhere"}), "half names Secret nowhere, which the seed does not have"),
        ("none", json!({}), "none names Secret , which the seed does not have"),
        (
            "lost",
            json!({"name": "nowhere", "namespace": "garden"}),
            "lost names Secret garden/nowhere, which the seed does not have: its extension has to make it",
        ),
    ] {
        let status = json!({"generatedSecretRef": reference});
        lab.player.behave("backupbuckets", Manners { status, ..Manners::default() });
        lab.put_bucket(name, &json!({}));
        lab.wait_for_error(name, words, || lab.any_bucket(name));
        assert!(world.garden.get("", "secrets", "garden", &format!("generated-bucket-{name}")).is_none());
    }
    Watched::begin(world).ensure_calm(&["half", "none", "lost"]);
    lab.player.behave("backupbuckets", Manners::default());
    // The agent changes an object of another owner to match the garden, and keeps its other fields.
    let theirs = json!({"apiVersion": "extensions.gardener.cloud/v1alpha1", "kind": "BackupEntry",
        "metadata": {"name": entry_name(1), "labels": {"owner": "somebody"}, "annotations": {"seed": "another"}},
        "spec": {"type": "other", "region": "south", "bucketName": "theirs", "secretRef": {"name": "x", "namespace": "y"}}});
    world.seed.apply(&[theirs]);
    lab.apply_entry(&entry_name(1), &json!({}));
    lab.wait_for_entry(&entry_name(1), "Succeeded");
    let object = lab.object("backupentries", &entry_name(1)).unwrap();
    assert_eq!(
        (
            &object["metadata"]["labels"]["owner"],
            &object["metadata"]["annotations"]["seed"],
            &object["spec"]["type"]
        ),
        (&json!("somebody"), &json!("another"), &json!("local"))
    );
    // A foreign finalizer holds the bucket during its deletion. The agent does not touch the bucket of another seed.
    lab.put_bucket("leaves", &json!({}));
    lab.wait_for("the bucket", || lab.any_bucket("leaves").filter(|bucket| is(bucket, "Succeeded")));
    lab.player.behave("backupentries", Manners { is_silent: true, ..Manners::default() });
    let held = json!({"metadata": {"finalizers": [MINE]}});
    world.seed.merge(GROUP, "backupentries", ("", &entry_name(1)), &held);
    world.garden.delete(CORE, "backupentries", PROJECT, &entry_name(1));
    lab.wait_for("the deletion", || {
        let entry = lab.entry(&entry_name(1))?;
        (entry["status"]["lastOperation"]["type"] == "Delete").then_some(())
    });
    world.move_in_storage((CORE, "backupbuckets"), ("", "leaves"));
    world.garden.delete(CORE, "backupbuckets", "", "leaves");
    let watched = Watched::begin(world);
    watched.ensure_calm(&[&entry_name(1), "leaves"]);
    watched.ensure_nothing_deleted("leaves");
    assert!(lab.object("backupbuckets", "leaves").is_some() && lab.secret("bucket-leaves").is_some());
    assert_eq!(finalizers(&lab.any_bucket("leaves").unwrap()), ["gardener"]);
    world.seed.merge(
        GROUP,
        "backupentries",
        ("", &entry_name(1)),
        &json!({"metadata": {"finalizers": null}}),
    );
    lab.wait_for("the end of the entry", || {
        world.time.advance(Duration::from_secs(1));
        lab.entry(&entry_name(1)).is_none().then_some(())
    });
    lab.end();
}

#[test]
fn bad_answers_of_extensions_for_bastions() {
    let lab = Bastions::start("bad-bastions", |_, _| {});
    let world = &lab.world;
    let plane = story_bastions::plane("s1");
    let wait_for = |name: &str, words: &str| {
        lab.wait_for(&format!("{name}: {words}"), || {
            world.time.advance(Duration::from_secs(1));
            let condition = story_bastions::ready(&lab.bastion(name)?)?.clone();
            (condition["status"] == "False" && text(&condition, "/message").contains(words)).then_some(())
        });
    };
    lab.player.asked();
    for (name, status, words) in [
        (
            "late",
            json!({"lastOperation": last("Succeeded", "2020-01-01T00:00:00Z")}),
            "last operation is older than the request for it: look at the log of the extension, and at its clock",
        ),
        ("ahead", json!({"observedGeneration": 7}), "observed generation outdated (7/1): look at the log"),
    ] {
        lab.player.behave("bastions", Manners { status, ..Manners::default() });
        lab.make(name, |_| {});
        wait_for(name, words);
    }
    // A client writes an unreadable value into the object: the agent requests the operation from the extension again.
    lab.player.behave("bastions", reached_at("192.0.2.10"));
    lab.make("stamped", |_| {});
    lab.wait_until_works("stamped");
    lab.player.asked();
    let stamp = json!({"metadata": {"annotations": {TIMESTAMP: "yesterday"}}});
    world.seed.merge(GROUP, "bastions", (&plane, "stamped"), &stamp);
    lab.wait_for("another request", || {
        world.time.advance(Duration::from_secs(1));
        lab.player.asked().iter().any(|(_, name, _)| name == "stamped").then_some(())
    });
    lab.wait_until_works("stamped");
    // A client deletes the object, and a foreign finalizer holds it.
    lab.player.behave("bastions", Manners { is_silent: true, ..Manners::default() });
    let held = json!({"metadata": {"finalizers": [MINE]}});
    world.seed.merge(GROUP, "bastions", (&plane, "stamped"), &held);
    world.seed.delete(GROUP, "bastions", &plane, "stamped");
    wait_for(
        "stamped",
        "it was deleted in the seed: the agent creates it again after the deletion; finalizers that hold it: example.org/mine",
    );
    // One belongs to another seed from now on, another one is removed.
    for name in ["leaves", "taken"] {
        lab.make(name, |_| {});
        lab.wait_for("its object", || lab.object(name));
    }
    world.move_in_storage((OPERATIONS, "bastions"), (story_bastions::PROJECT, "leaves"));
    lab.change("taken", &json!({"metadata": {"finalizers": null}}));
    world.garden.delete(OPERATIONS, "bastions", story_bastions::PROJECT, "taken");
    let watched = Watched::begin(world);
    watched.ensure_calm(&["late", "ahead", "stamped", "leaves", "taken"]);
    for name in ["leaves", "taken"] {
        watched.ensure_nothing_deleted(name);
        assert!(lab.object(name).is_some(), "{name}");
    }
    assert_eq!(lab.player.asked(), [], "there was no request, because no extension answers");
    lab.player.behave("bastions", reached_at("192.0.2.10"));
    world.seed.merge(GROUP, "bastions", (&plane, "stamped"), &json!({"metadata": {"finalizers": null}}));
    lab.wait_for("another object that works", || {
        world.time.advance(Duration::from_secs(1));
        lab.bastion("stamped").filter(story_bastions::works)
    });
    lab.end();
}

#[test]
fn bad_managed_seeds() {
    let lab = Managed::start("bad-parent", |_, _| {});
    let (world, name, garden) = (&lab.world, story_managed_seed::NAME, story_managed_seed::GARDEN);
    lab.put_shoot(|_| {});
    let mut right = Value::Null;
    lab.make(|managed| right = managed["spec"]["gardenlet"]["config"].take());
    let code = |managed: &Value| {
        let all = managed["status"]["conditions"].as_array().unwrap();
        all.iter().find(|it| it["type"] == "SeedRegistered").unwrap()["codes"].clone()
    };
    let told = |words: &str| {
        let managed = world.garden.wait_for(&format!("the condition: {words}"), |_| {
            world.time.advance(Duration::from_secs(1));
            let managed = lab.managed()?;
            let (status, _, message) = crate::world::condition(&managed, "SeedRegistered")?;
            (status == "False" && message.contains(words)).then_some(managed)
        });
        assert_eq!(code(&managed), json!([PROBLEM]), "{words}");
    };
    let of = |pointer: &str, value: Value| {
        let mut config = right.clone();
        let (parent, field) = pointer.rsplit_once('/').unwrap();
        config.pointer_mut(parent).unwrap()[field] = value;
        // The patch would merge tables.
        json!({"spec": {"gardenlet": {"config": config}}})
    };
    let backup = json!({"provider": "local", "region": "north",
        "credentialsRef": {"apiVersion": "v1", "kind": "ConfigMap", "namespace": "garden", "name": "backup"}});
    for (pointer, value, words) in [
        ("/seedConfig/metadata", json!("x"), "spec.gardenlet.config is invalid: seedConfig.metadata: "),
        ("/leaderElection", json!(["x"]), "spec.gardenlet.config is invalid: leaderElection: "),
        (
            "/seedConfig/spec/backup",
            backup,
            "spec.gardenlet.config is invalid: seedConfig.spec.backup.credentialsRef",
        ),
    ] {
        lab.change(&of(pointer, value));
        told(words);
        lab.change(&json!({"spec": {"gardenlet": {"config": null}}}));
    }
    let watched = Watched::begin(world);
    watched.ensure_calm(&[name]);
    assert_eq!(lab.target.get("", "namespaces", "", garden), None);
    // It belongs to another seed from now on: the deployed objects stay.
    lab.change(&json!({"spec": {"gardenlet": {"config": right}}}));
    lab.wait_for("SeedRegistered", "Reconciled", "");
    let label = format!("name.seed.gardener.cloud/{}", world.name);
    lab.change(&json!({"metadata": {"labels": {label: null}}}));
    let mark = lab.target.request_count();
    let watched = Watched::begin(world);
    watched.ensure_calm(&[name]);
    assert_eq!(lab.writes(mark), Vec::<String>::new());
    assert!(lab.deployment().is_some());
    lab.end();
}
