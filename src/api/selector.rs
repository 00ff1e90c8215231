//! Label selectors: `matchLabels` and `matchExpressions`.

use serde_json::Value;

use super::meta::text;
use crate::base::sorted::SortedMap;

/// Whether a selector matches labels. An empty selector matches all; a selector with an unknown operator matches none.
pub(crate) fn selects(selector: &Value, labels: &SortedMap<String, String>) -> bool {
    matches(selector, &|key| labels.get(key).map(String::as_str), false)
}

/// The same for labels that `label` looks up. `unknown` is the result for an unknown operator.
pub(crate) fn matches<'a>(selector: &Value, label: &dyn Fn(&str) -> Option<&'a str>, unknown: bool) -> bool {
    let exact = selector["matchLabels"].as_object().into_iter().flatten();
    let mut expressions = selector["matchExpressions"].as_array().into_iter().flatten();
    exact.into_iter().all(|(key, wanted)| label(key) == wanted.as_str())
        && expressions.all(|expression| {
            let found = label(text(&expression["key"]));
            let mut values = expression["values"].as_array().into_iter().flatten().map(text);
            match text(&expression["operator"]) {
                "In" => found.is_some_and(|found| values.any(|value| value == found)),
                "NotIn" => found.is_none_or(|found| values.all(|value| value != found)),
                "Exists" => found.is_some(),
                "DoesNotExist" => found.is_none(),
                _ => unknown,
            }
        })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn labels_are_selected_as_in_kubernetes() {
        let labels = [("a", "1"), ("b", "")].map(|(key, value)| (key.to_owned(), value.to_owned())).into();
        let expression = |key: &str, operator: &str, values: &[&str]| json!({"matchExpressions": [{"key": key, "operator": operator, "values": values}]});
        let table = [
            (json!({}), true),
            (json!({"matchLabels": {"a": "1"}}), true),
            (json!({"matchLabels": {"a": "1", "b": ""}}), true),
            (json!({"matchLabels": {"a": "2"}}), false),
            (json!({"matchLabels": {"c": ""}}), false),
            (expression("a", "In", &["2", "1"]), true),
            (expression("c", "In", &["1"]), false),
            (expression("a", "NotIn", &["1"]), false),
            (expression("c", "NotIn", &["1"]), true),
            (expression("b", "Exists", &[]), true),
            (expression("c", "Exists", &[]), false),
            (expression("c", "DoesNotExist", &[]), true),
            (expression("a", "DoesNotExist", &[]), false),
            (expression("a", "Likes", &["1"]), false),
        ];
        for (selector, expected) in table {
            assert_eq!(selects(&selector, &labels), expected, "{selector}");
        }
    }
}
