//! ConfigMaps and Secrets of the garden that a kube-apiserver's settings refer to.

use serde_json::Value;

use crate::api::core::{CONFIG_MAP, SECRET};
use crate::api::meta::{Key, Resource, text};
use crate::base::sorted::SortedMap;
use crate::flow::Failed;
use crate::format::base64;
use crate::kube::Garden;

/// An object of the garden whose text the kube-apiserver needs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Reference {
    pub(crate) resource: Resource,
    /// Its name, in the namespace of the Shoot.
    pub(crate) name: String,
    /// The entry that holds the text.
    pub(crate) key: &'static str,
    /// The field of the Shoot that refers to it.
    pub(crate) field: String,
    /// The name of the text in [`Texts`].
    pub file: String,
}

/// Texts by [`Reference::file`].
pub type Texts = SortedMap<String, String>;

pub(super) const AUDIT: &str = "audit";
pub(super) const AUTHENTICATION: &str = "authentication";
pub(super) const AUTHORIZATION: &str = "authorization";

/// The file with the kubeconfig of an admission plugin.
pub(super) fn plugin_kubeconfig(plugin: &str) -> String {
    format!("{}-kubeconfig.yaml", plugin.to_lowercase())
}

/// The file with the kubeconfig of an authorizer.
pub(super) fn authorizer_kubeconfig(authorizer: &str) -> String {
    format!("{authorizer}-kubeconfig.yaml")
}

/// The references in a Shoot's `spec.kubernetes`.
pub fn references(kubernetes: &Value) -> Vec<Reference> {
    let server = &kubernetes["kubeAPIServer"];
    let mut all = Vec::new();
    let mut add = |resource: Resource, key: &'static str, field: String, name: &Value, file: String| {
        if let Some(name) = name.as_str().filter(|name| !name.is_empty()) {
            let field = format!("spec.kubernetes.kubeAPIServer.{field}");
            all.push(Reference { resource, name: name.to_owned(), key, field, file });
        }
    };
    let maps = [
        (AUDIT, "policy", "auditConfig.auditPolicy.configMapRef.name"),
        (AUTHENTICATION, "config.yaml", "structuredAuthentication.configMapName"),
        (AUTHORIZATION, "config.yaml", "structuredAuthorization.configMapName"),
    ];
    for (file, key, field) in maps {
        let name = field.split('.').fold(server, |value, part| &value[part]);
        add(CONFIG_MAP, key, field.to_owned(), name, file.to_owned());
    }
    for (index, plugin) in server["admissionPlugins"].as_array().into_iter().flatten().enumerate() {
        let field = format!("admissionPlugins[{index}].kubeconfigSecretName");
        let file = plugin_kubeconfig(text(&plugin["name"]));
        add(SECRET, "kubeconfig", field, &plugin["kubeconfigSecretName"], file);
    }
    let kubeconfigs = &server["structuredAuthorization"]["kubeconfigs"];
    for (index, entry) in kubeconfigs.as_array().into_iter().flatten().enumerate() {
        let field = format!("structuredAuthorization.kubeconfigs[{index}].secretName");
        let file = authorizer_kubeconfig(text(&entry["authorizerName"]));
        add(SECRET, "kubeconfig", field, &entry["secretName"], file);
    }
    all
}

/// Reads the [`references`] from the Shoot's namespace in the garden. Errors: a request fails; or an object
/// or entry is missing, with the field that refers to it.
pub(crate) fn read(garden: &Garden, namespace: &str, kubernetes: &Value) -> Result<Texts, Failed> {
    let mut texts = Texts::new();
    for reference in references(kubernetes) {
        let found = garden.find::<Value>(&reference.resource, &Key::new(namespace, &reference.name))?;
        texts.insert(reference.file.clone(), reference.text(namespace, found.as_ref())?);
    }
    Ok(texts)
}

impl Reference {
    /// The text in the found object.
    pub(super) fn text(&self, namespace: &str, found: Option<&Value>) -> Result<String, Failed> {
        let Self { resource, name, key, field, .. } = self;
        let what = format!("{} {namespace}/{name} of the garden", resource.kind);
        let Some(found) = found else {
            return Err(Failed::new(format!(
                "{what} does not exist: create it, or change {field} of the Shoot, which names it"
            )));
        };
        let entry = found["data"][*key].as_str();
        let text = match entry {
            Some(entry) if *resource == SECRET => {
                base64::decode(entry.as_bytes()).ok().and_then(|bytes| String::from_utf8(bytes).ok())
            }
            entry => entry.map(str::to_owned),
        };
        text.filter(|text| !text.is_empty()).ok_or_else(|| {
            Failed::new(format!(
                "{what} has no text under key {key:?}: add it, or change {field} of the Shoot, which names the object"
            ))
        })
    }
}
