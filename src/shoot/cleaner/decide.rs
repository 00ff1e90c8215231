//! Decides what to do with an object to delete, and how long it may take. Pure.

use std::time::Duration;

use serde_json::Value;

use crate::api::meta::{ObjectMeta, annotation};
use crate::base::clock::Timestamp;

use super::kinds::{CleanupStage, Kind};

/// The error code of objects that cannot be deleted.
const CODE: &str = "ERR_CLEANUP_CLUSTER_RESOURCES";
/// With this annotation, a Shoot keeps most of its content until its API server is deleted.
const SKIP: &str = "shoot.gardener.cloud/skip-cleanup";

const MINUTE: u64 = 60;

/// How long the deletion of an object may take.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Patience {
    /// The grace period of the delete request.
    pub(super) grace_s: u32,
    /// After this time, its finalizers are removed.
    pub(super) finalize: Duration,
}

/// The action for an object.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Fate {
    Delete,
    /// Wait for its deletion.
    Wait,
    Finalize,
}

impl CleanupStage {
    /// The annotation of the Shoot that shortens the time until finalizers are removed.
    pub(crate) const fn annotation(self) -> &'static str {
        match self {
            Self::Webhooks => "shoot.gardener.cloud/cleanup-webhooks-finalize-grace-period-seconds",
            Self::Apis => "shoot.gardener.cloud/cleanup-extended-apis-finalize-grace-period-seconds",
            Self::Resources => {
                "shoot.gardener.cloud/cleanup-kubernetes-resources-finalize-grace-period-seconds"
            }
        }
    }
}

/// The times for a kind. A Shoot can only shorten the time until finalizers are removed. Errors: the
/// annotation of the Shoot is not a number of seconds.
pub(super) fn patience(shoot: &Value, stage: CleanupStage, kind: &Kind) -> Result<Patience, String> {
    let hour = stage == CleanupStage::Apis || kind.is_snapshot;
    let usual_s = if hour { 60 * MINUTE } else { 5 * MINUTE };
    let usual = Patience { grace_s: 300, finalize: Duration::from_secs(usual_s) };
    let name = stage.annotation();
    let text = annotation(shoot, name);
    if shoot["metadata"]["annotations"][name].is_null() {
        return Ok(usual);
    }
    let asked: i64 = text.parse().map_err(|_| {
        format!("annotation {name} of the Shoot is {text:?}: set it to a number of seconds, or remove it")
    })?;
    let asked = u64::try_from(asked).unwrap_or_default();
    if asked >= usual_s {
        return Ok(usual);
    }
    let grace_s = match stage {
        CleanupStage::Apis => asked / 10,
        _ if kind.is_snapshot => asked / 2,
        _ => asked,
    };
    let grace_s = u32::try_from(grace_s).unwrap_or(usual.grace_s);
    Ok(Patience { grace_s, finalize: Duration::from_secs(asked) })
}

/// The present action for an object. The server stores the start of its deletion, so a restart of the agent
/// does not extend the time.
pub(super) fn fate(object: &ObjectMeta, patience: Patience, now: Timestamp) -> Fate {
    match object.deletion_timestamp {
        None => Fate::Delete,
        Some(at) if now >= at.plus(patience.finalize) && !object.finalizers.is_empty() => Fate::Finalize,
        Some(_) => Fate::Wait,
    }
}

/// Whether an object was created too late to wait for it: something in the Shoot creates such objects repeatedly.
pub(super) fn is_late(object: &ObjectMeta, begun: Option<Timestamp>, patience: Patience) -> bool {
    let end = begun.map(|begun| begun.plus(patience.finalize));
    end.zip(object.creation_timestamp).is_some_and(|(end, created)| created > end)
}

/// Whether the owner of the Shoot wants to keep most of its content.
pub(crate) fn skips(shoot: &Value) -> bool {
    !shoot["metadata"]["annotations"][SKIP].is_null()
}

pub(super) fn code() -> Vec<String> {
    vec![CODE.to_owned()]
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const NOW: Timestamp = Timestamp::from_unix(10_000);

    fn kind(stage: CleanupStage, is_snapshot: bool) -> Kind {
        stage.kinds(false).into_iter().find(|kind| kind.is_snapshot == is_snapshot).unwrap()
    }

    #[test]
    fn a_shoot_can_shorten_the_times() {
        let table = [
            (CleanupStage::Webhooks, false, None, Some((300, 300))),
            (CleanupStage::Apis, false, None, Some((300, 3_600))),
            (CleanupStage::Resources, false, None, Some((300, 300))),
            (CleanupStage::Resources, true, None, Some((300, 3_600))),
            (CleanupStage::Webhooks, false, Some("20"), Some((20, 20))),
            (CleanupStage::Apis, false, Some("20"), Some((2, 20))),
            (CleanupStage::Resources, false, Some("20"), Some((20, 20))),
            (CleanupStage::Resources, true, Some("20"), Some((10, 20))),
            (CleanupStage::Resources, true, Some("600"), Some((300, 600))),
            (CleanupStage::Resources, false, Some("600"), Some((300, 300))),
            (CleanupStage::Apis, false, Some("0"), Some((0, 0))),
            (CleanupStage::Apis, false, Some("-5"), Some((0, 0))),
            (CleanupStage::Apis, false, Some("1h"), None),
            (CleanupStage::Apis, false, Some(""), None),
        ];
        for (stage, is_snapshot, annotation, expected) in table {
            let mut shoot = json!({"metadata": {"annotations": {}}});
            if let Some(value) = annotation {
                shoot["metadata"]["annotations"][stage.annotation()] = json!(value);
            }
            let found = patience(&shoot, stage, &kind(stage, is_snapshot)).ok();
            let found = found.map(|found| (found.grace_s, found.finalize.as_secs()));
            assert_eq!(found, expected, "{stage:?} {is_snapshot} {annotation:?}");
        }
    }

    #[test]
    fn finalizers_are_removed_after_their_time() {
        let patience = Patience { grace_s: 0, finalize: Duration::from_secs(60) };
        let table = [
            (None, &["x"][..], Fate::Delete),
            (None, &[], Fate::Delete),
            (Some(0), &["x"], Fate::Wait),
            (Some(59), &["x"], Fate::Wait),
            (Some(60), &["x"], Fate::Finalize),
            (Some(600), &[], Fate::Wait),
            // A pod is deleted at the end of its grace period.
            (Some(-30), &["x"], Fate::Wait),
        ];
        for (since, finalizers, expected) in table {
            let object = ObjectMeta {
                deletion_timestamp: since.map(|since| Timestamp::from_unix(10_000 - since)),
                finalizers: finalizers.iter().map(|name| (*name).to_owned()).collect(),
                ..ObjectMeta::default()
            };
            assert_eq!(fate(&object, patience, NOW), expected, "{since:?} {finalizers:?}");
        }
    }

    #[test]
    fn late_objects_are_not_waited_for() {
        let patience = Patience { grace_s: 0, finalize: Duration::from_secs(60) };
        let table = [(Some(9_000), 9_060, false), (Some(9_000), 9_061, true), (None, 9_999, false)];
        for (begun, created, expected) in table {
            let object = ObjectMeta {
                creation_timestamp: Some(Timestamp::from_unix(created)),
                ..ObjectMeta::default()
            };
            assert_eq!(is_late(&object, begun.map(Timestamp::from_unix), patience), expected, "{begun:?}");
        }
    }
}
