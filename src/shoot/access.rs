//! Secrets with which components and the agent authenticate to the Shoot. This module writes whose token each Secret
//! needs. The token requestor of class `shoot` adds the token.

use serde_json::Value;

use super::addresses::{Outside, in_cluster, out_of_cluster};
use super::view::ShootView;
use crate::api::core::SECRET;
use crate::api::meta::{Key, Metadata, text};
use crate::base::json::json;
use crate::flow::Failed;
use crate::format::base64;
use crate::format::yaml::{self, Dialect};
use crate::kube::{Error, ListParams, Patch, Seed};
use crate::runtime::write;

/// The Secret with a kubeconfig for clients outside the seed's cluster.
pub(crate) const GARDENER: &str = "gardener";
/// The Secret with a kubeconfig for clients inside the seed's cluster.
pub(crate) const GARDENER_INTERNAL: &str = "gardener-internal";

/// The label selector of Secrets with tokens for the cluster of the Shoot.
pub(crate) const OF_SHOOT: &str =
    "resources.gardener.cloud/purpose=token-requestor,resources.gardener.cloud/class=shoot";
const RENEW_AT: &str = "serviceaccount.resources.gardener.cloud/token-renew-timestamp";

/// Requests a token for a component, in Secret `shoot-access-<component>`. An existing token stays.
pub(crate) fn ensure(seed: &Seed, namespace: &str, component: &str) -> Result<(), Error> {
    let key = Key::new(namespace, format!("shoot-access-{component}"));
    write::ensure(seed, &SECRET, &key, &|secret| request(secret, component)).map(drop)
}

/// Writes the Secrets [`GARDENER`] and [`GARDENER_INTERNAL`]: kubeconfigs to which the requestor adds tokens.
/// An existing token stays.
pub(crate) fn ensure_kubeconfigs(
    seed: &Seed,
    view: &ShootView,
    outside: Option<&Outside>,
    ca: &[u8],
) -> Result<(), Error> {
    let servers = [(GARDENER, out_of_cluster(view, outside)), (GARDENER_INTERNAL, in_cluster(view))];
    for (name, server) in servers {
        let key = Key::new(view.technical_id.as_str(), name);
        write::ensure(seed, &SECRET, &key, &|secret| {
            request(secret, name);
            set_kubeconfig(secret, &view.technical_id, &server, ca);
        })?;
    }
    Ok(())
}

/// Requests new tokens for a whole control plane, because the key that signs them was replaced.
pub(crate) fn renew_tokens(seed: &Seed, namespace: &str) -> Result<(), Failed> {
    let params = ListParams { label_selector: OF_SHOOT.to_owned(), ..ListParams::default() };
    let mut due = Vec::new();
    seed.list_all::<Metadata>(&SECRET, namespace, &params, &mut |secret| {
        if secret.metadata.annotations.contains_key(RENEW_AT) {
            due.push(secret.metadata.name);
        }
    })?;
    for name in due {
        let patch = Patch::annotation(RENEW_AT, Value::Null);
        match seed.patch_blindly(&SECRET, &Key::new(namespace, &name), &patch) {
            Err(error) if !error.is_not_found() => return Err(error.into()),
            _ => {}
        }
    }
    Ok(())
}

/// Whether the cluster has ever issued a token for a Secret of the namespace. Tokens that are due leave no annotation
/// ([`renew_tokens`]), but the one in the agent's kubeconfig stays.
pub(crate) fn was_ever_given(seed: &Seed, namespace: &str) -> Result<bool, Error> {
    let params =
        ListParams { label_selector: OF_SHOOT.to_owned(), metadata_only: true, ..ListParams::default() };
    let mut is_given = false;
    seed.list_all::<Metadata>(&SECRET, namespace, &params, &mut |secret| {
        is_given |= secret.metadata.annotations.contains_key(RENEW_AT);
    })?;
    if is_given {
        return Ok(true);
    }
    let internal: Option<Value> = seed.find(&SECRET, &Key::new(namespace, GARDENER_INTERNAL))?;
    Ok(internal.is_some_and(|internal| kubeconfig_of(&internal).pointer(TOKEN).is_some_and(Value::is_string)))
}

/// The path of the token.
const TOKEN: &str = "/users/0/user/token";

/// The kubeconfig of the Secret; null if it cannot be read.
fn kubeconfig_of(secret: &Value) -> Value {
    let text = base64::decode(text(&secret["data"]["kubeconfig"]).as_bytes()).unwrap_or_default();
    str::from_utf8(&text).ok().and_then(|text| yaml::parse(text).ok()).unwrap_or_default()
}

/// Adds the fields that the requestor reads.
fn request(secret: &mut Value, account: &str) {
    if secret["type"].is_null() {
        secret["type"] = json!("Opaque");
    }
    let metadata = &mut secret["metadata"];
    metadata["labels"]["resources.gardener.cloud/purpose"] = json!("token-requestor");
    metadata["labels"]["resources.gardener.cloud/class"] = json!("shoot");
    let annotations = &mut metadata["annotations"];
    annotations["serviceaccount.resources.gardener.cloud/name"] = json!(account);
    annotations["serviceaccount.resources.gardener.cloud/namespace"] = json!("kube-system");
}

/// Sets the kubeconfig, with the token of the existing one.
fn set_kubeconfig(secret: &mut Value, name: &str, server: &str, ca: &[u8]) {
    let live = kubeconfig_of(secret);
    let token = live.pointer(TOKEN).and_then(Value::as_str);
    let user = token.map_or_else(|| json!({}), |token| json!({"token": token}));
    let wanted = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": name,
        "clusters": [{"name": name, "cluster": {
            "certificate-authority-data": base64::encode(ca), "server": format!("https://{server}")}}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": name}}],
        "users": [{"name": name, "user": user}],
    });
    // The requestor may have written the same in another form.
    if live != wanted {
        let text = yaml::emit(&wanted, Dialect::V4);
        secret["data"]["kubeconfig"] = json!(base64::encode(text.as_bytes()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decoded(secret: &Value) -> String {
        String::from_utf8(base64::decode(text(&secret["data"]["kubeconfig"]).as_bytes()).unwrap()).unwrap()
    }

    #[test]
    fn a_component_asks_as_with_a_go_gardenlet() {
        let mut secret = json!({"metadata": {"name": "shoot-access-kube-controller-manager",
            "annotations": {RENEW_AT: "2026-11-22T23:15:46Z"}}, "data": {"token": "eA=="}});
        request(&mut secret, "kube-controller-manager");
        let expected = json!({
            "metadata": {
                "annotations": {
                    "serviceaccount.resources.gardener.cloud/name": "kube-controller-manager",
                    "serviceaccount.resources.gardener.cloud/namespace": "kube-system",
                    RENEW_AT: "2026-11-22T23:15:46Z",
                },
                "labels": {
                    "resources.gardener.cloud/class": "shoot",
                    "resources.gardener.cloud/purpose": "token-requestor",
                },
                "name": "shoot-access-kube-controller-manager",
            },
            "data": {"token": "eA=="},
            "type": "Opaque",
        });
        assert_eq!(secret, expected);
    }

    #[test]
    fn a_kubeconfig_keeps_its_token() {
        let mut secret = json!({});
        set_kubeconfig(&mut secret, "shoot--p--s2", "kube-apiserver.shoot--p--s2.svc", b"PEM");
        // Like in the golden Secret `gardener-internal`.
        let golden = |user: &str| {
            format!(
                "apiVersion: v1\nclusters:\n- cluster:\n    certificate-authority-data: UEVN\n    \
                 server: https://kube-apiserver.shoot--p--s2.svc\n  name: shoot--p--s2\ncontexts:\n- context:\n    \
                 cluster: shoot--p--s2\n    user: shoot--p--s2\n  name: shoot--p--s2\ncurrent-context: shoot--p--s2\n\
                 kind: Config\nusers:\n- name: shoot--p--s2\n  user:{user}\n"
            )
        };
        assert_eq!(decoded(&secret), golden(" {}"));

        let filled = golden("\n    token: abc");
        let mut secret = json!({"data": {"kubeconfig": base64::encode(filled.as_bytes())}});
        let before = secret.clone();
        set_kubeconfig(&mut secret, "shoot--p--s2", "kube-apiserver.shoot--p--s2.svc", b"PEM");
        assert_eq!(secret, before);
        set_kubeconfig(&mut secret, "shoot--p--s2", "192.0.2.7:30443", b"PEM");
        let text = decoded(&secret);
        assert!(text.contains("token: abc") && text.contains("server: https://192.0.2.7:30443"), "{text}");

        let mut secret = json!({"data": {"kubeconfig": "no base64"}});
        set_kubeconfig(&mut secret, "shoot--p--s2", "kube-apiserver.shoot--p--s2.svc", b"PEM");
        assert_eq!(decoded(&secret), golden(" {}"));
    }
}
