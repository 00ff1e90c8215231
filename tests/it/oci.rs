//! Charts from registries that misbehave: `oci::Puller` against the in-process registry.

use std::io;
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use gardenlet::base::clock::{Clock, Simulated, Timestamp};
use gardenlet::base::error::chain;
use gardenlet::base::random;
use gardenlet::base::stop::Stop;
use gardenlet::base::thread;
use gardenlet::config::settings;
use gardenlet::net::{Dial, ProxyEnv, ProxyPolicy, SystemCas, SystemDialer};
use gardenlet::oci::{
    ArtifactReference, Cache, Error, Keychain, PullOrder, PullVerdict, Puller, RegistryNetwork, SILENCE,
};
use serde_json::json;

use support::http::message::{Request, Response};
use support::options::measured;
use support::pace;
use support::pki::Authority;
use support::proxy::{Door, Proxy};
use support::registry::{Access, Answer, CHART, INDEX, MANIFEST, NAME, Registry, digest, manifest, refusal};

const REPOSITORY: &str = "charts/echo";

/// A registry, a state directory, and the configuration.
struct Place {
    registry: Registry,
    directory: PathBuf,
    registries: Vec<settings::Registry>,
    proxy: ProxyEnv,
    logins: String,
    silence: Duration,
    dialer: Arc<dyn Dial>,
}

impl Place {
    fn new() -> Self {
        Self::with(Registry::start(&Clock::system()))
    }

    fn with(registry: Registry) -> Self {
        Self {
            registry,
            directory: std::env::temp_dir().join(format!("gardenlet-oci-{}", random::hex(12))),
            registries: Vec::new(),
            proxy: ProxyEnv::default(),
            logins: "{}".to_owned(),
            silence: SILENCE,
            dialer: Arc::new(SystemDialer),
        }
    }

    /// A program that has just started.
    fn puller(&self, stop: &Stop) -> Puller {
        let network = RegistryNetwork {
            dialer: Arc::clone(&self.dialer),
            proxy: ProxyPolicy::from_env(&self.proxy),
            system_cas: SystemCas::default(),
            clock: Clock::system(),
            silence: self.silence,
        };
        Puller::new(network, self.registries.clone(), Cache::new(Some(&self.directory), 64 << 20), stop)
    }

    fn order(&self, suffix: &str) -> PullOrder {
        let text = format!("{}/{REPOSITORY}{suffix}", self.registry.address);
        PullOrder {
            reference: ArtifactReference::parse(&text).unwrap(),
            keychain: Keychain::parse(self.logins.as_bytes()).unwrap(),
            ca_bundle: Some(self.registry.ca.as_bytes().into()),
        }
    }

    /// The result of one pull, in a program that has just started.
    fn pull(&self, suffix: &str) -> Result<Vec<u8>, Error> {
        let stop = Stop::new();
        self.puller(&stop).pull(&self.order(suffix), &stop)?.read_all(64 << 20)
    }

    fn fails(&self, suffix: &str) -> (PullVerdict, String) {
        let error = self.pull(suffix).unwrap_err();
        (error.verdict(), chain(&error))
    }

    fn login(&mut self, entry: &serde_json::Value) {
        self.logins = json!({"auths": {self.registry.address.clone(): entry}}).to_string();
    }

    /// Empties the cache.
    fn forget(&self) {
        let _ = std::fs::remove_dir_all(self.directory.join("charts"));
    }

    fn files(&self) -> Vec<String> {
        let entries = std::fs::read_dir(self.directory.join("charts")).into_iter().flatten().flatten();
        let mut names: Vec<String> = entries.map(|e| e.file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    /// The requests since the last call.
    fn seen(&self) -> Vec<String> {
        let short = |path: &str| path.replace(&format!("/v2/{REPOSITORY}/"), "");
        self.registry.take_seen().iter().map(|r| format!("{} {}", r.method, short(&r.path))).collect()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

/// Bytes that are not a chart: these tests do not render it.
fn chart(bytes: usize) -> Vec<u8> {
    (0..bytes).map(|n| u8::try_from(n * 31 % 251).unwrap()).collect()
}

/// A clock for pauses between two tries.
fn fast_clock() -> Clock {
    Clock::new(Simulated::paced(pace::clock(), Timestamp::from_unix(1_767_600_000), 20))
}

fn is_blob(request: &Request) -> bool {
    request.path.contains("/blobs/")
}

#[test]
fn a_pinned_digest_needs_no_request_and_a_tag_needs_one() {
    let mut place = Place::new();
    let chart = chart(100_000);
    let pinned = place.registry.push(REPOSITORY, "1.0.0", &chart);
    assert_eq!(place.pull(":1.0.0").unwrap(), chart);
    let blob = format!("GET blobs/{}", digest(&chart));
    assert_eq!(place.seen(), ["HEAD manifests/1.0.0", "GET manifests/1.0.0", blob.as_str()]);
    assert_eq!(place.files().len(), 2);
    assert_eq!(place.pull(":1.0.0").unwrap(), chart);
    assert_eq!(place.seen(), ["HEAD manifests/1.0.0"]);
    assert_eq!(place.pull(&format!("@{pinned}")).unwrap(), chart);
    assert_eq!(place.pull(&format!(":2.0.0@{pinned}")).unwrap(), chart);
    assert!(place.seen().is_empty());
    // The tag moves to another digest.
    let renewed = b"renewed".to_vec();
    place.registry.push(REPOSITORY, "1.0.0", &renewed);
    assert_eq!(place.pull(":1.0.0").unwrap(), renewed);
    place.registry.down();
    assert_eq!(place.pull(&format!("@{pinned}")).unwrap(), chart);
    let (verdict, text) = place.fails(":1.0.0");
    assert_eq!(verdict, PullVerdict::Retry, "{text}");
    // A damaged file is not used.
    let file = place.directory.join("charts").join(digest(&chart).trim_start_matches("sha256:"));
    std::fs::write(&file, b"torn").unwrap();
    assert_eq!(place.fails(&format!("@{pinned}")).0, PullVerdict::Retry);
    assert!(!file.exists());
}

#[test]
fn all_authentication_methods_work() {
    let right = json!({"username": "robot", "password": "hunter2"});
    let wrong = json!({"username": "robot", "password": "hunter3"});
    let refresh = json!({"identitytoken": "refresh-me"});
    let nobody = json!({});
    let table = [
        (Access::Open, &nobody, true),
        (Access::Basic("robot", "hunter2"), &right, true),
        (Access::Basic("robot", "hunter2"), &wrong, false),
        (Access::Basic("robot", "hunter2"), &nobody, false),
        (Access::Token, &nobody, true),
        (Access::TokenFor("robot", "hunter2"), &right, true),
        (Access::TokenFor("robot", "hunter2"), &wrong, false),
        (Access::TokenFor("robot", "hunter2"), &nobody, false),
        (Access::TokenForRefresh("refresh-me"), &refresh, true),
        (Access::TokenForRefresh("other"), &refresh, false),
        (Access::TokenByGet(404), &refresh, true),
        (Access::TokenByGet(405), &refresh, true),
        (Access::TokenByGet(400), &refresh, true),
        (Access::TokenByGet(401), &refresh, false),
    ];
    for (access, entry, expected) in table {
        let mut place = Place::new();
        place.registry.push(REPOSITORY, "1", b"chart");
        place.registry.protect(access.clone());
        place.login(entry);
        match place.pull(":1") {
            Ok(found) => assert!(expected && found == b"chart", "{access:?} {entry}"),
            Err(error) => {
                let text = chain(&error);
                assert!(!expected && text.contains("401"), "{access:?} {entry}: {text}");
                assert_eq!(error.verdict(), PullVerdict::Configuration);
                assert!(
                    !text.contains("hunter") && !text.contains("refresh-me") && !text.contains("secret-of")
                );
            }
        }
        assert!(place.registry.take_seen().len() <= 8, "{access:?}: the retries end");
    }
}

#[test]
fn a_token_that_expires_in_between_is_renewed() {
    let mut place = Place::new();
    place.registry.push(REPOSITORY, "1", b"chart");
    place.registry.protect(Access::TokenFor("robot", "hunter2"));
    place.login(&json!({"username": "robot", "password": "hunter2"}));
    let once = AtomicUsize::new(0);
    place.registry.twist(move |request, usual| {
        let is_first = is_blob(request) && usual.status == 200 && once.fetch_add(1, Ordering::SeqCst) == 0;
        is_first.then(|| {
            let realm = format!("https://{}/token", request.header("host").unwrap());
            Answer::Reply(
                refusal(401, "UNAUTHORIZED").header("WWW-Authenticate", format!("Bearer realm=\"{realm}\"")),
            )
        })
    });
    assert_eq!(place.pull(":1").unwrap(), b"chart");
    let tokens = place.seen().iter().filter(|line| *line == "GET /token").count();
    assert_eq!(tokens, 2);
}

#[test]
fn the_agent_gives_up_on_a_registry_that_always_asks_for_more() {
    let mut place = Place::new();
    place.registry.push(REPOSITORY, "1", b"chart");
    place.registry.protect(Access::TokenFor("robot", "hunter2"));
    place.login(&json!({"username": "robot", "password": "hunter2"}));
    for challenge in ["Basic realm=\"x\"", "Bearer realm=\"https://HOST/token\"", "Negotiate", ""] {
        place.registry.take_seen();
        place.registry.twist(move |request, _| {
            let challenge = challenge.replace("HOST", request.header("host").unwrap_or_default());
            let refused = refusal(401, "DENIED").header("WWW-Authenticate", challenge);
            (request.path != "/token").then_some(Answer::Reply(refused))
        });
        let (verdict, text) = place.fails(":1");
        assert_eq!(verdict, PullVerdict::Configuration, "{text}");
        assert!(text.contains("401") && text.contains("DENIED"), "{text}");
        assert!(place.registry.take_seen().len() <= 8);
    }
    // A token service with wrong answers.
    place.registry.twist(|request, _| {
        let wide = json!({"token": "x", "padding": "x".repeat(262_144)});
        (request.path == "/token").then(|| Answer::Reply(Response::json(200, &wide)))
    });
    assert!(place.fails(":1").1.ends_with("response larger than 262144 bytes"));
}

#[test]
fn content_with_a_wrong_digest_is_deleted() {
    let place = Place::new();
    let pinned = place.registry.push(REPOSITORY, "1", &chart(50_000));
    let flip = |only: fn(&Request) -> bool| {
        move |request: &Request, usual: &Response| {
            let mut other = usual.clone();
            if only(request) && usual.status == 200 && request.method == "GET" {
                other.body[10] ^= 1;
            }
            Some(Answer::Reply(other))
        }
    };
    place.registry.twist(flip(is_blob));
    let (verdict, text) = place.fails(":1");
    assert_eq!(verdict, PullVerdict::Retry);
    assert!(text.starts_with("the chart has digest sha256:"), "{text}");
    place.registry.twist(flip(|request| request.path.contains("/manifests/")));
    for suffix in [":1".to_owned(), format!("@{pinned}")] {
        place.forget();
        let text = place.fails(&suffix).1;
        assert!(text.starts_with("the manifest has digest sha256:"), "{text}");
    }
    place.registry.behave();
    assert_eq!(place.pull(":1").unwrap(), chart(50_000));
    assert!(place.files().iter().all(|name| name.len() == 64), "{:?}", place.files());
}

#[test]
fn an_interrupted_download_continues() {
    let place = Place::new();
    let chart = chart(200_000);
    let pinned = place.registry.push(REPOSITORY, "1", &chart);
    place.registry.twist(|request, usual| is_blob(request).then(|| cut(usual, 60_000)));
    assert_eq!(place.pull(":1").unwrap(), chart);
    let ranges: Vec<String> = place
        .registry
        .take_seen()
        .iter()
        .filter(|request| is_blob(request))
        .map(|request| request.header("range").unwrap_or_default().to_owned())
        .collect();
    assert_eq!(ranges, ["", "bytes=60000-", "bytes=120000-", "bytes=180000-"]);

    // Across a restart: the registry breaks the download off and disappears.
    let place = Place::new();
    place.registry.push(REPOSITORY, "1", &chart);
    let count = AtomicUsize::new(0);
    place.registry.twist(move |request, usual| {
        let first = is_blob(request).then(|| count.fetch_add(1, Ordering::SeqCst) == 0)?;
        Some(if first { cut(usual, 150_000) } else { Answer::Reply(refusal(404, "BLOB_UNKNOWN")) })
    });
    let text = place.fails(&format!("@{pinned}")).1;
    assert!(text.contains("404 for chart sha256:") && text.contains("BLOB_UNKNOWN"), "{text}");
    let part = place.files().into_iter().find(|name| name.ends_with(".part")).unwrap();
    assert_eq!(std::fs::metadata(place.directory.join("charts").join(part)).unwrap().len(), 150_000);
    place.registry.behave();
    place.registry.take_seen();
    assert_eq!(place.pull(&format!("@{pinned}")).unwrap(), chart);
    let seen = place.registry.take_seen();
    assert_eq!(seen.last().unwrap().header("range"), Some("bytes=150000-"));
}

/// It is silent until the test ends: only the limit on silence lets the download continue.
#[test]
fn a_request_to_a_silent_registry_is_repeated() {
    let mut place = Place::new();
    // Long enough for a server on a busy machine, but short for the test.
    place.silence = Duration::from_secs(1);
    let chart = chart(200_000);
    place.registry.push(REPOSITORY, "1", &chart);
    let count = AtomicUsize::new(0);
    place.registry.twist(move |request, usual| {
        let first = is_blob(request).then(|| count.fetch_add(1, Ordering::SeqCst) == 0)?;
        first.then(|| Answer::Stuck(usual.clone(), 120_000))
    });
    assert_eq!(place.pull(":1").unwrap(), chart);
    let seen = place.registry.take_seen();
    assert_eq!(seen.last().unwrap().header("range"), Some("bytes=120000-"));
    // The agent gives up on a registry that stays silent after a few tries. A faster clock shortens the pauses.
    place.forget();
    place.silence = Duration::from_secs(1);
    place.registry.twist(|request, usual| is_blob(request).then(|| Answer::Stuck(usual.clone(), 0)));
    let stop = Stop::new();
    let error = place.puller(&stop).on_clock(fast_clock()).pull(&place.order(":1"), &stop).unwrap_err();
    let text = chain(&error);
    assert!(
        error.verdict() == PullVerdict::Retry && text.ends_with("timeout: silence of the server"),
        "{text}"
    );
    assert_eq!(place.seen().iter().filter(|line| line.contains("blobs")).count(), 4);
}

fn cut(usual: &Response, bytes: usize) -> Answer {
    if usual.body.len() <= bytes { Answer::Reply(usual.clone()) } else { Answer::Cut(usual.clone(), bytes) }
}

#[test]
fn without_ranges_a_download_starts_again() {
    let place = Place::new();
    let chart = chart(200_000);
    place.registry.push(REPOSITORY, "1", &chart);
    let (count, whole) = (AtomicUsize::new(0), chart.clone());
    place.registry.twist(move |request, _| {
        let reply = Response { status: 200, headers: Vec::new(), body: whole.clone() };
        let first = is_blob(request).then(|| count.fetch_add(1, Ordering::SeqCst) == 0)?;
        Some(if first { Answer::Cut(reply, 70_000) } else { Answer::Reply(reply) })
    });
    assert_eq!(place.pull(":1").unwrap(), chart);
    // The agent gives up on a registry that makes no progress.
    let place = Place::new();
    place.registry.push(REPOSITORY, "1", &chart);
    place.registry.twist(|request, usual| is_blob(request).then(|| Answer::Cut(usual.clone(), 100)));
    let (verdict, text) = place.fails(":1");
    assert_eq!(verdict, PullVerdict::Retry, "{text}");
    // The agent deletes a part that an earlier run has left damaged.
    let place = Place::new();
    let pinned = place.registry.push(REPOSITORY, "1", &chart);
    let part = place.directory.join("charts");
    std::fs::create_dir_all(&part).unwrap();
    let name = format!("{}.part", digest(&chart).trim_start_matches("sha256:"));
    std::fs::write(part.join(&name), vec![7; 1_000]).unwrap();
    assert_eq!(place.pull(&format!("@{pinned}")).unwrap(), chart);
    std::fs::write(part.join(&name), vec![7; 300_000]).unwrap();
    std::fs::remove_file(part.join(name.trim_end_matches(".part"))).unwrap();
    assert_eq!(place.pull(&format!("@{pinned}")).unwrap(), chart);
}

#[test]
fn redirects_are_followed_without_credentials() {
    let mut place = Place::new();
    let chart = chart(100_000);
    place.registry.push(REPOSITORY, "1", &chart);
    place.registry.protect(Access::Basic("robot", "hunter2"));
    place.login(&json!({"username": "robot", "password": "hunter2"}));
    let storage = Registry::start(&Clock::system());
    storage.put_blob("storage", &chart);
    let (host, path) = (storage.address.clone(), format!("/v2/storage/blobs/{}", digest(&chart)));
    let ca = place.directory.join("storage.pem");
    std::fs::create_dir_all(&place.directory).unwrap();
    std::fs::write(&ca, &storage.ca).unwrap();
    place.registries =
        vec![settings::Registry { host: host.clone(), ca_file: Some(ca), ..Default::default() }];
    let target = format!("https://{host}{path}?signature=hunter2");
    let to = target.clone();
    place.registry.twist(move |request, usual| {
        let is_ours = is_blob(request) && usual.status < 300;
        is_ours.then(|| Answer::Reply(refusal(307, "X").header("Location", to.clone())))
    });
    storage.twist(|request, usual| {
        Some(cut(usual, if request.header("range").is_none() { 40_000 } else { 1 << 20 }))
    });
    assert_eq!(place.pull(":1").unwrap(), chart);
    let seen = storage.take_seen();
    assert_eq!(seen.len(), 2);
    for request in &seen {
        assert_eq!(request.header("authorization"), None);
        assert_eq!(request.raw_query, "signature=hunter2");
    }
    assert_eq!(seen[1].header("range"), Some("bytes=40000-"));

    let table = [
        (target.replace("https:", "http:"), "from TLS to plain text"),
        (target.replace(&path, "/v2/nothing"), "404"),
        ("https://user:hunter2@127.0.0.1/x".to_owned(), "no usable URL"),
        (format!("https://{}/v2/{REPOSITORY}/blobs/{}", place.registry.address, digest(&chart)), "too many"),
        ("ftp://x/?hunter2".to_owned(), "no usable URL"),
    ];
    for (target, expected) in table {
        place.forget();
        place.registry.twist(move |request, usual| {
            let is_ours = is_blob(request) && usual.status < 300;
            is_ours.then(|| Answer::Reply(refusal(302, "X").header("Location", target.clone())))
        });
        let (verdict, text) = place.fails(":1");
        assert_eq!(verdict, PullVerdict::Configuration, "{text}");
        assert!(text.contains(expected) && !text.contains("hunter2"), "{text}");
    }
}

/// A resolver that returns addresses of this machine for all names of `example.org`.
#[derive(Debug)]
struct Names;

impl Dial for Names {
    fn dial(&self, host: &str, port: u16, timeout: Duration) -> io::Result<TcpStream> {
        let host = if host.ends_with(".example.org") { "127.0.0.1" } else { host };
        SystemDialer.dial(host, port, timeout)
    }
}

/// A registry without TLS, which requires a token of `realm` or redirects to it for the chart.
fn leading(place: &Place, realm: &str, by_redirect: bool) {
    let realm = realm.to_owned();
    place.registry.twist(move |request, usual| {
        if by_redirect {
            let leads = is_blob(request) && usual.status < 300;
            return leads.then(|| Answer::Reply(refusal(307, "X").header("Location", realm.clone())));
        }
        let challenge = format!("Bearer realm=\"{realm}\",service=\"s\"");
        Some(Answer::Reply(refusal(401, "UNAUTHORIZED").header("WWW-Authenticate", challenge)))
    });
}

#[test]
fn a_registry_cannot_redirect_to_this_machine() {
    for by_redirect in [false, true] {
        let mut place = Place::with(Registry::start_plain(&Clock::system()));
        let ours = place.registry.address.clone();
        place.registries = vec![settings::Registry { host: ours, insecure: true, ..Default::default() }];
        place.dialer = Arc::new(Names);
        place.registry.push(REPOSITORY, "1", b"chart");
        place.login(&json!({"username": "robot", "password": "hunter2"}));
        let thief = Registry::start_plain(&Clock::system());
        let port = thief.address.rsplit(':').next().unwrap();
        for host in
            ["localhost", "127.1", "2130706433", "0x7f000001", "[::ffff:127.0.0.1]", "auth.example.org"]
        {
            place.forget();
            leading(&place, &format!("http://{host}:{port}/token"), by_redirect);
            let (verdict, text) = place.fails(":1");
            assert_eq!(verdict, PullVerdict::Configuration, "{host}: {text}");
            let seen: Vec<String> = thief.take_seen().iter().map(|r| r.path.clone()).collect();
            assert!(seen.is_empty(), "{host} by redirect {by_redirect}: {seen:?}");
        }
        // An operator may allow it, and the registry's own host is allowed.
        for host in ["localhost", "127.0.0.1"] {
            place.forget();
            let other = settings::Registry { host: format!("localhost:{port}"), ..Default::default() };
            place.registries.truncate(1);
            place.registries.push(other);
            leading(&place, &format!("http://{host}:{port}/token"), by_redirect);
            place.fails(":1");
            assert!(!thief.take_seen().is_empty(), "{host} by redirect {by_redirect}");
        }
    }
}

#[test]
fn content_that_is_too_large_is_refused() {
    let place = Place::new();
    let huge = json!({"schemaVersion": 2, "layers": [{"mediaType": CHART, "digest": digest(b"x"), "size": 33_554_433}]});
    place.registry.put_manifest(REPOSITORY, "huge", MANIFEST, huge.to_string().as_bytes());
    assert!(place.fails(":huge").1.contains("chart larger than 33554432 bytes"));
    let mut wide = manifest(b"chart");
    wide["annotations"] = json!({"x": "x".repeat(5 << 20)});
    place.registry.put_manifest(REPOSITORY, "wide", MANIFEST, wide.to_string().as_bytes());
    let (verdict, text) = place.fails(":wide");
    assert_eq!((verdict, text.as_str()), (PullVerdict::Configuration, "manifest larger than 4194304 bytes"));
    // More bytes than announced.
    place.registry.push(REPOSITORY, "more", &chart(1_000));
    place.registry.twist(|request, usual| {
        let mut more = usual.clone();
        more.body.extend([0; 100_000]);
        is_blob(request).then_some(Answer::Reply(more))
    });
    assert_eq!(place.fails(":more").1, "chart larger than 1000 bytes");
}

#[test]
fn manifests_of_all_kinds_are_understood_or_refused() {
    let place = Place::new();
    let chart = chart(1_000);
    let pinned = place.registry.push(REPOSITORY, "chart", &chart);
    let put = |tag: &str, kind: &str, document: serde_json::Value| {
        place.registry.put_manifest(REPOSITORY, tag, kind, document.to_string().as_bytes())
    };
    let entry =
        |digest: &str, os: &str| json!({"digest": digest, "platform": {"os": os, "architecture": "amd64"}});
    let index = |entries: serde_json::Value| json!({"schemaVersion": 2, "manifests": entries});
    let first =
        put("index", INDEX, index(json!([entry(&digest(b"other"), "windows"), entry(&pinned, "linux")])));
    let second = put("nested", INDEX, index(json!([{"digest": first}])));
    put("deep", INDEX, index(json!([{"digest": second}])));
    put("other", INDEX, index(json!([entry(&pinned, "windows")])));
    put(
        "image",
        MANIFEST,
        json!({"schemaVersion": 2, "layers": [{"mediaType": "x", "digest": digest(b"x"), "size": 1}]}),
    );
    put("empty", MANIFEST, json!({"schemaVersion": 2, "layers": []}));
    put("html", "text/html", json!("<html>"));
    put("wrong", "text/plain", manifest(&chart));
    for tag in [":index", ":nested", ":wrong"] {
        assert_eq!(place.pull(tag).unwrap(), chart, "{tag}");
    }
    let table = [
        (":deep", "the image index contains only other indexes"),
        (":other", "the image index has no entry without a platform or for linux/amd64"),
        (":image", "no helm layer found in artifact"),
        (":empty", "no layers found"),
        (":html", "the registry's answer is not an OCI manifest"),
    ];
    for (tag, expected) in table {
        assert_eq!(place.fails(tag), (PullVerdict::Configuration, expected.to_owned()));
    }
    let fixed = format!("@{}", digest(json!({"schemaVersion": 2, "layers": []}).to_string().as_bytes()));
    assert_eq!(place.fails(&fixed), (PullVerdict::Final, "no layers found".to_owned()));
    // Without any headers of its own.
    place.forget();
    place.registry.twist(|request, usual| {
        let reply = Response { headers: Vec::new(), ..usual.clone() };
        Some(Answer::Reply(if request.method == "HEAD" { refusal(405, "UNSUPPORTED") } else { reply }))
    });
    assert_eq!(place.pull(":chart").unwrap(), chart);
}

#[test]
fn a_busy_registry_gets_the_time_it_asks_for() {
    let place = Place::new();
    place.registry.push(REPOSITORY, "1", b"chart");
    let count = AtomicUsize::new(0);
    place.registry.twist(move |_, _| match count.fetch_add(1, Ordering::SeqCst) {
        0 => Some(Answer::Reply(refusal(429, "TOOMANYREQUESTS").header("Retry-After", "1"))),
        1 => Some(Answer::Reply(refusal(503, "UNAVAILABLE"))),
        _ => None,
    });
    assert_eq!(place.pull(":1").unwrap(), b"chart");
    place
        .registry
        .twist(|_, _| Some(Answer::Reply(refusal(429, "TOOMANYREQUESTS").header("Retry-After", "600"))));
    let stop = Stop::new();
    let puller = place.puller(&stop);
    let fails = || {
        let error = puller.pull(&place.order(":1"), &stop).unwrap_err();
        assert_eq!(error.verdict(), PullVerdict::Retry);
        chain(&error)
    };
    assert!(fails().ends_with("answers 429 for manifest 1"));
    place.registry.take_seen();
    assert!(fails().ends_with("asked for a pause that is not over"));
    assert!(place.seen().is_empty());
}

#[test]
fn a_stop_ends_a_pull_at_once() {
    let place = Place::new();
    place.registry.push(REPOSITORY, "1", b"chart");
    place.registry.twist(|request, _| is_blob(request).then_some(Answer::Silence));
    let stop = Stop::new();
    let (puller, order, other) = (place.puller(&stop), place.order(":1"), stop.clone());
    let pulling = thread::spawn("pull", 1 << 20, move || puller.pull(&order, &other).map(drop)).unwrap();
    crate::world::wait_for("the request for the chart", || {
        place.seen().iter().any(|line| line.contains("blobs")).then_some(())
    });
    let clock = Clock::system();
    stop.stop();
    assert!(matches!(pulling.join().unwrap(), Err(Error::Stopped)));
    measured("the end of a pull, in seconds", clock.mono().as_secs_f64(), 10.0).unwrap();
}

#[test]
fn the_same_chart_is_downloaded_once_at_a_time() {
    let place = Place::new();
    let chart = chart(60_000);
    place.registry.push(REPOSITORY, "1", &chart);
    place.registry.twist(|request, usual| {
        is_blob(request).then(|| Answer::Slow(usual.clone(), 10_000, Duration::from_millis(30)))
    });
    let stop = Stop::new();
    let puller = Arc::new(place.puller(&stop));
    let threads: Vec<_> = (0..4)
        .map(|_| {
            let (puller, order, stop) = (Arc::clone(&puller), place.order(":1"), stop.clone());
            thread::spawn("pull", 1 << 20, move || {
                puller.pull(&order, &stop).unwrap().read_all(1 << 20).unwrap()
            })
            .unwrap()
        })
        .collect();
    for thread in threads {
        assert_eq!(thread.join().unwrap(), chart);
    }
    assert_eq!(place.seen().iter().filter(|line| line.contains("blobs")).count(), 1);
}

#[test]
fn two_charts_are_pulled_at_once_and_others_are_retried() {
    let place = Place::new();
    for tag in ["1", "2", "3"] {
        place.registry.push(REPOSITORY, tag, tag.as_bytes());
    }
    let pinned = place.registry.push(REPOSITORY, "4", b"4");
    assert_eq!(place.pull(":4").unwrap(), b"4");
    place.registry.twist(|_, _| Some(Answer::Silence));
    let stop = Stop::new();
    let puller = Arc::new(place.puller(&stop));
    place.registry.take_seen();
    let threads: Vec<_> = [":1", ":2"]
        .into_iter()
        .map(|tag| {
            let (puller, order, stop) = (Arc::clone(&puller), place.order(tag), stop.clone());
            thread::spawn("pull", 1 << 20, move || puller.pull(&order, &stop).is_err()).unwrap()
        })
        .collect();
    let seen = AtomicUsize::new(0);
    crate::world::wait_for("both requests", || {
        (seen.fetch_add(place.seen().len(), Ordering::SeqCst) >= 2).then_some(())
    });
    assert!(matches!(puller.pull(&place.order(":3"), &stop), Err(Error::Busy)));
    assert!(place.seen().is_empty());
    // A chart in the cache does not wait.
    assert!(puller.pull(&place.order(&format!("@{pinned}")), &stop).is_ok());
    stop.stop();
    assert!(threads.into_iter().all(|thread| thread.join().unwrap()));
}

#[test]
fn a_pull_that_takes_too_long_ends_and_keeps_its_part() {
    let place = Place::new();
    let pinned = place.registry.push(REPOSITORY, "1", &chart(200_000));
    place.registry.twist(|request, usual| {
        is_blob(request).then(|| Answer::Slow(usual.clone(), 1_000, Duration::from_millis(10)))
    });
    // Five minutes of this clock pass in 0.6 s, however busy the machine is; the registry needs 2 s in any case.
    let clock = Clock::new(Simulated::new(Timestamp::from_unix(1_767_600_000), 500));
    let stop = Stop::new();
    let puller = place.puller(&stop).on_clock(clock.clone());
    let error = puller.pull(&place.order(&format!("@{pinned}")), &stop).unwrap_err();
    assert_eq!(error.verdict(), PullVerdict::Retry, "{}", chain(&error));
    assert!(clock.mono() >= Duration::from_secs(290), "{:?}", clock.mono());
    assert!(place.files().iter().any(|name| name.ends_with(".part")), "{:?}", place.files());
}

#[test]
fn certificates_and_plain_http_are_configured_per_host() {
    let mut place = Place::new();
    place.registry.push(REPOSITORY, "1", b"chart");
    let storage = Registry::start(&Clock::system());
    storage.put_blob("storage", b"chart");
    std::fs::create_dir_all(&place.directory).unwrap();
    let file = |name: &str, text: &str| {
        let path = place.directory.join(name);
        std::fs::write(&path, text).unwrap();
        path
    };
    let now = Clock::system().now();
    let identity = Authority::new("clients", now).client("me", &[], now, now.plus(Duration::from_secs(60)));
    let (certificate, key) = (file("tls.crt", &identity.certificate), file("tls.key", &identity.key));
    let ca = file("storage.pem", &storage.ca);
    place.registries = vec![
        settings::Registry {
            host: place.registry.address.clone(),
            certificate_file: Some(certificate),
            key_file: Some(key),
            ..Default::default()
        },
        settings::Registry { host: storage.address.clone(), ca_file: Some(ca), ..Default::default() },
    ];
    let to = format!("https://{}/v2/storage/blobs/{}", storage.address, digest(b"chart"));
    place.registry.twist(move |request, _| {
        is_blob(request).then(|| Answer::Reply(refusal(307, "X").header("Location", to.clone())))
    });
    assert_eq!(place.pull(":1").unwrap(), b"chart");
    assert!(place.registry.certified() > 0, "the registry gets the client certificate");
    assert_eq!(
        (storage.take_seen().len(), storage.certified()),
        (1, 0),
        "the storage gets no client certificate"
    );

    // The error names files that are too large or missing.
    let wide = file("wide.pem", &"x".repeat((1 << 20) + 1));
    for (path, why) in [(wide, "larger than 1048576 bytes"), (place.directory.join("gone"), "No such file")] {
        place.registries[0].certificate_file = Some(path);
        let (verdict, text) = place.fails(":1");
        assert!(verdict == PullVerdict::Configuration && text.contains(why), "{text}");
    }

    let mut place = Place::with(Registry::start_plain(&Clock::system()));
    place.registry.push(REPOSITORY, "1", b"chart");
    place.registries = vec![settings::Registry {
        host: place.registry.address.clone(),
        insecure: true,
        ..Default::default()
    }];
    assert_eq!(place.pull(":1").unwrap(), b"chart");
}

#[test]
fn mirrors_and_layouts_are_used_before_the_registry() {
    let mut place = Place::new();
    let chart = chart(1_000);
    let pinned = place.registry.push(REPOSITORY, "1", &chart);
    place.registry.protect(Access::Basic("robot", "hunter2"));
    place.login(&json!({"username": "robot", "password": "hunter2"}));
    let mut mirror = Registry::start(&Clock::system());
    mirror.push("proxy/ours/echo", "1", &chart);
    std::fs::create_dir_all(&place.directory).unwrap();
    let ca = place.directory.join("mirror.pem");
    std::fs::write(&ca, &mirror.ca).unwrap();
    let text = str::to_owned;
    place.registries = vec![
        settings::Registry {
            host: place.registry.address.clone(),
            mirrors: vec![text("127.0.0.1:1"), format!("https://{}/proxy", mirror.address)],
            rewrites: vec![(text("charts/"), text("ours/"))],
            ..Default::default()
        },
        settings::Registry { host: mirror.address.clone(), ca_file: Some(ca), ..Default::default() },
    ];
    assert_eq!(place.pull(":1").unwrap(), chart);
    assert!(place.seen().is_empty());
    let seen = mirror.take_seen();
    assert!(!seen.is_empty() && seen.iter().all(|request| request.header("authorization").is_none()));
    // The registry has what the mirror lacks.
    place.registry.push(REPOSITORY, "2", b"second");
    assert_eq!(place.pull(":2").unwrap(), b"second");
    let text_of_all = place.fails(":3").1;
    assert!(text_of_all.starts_with("no source has the chart; 127.0.0.1:1: "), "{text_of_all}");
    assert_eq!(text_of_all.matches("MANIFEST_UNKNOWN").count(), 2, "{text_of_all}");
    assert!(!text_of_all.contains("hunter2"));
    // The agent asks each source, whatever the others answer, and each gives a byte of the chart.
    place.forget();
    place.seen();
    mirror.take_seen();
    let stop = Stop::new();
    let asked = place.puller(&stop).ask(&place.order(":1"), &stop);
    let ends: Vec<(&str, bool)> =
        asked.iter().map(|(name, error)| (name.as_str(), error.is_none())).collect();
    assert_eq!(ends, [("127.0.0.1:1", false), (&*mirror.address, true), (&*place.registry.address, true)]);
    for registry in [&mirror, &place.registry] {
        let seen = registry.take_seen();
        let of_chart: Vec<_> = seen.iter().filter(|request| request.path.contains("/blobs/")).collect();
        assert!(!of_chart.is_empty(), "{}", seen.len());
        assert!(of_chart.iter().all(|request| request.header("range") == Some("bytes=999-")), "{of_chart:?}");
    }
    mirror.down();
    place.registry.down();
    // A layout is enough.
    let layout = place.directory.join("layout");
    write_layout(&layout, "9", &chart);
    place.registries[0].layout_dir = Some(layout);
    place.forget();
    assert_eq!(place.pull(":9").unwrap(), chart);
    assert_eq!(place.pull(&format!("@{pinned}")).unwrap(), chart);
    assert!(place.files().is_empty(), "it is on this machine already");
}

fn write_layout(dir: &Path, tag: &str, chart: &[u8]) {
    let blobs = dir.join("blobs/sha256");
    std::fs::create_dir_all(&blobs).unwrap();
    let manifest = manifest(chart).to_string().into_bytes();
    for content in [manifest.as_slice(), chart] {
        std::fs::write(blobs.join(digest(content).trim_start_matches("sha256:")), content).unwrap();
    }
    let index = json!({"schemaVersion": 2, "manifests": [{"mediaType": MANIFEST, "digest": digest(&manifest),
        "size": manifest.len(), "annotations": {"org.opencontainers.image.ref.name": tag}}]});
    std::fs::write(dir.join("index.json"), index.to_string()).unwrap();
    std::fs::write(dir.join("oci-layout"), r#"{"imageLayoutVersion": "1.0.0"}"#).unwrap();
}

#[test]
fn proxies_are_used_for_registries_too() {
    let mut place = Place::new();
    place.registry.push(REPOSITORY, "1", b"chart");
    let asked = Arc::new(Mutex::new(Vec::new()));
    let listener = std::net::TcpListener::bind("127.0.0.2:0").unwrap();
    let proxy = listener.local_addr().unwrap();
    let log = Arc::clone(&asked);
    let serve = thread::spawn("proxy", 256 << 10, move || {
        let (mut socket, _) = listener.accept().unwrap();
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            io::Read::read_exact(&mut socket, &mut byte).unwrap();
            head.push(byte[0]);
        }
        log.lock().unwrap().push(String::from_utf8(head).unwrap());
        io::Write::write_all(&mut socket, b"HTTP/1.1 407 Proxy Authentication Required\r\n\r\n").unwrap();
    })
    .unwrap();
    // Loopback addresses never use the proxy. So the test asks for the registry by a name that is not loopback.
    place.proxy =
        ProxyEnv::from_lookup(|name| (name == "HTTPS_PROXY").then(|| format!("http://u:hunter2@{proxy}")));
    let order = PullOrder {
        reference: ArtifactReference::parse("registry.example.org/charts/echo:1").unwrap(),
        keychain: Keychain::default(),
        ca_bundle: None,
    };
    let stop = Stop::new();
    let puller = place.puller(&stop);
    let pulling = thread::spawn("pull", 1 << 20, {
        let stop = stop.clone();
        move || puller.pull(&order, &stop).map(drop)
    })
    .unwrap();
    serve.join().unwrap();
    stop.stop();
    let text = chain(&pulling.join().unwrap().unwrap_err());
    assert!(!text.contains("hunter2"), "{text}");
    let head = asked.lock().unwrap().remove(0);
    assert!(head.starts_with("CONNECT registry.example.org:443 HTTP/1.1\r\n"), "{head}");
    assert_eq!(place.pull(":1").unwrap(), b"chart", "loopback is reached directly");
}

#[test]
fn a_chart_is_pulled_through_a_proxy_with_a_login() {
    for (scheme, door) in [("http", Door::Connect("u", "p:w")), ("socks5", Door::Socks5("u", "p:w"))] {
        let mut place = Place::new();
        let chart = chart(200_000);
        place.registry.push(REPOSITORY, "1", &chart);
        place.registry.protect(Access::TokenFor("robot", "hunter2"));
        // An interrupted download continues through the proxy, too.
        place.registry.twist(|request, usual| is_blob(request).then(|| cut(usual, 120_000)));
        let target: SocketAddr = place.registry.address.parse().unwrap();
        let proxy = Proxy::behind(target, door).unwrap();
        // Loopback addresses never use the proxy. So the registry has a name that only the proxy can resolve.
        let name = format!("{NAME}:{}", target.port());
        place.logins = json!({"auths": {&name: {"username": "robot", "password": "hunter2"}}}).to_string();
        let order = PullOrder {
            reference: ArtifactReference::parse(&format!("{name}/{REPOSITORY}:1")).unwrap(),
            ..place.order(":1")
        };
        let mut pull = |password: &str| {
            let url = format!("{scheme}://u:{password}@{}", proxy.address());
            place.proxy = ProxyEnv::from_lookup(|variable| (variable == "HTTPS_PROXY").then(|| url.clone()));
            let stop = Stop::new();
            place
                .puller(&stop)
                .on_clock(fast_clock())
                .pull(&order, &stop)
                .and_then(|content| content.read_all(1 << 20))
        };
        let text = chain(&pull("hunter3").unwrap_err());
        assert!(text.contains("requires other credentials") && !text.contains("hunter"), "{text}");
        assert_eq!((proxy.bytes(), proxy.asked()), (0, Vec::new()), "{scheme}");
        assert_eq!(pull("p%3Aw").unwrap(), chart, "{scheme}");
        let asked = proxy.asked();
        assert!(!asked.is_empty() && asked.iter().all(|asked| *asked == name), "{scheme}: {asked:?}");
        assert!(proxy.bytes() > 200_000, "{scheme}");
    }
}
