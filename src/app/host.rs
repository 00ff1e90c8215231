//! Finds the garden's address when the garden runs in the seed cluster (Gardener `cmd/gardenlet/app`): the agent uses
//! the Service inside the cluster instead of the public address.

use crate::api::core::SERVICE;
use crate::api::meta::{Key, Metadata};
use crate::controllers;
use crate::kube::{Client, Error};

const NAMESPACE: &str = "garden";
const SERVICE_NAME: &str = "virtual-garden-kube-apiserver";
/// If this Service exists, the other one ends TLS elsewhere.
const MTLS_SERVICE_NAME: &str = "virtual-garden-kube-apiserver-mtls";
const INSIDE: &str = "https://virtual-garden-kube-apiserver.garden.svc.cluster.local";

/// The garden's server within the seed cluster; `None` if the kubeconfig's address is the right one.
pub(crate) fn inside(seed: &Client) -> Result<Option<&'static str>, Error> {
    let has = |name| seed.find::<Metadata>(&SERVICE, &Key::new(NAMESPACE, name)).map(|found| found.is_some());
    let inside = controllers::is_garden(seed)? && has(SERVICE_NAME)? && !has(MTLS_SERVICE_NAME)?;
    Ok(inside.then_some(INSIDE))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kube::{Connection, Options};
    use crate::net::testing::{Act, TestServer};

    #[test]
    fn a_garden_in_the_seed_cluster_is_reached_there() {
        let inside_host = Some("https://virtual-garden-kube-apiserver.garden.svc.cluster.local");
        let table = [
            ("gardens", vec!["virtual-garden-kube-apiserver"], inside_host),
            ("gardens", vec!["virtual-garden-kube-apiserver", "virtual-garden-kube-apiserver-mtls"], None),
            ("gardens", vec![], None),
            ("no gardens", vec!["virtual-garden-kube-apiserver"], None),
            ("unknown", vec!["virtual-garden-kube-apiserver"], None),
        ];
        for (gardens, services, expected) in table {
            let server = TestServer::plain(move |seen| {
                let path = seen.path.split('?').next().unwrap_or_default();
                match (path.ends_with("/gardens"), gardens) {
                    (true, "gardens") => {
                        return Act::json(200, r#"{"metadata":{},"items":[{"metadata":{"name":"g"}}]}"#);
                    }
                    (true, "no gardens") => return Act::json(200, r#"{"metadata":{},"items":[]}"#),
                    _ => {}
                }
                let found =
                    services.iter().any(|name| path == format!("/api/v1/namespaces/garden/services/{name}"));
                if found { Act::json(200, r#"{"metadata":{"name":"s"}}"#) } else { Act::json(404, "{}") }
            });
            let client = Client::new(Connection::new(server.url()), Options::default()).unwrap();
            assert_eq!(inside(&client).unwrap(), expected, "{gardens}");
        }
    }
}
