//! Charts of the stories: archives built from strings.

use support::garden::prepare;

/// A chart's archive.
pub fn archive(name: &str, files: &[(&str, &str)]) -> Vec<u8> {
    let chart = format!("apiVersion: v2\nname: {name}\nversion: 0.1.0\n");
    let all: Vec<_> = std::iter::once(("Chart.yaml", chart.as_str())).chain(files.iter().copied()).collect();
    prepare::archive(name, &all)
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
