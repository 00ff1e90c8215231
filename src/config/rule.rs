//! Rules about a single field.

use std::net::IpAddr;

use serde_json::Value;

use super::scalar;
use super::shown::quoted;
use crate::format::cron;

const RATE_MIN: f64 = 0.1;
const RATE_MAX: f64 = 10_000.0;

/// A rule about a value beyond its type. Empty texts fulfil every rule but [`FieldRule::Required`], because Go
/// treats them as absent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FieldRule {
    Any,
    /// Present and not empty if its parent is present.
    Required,
    /// Requests per second: negative for no limit, else high enough that a request is sent before its caller gives up.
    Rate,
    AbsolutePath,
    OneOf(&'static [&'static str]),
    Ip,
    DnsLabel,
    Subdomain,
    QualifiedName,
    Labels,
    AnnotationKeys,
    LabelSelector,
    Cron,
}

impl FieldRule {
    /// The problem of `value`, if any.
    pub(super) fn complaint(self, value: &Value) -> Option<String> {
        match self {
            Self::Any => None,
            Self::Required => is_empty(value).then(|| "must not be empty".to_owned()),
            Self::Rate => value.as_f64().and_then(rate_complaint),
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
                Some(format!("unknown value {}; known: {}", quoted(text), choices.join(", ")))
            }
            Self::AbsolutePath if !text.starts_with('/') => Some(format!(
                "{} is not an absolute path: it would depend on the directory in which the agent is started",
                quoted(text)
            )),
            Self::Cron if cron::Cron::parse(text).is_none() => Some(format!(
                "{} is not a schedule: a schedule has five fields of cron (minute, hour, day, month, weekday), such as \"0 */6 * * *\"",
                quoted(text)
            )),
            Self::Ip if text.parse::<IpAddr>().is_err() => {
                Some(format!("{} is not an IP address", quoted(text)))
            }
            Self::DnsLabel => scalar::dns_label_complaint(text),
            Self::Subdomain => scalar::dns_name_complaint(text),
            Self::QualifiedName => scalar::qualified_name_complaint(text),
            _ => None,
        }
    }
}

fn rate_complaint(rate: f64) -> Option<String> {
    let fits = rate < 0.0 || (RATE_MIN..=RATE_MAX).contains(&rate);
    (!fits).then(|| {
        format!(
            "must be from {RATE_MIN} to {RATE_MAX}, or negative for no limit, not {rate}: a lower rate lets no request \
             through in time, a higher one is no limit; leave it out for the default, 50"
        )
    })
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

fn map_complaint(value: &Value, check: impl Fn(&str, &str) -> Option<String>) -> Option<String> {
    value.as_object()?.iter().find_map(|(key, value)| {
        let complaint = check(key, value.as_str().unwrap_or_default())?;
        Some(format!("{}: {complaint}", quoted(key)))
    })
}
