//! A bucket of S3, or of compatible storage, as a store.

pub mod credentials;
pub(crate) mod list;
pub(crate) mod sign;
mod transfer;
pub mod xml;

use std::fmt;
use std::io::Read;
use std::sync::Arc;
use std::time::Duration;

use super::error::Error;
use super::name::{self, Snapshot};
use super::store::{LEFTOVER_S, SnapshotStore, Upload};
use crate::base::backoff::Backoff;
use crate::base::clock::{Clock, Timestamp};
use crate::base::stop::Stop;
use crate::format::time::rfc3339;
use crate::limits;
use crate::net::{
    self, CertificatePair, Dial, Http, HttpRequest, HttpResponse, ProxyPolicy, RequestLimits, SystemCas,
    TlsError, TlsParty, Traffic, TrustedRoots,
};
use credentials::Bucket;
use list::{ListRequest, Page, Unfinished};
use sign::{Unsigned, sha256_hex};
use transfer::{Download, Parts};

/// Servers may be slow, but not silent for longer than this.
const SILENCE: Duration = Duration::from_secs(60);
const CONNECT: Duration = Duration::from_secs(15);
const RETRY_FIRST: Duration = Duration::from_millis(500);
const RETRY_MAX: Duration = Duration::from_secs(8);

/// The machine's network configuration.
#[derive(Clone, Debug)]
pub struct StoreNetwork {
    /// It opens the sockets of connections.
    pub dialer: Arc<dyn Dial>,
    /// Chooses the proxy of each connection.
    pub proxy: ProxyPolicy,
    /// The path of the system's CAs.
    pub system_cas: SystemCas,
    /// Used for signatures and to check certificates.
    pub clock: Clock,
    /// Ends waits between tries.
    pub stop: Stop,
}

/// How slow a store may be, in real time.
#[derive(Clone, Copy, Debug)]
pub struct TransferPace {
    /// For a request and its answer, besides the bytes of a snapshot.
    pub answer: Duration,
    /// For all pages of a list.
    pub list: Duration,
    /// How many bytes of a snapshot it takes or gives in each second, on average.
    pub bytes_per_second: u64,
}

impl Default for TransferPace {
    fn default() -> Self {
        Self {
            answer: Duration::from_secs(120),
            list: Duration::from_secs(300),
            bytes_per_second: limits::SNAPSHOT_BYTES_PER_SECOND_MIN,
        }
    }
}

impl TransferPace {
    /// The time for a request that moves this part of a snapshot.
    fn of(self, bytes: u64) -> Duration {
        self.answer.saturating_add(Duration::from_secs(bytes / self.bytes_per_second.max(1)))
    }
}

/// The store.
pub struct S3 {
    http: Http,
    bucket: Bucket,
    /// The prefix of all keys, without a leading slash and with a trailing one.
    folder: String,
    clock: Clock,
    /// Sockets wait in real time.
    real: Clock,
    pace: TransferPace,
    stop: Stop,
}

impl fmt::Debug for S3 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "S3({})", self.place())
    }
}

/// A request to the bucket.
#[derive(Clone, Copy)]
struct Question<'a> {
    doing: &'a str,
    method: &'a str,
    /// The key of the object; empty for the bucket.
    key: &'a str,
    query: &'a [(&'a str, &'a str)],
    range: Option<&'a str>,
    body: &'a [u8],
    /// For each try, with the body of the answer.
    total: Duration,
}

impl S3 {
    /// The snapshots of a bucket below `prefix`.
    pub fn new(bucket: Bucket, prefix: &str, network: &StoreNetwork) -> Self {
        let http = Http::new(net::ConnectionSettings {
            dialer: Arc::clone(&network.dialer),
            party: Arc::new(StoreParty {
                roots: match &bucket.ca {
                    _ if bucket.is_insecure => TrustedRoots::Insecure,
                    Some(pem) => TrustedRoots::Pem(Arc::clone(pem)),
                    None => TrustedRoots::System(network.system_cas.clone()),
                },
            }),
            server_name: None,
            proxy: network.proxy.clone(),
            system_cas: network.system_cas.clone(),
            clock: network.clock.clone(),
            second_clock: None,
            user_agent: concat!("gardenlet/", env!("CARGO_PKG_VERSION")).to_owned(),
            idle_connections_max: 1,
            traffic: Traffic::default(),
        });
        let folder = format!("{}/{}/", prefix.trim_matches('/'), name::VERSION);
        let folder = folder.trim_start_matches('/').to_owned();
        let (clock, stop) = (network.clock.clone(), network.stop.clone());
        Self { http, bucket, folder, clock, real: Clock::system(), pace: TransferPace::default(), stop }
    }

    /// The same store, which may be slower or must be faster.
    #[must_use]
    pub fn at_pace(self, pace: TransferPace) -> Self {
        Self { pace, ..self }
    }

    const fn question<'a>(&self, doing: &'a str, method: &'a str, key: &'a str) -> Question<'a> {
        Question { doing, method, key, query: &[], range: None, body: b"", total: self.pace.answer }
    }

    /// Retries transient errors, and returns the answer if it is a success.
    fn ask(&self, question: Question<'_>) -> Result<HttpResponse, Error> {
        let mut backoff = Backoff::new(RETRY_FIRST, RETRY_MAX);
        loop {
            let (error, may_pass) = match self.send(question) {
                Ok(response) if matches!(response.status, 200 | 204 | 206) => return Ok(response),
                Ok(mut response) => {
                    let may_pass = matches!(response.status, 429 | 500 | 502 | 503 | 504);
                    (self.refusal(question.doing, &mut response), may_pass)
                }
                Err(source) => {
                    let may_pass = !matches!(
                        source,
                        net::Error::Tls(_)
                            | net::Error::Closed
                            | net::Error::Request(_)
                            | net::Error::Proxy(_)
                    );
                    (Error::Net { doing: self.doing(question.doing), source }, may_pass)
                }
            };
            let is_last = backoff.failures() + 1 >= limits::SNAPSHOT_ATTEMPTS_MAX;
            if !may_pass || is_last || self.stop.wait(&self.clock, backoff.next_delay()) {
                return Err(error);
            }
        }
    }

    fn doing(&self, doing: &str) -> String {
        format!("{doing} (bucket {} at {})", self.bucket.name, self.bucket.endpoint)
    }

    fn send(&self, question: Question<'_>) -> Result<HttpResponse, net::Error> {
        let (host, digest) = (self.bucket.host(), sha256_hex(question.body));
        let (path, query) = (sign::path(&self.bucket.path(question.key)), sign::query(question.query));
        let unsigned = Unsigned {
            method: question.method,
            host: &host,
            path: &path,
            query: &query,
            digest: &digest,
            at: self.clock.now(),
        };
        let (authorization, date) = sign::sign(&self.bucket.key, &unsigned);
        let mark = if query.is_empty() { "" } else { "?" };
        let url = format!("{}{path}{mark}{query}", self.bucket.origin());
        let mut headers = vec![
            ("Host", host.as_str()),
            ("X-Amz-Content-Sha256", &digest),
            ("X-Amz-Date", &date),
            ("Authorization", &authorization),
        ];
        headers.extend(question.range.map(|range| ("Range", range)));
        let body = (!question.body.is_empty()).then_some(question.body);
        let request =
            HttpRequest { method: question.method, url: &url, headers: &headers, body, gzip: false };
        let limits = RequestLimits {
            connect: CONNECT,
            total: Some(question.total),
            response: Some(SILENCE),
            read: Some(SILENCE),
        };
        self.http.send(&request, &limits)
    }

    /// The error that an answer contains.
    fn refusal(&self, doing: &str, response: &mut HttpResponse) -> Error {
        let date = response.header("date").map(str::to_owned);
        // The status is valid even if the body is interrupted.
        let body = response.body.read_all(limits::SNAPSHOT_ANSWER_BYTES_MAX).unwrap_or_default();
        self.sorted(doing, response.status, &String::from_utf8_lossy(&body), date.as_deref())
    }

    fn sorted(&self, doing: &str, status: u16, body: &str, date: Option<&str>) -> Error {
        let found = xml::parse(body).filter(|root| root.name == "Error").unwrap_or_default();
        let code = found.only("Code").filter(|code| is_word(code)).unwrap_or_default();
        let region = found.only("Region").filter(|region| is_word(region));
        let bucket = &self.bucket;
        let why = match code {
            "RequestTimeTooSkewed" => {
                let theirs = date.map(|date| format!(", that of the store {date}")).unwrap_or_default();
                format!(
                    "the clock of this machine is wrong: it shows {}{theirs}; set it (code RequestTimeTooSkewed)",
                    rfc3339(self.clock.now())
                )
            }
            "NoSuchBucket" => {
                format!("there is no bucket {:?}; correct bucketName, endpoint or region", bucket.name)
            }
            "NoSuchKey" => "it does not exist any more".to_owned(),
            "InvalidAccessKeyId" => "the store does not know the key; correct accessKeyID".to_owned(),
            "SignatureDoesNotMatch" => "the key has another secret; correct secretAccessKey".to_owned(),
            "AccessDenied" => "the key has no right to do this (AccessDenied)".to_owned(),
            _ if matches!(status, 301 | 302 | 307 | 308) || code == "AuthorizationHeaderMalformed" => {
                match region {
                    Some(region) => format!("the bucket is in region {region}; correct region"),
                    None => format!(
                        "the bucket is elsewhere (status {status} {code}); correct region or endpoint"
                    ),
                }
            }
            _ => format!("status {status} {code}").trim_end().to_owned(),
        };
        Error::Refused { doing: self.doing(doing), why }
    }

    /// The complete text of an answer.
    fn text(&self, question: Question<'_>, bytes_max: usize) -> Result<String, Error> {
        let mut response = self.ask(question)?;
        let date = response.header("date").map(str::to_owned);
        let body = response.body.read_all(bytes_max);
        let body = body.map_err(|source| Error::Net { doing: self.doing(question.doing), source })?;
        // What is not UTF-8 does not become whole XML.
        let text = String::from_utf8_lossy(&body).into_owned();
        // Errors of slow requests have status 200.
        if xml::parse(&text).is_some_and(|root| root.name == "Error") {
            return Err(self.sorted(question.doing, 200, &text, date.as_deref()));
        }
        Ok(text)
    }

    /// The entries of all pages of a list.
    fn pages<T>(
        &self,
        doing: &str,
        kind: &ListKind,
        read: impl Fn(&str, ListRequest<'_>) -> Result<Page<T>, &'static str>,
    ) -> Result<Vec<T>, Error> {
        let refused = |why: String| Error::Refused { doing: self.doing(doing), why };
        let until = self.real.mono().saturating_add(self.pace.list);
        let (mut all, mut next) = (Vec::new(), Vec::new());
        for _ in 0..limits::SNAPSHOT_LIST_PAGES_MAX {
            let mut query = vec![(kind.parameter, kind.value), ("prefix", self.folder.as_str())];
            query.extend(next.iter().map(|(name, value): &(&str, String)| (*name, value.as_str())));
            let total = until.saturating_sub(self.real.mono()).min(self.pace.answer);
            if total.is_zero() {
                return Err(refused(format!("it took longer than {} s", self.pace.list.as_secs())));
            }
            let question = Question { query: &query, total, ..self.question(doing, "GET", "") };
            let text = self.text(question, limits::SNAPSHOT_LIST_BYTES_MAX)?;
            let from = next.first().map_or("", |(_, value)| value.as_str());
            let asked = ListRequest { bucket: &self.bucket.name, prefix: &self.folder, from };
            let page =
                read(&text, asked).map_err(|why| refused(format!("its answer is no list of S3: {why}")))?;
            all.extend(page.entries);
            next = page.next;
            if next.is_empty() {
                return Ok(all);
            }
        }
        Err(refused("its list has no end".to_owned()))
    }
}

/// The parameter of a request that says what is listed.
struct ListKind {
    parameter: &'static str,
    value: &'static str,
}

const OBJECTS: ListKind = ListKind { parameter: "list-type", value: "2" };
const UPLOADS: ListKind = ListKind { parameter: "uploads", value: "" };

/// Whether a text of the server is safe to display.
fn is_word(text: &str) -> bool {
    (1..=64).contains(&text.len()) && text.bytes().all(|c| c.is_ascii_alphanumeric() || b"-_".contains(&c))
}

impl SnapshotStore for S3 {
    fn place(&self) -> String {
        format!("bucket {} at {}, {}", self.bucket.name, self.bucket.endpoint, self.folder)
    }

    fn list(&self) -> Result<Vec<Snapshot>, Error> {
        self.pages("list snapshots", &OBJECTS, list::objects).map(name::snapshots)
    }

    fn open(&self, snapshot: &Snapshot) -> Result<Box<dyn Read + '_>, Error> {
        Ok(Box::new(Download::begin(self, snapshot)?))
    }

    fn create(&self, name: &str) -> Result<Box<dyn Upload + '_>, Error> {
        Ok(Box::new(Parts::new(self, format!("{}{name}", self.folder))))
    }

    fn remove(&self, name: &str) -> Result<(), Error> {
        let key = format!("{}{name}", self.folder);
        self.ask(self.question("delete a snapshot", "DELETE", &key)).map(drop)
    }

    fn sweep(&self, now: Timestamp) -> Result<(), Error> {
        let all = self.pages("list uploads that were not finished", &UPLOADS, list::uploads)?;
        let is_old = |upload: &Unfinished| now.unix().saturating_sub(upload.begun.unix()) > LEFTOVER_S;
        for Unfinished { key, id, .. } in all.into_iter().filter(is_old) {
            let query = [("uploadId", id.as_str())];
            self.ask(Question { query: &query, ..self.question("end an upload", "DELETE", &key) })?;
        }
        Ok(())
    }
}

/// The trusted CAs of the server.
#[derive(Debug)]
struct StoreParty {
    roots: TrustedRoots,
}

impl TlsParty for StoreParty {
    fn roots(&self) -> Result<TrustedRoots, TlsError> {
        Ok(self.roots.clone())
    }

    fn certificate(&self) -> Result<Option<CertificatePair>, TlsError> {
        Ok(None)
    }
}
