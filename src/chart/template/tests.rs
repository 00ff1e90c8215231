use super::*;
use crate::chart::value::Numbers;

/// Renders one template on a JSON document.
fn render(text: &str, data: &serde_json::Value) -> Result<String, String> {
    let mut templates = Templates::new(Options::default());
    templates.parse("t", text).map_err(|e| e.to_string())?;
    templates.render("t", &Value::from_json(data, Numbers::Float64Always)).map_err(|e| e.to_string())
}

fn check(text: &str, want: &str) {
    let data = serde_json::json!({
        "n": 3, "f": 2.5, "s": "text", "t": true, "no": false, "nil": null, "empty": "",
        "list": ["a", "b", "c"], "map": {"x": 1, "y": {"z": "deep"}}, "mixed": [1, null, "x"],
    });
    assert_eq!(render(text, &data).as_deref(), Ok(want), "{text}");
}

fn check_error(text: &str, want: &str) {
    let data = serde_json::json!({"n": 3, "s": "text", "nil": null, "list": ["a"], "map": {"x": 1}});
    assert_eq!(render(text, &data).unwrap_err(), want, "{text}");
}

#[test]
fn text_and_trimming() {
    check("a {{- 1 }} b", "a1 b");
    check("a\n\t{{- 1 -}}\n b", "a1b");
    check("a {{/* c */ -}} b", "a b");
    check("a {{- /* c */}} b", "a b");
    check("{{ `raw\\n` }}{{ \"q\\n\" }}", "raw\\nq\n");
    check("{{ .s | }}", "text");
}

#[test]
fn control() {
    check("{{ if .t }}y{{ else }}n{{ end }}", "y");
    check("{{ if .no }}1{{ else if .nil }}2{{ else if .n }}3{{ else }}4{{ end }}", "3");
    check("{{ with .map.y }}{{ .z }}{{ $.s }}{{ end }}", "deeptext");
    check("{{ with .nil }}1{{ else with .s }}{{ . }}{{ else }}3{{ end }}", "text");
    check("{{ range .list }}{{ . }},{{ end }}", "a,b,c,");
    check("{{ range $i, $e := .list }}{{ $i }}{{ $e }}{{ end }}", "0a1b2c");
    check("{{ range $k, $v := .map }}{{ $k }}={{ $v }};{{ end }}", "x=1;y=map[z:deep];");
    check("{{ range 3 }}{{ . }}{{ end }}{{ range $i := 2 }}{{ $i }}{{ end }}", "01201");
    check("{{ range .nil }}1{{ else }}none{{ end }}", "none");
    check("{{ range .list }}{{ if eq . \"b\" }}{{ break }}{{ end }}{{ . }}{{ end }}", "a");
    check("{{ range .list }}{{ if eq . \"b\" }}{{ continue }}{{ end }}{{ . }}{{ end }}", "ac");
}

#[test]
fn variables() {
    check("{{ $x := 1 }}{{ if true }}{{ $x = 2 }}{{ $y := 3 }}{{ end }}{{ $x }}", "2");
    check("{{ $x := 1 }}{{ if true }}{{ $x := 2 }}{{ $x }}{{ end }}{{ $x }}", "21");
    check("{{ $x := .map }}{{ $x.y.z }}", "deep");
    check("{{ $i := 0 }}{{ $v := \"\" }}{{ range $i, $v = .list }}{{ end }}{{ $i }}{{ $v }}", "2c");
    check("{{ range $x := .list }}{{ $x }}{{ end }}{{ $x := 9 }}{{ $x }}", "abc9");
}

#[test]
fn definitions() {
    check("{{ define \"a\" }}<{{ . }}>{{ end }}{{ template \"a\" .s }}{{ template \"a\" }}", "<text><>");
    check("{{ block \"b\" .n }}[{{ . }}]{{ end }}", "[3]");
    check("{{ define \"a\" }}<{{ . }}>{{ end }}{{ include \"a\" 1 | printf \"%s!\" }}", "<1>!");
    check("{{ define \"a\" }}{{ $x := 1 }}{{ end }}{{ $x := 2 }}{{ template \"a\" . }}{{ $x }}", "2");
    check("{{ tpl \"{{ .s }}{{ define `d` }}D{{ end }}{{ include `d` . }}\" . }}", "textD");
}

#[test]
fn nothing() {
    check(
        "[{{ .missing }}][{{ .nil }}][{{ print .nil }}][{{ printf \"%v\" .missing }}]",
        "[][][<nil>][<nil>]",
    );
    check("{{ $x := .missing }}[{{ $x.deep.er }}]", "[]");
    check("{{ (.missing).deep }}", "");
    check("{{ .mixed }}", "[1 <nil> x]");
}

#[test]
fn errors_name_the_place() {
    for (text, want) in [
        (
            "{{ .nil.x }}",
            "template: t:1:7: executing \"t\" at <.nil.x>: nil pointer evaluating interface {}.x",
        ),
        (
            "{{ .s.x }}",
            "template: t:1:5: executing \"t\" at <.s.x>: can't evaluate field x in type interface {}",
        ),
        (
            "\n{{ $x := .s }} {{ $x.y }}",
            "template: t:2:20: executing \"t\" at <$x.y>: can't evaluate field y in type string",
        ),
        ("{{ fail 1 }}", "template: t:1:8: executing \"t\" at <1>: expected string; found 1"),
        (
            "{{ include .nil . }}",
            "template: t:1:11: executing \"t\" at <.nil>: wrong type for value; expected string; got interface {}",
        ),
        (
            "{{ include \"x\" . }}",
            "template: t:1:3: executing \"t\" at <include \"x\" .>: error calling include: template: no template \"x\" associated with template \"gotpl\"",
        ),
        (
            "{{ template \"x\" }}",
            "template: t:1:12: executing \"t\" at <{{template \"x\"}}>: template \"x\" not defined",
        ),
        (
            "{{ eq .n 1 }}",
            "template: t:1:3: executing \"t\" at <eq .n 1>: error calling eq: incompatible types for comparison: float64 and int",
        ),
        (
            "{{ range .s }}{{ end }}",
            "template: t:1:9: executing \"t\" at <.s>: range can't iterate over text",
        ),
        ("{{ nope }}", "template: t:1: function \"nope\" not defined"),
        ("{{ $x }}", "template: t:1: undefined variable \"$x\""),
        ("{{ if }}{{ end }}", "template: t:1: missing value for if"),
        ("{{ end }}", "template: t:1: unexpected {{end}}"),
        ("{{ 1 | 2 }}", "template: t:1: non executable command in pipeline stage 2"),
        ("\n\n{{ if true }}", "template: t:3: unexpected EOF"),
        (
            "{{ required \"need it\" .nil }}",
            "template: t:1:3: executing \"t\" at <required \"need it\" .nil>: error calling required: HELM_ERR_STARTneed itHELM_ERR_END",
        ),
    ] {
        check_error(text, want);
    }
}
