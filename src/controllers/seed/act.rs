//! A reconciliation of the Seed: the checks before the flow, the flow's turns, and their reports.

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;

use crate::api::core::NAMESPACE;
use crate::api::gardener::{OPERATION, SEED, seed_namespace};
use crate::api::meta::{Key, Metadata, text};
use crate::base::clock::Mono;
use crate::base::error::chain;
use crate::base::lock::IgnorePoison;
use crate::base::sorted::SortedMap;
use crate::components::deletion_protection;
use crate::flow::{
    Flow, FlowObserver, FlowProgress, FlowTurn, LentValue, ProgressWriter, ReportPacer, TaskError,
};
use crate::format::view;
use crate::runtime::controller::{ReconcileContext, ReconcileFailure, ReconcileOutcome};
use crate::runtime::write;

use super::decide::{self, Observed, Phase};
use super::error::{Error, GET_NAMESPACE, kube_error};
use super::flow;
use super::work::{RarelyChecked, Work};
use super::{CONFLICT_RETRY, FINALIZER, SeedReconciler, authorities, delete, extensions};

/// How often the progress of a flow is written, as in upstream.
const PROGRESS_PERIOD: Duration = Duration::from_secs(5);

/// A flow between its turns.
pub(super) struct RunningSeedFlow {
    flow: Flow<Work>,
    work: Work,
    observed: Observed,
    phase: Phase,
    pacer: ReportPacer,
}

impl SeedReconciler {
    /// Checks the conditions for writing to the seed. Returns whether to check again soon.
    pub(super) fn prepare(
        &self,
        key: &Key,
        observed: &Observed,
        phase: Phase,
        now: Mono,
    ) -> Result<Option<Duration>, ReconcileFailure> {
        if matches!(phase, Phase::Begin) || !self.memory.was_seen(RarelyChecked::SeedNamespace, now) {
            let namespace = seed_namespace(&key.name);
            let found = self.site.garden.find::<Metadata>(&NAMESPACE, &Key::cluster(&namespace));
            if found.map_err(kube_error(GET_NAMESPACE))?.is_none() {
                return Err(Error::NoNamespace(namespace).into());
            }
            self.memory.saw(RarelyChecked::SeedNamespace, now);
        }
        let live = view::look::<Metadata>(&observed.live)?.metadata;
        match write::finalizer(&self.site.garden, &SEED, key, &live, FINALIZER, true) {
            Err(e) if e.is_conflict() => return Ok(Some(CONFLICT_RETRY)),
            other => other?,
        }
        if !self.site.any_version && !decide::is_supported(&observed.kubernetes_version) {
            return Err(Error::Version(observed.kubernetes_version.clone()).into());
        }
        Ok(None)
    }

    pub(super) fn round(&self, observed: &Observed, phase: Phase, cx: &ReconcileContext) -> RunningSeedFlow {
        let wanted = extensions::wanted(&observed.live, &self.site.registrations.store().values());
        // In between, only what may change without a new generation is checked.
        let is_complete = matches!(phase, Phase::Begin) || !self.memory.is_recent(cx.clock.mono(), &wanted);
        let work = Work {
            site: Arc::clone(&self.site),
            has_policies: deletion_protection::is_served(&observed.kubernetes_version),
            is_complete,
            live: observed.live.clone(),
            zones: observed.zones(),
            is_labelled: self.memory.was_seen(RarelyChecked::Labels, cx.clock.mono()),
            cluster_identity: observed.cluster_identity.clone(),
            generations: SortedMap::new(),
            place: authorities::place(&self.site.seed, &self.site.keys, &cx.clock),
            secrets: None,
            wanted: Vec::new(),
            stale: Vec::new(),
            has_record: false,
        };
        RunningSeedFlow {
            flow: flow::build(&work),
            work,
            observed: observed.clone(),
            phase,
            pacer: ReportPacer::new(PROGRESS_PERIOD),
        }
    }

    /// The reconciliation that waits for its next turn, if the Seed's request has not changed.
    pub(super) fn unfinished(&self, key: &Key) -> Option<RunningSeedFlow> {
        let running = self.running.lock().ignore_poison().take()?;
        let now = self.site.seeds.store().get(key)?;
        let then = &running.observed.live["metadata"];
        let asked = now.metadata.annotations.get(OPERATION).map_or("", String::as_str);
        let is_same = then["uid"] == now.metadata.uid.as_str()
            && then["generation"] == now.metadata.generation
            && text(&then["annotations"][OPERATION]) == asked
            && now.metadata.deletion_timestamp.is_none();
        is_same.then_some(running)
    }

    /// Runs the tasks that can run now.
    pub(super) fn turn(
        &self,
        key: &Key,
        running: RunningSeedFlow,
        cx: &ReconcileContext,
    ) -> Result<ReconcileOutcome, ReconcileFailure> {
        let keep = |running| *self.running.lock().ignore_poison() = Some(running);
        let mut held = LentValue::new(keep);
        let running = held.lend(running);
        let now = || cx.clock.mono();
        let mut observer = SeedFlowObserver {
            writer: ProgressWriter::new(&self.site.garden, SEED, key, &mut running.pacer, &cx.clock),
            // A reconciliation with something to write was reported as in progress.
            is_silent: matches!(running.phase, Phase::Steady),
        };
        match running.flow.turn(&mut running.work, &now, &mut observer) {
            FlowTurn::Again(after) => Ok(ReconcileOutcome::GoOn(after)),
            FlowTurn::Ended(errors) => {
                let end = self.end(key, running, &errors, now());
                held.forget();
                end.and_then(|(observed, phase, result)| self.finish(key, &observed, phase, result, cx))
            }
        }
    }

    /// The result of a finished flow.
    fn end(
        &self,
        key: &Key,
        running: &RunningSeedFlow,
        errors: &[TaskError],
        now: Mono,
    ) -> Result<(Observed, Phase, Result<delete::SeedReconciliationResult, ReconcileFailure>), ReconcileFailure>
    {
        let (mut observed, phase) = (running.observed.clone(), running.phase);
        let result = if errors.is_empty() {
            if running.work.is_complete {
                self.memory.completed(now, running.work.wanted.clone());
            }
            if running.work.is_complete || !running.work.is_labelled {
                self.memory.saw(RarelyChecked::Labels, now);
            }
            Ok(delete::SeedReconciliationResult::Wait(self.site.settings.controllers.seed.sync_period))
        } else {
            Err(ReconcileFailure::retry(Error::Tasks(errors.to_vec())))
        };
        if matches!(phase, Phase::Begin)
            && let Some(live) = self.site.garden.find::<Value>(&SEED, key)?
        {
            // Conditions have changed while the flow ran.
            observed.live = live;
        }
        Ok((observed, phase, result))
    }
}

/// Writes the progress of a flow to the Seed.
struct SeedFlowObserver<'a> {
    writer: ProgressWriter<'a>,
    is_silent: bool,
}

impl FlowObserver for SeedFlowObserver<'_> {
    fn progress(&mut self, progress: &FlowProgress) {
        if self.is_silent {
            return;
        }
        if let Err(e) = self.writer.write(progress, |now| Some(decide::going_on(progress, now))) {
            let err = chain(&e);
            log::debug!(seed = self.writer.key.name.as_str(), err = err.as_str(); "Cannot write the progress");
        }
    }
}
