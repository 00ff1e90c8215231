//! Garbage collection: deletes objects without owners, and lets owners wait in deletion as requested.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::api::kinds::Kind;
use crate::api::remove::Options;
use crate::api::write::Patch;
use crate::api::{Api, Target, User};
use crate::json::{list, text};

struct Found {
    target: Target,
    object: std::sync::Arc<Value>,
}

pub fn sync(api: &Api) {
    let (owned, waiting, uids) = scan(api);
    for found in &owned {
        let gone =
            list(&found.object, "/metadata/ownerReferences").iter().all(|o| !uids.contains(text(o, "/uid")));
        if gone && text(&found.object, "/metadata/deletionTimestamp").is_empty() {
            let uid = text(&found.object, "/metadata/uid").to_owned();
            // Another thread may have deleted it.
            let _ = api.delete(&found.target, &Options { uid: Some(uid), ..Options::default() });
        }
    }
    for owner in &waiting {
        let finalizers = list(&owner.object, "/metadata/finalizers");
        if finalizers.iter().any(|f| f == "orphan") {
            orphan(api, owner, &owned);
        } else if finalizers.iter().any(|f| f == "foregroundDeletion") {
            foreground(api, owner, &owned);
        }
    }
}

/// Objects with owners, owners that wait in deletion, and the UIDs of all objects.
fn scan(api: &Api) -> (Vec<Found>, Vec<Found>, BTreeSet<String>) {
    let state = api.store.read();
    let (mut owned, mut waiting, mut uids) = (Vec::new(), Vec::new(), BTreeSet::new());
    for (id, object) in &state.objects {
        uids.insert(text(object, "/metadata/uid").to_owned());
        let is_owned = !list(object, "/metadata/ownerReferences").is_empty();
        let waits = !text(object, "/metadata/deletionTimestamp").is_empty()
            && list(object, "/metadata/finalizers")
                .iter()
                .any(|f| f == "orphan" || f == "foregroundDeletion");
        let kind: Option<std::sync::Arc<Kind>> =
            if is_owned || waits { state.kinds.find(&id.group, &id.plural) } else { None };
        if let Some(kind) = kind {
            let found = || Found {
                target: Target::new(kind.clone(), &id.namespace, &id.name),
                object: object.clone(),
            };
            if is_owned {
                owned.push(found());
            }
            if waits {
                waiting.push(found());
            }
        }
    }
    (owned, waiting, uids)
}

fn dependents<'a>(owner: &'a Found, owned: &'a [Found]) -> impl Iterator<Item = &'a Found> {
    let uid = text(&owner.object, "/metadata/uid");
    owned.iter().filter(move |f| list(&f.object, "/metadata/ownerReferences").iter().any(|o| o["uid"] == uid))
}

fn release(api: &Api, owner: &Found, finalizer: &str) {
    let left: Vec<&Value> =
        list(&owner.object, "/metadata/finalizers").iter().filter(|f| *f != finalizer).collect();
    let patch = json!({"metadata": {"finalizers": left, "resourceVersion": owner.object["metadata"]["resourceVersion"]}});
    // A conflict is looked at again.
    let _ = api.patch(&owner.target, &Patch::Merge(patch), &User::system());
}

fn orphan(api: &Api, owner: &Found, owned: &[Found]) {
    let uid = text(&owner.object, "/metadata/uid");
    for dependent in dependents(owner, owned) {
        let owners = list(&dependent.object, "/metadata/ownerReferences").iter().filter(|o| o["uid"] != uid);
        let patch = json!({"metadata": {"ownerReferences": owners.collect::<Vec<_>>()}});
        let _ = api.patch(&dependent.target, &Patch::Merge(patch), &User::system());
    }
    release(api, owner, "orphan");
}

fn foreground(api: &Api, owner: &Found, owned: &[Found]) {
    let uid = text(&owner.object, "/metadata/uid");
    let blocks = |f: &Found| {
        let mut owners = list(&f.object, "/metadata/ownerReferences").iter();
        owners.any(|o| o["uid"] == uid && o["blockOwnerDeletion"] == true)
    };
    let mut blocked = false;
    for dependent in dependents(owner, owned) {
        if text(&dependent.object, "/metadata/deletionTimestamp").is_empty() {
            let _ = api.delete(&dependent.target, &Options::default());
        }
        blocked |= blocks(dependent) && api.get(&dependent.target).is_ok();
    }
    if !blocked {
        release(api, owner, "foregroundDeletion");
    }
}
