//! Prepares the data directory of an etcd before it starts: unchanged if it contains a store that opens, otherwise from the
//! newest valid snapshot, and empty only if a reachable store has none.

use std::fs::{self, File};
use std::io;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;

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

mod member;

/// Added to the revision, so that no watcher sees a revision twice with different contents: more than an etcd
/// writes between two snapshots.
const REVISIONS_ADDED: &str = "1000000000";
/// A file that etcd itself leaves in a directory if it ends before it has a member.
const TOUCHED: &str = ".touch";
/// The infix of the name of a working directory beside the data directory.
const RESTORING: &str = ".restoring-";
/// The infix of the name of data that etcd could not start with.
const UNUSABLE: &str = ".unusable-";

/// The paths of an etcd.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct EtcdPaths {
    /// The tool that restores snapshots.
    pub(crate) etcdutl: PathBuf,
    pub(crate) config: PathBuf,
    pub(crate) data: PathBuf,
}

/// The content of the data directory after the preparation.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum PreparedData {
    Member,
    /// Empty: the store has no snapshot.
    New,
    Restored {
        snapshot: String,
        /// Its revision, to which [`REVISIONS_ADDED`] is added.
        revision: u64,
    },
}

/// Prepares the data directory. `open` opens the store only if there is no data, so that bad
/// credentials, for example, do not stop an etcd that has its data. `say` gets messages for the log.
/// Errors: etcd must not start.
pub(crate) fn prepare<'a, S: Deref<Target = dyn SnapshotStore + 'a>>(
    place: &EtcdPaths,
    open: impl FnOnce() -> Result<S, Error>,
    say: &mut dyn FnMut(&str),
) -> Result<PreparedData, Error> {
    let flags = flags(place)?;
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
    let done = restore_newest(place, &flags, &*store, &all, &work, say);
    if done.is_ok() {
        sweep(&place.data, say);
    }
    done
}

fn restore_newest(
    place: &EtcdPaths,
    flags: &[String],
    store: &dyn SnapshotStore,
    all: &[Snapshot],
    work: &Path,
    say: &mut dyn FnMut(&str),
) -> Result<PreparedData, Error> {
    let (unpacked, restored) = (work.join("snapshot"), work.join("data"));
    let mut broken = 0;
    for snapshot in all.iter().rev().filter(|snapshot| snapshot.name.kind == Kind::Full) {
        let mut file = File::create(&unpacked).map_err(Error::io(format!("write {}", unpacked.display())))?;
        match check::unpack(store, snapshot, &mut file, &unpacked.display().to_string()) {
            Ok(_) => drop(file),
            Err(error @ Error::Broken { .. }) => {
                say(&format!("{error}; continuing with the next older one"));
                broken += 1;
                continue;
            }
            Err(error) => return Err(error),
        }
        tell_of_deltas(all, snapshot, say);
        say(&format!("restoring {} from {}", snapshot.name.text, store.place()));
        restore(place, flags, &unpacked, &restored)?;
        sync_tree(&restored)?;
        put(&restored, &place.data, say)?;
        return Ok(PreparedData::Restored {
            snapshot: snapshot.name.text.clone(),
            revision: snapshot.name.revision,
        });
    }
    Err(Error::Unusable(format!(
        "no snapshot of {} can be restored ({broken} full ones are broken, {} are deltas): this etcd does not start empty; \
         restore a good one, or move them all away to begin with nothing",
        store.place(),
        all.len() - broken
    )))
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

/// The part of etcd's configuration that `etcdutl` needs.
fn flags(place: &EtcdPaths) -> Result<Vec<String>, Error> {
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
    Ok(flags)
}

/// Only etcd-backup-restore can apply delta snapshots.
fn tell_of_deltas(all: &[Snapshot], chosen: &Snapshot, say: &mut dyn FnMut(&str)) {
    let is_later = |s: &&Snapshot| {
        s.name.kind == Kind::Delta
            && s.name.revision > chosen.name.revision
            && s.name.time >= chosen.name.time
    };
    let revisions = all.iter().filter(is_later).map(|s| s.name.revision);
    if let Some(last) = revisions.max() {
        say(&format!(
            "changes up to revision {last} are in delta snapshots of etcd-backup-restore, which are not restored; {} ends with revision {}",
            chosen.name.text, chosen.name.revision
        ));
    }
}

/// Runs `etcdutl` to create a data directory.
fn restore(place: &EtcdPaths, flags: &[String], from: &Path, to: &Path) -> Result<(), Error> {
    let mut command = Command::new(&place.etcdutl);
    command.args(["snapshot", "restore"]).arg(from).arg("--data-dir").arg(to).args(flags);
    command.arg(format!("--bump-revision={REVISIONS_ADDED}")).arg("--mark-compacted").stdin(Stdio::null());
    let doing = format!("restore a snapshot with {}", place.etcdutl.display());
    let status = command.status().map_err(Error::io(doing.clone()))?;
    if status.success() {
        Ok(())
    } else {
        Err(Error::Refused { doing, why: format!("it ended with {status}") })
    }
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
        clear(&data.join(TOUCHED))?;
    }
    rename(restored, data)?;
    data.parent().map_or(Ok(()), sync)
}

#[cfg(test)]
mod tests;
