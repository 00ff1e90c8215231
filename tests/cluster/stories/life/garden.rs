//! The garden of a scene: a stand-in, or that of the real Gardener, which an agent joins as README.md says.

use std::fs;
use std::path::PathBuf;

use gardenlet::api::certificates::CERTIFICATE_SIGNING_REQUEST;
use gardenlet::api::coordination::LEASE;
use gardenlet::api::core::{CONFIG_MAP, NAMESPACE, SECRET, SERVICE_ACCOUNT};
use gardenlet::api::gardener::{PROJECT as PROJECTS, SEED as SEEDS, SHOOT};
use gardenlet::api::meta::{ALL_NAMESPACES, Key, Metadata};
use gardenlet::base::clock::{Clock, Mono};
use gardenlet::format::yaml;
use gardenlet::kube::{Client, DeleteParams, ListParams};
use serde_json::{Value, json};

use super::end::{self, Before};
use super::scene::Scene;
use super::{EXTENDED, PROJECT, ask_for_another, succeeded};
use crate::agent::Agent;
use crate::audit::Audit;
use crate::cluster::{self, Cluster, Server};
use crate::failure::{Doing, Failure, Result, ensure, equal};
use crate::gardener::{Gardener, Program};
use crate::lab::Lab;
use crate::outside;
use crate::stories::steps::{self, condition, while_running};
use crate::wait;
use crate::world::{self, SEED, World};
use support::garden::prepare::Preparation;

/// The folder of the files that a release contains.
const PACKAGING: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/packaging");
/// The configuration of the packages.
const CONFIGURATION: &str = include_str!("../../../../packaging/systemd/config.yaml");
/// What an operator changes in it: the networks of the seed. Beside that, the address of the node.
const EDITS: &[(&str, &str)] =
    &[("10.50.0.0/16", "10.77.0.0/16"), ("10.42.0.0/16", "10.99.0.0/16"), ("10.43.0.0/16", "10.1.0.0/16")];
/// An agent renews its Lease every two seconds, and gardener-controller-manager looks at extensions every 30.
const JOINED_WITHIN_S: u64 = 120;
const SETTLED_WITHIN_S: u64 = 60;
const LEFT_WITHIN_S: u64 = 240;
const HEALTHY_WITHIN_S: u64 = 120;

/// Who serves the gardener.cloud groups of a garden.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Peer {
    /// This process.
    StandIn,
    /// The real Gardener.
    Gardener,
}

/// The garden of a scene. It ends when dropped.
pub(super) enum Garden {
    StandIn { _world: Box<World> },
    Gardener(Joined),
}

/// The real Gardener, and both clusters before an agent was installed.
pub(super) struct Joined {
    gardener: Gardener,
    before: Before,
    token: String,
    /// What the agent asks the garden for.
    asked: Audit,
    began: Mono,
    is_uninstalled: bool,
}

impl Garden {
    /// Prepares both clusters.
    pub(super) fn prepare(lab: &mut Lab, peer: Peer) -> Result<Self> {
        Ok(match peer {
            Peer::StandIn => Self::StandIn { _world: Box::new(World::build(lab)?) },
            Peer::Gardener => Self::Gardener(Joined::prepare(lab)?),
        })
    }

    /// Starts an agent, and waits until its Seed is ready for Shoots. `change` changes the Seed's spec.
    pub(super) fn begin(
        &self,
        lab: &Lab,
        garden: &Client,
        change: impl FnOnce(&mut Value) -> Result<()>,
    ) -> Result<Agent> {
        match self {
            Self::StandIn { .. } => super::begin(lab, garden, change),
            Self::Gardener(_) => {
                let mut agent =
                    Joining::first(lab).join(lab, |config| change(&mut config["seedConfig"]["spec"]))?;
                steps::ready(lab, &mut agent)?;
                Ok(agent)
            }
        }
    }

    pub(super) const fn is(&self, peer: Peer) -> bool {
        matches!((self, peer), (Self::StandIn { .. }, Peer::StandIn) | (Self::Gardener(_), Peer::Gardener))
    }

    pub(super) fn ensure_running(&mut self) -> Result<()> {
        match self {
            Self::StandIn { .. } => Ok(()),
            Self::Gardener(joined) => joined.gardener.ensure_running(),
        }
    }

    /// Whether the agent was uninstalled, so that it no longer runs.
    pub(super) const fn is_uninstalled(&self) -> bool {
        matches!(self, Self::Gardener(Joined { is_uninstalled: true, .. }))
    }

    fn joined(&mut self) -> Result<&mut Joined> {
        match self {
            Self::StandIn { .. } => Err(Failure::new("a garden without Gardener")),
            Self::Gardener(joined) => Ok(joined),
        }
    }
}

impl Joined {
    /// The steps of README.md before the agent starts, and the example of a project. The identifier of the token is
    /// the one that Gardener derives from the name of the seed: only that one may the agent delete.
    fn prepare(lab: &mut Lab) -> Result<Self> {
        let preparation = Preparation::new(SEED, Clock::system().now());
        let gardener = Gardener::start(lab, &preparation)?;
        let garden = &lab.garden;
        apply(garden, "no-provider/local.yaml")?;
        garden.kubectl(&["--namespace", "garden", "create", "secret", "generic", "dns-int"])?;
        apply(garden, "no-provider/project.yaml")?;
        Joining::first(lab).write_credentials(lab, &preparation)?;
        is_settled(&garden.client()?)?;
        let token = format!("bootstrap-token-{}", preparation.token_id());
        let (before, asked, began) = (end::look(lab)?, lab.garden.audit(), wait::now());
        apply(&lab.seed, "rbac.yaml")?;
        Ok(Self { gardener, before, token, asked, began, is_uninstalled: false })
    }
}

/// The project is ready, and every namespace has what Kubernetes puts into it. Its controllers notice late that the API
/// server has started again.
fn is_settled(garden: &Client) -> Result<()> {
    wait::until("the garden to settle", SETTLED_WITHIN_S, || {
        let project = garden.get::<Value>(&PROJECTS, &Key::cluster("p"))?;
        let mut is_settled = project["status"]["phase"] == "Ready";
        for namespace in garden.list::<Metadata>(&NAMESPACE, ALL_NAMESPACES, &ListParams::default())?.items {
            for (kind, name) in [(&CONFIG_MAP, "kube-root-ca.crt"), (&SERVICE_ACCOUNT, "default")] {
                is_settled &=
                    garden.find::<Metadata>(kind, &Key::new(&namespace.metadata.name, name))?.is_some();
            }
        }
        Ok::<_, Failure>(is_settled.then_some(()))
    })
}

/// Applies a file of a release, as README.md says.
pub(super) fn apply(cluster: &Cluster, file: &str) -> Result<()> {
    cluster.kubectl(&["apply", "--filename", &format!("{PACKAGING}/{file}")]).map(drop)
}

/// An agent that joins the garden, and its seed.
pub(super) struct Joining<'a> {
    /// The name of its files, and of the Seed in the configuration of the packages.
    pub(super) name: &'static str,
    pub(super) seed: &'a Cluster,
    /// What the operator changes in that configuration.
    pub(super) edits: &'static [(&'static str, &'static str)],
    /// The address of the node for clients.
    pub(super) address: &'static str,
    pub(super) network: Option<String>,
}

impl<'a> Joining<'a> {
    pub(super) fn first(lab: &'a Lab) -> Self {
        Self { name: "agent", seed: &lab.seed, edits: EDITS, address: outside::INSIDE_ADDRESS, network: None }
    }

    fn credentials(&self, lab: &Lab) -> PathBuf {
        lab.place.join(format!("{}-credentials", self.name))
    }

    /// The kubeconfig with the token that the garden knows.
    pub(super) fn write_credentials(&self, lab: &Lab, preparation: &Preparation) -> Result<()> {
        let folder = self.credentials(lab);
        fs::create_dir_all(&folder).doing(|| format!("create {}", folder.display()))?;
        let bootstrap = lab.garden.kubeconfig_text(&json!({"token": preparation.token()}));
        cluster::write(&folder.join("bootstrap-kubeconfig"), &bootstrap)
    }

    /// The agent starts as the unit of the packages starts it, with the same credentials. `change` changes its configuration.
    pub(super) fn join(&self, lab: &Lab, change: impl FnOnce(&mut Value) -> Result<()>) -> Result<Agent> {
        let mut text = CONFIGURATION.to_owned();
        for (from, to) in self.edits {
            ensure(text.contains(from), || format!("the packaged configuration has no {from}"))?;
            text = text.replace(from, to);
        }
        let mut documents = yaml::parse_all(&text).into_iter().map(|document| document.value);
        let config =
            documents.next().transpose().map_err(|err| Failure::new(format!("config.yaml: {err}")))?;
        let mut options = world::agent_of(lab, self.seed, self.name)?
            .environment("NAMESPACE", "garden")
            .environment("CREDENTIALS_DIRECTORY", self.credentials(lab));
        options.config = config.ok_or_else(|| Failure::new("config.yaml is empty"))?;
        options.network.clone_from(&self.network);
        // Each story has a folder of its own, and a failed one shows the end of the log.
        options.config["edge"]["stateDir"] = json!(lab.place.join(format!("{}-state", self.name)));
        options.config["logLevel"] = json!("debug");
        options.config["logFormat"] = json!("text");
        options.config["edge"]["exposure"]["address"] = json!(self.address);
        change(&mut options.config)?;
        Agent::start(lab, options)
    }
}

/// The Seed has all conditions of the agent and of gardener-controller-manager, the token is used up, and the commands
/// of README.md say that everything works.
pub(crate) fn is_joined(_: &mut Lab, scene: &mut Scene) -> Result<()> {
    let token = scene.peer.joined()?.token.clone();
    let Scene { garden, agent, .. } = scene;
    while_running("the conditions of the Seed", JOINED_WITHIN_S, agent, || {
        let seed = garden.get::<Value>(&SEEDS, &Key::cluster(SEED))?;
        let wanted = ["GardenletReady", "ExtensionsReady", "SeedSystemComponentsHealthy"];
        let is_good = wanted.iter().all(|kind| condition(&seed, kind) == "True");
        if is_good { Ok(Some(())) } else { Err(Failure::new(seed["status"]["conditions"].to_string())) }
    })?;
    has_one_certificate(garden)?;
    let found = garden.find::<Value>(&SECRET, &Key::new("kube-system", &token))?;
    ensure(found.is_none(), || "the bootstrap token is still there".to_owned())?;
    is_healthy(garden, agent)?;
    let said = agent.command(&["doctor"])?;
    // The address of the node outside is one for documentation, which kubelet does not know.
    let mut remarks = said.lines().filter(|line| line.starts_with("odd "));
    ensure(remarks.all(|line| line.contains("exposure")), || format!("gardenlet doctor: {said}"))?;
    ensure(said.ends_with("\nWorks, with 2 remarks.\n"), || format!("gardenlet doctor: {said}"))
}

/// The garden has approved one request of the agent.
fn has_one_certificate(garden: &Client) -> Result<()> {
    let requests =
        garden.list::<Value>(&CERTIFICATE_SIGNING_REQUEST, ALL_NAMESPACES, &ListParams::default())?.items;
    equal("requests for certificates", &requests.len(), &1)?;
    equal("its approval", &requests[0]["status"]["conditions"][0]["type"], &json!("Approved"))
}

/// The Lease is renewed, and `gardenlet status` names no problem.
fn is_healthy(garden: &Client, agent: &mut Agent) -> Result<()> {
    let renewed = || -> Result<Value> {
        let lease = garden.get::<Value>(&LEASE, &Key::new("gardener-system-seed-lease", SEED))?;
        Ok(lease["spec"]["renewTime"].clone())
    };
    let first = renewed()?;
    while_running("the Lease to be renewed", HEALTHY_WITHIN_S, agent, || {
        Ok((renewed()? != first).then_some(()))
    })?;
    wait::until("a healthy agent", HEALTHY_WITHIN_S, || {
        let said = agent.command(&["status"])?;
        if said.starts_with("healthy\n") { Ok(Some(())) } else { Err(Failure::new(said)) }
    })
}

/// While a Shoot is reconciled, the agent and the API servers of the garden end. Then the garden answers, but with errors
/// only, because its SeedAuthorizer is away. The agent keeps its certificate, and ends the operation when the authorizer
/// is back.
pub(crate) fn is_down_for_a_while(lab: &mut Lab, scene: &mut Scene) -> Result<()> {
    let Scene { garden, agent, peer, .. } = scene;
    let gardener = &mut peer.joined()?.gardener;
    ask_for_another(garden, EXTENDED)?;
    while_running("the operation to begin", JOINED_WITHIN_S, agent, || {
        let shoot = garden.get::<Value>(&SHOOT, &Key::new(PROJECT, EXTENDED.0))?;
        Ok((shoot["status"]["lastOperation"]["state"] == "Processing").then_some(()))
    })?;
    agent.kill();
    let began = wait::now();
    gardener.kill(Program::Api);
    gardener.kill(Program::Admission);
    lab.garden.kill(Server::Api);
    agent.skip_log();
    agent.restart()?;
    lab.garden.start(Server::Api)?;
    lab.garden.wait_ready()?;
    agent.wait_log("/webhooks/auth/seed", JOINED_WITHIN_S)?;
    gardener.start_again(lab, Program::Api)?;
    gardener.start_again(lab, Program::Admission)?;
    succeeded(lab, garden, agent, (EXTENDED, "Reconcile"))?;
    println!("       {:6.1} s  after the restarts: Reconcile Succeeded", wait::seconds_since(began));
    is_healthy(garden, agent)?;
    has_one_certificate(garden)
}

/// The agent reports no problem. (A reconciliation that fails again and again becomes one only after some time.) Then the
/// Seed is deleted, and the agent uninstalled, as docs/operations.md says. Both clusters have the same objects as
/// before, except those of the garden's own operator and controllers (the registration of an extension, the last
/// activity in the project, the used token, the request for a certificate, which the garden keeps for an hour), a label
/// of namespace kube-system, and what the kubelet reports about its node.
pub(crate) fn is_left(lab: &mut Lab, scene: &mut Scene) -> Result<()> {
    let Scene { garden, agent, .. } = scene;
    is_healthy(garden, agent)?;
    let began = wait::now();
    garden.delete(&SEEDS, &Key::cluster(SEED), &DeleteParams::default())?;
    while_running("the end of the Seed", LEFT_WITHIN_S, agent, || {
        let Some(seed) = garden.find::<Value>(&SEEDS, &Key::cluster(SEED))? else { return Ok(Some(())) };
        Err(Failure::new(format!("{} {}", seed["status"]["lastOperation"], seed["metadata"]["finalizers"])))
    })?;
    println!("       {:6.1} s  the Seed is deleted", wait::seconds_since(began));
    print_costs(scene)?;
    let status = scene.agent.terminate()?;
    equal("the exit code", &status.code(), &Some(0))?;
    lab.seed.kubectl(&["delete", "--filename", &format!("{PACKAGING}/rbac.yaml")])?;
    let joined = scene.peer.joined()?;
    joined.is_uninstalled = true;
    let kinds =
        ["/ControllerDeployment ", "/ControllerRegistration ", "/Project ", "/CertificateSigningRequest "];
    let stays = |key: &str| {
        key.ends_with(&joined.token)
            || key == "/Namespace /kube-system"
            || key.starts_with("/Node ")
            || kinds.iter().any(|kind| key.contains(kind))
    };
    end::is_as_before(lab, &joined.before, |key| !stays(key))
}

/// The requests of the agent since it joined, and its memory since its last start.
fn print_costs(scene: &mut Scene) -> Result<()> {
    let path = format!("/proc/{}/status", scene.agent.id());
    let status = fs::read_to_string(&path).doing(|| format!("read {path}"))?;
    let memory = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap_or_default();
    let joined = scene.peer.joined()?;
    let requests = joined.asked.requests()?;
    let user = format!("gardener.cloud:system:seed:{SEED}");
    let own: Vec<_> = requests.iter().filter(|request| request.user.username == user).collect();
    let writes = own.iter().filter(|request| request.is_write()).count();
    let minutes = wait::seconds_since(joined.began) / 60.0;
    println!(
        "                 {} requests to the garden in {minutes:.1} minutes, {writes} of them writes; {memory}",
        own.len()
    );
    Ok(())
}
