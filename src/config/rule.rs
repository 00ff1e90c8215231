//! Rules that look at one field alone.

use std::net::IpAddr;

use serde_json::Value;

use super::scalar;

/// What a value must fulfil beyond its type. Empty texts fulfil every rule but [`Rule::Required`], as in Go, where they
/// are the same as absent ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rule {
    Any,
    /// Present and not empty wherever its parent is present.
    Required,
    NonNegative,
    /// From the first to the last, both included.
    Range(i64, i64),
    AtLeastSeconds(i64),
    OneOf(&'static [&'static str]),
    Ip,
    DnsLabel,
    /// A DNS name.
    Subdomain,
    QualifiedName,
    Labels,
    AnnotationKeys,
    LabelSelector,
}

impl Rule {
    /// What is wrong with `value`, if anything.
    pub(super) fn complaint(self, value: &Value) -> Option<String> {
        match self {
            Self::Any => None,
            Self::Required => is_empty(value).then(|| "must not be empty".to_owned()),
            Self::NonNegative => {
                whole(value).filter(|n| *n < 0).map(|n| format!("must not be negative: {n}"))
            }
            Self::Range(min, max) => {
                whole(value).filter(|n| *n < min || *n > max).map(|n| range_complaint(n, min, max))
            }
            Self::AtLeastSeconds(seconds) => scalar::duration_nanos(value.as_str()?)
                .filter(|nanos| *nanos < seconds * 1_000_000_000)
                .map(|_| format!("must be at least {}", scalar::seconds_text(seconds))),
            Self::Labels => map_complaint(value, |key, value| {
                scalar::qualified_name_complaint(key).or_else(|| scalar::label_value_complaint(value))
            }),
            Self::AnnotationKeys => {
                map_complaint(value, |key, _| scalar::qualified_name_complaint(&key.to_lowercase()))
            }
            Self::LabelSelector => scalar::selector_complaint(value),
            _ => {
                self.text_complaint(value.as_str().filter(|text| self == Self::DnsLabel || !text.is_empty())?)
            }
        }
    }

    fn text_complaint(self, text: &str) -> Option<String> {
        match self {
            Self::OneOf(choices) if !choices.contains(&text) => {
                Some(format!("unknown value {text:?}; known: {}", choices.join(", ")))
            }
            Self::Ip if text.parse::<IpAddr>().is_err() => Some(format!("{text:?} is not an IP address")),
            Self::DnsLabel => scalar::dns_label_complaint(text),
            Self::Subdomain => scalar::dns_name_complaint(text),
            Self::QualifiedName => scalar::qualified_name_complaint(text),
            _ => None,
        }
    }
}

fn whole(value: &Value) -> Option<i64> {
    value.as_i64()
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        Value::Object(map) => map.is_empty(),
        Value::Array(items) => items.is_empty(),
        _ => false,
    }
}

fn range_complaint(n: i64, min: i64, max: i64) -> String {
    match (min, max) {
        (i64::MIN, max) => format!("must be at most {max}: {n}"),
        (min, i64::MAX) => format!("must be at least {min}: {n}"),
        _ => format!("must be from {min} to {max}: {n}"),
    }
}

fn map_complaint(value: &Value, check: impl Fn(&str, &str) -> Option<String>) -> Option<String> {
    value.as_object()?.iter().find_map(|(key, value)| {
        let complaint = check(key, value.as_str().unwrap_or_default())?;
        Some(format!("{key:?}: {complaint}"))
    })
}
