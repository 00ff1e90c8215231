//! The requests to the server, in order.

use std::sync::{Mutex, MutexGuard, PoisonError};

use gardenlet::base::clock::Timestamp;
use serde_json::Value;

use crate::api::request::Info;

/// One request.
#[derive(Clone, Debug)]
pub struct Recorded {
    /// Position among all requests of the server, from 0.
    pub sequence: u64,
    pub at: Timestamp,
    pub connection: u64,
    pub method: String,
    pub path: String,
    pub query: String,
    pub user: String,
    pub user_agent: String,
    /// The `Host` header.
    pub host: String,
    pub info: Info,
    /// 0 until the answer is known, and if there was none.
    pub status: u16,
    /// Of writes.
    pub body: Option<Value>,
    pub media_type: String,
    /// Events sent, of a watch.
    pub events: u64,
    /// Whether the exchange is over, as seen by the server.
    pub ended: bool,
    /// The fault that was applied to it.
    pub fault: Option<String>,
}

impl Recorded {
    /// Whether it is a write.
    pub fn is_write(&self) -> bool {
        matches!(self.method.as_str(), "POST" | "PUT" | "PATCH" | "DELETE")
    }

    /// `PATCH /api/v1/...?...`, for messages.
    pub fn line(&self) -> String {
        let question = if self.query.is_empty() { "" } else { "?" };
        format!("{} {}{question}{} -> {}", self.method, self.path, self.query, self.status)
    }
}

/// All of them.
#[derive(Debug, Default)]
pub struct Record(Mutex<Vec<Recorded>>);

impl Record {
    fn lock(&self) -> MutexGuard<'_, Vec<Recorded>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a request. Returns its place.
    pub fn push(&self, mut request: Recorded) -> u64 {
        let mut all = self.lock();
        request.sequence = all.len() as u64;
        all.push(request);
        all.len() as u64 - 1
    }

    /// Adds details that are known later.
    pub fn update(&self, sequence: u64, change: impl FnOnce(&mut Recorded)) {
        if let Some(request) = self.lock().get_mut(sequence as usize) {
            change(request);
        }
    }

    pub fn all(&self) -> Vec<Recorded> {
        self.lock().clone()
    }

    pub fn count(&self) -> usize {
        self.lock().len()
    }

    /// Those from a place on.
    pub fn since(&self, sequence: usize) -> Vec<Recorded> {
        self.lock().get(sequence..).unwrap_or_default().to_vec()
    }
}
