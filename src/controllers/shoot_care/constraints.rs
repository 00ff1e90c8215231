//! The constraints of a Shoot: what prevents its hibernation, maintenance and so on. Pure.

use crate::api::condition::{self, Condition, ConditionStatus, Finding};
use crate::base::clock::Timestamp;
use crate::format::time::rfc3339;

use super::basis::Basis;
use super::decide::{CheckInput, ServerHealth, pardon};
use super::schedule;
use super::webhooks::WebhookProblem;

const HIBERNATION: &str = "HibernationPossible";
const MAINTENANCE: &str = "MaintenancePreconditionsSatisfied";
const AUTHORITIES: &str = "CACertificateValiditiesAcceptable";
const DEFINITIONS: &str = "CRDsWithProblematicConversionWebhooks";
const IN_PLACE: &str = "ManualInPlaceWorkersUpdated";
const ROTATION: &str = "AutomaticCredentialsRotationPossible";
const IGNORED: &str = "HasIgnoredManagedResources";
const PRESERVED: &str = "PreservedFailedMachinesAbsent";
/// The constraints of this controller. Constraints about workers never exist.
pub(super) const CONSTRAINTS: [&str; 8] =
    [HIBERNATION, MAINTENANCE, AUTHORITIES, DEFINITIONS, IN_PLACE, ROTATION, IGNORED, PRESERVED];
/// Constraints that always exist.
const REQUIRED: [&str; 2] = [HIBERNATION, MAINTENANCE];

/// CAs must be valid for at least this many days.
const VALID_DAYS: u64 = 365;
/// The code of webhooks that could keep a Shoot from waking up.
const WEBHOOK_CODE: &str = "ERR_PROBLEMATIC_WEBHOOK";

/// The findings inside the Shoot.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct ShootFindings {
    /// The problem of its webhooks, or why it is unknown.
    pub(super) webhooks: Result<Option<WebhookProblem>, String>,
    /// Its CustomResourceDefinitions whose objects cannot be read without a webhook, or why they are unknown.
    pub(super) definitions: Result<Vec<String>, String>,
}

/// The input of the constraints, besides the input of the conditions.
#[derive(Clone, Copy, Debug)]
pub(super) struct ConstraintInput<'a> {
    /// The last reconciled spec.
    pub(super) basis: &'a Basis,
    /// The CAs of the control plane with their expiry; or why it is unknown.
    pub(super) authorities: Result<&'a [(String, Timestamp)], &'a str>,
    /// The findings inside the Shoot; or why they are unknown. Read only if the API server answers.
    pub(super) inside: Result<&'a ShootFindings, &'a str>,
}

type Said = (ConditionStatus, Finding);

/// The constraints that must exist.
pub(super) fn constraints(
    facts: &CheckInput<'_>,
    old: &[Condition],
    more: &ConstraintInput<'_>,
) -> Vec<Condition> {
    let now = facts.now;
    let all = CONSTRAINTS.into_iter().filter_map(|kind| {
        let before = condition::find_or_init(old, kind, now);
        let (status, finding) = check(kind, facts, more)?;
        let next = before.updated(now, status, finding);
        // A hibernated Shoot has two more, as in upstream.
        let is_shown = REQUIRED.contains(&kind)
            || next.status != ConditionStatus::True
            || (facts.is_asleep && [AUTHORITIES, DEFINITIONS].contains(&kind));
        is_shown.then(|| pardon(facts.status, &before, next, now))
    });
    all.collect()
}

/// The result of a check; `None` if the constraint does not apply.
fn check(kind: &str, facts: &CheckInput<'_>, more: &ConstraintInput<'_>) -> Option<Said> {
    let not_checked = |status, text: &str| Some((status, Finding::new("ConstraintNotChecked", text)));
    let is_of_inside = [HIBERNATION, MAINTENANCE, DEFINITIONS].contains(&kind);
    if facts.is_asleep && (is_of_inside || kind == AUTHORITIES) {
        return not_checked(ConditionStatus::True, "Shoot cluster has been hibernated.");
    }
    if is_of_inside && *facts.server == ServerHealth::Stopped {
        let is_required = REQUIRED.contains(&kind);
        return is_required.then(|| {
            not_checked(ConditionStatus::False, "Shoot control plane is not running at the moment.")
        })?;
    }
    match kind {
        HIBERNATION | MAINTENANCE => Some(webhooks(facts, more)),
        DEFINITIONS => definitions(more),
        AUTHORITIES => Some(authorities(more, facts.now)),
        ROTATION => Some(rotation(more.basis, facts)),
        IGNORED => Some(ignored(facts)),
        _ => None,
    }
}

fn unknown(why: &str) -> Said {
    (ConditionStatus::Unknown, Finding::new(condition::CHECK_ERROR, why))
}

fn webhooks(facts: &CheckInput<'_>, more: &ConstraintInput<'_>) -> Said {
    if let ServerHealth::Unreached(why) = facts.server {
        return unknown(&format!("Could not initialize Shoot client for constraints check: {why}"));
    }
    let with_code = |reason: &str, message: &String| {
        let finding = Finding::new(reason, message.clone());
        (ConditionStatus::False, Finding { codes: vec![WEBHOOK_CODE.to_owned()], ..finding })
    };
    match more.inside.and_then(|inside| inside.webhooks.as_ref().map_err(String::as_str)) {
        Err(why) => unknown(why),
        Ok(None) => (
            ConditionStatus::True,
            Finding::new("NoProblematicWebhooks", "All webhooks are properly configured."),
        ),
        Ok(Some(WebhookProblem::Problematic(what))) => with_code("ProblematicWebhooks", what),
        Ok(Some(WebhookProblem::Remediated(what))) => with_code("RemediatedWebhooks", what),
    }
}

/// As in upstream, there is no constraint without a client.
fn definitions(more: &ConstraintInput<'_>) -> Option<Said> {
    let names = match &more.inside.ok()?.definitions {
        Ok(names) => names,
        Err(why) => return Some(unknown(why)),
    };
    if names.is_empty() {
        let text = "No CRDs have multiple stored versions present and a conversion webhook configured";
        return Some((ConditionStatus::True, Finding::new("NoCRDsWithProblematicConversionWebhooks", text)));
    }
    let text = format!(
        "Some CRDs have several stored versions and a conversion webhook, so that their objects cannot be read while that does \
         not answer: {}. Store all objects in one version, and remove the others from status.storedVersions.",
        names.join(", ")
    );
    Some((ConditionStatus::False, Finding::new(DEFINITIONS, text)))
}

fn authorities(more: &ConstraintInput<'_>, now: Timestamp) -> Said {
    let all = match more.authorities {
        Ok(all) => all,
        Err(why) => return unknown(why),
    };
    let soon = now.plus(std::time::Duration::from_secs(VALID_DAYS * 86_400));
    let expiring = all.iter().filter(|(_, until)| *until < soon);
    let expiring: Vec<String> =
        expiring.map(|(name, until)| format!("\"{name}\" (expiring at {})", rfc3339(*until))).collect();
    if expiring.is_empty() {
        let text = format!("All CA certificates are still valid for at least {VALID_DAYS} days.");
        return (ConditionStatus::True, Finding::new("NoExpiringCACertificates", text));
    }
    let text = format!(
        "Some CA certificates expire in less than {VALID_DAYS} days, rotate them: {}",
        expiring.join(", ")
    );
    (ConditionStatus::False, Finding::new("ExpiringCACertificates", text))
}

fn rotation(basis: &Basis, facts: &CheckInput<'_>) -> Said {
    let well = |reason: &str, text: &str| (ConditionStatus::True, Finding::new(reason, text));
    let not_required = |text| well("AutomaticCredentialsRotationNotRequired", text);
    let Some(due) = basis.key_is_due else {
        return not_required("The ETCD encryption key is not rotated automatically.");
    };
    if facts.now <= due {
        return not_required("The ETCD encryption key does not have to be rotated yet.");
    }
    let window = schedule::next_window(&basis.window_begin, &basis.window_end, facts.now);
    let sleeps = window.is_some_and(|window| {
        schedule::sleeps_in_window(&basis.schedules, facts.status.is_hibernated, window, facts.now)
    });
    if sleeps {
        let text = "The ETCD encryption key has to be rotated, and the Shoot is asleep in its next maintenance window. Adjust its \
            window or its hibernation schedule so that it is awake then, or rotate the key by hand.";
        return (ConditionStatus::False, Finding::new("MaintenanceWindowDuringHibernation", text));
    }
    well(
        "AutomaticCredentialsRotationPossible",
        "The ETCD encryption key has to be rotated, and the Shoot is awake in its next maintenance window.",
    )
}

fn ignored(facts: &CheckInput<'_>) -> Said {
    let names: Vec<&str> =
        facts.managed.iter().filter(|m| m.is_ignored()).map(|m| m.metadata.name.as_str()).collect();
    if names.is_empty() {
        return (
            ConditionStatus::True,
            Finding::new("NoIgnoredManagedResources", "No ManagedResource of the Shoot is ignored."),
        );
    }
    let text = format!(
        "Some ManagedResources in the Shoot's namespace are not applied, remove annotation resources.gardener.cloud/ignore from \
         them: {}",
        names.join(", ")
    );
    (ConditionStatus::False, Finding::new("ManagedResourcesIgnored", text))
}
