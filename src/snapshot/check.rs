//! Reads a snapshot of a store as a restoration does: a snapshot that passes can be restored.

use std::io::{self, Read, Write};

use flate2::read::MultiGzDecoder;

use super::error::Error;
use super::name::{Packing, Snapshot};
use super::seal::Seal;
use super::store::SnapshotStore;
use crate::limits;

/// The buffer size for reading and unpacking.
const PIECE_BYTES: usize = 32 << 10;

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

/// Unpacks the database to a writer, whose name is for messages, and checks it. Returns the digest of the database.
pub(super) fn unpack(
    store: &dyn SnapshotStore,
    snapshot: &Snapshot,
    to: &mut dyn Write,
    name: &str,
) -> Result<Vec<u8>, Error> {
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
        (Err(Copying::Write(error)), None) => Err(Error::io(format!("write {name}"))(error)),
        (Err(Copying::Read(error)), None) => Err(broken(error.to_string())),
        (Ok(seal), None) => {
            let digest = seal.digest().to_vec();
            seal.check().map(|_| digest).map_err(|why| broken(why.to_string()))
        }
    }
}

enum Copying {
    Read(io::Error),
    Write(io::Error),
}

fn copy(from: &mut dyn Read, to: &mut dyn Write) -> Result<Seal, Copying> {
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
        to.write_all(read).map_err(Copying::Write)?;
    }
}
