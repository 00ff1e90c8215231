//! Information for components and people in the cluster of a Shoot.

use serde_json::Value;

use crate::base::json::json;
use crate::components::archive;
use crate::components::managed::{Managed, manifests};
use crate::flow::{Attempt, Failed, TaskStep};
use crate::format::semver::Version;
use crate::shoot::inside;

use super::super::extensions;
use super::super::facts::Facts;
use super::super::row::Row;
use super::super::times::{FIVE_SECONDS, SHORT};
use super::super::work::Work;
use super::component::Component;
use super::managed_resource;

const MANAGED_RESOURCE: &str = "shoot-core-system";

pub(super) static COMPONENT: Component = Component {
    create: &[Row::new("Deploying shoot system resources", deploy, |seen| seen.written(MANAGED_RESOURCE))
        .after(&[
            "Deploying referenced resources",
            "Waiting until extension resources handled after kube-apiserver are ready",
            "Initializing connection to Shoot",
        ])
        .when(Facts::is_awake)
        .retrying(FIVE_SECONDS, SHORT)
        .last()],
    ..Component::NONE
};

fn deploy(work: &mut Work, _: &Attempt) -> Result<TaskStep, Failed> {
    let client = work.env.connector.connect(work.plane())?;
    let minor = Version::parse(&work.view.kubernetes_version).map_or(0, |version| version.minor);
    let info = inside::info(&work.view, &extensions::names(work));
    let rules = inside::rules_of_readers(&client, &work.view.encrypted)?;
    let objects = objects(&work.view.technical_id, &info, minor, &rules);
    managed_resource::deploy(work, &objects)
}

/// ConfigMap `shoot-info` with these entries, and the readers' ClusterRole with these rules. From Kubernetes 1.33 on, a
/// NetworkPolicy isolates namespace `kube-system`.
fn objects(namespace: &str, info: &Value, minor: u64, rules: &[Value]) -> Managed {
    let metadata = json!({"name": "shoot-info", "namespace": "kube-system"});
    let mut objects =
        vec![json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": info})];
    if minor >= 33 {
        objects.push(archive::object("shoot_system/deny-all.yaml"));
    }
    objects.push(json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
        "metadata": {"name": "gardener.cloud:system:read-only"}, "rules": rules,
    }));
    Managed::for_shoot(namespace, MANAGED_RESOURCE, false, &manifests(&objects))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::yaml;

    #[test]
    fn objects_are_those_of_a_go_gardenlet() {
        let golden = include_str!("../../../../tests/fixtures/components/shoot/system.yaml");
        let documents: Vec<Value> =
            golden.split("\n---\n").map(|document| yaml::parse(document).unwrap()).collect();
        let rules = documents[2]["rules"].as_array().unwrap();
        objects("shoot--p--s2", &documents[0]["data"], 34, rules).assert_for_shoot(golden, false);
        let old = objects("shoot--p--s2", &json!({}), 32, &[]).golden();
        assert!(!old.contains("NetworkPolicy"), "{old}");
    }
}
