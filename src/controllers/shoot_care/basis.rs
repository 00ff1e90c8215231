//! The part of a Shoot's last reconciled spec that the checks need, from the object `Cluster` of the seed. Pure.

use std::time::Duration;

use serde_json::Value;

use crate::api::meta::text;
use crate::base::clock::Timestamp;
use crate::format::duration;
use crate::format::time::parse_rfc3339;
use crate::shoot::has_foreign_workers;
use crate::shoot::pools::{self, Pool};

use super::schedule::Schedule;

/// The facts from the spec.
#[derive(Clone, PartialEq, Debug, Default)]
pub(super) struct Basis {
    /// Field `spec.hibernation.enabled` of the Shoot.
    pub(super) wants_hibernation: bool,
    /// Its pools of workers.
    pub(super) pools: Vec<Pool>,
    /// The longest time by which the agents of its nodes delay a change.
    pub(super) delay_max: Duration,
    /// This agent does not serve its workers, so it gets no conditions.
    pub(super) has_foreign_workers: bool,
    /// Its object is being deleted.
    pub(super) is_going: bool,
    /// When the ETCD encryption key must be rotated automatically, if its owner wants that.
    pub(super) key_is_due: Option<Timestamp>,
    /// `spec.maintenance.timeWindow.begin`.
    pub(super) window_begin: String,
    /// `spec.maintenance.timeWindow.end`.
    pub(super) window_end: String,
    /// Field `spec.hibernation.schedules` of the Shoot.
    pub(super) schedules: Vec<Schedule>,
}

impl Basis {
    /// From a `Cluster`; `None` if it contains no Shoot. `host_types` are the types of infrastructure whose nodes are hosts of
    /// the site.
    pub(super) fn read(cluster: &Value, host_types: &[String]) -> Option<Self> {
        let shoot = &cluster["spec"]["shoot"];
        let (metadata, spec) = (&shoot["metadata"], shoot["spec"].as_object()?);
        let field = |name: &str| spec.get(name).unwrap_or(&Value::Null);
        let (hibernation, maintenance) = (field("hibernation"), field("maintenance"));
        let window = &maintenance["timeWindow"];
        let own = |value: &Value| text(value).to_owned();
        let schedules = hibernation["schedules"].as_array().into_iter().flatten();
        Some(Self {
            wants_hibernation: hibernation["enabled"] == true,
            pools: pools::read(shoot),
            delay_max: pools::delay_max(shoot),
            has_foreign_workers: has_foreign_workers(shoot, host_types),
            is_going: !metadata["deletionTimestamp"].is_null(),
            key_is_due: key_is_due(shoot),
            window_begin: own(&window["begin"]),
            window_end: own(&window["end"]),
            schedules: schedules.map(Schedule::read).collect(),
        })
    }
}

fn key_is_due(shoot: &Value) -> Option<Timestamp> {
    let rotation = &shoot["spec"]["maintenance"]["autoRotation"]["credentials"]["etcdEncryptionKey"];
    let period =
        duration::parse(rotation["rotationPeriod"].as_str()?).ok().filter(|d| *d > Duration::ZERO)?;
    let last = &shoot["status"]["credentials"]["rotation"]["etcdEncryptionKey"]["lastInitiationTime"];
    let begun = last.as_str().unwrap_or_else(|| text(&shoot["metadata"]["creationTimestamp"]));
    Some(parse_rfc3339(begun).ok()?.plus(period))
}
