//! node-exporter on the nodes of Shoots: how busy and how full each node is, for a Prometheus of the owner or of the site. A site
//! has to ask for it.
//!
//! Source: Gardener's component `pkg/component/observability/monitoring/nodeexporter`. It writes rules and a scrape configuration
//! for its own Prometheus as well.

use super::super::evidence::only_in_the_log;
use super::component::Component;
use super::optional::{self, OptionalComponent};

static OPTIONAL: OptionalComponent = OptionalComponent {
    name: "node-exporter",
    managed_resource: "shoot-core-node-exporter",
    manifest: "node_exporter/objects.yaml",
};

pub(super) static COMPONENT: Component = Component {
    needs_workers: true,
    option: Some(OPTIONAL.name),
    images: &[OPTIONAL.name],
    create: &[
        optional::row(
            "Deploying node-exporter",
            |work, _| optional::deploy(work, &OPTIONAL),
            |seen| seen.written(OPTIONAL.managed_resource),
            |facts| facts.serves_nodes() && facts.nodes.has_exporter,
        ),
        optional::row(
            "Deleting node-exporter",
            |work, _| optional::delete(work, &OPTIONAL),
            only_in_the_log,
            |facts| facts.serves_nodes() && !facts.nodes.has_exporter,
        ),
    ],
    ..Component::NONE
};

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::components::managed;

    #[test]
    fn it_reads_the_host_and_changes_nothing() {
        let ours = managed::objects_of(&optional::objects("n", "image", &OPTIONAL).golden());
        let kinds: Vec<&Value> = ours.iter().map(|object| &object["kind"]).collect();
        assert_eq!(kinds, ["Service", "ServiceAccount", "DaemonSet"]);
        let pod = &ours[2]["spec"]["template"]["spec"];
        let container = &pod["containers"][0];
        assert_eq!((&pod["hostNetwork"], &pod["hostPID"]), (&json!(true), &json!(true)));
        assert_eq!(pod["securityContext"]["runAsNonRoot"], true);
        assert_eq!(container["image"], "image");
        assert_eq!(
            container["volumeMounts"],
            json!([{"mountPath": "/host", "name": "host", "readOnly": true}])
        );
        assert_eq!(ours[0]["spec"]["selector"], ours[2]["spec"]["selector"]["matchLabels"]);
    }
}
