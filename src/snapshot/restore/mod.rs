//! Prepares the data directory of an etcd before it starts: unchanged if it contains a store that opens, otherwise from the
//! newest valid full snapshot and all deltas that follow it, and empty only if a reachable store has none.

use std::fs::{self, File};
use std::io;
use std::ops::Deref;
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::chain;
use super::check;
use super::directory::sync;
use super::error::Error;
use super::name::{Kind, Snapshot};
use super::store::SnapshotStore;
use crate::base::error::chain;
use crate::base::{capped, random};
use crate::format::yaml;
use crate::limits;
use member::Member;
pub(crate) use paths::EtcdPaths;
use replay::{REMEDY, Replay};

mod apply;
mod leases;
mod member;
mod paths;
mod program;
mod replay;
mod target;

/// Added to the revision, so that no watcher sees a revision twice with different contents: more than an etcd
/// writes between two snapshots.
const REVISIONS_ADDED: &str = "1000000000";
/// The infix of the name of a working directory beside the data directory.
const RESTORING: &str = ".restoring-";
/// The infix of the name of data that etcd could not start with.
const UNUSABLE: &str = ".unusable-";

/// The content of the data directory after the preparation.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum PreparedData {
    Member,
    /// Empty: the store has no snapshot.
    New,
    Restored {
        snapshot: String,
        /// The number of deltas that were applied to it.
        deltas: usize,
        /// The revision of the last of them, to which [`REVISIONS_ADDED`] is added.
        revision: u64,
    },
}

/// Which snapshots are good enough.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum SnapshotDemand {
    /// If the newest full one is broken, the next older one.
    NewestWhole,
    /// Nothing that is stored may be lost.
    OnlyNewest {
        /// The revision that they must reach: what is known to have been stored. 0 if nothing is known.
        revision: u64,
    },
}

/// Prepares the data directory. `open` opens the store only if there is no data, so that bad
/// credentials, for example, do not stop an etcd that has its data. `say` gets messages for the log.
/// Errors: etcd must not start.
pub(crate) fn prepare<'a, S: Deref<Target = dyn SnapshotStore + 'a>>(
    place: &EtcdPaths,
    accepted: SnapshotDemand,
    open: impl FnOnce() -> Result<S, Error>,
    say: &mut dyn FnMut(&str),
) -> Result<PreparedData, Error> {
    let config = configured(place)?;
    sweep(&place.data, say);
    let found = member::look(&place.data)?;
    if found == Member::Whole {
        return Ok(PreparedData::Member);
    }
    let store = open()?;
    let all = store.list()?;
    if let Member::Unusable(why) = found {
        let (data, place) = (place.data.display(), store.place());
        if all.is_empty() {
            // It may be that of a Shoot whose first start was cut off, which etcd can repair.
            say(&format!("{data}: {why}, and {place} has no snapshots: etcd starts with what is there"));
            return Ok(PreparedData::Member);
        }
        say(&format!("{data}: {why}: restoring a snapshot of {place}"));
    }
    if all.is_empty() {
        say(&format!("{} has no snapshots: etcd starts empty", store.place()));
        return Ok(PreparedData::New);
    }
    // A new name each time: a start that was killed may have left a process that still writes to its own.
    let work = beside(&place.data, &format!("{RESTORING}{}", random::hex(8)));
    fs::create_dir(&work).map_err(Error::io(format!("make {}", work.display())))?;
    let snapshots = StoredSnapshots { store: &*store, all: &all, accepted };
    let done = restore_newest(place, &config, &snapshots, &work, say);
    if done.is_ok() {
        sweep(&place.data, say);
    }
    done
}

/// What a store has, sorted by age.
struct StoredSnapshots<'a> {
    store: &'a dyn SnapshotStore,
    all: &'a [Snapshot],
    accepted: SnapshotDemand,
}

/// The newest full snapshot that is whole, and the deltas that follow it.
fn restore_newest(
    place: &EtcdPaths,
    config: &EtcdConfig,
    snapshots: &StoredSnapshots<'_>,
    work: &Path,
    say: &mut dyn FnMut(&str),
) -> Result<PreparedData, Error> {
    let StoredSnapshots { store, all, accepted } = *snapshots;
    let unpacked = work.join("snapshot");
    let mut broken = Vec::new();
    for snapshot in all.iter().rev().filter(|snapshot| snapshot.name.kind == Kind::Full) {
        let mut file = File::create(&unpacked).map_err(Error::io(format!("write {}", unpacked.display())))?;
        match check::unpack(store, snapshot, &mut file, &unpacked.display().to_string()) {
            Ok(_) => drop(file),
            Err(error @ Error::Broken { .. }) if accepted != SnapshotDemand::NewestWhole => {
                return Err(Error::Unusable(format!(
                    "{error}: etcd does not start with an older one while its Shoot is restored; bring a good copy of it to {}",
                    store.place()
                )));
            }
            Err(error @ Error::Broken { .. }) => {
                say(&format!("{error}; continuing with the next older one"));
                broken.push(snapshot);
                continue;
            }
            Err(error) => return Err(error),
        }
        let deltas = deltas_of(store, all, snapshot, &broken, say)?;
        let reached = deltas.last().unwrap_or(&snapshot).name.revision;
        if let SnapshotDemand::OnlyNewest { revision } = accepted
            && reached < revision
        {
            return Err(Error::Unusable(format!(
                "the snapshots of {} end with revision {reached}, and had reached revision {revision}: etcd does not start with older data \
                 while its Shoot is restored; bring the newer snapshots there",
                store.place()
            )));
        }
        say(&format!("restoring {} from {}", snapshot.name.text, store.place()));
        let replay = Replay { place, store, deltas: &deltas, quota: &config.quota, work };
        return finish(&replay, config, snapshot, unpacked, say);
    }
    Err(Error::Unusable(format!(
        "no snapshot of {} can be restored ({} full ones are broken, {} are deltas): this etcd does not start empty; \
         restore a good one, or move them all away to begin with nothing",
        store.place(),
        broken.len(),
        all.len() - broken.len()
    )))
}

/// Makes the data directory of an unpacked full snapshot and its deltas.
fn finish(
    replay: &Replay<'_>,
    config: &EtcdConfig,
    snapshot: &Snapshot,
    unpacked: PathBuf,
    say: &mut dyn FnMut(&str),
) -> Result<PreparedData, Error> {
    let (place, restored) = (replay.place, replay.work.join("data"));
    let mut flags = config.flags.clone();
    flags.extend([format!("--bump-revision={REVISIONS_ADDED}"), "--mark-compacted".to_owned()]);
    let (mut from, mut revision) = (unpacked, snapshot.name.revision);
    if !replay.deltas.is_empty() {
        let replayed = replay.run(&from, say)?;
        (from, revision) = (replayed.database, replayed.revision);
        // The database of an etcd has no digest. It was checked just now.
        flags.push("--skip-hash-check".to_owned());
    }
    program::restore(&place.etcdutl, &from, &restored, &flags)?;
    sync_tree(&restored)?;
    put(&restored, &place.data, say)?;
    Ok(PreparedData::Restored { snapshot: snapshot.name.text.clone(), deltas: replay.deltas.len(), revision })
}

/// The deltas that follow a full snapshot. What is left out is said. Errors: they are not one history, so that etcd would start with
/// a part of its data.
fn deltas_of<'a>(
    store: &dyn SnapshotStore,
    all: &'a [Snapshot],
    full: &Snapshot,
    broken: &[&Snapshot],
    say: &mut dyn FnMut(&str),
) -> Result<Vec<&'a Snapshot>, Error> {
    let all: Vec<&Snapshot> = all.iter().collect();
    let chain = chain::follow(&all, full, broken);
    if let Some(end) = chain.end {
        return Err(Error::Unusable(format!(
            "the delta snapshots of {} after {} cannot be restored: {end}. {REMEDY}: the first one to move is {}",
            store.place(),
            full.name.text,
            end.at().name.text
        )));
    }
    let (place, full) = (store.place(), &full.name.text);
    for delta in chain.foreign {
        let name = &delta.name.text;
        say(&format!(
            "{name} is of another history than {full}, and is not restored; move it out of {place} if nobody needs it"
        ));
    }
    if let (Some(first), Some(last)) = (chain.lost.first(), chain.lost.last()) {
        say(&format!(
            "{} to {} continue a broken snapshot, and cannot be restored after {full}: changes up to revision {} are lost",
            first.name.text, last.name.text, last.name.revision
        ));
    }
    Ok(chain.apply)
}

fn beside(data: &Path, end: &str) -> PathBuf {
    let mut name = data.file_name().unwrap_or_default().to_owned();
    name.push(end);
    data.with_file_name(name)
}

/// Removes leftovers of earlier starts. A failure does not prevent the start.
fn sweep(data: &Path, say: &mut dyn FnMut(&str)) {
    sweep_named(data, RESTORING, say);
}

fn sweep_named(data: &Path, infix: &str, say: &mut dyn FnMut(&str)) {
    let begin = beside(data, infix);
    let begin = begin.file_name().unwrap_or_default().as_encoded_bytes();
    for entry in data.parent().and_then(|volume| fs::read_dir(volume).ok()).into_iter().flatten().flatten() {
        if entry.file_name().as_encoded_bytes().starts_with(begin)
            && let Err(error) = clear(&entry.path())
        {
            say(&chain(&error));
        }
    }
}

fn clear(path: &Path) -> Result<(), Error> {
    let removed = match fs::symlink_metadata(path) {
        Ok(metadata) if metadata.is_dir() => fs::remove_dir_all(path),
        Ok(_) => fs::remove_file(path),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
    };
    removed.map_err(Error::io(format!("remove {}", path.display())))
}

/// The part of etcd's configuration that a restoration needs.
#[derive(Clone, PartialEq, Eq, Debug)]
struct EtcdConfig {
    /// For `etcdutl`.
    flags: Vec<String>,
    /// The limit of the database in bytes, if there is one.
    quota: String,
}

fn configured(place: &EtcdPaths) -> Result<EtcdConfig, Error> {
    let path = place.config.display();
    let unusable = |why: &str| Error::Unusable(format!("{path}: {why}"));
    let text = capped::read_file(&place.config, limits::ETCD_CONFIG_BYTES_MAX);
    let text = text.map_err(Error::io(format!("read {path}")))?;
    let config: Value =
        yaml::parse(&String::from_utf8_lossy(&text)).map_err(|error| unusable(&error.to_string()))?;
    let find = |key: &str| config.get(key).and_then(Value::as_str).unwrap_or_default();
    if Path::new(find("data-dir")) != place.data {
        let why = format!(
            "data-dir is {:?}, and --data-dir {:?}: they must be the same",
            find("data-dir"),
            place.data
        );
        return Err(unusable(&why));
    }
    let needed = [
        ("name", true),
        ("initial-cluster", true),
        ("initial-advertise-peer-urls", true),
        ("initial-cluster-token", false),
    ];
    let mut flags = Vec::new();
    for (key, is_needed) in needed {
        match find(key) {
            "" if is_needed => return Err(unusable(&format!("{key} is missing"))),
            "" => {}
            value => flags.push(format!("--{key}={value}")),
        }
    }
    let quota = config.get("quota-backend-bytes").and_then(Value::as_u64);
    Ok(EtcdConfig { flags, quota: quota.map(|bytes| bytes.to_string()).unwrap_or_default() })
}

/// Syncs everything below a folder to the disk: after a power cut, a file with its final name must be complete.
fn sync_tree(folder: &Path) -> Result<(), Error> {
    let doing = || format!("read {}", folder.display());
    for entry in fs::read_dir(folder).map_err(Error::io(doing()))? {
        let entry = entry.map_err(Error::io(doing()))?;
        let is_folder = entry.file_type().map_err(Error::io(doing()))?.is_dir();
        if is_folder { sync_tree(&entry.path())? } else { sync(&entry.path())? }
    }
    sync(folder)
}

/// Renames the restored directory to the data directory, atomically. What etcd could not start with is kept beside it, and
/// the one before it is removed.
fn put(restored: &Path, data: &Path, say: &mut dyn FnMut(&str)) -> Result<(), Error> {
    let rename = |from: &Path, to: &Path| {
        let doing = format!("rename {} to {}", from.display(), to.display());
        fs::rename(from, to).map_err(Error::io(doing))
    };
    if let Member::Unusable(_) = member::look(data)? {
        sweep_named(data, UNUSABLE, say);
        let aside = beside(data, &format!("{UNUSABLE}{}", random::hex(8)));
        rename(data, &aside)?;
        say(&format!(
            "what {} held is now {}; remove it if nobody needs it",
            data.display(),
            aside.display()
        ));
    } else {
        // Folders without a file.
        clear(&data.join("member"))?;
        clear(&data.join(member::TOUCHED))?;
    }
    rename(restored, data)?;
    data.parent().map_or(Ok(()), sync)
}

#[cfg(test)]
mod tests;
