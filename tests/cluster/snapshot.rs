//! Everything that is stored in a cluster, in a comparable form: the necessary differences between two runs of a story
//! (times, UIDs, keys, random names) are replaced.

use std::collections::BTreeMap;

use gardenlet::api::meta::{ALL_NAMESPACES, Resource};
use gardenlet::api::resources::REFERENCE_PREFIX;
use gardenlet::kube::{Client, ListParams, Method};
use regex_lite::Regex;
use serde_json::{Map, Value};

use crate::cluster::Cluster;
use crate::failure::{Doing, Failure, Result, ensure};

/// Kinds that change independently of agents.
const FLEETING: &[&str] = &[
    "Event",
    "Endpoints",
    "EndpointSlice",
    "ComponentStatus",
    "Pod",
    "ControllerRevision",
    "ReplicaSet",
    "IPAddress",
    "APIService",
];

/// Numbers of writes (versions of objects, also of others, and the number of rollouts), values that the server chooses,
/// and values that depend on a CA.
const CHANCE: &[&str] = &[
    "resourceVersion",
    "generation",
    "nodePort",
    "currentRevision",
    "updateRevision",
    "observedGeneration",
    "deployment.kubernetes.io/revision",
    "clusterIP",
    "clusterIPs",
    "checksum-of-config",
    "issued-at-time",
    "valid-until-time",
    "bundle.crt",
];

/// The label of objects that the garbage collector may remove.
pub(crate) const COLLECTABLE: &str = "resources.gardener.cloud/garbage-collectable-reference";

/// Objects by `<group>/<kind> <namespace>/<name>`.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Snapshot(BTreeMap<String, Value>);

impl Snapshot {
    /// Lists every kind that the cluster serves. A kubelet creates the Lease of its node at its own time.
    pub(crate) fn take(cluster: &Cluster) -> Result<Self> {
        let cleaner = Cleaner::new(&[])?;
        let mut objects = BTreeMap::new();
        each(&cluster.client()?, FLEETING, &mut |key, object| {
            if !key.contains("/Lease kube-node-lease/") {
                objects.insert(cleaner.text(&key), cleaner.object(object));
            }
        })?;
        Ok(Self(objects))
    }

    /// The objects that belong to one of several similar things: `belongs` selects them by key. Each rule replaces the
    /// identifiers of such things; objects whose keys become equal are numbered.
    pub(crate) fn of_one(
        client: &Client,
        belongs: impl Fn(&str) -> bool,
        rules: &[(&str, &'static str)],
    ) -> Result<Difference> {
        let cleaner = Cleaner::new(rules)?;
        let mut changed = BTreeMap::new();
        let own = [FLEETING, &["Lease"]].concat();
        each(client, &own, &mut |key, object| {
            if belongs(&key) {
                let (key, mut object) = (cleaner.text(&key), cleaner.object(object));
                hide_values(&key, &mut object);
                let count = changed
                    .keys()
                    .filter(|other: &&String| **other == key || other.starts_with(&format!("{key} #")))
                    .count();
                changed.insert(if count == 0 { key } else { format!("{key} #{count}") }, object);
            }
        })?;
        Ok(Difference { changed, gone: Vec::new() })
    }

    /// The objects that were created or changed since an earlier snapshot, and the deleted ones.
    pub(crate) fn since(&self, earlier: &Self) -> Difference {
        let new = self.0.iter().filter(|(key, object)| earlier.0.get(*key) != Some(object));
        let gone = earlier.0.keys().filter(|key| !self.0.contains_key(*key));
        Difference {
            changed: new.map(|(k, v)| (k.clone(), v.clone())).collect(),
            gone: gone.cloned().collect(),
        }
    }
}

/// The difference of two snapshots.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Difference {
    pub(crate) changed: BTreeMap<String, Value>,
    pub(crate) gone: Vec<String>,
}

impl Difference {
    pub(crate) fn keys(&self) -> Vec<&str> {
        self.changed.keys().map(String::as_str).collect()
    }

    /// Fails unless both runs left the same objects; names the objects that differ, and the first path in each.
    pub(crate) fn ensure_same(&self, other: &Self, what: &str) -> Result<()> {
        let mut complaints = Vec::new();
        for key in self.changed.keys().chain(other.changed.keys()) {
            match (self.changed.get(key), other.changed.get(key)) {
                (Some(one), Some(two)) => complaints.extend(first_difference(key, one, two)),
                (None, _) => complaints.push(format!("{key} is only in the second")),
                (_, None) => complaints.push(format!("{key} is only in the first")),
            }
        }
        complaints.sort();
        complaints.dedup();
        if self.gone != other.gone {
            complaints.push(format!("gone: {:?} and {:?}", self.gone, other.gone));
        }
        ensure(complaints.is_empty(), || format!("{what}:\n  {}", complaints.join("\n  ")))
    }
}

fn first_difference(path: &str, one: &Value, two: &Value) -> Option<String> {
    match (one, two) {
        (Value::Object(a), Value::Object(b)) => a.keys().chain(b.keys()).find_map(|key| {
            let missing = Value::Null;
            let path = format!("{path}.{key}");
            first_difference(&path, a.get(key).unwrap_or(&missing), b.get(key).unwrap_or(&missing))
        }),
        (Value::Array(a), Value::Array(b)) if a.len() == b.len() => {
            let mut pairs = a.iter().zip(b).enumerate();
            pairs.find_map(|(n, (a, b))| first_difference(&format!("{path}[{n}]"), a, b))
        }
        _ => (one != two).then(|| format!("{path}: {one} and {two}")),
    }
}

/// The version of each object of a cluster except events: each write changes it.
pub(crate) fn versions(client: &Client) -> Result<BTreeMap<String, String>> {
    let mut versions = BTreeMap::new();
    each(client, &["Event", "ComponentStatus"], &mut |key, object| {
        let version = object["metadata"]["resourceVersion"].as_str().unwrap_or_default();
        versions.insert(key, version.to_owned());
    })?;
    Ok(versions)
}

/// Passes on all objects of the kinds that can be listed, except some kinds, with keys `<group>/<kind>
/// <namespace>/<name>`.
fn each(client: &Client, but: &[&str], add: &mut dyn FnMut(String, Value)) -> Result<()> {
    for resource in resources(client)?.iter().filter(|resource| !but.contains(&resource.kind.as_ref())) {
        let mut add = |object: Value| {
            let text = |pointer| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
            let (namespace, name) = (text("/metadata/namespace"), text("/metadata/name"));
            let key = format!("{}/{} {namespace}/{name}", resource.group, resource.kind);
            add(key, object);
        };
        let listed = client.list_all::<Value>(resource, ALL_NAMESPACES, &ListParams::default(), &mut add);
        listed.doing(|| format!("list {}", resource.plural))?;
    }
    Ok(())
}

/// Every kind that can be listed, in its preferred version.
fn resources(client: &Client) -> Result<Vec<Resource>> {
    let mut found = group(client, "/api/v1", "", "v1")?;
    let groups = get(client, "/apis")?;
    for entry in groups["groups"].as_array().into_iter().flatten() {
        let text = |pointer| entry.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
        let (name, version) = (text("/name"), text("/preferredVersion/version"));
        found.extend(group(client, &format!("/apis/{name}/{version}"), name, version)?);
    }
    Ok(found)
}

fn group(client: &Client, path: &str, group: &str, version: &str) -> Result<Vec<Resource>> {
    let list = get(client, path)?;
    let listable = |entry: &&Value| {
        let verbs = entry["verbs"].as_array().cloned().unwrap_or_default();
        let name = entry["name"].as_str().unwrap_or("/");
        !name.contains('/') && verbs.iter().any(|verb| verb == "list")
    };
    let resource = |entry: &Value| {
        let text = |key: &str| entry[key].as_str().unwrap_or_default().to_owned().into();
        Resource {
            group: group.to_owned().into(),
            version: version.to_owned().into(),
            kind: text("kind"),
            plural: text("name"),
            namespaced: entry["namespaced"] == true,
        }
    };
    Ok(list["resources"].as_array().into_iter().flatten().filter(listable).map(resource).collect())
}

fn get(client: &Client, path: &str) -> Result<Value> {
    let response = client.raw(Method::Get, path, None, "")?;
    ensure(response.is_success(), || format!("GET {path}: {}", response.status))?;
    serde_json::from_slice(&response.body).map_err(Failure::from)
}

/// Of a Secret only the names of its entries can be compared, and also of the Secrets in a ShootState. They are sorted
/// by names with digests.
fn hide_values(key: &str, object: &mut Value) {
    let hide = |data: &mut Value| {
        let entries = data.as_object_mut().into_iter().flatten();
        entries.for_each(|(_, value)| *value = Value::from("<new in each run>"));
    };
    if key.starts_with("/Secret ") {
        hide(&mut object["data"]);
    }
    if key.starts_with("core.gardener.cloud/ShootState ")
        && let Some(Value::Array(kept)) = object.pointer_mut("/spec/gardener")
    {
        kept.iter_mut().filter_map(|entry| entry.pointer_mut("/data/data")).for_each(hide);
        kept.sort_by_key(|entry| entry["name"].to_string());
    }
}

/// Replaces values that differ in each run.
struct Cleaner(Vec<(Regex, &'static str)>);

impl Cleaner {
    /// With more rules than the common ones.
    fn new(more: &[(&str, &'static str)]) -> Result<Self> {
        let rules = [
            (r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", "<uid>"),
            (r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z", "<time>"),
            (r"seed-csr-[A-Za-z0-9_-]{20,}", "seed-csr-<hash>"),
            // An installation of the extension `demo`, of the provider, and objects named after them.
            (r"(demo|provider-local)-[a-z0-9]{5}\b", "$1-<id>"),
            (r"(-<id>|secret)-[0-9a-f]{8}\b", "$1-<hash>"),
            // Agents and checksums.
            (r"[0-9a-f]{64}", "<hash>"),
            (r"ca-seed-bundle-[0-9a-f]{8}\b", "ca-seed-bundle-<hash>"),
        ];
        let compile =
            |(rule, word)| Regex::new(rule).doing(|| format!("compile {rule}")).map(|rule| (rule, word));
        rules.into_iter().chain(more.iter().copied()).map(compile).collect::<Result<_>>().map(Self)
    }

    fn text(&self, text: &str) -> String {
        self.0.iter().fold(text.to_owned(), |text, (rule, word)| rule.replace_all(&text, *word).into_owned())
    }

    fn object(&self, mut object: Value) -> Value {
        if let Some(metadata) = object["metadata"].as_object_mut() {
            for field in ["uid", "creationTimestamp", "managedFields"] {
                metadata.remove(field);
            }
        }
        // Leases are renewed all the time; only the holder is compared.
        if let Some(spec) = object.pointer_mut("/spec").and_then(Value::as_object_mut) {
            spec.remove("renewTime");
        }
        // The number of Secrets with earlier manifests depends on the time of the garbage collection; their content is
        // in the objects themselves.
        if object["metadata"]["labels"][COLLECTABLE] == "true" {
            object["data"] = Value::from("<manifests>");
        }
        // The key of a condition is its type: their order depends on the order of the first writes.
        if let Some(Value::Array(conditions)) = object.pointer_mut("/status/conditions") {
            conditions.sort_by_key(|condition| condition["type"].to_string());
        }
        for field in ["data", "request", "certificate"] {
            hide_keys(&mut object, field);
        }
        self.value(object)
    }

    fn value(&self, value: Value) -> Value {
        match value {
            Value::String(text) => Value::String(self.text(&text)),
            Value::Array(items) => Value::Array(items.into_iter().map(|item| self.value(item)).collect()),
            Value::Object(fields) => {
                let is_chance = |key: &str| CHANCE.contains(&key) || key.starts_with(REFERENCE_PREFIX);
                let fields = fields.into_iter().filter(|(key, _)| !is_chance(key));
                Value::Object(fields.map(|(key, item)| (self.text(&key), self.value(item))).collect())
            }
            other => other,
        }
    }
}

/// Keys, certificates, tokens, salted hashes and values that contain them are new in each run: only their presence is
/// compared.
fn hide_keys(object: &mut Value, field: &str) {
    const NEW: &[&str] = &["auth", "kubeconfig", "token", "ca.crt", "tls.crt", "tls.key", "ca.key"];
    let hide = |fields: &mut Map<String, Value>| {
        for (key, value) in fields.iter_mut() {
            if NEW.contains(&key.as_str()) {
                *value = Value::from("<new in each run>");
            }
        }
    };
    match object.get_mut(field) {
        Some(Value::Object(fields)) => hide(fields),
        _ => {
            for part in ["spec", "status"] {
                if let Some(value) = object.get_mut(part).and_then(|part| part.get_mut(field)) {
                    *value = Value::from("<new in each run>");
                }
            }
        }
    }
}
