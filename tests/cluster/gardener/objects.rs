//! What gardener-operator installs in a garden, besides the programs.

use std::path::Path;

use gardenlet::format::base64;
use serde_json::{Value, json};

use crate::world;
use support::garden::prepare::Preparation;

/// gardener-apiserver stores it in the garden, and refuses another one.
pub(super) const CLUSTER_IDENTITY: &str = "garden-identity";

/// Namespaces, the version, the token of a seed, and roles for every authenticated user. Seeds have no role: the
/// SeedAuthorizer decides about them.
pub(super) fn of_operator(preparation: &Preparation) -> Value {
    let mut all = preparation.garden();
    all.retain(|object| object["metadata"]["name"] != "cluster-identity");
    all.push(json!({"apiVersion": "v1", "kind": "Secret", "metadata": {
        "name": "internal-domain", "namespace": "garden", "labels": {"gardener.cloud/role": "internal-domain"},
        "annotations": {"dns.gardener.cloud/provider": "unmanaged", "dns.gardener.cloud/domain": "int.example.org"}}}));
    world::list(&all)
}

/// The SeedAuthorizer after the authorizers of Kubernetes. It remembers no decision.
pub(super) fn authorizers(kubeconfig: &Path) -> Value {
    let is_of_seed = "'gardener.cloud:system:seeds' in request.groups \
        || request.groups.exists(g, g.startsWith('system:serviceaccounts:seed-'))";
    json!({
        "apiVersion": "apiserver.config.k8s.io/v1",
        "kind": "AuthorizationConfiguration",
        "authorizers": [
            {"type": "Node", "name": "node"},
            {"type": "RBAC", "name": "rbac"},
            {"type": "Webhook", "name": "seed-authorizer", "webhook": {
                // The API server makes minutes of 0.
                "authorizedTTL": "1ns",
                "unauthorizedTTL": "1ns",
                "timeout": "10s",
                "failurePolicy": "Deny",
                "subjectAccessReviewVersion": "v1",
                "matchConditionSubjectAccessReviewVersion": "v1",
                "connectionInfo": {"type": "KubeConfigFile", "kubeConfigFile": kubeconfig},
                "matchConditions": [{"expression": is_of_seed}],
            }},
        ],
    })
}

/// SeedRestriction, which both API servers ask about the objects of seeds.
pub(super) fn seed_restriction(authority: &str, port: u16) -> Value {
    let rule = |operations: &[&str], (group, version): (&str, &str), resources: &[&str]| json!({"operations": operations, "apiGroups": [group], "apiVersions": [version], "resources": resources});
    let (core, create) = (("core.gardener.cloud", "v1beta1"), &["CREATE"]);
    json!({
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": "gardener-admission-controller"},
        "webhooks": [{
            "name": "seed-restriction.gardener.cloud",
            "admissionReviewVersions": ["v1", "v1beta1"],
            "timeoutSeconds": 10,
            "failurePolicy": "Fail",
            "matchPolicy": "Equivalent",
            "sideEffects": "None",
            "clientConfig": {
                "url": format!("https://127.0.0.1:{port}/webhooks/admission/seedrestriction"),
                "caBundle": base64::encode(authority.as_bytes()),
            },
            "rules": [
                rule(create, ("", "v1"), &["configmaps", "secrets", "serviceaccounts"]),
                rule(create, ("rbac.authorization.k8s.io", "v1"), &["clusterrolebindings"]),
                rule(create, ("coordination.k8s.io", "v1"), &["leases"]),
                rule(create, ("certificates.k8s.io", "v1"), &["certificatesigningrequests"]),
                rule(create, core, &["backupentries", "internalsecrets", "shootstates"]),
                rule(&["CREATE", "DELETE"], core, &["backupbuckets"]),
                rule(&["CREATE", "UPDATE", "DELETE"], core, &["seeds"]),
                rule(create, ("operations.gardener.cloud", "v1alpha1"), &["bastions"]),
            ],
        }],
    })
}
