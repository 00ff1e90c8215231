//! Clients of other servers of a control plane than the API server: they show no credentials, and the server's certificate has the name of its
//! Service.

use std::time::Duration;

use serde_json::Value;

use super::client::{Error, ShootConnector};
use crate::api::core::SERVICE;
use crate::api::meta::{Key, text};
use crate::format::address::authority;
use crate::kube::{Client, Connection, Options};

/// A server at the cluster address of a Service.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ServiceServer {
    /// The name of the Service.
    pub(crate) service: &'static str,
    pub(crate) port: u64,
    /// The bundle with the CA of its certificate.
    pub(crate) ca: &'static str,
    /// How long a request may take.
    pub(crate) timeout: Duration,
}

impl ShootConnector {
    /// A client of a server in this namespace. Errors: [`Error`]; nothing was sent to the server yet.
    pub(crate) fn of_service(&self, namespace: &str, server: &ServiceServer) -> Result<Client, Error> {
        let key = Key::new(namespace, server.service);
        let failed = |source| Error::Read { what: format!("service {key}"), source };
        let found = self.seed.find::<Value>(&SERVICE, &key).map_err(failed)?.unwrap_or_default();
        let host = text(&found["spec"]["clusterIP"]);
        if host.is_empty() {
            return Err(Error::Missing { what: format!("service {key} has no address yet") });
        }
        let address = format!("https://{}", authority(host, server.port));
        let trusted = Connection::new(address).with_ca(self.bundle(namespace, server.ca)?);
        let tls_server_name = Some(format!("{}.{namespace}.svc", server.service));
        let options = Options { timeout: server.timeout, warm: None, gate: None, ..self.options.clone() };
        Client::new(Connection { tls_server_name, ..trusted }, options).map_err(failed)
    }
}
