//! The state directory: the few things that must survive a restart and cannot be read from the seed. These are the
//! clock floor, the pending key and CSR, and the instance id, but never copies of garden Secrets.
//!
//! The agent writes a file only if its content changes (flash wears out), as a whole and atomically. A checksum detects
//! a torn file, which counts as absent. Without a directory everything stays in memory, and is lost with the process. The
//! same is true while the directory cannot be written, as at the end of an SD card: then [`StateDir::trouble`] says why.

use std::fmt;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use ring::digest;

use super::lock::IgnorePoison;
use crate::base::clock::Clock;
use crate::base::error::chain;
use crate::base::random;
use crate::base::sorted::SortedMap;
use crate::base::stop::Stop;
use crate::limits;

/// Why the state directory cannot be used.
#[derive(Debug)]
pub enum Error {
    /// An operation on a path failed.
    Io {
        /// The operation.
        operation: &'static str,
        /// Its path.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// Another process uses the directory.
    InUse {
        /// The directory.
        path: PathBuf,
    },
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io { operation, path, .. } => write!(f, "{operation} {}", path.display()),
            Self::InUse { path } => write!(
                f,
                "state directory {} is used by another gardenlet; give each its own (edge.stateDir)",
                path.display()
            ),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Io { source, .. } => Some(source),
            Self::InUse { .. } => None,
        }
    }
}

impl Error {
    /// Whether the directory is there, or could be there if the disk were good. Everything else is a wrong path.
    pub(crate) fn is_of_disk(&self, path: &Path) -> bool {
        let Self::Io { source, .. } = self else { return false };
        is_full(source) || is_worn(source) || path.is_dir()
    }

    /// What helps an agent that keeps its state in memory because of this error.
    pub(crate) fn remedy(&self) -> String {
        let remedy = match self {
            // The error contains it.
            Self::InUse { .. } => "",
            Self::Io { source, .. } if is_full(source) => ": free space on its file system",
            Self::Io { source, .. } if is_worn(source) => ": repair or replace the disk",
            Self::Io { .. } => ": let the agent's user write there",
        };
        format!("the agent works, and loses new state when it stops{remedy}")
    }
}

fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

fn is_worn(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::ReadOnlyFilesystem
        || error.raw_os_error() == Some(rustix::io::Errno::IO.raw_os_error())
}

fn create(path: &Path) -> io::Result<()> {
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent)?;
    }
    match DirBuilder::new().mode(0o700).create(path) {
        Err(_) if path.is_dir() => Ok(()),
        other => other,
    }
}

/// Whether a directory that the agent owns is open to other users. The agent does not narrow the mode of a directory
/// that another user owns: it may be a volume of a pod, or somebody named it by mistake and other programs need it.
fn is_open_to_others(mode: u32, owner: u32) -> bool {
    mode & 0o077 != 0 && owner == rustix::process::geteuid().as_raw()
}

fn io_error(operation: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Error {
    let path = path.to_owned();
    move |source| Error::Io { operation, path, source }
}

/// What this process has written, and what it has removed (`None`).
#[derive(Default)]
struct KnownFiles {
    files: SortedMap<String, Option<Vec<u8>>>,
    /// The names that the disk does not have yet.
    unwritten: Vec<String>,
    /// Why the directory cannot be written, and what helps.
    trouble: Option<String>,
    /// Only one process may use a directory, because the instance id is its holder id.
    lock: Option<File>,
}

/// See the module. Cheap to clone.
#[derive(Clone)]
pub(crate) struct StateDir {
    path: Option<Arc<Path>>,
    memory: Arc<Mutex<KnownFiles>>,
}

impl fmt::Debug for StateDir {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The content may be a private key.
        f.debug_tuple("StateDir").field(&self.path).finish()
    }
}

/// How long to wait for the lock, and how often to retry.
const LOCK_PATIENCE: Duration = Duration::from_secs(2);
const LOCK_RETRY: Duration = Duration::from_millis(50);
/// The file in the directory that is locked.
const LOCK: &str = "lock";

const SUM_BYTES: usize = digest::SHA256_OUTPUT_LEN;

impl StateDir {
    /// State that lives only as long as the process.
    pub(crate) fn in_memory() -> Self {
        Self { path: None, memory: Arc::default() }
    }

    /// Opens the directory, or creates it for this user alone, and locks it. A directory that cannot be
    /// written is read. Errors: if another process uses it, or if it cannot be a directory of this user.
    pub(crate) fn open(path: &Path) -> Result<Self, Error> {
        let mut memory = KnownFiles::default();
        match prepare(path, LOCK_PATIENCE) {
            Ok(lock) => memory.lock = Some(lock),
            Err(error) if !error.is_of_disk(path) => return Err(error),
            Err(error) => {
                memory.complain(path, &error);
                let lock_path = path.join(LOCK);
                if let Ok(lock) = File::open(&lock_path) {
                    take_lock(&lock, path, &lock_path, LOCK_PATIENCE)?;
                    memory.lock = Some(lock);
                }
            }
        }
        Ok(Self { path: Some(path.into()), memory: Arc::new(Mutex::new(memory)) })
    }

    /// The path, if the state is on disk.
    pub(crate) fn path(&self) -> Option<&Path> {
        self.path.as_deref()
    }

    fn memory(&self) -> MutexGuard<'_, KnownFiles> {
        // The fields are plain values.
        self.memory.lock().ignore_poison()
    }

    /// Why the directory cannot be written, and what helps. What was written meanwhile is lost with the process.
    pub(crate) fn trouble(&self) -> Option<String> {
        self.memory().trouble.clone()
    }

    /// Tries to write what could not be written before.
    pub(crate) fn retry(&self) {
        let (Some(path), mut memory) = (&self.path, self.memory()) else { return };
        if memory.trouble.is_some() {
            memory.flush(path);
        }
    }

    /// The content of `name`; `None` if the file is absent or torn.
    pub(crate) fn read(&self, name: &str) -> Option<Vec<u8>> {
        let known = self.memory().files.get(name).cloned();
        if let Some(known) = known {
            return known;
        }
        let path = self.path()?.join(name);
        if fs::metadata(&path).ok()?.len() > limits::STATE_FILE_BYTES_MAX {
            return None;
        }
        let content = checked(fs::read(&path).ok()?);
        if content.is_none() {
            log::warn!(path = path.display().to_string().as_str(); "A state file is damaged and is ignored");
        }
        content
    }

    /// Writes `name` if its content differs.
    pub(crate) fn write(&self, name: &str, content: &[u8]) {
        if self.read(name).as_deref() != Some(content) {
            self.set(name, Some(content.to_owned()));
        }
    }

    /// Removes `name`; does nothing if it does not exist.
    pub(crate) fn remove(&self, name: &str) {
        self.set(name, None);
    }

    fn set(&self, name: &str, content: Option<Vec<u8>>) {
        let mut memory = self.memory();
        memory.files.insert(name.to_owned(), content);
        if let Some(path) = &self.path {
            memory.unwritten.retain(|unwritten| unwritten != name);
            memory.unwritten.push(name.to_owned());
            memory.flush(path);
        }
    }

    /// 64 hexadecimal digits that stay the same across restarts of this instance.
    pub(crate) fn instance_id(&self) -> String {
        if let Some(id) = self.read("instance-id").and_then(|bytes| String::from_utf8(bytes).ok()) {
            return id;
        }
        let id = random::hex(64);
        self.write("instance-id", id.as_bytes());
        id
    }
}

impl KnownFiles {
    fn flush(&mut self, path: &Path) {
        match self.store(path) {
            Err(error) => self.complain(path, &error),
            Ok(()) if self.trouble.take().is_some() => {
                log::info!(path = path.display().to_string().as_str(); "The state directory can be written again");
            }
            Ok(()) => {}
        }
    }

    /// Writes what the disk does not have yet. Without the lock it writes nothing: another process may use the directory.
    fn store(&mut self, path: &Path) -> Result<(), Error> {
        if !self.lock.as_ref().is_some_and(|lock| is_at(lock, &path.join(LOCK))) {
            self.lock = Some(prepare(path, Duration::ZERO)?);
            // This may be another directory than before, such as a new disk.
            self.unwritten = self.files.keys().cloned().collect();
        }
        while let Some(name) = self.unwritten.last() {
            match self.files.get(name) {
                Some(Some(content)) => write_file(path, name, content)?,
                _ => remove_file(&path.join(name))?,
            }
            self.unwritten.pop();
        }
        is_writable(path)
    }

    fn complain(&mut self, path: &Path, error: &Error) {
        let err = chain(error);
        if self.trouble.is_none() {
            let path = path.display().to_string();
            log::warn!(path = path.as_str(), err = err.as_str(); "The state directory cannot be written; new state is kept in memory");
        }
        self.trouble = Some(format!("{err}: {}", error.remedy()));
    }
}

/// Makes a directory that can be written, and locks it.
fn prepare(path: &Path, patience: Duration) -> Result<File, Error> {
    create(path).map_err(io_error("create state directory", path))?;
    is_writable(path)?;
    let lock_path = path.join(LOCK);
    let mut options = OpenOptions::new();
    let lock = options.create(true).truncate(false).write(true).mode(0o600).open(&lock_path);
    let lock = lock.map_err(io_error("open", &lock_path))?;
    take_lock(&lock, path, &lock_path, patience)?;
    if fs::metadata(path).is_ok_and(|found| is_open_to_others(found.mode(), found.uid())) {
        let (path, command) = (path.display().to_string(), format!("chmod 700 {}", path.display()));
        log::warn!(path = path.as_str(), remedy = command.as_str(); "Other users of this machine have access to the state directory");
    }
    Ok(lock)
}

/// Whether an open file is still the one at a path.
fn is_at(file: &File, path: &Path) -> bool {
    let place = |found: fs::Metadata| (found.dev(), found.ino());
    let (ours, found) = (file.metadata().map(place), fs::metadata(path).map(place));
    ours.is_ok_and(|ours| found.is_ok_and(|found| found == ours))
}

/// Asks the system, which knows a file system that is mounted read-only, without writing anything.
fn is_writable(path: &Path) -> Result<(), Error> {
    let may = rustix::fs::access(path, rustix::fs::Access::WRITE_OK | rustix::fs::Access::EXEC_OK);
    may.map_err(io::Error::from).map_err(io_error("write to", path))
}

fn remove_file(path: &Path) -> Result<(), Error> {
    match fs::remove_file(path) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => Err(io_error("remove", path)(e)),
        _ => Ok(()),
    }
}

/// After a process was killed, a child that it was just starting may hold the lock for a moment.
fn take_lock(lock: &File, path: &Path, lock_path: &Path, patience: Duration) -> Result<(), Error> {
    let (clock, never) = (Clock::system(), Stop::new());
    let deadline = clock.mono().saturating_add(patience);
    loop {
        match lock.try_lock() {
            Ok(()) => return Ok(()),
            Err(fs::TryLockError::WouldBlock) if clock.mono() < deadline => {
                never.wait(&clock, LOCK_RETRY);
            }
            Err(fs::TryLockError::WouldBlock) => return Err(Error::InUse { path: path.to_owned() }),
            Err(fs::TryLockError::Error(source)) => return Err(io_error("lock", lock_path)(source)),
        }
    }
}

/// Verifies and removes the checksum in front of the content.
fn checked(mut bytes: Vec<u8>) -> Option<Vec<u8>> {
    if bytes.len() < SUM_BYTES {
        return None;
    }
    let content = bytes.split_off(SUM_BYTES);
    (digest::digest(&digest::SHA256, &content).as_ref() == bytes).then_some(content)
}

/// Writes a temporary file, syncs it, and renames it: a reader sees the old content or the new one.
fn write_file(dir: &Path, name: &str, content: &[u8]) -> Result<(), Error> {
    let (path, beside) = (dir.join(name), dir.join(format!("{name}.new")));
    let mut options = OpenOptions::new();
    let mut file = options
        .create(true)
        .truncate(true)
        .write(true)
        .mode(0o600)
        .open(&beside)
        .map_err(io_error("open", &beside))?;
    let written = file
        .write_all(digest::digest(&digest::SHA256, content).as_ref())
        .and_then(|()| file.write_all(content))
        .and_then(|()| file.sync_all());
    written.map_err(io_error("write", &beside))?;
    fs::rename(&beside, &path).map_err(io_error("rename to", &path))?;
    File::open(dir).and_then(|d| d.sync_all()).map_err(io_error("sync", dir))
}

/// Whether the directory exists already, if it can be written. Changes nothing. Errors: if the directory
/// cannot be used, or cannot be written.
pub(crate) fn examine(path: &Path) -> Result<bool, Error> {
    let failed = io_error("create state directory", path);
    match path.metadata() {
        Ok(found) if found.is_dir() => is_writable(path).map(|()| true),
        Ok(_) => Err(failed(io::ErrorKind::NotADirectory.into())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let above = path.ancestors().skip(1).find(|above| above.exists());
            is_writable(above.unwrap_or(Path::new("/"))).map(|()| false)
        }
        Err(error) => Err(failed(error)),
    }
}

/// Whether a process uses the directory. Changes nothing.
pub fn is_locked(path: &Path) -> bool {
    File::open(path.join(LOCK))
        .is_ok_and(|lock| matches!(lock.try_lock_shared(), Err(fs::TryLockError::WouldBlock)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scratch(name: &str) -> PathBuf {
        std::env::temp_dir().join(format!("gardenlet-state-{name}-{}", random::hex(12)))
    }

    #[test]
    fn the_next_process_reads_written_files() {
        let path = scratch("keep");
        let id = {
            let state = StateDir::open(&path).unwrap();
            state.write("floor", b"42");
            state.instance_id()
        };
        let state = StateDir::open(&path).unwrap();
        assert_eq!(state.read("floor").as_deref(), Some(b"42".as_slice()));
        assert_eq!(state.instance_id(), id);
        state.remove("floor");
        assert_eq!(state.read("floor"), None);
        fs::remove_dir_all(&path).unwrap();
    }

    /// A disk that takes no file: where the agent wants to write a file beside the old one, there is a folder.
    #[test]
    fn a_directory_that_cannot_be_written_is_read_and_the_rest_is_in_memory() {
        let path = scratch("worn");
        let state = StateDir::open(&path).unwrap();
        let id = state.instance_id();
        state.write("floor", b"1");
        state.write("request", b"a");
        drop(state);
        for name in ["floor.new", "request/x"] {
            let _ = fs::remove_file(path.join("request"));
            fs::create_dir_all(path.join(name)).unwrap();
        }
        let state = StateDir::open(&path).unwrap();
        assert_eq!((state.trouble(), state.instance_id()), (None, id.clone()));
        state.write("floor", b"2");
        state.remove("request");
        assert_eq!((state.read("floor").as_deref(), state.read("request")), (Some(b"2".as_slice()), None));
        let trouble = state.trouble().unwrap();
        assert!(trouble.contains("remove ") && trouble.contains("worn"), "{trouble}");
        state.retry();
        assert!(state.trouble().is_some());
        drop(state);
        // The next process has what the disk has.
        let state = StateDir::open(&path).unwrap();
        assert_eq!((state.read("floor").as_deref(), state.instance_id()), (Some(b"1".as_slice()), id));
        state.write("floor", b"3");
        fs::remove_dir(path.join("floor.new")).unwrap();
        state.retry();
        assert_eq!(state.trouble(), None);
        drop(state);
        assert_eq!(StateDir::open(&path).unwrap().read("floor").as_deref(), Some(b"3".as_slice()));
        fs::remove_dir_all(&path).unwrap();
    }

    #[test]
    fn a_lock_that_can_only_be_read_is_still_a_lock() {
        let path = scratch("read");
        // A folder can be locked, and not be opened to write.
        fs::create_dir_all(path.join("lock")).unwrap();
        let first = StateDir::open(&path).unwrap();
        assert!(first.trouble().unwrap().contains("/lock"));
        assert!(matches!(StateDir::open(&path), Err(Error::InUse { .. })));
        fs::remove_dir_all(&path).unwrap();
        // Wrong paths are errors.
        fs::write(&path, "").unwrap();
        for wrong in [path.clone(), path.join("below")] {
            assert!(matches!(StateDir::open(&wrong), Err(Error::Io { .. })), "{}", wrong.display());
        }
        fs::remove_file(&path).unwrap();
    }

    /// A directory that cannot be prepared: its lock is a link to nowhere.
    #[test]
    fn a_directory_that_had_no_lock_is_locked_before_it_is_written() {
        let path = scratch("late");
        fs::create_dir(&path).unwrap();
        std::os::unix::fs::symlink("missing/lock", path.join("lock")).unwrap();
        let late = StateDir::open(&path).unwrap();
        late.write("floor", b"late");
        assert!(late.trouble().unwrap().contains("/lock: "), "{:?}", late.trouble());
        assert!(!path.join("floor").exists(), "it was written without a lock");
        // Another agent comes first.
        fs::remove_file(path.join("lock")).unwrap();
        let first = StateDir::open(&path).unwrap();
        first.write("floor", b"first");
        for _ in 0..2 {
            late.retry();
            late.write("other", b"late");
            let trouble = late.trouble().unwrap();
            assert!(
                trouble.contains("used by another gardenlet; give each its own")
                    && trouble.contains("loses new state"),
                "{trouble}"
            );
            assert!(!trouble.contains("disk"), "{trouble}");
        }
        assert!(first.read("other").is_none() && !path.join("other").exists());
        assert_eq!(late.read("floor").as_deref(), Some(b"late".as_slice()));
        drop(first);
        late.retry();
        assert_eq!(late.trouble(), None);
        assert!(is_locked(&path));
        drop(late);
        let next = StateDir::open(&path).unwrap();
        for name in ["floor", "other"] {
            assert_eq!(next.read(name).as_deref(), Some(b"late".as_slice()), "{name}");
        }
        fs::remove_dir_all(&path).unwrap();
    }

    /// As if another disk were mounted there.
    #[test]
    fn a_directory_in_the_place_of_the_locked_one_is_locked_before_it_is_written() {
        let (path, aside) = (scratch("swap"), scratch("aside"));
        let state = StateDir::open(&path).unwrap();
        state.write("floor", b"1");
        fs::rename(&path, &aside).unwrap();
        let other = StateDir::open(&path).unwrap();
        state.write("request", b"2");
        assert!(state.trouble().unwrap().contains("used by another gardenlet"), "{:?}", state.trouble());
        assert!(!path.join("request").exists());
        drop(other);
        fs::remove_dir_all(&path).unwrap();
        state.retry();
        assert_eq!(state.trouble(), None);
        drop(state);
        let next = StateDir::open(&path).unwrap();
        assert_eq!(
            (next.read("floor"), next.read("request")),
            (Some(b"1".to_vec()), Some(b"2".to_vec())),
            "the new directory has all of it"
        );
        fs::remove_dir_all(&path).unwrap();
        fs::remove_dir_all(&aside).unwrap();
    }

    #[test]
    fn a_torn_file_reads_as_absent() {
        let path = scratch("torn");
        let state = StateDir::open(&path).unwrap();
        state.write("floor", b"a long enough content");
        drop(state);
        let file = path.join("floor");
        let whole = fs::read(&file).unwrap();
        for len in 0..whole.len() {
            fs::write(&file, &whole[..len]).unwrap();
            assert_eq!(StateDir::open(&path).unwrap().read("floor"), None, "cut to {len}");
        }
        fs::remove_dir_all(&path).unwrap();
    }

    #[test]
    fn nothing_is_written_when_nothing_changed() {
        let path = scratch("same");
        let state = StateDir::open(&path).unwrap();
        state.write("floor", b"1");
        let inode = fs::metadata(path.join("floor")).unwrap().ino();
        state.write("floor", b"1");
        assert_eq!(fs::metadata(path.join("floor")).unwrap().ino(), inode);
        state.write("floor", b"2");
        assert_ne!(fs::metadata(path.join("floor")).unwrap().ino(), inode);
        fs::remove_dir_all(&path).unwrap();
    }

    #[test]
    fn a_lock_that_ends_soon_is_waited_for() {
        let path = scratch("wait");
        let first = StateDir::open(&path).unwrap();
        let other = path.clone();
        let second =
            crate::base::thread::spawn("second", 256 << 10, move || StateDir::open(&other).is_ok()).unwrap();
        drop(first);
        assert!(second.join().unwrap());
        fs::remove_dir_all(&path).unwrap();
    }

    #[test]
    fn a_new_directory_is_for_its_owner_alone() {
        let parent = scratch("mode");
        let path = parent.join("deep/state");
        drop(StateDir::open(&path).unwrap());
        let mode = fs::metadata(&path).unwrap().mode();
        assert_eq!(mode & 0o777, 0o700);
        // An existing directory keeps its mode.
        drop(StateDir::open(&path).unwrap());
        let own = rustix::process::geteuid().as_raw();
        let table =
            [(0o40700, own, false), (0o40750, own, true), (0o40705, own, true), (0o40777, own + 1, false)];
        for (mode, owner, expected) in table {
            assert_eq!(is_open_to_others(mode, owner), expected, "{mode:o}");
        }
        fs::remove_dir_all(&parent).unwrap();
    }

    #[test]
    fn one_directory_serves_one_process() {
        let path = scratch("lock");
        let first = StateDir::open(&path).unwrap();
        let error = StateDir::open(&path).unwrap_err();
        assert!(error.to_string().contains("edge.stateDir"), "{error}");
        assert!(is_locked(&path));
        drop(first);
        assert!(!is_locked(&path) && !is_locked(Path::new("/nonexistent")));
        assert!(StateDir::open(&path).is_ok());
        fs::remove_dir_all(&path).unwrap();
    }
}
