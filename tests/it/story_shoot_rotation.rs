//! The credentials of a Shoot are rotated, from the start to the completion, and no client that adopts the new ones in
//! time ever loses access.

use std::collections::BTreeMap;
use std::sync::Arc;

use gardenlet::api::meta::Key;
use gardenlet::kube::{self, Client, Error};
use serde_json::{Value, json};

use crate::nodes::{self, Nodes};
use crate::world::{Agent, CORE, Options, World};
use support::TestCluster;
use support::json::{entry, list, text};
use support::shoot::Site;
use support::shoot::history::wait_until_created;
use support::shoot::object::{PROJECT_NAMESPACE, ShootObject, technical_id};
use support::shoot::owner::{self, get_in, wait_until_admitted};

pub const NAME: &str = "s1";
pub const PLACE: (&str, &str) = (PROJECT_NAMESPACE, NAME);
const KEY_NAME: &str = "credentials.gardener.cloud/key-name";

/// The number of Secrets of each configuration that a Go gardenlet has when the rotation is prepared, and when it is
/// completed, without its own resource manager and Istio.
const GOLDEN: [(&str, usize, usize); 23] = [
    ("ca", 2, 1),
    ("ca-bundle", 1, 1),
    ("ca-client", 2, 1),
    ("ca-client-bundle", 1, 1),
    ("ca-etcd", 2, 1),
    ("ca-etcd-bundle", 1, 1),
    ("ca-etcd-peer", 2, 1),
    ("ca-etcd-peer-bundle", 1, 1),
    ("ca-front-proxy", 2, 1),
    ("ca-front-proxy-bundle", 1, 1),
    ("ca-istio-basic-auth-server", 2, 1),
    ("ca-istio-basic-auth-server-bundle", 1, 1),
    ("etcd-client", 1, 1),
    ("etcd-server-events", 1, 1),
    ("etcd-server-main", 1, 1),
    ("generic-token-kubeconfig", 2, 2),
    ("kube-aggregator", 1, 1),
    ("kube-apiserver", 1, 1),
    ("kube-apiserver-etcd-encryption-key", 1, 1),
    ("kube-apiserver-static-token", 1, 1),
    ("kube-controller-manager-server", 1, 1),
    ("service-account-key", 2, 1),
    ("service-account-key-bundle", 1, 1),
];

/// The same of what only a Shoot with a pool has. The key pair for SSH stays as `.old` after its rotation.
const GOLDEN_OF_NODES: [(&str, usize, usize); 12] = [
    ("ca-kubelet", 2, 1),
    ("ca-kubelet-bundle", 1, 1),
    ("ca-metrics-server", 2, 1),
    ("ca-metrics-server-bundle", 1, 1),
    ("ca-vpn", 2, 1),
    ("ca-vpn-bundle", 1, 1),
    ("konnectivity-agent", 1, 1),
    ("konnectivity-server", 1, 1),
    ("kube-apiserver-kubelet", 1, 1),
    ("kube-scheduler-server", 1, 1),
    ("metrics-server", 1, 1),
    ("ssh-keypair", 2, 2),
];

/// A world in which Shoot `s1` was created.
pub fn created(world: &World, site: &Site, shoot: ShootObject) -> Agent {
    created_with(world, site, (Nodes::Nobody, shoot))
}

/// The same, with a host if it has a pool.
pub fn created_with(world: &World, site: &Site, (nodes, shoot): (Nodes, ShootObject)) -> Agent {
    let agent = world.agent_of(site, &nodes.config(world));
    agent.launch();
    world.wait_until_ready();
    world.garden.apply(&[shoot.build()]);
    wait_until_created(&world.garden, PLACE);
    nodes::join_at(world, site, NAME);
    agent
}

pub fn shoot(world: &World) -> Value {
    world.garden.get(CORE, "shoots", PLACE.0, PLACE.1).unwrap()
}

pub fn ask_for(world: &World, operation: &str) {
    let operation = json!({"metadata": {"annotations": {"gardener.cloud/operation": operation}}});
    world.garden.merge(CORE, "shoots", PLACE, &operation);
}

/// Waits until the rotations have reached this phase, and no operation is running.
pub fn wait_for_phases(world: &World, phases: &[(&str, &str)]) -> Value {
    world.garden.wait_for(&format!("{phases:?}"), |_| {
        let shoot = shoot(world);
        let rotation = &shoot["status"]["credentials"]["rotation"];
        let has_come = phases.iter().all(|(what, phase)| rotation[*what]["phase"] == *phase);
        let is_over = shoot["status"]["lastOperation"]["state"] == "Succeeded"
            && shoot["status"]["observedGeneration"] == shoot["metadata"]["generation"];
        (has_come && is_over).then_some(shoot)
    })
}

/// An administrator, with the kubeconfig that the garden currently issues.
fn administrator(world: &World, site: &Site) -> Client {
    let dialer = Arc::new(site.routes());
    let options = kube::Options { clock: world.clock.clone(), dialer, ..kube::Options::default() };
    owner::client(&world.garden, &Key::new(PROJECT_NAMESPACE, NAME), options)
}

/// The number of CAs in the bundle that clients use to verify the API server.
pub fn authorities(world: &World) -> usize {
    let ca = world.garden.get("", "configmaps", PROJECT_NAMESPACE, "s1.ca-cluster").unwrap();
    text(&ca, "/data/ca.crt").matches("BEGIN CERTIFICATE").count()
}

/// The number of Secrets of each configuration.
pub fn secrets(world: &World) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for secret in world.seed.store().list("", "secrets", &technical_id(NAME)) {
        if entry(&secret, "/metadata/labels", "managed-by") == Some("secrets-manager") {
            let name = entry(&secret, "/metadata/labels", "name").unwrap_or_default();
            *counts.entry(name.to_owned()).or_default() += 1;
        }
    }
    counts
}

pub fn golden(nodes: Nodes, is_prepared: bool) -> BTreeMap<String, usize> {
    let of_nodes: &[_] = if nodes == Nodes::Hosts { &GOLDEN_OF_NODES } else { &[] };
    let all = GOLDEN.iter().chain(of_nodes).map(|(name, prepared, completed)| {
        ((*name).to_owned(), if is_prepared { *prepared } else { *completed })
    });
    all.filter(|(_, count)| *count > 0).collect()
}

/// The phases of a rotation in their order, from the history that the garden stores.
pub fn phases(world: &World, what: &str) -> Vec<String> {
    let state = world.garden.store().read();
    let of_shoot = state.since(state.compacted).filter(|change| {
        change.id.is_of(CORE, "shoots") && change.id.namespace == PLACE.0 && change.id.name == NAME
    });
    let mut all: Vec<String> = of_shoot
        .map(|change| text(&change.after, &format!("/status/credentials/rotation/{what}/phase")).to_owned())
        .collect();
    all.dedup();
    all.retain(|phase| !phase.is_empty());
    all
}

/// A ServiceAccount with a token that does not expire.
fn add_account(cluster: &TestCluster) {
    cluster.apply(&[
        json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "robot-token-old", "namespace": "default",
            "annotations": {"kubernetes.io/service-account.name": "robot"}}, "type": "kubernetes.io/service-account-token"}),
        json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "of-its-owner", "namespace": "default"}}),
        json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "robot", "namespace": "default"},
            "secrets": [{"name": "robot-token-old"}, {"name": "of-its-owner"}]}),
        json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "plain", "namespace": "default"}}),
    ]);
}

/// The names in `.secrets`, and the label.
fn account(cluster: &TestCluster, name: &str) -> (Vec<String>, Option<String>) {
    let account = cluster.get("", "serviceaccounts", "default", name).unwrap();
    let names = list(&account, "/secrets").iter().map(|secret| text(secret, "/name").to_owned()).collect();
    (names, entry(&account, "/metadata/labels", KEY_NAME).map(str::to_owned))
}

pub fn annotations(world: &World) -> Vec<String> {
    let server = world.seed.get("apps", "deployments", &technical_id(NAME), "kube-apiserver").unwrap();
    let all = server["metadata"]["annotations"].as_object().cloned().unwrap_or_default();
    all.into_iter().map(|(name, _)| name).filter(|name| name.starts_with("credentials.")).collect()
}

#[test]
fn all_credentials_are_rotated() {
    let world = World::start(&Options::new("shoot-rotation"));
    let site = world.site();
    let agent = created(&world, &site, ShootObject::workerless(NAME));
    let cluster = &site.server(&technical_id(NAME)).unwrap().cluster;
    add_account(cluster);
    let first = administrator(&world, &site);
    wait_until_admitted(&world.garden, &first);
    assert_eq!(authorities(&world), 1);

    ask_for(&world, "rotate-credentials-start");
    let all = |phase| [("certificateAuthorities", phase), ("serviceAccountKey", phase)];
    let [authority, key] = all("Prepared");
    let prepared = wait_for_phases(&world, &[authority, key, ("etcdEncryptionKey", "Completed")]);
    let rotation = &prepared["status"]["credentials"]["rotation"];
    let fields = |what: &str| {
        let mut names: Vec<&str> = rotation[what].as_object().unwrap().keys().map(String::as_str).collect();
        names.sort_unstable();
        names.join(",")
    };
    assert_eq!(fields("certificateAuthorities"), "lastInitiationFinishedTime,lastInitiationTime,phase");
    assert_eq!(fields("serviceAccountKey"), "lastInitiationFinishedTime,lastInitiationTime,phase");
    assert_eq!(fields("etcdEncryptionKey"), "lastCompletionTime,lastInitiationTime,phase");
    assert_eq!(fields("observability"), "lastCompletionTime,lastInitiationTime");
    assert_eq!(phases(&world, "etcdEncryptionKey"), ["Preparing", "Prepared", "Completing", "Completed"]);
    assert_eq!(secrets(&world), golden(Nodes::Nobody, true));
    assert_eq!(annotations(&world), Vec::<String>::new());
    // Old and new clients have access, whichever CA they trust.
    assert_eq!(authorities(&world), 2);
    get_in(&first).unwrap();
    let second = administrator(&world, &site);
    get_in(&second).unwrap();
    let (names, label) = account(cluster, "robot");
    assert_eq!(names[1..], ["robot-token-old", "of-its-owner"]);
    assert!(names[0].starts_with("robot-token-") && names[0].len() == "robot-token-".len() + 6, "{names:?}");
    let new = cluster.get("", "secrets", "default", &names[0]).unwrap();
    assert_eq!(new["type"], "kubernetes.io/service-account-token");
    assert!(label.unwrap().starts_with("service-account-key-"));
    assert_eq!(account(cluster, "plain"), (vec![], None));

    ask_for(&world, "rotate-credentials-complete");
    wait_for_phases(&world, &all("Completed"));
    assert_eq!(secrets(&world), golden(Nodes::Nobody, false));
    assert_eq!(
        phases(&world, "certificateAuthorities"),
        ["Preparing", "Prepared", "Completing", "Completed"]
    );
    assert_eq!(authorities(&world), 1);
    let third = administrator(&world, &site);
    get_in(&third).unwrap();
    // A client without the new CA does not trust the server, and is not trusted.
    assert!(get_in(&first).is_err());
    let late = Client::new(
        kube::Connection { trust: third.connection().trust.clone(), ..(*first.connection()).clone() },
        kube::Options {
            clock: world.clock.clone(),
            dialer: Arc::new(site.routes()),
            ..kube::Options::default()
        },
    );
    assert!(matches!(get_in(&late.unwrap()), Err(Error::Api(failure)) if failure.code == 401));
    assert_eq!(account(cluster, "robot"), (vec![names[0].clone(), "of-its-owner".to_owned()], None));
    assert!(cluster.get("", "secrets", "default", "robot-token-old").is_none());
    assert!(cluster.get("", "secrets", "default", "of-its-owner").is_some());
    assert_eq!(site.complaints(), Vec::<String>::new());
    agent.stop();
}
