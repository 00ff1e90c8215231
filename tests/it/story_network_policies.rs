//! Allowed traffic in a seed: NetworkPolicies are written, maintained, and deleted with the objects that need them. No
//! garden is needed.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};

use crate::player::GROUP;
use crate::role::put_garden_into;
use crate::upstream::{GRM_HOLDER, resource_manager_renews};
use crate::world::{Agent, Options, World, is_write_of_agent};
use support::TestCluster;
use support::cluster::PATIENCE;
use support::garden::prepare;
use support::http::faults::{Action, Seen};
use support::http::record::Recorded;
use support::json::{list, text};
use support::pace;
use support::policies::{CENTRAL, EXTENSION, OF_EXTENSION, OF_SHOOT, SHOOT, cluster, namespace, plane, pod};
use support::shoot::history::wait_until_created;
use support::shoot::object::{PROJECT_NAMESPACE, ShootObject, technical_id};

const POLICIES: (&str, &str) = ("networking.k8s.io", "networkpolicies");
fn config(world: &World) -> Value {
    let mut config = world.config();
    config["leaderElection"] = json!({"leaderElect": false});
    config["seedConfig"]["spec"]["networks"]["blockCIDRs"] = json!(["169.254.169.254/32"]);
    config
}

fn started(name: &'static str, change: impl FnOnce(&mut Value)) -> (World, Agent) {
    let world = World::start(&Options::calm(name));
    let mut config = config(&world);
    change(&mut config);
    let agent = world.agent_with(&config);
    (world, agent)
}

fn names(seed: &TestCluster, namespace: &str) -> BTreeSet<String> {
    let all = seed.store().all(POLICIES.0, POLICIES.1, namespace);
    all.iter().map(|policy| text(policy, "/metadata/name").to_owned()).collect()
}

fn both(first: &[&str], second: &[&str]) -> BTreeSet<String> {
    first.iter().chain(second).map(|name| (*name).to_owned()).collect()
}

fn wait_for_names(world: &World, namespace: &str, expected: &BTreeSet<String>) {
    let has_them = |seed: &TestCluster| (names(seed, namespace) == *expected).then_some(());
    let found = world.seed.wait_on(&pace::clock(), PATIENCE, has_them);
    assert!(found.is_some(), "{namespace}: {:?} instead of {expected:?}", names(&world.seed, namespace));
}

fn policy(seed: &TestCluster, namespace: &str, name: &str) -> Option<Value> {
    seed.get(POLICIES.0, POLICIES.1, namespace, name)
}

fn spec(world: &World, name: &str) -> Value {
    policy(&world.seed, SHOOT, name).unwrap()["spec"].clone()
}

/// In all closed namespaces; policies of Services are only in one.
fn wait_for_spec(world: &World, what: &str, name: &str, is_right: impl Fn(&Value) -> bool) {
    world.seed.wait_for(what, |seed| {
        let all = ["garden", SHOOT, EXTENSION].map(|namespace| policy(seed, namespace, name));
        (all[1].is_some() && all.iter().flatten().all(|policy| is_right(&policy["spec"]))).then_some(())
    });
}

/// [`plane`], and the role for Shoots.
fn put(world: &World) {
    world.seed.apply(&prepare::access().1);
    world.seed.apply(&plane());
}

/// Waits until definitions exist, and puts [`plane`] into the seed.
fn put_plane(world: &World) {
    world.seed.wait_for("the definition of Clusters", |seed| seed.api().kind(GROUP, "clusters").map(drop));
    world.seed.apply(&[cluster("100.64.0.0/13")]);
    put(world);
}

fn wait_for_all(world: &World) {
    wait_for_names(world, "garden", &both(&CENTRAL, &[]));
    wait_for_names(world, SHOOT, &both(&CENTRAL, &OF_SHOOT));
    wait_for_names(world, EXTENSION, &both(&CENTRAL, &OF_EXTENSION));
}

fn writes(world: &World, mark: usize) -> Vec<String> {
    let requests = world.seed.requests_since(mark);
    let ours = requests.iter().filter(|r| r.info.resource == POLICIES.1 && r.is_write());
    ours.map(Recorded::line).collect()
}

#[test]
fn policies_are_created_kept_and_deleted_with_the_objects_that_need_them() {
    let (world, agent) = started("policed", |config| {
        let selectors = json!([{"matchLabels": {"team": "platform"}}]);
        config["controllers"]["networkPolicy"] =
            json!({"concurrentSyncs": 2, "additionalNamespaceSelectors": selectors});
    });
    put_plane(&world);
    let mut platform = namespace("platform", "none");
    platform["metadata"]["labels"]["team"] = json!("platform");
    world.seed.apply(&[platform]);
    wait_for_all(&world);
    wait_for_names(&world, "platform", &both(&CENTRAL, &[]));
    for open in ["default", "kube-system"] {
        assert_eq!(names(&world.seed, open), BTreeSet::new(), "{open}");
    }
    let to = json!([{"ipBlock": {"cidr": "10.50.0.1/32"}}]);
    let expected = json!([{"to": to, "ports": [{"port": 6443, "protocol": "TCP"}]}]);
    assert_eq!(spec(&world, "allow-to-runtime-apiserver")["egress"], expected);
    let private = spec(&world, "allow-to-private-networks");
    assert_eq!(private["egress"][0]["to"][3]["ipBlock"]["except"], json!(["100.64.0.0/13"]));

    // Changed and deleted by hand; fields of others stay, and so do their own policies.
    let own = json!({"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy",
        "metadata": {"namespace": SHOOT, "name": "own"}, "spec": {"podSelector": {}, "policyTypes": ["Ingress"]}});
    world.seed.apply(&[own]);
    let changed = json!({"metadata": {"labels": {"mine": "yes"}}, "spec": {"egress": [{}], "ingress": [{}]}});
    for name in ["allow-to-dns", "egress-to-kube-apiserver-tcp-443"] {
        let before = spec(&world, name);
        world.seed.merge(POLICIES.0, POLICIES.1, (SHOOT, name), &changed);
        world.seed.wait_for("the change to be undone", |_| (spec(&world, name) == before).then_some(()));
        assert_eq!(policy(&world.seed, SHOOT, name).unwrap()["metadata"]["labels"]["mine"], "yes");
    }
    world.seed.delete(POLICIES.0, POLICIES.1, SHOOT, "deny-all");
    world.seed.wait_for("deny-all again", |seed| policy(seed, SHOOT, "deny-all"));

    // Policies that are not needed any longer are deleted soon.
    let begin = world.clock.mono();
    world.seed.delete("", "pods", SHOOT, "manager");
    let less: BTreeSet<String> = both(&CENTRAL, &OF_SHOOT)
        .into_iter()
        .filter(|name| !name.ends_with("kube-apiserver-tcp-443"))
        .collect();
    let less_and_own: BTreeSet<String> = less.iter().cloned().chain(["own".to_owned()]).collect();
    wait_for_names(&world, SHOOT, &less_and_own);
    world.measured(
        "until policies without need are gone",
        world.clock.mono() - begin,
        Duration::from_secs(10),
    );
    // Other needs, in both namespaces.
    world.seed.merge(
        "",
        "pods",
        (EXTENSION, "extension"),
        &json!({"metadata": {"labels": {
        "networking.resources.gardener.cloud/to-all-shoots-kube-apiserver-tcp-443": null}}}),
    );
    wait_for_names(&world, EXTENSION, &both(&CENTRAL, &OF_EXTENSION[1..]));
    world.seed.wait_for("the other side", |seed| policy(seed, SHOOT, OF_SHOOT[4]).is_none().then_some(()));
    world.seed.apply(&[pod(EXTENSION, "other", &["all-shoots-kube-apiserver-tcp-443"])]);
    wait_for_names(&world, EXTENSION, &both(&CENTRAL, &OF_EXTENSION));
    world.seed.wait_for("the other side", |seed| policy(seed, SHOOT, OF_SHOOT[4]));
    // The Service is deleted, and its port changes.
    world.seed.delete("", "services", SHOOT, "kube-apiserver-exposure");
    world.seed.wait_for("the end of access from outside", |seed| {
        policy(seed, SHOOT, OF_SHOOT[2]).is_none().then_some(())
    });
    let port = json!([{"port": 443, "protocol": "TCP", "targetPort": 8443}]);
    world.seed.merge("", "services", (SHOOT, "kube-apiserver"), &json!({"spec": {"ports": port}}));
    wait_for_names(&world, EXTENSION, &both(&CENTRAL, &OF_EXTENSION[1..]));

    // A namespace that no longer belongs to Gardener.
    world.seed.merge("", "namespaces", ("", "platform"), &json!({"metadata": {"labels": {"team": null}}}));
    wait_for_names(&world, "platform", &BTreeSet::new());
    // A namespace is deleted: its policies are deleted with it, and are not written again. The policies of its peers
    // are adjusted.
    world.seed.delete("", "namespaces", "", SHOOT);
    wait_for_names(&world, SHOOT, &BTreeSet::new());
    wait_for_names(&world, EXTENSION, &both(&CENTRAL, &[]));
    agent.stop();
    let mark = world.seed.request_count();
    agent.launch();
    agent.wait_until_the_seed_side_runs();
    world.skip(Duration::from_secs(60));
    assert_eq!(writes(&world, mark), Vec::<String>::new(), "all policies are correct already");
    agent.stop();
}

#[test]
fn policies_follow_the_networks_and_the_api_server_while_the_garden_is_away() {
    let (world, agent) = started("moving-on", |_| {});
    world.garden.server().down();
    put_plane(&world);
    wait_for_all(&world);
    let subsets = |ip: &str| {
        json!({"subsets": [{"addresses": [{"ip": ip}, {"ip": "10.50.0.1"}],
        "ports": [{"name": "https", "port": 6443, "protocol": "TCP"}]}]})
    };
    world.seed.merge("", "endpoints", ("default", "kubernetes"), &subsets("10.50.0.9"));
    world.skip(Duration::from_secs(34));
    wait_for_spec(&world, "the other address", "allow-to-runtime-apiserver", |spec| {
        list(spec, "/egress/0/to").iter().any(|to| to["ipBlock"]["cidr"] == "10.50.0.9/32")
    });
    // The last known address stays while there is none.
    world.seed.merge("", "endpoints", ("default", "kubernetes"), &json!({"subsets": null}));
    let mark = world.seed.request_count();
    world.skip(Duration::from_secs(70));
    assert_eq!(writes(&world, mark), Vec::<String>::new());
    world.wait_for_log(&["Endpoints default/kubernetes of the seed have no address"]);
    world.seed.merge("", "endpoints", ("default", "kubernetes"), &subsets("10.50.0.8"));
    let mut other = config(&world);
    let networks = &mut other["seedConfig"]["spec"]["networks"];
    (networks["blockCIDRs"], networks["ipFamilies"]) = (json!(["192.168.0.0/24"]), json!(["IPv4"]));
    agent.reload(&other);
    wait_for_spec(&world, "the other networks", "allow-to-blocked-cidrs", |spec| {
        spec["egress"][0]["to"][0]["ipBlock"]["cidr"] == "192.168.0.0/24"
    });
    let without = ["10.51.0.0/16", "10.52.0.0/16", "10.50.0.0/16"];
    wait_for_spec(&world, "the networks of the seed", "allow-to-private-networks", |spec| {
        spec["egress"][0]["to"][0]["ipBlock"]["except"] == json!(without)
    });
    wait_for_spec(&world, "the last address", "allow-to-runtime-apiserver", |spec| {
        list(spec, "/egress/0/to").iter().any(|to| to["ipBlock"]["cidr"] == "10.50.0.8/32")
    });
    agent.stop();
}

/// The applier of ManagedResources owns the policies of Services.
#[test]
fn a_resource_manager_writes_policies_of_services() {
    let (world, agent) = started("left", |config| config["edge"]["resourceManager"] = json!("External"));
    put_plane(&world);
    for namespace in ["garden", SHOOT, EXTENSION] {
        wait_for_names(&world, namespace, &both(&CENTRAL, &[]));
    }
    world.skip(Duration::from_secs(10));
    assert_eq!(names(&world.seed, SHOOT), both(&CENTRAL, &[]));
    let watched =
        |r: &Recorded| r.info.verb == "watch" && ["pods", "services"].contains(&r.info.resource.as_str());
    assert!(!world.seed.requests().iter().any(watched), "no watch is needed");
    agent.stop();

    // The default depends on the holder of the lease: while the holder may be dead, no namespace is closed.
    let world = World::start(&Options::calm("shared"));
    let lease = json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": {"namespace": "garden", "name": "gardener-resource-manager"},
        "spec": {"holderIdentity": GRM_HOLDER, "leaseDurationSeconds": 15, "leaseTransitions": 1}});
    world.seed.apply(&[lease]);
    resource_manager_renews(&world);
    let agent = world.agent_with(&config(&world));
    put_plane(&world);
    wait_for_names(&world, SHOOT, &both(&CENTRAL[..5], &[]));
    wait_for_names(&world, "garden", &both(&CENTRAL[..5], &[]));
    for _ in 0..8 {
        resource_manager_renews(&world);
        world.skip(Duration::from_secs(4));
    }
    wait_for_names(&world, SHOOT, &both(&CENTRAL, &[]));
    // It ends: the agent takes over.
    for _ in 0..8 {
        world.skip(Duration::from_secs(4));
    }
    wait_for_all(&world);
    agent.stop();
}

/// Another program writes the central policies there.
#[test]
fn a_garden_writes_its_own_central_policies() {
    let world = World::start(&Options::calm("hosting"));
    put_garden_into(&world.seed);
    let agent = world.agent_with(&config(&world));
    world.seed.wait_for("the definition of Clusters", |seed| seed.api().kind(GROUP, "clusters").map(drop));
    put(&world);
    wait_for_names(&world, SHOOT, &both(&[], &OF_SHOOT));
    wait_for_names(&world, EXTENSION, &both(&[], &OF_EXTENSION));
    world.skip(Duration::from_secs(5));
    assert_eq!(names(&world.seed, "garden"), BTreeSet::new());
    agent.stop();
}

/// A Shoot of the agent: each pod has the access it needs, and clients come from outside.
#[test]
fn the_control_plane_of_a_shoot_is_closed() {
    let world = World::start(&Options::new("closed"));
    let site = world.site();
    let mut config = world.edge_config();
    config["edge"]["exposure"] = json!({"type": "NodePort", "address": "127.0.0.1"});
    let agent = world.agent_of(&site, &config);
    agent.launch();
    world.wait_until_ready();
    world.garden.apply(&[ShootObject::workerless("closed").build()]);
    wait_until_created(&world.garden, (PROJECT_NAMESPACE, "closed"));
    let asked = [
        "egress-to-etcd-events-client-tcp-2379",
        "egress-to-etcd-main-client-tcp-2379",
        "egress-to-kube-apiserver-tcp-443",
        "ingress-to-etcd-events-client-tcp-2379",
        "ingress-to-etcd-main-client-tcp-2379",
        "ingress-to-kube-apiserver-exposure-from-world",
        "ingress-to-kube-apiserver-tcp-443",
    ];
    let namespace = technical_id("closed");
    wait_for_names(&world, &namespace, &both(&CENTRAL, &asked));
    // Changes of the networks in the `Cluster` take effect.
    let cluster = world.seed.get(GROUP, "clusters", "", &namespace).unwrap();
    let services = text(&cluster, "/spec/shoot/spec/networking/services").to_owned();
    let private = policy(&world.seed, &namespace, "allow-to-private-networks").unwrap();
    assert!(private["spec"].to_string().contains(&services), "{services} {private}");
    agent.stop();
}

/// Checks each policy when it is written: a namespace is closed only when no other policy is missing.
struct Order {
    writes: AtomicUsize,
    at: AtomicUsize,
    wrong: Mutex<Vec<String>>,
    closed: AtomicUsize,
}

#[test]
fn a_namespace_is_closed_only_after_all_needed_traffic_is_allowed() {
    let world = World::start(&Options::calm("ordered"));
    let agent = Arc::new(Agent::new(&world, "host-1", &config(&world), world.pod()));
    agent.launch();
    put_plane(&world);
    wait_for_all(&world);
    agent.stop();
    let order = Arc::new(Order {
        writes: AtomicUsize::new(0),
        at: AtomicUsize::new(usize::MAX),
        wrong: Mutex::default(),
        closed: AtomicUsize::new(0),
    });
    let (known, store, killed) = (order.clone(), world.seed.store().clone(), agent.clone());
    let look = move |seen: &Seen| {
        let name = seen.body.as_ref().map_or("", |body| text(body, "/metadata/name"));
        let namespace = seen.info.namespace.as_str();
        let expected = match namespace {
            SHOOT => both(&CENTRAL, &OF_SHOOT),
            EXTENSION => both(&CENTRAL, &OF_EXTENSION),
            _ => both(&CENTRAL, &[]),
        };
        if name == "deny-all" {
            known.closed.fetch_add(1, Ordering::SeqCst);
            let all = store.all(POLICIES.0, POLICIES.1, namespace);
            let there: BTreeSet<String> =
                all.iter().map(|policy| text(policy, "/metadata/name").to_owned()).collect();
            if there != expected {
                known.wrong.lock().unwrap().push(format!("{namespace}: {there:?}"));
            }
        }
        if known.writes.fetch_add(1, Ordering::SeqCst) == known.at.load(Ordering::SeqCst) {
            killed.cable().cut();
        }
    };
    let concerns = |seen: &Seen| is_write_of_agent(seen) && seen.info.resource == POLICIES.1;
    world.seed.faults().when(concerns).then(Action::TellAfter(Arc::new(look)));
    let remove = || {
        for namespace in ["garden", SHOOT, EXTENSION] {
            for name in names(&world.seed, namespace) {
                world.seed.delete(POLICIES.0, POLICIES.1, namespace, &name);
            }
        }
    };
    let count = CENTRAL.len() * 3 + OF_SHOOT.len() + OF_EXTENSION.len();
    for at in 0..count {
        remove();
        let mark = world.seed.request_count();
        order.writes.store(0, Ordering::SeqCst);
        order.at.store(at, Ordering::SeqCst);
        agent.launch();
        world.seed.wait_for("the kill", |_| (order.writes.load(Ordering::SeqCst) > at).then_some(()));
        agent.crash();
        // The server completes requests that it has started, also without the agent.
        world.seed.wait_for("the end of the last writes", |seed| {
            let requests = seed.requests_since(mark);
            requests.iter().filter(|r| r.is_write()).all(|r| r.ended).then_some(())
        });
        assert_eq!(*order.wrong.lock().unwrap(), Vec::<String>::new(), "killed after write {at}");
    }
    order.at.store(usize::MAX, Ordering::SeqCst);
    agent.launch();
    wait_for_all(&world);
    agent.stop();
    assert_eq!(*order.wrong.lock().unwrap(), Vec::<String>::new());
    assert!(order.closed.load(Ordering::SeqCst) > count / 3, "{:?}", order.closed);
}
