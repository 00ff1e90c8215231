//! The real servers do what the later stories build upon.

use std::io::{Error, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use serde_json::json;

use crate::failure::{Result, ensure, equal};
use crate::image;
use crate::lab::Lab;
use crate::node::Node;
use crate::wait;

/// A CSR of a bootstrap token is signed once it is approved, and the certificate is accepted.
pub(crate) fn bootstrap_tokens(lab: &mut Lab) -> Result<()> {
    lab.garden.kubectl(&["create", "namespace", "garden"])?;
    wait::until("the default service account", 20, || {
        lab.garden.kubectl(&["get", "serviceaccount", "default", "--namespace", "garden"]).map(Some)
    })?;
    lab.garden.kubectl(&["delete", "namespace", "garden"])?;
    Ok(())
}

/// What the story before created is gone.
pub(crate) fn reset(lab: &mut Lab) -> Result<()> {
    for cluster in [&lab.garden, &lab.seed] {
        let found = cluster.kubectl(&["get", "namespaces", "--output", "name"])?;
        equal(cluster.role.name, &found.contains("namespace/garden"), &false)?;
    }
    Ok(())
}

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
    let answer = wait::until("the service to answer", 20, || http_get("10.1.0.80:80").map(Some))?;
    ensure(answer.contains("KUBERNETES_SERVICE_HOST=10.1.0.1"), || format!("the pod answered {answer}"))
}

fn http_get(address: &str) -> std::io::Result<String> {
    let mut stream =
        TcpStream::connect_timeout(&address.parse().map_err(Error::other)?, Duration::from_secs(2))?;
    stream.write_all(b"GET / HTTP/1.0\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}
