//! Two agents for one seed, as real processes: one of them is paused by a signal, cut off, or killed, and never writes
//! while the other one leads.

use std::time::Duration;

use gardenlet::api::coordination::LEASE;
use gardenlet::api::gardener::CONTROLLER_DEPLOYMENT;
use gardenlet::api::meta::Key;
use gardenlet::base::clock::Mono;
use gardenlet::kube::{Client, Patch};
use serde_json::{Value, json};

use crate::agent::Agent;
use crate::failure::{Failure, Result, ensure};
use crate::gate::{Gate, Passed};
use crate::lab::Lab;
use crate::stories::crash;
use crate::stories::inside::http_get;
use crate::stories::steps::{installed, ready, register_demo, while_running};
use crate::wait;
use crate::world::{self, World};
use support::proxy::Mode;

/// The leases in the seed: those of the leader and of the applier of ManagedResources.
const LEASES: [&str; 2] = ["gardenlet-leader-election", "gardener-resource-manager"];
/// How long a lease is valid without its holder, plus the time that the other one needs to notice it on a busy machine.
const TAKEN_OVER_S: u64 = 15 + 45;

/// An agent with its own route to each cluster.
struct One {
    agent: Agent,
    garden: Gate,
    seed: Gate,
}

impl One {
    fn start(lab: &mut Lab, name: &str, port: u16) -> Result<Self> {
        let (garden, seed) = (Gate::open(&lab.garden)?, Gate::open(&lab.seed)?);
        lab.seed.front = Some(seed.url());
        let mut options = world::agent(lab, name)?;
        lab.seed.front = None;
        // A Secret that both read has the address of the garden: a separate resolver file leads each through its own
        // gate.
        let path = lab.place.join(format!("{name}-garden.kubeconfig"));
        let user = format!("gardener.cloud:system:seed:{}", world::SEED);
        lab.garden.front = Some(garden.url());
        lab.garden.write_kubeconfig(&path, &user, Some("gardener.cloud:system:seeds"))?;
        lab.garden.front = None;
        options = options.environment("GARDEN_KUBECONFIG", &path);
        options.config["gardenClientConnection"] = json!({});
        options.config["server"] = json!({"healthProbes": {"port": port}, "metrics": {"port": port + 1}});
        Ok(Self { agent: Agent::start(lab, options)?, garden, seed })
    }

    fn connect(&self, is_connected: bool) {
        for gate in [&self.garden, &self.seed] {
            // Requests on their way when the route was cut off belong to a time that is over.
            if is_connected {
                gate.proxy.cut();
            }
            gate.proxy.set(if is_connected { Mode::Pass } else { Mode::Hole });
        }
    }

    /// Its writes since a time, except for renewals of the leases themselves.
    fn ensure_idle_since(&self, since: Mono, what: &str) -> Result<()> {
        let gates = [&self.garden, &self.seed];
        let work: Vec<_> = gates.iter().flat_map(|g| g.passed_since(since)).filter(Passed::is_work).collect();
        ensure(work.is_empty(), || format!("{what}, and writes: {work:?}"))
    }
}

pub(crate) fn take_turns(lab: &mut Lab) -> Result<()> {
    let _world = World::build(lab)?;
    let mut first = One::start(lab, "first", 12_728)?;
    ready(lab, &mut first.agent)?;
    register_demo(lab, 0)?;
    installed(&lab.garden.client()?, &mut first.agent)?;
    let mut second = One::start(lab, "second", 12_828)?;
    wait::until("the second to wait", 20, || http_get("127.0.0.1:12828", "/livez").map(Some))?;
    let seed = lab.seed.client()?;
    let before = holders(&seed)?;

    // Paused: it continues as if no time had passed. Meanwhile there is work.
    first.agent.signal("STOP")?;
    let taken = taken_over(&seed, &before, &mut second)?;
    let value = "while the first was paused";
    greet(lab, value)?;
    first.agent.signal("CONT")?;
    first.agent.wait_log("Lost the leader lease", 30)?;
    settled(lab, &before, &mut second, value)?;
    first.ensure_idle_since(taken, "the first was paused")?;

    // Cut off: now the second one.
    let before = holders(&seed)?;
    second.connect(false);
    let taken = taken_over(&seed, &before, &mut first)?;
    let value = "while the second was cut off";
    greet(lab, value)?;
    second.connect(true);
    second.agent.wait_log("Lost the leader lease", 30)?;
    settled(lab, &before, &mut first, value)?;
    second.ensure_idle_since(taken, "the second was cut off")?;

    // Killed: its leases expire, that of the applier once the other one has started to watch it.
    if lab.environment.long {
        let before = holders(&seed)?;
        first.agent.kill();
        taken_over(&seed, &before, &mut second)?;
        settled(lab, &before, &mut second, value)?;
    }
    Ok(())
}

/// Waits until another one leads; returns when that was seen.
fn taken_over(seed: &Client, before: &[String; 2], by: &mut One) -> Result<Mono> {
    let begun = wait::now();
    while_running("the other one to lead", TAKEN_OVER_S, &mut by.agent, || {
        Ok(has_changed(&holders(seed)?[0], &before[0]).then_some(()))
    })?;
    let lasted = wait::now().saturating_sub(begun);
    ensure(lasted > Duration::from_secs(5), || format!("the lease changed hands after {lasted:?} already"))?;
    Ok(wait::now())
}

fn has_changed(now: &str, before: &str) -> bool {
    now != before && !now.is_empty()
}

/// Waits until the other one applies, too, and has done the work that came up meanwhile.
fn settled(lab: &Lab, before: &[String; 2], by: &mut One, value: &str) -> Result<()> {
    let (garden, seed) = (lab.garden.client()?, lab.seed.client()?);
    while_running("the other one to apply", TAKEN_OVER_S, &mut by.agent, || {
        Ok(has_changed(&holders(&seed)?[1], &before[1]).then_some(()))
    })?;
    while_running("the new value", 60, &mut by.agent, || Ok((crash::greeting(lab)? == value).then_some(())))?;
    ready(lab, &mut by.agent)?;
    installed(&garden, &mut by.agent).map(drop)
}

/// Sets another value of the extension.
fn greet(lab: &Lab, greeting: &str) -> Result<()> {
    let values = Patch::Merge(json!({"helm": {"values": {"replicas": 0, "greeting": greeting}}}));
    lab.garden.client()?.patch::<Value>(&CONTROLLER_DEPLOYMENT, &Key::cluster("demo"), &values)?;
    Ok(())
}

fn holders(seed: &Client) -> Result<[String; 2]> {
    let holder = |name: &str| -> Result<String> {
        let lease: Option<Value> = seed.find(&LEASE, &Key::new("garden", name)).map_err(Failure::from)?;
        Ok(lease
            .and_then(|lease| lease["spec"]["holderIdentity"].as_str().map(str::to_owned))
            .unwrap_or_default())
    };
    Ok([holder(LEASES[0])?, holder(LEASES[1])?])
}
