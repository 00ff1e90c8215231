//! The agent serves the clusters of Shoots without a garden: it applies ManagedResources to them, and renews tokens.

use std::time::Duration;

use gardenlet::base::clock::Clock;
use gardenlet::base::stop::Stop;
use serde_json::{Value, json};

use crate::world::{Agent, Options, World, renewed};
use support::TestCluster;
use support::cluster::Options as ClusterOptions;
use support::encoding::{from_base64, from_rfc3339};
use support::garden::prepare;
use support::json::{entry, text};
use support::options::{measured, patience};
use support::pace;

const HOUR: Duration = Duration::from_secs(3_600);
const RENEW_AT: &str = "serviceaccount.resources.gardener.cloud/token-renew-timestamp";

/// The cluster of a Shoot and its namespace in the seed.
struct Plane<'w> {
    world: &'w World,
    cluster: TestCluster,
    namespace: String,
}

fn secret(namespace: &str, name: &str, config: &str, data: &Value) -> Value {
    json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name, "namespace": namespace, "labels": {
        "managed-by": "secrets-manager", "manager-identity": "gardenlet", "name": config}}, "stringData": data})
}

fn deployment(namespace: &str, name: &str, replicas: u32) -> Value {
    let labels = json!({"app": name});
    json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name, "namespace": namespace},
        "spec": {"replicas": replicas, "selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels},
            "spec": {"containers": [{"name": "c", "image": "i"}]}}}})
}

/// A Secret that requests a token.
fn access(namespace: &str, name: &str, data: &Value) -> Value {
    json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name, "namespace": namespace,
        "labels": {"resources.gardener.cloud/purpose": "token-requestor", "resources.gardener.cloud/class": "shoot"},
        "annotations": {"serviceaccount.resources.gardener.cloud/name": name,
            "serviceaccount.resources.gardener.cloud/namespace": "kube-system"}}, "stringData": data})
}

impl<'w> Plane<'w> {
    fn start(world: &'w World, shoot: &str) -> Self {
        let namespace = format!("shoot--p--{}-{shoot}", world.name);
        let mut options = ClusterOptions::new(&namespace, &world.clock);
        options.server_names = vec![format!("kube-apiserver.{namespace}.svc")];
        let plane = Self { world, cluster: TestCluster::start(options), namespace };
        plane.prepare();
        plane
    }

    fn prepare(&self) {
        let (seed, namespace) = (&self.world.seed, self.namespace.as_str());
        seed.apply(&[
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace,
                "labels": {"gardener.cloud/role": "shoot"}}}),
            json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "kube-apiserver", "namespace": namespace},
                "spec": {"clusterIP": "127.0.0.1", "clusterIPs": ["127.0.0.1"], "ports": [{"port": self.port()}]}}),
            deployment(namespace, "kube-apiserver", 1),
        ]);
        self.publish("");
        let config = json!({"apiVersion": "v1", "kind": "Config", "current-context": "c",
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "c"}}],
            "clusters": [{"name": "c", "cluster": {"server": "https://kube-apiserver"}}], "users": [{"name": "c", "user": {}}]});
        seed.apply(&[
            access(namespace, "gardener-internal", &json!({"kubeconfig": config.to_string()})),
            access(namespace, "shoot-access-manager", &json!({})),
        ]);
    }

    /// The Secrets of the CAs that currently sign.
    fn publish(&self, suffix: &str) {
        let (authority, namespace) = (self.cluster.authority(), self.namespace.as_str());
        self.world.seed.apply(&[
            secret(
                namespace,
                &format!("ca-bundle{suffix}"),
                "ca-bundle",
                &json!({"bundle.crt": authority.certificate()}),
            ),
            secret(
                namespace,
                &format!("ca-client{suffix}"),
                "ca-client",
                &json!({"ca.crt": authority.certificate(), "ca.key": authority.key()}),
            ),
        ]);
    }

    fn port(&self) -> u16 {
        self.cluster.url().rsplit_once(':').unwrap().1.parse().unwrap()
    }

    /// A mark in the requests, after all pending ones have ended.
    fn quiet(&self) -> usize {
        let (stop, real) = (Stop::new(), Clock::system());
        loop {
            let before = self.cluster.request_count();
            stop.wait(&real, patience(Duration::from_millis(500)));
            if self.cluster.request_count() == before {
                return before;
            }
        }
    }

    fn secret(&self, name: &str) -> Value {
        self.world.seed.get("", "secrets", &self.namespace, name).unwrap()
    }

    /// The token of a Secret, if its cluster accepts it.
    fn valid_token(&self, name: &str) -> Option<String> {
        let secret = self.secret(name);
        let decoded = |key: &str| {
            let encoded = secret["data"][key].as_str()?;
            String::from_utf8(from_base64(encoded)?).ok()
        };
        let token = match decoded("kubeconfig") {
            Some(config) => {
                let config = gardenlet::format::yaml::parse(&config).unwrap();
                text(&config, "/users/0/user/token").to_owned()
            }
            None => decoded("token")?,
        };
        let user = self.cluster.server().shared.user_of(&token)?;
        assert_eq!(user.name, format!("system:serviceaccount:kube-system:{name}"));
        Some(token)
    }

    fn wait_for_tokens(&self) {
        for name in ["gardener-internal", "shoot-access-manager"] {
            self.world
                .seed
                .wait_for(&format!("a valid token in {}/{name}", self.namespace), |_| self.valid_token(name));
        }
    }

    /// A ManagedResource for the cluster, with a ConfigMap.
    fn manage(&self, name: &str) {
        let map = json!({"apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": name, "namespace": "kube-system"}, "data": {"a": "b"}});
        let namespace = self.namespace.as_str();
        self.world.seed.apply(&[
            json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": format!("managedresource-{name}"),
                "namespace": namespace}, "stringData": {"data.yaml": map.to_string()}}),
            json!({"apiVersion": "resources.gardener.cloud/v1alpha1", "kind": "ManagedResource",
                "metadata": {"name": name, "namespace": namespace},
                "spec": {"secretRefs": [{"name": format!("managedresource-{name}")}]}}),
        ]);
    }

    fn wait_for_map(&self, name: &str) -> Value {
        self.cluster.wait_for("the ConfigMap in the Shoot", |c| c.get("", "configmaps", "kube-system", name))
    }
}

fn world(name: &'static str) -> World {
    world_of(&Options::calm(name))
}

fn world_of(options: &Options) -> World {
    let world = World::start(options);
    world.seed.apply(&prepare::access().1);
    world
}

/// Leases are longer than the jumps of the clock.
fn config(world: &World) -> Value {
    let mut config = world.config();
    config["leaderElection"] =
        json!({"leaderElect": true, "leaseDuration": "60h", "renewDeadline": "50h", "retryPeriod": "2s"});
    config
}

fn start(world: &World) -> Agent {
    let agent = world.agent_with(&config(world));
    world.wait_until_ready();
    agent.wait_until_the_seed_side_runs();
    agent
}

/// The clock jumps, and the applier renews its lease.
fn jump(world: &World, by: Duration) {
    world.time.advance(by);
    let before = world.clock.now().minus(by);
    world.seed.wait_for("the next renewal of the applier's lease", |seed| {
        renewed(seed, "gardener-resource-manager").filter(|renewed| *renewed > before)
    });
}

fn serves(world: &World, plane: &Plane<'_>) {
    let line = format!("namespace={}", plane.namespace);
    world.wait_for_log(&["INFO", "Serving the cluster of the Shoot", &line]);
}

#[test]
fn a_shoot_gets_its_objects_and_tokens_for_a_month_without_a_garden() {
    // The leases are longer than each jump, so none is late.
    let world = world_of(&Options::new("month"));
    let agent = start(&world);
    let plane = Plane::start(&world, "a");
    plane.manage("one");
    let map = plane.wait_for_map("one");
    let origin = entry(&map, "/metadata/annotations", "resources.gardener.cloud/origin").unwrap();
    let identity = world.seed.get("", "configmaps", "kube-system", "cluster-identity").unwrap();
    assert_eq!(origin, format!("{}:{}/one", text(&identity, "/data/cluster-identity"), plane.namespace));
    plane.wait_for_tokens();

    world.garden.server().down();
    let first = plane.valid_token("shoot-access-manager").unwrap();
    for day in 0..30 {
        if day == 15 {
            // Normally the kubelet does this.
            let account = world.seed.get("", "serviceaccounts", "garden", "gardenlet").unwrap();
            let token =
                world.seed.server().shared.tokens().issue(&account, &[], world.clock.now(), 30 * 86_400);
            std::fs::write(world.path("serviceaccount").join("token"), token).unwrap();
        }
        for _ in 0..3 {
            jump(&world, 8 * HOUR);
            world.seed.wait_for(&format!("renewed tokens on day {day}"), |_| {
                let renew_at = |name: &str| {
                    let secret = plane.secret(name);
                    from_rfc3339(entry(&secret, "/metadata/annotations", RENEW_AT)?)
                };
                let good = |name: &&str| {
                    renew_at(name) > Some(world.clock.now()) && plane.valid_token(name).is_some()
                };
                ["gardener-internal", "shoot-access-manager"].iter().all(good).then_some(())
            });
        }
    }
    assert_ne!(plane.valid_token("shoot-access-manager").unwrap(), first);
    plane.manage("two");
    plane.wait_for_map("two");

    // The applier is away for longer than any token is valid, and still without a garden.
    agent.crash();
    world.time.advance(25 * HOUR);
    assert_eq!(plane.valid_token("gardener-internal"), None);
    agent.launch();
    plane.wait_for_tokens();
    agent.stop();
}

#[test]
fn a_hibernated_shoot_and_one_of_another_program_get_no_requests() {
    let world = world("asleep");
    let agent = start(&world);
    let plane = Plane::start(&world, "a");
    plane.wait_for_tokens();
    let scale = |name: &str, replicas: u32| {
        world.seed.merge(
            "apps",
            "deployments",
            (&plane.namespace, name),
            &json!({"spec": {"replicas": replicas}}),
        );
    };
    let line = format!("namespace={}", plane.namespace);
    scale("kube-apiserver", 0);
    jump(&world, HOUR / 12);
    world.wait_for_log(&[
        "Not serving the cluster of the Shoot",
        &line,
        "no requests are sent to its kube-apiserver",
    ]);
    plane.manage("later");
    let mark = plane.quiet();
    for _ in 0..5 {
        jump(&world, 4 * HOUR);
    }
    let asked = plane.cluster.requests_since(mark);
    assert!(asked.is_empty(), "{asked:?}");
    scale("kube-apiserver", 1);
    jump(&world, HOUR / 12);
    plane.wait_for_map("later");
    plane.wait_for_tokens();

    world.seed.apply(&[deployment(&plane.namespace, "gardener-resource-manager", 2)]);
    jump(&world, HOUR / 12);
    world.wait_for_log(&[
        "Not serving the cluster of the Shoot",
        &line,
        "left to deployment gardener-resource-manager",
    ]);
    let mark = plane.quiet();
    jump(&world, 4 * HOUR);
    let asked = plane.cluster.requests_since(mark);
    assert!(asked.is_empty(), "{asked:?}");
    agent.stop();
}

#[test]
fn new_cas_of_a_shoot_are_trusted_and_used() {
    let world = world("authorities");
    let agent = start(&world);
    let plane = Plane::start(&world, "a");
    plane.wait_for_tokens();
    plane.cluster.rotate_ca();
    // At the earliest in the same second as the first ones.
    world.skip(Duration::from_secs(5));
    plane.publish("-rotated");
    jump(&world, HOUR / 4);
    plane.manage("after");
    plane.wait_for_map("after");
    agent.stop();
}

#[test]
fn a_shoot_that_drops_packets_delays_no_other() {
    let world = world("swallowed");
    let agent = start(&world);
    let (lost, other) = (Plane::start(&world, "lost"), Plane::start(&world, "other"));
    serves(&world, &lost);
    serves(&world, &other);
    agent.cable().lose(Some(&format!("127.0.0.1:{}", lost.port())));
    agent.cable().break_off();
    for n in 0..5 {
        lost.manage(&format!("m{n}"));
    }
    other.manage("quick");
    let clock = pace::clock();
    let begun = clock.mono();
    other.wait_for_map("quick");
    let lasted = clock.mono() - begun;
    measured("a Shoot beside one that drops packets, in seconds", lasted.as_secs_f64(), 10.0).unwrap();
    agent.cable().lose(None);
    jump(&world, HOUR / 12);
    lost.wait_for_map("m0");
    agent.stop();
}

#[test]
fn unreferenced_objects_are_deleted_in_a_shoot_too() {
    let world = world("collected");
    let agent = start(&world);
    let plane = Plane::start(&world, "a");
    plane.wait_for_tokens();
    serves(&world, &plane);
    let collectable = |kind: &str, name: &str| {
        json!({"apiVersion": "v1", "kind": kind, "metadata": {"namespace": "kube-system", "name": name,
            "labels": {"resources.gardener.cloud/garbage-collectable-reference": "true"}}, "immutable": true})
    };
    let user = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"namespace": "kube-system", "name": "user",
        "annotations": {"reference.resources.gardener.cloud/secret-12345678": "kept"}}, "spec": {"replicas": 0,
        "selector": {"matchLabels": {"a": "b"}}, "template": {"metadata": {"labels": {"a": "b"}},
            "spec": {"containers": [{"name": "c", "image": "i"}]}}}});
    let mut plain = collectable("Secret", "plain");
    plain["metadata"]["labels"] = json!({});
    let all = [
        collectable("Secret", "kept"),
        collectable("Secret", "left"),
        collectable("ConfigMap", "left"),
        plain,
        user,
    ];
    plane.cluster.apply(&all);
    // The first check comes within an hour.
    jump(&world, HOUR);
    let is_there = |plural: &str, name: &str| plane.cluster.get("", plural, "kube-system", name).is_some();
    plane.cluster.wait_for("garbage to go", |_| {
        (!is_there("secrets", "left") && !is_there("configmaps", "left")).then_some(())
    });
    assert!(is_there("secrets", "kept") && is_there("secrets", "plain"));

    // Garbage from the time since then is deleted half a day later, and an unreachable Shoot is skipped.
    plane.cluster.apply(&[collectable("Secret", "later")]);
    plane.cluster.server().down();
    jump(&world, 14 * HOUR);
    world.skip(Duration::from_secs(5));
    plane.cluster.server().up().unwrap();
    assert!(is_there("secrets", "later"));
    for _ in 0..6 {
        jump(&world, HOUR / 4);
    }
    plane.cluster.wait_for("the rest to go", |_| (!is_there("secrets", "later")).then_some(()));
    assert!(is_there("secrets", "kept"));
    agent.stop();
}
