//! The seed, which contains ManagedResources, and the target cluster of their objects, as one reconciliation uses them.
//! The clients check the lease before each write.

use serde::de::DeserializeOwned;
use serde_json::Value;

use super::error::Error;
use super::memory::Permit;
use super::object::text;
use super::target::TargetCluster;
use super::weight;
use crate::api::core::NAMESPACE;
use crate::api::meta::{Key, Resource};
use crate::api::resources::{MANAGED_RESOURCE, ObjectReference};
use crate::base::clock::Timestamp;
use crate::base::error::chain;
use crate::base::json::json;
use crate::kube::value;
use crate::kube::{self, Client, DeleteParams, ListItem, ListParams, Patch, UndecodableObject};
use crate::limits;
use crate::runtime::controller::ReconcileContext;

/// The clients and the context of one reconciliation. All methods except [`Session::write_status`]
/// are about the target.
#[derive(Clone, Copy, Debug)]
pub(super) struct Session<'a> {
    /// For ManagedResources and their Secrets.
    pub(super) own: &'a kube::Applier,
    pub(super) target: &'a TargetCluster,
    pub(super) cx: &'a ReconcileContext,
}

pub(super) enum Own {
    Gone,
    /// The memory is in use at the moment.
    Busy,
    /// It is too large, for this reason.
    TooLarge(String),
    Read {
        raw: Value,
        /// The memory that it takes.
        bytes: usize,
    },
}

impl Session<'_> {
    pub(super) fn now(&self) -> Timestamp {
        self.cx.clock.now()
    }

    /// The resource of a kind.
    pub(super) fn resource(&self, api_version: &str, kind: &str) -> Result<Option<Resource>, Error> {
        Ok(self.target.discovery.resource_for(api_version, kind)?)
    }

    /// The resource of a kind; an error if it is not served.
    pub(super) fn served(&self, api_version: &str, kind: &str) -> Result<Resource, Error> {
        let unknown = || Error::UnknownKind { api_version: api_version.to_owned(), kind: kind.to_owned() };
        self.resource(api_version, kind)?.ok_or_else(unknown)
    }

    /// A recorded object and its resource; `None` if the object or its kind is gone.
    pub(super) fn find<T: DeserializeOwned>(
        &self,
        of: &ObjectReference,
    ) -> Result<Option<(Resource, T)>, Error> {
        let Some(resource) = self.resource(&of.api_version, &of.kind)? else { return Ok(None) };
        let found = self.target.client.find(&resource, &Key::new(&of.namespace, &of.name))?;
        Ok(found.map(|object| (resource, object)))
    }

    /// Creates an object and returns the server's version of it.
    pub(super) fn create(&self, r: &Resource, object: &Value) -> Result<Value, Error> {
        let namespace = text(&object["metadata"]["namespace"]);
        Ok(self.target.client.create(r, namespace, object)?)
    }

    /// Replaces an object and returns the server's version of it.
    pub(super) fn replace(&self, r: &Resource, object: &Value) -> Result<Value, Error> {
        Ok(self.target.client.replace_object(r, &Key::of(object), object)?)
    }

    /// Removes the finalizers in the spec of a namespace.
    pub(super) fn finalize_namespace(&self, namespace: &Value) -> Result<(), Error> {
        let (mut namespace, key) = (namespace.clone(), Key::of(namespace));
        namespace["spec"] = json!({"finalizers": []});
        let client = &self.target.client;
        Ok(client.replace_subresource::<Value>(&NAMESPACE, &key, "finalize", &namespace).map(drop)?)
    }

    /// Merges into the metadata of an object, if it has not changed since it was read.
    pub(super) fn patch_metadata(&self, r: &Resource, live: &Value, change: &Value) -> Result<Value, Error> {
        patch_metadata(&self.target.client, r, live, change)
    }

    /// The same for a ManagedResource.
    pub(super) fn patch_own(&self, live: &Value, change: &Value) -> Result<Value, Error> {
        patch_metadata(self.own, &MANAGED_RESOURCE, live, change)
    }

    /// Reads a list object by object, without keeping them. `None` means that the list
    /// restarts: forget earlier objects.
    pub(super) fn each<T: DeserializeOwned>(
        &self,
        r: &Resource,
        namespace: &str,
        params: &ListParams,
        each: &mut dyn FnMut(Option<T>),
    ) -> Result<(), kube::Error> {
        let mut undecodable = None;
        self.target.client.list_each(r, namespace, params, &mut |item| match item {
            ListItem::Object(object) => each(Some(object)),
            ListItem::Undecodable(object) => undecodable = Some(object),
            ListItem::Restart => {
                undecodable = None;
                each(None);
            }
        })?;
        match undecodable {
            None => Ok(()),
            Some(UndecodableObject { key, why, .. }) => {
                Err(kube::Error::Decode { what: format!("{} {key}", r.kind), source: why })
            }
        }
    }

    pub(super) fn delete(&self, r: &Resource, live: &Value, params: &DeleteParams) -> Result<(), Error> {
        Ok(self.target.client.delete(r, &Key::of(live), params)?)
    }

    /// Deletes the objects that match a selector.
    pub(super) fn delete_all(
        &self,
        r: &Resource,
        namespace: &str,
        label_selector: &str,
    ) -> Result<(), Error> {
        let list = ListParams { label_selector: label_selector.to_owned(), ..ListParams::default() };
        Ok(self.target.client.delete_collection(r, namespace, &list, &DeleteParams::default())?)
    }

    /// Writes the status of a ManagedResource if it differs; returns the resulting ManagedResource.
    pub(super) fn write_status(&self, before: Value, after: &Value) -> Result<Value, Error> {
        if before["status"] == after["status"] {
            return Ok(before);
        }
        Ok(self.own.replace_status(&MANAGED_RESOURCE, &Key::of(after), after)?)
    }
}

fn patch_metadata(client: &Client, r: &Resource, live: &Value, change: &Value) -> Result<Value, Error> {
    let mut patch = json!({ "metadata": change });
    patch["metadata"]["resourceVersion"] = live["metadata"]["resourceVersion"].clone();
    Ok(client.patch(r, &Key::of(live), &Patch::Merge(patch))?)
}

/// The live ManagedResource, with memory to write its status.
pub(super) fn managed_resource(own: &kube::Applier, key: &Key, permit: &mut Permit) -> Result<Own, Error> {
    let (mut bytes, mut is_busy) = (0, false);
    let found = own.find_with(&MANAGED_RESOURCE, key, &mut |body| {
        let nodes = str::from_utf8(body).map_or(usize::MAX, value::count);
        if nodes > limits::MANAGED_RESOURCE_NODES_MAX {
            let max = limits::MANAGED_RESOURCE_NODES_MAX;
            return Err(serde::de::Error::custom(format!("the ManagedResource has more than {max} values")));
        }
        let once = weight::of_json(body)?;
        if once > limits::MANAGED_RESOURCE_BYTES_MAX {
            let max = limits::MANAGED_RESOURCE_BYTES_MAX >> 20;
            let why = format!("the ManagedResource takes more than {max} MiB of memory");
            return Err(serde::de::Error::custom(why));
        }
        // The read version, the written version, and the server's answer.
        bytes = 3 * once;
        is_busy = !permit.hold(bytes + body.len());
        if is_busy { Ok(Value::Null) } else { value::read_within(body, nodes) }
    });
    match found {
        Ok(Some(_)) if is_busy => Ok(Own::Busy),
        Ok(Some(raw)) => Ok(Own::Read { raw, bytes }),
        Ok(None) => Ok(Own::Gone),
        Err(error @ kube::Error::Decode { .. }) => Ok(Own::TooLarge(chain(&error))),
        Err(error) => Err(error.into()),
    }
}
