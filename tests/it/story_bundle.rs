//! Charts carried to a site without a registry: collected next to the garden, imported on another machine, and
//! installed by an agent that reads only a directory.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::{Value, json};

use crate::charts;
use crate::commands::command;
use crate::story_extension::installed;
use crate::story_oci::{greeting, pull_secret, register, secret, wait_for_valid};
use crate::world::{Options, World};
use support::garden::prepare;
use support::registry::{Access, Registry, digest};

/// `gardenlet bundle ...`: exit code, output and errors.
fn bundle(words: &[&str], variables: &BTreeMap<String, String>) -> (u8, String, String) {
    command(&[&["bundle"], words].concat(), variables)
}

fn shown(path: &Path) -> String {
    path.display().to_string()
}

/// A registry with the extension, which requires a login; the garden has its pull secret and CA.
fn registry(world: &World) -> Registry {
    let registry = Registry::start(&world.clock);
    registry.push("charts/echo", "1", &charts::extension());
    registry.put_blob("charts/echo", b"{}");
    registry.protect(Access::TokenFor("robot", "hunter2"));
    world.garden.apply(&[
        secret("ca", "oci-ca-bundle", "bundle.crt", registry.ca.as_bytes()),
        pull_secret(&registry, "hunter2"),
    ]);
    registry
}

fn repository(registry: &Registry) -> Value {
    json!({"repository": format!("oci://{}/charts/echo", registry.address), "tag": "1",
        "pullSecretRef": {"name": "pull"}, "caBundleSecretRef": {"name": "ca"}})
}

/// The environment of an operator's machine, which has access to the garden and to no seed.
fn desk(world: &World) -> BTreeMap<String, String> {
    let kubeconfig = world.file("operator.kubeconfig", &world.garden.admin_kubeconfig());
    [("GARDEN_KUBECONFIG".to_owned(), shown(&kubeconfig))].into()
}

#[test]
fn a_seed_without_a_registry_gets_its_charts_from_a_bundle() {
    let world = World::start(&Options::real("walled"));
    let mut registry = registry(&world);
    let reference = format!("{}/charts/echo:1", registry.address);
    register(&world, &repository(&registry));
    let config = shown(&world.file("gardenlet.yaml", &world.config().to_string()));
    let archive = shown(&world.path("charts.tar"));
    let variables = desk(&world);
    let export = |more: &[&str]| {
        let words = [&["export", "--output", &archive, "--config", &config], more].concat();
        bundle(&words, &variables)
    };

    // The seed is not registered yet: there are no installations.
    let (code, _, errors) = export(&[]);
    assert_eq!(code, 1, "{errors}");
    assert!(
        errors.contains("the garden has no chart for seed walled") && errors.contains("--all"),
        "{errors}"
    );
    // A CloudProfile lists the possible versions of control planes.
    world.garden.apply(&prepare::for_shoots()[..1]);
    let (code, output, errors) = export(&["--all"]);
    assert_eq!(code, 0, "{output}{errors}");
    assert!(errors.starts_with(&format!("1/2 echo {reference} sha256:")), "{errors}");
    assert!(
        errors.ends_with(" bytes\n2/2 provider-local in its ControllerDeployment\n")
            && !errors.contains("hunter"),
        "{errors}"
    );
    let (first, rest) = output.split_once('\n').unwrap();
    assert!(first.starts_with(&format!("{archive}: 1 chart with ")), "{output}");
    assert!(first.ends_with(", a list of 6 images"), "{output}");
    let pin = rest.trim().strip_prefix("digest of the bundle: ").unwrap().to_owned();
    assert!(!world.path("charts.tar.partial").exists(), "the partial file is deleted");
    let (code, output, _) = bundle(&["list", &archive, "--images"], &BTreeMap::new());
    let images = [
        "gcr.io/etcd-development/etcd:v3.5.27",
        "registry.example.org/echo:1",
        "registry.k8s.io/kube-apiserver:v1.34.3",
        "registry.k8s.io/kube-apiserver:v1.35.4",
        "registry.k8s.io/kube-controller-manager:v1.34.3",
        "registry.k8s.io/kube-controller-manager:v1.35.4",
    ];
    assert_eq!((code, output.lines().collect::<Vec<_>>()), (0, images.to_vec()));

    // Another machine, without the registry.
    registry.down();
    let charts = world.path("carried");
    let import =
        || bundle(&["import", &archive, "--to", &shown(&charts), "--digest", &pin], &BTreeMap::new());
    let (code, output, errors) = import();
    assert_eq!(code, 0, "{errors}");
    let line = format!("  - {{host: \"{}\", layoutDir: \"{}\"}}\n", registry.address, shown(&charts));
    assert!(output.ends_with(&line), "{output}");
    assert_eq!(import(), (0, output, String::new()), "a second import changes nothing");
    let (code, output, _) = bundle(&["list", &shown(&charts), "-o", "json"], &BTreeMap::new());
    let told: Value = serde_json::from_str(&output).unwrap();
    let chart = &told["charts"][0];
    assert!(code == 0 && chart["bytes"].as_u64() > Some(0) && chart["error"].is_null(), "{told}");
    assert_eq!(told["digest"].as_str().map(|digest| digest.starts_with("sha256:")), Some(true), "{told}");
    let (code, output, _) = bundle(&["list", &shown(&charts)], &BTreeMap::new());
    assert_eq!(code, 0);
    assert!(output.starts_with(&reference) && output.contains(&pin), "{output}");

    let mut settings = world.config();
    settings["edge"]["registries"] = json!([{"host": registry.address, "layoutDir": charts}]);
    let agent = world.agent_with(&settings);
    world.wait_until_ready();
    let name = installed(&world, "echo");
    greeting(&world, &name, "hello");
    // The installation exists, so the charts of this seed are requested, also with the agent's identity in the seed.
    let (code, _, errors) = export(&[]);
    assert!(code == 1 && errors.contains(&format!("registry {}", registry.address)), "{errors}");
    agent.stop();

    // The chart was changed during transport.
    let blob = charts.join("blobs/sha256").join(digest(&charts::extension()).trim_start_matches("sha256:"));
    std::fs::write(&blob, b"another chart").unwrap();
    let (code, _, errors) = bundle(&["list", &shown(&charts)], &BTreeMap::new());
    assert!(code == 1 && errors.contains(&reference) && errors.contains("get the bundle again"), "{errors}");
    let other = world.path("other");
    let (code, _, errors) = bundle(&["import", &shown(&charts), "--to", &shown(&other)], &BTreeMap::new());
    assert!(code == 1 && errors.contains("it has 13 bytes, and"), "{errors}");
    assert!(!other.join("index.json").exists());
}

#[test]
fn an_agent_refuses_a_chart_that_was_changed_after_the_import() {
    let world = World::start(&Options::real("meddled"));
    let mut registry = registry(&world);
    let charts = world.path("charts");
    let ca = BTreeMap::from([("SSL_CERT_FILE".to_owned(), shown(&world.file("ca.pem", &registry.ca)))]);
    let reference = format!("oci://{}/charts/echo:1", registry.address);
    let to = shown(&charts);
    let words = ["export", "--output", &to, "--chart", &reference];
    let (code, _, errors) = bundle(&words, &ca);
    assert!(
        code == 1
            && errors.contains("401")
            && errors.contains("gardenlet bundle: 1 chart could not be pulled; "),
        "{errors}"
    );
    // The whole reference, also of a chart that cannot be pulled.
    let named = reference.trim_start_matches("oci://");
    assert!(errors.starts_with(&format!("1/1 echo {named} failed: ")), "{errors}");
    let login = json!({"auths": {registry.address.clone(): {"username": "robot", "password": "hunter2"}}});
    let logins = shown(&world.file("logins.json", &login.to_string()));
    let words = [words.as_slice(), &["--registry-config", &logins]].concat();
    let (code, output, errors) = bundle(&words, &ca);
    assert_eq!(code, 0, "{output}{errors}");
    // Charts that exist already are not pulled again.
    registry.take_seen();
    assert_eq!(bundle(&words, &ca), (code, output, errors));
    assert!(!registry.take_seen().iter().any(|request| request.path.contains("/blobs/")));
    registry.down();

    let blob = charts.join("blobs/sha256").join(digest(&charts::extension()).trim_start_matches("sha256:"));
    std::fs::write(&blob, b"another chart").unwrap();
    register(&world, &repository(&registry));
    let mut settings = world.config();
    settings["edge"]["registries"] = json!([{"host": registry.address, "layoutDir": charts}]);
    let agent = world.agent_with(&settings);
    world.wait_until_ready();
    wait_for_valid(&world, "False", &["OCIChartCannotBePulled", "the chart has digest sha256:"]);
    std::fs::write(&blob, charts::extension()).unwrap();
    let name = installed(&world, "echo");
    greeting(&world, &name, "hello");
    agent.stop();
}
