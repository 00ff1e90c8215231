//! Requests, built without IO.

use serde::Deserialize;
use serde_json::Value;

use crate::api::meta::{Key, Resource};
use crate::base::json::json;
use crate::format::percent;
use crate::limits;

/// HTTP methods of the API.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Method {
    /// Read.
    Get,
    /// Create.
    Post,
    /// Replace.
    Put,
    /// Change.
    Patch,
    /// Delete.
    Delete,
}

impl Method {
    /// As in the request line.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Get => "GET",
            Self::Post => "POST",
            Self::Put => "PUT",
            Self::Patch => "PATCH",
            Self::Delete => "DELETE",
        }
    }
}

/// The selection and form of a list.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ListParams {
    /// Such as `app=gardener,role!=seed`; empty for all.
    pub label_selector: String,
    /// Such as `metadata.name=x`; empty for all.
    pub field_selector: String,
    /// Objects in one page; 0 leaves it to [`crate::kube::Client::list_all`], or to the server for a single page.
    pub limit: u32,
    /// Where the previous page ended.
    pub continue_token: String,
    /// Empty for the newest state; `0` for any state that the server has cached.
    pub resource_version: String,
    /// Only metadata of the objects (`PartialObjectMetadataList`).
    pub metadata_only: bool,
}

/// The selection and form of a watch.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct WatchParams {
    /// It means the same as in [`ListParams`].
    pub label_selector: String,
    /// It means the same as in [`ListParams`].
    pub field_selector: String,
    /// The version at which the watch begins.
    pub resource_version: String,
    /// Whether the server may announce new resourceVersions without an event.
    pub bookmarks: bool,
    /// When the server ends the watch; 0 for a random time between five and ten minutes.
    pub timeout_seconds: u32,
    /// Only metadata of the objects.
    pub metadata_only: bool,
}

/// A patch of one of the three kinds.
#[derive(Clone, PartialEq, Debug)]
pub enum Patch {
    /// RFC 7386: `null` deletes, lists are replaced.
    Merge(Value),
    /// Strategic: some lists are merged by key. Custom resources answer 415.
    Strategic(Value),
    /// RFC 6902: a list of operations.
    Json(Value),
}

impl Patch {
    /// A merge patch that sets an annotation, or removes it with null.
    pub(crate) fn annotation(name: &str, value: impl Into<Value>) -> Self {
        Self::Merge(json!({"metadata": {"annotations": {name: value.into()}}}))
    }

    /// A merge patch that sets the number of replicas.
    pub(crate) fn replicas(count: i64) -> Self {
        Self::Merge(json!({"spec": {"replicas": count}}))
    }

    const fn parts(&self) -> (&'static str, &Value) {
        match self {
            Self::Merge(body) => ("application/merge-patch+json", body),
            Self::Strategic(body) => ("application/strategic-merge-patch+json", body),
            Self::Json(body) => ("application/json-patch+json", body),
        }
    }
}

/// Handling of objects that the deleted object owns.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Propagation {
    /// They are deleted after it.
    Background,
    /// They are deleted before it.
    Foreground,
    /// They stay.
    Orphan,
}

/// Options of a deletion.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct DeleteParams {
    /// If absent, the server's default for the kind.
    pub propagation: Option<Propagation>,
    /// Delete only this object, not one that was re-created under its name.
    pub uid: Option<String>,
    /// Delete only this version of the object.
    pub resource_version: Option<String>,
    /// Grace period of a Pod in seconds.
    pub grace_period_seconds: Option<u32>,
}

impl DeleteParams {
    fn body(&self) -> Option<Value> {
        if *self == Self::default() {
            return None;
        }
        let mut body = json!({"apiVersion": "v1", "kind": "DeleteOptions"});
        if let Some(propagation) = self.propagation {
            body["propagationPolicy"] = json!(match propagation {
                Propagation::Background => "Background",
                Propagation::Foreground => "Foreground",
                Propagation::Orphan => "Orphan",
            });
        }
        if let Some(uid) = &self.uid {
            body["preconditions"]["uid"] = json!(uid);
        }
        if let Some(version) = &self.resource_version {
            body["preconditions"]["resourceVersion"] = json!(version);
        }
        if let Some(seconds) = self.grace_period_seconds {
            body["gracePeriodSeconds"] = json!(seconds);
        }
        Some(body)
    }
}

/// One page of a list.
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(bound = "T: serde::de::DeserializeOwned")]
pub struct List<T> {
    /// Version and continuation.
    #[serde(default)]
    pub metadata: ListMeta,
    /// The objects.
    #[serde(default = "Vec::new")]
    pub items: Vec<T>,
}

/// Metadata of a list.
#[derive(Clone, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ListMeta {
    /// The version at which a watch may begin.
    pub resource_version: String,
    /// Empty on the last page.
    #[serde(rename = "continue")]
    pub continue_token: String,
}

/// An object of a list or a watch that cannot be decoded.
#[derive(Debug)]
pub struct UndecodableObject {
    /// Its key.
    pub key: Key,
    /// The values that were read before the limit, if the object has too many. Null if it has an unexpected shape.
    pub(crate) head: Value,
    /// The problem.
    pub why: serde_json::Error,
}

/// What a streamed list yields.
#[derive(Debug)]
pub enum ListItem<T> {
    /// An object.
    Object(T),
    /// An object that exists but cannot be decoded.
    Undecodable(UndecodableObject),
    /// All objects so far are invalid: the pages expired on the server and the list begins again.
    Restart,
}

/// The answer of `/version`.
#[derive(Clone, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ServerVersion {
    /// Such as `1`.
    pub(crate) major: String,
    /// Such as `34` or `34+`.
    pub(crate) minor: String,
    /// Such as `v1.34.1`.
    pub git_version: String,
}

/// A request, ready to be sent.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ApiRequest {
    /// Method.
    pub method: Method,
    /// Path below the server's URL, with query.
    pub(crate) path: String,
    pub(crate) accept: &'static str,
    /// Media type of the body; empty without body.
    pub(crate) content_type: String,
    /// Body.
    pub body: Option<Vec<u8>>,
    /// Whether the server may compress the response, as it does with long ones: pages of lists.
    pub gzip: bool,
}

const ACCEPT_JSON: &str = "application/json";
const ACCEPT_METADATA: &str = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json";
const ACCEPT_METADATA_LIST: &str =
    "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json";

impl ApiRequest {
    fn bare(method: Method, path: String) -> Self {
        Self { method, path, accept: ACCEPT_JSON, content_type: String::new(), body: None, gzip: false }
    }

    fn with_body(method: Method, path: String, content_type: &str, body: &Value) -> Self {
        // A Value always serializes: its keys are strings.
        let body = serde_json::to_vec(body).unwrap_or_default();
        Self { content_type: content_type.to_owned(), body: Some(body), ..Self::bare(method, path) }
    }

    /// GET of any path.
    pub(crate) fn get(path: impl Into<String>) -> Self {
        Self::bare(Method::Get, path.into())
    }

    /// Any method, path and body.
    pub(crate) fn raw(method: Method, path: &str, body: Option<&[u8]>, content_type: &str) -> Self {
        let content_type = if body.is_some() { content_type.to_owned() } else { String::new() };
        Self { content_type, body: body.map(<[u8]>::to_vec), ..Self::bare(method, path.to_owned()) }
    }

    /// A read of any path, like `kubectl get --raw`.
    pub(crate) fn get_raw(path: &str) -> Self {
        Self::bare(Method::Get, path.to_owned())
    }

    /// One page of a list.
    pub(crate) fn list(resource: &Resource, namespace: &str, params: &ListParams) -> Self {
        let mut query = Query::new(resource.collection_path(namespace));
        query.text("labelSelector", &params.label_selector);
        query.text("fieldSelector", &params.field_selector);
        query.number("limit", params.limit);
        query.text("continue", &params.continue_token);
        if params.continue_token.is_empty() {
            query.text("resourceVersion", &params.resource_version);
        }
        let accept = if params.metadata_only { ACCEPT_METADATA_LIST } else { ACCEPT_JSON };
        Self { accept, gzip: true, ..Self::get(query.path) }
    }

    /// A watch that the server ends after `timeout_s`.
    pub(crate) fn watch(resource: &Resource, namespace: &str, params: &WatchParams, timeout_s: u32) -> Self {
        let mut query = Query::new(resource.collection_path(namespace));
        query.text("watch", "true");
        query.text("labelSelector", &params.label_selector);
        query.text("fieldSelector", &params.field_selector);
        query.text("resourceVersion", &params.resource_version);
        query.text("allowWatchBookmarks", if params.bookmarks { "true" } else { "" });
        query.number("timeoutSeconds", timeout_s);
        let accept = if params.metadata_only { ACCEPT_METADATA } else { ACCEPT_JSON };
        Self { accept, ..Self::get(query.path) }
    }

    /// Creation of an object in a collection, or of a subresource such as `token`.
    pub(crate) fn create(path: String, object: &Value) -> Self {
        Self::with_body(Method::Post, path, ACCEPT_JSON, object)
    }

    /// Replacement of an object or of its `status`.
    pub(crate) fn replace(path: String, object: &Value) -> Self {
        Self::with_body(Method::Put, path, ACCEPT_JSON, object)
    }

    /// A patch of an object or of a subresource.
    pub fn patch(path: String, patch: &Patch) -> Self {
        let (content_type, body) = patch.parts();
        Self::with_body(Method::Patch, path, content_type, body)
    }

    /// Deletion of an object.
    pub(crate) fn delete(path: String, params: &DeleteParams) -> Self {
        match params.body() {
            None => Self::bare(Method::Delete, path),
            Some(body) => Self::with_body(Method::Delete, path, ACCEPT_JSON, &body),
        }
    }

    /// Deletion of everything that a list would return.
    pub(crate) fn delete_collection(
        resource: &Resource,
        namespace: &str,
        list: &ListParams,
        params: &DeleteParams,
    ) -> Self {
        let mut query = Query::new(resource.collection_path(namespace));
        query.text("labelSelector", &list.label_selector);
        query.text("fieldSelector", &list.field_selector);
        Self::delete(query.path, params)
    }

    /// The path without its query, for logs and errors: selectors and continue tokens are long.
    pub(crate) fn bare_path(&self) -> &str {
        self.path.split('?').next().unwrap_or_default()
    }
}

/// The default page size.
pub(crate) fn page_limit(params: &ListParams) -> u32 {
    if params.limit == 0 { u32::try_from(limits::LIST_PAGE_ITEMS).unwrap_or(u32::MAX) } else { params.limit }
}

struct Query {
    path: String,
    separator: char,
}

impl Query {
    const fn new(path: String) -> Self {
        Self { path, separator: '?' }
    }

    fn number(&mut self, key: &str, value: u32) {
        if value != 0 {
            self.text(key, &value.to_string());
        }
    }

    fn text(&mut self, key: &str, value: &str) {
        if value.is_empty() {
            return;
        }
        self.path.push(self.separator);
        self.separator = '&';
        self.path.push_str(key);
        self.path.push('=');
        percent::encode(&mut self.path, value.as_bytes(), &percent::is_unreserved);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::core::SECRET;

    #[test]
    fn lists_and_watches_carry_their_selectors() {
        let params = ListParams {
            label_selector: "a=b,c in (d)".into(),
            field_selector: "metadata.name=x".into(),
            limit: 250,
            resource_version: "0".into(),
            ..ListParams::default()
        };
        let first = ApiRequest::list(&SECRET, "garden", &params);
        assert_eq!(
            first.path,
            "/api/v1/namespaces/garden/secrets?labelSelector=a%3Db%2Cc%20in%20%28d%29&fieldSelector=metadata.name%3Dx\
             &limit=250&resourceVersion=0"
        );
        assert_eq!(
            (first.bare_path(), first.accept),
            ("/api/v1/namespaces/garden/secrets", "application/json")
        );
        // A page that continues another must not have a version: the server refuses it.
        let next = ListParams { continue_token: "tok==".into(), metadata_only: true, ..params };
        let next = ApiRequest::list(&SECRET, "", &next);
        assert!(next.path.ends_with("&limit=250&continue=tok%3D%3D"), "{}", next.path);
        assert!(next.accept.starts_with("application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"));
        let watch = WatchParams { resource_version: "7".into(), bookmarks: true, ..WatchParams::default() };
        assert_eq!(
            ApiRequest::watch(&SECRET, "", &watch, 300).path,
            "/api/v1/secrets?watch=true&resourceVersion=7&allowWatchBookmarks=true&timeoutSeconds=300"
        );
    }

    #[test]
    fn deletions_carry_preconditions_only_if_asked() {
        let key = Key::new("a", "b");
        assert_eq!(ApiRequest::delete(SECRET.object_path(&key), &DeleteParams::default()).body, None);
        let params = DeleteParams {
            propagation: Some(Propagation::Background),
            uid: Some("u".into()),
            resource_version: Some("5".into()),
            grace_period_seconds: Some(0),
        };
        let request = ApiRequest::delete(SECRET.object_path(&key), &params);
        assert_eq!(
            String::from_utf8(request.body.unwrap()).unwrap(),
            r#"{"apiVersion":"v1","gracePeriodSeconds":0,"kind":"DeleteOptions","preconditions":{"resourceVersion":"5","uid":"u"},"propagationPolicy":"Background"}"#
        );
    }

    #[test]
    fn patches_name_their_kind() {
        let table = [
            (Patch::Merge(json!({})), "application/merge-patch+json"),
            (Patch::Strategic(json!({})), "application/strategic-merge-patch+json"),
            (Patch::Json(json!([])), "application/json-patch+json"),
        ];
        for (patch, content_type) in table {
            let request = ApiRequest::patch(SECRET.subresource_path(&Key::new("a", "b"), "status"), &patch);
            assert_eq!((request.method, request.content_type.as_str()), (Method::Patch, content_type));
            assert_eq!(request.path, "/api/v1/namespaces/a/secrets/b/status");
        }
    }
}
