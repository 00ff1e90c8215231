//! Turns the output of templates into objects: documents, hooks, order.

use std::borrow::Cow;
use std::fmt;

use serde_json::{Map, Value};

use super::TextSlice;
use crate::format::yaml;

/// A document in the output of a template.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Manifest {
    /// The template: `chart/templates/a.yaml`.
    pub(crate) path: String,
    /// The text, without leading blanks.
    pub(crate) text: TextSlice,
    /// The parsed document; null if only the head was parsed.
    pub(crate) object: Value,
    /// Its `kind`, or nothing.
    pub(crate) kind: String,
    /// A hook that Helm runs as a test.
    pub(crate) is_test: bool,
}

/// A document that is not a Kubernetes object.
#[derive(Clone, Debug, PartialEq)]
pub struct Error {
    path: String,
    problem: ManifestProblem,
}

#[derive(Clone, Debug, PartialEq)]
enum ManifestProblem {
    Yaml(yaml::Error),
    Field { field: &'static str, got: &'static str },
}

/// The start of the message of Helm's parser about a document of another shape.
const JSON: &str = "error unmarshaling JSON: while decoding JSON";

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "YAML parse error on {}: ", self.path)?;
        match &self.problem {
            ManifestProblem::Yaml(error) => f.write_str(&error.go_text()),
            ManifestProblem::Field { field: "", got } => {
                write!(f, "{JSON}: json: cannot unmarshal {got} into Go value of type util.SimpleHead")
            }
            ManifestProblem::Field { field, got } => {
                write!(f, "{JSON}: json: cannot unmarshal {got} into Go struct field SimpleHead.{field}")
            }
        }
    }
}

impl std::error::Error for Error {}

/// The output of the templates of a chart.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Manifests {
    /// Objects in installation order.
    pub(crate) objects: Vec<Manifest>,
    /// Hooks, which Helm runs around an installation, in the same order.
    pub(crate) hooks: Vec<Manifest>,
}

/// How much of a document is kept as a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KeptPart {
    Object,
    /// The fields that Helm reads.
    Head,
}

/// The fields that Helm reads.
const HEAD: [&str; 4] = ["apiVersion", "kind", "metadata.name", "metadata.annotations"];

/// Sorts the documents of rendered files (path and text). Errors: if a document is not a map, or
/// its head is invalid.
pub(crate) fn sort<'a>(
    files: impl IntoIterator<Item = (&'a str, &'a TextSlice)>,
    keep: KeptPart,
) -> Result<Manifests, Error> {
    let mut files: Vec<(&str, &TextSlice)> = files.into_iter().collect();
    files.sort_unstable_by_key(|(path, _)| *path);
    let mut sorted = Manifests::default();
    for (path, text) in files {
        if path.rsplit('/').next().is_some_and(|base| base.starts_with('_')) {
            continue;
        }
        for piece in split(text) {
            let mut manifest = Manifest::read(path, text.part(piece), keep)?;
            let role = manifest.role();
            if keep == KeptPart::Head {
                manifest.object = Value::Null;
            }
            match role {
                Role::Object => sorted.objects.push(manifest),
                Role::Hook { is_test } => {
                    manifest.is_test = is_test;
                    sorted.hooks.push(manifest);
                }
                Role::UnknownHook => log::info!(path = path; "Skipped an object with an unknown hook"),
            }
        }
    }
    in_order(&mut sorted.objects);
    in_order(&mut sorted.hooks);
    Ok(sorted)
}

/// Sorts objects into installation order.
fn in_order(manifests: &mut Vec<Manifest>) {
    let mut ranked: Vec<(usize, Manifest)> =
        manifests.drain(..).map(|manifest| (install_rank(&manifest.kind).0, manifest)).collect();
    ranked.sort_by(|(m, a), (n, b)| m.cmp(n).then_with(|| install_rank(&a.kind).cmp(&install_rank(&b.kind))));
    manifests.extend(ranked.into_iter().map(|(_, manifest)| manifest));
}

/// The documents of a file: a line that begins with `---` separates them, even if more text follows on it.
pub fn split(text: &str) -> Vec<&str> {
    let mut documents = Vec::new();
    let text = text.trim_start();
    let mut start = 0;
    let lines = std::iter::once(0).chain(text.match_indices('\n').map(|(at, _)| at + 1));
    for at in lines.filter(|at| text.as_bytes()[*at..].starts_with(b"---")) {
        documents.push(&text[start..at]);
        start = text.len() - text[at + 3..].trim_start_matches([' ', '\t']).len();
    }
    documents.push(&text[start..]);
    documents.into_iter().map(str::trim_start).filter(|d| !d.is_empty()).collect()
}

enum Role {
    Object,
    Hook { is_test: bool },
    UnknownHook,
}

impl Manifest {
    fn read(path: &str, text: TextSlice, keep: KeptPart) -> Result<Self, Error> {
        let error = |problem| Error { path: path.to_owned(), problem };
        let object = match keep {
            KeptPart::Object => yaml::parse(&text),
            KeptPart::Head => yaml::parse_part(&text, &HEAD),
        };
        let object = object.map_err(|e| error(ManifestProblem::Yaml(e)))?;
        let kind = head(&object).map_err(error)?;
        Ok(Self { path: path.to_owned(), text, kind, object, is_test: false })
    }

    fn role(&self) -> Role {
        let Some(hooks) = self.object["metadata"]["annotations"].get("helm.sh/hook") else {
            return Role::Object;
        };
        let hooks = scalar_text(hooks).unwrap_or_default().to_lowercase();
        let mut hooks = hooks.split(',').map(str::trim);
        if !hooks.clone().all(|hook| HOOKS.contains(&hook)) {
            return Role::UnknownHook;
        }
        Role::Hook { is_test: hooks.any(|hook| TESTS.contains(&hook)) }
    }
}

/// The kind, after a check of the fields that Helm reads.
fn head<'v>(object: &'v Value) -> Result<String, ManifestProblem> {
    let wrong = |field, value: &Value| ManifestProblem::Field { field, got: type_of(value) };
    let map = match object {
        Value::Null => return Ok(String::new()),
        Value::Object(map) => map,
        other => return Err(wrong("", other)),
    };
    let text = |field, value| scalar_text(value).ok_or_else(|| wrong(field, value));
    let of = |map: &'v Map<String, Value>, key| map.get(key).unwrap_or(&Value::Null);
    text("apiVersion", of(map, "apiVersion"))?;
    let kind = text("kind", of(map, "kind"))?.into_owned();
    match map.get("metadata") {
        None | Some(Value::Null) => {}
        Some(Value::Object(metadata)) => {
            text("metadata.name", of(metadata, "name"))?;
            match metadata.get("annotations") {
                None | Some(Value::Null) => {}
                Some(Value::Object(annotations)) => {
                    for value in annotations.values() {
                        text("metadata.annotations", value)?;
                    }
                }
                Some(other) => return Err(wrong("metadata.annotations", other)),
            }
        }
        Some(other) => return Err(wrong("metadata", other)),
    }
    Ok(kind)
}

/// Text, or a scalar that upstream's YAML parser converts to text.
fn scalar_text(value: &Value) -> Option<Cow<'_, str>> {
    match value {
        Value::Null => Some(Cow::Borrowed("")),
        Value::String(text) => Some(Cow::Borrowed(text)),
        Value::Bool(_) | Value::Number(_) => Some(Cow::Owned(value.to_string())),
        Value::Array(_) | Value::Object(_) => None,
    }
}

fn type_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

const HOOKS: [&str; 10] = [
    "pre-install",
    "post-install",
    "pre-delete",
    "post-delete",
    "pre-upgrade",
    "post-upgrade",
    "pre-rollback",
    "post-rollback",
    "test",
    "test-success",
];

/// Hooks that are tests.
const TESTS: [&str; 2] = ["test", "test-success"];

/// Kinds in installation order; others come last, by name.
const ORDER: [&str; 38] = [
    "PriorityClass",
    "Namespace",
    "NetworkPolicy",
    "ResourceQuota",
    "LimitRange",
    "PodSecurityPolicy",
    "PodDisruptionBudget",
    "ServiceAccount",
    "Secret",
    "SecretList",
    "ConfigMap",
    "StorageClass",
    "PersistentVolume",
    "PersistentVolumeClaim",
    "CustomResourceDefinition",
    "ClusterRole",
    "ClusterRoleList",
    "ClusterRoleBinding",
    "ClusterRoleBindingList",
    "Role",
    "RoleList",
    "RoleBinding",
    "RoleBindingList",
    "Service",
    "DaemonSet",
    "Pod",
    "ReplicationController",
    "ReplicaSet",
    "Deployment",
    "HorizontalPodAutoscaler",
    "StatefulSet",
    "Job",
    "CronJob",
    "IngressClass",
    "Ingress",
    "APIService",
    "MutatingWebhookConfiguration",
    "ValidatingWebhookConfiguration",
];

/// The rank of a kind in installation order: kinds that Helm does not know come last, by name.
pub(crate) fn install_rank(kind: &str) -> (usize, &str) {
    ORDER.iter().position(|k| *k == kind).map_or((ORDER.len(), kind), |at| (at, ""))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(manifests: &[Manifest]) -> Vec<&str> {
        manifests.iter().map(|m| &*m.text).collect()
    }

    fn sorted<T: AsRef<str>>(files: &[(&str, T)]) -> Result<Manifests, Error> {
        let files: Vec<(&str, TextSlice)> =
            files.iter().map(|(path, text)| (*path, TextSlice::from(text.as_ref()))).collect();
        let all = sort(files.iter().map(|(path, text)| (*path, text)), KeptPart::Object);
        let heads = sort(files.iter().map(|(path, text)| (*path, text)), KeptPart::Head);
        match (&all, &heads) {
            (Ok(all), Ok(heads)) => assert_eq!(texts(&all.objects), texts(&heads.objects)),
            _ => assert_eq!(all, heads),
        }
        all
    }

    #[test]
    fn files_are_cut_at_dashes() {
        let text = "\n  \n---\na: 1\n---   # comment\n---b: 1\n\n--- \n  \n---";
        assert_eq!(split(text), ["a: 1\n", "# comment\n", "b: 1\n\n"]);
        assert_eq!(split("a: |\n  ---\n"), ["a: |\n  ---\n"]);
        assert_eq!(split(" \n"), Vec::<&str>::new());
    }

    #[test]
    fn objects_are_sorted_by_kind_then_path() {
        let files = [
            ("c/templates/b.yaml", "kind: Zeta\n---\nkind: Deployment\n---\n# only a comment\n"),
            ("c/templates/a.yaml", "kind: Alpha\n---\nkind: Service\nn: 1\n---\nkind: Service\nn: 2\n"),
            ("c/templates/_p.tpl", "not: [yaml"),
            ("c/templates/w.yaml", "kind: ValidatingWebhookConfiguration"),
        ];
        let sorted = sorted(&files).unwrap();
        assert_eq!(
            texts(&sorted.objects),
            [
                "kind: Service\nn: 1\n",
                "kind: Service\nn: 2\n",
                "kind: Deployment\n",
                "kind: ValidatingWebhookConfiguration",
                "# only a comment\n",
                "kind: Alpha\n",
                "kind: Zeta\n"
            ]
        );
    }

    #[test]
    fn hooks_are_set_aside() {
        let hook =
            |hooks: &str| format!("kind: Job\nmetadata: {{annotations: {{helm.sh/hook: \"{hooks}\"}}}}");
        let files =
            [("a", hook("pre-install, TEST")), ("b", hook("crd-install")), ("c", "kind: Job".to_owned())];
        let sorted = sorted(&files).unwrap();
        assert_eq!((sorted.hooks.len(), sorted.hooks[0].path.as_str()), (1, "a"));
        assert_eq!((sorted.objects.len(), sorted.objects[0].path.as_str()), (1, "c"));
    }

    #[test]
    fn invalid_objects_are_named() {
        for (text, message) in [
            ("a: [", "error converting YAML to JSON: yaml: line 1: did not find expected node content"),
            (
                "text",
                "error unmarshaling JSON: while decoding JSON: json: cannot unmarshal string into Go value of type util.SimpleHead",
            ),
            (
                "metadata: x",
                "error unmarshaling JSON: while decoding JSON: json: cannot unmarshal string into Go struct field SimpleHead.metadata",
            ),
            (
                "metadata: {annotations: {a: [1]}}",
                "error unmarshaling JSON: while decoding JSON: json: cannot unmarshal array into Go struct field SimpleHead.metadata.annotations",
            ),
            (
                "kind: {}",
                "error unmarshaling JSON: while decoding JSON: json: cannot unmarshal object into Go struct field SimpleHead.kind",
            ),
        ] {
            let error = sorted(&[("p", text)]).unwrap_err().to_string();
            assert_eq!(error, format!("YAML parse error on p: {message}"));
        }
        assert!(sorted(&[("p", "metadata: {annotations: {a: 1, b: true}, name: 5}\nkind: null")]).is_ok());
    }
}
