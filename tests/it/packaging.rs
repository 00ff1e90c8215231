//! The Helm chart of `packaging/`, rendered by the program itself.

use gardenlet::cli::{self, Io};
use gardenlet::config;
use gardenlet::format::yaml;
use serde_json::{Value, json};

/// The objects of the chart, in the order of their installation.
fn rendered(values: &str) -> Vec<Value> {
    let chart = concat!(env!("CARGO_MANIFEST_DIR"), "/packaging/chart");
    let file = format!("{chart}/ci/{values}-values.yaml");
    let args = ["render", "gardenlet", chart, "--namespace", "garden", "-f", &file];
    let (mut output, mut errors) = (Vec::new(), Vec::new());
    let mut io = Io { input: &mut std::io::empty(), output: &mut output, errors: &mut errors };
    let code = cli::main(
        args.map(Into::into).to_vec(),
        &|_| None,
        &mut io,
        &|_| unreachable!("nothing is asked for"),
        |_, _| unreachable!("nothing is run"),
    );
    assert_eq!(code, cli::SUCCESS, "{}", String::from_utf8_lossy(&errors));
    objects(&String::from_utf8(output).unwrap())
}

fn objects(text: &str) -> Vec<Value> {
    yaml::parse_all(text)
        .into_iter()
        .map(|document| document.value.unwrap())
        .filter(|o| !o.is_null())
        .collect()
}

fn find<'a>(objects: &'a [Value], kind: &str, name: &str) -> &'a Value {
    let found = objects
        .iter()
        .find(|o| o["kind"] == kind && o["metadata"]["name"].as_str().is_some_and(|n| n.starts_with(name)));
    found.unwrap_or_else(|| panic!("no {kind} {name}"))
}

/// The image that the chart runs if nobody says otherwise.
pub fn image_of_the_chart() -> String {
    let all = rendered("bootstrap");
    let image = &find(&all, "Deployment", "gardenlet")["spec"]["template"]["spec"]["containers"][0]["image"];
    image.as_str().unwrap().to_owned()
}

fn configuration(objects: &[Value]) -> config::Loaded {
    let map = find(objects, "ConfigMap", "gardenlet-configmap-");
    config::load(map["data"]["config.yaml"].as_str().unwrap(), "config.yaml").unwrap()
}

#[test]
fn the_agent_reads_the_configuration_of_the_chart() {
    for (values, name) in [("bootstrap", "edge-1"), ("everything", "edge-2")] {
        let loaded = configuration(&rendered(values));
        assert_eq!(loaded.warnings, [], "{values}");
        assert_eq!(loaded.settings.seed_config.name, name);
        assert!(loaded.settings.edge.state_dir.is_some());
    }
}

#[test]
fn the_chart_allows_what_the_manifest_beside_it_allows() {
    let manifest = objects(include_str!("../../packaging/rbac.yaml"));
    let rules =
        |objects: &[Value]| find(objects, "ClusterRole", "gardener.cloud:system:gardenlet")["rules"].clone();
    assert_eq!(rules(&rendered("bootstrap")), rules(&manifest));
    let role = "gardener.cloud:system:gardener-resource-manager";
    assert_eq!(
        find(&rendered("bootstrap"), "ClusterRoleBinding", role)["roleRef"],
        find(&manifest, "ClusterRoleBinding", role)["roleRef"]
    );
}

#[test]
fn whoever_applies_brings_the_powerful_account() {
    let external = rendered("everything");
    assert!(external.iter().all(|o| o["roleRef"]["name"] != "cluster-admin"), "{external:?}");
    assert!(external.iter().all(|o| o["metadata"]["name"] != "gardener-resource-manager"));
}

#[test]
fn the_pod_may_do_nothing_and_is_not_restarted_without_a_garden() {
    for values in ["bootstrap", "everything"] {
        let all = rendered(values);
        let pod = &find(&all, "Deployment", "gardenlet")["spec"]["template"]["spec"];
        let container = &pod["containers"][0];
        assert_eq!(container["livenessProbe"]["httpGet"]["path"], "/livez");
        assert_eq!(pod["securityContext"]["runAsUser"], 65532);
        assert_eq!(
            container["securityContext"],
            json!({
                "allowPrivilegeEscalation": false,
                "readOnlyRootFilesystem": true,
                "capabilities": {"drop": ["ALL"]},
            })
        );
        let state = configuration(&all).settings.edge.state_dir.unwrap();
        let mounts = container["volumeMounts"].as_array().unwrap();
        let mount = mounts.iter().find(|m| m["mountPath"].as_str() == state.to_str()).unwrap();
        let volumes = pod["volumes"].as_array().unwrap();
        let volume = volumes.iter().find(|v| v["name"] == mount["name"]).unwrap();
        // Its name, and one source.
        assert_eq!(volume.as_object().unwrap().len(), 2, "{volume}");
    }
}

#[test]
fn the_agent_reads_the_configuration_of_the_service() {
    let loaded = config::load(include_str!("../../packaging/systemd/config.yaml"), "config.yaml").unwrap();
    assert_eq!(loaded.warnings, []);
    assert_eq!(loaded.settings.edge.state_dir.clone().unwrap(), std::path::Path::new("/var/lib/gardenlet"));
    loaded.settings.check_garden_access().unwrap();
}
