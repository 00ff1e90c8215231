//! The kube-scheduler of a Shoot with workers: Deployment, Service, PodDisruptionBudget, its configuration, and its
//! permissions in the cluster of the Shoot.
//!
//! Source: Gardener's component `pkg/component/kubernetes/scheduler`.

use serde_json::Value;

use crate::api::core::CONFIG_MAP;
use crate::base::sorted::SortedMap;
use crate::components::apply::apply;
use crate::components::archive;
use crate::components::content::{annotate_references, name, name_volumes, switches, unique_config_map};
use crate::components::managed::Managed;
use crate::flow::{Attempt, Failed, TaskStep};
use crate::pki::issue::{KeyUsage, ServerNames};
use crate::shoot::addresses::service_names;
use crate::shoot::rotation::CA_CLIENT;
use crate::shoot::secrets::{Certificate, ShootSecrets};
use crate::shoot::{Outside, ShootView, access};

use super::super::pods;
use super::super::row::Row;
use super::super::times::{FIVE_SECONDS, SHORT};
use super::super::work::Work;
use super::component::Component;
use super::workload::Workload;
use super::{controller, managed_resource};

/// The name of Deployment, Service and PodDisruptionBudget, and of its image.
const NAME: &str = "kube-scheduler";
/// The folder of its manifests.
const FOLDER: &str = "kube_scheduler";
/// The certificate that it serves with.
const SERVER: &str = "kube-scheduler-server";
const MANAGED_RESOURCE: &str = "shoot-core-kube-scheduler";

pub(super) static COMPONENT: Component = Component {
    needs_workers: true,
    images: &[NAME],
    certificates,
    workloads: &[Workload::Deployment(NAME)],
    create: &[Row::new("Deploying Kubernetes scheduler", deploy, |seen| seen.deployment(NAME))
        .after(&["Renewing shoot access secrets after creation of new ServiceAccount signing key"])
        .when(|facts| facts.has_workers)
        .retrying(FIVE_SECONDS, SHORT)],
    ..Component::NONE
};

/// The input of the objects.
#[derive(Clone, Debug)]
struct SchedulerInput<'a> {
    /// The namespace of the control plane.
    namespace: &'a str,
    /// `spec.kubernetes.kubeScheduler` of the Shoot.
    own: &'a Value,
    /// The image of kube-scheduler.
    image: &'a str,
    /// How many pods it has.
    replicas: i64,
    /// The Secret with the CAs of its clients.
    client_ca: &'a str,
    /// The Secret with its certificate.
    server: &'a str,
    /// The Secret of the generic kubeconfig.
    generic_kubeconfig: &'a str,
}

fn certificates(view: &ShootView, _: Option<&Outside>) -> Vec<Certificate> {
    if !view.has_workers {
        return Vec::new();
    }
    let names = ServerNames { dns: service_names(NAME, &view.technical_id), addresses: Vec::new() };
    vec![Certificate::new("ca", SERVER, NAME, KeyUsage::Server, names)]
}

/// Its permissions in the cluster of the Shoot.
fn permissions(namespace: &str) -> Managed {
    Managed::for_shoot(namespace, MANAGED_RESOURCE, false, &archive::text("kube_scheduler/permissions.yaml"))
}

fn deploy(work: &mut Work, _: &Attempt) -> Result<TaskStep, Failed> {
    let (view, made): (_, &ShootSecrets) = (&work.view, work.secrets()?);
    let [configuration, mut deployment] = fill(&SchedulerInput {
        namespace: work.plane(),
        own: &work.shoot["spec"]["kubernetes"]["kubeScheduler"],
        image: &work.env.images.find(NAME, &view.kubernetes_version)?,
        // Nothing is scheduled from the moment when the Shoot is to sleep.
        replicas: if work.facts.is_hibernated { 0 } else { pods::replicas(work) },
        client_ca: made.bundle(CA_CLIENT),
        server: made.current(SERVER),
        generic_kubeconfig: made.generic_kubeconfig(),
    })?;
    pods::set(pods::availability(work)?.as_ref(), Some(&mut deployment));
    apply(&work.env.seed, &CONFIG_MAP, &configuration)?;
    controller::write(&work.env.seed, others(work.plane()), &deployment)?;
    access::ensure(&work.env.seed, work.plane(), NAME)?;
    let permissions = permissions(work.plane());
    managed_resource::deploy(work, &permissions)
}

/// Its configuration, and the Deployment. Errors: a volume has no Secret or ConfigMap.
fn fill(input: &SchedulerInput<'_>) -> Result<[Value; 2], String> {
    let data = SortedMap::from([("config.yaml".to_owned(), configuration(input.own).to_owned())]);
    let configuration = unique_config_map(input.namespace, "kube-scheduler-config", &data);
    let mut object = controller::deployment(FOLDER, input.namespace, input.image, input.replicas);
    let names = SortedMap::from([
        (SERVER, input.server.to_owned()),
        ("kube-scheduler-config", name(&configuration).to_owned()),
    ]);
    name_volumes(&mut object, &names)?;
    controller::set_source(&mut object, "client-ca", input.client_ca);
    controller::set_source(&mut object, "kubeconfig", input.generic_kubeconfig);
    let gates = switches("feature-gates", &input.own["featureGates"]);
    controller::add_arguments(&mut object, gates.into_iter().collect());
    annotate_references(&mut object);
    Ok([configuration, object])
}

/// The text is upstream's, because the name of the ConfigMap depends on it. Upstream's profile for bin-packing has a name
/// of its own, and a webhook writes that into each pod. Without the webhook, the usual profile packs.
fn configuration(own: &Value) -> &'static str {
    const BALANCED: &str = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n\
        clientConnection:\n  kubeconfig: /var/run/secrets/gardener.cloud/shoot/generic-kubeconfig/kubeconfig\n\
        leaderElection:\n  leaderElect: true";
    const PACKING: &str = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n\
        clientConnection:\n  kubeconfig: /var/run/secrets/gardener.cloud/shoot/generic-kubeconfig/kubeconfig\n\
        leaderElection:\n  leaderElect: true\n\
        profiles:\n- schedulerName: default-scheduler\n  pluginConfig:\n  - name: NodeResourcesFit\n    args:\n      \
        scoringStrategy:\n        type: MostAllocated\n  plugins:\n    score:\n      disabled:\n      \
        - name: NodeResourcesBalancedAllocation";
    if own["profile"] == "bin-packing" { PACKING } else { BALANCED }
}

/// The Service and the PodDisruptionBudget.
fn others(namespace: &str) -> [Value; 2] {
    controller::others(FOLDER, namespace)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::json::json;
    use crate::components::apply::{self, Keep};
    use crate::format::yaml;

    fn golden(text: &str) -> Value {
        yaml::parse(text).unwrap()
    }

    fn objects(own: &Value) -> [Value; 2] {
        fill(&SchedulerInput {
            namespace: "shoot--p--w4",
            own,
            image: "registry.k8s.io/kube-scheduler:v1.34.3",
            replicas: 1,
            client_ca: "ca-client-bundle-c3ade264",
            server: "kube-scheduler-server-49d1eb96",
            generic_kubeconfig: "generic-token-kubeconfig-6967a4e6",
        })
        .unwrap()
    }

    #[test]
    fn objects_are_the_golden_ones_except_for_listed_differences() {
        let path = "/spec/template/spec/containers/0/command";
        let mut deployment = golden(include_str!(
            "../../../../tests/fixtures/control-plane/workers/deployment-kube-scheduler.yaml"
        ));
        let [configuration, mut ours] = objects(&json!({"profile": "balanced"}));
        let arguments = |object: &Value| {
            let all = object.pointer(path).unwrap().as_array().unwrap().iter();
            let mut all: Vec<String> = all.map(|argument| argument.as_str().unwrap().to_owned()).collect();
            all.sort();
            all
        };
        // Upstream has an empty argument, which the program ignores.
        let mut expected = arguments(&deployment);
        assert_eq!(expected.remove(0), "");
        assert_eq!(arguments(&ours), expected);
        for object in [&mut deployment, &mut ours] {
            *object.pointer_mut(path).unwrap() = Value::Null;
        }
        assert_eq!(apply::patch(&deployment, &ours, Keep::default()), None);
        assert_eq!(ours["metadata"]["labels"], deployment["metadata"]["labels"]);
        let text = include_str!(
            "../../../../tests/fixtures/control-plane/workers/configmap-kube-scheduler-config-805aeb6f.yaml"
        );
        let mut theirs = golden(text);
        theirs["metadata"]["namespace"] = json!("shoot--p--w4");
        assert_eq!(configuration, theirs);
    }

    #[test]
    fn service_and_budget_are_the_golden_ones() {
        let goldens = [
            include_str!("../../../../tests/fixtures/control-plane/workers/service-kube-scheduler.yaml"),
            include_str!(
                "../../../../tests/fixtures/control-plane/workers/poddisruptionbudget-kube-scheduler.yaml"
            ),
        ];
        for (mut ours, text) in others("shoot--p--w4").into_iter().zip(goldens) {
            let golden = golden(text);
            ours["metadata"]["namespace"] = golden["metadata"]["namespace"].clone();
            assert_eq!(apply::patch(&golden, &ours, Keep::default()), None);
            assert_eq!(ours["metadata"], golden["metadata"]);
        }
    }

    #[test]
    fn permissions_are_those_of_a_go_gardenlet() {
        let golden = include_str!("../../../../tests/fixtures/components/shoot/workers/kube-scheduler.yaml");
        permissions("shoot--p--s2").assert_for_shoot(golden, false);
    }

    #[test]
    fn pods_are_packed_if_the_owner_wants_it() {
        let [balanced, _] = objects(&json!({}));
        let [packing, deployment] = objects(&json!({"profile": "bin-packing", "featureGates": {"A": true}}));
        assert_ne!(name(&balanced), name(&packing));
        let config = golden(packing["data"]["config.yaml"].as_str().unwrap());
        let profile = &config["profiles"][0];
        assert_eq!(profile["schedulerName"], "default-scheduler");
        assert_eq!(profile["pluginConfig"][0]["args"]["scoringStrategy"]["type"], "MostAllocated");
        assert!(deployment.to_string().contains("--feature-gates=A=true"));
    }
}
