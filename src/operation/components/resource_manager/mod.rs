//! The applier of a Shoot's ManagedResources: a part of this program, in place of a gardener-resource-manager.

use crate::api::core::DEPLOYMENT;
use crate::api::meta::Key;
use crate::base::error::chain;
use crate::base::json::json;
use crate::components::managed::{Managed, manifests};
use crate::components::{archive, exposure, webhooks};
use crate::flow::{Attempt, Failed, TaskStep};
use crate::runtime::write;
use crate::shoot::access;
use crate::shoot::served::ServingState;

use super::super::evidence::{LookResult, Looker, Seen, only_in_the_log};
use super::super::facts::Facts;
use super::super::row::Row;
use super::super::times::{FIVE_MINUTES, FIVE_SECONDS, SHORT, STORE_PERIOD};
use super::super::work::Work;
use super::component::Component;
use super::managed_resource;
use super::workload::Workload;

/// The applier of a Shoot that another gardenlet deployed.
const NAME: &str = webhooks::NAME;

const MANAGED_RESOURCE: &str = "shoot-core-gardener-resource-manager";

pub(super) static COMPONENT: Component = Component {
    workloads: &[Workload::Deployment(NAME)],
    is_required: |duty| duty.has_own_applier,
    create: &[
        // The applier is part of this program: this wakes it, and it starts to serve.
        Row::new("Deploying gardener-resource-manager", deploy, |seen| seen.written(MANAGED_RESOURCE))
            .after(&["Initializing secrets management", "Waiting until Kubernetes API server rolled out"]),
        Row::new("Waiting until gardener-resource-manager reports readiness", wait, applied)
            .after(&["Deploying gardener-resource-manager"])
            .when(Facts::waits_awake)
            .within(FIVE_MINUTES),
        Row::new(
            "Renewing shoot access secrets after creation of new ServiceAccount signing key",
            renew_tokens,
            only_in_the_log,
        )
        .after(&["Waiting until gardener-resource-manager reports readiness"])
        .when(Facts::prepares_service_account_key)
        .retrying(FIVE_SECONDS, SHORT),
    ],
    migrate: &[
        Row::new("Deploying gardener-resource-manager", deploy, |seen| seen.written(MANAGED_RESOURCE))
            .after(&["Scaling Kubernetes API Server up and waiting until ready"])
            .when(Facts::cleans)
            .retrying(FIVE_SECONDS, SHORT),
        Row::new("Ensuring that the gardener-resource-manager is scaled to 1", wait, applied)
            .after(&["Deploying gardener-resource-manager"])
            .when(Facts::cleans)
            .within(FIVE_MINUTES),
    ],
    delete: &[
        Row::new("Deploying gardener-resource-manager", deploy, |seen| seen.written(MANAGED_RESOURCE))
            .after(&["Waiting until Kubernetes API server reports readiness"])
            .when(Facts::cleans),
        Row::new("Waiting until gardener-resource-manager reports readiness", wait, applied)
            .after(&["Deploying gardener-resource-manager"])
            .when(Facts::cleans)
            .within(FIVE_MINUTES),
        Row::new("Destroying gardener-resource-manager", delete, only_in_the_log)
            .after(&["Waiting until Kubernetes API server has been deleted"])
            .retrying(FIVE_SECONDS, SHORT)
            .last(),
    ],
    ..Component::NONE
};

/// Its permissions, and webhooks, in the cluster of the Shoot.
fn permissions(namespace: &str) -> Managed {
    let mut webhooks = archive::object("resource_manager/webhooks.yaml");
    // The kind has no namespace. Upstream writes one, so this keeps the checksum of the Secret equal.
    webhooks["metadata"]["namespace"] = json!(namespace);
    let others = archive::text("resource_manager/permissions.yaml");
    let all = format!("{}---\n{others}", manifests(&[webhooks]));
    Managed::for_shoot(namespace, MANAGED_RESOURCE, false, &all)
}

/// The applier begins when it reaches the API server of the Shoot.
fn applied(seen: &Looker<'_>) -> LookResult {
    let mut found = seen.healthy(MANAGED_RESOURCE)?;
    if let Seen::Missing(lines) = &mut found
        && let Err(error) = seen.shoots.open(seen.plane())
    {
        let doubt = exposure::examine(seen.seed, &seen.settings.edge.exposure).ok().and_then(Result::err);
        let why = format!("its API server cannot be reached from here: {}", chain(&error));
        lines.splice(0..0, std::iter::once(why).chain(doubt));
    }
    Ok(found)
}

/// The applier serves each namespace whose API server answers. This wakes it for the Shoot.
fn deploy(work: &mut Work, _: &Attempt) -> Result<TaskStep, Failed> {
    let permissions = permissions(&work.view.technical_id);
    managed_resource::deploy(work, &permissions)?;
    work.env.served.take_up(work.plane());
    Ok(TaskStep::Done)
}

fn wait(work: &mut Work, _: &Attempt) -> Result<TaskStep, Failed> {
    let state = work.env.served.state(work.plane());
    match state.map(|state| state.serving) {
        Some(ServingState::Served | ServingState::LeftToOther) => Ok(TaskStep::Done),
        Some(serving) => {
            Ok(TaskStep::again(STORE_PERIOD, format!("the applier does not serve the Shoot yet: {serving}")))
        }
        None => Ok(TaskStep::again(STORE_PERIOD, "the applier has not checked the Shoot yet")),
    }
}

fn renew_tokens(work: &mut Work, _: &Attempt) -> Result<TaskStep, Failed> {
    access::renew_tokens(&work.env.seed, work.plane())?;
    Ok(TaskStep::Done)
}

/// The applier is part of the agent. A Shoot's own gardener-resource-manager is deleted.
fn delete(work: &mut Work, _: &Attempt) -> Result<TaskStep, Failed> {
    write::delete(&work.env.seed, &DEPLOYMENT, &Key::new(work.plane(), NAME))?;
    work.env.served.wake(work.plane());
    Ok(TaskStep::Done)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn permissions_are_those_of_a_go_gardenlet() {
        let golden =
            include_str!("../../../../tests/fixtures/components/shoot/gardener-resource-manager.yaml");
        permissions("shoot--p--s2").assert_for_shoot(golden, false);
    }
}
