//! Times of API objects (`metav1.Time`, whole seconds) for serde:
//! `#[serde(with = "seconds")]`, and `#[serde(default, with = "seconds::option", skip_serializing_if = "Option::is_none")]`.

use serde::de::Error;
use serde::{Deserialize, Deserializer, Serializer};

use super::Timestamp;

/// Writes RFC 3339.
///
/// # Errors
/// The error of the serializer.
pub fn serialize<S: Serializer>(at: &Timestamp, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&super::rfc3339(*at))
}

/// Reads RFC 3339.
///
/// # Errors
/// The error of the deserializer, or a text that is not a point in time.
pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Timestamp, D::Error> {
    let text = String::deserialize(deserializer)?;
    super::parse_rfc3339(&text).map_err(D::Error::custom)
}

/// The same for a time that may be absent or null.
pub mod option {
    use super::{Deserialize, Deserializer, Error, Serializer, Timestamp};

    /// Writes RFC 3339, or null.
    ///
    /// # Errors
    /// The error of the serializer.
    #[allow(clippy::ref_option)] // serde's signature
    pub fn serialize<S: Serializer>(at: &Option<Timestamp>, serializer: S) -> Result<S::Ok, S::Error> {
        match at {
            Some(at) => super::serialize(at, serializer),
            None => serializer.serialize_none(),
        }
    }

    /// Reads RFC 3339, or null.
    ///
    /// # Errors
    /// The error of the deserializer, or a text that is not a point in time.
    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Timestamp>, D::Error> {
        let text = Option::<String>::deserialize(deserializer)?;
        text.map(|t| crate::format::time::parse_rfc3339(&t).map_err(D::Error::custom)).transpose()
    }
}
