//! The part of the garden connection that extensions get: its address and its CAs, in a kubeconfig that their
//! ControllerInstallations carry. When either changes, all installations are reconciled at once.

use std::sync::Arc;

use crate::app::controllers::RunningControllers;
use crate::kube::{Connection, ServerTrust};

use super::BringUp;

/// The address and the CAs. Without CAs, the system's CAs are trusted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct GardenEndpoint {
    server: String,
    is_insecure: bool,
    cas: Option<Arc<[u8]>>,
}

impl GardenEndpoint {
    /// Takes both from a connection; a configured address replaces its address. Returns `None` if the CAs
    /// cannot be read now.
    fn new(connection: &Connection, address: Option<&str>) -> Option<Self> {
        let (is_insecure, cas) = match &connection.trust {
            ServerTrust::System => (false, None),
            ServerTrust::Insecure => (true, None),
            ServerTrust::Bundle(bundle) => (false, Some(bundle.load().ok()?)),
        };
        let server = address.unwrap_or(&connection.server).to_owned();
        Some(Self { server, is_insecure, cas })
    }
}

impl BringUp {
    /// What installations get now.
    pub(super) fn handed(&self) -> Option<GardenEndpoint> {
        let address = self.shared.settings.garden_client_connection.garden_cluster_address.as_deref();
        GardenEndpoint::new(&self.garden().ok()?.controllers.connection(), address)
    }

    /// Passes it to the installations if it has changed.
    pub(super) fn hand_on(&self, before: &mut Option<GardenEndpoint>, running: &RunningControllers) {
        let Some(now) = self.handed() else { return };
        if before.as_ref() == Some(&now) {
            return;
        }
        log::info!("The garden's address or CAs have changed; reconciling all ControllerInstallations");
        running.garden_moved();
        *before = Some(now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kube::InlineOrFile;

    #[test]
    fn address_and_cas_are_what_is_handed_on() {
        let at = |server: &str| Connection::new(server);
        let first = at("https://a").with_ca("one");
        let identity = first.clone().with_certificate("chain".to_owned(), "key".to_owned());
        let insecure = first.clone().with_trust(ServerTrust::Insecure);
        // Two connections, the address in the configuration, and whether both pass on the same.
        let table = [
            (&first, &first, None, true),
            (&first, &identity, None, true),
            (&first, &at("https://a").with_ca("two"), None, false),
            (&first, &at("https://b").with_ca("one"), None, false),
            (&first, &at("https://b").with_ca("one"), Some("https://c"), true),
            (&first, &at("https://b").with_ca("two"), Some("https://c"), false),
            (&first, &at("https://a"), None, false),
            (&at("https://a"), &insecure, None, false),
        ];
        for (one, other, address, same) in table {
            let handed = |connection| GardenEndpoint::new(connection, address).unwrap();
            assert_eq!(handed(one) == handed(other), same, "{one:?} {other:?} {address:?}");
        }
        let unreadable =
            first.clone().with_trust(ServerTrust::Bundle(InlineOrFile::File("/nowhere/ca.crt".into())));
        assert_eq!(GardenEndpoint::new(&unreadable, None), None);
    }
}
