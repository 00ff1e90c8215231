//! The life of the agent's certificate: renewals while the agent runs, and through a change of the garden's CA; and an
//! agent whose kubeconfigs are configured.

use std::time::Duration;

use gardenlet::api::coordination::LEASE;
use gardenlet::api::core::SECRET;
use gardenlet::api::meta::Key;
use gardenlet::base::clock::Clock;
use gardenlet::format::base64;
use gardenlet::kube::{Client, Patch};
use serde_json::{Value, json};

use crate::agent::Agent;
use crate::failure::{Failure, Result, ensure};
use crate::lab::Lab;
use crate::stories::steps::{installed, ready, register_demo, while_running};
use crate::wait;
use crate::world::{self, SEED, World};
use support::garden::prepare;

/// The certificate is renewed on request while the process runs: the lease is never late, and the agent notices later
/// changes.
pub(crate) fn rotates(lab: &mut Lab) -> Result<()> {
    let _world = World::build(lab)?;
    let mut agent = Agent::start(lab, world::agent(lab, "agent")?)?;
    ready(lab, &mut agent)?;
    let (garden, seed) = (lab.garden.client()?, lab.seed.client()?);
    let (before, mark) = (kubeconfig(&seed)?, agent.log().len());
    renew(&seed)?;
    let mut lease = Renewals::new(&garden)?;
    while_running("the new certificate", 40, &mut agent, || {
        lease.look(&garden)?;
        Ok((kubeconfig(&seed)? != before).then_some(()))
    })?;
    // The heartbeat continues with the new identity.
    let renewals = lease.count;
    while_running("three more renewals", 40, &mut agent, || {
        lease.look(&garden)?;
        Ok((lease.count >= renewals + 3).then_some(()))
    })?;
    // A busy machine may delay a renewal, but none fails. The garden allows 40 s.
    wait::measured("seconds between two renewals", lease.longest.as_secs_f64(), 10.0)?;
    let failed = "Cannot renew the seed's lease";
    ensure(!agent.log()[mark..].contains(failed), || format!("the agent says {failed:?}"))?;
    let annotation = secret(&seed)?["metadata"]["annotations"]["gardener.cloud/operation"].clone();
    ensure(annotation.is_null(), || format!("the annotation is still there: {annotation}"))?;
    register_demo(lab, 0)?;
    installed(&garden, &mut agent).map(drop)
}

/// While the agent is down, a new certificate is requested and the garden's CA changes: the agent handles both at its
/// start.
pub(crate) fn renews_with_new_authority(lab: &mut Lab) -> Result<()> {
    let _world = World::build(lab)?;
    let mut agent = Agent::start(lab, world::agent(lab, "agent")?)?;
    ready(lab, &mut agent)?;
    agent.terminate()?;
    let seed = lab.seed.client()?;
    let before = kubeconfig(&seed)?;
    lab.garden.add_authority()?;
    renew(&seed)?;
    agent.restart()?;
    agent.wait_log("The garden's CA has changed", 30)?;
    agent.wait_log("Renewed the certificate", 40)?;
    let after = kubeconfig(&seed)?;
    ensure(after["users"] != before["users"], || "the certificate is the old one".to_owned())?;
    ensure(after["clusters"] != before["clusters"], || "the CA is the old one".to_owned())
}

/// The agent reports an expired certificate, and replaces it as soon as there is a bootstrap credential; a good one is
/// replaced on request.
pub(crate) fn bootstraps_again(lab: &mut Lab) -> Result<()> {
    let world = World::build(lab)?;
    let mut agent = Agent::start(lab, world::agent(lab, "agent")?)?;
    ready(lab, &mut agent)?;
    let (garden, seed) = (lab.garden.client()?, lab.seed.client()?);
    let (hour, now) = (Duration::from_secs(3_600), Clock::system().now());
    let groups = ["gardener.cloud:system:seeds".to_owned()];
    let user = format!("gardener.cloud:system:seed:{SEED}");
    let old = lab.garden.authority.client(&user, &groups, now.minus(3 * hour), now.minus(2 * hour));
    let mut expired = kubeconfig(&seed)?;
    let encoded = |text: &str| base64::encode(text.as_bytes());
    expired["users"][0]["user"] =
        json!({"client-certificate-data": encoded(&old.certificate), "client-key-data": encoded(&old.key)});
    let data = Patch::Merge(json!({"data": {"kubeconfig": encoded(&expired.to_string())}}));
    seed.patch::<Value>(&SECRET, &Key::new("garden", "gardenlet-kubeconfig"), &data)?;
    agent.wait_log("Using another certificate", 40)?;
    agent.wait_log(
        "secret garden/gardenlet-kubeconfig-bootstrap of the seed: supply a bootstrap kubeconfig",
        60,
    )?;
    ensure(agent.log().contains("expired at"), || "the cause is not named".to_owned())?;
    supply(lab, &world)?;
    agent.wait_log("Using another certificate", 60)?;
    renewed_soon(&garden, &mut agent)?;
    let before = kubeconfig(&seed)?;
    ensure(before["users"] != expired["users"], || "the certificate is the old one".to_owned())?;
    supply(lab, &world)?;
    agent.command(&["rebootstrap"])?;
    while_running("another identity", 60, &mut agent, || {
        Ok((kubeconfig(&seed)?["users"] != before["users"]).then_some(()))
    })?;
    renewed_soon(&garden, &mut agent)?;
    wait::until("the deletion of the bootstrap Secret", 30, || {
        let found = seed.find::<Value>(&SECRET, &Key::new("garden", "gardenlet-kubeconfig-bootstrap"))?;
        Ok::<_, Failure>(found.is_none().then_some(()))
    })
}

/// The bootstrap token and the kubeconfig with it, again.
fn supply(lab: &Lab, world: &World) -> Result<()> {
    let all = |objects: &[Value]| json!({"apiVersion": "v1", "kind": "List", "items": objects});
    lab.garden.apply(&all(&[world.preparation.bootstrap_token()]))?;
    let bootstrap = lab.garden.kubeconfig_text(&json!({"token": world.preparation.token()}));
    let mut objects = prepare::seed(&bootstrap);
    objects.retain(|object| object["kind"] == "Secret");
    lab.seed.apply(&all(&objects))
}

fn renewed_soon(garden: &Client, agent: &mut Agent) -> Result<()> {
    let before = renewed(garden)?;
    while_running("a renewal of the lease", 40, agent, || Ok((renewed(garden)? != before).then_some(())))
}

/// Without storage in the seed: both kubeconfigs come from the environment, and no Secret is read or written.
pub(crate) fn from_files(lab: &mut Lab) -> Result<()> {
    let _world = World::build(lab)?;
    let path = lab.place.join("agent-garden.kubeconfig");
    let user = format!("gardener.cloud:system:seed:{SEED}");
    lab.garden.write_kubeconfig(&path, &user, Some("gardener.cloud:system:seeds"))?;
    let mut options = world::agent(lab, "agent")?.environment("GARDEN_KUBECONFIG", &path);
    options.config["gardenClientConnection"] = json!({});
    let mut agent = Agent::start(lab, options)?;
    ready(lab, &mut agent)?;
    let secret = lab.seed.client()?.find::<Value>(&SECRET, &Key::new("garden", "gardenlet-kubeconfig"))?;
    ensure(secret.is_none(), || "a kubeconfig Secret was written".to_owned())?;
    register_demo(lab, 0)?;
    installed(&lab.garden.client()?, &mut agent).map(drop)
}

fn secret(seed: &Client) -> Result<Value> {
    seed.get(&SECRET, &Key::new("garden", "gardenlet-kubeconfig")).map_err(Failure::from)
}

/// The kubeconfig of the agent's Secret.
fn kubeconfig(seed: &Client) -> Result<Value> {
    let secret = secret(seed)?;
    let text = secret["data"]["kubeconfig"].as_str().unwrap_or_default();
    let bytes = base64::decode(text.as_bytes()).unwrap_or_default();
    let text = String::from_utf8_lossy(&bytes);
    gardenlet::format::yaml::parse(&text).map_err(|err| Failure::new(format!("the kubeconfig: {err}")))
}

fn renew(seed: &Client) -> Result<()> {
    let patch = Patch::Merge(json!({"metadata": {"annotations": {"gardener.cloud/operation": "renew"}}}));
    seed.patch::<Value>(&SECRET, &Key::new("garden", "gardenlet-kubeconfig"), &patch)
        .map(drop)
        .map_err(Failure::from)
}

/// The number of renewals of the seed's lease, and the longest time between two of them.
struct Renewals {
    last: Value,
    at: Duration,
    count: u32,
    longest: Duration,
}

impl Renewals {
    fn new(garden: &Client) -> Result<Self> {
        Ok(Self { last: renewed(garden)?, at: wait::now(), count: 0, longest: Duration::ZERO })
    }

    fn look(&mut self, garden: &Client) -> Result<()> {
        let last = renewed(garden)?;
        self.longest = self.longest.max(wait::now().saturating_sub(self.at));
        if last != self.last {
            (self.last, self.at, self.count) = (last, wait::now(), self.count + 1);
        }
        Ok(())
    }
}

fn renewed(garden: &Client) -> Result<Value> {
    let lease: Value = garden.get(&LEASE, &Key::new("gardener-system-seed-lease", SEED))?;
    Ok(lease["spec"]["renewTime"].clone())
}
