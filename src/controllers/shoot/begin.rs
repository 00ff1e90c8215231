//! The steps before the flow of a Shoot: the start in its status, and its `Cluster`.

use std::sync::Arc;

use serde_json::Value;

use crate::api::gardener::{BASTION, OPERATION, SHOOT};
use crate::api::meta::{Key, Metadata, text};
use crate::extension::problem;
use crate::flow::{Failed, ReportPacer, TaskError};
use crate::format::view;
use crate::kube::{ListParams, Patch};
use crate::operation::inputs::GardenInputs;
use crate::operation::{self, Environment, Facts, Operation, Work, cluster, inputs};
use crate::runtime::controller::{ReconcileContext, ReconcileFailure, ReconcileOutcome};
use crate::runtime::write;
use crate::shoot::{ShootView, state};

use super::act::RunningShootFlow;
use super::decide::FINALIZER;
use super::finish::OperationEvent;
use super::report::{self, OperationReport, OperationStart};
use super::status::INITIALIZE;
use super::{CONFLICT_RETRY, PROGRESS_PERIOD, ShootReconciler};

impl ShootReconciler {
    /// Starts an operation and runs the tasks that can run now.
    pub(super) fn begin(
        &self,
        key: &Key,
        shoot: &Value,
        seed: Value,
        operation: Operation,
        cx: &ReconcileContext,
    ) -> Result<ReconcileOutcome, ReconcileFailure> {
        let metadata = view::look::<Metadata>(shoot)?.metadata;
        match write::finalizer(&self.env.garden, &SHOOT, key, &metadata, FINALIZER, true) {
            Err(e) if e.is_conflict() => return Ok(ReconcileOutcome::GoOn(CONFLICT_RETRY)),
            other => other?,
        }
        let inputs = inputs::read(&self.env.garden, shoot, seed);
        let project = inputs.as_ref().map_or("", |inputs| inputs.project.as_str());
        let start = OperationStart {
            project,
            agent: &self.agent,
            retry_duration: self.env.settings.controllers.shoot.retry_duration,
            now: cx.clock.now(),
        };
        let report = OperationReport::new(shoot, operation, &start);
        let mut inputs = match inputs {
            Ok(inputs) => inputs,
            Err(failed) => return self.not_begun(key, &report, failed, cx),
        };
        let decided = asks_for(shoot);
        let mut shoot: Value = self.patch_status(key, report.begin(cx.clock.now()))?;
        if asks_for(&shoot) != decided {
            return Ok(ReconcileOutcome::GoOn(CONFLICT_RETRY));
        }
        if let Some(patch) = report.operation_annotations(&shoot) {
            match self.env.garden.patch(&SHOOT, key, &Patch::Merge(patch)) {
                Ok(without) => shoot = without,
                Err(e) if e.is_conflict() => return Ok(ReconcileOutcome::GoOn(CONFLICT_RETRY)),
                Err(e) => return Err(e.into()),
            }
        }
        let view = inputs.view(&shoot);
        let facts = match self.facts(operation, &shoot, &view, &mut inputs) {
            Ok(facts) => facts,
            Err(failed) => return self.not_begun(key, &report, failed, cx),
        };
        let complete = incomplete(&view).map_or(Ok(()), Err);
        if let Err(failed) = complete.and_then(|()| cluster::sync(&self.env, &shoot, &inputs)) {
            return self.not_begun(key, &report, failed, cx);
        }
        // From now on, the seed may contain more than the Shoot's `Cluster`.
        if let Some(patch) = report::identified(&shoot) {
            shoot = self.patch_status(key, patch)?;
        }
        self.tell(key, &shoot, operation, OperationEvent::Begun, cx);
        let running = RunningShootFlow {
            flow: operation::table(operation).flow(&facts),
            work: Work::new(Arc::clone(&self.env), shoot, view, facts, inputs, cx.clock.clone()),
            report,
            pacer: ReportPacer::new(
                self.env.settings.controllers.shoot.progress_report_period.unwrap_or(PROGRESS_PERIOD),
            ),
            done: Vec::new(),
            ended: None,
        };
        self.turn(key, running, cx)
    }

    /// What decides which tasks are needed. For a restoration, it also reads what the other seed has left.
    fn facts(
        &self,
        operation: Operation,
        shoot: &Value,
        view: &ShootView,
        inputs: &mut GardenInputs,
    ) -> Result<Facts, Failed> {
        if operation == Operation::Migrate {
            self.no_bastions(shoot)?;
        }
        let found = operation::found::read::read(&self.env, operation, shoot, inputs)?;
        if operation == Operation::Restore {
            let key = Key::of(shoot);
            inputs.state = state::find(&self.env.garden, &key)?;
            // The data of a Shoot that was bound to this seed again may be all that it needs.
            if inputs.state.is_none() && !found.has_etcd {
                inputs.state = Some(state::needed(&self.env.garden, &key)?);
            }
        }
        Ok(Facts::new(operation, shoot, view, self.env.settings.edge.nodes(), found))
    }

    /// A Bastion belongs to the seed that the Shoot leaves.
    fn no_bastions(&self, shoot: &Value) -> Result<(), Failed> {
        let key = Key::of(shoot);
        let field_selector = format!("spec.seedName={}", self.site.seed_name());
        let params = ListParams { field_selector, ..ListParams::default() };
        let mut names = Vec::new();
        self.env.garden.list_all::<Value>(&BASTION, &key.namespace, &params, &mut |bastion| {
            if bastion["spec"]["shootRef"]["name"] == key.name.as_str() {
                names.push(text(&bastion["metadata"]["name"]).to_owned());
            }
        })?;
        match names.as_slice() {
            [] => Ok(()),
            names => Err(Failed::new(format!("shoot has still Bastions: delete {}", names.join(", ")))),
        }
    }

    pub(super) fn patch_status(&self, key: &Key, patch: Value) -> Result<Value, crate::kube::Error> {
        self.env.garden.patch_status(&SHOOT, key, &Patch::Strategic(patch))
    }

    /// Reports that a precondition of the first task failed.
    fn not_begun(
        &self,
        key: &Key,
        report: &OperationReport,
        failed: Failed,
        cx: &ReconcileContext,
    ) -> Result<ReconcileOutcome, ReconcileFailure> {
        if failed.postponed.is_some() {
            return Err(failed.into());
        }
        let text = format!("Could not initialize a new operation for Shoot cluster: {}", failed.text);
        let error = TaskError { task: INITIALIZE.to_owned(), failed: Failed { text, ..failed } };
        Err(self.failed(key, report, &[error], cx.clock.now(), cx).into_failure())
    }
}

/// The fields that decide an operation. If they change before the operation has started, it is decided again.
fn asks_for(shoot: &Value) -> [Value; 3] {
    let metadata = &shoot["metadata"];
    let operation = metadata["annotations"][OPERATION].clone();
    [metadata["generation"].clone(), metadata["deletionTimestamp"].clone(), operation]
}

/// Writes the `Cluster` of a Shoot that is not reconciled now, if an operation has started before. Otherwise
/// the seed contains nothing of it.
pub(super) fn sync_only(env: &Environment, shoot: &Value, seed: &Value) -> Result<(), ReconcileFailure> {
    if text(&shoot["status"]["technicalID"]).is_empty() {
        return Ok(());
    }
    let inputs = inputs::read(&env.garden, shoot, seed.clone())?;
    Ok(cluster::sync(env, shoot, &inputs)?)
}

/// The failure when no provider is known for the records of the owner's domain.
fn incomplete(view: &ShootView) -> Option<Failed> {
    let domain = view.incomplete_domain()?;
    let text = format!(
        "spec.dns.domain of the Shoot is {domain}, which is below no default domain of the garden, and spec.dns.providers names \
         no primary provider: name one, or remove the domain"
    );
    Some(problem(text))
}
