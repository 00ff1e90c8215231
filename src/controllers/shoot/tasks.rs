//! The tasks of a Shoot's flow. Each reads and writes, and returns at once.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use crate::api::core::{DEPLOYMENT, POD, STATEFUL_SET};
use crate::api::gardener::{ControllerInstallation, ControllerRegistration, SHOOT};
use crate::api::meta::{Key, Metadata, annotation, text};
use crate::base::error::chain;
use crate::base::sorted::SortedMap;
use crate::components::images::Images;
use crate::components::kube_apiserver::{Encryption, KeyOrder};
use crate::components::managed::{self, Managed};
use crate::components::shoot as managed_resources;
use crate::components::{etcd, exposure, kube_apiserver, kube_controller_manager, rollout};
use crate::config::control_plane::EtcdMode;
use crate::config::settings::Settings;
use crate::deployer::Parent;
use crate::extension::{Moment, required, together};
use crate::flow::{Attempt, Failed, Step};
use crate::kube::{Garden, ListParams, Patch, Seed};
use crate::resources::Watched;
use crate::runtime::store::Store;
use crate::runtime::write;
use crate::secrets::{KEY_AGAIN, Place, Secrets};
use crate::shoot::client::{self, Connector, check_version};
use crate::shoot::rewrite::Rewrite;
use crate::shoot::rewrite::accounts::Accounts;
use crate::shoot::rotation::{self, ENCRYPTION_KEY};
use crate::shoot::secrets::{self, Made};
use crate::shoot::served::{Served, Standing};
use crate::shoot::{
    Outside, Phase, View, access, addresses, garden, inside, issuer, namespace as plane, wildcard,
};

use super::surroundings::Surroundings;
use super::{encryption, extensions, frame, pods, records, sleep, snapshots};

/// The state of the tasks.
pub(super) struct Work {
    pub(super) garden: Garden,
    pub(super) seed: Seed,
    /// The Shoot at the start of the flow.
    pub(super) shoot: Value,
    pub(super) view: View,
    pub(super) around: Surroundings,
    pub(super) installations: Store<ControllerInstallation>,
    pub(super) registrations: Store<ControllerRegistration>,
    pub(super) managed: Store<Watched>,
    pub(super) settings: Arc<Settings>,
    pub(super) images: Images,
    pub(super) parent: Parent,
    pub(super) connector: Connector,
    pub(super) served: Served,
    pub(super) place: Place,
    pub(super) secrets: Option<Secrets>,
    pub(super) made: Option<Made>,
    /// The address of the API server outside the seed.
    pub(super) outside: Option<Outside>,
    /// The address that it advertises within the Shoot.
    pub(super) advertise_address: Option<String>,
    /// Whether it writes the endpoints of the Service `kubernetes` there.
    pub(super) writes_endpoints: bool,
    /// The garden objects that the settings of the API server refer to.
    pub(super) texts: kube_apiserver::Texts,
    /// Those objects are gone: the existing API server keeps its settings.
    pub(super) keeps_server: bool,
    /// The generations of ManagedResources that this operation has written or found correct, by name.
    pub(super) generations: SortedMap<String, i64>,
    /// Objects to rewrite because their encryption changes.
    pub(super) rewrite: Rewrite,
    /// ServiceAccounts whose tokens are renewed.
    pub(super) accounts: Accounts,
}

/// Reading a store is cheap.
pub(super) const STORE_PERIOD: Duration = Duration::from_secs(1);

impl Work {
    /// The namespace of the control plane.
    pub(super) fn plane(&self) -> &str {
        &self.view.technical_id
    }

    pub(super) fn registered(&self) -> Vec<Arc<ControllerRegistration>> {
        self.registrations.values()
    }

    pub(super) fn key(&self) -> Key {
        Key::new(self.view.namespace.as_str(), self.view.name.as_str())
    }

    pub(super) fn made(&self) -> Result<&Made, Failed> {
        self.made.as_ref().ok_or_else(|| Failed::new("the Secrets of the Shoot do not exist yet"))
    }

    /// Deletes Secrets that this operation did not request.
    pub(super) fn clean_up(&mut self) -> Result<(), crate::secrets::Error> {
        match &mut self.secrets {
            Some(found) => secrets::clean_up(found),
            None => Ok(()),
        }
    }
}

/// Reads the garden objects that the settings of the API server refer to before anything is created. Later tasks need
/// no garden for them.
pub(super) fn settings(work: &mut Work, _: &Attempt) -> Result<Step, Failed> {
    let kubernetes = &work.shoot["spec"]["kubernetes"];
    work.texts = kube_apiserver::read(&work.garden, &work.view.namespace, kubernetes)?;
    kube_apiserver::check(kubernetes, &work.texts)?;
    Ok(Step::Done)
}

pub(super) fn required_extensions(work: &mut Work, _: &Attempt) -> Result<Step, Failed> {
    let registrations = work.registered();
    let dns = work.view.dns_types();
    let backup = work.view.backup["provider"].as_str();
    let required = required::of_shoot(&work.shoot, &work.around.seed, (&dns, backup), &registrations);
    match required::missing(&required, &registrations, &work.installations.values()) {
        None => Ok(Step::Done),
        Some(why) => Err(Failed::new(why)),
    }
}

pub(super) fn namespace(work: &mut Work, _: &Attempt) -> Result<Step, Failed> {
    plane::ensure(&work.seed, &work.view, &work.registered())
}

/// The identity is written once and never changes.
pub(super) fn identity(work: &mut Work, _: &Attempt) -> Result<Step, Failed> {
    if let Some(patch) = frame::cluster_identity(&work.shoot, &work.view.cluster_identity) {
        let shoot = work.garden.patch_status::<Value>(&SHOOT, &work.key(), &Patch::Merge(patch))?;
        let mut known = work.shoot.clone();
        known["status"] = shoot["status"].clone();
        super::begin::sync_cluster((&work.seed, &work.served), &known, &work.around)?;
        // Not earlier: a retry sees by it that the `Cluster` does not contain the identity yet.
        work.shoot = known;
    }
    Ok(Step::Done)
}

pub(super) fn referenced(work: &mut Work, _: &Attempt) -> Result<Step, Failed> {
    inside::deploy_referenced(&work.garden, &work.seed, &work.view)?;
    Ok(Step::Done)
}

pub(super) fn service(work: &mut Work, _: &Attempt) -> Result<Step, Failed> {
    let service = kube_apiserver::deploy_service(&work.seed, work.plane())?;
    work.advertise_address = addresses::advertise(&work.view, text(&service["spec"]["clusterIP"]));
    let advertised = work.advertise_address.as_deref();
    work.writes_endpoints = addresses::writes_endpoints(&work.view.services, advertised, &service);
    Ok(Step::Done)
}

pub(super) fn wait_exposed(work: &mut Work, _: &Attempt) -> Result<Step, Failed> {
    match exposure::ensure(&work.seed, &work.view.technical_id, &work.settings.edge.exposure)? {
        exposure::Exposed::Waiting(step) => Ok(step),
        exposure::Exposed::At(outside) => {
            work.outside = Some(outside);
            Ok(Step::Done)
        }
    }
}

pub(super) fn secrets(work: &mut Work, _: &Attempt) -> Result<Step, Failed> {
    if work.secrets.is_none() {
        work.secrets = Some(Secrets::load(work.place.clone(), &rotation::rotation(&work.view))?);
    }
    let Some(found) = &mut work.secrets else { return Ok(Step::Done) };
    let made = match secrets::ensure(found, &work.view, work.outside.as_ref())? {
        secrets::Ensured::All(made) => made,
        secrets::Ensured::Making(why) => return Ok(Step::again(KEY_AGAIN, why)),
    };
    super::begin::name_kubeconfig(&work.seed, work.plane(), made.generic_kubeconfig())?;
    garden::ensure(&work.garden, &work.view, work.made.insert(made))
}

pub(super) fn advertise(work: &mut Work, _: &Attempt) -> Result<Step, Failed> {
    issuer::check(&work.view)?;
    let wanted = json!(addresses::advertised(&work.view, work.outside.as_ref()));
    if work.shoot["status"]["advertisedAddresses"] != wanted {
        let patch = Patch::Merge(json!({"status": {"advertisedAddresses": wanted}}));
        work.garden.patch_status::<Value>(&SHOOT, &work.key(), &patch)?;
        work.shoot["status"]["advertisedAddresses"] = wanted;
    }
    Ok(Step::Done)
}

/// A DNS record. Its task remembers whether this operation has deployed it.
pub(super) fn record(
    work: &Work,
    role: &'static str,
    (is_asked, is_deployed): (bool, &mut bool),
    attempt: &Attempt,
) -> Result<Step, Failed> {
    let view = &work.view;
    let dns = if role == "internal" { Some(&view.internal) } else { view.external.as_ref() };
    let (Some(dns), Some(outside)) = (dns.filter(|dns| dns.is_managed()), &work.outside) else {
        return Ok(Step::Done);
    };
    let record = records::Record {
        role,
        namespace: view.technical_id.clone(),
        shoot: view.name.clone(),
        provider: dns.provider.clone(),
        zone: Some(dns.zone.clone()).filter(|zone| !zone.is_empty()),
        domain: dns.server(),
        address: outside.host.clone(),
        ttl: work.settings.controllers.shoot.dns_entry_ttl_seconds,
        credentials: Key::new(text(&dns.credentials["namespace"]), text(&dns.credentials["name"])),
    };
    if !*is_deployed {
        let step = records::deploy((&work.garden, &work.seed), &record, is_asked, work.place.clock.now())?;
        if step != Step::Done {
            return Ok(step);
        }
        *is_deployed = true;
    }
    record.wait(&work.seed, attempt)
}

pub(super) fn etcds(work: &mut Work, _: &Attempt) -> Result<Step, Failed> {
    let (view, made, settings) = (&work.view, work.made()?, &work.settings.edge.etcd);
    let image = work.images.find("etcd", &view.kubernetes_version)?;
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
                let may_label = || etcd::druid::may_label(&work.seed);
                let snapshots = snapshots.as_ref().filter(|_| role == etcd::Role::Main);
                let snapshots = snapshots.map(|wanted| wanted.input(work));
                etcd::plain::deploy(&work.seed, &input, (&image, snapshots.as_ref()), &finish, &may_label)?;
            }
            EtcdMode::Druid => {
                etcd::druid::deploy(&work.seed, &input, &schedule(&work.view), work.place.clock.now())?;
            }
        }
    }
    Ok(Step::Done)
}

pub(super) fn wait_etcds(work: &mut Work, attempt: &Attempt) -> Result<Step, Failed> {
    let looks = etcd::Role::ALL.map(|role| match work.settings.edge.etcd.mode {
        EtcdMode::Plain => wait_plain(work, role, attempt),
        EtcdMode::Druid => etcd::druid::wait(&work.seed, work.plane(), role),
    });
    together(looks.into())
}

/// While it does not run, check whether its volume is the reason.
fn wait_plain(work: &Work, role: etcd::Role, attempt: &Attempt) -> Result<Step, Failed> {
    let key = Key::new(work.plane(), role.name());
    let set = rollout::find(&work.seed, &STATEFUL_SET, &key)?;
    let step = rollout::wait_for(&work.seed, &key, &set, attempt)?;
    let Step::Again { after, .. } = step else { return Ok(step) };
    Ok(etcd::claims::look(&work.seed, &set)?.map_or(step, |why| Step::Again { after, why }))
}

pub(super) fn extensions_before(work: &mut Work, _: &Attempt) -> Result<Step, Failed> {
    extensions::deploy(work, Moment::Before)
}

pub(super) fn wait_extensions_before(work: &mut Work, attempt: &Attempt) -> Result<Step, Failed> {
    extensions::wait(work, Moment::Before, attempt)
}

pub(super) fn extensions_after(work: &mut Work, _: &Attempt) -> Result<Step, Failed> {
    extensions::deploy(work, Moment::After)
}

pub(super) fn wait_extensions_after(work: &mut Work, attempt: &Attempt) -> Result<Step, Failed> {
    extensions::wait(work, Moment::After, attempt)
}

pub(super) fn delete_stale_extensions(work: &mut Work, _: &Attempt) -> Result<Step, Failed> {
    extensions::delete_stale(work)
}

pub(super) fn wait_stale_extensions(work: &mut Work, attempt: &Attempt) -> Result<Step, Failed> {
    extensions::wait_gone(work, attempt)
}

/// The applier serves each namespace whose API server answers. This wakes it for the Shoot.
pub(super) fn applier(work: &mut Work, _: &Attempt) -> Result<Step, Failed> {
    deploy(work, &managed_resources::resource_manager(&work.view.technical_id))?;
    work.served.take_up(work.plane());
    Ok(Step::Done)
}

pub(super) fn wait_applier(work: &mut Work, _: &Attempt) -> Result<Step, Failed> {
    let state = work.served.state(work.plane());
    match state.map(|state| state.standing) {
        Some(Standing::Served | Standing::LeftToOther) => Ok(Step::Done),
        Some(standing) => {
            Ok(Step::again(STORE_PERIOD, format!("the applier does not serve the Shoot yet: {standing}")))
        }
        None => Ok(Step::again(STORE_PERIOD, "the applier has not checked the Shoot yet")),
    }
}

pub(super) fn renew_tokens(work: &mut Work, _: &Attempt) -> Result<Step, Failed> {
    access::renew_tokens(&work.seed, work.plane())?;
    Ok(Step::Done)
}

pub(super) fn namespaces(work: &mut Work, _: &Attempt) -> Result<Step, Failed> {
    deploy(work, &managed_resources::namespaces(&work.view.technical_id))
}

pub(super) fn wait_namespaces(work: &mut Work, _: &Attempt) -> Result<Step, Failed> {
    wait_healthy(work, managed_resources::NAMESPACES)
}

pub(super) fn access(work: &mut Work, _: &Attempt) -> Result<Step, Failed> {
    access::ensure_kubeconfigs(&work.seed, &work.view, work.outside.as_ref(), work.made()?.ca_bundle())?;
    deploy(work, &managed_resources::gardener_access(&work.view.technical_id))
}

/// Waits until the client works and the server has the Shoot's version.
pub(super) fn connect(work: &mut Work, _: &Attempt) -> Result<Step, Failed> {
    if sleep::is_off(work)? {
        return Ok(Step::Done);
    }
    let client = match work.connector.connect(work.plane()) {
        Ok(client) => client,
        // Its token is created shortly after its ServiceAccount.
        Err(error @ client::Error::Missing { .. }) => return Ok(Step::again(STORE_PERIOD, chain(&error))),
        Err(error) => return Err(chain(&error).into()),
    };
    check_version(&client, work.plane(), &work.view.kubernetes_version).map_err(|error| chain(&error))?;
    Ok(Step::Done)
}

pub(super) fn publish_keys(work: &mut Work, _: &Attempt) -> Result<Step, Failed> {
    let client = work.connector.connect(work.plane()).map_err(|error| chain(&error))?;
    issuer::publish(&work.garden, &client, &work.view)?;
    Ok(Step::Done)
}

/// Writes a ManagedResource of the Shoot.
fn deploy(work: &mut Work, managed: &Managed) -> Result<Step, Failed> {
    let generation = managed::deploy(&work.seed, managed)?;
    work.generations.insert(managed.name.clone(), generation);
    Ok(Step::Done)
}

/// Whether its objects are applied and healthy.
fn wait_healthy(work: &Work, name: &str) -> Result<Step, Failed> {
    let key = Key::new(work.plane(), name);
    let generation = work.generations.get(name).copied().unwrap_or_default();
    let Some(found) = work.managed.get(&key) else {
        return Ok(Step::again(STORE_PERIOD, format!("ManagedResource {key} does not exist yet")));
    };
    Ok(match found.unhealthy(generation) {
        None => Step::Done,
        Some(why) => Step::again(STORE_PERIOD, format!("ManagedResource {key} {why}")),
    })
}

/// The API server. Its first encryption key is one that all running servers know.
pub(super) fn server(work: &mut Work, attempt: &Attempt) -> Result<Step, Failed> {
    let (view, made, namespace) = (&work.view, work.made()?, work.plane());
    let key = Key::new(namespace, kube_apiserver::NAME);
    let live = work.seed.find::<Value>(&DEPLOYMENT, &key)?;
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
    let kubernetes = &work.shoot["spec"]["kubernetes"];
    let replicas = live.as_ref().and_then(|live| live["spec"]["replicas"].as_i64());
    let wanted = match kube_apiserver::replicas(replicas, view.wants_hibernation) {
        0 => 0,
        some => some.max(pods::replicas(work)),
    };
    let mut objects = kube_apiserver::fill(&kube_apiserver::Input {
        namespace,
        kubernetes,
        image: &work.images.find("kube-apiserver", &view.kubernetes_version)?,
        replicas: wanted,
        services: &view.services,
        external_hostname: &view.internal.server(),
        managed_issuer: view.managed_issuer().as_deref(),
        wildcard: wildcard::ensure(&work.seed, view)?.as_ref(),
        advertise_address: work.advertise_address.as_deref(),
        writes_endpoints: work.writes_endpoints,
        health_check_token: made.health_check_token(),
        secrets: &made.of_kube_apiserver(),
        encryption: &configuration,
        texts: &work.texts,
    })?;
    let workload = objects.0.last_mut().map(|(_, deployment)| deployment);
    pods::set(pods::availability(work)?.as_ref(), workload);
    kube_apiserver::deploy(&work.seed, &objects)?;
    encryption::forget_populated(work, live.as_ref())?;
    let stays_off = replicas == Some(0) && work.view.wants_hibernation;
    if !is_preparing || is_populated || stays_off {
        return Ok(Step::Done);
    }
    // All servers must know the new key before one of them uses it.
    match rollout::wait(&work.seed, &DEPLOYMENT, &key, attempt)? {
        Step::Done => {
            let patch = json!({"metadata": {"annotations": {KeyOrder::POPULATED: "true"}}});
            let patch = Patch::Merge(patch);
            work.seed.patch::<Value>(&DEPLOYMENT, &key, &patch)?;
            Ok(Step::again(Duration::ZERO, "the new encryption key is used first from now on"))
        }
        again => Ok(again),
    }
}

pub(super) fn wait_server(work: &mut Work, attempt: &Attempt) -> Result<Step, Failed> {
    let key = Key::new(work.plane(), kube_apiserver::NAME);
    let deployment = rollout::find(&work.seed, &DEPLOYMENT, &key)?;
    let step = rollout::wait_for(&work.seed, &key, &deployment, attempt)?;
    let is_up = rollout::is_first_start(&deployment) && work.connector.ask_from_outside(work.plane()).is_ok();
    Ok(if is_up { Step::Done } else { step })
}

pub(super) fn controllers(work: &mut Work, _: &Attempt) -> Result<Step, Failed> {
    let (view, made) = (&work.view, work.made()?);
    let objects = kube_controller_manager::Input {
        namespace: work.plane(),
        kubernetes: &work.shoot["spec"]["kubernetes"],
        version: &view.kubernetes_version,
        image: &work.images.find("kube-controller-manager", &view.kubernetes_version)?,
        replicas: sleep::controller_replicas(work)?,
        services: &view.services,
        secrets: &made.of_kube_controller_manager(),
        generic_kubeconfig: made.generic_kubeconfig(),
    };
    let mut deployment = kube_controller_manager::fill(&objects)?;
    pods::set(pods::availability(work)?.as_ref(), Some(&mut deployment));
    kube_controller_manager::deploy(&work.seed, work.plane(), &deployment)?;
    access::ensure(&work.seed, work.plane(), "kube-controller-manager")?;
    deploy(work, &managed_resources::kube_controller_manager(&work.view.technical_id))
}

pub(super) fn wait_controllers(work: &mut Work, attempt: &Attempt) -> Result<Step, Failed> {
    let key = Key::new(work.plane(), kube_controller_manager::NAME);
    rollout::wait(&work.seed, &DEPLOYMENT, &key, attempt)
}

pub(super) fn system(work: &mut Work, _: &Attempt) -> Result<Step, Failed> {
    let client = work.connector.connect(work.plane()).map_err(|error| chain(&error))?;
    let managed = inside::system(&work.view, &extensions::names(work), &client)?;
    deploy(work, &managed)
}

pub(super) fn identity_inside(work: &mut Work, _: &Attempt) -> Result<Step, Failed> {
    deploy(work, &managed_resources::cluster_identity(&work.view.technical_id, &work.view.cluster_identity))
}

/// Deletes the pods that must restart because others have changed their configuration.
pub(super) fn restart_pods(work: &mut Work, _: &Attempt) -> Result<Step, Failed> {
    let selector = "maintenance.gardener.cloud/restart=true".to_owned();
    let params = ListParams { label_selector: selector, ..ListParams::default() };
    let mut names = Vec::new();
    work.seed.list_all::<Metadata>(&POD, work.plane(), &params, &mut |pod| names.push(pod.metadata.name))?;
    for name in names {
        // One by one: the agent's role does not allow deleting a collection.
        write::delete(&work.seed, &POD, &Key::new(work.plane(), name))?;
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
