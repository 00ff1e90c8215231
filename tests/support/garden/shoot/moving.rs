//! A Shoot that moves to another Seed: which Seeds it may move between, and what nobody changes meanwhile.

use serde_json::Value;

use crate::api::failure::Failure;
use crate::api::rules::Write;
use crate::json::{list, text};

/// Whether it is bound to another Seed, whose operation has not begun.
fn is_rescheduled(shoot: &Value) -> bool {
    let (wanted, present) = (text(shoot, "/spec/seedName"), text(shoot, "/status/seedName"));
    let last = &shoot["status"]["lastOperation"];
    !last.is_null()
        && last["type"] != "Migrate"
        && !wanted.is_empty()
        && !present.is_empty()
        && wanted != present
}

/// Type and state of the operation that moves it, also if it has failed.
fn moving(shoot: &Value) -> Option<(&str, &str)> {
    let last = &shoot["status"]["lastOperation"];
    let (kind, state) = (text(last, "/type"), text(last, "/state"));
    let moves = kind == "Migrate" || (kind == "Restore" && state != "Succeeded");
    moves.then_some((kind, state))
}

/// Refuses a change of the spec that is no binding.
///
/// # Errors
/// The Shoot moves.
pub fn frozen(old: &Value, new: &Value, write: &Write<'_>) -> Result<(), Failure> {
    if old["spec"] == new["spec"] {
        return Ok(());
    }
    let why = match moving(new) {
        _ if is_rescheduled(new) => {
            "shoot spec cannot be changed because shoot has been rescheduled to a new seed".to_owned()
        }
        Some((kind, state)) => {
            format!("cannot change shoot spec during {kind} operation that is in state {state}")
        }
        None => return Ok(()),
    };
    Err(Failure::forbidden(&write.kind.group, &write.kind.plural, text(new, "/metadata/name"), &why))
}

/// Why it may not be deleted now.
pub fn keeps(shoot: &Value) -> Option<String> {
    let (kind, state) = moving(shoot)?;
    Some(format!("cannot mark shoot for deletion during {kind} operation that is in state {state}"))
}

/// Why a Shoot cannot move from one Seed to another, whatever is on them.
pub fn between(shoot: &Value, old: &Value, new: &Value) -> Option<String> {
    let name = |seed| text(seed, "/metadata/name");
    let why = "cannot change seed name because";
    if old["spec"]["backup"].is_null() {
        return Some(format!("{why} backup is not configured for old seed {:?}", name(old)));
    }
    if new["spec"]["backup"].is_null() {
        return Some(format!("{why} backup is not configured for seed {:?}", name(new)));
    }
    let domain = |seed| text(seed, "/spec/dns/internal/domain");
    if domain(old) != domain(new) {
        return Some(format!(
            "{why} the internal domain {:?} of seed {:?} differs from the internal domain {:?} of old seed {:?}",
            domain(new),
            name(new),
            domain(old),
            name(old)
        ));
    }
    let own = text(shoot, "/spec/dns/domain");
    let default = |seed| {
        let mut all = list(seed, "/spec/dns/defaults").iter().map(|default| text(default, "/domain"));
        all.find(|domain| !domain.is_empty() && own.ends_with(&format!(".{domain}"))).map(str::to_owned)
    };
    let lost = default(old).filter(|_| default(new).is_none())?;
    Some(format!("{why} seed {:?} does not have the default domain {lost:?} of the shoot", name(new)))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_shoot_is_kept_from_its_binding_until_it_is_restored() {
        let table = [
            ("a", json!({"type": "Reconcile", "state": "Succeeded"}), false, None),
            ("b", json!({"type": "Reconcile", "state": "Succeeded"}), true, None),
            ("b", json!({"type": "Migrate", "state": "Error"}), false, Some(("Migrate", "Error"))),
            ("b", json!({"type": "Restore", "state": "Failed"}), true, Some(("Restore", "Failed"))),
            ("a", json!({"type": "Migrate", "state": "Succeeded"}), false, Some(("Migrate", "Succeeded"))),
            ("a", json!({"type": "Restore", "state": "Processing"}), false, Some(("Restore", "Processing"))),
            ("a", json!({"type": "Restore", "state": "Succeeded"}), false, None),
            ("b", Value::Null, false, None),
        ];
        for (wanted, last, rescheduled, moves) in table {
            let shoot =
                json!({"spec": {"seedName": wanted}, "status": {"seedName": "a", "lastOperation": last}});
            assert_eq!((is_rescheduled(&shoot), moving(&shoot)), (rescheduled, moves), "{shoot}");
        }
    }

    #[test]
    fn seeds_between_which_shoots_move_are_alike() {
        let seed = |name: &str, backup: bool, internal: &str, default: &str| {
            let backup = if backup { json!({"provider": "local"}) } else { Value::Null };
            json!({"metadata": {"name": name}, "spec": {"backup": backup,
                "dns": {"internal": {"domain": internal}, "defaults": [{"domain": default}]}}})
        };
        let shoot = json!({"spec": {"dns": {"domain": "s.p.x.org"}}});
        let table = [
            ((true, "i", "x.org"), (true, "i", "x.org"), None),
            (
                (false, "i", "x.org"),
                (true, "i", "x.org"),
                Some("backup is not configured for old seed \"a\""),
            ),
            ((true, "i", "x.org"), (false, "i", "x.org"), Some("backup is not configured for seed \"b\"")),
            ((true, "i", "x.org"), (true, "j", "x.org"), Some("the internal domain \"j\" of seed \"b\"")),
            ((true, "i", "x.org"), (true, "i", "y.org"), Some("does not have the default domain \"x.org\"")),
            ((true, "i", "y.org"), (true, "i", "z.org"), None),
        ];
        for (old, new, expected) in table {
            let (old, new) = (seed("a", old.0, old.1, old.2), seed("b", new.0, new.1, new.2));
            let found = between(&shoot, &old, &new);
            assert_eq!(found.is_some(), expected.is_some(), "{found:?}");
            assert!(found.unwrap_or_default().contains(expected.unwrap_or_default()));
        }
    }
}
