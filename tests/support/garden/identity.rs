//! The subresource `token` of WorkloadIdentities: a JSON web token for other systems. Nothing here checks its signature.

use std::time::Duration;

use serde_json::{Value, json};

use super::authorizer::SEEDS;
use super::kinds::CORE;
use crate::api::failure::Failure;
use crate::api::write::uid;
use crate::api::{Api, Target, User};
use crate::encoding::{base64_url, from_base64, rfc3339};
use crate::json::{list, set, text};

/// The subresource with the kind of its body.
pub const SUBRESOURCES: &[(&str, &str)] = &[("token", "TokenRequest")];
const LIFETIME_MIN_S: u64 = 600;
const LIFETIME_S: u64 = 6 * 3_600;

/// Answers a POST.
pub fn answer(api: &Api, target: &Target, mut body: Value, user: &User) -> Result<Value, Failure> {
    let identity = api.get(&Target { subresource: String::new(), ..target.clone() })?;
    let lifetime_s = body["spec"]["expirationSeconds"].as_u64().unwrap_or(LIFETIME_S);
    if lifetime_s < LIFETIME_MIN_S {
        let why = format!("Invalid value: {lifetime_s}: may not specify a duration shorter than 10 minutes");
        let field = "spec.expirationSeconds";
        return Err(Failure::invalid("security.gardener.cloud", "TokenRequest", "", field, &why));
    }
    let context = body["spec"]["contextObject"].clone();
    if user.is_in(SEEDS) && !context.is_null() {
        resolve(api, &context).map_err(|why| {
            let why = format!(
                "Internal error occurred: failed to issue token: failed to resolve context object: {why}"
            );
            Failure::new(500, "InternalError", why)
        })?;
    }
    let now = api.clock.now();
    let reference =
        json!({"name": target.name, "namespace": target.namespace, "uid": identity["metadata"]["uid"]});
    let subject = format!("gardener.cloud:workloadidentity:{}:{}", target.namespace, target.name);
    let claims = json!({"aud": list(&identity, "/spec/audiences"), "sub": subject, "jti": uid(),
        "iat": now.unix(), "exp": now.unix() + i64::try_from(lifetime_s).unwrap_or(i64::MAX),
        "gardener.cloud": {"workloadIdentity": reference, "context": context["name"]}});
    let head = base64_url(json!({"alg": "none", "typ": "JWT"}).to_string().as_bytes());
    let token = format!("{head}.{}.{}", base64_url(claims.to_string().as_bytes()), base64_url(b"signature"));
    set(&mut body, "/spec/expirationSeconds", lifetime_s);
    set(&mut body, "/status/token", token);
    set(&mut body, "/status/expirationTimestamp", rfc3339(now.plus(Duration::from_secs(lifetime_s))));
    Ok(body)
}

/// The claims of such a token.
pub fn claims(token: &str) -> Option<Value> {
    serde_json::from_slice(&from_base64(token.split('.').nth(1)?)?).ok()
}

/// The context object of the request must exist, with the UID that the request names.
fn resolve(api: &Api, context: &Value) -> Result<(), String> {
    let (kind, name) = (text(context, "/kind"), text(context, "/name"));
    let plural = match kind {
        "BackupBucket" => "backupbuckets",
        "BackupEntry" => "backupentries",
        "Seed" => "seeds",
        "Shoot" => "shoots",
        other => return Err(format!("unsupported GVK for context object: {other}")),
    };
    let object = api.store.get(CORE, plural, text(context, "/namespace"), name);
    let object = object.ok_or_else(|| format!("{plural} {name:?} not found"))?;
    let (asked, real) = (text(context, "/uid"), text(&object, "/metadata/uid"));
    if asked == real {
        return Ok(());
    }
    Err(format!("uid of contextObject ({asked}) and real world {kind} resource ({real}) differ"))
}
