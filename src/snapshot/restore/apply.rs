//! Applies delta snapshots to an etcd that holds a full one. Each revision must follow the one before it, and make exactly that
//! revision again: what is missing, what comes twice and what is of another history is refused.

use std::io::Read;

use crate::snapshot::delta::{DeltaReader, DeltaStep};
use crate::snapshot::error::Error;

/// Something that has revisions: an etcd, or what replaces it in tests.
pub(super) trait DeltaTarget {
    /// Applies the changes of one revision. Returns the revision of the last change; `None`, without any change, if keys do not
    /// have the versions that the changes follow.
    fn apply(&mut self, step: &DeltaStep) -> Result<Option<u64>, Error>;
}

/// How far a restoration has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct DeltaProgress {
    /// The revision of the etcd.
    pub(super) reached: u64,
    /// Whether it has more than the full snapshot.
    pub(super) has_changed: bool,
}

/// Applies one delta snapshot up to its last revision. Events that the full snapshot contains are skipped. Errors: it does not
/// continue what is there; some of it may have been applied.
pub(super) fn apply(
    target: &mut dyn DeltaTarget,
    delta: &mut DeltaReader<'_, impl Read>,
    last: u64,
    progress: &mut DeltaProgress,
) -> Result<(), Mismatch> {
    while let Some(step) = delta.next_step()? {
        let reached = progress.reached;
        if step.revision <= reached && !progress.has_changed {
            continue;
        }
        if step.revision <= reached {
            return Err(why(format!("it contains revision {} again", step.revision)));
        }
        if step.revision > reached + 1 {
            return Err(why(format!(
                "revisions {} to {} are missing before it",
                reached + 1,
                step.revision - 1
            )));
        }
        match target.apply(&step)? {
            Some(made) if made == step.revision => {}
            Some(made) => {
                return Err(why(format!(
                    "its revision {} became revision {made} of the etcd",
                    step.revision
                )));
            }
            None => {
                return Err(why(format!(
                    "its revision {} changes keys that have another version: it is of another history",
                    step.revision
                )));
            }
        }
        *progress = DeltaProgress { reached: step.revision, has_changed: true };
    }
    let is_contained = !progress.has_changed && progress.reached > last;
    if progress.reached == last || is_contained {
        Ok(())
    } else {
        Err(why(format!(
            "its name says that it ends with revision {last}, and it ends with {}",
            progress.reached
        )))
    }
}

/// Why a delta cannot be applied.
#[derive(Debug)]
pub(super) enum Mismatch {
    /// It does not continue what is there.
    Content(String),
    /// Something else failed.
    Other(Error),
}

fn why(text: String) -> Mismatch {
    Mismatch::Content(text)
}

impl From<Error> for Mismatch {
    fn from(error: Error) -> Self {
        match error {
            Error::Broken { why, .. } => Self::Content(format!("it is broken: {why}")),
            other => Self::Other(other),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    /// Keys with the revision in which they were created, and their versions.
    #[derive(Default)]
    struct Fake {
        revision: u64,
        keys: BTreeMap<String, [u64; 2]>,
    }

    impl DeltaTarget for Fake {
        fn apply(&mut self, step: &DeltaStep) -> Result<Option<u64>, Error> {
            for event in &step.events {
                let now = self.keys.get(&event.key);
                let fits = match &event.value {
                    None => now.is_some(),
                    Some(_) if event.version == 1 => now.is_none(),
                    Some(_) => now == Some(&[event.created, event.version - 1]),
                };
                if !fits {
                    return Ok(None);
                }
            }
            self.revision += 1;
            for event in &step.events {
                match &event.value {
                    None => drop(self.keys.remove(&event.key)),
                    Some(_) => drop(self.keys.insert(event.key.clone(), [event.created, event.version])),
                }
            }
            Ok(Some(self.revision))
        }
    }

    /// The text of a delta: `7a5.2` writes key a, which was created in revision 5, its second version, in revision 7; `8a` deletes it.
    fn text(events: &str) -> String {
        let event = |word: &str| {
            let place = word.find(char::is_alphabetic).unwrap();
            let (revision, rest) = word.split_at(place);
            let (key, rest) = rest.split_at(1);
            match rest.split_once('.') {
                None => format!(
                    r#"{{"etcdEvent":{{"type":1,"kv":{{"key":"{key}w==","mod_revision":{revision}}}}}}}"#
                ),
                Some((created, version)) => format!(
                    r#"{{"etcdEvent":{{"kv":{{"key":"{key}w==","create_revision":{created},"mod_revision":{revision},"version":{version}}}}}}}"#
                ),
            }
        };
        format!("[{}]", events.split_whitespace().map(event).collect::<Vec<_>>().join(","))
    }

    #[test]
    fn deltas_are_applied_revision_by_revision() {
        // The full snapshot has revision 6, and key a of revision 5 with version 1. Each delta has its last revision.
        type Applied<'a> = (&'a [(&'a str, u64)], Result<u64, &'a str>);
        let table: [Applied<'_>; 20] = [
            (&[("7b7.1 8a5.2", 8)], Ok(8)),
            (&[("7b7.1 7c7.1 8b 8c", 8), ("9b9.1", 9)], Ok(9)),
            (&[("5a5.1 6x6.1 7a5.2", 7)], Ok(7)),
            // All of it is in the full snapshot.
            (&[("5a5.1 6x6.1", 6)], Ok(6)),
            (&[("5a5.1", 5), ("6x6.1 7a5.2", 7)], Ok(7)),
            (&[("5a5.1 6x6.1", 6), ("7a5.2", 7)], Ok(7)),
            (&[("", 6)], Ok(6)),
            (&[("", 7)], Err("its name says that it ends with revision 7, and it ends with 6")),
            (&[("8b8.1", 8)], Err("revisions 7 to 7 are missing before it")),
            (&[("7b7.1 9b7.2", 9)], Err("revisions 8 to 8 are missing before it")),
            (&[("7b7.1", 7), ("10b7.2", 10)], Err("revisions 8 to 9 are missing before it")),
            (&[("7b7.1", 8)], Err("its name says that it ends with revision 8, and it ends with 7")),
            (&[("7b7.1 8b7.2", 7)], Err("its name says that it ends with revision 7, and it ends with 8")),
            (&[("7b7.1", 7), ("7b7.1 8b7.2", 8)], Err("it contains revision 7 again")),
            (&[("7b7.1", 7), ("6x6.1", 6)], Err("it contains revision 6 again")),
            // Deltas of another history.
            (
                &[("7b", 7)],
                Err("its revision 7 changes keys that have another version: it is of another history"),
            ),
            (
                &[("7a7.1", 7)],
                Err("its revision 7 changes keys that have another version: it is of another history"),
            ),
            (
                &[("7a5.3", 7)],
                Err("its revision 7 changes keys that have another version: it is of another history"),
            ),
            (
                &[("7a4.2", 7)],
                Err("its revision 7 changes keys that have another version: it is of another history"),
            ),
            (
                &[("7b6.2", 7)],
                Err("its revision 7 changes keys that have another version: it is of another history"),
            ),
        ];
        for (deltas, expected) in table {
            let mut etcd = Fake { revision: 6, keys: BTreeMap::from([("aw==".to_owned(), [5, 1])]) };
            let mut progress = DeltaProgress { reached: 6, has_changed: false };
            let mut all = || {
                for (events, last) in deltas {
                    let text = text(events);
                    apply(&mut etcd, &mut DeltaReader::new(text.as_bytes(), "d"), *last, &mut progress)?;
                }
                Ok(progress.reached)
            };
            let found = all().map_err(|error| match error {
                Mismatch::Content(why) => why,
                Mismatch::Other(error) => error.to_string(),
            });
            assert_eq!(found, expected.map_err(str::to_owned), "{deltas:?}");
            assert!(expected.is_err() || etcd.revision == progress.reached);
        }
    }

    #[test]
    fn each_revision_is_made_again() {
        struct Ahead;
        impl DeltaTarget for Ahead {
            fn apply(&mut self, step: &DeltaStep) -> Result<Option<u64>, Error> {
                Ok(Some(step.revision + 1))
            }
        }
        let (text, mut progress) = (text("7b7.1"), DeltaProgress { reached: 6, has_changed: false });
        let found = apply(&mut Ahead, &mut DeltaReader::new(text.as_bytes(), "d"), 7, &mut progress);
        assert!(
            matches!(found, Err(Mismatch::Content(why)) if why == "its revision 7 became revision 8 of the etcd")
        );
        assert_eq!(progress.reached, 6);
    }
}
