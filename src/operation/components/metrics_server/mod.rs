//! metrics-server in the cluster of a Shoot: what nodes and pods use, for people and autoscalers.
//!
//! Source: Gardener's component `pkg/component/observability/monitoring/metricsserver`.

use crate::api::meta::{Key, text};
use crate::base::json::json;
use crate::base::sorted::SortedMap;
use crate::components::archive;
use crate::components::content::{annotate_references, name, name_volumes};
use crate::components::managed::{self, Managed, manifests, unique_secret};
use crate::flow::{Attempt, Failed, TaskStep};
use crate::format::base64;
use crate::pki::issue::{KeyUsage, ServerNames};
use crate::shoot::addresses::service_names;
use crate::shoot::pools::Pool;
use crate::shoot::rotation::CA_METRICS_SERVER;
use crate::shoot::secrets::Certificate;
use crate::shoot::{Outside, ShootView};

use super::super::evidence::only_in_the_log;
use super::super::facts::Facts;
use super::super::row::Row;
use super::super::times::{FIVE_SECONDS, SHORT};
use super::super::work::Work;
use super::component::Component;
use super::{managed_resource, system_pods};

/// The name of the Deployment, of its certificate and of its image.
const NAME: &str = "metrics-server";
const MANAGED_RESOURCE: &str = "shoot-core-metrics-server";
const NAMESPACE: &str = "kube-system";

pub(super) static COMPONENT: Component = Component {
    needs_workers: true,
    images: &[NAME],
    certificates,
    create: &[Row::new("Deploying metrics-server system component", deploy, |seen| {
        seen.written(MANAGED_RESOURCE)
    })
    .after(&[
        "Waiting until shoot control plane has been reconciled",
        "Waiting until shoot namespaces have been reconciled",
        "Waiting until extension resources handled after kube-apiserver are ready",
        "Initializing connection to Shoot",
        "Deploying Kubernetes scheduler",
    ])
    .when(Facts::serves_nodes)
    .retrying(FIVE_SECONDS, SHORT)],
    // Without its pods, the API that it serves would be in the way of deleting namespaces.
    delete: &[Row::new("Deleting metrics-server", delete, only_in_the_log)
        .after(&["Cleaning extended API groups"])
        .when(|facts| facts.has_workers && facts.cleans())
        .retrying(FIVE_SECONDS, SHORT)],
    ..Component::NONE
};

fn certificates(view: &ShootView, _: Option<&Outside>) -> Vec<Certificate> {
    if !view.has_workers {
        return Vec::new();
    }
    let names = ServerNames { dns: service_names(NAME, NAMESPACE), addresses: Vec::new() };
    let certificate = Certificate::new(CA_METRICS_SERVER, NAME, NAME, KeyUsage::Server, names);
    vec![certificate.by_current_authority()]
}

/// The input of the objects.
struct MetricsInput<'a> {
    /// The namespace of the control plane.
    namespace: &'a str,
    image: &'a str,
    /// Its certificate and key, by file.
    files: &'a SortedMap<String, Vec<u8>>,
    /// The CAs of its certificate.
    ca: &'a [u8],
    pools: &'a [Pool],
}

fn deploy(work: &mut Work, _: &Attempt) -> Result<TaskStep, Failed> {
    let made = work.secrets()?;
    let files = made.tls_files(NAME).ok_or_else(|| Failed::new("metrics-server has no certificate yet"))?;
    let objects = objects(&MetricsInput {
        namespace: work.plane(),
        image: &work.env.images.find(NAME, &work.view.kubernetes_version)?,
        files: &files,
        ca: made.bundle_of(CA_METRICS_SERVER),
        pools: &work.view.pools,
    })?;
    managed_resource::deploy(work, &objects)
}

fn delete(work: &mut Work, _: &Attempt) -> Result<TaskStep, Failed> {
    managed::remove(&work.env.seed, &Key::new(work.plane(), MANAGED_RESOURCE))?;
    Ok(TaskStep::Done)
}

/// Errors: a volume has no Secret.
fn objects(input: &MetricsInput<'_>) -> Result<Managed, String> {
    let (_, mut secret) = unique_secret(NAMESPACE, NAME, input.files);
    secret["type"] = json!("kubernetes.io/tls");
    let mut all = archive::objects("metrics_server/objects.yaml");
    for object in &mut all {
        match text(&object["kind"]) {
            "APIService" => object["spec"]["caBundle"] = json!(base64::encode(input.ca)),
            "Deployment" => {
                object["spec"]["template"]["spec"]["containers"][0]["image"] = json!(input.image);
                name_volumes(object, &SortedMap::from([(NAME, name(&secret).to_owned())]))?;
                annotate_references(object);
                system_pods::place(object, input.pools);
            }
            _ => {}
        }
    }
    all.insert(0, secret);
    Ok(Managed::for_shoot(input.namespace, MANAGED_RESOURCE, false, &manifests(&all)))
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;
    use crate::shoot::view::tests::golden;

    fn own(ca: &str) -> Vec<Value> {
        let view = golden("w4");
        let files = ["tls.crt", "tls.key"].map(|file| (file.to_owned(), b"x".to_vec()));
        let managed = objects(&MetricsInput {
            namespace: "shoot--p--w4",
            image: "registry.k8s.io/metrics-server/metrics-server:v0.9.0",
            files: &files.into(),
            ca: ca.as_bytes(),
            pools: &view.pools,
        });
        managed::objects_of(&managed.unwrap().golden())
    }

    #[test]
    fn objects_are_the_golden_ones_except_for_listed_differences() {
        let golden = include_str!("../../../../tests/fixtures/components/shoot/workers/metrics-server.yaml");
        let mut golden = managed::golden_objects(golden);
        // Shoots have no vertical autoscaler here.
        golden.retain(|object| object["kind"] != "VerticalPodAutoscaler");
        let mut ours = own("");
        for (ours, golden) in ours.iter_mut().zip(&mut golden) {
            match text(&golden["kind"]) {
                "Secret" => {
                    assert_eq!(ours["type"], golden["type"]);
                    assert_eq!(ours["metadata"]["labels"], golden["metadata"]["labels"]);
                    continue;
                }
                "Deployment" => {
                    let secret = "/spec/template/spec/volumes/0/secret/secretName";
                    *golden.pointer_mut(secret).unwrap() = ours.pointer(secret).unwrap().clone();
                    // Webhooks add it upstream.
                    let pod = &mut ours["spec"]["template"]["spec"];
                    assert_eq!(
                        pod["nodeSelector"],
                        json!({"worker.gardener.cloud/system-components": "true"})
                    );
                    pod.as_object_mut().unwrap().remove("nodeSelector");
                    // Upstream requests more than a small node can spare.
                    let requests = &mut pod["containers"][0]["resources"]["requests"]["memory"];
                    assert_eq!(requests.take(), "30Mi");
                    golden["spec"]["template"]["spec"]["containers"][0]["resources"]["requests"]["memory"]
                        .take();
                    for path in ["/metadata/annotations", "/spec/template/metadata/annotations"] {
                        *golden.pointer_mut(path).unwrap() = ours.pointer(path).unwrap().clone();
                    }
                }
                _ => {}
            }
            assert_eq!(ours, golden);
        }
        assert_eq!(ours.len(), golden.len());
    }

    #[test]
    fn clients_get_a_new_ca_together_with_the_certificate() {
        let bundle = |ca: &str| {
            let all = own(ca);
            let api = all.iter().find(|object| object["kind"] == "APIService").unwrap();
            api["spec"]["caBundle"].as_str().unwrap().to_owned()
        };
        assert_eq!(bundle("new and old"), base64::encode(b"new and old"));
        let view = golden("w4");
        let [certificate] = certificates(&view, None).try_into().unwrap();
        assert_eq!(certificate.authority, CA_METRICS_SERVER);
        assert_eq!(certificate.signer(), crate::secrets::Signer::Current);
        assert!(certificates(&golden("s2"), None).is_empty());
    }
}
