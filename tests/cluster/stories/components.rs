//! The agent's own components on a real API server.

use std::fs;
use std::path::{Path, PathBuf};

use gardenlet::api::crd::CUSTOM_RESOURCE_DEFINITION;
use gardenlet::api::meta::{ALL_NAMESPACES, Key, Resource};
use gardenlet::components::crds::{self, Foreign};
use gardenlet::components::install;
use gardenlet::format::yaml;
use gardenlet::kube::{Client, ErrorVerdict, ListParams, Patch, Seed};
use serde_json::{Value, json};

use crate::cluster::Cluster;
use crate::failure::{Doing, Failure, Result, ensure, equal};
use crate::lab::Lab;
use crate::wait;

/// The server accepts the definitions without a warning. They become established, are not written twice, and are
/// repaired.
pub(crate) fn definitions(lab: &mut Lab) -> Result<()> {
    let seed = Seed(lab.seed.client()?);
    let definitions = all();
    remove(&lab.seed)?;
    lab.seed.kubectl(&[
        "create",
        "--dry-run=server",
        "--recursive",
        "--filename",
        &folder("src/components/crds"),
    ])?;

    installed(&seed, &all)?;
    let written = versions(&seed, &definitions)?;
    equal("the second step", &install::ensure(&seed, all())?, &install::Step::Done)?;
    equal("versions after the second step", &versions(&seed, &definitions)?, &written)?;

    let damage = json!({
        "metadata": { "labels": { "gardener.cloud/deletion-protected": null, "mine": "stays" } },
        "spec": { "names": { "shortNames": ["mr", "more"] } },
    });
    let name = "managedresources.resources.gardener.cloud";
    seed.patch::<Value>(&CUSTOM_RESOURCE_DEFINITION, &Key::cluster(name), &Patch::Merge(damage))?;
    installed(&seed, &all)?;
    let repaired: Value = seed.get(&CUSTOM_RESOURCE_DEFINITION, &Key::cluster(name))?;
    equal("short names", &repaired["spec"]["names"]["shortNames"], &json!(["mr"]))?;
    let labels = json!({ "gardener.cloud/deletion-protected": "true", "mine": "stays" });
    equal("labels", &repaired["metadata"]["labels"], &labels)
}

/// The server accepts without a warning what the flows of Seeds and Shoots apply: the golden files of the components.
pub(crate) fn manifests(lab: &mut Lab) -> Result<()> {
    installed(&Seed(lab.seed.client()?), &all)?;
    let kinds = ["node-port", "load-balancer", "cluster-ip", "s2"];
    for name in kinds.map(|name| format!("shoot--p--{name}")).iter().map(String::as_str).chain(["garden"]) {
        lab.seed.apply(&json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}))?;
    }
    let golden = folder("tests/fixtures/components");
    let strictly = ["--warnings-as-errors", "--validate=strict"];
    let create = ["create", "--dry-run=server", "--filename", &golden];
    wait::until("the server to accept the manifests", 20, || {
        lab.seed.kubectl(&[&create[..], &strictly].concat()).map(Some)
    })?;
    remove(&lab.seed)
}

/// The server accepts an object of each kind with all fields and its status, and refuses invalid objects for the reason
/// in the sample.
pub(crate) fn samples(lab: &mut Lab) -> Result<()> {
    let seed = Seed(lab.seed.client()?);
    installed(&seed, &all)?;
    let valid = folder("tests/fixtures/extensions/valid");
    // kubectl makes the server refuse unknown fields: this finds a field that a schema lacks.
    wait::until("the server to accept the samples", 20, || {
        lab.seed
            .kubectl(&[
                "create",
                "--dry-run=server",
                "--warnings-as-errors",
                "--validate=strict",
                "--filename",
                &valid,
            ])
            .map(Some)
    })?;
    for sample in documents(&valid)? {
        accepted(&seed, &sample)?;
    }
    for sample in documents(&folder("tests/fixtures/extensions/invalid"))? {
        refused(&seed, &sample)?;
    }
    remove(&lab.seed)
}

/// Including those of other projects.
fn all() -> Vec<Value> {
    let foreign = Foreign { is_garden: false, vpa: true, machines: true, etcd: true };
    crds::all().chain(crds::foreign(foreign)).collect()
}

fn folder(name: &str) -> String {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(name).display().to_string()
}

/// Installs definitions as an agent does.
pub(crate) fn installed(seed: &Seed, definitions: &dyn Fn() -> Vec<Value>) -> Result<()> {
    wait::until("the definitions to be established", 30, || match install::ensure(seed, definitions()) {
        Ok(install::Step::Done) => Ok(Some(())),
        Ok(install::Step::Again(waiting)) => Err(Failure::new(waiting[0].to_string())),
        Err(err) => Err(Failure::from(err)),
    })
}

fn versions(seed: &Seed, definitions: &[Value]) -> Result<Vec<Value>> {
    let read = |crd: &Value| {
        let name = crd["metadata"]["name"].as_str().unwrap_or_default();
        let live: Value = seed.get(&CUSTOM_RESOURCE_DEFINITION, &Key::cluster(name))?;
        Ok(live["metadata"]["resourceVersion"].clone())
    };
    definitions.iter().map(read).collect()
}

/// Deletes the definitions and their objects again.
///
/// A server that has just begun to serve a definition may be unable to list its objects ("storage is (re)initializing").
/// Its finalizer then tries again at once, often with a copy of the definition that lacks its own last change. It gets
/// a conflict, waits for that change, and ignores it because only a condition is different: the definition stays until
/// its informers list everything again, up to five minutes later. Any other change makes it continue.
fn remove(cluster: &Cluster) -> Result<()> {
    let client = cluster.client()?;
    let definitions = folder("src/components/crds");
    let delete = ["delete", "--ignore-not-found", "--timeout=5s", "--recursive", "--filename", &definitions];
    let mut tries = 0;
    wait::until("the definitions to be deleted", 120, || {
        let deleted = cluster.kubectl(&delete);
        if deleted.is_err() {
            tries += 1;
            touch(&client, tries)?;
        }
        deleted.map(|_| Some(()))
    })
}

/// Changes the definitions that are being deleted.
fn touch(client: &Client, tries: u32) -> Result<()> {
    let params = ListParams { metadata_only: true, ..ListParams::default() };
    let found = client.list::<Value>(&CUSTOM_RESOURCE_DEFINITION, ALL_NAMESPACES, &params)?.items;
    for metadata in found.iter().map(|found| &found["metadata"]) {
        if metadata["deletionTimestamp"].is_null() {
            continue;
        }
        let name = metadata["name"].as_str().unwrap_or_default();
        let patch = Patch::Merge(json!({"metadata": {"annotations": {"tries": tries.to_string()}}}));
        match client.patch::<Value>(&CUSTOM_RESOURCE_DEFINITION, &Key::cluster(name), &patch) {
            // It was deleted meanwhile.
            Err(err) if err.verdict() != ErrorVerdict::NotFound => return Err(err.into()),
            _ => println!("       {name} was touched to be deleted"),
        }
    }
    Ok(())
}

/// Creates an object, writes its status, and finds both unchanged. If a sample lacks fields that have defaults, its annotation
/// `stored` has the spec with them.
fn accepted(client: &Client, sample: &Value) -> Result<()> {
    let (resource, namespace, name) = place(sample)?;
    let mut live: Value = client.create(&resource, namespace, sample)?;
    if let Some(status) = sample.get("status") {
        live["status"] = status.clone();
        live = client.replace_status(&resource, &Key::new(namespace, name), &live)?;
        equal(&format!("status of {}", resource.kind), &live["status"], status)?;
    }
    let spec = match sample["metadata"]["annotations"]["stored"].as_str() {
        Some(stored) => {
            serde_json::from_str(stored).doing(|| format!("read what {} stores", resource.kind))?
        }
        None => sample["spec"].clone(),
    };
    equal(&format!("spec of {}", resource.kind), &live["spec"], &spec)?;
    let extension = resource.group == "extensions.gardener.cloud" && live["spec"].get("type").is_some();
    if extension && live["spec"].get("class").is_some() {
        let patch = Patch::Merge(json!({ "spec": { "class": "garden" } }));
        let answer = client.patch::<Value>(&resource, &Key::new(namespace, name), &patch);
        let message = answer.err().map(|err| err.to_string()).unwrap_or_default();
        ensure(message.contains("immutable"), || format!("class of {}: {message:?}", resource.kind))?;
    }
    Ok(())
}

fn refused(client: &Client, sample: &Value) -> Result<()> {
    let (resource, namespace, name) = place(sample)?;
    let why = sample["metadata"]["annotations"]["refused"].as_str().unwrap_or("no reason given");
    match client.create::<Value>(&resource, namespace, sample) {
        Ok(_) => Err(Failure::new(format!("{} {name} was accepted, despite {why}", resource.kind))),
        Err(err) => ensure(err.verdict() == ErrorVerdict::Invalid && err.to_string().contains(why), || {
            format!("{} {name}: expected {why:?}, found {err}", resource.kind)
        }),
    }
}

/// The place of an object: its kind from the definition, its namespace and its name.
fn place(object: &Value) -> Result<(Resource, &str, &str)> {
    let kind = object["kind"].as_str().unwrap_or_default();
    let definition = all()
        .into_iter()
        .find(|crd| crd["spec"]["names"]["kind"] == kind)
        .ok_or_else(|| Failure::new(format!("no definition of {kind:?}")))?;
    let text = |pointer: &str| {
        definition.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned().into()
    };
    let resource = Resource {
        group: text("/spec/group"),
        version: stored_version(&definition).to_owned().into(),
        kind: text("/spec/names/kind"),
        plural: text("/spec/names/plural"),
        namespaced: definition["spec"]["scope"] == "Namespaced",
    };
    let metadata = &object["metadata"];
    let namespace = metadata["namespace"].as_str().unwrap_or_default();
    Ok((resource, namespace, metadata["name"].as_str().unwrap_or_default()))
}

fn stored_version(definition: &Value) -> &str {
    let all = definition["spec"]["versions"].as_array().map(Vec::as_slice).unwrap_or_default();
    let stored = all.iter().find(|version| version["storage"] == true);
    stored.and_then(|version| version["name"].as_str()).unwrap_or_default()
}

fn documents(folder: &str) -> Result<Vec<Value>> {
    let mut paths: Vec<PathBuf> = Vec::new();
    for entry in fs::read_dir(folder)? {
        paths.push(entry?.path());
    }
    paths.sort();
    let mut found = Vec::new();
    for path in paths {
        for document in yaml::parse_all(&fs::read_to_string(&path)?) {
            found.push(document.value.doing(|| format!("parse {}", path.display()))?);
        }
    }
    Ok(found)
}
