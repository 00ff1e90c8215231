//! From one applier of ManagedResources to the next. Only the holder of the Lease of gardener-resource-manager works,
//! and the next one starts soon after the holder has ended.

use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use gardenlet::base::clock::{Clock, Mono, Simulated, TimeSource, Timestamp};
use serde_json::{Value, json};

use crate::charts;
use crate::story_extension::installed;
use crate::world::{Agent, CORE, LEASES, MANAGED_RESOURCES, Options, World, wait_for};
use support::encoding::rfc3339_micro;
use support::http::faults::{Action, Seen};
use support::http::record::Recorded;
use support::json::text;

const GRM: (&str, &str) = ("garden", "gardener-resource-manager");
/// The identity of appliers in the seed.
const ACCOUNT: &str = "system:serviceaccount:garden:gardener-resource-manager";
/// How long a lease is valid without renewals.
const LEASE: Duration = Duration::from_secs(15);

/// The name by which each agent connects to the seed, which tells their requests apart.
const FIRST: &str = "127.0.0.1:";
const SECOND: &str = "localhost:";

/// Another agent of the seed.
fn second(world: &World) -> Agent {
    let mut pod = world.pod();
    pod.insert("KUBERNETES_SERVICE_HOST".to_owned(), "localhost".to_owned());
    Agent::new(world, "host-2", &world.config(), pod)
}

fn greet(world: &World, greeting: &str) {
    let values = json!({"helm": {"values": {"greeting": greeting}}});
    world.garden.merge(CORE, "controllerdeployments", ("", "echo"), &values);
}

fn wait_for_greeting(world: &World, name: &str, greeting: &str) {
    world.seed.wait_for(&format!("greeting {greeting}"), |seed| {
        let map = seed.get("", "configmaps", &format!("extension-{name}"), "echo")?;
        (map["data"]["greeting"] == greeting).then_some(())
    });
}

/// The holder that a request wrote into the appliers' Lease.
fn written_holder(request: &Recorded) -> Option<&str> {
    let body = request.body.as_ref().filter(|_| request.path.contains("/namespaces/garden/leases"))?;
    (text(body, "/metadata/name") == GRM.1).then(|| text(body, "/spec/holderIdentity"))
}

/// Checks that each applier wrote only while it held the lease. Returns the number of writes of each.
fn each_wrote_in_its_time(world: &World) -> [usize; 2] {
    let mut held: Option<(String, Timestamp)> = None;
    let mut counts = [0; 2];
    for request in world.seed.requests().iter().filter(|r| r.user == ACCOUNT && r.is_write()) {
        match written_holder(request) {
            Some(holder) if (200..300).contains(&request.status) => {
                held = (!holder.is_empty()).then(|| (request.host.clone(), request.at));
            }
            Some(_) => {}
            None => {
                let (host, at) =
                    held.as_ref().unwrap_or_else(|| panic!("without a lease: {}", request.line()));
                let is_own = request.host == *host && request.at.since(*at) <= LEASE;
                assert!(
                    is_own,
                    "{} of {}, the lease was renewed by {host} at {at:?}",
                    request.line(),
                    request.host
                );
                counts[usize::from(host.starts_with(SECOND))] += 1;
            }
        }
    }
    counts
}

/// When an agent first had the lease.
fn taken(world: &World, by: &str) -> Timestamp {
    world.seed.wait_for(&format!("{by} to hold the lease"), |seed| {
        let all = seed.requests();
        let taken = all.iter().find(|r| {
            r.host.starts_with(by)
                && r.status / 100 == 2
                && written_holder(r).is_some_and(|holder| !holder.is_empty())
        });
        taken.map(|r| r.at)
    })
}

#[test]
fn a_crashed_applier_is_replaced_after_both_leases_expired() {
    let world = World::start(&Options::calm("inherited"));
    world.extend("echo", &charts::extension(), &json!({"greeting": "hello"}));
    let first = world.agent();
    let name = installed(&world, "echo");
    let second = second(&world);
    second.launch();
    wait_for("the second to answer", || std::net::TcpStream::connect((second.probes.as_str(), 2728)).ok());
    first.crash();
    let died = world.clock.now();
    greet(&world, "from the second");
    wait_for_greeting(&world, &name, "from the second");
    let took = taken(&world, SECOND).since(died);
    // First the agent's lease expires, then the applier's lease, which the next one watches from then on.
    world.measured("until another applier has the lease", took, 3 * LEASE);
    let [before, after] = each_wrote_in_its_time(&world);
    assert!(before > 0 && after > 0, "{before} and {after} writes");
    second.stop();
}

/// The agent that continues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Awake {
    All,
    /// Workers in the middle of an operation, before the agent handles the missed time.
    Workers,
    Nobody,
}

/// A clock that blocks its callers, like a suspended machine, while time passes.
#[derive(Debug)]
struct Napping {
    time: Arc<Simulated>,
    awake: Mutex<Awake>,
    woken: Condvar,
}

impl Napping {
    fn set(&self, awake: Awake) {
        *self.awake.lock().unwrap() = awake;
        self.woken.notify_all();
    }

    fn time(&self) -> &Simulated {
        let is_worker = std::thread::current().name().is_some_and(|name| name.starts_with("worker-"));
        let sleeps = |awake: &mut Awake| *awake == Awake::Nobody || (*awake == Awake::Workers && !is_worker);
        drop(self.woken.wait_while(self.awake.lock().unwrap(), sleeps).unwrap());
        &self.time
    }
}

impl TimeSource for Napping {
    fn now(&self) -> Timestamp {
        self.time().now()
    }

    fn mono(&self) -> Mono {
        self.time().mono()
    }

    fn real(&self, d: Duration) -> Duration {
        self.time().real(d)
    }
}

#[test]
fn an_applier_suspended_past_its_lease_writes_nothing_afterwards() {
    let world = World::start(&Options::calm("overslept"));
    world.extend("echo", &charts::extension(), &json!({"greeting": "hello"}));
    let nap = Napping { time: world.time.clone(), awake: Mutex::new(Awake::All), woken: Condvar::new() };
    let nap = Arc::new(nap);
    let first =
        Agent::new(&world, "host-1", &world.config(), world.pod()).with_clock(Clock::new(nap.clone()));
    first.launch();
    let name = installed(&world, "echo");
    let second = second(&world);
    second.launch();
    // It is suspended during a reconciliation: it reads what to write.
    let reads = |seen: &Seen| seen.user == ACCOUNT && seen.method == "GET" && seen.info.resource == "secrets";
    let reads = world.seed.faults().when(reads).once().then(Action::Delay(Duration::from_secs(2)));
    greet(&world, "asleep");
    wait_for("the question before the write", || (reads.hits() == 1).then_some(()));
    nap.set(Awake::Nobody);
    taken(&world, SECOND);
    greet(&world, "still asleep");
    wait_for_greeting(&world, &name, "still asleep");

    let mark = world.seed.request_count();
    let late = || {
        let mut all = world.seed.requests_since(mark);
        all.retain(|r| r.host.starts_with(FIRST) && r.is_write() && !r.path.contains("/leases"));
        all.iter().map(Recorded::line).collect::<Vec<_>>()
    };
    nap.set(Awake::Workers);
    wait_for("the operation to continue", || {
        let labels = [("controller", "managedresource"), ("result", "postponed")];
        let metrics = first.metrics.lock().unwrap().clone();
        let is_refused = metrics.value("controller_runtime_reconcile_total", &labels).is_some();
        (is_refused || !late().is_empty()).then_some(())
    });
    nap.set(Awake::All);
    world.seed.wait_for("the first to look at the agents' lease", |seed| {
        let looks =
            |r: &Recorded| r.host.starts_with(FIRST) && r.path.ends_with("/gardenlet-leader-election");
        seed.requests_since(mark).iter().any(looks).then_some(())
    });
    greet(&world, "awake");
    wait_for_greeting(&world, &name, "awake");
    assert_eq!(late(), Vec::<String>::new(), "written after waking up");
    let [before, after] = each_wrote_in_its_time(&world);
    assert!(before > 0 && after > 0, "{before} and {after} writes");

    // It works normally afterwards.
    second.stop();
    greet(&world, "on duty again");
    wait_for_greeting(&world, &name, "on duty again");
    each_wrote_in_its_time(&world);
    first.stop();
}

/// The lease of a live gardener-resource-manager.
fn foreign(world: &World, duration: Duration) -> Value {
    let now = rfc3339_micro(world.clock.now());
    json!({"holderIdentity": "gardener-resource-manager-7d9f_x", "leaseDurationSeconds": duration.as_secs(),
        "acquireTime": now, "renewTime": now, "leaseTransitions": 3})
}

/// The time between the end of a foreign applier, whose lease is valid this long, and the moment when one of two agents has
/// the lease.
fn follows(name: &'static str, duration: Duration, end: impl Fn(&World)) -> (World, Duration) {
    let world = World::start(&Options::calm(name));
    world.extend("echo", &charts::extension(), &json!({"greeting": "hello"}));
    let lease = json!({"metadata": {"name": GRM.1, "namespace": GRM.0}, "spec": foreign(&world, duration)});
    world.seed.create("coordination.k8s.io/v1", "leases", &lease);
    let renew = || drop(world.seed.merge(LEASES, "leases", GRM, &json!({"spec": foreign(&world, duration)})));
    let (first, second) = (world.agent(), second(&world));
    world.seed.wait_for("a leader", |_| {
        renew();
        (crate::world::leader_renewed(&world.seed)).map(drop)
    });
    second.launch();
    world.seed.wait_for("work for an applier, and an agent that sees the other holder", |seed| {
        renew();
        let parts = first.status.lock().unwrap().parts();
        let is_passive =
            parts.get("managedresource-applier").is_some_and(|part| part.stage.contains("7d9f_x"));
        (is_passive && !seed.store().names(MANAGED_RESOURCES, "managedresources", "garden").is_empty())
            .then_some(())
    });
    assert_eq!(each_wrote_in_its_time(&world), [0, 0]);
    let ended = world.clock.now();
    renew();
    end(&world);
    let took = taken(&world, FIRST).since(ended);
    installed(&world, "echo");
    let [wrote, other] = each_wrote_in_its_time(&world);
    assert!(wrote > 0 && other == 0, "{wrote} and {other} writes");
    first.stop();
    second.stop();
    (world, took)
}

#[test]
fn a_crashed_foreign_applier_is_replaced_after_its_lease_expired() {
    let (world, took) = follows("bereft", LEASE, |_| ());
    // Not before: the holder could be alive.
    assert!(took >= LEASE, "{took:?}");
    world.measured("until an agent has the lease of a crashed applier", took, 2 * LEASE);
}

#[test]
fn a_foreign_applier_that_releases_its_lease_is_replaced_earlier() {
    // Whoever waits for the end of this lease waits in vain.
    let (world, took) = follows("bequeathed", 1_000 * LEASE, |world| {
        let spec = json!({"holderIdentity": "", "leaseDurationSeconds": 1});
        world.seed.merge(LEASES, "leases", GRM, &json!({"spec": spec}));
    });
    world.measured("until an agent has a released lease", took, LEASE);
}
