//! Namespaces: what each one gets, and their end.

use serde_json::{Value, json};

use crate::support::api::remove::Options;
use crate::support::api::write::Patch;
use crate::support::api::{Api, Target, User};
use crate::support::json::{list, text};
use crate::support::pki::Authority;

pub fn sync(api: &Api, authority: &Authority) {
    let ca = authority.certificate();
    for namespace in api.store.list("", "namespaces", "") {
        let name = text(&namespace, "/metadata/name");
        if text(&namespace, "/metadata/deletionTimestamp").is_empty() {
            publish_ca(api, name, &ca);
            ensure_account(api, name);
        } else {
            empty(api, name);
        }
    }
}

fn publish_ca(api: &Api, namespace: &str, ca: &str) {
    let Some(kind) = api.kind("", "configmaps") else { return };
    let name = "kube-root-ca.crt";
    let present = api.store.get("", "configmaps", namespace, name);
    // Races with the end of the namespace are lost gracefully.
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

/// Deletes what the namespace holds; when nothing is left, lets it go.
fn empty(api: &Api, namespace: &str) {
    let kinds: Vec<_> = api.store.read().kinds.all().filter(|k| k.namespaced).cloned().collect();
    let mut left = 0;
    for kind in kinds {
        for object in api.store.list(&kind.group, &kind.plural, namespace) {
            left += 1;
            if text(&object, "/metadata/deletionTimestamp").is_empty() {
                let target = Target::new(kind.clone(), namespace, text(&object, "/metadata/name"));
                let _ = api.delete(&target, &Options::default());
                left -= i32::from(list(&object, "/metadata/finalizers").is_empty());
            }
        }
    }
    if left > 0 {
        return;
    }
    let Some(kind) = api.kind("", "namespaces") else { return };
    let target = Target::new(kind, "", namespace).sub("finalize");
    let others = |n: &Value| {
        list(n, "/spec/finalizers").iter().filter(|f| *f != "kubernetes").cloned().collect::<Vec<_>>()
    };
    if let Some(present) = api.store.get("", "namespaces", "", namespace) {
        let patch = Patch::Merge(json!({"spec": {"finalizers": others(&present)}}));
        let _ = api.patch(&target, &patch, &User::system());
    }
}
