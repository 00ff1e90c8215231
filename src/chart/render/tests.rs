use serde_json::json;

use super::*;
use crate::chart::{File, Metadata};
use crate::format::yaml as yaml_format;

pub(super) fn file(name: &str, text: &str) -> File {
    File { name: name.to_owned(), data: text.as_bytes().into() }
}

fn chart(name: &str, values: &str, templates: &[(&str, &str)]) -> Chart {
    let metadata = Metadata {
        name: name.to_owned(),
        version: "1.2.3".to_owned(),
        api_version: "v2".to_owned(),
        ..Metadata::default()
    };
    Chart {
        metadata,
        values: crate::chart::values::read(values).unwrap(),
        templates: templates.iter().map(|(n, t)| file(&format!("templates/{n}"), t)).collect(),
        ..Chart::default()
    }
}

fn options(mode: RenderMode) -> Options {
    Options::new(mode, "rel", "ns")
}

/// Rendering needs a larger stack than a test thread has.
fn on_a_deep_stack<T: Send + 'static>(body: impl FnOnce() -> T + Send + 'static) -> T {
    crate::base::thread::spawn("render", 8 << 20, body).unwrap().join().unwrap()
}

fn text(chart: Chart, mode: RenderMode) -> String {
    on_a_deep_stack(move || {
        render(chart, &options(mode)).map_or_else(|e| e.to_string(), |rendered| rendered.to_text(true))
    })
}

#[test]
fn files_see_what_earlier_ones_set_and_children_share_their_table() {
    let child = chart("c", "x: 1", &[("a.yaml", "c: {{ .Values.x }} {{ set .Values \"y\" \"z\" | len }}")]);
    let mut parent = chart("p", "", &[("b.yaml", "p: {{ .Values.c.y }} {{ .Subcharts.c.Chart.Name }}")]);
    parent.children.push(child);
    let expected =
        "---\n# Source: p/charts/c/templates/a.yaml\nc: 1 3\n---\n# Source: p/templates/b.yaml\np: z c\n";
    assert_eq!(text(parent, RenderMode::Template), expected);
}

#[test]
fn parents_override_what_children_define() {
    let child = chart("c", "", &[("_h.tpl", "{{ define \"n\" }}child{{ end }}")]);
    let mut parent = chart(
        "p",
        "",
        &[
            ("_h.tpl", "{{ define \"n\" }}parent{{ end }}"),
            ("a.yaml", "n: {{ include \"n\" . }}"),
            ("NOTES.txt", "x"),
        ],
    );
    parent.children.push(child);
    assert_eq!(text(parent, RenderMode::Template), "---\n# Source: p/templates/a.yaml\nn: parent\n");
}

#[test]
fn context_has_what_charts_ask_for() {
    let mut chart = chart(
        "p",
        "",
        &[(
            "a.yaml",
            "r: {{ .Release.Name }}/{{ .Release.Namespace }}/{{ .Release.Revision }}/{{ .Release.IsInstall }}\n\
             t: {{ .Template.Name }} {{ .Template.BasePath }}\n\
             c: {{ .Chart.Name }} {{ .Chart.Version }} {{ .Chart.IsRoot }}\n\
             k: {{ .Capabilities.KubeVersion }} {{ .Capabilities.KubeVersion.Minor }}\n\
             h: {{ .Capabilities.APIVersions.Has \"apps/v1\" }}\n\
             f: {{ len (.Files.Lines \"conf/a.txt\") }} {{ .Files.Get \"conf/a.txt\" | quote }}\n\
             g:\n{{ (.Files.Glob \"conf/*\").AsConfig | indent 2 }}\n\
             s: {{ (.Files.Glob \"none\").AsSecrets }}\n",
        )],
    );
    chart.files = vec![file("conf/a.txt", "x\ny\n"), file("conf/b.txt", "z")];
    let common = "r: rel/ns/1/true\nt: p/templates/a.yaml p/templates\nc: p 1.2.3 true\nk: v1.36.0 36\n";
    let files = "f: 2 \"x\\ny\\n\"\ng:\n  a.txt: |\n    x\n    y\n  b.txt: z\ns: {}\n";
    let head = "---\n# Source: p/templates/a.yaml\n";
    assert_eq!(text(chart.clone(), RenderMode::Template), format!("{head}{common}h: true\n{files}"));
    assert_eq!(text(chart, RenderMode::Extension), format!("{head}{common}h: false\n{files}"));
}

/// toYamlPretty writes bytes of Go as numbers, where toYaml writes Base64.
#[test]
fn pretty_yaml_does_not_pass_through_json() {
    let template = "a: {{ .Files.GetBytes \"b\" | toYaml }}\n\
        {{ dict \"b\" (.Files.GetBytes \"b\") \"n\" (.Files.GetBytes \"none\") | toYamlPretty }}\n";
    let mut chart = chart("p", "", &[("a.yaml", template)]);
    chart.files = vec![file("b", "hi")];
    let expected = "---\n# Source: p/templates/a.yaml\na: aGk=\nb:\n  - 104\n  - 105\n\"n\": []\n";
    assert_eq!(text(chart, RenderMode::Template), expected);
}

#[test]
fn hooks_and_crds_are_for_helm_alone() {
    let hook = "kind: Job\nmetadata:\n  annotations:\n    helm.sh/hook: test\n";
    let mut chart = chart("p", "", &[("h.yaml", hook), ("a.yaml", "kind: A\nmetadata: {}\n")]);
    chart.files = vec![file("crds/x.yaml", "kind: CRD\n"), file("crds/README.md", "x")];
    let helm = text(chart.clone(), RenderMode::Template);
    assert!(
        helm.starts_with("---\n# Source: p/crds/x.yaml\nkind: CRD\n\n---\n# Source: p/templates/a.yaml\n")
    );
    assert!(
        helm.ends_with("---\n# Source: p/templates/h.yaml\n".to_owned().as_str().trim_end())
            || helm.contains("Job")
    );
    assert_eq!(
        text(chart, RenderMode::Extension),
        "---\n# Source: p/templates/a.yaml\nkind: A\nmetadata: {}\n"
    );
}

#[test]
fn what_helm_refuses_a_gardenlet_may_take() {
    let mut library = chart("l", "", &[("a.yaml", "a: 1"), ("_a.tpl", "")]);
    library.metadata.kind = "library".to_owned();
    assert_eq!(text(library.clone(), RenderMode::Template), "library charts are not installable");
    assert_eq!(text(library, RenderMode::Extension), "\n");
    let mut picky = chart("p", "", &[("a.yaml", "a: 1")]);
    picky.metadata.kube_version = ">=99".to_owned();
    assert!(text(picky.clone(), RenderMode::Template).starts_with("chart requires kubeVersion: >=99"));
    assert!(text(picky, RenderMode::Extension).contains("a: 1"));
    let mut lacking = chart("p", "", &[("a.yaml", "a: 1")]);
    lacking.metadata.merge(&yaml_format::parse("dependencies: [{name: q, version: 1}]").unwrap()).unwrap();
    assert_eq!(
        text(lacking.clone(), RenderMode::Template),
        "found in Chart.yaml, but missing in charts/ directory: q"
    );
    assert!(text(lacking, RenderMode::Extension).contains("a: 1"));
}

#[test]
fn errors_say_where() {
    let mut strict = chart("p", "a: x", &[]);
    strict.schema = Some(br#"{"properties": {"a": {"type": "number"}}}"#.as_slice().into());
    let expected = "values don't meet the specifications of the schema(s) in the following chart(s):\n\
                    p:\n- at '/a': got string, want number";
    assert_eq!(text(strict, RenderMode::Extension), expected);
    let failing = chart("p", "", &[("a.yaml", "{{ fail \"no\" }}")]);
    assert_eq!(text(failing, RenderMode::Extension), "execution error at (p/templates/a.yaml:1:3): no");
    let broken = chart("p", "", &[("a.yaml", "a: [")]);
    assert!(
        text(broken, RenderMode::Extension)
            .starts_with("YAML parse error on p/templates/a.yaml: error converting")
    );
}

#[test]
fn objects_have_the_keys_of_a_gardenlet() {
    let many = "kind: A\nmetadata: {name: x}\n---\nkind: B\nmetadata: {name: Y:z}\n---\nkind: A\nmetadata: {name: X}\nnn: 2\n---\nkind: C\n";
    let chart = chart("p", "", &[("one.yaml", "kind: A\nmetadata: {name: x}\n"), ("sub/m.yaml", many)]);
    let objects = on_a_deep_stack(move || render(chart, &options(RenderMode::Extension)).unwrap().objects());
    let keys: Vec<&str> = objects.keys().map(String::as_str).collect();
    assert_eq!(keys, ["p_templates_one.yaml", "p_templates_sub_m_a_x.yaml", "p_templates_sub_m_b_y_z.yaml"]);
    assert_eq!(objects["p_templates_sub_m_a_x.yaml"]["nn"], json!(2));
    let text = secret_text(&json!({"b": [1], "a": "x"}));
    assert_eq!(text, "\n---\na: x\nb:\n- 1\n\n---\n");
}

#[test]
fn single_files_are_shown() {
    let chart = chart("p", "", &[("a.yaml", "a: 1\n---\na: 2"), ("b.yaml", "b: 1")]);
    let rendered = on_a_deep_stack(move || render(chart, &options(RenderMode::Template)).unwrap());
    let shown = rendered.show_only(&["templates/a*".to_owned()], false).unwrap();
    let one = "---\n# Source: p/templates/a.yaml\na: 1\n\n\n";
    assert_eq!(shown, format!("{one}---\n# Source: p/templates/a.yaml\na: 2\n\n"));
    assert_eq!(rendered.show_only(&["templates/c".to_owned()], false), Err("templates/c".to_owned()));
}

#[test]
fn versions_of_flags_are_completed() {
    let version = KubeVersion::of_flag("1.30-gke.1").unwrap();
    assert_eq!((version.version.as_str(), version.constraint_version.as_str()), ("v1.30-gke.1", "v1.30.0"));
    assert_eq!(KubeVersion::of_flag("x"), None);
    assert_eq!(KubeVersion::of_flag("1"), None);
}
