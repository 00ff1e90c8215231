//! The agent in a pod of the seed, as it is meant to live, and an extension whose container really runs.

use std::io::{Error, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use gardenlet::api::core::{CONFIG_MAP, SERVICE};
use gardenlet::api::gardener::CONTROLLER_DEPLOYMENT;
use gardenlet::kube::Patch;
use serde_json::{Value, json};

use crate::failure::{Failure, Result};
use crate::image::{self, Image};
use crate::lab::Lab;
use crate::node::{NODE, Node};
use crate::stories::steps::{is_installed, is_ready, register_demo};
use crate::wait;
use crate::world::{self, World};

const AGENT: &str = "lab.local/gardenlet:1";

/// A pod of an imported image gets an address, becomes ready by its probe and answers through its service.
pub(crate) fn node(lab: &mut Lab) -> Result<()> {
    let _node = Node::start(lab)?;
    lab.seed.apply(&json!({"apiVersion": "v1", "kind": "List", "items": [
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "web", "namespace": "default", "labels": {"app": "web"}},
            "spec": {"terminationGracePeriodSeconds": 0, "containers": [{
                "name": "web",
                "image": image::SERVE,
                "readinessProbe": {"httpGet": {"port": 8080}, "periodSeconds": 1},
            }]},
        },
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": "web", "namespace": "default"},
            "spec": {"clusterIP": "10.1.0.80", "selector": {"app": "web"}, "ports": [{"port": 80, "targetPort": 8080}]},
        },
    ]}))?;
    lab.seed.kubectl(&["wait", "--for=condition=Ready", "pod/web", "--timeout=60s"])?;
    answers("10.1.0.80:80", "KUBERNETES_SERVICE_HOST=10.1.0.1")
}

/// The agent runs as a pod with nothing but its service account, joins the garden and installs an extension: its
/// container runs and answers, and is replaced when the values change.
pub(crate) fn pod(lab: &mut Lab) -> Result<()> {
    let _world = World::build(lab)?;
    let node = Node::start(lab)?;
    let program = lab.environment.agent();
    node.import(&Image::of_program(AGENT, "/gardenlet", &program)?.write(&lab.place)?)?;
    let mut config = world::config(lab, "pod");
    // The pod has no volume for its state.
    config["edge"] = json!({});
    lab.seed.apply(&deployment(&config))?;
    let result = extension_answers(lab);
    // Whatever came of it: what the agent said belongs to the logs of this story.
    let log = lab.seed.kubectl(&["logs", "deployment/gardenlet", "--namespace=garden"]);
    let _ = std::fs::write(
        lab.place.join("gardenlet-pod.log"),
        log.unwrap_or_else(|failure| failure.to_string()),
    );
    result
}

fn extension_answers(lab: &Lab) -> Result<()> {
    let (garden, seed) = (lab.garden.client()?, lab.seed.client()?);
    wait::until("the seed to be ready", 90, || is_ready(&garden))?;
    register_demo(lab, 1)?;
    let name = wait::until("the extension to be healthy", 90, || is_installed(&garden))?;
    let service: Value = seed.get(&SERVICE, &format!("extension-{name}"), "demo")?;
    let address = service["spec"]["clusterIP"].as_str().ok_or_else(|| Failure::new("no clusterIP"))?;
    answers(&format!("{address}:80"), "GREETING=hello\n")?;
    let values = Patch::Merge(json!({"helm": {"values": {"replicas": 1, "greeting": "bye"}}}));
    garden.patch::<Value>(&CONTROLLER_DEPLOYMENT, "", "demo", "", &values)?;
    answers(&format!("{address}:80"), "GREETING=bye\n")?;
    wait::until("the extension to be healthy again", 90, || is_installed(&garden)).map(drop)
}

/// The agent as an operator would run it; on the host's network, because this garden listens on loopback.
fn deployment(config: &Value) -> Value {
    let probe = |path: &str| json!({"httpGet": {"path": path, "port": 2728}, "periodSeconds": 1});
    let field =
        |name: &str, path: &str| json!({"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}});
    json!({"apiVersion": "v1", "kind": "List", "items": [
        {
            "apiVersion": CONFIG_MAP.api_version(),
            "kind": "ConfigMap",
            "metadata": {"name": "gardenlet", "namespace": "garden"},
            "data": {"config.yaml": config.to_string()},
        },
        {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": "gardenlet", "namespace": "garden"},
            "spec": {"replicas": 1, "selector": {"matchLabels": {"app": "gardenlet"}}, "template": {
                "metadata": {"labels": {"app": "gardenlet"}},
                "spec": {
                    "nodeName": NODE,
                    "hostNetwork": true,
                    "serviceAccountName": "gardenlet",
                    "terminationGracePeriodSeconds": 2,
                    "containers": [{
                        "name": "gardenlet",
                        "image": AGENT,
                        "args": ["--config=/etc/gardenlet/config.yaml"],
                        "env": [field("NAMESPACE", "metadata.namespace"), field("POD_UID", "metadata.uid")],
                        "livenessProbe": probe("/livez"),
                        "readinessProbe": probe("/readyz"),
                        "securityContext": {"runAsUser": 65532, "readOnlyRootFilesystem": true},
                        "volumeMounts": [{"name": "config", "mountPath": "/etc/gardenlet"}],
                    }],
                    "volumes": [{"name": "config", "configMap": {"name": "gardenlet"}}],
                },
            }},
        },
    ]})
}

/// Waits until an address answers HTTP with a text.
fn answers(address: &str, text: &str) -> Result<()> {
    wait::until(&format!("{text:?} from {address}"), 60, || {
        let answer = http_get(address, "/")?;
        Ok::<_, Error>(answer.contains(text).then_some(()))
    })
}

/// What an address answers to HTTP, head and body.
pub(super) fn http_get(address: &str, path: &str) -> std::io::Result<String> {
    let address = address.parse().map_err(Error::other)?;
    let mut stream = TcpStream::connect_timeout(&address, Duration::from_secs(2))?;
    stream.set_read_timeout(Some(Duration::from_secs(5)))?;
    stream.write_all(format!("GET {path} HTTP/1.0\r\n\r\n").as_bytes())?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}
