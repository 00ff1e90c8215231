//! A Shoot is deleted: the objects in it, the objects around it, and its objects in the garden.

use std::sync::Arc;
use std::time::Duration;

use gardenlet::api::gardener::SHOOT;
use gardenlet::api::meta::Key;
use gardenlet::kube::DeleteParams;
use serde_json::{Value, json};

use crate::left::{Words, differences};
use crate::nodes::{self, Nodes};
use crate::story_operating::Desk;
use crate::story_status::wait_for_verdict;
use crate::world::{Agent, CORE, Options, World};
use support::TestCluster;
use support::api::failure::Failure;
use support::http::faults::{Action, Seen};
use support::http::record::Recorded;
use support::json::{list, text};
use support::shoot::history::{self, wait_until_created};
use support::shoot::object::{self, PROJECT_NAMESPACE, ShootObject, technical_id};
use support::shoot::server::Server;
use support::shoot::{Site, Trouble};

const NAME: &str = "s1";
const PLACE: (&str, &str) = (PROJECT_NAMESPACE, NAME);
const FORCE: &str = "confirmation.gardener.cloud/force-deletion";

/// A world with an agent and no Shoot.
pub struct Scene {
    pub world: World,
    site: Site,
    pub agent: Arc<Agent>,
    before: Vec<(String, Value)>,
    object: ShootObject,
}

impl Scene {
    pub fn new(name: &'static str) -> Self {
        Self::on(name, World::site, Nodes::Nobody)
    }

    /// With a Shoot whose nodes are hosts.
    pub fn of_hosts(name: &'static str) -> Self {
        Self::on(name, World::site, Nodes::Hosts)
    }

    fn on(name: &'static str, site: fn(&World) -> Site, nodes: Nodes) -> Self {
        let world = World::start(&Options::new(name));
        let site = site(&world);
        let object = nodes.shoot(&world, NAME);
        let mut config = nodes.config(&world);
        // These stories let much time pass.
        config["leaderElection"] =
            json!({"leaseDuration": "3000s", "renewDeadline": "2000s", "retryPeriod": "2s"});
        let agent = Arc::new(world.agent_of(&site, &config));
        agent.launch();
        world.wait_until_ready();
        let before = left(&world);
        Self { world, site, agent, before, object }
    }

    pub fn world(&self) -> &World {
        &self.world
    }

    fn plane(&self) -> String {
        technical_id(NAME)
    }

    fn shoot(&self) -> Option<Value> {
        self.world.garden.get(CORE, "shoots", PLACE.0, PLACE.1)
    }

    /// Lets its host join, and creates objects in its cluster that block a deletion.
    pub fn fill(&self) -> Arc<Server> {
        let server = self.site.server(&self.plane()).unwrap();
        nodes::join(&self.world, NAME, &server);
        fill(&server.cluster);
        server
    }

    pub fn is_gone(&self) -> bool {
        self.shoot().is_none()
    }

    pub fn create(&self) {
        self.world.garden.apply(&[short(self.object.clone()).build()]);
    }

    /// Objects that this agent creates for no Shoot without workers.
    fn leftovers(&self) -> Vec<Value> {
        let cloud =
            json!({"region": "north", "secretRef": {"name": "cloudprovider", "namespace": self.plane()}});
        let pool = json!({"name": "w", "selector": {}});
        let kinds = [
            ("ContainerRuntime", json!({"binaryPath": "/bin", "workerPool": pool})),
            ("ControlPlane", cloud.clone()),
            ("Infrastructure", cloud.clone()),
            ("Network", json!({"podCIDR": "100.96.0.0/11", "serviceCIDR": "100.64.0.0/13"})),
            ("OperatingSystemConfig", json!({"purpose": "reconcile"})),
            ("SelfHostedShootExposure", json!({"port": 443, "endpoints": []})),
            ("Worker", merged(cloud, json!({"pools": []}))),
        ];
        let one = |(kind, spec)| {
            json!({"apiVersion": "extensions.gardener.cloud/v1alpha1", "kind": kind,
                "metadata": {"name": "left", "namespace": self.plane()}, "spec": merged(spec, json!({"type": "local"}))})
        };
        kinds.map(one).into()
    }

    /// The owner deletes it, with the annotation that confirms it.
    pub fn delete(&self) {
        self.annotate("confirmation.gardener.cloud/deletion");
        let client = self.world.garden.client();
        client.delete(&SHOOT, &Key::new(PLACE.0, PLACE.1), &DeleteParams::default()).unwrap();
    }

    fn annotate(&self, name: &str) {
        let patch = json!({"metadata": {"annotations": {name: "true"}}});
        self.world.garden.merge(CORE, "shoots", PLACE, &patch);
    }

    fn wait_for_error(&self, task: &str) -> Value {
        self.world.garden.wait_for(&format!("the error of {task:?}"), |_| {
            let shoot = self.shoot()?;
            list(&shoot, "/status/lastErrors").iter().find(|error| text(error, "/taskID") == task).cloned()
        })
    }

    /// The garden forbids to read what does not belong to the seed any more.
    fn nothing_is_wrong_afterwards(&self) {
        let garden = &self.world.garden;
        garden.wait_for("the end of the Shoot", |_| self.shoot().is_none().then_some(()));
        let mark = garden.request_count();
        garden.wait_for("a look for the Shoot", |garden| {
            self.world.time.advance(Duration::from_secs(1));
            let is_it = |r: &Recorded| r.info.resource == "shoots" && r.method == "GET" && r.status == 403;
            garden.requests_since(mark).iter().any(is_it).then_some(())
        });
        self.world.time.advance(Duration::from_secs(60));
        wait_for_verdict(&self.agent, "healthy");
    }

    /// Waits until the Shoot is deleted, and no object exists that did not exist before it.
    pub fn wait_until_gone(&self) {
        self.world.garden.wait_for("the end of the Shoot", |_| self.shoot().is_none().then_some(()));
        self.world.garden.wait_for("the end of the deletion", |_| {
            differences(&self.before, &left(&self.world)).is_empty().then_some(())
        });
        let mut falls = history::falls(&self.operations());
        // A restarted operation starts with progress 0.
        falls.retain(|fall| !fall.ends_with("Delete Processing 0"));
        assert_eq!(falls, Vec::<String>::new());
        assert_eq!(self.site.complaints(), Vec::<String>::new());
        self.agent.stop();
    }

    pub fn operations(&self) -> Vec<history::Operation> {
        history::operations(&self.world.garden, PLACE.0, PLACE.1)
    }
}

/// The fields of both.
fn merged(mut one: Value, other: Value) -> Value {
    if let (Value::Object(one), Value::Object(other)) = (&mut one, other) {
        one.extend(other);
    }
    one
}

/// Objects get ten seconds.
fn short(shoot: ShootObject) -> ShootObject {
    ["webhooks", "extended-apis", "kubernetes-resources"].into_iter().fold(shoot, |shoot, stage| {
        let name = format!("shoot.gardener.cloud/cleanup-{stage}-finalize-grace-period-seconds");
        shoot.annotated(&name, "10")
    })
}

/// Objects that a Shoot could leave in garden and seed.
fn left(world: &World) -> Vec<(String, Value)> {
    let is_of_agent = |plural: &str| ["leases", "seeds", "shoots"].contains(&plural);
    let words = Words::new(&[]);
    let mut all = words.left_in(&world.garden, |id| {
        id.namespace == PROJECT_NAMESPACE || id.namespace == "gardener-system-shoot-issuer"
    });
    all.extend(words.left_in(&world.seed, |id| {
        !is_of_agent(&id.plural) && (id.namespace.starts_with("shoot--") || id.name.starts_with("shoot--"))
    }));
    all
}

/// Objects that block a deletion: a custom resource with a finalizer that no controller removes, a webhook that does
/// not answer, and other objects of users.
fn fill(cluster: &TestCluster) {
    let meta = |name: &str| json!({"name": name});
    let in_default = |name: &str| json!({"name": name, "namespace": "default"});
    cluster.create("apiextensions.k8s.io/v1", "customresourcedefinitions", &json!({"metadata": meta("things.example.org"), "spec": {
        "group": "example.org", "scope": "Namespaced", "names": {"kind": "Thing", "plural": "things", "singular": "thing", "listKind": "ThingList"},
        "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object",
            "x-kubernetes-preserve-unknown-fields": true}}}]}}));
    cluster.wait_for("the definition", |cluster| {
        cluster.store().read().kinds.all().any(|kind| kind.plural == "things").then_some(())
    });
    let stuck = json!({"name": "stuck", "namespace": "default", "finalizers": ["example.org/nobody"]});
    let thing = json!({"apiVersion": "example.org/v1", "kind": "Thing", "metadata": stuck});
    cluster.create("example.org/v1", "things", &thing);
    cluster.create(
        "admissionregistration.k8s.io/v1",
        "validatingwebhookconfigurations",
        &json!({"metadata": meta("dead"), "webhooks": [{"name": "dead.example.org", "failurePolicy": "Fail", "sideEffects": "None",
            "admissionReviewVersions": ["v1"], "clientConfig": {"service": {"namespace": "default", "name": "nowhere"}},
            "rules": [{"apiGroups": ["", "apiextensions.k8s.io"], "apiVersions": ["v1"], "operations": ["*"],
                "resources": ["services", "customresourcedefinitions"]}]}]}),
    );
    cluster.create("v1", "namespaces", &json!({"metadata": meta("own")}));
    cluster.create("v1", "configmaps", &json!({"metadata": in_default("map"), "data": {"a": "b"}}));
    cluster.create("v1", "secrets", &json!({"metadata": in_default("secret")}));
    for (name, finalizers) in [("plain", json!([])), ("held", json!(["example.org/nobody"]))] {
        let service = json!({"metadata": {"name": name, "namespace": "default", "finalizers": finalizers}, "spec": {"ports": [{"port": 80}]}});
        cluster.create("v1", "services", &service);
    }
    // More than a page.
    for index in 0..120 {
        let service = json!({"metadata": {"name": format!("many-{index}"), "namespace": "default"}, "spec": {"ports": [{"port": 80}]}});
        cluster.create("v1", "services", &service);
    }
    refuse_while_the_webhook_is_there(cluster);
}

/// The answer of an API server that cannot reach a webhook.
fn refuse_while_the_webhook_is_there(cluster: &TestCluster) {
    let store = cluster.store().clone();
    let is_refused = move |seen: &Seen| {
        let is_ruled = ["services", "customresourcedefinitions"].contains(&seen.info.resource.as_str());
        let group = "admissionregistration.k8s.io";
        seen.is_write()
            && is_ruled
            && seen.info.subresource.is_empty()
            && !store.names(group, "validatingwebhookconfigurations", "").is_empty()
    };
    let answer = Failure::new(
        500,
        "InternalError",
        "Internal error occurred: failed calling webhook \"dead.example.org\": service \"nowhere\" not found",
    );
    cluster.faults().when(is_refused).then(Action::Refuse(answer));
}

#[test]
fn a_shoot_is_deleted_with_everything_in_it() {
    let scene = Scene::new("shoot-delete");
    scene.create();
    wait_until_created(&scene.world.garden, PLACE);
    let server = scene.fill();
    // The deletion needs a confirmation.
    scene.world.garden.wait_for("the ShootState", |garden| garden.get(CORE, "shootstates", PLACE.0, PLACE.1));
    scene.delete();
    let seen = scene.world.garden.wait_for("the deletion", |_| {
        scene.operations().into_iter().find(|operation| operation.line() == "Delete Processing 0")
    });
    assert_eq!(seen.description, "Deletion of Shoot cluster in progress.");
    scene.nothing_is_wrong_afterwards();
    scene.wait_until_gone();
    let operations = scene.operations();
    let last = operations.last().unwrap();
    assert_eq!(last.line(), "Delete Succeeded 100");
    assert_eq!(last.description, "Shoot cluster has been successfully deleted.");
    let is_error = |o: &&history::Operation| ["Error", "Failed"].contains(&o.state.as_str());
    assert_eq!(operations.iter().find(is_error), None);
    // The agent removes finalizers by force, and objects outside of its resources disappear with etcd.
    let of = |plural: &str| server.cluster.store().names("", plural, "default");
    assert_eq!(of("services"), ["kubernetes"]);
    let without = |group: &str, plural: &str| server.cluster.store().names(group, plural, "");
    assert_eq!(without("admissionregistration.k8s.io", "validatingwebhookconfigurations"), [""; 0]);
    assert_eq!(without("apiextensions.k8s.io", "customresourcedefinitions"), [""; 0]);
    let requests = server.cluster.requests();
    let first = |plural: &str| {
        requests.iter().position(|r| r.method == "DELETE" && r.info.resource == plural && r.status == 200)
    };
    let places = ["validatingwebhookconfigurations", "customresourcedefinitions", "services"].map(first);
    assert!(places.iter().all(Option::is_some) && places.is_sorted(), "{places:?}");
    assert!(of("configmaps").contains(&"map".to_owned()));
}

/// Without a client: a missing server gets no requests.
#[test]
fn force_needs_no_api_server() {
    let scene = Scene::new("shoot-force");
    scene.create();
    wait_until_created(&scene.world.garden, PLACE);
    scene.world.seed.delete("apps", "deployments", &scene.plane(), "kube-apiserver");
    let held = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "held", "namespace": scene.plane(),
        "finalizers": ["example.org/nobody"]}});
    scene.world.seed.apply(&[held]);
    scene.world.seed.apply(&scene.leftovers());
    let server = scene.site.server(&scene.plane()).unwrap();
    scene.world.seed.wait_for("the end of the server", |_| server.pod().is_none().then_some(()));
    // The garden allows force only after an error.
    let error =
        json!({"status": {"lastErrors": [{"description": "d", "codes": ["ERR_CLEANUP_CLUSTER_RESOURCES"]}]}});
    scene.world.garden.merge_status(CORE, "shoots", PLACE, &error);
    scene.annotate("confirmation.gardener.cloud/deletion");
    // No step may start that force would have to end.
    scene.agent.stop();
    let client = scene.world.garden.client();
    client.delete(&SHOOT, &Key::new(PLACE.0, PLACE.1), &DeleteParams::default()).unwrap();
    scene.annotate(FORCE);
    let dials = || scene.site.routes().dials(&scene.plane());
    // It was reachable while it existed.
    let before = dials();
    assert!(before > 0);
    scene.agent.launch();
    scene.wait_until_gone();
    assert_eq!(dials(), before);
    assert_eq!(scene.operations().last().unwrap().line(), "Delete Succeeded 100");
}

/// A deletion that waits for its cluster ends when its owner uses force.
#[test]
fn force_ends_a_deletion_that_is_stuck() {
    let scene = Scene::on("shoot-stuck", World::reachable_site, Nodes::Nobody);
    scene.world.garden.apply(&[ShootObject::workerless(NAME).build()]);
    wait_until_created(&scene.world.garden, PLACE);
    scene.fill();
    scene.delete();
    let task = "Cleaning extended API groups";
    scene.world.garden.wait_for("the clean-up", |_| {
        let shoot = scene.shoot()?;
        text(&shoot, "/status/lastOperation/description").contains(task).then_some(())
    });
    // `explain` shows at once what the errors contain in the end.
    let desk = Desk::new(&scene.world, object::make_edge);
    let place = format!("{}/{}", PLACE.0, PLACE.1);
    scene.world.garden.wait_for("the explanation", |_| {
        let told = desk.explain(&["shoot", &place]);
        let held =
            "CustomResourceDefinition things.example.org (finalizers customresourcecleanup.apiextensions.k8s.io)";
        (told.contains(held) && told.contains("removed 1h0m0s after its deletion began")).then_some(())
    });
    // The flow tries for ten minutes, and definitions have an hour.
    scene.world.skip(Duration::from_secs(601));
    let error = scene.wait_for_error(task);
    assert_eq!(error["codes"], json!(["ERR_CLEANUP_CLUSTER_RESOURCES"]));
    let said = text(&error, "/description");
    for part in [
        "CustomResourceDefinition things.example.org (finalizers customresourcecleanup.apiextensions.k8s.io)",
        "shoot.gardener.cloud/cleanup-extended-apis-finalize-grace-period-seconds",
    ] {
        assert!(said.contains(part), "{said}");
    }
    scene.annotate(FORCE);
    scene.wait_until_gone();
}

/// Its API server never answered: its cluster cannot have objects.
#[test]
fn a_shoot_that_was_never_created_is_deleted_without_a_client() {
    let scene = Scene::new("shoot-never");
    scene.site.trouble(&scene.plane(), "kube-apiserver", Some(Trouble::NoImage));
    scene.create();
    scene
        .world
        .seed
        .wait_for("the Deployment", |seed| seed.get("apps", "deployments", &scene.plane(), "kube-apiserver"));
    // The applier has seen it, and its server does not answer.
    let managed = json!({"apiVersion": "resources.gardener.cloud/v1alpha1", "kind": "ManagedResource",
        "metadata": {"name": "held", "namespace": scene.plane(), "labels": {"origin": "gardener"},
            "finalizers": ["resources.gardener.cloud/gardener-resource-manager"]}, "spec": {"secretRefs": []}});
    scene.world.seed.apply(&[managed]);
    scene.delete();
    scene.wait_until_gone();
}

/// Finalizers are removed after the grace period, although the agent that started to wait for it is dead.
#[test]
fn after_a_kill_the_grace_period_does_not_start_again() {
    let scene = Scene::new("shoot-killed");
    let grace = "shoot.gardener.cloud/cleanup-kubernetes-resources-finalize-grace-period-seconds";
    // Longer than any wait of this story: a period that started again would not end in it.
    let period = Duration::from_secs(3_600);
    let seconds = period.as_secs().to_string();
    scene.world.garden.apply(&[ShootObject::workerless(NAME).annotated(grace, &seconds).build()]);
    wait_until_created(&scene.world.garden, PLACE);
    let server = scene.site.server(&scene.plane()).unwrap();
    let service = json!({"metadata": {"name": "held", "namespace": "default", "finalizers": ["example.org/nobody"]},
        "spec": {"ports": [{"port": 80}]}});
    server.cluster.create("v1", "services", &service);
    scene.delete();
    let begun = |scene: &Scene| {
        let plane = scene.world.seed.get("", "namespaces", "", &scene.plane())?;
        let annotations = plane.pointer("/metadata/annotations")?.clone();
        annotations["shoot.gardener.cloud/cleanup-kubernetes-resources-start-time"]
            .as_str()
            .map(str::to_owned)
    };
    let first = scene.world.seed.wait_for("the time of the beginning", |_| begun(&scene));
    let held = || server.cluster.get("", "services", "default", "held");
    server.cluster.wait_for("the deletion", |_| {
        held()?.pointer("/metadata/deletionTimestamp").and_then(Value::as_str).map(drop)
    });
    scene.agent.crash();
    scene.world.time.advance(period - Duration::from_secs(20));
    assert!(held().is_some());
    scene.agent.launch();
    server.cluster.wait_for("the end of the time", |_| held().is_none().then_some(()));
    if let Some(second) = begun(&scene) {
        assert_eq!(second, first);
    }
    scene.wait_until_gone();
}

/// Objects in a cluster can only be deleted while it is awake.
#[test]
fn a_hibernated_shoot_is_woken_to_be_deleted() {
    let scene = Scene::new("shoot-asleep");
    let window = json!({"begin": "220000+0000", "end": "230000+0000"});
    let shoot = short(ShootObject::workerless(NAME)).with("/spec/maintenance/timeWindow", window);
    scene.world.garden.apply(&[shoot.build()]);
    wait_until_created(&scene.world.garden, PLACE);
    let server = scene.site.server(&scene.plane()).unwrap();
    server.cluster.create(
        "v1",
        "services",
        &json!({"metadata": {"name": "plain", "namespace": "default"}, "spec": {"ports": [{"port": 80}]}}),
    );
    // As after a hibernation.
    scene.agent.stop();
    let status = json!({"status": {"hibernated": true}});
    scene.world.garden.merge_status(CORE, "shoots", PLACE, &status);
    scene.world.garden.merge(CORE, "shoots", PLACE, &json!({"spec": {"hibernation": {"enabled": true}}}));
    for (plural, name) in [
        ("deployments", "kube-apiserver"),
        ("deployments", "kube-controller-manager"),
        ("statefulsets", "etcd-main"),
        ("statefulsets", "etcd-events"),
    ] {
        let asleep = json!({"spec": {"replicas": 0}});
        scene.world.seed.merge("apps", plural, (&scene.plane(), name), &asleep);
    }
    scene.world.seed.wait_for("the end of the server", |_| server.pod().is_none().then_some(()));
    scene.delete();
    scene.agent.launch();
    scene.wait_until_gone();
    assert_eq!(server.cluster.store().names("", "services", "default"), ["kubernetes"]);
}
