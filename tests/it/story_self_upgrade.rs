//! The agent upgrades itself: its Gardenlet object names a chart, which replaces its Deployment. No pod runs here. So
//! the agent of the test continues, and the story checks the configuration that the next one would get.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use gardenlet::format::yaml;
use serde_json::{Value, json};

use crate::faultpoints::{Fault, FaultPoints, Outcome, Point, change_nothing};
use crate::left::Words;
use crate::packaging;
use crate::story_oci::secret;
use crate::world::{AGENT, Agent, Options, World, condition};
use support::api::store::Id;
use support::garden::prepare;
use support::http::faults::Seen;
use support::http::record::Recorded;
use support::json::{entry, text};
use support::registry::{Answer, Registry, refusal};

const MANAGEMENT: &str = "seedmanagement.gardener.cloud";
const RBAC: &str = "rbac.authorization.k8s.io";
const GARDEN: &str = "garden";
const RECONCILED: &str = "GardenletReconciled";
const REPOSITORY: &str = "charts/gardenlet";
const IMAGE: &str = "registry.example.org:5000/edge/gardenlet";
const MINUTE: Duration = Duration::from_secs(60);

/// A seed with an agent that was installed with its chart, and a registry with charts.
struct Lab {
    world: World,
    agent: Arc<Agent>,
    registry: Registry,
}

/// The chart of this program in another version.
fn chart(version: &str, change: impl Fn(&str, String) -> String) -> Vec<u8> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("packaging/chart");
    let mut names = vec!["values.yaml".to_owned(), "values.schema.json".to_owned()];
    let templates = std::fs::read_dir(folder.join("templates")).unwrap();
    names.extend(templates.map(|file| format!("templates/{}", file.unwrap().file_name().to_str().unwrap())));
    names.sort();
    let read = |name: &String| {
        let content = change(name, std::fs::read_to_string(folder.join(name)).unwrap());
        (name.clone(), content)
    };
    let mut files: Vec<(String, String)> = names.iter().map(read).collect();
    let head = format!("apiVersion: v2\nname: gardenlet\nversion: {version}\nappVersion: {version}\n");
    files.push(("Chart.yaml".to_owned(), head));
    files.push(("templates/more.yaml".to_owned(), change("templates/more.yaml", String::new())));
    let files: Vec<(&str, &str)> = files.iter().map(|(name, text)| (name.as_str(), text.as_str())).collect();
    prepare::archive("gardenlet", &files)
}

fn plain(_: &str, content: String) -> String {
    content
}

/// Another program.
fn another(name: &str, content: String) -> String {
    if name == "templates/deployment.yaml" {
        content.replace("edge.gardenlet/values:", "example.org/values:")
    } else {
        content
    }
}

/// A version that has more roles.
fn with_more_roles(name: &str, content: String) -> String {
    if name != "templates/more.yaml" {
        return content;
    }
    let mut text = String::new();
    for (kind, namespace) in [("ClusterRole", ""), ("Role", "garden")] {
        let reference =
            json!({"apiGroup": RBAC, "kind": kind, "name": "gardener.cloud:system:gardenlet:more"});
        for kind in [kind.to_owned(), format!("{kind}Binding")] {
            let mut object = json!({"apiVersion": format!("{RBAC}/v1"), "kind": kind,
                "metadata": {"name": "gardener.cloud:system:gardenlet:more"}});
            if kind.ends_with("Binding") {
                object["roleRef"] = reference.clone();
            } else {
                object["rules"] = json!([]);
            }
            if !namespace.is_empty() {
                object["metadata"]["namespace"] = json!(namespace);
            }
            text.push_str(&format!("---\n{object}\n"));
        }
    }
    text
}

impl Lab {
    /// An agent that is not started.
    fn prepare(name: &'static str, values: impl FnOnce(&Registry, &mut Value)) -> Self {
        let world = World::start(&Options::new(name));
        let registry = Registry::start(&world.clock);
        world.garden.apply(&[secret("ca", "oci-ca-bundle", "bundle.crt", registry.ca.as_bytes())]);
        let mut config = world.config();
        config["leaderElection"] = json!({"leaderElect": false});
        let agent = Arc::new(Agent::new(&world, "host-1", &config, world.pod()));
        let lab = Self { world, agent, registry };
        let mut all = json!({"replicaCount": 1, "image": {"repository": IMAGE}, "config": config,
            "stateVolume": {"hostPath": {"path": "/var/lib/gardenlet"}}});
        let place = all["config"]["gardenClientConnection"]["bootstrapKubeconfig"].clone();
        all["config"]["gardenClientConnection"]["bootstrapKubeconfig"] = json!({"secretRef": place});
        values(&lab.registry, &mut all);
        let file = lab.world.file("values.yaml", &yaml::emit(&all, yaml::Dialect::V4));
        let seed = &lab.world.seed;
        for object in packaging::rendered_with(&file) {
            let group = text(&object, "/apiVersion").split_once('/').map_or("", |(group, _)| group);
            let kind = seed.store().read().kinds.by_name(group, text(&object, "/kind")).unwrap();
            let (namespace, name) = (text(&object, "/metadata/namespace"), text(&object, "/metadata/name"));
            if seed.get(group, &kind.plural, namespace, name).is_none() {
                seed.apply(&[object]);
            }
        }
        lab
    }

    fn start(name: &'static str) -> Self {
        let lab = Self::prepare(name, |_, _| {});
        lab.agent.launch();
        lab.world.wait_until_ready();
        lab
    }

    /// Pushes a version. Returns its reference by digest.
    fn push(&self, version: &str, change: fn(&str, String) -> String) -> Value {
        let digest = self.registry.push(REPOSITORY, version, &chart(version, change));
        json!({"ref": format!("{}/{REPOSITORY}:{version}@{digest}", self.registry.address),
            "caBundleSecretRef": {"name": "ca"}})
    }

    /// Creates the Gardenlet object. A garden drops options that it does not know.
    fn make(&self, repository: &Value) {
        let mut config = self.world.config();
        config["leaderElection"] = json!({"leaderElect": false});
        config.as_object_mut().unwrap().remove("edge");
        let object = json!({"metadata": {"namespace": GARDEN, "name": self.world.name}, "spec": {
            "deployment": {"helm": {"ociRepository": repository}, "replicaCount": 2}, "config": config}});
        self.world.garden.create("seedmanagement.gardener.cloud/v1alpha1", "gardenlets", &object);
        // An agent without a Gardenlet object checks every five minutes.
        self.world.time.advance(5 * MINUTE);
    }

    fn change(&self, patch: &Value) {
        self.world.garden.merge(MANAGEMENT, "gardenlets", (GARDEN, self.world.name), patch);
        self.world.time.advance(MINUTE);
    }

    fn change_chart(&self, repository: &Value) {
        self.change(&json!({"spec": {"deployment": {"helm": {"ociRepository": repository}}}}));
    }

    fn gardenlet(&self) -> Option<Value> {
        self.world.garden.get(MANAGEMENT, "gardenlets", GARDEN, self.world.name)
    }

    /// Waits for this condition at the current generation.
    fn wait_for(&self, reason: &str, words: &str) -> Value {
        self.world.garden.wait_for(&format!("{reason} {words}"), |_| self.told(reason, words))
    }

    fn told(&self, reason: &str, words: &str) -> Option<Value> {
        let object = self.gardenlet()?;
        let found = condition(&object, RECONCILED)?;
        let is_present = object["status"]["observedGeneration"] == object["metadata"]["generation"];
        (is_present && found.1 == reason && found.2.contains(words)).then_some(object)
    }

    fn code(object: &Value) -> Value {
        let all = object["status"]["conditions"].as_array().unwrap();
        all.iter().find(|it| it["type"] == RECONCILED).unwrap()["codes"].clone()
    }

    fn deployment(&self) -> Value {
        self.world.seed.get("apps", "deployments", GARDEN, "gardenlet").unwrap()
    }

    fn image(&self) -> String {
        text(&self.deployment(), "/spec/template/spec/containers/0/image").to_owned()
    }

    /// The configuration that the next agent reads.
    fn config(&self) -> Value {
        let deployment = self.deployment();
        let volumes = &deployment["spec"]["template"]["spec"]["volumes"];
        let map = volumes.as_array().unwrap().iter().find(|it| it["name"] == "gardenlet-config").unwrap();
        let map = self.world.seed.get("", "configmaps", GARDEN, text(map, "/configMap/name")).unwrap();
        yaml::parse(text(&map, "/data/config.yaml")).unwrap()
    }

    /// Writes of the agent to its own objects since `mark`.
    fn writes(&self, mark: usize) -> Vec<String> {
        let all = self.world.seed.requests_since(mark);
        let is_own = |r: &&Recorded| {
            r.is_write()
                && r.info.subresource.is_empty()
                && r.user == AGENT
                && r.user_agent.starts_with("gardenlet/")
                && is_of_chart(&r.info.resource)
        };
        all.iter().filter(is_own).map(Recorded::line).collect()
    }

    fn has_event(&self, words: &str) {
        self.world.garden.wait_for(&format!("an event {words}"), |garden| {
            let events = garden.store().list("events.k8s.io", "events", GARDEN);
            let is_it = |e: &Value| e["regarding"]["kind"] == "Gardenlet" && text(e, "/note").contains(words);
            events.iter().any(is_it).then_some(())
        });
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("---- the Gardenlet: {}", self.gardenlet().unwrap_or_default()["status"]);
        }
    }
}

fn is_of_chart(resource: &str) -> bool {
    let access = ["clusterroles", "clusterrolebindings", "roles", "rolebindings", "serviceaccounts"];
    let rest = ["deployments", "configmaps", "poddisruptionbudgets", "priorityclasses"];
    access.contains(&resource) || rest.contains(&resource)
}

#[test]
fn a_new_chart_replaces_the_agent_and_keeps_its_own_settings() {
    let lab = Lab::start("upgraded");
    let identity = lab.world.seed.get("", "secrets", GARDEN, "gardenlet-kubeconfig").unwrap();
    assert_eq!(lab.image(), format!("{IMAGE}:{}", env!("CARGO_PKG_VERSION")));
    let first = lab.push("0.2.0", plain);
    lab.make(&first);
    let url = text(&first, "/ref").to_owned();
    let object = lab.wait_for("Reconciled", "Gardenlet with chart from");
    let expected = format!("Gardenlet with chart from {url} has been deployed");
    assert_eq!(condition(&object, RECONCILED).unwrap(), ("True".into(), "Reconciled".into(), expected));
    lab.has_event("Deploying gardenlet");
    lab.has_event("Gardenlet has been deployed");
    assert_eq!(lab.image(), format!("{IMAGE}:0.2.0"));
    let deployment = lab.deployment();
    assert_eq!(deployment["spec"]["replicas"], 2);
    let volumes = deployment["spec"]["template"]["spec"]["volumes"].as_array().unwrap();
    let state = volumes.iter().find(|volume| volume["name"] == "state").unwrap();
    assert_eq!(state["hostPath"]["path"], "/var/lib/gardenlet");
    let config = lab.config();
    assert_eq!(
        (&config["edge"]["workers"], &config["seedConfig"]["metadata"]["name"]),
        (&json!(4), &json!("upgraded"))
    );
    assert_eq!(
        config["gardenClientConnection"]["bootstrapKubeconfig"],
        json!({"name": "gardenlet-kubeconfig-bootstrap", "namespace": GARDEN})
    );
    let after = lab.world.seed.get("", "secrets", GARDEN, "gardenlet-kubeconfig").unwrap();
    assert_eq!(after["data"], identity["data"]);
    // Roles of the same name exist in several namespaces.
    for namespace in [GARDEN, "default", "kube-system"] {
        let role = lab.world.seed.get(RBAC, "roles", namespace, "gardener.cloud:system:gardenlet").unwrap();
        assert_eq!(role["metadata"]["labels"]["chart"], "gardenlet-0.2.0", "in {namespace}");
    }
    // The Deployment is written last.
    let writes = lab.writes(0);
    assert!(writes.len() > 10 && writes.last().unwrap().contains("/deployments/gardenlet"), "{writes:#?}");

    // Nothing has changed: nothing is written.
    let mark = lab.world.seed.request_count();
    lab.change(&json!({"metadata": {"annotations": {"gardener.cloud/operation": "reconcile"}}}));
    lab.wait_for("Reconciled", &url);
    assert_eq!(lab.writes(mark), Vec::<String>::new());

    // A version with more roles, by its tag. The message contains the digest.
    let second = lab.push("0.3.0", with_more_roles);
    let (tag, digest) =
        text(&second, "/ref").split_once('@').map(|(a, b)| (a.to_owned(), b.to_owned())).unwrap();
    lab.change_chart(&json!({"ref": tag}));
    lab.wait_for("Reconciled", &format!("from {tag} has been deployed ({digest})"));
    assert_eq!(lab.image(), format!("{IMAGE}:0.3.0"));
    let more = |plural: &str, namespace: &str| {
        lab.world.seed.get(RBAC, plural, namespace, "gardener.cloud:system:gardenlet:more").is_some()
    };
    assert!(more("clusterroles", "") && more("clusterrolebindings", ""));
    assert!(more("roles", GARDEN) && more("rolebindings", GARDEN));
    lab.agent.stop();
}

#[test]
fn problems_of_an_upgrade_are_reported_and_nothing_is_deployed() {
    let lab = Lab::start("refused");
    let foreign = lab.push("7.0.0", another);
    let before = lab.deployment();
    lab.make(&foreign);
    let object = lab.wait_for("ReconcileError", "would replace this program by another one");
    let problem = json!(["ERR_CONFIGURATION_PROBLEM"]);
    assert_eq!(Lab::code(&object), problem);
    lab.has_event("annotate this Gardenlet with edge.gardenlet/replace-program=true");
    // A configuration with which the next version could not start, or could not join the garden.
    lab.change(&json!({"spec": {"config": {"logLevel": "loud"}}}));
    let object = lab.wait_for("ReconcileError", "spec.config is invalid: logLevel: ");
    assert_eq!(Lab::code(&object), problem);
    // An existing Secret that is not the agent's.
    lab.world.seed.apply(&[
        json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "elsewhere", "namespace": GARDEN},
        "stringData": {"kubeconfig": "left"}}),
    ]);
    let elsewhere = json!({"gardenClientConnection": {"kubeconfigSecret": {"name": "elsewhere"}}});
    lab.change(&json!({"spec": {"config": {"logLevel": "info"}}}));
    lab.change(&json!({"spec": {"config": elsewhere}}));
    let object =
        lab.wait_for("ReconcileError", "Secret garden/elsewhere is not in the seed, or is not the one");
    assert_eq!(Lab::code(&object), problem);
    let back = json!({"gardenClientConnection": {"kubeconfigSecret": {"name": "gardenlet-kubeconfig"}}});
    lab.change(&json!({"spec": {"config": back, "deployment": {"replicaCount": 0}}}));
    let object = lab.wait_for("ReconcileError", "spec.deployment.replicaCount is 0");
    assert_eq!(Lab::code(&object), problem);
    lab.change(&json!({"spec": {"deployment": {"replicaCount": 1}}}));
    lab.change_chart(&json!({"ref": "nowhere"}));
    let object = lab.wait_for("ReconcileError", "failed pulling Helm chart from OCI repository");
    assert_eq!(Lab::code(&object), problem);
    assert_eq!(lab.deployment(), before);
    assert_eq!(lab.writes(0), Vec::<String>::new());

    // The registry is away for a while, which is not a configuration error.
    let good = lab.push("0.2.0", plain);
    lab.registry.twist(|_, _| Some(Answer::Reply(refusal(503, "UNAVAILABLE"))));
    lab.change_chart(&good);
    let object = lab.wait_for("ReconcileError", "503");
    assert_eq!(Lab::code(&object), Value::Null);
    lab.registry.behave();
    lab.world.time.advance(MINUTE);
    lab.wait_for("Reconciled", "gardenlet:0.2.0@");
    assert_eq!(lab.image(), format!("{IMAGE}:0.2.0"));

    // An administrator wants the other program.
    lab.change_chart(&foreign);
    lab.wait_for("ReconcileError", "would replace this program by another one");
    assert_eq!(lab.image(), format!("{IMAGE}:0.2.0"));
    lab.change(&json!({"metadata": {"annotations": {"edge.gardenlet/replace-program": "true"}}}));
    lab.wait_for("Reconciled", "gardenlet:7.0.0@");
    let deployment = lab.deployment();
    assert!(entry(&deployment, "/metadata/annotations", "example.org/values").is_some());
    lab.agent.stop();
}

#[test]
fn a_gardenlet_object_renews_the_certificate() {
    let lab = Lab::start("renewed");
    lab.make(&lab.push("0.2.0", plain));
    lab.wait_for("Reconciled", "");
    let before = lab.world.certificate_pem().unwrap();
    lab.change(&json!({"metadata": {"annotations": {"gardener.cloud/operation": "renew-kubeconfig"}}}));
    lab.world
        .seed
        .wait_for("another certificate", |_| lab.world.certificate_pem().filter(|pem| *pem != before));
    lab.world.garden.wait_for("the end of the request", |_| {
        entry(&lab.gardenlet()?, "/metadata/annotations", "gardener.cloud/operation").is_none().then_some(())
    });
    lab.agent.stop();
}

#[test]
fn an_agent_outside_of_its_seed_reports_that_it_cannot_upgrade_itself() {
    let lab = Lab::prepare("outside-upgrade", |_, _| {});
    let mut variables = lab.world.pod();
    variables.remove("NAMESPACE");
    let mut config = lab.world.config();
    config["leaderElection"] = json!({"leaderElect": false});
    let agent = Agent::new(&lab.world, "host-2", &config, variables);
    lab.make(&json!({"ref": "registry.example.org/charts/gardenlet:1"}));
    agent.launch();
    let object = lab.wait_for("ReconcileError", "this agent does not run in a pod of namespace garden");
    assert_eq!(Lab::code(&object), json!(["ERR_CONFIGURATION_PROBLEM"]));
    agent.stop();
    // In a pod, but without the roles.
    for (plural, namespace) in [("clusterroles", ""), ("roles", GARDEN)] {
        lab.world.seed.delete(RBAC, plural, namespace, "gardener.cloud:system:gardenlet:upgrade");
    }
    lab.world.expect_refusals();
    let before = lab.deployment();
    lab.change_chart(&lab.push("0.2.0", plain));
    lab.agent.launch();
    let words = "this agent may not do it; the Deployment stays as it is; apply the chart yourself once, with upgrade.allowed";
    let object = lab.wait_for("ReconcileError", words);
    assert_eq!(Lab::code(&object), json!(["ERR_CONFIGURATION_PROBLEM"]));
    assert_eq!(lab.deployment(), before);
    lab.agent.stop();
}

#[test]
fn the_chart_of_an_agent_contains_its_gardenlet_object() {
    let mut reference = Value::Null;
    let lab = Lab::prepare("self-made", |registry, values| {
        let version = env!("CARGO_PKG_VERSION");
        let digest = registry.push(REPOSITORY, version, &chart(version, plain));
        reference = json!({"ref": format!("{}/{REPOSITORY}@{digest}", registry.address), "caBundleSecretRef": {"name": "ca"}});
        values["selfUpgrade"] = json!({"deployment": {"helm": {"ociRepository": reference}}});
    });
    let name = "gardenlet-selfupgrade-config";
    let seed = &lab.world.seed;
    let mut good = seed.get("", "configmaps", GARDEN, name).unwrap();
    // A broken document stays in the ConfigMap, and is not tried again and again.
    seed.delete("", "configmaps", GARDEN, name);
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": GARDEN}, "data": {"gardenlet.yaml": "a: ["}});
    seed.apply(&[map]);
    lab.agent.launch();
    lab.world.wait_for_log(&[
        "The Gardenlet object of the ConfigMap was not created",
        "gardenlet.yaml is not valid YAML",
    ]);
    lab.world.wait_until_ready();
    lab.world.time.advance(5 * MINUTE);
    let looks = seed.requests().iter().filter(|r| r.info.name == name && r.user == AGENT).count();
    assert_eq!(looks, 1);
    assert_eq!(lab.gardenlet(), None);
    lab.agent.stop();
    seed.delete("", "configmaps", GARDEN, name);
    good["metadata"] = json!({"name": name, "namespace": GARDEN});
    good["apiVersion"] = json!("v1");
    good["kind"] = json!("ConfigMap");
    seed.apply(&[good]);
    lab.agent.launch();
    let object = lab.wait_for("Reconciled", text(&reference, "/ref"));
    assert_eq!(object["spec"]["deployment"]["replicaCount"], 1);
    assert_eq!(seed.get("", "configmaps", GARDEN, name), None);
    assert_eq!(lab.config()["edge"]["workers"], 4);
    lab.agent.stop();
}

fn concerns(seen: &Seen) -> bool {
    is_of_chart(&seen.info.resource) || seen.info.resource == "gardenlets" || seen.info.resource == "services"
}

/// Whether an upgrade has written the object.
fn is_of_a_chart(object: &Value) -> bool {
    !object["metadata"]["annotations"]["edge.gardenlet/rendered"].is_null()
}

/// The whole story, with a kill after one write or without a kill.
fn run(at: Option<&Point>) -> Outcome {
    let lab = Lab::prepare("killed-upgrade", |_, _| {});
    lab.make(&lab.push("0.2.0", plain));
    let points = FaultPoints::of(&lab.world, &lab.agent, at, concerns);
    lab.agent.launch();
    let wait = |what: &str, words: &str| {
        lab.world.garden.wait_for(what, |_| {
            points.restart_if_due();
            lab.told("Reconciled", words)
        });
    };
    wait("the first version", "gardenlet:0.2.0@");
    lab.change_chart(&lab.push("0.3.0", with_more_roles));
    wait("the second version", "gardenlet:0.3.0@");
    // The test sees the last write before the killer does: an agent that sends another heartbeat was not killed.
    let seen = lab.world.beat();
    lab.world.garden.wait_for("the next heartbeat", |_| {
        points.restart_if_due();
        (lab.world.beat() > seen).then_some(())
    });
    let words = Words::new(&[]);
    let own = |id: &Id| {
        let is_near = id.namespace.is_empty() || id.namespace == GARDEN;
        is_near && (is_of_chart(&id.plural) || id.plural == "services")
    };
    let mut all = [
        words.left_in(&lab.world.garden, |id: &Id| id.plural == "gardenlets"),
        words.left_in(&lab.world.seed, own),
    ]
    .concat();
    // Other objects of the agent in the seed may still be on their way.
    all.retain(|(key, object)| key.contains("gardenlets") || is_of_a_chart(object));
    assert!(all.len() > 10, "{} objects", all.len());
    for (key, object) in &mut all {
        if key.contains("deployments") {
            // The controller that creates pods of it may be late.
            object["status"] = Value::Null;
        }
        if key.contains("services") {
            object["spec"]["clusterIP"] = Value::Null;
            object["spec"]["clusterIPs"] = Value::Null;
        }
    }
    lab.agent.crash();
    Outcome { objects: all, points, problems: Vec::new() }
}

#[test]
fn a_kill_changes_nothing_for_an_upgrade() {
    change_nothing("kills after writes of an upgrade", &[(Fault::KillAfter, 4, 48)], &run(None), &run);
}
