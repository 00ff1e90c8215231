//! The tools of an operator: whether the network path is free (`doctor`), what an object waits for (`explain`), what
//! has happened (Events). None of the agent's output contains a secret.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Value, json};

use crate::charts;
use crate::commands::command;
use crate::story_applier::leave_webhooks;
use crate::story_extension::installed;
use crate::story_oci::{pull_secret, secret};
use crate::world::{CORE, MANAGED_RESOURCES, Options, World, own_address, state_file, wait_for};
use support::encoding::{base64, from_base64};
use support::garden::prepare;
use support::http::faults::Action;
use support::http::record::Recorded;
use support::json::text;
use support::registry::{Access, Registry};

/// A configuration in a file, and the environment of a host with the agent's permissions in the seed.
pub struct Desk<'a> {
    world: &'a World,
    pub config: String,
    pub variables: BTreeMap<String, String>,
}

impl<'a> Desk<'a> {
    pub fn new(world: &'a World, change: impl FnOnce(&mut Value)) -> Self {
        let mut config = world.config();
        config["edge"]["stateDir"] = json!(world.path("state-host-1"));
        // Agents of other worlds have the usual ports of other addresses.
        let own = json!({"bindAddress": own_address()});
        config["server"] = json!({"healthProbes": own, "metrics": own});
        change(&mut config);
        let config = world.file("gardenlet.yaml", &config.to_string()).display().to_string();
        let mut desk = Self { world, config, variables: BTreeMap::new() };
        let token = std::fs::read_to_string(world.path("serviceaccount").join("token")).unwrap();
        desk.seed_kubeconfig(&world.seed.bootstrap_kubeconfig(&token));
        desk
    }

    fn seed_kubeconfig(&mut self, kubeconfig: &str) {
        let path = self.world.file("seed.kubeconfig", kubeconfig);
        self.variables.insert("KUBECONFIG".to_owned(), path.display().to_string());
    }

    pub fn doctor(&self) -> (u8, String) {
        let (code, output, errors) = command(&["doctor", "--config", &self.config], &self.variables);
        assert_eq!(errors, "");
        let secret = self.world.preparation.token_secret.as_str();
        assert!(!output.contains(secret), "{output}");
        (code, output)
    }

    /// The broken check, and the output of each check.
    pub fn broken(&self, place: &str, hop: &str) -> String {
        let args = ["doctor", "--config", self.config.as_str(), "-o", "json"];
        let (code, output, _) = command(&args, &self.variables);
        let found: Value = serde_json::from_str(&output).unwrap();
        assert_eq!((code, &found["good"]), (1, &json!(false)), "{output}");
        let checks = found["checks"].as_array().unwrap();
        let broken: Vec<&Value> = checks.iter().filter(|check| check["state"] == "broken").collect();
        let first = broken.first().unwrap();
        assert_eq!((&first["place"], &first["hop"]), (&json!(place), &json!(hop)), "{output}");
        assert!(!text(first, "/remedy").is_empty(), "{first}");
        text(first, "/text").to_owned()
    }

    pub fn explain(&self, words: &[&str]) -> String {
        let mut args = vec!["explain"];
        args.extend(words);
        args.extend(["--config", self.config.as_str()]);
        let (code, output, errors) = command(&args, &self.variables);
        assert_eq!((code, errors.as_str()), (0, ""), "{words:?}");
        output
    }
}

const NO_CLASS: &str =
    "odd          seed: StorageClass: no Shoot can come up: none is the default (there are none)";
const NO_NODE: &str = "odd          seed: exposure: no ready node of the seed has an ExternalIP or InternalIP under which the Shoot could be \
    reached: set edge.exposure.address to an address that leads to the nodes, or edge.exposure.type to LoadBalancer";

/// What Shoots need of a seed: a node, and volumes.
pub fn equip(world: &World) {
    let default = json!({"storageclass.kubernetes.io/is-default-class": "true"});
    let class = json!({"metadata": {"name": "local-path", "annotations": default}, "provisioner": "example.org/local"});
    world.seed.create("storage.k8s.io/v1", "storageclasses", &class);
    let node = json!({"metadata": {"name": "node-1"}, "status": {
        "conditions": [{"type": "Ready", "status": "True"}], "addresses": [{"type": "InternalIP", "address": "10.50.0.7"}]}});
    world.seed.create("v1", "nodes", &node);
    world.seed.merge_status("", "nodes", ("", "node-1"), &json!({"status": node["status"]}));
}

#[test]
fn doctor_names_the_first_hop_that_breaks_and_changes_nothing() {
    let world = World::start(&Options::real("examined"));
    let mut desk = Desk::new(&world, |_| {});
    let (code, before) = desk.doctor();
    assert_eq!(code, 0, "{before}");
    let bootstrap = "garden: identity: bootstrap credential in secret garden/gardenlet-kubeconfig-bootstrap";
    assert!(before.contains(bootstrap) && before.contains("will be created"), "{before}");
    assert!(!world.path("state-host-1").exists(), "doctor created a directory");

    let agent = world.agent();
    world.wait_until_ready();
    let (code, well) = desk.doctor();
    assert_eq!(code, 0, "{well}");
    for line in [
        "good         state directory: ",
        "in use by a running agent",
        "good         seed: permissions",
        "odd          seed: Shoots: cannot run Shoots: may not create configmaps, delete configmaps, get configmaps, and 69 more\n",
        "good         garden: identity: secret garden/gardenlet-kubeconfig of the seed",
        "good         garden: own certificate: valid until ",
        "good         garden: permissions",
        "good         clock: offset: agrees with the garden",
        "\n\nWorks, with 3 remarks.\n",
    ] {
        assert!(well.contains(line), "{line}: {well}");
    }

    world.seed.apply(&prepare::access().1);
    let (_, allowed) = desk.doctor();
    assert!(allowed.contains("good         seed: Shoots: may run Shoots\n"), "{allowed}");
    let remarks = allowed.lines().filter(|line| line.starts_with("odd ")).collect::<Vec<_>>();
    assert_eq!(remarks, [NO_CLASS, NO_NODE]);
    equip(&world);
    let (_, allowed) = desk.doctor();
    assert!(allowed.ends_with("\n\nEverything works.\n"), "{allowed}");
    let late = world.garden.faults().when(|_| true).then(Action::WrongDate(60));
    assert!(desk.broken("clock", "offset").contains("behind the garden"));
    late.cancel();
    world.garden.server().down();
    assert!(desk.broken("garden", "TCP").contains("connect to 127.0.0.1"));
    let (_, output) = desk.doctor();
    assert!(output.starts_with("BROKEN: garden: TCP: "), "{output}");
    assert!(output.ends_with("\n\nBroken: 1; begin with garden: TCP.\n"), "{output}");
    assert!(output.contains("not reached  garden: certificate\n"), "{output}");
    world.garden.server().up().unwrap();

    world.expect_refusals();
    world.seed.delete(
        "rbac.authorization.k8s.io",
        "clusterrolebindings",
        "",
        "gardener.cloud:system:gardenlet",
    );
    assert!(desk.broken("seed", "permissions").contains("create namespaces"));
    desk.seed_kubeconfig(&world.seed.bootstrap_kubeconfig("not-a-token"));
    assert!(desk.broken("seed", "authentication").contains("401"));
    desk.seed_kubeconfig(
        &world
            .seed
            .admin_kubeconfig()
            .replace(&base64(world.seed.ca().as_bytes()), &base64(world.garden.ca().as_bytes())),
    );
    assert!(desk.broken("seed", "certificate").contains("none of the trusted CAs"));
    desk.variables.insert("HTTPS_PROXY".to_owned(), "http://me:hunter2@127.0.0.1:1".to_owned());
    // Addresses of this host need no proxy; names do.
    let named = world.seed.admin_kubeconfig().replace("127.0.0.1", "seed.example.org");
    desk.seed_kubeconfig(&named);
    let problem = desk.broken("seed", "proxy");
    assert!(problem.contains("connect to 127.0.0.1:1") && !problem.contains("hunter2"), "{problem}");
    agent.stop();

    let is_doctors = |r: &Recorded| r.is_write() && r.info.resource == "selfsubjectaccessreviews";
    assert!(world.garden.requests().iter().chain(&world.seed.requests()).any(is_doctors));
}

#[test]
fn doctor_checks_files_and_registries() {
    let world = World::start(&Options::real("equipped"));
    let file = world.file("a-file", "");
    let desk = Desk::new(&world, |config| config["edge"]["stateDir"] = json!(file));
    assert!(desk.broken("", "state directory").contains("not a directory"));
    let registries = json!([{"host": "127.0.0.1:1", "insecure": true, "layoutDir": "/nonexistent"}]);
    let desk = Desk::new(&world, |config| config["edge"]["registries"] = registries);
    assert!(desk.broken("registry 127.0.0.1:1", "layout").contains("/nonexistent"));
    let (code, output) = desk.doctor();
    assert_eq!(code, 1);
    assert!(output.contains("BROKEN: registry 127.0.0.1:1: TCP: connect to 127.0.0.1:1"), "{output}");
    let desk = Desk::new(&world, |config| config["logLevel"] = json!("loud"));
    assert!(desk.broken("", "configuration").contains("logLevel"));
    let usual = command(&["doctor"], &desk.variables);
    assert!(usual.0 == 1 && usual.1.contains("/etc/gardenlet/config.yaml"), "{usual:?}");
    let before = world.seed.request_count();
    Desk::new(&world, |_| {}).doctor();
    let requests = world.seed.requests_since(before);
    let writes: Vec<_> = requests.iter().filter(|r| r.is_write() && !r.path.ends_with("reviews")).collect();
    assert!(requests.len() > 5 && writes.is_empty(), "{}", writes.len());
}

#[test]
fn doctor_names_leftover_webhooks_and_the_command_that_removes_them() {
    let world = World::start(&Options::real("barred"));
    let desk = Desk::new(&world, |_| {});
    leave_webhooks(&world);
    let problem = desk.broken("seed", "webhooks");
    assert!(
        problem.starts_with(
            "MutatingWebhookConfiguration and ValidatingWebhookConfiguration gardener-resource-manager refuse writes"
        ),
        "{problem}"
    );
    let command = "kubectl delete mutatingwebhookconfiguration,validatingwebhookconfiguration gardener-resource-manager";
    assert!(problem.ends_with(command), "{problem}");
    // If another applier is configured, there is no request to remove them.
    let desk = Desk::new(&world, |config| config["edge"]["resourceManager"] = json!("External"));
    assert!(!desk.doctor().1.contains("webhooks"));
}

/// With their own pull secrets and CAs, as the controller would pull them, except for their kind.
#[test]
fn doctor_requests_the_charts_of_the_seed() {
    let world = World::start(&Options::real("asking"));
    let mut registry = Registry::start(&world.clock);
    registry.push("charts/echo", "1", &charts::extension());
    registry.protect(Access::TokenFor("robot", "hunter2"));
    let login = |password: &str| json!({"data": pull_secret(&registry, password)["data"]});
    world.garden.apply(&[
        secret("ca", "oci-ca-bundle", "bundle.crt", registry.ca.as_bytes()),
        pull_secret(&registry, "hunter3"),
    ]);
    let repository = json!({"repository": format!("{}/charts/echo", registry.address), "tag": "1",
        "pullSecretRef": {"name": "pull"}, "caBundleSecretRef": {"name": "ca"}});
    for name in ["echo", "other"] {
        let mut objects = prepare::extension(name, b"", &json!({}));
        objects[0]["helm"] = json!({"ociRepository": repository});
        world.garden.apply(&objects);
    }
    let agent = world.agent();
    world.wait_until_ready();
    world.garden.wait_for("both installations", |garden| {
        ["echo", "other"].iter().all(|name| !garden.installations(name).is_empty()).then_some(())
    });
    agent.stop();

    let host = registry.address.clone();
    let desk = Desk::new(&world, |config| config["edge"]["registries"] = json!([{"host": host}]));
    let problem = desk.broken("chart of echo", "source");
    assert!(
        problem.contains("401") && problem.contains("pullSecretRef") && !problem.contains("hunter"),
        "{problem}"
    );
    world.garden.merge("", "secrets", ("garden", "pull"), &json!({"data": {".dockerconfigjson": null}}));
    let problem = desk.broken("chart of echo", "order");
    assert_eq!(problem, "pull secret garden/pull is missing the data key .dockerconfigjson");

    world.garden.merge("", "secrets", ("garden", "pull"), &login("hunter2"));
    registry.take_seen();
    let (code, well) = desk.doctor();
    assert_eq!(code, 0, "{well}");
    for line in [
        // Trusted by the CAs of the deployments.
        format!("good         registry {host}: certificate\n"),
        format!("good         registry {host}: answer: requires a login: the agent uses the pull secret\n"),
        format!("good         chart of echo: source: {host}\n"),
        format!("good         chart of other: source: {host}\n"),
    ] {
        assert!(well.contains(&line), "{line}: {well}");
    }
    let seen = registry.take_seen();
    let whole =
        |r: &&support::http::message::Request| r.path.contains("/blobs/") && r.header("range").is_none();
    assert!(seen.len() > 4 && !seen.iter().any(|r| whole(&r)), "{seen:?}");

    registry.down();
    let (code, told) = desk.doctor();
    let silent = format!("not reached  chart of other: source: {host}\n");
    assert!(
        code == 1 && told.contains("BROKEN: chart of echo: source: ") && told.contains(&silent),
        "{told}"
    );
}

#[test]
fn explain_reports_what_an_object_waits_for() {
    let world = World::start(&Options::real("explained"));
    let agent = world.agent();
    world.extend("echo", &charts::extension(), &json!({"greeting": "hello"}));
    world.wait_until_ready();
    let name = installed(&world, "echo");
    let mut desk = Desk::new(&world, |_| {});
    let of_installation = format!(
        "ControllerInstallation {name} (garden): ready\n- its ManagedResource garden/{name}: ready\n"
    );
    let partly =
        of_installation.replace("(garden): ready\n", "(garden): ready, as far as it could be read\n");
    let told = desk.explain(&["controllerinstallation", &name]);
    assert!(told.starts_with(&partly), "{told}");
    // The agent's own role does not allow it to read most objects of the ManagedResource: that is one line.
    world.expect_refusals();
    let unread: Vec<&str> = told.lines().filter(|line| line.contains("of its objects")).collect();
    assert!(
        unread.len() == 1 && unread[0].starts_with("- not read: 6 ") && unread[0].contains("403"),
        "{told}"
    );
    let told = desk.explain(&["Seed/explained"]);
    assert!(told.contains(&format!("- in use by ControllerInstallation {name}, provider-local-")), "{told}");

    let namespace = format!("extension-{name}");
    let cm = ["explain", "cm", "echo", "-n", &namespace, "--config", &desk.config];
    let (code, _, errors) = command(&cm, &desk.variables);
    assert!(
        code == 1
            && errors.contains(&format!("read ConfigMap {namespace}/echo of the seed: "))
            && errors.contains("403"),
        "{errors}"
    );

    desk.seed_kubeconfig(&world.seed.admin_kubeconfig());
    let told = desk.explain(&["controllerinstallation", &name]);
    assert!(told.starts_with(&of_installation) && !told.contains("of its objects"), "{told}");
    let hold = json!({"metadata": {"finalizers": ["example.org/hold"]}});
    world.seed.merge("", "configmaps", (&namespace, "echo"), &hold);
    world.seed.delete("", "configmaps", &namespace, "echo");
    let told = desk.explain(&["cm", "echo", "-n", &namespace]);
    let begin = format!("ConfigMap {namespace}/echo (seed): being deleted; held by example.org/hold\n");
    assert!(told.starts_with(&begin) && told.contains("removed by the program that set it"), "{told}");
    world.garden.delete(CORE, "controllerregistrations", "", "echo");
    world.garden.wait_for("a blocked deletion", |_| {
        let told = desk.explain(&["controllerinstallations", &name]);
        let begin = format!("ControllerInstallation {name} (garden): being deleted; held by ");
        let map = format!("its ConfigMap {namespace}/echo: being deleted; held by example.org/hold\n");
        (told.starts_with(&begin)
            && told.contains(&format!("its ManagedResource garden/{name}: being deleted; held by"))
            && told.contains(&map))
        .then_some(())
    });
    let args = ["explain", "mr", &name, "-o", "json", "--config", &desk.config];
    let (code, output, _) = command(&args, &desk.variables);
    let found: Value = serde_json::from_str(&output).unwrap();
    assert_eq!(
        (code, text(&found, "/object")),
        (0, format!("ManagedResource garden/{name} (seed)").as_str())
    );
    let refused = |object: &str| {
        let (code, output, errors) = command(&["explain", object, "--config", &desk.config], &desk.variables);
        assert_eq!((code, output.as_str()), (1, ""), "{errors}");
        errors
    };
    // No seed may read the Events of the garden, so nobody asks for them.
    let is_of_events = |seen: &Recorded| seen.method == "GET" && seen.path.contains("/events");
    let seen = world.garden.requests();
    assert!(!seen.iter().any(is_of_events) && world.seed.requests().iter().any(is_of_events));
    assert_eq!(refused("teapot/x"), "gardenlet explain: the seed serves no kind \"teapot\"\n");
    let suggested = "gardenlet explain: the seed serves no kind \"sekrets\"; did you mean \"secret\"?\n";
    assert_eq!(refused("sekrets/x"), suggested);
    let suggested = "gardenlet explain: the seed serves no kind \"shooot\"; did you mean \"shoot\"?\n";
    assert_eq!(refused("shooot/x"), suggested);
    assert_eq!(refused("cm/nowhere"), "gardenlet explain: ConfigMap garden/nowhere is not in the seed\n");
    let foreign = refused("shoot/garden-p/foreign");
    assert!(
        foreign.starts_with("gardenlet explain: Shoot garden-p/foreign: not found, or not of this seed (explained). The garden answered: ")
            && foreign.contains("403"),
        "{foreign}"
    );
    world.seed.merge("", "configmaps", (&namespace, "echo"), &json!({"metadata": {"finalizers": null}}));
    agent.stop();
}

/// The events of a cluster about an object.
pub fn events(cluster: &support::TestCluster, name: &str, reason: &str) -> Vec<Value> {
    let all = cluster.store().list("events.k8s.io", "events", "");
    let is_meant = |event: &Value| text(event, "/regarding/name") == name && text(event, "/reason") == reason;
    all.into_iter().filter(is_meant).collect()
}

#[test]
fn errors_are_reported_as_counted_events() {
    let world = World::start(&Options::new("told"));
    let agent = world.agent();
    world.extend("echo", &charts::extension(), &json!({"greeting": "hello"}));
    world.wait_until_ready();
    let name = installed(&world, "echo");
    // Nothing has failed so far, except that an instance may be applied before its definition is served.
    for cluster in [&*world.garden, &world.seed] {
        let told = cluster.store().list("events.k8s.io", "events", "");
        let is_wrong = |e: &&Value| {
            text(e, "/type") == "Warning" && !text(e, "/note").contains("no matches for kind \"Echo\"")
        };
        let warnings: Vec<&Value> = told.iter().filter(is_wrong).collect();
        assert!(warnings.is_empty(), "{warnings:?}");
    }
    let chart = base64(&charts::archive("extension-echo", &[("templates/a.yaml", "{{ fail \"no\" }}")]));
    world.garden.merge(CORE, "controllerdeployments", ("", "echo"), &json!({"helm": {"rawChart": chart}}));
    let told = world.garden.wait_for("an event that is counted", |garden| {
        let found = events(garden, &name, "ChartCannotBeRendered");
        (found.len() == 1 && found[0]["series"]["count"].as_u64() > Some(1)).then(|| found[0].clone())
    });
    assert_eq!(text(&told, "/type"), "Warning");
    assert_eq!(text(&told, "/metadata/namespace"), "default");
    assert_eq!(text(&told, "/reportingController"), "controllerinstallation-controller");
    let installation = world.garden.installations("echo").pop().unwrap();
    assert_eq!(told["regarding"]["uid"], installation["metadata"]["uid"]);

    let broken = json!({"apiVersion": "resources.gardener.cloud/v1alpha1", "kind": "ManagedResource",
        "metadata": {"name": "broken", "namespace": "garden"},
        "spec": {"class": "seed", "secretRefs": [{"name": "nowhere"}]}});
    world.seed.create("resources.gardener.cloud/v1alpha1", "managedresources", &broken);
    world.seed.wait_for("an event about the ManagedResource", |seed| {
        let found = events(seed, "broken", "CannotReadSecret");
        found.first().is_some_and(|e| text(e, "/metadata/namespace") == "garden").then_some(())
    });

    let renew = json!({"metadata": {"annotations": {"gardener.cloud/operation": "renew"}}});
    world.seed.merge("", "secrets", ("garden", "gardenlet-kubeconfig"), &renew);
    world.garden.wait_for("an event about the certificate", |garden| {
        events(garden, "told", "CertificateRenewed").pop()
    });
    // The agent works without Events that cannot be written.
    let refused = world.seed.faults().on("POST", "/apis/events.k8s.io").answer(403);
    let broken = json!({"apiVersion": "resources.gardener.cloud/v1alpha1", "kind": "ManagedResource",
        "metadata": {"name": "silent", "namespace": "garden"},
        "spec": {"class": "seed", "secretRefs": [{"name": "nowhere"}]}});
    world.seed.create("resources.gardener.cloud/v1alpha1", "managedresources", &broken);
    world.seed.wait_for("the condition without the event", |seed| {
        let object = seed.get(MANAGED_RESOURCES, "managedresources", "garden", "silent")?;
        let condition = crate::world::condition(&object, "ResourcesApplied")?;
        (condition.1 == "CannotReadSecret" && refused.hits() > 0).then_some(())
    });
    agent.stop();
}

/// Everything secret in Secrets and files: whole values, and the lines of keys and tokens.
fn secrets(world: &World, into: &mut Vec<String>) {
    for cluster in [&*world.garden, &world.seed] {
        for secret in cluster.store().list("", "secrets", "") {
            for (key, value) in secret["data"].as_object().into_iter().flatten() {
                if !matches!(key.as_str(), "ca.crt" | "bundle.crt" | "namespace") {
                    hide(value.as_str().unwrap(), into);
                }
            }
        }
    }
    into.push(std::fs::read_to_string(world.path("serviceaccount").join("token")).unwrap());
    for name in ["bootstrap-request", "rotation-request", "request"] {
        into.extend(state_file(world, name).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()));
    }
}

/// A Base64 value in all its forms.
fn hide(encoded: &str, into: &mut Vec<String>) {
    into.push(encoded.to_owned());
    let Some(plain) = from_base64(encoded).and_then(|bytes| String::from_utf8(bytes).ok()) else { return };
    for word in plain.split(|c: char| c.is_whitespace() || c == '"') {
        // Base64 within Base64: the keys of a kubeconfig.
        let inner = from_base64(word).and_then(|bytes| String::from_utf8(bytes).ok()).unwrap_or_default();
        if inner.contains("PRIVATE KEY") {
            into.push(word.to_owned());
            into.extend(inner.lines().filter(|line| !line.starts_with("-----")).map(str::to_owned));
        }
        let is_token = word.starts_with("eyJ") || word.contains("hunter2");
        if is_token {
            into.push(word.to_owned());
        }
    }
    into.push(plain);
}

#[test]
fn no_line_of_the_log_contains_a_secret() {
    let level = log::max_level();
    let world = World::start(&Options::new("discreet"));
    log::set_max_level(log::LevelFilter::Trace);
    let mut known = vec![world.preparation.token_secret.clone()];
    let credentials = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "login", "namespace": "garden"},
        "stringData": {"password": "hunter2-in-a-secret"}});
    world.garden.apply(&[credentials]);
    secrets(&world, &mut known);
    let agent = world.agent();
    world.extend("echo", &charts::extension(), &json!({"greeting": "hunter2-in-values"}));
    world.wait_until_ready();
    let name = installed(&world, "echo");
    secrets(&world, &mut known);
    // Programs log most when requests fail.
    let refused = world.garden.faults().on("PATCH", "/gardener-system-seed-lease/leases").answer(500);
    world.wait_for_log(&["WARN", "Cannot renew the seed's lease", "seed=discreet"]);
    refused.cancel();
    let good = world.garden.get(CORE, "controllerdeployments", "", "echo").unwrap();
    let odd =
        base64(&charts::archive("extension-echo", &[("templates/a.yaml", "a: {{ .Values.greeting }}: b")]));
    for chart in [json!({"helm": {"rawChart": odd}}), json!({"helm": good["helm"]})] {
        world.garden.merge(CORE, "controllerdeployments", ("", "echo"), &chart);
        world.skip(Duration::from_secs(2));
    }
    let before = world.certificate_pem();
    let renew = json!({"metadata": {"annotations": {"gardener.cloud/operation": "renew"}}});
    world.seed.merge("", "secrets", ("garden", "gardenlet-kubeconfig"), &renew);
    wait_for("another certificate", || (world.certificate_pem() != before).then_some(()));
    secrets(&world, &mut known);
    world.garden.delete(CORE, "controllerregistrations", "", "echo");
    world.garden.wait_for("the end of the installation", |_| {
        world.garden.installations("echo").is_empty().then_some(())
    });
    agent.stop();
    log::set_max_level(level);
    let lines = world.log();
    assert!(lines.iter().any(|line| line.contains("Request sent")), "the log was not at its lowest level");
    assert!(lines.iter().any(|line| line.contains(&name)), "the story is not in the log");
    known.sort();
    known.dedup();
    known.retain(|secret| secret.trim().len() >= 12);
    assert!(known.len() > 20 && known.iter().any(|s| s.contains("hunter2-in-values")), "{}", known.len());
    for secret in &known {
        let told = lines.iter().find(|line| line.contains(secret.as_str()));
        assert!(
            told.is_none(),
            "{}... is in {}",
            &secret[..4],
            told.unwrap().replace(secret.as_str(), "[secret]")
        );
    }
}
