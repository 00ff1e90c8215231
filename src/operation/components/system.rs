//! What the agent applies in the cluster of a Shoot.

use crate::components::shoot as managed_resources;
use crate::flow::{Attempt, Failed, TaskStep};
use crate::shoot::{access, inside};

use super::super::extensions;
use super::super::work::Work;
use super::managed_resource::{deploy as deploy_managed, wait_healthy};

pub(in crate::operation) fn namespaces(work: &mut Work, _: &Attempt) -> Result<TaskStep, Failed> {
    deploy_managed(work, &managed_resources::namespaces(&work.view.technical_id))
}

pub(in crate::operation) fn wait_namespaces(work: &mut Work, _: &Attempt) -> Result<TaskStep, Failed> {
    wait_healthy(work, managed_resources::NAMESPACES)
}

pub(in crate::operation) fn access(work: &mut Work, _: &Attempt) -> Result<TaskStep, Failed> {
    access::ensure_kubeconfigs(&work.env.seed, &work.view, work.outside(), work.secrets()?.ca_bundle())?;
    deploy_managed(work, &managed_resources::gardener_access(&work.view.technical_id))
}

pub(in crate::operation) fn system(work: &mut Work, _: &Attempt) -> Result<TaskStep, Failed> {
    let client = work.env.connector.connect(work.plane())?;
    let managed = inside::system(&work.view, &extensions::names(work), &client)?;
    deploy_managed(work, &managed)
}

pub(in crate::operation) fn cluster_identity(work: &mut Work, _: &Attempt) -> Result<TaskStep, Failed> {
    deploy_managed(
        work,
        &managed_resources::cluster_identity(&work.view.technical_id, &work.view.cluster_identity),
    )
}
