//! How a new node reaches its API server, read back from its OperatingSystemConfig: webhooks of extensions may have changed it.

use serde_json::Value;

use crate::format::yaml;

use super::agent::{self, CA_FILE};
use super::content::text_of;

/// The URL of the API server and its CAs, from the spec of the object that brings gardener-node-agent onto a node.
pub(crate) fn connection_of(spec: &Value) -> Option<(String, String)> {
    let content = |path: &str| {
        let files = spec["files"].as_array();
        text_of(files.into_iter().flatten().find(|file| file["path"] == path)?)
    };
    let configuration = yaml::parse(&content(&agent::path())?).ok()?;
    let server = configuration["apiServer"]["server"].as_str()?.to_owned();
    Some((server, content(CA_FILE)?))
}

#[cfg(test)]
mod tests {
    use super::super::{NodeImages, NodePool, NodeSources, init};
    use super::*;
    use crate::base::json::json;

    #[test]
    fn a_script_gets_the_address_that_nodes_get() {
        let (shoot, worker) = (json!({}), json!({"name": "a"}));
        let images = NodeImages { agent: "a".to_owned(), kubelet: "k".to_owned(), pause: "p".to_owned() };
        let sources = NodeSources {
            pool: NodePool { shoot: &shoot, worker: &worker, has_hosts: true },
            server: "https://192.0.2.1:30443",
            ca: b"CA",
            kubelet_ca: b"",
            profile_ca: "",
            ssh_keys: None,
            dns: &[],
            memory: None,
            images: &images,
        };
        let found = connection_of(&init(&sources));
        assert_eq!(found, Some(("https://192.0.2.1:30443".to_owned(), "CA".to_owned())));
        assert_eq!(connection_of(&json!({"files": []})), None);
    }
}
