//! Messages to a service manager: datagrams to the socket that `NOTIFY_SOCKET` names (systemd's `sd_notify`).

use std::io;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

/// Variables for this process only, not for its children.
pub(crate) const VARIABLES: [&str; 3] = ["NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"];

/// A connection to the service manager.
#[derive(Debug)]
pub(crate) struct Notifier {
    socket: UnixDatagram,
    address: SocketAddr,
}

impl Notifier {
    /// Connects to a path, or to an abstract name if it begins with `@`. Errors: the error of the system, and
    /// [`io::ErrorKind::Unsupported`] for another kind of address.
    pub(crate) fn new(address: &str) -> io::Result<Self> {
        let address = match address.strip_prefix('@') {
            Some(name) => SocketAddr::from_abstract_name(name)?,
            None if address.starts_with('/') => SocketAddr::from_pathname(address)?,
            None => return Err(io::Error::new(io::ErrorKind::Unsupported, "neither a path nor @name")),
        };
        let socket = UnixDatagram::unbound()?;
        // A service manager that does not read must not block the agent.
        socket.set_nonblocking(true)?;
        Ok(Self { socket, address })
    }

    /// Sends lines such as `READY=1`. Errors: the error of the system.
    pub(crate) fn send(&self, lines: &str) -> io::Result<()> {
        self.socket.send_to_addr(lines.as_bytes(), &self.address).map(drop)
    }
}

/// The interval between two watchdog messages: half of `WATCHDOG_USEC`, unless `WATCHDOG_PID` names another process.
pub(crate) fn watchdog(usec: Option<&str>, pid: Option<&str>, own_pid: u32) -> Option<Duration> {
    let usec: u64 = usec?.parse().ok().filter(|usec| *usec > 0)?;
    let is_ours = pid.is_none_or(|pid| pid.parse() == Ok(own_pid));
    is_ours.then(|| Duration::from_micros(usec) / 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_kinds_of_sockets_are_reached() {
        let name = format!("gardenlet-notify-{}", std::process::id());
        let path = std::env::temp_dir().join(&name);
        let _ = std::fs::remove_file(&path);
        let abstract_name = SocketAddr::from_abstract_name(&name).unwrap();
        let servers = [
            (UnixDatagram::bind(&path).unwrap(), path.to_str().unwrap().to_owned()),
            (UnixDatagram::bind_addr(&abstract_name).unwrap(), format!("@{name}")),
        ];
        for (server, address) in servers {
            Notifier::new(&address).unwrap().send("READY=1\nSTATUS=x").unwrap();
            let mut bytes = [0; 64];
            let length = server.recv(&mut bytes).unwrap();
            assert_eq!(&bytes[..length], b"READY=1\nSTATUS=x", "{address}");
            drop(server);
            // The socket has no reader: an error, without a wait.
            assert!(Notifier::new(&address).unwrap().send("READY=1").is_err());
        }
        std::fs::remove_file(&path).unwrap();
        assert_eq!(Notifier::new("vsock:2:1234").unwrap_err().kind(), io::ErrorKind::Unsupported);
    }

    #[test]
    fn the_watchdog_is_fed_twice_in_its_time() {
        let table = [
            (Some("30000000"), None, Some(15)),
            (Some("30000000"), Some("7"), Some(15)),
            (Some("30000000"), Some("8"), None),
            (Some("30000000"), Some("x"), None),
            (Some("0"), None, None),
            (Some("soon"), None, None),
            (None, Some("7"), None),
        ];
        for (usec, pid, expected) in table {
            assert_eq!(watchdog(usec, pid, 7), expected.map(Duration::from_secs), "{usec:?} {pid:?}");
        }
    }
}
