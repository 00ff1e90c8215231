//! POST, PUT and PATCH.

use std::sync::PoisonError;

use serde_json::{Value, json};

use super::failure::Failure;
use super::read::present;
use super::rules::Write;
use super::store::State;
use super::{Api, Operation, Review, Target, User, patch, validate};
use crate::json::{copy, list, map, remove, set, text};

/// A patch with its media type.
#[derive(Clone, Debug)]
pub enum Patch {
    Merge(Value),
    Json(Value),
    Strategic(Value),
}

const SUFFIX: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";

impl Api {
    /// POST to a collection.
    pub fn create(&self, target: &Target, object: Value, user: &User) -> Result<Value, Failure> {
        let now = self.now();
        self.change(|state| insert(self, state, target, object, user, &now))
    }

    /// PUT of an object or its subresource.
    pub fn update(&self, target: &Target, object: Value, user: &User) -> Result<Value, Failure> {
        let now = self.now();
        self.change(|state| {
            let object = self.shaped(target, typed(target, object)?, false)?;
            let Some(old) = state.objects.get(&target.id()).cloned() else {
                let creates = target.kind.put_creates && target.subresource.is_empty();
                return if creates {
                    insert(self, state, target, object, user, &now)
                } else {
                    Err(target.not_found())
                };
            };
            check_name(target, &object)?;
            let unconditional = text(&object, "/metadata/resourceVersion").is_empty();
            if unconditional && (target.kind.conditional || target.kind.custom) {
                let why = "Invalid value: 0: must be specified for an update";
                return Err(target.invalid("metadata.resourceVersion", why));
            }
            let new = target.kind.rules.convert_in(object, &target.version);
            self.admit_change(state, target, &old, user, &now)?;
            replace(state, target, &old, new, user, &now)
        })
    }

    /// PATCH of an object or its subresource.
    pub fn patch(&self, target: &Target, patch: &Patch, user: &User) -> Result<Value, Failure> {
        let now = self.now();
        self.change(|state| {
            let old = state.objects.get(&target.id()).cloned().ok_or_else(|| target.not_found())?;
            let mut new = present(&target.kind, &target.version, &old);
            match patch {
                Patch::Merge(patch) => patch::merge(&mut new, patch),
                Patch::Json(patch) => patch::json_patch(&mut new, patch)?,
                Patch::Strategic(_) if target.kind.custom => {
                    let accepted = [
                        "application/json-patch+json",
                        "application/merge-patch+json",
                        "application/apply-patch+yaml",
                    ];
                    return Err(Failure::unsupported_media_type(&accepted));
                }
                Patch::Strategic(patch) => patch::strategic(&mut new, patch)?,
            }
            let new = self.shaped(target, typed(target, new)?, true)?;
            check_name(target, &new)?;
            let (sent, uid) = (text(&new, "/metadata/uid"), text(&old, "/metadata/uid"));
            if !sent.is_empty() && sent != uid {
                let why = format!("Invalid value: {sent:?}: field is immutable");
                return Err(target.invalid("metadata.uid", &why));
            }
            let new = target.kind.rules.convert_in(new, &target.version);
            self.admit_change(state, target, &old, user, &now)?;
            replace(state, target, &old, new, user, &now)
        })
    }
}

impl Api {
    /// Drops unknown fields, with a warning or an error.
    fn shaped(&self, target: &Target, mut object: Value, is_patch: bool) -> Result<Value, Failure> {
        let kind = &target.kind;
        let Some(shape) = kind.shape else { return Ok(object) };
        let refused = |why: String| {
            if is_patch {
                return Failure::new(
                    422,
                    "Invalid",
                    format!(" \"\" is invalid: patch: Invalid value: {why}"),
                );
            }
            let (name, version) = (&kind.kind, &target.version);
            Failure::bad_request(format!(
                "{name} in version {version:?} cannot be handled as a {name}: {why}"
            ))
        };
        let unknown = shape(&kind.api_version(&target.version), &kind.kind, &mut object).map_err(refused)?;
        let texts: Vec<String> = unknown.iter().map(|field| format!("unknown field {field:?}")).collect();
        if self.is_strict && !texts.is_empty() {
            return Err(refused(format!("strict decoding error: {}", texts.join(", "))));
        }
        self.warnings.lock().unwrap_or_else(PoisonError::into_inner).extend(texts);
        Ok(object)
    }

    /// Asks the webhooks, which look at objects and not at their subresources.
    fn admit_change(
        &self,
        state: &State,
        target: &Target,
        old: &Value,
        user: &User,
        now: &str,
    ) -> Result<(), Failure> {
        if !target.subresource.is_empty() {
            return Ok(());
        }
        self.admit(&Review { state, target, object: old, user, operation: Operation::Update, now })
    }
}

fn check_name(target: &Target, object: &Value) -> Result<(), Failure> {
    let named = text(object, "/metadata/name");
    if named == target.name {
        return Ok(());
    }
    let (name, message) = (&target.name, "does not match the name on the URL");
    Err(Failure::bad_request(format!("the name of the object ({named}) {message} ({name})")))
}

/// Checks kind and API version of a body and fills them in.
fn typed(target: &Target, mut object: Value) -> Result<Value, Failure> {
    if !object.is_object() {
        return Err(Failure::bad_request("json: cannot unmarshal into an object"));
    }
    let expected = target.kind.api_version(&target.version);
    let (found, kind) = (text(&object, "/apiVersion"), text(&object, "/kind"));
    if !found.is_empty() && found != expected {
        let message = format!(
            "the API version in the data ({found}) does not match the expected API version ({expected})"
        );
        return Err(Failure::bad_request(message));
    }
    if (!kind.is_empty() && kind != target.kind.kind) || (kind.is_empty() && target.kind.custom) {
        return Err(Failure::bad_request(match kind {
            "" => "Object 'Kind' is missing".to_owned(),
            _ => format!(
                "{} in version {:?} cannot be handled as a {}",
                kind, target.version, target.kind.kind
            ),
        }));
    }
    object["apiVersion"] = expected.into();
    object["kind"] = target.kind.kind.clone().into();
    map(&mut object, "/metadata");
    for key in ["managedFields", "selfLink"] {
        remove(&mut object, &format!("/metadata/{key}"));
    }
    for key in ["labels", "annotations", "finalizers", "ownerReferences"] {
        let pointer = format!("/metadata/{key}");
        let empty =
            object.pointer(&pointer).is_some_and(|v| v.is_null() || *v == json!({}) || *v == json!([]));
        if empty {
            remove(&mut object, &pointer);
        }
    }
    Ok(object)
}

/// The request as the rules of a kind see it.
fn write<'a>(target: &'a Target, user: &'a User, now: &'a str, state: &'a State) -> Write<'a> {
    let (kind, subresource) = (&*target.kind, target.subresource.as_str());
    Write { kind, user: &user.name, groups: &user.groups, uid: &user.uid, subresource, now, state }
}

/// Sets namespace and name of a new object.
fn place(target: &Target, object: &mut Value) -> Result<(), Failure> {
    let namespace = text(object, "/metadata/namespace").to_owned();
    if target.kind.namespaced {
        if !namespace.is_empty() && namespace != target.namespace {
            let message =
                "the namespace of the provided object does not match the namespace sent on the request";
            return Err(Failure::bad_request(message));
        }
        set(object, "/metadata/namespace", target.namespace.clone());
    } else {
        remove(object, "/metadata/namespace");
    }
    if !text(object, "/metadata/name").is_empty() {
        return Ok(());
    }
    let prefix = text(object, "/metadata/generateName");
    if prefix.is_empty() {
        return Err(target.invalid("metadata.name", "Required value: name or generateName is required"));
    }
    let name = format!("{prefix}{}", gardenlet::base::random::text(5, SUFFIX));
    set(object, "/metadata/name", name);
    Ok(())
}

fn check_namespace(state: &State, target: &Target, name: &str) -> Result<(), Failure> {
    let namespace = &target.namespace;
    let Some(found) = state.get("", "namespaces", "", namespace) else {
        return Err(Failure::not_found("", "namespaces", namespace));
    };
    if text(found, "/status/phase") != "Terminating" {
        return Ok(());
    }
    let why = format!("unable to create new content in namespace {namespace} because it is being terminated");
    let mut failure = Failure::forbidden(&target.kind.group, &target.kind.plural, name, &why);
    if let Some(details) = &mut failure.details {
        let message = format!("namespace {namespace} is being terminated");
        details["causes"] =
            json!([{"reason": "NamespaceTerminating", "message": message, "field": "metadata.namespace"}]);
    }
    Err(failure)
}

fn check_schema(target: &Target, object: &mut Value) -> Result<(), Failure> {
    let Some(schema) = target.kind.schemas.get(&target.version) else { return Ok(()) };
    schema.shape(object);
    match schema.check(object) {
        Some((field, why)) => {
            let name = text(object, "/metadata/name");
            Err(Failure::invalid(&target.kind.group, &target.kind.kind, name, &field, &why))
        }
        None => Ok(()),
    }
}

fn insert(
    api: &Api,
    state: &mut State,
    target: &Target,
    object: Value,
    user: &User,
    now: &str,
) -> Result<Value, Failure> {
    let mut object = api.shaped(target, typed(target, object)?, false)?;
    place(target, &mut object)?;
    let name = text(&object, "/metadata/name").to_owned();
    if target.kind.namespaced && api.namespaces {
        check_namespace(state, target, &name)?;
    }
    if !text(&object, "/metadata/resourceVersion").is_empty() {
        return Err(Failure::new(500, "", "resourceVersion should not be set on objects to be created"));
    }
    if target.kind.status {
        remove(&mut object, "/status");
    }
    for key in ["deletionTimestamp", "deletionGracePeriodSeconds", "generation"] {
        remove(&mut object, &format!("/metadata/{key}"));
    }
    set(&mut object, "/metadata/uid", uid());
    set(&mut object, "/metadata/creationTimestamp", now);
    if target.kind.generation {
        set(&mut object, "/metadata/generation", 1);
    }
    check_schema(target, &mut object)?;
    let mut object = target.kind.rules.convert_in(object, &target.version);
    set(&mut object, "/apiVersion", target.kind.api_version(&target.kind.storage));
    target.kind.rules.create(&mut object, &write(target, user, now, state))?;
    validate::metadata(target, &object)?;
    let mut id = target.id();
    id.name.clone_from(&name);
    if state.objects.contains_key(&id) {
        return Err(Failure::already_exists(&id.group, &id.plural, &name));
    }
    api.admit(&Review { state, target, object: &object, user, operation: Operation::Create, now })?;
    let stored = state.put(id, object);
    Ok(present(&target.kind, &target.version, &stored))
}

/// A random (version 4) UUID.
pub fn uid() -> String {
    let mut hex = gardenlet::base::random::hex(32);
    hex.replace_range(12..13, "4");
    hex.replace_range(16..17, "8");
    format!("{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..])
}

/// Stores `new` in the place of `old`; both in the storage version.
pub fn replace(
    state: &mut State,
    target: &Target,
    old: &Value,
    new: Value,
    user: &User,
    now: &str,
) -> Result<Value, Failure> {
    let (group, plural, name) = (&target.kind.group, &target.kind.plural, &target.name);
    let sent = text(&new, "/metadata/resourceVersion");
    if !sent.is_empty() && sent != text(old, "/metadata/resourceVersion") {
        return Err(Failure::modified(group, plural, name));
    }
    let (sent, uid) = (text(&new, "/metadata/uid"), text(old, "/metadata/uid"));
    if !sent.is_empty() && sent != uid {
        let why = format!("Precondition failed: UID in precondition: {sent}, UID in object meta: {uid}");
        return Err(Failure::conflict(group, plural, name, &why));
    }
    let deleted = "/metadata/deletionTimestamp";
    let sent = text(&new, deleted);
    if !sent.is_empty() && sent != text(old, deleted) {
        return Err(target
            .invalid("metadata.deletionTimestamp", &format!("Invalid value: {sent:?}: field is immutable")));
    }
    let mut next = keep(target, old, new);
    set(&mut next, "/apiVersion", target.kind.api_version(&target.kind.storage));
    check_finalizers(target, old, &next)?;
    check_schema(target, &mut next)?;
    let write = write(target, user, now, state);
    let asked = target.kind.rules.operation_bumps(old, &next, &write);
    target.kind.rules.update(old, &mut next, &write)?;
    validate::metadata(target, &next)?;
    if target.kind.generation && (asked || target.kind.rules.bumps_generation(old, &next)) {
        let generation = old["metadata"]["generation"].as_i64().unwrap_or(0) + 1;
        set(&mut next, "/metadata/generation", generation);
    }
    if next == *old {
        return Ok(present(&target.kind, &target.version, old));
    }
    if is_finished(&next) {
        state.take(&target.id());
        return Ok(present(&target.kind, &target.version, &next));
    }
    let stored = state.put(target.id(), next);
    Ok(present(&target.kind, &target.version, &stored))
}

/// Whether it is deleted and has no finalizers left.
pub fn is_finished(object: &Value) -> bool {
    let held = !list(object, "/metadata/finalizers").is_empty()
        || (object["kind"] == "Namespace" && !list(object, "/spec/finalizers").is_empty());
    !held && !text(object, "/metadata/deletionTimestamp").is_empty()
}

/// Takes from a request only what it may change.
fn keep(target: &Target, old: &Value, new: Value) -> Value {
    match target.subresource.as_str() {
        "" => {
            let mut next = new;
            if target.kind.status {
                copy(old, &mut next, "/status");
            }
            let fixed = [
                "name",
                "namespace",
                "uid",
                "creationTimestamp",
                "generation",
                "generateName",
                "deletionTimestamp",
                "deletionGracePeriodSeconds",
                "managedFields",
                "resourceVersion",
            ];
            for key in fixed {
                copy(old, &mut next, &format!("/metadata/{key}"));
            }
            next
        }
        "finalize" => {
            let mut next = old.clone();
            copy(&new, &mut next, "/spec/finalizers");
            next
        }
        "binding" => {
            let mut next = old.clone();
            copy(&new, &mut next, "/spec/seedName");
            next
        }
        "status" if target.kind.status_metadata => {
            let mut next = old.clone();
            copy(&new, &mut next, "/status");
            for key in ["labels", "annotations", "finalizers", "ownerReferences"] {
                copy(&new, &mut next, &format!("/metadata/{key}"));
            }
            next
        }
        _ => {
            let mut next = old.clone();
            copy(&new, &mut next, "/status");
            next
        }
    }
}

fn check_finalizers(target: &Target, old: &Value, new: &Value) -> Result<(), Failure> {
    if text(old, "/metadata/deletionTimestamp").is_empty() {
        return Ok(());
    }
    let before = list(old, "/metadata/finalizers");
    let added: Vec<&Value> =
        list(new, "/metadata/finalizers").iter().filter(|f| !before.contains(f)).collect();
    if added.is_empty() {
        return Ok(());
    }
    let names: Vec<String> = added.iter().map(ToString::to_string).collect();
    let why = format!(
        "Forbidden: no new finalizers can be added if the object is being deleted, found new finalizers []string{{{}}}",
        names.join(", ")
    );
    Err(target.invalid("metadata.finalizers", &why))
}
