//! Expands values that are templates themselves: values of a deployment may refer to data of Secrets and ConfigMaps.

use serde_json::{Map, Value as Json};

use super::template::{Options, Templates};
use super::value::{Numbers, Value};

/// Expands every text in a value, including keys, as a template with `data`. A name that `data` does not have
/// is an error. Unlike upstream, which has only Go's functions here, templates may use Helm's functions too.
/// Errors: the place and the problem.
pub(super) fn expand(value: &Json, data: &Json) -> Result<Json, String> {
    let data = Value::from_json(data, Numbers::Int64);
    // All texts together are one rendering.
    let options = Options { missing_is_error: true, ..Options::default() };
    value_at("", value, &data, &options)
}

fn value_at(path: &str, value: &Json, data: &Value, options: &Options) -> Result<Json, String> {
    match value {
        Json::String(text) => text_at(path, text, data, options).map(Json::String),
        Json::Array(items) => items
            .iter()
            .enumerate()
            .map(|(at, item)| value_at(&format!("{path}[{at}]"), item, data, options))
            .collect(),
        Json::Object(entries) => {
            let mut out = Map::new();
            for (key, value) in entries {
                let dot = if path.is_empty() { "" } else { "." };
                let below = format!("{path}{dot}{key}");
                let value = value_at(&below, value, data, options)?;
                out.insert(text_at(&below, key, data, options)?, value);
            }
            Ok(Json::Object(out))
        }
        other => Ok(other.clone()),
    }
}

fn text_at(path: &str, text: &str, data: &Value, options: &Options) -> Result<String, String> {
    if !text.contains("{{") {
        return Ok(text.to_owned());
    }
    let mut templates = Templates::new(options.clone());
    let result = templates.parse("values", text).and_then(|()| templates.render("values", data));
    result.map_err(|e| format!("{path}: {e}"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn data() -> Json {
        json!({"resources": {
            "creds": {"data": {"token": "t0p", "user.name": "me"}},
            "settings": {"data": {"size": "5"}},
        }})
    }

    #[test]
    fn every_text_is_expanded() {
        let values = json!({
            "plain": "{ {x} }", "number": 5, "none": null, "yes": true,
            "auth": {"{{ .resources.settings.data.size }}": ["Bearer {{ .resources.creds.data.token }}", 1]},
            "dotted": "{{ index .resources.creds.data \"user.name\" }}",
            "branch": "{{ if eq .resources.settings.data.size \"5\" }}five{{ else }}other{{ end }}",
        });
        let expected = json!({
            "plain": "{ {x} }", "number": 5, "none": null, "yes": true,
            "auth": {"5": ["Bearer t0p", 1]}, "dotted": "me", "branch": "five",
        });
        assert_eq!(expand(&values, &data()).unwrap(), expected);
    }

    #[test]
    fn what_is_missing_or_wrong_is_an_error_with_its_place() {
        let table = [
            (
                json!({"a": [{"b": "{{ .resources.creds.data.nope }}"}]}),
                "a[0].b: template: values:1:13: executing \"values\" at <.resources.creds.data.nope>: map has no entry \
                 for key \"nope\"",
            ),
            (
                json!({"{{ .resources.other }}": 1}),
                "{{ .resources.other }}: template: values:1:13: executing \"values\" at <.resources.other>: map has no \
                 entry for key \"other\"",
            ),
            (json!({"a": "{{ x"}), "a: template: values:1: function \"x\" not defined"),
        ];
        for (values, expected) in table {
            assert_eq!(expand(&values, &data()).unwrap_err(), expected);
        }
    }
}
