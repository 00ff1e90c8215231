//! Snapshots of an etcd in a bucket: uploads in parts, downloads that continue after an interruption, and errors with a
//! remedy.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use flate2::Compression;
use flate2::write::GzEncoder;
use gardenlet::base::clock::{Clock, Simulated, Timestamp};
use gardenlet::base::error::chain;
use gardenlet::base::stop::Stop;
use gardenlet::base::{random, thread};
use gardenlet::net::{ProxyPolicy, SystemCas, SystemDialer};
use gardenlet::snapshot::SnapshotStore;
use gardenlet::snapshot::name::{Snapshot, SnapshotName};
use gardenlet::snapshot::s3::credentials::Bucket;
use gardenlet::snapshot::s3::{S3, StoreNetwork, TransferPace};
use serde_json::Value;

use support::encoding::base64;
use support::http::message::Response;
use support::s3::{Answer, BUCKET, S3Server, refusal};

/// A bucket, its Secret in a folder, and a clock that keeps waits short.
struct Scene {
    server: S3Server,
    root: PathBuf,
    clock: Arc<Simulated>,
}

impl Scene {
    fn new() -> Self {
        let clock = Simulated::new(Timestamp::from_unix(1_790_000_000), 100);
        let server = S3Server::start(&Clock::new(clock.clone()));
        let root = std::env::temp_dir().join(format!("gardenlet-bucket-{}", random::hex(12)));
        let scene = Self { server, root, clock };
        scene.secret(&[]);
        scene
    }

    /// Writes the Secret, with other values for some of its keys.
    fn secret(&self, other: &[(&str, &str)]) {
        fs::create_dir_all(self.root.join("secret")).unwrap();
        let own = self.server.credentials();
        for (name, value) in
            own.iter().map(|(name, value)| (*name, value.as_str())).chain(other.iter().copied())
        {
            fs::write(self.root.join("secret").join(name), value).unwrap();
        }
    }

    fn store_at(&self, prefix: &str, clock: Clock) -> S3 {
        let network = StoreNetwork {
            dialer: Arc::new(SystemDialer),
            proxy: ProxyPolicy::none(),
            system_cas: SystemCas::default(),
            clock,
            stop: Stop::new(),
        };
        S3::new(Bucket::read(&self.root.join("secret")).unwrap(), prefix, &network)
    }

    fn store(&self) -> S3 {
        self.store_at("p", Clock::new(self.clock.clone()))
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.root);
    }
}

fn name(revision: u64) -> String {
    format!("Full-00000000-{revision:08}-{revision}.gz")
}

fn put(store: &S3, revision: u64, content: &[u8]) -> Result<u64, String> {
    let mut upload = store.create(&name(revision)).map_err(|error| chain(&error))?;
    for piece in content.chunks(1 << 20) {
        upload.write_all(piece).map_err(|error| error.to_string())?;
    }
    upload.finish().map_err(|error| chain(&error))
}

fn content(store: &S3, revision: u64) -> Result<Vec<u8>, String> {
    let all = store.list().map_err(|error| chain(&error))?;
    let snapshot = all.iter().find(|snapshot| snapshot.name.revision == revision).unwrap();
    let mut found = Vec::new();
    let mut from = store.open(snapshot).map_err(|error| chain(&error))?;
    from.read_to_end(&mut found).map_err(|error| error.to_string())?;
    Ok(found)
}

fn problem(store: &S3) -> String {
    chain(&store.list().unwrap_err())
}

#[test]
fn snapshots_of_any_size_are_written_read_and_deleted() {
    let scene = Scene::new();
    let store = scene.store_at("a b+c/\u{e4}&<", Clock::new(scene.clock.clone()));
    assert_eq!(store.list().unwrap(), []);
    let part = 5 << 20;
    let large = random::vec(1 << 20).repeat(13);
    for (revision, size) in [(1, 0), (2, 7), (3, part - 1), (4, part), (5, part + 1), (6, 13 << 20)] {
        assert_eq!(put(&store, revision, &large[..size]), Ok(u64::try_from(size).unwrap()));
        // An empty body is not sent.
        assert!(content(&store, revision).unwrap() == large[..size], "{size}");
    }
    let all = store.list().unwrap();
    assert_eq!(all.iter().map(|s| s.name.revision).collect::<Vec<_>>(), [1, 2, 3, 4, 5, 6]);
    assert!(scene.server.objects().keys().all(|key| key.starts_with("a b+c/\u{e4}&</v2/Full-")));
    for revision in 1..=6 {
        store.remove(&name(revision)).unwrap();
        store.remove(&name(revision)).unwrap();
    }
    assert_eq!((store.list().unwrap(), scene.server.uploads()), (vec![], vec![]));
}

#[test]
fn failed_uploads_are_removed_at_once_and_killed_ones_a_day_later() {
    let scene = Scene::new();
    let store = scene.store();
    let half = vec![1; 6 << 20];
    let mut upload = store.create(&name(1)).unwrap();
    upload.write_all(&half).unwrap();
    assert_eq!(scene.server.uploads().len(), 1);
    drop(upload);
    assert_eq!((scene.server.uploads(), store.list().unwrap()), (vec![], vec![]));
    let mut killed = store.create(&name(2)).unwrap();
    killed.write_all(&half).unwrap();
    std::mem::forget(killed);
    let now = scene.clock_now();
    store.sweep(now).unwrap();
    assert_eq!(scene.server.uploads().len(), 1);
    // Uploads of others stay.
    scene
        .store_at("other", Clock::new(scene.clock.clone()))
        .sweep(now.plus(Duration::from_secs(90_000)))
        .unwrap();
    assert_eq!(scene.server.uploads().len(), 1);
    store.sweep(now.plus(Duration::from_secs(90_000))).unwrap();
    assert_eq!(scene.server.uploads().len(), 0);
}

impl Scene {
    fn clock_now(&self) -> Timestamp {
        Clock::new(self.clock.clone()).now()
    }
}

/// Fails the first requests of a method.
fn fail_first(server: &S3Server, method: &'static str, times: usize, answer: fn(&Response) -> Answer) {
    let failed = AtomicUsize::new(0);
    server.twist(move |request, response| {
        let is_due = request.method == method && failed.fetch_add(1, Ordering::SeqCst) < times;
        is_due.then(|| answer(response))
    });
}

#[test]
fn temporary_errors_are_retried() {
    let scene = Scene::new();
    let store = scene.store();
    let large = random::vec(1 << 20).repeat(11);
    fail_first(&scene.server, "PUT", 3, |_| Answer::Reply(refusal(503, "SlowDown", "")));
    assert!(put(&store, 1, &large).is_ok());
    fail_first(&scene.server, "PUT", 3, |_| Answer::Silence);
    assert!(put(&store, 2, b"small").is_ok());
    // The answer to the completion of an upload is lost, and the next answer says that the upload does not exist.
    let ends = AtomicUsize::new(0);
    scene.server.twist(move |request, _| {
        let is_end = request.method == "POST" && request.parameter("uploadId").is_some();
        (is_end && ends.fetch_add(1, Ordering::SeqCst) == 0).then_some(Answer::Silence)
    });
    assert!(put(&store, 3, &large).is_ok());
    // An interrupted download continues as often as there is progress.
    let cuts = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&cuts);
    scene.server.twist(move |request, response| {
        let is_cut = request.path.ends_with(".gz") && counted.fetch_add(1, Ordering::SeqCst) < 8;
        is_cut.then(|| Answer::Cut(response.clone(), response.body.len().min(1 << 20)))
    });
    assert!(content(&store, 1).unwrap() == large);
    assert!(cuts.load(Ordering::SeqCst) > 8);
    // Without progress it ends.
    scene
        .server
        .twist(|request, response| request.path.ends_with(".gz").then(|| Answer::Cut(response.clone(), 0)));
    assert!(content(&store, 1).is_err());
    scene.server.twist(|request, _| {
        (request.method == "GET").then(|| Answer::Reply(refusal(500, "InternalError", "")))
    });
    scene.server.take_seen();
    assert!(problem(&store).ends_with("status 500 InternalError"), "{}", problem(&store));
    assert_eq!(scene.server.take_seen().len(), 4);
}

#[test]
fn a_false_success_is_a_failure() {
    let scene = Scene::new();
    let store = scene.store();
    // The server has done it, but this answer does not show it.
    scene.server.twist(|request, _| {
        let is_end = request.method == "POST" && request.parameter("uploadId").is_some();
        let hidden = Response::text(200, "application/xml", &list("", "<KeyCount>0</KeyCount>", "false"));
        let answer = if is_end { refusal(200, "InternalError", "") } else { hidden };
        (is_end || request.method == "GET").then_some(Answer::Reply(answer))
    });
    let error = put(&store, 1, &vec![0; 6 << 20]).unwrap_err();
    assert!(error.contains("write a snapshot (bucket backups at http://127.0.0.1:"), "{error}");
    assert!(error.ends_with("status 200 InternalError"), "{error}");
    // An endless list, and an answer that is not a list.
    let pages = AtomicUsize::new(0);
    scene.server.twist(move |_, _| {
        let token = format!(
            "<NextContinuationToken>{}</NextContinuationToken>",
            pages.fetch_add(1, Ordering::SeqCst)
        );
        let body = list(&token, "<KeyCount>0</KeyCount>", "true");
        Some(Answer::Reply(Response::text(200, "application/xml", &body)))
    });
    assert!(problem(&store).ends_with("its list has no end"));
    let others = [
        String::new(),
        "<".to_owned(),
        "<html>".to_owned(),
        "<R><Contents><Key>p/v2/Full-1".to_owned(),
        "\u{0}\u{ff}".to_owned(),
        // The entries of a list, or its end, got lost.
        list("", "<KeyCount>1</KeyCount>", "false"),
        list("", "", "false"),
        list("", "<KeyCount>0</KeyCount>", ""),
        list("", "<KeyCount>0</KeyCount>", "true"),
        list("", "<KeyCount>0</KeyCount>", "false").replace("</ListBucketResult>", ""),
        list("", "<KeyCount>0</KeyCount>", "false").replace("p/v2/", "q/v2/"),
        list("<Contents><Key>p/v2/x</Key></Contents>", "<KeyCount>1</KeyCount>", "false"),
        list("<Contents><Size>1</Size></Contents>", "<KeyCount>1</KeyCount>", "false"),
    ];
    for body in others {
        let answer = body.clone();
        scene.server.twist(move |_, _| Some(Answer::Reply(Response::text(200, "text/html", &answer))));
        assert!(problem(&store).contains("its answer is no list of S3: "), "{body}: {}", problem(&store));
    }
    scene.server.behave();
    assert_eq!(store.list().unwrap().len(), 1);
}

/// The list of a bucket, about the folder of the scene's store.
fn list(entries: &str, count: &str, is_truncated: &str) -> String {
    format!(
        "<ListBucketResult><Name>{BUCKET}</Name><Prefix>p/v2/</Prefix>{count}<IsTruncated>{is_truncated}</IsTruncated>{entries}</ListBucketResult>"
    )
}

/// Snapshots are gzip, and some stores say so with each answer.
#[test]
fn a_snapshot_that_a_store_labels_as_compressed_is_read_as_it_is() {
    let scene = Scene::new();
    let store = scene.store();
    let mut packed = GzEncoder::new(Vec::new(), Compression::fast());
    packed.write_all(&random::vec(100_000)).unwrap();
    let packed = packed.finish().unwrap();
    put(&store, 1, &packed).unwrap();
    scene
        .server
        .twist(|_, response| Some(Answer::Reply(response.clone().header("Content-Encoding", "gzip"))));
    assert!(content(&store, 1).unwrap() == packed);
}

/// A server that sends one byte after the other, for half a minute.
fn trickling() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = format!("http://{}", listener.local_addr().unwrap());
    let serve = move || {
        for tcp in listener.incoming().take(20).map_while(Result::ok) {
            let trickle = move || {
                let mut stream = BufReader::new(tcp);
                let mut line = String::new();
                let mut offset = 0;
                while stream.read_line(&mut line).unwrap_or(0) > 2 {
                    let range = line.to_ascii_lowercase();
                    let begin = range
                        .strip_prefix("range: bytes=")
                        .and_then(|range| range.trim_end().strip_suffix('-'));
                    offset = begin.map_or(offset, |begin| begin.parse().unwrap());
                    line.clear();
                }
                let mut out = stream.into_inner();
                let status = if offset > 0 { "206 Partial Content" } else { "200 OK" };
                let _ = write!(out, "HTTP/1.1 {status}\r\nContent-Length: {}\r\n\r\n", 1_500 - offset);
                while out.write_all(b"x").is_ok() {
                    Stop::new().wait(&Clock::system(), Duration::from_millis(20));
                }
            };
            drop(thread::spawn("trickle", 1 << 18, trickle).unwrap());
        }
    };
    drop(thread::spawn("trickling", 1 << 18, serve).unwrap());
    endpoint
}

#[test]
fn a_store_that_is_never_silent_and_never_done_has_an_end() {
    let scene = Scene::new();
    scene.secret(&[("endpoint", &trickling())]);
    let pace = TransferPace {
        answer: Duration::from_millis(500),
        list: Duration::from_secs(1),
        bytes_per_second: 1_500,
    };
    let store = scene.store().at_pace(pace);
    let error = problem(&store);
    assert!(error.contains("list snapshots (bucket backups") && error.contains("timeout"), "{error}");
    let snapshot = Snapshot { name: SnapshotName::parse(&name(1)).unwrap(), bytes: 1_500 };
    let mut from = store.open(&snapshot).unwrap();
    let error = from.read_to_end(&mut Vec::new()).unwrap_err().to_string();
    assert!(
        error.contains("the store is too slow: ") && error.contains(" of 1500 bytes came in 1 s"),
        "{error}"
    );
}

#[test]
fn a_refusal_has_a_remedy() {
    let scene = Scene::new();
    let table = [
        ("accessKeyID", "other", "the store does not know the key; correct accessKeyID"),
        ("secretAccessKey", "other", "the key has another secret; correct secretAccessKey"),
        ("region", "us-east-1", "the bucket is in region eu-west-1; correct region"),
        ("bucketName", "other", "there is no bucket \"other\"; correct bucketName, endpoint or region"),
    ];
    for (key, value, expected) in table {
        scene.secret(&[(key, value)]);
        let error = problem(&scene.store());
        assert!(error.ends_with(expected), "{error}");
        assert!(!error.contains("secret-of-the-server"), "{error}");
    }
    scene.secret(&[]);
    let late = Simulated::new(scene.clock_now().plus(Duration::from_secs(3_600)), 1);
    let error = problem(&scene.store_at("p", Clock::new(late)));
    assert!(error.contains("the clock of this machine is wrong: it shows 2026-09-21T"), "{error}");
    assert!(error.contains(", that of the store Mon, 21 Sep 2026 "), "{error}");
    scene.server.take_seen();
    scene.server.twist(|_, _| Some(Answer::Reply(refusal(301, "PermanentRedirect", ""))));
    let error = problem(&scene.store());
    assert!(
        error.ends_with("the bucket is elsewhere (status 301 PermanentRedirect); correct region or endpoint"),
        "{error}"
    );
    scene.server.twist(|_, _| Some(Answer::Reply(refusal(403, "AccessDenied", ""))));
    assert!(problem(&scene.store()).ends_with("the key has no right to do this (AccessDenied)"));
    // These errors are permanent, so no request is repeated.
    assert_eq!(scene.server.take_seen().len(), 2);
}

/// The gateway of an etcd with a database of the given size: it answers two requests.
pub(crate) fn gateway(megabytes: usize) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = format!("http://{}", listener.local_addr().unwrap());
    let serve = move || {
        for tcp in listener.incoming().take(2).map_while(Result::ok) {
            let mut stream = BufReader::new(tcp);
            let (mut head, mut line) = (String::new(), String::new());
            while stream.read_line(&mut line).unwrap_or(0) > 2 {
                head += &std::mem::take(&mut line);
            }
            let _ = stream.read_exact(&mut [0; 2]);
            let mut out = std::io::BufWriter::new(stream.into_inner());
            let _ = out.write_all(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n");
            if head.starts_with("POST /v3/maintenance/status ") {
                let _ = out.write_all(
                    b"{\"header\":{\"revision\":\"42\"},\"dbSize\":\"8192\",\"dbSizeInUse\":\"4096\"}",
                );
                continue;
            }
            let mut context = ring::digest::Context::new(&ring::digest::SHA256);
            let piece = random::vec(32 << 10);
            let blob = base64(&piece);
            for _ in 0..megabytes * 32 {
                context.update(&piece);
                let _ = writeln!(out, "{{\"result\":{{\"remaining_bytes\":\"1\",\"blob\":\"{blob}\"}}}}");
            }
            let _ = writeln!(out, "{{\"result\":{{\"blob\":\"{}\"}}}}", base64(context.finish().as_ref()));
        }
    };
    drop(thread::spawn("gateway", 1 << 20, serve).unwrap());
    endpoint
}

/// The program with a limit in KiB for its heap and its stack together.
fn limited(kib: u32, args: &[&str]) -> (String, String, Option<i32>) {
    let program = env!("CARGO_BIN_EXE_gardenlet");
    let mut command = Command::new("sh");
    command.args(["-c", &format!("ulimit -d {kib} && exec \"$0\" \"$@\""), program, "etcd"]).args(args);
    let output = command.env_clear().stdin(Stdio::null()).output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (text(output.stdout), text(output.stderr), output.status.code())
}

#[test]
fn a_database_needs_little_memory() {
    let scene = Scene::new();
    // The program uses the machine's clock.
    let server = S3Server::start(&Clock::system());
    scene.secret(&[("endpoint", &server.endpoint)]);
    let (secret, result) = (scene.root.join("secret"), scene.root.join("result"));
    let store = [format!("--s3={}", secret.display()), "--prefix=entry/etcd-main".to_owned()];
    let store: Vec<&str> = store.iter().map(String::as_str).collect();
    let (endpoint, result) =
        (format!("--endpoint={}", gateway(24)), format!("--result={}", result.display()));
    let run = [&["snapshot", &endpoint, "--keep=1", &result][..], &store].concat();
    let (told, error, code) = limited(12 << 10, &run);
    assert_eq!(code, Some(0), "{error}");
    let told: Value = serde_json::from_str(&told).unwrap();
    assert_eq!(
        (&told["revision"], &told["databaseBytes"], &told["kept"]),
        (&42.into(), &8192.into(), &1.into())
    );
    let written: Value = serde_json::from_slice(&fs::read(scene.root.join("result")).unwrap()).unwrap();
    assert_eq!(written, told);
    let key = format!("entry/etcd-main/v2/{}", told["snapshot"].as_str().unwrap());
    assert_eq!(told["bytes"], server.objects()[&key].len());
    assert!(
        server
            .take_seen()
            .iter()
            .any(|seen| seen.contains(&format!("/{BUCKET}/")) && seen.contains("partNumber=3"))
    );
    // The restoration uses the same path, and the program becomes etcd.
    let (config, data) = (scene.root.join("etcd.yaml"), scene.root.join("new.etcd"));
    let text = format!(
        "{{name: x, data-dir: {}, initial-cluster: x=http://p, initial-advertise-peer-urls: http://p}}",
        data.display()
    );
    fs::write(&config, text).unwrap();
    let etcdutl = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/etcdutl");
    let options = [
        "--etcd=/bin/echo".to_owned(),
        format!("--etcdutl={}", etcdutl.display()),
        format!("--etcd-config={}", config.display()),
        format!("--data-dir={}", data.display()),
    ];
    let options: Vec<&str> = options.iter().map(String::as_str).collect();
    let (said, error, code) = limited(12 << 10, &[&["start"][..], &options, &store].concat());
    assert_eq!((said, code), (format!("--config-file={}\n", config.display()), Some(0)), "{error}");
    assert!(error.contains("(revision 42) is restored"), "{error}");
    assert_eq!(fs::metadata(data.join("member/snap/db")).unwrap().len(), (24 << 20) + 32);
}
