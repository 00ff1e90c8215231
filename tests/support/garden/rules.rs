//! What gardener-apiserver does to its objects: labels that it keeps, defaults, generations that operation annotations
//! move, and the two versions of a ControllerDeployment. Shoots have a folder of their own.

use serde_json::{Value, json};

use super::kinds::CORE;
use crate::api::failure::Failure;
use crate::api::rules::{Rules, Write, strip};
use crate::api::store::State;
use crate::json::{default, elements, entry, list, map, remove, set, text};

pub const OPERATION: &str = "gardener.cloud/operation";
pub const CONFIRMATION: &str = "confirmation.gardener.cloud/deletion";
pub const FORCE_DELETION: &str = "confirmation.gardener.cloud/force-deletion";
const FORCE_DELETIONS: [&str; 2] = [FORCE_DELETION, "backupentry.core.gardener.cloud/force-deletion"];
const SEED_LABEL: &str = "name.seed.gardener.cloud/";

/// The operation that an object asks for.
pub fn operation(object: &Value) -> &str {
    entry(object, "/metadata/annotations", OPERATION).unwrap_or_default()
}

pub fn drop_operation(object: &mut Value, stripped: &[&str]) {
    if stripped.contains(&operation(object)) {
        map(object, "/metadata/annotations").remove(OPERATION);
        if map(object, "/metadata/annotations").is_empty() {
            remove(object, "/metadata/annotations");
        }
    }
}

/// Whether an annotation that asks for work is new.
pub fn asks_anew(old: &Value, asked: &Value, bumping: &[&str]) -> bool {
    let now = operation(asked);
    let is_new = |key| {
        let truth = |o| entry(o, "/metadata/annotations", key) == Some("true");
        truth(asked) && !truth(old)
    };
    (bumping.contains(&now) && operation(old) != now) || FORCE_DELETIONS.into_iter().any(is_new)
}

/// Sets the labels that name the seeds of an object, and removes those of others.
pub fn label_seeds(object: &mut Value, seeds: &[&str]) {
    let wanted: Vec<String> =
        seeds.iter().filter(|s| !s.is_empty()).map(|s| format!("{SEED_LABEL}{s}")).collect();
    let labels = map(object, "/metadata/labels");
    labels.retain(|key, _| !key.starts_with(SEED_LABEL) || wanted.contains(key));
    for label in wanted {
        labels.insert(label, "true".into());
    }
    if labels.is_empty() {
        remove(object, "/metadata/labels");
    }
}

/// A kind of the garden without rules of its own.
pub struct Plain;

impl Rules for Plain {}

/// Kinds on which operation annotations count as changes.
pub struct Operations {
    /// Values that move the generation when they appear.
    pub bumping: &'static [&'static str],
    /// Values that are not stored.
    pub stripped: &'static [&'static str],
}

impl Rules for Operations {
    fn update(&self, _old: &Value, new: &mut Value, _write: &Write<'_>) -> Result<(), Failure> {
        drop_operation(new, self.stripped);
        Ok(())
    }

    fn operation_bumps(&self, old: &Value, asked: &Value, _write: &Write<'_>) -> bool {
        asks_anew(old, asked, self.bumping)
    }
}

/// BackupBuckets: the same; where they are does not change.
pub struct Bucket {
    pub operations: Operations,
}

impl Rules for Bucket {
    fn update(&self, old: &Value, new: &mut Value, write: &Write<'_>) -> Result<(), Failure> {
        self.operations.update(old, new, write)?;
        let fixed =
            ["provider", "seedName"].into_iter().filter(|name| old["spec"][*name] != new["spec"][*name]);
        let why = |name: &str| format!("Invalid value: {}: field is immutable", new["spec"][name]);
        let wrong: Vec<(String, String)> = fixed.map(|name| (format!("spec.{name}"), why(name))).collect();
        refuse_all(write, new, &wrong)
    }

    fn operation_bumps(&self, old: &Value, asked: &Value, write: &Write<'_>) -> bool {
        self.operations.operation_bumps(old, asked, write)
    }

    fn holds_back(&self, object: &Value, state: &State) -> Option<String> {
        let entries = state
            .of(CORE, "backupentries", "")
            .filter(|(_, e)| text(e, "/spec/bucketName") == text(object, "/metadata/name"));
        let names: Vec<String> = entries.map(|(id, _)| format!("{}/{}", id.namespace, id.name)).collect();
        (!names.is_empty()).then(|| {
            format!(
                "cannot delete BackupBucket because BackupEntries are still referencing it, backupEntryNames: {}",
                names.join(",")
            )
        })
    }
}

/// BackupEntries: each operation counts and only `restore` is stored; labels for the seeds in spec and status, and their bucket.
pub struct SeedNames;

fn label_both(object: &mut Value) {
    let (spec, status) =
        (text(object, "/spec/seedName").to_owned(), text(object, "/status/seedName").to_owned());
    label_seeds(object, &[&spec, &status]);
}

impl Rules for SeedNames {
    fn create(&self, object: &mut Value, write: &Write<'_>) -> Result<(), Failure> {
        label_both(object);
        let bucket = text(object, "/spec/bucketName");
        if !bucket.is_empty() && write.state.get(CORE, "backupbuckets", "", bucket).is_none() {
            return Err(Failure::internal(&format!("backupbucket.core.gardener.cloud {bucket:?} not found")));
        }
        Ok(())
    }

    fn update(&self, _old: &Value, new: &mut Value, write: &Write<'_>) -> Result<(), Failure> {
        let asked = operation(new).to_owned();
        if write.subresource.is_empty() && !asked.is_empty() && asked != "restore" {
            drop_operation(new, &[&asked]);
        }
        label_both(new);
        Ok(())
    }

    fn operation_bumps(&self, old: &Value, asked: &Value, write: &Write<'_>) -> bool {
        let now = operation(asked);
        let is_asked = !now.is_empty() && (now != "restore" || operation(old) != "restore");
        write.subresource.is_empty() && (is_asked || asks_anew(old, asked, &[]))
    }
}

/// Why an object that needs a confirmation may not be deleted.
pub fn unconfirmed(object: &Value) -> Option<String> {
    let confirmed = entry(object, "/metadata/annotations", CONFIRMATION) == Some("true");
    (!confirmed).then(|| format!("must have a {CONFIRMATION:?} annotation to delete"))
}

/// ManagedSeeds: how their agent gets into the garden.
pub struct Managed {
    pub operations: Operations,
}

fn managed_defaults(object: &mut Value) {
    default(object, "/spec/gardenlet/bootstrap", "BootstrapToken");
    default(object, "/spec/gardenlet/mergeWithParent", true);
}

impl Rules for Managed {
    fn create(&self, object: &mut Value, _write: &Write<'_>) -> Result<(), Failure> {
        managed_defaults(object);
        Ok(())
    }

    fn update(&self, old: &Value, new: &mut Value, write: &Write<'_>) -> Result<(), Failure> {
        managed_defaults(new);
        self.operations.update(old, new, write)
    }

    fn operation_bumps(&self, old: &Value, asked: &Value, write: &Write<'_>) -> bool {
        self.operations.operation_bumps(old, asked, write)
    }
}

/// ShootStates: only the confirmation.
pub struct Confirmed;

impl Rules for Confirmed {
    fn holds_back(&self, object: &Value, _state: &State) -> Option<String> {
        unconfirmed(object)
    }
}

/// CloudProfiles: the fields that their schema requires.
pub struct Profile;

fn check_profile(profile: &Value, write: &Write<'_>) -> Result<(), Failure> {
    if text(profile, "/spec/type").is_empty() {
        return Err(refuse(write, profile, "spec.type", "Required value: must provide a provider type"));
    }
    for field in ["kubernetes.versions", "machineImages", "machineTypes", "regions"] {
        if list(profile, &format!("/spec/{}", field.replace('.', "/"))).is_empty() {
            return Err(refuse(write, profile, &format!("spec.{field}"), "Required value"));
        }
    }
    Ok(())
}

impl Rules for Profile {
    fn create(&self, object: &mut Value, write: &Write<'_>) -> Result<(), Failure> {
        check_profile(object, write)
    }

    fn update(&self, _old: &Value, new: &mut Value, write: &Write<'_>) -> Result<(), Failure> {
        check_profile(new, write)
    }
}

/// Projects: the creator owns them, and their namespace does not change.
pub struct Project;

impl Rules for Project {
    fn create(&self, object: &mut Value, write: &Write<'_>) -> Result<(), Failure> {
        let user = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": write.user});
        set(object, "/spec/createdBy", user.clone());
        default(object, "/spec/owner", user);
        let mut owner = object["spec"]["owner"].clone();
        if !list(object, "/spec/members").iter().any(|m| m["name"] == owner["name"]) {
            owner["role"] = "admin".into();
            owner["roles"] = json!(["owner"]);
            let mut members = list(object, "/spec/members").to_vec();
            members.push(owner);
            set(object, "/spec/members", members);
        }
        let (name, namespace) = (text(object, "/metadata/name"), text(object, "/spec/namespace"));
        if name.len() > 10 {
            return Err(refuse(write, object, "metadata.name", "Too long: may not be more than 10 bytes"));
        }
        if !namespace.is_empty() && namespace != "garden" && !namespace.starts_with("garden-") {
            let why = format!("Invalid value: {namespace:?}: must start with garden-");
            return Err(refuse(write, object, "spec.namespace", &why));
        }
        Ok(())
    }

    fn update(&self, old: &Value, new: &mut Value, write: &Write<'_>) -> Result<(), Failure> {
        let was = text(old, "/spec/namespace");
        if !was.is_empty() && was != text(new, "/spec/namespace") {
            let why = format!("Invalid value: {:?}: field is immutable", text(new, "/spec/namespace"));
            return Err(refuse(write, new, "spec.namespace", &why));
        }
        Ok(())
    }

    fn holds_back(&self, object: &Value, _state: &State) -> Option<String> {
        unconfirmed(object)
    }
}

/// The refusal of these fields, if there are any.
pub fn refuse_all(write: &Write<'_>, object: &Value, wrong: &[(String, String)]) -> Result<(), Failure> {
    if wrong.is_empty() {
        return Ok(());
    }
    let name = text(object, "/metadata/name");
    Err(Failure::all_invalid(&write.kind.group, &write.kind.kind, name, wrong))
}

/// The refusal of a field.
pub fn refuse(write: &Write<'_>, object: &Value, field: &str, why: &str) -> Failure {
    Failure::invalid(&write.kind.group, &write.kind.kind, text(object, "/metadata/name"), field, why)
}

/// ControllerRegistrations.
pub struct Registration;

fn registration_defaults(object: &mut Value) {
    for resource in elements(object, "/spec/resources") {
        default(resource, "/primary", true);
        if resource["kind"] == "Extension" {
            let times = [
                ("reconcile", "AfterKubeAPIServer"),
                ("delete", "BeforeKubeAPIServer"),
                ("migrate", "BeforeKubeAPIServer"),
            ];
            for (when, value) in times {
                default(resource, &format!("/lifecycle/{when}"), value);
            }
        }
    }
    if object.pointer("/spec/deployment").is_some() {
        default(object, "/spec/deployment/policy", "OnDemand");
    }
}

impl Rules for Registration {
    fn create(&self, object: &mut Value, _write: &Write<'_>) -> Result<(), Failure> {
        registration_defaults(object);
        Ok(())
    }

    fn update(&self, _old: &Value, new: &mut Value, _write: &Write<'_>) -> Result<(), Failure> {
        registration_defaults(new);
        Ok(())
    }
}

/// ControllerInstallations: what they are for does not change.
pub struct Installation;

impl Rules for Installation {
    fn update(&self, old: &Value, new: &mut Value, write: &Write<'_>) -> Result<(), Failure> {
        for pointer in ["/spec/registrationRef/name", "/spec/seedRef/name"] {
            if text(old, pointer) != text(new, pointer) {
                let why = format!("Invalid value: {:?}: field is immutable", text(new, pointer));
                return Err(refuse(write, new, &pointer.trim_start_matches('/').replace('/', "."), &why));
            }
        }
        Ok(())
    }
}

/// ControllerDeployments: stored as v1, also served as v1beta1.
pub struct Deployment;

const TYPE: &str = "migration.controllerdeployment.gardener.cloud/type";
const PROVIDER_CONFIG: &str = "migration.controllerdeployment.gardener.cloud/providerConfig";

impl Rules for Deployment {
    fn bumps_generation(&self, old: &Value, new: &Value) -> bool {
        strip(old) != strip(new)
    }

    fn convert_out(&self, mut object: Value, _version: &str) -> Value {
        let fields = object.as_object_mut().unwrap();
        if let Some(mut helm) = fields.remove("helm") {
            if let Some(chart) = helm.as_object_mut().and_then(|h| h.remove("rawChart")) {
                helm["chart"] = chart;
            }
            fields.insert("type".into(), "helm".into());
            fields.insert("providerConfig".into(), helm);
            return object;
        }
        let take = |object: &mut Value, key| map(object, "/metadata/annotations").remove(key);
        if let Some(kind) = take(&mut object, TYPE) {
            object["type"] = kind;
        }
        if let Some(config) = take(&mut object, PROVIDER_CONFIG) {
            object["providerConfig"] =
                serde_json::from_str(config.as_str().unwrap_or_default()).unwrap_or_default();
        }
        object
    }

    fn convert_in(&self, mut object: Value, version: &str) -> Value {
        if version != "v1beta1" {
            return object;
        }
        let fields = object.as_object_mut().unwrap();
        let (kind, config) =
            (fields.remove("type").unwrap_or_default(), fields.remove("providerConfig").unwrap_or_default());
        if kind == "helm" {
            let mut helm = if config.is_object() { config } else { json!({}) };
            if let Some(chart) = helm.as_object_mut().and_then(|h| h.remove("chart")) {
                helm["rawChart"] = chart;
            }
            fields.insert("helm".into(), helm);
        } else {
            let annotations = map(&mut object, "/metadata/annotations");
            annotations.insert(TYPE.into(), kind);
            annotations.insert(PROVIDER_CONFIG.into(), config.to_string().into());
        }
        object
    }
}
