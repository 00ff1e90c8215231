//! A real node in the seed: the properties that other stories need.

use std::io::{Error, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use serde_json::json;

use crate::failure::{Result, equal};
use crate::image;
use crate::lab::Lab;
use crate::node::{NODE, Node, ZONE};
use crate::wait;
use support::options::patience;

/// The node reports its address. A pod of an imported image gets an address, its probe makes it ready, and it answers
/// through its service.
pub(crate) fn node(lab: &mut Lab) -> Result<()> {
    let _node = Node::start(lab)?;
    let zone = r"jsonpath={.metadata.labels.topology\.kubernetes\.io/zone}";
    equal("the zone", lab.seed.kubectl(&["get", "node", NODE, "--output", zone])?.as_str(), ZONE)?;
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

/// Waits until an address answers HTTP with a text.
pub(super) fn answers(address: &str, text: &str) -> Result<()> {
    wait::until(&format!("{text:?} from {address}"), 60, || {
        let answer = http_get(address, "/")?;
        Ok::<_, Error>(answer.contains(text).then_some(()))
    })
}

/// The HTTP answer of an address, head and body.
pub(crate) fn http_get(address: &str, path: &str) -> std::io::Result<String> {
    let address = address.parse().map_err(Error::other)?;
    let mut stream = TcpStream::connect_timeout(&address, Duration::from_secs(2))?;
    stream.set_read_timeout(Some(patience(Duration::from_secs(5))))?;
    stream.write_all(format!("GET {path} HTTP/1.0\r\n\r\n").as_bytes())?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}
