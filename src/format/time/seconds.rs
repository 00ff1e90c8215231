//! Times of API objects (`metav1.Time`, whole seconds) for serde.

use serde::Serializer;

use super::Timestamp;

/// Writes RFC 3339. Errors: the error of the serializer.
pub(crate) fn serialize<S: Serializer>(at: &Timestamp, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&super::rfc3339(*at))
}
