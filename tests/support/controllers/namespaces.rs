//! Namespaces: their default objects, and their deletion.

use serde_json::{Value, json};

use crate::api::remove::Options;
use crate::api::write::Patch;
use crate::api::{Api, Target, User};
use crate::encoding::{from_base64, from_rfc3339};
use crate::json::{list, text};

/// Removes bootstrap tokens that have ended.
pub fn clean_tokens(api: &Api) {
    let Some(kind) = api.kind("", "secrets") else { return };
    for secret in api.store.all("", "secrets", "kube-system") {
        let at = from_base64(text(&secret, "/data/expiration")).and_then(|b| String::from_utf8(b).ok());
        let is_token = secret["type"] == "bootstrap.kubernetes.io/token";
        if is_token && at.and_then(|at| from_rfc3339(&at)).is_some_and(|at| at <= api.clock.now()) {
            let target = Target::new(kind.clone(), "kube-system", text(&secret, "/metadata/name"));
            // Another thread may have removed it.
            let _ = api.delete(&target, &Options::default());
        }
    }
}

/// `ca`: the root certificate of the cluster, PEM. True if some namespace is being deleted.
pub fn sync(api: &Api, ca: &str) -> bool {
    let mut waits = false;
    for namespace in api.store.all("", "namespaces", "") {
        let name = text(&namespace, "/metadata/name");
        if text(&namespace, "/metadata/deletionTimestamp").is_empty() {
            publish_ca(api, name, ca);
            ensure_account(api, name);
        } else {
            empty(api, name);
            waits = true;
        }
    }
    waits
}

fn publish_ca(api: &Api, namespace: &str, ca: &str) {
    let Some(kind) = api.kind("", "configmaps") else { return };
    let name = "kube-root-ca.crt";
    let present = api.store.get("", "configmaps", namespace, name);
    // The namespace may be deleted at the same time.
    match present {
        None => {
            let object = json!({"metadata": {"name": name, "annotations": {
                "kubernetes.io/description": "Contains a CA bundle that can be used to verify the kube-apiserver."}},
                "data": {"ca.crt": ca}});
            let _ = api.create(&Target::new(kind, namespace, ""), object, &User::system());
        }
        Some(present) if present["data"]["ca.crt"] != ca => {
            let patch = Patch::Merge(json!({"data": {"ca.crt": ca}}));
            let _ = api.patch(&Target::new(kind, namespace, name), &patch, &User::system());
        }
        Some(_) => {}
    }
}

fn ensure_account(api: &Api, namespace: &str) {
    let Some(kind) = api.kind("", "serviceaccounts") else { return };
    if api.store.get("", "serviceaccounts", namespace, "default").is_none() {
        let object = json!({"metadata": {"name": "default"}});
        let _ = api.create(&Target::new(kind, namespace, ""), object, &User::system());
    }
}

/// Deletes the content of a namespace, and then its finalizer.
fn empty(api: &Api, namespace: &str) {
    let kinds: Vec<_> = api.store.read().kinds.all().filter(|k| k.namespaced).cloned().collect();
    let mut left = 0;
    for kind in kinds {
        for object in api.store.all(&kind.group, &kind.plural, namespace) {
            left += 1;
            if text(&object, "/metadata/deletionTimestamp").is_empty() {
                let target = Target::new(kind.clone(), namespace, text(&object, "/metadata/name"));
                let options = Options { is_admitted: true, ..Options::default() };
                let is_deleted = api.delete(&target, &options).is_ok();
                left -= i32::from(is_deleted && list(&object, "/metadata/finalizers").is_empty());
            }
        }
    }
    if left > 0 {
        return;
    }
    let Some(kind) = api.kind("", "namespaces") else { return };
    let target = Target::new(kind, "", namespace).subresource("finalize");
    let others = |n: &Value| {
        list(n, "/spec/finalizers").iter().filter(|f| *f != "kubernetes").cloned().collect::<Vec<_>>()
    };
    if let Some(present) = api.store.get("", "namespaces", "", namespace) {
        let patch = Patch::Merge(json!({"spec": {"finalizers": others(&present)}}));
        let _ = api.patch(&target, &patch, &User::system());
    }
}
