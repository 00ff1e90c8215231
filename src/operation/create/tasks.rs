//! The tasks of a Shoot's flow. Each reads and writes, and returns at once.

use std::time::Duration;

use serde_json::{Value, json};

use crate::api::core::{DEPLOYMENT, POD, STATEFUL_SET};
use crate::api::gardener::SHOOT;
use crate::api::meta::{Key, Metadata, annotation, text};
use crate::base::error::chain;
use crate::components::kube_apiserver::{Encryption, KeyOrder};
use crate::components::managed::{self, Managed};
use crate::components::shoot as managed_resources;
use crate::components::{etcd, exposure, kube_apiserver, kube_controller_manager, rollout};
use crate::config::control_plane::EtcdMode;
use crate::extension::{required, together};
use crate::flow::{Attempt, Failed, Step};
use crate::kube::{ListParams, Patch};
use crate::runtime::write;
use crate::secrets::{KEY_AGAIN, Secrets};
use crate::shoot::client::{self, check_version};
use crate::shoot::rotation::{self, ENCRYPTION_KEY};
use crate::shoot::secrets::{self};
use crate::shoot::served::Standing;
use crate::shoot::{Phase, View, access, addresses, garden, inside, issuer, namespace as plane, wildcard};

use super::super::results::Endpoint;
use super::super::times::STORE_PERIOD;
use super::super::work::Work;
use super::super::{cluster, encryption, extensions, pods, sleep, snapshots, status};

/// Reads the garden objects that the settings of the API server refer to before anything is created. Later tasks need
/// no garden for them.
pub(in crate::operation) fn settings(work: &mut Work, _: &Attempt) -> Result<Step, Failed> {
    let kubernetes = &work.shoot["spec"]["kubernetes"];
    let texts = kube_apiserver::read(&work.env.garden, &work.view.namespace, kubernetes)?;
    kube_apiserver::check(kubernetes, &texts)?;
    work.results.texts.set(texts);
    Ok(Step::Done)
}

pub(in crate::operation) fn required_extensions(work: &mut Work, _: &Attempt) -> Result<Step, Failed> {
    let registrations = work.env.registered();
    let dns = work.view.dns_types();
    let backup = work.view.backup["provider"].as_str();
    let required = required::of_shoot(&work.shoot, &work.inputs.seed, (&dns, backup), &registrations);
    match required::missing(&required, &registrations, &work.env.installations.values()) {
        None => Ok(Step::Done),
        Some(why) => Err(Failed::new(why)),
    }
}

pub(in crate::operation) fn namespace(work: &mut Work, _: &Attempt) -> Result<Step, Failed> {
    plane::ensure(&work.env.seed, &work.view, &work.env.registered())
}

/// The identity is written once and never changes.
pub(in crate::operation) fn identity(work: &mut Work, _: &Attempt) -> Result<Step, Failed> {
    if let Some(patch) = status::cluster_identity(&work.shoot, &work.view.cluster_identity) {
        let shoot = work.env.garden.patch_status::<Value>(&SHOOT, &work.key(), &Patch::Merge(patch))?;
        let mut known = work.shoot.clone();
        known["status"] = shoot["status"].clone();
        cluster::sync(&work.env, &known, &work.inputs)?;
        // Not earlier: a retry sees by it that the `Cluster` does not contain the identity yet.
        work.shoot = known;
    }
    Ok(Step::Done)
}

pub(in crate::operation) fn referenced(work: &mut Work, _: &Attempt) -> Result<Step, Failed> {
    inside::deploy_referenced(&work.env.garden, &work.env.seed, &work.view)?;
    Ok(Step::Done)
}

pub(in crate::operation) fn service(work: &mut Work, _: &Attempt) -> Result<Step, Failed> {
    let service = kube_apiserver::deploy_service(&work.env.seed, work.plane())?;
    let advertise_address = addresses::advertise(&work.view, text(&service["spec"]["clusterIP"]));
    let is_written_by_server =
        addresses::writes_endpoints(&work.view.services, advertise_address.as_deref(), &service);
    work.results.endpoint.set(Endpoint { advertise_address, is_written_by_server });
    Ok(Step::Done)
}

pub(in crate::operation) fn wait_exposed(work: &mut Work, _: &Attempt) -> Result<Step, Failed> {
    match exposure::ensure(&work.env.seed, &work.view.technical_id, &work.env.settings.edge.exposure)? {
        exposure::Exposed::Waiting(step) => Ok(step),
        exposure::Exposed::At(outside) => {
            work.results.outside.set(outside);
            Ok(Step::Done)
        }
    }
}

pub(in crate::operation) fn secrets(work: &mut Work, _: &Attempt) -> Result<Step, Failed> {
    if work.session.is_none() {
        work.session = Some(Secrets::load(work.place.clone(), &rotation::rotation(&work.view))?);
    }
    let Some(session) = &mut work.session else { return Ok(Step::Done) };
    let made = match secrets::ensure(session, &work.view, work.results.outside.get())? {
        secrets::Ensured::All(made) => made,
        secrets::Ensured::Making(why) => return Ok(Step::again(KEY_AGAIN, why)),
    };
    cluster::name_kubeconfig(&work.env.seed, work.plane(), made.generic_kubeconfig())?;
    garden::ensure(&work.env.garden, &work.view, work.results.secrets.set(made))
}

pub(in crate::operation) fn advertise(work: &mut Work, _: &Attempt) -> Result<Step, Failed> {
    issuer::check(&work.view)?;
    let wanted = json!(addresses::advertised(&work.view, work.outside()));
    if work.shoot["status"]["advertisedAddresses"] != wanted {
        let patch = Patch::Merge(json!({"status": {"advertisedAddresses": wanted}}));
        work.env.garden.patch_status::<Value>(&SHOOT, &work.key(), &patch)?;
        work.shoot["status"]["advertisedAddresses"] = wanted;
    }
    Ok(Step::Done)
}

pub(in crate::operation) fn etcds(work: &mut Work, _: &Attempt) -> Result<Step, Failed> {
    let (view, made, settings) = (&work.view, work.secrets()?, &work.env.settings.edge.etcd);
    let image = work.env.images.find("etcd", &view.kubernetes_version)?;
    let availability = pods::availability(work)?;
    let snapshots = snapshots::wanted(work)?;
    for role in etcd::Role::ALL {
        let (volume, word) = match role {
            etcd::Role::Main => (&settings.main, "main"),
            etcd::Role::Events => (&settings.events, "events"),
        };
        let [ca, server, client] = made.of_etcd(word);
        let input = etcd::Input {
            namespace: work.plane(),
            role,
            replicas: sleep::etcd_replicas(work, role)?,
            secrets: etcd::Secrets { ca, server, client },
            volume,
        };
        match settings.mode {
            EtcdMode::Plain => {
                let finish = |set: &mut Value| pods::set(availability.as_ref(), Some(set));
                let may_label = || etcd::druid::may_label(&work.env.seed);
                let snapshots = snapshots.as_ref().filter(|_| role == etcd::Role::Main);
                let snapshots = snapshots.map(|wanted| wanted.input(work));
                etcd::plain::deploy(
                    &work.env.seed,
                    &input,
                    (&image, snapshots.as_ref()),
                    &finish,
                    &may_label,
                )?;
            }
            EtcdMode::Druid => {
                etcd::druid::deploy(&work.env.seed, &input, &schedule(&work.view), work.now())?;
            }
        }
    }
    Ok(Step::Done)
}

pub(in crate::operation) fn wait_etcds(work: &mut Work, attempt: &Attempt) -> Result<Step, Failed> {
    let looks = etcd::Role::ALL.map(|role| match work.env.settings.edge.etcd.mode {
        EtcdMode::Plain => wait_plain(work, role, attempt),
        EtcdMode::Druid => etcd::druid::wait(&work.env.seed, work.plane(), role),
    });
    together(looks.into())
}

/// While it does not run, check whether its volume is the reason.
fn wait_plain(work: &Work, role: etcd::Role, attempt: &Attempt) -> Result<Step, Failed> {
    let key = Key::new(work.plane(), role.name());
    let set = rollout::find(&work.env.seed, &STATEFUL_SET, &key)?;
    let step = rollout::wait_for(&work.env.seed, &key, &set, attempt)?;
    let Step::Again { after, .. } = step else { return Ok(step) };
    Ok(etcd::claims::look(&work.env.seed, &set)?.map_or(step, |why| Step::Again { after, why }))
}

/// The applier serves each namespace whose API server answers. This wakes it for the Shoot.
pub(in crate::operation) fn applier(work: &mut Work, _: &Attempt) -> Result<Step, Failed> {
    deploy(work, &managed_resources::resource_manager(&work.view.technical_id))?;
    work.env.served.take_up(work.plane());
    Ok(Step::Done)
}

pub(in crate::operation) fn wait_applier(work: &mut Work, _: &Attempt) -> Result<Step, Failed> {
    let state = work.env.served.state(work.plane());
    match state.map(|state| state.standing) {
        Some(Standing::Served | Standing::LeftToOther) => Ok(Step::Done),
        Some(standing) => {
            Ok(Step::again(STORE_PERIOD, format!("the applier does not serve the Shoot yet: {standing}")))
        }
        None => Ok(Step::again(STORE_PERIOD, "the applier has not checked the Shoot yet")),
    }
}

pub(in crate::operation) fn renew_tokens(work: &mut Work, _: &Attempt) -> Result<Step, Failed> {
    access::renew_tokens(&work.env.seed, work.plane())?;
    Ok(Step::Done)
}

pub(in crate::operation) fn namespaces(work: &mut Work, _: &Attempt) -> Result<Step, Failed> {
    deploy(work, &managed_resources::namespaces(&work.view.technical_id))
}

pub(in crate::operation) fn wait_namespaces(work: &mut Work, _: &Attempt) -> Result<Step, Failed> {
    wait_healthy(work, managed_resources::NAMESPACES)
}

pub(in crate::operation) fn access(work: &mut Work, _: &Attempt) -> Result<Step, Failed> {
    access::ensure_kubeconfigs(&work.env.seed, &work.view, work.outside(), work.secrets()?.ca_bundle())?;
    deploy(work, &managed_resources::gardener_access(&work.view.technical_id))
}

/// Waits until the client works and the server has the Shoot's version.
pub(in crate::operation) fn connect(work: &mut Work, _: &Attempt) -> Result<Step, Failed> {
    if sleep::is_off(work)? {
        return Ok(Step::Done);
    }
    let client = match work.env.connector.connect(work.plane()) {
        Ok(client) => client,
        // Its token is created shortly after its ServiceAccount.
        Err(error @ client::Error::Missing { .. }) => return Ok(Step::again(STORE_PERIOD, chain(&error))),
        Err(error) => return Err(error.into()),
    };
    check_version(&client, work.plane(), &work.view.kubernetes_version)?;
    Ok(Step::Done)
}

pub(in crate::operation) fn publish_keys(work: &mut Work, _: &Attempt) -> Result<Step, Failed> {
    let client = work.env.connector.connect(work.plane())?;
    issuer::publish(&work.env.garden, &client, &work.view)?;
    Ok(Step::Done)
}

/// Writes a ManagedResource of the Shoot.
fn deploy(work: &mut Work, managed: &Managed) -> Result<Step, Failed> {
    let generation = managed::deploy(&work.env.seed, managed)?;
    work.generations.insert(managed.name.clone(), generation);
    Ok(Step::Done)
}

/// Whether its objects are applied and healthy.
fn wait_healthy(work: &Work, name: &str) -> Result<Step, Failed> {
    let key = Key::new(work.plane(), name);
    let generation = work.generations.get(name).copied().unwrap_or_default();
    let Some(found) = work.env.managed.get(&key) else {
        return Ok(Step::again(STORE_PERIOD, format!("ManagedResource {key} does not exist yet")));
    };
    Ok(match found.unhealthy(generation) {
        None => Step::Done,
        Some(why) => Step::again(STORE_PERIOD, format!("ManagedResource {key} {why}")),
    })
}

/// The API server. Its first encryption key is one that all running servers know.
pub(in crate::operation) fn server(work: &mut Work, attempt: &Attempt) -> Result<Step, Failed> {
    let (view, made, namespace) = (&work.view, work.secrets()?, work.plane());
    let key = Key::new(namespace, kube_apiserver::NAME);
    let live = work.env.seed.find::<Value>(&DEPLOYMENT, &key)?;
    let is_populated = live.as_ref().is_some_and(|live| !annotation(live, KeyOrder::POPULATED).is_empty());
    let is_preparing = view.rotations.encryption_key.phase == Phase::Preparing;
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
    let endpoint = work.results.endpoint.need("the address of the API server")?;
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
        texts: work.results.texts.need("the objects that the settings of the API server refer to")?,
    })?;
    let workload = objects.0.last_mut().map(|(_, deployment)| deployment);
    pods::set(pods::availability(work)?.as_ref(), workload);
    kube_apiserver::deploy(&work.env.seed, &objects)?;
    encryption::forget_populated(work, live.as_ref())?;
    let stays_off = replicas == Some(0) && work.facts.is_hibernated;
    if !is_preparing || is_populated || stays_off {
        return Ok(Step::Done);
    }
    // All servers must know the new key before one of them uses it.
    match rollout::wait(&work.env.seed, &DEPLOYMENT, &key, attempt)? {
        Step::Done => {
            let patch = json!({"metadata": {"annotations": {KeyOrder::POPULATED: "true"}}});
            let patch = Patch::Merge(patch);
            work.env.seed.patch::<Value>(&DEPLOYMENT, &key, &patch)?;
            Ok(Step::again(Duration::ZERO, "the new encryption key is used first from now on"))
        }
        again => Ok(again),
    }
}

pub(in crate::operation) fn wait_server(work: &mut Work, attempt: &Attempt) -> Result<Step, Failed> {
    let key = Key::new(work.plane(), kube_apiserver::NAME);
    let deployment = rollout::find(&work.env.seed, &DEPLOYMENT, &key)?;
    let step = rollout::wait_for(&work.env.seed, &key, &deployment, attempt)?;
    let is_up =
        rollout::is_first_start(&deployment) && work.env.connector.ask_from_outside(work.plane()).is_ok();
    Ok(if is_up { Step::Done } else { step })
}

pub(in crate::operation) fn controllers(work: &mut Work, _: &Attempt) -> Result<Step, Failed> {
    let (view, made) = (&work.view, work.secrets()?);
    let objects = kube_controller_manager::Input {
        namespace: work.plane(),
        kubernetes: &work.shoot["spec"]["kubernetes"],
        version: &view.kubernetes_version,
        image: &work.env.images.find("kube-controller-manager", &view.kubernetes_version)?,
        replicas: sleep::controller_replicas(work)?,
        services: &view.services,
        secrets: &made.of_kube_controller_manager(),
        generic_kubeconfig: made.generic_kubeconfig(),
    };
    let mut deployment = kube_controller_manager::fill(&objects)?;
    pods::set(pods::availability(work)?.as_ref(), Some(&mut deployment));
    kube_controller_manager::deploy(&work.env.seed, work.plane(), &deployment)?;
    access::ensure(&work.env.seed, work.plane(), "kube-controller-manager")?;
    deploy(work, &managed_resources::kube_controller_manager(&work.view.technical_id))
}

pub(in crate::operation) fn wait_controllers(work: &mut Work, attempt: &Attempt) -> Result<Step, Failed> {
    let key = Key::new(work.plane(), kube_controller_manager::NAME);
    rollout::wait(&work.env.seed, &DEPLOYMENT, &key, attempt)
}

pub(in crate::operation) fn system(work: &mut Work, _: &Attempt) -> Result<Step, Failed> {
    let client = work.env.connector.connect(work.plane())?;
    let managed = inside::system(&work.view, &extensions::names(work), &client)?;
    deploy(work, &managed)
}

pub(in crate::operation) fn identity_inside(work: &mut Work, _: &Attempt) -> Result<Step, Failed> {
    deploy(work, &managed_resources::cluster_identity(&work.view.technical_id, &work.view.cluster_identity))
}

/// Deletes the pods that must restart because others have changed their configuration.
pub(in crate::operation) fn restart_pods(work: &mut Work, _: &Attempt) -> Result<Step, Failed> {
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
    Ok(Step::Done)
}

/// The cron schedule of a druid's defragmentation: once a day, in the maintenance time window. The minute differs
/// between Shoots.
fn schedule(view: &View) -> String {
    let digits = |range| view.maintenance_begin.get(range).and_then(|text: &str| text.parse::<u32>().ok());
    let spread = view.uid.bytes().map(u32::from).sum::<u32>() % 60;
    format!("{spread} {} * * *", digits(0..2).unwrap_or(0) % 24)
}
