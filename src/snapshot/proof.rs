//! The proof that a store holds what it was sent.

use super::error::Error;
use super::name::Snapshot;
use super::store::SnapshotStore;
use crate::base::error::chain;

/// Looks for what was sent, and reads it back with `is_same`. What the store holds instead is removed, because its name says that
/// the revision is safe.
pub(super) fn prove(
    store: &dyn SnapshotStore,
    sent: &Snapshot,
    is_same: impl FnOnce(&Snapshot) -> Result<bool, Error>,
) -> Result<(), Error> {
    let listed = store.list()?.into_iter().find(|listed| listed.name == sent.name);
    let why = match listed {
        None => "the store does not list it".to_owned(),
        Some(listed) if listed.bytes != sent.bytes => {
            format!("the store has {} bytes, and was sent {}", listed.bytes, sent.bytes)
        }
        Some(listed) => match is_same(&listed) {
            Ok(true) => return Ok(()),
            Ok(false) => "the store has another content under this name".to_owned(),
            Err(Error::Broken { why, .. }) => format!("the store has something else: {why}"),
            Err(error) => return Err(error),
        },
    };
    let removed = store.remove(&sent.name.text).err();
    let left = removed.map(|error| format!("; remove it: {}", chain(&error))).unwrap_or_default();
    Err(Error::Broken { name: sent.name.text.clone(), why: format!("{why}{left}") })
}
