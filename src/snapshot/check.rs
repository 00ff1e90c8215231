//! Reads a snapshot of a store as a restoration does: a snapshot that passes can be restored.

use std::io::{self, Read, Write};

use flate2::read::MultiGzDecoder;

use super::error::Error;
use super::name::{Kind, Packing, Snapshot};
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

/// Unpacks the database, or the events of a delta, to a writer, whose name is for messages, and checks it. Returns its digest.
pub(super) fn unpack(
    store: &dyn SnapshotStore,
    snapshot: &Snapshot,
    to: &mut dyn Write,
    name: &str,
) -> Result<Vec<u8>, Error> {
    unpack_from(store.open(snapshot)?, store, snapshot, to, name)
}

/// The same for a reader of the snapshot's content.
pub(super) fn unpack_from(
    content: Box<dyn Read + '_>,
    store: &dyn SnapshotStore,
    snapshot: &Snapshot,
    to: &mut dyn Write,
    name: &str,
) -> Result<Vec<u8>, Error> {
    let broken = |why: String| Error::Broken { name: snapshot.name.text.clone(), why };
    let mut from = Watched { from: content, failure: None };
    let bytes_max = match snapshot.name.kind {
        Kind::Full => limits::ETCD_DATABASE_BYTES_MAX,
        Kind::Delta => limits::SNAPSHOT_DELTA_BYTES_MAX,
    };
    let copied = match snapshot.name.packing {
        Packing::Plain => copy(&mut from, to, bytes_max),
        Packing::Gzip => copy(&mut MultiGzDecoder::new(&mut from), to, bytes_max),
        Packing::Other => {
            return Err(broken("it is packed in a way that only etcd-backup-restore knows".to_owned()));
        }
    };
    match (copied, from.failure) {
        (_, Some(failure)) => {
            let doing = format!("read {} of {}", snapshot.name.text, store.place());
            Err(Error::of_store(doing, failure))
        }
        (Err(Copying::Write(error)), None) => Err(Error::io(format!("write {name}"))(error)),
        (Err(Copying::Read(error)), None) => Err(broken(error.to_string())),
        (Ok(seal), None) => {
            let digest = seal.digest().to_vec();
            let checked = match snapshot.name.kind {
                Kind::Full => seal.check(),
                Kind::Delta => seal.check_delta(),
            };
            checked.map(|_| digest).map_err(|why| broken(why.to_string()))
        }
    }
}

enum Copying {
    Read(io::Error),
    Write(io::Error),
}

fn copy(from: &mut dyn Read, to: &mut dyn Write, bytes_max: u64) -> Result<Seal, Copying> {
    let (mut seal, mut piece, mut bytes) = (Seal::default(), vec![0; PIECE_BYTES], 0);
    loop {
        let count = match from.read(&mut piece) {
            Ok(0) => return Ok(seal),
            Ok(count) => count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(Copying::Read(error)),
        };
        bytes += u64::try_from(count).unwrap_or(u64::MAX);
        if bytes > bytes_max {
            return Err(Copying::Read(io::Error::other("it is larger than any snapshot of an etcd")));
        }
        let read = piece.get(..count).unwrap_or_default();
        seal.update(read);
        to.write_all(read).map_err(Copying::Write)?;
    }
}
