//! Limits the memory of all rounds together: a ManagedResource of a megabyte can describe objects of a gigabyte.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::Value;

use crate::base::cut::head;
use crate::limits;

/// A map of up to eleven entries. A larger map counts one more for each six entries.
const MAP_BYTES: usize = 640;
/// A list of values, grown by doubling, per item.
pub(super) const ITEM_BYTES: usize = 48;
/// An entry of a map, without its value and the text of its key.
pub(super) const KEY_BYTES: usize = 16;
/// The maximum memory of one value in a text that was not parsed yet: every third value could be a map.
const NODE_BYTES: usize = 240;

/// The budget that all rounds share.
#[derive(Clone, Debug, Default)]
pub(super) struct MemoryBudget(Arc<AtomicUsize>);

impl MemoryBudget {
    pub(super) fn permit(&self) -> Permit {
        Permit { taken: Arc::clone(&self.0), held: 0 }
    }
}

/// The memory of one round, returned when it ends.
#[derive(Debug)]
pub(super) struct Permit {
    taken: Arc<AtomicUsize>,
    held: usize,
}

impl Permit {
    /// Takes this much instead of the present amount. Returns false, without a change, if the others leave less. A
    /// single round may take more than several together, because sizes are estimates.
    pub(super) fn hold(&mut self, bytes: usize) -> bool {
        let held = self.held;
        let next = |taken: usize| {
            let others = taken.saturating_sub(held);
            let max = match others {
                0 => limits::APPLIER_MEMORY_BYTES_MAX,
                _ => limits::APPLIER_SHARED_BYTES_MAX,
            };
            let taken = others.saturating_add(bytes);
            (taken <= max || bytes <= held).then_some(taken)
        };
        let changed = self.taken.fetch_update(Ordering::SeqCst, Ordering::SeqCst, next).is_ok();
        if changed {
            self.held = bytes;
        }
        changed
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.hold(0);
    }
}

/// The approximate memory of a value.
pub(super) fn of(value: &Value) -> usize {
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => 0,
        Value::String(text) => text.len(),
        Value::Array(list) => list.iter().map(|item| ITEM_BYTES + of(item)).sum(),
        Value::Object(map) => {
            of_map(map.len())
                + map.iter().map(|(key, value)| KEY_BYTES + key.len() + of(value)).sum::<usize>()
        }
    }
}

/// The memory of a map with this many entries, without the entries.
pub(super) fn of_map(entries: usize) -> usize {
    MAP_BYTES * if entries < 12 { usize::from(entries > 0) } else { entries.div_ceil(6) }
}

/// The maximum memory of the value of a YAML text: each node except the first follows one of these characters, or an
/// alias refers to it.
pub(super) fn of_text(text: &str) -> usize {
    let marks = text.bytes().filter(|b| b",:[{-?\n".contains(b)).count();
    let has_aliases = text.contains('*');
    let nodes = if has_aliases { limits::DOCUMENT_NODES_MAX } else { 1 + marks };
    nodes.min(limits::DOCUMENT_NODES_MAX) * NODE_BYTES + text.len()
}

/// The start of a text that is too long.
pub(super) fn shortened(text: &str, bytes_max: usize) -> String {
    const MORE: &str = " …";
    if text.len() <= bytes_max {
        return text.to_owned();
    }
    format!("{}{MORE}", head(text, bytes_max.saturating_sub(MORE.len())))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn permits_share_one_budget() {
        const ALONE: usize = 24 << 20;
        const SHARED: usize = 14 << 20;
        let memory = MemoryBudget::default();
        let (mut a, mut b) = (memory.permit(), memory.permit());
        assert!(a.hold(SHARED / 2) && b.hold(SHARED / 2));
        assert!(!a.hold(SHARED / 2 + 1));
        assert!(b.hold(0) && a.hold(ALONE) && !b.hold(1));
        assert!(!a.hold(ALONE + 1));
        drop(a);
        assert!(b.hold(ALONE));
        assert!(b.hold(1));
    }

    #[test]
    fn small_maps_are_the_expensive_ones() {
        let table = [
            (json!(null), 0),
            (json!("abc"), 3),
            (json!([1, 2]), 96),
            (json!({}), 0),
            (json!({"a": 1}), 657),
            (json!([{"a": ""}]), 705),
        ];
        for (value, expected) in table {
            assert_eq!(of(&value), expected, "{value}");
        }
        assert!(of_text("a: {b: [c, d]}") > of(&json!({"a": {"b": ["c", "d"]}})));
    }

    #[test]
    fn long_texts_are_cut_between_characters() {
        assert_eq!(shortened("abc", 3), "abc");
        assert_eq!(shortened("abcdefgh", 7), "abc …");
        assert_eq!(shortened("äöüäöü", 9), "äö …");
    }
}
