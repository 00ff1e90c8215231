//! Texts with a format: durations, quantities, names, address ranges. Each `..._complaint` returns the problem, or
//! `None`.

use serde_json::Value;

use super::shown::quoted;
use crate::format::duration;
use crate::format::quantity::Quantity;

/// The nanoseconds of a Go duration such as `1h30m`.
pub(super) fn duration_nanos(text: &str) -> Option<i64> {
    duration::parse_nanos(text).ok()
}

/// `600` becomes `10m`.
pub(super) fn seconds_text(seconds: i64) -> String {
    match (seconds % 3_600, seconds % 60) {
        _ if seconds == 0 => "0s".to_owned(),
        (0, _) => format!("{}h", seconds / 3_600),
        (_, 0) => format!("{}m", seconds / 60),
        _ => format!("{seconds}s"),
    }
}

/// `65536` becomes `64Ki`.
pub(super) fn size_text(bytes: i64) -> String {
    let units = [(1 << 40, "Ti"), (1 << 30, "Gi"), (1 << 20, "Mi"), (1 << 10, "Ki")];
    let unit = units.into_iter().find(|(size, _)| bytes >= *size && bytes % size == 0);
    unit.map_or_else(|| bytes.to_string(), |(size, name)| format!("{}{name}", bytes / size))
}

/// The value of a quantity, rounded up to a whole number. In JSON it may also be a number.
pub(super) fn quantity_value(value: &Value) -> Option<i128> {
    let text = match value {
        Value::String(text) => text.clone(),
        Value::Number(number) => number.to_string(),
        _ => return None,
    };
    Quantity::parse(&text).ok().map(|quantity| quantity.whole())
}

/// A lower-case label of a DNS name, up to 63 characters.
pub(super) fn dns_label_complaint(text: &str) -> Option<String> {
    let fits =
        text.len() <= 63 && is_framed(text, |b| b == b'-', |b| b.is_ascii_lowercase() || b.is_ascii_digit());
    (!fits).then(|| {
        format!(
            "{} is not a DNS label: at most 63 characters a-z, 0-9 and '-', alphanumeric at both ends",
            quoted(text)
        )
    })
}

/// Labels joined by dots, up to 253 characters.
pub(super) fn dns_name_complaint(text: &str) -> Option<String> {
    let is_label = |label| is_framed(label, |b| b == b'-', |b| b.is_ascii_lowercase() || b.is_ascii_digit());
    let fits = text.len() <= 253 && text.split('.').all(is_label);
    (!fits).then(|| format!("{} is not a DNS name: a-z, 0-9 and '-' in labels joined by '.'", quoted(text)))
}

/// Either `name` or `prefix/name`.
pub(super) fn qualified_name_complaint(text: &str) -> Option<String> {
    let (prefix, name) = text.split_once('/').map_or((None, text), |(prefix, name)| (Some(prefix), name));
    if let Some(complaint) = prefix.and_then(dns_name_complaint) {
        return Some(complaint);
    }
    let fits = is_name(name);
    (!fits).then(|| {
        format!("{} is not a qualified name: at most 63 characters a-z, A-Z, 0-9, '-', '_' and '.', alphanumeric at both ends, with an optional DNS name and '/' before", quoted(text))
    })
}

/// Empty, or like the name part of a label key.
pub(super) fn label_value_complaint(text: &str) -> Option<String> {
    let fits = text.is_empty() || is_name(text);
    (!fits).then(|| format!("{} is not a label value: at most 63 characters a-z, A-Z, 0-9, '-', '_' and '.', alphanumeric at both ends", quoted(text)))
}

fn is_name(text: &str) -> bool {
    text.len() <= 63 && is_framed(text, |b| matches!(b, b'-' | b'_' | b'.'), |b| b.is_ascii_alphanumeric())
}

/// Whether the ends are `outer` and the rest is `outer` or `inner`.
fn is_framed(text: &str, inner: impl Fn(u8) -> bool, outer: impl Fn(u8) -> bool) -> bool {
    let bytes = text.as_bytes();
    bytes.first().is_some_and(|b| outer(*b))
        && bytes.last().is_some_and(|b| outer(*b))
        && bytes.iter().all(|b| outer(*b) || inner(*b))
}

/// A Kubernetes label selector: `matchLabels` and `matchExpressions`.
pub(super) fn selector_complaint(value: &Value) -> Option<String> {
    let Some(selector) = value.as_object() else { return Some("expected a label selector".to_owned()) };
    let labels = selector.get("matchLabels").and_then(Value::as_object).into_iter().flatten();
    let mut labels = labels.filter_map(|(key, value)| {
        let value = value.as_str().unwrap_or_default();
        qualified_name_complaint(key).or_else(|| label_value_complaint(value))
    });
    let expressions = selector.get("matchExpressions").and_then(Value::as_array).into_iter().flatten();
    labels.next().or_else(|| expressions.into_iter().find_map(expression_complaint))
}

fn expression_complaint(expression: &Value) -> Option<String> {
    let text = |key: &str| expression.get(key).and_then(Value::as_str).unwrap_or_default();
    let has_values =
        expression.get("values").and_then(Value::as_array).is_some_and(|values| !values.is_empty());
    match (text("operator"), has_values) {
        ("In" | "NotIn", true) | ("Exists" | "DoesNotExist", false) => qualified_name_complaint(text("key")),
        ("In" | "NotIn", false) => Some("operators In and NotIn need values".to_owned()),
        ("Exists" | "DoesNotExist", true) => {
            Some("operators Exists and DoesNotExist take no values".to_owned())
        }
        (other, _) => {
            Some(format!("unknown operator {}; known: In, NotIn, Exists, DoesNotExist", quoted(other)))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_have_their_letters_and_lengths() {
        let long = "a".repeat(64);
        for good in ["a", "edge-1", "0a"] {
            assert_eq!(dns_label_complaint(good), None, "{good}");
        }
        for bad in ["", "-a", "a-", "A", "a.b", "a_b", &long] {
            assert!(dns_label_complaint(bad).is_some(), "{bad}");
        }
        assert_eq!(dns_name_complaint("ingress.edge-1.example.org"), None);
        for bad in ["a..b", ".a", "a.", "A.b", &"a.".repeat(130)] {
            assert!(dns_name_complaint(bad).is_some(), "{bad}");
        }
        for good in ["app", "A_b.c-d", "example.org/App"] {
            assert_eq!(qualified_name_complaint(good), None, "{good}");
        }
        for bad in ["", "a/b/c", "/a", "a/", "Example.org/a", "-a", &long] {
            assert!(qualified_name_complaint(bad).is_some(), "{bad}");
        }
        assert_eq!(label_value_complaint(""), None);
        assert!(label_value_complaint(&long).is_some());
        assert!(label_value_complaint("a b").is_some());
    }

    #[test]
    fn selectors_are_checked_like_the_api_server_does() {
        let complaint = |text: &str| selector_complaint(&serde_json::from_str(text).unwrap());
        for good in [
            r#"{}"#,
            r#"{"matchLabels":{"team":"platform"}}"#,
            r#"{"matchExpressions":[{"key":"a","operator":"In","values":["b"]},{"key":"c","operator":"Exists"}]}"#,
        ] {
            assert_eq!(complaint(good), None, "{good}");
        }
        for bad in [
            r#"[]"#,
            r#"{"matchLabels":{"-team":"platform"}}"#,
            r#"{"matchLabels":{"team":"a b"}}"#,
            r#"{"matchExpressions":[{"key":"a","operator":"In"}]}"#,
            r#"{"matchExpressions":[{"key":"a","operator":"Exists","values":["b"]}]}"#,
            r#"{"matchExpressions":[{"key":"a","operator":"in","values":["b"]}]}"#,
            r#"{"matchExpressions":[{"operator":"Exists"}]}"#,
        ] {
            assert!(complaint(bad).is_some(), "{bad}");
        }
    }
}
