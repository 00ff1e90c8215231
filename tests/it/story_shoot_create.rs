//! A Shoot without workers is created: from the object in the garden to an administrator with access.

use std::sync::Arc;
use std::time::Duration;

use gardenlet::api::meta::Key;
use gardenlet::format::yaml;
use gardenlet::kube;
use serde_json::{Value, json};

use crate::story_shoot_others::wait_for_task;
use crate::world::{AGENT, CORE, MANAGED_RESOURCES, Options, World, condition};
use support::TestCluster;
use support::encoding::from_base64;
use support::http::record::Recorded;
use support::json::{entry, list, text};
use support::shoot::history::{self, wait_until, wait_until_created};
use support::shoot::object::{MANAGED, PROJECT_NAMESPACE, ShootObject, technical_id};
use support::shoot::owner;
use support::shoot::{Options as SiteOptions, Site};

const NAME: &str = "s1";
const PLACE: (&str, &str) = (PROJECT_NAMESPACE, NAME);
const RBAC: &str = "rbac.authorization.k8s.io";
const VERSION: &str = "v1.34.3";

/// Secrets of the control plane, by the name of their configuration.
const SECRETS: [&str; 13] = [
    "ca",
    "ca-client",
    "ca-etcd",
    "ca-front-proxy",
    "etcd-client",
    "etcd-server-events",
    "etcd-server-main",
    "generic-token-kubeconfig",
    "kube-aggregator",
    "kube-apiserver",
    "kube-apiserver-etcd-encryption-key",
    "kube-apiserver-static-token",
    "service-account-key",
];

fn config(world: &World) -> Value {
    let mut config = world.edge_config();
    config["edge"]["exposure"] = json!({"type": "NodePort", "address": "127.0.0.1"});
    config
}

/// A world in which Shoot `s1` was created.
fn created(world: &World, site: &Site) -> (crate::world::Agent, Value) {
    let agent = world.agent_of(site, &config(world));
    agent.launch();
    world.wait_until_ready();
    world.garden.apply(&[ShootObject::workerless(NAME).build()]);
    let shoot = wait_until_created(&world.garden, PLACE);
    // The flow does not wait for the last objects.
    world.seed.wait_for("all ManagedResources to be healthy", |seed| {
        let all = MANAGED
            .iter()
            .map(|name| seed.get(MANAGED_RESOURCES, "managedresources", &technical_id(NAME), name));
        all.into_iter().all(|managed| managed.is_some_and(|managed| is_healthy(&managed))).then_some(())
    });
    (agent, shoot)
}

fn is_healthy(managed: &Value) -> bool {
    let is_true = |kind: &str| condition(managed, kind).is_some_and(|found| found.0 == "True");
    is_true("ResourcesApplied") && is_true("ResourcesHealthy")
}

fn what_the_garden_shows(world: &World, site: &Site, shoot: &Value) {
    let (uid, status) = (text(shoot, "/metadata/uid"), &shoot["status"]);
    let namespace = technical_id(NAME);
    assert_eq!(status["technicalID"], namespace);
    assert_eq!(status["uid"], uid);
    assert_eq!(status["seedName"], world.name);
    assert_eq!(status["clusterIdentity"], format!("{namespace}-{uid}-garden-identity"));
    assert_eq!(status["lastErrors"], Value::Null);
    let finalizers = list(shoot, "/metadata/finalizers");
    assert!(finalizers.iter().any(|f| f == "gardener"), "{finalizers:?}");
    // The only address that needs no name.
    let addresses = list(shoot, "/status/advertisedAddresses");
    let url = text(&addresses[0], "/url");
    assert_eq!(addresses[0]["name"], "unmanaged");
    assert!(addresses.iter().all(|address| !["internal", "external"].contains(&text(address, "/name"))));
    let port = url.strip_prefix("https://127.0.0.1:").and_then(|port| port.parse().ok());
    assert!(site.routes().find("127.0.0.1", port.unwrap()).is_some(), "{url}");

    let operations = history::operations(&world.garden, PLACE.0, PLACE.1);
    let first = operations.iter().find(|operation| operation.state == "Processing").unwrap();
    assert_eq!(first.line(), "Create Processing 0");
    let failed = operations.iter().find(|operation| ["Error", "Failed"].contains(&operation.state.as_str()));
    assert_eq!(failed, None);
    assert!(operations.iter().any(|operation| operation.progress > 0 && operation.progress < 100));

    let of_shoot = |object: &Value| object["metadata"]["ownerReferences"][0]["uid"] == uid;
    let ca = world.garden.get("", "configmaps", PROJECT_NAMESPACE, "s1.ca-cluster").unwrap();
    let signer = world.garden.get(CORE, "internalsecrets", PROJECT_NAMESPACE, "s1.ca-client").unwrap();
    assert!(of_shoot(&ca) && of_shoot(&signer));
    assert_eq!(entry(&ca, "/metadata/labels", "gardener.cloud/role"), Some("ca-cluster"));
    assert_eq!(entry(&signer, "/metadata/labels", "gardener.cloud/role"), Some("ca-client"));
    let mut keys: Vec<&String> = signer["data"].as_object().unwrap().keys().collect();
    keys.sort_unstable();
    assert_eq!(keys, ["ca.crt", "ca.key"]);
}

fn what_stands_in_the_seed(world: &World, shoot: &Value) {
    let (seed, id) = (&world.seed, technical_id(NAME));
    let namespace = seed.get("", "namespaces", "", &id).unwrap();
    for (label, value) in [
        ("gardener.cloud/role", "shoot"),
        ("seed.gardener.cloud/provider", "local"),
        ("shoot.gardener.cloud/provider", "local"),
        ("backup.gardener.cloud/provider", "local"),
        ("pod-security.kubernetes.io/enforce", "privileged"),
    ] {
        assert_eq!(entry(&namespace, "/metadata/labels", label), Some(value), "{label}");
    }
    let uid = entry(&namespace, "/metadata/annotations", "shoot.gardener.cloud/uid");
    assert_eq!(uid, Some(text(shoot, "/status/uid")));
    let cluster = seed.get("extensions.gardener.cloud", "clusters", "", &id).unwrap();
    assert_eq!(cluster["spec"]["shoot"]["metadata"]["name"], NAME);
    assert_eq!(cluster["spec"]["seed"]["metadata"]["name"], world.name);
    assert_eq!(cluster["spec"]["cloudProfile"]["metadata"]["name"], "local");

    let secrets = seed.store().list("", "secrets", &id);
    let managed =
        secrets.iter().filter(|s| entry(s, "/metadata/labels", "managed-by") == Some("secrets-manager"));
    let names: Vec<&str> = managed.filter_map(|s| entry(s, "/metadata/labels", "name")).collect();
    let missing: Vec<&&str> = SECRETS.iter().filter(|name| !names.contains(name)).collect();
    assert!(missing.is_empty(), "{missing:?} are not among {names:?}");

    // The flow waits only for etcd and kube-apiserver.
    let ready = |plural: &str, name: &str| {
        seed.wait_for(&format!("the pods of {name}"), |seed| {
            let workload = seed.get("apps", plural, &id, name)?;
            (workload["status"]["readyReplicas"] == workload["spec"]["replicas"]).then_some(workload)
        })
    };
    for name in ["etcd-main", "etcd-events"] {
        ready("statefulsets", name);
    }
    let server = ready("deployments", "kube-apiserver");
    let image = text(&server, "/spec/template/spec/containers/0/image");
    assert!(image.split('@').next().unwrap().ends_with(&format!(":{VERSION}")), "{image}");
    ready("deployments", "kube-controller-manager");
    for name in MANAGED {
        for kind in ["ResourcesApplied", "ResourcesHealthy"] {
            seed.wait_for(&format!("{kind} of {name}"), |seed| {
                let managed = seed.get(MANAGED_RESOURCES, "managedresources", &id, name)?;
                (condition(&managed, kind)?.0 == "True").then_some(())
            });
        }
    }
}

fn what_is_in_the_shoot(world: &World, site: &Site) {
    let id = technical_id(NAME);
    let server = site.server(&id).unwrap();
    let cluster = &server.cluster;
    let info = cluster.get("", "configmaps", "kube-system", "shoot-info").unwrap();
    assert_eq!((&info["data"]["shootName"], &info["data"]["projectName"]), (&json!(NAME), &json!("p")));
    let identity = cluster.get("", "configmaps", "kube-system", "cluster-identity").unwrap();
    assert_eq!((&identity["immutable"], &identity["data"]["origin"]), (&json!(true), &json!("shoot")));
    for name in
        ["gardener.cloud:system:gardener", "gardener.cloud:system:admins", "gardener.cloud:project:admins"]
    {
        let binding = cluster.get(RBAC, "clusterrolebindings", "", name);
        assert_eq!(
            binding.unwrap_or_else(|| panic!("no binding {name}"))["roleRef"]["name"],
            "cluster-admin"
        );
    }
    let namespace = cluster.get("", "namespaces", "", "kube-system").unwrap();
    assert_eq!(entry(&namespace, "/metadata/labels", "gardener.cloud/purpose"), Some("kube-system"));

    // Each Secret gets a token that the server accepts; the flow waits for only one of them.
    let user_of = |secret: &str, key: &str| {
        world.seed.wait_for(&format!("a token in Secret {secret}"), |seed| {
            let object = seed.get("", "secrets", &id, secret)?;
            let content = String::from_utf8(from_base64(text(&object, &format!("/data/{key}")))?).unwrap();
            let kubeconfig = (key == "kubeconfig").then(|| yaml::parse(&content).unwrap());
            let token =
                kubeconfig.as_ref().map_or(content.as_str(), |config| text(config, "/users/0/user/token"));
            cluster.server().shared.user_of(token).map(|user| user.name)
        })
    };
    let table = [
        ("shoot-access-kube-controller-manager", "token", "kube-controller-manager"),
        ("gardener", "kubeconfig", "gardener"),
        ("gardener-internal", "kubeconfig", "gardener-internal"),
    ];
    for (secret, key, account) in table {
        assert_eq!(user_of(secret, key), format!("system:serviceaccount:kube-system:{account}"));
    }
}

/// The kubeconfig that the garden issues gives an administrator access.
fn an_administrator_gets_in(world: &World, site: &Site) {
    let options = kube::Options {
        clock: world.clock.clone(),
        dialer: Arc::new(site.routes()),
        ..kube::Options::default()
    };
    let client = owner::client(&world.garden, &Key::new(PROJECT_NAMESPACE, NAME), options);
    assert_eq!(client.version().unwrap().git_version, VERSION);
    owner::get_in(&client).unwrap();
}

#[test]
fn a_shoot_without_workers_is_created() {
    let world = World::start(&Options::new("shoot-create"));
    let site = world.site();
    let (agent, shoot) = created(&world, &site);
    what_the_garden_shows(&world, &site, &shoot);
    what_stands_in_the_seed(&world, &shoot);
    what_is_in_the_shoot(&world, &site);
    an_administrator_gets_in(&world, &site);
    assert_eq!(site.complaints(), Vec::<String>::new());
    agent.stop();
}

#[test]
fn correct_objects_are_not_written_again() {
    let world = World::start(&Options::new("shoot-again"));
    let site = world.site();
    let (agent, shoot) = created(&world, &site);
    what_stands_in_the_seed(&world, &shoot);
    let (seed, shoot) = (world.seed.request_count(), site.server(&technical_id(NAME)).unwrap());
    let mark = shoot.cluster.request_count();
    let operation = json!({"metadata": {"annotations": {"gardener.cloud/operation": "reconcile"}}});
    world.garden.merge(CORE, "shoots", PLACE, &operation);
    wait_until(&world.garden, PLACE, "Reconcile Succeeded 100");
    // Except for the Cluster, which contains the current Shoot.
    let writes = world.seed.requests_since(seed).into_iter().filter(|request| {
        request.is_write() && request.user == AGENT && request.info.namespace == technical_id(NAME)
    });
    let writes: Vec<String> = writes.map(|request| request.line()).collect();
    assert_eq!(writes, Vec::<String>::new());
    let within = shoot.cluster.requests_since(mark).into_iter().filter(Recorded::is_write);
    let within: Vec<String> = within.map(|request| request.line()).collect();
    assert_eq!(within, Vec::<String>::new());
    agent.stop();
}

/// Without a route to the addresses of Services, and without a node that has the address.
#[test]
fn an_agent_outside_of_the_cluster_uses_the_configured_address() {
    let world = World::start(&Options::new("shoot-outside"));
    let site = world.site();
    site.routes().leave_cluster();
    let (agent, _) = created(&world, &site);
    agent.stop();
}

/// `minReadySeconds` protect a rollout, and no server serves before the first one. It must answer where its clients look for it.
#[test]
fn a_first_server_is_up_when_it_answers_at_the_published_address() {
    let world = World::start(&Options::new("shoot-first"));
    let min_ready = Some(Duration::from_secs(24 * 3_600));
    let site = world.site_with(SiteOptions { min_ready, ..SiteOptions::default() });
    let id = technical_id(NAME);
    site.routes().lose(&id);
    let agent = world.agent_of(&site, &config(&world));
    agent.launch();
    world.wait_until_ready();
    world.garden.apply(&[ShootObject::workerless(NAME).build()]);
    let server = |seed: &TestCluster| seed.get("apps", "deployments", &id, "kube-apiserver");
    world
        .seed
        .wait_for("a ready server", |seed| (server(seed)?["status"]["readyReplicas"] == 1).then_some(()));
    wait_for_task(&world, "Waiting until Kubernetes API server rolled out");
    let before = site.routes().dials(&id);
    world
        .seed
        .wait_for("the agent to look for it", |_| (site.routes().dials(&id) > before + 1).then_some(()));
    let shoot = world.garden.get(CORE, "shoots", PLACE.0, PLACE.1).unwrap();
    assert_eq!(text(&shoot, "/status/lastOperation/state"), "Processing");
    site.routes().find_again(&id);
    wait_until_created(&world.garden, PLACE);
    let available = condition(&server(&world.seed).unwrap(), "Available").unwrap();
    assert_eq!(available.0, "False", "it is ready for less than a day");
    agent.stop();
}

/// Its pods get an IPv6 address, which it would advertise, and its own Services have IPv4 addresses.
#[test]
fn a_server_on_a_seed_that_gets_ipv6_writes_no_endpoints() {
    let world = World::start(&Options::new("shoot-families"));
    let site = world.site();
    let (agent, _) = created(&world, &site);
    let id = technical_id(NAME);
    let writes_none = || {
        let server = world.seed.get("apps", "deployments", &id, "kube-apiserver").unwrap();
        let arguments = list(&server, "/spec/template/spec/containers/0/args").to_vec();
        arguments.contains(&json!("--endpoint-reconciler-type=none"))
    };
    assert!(!writes_none());
    let families = json!({"spec": {"ipFamilies": ["IPv4", "IPv6"]}});
    world.seed.merge("", "services", (&id, "kube-apiserver"), &families);
    let operation = json!({"metadata": {"annotations": {"gardener.cloud/operation": "reconcile"}}});
    world.garden.merge(CORE, "shoots", PLACE, &operation);
    wait_until(&world.garden, PLACE, "Reconcile Succeeded 100");
    assert!(writes_none());
    agent.stop();
}
