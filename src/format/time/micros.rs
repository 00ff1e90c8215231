//! Lease times (`metav1.MicroTime`, microseconds) for serde:
//! `#[serde(with = "micros")]`, and `#[serde(default, with = "micros::option", skip_serializing_if = "Option::is_none")]`.

use serde::de::Error;
use serde::{Deserialize, Deserializer, Serializer};

use super::Timestamp;

/// Writes RFC 3339.
///
/// # Errors
/// The serializer's.
pub fn serialize<S: Serializer>(at: &Timestamp, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&super::rfc3339_micros(*at))
}

/// Reads RFC 3339.
///
/// # Errors
/// The deserializer's, or a text that names no point in time.
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
    /// The serializer's.
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
    /// The deserializer's, or a text that names no point in time.
    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Timestamp>, D::Error> {
        let text = Option::<String>::deserialize(deserializer)?;
        text.map(|t| crate::format::time::parse_rfc3339(&t).map_err(D::Error::custom)).transpose()
    }
}

#[cfg(test)]
mod tests {
    use super::super::seconds;
    use super::Timestamp;

    #[derive(Debug, PartialEq, serde::Serialize, serde::Deserialize)]
    struct Spec {
        #[serde(with = "super")]
        renew: Timestamp,
        #[serde(default, with = "super::option", skip_serializing_if = "Option::is_none")]
        acquire: Option<Timestamp>,
        #[serde(with = "seconds")]
        created: Timestamp,
        #[serde(default, with = "seconds::option")]
        deleted: Option<Timestamp>,
    }

    #[test]
    fn api_times_are_read_and_written() {
        let text =
            r#"{"renew":"2025-07-26T03:20:00.000001Z","created":"2025-07-26T03:20:00Z","deleted":null}"#;
        let spec: Spec = serde_json::from_str(text).unwrap();
        assert_eq!(spec.renew.unix_nanos(), 1_753_500_000_000_001_000);
        assert_eq!((spec.acquire, spec.deleted), (None, None));
        assert_eq!(serde_json::to_string(&spec).unwrap(), text);
        assert!(serde_json::from_str::<Spec>(r#"{"renew":"now","created":"now"}"#).is_err());
    }
}
