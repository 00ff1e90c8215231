//! The turns of a Shoot's flow, and what is reported of them.

use std::sync::PoisonError;

use serde_json::Value;

use crate::api::gardener::SHOOT;
use crate::api::meta::{Key, text};
use crate::base::clock::Timestamp;
use crate::base::error::chain;
use crate::flow::{Ended, Flow, Observer, Pacer, Progress, Turn};
use crate::kube::{Error, Garden, Patch};
use crate::runtime::controller::{Context, Failure, Outcome};
use crate::runtime::write;

use super::ShootReconciler;
use super::frame::Frame;
use super::tasks::Work;

/// A flow between its turns.
pub(super) struct Running {
    pub(super) flow: Flow<Work>,
    pub(super) work: Work,
    pub(super) frame: Frame,
    pub(super) pacer: Pacer,
    /// Tasks that were done since the last report.
    pub(super) done: Vec<String>,
    /// How the flow ended, and when, while the garden has not heard of it.
    pub(super) ended: Option<(Ended, Timestamp)>,
}

/// What a reconciliation comes to once the garden has heard of it.
pub(super) type Told = Result<Outcome, Failure>;

impl ShootReconciler {
    /// The round that waits for its next turn, if the Shoot still asks for the same.
    pub(super) fn unfinished(&self, key: &Key) -> Option<Running> {
        let running = self.running.lock().unwrap_or_else(PoisonError::into_inner).remove(key)?;
        let now = self.shoots.get(key)?;
        let then = &running.work.shoot["metadata"];
        let is_same = text(&then["uid"]) == now.metadata.uid
            && then["generation"] == now.metadata.generation
            && then["deletionTimestamp"].is_null() == now.metadata.deletion_timestamp.is_none();
        is_same.then_some(running)
    }

    /// Lets the flow do what it can do now.
    pub(super) fn turn(&self, key: &Key, mut running: Running, cx: &Context) -> Result<Outcome, Failure> {
        let (ended, at) = match running.ended.take() {
            Some(before) => before,
            None => {
                let now = || cx.clock.mono();
                let Running { flow, work, frame, pacer, done, .. } = &mut running;
                let mut teller = Teller { garden: &self.garden, key, pacer, frame, done, cx };
                match flow.turn(work, &now, &mut teller) {
                    Turn::Again(after) => {
                        self.keep(key, running);
                        return Ok(Outcome::GoOn(after));
                    }
                    Turn::Ended(ended) => (ended, cx.clock.now()),
                }
            }
        };
        match self.end(key, &mut running, (&ended, at), cx) {
            Ok(told) => told,
            // The garden is away. It hears later what came of it, and nothing is done twice.
            Err(error) => {
                running.ended = Some((ended, at));
                self.keep(key, running);
                Err(error.into())
            }
        }
    }

    fn keep(&self, key: &Key, running: Running) {
        self.running.lock().unwrap_or_else(PoisonError::into_inner).insert(key.clone(), running);
    }

    /// Tells the garden how the flow ended.
    fn end(
        &self,
        key: &Key,
        running: &mut Running,
        (ended, at): (&Ended, Timestamp),
        cx: &Context,
    ) -> Result<Told, Error> {
        if !ended.errors.is_empty() {
            self.strike_off_done(key, running)?;
            return self.failed(key, &running.frame, &ended.errors, at, cx);
        }
        if let Err(failed) = running.work.clean_up() {
            return Ok(Err(failed.into()));
        }
        self.succeeded(key, running, at, cx)
    }
}

/// Writes the progress of a flow into the Shoot.
struct Teller<'a> {
    garden: &'a Garden,
    key: &'a Key,
    pacer: &'a mut Pacer,
    frame: &'a mut Frame,
    done: &'a mut Vec<String>,
    cx: &'a Context,
}

impl Observer for Teller<'_> {
    fn progress(&mut self, progress: &Progress) {
        // The beginning and the end are written anyway.
        let is_between = (1..100).contains(&progress.percent);
        if !is_between || !self.pacer.tells(progress, self.cx.clock.mono()) {
            return;
        }
        let Some(patch) = self.frame.going_on(progress, self.done, self.cx.clock.now()) else { return };
        match write::status_patch::<Value>(self.garden, &SHOOT, self.key, &Patch::Strategic(patch)) {
            Ok(_) => self.done.clear(),
            Err(e) => {
                // The garden may be away: the flow goes on in the seed, and the next report says it all.
                let (shoot, err) = (self.key.to_string(), chain(&e));
                log::debug!(shoot = shoot.as_str(), err = err.as_str(); "The progress was not written");
            }
        }
    }

    fn done(&mut self, task: &str) {
        self.done.push(task.to_owned());
        let shoot = self.key.to_string();
        log::debug!(shoot = shoot.as_str(), task; "The task is done");
    }
}
