//! The kinds that every Kubernetes cluster serves.

use super::kinds::Kind;
use super::rules::{Csr, Definition, Frozen, Namespace, Priority, Seconds, ServiceRules, Workload};
use super::{columns, events};

const POD_FIELDS: &[(&str, &str)] = &[
    ("spec.nodeName", "/spec/nodeName"),
    ("spec.restartPolicy", "/spec/restartPolicy"),
    ("spec.schedulerName", "/spec/schedulerName"),
    ("spec.serviceAccountName", "/spec/serviceAccountName"),
    ("spec.hostNetwork", "/spec/hostNetwork"),
    ("status.phase", "/status/phase"),
    ("status.podIP", "/status/podIP"),
];

/// What `kubectl get all` shows.
const IN_ALL: [&str; 10] = [
    "CronJob",
    "DaemonSet",
    "Deployment",
    "HorizontalPodAutoscaler",
    "Job",
    "Pod",
    "ReplicaSet",
    "ReplicationController",
    "Service",
    "StatefulSet",
];

/// All of them.
pub fn kinds() -> Vec<Kind> {
    let mut all: Vec<Kind> =
        [core(), apps_and_batch(), access(), machinery()].into_iter().flatten().collect();
    for kind in &mut all {
        kind.columns = columns::of(&kind.group, &kind.kind);
        kind.is_in_all = IN_ALL.contains(&kind.kind.as_str());
    }
    all
}

fn core() -> Vec<Kind> {
    let kind = |kind, plural, namespaced| Kind::new("", "v1", kind, plural, namespaced);
    vec![
        kind("ConfigMap", "configmaps", true).short(&["cm"]).rules(Frozen { secret: false }),
        kind("Endpoints", "endpoints", true).short(&["ep"]),
        events::core().short(&["ev"]),
        kind("LimitRange", "limitranges", true).short(&["limits"]),
        kind("Namespace", "namespaces", false)
            .short(&["ns"])
            .flags("s")
            .fields(&[("status.phase", "/status/phase")])
            .rules(Namespace),
        kind("Node", "nodes", false)
            .short(&["no"])
            .flags("s")
            .fields(&[("spec.unschedulable", "/spec/unschedulable")]),
        kind("PersistentVolume", "persistentvolumes", false).short(&["pv"]).flags("s"),
        kind("PersistentVolumeClaim", "persistentvolumeclaims", true).short(&["pvc"]).flags("s"),
        kind("Pod", "pods", true).short(&["po"]).flags("sg").fields(POD_FIELDS).rules(Workload),
        kind("ReplicationController", "replicationcontrollers", true).short(&["rc"]).flags("scg"),
        kind("ResourceQuota", "resourcequotas", true).short(&["quota"]).flags("s"),
        kind("Secret", "secrets", true).fields(&[("type", "/type")]).rules(Frozen { secret: true }),
        kind("Service", "services", true).short(&["svc"]).flags("s").rules(ServiceRules),
        kind("ServiceAccount", "serviceaccounts", true).short(&["sa"]),
    ]
}

fn apps_and_batch() -> Vec<Kind> {
    let apps = |kind, plural| Kind::new("apps", "v1", kind, plural, true).flags("scg").rules(Workload);
    let plain = Kind::new;
    vec![
        apps("Deployment", "deployments").short(&["deploy"]),
        apps("StatefulSet", "statefulsets").short(&["sts"]),
        apps("ReplicaSet", "replicasets").short(&["rs"]),
        plain("apps", "v1", "DaemonSet", "daemonsets", true).short(&["ds"]).flags("sg").rules(Workload),
        plain("apps", "v1", "ControllerRevision", "controllerrevisions", true),
        plain("batch", "v1", "Job", "jobs", true)
            .flags("sg")
            .fields(&[("status.successful", "/status/succeeded")])
            .rules(Workload),
        plain("batch", "v1", "CronJob", "cronjobs", true).short(&["cj"]).flags("sg").rules(Workload),
        plain("autoscaling", "v2", "HorizontalPodAutoscaler", "horizontalpodautoscalers", true)
            .short(&["hpa"])
            .flags("s"),
        plain("policy", "v1", "PodDisruptionBudget", "poddisruptionbudgets", true)
            .short(&["pdb"])
            .flags("sgr"),
        plain("scheduling.k8s.io", "v1", "PriorityClass", "priorityclasses", false)
            .short(&["pc"])
            .flags("g")
            .rules(Priority),
        plain("storage.k8s.io", "v1", "StorageClass", "storageclasses", false).short(&["sc"]),
        plain("storage.k8s.io", "v1", "CSIDriver", "csidrivers", false),
        plain("networking.k8s.io", "v1", "Ingress", "ingresses", true).short(&["ing"]).flags("sg"),
        plain("networking.k8s.io", "v1", "IngressClass", "ingressclasses", false).flags("g"),
        plain("networking.k8s.io", "v1", "NetworkPolicy", "networkpolicies", true)
            .short(&["netpol"])
            .flags("g"),
        plain("discovery.k8s.io", "v1", "EndpointSlice", "endpointslices", true).flags("g"),
    ]
}

fn access() -> Vec<Kind> {
    let rbac = |kind, plural, namespaced| {
        Kind::new("rbac.authorization.k8s.io", "v1", kind, plural, namespaced).flags("u").rules(Seconds)
    };
    vec![
        rbac("ClusterRole", "clusterroles", false),
        rbac("ClusterRoleBinding", "clusterrolebindings", false),
        rbac("Role", "roles", true),
        rbac("RoleBinding", "rolebindings", true),
        Kind::new(
            "certificates.k8s.io",
            "v1",
            "CertificateSigningRequest",
            "certificatesigningrequests",
            false,
        )
        .short(&["csr"])
        .flags("s")
        .fields(&[("spec.signerName", "/spec/signerName")])
        .rules(Csr),
    ]
}

fn machinery() -> Vec<Kind> {
    let admission =
        |kind, plural| Kind::new("admissionregistration.k8s.io", "v1", kind, plural, false).flags("gr");
    vec![
        Kind::new("coordination.k8s.io", "v1", "Lease", "leases", true).flags("ru"),
        events::new().short(&["ev"]),
        admission("MutatingWebhookConfiguration", "mutatingwebhookconfigurations"),
        admission("ValidatingWebhookConfiguration", "validatingwebhookconfigurations"),
        admission("ValidatingAdmissionPolicy", "validatingadmissionpolicies"),
        admission("ValidatingAdmissionPolicyBinding", "validatingadmissionpolicybindings"),
        Kind::new(
            "apiextensions.k8s.io",
            "v1",
            "CustomResourceDefinition",
            "customresourcedefinitions",
            false,
        )
        .short(&["crd", "crds"])
        .flags("sgr")
        .rules(Definition),
        Kind::new("apiregistration.k8s.io", "v1", "APIService", "apiservices", false).flags("sr"),
    ]
}
