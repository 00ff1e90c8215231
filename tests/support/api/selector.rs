//! Label selectors and field selectors, as text in a query.

use serde_json::Value;

use crate::json::entry;

/// One condition of a selector; all of them must hold.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Requirement {
    In(String, Vec<String>),
    NotIn(String, Vec<String>),
    Exists(String),
    Absent(String),
}

impl Requirement {
    /// Whether an object with this value under the key passes.
    pub fn passes(&self, value: impl Fn(&str) -> Option<String>) -> bool {
        match self {
            Self::In(key, values) => value(key).is_some_and(|v| values.contains(&v)),
            Self::NotIn(key, values) => value(key).is_none_or(|v| !values.contains(&v)),
            Self::Exists(key) => value(key).is_some(),
            Self::Absent(key) => value(key).is_none(),
        }
    }

    pub fn key(&self) -> &str {
        match self {
            Self::In(key, _) | Self::NotIn(key, _) | Self::Exists(key) | Self::Absent(key) => key,
        }
    }
}

/// Splits at commas outside of parentheses.
fn split(text: &str) -> Vec<&str> {
    let (mut parts, mut depth, mut start) = (Vec::new(), 0, 0);
    for (i, c) in text.char_indices() {
        match c {
            '(' => depth += 1,
            ')' => depth -= 1,
            ',' if depth == 0 => {
                parts.push(&text[start..i]);
                start = i + 1;
            }
            _ => {}
        }
    }
    parts.push(&text[start..]);
    parts.into_iter().map(str::trim).filter(|p| !p.is_empty()).collect()
}

/// Parses a label selector: `a=b`, `a==b`, `a!=b`, `a in (b,c)`, `a notin (b,c)`, `a`, `!a`.
pub fn parse_labels(text: &str) -> Result<Vec<Requirement>, String> {
    split(text).into_iter().map(parse_label).collect()
}

fn parse_label(part: &str) -> Result<Requirement, String> {
    let one = |key: &str, value: &str| (key.trim().to_owned(), vec![value.trim().to_owned()]);
    if let Some((key, value)) = part.split_once("!=") {
        let (key, values) = one(key, value);
        return Ok(Requirement::NotIn(key, values));
    }
    if let Some((key, value)) = part.split_once("==").or_else(|| part.split_once('=')) {
        let (key, values) = one(key, value);
        return Ok(Requirement::In(key, values));
    }
    if let Some(key) = part.strip_prefix('!') {
        return Ok(Requirement::Absent(key.trim().to_owned()));
    }
    let Some((head, set)) = part.split_once('(') else {
        let ok = !part.contains(char::is_whitespace);
        return ok
            .then(|| Requirement::Exists(part.to_owned()))
            .ok_or(format!("unable to parse requirement: {part}"));
    };
    let set = set.strip_suffix(')').ok_or_else(|| format!("unable to parse requirement: {part}"))?;
    let values = set.split(',').map(|v| v.trim().to_owned()).collect();
    let mut words = head.split_whitespace();
    match (words.next(), words.next(), words.next()) {
        (Some(key), Some("in"), None) => Ok(Requirement::In(key.to_owned(), values)),
        (Some(key), Some("notin"), None) => Ok(Requirement::NotIn(key.to_owned(), values)),
        _ => Err(format!("unable to parse requirement: {part}")),
    }
}

/// Parses a field selector: `a=b`, `a==b`, `a!=b`.
pub fn parse_fields(text: &str) -> Result<Vec<Requirement>, String> {
    let parse = |part: &str| match parse_label(part) {
        Ok(found @ (Requirement::In(..) | Requirement::NotIn(..))) => Ok(found),
        _ => Err(format!("invalid selector: '{part}'; can't understand '{part}'")),
    };
    split(text).into_iter().map(parse).collect()
}

/// Both selectors of a list or watch.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Selector {
    pub labels: Vec<Requirement>,
    /// Key of the query, and pointer to the value in the object.
    pub fields: Vec<(Requirement, &'static str)>,
}

impl Selector {
    pub fn is_empty(&self) -> bool {
        self.labels.is_empty() && self.fields.is_empty()
    }

    pub fn matches(&self, object: &Value) -> bool {
        let label = |key: &str| entry(object, "/metadata/labels", key).map(str::to_owned);
        self.labels.iter().all(|r| r.passes(label))
            && self.fields.iter().all(|(r, pointer)| r.passes(|_| Some(field(object, pointer))))
    }
}

/// A field as the selectors see it: absent means empty.
fn field(object: &Value, pointer: &str) -> String {
    match object.pointer(pointer) {
        Some(Value::String(text)) => text.clone(),
        Some(Value::Null) | None => String::new(),
        Some(other) => other.to_string(),
    }
}

/// Whether the `matchLabels` and `matchExpressions` of a selector inside an object pass.
pub fn matches_spec(selector: &Value, labels: &Value) -> bool {
    let label = |key: &str| labels.get(key).and_then(Value::as_str).map(str::to_owned);
    let pairs = selector["matchLabels"].as_object().into_iter().flatten();
    let mut requirements: Vec<Requirement> = pairs
        .map(|(k, v)| Requirement::In(k.clone(), vec![v.as_str().unwrap_or_default().to_owned()]))
        .collect();
    for expression in selector["matchExpressions"].as_array().into_iter().flatten() {
        let key = expression["key"].as_str().unwrap_or_default().to_owned();
        let values = expression["values"].as_array().into_iter().flatten();
        let values = values.filter_map(Value::as_str).map(str::to_owned).collect();
        requirements.push(match expression["operator"].as_str() {
            Some("In") => Requirement::In(key, values),
            Some("NotIn") => Requirement::NotIn(key, values),
            Some("Exists") => Requirement::Exists(key),
            _ => Requirement::Absent(key),
        });
    }
    requirements.iter().all(|r| r.passes(label))
}

#[test]
fn selectors_follow_the_query_syntax() {
    let object =
        serde_json::json!({"metadata": {"name": "x", "labels": {"a": "1", "b/c": "2"}}, "spec": {"n": 3}});
    let table = [
        ("a=1", true),
        ("a==1,b/c=2", true),
        ("a!=1", false),
        ("z!=1", true),
        ("a in (1, 2),b/c", true),
        ("a notin (1)", false),
        ("!a", false),
        ("!z,a", true),
        ("", true),
    ];
    for (text, expected) in table {
        let selector = Selector { labels: parse_labels(text).unwrap(), fields: Vec::new() };
        assert_eq!(selector.matches(&object), expected, "{text}");
    }
    let fields = parse_fields("spec.n=3").unwrap().into_iter().map(|r| (r, "/spec/n")).collect();
    assert!(Selector { labels: Vec::new(), fields }.matches(&object));
    assert!(parse_fields("metadata.name").is_err());
    assert!(parse_labels("a in 1").is_err());
}
