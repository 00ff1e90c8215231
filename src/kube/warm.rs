//! Limits idle connections to many servers: only the most recently used servers keep theirs. An idle connection takes
//! more memory than all other data of a healthy server.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, Weak};

use super::session::Session;

use crate::base::lock::IgnorePoison;

/// Shared by the clients of many servers. Cheap to clone.
#[derive(Clone, Debug)]
pub struct WarmConnections {
    max: usize,
    /// The most recently used session is last.
    recent: Arc<Mutex<VecDeque<Weak<Session>>>>,
}

impl WarmConnections {
    /// At most this many servers keep idle connections.
    pub fn up_to(max: usize) -> Self {
        Self { max, recent: Arc::default() }
    }

    /// The session is about to send a request. The least recently used one hangs up after its request
    /// in flight has ended.
    pub(super) fn uses(&self, session: &Arc<Session>) {
        let mut cold = Vec::new();
        {
            // Single calls change the list: no panic can leave it half changed.
            let mut recent = self.recent.lock().ignore_poison();
            let this = Arc::as_ptr(session);
            if recent.back().is_some_and(|last| last.as_ptr() == this) {
                return;
            }
            recent.retain(|other| other.as_ptr() != this && other.strong_count() > 0);
            recent.push_back(Arc::downgrade(session));
            while recent.len() > self.max {
                cold.extend(recent.pop_front());
            }
        }
        cold.iter().filter_map(Weak::upgrade).for_each(|session| session.hang_up());
    }
}
