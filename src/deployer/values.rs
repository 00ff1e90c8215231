//! The values of the chart. Pure.
//!
//! The configuration of the deploying agent is the base, `edge:` included. Fields that are valid only for that agent
//! are dropped: how it reaches its clusters, its Seed, its addresses, its leader election.

use serde_json::{Map, Value};

use crate::api::meta::{Key, text};
use crate::base::json::json;

use super::{NAME, NAMESPACE};

/// The label that lets a pod reach the API server of a garden in the same cluster.
pub(crate) const TO_GARDEN: &str =
    "networking.resources.gardener.cloud/to-virtual-garden-kube-apiserver-tcp-443";
/// Fields of an agent's configuration that are valid only for that agent.
const OWN: [(&str, &[&str]); 8] = [
    ("gardenClientConnection", &["bootstrapKubeconfig", "kubeconfigSecret", "kubeconfig"]),
    ("seedClientConnection", &["kubeconfig"]),
    ("edge", &["bootstrap"]),
    ("leaderElection", &["leaderElect", "resourceNamespace"]),
    ("server", &[]),
    ("seedConfig", &[]),
    ("apiVersion", &[]),
    ("kind", &[]),
];

/// How the new agent gets access to the garden.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum AgentAccess {
    /// With its own kubeconfig: `gardenClientConnection.kubeconfig`.
    Own,
    /// It has a certificate already.
    Certificate,
    /// It requests one with this kubeconfig.
    Bootstrap(String),
}

/// Merges `over` into `under`: tables are merged, other values are replaced.
pub(crate) fn merge(under: &mut Value, over: &Value) {
    match (under, over) {
        (Value::Object(under), Value::Object(over)) => {
            for (key, value) in over {
                merge(under.entry(key.clone()).or_insert(Value::Null), value);
            }
        }
        (under, over) => *under = over.clone(),
    }
}

/// The configuration of the new agent: its own, merged over its parent's if that is used.
pub(crate) fn configuration(own: &Value, parent: Option<&Value>, seed: &str) -> Value {
    let mut config = parent.cloned().unwrap_or_else(|| json!({}));
    for (field, parts) in OWN {
        match (parts, config.as_object_mut()) {
            ([], Some(config)) => drop(config.remove(field)),
            (parts, Some(config)) => {
                let part = config.get_mut(field).and_then(Value::as_object_mut);
                part.into_iter().for_each(|part| part.retain(|key, _| !parts.contains(&key.as_str())));
            }
            _ => {}
        }
    }
    merge(&mut config, own);
    for field in ["apiVersion", "kind"] {
        config.as_object_mut().into_iter().for_each(|config| drop(config.remove(field)));
    }
    if let Some(own) = config.get_mut("seedConfig").and_then(Value::as_object_mut) {
        set(own.entry("metadata").or_insert(Value::Null), "name", seed);
    }
    set(&mut config["leaderElection"], "resourceNamespace", NAMESPACE);
    config
}

/// Sets a field of an object that may be missing. A value of another type is left to the
/// validation of the configuration.
fn set(object: &mut Value, field: &str, text: &str) {
    if object.is_object() || object.is_null() {
        object[field] = json!(text);
    }
}

/// The Secret of the new agent's own kubeconfig.
pub(crate) fn kubeconfig_secret(config: &Value) -> Key {
    let secret = &config["gardenClientConnection"]["kubeconfigSecret"];
    let or = |field: &Value, default: &str| {
        if text(field).is_empty() { default.to_owned() } else { text(field).to_owned() }
    };
    Key::new(or(&secret["namespace"], NAMESPACE), or(&secret["name"], "gardenlet-kubeconfig"))
}

/// Writes to the configuration how the new agent gets access to the garden.
pub(crate) fn connect(config: &mut Value, access: AgentAccess) {
    let Key { namespace, name } = kubeconfig_secret(config);
    if !config["gardenClientConnection"].is_object() {
        config["gardenClientConnection"] = json!({});
    }
    let Some(connection) = config["gardenClientConnection"].as_object_mut() else { return };
    let bootstrap = connection.remove("bootstrapKubeconfig");
    if access == AgentAccess::Own {
        connection.remove("kubeconfigSecret");
        return;
    }
    connection.insert("kubeconfigSecret".to_owned(), json!({"name": name, "namespace": namespace}));
    connection.remove("kubeconfig");
    if let AgentAccess::Bootstrap(kubeconfig) = access {
        let default = json!({"name": "gardenlet-kubeconfig-bootstrap", "namespace": NAMESPACE});
        let mut bootstrap = bootstrap.filter(Value::is_object).unwrap_or(default);
        bootstrap["kubeconfig"] = json!(kubeconfig);
        connection.insert("bootstrapKubeconfig".to_owned(), bootstrap);
    }
}

/// The input of the chart's values besides the configuration.
#[derive(Clone, Debug, Default)]
pub(crate) struct AgentDeployment<'a> {
    /// `spec.gardenlet.deployment` of the ManagedSeed.
    pub(crate) wanted: &'a Value,
    /// The image of the deploying agent; empty if unknown.
    pub(crate) image: &'a str,
    /// The overwriting image lists, those of control planes first.
    pub(crate) images: [Option<String>; 2],
    /// `spec.dns.domain` of the Shoot; empty if it has none.
    pub(crate) domain: &'a str,
    /// Annotations of pods that restart them after a change.
    pub(crate) annotations: Map<String, Value>,
    pub(crate) labels: Map<String, Value>,
}

/// The values of the chart.
pub(crate) fn values(deployment: &AgentDeployment<'_>, config: Value) -> Value {
    let mut values = json!({});
    merge(&mut values, deployment.wanted);
    values["image"] = image(deployment.image, &deployment.wanted["image"]);
    for (name, more) in [("podAnnotations", &deployment.annotations), ("podLabels", &deployment.labels)] {
        if !more.is_empty() {
            let mut all = Value::Object(more.clone());
            merge(&mut all, &values[name].as_object().cloned().unwrap_or_default().into());
            values[name] = all;
        }
    }
    const HOST: &str = "KUBERNETES_SERVICE_HOST";
    let mut env = values["env"].as_array().cloned().unwrap_or_default();
    if !deployment.domain.is_empty() && !env.iter().any(|variable| variable["name"] == HOST) {
        env.push(json!({"name": HOST, "value": format!("api.{}", deployment.domain)}));
        values["env"] = json!(env);
    }
    let names = ["imageVectorOverwrite", "componentImageVectorOverwrites"];
    for (name, text) in names.into_iter().zip(&deployment.images) {
        if let Some(text) = text {
            values[name] = json!(text);
        }
    }
    values["config"] = config;
    values
}

/// The image of the deploying agent, split into parts, with the desired parts merged over it. A desired repository, tag
/// or reference drops the digest.
fn image(own: &str, wanted: &Value) -> Value {
    let (rest, digest) = own.split_once('@').map_or((own, ""), |(rest, digest)| (rest, digest));
    let repository = repository(own);
    let tag = rest.strip_prefix(repository).and_then(|rest| rest.strip_prefix(':')).unwrap_or_default();
    let mut image = json!({});
    for (name, part) in [("repository", repository), ("tag", tag), ("digest", digest)] {
        if !part.is_empty() {
            image[name] = json!(part);
        }
    }
    if tag.is_empty() && !digest.is_empty() {
        // The chart accepts a digest as a tag.
        image = json!({"repository": repository, "tag": digest});
    }
    if ["repository", "tag", "ref"].iter().any(|part| wanted[*part].is_string()) {
        image.as_object_mut().into_iter().for_each(|image| drop(image.remove("digest")));
    }
    merge(&mut image, &wanted.as_object().cloned().unwrap_or_default().into());
    image
}

/// The configuration in the ConfigMap of an agent.
pub(crate) fn configuration_of(config_map: &Value) -> Option<Value> {
    crate::format::yaml::parse(text(&config_map["data"]["config.yaml"])).ok()
}

/// The Seed of an agent in the cluster, if its ConfigMap names one.
pub(crate) fn seed_of(config_map: &Value) -> Option<String> {
    let config = configuration_of(config_map)?;
    let name = text(&config["seedConfig"]["metadata"]["name"]).to_owned();
    (!name.is_empty()).then_some(name)
}

/// The ConfigMap of an agent's Deployment, if it has one.
pub(crate) fn config_map_of(deployment: &Value) -> Option<&str> {
    let volumes = deployment["spec"]["template"]["spec"]["volumes"].as_array()?;
    volumes.iter().find(|volume| volume["name"] == "gardenlet-config")?["configMap"]["name"].as_str()
}

/// The image without its tag and digest.
pub(crate) fn repository(image: &str) -> &str {
    let rest = image.split_once('@').map_or(image, |(rest, _)| rest);
    rest.rfind(':').filter(|at| rest[*at..].find('/').is_none()).map_or(rest, |at| &rest[..at])
}

/// The image of the agent in its Deployment.
pub(crate) fn image_of(deployment: &Value) -> Option<&str> {
    let containers = deployment["spec"]["template"]["spec"]["containers"].as_array()?;
    containers.iter().find(|container| container["name"] == NAME)?["image"].as_str()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parent() -> Value {
        json!({"apiVersion": "v", "kind": "K", "logLevel": "debug", "edge": {"workers": 4, "bootstrap": {"keep": true}},
            "gardenClientConnection": {"kubeconfig": "/file", "qps": 5, "kubeconfigSecret": {"name": "p", "namespace": "n"},
                "bootstrapKubeconfig": {"name": "p", "namespace": "n"}},
            "seedClientConnection": {"kubeconfig": "/file", "burst": 7}, "server": {"metrics": {"bindAddress": "127.0.0.1"}},
            "leaderElection": {"leaderElect": false, "resourceNamespace": "n", "leaseDuration": "20s"},
            "seedConfig": {"metadata": {"name": "parent"}, "spec": {"provider": {"type": "p"}}}})
    }

    #[test]
    fn which_fields_are_inherited() {
        let own = json!({"apiVersion": "v", "logLevel": "info", "edge": {"workers": 2},
            "seedConfig": {"metadata": {"name": "x", "labels": {"a": "b"}}, "spec": {"provider": {"region": "r"}}}});
        let expected = json!({"logLevel": "info", "edge": {"workers": 2}, "gardenClientConnection": {"qps": 5},
            "seedClientConnection": {"burst": 7}, "leaderElection": {"leaseDuration": "20s", "resourceNamespace": "garden"},
            "seedConfig": {"metadata": {"name": "child", "labels": {"a": "b"}}, "spec": {"provider": {"region": "r"}}}});
        assert_eq!(configuration(&own, Some(&parent()), "child"), expected);
        let alone = json!({"logLevel": "info", "edge": {"workers": 2}, "leaderElection": {"resourceNamespace": "garden"},
            "seedConfig": expected["seedConfig"]});
        assert_eq!(configuration(&own, None, "child"), alone);
        let kept = configuration(&json!({}), Some(&parent()), "child");
        assert_eq!((&kept["edge"], &kept["seedConfig"]), (&json!({"workers": 4}), &Value::Null));
    }

    /// The validation reports them.
    #[test]
    fn fields_of_another_shape_are_left_as_they_are() {
        for own in [
            json!({"seedConfig": {"metadata": "m"}, "leaderElection": ["l"], "gardenClientConnection": 1, "edge": "e"}),
            json!({"seedConfig": "s", "leaderElection": "l", "seedClientConnection": [], "server": 7}),
        ] {
            let mut config = configuration(&own, Some(&parent()), "child");
            for field in own.as_object().unwrap().keys() {
                assert_eq!(config[field], own[field], "{field}");
            }
            for access in [AgentAccess::Own, AgentAccess::Certificate, AgentAccess::Bootstrap("k".to_owned())]
            {
                connect(&mut config, access);
            }
        }
    }

    #[test]
    fn how_an_agent_gets_access_to_the_garden() {
        let secret = json!({"name": "gardenlet-kubeconfig", "namespace": "garden"});
        let bootstrap =
            json!({"name": "gardenlet-kubeconfig-bootstrap", "namespace": "garden", "kubeconfig": "k"});
        let own = json!({"kubeconfig": "/f", "bootstrapKubeconfig": {"name": "b", "namespace": "n"}, "kubeconfigSecret":
            {"name": "s", "namespace": "n"}});
        let secret_of_own = json!({"name": "s", "namespace": "n"});
        let bootstrap_of_own = json!({"name": "b", "namespace": "n", "kubeconfig": "k"});
        let asks = || AgentAccess::Bootstrap("k".to_owned());
        let table = [
            (Value::Null, AgentAccess::Own, json!({})),
            (own.clone(), AgentAccess::Own, json!({"kubeconfig": "/f"})),
            (Value::Null, AgentAccess::Certificate, json!({"kubeconfigSecret": secret})),
            (own.clone(), AgentAccess::Certificate, json!({"kubeconfigSecret": secret_of_own})),
            (Value::Null, asks(), json!({"kubeconfigSecret": secret, "bootstrapKubeconfig": bootstrap})),
            (
                own,
                asks(),
                json!({"kubeconfigSecret": secret_of_own, "bootstrapKubeconfig": bootstrap_of_own}),
            ),
        ];
        for (before, access, expected) in table {
            let mut config = json!({"gardenClientConnection": before});
            connect(&mut config, access.clone());
            assert_eq!(config["gardenClientConnection"], expected, "{access:?}");
        }
    }

    #[test]
    fn the_image_is_that_of_the_parent_unless_another_is_wanted() {
        let digest = "sha256:0";
        let table = [
            ("", Value::Null, json!({})),
            ("r.io:5000/g", Value::Null, json!({"repository": "r.io:5000/g"})),
            ("r.io:5000/g:1", Value::Null, json!({"repository": "r.io:5000/g", "tag": "1"})),
            (
                "r.io/g:1@sha256:0",
                json!({"pullPolicy": "Always"}),
                json!({"repository": "r.io/g", "tag": "1", "digest": digest, "pullPolicy": "Always"}),
            ),
            ("r.io/g@sha256:0", Value::Null, json!({"repository": "r.io/g", "tag": digest})),
            ("r.io/g:1@sha256:0", json!({"tag": "2"}), json!({"repository": "r.io/g", "tag": "2"})),
            ("r.io/g:1", json!({"repository": "s.io/g"}), json!({"repository": "s.io/g", "tag": "1"})),
        ];
        for (own, wanted, expected) in table {
            assert_eq!(image(own, &wanted), expected, "{own} {wanted}");
        }
    }

    #[test]
    fn values_of_the_chart() {
        let wanted =
            json!({"replicaCount": 1, "env": [{"name": "A", "value": "b"}], "podAnnotations": {"mine": "1"}});
        let annotations =
            json!({"checksum/seed-backup-secret": "x", "mine": "0"}).as_object().cloned().unwrap();
        let deployment = AgentDeployment {
            wanted: &wanted,
            image: "r.io/g:1",
            images: [Some("images: []".to_owned()), None],
            domain: "s.example.org",
            annotations,
            labels: Map::new(),
        };
        let expected = json!({"replicaCount": 1, "image": {"repository": "r.io/g", "tag": "1"}, "config": {"x": 1},
            "env": [{"name": "A", "value": "b"}, {"name": "KUBERNETES_SERVICE_HOST", "value": "api.s.example.org"}],
            "podAnnotations": {"checksum/seed-backup-secret": "x", "mine": "1"}, "imageVectorOverwrite": "images: []"});
        assert_eq!(values(&deployment, json!({"x": 1})), expected);
        let wanted = json!({"env": [{"name": "KUBERNETES_SERVICE_HOST", "value": "there"}]});
        let found = values(
            &AgentDeployment { wanted: &wanted, domain: "s", ..AgentDeployment::default() },
            json!({}),
        );
        assert_eq!(found["env"], wanted["env"]);
    }
}
