//! The care of 250 healthy Shoots costs seed and garden very little, also if they have pools of hosts.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use crate::nodes::Nodes;
use crate::world::{AGENT, CORE, Options, World};
use support::controllers::Share;
use support::garden::manager;
use support::http::record::Recorded;
use support::json::list;
use support::options::is_long;
use support::shoot::crowd::{self, Crowd};
use support::shoot::object::{self, PROJECT_NAMESPACE};
use support::{TestCluster, pace};

const SHOOTS: usize = 250;
/// With pools, unless the run is long.
const SHOOTS_WITH_POOLS: usize = 60;
/// How long they are looked at: two periods of care, one minute each.
const PERIODS: Duration = Duration::from_secs(120);
/// How much longer the requests to them are counted in a long run, so that workloads are listed twice.
const LONGER: Duration = Duration::from_secs(480);
/// What was applied just now is checked more often.
const CALM_AFTER: Duration = Duration::from_secs(60);
/// Requests to each of them per minute, and those about nodes and workloads in addition.
const EACH_MAX: f64 = 6.0;
const OF_NODES_MAX: f64 = 2.0;
/// Beyond that time, each kind of workloads may have been listed once more.
const OF_WORKLOADS_ONCE: f64 = 2.0;
const SETTLE_TIME_MAX: Duration = Duration::from_secs(180);

#[test]
fn the_care_of_many_shoots_is_shared() {
    costs_little("shoot-crowd", Nodes::Nobody, SHOOTS);
}

/// In each period, care lists the nodes; in each third one, it asks a kubelet. The applier lists workloads every five minutes.
#[test]
fn the_care_of_many_shoots_with_pools_is_shared() {
    let count = if is_long() { SHOOTS } else { SHOOTS_WITH_POOLS };
    costs_little("shoot-crowd-of-hosts", Nodes::Hosts, count);
}

fn costs_little(name: &'static str, nodes: Nodes, count: usize) {
    let world = World::start(&Options::calm(name));
    object::prepare_garden(&world.garden);
    nodes.prepare(&world);
    object::prepare_seed(&world.seed);
    let crowd = Crowd::new(count, nodes == Nodes::Hosts, &world.clock);
    let mut config = nodes.config(&world);
    config["controllers"]["shoot"] = json!({"respectSyncPeriodOverwrite": true});
    // The agent reads the Secrets of each Shoot once.
    config["controllers"]["shootState"] = json!({"concurrentSyncs": 0});
    let agent = world.agent_with(&config);
    world.wait_until_ready();
    world.seed.set_share(Share::none());
    world.garden.set_manager_share(manager::Share::none());
    crowd.settle(&world.garden, &world.seed, world.name);
    // Each is reconciled once, and its namespace gets its policies: some thousand requests, on a machine that may be
    // busy.
    let is_well = |shoot: &Arc<Value>| {
        let conditions = list(shoot, "/status/conditions");
        conditions.len() == crowd.conditions() && conditions.iter().all(|c| c["status"] == "True")
    };
    let ill = |garden: &TestCluster| {
        let mut shoots = garden.store().all(CORE, "shoots", PROJECT_NAMESPACE);
        shoots.retain(|shoot| !is_well(shoot));
        shoots
    };
    let is_settled = |garden: &TestCluster| ill(garden).is_empty().then_some(());
    let settled = world.garden.wait_on(&pace::clock(), SETTLE_TIME_MAX, is_settled);
    let left = ill(&world.garden);
    assert!(
        settled.is_some(),
        "{} Shoots are not well, as {:?}",
        left.len(),
        left.first().map(|s| &s["status"])
    );
    // The garden completes each Shoot at its first write, and the agent then writes its Cluster.
    let are_told = |seed: &TestCluster| {
        let is_told = |n: usize| {
            let shoot = world.garden.get(CORE, "shoots", PROJECT_NAMESPACE, &crowd::name(n))?;
            let cluster = seed.get("extensions.gardener.cloud", "clusters", "", &crowd::plane(n))?;
            let told = &cluster["spec"]["shoot"]["metadata"]["generation"];
            (*told == shoot["metadata"]["generation"]).then_some(())
        };
        (0..count).all(|n| is_told(n).is_some()).then_some(())
    };
    let told = world.seed.wait_on(&pace::clock(), SETTLE_TIME_MAX, are_told);
    assert!(told.is_some(), "not each Cluster has the generation of its Shoot");
    world.let_pass(CALM_AFTER);
    let (garden, seed, shoots) =
        (world.garden.request_count(), world.seed.request_count(), crowd.server.request_count());
    let begun = world.clock.mono();
    world.let_pass(PERIODS);
    // /healthz twice a minute, webhooks of two kinds once.
    let looked = crowd.server.request_count() - shoots;
    assert!(looked >= count * 7, "{looked} looks at {count} Shoots");
    let minutes = (world.clock.mono() - begun).as_secs_f64() / 60.0;

    let of_shoots = |r: &&Recorded| r.info.resource == "shoots" && r.info.verb != "watch";
    let asked = world.garden.requests_since(garden);
    assert_eq!(asked.iter().filter(of_shoots).map(Recorded::line).collect::<Vec<_>>(), Vec::<String>::new());
    let mut asked = BTreeMap::<String, usize>::new();
    for request in world.seed.requests_since(seed).iter().filter(|r| r.user == AGENT && !r.is_write()) {
        *asked.entry(format!("{} {}", request.info.verb, request.info.resource)).or_default() += 1;
    }
    // What is well is not read again.
    let is_reread = |r: &&Recorded| r.info.resource == "managedresources" && r.info.verb == "get";
    let reread = world.seed.requests_since(seed).iter().filter(is_reread).count();
    assert!(reread < count / 2, "{reread} ManagedResources were read");
    // Two pages of each list in half a minute; `shoot-serving` checks two Deployments of each Shoot every two minutes.
    let lists = |kind: &str| asked.get(&format!("list {kind}")).copied().unwrap_or(0) as f64;
    let lists_max = 2.0 * 2.5 * (minutes + 1.0);
    for kind in ["deployments", "statefulsets", "extensions"] {
        assert!((1.0..=lists_max).contains(&lists(kind)), "{kind}: {asked:?} in {minutes:.1} minutes");
    }
    for nothing in ["get clusters", "list secrets", "get leases", "list backupentries"] {
        let of_care = asked.get(nothing).copied().unwrap_or(0);
        assert!(of_care < count / 2, "{nothing}: {asked:?}");
    }
    // No etcd-druid runs an etcd here.
    assert_eq!(asked.get("list etcds"), None, "{asked:?}");
    if is_long() {
        world.let_pass(LONGER);
    }
    let minutes = (world.clock.mono() - begun).as_secs_f64() / 60.0;
    // At most every Shoot's share, and occasional requests for pods and definitions.
    let asked = crowd.server.requests_since(shoots);
    let is_of_nodes =
        |r: &Recorded| ["nodes", "deployments", "daemonsets"].contains(&r.info.resource.as_str());
    let mut of_each = BTreeMap::<String, usize>::new();
    asked
        .iter()
        .for_each(|r| *of_each.entry(format!("{} {}", r.info.verb, r.info.resource)).or_default() += 1);
    let (of_nodes, others): (Vec<Recorded>, Vec<Recorded>) = asked.into_iter().partition(is_of_nodes);
    assert_eq!(of_nodes.is_empty(), nodes == Nodes::Nobody);
    assert!(of_nodes.iter().chain(&others).all(|r| r.info.verb != "watch"), "a watch of the nodes");
    // One kubelet every two and a half minutes.
    let asked_kubelets = of_nodes.iter().filter(|r| r.info.subresource == "proxy").count() as f64;
    let asked_max = count as f64 * (minutes / 2.5 + 1.0);
    assert!(asked_kubelets <= asked_max, "{asked_kubelets} kubelets in {minutes:.1} minutes");
    for (requests, each_max, once) in [(others, EACH_MAX, 0.0), (of_nodes, OF_NODES_MAX, OF_WORKLOADS_ONCE)] {
        let within_max = count as f64 * (minutes * each_max + once);
        let within = requests.len() as f64;
        assert!(within <= within_max, "{within} in {minutes:.1} minutes: {of_each:?}");
    }
    agent.stop();
}
