//! Shoots that another seed has restored while this one was away: what still runs of their
//! control planes here is stopped, also the snapshots of their etcds. The rest stays for a person to look at. Nothing of
//! it is written to the garden.
//!
//! Two things must say that a Shoot has left, so that a mistake of the garden stops no control plane: the garden does not count it among
//! the Shoots of this seed, and its BackupEntry belongs to another one.

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;

use crate::api::extensions::CLUSTER;
use crate::api::gardener::BACKUP_ENTRY;
use crate::api::meta::{Key, text};
use crate::backup::garden::entry_name;
use crate::components::hosting::has_role_shoot;
use crate::extension::together;
use crate::flow::TaskStep;
use crate::operation::components::etcd::plain::moving::suspend;
use crate::operation::sleep;
use crate::runtime::controller::{ReconcileContext, ReconcileFailure, ReconcileOutcome, Reconciler};
use crate::runtime::group::ControllerGroup;
use crate::runtime::queue::Retry;

use super::Site;

/// How soon to check again whether pods have ended.
const SOON: Duration = Duration::from_secs(5);
/// How often a control plane that no Shoot of this seed has is checked.
const PERIOD: Duration = Duration::from_secs(600);

pub(crate) fn add(site: &Arc<Site>, group: &mut ControllerGroup) {
    let lane = group.lane("shoot-left", 1, Retry::up_to(PERIOD));
    group.wake(&lane, &site.namespaces, |change| {
        let new = change.new.as_ref().filter(|new| change.old.is_none() && has_role_shoot(&new.metadata));
        new.map(|_| change.key.clone())
    });
    group.wake(&lane, &site.heads, |change| {
        let gone = change.old.as_ref().filter(|_| change.new.is_none())?;
        let namespace = gone.status.technical_id.as_str();
        (!namespace.is_empty()).then(|| Key::cluster(namespace))
    });
    group.run(lane, LeftShoots(Arc::clone(site)));
}

struct LeftShoots(Arc<Site>);

/// Whether a BackupEntry shows that another seed has its Shoot.
fn is_of_another(entry: &Value, seed: &str) -> bool {
    let (wanted, present) = (text(&entry["spec"]["seedName"]), text(&entry["status"]["seedName"]));
    !wanted.is_empty() && wanted != seed && present != seed
}

impl Reconciler for LeftShoots {
    fn reconcile(&self, key: &Key, cx: &ReconcileContext) -> Result<ReconcileOutcome, ReconcileFailure> {
        let Self(site) = self;
        let heads = site.heads.store();
        if !heads.is_synced() {
            return Ok(ReconcileOutcome::After(SOON));
        }
        if heads.values().iter().any(|head| head.status.technical_id == key.name) {
            return Ok(ReconcileOutcome::Done);
        }
        let Some(cluster) = site.seed.find::<Value>(&CLUSTER, key)? else {
            return Ok(ReconcileOutcome::Done);
        };
        let shoot = Key::of(&cluster["spec"]["shoot"]);
        let entry = entry_name(&key.name, text(&cluster["spec"]["shoot"]["status"]["uid"]));
        let found = site.garden.find::<Value>(&BACKUP_ENTRY, &Key::new(shoot.namespace.as_str(), entry))?;
        if !found.is_some_and(|entry| is_of_another(&entry, site.seed_name())) {
            return Ok(ReconcileOutcome::After(PERIOD));
        }
        // Snapshots from here would get into the bucket that the Shoot has left.
        let steps = vec![suspend(&site.seed, &key.name), sleep::stop(&site.seed, &key.name, cx.clock.now())];
        let step = together(steps).map_err(ReconcileFailure::from)?;
        if step == TaskStep::Done {
            return Ok(ReconcileOutcome::After(PERIOD));
        }
        let (shoot, namespace) = (shoot.to_string(), key.name.as_str());
        log::warn!(shoot = shoot.as_str(), namespace; "Another seed has restored this Shoot: its control plane here is stopped");
        Ok(ReconcileOutcome::After(SOON))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_an_entry_of_another_seed_stops_a_control_plane() {
        let table = [
            ("b", "b", true),
            ("b", "", true),
            // It is being given away.
            ("b", "a", false),
            ("a", "b", false),
            ("a", "a", false),
            ("", "", false),
        ];
        for (wanted, present, expected) in table {
            let entry = json!({"spec": {"seedName": wanted}, "status": {"seedName": present}});
            assert_eq!(is_of_another(&entry, "a"), expected, "{wanted} {present}");
        }
        assert!(!is_of_another(&Value::Null, "a"));
    }
}
