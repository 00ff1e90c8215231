//! Fields that are accepted and checked but have no effect, because this version lacks the part that would read them.
//! The agent warns about such a field, unless it has its default or disables something.

use serde_json::Value;

use super::scalar;
use super::schema::{SchemaNode, Type};
use crate::format::view;

/// Fields or blocks of fields, and the missing part.
pub(super) const TABLE: &[(&str, &str)] = &[
    ("{garden,seed}ClientConnection.{acceptContentTypes,contentType}", "this agent speaks JSON"),
    ("shootClientConnection", "the limits of connections to Shoots are fixed"),
    ("controllers.cacheSyncTimeout", "a watch has three minutes for its first list"),
    (
        "controllers.shootStatus",
        "this controller follows updates of workers in place, and this version serves Shoots without workers only",
    ),
    ("debugging.enableContentionProfiling", "this agent has no such profile"),
    ("logging", "this version installs no logging"),
    ("monitoring", "this version installs no monitoring"),
    (
        "{sni.ingress.labels,sni.ingress.serviceExternalIP,exposureClassHandlers}",
        "this version installs no ingress gateway",
    ),
    ("etcdConfig", "this version installs no etcd-druid"),
    (
        "seedConfig.metadata.{generateName,namespace,uid,resourceVersion,selfLink,generation,deletionGracePeriodSeconds,\
         creationTimestamp,deletionTimestamp,ownerReferences,finalizers,managedFields}",
        "only name, labels and annotations of the Seed come from here",
    ),
    ("seedConfig.spec.ingress.controller.providerConfig", "this version installs no ingress controller"),
    (
        "seedConfig.spec.settings.{excessCapacityReservation,loadBalancerServices,verticalPodAutoscaler.featureGates,\
         verticalPodAutoscaler.maxAllowed,persistentVolumeClaimAutoscaler,dependencyWatchdog,topologyAwareRouting,zoneSelection}",
        "the garden stores it, but this version installs no components that it is for",
    ),
];

/// Whether `value` requests something: it differs from an absent field, and does more than disable something.
pub(super) fn asks(value: &Value, node: &SchemaNode) -> bool {
    let default = || view::json(node.field.default.as_bytes()).unwrap_or_default();
    match value {
        Value::Null | Value::Bool(false) => false,
        Value::Array(items) => !items.is_empty(),
        Value::Object(map) if node.children.is_empty() => !map.is_empty() && *value != default(),
        Value::Object(map) => {
            let default = default();
            let is_default = |key: &str, value: &Value| default.get(key) == Some(value);
            let mut known = map.iter().filter_map(|(key, value)| Some((key, value, node.children.get(key)?)));
            known.any(|(key, value, child)| !is_default(key, value) && asks(value, child))
        }
        Value::String(text) if text.is_empty() => false,
        scalar => !is_same(scalar, &default(), node.field.ty),
    }
}

/// `1m` equals `1m0s`, and `1` equals `1.0`.
fn is_same(a: &Value, b: &Value, ty: Type) -> bool {
    let nanos = |value: &Value| value.as_str().and_then(scalar::duration_nanos);
    match ty {
        Type::Duration => nanos(a) == nanos(b),
        Type::Quantity => scalar::quantity_value(a) == scalar::quantity_value(b),
        Type::Float => a.as_f64() == b.as_f64(),
        _ => a == b,
    }
}
