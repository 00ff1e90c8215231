//! The applier of a Shoot's ManagedResources: a part of this program, in place of a gardener-resource-manager.

use crate::api::core::DEPLOYMENT;
use crate::api::meta::Key;
use crate::components::shoot as managed_resources;
use crate::flow::{Attempt, Failed, TaskStep};
use crate::runtime::write;
use crate::shoot::access;
use crate::shoot::served::ServingState;

use super::super::times::STORE_PERIOD;
use super::super::work::Work;
use super::managed_resource::deploy as deploy_managed;

/// The applier serves each namespace whose API server answers. This wakes it for the Shoot.
pub(in crate::operation) fn deploy(work: &mut Work, _: &Attempt) -> Result<TaskStep, Failed> {
    deploy_managed(work, &managed_resources::resource_manager(&work.view.technical_id))?;
    work.env.served.take_up(work.plane());
    Ok(TaskStep::Done)
}

pub(in crate::operation) fn wait(work: &mut Work, _: &Attempt) -> Result<TaskStep, Failed> {
    let state = work.env.served.state(work.plane());
    match state.map(|state| state.standing) {
        Some(ServingState::Served | ServingState::LeftToOther) => Ok(TaskStep::Done),
        Some(standing) => {
            Ok(TaskStep::again(STORE_PERIOD, format!("the applier does not serve the Shoot yet: {standing}")))
        }
        None => Ok(TaskStep::again(STORE_PERIOD, "the applier has not checked the Shoot yet")),
    }
}

pub(in crate::operation) fn renew_tokens(work: &mut Work, _: &Attempt) -> Result<TaskStep, Failed> {
    access::renew_tokens(&work.env.seed, work.plane())?;
    Ok(TaskStep::Done)
}

/// The applier is part of the agent. A Shoot's own gardener-resource-manager is deleted.
pub(in crate::operation) fn delete(work: &mut Work, _: &Attempt) -> Result<TaskStep, Failed> {
    write::delete(&work.env.seed, &DEPLOYMENT, &Key::new(work.plane(), "gardener-resource-manager"))?;
    work.env.served.wake(work.plane());
    Ok(TaskStep::Done)
}
