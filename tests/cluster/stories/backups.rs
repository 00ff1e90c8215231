//! Backups on real servers: the bucket of a Seed and a few entries in it, from their creation to their deletion. The
//! story plays the extension.

use gardenlet::api::core::{NAMESPACE, SECRET};
use gardenlet::api::extensions;
use gardenlet::api::gardener::{BACKUP_BUCKET, BACKUP_ENTRY, OPERATION, SEED};
use gardenlet::api::meta::Key;
use gardenlet::format::base64;
use gardenlet::kube::{Client, DeleteParams, ListParams, Patch};
use serde_json::{Value, json};

use crate::agent::Agent;
use crate::failure::{Failure, Result, ensure, equal};
use crate::lab::Lab;
use crate::stories::steps::{ready, while_running};
use crate::wait;
use crate::world::{self, World};
use support::garden::prepare;
use support::player::{Manners, Player};

const PROJECT: &str = "garden-p";
const ENTRIES: usize = 20;
const WITHIN_S: u64 = 60;

/// `spec.backup` of a Seed, and its objects in the garden.
pub(crate) fn section(lab: &Lab) -> Result<Value> {
    lab.garden.apply(&credentials("first"))?;
    Ok(json!({"provider": "local", "region": "north",
        "credentialsRef": {"apiVersion": "v1", "kind": "Secret", "namespace": "garden", "name": "backup"}}))
}

fn credentials(key: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"namespace": "garden", "name": "backup"},
        "stringData": {"key": key}})
}

fn entry_name(n: usize) -> String {
    format!("shoot--p--s{n}--0000-{n}")
}

/// The names and clients of the story.
struct Place {
    garden: Client,
    seed: Client,
    bucket: String,
}

impl Place {
    fn bucket(&self) -> Result<Value> {
        Ok(self.garden.get::<Value>(&BACKUP_BUCKET, &Key::cluster(&self.bucket))?)
    }

    fn entries(&self) -> Result<Vec<Value>> {
        Ok(self.garden.list::<Value>(&BACKUP_ENTRY, PROJECT, &ListParams::default())?.items)
    }

    fn ask_bucket(&self) -> Result<()> {
        let patch = json!({"metadata": {"annotations": {OPERATION: "reconcile"}}});
        self.garden.patch::<Value>(&BACKUP_BUCKET, &Key::cluster(&self.bucket), &Patch::Merge(patch))?;
        Ok(())
    }

    fn wait_for_bucket(&self, agent: &mut Agent, state: &str) -> Result<Value> {
        while_running(&format!("the bucket to be {state}"), WITHIN_S, agent, || {
            let bucket = self.bucket()?;
            if is(&bucket, state) {
                Ok(Some(bucket))
            } else {
                Err(Failure::new(bucket["status"].to_string()))
            }
        })
    }

    fn wait_for_entries(&self, agent: &mut Agent, state: &str) -> Result<Vec<Value>> {
        while_running(&format!("{ENTRIES} entries to be {state}"), WITHIN_S, agent, || {
            let entries = self.entries()?;
            let others = entries.iter().find(|entry| !is(entry, state));
            match others {
                Some(other) => Err(Failure::new(other["status"].to_string())),
                None => Ok((entries.len() == ENTRIES).then_some(entries)),
            }
        })
    }
}

/// Whether the last operation has this state, for the current generation.
fn is(object: &Value, state: &str) -> bool {
    object["status"]["lastOperation"]["state"] == state
        && object["status"]["observedGeneration"] == object["metadata"]["generation"]
}

/// A bucket and twenty entries are created. The extension fails and recovers, the credentials are replaced, and the
/// agent is killed while it requests the reconciliation of all entries. Entries are deleted, and the bucket is deleted
/// with the Seed.
pub(crate) fn live_and_die(lab: &mut Lab) -> Result<()> {
    let _world = World::build(lab)?;
    let mut options = world::agent(lab, "agent")?;
    lab.garden.apply(&prepare::promised_backups())?;
    options.config["seedConfig"]["spec"]["backup"] = section(lab)?;
    let mut agent = Agent::start(lab, options)?;
    let player = Player::of(&["backupbuckets", "backupentries"]);
    let _playing = player.start(lab.seed.client()?);
    ready(lab, &mut agent)?;
    let garden = lab.garden.client()?;
    let uid = garden.get::<Value>(&SEED, &Key::cluster(world::SEED))?["metadata"]["uid"].clone();
    let bucket = uid.as_str().unwrap_or_default().to_owned();
    let place = Place { garden, seed: lab.seed.client()?, bucket };
    while_running("the bucket", WITHIN_S, &mut agent, || {
        Ok(place.garden.find::<Value>(&BACKUP_BUCKET, &Key::cluster(&place.bucket))?.map(drop))
    })?;
    place.wait_for_bucket(&mut agent, "Succeeded")?;
    begins_as_its_seed_says(&place)?;
    make_entries(lab, &place)?;
    place.wait_for_entries(&mut agent, "Succeeded")?;

    fails_and_recovers(&place, &player, &mut agent)?;
    lab.garden.apply(&credentials("second"))?;
    place.ask_bucket()?;
    place.wait_for_bucket(&mut agent, "Succeeded")?;
    has_credentials(&place, &format!("bucket-{}", place.bucket), "second")?;

    // The extension receives the requests for all entries when the agent has ended.
    player.asked();
    for entry in place.entries()? {
        let name = entry["metadata"]["name"].as_str().unwrap_or_default();
        let patch = json!({"metadata": {"annotations": {OPERATION: "reconcile"}}});
        place.garden.patch::<Value>(&BACKUP_ENTRY, &Key::new(PROJECT, name), &Patch::Merge(patch))?;
    }
    while_running("a request for the first entry", WITHIN_S, &mut agent, || {
        Ok((!player.asked().is_empty()).then_some(()))
    })?;
    agent.kill();
    agent.restart()?;
    place.wait_for_entries(&mut agent, "Succeeded")?;
    for n in 1..=ENTRIES {
        has_credentials(&place, &format!("entry-{}", entry_name(n)), "second")?;
    }

    for n in 1..=ENTRIES {
        place.garden.delete(&BACKUP_ENTRY, &Key::new(PROJECT, entry_name(n)), &DeleteParams::default())?;
    }
    while_running("the end of the entries", WITHIN_S, &mut agent, || {
        Ok(place.entries()?.is_empty().then_some(()))
    })?;
    ends_with_its_seed(&place, &mut agent)
}

fn begins_as_its_seed_says(place: &Place) -> Result<()> {
    let object = place.seed.get::<Value>(&extensions::BACKUP_BUCKET, &Key::cluster(&place.bucket))?;
    let secret = format!("bucket-{}", place.bucket);
    let spec =
        json!({"type": "local", "region": "north", "secretRef": {"name": secret, "namespace": "garden"}});
    equal("the spec of the extension's object", &object["spec"], &spec)?;
    has_credentials(place, &secret, "first")?;
    let held = place.garden.get::<Value>(&SECRET, &Key::new("garden", "backup"))?;
    equal(
        "the finalizers of the credentials",
        &held["metadata"]["finalizers"],
        &json!(["core.gardener.cloud/backupbucket"]),
    )?;
    let bucket = place.bucket()?;
    equal("the type of the operation", &bucket["status"]["lastOperation"]["type"], &json!("Create"))?;
    equal("the finalizers of the bucket", &bucket["metadata"]["finalizers"], &json!(["gardener"]))
}

fn has_credentials(place: &Place, secret: &str, key: &str) -> Result<()> {
    let copy = place.seed.get::<Value>(&SECRET, &Key::new("garden", secret))?;
    equal(secret, &copy["data"]["key"], &json!(base64::encode(key.as_bytes())))
}

/// All at once.
fn make_entries(lab: &Lab, place: &Place) -> Result<()> {
    lab.garden.apply(&json!({"apiVersion": "v1", "kind": "List", "items": prepare::for_shoots()}))?;
    wait::until("the namespace of the project", 30, || {
        place.garden.find::<Value>(&NAMESPACE, &Key::cluster(PROJECT))
    })?;
    let entry = |n: usize| {
        json!({"apiVersion": BACKUP_ENTRY.api_version(), "kind": BACKUP_ENTRY.kind,
            "metadata": {"namespace": PROJECT, "name": entry_name(n)},
            "spec": {"bucketName": place.bucket, "seedName": world::SEED}})
    };
    let items: Vec<Value> = (1..=ENTRIES).map(entry).collect();
    lab.garden.apply(&json!({"apiVersion": "v1", "kind": "List", "items": items}))
}

/// The status contains an error of the extension with its code, until the extension succeeds.
fn fails_and_recovers(place: &Place, player: &Player, agent: &mut Agent) -> Result<()> {
    let error = json!({"description": "access denied", "codes": ["ERR_INFRA_UNAUTHORIZED"]});
    player.behave("backupbuckets", Manners { error: Some(("Error", error)), ..Manners::default() });
    let ask = json!({"metadata": {"annotations": {OPERATION: "reconcile"}}});
    let patch = Patch::Merge(ask);
    place.seed.patch::<Value>(&extensions::BACKUP_BUCKET, &Key::cluster(&place.bucket), &patch)?;
    let bucket = place.wait_for_bucket(agent, "Error")?;
    let told = &bucket["status"]["lastError"];
    equal("its code", &told["codes"], &json!(["ERR_INFRA_UNAUTHORIZED"]))?;
    let words = told["description"].as_str().unwrap_or_default();
    ensure(words.contains("access denied"), || told.to_string())?;
    player.behave("backupbuckets", Manners::default());
    place.seed.patch::<Value>(&extensions::BACKUP_BUCKET, &Key::cluster(&place.bucket), &patch)?;
    let bucket = place.wait_for_bucket(agent, "Succeeded")?;
    equal("the last error", &bucket["status"]["lastError"], &Value::Null)
}

fn ends_with_its_seed(place: &Place, agent: &mut Agent) -> Result<()> {
    place.garden.delete(&SEED, &Key::cluster(world::SEED), &DeleteParams::default())?;
    while_running("the end of the bucket", WITHIN_S, agent, || {
        Ok(place.garden.find::<Value>(&BACKUP_BUCKET, &Key::cluster(&place.bucket))?.is_none().then_some(()))
    })?;
    let held = place.garden.get::<Value>(&SECRET, &Key::new("garden", "backup"))?;
    equal("the finalizers of the credentials", &held["metadata"]["finalizers"], &Value::Null)?;
    let object = place.seed.find::<Value>(&extensions::BACKUP_BUCKET, &Key::cluster(&place.bucket))?;
    ensure(object.is_none(), || "the object of the extension still exists".to_owned())?;
    let secret =
        place.seed.find::<Value>(&SECRET, &Key::new("garden", format!("bucket-{}", place.bucket)))?;
    ensure(secret.is_none(), || "the credentials still exist in the seed".to_owned())?;
    agent.ensure_running()
}
