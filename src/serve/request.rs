//! Reads the head of a request. A body is not expected.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use crate::base::clock::Clock;
use crate::limits;

/// A request for something.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    method: String,
    path: String,
    query: String,
    /// The header `Accept`.
    accept: String,
    is_local: bool,
}

impl Request {
    /// The path, as it was sent.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Whether the query names `key`, with or without a value.
    pub fn has(&self, key: &str) -> bool {
        self.parameters().any(|(name, _)| name == key)
    }

    /// All values of `key` in the query, as they were sent.
    pub fn values(&self, key: &str) -> impl Iterator<Item = &str> {
        self.parameters().filter(move |(name, _)| *name == key).map(|(_, value)| value)
    }

    /// Whether the client names a media type, in so many words, among those that it takes.
    pub fn accepts(&self, media_type: &str) -> bool {
        self.accept.split([',', ';']).any(|word| word.trim().eq_ignore_ascii_case(media_type))
    }

    /// Whether the client is on this machine, or comes through a port that somebody forwards to it.
    pub const fn is_local(&self) -> bool {
        self.is_local
    }

    pub(super) fn is_head(&self) -> bool {
        self.method == "HEAD"
    }

    fn parameters(&self) -> impl Iterator<Item = (&str, &str)> {
        self.query.split('&').map(|pair| pair.split_once('=').unwrap_or((pair, "")))
    }
}

/// Why there is no request.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Error {
    /// To be answered with this status.
    Refused(u16, &'static str),
    /// There is nobody to answer.
    Gone,
}

/// Reads a request that must be complete within `timeout`.
pub(super) fn read(socket: &TcpStream, timeout: Duration) -> Result<Request, Error> {
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
    let is_local = socket.peer_addr().is_ok_and(|peer| peer.ip().to_canonical().is_loopback());
    parse(&head).map(|request| Request { is_local, ..request })
}

/// Writes an answer that must have left within `timeout`, however slowly the client reads it.
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

/// Reads what is still under way: closing with unread bytes would take the response away from the client.
pub(super) fn drain(socket: &TcpStream) {
    // Bounded: whoever sends on and on is cut off.
    for _ in 0..64 {
        if !drain_once(socket) {
            return;
        }
    }
}

/// Reads one piece, and says whether there was one.
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

fn parse(head: &[u8]) -> Result<Request, Error> {
    let line = head.split(|byte| *byte == b'\n').next().unwrap_or_default();
    let line = std::str::from_utf8(line).map_err(|_| Error::Refused(400, "not a request"))?;
    let words: Vec<&str> = line.trim_end_matches('\r').split(' ').collect();
    let [method, target, version] = words[..] else { return Err(Error::Refused(400, "not a request")) };
    if !version.starts_with("HTTP/1.") || !target.starts_with('/') {
        return Err(Error::Refused(400, "not a request"));
    }
    if !matches!(method, "GET" | "HEAD") {
        return Err(Error::Refused(405, "only GET and HEAD"));
    }
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let accept = accept(head);
    let [method, path, query] = [method, path, query].map(str::to_owned);
    Ok(Request { method, path, query, accept, is_local: false })
}

fn accept(head: &[u8]) -> String {
    let lines = head.split(|byte| *byte == b'\n').skip(1).filter_map(|line| std::str::from_utf8(line).ok());
    let mut headers = lines.filter_map(|line| line.split_once(':'));
    let found = headers.find(|(name, _)| name.eq_ignore_ascii_case("accept"));
    found.map(|(_, value)| value.trim().to_owned()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

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
}
