//! The kube-controller-manager of a Shoot.

use std::time::Duration;

use serde_json::Value;

use crate::api::coordination::LEASE;
use crate::api::core::{DEPLOYMENT, POD};
use crate::api::meta::{Key, Metadata, text};
use crate::components::shoot as managed_resources;
use crate::components::{kube_controller_manager, rollout};
use crate::flow::{Attempt, Failed, TaskStep};
use crate::format::time::parse_rfc3339;
use crate::kube::ListParams;
use crate::shoot::access;

use super::super::pods;
use super::super::work::Work;
use super::kept;
use super::managed_resource::deploy as deploy_managed;

pub(in crate::operation) use kube_controller_manager::NAME;

/// A kube-controller-manager that has not renewed its Lease for this long is not working.
const LEASE_MAX: Duration = Duration::from_secs(15);

const AGAIN: Duration = Duration::from_secs(5);

pub(in crate::operation) fn deploy(work: &mut Work, _: &Attempt) -> Result<TaskStep, Failed> {
    let (view, made) = (&work.view, work.secrets()?);
    let objects = kube_controller_manager::Input {
        namespace: work.plane(),
        kubernetes: &work.shoot["spec"]["kubernetes"],
        version: &view.kubernetes_version,
        image: &work.env.images.find("kube-controller-manager", &view.kubernetes_version)?,
        replicas: replicas(work)?,
        services: &view.services,
        secrets: &made.of_kube_controller_manager(),
        generic_kubeconfig: made.generic_kubeconfig(),
    };
    let mut deployment = kube_controller_manager::fill(&objects)?;
    pods::set(pods::availability(work)?.as_ref(), Some(&mut deployment));
    kube_controller_manager::deploy(&work.env.seed, work.plane(), &deployment)?;
    access::ensure(&work.env.seed, work.plane(), "kube-controller-manager")?;
    deploy_managed(work, &managed_resources::kube_controller_manager(&work.view.technical_id))
}

pub(in crate::operation) fn wait(work: &mut Work, attempt: &Attempt) -> Result<TaskStep, Failed> {
    let key = Key::new(work.plane(), NAME);
    rollout::wait(&work.env.seed, &DEPLOYMENT, &key, attempt)
}

/// Waits for kube-controller-manager, which deletes the dependents of deleted objects.
pub(in crate::operation) fn wait_active(work: &mut Work, _: &Attempt) -> Result<TaskStep, Failed> {
    let params = ListParams {
        label_selector: "app=kubernetes,role=controller-manager".to_owned(),
        ..ListParams::default()
    };
    let mut has_pod = false;
    work.env.seed.list_all::<Metadata>(&POD, work.plane(), &params, &mut |_| has_pod = true)?;
    if !has_pod {
        return Ok(TaskStep::again(AGAIN, "kube-controller-manager has no pod yet"));
    }
    let client = work.env.connector.connect(work.plane())?;
    let lease: Option<Value> = client.find(&LEASE, &Key::new("kube-system", "kube-controller-manager"))?;
    let renewed = lease.and_then(|lease| parse_rfc3339(text(&lease["spec"]["renewTime"])).ok());
    if renewed.is_some_and(|renewed| work.now().since(renewed) <= LEASE_MAX) {
        return Ok(TaskStep::Done);
    }
    Ok(TaskStep::again(
        AGAIN,
        "kube-controller-manager does not renew Lease kube-system/kube-controller-manager",
    ))
}

/// The current number of replicas for kube-controller-manager.
fn replicas(work: &Work) -> Result<i64, Failed> {
    if !work.facts.is_hibernated {
        return Ok(pods::replicas(work));
    }
    Ok(kept(work, &DEPLOYMENT, NAME)?)
}
