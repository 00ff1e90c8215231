//! Decides what is requested, when it is due, and with which values. Pure.

use serde_json::{Map, Value};

use crate::api::gardener::OPERATION;
use crate::api::meta::{ObjectMeta, annotation, text};
use crate::base::clock::Mono;
use crate::base::json::json;
use crate::deployer::values::{self, AgentAccess};
use crate::deployer::{NAME, NAMESPACE};
use crate::format::view;

/// The annotation of the Deployment in our own chart with the values for which a Gardenlet object has no fields. The
/// next version is deployed with them. Another program's chart does not have it.
pub(super) const VALUES: &str = "edge.gardenlet/values";
/// The annotation of a Gardenlet object that allows its chart to deploy another program.
pub(super) const REPLACE: &str = "edge.gardenlet/replace-program";
/// Requests a new certificate.
pub(super) const RENEW: &str = "renew-kubeconfig";
/// The path at which the chart mounts `edge.bootstrap.kubeconfig`.
const KEPT_BOOTSTRAP: &str = "/etc/gardenlet/kubeconfig-bootstrap/kubeconfig";

/// The values whose change requires work.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct DeploymentRequest {
    uid: String,
    generation: i64,
    renews: bool,
    replaces: bool,
}

impl DeploymentRequest {
    /// Reads them from a Gardenlet object.
    pub(super) fn by(metadata: &ObjectMeta) -> Self {
        let is = |name: &str, word: &str| metadata.annotations.get(name).is_some_and(|it| it == word);
        Self {
            uid: metadata.uid.clone(),
            generation: metadata.generation,
            renews: is(OPERATION, RENEW),
            replaces: is(REPLACE, "true"),
        }
    }
}

/// The last work, and when it is due again.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct LastDeployment {
    pub(super) asked: DeploymentRequest,
    pub(super) due: Mono,
}

/// Whether there is work to do.
pub(super) fn is_due(last: Option<&LastDeployment>, asked: &DeploymentRequest, now: Mono) -> bool {
    last.is_none_or(|last| last.asked != *asked || last.due <= now)
}

/// How the next agent gets access to the garden: like this one. `None`: it would have no access.
pub(super) fn access(config: &Value, has_secret: bool) -> Option<AgentAccess> {
    let connection = &config["gardenClientConnection"];
    let has_own = !text(&connection["kubeconfig"]).is_empty();
    match (has_own, has_secret) {
        (true, _) if connection["kubeconfigSecret"].is_null() => Some(AgentAccess::Own),
        (_, true) => Some(AgentAccess::Certificate),
        (true, false) => Some(AgentAccess::Own),
        (false, false) => None,
    }
}

/// Writes to the configuration how the next agent gets access to the garden. The place of a bootstrap kubeconfig is
/// kept, because the agent may need another identity later.
pub(super) fn connect(config: &mut Value, access: AgentAccess) {
    let place = config["gardenClientConnection"]["bootstrapKubeconfig"].clone();
    let is_own = access == AgentAccess::Own;
    values::connect(config, access);
    if !is_own && !text(&place["name"]).is_empty() {
        config["gardenClientConnection"]["bootstrapKubeconfig"] =
            json!({"secretRef": {"name": place["name"], "namespace": place["namespace"]}});
    }
}

/// Keeps our own options unless the object sets others: a garden drops fields that it does not know. The garden accepts
/// no kubeconfig there, so an agent with its own kubeconfig keeps it.
pub(super) fn inherit(running: &Value, own: &Value) -> Value {
    let mut edge = running["edge"].clone();
    values::merge(&mut edge, &own["edge"].as_object().cloned().unwrap_or_default().into());
    let mut all = own.clone();
    if edge.as_object().is_some_and(|edge| !edge.is_empty()) {
        all["edge"] = edge;
    }
    let ours = &running["gardenClientConnection"]["kubeconfig"];
    if !text(ours).is_empty() && text(&all["gardenClientConnection"]["kubeconfig"]).is_empty() {
        if !all["gardenClientConnection"].is_object() {
            all["gardenClientConnection"] = json!({});
        }
        all["gardenClientConnection"]["kubeconfig"] = ours.clone();
    }
    all
}

/// The file of `edge.bootstrap.kubeconfig` if the chart has mounted it. Its content is copied to the values.
pub(super) fn kept_bootstrap(config: &Value) -> Option<&'static str> {
    (config["edge"]["bootstrap"]["kubeconfig"] == KEPT_BOOTSTRAP).then_some(KEPT_BOOTSTRAP)
}

/// The values of the chart: `spec.deployment`, on top of the running Deployment's values.
pub(super) fn values(spec: &Value, running: &Value, labels: Map<String, Value>, config: Value) -> Value {
    let kept = view::json(annotation(running, VALUES).as_bytes()).unwrap_or_default();
    let mut wanted = if kept.is_object() { kept } else { json!({}) };
    values::merge(&mut wanted, &spec["deployment"].as_object().cloned().unwrap_or_default().into());
    let mut take = |name: &str| wanted.as_object_mut().and_then(|wanted| wanted.remove(name));
    take("helm");
    let images = ["imageVectorOverwrite", "componentImageVectorOverwrite"];
    let images = images.map(|name| take(name)?.as_str().map(str::to_owned));
    // The chart defines the version, and the running Deployment defines the image's repository.
    let image = values::image_of(running).unwrap_or_default();
    let deployment = values::AgentDeployment {
        wanted: &wanted,
        image: values::repository(image),
        images,
        labels,
        ..values::AgentDeployment::default()
    };
    let mut values = values::values(&deployment, config);
    // The agent must not extend its own permissions.
    values["applier"] = json!({"create": false});
    values
}

/// Whether the chart deploys this program.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Program {
    Ours,
    Another,
    None,
}

/// Which program the objects of a chart deploy.
pub(super) fn program<'a>(mut objects: impl Iterator<Item = &'a Value>) -> Program {
    let is_it = |object: &&Value| {
        let metadata = &object["metadata"];
        object["kind"] == "Deployment"
            && metadata["name"] == NAME
            && (metadata["namespace"].is_null() || metadata["namespace"] == NAMESPACE)
    };
    match objects.find(is_it) {
        Some(deployment) if deployment["metadata"]["annotations"][VALUES].is_string() => Program::Ours,
        Some(_) => Program::Another,
        None => Program::None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_is_due_after_a_changed_request_or_when_time_has_passed() {
        let head = |generation, annotations: Value| -> DeploymentRequest {
            let metadata = json!({"uid": "u", "generation": generation, "annotations": annotations});
            DeploymentRequest::by(&serde_json::from_value(metadata).unwrap())
        };
        let s = Mono::from_secs;
        let last = LastDeployment { asked: head(1, json!({})), due: s(100) };
        let table = [
            (None, head(1, json!({})), 0, true),
            (Some(&last), head(1, json!({})), 99, false),
            (Some(&last), head(1, json!({})), 100, true),
            (Some(&last), head(2, json!({})), 0, true),
            (Some(&last), head(1, json!({OPERATION: RENEW})), 0, true),
            (Some(&last), head(1, json!({OPERATION: "other"})), 0, false),
            (Some(&last), head(1, json!({REPLACE: "true"})), 0, true),
            (Some(&last), head(1, json!({REPLACE: "false"})), 0, false),
        ];
        for (last, head, now, expected) in table {
            assert_eq!(is_due(last, &head, s(now)), expected, "{head:?} at {now}");
        }
    }

    #[test]
    fn the_next_agent_gets_access_like_this_one() {
        let secret = json!({"kubeconfigSecret": {"name": "s", "namespace": "n"}});
        let own = json!({"kubeconfig": "k"});
        let both = json!({"kubeconfig": "k", "kubeconfigSecret": {"name": "s", "namespace": "n"}});
        let table = [
            (&secret, true, Some(AgentAccess::Certificate)),
            (&secret, false, None),
            (&own, true, Some(AgentAccess::Own)),
            (&own, false, Some(AgentAccess::Own)),
            (&both, true, Some(AgentAccess::Certificate)),
            (&both, false, Some(AgentAccess::Own)),
        ];
        for (connection, has_secret, expected) in table {
            let config = json!({"gardenClientConnection": connection});
            assert_eq!(access(&config, has_secret), expected, "{connection} {has_secret}");
        }
        let place = json!({"name": "b", "namespace": "n"});
        let mut config = json!({"gardenClientConnection": {"bootstrapKubeconfig": place}});
        connect(&mut config, AgentAccess::Certificate);
        assert_eq!(config["gardenClientConnection"]["bootstrapKubeconfig"], json!({"secretRef": place}));
        let mut config = json!({"gardenClientConnection": {"bootstrapKubeconfig": place, "kubeconfig": "k"}});
        connect(&mut config, AgentAccess::Own);
        assert_eq!(config["gardenClientConnection"], json!({"kubeconfig": "k"}));
    }

    #[test]
    fn own_options_stay_unless_others_are_set() {
        let running = json!({"edge": {"workers": 4, "stateDir": "/s"}, "logLevel": "debug"});
        let table = [
            (json!({"logLevel": "info"}), json!({"workers": 4, "stateDir": "/s"})),
            (json!({"edge": {"workers": 2}}), json!({"workers": 2, "stateDir": "/s"})),
        ];
        for (own, expected) in table {
            let found = inherit(&running, &own);
            assert_eq!((&found["edge"], &found["logLevel"]), (&expected, &own["logLevel"]));
        }
        assert_eq!(inherit(&json!({}), &json!({"a": 1})), json!({"a": 1}));
        let running = json!({"gardenClientConnection": {"kubeconfig": "/k"}});
        let kept =
            inherit(&running, &json!({"gardenClientConnection": {"kubeconfigSecret": {"name": "left"}}}));
        assert_eq!(kept["gardenClientConnection"]["kubeconfig"], "/k");
        assert_eq!(access(&kept, false), Some(AgentAccess::Own));
        let other = json!({"gardenClientConnection": {"kubeconfig": "other"}});
        assert_eq!(inherit(&running, &other), other);
        assert_eq!(kept_bootstrap(&json!({"edge": {"bootstrap": {"kubeconfig": "/elsewhere"}}})), None);
        assert!(kept_bootstrap(&json!({"edge": {"bootstrap": {"kubeconfig": KEPT_BOOTSTRAP}}})).is_some());
    }

    #[test]
    fn values_of_the_next_version() {
        let running = json!({"metadata": {"annotations": {VALUES: r#"{"stateVolume":{"hostPath":{"path":"/s"}},"serviceAccountName":"a"}"#}},
            "spec": {"template": {"spec": {"containers": [{"name": NAME, "image": "r.io:5000/g:1@sha256:0"}]}}}});
        let spec = json!({"deployment": {"helm": {"ociRepository": {"ref": "x"}}, "replicaCount": 1, "imageVectorOverwrite": "images: []",
            "componentImageVectorOverwrite": "components: []", "serviceAccountName": "b"}});
        let expected = json!({"stateVolume": {"hostPath": {"path": "/s"}}, "serviceAccountName": "b", "replicaCount": 1,
            "image": {"repository": "r.io:5000/g"}, "imageVectorOverwrite": "images: []",
            "componentImageVectorOverwrites": "components: []", "applier": {"create": false}, "config": {"c": 1}});
        assert_eq!(values(&spec, &running, Map::new(), json!({"c": 1})), expected);
        // Without any input.
        let expected = json!({"image": {}, "applier": {"create": false}, "config": {}});
        assert_eq!(values(&json!({}), &json!({}), Map::new(), json!({})), expected);
    }

    #[test]
    fn a_chart_is_identified_by_its_deployment() {
        let deployment = |name: &str, annotations: Value| json!({"kind": "Deployment", "metadata": {"name": name, "annotations": annotations}});
        let table = [
            (vec![deployment(NAME, json!({VALUES: "{}"}))], Program::Ours),
            (vec![deployment(NAME, json!({"a": "b"}))], Program::Another),
            (vec![deployment(NAME, Value::Null)], Program::Another),
            (vec![deployment("x", json!({VALUES: "{}"}))], Program::None),
            (vec![json!({"kind": "Service", "metadata": {"name": NAME}})], Program::None),
            (vec![], Program::None),
        ];
        for (objects, expected) in table {
            assert_eq!(program(objects.iter()), expected, "{objects:?}");
        }
    }
}
