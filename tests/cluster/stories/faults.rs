//! One seed on a bad day: faults between the agent and the real API servers, one after the other in one world. After
//! each fault, a change in the garden arrives in the seed; the heartbeats until then are measured. The agent never ends.

use std::path::PathBuf;
use std::time::Duration;

use gardenlet::api::coordination::LEASE;
use gardenlet::api::core::{CONFIG_MAP, NAMESPACE};
use gardenlet::api::gardener::CONTROLLER_DEPLOYMENT;
use gardenlet::api::meta::Key;
use gardenlet::kube::{Client, Patch};
use serde_json::{Value, json};

use crate::agent::{Agent, Options};
use crate::cluster::Server;
use crate::failure::{Failure, Result, ensure};
use crate::gate::Gate;
use crate::lab::Lab;
use crate::stories::inside::http_get;
use crate::stories::steps::{installed, ready, register_demo, while_running};
use crate::wait;
use crate::world::{self, SEED, World};
use support::http::faults::{Action, Ordered, Seen, failure};
use support::pki::Authority;
use support::proxy::Mode;

/// The highest number of heartbeats between the end of a fault and the arrival of a change that is made then. Without a
/// fault it takes one or two; watches restart within thirty seconds of backoff at worst, after short faults much
/// sooner.
const BEATS_MAX: u32 = 12;

/// A world with an extension, an agent that reaches both clusters through gates, and the counters.
pub(crate) struct Day<'a> {
    lab: &'a mut Lab,
    pub(crate) agent: Agent,
    garden: Client,
    seed: Client,
    gates: [Gate; 2],
    /// The extension's namespace.
    namespace: String,
    greetings: u32,
    /// The lease is late, as expected.
    is_late: bool,
    /// See [`BEATS_MAX`].
    pub(crate) beats_max: u32,
    /// Ends after the agent.
    world: World,
}

pub(crate) fn bad_day(lab: &mut Lab) -> Result<()> {
    let gates = [Gate::open(&lab.garden)?, Gate::open(&lab.seed)?];
    lab.garden.front = Some(gates[0].url());
    let mut day = Day::begin(lab, gates, None)?;
    day.connections()?;
    day.answers()?;
    day.certificates()?;
    day.without_gardener()?;
    day.servers()
}

impl<'a> Day<'a> {
    /// A seed with an extension, whose agent finds the garden at the lab's address, with its own resolver
    /// configuration.
    pub(crate) fn begin(lab: &'a mut Lab, gates: [Gate; 2], resolver: Option<PathBuf>) -> Result<Self> {
        lab.seed.front = Some(gates[1].url());
        let world = World::build(lab)?;
        let mut agent = Agent::start(lab, Options { resolver, ..world::agent(lab, "agent")? })?;
        ready(lab, &mut agent)?;
        register_demo(lab, 0)?;
        let (garden, seed) = (lab.garden.client()?, lab.seed.client()?);
        let namespace = format!("extension-{}", installed(&garden, &mut agent)?);
        let (greetings, is_late, beats_max) = (0, false, BEATS_MAX);
        Ok(Day { lab, agent, garden, seed, gates, namespace, greetings, is_late, beats_max, world })
    }
}

impl Day<'_> {
    /// Slow, silent, reset, cut off in the handshake: in both directions at once.
    fn connections(&mut self) -> Result<()> {
        self.all(Mode::Slow(Duration::from_millis(60)));
        self.recovers("a slow network")?;
        self.all(Mode::Hole);
        self.misses()?;
        self.all(Mode::Pass);
        self.recovers("silence")?;
        for mode in [Mode::Refuse, Mode::Greet] {
            self.all(mode);
            self.cut();
            self.misses()?;
            self.all(Mode::Pass);
            self.recovers(&format!("{mode:?}"))?;
        }
        Ok(())
    }

    /// Refusals, incomplete answers and expired versions; the lease is not affected where real servers fail in that
    /// way.
    fn answers(&mut self) -> Result<()> {
        // Real servers never refuse /healthz.
        let work = |seen: &Seen| !seen.info.resource.is_empty() && seen.info.resource != "leases";
        for (what, status) in [("429", 429), ("503", 503)] {
            let storm = self.order(work, &Action::Refuse(failure(status, Some(1))));
            self.cut();
            self.beats(2)?;
            end(what, &storm)?;
            self.recovers(what)?;
        }
        let gone = self.order(Seen::is_watch, &Action::WatchError(failure(410, None)));
        self.cut();
        self.beats(2)?;
        end("410", &gone)?;
        self.recovers("410 on every watch")?;
        let half = self.order(Seen::is_watch, &Action::Half);
        self.cut();
        self.greet()?;
        self.beats(2)?;
        end("half an answer", &half)?;
        self.recovers("half a chunk")?;
        let page = self.order(work, &Action::Html(502));
        self.beats(2)?;
        end("a page", &page)?;
        self.recovers("a proxy's page")
    }

    /// Another CA's certificate, then another one of the right CA.
    fn certificates(&mut self) -> Result<()> {
        let (from, until) = crate::cluster::validity();
        let foreign = Authority::new("foreign", from).server(&[], from, until);
        self.gates[0].show(&foreign);
        self.misses()?;
        self.gates[0].show(&self.lab.garden.server_identity());
        self.recovers("a foreign certificate")?;
        self.gates[1].show(&self.lab.seed.server_identity());
        self.recovers("a new certificate")
    }

    /// The garden's own API answers 503 while the rest of the garden works: the lease is on time and all conditions are
    /// good, also when the agent starts then.
    fn without_gardener(&mut self) -> Result<()> {
        self.world.gardener.server().down();
        self.beats(3)?;
        self.is_healthy()?;
        self.agent.terminate()?;
        self.agent.restart()?;
        self.beats(2)?;
        self.is_healthy()?;
        self.world.gardener.server().up()?;
        self.recovers("a garden without its API")
    }

    /// An API server is killed; then the seed is restored from a backup. (Gardener's objects of the garden are not in
    /// its etcd.)
    fn servers(&mut self) -> Result<()> {
        self.lab.garden.kill(Server::Api);
        self.lab.garden.start(Server::Api)?;
        self.lab.garden.wait_ready()?;
        self.recovers("an API server that was killed")?;
        self.lab.seed.back_up()?;
        let backup = self.greeting()?;
        for time in ["the backup", "the backup, once more"] {
            self.recovers(time)?;
        }
        self.others_write()?;
        let before = self.greeting()?;
        ensure(backup != before, || format!("{backup} before and after the backup"))?;
        self.lab.seed.restore()?;
        // Nothing changes in the garden: only the seed has lost changes.
        while_running("the lost changes of the seed", 90, &mut self.agent, || {
            let map = self.seed.find::<Value>(&CONFIG_MAP, &Key::new(&self.namespace, "demo"))?;
            Ok(map.filter(|map| map["data"]["greeting"] == before).map(drop))
        })?;
        self.recovers("the restoration of the backup")
    }

    /// A backup is hours old when it is restored: more was written since than will be written again before the agent is
    /// back.
    fn others_write(&self) -> Result<()> {
        for n in 0..300 {
            let mark = json!({"metadata": {"annotations": {"example.org/mark": n.to_string()}}});
            self.seed
                .patch::<Value>(&NAMESPACE, &Key::cluster("kube-system"), &Patch::Merge(mark))
                .map_err(Failure::from)?;
        }
        Ok(())
    }

    /// The current value of the extension.
    fn greeting(&self) -> Result<String> {
        let map: Value =
            self.seed.get(&CONFIG_MAP, &Key::new(&self.namespace, "demo")).map_err(Failure::from)?;
        Ok(map["data"]["greeting"].as_str().unwrap_or_default().to_owned())
    }

    fn all(&self, mode: Mode) {
        if mode == Mode::Pass {
            // Bytes that were held back belong to a time that is over.
            self.cut();
        }
        self.gates.iter().for_each(|gate| gate.proxy.set(mode));
    }

    fn cut(&self) {
        self.gates.iter().for_each(|gate| gate.proxy.cut());
    }

    fn order(&self, when: fn(&Seen) -> bool, action: &Action) -> Vec<Ordered> {
        self.gates.iter().map(|gate| gate.faults.when(when).then(action.clone())).collect()
    }

    /// Sets another value of the extension.
    fn greet(&mut self) -> Result<String> {
        self.greetings += 1;
        let greeting = format!("greeting {}", self.greetings);
        let values = Patch::Merge(json!({"helm": {"values": {"replicas": 0, "greeting": greeting}}}));
        self.garden.patch::<Value>(&CONTROLLER_DEPLOYMENT, &Key::cluster("demo"), &values)?;
        Ok(greeting)
    }

    /// Waits until the agent reports that the lease is late.
    pub(crate) fn misses(&mut self) -> Result<()> {
        self.is_late = true;
        self.agent.wait_log("Cannot renew the seed's lease", 30).map(drop)
    }

    /// A change in the garden arrives in the seed, and the lease is on time again.
    pub(crate) fn recovers(&mut self, what: &str) -> Result<()> {
        let mut lease = Lease::new();
        let begun = wait::now();
        let greeting = wait::until("the garden to take a change", 30, || self.greet().map(Some))?;
        let (garden, seed, namespace) = (&self.garden, &self.seed, &self.namespace);
        let arrived = while_running(&format!("a change after {what}"), 180, &mut self.agent, || {
            lease.look(garden)?;
            let map = seed.find::<Value>(&CONFIG_MAP, &Key::new(namespace, "demo"))?;
            Ok(map.filter(|map| map["data"]["greeting"] == *greeting).map(drop))
        });
        arrived?;
        if std::mem::take(&mut self.is_late) {
            self.agent.wait_log("Renewed the seed's lease again", 30)?;
        }
        println!(
            "                  after {what}: {} heartbeats, {:.1} s",
            lease.beats,
            wait::seconds_since(begun)
        );
        let measure = format!("heartbeats until a change arrives after {what}");
        wait::measured(&measure, f64::from(lease.beats), f64::from(self.beats_max))
    }

    /// This many renewals of the lease, none of which is late.
    fn beats(&mut self, count: u32) -> Result<()> {
        let mut lease = Lease::new();
        let garden = &self.garden;
        while_running(&format!("{count} heartbeats"), 40, &mut self.agent, || {
            lease.look(garden)?;
            Ok((lease.beats >= count).then_some(()))
        })
    }

    fn is_healthy(&mut self) -> Result<()> {
        self.agent.ensure_running()?;
        let answer = http_get("127.0.0.1:2728", "/healthz")?;
        ensure(answer.starts_with("HTTP/1.1 200"), || format!("/healthz: {answer}"))
    }
}

/// Ends a fault, which must have happened.
fn end(what: &str, ordered: &[Ordered]) -> Result<()> {
    let hits: u32 = ordered.iter().map(Ordered::hits).sum();
    ordered.iter().for_each(Ordered::cancel);
    ensure(hits > 0, || format!("{what} happened to no request"))
}

/// Renewals of the seed's Lease, as an administrator sees them.
struct Lease {
    last: Option<Value>,
    beats: u32,
}

impl Lease {
    fn new() -> Self {
        Self { last: None, beats: 0 }
    }

    fn look(&mut self, garden: &Client) -> Result<()> {
        let lease: Value =
            garden.get(&LEASE, &Key::new("gardener-system-seed-lease", SEED)).map_err(Failure::from)?;
        let renewed = lease["spec"]["renewTime"].clone();
        if self.last.as_ref().is_some_and(|last| *last != renewed) {
            self.beats += 1;
        }
        self.last = Some(renewed);
        Ok(())
    }
}
