use super::*;
use crate::chart::value::{MapKind, Numbers};

const FILE: &str = "t/templates/t.yaml";

/// The values of the tables below, and of those beside the functions.
fn values() -> Value {
    let json = serde_json::json!({
        "n": 3,
        "f": 2.5,
        "big": 1234567,
        "s": "text",
        "t": true,
        "no": false,
        "nil": null,
        "empty": "",
        "zero": 0,
        "list": [
            "b",
            "a",
            "c"
        ],
        "nums": [
            3,
            1,
            2.5
        ],
        "mixed": [
            1,
            null,
            "x",
            true,
            {
                "k": 1
            }
        ],
        "map": {
            "x": 1,
            "y": {
                "z": "deep"
            }
        },
        "emap": {},
        "elist": [],
        "multi": "line1\nline2\n",
        "uni": "Äpfel ß 日本",
        "url": "https://user:pa%20ss@host.example:8443/a/b%20c?q=1&r=2#frag",
        "yaml": "a: 1\nb: [x, y]\n",
        "json": "{\"a\": [1, 2.5, null]}"
    });
    Value::from_json(&json, Numbers::Float64Always)
}

fn context() -> Value {
    let Value::Map(values) = values() else { panic!("values are a map") };
    let chart = [("Name", Value::str("t")), ("Version", Value::str("1.2.3"))];
    let template = [("Name", Value::str(FILE)), ("BasePath", Value::str("t/templates"))];
    Value::map([
        ("Values", values.with_kind(MapKind::Values).into()),
        ("Release", Value::map([("Name", Value::str("rel")), ("Revision", Value::Int(1))])),
        ("Chart", Value::map(chart)),
        ("Template", Value::map(template)),
    ])
}

fn render_on(text: &str, data: &Value) -> Result<String, String> {
    let mut templates = Templates::new(Options::default());
    templates.parse(FILE, text).map_err(|e| e.helm_text())?;
    templates.render(FILE, data).map_err(|e| e.helm_text())
}

/// The output of a template on the values above.
pub(super) fn render(text: &str) -> Result<String, String> {
    render_on(text, &context())
}

/// Compares templates with the output of the real engine; errors are in Helm's layout.
pub(super) fn check_all(cases: &[(&str, Result<&str, &str>)]) {
    for (text, want) in cases {
        let got = render_on(text, &context());
        assert_eq!(got.as_deref().map_err(String::as_str), *want, "{text}");
    }
}

#[test]
fn the_language() {
    check_all(&[
        (
            "{{ .Values.nil.x }}",
            Err(
                "t/templates/t.yaml:1:10\n  executing \"t/templates/t.yaml\" at <.Values.nil.x>:\n    nil pointer evaluating interface {}.x",
            ),
        ),
        (
            "{{ .Values.s.x }}",
            Err(
                "t/templates/t.yaml:1:10\n  executing \"t/templates/t.yaml\" at <.Values.s.x>:\n    can't evaluate field x in type interface {}",
            ),
        ),
        (
            "{{ .Values.missing.deep.er }}",
            Err(
                "t/templates/t.yaml:1:10\n  executing \"t/templates/t.yaml\" at <.Values.missing.deep.er>:\n    nil pointer evaluating interface {}.deep",
            ),
        ),
        (
            "{{ $x := .Values.s }}{{ $x.y }}",
            Err(
                "t/templates/t.yaml:1:26\n  executing \"t/templates/t.yaml\" at <$x.y>:\n    can't evaluate field y in type string",
            ),
        ),
        (r#"{{ $x := .Values.missing }}{{ $x.y.z }}|{{ $x | default "d" }}"#, Ok("|d")),
        (r#"{{ fail "x" }}"#, Err("execution error at (t/templates/t.yaml:1:3): x")),
        (
            "{{ fail 1 }}",
            Err(
                "t/templates/t.yaml:1:8\n  executing \"t/templates/t.yaml\" at <1>:\n    expected string; found 1",
            ),
        ),
        (r#"{{ required "need" .Values.nil }}"#, Err("execution error at (t/templates/t.yaml:1:3): need")),
        (r#"{{ required "need" "" }}"#, Err("execution error at (t/templates/t.yaml:1:3): need")),
        (r#"{{ required "need" 0 }}"#, Ok("0")),
        (
            r#"{{ include "x" . }}"#,
            Err(
                "t/templates/t.yaml:1:3\n  executing \"t/templates/t.yaml\" at <include \"x\" .>:\n    error calling include:\ntemplate: no template \"x\" associated with template \"gotpl\"",
            ),
        ),
        (
            r#"{{ template "x" . }}"#,
            Err(
                "t/templates/t.yaml:1:12\n  executing \"t/templates/t.yaml\" at <{{template \"x\" .}}>:\n    template \"x\" not defined",
            ),
        ),
        (
            r#"{{ define "a" }}{{ fail "deep" }}{{ end }}{{ include "a" . }}"#,
            Err("execution error at (t/templates/t.yaml:1:45): deep"),
        ),
        (
            r#"{{ define "a" }}{{ .Values.nil.x }}{{ end }}{{ include "a" . }}"#,
            Err(
                "t/templates/t.yaml:1:47\n  executing \"t/templates/t.yaml\" at <include \"a\" .>:\n    error calling include:\nt/templates/t.yaml:1:26\n  executing \"a\" at <.Values.nil.x>:\n    nil pointer evaluating interface {}.x",
            ),
        ),
        (
            "{{ define \"a\" }}{{ eq 1 1.0 }}{{ end }}{{ define \"b\" }}\n{{ include \"a\" . }}{{ end }}\n {{ include \"b\" . }}",
            Err(
                r#"template: t/templates/t.yaml:3:4: executing "t/templates/t.yaml" at <include "b" .>: error calling include: template: t/templates/t.yaml:2:3: executing "b" at <include "a" .>: error calling include: template: t/templates/t.yaml:1:19: executing "a" at <eq 1 1.0>: error calling eq: incompatible types for comparison: int and float64"#,
            ),
        ),
        (
            r#"{{ define "a" }}{{ .nil.x }}{{ end }}{{ template "a" .Values }}"#,
            Err(
                "t/templates/t.yaml:1:23\n  executing \"a\" at <.nil.x>:\n    nil pointer evaluating interface {}.x",
            ),
        ),
        (
            r#"{{ tpl "{{ .Values.nil.x }}" . }}"#,
            Err(
                r#"template: t/templates/t.yaml:1:3: executing "t/templates/t.yaml" at <tpl "{{ .Values.nil.x }}" .>: error calling tpl: error during tpl function execution for "{{ .Values.nil.x }}": template: gotpl:1:10: executing "gotpl" at <.Values.nil.x>: nil pointer evaluating interface {}.x"#,
            ),
        ),
        (
            r#"{{ tpl "{{ if }}" . }}"#,
            Err(
                r#"template: t/templates/t.yaml:1:3: executing "t/templates/t.yaml" at <tpl "{{ if }}" .>: error calling tpl: cannot parse template "{{ if }}": template: gotpl:1: missing value for if"#,
            ),
        ),
        (r#"{{ tpl "{{ fail `boo` }}" . }}"#, Err("execution error at (t/templates/t.yaml:1:3): boo")),
        (r#"{{ tpl "{{ .Values.s }} {{ define `q` }}Q{{ end }}{{ include `q` . }}" . }}"#, Ok("text Q")),
        (r#"{{ tpl "" . }}|{{ tpl "{{/* c */}}" . }}|"#, Ok("||")),
        // A broken character stays as it is.
        (r#"{{ tpl (trunc 1 "ü") . | b64enc }}"#, Ok("ww==")),
        (
            "{{ eq .Values.n 1 }}",
            Err(
                r#"template: t/templates/t.yaml:1:3: executing "t/templates/t.yaml" at <eq .Values.n 1>: error calling eq: incompatible types for comparison: float64 and int"#,
            ),
        ),
        (
            r#"{{ eq .Values.n 3.0 }}{{ eq 1 1 }}{{ eq "a" "b" "a" }}{{ eq nil .Values.nil }}{{ eq .Values.map .Values.map }}"#,
            Err(
                r#"template: t/templates/t.yaml:1:81: executing "t/templates/t.yaml" at <eq .Values.map .Values.map>: error calling eq: non-comparable type map[x:%!s(float64=1) y:map[z:deep]]: map[string]interface {}"#,
            ),
        ),
        (
            "{{ eq .Values.list 1 }}",
            Err(
                r#"template: t/templates/t.yaml:1:3: executing "t/templates/t.yaml" at <eq .Values.list 1>: error calling eq: incompatible types for comparison: []interface {} and int"#,
            ),
        ),
        (
            "{{ eq .Values.list .Values.list }}",
            Err(
                r#"template: t/templates/t.yaml:1:3: executing "t/templates/t.yaml" at <eq .Values.list .Values.list>: error calling eq: non-comparable type [b a c]: []interface {}"#,
            ),
        ),
        (
            r#"{{ eq .Values.nil .Values.missing }}{{ eq .Values.nil "x" }}{{ ne .Values.nil "x" }}"#,
            Ok("truefalsetrue"),
        ),
        (
            r#"{{ lt 1 2 }}{{ lt 1.5 2.5 }}{{ lt "a" "b" }}{{ le 1 1 }}{{ gt 2 1 }}{{ ge 1 2 }}"#,
            Ok("truetruetruetruetruefalse"),
        ),
        (
            "{{ lt 1 2.0 }}",
            Err(
                r#"template: t/templates/t.yaml:1:3: executing "t/templates/t.yaml" at <lt 1 2.0>: error calling lt: incompatible types for comparison: int and float64"#,
            ),
        ),
        (
            "{{ lt true false }}",
            Err(
                r#"template: t/templates/t.yaml:1:3: executing "t/templates/t.yaml" at <lt true false>: error calling lt: invalid type for comparison"#,
            ),
        ),
        (
            "{{ lt .Values.nil 1 }}",
            Err(
                r#"template: t/templates/t.yaml:1:3: executing "t/templates/t.yaml" at <lt .Values.nil 1>: error calling lt: invalid type for comparison"#,
            ),
        ),
        (
            "{{ range .Values.s }}{{ end }}",
            Err(
                "t/templates/t.yaml:1:16\n  executing \"t/templates/t.yaml\" at <.Values.s>:\n    range can't iterate over text",
            ),
        ),
        (
            "{{ range .Values.f }}{{ end }}",
            Err(
                "t/templates/t.yaml:1:16\n  executing \"t/templates/t.yaml\" at <.Values.f>:\n    range can't iterate over 2.5",
            ),
        ),
        ("{{ range 3 }}{{ . }}{{ end }}{{ range $i := 2 }}{{ $i }}{{ end }}", Ok("01201")),
        (
            "{{ range $i, $j := 3 }}{{ end }}",
            Err(
                "t/templates/t.yaml:1:19\n  executing \"t/templates/t.yaml\" at <3>:\n    can't use 3 to iterate over more than one variable",
            ),
        ),
        ("{{ range $k, $v := .Values.map }}{{ $k }}={{ $v }};{{ end }}", Ok("x=1;y=map[z:deep];")),
        (
            "{{ range $i, $v := .Values.mixed }}{{ $i }}={{ $v }};{{ end }}",
            Ok("0=1;1=;2=x;3=true;4=map[k:1];"),
        ),
        (
            "{{ range .Values.mixed }}{{ .foo }}{{ end }}",
            Err(
                "t/templates/t.yaml:1:28\n  executing \"t/templates/t.yaml\" at <.foo>:\n    can't evaluate field foo in type interface {}",
            ),
        ),
        ("{{ range .Values.elist }}x{{ else }}e{{ end }}", Ok("e")),
        ("{{ with .Values.map }}{{ .y.z }}{{ else }}no{{ end }}", Ok("deep")),
        ("{{ with .Values.nil }}a{{ else with .Values.s }}{{ . }}{{ end }}", Ok("text")),
        ("{{ nope }}", Err(r#"parse error at (t/templates/t.yaml:1): function "nope" not defined"#)),
        ("{{ $x }}", Err(r#"parse error at (t/templates/t.yaml:1): undefined variable "$x""#)),
        ("{{ if }}{{ end }}", Err("parse error at (t/templates/t.yaml:1): missing value for if")),
        ("{{ end }}", Err("parse error at (t/templates/t.yaml:1): unexpected {{end}}")),
        ("{{ else }}", Err("parse error at (t/templates/t.yaml:1): unexpected {{else}}")),
        ("{{ if true }}", Err("parse error at (t/templates/t.yaml:1): unexpected EOF")),
        (
            "{{ 1 | 2 }}",
            Err("parse error at (t/templates/t.yaml:1): non executable command in pipeline stage 2"),
        ),
        (r#"{{ "a" | }}"#, Ok("a")),
        (r#"{{ | "a" }}"#, Err(r#"parse error at (t/templates/t.yaml:1): unexpected "|" in command"#)),
        ("{{ }}", Err("parse error at (t/templates/t.yaml:1): missing value for command")),
        ("{{ .Values.s | upper | quote }}", Ok(r#""TEXT""#)),
        ("{{ (.Values.s) | upper }}", Ok("TEXT")),
        (r#"{{ (dict "a" (dict "b" 1)).a.b }}"#, Ok("1")),
        (r#"{{ "x".y }}"#, Err(r#"parse error at (t/templates/t.yaml:1): unexpected . after term "\"x\"""#)),
        (
            "{{ nil }}",
            Err(
                "t/templates/t.yaml:1:3\n  executing \"t/templates/t.yaml\" at <nil>:\n    nil is not a command",
            ),
        ),
        ("{{ nil.x }}", Err(r#"parse error at (t/templates/t.yaml:1): unexpected . after term "nil""#)),
        (
            "{{ . nil }}",
            Err(
                "t/templates/t.yaml:1:3\n  executing \"t/templates/t.yaml\" at <.>:\n    can't give argument to non-function .",
            ),
        ),
        (
            "{{ .Values.s 1 }}",
            Err(
                "t/templates/t.yaml:1:10\n  executing \"t/templates/t.yaml\" at <.Values.s>:\n    s is not a method but has arguments",
            ),
        ),
        (
            r#"{{ .Values.s "a" | upper }}"#,
            Err(
                "t/templates/t.yaml:1:10\n  executing \"t/templates/t.yaml\" at <.Values.s>:\n    s is not a method but has arguments",
            ),
        ),
        (
            "{{ 1 2 }}",
            Err(
                "t/templates/t.yaml:1:3\n  executing \"t/templates/t.yaml\" at <1>:\n    can't give argument to non-function 1",
            ),
        ),
        (
            "{{ true }}{{ false }}{{ 'a' }}{{ 0x1F }}{{ 0b11 }}{{ 0o17 }}{{ 017 }}{{ 1_000 }}{{ 1e3 }}{{ 0x1p4 }}{{ -5 }}{{ +5 }}{{ .5 }}",
            Ok("truefalse9731315151000100016-550.5"),
        ),
        ("{{ 08 }}", Err(r#"parse error at (t/templates/t.yaml:1): "08""#)),
        ("{{ 0x }}", Err(r#"parse error at (t/templates/t.yaml:1): "0x""#)),
        ("{{ 1__0 }}", Err(r#"parse error at (t/templates/t.yaml:1): "1__0""#)),
        ("{{ 1_000.5 }}", Ok("1000.5")),
        (
            "{{ 99999999999999999999 }}",
            Err(r#"parse error at (t/templates/t.yaml:1): "99999999999999999999""#),
        ),
        (
            "{{ 18446744073709551615 }}",
            Err(
                "t/templates/t.yaml:1:3\n  executing \"t/templates/t.yaml\" at <18446744073709551615>:\n    18446744073709551615 overflows int",
            ),
        ),
        ("{{ 9223372036854775807 }}", Ok("9223372036854775807")),
        ("{{ 1i }}", Ok("(0+1i)")),
        ("{{ 0i }}", Ok("(0+0i)")),
        ("{{ 1-2.5i }}", Ok("(1-2.5i)")),
        ("{{ 3k }}", Err(r#"parse error at (t/templates/t.yaml:1): "3k""#)),
        (r#"{{ "unterminated }}"#, Err("parse error at (t/templates/t.yaml:1): unterminated quoted string")),
        ("{{ `unterminated }}", Err("parse error at (t/templates/t.yaml:1): unterminated raw quoted string")),
        ("{{ 'x }}", Err("parse error at (t/templates/t.yaml:1): unterminated character constant")),
        ("{{ '' }}", Err("parse error at (t/templates/t.yaml:1): invalid syntax")),
        ("{{ 'ab' }}", Err("parse error at (t/templates/t.yaml:1): 'ab'")),
        (r#"{{ "\q" }}"#, Err("parse error at (t/templates/t.yaml:1): invalid syntax")),
        (r#"{{ "\x41\u00e4\101\"" }}"#, Ok(r#"AäA""#)),
        (r#"{{ "\400" }}"#, Err("parse error at (t/templates/t.yaml:1): invalid syntax")),
        ("{{ $x := 1 }}{{ $x = 2 }}{{ $x }}", Ok("2")),
        (
            "{{ $x = 1 }}",
            Err(
                "t/templates/t.yaml:1:8\n  executing \"t/templates/t.yaml\" at <1>:\n    undefined variable: $x",
            ),
        ),
        ("{{ $x, $y := 1 }}", Err("parse error at (t/templates/t.yaml:1): too many declarations in command")),
        (
            "{{ range $x, $y, $z := list }}{{ end }}",
            Err("parse error at (t/templates/t.yaml:1): too many declarations in range"),
        ),
        (
            "{{ range $x, 1 := list }}{{ end }}",
            Err("parse error at (t/templates/t.yaml:1): range can only initialize variables"),
        ),
        ("{{ if $x := 1 }}{{ $x }}{{ end }}", Ok("1")),
        (
            "{{ if $x := 1 }}{{ end }}{{ $x }}",
            Err(r#"parse error at (t/templates/t.yaml:1): undefined variable "$x""#),
        ),
        ("{{ break }}", Err("parse error at (t/templates/t.yaml:1): {{break}} outside {{range}}")),
        ("{{ range list 1 2 3 }}{{ if eq . 2 }}{{ continue }}{{ end }}{{ . }}{{ end }}", Ok("13")),
        ("{{ range list 1 2 3 }}{{ if eq . 2 }}{{ break }}{{ end }}{{ . }}{{ end }}", Ok("1")),
        ("{{ range list 1 2 }}a{{ range list }}{{ else }}{{ break }}{{ end }}b{{ end }}", Ok("abab")),
        ("{{ range list 1 2 }}a{{ range list }}{{ else }}{{ continue }}{{ end }}b{{ end }}", Ok("aa")),
        ("{{ break 1 }}", Err(r#"parse error at (t/templates/t.yaml:1): unexpected "1" in {{break}}"#)),
        (
            "{{ range list 1 }}{{ break 1 }}{{ end }}",
            Err(r#"parse error at (t/templates/t.yaml:1): unexpected "1" in {{break}}"#),
        ),
        (
            r#"{{ define "a" }}1{{ end }}{{ define "a" }}2{{ end }}"#,
            Err(r#"parse error at (t/templates/t.yaml:1): multiple definition of template "a""#),
        ),
        (r#"{{ define "a" }}1{{ end }}{{ define "a" }} {{ end }}{{ include "a" . }}"#, Ok("1")),
        (r#"{{ define "a" }} {{ end }}{{ define "a" }}1{{ end }}{{ include "a" . }}"#, Ok("1")),
        (
            "{{ define a }}{{ end }}",
            Err(r#"parse error at (t/templates/t.yaml:1): unexpected "a" in define clause"#),
        ),
        (
            r#"{{ define "a" 1 }}{{ end }}"#,
            Err(r#"parse error at (t/templates/t.yaml:1): unexpected "1" in define clause"#),
        ),
        (r#"{{ block "a" . }}[{{ .Values.s }}]{{ end }}"#, Ok("[text]")),
        (
            r#"{{ block "a" }}{{ end }}"#,
            Err("parse error at (t/templates/t.yaml:1): missing value for block clause"),
        ),
        (
            "{{ template a }}",
            Err(r#"parse error at (t/templates/t.yaml:1): unexpected "a" in template clause"#),
        ),
        (
            r#"{{ template "a" 1 2 }}"#,
            Err(
                "t/templates/t.yaml:1:12\n  executing \"t/templates/t.yaml\" at <{{template \"a\" 1 2}}>:\n    template \"a\" not defined",
            ),
        ),
        (
            r#"{{ if true }}{{ define "a" }}{{ end }}{{ end }}"#,
            Err("parse error at (t/templates/t.yaml:1): unexpected <define> in command"),
        ),
        ("{{ (1 }}", Err("parse error at (t/templates/t.yaml:1): unclosed left paren")),
        ("{{ 1) }}", Err("parse error at (t/templates/t.yaml:1): unexpected right paren")),
        ("{{ ) }}", Err("parse error at (t/templates/t.yaml:1): unexpected right paren")),
        ("{{ a:b }}", Err(r#"parse error at (t/templates/t.yaml:1): function "a" not defined"#)),
        ("{{ $x+2 }}", Err("parse error at (t/templates/t.yaml:1): bad character U+002B '+'")),
        ("{{ a,b }}", Err(r#"parse error at (t/templates/t.yaml:1): function "a" not defined"#)),
        (
            "{{ len .Values.s 1 }}",
            Err(
                "t/templates/t.yaml:1:3\n  executing \"t/templates/t.yaml\" at <len>:\n    wrong number of args for len: want 1 got 2",
            ),
        ),
        (
            "{{ len }}",
            Err(
                "t/templates/t.yaml:1:3\n  executing \"t/templates/t.yaml\" at <len>:\n    wrong number of args for len: want 1 got 0",
            ),
        ),
        (
            "{{ upper }}",
            Err(
                "t/templates/t.yaml:1:3\n  executing \"t/templates/t.yaml\" at <upper>:\n    wrong number of args for upper: want 1 got 0",
            ),
        ),
        (
            r#"{{ upper "a" "b" }}"#,
            Err(
                "t/templates/t.yaml:1:3\n  executing \"t/templates/t.yaml\" at <upper>:\n    wrong number of args for upper: want 1 got 2",
            ),
        ),
        (
            r#"{{ "a" | upper "b" }}"#,
            Err(
                "t/templates/t.yaml:1:9\n  executing \"t/templates/t.yaml\" at <upper>:\n    wrong number of args for upper: want 1 got 2",
            ),
        ),
        (
            "{{ printf }}",
            Err(
                "t/templates/t.yaml:1:3\n  executing \"t/templates/t.yaml\" at <printf>:\n    wrong number of args for printf: want at least 1 got 0",
            ),
        ),
        (r#"{{ nindent 2.0 "a" }}"#, Ok("\n  a")),
        (
            r#"{{ nindent 2.5 "a" }}"#,
            Err(
                "t/templates/t.yaml:1:11\n  executing \"t/templates/t.yaml\" at <2.5>:\n    expected integer; found 2.5",
            ),
        ),
        (
            r#"{{ nindent "2" "a" }}"#,
            Err(
                "t/templates/t.yaml:1:11\n  executing \"t/templates/t.yaml\" at <\"2\">:\n    expected integer; found \"2\"",
            ),
        ),
        (
            r#"{{ indent .Values.n "a" }}"#,
            Err(
                "t/templates/t.yaml:1:17\n  executing \"t/templates/t.yaml\" at <.Values.n>:\n    wrong type for value; expected int; got float64",
            ),
        ),
        (r#"{{ indent (int .Values.n) "a" }}"#, Ok("   a")),
        (
            r#"{{ indent (int64 .Values.n) "a" }}"#,
            Err(
                "t/templates/t.yaml:1:24\n  executing \"t/templates/t.yaml\" at <.Values.n>:\n    wrong type for value; expected int; got int64",
            ),
        ),
        (
            "{{ indent 2 nil }}",
            Err(
                "t/templates/t.yaml:1:12\n  executing \"t/templates/t.yaml\" at <nil>:\n    cannot assign nil to string",
            ),
        ),
        (
            "{{ indent 2 .Values.nil }}",
            Err(
                "t/templates/t.yaml:1:19\n  executing \"t/templates/t.yaml\" at <.Values.nil>:\n    wrong type for value; expected string; got interface {}",
            ),
        ),
        (
            "{{ $x := .Values.nil }}{{ indent 2 $x }}",
            Err(
                "t/templates/t.yaml:1:35\n  executing \"t/templates/t.yaml\" at <$x>:\n    invalid value; expected string",
            ),
        ),
        (r#"{{ $x := .Values.nil }}{{ hasKey $x "a" }}"#, Ok("false")),
        (
            r#"{{ hasKey .Values.nil "a" }}"#,
            Err(
                "t/templates/t.yaml:1:17\n  executing \"t/templates/t.yaml\" at <.Values.nil>:\n    wrong type for value; expected map[string]interface {}; got interface {}",
            ),
        ),
        (
            r#"{{ hasKey .Values.s "a" }}"#,
            Err(
                "t/templates/t.yaml:1:17\n  executing \"t/templates/t.yaml\" at <.Values.s>:\n    wrong type for value; expected map[string]interface {}; got string",
            ),
        ),
        (r#"{{ hasKey .Values "s" }}{{ hasKey .Values.map "q" }}"#, Ok("truefalse")),
        (
            r#"{{ $x := .Values.nil }}{{ set $x "a" 1 }}"#,
            Err(
                r#"template: t/templates/t.yaml:1:26: executing "t/templates/t.yaml" at <set $x "a" 1>: error calling set: assignment to entry in nil map"#,
            ),
        ),
        (
            "{{ len .Values.missing }}",
            Err(
                r#"template: t/templates/t.yaml:1:3: executing "t/templates/t.yaml" at <len .Values.missing>: error calling len: len of nil pointer"#,
            ),
        ),
        (
            "{{ $x := .Values.nil }}{{ len $x }}",
            Err(
                r#"template: t/templates/t.yaml:1:26: executing "t/templates/t.yaml" at <len $x>: error calling len: reflect: call of reflect.Value.Type on zero Value"#,
            ),
        ),
        (
            "{{ len 3 }}",
            Err(
                r#"template: t/templates/t.yaml:1:3: executing "t/templates/t.yaml" at <len 3>: error calling len: len of type int"#,
            ),
        ),
        (
            "{{ len nil }}",
            Err(
                r#"template: t/templates/t.yaml:1:3: executing "t/templates/t.yaml" at <len nil>: error calling len: reflect: call of reflect.Value.Type on zero Value"#,
            ),
        ),
        (r#"{{ len .Values.list }}{{ len .Values.map }}{{ len "abc" }}"#, Ok("323")),
        (
            r#"{{ index .Values "s" }}{{ index .Values.list 1 }}{{ index .Values.map "y" "z" }}"#,
            Ok("textadeep"),
        ),
        (
            "{{ index .Values.list 5 }}",
            Err(
                r#"template: t/templates/t.yaml:1:3: executing "t/templates/t.yaml" at <index .Values.list 5>: error calling index: index out of range: 5"#,
            ),
        ),
        (
            "{{ index .Values.list 3 }}",
            Err(
                r#"template: t/templates/t.yaml:1:3: executing "t/templates/t.yaml" at <index .Values.list 3>: error calling index: reflect: slice index out of range"#,
            ),
        ),
        (
            "{{ index .Values.list -1 }}",
            Err(
                r#"template: t/templates/t.yaml:1:3: executing "t/templates/t.yaml" at <index .Values.list -1>: error calling index: index out of range: -1"#,
            ),
        ),
        (
            r#"{{ index .Values.list "a" }}"#,
            Err(
                r#"template: t/templates/t.yaml:1:3: executing "t/templates/t.yaml" at <index .Values.list "a">: error calling index: cannot index slice/array with type string"#,
            ),
        ),
        (
            "{{ index .Values.list nil }}",
            Err(
                r#"template: t/templates/t.yaml:1:3: executing "t/templates/t.yaml" at <index .Values.list nil>: error calling index: cannot index slice/array with nil"#,
            ),
        ),
        (
            "{{ index .Values.map 1 }}",
            Err(
                r#"template: t/templates/t.yaml:1:3: executing "t/templates/t.yaml" at <index .Values.map 1>: error calling index: value has type int; should be string"#,
            ),
        ),
        (
            "{{ index .Values.map nil }}",
            Err(
                r#"template: t/templates/t.yaml:1:3: executing "t/templates/t.yaml" at <index .Values.map nil>: error calling index: value is nil; should be of type string"#,
            ),
        ),
        (r#"{{ index .Values.map "q" }}"#, Ok("")),
        (
            r#"{{ index .Values.map "q" "r" }}"#,
            Err(
                r#"template: t/templates/t.yaml:1:3: executing "t/templates/t.yaml" at <index .Values.map "q" "r">: error calling index: index of nil pointer"#,
            ),
        ),
        (
            r#"{{ index .Values.nil "a" }}"#,
            Err(
                r#"template: t/templates/t.yaml:1:3: executing "t/templates/t.yaml" at <index .Values.nil "a">: error calling index: index of untyped nil"#,
            ),
        ),
        (
            r#"{{ index nil "a" }}"#,
            Err(
                r#"template: t/templates/t.yaml:1:3: executing "t/templates/t.yaml" at <index nil "a">: error calling index: index of untyped nil"#,
            ),
        ),
        (
            "{{ index .Values.n 1 }}",
            Err(
                r#"template: t/templates/t.yaml:1:3: executing "t/templates/t.yaml" at <index .Values.n 1>: error calling index: can't index item of type float64"#,
            ),
        ),
        (r#"{{ index "abc" 1 }}"#, Ok("98")),
        (
            r#"{{ index "abc" 3 }}"#,
            Err(
                r#"template: t/templates/t.yaml:1:3: executing "t/templates/t.yaml" at <index "abc" 3>: error calling index: reflect: string index out of range"#,
            ),
        ),
        (
            "{{ index .Values.list 1.0 }}",
            Err(
                r#"template: t/templates/t.yaml:1:3: executing "t/templates/t.yaml" at <index .Values.list 1.0>: error calling index: cannot index slice/array with type float64"#,
            ),
        ),
        (
            "{{ call .Values.s }}",
            Err(
                r#"template: t/templates/t.yaml:1:3: executing "t/templates/t.yaml" at <call .Values.s>: error calling call: non-function .Values.s of type string"#,
            ),
        ),
        (
            "{{ call nil }}",
            Err(
                r#"template: t/templates/t.yaml:1:3: executing "t/templates/t.yaml" at <call nil>: error calling call: call of nil"#,
            ),
        ),
        ("{{ not .Values.nil }}{{ not 1 }}", Ok("truefalse")),
        (
            "{{ and }}",
            Err(
                "t/templates/t.yaml:1:3\n  executing \"t/templates/t.yaml\" at <and>:\n    wrong number of args for and: want at least 1 got 0",
            ),
        ),
        (
            r#"{{ and 1 0 2 }}{{ or 0 "" "x" 1 }}{{ and 1 2 }}{{ or 0 "" }}|{{ 5 | and 1 }}{{ 5 | or 0 }}"#,
            Ok("0x2|55"),
        ),
        ("{{ and .Values.nil .Values.nil.x }}", Ok("")),
        ("{{ or .Values.s .Values.nil.x }}", Ok("text")),
        (r#"{{ print 1 2 "a" 3 nil }}|{{ println "a" 1 }}|{{ print }}"#, Ok("1 2a3 <nil>|a 1\n|")),
        (
            r#"{{ html "<a&'\">" }}{{ js "<a&'\"=\n" }}{{ urlquery "a b&c/ä" 1 }}"#,
            Ok(r#"&lt;a&amp;&#39;&#34;&gt;\u003Ca\u0026\'\"\u003D\u000Aa+b%26c%2F%C3%A41"#),
        ),
        ("{{ html .Values.nil }}|{{ html nil }}", Ok("&lt;no value&gt;|&lt;no value&gt;")),
        (r#"{{ html 1 "a" 2 3 }}"#, Ok("1a2 3")),
        (
            "{{ .Values.f }} {{ .Values.big }} {{ .Values.nums }} {{ .Values.mixed }} {{ .Values.map }}",
            Ok("2.5 1.234567e+06 [3 1 2.5] [1 <nil> x true map[k:1]] map[x:1 y:map[z:deep]]"),
        ),
        (
            "{{ .Release.Name }}{{ .Release.Revision }}{{ .Chart.Name }}{{ .Chart.Version }}{{ .Chart.Nope }}",
            Ok("rel1t1.2.3"),
        ),
        ("{{ .Template.Name }} {{ .Template.BasePath }}", Ok("t/templates/t.yaml t/templates")),
        (r#"{{- "trim" -}}   x"#, Ok("trimx")),
        ("a   {{- 3 -}}", Ok("a3")),
        ("{{-3}}", Ok("-3")),
        ("{{ - 3 }}", Err(r#"parse error at (t/templates/t.yaml:1): "-""#)),
        ("{{/* c */}}x{{- /* d */ -}} y", Ok("xy")),
        ("{{/* c */ }}", Err("parse error at (t/templates/t.yaml:1): comment ends before closing delimiter")),
        ("{{ /* c */}}", Err(r#"parse error at (t/templates/t.yaml:1): unexpected "/" in command"#)),
        ("{{/* c", Err("parse error at (t/templates/t.yaml:1): unclosed comment")),
        ("{{", Err("parse error at (t/templates/t.yaml:1): unclosed action")),
        (r#"{{ "a"#, Err("parse error at (t/templates/t.yaml:1): unterminated quoted string")),
        ("{{ \"multi\nline\" }}", Err("parse error at (t/templates/t.yaml:1): unterminated quoted string")),
        ("{{\n  .Values.s\n}}", Ok("text")),
        ("{{ if true }}\n{{ else if false }}\n{{ else }}\n{{ end }}x", Ok("\nx")),
        (
            "{{ if true }}{{ else }}{{ else }}{{ end }}",
            Err("parse error at (t/templates/t.yaml:1): expected end; found {{else}}"),
        ),
        (
            "{{ if true }}{{ else with 1 }}{{ end }}",
            Err("parse error at (t/templates/t.yaml:1): unexpected <with> in input"),
        ),
        (
            "{{ with true }}{{ else if 1 }}{{ end }}",
            Err("parse error at (t/templates/t.yaml:1): unexpected <if> in input"),
        ),
        (
            "{{ range true }}{{ end }}",
            Err(
                "t/templates/t.yaml:1:9\n  executing \"t/templates/t.yaml\" at <true>:\n    range can't iterate over true",
            ),
        ),
        ("{{ if .Values.nil }}{{ else }}e{{ end }}", Ok("e")),
        (r#"{{ $a := dict "x" 1 }}{{ $_ := set $a "y" 2 }}{{ $a }}"#, Ok("map[x:1 y:2]")),
        (r#"{{ $_ := set .Values "new" 5 }}{{ .Values.new }}{{ .Values.map.x }}"#, Ok("51")),
        (
            "{{ .Values.map.x.y }}",
            Err(
                "t/templates/t.yaml:1:10\n  executing \"t/templates/t.yaml\" at <.Values.map.x.y>:\n    can't evaluate field y in type interface {}",
            ),
        ),
        (
            "{{ (index .Values.list 0).x }}",
            Err(
                "t/templates/t.yaml:1:23\n  executing \"t/templates/t.yaml\" at <0>:\n    can't evaluate field x in type string",
            ),
        ),
        (
            r#"{{ typeOf .Values }} {{ typeOf .Values.map }} {{ typeOf .Values.n }} {{ typeOf nil }} {{ typeOf 1 }} {{ typeOf (list) }} {{ typeOf (splitList "," "a") }} {{ typeOf (until 2) }} {{ typeOf (split "," "a") }} {{ typeOf (chunk 1 (list 1)) }} {{ typeOf (now) }} {{ typeOf (semver "1.2.3") }} {{ kindOf (semver "1.2.3") }} {{ kindOf now }} {{ kindOf nil }} {{ kindOf .Values }} {{ kindOf 1 }} {{ kindOf 1.0 }}"#,
            Ok(
                "common.Values map[string]interface {} float64 <nil> int []interface {} []string []int map[string]string [][]interface {} time.Time *semver.Version ptr struct invalid map int float64",
            ),
        ),
        ("{{ .Values.AsMap.s }} {{ typeOf .Values.AsMap }}", Ok("text map[string]interface {}")),
        (r#"{{ .Values.Table "map" }}"#, Ok("map[x:1 y:map[z:deep]]")),
        (r#"{{ .Values.PathValue "map.x" }}"#, Ok("1")),
        (
            "{{ range $i, $e := .Values.list }}{{ $i }}{{ $e }}{{ end }}{{ $i }}",
            Err(r#"parse error at (t/templates/t.yaml:1): undefined variable "$i""#),
        ),
        (
            "{{ $i := 5 }}{{ range $i, $e = .Values.list }}{{ end }}{{ $i }}",
            Err(
                "t/templates/t.yaml:1:38\n  executing \"t/templates/t.yaml\" at <.Values.list>:\n    undefined variable: $e",
            ),
        ),
        ("{{ $i := 5 }}{{ $e := 5 }}{{ range $i, $e = .Values.list }}{{ end }}{{ $i }}{{ $e }}", Ok("2c")),
        (r#"{{ lookup "v1" "Pod" "ns" "n" }}{{ getHostByName "x" }}"#, Ok("map[]")),
        (
            r#"{{ include "a" }}"#,
            Err(
                "t/templates/t.yaml:1:3\n  executing \"t/templates/t.yaml\" at <include>:\n    wrong number of args for include: want 2 got 1",
            ),
        ),
        (
            "{{ include 1 . }}",
            Err(
                "t/templates/t.yaml:1:11\n  executing \"t/templates/t.yaml\" at <1>:\n    expected string; found 1",
            ),
        ),
        ("{{ range $x := .Values.map }}{{ $x }}{{ end }}", Ok("1map[z:deep]")),
    ]);
}

#[test]
fn places_are_counted_in_lines_and_bytes() {
    check_all(&[
        (
            "a: 1\nb: {{ .Values.nil.x }}\n",
            Err(
                "t/templates/t.yaml:2:13\n  executing \"t/templates/t.yaml\" at <.Values.nil.x>:\n    nil pointer \
                 evaluating interface {}.x",
            ),
        ),
        (
            "ä {{ .Values.nil.x }}",
            Err(
                "t/templates/t.yaml:1:13\n  executing \"t/templates/t.yaml\" at <.Values.nil.x>:\n    nil pointer \
                 evaluating interface {}.x",
            ),
        ),
    ]);
}

#[test]
fn the_last_definition_wins_but_an_empty_one_never_does() {
    let mut set = Templates::new(Options::default());
    for (name, text) in [
        ("c/charts/d/templates/_h.tpl", "{{ define \"a\" }}child{{ end }}{{ define \"b\" }}child{{ end }}"),
        ("c/templates/_z.tpl", "{{ define \"a\" }}parent{{ end }}{{ define \"b\" }} {{/* none */}}{{ end }}"),
        (
            "c/templates/x.yaml",
            "{{ include \"a\" . }} {{ include \"b\" . }} {{ template \"c/templates/y.yaml\" . }}",
        ),
        ("c/templates/y.yaml", "y"),
    ] {
        set.parse(name, text).unwrap();
    }
    assert_eq!(set.render("c/templates/x.yaml", &Value::Nil).unwrap(), "parent child y");
    let missing = set.render("nope", &Value::Nil).unwrap_err();
    assert_eq!(missing.helm_text(), "template: no template \"nope\" associated with template \"gotpl\"");
}

#[test]
fn values_are_shared_between_files() {
    let mut set = Templates::new(Options::default());
    set.parse("a", "{{ $_ := set .Values.map \"x\" \"changed\" }}{{ $_ := set .Values \"new\" 1 }}").unwrap();
    set.parse("b", "{{ .Values.map.x }} {{ .Values.new }}").unwrap();
    let data = context();
    assert_eq!(set.render("a", &data).unwrap(), "");
    assert_eq!(set.render("b", &data).unwrap(), "changed 1");
}

#[test]
fn definitions_of_tpl_stay_in_tpl() {
    check_all(&[
        ("{{ tpl \"{{ define `d` }}D{{ end }}{{ include `d` . }}\" . }}", Ok("D")),
        (
            "{{ $_ := tpl \"{{ define `d` }}D{{ end }}\" . }}{{ include \"d\" . }}",
            Err(
                "t/templates/t.yaml:1:49\n  executing \"t/templates/t.yaml\" at <include \"d\" .>:\n    error calling \
                 include:\ntemplate: no template \"d\" associated with template \"gotpl\"",
            ),
        ),
        (
            "{{ define \"d\" }}outer{{ end }}{{ tpl \"{{ define `d` }}inner{{ end }}{{ include `d` . }}\" . }} {{ include \"d\" . }}",
            Ok("inner outer"),
        ),
        (
            "{{ define \"o\" }}{{ include \"d\" . }}{{ end }}{{ define \"d\" }}1{{ end }}{{ tpl \"{{ define `d` }}2{{ end }}{{ include `o` . }}\" . }}",
            Ok("2"),
        ),
        (
            "[{{ tpl \"{{ .Values.nil }}\" . }}] {{ include \"n\" . | len }}{{ define \"n\" }}{{ .Values.nil }}{{ end }}",
            Ok("[] 10"),
        ),
    ]);
}
