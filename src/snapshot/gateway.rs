//! etcd's JSON API: its status, a stream of its database, and defragmentation.

use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;

use super::error::Error;
use crate::api::meta::text;
use crate::base::capped;
use crate::base::clock::Clock;
use crate::format::{base64, view};
use crate::limits;
use crate::net::{
    self, Body, CertificatePair, Dial, Http, HttpRequest, HttpResponse, ProxyPolicy, RequestLimits,
    SystemCas, TlsError, TlsParty, Traffic, TrustedRoots,
};

/// Limits of a request that etcd answers from memory.
const SMALL: RequestLimits = limits_of(Duration::from_secs(30), Duration::from_secs(60));
/// Limits of a database stream: as long as a run may take (`activeDeadlineSeconds` of its Job).
const STREAM: RequestLimits = limits_of(Duration::from_secs(60), Duration::from_secs(3_600));
/// etcd does not answer while it defragments.
const DEFRAGMENT: RequestLimits = limits_of(Duration::from_secs(300), Duration::from_secs(300));

const fn limits_of(silence: Duration, total: Duration) -> RequestLimits {
    RequestLimits {
        connect: Duration::from_secs(10),
        total: Some(total),
        response: Some(silence),
        read: Some(silence),
    }
}

/// Files with our certificate and the trusted CAs.
#[derive(Clone, Debug)]
pub(crate) struct EtcdTlsFiles {
    /// CAs of etcd's server certificate.
    pub(crate) ca: PathBuf,
    pub(crate) certificate: PathBuf,
    pub(crate) key: PathBuf,
}

impl TlsParty for EtcdTlsFiles {
    fn roots(&self) -> Result<TrustedRoots, TlsError> {
        Ok(TrustedRoots::Pem(read(&self.ca)?))
    }

    fn certificate(&self) -> Result<Option<CertificatePair>, TlsError> {
        Ok(Some(CertificatePair { chain_pem: read(&self.certificate)?, key_pem: read(&self.key)? }))
    }
}

fn read(path: &Path) -> Result<Arc<[u8]>, TlsError> {
    match capped::read_file(path, limits::OCI_PEM_BYTES_MAX) {
        Ok(bytes) => Ok(bytes.into()),
        Err(error) => Err(TlsError::Material(format!("{}: {error}", path.display()))),
    }
}

#[derive(Debug)]
pub(crate) struct EtcdGateway {
    http: Http,
    endpoint: String,
}

/// The status of etcd.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct EtcdStatus {
    /// The revision of its last write.
    pub(crate) revision: u64,
    /// The size of its database file.
    pub(crate) bytes: u64,
    /// How much of it is used.
    pub(crate) bytes_in_use: u64,
}

impl EtcdGateway {
    /// The etcd at a URL. It is in the same cluster, so no proxy is used.
    pub(crate) fn new(endpoint: &str, party: Arc<dyn TlsParty>, dialer: Arc<dyn Dial>, clock: Clock) -> Self {
        let http = Http::new(net::ConnectionSettings {
            dialer,
            party,
            server_name: None,
            proxy: ProxyPolicy::none(),
            system_cas: SystemCas::default(),
            clock,
            second_clock: None,
            user_agent: concat!("gardenlet/", env!("CARGO_PKG_VERSION")).to_owned(),
            idle_connections_max: 1,
            traffic: Traffic::default(),
        });
        Self { http, endpoint: endpoint.trim_end_matches('/').to_owned() }
    }

    /// The status of etcd. Errors: it does not answer.
    pub(crate) fn status(&self) -> Result<EtcdStatus, Error> {
        let doing = "ask etcd for its status";
        let answer = self.ask("maintenance/status", b"{}", doing, limits::SNAPSHOT_ANSWER_BYTES_MAX)?;
        status(&answer).ok_or_else(|| refused(doing, "its answer has no numbers"))
    }

    /// The present database, followed by its digest. Errors: the stream does not start. The reader must check
    /// the digest, because a stream may end early.
    pub(crate) fn snapshot(&self) -> Result<impl Read, Error> {
        let response = self.call("maintenance/snapshot", b"{}", "ask etcd for a snapshot", &STREAM)?;
        Ok(Chunks::new(response.body))
    }

    /// Returns unused space of the database to the file system. etcd does not answer until it is done.
    /// Errors: etcd does not confirm it.
    pub(crate) fn defragment(&self) -> Result<(), Error> {
        let doing = "defragment etcd";
        let mut response = self.call("maintenance/defragment", b"{}", doing, &DEFRAGMENT)?;
        let read = response.body.read_all(limits::SNAPSHOT_ANSWER_BYTES_MAX);
        read.map(drop).map_err(|source| Error::Net { doing: doing.to_owned(), source })
    }

    /// Sends a request that etcd answers from memory to a method of its API, such as `kv/txn`. Returns the answer. Errors: etcd
    /// does not answer, refuses the request, or the answer is too long.
    pub(super) fn ask(
        &self,
        method: &str,
        body: &[u8],
        doing: &str,
        bytes_max: usize,
    ) -> Result<Value, Error> {
        let mut response = self.call(method, body, doing, &SMALL)?;
        let body = response.body.read_all(bytes_max);
        let body = body.map_err(|source| Error::Net { doing: doing.to_owned(), source })?;
        view::json(&body).map_err(|error| refused(doing, &error.to_string()))
    }

    fn call(
        &self,
        method: &str,
        body: &[u8],
        doing: &str,
        limits: &RequestLimits,
    ) -> Result<HttpResponse, Error> {
        let url = format!("{}/v3/{method}", self.endpoint);
        let headers = [("Content-Type", "application/json")];
        let request =
            HttpRequest { method: "POST", url: &url, headers: &headers, body: Some(body), gzip: false };
        let failed = |source| Error::Net { doing: format!("{doing} ({})", self.endpoint), source };
        let mut response = self.http.send(&request, limits).map_err(failed)?;
        if response.status == 200 {
            return Ok(response);
        }
        let body = response.body.read_all(limits::SNAPSHOT_ANSWER_BYTES_MAX).unwrap_or_default();
        let refusal = view::json(&body).unwrap_or_default();
        Err(refused(doing, &format!("status {} {}", response.status, text(&refusal["message"]))))
    }
}

fn refused(doing: &str, why: &str) -> Error {
    Error::Refused { doing: doing.to_owned(), why: why.trim_end().to_owned() }
}

fn status(answer: &Value) -> Option<EtcdStatus> {
    // JSON of protocol buffers omits values that are 0.
    let number = |value: &Value| match value {
        Value::Null => Some(0),
        value => value.as_str()?.parse().ok(),
    };
    let header = answer["header"].as_object()?;
    Some(EtcdStatus {
        revision: header.get("revision").map_or(Some(0), number)?,
        bytes: number(&answer["dbSize"])?,
        bytes_in_use: number(&answer["dbSizeInUse"])?,
    })
}

/// The bytes in a stream of JSON lines.
struct Chunks<R> {
    lines: BufReader<R>,
    line: Vec<u8>,
    chunk: Vec<u8>,
    /// The bytes of the chunk that were already returned.
    done: usize,
}

impl<R: Read> Chunks<R> {
    fn new(from: R) -> Self {
        let lines = BufReader::with_capacity(16 << 10, from);
        Self { lines, line: Vec::new(), chunk: Vec::new(), done: 0 }
    }

    /// Reads the next chunk; false at the end.
    fn advance(&mut self) -> io::Result<bool> {
        self.line.clear();
        let max = u64::try_from(limits::SNAPSHOT_LINE_BYTES_MAX).unwrap_or(u64::MAX);
        if (&mut self.lines).take(max).read_until(b'\n', &mut self.line)? == 0 {
            return Ok(false);
        }
        let bad = |why: String| io::Error::new(io::ErrorKind::InvalidData, why);
        let line = view::json(&self.line).map_err(|error| bad(format!("etcd's stream: {error}")))?;
        if !line["error"].is_null() {
            return Err(bad(format!("etcd ended the stream: {}", text(&line["error"]["message"]))));
        }
        let blob = text(&line["result"]["blob"]).as_bytes();
        self.chunk = base64::decode(blob).map_err(|error| bad(format!("etcd's stream: {error}")))?;
        self.done = 0;
        Ok(true)
    }
}

impl Read for Chunks<Body> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        read_chunk(self, buffer)
    }
}

fn read_chunk<R: Read>(chunks: &mut Chunks<R>, buffer: &mut [u8]) -> io::Result<usize> {
    while chunks.done == chunks.chunk.len() {
        if !chunks.advance()? {
            return Ok(0);
        }
    }
    let left = chunks.chunk.get(chunks.done..).unwrap_or_default();
    let count = left.len().min(buffer.len());
    if let (Some(to), Some(from)) = (buffer.get_mut(..count), left.get(..count)) {
        to.copy_from_slice(from);
    }
    chunks.done += count;
    Ok(count)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(stream: &str) -> Result<Vec<u8>, String> {
        let mut chunks = Chunks::new(stream.as_bytes());
        let (mut all, mut buffer) = (Vec::new(), [0; 3]);
        loop {
            match read_chunk(&mut chunks, &mut buffer) {
                Ok(0) => return Ok(all),
                Ok(count) => all.extend_from_slice(&buffer[..count]),
                Err(error) => return Err(error.to_string()),
            }
        }
    }

    #[test]
    fn a_stream_yields_the_bytes_of_its_lines() {
        let table = [
            ("", Ok(&b""[..])),
            (
                "{\"result\":{\"remaining_bytes\":\"3\",\"blob\":\"aGVsbG8=\"}}\n{\"result\":{\"blob\":\"IQ==\"}}\n",
                Ok(b"hello!"),
            ),
            ("{\"result\":{}}\n{\"result\":{\"blob\":\"IQ==\"}}", Ok(b"!")),
            (
                "{\"result\":{\"blob\":\"IQ==\"}}\n{\"error\":{\"grpc_code\":14,\"message\":\"shutting down\"}}\n",
                Err("etcd ended the stream: shutting down"),
            ),
            ("{\"result\":{\"blob\":\"!\"}}\n", Err("etcd's stream: illegal base64 data at input byte 0")),
        ];
        for (stream, expected) in table {
            assert_eq!(bytes(stream), expected.map(<[u8]>::to_vec).map_err(str::to_owned), "{stream}");
        }
        assert!(bytes("{\"result\":{\"blob\":\"aGVs").unwrap_err().starts_with("etcd's stream: EOF"));
        assert!(bytes(&"x".repeat(limits::SNAPSHOT_LINE_BYTES_MAX + 10)).is_err());
    }

    #[test]
    fn omitted_numbers_are_zero() {
        let of = |text: &str| status(&view::json(text.as_bytes()).unwrap());
        let found = of(r#"{"header":{"revision":"7"},"dbSize":"20480"}"#);
        assert_eq!(found, Some(EtcdStatus { revision: 7, bytes: 20_480, bytes_in_use: 0 }));
        for text in ["{}", "[]", r#"{"header":{"revision":"x"}}"#, r#"{"header":{},"dbSize":-1}"#] {
            assert_eq!(of(text), None, "{text}");
        }
    }
}
