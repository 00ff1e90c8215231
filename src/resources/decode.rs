//! From the data of Secrets to objects. Keys that end in `.br` are Brotli streams, all others plain; each holds a stream
//! of YAML or JSON documents. A broken document is recorded, and the rest goes on.

use ring::digest;
use serde_json::{Value, json};

use super::names;
use super::object::{annotation, map_at, text};
use crate::format::{brotli, hex, yaml};
use crate::limits;

/// One key of a Secret.
#[derive(Clone, Debug)]
pub(super) struct Manifest {
    /// Name of the Secret.
    pub(super) secret: String,
    /// The key.
    pub(super) key: String,
    /// Its value.
    pub(super) bytes: Vec<u8>,
}

/// Whether objects of a kind have a namespace.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Scope {
    Namespaced,
    Cluster,
    /// The kind is not served, at least not yet.
    Unknown,
}

/// What the manifests say.
#[derive(Clone, PartialEq, Debug, Default)]
pub(super) struct Decoded {
    /// The objects, in the order of the manifests.
    pub(super) objects: Vec<Value>,
    /// Objects that are no longer to be managed.
    pub(super) orphans: Vec<Value>,
    /// What could not be read.
    pub(super) errors: Vec<String>,
    /// Hex of SHA-256: for each object the whole value of its key, as upstream counts.
    pub(super) checksum: String,
}

/// Decodes manifests in the order in which they are given.
pub(super) fn decode(manifests: &[Manifest], scope_of: &mut dyn FnMut(&str, &str) -> Scope) -> Decoded {
    let mut decoded = Decoded::default();
    let mut hash = digest::Context::new(&digest::SHA256);
    for manifest in manifests {
        for (index, document) in documents(manifest).into_iter().enumerate() {
            let full = decoded.objects.len() >= limits::MANAGED_RESOURCE_OBJECTS_MAX;
            let object = document.and_then(|object| if full { Err(too_many()) } else { valid(object) });
            match object {
                Ok(mut object) => {
                    default_namespace(&mut object, scope_of);
                    if annotation(&object, names::MODE) == names::MODE_IGNORE {
                        decoded.orphans.push(object);
                    } else {
                        hash.update(&manifest.bytes);
                        decoded.objects.push(object);
                    }
                }
                Err(why) => {
                    let (key, secret) = (&manifest.key, &manifest.secret);
                    decoded
                        .errors
                        .push(format!("document {index} of key {key:?} in Secret {secret:?}: {why}"));
                    if full {
                        break;
                    }
                }
            }
        }
    }
    decoded.checksum = hex::encode(hash.finish().as_ref());
    decoded
}

fn too_many() -> String {
    format!("more than {} objects", limits::MANAGED_RESOURCE_OBJECTS_MAX)
}

/// The documents of a manifest that are not empty.
fn documents(manifest: &Manifest) -> Vec<Result<Value, String>> {
    let plain = if manifest.key.ends_with(".br") {
        brotli::decode(&manifest.bytes, limits::BROTLI_OUTPUT_BYTES_MAX).map_err(|e| e.to_string())
    } else {
        Ok(manifest.bytes.clone())
    };
    let text = plain.and_then(|bytes| String::from_utf8(bytes).map_err(|e| e.to_string()));
    let documents = match text {
        Ok(text) => json_stream(&text).unwrap_or_else(|| yaml_stream(&text)),
        Err(why) => vec![Err(why)],
    };
    documents.into_iter().filter(|document| !matches!(document, Ok(Value::Null))).collect()
}

/// Several JSON documents may follow each other without a separator; YAML allows only one. `None` if it is not JSON.
fn json_stream(text: &str) -> Option<Vec<Result<Value, String>>> {
    if !text.trim_start().starts_with('{') {
        return None;
    }
    let documents: Result<Vec<Value>, _> = serde_json::Deserializer::from_str(text).into_iter().collect();
    Some(documents.ok()?.into_iter().map(Ok).collect())
}

fn yaml_stream(text: &str) -> Vec<Result<Value, String>> {
    yaml::parse_all(text).into_iter().map(|document| document.value.map_err(|e| e.to_string())).collect()
}

fn valid(object: Value) -> Result<Value, String> {
    for (field, value) in [
        ("apiVersion", &object["apiVersion"]),
        ("kind", &object["kind"]),
        ("metadata.name", &object["metadata"]["name"]),
    ] {
        if text(value).is_empty() {
            return Err(format!("not an object: {field} is missing"));
        }
    }
    Ok(object)
}

/// Objects of namespaced kinds live in `default` if they do not say where; others never say it. Of an unknown kind the
/// first is assumed.
fn default_namespace(object: &mut Value, scope_of: &mut dyn FnMut(&str, &str) -> Scope) {
    let scope = scope_of(text(&object["apiVersion"]), text(&object["kind"]));
    let is_empty = text(&object["metadata"]["namespace"]).is_empty();
    let kind_has_none = scope == Scope::Unknown && object["kind"] == "Namespace";
    let metadata = map_at(object, &["metadata"]);
    if scope == Scope::Cluster {
        metadata.remove("namespace");
    } else if is_empty && !kind_has_none {
        metadata.insert("namespace".to_owned(), json!("default"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn manifest(key: &str, bytes: impl Into<Vec<u8>>) -> Manifest {
        Manifest { secret: "s".into(), key: key.into(), bytes: bytes.into() }
    }

    fn scope(_: &str, kind: &str) -> Scope {
        match kind {
            "Namespace" | "ClusterRole" => Scope::Cluster,
            "ConfigMap" | "Secret" => Scope::Namespaced,
            _ => Scope::Unknown,
        }
    }

    fn all(manifests: &[Manifest]) -> Decoded {
        decode(manifests, &mut scope)
    }

    fn names(decoded: &Decoded) -> Vec<&str> {
        decoded.objects.iter().map(|o| text(&o["metadata"]["name"])).collect()
    }

    fn config_map(name: &str) -> String {
        format!("apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {name}\n")
    }

    fn sha256(data: &[u8]) -> String {
        hex::encode(digest::digest(&digest::SHA256, data).as_ref())
    }

    #[test]
    fn streams_of_yaml_and_json() {
        let (a, b) = (config_map("a"), config_map("b"));
        let json = r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"j"}}"#;
        let table = [
            ("one", a.clone(), vec!["a"]),
            ("two", format!("{a}---\n{b}"), vec!["a", "b"]),
            ("empty ones", format!("---\n# nothing\n---\n{a}---\n\n---\n{b}---\n"), vec!["a", "b"]),
            ("json", json.to_owned(), vec!["j"]),
            ("json after json", format!("{json}\n{json}"), vec!["j", "j"]),
            ("json and yaml", format!("{json}\n---\n{a}"), vec!["j", "a"]),
            ("nothing", String::new(), vec![]),
        ];
        for (name, text, expected) in table {
            let decoded = all(&[manifest("k", text)]);
            assert_eq!(names(&decoded), expected, "{name}");
            assert_eq!(decoded.errors, Vec::<String>::new(), "{name}");
        }
    }

    #[test]
    fn broken_documents_do_not_stop_the_rest() {
        let text = format!(
            "{}---\na: [\n---\njust text\n---\nkind: ConfigMap\n---\n{}",
            config_map("a"),
            config_map("b")
        );
        let decoded =
            all(&[manifest("k", text), manifest("bytes", [0xff, 0xfe]), manifest("last", config_map("c"))]);
        assert_eq!(names(&decoded), ["a", "b", "c"]);
        assert_eq!(decoded.errors.len(), 4, "{:?}", decoded.errors);
        assert!(
            decoded.errors[0].starts_with("document 1 of key \"k\" in Secret \"s\": "),
            "{:?}",
            decoded.errors
        );
        assert!(decoded.errors[2].ends_with("not an object: apiVersion is missing"), "{:?}", decoded.errors);
    }

    #[test]
    fn namespaces_follow_the_scope() {
        let table = [
            ("ConfigMap", "", Some("default")),
            ("ConfigMap", "x", Some("x")),
            ("ClusterRole", "x", None),
            ("ClusterRole", "", None),
            ("Unknown", "", Some("default")),
            ("Unknown", "x", Some("x")),
        ];
        for (kind, namespace, expected) in table {
            let object =
                json!({"apiVersion": "v1", "kind": kind, "metadata": {"name": "n", "namespace": namespace}});
            let decoded = all(&[manifest("k", object.to_string())]);
            assert_eq!(
                decoded.objects[0]["metadata"]["namespace"].as_str(),
                expected,
                "{kind} {namespace:?}"
            );
        }
        let object = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "n"}}).to_string();
        let decoded = decode(&[manifest("k", object)], &mut |_, _| Scope::Unknown);
        assert!(decoded.objects[0]["metadata"].get("namespace").is_none());
    }

    #[test]
    fn the_checksum_counts_the_value_once_for_each_object() {
        let two = format!("{}---\n{}", config_map("a"), config_map("b"));
        let ignored = "apiVersion: v1\nkind: Secret\nmetadata:\n  name: o\n  annotations:\n    resources.gardener.cloud/mode: Ignore\n";
        let decoded =
            all(&[manifest("1", two.clone()), manifest("2", config_map("c")), manifest("3", ignored)]);
        assert_eq!(decoded.checksum, sha256(format!("{two}{two}{}", config_map("c")).as_bytes()));
        assert_eq!(names(&decoded), ["a", "b", "c"]);
        assert_eq!(text(&decoded.orphans[0]["metadata"]["name"]), "o");
        assert_eq!(all(&[]).checksum, sha256(b""));
    }

    #[test]
    fn brotli_keys() {
        let text = config_map("compressed");
        let decoded = all(&[manifest("data.yaml.br", brotli::encode(text.as_bytes()))]);
        assert_eq!((names(&decoded), decoded.errors.len()), (vec!["compressed"], 0), "{:?}", decoded.errors);
        assert_eq!(decoded.checksum, sha256(&brotli::encode(text.as_bytes())));
        let broken = all(&[manifest("data.yaml.br", text), manifest("k", config_map("b"))]);
        assert_eq!((names(&broken), broken.errors.len()), (vec!["b"], 1));
        let mut cut = brotli::encode(config_map("x").as_bytes());
        cut.truncate(20);
        assert_eq!(all(&[manifest("data.yaml.br", cut)]).errors.len(), 1);
    }

    #[test]
    fn brotli_output_is_bounded() {
        let bomb = brotli::encode(&vec![b' '; limits::BROTLI_OUTPUT_BYTES_MAX + 1]);
        let decoded = all(&[manifest("bomb.br", bomb)]);
        assert!(decoded.errors[0].contains("more than 33554432 bytes of content"), "{:?}", decoded.errors);
    }

    #[test]
    fn the_number_of_objects_is_bounded() {
        let one = r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"}}"#;
        let decoded = all(&[manifest("k", one.repeat(limits::MANAGED_RESOURCE_OBJECTS_MAX + 5))]);
        assert_eq!(decoded.objects.len(), limits::MANAGED_RESOURCE_OBJECTS_MAX);
        assert_eq!(decoded.errors.len(), 1, "{:?}", decoded.errors);
    }
}
