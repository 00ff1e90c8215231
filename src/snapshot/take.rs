//! One run: takes a snapshot if something has changed, removes old ones, then defragments etcd.

use std::io::{self, Read, Write as _};

use flate2::Compression;
use flate2::write::GzEncoder;

use super::check;
use super::error::Error;
use super::gateway::{EtcdGateway, EtcdStatus};
use super::name::{self, Kind, Packing, Snapshot, SnapshotName};
use super::proof;
use super::retention;
use super::seal::Seal;
use super::store::SnapshotStore;
use crate::base::clock::Clock;
use crate::base::error::chain;
use crate::limits;

/// The buffer size for reading and packing.
const PIECE_BYTES: usize = 32 << 10;
/// A smaller gain does not justify a pause of etcd.
const GAIN_BYTES_MIN: u64 = 1 << 20;
/// A larger gain always justifies it.
const GAIN_BYTES: u64 = 16 << 20;

/// The requests of a run to an etcd.
pub(crate) trait Etcd {
    /// Its status. Errors: it does not answer.
    fn status(&self) -> Result<EtcdStatus, Error>;

    /// Its database, followed by a digest. Errors: the stream does not start.
    fn snapshot(&self) -> Result<Box<dyn Read + '_>, Error>;

    /// Frees unused space. Errors: it may not have done it.
    fn defragment(&self) -> Result<(), Error>;
}

impl Etcd for EtcdGateway {
    fn status(&self) -> Result<EtcdStatus, Error> {
        Self::status(self)
    }

    fn snapshot(&self) -> Result<Box<dyn Read + '_>, Error> {
        Ok(Box::new(Self::snapshot(self)?))
    }

    fn defragment(&self) -> Result<(), Error> {
        Self::defragment(self)
    }
}

/// The options of a run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TakeOrder {
    /// The number of full snapshots to keep.
    pub(crate) keep: usize,
    /// Whether etcd may pause for a defragmentation.
    pub(crate) may_defragment: bool,
}

/// The result of a run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct TakeOutcome {
    pub(crate) snapshot: SnapshotName,
    pub(crate) bytes: u64,
    /// Whether this run has taken it.
    pub(crate) is_taken: bool,
    /// The status of etcd at the end of the run.
    pub(crate) status: EtcdStatus,
    /// The number of full snapshots that exist.
    pub(crate) kept: usize,
    /// Whether etcd was defragmented.
    pub(crate) is_defragmented: bool,
    /// Problems that do not make the run a failure.
    pub(crate) warnings: Vec<String>,
}

/// Executes a run. Errors: the newest state of etcd is not in the store at the end.
pub(crate) fn run(
    etcd: &dyn Etcd,
    store: &dyn SnapshotStore,
    order: TakeOrder,
    clock: &Clock,
) -> Result<TakeOutcome, Error> {
    let mut status = etcd.status()?;
    let mut all = store.list()?;
    let mut warnings = Vec::new();
    let mut warn = |doing: &str, result: Result<(), Error>| {
        let problem = result.err();
        warnings.extend(problem.as_ref().map(|error| format!("{doing}: {}", chain(error))));
        problem.is_none()
    };
    warn("remove leftovers", store.sweep(clock.now()));
    let known = known(&all, status.revision).cloned();
    let broken = known.as_ref().map(|known| broken(store, known)).transpose()?.flatten();
    if let (Some(known), Some(why)) = (&known, &broken) {
        let (name, why) = (known.name.text.clone(), why.clone());
        warn("take the same revision again", Err(Error::Broken { name, why }));
    }
    let is_taken = known.is_none() || broken.is_some();
    if is_taken {
        let name = SnapshotName::new(status.revision, name::next_time(&all, clock.now()));
        let snapshot = write(etcd, store, name, limits::ETCD_DATABASE_BYTES_MAX)?;
        all.push(snapshot);
        let gone: Vec<String> =
            retention::superfluous(&all, order.keep).iter().map(|old| old.name.text.clone()).collect();
        for name in gone {
            if warn("remove an old snapshot", store.remove(&name)) {
                all.retain(|snapshot| snapshot.name.text != name);
            }
        }
    }
    let mut is_defragmented = false;
    if order.may_defragment && is_worthwhile(&status) {
        is_defragmented = warn("defragment", etcd.defragment());
        status = etcd.status().unwrap_or(status);
    }
    let is_full = |snapshot: &&Snapshot| snapshot.name.kind == Kind::Full;
    let kept = all.iter().filter(is_full).count();
    let newest = all.into_iter().rfind(|snapshot| snapshot.name.kind == Kind::Full);
    let Some(Snapshot { name: snapshot, bytes }) = newest else {
        return Err(Error::Unusable("there is no snapshot".to_owned()));
    };
    Ok(TakeOutcome { snapshot, bytes, is_taken, status, kept, is_defragmented, warnings })
}

/// The newest full snapshot, if it contains this revision and we can read it.
fn known(all: &[Snapshot], revision: u64) -> Option<&Snapshot> {
    let newest = all.iter().rfind(|snapshot| snapshot.name.kind == Kind::Full);
    newest.filter(|newest| newest.name.revision == revision && newest.name.packing != Packing::Other)
}

/// Why it cannot be restored, if the store does not hold all of it. A live etcd rarely has the revision of its newest snapshot, so
/// this is seldom read.
pub(super) fn broken(store: &dyn SnapshotStore, snapshot: &Snapshot) -> Result<Option<String>, Error> {
    match check::unpack(store, snapshot, &mut io::sink(), "nothing") {
        Ok(_) => Ok(None),
        Err(Error::Broken { why, .. }) => Ok(Some(why)),
        Err(error) => Err(error),
    }
}

/// Whether a defragmentation would free enough space to justify a pause of etcd.
fn is_worthwhile(status: &EtcdStatus) -> bool {
    let gain = status.bytes.saturating_sub(status.bytes_in_use);
    gain >= GAIN_BYTES || (gain >= GAIN_BYTES_MIN && gain >= status.bytes / 4)
}

/// Streams the database to the store. It counts only if its digest matches, also when it is read back.
pub(super) fn write(
    etcd: &dyn Etcd,
    store: &dyn SnapshotStore,
    name: SnapshotName,
    bytes_max: u64,
) -> Result<Snapshot, Error> {
    let failed =
        |error: io::Error| Error::of_store(format!("write {} to {}", name.text, store.place()), error);
    let mut from = etcd.snapshot()?;
    let mut packed = GzEncoder::new(store.create(&name.text)?, Compression::fast());
    let (mut seal, mut piece, mut bytes) = (Seal::default(), vec![0; PIECE_BYTES], 0);
    loop {
        let count = match from.read(&mut piece) {
            Ok(0) => break,
            Ok(count) => count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(Error::io("read the snapshot from etcd")(error)),
        };
        bytes += u64::try_from(count).unwrap_or(u64::MAX);
        if bytes > bytes_max {
            let why = "etcd sent more than any database has";
            return Err(Error::Refused {
                doing: "read the snapshot from etcd".to_owned(),
                why: why.to_owned(),
            });
        }
        let read = piece.get(..count).unwrap_or_default();
        seal.update(read);
        packed.write_all(read).map_err(failed)?;
    }
    let upload = packed.finish().map_err(failed)?;
    let digest = seal.digest().to_vec();
    let broken = |why: String| Error::Broken { name: name.text.clone(), why };
    seal.check().map_err(|why| broken(format!("etcd's stream broke off: {why}")))?;
    let bytes = upload.finish()?;
    let sent = Snapshot { name, bytes };
    proof::prove(store, &sent, |listed| {
        let found = check::unpack(store, listed, &mut io::sink(), "nothing")?;
        Ok(found == digest)
    })?;
    Ok(sent)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::clock::Timestamp;
    use crate::snapshot::memory::{MemoryStore, Spoil, fake, packed};

    #[test]
    fn etcd_is_defragmented_if_the_gain_justifies_a_pause() {
        let mib = |n: u64| n << 20;
        let table = [
            (0, 0, false),
            (mib(1) / 2, 0, false),
            (mib(1), 0, true),
            (mib(4), mib(3), true),
            (mib(5), mib(4), false),
            (mib(100), mib(85), false),
            (mib(100), mib(84), true),
            (mib(1), mib(2), false),
        ];
        for (bytes, bytes_in_use, expected) in table {
            assert_eq!(
                is_worthwhile(&EtcdStatus { revision: 1, bytes, bytes_in_use }),
                expected,
                "{bytes} {bytes_in_use}"
            );
        }
    }

    const ORDER: TakeOrder = TakeOrder { keep: 2, may_defragment: false };

    #[test]
    fn each_change_is_taken_once_and_old_snapshots_are_removed() {
        let (etcd, store, clock) = (fake(), MemoryStore::default(), Clock::system());
        let take = || run(&etcd, &store, ORDER, &clock).unwrap();
        let first = take();
        assert_eq!(
            (first.snapshot.revision, first.kept, first.is_taken, first.is_defragmented),
            (5, 1, true, false)
        );
        let again = take();
        assert_eq!(
            (again.snapshot, again.bytes, again.is_taken, again.kept),
            (first.snapshot.clone(), first.bytes, false, 1)
        );
        for revision in [6, 3, 4] {
            // An etcd that started again is taken too.
            etcd.revision.set(revision);
            assert!(take().is_taken);
        }
        let left: Vec<u64> = store.list().unwrap().iter().map(|s| s.name.revision).collect();
        assert_eq!(left, [3, 4]);
        let times: Vec<i64> = store.list().unwrap().iter().map(|s| s.name.time.unix()).collect();
        assert!(times[0] < times[1] && first.snapshot.time.unix() < times[0], "{times:?}");
    }

    #[test]
    fn an_incomplete_snapshot_does_not_count() {
        let (etcd, store, clock) = (fake(), MemoryStore::default(), Clock::system());
        for bytes in [0, 31, 512, 4_096, 4_127] {
            etcd.arrives.set(bytes);
            let error = chain(&run(&etcd, &store, ORDER, &clock).unwrap_err());
            assert!(error.contains("etcd's stream broke off"), "{error}");
        }
        etcd.arrives.set(usize::MAX);
        store.is_full.set(true);
        let error = chain(&run(&etcd, &store, ORDER, &clock).unwrap_err());
        assert!(error.contains("make room there, or keep fewer snapshots"), "{error}");
        assert_eq!(store.list().unwrap(), []);
    }

    #[test]
    fn an_upload_is_proved() {
        let (etcd, store, clock) = (fake(), MemoryStore::default(), Clock::system());
        let table: [(Spoil, &str); 5] = [
            (|all| all.truncate(all.len() / 2), " bytes, and was sent "),
            (Vec::clear, "the store has 0 bytes, and was sent "),
            (|all| all.push(0), " bytes, and was sent "),
            (|all| *all.last_mut().unwrap() ^= 1, "the store has something else: "),
            (
                // As long, whole, and not what was sent.
                |all| *all = (8..=u8::MAX).map(packed).find(|other| other.len() == all.len()).unwrap(),
                "the store has another content under this name",
            ),
        ];
        for (spoil, expected) in table {
            store.spoils.set(Some(spoil));
            let error = chain(&run(&etcd, &store, ORDER, &clock).unwrap_err());
            assert!(error.contains(expected), "{error}");
            assert_eq!(store.list().unwrap(), [], "nothing claims that the revision is safe");
        }
        // It stays if the store does not remove it. The next run takes the revision again.
        store.spoils.set(Some(table[0].0));
        store.is_locked.set(true);
        let error = chain(&run(&etcd, &store, ORDER, &clock).unwrap_err());
        assert!(error.ends_with("; remove it: locked"), "{error}");
        store.spoils.set(None);
        let outcome = run(&etcd, &store, ORDER, &clock).unwrap();
        assert!(outcome.is_taken && outcome.kept == 2, "{outcome:?}");
        let (again, broken) = (&outcome.warnings[1], store.list().unwrap()[0].name.text.clone());
        assert!(
            again.starts_with(&format!("take the same revision again: snapshot {broken} is broken: ")),
            "{again}"
        );
        // A whole one is enough.
        assert!(!run(&etcd, &store, ORDER, &clock).unwrap().is_taken);
    }

    #[test]
    fn a_stream_has_a_limit() {
        let (etcd, store) = (fake(), MemoryStore::default());
        let write =
            |bytes_max| write(&etcd, &store, SnapshotName::new(5, Timestamp::from_unix(1)), bytes_max);
        let error = chain(&write(4_127).unwrap_err());
        assert!(error.contains("etcd sent more than any database has"), "{error}");
        assert_eq!(store.list().unwrap(), []);
        assert!(write(4_128).is_ok());
    }

    #[test]
    fn an_existing_snapshot_is_a_success_whatever_else_fails() {
        let (etcd, store, clock) = (fake(), MemoryStore::default(), Clock::system());
        for revision in 1..=3 {
            etcd.revision.set(revision);
            run(&etcd, &store, ORDER, &clock).unwrap();
        }
        etcd.revision.set(4);
        etcd.defragments.set(Some(false));
        store.is_locked.set(true);
        let outcome = run(&etcd, &store, TakeOrder { may_defragment: true, ..ORDER }, &clock).unwrap();
        assert_eq!((outcome.snapshot.revision, outcome.kept, outcome.is_defragmented), (4, 3, false));
        let expected = ["remove leftovers: locked", "remove an old snapshot: locked", "defragment: no"];
        assert_eq!(outcome.warnings, expected);
        // Once it works, the next run repairs everything.
        etcd.in_use.set(20 << 20);
        etcd.revision.set(5);
        etcd.defragments.set(Some(true));
        store.is_locked.set(false);
        let outcome = run(&etcd, &store, TakeOrder { may_defragment: true, ..ORDER }, &clock).unwrap();
        assert_eq!((outcome.kept, outcome.is_defragmented, outcome.status.bytes_in_use), (2, true, 40 << 20));
        assert_eq!(outcome.warnings, [""; 0]);
    }
}
