//! Connections that wait for the next request, where there are many servers: only those to the servers asked last stay open.
//! An idle connection takes more memory than all else that is known of a server that is well.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use super::session::Session;

/// What clients of many servers share. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Warm {
    max: usize,
    /// The session asked last is at the end.
    recent: Arc<Mutex<VecDeque<Weak<Session>>>>,
}

impl Warm {
    /// So many servers keep their idle connections.
    pub fn up_to(max: usize) -> Self {
        Self { max, recent: Arc::default() }
    }

    /// The session is about to send a request. Whose turn was longest ago hangs up: a request that is under way ends first.
    pub(super) fn uses(&self, session: &Arc<Session>) {
        let mut cold = Vec::new();
        {
            // Single calls change the list: no panic can leave it half changed.
            let mut recent = self.recent.lock().unwrap_or_else(PoisonError::into_inner);
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
