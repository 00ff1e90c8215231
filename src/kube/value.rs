//! Decodes JSON objects into values. A value takes up to a hundred times the memory of its text, so the decoder limits
//! the number of values, and skips managed fields, which no code reads.
//!
//! Too many values are an error for an object that is read alone. In a stream, they must not affect other objects: the
//! rest of such an object is skipped, and the object is marked.

use std::cell::Cell;
use std::fmt;

use serde::de::{
    Deserialize, DeserializeOwned, DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor,
};
use serde_json::{Map, Value};

use super::bounds::{HeldPermit, Marks};
use super::request::UndecodableObject;
use crate::api::meta::{Key, text};
use crate::base::cut::cut;
use crate::format::view;
use crate::limits;

const TOO_MANY: &str = "the object has too many values";
/// Text of an error about a value.
const ERROR_BYTES_MAX: usize = 512;
const TOO_LONG: &str = "the object is too long";

/// Reads one object of at most this many values, including keys. Errors: text that is not JSON, and an
/// object of more values.
pub(crate) fn read_within(text: &[u8], nodes_max: usize) -> serde_json::Result<Value> {
    let left = Cell::new(nodes_max);
    let mut deserializer = serde_json::Deserializer::from_slice(text);
    let value =
        ValueContext { left: &left, cut: None, place: ObjectPart::Object }.deserialize(&mut deserializer)?;
    deserializer.end()?;
    Ok(value)
}

/// Reads the values at these paths of an object, and skips the rest. Errors: text that is not JSON, and a
/// value on the path that is not an object.
pub(crate) fn read_parts(text: &[u8], paths: &[&[&str]]) -> serde_json::Result<Value> {
    let left = Cell::new(usize::MAX);
    let mut deserializer = serde_json::Deserializer::from_slice(text);
    let node = ValueContext { left: &left, cut: None, place: ObjectPart::Object };
    let value = Parts { paths: paths.to_vec(), node }.deserialize(&mut deserializer)?;
    deserializer.end()?;
    Ok(value)
}

/// The values at some paths.
struct Parts<'a> {
    paths: Vec<&'a [&'a str]>,
    node: ValueContext<'a>,
}

impl<'de> DeserializeSeed<'de> for Parts<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<Value, D::Error> {
        from.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Parts<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        let mut map = Map::new();
        while let Some(key) = entries.next_key::<String>()? {
            let node = ValueContext { place: self.node.place.of(&key), ..self.node };
            let mut paths = self.paths.clone();
            paths.retain(|path| path.first() == Some(&key.as_str()));
            paths.iter_mut().for_each(|path| *path = &path[1..]);
            if paths.is_empty() {
                entries.next_value::<IgnoredAny>()?;
            } else if paths.contains(&&[][..]) {
                map.insert(key, entries.next_value_seed(node)?);
            } else {
                map.insert(key, entries.next_value_seed(Parts { paths, node })?);
            }
        }
        Ok(Value::Object(map))
    }
}

/// The same error with a limited text: it may repeat a value from outside.
pub(super) fn short(error: serde_json::Error) -> serde_json::Error {
    let text = error.to_string();
    if text.len() <= ERROR_BYTES_MAX { error } else { serde::de::Error::custom(cut(text, ERROR_BYTES_MAX)) }
}

/// An object of a list or a watch, of at most [`limits::STREAMED_NODES_MAX`] values.
#[derive(Debug)]
pub(crate) struct StreamedObject {
    object: Value,
    /// Why it has not all its values.
    cut: Option<&'static str>,
    /// The permit for its values.
    held: Option<HeldPermit>,
}

impl StreamedObject {
    /// An object whose text is too long: what is known of it, if anything.
    pub(super) fn too_long(head: &[u8]) -> Self {
        let head = serde_json::from_slice::<Self>(head).ok();
        head.unwrap_or(Self { object: Value::Null, cut: None, held: None }).cut_short()
    }

    /// What is known of an object whose text is too long.
    pub(super) fn cut_short(self) -> Self {
        Self { cut: Some(TOO_LONG), ..self }
    }

    /// The same object with the permit for its values.
    pub(super) fn with_permit(self, held: Option<HeldPermit>) -> Self {
        Self { held, ..self }
    }

    /// Takes the permit, to hold it longer than the object.
    pub(super) const fn take_permit(&mut self) -> Option<HeldPermit> {
        self.held.take()
    }

    /// Whether the object has a name, as each object of a cluster.
    pub(super) fn has_name(&self) -> bool {
        !text(&self.object["metadata"]["name"]).is_empty()
    }

    /// Whether it was skipped, and does not begin with its name: it may be any object.
    pub(crate) fn is_unknown(&self) -> bool {
        self.is_too_long() && !self.has_name()
    }

    /// Whether it was skipped, because its text is too long.
    pub(super) fn is_too_long(&self) -> bool {
        self.cut == Some(TOO_LONG)
    }

    /// Its key, in any shape.
    pub(crate) fn key(&self) -> Key {
        let part = |field: &str| text(&self.object["metadata"][field]).to_owned();
        Key { namespace: part("namespace"), name: part("name") }
    }

    /// Its version; empty if it has none.
    pub(crate) fn version(&self) -> &str {
        text(&self.object["metadata"]["resourceVersion"])
    }

    /// One of its labels; empty if it is missing.
    pub(crate) fn label(&self, name: &str) -> &str {
        text(&self.object["metadata"]["labels"][name])
    }

    /// The whole object. Errors: if it is not whole.
    pub(super) fn whole(self) -> serde_json::Result<Value> {
        self.cut.map_or(Ok(self.object), |why| Err(serde::de::Error::custom(why)))
    }

    /// The object, decoded as the caller's type. Errors: if it has another shape, or is too long, or has
    /// more values than allowed.
    pub(crate) fn decode<T: DeserializeOwned>(self) -> Result<T, UndecodableObject> {
        if let Some(why) = self.cut {
            return Err(self.refused(why));
        }
        let key = self.key();
        view::read(self.object).map_err(|why| UndecodableObject { key, head: Value::Null, why: short(why) })
    }

    /// Marks the object as undecodable.
    pub(super) fn refused(self, why: &str) -> UndecodableObject {
        let (key, why) = (self.key(), serde::de::Error::custom(why));
        UndecodableObject { key, head: if self.cut.is_some() { self.object } else { Value::Null }, why }
    }

    /// The object without skipped parts.
    pub(super) fn only_head(self) -> Self {
        Self { cut: None, ..self }
    }

    /// The object after a change.
    pub(super) fn map(mut self, change: impl FnOnce(&mut Value)) -> Self {
        change(&mut self.object);
        self
    }
}

impl<'de> Deserialize<'de> for StreamedObject {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let (left, cut) = (Cell::new(limits::STREAMED_NODES_MAX), Cut::default());
        let object =
            ValueContext { left: &left, cut: Some(&cut), place: ObjectPart::Object }.deserialize(from)?;
        Ok(Self { object, cut: cut.is_cut.get().then_some(TOO_MANY), held: None })
    }
}

/// The position of a value, as far as it matters.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ObjectPart {
    Object,
    Metadata,
    Spec,
    Status,
    Elsewhere,
}

impl ObjectPart {
    fn of(self, key: &str) -> Self {
        match (self, key) {
            (Self::Object, "metadata") => Self::Metadata,
            (Self::Object, "spec") => Self::Spec,
            (Self::Object, "status") => Self::Status,
            _ => Self::Elsewhere,
        }
    }

    /// Whether a value is read even beyond the limit, because it identifies the object and its owner.
    fn is_vital(self, key: &str) -> bool {
        match self {
            Self::Object => matches!(key, "metadata" | "spec"),
            Self::Metadata => {
                let vital =
                    ["deletionTimestamp", "generation", "name", "namespace", "resourceVersion", "uid"];
                vital.contains(&key)
            }
            Self::Spec => key == "class",
            Self::Status | Self::Elsewhere => false,
        }
    }
}

/// A value that is read even beyond the limit.
struct Vital<'a>(ValueContext<'a>);

impl<'de> DeserializeSeed<'de> for Vital<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<Value, D::Error> {
        from.deserialize_any(self.0)
    }
}

/// What is known of a streamed object while it is read.
#[derive(Default)]
struct Cut {
    /// The rest of the object is skipped.
    is_cut: Cell<bool>,
    /// The object is not a ManagedResource.
    is_other: Cell<bool>,
}

#[derive(Clone, Copy)]
struct ValueContext<'a> {
    left: &'a Cell<usize>,
    /// `None` if too many values are an error.
    cut: Option<&'a Cut>,
    place: ObjectPart,
}

impl ValueContext<'_> {
    /// Whether another value is within the limit.
    fn count<E: serde::de::Error>(self) -> Result<bool, E> {
        if let Some(left) = self.left.get().checked_sub(1) {
            self.left.set(left);
            return Ok(true);
        }
        let cut = self.cut.ok_or_else(|| E::custom(TOO_MANY))?;
        cut.is_cut.set(true);
        Ok(false)
    }

    fn is_cut(self) -> bool {
        self.cut.is_some_and(|cut| cut.is_cut.get())
    }

    /// Unused parts: managed fields, and, in a list or a watch, the longest part of a ManagedResource.
    fn passes_over(self, key: &str) -> bool {
        match self.place {
            ObjectPart::Metadata => key == "managedFields",
            ObjectPart::Status => key == "resources" && self.cut.is_some_and(|cut| !cut.is_other.get()),
            _ => false,
        }
    }

    /// In a list or a watch, a ManagedResource has few values without that part. The kind comes
    /// before all other fields.
    fn heed_kind(self, key: &str, value: &Value) {
        let Some(cut) = self.cut.filter(|_| self.place == ObjectPart::Object && key == "kind") else {
            return;
        };
        if value == "ManagedResource" {
            self.left.set(self.left.get().min(limits::MANAGED_RESOURCE_STREAMED_NODES_MAX));
        } else {
            cut.is_other.set(true);
        }
    }
}

impl<'de> DeserializeSeed<'de> for ValueContext<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<Value, D::Error> {
        if self.count()? {
            from.deserialize_any(self)
        } else {
            IgnoredAny::deserialize(from).map(|_| Value::Null)
        }
    }
}

impl<'de> Visitor<'de> for ValueContext<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(Value::String(value.to_owned()))
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(Value::String(value))
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        while let Some(item) =
            items.next_element_seed(ValueContext { place: ObjectPart::Elsewhere, ..self })?
        {
            if !self.is_cut() {
                list.push(item);
            }
        }
        Ok(Value::Array(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        let mut map = Map::new();
        while let Some(key) = entries.next_key::<String>()? {
            if self.passes_over(&key) {
                entries.next_value::<IgnoredAny>()?;
                continue;
            }
            let node = ValueContext { place: self.place.of(&key), ..self };
            if self.count::<A::Error>()? {
                let value = entries.next_value_seed(node)?;
                self.heed_kind(&key, &value);
                map.insert(key, value);
            } else if self.place.is_vital(&key) {
                map.insert(key, entries.next_value_seed(Vital(node))?);
            } else {
                entries.next_value::<IgnoredAny>()?;
            }
        }
        Ok(Value::Object(map))
    }
}

/// The maximum number of values of a JSON text, including keys. It allocates nothing and does not recurse, so the text
/// may be nested to any depth.
pub(crate) fn count(text: &str) -> usize {
    Marks::of(text.as_bytes()).values_max()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn values_are_those_of_json() {
        let text = r#"{"a":[1,-1,1.5,"x\n",null,true,{}],"b":{"managedFields":1},"metadata":{"managedFields":[{"a":1}],"name":"n"}}"#;
        let expected = json!({"a": [1, -1, 1.5, "x\n", null, true, {}], "b": {"managedFields": 1},
            "metadata": {"name": "n"}});
        assert_eq!(read_within(text.as_bytes(), usize::MAX).unwrap(), expected);
        assert!(read_within(b"{} x", usize::MAX).is_err());
        assert!(read_within(b"{", usize::MAX).is_err());
    }

    #[test]
    fn parts_are_read_without_the_rest() {
        let paths: &[&[&str]] = &[&["metadata"], &["spec", "class"], &["status", "conditions"]];
        let table = [
            (
                r#"{"kind":"K","metadata":{"name":"n","managedFields":[1]},"spec":{"class":"c","other":{"class":1}},
                "status":{"resources":[{}],"conditions":[{"a":null}]}}"#,
                json!({"metadata": {"name": "n"}, "spec": {"class": "c"}, "status": {"conditions": [{"a": null}]}}),
            ),
            (r#"{"spec":null}"#, json!({"spec": null})),
            ("{}", json!({})),
        ];
        for (text, expected) in table {
            assert_eq!(read_parts(text.as_bytes(), paths).unwrap(), expected);
        }
        for text in [r#"{"spec":[]}"#, r#"{"spec":"x"}"#, "[]", "{} x", "{"] {
            assert!(read_parts(text.as_bytes(), paths).is_err(), "{text}");
        }
    }

    #[test]
    fn large_objects_of_a_stream_are_cut_and_marked() {
        let many = vec!["{\"name\":\"x\"}"; 50_000].join(",");
        let text = format!(
            r#"[{{"metadata":{{"name":"small"}}}},{{"metadata":{{"name":"large"}},"spec":[{many}],"status":{{}}}},{{"kind":"Last"}}]"#
        );
        let all: Vec<StreamedObject> = serde_json::from_str(&text).unwrap();
        let names: Vec<_> = all.iter().map(|object| object.object["metadata"]["name"].clone()).collect();
        assert_eq!(names, [json!("small"), json!("large"), Value::Null]);
        let whole: Vec<_> = all.into_iter().map(|object| object.whole().map_err(|e| e.to_string())).collect();
        assert_eq!(whole[0], Ok(json!({"metadata": {"name": "small"}})));
        assert_eq!(whole[1], Err("the object has too many values".to_owned()));
        assert_eq!(whole[2], Ok(json!({"kind": "Last"})));
    }

    #[test]
    fn what_an_object_is_called_is_read_whatever_comes_before() {
        let many: Vec<String> = (0..40_000).map(|n| format!("\"a{n}\":\"\"")).collect();
        let text = format!(
            r#"{{"kind":"K","metadata":{{"annotations":{{{}}},"generation":3,"labels":{{"a":"b"}},"name":"n","namespace":"s"}},
            "spec":{{"class":"seed","other":[1,2]}},"status":{{}}}}"#,
            many.join(",")
        );
        let object: StreamedObject = serde_json::from_str(&text).unwrap();
        let head = object.refused("x").head;
        assert_eq!((&head["metadata"]["name"], &head["metadata"]["namespace"]), (&json!("n"), &json!("s")));
        assert_eq!((&head["metadata"]["generation"], &head["spec"]), (&json!(3), &json!({"class": "seed"})));
    }

    #[test]
    fn a_managed_resource_of_a_stream_takes_little() {
        let one = r#"{"apiVersion":"v1","kind":"ConfigMap","name":"x"}"#;
        let whole = |kind: &str, references: usize, resources: usize| {
            let references = vec![r#"{"name":"x"}"#; references].join(",");
            let resources = vec![one; resources].join(",");
            let text = format!(
                r#"{{"kind":"{kind}","metadata":{{"name":"n"}},"spec":{{"secretRefs":[{references}]}},
                "status":{{"observedGeneration":1,"resources":[{resources}]}}}}"#
            );
            serde_json::from_str::<StreamedObject>(&text).unwrap().whole().ok()
        };
        let read = whole("ManagedResource", 500, 2_000).unwrap();
        assert_eq!(read["status"], json!({"observedGeneration": 1}));
        assert_eq!(whole("ManagedResource", 5_000, 0), None);
        let other = whole("Extension", 1, 2).unwrap();
        assert_eq!(other["status"]["resources"].as_array().unwrap().len(), 2);
        assert!(whole("Other", 5_000, 0).is_some());
    }

    #[test]
    fn the_number_of_values_is_limited() {
        let text = br#"{"a":[1,{"b":2}]}"#;
        // The map, its key, the list, the number, the inner map, its key, its value.
        assert_eq!(count(str::from_utf8(text).unwrap()), 7);
        assert_eq!(count(r#"{"a,:[{\\\",":"x"}"#), 3);
        assert!(read_within(text, 7).is_ok());
        let error = read_within(text, 6).unwrap_err();
        assert!(
            error.is_data() && error.to_string().starts_with("the object has too many values"),
            "{error}"
        );
    }
}
