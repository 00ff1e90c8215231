//! Plays the extension of BackupEntries whose buckets are those of a test: it writes the Secret with which an etcd finds its
//! bucket, and deletes snapshots with their entry.

use gardenlet::api::core::{NAMESPACE, SECRET};
use gardenlet::api::meta::Key;
use gardenlet::kube::{Client, DeleteParams, Error, Patch};
use serde_json::{Value, json};

use super::encoding::base64;
use super::json::text;
use super::player::{Deed, Manners};
use super::shoot::buckets::Buckets;
use super::shoot::jobs;

/// The credentials of a bucket that speaks S3, as the Secret of a Seed has them.
pub fn credentials() -> Value {
    let value = |text: &str| json!(base64(text.as_bytes()));
    json!({"accessKeyID": value("id"), "secretAccessKey": value("key"), "region": value("north"),
        "endpoint": value("https://s3.example.org")})
}

/// What an extension of a seed does with BackupEntries whose buckets are those of a test.
pub fn manners(seed: Client, buckets: &Buckets) -> Manners {
    let buckets = buckets.clone();
    manners_with(seed, move |bucket, name| buckets.remove(bucket, &format!("{name}/")))
}

/// The same for other buckets. `remove` gets the name of a bucket and that of an entry, and deletes its backups. A migration changes
/// nothing outside of the object.
pub fn manners_with(seed: Client, remove: impl Fn(&str, &str) + Send + Sync + 'static) -> Manners {
    let write = move |entry: &Value, operation: &str| match operation {
        "reconcile" | "restore" => describe(&seed, entry),
        "delete" => {
            let (_, name) = secret_of(text(entry, "/metadata/name"));
            remove(text(entry, "/spec/bucketName"), name);
            withdraw(&seed, entry)
        }
        _ => true,
    };
    Manners { deed: Some(Deed::new(write)), ..Manners::default() }
}

/// The name of the Secret, and that of the entry without its prefix.
fn secret_of(entry: &str) -> (&'static str, &str) {
    match entry.strip_prefix("source-") {
        Some(name) => (jobs::SOURCE_SECRET, name),
        None => (jobs::SECRET, entry),
    }
}

/// The Secret of an entry in the namespace of its Shoot.
fn place(entry: &Value) -> Option<Key> {
    let (secret, name) = secret_of(text(entry, "/metadata/name"));
    let (namespace, _) = name.rsplit_once("--")?;
    Some(Key::new(namespace, secret))
}

/// Writes the Secret, if the namespace is there and stays. False: try again.
fn describe(seed: &Client, entry: &Value) -> bool {
    let Some(key) = place(entry) else { return true };
    let Ok(namespace) = seed.find::<Value>(&NAMESPACE, &Key::cluster(&key.namespace)) else { return false };
    if namespace.is_none_or(|namespace| namespace["metadata"]["deletionTimestamp"].is_string()) {
        return true;
    }
    let of = |field: &str| text(entry, &format!("/spec/secretRef/{field}"));
    let found = seed.find::<Value>(&SECRET, &Key::new(of("namespace"), of("name")));
    let Ok(Some(credentials)) = found else { return false };
    let mut data = credentials["data"].clone();
    data["bucketName"] = json!(base64(text(entry, "/spec/bucketName").as_bytes()));
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": key.name}, "type": "Opaque", "data": data});
    match seed.create::<Value>(&SECRET, &key.namespace, &secret) {
        Err(Error::Api(failure)) if failure.code == 409 => {
            let patch = Patch::Merge(json!({"data": secret["data"]}));
            seed.patch_blindly(&SECRET, &key, &patch).is_ok()
        }
        made => made.is_ok(),
    }
}

fn withdraw(seed: &Client, entry: &Value) -> bool {
    let Some(key) = place(entry) else { return true };
    match seed.delete(&SECRET, &key, &DeleteParams::default()) {
        Err(Error::Api(failure)) => failure.code == 404,
        gone => gone.is_ok(),
    }
}

#[test]
fn an_entry_says_where_its_secret_is() {
    let at = |name: &str| place(&json!({"metadata": {"name": name}})).map(|key| key.to_string());
    assert_eq!(at("shoot--p--s1--uid-1").as_deref(), Some("shoot--p--s1/etcd-backup"));
    assert_eq!(at("source-shoot--p--s1--uid-1").as_deref(), Some("shoot--p--s1/source-etcd-backup"));
    assert_eq!(at("other"), None);
}
