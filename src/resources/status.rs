//! The status of a ManagedResource in each phase.

use serde_json::Value;

use super::memory::shortened;
use super::names::{APPLIED, HEALTHY, PROGRESSING, reason};
use super::object::map_at;
use crate::api::condition::{self, Condition, ConditionStatus, Finding};
use crate::api::resources::ObjectReference;
use crate::base::clock::Timestamp;
use crate::base::json::json;
use crate::limits;

/// The present conditions, and the time of the change.
#[derive(Clone, Copy, Debug)]
pub(super) struct Present<'a> {
    pub(super) conditions: &'a [Condition],
    pub(super) now: Timestamp,
}

impl Present<'_> {
    /// A condition with a new finding.
    pub(super) fn with(self, kind: &str, status: ConditionStatus, reason: &str, message: &str) -> Condition {
        let old = condition::find_or_init(self.conditions, kind, self.now);
        let message = shortened(message, limits::CONDITION_MESSAGE_BYTES_MAX);
        old.updated(self.now, status, Finding::new(reason, message))
    }

    /// The ManagedResource is marked as ignored.
    pub(super) fn ignored(self) -> Vec<Condition> {
        let text = "ManagedResource is marked to be ignored.";
        [
            (APPLIED, ConditionStatus::True),
            (HEALTHY, ConditionStatus::True),
            (PROGRESSING, ConditionStatus::False),
        ]
        .map(|(kind, status)| self.with(kind, status, reason::IGNORED, text))
        .to_vec()
    }

    /// New objects must be applied, so earlier results of the checks are void.
    pub(super) fn changed(self) -> Vec<Condition> {
        let healthy = "The health checks have not yet been executed for the current set of resources.";
        let progressing = "Checks have not yet been executed for the current set of resources.";
        vec![
            self.with(HEALTHY, ConditionStatus::Unknown, reason::CHECKS_PENDING, healthy),
            self.with(PROGRESSING, ConditionStatus::Unknown, reason::CHECKS_PENDING, progressing),
            self.applying(),
        ]
    }

    /// A problem stays readable until it is certainly over.
    fn applying(self) -> Condition {
        let problems = [reason::APPLY_FAILED, reason::DELETION_FAILED, reason::DELETION_PENDING];
        match condition::find(self.conditions, APPLIED).filter(|c| problems.contains(&c.reason.as_str())) {
            Some(old) => self.with(APPLIED, ConditionStatus::Progressing, &old.reason, &old.message),
            None => {
                let text = "The resources are currently being reconciled.";
                self.with(APPLIED, ConditionStatus::Progressing, reason::APPLY_PROGRESSING, text)
            }
        }
    }

    /// The ManagedResource is being deleted, with or without its objects. Facts about their deletion stay readable.
    pub(super) fn deleting(self, with_objects: bool) -> Vec<Condition> {
        let text = "The resources are currently being deleted.";
        let mut all = vec![
            self.with(HEALTHY, ConditionStatus::False, reason::DELETION_PENDING, text),
            self.with(PROGRESSING, ConditionStatus::True, reason::DELETION_PENDING, text),
        ];
        if with_objects {
            let told = [reason::DELETION_PENDING, reason::DELETION_FAILED];
            let old = condition::find(self.conditions, APPLIED).filter(|c| told.contains(&c.reason.as_str()));
            let text = old.map_or(text, |c| c.message.as_str());
            all.push(self.with(APPLIED, ConditionStatus::Progressing, reason::DELETION_PENDING, text));
        }
        all
    }

    /// `ResourcesApplied` after a failure.
    pub(super) fn failed(self, reason: &str, message: &str) -> Vec<Condition> {
        vec![self.with(APPLIED, ConditionStatus::False, reason, message)]
    }

    /// `ResourcesApplied` while deleted objects still exist.
    pub(super) fn deletion_pending(self, message: &str) -> Vec<Condition> {
        vec![self.with(APPLIED, ConditionStatus::Progressing, reason::DELETION_PENDING, message)]
    }

    /// `ResourcesApplied` at the end.
    pub(super) fn applied(self, problems: Option<String>) -> Vec<Condition> {
        let Some(problems) = problems else {
            let text = "All resources are applied.";
            return vec![self.with(APPLIED, ConditionStatus::True, reason::APPLY_SUCCEEDED, text)];
        };
        let text = format!("Could not decode all new resources: {problems}");
        self.failed(reason::DECODING_FAILED, &text)
    }
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Applied<'a> {
    pub(super) references: &'a [ObjectReference],
    pub(super) checksum: &'a str,
    pub(super) generation: i64,
}

/// The whole ManagedResource with a new status, to be written with its resourceVersion.
pub(super) fn with_status(raw: &Value, changed: &[Condition], applied: Option<Applied<'_>>) -> Value {
    let mut next = raw.clone();
    let conditions = condition::merge_patch(raw, changed, &[])["status"]["conditions"].take();
    let status = map_at(&mut next, &["status"]);
    status.insert("conditions".to_owned(), conditions);
    if let Some(applied) = applied {
        // A reference is a struct of texts, so this cannot fail.
        status.insert("resources".to_owned(), serde_json::to_value(applied.references).unwrap_or_default());
        status.insert("secretsDataChecksum".to_owned(), json!(applied.checksum));
        status.insert("observedGeneration".to_owned(), json!(applied.generation));
    }
    next
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp::from_unix(1_700_000_000);

    fn present(conditions: &[Condition]) -> Present<'_> {
        Present { conditions, now: NOW }
    }

    fn brief(conditions: &[Condition]) -> Vec<(&str, ConditionStatus, &str, &str)> {
        conditions
            .iter()
            .map(|c| (c.kind.as_str(), c.status, c.reason.as_str(), c.message.as_str()))
            .collect()
    }

    #[test]
    fn phases() {
        let none = present(&[]);
        let ignored = "ManagedResource is marked to be ignored.";
        let table = [
            (
                none.ignored(),
                vec![
                    ("ResourcesApplied", ConditionStatus::True, "ManagedResourceIgnored", ignored),
                    ("ResourcesHealthy", ConditionStatus::True, "ManagedResourceIgnored", ignored),
                    ("ResourcesProgressing", ConditionStatus::False, "ManagedResourceIgnored", ignored),
                ],
            ),
            (
                none.changed(),
                vec![
                    (
                        "ResourcesHealthy",
                        ConditionStatus::Unknown,
                        "ChecksPending",
                        "The health checks have not yet been executed for the current set of resources.",
                    ),
                    (
                        "ResourcesProgressing",
                        ConditionStatus::Unknown,
                        "ChecksPending",
                        "Checks have not yet been executed for the current set of resources.",
                    ),
                    (
                        "ResourcesApplied",
                        ConditionStatus::Progressing,
                        "ApplyProgressing",
                        "The resources are currently being reconciled.",
                    ),
                ],
            ),
            (
                none.deleting(false),
                vec![
                    (
                        "ResourcesHealthy",
                        ConditionStatus::False,
                        "DeletionPending",
                        "The resources are currently being deleted.",
                    ),
                    (
                        "ResourcesProgressing",
                        ConditionStatus::True,
                        "DeletionPending",
                        "The resources are currently being deleted.",
                    ),
                ],
            ),
            (
                none.applied(None),
                vec![(
                    "ResourcesApplied",
                    ConditionStatus::True,
                    "ApplySucceeded",
                    "All resources are applied.",
                )],
            ),
            (
                none.applied(Some("a; b".to_owned())),
                vec![(
                    "ResourcesApplied",
                    ConditionStatus::False,
                    "DecodingFailed",
                    "Could not decode all new resources: a; b",
                )],
            ),
            (
                none.deletion_pending("m"),
                vec![("ResourcesApplied", ConditionStatus::Progressing, "DeletionPending", "m")],
            ),
            (
                none.failed("ApplyFailed", "m"),
                vec![("ResourcesApplied", ConditionStatus::False, "ApplyFailed", "m")],
            ),
        ];
        for (conditions, expected) in table {
            assert_eq!(brief(&conditions), expected);
        }
    }

    #[test]
    fn facts_about_a_deletion_stay_readable() {
        let text = "The resources are currently being deleted.";
        for (reason, expected) in
            [("DeletionPending", "why"), ("DeletionFailed", "why"), ("ApplyFailed", text)]
        {
            let old = present(&[]).failed(reason, "why");
            let now = present(&old).deleting(true);
            let applied = condition::find(&now, "ResourcesApplied").unwrap();
            assert_eq!(
                (applied.status, applied.reason.as_str()),
                (ConditionStatus::Progressing, "DeletionPending")
            );
            assert_eq!(applied.message, expected, "{reason}");
        }
    }

    #[test]
    fn problems_stay_readable_while_applying() {
        for (reason, kept) in [
            ("ApplyFailed", true),
            ("DeletionFailed", true),
            ("DeletionPending", true),
            ("DecodingFailed", false),
            ("ApplySucceeded", false),
        ] {
            let old = present(&[]).failed(reason, "why");
            let now = present(&old).changed();
            let applied = condition::find(&now, "ResourcesApplied").unwrap();
            assert_eq!(applied.status, ConditionStatus::Progressing);
            assert_eq!(applied.reason == reason && applied.message == "why", kept, "{reason}");
        }
    }

    #[test]
    fn the_status_keeps_unknown_fields() {
        let raw = json!({"metadata": {"name": "x", "resourceVersion": "7"}, "status": {"other": 1,
            "observedGeneration": 1, "conditions": [{"type": "Foreign", "status": "True"}]}});
        let changed = present(&[]).applied(None);
        let next = with_status(&raw, &changed, None);
        assert_eq!((&next["status"]["other"], &next["status"]["observedGeneration"]), (&json!(1), &json!(1)));
        assert_eq!(next["status"]["conditions"][0]["type"], "Foreign");
        assert_eq!(next["status"]["conditions"][1]["type"], "ResourcesApplied");
        let references = [ObjectReference {
            api_version: "v1".into(),
            kind: "Secret".into(),
            name: "s".into(),
            ..Default::default()
        }];
        let applied = Applied { references: &references, checksum: "abc", generation: 3 };
        let next = with_status(&raw, &changed, Some(applied));
        assert_eq!(next["status"]["resources"], json!([{"apiVersion": "v1", "kind": "Secret", "name": "s"}]));
        assert_eq!(next["status"]["secretsDataChecksum"], "abc");
        assert_eq!(next["status"]["observedGeneration"], 3);
        assert_eq!(next["metadata"]["resourceVersion"], "7");
    }
}
