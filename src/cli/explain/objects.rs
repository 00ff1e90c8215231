//! The objects of a ManagedResource: most of them do not show why it waits. No IO.

use serde_json::Value;

use super::decide::{Related, is_well};
use crate::base::clock::Timestamp;

/// How many objects the explanation describes; it counts the others.
const TOLD_MAX: usize = 8;

/// The findings about the objects.
#[derive(Debug)]
pub(super) struct Survey {
    now: Timestamp,
    /// Whether the objects are being deleted; then the findings are those that still exist.
    going: bool,
    related: Vec<Related>,
    /// The number of further objects with a finding.
    more: usize,
    /// The number of objects that have to go, but whose deletion was not requested yet.
    left: usize,
    unread: usize,
    /// Why the first unread object was not read.
    why: String,
}

impl Survey {
    pub(super) const fn new(going: bool, now: Timestamp) -> Self {
        Self { now, going, related: Vec::new(), more: 0, left: 0, unread: 0, why: String::new() }
    }

    /// Adds an object with its `kind`, or its absence.
    pub(super) fn add(&mut self, kind: &str, place: &str, found: Option<Value>) {
        let related = match found {
            Some(object) if !is_well(&object, self.now) => Related::object(format!("its {kind}"), object),
            Some(_) => return self.left += usize::from(self.going),
            None if self.going => return,
            None => Related::lack(format!("its {kind} {place} is missing")),
        };
        if self.related.len() < TOLD_MAX {
            self.related.push(related);
        } else {
            self.more += 1;
        }
    }

    /// Adds objects that were not read.
    pub(super) fn not_read(&mut self, count: usize, why: impl FnOnce() -> String) {
        if self.unread == 0 && count > 0 {
            self.why = why();
        }
        self.unread += count;
    }

    /// The lines of the explanation, and what could not be read.
    pub(super) fn end(mut self) -> (Vec<Related>, Option<String>) {
        if self.more > 0 {
            let are = verb(self.more);
            let what = format!("{} more of its objects {are} missing or not ready", self.more);
            self.related.push(Related::lack(what));
        }
        if self.left > 0 {
            let are = verb(self.left);
            self.related.push(Related::note(format!("{} of its objects {are} still there", self.left)));
        }
        (self.related, (self.unread > 0).then(|| format!("{} of its objects: {}", self.unread, self.why)))
    }
}

const fn verb(count: usize) -> &'static str {
    if count == 1 { "is" } else { "are" }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn told(survey: Survey) -> (Vec<String>, Option<String>) {
        let (related, unread) = survey.end();
        let one = |r: Related| format!("{}{}", r.what, if r.object.is_some() { " ..." } else { "" });
        (related.into_iter().map(one).collect(), unread)
    }

    #[test]
    fn only_obstacles_are_printed() {
        let well = json!({"kind": "A", "status": {"conditions": [{"type": "Ready", "status": "True"}]}});
        let ill = json!({"kind": "A", "status": {"conditions": [{"type": "Ready", "status": "False"}]}});
        let held = json!({"kind": "A", "metadata": {"deletionTimestamp": "2026-01-05T10:00:00Z"}});
        let table = [
            (false, Some(&well), None),
            (false, Some(&ill), Some("its A ...")),
            (false, Some(&held), Some("its A ...")),
            (false, None, Some("its A b/c is missing")),
            (true, Some(&well), Some("1 of its objects is still there")),
            (true, Some(&ill), Some("its A ...")),
            (true, Some(&held), Some("its A ...")),
            (true, None, None),
        ];
        for (going, object, expected) in table {
            let mut survey = Survey::new(going, Timestamp::default());
            survey.add("A", "b/c", object.cloned());
            let expected = expected.map(str::to_owned).into_iter().collect();
            assert_eq!(told(survey), (expected, None), "{going} {object:?}");
        }
    }

    #[test]
    fn one_more_is_no_plural() {
        let mut survey = Survey::new(false, Timestamp::default());
        (0..=TOLD_MAX).for_each(|n| survey.add("A", &n.to_string(), None));
        assert_eq!(told(survey).0[TOLD_MAX], "1 more of its objects is missing or not ready");
    }

    #[test]
    fn many_are_counted() {
        let mut survey = Survey::new(false, Timestamp::default());
        for n in 0..TOLD_MAX + 3 {
            survey.add("A", &n.to_string(), None);
        }
        survey.not_read(0, || "nothing".to_owned());
        survey.not_read(1, || "first".to_owned());
        survey.not_read(4, || "second".to_owned());
        let (related, unread) = told(survey);
        assert_eq!(related.len(), TOLD_MAX + 1);
        assert_eq!(related[TOLD_MAX], "3 more of its objects are missing or not ready");
        assert_eq!(unread.as_deref(), Some("5 of its objects: first"));
    }
}
