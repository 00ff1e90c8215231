//! Commands that a person runs on a host find what the unit of the agent has, and `doctor` makes the checks that the
//! agent makes at its start.

use std::collections::BTreeMap;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt as _;
use std::time::Duration;

use gardenlet::base::sorted::SortedMap;
use gardenlet::config::LoadedConfig;
use gardenlet::format::yaml;
use gardenlet::{app, cli};
use serde_json::{Value, json};

use crate::commands::{command, printed};
use crate::story_operating::{Desk, equip};
use crate::world::{Options, World, wait_for};
use support::encoding::{base64, from_base64};
use support::http::record::Recorded;
use support::json::text;

const UNIT: &str = include_str!("../../packaging/systemd/gardenlet.service");
const DROP_IN: &str = include_str!("../../packaging/systemd/bootstrap.conf");
const BOOTSTRAP: (&str, &str) = ("garden", "gardenlet-kubeconfig-bootstrap");

/// A host with the packaged unit, whose folder `/etc/gardenlet` is the folder of the world. The seed has no bootstrap
/// kubeconfig.
fn host(world: &World) -> Desk<'_> {
    let mut desk = Desk::new(world, |_| {});
    world.seed.delete("", "secrets", BOOTSTRAP.0, BOOTSTRAP.1);
    // The kubeconfig of the unit, and nothing in the environment.
    desk.variables.clear();
    std::fs::create_dir_all(world.path("gardenlet.service.d")).unwrap();
    let unit = UNIT.replace("/etc/gardenlet/config.yaml", &desk.config);
    assert_ne!(unit, UNIT);
    world.file("gardenlet.service", &here(world, &unit));
    desk.variables.insert("SYSTEMD_UNIT_PATH".to_owned(), world.path("").display().to_string());
    desk
}

fn here(world: &World, unit: &str) -> String {
    unit.replace("/etc/gardenlet/", &format!("{}/", world.path("").display()).replace("//", "/"))
}

fn drop_in(world: &World) {
    world.file("gardenlet.service.d/bootstrap.conf", &here(world, DROP_IN));
}

fn bootstrap_kubeconfig(world: &World) -> String {
    let token = world.preparation.token();
    world.file("bootstrap.kubeconfig", &world.garden.bootstrap_kubeconfig(&token)).display().to_string()
}

/// An agent gets its identity, and stops. It has used the Secret up, which [`host`] deletes.
fn let_an_agent_join(world: &World) {
    let agent = world.agent();
    world.wait_until_ready();
    agent.stop();
    world.seed.apply(&[json!({"apiVersion": "v1", "kind": "Secret",
        "metadata": {"name": BOOTSTRAP.1, "namespace": BOOTSTRAP.0}, "stringData": {"kubeconfig": "x"}})]);
}

/// The command `rebootstrap`: its exit code and all it prints.
fn rebootstrap(desk: &Desk<'_>) -> (u8, String) {
    let variables: SortedMap<String, String> = desk.variables.clone().into_iter().collect();
    let act = |loaded: &LoadedConfig, of_unit: Vec<(String, String)>, announce: &mut dyn FnMut(&str)| {
        app::ask_for_identity(loaded, variables.clone().into_iter().chain(of_unit).collect(), announce)
    };
    let args = ["rebootstrap", "--config", desk.config.as_str()].map(Into::into).to_vec();
    let variable = |name: &str| desk.variables.get(name).cloned();
    let (code, output, errors) =
        printed(None, |io| cli::main(args, &variable, io, &act, |_, _| unreachable!()));
    (code, output + &errors)
}

#[test]
fn commands_by_hand_find_what_the_unit_hands_over() {
    let world = World::start(&Options::real("by-hand"));
    let desk = host(&world);
    let (code, refused) = rebootstrap(&desk);
    assert!(
        code == 1 && refused.ends_with("gardenlet.service has no LoadCredential=bootstrap-kubeconfig\n"),
        "{refused}"
    );
    let problem = desk.broken("garden", "identity");
    assert!(problem.contains("secret garden/gardenlet-kubeconfig-bootstrap of the seed"), "{problem}");

    // The file is there, but the agent does not get it.
    let file = bootstrap_kubeconfig(&world);
    let problem = desk.broken("garden", "identity");
    let expected = format!(
        "the agent does not get {file}: gardenlet.service has no LoadCredential=bootstrap-kubeconfig"
    );
    assert_eq!(problem, expected);
    let (_, output) = desk.doctor();
    assert!(output.contains("good         garden: permissions\n"), "the way is tried nevertheless: {output}");
    assert_eq!(rebootstrap(&desk).0, 1);

    drop_in(&world);
    let (code, output) = desk.doctor();
    assert_eq!(code, 0, "{output}");
    for line in [
        format!("good         garden: identity: bootstrap credential in file {file}\n"),
        "good         garden: authentication\n".to_owned(),
        "good         garden: Gardener: v1.150.0\n".to_owned(),
        "good         seed: permissions\n".to_owned(),
    ] {
        assert!(output.contains(&line), "{line}: {output}");
    }
    let (code, told) = rebootstrap(&desk);
    assert!(
        code == 0 && told.contains(&file) && told.ends_with("systemctl restart gardenlet.service\n"),
        "{told}"
    );
    std::fs::write(&file, "no: {kubeconfig").unwrap();
    assert!(desk.broken("garden", "identity").contains(&file));
}

/// The shell of a person often has a KUBECONFIG, perhaps of another cluster.
#[test]
fn commands_by_hand_tell_that_they_use_another_kubeconfig_than_the_unit() {
    let world = World::start(&Options::real("by-hand-elsewhere"));
    let mut desk = host(&world);
    drop_in(&world);
    bootstrap_kubeconfig(&world);
    let unit_s = world.path("seed.kubeconfig").display().to_string();
    let other = world.file("other.kubeconfig", &std::fs::read_to_string(&unit_s).unwrap());
    let other = other.display().to_string();
    for (kubeconfig, is_told) in [(None, false), (Some(&unit_s), false), (Some(&other), true)] {
        desk.variables.remove("KUBECONFIG");
        desk.variables.extend(kubeconfig.map(|path| ("KUBECONFIG".to_owned(), path.clone())));
        let (code, told) = rebootstrap(&desk);
        let line = format!("The kubeconfig of the seed is {other}, not that of gardenlet.service\n");
        assert_eq!((code, told.contains(&line)), (0, is_told), "{told}");
        let (code, examined) = desk.doctor();
        let line = format!(
            "odd          seed: kubeconfig: {other}, not that of gardenlet.service\n             leave --kubeconfig out, and \
             unset KUBECONFIG\n"
        );
        assert_eq!((code, examined.contains(&line)), (0, is_told), "{examined}");
        assert_eq!(examined.contains("seed: kubeconfig"), is_told, "{examined}");
    }
    // The option says the same as the variable. Without a unit, the environment is that of the agent.
    desk.variables.remove("KUBECONFIG");
    let words = ["doctor", "--config", desk.config.as_str(), "--kubeconfig", other.as_str()];
    let (_, examined, _) = command(&words, &desk.variables);
    assert!(examined.contains(&format!("seed: kubeconfig: {other}, not that of")), "{examined}");
    desk.variables.remove("SYSTEMD_UNIT_PATH");
    let (_, examined, _) = command(&words, &desk.variables);
    assert!(!examined.contains("seed: kubeconfig"), "{examined}");
}

/// A Secret of the agent asks for the operation.
#[test]
fn a_new_identity_is_requested_with_the_credential_of_the_unit() {
    let world = World::start(&Options::real("by-hand-again"));
    let_an_agent_join(&world);
    let desk = host(&world);
    bootstrap_kubeconfig(&world);
    drop_in(&world);
    let (code, told) = rebootstrap(&desk);
    assert_eq!(code, 0, "{told}");
    let secret = world.seed.get("", "secrets", "garden", "gardenlet-kubeconfig").unwrap();
    assert_eq!(secret["metadata"]["annotations"]["gardener.cloud/operation"], "rebootstrap");
    let told = desk.explain(&["seed/by-hand-again"]);
    assert!(told.starts_with("Seed by-hand-again (garden): "), "{told}");
}

/// The command names its write before it sends it, and a request that waits for the agent is not written again.
#[test]
fn the_role_for_a_new_identity_suffices() {
    let world = World::start(&Options::real("by-hand-modest"));
    let_an_agent_join(&world);
    let role = "gardener.cloud:system:gardenlet:rebootstrap";
    let person = json!({"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": "somebody"});
    world.seed.apply(&[json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
        "metadata": {"name": "somebody", "namespace": "garden"}, "subjects": [person],
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": role}})]);
    let mut desk = host(&world);
    drop_in(&world);
    bootstrap_kubeconfig(&world);
    let own = world.file("somebody.kubeconfig", &world.seed.kubeconfig_for("somebody", &[]));
    desk.variables.insert("KUBECONFIG".to_owned(), own.display().to_string());
    let writes = |mark: usize| {
        let sent = world.seed.requests_since(mark).into_iter();
        let sent = sent.filter(|request| request.user == "somebody");
        assert!(sent.clone().all(|request| request.status != 403), "{:?}", world.seed.requests_since(mark));
        sent.filter(Recorded::is_write).count()
    };
    let announced = "To be written to the seed: annotation gardener.cloud/operation=rebootstrap of Secret \
                     garden/gardenlet-kubeconfig\n";
    for is_first in [true, false] {
        let mark = world.seed.request_count();
        let (code, told) = rebootstrap(&desk);
        assert_eq!((code, told.contains(announced)), (0, is_first), "{told}");
        assert!(told.contains("Secret garden/gardenlet-kubeconfig of the seed is annotated"), "{told}");
        assert_eq!(writes(mark), usize::from(is_first), "{told}");
    }
}

#[test]
fn doctor_names_networks_that_are_not_those_of_the_seed() {
    let world = World::start(&Options::real("astray"));
    equip(&world);
    let service = json!({"metadata": {"name": "dns", "namespace": "kube-system"}, "spec": {
        "clusterIP": "10.52.0.10", "ports": [{"port": 53}]}});
    world.seed.create("v1", "services", &service);
    let pod = json!({"metadata": {"name": "dns", "namespace": "kube-system"}, "spec": {
        "containers": [{"name": "dns", "image": "dns"}]}});
    world.seed.create("v1", "pods", &pod);
    world.seed.merge_status("", "pods", ("kube-system", "dns"), &json!({"status": {"podIP": "10.51.0.9"}}));
    for (field, object) in [
        ("services", "Service kube-system/dns of the seed has the address 10.52.0.10"),
        ("pods", "Pod kube-system/dns of the seed has the address 10.51.0.9"),
        ("nodes", "Node node-1 of the seed has the address 10.50.0.7"),
    ] {
        let desk = Desk::new(&world, |config| {
            config["seedConfig"]["spec"]["networks"][field] = json!("10.77.0.0/16");
        });
        let problem = desk.broken("seed", "networks");
        assert!(
            problem.contains(&format!("networks.{field} is")) && problem.contains("10.77.0.0/16"),
            "{problem}"
        );
        assert!(field == "services" || problem.contains(object), "{problem}");
    }
    let (code, well) = Desk::new(&world, |_| {}).doctor();
    assert!(code == 0 && well.contains("good         seed: networks\n"), "{well}");
}

#[test]
fn doctor_names_versions_that_do_not_fit() {
    let world = World::start(&Options::real("unfit"));
    let place = ("gardener-system-public", "gardener-info");
    let info = |version: &str| json!({"data": {"gardenerAPIServer": format!("version: {version}\n")}});
    let desk = Desk::new(&world, |_| {});
    for (theirs, words) in [
        ("v1.153.0", "the garden's API server v1.153.0 is too new for gardenlet v1.150.0"),
        ("v1.149.0", "must not be newer than the garden's API server v1.149.0"),
    ] {
        world.garden.merge("", "configmaps", place, &info(theirs));
        let problem = desk.broken("garden", "Gardener");
        assert!(problem.contains(words), "{problem}");
    }
    world.garden.merge("", "configmaps", place, &info("v1.150.0"));
    let agent = world.agent();
    world.wait_until_ready();
    agent.stop();
    world.garden.merge("", "configmaps", place, &info("v1.160.1"));
    // Whatever a garden allows that does not know the Seed.
    world.expect_refusals();
    world.garden.faults().on("GET", "/seeds/unfit").answer(403);
    let problem = desk.broken("garden", "Gardener");
    assert!(problem.contains("v1.160.1 is too new"), "{problem}");
    let (_, output) = desk.doctor();
    assert!(output.contains("not reached  garden: permissions\n"), "{output}");
}

#[test]
fn doctor_finds_what_a_host_and_a_seed_lack() {
    let world = World::start(&Options::real("lacking"));
    equip(&world);
    let other = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = other.local_addr().unwrap().port();
    let listener = json!({"bindAddress": "127.0.0.1", "port": port});
    let desk = Desk::new(&world, |config| config["server"]["metrics"] = listener.clone());
    let problem = desk.broken("", "port of metrics");
    assert!(problem.contains(&format!("127.0.0.1:{port}")) && problem.contains("in use"), "{problem}");
    drop(other);

    let desk = Desk::new(&world, |config| {
        config["edge"]["exposure"] = json!({"address": "192.0.2.10"});
        config["edge"]["etcd"] = json!({"main": {"storageClass": "fast"}});
    });
    let (code, output) = desk.doctor();
    assert_eq!(code, 0, "{output}");
    for line in [
        "odd          configuration: edge.exposure.address: 192.0.2.10 is reserved for documentation: ",
        "odd          seed: StorageClass: no Shoot can come up: fast of edge.etcd does not exist\n",
        "odd          seed: exposure: edge.exposure.address 192.0.2.10 is reserved for documentation, and is not an address of a \
         node (they have 10.50.0.7)",
    ] {
        assert!(output.contains(line), "{line}: {output}");
    }
    assert!(output.contains(" free\n"), "{output}");
    let mut desk = Desk::new(&world, |_| {});
    let (_, well) = desk.doctor();
    assert!(well.contains("good         seed: StorageClass: local-path\n"), "{well}");
    assert!(well.contains("good         seed: exposure: 10.50.0.7\n"), "{well}");
    let images = world.file("images.yaml", "images: 7\n").display().to_string();
    desk.variables.insert("IMAGEVECTOR_OVERWRITE".to_owned(), images.clone());
    assert!(desk.broken("", "images").contains(&images));
}

/// Nobody reaches the Shoot at the configured address. `explain` says why it does not go on.
#[test]
fn a_shoot_behind_a_wrong_address_is_explained() {
    let world = World::start(&Options::new("misplaced"));
    equip(&world);
    let site = world.site();
    // The agent is no pod of the seed.
    site.routes().leave_cluster();
    let place = |config: &mut Value| {
        support::shoot::object::make_edge(config);
        config["edge"]["exposure"] = json!({"type": "NodePort", "address": "10.50.0.9"});
    };
    let mut config = world.config();
    place(&mut config);
    let agent = world.agent_of(&site, &config);
    agent.launch();
    world.wait_until_ready();
    let shoot = support::shoot::object::ShootObject::workerless("lost").build();
    world.garden.apply(&[shoot]);
    let desk = Desk::new(&world, place);
    world.garden.wait_for("the task that waits", |garden| {
        let shoot = garden.get(crate::world::CORE, "shoots", "garden-p", "lost")?;
        text(&shoot, "/status/lastOperation/description")
            .contains("Waiting until gardener-resource-manager reports readiness")
            .then_some(())
    });
    let doubt = "exposure: edge.exposure.address 10.50.0.9 is not an address of a node (they have 10.50.0.7)";
    let (_, status) = agent.get(2728, "/statusz?format=text");
    assert!(status.contains(doubt), "{status}");
    let told = desk.explain(&["shoot", "garden-p/lost"]);
    for words in [
        "its API server cannot be reached from here: ",
        "edge.exposure.address 10.50.0.9 is not an address of a node (they have \
         10.50.0.7)",
    ] {
        assert!(told.contains(words), "{words}: {told}");
    }
    agent.stop();
}

/// The command `bootstrap-token`: the Secret that it prints. It writes the kubeconfig to `bootstrap.kubeconfig`.
fn make_token(world: &World, more: &[&str]) -> Value {
    let admin = world.file("admin.kubeconfig", &world.garden.admin_kubeconfig()).display().to_string();
    let to = format!("--to={}", world.path("bootstrap.kubeconfig").display());
    let args = [&["bootstrap-token", world.name, "--kubeconfig", &admin, &to], more].concat();
    let (code, output, errors) = command(&args, &BTreeMap::new());
    assert_eq!(code, 0, "{errors}");
    assert!(errors.contains("bootstrap.kubeconfig is valid until "), "{errors}");
    yaml::parse(&output).unwrap()
}

/// Replaces the token that the world has.
fn apply_token(world: &World, secret: &Value) {
    let name = text(secret, "/metadata/name");
    world.garden.merge("", "secrets", ("kube-system", name), &json!({"data": secret["data"]}));
}

#[test]
fn an_agent_joins_with_a_token_that_the_command_makes() {
    let world = World::start(&Options::new("invited"));
    let secret = make_token(&world, &["--validity=30m"]);
    let field = |name: &str| {
        let bytes = from_base64(text(&secret, &format!("/data/{name}"))).unwrap();
        String::from_utf8(bytes).unwrap()
    };
    assert_eq!(field("token-id"), world.preparation.token_id());
    assert!(field("expiration").ends_with('Z') && field("usage-bootstrap-authentication") == "true");
    let kubeconfig = std::fs::read_to_string(world.path("bootstrap.kubeconfig")).unwrap();
    let token = format!("token: {}.{}\n", field("token-id"), field("token-secret"));
    assert!(kubeconfig.contains(&token) && !kubeconfig.contains("client-key"), "{kubeconfig}");
    let mode = std::fs::metadata(world.path("bootstrap.kubeconfig")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);

    // The command uses the time of this machine, and the world has its own.
    let mut now = secret.clone();
    now["data"].as_object_mut().unwrap().remove("expiration");
    apply_token(&world, &now);
    let encoded = base64(kubeconfig.as_bytes());
    world.seed.merge("", "secrets", BOOTSTRAP, &json!({"data": {"kubeconfig": encoded}}));
    let agent = world.agent();
    world.wait_until_ready();
    let name = text(&secret, "/metadata/name").to_owned();
    world.garden.wait_for("the agent to delete the token", |garden| {
        garden.get("", "secrets", "kube-system", &name).is_none().then_some(())
    });
    agent.stop();
}

#[test]
fn both_documents_are_printed_without_a_file() {
    let world = World::start(&Options::real("printed"));
    let admin = world.file("admin.kubeconfig", &world.garden.admin_kubeconfig()).display().to_string();
    let variables = BTreeMap::from([("GARDEN_KUBECONFIG".to_owned(), admin.clone())]);
    let (code, output, errors) = command(&["bootstrap-token", "printed"], &variables);
    assert_eq!((code, errors.as_str()), (0, ""));
    let kinds: Vec<Value> = yaml::parse_all(&output)
        .into_iter()
        .map(|document| document.value.unwrap()["kind"].clone())
        .collect();
    assert_eq!(kinds, ["Secret", "Config"]);
    let (code, _, errors) = command(&["bootstrap-token", "printed", "--context=other"], &variables);
    assert!(code == 1 && errors.contains("no context \"other\""), "{errors}");
}

/// The garden does not let the agent delete the token, and nobody deletes the file.
#[test]
fn leftovers_of_a_bootstrap_are_in_the_status() {
    let world = World::start(&Options::new("untidy"));
    world.seed.delete("", "secrets", BOOTSTRAP.0, BOOTSTRAP.1);
    let file = bootstrap_kubeconfig(&world);
    let denied = world.garden.faults().on("DELETE", "/secrets/bootstrap-token-").answer(403);
    world.expect_refusals();
    let mut config = world.config();
    config["edge"]["bootstrap"] = json!({"kubeconfig": file});
    let agent = world.agent_with(&config);
    world.wait_until_ready();
    let status = || agent.get(2728, "/statusz?format=text").1;
    let token = format!("Secret kube-system/bootstrap-token-{} of the garden", world.preparation.token_id());
    let expected = format!("bootstrap credentials: left over: {token}, file {file}; delete them");
    wait_for("the leftovers in the status", || status().contains(&expected).then_some(()));
    assert!(denied.hits() > 0);
    std::fs::remove_file(&file).unwrap();
    world.skip(Duration::from_secs(320));
    wait_for("the token alone", || {
        let status = status();
        (status.contains(&token) && !status.contains(&file)).then_some(())
    });
    agent.stop();

    // A garden deletes an approved request for a certificate after about an hour.
    for request in world.requests() {
        world.garden.delete(
            "certificates.k8s.io",
            "certificatesigningrequests",
            "",
            text(&request, "/metadata/name"),
        );
    }
    agent.launch();
    agent.wait_until_the_seed_side_runs();
    wait_for("the token after a restart", || status().contains(&token).then_some(()));

    // Only a leader knows what is left over. While the Lease is lost, the status does not name it.
    let lost = world.seed.faults().on("PUT", "/leases/gardenlet-leader-election").answer(500);
    world.skip(Duration::from_secs(60));
    wait_for("the end of the term", || (!status().contains("left over")).then_some(()));
    lost.cancel();
    wait_for("the token in the next term", || status().contains(&token).then_some(()));
    denied.cancel();
    world.skip(Duration::from_secs(320));
    let name = format!("bootstrap-token-{}", world.preparation.token_id());
    world.garden.wait_for("the end of the token", |garden| {
        garden.get("", "secrets", "kube-system", &name).is_none().then_some(())
    });
    wait_for("nothing left over", || (!status().contains("left over")).then_some(()));
    agent.stop();
}

/// The Secret that the configuration of a world names.
pub fn dns_secret() -> Value {
    json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "dns", "namespace": "garden"}})
}

#[test]
fn doctor_checks_a_garden_before_an_installation() {
    let world = World::start(&Options::real("planned"));
    equip(&world);
    let mut desk = Desk::new(&world, |_| {});
    let admin = world.file("admin.kubeconfig", &world.garden.admin_kubeconfig()).display().to_string();
    desk.variables.insert("GARDEN_KUBECONFIG".to_owned(), admin);
    let seed = desk.variables.remove("KUBECONFIG").unwrap();
    let examine = || {
        let args = ["doctor", "--pre", "--config", &desk.config, "--kubeconfig", &seed];
        let (code, output, errors) = command(&args, &desk.variables);
        assert_eq!(errors, "");
        (code, output)
    };
    world.garden.apply(&[dns_secret()]);
    let (code, well) = examine();
    assert_eq!(code, 0, "{well}");
    for line in [
        "good         garden: Gardener: v1.150.0\n".to_owned(),
        "good         garden: extensions\n".to_owned(),
        "good         garden: credentials\n".to_owned(),
        format!(
            "good         garden: bootstrap token: kube-system/bootstrap-token-{} is valid",
            world.preparation.token_id()
        ),
        "good         seed: networks\n".to_owned(),
    ] {
        assert!(well.contains(&line), "{line}: {well}");
    }
    assert!(!well.contains("own certificate"), "{well}");

    world.garden.delete("", "secrets", "garden", "dns");
    let token = ("kube-system", format!("bootstrap-token-{}", world.preparation.token_id()));
    world.garden.merge("", "secrets", (token.0, &token.1), &json!({"data": {"expiration": null}}));
    let spec = json!({"spec": {"resources": [{"kind": "Worker", "type": "local"}]}});
    world.garden.merge(crate::world::CORE, "controllerregistrations", ("", "provider-local"), &spec);
    let (code, told) = examine();
    assert_eq!(code, 1, "{told}");
    for words in [
        "BROKEN: garden: extensions: no ControllerRegistration supports ControlPlane/local, DNSRecord/local, Infrastructure/local\n",
        "BROKEN: garden: credentials: credentialsRef of the Seed refers to Secret garden/dns, which the garden does not have",
        "never expires\n             make another one with gardenlet bootstrap-token\n",
    ] {
        assert!(told.contains(words), "{words}: {told}");
    }
    let mut variables = desk.variables.clone();
    variables.remove("GARDEN_KUBECONFIG");
    let args = ["doctor", "--pre", "--config", &desk.config, "--kubeconfig", &seed];
    let (_, told, _) = command(&args, &variables);
    let unasked =
        "not reached  garden: extensions: set GARDEN_KUBECONFIG to a kubeconfig of an administrator";
    let joins = "good         garden: identity: bootstrap credential in secret garden/";
    assert!(told.contains(unasked) && told.contains(joins), "{told}");
    let (_, told, _) = command(&["doctor", "--pre", "--kubeconfig", &seed], &desk.variables);
    for words in [
        "not reached  configuration: there is no /etc/gardenlet/config.yaml yet, so defaults are used\n",
        "good         seed: cluster\n",
        "good         garden: Gardener: v1.150.0\n",
    ] {
        assert!(told.contains(words), "{words}: {told}");
    }
    for word in ["networks", "bootstrap token", "extensions", "unwritten"] {
        assert!(!told.contains(word), "{word}: {told}");
    }
    let (code, _, errors) = command(
        &["explain", "seed/planned", "--config", &desk.config, "--kubeconfig", &seed, "--context", "no"],
        &desk.variables,
    );
    assert!(code == 1 && errors.contains("no context \"no\""), "{errors}");
}
