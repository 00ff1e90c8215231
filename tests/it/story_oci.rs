//! An extension with its chart in a registry: installed by tag, by digest and by reference, renewed, and kept while the
//! registry is away.

use std::path::Path;

use serde_json::{Value, json};

use crate::charts;
use crate::story_extension::installed;
use crate::story_probes::series;
use crate::world::{Agent, CORE, Options, World, condition};
use support::encoding::base64;
use support::garden::prepare;
use support::registry::{Access, Registry};

const DEPLOYMENTS: &str = "controllerdeployments";

pub fn secret(name: &str, role: &str, key: &str, value: &[u8]) -> Value {
    json!({"apiVersion": "v1", "kind": "Secret",
        "metadata": {"name": name, "namespace": "garden", "labels": {"gardener.cloud/role": role}},
        "data": {key: base64(value)}})
}

pub fn pull_secret(registry: &Registry, password: &str) -> Value {
    let config = json!({"auths": {registry.address.clone(): {"username": "robot", "password": password}}});
    secret("pull", "helm-pull-secret", ".dockerconfigjson", config.to_string().as_bytes())
}

/// Registers the extension with its chart in the registry.
pub fn register(world: &World, repository: &Value) {
    let mut objects = prepare::extension("echo", b"", &json!({"greeting": "hello"}));
    objects[0]["helm"] = json!({"values": {"greeting": "hello"}, "ociRepository": repository});
    world.garden.apply(&objects);
}

pub fn wait_for_valid(world: &World, status: &str, words: &[&str]) {
    world.garden.wait_for(&format!("Valid={status} with {words:?}"), |_| {
        let installation = world.garden.installations("echo").pop()?;
        let (found, reason, message) = condition(&installation, "Valid")?;
        let all = words.iter().all(|word| reason.contains(word) || message.contains(word));
        (found == status && all).then_some(())
    });
}

pub fn greeting(world: &World, name: &str, expected: &str) {
    world.seed.wait_for("the greeting", |seed| {
        let echo = seed.get("example.org", "echoes", &format!("extension-{name}"), "first")?;
        (echo["spec"]["text"] == expected).then_some(())
    });
}

#[test]
fn a_chart_in_a_registry_is_installed_in_every_form() {
    let world = World::start(&Options::new("pulled"));
    let mut registry = Registry::start(&world.clock);
    let pinned = registry.push("charts/echo", "1", &charts::extension());
    registry.protect(Access::TokenFor("robot", "hunter2"));
    world.garden.apply(&[
        secret("ca", "oci-ca-bundle", "bundle.crt", registry.ca.as_bytes()),
        pull_secret(&registry, "hunter3"),
    ]);
    let repository = format!("oci://{}/charts/echo", registry.address);
    let secrets = |mut fields: Value| {
        fields["pullSecretRef"] = json!({"name": "pull"});
        fields["caBundleSecretRef"] = json!({"name": "ca"});
        fields
    };
    let agent = world.agent();
    register(&world, &secrets(json!({"repository": repository, "tag": "1"})));
    world.wait_until_ready();
    wait_for_valid(&world, "False", &["OCIChartCannotBePulled", "chart pulling process failed: ", "401"]);
    // The Secret is corrected, without a signal to the agent.
    world.garden.merge(
        "",
        "secrets",
        ("garden", "pull"),
        &json!({"data": pull_secret(&registry, "hunter2")["data"]}),
    );
    let name = installed(&world, "echo");
    greeting(&world, &name, "hello");

    let change = |repository: &Value, greeting: &str| {
        let helm = json!({"helm": {"values": {"greeting": greeting}, "ociRepository": repository}});
        world.garden.merge(CORE, DEPLOYMENTS, ("", "echo"), &helm);
    };
    change(
        &secrets(json!({"repository": repository, "tag": null, "ref": format!("{repository}:1")})),
        "by ref",
    );
    greeting(&world, &name, "by ref");
    change(&secrets(json!({"ref": "nowhere:1"})), "never");
    wait_for_valid(&world, "False", &["OCIChartCannotBePulled", "could not parse reference"]);
    // The last good chart continues to run.
    greeting(&world, &name, "by ref");
    change(&secrets(json!({"ref": null, "tag": "1", "digest": pinned})), "by digest");
    greeting(&world, &name, "by digest");
    let (_, metrics) = agent.get(2729, "/metrics");
    let bytes = charts::extension().len();
    for line in [
        "gardenlet_chart_pulls_total{result=\"success\"} ",
        "gardenlet_chart_pulls_total{result=\"configuration\"} ",
        "gardenlet_chart_cache_hits_total ",
        // One pull for all requests.
        format!("gardenlet_chart_pull_bytes_total {bytes}\n").as_str(),
    ] {
        assert!(metrics.contains(line), "{line}: {metrics}");
    }
    // All bytes of the connection: the chart, the requests before it, and TLS. The registry is not a label.
    let went = |direction: &str| {
        let name = format!("gardenlet_api_bytes_total{{peer=\"registry\",direction=\"{direction}\"}}");
        series(&metrics, &name).unwrap_or_else(|| panic!("no {name}: {metrics}"))
    };
    let chart = f64::from(u32::try_from(bytes).unwrap());
    assert!(
        went("received") > chart && went("sent") > 0.0 && !metrics.contains(&registry.address),
        "{metrics}"
    );
    let (_, page) = agent.get(2728, "/statusz?format=json");
    let page: Value = serde_json::from_str(&page).unwrap();
    assert!(page["registryTraffic"]["received"].as_f64() > Some(chart), "{page}");

    // Without the registry, and after a crash, a pinned chart is still available.
    registry.down();
    agent.crash_and_restart();
    change(&json!({}), "from the cache");
    greeting(&world, &name, "from the cache");
    wait_for_valid(&world, "True", &["RegistrationValid"]);
    assert!(!world.log().iter().any(|line| line.contains("hunter")));
    agent.stop();
}

/// Neither the kubeconfig of the garden nor the chart has a CA: the agent uses the system's CAs, which the environment
/// sets.
#[test]
fn the_environment_sets_the_cas_of_the_system() {
    let world = World::start(&Options::new("systemic"));
    let registry = Registry::start(&world.clock);
    registry.push("charts/echo", "1", &charts::extension());
    let mut kubeconfig: Value =
        serde_json::from_str(&world.garden.bootstrap_kubeconfig(&world.preparation.token())).unwrap();
    let cluster = kubeconfig["clusters"][0]["cluster"].as_object_mut().unwrap();
    assert!(cluster.remove("certificate-authority-data").is_some());
    let data = json!({"data": {"kubeconfig": base64(kubeconfig.to_string().as_bytes())}});
    world.seed.merge("", "secrets", ("garden", "gardenlet-kubeconfig-bootstrap"), &data);
    let folder = world.path("cas");
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("registry.pem"), &registry.ca).unwrap();
    let mut variables = world.pod();
    let mut set = |name: &str, path: &Path| variables.insert(name.to_owned(), path.display().to_string());
    set("SSL_CERT_FILE", &world.file("garden.pem", &world.garden.ca()));
    set("SSL_CERT_DIR", &folder);
    let agent = Agent::new(&world, "host-1", &world.config(), variables);
    agent.launch();
    register(&world, &json!({"repository": format!("{}/charts/echo", registry.address), "tag": "1"}));
    world.wait_until_ready();
    let name = installed(&world, "echo");
    greeting(&world, &name, "hello");
    agent.stop();
}
