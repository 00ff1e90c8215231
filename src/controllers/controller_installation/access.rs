//! The extension's access to the garden: a kubeconfig without a token, which all its workloads share, and a Secret that
//! the token requestor fills with the token of the extension's account in the garden.

use std::io;

use serde_json::Value;

use crate::api::core::SECRET;
use crate::api::meta::Key;
use crate::base::json::json;
use crate::base::sorted::SortedMap;
use crate::components::managed;
use crate::format::{base64, yaml};
use crate::kube::{Connection, ServerTrust};
use crate::runtime::controller::ReconcileFailure;
use crate::runtime::write;

use super::inject::{GardenAccess, MOUNT_PATH};
use super::{InstallationReconciler, objects};

/// The Secret with the token.
pub(super) const TOKEN_SECRET: &str = "garden-access-extension";

/// Writes the Secret with the kubeconfig into the extension's namespace and returns its name. Errors: a
/// request to the seed fails; or the CA of the garden cannot be read.
pub(super) fn ensure_kubeconfig(
    this: &InstallationReconciler,
    namespace: &str,
) -> Result<String, ReconcileFailure> {
    let address = &this.site.settings.garden_client_connection.garden_cluster_address;
    let text = kubeconfig(&this.site.garden.connection(), address.as_deref())?;
    let data = SortedMap::from([("kubeconfig".to_owned(), text)]);
    let (key, object) = managed::unique_secret(namespace, "generic-garden-kubeconfig", &data);
    match this.site.seed.create::<Value>(&SECRET, namespace, &object) {
        // Its name depends on its content, and it is immutable.
        Err(e) if !e.is_already_exists() => Err(e.into()),
        _ => Ok(key.name),
    }
}

/// `address` is the configured one, if there is one: extensions may reach the garden under another
/// address than the agent.
fn kubeconfig(connection: &Connection, address: Option<&str>) -> io::Result<String> {
    let mut cluster = json!({"server": address.unwrap_or(&connection.server)});
    match &connection.trust {
        ServerTrust::System => {}
        ServerTrust::Insecure => cluster["insecure-skip-tls-verify"] = json!(true),
        ServerTrust::Bundle(bundle) => {
            cluster["certificate-authority-data"] = json!(base64::encode(&bundle.load()?));
        }
    }
    let file = json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "garden", "cluster": cluster}],
        "users": [{"name": "extension", "user": {"tokenFile": format!("{MOUNT_PATH}/token")}}],
        "contexts": [{"name": "garden", "context": {"cluster": "garden", "user": "extension"}}],
        "current-context": "garden",
    });
    Ok(yaml::emit(&file, yaml::Dialect::V4))
}

/// Creates the token Secret if it is enabled, and deletes it otherwise. Returns the names for the workloads
/// if it is enabled.
pub(super) fn ensure_token<'a>(
    this: &InstallationReconciler,
    installation: &str,
    registration: &str,
    kubeconfig: Option<&'a str>,
) -> Result<Option<GardenAccess<'a>>, ReconcileFailure> {
    let key = Key::new(objects::namespace_name(installation), TOKEN_SECRET);
    let Some(kubeconfig) = kubeconfig else {
        write::delete(&this.site.seed, &SECRET, &key)?;
        return Ok(None);
    };
    write::ensure(&this.site.seed, &SECRET, &key, &|secret| {
        ask_for_token(secret, installation, registration);
    })?;
    Ok(Some(GardenAccess { kubeconfig, token: TOKEN_SECRET }))
}

/// The fields that the token requestor reads. It may write the token at the same time; this patch
/// changes other fields only.
fn ask_for_token(secret: &mut Value, installation: &str, registration: &str) {
    secret["type"] = json!("Opaque");
    let metadata = &mut secret["metadata"];
    metadata["labels"]["resources.gardener.cloud/purpose"] = json!("token-requestor");
    metadata["labels"]["resources.gardener.cloud/class"] = json!("garden");
    let labels = json!({objects::REGISTRATION_NAME_LABEL: registration});
    let annotations = &mut metadata["annotations"];
    annotations["serviceaccount.resources.gardener.cloud/name"] =
        json!(objects::namespace_name(installation));
    annotations["serviceaccount.resources.gardener.cloud/labels"] = json!(labels.to_string());
    if let Some(data) = secret.get_mut("data").and_then(Value::as_object_mut) {
        data.remove("kubeconfig");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kube::InlineOrFile;

    fn connection(trust: ServerTrust) -> Connection {
        Connection { trust, ..Connection::new("https://garden.example.org") }
    }

    #[test]
    fn the_kubeconfig_is_that_of_upstream() {
        // Written by client-go v0.36.1.
        let expected = "apiVersion: v1
clusters:
- cluster:
    certificate-authority-data: UEVN
    server: https://garden.example.org
  name: garden
contexts:
- context:
    cluster: garden
    user: extension
  name: garden
current-context: garden
kind: Config
users:
- name: extension
  user:
    tokenFile: /var/run/secrets/gardener.cloud/garden/generic-kubeconfig/token
";
        let bundle = connection(ServerTrust::Bundle(InlineOrFile::inline("PEM")));
        assert_eq!(kubeconfig(&bundle, None).unwrap(), expected);
        let elsewhere = kubeconfig(&connection(ServerTrust::Insecure), Some("https://g:6443")).unwrap();
        let cluster = "- cluster:\n    insecure-skip-tls-verify: true\n    server: https://g:6443\n  name";
        assert!(elsewhere.contains(cluster), "{elsewhere}");
        let system = kubeconfig(&connection(ServerTrust::System), None).unwrap();
        assert!(system.contains("- cluster:\n    server: https://garden.example.org\n  name"), "{system}");
    }

    #[test]
    fn the_token_secret_names_the_account() {
        let mut secret = json!({
            "metadata": {"name": "garden-access-extension", "annotations": {"foreign": "1"}},
            "data": {"token": "eA==", "kubeconfig": "eA=="},
        });
        ask_for_token(&mut secret, "ext-abcde", "ext");
        let expected = json!({
            "metadata": {
                "name": "garden-access-extension",
                "labels": {
                    "resources.gardener.cloud/purpose": "token-requestor", "resources.gardener.cloud/class": "garden",
                },
                "annotations": {
                    "foreign": "1",
                    "serviceaccount.resources.gardener.cloud/name": "extension-ext-abcde",
                    "serviceaccount.resources.gardener.cloud/labels":
                        "{\"controllerregistration.core.gardener.cloud/name\":\"ext\"}",
                },
            },
            "type": "Opaque",
            "data": {"token": "eA=="},
        });
        assert_eq!(secret, expected);
    }
}
