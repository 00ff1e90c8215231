//! Makes and removes ControllerInstallations, and keeps the Seed's condition ExtensionsReady.

use std::collections::{BTreeMap, BTreeSet};

use gardenlet::api::core::{CONFIG_MAP, SECRET};
use gardenlet::api::gardener::{
    BACKUP_BUCKET, CONTROLLER_DEPLOYMENT, CONTROLLER_INSTALLATION, CONTROLLER_REGISTRATION, SHOOT,
};
use gardenlet::api::meta::{ALL_NAMESPACES, CLUSTER_SCOPED, Key};
use serde_json::{Value, json};

use super::manager::Manager;
use super::shoot::is_workerless;
use crate::api::failure::Failure;
use crate::api::selector::matches_spec;
use crate::api::write::Patch;
use crate::encoding::sha256_hex;
use crate::json::{entry, list, text};

const FINALIZER: &str = "core.gardener.cloud/controllerregistration";
/// The kinds of a provider of machines.
const OF_PROVIDER: [&str; 3] = ["ControlPlane", "Infrastructure", "Worker"];
const POD_SECURITY: &str = "security.gardener.cloud/pod-security-enforce";

/// What there is, by name.
#[derive(Default)]
struct World {
    registrations: Vec<Value>,
    deployments: BTreeMap<String, Value>,
    installations: Vec<Value>,
    shoots: Vec<Value>,
    buckets: Vec<Value>,
}

pub fn sync(manager: &Manager, seeds: &[Value]) -> Result<(), Failure> {
    let cluster = &manager.cluster;
    let by_name = |o: Value| (text(&o, "/metadata/name").to_owned(), o);
    let world = World {
        registrations: cluster.list(&CONTROLLER_REGISTRATION, ALL_NAMESPACES)?,
        deployments: cluster.list(&CONTROLLER_DEPLOYMENT, ALL_NAMESPACES)?.into_iter().map(by_name).collect(),
        installations: cluster.list(&CONTROLLER_INSTALLATION, ALL_NAMESPACES)?,
        shoots: cluster.list(&SHOOT, ALL_NAMESPACES)?,
        buckets: cluster.list(&BACKUP_BUCKET, ALL_NAMESPACES)?,
    };
    for registration in &world.registrations {
        hold(manager, &world, registration)?;
    }
    for seed in seeds {
        let wanted = wanted(&world, seed);
        for registration in &world.registrations {
            let is_wanted = wanted.contains(text(registration, "/metadata/name"));
            sync_one(manager, &world, seed, registration, is_wanted)?;
        }
        extensions_ready(manager, &world, seed)?;
    }
    remove_orphans(manager, &world)
}

/// A registration stays until its installations are gone.
fn hold(manager: &Manager, world: &World, registration: &Value) -> Result<(), Failure> {
    let name = text(registration, "/metadata/name");
    let finalizers = list(registration, "/metadata/finalizers");
    let held = finalizers.iter().any(|f| f == FINALIZER);
    let used = world.installations.iter().any(|i| text(i, "/spec/registrationRef/name") == name);
    let deleting = !text(registration, "/metadata/deletionTimestamp").is_empty();
    let mut next: Vec<Value> = finalizers.iter().filter(|f| *f != FINALIZER).cloned().collect();
    if (held || !deleting) && (used || held && !deleting) {
        next.push(FINALIZER.into());
    }
    if next.len() == finalizers.len() {
        return Ok(());
    }
    let patch = json!({"metadata": {"finalizers": next, "resourceVersion": registration["metadata"]["resourceVersion"]}});
    manager.cluster.patch(&CONTROLLER_REGISTRATION, &Key::cluster(name), "", &Patch::Merge(patch)).map(drop)
}

/// The names of the registrations that a seed needs.
fn wanted(world: &World, seed: &Value) -> BTreeSet<String> {
    if !text(seed, "/metadata/deletionTimestamp").is_empty() {
        return BTreeSet::new();
    }
    let needed = needed_types(world, seed);
    let seed_name = text(seed, "/metadata/name");
    let has_shoots = world.shoots.iter().any(|s| text(s, "/spec/seedName") == seed_name);
    let is_wanted = |registration: &&Value| {
        let deployment = &registration["spec"]["deployment"];
        let fits = deployment["seedSelector"].is_null()
            || matches_spec(&deployment["seedSelector"], &seed["metadata"]["labels"]);
        let asked = match text(deployment, "/policy") {
            "Always" => true,
            "AlwaysExceptNoShoots" => has_shoots,
            _ => list(registration, "/spec/resources")
                .iter()
                .any(|r| needed.contains(&(text(r, "/kind").to_owned(), text(r, "/type").to_owned()))),
        };
        // The real one needs no deployment. Most registrations of tests without one are promises, which would never be ready.
        let is_of_hosts =
            || list(registration, "/spec/resources").iter().any(|r| r["kind"] == "OperatingSystemConfig");
        fits && asked
            && (!list(deployment, "/deploymentRefs").is_empty() || is_of_hosts())
            && text(registration, "/metadata/deletionTimestamp").is_empty()
    };
    let found = world.registrations.iter().filter(is_wanted);
    found.map(|r| text(r, "/metadata/name").to_owned()).collect()
}

/// Kinds and types of extensions that a seed and its Shoots need.
fn needed_types(world: &World, seed: &Value) -> BTreeSet<(String, String)> {
    let seed_name = text(seed, "/metadata/name");
    let mut needed = BTreeSet::new();
    let mut need = |kind: &str, kind_type: &str| {
        if !kind_type.is_empty() {
            needed.insert((kind.to_owned(), kind_type.to_owned()));
        }
    };
    for kind in OF_PROVIDER {
        need(kind, text(seed, "/spec/provider/type"));
    }
    need("DNSRecord", text(seed, "/spec/dns/internal/type"));
    need("DNSRecord", text(seed, "/spec/dns/provider/type"));
    list(seed, "/spec/dns/defaults").iter().for_each(|d| need("DNSRecord", text(d, "/type")));
    extensions(world, seed, "seed").iter().for_each(|e| need("Extension", e));
    for bucket in world.buckets.iter().filter(|b| text(b, "/spec/seedName") == seed_name) {
        need("BackupBucket", text(bucket, "/spec/provider/type"));
        need("BackupEntry", text(bucket, "/spec/provider/type"));
    }
    let on_seed =
        |s: &&Value| text(s, "/spec/seedName") == seed_name || text(s, "/status/seedName") == seed_name;
    for shoot in world.shoots.iter().filter(on_seed) {
        if !is_workerless(shoot) {
            OF_PROVIDER.iter().for_each(|kind| need(kind, text(shoot, "/spec/provider/type")));
            let workers = list(shoot, "/spec/provider/workers").iter();
            workers.for_each(|w| need("OperatingSystemConfig", text(w, "/machine/image/name")));
        }
        need("Network", text(shoot, "/spec/networking/type"));
        list(shoot, "/spec/dns/providers").iter().for_each(|p| need("DNSRecord", text(p, "/type")));
        extensions(world, shoot, "shoot").iter().for_each(|e| need("Extension", e));
    }
    needed.retain(|(_, kind_type)| kind_type != "unmanaged");
    needed
}

/// The types of the Extensions of a Seed or Shoot: those that it lists, and those that are enabled automatically unless
/// it disables them.
fn extensions<'a>(world: &'a World, object: &'a Value, class: &str) -> BTreeSet<&'a str> {
    let is_off = |e: &&Value| e["disabled"] == true || e["enabled"] == false;
    let (off, on): (Vec<&Value>, Vec<&Value>) = list(object, "/spec/extensions").iter().partition(is_off);
    let workerless = class == "shoot" && is_workerless(object);
    let by_itself = |r: &&Value| {
        let enabled = list(r, "/autoEnable").iter().any(|c| c == class);
        r["kind"] == "Extension" && enabled && (!workerless || r["workerlessSupported"] == true)
    };
    let resources = world.registrations.iter().flat_map(|r| list(r, "/spec/resources"));
    let mut all: BTreeSet<&str> = resources.filter(by_itself).map(|r| text(r, "/type")).collect();
    all.extend(on.iter().map(|e| text(e, "/type")));
    all.retain(|kind| !off.iter().any(|e| text(e, "/type") == *kind));
    all
}

fn hash(value: &Value) -> String {
    sha256_hex(value.to_string().as_bytes())[..16].to_owned()
}

fn sync_one(
    manager: &Manager,
    world: &World,
    seed: &Value,
    registration: &Value,
    is_wanted: bool,
) -> Result<(), Failure> {
    let (seed_name, name) = (text(seed, "/metadata/name"), text(registration, "/metadata/name"));
    let present: Vec<&Value> = world
        .installations
        .iter()
        .filter(|i| {
            text(i, "/spec/seedRef/name") == seed_name && text(i, "/spec/registrationRef/name") == name
        })
        .collect();
    if !is_wanted {
        return present.into_iter().try_for_each(|i| remove(manager, i));
    }
    let Some(object) = desired(manager, world, seed, registration)? else { return Ok(()) };
    match present.first() {
        Some(old) if text(old, "/metadata/deletionTimestamp").is_empty() => {
            let keys = ["registration-spec-hash", "seed-spec-hash", "deployment-hash"];
            let label = |o: &Value, key: &str| entry(o, "/metadata/labels", key).map(str::to_owned);
            let same = keys.iter().all(|key| label(old, key) == label(&object, key))
                && old["spec"].get("resourceRefs") == object["spec"].get("resourceRefs");
            if same {
                return Ok(());
            }
            let mut patch = object;
            patch["metadata"].as_object_mut().unwrap().remove("generateName");
            manager.cluster.patch(&CONTROLLER_INSTALLATION, &Key::of(old), "", &Patch::Merge(patch)).map(drop)
        }
        // One installation at a time: the old one must be deleted first.
        Some(_) => Ok(()),
        None => manager.cluster.create(&CONTROLLER_INSTALLATION, CLUSTER_SCOPED, &object).map(drop),
    }
}

/// The installation of a registration on a seed; none while its deployment is missing.
fn desired(
    manager: &Manager,
    world: &World,
    seed: &Value,
    registration: &Value,
) -> Result<Option<Value>, Failure> {
    let reference = |o: &Value| json!({"name": o["metadata"]["name"], "resourceVersion": o["metadata"]["resourceVersion"]});
    let mut object = json!({
        "metadata": {"generateName": format!("{}-", text(registration, "/metadata/name")), "labels": {
            "registration-spec-hash": hash(&registration["spec"]), "seed-spec-hash": hash(&seed["spec"])}},
        "spec": {"registrationRef": reference(registration), "seedRef": reference(seed)}});
    let deployment_name = text(registration, "/spec/deployment/deploymentRefs/0/name");
    let found = world.deployments.get(deployment_name);
    if found.is_none() && !deployment_name.is_empty() {
        return Ok(None);
    }
    if let Some(deployment) = found {
        let mut content = deployment.clone();
        for key in ["metadata", "kind", "apiVersion"] {
            content.as_object_mut().unwrap().remove(key);
        }
        object["metadata"]["labels"]["deployment-hash"] = hash(&content).into();
        object["spec"]["deploymentRef"] = reference(deployment);
    }
    let deployment = found.unwrap_or(&Value::Null);
    if let Some(level) = entry(registration, "/metadata/annotations", POD_SECURITY) {
        object["metadata"]["annotations"] = json!({POD_SECURITY: level});
    }
    let mut resources = Vec::new();
    for named in list(deployment, "/resources").iter().filter_map(|r| r.get("resourceRef")) {
        let kind = if named["kind"] == "Secret" { &SECRET } else { &CONFIG_MAP };
        if let Some(found) = manager.cluster.get(kind, &Key::new("garden", text(named, "/name")))? {
            resources.push(json!({"apiVersion": "v1", "kind": named["kind"], "namespace": "garden",
                "name": named["name"], "resourceVersion": found["metadata"]["resourceVersion"]}));
        }
    }
    if !resources.is_empty() {
        object["spec"]["resourceRefs"] = resources.into();
    }
    Ok(Some(object))
}

fn condition<'a>(object: &'a Value, kind: &str) -> &'a str {
    let found = list(object, "/status/conditions").iter().find(|c| c["type"] == kind);
    found.map_or("", |c| text(c, "/status"))
}

fn remove(manager: &Manager, installation: &Value) -> Result<(), Failure> {
    let deleting = !text(installation, "/metadata/deletionTimestamp").is_empty();
    if deleting || condition(installation, "Required") == "True" {
        return Ok(());
    }
    manager.cluster.delete(&CONTROLLER_INSTALLATION, &Key::of(installation))
}

/// Installations of registrations that do not exist any more.
fn remove_orphans(manager: &Manager, world: &World) -> Result<(), Failure> {
    let known = |i: &&Value| {
        let name = text(i, "/spec/registrationRef/name");
        !world.registrations.iter().any(|r| text(r, "/metadata/name") == name)
    };
    world.installations.iter().filter(known).try_for_each(|i| remove(manager, i))
}

fn extensions_ready(manager: &Manager, world: &World, seed: &Value) -> Result<(), Failure> {
    let seed_name = text(seed, "/metadata/name");
    // Before the agent's first report there are no conditions.
    if seed["status"]["gardener"].is_null() || !text(seed, "/metadata/deletionTimestamp").is_empty() {
        return Ok(());
    }
    let mut installations = world.installations.iter().filter(|i| text(i, "/spec/seedRef/name") == seed_name);
    let bad = installations.find_map(|i| {
        let expected = [
            ("Valid", "True", "NotValid"),
            ("Installed", "True", "NotInstalled"),
            ("Healthy", "True", "NotHealthy"),
            ("Progressing", "False", "Progressing"),
        ];
        let wrong = expected.into_iter().find(|(kind, status, _)| condition(i, kind) != *status)?;
        Some((text(i, "/metadata/name").to_owned(), wrong))
    });
    match bad {
        None => {
            let message = "All extensions installed into the seed cluster are ready and healthy.";
            manager.set_seed_condition(seed, "ExtensionsReady", ("True", "AllExtensionsReady", message))
        }
        Some((name, (kind, _, reason))) => {
            let message = format!("Extension {name} is not ready: condition {kind}");
            manager.set_seed_condition(seed, "ExtensionsReady", ("False", reason, &message))
        }
    }
}

#[test]
fn a_seed_needs_what_it_names_and_what_its_shoots_name() {
    let seed = json!({"metadata": {"name": "a"}, "spec": {"provider": {"type": "local"},
        "dns": {"internal": {"type": "unmanaged"}, "provider": {"type": "names"}},
        "extensions": [{"type": "own"}, {"type": "unwanted", "disabled": true}]}});
    let extension = |name: &str, class: &str, workerless: bool| json!({"kind": "Extension", "type": name, "autoEnable": [class], "workerlessSupported": workerless});
    let registration = json!({"spec": {"resources": [extension("auto", "seed", false), extension("unwanted", "seed", false),
        extension("for-all", "shoot", true), extension("for-workers", "shoot", false)]}});
    let shoot = |seed: &str, extra: Value| {
        let mut spec =
            json!({"seedName": seed, "provider": {"type": "other"}, "extensions": [{"type": "listed"}]});
        spec.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
        json!({"spec": spec})
    };
    let with_workers =
        json!({"provider": {"type": "other", "workers": [{"name": "w"}]}, "networking": {"type": "net"}});
    let bucket = json!({"spec": {"seedName": "a", "provider": {"type": "store"}}});
    let of_seed = [
        "ControlPlane local",
        "DNSRecord names",
        "Extension auto",
        "Extension own",
        "Infrastructure local",
        "Worker local",
    ];
    let table: [(Vec<Value>, Vec<Value>, &[&str]); 5] = [
        (vec![], vec![], &[]),
        (vec![shoot("b", json!({}))], vec![], &[]),
        (vec![shoot("a", json!({}))], vec![], &["Extension for-all", "Extension listed"]),
        (
            vec![shoot("a", with_workers)],
            vec![],
            &[
                "ControlPlane other",
                "Extension for-all",
                "Extension for-workers",
                "Extension listed",
                "Infrastructure other",
                "Network net",
                "Worker other",
            ],
        ),
        (vec![], vec![bucket], &["BackupBucket store", "BackupEntry store"]),
    ];
    for (shoots, buckets, more) in table {
        let registrations = vec![registration.clone()];
        let world = World { registrations, shoots, buckets, ..World::default() };
        let found: BTreeSet<String> =
            needed_types(&world, &seed).into_iter().map(|(kind, name)| format!("{kind} {name}")).collect();
        let expected: BTreeSet<String> = of_seed.iter().chain(more).map(|s| (*s).to_owned()).collect();
        assert_eq!(found, expected);
    }
}
