//! Credentials of the garden that extensions get in the seed: copies of Secrets, or Secrets with tokens of a
//! WorkloadIdentity (Gardener's `GetCredentialsByObjectReference` and `pkg/utils/workloadidentity`).

use serde_json::{Map, Value};

use crate::api::core::SECRET;
use crate::api::gardener::{INTERNAL_SECRET, WORKLOAD_IDENTITY};
use crate::api::meta::{Key, Resource, text};
use crate::api::patch::difference;
use crate::base::json::json;
use crate::flow::Failed;
use crate::format::base64;
use crate::kube::{Client, Error};
use crate::runtime::write;

use super::problem;

/// The prefix of annotations and labels about a WorkloadIdentity.
pub(crate) const IDENTITY: &str = "workloadidentity.security.gardener.cloud/";
const RENEW_AT: &str = "workloadidentity.security.gardener.cloud/token-renew-timestamp";

/// Kinds that contain credentials.
const KINDS: [&Resource; 3] = [&SECRET, &INTERNAL_SECRET, &WORKLOAD_IDENTITY];

/// A reference to credentials.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct CredentialsReference {
    pub(crate) resource: &'static Resource,
    /// Namespace and name in the garden.
    pub(crate) key: Key,
}

impl CredentialsReference {
    /// From a field `credentialsRef`. Errors: the kind cannot contain credentials.
    pub(crate) fn read(reference: &Value) -> Result<Self, Failed> {
        let (version, kind) = (text(&reference["apiVersion"]), text(&reference["kind"]));
        let known = KINDS.into_iter().find(|known| known.kind == kind && known.api_version() == version);
        let key = Key::new(text(&reference["namespace"]), text(&reference["name"]));
        match known {
            Some(resource) => Ok(Self { resource, key }),
            None => Err(problem(format!(
                "unsupported credentials reference: {key}, {version} {kind}: set credentialsRef to a v1 Secret, a \
                 core.gardener.cloud/v1beta1 InternalSecret or a security.gardener.cloud/v1alpha1 WorkloadIdentity"
            ))),
        }
    }

    pub(crate) fn secret(reference: &Value) -> Self {
        let key = Key::new(text(&reference["namespace"]), text(&reference["name"]));
        Self { resource: KINDS[0], key }
    }

    /// Reads the credentials. Errors: a request fails; or the garden does not have the object
    /// that `of` refers to.
    pub(crate) fn find(&self, garden: &Client, of: &str) -> Result<GardenCredentials, Failed> {
        let Self { resource, key } = self;
        match self.look(garden)? {
            Some(found) => Ok(found),
            None => Err(problem(format!(
                "{of} refers to {} {key}, which the garden does not have: create it",
                resource.kind
            ))),
        }
    }

    /// The same; `None` if the garden does not have them.
    pub(crate) fn look(&self, garden: &Client) -> Result<Option<GardenCredentials>, Error> {
        let found = garden.find::<Value>(self.resource, &self.key)?;
        Ok(found.map(|object| GardenCredentials { resource: self.resource, object }))
    }
}

/// Credentials of the garden.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct GardenCredentials {
    resource: &'static Resource,
    /// The object that contains them.
    pub(crate) object: Value,
}

impl GardenCredentials {
    /// The kind of that object.
    pub(crate) const fn resource(&self) -> &'static Resource {
        self.resource
    }

    /// Whether a Secret of the seed equals the one that [`GardenCredentials::apply`] writes for `context`, ignoring
    /// annotations of other writers.
    pub(crate) fn is_copied_to(&self, copy: &Value, context: &str) -> bool {
        let mut wanted = copy.clone();
        if self.is_identity() {
            self.mark(&mut wanted, context);
            return wanted == *copy;
        }
        fields(&copy["data"]) == fields(&self.object["data"])
    }

    /// Writes a Secret of the seed with the annotations and labels of `metadata`, and no other labels except those that
    /// request a token. `context` is the object on whose behalf the token is used.
    pub(crate) fn apply(
        &self,
        seed: &Client,
        secret: &Key,
        metadata: &Value,
        context: &str,
    ) -> Result<Value, Error> {
        write::ensure(seed, &SECRET, secret, &|copy| {
            let old = copy["metadata"]["annotations"].clone();
            copy["metadata"]["annotations"] = metadata["annotations"].clone();
            copy["metadata"]["labels"] = metadata["labels"].clone();
            if !self.is_identity() {
                copy["data"] = self.object["data"].clone();
                return;
            }
            // Another identity needs a new token at once.
            if old[RENEW_AT].is_string() && self.is_named_in(&old) {
                copy["metadata"]["annotations"][RENEW_AT] = old[RENEW_AT].clone();
            }
            // Only the token stays. It is not part of the patch, so a token that is written meanwhile stays too.
            if let Some(data) = copy["data"].as_object_mut() {
                data.retain(|key, _| key == "token");
            }
            self.mark(copy, context);
        })
    }

    /// Whether annotations name this identity.
    fn is_named_in(&self, annotations: &Value) -> bool {
        let metadata = &self.object["metadata"];
        ["namespace", "name"].iter().all(|part| annotations[format!("{IDENTITY}{part}")] == metadata[*part])
    }

    fn is_identity(&self) -> bool {
        self.resource.kind == WORKLOAD_IDENTITY.kind
    }

    /// Adds what the token requestor needs to know.
    fn mark(&self, copy: &mut Value, context: &str) {
        let (metadata, system) = (&self.object["metadata"], &self.object["spec"]["targetSystem"]);
        copy["type"] = json!("Opaque");
        for (name, value) in [
            ("namespace", text(&metadata["namespace"]).to_owned()),
            ("name", text(&metadata["name"]).to_owned()),
            ("context-object", context.to_owned()),
        ] {
            copy["metadata"]["annotations"][format!("{IDENTITY}{name}")] = json!(value);
        }
        let labels = &mut copy["metadata"]["labels"];
        labels["security.gardener.cloud/purpose"] = json!("workload-identity-token-requestor");
        labels[format!("{IDENTITY}provider")] = system["type"].clone();
        match &system["providerConfig"] {
            Value::Null => {
                copy["data"].as_object_mut().into_iter().for_each(|data| {
                    data.remove("config");
                });
            }
            config => copy["data"]["config"] = json!(base64::encode(config.to_string().as_bytes())),
        }
    }
}

/// An absent map is an empty one.
fn fields(data: &Value) -> Map<String, Value> {
    data.as_object().cloned().unwrap_or_default()
}

/// The object on whose behalf credentials are used, in the form that the token requestor reads, with
/// Go's order of fields.
pub(crate) fn context(resource: &Resource, object: &Value) -> String {
    let metadata = &object["metadata"];
    let mut fields = vec![
        ("kind", json!(resource.kind)),
        ("apiVersion", json!(resource.api_version())),
        ("name", metadata["name"].clone()),
    ];
    if resource.namespaced {
        fields.push(("namespace", metadata["namespace"].clone()));
    }
    fields.push(("uid", metadata["uid"].clone()));
    let fields: Vec<String> = fields.into_iter().map(|(name, value)| format!("{name:?}:{value}")).collect();
    format!("{{{}}}", fields.join(","))
}

/// Whether two specs of an extension object are equal.
pub(crate) fn is_same_spec(old: &Value, new: &Value) -> bool {
    difference(old, new).is_none()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::gardener::{BACKUP_BUCKET, BACKUP_ENTRY};

    fn identity(config: &Value) -> GardenCredentials {
        let object = json!({"metadata": {"namespace": "garden-p", "name": "w"},
            "spec": {"targetSystem": {"type": "lab", "providerConfig": config}}});
        GardenCredentials { resource: KINDS[2], object }
    }

    #[test]
    fn references_of_an_object() {
        let reference = |version: &str, kind: &str| {
            let found = CredentialsReference::read(
                &json!({"apiVersion": version, "kind": kind, "namespace": "n", "name": "x"}),
            );
            found.map(|found| (found.resource.plural.to_string(), found.key))
        };
        let key = || Key::new("n", "x");
        assert_eq!(reference("v1", "Secret"), Ok(("secrets".to_owned(), key())));
        let internal = reference("core.gardener.cloud/v1beta1", "InternalSecret");
        assert_eq!(internal, Ok(("internalsecrets".to_owned(), key())));
        let identity = reference("security.gardener.cloud/v1alpha1", "WorkloadIdentity");
        assert_eq!(identity, Ok(("workloadidentities".to_owned(), key())));
        let failed = reference("v1", "ConfigMap").unwrap_err();
        assert!(failed.text.contains("n/x, v1 ConfigMap: set credentialsRef to"), "{failed}");
        assert_eq!(failed.codes, [super::super::CONFIGURATION_PROBLEM]);
        assert!(CredentialsReference::read(&Value::Null).is_err());
    }

    #[test]
    fn the_user_of_a_token_is_named_like_go() {
        let object = json!({"metadata": {"namespace": "n", "name": "x", "uid": "u"}});
        let bucket =
            r#"{"kind":"BackupBucket","apiVersion":"core.gardener.cloud/v1beta1","name":"x","uid":"u"}"#;
        assert_eq!(context(&BACKUP_BUCKET, &object), bucket);
        let entry = r#"{"kind":"BackupEntry","apiVersion":"core.gardener.cloud/v1beta1","name":"x","namespace":"n","uid":"u"}"#;
        assert_eq!(context(&BACKUP_ENTRY, &object), entry);
    }

    #[test]
    fn a_copy_of_a_secret_is_compared_by_its_data() {
        let secret = |data: Value| GardenCredentials { resource: KINDS[0], object: json!({"data": data}) };
        let copy = json!({"metadata": {"labels": {"x": "y"}}, "data": {"a": "YQ=="}, "type": "Opaque"});
        assert!(secret(json!({"a": "YQ=="})).is_copied_to(&copy, "c"));
        assert!(!secret(json!({"a": "Yg=="})).is_copied_to(&copy, "c"));
        assert!(!secret(Value::Null).is_copied_to(&copy, "c"));
        assert!(secret(Value::Null).is_copied_to(&json!({"data": {}}), "c"));
    }

    #[test]
    fn a_secret_requests_the_token_of_an_identity() {
        let mut copy = json!({"metadata": {"annotations": {"gardener.cloud/timestamp": "t"}}, "data": {"token": "dA=="}});
        let identity_1 = identity(&json!({"role": "r"}));
        identity_1.mark(&mut copy, "{}");
        let expected = json!({"type": "Opaque", "data": {"token": "dA==", "config": "eyJyb2xlIjoiciJ9"}, "metadata": {
            "annotations": {"gardener.cloud/timestamp": "t", "workloadidentity.security.gardener.cloud/namespace": "garden-p",
                "workloadidentity.security.gardener.cloud/name": "w",
                "workloadidentity.security.gardener.cloud/context-object": "{}"},
            "labels": {"security.gardener.cloud/purpose": "workload-identity-token-requestor",
                "workloadidentity.security.gardener.cloud/provider": "lab"}}});
        assert_eq!(copy, expected);
        assert!(identity_1.is_copied_to(&copy, "{}"));
        assert!(!identity_1.is_copied_to(&copy, "{1}"), "another user");
        assert!(!identity(&Value::Null).is_copied_to(&copy, "{}"), "another configuration");
        copy["metadata"]["annotations"][RENEW_AT] = json!("later");
        copy["data"]["token"] = json!("bmV3");
        assert!(identity_1.is_copied_to(&copy, "{}"), "the token requestor has written it");
        identity(&Value::Null).mark(&mut copy, "{}");
        assert_eq!(copy["data"], json!({"token": "bmV3"}));
    }
}
