//! The Helm chart of `packaging/`, rendered by the program itself.

use std::collections::BTreeMap;
use std::path::Path;

use gardenlet::cli;
use gardenlet::config;
use gardenlet::format::yaml;
use serde_json::{Value, json};

use crate::commands::command;
use support::encoding::from_base64;
use support::json::{list, text};

const CHART: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/packaging/chart");

/// What `gardenlet render` prints about the chart.
fn render(more: &[&str]) -> String {
    try_render(more).unwrap_or_else(|why| panic!("{why}"))
}

fn try_render(more: &[&str]) -> Result<String, String> {
    let args = [&["render", "gardenlet", CHART, "--namespace", "garden"], more].concat();
    match command(&args, &BTreeMap::new()) {
        (cli::SUCCESS, output, _) => Ok(output),
        (_, _, errors) => Err(errors),
    }
}

/// The objects of the chart, in the order of their installation.
pub fn rendered(values: &str) -> Vec<Value> {
    objects(&render(&["--values", &format!("{CHART}/ci/{values}-values.yaml")]))
}

/// The same with the values of a story, in a file.
pub fn rendered_with(values: &Path) -> Vec<Value> {
    objects(&render(&["--values", values.to_str().unwrap()]))
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

/// The image that the chart uses by default.
pub fn image_of_the_chart() -> String {
    let all = rendered("bootstrap");
    let image = &find(&all, "Deployment", "gardenlet")["spec"]["template"]["spec"]["containers"][0]["image"];
    image.as_str().unwrap().to_owned()
}

fn configuration(objects: &[Value]) -> config::LoadedConfig {
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
fn the_chart_refuses_a_seed_without_a_name() {
    for without in
        [&[][..], &["--set-json", "config.seedConfig={\"spec\": {}}"], &["--set", "config.seedConfig=null"]]
    {
        let why = try_render(without).unwrap_err();
        assert!(
            why.contains("config.seedConfig is missing or has no metadata.name: describe the Seed"),
            "{why}"
        );
    }
    assert!(try_render(&["--set", "config.seedConfig.metadata.name=edge-1"]).is_ok());
}

#[test]
fn the_chart_allows_what_the_manifest_beside_it_allows() {
    let access = |objects: &[Value]| {
        let is_access = |o: &&Value| text(o, "/apiVersion").starts_with("rbac.authorization.k8s.io/");
        let of = |o: &Value| {
            let place = ["/kind", "/metadata/namespace", "/metadata/name"].map(|at| text(o, at).to_owned());
            (place, [&o["rules"], &o["roleRef"], &o["subjects"]].map(Value::to_string))
        };
        objects.iter().filter(is_access).map(of).collect::<BTreeMap<_, _>>()
    };
    let manifest = access(&objects(include_str!("../../packaging/rbac.yaml")));
    assert_eq!(manifest.len(), 18);
    assert_eq!(access(&rendered("bootstrap")), manifest);
}

#[test]
fn the_powerful_account_exists_only_with_the_applier() {
    let external = rendered("everything");
    assert!(external.iter().all(|o| o["roleRef"]["name"] != "cluster-admin"), "{external:?}");
    // The chart names it only if the deletion of the Seed also deletes the objects of a gardenlet deployment.
    let is_account = |o: &&Value| {
        let is_bound =
            ["ServiceAccount", "ClusterRoleBinding", "RoleBinding"].iter().any(|kind| o["kind"] == *kind);
        let all = o.to_string();
        is_bound && all.contains("gardener-resource-manager") || all.contains("serviceaccounts/token")
    };
    assert_eq!(external.iter().filter(is_account).collect::<Vec<_>>(), Vec::<&Value>::new());
}

#[test]
fn the_roles_for_shoots_and_upgrades_may_be_left_out() {
    let is_there = |values: &str, part: &str| {
        let all = rendered(values);
        let is_role = |o: &&Value| text(o, "/metadata/name").contains(part);
        all.iter().filter(is_role).count()
    };
    for (part, count) in [("gardenlet:shoots", 2), ("gardenlet:upgrade", 4)] {
        assert_eq!((is_there("bootstrap", part), is_there("everything", part)), (count, 0));
    }
}

/// The agent turns a Gardenlet object into the objects that an upgrade would deploy.
#[test]
fn the_chart_configures_the_agents_upgrade() {
    let all = rendered("everything");
    let map = find(&all, "ConfigMap", "gardenlet-selfupgrade-config");
    let gardenlet = yaml::parse(text(map, "/data/gardenlet.yaml")).unwrap();
    assert_eq!(gardenlet["metadata"], json!({"name": "edge-2", "namespace": "garden"}));
    let deployment = &gardenlet["spec"]["deployment"];
    assert_eq!(deployment["helm"]["ociRepository"]["ref"], "registry.example.org/charts/gardenlet:0.1.0");
    assert_eq!(
        (&deployment["replicaCount"], &deployment["podLabels"]),
        (&json!(1), &json!({"team": "edge"}))
    );
    assert_eq!(deployment["componentImageVectorOverwrite"], "components: []\n");
    let mut config = gardenlet["spec"]["config"].clone();
    assert_eq!(config["seedConfig"]["metadata"], json!({}));
    config["seedConfig"]["metadata"] = json!({"name": "edge-2"});
    let mut own =
        yaml::parse(text(find(&all, "ConfigMap", "gardenlet-configmap-"), "/data/config.yaml")).unwrap();
    // A garden refuses it.
    assert!(own["gardenClientConnection"].as_object_mut().unwrap().remove("kubeconfig").is_some());
    assert_eq!(config, own);
    let kept =
        text(&find(&all, "Deployment", "gardenlet")["metadata"]["annotations"], "/edge.gardenlet~1values");
    let kept: Value = serde_json::from_str(kept).unwrap();
    assert_eq!(kept["stateVolume"]["hostPath"]["path"], "/var/lib/gardenlet");
    assert_eq!(
        (&kept["shoots"], &kept["isolateClusterResources"]),
        (&json!({"allowed": false}), &json!(true))
    );
    assert!(rendered("bootstrap").iter().all(|o| o["metadata"]["name"] != "gardenlet-selfupgrade-config"));
}

#[test]
fn the_pod_has_no_privileges_and_does_not_restart_without_a_garden() {
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
fn the_base_of_kustomize_is_what_the_chart_renders() {
    let parts = ["access", "applier", "availability", "deployment", "network"];
    let parts = parts.map(|part| format!("--show-only=templates/{part}.yaml"));
    let named = ["--set=config.seedConfig.metadata.name=unused"];
    let chart = render(&[&parts.each_ref().map(String::as_str)[..], &named].concat());
    let base = include_str!("../../packaging/kustomize/base/gardenlet.yaml");
    assert_eq!(base.split_once('\n').unwrap().1, chart, "run packaging/kustomize/render");
}

#[test]
fn the_agent_reads_the_configuration_of_the_example() {
    let text = include_str!("../../packaging/kustomize/example/config.yaml");
    assert_eq!(config::load(text, "config.yaml").unwrap().warnings, []);
}

/// The chart value for a kubeconfig is its content; the agent reads it from a mounted file.
#[test]
fn kubeconfigs_become_mounted_secrets() {
    let all = rendered("everything");
    let loaded = configuration(&all);
    let garden = loaded.settings.garden_client_connection.connection.kubeconfig.as_deref();
    let bootstrap = loaded.settings.edge.bootstrap_kubeconfig.as_deref();
    let pod = &find(&all, "Deployment", "gardenlet")["spec"]["template"]["spec"];
    for path in [garden.map(Path::new), bootstrap] {
        let folder = path.unwrap().parent().unwrap();
        let mounts = list(pod, "/containers/0/volumeMounts");
        let mount = mounts.iter().find(|mount| Path::new(text(mount, "/mountPath")) == folder).unwrap();
        let volume = list(pod, "/volumes").iter().find(|volume| volume["name"] == mount["name"]).unwrap();
        let secret = find(&all, "Secret", text(volume, "/secret/secretName"));
        assert_eq!(from_base64(text(secret, "/data/kubeconfig")).unwrap(), b"apiVersion: v1\nkind: Config\n");
    }
}

#[test]
fn the_agent_reads_the_configuration_of_the_service() {
    let loaded = config::load(include_str!("../../packaging/systemd/config.yaml"), "config.yaml").unwrap();
    assert_eq!(loaded.warnings, []);
    assert_eq!(loaded.settings.edge.state_dir.clone().unwrap(), Path::new("/var/lib/gardenlet"));
    let listeners = [&loaded.settings.health_probes, &loaded.settings.metrics];
    assert_eq!(
        listeners.map(|at| (at.bind_address.as_str(), at.port)),
        [("127.0.0.1", 2728), ("127.0.0.1", 2729)]
    );
    loaded.settings.check_garden_access().unwrap();
}
