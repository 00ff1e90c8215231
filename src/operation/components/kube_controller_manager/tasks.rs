//! The tasks of the kube-controller-manager of a Shoot.

use std::time::Duration;

use serde_json::Value;

use super::super::super::evidence::only_in_the_log;
use super::super::super::facts::Facts;
use super::super::super::pods;
use super::super::super::row::Row;
use super::super::super::times::{FIVE_SECONDS, NINETY_SECONDS, SHORT, THREE_MINUTES};
use super::super::super::work::Work;
use super::super::component::Component;
use super::super::managed_resource;
use super::super::workload::{Workload, kept};
use super::{Input, NAME, SERVER};
use crate::api::coordination::LEASE;
use crate::api::core::{DEPLOYMENT, POD};
use crate::api::meta::{Key, Metadata, text};
use crate::components::managed::Managed;
use crate::components::{archive, rollout};
use crate::flow::{Attempt, Failed, TaskStep};
use crate::format::time::parse_rfc3339;
use crate::kube::ListParams;
use crate::pki::issue::{KeyUsage, ServerNames};
use crate::shoot::addresses::service_names;
use crate::shoot::secrets::Certificate;
use crate::shoot::{Outside, ShootView, access};

pub(crate) static COMPONENT: Component = Component {
    images: &[NAME],
    certificates,
    workloads: &[Workload::Deployment(NAME)],
    create: &[
        // The flow does not wait for the API server of a Shoot that is being hibernated, and its controllers must not
        // be newer than the server.
        Row::new("Deploying Kubernetes controller manager", deploy, |seen| seen.deployment(NAME))
            .after(&["Renewing shoot access secrets after creation of new ServiceAccount signing key"])
            .also_after(|facts| facts.is_hibernated, &["Initializing connection to Shoot"])
            .retrying(FIVE_SECONDS, SHORT),
        Row::new("Waiting until kube-controller-manager reports readiness", wait, |seen| {
            seen.rolled_out(NAME)
        })
        .after(&["Deploying Kubernetes controller manager"])
        .when(Facts::waits_for_controllers)
        .within(THREE_MINUTES),
    ],
    // Upstream lets it end with its namespace. A namespace waits for half of the grace period of pods that still run, and the
    // other seed waits for the end of the namespace.
    migrate: &[Row::new("Stopping Kubernetes controller manager", stop, only_in_the_log)
        .after(&["Waiting until shoot managed resources have been deleted"])
        .retrying(FIVE_SECONDS, SHORT)],
    delete: &[
        Row::new("Deploying Kubernetes controller manager", deploy, |seen| seen.deployment(NAME))
            .after(&[
                "Initializing connection to Shoot",
                "Waiting until Shoot control plane has been reconciled",
            ])
            .when(Facts::cleans)
            .retrying(FIVE_SECONDS, SHORT),
        Row::new("Waiting until kube-controller-manager is active", wait_active, only_in_the_log)
            .after(&["Cleaning up webhooks", "Deploying Kubernetes controller manager"])
            .when(|facts| facts.cleans() && facts.found.has_controllers)
            .retrying(FIVE_SECONDS, NINETY_SECONDS),
    ],
    ..Component::NONE
};

/// A kube-controller-manager that has not renewed its Lease for this long is not working.
const LEASE_MAX: Duration = Duration::from_secs(15);

const AGAIN: Duration = Duration::from_secs(5);

fn certificates(view: &ShootView, _: Option<&Outside>) -> Vec<Certificate> {
    let names = ServerNames { dns: service_names(NAME, &view.technical_id), addresses: Vec::new() };
    vec![Certificate::new("ca", SERVER, NAME, KeyUsage::Server, names)]
}

/// Its permissions in the cluster of the Shoot.
fn permissions(namespace: &str) -> Managed {
    let text = archive::text("kube_controller_manager/permissions.yaml");
    Managed::for_shoot(namespace, "shoot-core-kube-controller-manager", true, &text)
}

fn deploy(work: &mut Work, _: &Attempt) -> Result<TaskStep, Failed> {
    let (view, made) = (&work.view, work.secrets()?);
    let objects = Input {
        namespace: work.plane(),
        kubernetes: &work.shoot["spec"]["kubernetes"],
        version: &view.kubernetes_version,
        image: &work.env.images.find(NAME, &view.kubernetes_version)?,
        replicas: replicas(work)?,
        services: &view.services,
        secrets: &super::volumes(made),
        generic_kubeconfig: made.generic_kubeconfig(),
        pods: view.has_workers.then_some(&view.pods),
    };
    let mut deployment = super::fill(&objects)?;
    pods::set(pods::availability(work)?.as_ref(), Some(&mut deployment));
    super::deploy(&work.env.seed, work.plane(), &deployment)?;
    access::ensure(&work.env.seed, work.plane(), NAME)?;
    let permissions = permissions(&work.view.technical_id);
    managed_resource::deploy(work, &permissions)
}

fn stop(work: &mut Work, _: &Attempt) -> Result<TaskStep, Failed> {
    Workload::Deployment(NAME).stop(&work.env.seed, work.plane(), work.now())?;
    Ok(TaskStep::Done)
}

fn wait(work: &mut Work, attempt: &Attempt) -> Result<TaskStep, Failed> {
    let key = Key::new(work.plane(), NAME);
    rollout::wait(&work.env.seed, &DEPLOYMENT, &key, attempt)
}

/// Waits for kube-controller-manager, which deletes the dependents of deleted objects.
fn wait_active(work: &mut Work, _: &Attempt) -> Result<TaskStep, Failed> {
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
    let lease: Option<Value> = client.find(&LEASE, &Key::new("kube-system", NAME))?;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn permissions_are_those_of_a_go_gardenlet() {
        let golden = include_str!("../../../../tests/fixtures/components/shoot/kube-controller-manager.yaml");
        permissions("shoot--p--s2").assert_for_shoot(golden, true);
    }
}
