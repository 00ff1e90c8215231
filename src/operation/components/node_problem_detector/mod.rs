//! node-problem-detector on the nodes of Shoots: what the kernel and systemd of a node complain about becomes conditions and Events.
//! A site has to ask for it.
//!
//! Source: Gardener's component `pkg/component/nodemanagement/nodeproblemdetector`.

use super::super::evidence::only_in_the_log;
use super::component::Component;
use super::optional::{self, OptionalComponent};

static OPTIONAL: OptionalComponent = OptionalComponent {
    name: "node-problem-detector",
    managed_resource: "shoot-core-node-problem-detector",
    manifest: "node_problem_detector/objects.yaml",
};

pub(super) static COMPONENT: Component = Component {
    needs_workers: true,
    option: Some(OPTIONAL.name),
    images: &[OPTIONAL.name],
    create: &[
        optional::row(
            "Deploying node-problem-detector system component",
            |work, _| optional::deploy(work, &OPTIONAL),
            |seen| seen.written(OPTIONAL.managed_resource),
            |facts| facts.serves_nodes() && facts.nodes.has_problem_detector,
        ),
        optional::row(
            "Deleting node-problem-detector",
            |work, _| optional::delete(work, &OPTIONAL),
            only_in_the_log,
            |facts| facts.serves_nodes() && !facts.nodes.has_problem_detector,
        ),
    ],
    ..Component::NONE
};

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::components::managed;

    #[test]
    fn objects_are_the_golden_ones_except_for_listed_differences() {
        let golden =
            include_str!("../../../../tests/fixtures/components/shoot/workers/node-problem-detector.yaml");
        let mut golden = managed::golden_objects(golden);
        // Shoots have no vertical autoscaler here.
        golden.retain(|object| object["kind"] != "VerticalPodAutoscaler");
        for object in golden.iter_mut().filter(|object| object["kind"] == "DaemonSet") {
            let env = object["spec"]["template"]["spec"]["containers"][0]["env"].as_array_mut().unwrap();
            // Pods reach the API server at its Service.
            env.retain(|variable| variable["name"] != "KUBERNETES_SERVICE_HOST");
        }
        let image = "registry.k8s.io/node-problem-detector/node-problem-detector:v1.34.4";
        let ours = managed::objects_of(&optional::objects("n", image, &OPTIONAL).golden());
        assert_eq!(json!(ours), json!(golden));
    }
}
