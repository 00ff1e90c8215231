//! Charts of the stories: archives made from texts, and what renders them.

use std::collections::BTreeMap;
use std::sync::Arc;

use flate2::{Compression, write::GzEncoder};
use gardenlet::base::clock::Clock;
use gardenlet::base::thread;
use gardenlet::chart;
use gardenlet::chart::render::{KubeVersion, Mode, Options, secret_text};
use gardenlet::controllers::controller_installation::Renderer;

/// A chart's archive.
pub fn archive(name: &str, files: &[(&str, &str)]) -> Vec<u8> {
    let mut tar = tar::Builder::new(GzEncoder::new(Vec::new(), Compression::fast()));
    let chart = format!("apiVersion: v2\nname: {name}\nversion: 0.1.0\n");
    for (path, content) in std::iter::once(("Chart.yaml", chart.as_str())).chain(files.iter().copied()) {
        let mut header = tar::Header::new_gnu();
        header.set_size(content.len() as u64);
        header.set_mode(0o644);
        tar.append_data(&mut header, format!("{name}/{path}"), content.as_bytes()).unwrap();
    }
    tar.into_inner().unwrap().finish().unwrap()
}

/// Renders as the program does, but in a thread of this process instead of a child.
pub fn renderer(clock: &Clock) -> Renderer {
    let clock = clock.clone();
    Renderer(Arc::new(move |chart| {
        let (archive, values) =
            (chart.archive.to_vec(), chart.values.as_object().cloned().unwrap_or_default());
        let options = Options {
            mode: Mode::Extension,
            name: chart.release.to_owned(),
            namespace: chart.namespace.to_owned(),
            values,
            kube_version: KubeVersion::of_server(chart.kubernetes_version, "1", "34"),
            api_versions: Vec::new(),
            clock: clock.clone(),
        };
        // Templates nest deeply.
        let rendering = thread::spawn("render", 16 << 20, move || rendered(&archive, &options)).unwrap();
        rendering.join().unwrap()
    }))
}

fn rendered(archive: &[u8], options: &Options) -> Result<BTreeMap<String, String>, String> {
    let chart = chart::archive::load(archive).map_err(|e| e.to_string())?;
    let rendered = chart::render::render(chart, options).map_err(|e| e.to_string())?;
    Ok(rendered.objects().iter().map(|(key, object)| (key.clone(), secret_text(object))).collect())
}

/// An extension: Deployment, ConfigMap, RBAC, a CRD and an instance of it.
pub fn extension() -> Vec<u8> {
    archive(
        "extension-echo",
        &[
            ("values.yaml", "greeting: hello\n"),
            ("templates/deployment.yaml", DEPLOYMENT),
            ("templates/configmap.yaml", CONFIG_MAP),
            ("templates/account.yaml", ACCOUNT),
            ("templates/role.yaml", ROLE),
            ("templates/binding.yaml", BINDING),
            ("templates/crd.yaml", CRD),
            ("templates/echo.yaml", ECHO),
        ],
    )
}

const DEPLOYMENT: &str = "apiVersion: apps/v1
kind: Deployment
metadata:
  name: echo
  namespace: {{ .Release.Namespace }}
  labels: {app: echo}
spec:
  replicas: 1
  selector: {matchLabels: {app: echo}}
  template:
    metadata: {labels: {app: echo}}
    spec:
      serviceAccountName: echo
      containers:
      - name: echo
        image: registry.example.org/echo:1
        args: [--greeting={{ .Values.greeting }}]
";
const CONFIG_MAP: &str = "apiVersion: v1
kind: ConfigMap
metadata:
  name: echo
  namespace: {{ .Release.Namespace }}
data:
  greeting: {{ .Values.greeting }}
";
const ACCOUNT: &str = "apiVersion: v1
kind: ServiceAccount
metadata:
  name: echo
  namespace: {{ .Release.Namespace }}
";
const ROLE: &str = "apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata:
  name: echo
rules:
- apiGroups: [example.org]
  resources: [echoes]
  verbs: [get, list, watch]
";
const BINDING: &str = "apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata:
  name: echo
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: echo}
subjects:
- {kind: ServiceAccount, name: echo, namespace: {{ .Release.Namespace }}}
";
const CRD: &str = "apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata:
  name: echoes.example.org
spec:
  group: example.org
  scope: Namespaced
  names: {kind: Echo, plural: echoes, singular: echo, listKind: EchoList}
  versions:
  - name: v1
    served: true
    storage: true
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec:
            type: object
            properties:
              text: {type: string}
";
const ECHO: &str = "apiVersion: example.org/v1
kind: Echo
metadata:
  name: first
  namespace: {{ .Release.Namespace }}
spec:
  text: {{ .Values.greeting }}
";
