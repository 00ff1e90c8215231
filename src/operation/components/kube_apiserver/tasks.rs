//! The tasks of the API server of a Shoot: how it is reached, and the agent's client of it.

use std::time::Duration;

use serde_json::Value;

use super::super::super::evidence::{LookResult, Looker, Seen, missing, only_in_the_log};
use super::super::super::facts::Facts;
use super::super::super::results::Endpoint;
use super::super::super::row::Row;
use super::super::super::times::{FIVE_MINUTES, FIVE_SECONDS, SHORT, STORE_PERIOD, TEN_MINUTES, TWO_MINUTES};
use super::super::super::work::Work;
use super::super::super::{encryption, pods};
use super::super::component::{Component, Turn};
use super::super::workload::{Workload, replicas as present, wait_gone};
use super::super::{beside_server, managed_resource, uses_tunnel};
use super::{Encryption, KUBELET_CERTIFICATE, KeyOrder, NAME};
use crate::api::core::{DEPLOYMENT, POD, SERVICE};
use crate::api::gardener::SHOOT;
use crate::api::meta::{Key, Metadata, annotation, text};
use crate::base::error::chain;
use crate::base::json::json;
use crate::components::{exposure, rollout};
use crate::flow::{Attempt, Failed, TaskStep};
use crate::kube::{ListParams, Patch};
use crate::pki::issue::{KeyUsage, ServerNames};
use crate::runtime::write;
use crate::shoot::addresses::server_names;
use crate::shoot::client::{self, check_version};
use crate::shoot::rotation::{CA_KUBELET, ENCRYPTION_KEY};
use crate::shoot::secrets::Certificate;
use crate::shoot::{Outside, RotationPhase, ShootView, addresses, issuer, wildcard};

/// Selects the pods of API servers.
const PODS: &str = "app=kubernetes,role=apiserver";

pub(crate) static COMPONENT: Component = Component {
    images: &[NAME],
    certificates,
    workloads: &[Workload::Deployment(NAME)],
    stops: Turn::Server,
    create: &CREATE,
    migrate: &MIGRATE,
    delete: &DELETE,
    force_delete: &[Row::new(
        "Delete public service account signing keys from Garden cluster",
        withdraw_keys,
        only_in_the_log,
    )
    .after(&["Deleting Cluster resource"])
    .last()],
    ..Component::NONE
};

static CREATE: [Row; 7] = [
    Row::new("Deploying Kubernetes API server service in the Seed cluster", service, |seen| {
        seen.service(NAME)
    })
    .after(&["Deploying control plane namespace", "Ensuring Shoot cluster identity"])
    .retrying(FIVE_SECONDS, SHORT),
    Row::new(
        "Waiting until Kubernetes API server service in the Seed cluster has reported readiness",
        wait_exposed,
        exposed,
    )
    .after(&["Deploying Kubernetes API server service in the Seed cluster"])
    .within(TEN_MINUTES),
    Row::new("Ensuring advertised addresses for the Shoot", advertise, |seen| {
        seen.status("advertisedAddresses")
    })
    .after(&["Initializing secrets management"]),
    // While a new encryption key is prepared, a rollout with the old key comes first.
    Row::new("Deploying Kubernetes API server", deploy, |seen| seen.deployment(NAME))
        .after(&[
            "Initializing secrets management",
            "Deploying main and events ETCDs",
            "Waiting until main and event ETCDs have been reconciled",
            "Checking that the restored main etcd has data",
            "Waiting until extension resources handled before kube-apiserver are ready",
            "Waiting until Shoot infrastructure has been reconciled",
            "Waiting until the agents of the tunnel have followed the rotation of CAs",
            "Waiting until the nodes have followed the rotation of CAs",
            "Checking that hosts can be what their pools say",
        ])
        .retrying(FIVE_SECONDS, SHORT)
        .longer(Facts::prepares_encryption_key, FIVE_MINUTES),
    // Rewritten objects must not reach a server that still encrypts with the old key.
    Row::new("Waiting until Kubernetes API server rolled out", wait, |seen| seen.rolled_out(NAME))
        .after(&["Deploying Kubernetes API server"])
        .when(|facts| facts.is_awake() && (facts.waits() || facts.rewrites_objects()))
        .within(FIVE_MINUTES),
    Row::new("Initializing connection to Shoot", connect, only_in_the_log)
        .after(&["Deploying internal domain DNS record", "Deploying Gardener shoot access resources"])
        .retrying(FIVE_SECONDS, TWO_MINUTES),
    Row::new("Sync public service account signing keys to Garden cluster", publish_keys, only_in_the_log)
        .after(&["Initializing connection to Shoot"])
        .when(|facts| facts.is_awake() && facts.publishes_keys)
        .last(),
];

static MIGRATE: [Row; 3] = [
    Row::new("Scaling Kubernetes API Server up and waiting until ready", wake, |seen| seen.rolled_out(NAME))
        .after(&["Waiting until main and event etcd report readiness"])
        .when(Facts::wakes)
        .within(TEN_MINUTES),
    Row::new("Deleting kube-apiserver deployment", delete, only_in_the_log)
        .after(&[
            "Waiting until ManagedResources are deleted",
            "Waiting until shoot managed resources have been deleted",
        ])
        .retrying(FIVE_SECONDS, SHORT),
    // Upstream waits for the Deployment only. A pod that still ends could write behind the last snapshot.
    Row::new("Waiting until kube-apiserver has been deleted", wait_pods_gone, |seen| {
        seen.deployment_left(NAME)
    })
    .after(&["Deleting kube-apiserver deployment"])
    .within(FIVE_MINUTES),
];

static DELETE: [Row; 10] = [
    Row::new("Deploying Kubernetes API server service in the Seed cluster", service, |seen| {
        seen.service(NAME)
    })
    .after(&["Deploying Shoot namespace in Seed", "Ensuring Shoot cluster identity"])
    .when(Facts::cleans)
    .retrying(FIVE_SECONDS, SHORT),
    Row::new(
        "Waiting until Kubernetes API LoadBalancer in the Seed cluster has reported readiness",
        wait_exposed,
        exposed,
    )
    .after(&["Deploying Kubernetes API server service in the Seed cluster"])
    .when(Facts::cleans)
    .within(TEN_MINUTES),
    Row::new("Ensuring advertised addresses for the Shoot", advertise, |seen| {
        seen.status("advertisedAddresses")
    })
    .after(&["Initializing secrets management"])
    .when(Facts::cleans)
    .last(),
    // While a new encryption key is prepared, a rollout with the old key comes first.
    Row::new("Deploying Kubernetes API server", keep_or_deploy, |seen| seen.deployment(NAME))
        .after(&["Waiting until main and event etcd report readiness"])
        .when(Facts::cleans)
        .retrying(FIVE_SECONDS, FIVE_MINUTES),
    Row::new("Waiting until Kubernetes API server reports readiness", wait, |seen| seen.rolled_out(NAME))
        .after(&["Deploying Kubernetes API server"])
        .when(Facts::cleans)
        .within(FIVE_MINUTES),
    Row::new("Initializing connection to Shoot", connect, only_in_the_log)
        .after(&["Deploying internal domain DNS record", "Deploying Gardener shoot access resources"])
        .when(Facts::cleans)
        .retrying(FIVE_SECONDS, TWO_MINUTES),
    Row::new("Deleting Kubernetes API server", delete, only_in_the_log)
        .after(&["Waiting until shoot managed resources have been deleted"])
        .retrying(FIVE_SECONDS, SHORT),
    Row::new("Waiting until Kubernetes API server has been deleted", wait_deleted, |seen| {
        seen.deployment_left(NAME)
    })
    .after(&["Deleting Kubernetes API server"])
    .within(FIVE_MINUTES),
    Row::new("Destroying Kubernetes API server service", delete_services, only_in_the_log)
        .after(&["Waiting until Kubernetes API server has been deleted"])
        .retrying(FIVE_SECONDS, SHORT)
        .last(),
    Row::new(
        "Delete public service account signing keys from Garden cluster",
        withdraw_keys,
        only_in_the_log,
    )
    .after(&["Waiting until Kubernetes API server has been deleted"])
    .retrying(FIVE_SECONDS, SHORT)
    .last(),
];

/// The certificate of the server contains the address of its exposure, so it is requested once that is known.
fn certificates(view: &ShootView, outside: Option<&Outside>) -> Vec<Certificate> {
    let user = "system:kube-aggregator";
    let client =
        Certificate::new("ca-front-proxy", "kube-aggregator", user, KeyUsage::Client, ServerNames::default());
    let mut all = vec![client];
    if view.has_workers {
        let user = "system:kube-apiserver:kubelet";
        let names = ServerNames::default();
        // Kubelets trust the new CA only once they have got it.
        let client = Certificate::new(CA_KUBELET, KUBELET_CERTIFICATE, user, KeyUsage::Client, names);
        all.push(client.by_previous_authority());
    }
    if outside.is_some() {
        let server = Certificate::new("ca", NAME, NAME, KeyUsage::Server, server_names(view, outside));
        all.push(server.with_chain());
    }
    all
}

fn exposed(seen: &Looker<'_>) -> LookResult {
    Ok(match exposure::look(seen.seed, seen.plane(), &seen.settings.edge.exposure) {
        Ok(exposure::Exposed::At(_)) => Seen::There,
        Ok(exposure::Exposed::Waiting(TaskStep::Again { why, .. })) | Err(why) => missing(why.text),
        Ok(exposure::Exposed::Waiting(TaskStep::Done)) => Seen::Nowhere,
    })
}

/// Reads the garden objects that the settings of the API server refer to before anything is created. Later tasks need
/// no garden for them.
pub(crate) fn settings(work: &mut Work, _: &Attempt) -> Result<TaskStep, Failed> {
    let kubernetes = &work.shoot["spec"]["kubernetes"];
    let texts = super::read(&work.env.garden, &work.view.namespace, kubernetes)?;
    super::check(kubernetes, &texts)?;
    work.results.texts.set(texts);
    Ok(TaskStep::Done)
}

/// Whether the settings of the API server, and the garden objects that they refer to, are valid.
pub(crate) fn settings_seen(seen: &Looker<'_>) -> LookResult {
    let kubernetes = &seen.shoot["spec"]["kubernetes"];
    let texts = super::read(seen.garden, text(&seen.shoot["metadata"]["namespace"]), kubernetes);
    let why = texts.and_then(|texts| super::check(kubernetes, &texts).map_err(Failed::from)).err();
    Ok(why.map_or(Seen::There, |why| missing(why.text)))
}

/// Objects that the settings refer to may be deleted before the Shoot. The API server then keeps its settings.
pub(crate) fn settings_if_possible(work: &mut Work, attempt: &Attempt) -> Result<TaskStep, Failed> {
    match settings(work, attempt) {
        Err(failed) if failed.postponed.is_none() => {
            let (shoot, err) = (work.view.name.as_str(), failed.text.as_str());
            log::warn!(shoot, err; "The API server of a Shoot that is being deleted keeps its settings");
            work.keeps_server = true;
            Ok(TaskStep::Done)
        }
        other => other,
    }
}

/// Whether a pod of it serves. A pod that serves is *available* only after the Deployment's minReadySeconds.
pub(crate) fn is_serving(work: &Work) -> Result<bool, Failed> {
    let server = work.env.seed.find::<Value>(&DEPLOYMENT, &Key::new(work.plane(), NAME))?;
    Ok(server.is_some_and(|server| server["status"]["readyReplicas"].as_i64().unwrap_or(0) > 0))
}

fn service(work: &mut Work, _: &Attempt) -> Result<TaskStep, Failed> {
    let service = super::deploy_service(&work.env.seed, work.plane())?;
    // The endpoints for nodes and pods are objects of `shoot-core-system`.
    let endpoint = if work.view.has_workers {
        Endpoint { advertise_address: None, is_written_by_server: false }
    } else {
        let advertise_address = addresses::advertise(&work.view, text(&service["spec"]["clusterIP"]));
        let is_written_by_server =
            addresses::writes_endpoints(&work.view.services, advertise_address.as_deref(), &service);
        Endpoint { advertise_address, is_written_by_server }
    };
    work.results.endpoint.set(endpoint);
    Ok(TaskStep::Done)
}

fn wait_exposed(work: &mut Work, _: &Attempt) -> Result<TaskStep, Failed> {
    // Kubeconfigs name the port that the Shoot had on the other seed.
    let port = work.facts.restores().then(|| addresses::advertised_port(&work.shoot)).flatten();
    let settings = &work.env.settings.edge.exposure;
    let needs = exposure::ExposureNeeds { port, has_tunnel: uses_tunnel(work) };
    let (exposed, tunnel_port) = exposure::ensure(&work.env.seed, &work.view.technical_id, settings, needs)?;
    match exposed {
        exposure::Exposed::Waiting(step) => Ok(step),
        exposure::Exposed::At(outside) => {
            if work.view.has_workers {
                addresses::check_for_nodes(&outside, settings.kind)?;
            }
            work.results.outside.set(outside);
            if let Some(port) = tunnel_port {
                work.results.tunnel_port.set(port);
            }
            Ok(TaskStep::Done)
        }
    }
}

fn advertise(work: &mut Work, _: &Attempt) -> Result<TaskStep, Failed> {
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
fn deploy(work: &mut Work, attempt: &Attempt) -> Result<TaskStep, Failed> {
    let (view, made, namespace) = (&work.view, work.secrets()?, work.plane());
    let key = Key::new(namespace, NAME);
    let live = work.env.seed.find::<Value>(&DEPLOYMENT, &key)?;
    let is_populated = live.as_ref().is_some_and(|live| !annotation(live, KeyOrder::POPULATED).is_empty());
    let is_preparing = view.rotations.encryption_key.phase == RotationPhase::Preparing;
    let phase = if is_preparing { "Preparing" } else { "" };
    let current = made.data(ENCRYPTION_KEY).ok_or_else(|| Failed::new("there is no encryption key yet"))?;
    let configuration = super::encryption(&Encryption {
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
    let wanted = match super::replicas(replicas, work.facts.is_hibernated) {
        0 => 0,
        some => some.max(pods::replicas(work)),
    };
    let mut objects = super::fill(&super::Input {
        namespace,
        kubernetes,
        image: &work.env.images.find(NAME, &view.kubernetes_version)?,
        replicas: wanted,
        services: &view.services,
        external_hostname: &view.internal.server(),
        managed_issuer: view.managed_issuer().as_deref(),
        wildcard: wildcard::ensure(&work.env.seed, view)?.as_ref(),
        advertise_address: endpoint.advertise_address.as_deref(),
        writes_endpoints: endpoint.is_written_by_server,
        health_check_token: made.health_check_token(),
        secrets: &super::volumes(made),
        encryption: &configuration,
        texts: work.results.texts.need("the settings of the API server have not been read yet")?,
        nodes: beside_server(work, wanted)?.as_deref(),
    })?;
    let workload = objects.0.last_mut().map(|(_, deployment)| deployment);
    pods::set(pods::availability(work)?.as_ref(), workload);
    super::deploy(&work.env.seed, &objects)?;
    if work.view.has_workers {
        let permissions = super::permissions(work.plane());
        managed_resource::deploy(work, &permissions)?;
    }
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

/// Runs the API server with at least one replica.
fn keep_or_deploy(work: &mut Work, attempt: &Attempt) -> Result<TaskStep, Failed> {
    if !work.keeps_server {
        return deploy(work, attempt);
    }
    start(work)?;
    Ok(TaskStep::Done)
}

/// Gives the API server at least one replica, and leaves it as it is otherwise.
fn start(work: &Work) -> Result<(), Failed> {
    let key = Key::new(work.plane(), NAME);
    let live: Value = work.env.seed.get(&DEPLOYMENT, &key)?;
    if live["spec"]["replicas"] == 0 {
        let patch = Patch::Merge(json!({"spec": {"replicas": 1}}));
        work.env.seed.patch_blindly(&DEPLOYMENT, &key, &patch)?;
    }
    Ok(())
}

/// Starts the API server of a hibernated Shoot, and waits for it.
fn wake(work: &mut Work, attempt: &Attempt) -> Result<TaskStep, Failed> {
    start(work)?;
    rollout::wait(&work.env.seed, &DEPLOYMENT, &Key::new(work.plane(), NAME), attempt)
}

fn wait(work: &mut Work, attempt: &Attempt) -> Result<TaskStep, Failed> {
    let key = Key::new(work.plane(), NAME);
    let deployment = rollout::find(&work.env.seed, &DEPLOYMENT, &key)?;
    let step = rollout::wait_for(&work.env.seed, &key, &deployment, attempt)?;
    let is_up =
        rollout::is_first_start(&deployment) && work.env.connector.ask_from_outside(work.plane()).is_ok();
    Ok(if is_up { TaskStep::Done } else { step })
}

/// Waits until the client works and the server has the Shoot's version.
fn connect(work: &mut Work, _: &Attempt) -> Result<TaskStep, Failed> {
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

fn publish_keys(work: &mut Work, _: &Attempt) -> Result<TaskStep, Failed> {
    let client = work.env.connector.connect(work.plane())?;
    issuer::publish(&work.env.garden, &client, &work.view)?;
    Ok(TaskStep::Done)
}

fn delete(work: &mut Work, _: &Attempt) -> Result<TaskStep, Failed> {
    write::delete(&work.env.seed, &DEPLOYMENT, &Key::new(work.plane(), NAME))?;
    work.env.served.wake(work.plane());
    Ok(TaskStep::Done)
}

fn wait_deleted(work: &mut Work, _: &Attempt) -> Result<TaskStep, Failed> {
    wait_gone(&work.env.seed, &DEPLOYMENT, &Key::new(work.plane(), NAME))
}

/// Waits until no server can write to etcd any more.
fn wait_pods_gone(work: &mut Work, attempt: &Attempt) -> Result<TaskStep, Failed> {
    let step = wait_deleted(work, attempt)?;
    if step != TaskStep::Done {
        return Ok(step);
    }
    let params = ListParams { label_selector: PODS.to_owned(), metadata_only: true, ..ListParams::default() };
    let mut left = Vec::new();
    work.env
        .seed
        .list_all::<Metadata>(&POD, work.plane(), &params, &mut |pod| left.push(pod.metadata.name))?;
    work.env.connector.forget(work.plane());
    Ok(match left.as_slice() {
        [] => TaskStep::Done,
        names => {
            TaskStep::again(STORE_PERIOD, format!("pods of the API server still end: {}", names.join(", ")))
        }
    })
}

/// The Service inside the seed, and the one that exposes it.
fn delete_services(work: &mut Work, _: &Attempt) -> Result<TaskStep, Failed> {
    for name in [NAME, exposure::NAME] {
        write::delete(&work.env.seed, &SERVICE, &Key::new(work.plane(), name))?;
    }
    Ok(TaskStep::Done)
}

fn withdraw_keys(work: &mut Work, _: &Attempt) -> Result<TaskStep, Failed> {
    issuer::withdraw(&work.env.garden, &work.view)?;
    Ok(TaskStep::Done)
}

/// Whether the API server is off and must stay off, so that it cannot be used.
fn is_off(work: &Work) -> Result<bool, Failed> {
    Ok(work.facts.is_hibernated && present(work, &DEPLOYMENT, NAME)? == Some(0))
}
