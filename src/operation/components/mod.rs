//! The components of a Shoot. Each is a folder that says everything about itself; [`component::Component`] says what that is.

mod apis;
pub(crate) mod cluster_identity;
pub(crate) mod component;
mod controller;
mod coredns;
pub mod etcd;
pub(crate) mod gardener_access;
pub mod kube_apiserver;
pub mod kube_controller_manager;
mod kube_proxy;
mod kube_scheduler;
mod managed_resource;
mod metrics_server;
pub mod namespaces;
mod node_agent;
mod node_exporter;
mod node_problem_detector;
mod optional;
pub(crate) mod resource_manager;
pub mod server_addition;
pub(crate) mod shoot_system;
mod system_pods;
mod tunnel;
pub(crate) mod workload;

use crate::shoot::secrets::Certificate;
use crate::shoot::{Outside, ShootView};

use crate::flow::{Attempt, Failed, TaskStep};

use super::times::{FIVE_SECONDS, TWO_MINUTES};
use super::work::Work;
use component::{Component, Turn};
use server_addition::ServerAddition;
use workload::Workload;

/// All components, in upstream's order.
pub(crate) static COMPONENTS: &[&Component] = &[
    &etcd::tasks::COMPONENT,
    &kube_apiserver::tasks::COMPONENT,
    &resource_manager::COMPONENT,
    &namespaces::COMPONENT,
    &gardener_access::COMPONENT,
    &kube_scheduler::COMPONENT,
    &kube_controller_manager::tasks::COMPONENT,
    &shoot_system::COMPONENT,
    &node_agent::COMPONENT,
    &tunnel::COMPONENT,
    &kube_proxy::COMPONENT,
    &coredns::COMPONENT,
    &metrics_server::COMPONENT,
    &node_exporter::COMPONENT,
    &node_problem_detector::COMPONENT,
    &cluster_identity::COMPONENT,
];

/// The names of the images that each Shoot needs, in the image vector. `nodes`: the same if it has nodes, with the components that
/// the site has asked for (`edge.components.nodes`).
pub fn images(nodes: Option<&[String]>) -> impl Iterator<Item = &'static str> {
    let is_wanted = move |component: &&&Component| match (nodes, component.option) {
        (None, _) => !component.needs_workers,
        (Some(chosen), Some(option)) => chosen.iter().any(|chosen| chosen == option),
        (Some(_), None) => true,
    };
    COMPONENTS.iter().filter(is_wanted).flat_map(|component| component.images).copied()
}

/// The names of the images that each node needs, for the version of its kubelet.
pub(crate) fn images_of_nodes() -> impl Iterator<Item = &'static str> {
    kube_proxy::COMPONENT.images.iter().copied()
}

/// The certificates of all components.
pub fn certificates(view: &ShootView, outside: Option<&Outside>) -> Vec<Certificate> {
    COMPONENTS.iter().flat_map(|component| (component.certificates)(view, outside)).collect()
}

/// What all components add to each pod of the API server, which has that many replicas; `None` without workers.
fn beside_server(work: &Work, replicas: i64) -> Result<Option<Vec<ServerAddition>>, Failed> {
    if !work.view.has_workers {
        return Ok(None);
    }
    let additions = COMPONENTS.iter().map(|component| (component.beside_server)(work, replicas));
    additions.filter_map(Result::transpose).collect::<Result<_, _>>().map(Some)
}

/// Whether a pod of the API server serves.
fn server_serves(work: &Work) -> Result<bool, Failed> {
    kube_apiserver::tasks::is_serving(work)
}

/// The step of a task that asks the cluster of the Shoot before its API server is written; None if that can be asked. It may start again
/// at any time. One that does not serve for minutes may need exactly this operation, which then goes on.
fn step_without_server(work: &Work, attempt: &Attempt) -> Result<Option<TaskStep>, Failed> {
    if server_serves(work)? {
        return Ok(None);
    }
    Ok(Some(if attempt.now.saturating_sub(attempt.begun) < TWO_MINUTES {
        TaskStep::again(
            FIVE_SECONDS,
            "no pod of kube-apiserver is ready, so the Shoot cannot be asked".to_owned(),
        )
    } else {
        TaskStep::Done
    }))
}

/// Whether agents of the tunnel connect through the exposed Service.
fn uses_tunnel(work: &Work) -> bool {
    tunnel::is_in_use(work)
}

/// The workloads of all components.
pub(crate) fn workloads() -> impl Iterator<Item = Workload> {
    COMPONENTS.iter().flat_map(|component| component.workloads).copied()
}

/// The workloads that stop in this turn.
pub(crate) fn stopping(turn: Turn) -> impl Iterator<Item = Workload> {
    let components = COMPONENTS.iter().filter(move |component| component.stops == turn);
    components.flat_map(|component| component.workloads).copied()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::secrets::Signer;

    #[test]
    fn a_control_plane_without_workers_has_three_images() {
        let of_all: Vec<&str> = images(None).collect();
        assert_eq!(of_all, ["etcd", "kube-apiserver", "kube-controller-manager"]);
        let with_nodes: Vec<&str> = images(Some(&[])).collect();
        assert!(of_all.iter().all(|name| with_nodes.contains(name)) && with_nodes.contains(&"kube-proxy"));
        assert!(!with_nodes.contains(&"node-exporter"));
        let chosen = ["node-exporter".to_owned()];
        assert_eq!(images(Some(&chosen)).count(), with_nodes.len() + 1);
    }

    #[test]
    fn the_certificate_of_the_api_server_waits_for_its_address() {
        let view = crate::shoot::view::tests::golden("s2");
        let names = |outside: Option<&Outside>| {
            let all = certificates(&view, outside).into_iter();
            all.map(|each| format!("{} {}", each.config.name(), each.authority)).collect::<Vec<_>>()
        };
        let early = [
            "etcd-server-main ca-etcd",
            "etcd-server-events ca-etcd",
            "etcd-client ca-etcd",
            "kube-aggregator ca-front-proxy",
            "kube-controller-manager-server ca",
        ];
        assert_eq!(names(None), early);
        let late = names(Some(&Outside { host: "192.0.2.1".into(), port: 443 }));
        assert_eq!((late.len(), late[4].as_str()), (6, "kube-apiserver ca"));
    }

    #[test]
    fn with_workers_there_are_certificates_for_kubelets_and_the_tunnel() {
        let view = crate::shoot::view::tests::golden("w4");
        let outside = Outside { host: "192.0.2.1".into(), port: 443 };
        let all = certificates(&view, Some(&outside));
        let names: Vec<&str> = all.iter().map(|each| each.config.name()).collect();
        for name in
            ["kube-apiserver-kubelet", "kube-scheduler-server", "konnectivity-agent", "konnectivity-server"]
        {
            assert!(names.contains(&name), "{name}: {names:?}");
        }
        // Kubelets get a new CA late, so the old one signs what they verify.
        let by_old = all.iter().filter(|each| each.signer() == Signer::Old);
        assert_eq!(by_old.map(|each| each.config.name()).collect::<Vec<_>>(), ["kube-apiserver-kubelet"]);
    }
}
