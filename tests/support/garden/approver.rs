//! Approves the same certificate requests of agents as gardener-controller-manager.

use gardenlet::api::certificates::CERTIFICATE_SIGNING_REQUEST;
use serde_json::{Value, json};

use super::authorizer::SEEDS;
use super::manager::Manager;
use crate::api::failure::Failure;
use crate::api::write::Patch;
use crate::encoding::from_base64;
use crate::json::{list, text};
use crate::pki;

pub fn sync(manager: &Manager) -> Result<(), Failure> {
    for request in manager.cluster.list(&CERTIFICATE_SIGNING_REQUEST, "")? {
        let decided = list(&request, "/status/conditions")
            .iter()
            .any(|c| c["type"] == "Approved" || c["type"] == "Denied");
        if decided || !is_of_agent(&request) || !may_ask(manager, &request) {
            continue;
        }
        let mut conditions = list(&request, "/status/conditions").to_vec();
        conditions.push(json!({"type": "Approved", "status": "True", "reason": "AutoApproved",
            "message": "Auto approving gardenlet client certificate after SubjectAccessReview."}));
        let patch = json!({"metadata": {"resourceVersion": request["metadata"]["resourceVersion"]},
            "status": {"conditions": conditions}});
        let name = text(&request, "/metadata/name");
        manager.cluster.patch(&CERTIFICATE_SIGNING_REQUEST, ("", name), "approval", &Patch::Merge(patch))?;
    }
    Ok(())
}

/// Subject, names and usages of an agent's client certificate; anything else is left alone.
pub fn is_of_agent(request: &Value) -> bool {
    let pem = from_base64(text(request, "/spec/request")).unwrap_or_default();
    let Some((subject, has_names)) = pki::request_subject(&String::from_utf8_lossy(&pem)) else {
        return false;
    };
    let mut usages: Vec<&str> = list(request, "/spec/usages").iter().filter_map(Value::as_str).collect();
    usages.sort_unstable();
    subject.organizations == [SEEDS]
        && subject.common_name.starts_with("gardener.cloud:system:seed:")
        && !has_names
        && usages == ["client auth", "digital signature", "key encipherment"]
}

fn may_ask(manager: &Manager, request: &Value) -> bool {
    let spec = &request["spec"];
    manager.cluster.may(&json!({"user": spec["username"], "groups": spec["groups"], "uid": spec["uid"],
        "resourceAttributes": {"verb": "create", "group": "certificates.k8s.io",
            "resource": "certificatesigningrequests", "subresource": "seedclient"}}))
}
