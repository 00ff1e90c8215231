//! The subresources `adminkubeconfig` and `viewerkubeconfig`: a client certificate that the Shoot trusts until it expires.

use std::time::Duration;

use gardenlet::pki::AnyKey;
use gardenlet::pki::issue::{
    Authority, CertificateIssuer, CertificateTemplate, KeyUsage, ServerNames, subject,
};
use serde_json::{Value, json};

use crate::api::failure::Failure;
use crate::api::{Api, Target, User};
use crate::encoding::{base64, from_base64, rfc3339};
use crate::garden::kinds::CORE;
use crate::json::{list, set, text};

/// The subresources of a Shoot that are answered here, with the kinds of their bodies.
pub const SUBRESOURCES: &[(&str, &str)] =
    &[("adminkubeconfig", "AdminKubeconfigRequest"), ("viewerkubeconfig", "ViewerKubeconfigRequest")];

const LIFETIME_MIN_S: u64 = 600;
const LIFETIME_S: u64 = 3_600;
const LIFETIME_MAX_S: u64 = 86_400;
/// The names of addresses that lead to the API server.
const SERVERS: [&str; 4] = ["external", "internal", "unmanaged", "wildcard-tls-seed-bound"];

/// The ConfigMap with the CA of a Shoot, by namespace and name.
pub type Lookup = Box<dyn Fn(&Api, &str, &str) -> Option<Value> + Send + Sync>;

/// Answers a POST. `lookup` finds ConfigMaps, which may be stored elsewhere.
pub fn answer(
    api: &Api,
    target: &Target,
    mut body: Value,
    user: &User,
    lookup: &Lookup,
) -> Result<Value, Failure> {
    let asked_s = body["spec"]["expirationSeconds"].as_u64().unwrap_or(LIFETIME_S);
    if asked_s < LIFETIME_MIN_S {
        let why = format!("Invalid value: {asked_s}: may not specify a duration less than 10 minutes");
        let kind =
            SUBRESOURCES.iter().find(|(name, _)| *name == target.subresource).map_or("", |(_, kind)| *kind);
        return Err(Failure::invalid(
            "authentication.gardener.cloud",
            kind,
            "",
            "spec.expirationSeconds",
            &why,
        ));
    }
    let shoot = api.get(&Target { subresource: String::new(), ..target.clone() })?;
    let addresses: Vec<&Value> = list(&shoot, "/status/advertisedAddresses")
        .iter()
        .filter(|a| SERVERS.contains(&text(a, "/name")))
        .collect();
    if addresses.is_empty() {
        return Err(target.invalid(
            "status.advertisedAddresses",
            "Invalid value: no kube-apiserver addresses for Shoot found",
        ));
    }
    let (namespace, name) = (&target.namespace, &target.name);
    let internal = |what: &str| {
        Failure::new(500, "InternalError", format!("Internal error occurred: could not get {what}"))
    };
    let signer = api.store.get(CORE, "internalsecrets", namespace, &format!("{name}.ca-client"));
    let signer = signer.ok_or_else(|| internal("client CA secret"))?;
    let servers = lookup(api, namespace, &format!("{name}.ca-cluster"));
    let servers = servers.ok_or_else(|| internal("cluster CA"))?;
    let lifetime = Duration::from_secs(asked_s.min(LIFETIME_MAX_S));
    let now = api.clock.now();
    let group = group(&target.subresource, user);
    let (certificate, key) = sign(&signer, (&user.name, &group), (now.unix(), now.plus(lifetime).unix()))
        .map_err(|why| internal(&format!("a certificate: {why}")))?;
    let kubeconfig =
        kubeconfig((namespace, name), &addresses, text(&servers, "/data/ca.crt"), (&certificate, &key));
    set(&mut body, "/spec/expirationSeconds", lifetime.as_secs());
    set(&mut body, "/status/kubeconfig", base64(kubeconfig.to_string().as_bytes()));
    set(&mut body, "/status/expirationTimestamp", rfc3339(now.plus(lifetime)));
    Ok(body)
}

/// The groups in the certificate. Administrators of the garden are administrators of each Shoot; others depend on the project.
fn group(subresource: &str, user: &User) -> String {
    let scope = if user.is_in("system:masters") { "system" } else { "project" };
    let role = if subresource == "viewerkubeconfig" { "viewers" } else { "admins" };
    format!("gardener.cloud:{scope}:{role}")
}

/// A client certificate of the Shoot's CA and its key, PEM.
fn sign(
    signer: &Value,
    (user, group): (&str, &str),
    (not_before_unix_s, not_after_unix_s): (i64, i64),
) -> Result<(String, String), String> {
    let data = |key: &str| from_base64(signer["data"][key].as_str().unwrap_or_default()).unwrap_or_default();
    let signing = AnyKey::from_pem(&data("ca.key"))?;
    let key = AnyKey::new_p256()?;
    let template = CertificateTemplate {
        subject: subject(user, &[group.to_owned()]),
        names: ServerNames::default(),
        not_before_unix_s,
        not_after_unix_s,
        usage: Some(KeyUsage::Client),
        authority: Authority::No,
    };
    let issuer = CertificateIssuer::of_pem(&data("ca.crt"), &signing).map_err(|e| e.to_string())?;
    let certificate = template.sign(&key, &issuer).map_err(|e| e.to_string())?;
    Ok((certificate, key.to_pem()))
}

/// One context for each address, the first one current.
fn kubeconfig(
    (namespace, name): (&str, &str),
    addresses: &[&Value],
    ca: &str,
    (certificate, key): (&str, &str),
) -> Value {
    let user = format!("{namespace}--{name}");
    let named = |address: &&Value| format!("{user}-{}", text(address, "/name"));
    let clusters: Vec<Value> = addresses
        .iter()
        .map(|address| {
            let mut cluster = json!({"server": address["url"]});
            if address["name"] != "wildcard-tls-seed-bound" {
                cluster["certificate-authority-data"] = base64(ca.as_bytes()).into();
            }
            json!({"name": named(address), "cluster": cluster})
        })
        .collect();
    let contexts: Vec<Value> = addresses
        .iter()
        .map(|a| json!({"name": named(a), "context": {"cluster": named(a), "user": user}}))
        .collect();
    json!({"apiVersion": "v1", "kind": "Config", "current-context": named(&addresses[0]), "clusters": clusters,
        "contexts": contexts, "users": [{"name": user, "user": {
            "client-certificate-data": base64(certificate.as_bytes()), "client-key-data": base64(key.as_bytes())}}]})
}
