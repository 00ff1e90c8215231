//! Authentication and authorization.

use gardenlet::api::certificates::CERTIFICATE_SIGNING_REQUEST;
use gardenlet::api::core::{SECRET, SERVICE};
use gardenlet::api::meta::{CLUSTER_SCOPED, Key, Resource};
use gardenlet::api::rbac::{CLUSTER_ROLE, CLUSTER_ROLE_BINDING, ROLE, ROLE_BINDING};
use gardenlet::kube::request::ApiRequest;
use gardenlet::kube::{DeleteParams, Patch};
use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair};
use serde_json::{Value, json};

use super::{Named, Outcome, Place, ensure, equal, ok, refused, until};
use crate::encoding::{base64, from_base64};

pub(super) const CHECKS: &[Named] = &[
    ("roles and bindings decide", rbac),
    ("a binding does not change its role", role_ref),
    ("bootstrap tokens are users until they end", bootstrap_tokens),
    ("an approved request is signed", signing),
    ("a request for a certificate cannot be changed", request_is_fixed),
    ("a Service keeps its address", service_address),
];

const REVIEW: Resource =
    Resource::new("authorization.k8s.io", "v1", "SubjectAccessReview", "subjectaccessreviews", false);
const TOKEN_REVIEW: Resource =
    Resource::new("authentication.k8s.io", "v1", "TokenReview", "tokenreviews", false);

fn may(place: &Place<'_>, user: &str, attributes: &Value) -> Result<bool, String> {
    let review = json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview",
        "spec": {"user": user, "groups": ["system:authenticated"], "resourceAttributes": attributes}});
    let answer: Value = ok("review", place.client.create(&REVIEW, CLUSTER_SCOPED, &review))?;
    Ok(answer["status"]["allowed"] == true)
}

/// A role and its binding to a user; cluster-wide, or in the namespace of the check.
fn grant(place: &Place<'_>, user: &str, cluster_wide: bool, rules: &Value) -> Outcome {
    let name = format!("{}-{user}", place.namespace);
    let (namespace, role, binding) = if cluster_wide {
        ("", &CLUSTER_ROLE, &CLUSTER_ROLE_BINDING)
    } else {
        (place.namespace.as_str(), &ROLE, &ROLE_BINDING)
    };
    let object = json!({"apiVersion": role.api_version(), "kind": role.kind, "metadata": {"name": name}, "rules": rules});
    ok("role", place.client.create::<Value>(role, namespace, &object))?;
    let object = json!({"apiVersion": role.api_version(), "kind": binding.kind, "metadata": {"name": name},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": role.kind, "name": name},
        "subjects": [{"kind": "User", "name": user}]});
    let created: Value = ok("binding", place.client.create(binding, namespace, &object))?;
    equal(
        "group of the subject",
        created["subjects"][0]["apiGroup"].as_str(),
        Some("rbac.authorization.k8s.io"),
    )
}

fn rbac(place: &Place<'_>) -> Outcome {
    let (wide, narrow) = (format!("wide-{}", place.namespace), format!("narrow-{}", place.namespace));
    grant(
        place,
        &wide,
        true,
        &json!([
        {"apiGroups": ["apps"], "resources": ["deployments", "*/scale"], "verbs": ["get", "patch"]},
        {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["update"], "resourceNames": ["mine"]}]),
    )?;
    grant(place, &narrow, false, &json!([{"apiGroups": [""], "resources": ["secrets"], "verbs": ["*"]}]))?;
    let ask =
        |user: &str, verb: &str, group: &str, (resource, sub): (&str, &str), namespace: &str, name: &str| {
            let attributes = json!({"verb": verb, "group": group, "resource": resource, "subresource": sub,
            "namespace": namespace, "name": name});
            may(place, user, &attributes)
        };
    let here = place.namespace.as_str();
    until("the grant", || ask(&wide, "get", "apps", ("deployments", ""), here, "x"))?;
    until("the grant", || ask(&narrow, "get", "", ("secrets", ""), here, "x"))?;
    let table = [
        (&wide, "patch", "apps", ("deployments", ""), here, "x", true),
        (&wide, "get", "apps", ("deployments", ""), "other", "x", true),
        (&wide, "list", "apps", ("deployments", ""), here, "", false),
        (&wide, "patch", "apps", ("deployments", "status"), here, "x", false),
        (&wide, "patch", "apps", ("deployments", "scale"), here, "x", true),
        (&wide, "patch", "apps", ("statefulsets", "scale"), here, "x", true),
        (&wide, "get", "", ("deployments", ""), here, "x", false),
        (&wide, "update", "coordination.k8s.io", ("leases", ""), here, "mine", true),
        (&wide, "update", "coordination.k8s.io", ("leases", ""), here, "yours", false),
        (&wide, "update", "coordination.k8s.io", ("leases", ""), here, "", false),
        (&narrow, "deletecollection", "", ("secrets", ""), here, "", true),
        (&narrow, "get", "", ("secrets", ""), "other", "x", false),
        (&narrow, "list", "", ("secrets", ""), "", "", false),
        (&narrow, "get", "", ("configmaps", ""), here, "x", false),
    ];
    for (user, verb, group, resource, namespace, name, expected) in table {
        let found = ask(user, verb, group, resource, namespace, name)?;
        equal(&format!("{user} {verb} {group} {resource:?} {namespace:?} {name:?}"), found, expected)?;
    }
    Ok(())
}

fn role_ref(place: &Place<'_>) -> Outcome {
    grant(place, "somebody", false, &json!([]))?;
    let name = format!("{}-somebody", place.namespace);
    let patch = Patch::Merge(json!({"roleRef": {"name": "other"}}));
    let result = place.client.patch::<Value>(&ROLE_BINDING, &place.key(&name), &patch);
    refused("another role", result, 422, "Invalid").map(drop)
}

fn bootstrap_tokens(place: &Place<'_>) -> Outcome {
    let id = gardenlet::base::random::hex(6);
    let key = Key::new("kube-system", format!("bootstrap-token-{id}"));
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "type": "bootstrap.kubernetes.io/token",
        "metadata": {"name": key.name}, "stringData": {"token-id": id, "token-secret": "0123456789abcdef",
            "usage-bootstrap-authentication": "true", "expiration": "2999-01-01T00:00:00Z"}});
    ok("create", place.client.create::<Value>(&SECRET, &key.namespace, &secret))?;
    let user = |token: String| {
        let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": token}});
        let answer: Value = ok("review", place.client.create(&TOKEN_REVIEW, CLUSTER_SCOPED, &review))?;
        let known = answer["status"]["authenticated"] == true;
        Ok::<_, String>(if known { answer["status"]["user"].clone() } else { Value::Null })
    };
    let right = format!("{id}.0123456789abcdef");
    until("the token to be known", || Ok(!user(right.clone())?.is_null()))?;
    let found = user(right.clone())?;
    equal("user", found["username"].as_str(), Some(format!("system:bootstrap:{id}").as_str()))?;
    equal("groups", &found["groups"], &json!(["system:bootstrappers", "system:authenticated"]))?;
    ensure(user(format!("{id}.0123456789abcdee"))?.is_null(), "a wrong secret is taken")?;
    // 2000-01-01T00:00:00Z: on a real server the token cleaner removes the Secret, too.
    let past = Patch::Merge(json!({"data": {"expiration": base64(b"2000-01-01T00:00:00Z")}}));
    ok("patch", place.client.patch::<Value>(&SECRET, &key, &past))?;
    until("the token to end", || Ok(user(right.clone())?.is_null()))?;
    match place.client.delete(&SECRET, &key, &DeleteParams::default()) {
        Err(e) if !e.is_not_found() => Err(e.to_string()),
        _ => Ok(()),
    }
}

fn request(place: &Place<'_>) -> Result<(String, Value), String> {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, "robot");
    let key = KeyPair::generate().map_err(|e| e.to_string())?;
    let pem = params.serialize_request(&key).and_then(|r| r.pem()).map_err(|e| e.to_string())?;
    let name = format!("{}-robot", place.namespace);
    let object = json!({"apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest",
        "metadata": {"name": name}, "spec": {"request": base64(pem.as_bytes()), "expirationSeconds": 86_400,
            "signerName": "kubernetes.io/kube-apiserver-client", "username": "forged",
            "usages": ["digital signature", "key encipherment", "client auth"]}});
    let created: Value =
        ok("create", place.client.create(&CERTIFICATE_SIGNING_REQUEST, CLUSTER_SCOPED, &object))?;
    Ok((name, created))
}

fn signing(place: &Place<'_>) -> Outcome {
    let (name, created) = request(place)?;
    ensure(created["spec"]["username"] != "forged", "the requester is taken from the object")?;
    let key = Key::cluster(name);
    let patch = |path: String, patch: &Patch| place.client.fetch::<Value>(&ApiRequest::patch(path, patch));
    let approval = Patch::Merge(json!({"status": {"conditions": [
        {"type": "Approved", "status": "True", "reason": "Test", "message": "a test"}]}}));
    let path = CERTIFICATE_SIGNING_REQUEST.object_path(&key);
    let approved = ok("past the subresource", patch(path, &approval))?;
    ensure(approved["status"].get("conditions").is_none(), "approved past the subresource")?;
    let path = CERTIFICATE_SIGNING_REQUEST.subresource_path(&key, "approval");
    let approved = ok("approve", patch(path, &approval))?;
    let condition = &approved["status"]["conditions"][0];
    ensure(
        condition["lastUpdateTime"].is_string() && condition["lastTransitionTime"].is_string(),
        "no times",
    )?;
    let mut pem = String::new();
    until("the certificate", || {
        let found: Value = ok("get", place.client.get(&CERTIFICATE_SIGNING_REQUEST, &key))?;
        let bytes = found["status"]["certificate"].as_str().and_then(from_base64).unwrap_or_default();
        pem = String::from_utf8_lossy(&bytes).into_owned();
        Ok(!pem.is_empty())
    })?;
    let der = crate::encoding::from_pem(&pem).ok_or("no PEM")?;
    let (_, certificate) = x509_parser::parse_x509_certificate(&der).map_err(|e| e.to_string())?;
    let validity = certificate.validity();
    let lifetime_s = validity.not_after.timestamp() - validity.not_before.timestamp();
    // Five minutes before now, for clocks that are behind, to a day after now.
    ensure((86_390..=86_710).contains(&lifetime_s), format!("it lives for {lifetime_s} s"))?;
    ensure(!certificate.is_ca(), "it is a CA")
}

fn request_is_fixed(place: &Place<'_>) -> Outcome {
    let (name, created) = request(place)?;
    let key = Key::cluster(name);
    let patch = Patch::Merge(json!({"spec": {"signerName": "example.org/other", "usages": ["server auth"]}}));
    // Refused or ignored: either way nothing changes.
    let _ = place.client.patch::<Value>(&CERTIFICATE_SIGNING_REQUEST, &key, &patch);
    let found: Value = ok("get", place.client.get(&CERTIFICATE_SIGNING_REQUEST, &key))?;
    equal("spec", &found["spec"], &created["spec"])
}

fn service_address(place: &Place<'_>) -> Outcome {
    let object = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s"},
        "spec": {"selector": {"a": "b"}, "ports": [{"name": "p", "port": 80}]}});
    let created: Value = ok("create", place.client.create(&SERVICE, &place.namespace, &object))?;
    let address = created["spec"]["clusterIP"].clone();
    ensure(address.as_str().is_some_and(|a| !a.is_empty()), "no address")?;
    equal("type", created["spec"]["type"].as_str(), Some("ClusterIP"))?;
    let port = &created["spec"]["ports"][0];
    equal("port", (port["protocol"].as_str(), port["targetPort"].as_i64()), (Some("TCP"), Some(80)))?;
    let mut again = object;
    again["metadata"]["resourceVersion"] = created["metadata"]["resourceVersion"].clone();
    again["spec"]["ports"][0]["port"] = 81.into();
    let put: Value = ok("put", place.client.replace_object(&SERVICE, &place.key("s"), &again))?;
    equal("address", &put["spec"]["clusterIP"], &address)?;
    let patch = Patch::Merge(json!({"spec": {"clusterIP": "10.255.255.1"}}));
    let result = place.client.patch::<Value>(&SERVICE, &place.key("s"), &patch);
    refused("another address", result, 422, "Invalid").map(drop)
}
