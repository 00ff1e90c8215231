//! ManagedSeeds: agents that are deployed into the clusters of Shoots. Servers of the test play these clusters, since a
//! Shoot without workers cannot become a seed.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use gardenlet::format::yaml;
use serde_json::{Value, json};

use crate::story_operating::Desk;
use crate::world::{Agent, CORE, Options, World, cluster_admin, condition, wait_for};
use support::TestCluster;
use support::api::failure::Failure;
use support::api::store::Id;
use support::cluster::{Authorization, Options as ClusterOptions};
use support::encoding::from_base64;
use support::garden::prepare;
use support::http::faults::{Action, Seen};
use support::http::record::Recorded;
use support::json::{entry, text};
use support::shoot::object;

pub(crate) const MANAGEMENT: &str = "seedmanagement.gardener.cloud";
pub(crate) const GARDEN: &str = "garden";
/// The Shoot, the ManagedSeed and the Seed.
pub(crate) const NAME: &str = "s1";
/// The address of the Service of its kube-apiserver, in the range of the seed's Services: a route leads from there to
/// the server of the test.
const ADDRESS: &str = "10.52.7.7";
const USE_AS_SEED: &str = "shoot.gardener.cloud/use-as-seed";
const MINUTE: Duration = Duration::from_secs(60);

/// A seed with an agent, and a Shoot with a cluster.
pub(crate) struct Lab {
    pub(crate) world: World,
    pub(crate) agent: Arc<Agent>,
    pub(crate) target: TestCluster,
}

pub(crate) fn plane() -> String {
    format!("shoot--garden--{NAME}")
}

fn account(namespace: &str, name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"namespace": namespace, "name": name}})
}

fn secret(namespace: &str, config: &str, data: &Value) -> Value {
    json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": config, "namespace": namespace, "labels": {
        "managed-by": "secrets-manager", "manager-identity": "gardenlet", "name": config}}, "stringData": data})
}

impl Lab {
    pub(crate) fn start(name: &'static str, change: impl FnOnce(&World, &mut Value)) -> Self {
        Self::start_and(name, change, |_, _, _| {})
    }

    /// The same; `begin` is called before the agent starts.
    pub(crate) fn start_and(
        name: &'static str,
        change: impl FnOnce(&World, &mut Value),
        begin: impl FnOnce(&World, &TestCluster, &Arc<Agent>),
    ) -> Self {
        let world = World::start(&Options::new(name));
        object::prepare_garden(&world.garden);
        object::prepare_seed(&world.seed);
        let mut options = ClusterOptions::new(&plane(), &world.clock);
        options.server_names = vec![format!("kube-apiserver.{}.svc", plane())];
        options.authorization = Authorization::Rbac;
        let target = TestCluster::start(options);
        let mut config = world.config();
        config["leaderElection"] = json!({"leaderElect": false});
        config["controllers"]["managedSeed"] = json!({"syncJitterPeriod": "1m"});
        change(&world, &mut config);
        prepare_plane(&world, &target);
        let mut agent = Agent::new(&world, "host-1", &config, world.pod());
        agent.routes.insert(format!("{ADDRESS}:443"), address(&target));
        let agent = Arc::new(agent);
        begin(&world, &target, &agent);
        agent.launch();
        world.wait_until_ready();
        Self { world, agent, target }
    }

    /// The Shoot as the garden stores it.
    pub(crate) fn put_shoot(&self, more: impl FnOnce(&mut Value)) {
        let mut shoot = prepare::shoot(NAME);
        shoot["metadata"]["namespace"] = json!(GARDEN);
        shoot["metadata"]["uid"] = json!("uid-of-s1");
        shoot["metadata"]["generation"] = json!(1);
        shoot["metadata"]["labels"] =
            json!({format!("name.seed.gardener.cloud/{}", self.world.name): "true"});
        shoot["spec"]["seedName"] = json!(self.world.name);
        // This test is not about its operations.
        shoot["metadata"]["annotations"] = json!({"shoot.gardener.cloud/ignore": "true"});
        shoot["spec"]["dns"] = json!({"domain": "s1.example.org"});
        shoot["status"] = json!({"seedName": self.world.name, "technicalID": plane(), "observedGeneration": 1,
            "lastOperation": {"type": "Create", "state": "Succeeded", "progress": 100, "description": "by the test",
                "lastUpdateTime": "2026-01-05T00:00:00Z"}});
        more(&mut shoot);
        let id = Id::new(CORE, "shoots", GARDEN, NAME);
        self.world.garden.store().write(|state| drop(state.put(id, shoot)));
        // The garden completes it, which changes the generation.
        let held = self.world.garden.wait_for("the Shoot to be held", |garden| {
            let shoot = garden.get(CORE, "shoots", GARDEN, NAME)?;
            shoot["metadata"]["finalizers"].is_array().then_some(shoot)
        });
        let observed = json!({"status": {"observedGeneration": held["metadata"]["generation"]}});
        self.world.garden.merge_status(CORE, "shoots", (GARDEN, NAME), &observed);
    }

    pub(crate) fn make(&self, more: impl FnOnce(&mut Value)) {
        let mut managed = json!({"metadata": {"namespace": GARDEN, "name": NAME,
                "labels": {format!("name.seed.gardener.cloud/{}", self.world.name): "true"}},
            "spec": {"shoot": {"name": NAME}, "gardenlet": {
                "deployment": {"replicaCount": 1, "image": {"repository": "registry.example.org/gardenlet", "tag": "1"}},
                "config": {"apiVersion": "gardenlet.config.gardener.cloud/v1alpha1", "kind": "GardenletConfiguration",
                    "seedConfig": {"metadata": {"name": NAME}, "spec": prepare::seed_spec()}}}}});
        more(&mut managed);
        self.world.garden.create("seedmanagement.gardener.cloud/v1alpha1", "managedseeds", &managed);
        self.pass_list();
    }

    /// ManagedSeeds are listed once a minute.
    pub(crate) fn pass_list(&self) {
        self.world.time.advance(MINUTE);
    }

    pub(crate) fn managed(&self) -> Option<Value> {
        self.world.garden.get(MANAGEMENT, "managedseeds", GARDEN, NAME)
    }

    pub(crate) fn change(&self, patch: &Value) {
        self.world.garden.merge(MANAGEMENT, "managedseeds", (GARDEN, NAME), patch);
        self.pass_list();
    }

    pub(crate) fn wait_for(&self, kind: &str, reason: &str, words: &str) -> Value {
        self.world.garden.wait_for(&format!("{kind} {reason} {words}"), |_| {
            let managed = self.managed()?;
            let found = condition(&managed, kind)?;
            (found.1 == reason && found.2.contains(words)).then_some(managed)
        })
    }

    pub(crate) fn of_target(&self, group: &str, plural: &str, name: &str) -> Option<Value> {
        self.target.get(group, plural, GARDEN, name)
    }

    pub(crate) fn deployment(&self) -> Option<Value> {
        self.of_target("apps", "deployments", "gardenlet")
    }

    /// The configuration that the deployed agent reads.
    pub(crate) fn config(&self) -> Value {
        let deployment = self.deployment().unwrap();
        let volumes = &deployment["spec"]["template"]["spec"]["volumes"];
        let map = volumes.as_array().unwrap().iter().find(|it| it["name"] == "gardenlet-config").unwrap();
        let map = self.of_target("", "configmaps", text(map, "/configMap/name")).unwrap();
        yaml::parse(text(&map, "/data/config.yaml")).unwrap()
    }

    /// The bootstrap token that the deployed agent has.
    pub(crate) fn token(&self) -> Option<String> {
        let secret = self.of_target("", "secrets", "gardenlet-kubeconfig-bootstrap")?;
        let text = String::from_utf8(from_base64(secret["data"]["kubeconfig"].as_str()?)?).ok()?;
        let kubeconfig = yaml::parse(&text).unwrap();
        Some(support::json::text(&kubeconfig, "/users/0/user/token").to_owned())
    }

    /// Objects that the agent wrote in the target cluster since `mark`.
    pub(crate) fn writes(&self, mark: usize) -> Vec<String> {
        let all = self.target.requests_since(mark);
        let ours = all.iter().filter(|r| r.is_write() && r.user.ends_with(":gardener-internal"));
        ours.map(Recorded::line).collect()
    }

    pub(crate) fn has_event(&self, kind: &str, words: &str) {
        self.world.garden.wait_for(&format!("an event {words}"), |garden| {
            let events = garden.store().list("events.k8s.io", "events", GARDEN);
            let is_it = |e: &Value| e["regarding"]["kind"] == kind && text(e, "/note").contains(words);
            events.iter().any(is_it).then_some(())
        });
    }

    pub(crate) fn end(self) {
        self.agent.stop();
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let shoot = self.world.garden.get(CORE, "shoots", GARDEN, NAME);
            let managed = self.managed().unwrap_or_default();
            eprintln!(
                "---- the ManagedSeed: {}\n---- the Shoot: {}",
                managed["status"],
                shoot.unwrap_or_default()["status"]
            );
        }
    }
}

/// The access to the cluster.
fn service() -> Value {
    json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "kube-apiserver", "namespace": plane()},
        "spec": {"clusterIP": ADDRESS, "clusterIPs": [ADDRESS], "ports": [{"port": 443}]}})
}

fn address(target: &TestCluster) -> SocketAddr {
    World::address(target).parse().unwrap()
}

/// The credentials for clients of the cluster in the namespace of the control plane.
fn prepare_plane(world: &World, target: &TestCluster) {
    let (namespace, authority) = (plane(), target.authority());
    target.apply(&[
        cluster_admin(),
        account("kube-system", "gardener-internal"),
        json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": "internal"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
            "subjects": [{"kind": "ServiceAccount", "namespace": "kube-system", "name": "gardener-internal"}]}),
    ]);
    let internal = target.get("", "serviceaccounts", "kube-system", "gardener-internal").unwrap();
    let token = target.server().shared.tokens().issue(&internal, &[], world.clock.now(), 365 * 86_400);
    let config = json!({"apiVersion": "v1", "kind": "Config", "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "c"}}],
        "clusters": [{"name": "c", "cluster": {"server": "https://kube-apiserver"}}],
        "users": [{"name": "c", "user": {"token": token}}]});
    world.seed.apply(&[
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}),
        service(),
        secret(&namespace, "ca-bundle", &json!({"bundle.crt": authority.certificate()})),
        json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "gardener-internal", "namespace": namespace},
            "stringData": {"kubeconfig": config.to_string()}}),
    ]);
}

/// The deployed agent, in this process, with only the deployed files.
fn start_child(lab: &Lab) -> Agent {
    let (world, target) = (&lab.world, &lab.target);
    let folder: PathBuf = world.path("child-account");
    std::fs::create_dir_all(&folder).unwrap();
    let account = target.get("", "serviceaccounts", GARDEN, "gardenlet").unwrap();
    let token = target.server().shared.tokens().issue(&account, &[], world.clock.now(), 30 * 86_400);
    std::fs::write(folder.join("token"), token).unwrap();
    std::fs::write(folder.join("ca.crt"), target.ca()).unwrap();
    let mut config = lab.config();
    assert_eq!(config["edge"]["workers"], 4, "the parent's own options travel");
    // These belong to the pod: a folder, and addresses to listen on.
    for (part, field) in [("edge", "stateDir"), ("", "server")] {
        let part = if part.is_empty() { &mut config } else { &mut config[part] };
        part.as_object_mut().unwrap().remove(field);
    }
    // The story lets time pass faster than a Lease is renewed.
    config["leaderElection"] = json!({"leaderElect": false});
    let mut variables = world.pod();
    let (host, port) = target
        .url()
        .strip_prefix("https://")
        .unwrap()
        .rsplit_once(':')
        .map(|(h, p)| (h.to_owned(), p.to_owned()))
        .unwrap();
    variables.insert("KUBERNETES_SERVICE_HOST".to_owned(), host);
    variables.insert("KUBERNETES_SERVICE_PORT".to_owned(), port);
    let child = Agent::new(world, "child-1", &config, variables).with_account(folder);
    child.launch();
    child
}

#[test]
fn a_managed_seed_gets_an_agent_that_joins_the_garden_and_is_deleted() {
    let lab = Lab::start("parent", |_, _| {});
    lab.put_shoot(|shoot| shoot["status"]["lastOperation"]["state"] = json!("Processing"));
    lab.make(|_| {});
    lab.wait_for("ShootReconciled", "Reconciling", "Waiting for shoot \"garden/s1\" to be reconciled");
    assert_eq!(lab.deployment(), None);
    lab.put_shoot(|_| {});
    let managed = lab.wait_for("SeedRegistered", "Reconciled", "Seed s1 has been registered");
    assert_eq!(condition(&managed, "ShootReconciled").unwrap().0, "True");
    assert_eq!(managed["metadata"]["finalizers"], json!(["gardener"]));
    assert_eq!(managed["status"]["observedGeneration"], managed["metadata"]["generation"]);
    let deployment = lab.deployment().unwrap();
    let container = &deployment["spec"]["template"]["spec"]["containers"][0];
    assert_eq!(container["image"], "registry.example.org/gardenlet:1");
    let host = json!({"name": "KUBERNETES_SERVICE_HOST", "value": "api.s1.example.org"});
    assert!(container["env"].as_array().unwrap().contains(&host), "{}", container["env"]);
    assert_eq!(deployment["spec"]["replicas"], 1);
    let namespace = lab.target.get("", "namespaces", "", GARDEN).unwrap();
    assert_eq!(entry(&namespace, "/metadata/labels", "gardener.cloud/role"), Some("garden"));
    assert_eq!(lab.config()["seedConfig"]["metadata"]["name"], NAME);
    let token = lab.token().unwrap();
    // A role has the same name in each namespace.
    for namespace in [GARDEN, "default", "kube-system"] {
        let role = |plural: &str| {
            lab.target.get("rbac.authorization.k8s.io", plural, namespace, "gardener.cloud:system:gardenlet")
        };
        assert!(role("roles").is_some() && role("rolebindings").is_some(), "{namespace}");
    }
    let told = Desk::new(&lab.world, |_| {}).explain(&["managedseed", NAME]);
    assert!(
        told.contains("- its Seed \"s1\" is not in the garden: the agent in the Shoot registers it"),
        "{told}"
    );

    // Nothing has changed: nothing is written, and the token stays.
    let mark = lab.target.request_count();
    lab.change(&json!({"metadata": {"annotations": {"gardener.cloud/operation": "reconcile"}}}));
    lab.world.garden.wait_for("another look", |_| {
        let managed = lab.managed()?;
        (managed["status"]["observedGeneration"] == managed["metadata"]["generation"]).then_some(())
    });
    assert_eq!(lab.writes(mark), Vec::<String>::new());
    assert_eq!(lab.token().unwrap(), token);

    // The agent works with these files.
    let child = start_child(&lab);
    lab.world.garden.wait_for("the new Seed", |garden| {
        let seed = garden.seed(NAME)?;
        condition(&seed, "GardenletReady").filter(|it| it.0 == "True")
    });
    assert!(lab.of_target("", "secrets", "gardenlet-kubeconfig").is_some());
    // It has a certificate now, and needs no token.
    lab.change(&json!({"metadata": {"annotations": {"gardener.cloud/operation": "reconcile"}}}));
    lab.target.wait_for("a configuration without a token", |_| {
        lab.config()["gardenClientConnection"].get("bootstrapKubeconfig").is_none().then_some(())
    });
    lab.change(&json!({"metadata": {"annotations": {"gardener.cloud/operation": "renew-kubeconfig"}}}));
    lab.target.wait_for("another token", |_| lab.token());
    lab.world.garden.wait_for("the end of the request", |_| {
        entry(&lab.managed()?, "/metadata/annotations", "gardener.cloud/operation").is_none().then_some(())
    });

    // The agent deletes the Seed first. Then the agent itself is deleted, then its namespace.
    lab.world.garden.delete(MANAGEMENT, "managedseeds", GARDEN, NAME);
    lab.pass_list();
    lab.world.garden.wait_for("the end of the Seed", |garden| {
        lab.world.time.advance(Duration::from_secs(2));
        garden.seed(NAME).is_none().then_some(())
    });
    child.stop();
    lab.world.garden.wait_for("the end of the ManagedSeed", |_| {
        lab.world.time.advance(Duration::from_secs(2));
        lab.managed().is_none().then_some(())
    });
    assert_eq!(lab.deployment(), None);
    assert_eq!(lab.target.get("", "namespaces", "", GARDEN), None);
    assert_eq!(
        lab.target.get("rbac.authorization.k8s.io", "clusterroles", "", "gardener.cloud:system:gardenlet"),
        None
    );
    lab.end();
}

#[test]
fn problems_of_a_managed_seed_are_reported_with_their_code() {
    let lab = Lab::start("careful", |_, _| {});
    let code = |managed: &Value| {
        let all = managed["status"]["conditions"].as_array().unwrap();
        all.iter().find(|it| it["type"] == "SeedRegistered").unwrap()["codes"].clone()
    };
    let problem = json!(["ERR_CONFIGURATION_PROBLEM"]);
    lab.put_shoot(|_| {});
    lab.make(|managed| managed["spec"]["gardenlet"] = json!({}));
    let missing = "spec.gardenlet.config.seedConfig is missing: nothing is deployed";
    let managed = lab.wait_for("SeedRegistered", "ReconcileError", missing);
    assert_eq!(code(&managed), problem);
    lab.has_event("ManagedSeed", missing);
    assert_eq!(lab.target.get("", "namespaces", "", GARDEN), None);

    // An invalid configuration is found before an agent starts with it.
    let config = |spec: Value| json!({"spec": {"gardenlet": {"config": {"logLevel": "info", "seedConfig": {"metadata": {"name": NAME}, "spec": spec}}}}});
    let mut wrong = config(prepare::seed_spec());
    wrong["spec"]["gardenlet"]["config"]["logLevel"] = json!("loud");
    lab.change(&wrong);
    lab.wait_for("SeedRegistered", "ReconcileError", "spec.gardenlet.config is invalid: logLevel: ");
    let mut spec = prepare::seed_spec();
    spec["backup"] = crate::story_backups::section();
    lab.change(&config(spec));
    let managed =
        lab.wait_for("SeedRegistered", "ReconcileError", "the configured backup secret does not exist");
    assert_eq!(code(&managed), problem);
    // Another agent exists there, for another seed.
    lab.world.garden.apply(&[crate::story_backups::credentials("first")]);
    let foreign = yaml::emit(&json!({"seedConfig": {"metadata": {"name": "other"}}}), yaml::Dialect::V4);
    lab.target.wait_for("the namespace", |target| target.get("", "namespaces", "", GARDEN));
    lab.target.apply(&[
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"namespace": GARDEN, "name": "foreign"}, "data": {"config.yaml": foreign}}),
        json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"namespace": GARDEN, "name": "gardenlet"},
            "spec": {"selector": {"matchLabels": {"a": "b"}}, "template": {"metadata": {"labels": {"a": "b"}}, "spec": {
                "containers": [{"name": "gardenlet", "image": "i"}],
                "volumes": [{"name": "gardenlet-config", "configMap": {"name": "foreign"}}]}}}}),
    ]);
    lab.change(&json!({"metadata": {"annotations": {"gardener.cloud/operation": "reconcile"}}}));
    let managed = lab.wait_for("SeedRegistered", "ReconcileError", "which uses seed name \"other\"");
    assert_eq!(code(&managed), problem);
    lab.target.delete("apps", "deployments", GARDEN, "gardenlet");
    // The Shoot has its own VerticalPodAutoscaler.
    let autoscaler = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"namespace": plane(), "name": "vpa-admission-controller"},
        "spec": {"replicas": 0, "selector": {"matchLabels": {"a": "b"}}, "template": {"metadata": {"labels": {"a": "b"}},
            "spec": {"containers": [{"name": "c", "image": "i"}]}}}});
    lab.world.seed.apply(&[autoscaler]);
    lab.change(&json!({"metadata": {"annotations": {"gardener.cloud/operation": "reconcile"}}}));
    lab.wait_for(
        "SeedRegistered",
        "ReconcileError",
        "runtime VPA is enabled but target cluster already has a VPA",
    );
    lab.world.seed.delete("apps", "deployments", &plane(), "vpa-admission-controller");
    // The cluster does not answer for a while.
    let away = lab.target.faults().when(|_| true).answer(503);
    lab.change(&json!({"metadata": {"annotations": {"gardener.cloud/operation": "reconcile"}}}));
    lab.wait_for("SeedRegistered", "ReconcileError", "could not get target client");
    away.cancel();
    lab.change(&json!({"metadata": {"annotations": {"gardener.cloud/operation": "reconcile"}}}));
    lab.wait_for("SeedRegistered", "Reconciled", "");
    let deployment = lab.deployment().unwrap();
    let digest =
        entry(&deployment["spec"]["template"], "/metadata/annotations", "checksum/seed-backup-secret");
    // Upstream's: the digest of the digests of the values.
    assert_eq!(digest, Some("backup-c3088bfa"));
    // A client scales it down: within the period it is up again.
    lab.target.merge("apps", "deployments", (GARDEN, "gardenlet"), &json!({"spec": {"replicas": 0}}));
    lab.change(&json!({"metadata": {"annotations": {"gardener.cloud/operation": "reconcile"}}}));
    lab.target.wait_for("the replicas", |_| (lab.deployment()?["spec"]["replicas"] != 0).then_some(()));
    lab.end();
}

#[test]
fn the_older_annotation_of_shoots_works_without_a_managed_seed() {
    // The older API objects belong to a garden that lets agents create Seeds.
    let lab = Lab::start("older", |world, config| {
        let file = world.file("garden", &world.garden.kubeconfig_for("someone", &["system:masters"]));
        config["gardenClientConnection"] = json!({"kubeconfig": file});
    });
    let annotate = |words: Value| {
        let patch = json!({"metadata": {"annotations": {USE_AS_SEED: words}}});
        lab.world.garden.merge(CORE, "shoots", (GARDEN, NAME), &patch);
    };
    lab.put_shoot(|_| {});
    let spec = || Some(lab.world.garden.seed(NAME)?["spec"].clone());
    // An unknown word alone deploys nothing.
    annotate(json!("yes"));
    lab.has_event("Shoot", "has the unknown word \"yes\"");
    assert_eq!(spec(), None);
    // Only the Seed.
    annotate(json!("no-gardenlet,invisible,protected"));
    lab.has_event("Shoot", "has the unknown word \"protected\"");
    let found = lab.world.garden.wait_for("the Seed", |_| spec());
    assert_eq!(found["settings"]["scheduling"]["visible"], false);
    assert_eq!(found["ingress"]["domain"], "ingress.s1.example.org");
    assert_eq!(lab.deployment(), None);
    // With an agent.
    annotate(json!("true,invisible"));
    lab.target.wait_for("the agent", |_| lab.deployment());
    let config = lab.config();
    assert_eq!(config["seedConfig"]["metadata"]["name"], NAME);
    assert_eq!(config["seedConfig"]["spec"]["settings"]["scheduling"]["visible"], false);
    lab.target.wait_for("its token", |_| lab.token());
    // It is removed while the agent does not run: everything is deleted.
    lab.agent.stop();
    annotate(Value::Null);
    lab.world.seed.delete("", "services", &plane(), "kube-apiserver");
    let mark = lab.world.garden.request_count();
    lab.agent.launch();
    lab.world.garden.wait_for("the agent to see Shoots", |garden| {
        let all = garden.requests_since(mark);
        all.iter().any(|r| r.info.resource == "shoots" && r.info.verb == "watch").then_some(())
    });
    lab.world.seed.apply(&[service()]);
    lab.world.garden.wait_for("the end of the Seed", |garden| {
        let seed = garden.seed(NAME);
        if seed.as_ref().is_some_and(|seed| !seed["metadata"]["deletionTimestamp"].is_null()) {
            // No agent serves it in this story.
            garden.merge(CORE, "seeds", ("", NAME), &json!({"metadata": {"finalizers": null}}));
        }
        lab.world.time.advance(Duration::from_secs(2));
        seed.is_none().then_some(())
    });
    lab.target.wait_for("the end of the agent", |target| {
        lab.world.time.advance(Duration::from_secs(2));
        (lab.deployment().is_none() && target.get("", "namespaces", "", GARDEN).is_none()).then_some(())
    });

    // A real ManagedSeed takes precedence.
    lab.make(|managed| managed["spec"]["gardenlet"]["deployment"]["replicaCount"] = json!(3));
    annotate(json!("true"));
    lab.wait_for("SeedRegistered", "Reconciled", "");
    assert_eq!(lab.deployment().unwrap()["spec"]["replicas"], 3);
    annotate(json!("no-gardenlet"));
    lab.world.skip(2 * MINUTE);
    assert_eq!(lab.world.garden.seed(NAME), None);
    lab.end();
}

#[test]
fn a_garden_without_managed_seeds_is_no_trouble() {
    let world = World::start(&Options::new("unmanaged"));
    let is_it = |seen: &Seen| seen.info.group == MANAGEMENT;
    world.garden.faults().when(is_it).then(Action::Refuse(Failure::no_resource()));
    let mut config = world.config();
    config["leaderElection"] = json!({"leaderElect": false});
    let agent = world.agent_with(&config);
    world.wait_until_ready();
    let looks = || world.garden.requests().iter().filter(|r| r.info.resource == "managedseeds").count();
    wait_for("the first look", || (looks() > 0).then_some(()));
    world.skip(5 * MINUTE);
    assert!(looks() <= 3, "{} looks", looks());
    let told: Vec<String> =
        world.own_log(0).into_iter().filter(|line| line.contains("controller=managed-seed")).collect();
    assert_eq!(told, Vec::<String>::new());
    agent.stop();
}
