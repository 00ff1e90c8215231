//! The last snapshot of an etcd whose Shoot moves to another seed. Nobody writes to this etcd any more, and its name says so: the
//! other seed waits for it.

use super::error::Error;
use super::name::{self, Kind, Snapshot, SnapshotName};
use super::store::SnapshotStore;
use super::take::{self, Etcd, TakeOutcome};
use crate::base::clock::Clock;
use crate::limits;

/// Takes the snapshot, unless the newest one of the store is final, has the present revision, and is whole. Removes nothing,
/// because the other seed may need older ones, and does not defragment. Errors: the store has no such snapshot at the end.
pub(crate) fn run(etcd: &dyn Etcd, store: &dyn SnapshotStore, clock: &Clock) -> Result<TakeOutcome, Error> {
    let status = etcd.status()?;
    let mut all = store.list()?;
    let newest = all.last().filter(|newest| {
        newest.name.is_final && newest.name.kind == Kind::Full && newest.name.revision == status.revision
    });
    let mut warnings = Vec::new();
    let whole = match newest.map(|newest| take::broken(store, newest)).transpose()? {
        None => None,
        Some(None) => newest.cloned(),
        Some(Some(why)) => {
            warnings.extend(newest.map(|newest| {
                format!("take the same revision again: {} is broken: {why}", newest.name.text)
            }));
            None
        }
    };
    let is_taken = whole.is_none();
    let Snapshot { name, bytes } = match whole {
        Some(whole) => whole,
        None => {
            let name = SnapshotName::new_final(status.revision, name::next_time(&all, clock.now()));
            let taken = take::write(etcd, store, name, limits::ETCD_DATABASE_BYTES_MAX)?;
            all.push(taken.clone());
            taken
        }
    };
    let kept = all.iter().filter(|snapshot| snapshot.name.kind == Kind::Full).count();
    Ok(TakeOutcome { snapshot: name, bytes, is_taken, status, kept, is_defragmented: false, warnings })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::snapshot::memory::{MemoryStore, fake, packed};
    use crate::snapshot::take::TakeOrder;

    #[test]
    fn the_last_snapshot_is_taken_once_for_each_revision() {
        let (etcd, store, clock) = (fake(), MemoryStore::default(), Clock::system());
        take::run(&etcd, &store, TakeOrder { keep: 1, may_defragment: false }, &clock).unwrap();
        let last = || run(&etcd, &store, &clock).unwrap();
        // The newest one has this revision, and is not final. It stays.
        let first = last();
        assert!(first.is_taken && first.snapshot.is_final && first.kept == 2, "{first:?}");
        assert!(first.snapshot.text.ends_with(".gz.final") && !first.is_defragmented);
        let again = last();
        assert!(!again.is_taken && again.snapshot == first.snapshot && again.bytes == first.bytes);
        // Somebody has written nevertheless.
        etcd.revision.set(6);
        let second = last();
        assert!(second.is_taken && second.snapshot.order() > first.snapshot.order(), "{second:?}");
        assert_eq!((second.kept, store.list().unwrap().len()), (3, 3));
        // A snapshot behind it, of a run that was late or of another program.
        for name in ["Full-00000000-00000006-9000000000.gz", "Incr-00000007-00000007-9000000005.gz"] {
            store.put(name, packed(1));
            assert!(last().is_taken, "{name}");
            assert!(!last().is_taken, "{name}");
        }
    }

    #[test]
    fn a_broken_last_snapshot_does_not_count() {
        let (etcd, store, clock) = (fake(), MemoryStore::default(), Clock::system());
        let first = run(&etcd, &store, &clock).unwrap().snapshot;
        store.all.borrow_mut()[0].1.truncate(20);
        let second = run(&etcd, &store, &clock).unwrap();
        assert!(second.is_taken && second.snapshot.order() > first.order());
        let expected = format!("take the same revision again: {} is broken: ", first.text);
        assert!(second.warnings[0].starts_with(&expected), "{:?}", second.warnings);
        // One that the store spoils is an error, and does not stay.
        etcd.revision.set(7);
        store.spoils.set(Some(|all| all.truncate(9)));
        let error = run(&etcd, &store, &clock).unwrap_err();
        assert!(matches!(error, Error::Broken { .. }), "{error}");
        assert!(store.list().unwrap().iter().all(|snapshot| snapshot.name.revision != 7));
    }
}
