//! Copies this program into another container, and creates a directory for etcd.

use std::fs;
use std::io;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown};
use std::path::Path;

use crate::snapshot::Error;

/// The user of etcd's containers; etcd-druid uses the same.
const USER: u32 = 65_532;
/// This program, even if its file has been replaced.
const SELF: &str = "/proc/self/exe";

/// Copies this program to `directory/gardenlet` in one step.
pub(super) fn install(directory: &Path) -> Result<(), Error> {
    let (to, partial) = (directory.join("gardenlet"), directory.join("gardenlet.partial"));
    let failed = |path: &Path| {
        let doing = format!("copy this program to {}", path.display());
        |source| Error::Io { doing, source }
    };
    fs::copy(SELF, &partial).map_err(failed(&partial))?;
    fs::set_permissions(&partial, fs::Permissions::from_mode(0o755)).map_err(failed(&partial))?;
    fs::rename(&partial, &to).map_err(failed(&to))
}

/// Creates a directory and gives it to etcd's user.
pub(super) fn give(path: &Path) -> Result<(), Error> {
    let doing = || format!("give {} to user {USER}", path.display());
    hand_over(path, USER).map_err(|source| Error::Io { doing: doing(), source })
}

/// A process that has given a directory away cannot change it any more, so the ownership changes last. A directory that
/// etcd's user already owns stays as it is.
fn hand_over(path: &Path, user: u32) -> io::Result<()> {
    match fs::create_dir(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        other => other?,
    }
    let found = fs::metadata(path)?;
    if (found.uid(), found.gid()) == (user, user) {
        return Ok(());
    }
    fs::set_permissions(path, fs::Permissions::from_mode(0o700))?;
    chown(path, Some(user), Some(user))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::random;

    #[test]
    fn the_program_and_the_directory_are_where_they_are_asked_for() {
        let folder = std::env::temp_dir().join(format!("gardenlet-install-{}", random::hex(12)));
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("gardenlet"), "an old one").unwrap();
        fs::write(folder.join("gardenlet.partial"), "half of one").unwrap();
        // Opened: an emulator shows its own file to `stat`.
        let this_program = fs::File::open(SELF).unwrap().metadata().unwrap();
        for _ in 0..2 {
            install(&folder).unwrap();
            let found = fs::metadata(folder.join("gardenlet")).unwrap();
            assert_eq!((found.len(), found.mode() & 0o777), (this_program.len(), 0o755));
            assert_eq!(fs::read_dir(&folder).unwrap().count(), 1);
        }
        // Only root can change the owner of a directory.
        let (me, given) = (fs::metadata(&folder).unwrap().uid(), folder.join("given"));
        if me == 0 {
            for _ in 0..2 {
                hand_over(&given, USER).unwrap();
                let found = fs::metadata(&given).unwrap();
                assert_eq!((found.uid(), found.gid(), found.mode() & 0o777), (USER, USER, 0o700));
            }
        }
        assert!(install(&folder.join("nowhere")).is_err() && give(&folder.join("no/where")).is_err());
        fs::remove_dir_all(&folder).unwrap();
    }
}
