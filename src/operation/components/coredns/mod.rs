//! CoreDNS in the cluster of a Shoot.
//!
//! Source: Gardener's component `pkg/component/networking/coredns`.

use serde_json::Value;

use crate::api::core::DEPLOYMENT;
use crate::api::meta::{Key, text};
use crate::base::json::json;
use crate::components::archive;
use crate::components::content::push;
use crate::components::exposure::PORT;
use crate::components::managed::{Managed, manifests};
use crate::flow::{Attempt, Failed, TaskStep};
use crate::format::time::rfc3339;
use crate::shoot::pools::Pool;
use crate::shoot::view::dns_addresses;

use super::super::facts::Facts;
use super::super::requests;
use super::super::row::Row;
use super::super::times::{FIVE_SECONDS, SHORT};
use super::super::work::Work;
use super::component::Component;
use super::{managed_resource, system_pods};

/// The name of the Deployment, and of its image.
const NAME: &str = "coredns";
const MANAGED_RESOURCE: &str = "shoot-core-coredns";
/// The annotation of pods with the time of the last request for new ones.
const RESTARTED_AT: &str = "gardener.cloud/restarted-at";
/// The domain of the cluster.
const DOMAIN: &str = "cluster.local";

pub(super) static COMPONENT: Component = Component {
    needs_workers: true,
    images: &[NAME],
    create: &[Row::new("Deploying CoreDNS system component", deploy, |seen| seen.written(MANAGED_RESOURCE))
        .after(&["Waiting until shoot network plugin has been reconciled"])
        .when(Facts::serves_nodes)
        .retrying(FIVE_SECONDS, SHORT)],
    ..Component::NONE
};

/// The input of the objects.
struct DnsInput<'a> {
    /// The namespace of the control plane.
    namespace: &'a str,
    image: &'a str,
    /// The ranges of Services.
    services: &'a [String],
    /// The ranges of nodes and of pods, which may ask it.
    clients: &'a [String],
    pools: &'a [Pool],
    /// The port at which pods reach the API server.
    server_port: u16,
    /// `spec.systemComponents.coreDNS` of the Shoot.
    own: &'a Value,
    /// When the garden asked for new pods the last time.
    restarted_at: Option<&'a str>,
}

fn deploy(work: &mut Work, _: &Attempt) -> Result<TaskStep, Failed> {
    let view = &work.view;
    let clients: Vec<String> = view.nodes.iter().chain(&view.pods).cloned().collect();
    let objects = objects(&DnsInput {
        namespace: work.plane(),
        image: &work.env.images.find(NAME, &view.kubernetes_version)?,
        services: &view.services,
        clients: &clients,
        pools: &view.pools,
        server_port: work.results.outside.need("the API server has no address yet")?.port,
        own: &work.shoot["spec"]["systemComponents"]["coreDNS"],
        restarted_at: restarted_at(work)?.as_deref(),
    });
    managed_resource::deploy(work, &objects)
}

/// It stays in the pods, which would restart otherwise.
fn restarted_at(work: &Work) -> Result<Option<String>, Failed> {
    if requests::asks(&work.shoot, requests::RESTART_ADDONS) {
        return Ok(Some(rfc3339(work.now())));
    }
    let client = work.env.connector.connect(work.plane())?;
    let live = client.find::<Value>(&DEPLOYMENT, &Key::new("kube-system", NAME))?.unwrap_or_default();
    Ok(live["spec"]["template"]["metadata"]["annotations"][RESTARTED_AT].as_str().map(str::to_owned))
}

fn objects(input: &DnsInput<'_>) -> Managed {
    let mut all = archive::objects("coredns/objects.yaml");
    // An autoscaler in proportion to nodes is one more program. It has two replicas for up to 16 nodes.
    let is_fixed = input.own["autoscaling"]["mode"] == "cluster-proportional";
    all.retain(|object| !is_fixed || object["kind"] != "HorizontalPodAutoscaler");
    for object in &mut all {
        match text(&object["kind"]) {
            "ConfigMap" if object["metadata"]["name"] == NAME => {
                object["data"]["Corefile"] = json!(configuration(&input.own["rewriting"]["commonSuffixes"]));
            }
            "Service" => set_addresses(&mut object["spec"], input.services),
            "NetworkPolicy" => {
                let spec = &mut object["spec"];
                for range in input.clients {
                    push(&mut spec["ingress"][0]["from"], json!({"ipBlock": {"cidr": range}}));
                }
                if input.server_port != PORT {
                    push(
                        &mut spec["egress"][0]["ports"],
                        json!({"port": input.server_port, "protocol": "TCP"}),
                    );
                }
            }
            "Deployment" => {
                object["spec"]["template"]["spec"]["containers"][0]["image"] = json!(input.image);
                if let Some(at) = input.restarted_at {
                    object["spec"]["template"]["metadata"]["annotations"][RESTARTED_AT] = json!(at);
                }
                system_pods::place(object, input.pools);
            }
            _ => {}
        }
    }
    Managed::for_shoot(input.namespace, MANAGED_RESOURCE, false, &manifests(&all))
}

fn set_addresses(spec: &mut Value, services: &[String]) {
    let addresses = dns_addresses(services);
    spec["clusterIP"] = json!(addresses.first());
    spec["clusterIPs"] = json!(addresses);
    if addresses.len() > 1 {
        spec["ipFamilyPolicy"] = json!("PreferDualStack");
    }
}

/// The configuration of CoreDNS. `suffixes` are the owner's: clients often look for a name with such an end in the domain of the
/// cluster, too, where it cannot exist. CoreDNS answers such a question at once, as if it were about the name alone.
fn configuration(suffixes: &Value) -> String {
    let own =
        suffixes.as_array().into_iter().flatten().map(|suffix| text(suffix).trim_matches('.').to_owned());
    let services = format!("svc.{DOMAIN}");
    let mut rewrites = rewrite(&services, &services);
    for suffix in own.filter(|suffix| !suffix.is_empty()) {
        rewrites.push_str(&rewrite(&suffix, &services));
    }
    format!(
        ".:8053 {{\n  health {{\n      lameduck 15s\n  }}\n  ready\n{rewrites}  kubernetes {DOMAIN} in-addr.arpa ip6.arpa {{\n\
         \u{20}     pods insecure\n      fallthrough in-addr.arpa ip6.arpa\n      ttl 30\n  }}\n  prometheus :9153\n  loop\n\
         \u{20} import custom/*.override\n  errors\n  log . {{\n      class error\n  }}\n  forward . /etc/resolv.conf\n\
         \u{20} cache 30\n  reload\n  loadbalance round_robin\n}}\nimport custom/*.server\n"
    )
}

/// Answers a name with the suffix in the search domain like the name with the suffix alone.
fn rewrite(suffix: &str, search: &str) -> String {
    const LABELS: &str = r"(^(?:[^\.]+\.)+)";
    let quoted = |name: &str| name.replace('.', r"\.");
    let (end, domain) = (quoted(suffix), quoted(search));
    format!(
        "  rewrite stop {{\n    name regex {LABELS}{end}\\.{domain} {{1}}{suffix}\n\
         \u{20}   answer name {LABELS}{end} {{1}}{suffix}.{search}\n    answer value {LABELS}{end} {{1}}{suffix}.{search}\n  }}\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::components::content::name;
    use crate::components::managed;
    use crate::shoot::view;

    fn own(input: &DnsInput<'_>) -> Vec<Value> {
        managed::objects_of(&objects(input).golden())
    }

    fn with<T>(test: impl FnOnce(DnsInput<'_>) -> T) -> T {
        let view = view::tests::golden("w4");
        let clients: Vec<String> = view.nodes.iter().chain(&view.pods).cloned().collect();
        test(DnsInput {
            namespace: "shoot--p--w4",
            image: "registry.k8s.io/coredns/coredns:v1.14.7",
            services: &view.services,
            clients: &clients,
            pools: &view.pools,
            server_port: PORT,
            own: &Value::Null,
            restarted_at: None,
        })
    }

    #[test]
    fn objects_are_the_golden_ones_except_for_listed_differences() {
        let golden = include_str!("../../../../tests/fixtures/components/shoot/workers/coredns.yaml");
        let mut golden = managed::golden_objects(golden);
        let mut ours = with(|input| own(&input));
        for (ours, golden) in ours.iter_mut().zip(&mut golden) {
            if name(golden) == "coredns-custom" {
                // The comment in the example is our own.
                assert_eq!(ours["metadata"], golden["metadata"]);
                let keys =
                    |object: &Value| object["data"].as_object().unwrap().keys().cloned().collect::<Vec<_>>();
                assert_eq!(keys(ours), keys(golden));
                ours["data"] = golden["data"].clone();
            }
            for object in [&mut *ours, golden] {
                if let Some(annotations) = object["metadata"]["annotations"].as_object_mut() {
                    annotations.remove("gardener.cloud/description");
                }
            }
            if golden["kind"] == "Deployment" {
                // A webhook adds it upstream.
                let selector = ours["spec"]["template"]["spec"]["nodeSelector"].take();
                assert_eq!(selector, json!({"worker.gardener.cloud/system-components": "true"}));
                ours["spec"]["template"]["spec"].as_object_mut().unwrap().remove("nodeSelector");
            }
            assert_eq!(ours, golden);
        }
        assert_eq!(ours.len(), golden.len());
    }

    #[test]
    fn each_range_of_services_and_another_port_are_served() {
        let services = ["100.64.0.0/13".to_owned(), "fd00:1::/112".to_owned()];
        let all = with(|input| own(&DnsInput { services: &services, server_port: 30_443, ..input }));
        let of = |kind: &str| all.iter().find(|object| object["kind"] == kind).unwrap();
        let spec = &of("Service")["spec"];
        assert_eq!(spec["clusterIPs"], json!(["100.64.0.10", "fd00:1::a"]));
        assert_eq!(
            (&spec["clusterIP"], &spec["ipFamilyPolicy"]),
            (&json!("100.64.0.10"), &json!("PreferDualStack"))
        );
        let ports = of("NetworkPolicy")["spec"]["egress"][0]["ports"].as_array().unwrap();
        assert!(ports.contains(&json!({"port": 30_443, "protocol": "TCP"})), "{ports:?}");
    }

    #[test]
    fn replicas_are_fixed_instead_of_proportional_to_nodes() {
        let mode = json!({"autoscaling": {"mode": "cluster-proportional"}});
        let all = with(|input| own(&DnsInput { own: &mode, ..input }));
        assert!(all.iter().all(|object| object["kind"] != "HorizontalPodAutoscaler"));
        let deployment = all.iter().find(|object| object["kind"] == "Deployment").unwrap();
        assert_eq!(deployment["spec"]["replicas"], 2);
    }

    #[test]
    fn new_pods_are_asked_for_by_an_annotation() {
        let all = with(|input| own(&DnsInput { restarted_at: Some("2026-11-30T18:00:00Z"), ..input }));
        let deployment = all.iter().find(|object| object["kind"] == "Deployment").unwrap();
        let annotations = &deployment["spec"]["template"]["metadata"]["annotations"];
        assert_eq!(annotations, &json!({"gardener.cloud/restarted-at": "2026-11-30T18:00:00Z"}));
    }

    #[test]
    fn names_with_the_suffixes_of_the_owner_are_answered_at_once() {
        let text = configuration(&json!([".corp.example.", ""]));
        let line = r"name regex (^(?:[^\.]+\.)+)corp\.example\.svc\.cluster\.local {1}corp.example";
        assert!(text.contains(line), "{text}");
        assert_eq!(text.matches("rewrite stop").count(), 2);
        let answer = r"answer value (^(?:[^\.]+\.)+)corp\.example {1}corp.example.svc.cluster.local";
        assert!(text.contains(answer), "{text}");
    }
}
