//! The steps before the flow of a Shoot: the start in its status, and its `Cluster`.

use serde_json::{Value, json};

use crate::api::extensions::CLUSTER;
use crate::api::gardener::{OPERATION, SHOOT};
use crate::api::meta::{Key, Metadata, text};
use crate::base::sorted::SortedMap;
use crate::extension::problem;
use crate::flow::{Failed, Flow, Pacer, TaskError};
use crate::format::view;
use crate::kube::{Garden, Patch, Seed};
use crate::runtime::controller::{Context, Failure, Outcome};
use crate::runtime::write;
use crate::secrets::Place;
use crate::shoot::rewrite::Rewrite;
use crate::shoot::rewrite::accounts::Accounts;
use crate::shoot::{Phase, Served, Sources, View};

use super::act::Running;
use super::decide::{FINALIZER, Operation};
use super::finish::News;
use super::flow::{self, Plan};
use super::frame::{self, Frame, Start};
use super::status::INITIALIZE;
use super::surroundings::{self, Surroundings};
use super::tasks::Work;
use super::{CONFLICT_RETRY, PROGRESS_PERIOD, ShootReconciler, cluster, deletion, rotation};

/// The manager of a Shoot's Secrets, as in upstream.
const IDENTITY: &str = "gardenlet";

impl ShootReconciler {
    /// Starts an operation and runs the tasks that can run now.
    pub(super) fn begin(
        &self,
        key: &Key,
        (shoot, seed): (Value, Value),
        operation: Operation,
        cx: &Context,
    ) -> Result<Outcome, Failure> {
        let metadata = view::look::<Metadata>(&shoot)?.metadata;
        let read = (metadata.finalizers.as_slice(), metadata.resource_version.as_str());
        match write::finalizer(&self.garden, &SHOOT, key, read, FINALIZER, true) {
            Err(e) if e.is_conflict() => return Ok(Outcome::GoOn(CONFLICT_RETRY)),
            other => other?,
        }
        let around = surroundings::read(&self.garden, &shoot, seed);
        let project = around.as_ref().map_or("", |around| around.project.as_str());
        let start = Start {
            project,
            agent: &self.agent,
            retry_duration: self.settings.controllers.shoot.retry_duration,
            now: cx.clock.now(),
        };
        let frame = Frame::new(&shoot, operation, &start);
        let around = match around {
            Ok(around) => around,
            Err(failed) => return self.not_begun(key, &frame, failed, cx),
        };
        let decided = asks_for(&shoot);
        let mut shoot: Value = self.patch_status(key, frame.begin(cx.clock.now()))?;
        if asks_for(&shoot) != decided {
            return Ok(Outcome::GoOn(CONFLICT_RETRY));
        }
        if let Some(patch) = frame.operation_annotations(&shoot) {
            match self.garden.patch(&SHOOT, key, &Patch::Merge(patch)) {
                Ok(without) => shoot = without,
                Err(e) if e.is_conflict() => return Ok(Outcome::GoOn(CONFLICT_RETRY)),
                Err(e) => return Err(e.into()),
            }
        }
        let mut view = View::new(Sources {
            shoot: &shoot,
            seed: &around.seed,
            project: &around.project,
            garden: &around.garden,
            secrets: &around.secrets,
        });
        let complete = incomplete(&view).map_or(Ok(()), Err);
        if let Err(failed) = complete.and_then(|()| sync_cluster(self.seed_side(), &shoot, &around)) {
            return self.not_begun(key, &frame, failed, cx);
        }
        // From now on, the seed may contain more than the Shoot's `Cluster`.
        if let Some(patch) = frame::identified(&shoot) {
            shoot = self.patch_status(key, patch)?;
        }
        let flow = match self.flow(operation, &shoot, &mut view) {
            Ok(flow) => flow,
            Err(failed) => return self.not_begun(key, &frame, failed, cx),
        };
        self.tell(key, &shoot, operation, News::Begun, cx);
        let running = Running {
            flow,
            work: self.work(shoot, view, around, cx),
            frame,
            pacer: Pacer::new(
                self.settings.controllers.shoot.progress_report_period.unwrap_or(PROGRESS_PERIOD),
            ),
            done: Vec::new(),
            ended: None,
        };
        self.turn(key, running, cx)
    }

    /// The client for `Cluster` objects, and the consumer of their changes.
    pub(super) const fn seed_side(&self) -> (&Seed, &Served) {
        (&self.seed, &self.served)
    }

    fn flow(&self, operation: Operation, shoot: &Value, view: &mut View) -> Result<Flow<Work>, Failed> {
        if operation.as_str() != "Delete" {
            return Ok(flow::build(plan(shoot, view)));
        }
        // The content of its cluster cannot be deleted while it is hibernated.
        view.wants_hibernation = false;
        let found = deletion::Found::read(&self.seed, &view.technical_id)?;
        Ok(deletion_flow(operation, deletion::Plan::new(shoot, found)))
    }

    fn work(&self, shoot: Value, view: View, around: Surroundings, cx: &Context) -> Work {
        let place = Place {
            client: self.seed.clone(),
            namespace: view.technical_id.clone(),
            identity: IDENTITY.to_owned(),
            keys: self.keys.clone(),
            clock: cx.clock.clone(),
        };
        Work {
            garden: self.garden.clone(),
            seed: self.seed.clone(),
            shoot,
            view,
            around,
            installations: self.installations.clone(),
            registrations: self.registrations.clone(),
            managed: self.managed.clone(),
            settings: self.settings.clone(),
            images: self.images.clone(),
            parent: self.parent.clone(),
            connector: self.connector.clone(),
            served: self.served.clone(),
            place,
            secrets: None,
            made: None,
            outside: None,
            advertise_address: None,
            writes_endpoints: true,
            texts: SortedMap::new(),
            keeps_server: false,
            generations: SortedMap::new(),
            rewrite: Rewrite::default(),
            accounts: Accounts::default(),
        }
    }

    pub(super) fn patch_status(&self, key: &Key, patch: Value) -> Result<Value, crate::kube::Error> {
        self.garden.patch_status(&SHOOT, key, &Patch::Strategic(patch))
    }

    /// Reports that a precondition of the first task failed.
    fn not_begun(&self, key: &Key, frame: &Frame, failed: Failed, cx: &Context) -> Result<Outcome, Failure> {
        if failed.postponed.is_some() {
            return Err(failed.into());
        }
        let text = format!("Could not initialize a new operation for Shoot cluster: {}", failed.text);
        let error = TaskError { task: INITIALIZE.to_owned(), failed: Failed { text, ..failed } };
        self.failed(key, frame, &[error], cx.clock.now(), cx)?
    }
}

/// The tasks of a deletion.
pub(super) fn deletion_flow(operation: Operation, plan: deletion::Plan) -> Flow<Work> {
    match operation {
        Operation::ForceDelete => deletion::force::build(plan),
        _ => deletion::flow::build(plan),
    }
}

/// The fields that decide an operation. If they change before the operation has started, it is decided again.
fn asks_for(shoot: &Value) -> [Value; 3] {
    let metadata = &shoot["metadata"];
    let operation = metadata["annotations"][OPERATION].clone();
    [metadata["generation"].clone(), metadata["deletionTimestamp"].clone(), operation]
}

/// Writes the `Cluster` of a Shoot.
pub(super) fn sync_cluster(
    (seed, served): (&Seed, &Served),
    shoot: &Value,
    around: &Surroundings,
) -> Result<(), Failed> {
    let wanted = cluster::fill(shoot, &around.seed, &around.profile);
    let written = write::ensure(seed, &CLUSTER, &Key::of(&wanted), |cluster| {
        for (field, value) in wanted["spec"].as_object().into_iter().flatten() {
            cluster["spec"][field] = value.clone();
        }
    })?;
    served.clusters().tell(&written);
    Ok(())
}

/// The same for a Shoot that is not reconciled now, if an operation has started before. Otherwise the seed contains
/// nothing of it.
pub(super) fn sync_only(
    garden: &Garden,
    to: (&Seed, &Served),
    shoot: &Value,
    of: &Value,
) -> Result<(), Failure> {
    if text(&shoot["status"]["technicalID"]).is_empty() {
        return Ok(());
    }
    let around = surroundings::read(garden, shoot, of.clone());
    Ok(around.and_then(|around| sync_cluster(to, shoot, &around))?)
}

/// Writes the name of the generic kubeconfig's Secret to the `Cluster`.
pub(super) fn name_kubeconfig(seed: &Seed, cluster: &str, secret: &str) -> Result<(), Failed> {
    let patch = Patch::Merge(json!({"metadata": {"annotations": {cluster::GENERIC_KUBECONFIG: secret}}}));
    let key = Key::cluster(cluster);
    let found = seed.find::<Metadata>(&CLUSTER, &key)?;
    let known = found.and_then(|found| found.metadata.annotations.get(cluster::GENERIC_KUBECONFIG).cloned());
    if known.as_deref() != Some(secret) {
        seed.patch::<Value>(&CLUSTER, &key, &patch)?;
    }
    Ok(())
}

/// The failure when no provider is known for the records of the owner's domain.
fn incomplete(view: &View) -> Option<Failed> {
    let domain = view.incomplete_domain()?;
    let text = format!(
        "spec.dns.domain of the Shoot is {domain}, which is below no default domain of the garden, and spec.dns.providers names \
         no primary provider: name one, or remove the domain"
    );
    Some(problem(text))
}

/// What the flow skips.
pub(super) fn plan(shoot: &Value, view: &View) -> Plan {
    let is_preparing =
        |phase: Phase| matches!(phase, Phase::Preparing | Phase::PreparingWithoutWorkersRollout);
    let annotations = &shoot["metadata"]["annotations"];
    let of = &view.rotations;
    let tasks = text(&annotations[frame::TASKS]);
    let rest = &shoot["status"]["credentials"]["encryptionAtRest"];
    let is_changed = rotation::encrypts_others(shoot) || text(&rest["provider"]["type"]).is_empty();
    Plan {
        is_hibernated: view.wants_hibernation,
        skips_readiness: !annotations["shoot.gardener.cloud/skip-readiness"].is_null(),
        publishes_keys: view.wants_managed_issuer,
        prepares_service_account_key: is_preparing(of.service_account_key.phase),
        completes_service_account_key: of.service_account_key.phase == Phase::Completing,
        prepares_authorities: is_preparing(of.authorities.phase),
        prepares_encryption_key: is_preparing(of.encryption_key.phase),
        rewrites_objects: is_changed || is_preparing(of.encryption_key.phase),
        ends_rewrite: is_changed || of.encryption_key.phase == Phase::Completing,
        has_backup: view.backup.is_object(),
        restarts_pods: tasks.split(',').any(|task| task.trim() == "restartControlPlanePods"),
    }
}
