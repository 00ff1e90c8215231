//! Reads the head of a request. Requests have no body.

use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream};
use std::time::Duration;

use crate::base::clock::Clock;
use crate::limits;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ServerRequest {
    method: String,
    path: String,
    query: String,
    /// The header `Accept`.
    accept: String,
    is_local: bool,
    /// See [`ServerRequest::is_by_address`].
    is_by_address: bool,
}

impl ServerRequest {
    /// The path as the client sent it.
    pub(crate) fn path(&self) -> &str {
        &self.path
    }

    /// Whether the query names `key`, with or without a value.
    pub(crate) fn has(&self, key: &str) -> bool {
        self.parameters().any(|(name, _)| name == key)
    }

    /// All values of `key` in the query, as the client sent them.
    pub(crate) fn values(&self, key: &str) -> impl Iterator<Item = &str> {
        self.parameters().filter(move |(name, _)| *name == key).map(|(_, value)| value)
    }

    /// Whether the client lists exactly this media type in `Accept`.
    pub(crate) fn accepts(&self, media_type: &str) -> bool {
        self.accept.split([',', ';']).any(|word| word.trim().eq_ignore_ascii_case(media_type))
    }

    /// Whether the client is on this machine, or uses a port that is forwarded to it.
    pub(crate) const fn is_local(&self) -> bool {
        self.is_local
    }

    /// Whether the client asks for an address or for `localhost`, if it says whom it asks. A page in a browser may give
    /// its own name the address of this machine and read what it gets, but it cannot ask for another name than its own.
    pub(crate) const fn is_by_address(&self) -> bool {
        self.is_by_address
    }

    pub(super) fn is_head(&self) -> bool {
        self.method == "HEAD"
    }

    fn parameters(&self) -> impl Iterator<Item = (&str, &str)> {
        self.query.split('&').map(|pair| pair.split_once('=').unwrap_or((pair, "")))
    }
}

/// Why a request cannot be read.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Error {
    /// The server answers with this status.
    Refused(u16, &'static str),
    /// The client is gone.
    Gone,
}

/// Reads a request, which must arrive within `timeout`.
pub(super) fn read(socket: &TcpStream, timeout: Duration) -> Result<ServerRequest, Error> {
    let clock = Clock::system();
    let deadline = clock.mono().saturating_add(timeout);
    let mut head = Vec::new();
    let mut piece = [0; 1024];
    while !is_complete(&head) {
        if head.len() > limits::SERVE_REQUEST_BYTES_MAX {
            return Err(Error::Refused(431, "the request is too long"));
        }
        let left = deadline.saturating_sub(clock.mono()).max(Duration::from_millis(1));
        socket.set_read_timeout(Some(left)).map_err(|_| Error::Gone)?;
        match (&mut &*socket).read(&mut piece) {
            Ok(0) => return Err(Error::Gone),
            Ok(length) => head.extend_from_slice(&piece[..length]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if is_timeout(&error) => return Err(Error::Refused(408, "the request took too long")),
            Err(_) => return Err(Error::Gone),
        }
        if clock.mono() >= deadline {
            return Err(Error::Refused(408, "the request took too long"));
        }
    }
    let address = |found: io::Result<SocketAddr>| found.ok().map(|address| address.ip().to_canonical());
    let is_local = is_same_machine(address(socket.peer_addr()), address(socket.local_addr()));
    parse(&head).map(|request| ServerRequest { is_local, ..request })
}

/// Writes an answer, which the client must receive within `timeout`, even if it reads slowly.
pub(super) fn write(socket: &TcpStream, mut bytes: &[u8], timeout: Duration) -> io::Result<()> {
    let clock = Clock::system();
    let deadline = clock.mono().saturating_add(timeout);
    while !bytes.is_empty() {
        let left = deadline.saturating_sub(clock.mono());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        socket.set_write_timeout(Some(left))?;
        match (&mut &*socket).write(bytes) {
            Ok(length) => bytes = &bytes[length..],
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Reads the remaining bytes. If the server closed the connection before, the client could lose the response.
pub(super) fn drain(socket: &TcpStream) {
    // A limit, for clients that never stop sending.
    for _ in 0..64 {
        if !drain_once(socket) {
            return;
        }
    }
}

/// Reads one piece. Returns whether there was one.
pub(super) fn drain_once(socket: &TcpStream) -> bool {
    let is_timed = socket.set_read_timeout(Some(Duration::from_millis(100))).is_ok();
    is_timed && matches!((&mut &*socket).read(&mut [0; 1024]), Ok(1..))
}

fn is_timeout(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut)
}

fn is_complete(head: &[u8]) -> bool {
    head.windows(4).any(|end| end == b"\r\n\r\n") || head.windows(2).any(|end| end == b"\n\n")
}

fn parse(head: &[u8]) -> Result<ServerRequest, Error> {
    let line = head.split(|byte| *byte == b'\n').next().unwrap_or_default();
    let line = std::str::from_utf8(line).map_err(|_| Error::Refused(400, "not a request"))?;
    let words: Vec<&str> = line.trim_end_matches('\r').split(' ').collect();
    let [method, target, version] = words[..] else { return Err(Error::Refused(400, "not a request")) };
    if !version.starts_with("HTTP/1.") || !target.starts_with('/') {
        return Err(Error::Refused(400, "not a request"));
    }
    if !matches!(method, "GET" | "HEAD") {
        return Err(Error::Refused(405, "only GET and HEAD are allowed"));
    }
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let accept = headers(head, "accept").next().unwrap_or_default();
    let is_by_address = headers(head, "host").all(|host| is_address(&host));
    let [method, path, query] = [method, path, query].map(str::to_owned);
    Ok(ServerRequest { method, path, query, accept, is_local: false, is_by_address })
}

/// The values of a header.
fn headers(head: &[u8], wanted: &str) -> impl Iterator<Item = String> {
    let lines = head.split(|byte| *byte == b'\n').skip(1);
    lines.filter_map(move |line| {
        let line = String::from_utf8_lossy(line);
        let (name, value) = line.split_once(':')?;
        name.trim().eq_ignore_ascii_case(wanted).then(|| value.trim().to_owned())
    })
}

/// Whether both ends of a connection are on one machine: a client that connects to an address of its own
/// machine comes from this address.
fn is_same_machine(peer: Option<IpAddr>, own: Option<IpAddr>) -> bool {
    peer.is_some_and(|peer| peer.is_loopback() || Some(peer) == own)
}

/// Whether a `Host` is an IP address or `localhost`, with any port.
fn is_address(host: &str) -> bool {
    let (name, port) = match host.rsplit_once(':') {
        Some((name, port)) if !port.ends_with(']') => (name, port),
        _ => (host, ""),
    };
    let is_v6 = |name: &str| name.parse::<Ipv6Addr>().is_ok();
    let is_literal = match name.strip_prefix('[').and_then(|name| name.strip_suffix(']')) {
        Some(name) => is_v6(name),
        None => name.parse::<Ipv4Addr>().is_ok() || name.eq_ignore_ascii_case("localhost"),
    };
    is_literal && port.bytes().all(|byte| byte.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_asks_for_an_address_or_for_a_name() {
        let table = [
            ("", true),
            ("Host: 127.0.0.1\r\n", true),
            ("host:10.1.2.3:2728\r\n", true),
            ("Host: localhost\r\n", true),
            ("Host: LocalHost:8080\r\n", true),
            ("Host: [::1]\r\n", true),
            ("Host: [::ffff:127.0.0.1]:2728\r\n", true),
            ("Accept: evil.example\r\n", true),
            ("Host: evil.example\r\n", false),
            ("Host: evil.example:2728\r\n", false),
            ("HOST : evil.example\r\n", false),
            ("Host: \u{e4}.example\r\n", false),
            ("Host: localhost.evil.example\r\n", false),
            ("Host: 127.0.0.1.evil.example\r\n", false),
            ("Host: localhost:x\r\n", false),
            ("Host: [evil]:1\r\n", false),
            ("Host:\r\n", false),
            ("Host: localhost\r\nHost: evil.example\r\n", false),
        ];
        for (headers, expected) in table {
            let request = parse(format!("GET /statusz HTTP/1.1\r\n{headers}\r\n").as_bytes()).unwrap();
            assert_eq!(request.is_by_address(), expected, "{headers}");
        }
        let request = parse(b"GET / HTTP/1.1\r\nHost: \xff.example\r\n\r\n").unwrap();
        assert!(!request.is_by_address());
    }

    #[test]
    fn requests_are_read_or_refused() {
        let parsed = |head: &str| parse(head.as_bytes());
        let request =
            parsed("GET /healthz/ping?verbose&exclude=a&exclude=b HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
        assert_eq!(request.path(), "/healthz/ping");
        assert!(request.has("verbose") && !request.has("ping"));
        assert_eq!(request.values("exclude").collect::<Vec<_>>(), ["a", "b"]);
        let browser =
            parsed("GET / HTTP/1.1\r\nHost: x\r\naccept: text/html,application/xml;q=0.9\r\n\r\n").unwrap();
        assert!(browser.accepts("text/html") && !browser.accepts("application/json"));
        assert!(!request.accepts("text/html"));
        let table = [
            ("POST / HTTP/1.1\r\n\r\n", 405),
            ("GET / HTTP/2\r\n\r\n", 400),
            ("GET http://x/ HTTP/1.1\r\n\r\n", 400),
            ("GET /\r\n\r\n", 400),
            ("\r\n\r\n", 400),
        ];
        for (head, expected) in table {
            assert!(matches!(parsed(head), Err(Error::Refused(status, _)) if status == expected), "{head}");
        }
        assert_eq!(parse(b"\xff\xfe\r\n\r\n"), Err(Error::Refused(400, "not a request")));
    }

    #[test]
    fn who_is_on_the_same_machine() {
        let at = |text: &str| text.parse::<IpAddr>().ok();
        let table = [
            ("127.0.0.1", "127.0.0.1", true),
            ("127.0.0.9", "127.0.0.1", true),
            ("::1", "::1", true),
            ("192.0.2.1", "192.0.2.1", true),
            ("2001:db8::1", "2001:db8::1", true),
            ("192.0.2.2", "192.0.2.1", false),
            ("", "", false),
        ];
        for (peer, own, expected) in table {
            assert_eq!(is_same_machine(at(peer), at(own)), expected, "{peer} {own}");
        }
    }
}
