//! Problems that prevent the creation of a Shoot. The last errors have upstream's task names and a remedy, `explain`
//! reports the same, and the Shoot is created once the remedy is applied.

use serde_json::{Value, json};

use crate::story_operating::Desk;
use crate::world::{CORE, Options, World};
use support::json::{list, text};
use support::shoot::history::wait_until_created;
use support::shoot::object::{PROJECT_NAMESPACE, ShootObject, technical_id};
use support::shoot::{Site, Trouble};

/// A Shoot with one problem.
struct Case {
    name: &'static str,
    /// The problem in the seed, and its object.
    trouble: Option<(&'static str, Trouble)>,
    /// A field of the Shoot, and its value.
    field: Option<(String, Value)>,
    /// The id of its error.
    task: &'static str,
    /// Parts of the message: the cause and the remedy.
    words: [&'static str; 2],
    /// Additional words that only `explain` prints.
    more: &'static str,
}

impl Case {
    fn shoot(&self) -> Value {
        let shoot = ShootObject::workerless(self.name);
        match &self.field {
            Some((pointer, value)) => shoot.with(pointer, value.clone()).build(),
            None => shoot.build(),
        }
    }

    /// Lets the problem appear, or disappear.
    fn set(&self, site: &Site, is_there: bool) {
        if let Some((object, trouble)) = self.trouble {
            site.trouble(&technical_id(self.name), object, is_there.then_some(trouble));
        }
    }
}

const ETCD: &str = "Waiting until main and event ETCDs have been reconciled";
const REGISTRATION: (&str, &str) = ("", "provider-local");

/// The problems, of one Shoot each.
fn cases() -> Vec<Case> {
    let case = |name, task, words, more| Case { name, trouble: None, field: None, task, words, more };
    let in_seed =
        |name, trouble, task, words, more| Case { trouble: Some(trouble), ..case(name, task, words, more) };
    let server = "/spec/kubernetes/kubeAPIServer";
    let config = json!({"apiVersion": "pod-security.admission.config.k8s.io/v1", "kind": "Nonsense"});
    vec![
        Case {
            field: Some((format!("{server}/auditConfig/auditPolicy/configMapRef/name"), json!("absent"))),
            ..case(
                "audit",
                "Create botanist",
                [
                    "ConfigMap garden-p/absent of the garden does not exist: create it",
                    "or change spec.kubernetes.kubeAPIServer.auditConfig.auditPolicy.configMapRef.name of the Shoot",
                ],
                "",
            )
        },
        Case {
            field: Some((
                format!("{server}/admissionPlugins"),
                json!([{"name": "PodSecurity", "config": config}]),
            )),
            ..case(
                "admission",
                "Create botanist",
                [
                    "the configuration of admission plugin PodSecurity in the Shoot is no PodSecurityConfiguration",
                    "correct its apiVersion and kind",
                ],
                "",
            )
        },
        in_seed(
            "unbound",
            ("main-etcd-etcd-main-0", Trouble::Unbound),
            ETCD,
            [
                "PersistentVolumeClaim main-etcd-etcd-main-0 is Pending",
                "mark one of the seed as default, or name one in edge.etcd",
            ],
            "its newest pod: etcd-main-0, Pending, no node yet",
        ),
        in_seed(
            "room",
            ("etcd-events", Trouble::NoRoom),
            ETCD,
            [
                "no node has room for pod etcd-events-0 (0/1 nodes are available: 1 Insufficient memory.",
                "free processor time and memory there, or add a node",
            ],
            "Warning FailedScheduling: 0/1 nodes",
        ),
        in_seed(
            "image",
            ("kube-apiserver", Trouble::NoImage),
            "Waiting until Kubernetes API server rolled out",
            [
                "cannot get image registry.k8s.io/kube-apiserver:v1.34.3 (ImagePullBackOff: ",
                "import the image on the node or let the node reach its registry",
            ],
            "its newest pod: kube-apiserver-",
        ),
        in_seed(
            "address",
            ("kube-apiserver-exposure", Trouble::NoAddress),
            "Waiting until Kubernetes API server service in the Seed cluster has reported readiness",
            [
                "Service shoot--p--address/kube-apiserver-exposure has no address yet",
                "install a load balancer controller in the seed, and look at the Events of the Service",
            ],
            "",
        ),
    ]
}

/// The registration that serves the provider of the seed loses one kind.
fn extension() -> Case {
    Case {
        name: "extension",
        trouble: None,
        field: None,
        task: "Check required extensions",
        words: [
            "no ControllerInstallation of this seed supports ControlPlane/local",
            "register an extension for it in the garden",
        ],
        more: "",
    }
}

fn serve(world: &World, kinds: &[&str]) {
    let resources: Vec<Value> = kinds.iter().map(|kind| json!({"kind": kind, "type": "local"})).collect();
    let spec = json!({"spec": {"resources": resources}});
    world.garden.merge(CORE, "controllerregistrations", REGISTRATION, &spec);
}

/// The output of `explain` for a task: its state, and the notes. `None`: there is no operation yet.
fn told(desk: &Desk<'_>, shoot: &str, task: &str) -> Option<(String, String)> {
    let place = format!("{PROJECT_NAMESPACE}/{shoot}");
    let all: Value = serde_json::from_str(&desk.explain(&["shoot", &place, "-o", "json"])).unwrap();
    let found = list(&all, "/tasks").iter().find(|found| found["task"] == task)?;
    let notes: Vec<&str> = list(found, "/notes").iter().filter_map(Value::as_str).collect();
    Some((text(found, "/state").to_owned(), notes.join("\n")))
}

/// Waits until `explain` reports the problem, and prints how long that took.
fn is_explained(world: &World, desk: &Desk<'_>, case: &Case) {
    // Before that, the seed may not read it.
    world.garden.wait_for(&format!("a seed for {}", case.name), |garden| {
        let shoot = garden.get(CORE, "shoots", PROJECT_NAMESPACE, case.name)?;
        (text(&shoot, "/spec/seedName") == world.name).then_some(())
    });
    let begun = world.clock.mono();
    let (state, notes) = world.garden.wait_for(&format!("explain to report {}", case.name), |_| {
        let (state, notes) = told(desk, case.name, case.task)?;
        let parts = case.words.iter().chain([&case.more]);
        parts.into_iter().all(|part| notes.contains(part)).then_some((state, notes))
    });
    let after = world.clock.mono().saturating_sub(begun);
    eprintln!("{}: explained after {} s of its world: {state}: {notes}", case.name, after.as_secs());
}

/// Waits for the error of the Shoot: its task, no code, and the remedy.
fn has_failed(world: &World, case: &Case) {
    let error = world.garden.wait_for(&format!("the error of {}", case.name), |garden| {
        let shoot = garden.get(CORE, "shoots", PROJECT_NAMESPACE, case.name)?;
        let errors = list(&shoot, "/status/lastErrors");
        assert!(errors.len() < 2, "{}: {errors:?}", case.name);
        errors.first().cloned()
    });
    let description = text(&error, "/description");
    assert_eq!((text(&error, "/taskID"), &error["codes"]), (case.task, &Value::Null), "{description}");
    for word in case.words {
        assert!(description.contains(word), "{}: {description}", case.name);
    }
}

/// Applies the remedies of the messages.
fn mend(world: &World, site: &Site, cases: &[Case]) {
    for case in cases {
        case.set(site, false);
    }
    let policy = "{apiVersion: audit.k8s.io/v1, kind: Policy, rules: [{level: None}]}";
    let map =
        json!({"metadata": {"name": "absent", "namespace": PROJECT_NAMESPACE}, "data": {"policy": policy}});
    world.garden.create("v1", "configmaps", &map);
    let config =
        json!({"apiVersion": "pod-security.admission.config.k8s.io/v1", "kind": "PodSecurityConfiguration"});
    let plugins = json!([{"name": "PodSecurity", "config": config}]);
    let spec = json!({"spec": {"kubernetes": {"kubeAPIServer": {"admissionPlugins": plugins}}}});
    world.garden.merge(CORE, "shoots", (PROJECT_NAMESPACE, "admission"), &spec);
}

fn edge(config: &mut Value) {
    support::shoot::object::make_edge(config);
    config["edge"]["exposure"] = json!({"type": "LoadBalancer"});
}

#[test]
fn problems_of_a_shoot_are_reported_with_a_remedy() {
    let world = World::start(&Options::new("shoot-trouble"));
    let site = world.site();
    let mut config = world.config();
    edge(&mut config);
    let agent = world.agent_of(&site, &config);
    agent.launch();
    world.wait_until_ready();
    let desk = Desk::new(&world, edge);
    let cases = cases();
    for case in &cases {
        case.set(&site, true);
        world.garden.apply(&[case.shoot()]);
    }
    for case in &cases {
        is_explained(&world, &desk, case);
    }
    for case in &cases {
        has_failed(&world, case);
    }
    mend(&world, &site, &cases);
    for case in &cases {
        wait_until_created(&world.garden, (PROJECT_NAMESPACE, case.name));
    }

    let extension = extension();
    serve(&world, &["DNSRecord", "Infrastructure", "Worker"]);
    world.garden.apply(&[extension.shoot()]);
    is_explained(&world, &desk, &extension);
    has_failed(&world, &extension);
    serve(&world, &["ControlPlane", "DNSRecord", "Infrastructure", "Worker"]);
    wait_until_created(&world.garden, (PROJECT_NAMESPACE, extension.name));
    let place = format!("{PROJECT_NAMESPACE}/{}", extension.name);
    let well = desk.explain(&["shoot", &place]);
    assert!(!well.contains("\nrunning ") && well.contains("\ndone      Create botanist\n"), "{well}");
    agent.stop();
}
