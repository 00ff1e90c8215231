//! Copies what a new etcd needs from the store of one seed to that of another: the newest full snapshot and the deltas that follow it.
//!
//! All of them are read and checked before the first one is written. The newest delta is written first, and the full snapshot last: what
//! an interrupted copy leaves are deltas without the changes before them, which nobody can restore. In any other order it
//! would look like an older, complete set.

use std::cell::RefCell;
use std::io::{self, Read, Write as _};
use std::time::Duration;

use ring::digest::{Context, SHA256};

use super::check;
use super::error::Error;
use super::name::{Kind, Snapshot, SnapshotName};
use super::proof;
use super::store::SnapshotStore;
use crate::base::clock::Clock;
use crate::base::error::chain;
use crate::base::sorted::SortedMap;
use crate::base::stop::Stop;

mod plan;
#[cfg(test)]
mod tests;

pub(crate) use plan::{CopyOrder, Refusal};
use plan::{CopyStep, Listings, SnapshotSet, plan};

/// How often the source is asked for a final snapshot.
const POLL: Duration = Duration::from_secs(5);
/// The buffer size for copies.
const PIECE_BYTES: usize = 32 << 10;

/// What the target has after a copy.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct CopyOutcome {
    /// The full snapshot, under its name in the target. There is none if the source had none, and this was accepted.
    pub(crate) full: Option<SnapshotName>,
    /// The number of deltas that belong to it.
    pub(crate) deltas: usize,
    /// The last revision that can be restored from them.
    pub(crate) revision: u64,
    /// The number of snapshots that this run has copied; the target had the others.
    pub(crate) copied: usize,
    /// Their stored size.
    pub(crate) bytes: u64,
    /// What is lost, if anything.
    pub(crate) lost: Option<String>,
    /// Whether an etcd starts empty with this target.
    pub(crate) starts_empty: bool,
}

/// How a copy ends.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum CopyEnd {
    Done(CopyOutcome),
    Refused(Refusal),
}

/// The clock of a copy, and what ends it early.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Waiting<'a> {
    pub(crate) clock: &'a Clock,
    /// Ends the wait for a final snapshot.
    pub(crate) stop: &'a Stop,
}

/// What was found out about the snapshots of the source.
#[derive(Default)]
struct Inspected {
    /// The SHA-256 of each whole one as it is stored, by name.
    digests: SortedMap<String, Vec<u8>>,
    /// Why the others cannot be restored, by name.
    broken: SortedMap<String, String>,
}

/// Waits for a final snapshot and copies it. `say` gets messages for the log. Errors: a store cannot be read or written, or holds something
/// else than it was sent; that is never taken for an empty store.
pub(crate) fn run(
    from: &dyn SnapshotStore,
    to: &dyn SnapshotStore,
    order: CopyOrder,
    waiting: Waiting<'_>,
    say: &mut dyn FnMut(&str),
) -> Result<CopyEnd, Error> {
    let Waiting { clock, stop } = waiting;
    let begun = clock.mono();
    let (mut inspected, mut said) = (Inspected::default(), String::new());
    loop {
        let waited = clock.mono().saturating_sub(begun);
        let step = match from.list() {
            Ok(source) => {
                let target = to.list()?;
                let found = Listings { source: &source, target: &target, broken: &inspected.broken };
                match plan(&found, order, waited) {
                    CopyStep::Copy(set) if inspected.look(from, &set)? => {
                        return copy(from, to, &target, &set, &inspected).map(CopyEnd::Done);
                    }
                    // One of them is broken, so the next plan is another one.
                    CopyStep::Copy(_) => continue,
                    CopyStep::Nothing(why) => return Ok(CopyEnd::Done(nothing(from, to, &target, &why))),
                    CopyStep::Refuse(refusal) => {
                        let why = format!("{}: {}", from.place(), refusal.why);
                        return Ok(CopyEnd::Refused(Refusal { why, ..refusal }));
                    }
                    CopyStep::Wait(why) => format!("{}: {why}", from.place()),
                }
            }
            // The network may come back while there is time to wait.
            Err(error @ Error::Net { .. }) if waited < order.patience => chain(&error),
            Err(error) => return Err(error),
        };
        if said != step {
            say(&format!("waiting for a final snapshot: {step}"));
            said = step;
        }
        if stop.wait(clock, POLL.min(order.patience.saturating_sub(waited))) {
            return Err(Error::Unusable("stopped while waiting for a final snapshot".to_owned()));
        }
    }
}

/// The result without a snapshot to copy.
fn nothing(from: &dyn SnapshotStore, to: &dyn SnapshotStore, target: &[Snapshot], why: &str) -> CopyOutcome {
    let newest = target.iter().rfind(|snapshot| snapshot.name.kind == Kind::Full);
    let place = to.place();
    let end = match newest.map(|newest| &newest.name) {
        Some(name) => {
            format!(
                "etcd starts with {} (revision {}), which {place} has from before",
                name.text, name.revision
            )
        }
        None if target.is_empty() => "etcd starts empty".to_owned(),
        None => format!("etcd does not start until the deltas in {place} are moved away"),
    };
    let lost = Some(format!("{}: {why}; {end}", from.place()));
    let revision = newest.map_or(0, |newest| newest.name.revision);
    CopyOutcome { lost, revision, starts_empty: target.is_empty(), ..CopyOutcome::default() }
}

impl Inspected {
    /// Reads what was not read before, and returns whether all can be restored.
    fn look(&mut self, from: &dyn SnapshotStore, set: &SnapshotSet) -> Result<bool, Error> {
        for snapshot in set.all() {
            let name = &snapshot.name.text;
            if self.digests.contains_key(name.as_str()) {
                continue;
            }
            match inspect(from, snapshot) {
                Ok(digest) => drop(self.digests.insert(name.clone(), digest)),
                Err(Error::Broken { why, .. }) => {
                    self.broken.insert(name.clone(), why);
                    return Ok(false);
                }
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }
}

/// Hashes the bytes of a snapshot as they are stored.
struct StoredSum {
    context: Context,
    bytes: u64,
}

impl StoredSum {
    fn new() -> Self {
        Self { context: Context::new(&SHA256), bytes: 0 }
    }

    fn update(&mut self, piece: &[u8]) {
        self.context.update(piece);
        self.bytes = self.bytes.saturating_add(u64::try_from(piece.len()).unwrap_or(u64::MAX));
    }

    /// The digest, if the store gave as many bytes as it lists.
    fn of(self, snapshot: &Snapshot) -> Result<Vec<u8>, Error> {
        if self.bytes == snapshot.bytes {
            return Ok(self.context.finish().as_ref().to_vec());
        }
        let why = format!("the store lists {} bytes, and gave {}", snapshot.bytes, self.bytes);
        Err(Error::Broken { name: snapshot.name.text.clone(), why })
    }
}

/// A reader that hashes what passes through it.
struct Summed<'a> {
    from: Box<dyn Read + 'a>,
    sum: &'a RefCell<StoredSum>,
}

impl Read for Summed<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.from.read(buffer)?;
        self.sum.borrow_mut().update(buffer.get(..count).unwrap_or_default());
        Ok(count)
    }
}

/// Checks a snapshot as a restoration does. Returns the digest of what is stored.
fn inspect(store: &dyn SnapshotStore, snapshot: &Snapshot) -> Result<Vec<u8>, Error> {
    let sum = RefCell::new(StoredSum::new());
    let content = Summed { from: store.open(snapshot)?, sum: &sum };
    check::unpack_from(Box::new(content), store, snapshot, &mut io::sink(), "nothing")?;
    sum.into_inner().of(snapshot)
}

/// Reads a snapshot to its end in pieces, and returns the digest of what is stored.
fn read(
    store: &dyn SnapshotStore,
    snapshot: &Snapshot,
    take: &mut dyn FnMut(&[u8]) -> Result<(), Error>,
) -> Result<Vec<u8>, Error> {
    let doing = || format!("read {} of {}", snapshot.name.text, store.place());
    let (mut from, mut sum, mut piece) = (store.open(snapshot)?, StoredSum::new(), vec![0; PIECE_BYTES]);
    loop {
        match from.read(&mut piece) {
            Ok(0) => return sum.of(snapshot),
            Ok(count) => {
                let read = piece.get(..count).unwrap_or_default();
                sum.update(read);
                take(read)?;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(Error::of_store(doing(), error)),
        }
    }
}

fn digest(store: &dyn SnapshotStore, snapshot: &Snapshot) -> Result<Vec<u8>, Error> {
    read(store, snapshot, &mut |_| Ok(()))
}

/// Copies the members that the target lacks.
fn copy(
    from: &dyn SnapshotStore,
    to: &dyn SnapshotStore,
    target: &[Snapshot],
    set: &SnapshotSet,
    inspected: &Inspected,
) -> Result<CopyOutcome, Error> {
    let mut outcome = CopyOutcome {
        full: Some(set.full.name.continued()),
        deltas: set.deltas.len(),
        revision: set.newest().name.revision,
        lost: set.lost.clone(),
        ..CopyOutcome::default()
    };
    for snapshot in set.all().rev() {
        let wanted = inspected.digests.get(snapshot.name.text.as_str()).map_or(&[][..], Vec::as_slice);
        let name = snapshot.name.continued();
        let present = target.iter().find(|present| present.name == name);
        if present.map(|present| is_intact(to, present, wanted)).transpose()? != Some(true) {
            copy_one(from, to, snapshot, wanted)?;
            outcome.copied += 1;
            outcome.bytes += snapshot.bytes;
        }
    }
    Ok(outcome)
}

/// Whether the target already has this snapshot. A damaged one is replaced. Errors: it has another one, which is whole.
fn is_intact(to: &dyn SnapshotStore, present: &Snapshot, wanted: &[u8]) -> Result<bool, Error> {
    match inspect(to, present) {
        Ok(found) if found == wanted => Ok(true),
        Ok(_) => Err(Error::Unusable(format!(
            "{} has another snapshot {}: move it away if nobody needs it",
            to.place(),
            present.name.text
        ))),
        Err(Error::Broken { .. }) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Copies a snapshot, and reads it back.
fn copy_one(
    from: &dyn SnapshotStore,
    to: &dyn SnapshotStore,
    snapshot: &Snapshot,
    wanted: &[u8],
) -> Result<(), Error> {
    let name = snapshot.name.continued();
    let doing = format!("write {} to {}", name.text, to.place());
    let mut upload = to.create(&name.text)?;
    let found = read(from, snapshot, &mut |piece| {
        upload.write_all(piece).map_err(|error| Error::of_store(doing.clone(), error))
    })?;
    if found != wanted {
        let why = "it has changed since it was checked".to_owned();
        return Err(Error::Broken { name: snapshot.name.text.clone(), why });
    }
    let bytes = upload.finish()?;
    proof::prove(to, &Snapshot { name, bytes }, |listed| Ok(digest(to, listed)? == wanted))
}
