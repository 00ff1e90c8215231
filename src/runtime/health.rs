//! Whether the program's own threads make progress, for `/livez` and a watchdog. The garden's state does not matter.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::base::clock::{Clock, Mono};
use crate::base::lock::IgnorePoison;
use crate::base::sorted::SortedMap;

#[derive(Debug)]
struct Beat {
    at: Mono,
    within: Duration,
}

/// Each long-lived thread reports progress, and how soon it will report again. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct ThreadProgress {
    clock: Clock,
    beats: Arc<Mutex<SortedMap<&'static str, Beat>>>,
}

impl ThreadProgress {
    /// Without any reports.
    pub(crate) fn new(clock: Clock) -> Self {
        Self { clock, beats: Arc::default() }
    }

    /// `thread` makes progress and will report again `within` this time.
    pub(crate) fn beat(&self, thread: &'static str, within: Duration) {
        let beat = Beat { at: self.clock.mono(), within };
        self.beats.lock().ignore_poison().insert(thread, beat);
    }

    /// `thread` has ended regularly.
    pub(crate) fn end(&self, thread: &'static str) {
        self.beats.lock().ignore_poison().remove(thread);
    }

    /// The threads whose report is overdue.
    pub(crate) fn stuck(&self) -> Vec<&'static str> {
        let now = self.clock.mono();
        let beats = self.beats.lock().ignore_poison();
        beats.iter().filter(|(_, b)| now > b.at.saturating_add(b.within)).map(|(name, _)| *name).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::clock::{Simulated, Timestamp};

    #[test]
    fn a_thread_with_an_overdue_report_is_named() {
        let sim = Simulated::new(Timestamp::from_unix(0), 1);
        let progress = ThreadProgress::new(Clock::new(sim.clone()));
        progress.beat("heartbeat", Duration::from_secs(30));
        progress.beat("bring-up", Duration::from_secs(300));
        assert!(progress.stuck().is_empty());
        sim.advance(Duration::from_secs(31));
        assert_eq!(progress.stuck(), ["heartbeat"]);
        progress.end("heartbeat");
        assert!(progress.stuck().is_empty());
    }
}
