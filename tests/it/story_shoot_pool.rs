//! Shoots whose nodes are hosts of the site: what only they have.

use std::time::Duration;

use gardenlet::api::gardener::SHOOT;
use gardenlet::api::meta::Key;
use gardenlet::kube::DeleteParams;
use serde_json::{Value, json};

use crate::charts;
use crate::nodes::{HOST, Nodes, join_at};
use crate::story_seed_objects::answer_in;
use crate::story_shoot_delete::Scene;
use crate::story_shoot_others::wait_for_task;
use crate::story_shoot_rotation::{ask_for, created_with, secrets, wait_for_phases};
use crate::world::{CORE, MANAGED_RESOURCES, Options, World};
use support::TestCluster;
use support::api::subresource::UNREACHED;
use support::controllers::workloads::HOLD;
use support::garden::prepare;
use support::http::record::Recorded;
use support::json::{list, text};
use support::shoot::history::{wait_until, wait_until_created};
use support::shoot::object::{PROJECT_NAMESPACE, technical_id};

const NAME: &str = "s1";
const PLACE: (&str, &str) = (PROJECT_NAMESPACE, NAME);
const GROUP: &str = "extensions.gardener.cloud";
const EXTENSIONS: &str = "extensions";
pub(crate) const AGENTS: (&str, &str) = ("kube-system", "konnectivity-agent");
const DNS: (&str, &str) = ("kube-system", "coredns");
/// Unhealthy objects are checked each minute.
const MADE_AGAIN_MINUTES_MAX: usize = 5;
/// The components on nodes that a site may ask for.
const OPTIONAL: [&str; 2] = ["node-exporter", "node-problem-detector"];
pub(crate) const FOLLOWED: &str = "Waiting until the agents of the tunnel have followed the rotation of CAs";

#[test]
fn a_shoot_with_a_pool_is_created_and_deleted() {
    let scene = Scene::of_hosts("shoot-pool");
    scene.create();
    let shoot = wait_until_created(&scene.world.garden, PLACE);
    assert_eq!(shoot["status"]["networking"]["nodes"], json!(["10.67.0.0/24"]));
    scene.fill();
    scene.delete();
    scene.wait_until_gone();
}

/// A condition of the Shoot: its status and its message.
fn condition(world: &World, kind: &str) -> Option<(String, String)> {
    let shoot = world.garden.get(CORE, "shoots", PLACE.0, PLACE.1)?;
    let found = list(&shoot, "/status/conditions").iter().find(|condition| condition["type"] == kind)?;
    Some((text(found, "/status").to_owned(), text(found, "/message").to_owned()))
}

fn wait_for_condition(world: &World, kind: &str, status: &str) -> String {
    world.garden.wait_for(&format!("{kind} {status}"), |_| {
        world.time.advance(Duration::from_secs(1));
        condition(world, kind).filter(|found| found.0 == status).map(|found| found.1)
    })
}

/// Conditions tell of nodes, the way to them and what runs on them. The site adds optional components and removes them again.
#[test]
fn nodes_and_the_way_to_them_are_conditions() {
    let world = World::start(&Options::new("shoot-nodes"));
    let site = world.site();
    let shoot = Nodes::Hosts.shoot(&world, NAME);
    let mut config = Nodes::Hosts.config(&world);
    config["edge"]["components"] = json!({"nodes": OPTIONAL});
    let agent = world.agent_of(&site, &config);
    agent.launch();
    world.wait_until_ready();
    world.garden.apply(&[shoot.build()]);
    wait_until_created(&world.garden, PLACE);
    let told = wait_for_condition(&world, "EveryNodeReady", "False");
    assert_eq!(
        told,
        "Not enough worker nodes registered in worker pool \"pool\" to meet minimum desired machine count. (0/1)."
    );
    join_at(&world, &site, NAME);
    wait_for_condition(&world, "EveryNodeReady", "True");
    wait_for_condition(&world, "SystemComponentsHealthy", "True");

    let cluster = &site.server(&technical_id(NAME)).unwrap().cluster;
    let lost = |why: Value| {
        cluster.merge("", "nodes", ("", HOST), &json!({"metadata": {"annotations": {UNREACHED: why}}}));
    };
    lost(json!("no agent available"));
    let told = wait_for_condition(&world, "SystemComponentsHealthy", "False");
    assert!(told.contains("kubelet of node h1") && told.contains("no agent available"), "{told}");
    lost(Value::Null);
    wait_for_condition(&world, "SystemComponentsHealthy", "True");

    let ready = |status: &str| {
        let condition = json!({"type": "Ready", "status": status, "reason": "NodeStatusUnknown",
            "message": "Kubelet stopped posting node status."});
        cluster.merge_status("", "nodes", ("", HOST), &json!({"status": {"conditions": [condition]}}));
    };
    ready("Unknown");
    let told = wait_for_condition(&world, "EveryNodeReady", "False");
    assert!(told.contains("Kubelet stopped posting node status."), "{told}");
    ready("True");
    wait_for_condition(&world, "EveryNodeReady", "True");
    workloads_are_conditions(&world, cluster);
    assert_eq!(optional(cluster), OPTIONAL);
    agent.stop();

    let agent = world.agent_of(&site, &Nodes::Hosts.config(&world));
    agent.launch();
    world.wait_until_ready();
    ask_for(&world, "reconcile");
    cluster.wait_for("no optional components", |cluster| optional(cluster).is_empty().then_some(()));
    assert_eq!(site.complaints(), Vec::<String>::new());
    agent.stop();
}

/// The applier lists the workloads of a healthy Shoot. What it cannot list, it reads one by one.
fn workloads_are_conditions(world: &World, cluster: &TestCluster) {
    let (asked, lists) = (cluster.request_count(), "/apis/apps/v1/deployments");
    let broken = cluster.faults().on("GET", lists).answer(500);
    let available = |status: &str| {
        let conditions = json!([{"type": "Available", "status": status, "reason": "MinimumReplicasUnavailable"},
            {"type": "Progressing", "status": "True", "reason": "NewReplicaSetAvailable"}]);
        cluster.merge_status("apps", "deployments", DNS, &json!({"status": {"conditions": conditions}}));
    };
    available("False");
    let told = wait_for_condition(world, "SystemComponentsHealthy", "False");
    assert!(told.contains("coredns"), "{told}");
    let refused = |r: &Recorded| r.path.starts_with(lists) && r.status == 500;
    assert!(cluster.requests_since(asked).iter().any(refused), "no list was refused");
    is_made_again_while_ill(world, cluster);
    available("True");
    wait_for_condition(world, "SystemComponentsHealthy", "True");
    broken.cancel();
}

/// What is deleted while it is unhealthy does not wait for the next full apply.
fn is_made_again_while_ill(world: &World, cluster: &TestCluster) {
    // The applier has done what it does about a new fault.
    world.pass(Duration::from_secs(90));
    let begun = world.clock.mono();
    cluster.delete("apps", "deployments", DNS.0, DNS.1);
    cluster.wait_for("another Deployment", |cluster| {
        world.time.advance(Duration::from_secs(1));
        cluster.get("apps", "deployments", DNS.0, DNS.1)
    });
    let minutes = world.minutes_since(begun);
    assert!(minutes <= MADE_AGAIN_MINUTES_MAX, "after {minutes} minutes");
}

/// The optional components that the nodes have.
fn optional(cluster: &TestCluster) -> Vec<String> {
    let all = cluster.store().all("apps", "daemonsets", DNS.0);
    let mut names: Vec<String> = all.iter().map(|it| text(it, "/metadata/name").to_owned()).collect();
    names.retain(|name| OPTIONAL.contains(&name.as_str()));
    names.sort();
    names
}

/// An agent of the tunnel that has the old certificate would never get in again.
#[test]
fn a_rotation_is_completed_once_the_agents_of_the_tunnel_have_followed() {
    let world = World::start(&Options::new("shoot-followed"));
    let site = world.site();
    let shoot = Nodes::Hosts.shoot(&world, NAME);
    let agent = created_with(&world, &site, (Nodes::Hosts, shoot));
    let cluster = &site.server(&technical_id(NAME)).unwrap().cluster;
    cluster.wait_for("the agents of the tunnel", |cluster| {
        let agents = cluster.get("apps", "daemonsets", AGENTS.0, AGENTS.1)?;
        (agents["status"]["numberReady"] == 1).then_some(())
    });
    let agents = |hold: Value| {
        cluster.merge("apps", "daemonsets", AGENTS, &json!({"metadata": {"annotations": {HOLD: hold}}}));
    };
    // Its agent is not replaced.
    agents(json!("yes"));
    ask_for(&world, "rotate-ca-start");
    wait_for_phases(&world, &[("certificateAuthorities", "Prepared")]);
    ask_for(&world, "rotate-ca-complete");
    wait_for_task(&world, FOLLOWED);
    let server = |world: &World| {
        world.seed.get("apps", "deployments", &technical_id(NAME), "kube-apiserver").unwrap()["metadata"]
            ["generation"]
            .clone()
    };
    let before = server(&world);
    world.skip(Duration::from_secs(60));
    assert_eq!(server(&world), before, "the API server has lost the old CA");
    agents(Value::Null);
    wait_for_phases(&world, &[("certificateAuthorities", "Completed")]);
    assert_ne!(server(&world), before);
    assert_eq!(site.complaints(), Vec::<String>::new());
    agent.stop();
}

/// Extensions at each moment of the life of a Shoot with nodes, none of which is for Shoots without.
#[test]
fn extensions_of_a_shoot_with_a_pool_work_at_their_time() {
    let world = World::start(&Options::new("shoot-pool-extended"));
    let site = world.site();
    for (name, lifecycle) in [
        ("early", json!({"reconcile": "BeforeKubeAPIServer", "delete": "AfterKubeAPIServer"})),
        ("plain", json!({})),
        ("late", json!({"reconcile": "AfterWorker", "delete": "BeforeKubeAPIServer"})),
    ] {
        let mut objects = prepare::extension(name, &charts::extension(), &json!({"greeting": "hello"}));
        let resource = &mut objects[1]["spec"]["resources"][0];
        resource["autoEnable"] = json!(["shoot"]);
        resource["lifecycle"] = lifecycle;
        world.garden.apply(&objects);
    }
    let shoot = Nodes::Hosts.shoot(&world, NAME);
    let agent = world.agent_of(&site, &Nodes::Hosts.config(&world));
    agent.launch();
    world.wait_until_ready();
    world.garden.apply(&[shoot.build()]);
    let (plane, seed) = (technical_id(NAME), &world.seed);
    let has_server = || seed.get("apps", "deployments", &plane, "kube-apiserver").is_some();
    wait_for_task(&world, "Waiting until extension resources handled before kube-apiserver are ready");
    assert!(!has_server());
    assert_eq!(seed.store().names(GROUP, EXTENSIONS, &plane), ["early"]);
    answer_in(&world, EXTENSIONS, (&plane, "early"), None);
    answer_in(&world, EXTENSIONS, (&plane, "plain"), None);
    // No host has joined.
    answer_in(&world, EXTENSIONS, (&plane, "late"), None);
    wait_until_created(&world.garden, PLACE);

    let confirmed = json!({"metadata": {"annotations": {"confirmation.gardener.cloud/deletion": "true"}}});
    world.garden.merge(CORE, "shoots", PLACE, &confirmed);
    let client = world.garden.client();
    client.delete(&SHOOT, &Key::new(PLACE.0, PLACE.1), &DeleteParams::default()).unwrap();
    let release = |name: &str| {
        seed.wait_for(&format!("the deletion of {name}"), |seed| {
            let object = seed.get(GROUP, EXTENSIONS, &plane, name)?;
            object["metadata"]["deletionTimestamp"].is_string().then_some(())
        });
        let serves = has_server();
        seed.merge(GROUP, EXTENSIONS, (&plane, name), &json!({"metadata": {"finalizers": null}}));
        serves
    };
    assert!(release("late") && release("plain"));
    assert!(!release("early"));
    world.garden.wait_for("the end of the Shoot", |garden| {
        garden.get(CORE, "shoots", PLACE.0, PLACE.1).is_none().then_some(())
    });
    agent.stop();
}

/// Where the network of the seed leads to the nodes, nothing else must. The tunnel goes and comes with its option.
#[test]
fn a_flat_network_needs_no_tunnel() {
    let world = World::start(&Options::new("shoot-flat"));
    let site = world.site();
    let shoot = Nodes::Hosts.shoot(&world, NAME);
    let agent = created_with(&world, &site, (Nodes::Hosts, shoot));
    let (plane, seed) = (technical_id(NAME), &world.seed);
    let tunnel = || {
        let server = seed.get("apps", "deployments", &plane, "kube-apiserver").unwrap();
        let service = seed.get("", "services", &plane, "kube-apiserver-exposure").unwrap();
        let arguments = list(&server, "/spec/template/spec/containers/0/args");
        [
            list(&server, "/spec/template/spec/containers").len() == 2,
            arguments
                .iter()
                .any(|a| a.as_str().is_some_and(|a| a.starts_with("--egress-selector-config-file"))),
            list(&service, "/spec/ports").iter().any(|port| port["name"] == "tunnel"),
            seed.get(MANAGED_RESOURCES, "managedresources", &plane, "shoot-core-konnectivity-agent")
                .is_some(),
        ]
    };
    assert_eq!(tunnel(), [true; 4]);
    agent.stop();
    let mut config = Nodes::Hosts.config(&world);
    for (kind, expected) in [("Direct", [false; 4]), ("Konnectivity", [true; 4])] {
        config["edge"]["tunnel"] = json!(kind);
        let agent = world.agent_of(&site, &config);
        agent.launch();
        // The port stays until the server and the agents have ended: one operation longer.
        seed.wait_for(kind, |_| (tunnel()[1] == expected[1] && tunnel()[3] == expected[3]).then_some(()));
        wait_until(&world.garden, PLACE, "Reconcile Succeeded 100");
        assert!(tunnel()[2], "{kind}");
        ask_for(&world, "reconcile");
        seed.wait_for(kind, |_| (tunnel() == expected).then_some(()));
        wait_until(&world.garden, PLACE, "Reconcile Succeeded 100");
        agent.stop();
    }
    assert_eq!(site.complaints(), Vec::<String>::new());
}

/// Its owner changes the pools: proxies of a version that no pool has any more go.
#[test]
fn pools_change() {
    let world = World::start(&Options::new("shoot-pools"));
    let site = world.site();
    let shoot = Nodes::Hosts.shoot(&world, NAME);
    let agent = created_with(&world, &site, (Nodes::Hosts, shoot));
    let proxies = || {
        let mut all = world.seed.store().names(MANAGED_RESOURCES, "managedresources", &technical_id(NAME));
        all.retain(|name| name.starts_with("shoot-core-kube-proxy-"));
        all
    };
    assert_eq!(proxies(), ["shoot-core-kube-proxy-pool-v1.34.3"]);
    let machine = json!({"type": "host"});
    let pools = |second: Value| {
        let mut all = vec![json!({"name": "pool", "machine": machine, "minimum": 1, "maximum": 1})];
        all.extend(second.is_object().then_some(second));
        world.garden.merge(CORE, "shoots", PLACE, &json!({"spec": {"provider": {"workers": all}}}));
        wait_until(&world.garden, PLACE, "Reconcile Succeeded 100");
    };
    pools(json!({"name": "other", "machine": machine, "minimum": 0, "maximum": 1}));
    assert_eq!(proxies(), ["shoot-core-kube-proxy-other-v1.34.3", "shoot-core-kube-proxy-pool-v1.34.3"]);
    pools(Value::Null);
    world.seed.wait_for("the end of the proxies of the other pool", |_| {
        (proxies() == ["shoot-core-kube-proxy-pool-v1.34.3"]).then_some(())
    });
    assert_eq!(site.complaints(), Vec::<String>::new());
    agent.stop();
}

/// Nodes stay while a Shoot is hibernated, and cannot follow a rotation: it is completed once the Shoot is awake.
#[test]
fn a_rotation_is_not_completed_while_the_nodes_cannot_follow() {
    let world = World::start(&Options::new("shoot-asleep-turn"));
    let site = world.site();
    let shoot = Nodes::Hosts.shoot(&world, NAME);
    let agent = created_with(&world, &site, (Nodes::Hosts, shoot));
    let phase = || {
        let shoot = world.garden.get(CORE, "shoots", PLACE.0, PLACE.1).unwrap();
        text(&shoot, "/status/credentials/rotation/certificateAuthorities/phase").to_owned()
    };
    let sleep = |enabled: bool| {
        let spec = json!({"spec": {"hibernation": {"enabled": enabled}}});
        world.garden.merge(CORE, "shoots", PLACE, &spec);
        wait_until(&world.garden, PLACE, "Reconcile Succeeded 100");
    };
    ask_for(&world, "rotate-ca-start");
    wait_for_phases(&world, &[("certificateAuthorities", "Prepared")]);
    let tunnels = || secrets(&world).get("ca-vpn").copied();
    sleep(true);
    ask_for(&world, "rotate-ca-complete");
    world.garden.wait_for("the start of the completion", |_| (phase() == "Completing").then_some(()));
    wait_until(&world.garden, PLACE, "Reconcile Succeeded 100");
    assert_eq!((phase().as_str(), tunnels()), ("Completing", Some(2)));
    sleep(false);
    assert_eq!((phase().as_str(), tunnels()), ("Completing", Some(2)));
    ask_for(&world, "reconcile");
    wait_for_phases(&world, &[("certificateAuthorities", "Completed")]);
    assert_eq!(tunnels(), Some(1));
    assert_eq!(site.complaints(), Vec::<String>::new());
    agent.stop();
}

/// What is well is listed: workloads every five minutes, other objects every 45.
#[test]
fn objects_that_vanish_from_a_shoot_that_was_well_come_back() {
    let world = World::start(&Options::new("shoot-vanished"));
    let site = world.site();
    let shoot = Nodes::Hosts.shoot(&world, NAME);
    let agent = created_with(&world, &site, (Nodes::Hosts, shoot));
    wait_for_condition(&world, "SystemComponentsHealthy", "True");
    let cluster = &site.server(&technical_id(NAME)).unwrap().cluster;
    for (group, plural, namespace, name, period_s) in [
        ("apps", "deployments", "kube-system", "coredns", 300),
        ("rbac.authorization.k8s.io", "clusterroles", "", "system:coredns", 2_700),
    ] {
        // Only a change to the worse is mended at once. Then the ManagedResource is checked, and calm.
        let healthy = |managed: &Value| {
            let mut all = list(managed, "/status/conditions").iter();
            all.any(|condition| condition["type"] == "ResourcesHealthy" && condition["status"] == "True")
        };
        world.seed.wait_for("a healthy ManagedResource", |seed| {
            let managed =
                seed.get(MANAGED_RESOURCES, "managedresources", &technical_id(NAME), "shoot-core-coredns")?;
            healthy(&managed).then_some(())
        });
        world.pass(Duration::from_secs(150));
        let find = || cluster.get(group, plural, namespace, name);
        let before = find().unwrap()["metadata"]["uid"].clone();
        cluster.delete(group, plural, namespace, name);
        let began = world.clock.mono();
        world.pass(Duration::from_secs(period_s));
        cluster.wait_for(&format!("{plural} {name}"), |_| {
            find().filter(|found| found["metadata"]["uid"] != before)
        });
        // A full apply would bring it back 54 minutes after the last one, which is a few minutes ago.
        world.measured(name, world.clock.mono() - began, Duration::from_secs(period_s + 120));
        assert!(world.clock.mono() - began < Duration::from_secs(3_000), "{plural} {name}");
    }
    agent.stop();
}
