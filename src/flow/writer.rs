//! Writes the progress of a flow to the status of an object in the garden.

use serde_json::Value;

use super::report::{FlowProgress, ReportPacer};
use crate::api::meta::{Key, Resource};
use crate::base::clock::{Clock, Timestamp};
use crate::kube::{Error, Garden, Patch};

/// Writes the reports of one turn of a flow.
pub(crate) struct ProgressWriter<'a> {
    garden: &'a Garden,
    resource: Resource,
    pub(crate) key: &'a Key,
    pacer: &'a mut ReportPacer,
    clock: &'a Clock,
    /// A report of this turn was refused. The next turn sends the state of that time.
    is_refused: bool,
}

impl<'a> ProgressWriter<'a> {
    pub(crate) fn new(
        garden: &'a Garden,
        resource: Resource,
        key: &'a Key,
        pacer: &'a mut ReportPacer,
        clock: &'a Clock,
    ) -> Self {
        Self { garden, resource, key, pacer, clock, is_refused: false }
    }

    /// Writes the patch of the status that `report` makes, if a report is due. Returns whether it was written. The start
    /// and the end of a flow are no progress: they are written in any case, by others.
    pub(crate) fn write(
        &mut self,
        progress: &FlowProgress,
        report: impl FnOnce(Timestamp) -> Option<Value>,
    ) -> Result<bool, Error> {
        let is_between = (1..100).contains(&progress.percent);
        let now = self.clock.mono();
        if self.is_refused || !is_between || !self.pacer.is_due(progress, now) {
            return Ok(false);
        }
        let Some(patch) = report(self.clock.now()) else { return Ok(false) };
        let written = self.garden.patch_status::<Value>(&self.resource, self.key, &Patch::Strategic(patch));
        match written {
            Ok(_) => self.pacer.has_told(progress, now),
            Err(_) => self.is_refused = true,
        }
        written.map(|_| true)
    }
}
