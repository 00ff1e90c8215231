//! Bounds the memory of answers: that of each object, and that of all clients together.
//!
//! An object takes memory twice. Its text grows while it arrives, so a long text needs one of few permits, which the client
//! may hold for as long as the server takes. Its values are made at once, and may take a hundred times the memory of the text. An
//! object with many of them needs one of even fewer permits of all clients, until it is decoded. The holder of a permit for
//! values never waits for anything, so nobody waits forever.

use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::Duration;

use crate::base::clock::Clock;
use crate::base::lock::IgnorePoison;
use crate::base::stop::Stop;
use crate::limits;

/// Permits of which there are few. Cheap to clone; clones share them.
#[derive(Clone, Debug)]
pub(crate) struct Permits(Arc<PermitPool>);

#[derive(Debug)]
struct PermitPool {
    left: Mutex<usize>,
    returned: Condvar,
}

/// One permit. Dropping it returns it.
#[derive(Debug)]
pub(crate) struct HeldPermit(Permits);

impl Drop for HeldPermit {
    fn drop(&mut self) {
        *self.0.lock() += 1;
        self.0.0.returned.notify_one();
    }
}

/// How often a waiting thread checks whether the program stops.
const STOP_CHECK: Duration = Duration::from_millis(100);

impl Permits {
    pub(crate) fn new(count: usize) -> Self {
        Self(Arc::new(PermitPool { left: Mutex::new(count), returned: Condvar::new() }))
    }

    fn lock(&self) -> MutexGuard<'_, usize> {
        // A number: no panic leaves it half changed.
        self.0.left.lock().ignore_poison()
    }

    /// Takes one, and waits for it. In real time, because sockets wait in real time.
    pub(super) fn take(&self, wait_max: Duration, stop: &Stop) -> Option<HeldPermit> {
        let clock = Clock::system();
        let mut left = self.lock();
        while *left == 0 {
            let rest = wait_max.saturating_sub(clock.mono());
            if rest.is_zero() || stop.is_stopped() {
                return None;
            }
            let waited = self.0.returned.wait_timeout(left, rest.min(STOP_CHECK));
            left = waited.ignore_poison().0;
        }
        *left -= 1;
        drop(left);
        Some(HeldPermit(self.clone()))
    }
}

/// The limits of the answers of a server.
#[derive(Clone, Debug)]
pub struct Bounds {
    /// The text of one object, alone, in a list or in a watch. In a list and in a watch, a longer one is skipped.
    pub(crate) object_bytes_max: usize,
    /// One page of a list.
    pub(crate) page_bytes_max: usize,
    /// All pages of a list.
    pub(crate) list_bytes_max: usize,
    /// The least that an object counts in it.
    pub(crate) list_object_bytes_min: usize,
    /// The objects of a page that is held in memory: their text, and their values.
    pub(crate) kept_max: (usize, usize),
    /// A page may take longer than other calls, as long as bytes arrive.
    pub(crate) page_time_min: Duration,
    /// All pages of a list.
    pub(crate) list_time_max: Duration,
    /// Permits for long texts.
    pub(crate) texts: Permits,
    /// Permits for objects with many values.
    pub(crate) values: Permits,
}

impl Default for Bounds {
    /// Those of the garden and the seed.
    fn default() -> Self {
        Self {
            object_bytes_max: limits::OBJECT_BYTES_MAX,
            page_bytes_max: limits::LIST_PAGE_BYTES_MAX,
            list_bytes_max: usize::MAX,
            list_object_bytes_min: 0,
            kept_max: (usize::MAX, usize::MAX),
            page_time_min: limits::LIST_PAGE_TIME_MIN,
            list_time_max: Duration::MAX,
            texts: Permits::new(limits::LONG_TEXTS_MAX),
            values: Permits::new(limits::LARGE_OBJECTS_MAX),
        }
    }
}

impl Bounds {
    /// Those of a Shoot, whose owner may put a server of his own behind the API. `texts` are shared by all Shoots; permits for
    /// values are shared with the garden and the seed.
    #[must_use]
    pub(crate) fn of_shoot(&self, texts: &Permits) -> Self {
        Self {
            object_bytes_max: limits::SHOOT_OBJECT_BYTES_MAX,
            page_bytes_max: limits::SHOOT_PAGE_BYTES_MAX,
            list_bytes_max: limits::SHOOT_LIST_BYTES_MAX,
            list_object_bytes_min: limits::SHOOT_LIST_OBJECT_BYTES_MIN,
            kept_max: (limits::SHOOT_KEPT_BYTES_MAX, limits::SHOOT_KEPT_NODES_MAX),
            page_time_min: Duration::ZERO,
            list_time_max: limits::SHOOT_LIST_TIME_MAX,
            texts: texts.clone(),
            values: self.values.clone(),
        }
    }
}

/// Takes permits for one client.
#[derive(Clone, Debug)]
pub(super) struct Claims {
    pub(super) bounds: Bounds,
    pub(super) wait_max: Duration,
    pub(super) stop: Stop,
}

/// No permit became free.
#[derive(Debug)]
pub(super) struct Busy;

impl Busy {
    pub(super) const PROBLEM: &'static str = "the answer is long, and other long answers use the memory for such answers; the agent asks again later";
}

impl Claims {
    /// A permit for a long text.
    pub(super) fn text(&self) -> Result<HeldPermit, Busy> {
        self.bounds.texts.take(self.wait_max, &self.stop).ok_or(Busy)
    }

    /// A permit for the values of a text, if there may be many.
    pub(super) fn values(&self, text: &[u8]) -> Result<Option<HeldPermit>, Busy> {
        if text.len() <= limits::SMALL_OBJECT_TEXT_BYTES_MAX
            || Marks::of(text).memory_max(text.len()) <= limits::SMALL_OBJECT_BYTES_MAX
        {
            return Ok(None);
        }
        self.bounds.values.take(self.wait_max, &self.stop).ok_or(Busy).map(Some)
    }
}

/// The marks of a JSON text that begin values.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(super) struct Marks {
    maps: usize,
    keys: usize,
    others: usize,
}

impl Marks {
    /// It allocates nothing and does not recurse, so the text may be nested to any depth.
    pub(super) fn of(text: &[u8]) -> Self {
        let (mut marks, mut in_text, mut escaped) = (Self::default(), false, false);
        for byte in text {
            match byte {
                _ if escaped => escaped = false,
                b'\\' => escaped = in_text,
                b'"' => in_text = !in_text,
                _ if in_text => {}
                b'{' => marks.maps += 1,
                b':' => marks.keys += 1,
                b',' | b'[' => marks.others += 1,
                _ => {}
            }
        }
        marks
    }

    /// The maximum number of values, including keys.
    pub(super) const fn values_max(self) -> usize {
        1 + self.maps + self.keys + self.others
    }

    /// The maximum memory of the values of a text: a map takes 640 bytes, and again for each six entries; an entry and an item take
    /// up to 48 bytes.
    const fn memory_max(self, text_bytes: usize) -> usize {
        text_bytes + 640 * (self.maps + self.keys / 6) + 48 * (self.keys + self.others)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;
    use crate::base::thread;

    #[test]
    fn permits_are_few_and_come_back() {
        let (permits, stop) = (Permits::new(2), Stop::new());
        let (a, b) = (permits.take(Duration::ZERO, &stop), permits.take(Duration::ZERO, &stop));
        assert!(a.is_some() && b.is_some() && permits.take(Duration::from_millis(1), &stop).is_none());
        // Who waits gets the one that comes back.
        let (sender, receiver) = channel();
        let (others, other_stop) = (permits.clone(), stop.clone());
        let waiting = thread::spawn("waiting", 256 << 10, move || {
            sender.send(()).unwrap();
            others.take(Duration::from_secs(60), &other_stop).is_some()
        });
        receiver.recv().unwrap();
        drop(a);
        assert!(waiting.unwrap().join().unwrap());
        assert_eq!(*permits.lock(), 1);
        // A program that stops waits for none.
        let c = permits.take(Duration::ZERO, &stop);
        stop.stop();
        assert!(c.is_some() && permits.take(Duration::from_secs(600), &stop).is_none());
    }

    #[test]
    fn marks_are_counted_outside_of_texts() {
        let table = [
            ("{}", (1, 0, 0)),
            (r#"{"a,:[{\\\",":"x"}"#, (1, 1, 0)),
            (r#"{"a":[1,{"b":2}],"c":"}"}"#, (2, 3, 3)),
        ];
        for (text, (maps, keys, others)) in table {
            assert_eq!(Marks::of(text.as_bytes()), Marks { maps, keys, others }, "{text}");
        }
    }

    #[test]
    fn only_objects_with_many_values_need_a_permit() {
        let claims = Claims { bounds: Bounds::default(), wait_max: Duration::ZERO, stop: Stop::new() };
        let text = "x".repeat(limits::SMALL_OBJECT_BYTES_MAX);
        let table = [
            ("{}".to_owned(), false),
            (format!(r#"{{"a":"{}"}}"#, &text[..300_000]), false),
            (format!(r#"{{"a":"{text}"}}"#), true),
            (format!("[{}]", vec![r#"{"a":1}"#; 500].join(",")), false),
            (format!("[{}]", vec![r#"{"a":1}"#; 1_000].join(",")), true),
        ];
        for (text, expected) in table {
            assert_eq!(claims.values(text.as_bytes()).unwrap().is_some(), expected, "{}", text.len());
        }
    }
}
