//! Charts of the stories: archives made from texts, and what renders them.

use std::collections::BTreeMap;
use std::io::Read as _;
use std::sync::Arc;

use flate2::read::GzDecoder;
use flate2::{Compression, write::GzEncoder};
use gardenlet::base::clock::Clock;
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

/// Renders nothing: it replaces `{{ .Values.x }}` and `{{ .Release.Namespace }}`.
pub fn renderer(_clock: &Clock) -> Renderer {
    Renderer(Arc::new(|chart| {
        let mut out = BTreeMap::new();
        let mut tar = tar::Archive::new(GzDecoder::new(chart.archive));
        for entry in tar.entries().map_err(|e| format!("not a chart: {e}"))? {
            let mut entry = entry.map_err(|e| format!("not a chart: {e}"))?;
            let path = entry.path().map_err(|e| e.to_string())?.display().to_string();
            let mut text = String::new();
            entry.read_to_string(&mut text).map_err(|e| e.to_string())?;
            if !path.contains("/templates/") {
                continue;
            }
            if text.contains("{{ fail") {
                return Err("execution error".to_owned());
            }
            text = text.replace("{{ .Release.Namespace }}", chart.namespace);
            for (key, value) in chart.values.as_object().into_iter().flatten() {
                text = text.replace(&format!("{{{{ .Values.{key} }}}}"), value.as_str().unwrap_or_default());
            }
            out.insert(path.replace('/', "_"), text);
        }
        Ok(out)
    }))
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
