use std::io::{Read as _, Write as _};
use std::sync::Arc;
use std::sync::Mutex;
use std::time::Duration;

use super::testing::{Act, Ca, Pair, ServerTls, TestServer, chunk, chunked_head, feed};
use super::*;
use crate::base::clock::{Clock, Simulated, Timestamp};
use crate::base::garden_time::GardenTime;
use crate::base::thread;

/// Returns what the test sets, at each handshake.
#[derive(Debug)]
struct SetTrust {
    roots: Mutex<TrustedRoots>,
    pair: Mutex<Option<CertificatePair>>,
}

impl SetTrust {
    fn new(roots: TrustedRoots) -> Arc<Self> {
        Arc::new(Self { roots: Mutex::new(roots), pair: Mutex::new(None) })
    }

    fn trusting(ca: &Ca) -> Arc<Self> {
        Self::new(TrustedRoots::Pem(ca.pem().into_bytes().into()))
    }

    fn be(&self, pair: &Pair) {
        let pem = |text: &str| text.as_bytes().into();
        *self.pair.lock().unwrap() =
            Some(CertificatePair { chain_pem: pem(&pair.chain), key_pem: pem(&pair.key) });
    }
}

impl TlsParty for SetTrust {
    fn roots(&self) -> Result<TrustedRoots, TlsError> {
        Ok(self.roots.lock().unwrap().clone())
    }

    fn certificate(&self) -> Result<Option<CertificatePair>, TlsError> {
        Ok(self.pair.lock().unwrap().clone())
    }
}

fn settings(party: Arc<dyn TlsParty>) -> ConnectionSettings {
    ConnectionSettings {
        dialer: Arc::new(SystemDialer),
        party,
        server_name: None,
        proxy: ProxyPolicy::none(),
        system_cas: SystemCas::default(),
        clock: Clock::system(),
        second_clock: None,
        user_agent: "test/1".to_owned(),
        idle_connections_max: 2,
        traffic: Traffic::default(),
    }
}

fn http() -> Http {
    Http::new(settings(SetTrust::new(TrustedRoots::Insecure)))
}

fn limits() -> RequestLimits {
    let long = Duration::from_secs(20);
    RequestLimits { connect: long, total: Some(long), response: None, read: None }
}

fn get(http: &Http, url: &str, limits: &RequestLimits) -> Result<(u16, String), Error> {
    let mut response =
        http.send(&HttpRequest { method: "GET", url, headers: &[], body: None, gzip: false }, limits)?;
    let body = response.body.read_all(1 << 20)?;
    Ok((response.status, String::from_utf8(body).unwrap()))
}

fn ok() -> Vec<Act> {
    Act::json(200, "{}")
}

fn tls_server(ca: &Ca) -> TestServer {
    TestServer::tls(&ServerTls { pair: ca.server(), client_ca: None }, |_| ok())
}

fn tls_error(result: Result<(u16, String), Error>) -> TlsError {
    match result {
        Err(Error::Tls(error)) => error,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_connection_is_used_again_and_a_status_is_no_error() {
    let ca = Ca::new("ca");
    let server = TestServer::tls(&ServerTls { pair: ca.server(), client_ca: None }, |seen| {
        Act::json(if seen.path == "/missing" { 404 } else { 200 }, &seen.body)
    });
    let http = Http::new(settings(SetTrust::trusting(&ca)));
    for path in ["/a", "/b", "/missing"] {
        let (status, _) = get(&http, &format!("{}{path}", server.url()), &limits()).unwrap();
        assert_eq!(status, if path == "/missing" { 404 } else { 200 });
    }
    let url = server.url();
    let post = HttpRequest {
        method: "POST",
        url: &url,
        headers: &[("X-Y", "z")],
        body: Some(b"{\"a\":1}"),
        gzip: false,
    };
    let mut response = http.send(&post, &limits()).unwrap();
    assert_eq!(response.header("content-type"), Some("application/json"));
    assert_eq!(response.body.read_all(100).unwrap(), b"{\"a\":1}");
    assert_eq!(server.connections(), 1);
    let seen = server.seen();
    assert_eq!((seen[3].header("x-y"), seen[3].header("user-agent")), (Some("z"), Some("test/1")));
    assert_eq!(seen[0].header("accept-encoding"), None);
}

#[test]
fn a_get_survives_a_server_that_closed_its_idle_connections() {
    let server =
        TestServer::plain(
            |seen| if seen.connection < 3 && seen.path == "/b" { vec![Act::Hangup] } else { ok() },
        );
    let (http, url) = (http(), server.url());
    assert_eq!(get(&http, &format!("{url}/a"), &limits()).unwrap().0, 200);
    // The connection ends during the request: the first time causes a retry, the second time is an error.
    let error = get(&http, &format!("{url}/b"), &limits()).unwrap_err();
    assert!(matches!(error, Error::Io { .. }), "{error:?}");
    assert_eq!(get(&http, &format!("{url}/b"), &limits()).unwrap().0, 200);
    // Only a GET is retried.
    let before = server.connections();
    server.cut();
    let posted = http.send(
        &HttpRequest { method: "POST", url: &format!("{url}/b"), headers: &[], body: None, gzip: false },
        &limits(),
    );
    assert_eq!(posted.unwrap().status, 200);
    assert_eq!(server.connections(), before + 1);
}

#[test]
fn a_silent_server_costs_no_more_than_the_deadline() {
    let server = TestServer::plain(|_| vec![Act::Silence]);
    let clock = Clock::system();
    let short = RequestLimits { total: Some(Duration::from_millis(150)), ..limits() };
    let error = get(&http(), &server.url(), &short).unwrap_err();
    assert!(matches!(error, Error::Timeout("whole request")), "{error:?}");
    assert!(clock.mono() >= Duration::from_millis(150) && clock.mono() < Duration::from_secs(10));
}

/// The meaning of ureq's timeouts has changed between versions; the agent relies on this one.
#[test]
fn time_limits_mean_what_we_think() {
    let head = || Act::Raw(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhello".to_vec());
    let server = TestServer::plain(move |seen| match seen.path.as_str() {
        "/no-head" => vec![Act::Silence],
        "/half-body" => vec![head(), Act::Silence],
        _ => ok(),
    });
    let ms = |n: u64| Some(Duration::from_millis(n));
    let table = [
        ("/no-head", RequestLimits { response: ms(100), ..limits() }, "wait for the response"),
        ("/no-head", RequestLimits { read: ms(100), ..limits() }, "silence of the server"),
        ("/half-body", RequestLimits { read: ms(100), ..limits() }, "silence of the server"),
        ("/half-body", RequestLimits { total: ms(100), ..limits() }, "whole request"),
        // The response limit ends with the headers: the total limit ends this one.
        ("/half-body", RequestLimits { response: ms(50), total: ms(400), ..limits() }, "whole request"),
    ];
    for (path, limits, phase) in table {
        let error = get(&http(), &format!("{}{path}", server.url()), &limits).unwrap_err();
        assert!(matches!(error, Error::Timeout(found) if found == phase), "{path} {limits:?}: {error:?}");
    }
}

#[test]
fn the_read_limit_restarts_with_each_read_and_the_total_does_not() {
    let drip = |_: &testing::SeenRequest| {
        let (sender, act) = feed();
        drop(thread::spawn("drip", 64 << 10, move || {
            let never = crate::base::stop::Stop::new();
            for _ in 0..8 {
                never.wait(&Clock::system(), Duration::from_millis(60));
                let _ = sender.send(chunk(b"x"));
            }
            let _ = sender.send(chunk(b""));
        }));
        vec![Act::Raw(chunked_head()), act]
    };
    let server = TestServer::plain(drip);
    let read = Some(Duration::from_millis(300));
    assert_eq!(get(&http(), &server.url(), &RequestLimits { read, ..limits() }).unwrap().1, "xxxxxxxx");
    let total = Some(Duration::from_millis(200));
    let error = get(&http(), &server.url(), &RequestLimits { read, total, ..limits() }).unwrap_err();
    assert!(matches!(error, Error::Timeout("whole request")), "{error:?}");
}

#[test]
fn a_blocked_read_is_freed_from_another_thread() {
    for tls in [false, true] {
        let ca = Ca::new("ca");
        let (started, wait_started) = std::sync::mpsc::channel();
        let handler = move |_: &testing::SeenRequest| {
            started.send(()).unwrap();
            vec![Act::Raw(chunked_head()), Act::Raw(chunk(b"x")), Act::Silence]
        };
        let server = if tls {
            TestServer::tls(&ServerTls { pair: ca.server(), client_ca: None }, handler)
        } else {
            TestServer::plain(handler)
        };
        let http = Http::new(settings(SetTrust::trusting(&ca)));
        let (other, url) = (http.clone(), server.url());
        let reader = thread::spawn("reader", 256 << 10, move || get(&other, &url, &limits())).unwrap();
        wait_started.recv().unwrap();
        http.shutdown();
        let result = reader.join().unwrap();
        assert!(matches!(result, Err(Error::Closed)), "{result:?}");
        assert!(matches!(get(&http, &server.url(), &limits()), Err(Error::Closed)));
        assert_eq!(
            get(&http.sibling(), "http://127.0.0.1:1/", &limits()).unwrap_err().to_string(),
            "connect to 127.0.0.1:1"
        );
    }
}

/// A peer that accepts no connection: its queue is full, so the system drops new ones.
#[test]
fn a_blocked_connect_is_freed_from_another_thread() {
    let listener = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
    let any: std::net::SocketAddr = ([127, 0, 0, 1], 0).into();
    listener.bind(&any.into()).unwrap();
    listener.listen(0).unwrap();
    let port = listener.local_addr().unwrap().as_socket().unwrap().port();
    let first = std::net::TcpStream::connect(("127.0.0.1", port)).unwrap();
    let http = Http::new(settings(SetTrust::new(TrustedRoots::Insecure)));
    let (other, url) = (http.clone(), format!("http://127.0.0.1:{port}/"));
    let patient =
        RequestLimits { connect: Duration::from_secs(3_600), total: None, response: None, read: None };
    let waiting = thread::spawn("waiting", 256 << 10, move || get(&other, &url, &patient)).unwrap();
    // A connection attempt in the system's table.
    let knocks = format!("0100007F:{port:04X} 02 ");
    while !std::fs::read_to_string("/proc/net/tcp").unwrap().contains(&knocks) {
        std::thread::yield_now();
    }
    http.shutdown();
    let result = waiting.join().unwrap();
    assert!(matches!(result, Err(Error::Closed)), "{result:?}");
    drop(first);
}

#[test]
fn headers_and_bodies_beyond_their_limits_are_refused() {
    let server = TestServer::plain(|seen| {
        let size: usize = seen.path[1..].parse().unwrap();
        vec![Act::ReplyWith(200, format!("X-Long: {}\r\n", "h".repeat(size)), "b".repeat(1_001))]
    });
    let url = |size: usize| format!("{}/{size}", server.url());
    for size in [0, 5_000, 60_000] {
        assert_eq!(get(&http(), &url(size), &limits()).unwrap().1.len(), 1_001, "{size}");
    }
    for size in [66_000, 300_000] {
        let error = get(&http(), &url(size), &limits()).unwrap_err();
        assert!(
            matches!(error, Error::TooLarge { what: "headers of the response", bytes_max: 65_536 }),
            "{error:?}"
        );
    }
    let (http, url) = (http(), url(0));
    let request = HttpRequest { method: "GET", url: &url, headers: &[], body: None, gzip: false };
    let read = |max: usize| http.send(&request, &limits()).unwrap().body.read_all(max);
    assert!(matches!(read(1_000), Err(Error::TooLarge { what: "response", bytes_max: 1_000 })));
    assert_eq!(read(1_001).unwrap().len(), 1_001);
}

#[test]
fn half_a_response_is_an_error() {
    let server = TestServer::plain(|seen| match seen.path.as_str() {
        "/length" => {
            vec![Act::Raw(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhello".to_vec()), Act::Hangup]
        }
        "/chunk" => vec![Act::Raw(chunked_head()), Act::Raw(b"a\r\nhello".to_vec()), Act::Hangup],
        "/head" => vec![Act::Raw(b"HTTP/1.1 200 OK\r\nContent-".to_vec()), Act::Hangup],
        "/ssh" => vec![Act::Raw(b"SSH-2.0-OpenSSH_9.6\r\n\r\n".to_vec()), Act::Hangup],
        _ => vec![Act::ReplyWith(302, "Location: http://127.0.0.1:1/\r\n".to_owned(), String::new())],
    });
    for path in ["/length", "/chunk", "/head", "/ssh"] {
        let result = get(&http(), &format!("{}{path}", server.url()), &limits());
        assert!(matches!(result, Err(Error::Io { .. } | Error::Protocol(_))), "{path}: {result:?}");
    }
    // A redirect is an ordinary response.
    assert_eq!(get(&http(), &format!("{}/moved", server.url()), &limits()).unwrap().0, 302);
}

#[test]
fn trust_decides_by_issuer_name_and_time() {
    let (ca, other) = (Ca::new("ca"), Ca::new("other"));
    let server = tls_server(&ca);
    let by_ip = server.url();
    let by_name = format!("https://localhost:{}", server.address.port());
    let roots = |ca: &Ca| SetTrust::trusting(ca);
    for url in [&by_ip, &by_name] {
        assert_eq!(get(&Http::new(settings(roots(&ca))), url, &limits()).unwrap().0, 200, "{url}");
    }
    let result = get(&Http::new(settings(roots(&other))), &by_ip, &limits());
    assert_eq!(tls_error(result), TlsError::UnknownIssuer);
    let both = SetTrust::new(TrustedRoots::Pem(format!("{}{}", other.pem(), ca.pem()).into_bytes().into()));
    assert_eq!(get(&Http::new(settings(both)), &by_ip, &limits()).unwrap().0, 200);
    let insecure = Http::new(settings(SetTrust::new(TrustedRoots::Insecure)));
    assert_eq!(get(&insecure, &by_ip, &limits()).unwrap().0, 200);
    let named = ConnectionSettings { server_name: Some("kube.example".into()), ..settings(roots(&ca)) };
    let TlsError::WrongName(text) = tls_error(get(&Http::new(named), &by_ip, &limits())) else { panic!() };
    assert!(text.contains("localhost") && text.contains("not for kube.example"), "{text}");
}

#[test]
fn certificates_are_judged_by_the_clock_handed_in() {
    let ca = Ca::new("ca");
    let pair = ca.issue("server", &["127.0.0.1"], 2030..2031);
    let server = TestServer::tls(&ServerTls { pair, client_ca: None }, |_| ok());
    // 2024-01-01, 2030-06-01 and 2031-06-01.
    let at = |unix: i64, floor: i64| {
        let clock = Clock::new(Simulated::new(Timestamp::from_unix(unix), 1));
        let time = GardenTime::new(clock, Timestamp::default(), Some(Timestamp::from_unix(floor)));
        let (clock, second_clock) = (time.garden_clock(), Some(time.machine_clock()));
        let http = Http::new(ConnectionSettings { clock, second_clock, ..settings(SetTrust::trusting(&ca)) });
        get(&http, &server.url(), &limits())
    };
    assert_eq!(at(1_906_502_400, 0).unwrap().0, 200);
    assert!(matches!(
        tls_error(at(1_704_067_200, 0)),
        TlsError::NotYetValid { not_before_s: 1_893_456_000, .. }
    ));
    assert!(matches!(tls_error(at(1_938_038_400, 0)), TlsError::Expired { not_after_s: 1_924_992_000, .. }));
    // A clock that shows 1970 cannot be right.
    assert_eq!(at(0, 1_906_502_400).unwrap().0, 200);
    // A correct clock is trusted, whatever time was remembered.
    assert_eq!(at(1_906_502_400, 4_000_000_000).unwrap().0, 200);
}

#[test]
fn a_certificate_in_the_bundle_is_trusted_by_itself() {
    let ca = Ca::new("ca");
    let pair = ca.server();
    let old = ca.issue("server", &["127.0.0.1"], 2020..2021);
    for (pair, works) in [(pair, true), (old, false)] {
        let pinned = SetTrust::new(TrustedRoots::Pem(pair.chain.clone().into_bytes().into()));
        let server = TestServer::tls(&ServerTls { pair, client_ca: None }, |_| ok());
        let result = get(&Http::new(settings(pinned)), &server.url(), &limits());
        assert_eq!(result.is_ok(), works, "{result:?}");
    }
}

#[test]
fn identity_and_trust_change_between_handshakes() {
    let (ca, clients) = (Ca::new("ca"), Ca::new("clients"));
    let tls = ServerTls { pair: ca.server(), client_ca: Some(clients.pem()) };
    let server = TestServer::tls(&tls, |_| ok());
    let told = SetTrust::trusting(&ca);
    let http = Http::new(settings(told.clone()));
    let leaf = |http: &Http| {
        get(http, &server.url(), &limits()).unwrap();
        server.seen().pop().unwrap().certificate
    };
    assert_eq!(leaf(&http), None);
    let (first, second) = (clients.issue("one", &[], 2020..2120), clients.issue("two", &[], 2020..2120));
    told.be(&first);
    assert_eq!(leaf(&http), None, "a connection keeps its identity");
    let first_leaf = leaf(&http.sibling());
    told.be(&second);
    assert!(first_leaf.is_some() && leaf(&http.sibling()) != first_leaf);
    // A certificate that the server refuses.
    told.be(&ca.issue("stranger", &[], 2020..2120));
    let refused = tls_error(get(&http.sibling(), &server.url(), &limits()));
    assert!(matches!(refused, TlsError::Refused(_)), "{refused:?}");
    // The key of another certificate.
    told.be(&Pair { chain: first.chain, key: second.key });
    assert!(matches!(tls_error(get(&http.sibling(), &server.url(), &limits())), TlsError::Material(_)));
    *told.roots.lock().unwrap() = TrustedRoots::Pem((*b"x").into());
    assert!(matches!(tls_error(get(&http.sibling(), &server.url(), &limits())), TlsError::Material(_)));
}

#[test]
fn bytes_are_counted_on_the_wire() {
    let ca = Ca::new("ca");
    let server = tls_server(&ca);
    let made = settings(SetTrust::trusting(&ca));
    let traffic = made.traffic.clone();
    let http = Http::new(made);
    get(&http, &server.url(), &limits()).unwrap();
    let (received, sent) = traffic.take();
    assert!((500..5_000).contains(&received) && (300..5_000).contains(&sent), "{received} {sent}");
    get(&http, &server.url(), &limits()).unwrap();
    // Without a handshake it is far less.
    let (received, sent) = traffic.take();
    assert!((50..300).contains(&received) && (50..300).contains(&sent), "{received} {sent}");
    assert_eq!(traffic.take(), (0, 0));
}

#[test]
fn a_packed_body_is_read_unpacked_and_its_limit_counts_the_unpacked() {
    let packed = || {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        encoder.write_all(&[b'x'; 100_000]).unwrap();
        encoder.finish().unwrap()
    };
    let server = TestServer::plain(move |seen| {
        let mut bytes = packed();
        if seen.path == "/half" {
            bytes.truncate(20);
        }
        let head =
            format!("HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: {}\r\n\r\n", bytes.len());
        vec![Act::Raw(head.into_bytes()), Act::Raw(bytes)]
    });
    let http = http();
    let read = |path: &str, max: usize| {
        let url = format!("{}{path}", server.url());
        http.send(&HttpRequest { gzip: true, ..HttpRequest::get(&url) }, &limits())
            .unwrap()
            .body
            .read_all(max)
    };
    for _ in 0..2 {
        assert_eq!(read("/", 100_000).unwrap(), [b'x'; 100_000]);
    }
    // What was not asked for in an encoding is stored in it, and stays so.
    let plain = http.send(&HttpRequest::get(&server.url()), &limits()).unwrap().body.read_all(100_000);
    assert_eq!(plain.unwrap(), packed());
    assert_eq!((server.connections(), server.seen()[0].header("accept-encoding")), (1, Some("gzip")));
    assert!(matches!(read("/", 99_999), Err(Error::TooLarge { bytes_max: 99_999, .. })));
    assert!(read("/half", 100_000).is_err());
}

#[test]
fn a_peer_without_tls_is_named() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("https://{}", listener.local_addr().unwrap());
    let peer = thread::spawn("plain", 64 << 10, move || {
        let (mut socket, _) = listener.accept().unwrap();
        socket.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").unwrap();
        // Reads to the end, so that a reset does not discard the answer.
        let _ = std::io::copy(&mut socket, &mut std::io::sink());
    })
    .unwrap();
    let error = tls_error(get(&http(), &url, &limits()));
    assert_eq!(error.to_string(), "handshake: the peer does not speak TLS");
    peer.join().unwrap();
}

/// A proxy that accepts one login and connects to `target`, regardless of the requested host.
fn proxy(target: std::net::SocketAddr) -> TestServer {
    TestServer::plain(move |seen| {
        if seen.header("proxy-authorization") != Some("Basic dXNlcjpwOnc=") {
            return vec![Act::Reply(407, "text/plain", String::new())];
        }
        vec![Act::Raw(b"HTTP/1.1 200 OK\r\nX: y\r\n\r\n".to_vec()), Act::Forward(target)]
    })
}

#[test]
fn connect_goes_through_with_the_right_login() {
    let ca = Ca::new("ca");
    let server = tls_server(&ca);
    let proxy = proxy(server.address);
    let through = |url: &str| {
        let policy = ProxyPolicy::fixed(url).unwrap();
        Http::new(ConnectionSettings { proxy: policy, ..settings(SetTrust::trusting(&ca)) })
    };
    // The proxy resolves the name: it is unknown here.
    let url = "https://localhost:7/x";
    let good = format!("http://user:p%3Aw@{}", proxy.address);
    assert_eq!(get(&through(&good), url, &limits()).unwrap().0, 200);
    let seen = proxy.seen();
    assert_eq!((seen[0].method.as_str(), seen[0].path.as_str()), ("CONNECT", "localhost:7"));
    assert_eq!(server.seen()[0].path, "/x");
    let bad = format!("http://{}", proxy.address);
    let error = get(&through(&bad), url, &limits()).unwrap_err();
    assert!(
        matches!(&error, Error::Proxy(text) if text.ends_with("requires other credentials")),
        "{error:?}"
    );
    // The address is not a proxy at all.
    let ssh = TestServer::plain(|_| vec![Act::Raw(b"SSH-2.0\r\n\r\n".to_vec())]);
    let error = get(&through(&format!("http://{}", ssh.address)), url, &limits()).unwrap_err();
    assert!(matches!(&error, Error::Proxy(text) if text.ends_with("is not an HTTP proxy")), "{error:?}");
}

#[test]
fn tls_to_the_proxy_uses_the_trust_of_the_system() {
    let (cluster, system) = (Ca::new("cluster"), Ca::new("system"));
    let server = tls_server(&cluster);
    let ca_file = std::env::temp_dir().join(format!("gardenlet-test-ca-{}.pem", crate::base::random::hex(8)));
    std::fs::write(&ca_file, system.pem()).unwrap();
    let target = server.address;
    let made = |ca: &Ca| {
        // Within TLS the test server cannot forward: it is enough that it receives the request.
        TestServer::tls(&ServerTls { pair: ca.server(), client_ca: None }, move |seen| {
            assert_eq!(seen.path, target.to_string());
            vec![Act::Reply(503, "text/plain", String::new())]
        })
    };
    for (ca, text) in [(&system, "refused to connect"), (&cluster, "trusted CAs")] {
        let proxy = made(ca);
        let policy = ProxyPolicy::fixed(&format!("https://{}", proxy.address)).unwrap();
        let system_cas = SystemCas { file: Some(ca_file.clone()), ..SystemCas::default() };
        let settings =
            ConnectionSettings { proxy: policy, system_cas, ..settings(SetTrust::trusting(&cluster)) };
        let error = get(&Http::new(settings), &server.url(), &limits()).unwrap_err();
        assert!(error.to_string().contains(text), "{error}");
    }
    std::fs::remove_file(ca_file).unwrap();
}

#[test]
fn socks5_connects_by_name_and_logs_in() {
    let server = TestServer::plain(|_| ok());
    let target = server.address;
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let proxy = thread::spawn("socks", 128 << 10, move || {
        let (mut client, _) = listener.accept().unwrap();
        let mut read = |expected: &[u8]| {
            let mut got = vec![0; expected.len()];
            client.read_exact(&mut got).unwrap();
            assert_eq!(got, expected);
        };
        read(&[5, 2, 0, 2]);
        client.write_all(&[5, 2]).unwrap();
        let mut read = |expected: &[u8]| {
            let mut got = vec![0; expected.len()];
            client.read_exact(&mut got).unwrap();
            assert_eq!(got, expected);
        };
        read(b"\x01\x04user\x02pw");
        client.write_all(&[1, 0]).unwrap();
        let mut asked = [0; 18];
        client.read_exact(&mut asked).unwrap();
        assert_eq!(&asked, b"\x05\x01\x00\x03\x0bfar.example\x00\x07");
        client.write_all(&[5, 0, 0, 1, 0, 0, 0, 0, 0, 0]).unwrap();
        let mut upstream = std::net::TcpStream::connect(target).unwrap();
        let mut request = vec![0; 4_096];
        let amount = client.read(&mut request).unwrap();
        upstream.write_all(&request[..amount]).unwrap();
        let mut answer = vec![0; 4_096];
        let amount = upstream.read(&mut answer).unwrap();
        client.write_all(&answer[..amount]).unwrap();
    })
    .unwrap();
    let policy = ProxyPolicy::fixed(&format!("socks5h://user:pw@{address}")).unwrap();
    let http =
        Http::new(ConnectionSettings { proxy: policy, ..settings(SetTrust::new(TrustedRoots::Insecure)) });
    assert_eq!(get(&http, "http://far.example:7/", &limits()).unwrap().0, 200);
    proxy.join().unwrap();
}

#[test]
fn nothing_that_formats_shows_a_secret() {
    let proxy = ProxyPolicy::fixed("http://user:hunter2@proxy").unwrap();
    let settings = ConnectionSettings { proxy, ..settings(SetTrust::new(TrustedRoots::Insecure)) };
    let request = HttpRequest {
        method: "GET",
        url: "https://h",
        headers: &[("Authorization", "hunter2")],
        body: None,
        gzip: false,
    };
    let text = format!("{settings:?} {:?} {request:?}", Http::new(settings.clone()));
    assert!(!text.contains("hunter2"), "{text}");
}

#[test]
fn a_connection_that_would_lead_inside_is_not_begun() {
    let server = TestServer::plain(|_| ok());
    for (max, is_good) in
        [(AddressZone::World, false), (AddressZone::Site, false), (AddressZone::Machine, true)]
    {
        let reach = Reach::up_to(max);
        let http = Http::within(settings(SetTrust::new(TrustedRoots::Insecure)), reach.clone());
        let result = get(&http, &server.url(), &limits());
        assert_eq!(reach.seen(), is_good.then_some(AddressZone::Machine));
        match result {
            Ok(_) => assert!(is_good),
            Err(Error::Inside { address, .. }) => assert!(!is_good && address == "127.0.0.1"),
            Err(other) => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_proxy_is_not_asked_for_what_is_plainly_inside() {
    let nobody = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let proxy = ProxyPolicy::fixed(&format!("http://{nobody}")).unwrap();
    let http = Http::within(
        ConnectionSettings { proxy, ..settings(SetTrust::new(TrustedRoots::Insecure)) },
        Reach::up_to(AddressZone::World),
    );
    for (url, is_refused) in [
        ("http://localhost/", true),
        ("http://2130706433/", true),
        ("http://[fd00::1]/", true),
        ("http://192.0.2.1/", false),
        ("http://name.example.org/", false),
    ] {
        let error = get(&http, url, &limits()).unwrap_err();
        assert_eq!(matches!(error, Error::Inside { .. }), is_refused, "{url}: {error:?}");
    }
}
