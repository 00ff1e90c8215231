//! BackupBuckets and BackupEntries: created, changed, failed, moved to another seed, deleted. The test plays their
//! extension.

use std::sync::Arc;
use std::time::Duration;

use gardenlet::api::gardener::OPERATION;
use gardenlet::extension::TIMESTAMP;
use serde_json::{Value, json};

use crate::player::{GROUP, Manners, Player};
use crate::story_operating::Desk;
use crate::world::{Agent, CORE, Options, World};
use support::api::store::Id;
use support::encoding::base64;
use support::garden::prepare;
use support::json::text;
use support::shoot::history::wait_until_created;
use support::shoot::object::{PROJECT_NAMESPACE, ShootObject, technical_id};

pub(crate) const PROJECT: &str = "garden-p";
const HOUR: Duration = Duration::from_secs(3_600);

/// A seed with a backup section, its agent and its extension.
pub(crate) struct Lab {
    pub(crate) world: World,
    pub(crate) agent: Arc<Agent>,
    pub(crate) player: Player,
    /// The name of the Seed's bucket.
    pub(crate) bucket: String,
}

pub(crate) fn credentials(key: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"namespace": "garden", "name": "backup"},
        "data": {"key": base64(key.as_bytes())}})
}

/// `spec.backup` of its Seed.
pub(crate) fn section() -> Value {
    json!({"provider": "local", "region": "north",
        "credentialsRef": {"apiVersion": "v1", "kind": "Secret", "namespace": "garden", "name": "backup"}})
}

impl Lab {
    pub(crate) fn start(name: &'static str, change: impl FnOnce(&mut Value)) -> Self {
        let lab = Self::prepare(name, &[credentials("first")], change);
        lab.wait_for_bucket("Succeeded");
        lab
    }

    /// Does not wait for the bucket.
    pub(crate) fn prepare(name: &'static str, garden: &[Value], change: impl FnOnce(&mut Value)) -> Self {
        let lab = Self::prepare_and(name, garden, change, |_, _| {});
        lab.world.wait_until_ready();
        lab
    }

    /// The same; `begin` is called before the agent starts.
    pub(crate) fn prepare_and(
        name: &'static str,
        garden: &[Value],
        change: impl FnOnce(&mut Value),
        begin: impl FnOnce(&World, &Arc<Agent>),
    ) -> Self {
        let world = World::start(&Options::new(name));
        world.garden.apply(garden);
        world.garden.create("v1", "namespaces", &json!({"metadata": {"name": PROJECT}}));
        // The owner of these entries: without it, they are deleted.
        let mut shoot = prepare::shoot("s1");
        shoot["metadata"]["uid"] = json!("u");
        shoot["spec"]["seedName"] = json!(name);
        world.garden.store().write(|state| drop(state.put(Id::new(CORE, "shoots", PROJECT, "s1"), shoot)));
        let mut config = world.config();
        config["seedConfig"]["spec"]["backup"] = section();
        config["leaderElection"] = json!({"leaderElect": false});
        change(&mut config);
        let agent = Arc::new(Agent::new(&world, "host-1", &config, world.pod()));
        begin(&world, &agent);
        agent.launch();
        world.garden.wait_for("the Seed", |garden| garden.seed(name));
        let bucket = text(&world.garden.seed(name).unwrap(), "/metadata/uid").to_owned();
        let player = Player::of(&["backupbuckets", "backupentries"]);
        Self { world, agent, player, bucket }
    }

    pub(crate) fn bucket(&self) -> Option<Value> {
        self.world.garden.get(CORE, "backupbuckets", "", &self.bucket)
    }

    pub(crate) fn entry(&self, name: &str) -> Option<Value> {
        self.world.garden.get(CORE, "backupentries", PROJECT, name)
    }

    pub(crate) fn object(&self, plural: &str, name: &str) -> Option<Value> {
        self.world.seed.get(GROUP, plural, "", name)
    }

    pub(crate) fn secret(&self, name: &str) -> Option<Value> {
        self.world.seed.get("", "secrets", "garden", name)
    }

    /// Waits in the garden while the extension works.
    pub(crate) fn wait_for<T>(&self, what: &str, condition: impl Fn() -> Option<T>) -> T {
        self.player.wait_for(&self.world.seed, &self.world.garden, what, |_| condition())
    }

    pub(crate) fn wait_for_bucket(&self, state: &str) -> Value {
        self.wait_for(&format!("the bucket to be {state}"), || {
            self.bucket().filter(|bucket| is(bucket, state))
        })
    }

    pub(crate) fn wait_for_entry(&self, name: &str, state: &str) -> Value {
        self.wait_for(&format!("{name} to be {state}"), || self.entry(name).filter(|entry| is(entry, state)))
    }

    pub(crate) fn apply_entry(&self, name: &str, more: &Value) {
        let mut entry = json!({"apiVersion": "core.gardener.cloud/v1beta1", "kind": "BackupEntry",
            "metadata": {"namespace": PROJECT, "name": name,
                "ownerReferences": [{"apiVersion": "core.gardener.cloud/v1beta1", "kind": "Shoot", "name": "s1", "uid": "u"}]},
            "spec": {"bucketName": self.bucket, "seedName": self.world.name}});
        merge(&mut entry, more);
        self.world.garden.apply(&[entry]);
    }

    /// The agent stops for a while and starts again.
    pub(crate) fn is_away(&self, time: Duration) {
        self.agent.stop();
        self.world.time.advance(time);
        self.agent.launch();
        self.world.wait_until_ready();
    }

    /// A Seed with Shoots cannot be deleted.
    pub(crate) fn without_shoot(&self) {
        let id = Id::new(CORE, "shoots", PROJECT, "s1");
        self.world.garden.store().write(|state| drop(state.take(&id)));
    }

    pub(crate) fn end(self) {
        self.agent.stop();
    }
}

fn merge(object: &mut Value, more: &Value) {
    match (object, more) {
        (Value::Object(object), Value::Object(more)) => {
            for (key, value) in more {
                merge(object.entry(key.clone()).or_insert(Value::Null), value);
            }
        }
        (object, more) => *object = more.clone(),
    }
}

/// Whether the last operation has this state, for the current generation.
pub(crate) fn is(object: &Value, state: &str) -> bool {
    object["status"]["lastOperation"]["state"] == state
        && object["status"]["observedGeneration"] == object["metadata"]["generation"]
}

pub(crate) fn finalizers(object: &Value) -> Vec<&str> {
    object["metadata"]["finalizers"].as_array().into_iter().flatten().filter_map(Value::as_str).collect()
}

pub(crate) fn entry_name(n: usize) -> String {
    format!("shoot--p--s{n}--0000-{n}")
}

#[test]
fn a_seed_has_a_bucket_and_shoots_have_entries_in_it() {
    let lab = Lab::prepare("kept", &[credentials("first")], |_| {});
    let made = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"namespace": "garden", "name": "made"},
        "data": {"made": base64(b"by the extension")}});
    lab.world.seed.apply(&[made]);
    let status = json!({"generatedSecretRef": {"namespace": "garden", "name": "made"}, "providerStatus": {"id": "b-1"}});
    lab.player.behave("backupbuckets", Manners { status, ..Manners::default() });
    let bucket = lab.wait_for_bucket("Succeeded");
    assert_eq!(finalizers(&bucket), ["gardener"]);
    assert_eq!(text(&bucket, "/metadata/ownerReferences/0/kind"), "Seed");
    let last = &bucket["status"]["lastOperation"];
    assert_eq!((&last["type"], &last["progress"]), (&json!("Create"), &json!(100)));
    assert_eq!(last["description"], "Backup Bucket has been successfully reconciled.");
    assert_eq!(bucket["status"]["providerStatus"], json!({"id": "b-1"}));
    let object = lab.object("backupbuckets", &lab.bucket).unwrap();
    let expected = json!({"type": "local", "region": "north",
        "secretRef": {"namespace": "garden", "name": format!("bucket-{}", lab.bucket)}});
    assert_eq!(object["spec"], expected);
    let generated = &object["metadata"]["annotations"]["backupbucket.extensions.gardener.cloud/generated-secret-namespace"];
    assert_eq!(generated, "garden");
    let copy = lab.secret(&format!("bucket-{}", lab.bucket)).unwrap();
    assert_eq!(copy["data"], json!({"key": base64(b"first")}));
    let held = lab.world.garden.get("", "secrets", "garden", "backup").unwrap();
    assert_eq!(finalizers(&held), ["core.gardener.cloud/backupbucket"]);
    let name = format!("generated-bucket-{}", lab.bucket);
    assert_eq!(bucket["status"]["generatedSecretRef"], json!({"namespace": "garden", "name": name}));
    let taken = lab.world.garden.get("", "secrets", "garden", &name).unwrap();
    assert_eq!(taken["data"], json!({"made": base64(b"by the extension")}));
    assert_eq!(text(&taken, "/metadata/ownerReferences/0/kind"), "BackupBucket");

    lab.apply_entry(&entry_name(1), &json!({}));
    let entry = lab.wait_for_entry(&entry_name(1), "Succeeded");
    assert_eq!((finalizers(&entry), &entry["status"]["seedName"]), (vec!["gardener"], &json!("kept")));
    assert_eq!(entry["status"]["lastOperation"]["description"], "Reconciliation of BackupEntry succeeded.");
    let secret = format!("entry-{}", entry_name(1));
    let expected = json!({"type": "local", "region": "north", "bucketName": lab.bucket,
        "backupBucketProviderStatus": {"id": "b-1"}, "secretRef": {"namespace": "garden", "name": secret}});
    assert_eq!(lab.object("backupentries", &entry_name(1)).unwrap()["spec"], expected);
    // Credentials from the extension take precedence.
    assert_eq!(lab.secret(&secret).unwrap()["data"], json!({"made": base64(b"by the extension")}));
    lab.end();
}

#[test]
fn correct_objects_are_not_written_and_new_credentials_are_copied() {
    let lab = Lab::start("rotated", |_| {});
    lab.apply_entry(&entry_name(1), &json!({}));
    lab.wait_for_entry(&entry_name(1), "Succeeded");
    lab.player.asked();
    // Half an hour without changes.
    let marks = (lab.world.garden.request_count(), lab.world.seed.request_count());
    lab.world.skip(HOUR / 2);
    let of_backups = |r: &&support::http::record::Recorded| {
        r.is_write() && (r.info.resource.starts_with("backup") || r.info.name.contains("backup"))
    };
    let garden = lab.world.garden.requests_since(marks.0);
    let written: Vec<String> =
        garden.iter().filter(of_backups).map(support::http::record::Recorded::line).collect();
    assert_eq!(written, Vec::<String>::new());
    let seed = lab.world.seed.requests_since(marks.1);
    let written: Vec<String> =
        seed.iter().filter(of_backups).map(support::http::record::Recorded::line).collect();
    assert_eq!(written, Vec::<String>::new());
    assert_eq!(lab.player.asked(), []);

    lab.world.garden.merge("", "secrets", ("garden", "backup"), &json!({"data": {"key": base64(b"second")}}));
    for name in [format!("bucket-{}", lab.bucket), format!("entry-{}", entry_name(1))] {
        lab.wait_for(&format!("the new credentials in {name}"), || {
            lab.world.time.advance(Duration::from_secs(5));
            (lab.secret(&name)?["data"]["key"] == base64(b"second").as_str()).then_some(())
        });
    }
    let both = ["backupbuckets", "backupentries"];
    let mut asked: Vec<&str> = Vec::new();
    lab.wait_for("requests for both", || {
        let done = both.iter().zip([&lab.bucket, &entry_name(1)]).all(|(kind, name)| {
            let object = lab.object(kind, name).unwrap_or_default();
            object["status"]["lastOperation"]["type"] == "Reconcile"
        });
        done.then_some(())
    });
    asked.extend(lab.player.asked().iter().map(|(kind, ..)| *kind));
    assert_eq!(asked, both);
    // After half a day the agent requests another reconciliation from the extension.
    lab.is_away(12 * HOUR);
    lab.wait_for("another request", || {
        lab.player.asked().iter().any(|(kind, ..)| *kind == "backupbuckets").then_some(())
    });
    lab.wait_for_bucket("Succeeded");
    lab.end();
}

/// `explain` names what the bucket and the entry wait for.
fn is_explained(lab: &Lab) {
    let desk = Desk::new(&lab.world, |_| {});
    let missing = "refers to Secret garden/backup, which the garden does not have: create it";
    let told = desk.explain(&["backupbucket", &lab.bucket]);
    let begin = format!("BackupBucket {} (garden): not ready: last operation Create is Error", lab.bucket);
    assert!(
        told.starts_with(&begin)
            && told.contains(&format!("- its credentials: spec.credentialsRef {missing}")),
        "{told}"
    );
    assert!(
        told.contains(&format!("the seed has no BackupBucket {} for the extension", lab.bucket)),
        "{told}"
    );
    let told = desk.explain(&["backupentry", &entry_name(1), "-n", PROJECT]);
    let of_bucket = format!("- its BackupBucket {}: not ready: last operation Create is Error", lab.bucket);
    assert!(
        told.contains(&of_bucket) && told.contains("last error: error during reconciliation of associated"),
        "{told}"
    );
}

#[test]
fn backup_errors_are_reported_with_their_code_until_they_are_resolved() {
    let lab = Lab::prepare("troubled", &[], |_| {});
    let says = |object: Value, words: &str| {
        let error = &object["status"]["lastError"];
        text(error, "/description").contains(words).then(|| error.clone())
    };
    let error = lab.wait_for("the missing Secret", || {
        says(
            lab.bucket()?,
            "spec.credentialsRef refers to Secret garden/backup, which the garden does not have",
        )
    });
    assert_eq!(error["codes"], json!(["ERR_CONFIGURATION_PROBLEM"]));
    assert!(is(&lab.bucket().unwrap(), "Error"));
    lab.apply_entry(&entry_name(1), &json!({}));
    let error =
        lab.wait_for("the entry to wait", || says(lab.entry(&entry_name(1))?, "of associated BackupBucket"));
    assert_eq!(error["codes"], json!(["ERR_CONFIGURATION_PROBLEM"]));
    is_explained(&lab);
    lab.world.garden.wait_for("an event", |garden| {
        let events = garden.store().list("events.k8s.io", "events", PROJECT);
        let is_it = |e: &Value| e["reason"] == "ReconcileError" && e["regarding"]["kind"] == "BackupEntry";
        events.iter().any(is_it).then_some(())
    });

    let refused = json!({"description": "access denied", "codes": ["ERR_INFRA_UNAUTHORIZED"]});
    lab.player.behave("backupbuckets", Manners { error: Some(("Error", refused)), ..Manners::default() });
    lab.world.garden.apply(&[credentials("wrong")]);
    let error =
        lab.wait_for("the refusal", || says(lab.bucket()?, "error during reconciliation: access denied"));
    assert_eq!(error["codes"], json!(["ERR_INFRA_UNAUTHORIZED"]));
    lab.player.behave("backupbuckets", Manners::default());
    lab.world.garden.merge("", "secrets", ("garden", "backup"), &json!({"data": {"key": base64(b"right")}}));
    lab.wait_for("the right credentials", || {
        lab.world.time.advance(Duration::from_secs(5));
        lab.bucket().filter(|bucket| is(bucket, "Succeeded"))
    });
    let entry = lab.wait_for_entry(&entry_name(1), "Succeeded");
    assert!(entry["status"]["lastError"].is_null());
    // If an extension has failed for good, the agent requests the operation again. If an extension loses its object,
    // the agent creates another one.
    lab.player.asked();
    let failed = json!({"status": {"lastOperation": {"type": "Reconcile", "state": "Failed", "progress": 0,
        "description": "gave up", "lastUpdateTime": "2099-01-01T00:00:00Z"}}});
    lab.world.seed.merge_status(GROUP, "backupentries", ("", &entry_name(1)), &failed);
    lab.wait_for("another request", || {
        lab.player.asked().contains(&("backupentries", entry_name(1), "reconcile")).then_some(())
    });
    lab.world.seed.merge(
        GROUP,
        "backupentries",
        ("", &entry_name(1)),
        &json!({"metadata": {"finalizers": null}}),
    );
    let uid = lab.object("backupentries", &entry_name(1)).unwrap()["metadata"]["uid"].clone();
    lab.world.seed.delete(GROUP, "backupentries", "", &entry_name(1));
    lab.wait_for("another object", || {
        lab.object("backupentries", &entry_name(1)).filter(|object| object["metadata"]["uid"] != uid)
    });
    lab.wait_for_entry(&entry_name(1), "Succeeded");
    lab.end();
}

#[test]
fn backups_are_kept_for_their_retention_period() {
    let lab = Lab::start("patient", |config| {
        let purposes = json!(["production"]);
        config["controllers"]["backupEntry"] =
            json!({"deletionGracePeriodHours": 48, "deletionGracePeriodShootPurposes": purposes});
    });
    let purpose = |word: &str| json!({"metadata": {"annotations": {"shoot.gardener.cloud/purpose": word}}});
    let all = [("production", 1), ("testing", 2), ("production", 3)];
    for (word, n) in all {
        lab.apply_entry(&entry_name(n), &purpose(word));
        lab.wait_for_entry(&entry_name(n), "Succeeded");
    }
    for (_, n) in all {
        lab.world.garden.delete(CORE, "backupentries", PROJECT, &entry_name(n));
    }
    let gone = |n: usize| {
        lab.wait_for(&format!("the end of entry {n}"), || lab.entry(&entry_name(n)).is_none().then_some(()));
    };
    gone(2);
    let pending = lab.wait_for_entry(&entry_name(1), "Pending");
    let description = text(&pending, "/status/lastOperation/description");
    assert!(description.starts_with("Deletion of backup entry is scheduled for 2026-01-"), "{description}");
    assert!(description.ends_with(" +0000 UTC"), "{description}");
    assert!(lab.object("backupentries", &entry_name(1)).is_some());
    let force =
        json!({"metadata": {"annotations": {"backupentry.core.gardener.cloud/force-deletion": "true"}}});
    lab.world.garden.merge(CORE, "backupentries", (PROJECT, &entry_name(3)), &force);
    gone(3);
    assert!(lab.secret(&format!("entry-{}", entry_name(3))).is_none());
    lab.is_away(47 * HOUR);
    assert!(lab.entry(&entry_name(1)).is_some(), "an hour too early");
    lab.world.skip(HOUR + HOUR / 10);
    gone(1);
    let asked = lab.player.asked();
    assert_eq!(asked.iter().filter(|(.., operation)| *operation == "delete").count(), 3);
    lab.end();
}

#[test]
fn an_entry_moves_to_another_seed_and_back() {
    let lab = Lab::start("moving", |_| {});
    lab.apply_entry(&entry_name(1), &json!({}));
    lab.wait_for_entry(&entry_name(1), "Succeeded");
    lab.player.asked();
    // It moves to another seed, whose agent does not run here.
    lab.world.garden.merge(
        CORE,
        "backupentries",
        (PROJECT, &entry_name(1)),
        &json!({"spec": {"seedName": "elsewhere"}}),
    );
    let left = lab.wait_for("the entry to be let go of", || {
        lab.entry(&entry_name(1)).filter(|entry| entry["status"]["seedName"].is_null())
    });
    let last = &left["status"]["lastOperation"];
    assert_eq!((&last["type"], &last["state"]), (&json!("Migrate"), &json!("Succeeded")));
    assert_eq!(last["description"], "Migration of BackupEntry succeeded.");
    assert_eq!(finalizers(&left), ["gardener"]);
    assert!(lab.object("backupentries", &entry_name(1)).is_none());
    assert!(lab.secret(&format!("entry-{}", entry_name(1))).is_none());
    let asked: Vec<&str> = lab.player.asked().iter().map(|(.., operation)| *operation).collect();
    assert_eq!(asked, ["migrate"], "an object without a finalizer is deleted without a request");

    // It comes back with the state from the other seed. It stays unchanged until a restoration is requested.
    let state = json!({"apiVersion": "core.gardener.cloud/v1beta1", "kind": "ShootState",
        "metadata": {"namespace": PROJECT, "name": "s1"},
        "spec": {"extensions": [{"kind": "BackupEntry", "name": entry_name(1), "state": {"folder": "f"}}]}});
    lab.world.garden.apply(&[state]);
    lab.world.garden.merge(
        CORE,
        "backupentries",
        (PROJECT, &entry_name(1)),
        &json!({"spec": {"seedName": "moving"}}),
    );
    lab.world.skip(Duration::from_secs(60));
    assert!(lab.object("backupentries", &entry_name(1)).is_none());
    let restore =
        json!({"metadata": {"annotations": {OPERATION: "restore", TIMESTAMP: "2026-01-05T08:00:00Z"}}});
    lab.world.garden.merge(CORE, "backupentries", (PROJECT, &entry_name(1)), &restore);
    let restored = lab.wait_for("the entry to be restored", || {
        lab.entry(&entry_name(1))
            .filter(|entry| is(entry, "Succeeded") && entry["metadata"]["annotations"][OPERATION].is_null())
    });
    assert_eq!(restored["status"]["lastOperation"]["type"], "Restore");
    assert_eq!(restored["status"]["lastOperation"]["description"], "Restoration of BackupEntry succeeded.");
    assert_eq!(restored["status"]["seedName"], "moving");
    let object = lab.object("backupentries", &entry_name(1)).unwrap();
    assert_eq!(object["status"]["state"], json!({"folder": "f"}));
    lab.end();
}

/// An extension that begins to work removes the annotation of the request which it has read. By then there may be another one.
#[test]
fn a_lost_request_to_let_go_of_an_entry_is_repeated() {
    let lab = Lab::start("repeating", |_| {});
    let name = entry_name(1);
    lab.apply_entry(&name, &json!({}));
    lab.wait_for_entry(&name, "Succeeded");
    lab.player.behave("backupentries", Manners { is_silent: true, ..Manners::default() });
    let moved = json!({"spec": {"seedName": "elsewhere"}});
    lab.world.garden.merge(CORE, "backupentries", (PROJECT, &name), &moved);
    let asked = || {
        let object = lab.object("backupentries", &name)?;
        (object["metadata"]["annotations"][OPERATION] == "migrate").then_some(())
    };
    lab.wait_for("the request", asked);
    let lost = json!({"metadata": {"annotations": {OPERATION: null}}});
    lab.world.seed.merge(GROUP, "backupentries", ("", &name), &lost);
    lab.world.skip(Duration::from_secs(31));
    lab.wait_for("the request again", asked);
    lab.player.behave("backupentries", Manners::default());
    lab.wait_for("the entry to be let go of", || {
        lab.entry(&name).filter(|entry| entry["status"]["seedName"].is_null()).map(drop)
    });
    lab.end();
}

#[test]
fn a_seed_is_deleted_with_its_bucket() {
    let lab = Lab::start("ending", |_| {});
    let error = json!({"description": "The bucket is not empty."});
    lab.player.behave("backupbuckets", Manners { error: Some(("Error", error)), ..Manners::default() });
    lab.without_shoot();
    lab.world.garden.delete(CORE, "seeds", "", "ending");
    lab.wait_for("the error of the deletion", || {
        let bucket = lab.bucket()?;
        let last = &bucket["status"]["lastOperation"];
        (last["type"] == "Delete"
            && last["description"] == "The bucket is not empty. Operation will be retried.")
            .then_some(())
    });
    lab.world.garden.wait_for("the Seed to name it", |garden| {
        let description = text(&garden.seed("ending")?["status"]["lastOperation"], "/description").to_owned();
        (description.contains(&lab.bucket) && description.contains("its extension has to delete the bucket"))
            .then_some(())
    });
    lab.player.behave("backupbuckets", Manners::default());
    lab.world.seed.merge_status(
        GROUP,
        "backupbuckets",
        ("", &lab.bucket),
        &json!({"status": {"lastError": null}}),
    );
    lab.wait_for("the end of the Seed", || lab.world.garden.seed("ending").is_none().then_some(()));
    assert!(lab.bucket().is_none() && lab.secret(&format!("bucket-{}", lab.bucket)).is_none());
    let held = lab.world.garden.get("", "secrets", "garden", "backup").unwrap();
    assert_eq!(finalizers(&held), Vec::<&str>::new(), "the credentials have no finalizer");
    lab.end();
}

#[test]
fn a_shoot_has_an_entry_that_outlives_it() {
    let world = World::start(&Options::new("keeping"));
    let site = world.site();
    world.garden.apply(&[credentials("first")]);
    world.garden.apply(&prepare::backups("local"));
    let mut config = world.edge_config();
    config["edge"]["exposure"] = json!({"type": "NodePort", "address": "127.0.0.1"});
    config["seedConfig"]["spec"]["backup"] = section();
    config["controllers"] = json!({"backupEntry": {"deletionGracePeriodHours": 1}});
    config["leaderElection"] = json!({"leaderElect": false});
    let agent = world.agent_of(&site, &config);
    agent.launch();
    let state = |number: u32| {
        let status = json!({"state": {"number": number}});
        Manners { status, ..Manners::default() }
    };
    let player = Player::of(&["backupbuckets", "backupentries"]);
    player.behave("backupentries", state(1));
    let playing = player.start(world.seed.client());
    world.wait_until_ready();
    world.garden.apply(&[ShootObject::workerless("s1").with("/spec/purpose", json!("production")).build()]);
    wait_until_created(&world.garden, (PROJECT_NAMESPACE, "s1"));
    let shoot = world.garden.get(CORE, "shoots", PROJECT_NAMESPACE, "s1").unwrap();
    let name = format!("{}--{}", technical_id("s1"), text(&shoot, "/status/uid"));
    let entry = || world.garden.get(CORE, "backupentries", PROJECT_NAMESPACE, &name);
    let found = entry().unwrap();
    assert!(is(&found, "Succeeded"), "{}", found["status"]);
    assert_eq!(found["metadata"]["annotations"]["shoot.gardener.cloud/purpose"], "production");
    let bucket = text(&world.garden.seed("keeping").unwrap(), "/metadata/uid").to_owned();
    assert_eq!(found["spec"], json!({"bucketName": bucket, "seedName": "keeping"}));

    // The extension's state is in the ShootState soon after each change.
    let known = |number: u32| {
        world.garden.wait_for("the state in the ShootState", |garden| {
            let state = garden.get(CORE, "shootstates", PROJECT_NAMESPACE, "s1")?;
            let mut all = state["spec"]["extensions"].as_array()?.iter();
            all.find(|one| one["kind"] == "BackupEntry" && one["state"] == json!({"number": number}))
                .map(drop)
        });
    };
    known(1);
    player.behave("backupentries", state(2));
    let asks = json!({"metadata": {"annotations": {OPERATION: "reconcile"}}});
    world.seed.merge(GROUP, "backupentries", ("", &name), &asks);
    known(2);

    // The Shoot is deleted, and its backups are kept for an hour.
    let confirmed = json!({"metadata": {"annotations": {"confirmation.gardener.cloud/deletion": "true"}}});
    world.garden.merge(CORE, "shoots", (PROJECT_NAMESPACE, "s1"), &confirmed);
    world.garden.delete(CORE, "shoots", PROJECT_NAMESPACE, "s1");
    world.garden.wait_for("the end of the Shoot", |garden| {
        garden.get(CORE, "shoots", PROJECT_NAMESPACE, "s1").is_none().then_some(())
    });
    world.garden.wait_for("the entry to wait for its time", |_| entry().filter(|entry| is(entry, "Pending")));
    assert!(world.seed.get(GROUP, "backupentries", "", &name).is_some());
    agent.stop();
    world.time.advance(HOUR);
    agent.launch();
    world.garden.wait_for("the end of the entry", |_| entry().is_none().then_some(()));
    assert!(world.seed.get(GROUP, "backupentries", "", &name).is_none());
    drop(playing);
    agent.stop();
    assert_eq!(site.complaints(), Vec::<String>::new());
}
