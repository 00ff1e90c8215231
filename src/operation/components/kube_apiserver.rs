//! The API server of a Shoot, how it is reached, and the agent's client of it.

use std::time::Duration;

use serde_json::{Value, json};

use crate::api::core::{DEPLOYMENT, SERVICE};
use crate::api::gardener::SHOOT;
use crate::api::meta::{Key, annotation, text};
use crate::base::error::chain;
use crate::components::kube_apiserver::{self, Encryption, KeyOrder};
use crate::components::{exposure, rollout};
use crate::flow::{Attempt, Failed, TaskStep};
use crate::kube::Patch;
use crate::runtime::write;
use crate::shoot::client::{self, check_version};
use crate::shoot::rotation::ENCRYPTION_KEY;
use crate::shoot::{RotationPhase, addresses, issuer, wildcard};

use super::super::results::Endpoint;
use super::super::times::STORE_PERIOD;
use super::super::work::Work;
use super::super::{encryption, pods};
use super::{replicas as present, wait_gone};

pub(in crate::operation) use kube_apiserver::NAME;

/// Reads the garden objects that the settings of the API server refer to before anything is created. Later tasks need
/// no garden for them.
pub(in crate::operation) fn settings(work: &mut Work, _: &Attempt) -> Result<TaskStep, Failed> {
    let kubernetes = &work.shoot["spec"]["kubernetes"];
    let texts = kube_apiserver::read(&work.env.garden, &work.view.namespace, kubernetes)?;
    kube_apiserver::check(kubernetes, &texts)?;
    work.results.texts.set(texts);
    Ok(TaskStep::Done)
}

pub(in crate::operation) fn service(work: &mut Work, _: &Attempt) -> Result<TaskStep, Failed> {
    let service = kube_apiserver::deploy_service(&work.env.seed, work.plane())?;
    let advertise_address = addresses::advertise(&work.view, text(&service["spec"]["clusterIP"]));
    let is_written_by_server =
        addresses::writes_endpoints(&work.view.services, advertise_address.as_deref(), &service);
    work.results.endpoint.set(Endpoint { advertise_address, is_written_by_server });
    Ok(TaskStep::Done)
}

pub(in crate::operation) fn wait_exposed(work: &mut Work, _: &Attempt) -> Result<TaskStep, Failed> {
    match exposure::ensure(&work.env.seed, &work.view.technical_id, &work.env.settings.edge.exposure)? {
        exposure::Exposed::Waiting(step) => Ok(step),
        exposure::Exposed::At(outside) => {
            work.results.outside.set(outside);
            Ok(TaskStep::Done)
        }
    }
}

pub(in crate::operation) fn advertise(work: &mut Work, _: &Attempt) -> Result<TaskStep, Failed> {
    issuer::check(&work.view)?;
    let wanted = json!(addresses::advertised(&work.view, work.outside()));
    if work.shoot["status"]["advertisedAddresses"] != wanted {
        let patch = Patch::Merge(json!({"status": {"advertisedAddresses": wanted}}));
        work.env.garden.patch_status::<Value>(&SHOOT, &work.key(), &patch)?;
        work.shoot["status"]["advertisedAddresses"] = wanted;
    }
    Ok(TaskStep::Done)
}

/// The API server. Its first encryption key is one that all running servers know.
pub(in crate::operation) fn deploy(work: &mut Work, attempt: &Attempt) -> Result<TaskStep, Failed> {
    let (view, made, namespace) = (&work.view, work.secrets()?, work.plane());
    let key = Key::new(namespace, NAME);
    let live = work.env.seed.find::<Value>(&DEPLOYMENT, &key)?;
    let is_populated = live.as_ref().is_some_and(|live| !annotation(live, KeyOrder::POPULATED).is_empty());
    let is_preparing = view.rotations.encryption_key.phase == RotationPhase::Preparing;
    let phase = if is_preparing { "Preparing" } else { "" };
    let current = made.data(ENCRYPTION_KEY).ok_or_else(|| Failed::new("there is no encryption key yet"))?;
    let configuration = kube_apiserver::encryption(&Encryption {
        namespace,
        resources: &view.encrypted,
        before: &view.encrypted_before,
        current,
        old: made.old_data(ENCRYPTION_KEY),
        order: KeyOrder::of(phase, is_populated),
    })?;
    let endpoint = work.results.endpoint.need("the API server has no address yet")?;
    let kubernetes = &work.shoot["spec"]["kubernetes"];
    let replicas = live.as_ref().and_then(|live| live["spec"]["replicas"].as_i64());
    let wanted = match kube_apiserver::replicas(replicas, work.facts.is_hibernated) {
        0 => 0,
        some => some.max(pods::replicas(work)),
    };
    let mut objects = kube_apiserver::fill(&kube_apiserver::Input {
        namespace,
        kubernetes,
        image: &work.env.images.find("kube-apiserver", &view.kubernetes_version)?,
        replicas: wanted,
        services: &view.services,
        external_hostname: &view.internal.server(),
        managed_issuer: view.managed_issuer().as_deref(),
        wildcard: wildcard::ensure(&work.env.seed, view)?.as_ref(),
        advertise_address: endpoint.advertise_address.as_deref(),
        writes_endpoints: endpoint.is_written_by_server,
        health_check_token: made.health_check_token(),
        secrets: &made.of_kube_apiserver(),
        encryption: &configuration,
        texts: work.results.texts.need("the settings of the API server have not been read yet")?,
    })?;
    let workload = objects.0.last_mut().map(|(_, deployment)| deployment);
    pods::set(pods::availability(work)?.as_ref(), workload);
    kube_apiserver::deploy(&work.env.seed, &objects)?;
    encryption::forget_populated(work, live.as_ref())?;
    let stays_off = replicas == Some(0) && work.facts.is_hibernated;
    if !is_preparing || is_populated || stays_off {
        return Ok(TaskStep::Done);
    }
    // All servers must know the new key before one of them uses it.
    match rollout::wait(&work.env.seed, &DEPLOYMENT, &key, attempt)? {
        TaskStep::Done => {
            let patch = json!({"metadata": {"annotations": {KeyOrder::POPULATED: "true"}}});
            let patch = Patch::Merge(patch);
            work.env.seed.patch::<Value>(&DEPLOYMENT, &key, &patch)?;
            Ok(TaskStep::again(Duration::ZERO, "the new encryption key is used first from now on"))
        }
        again => Ok(again),
    }
}

pub(in crate::operation) fn wait(work: &mut Work, attempt: &Attempt) -> Result<TaskStep, Failed> {
    let key = Key::new(work.plane(), NAME);
    let deployment = rollout::find(&work.env.seed, &DEPLOYMENT, &key)?;
    let step = rollout::wait_for(&work.env.seed, &key, &deployment, attempt)?;
    let is_up =
        rollout::is_first_start(&deployment) && work.env.connector.ask_from_outside(work.plane()).is_ok();
    Ok(if is_up { TaskStep::Done } else { step })
}

/// Waits until the client works and the server has the Shoot's version.
pub(in crate::operation) fn connect(work: &mut Work, _: &Attempt) -> Result<TaskStep, Failed> {
    if is_off(work)? {
        return Ok(TaskStep::Done);
    }
    let client = match work.env.connector.connect(work.plane()) {
        Ok(client) => client,
        // Its token is created shortly after its ServiceAccount.
        Err(error @ client::Error::Missing { .. }) => {
            return Ok(TaskStep::again(STORE_PERIOD, chain(&error)));
        }
        Err(error) => return Err(error.into()),
    };
    check_version(&client, work.plane(), &work.view.kubernetes_version)?;
    Ok(TaskStep::Done)
}

pub(in crate::operation) fn publish_keys(work: &mut Work, _: &Attempt) -> Result<TaskStep, Failed> {
    let client = work.env.connector.connect(work.plane())?;
    issuer::publish(&work.env.garden, &client, &work.view)?;
    Ok(TaskStep::Done)
}

pub(in crate::operation) fn delete(work: &mut Work, _: &Attempt) -> Result<TaskStep, Failed> {
    write::delete(&work.env.seed, &DEPLOYMENT, &Key::new(work.plane(), NAME))?;
    work.env.served.wake(work.plane());
    Ok(TaskStep::Done)
}

pub(in crate::operation) fn wait_deleted(work: &mut Work, _: &Attempt) -> Result<TaskStep, Failed> {
    wait_gone(&work.env.seed, &DEPLOYMENT, &Key::new(work.plane(), NAME))
}

/// The Service inside the seed, and the one that exposes it.
pub(in crate::operation) fn delete_services(work: &mut Work, _: &Attempt) -> Result<TaskStep, Failed> {
    for name in [NAME, exposure::NAME] {
        write::delete(&work.env.seed, &SERVICE, &Key::new(work.plane(), name))?;
    }
    Ok(TaskStep::Done)
}

pub(in crate::operation) fn withdraw_keys(work: &mut Work, _: &Attempt) -> Result<TaskStep, Failed> {
    issuer::withdraw(&work.env.garden, &work.view)?;
    Ok(TaskStep::Done)
}

/// Whether the API server is off and must stay off, so that it cannot be used.
fn is_off(work: &Work) -> Result<bool, Failed> {
    Ok(work.facts.is_hibernated && present(work, &DEPLOYMENT, NAME)? == Some(0))
}
