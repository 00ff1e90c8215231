//! Delta snapshots: the changes of an etcd since another snapshot, in the format of etcd-backup-restore. It is a JSON array of
//! the events of a watch, followed by the SHA-256 of this JSON.
//!
//! Only one event is parsed at a time, and only the events of one revision are held.

use std::io::{self, BufReader, Read};

use serde_json::Value;

use super::error::Error;
use crate::format::{base64, view};
use crate::limits;

/// The size of the digest at the end.
pub(super) const DIGEST_BYTES: u64 = 32;
/// The buffer size for reading.
const PIECE_BYTES: usize = 32 << 10;

/// One change of one key.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct DeltaEvent {
    /// The key, in base64.
    pub(super) key: String,
    /// The new value, in base64; `None` if the key was deleted.
    pub(super) value: Option<String>,
    /// The revision in which the key was created, and how often it has been written since then; 0 if the event does not say
    /// it, as those of deletions.
    pub(super) created: u64,
    pub(super) version: u64,
}

/// The changes of one transaction of the etcd.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct DeltaStep {
    /// The revision that the transaction made.
    pub(super) revision: u64,
    pub(super) events: Vec<DeltaEvent>,
}

/// A number of an event: JSON of protocol buffers omits it if it is 0.
fn number(of: &Value, name: &str) -> Result<u64, String> {
    match &of[name] {
        Value::Null => Ok(0),
        value => value.as_u64().ok_or_else(|| format!("{name} is no number")),
    }
}

/// Takes a text, which may be as long as the event.
fn take(of: &mut Value, name: &str) -> Result<String, String> {
    match of.get_mut(name).map(Value::take) {
        None | Some(Value::Null) => Ok(String::new()),
        Some(Value::String(text)) => Ok(text),
        Some(_) => Err(format!("{name} is no text")),
    }
}

const PUT: u64 = 0;
const DELETE: u64 = 1;

/// Reads an event, and its revision. The texts are Secrets of somebody: an error, the end of a sentence, must not show them.
fn event(text: &[u8]) -> Result<(u64, DeltaEvent), String> {
    let no_event = |why: String| format!("is no event: {why}");
    let mut entry = view::json(text).map_err(|error| no_event(error.to_string()))?;
    let kind = number(&entry["etcdEvent"], "type").map_err(no_event)?;
    let mut pair = entry.pointer_mut("/etcdEvent/kv").map(Value::take).unwrap_or_default();
    if !pair.is_object() {
        return Err(no_event("it has no kv".to_owned()));
    }
    let mut read = || {
        let (key, value) = (take(&mut pair, "key")?, take(&mut pair, "value")?);
        let (created, version) = (number(&pair, "create_revision")?, number(&pair, "version")?);
        Ok((number(&pair, "mod_revision")?, key, value, created, version))
    };
    let (revision, key, value, created, version) = read().map_err(no_event)?;
    let is_base64 = |text: &str| base64::decode(text.as_bytes()).is_ok();
    let why = match kind {
        PUT | DELETE if revision == 0 => "has no revision",
        PUT | DELETE if key.is_empty() => "has no key",
        PUT | DELETE if !is_base64(&key) || !is_base64(&value) => "is not in base64",
        PUT | DELETE => {
            let value = (kind == PUT).then_some(value);
            return Ok((revision, DeltaEvent { key, value, created, version }));
        }
        _ => "is neither a change nor a deletion",
    };
    Err(why.to_owned())
}

/// Where the reader is in the array.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Place {
    Begin,
    /// After the begin of the array.
    First,
    /// After a comma.
    Before,
    /// After an event.
    After,
    End,
}

/// How much is held in memory.
#[derive(Clone, Copy, Debug)]
struct DeltaLimits {
    event_bytes: usize,
    revision_bytes: usize,
    revision_events: usize,
}

const LIMITS: DeltaLimits = DeltaLimits {
    event_bytes: limits::SNAPSHOT_EVENT_BYTES_MAX,
    revision_bytes: limits::SNAPSHOT_REVISION_BYTES_MAX,
    revision_events: limits::SNAPSHOT_REVISION_EVENTS_MAX,
};

/// Reads the events of an unpacked delta snapshot without its digest, which was checked before.
#[derive(Debug)]
pub(super) struct DeltaReader<'a, R> {
    from: io::Bytes<BufReader<R>>,
    /// The name of the snapshot, for messages.
    name: &'a str,
    limits: DeltaLimits,
    place: Place,
    /// The text of the present event.
    text: Vec<u8>,
    /// The first event of the next revision.
    held: Option<(u64, DeltaEvent)>,
}

impl<'a, R: Read> DeltaReader<'a, R> {
    pub(super) fn new(from: R, name: &'a str) -> Self {
        let from = BufReader::with_capacity(PIECE_BYTES, from).bytes();
        Self { from, name, limits: LIMITS, place: Place::Begin, text: Vec::new(), held: None }
    }

    /// The changes of the next revision; `None` at the end. Errors: the content is not what etcd-backup-restore writes.
    pub(super) fn next_step(&mut self) -> Result<Option<DeltaStep>, Error> {
        let Some((revision, first)) =
            self.held.take().map_or_else(|| self.next_event(), |held| Ok(Some(held)))?
        else {
            return Ok(None);
        };
        let mut bytes = self.text.len();
        let mut events = vec![first];
        while let Some((next, event)) = self.next_event()? {
            if next < revision {
                return Err(self.broken(format!("revision {next} follows revision {revision} in it")));
            }
            if next > revision {
                self.held = Some((next, event));
                break;
            }
            bytes += self.text.len();
            if events.len() >= self.limits.revision_events || bytes > self.limits.revision_bytes {
                return Err(
                    self.broken(format!("revision {revision} changes more than we can apply at once"))
                );
            }
            events.push(event);
        }
        Ok(Some(DeltaStep { revision, events }))
    }

    fn next_event(&mut self) -> Result<Option<(u64, DeltaEvent)>, Error> {
        if !self.advance()? {
            return Ok(None);
        }
        event(&self.text).map(Some).map_err(|why| self.broken(format!("an event {why}")))
    }

    /// Reads the text of the next event; false at the end of the array.
    fn advance(&mut self) -> Result<bool, Error> {
        self.text.clear();
        loop {
            let byte = self.byte()?;
            self.place = match (self.place, byte) {
                (_, Some(b' ' | b'\t' | b'\r' | b'\n')) => continue,
                (Place::Begin, Some(b'[')) => Place::First,
                (Place::First | Place::After, Some(b']')) => Place::End,
                (Place::After, Some(b',')) => Place::Before,
                (Place::First | Place::Before, Some(b'{')) => {
                    self.collect()?;
                    self.place = Place::After;
                    return Ok(true);
                }
                (Place::End, None) => return Ok(false),
                _ => return Err(self.broken("it is not a list of events".to_owned())),
            };
        }
    }

    /// Reads the rest of an object.
    fn collect(&mut self) -> Result<(), Error> {
        self.text.push(b'{');
        let (mut depth, mut is_text, mut is_escaped) = (1_u32, false, false);
        while depth > 0 {
            let Some(byte) = self.byte()? else {
                return Err(self.broken("it ends in the middle of an event".to_owned()));
            };
            if self.text.len() >= self.limits.event_bytes {
                return Err(self.broken("an event is longer than any of an etcd".to_owned()));
            }
            self.text.push(byte);
            match byte {
                _ if is_escaped => is_escaped = false,
                b'\\' => is_escaped = is_text,
                b'"' => is_text = !is_text,
                b'{' if !is_text => depth += 1,
                b'}' if !is_text => depth -= 1,
                _ => {}
            }
        }
        Ok(())
    }

    fn byte(&mut self) -> Result<Option<u8>, Error> {
        self.from.next().transpose().map_err(Error::io(format!("read {}", self.name)))
    }

    fn broken(&self, why: String) -> Error {
        Error::Broken { name: self.name.to_owned(), why }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::error::chain;

    fn steps(text: &str) -> Result<Vec<DeltaStep>, String> {
        let mut reader = DeltaReader::new(text.as_bytes(), "Incr-1");
        let mut all = Vec::new();
        while let Some(step) = reader.next_step().map_err(|error| chain(&error))? {
            all.push(step);
        }
        Ok(all)
    }

    fn put(key: &str, value: &str, created: u64, version: u64) -> DeltaEvent {
        DeltaEvent { key: key.to_owned(), value: Some(value.to_owned()), created, version }
    }

    fn delete(key: &str) -> DeltaEvent {
        DeltaEvent { key: key.to_owned(), value: None, created: 0, version: 0 }
    }

    #[test]
    fn events_are_read_as_etcd_backup_restore_writes_them() {
        let text = r#"[{"etcdEvent":{"kv":{"key":"YQ==","create_revision":5,"mod_revision":5,"version":1,"value":"MQ==","lease":7587886}},"time":"2026-11-29T05:00:00.1Z"},
            {"etcdEvent":{"type":1,"kv":{"key":"Yg==","mod_revision":6}},"time":"x [{\"]}"},{"etcdEvent":{"type":1,"kv":{"key":"Yw==","mod_revision":6}}},
            {"etcdEvent":{"type":0,"kv":{"key":"YQ==","create_revision":5,"mod_revision":9,"version":2},"prev_kv":null},"time":null} ]
            "#;
        let expected = [
            DeltaStep { revision: 5, events: vec![put("YQ==", "MQ==", 5, 1)] },
            DeltaStep { revision: 6, events: vec![delete("Yg=="), delete("Yw==")] },
            DeltaStep { revision: 9, events: vec![put("YQ==", "", 5, 2)] },
        ];
        assert_eq!(steps(text).unwrap(), expected);
        assert_eq!(steps("[]"), Ok(Vec::new()));
    }

    #[test]
    fn what_is_no_delta_is_refused() {
        let event = |kv: &str| format!(r#"[{{"etcdEvent":{{"kv":{{{kv}}}}}}}]"#);
        let one = r#"{"etcdEvent":{"kv":{"key":"YQ==","mod_revision":5}}}"#;
        let older = r#"{"etcdEvent":{"kv":{"key":"YQ==","mod_revision":4}}}"#;
        let table = [
            (String::new(), "it is not a list of events"),
            ("null".to_owned(), "it is not a list of events"),
            ("{}".to_owned(), "it is not a list of events"),
            (one.to_owned(), "it is not a list of events"),
            (format!("[{one}"), "it is not a list of events"),
            (format!("[{one}{one}]"), "it is not a list of events"),
            (format!("[{one},]"), "it is not a list of events"),
            (format!("[{one}]]"), "it is not a list of events"),
            (format!("[{one}] 1"), "it is not a list of events"),
            (format!("[{one},7]"), "it is not a list of events"),
            (format!("[{}", &one[..20]), "it ends in the middle of an event"),
            ("[{}]".to_owned(), "an event is no event: it has no kv"),
            ("[{1}]".to_owned(), "an event is no event: key must be a string"),
            (r#"[{"etcdEvent":{}}]"#.to_owned(), "an event is no event: it has no kv"),
            (event(r#""key":"YQ==""#), "an event has no revision"),
            (event(r#""mod_revision":5"#), "an event has no key"),
            (event(r#""key":"!","mod_revision":5"#), "an event is not in base64"),
            (event(r#""key":"YQ==","value":"\u0022","mod_revision":5"#), "an event is not in base64"),
            (event(r#""key":"YQ==","mod_revision":-5"#), "an event is no event: mod_revision is no number"),
            (
                r#"[{"etcdEvent":{"type":2,"kv":{"key":"YQ==","mod_revision":5}}}]"#.to_owned(),
                "an event is neither a change nor a deletion",
            ),
            (format!("[{one},{older}]"), "revision 4 follows revision 5 in it"),
        ];
        for (text, expected) in table {
            let error = steps(&text).unwrap_err();
            assert!(error.starts_with(&format!("snapshot Incr-1 is broken: {expected}")), "{text}: {error}");
        }
    }

    #[test]
    fn events_and_revisions_have_limits() {
        let event = r#"{"etcdEvent":{"kv":{"key":"YQ==","mod_revision":5}}}"#;
        let read = |count: usize, limits: DeltaLimits| {
            let text = format!("[{}]", vec![event; count].join(","));
            let mut reader = DeltaReader { limits, ..DeltaReader::new(text.as_bytes(), "d") };
            let step = reader.next_step().map(|step| step.map(|step| step.events.len()));
            step.map_err(|error| error.to_string())
        };
        let length = event.len();
        let limits = DeltaLimits { event_bytes: length, revision_bytes: 3 * length, revision_events: 9 };
        assert_eq!(read(3, limits), Ok(Some(3)));
        let many = "snapshot d is broken: revision 5 changes more than we can apply at once";
        assert_eq!(read(4, limits), Err(many.to_owned()));
        assert_eq!(read(3, DeltaLimits { revision_events: 2, ..limits }), Err(many.to_owned()));
        let long = read(1, DeltaLimits { event_bytes: length - 1, ..limits });
        assert_eq!(long, Err("snapshot d is broken: an event is longer than any of an etcd".to_owned()));
        // What a kube-apiserver gives to one lease, and the largest value of etcd, fit.
        const { assert!(LIMITS.revision_events > 1_000 && LIMITS.event_bytes > 4 * (10 << 20) / 3) };
    }
}
