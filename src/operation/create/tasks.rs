//! The tasks of a Shoot's flow. Each reads and writes, and returns at once.

use serde_json::Value;

use crate::api::core::POD;
use crate::api::extensions::INFRASTRUCTURE;
use crate::api::gardener::SHOOT;
use crate::api::meta::{Key, Metadata};
use crate::extension::{hosts, problem, required};
use crate::flow::{Attempt, Failed, TaskStep};
use crate::kube::{ListParams, Patch};
use crate::runtime::write;
use crate::secrets::{KEY_AGAIN, Secrets};
use crate::shoot::{garden, namespace as plane, state};
use crate::shoot::{rotation, secrets};

use super::super::components;
use super::super::components::etcd::plain::moving::ACCEPT_LOSS;
use super::super::kinds::Operation;
use super::super::snapshots::accepts_loss;
use super::super::work::Work;
use super::super::{cluster, status};

pub(crate) fn required_extensions(work: &mut Work, _: &Attempt) -> Result<TaskStep, Failed> {
    let registrations = work.env.registered();
    let dns = work.view.dns_types();
    let backup = work.view.backup["provider"].as_str();
    let required = required::of_shoot(&work.shoot, &work.inputs.seed, &dns, backup, &registrations);
    let installations = work.env.installations.values();
    if work.view.has_workers {
        let host_types = &work.env.settings.edge.host_types;
        let unclear = hosts::unclear(&work.view.provider, &registrations, &installations, host_types);
        let key = Key::new(work.plane(), work.view.name.as_str());
        // A Shoot that goes is never refused for it.
        let infrastructure = match work.facts.operation {
            Operation::Create | Operation::Reconcile | Operation::Restore => {
                work.env.seed.find::<Value>(&INFRASTRUCTURE, &key)?.unwrap_or_default()
            }
            Operation::Delete | Operation::ForceDelete | Operation::Migrate => Value::Null,
        };
        if let Some(why) = unclear.or_else(|| hosts::held_by_extension(&infrastructure)) {
            return Err(problem(why));
        }
    }
    match required::missing(&required, &registrations, &installations) {
        None => Ok(TaskStep::Done),
        Some(why) => Err(Failed::new(why)),
    }
}

pub(crate) fn namespace(work: &mut Work, _: &Attempt) -> Result<TaskStep, Failed> {
    plane::ensure(&work.env.seed, &work.view, &work.env.registered())
}

/// The identity is written once and never changes.
pub(crate) fn identity(work: &mut Work, _: &Attempt) -> Result<TaskStep, Failed> {
    if let Some(patch) = status::cluster_identity(&work.shoot, &work.view.cluster_identity) {
        let shoot = work.env.garden.patch_status::<Value>(&SHOOT, &work.key(), &Patch::Merge(patch))?;
        let mut known = work.shoot.clone();
        known["status"] = shoot["status"].clone();
        cluster::sync(&work.env, &known, &work.inputs)?;
        // Not earlier: a retry sees by it that the `Cluster` does not contain the identity yet.
        work.shoot = known;
    }
    Ok(TaskStep::Done)
}

pub(crate) fn secrets(work: &mut Work, _: &Attempt) -> Result<TaskStep, Failed> {
    if work.session.is_none() {
        let state = work.inputs.state.as_ref().filter(|_| work.facts.restores());
        if let Some(state) = state {
            // Before any other is generated.
            state::create_secrets(&work.env.seed, work.plane(), state)?;
        }
        let session = Secrets::load(work.place.clone(), &rotation::rotation(&work.view))?;
        let lost = secrets::lost(&work.view, |name| session.has(name));
        if state.is_some() && !lost.is_empty() && !accepts_loss(&work.shoot) {
            return Err(Failed::new(format!(
                "ShootState {} of the garden lacks the Secrets of {}, and other ones would lock out the clients of the Shoot, or make its data \
                 unreadable: add them from a backup of the garden, or annotate the Shoot with {ACCEPT_LOSS}=true to make new ones",
                work.key(),
                lost.join(", ")
            )));
        }
        work.session = Some(session);
    }
    let Some(session) = &mut work.session else { return Ok(TaskStep::Done) };
    let outside = work.results.outside.get();
    let certificates = components::certificates(&work.view, outside);
    let made = match secrets::ensure(session, &work.view, &certificates)? {
        secrets::EnsuredSecrets::All(made) => made,
        secrets::EnsuredSecrets::Making(why) => return Ok(TaskStep::again(KEY_AGAIN, why)),
    };
    cluster::name_kubeconfig(&work.env.seed, work.plane(), made.generic_kubeconfig())?;
    garden::ensure(&work.env.garden, &work.view, work.results.secrets.set(made))
}

/// Deletes the pods that must restart because others have changed their configuration.
pub(crate) fn restart_pods(work: &mut Work, _: &Attempt) -> Result<TaskStep, Failed> {
    let selector = "maintenance.gardener.cloud/restart=true".to_owned();
    let params = ListParams { label_selector: selector, ..ListParams::default() };
    let mut names = Vec::new();
    work.env
        .seed
        .list_all::<Metadata>(&POD, work.plane(), &params, &mut |pod| names.push(pod.metadata.name))?;
    for name in names {
        // One by one: the agent's role does not allow deleting a collection.
        write::delete(&work.env.seed, &POD, &Key::new(work.plane(), name))?;
    }
    Ok(TaskStep::Done)
}
