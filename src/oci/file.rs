//! Files in directories where others may write too: opens only regular files, and creates files without following
//! links.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;

use rustix::fs::{Mode, OFlags};

/// Opens a regular file for reading. Reading a device might never end, and opening a pipe might block.
pub(super) fn open(path: &Path) -> io::Result<File> {
    regular(path, OFlags::RDONLY)
}

/// The same for a file of the agent, which must not be a link.
pub(super) fn open_own(path: &Path) -> io::Result<File> {
    regular(path, OFlags::RDONLY | OFlags::NOFOLLOW)
}

/// Opens a file of the agent for reading and writing. Creates it if it is missing, or if its name
/// belongs to something else.
pub(super) fn open_or_make(path: &Path, mode: u32) -> io::Result<File> {
    match regular(path, OFlags::RDWR | OFlags::NOFOLLOW) {
        // A write to a file with several hard links would change all of them.
        Ok(file) if file.metadata()?.nlink() == 1 => Ok(file),
        _ => make(path, mode),
    }
}

/// Creates a new file in place of whatever has the name.
pub(super) fn make(path: &Path, mode: u32) -> io::Result<File> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    OpenOptions::new().read(true).write(true).create_new(true).mode(mode).open(path)
}

/// Creates a directory and its parents; the last `own` of them must not be links.
pub(super) fn make_folders(path: &Path, own: usize) -> io::Result<()> {
    let mut folders: Vec<&Path> = path.ancestors().take(own).collect();
    folders.reverse();
    if let Some(above) = folders.first().and_then(|first| first.parent()) {
        fs::create_dir_all(above)?;
    }
    for folder in folders {
        match fs::create_dir(folder) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            other => other?,
        }
        if !fs::symlink_metadata(folder)?.is_dir() {
            let why = format!("{} is a link, not a folder", folder.display());
            return Err(io::Error::new(io::ErrorKind::NotADirectory, why));
        }
    }
    Ok(())
}

fn regular(path: &Path, flags: OFlags) -> io::Result<File> {
    // Opening a pipe must not wait for its other end.
    let flags = flags | OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::NOCTTY;
    let file = File::from(rustix::fs::open(path, flags, Mode::empty())?);
    if file.metadata()?.is_file() {
        Ok(file)
    } else {
        Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not a regular file"))
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::os::unix::fs::symlink;

    use super::*;
    use crate::base::random;

    #[test]
    fn only_regular_files_are_opened_and_no_links_are_written_through() {
        let dir = std::env::temp_dir().join(format!("gardenlet-file-{}", random::hex(12)));
        fs::create_dir_all(&dir).unwrap();
        let path = |name: &str| dir.join(name);
        fs::write(path("plain"), "plain").unwrap();
        symlink(path("plain"), path("link")).unwrap();
        symlink("/dev/zero", path("endless")).unwrap();
        fs::hard_link(path("plain"), path("second")).unwrap();
        rustix::fs::mknodat(rustix::fs::CWD, path("pipe"), rustix::fs::FileType::Fifo, Mode::RWXU, 0)
            .unwrap();
        let table = [
            ("plain", true, true),
            ("link", true, false),
            ("endless", false, false),
            ("pipe", false, false),
            (".", false, false),
            ("nothing", false, false),
        ];
        for (name, any, own) in table {
            assert_eq!((open(&path(name)).is_ok(), open_own(&path(name)).is_ok()), (any, own), "{name}");
        }
        for name in ["link", "second", "endless", "pipe", "nothing"] {
            open_or_make(&path(name), 0o600).unwrap().write_all(b"new").unwrap();
            assert_eq!(fs::read_to_string(path("plain")).unwrap(), "plain", "{name}");
            let mut text = String::new();
            open_own(&path(name)).unwrap().read_to_string(&mut text).unwrap();
            assert_eq!(text, "new", "{name}");
        }
        // A file of the agent is kept.
        let mut kept = String::new();
        open_or_make(&path("plain"), 0o600).unwrap().read_to_string(&mut kept).unwrap();
        assert_eq!(kept, "plain");
        fs::create_dir_all(path("elsewhere/b")).unwrap();
        symlink(path("elsewhere"), path("a")).unwrap();
        assert!(make_folders(&path("a/b"), 1).is_ok() && make_folders(&path("a/b"), 2).is_err());
        fs::remove_dir_all(&dir).unwrap();
    }
}
