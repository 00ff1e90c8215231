//! Manifests and charts by their digests, in the directory `charts` of the state directory.
//!
//! A file is named by the digest of its content, so there is no index that could be torn. A file with another digest is
//! removed and fetched again; a valid file is never rewritten. Beyond the size limit, eviction starts with files that
//! were not used since the start, the oldest first, and continues with the least recently used ones.
//!
//! An interrupted download stays beside the file as `<digest>.part`, and the next one continues it. Without a state
//! directory, or when its disk fails, a small cache is kept in memory.

use std::fmt;
use std::fs::{self, File};
use std::io::{self, Read, Seek as _, Write as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::digest::{Digest, Hasher};
use super::error::Error;
use super::file;
use crate::base::capped;
use crate::base::clock::Clock;
use crate::base::error::chain;
use crate::base::lock::IgnorePoison;
use crate::base::sorted::{SortedMap, SortedSet};
use crate::base::stop::Stop;
use crate::chart::child::Archive;
use crate::limits;

/// The directory in the state directory.
const FOLDER: &str = "charts";
const PART: &str = "part";
/// The least disk space of a file.
const BLOCK_BYTES: u64 = 4 << 10;
/// How often to check whether another thread has finished the same download.
const LOOK: Duration = Duration::from_millis(50);

/// Content whose digest was verified.
#[derive(Debug)]
pub enum VerifiedContent {
    /// A file on disk, from its start.
    File(File),
    /// In memory.
    Bytes(Arc<[u8]>),
}

impl<'a> From<&'a VerifiedContent> for Archive<'a> {
    fn from(content: &'a VerifiedContent) -> Self {
        match content {
            VerifiedContent::Bytes(bytes) => Self::Bytes(bytes),
            VerifiedContent::File(file) => Self::File(file),
        }
    }
}

impl VerifiedContent {
    /// Reads the whole content. Errors: [`Error::Disk`], and [`Error::Large`] beyond `bytes_max`.
    pub fn read_all(self, bytes_max: usize) -> Result<Vec<u8>, Error> {
        let read = match self {
            Self::File(mut file) => capped::read(&mut file, bytes_max),
            Self::Bytes(content) => capped::read(&mut &*content, bytes_max),
        };
        let large =
            || Error::Large { what: "chart", bytes_max: u64::try_from(bytes_max).unwrap_or(u64::MAX) };
        read.map_err(Error::disk("read the chart cache"))?.ok_or_else(large)
    }
}

/// See the module. Cheap to clone.
#[derive(Clone)]
pub struct Cache(Arc<SharedCache>);

struct SharedCache {
    folder: Option<PathBuf>,
    bytes_max: u64,
    /// The permissions of the files.
    mode: u32,
    /// The disk failed: memory only, until the next start.
    failed: AtomicBool,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// When each digest was last used, as a counter.
    used: SortedMap<Digest, u64>,
    step: u64,
    /// Digests that are being fetched.
    busy: SortedSet<Digest>,
    memory: SortedMap<Digest, Arc<[u8]>>,
}

impl State {
    fn touch(&mut self, digest: Digest) {
        self.step += 1;
        self.used.insert(digest, self.step);
    }
}

impl fmt::Debug for Cache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Cache").field(&self.0.folder).finish()
    }
}

impl Cache {
    /// A cache in this state directory, if there is one, with at most `bytes_max`.
    pub fn new(state_directory: Option<&Path>, bytes_max: u64) -> Self {
        Self::of(state_directory.map(|path| path.join(FOLDER)), bytes_max, 0o600)
    }

    /// The blobs of an OCI layout, which have the same names: readable for everyone and unlimited.
    pub(super) fn of_blobs(folder: PathBuf) -> Self {
        Self::of(Some(folder), u64::MAX, 0o644)
    }

    fn of(folder: Option<PathBuf>, bytes_max: u64, mode: u32) -> Self {
        let state = Mutex::default();
        Self(Arc::new(SharedCache { folder, bytes_max, mode, failed: AtomicBool::new(false), state }))
    }

    /// The number of files and their total size.
    pub(crate) fn usage(&self) -> (usize, u64) {
        let sizes = |directory: fs::ReadDir| -> Vec<u64> {
            directory.filter_map(|entry| Some(entry.ok()?.metadata().ok()?.len())).collect()
        };
        let sizes = match self.folder() {
            Some(folder) => fs::read_dir(folder).map(sizes).unwrap_or_default(),
            None => self.lock().memory.values().filter_map(|content| content.len().try_into().ok()).collect(),
        };
        (sizes.len(), sizes.iter().sum())
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.0.state.lock().ignore_poison()
    }

    fn folder(&self) -> Option<&Path> {
        self.0.folder.as_deref().filter(|_| !self.0.failed.load(Ordering::Relaxed))
    }

    /// The content with this digest, verified now.
    pub(super) fn find(&self, digest: Digest) -> Option<VerifiedContent> {
        let content = self.lock().memory.get(&digest).cloned();
        if let Some(content) = content {
            self.lock().touch(digest);
            return Some(VerifiedContent::Bytes(content));
        }
        let path = self.folder()?.join(digest.hex());
        let mut file = match file::open_own(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return None,
            other => other.map_err(|error| drop_foreign(&path, &error)).ok()?,
        };
        let found = hash(&mut file).map(|(hasher, _)| hasher.finish());
        match found {
            Ok(found) if found == digest => {
                file.rewind().ok()?;
                self.lock().touch(digest);
                Some(VerifiedContent::File(file))
            }
            _ => {
                log::warn!(path = path.display().to_string().as_str(); "A cached chart is damaged and is fetched again");
                let _ = fs::remove_file(&path);
                None
            }
        }
    }

    /// Stores something small whose digest is already verified.
    pub(super) fn put(&self, digest: Digest, content: &[u8]) {
        if self.find(digest).is_some() || !self.lock().busy.insert(digest) {
            return;
        }
        let mut partial = self.open(Reservation { cache: self, digest });
        if partial.restart().and_then(|()| partial.write(content)).is_ok() {
            let _ = partial.finish();
        }
    }

    /// Reserves content for a fetch. Waits while another thread fetches the same content.
    pub(super) fn begin(&self, digest: Digest, stop: &Stop) -> Result<Begun<'_>, Error> {
        loop {
            if let Some(content) = self.find(digest) {
                return Ok(Begun::There(content));
            }
            if self.lock().busy.insert(digest) {
                // Another thread may have finished since the check.
                let reserved = Reservation { cache: self, digest };
                if let Some(content) = self.find(digest) {
                    return Ok(Begun::There(content));
                }
                return Ok(Begun::Fetch(Box::new(self.open(reserved))));
            }
            if stop.wait(&Clock::system(), LOOK) {
                return Err(Error::Stopped);
            }
        }
    }

    fn open<'a>(&'a self, reservation: Reservation<'a>) -> Partial<'a> {
        let digest = reservation.digest;
        let mut partial =
            Partial { reservation, sink: Sink::Memory(Vec::new()), hasher: Hasher::new(), bytes: 0 };
        let Some(folder) = self.folder() else { return partial };
        match open_part(folder, digest, self.0.mode) {
            Ok((file, hasher, bytes)) => {
                partial.sink = Sink::File(file);
                (partial.hasher, partial.bytes) = (hasher, bytes);
            }
            Err(error) => self.give_up_disk(&error),
        }
        partial
    }

    fn give_up_disk(&self, error: &io::Error) {
        if !self.0.failed.swap(true, Ordering::Relaxed) {
            let err = chain(error);
            log::warn!(err = err.as_str(); "The chart cache cannot be written; charts are kept in memory");
        }
    }

    /// Evicts files until the rest fits, `kept` last. Foreign files are removed too.
    fn evict(&self, folder: &Path, kept: Digest) {
        let mut files = list(folder);
        let mut total: u64 = files.iter().map(|file| file.bytes).sum();
        let used = self.lock().used.clone();
        files.sort_by_key(|file| {
            let step = file.digest.and_then(|digest| used.get(&digest).copied());
            (file.digest == Some(kept), step.unwrap_or(0), file.modified)
        });
        for file in files {
            if total <= self.0.bytes_max {
                break;
            }
            if file.is_part && file.digest.is_some_and(|digest| self.lock().busy.contains(&digest)) {
                continue;
            }
            if fs::remove_file(&file.path).is_ok() {
                total = total.saturating_sub(file.bytes);
            }
        }
        // Forgets the use of files that no longer exist.
        let here: SortedSet<Digest> = list(folder).into_iter().filter_map(|file| file.digest).collect();
        self.lock().used.retain(|digest, _| here.contains(digest));
    }

    fn remember(&self, digest: Digest, content: &Arc<[u8]>) {
        let mut state = self.lock();
        state.memory.insert(digest, Arc::clone(content));
        state.touch(digest);
        while state.memory.values().map(|content| content.len()).sum::<usize>()
            > limits::CHART_CACHE_MEMORY_BYTES_MAX
        {
            let used = &state.used;
            let oldest = state.memory.keys().copied().min_by_key(|digest| used.get(digest).copied());
            let Some(oldest) = oldest else { break };
            state.memory.remove(&oldest);
            state.used.remove(&oldest);
        }
    }
}

/// The start of a fetch.
pub(super) enum Begun<'a> {
    /// The content exists already.
    There(VerifiedContent),
    /// The content must be fetched.
    Fetch(Box<Partial<'a>>),
}

struct Entry {
    path: PathBuf,
    digest: Option<Digest>,
    is_part: bool,
    bytes: u64,
    modified: std::time::SystemTime,
}

fn list(folder: &Path) -> Vec<Entry> {
    let read = |entry: fs::DirEntry| {
        let metadata = entry.metadata().ok().filter(fs::Metadata::is_file)?;
        let name = entry.file_name().into_string().unwrap_or_default();
        let part = name.strip_suffix(PART).and_then(|name| name.strip_suffix('.'));
        Some(Entry {
            path: entry.path(),
            digest: Digest::from_hex(part.unwrap_or(&name)),
            is_part: part.is_some(),
            bytes: metadata.len().max(1).next_multiple_of(BLOCK_BYTES),
            modified: metadata.modified().unwrap_or(std::time::UNIX_EPOCH),
        })
    };
    fs::read_dir(folder).into_iter().flatten().flatten().filter_map(read).collect()
}

fn open_part(folder: &Path, digest: Digest, mode: u32) -> io::Result<(File, Hasher, u64)> {
    fs::create_dir_all(folder)?;
    let path = folder.join(format!("{}.{PART}", digest.hex()));
    let mut file = file::open_or_make(&path, mode)?;
    let (hasher, bytes) = hash(&mut file)?;
    Ok((file, hasher, bytes))
}

/// Removes a foreign entry that has the name of a cached file.
fn drop_foreign(path: &Path, error: &io::Error) {
    let (path_text, err) = (path.display().to_string(), error.to_string());
    log::warn!(path = path_text.as_str(), err = err.as_str(); "A cached chart cannot be opened and is fetched again");
    let _ = fs::remove_file(path);
}

/// Computes the digest and the size of a reader's content.
pub(super) fn hash(file: &mut dyn Read) -> io::Result<(Hasher, u64)> {
    let (mut hasher, mut buffer, mut bytes) = (Hasher::new(), [0; 16 << 10], 0);
    loop {
        let amount = match file.read(&mut buffer) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            other => other?,
        };
        if amount == 0 {
            return Ok((hasher, bytes));
        }
        hasher.update(&buffer[..amount]);
        bytes += u64::try_from(amount).unwrap_or(u64::MAX);
    }
}

/// While this exists, no other thread fetches the same content.
struct Reservation<'a> {
    cache: &'a Cache,
    digest: Digest,
}

impl Drop for Reservation<'_> {
    fn drop(&mut self) {
        self.cache.lock().busy.remove(&self.digest);
    }
}

enum Sink {
    File(File),
    Memory(Vec<u8>),
}

/// Content that is being fetched. Dropped before its end, it stays on disk for the next attempt.
pub(super) struct Partial<'a> {
    reservation: Reservation<'a>,
    sink: Sink,
    hasher: Hasher,
    bytes: u64,
}

impl Partial<'_> {
    /// The number of bytes so far.
    pub(super) const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Discards the bytes so far.
    pub(super) fn restart(&mut self) -> Result<(), Error> {
        (self.hasher, self.bytes) = (Hasher::new(), 0);
        let cut = match &mut self.sink {
            Sink::Memory(bytes) => {
                bytes.clear();
                Ok(())
            }
            Sink::File(file) => file.set_len(0).and_then(|()| file.rewind()),
        };
        cut.map_err(|error| self.fail(error))
    }

    pub(super) fn write(&mut self, bytes: &[u8]) -> Result<(), Error> {
        let written = match &mut self.sink {
            Sink::Memory(content) => {
                content.extend_from_slice(bytes);
                Ok(())
            }
            Sink::File(file) => file.write_all(bytes),
        };
        written.map_err(|error| self.fail(error))?;
        self.hasher.update(bytes);
        self.bytes += u64::try_from(bytes.len()).unwrap_or(u64::MAX);
        Ok(())
    }

    /// The disk is full or broken: the next attempt uses memory.
    fn fail(&self, error: io::Error) -> Error {
        self.reservation.cache.give_up_disk(&error);
        let _ = self.path().map(fs::remove_file);
        Error::Disk { operation: "write the chart cache", source: error }
    }

    fn path(&self) -> Option<PathBuf> {
        let folder = self.reservation.cache.0.folder.as_deref()?;
        Some(folder.join(format!("{}.{PART}", self.reservation.digest.hex())))
    }

    /// Verifies the content and adds it to the cache; discards wrong content.
    pub(super) fn finish(mut self) -> Result<VerifiedContent, Error> {
        let expected = self.reservation.digest;
        let found = self.hasher.clone().finish();
        if found != expected {
            self.restart()?;
            return Err(Error::Digest { what: "chart", expected, found });
        }
        let (cache, part) = (self.reservation.cache, self.path());
        match (self.sink, part) {
            (Sink::File(mut file), Some(part)) => {
                let whole = part.with_extension("");
                let kept = file.sync_all().and_then(|()| fs::rename(&part, &whole));
                kept.and_then(|()| File::open(whole.parent().unwrap_or(Path::new(".")))?.sync_all())
                    .map_err(Error::disk("write the chart cache"))?;
                file.rewind().map_err(Error::disk("read the chart cache"))?;
                cache.lock().touch(expected);
                if let Some(folder) = cache.folder() {
                    cache.evict(folder, expected);
                }
                Ok(VerifiedContent::File(file))
            }
            (Sink::Memory(bytes), _) => {
                let content: Arc<[u8]> = bytes.into();
                cache.remember(expected, &content);
                Ok(VerifiedContent::Bytes(content))
            }
            (Sink::File(_), None) => Err(Error::Stopped),
        }
    }
}

#[cfg(test)]
mod tests;
