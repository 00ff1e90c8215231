//! A directory as a store. A snapshot is written under a temporary name, and renamed once it is synced to the disk.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use super::error::Error;
use super::name::{self, Snapshot};
use super::store::{LEFTOVER_S, SnapshotStore, Upload};
use crate::base::clock::Timestamp;

/// The suffix of a file that is being written.
const PARTIAL: &str = ".partial";

#[derive(Debug)]
pub(crate) struct DirectoryStore {
    root: PathBuf,
    folder: PathBuf,
}

impl DirectoryStore {
    /// The snapshots below `root`, which must exist, and `prefix`, which is created.
    pub(crate) fn new(root: PathBuf, prefix: &str) -> Self {
        let folder = root.join(prefix.trim_matches('/')).join(name::VERSION);
        Self { root, folder }
    }

    fn error(&self, doing: &str, path: &Path) -> impl FnOnce(io::Error) -> Error {
        Error::io(format!("{doing} {}", path.display()))
    }

    /// Names and sizes of the regular files. The folder is created with the first snapshot. Its root must exist:
    /// otherwise a missing mount would look like an empty store.
    fn files(&self) -> Result<Vec<(String, fs::Metadata)>, Error> {
        fs::read_dir(&self.root).map_err(self.error("read the store", &self.root))?;
        let entries = match fs::read_dir(&self.folder) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            other => other.map_err(self.error("read the store", &self.folder))?,
        };
        let mut files = Vec::new();
        for entry in entries {
            let entry = entry.map_err(self.error("read the store", &self.folder))?;
            let Ok(name) = entry.file_name().into_string() else { continue };
            match entry.metadata() {
                Ok(metadata) if metadata.is_file() => files.push((name, metadata)),
                Ok(_) => {}
                // It was removed just now.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(self.error("read the store", &entry.path())(error)),
            }
        }
        Ok(files)
    }
}

impl SnapshotStore for DirectoryStore {
    fn place(&self) -> String {
        self.folder.display().to_string()
    }

    fn list(&self) -> Result<Vec<Snapshot>, Error> {
        Ok(name::snapshots(self.files()?.into_iter().map(|(name, metadata)| (name, metadata.len()))))
    }

    fn open(&self, snapshot: &Snapshot) -> Result<Box<dyn Read + '_>, Error> {
        let path = self.folder.join(&snapshot.name.text);
        Ok(Box::new(File::open(&path).map_err(self.error("open", &path))?))
    }

    fn create(&self, name: &str) -> Result<Box<dyn Upload + '_>, Error> {
        // A root that is not mounted must not be created.
        fs::metadata(&self.root).map_err(self.error("check the store", &self.root))?;
        fs::create_dir_all(&self.folder).map_err(self.error("make the folder", &self.folder))?;
        sync_folders(&self.folder, &self.root)?;
        let partial = self.folder.join(format!("{name}{PARTIAL}"));
        let mut options = OpenOptions::new();
        let file = options.write(true).create(true).truncate(true).mode(0o600).open(&partial);
        let file = file.map_err(self.error("make", &partial))?;
        Ok(Box::new(Writing { file, partial, to: self.folder.join(name), folder: &self.folder }))
    }

    fn remove(&self, name: &str) -> Result<(), Error> {
        let path = self.folder.join(name);
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(self.error("remove", &path)(error)),
            _ => Ok(()),
        }
    }

    fn sweep(&self, now: Timestamp) -> Result<(), Error> {
        for (name, metadata) in self.files()? {
            let age_s = now.unix().saturating_sub(metadata.mtime());
            if name.ends_with(PARTIAL) && age_s > LEFTOVER_S {
                self.remove(&name)?;
            }
        }
        Ok(())
    }
}

struct Writing<'a> {
    file: File,
    partial: PathBuf,
    to: PathBuf,
    folder: &'a Path,
}

impl Write for Writing<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl Upload for Writing<'_> {
    fn finish(self: Box<Self>) -> Result<u64, Error> {
        let error = |doing: &str, path: &Path| Error::io(format!("{doing} {}", path.display()));
        self.file.sync_all().map_err(error("write", &self.partial))?;
        let bytes = self.file.metadata().map_err(error("write", &self.partial))?.len();
        fs::rename(&self.partial, &self.to).map_err(error("rename to", &self.to))?;
        sync(self.folder)?;
        Ok(bytes)
    }
}

impl Drop for Writing<'_> {
    fn drop(&mut self) {
        // Nothing is left after the rename.
        let _ = fs::remove_file(&self.partial);
    }
}

/// Syncs a file or a folder to the disk.
pub(super) fn sync(path: &Path) -> Result<(), Error> {
    let synced = File::open(path).and_then(|file| file.sync_all());
    synced.map_err(Error::io(format!("sync {} to the disk", path.display())))
}

/// Syncs the folders from `folder` up to `root` to the disk.
fn sync_folders(folder: &Path, root: &Path) -> Result<(), Error> {
    folder.ancestors().take_while(|above| above.starts_with(root)).try_for_each(sync)
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;
    use crate::base::random;

    struct Scratch(PathBuf);

    impl Scratch {
        fn new() -> Self {
            let path = std::env::temp_dir().join(format!("gardenlet-snapshots-{}", random::hex(12)));
            fs::create_dir_all(&path).unwrap();
            Self(path)
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn a_snapshot_exists_once_it_is_complete() {
        let scratch = Scratch::new();
        let store = DirectoryStore::new(scratch.0.clone(), "/entry/etcd-main/");
        assert_eq!(store.list().unwrap(), []);
        let name = "Full-00000000-00000007-100.gz";
        let mut upload = store.create(name).unwrap();
        upload.write_all(b"content").unwrap();
        assert_eq!(store.list().unwrap(), []);
        assert_eq!(upload.finish().unwrap(), 7);
        let all = store.list().unwrap();
        assert_eq!((all.len(), all[0].bytes, all[0].name.revision), (1, 7, 7));
        assert!(scratch.0.join("entry/etcd-main/v2").join(name).is_file());
        let mut content = String::new();
        store.open(&all[0]).unwrap().read_to_string(&mut content).unwrap();
        assert_eq!(content, "content");
        // An abandoned snapshot leaves nothing.
        drop(store.create("Full-00000000-00000008-101.gz").unwrap());
        assert_eq!(store.files().unwrap().len(), 1);
        store.remove(name).unwrap();
        store.remove(name).unwrap();
        assert_eq!(store.list().unwrap(), []);
    }

    #[test]
    fn only_leftovers_of_yesterday_are_removed() {
        let scratch = Scratch::new();
        let store = DirectoryStore::new(scratch.0.clone(), "p");
        drop(store.create("x").unwrap());
        let name = "Full-00000000-00000007-100.gz";
        for file in [format!("{name}.partial"), name.to_owned(), "other".to_owned()] {
            fs::write(store.folder.join(file), "half").unwrap();
        }
        let now = Timestamp::from_unix(fs::metadata(store.folder.join(name)).unwrap().mtime());
        let left = |after_s: i64| {
            store.sweep(Timestamp::from_unix(now.unix() + after_s)).unwrap();
            store.files().unwrap().len()
        };
        assert_eq!((left(LEFTOVER_S), left(-LEFTOVER_S), left(LEFTOVER_S + 10)), (3, 3, 2));
    }

    #[test]
    fn a_missing_store_is_not_empty() {
        let scratch = Scratch::new();
        let store = DirectoryStore::new(scratch.0.join("not-mounted"), "p");
        assert!(store.list().is_err() && store.create("x").is_err());
        assert!(!scratch.0.join("not-mounted").exists());
        fs::write(scratch.0.join("not-mounted"), "a file").unwrap();
        assert!(store.list().is_err());
    }
}
