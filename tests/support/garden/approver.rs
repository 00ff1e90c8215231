//! Approves the same certificate requests of agents as gardener-controller-manager.

use gardenlet::api::certificates::CERTIFICATE_SIGNING_REQUEST;
use gardenlet::api::meta::{ALL_NAMESPACES, Key};
use serde_json::{Value, json};

use super::manager::Manager;
use super::requests;
use crate::api::failure::Failure;
use crate::api::write::Patch;
use crate::json::list;

pub fn sync(manager: &Manager) -> Result<(), Failure> {
    for request in manager.cluster.list(&CERTIFICATE_SIGNING_REQUEST, ALL_NAMESPACES)? {
        let decided = list(&request, "/status/conditions")
            .iter()
            .any(|c| c["type"] == "Approved" || c["type"] == "Denied");
        if decided || requests::seed_of(&request).is_err() || !may_ask(manager, &request) {
            continue;
        }
        let mut conditions = list(&request, "/status/conditions").to_vec();
        conditions.push(json!({"type": "Approved", "status": "True", "reason": "AutoApproved",
            "message": "Auto approving gardenlet client certificate after SubjectAccessReview."}));
        let patch = json!({"metadata": {"resourceVersion": request["metadata"]["resourceVersion"]},
            "status": {"conditions": conditions}});
        let key = Key::of(&request);
        manager.cluster.patch(&CERTIFICATE_SIGNING_REQUEST, &key, "approval", &Patch::Merge(patch))?;
    }
    Ok(())
}

fn may_ask(manager: &Manager, request: &Value) -> bool {
    let spec = &request["spec"];
    manager.cluster.may(&json!({"user": spec["username"], "groups": spec["groups"], "uid": spec["uid"],
        "resourceAttributes": {"verb": "create", "group": "certificates.k8s.io",
            "resource": "certificatesigningrequests", "subresource": "seedclient"}}))
}
