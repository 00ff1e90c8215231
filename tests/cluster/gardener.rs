//! The real Gardener in the garden of a lab: gardener-apiserver, gardener-controller-manager, gardener-scheduler, and
//! gardener-admission-controller with SeedAuthorizer and SeedRestriction.
//!
//! Others use it through the kubeconfigs of the garden: `Cluster::kubeconfig` and `Cluster::client` are those of an
//! administrator, [`users`] has those of a seed's agent and of an extension.

use std::fs;
use std::path::{Path, PathBuf};

use gardenlet::format::base64;
use gardenlet::kube::Method;
use serde_json::{Value, json};

use crate::cluster;
use crate::failure::{Doing, Failure, Result};
use crate::lab::Lab;
use crate::process::Process;
use crate::stories::inside::http_get;
use crate::wait;
use crate::world::{self, GARDENER_HOST};
use support::garden::guards::AUTHORIZER;
use support::garden::prepare::Preparation;

mod objects;
pub(crate) mod users;

/// The port of gardener-apiserver.
const API_PORT: u16 = 18_443;
/// The port of the webhooks of gardener-admission-controller. The next one is for its probes.
const WEBHOOK_PORT: u16 = 2_721;
/// A start on a machine that does other things as well.
const STARTED_WITHIN_S: u64 = 120;

/// A program of Gardener.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Program {
    Api,
    /// Its webhooks watch objects of the API server.
    Admission,
    Controllers,
    Scheduler,
}

impl Program {
    /// In the order of their start.
    pub(crate) const ALL: [Self; 4] = [Self::Api, Self::Admission, Self::Controllers, Self::Scheduler];

    /// Its name among the programs of the tools.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Api => "gardener-apiserver",
            Self::Admission => "gardener-admission-controller",
            Self::Controllers => "gardener-controller-manager",
            Self::Scheduler => "gardener-scheduler",
        }
    }

    /// Where it reports that it works. The API server of Kubernetes asks gardener-apiserver.
    const fn probe(self) -> Option<(&'static str, &'static str)> {
        match self {
            Self::Api => None,
            Self::Admission => Some(("127.0.0.1:2722", "/readyz")),
            Self::Controllers => Some(("127.0.0.1:2718", "/healthz")),
            Self::Scheduler => Some(("127.0.0.1:10251", "/healthz")),
        }
    }
}

/// The running programs. They end when it is dropped; the next reset of the lab removes their objects, and the
/// authorizer from the API server of the garden.
#[derive(Debug)]
pub(crate) struct Gardener {
    /// In the order of their start; they end in reverse order.
    programs: Vec<(Program, Process)>,
}

impl Drop for Gardener {
    fn drop(&mut self) {
        while let Some((_, process)) = self.programs.pop() {
            drop(process);
        }
    }
}

impl Gardener {
    /// Makes the garden of a lab, which is as [`Lab::reset`] leaves it, a garden of the real Gardener: with
    /// everything that gardener-operator installs, and the token with which an agent of the seed can join.
    pub(crate) fn start(lab: &mut Lab, preparation: &Preparation) -> Result<Self> {
        let folder = folder(lab);
        write_files(lab, &folder)?;
        // The webhook does not answer yet. Only requests of seeds wait for it.
        lab.garden.authorize_with(&folder.join("authorizers.json"))?;
        lab.garden.apply(&objects::of_operator(preparation))?;
        let mut gardener = Self { programs: Vec::new() };
        gardener.run(lab, Program::Api)?;
        let authority = lab.garden.authority.certificate();
        lab.garden.apply(&world::list(&world::registration(&authority, API_PORT)))?;
        gardener.serves(lab)?;
        for program in [Program::Admission, Program::Controllers, Program::Scheduler] {
            gardener.run(lab, program)?;
        }
        for program in Program::ALL {
            gardener.works(program)?;
        }
        lab.garden.apply(&objects::seed_restriction(&authority, WEBHOOK_PORT))?;
        Ok(gardener)
    }

    /// Ends one program at once; the others continue to run.
    pub(crate) fn kill(&mut self, program: Program) {
        self.programs.retain(|(running, _)| *running != program);
    }

    /// Starts a program again after it was killed, and waits until it works.
    pub(crate) fn start_again(&mut self, lab: &Lab, program: Program) -> Result<()> {
        self.run(lab, program)?;
        if program == Program::Api { self.serves(lab) } else { self.works(program) }
    }

    fn run(&mut self, lab: &Lab, program: Program) -> Result<()> {
        let mut command = lab.command(program.name())?;
        command.args(arguments(lab, program));
        self.programs.push((program, Process::start(program.name(), &lab.state, command)?));
        Ok(())
    }

    /// Waits until the garden serves the gardener.cloud groups.
    fn serves(&mut self, lab: &Lab) -> Result<()> {
        let client = lab.garden.client()?;
        for path in world::gardener_paths() {
            wait::until(&path, STARTED_WITHIN_S, || {
                if let Err(ended) = self.ensure_running() {
                    return Ok::<_, Failure>(Some(Err(ended)));
                }
                let answer = client.raw(Method::Get, &path, None, "")?;
                Ok(answer.is_success().then_some(Ok(())))
            })??;
        }
        Ok(())
    }

    fn works(&mut self, program: Program) -> Result<()> {
        let Some((address, path)) = program.probe() else { return Ok(()) };
        wait::until(program.name(), STARTED_WITHIN_S, || {
            if let Err(ended) = self.ensure_running() {
                return Ok::<_, Failure>(Some(Err(ended)));
            }
            Ok(http_get(address, path)?.contains(" 200 OK").then_some(Ok(())))
        })?
    }

    /// Fails, with the end of its log, if one of the programs has ended.
    pub(crate) fn ensure_running(&mut self) -> Result<()> {
        self.programs.iter_mut().try_for_each(|(_, process)| process.ensure_running())
    }
}

/// Puts the webhooks of a stand-in at this port before the kinds of Kubernetes, as the real Gardener does it.
pub(crate) fn guard(lab: &mut Lab, ca: &str, port: u16) -> Result<()> {
    let folder = folder(lab);
    fs::create_dir_all(&folder).doing(|| format!("create {}", folder.display()))?;
    let server = json!({"server": format!("https://127.0.0.1:{port}{AUTHORIZER}"),
        "certificate-authority-data": base64::encode(ca.as_bytes())});
    let kubeconfig = json!({"apiVersion": "v1", "kind": "Config", "current-context": "guard",
        "clusters": [{"name": "guard", "cluster": server}], "users": [{"name": "guard", "user": {}}],
        "contexts": [{"name": "guard", "context": {"cluster": "guard", "user": "guard"}}]});
    let file = folder.join("guard.kubeconfig");
    cluster::write(&file, &kubeconfig.to_string())?;
    let authorizers = folder.join("authorizers.json");
    cluster::write(&authorizers, &objects::authorizers(&file).to_string())?;
    lab.garden.authorize_with(&authorizers)?;
    lab.garden.apply(&objects::seed_restriction(ca, port))
}

fn folder(lab: &Lab) -> PathBuf {
    lab.state.join("gardener")
}

/// Writes certificates and configurations.
fn write_files(lab: &Lab, folder: &Path) -> Result<()> {
    let webhooks = folder.join("webhooks");
    fs::create_dir_all(&webhooks).doing(|| format!("create {}", webhooks.display()))?;
    let (from, until) = cluster::validity();
    let identity = lab.garden.authority.server(&[GARDENER_HOST.to_owned()], from, until);
    cluster::write_identity(folder, "api", &identity)?;
    cluster::write_identity(&webhooks, "tls", &identity)?;
    let authorizer = lab.garden.kubeconfig_at(
        &format!("https://127.0.0.1:{WEBHOOK_PORT}/webhooks/auth/seed"),
        // The webhook asks no client who it is.
        &json!({}),
    );
    let authorizer_file = folder.join("authorizer.kubeconfig");
    cluster::write(&authorizer_file, &authorizer)?;
    cluster::write(&folder.join("authorizers.json"), &objects::authorizers(&authorizer_file).to_string())?;
    let connection = json!({"kubeconfig": lab.garden.kubeconfig(), "qps": 100, "burst": 130});
    for program in [Program::Admission, Program::Controllers, Program::Scheduler] {
        let file = folder.join(format!("{}.json", program.name()));
        cluster::write(&file, &configuration(program, &connection, &webhooks).to_string())?;
    }
    Ok(())
}

fn arguments(lab: &Lab, program: Program) -> Vec<String> {
    let folder = folder(lab);
    if program != Program::Api {
        return vec![format!("--config={}", folder.join(format!("{}.json", program.name())).display())];
    }
    let kubeconfig = lab.garden.kubeconfig();
    let mut arguments: Vec<String> = ["kubeconfig", "authentication-kubeconfig", "authorization-kubeconfig"]
        .map(|flag| format!("--{flag}={}", kubeconfig.display()))
        .into();
    arguments.extend([
        format!("--secure-port={API_PORT}"),
        "--bind-address=127.0.0.1".to_owned(),
        // Its objects have a prefix of their own.
        format!("--etcd-servers={}", lab.garden.etcd_url()),
        format!("--cluster-identity={}", objects::CLUSTER_IDENTITY),
        "--authorization-always-allow-paths=/healthz".to_owned(),
        format!("--tls-cert-file={}", folder.join("api.crt").display()),
        format!("--tls-private-key-file={}", folder.join("api.key").display()),
        "--workload-identity-token-issuer=https://issuer.garden.example.org".to_owned(),
        format!("--workload-identity-signing-key-file={}", folder.join("api.key").display()),
    ]);
    arguments
}

/// One of each program runs, so none elects a leader.
fn configuration(program: Program, connection: &Value, webhooks: &Path) -> Value {
    let group = "config.gardener.cloud/v1alpha1";
    match program {
        Program::Admission => json!({
            "apiVersion": format!("admissioncontroller.{group}"), "kind": "AdmissionControllerConfiguration",
            "gardenClientConnection": connection,
            "server": {"webhooks": {"port": WEBHOOK_PORT, "tls": {"serverCertDir": webhooks}},
                "healthProbes": {"port": WEBHOOK_PORT + 1}, "metrics": {"port": WEBHOOK_PORT + 2}}}),
        Program::Scheduler => json!({
            "apiVersion": format!("scheduler.{group}"), "kind": "SchedulerConfiguration",
            "clientConnection": connection, "leaderElection": {"leaderElect": false},
            "server": {"healthProbes": {"port": 10_251}, "metrics": {"port": 19_251}},
            "schedulers": {"shoot": {"concurrentSyncs": 1, "candidateDeterminationStrategy": "SameRegion"},
                "backupBucket": {"concurrentSyncs": 1}}}),
        Program::Controllers | Program::Api => json!({
            "apiVersion": format!("controllermanager.{group}"), "kind": "ControllerManagerConfiguration",
            "gardenClientConnection": connection, "leaderElection": {"leaderElect": false},
            "server": {"healthProbes": {"port": 2_718}, "metrics": {"port": 2_719}}}),
    }
}
