//! The answer of the rendering process, and its limits. The process checks its answer before it sends it; the agent
//! checks it again while it reads.

use std::fmt;
use std::io::{self, Read, Write};

use serde_json::Value as Json;

use super::super::render::secret_text;
use super::{Error, RenderedObjects};
use crate::format::view;
use crate::limits::{
    RENDER_CONTAINERS_MAX, RENDER_DEPTH_MAX, RENDER_MANIFESTS_BYTES_MAX, RENDER_MESSAGE_BYTES_MAX,
    RENDER_OUTPUT_BYTES_MAX, RENDER_VALUES_BYTES_MAX,
};

const OBJECTS: &str = "objects";
const ERROR: &str = "error";
const VALUES: &str = "values";

/// The answer of the rendering process.
pub(super) enum ChildAnswer {
    Objects(RenderedObjects),
    Error(String),
    Values(String),
}

impl ChildAnswer {
    pub(super) fn into_result(self) -> Result<RenderedObjects, Error> {
        match self {
            Self::Objects(objects) => Ok(objects),
            Self::Error(message) => Err(Error::Chart(message)),
            Self::Values(message) => Err(Error::Values(message)),
        }
    }

    /// A map with one entry.
    pub(super) fn into_json(self) -> Json {
        let (kind, content) = match self {
            Self::Objects(objects) => (OBJECTS, Json::Object(objects.into_iter().collect())),
            Self::Error(message) => (ERROR, Json::String(message)),
            Self::Values(message) => (VALUES, Json::String(message)),
        };
        Json::Object([(kind.to_owned(), content)].into_iter().collect())
    }

    fn of_json(answer: Json) -> Option<Self> {
        let Json::Object(answer) = answer else { return None };
        let (kind, content) = answer.into_iter().next()?;
        match (kind.as_str(), content) {
            (OBJECTS, Json::Object(objects)) => Some(Self::Objects(objects.into_iter().collect())),
            (ERROR, Json::String(message)) => Some(Self::Error(message)),
            (VALUES, Json::String(message)) => Some(Self::Values(message)),
            _ => None,
        }
    }

    /// The same answer, or an error if it is too large to send. Messages are shortened.
    pub(super) fn limited(self) -> Self {
        match self {
            Self::Objects(objects) => match check(&objects) {
                Ok(()) => Self::Objects(objects),
                Err(excess) => Self::Error(excess.to_string()),
            },
            Self::Error(message) => Self::Error(shortened(message)),
            Self::Values(message) => Self::Values(shortened(message)),
        }
    }
}

/// Why the objects of a rendering are too large.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Excess {
    Bytes,
    Values,
    Depth,
    Manifests(usize),
    Containers(usize),
}

impl fmt::Display for Excess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bytes => {
                write!(
                    f,
                    "the rendered objects have more than {RENDER_OUTPUT_BYTES_MAX} bytes: split the chart"
                )
            }
            Self::Values => write!(
                f,
                "the rendered objects have too many fields: they would take more than {RENDER_VALUES_BYTES_MAX} \
                 bytes of memory"
            ),
            Self::Depth => write!(f, "the rendered objects nest deeper than {RENDER_DEPTH_MAX} levels"),
            Self::Manifests(bytes) => {
                let max = crate::limits::SECRET_DATA_BYTES_MAX;
                write!(
                    f,
                    "the rendered manifests have {bytes} bytes; a Secret holds at most {max}: split the chart"
                )
            }
            Self::Containers(count) => {
                write!(f, "a rendered pod has {count} containers; the maximum is {RENDER_CONTAINERS_MAX}")
            }
        }
    }
}

/// Whether the agent can accept these objects. Objects that can never fit into a Secret are refused here.
fn check(objects: &RenderedObjects) -> Result<(), Excess> {
    let mut meter = Meter::default();
    let to: &mut dyn Write = &mut meter;
    if serde_json::to_writer(to, objects).is_err() {
        return Err(meter.excess.unwrap_or(Excess::Bytes));
    }
    let mut bytes = 0;
    for object in objects.values() {
        check_containers(object)?;
        bytes += secret_text(object).len();
    }
    if bytes > RENDER_MANIFESTS_BYTES_MAX { Err(Excess::Manifests(bytes)) } else { Ok(()) }
}

fn check_containers(value: &Json) -> Result<(), Excess> {
    match value {
        Json::Object(map) => map.iter().try_for_each(|(key, value)| match value {
            Json::Array(list) if key.ends_with("ontainers") && list.len() > RENDER_CONTAINERS_MAX => {
                Err(Excess::Containers(list.len()))
            }
            value => check_containers(value),
        }),
        Json::Array(list) => list.iter().try_for_each(check_containers),
        _ => Ok(()),
    }
}

/// Shortens a message for a condition: a long one keeps its start and its end.
fn shortened(message: String) -> String {
    if message.len() <= RENDER_MESSAGE_BYTES_MAX {
        return message;
    }
    const NOTE_BYTES: usize = 64;
    let room = RENDER_MESSAGE_BYTES_MAX - NOTE_BYTES;
    let (mut head, mut tail) = (room / 2, message.len() - room / 2);
    while !message.is_char_boundary(head) {
        head -= 1;
    }
    while !message.is_char_boundary(tail) {
        tail += 1;
    }
    let (first, last) = (&message[..head], &message[tail..]);
    format!("{first} [{} bytes left out] {last}", tail - head)
}

/// Counts the memory that streamed JSON would take as values.
#[derive(Default)]
pub(super) struct Meter {
    bytes: usize,
    memory: usize,
    depth: usize,
    in_text: bool,
    is_escaped: bool,
    pub(super) excess: Option<Excess>,
}

impl Meter {
    /// The memory of a map's first node.
    const MAP_BYTES: usize = 640;
    /// The memory of a list with a few items.
    const LIST_BYTES: usize = 128;
    /// The memory of one more item or entry, including its key.
    const ITEM_BYTES: usize = 64;

    /// Counts further text; keeps the first excess.
    pub(super) fn feed(&mut self, text: &[u8]) -> Result<(), Excess> {
        self.bytes = self.bytes.saturating_add(text.len());
        self.memory = self.memory.saturating_add(text.len());
        for byte in text {
            match byte {
                _ if self.is_escaped => self.is_escaped = false,
                b'\\' if self.in_text => self.is_escaped = true,
                b'"' => self.in_text = !self.in_text,
                _ if self.in_text => {}
                b'{' | b'[' => {
                    self.depth += 1;
                    self.memory += if *byte == b'{' { Self::MAP_BYTES } else { Self::LIST_BYTES };
                    if self.depth > RENDER_DEPTH_MAX {
                        self.excess.get_or_insert(Excess::Depth);
                    }
                }
                b'}' | b']' => self.depth = self.depth.saturating_sub(1),
                b',' => self.memory += Self::ITEM_BYTES,
                _ => {}
            }
        }
        if self.bytes > RENDER_OUTPUT_BYTES_MAX {
            self.excess.get_or_insert(Excess::Bytes);
        } else if self.memory > RENDER_VALUES_BYTES_MAX {
            self.excess.get_or_insert(Excess::Values);
        }
        self.excess.map_or(Ok(()), Err)
    }
}

impl Write for Meter {
    fn write(&mut self, text: &[u8]) -> io::Result<usize> {
        self.feed(text).map_err(|excess| io::Error::other(excess.to_string()))?;
        Ok(text.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A reader that passes data on until the limit is exceeded.
struct Metered<'r> {
    reader: &'r mut dyn Read,
    meter: Meter,
}

impl Read for Metered<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.reader.read(buffer)?;
        // The JSON around the objects counts too.
        self.meter.feed(&buffer[..count]).map_err(|excess| io::Error::other(excess.to_string()))?;
        Ok(count)
    }
}

/// Why there is no answer.
#[derive(Debug)]
pub(super) enum Unread {
    /// It is too large.
    Excess(Excess),
    Io(io::Error),
    /// It is incomplete: the process died before it could write it.
    Incomplete,
}

/// Reads an answer; stops as soon as it is too large.
pub(super) fn read(reader: &mut dyn Read) -> Result<ChildAnswer, Unread> {
    let mut metered = Metered { reader, meter: Meter::default() };
    let mut text = Vec::new();
    if let Err(error) = metered.read_to_end(&mut text) {
        return Err(metered.meter.excess.map_or(Unread::Io(error), Unread::Excess));
    }
    view::json(&text).ok().and_then(ChildAnswer::of_json).ok_or(Unread::Incomplete)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn limited(value: Json) -> String {
        let objects = RenderedObjects::from([("k".to_owned(), value)]);
        match ChildAnswer::Objects(objects).limited() {
            ChildAnswer::Objects(_) => "good".to_owned(),
            ChildAnswer::Error(message) | ChildAnswer::Values(message) => message,
        }
    }

    #[test]
    fn objects_that_the_agent_cannot_take_are_refused() {
        let maps = |count: usize| Json::Array(vec![json!({}); count]);
        let nested = |depth: usize| (0..depth).fold(json!(1), |value, _| json!([value]));
        let wide = (0..100).fold(json!(vec![1; 30_000]), |value, _| json!([value]));
        let table = [
            (json!({"a": "x".repeat(1_000_000)}), "good"),
            (json!({"a": "x".repeat(5_000_000)}), "the rendered objects have more than 4194304 bytes"),
            (maps(20_000), "good"),
            (maps(30_000), "the rendered objects have too many fields"),
            (nested(120), "good"),
            (nested(126), "the rendered objects nest deeper than 124 levels"),
            (wide, "the rendered manifests have 6120010 bytes; a Secret holds at most 1048576"),
            (json!({"spec": {"containers": vec![json!({}); 1_000]}}), "good"),
            (
                json!({"spec": {"initContainers": vec![json!({}); 1_001]}}),
                "a rendered pod has 1001 containers; the maximum is 1000",
            ),
        ];
        for (value, expected) in table {
            let found = limited(value);
            assert!(found.starts_with(expected), "{found}: {expected}");
        }
    }

    #[test]
    fn long_messages_keep_both_ends() {
        assert_eq!(shortened("short".to_owned()), "short");
        let message = format!("begin {} end", "ä".repeat(1_000_000));
        let short = shortened(message);
        assert!(short.starts_with("begin ä") && short.ends_with("ä end"), "{short}");
        assert!(short.contains(" [1999050 bytes left out] ") && short.len() <= 1_024, "{short}");
    }

    #[test]
    fn an_answer_is_read_up_to_its_limits() {
        let mut endless = io::repeat(b' ');
        assert!(matches!(read(&mut endless), Err(Unread::Excess(Excess::Bytes))));
        let maps = format!("{{\"objects\":{{\"k\":[{}{{}}]}}}}", "{},".repeat(30_000));
        assert!(matches!(read(&mut maps.as_bytes()), Err(Unread::Excess(Excess::Values))));
        assert!(matches!(read(&mut &b"{\"objects\":{"[..]), Err(Unread::Incomplete)));
        let answer = read(&mut &b"{\"objects\":{\"k\":\"{[\\\"{[\"}}"[..]);
        assert!(matches!(answer, Ok(ChildAnswer::Objects(objects)) if objects["k"] == "{[\"{["));
    }
}
