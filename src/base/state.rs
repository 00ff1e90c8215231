//! The state directory: the few things that must survive a restart and cannot be read from the seed. These are the
//! clock floor, the pending key and CSR, and the instance id, but never copies of garden Secrets.
//!
//! The agent writes a file only if its content changes (flash wears out), as a whole and atomically. A checksum detects
//! a torn file, which counts as absent. Without a directory everything stays in memory, and is lost with the process.

use std::fmt;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ring::digest;

use crate::base::clock::Clock;
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

struct Disk {
    path: PathBuf,
    /// Holds the lock. Only one process may use a directory, because the instance id is its holder id.
    _lock: File,
}

/// See the module. Cheap to clone.
#[derive(Clone)]
pub struct StateDir {
    disk: Option<Arc<Disk>>,
    memory: Arc<Mutex<SortedMap<String, Vec<u8>>>>,
}

impl fmt::Debug for StateDir {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The content may be a private key.
        f.debug_tuple("StateDir").field(&self.disk.as_ref().map(|d| &d.path)).finish()
    }
}

/// How long to wait for the lock, and how often to retry.
const LOCK_PATIENCE: Duration = Duration::from_secs(2);
const LOCK_RETRY: Duration = Duration::from_millis(50);

const SUM_BYTES: usize = digest::SHA256_OUTPUT_LEN;

impl StateDir {
    /// State that lives only as long as the process.
    pub fn in_memory() -> Self {
        Self { disk: None, memory: Arc::default() }
    }

    /// Opens the directory, or creates it for this user alone, and locks it.
    ///
    /// # Errors
    /// If it cannot be created, is not writable, or another process uses it.
    pub fn open(path: &Path) -> Result<Self, Error> {
        create(path).map_err(io_error("create state directory", path))?;
        if fs::metadata(path).is_ok_and(|found| is_open_to_others(found.mode(), found.uid())) {
            let (path, command) = (path.display().to_string(), format!("chmod 700 {}", path.display()));
            log::warn!(path = path.as_str(), remedy = command.as_str(); "Other users of this machine have access to the state directory");
        }
        let lock_path = path.join("lock");
        let mut options = OpenOptions::new();
        let lock = options.create(true).truncate(false).write(true).mode(0o600).open(&lock_path);
        let lock = lock.map_err(io_error("open", &lock_path))?;
        take_lock(&lock, path, &lock_path)?;
        Ok(Self { disk: Some(Arc::new(Disk { path: path.to_owned(), _lock: lock })), memory: Arc::default() })
    }

    /// The path, if the state is on disk.
    pub fn path(&self) -> Option<&Path> {
        self.disk.as_ref().map(|d| d.path.as_path())
    }

    /// The content of `name`; `None` if the file is absent or torn.
    pub fn read(&self, name: &str) -> Option<Vec<u8>> {
        let known = self.memory.lock().unwrap_or_else(PoisonError::into_inner).get(name).cloned();
        if known.is_some() {
            return known;
        }
        let path = self.disk.as_ref()?.path.join(name);
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
    ///
    /// # Errors
    /// The error of the system. The old content stays.
    pub fn write(&self, name: &str, content: &[u8]) -> Result<(), Error> {
        if self.read(name).as_deref() == Some(content) {
            return Ok(());
        }
        if let Some(disk) = &self.disk {
            write_file(&disk.path, name, content)?;
        }
        self.memory
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(name.to_owned(), content.to_owned());
        Ok(())
    }

    /// Removes `name`; does nothing if it does not exist.
    ///
    /// # Errors
    /// The error of the system.
    pub fn remove(&self, name: &str) -> Result<(), Error> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner).remove(name);
        let Some(disk) = &self.disk else { return Ok(()) };
        let path = disk.path.join(name);
        match fs::remove_file(&path) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => Err(io_error("remove", &path)(e)),
            _ => Ok(()),
        }
    }

    /// 64 hexadecimal digits that stay the same across restarts of this instance.
    ///
    /// # Errors
    /// If a new id cannot be written.
    pub fn instance_id(&self) -> Result<String, Error> {
        if let Some(id) = self.read("instance-id").and_then(|bytes| String::from_utf8(bytes).ok()) {
            return Ok(id);
        }
        let id = random::hex(64);
        self.write("instance-id", id.as_bytes())?;
        Ok(id)
    }
}

/// After a process was killed, a child that it was just starting may hold the lock for a moment.
fn take_lock(lock: &File, path: &Path, lock_path: &Path) -> Result<(), Error> {
    let (clock, never) = (Clock::system(), Stop::new());
    let deadline = clock.mono().saturating_add(LOCK_PATIENCE);
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

/// Whether a process uses the directory. Changes nothing.
pub fn is_locked(path: &Path) -> bool {
    File::open(path.join("lock"))
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
            state.write("floor", b"42").unwrap();
            state.instance_id().unwrap()
        };
        let state = StateDir::open(&path).unwrap();
        assert_eq!(state.read("floor").as_deref(), Some(b"42".as_slice()));
        assert_eq!(state.instance_id().unwrap(), id);
        state.remove("floor").unwrap();
        assert_eq!(state.read("floor"), None);
        fs::remove_dir_all(&path).unwrap();
    }

    #[test]
    fn a_torn_file_reads_as_absent() {
        let path = scratch("torn");
        let state = StateDir::open(&path).unwrap();
        state.write("floor", b"a long enough content").unwrap();
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
        state.write("floor", b"1").unwrap();
        let inode = fs::metadata(path.join("floor")).unwrap().ino();
        state.write("floor", b"1").unwrap();
        assert_eq!(fs::metadata(path.join("floor")).unwrap().ino(), inode);
        state.write("floor", b"2").unwrap();
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
