//! How the manager reaches objects: in this process, or partly over the network if the garden is behind a real
//! kube-apiserver.

use std::sync::Arc;

use gardenlet::api::meta::{CLUSTER_SCOPED, Key, Resource};
use gardenlet::kube;
use gardenlet::kube::request::ApiRequest;
use serde_json::{Value, json};

use crate::api::failure::Failure;
use crate::api::remove::Options;
use crate::api::request::Info;
use crate::api::review::attributes;
use crate::api::write::Patch;
use crate::api::{Api, Target, User};

/// What a controller may do with a cluster.
pub trait Cluster: Send + Sync {
    fn get(&self, resource: &Resource, key: &Key) -> Result<Option<Value>, Failure>;
    /// An empty namespace means cluster-scoped, or all.
    fn list(&self, resource: &Resource, namespace: &str) -> Result<Vec<Value>, Failure>;
    fn create(&self, resource: &Resource, namespace: &str, object: &Value) -> Result<Value, Failure>;
    /// An empty subresource means the object itself.
    fn patch(
        &self,
        resource: &Resource,
        key: &Key,
        subresource: &str,
        patch: &Patch,
    ) -> Result<Value, Failure>;
    fn delete(&self, resource: &Resource, key: &Key) -> Result<(), Failure>;
    /// Answers the spec of a SubjectAccessReview.
    fn may(&self, review: &Value) -> bool;
}

/// Answers whether a user may do something.
pub type Judge = Arc<dyn Fn(&User, &Info) -> bool + Send + Sync>;

/// Objects in this process.
pub struct Local {
    pub api: Api,
    pub judge: Judge,
}

impl Local {
    fn target(&self, resource: &Resource, namespace: &str, name: &str) -> Result<Target, Failure> {
        let kind = self.api.kind(&resource.group, &resource.plural).ok_or_else(Failure::no_resource)?;
        Ok(Target { version: resource.version.to_string(), ..Target::new(kind, namespace, name) })
    }
}

impl Cluster for Local {
    fn get(&self, resource: &Resource, key: &Key) -> Result<Option<Value>, Failure> {
        match self.api.get(&self.target(resource, &key.namespace, &key.name)?) {
            Ok(object) => Ok(Some(object)),
            Err(failure) if failure.code == 404 => Ok(None),
            Err(failure) => Err(failure),
        }
    }

    fn list(&self, resource: &Resource, namespace: &str) -> Result<Vec<Value>, Failure> {
        let target = self.target(resource, namespace, "")?;
        let stored = self.api.store.all(&resource.group, &resource.plural, namespace);
        let shown = |o: &Arc<Value>| crate::api::read::present(&target.kind, &target.version, o);
        Ok(stored.iter().map(shown).collect())
    }

    fn create(&self, resource: &Resource, namespace: &str, object: &Value) -> Result<Value, Failure> {
        self.api.create(&self.target(resource, namespace, "")?, object.clone(), &User::system())
    }

    fn patch(
        &self,
        resource: &Resource,
        key: &Key,
        subresource: &str,
        patch: &Patch,
    ) -> Result<Value, Failure> {
        let target = self.target(resource, &key.namespace, &key.name)?.subresource(subresource);
        self.api.patch(&target, patch, &User::system())
    }

    fn delete(&self, resource: &Resource, key: &Key) -> Result<(), Failure> {
        let target = self.target(resource, &key.namespace, &key.name)?;
        self.api.delete(&target, &Options::default()).map(drop)
    }

    fn may(&self, review: &Value) -> bool {
        let groups = review["groups"].as_array().into_iter().flatten();
        let groups = groups.filter_map(Value::as_str).map(str::to_owned).collect();
        let name = review["user"].as_str().unwrap_or_default().to_owned();
        (self.judge)(&User { name, uid: String::new(), groups }, &attributes(review))
    }
}

/// Objects of a real API server.
pub struct Remote(pub kube::Client);

fn failure(error: &kube::Error) -> Failure {
    Failure::new(error.status_code().unwrap_or(0), "", error.to_string())
}

impl Cluster for Remote {
    fn get(&self, resource: &Resource, key: &Key) -> Result<Option<Value>, Failure> {
        self.0.find(resource, key).map_err(|e| failure(&e))
    }

    fn list(&self, resource: &Resource, namespace: &str) -> Result<Vec<Value>, Failure> {
        let mut all = Vec::new();
        let params = kube::ListParams::default();
        self.0
            .list_all(resource, namespace, &params, &mut |object| all.push(object))
            .map_err(|e| failure(&e))?;
        Ok(all)
    }

    fn create(&self, resource: &Resource, namespace: &str, object: &Value) -> Result<Value, Failure> {
        let mut object = object.clone();
        object["apiVersion"] = resource.api_version().into();
        object["kind"] = resource.kind.to_string().into();
        self.0.create(resource, namespace, &object).map_err(|e| failure(&e))
    }

    fn patch(
        &self,
        resource: &Resource,
        key: &Key,
        subresource: &str,
        patch: &Patch,
    ) -> Result<Value, Failure> {
        let patch = match patch.clone() {
            Patch::Merge(value) => kube::Patch::Merge(value),
            Patch::Json(value) => kube::Patch::Json(value),
            Patch::Strategic(value) => kube::Patch::Strategic(value),
        };
        let path = match subresource {
            "" => resource.object_path(key),
            subresource => resource.subresource_path(key, subresource),
        };
        self.0.fetch(&ApiRequest::patch(path, &patch)).map_err(|e| failure(&e))
    }

    fn delete(&self, resource: &Resource, key: &Key) -> Result<(), Failure> {
        self.0.delete(resource, key, &kube::DeleteParams::default()).map_err(|e| failure(&e))
    }

    fn may(&self, review: &Value) -> bool {
        const REVIEW: Resource =
            Resource::new("authorization.k8s.io", "v1", "SubjectAccessReview", "subjectaccessreviews", false);
        let answer = self.create(&REVIEW, CLUSTER_SCOPED, &json!({"spec": review}));
        answer.is_ok_and(|review| review["status"]["allowed"] == true)
    }
}

/// The gardener.cloud groups in this process, everything else at a real API server.
pub struct Split {
    pub own: Local,
    pub rest: Remote,
}

impl Split {
    fn side(&self, resource: &Resource) -> &dyn Cluster {
        if resource.group.ends_with(".gardener.cloud") { &self.own } else { &self.rest }
    }
}

impl Cluster for Split {
    fn get(&self, resource: &Resource, key: &Key) -> Result<Option<Value>, Failure> {
        self.side(resource).get(resource, key)
    }

    fn list(&self, resource: &Resource, namespace: &str) -> Result<Vec<Value>, Failure> {
        self.side(resource).list(resource, namespace)
    }

    fn create(&self, resource: &Resource, namespace: &str, object: &Value) -> Result<Value, Failure> {
        self.side(resource).create(resource, namespace, object)
    }

    fn patch(
        &self,
        resource: &Resource,
        key: &Key,
        subresource: &str,
        patch: &Patch,
    ) -> Result<Value, Failure> {
        self.side(resource).patch(resource, key, subresource, patch)
    }

    fn delete(&self, resource: &Resource, key: &Key) -> Result<(), Failure> {
        self.side(resource).delete(resource, key)
    }

    fn may(&self, review: &Value) -> bool {
        self.rest.may(review)
    }
}
