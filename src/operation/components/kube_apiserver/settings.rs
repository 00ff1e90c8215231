//! The ConfigMaps and Secrets that the kube-apiserver reads its settings from.

use serde_json::Value;

use super::references::{AUDIT, AUTHENTICATION, AUTHORIZATION, authorizer_kubeconfig, plugin_kubeconfig};
use super::{Setting, Texts, config_map};
use crate::api::core::SECRET;
use crate::api::meta::text;
use crate::base::json::json;
use crate::base::sorted::SortedMap;
use crate::components::content::unique_config_map;
use crate::components::managed::unique_secret;
use crate::format::yaml::{self, Dialect};

const ADMISSION: &str = "/etc/kubernetes/admission";
const ADMISSION_KUBECONFIGS: &str = "/etc/kubernetes/admission-kubeconfigs";
/// The directory of the authorizers' kubeconfigs.
pub(super) const AUTHORIZATION_KUBECONFIGS: &str = "/etc/kubernetes/structured/authorization-kubeconfigs";
/// The API group of the files.
const GROUP: &str = "apiserver.config.k8s.io";

/// Their input; see [`Input`](super::Input).
#[derive(Clone, Copy)]
pub(super) struct Given<'a> {
    pub(super) namespace: &'a str,
    pub(super) kubernetes: &'a Value,
    pub(super) texts: &'a Texts,
    pub(super) has_nodes: bool,
}

/// All of them, by volume.
pub(super) fn fill(input: &Given<'_>) -> Result<Vec<Setting>, String> {
    let mut all = vec![audit(input)?];
    all.extend(admission(input)?);
    all.push(authentication(input)?);
    all.extend(authorization(input)?);
    Ok(all)
}

fn write(value: &Value) -> String {
    yaml::emit(value, Dialect::V4)
}

fn parse(text: &str, what: &str) -> Result<Value, String> {
    yaml::parse(text).ok().filter(Value::is_object).ok_or_else(|| {
        format!(
            "{what}, which spec.kubernetes.kubeAPIServer of the Shoot names, is not a YAML object: correct it"
        )
    })
}

/// Sets a field of a map in the owner's configuration. Creates a missing map.
fn set(config: &mut Value, [map, field]: [&str; 2], value: Value, what: &str) -> Result<(), String> {
    let parent = &mut config[map];
    if !parent.is_null() && !parent.is_object() {
        return Err(format!("{map} in {what} of the Shoot is not an object: correct it"));
    }
    parent[field] = value;
    Ok(())
}

fn one(input: &Given<'_>, volume: &'static str, name: &str, file: &str, value: &Value) -> Setting {
    let data = SortedMap::from([(file.to_owned(), write(value))]);
    config_map(volume, unique_config_map(input.namespace, name, &data))
}

fn audit(input: &Given<'_>) -> Result<Setting, String> {
    let mut policy = match input.texts.get(AUDIT) {
        Some(text) => parse(text, "the audit policy")?,
        None => json!({"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "rules": [{"level": "None"}]}),
    };
    if policy["metadata"].is_null() {
        policy["metadata"] = json!({});
    }
    Ok(one(input, "audit-policy-config", "audit-policy-config", "audit-policy.yaml", &policy))
}

/// The enabled admission plugins, and the disabled ones.
pub(super) fn plugins(server: &Value) -> (Vec<Value>, Vec<Value>) {
    let mut all = vec![json!({"name": "NodeRestriction"})];
    for plugin in server["admissionPlugins"].as_array().into_iter().flatten() {
        all.retain(|known| known["name"] != plugin["name"]);
        all.push(plugin.clone());
    }
    all.into_iter().partition(|plugin| plugin["disabled"] != true)
}

fn admission(input: &Given<'_>) -> Result<Vec<Setting>, String> {
    let (enabled, _) = plugins(&input.kubernetes["kubeAPIServer"]);
    let (mut files, mut kubeconfigs, mut entries) = (SortedMap::new(), SortedMap::new(), Vec::new());
    for plugin in &enabled {
        let name = text(&plugin["name"]);
        let kubeconfig = plugin_kubeconfig(name);
        let found = input.texts.get(&kubeconfig);
        if let Some(found) = found {
            kubeconfigs.insert(kubeconfig.clone(), found.clone());
        }
        let path = found.map(|_| format!("{ADMISSION_KUBECONFIGS}/{kubeconfig}"));
        if let Some(config) = plugin_config(plugin, path)? {
            let file = format!("{}.yaml", name.to_lowercase());
            entries.push(json!({"configuration": null, "name": name, "path": format!("{ADMISSION}/{file}")}));
            files.insert(file, config);
        }
    }
    let entries = if entries.is_empty() { Value::Null } else { Value::Array(entries) };
    let configuration =
        json!({"apiVersion": format!("{GROUP}/v1"), "kind": "AdmissionConfiguration", "plugins": entries});
    files.insert("admission-configuration.yaml".to_owned(), write(&configuration));
    let map = unique_config_map(input.namespace, "kube-apiserver-admission-config", &files);
    let secret = secret(input, "kube-apiserver-admission-kubeconfigs", &kubeconfigs);
    Ok(vec![config_map("admission-config", map), ("admission-kubeconfigs", SECRET, secret)])
}

fn secret(input: &Given<'_>, name: &str, data: &SortedMap<String, String>) -> Value {
    let (_, mut secret) = unique_secret(input.namespace, name, data);
    secret["type"] = json!("Opaque");
    secret
}

/// The configuration file of a plugin, if it has one. Its kubeconfig is the one of the Secret that the plugin names, or
/// none: the pod contains no other file.
fn plugin_config(plugin: &Value, kubeconfig: Option<String>) -> Result<Option<String>, String> {
    let mut config = plugin["config"].clone();
    if config.is_null() && kubeconfig.is_none() {
        return Ok(None);
    }
    let name = text(&plugin["name"]);
    let what = format!("the configuration of admission plugin {name}");
    if !config.is_null() && !config.is_object() {
        return Err(format!("{what} in the Shoot is not an object: correct it"));
    }
    let is_webhook = matches!(name, "MutatingAdmissionWebhook" | "ValidatingAdmissionWebhook");
    if is_webhook {
        if config.is_null() {
            config = json!({"apiVersion": format!("{GROUP}/v1"), "kind": "WebhookAdmissionConfiguration"});
        }
        config["kubeConfigFile"] = json!(kubeconfig.unwrap_or_default());
    } else if name == "ImagePolicyWebhook" {
        let kubeconfig = json!(kubeconfig.unwrap_or_default());
        set(&mut config, ["imagePolicy", "kubeConfigFile"], kubeconfig, &what)?;
    } else if config.is_null() {
        return Ok(None);
    } else if name == "PodSecurity" {
        check_pod_security(&config)?;
        exempt_kube_system(&mut config, &what)?;
    }
    Ok(Some(write(&config)))
}

fn check_pod_security(config: &Value) -> Result<(), String> {
    let version = text(&config["apiVersion"]).strip_prefix("pod-security.admission.config.k8s.io/");
    let is_known = matches!(version, Some("v1" | "v1beta1" | "v1alpha1"));
    if is_known && config["kind"] == "PodSecurityConfiguration" {
        return Ok(());
    }
    Err("the configuration of admission plugin PodSecurity in the Shoot is no PodSecurityConfiguration of \
        pod-security.admission.config.k8s.io/v1: correct its apiVersion and kind"
        .to_owned())
}

fn exempt_kube_system(config: &mut Value, what: &str) -> Result<(), String> {
    let mut namespaces = config["exemptions"]["namespaces"].as_array().cloned().unwrap_or_default();
    if !namespaces.iter().any(|namespace| namespace == "kube-system") {
        namespaces.push(json!("kube-system"));
    }
    set(config, ["exemptions", "namespaces"], Value::Array(namespaces), what)
}

fn authentication(input: &Given<'_>) -> Result<Setting, String> {
    let mut config = match input.texts.get(AUTHENTICATION) {
        Some(text) => parse(text, "the configuration of authentication")?,
        None => {
            json!({"apiVersion": format!("{GROUP}/v1beta1"), "kind": "AuthenticationConfiguration", "jwt": null})
        }
    };
    if config["anonymous"].is_null() {
        let enabled = input.kubernetes["kubeAPIServer"]["enableAnonymousAuthentication"] == true;
        config["anonymous"] = json!({"enabled": enabled});
    }
    let volume = "authentication-config";
    Ok(one(input, volume, "kube-apiserver-authentication-config", "config.yaml", &config))
}

/// The authorizer of nodes and RBAC come first, then the Shoot's webhooks.
fn authorization(input: &Given<'_>) -> Result<Vec<Setting>, String> {
    let mut authorizers = Vec::new();
    if input.has_nodes {
        authorizers.push(json!({"type": "Node", "name": "node"}));
    }
    authorizers.push(json!({"type": "RBAC", "name": "rbac"}));
    let mut kubeconfigs = SortedMap::new();
    if let Some(text) = input.texts.get(AUTHORIZATION) {
        let what = "the configuration of authorization";
        let config = parse(text, what)?;
        for authorizer in config["authorizers"].as_array().into_iter().flatten() {
            authorizers.extend(webhook(input, authorizer, &mut kubeconfigs)?);
        }
    }
    let config = json!({
        "apiVersion": format!("{GROUP}/v1beta1"), "kind": "AuthorizationConfiguration", "authorizers": authorizers,
    });
    let (volume, name) = ("authorization-config", "kube-apiserver-authorization-config");
    let mut all = vec![one(input, volume, name, "config.yaml", &config)];
    if !kubeconfigs.is_empty() {
        let secret = secret(input, "kube-apiserver-authorization-webhooks-kubeconfigs", &kubeconfigs);
        all.push(("authorization-kubeconfigs", SECRET, secret));
    }
    Ok(all)
}

fn webhook(
    input: &Given<'_>,
    authorizer: &Value,
    kubeconfigs: &mut SortedMap<String, String>,
) -> Result<Option<Value>, String> {
    if authorizer["type"] != "Webhook" {
        return Ok(None);
    }
    let name = text(&authorizer["name"]);
    let file = authorizer_kubeconfig(name);
    let Some(kubeconfig) = input.texts.get(&file) else {
        return Err(format!(
            "authorizer {name} has no kubeconfig: name its Secret in \
             spec.kubernetes.kubeAPIServer.structuredAuthorization.kubeconfigs of the Shoot"
        ));
    };
    kubeconfigs.insert(file.clone(), kubeconfig.clone());
    let mut authorizer = authorizer.clone();
    let connection =
        json!({"type": "KubeConfigFile", "kubeConfigFile": format!("{AUTHORIZATION_KUBECONFIGS}/{file}")});
    let what = format!("the configuration of authorizer {name}");
    set(&mut authorizer, ["webhook", "connectionInfo"], connection, &what)?;
    Ok(Some(authorizer))
}
