//! Refusals: `Status` objects with the codes, reasons and texts of a real server.

use serde_json::{Value, json};

/// A refused request.
#[derive(Clone, Debug, PartialEq)]
pub struct Failure {
    pub code: u16,
    /// Empty for errors without a reason.
    pub reason: &'static str,
    pub message: String,
    pub details: Option<Value>,
    /// Seconds for the `Retry-After` header.
    pub retry_after_s: Option<u32>,
    /// Where a list can go on.
    pub continue_token: Option<String>,
}

/// The resource that a message names: `secrets`, `seeds.core.gardener.cloud`.
pub fn qualified(group: &str, plural: &str) -> String {
    if group.is_empty() { plural.to_owned() } else { format!("{plural}.{group}") }
}

fn details(group: &str, plural: &str, name: &str) -> Option<Value> {
    let mut details = json!({"name": name, "kind": plural});
    if !group.is_empty() {
        details["group"] = group.into();
    }
    Some(details)
}

impl Failure {
    pub fn new(code: u16, reason: &'static str, message: impl Into<String>) -> Self {
        Self {
            code,
            reason,
            message: message.into(),
            details: None,
            retry_after_s: None,
            continue_token: None,
        }
    }

    pub fn not_found(group: &str, plural: &str, name: &str) -> Self {
        let message = format!("{} {name:?} not found", qualified(group, plural));
        Self { details: details(group, plural, name), ..Self::new(404, "NotFound", message) }
    }

    /// A path below a known group version that names no resource.
    pub fn no_resource() -> Self {
        Self::new(404, "NotFound", "the server could not find the requested resource")
    }

    pub fn already_exists(group: &str, plural: &str, name: &str) -> Self {
        let message = format!("{} {name:?} already exists", qualified(group, plural));
        Self { details: details(group, plural, name), ..Self::new(409, "AlreadyExists", message) }
    }

    pub fn conflict(group: &str, plural: &str, name: &str, why: &str) -> Self {
        let what = qualified(group, plural);
        let message = format!("Operation cannot be fulfilled on {what} {name:?}: {why}");
        Self { details: details(group, plural, name), ..Self::new(409, "Conflict", message) }
    }

    /// The object was changed since it was read.
    pub fn modified(group: &str, plural: &str, name: &str) -> Self {
        let why =
            "the object has been modified; please apply your changes to the latest version and try again";
        Self::conflict(group, plural, name, why)
    }

    pub fn forbidden(group: &str, plural: &str, name: &str, why: &str) -> Self {
        let what = qualified(group, plural);
        let subject = if name.is_empty() { what } else { format!("{what} {name:?}") };
        let message = format!("{subject} is forbidden: {why}");
        Self { details: details(group, plural, name), ..Self::new(403, "Forbidden", message) }
    }

    pub fn unauthorized() -> Self {
        Self::new(401, "Unauthorized", "Unauthorized")
    }

    pub fn bad_request(message: impl Into<String>) -> Self {
        Self::new(400, "BadRequest", message)
    }

    /// One field with an invalid value: `field: why`.
    pub fn invalid(group: &str, kind: &str, name: &str, field: &str, why: &str) -> Self {
        Self::all_invalid(group, kind, name, &[(field.to_owned(), why.to_owned())])
    }

    /// Several fields with invalid values.
    pub fn all_invalid(group: &str, kind: &str, name: &str, fields: &[(String, String)]) -> Self {
        let qualified = if group.is_empty() { kind.to_owned() } else { format!("{kind}.{group}") };
        let reason = |why: &str| match why.split(':').next().unwrap_or_default() {
            "Required value" => "FieldValueRequired",
            "Forbidden" => "FieldValueForbidden",
            "Unsupported value" => "FieldValueNotSupported",
            "Duplicate value" => "FieldValueDuplicate",
            _ => "FieldValueInvalid",
        };
        let cause =
            |(field, why): &(String, String)| json!({"reason": reason(why), "message": why, "field": field});
        let causes: Vec<Value> = fields.iter().map(cause).collect();
        let mut details = json!({"name": name, "kind": kind, "causes": causes});
        if !group.is_empty() {
            details["group"] = group.into();
        }
        let texts: Vec<String> = fields.iter().map(|(field, why)| format!("{field}: {why}")).collect();
        let texts = if texts.len() == 1 { texts.concat() } else { format!("[{}]", texts.join(", ")) };
        let message = format!("{qualified} {name:?} is invalid: {texts}");
        Self { details: Some(details), ..Self::new(422, "Invalid", message) }
    }

    pub fn internal(why: &str) -> Self {
        Self::new(500, "InternalError", format!("Internal error occurred: {why}"))
    }

    pub fn method_not_allowed() -> Self {
        let message = "the server does not allow this method on the requested resource";
        Self::new(405, "MethodNotAllowed", message)
    }

    pub fn unsupported_media_type(accepted: &[&str]) -> Self {
        let message = format!(
            "the body of the request was in an unknown format - accepted media types include: {}",
            accepted.join(", ")
        );
        Self::new(415, "UnsupportedMediaType", message)
    }

    /// The history that a list or watch would need is gone.
    pub fn expired(message: impl Into<String>) -> Self {
        Self::new(410, "Expired", message)
    }

    /// The `Status` object.
    pub fn status(&self) -> Value {
        let mut status = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": self.message, "code": self.code});
        if !self.reason.is_empty() {
            status["reason"] = self.reason.into();
        }
        if let Some(token) = &self.continue_token {
            status["metadata"]["continue"] = token.clone().into();
        }
        if let Some(details) = &self.details {
            status["details"] = details.clone();
        }
        if let Some(seconds) = self.retry_after_s {
            if status["details"].is_null() {
                status["details"] = json!({});
            }
            status["details"]["retryAfterSeconds"] = seconds.into();
        }
        status
    }
}
