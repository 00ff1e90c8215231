//! Subresources that are more than a part of their object: tokens and scales.

use serde_json::{Value, json};

use super::authn::Tokens;
use super::failure::Failure;
use super::write::Patch;
use super::{Api, Target, User, patch};
use crate::encoding::rfc3339;
use crate::json::{entry, list, set, text};

/// POST to `serviceaccounts/<name>/token`.
pub fn token(api: &Api, tokens: &Tokens, target: &Target, mut request: Value) -> Result<Value, Failure> {
    let account = api.get(&Target { subresource: String::new(), ..target.clone() })?;
    let lifetime_s = request["spec"]["expirationSeconds"].as_i64().unwrap_or(3_600);
    if lifetime_s < 600 {
        let why = "Invalid value: may not specify a duration less than 10 minutes";
        return Err(Failure::invalid(
            "authentication.k8s.io",
            "TokenRequest",
            "",
            "spec.expirationSeconds",
            why,
        ));
    }
    let mut audiences: Vec<String> =
        list(&request, "/spec/audiences").iter().filter_map(Value::as_str).map(str::to_owned).collect();
    if audiences.is_empty() {
        audiences = tokens.audiences();
    }
    let now = api.clock.now();
    let token = tokens.issue(&account, &audiences, now, lifetime_s);
    let until = rfc3339(now.plus(std::time::Duration::from_secs(lifetime_s.unsigned_abs())));
    set(&mut request, "/spec/audiences", json!(audiences));
    set(&mut request, "/spec/expirationSeconds", lifetime_s);
    set(&mut request, "/status", json!({"token": token, "expirationTimestamp": until}));
    set(&mut request, "/kind", "TokenRequest");
    set(&mut request, "/apiVersion", "authentication.k8s.io/v1");
    Ok(request)
}

/// The annotation of a pod that holds the log of its container.
pub const LOG: &str = "test.gardener.cloud/log";

/// GET of a log.
pub fn log(api: &Api, target: &Target) -> Result<String, Failure> {
    let pod = api.get(&Target { subresource: String::new(), ..target.clone() })?;
    let log = entry(&pod, "/metadata/annotations", LOG).map(str::to_owned);
    log.ok_or_else(|| {
        let name = &target.name;
        Failure::bad_request(format!(
            "pod {name:?} has no log: no containers run behind this API server of the tests"
        ))
    })
}

/// The annotation of a node whose kubelet cannot be reached: why.
pub const UNREACHED: &str = "test.gardener.cloud/unreached";

/// GET of anything from the kubelet of a node.
pub fn kubelet(api: &Api, target: &Target) -> Result<String, Failure> {
    let node = api.get(&Target { subresource: String::new(), ..target.clone() })?;
    match entry(&node, "/metadata/annotations", UNREACHED) {
        None => Ok("ok".to_owned()),
        Some(why) => {
            Err(Failure::new(503, "ServiceUnavailable", format!("error trying to reach service: {why}")))
        }
    }
}

fn scale_of(object: &Value) -> Value {
    let metadata = &object["metadata"];
    let selector = object["spec"]["selector"]["matchLabels"].as_object().into_iter().flatten();
    let selector: Vec<String> =
        selector.map(|(k, v)| format!("{k}={}", v.as_str().unwrap_or_default())).collect();
    let field = |pointer: &str| object.pointer(pointer).and_then(Value::as_i64).unwrap_or(0);
    json!({"kind": "Scale", "apiVersion": "autoscaling/v1", "metadata": {"name": metadata["name"],
        "namespace": metadata["namespace"], "uid": metadata["uid"], "resourceVersion": metadata["resourceVersion"],
        "creationTimestamp": metadata["creationTimestamp"]},
        "spec": {"replicas": field("/spec/replicas")},
        "status": {"replicas": field("/status/replicas"), "selector": selector.join(",")}})
}

/// GET of a scale.
pub fn get_scale(api: &Api, target: &Target) -> Result<Value, Failure> {
    Ok(scale_of(&api.get(&Target { subresource: String::new(), ..target.clone() })?))
}

/// PATCH of a scale. As in a real server, a concurrent write causes no conflict unless the patch names a
/// version: the patch is applied again, five times at most.
pub fn patch_scale(api: &Api, target: &Target, patch: &Patch, user: &User) -> Result<Value, Failure> {
    let attempt = || set_scale(api, target, |scale| apply(scale, patch), user);
    (1..5)
        .map(|_| attempt())
        .find(|result| !matches!(result, Err(failure) if failure.code == 409))
        .unwrap_or_else(attempt)
}

/// PUT of a scale.
pub fn set_scale(
    api: &Api,
    target: &Target,
    change: impl FnOnce(&mut Value) -> Result<(), Failure>,
    user: &User,
) -> Result<Value, Failure> {
    let of = Target { subresource: String::new(), ..target.clone() };
    let mut scale = scale_of(&api.get(&of)?);
    change(&mut scale)?;
    let Some(replicas) = scale["spec"]["replicas"].as_i64().filter(|n| *n >= 0) else {
        return Err(target.invalid("spec.replicas", "Invalid value: must be greater than or equal to 0"));
    };
    let mut body = json!({"spec": {"replicas": replicas}});
    let version = text(&scale, "/metadata/resourceVersion");
    if !version.is_empty() {
        set(&mut body, "/metadata/resourceVersion", version);
    }
    Ok(scale_of(&api.patch(&of, &Patch::Merge(body), user)?))
}

/// Applies a patch of any kind to a value that is not stored as such.
fn apply(value: &mut Value, patch: &Patch) -> Result<(), Failure> {
    match patch {
        Patch::Merge(patch) => patch::merge(value, patch),
        Patch::Json(patch) => patch::json_patch(value, patch)?,
        Patch::Strategic(patch) => patch::strategic(value, patch)?,
    }
    Ok(())
}
