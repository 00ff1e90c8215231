//! The buckets of a test, in memory. Several seeds share them: each holds snapshots of etcds, by bucket and prefix. A test sets
//! faults of a bucket, or damages what is in it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde_json::Value;

use super::said;
use crate::api::kinds::Kinds;
use crate::api::store::{Id, Store};
use crate::json::text;

/// How much a restoration raises the revision, so that no client sees one twice.
pub const RAISE: u64 = 1_000_000_000;

/// What an etcd held at a revision.
#[derive(Clone)]
pub struct Content {
    objects: Arc<BTreeMap<Id, Arc<Value>>>,
    kinds: Kinds,
}

/// One full snapshot.
#[derive(Clone)]
pub struct Snapshot {
    /// `Full-00000000-00000123-1767600000.gz`, without the mark of a final one.
    pub name: String,
    pub revision: u64,
    /// Nothing is written after it: its name ends with `.final`.
    pub is_final: bool,
    /// Its checksum is wrong.
    pub is_broken: bool,
    /// None: that etcd never had an API server.
    pub content: Option<Content>,
}

impl fmt::Debug for Snapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.file())
    }
}

impl Snapshot {
    /// The content of a storage now.
    pub fn of(store: &Store, unix: i64, is_final: bool) -> Self {
        let state = store.read();
        let content = Content { objects: Arc::new(state.objects.clone()), kinds: state.kinds.clone() };
        Self::new(state.revision, Some(content), unix, is_final)
    }

    /// That of an etcd that never had an API server.
    pub fn empty(unix: i64, is_final: bool) -> Self {
        Self::new(1, None, unix, is_final)
    }

    fn new(revision: u64, content: Option<Content>, unix: i64, is_final: bool) -> Self {
        let name = format!("Full-00000000-{revision:08}-{unix}.gz");
        Self { name, revision, is_final, is_broken: false, content }
    }

    /// The name of its file.
    pub fn file(&self) -> String {
        format!("{}{}", self.name, if self.is_final { ".final" } else { "" })
    }

    /// Replaces a storage by it, as `etcdutl` with a raised revision that is marked as compacted.
    pub fn load_into(&self, store: &Store) {
        let Some(content) = &self.content else { return };
        store.write(|state| {
            state.objects = (*content.objects).clone();
            state.kinds = content.kinds.clone();
            state.revision = self.revision + RAISE;
            state.compact();
        });
    }
}

/// The identity of a cluster: what was restored from a snapshot has the same.
pub fn lineage(store: &Store) -> String {
    let namespace = store.get("", "namespaces", "", "kube-system").unwrap_or_default();
    text(&namespace, "/metadata/uid").to_owned()
}

/// What is wrong with a bucket.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Fault {
    /// Nobody answers.
    Away,
    /// What is stored is damaged on the way.
    Damages,
}

/// Bucket, and prefix in it.
type Shelf = (String, String);

#[derive(Default)]
struct Inner {
    shelves: BTreeMap<Shelf, Vec<Snapshot>>,
    faults: BTreeSet<(String, Fault)>,
}

/// See the module. Cheap to clone; clones share the buckets.
#[derive(Clone, Default)]
pub struct Buckets(Arc<Mutex<Inner>>);

impl fmt::Debug for Buckets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(&self.inner().shelves).finish()
    }
}

impl Buckets {
    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes a fault of a bucket, or ends it.
    pub fn set_fault(&self, bucket: &str, fault: Fault, is_on: bool) {
        let entry = (bucket.to_owned(), fault);
        let mut inner = self.inner();
        if is_on {
            inner.faults.insert(entry);
        } else {
            inner.faults.remove(&entry);
        }
    }

    fn has(&self, bucket: &str, fault: Fault) -> bool {
        self.inner().faults.contains(&(bucket.to_owned(), fault))
    }

    /// The snapshots under a prefix, the oldest first: what the test sees, whatever the faults.
    pub fn all(&self, bucket: &str, prefix: &str) -> Vec<Snapshot> {
        let shelf = (bucket.to_owned(), prefix.to_owned());
        self.inner().shelves.get(&shelf).cloned().unwrap_or_default()
    }

    /// The same for a program.
    ///
    /// # Errors
    /// Nobody answers.
    pub fn list(&self, bucket: &str, prefix: &str) -> Result<Vec<Snapshot>, String> {
        if self.has(bucket, Fault::Away) {
            return Err(format!("list s3://{bucket}/{prefix}: {}", said::UNREACHABLE));
        }
        Ok(self.all(bucket, prefix))
    }

    /// Stores a snapshot. One of the same name is replaced.
    ///
    /// # Errors
    /// Nobody answers.
    pub fn put(&self, bucket: &str, prefix: &str, mut snapshot: Snapshot) -> Result<(), String> {
        if self.has(bucket, Fault::Away) {
            let file = snapshot.file();
            return Err(format!("put s3://{bucket}/{prefix}/v2/{file}: {}", said::UNREACHABLE));
        }
        snapshot.is_broken |= self.has(bucket, Fault::Damages);
        let mut inner = self.inner();
        let shelf = inner.shelves.entry((bucket.to_owned(), prefix.to_owned())).or_default();
        shelf.retain(|present| present.file() != snapshot.file());
        shelf.push(snapshot);
        shelf.sort_by_key(|snapshot| snapshot.revision);
        Ok(())
    }

    /// Deletes one file.
    pub fn drop_file(&self, bucket: &str, prefix: &str, file: &str) {
        let shelf = (bucket.to_owned(), prefix.to_owned());
        if let Some(all) = self.inner().shelves.get_mut(&shelf) {
            all.retain(|snapshot| snapshot.file() != file);
        }
    }

    /// Deletes everything whose prefix begins so.
    pub fn remove(&self, bucket: &str, prefix: &str) {
        self.inner().shelves.retain(|(of, path), _| of != bucket || !path.starts_with(prefix));
    }

    fn change(&self, bucket: &str, prefix: &str, change: impl Fn(&mut Snapshot)) {
        let shelf = (bucket.to_owned(), prefix.to_owned());
        self.inner().shelves.get_mut(&shelf).into_iter().flatten().for_each(change);
    }

    /// Damages all snapshots under a prefix.
    pub fn damage(&self, bucket: &str, prefix: &str) {
        self.change(bucket, prefix, |snapshot| snapshot.is_broken = true);
    }

    /// Takes the mark of a final one from all snapshots under a prefix.
    pub fn unmark(&self, bucket: &str, prefix: &str) {
        self.change(bucket, prefix, |snapshot| snapshot.is_final = false);
    }
}
