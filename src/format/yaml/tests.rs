use serde_json::{Map, json};

use super::*;

#[test]
fn documents_become_json() {
    for (text, value) in [
        ("", json!(null)),
        ("# nothing\n", json!(null)),
        ("a: 1\nb: [x, 2, 1.5, yes, ~]\n", json!({"a": 1, "b": ["x", 2, 1.5, true, null]})),
        ("a: 1\na: 2\n", json!({"a": 2})),
        (
            "y: 1\n2: b\n1.5: c\n1000000.5: d\n",
            json!({"true": 1, "2": "b", "1.5": "c", "1.0000005e+06": "d"}),
        ),
        (
            "a: 1.0\nb: 1e3\nc: 18446744073709551615",
            json!({"a": 1, "b": 1000, "c": 18_446_744_073_709_551_615_u64}),
        ),
        ("a: !!str 12\nb: !!float 3\nd: !x 7", json!({"a": "12", "b": 3, "d": "7"})),
        ("a: !!binary aGk=", json!({"a": "hi"})),
        ("a: !!binary 4oKBgmE=", json!({"a": "\u{2081}\u{fffd}a"})),
        ("a: !!binary 4oJh", json!({"a": "\u{fffd}\u{fffd}a"})),
        ("a: 2020-01-02\n", json!({"a": "2020-01-02"})),
        ("a: &x {b: 1}\nc: *x\n", json!({"a": {"b": 1}, "c": {"b": 1}})),
        ("- 'it''s'\n- \"a\\tb\"\n", json!(["it's", "a\tb"])),
        ("a: |\n  x\n  y\nb: >-\n  x\n  y\n", json!({"a": "x\ny\n", "b": "x y"})),
        ("--- 1\n--- 2\n", json!(1)),
        ("\u{feff}a: 1", json!({"a": 1})),
    ] {
        assert_eq!(parse(text), Ok(value), "{text:?}");
    }
}

#[test]
fn merge_keys_overwrite_what_stands_before_them() {
    let text = "x: &x {a: 1, b: 1}\ny: &y {a: 2}\nm:\n  b: 5\n  <<: [*x, *y]\n  a: 7\nq:\n  \"<<\": 1\n";
    let value = parse(text).unwrap();
    assert_eq!(value["m"], json!({"a": 7, "b": 1}));
    assert_eq!(value["q"], json!({"<<": 1}));
    assert!(parse("a: {<<: 1}").is_err());
    assert!(parse("l: &l [{a: 1}]\nm: {<<: *l}").is_err());
}

#[test]
fn errors_name_line_and_column() {
    for (text, place) in [
        ("a: 1\nb: [1\nc: 2\n", "line 3, column 2: "),
        ("a: b: c", "line 1, column 5: "),
        ("a:\n\t- b", "line 2, column 1: "),
        ("a: .inf", "line 1, column 4: json: unsupported value: +Inf"),
        ("a: 1\n? {b: 1}\n: 1", "line 2, column 3: invalid map key"),
        ("~: 1", "line 1, column 1: unsupported map key of type"),
        ("{{ .Name }}: 1\nb: [\n", "line 3, column 1: did not find expected node content"),
        ("a: *b", "line 1, column 4: unknown anchor referenced"),
        ("a: &a [*a]", "line 1, column 8: anchor value contains itself"),
        ("a: !!int x", "line 1, column 4: cannot decode !!str as a !!int"),
    ] {
        let error = parse(text).unwrap_err().to_string();
        assert!(error.starts_with(place), "{text:?}: {error}");
    }
    let error = parse("a: 1\nb: c: d\n").unwrap_err();
    let text = "error converting YAML to JSON: yaml: line 2: mapping values are not allowed in this context";
    assert_eq!(error.go_text(), text);
}

#[test]
fn only_the_words_of_helm_repeat_the_text() {
    for text in [
        "a: *hunter2",
        "a: &hunter2 [*hunter2]",
        "a: !!int hunter2",
        "!!int hunter2: a",
        "? {password: hunter2}\n: 1",
        "? [hunter2]\n: 1",
        "~: hunter2",
        "~: {password: [hunter2]}",
    ] {
        let error = parse(text).unwrap_err();
        assert!(error.go_text().contains("hunter2"), "{text}: {}", error.go_text());
        assert!(!error.to_string().contains("hunter2"), "{text}: {error}");
    }
}

#[test]
fn a_trailing_backslash_does_not_panic() {
    assert!(parse("a: \"x\\").is_err());
    assert_eq!(parse("a: x\\"), Ok(json!({"a": "x\\"})));
    assert_eq!(parse("a: |\n  x\\"), Ok(json!({"a": "x\\"})));
    assert_eq!(parse("a: |+\n  x\\"), Ok(json!({"a": "x\\"})));
    assert_eq!(parse("a: |-\n  x\\"), Ok(json!({"a": "x\\"})));
    assert!(parse("[!<a>,]").is_err());
    assert_eq!(parse("a: \"(?!<b>,)\""), Ok(json!({"a": "(?!<b>,)"})));
}

#[test]
fn block_scalars_may_end_with_the_text() {
    for (text, value) in [
        ("|\n  x", "x"),
        ("|+\n  x", "x"),
        ("|-\n  x", "x"),
        ("|\n  x\n  ", "x\n"),
        ("|+\n  x\n  ", "x\n"),
        ("|+\n  x\n\n", "x\n\n"),
        ("|\n  x\n    ", "x\n  "),
        (">\n  x\n  y", "x y"),
        ("|", ""),
        ("|\r\n  x\r\n", "x\n"),
    ] {
        assert_eq!(parse(text), Ok(json!(value)), "{text:?}");
    }
}

/// Seeded: a failure prints the seed.
#[test]
fn mutated_documents_are_values_or_errors() {
    const PIECES: [&str; 24] = [
        "\n",
        "  ",
        "- ",
        ": ",
        "? ",
        "|",
        ">",
        "'",
        "\"",
        "\\",
        "[",
        "]",
        "{",
        "}",
        ",",
        "#",
        "&a ",
        "*a",
        "!!str ",
        "<<",
        "---",
        "%",
        "\u{85}",
        "\u{1f600}",
    ];
    let all = "a: &x {b: [1, 'c', \"d\\n\"]}\ne: |-\n  f\n\n  g\nh: >+\n  i\n  j\n? k\n: *x\n<<: *x\n- l\n";
    let usual = concat!(
        "a: b\nc:\n  d: 1\n  # e\n  f:\n  - g: 'x y'\n    h: |\n      i\n        j\n\n  - - k\n    - \"l\\\"\\n\"\n",
        "  m: {n: o, p: q}\nr: [s, t]\nu:\n- v: w:x\n  y:\n  z: -1\n- --b\n",
    );
    for seed in 0u64..16_000 {
        let sample = if seed.is_multiple_of(2) { all } else { usual };
        let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        let mut next = |max: usize| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            usize::try_from(state % 1_000_003).unwrap() % max
        };
        let mut chars: Vec<String> = sample.chars().map(String::from).collect();
        for _ in 0..=next(6) {
            let at = next(chars.len());
            match next(3) {
                0 => chars.truncate(at + 1),
                1 => drop(chars.remove(at)),
                _ => chars.insert(at, PIECES[next(PIECES.len())].to_owned()),
            }
            if chars.is_empty() {
                break;
            }
        }
        let text = chars.concat();
        let result = std::panic::catch_unwind(|| {
            let value = parse(&text);
            let part = parse_part(&text, &["a", "h"]);
            match (&value, &part) {
                (Ok(Value::Object(all)), Ok(Value::Object(some))) => {
                    assert_eq!((some.get("a"), some.get("h")), (all.get("a"), all.get("h")));
                }
                _ => assert_eq!(value, part),
            }
            let inner = parse_part(&text, &["c.d", "h.x"]);
            match (&value, &inner) {
                (Ok(Value::Object(all)), Ok(Value::Object(some))) => {
                    for (key, below) in [("c", "d"), ("h", "x")] {
                        let of = |map: &Map<String, Value>| map.get(key).and_then(|v| v.get(below)).cloned();
                        assert_eq!(of(some), of(all));
                    }
                }
                _ => assert_eq!(value, inner),
            }
            for dialect in [Dialect::V2, Dialect::V3, Dialect::V4] {
                if let Ok(value) = &value {
                    assert_eq!(parse(&emit(value, dialect)).as_ref(), Ok(value));
                }
            }
        });
        assert!(result.is_ok(), "seed {seed}: {text:?}");
    }
}

#[test]
fn depth_and_growth_are_limited() {
    let deep = |n: usize| format!("{}1{}", "[".repeat(n), "]".repeat(n));
    assert!(parse(&deep(128)).is_ok());
    let error = parse(&deep(129)).unwrap_err().to_string();
    assert!(error.contains("nested deeper than 128 levels"), "{error}");
    assert!(parse(&"[".repeat(200_000)).is_err());

    let mut bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
    for i in 1..9 {
        let aliases = vec![format!("*a{}", i - 1); 10].join(", ");
        bomb.push_str(&format!("a{i}: &a{i} [{aliases}]\n"));
    }
    let error = parse(&bomb).unwrap_err().to_string();
    assert!(error.contains("excessive aliasing"), "{error}");
}

#[test]
fn a_broken_document_does_not_hide_the_others() {
    let text = "a: 1\n---\n# only a comment\n---\nb: [\n--- \nc: 3\n---not a separator: 1\n";
    let documents = parse_all(text);
    assert_eq!(documents.len(), 3);
    assert_eq!((documents[0].line, &documents[0].value), (1, &Ok(json!({"a": 1}))));
    let error = documents[1].value.as_ref().unwrap_err();
    assert_eq!((documents[1].line, error.line), (4, 6));
    assert_eq!(documents[2].value, Ok(json!({"c": 3, "---not a separator": 1})));
    assert_eq!(parse_all("").len(), 0);
    assert_eq!(parse_all("---\r\na: 1\r\n---\r\nb: 2\r\n").len(), 2);
}

#[test]
fn the_three_dialects_differ_in_lists_and_folding() {
    let long = "word ".repeat(20) + "end";
    let value = json!({"list": [{"a": [1, [2, 3]]}], "long": long});
    let words = "word ".repeat(20);
    let (head, tail) = (words.trim_end(), "end");
    let v2 = "list:\n- a:\n  - 1\n  - - 2\n    - 3\nlong: ";
    let folded = format!("{}\n  word word word word {tail}\n", "word ".repeat(16).trim_end());
    assert_eq!(emit(&value, Dialect::V2), format!("{v2}{folded}"));
    assert_eq!(emit(&value, Dialect::V4), format!("{v2}{head} {tail}\n"));
    let v3 = "list:\n  - a:\n      - 1\n      - - 2\n        - 3\nlong: ";
    assert_eq!(emit(&value, Dialect::V3), format!("{v3}{head} {tail}\n"));
}

#[test]
fn scalars_are_quoted_only_where_they_must() {
    for (value, text) in [
        (json!(null), "null\n"),
        (json!(""), "\"\"\n"),
        (json!("yes"), "\"yes\"\n"),
        (json!("12"), "\"12\"\n"),
        (json!("1:30"), "\"1:30\"\n"),
        (json!("a: b"), "'a: b'\n"),
        (json!("a:b"), "a:b\n"),
        (json!("it's: x"), "'it''s: x'\n"),
        (json!("a #b"), "'a #b'\n"),
        (json!("a#b"), "a#b\n"),
        (json!("- a"), "'- a'\n"),
        (json!("-a"), "-a\n"),
        (json!("---a"), "'---a'\n"),
        (json!("*a"), "'*a'\n"),
        (json!(" a"), "' a'\n"),
        (json!("ä"), "ä\n"),
        (json!("\u{1f600}"), "\"\\U0001F600\"\n"),
        (json!("a\tb"), "\"a\\tb\"\n"),
        (json!("a\r\nb"), "\"a\\r\\nb\"\n"),
        (json!({}), "{}\n"),
        (json!([]), "[]\n"),
        (json!({"a": {}, "b": []}), "a: {}\nb: []\n"),
        (json!("x\ny"), "|-\n  x\n  y\n"),
        (json!({"a": "x\n"}), "a: |\n  x\n"),
        (json!({"a": "x\n\n", "b": 1}), "a: |+\n  x\n\nb: 1\n"),
        (json!({"a": " x\ny\n"}), "a: |2\n   x\n  y\n"),
        (json!({"a": "x \ny"}), "a: \"x \\ny\"\n"),
        (json!({"a": ["x\ny\n"]}), "a:\n- |\n  x\n  y\n"),
        (json!({"a\nb": 1}), "? |-\n  a\n  b\n: 1\n"),
        (json!({"true": 1, "a b": 2}), "a b: 2\n\"true\": 1\n"),
        (json!([[1, 2], {"a": 1, "b": [3]}]), "- - 1\n  - 2\n- a: 1\n  b:\n  - 3\n"),
    ] {
        assert_eq!(emit(&value, Dialect::V2), text);
        assert_eq!(parse(text), Ok(value), "{text}");
    }
    assert_eq!(emit(&json!({"a": "x\ty\nz"}), Dialect::V2), "a: \"x\\ty\\nz\"\n");
    assert_eq!(emit(&json!({"a": "x\ty\nz"}), Dialect::V3), "a: |-\n  x\ty\n  z\n");
}

#[test]
fn numbers_pass_through_json_in_two_dialects() {
    let value = json!([1_000_000.0, 123_456_789.5, 1e-7, 1e21, 7, -0.5]);
    assert_eq!(emit(&value, Dialect::V2), "- 1000000\n- 1.234567895e+08\n- 1e-07\n- 1e+21\n- 7\n- -0.5\n");
    // Beyond signed 64-bit integers, then beyond unsigned ones.
    let value = json!([9.3e18, -9.3e18, 1e19, 1.8e19, 1.9e19, -0.0]);
    let text =
        "- 9300000000000000000\n- -9.3e+18\n- 10000000000000000000\n- 18000000000000000000\n- 1.9e+19\n- 0\n";
    assert_eq!(emit(&value, Dialect::V2), text);
    let value = json!([1_000_000.0, 123_456_789.5, 1e-7, 1e21, 7, -0.5]);
    assert_eq!(emit(&value, Dialect::V3), "- 1e+06\n- 1.234567895e+08\n- 1e-07\n- 1e+21\n- 7\n- -0.5\n");
}

#[test]
fn long_keys_are_written_with_a_question_mark() {
    let (short, long) = ("k".repeat(128), "k".repeat(129));
    assert_eq!(emit(&json!({ (short.clone()): [1] }), Dialect::V2), format!("{short}:\n- 1\n"));
    assert_eq!(emit(&json!({ (long.clone()): [1] }), Dialect::V2), format!("? {long}\n: - 1\n"));
}

#[test]
fn the_grammar_is_that_of_yaml_1_1() {
    for (text, value) in [
        ("a: b\n  c\n\n  d # no\n", json!({"a": "b c\nd"})),
        ("'a\n\n  b '' c\n '", json!("a\nb ' c ")),
        ("\"a \\\n   b\\x41\\u00e9\\U0001F600\\e\n\n c\"", json!("a bAé\u{1f600}\u{1b}\nc")),
        ("- a\n-\n- - b\n  - c\n-\n  d\n", json!(["a", null, ["b", "c"], "d"])),
        ("k:\n- a\n- b\nl: c\n", json!({"k": ["a", "b"], "l": "c"})),
        ("[a: b, c, {d, e: }, [], 'f': g]", json!([{"a": "b"}, "c", {"d": null, "e": null}, [], {"f": "g"}])),
        ("a: &x 1\nb: [*x, &x 2, *x]\n", json!({"a": 1, "b": [1, 2, 2]})),
        (
            "%YAML 1.1\n%TAG !e! tag:yaml.org,2002:\n---\n- !e!str 1\n- !<tag:yaml.org,2002:int> 2\n- ! 3\n- !x%20y 4\n...\nrest: [",
            json!(["1", 2, "3", "4"]),
        ),
        ("> \n a\n b\n\n   c\n d\n", json!("a b\n\n  c\nd\n")),
        ("|2-\n   a\n  b\n", json!(" a\nb")),
        ("a: |+\n  b\n\n\nc: >-\n  d\n\n  e\n", json!({"a": "b\n\n\n", "c": "d\ne"})),
        ("a\u{85}b", json!("a b")),
        ("'a\u{2028}b'", json!("a\u{2028}b")),
        ("a\r\nb\rc", json!("a b c")),
        ("--- |\n x\n--- y", json!("x\n")),
        ("- 'x'#c\n", json!(["x"])),
        ("{a: 1, <<: {a: 2, b: 3}}", json!({"a": 2, "b": 3})),
        ("&a <<: {b: c}", json!({"b": "c"})),
        ("a:\tb", json!({"a": "b"})),
        ("{\n\ta: b\n}", json!({"a": "b"})),
        ("---\n...\n", json!(null)),
        ("- ? a\n  : b\n- c: d\n  e: f\n", json!([{"a": "b"}, {"c": "d", "e": "f"}])),
        ("a: !!null\nb: !!str\n", json!({"a": null, "b": ""})),
        (".inf: 1\n-.Inf: 2\n1e3: 3\n", json!({"-.inf": 2, ".inf": 1, "1000": 3})),
        ("a: 1 2:3 ?x -y\n", json!({"a": "1 2:3 ?x -y"})),
        ("[a b: c d]", json!([{"a b": "c d"}])),
        ("{a: b:c}", json!({"a": "b:c"})),
        ("{a:b}", json!({"a:b": null})),
        ("{'a':b}", json!({"a": "b"})),
        ("[a b, c: d]]", json!(["a b", {"c": "d"}])),
        // The text after the first node, which is empty here, is not read.
        ("&a &b c", json!(null)),
    ] {
        assert_eq!(parse(text), Ok(value), "{text:?}");
    }
}

#[test]
fn errors_are_worded_as_in_go() {
    let (word, digits) = ("x".repeat(1_100), "found an indentation indicator equal to 0");
    let (long, quoted, bracket) =
        (format!("a: 1\n{word}: 1"), format!("\"{word}\": 1"), format!("{{{word}: 1}}"));
    for (text, message) in [
        ("a: b: c", "yaml: mapping values are not allowed in this context"),
        ("\ta: 1", "yaml: found character that cannot start any token"),
        ("a:\n\t- b", "yaml: line 2: found character that cannot start any token"),
        ("a: 'x", "yaml: found unexpected end of stream"),
        ("a: \"\\q\"", "yaml: found unknown escape character"),
        ("a: \"\\xg\"", "yaml: did not find expected hexdecimal number"),
        ("a: \"\\ud800\"", "yaml: found invalid Unicode character escape code"),
        ("[a, b", "yaml: line 1: did not find expected ',' or ']'"),
        ("{a: 1", "yaml: line 1: did not find expected ',' or '}'"),
        ("{a: [1}", "yaml: did not find expected ',' or ']'"),
        ("[a?b]", "yaml: did not find expected ',' or ']'"),
        ("a: *", "yaml: did not find expected alphabetic or numeric character"),
        ("!e!x a", "yaml: found undefined tag handle"),
        ("!< a", "yaml: did not find expected tag URI"),
        ("!<a b", "yaml: did not find the expected '>'"),
        ("[!<a>,]", "yaml: did not find expected whitespace or line break"),
        ("%FOO\n--- a", "yaml: found unknown directive name"),
        ("%YAML 2.0\n---\n", "yaml: found incompatible YAML document"),
        ("%YAML 1.1\n%YAML 1.1\n---\n", "yaml: line 1: found duplicate %YAML directive"),
        ("%TAG !a! b\n%TAG !a! c\n--- a", "yaml: line 1: found duplicate %TAG directive"),
        ("%YAML 1.1\na", "yaml: line 1: did not find expected <document start>"),
        ("a: |0\n", digits),
        ("a: |x\n", "yaml: did not find expected comment or line break"),
        ("a: |\n \tb\n\tc", "yaml: line 2: found a tab character where an indentation space is expected"),
        ("a\nb: c", "yaml: line 2: mapping values are not allowed in this context"),
        ("- a\nb", "yaml: line 3: could not find expected ':'"),
        ("a: 1\n- b", "yaml: line 1: did not find expected key"),
        ("k\u{1}", "yaml: control characters are not allowed"),
        ("'a\n---\nb'", "yaml: line 2: found unexpected document indicator"),
        ("- - a\n - b", "yaml: line 1: did not find expected '-' indicator"),
        ("a: - b", "yaml: block sequence entries are not allowed in this context"),
        ("*a b", "yaml: unknown anchor 'a' referenced"),
        ("...\n", "yaml: did not find expected node content"),
        ("a: !!int x\nb: [", "yaml: line 2: did not find expected node content"),
        ("~: 1", "unsupported map key of type: %!s(<nil>), key: <nil>, value: 1"),
        ("? a\n: b\n? - c\n", "yaml: invalid map key: []interface {}{\"c\"}"),
        (long.as_str(), "yaml: line 2: could not find expected ':'"),
        (quoted.as_str(), "yaml: mapping values are not allowed in this context"),
        (bracket.as_str(), "yaml: did not find expected ',' or '}'"),
    ] {
        let error = parse(text).unwrap_err().go_text();
        assert!(error.ends_with(message), "{text:?}: {error}");
        assert_eq!(parse_part(text, &["kind"]), parse(text), "{text:?}");
    }
}

#[test]
fn a_part_is_what_was_asked_for() {
    let text = "a: {x: [1, {z: 2}]}\nkind: K\nspec: {l: [a, {b: c}], m: 'x'}\n";
    assert_eq!(parse_part(text, &["a", "kind"]), Ok(json!({"a": {"x": [1, {"z": 2}]}, "kind": "K"})));
    assert_eq!(parse_part("[a, b]", &["a"]), Ok(json!(["a", "b"])));
    for text in [
        "a: {x: 1, w: {x: 2, z: 3}}\nax: 1\na.w: 2\nb: {x: 1}\nkind: {x: 1}\n",
        "a:\n  x: 1\n  w:\n    x: 2\n    z: 3\nb:\n  x: 1\nkind:\n  x: 1\n",
    ] {
        let part = parse_part(text, &["a.w", "kind"]).map(|mut value| {
            value.as_object_mut().unwrap().remove("a.w");
            value
        });
        assert_eq!(part, Ok(json!({"a": {"w": {"x": 2, "z": 3}}, "kind": {"x": 1}})), "{text}");
    }
    assert_eq!(parse_part("a: [x: 1]\nb: 1", &["a.w"]), Ok(json!({"a": [{"x": 1}]})));
    assert_eq!(parse_part("a: 7\nb: 1", &["a.w"]), Ok(json!({"a": 7})));
    assert_eq!(parse_part("text", &["a"]), Ok(json!("text")));
    // A document with anchors is kept completely.
    assert_eq!(parse_part("b: &x 1\na: *x", &["a"]), Ok(json!({"a": 1, "b": 1})));
    assert_eq!(parse_part("<<: {kind: K}", &["kind"]), Ok(json!({"kind": "K"})));
}

#[test]
fn forbidden_characters_count_where_they_are_read() {
    // go-yaml reads in chunks: a document that ends earlier is not affected.
    let far = " ".repeat(2_000);
    assert_eq!(parse(&format!("--- a\n--- b\n{far}\u{1}")), Ok(json!("a")));
    let error = parse(&format!("a: [\n]]{far}\u{1}")).unwrap_err();
    assert_eq!((error.line, error.message.as_ref()), (2, "did not find expected key"));
    let error = parse(&format!("a: b\n{far}c: ä\u{7}")).unwrap_err();
    assert_eq!((error.line, error.column), (2, 2_005));
}

/// Each of these takes far too long if some part is scanned repeatedly.
#[test]
fn long_texts_take_no_longer_than_they_are() {
    let n = 30_000;
    for text in [
        "- ".repeat(n),
        "? ".repeat(n),
        "[".repeat(n),
        "[a, ".repeat(n),
        format!("[{}]", "a,".repeat(n)),
        format!("{}{}", "[".repeat(120), "a,".repeat(n)),
        format!("{{{}}}", "a: b, ".repeat(n)),
        "a: b\n".repeat(n),
        "&a ".repeat(n),
        "!a ".repeat(n),
        "x".repeat(n) + ": 1",
        "'x ".repeat(n),
        "\"\\\n".repeat(n),
        "\"\\x41".repeat(n),
        "\n".repeat(n),
        "a\n".repeat(n),
        "a\n\n".repeat(n),
        "# a\n".repeat(n),
        format!("|+\n{}", " \n".repeat(n)),
        format!(">\n{}", " a\n\n".repeat(n)),
        "\r".repeat(n),
        "\u{2028}".repeat(n),
        "--- a\n".repeat(n),
        format!("a: &a b\n{}", "c: *a\n".repeat(n)),
    ] {
        drop(parse(&text).map(|value| emit(&value, Dialect::V2).len()));
    }
}

#[test]
fn unwanted_values_may_be_wrong() {
    for value in [
        " text\n  more: x",
        "\n  a: 1\n   b: 2",
        "\n  a: 1\n - b",
        " .inf",
        "\n  - .nan",
        " \"\\q\"",
        " |\n   a\n  b",
        " [a, b",
        " *a",
        " x\n\ty",
    ] {
        let text = format!("kind: K\nspec:{value}\nend: x\n");
        let error = parse_part(&text, &["kind"]).unwrap_err();
        assert_eq!(Err(error), parse(&text), "{text}");
        let text = nested(value);
        let error = parse_part(&text, &["kind", "meta.name"]).unwrap_err();
        assert_eq!(Err(error), parse(&text), "{text}");
    }
}

/// A value within a map.
fn nested(value: &str) -> String {
    format!("kind: K\nmeta:\n  skip:{}\n  name: x\nend: y\n", value.replace('\n', "\n  "))
}

#[test]
fn values_after_an_unwanted_one_are_read() {
    for value in [
        "",
        " x",
        "\n  a:\n  - b",
        "\n- a\n- b:\n  c: d",
        " |\n  x\n\n   y\n",
        " {a: b}",
        " \"a\\\"b\"",
        " 'a # b: c'",
        "\n # x",
    ] {
        let text = format!("a: 1\nspec:{value}\nkind: K\nmore:\n  b: 2");
        assert_eq!(parse_part(&text, &["a", "kind"]), Ok(json!({"a": 1, "kind": "K"})), "{text}");
        let broken = format!("{text}\n x");
        assert_eq!(parse_part(&broken, &["a", "kind"]), parse(&broken), "{broken}");
        let text = nested(value);
        let want = json!({"kind": "K", "meta": {"name": "x"}});
        assert_eq!(parse_part(&text, &["kind", "meta.name"]), Ok(want.clone()), "{text}");
        let last = text.replace("  name: x\n", "").replace("meta:\n", "meta:\n  name: x\n");
        assert_eq!(parse_part(&last, &["kind", "meta.name"]), Ok(want), "{last}");
        for broken in [text.replace("  name", " name"), text.replace("end", "- end")] {
            assert_eq!(parse_part(&broken, &["kind", "meta.name"]), parse(&broken), "{broken}");
        }
    }
}
