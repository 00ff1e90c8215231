//! The parsers of the inputs.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use gardenlet::api::core::Secret;
use gardenlet::api::meta::Resource;
use gardenlet::base::clock::{Clock, Timestamp};
use gardenlet::base::stop::Stop;
use gardenlet::chart::render::{self, KubeVersion, Options, RenderMode};
use gardenlet::chart::{Chart, File, Metadata, ValuesTable, archive, manifest, set, values};
use gardenlet::components::images::Images;
use gardenlet::config;
use gardenlet::format::semver::{Constraint, Version};
use gardenlet::format::time::{self, layout};
use gardenlet::format::{base64, brotli, cidr, duration, quantity, yaml};
use gardenlet::kube::client::{self, Client};
use gardenlet::kube::connection::Connection;
use gardenlet::kube::kubeconfig;
use gardenlet::kube::request::{ListParams, WatchParams};
use gardenlet::limits::{RENDER_STACK_BYTES, WATCH_STACK_BYTES, WORKER_STACK_BYTES};
use gardenlet::net::{Dial, ProxyPolicy, SystemCas, Url};
use gardenlet::oci::{
    ArtifactReference, Cache, Digest, Keychain, PullOrder, Puller, RegistryNetwork, SILENCE,
};
use gardenlet::operation::components;
use gardenlet::pki::{Certificate, PrivateKey, request};
use gardenlet::snapshot::name::SnapshotName;
use gardenlet::snapshot::s3::xml;
use serde_json::Value;
use x509_parser::prelude::{FromDer as _, X509CertificationRequest};

use crate::corpus;

/// One parser.
pub(crate) struct Target {
    pub(crate) name: &'static str,
    /// The stack size of the program where it parses this.
    pub(crate) stack_bytes: usize,
    /// The time limit for one input, on a busy machine and without optimisation.
    pub(crate) patience: Duration,
    pub(crate) memory_mib: u64,
    pub(crate) corpus: fn() -> Vec<Vec<u8>>,
    pub(crate) words: &'static [&'static str],
    /// An error describes the wrong answer. The folder is for files.
    pub(crate) check: fn(&[u8], &Path) -> Result<(), String>,
}

const SHORT: Duration = Duration::from_secs(5);
/// A template may take millions of steps before a limit ends it.
const RENDERING: Duration = Duration::from_secs(60);

pub(crate) const TARGETS: &[Target] = &[
    target(
        "templates",
        RENDER_STACK_BYTES,
        || corpus::texts(corpus::TEMPLATES),
        corpus::TEMPLATE_WORDS,
        template,
    ),
    target("charts", RENDER_STACK_BYTES, corpus::charts, corpus::YAML_WORDS, chart),
    target("yaml", WORKER_STACK_BYTES, || corpus::texts(corpus::YAML), corpus::YAML_WORDS, round_trip),
    target(
        "kubeconfig",
        WORKER_STACK_BYTES,
        || corpus::texts(corpus::KUBECONFIG),
        corpus::KUBECONFIG_WORDS,
        kubeconfig,
    ),
    target(
        "config",
        WORKER_STACK_BYTES,
        || corpus::texts(corpus::CONFIG),
        corpus::CONFIG_WORDS,
        configuration,
    ),
    target("images", WORKER_STACK_BYTES, || corpus::texts(corpus::IMAGES), corpus::IMAGE_WORDS, images),
    target("oci", WORKER_STACK_BYTES, || corpus::texts(corpus::OCI), corpus::OCI_WORDS, oci),
    target(
        "pki",
        WORKER_STACK_BYTES,
        corpus::certificates,
        &["-----BEGIN CERTIFICATE-----\n", "-----END", "=="],
        certificates,
    ),
    target("http", WATCH_STACK_BYTES, corpus::answers, corpus::ANSWER_WORDS, answer),
    target("chunks", WATCH_STACK_BYTES, corpus::chunks, corpus::CHUNK_WORDS, chunks),
    target("stream", WATCH_STACK_BYTES, corpus::streams, corpus::STREAM_WORDS, stream),
    target("formats", WORKER_STACK_BYTES, corpus::formats, corpus::FORMAT_WORDS, formats),
];

const fn target(
    name: &'static str,
    stack_bytes: usize,
    corpus: fn() -> Vec<Vec<u8>>,
    words: &'static [&'static str],
    check: fn(&[u8], &Path) -> Result<(), String>,
) -> Target {
    let (patience, memory_mib) =
        if stack_bytes == RENDER_STACK_BYTES { (RENDERING, 1_024) } else { (SHORT, 256) };
    Target { name, stack_bytes, patience, memory_mib, corpus, words, check }
}

fn text(input: &[u8]) -> String {
    String::from_utf8_lossy(input).into_owned()
}

fn options(mode: RenderMode) -> Options {
    Options::new(mode, "release", "default")
}

/// The template over fixed values; an input that is not a template may still be values.
fn template(input: &[u8], _: &Path) -> Result<(), String> {
    let _ = values::read(&text(input));
    let given = "name: n\nlist: [1, two, 3.5, null]\nmap: {k: v, nested: {deep: [{}]}}\n";
    let chart = Chart {
        metadata: Metadata { name: "c".to_owned(), version: "0.1.0".to_owned(), ..Metadata::default() },
        values: values::read(given).map_err(|error| error.to_string())?,
        templates: vec![File { name: "templates/a.yaml".to_owned(), data: Arc::from(input) }],
        ..Chart::default()
    };
    if let Ok(rendered) = render::render(chart, &options(RenderMode::Template)) {
        rendered.to_text(true);
    }
    Ok(())
}

fn chart(input: &[u8], _: &Path) -> Result<(), String> {
    let loaded = if input.starts_with(&[0x1f, 0x8b]) {
        archive::load(input)
    } else {
        archive::load(&corpus::zipped(&with_checksums(input)))
    };
    if let Ok(chart) = loaded {
        let _ = render::render(chart.clone(), &options(RenderMode::Template));
        let _ = render::render(chart, &options(RenderMode::Extension)).map(|rendered| rendered.objects());
    }
    Ok(())
}

/// Otherwise every change of a header would fail at the checksum.
fn with_checksums(input: &[u8]) -> Vec<u8> {
    let mut bytes = input.to_vec();
    for block in bytes.chunks_exact_mut(512).filter(|block| &block[257..262] == b"ustar") {
        block[148..156].fill(b' ');
        let sum: u32 = block.iter().copied().map(u32::from).sum();
        block[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    }
    bytes
}

/// A float without a fraction becomes an integer on its way through JSON.
fn is_same(one: &Value, other: &Value) -> bool {
    match (one, other) {
        (Value::Number(one), Value::Number(other)) => one == other || one.as_f64() == other.as_f64(),
        (Value::Array(one), Value::Array(other)) => {
            one.len() == other.len() && one.iter().zip(other).all(|(one, other)| is_same(one, other))
        }
        (Value::Object(one), Value::Object(other)) => {
            let has_same =
                |(key, value): (&String, &Value)| other.get(key).is_some_and(|it| is_same(value, it));
            one.len() == other.len() && one.iter().all(has_same)
        }
        _ => one == other,
    }
}

/// The written form must parse to the same value.
fn round_trip(input: &[u8], _: &Path) -> Result<(), String> {
    let input = text(input);
    let _ = yaml::parse_part(&input, &["a", "kind"]);
    let mut all: Vec<Value> =
        yaml::parse_all(&input).into_iter().filter_map(|document| document.value.ok()).collect();
    all.extend(yaml::parse(&input));
    for value in all {
        for dialect in [yaml::Dialect::V2, yaml::Dialect::V3, yaml::Dialect::V4] {
            let written = yaml::emit(&value, dialect);
            match yaml::parse(&written) {
                Ok(read) if is_same(&read, &value) => {}
                Ok(_) => return Err(format!("{dialect:?} writes another value: {written:?}")),
                // go-yaml since v3 writes lines of which the first begins with a tab as a block, which no version of it
                // can read: so do we.
                Err(_) if dialect != yaml::Dialect::V2 && has_lines_after_a_tab(&value) => {}
                Err(error) => return Err(format!("{dialect:?} writes no YAML ({error}): {written:?}")),
            }
        }
    }
    Ok(())
}

/// Whether a text in it, or a key, begins with a tab and has several lines.
fn has_lines_after_a_tab(value: &Value) -> bool {
    let is_such = |text: &str| text.starts_with('\t') && text.contains('\n');
    match value {
        Value::String(text) => is_such(text),
        Value::Array(items) => items.iter().any(has_lines_after_a_tab),
        Value::Object(fields) => {
            fields.iter().any(|(key, value)| is_such(key) || has_lines_after_a_tab(value))
        }
        _ => false,
    }
}

fn kubeconfig(input: &[u8], _: &Path) -> Result<(), String> {
    if let Ok(parsed) = kubeconfig::parse(&text(input), Path::new("/nowhere")) {
        let mut merged = parsed.clone();
        merged.merge(parsed);
        if let Ok(connection) = merged.current() {
            let _ = kubeconfig::render(&connection);
            let _ = Client::new(connection, client::Options::default());
        }
    }
    Ok(())
}

/// An image vector that is accepted can be read.
fn images(input: &[u8], _: &Path) -> Result<(), String> {
    if let Ok(images) = Images::overwritten(&text(input)) {
        images.of_control_plane(components::images(Some(&[])), "1.34.3")?;
    }
    Ok(())
}

fn configuration(input: &[u8], _: &Path) -> Result<(), String> {
    let _ = config::load(&text(input), "config.yaml");
    Ok(())
}

/// No packet may leave this machine: a dial always fails with a permanent error.
#[derive(Debug)]
struct Nobody(Stop);

impl Dial for Nobody {
    fn dial(&self, _: &str, _: u16, _: Duration) -> std::io::Result<TcpStream> {
        self.0.stop();
        Err(std::io::ErrorKind::ConnectionRefused.into())
    }
}

/// The input as a reference, as logins, as the index of a layout and as a manifest in it.
fn oci(input: &[u8], folder: &Path) -> Result<(), String> {
    let _ = (ArtifactReference::parse(&text(input)), Digest::parse(&text(input)), Keychain::parse(input));
    let digest = Digest::of(input);
    let blobs = folder.join("blobs/sha256");
    let blob = blobs.join(digest.hex());
    let kept = std::fs::create_dir_all(&blobs)
        .and_then(|()| std::fs::write(&blob, input))
        .and_then(|()| std::fs::write(folder.join("index.json"), input));
    kept.map_err(|error| error.to_string())?;
    for reference in
        ["r.invalid/charts/x:1".to_owned(), format!("r.invalid/charts/x@sha256:{}", digest.hex())]
    {
        let stop = Stop::new();
        let network = RegistryNetwork {
            dialer: Arc::new(Nobody(stop.clone())),
            proxy: Ok(ProxyPolicy::none()),
            system_cas: SystemCas::default(),
            clock: Clock::system(),
            silence: SILENCE,
        };
        let registry = config::settings::Registry {
            host: "r.invalid".to_owned(),
            layout_dir: Some(folder.to_owned()),
            insecure: true,
            ..config::settings::Registry::default()
        };
        let order = PullOrder {
            reference: ArtifactReference::parse(&reference).map_err(str::to_owned)?,
            keychain: Keychain::default(),
            ca_bundle: None,
        };
        let _ = Puller::new(network, vec![registry], Cache::new(None, 1 << 20), &stop).pull(&order, &stop);
    }
    std::fs::remove_file(blob).map_err(|error| error.to_string())
}

fn certificates(input: &[u8], _: &Path) -> Result<(), String> {
    for found in [Certificate::parse_pem(&text(input)), Certificate::parse_der(input)].into_iter().flatten() {
        renewable(&found)?;
    }
    if let Ok(key) = PrivateKey::from_pkcs8(input.to_vec()) {
        let _ = (key.public_key(), key.sign(b"x"));
    }
    let pem: Vec<u8> = input.to_vec();
    let connection =
        Connection::new("https://127.0.0.1:1").with_ca(pem.clone()).with_certificate(pem.clone(), pem);
    let _ = kubeconfig::render(&connection);
    let stop = Stop::new();
    let options =
        client::Options { dialer: Arc::new(Nobody(stop.clone())), stop, ..client::Options::default() };
    if let Ok(client) = Client::new(connection, options) {
        let _ = client.version();
    }
    Ok(())
}

/// Any parsed certificate can be requested again under the same name.
fn renewable(certificate: &Certificate) -> Result<(), String> {
    static KEY: OnceLock<PrivateKey> = OnceLock::new();
    let key = KEY.get_or_init(|| PrivateKey::generate().unwrap());
    let request = request::build(&certificate.subject, key).map_err(|error| error.to_string())?;
    let (_, block) = x509_parser::pem::parse_x509_pem(request.pem.as_bytes()).map_err(|e| e.to_string())?;
    let (_, read) = X509CertificationRequest::from_der(&block.contents)
        .map_err(|error| format!("the request for {:?} cannot be read: {error}", certificate.subject))?;
    let name = &certificate.subject.name;
    if name.is_empty() || read.certification_request_info.subject.as_raw() == name.as_slice() {
        return Ok(());
    }
    Err("the request has another name".to_owned())
}

/// A server with one answer for all clients.
fn server() -> &'static (u16, Arc<Mutex<Vec<u8>>>) {
    static SERVER: OnceLock<(u16, Arc<Mutex<Vec<u8>>>)> = OnceLock::new();
    SERVER.get_or_init(|| {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let answer = Arc::new(Mutex::new(Vec::new()));
        let shared = Arc::clone(&answer);
        std::thread::spawn(move || {
            for mut stream in listener.incoming().flatten() {
                let mut request = [0; 4_096];
                let _ = stream.read(&mut request);
                let answer = shared.lock().unwrap_or_else(PoisonError::into_inner).clone();
                let _ = stream.write_all(&answer);
                let _ = stream.shutdown(std::net::Shutdown::Write);
                // Unread bytes would reset the connection.
                let _ = stream.set_read_timeout(Some(Duration::from_millis(100)));
                let _ = stream.read(&mut request);
            }
        });
        (port, answer)
    })
}

const SECRETS: Resource = Resource::new("", "v1", "Secret", "secrets", true);

fn answer(input: &[u8], _: &Path) -> Result<(), String> {
    let (port, answer) = server();
    *answer.lock().unwrap_or_else(PoisonError::into_inner) = input.to_vec();
    let options = client::Options { qps: 0.0, timeout: Duration::from_secs(1), ..client::Options::default() };
    let client = Client::new(Connection::new(format!("http://127.0.0.1:{port}")), options);
    let client = client.map_err(|error| error.to_string())?;
    let _ = client.list::<Secret>(&SECRETS, "b", &ListParams::default());
    let _ = client.list_each::<Secret>(&SECRETS, "b", &ListParams::default(), &mut |_| {});
    let _ = client.version();
    let params = WatchParams { timeout_seconds: 1, ..WatchParams::default() };
    if let Ok(mut watch) = client.watch::<Secret>(&SECRETS, "b", &params) {
        while let Some(Ok(_)) = watch.next() {}
    }
    Ok(())
}

const STREAM_HEAD: &str =
    "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n";

/// Broken framing after a good head.
fn chunks(input: &[u8], folder: &Path) -> Result<(), String> {
    answer(&[STREAM_HEAD.as_bytes(), input].concat(), folder)
}

/// The events of a watch are the same however the server splits them into chunks, even within a character.
fn stream(input: &[u8], _: &Path) -> Result<(), String> {
    let events = [input.len().max(1), 7].map(|size| {
        let mut whole = STREAM_HEAD.as_bytes().to_vec();
        for piece in input.chunks(size) {
            whole.extend(format!("{:x}\r\n", piece.len()).bytes());
            whole.extend(piece);
            whole.extend(b"\r\n");
        }
        whole.extend(b"0\r\n\r\n");
        watched(&whole)
    });
    let [one, many] = events;
    let (one, many) = (one?, many?);
    if one == many { Ok(()) } else { Err(format!("in one piece {one:?}, in many {many:?}")) }
}

/// The events of an answer to a watch, and how it ended.
fn watched(whole: &[u8]) -> Result<Vec<String>, String> {
    let (port, answer) = server();
    *answer.lock().unwrap_or_else(PoisonError::into_inner) = whole.to_vec();
    let options = client::Options { qps: 0.0, timeout: Duration::from_secs(1), ..client::Options::default() };
    let client = Client::new(Connection::new(format!("http://127.0.0.1:{port}")), options);
    let client = client.map_err(|error| error.to_string())?;
    let params = WatchParams { timeout_seconds: 1, ..WatchParams::default() };
    let mut watch = client.watch::<Value>(&SECRETS, "b", &params).map_err(|error| error.to_string())?;
    let mut events = Vec::new();
    while let Some(event) = watch.next() {
        let failed = event.is_err();
        events.push(event.map_or_else(|error| error.to_string(), |event| format!("{event:?}")));
        if failed {
            break;
        }
    }
    Ok(events)
}

fn formats(input: &[u8], _: &Path) -> Result<(), String> {
    let _ = (brotli::decode(input, 1 << 20), base64::decode(input), base64::decode_url(input));
    let text = text(input);
    if let Ok(nanos) = duration::parse_nanos(&text) {
        let written = duration::format_nanos(nanos);
        if duration::parse_nanos(&written) != Ok(nanos) {
            return Err(format!("{nanos} ns is written as {written}"));
        }
    }
    let _ = duration::parse(&text).map(duration::format);
    let _ = quantity::Quantity::parse(&text).map(|found| (found.whole(), found.milli()));
    let constraint = Constraint::parse(&text);
    let version = Version::parse(&text)
        .map(|version| (version.inc_patch(), version.inc_minor(), version.inc_major(), version));
    if let (Ok(constraint), Ok(other)) = (&constraint, Version::parse("1.2.3")) {
        let _ = constraint.check(&other);
    }
    if let (Ok((.., version)), Ok(constraint)) = (version, Constraint::parse(">=1.2-0, <3 || ^0.1")) {
        let _ = constraint.check(&version);
    }
    if let (Some(found), Some(other)) = (cidr::Cidr::parse(&text), cidr::Cidr::parse("10.0.0.0/8")) {
        let _ = found.overlaps(other);
    }
    if let Ok(at) = time::parse_rfc3339(&text) {
        let _ = (time::rfc3339(at), time::rfc3339_nanos(at));
    }
    let _ = layout::format(Timestamp::from_unix(1_000_000_000), 3_600, &text);
    let _ = (layout::parse(&text, "2001-02-03"), layout::parse("2006-01-02T15:04:05.999Z07:00", &text));
    let kinds = [
        set::SetWords::Json,
        set::SetWords::Typed,
        set::SetWords::Text,
        set::SetWords::File,
        set::SetWords::Literal,
    ];
    for words in kinds {
        let _ = set::apply(&text, words, &mut |path| Ok(path.to_owned()), &mut ValuesTable::new());
    }
    for name in ["Contents", "Key", "Error"] {
        let _ =
            xml::parse(&text).map(|root| root.all(name).filter_map(|element| element.only("Key")).count());
    }
    let _ = SnapshotName::parse(&text);
    let _ = Url::parse(&text).map(|url| (url.authority(), url.base()));
    let _ = (ProxyPolicy::fixed(&text), KubeVersion::of_flag(&text), manifest::split(&text).len());
    Ok(())
}
