//! The embedded applier. It runs while it holds an identity and the lease that gardener-resource-manager uses. This
//! module decides who may apply ManagedResources in this seed, and what happens to an existing
//! gardener-resource-manager.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use serde_json::Value;

use crate::api::core::{DEPLOYMENT, SERVICE_ACCOUNT, token_request};
use crate::api::meta::{Key, Metadata, text};
use crate::base::backoff::Backoff;
use crate::base::clock::Mono;
use crate::base::lock::IgnorePoison;
use crate::base::stop::Stop;
use crate::base::thread;
use crate::components::webhooks::{self, Blocking};
use crate::config::settings::ResourceManager;
use crate::controllers::csr_approver::{self, CsrApprover};
use crate::controllers::is_garden;
use crate::controllers::network_policy::ServicePolicyWriter;
use crate::controllers::shoot_serving::{self as serving, ShootServing};
use crate::controllers::token_requestor::shoot as shoot_tokens;
use crate::kube::{self, Applier, Patch};
use crate::limits;
use crate::resources::{self, ManagedResourceApplier, ManagedResourceHead};
use crate::runtime::fence::Fence;
use crate::runtime::group::ControllerGroup;
use crate::runtime::leader::{self, ElectionListener, Elector};
use crate::runtime::marks::Marks;

use super::controllers::group;
use super::status::complain;
use super::{AgentContext, join, seed, started};

/// Name of this part on the status page.
pub(super) const PART: &str = "managedresource-applier";
/// Name of gardener-resource-manager's webhooks on the status page.
const WEBHOOKS: &str = "gardener-resource-manager-webhooks";
const RETRY: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));

/// Namespace, name and account of gardener-resource-manager.
const GRM_NAMESPACE: &str = webhooks::NAMESPACE;
const GRM_NAME: &str = webhooks::NAME;
/// Lifetime of the applier's token, and when the applier renews it.
const TOKEN_SECONDS: u64 = 3_600;
const TOKEN_RENEW: Duration = Duration::from_secs(2_400);
/// If the server refuses a token that worked for at least this long, the applier asks for the next one without delay.
const TOKEN_GOOD: Duration = Duration::from_secs(60);
/// How often to check whether gardener-resource-manager still holds the lease after it was scaled down.
const RETIRE_AGAIN: Duration = Duration::from_secs(60);

/// How often to check for webhooks that refuse writes, and whether earlier ones are gone.
const WEBHOOKS_AGAIN: Duration = Duration::from_secs(60);

/// Why the applier cannot continue.
#[derive(Debug)]
enum Error {
    Token(kube::Error),
    Client(kube::Error),
    Retire(kube::Error),
    Operators,
    RemoveWebhooks(kube::Error),
    Webhooks(Blocking),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Token(_) => write!(
                f,
                "get a token of service account {GRM_NAMESPACE}/{GRM_NAME} in the seed (create it and bind it to \
                 cluster-admin, or set edge.resourceManager: External)"
            ),
            Self::Client(_) => f.write_str("make the applier's client"),
            Self::Retire(_) => write!(f, "scale deployment {GRM_NAMESPACE}/{GRM_NAME} in the seed to 0"),
            Self::Operators => write!(
                f,
                "the garden runs in the seed's cluster, so {GRM_NAMESPACE}/{GRM_NAME} belongs to gardener-operator: set \
                 edge.resourceManager: External"
            ),
            Self::RemoveWebhooks(_) => write!(f, "remove the webhook configurations {GRM_NAME} in the seed"),
            Self::Webhooks(blocking) => f.write_str(&blocking.remark()),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Token(source) | Self::Client(source) => Some(source),
            Self::Retire(source) | Self::RemoveWebhooks(source) => Some(source),
            Self::Operators | Self::Webhooks(_) => None,
        }
    }
}

/// Keeps the applier's identity and its lease until `stop`. The elector starts and ends the reconcilers.
pub(super) fn run(shared: &Arc<AgentContext>, stop: &Stop) {
    shared.status.stage(PART, "getting an identity");
    let clock = &shared.env.clock;
    let mut backoff = Backoff::new(RETRY.0, RETRY.1);
    let fence = Fence::new(clock.clone(), &format!("{GRM_NAMESPACE}/{GRM_NAME}"));
    shared.status.lease(format!("{GRM_NAMESPACE}/{GRM_NAME}"), &fence);
    let refused = stop.child();
    let mut identity: Option<Identity> = None;
    let mut elector: Option<JoinHandle<()>> = None;
    while !stop.is_stopped() {
        shared.status.progress.beat(seed::PART, TOKEN_RENEW * 2);
        let begun = clock.mono();
        let retired = retire(shared);
        let renewed = renew(shared, &mut identity, &fence, &refused);
        let seen = refused.wakes();
        let mut is_blocked = look_at_webhooks(shared);
        match &renewed {
            Ok(identity) => {
                shared.status.recovered(PART);
                if elector.is_none() {
                    elector = start_elector(shared, stop, identity, &fence);
                }
            }
            Err(error) => complain(&shared.status, PART, error),
        }
        // Wait in any case: a server that refuses each new token must not be asked without a pause.
        stop.wait(clock, backoff.next_delay());
        if retired && renewed.is_ok() {
            let until = clock.mono().saturating_add(TOKEN_RENEW);
            while refused.wakes() == seen && clock.mono() < until {
                // Report progress again: the machine may have slept since, and the next steps take long.
                shared.status.progress.beat(seed::PART, TOKEN_RENEW * 2);
                let left = until.saturating_sub(clock.mono());
                if refused.wait_since(clock, seen, left.min(WEBHOOKS_AGAIN)) {
                    break;
                }
                if is_blocked || is_refused(shared) {
                    is_blocked = look_at_webhooks(shared);
                }
            }
            if clock.mono().saturating_sub(begun) >= TOKEN_GOOD {
                backoff.reset();
            }
        }
    }
    if let Some(elector) = elector {
        join("applier election", elector);
    }
}

/// Scales gardener-resource-manager to 0 and removes its webhooks if the configuration asks for it explicitly. The
/// default must not end a program that an operator deployed. Returns false if this is not done yet.
fn retire(shared: &AgentContext) -> bool {
    if shared.settings.edge.resource_manager != ResourceManager::Embedded {
        return true;
    }
    match replace(&shared.clients.seed) {
        Ok(Replaced { scaled, removed }) => {
            shared.status.recovered(GRM_NAME);
            if scaled {
                shared.status.stage(GRM_NAME, "scaled to 0");
                log::info!(
                    deployment = GRM_NAME;
                    "Scaled to 0: edge.resourceManager is Embedded, the agent took over its work"
                );
            }
            for kind in removed {
                log::info!(kind = kind, name = GRM_NAME; "Removed webhook configurations whose server is gone");
            }
            true
        }
        Err(error) => {
            complain(&shared.status, GRM_NAME, &error);
            false
        }
    }
}

/// What was removed to make room for the applier.
struct Replaced {
    scaled: bool,
    removed: Vec<&'static str>,
}

fn replace(seed: &kube::Client) -> Result<Replaced, Error> {
    if is_garden(seed).map_err(Error::Retire)? {
        return Err(Error::Operators);
    }
    let scaled = scale_down(seed).map_err(Error::Retire)?;
    let removed = webhooks::remove(seed).map_err(Error::RemoveWebhooks)?;
    Ok(Replaced { scaled, removed })
}

/// Reports webhooks that refuse writes on the status page, in the log and in the Seed's conditions. Returns
/// true if there are any.
fn look_at_webhooks(shared: &AgentContext) -> bool {
    let status = &shared.status;
    match webhooks::blocking(&shared.clients.seed) {
        Ok(None) => {
            status.webhook_remark(None);
            status.forget(WEBHOOKS);
            false
        }
        Ok(Some(blocking)) => {
            status.webhook_remark(Some(format!("{}.", blocking.remark())));
            status.doing(WEBHOOKS, "refusing writes");
            complain(status, WEBHOOKS, &Error::Webhooks(blocking));
            true
        }
        // Other parts report errors of the seed. Check again later.
        Err(_) => true,
    }
}

/// Whether the status of a ManagedResource reports a webhook that did not answer.
fn is_refused(shared: &AgentContext) -> bool {
    let conditions = |watched: &ManagedResourceHead| {
        watched.status.conditions.iter().any(|condition| webhooks::is_unanswered(&condition.message))
    };
    shared.managed.store().all().iter().any(|(_, watched)| conditions(watched))
}

/// Returns true if there was something to scale.
fn scale_down(seed: &kube::Client) -> Result<bool, kube::Error> {
    let key = Key::new(GRM_NAMESPACE, GRM_NAME);
    let live = seed.find::<Value>(&DEPLOYMENT, &key)?;
    // An absent field means 1 replica.
    if live.is_none_or(|deployment| deployment["spec"]["replicas"] == 0) {
        return Ok(false);
    }
    let patch = Patch::replicas(0);
    seed.patch::<Metadata>(&DEPLOYMENT, &key, &patch)?;
    Ok(true)
}

/// The clients of the applier: one for its work, and one with its own connections for its Lease.
#[derive(Clone)]
struct Identity {
    applier: Applier,
    election: kube::Client,
}

/// Gets a fresh token for the applier's clients; the first token creates the clients. They wake `refused` when the
/// server refuses the token, for example because the account was recreated.
fn renew(
    shared: &AgentContext,
    identity: &mut Option<Identity>,
    fence: &Fence,
    refused: &Stop,
) -> Result<Identity, Error> {
    let request = token_request(TOKEN_SECONDS);
    let made = shared
        .clients
        .seed
        .create_sub::<Value>(&SERVICE_ACCOUNT, &Key::new(GRM_NAMESPACE, GRM_NAME), "token", &request)
        .map_err(Error::Token)?;
    let connection =
        shared.clients.seed_connection.clone().with_token(text(&made["status"]["token"]).to_owned());
    if let Some(present) = identity {
        present.applier.replace(connection.clone()).map_err(Error::Client)?;
        present.election.replace(connection).map_err(Error::Client)?;
        return Ok(present.clone());
    }
    let made = Identity {
        applier: Applier(shared.clients.seed_as(connection.clone(), fence, refused).map_err(Error::Client)?),
        election: shared.clients.election_as(connection, refused).map_err(Error::Client)?,
    };
    *identity = Some(made.clone());
    Ok(made)
}

fn start_elector(
    shared: &Arc<AgentContext>,
    stop: &Stop,
    identity: &Identity,
    fence: &Fence,
) -> Option<JoinHandle<()>> {
    let election = &shared.settings.leader_election;
    let options = leader::Options {
        namespace: GRM_NAMESPACE.to_owned(),
        name: GRM_NAME.to_owned(),
        holder: format!("{}_{}", shared.env.hostname, shared.instance_id),
        lease_duration: election.lease_duration,
        renew_deadline: election.renew_deadline,
        retry_period: election.retry_period,
        renew_period: election.renew_period,
        keep: shared.keep_leases.clone(),
    };
    let part = Arc::new(ApplierPart {
        shared: Arc::clone(shared),
        stop: stop.clone(),
        resources: ManagedResourceApplier::new(
            identity.applier.clone(),
            resources::ApplierSettings::default(),
        ),
        lease: fence.clone(),
        other: Mutex::default(),
        secrets: Marks::default(),
        shoots: Mutex::default(),
        watching: Mutex::default(),
        working: Mutex::default(),
    });
    let mut elector = Elector::new(
        identity.election.clone(),
        shared.env.clock.clone(),
        options,
        fence.clone(),
        shared.env.metrics.clone(),
        Arc::<ApplierPart>::clone(&part),
    );
    let running = stop.clone();
    let run = move || {
        elector.run(&running);
        part.end();
        part.join();
    };
    started("applier-election", stop, thread::spawn("applier-election", limits::SMALL_STACK_BYTES, run))
}

/// Since when another program holds the lease, and when to check on that program next.
#[derive(Clone, Copy)]
struct OtherHolder {
    since: Mono,
    retire_at: Mono,
}

/// The part that serves the clusters of Shoots, including watches, while this agent holds the lease.
struct Shoots {
    group: ControllerGroup,
    stop: Stop,
    /// Set when the lease is lost.
    is_over: Arc<AtomicBool>,
}

impl Shoots {
    fn end(&mut self, shared: &AgentContext) {
        shared.served.end();
        self.is_over.store(true, Ordering::SeqCst);
        self.stop.stop();
        self.group.end();
    }
}

/// The reconcilers of the applier. They start and end with its lease.
struct ApplierPart {
    shared: Arc<AgentContext>,
    stop: Stop,
    resources: ManagedResourceApplier,
    lease: Fence,
    other: Mutex<Option<OtherHolder>>,
    secrets: Marks,
    /// The last entry serves now, or served last.
    shoots: Mutex<Vec<Shoots>>,
    /// Created once and kept: its watches stay correct without the lease.
    watching: Mutex<Option<ControllerGroup>>,
    /// The reconcilers while the lease is held.
    working: Mutex<Option<ControllerGroup>>,
}

impl ElectionListener for ApplierPart {
    fn elected(&self) {
        self.shared.status.stage(PART, "running");
        self.shared.status.remark(None);
        *self.other.lock().ignore_poison() = None;
        let shared = &self.shared;
        let mut watching = self.watching.lock().ignore_poison();
        watching.get_or_insert_with(|| {
            let mut group = group(shared, &self.stop);
            resources::watch_secrets(&shared.clients.seed, &self.secrets, &mut group);
            resources::watch_workloads(&self.resources, &mut group);
            shared.policy_watches.watch_services(&shared.clients.seed, &mut group);
            group
        });
        let mut working = group(shared, &self.stop);
        resources::add(&self.resources, &shared.managed, &self.secrets, &mut working);
        *self.working.lock().ignore_poison() = Some(working);
        self.shoots.lock().ignore_poison().push(self.serve_shoots());
        shared.policy_watches.set_service_policy_writer(ServicePolicyWriter::Ours);
    }

    fn lost(&self) {
        self.end();
        self.shared.status.stage(PART, "waiting for the lease");
    }

    fn standing_by(&self, holder: &str) {
        let status = &self.shared.status;
        let now = self.shared.env.clock.mono();
        let explicit = self.shared.settings.edge.resource_manager == ResourceManager::Embedded;
        let mut other = {
            let known = *self.other.lock().ignore_poison();
            known.unwrap_or(OtherHolder { since: now, retire_at: now + RETIRE_AGAIN })
        };
        if now >= other.retire_at {
            other.retire_at = now + RETIRE_AGAIN;
            retire(&self.shared);
        }
        *self.other.lock().ignore_poison() = Some(other);
        let held = format!("lease {GRM_NAMESPACE}/{GRM_NAME} is held by {holder}");
        // A shorter time does not prove that the holder is alive.
        let lives = now.saturating_sub(other.since) > self.shared.settings.leader_election.lease_duration;
        if lives {
            self.shared.policy_watches.set_service_policy_writer(ServicePolicyWriter::Others);
        }
        status.remark(lives.then(|| format!("The embedded applier of ManagedResources is passive: {held}.")));
        let is_news = if explicit {
            status.doing(PART, "passive");
            status.problem(PART, &format!("{held}: a gardener-resource-manager runs in this seed"))
        } else {
            // As configured, so it is no problem.
            status.doing(PART, &format!("passive: {holder} applies ManagedResources"))
        };
        if is_news {
            log::info!(holder = holder; "Another resource manager runs in this seed; the embedded one stays passive");
        }
    }

    fn drain(&self) {
        let stops = self.shared.env.stop.is_stopped();
        // After a stop, running requests are already cut off.
        let patience =
            if stops { limits::PARTS_END_TIME_MAX / 2 } else { self.shared.clients.applier_write_timeout };
        let working = self.working.lock().ignore_poison();
        let shoots = self.shoots.lock().ignore_poison();
        let mut groups = working.iter().chain(shoots.last().map(|shoots| &shoots.group));
        if !groups.all(|group| group.wait_until_idle(patience)) {
            // No write outlives this time, and none starts without the lease.
            log::warn!("The applier has not finished; it releases its lease anyway");
        }
    }
}

impl ApplierPart {
    /// Starts to serve the clusters of Shoots. The watches start with the lease, because each one begins
    /// with a full list.
    fn serve_shoots(&self) -> Shoots {
        let (shared, stop, is_over) = (&self.shared, self.stop.child(), Arc::<AtomicBool>::default());
        let (term, over) = (self.stop.clone(), Arc::clone(&is_over));
        // If a watch cannot be started, the term ends.
        stop.on_stop(move || {
            if !over.load(Ordering::SeqCst) {
                term.stop();
            }
        });
        let (seed, served) = (&shared.clients.seed_of_workers, &shared.served);
        let mut group = group(shared, &stop);
        let spaces = shared.policy_watches.namespaces().clone();
        let hosts_of = spaces.clone();
        let connector = shared.clients.served_shoots(&self.lease);
        let (resources, managed) = (self.resources.clone(), shared.managed.clone());
        let serving = ShootServing::new(seed.clone(), connector, served.clone(), resources, managed, spaces);
        serving::add(serving, &mut group);
        let host_types = shared.settings.edge.host_types.clone();
        let approver = CsrApprover::new(
            seed.clone(),
            served.clone(),
            hosts_of,
            shared.managed.store().clone(),
            host_types,
        );
        csr_approver::add(approver, &mut group);
        shoot_tokens::add(seed, served, &shared.tokens.secrets, &shared.tokens.pace, &mut group);
        Shoots { group, stop, is_over }
    }

    fn end(&self) {
        self.shared.policy_watches.set_service_policy_writer(ServicePolicyWriter::Unknown);
        if let Some(shoots) = self.shoots.lock().ignore_poison().last_mut() {
            shoots.end(&self.shared);
        }
        if let Some(working) = self.working.lock().ignore_poison().as_mut() {
            working.end();
        }
        self.shared.status.remark(None);
    }

    /// Waits for the informer, which ends with the term.
    fn join(&self) {
        let watching = self.watching.lock().ignore_poison().take();
        let shoots = std::mem::take(&mut *self.shoots.lock().ignore_poison());
        watching
            .into_iter()
            .chain(shoots.into_iter().map(|shoots| shoots.group))
            .for_each(ControllerGroup::join);
    }
}
