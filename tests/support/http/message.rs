//! Requests and responses on the wire.

use std::io::{self, BufRead, Read, Write};

use serde_json::Value;

use crate::encoding::unescape;

const HEADER_BYTES_MAX: u64 = 64 << 10;
const BODY_BYTES_MAX: usize = 16 << 20;

/// A request as it was received.
#[derive(Clone, Debug, Default)]
pub struct Request {
    pub method: String,
    /// Without the query, still escaped.
    pub path: String,
    pub query: Vec<(String, String)>,
    /// The query as it was sent.
    pub raw_query: String,
    /// Names in lower case.
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

impl Request {
    /// Reads the next request; none at the end of the connection.
    pub fn read(stream: &mut impl BufRead) -> io::Result<Option<Self>> {
        let mut head = stream.take(HEADER_BYTES_MAX);
        let Some(first) = line(&mut head)? else { return Ok(None) };
        let mut words = first.split(' ');
        let (Some(method), Some(target)) = (words.next(), words.next()) else {
            return Err(bad("request line"));
        };
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let mut request = Self {
            method: method.to_owned(),
            path: path.to_owned(),
            query: pairs(query),
            raw_query: query.to_owned(),
            ..Self::default()
        };
        loop {
            let text = line(&mut head)?.ok_or_else(|| bad("end within the headers"))?;
            if text.is_empty() {
                break;
            }
            let (name, value) = text.split_once(':').ok_or_else(|| bad("header"))?;
            request.headers.push((name.to_lowercase(), value.trim().to_owned()));
        }
        request.body = body(stream, &request)?;
        Ok(Some(request))
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(n, _)| n == name).map(|(_, v)| v.as_str())
    }

    pub fn headers(&self, name: &str) -> Vec<String> {
        self.headers.iter().filter(|(n, _)| n == name).map(|(_, v)| v.clone()).collect()
    }

    pub fn parameter(&self, name: &str) -> Option<String> {
        self.query.iter().find(|(n, _)| n == name).map(|(_, v)| v.clone())
    }

    /// The media type of the body, without parameters.
    pub fn media_type(&self) -> &str {
        self.header("content-type").and_then(|t| t.split(';').next()).unwrap_or_default().trim()
    }

    fn wants_close(&self) -> bool {
        self.header("connection").is_some_and(|c| c.eq_ignore_ascii_case("close"))
    }
}

fn bad(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what.to_owned())
}

fn line(stream: &mut impl BufRead) -> io::Result<Option<String>> {
    let mut line = String::new();
    if stream.read_line(&mut line)? == 0 {
        return Ok(None);
    }
    Ok(Some(line.trim_end_matches(['\r', '\n']).to_owned()))
}

fn pairs(query: &str) -> Vec<(String, String)> {
    let parts = query.split('&').filter(|p| !p.is_empty());
    parts
        .map(|p| {
            let (name, value) = p.split_once('=').unwrap_or((p, ""));
            (unescape(name, true), unescape(value, true))
        })
        .collect()
}

fn body(stream: &mut impl BufRead, request: &Request) -> io::Result<Vec<u8>> {
    if request.header("transfer-encoding").is_some_and(|t| t.eq_ignore_ascii_case("chunked")) {
        return chunked(stream);
    }
    let length = request.header("content-length").map_or(Ok(0), str::parse::<usize>);
    let length = length.ok().filter(|l| *l <= BODY_BYTES_MAX).ok_or_else(|| bad("content-length"))?;
    let mut body = vec![0; length];
    stream.read_exact(&mut body)?;
    Ok(body)
}

fn chunked(stream: &mut impl BufRead) -> io::Result<Vec<u8>> {
    let mut body = Vec::new();
    loop {
        let size = line(stream)?.ok_or_else(|| bad("chunk"))?;
        let size = usize::from_str_radix(size.split(';').next().unwrap_or_default(), 16)
            .map_err(|_| bad("chunk"))?;
        if body.len() + size > BODY_BYTES_MAX {
            return Err(bad("body too large"));
        }
        let start = body.len();
        body.resize(start + size, 0);
        stream.read_exact(&mut body[start..])?;
        line(stream)?;
        if size == 0 {
            return Ok(body);
        }
    }
}

/// A response with its whole body.
#[derive(Clone, Debug)]
pub struct Response {
    pub status: u16,
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

impl Response {
    pub fn json(status: u16, value: &Value) -> Self {
        let mut body = value.to_string().into_bytes();
        body.push(b'\n');
        Self { status, headers: vec![("Content-Type".into(), "application/json".into())], body }
    }

    pub fn text(status: u16, media_type: &str, body: &str) -> Self {
        Self {
            status,
            headers: vec![("Content-Type".into(), media_type.into())],
            body: body.as_bytes().to_vec(),
        }
    }

    #[must_use]
    pub fn header(mut self, name: &str, value: impl Into<String>) -> Self {
        self.headers.push((name.to_owned(), value.into()));
        self
    }

    /// The response as bytes; `date` for the `Date` header.
    pub fn bytes(&self, date: &str, request: &Request) -> Vec<u8> {
        let mut out = head(self.status, date, &self.headers);
        out.extend(format!("Content-Length: {}\r\n", self.body.len()).bytes());
        if request.wants_close() {
            out.extend(b"Connection: close\r\n");
        }
        out.extend(b"\r\n");
        if request.method != "HEAD" {
            out.extend(&self.body);
        }
        out
    }

    /// Whether the connection ends after this exchange.
    pub fn closes(request: &Request) -> bool {
        request.wants_close()
    }
}

fn head(status: u16, date: &str, headers: &[(String, String)]) -> Vec<u8> {
    let mut out = format!(
        "HTTP/1.1 {status} {}\r\nAudit-Id: {}\r\nCache-Control: no-cache, private\r\nDate: {date}\r\n",
        reason(status),
        crate::api::write::uid()
    );
    for (name, value) in headers {
        out.push_str(&format!("{name}: {value}\r\n"));
    }
    out.into_bytes()
}

/// The head of a response whose body comes in chunks.
pub fn stream_head(date: &str) -> Vec<u8> {
    let mut out = head(200, date, &[("Content-Type".into(), "application/json".into())]);
    out.extend(b"Transfer-Encoding: chunked\r\n\r\n");
    out
}

/// Writes one chunk; an empty one ends the body.
pub fn write_chunk(stream: &mut impl Write, data: &[u8]) -> io::Result<()> {
    let mut out = format!("{:x}\r\n", data.len()).into_bytes();
    out.extend(data);
    out.extend(b"\r\n");
    stream.write_all(&out)?;
    stream.flush()
}

fn reason(status: u16) -> &'static str {
    match status {
        200 => "OK",
        201 => "Created",
        400 => "Bad Request",
        401 => "Unauthorized",
        403 => "Forbidden",
        404 => "Not Found",
        405 => "Method Not Allowed",
        406 => "Not Acceptable",
        409 => "Conflict",
        410 => "Gone",
        415 => "Unsupported Media Type",
        422 => "Unprocessable Entity",
        429 => "Too Many Requests",
        500 => "Internal Server Error",
        502 => "Bad Gateway",
        503 => "Service Unavailable",
        504 => "Gateway Timeout",
        _ => "Unknown",
    }
}

#[test]
fn requests_are_read() {
    let wire = b"POST /a%2Fb?x=1%202&y HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\nGET / HTTP/1.1\r\n\r\n";
    let mut stream = io::BufReader::new(&wire[..]);
    let first = Request::read(&mut stream).unwrap().unwrap();
    assert_eq!((first.method.as_str(), first.path.as_str()), ("POST", "/a%2Fb"));
    assert_eq!((first.parameter("x").unwrap().as_str(), first.body.as_slice()), ("1 2", &b"abc"[..]));
    assert_eq!(Request::read(&mut stream).unwrap().unwrap().method, "GET");
    assert!(Request::read(&mut stream).unwrap().is_none());
}
