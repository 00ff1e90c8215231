//! Full snapshots and the delta snapshots after them, as etcd-backup-restore writes these, restored by `gardenlet etcd start` with a
//! real etcd. The story knows each change that it makes, so it writes the deltas itself.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{Read as _, Write as _};
use std::process::Command;
use std::time::Duration;

use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use gardenlet::base::random;
use gardenlet::format::base64;
use ring::digest::{SHA256, digest};
use serde_json::{Value, json};

use super::snapshots::{ADDED, PATIENCE_S, PORT, Site, call, has, key, lease, number, revision};
use crate::etcd::Etcd;
use crate::failure::{Doing, Failure, Result, ensure, equal};
use crate::lab::Lab;
use crate::process::run;
use crate::wait;

/// How many keys there are.
pub(super) const KEYS: u64 = 200;
/// The time of a lease: it ends when the story says so.
const LEASE_S: u64 = 600;

/// Each key with its value, its revisions and its version.
pub(super) type Contents = BTreeMap<String, Value>;

pub(super) fn contents() -> Result<Contents> {
    let answer = call("range", &json!({"key": "AA==", "range_end": "AA=="}))?;
    let pairs = answer["kvs"].as_array().into_iter().flatten();
    let part = |pair: &Value| {
        let numbers = ["create_revision", "mod_revision", "version"].map(|field| number(&pair[field]));
        (pair["key"].as_str().unwrap_or_default().to_owned(), json!([pair["value"], numbers]))
    };
    Ok(pairs.map(part).collect())
}

/// The event of a key that exists.
fn written(name: &str) -> Result<Value> {
    let answer = call("range", &json!({"key": key(name)}))?;
    let mut pair = json!({"key": key(name)});
    for field in ["create_revision", "mod_revision", "version", "lease"] {
        if number(&answer["kvs"][0][field]) > 0 {
            pair[field] = json!(number(&answer["kvs"][0][field]));
        }
    }
    if let Some(value) = answer["kvs"][0]["value"].as_str() {
        pair["value"] = json!(value);
    }
    Ok(json!({"etcdEvent": {"kv": pair}, "time": "2026-11-29T05:00:00.123456789Z"}))
}

pub(super) fn deleted(name: &str, revision: u64) -> Value {
    json!({"etcdEvent": {"type": 1, "kv": {"key": key(name), "mod_revision": revision}}, "time": "2026-11-29T05:00:00Z"})
}

/// Writes a key, attached to a lease if it is not 0.
pub(super) fn put(name: &str, value: &[u8], lease: u64) -> Result<Value> {
    call("put", &json!({"key": key(name), "value": base64::encode(value), "lease": lease.to_string()}))?;
    written(name)
}

fn delete(name: &str) -> Result<Value> {
    let answer = call("deleterange", &json!({"key": key(name)}))?;
    Ok(deleted(name, number(&answer["header"]["revision"])))
}

/// Two writes and a deletion in one revision.
fn transact(names: [&str; 3]) -> Result<Vec<Value>> {
    let put = |name: &str| json!({"requestPut": {"key": key(name), "value": base64::encode(b"together")}});
    let [one, two, gone] = names;
    let steps = [put(one), put(two), json!({"requestDeleteRange": {"key": key(gone)}})];
    let revision = number(&call("txn", &json!({"success": steps}))?["header"]["revision"]);
    Ok(vec![written(one)?, written(two)?, deleted(gone, revision)])
}

pub(super) fn name_of(n: u64) -> String {
    format!("/registry/{n:04}")
}

/// Changes of all kinds, with their events. Every third key is gone afterwards.
pub(super) fn change() -> Result<Vec<Value>> {
    let mut events = Vec::new();
    for n in 0..KEYS {
        events.push(put(&name_of(n), &random::vec(200), 0)?);
        if n % 3 == 0 {
            events.push(delete(&name_of(n))?);
        }
    }
    events.push(put(&name_of(1), b"", 0)?);
    events.push(put(&name_of(0), b"again", 0)?);
    events.extend(transact([&name_of(1), &name_of(3), &name_of(0)])?);
    events.push(delete(&name_of(3))?);
    Ok(events)
}

/// A delta snapshot with its digest, compressed.
pub(super) fn packed(events: &[Value]) -> Result<Vec<u8>> {
    let mut text = Value::from(events).to_string().into_bytes();
    text.extend_from_slice(digest(&SHA256, &text.clone()).as_ref());
    let mut packed = GzEncoder::new(Vec::new(), Compression::fast());
    packed.write_all(&text)?;
    Ok(packed.finish()?)
}

/// The events in a delta snapshot.
pub(super) fn events(site: &Site, name: &str) -> Result<Vec<Value>> {
    let mut text = Vec::new();
    GzDecoder::new(fs::File::open(site.file(name))?).read_to_end(&mut text)?;
    text.truncate(text.len().saturating_sub(SHA256.output_len()));
    serde_json::from_slice(&text).doing(|| format!("read the events of {name}"))
}

/// A delta snapshot in the store. The time in its name is `time` seconds after 2100.
pub(super) fn keep(site: &Site, events: &[Value], first: u64, last: u64, time: u64) -> Result<String> {
    let name = format!("Incr-{first:08}-{last:08}-{}.gz", 4_102_444_800 + time);
    fs::write(site.file(&name), packed(events)?)?;
    Ok(name)
}

/// The log of a start that is refused.
fn refusal(site: &mut Site) -> Result<String> {
    let mut refused = site.begin()?;
    let end = || Ok::<_, Failure>(refused.ended());
    let status = wait::until("the end of a start that is refused", PATIENCE_S, end)?;
    equal("its exit code", &status.code(), &Some(1))?;
    ensure(!site.data().exists(), || "there is a data directory".to_owned())?;
    Ok(refused.log_text())
}

fn ensure_said(log: &str, part: &str) -> Result<()> {
    ensure(log.contains(part), || format!("the log says {part:?}:\n{log}"))
}

/// An etcd with a full snapshot, whose name says less than it contains, and two deltas. Its contents, and the names of the deltas.
fn set(site: &mut Site) -> Result<(Contents, [String; 2])> {
    let mut etcd = site.start()?;
    for n in 0..KEYS {
        put(&name_of(n), b"before", 0)?;
    }
    let short = lease(LEASE_S)?;
    put("leased", b"short", short)?;
    let contained = put(&name_of(2), b"overlap", 0)?;
    let taken = site.snapshot()?;
    let full = number(&taken["revision"]);
    let one = change()?;
    let middle = revision()?;
    let mut two = change()?;
    // The key ends with its lease.
    Etcd(PORT).ask("lease/revoke", &json!({"ID": short}))?;
    let last = revision()?;
    two.push(deleted("leased", last));
    let (all, overlapping) = (contents()?, [vec![contained], one].concat());
    etcd.kill();
    let names = [keep(site, &overlapping, full, middle, 1)?, keep(site, &two, middle + 1, last, 2)?];
    site.wipe()?;
    Ok((all, names))
}

/// All changes are restored, with their revisions and versions. A set with a gap or a damaged delta is refused until an operator moves
/// it away.
pub(crate) fn restored(lab: &mut Lab) -> Result<()> {
    let mut site = Site::new(lab)?;
    let (all, [one, two]) = set(&mut site)?;
    let last = all.values().map(|entry| number(&entry[1][1])).max().unwrap_or_default();
    let mut etcd = site.start()?;
    equal("the contents", &contents()?, &all)?;
    ensure(revision()? > last + ADDED, || "its revisions are new".to_owned())?;
    ensure_said(&etcd.log_text(), " with 2 deltas (revision ")?;
    etcd.kill();
    site.wipe()?;

    let (good, path) = (fs::read(site.file(&two))?, site.file(&two));
    let mut bad = good.clone();
    let middle = bad.len() / 2;
    bad[middle] ^= 1;
    fs::write(&path, bad)?;
    let log = refusal(&mut site)?;
    ensure_said(&log, &format!("delta snapshot {two} of "))?;
    ensure_said(&log, " cannot be restored: it is broken: ")?;
    fs::write(&path, &good)?;
    fs::rename(site.file(&one), site.place.join(&one))?;
    ensure_said(
        &refusal(&mut site)?,
        " are missing before it. This etcd does not start with a part of its data: ",
    )?;
    // What the message says.
    fs::remove_file(path)?;
    etcd = site.start()?;
    equal("a key of the full snapshot", &has("leased")?, &true)?;
    etcd.kill();
    site.wipe()?;
    fs::rename(site.place.join(&one), site.file(&one))?;
    // A delta that deletes what is not there.
    let foreign = revision_of(&one)? + 1;
    keep(&site, &[deleted("never", foreign)], foreign, foreign, 3)?;
    ensure_said(&refusal(&mut site)?, "changes keys that have another version: it is of another history")
}

/// The last revision in a name.
pub(super) fn revision_of(name: &str) -> Result<u64> {
    let last = name.split('-').nth(2).unwrap_or_default();
    last.parse().doing(|| format!("read {name}"))
}

/// After a kill at any point, the next start restores everything. Outside of a container, the kill leaves an etcd, which disturbs nobody.
pub(crate) fn killed(lab: &mut Lab) -> Result<()> {
    let mut site = Site::new(lab)?;
    let (all, _) = set(&mut site)?;
    let mut left = BTreeSet::new();
    for tries in 0..10 {
        let mut start = site.begin()?;
        // This does not wait for a condition: any moment is good.
        wait::pause(Duration::from_millis(100 * tries));
        start.kill();
        left.extend(replays(&site)?);
        if site.data().exists() {
            site.wipe()?;
        }
    }
    let mut etcd = site.start()?;
    let found = contents();
    let more: Vec<u32> = replays(&site)?.difference(&left).copied().collect();
    for process in &left {
        run(Command::new("sh").args(["-c", &format!("kill -KILL {process} || true")]))?;
    }
    equal("the contents", &found?, &all)?;
    equal("the etcds that a whole restoration leaves", &more, &Vec::new())?;
    etcd.kill();
    Ok(())
}

/// The etcds that apply deltas.
fn replays(site: &Site) -> Result<BTreeSet<u32>> {
    let begin = format!("{}.restoring-", site.data().display());
    let mut found = BTreeSet::new();
    for entry in fs::read_dir("/proc")? {
        let entry = entry?;
        let line = fs::read(entry.path().join("cmdline")).unwrap_or_default();
        if String::from_utf8_lossy(&line).contains(&begin) {
            found.extend(entry.file_name().to_string_lossy().parse::<u32>().ok());
        }
    }
    Ok(found)
}
