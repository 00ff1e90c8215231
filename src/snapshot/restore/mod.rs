//! Prepares the data directory of an etcd before it starts: unchanged if it contains a member, otherwise from the
//! newest valid snapshot, and empty only if a reachable store has none.

use std::fs::{self, File};
use std::io::{self, Read, Write as _};
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use flate2::read::MultiGzDecoder;
use serde_json::Value;

use super::directory::sync;
use super::error::Error;
use super::name::{Kind, Packing, Snapshot};
use super::seal::Seal;
use super::store::Store;
use crate::base::error::chain;
use crate::base::{capped, random};
use crate::format::yaml;
use crate::limits;

/// Added to the revision, so that no watcher sees a revision twice with different contents: more than an etcd writes
/// between two snapshots.
const REVISIONS_ADDED: &str = "1000000000";
/// The buffer size for reading and unpacking.
const PIECE_BYTES: usize = 32 << 10;
/// A file that etcd itself leaves in a directory if it ends before it has a member.
const TOUCHED: &str = ".touch";
/// The infix of the name of a working directory beside the data directory.
const RESTORING: &str = ".restoring-";

/// The paths of an etcd.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Place {
    /// The tool that restores snapshots.
    pub etcdutl: PathBuf,
    /// etcd's configuration file.
    pub config: PathBuf,
    /// The data directory.
    pub data: PathBuf,
}

/// The content of the data directory after the preparation.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Ready {
    /// The existing data.
    Member,
    /// Empty: the store has no snapshot.
    New,
    /// A snapshot.
    Restored {
        /// Its name.
        snapshot: String,
        /// Its revision, to which [`REVISIONS_ADDED`] is added.
        revision: u64,
    },
}

/// Prepares the data directory. `open` opens the store only if there is no data, so that bad credentials, for example,
/// do not stop an etcd that has its data. `say` gets messages for the log.
///
/// # Errors
/// etcd must not start.
pub fn prepare<'a, S: Deref<Target = dyn Store + 'a>>(
    place: &Place,
    open: impl FnOnce() -> Result<S, Error>,
    say: &mut dyn FnMut(&str),
) -> Result<Ready, Error> {
    let flags = flags(place)?;
    sweep(&place.data, say);
    if has_member(&place.data)? {
        return Ok(Ready::Member);
    }
    let store = open()?;
    let all = store.list()?;
    if all.is_empty() {
        say(&format!("{} has no snapshots: etcd starts empty", store.place()));
        return Ok(Ready::New);
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
    place: &Place,
    flags: &[String],
    store: &dyn Store,
    all: &[Snapshot],
    work: &Path,
    say: &mut dyn FnMut(&str),
) -> Result<Ready, Error> {
    let (unpacked, restored) = (work.join("snapshot"), work.join("data"));
    let mut broken = 0;
    for snapshot in all.iter().rev().filter(|snapshot| snapshot.name.kind == Kind::Full) {
        match unpack(store, snapshot, &unpacked) {
            Ok(()) => {}
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
        put(&restored, &place.data)?;
        return Ok(Ready::Restored {
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
    let begin = beside(data, RESTORING);
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

/// Whether etcd has data. A directory with other content is refused, because it may be valuable.
fn has_member(data: &Path) -> Result<bool, Error> {
    let doing = || format!("read the data directory {}", data.display());
    let entries = match fs::read_dir(data) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        other => other.map_err(Error::io(doing()))?,
    };
    let mut strange = None;
    for entry in entries {
        let name = entry.map_err(Error::io(doing()))?.file_name();
        if name == "member" {
            return Ok(true);
        }
        strange = strange.or(Some(name).filter(|name| name != TOUCHED));
    }
    match strange {
        None => Ok(false),
        Some(name) => Err(Error::Unusable(format!(
            "{} holds {:?}, and no member: it is not the data of an etcd; move it away to let a snapshot be restored",
            data.display(),
            name
        ))),
    }
}

/// The part of etcd's configuration that `etcdutl` needs.
fn flags(place: &Place) -> Result<Vec<String>, Error> {
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

/// A reader that remembers whether it failed: in that case the store failed, and the snapshot is not broken.
struct Watched<'a> {
    from: Box<dyn Read + 'a>,
    failure: Option<io::Error>,
}

impl Read for Watched<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self.from.read(buffer) {
            Err(error) if error.kind() != io::ErrorKind::Interrupted => {
                self.failure = Some(error);
                Err(io::ErrorKind::Other.into())
            }
            other => other,
        }
    }
}

/// Unpacks the database to a file and checks it.
fn unpack(store: &dyn Store, snapshot: &Snapshot, to: &Path) -> Result<(), Error> {
    let broken = |why: String| Error::Broken { name: snapshot.name.text.clone(), why };
    let mut from = Watched { from: store.open(snapshot)?, failure: None };
    let copied = match snapshot.name.packing {
        Packing::Plain => copy(&mut from, to),
        Packing::Gzip => copy(&mut MultiGzDecoder::new(&mut from), to),
        Packing::Other => {
            return Err(broken("it is packed in a way that only etcd-backup-restore knows".to_owned()));
        }
    };
    match (copied, from.failure) {
        (_, Some(failure)) => Err(match failure.downcast::<Error>() {
            Ok(ours) => ours,
            Err(source) => {
                Error::Io { doing: format!("read {} of {}", snapshot.name.text, store.place()), source }
            }
        }),
        (Err(Copying::Write(error)), None) => Err(Error::io(format!("write {}", to.display()))(error)),
        (Err(Copying::Read(error)), None) => Err(broken(error.to_string())),
        (Ok(seal), None) => seal.check().map(drop).map_err(|why| broken(why.to_string())),
    }
}

enum Copying {
    Read(io::Error),
    Write(io::Error),
}

fn copy(from: &mut dyn Read, to: &Path) -> Result<Seal, Copying> {
    let mut file = File::create(to).map_err(Copying::Write)?;
    let (mut seal, mut piece, mut bytes) = (Seal::default(), vec![0; PIECE_BYTES], 0);
    loop {
        let count = match from.read(&mut piece) {
            Ok(0) => return Ok(seal),
            Ok(count) => count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(Copying::Read(error)),
        };
        bytes += u64::try_from(count).unwrap_or(u64::MAX);
        if bytes > limits::ETCD_DATABASE_BYTES_MAX {
            return Err(Copying::Read(io::Error::other("it is larger than any database of an etcd")));
        }
        let read = piece.get(..count).unwrap_or_default();
        seal.update(read);
        file.write_all(read).map_err(Copying::Write)?;
    }
}

/// Runs `etcdutl` to create a data directory.
fn restore(place: &Place, flags: &[String], from: &Path, to: &Path) -> Result<(), Error> {
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

/// Renames the restored directory to the data directory, atomically.
fn put(restored: &Path, data: &Path) -> Result<(), Error> {
    clear(&data.join(TOUCHED))?;
    fs::rename(restored, data).map_err(Error::io(format!(
        "rename {} to {}",
        restored.display(),
        data.display()
    )))?;
    data.parent().map_or(Ok(()), sync)
}

#[cfg(test)]
mod tests;
