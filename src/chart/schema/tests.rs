use serde_json::json;

use super::*;

fn problems(schema: &Value, value: &Value) -> String {
    check_one(schema, value)
}

#[test]
fn keywords_hold_or_are_reported() {
    for (schema, good, bad, message) in [
        (json!({"type": "integer"}), json!(1.0), json!(1.5), "got number, want integer"),
        (json!({"type": ["string", "null"]}), json!(null), json!(1), "got number, want null or string"),
        (json!({"enum": ["a", 1]}), json!(1.0), json!("b"), "value must be one of 'a', 1"),
        (json!({"const": {"a": 1}}), json!({"a": 1.0}), json!({}), "'const' failed"),
        (json!({"minimum": 1, "maximum": 2}), json!(2), json!(3), "maximum: got 3, want 2"),
        (json!({"exclusiveMinimum": 1}), json!(1.1), json!(1), "exclusiveMinimum: got 1, want 1"),
        (
            json!({"minimum": 1, "exclusiveMinimum": true}),
            json!(2),
            json!(1),
            "exclusiveMinimum: got 1, want 1",
        ),
        (json!({"multipleOf": 2}), json!(4), json!(5), "multipleOf: got 5, want 2"),
        (json!({"minLength": 1, "maxLength": 2}), json!("ää"), json!(""), "minLength: got 0, want 1"),
        (json!({"pattern": "^a+$"}), json!("aa"), json!("b"), "'b' does not match pattern '^a+$'"),
        (json!({"maxItems": 1}), json!([1]), json!([1, 2]), "maxItems: got 2, want 1"),
        (json!({"uniqueItems": true}), json!([1, 2]), json!([1, 1.0]), "items at 0 and 1 are equal"),
        (json!({"contains": {"const": 1}}), json!([0, 1]), json!([0]), "no items match contains schema"),
        (json!({"required": ["a", "b"]}), json!({"a": 1, "b": 1}), json!({}), "missing properties 'a', 'b'"),
        (json!({"minProperties": 1}), json!({"a": 1}), json!({}), "minProperties: got 0, want 1"),
        (
            json!({"additionalProperties": false, "properties": {"a": true}}),
            json!({"a": 1}),
            json!({"b": 1}),
            "additional properties 'b' not allowed",
        ),
        (
            json!({"propertyNames": {"pattern": "^a"}}),
            json!({"a": 1}),
            json!({"b": 1}),
            "invalid propertyName 'b'",
        ),
        (
            json!({"dependencies": {"a": ["b"]}}),
            json!({"b": 1}),
            json!({"a": 1}),
            "properties 'b' required, if 'a' exists",
        ),
        (json!({"not": {"type": "string"}}), json!(1), json!("a"), "'not' failed"),
        (
            json!({"oneOf": [{"type": "string"}, {"minLength": 2}]}),
            json!("a"),
            json!("aa"),
            "'oneOf' failed, subschemas 0, 1 matched",
        ),
        (json!(false), json!(1), json!(1), "false schema"),
    ] {
        if schema != json!(false) {
            assert_eq!(problems(&schema, &good), "", "{schema}");
        }
        assert!(
            problems(&schema, &bad).starts_with(&format!("- at '': {message}\n")),
            "{schema}: {}",
            problems(&schema, &bad)
        );
    }
}

#[test]
fn places_and_causes_are_named() {
    let schema = json!({
        "properties": {
            "a": {"items": {"$ref": "#/definitions/n"}},
            "b/c": {"anyOf": [{"type": "string"}, {"$ref": "#word"}]},
            "t": {"prefixItems": [{"type": "string"}], "items": false},
            "i": {"if": {"const": 1}, "then": {"maximum": 0}, "else": {"minimum": 5}},
        },
        "patternProperties": {"^x-": {"type": "boolean"}},
        "definitions": {"n": {"type": "number"}, "w": {"$id": "#word", "type": "null"}},
    });
    let good = json!({"a": [1, 2], "b/c": null, "t": ["x"], "i": 5, "x-y": true});
    assert_eq!(problems(&schema, &good), "");
    let bad = json!({"a": [1, "2"], "b/c": 1, "t": ["x", 1], "i": 2, "x-y": 1});
    assert_eq!(
        problems(&schema, &bad),
        "- at '/a/1': got string, want number\n\
         - at '/b~1c': 'anyOf' failed\n  - at '/b~1c': got number, want string\n  - at '/b~1c': got number, want null\n\
         - at '/i': minimum: got 2, want 5\n\
         - at '/t/0': false schema\n\
         - at '/x-y': got number, want boolean\n"
    );
}

#[test]
fn broken_and_endless_schemas_are_reported() {
    assert_eq!(
        problems(&json!({"$ref": "#/none"}), &json!(1)),
        "schema reference \"#/none\" has no target\n"
    );
    assert_eq!(problems(&json!({"$ref": "#"}), &json!(1)), "the schema takes too long to check\n");
    let wide = json!({"allOf": vec![json!({"$ref": "#"}); 10]});
    assert_eq!(problems(&wide, &json!(1)), "the schema takes too long to check\n");
    assert!(problems(&json!({"pattern": "("}), &json!("a")).starts_with("schema pattern \"(\""));
    assert_eq!(problems(&json!({"$ref": "https://example.com/x.json"}), &json!(1)), "");
}

#[test]
fn references_are_looked_for_once_and_searches_are_counted() {
    // A search passes a long list before it reaches the names.
    let numbers = vec![0; 200_000];
    let named: Vec<Value> = (0..1_000).map(|i| json!({"$anchor": format!("x{i}"), "maximum": i})).collect();
    let one = json!({"a": numbers, "b": named, "items": {"$ref": "#x999"}});
    assert_eq!(problems(&one, &json!(vec![999; 20_000])), "");
    let references: Vec<Value> = (0..1_000).map(|i| json!({"$ref": format!("#x{i}")})).collect();
    let many = json!({"a": numbers, "b": named, "prefixItems": references});
    assert_eq!(problems(&many, &json!([0, 1, 2])), "");
    assert_eq!(problems(&many, &json!(vec![0; 1_000])), "the schema takes too long to check\n");
    let long = json!({"b": "x".repeat(1 << 20), "items": {"$ref": format!("#/{}", "b".repeat(1 << 20))}});
    assert!(problems(&long, &json!([0])).ends_with("has no target\n"));
    let addresses: Vec<Value> = (0..1_000).map(|i| json!({"$ref": format!("x{i}")})).collect();
    let embedded = json!({"a": [{"$id": "y".repeat(1 << 20)}], "b": numbers, "prefixItems": addresses});
    assert_eq!(problems(&embedded, &json!(vec![0; 1_000])), "the schema takes too long to check\n");
}

#[test]
fn sub_charts_are_checked_with_their_own_schemas() {
    let schema = br#"{"required": ["a"]}"#;
    let mut child = Chart { schema: Some(schema.as_slice().into()), ..Chart::default() };
    "c".clone_into(&mut child.metadata.name);
    let mut parent = Chart { children: vec![child], ..Chart::default() };
    "p".clone_into(&mut parent.metadata.name);
    let values = json!({"c": {}});
    let report = check(&parent, values.as_object().unwrap());
    assert_eq!(report.as_deref(), Some("c:\n- at '': missing property 'a'\n"));
    assert_eq!(check(&parent, json!({"c": {"a": 1}}).as_object().unwrap()), None);
}

#[test]
fn editions_differ() {
    let old = "http://json-schema.org/draft-07/schema#";
    for (schema, value, message) in [
        // Keywords of later or earlier editions only.
        (json!({"$schema": "http://json-schema.org/draft-04/schema#", "const": 1}), json!(2), ""),
        (json!({"$schema": old, "dependentRequired": {"a": ["b"]}}), json!({"a": 1}), ""),
        (json!({"$schema": old, "unevaluatedProperties": false}), json!({"a": 1}), ""),
        (json!({"format": "ipv4"}), json!("x"), ""),
        (
            json!({"$schema": old, "format": "ipv4"}),
            json!("x"),
            "- at '': 'x' is not valid ipv4: expected four decimals\n",
        ),
        // Sibling keywords of a reference count since 2019.
        (json!({"$schema": old, "$ref": "#/a", "maximum": 1, "a": true}), json!(2), ""),
        (json!({"$ref": "#/a", "maximum": 1, "a": true}), json!(2), "- at '': maximum: got 2, want 1\n"),
        (
            json!({"$schema": old, "items": [true], "additionalItems": false}),
            json!([1, 2, 3]),
            "- at '': last 2 additionalItem(s) not allowed\n",
        ),
    ] {
        assert_eq!(problems(&schema, &value), message, "{schema}");
    }
}

#[test]
fn parts_without_a_keyword_are_unevaluated() {
    let schema = json!({
        "allOf": [{"properties": {"a": {}}}],
        "anyOf": [{"properties": {"b": {}}, "required": ["b"]}, {"properties": {"c": {}}}],
        "unevaluatedProperties": false,
    });
    assert_eq!(problems(&schema, &json!({"a": 1, "b": 1, "c": 1})), "");
    assert_eq!(problems(&schema, &json!({"a": 1, "d": 1})), "- at '/d': false schema\n");
    let schema =
        json!({"prefixItems": [{}], "contains": {"const": 1}, "unevaluatedItems": {"type": "string"}});
    assert_eq!(problems(&schema, &json!([0, 1, "x", 1])), "");
    assert_eq!(problems(&schema, &json!([0, 1, 2])), "- at '/2': got number, want string\n");
}

#[test]
fn numbers_are_grouped() {
    for (value, shown) in [
        (999_f64, "999"),
        (123_456.5, "123,456.5"),
        (-1_000.0, "-1,000"),
        (1e6, "1×10⁰⁶"),
        (2.5e-5, "2.5×10⁻⁰⁵"),
    ] {
        let schema = json!({"minimum": 1e9});
        let want = format!("- at '': minimum: got {shown}, want 1×10⁰⁹\n");
        assert_eq!(problems(&schema, &json!(value)), want);
    }
}
