//! DELETE: preconditions, finalizers, propagation.

use serde_json::{Value, json};

use super::failure::Failure;
use super::protection;
use super::read::present;
use super::selector::Selector;
use super::store::{Id, State};
use super::write::is_finished;
use super::{Api, Operation, Review, Target, User};
use crate::json::{list, map, set, text};

/// `DeleteOptions`, as far as they matter here.
#[derive(Clone, Debug, Default)]
pub struct Options {
    pub uid: Option<String>,
    pub resource_version: Option<String>,
    pub propagation: Option<String>,
    /// Policies may refuse it. They do not apply to the server's own deletions.
    pub is_admitted: bool,
    /// The user that webhooks are told of.
    pub user: Option<User>,
}

impl Options {
    /// From a body; `null` stands for none.
    pub fn parse(body: &Value) -> Self {
        let get = |pointer: &str| body.pointer(pointer).and_then(Value::as_str).map(str::to_owned);
        Self {
            uid: get("/preconditions/uid"),
            resource_version: get("/preconditions/resourceVersion"),
            propagation: get("/propagationPolicy"),
            is_admitted: true,
            user: None,
        }
    }
}

impl Api {
    /// DELETE of one object: its last state if finalizers hold it, else a `Status`.
    pub fn delete(&self, target: &Target, options: &Options) -> Result<Value, Failure> {
        let now = self.now();
        self.change(|state| remove(self, state, target, options, &now))
    }

    /// DELETE of a collection: the objects that were in it.
    pub fn delete_collection(
        &self,
        target: &Target,
        selector: &Selector,
        options: &Options,
    ) -> Result<Value, Failure> {
        let now = self.now();
        self.change(|state| {
            let all = state.of(target.kind.home(), &target.kind.plural, &target.namespace);
            let chosen: Vec<Id> = all.filter(|(_, o)| selector.matches(o)).map(|(id, _)| id.clone()).collect();
            let mut items = Vec::new();
            for id in chosen {
                let one = Target { namespace: id.namespace.clone(), name: id.name.clone(), ..target.clone() };
                items.push(present(&target.kind, &target.version, &state.objects[&id]));
                remove(self, state, &one, options, &now)?;
            }
            let api_version = target.kind.api_version(&target.version);
            let metadata = json!({"resourceVersion": state.revision.to_string()});
            Ok(json!({"kind": target.kind.list_kind(), "apiVersion": api_version, "metadata": metadata, "items": items}))
        })
    }
}

fn remove(
    api: &Api,
    state: &mut State,
    target: &Target,
    options: &Options,
    now: &str,
) -> Result<Value, Failure> {
    let old = state.objects.get(&target.id()).cloned().ok_or_else(|| target.not_found())?;
    check_preconditions(target, options, &old)?;
    if options.is_admitted
        && let Some(refusal) = protection::refusal(state, target, &old)
    {
        return Err(refusal);
    }
    if let Some(user) = &options.user {
        api.admit(&Review { state, target, object: &old, user, operation: Operation::Delete, now })?;
    }
    if let Some(why) = target.kind.rules.holds_back(&old, state) {
        return Err(Failure::forbidden(&target.kind.group, &target.kind.plural, &target.name, &why));
    }
    let mut next = (*old).clone();
    let waits = match options.propagation.as_deref() {
        Some("Foreground") => Some("foregroundDeletion"),
        Some("Orphan") => Some("orphan"),
        _ => None,
    };
    if let Some(finalizer) = waits
        && !list(&next, "/metadata/finalizers").iter().any(|f| f == finalizer)
    {
        let mut finalizers = list(&next, "/metadata/finalizers").to_vec();
        finalizers.push(finalizer.into());
        set(&mut next, "/metadata/finalizers", finalizers);
    }
    if text(&next, "/metadata/deletionTimestamp").is_empty() {
        map(&mut next, "/metadata").insert("deletionTimestamp".into(), now.into());
        set(&mut next, "/metadata/deletionGracePeriodSeconds", 0);
        if target.kind.generation {
            let generation = next["metadata"]["generation"].as_i64().unwrap_or(0) + 1;
            set(&mut next, "/metadata/generation", generation);
        }
        if next["kind"] == "Namespace" {
            set(&mut next, "/status/phase", "Terminating");
        }
    }
    if is_finished(&next) {
        state.take(&target.id());
        return Ok(deleted(target, &old));
    }
    if next == *old {
        return Ok(present(&target.kind, &target.version, &old));
    }
    let stored = state.put(target.id(), next);
    Ok(present(&target.kind, &target.version, &stored))
}

fn check_preconditions(target: &Target, options: &Options, old: &Value) -> Result<(), Failure> {
    let fields = [
        ("UID", options.uid.as_deref(), "/metadata/uid"),
        ("ResourceVersion", options.resource_version.as_deref(), "/metadata/resourceVersion"),
    ];
    for (field, wanted, pointer) in fields {
        let found = text(old, pointer);
        if let Some(wanted) = wanted.filter(|w| *w != found) {
            let why = format!(
                "Precondition failed: {field} in precondition: {wanted}, {field} in object meta: {found}"
            );
            return Err(Failure::conflict(&target.kind.group, &target.kind.plural, &target.name, &why));
        }
    }
    Ok(())
}

fn deleted(target: &Target, old: &Value) -> Value {
    let mut details = json!({"name": target.name, "kind": target.kind.plural, "uid": old["metadata"]["uid"]});
    if !target.kind.group.is_empty() {
        details["group"] = target.kind.group.clone().into();
    }
    json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details})
}
