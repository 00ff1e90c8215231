//! The deletion protection that the agent installs, for a kind of the check's own.

use gardenlet::api::meta::{CLUSTER_SCOPED, Resource};
use gardenlet::components::deletion_protection;
use gardenlet::format::yaml;
use gardenlet::kube::{DeleteParams, ListParams, Patch};
use serde_json::{Value, json};

use super::custom::{define, thing};
use super::{Named, Outcome, Place, ensure, equal, ok, refused, until};

pub(super) const CHECKS: &[Named] = &[
    ("a deletion that is not confirmed", unconfirmed),
    ("a deletion of many that are not confirmed", collections),
    ("objects without the label of a policy", unlabelled),
];

const GROUP: &str = "admissionregistration.k8s.io";
const POLICIES: Resource =
    Resource::new(GROUP, "v1", "ValidatingAdmissionPolicy", "validatingadmissionpolicies", false);
const BINDINGS: Resource = Resource::new(
    GROUP,
    "v1",
    "ValidatingAdmissionPolicyBinding",
    "validatingadmissionpolicybindings",
    false,
);
const CONFIRMATION: &str = "confirmation.gardener.cloud/deletion";
const PROTECTED: &str = "gardener.cloud/deletion-protected";

/// Protects a kind of the check's own as the agent protects those of extensions (`of_extensions`) or definitions. Returns the kind
/// once it is protected.
fn protect(place: &Place<'_>, of_extensions: bool) -> Result<Resource, String> {
    let kind = define(place)?;
    let manifests = deletion_protection::manifests();
    let mut objects: Vec<Value> = manifests.split("---\n").map(|text| yaml::parse(text).unwrap()).collect();
    let mut ours = objects.split_off(2);
    if !of_extensions {
        ours = objects;
    }
    let name = json!(format!("{}-protection", place.namespace));
    let [policy, binding] = ours.as_mut_slice() else { return Err("a policy and a binding".to_owned()) };
    let rule = json!({"apiGroups": [kind.group], "apiVersions": ["v1"], "operations": ["DELETE"], "resources": ["things"],
        "scope": "*"});
    policy["spec"]["matchConstraints"]["resourceRules"] = json!([rule]);
    policy["metadata"]["name"] = name.clone();
    binding["metadata"]["name"] = name.clone();
    binding["spec"]["policyName"] = name;
    ok("a policy", place.client.create::<Value>(&POLICIES, CLUSTER_SCOPED, policy))?;
    ok("its binding", place.client.create::<Value>(&BINDINGS, CLUSTER_SCOPED, binding))?;
    until("the policy to count", || {
        make(place, &kind, "t", true)?;
        Ok(place.client.delete(&kind, &place.key("t"), &DeleteParams::default()).is_err())
    })?;
    Ok(kind)
}

fn make(place: &Place<'_>, kind: &Resource, name: &str, has_label: bool) -> Outcome {
    if ok("find", place.client.find::<Value>(kind, &place.key(name)))?.is_some() {
        return Ok(());
    }
    let mut object = thing(kind, &json!({"size": 1}));
    object["metadata"]["name"] = json!(name);
    if has_label {
        object["metadata"]["labels"] = json!({PROTECTED: "true"});
    }
    ok("create", place.client.create::<Value>(kind, &place.namespace, &object)).map(drop)
}

fn annotate(place: &Place<'_>, kind: &Resource, name: &str, value: &str) -> Outcome {
    let patch = Patch::Merge(json!({"metadata": {"annotations": {CONFIRMATION: value}}}));
    ok("annotate", place.client.patch::<Value>(kind, &place.key(name), &patch)).map(drop)
}

fn unconfirmed(place: &Place<'_>) -> Outcome {
    let kind = protect(place, true)?;
    let delete = || place.client.delete(&kind, &place.key("t"), &DeleteParams::default());
    let message = refused("no annotation", delete(), 403, "Forbidden")?;
    ensure(
        message.contains("must have a \"confirmation.gardener.cloud/deletion\" annotation to delete"),
        message,
    )?;
    for value in ["", "0", "false", "yes", "tRue", " true"] {
        annotate(place, &kind, "t", value)?;
        refused(value, delete(), 403, "Forbidden")?;
    }
    for value in ["1", "t", "T", "true", "TRUE", "True"] {
        make(place, &kind, "t", true)?;
        annotate(place, &kind, "t", value)?;
        ok(value, delete())?;
    }
    Ok(())
}

fn collections(place: &Place<'_>) -> Outcome {
    let kind = protect(place, true)?;
    make(place, &kind, "u", true)?;
    annotate(place, &kind, "u", "true")?;
    let all = ListParams::default();
    let delete = || place.client.delete_collection(&kind, &place.namespace, &all, &DeleteParams::default());
    refused("one is not confirmed", delete(), 403, "Forbidden")?;
    let left = ok("find", place.client.find::<Value>(&kind, &place.key("t")))?;
    ensure(left.is_some(), "the one that is not confirmed is gone")?;
    annotate(place, &kind, "t", "1")?;
    ok("all are confirmed", delete())?;
    let left = ok("list", place.client.list::<Value>(&kind, &place.namespace, &all))?;
    equal("left", left.items.len(), 0)
}

fn unlabelled(place: &Place<'_>) -> Outcome {
    let kind = protect(place, false)?;
    make(place, &kind, "free", false)?;
    ok("free", place.client.delete(&kind, &place.key("free"), &DeleteParams::default()))?;
    let protected = place.client.delete(&kind, &place.key("t"), &DeleteParams::default());
    refused("protected", protected, 403, "Forbidden").map(drop)
}
