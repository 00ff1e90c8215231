//! An etcd and a store in memory, for tests.

use std::cell::{Cell, RefCell};
use std::io::{self, Read, Write as _};

use flate2::Compression;
use flate2::write::GzEncoder;
use ring::digest::{SHA256, digest};

use super::error::Error;
use super::gateway::EtcdStatus;
use super::name::{self, Snapshot};
use super::store::{SnapshotStore, Upload};
use super::take::Etcd;
use crate::base::clock::Timestamp;

/// An etcd whose stream has eight sectors, of which this number of bytes arrive.
pub(super) struct Fake {
    pub(super) revision: Cell<u64>,
    pub(super) in_use: Cell<u64>,
    pub(super) arrives: Cell<usize>,
    pub(super) defragments: Cell<Option<bool>>,
}

pub(super) fn fake() -> Fake {
    let (arrives, in_use) = (Cell::new(usize::MAX), Cell::new(20 << 20));
    Fake { revision: Cell::new(5), in_use, arrives, defragments: Cell::new(Some(true)) }
}

impl Etcd for Fake {
    fn status(&self) -> Result<EtcdStatus, Error> {
        Ok(EtcdStatus { revision: self.revision.get(), bytes: 40 << 20, bytes_in_use: self.in_use.get() })
    }

    fn snapshot(&self) -> Result<Box<dyn Read + '_>, Error> {
        let mut all = sealed(&[7; 4_096]);
        all.truncate(self.arrives.get());
        Ok(Box::new(io::Cursor::new(all)))
    }

    fn defragment(&self) -> Result<(), Error> {
        self.in_use.set(40 << 20);
        match self.defragments.get() {
            Some(true) => Ok(()),
            _ => Err(Error::Unusable("no".to_owned())),
        }
    }
}

/// A content followed by its digest.
fn sealed(content: &[u8]) -> Vec<u8> {
    [content, digest(&SHA256, content).as_ref()].concat()
}

/// A content followed by its digest, packed.
pub(super) fn packed_content(content: &[u8]) -> Vec<u8> {
    let mut packed = GzEncoder::new(Vec::new(), Compression::fast());
    packed.write_all(&sealed(content)).unwrap();
    packed.finish().unwrap()
}

/// A snapshot of a database of this byte.
pub(super) fn packed(byte: u8) -> Vec<u8> {
    packed_content(&vec![byte; 4_096])
}

pub(super) type Spoil = fn(&mut Vec<u8>);

/// A store in memory whose uploads may fail at their end, and whose removals may fail.
#[derive(Debug, Default)]
pub(super) struct MemoryStore {
    pub(super) all: RefCell<Vec<(String, Vec<u8>)>>,
    pub(super) is_full: Cell<bool>,
    pub(super) is_locked: Cell<bool>,
    /// What it does to a finished upload.
    pub(super) spoils: Cell<Option<Spoil>>,
    /// How many lists fail first.
    pub(super) is_away: Cell<u32>,
}

impl MemoryStore {
    pub(super) fn with(all: &[(&str, Vec<u8>)]) -> Self {
        let store = Self::default();
        all.iter().for_each(|(name, content)| store.put(name, content.clone()));
        store
    }

    pub(super) fn put(&self, name: &str, content: Vec<u8>) {
        self.all.borrow_mut().retain(|(other, _)| other != name);
        self.all.borrow_mut().push((name.to_owned(), content));
    }

    /// All names, in the order in which they were written.
    pub(super) fn names(&self) -> Vec<String> {
        self.all.borrow().iter().map(|(name, _)| name.clone()).collect()
    }
}

struct Put<'a> {
    store: &'a MemoryStore,
    name: String,
    content: Vec<u8>,
}

impl io::Write for Put<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.store.is_full.get() {
            return Err(io::ErrorKind::StorageFull.into());
        }
        self.content.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Upload for Put<'_> {
    fn finish(mut self: Box<Self>) -> Result<u64, Error> {
        let bytes = u64::try_from(self.content.len()).unwrap();
        if let Some(spoil) = self.store.spoils.get() {
            spoil(&mut self.content);
        }
        self.store.put(&self.name, std::mem::take(&mut self.content));
        Ok(bytes)
    }
}

impl SnapshotStore for MemoryStore {
    fn place(&self) -> String {
        "memory".to_owned()
    }

    fn list(&self) -> Result<Vec<Snapshot>, Error> {
        if self.is_away.get() > 0 {
            self.is_away.set(self.is_away.get() - 1);
            return Err(Error::Net { doing: "list snapshots".to_owned(), source: crate::net::Error::Closed });
        }
        let all = self.all.borrow();
        Ok(name::snapshots(all.iter().map(|(name, all)| (name.clone(), u64::try_from(all.len()).unwrap()))))
    }

    fn open(&self, snapshot: &Snapshot) -> Result<Box<dyn Read + '_>, Error> {
        let all = self.all.borrow();
        let found = all.iter().find(|(name, _)| *name == snapshot.name.text);
        let content = found.map(|(_, content)| content.clone());
        Ok(Box::new(io::Cursor::new(content.ok_or_else(|| Error::Unusable("gone".to_owned()))?)))
    }

    fn create(&self, name: &str) -> Result<Box<dyn Upload + '_>, Error> {
        Ok(Box::new(Put { store: self, name: name.to_owned(), content: Vec::new() }))
    }

    fn remove(&self, name: &str) -> Result<(), Error> {
        if self.is_locked.get() {
            return Err(Error::Unusable("locked".to_owned()));
        }
        self.all.borrow_mut().retain(|(other, _)| other != name);
        Ok(())
    }

    fn sweep(&self, _: Timestamp) -> Result<(), Error> {
        if self.is_locked.get() { Err(Error::Unusable("locked".to_owned())) } else { Ok(()) }
    }
}
