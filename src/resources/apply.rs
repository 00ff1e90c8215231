//! Brings one object of the cluster to its desired state: GET, then POST or PUT.

use serde_json::Value;

use super::error::Error;
use super::merge::{Terms, merge};
use super::names;
use super::object::{group_of, text};
use super::projected_token;
use super::reference::{Identity, describe, reference};
use super::session::Session;
use super::target::Class;
use super::unchanged::Settled;
use crate::api::core::{NAMESPACE, SERVICE_ACCOUNT};
use crate::api::meta::{Key, Metadata, Resource, annotation, is_true};
use crate::base::json::json;
use crate::base::sorted::SortedMap;
use crate::kube::{self, DeleteParams, ListParams, Propagation};

const AUTOSCALER: Resource =
    Resource::new("autoscaling", "v2", "HorizontalPodAutoscaler", "horizontalpodautoscalers", true);

/// Applies one object. `make` creates the desired object with its labels. It may be called several times,
/// because the object is large and is not kept during requests. Returns true if the desired object depends
/// on a ServiceAccount that does not exist yet. Errors: a conflict unchanged; any other error with the
/// name of the object.
pub(super) fn apply(
    session: Session<'_>,
    settled: &Settled,
    make: &dyn Fn() -> Value,
    terms: Terms<'_>,
) -> Result<bool, Error> {
    let mut result = apply_one(session, settled, make, terms);
    if result.as_ref().is_err_and(Error::is_conflict) {
        // The status of a busy object changes all the time: a second try saves the whole ManagedResource from a
        // failure.
        result = apply_one(session, settled, make, terms);
    }
    result.map_err(|error| {
        if error.is_conflict() || error.is_postponed() {
            return error;
        }
        let object = describe(&reference(&make(), &SortedMap::new()));
        Error::Apply { object, source: Box::new(error) }
    })
}

fn apply_one(
    session: Session<'_>,
    settled: &Settled,
    make: &dyn Fn() -> Value,
    mut terms: Terms<'_>,
) -> Result<bool, Error> {
    let object = make();
    if let Some(field) = missing_field(&object) {
        return Err(Error::Incomplete(field));
    }
    let identity = Identity::of_object(&object);
    let (kind, name) = (text(&object["kind"]), text(&object["metadata"]["name"]));
    let namespace = text(&object["metadata"]["namespace"]);
    let resource = session.served(text(&object["apiVersion"]), kind)?;
    let live: Option<Value> = session.target.client.find(&resource, &Key::of(&object))?;
    let ignored = is_true(annotation(&object, names::IGNORE));
    let token = token(session, &object, live.as_ref())?;
    let is_open = matches!(token, Token::Unknown);
    let with_token = |mut object: Value| {
        if let Token::Mounted { expiration_seconds } = token {
            projected_token::mount(&mut object, expiration_seconds);
        }
        object
    };
    let after = match live {
        None => {
            log::info!(kind, namespace, name; "Creating an object");
            // An ignored object is created once and never changed back, so it must not have the annotation that
            // announces this.
            let new = with_token(object);
            let new = if ignored { new } else { merge(new, terms, None) };
            session.create(&resource, &new)?
        }
        Some(_) if ignored => return Ok(false),
        Some(live) => {
            terms.autoscaled = is_autoscaled(session, &object, &live)?;
            log::debug!(kind, namespace, name; "Comparing an object");
            let merged = merge(with_token(object), terms, Some(&live));
            if settled.is(&identity, &live, &merged) {
                return Ok(is_open);
            }
            replace(session, &resource, &merged, live)?
        }
    };
    forget_kinds(session, &after);
    settled.remember(&identity, &after, &merge(with_token(make()), terms, Some(&after)));
    Ok(is_open)
}

/// What happens to the token of a workload's pods.
#[derive(Clone, Copy)]
enum Token {
    Left,
    Mounted {
        expiration_seconds: i64,
    },
    /// The ServiceAccount does not exist yet. No pod can be created before it exists, and then its pods
    /// might have no token.
    Unknown,
}

/// Sends no requests for objects without pods.
fn token(session: Session<'_>, object: &Value, live: Option<&Value>) -> Result<Token, Error> {
    let Some(account) = projected_token::account(object) else { return Ok(Token::Left) };
    let namespace = text(&object["metadata"]["namespace"]);
    let is_of_shoot = session.target.class != Class::Seed;
    if is_of_shoot && !projected_token::is_served_in_shoot(namespace) {
        return Ok(Token::Left);
    }
    let is_mounted = match projected_token::decided(live) {
        Some(decided) => decided,
        None => {
            let found: Option<Value> =
                session.target.client.find(&SERVICE_ACCOUNT, &Key::new(namespace, account))?;
            let Some(account) = found else { return Ok(Token::Unknown) };
            account["automountServiceAccountToken"] == false
                && (is_of_shoot || is_served(session, namespace)?)
        }
    };
    if !is_mounted {
        return Ok(Token::Left);
    }
    Ok(Token::Mounted { expiration_seconds: projected_token::expiration_seconds(object)? })
}

fn is_served(session: Session<'_>, namespace: &str) -> Result<bool, Error> {
    let found: Option<Metadata> = session.target.client.find(&NAMESPACE, &Key::cluster(namespace))?;
    Ok(found.is_some_and(|namespace| projected_token::is_served(&namespace.metadata)))
}

/// A field that every object must have. Upstream finds out here too, so that all objects before it are applied.
fn missing_field(object: &Value) -> Option<&'static str> {
    let fields = [
        ("apiVersion", &object["apiVersion"]),
        ("kind", &object["kind"]),
        ("metadata.name", &object["metadata"]["name"]),
    ];
    fields.into_iter().find(|(_, value)| text(value).is_empty()).map(|(field, _)| field)
}

/// Looks up kinds again that a definition adds or changes.
fn forget_kinds(session: Session<'_>, object: &Value) {
    if object["kind"] != "CustomResourceDefinition" {
        return;
    }
    let group = text(&object["spec"]["group"]);
    for version in object["spec"]["versions"].as_array().into_iter().flatten() {
        session.target.discovery.forget(&format!("{group}/{}", text(&version["name"])));
    }
}

/// Whether an autoscaler sets the replicas. Sends no requests unless the answer matters.
fn is_autoscaled(session: Session<'_>, object: &Value, live: &Value) -> Result<bool, Error> {
    let (api_version, kind) = (text(&object["apiVersion"]), text(&object["kind"]));
    let is_scaled = matches!(group_of(api_version), "apps" | "extensions")
        && matches!(kind, "Deployment" | "StatefulSet");
    if !is_scaled || object["spec"]["replicas"] == live["spec"]["replicas"] {
        return Ok(false);
    }
    let mut found = false;
    let listed = session.each(
        &AUTOSCALER,
        text(&object["metadata"]["namespace"]),
        &ListParams::default(),
        &mut |scaler| {
            found = scaler
                .is_some_and(|scaler: Value| found || is_target(&scaler["spec"]["scaleTargetRef"], object));
        },
    );
    match listed {
        Err(error) if !error.is_not_found() => Err(error.into()),
        _ => Ok(found),
    }
}

/// A target matches in any version. The groups of workloads count as one, and older clients omit them.
fn is_target(target: &Value, object: &Value) -> bool {
    let group = group_of(text(&target["apiVersion"]));
    target["kind"] == object["kind"]
        && target["name"] == object["metadata"]["name"]
        && matches!(group, "" | "apps" | "extensions")
}

fn replace(session: Session<'_>, resource: &Resource, merged: &Value, live: Value) -> Result<Value, Error> {
    let metadata = &live["metadata"];
    let known = json!({"metadata": {"namespace": metadata["namespace"], "name": metadata["name"],
        "uid": metadata["uid"]}});
    drop(live);
    match session.replace(resource, merged) {
        Err(Error::Request(error)) if error.status_code() == Some(422) && may_recreate(merged, &error) => {
            recreate(session, resource, &known, merged, error)
        }
        result => result,
    }
}

/// Whether an object is deleted when its update is invalid: on request, and if it is a ConfigMap or Secret
/// that can never be updated. An immutable one that is invalid for another reason stays, because its
/// replacement would be refused too.
fn may_recreate(merged: &Value, error: &kube::Error) -> bool {
    let is_data =
        merged["apiVersion"] == "v1" && (merged["kind"] == "ConfigMap" || merged["kind"] == "Secret");
    let mut causes = error.failure().into_iter().flat_map(|f| &f.details.causes);
    let is_immutable =
        causes.any(|c| c.reason == "FieldValueForbidden" && c.message.contains("field is immutable when"));
    is_true(annotation(merged, names::DELETE_ON_INVALID_UPDATE)) || (is_data && is_immutable)
}

/// Deletes the object; the next round creates it.
fn recreate(
    session: Session<'_>,
    resource: &Resource,
    live: &Value,
    merged: &Value,
    cause: kube::Error,
) -> Result<Value, Error> {
    let propagation = propagation(merged)?;
    let uid = Some(text(&live["metadata"]["uid"]).to_owned());
    let params = DeleteParams { propagation, uid, ..DeleteParams::default() };
    log::info!(kind = &*resource.kind, name = text(&live["metadata"]["name"]); "Deleting an object after an invalid update");
    match session.delete(resource, live, &params) {
        Err(Error::Request(error)) if error.is_not_found() => {}
        result => result?,
    }
    Err(Error::Recreate(cause))
}

fn propagation(object: &Value) -> Result<Option<Propagation>, Error> {
    match annotation(object, names::PROPAGATION_ON_INVALID_UPDATE) {
        "" => Ok(None),
        "Foreground" => Ok(Some(Propagation::Foreground)),
        "Background" => Ok(Some(Propagation::Background)),
        "Orphan" => Ok(Some(Propagation::Orphan)),
        other => {
            Err(Error::Annotation { name: names::PROPAGATION_ON_INVALID_UPDATE, value: other.to_owned() })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_of_autoscalers() {
        let object = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "x"}});
        let table = [
            ("apps/v1", "Deployment", "x", true),
            ("apps/v1beta2", "Deployment", "x", true),
            ("", "Deployment", "x", true),
            ("extensions/v1beta1", "Deployment", "x", true),
            ("other/v1", "Deployment", "x", false),
            ("apps/v1", "StatefulSet", "x", false),
            ("apps/v1", "Deployment", "y", false),
        ];
        for (api_version, kind, name, expected) in table {
            let target = json!({"apiVersion": api_version, "kind": kind, "name": name});
            assert_eq!(is_target(&target, &object), expected, "{target}");
        }
    }

    #[test]
    fn which_objects_are_recreated() {
        let object = |api_version: &str, kind: &str, annotation: &str| {
            let annotations = json!({"resources.gardener.cloud/delete-on-invalid-update": annotation});
            json!({"apiVersion": api_version, "kind": kind, "metadata": {"annotations": annotations}})
        };
        let error = |reason: &str, message: &str| {
            let cause = kube::error::StatusCause {
                reason: reason.into(),
                message: message.into(),
                field: "data".into(),
            };
            let details = kube::error::StatusDetails { causes: vec![cause], ..Default::default() };
            kube::Error::Api(Box::new(kube::StatusFailure { code: 422, details, ..Default::default() }))
        };
        let fixed = error("FieldValueForbidden", "Forbidden: field is immutable when `immutable` is set");
        let wrong = error("FieldValueInvalid", "Invalid value: \"x\"");
        let table = [
            (object("v1", "ConfigMap", ""), &fixed, true),
            (object("v1", "Secret", ""), &fixed, true),
            (object("v1", "Secret", ""), &wrong, false),
            (object("v1", "Service", ""), &fixed, false),
            (object("v1", "Service", "true"), &wrong, true),
            (object("v1", "Service", "1"), &wrong, true),
            (object("v1", "Service", "no"), &wrong, false),
        ];
        for (merged, error, expected) in table {
            assert_eq!(may_recreate(&merged, error), expected, "{merged} {error}");
        }
    }

    #[test]
    fn propagation_of_that_deletion() {
        let of = |value: &str| {
            propagation(&json!({"metadata": {"annotations": {
            "resources.gardener.cloud/deletion-propagation-on-invalid-update": value}}}))
        };
        assert_eq!(of("").unwrap(), None);
        assert_eq!(of("Foreground").unwrap(), Some(Propagation::Foreground));
        assert_eq!(of("Background").unwrap(), Some(Propagation::Background));
        assert_eq!(of("Orphan").unwrap(), Some(Propagation::Orphan));
        assert!(of("foreground").unwrap_err().text().contains("unknown value \"foreground\""));
    }
}
