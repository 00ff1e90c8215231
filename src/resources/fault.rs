//! Faults of ManagedResources, for reports about a Seed or a Shoot.

use std::time::Duration;

use super::names::{self, reason};
use super::trigger::{ManagedResourceHead, ManagedResourceHeadCondition};
use crate::api::condition::{ConditionStatus, Finding};
use crate::base::clock::Timestamp;
use crate::format::duration;

/// A fault of a ManagedResource.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum ManagedResourceFault {
    /// It cannot be applied, or is not healthy.
    Certain(Finding),
    /// It is being applied, or its objects are being rolled out. Every change of an extension causes this for a moment.
    Passing(Finding),
}

impl ManagedResourceFault {
    /// Whether the fault may disappear by itself soon.
    pub(crate) const fn is_passing(&self) -> bool {
        matches!(self, Self::Passing(_))
    }

    /// The reason and message.
    pub(crate) fn into_finding(self) -> Finding {
        match self {
            Self::Certain(finding) | Self::Passing(finding) => finding,
        }
    }
}

/// How long a roll-out may take.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct RolloutPatience {
    pub(crate) threshold: Duration,
    pub(crate) now: Timestamp,
}

fn reported(condition: &ManagedResourceHeadCondition) -> ManagedResourceFault {
    let finding = Finding::new(condition.reason.clone(), condition.message.clone());
    if condition.status == ConditionStatus::False {
        ManagedResourceFault::Certain(finding)
    } else {
        ManagedResourceFault::Passing(finding)
    }
}

impl ManagedResourceHead {
    /// The fault, if there is one. A roll-out is a fault at once, or, with a threshold and the present time, when it
    /// takes longer than that.
    pub(crate) fn fault(&self, patience: Option<RolloutPatience>) -> Option<ManagedResourceFault> {
        let key = self.metadata.key();
        let (observed, generation) = (self.status.observed_generation, self.metadata.generation);
        let find = |kind: &str| self.status.conditions.iter().find(|c| c.kind == kind);
        if observed != generation {
            if let Some(applied) = find(names::APPLIED).filter(|c| c.reason == reason::APPLY_FAILED) {
                return Some(reported(applied));
            }
            let text =
                format!("observed generation of managed resource '{key}' outdated ({observed}/{generation})");
            return Some(ManagedResourceFault::Passing(Finding::new("OutdatedStatus", text)));
        }
        let mut missing = Vec::new();
        for kind in [names::APPLIED, names::HEALTHY, names::PROGRESSING] {
            match find(kind) {
                Some(found) if found.is_fault() => match patience {
                    Some(RolloutPatience { threshold, now }) if found.status == ConditionStatus::True => {
                        if let Some(stuck) = self.stuck(found, threshold, now) {
                            return Some(stuck);
                        }
                    }
                    _ => return Some(reported(found)),
                },
                Some(_) => {}
                None => missing.push(kind),
            }
        }
        let text =
            format!("ManagedResource {key} is missing the following condition(s), [{}]", missing.join(" "));
        (!missing.is_empty())
            .then(|| ManagedResourceFault::Passing(Finding::new("MissingManagedResourceCondition", text)))
    }

    fn stuck(
        &self,
        progressing: &ManagedResourceHeadCondition,
        threshold: Duration,
        now: Timestamp,
    ) -> Option<ManagedResourceFault> {
        if now.since(progressing.changed) <= threshold {
            return None;
        }
        let (key, threshold) = (self.metadata.key(), duration::format(threshold));
        let text = format!(
            "ManagedResource {key} has been rolled out for more than {threshold}: {}",
            progressing.message
        );
        Some(ManagedResourceFault::Passing(Finding::new("ProgressingRolloutStuck", text)))
    }

    /// Whether its annotation says that it is ignored.
    pub(crate) fn is_ignored(&self) -> bool {
        super::trigger::is_ignored(&self.metadata)
    }
}
