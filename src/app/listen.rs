//! Opens the ports of the agent. An error names the field of the configuration.

use std::io;

use crate::config::settings::ListenAddress;
use crate::format::address::authority;
use crate::serve::{self, HttpServer, Routes};

use super::{Environment, Error};

/// Listens for requests until the agent stops. `field` is the part of the configuration that has address and port.
pub(super) fn listen(
    what: &str,
    field: &str,
    at: &ListenAddress,
    routes: Routes,
    env: &Environment,
) -> Result<HttpServer, Error> {
    let server = serve::start(&at.bind_address, at.port, routes, &env.stop)
        .map_err(|source| Error::System { operation: listening(what, field, at, &source), source })?;
    let address = server.addr().to_string();
    log::info!(what = what, address = address.as_str(); "Listening");
    Ok(server)
}

/// What failed, with the field to change.
fn listening(what: &str, field: &str, at: &ListenAddress, error: &io::Error) -> String {
    let (address, port) = (&at.bind_address, at.port);
    let (part, remedy) = match error.kind() {
        io::ErrorKind::AddrInUse => ("port", "another program has the port, so choose another one"),
        io::ErrorKind::PermissionDenied => ("port", "choose a port above 1023"),
        _ => ("bindAddress", "choose an address of this machine"),
    };
    let at = authority(address, port);
    format!("listen for {what} on {at} ({field}.{part}: {remedy})")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_cannot_listen_names_the_field() {
        let at = |bind_address: &str| ListenAddress { bind_address: bind_address.to_owned(), port: 2728 };
        let error = |kind: io::ErrorKind| kind.into();
        let table = [
            (
                "",
                io::ErrorKind::AddrInUse,
                "listen for probes on :2728 (server.healthProbes.port: another program has",
            ),
            (
                "::1",
                io::ErrorKind::PermissionDenied,
                "listen for probes on [::1]:2728 (server.healthProbes.port: choose",
            ),
            (
                "192.0.2.1",
                io::ErrorKind::AddrNotAvailable,
                "listen for probes on 192.0.2.1:2728 (server.healthProbes.bindAddress: ",
            ),
        ];
        for (address, kind, expected) in table {
            let found = listening("probes", "server.healthProbes", &at(address), &error(kind));
            assert!(found.starts_with(expected), "{found}");
        }
    }
}
