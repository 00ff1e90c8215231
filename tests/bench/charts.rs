//! Charts for the measurements: one with a single Deployment, one of the usual size, one with sub-charts, one of 4.5 MB
//! of CRDs.

use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

/// Components of the chart of the usual size: each has a Deployment, a Service, a ConfigMap and a ServiceAccount.
const COMPONENTS: usize = 4;
/// Sub-charts of the large one, each of the usual size.
const CHILDREN: usize = 8;
/// The total size of the CRDs.
const CRD_BYTES: usize = 4_500_000;

pub(crate) struct Chart {
    pub(crate) name: &'static str,
    pub(crate) path: PathBuf,
    /// No bundle of CRDs.
    pub(crate) is_ordinary: bool,
}

const HELPERS: &str = r#"
{{- define "NAME.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" }}
{{- end }}
{{- define "NAME.fullname" -}}
{{- $name := include "NAME.name" . }}
{{- if contains $name .Release.Name }}{{ .Release.Name }}{{ else }}{{ printf "%s-%s" .Release.Name $name }}{{ end }}
{{- end }}
{{- define "NAME.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
app.kubernetes.io/name: {{ include "NAME.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end }}
"#;

const DEPLOYMENT: &str = r#"{{- $own := index .Values.components "PART" }}
{{- if $own.enabled }}
apiVersion: apps/v1
kind: Deployment
metadata:
  name: {{ include "NAME.fullname" . }}-PART
  namespace: {{ .Release.Namespace }}
  labels:
    {{- include "NAME.labels" . | nindent 4 }}
spec:
  replicas: {{ $own.replicas | default 1 }}
  selector:
    matchLabels:
      app: {{ include "NAME.name" . }}-PART
  template:
    metadata:
      annotations:
        checksum/config: {{ toYaml $own.config | sha256sum }}
      labels:
        app: {{ include "NAME.name" . }}-PART
    spec:
      containers:
      - name: PART
        image: "{{ $own.image.repository }}:{{ $own.image.tag | default .Chart.AppVersion }}"
        {{- range $i, $argument := $own.arguments }}
        {{- if eq $i 0 }}
        args:
        {{- end }}
        - {{ tpl $argument $ | quote }}
        {{- end }}
        env:
        {{- range $name, $value := $own.env }}
        - name: {{ $name | upper }}
          value: {{ $value | quote }}
        {{- end }}
        ports:
        - containerPort: {{ $own.port }}
        resources:
          {{- toYaml $own.resources | nindent 10 }}
      {{- with $own.affinity }}
      affinity:
        {{- toYaml . | nindent 8 }}
      {{- end }}
{{- end }}
"#;

const SERVICE: &str = r#"{{- $own := index .Values.components "PART" }}
apiVersion: v1
kind: Service
metadata:
  name: {{ include "NAME.fullname" . }}-PART
  labels: {{- include "NAME.labels" . | nindent 4 }}
spec:
  type: {{ $own.service.type }}
  selector: {app: {{ include "NAME.name" . }}-PART}
  ports:
  - {port: {{ $own.service.port }}, targetPort: {{ $own.port }}}
---
apiVersion: v1
kind: ServiceAccount
metadata:
  name: {{ include "NAME.fullname" . }}-PART
  labels: {{- include "NAME.labels" . | nindent 4 }}
"#;

const CONFIG: &str = r#"{{- $own := index .Values.components "PART" }}
apiVersion: v1
kind: ConfigMap
metadata:
  name: {{ include "NAME.fullname" . }}-PART
data:
  config.yaml: |
    {{- toYaml $own.config | nindent 4 }}
  settings.json: {{ $own.config | toJson | quote }}
"#;

const VALUES: &str = "
    enabled: true
    replicas: 2
    image: {repository: example.org/team/PART, tag: v1.2.3}
    arguments:
    - --name={{ .Release.Name }}
    - --namespace={{ .Release.Namespace }}
    - --verbose=2
    env: {first: one, second: two, third: \"3\"}
    port: 8080
    service: {type: ClusterIP, port: 80}
    config:
      listen: 0.0.0.0
      timeouts: {read: 10s, write: 15s, idle: 1m30s}
      features: {Fast: true, Careful: false}
      upstreams:
      - {name: a, url: https://a.example.org/path, weight: 5}
      - {name: b, url: https://b.example.org/path, weight: 10}
      banner: |
        Two lines of text
        that stay two lines.
    resources:
      requests: {cpu: 100m, memory: 128Mi}
      limits: {memory: 256Mi}
    affinity:
      podAntiAffinity:
        preferredDuringSchedulingIgnoredDuringExecution:
        - weight: 100
          podAffinityTerm: {topologyKey: kubernetes.io/hostname}
";

/// A chart without templates.
pub(crate) fn empty(folder: &Path) -> PathBuf {
    let path = folder.join("charts/empty");
    head(&path, "empty", "");
    path
}

/// All charts that are compared.
pub(crate) fn all(folder: &Path) -> Vec<Chart> {
    let folder = folder.join("charts");
    let chart = |name, file: &str, is_ordinary| Chart { name, path: folder.join(file), is_ordinary };
    let charts = vec![
        chart("small chart", "small", true),
        chart("usual chart", "usual", true),
        chart("chart with sub-charts", "large", true),
        chart("4.5 MB of CRDs", "crds", false),
    ];
    ordinary(&charts[0].path, "small", 1);
    ordinary(&charts[1].path, "usual", COMPONENTS);
    ordinary(&charts[2].path, "large", 1);
    for n in 0..CHILDREN {
        let name = format!("child-{n}");
        ordinary(&charts[2].path.join("charts").join(&name), &name, COMPONENTS);
    }
    crds(&charts[3].path);
    charts
}

fn head(path: &Path, name: &str, values: &str) {
    fs::create_dir_all(path.join("templates")).unwrap();
    let metadata = format!("apiVersion: v2\nname: {name}\nversion: 1.2.3\nappVersion: v1.2.3\n");
    fs::write(path.join("Chart.yaml"), metadata).unwrap();
    fs::write(path.join("values.yaml"), values).unwrap();
}

fn ordinary(path: &Path, name: &str, components: usize) {
    let mut values = "nameOverride: \"\"\ncommonLabels: {team: a, stage: test}\ncomponents:\n".to_owned();
    let write = |file: String, text: &str, part: &str| {
        let text = text.replace("NAME", name).replace("PART", part);
        fs::write(path.join("templates").join(file), text).unwrap();
    };
    fs::create_dir_all(path.join("templates")).unwrap();
    write("_helpers.tpl".to_owned(), HELPERS, "");
    for n in 0..components {
        let part = format!("part-{n}");
        write!(values, "  {part}:{}", VALUES.replace("PART", &part)).unwrap();
        write(format!("{part}-deployment.yaml"), DEPLOYMENT, &part);
        write(format!("{part}-service.yaml"), SERVICE, &part);
        write(format!("{part}-config.yaml"), CONFIG, &part);
    }
    head(path, name, &values);
}

fn crds(path: &Path) {
    head(path, "crds", "");
    let mut bytes = 0;
    for n in 0.. {
        let mut text = format!(
            "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata:\n  annotations:\n    \
             controller-gen.kubebuilder.io/version: v0.16.1\n  name: things{n}.example.org\nspec:\n  group: \
             example.org\n  names: {{kind: Thing{n}, plural: things{n}}}\n  scope: Namespaced\n  versions:\n  - \
             name: v1\n    served: true\n    storage: true\n    schema:\n      openAPIV3Schema:\n"
        );
        schema(&mut text, 8, 5, n);
        bytes += text.len();
        fs::write(path.join(format!("templates/crd-{n}.yaml")), text).unwrap();
        if bytes >= CRD_BYTES {
            return;
        }
    }
}

/// A schema with descriptions, as the usual generator writes them.
fn schema(text: &mut String, indent: usize, depth: usize, n: usize) {
    let pad = " ".repeat(indent);
    if n.is_multiple_of(2) {
        let line = "Selects the objects that this rule is for; the others stay as they are.";
        writeln!(text, "{pad}description: |-\n{pad}  {line}\n{pad}  It must not be changed later.").unwrap();
    } else {
        writeln!(text, "{pad}description: Number {n} of the fields, which is optional, see the guide")
            .unwrap();
    }
    if depth == 0 {
        let kind = ["string", "integer", "boolean"][n % 3];
        writeln!(text, "{pad}type: {kind}").unwrap();
        if n.is_multiple_of(3) {
            writeln!(text, "{pad}pattern: '^[a-z0-9]([-a-z0-9]*[a-z0-9])?$'\n{pad}maxLength: 63").unwrap();
        }
        return;
    }
    writeln!(text, "{pad}type: object\n{pad}properties:").unwrap();
    for i in 0..5 {
        writeln!(text, "{pad}  field{i}:").unwrap();
        schema(text, indent + 4, depth - 1, n + i);
    }
    writeln!(text, "{pad}required:\n{pad}- field0\n{pad}- field1").unwrap();
}
