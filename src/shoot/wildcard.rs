//! The seed's certificate for a wildcard domain, which API servers of Shoots use in addition to their own.

use serde_json::Value;

use super::view::ShootView;
use crate::api::core::SECRET;
use crate::api::meta::{Key, text};
use crate::api::resources::GARDEN_NAMESPACE;
use crate::flow::Failed;
use crate::kube::{ListParams, Seed};
use crate::runtime::write;

const LABEL: &str = "gardener.cloud/role=controlplane-cert";
/// The prefix of control plane namespaces, which host names omit.
const PREFIX: &str = "shoot--";

/// A certificate in addition to the server's own.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Wildcard {
    /// The Secret, in the namespace of the control plane.
    pub(crate) secret: String,
    /// The server name for which it is used.
    pub(crate) host: String,
}

/// Copies the certificate to the namespace of the control plane, if the seed has one. Errors: a request to
/// the seed fails; or there are several certificates.
pub(crate) fn ensure(seed: &Seed, view: &ShootView) -> Result<Option<Wildcard>, Failed> {
    let Some(host) = host(view) else { return Ok(None) };
    let params = ListParams { label_selector: LABEL.to_owned(), ..ListParams::default() };
    let mut found: Vec<Value> = Vec::new();
    seed.list_all::<Value>(&SECRET, GARDEN_NAMESPACE, &params, &mut |secret| found.push(secret))?;
    let source = match found.as_slice() {
        [] => return Ok(None),
        [one] => one,
        several => {
            let names: Vec<&str> = several.iter().map(|secret| text(&secret["metadata"]["name"])).collect();
            return Err(Failed::new(format!(
                "namespace {GARDEN_NAMESPACE} of the seed has several Secrets with label {LABEL}, but only one is allowed: {}",
                names.join(", ")
            )));
        }
    };
    let secret = text(&source["metadata"]["name"]).to_owned();
    let key = Key::new(view.technical_id.as_str(), secret.as_str());
    write::ensure(seed, &SECRET, &key, &|copy| copy["data"] = source["data"].clone())?;
    Ok(Some(Wildcard { secret, host }))
}

/// The name of the Shoot's API server below the seed's ingress domain.
fn host(view: &ShootView) -> Option<String> {
    let name = view.technical_id.strip_prefix(PREFIX).unwrap_or(&view.technical_id);
    (!view.ingress_domain.is_empty()).then(|| format!("api-{name}.{}", view.ingress_domain))
}

#[cfg(test)]
mod tests {
    use super::super::view::tests::golden;
    use super::*;
    use crate::kube::{Client, Connection, Options};

    #[test]
    fn the_host_is_below_the_ingress_domain() {
        let mut view = golden("s2");
        view.ingress_domain = "ingress.lab.local".to_owned();
        assert_eq!(host(&view).as_deref(), Some("api-p--s2.ingress.lab.local"));
        view.technical_id = "shoot-old-name".to_owned();
        assert_eq!(host(&view).as_deref(), Some("api-shoot-old-name.ingress.lab.local"));
        view.ingress_domain.clear();
        assert_eq!(host(&view), None);
        // No Secrets are read then: no server listens at this address.
        let nowhere = Client::new(Connection::new("http://127.0.0.1:1"), Options::default()).unwrap();
        assert_eq!(ensure(&Seed(nowhere), &view), Ok(None));
    }
}
