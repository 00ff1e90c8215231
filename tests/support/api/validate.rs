//! Checks of metadata that hold for all kinds.

use serde_json::Value;

use super::Target;
use super::failure::Failure;
use crate::json::text;

fn is_dns_label(name: &str, max: usize) -> bool {
    let inner = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
    !name.is_empty()
        && name.len() <= max
        && name.bytes().all(inner)
        && !name.starts_with('-')
        && !name.ends_with('-')
}

fn is_dns_subdomain(name: &str) -> bool {
    name.len() <= 253 && name.split('.').all(|part| is_dns_label(part, 253))
}

/// The part of a label key or the value of a label: up to 63 letters, digits, `-_.`, alphanumeric at both ends.
fn is_label_text(value: &str) -> bool {
    let end = |b: Option<&u8>| b.is_some_and(u8::is_ascii_alphanumeric);
    let bytes = value.as_bytes();
    let inner = |b: &u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.');
    value.len() <= 63 && bytes.iter().all(inner) && end(bytes.first()) && end(bytes.last())
}

fn is_qualified(key: &str) -> bool {
    match key.split_once('/') {
        Some((prefix, name)) => is_dns_subdomain(prefix) && is_label_text(name),
        None => is_label_text(key),
    }
}

/// Checks name, labels and annotations of an object about to be stored.
pub fn metadata(target: &Target, object: &Value) -> Result<(), Failure> {
    let name = text(object, "/metadata/name");
    let (group, kind) = (target.kind.group.as_str(), target.kind.kind.as_str());
    let invalid = |field: &str, why: String| Err(Failure::invalid(group, kind, name, field, &why));
    let fits = match kind {
        "Namespace" => is_dns_label(name, 63),
        "Service" if group.is_empty() => {
            is_dns_label(name, 63) && name.starts_with(|c: char| c.is_ascii_lowercase())
        }
        _ if group == "rbac.authorization.k8s.io" || group == "certificates.k8s.io" => {
            name != "." && name != ".." && !name.contains(['/', '%'])
        }
        _ => is_dns_subdomain(name),
    };
    if !fits {
        let why = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', \
                   and must start and end with an alphanumeric character";
        return invalid("metadata.name", format!("Invalid value: {name:?}: {why}"));
    }
    for (key, value) in object.pointer("/metadata/labels").and_then(Value::as_object).into_iter().flatten() {
        if !is_qualified(key) {
            return invalid(
                "metadata.labels",
                format!("Invalid value: {key:?}: name part must be a qualified name"),
            );
        }
        if !value.as_str().is_some_and(|v| v.is_empty() || is_label_text(v)) {
            return invalid(
                "metadata.labels",
                format!(
                    "Invalid value: {value}: a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.'"
                ),
            );
        }
    }
    let annotations =
        object.pointer("/metadata/annotations").and_then(Value::as_object).into_iter().flatten();
    let size: usize = annotations.map(|(key, value)| key.len() + value.as_str().map_or(0, str::len)).sum();
    if size > 256 << 10 {
        let why = "Too long: may not be more than 262144 bytes";
        return invalid("metadata.annotations", why.to_owned());
    }
    for (key, value) in
        object.pointer("/metadata/annotations").and_then(Value::as_object).into_iter().flatten()
    {
        if !is_qualified(&key.to_lowercase()) {
            return invalid(
                "metadata.annotations",
                format!("Invalid value: {key:?}: name part must be a qualified name"),
            );
        }
        if !value.is_string() {
            return Err(Failure::bad_request(format!(
                "{kind} in version {:?} cannot be handled as a {kind}: json: cannot unmarshal into Go struct field ObjectMeta.metadata.annotations of type string",
                target.version
            )));
        }
    }
    Ok(())
}

#[test]
fn names_and_labels_have_their_grammar() {
    assert!(
        is_dns_subdomain("a-1.b")
            && !is_dns_subdomain("A")
            && !is_dns_subdomain("a..b")
            && !is_dns_subdomain("")
    );
    assert!(is_qualified("gardener.cloud/role") && is_qualified("a_B.c") && !is_qualified("a/b/c"));
    assert!(!is_qualified(&"x".repeat(64)) && !is_label_text("a-"));
}
