//! Watches: a stream of events over a connection of its own.

use std::marker::PhantomData;

use serde::de::DeserializeOwned;

use super::error::Error;
use crate::api::meta::Key;

/// What a watch yields.
#[derive(Debug)]
pub enum WatchEvent<T> {
    /// The object is new to the watch.
    Added(T),
    /// The object changed.
    Modified(T),
    /// The object is gone, or no longer selected; this is its last state.
    Deleted(T),
    /// Nothing changed up to this resourceVersion.
    Bookmark(String),
    /// An object that does not have the shape that we expect, with the reason. The watch goes on.
    Undecodable(Key, String),
}

/// A running watch. It ends on the server after its timeout; begin the next one at the last resourceVersion seen.
#[derive(Debug)]
pub struct Watch<T> {
    handle: WatchHandle,
    marker: PhantomData<fn() -> T>,
}

impl<T: DeserializeOwned> Watch<T> {
    /// Waits for the next event. `None` when the server has ended the watch in order; after an error there is nothing
    /// more.
    #[allow(clippy::should_implement_trait)] // it blocks and its errors end it: not a collection
    pub fn next(&mut self) -> Option<Result<WatchEvent<T>, Error>> {
        None
    }

    /// A handle that ends the watch from another thread.
    pub fn handle(&self) -> WatchHandle {
        self.handle.clone()
    }
}

/// Ends a watch from another thread, also while it waits for an event.
#[derive(Clone, Debug)]
pub struct WatchHandle {}

impl WatchHandle {
    /// Ends the watch: its blocked `next` returns [`Error::Stopped`].
    pub fn close(&self) {}
}
