//! An S3 server in this process, with one bucket. It checks each signature from the bytes of the request with code of its own,
//! and simulates faults.

use std::collections::BTreeMap;
use std::io::{self, BufReader, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use gardenlet::base::clock::{Clock, Timestamp};
use gardenlet::base::thread;

use super::encoding::{http_date, rfc3339, sha256_hex, unescape};
use super::http::message::{Request, Response};

const STACK_BYTES: usize = 1 << 20;
pub const BUCKET: &str = "backups";
pub const KEY_ID: &str = "AKIDEXAMPLE";
pub const SECRET: &str = "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY";
pub const REGION: &str = "eu-west-1";
/// Entries of one page of a list.
const PAGE: usize = 2;
/// S3 refuses a request whose time differs by more than this.
const SKEW: Duration = Duration::from_secs(15 * 60);

/// The answer of a story.
pub enum Answer {
    Reply(Response),
    /// The head and this many bytes of the body; then the connection ends.
    Cut(Response, usize),
    /// The connection ends without an answer, after the request took effect.
    Silence,
}

type Twist = Box<dyn Fn(&Request, &Response) -> Option<Answer> + Send + Sync>;

/// An upload in parts.
struct Upload {
    key: String,
    begun: Timestamp,
    parts: BTreeMap<usize, Vec<u8>>,
}

struct Shared {
    clock: Clock,
    objects: Mutex<BTreeMap<String, Vec<u8>>>,
    uploads: Mutex<BTreeMap<String, Upload>>,
    twist: Mutex<Option<Twist>>,
    seen: Mutex<Vec<String>>,
    open: Mutex<Vec<TcpStream>>,
    ended: AtomicBool,
}

/// See the module. Ends when dropped.
pub struct S3Server {
    /// `http://127.0.0.1:<port>`.
    pub endpoint: String,
    shared: Arc<Shared>,
    accepting: Option<JoinHandle<()>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl S3Server {
    pub fn start(clock: &Clock) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let endpoint = format!("http://{}", listener.local_addr().unwrap());
        let shared = Arc::new(Shared {
            clock: clock.clone(),
            objects: Mutex::default(),
            uploads: Mutex::default(),
            twist: Mutex::default(),
            seen: Mutex::default(),
            open: Mutex::default(),
            ended: AtomicBool::new(false),
        });
        let serving = Arc::clone(&shared);
        let accept = move || {
            let mut threads = Vec::new();
            for tcp in listener.incoming().map_while(Result::ok) {
                if serving.ended.load(Ordering::SeqCst) {
                    break;
                }
                lock(&serving.open).extend(tcp.try_clone());
                let shared = Arc::clone(&serving);
                threads.extend(thread::spawn("s3-connection", STACK_BYTES, move || {
                    let _ = shared.serve(tcp);
                }));
            }
            threads.into_iter().for_each(|thread| drop(thread.join()));
        };
        let accepting = Some(thread::spawn("s3", STACK_BYTES, accept).unwrap());
        Self { endpoint, shared, accepting }
    }

    /// The files of a Secret for this server.
    pub fn credentials(&self) -> Vec<(&'static str, String)> {
        vec![
            ("accessKeyID", KEY_ID.to_owned()),
            ("secretAccessKey", SECRET.to_owned()),
            ("region", REGION.to_owned()),
            ("bucketName", BUCKET.to_owned()),
            ("endpoint", self.endpoint.clone()),
        ]
    }

    pub fn objects(&self) -> MutexGuard<'_, BTreeMap<String, Vec<u8>>> {
        lock(&self.shared.objects)
    }

    /// Keys of unfinished uploads.
    pub fn uploads(&self) -> Vec<String> {
        lock(&self.shared.uploads).values().map(|upload| upload.key.clone()).collect()
    }

    /// Lets a story change answers. It gets the request and the intended answer.
    pub fn twist(&self, twist: impl Fn(&Request, &Response) -> Option<Answer> + Send + Sync + 'static) {
        *lock(&self.shared.twist) = Some(Box::new(twist));
    }

    pub fn behave(&self) {
        *lock(&self.shared.twist) = None;
    }

    /// Method and target of all requests since the last call.
    pub fn take_seen(&self) -> Vec<String> {
        std::mem::take(&mut lock(&self.shared.seen))
    }
}

impl Drop for S3Server {
    fn drop(&mut self) {
        self.shared.ended.store(true, Ordering::SeqCst);
        // Wakes the accepting thread.
        let _ = TcpStream::connect(self.endpoint.trim_start_matches("http://"));
        for tcp in lock(&self.shared.open).drain(..) {
            let _ = tcp.shutdown(Shutdown::Both);
        }
        self.accepting.take().map(JoinHandle::join);
    }
}

/// An error as S3 sends it.
pub fn refusal(status: u16, code: &str, more: &str) -> Response {
    let body = format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<Error><Code>{code}</Code><Message>secret-of-the-server</Message>{more}</Error>"
    );
    Response::text(status, "application/xml", &body)
}

fn xml(body: &str) -> Response {
    let body = format!("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n{body}");
    Response::text(200, "application/xml", &body)
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;")
}

impl Shared {
    fn serve(&self, tcp: TcpStream) -> io::Result<()> {
        let mut stream = BufReader::new(tcp);
        while let Some(request) = Request::read(&mut stream)? {
            let mark = if request.raw_query.is_empty() { "" } else { "?" };
            lock(&self.seen).push(format!("{} {}{mark}{}", request.method, request.path, request.raw_query));
            let usual = self.refused(&request).unwrap_or_else(|| self.answer(&request));
            let answer = lock(&self.twist).as_ref().and_then(|twist| twist(&request, &usual));
            let date = http_date(self.clock.now());
            let out = stream.get_mut();
            match answer.unwrap_or(Answer::Reply(usual)) {
                Answer::Reply(response) => out.write_all(&response.bytes(&date, &request))?,
                Answer::Cut(response, bytes) => {
                    let all = response.bytes(&date, &request);
                    out.write_all(&all[..all.len() - response.body.len() + bytes])?;
                    return out.shutdown(Shutdown::Both);
                }
                Answer::Silence => return out.shutdown(Shutdown::Both),
            }
        }
        Ok(())
    }

    /// The answer of S3 to a request with a wrong signature.
    fn refused(&self, request: &Request) -> Option<Response> {
        let header = |name: &str| request.header(name).unwrap_or_default().to_owned();
        let date = header("x-amz-date");
        let at =
            gardenlet::format::time::layout::parse("20060102T150405Z", &date).map(|civil| civil.timestamp());
        let now = self.clock.now();
        if at.is_ok_and(|at| now.since(at) > SKEW || at.since(now) > SKEW) {
            return Some(refusal(403, "RequestTimeTooSkewed", ""));
        }
        if sha256_hex(&request.body) != header("x-amz-content-sha256") {
            return Some(refusal(400, "XAmzContentSHA256Mismatch", ""));
        }
        let authorization = header("authorization");
        let field = |name: &str| {
            let (_, rest) = authorization.split_once(&format!("{name}="))?;
            Some(rest.split(',').next()?.trim().to_owned())
        };
        let credential = field("Credential")?;
        let (id, scope) = credential.split_once('/')?;
        if id != KEY_ID {
            return Some(refusal(403, "InvalidAccessKeyId", ""));
        }
        let region = scope.split('/').nth(1).unwrap_or_default();
        if region != REGION {
            return Some(refusal(400, "AuthorizationHeaderMalformed", &format!("<Region>{REGION}</Region>")));
        }
        let signed = field("SignedHeaders")?;
        let expected = signature(request, &signed, scope, &date);
        (field("Signature")? != expected).then(|| refusal(403, "SignatureDoesNotMatch", ""))
    }

    fn answer(&self, request: &Request) -> Response {
        let path = unescape(&request.path, false);
        let Some(key) = path.strip_prefix(&format!("/{BUCKET}/")) else {
            return refusal(404, "NoSuchBucket", "");
        };
        let parameter = |name: &str| request.parameter(name);
        match (request.method.as_str(), parameter("uploadId")) {
            ("GET", _) if parameter("list-type").is_some() => self.list(request),
            ("GET", _) if parameter("uploads").is_some() => self.list_uploads(request),
            ("GET", _) => self.read(key, request),
            ("POST", None) if parameter("uploads").is_some() => {
                let mut uploads = lock(&self.uploads);
                // It must be escaped everywhere.
                let id = format!("upload+{}/=&", uploads.len() + 1);
                let begun = self.clock.now();
                uploads.insert(id.clone(), Upload { key: key.to_owned(), begun, parts: BTreeMap::new() });
                let id = escape(&id);
                xml(&format!(
                    "<InitiateMultipartUploadResult><UploadId>{id}</UploadId></InitiateMultipartUploadResult>"
                ))
            }
            ("PUT", None) => {
                lock(&self.objects).insert(key.to_owned(), request.body.clone());
                Response::text(200, "", "").header("ETag", "\"x\"")
            }
            ("PUT", Some(id)) => {
                let number: usize = parameter("partNumber").unwrap_or_default().parse().unwrap_or(0);
                match lock(&self.uploads).get_mut(&id) {
                    Some(upload) => drop(upload.parts.insert(number, request.body.clone())),
                    None => return refusal(404, "NoSuchUpload", ""),
                }
                Response::text(200, "", "").header("ETag", format!("\"part-{number}\""))
            }
            ("POST", Some(id)) => self.complete(&id, request),
            ("DELETE", Some(id)) => {
                lock(&self.uploads).remove(&id);
                Response::text(204, "", "")
            }
            ("DELETE", None) => {
                lock(&self.objects).remove(key);
                Response::text(204, "", "")
            }
            _ => refusal(405, "MethodNotAllowed", ""),
        }
    }

    fn complete(&self, id: &str, request: &Request) -> Response {
        let mut uploads = lock(&self.uploads);
        let Some(upload) = uploads.get(id) else { return refusal(404, "NoSuchUpload", "") };
        let named: String = (1..=upload.parts.len())
            .map(|number| {
                format!("<Part><PartNumber>{number}</PartNumber><ETag>\"part-{number}\"</ETag></Part>")
            })
            .collect();
        let body = String::from_utf8_lossy(&request.body).replace("&quot;", "\"");
        if body != format!("<CompleteMultipartUpload>{named}</CompleteMultipartUpload>") {
            return refusal(400, "InvalidPart", "");
        }
        let sizes: Vec<usize> = upload.parts.values().map(Vec::len).collect();
        if sizes.iter().rev().skip(1).any(|size| *size < 5 << 20) {
            return refusal(400, "EntityTooSmall", "");
        }
        let upload = uploads.remove(id).unwrap();
        let whole = upload.parts.into_values().flatten().collect();
        lock(&self.objects).insert(upload.key, whole);
        xml("<CompleteMultipartUploadResult><ETag>\"x\"</ETag></CompleteMultipartUploadResult>")
    }

    fn read(&self, key: &str, request: &Request) -> Response {
        let objects = lock(&self.objects);
        let Some(content) = objects.get(key) else { return refusal(404, "NoSuchKey", "") };
        let range = request
            .header("range")
            .and_then(|range| range.strip_prefix("bytes=")?.strip_suffix('-')?.parse().ok());
        let from: usize = range.unwrap_or(0).min(content.len());
        let status = if range.is_some() { 206 } else { 200 };
        Response { status, headers: Vec::new(), body: content[from..].to_vec() }
    }

    fn list(&self, request: &Request) -> Response {
        let prefix = request.parameter("prefix").unwrap_or_default();
        let after = request.parameter("continuation-token").unwrap_or_default();
        let objects = lock(&self.objects);
        let all: Vec<_> =
            objects.iter().filter(|(key, _)| key.starts_with(&prefix) && **key > after).collect();
        let mut body = String::new();
        for (key, content) in all.iter().take(PAGE) {
            body += &format!("<Contents><Key>{}</Key><Size>{}</Size></Contents>", escape(key), content.len());
        }
        let is_cut = all.len() > PAGE;
        if is_cut {
            body += &format!("<NextContinuationToken>{}</NextContinuationToken>", escape(all[PAGE - 1].0));
        }
        let (prefix, count) = (escape(&prefix), all.len().min(PAGE));
        xml(&format!(
            "<ListBucketResult xmlns=\"x\"><Name>{BUCKET}</Name><Prefix>{prefix}</Prefix><KeyCount>{count}</KeyCount>\
             <MaxKeys>{PAGE}</MaxKeys><IsTruncated>{is_cut}</IsTruncated>{body}</ListBucketResult>"
        ))
    }

    fn list_uploads(&self, request: &Request) -> Response {
        let prefix = request.parameter("prefix").unwrap_or_default();
        let uploads = lock(&self.uploads);
        let mut body = String::new();
        for (id, upload) in uploads.iter().filter(|(_, upload)| upload.key.starts_with(&prefix)) {
            body += &format!(
                "<Upload><Key>{}</Key><UploadId>{}</UploadId><Initiated>{}</Initiated></Upload>",
                escape(&upload.key),
                escape(id),
                rfc3339(upload.begun)
            );
        }
        xml(&format!(
            "<ListMultipartUploadsResult><Bucket>{BUCKET}</Bucket><IsTruncated>false</IsTruncated>{body}</ListMultipartUploadsResult>"
        ))
    }
}

/// The signature that a request should have, from what was sent.
fn signature(request: &Request, signed: &str, scope: &str, date: &str) -> String {
    let mut query: Vec<&str> = request.raw_query.split('&').filter(|part| !part.is_empty()).collect();
    query.sort_unstable();
    let headers: String = signed
        .split(';')
        .map(|name| format!("{name}:{}\n", request.header(name).unwrap_or_default()))
        .collect();
    let digest = request.header("x-amz-content-sha256").unwrap_or_default();
    let canonical = [&request.method, &request.path, &query.join("&"), &headers, signed, digest]
        .map(str::to_owned)
        .join("\n");
    let text = format!("AWS4-HMAC-SHA256\n{date}\n{scope}\n{}", sha256_hex(canonical.as_bytes()));
    let key =
        scope.split('/').fold(format!("AWS4{SECRET}").into_bytes(), |key, part| hmac(&key, part.as_bytes()));
    hmac(&key, text.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// HMAC from its definition (RFC 2104), for keys of up to a block.
fn hmac(key: &[u8], text: &[u8]) -> Vec<u8> {
    let pad = |with: u8| -> Vec<u8> { (0..64).map(|n| key.get(n).copied().unwrap_or(0) ^ with).collect() };
    let sha256 = |parts: [&[u8]; 2]| ring::digest::digest(&ring::digest::SHA256, &parts.concat());
    let inner = sha256([&pad(0x36), text]);
    sha256([&pad(0x5c), inner.as_ref()]).as_ref().to_vec()
}
