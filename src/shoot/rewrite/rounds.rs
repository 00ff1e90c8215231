//! Repeats the walk of a task, over many turns, until one has written everything.

use super::Connect;
use super::refused::Refused;
use super::walk::{Item, RewritePace, Walk, Walked};
use crate::flow::{Failed, TaskStep};
use crate::kube::{Client, Error};

#[derive(Debug, Default)]
pub(super) struct Rounds {
    pace: RewritePace,
    /// The current walk, and its client.
    walk: Option<(Client, Walk)>,
    /// What the previous walk could not write. It is the error if the time runs out before the current one ends.
    before: Option<Failed>,
}

impl Rounds {
    /// Continues for a moment. Errors: what could not be written, or why the server cannot be reached.
    pub(super) fn go_on(
        &mut self,
        connect: Connect<'_>,
        begin: &dyn Fn(&Client) -> Result<Walk, Failed>,
        write: &dyn Fn(&Client, &Item) -> Result<bool, Error>,
        describe: fn(&Refused) -> Failed,
    ) -> Result<TaskStep, Failed> {
        let (shoot, mut walk) = match self.walk.take() {
            Some(known) => known,
            None => {
                let shoot = connect()?;
                let walk = begin(&shoot)?;
                (shoot, walk)
            }
        };
        match walk.go_on(&shoot, &mut self.pace, &mut |item| write(&shoot, item)) {
            Walked::Done => {
                self.before = None;
                Ok(TaskStep::Done)
            }
            Walked::Refused(refused) => {
                let failed = describe(&refused);
                self.before = Some(failed.clone());
                Err(failed)
            }
            Walked::Again { after, why } => {
                // If the time runs out before this walk ends, the error contains what is known by then.
                let refused = Some(walk.refused()).filter(|refused| !refused.is_empty()).map(describe);
                self.walk = Some((shoot, walk));
                let why = refused.or_else(|| self.before.clone()).unwrap_or_else(|| Failed::new(why));
                Ok(TaskStep::Again { after, why })
            }
            Walked::Away(failed) if failed.postponed.is_some() => {
                self.walk = Some((shoot, walk));
                Err(failed)
            }
            // The next walk skips objects that already have the label.
            Walked::Away(failed) => Err(failed),
        }
    }
}
