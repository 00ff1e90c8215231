//! Lists and maps: handles to shared contents, with the Go type for `typeOf` and messages.

use std::cell::{Cell, Ref, RefCell, RefMut};
use std::collections::BTreeMap;
use std::rc::Rc;

use super::Value;

/// The Go type of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ListKind {
    /// `[]interface{}`.
    Any,
    /// `[]string`.
    Strings,
    /// `[]int`.
    Ints,
    /// `[][]interface{}`, the result of `chunk`.
    Lists,
    /// `[]map[string]interface {}`, an array of tables in TOML.
    Maps,
}

impl ListKind {
    pub(super) const fn type_name(self) -> &'static str {
        match self {
            Self::Any => "[]interface {}",
            Self::Strings => "[]string",
            Self::Ints => "[]int",
            Self::Lists => "[][]interface {}",
            Self::Maps => "[]map[string]interface {}",
        }
    }
}

/// A slice: a handle to shared items.
#[derive(Clone)]
pub(crate) struct List {
    kind: ListKind,
    nil: bool,
    shared: Rc<Items>,
}

struct Items(RefCell<Vec<Value>>);

impl List {
    /// A `[]interface{}`.
    pub(crate) fn new(items: Vec<Value>) -> Self {
        Self::of(ListKind::Any, items)
    }

    /// A list of a given Go type.
    pub(crate) fn of(kind: ListKind, items: Vec<Value>) -> Self {
        Self { kind, nil: false, shared: Rc::new(Items(RefCell::new(items))) }
    }

    /// Go's nil slice: an empty list whose JSON is `null`.
    pub(crate) fn nil(kind: ListKind) -> Self {
        Self { nil: true, ..Self::of(kind, Vec::new()) }
    }

    pub(crate) fn kind(&self) -> ListKind {
        self.kind
    }

    /// Whether this is a nil slice.
    pub(crate) fn is_nil(&self) -> bool {
        self.nil
    }

    pub(crate) fn items(&self) -> Ref<'_, Vec<Value>> {
        self.shared.0.borrow()
    }

    /// The items, mutable through any handle.
    pub(crate) fn items_mut(&self) -> RefMut<'_, Vec<Value>> {
        self.shared.0.borrow_mut()
    }

    /// The item at an index.
    pub(crate) fn get(&self, index: usize) -> Option<Value> {
        self.items().get(index).cloned()
    }
}

/// The Go type of a map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MapKind {
    /// `map[string]interface{}`.
    Any,
    /// Helm's own name for the same type: `.Values` and its tables. Accepted wherever `Any` is.
    Values,
    /// `map[string]string`, the result of `split`.
    Strings,
}

impl MapKind {
    pub(super) const fn type_name(self) -> &'static str {
        match self {
            Self::Any => "map[string]interface {}",
            Self::Values => "common.Values",
            Self::Strings => "map[string]string",
        }
    }
}

/// The entries of a map, sorted by key.
pub(crate) type Entries = BTreeMap<Rc<str>, Value>;

/// A map: a handle to shared entries.
#[derive(Clone)]
pub(crate) struct Map {
    kind: MapKind,
    nil: bool,
    shared: Rc<SharedEntries>,
}

struct SharedEntries(RefCell<Entries>);

impl Map {
    /// An empty `map[string]interface{}`.
    pub(crate) fn new() -> Self {
        Self::of(MapKind::Any, Entries::new())
    }

    /// A map of a given Go type.
    pub(crate) fn of(kind: MapKind, entries: Entries) -> Self {
        Self { kind, nil: false, shared: Rc::new(SharedEntries(RefCell::new(entries))) }
    }

    /// Go's nil map: it can be read but not written.
    pub(crate) fn nil() -> Self {
        Self { nil: true, ..Self::new() }
    }

    /// The same entries under another Go type.
    #[must_use]
    pub(crate) fn with_kind(&self, kind: MapKind) -> Self {
        Self { kind, ..self.clone() }
    }

    pub(crate) fn kind(&self) -> MapKind {
        self.kind
    }

    /// Whether this is a nil map.
    pub(crate) fn is_nil(&self) -> bool {
        self.nil
    }

    pub(crate) fn entries(&self) -> Ref<'_, Entries> {
        self.shared.0.borrow()
    }

    /// The entries, mutable through any handle.
    pub(crate) fn entries_mut(&self) -> RefMut<'_, Entries> {
        self.shared.0.borrow_mut()
    }

    /// The value of a key.
    pub(crate) fn get(&self, key: &str) -> Option<Value> {
        self.entries().get(key).cloned()
    }

    /// Sets the value of a key.
    pub(crate) fn insert(&self, key: impl Into<Rc<str>>, value: impl Into<Value>) {
        let old = self.entries_mut().insert(key.into(), value.into());
        drop(old);
    }

    /// Whether both are handles to the same entries.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        Rc::ptr_eq(&self.shared, &other.shared)
    }
}

impl Default for Map {
    fn default() -> Self {
        Self::new()
    }
}

impl FromIterator<(Rc<str>, Value)> for Map {
    fn from_iter<I: IntoIterator<Item = (Rc<str>, Value)>>(entries: I) -> Self {
        Self::of(MapKind::Any, entries.into_iter().collect())
    }
}

// Nested containers are dropped level by level: a chart that wraps a list a million times into another must not
// overflow the stack when the value is dropped.
thread_local! {
    static DROPPING: Cell<bool> = const { Cell::new(false) };
    static DROPPED: RefCell<Vec<Value>> = const { RefCell::new(Vec::new()) };
}

fn drop_flat(values: impl Iterator<Item = Value>) {
    let mut nested = values.filter(|v| matches!(v, Value::List(_) | Value::Map(_))).peekable();
    if nested.peek().is_none() {
        return;
    }
    let later: Vec<Value> = nested.collect();
    // At the end of a thread the queue no longer exists; then Rust's own drop applies.
    let queued = DROPPED.try_with(|d| d.borrow_mut().extend(later)).is_ok();
    if !queued || DROPPING.try_with(|d| d.replace(true)).unwrap_or(true) {
        return;
    }
    while let Some(next) = DROPPED.with(|d| d.borrow_mut().pop()) {
        drop(next);
    }
    DROPPING.with(|d| d.set(false));
}

impl Drop for Items {
    fn drop(&mut self) {
        drop_flat(std::mem::take(self.0.get_mut()).into_iter());
    }
}

impl Drop for SharedEntries {
    fn drop(&mut self) {
        drop_flat(std::mem::take(self.0.get_mut()).into_values());
    }
}
