//! Turns the data of Secrets into a plan: the objects, the order in which they are applied, and what the status will
//! contain about them. Documents are read one by one. Only the text of each is kept, because its value takes many times
//! as much memory. A broken document is recorded, and the others are still applied.

use ring::digest;
use serde_json::Value;

use super::memory::{self, Permit};
use super::names;
use super::object::{map_at, text};
use super::order::{Rank, rank};
use super::reference::{Identity, nodes, reference, size, sort};
use super::unpack::{self, Room, Trouble, UnpackedDocument};
use crate::api::meta::annotation;
use crate::api::resources::ObjectReference;
use crate::base::json::json;
use crate::base::sorted::SortedMap;
use crate::format::{brotli, hex};
use crate::limits;

/// One key of a Secret.
#[derive(Clone, Debug)]
pub(super) struct Manifest {
    /// Name of the Secret.
    pub(super) secret: String,
    pub(super) key: String,
    pub(super) bytes: Vec<u8>,
}

/// Whether objects of a kind are namespaced.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Scope {
    Namespaced,
    Cluster,
    /// The kind is not served, at least not yet.
    Unknown,
}

/// Why there is no plan.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum PlanRefusal {
    /// The ManagedResource needs more than the applier has.
    TooLarge(String),
    /// The memory is in use at the moment.
    Busy,
}

impl PlanRefusal {
    /// The same, with the place.
    fn at(self, place: &str) -> Self {
        match self {
            Self::TooLarge(why) => Self::TooLarge(format!("{place}: {why}")),
            Self::Busy => Self::Busy,
        }
    }
}

/// One object to apply.
#[derive(Clone, Debug)]
pub(super) struct Planned {
    document: UnpackedDocument,
    rank: Rank,
}

impl Planned {
    /// The object as in its manifest.
    pub(super) fn value(&self, scope_of: &mut dyn FnMut(&str, &str) -> Scope) -> Value {
        // The text was parsed before, with the same result.
        let mut object = self.document.value().unwrap_or_default();
        default_namespace(&mut object, scope_of);
        object
    }
}

/// Manifests that could not be read: the first problems, and their number.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Problems {
    first: Vec<String>,
    count: usize,
}

impl Problems {
    fn add(&mut self, place: &str, why: &str) {
        self.count += 1;
        if self.first.len() < limits::MANAGED_RESOURCE_PROBLEMS_MAX {
            self.first.push(format!("{place}: {}", memory::shortened(why, limits::PROBLEM_BYTES_MAX)));
        }
    }

    /// All of them in one line; `None` if there are none.
    pub(super) fn text(&self) -> Option<String> {
        let more = self.count - self.first.len();
        let more = if more > 0 { format!("; and {more} more") } else { String::new() };
        (self.count > 0).then(|| format!("{}{more}", self.first.join("; ")))
    }
}

/// The content of the manifests.
#[derive(Clone, Debug, Default)]
pub(super) struct ManifestPlan {
    /// The objects, in the order of application.
    pub(super) objects: Vec<Planned>,
    /// The references for the status, in its order.
    pub(super) references: Vec<ObjectReference>,
    /// Objects that must not be managed any more.
    pub(super) orphans: Vec<Identity>,
    /// Manifests that could not be read.
    pub(super) problems: Problems,
    /// Hex of SHA-256: it covers the whole value of the key for each object, as in upstream.
    pub(super) checksum: String,
}

/// The memory that one reference takes in all its forms on the way to the status, and each of
/// its labels and annotations.
const REFERENCE_BYTES: usize = 6 << 10;
const LABEL_BYTES: usize = 330;

/// Creates a plan from manifests, one after the other.
pub(super) struct Planner<'a> {
    plan: ManifestPlan,
    hash: digest::Context,
    room: Room,
    /// Bytes and values of the references in the status.
    status_bytes: usize,
    status_nodes: usize,
    /// Memory for the kept texts, and for the largest object.
    kept: usize,
    largest: usize,
    inject: &'a SortedMap<String, String>,
    scope_of: &'a mut dyn FnMut(&str, &str) -> Scope,
    permit: &'a mut Permit,
}

impl<'a> Planner<'a> {
    /// An empty plan. `inject` are labels for every object; the ManagedResource itself takes `own_bytes`.
    pub(super) fn new(
        own_bytes: usize,
        inject: &'a SortedMap<String, String>,
        scope_of: &'a mut dyn FnMut(&str, &str) -> Scope,
        permit: &'a mut Permit,
    ) -> Self {
        Self {
            plan: ManifestPlan::default(),
            hash: digest::Context::new(&digest::SHA256),
            room: Room::ALL,
            status_bytes: 0,
            status_nodes: 0,
            kept: own_bytes,
            largest: 0,
            inject,
            scope_of,
            permit,
        }
    }

    /// Adds the documents of one key. Errors: only reasons that prevent a plan;
    /// broken documents are recorded.
    pub(super) fn add(&mut self, manifest: &Manifest) -> Result<(), PlanRefusal> {
        let Manifest { secret, key, bytes } = manifest;
        let key_text = format!("key {key:?} in Secret {secret:?}");
        self.hold_window(key, bytes).map_err(|refusal| refusal.at(&key_text))?;
        let found = match unpack::documents(key, bytes, &mut self.room) {
            Ok(found) => found,
            Err(Trouble::TooLarge(why)) => return Err(PlanRefusal::TooLarge(why).at(&key_text)),
            Err(Trouble::Broken(why)) => {
                self.plan.problems.add(&key_text, &why);
                return Ok(());
            }
        };
        self.kept += found.iter().flatten().map(|document| document.text().len()).sum::<usize>();
        for (index, document) in found.into_iter().enumerate() {
            let place = format!("document {index} of {key_text}");
            match self.read(document)? {
                Ok((Value::Null, ..)) => {}
                Ok((object @ Value::Object(_), memory, document)) => {
                    self.object(object, memory, document, bytes)?;
                }
                Ok(_) => self.plan.problems.add(&place, "not an object"),
                Err(Trouble::Broken(why)) => self.plan.problems.add(&place, &why),
                Err(Trouble::TooLarge(why)) => return Err(PlanRefusal::TooLarge(why).at(&place)),
            }
        }
        Ok(())
    }

    /// Reserves memory for the window of a packed key, while it grows.
    fn hold_window(&mut self, key: &str, bytes: &[u8]) -> Result<(), PlanRefusal> {
        let window = if key.ends_with(".br") { brotli::window_bytes(bytes).unwrap_or(0) } else { 0 };
        if window > limits::BROTLI_WINDOW_BYTES_MAX {
            let max = limits::BROTLI_WINDOW_BYTES_MAX >> 20;
            return Err(PlanRefusal::TooLarge(format!("its Brotli window has more than {max} MiB")));
        }
        if window == 0 { Ok(()) } else { self.hold(window + window / 2) }
    }

    /// Its outline, and the memory of its value.
    fn read(
        &mut self,
        document: Result<UnpackedDocument, Trouble>,
    ) -> Result<Result<(Value, usize, UnpackedDocument), Trouble>, PlanRefusal> {
        let document = match document {
            Ok(document) => document,
            Err(trouble) => return Ok(Err(trouble)),
        };
        let outline = document.outline(&mut |bytes| self.hold(bytes))?;
        Ok(outline.map(|(object, memory)| (object, memory, document)))
    }

    fn object(
        &mut self,
        mut object: Value,
        memory: usize,
        document: UnpackedDocument,
        bytes: &[u8],
    ) -> Result<(), PlanRefusal> {
        default_namespace(&mut object, self.scope_of);
        if annotation(&object, names::MODE) == names::MODE_IGNORE {
            self.plan.orphans.push(Identity::of_object(&object));
            return Ok(());
        }
        self.largest = self.largest.max(memory);
        self.hash.update(bytes);
        let reference = reference(&object, self.inject);
        self.status_bytes += size(&reference);
        if self.status_bytes > limits::MANAGED_RESOURCE_STATUS_BYTES_MAX {
            let max = limits::MANAGED_RESOURCE_STATUS_BYTES_MAX;
            let why = format!("names, labels and annotations of its objects have more than {max} bytes");
            return Err(PlanRefusal::TooLarge(why));
        }
        self.status_nodes += nodes(&reference);
        if self.status_nodes > limits::MANAGED_RESOURCE_STATUS_NODES_MAX {
            let max = limits::MANAGED_RESOURCE_STATUS_NODES_MAX;
            let why = format!("names, labels and annotations of its objects are more than {max} values");
            return Err(PlanRefusal::TooLarge(why));
        }
        self.kept += REFERENCE_BYTES + LABEL_BYTES * (reference.labels.len() + reference.annotations.len());
        self.plan.objects.push(Planned { document, rank: rank(&object) });
        self.plan.references.push(reference);
        Ok(())
    }

    /// Reserves memory for the kept texts and this much more.
    fn hold(&mut self, more: usize) -> Result<(), PlanRefusal> {
        let all = self.kept + 4 * self.status_bytes + more;
        if all > limits::APPLIER_MEMORY_BYTES_MAX {
            let max = limits::APPLIER_MEMORY_BYTES_MAX >> 20;
            return Err(PlanRefusal::TooLarge(format!("it takes more than {max} MiB of memory to apply")));
        }
        // Other Secrets may still be read.
        if self.permit.hold(all.max(limits::APPLIER_READ_BYTES)) { Ok(()) } else { Err(PlanRefusal::Busy) }
    }

    /// The plan, with memory to execute it. Errors: there is not enough memory.
    pub(super) fn finish(mut self) -> Result<ManifestPlan, PlanRefusal> {
        // The desired and the live object at the same time, and their texts.
        self.hold(2 * self.largest + self.largest / 4)?;
        let mut plan = self.plan;
        plan.checksum = hex::encode(self.hash.finish().as_ref());
        plan.objects.sort_by(|a, b| a.rank.cmp(&b.rank));
        sort(&mut plan.references);
        Ok(plan)
    }
}

/// Objects of namespaced kinds default to namespace `default`; others have none. An unknown kind is
/// assumed to be namespaced.
fn default_namespace(object: &mut Value, scope_of: &mut dyn FnMut(&str, &str) -> Scope) {
    let (api_version, kind) = (text(&object["apiVersion"]), text(&object["kind"]));
    let is_named = !api_version.is_empty() && !kind.is_empty();
    let scope = if is_named { scope_of(api_version, kind) } else { Scope::Unknown };
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

    /// A successful plan, in plain values.
    struct Decoded {
        objects: Vec<Value>,
        orphans: Vec<Identity>,
        errors: Vec<String>,
        checksum: String,
    }

    fn plan(manifests: &[Manifest]) -> Result<ManifestPlan, PlanRefusal> {
        let mut permit = memory::MemoryBudget::default().permit();
        let (inject, mut scope_of) = (SortedMap::new(), scope);
        let mut planner = Planner::new(0, &inject, &mut scope_of, &mut permit);
        manifests.iter().try_for_each(|manifest| planner.add(manifest))?;
        planner.finish()
    }

    fn all(manifests: &[Manifest]) -> Decoded {
        let plan = plan(manifests).unwrap();
        Decoded {
            objects: plan.objects.iter().map(|planned| planned.value(&mut scope)).collect(),
            orphans: plan.orphans,
            errors: plan.problems.first,
            checksum: plan.checksum,
        }
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
            ("json and yaml", format!("{json}\n---\n{a}"), vec!["a", "j"]),
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
        // A document without name is an object: applying it reports the problem.
        assert_eq!(names(&decoded), ["", "a", "b", "c"]);
        let errors: Vec<&str> = decoded.errors.iter().map(String::as_str).collect();
        let [yaml, text, bytes] = errors[..] else { panic!("{errors:?}") };
        assert!(yaml.starts_with("document 1 of key \"k\" in Secret \"s\": line "), "{yaml}");
        assert_eq!(text, "document 2 of key \"k\" in Secret \"s\": not an object");
        assert_eq!(bytes, "document 0 of key \"bytes\" in Secret \"s\": not UTF-8");
    }

    #[test]
    fn the_first_problems_are_named_and_the_others_counted() {
        let mut problems = Problems::default();
        assert_eq!(problems.text(), None);
        for n in 0..7 {
            problems.add(&format!("document {n}"), if n == 0 { "broken" } else { "bad" });
        }
        let expected = "document 0: broken; document 1: bad; document 2: bad; document 3: bad; document 4: bad; and 2 more";
        assert_eq!(problems.text().unwrap(), expected);
        let mut long = Problems::default();
        long.add("x", &"y".repeat(10_000));
        assert!(long.text().unwrap().len() < 400);
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
        let mut permit = memory::MemoryBudget::default().permit();
        let (inject, mut unknown) = (SortedMap::new(), |_: &str, _: &str| Scope::Unknown);
        let mut planner = Planner::new(0, &inject, &mut unknown, &mut permit);
        planner.add(&manifest("k", object)).unwrap();
        let planned = planner.finish().unwrap().objects.remove(0);
        assert!(planned.value(&mut |_, _| Scope::Unknown)["metadata"].get("namespace").is_none());
    }

    #[test]
    fn the_checksum_counts_the_value_once_for_each_object() {
        let two = format!("{}---\n{}", config_map("a"), config_map("b"));
        let ignored = "apiVersion: v1\nkind: Secret\nmetadata:\n  name: o\n  annotations:\n    resources.gardener.cloud/mode: Ignore\n";
        let decoded =
            all(&[manifest("1", two.clone()), manifest("2", config_map("c")), manifest("3", ignored)]);
        assert_eq!(decoded.checksum, sha256(format!("{two}{two}{}", config_map("c")).as_bytes()));
        assert_eq!(names(&decoded), ["a", "b", "c"]);
        assert_eq!(decoded.orphans[0].name, "o");
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
    fn a_plan_that_is_too_large_is_refused() {
        let one = r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"}}"#;
        let annotated = |n: usize, bytes: usize| {
            let (name, text) = (format!("a{n}"), "x".repeat(bytes));
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "annotations": {"a": text}}})
                .to_string()
        };
        let maps = |n: usize| json!({"apiVersion": "v1", "kind": "X", "metadata": {"name": "x"}, "a": vec![json!({"a": 1}); n]});
        let table = [
            (
                one.repeat(limits::MANAGED_RESOURCE_OBJECTS_MAX + 1),
                "key \"k\" in Secret \"s\": it has more than 2000 documents",
            ),
            (
                (0..11).map(|n| annotated(n, 100_000)).collect(),
                "names, labels and annotations of its objects have more than 1048576 bytes",
            ),
            (maps(19_000).to_string(), "it takes more than 24 MiB of memory to apply"),
        ];
        for (text, expected) in table {
            assert_eq!(plan(&[manifest("k", text)]).unwrap_err(), PlanRefusal::TooLarge(expected.to_owned()));
        }
        assert_eq!(
            all(&[manifest("k", one.repeat(limits::MANAGED_RESOURCE_OBJECTS_MAX))]).objects.len(),
            2_000
        );
        assert_eq!(all(&[manifest("k", maps(10_000).to_string())]).objects.len(), 1);
    }

    #[test]
    fn a_plan_without_memory_is_retried() {
        let memory = memory::MemoryBudget::default();
        let (mut other, mut permit) = (memory.permit(), memory.permit());
        assert!(other.hold(limits::APPLIER_MEMORY_BYTES_MAX));
        let (inject, mut scope_of) = (SortedMap::new(), scope);
        let mut planner = Planner::new(0, &inject, &mut scope_of, &mut permit);
        assert_eq!(planner.add(&manifest("k", config_map("a"))), Err(PlanRefusal::Busy));
        drop(other);
        assert_eq!(planner.add(&manifest("k", config_map("a"))), Ok(()));
    }
}
