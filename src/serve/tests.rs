use std::io::Read;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::*;
use crate::base::metrics::Metrics;

fn send(addr: SocketAddr, text: &str) -> String {
    let mut socket = TcpStream::connect(addr).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    socket.write_all(text.as_bytes()).unwrap();
    let mut response = String::new();
    socket.read_to_string(&mut response).unwrap();
    response
}

fn get(addr: SocketAddr, target: &str) -> (u16, String) {
    let response = send(addr, &format!("GET {target} HTTP/1.1\r\nHost: localhost\r\n\r\n"));
    let (head, body) = response.split_once("\r\n\r\n").unwrap();
    (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
}

#[test]
fn probes_answer_like_those_of_the_go_program() {
    let synced = Arc::new(AtomicBool::new(true));
    let (a, b) = (synced.clone(), synced.clone());
    let checks = Checks::new()
        .healthz("ping", || true)
        .healthz("runtime-informer-sync", move || a.load(Ordering::SeqCst))
        .readyz("runtime-informer-sync", move || b.load(Ordering::SeqCst));
    let stop = Stop::new();
    let server = start("127.0.0.1", 0, Routes::new().checks(checks), &stop).unwrap();
    let addr = server.addr();
    let passed = "[+]ping ok\n[+]runtime-informer-sync ok\nhealthz check passed\n";
    let table = [
        ("/healthz", 200, "ok"),
        ("/healthz/", 200, "ok"),
        ("/healthz?verbose", 200, passed),
        ("/healthz/ping", 200, "ok"),
        ("/readyz", 200, "ok"),
        ("/livez", 200, "ok"),
        ("/livez/ping", 200, "ok"),
        ("/readyz/ping", 404, "404 page not found\n"),
        ("/healthzz", 404, "404 page not found\n"),
        ("/", 404, "404 page not found\n"),
        ("/metrics", 404, "404 page not found\n"),
    ];
    for (target, status, body) in table {
        assert_eq!(get(addr, target), (status, body.to_owned()), "{target}");
    }
    synced.store(false, Ordering::SeqCst);
    let failed = "[+]ping ok\n[-]runtime-informer-sync failed: reason withheld\nhealthz check failed\n";
    let table = [
        ("/healthz", 500, failed),
        ("/healthz/runtime-informer-sync", 500, "internal server error: reason withheld\n"),
        ("/healthz/ping", 200, "ok"),
        ("/healthz?exclude=runtime-informer-sync", 200, "ok"),
        ("/readyz", 500, "[-]runtime-informer-sync failed: reason withheld\nreadyz check failed\n"),
    ];
    for (target, status, body) in table {
        assert_eq!(get(addr, target), (status, body.to_owned()), "{target}");
    }
}

#[test]
fn metrics_are_text_for_prometheus() {
    let metrics = Metrics::new();
    metrics.add("requests_total", "Requests.", &[], 2.0);
    let server = start("", 0, Routes::new().metrics(metrics, |_| {}), &Stop::new()).unwrap();
    let addr = SocketAddr::from((Ipv4Addr::LOCALHOST, server.addr().port()));
    let response = send(addr, "GET /metrics HTTP/1.1\r\n\r\n");
    assert!(response.contains("Content-Type: text/plain; version=0.0.4; charset=utf-8\r\n"), "{response}");
    assert!(response.ends_with("requests_total 2\n"), "{response}");
    let head = send(addr, "HEAD /metrics HTTP/1.0\r\n\r\n");
    assert!(head.ends_with("\r\n\r\n") && !head.contains("Content-Length: 0"), "{head}");
}

#[test]
fn bad_requests_are_answered_and_bounded() {
    let server = start("127.0.0.1", 0, Routes::new(), &Stop::new()).unwrap();
    let status = |text: &str| send(server.addr(), text).split(' ').nth(1).map(str::to_owned);
    assert_eq!(status("nonsense\r\n\r\n").as_deref(), Some("400"));
    assert_eq!(status("DELETE / HTTP/1.1\r\n\r\n").as_deref(), Some("405"));
    let long = format!("GET / HTTP/1.1\r\nX: {}\r\n\r\n", "x".repeat(20_000));
    assert_eq!(status(&long).as_deref(), Some("431"));
}

/// Opens connections that each send `text` and nothing else.
fn clients(addr: SocketAddr, count: usize, text: &str) -> Vec<TcpStream> {
    let client = || {
        let mut socket = TcpStream::connect(addr).unwrap();
        socket.write_all(text.as_bytes()).unwrap();
        socket
    };
    (0..count).map(|_| client()).collect()
}

#[test]
fn probes_are_answered_however_many_clients_are_silent() {
    let stop = Stop::new();
    let server = start("127.0.0.1", 0, Routes::new().checks(Checks::new()), &stop).unwrap();
    let addr = server.addr();
    for text in ["", "GET /livez HTTP/1.1\r\nHost: x", "G"] {
        let silent = clients(addr, 40, text);
        for _ in 0..20 {
            assert_eq!(get(addr, "/livez"), (200, "ok".to_owned()), "{text:?}");
        }
        drop(silent);
    }
}

#[test]
fn the_oldest_silent_client_is_dropped_first() {
    let server = start("127.0.0.1", 0, Routes::new().checks(Checks::new()), &Stop::new()).unwrap();
    let addr = server.addr();
    let mut silent = clients(addr, limits::SERVE_CONNECTIONS_MAX, "");
    assert_eq!(get(addr, "/livez").0, 200);
    let mut first = silent.remove(0);
    assert_eq!(first.read(&mut [0; 1]).ok(), Some(0), "the oldest was dropped");
    let mut last = silent.pop().unwrap();
    last.write_all(b"GET /livez HTTP/1.1\r\n\r\n").unwrap();
    let mut answer = String::new();
    last.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 OK"), "{answer}");
}

#[test]
fn slow_readers_of_pages_leave_room_for_probes() {
    // More than the buffers of a socket can hold.
    let page = "x".repeat(32 << 20);
    let routes = Routes::new()
        .checks(Checks::new())
        .get("/page", move |_| ServerResponse::text(200, page.as_str()))
        .get("/small", |_| ServerResponse::text(200, "small"));
    let server = start("127.0.0.1", 0, routes, &Stop::new()).unwrap();
    let addr = server.addr();
    let clock = crate::base::clock::Clock::system();
    let slow = loop {
        let begun = clock.mono();
        let mut slow = clients(addr, limits::SERVE_PAGES_MAX, "GET /page HTTP/1.1\r\n\r\n");
        // Wait until their answers have begun.
        let have_begun = slow.iter_mut().all(|socket| matches!(socket.read(&mut [0; 1]), Ok(1)));
        let answer = get(addr, "/small");
        // On a busy machine, the server may have closed the first one before the last one began.
        if have_begun && clock.mono().saturating_sub(begun) < EXCHANGE_TIMEOUT {
            assert_eq!(answer, (503, "too many connections\n".to_owned()));
            break slow;
        }
    };
    let silent = clients(addr, 40, "GET /page");
    assert_eq!(get(addr, "/livez"), (200, "ok".to_owned()));
    drop(slow);
    drop(silent);
}

#[test]
fn an_answer_that_is_read_byte_by_byte_is_cut_off() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let socket = listener.accept().unwrap().0;
    let read_slowly = move || {
        let mut piece = vec![0; 64 << 10];
        let clock = crate::base::clock::Clock::system();
        let stop = Stop::new();
        while (&client).read(&mut piece).is_ok_and(|length| length > 0) {
            stop.wait(&clock, Duration::from_millis(20));
        }
    };
    let reading = thread::spawn("slow-reader", limits::SERVE_STACK_BYTES, read_slowly).unwrap();
    let sent = request::write(&socket, &vec![0; 64 << 20], Duration::from_millis(200));
    assert_eq!(
        sent.map_err(|e| matches!(e.kind(), io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock)),
        Err(true)
    );
    drop(socket);
    reading.join().unwrap();
}

#[test]
fn a_local_page_is_shown_to_clients_on_this_machine() {
    let routes = || Routes::new().get_local("/page", |_| ServerResponse::text(200, "page"));
    let server = start("", 0, routes(), &Stop::new()).unwrap();
    let addr = SocketAddr::from((Ipv4Addr::LOCALHOST, server.addr().port()));
    assert_eq!(get(addr, "/page"), (200, "page".to_owned()));
    let rebound = send(addr, "GET /page HTTP/1.1\r\nHost: evil.example\r\n\r\n");
    assert!(rebound.starts_with("HTTP/1.1 403 ") && rebound.contains("not for another name"), "{rebound}");
    // A client that connects to the address of an interface comes from this address.
    let outside = std::net::UdpSocket::bind("0.0.0.0:0").and_then(|socket| {
        socket.connect("192.0.2.1:9")?;
        socket.local_addr()
    });
    if let Ok(outside) = outside {
        let addr = SocketAddr::from((outside.ip(), server.addr().port()));
        assert_eq!(get(addr, "/page").0, 200, "{outside}");
    }
}

#[test]
fn what_is_elsewhere_has_a_link_and_a_header() {
    let routes = Routes::new().get("", |_| ServerResponse::elsewhere("/page"));
    let server = start("127.0.0.1", 0, routes, &Stop::new()).unwrap();
    let answer = send(server.addr(), "GET / HTTP/1.1\r\n\r\n");
    assert!(
        answer.starts_with("HTTP/1.1 302 Found\r\n") && answer.contains("\r\nLocation: /page\r\n"),
        "{answer}"
    );
    assert!(answer.ends_with("\r\n\r\n<a href=\"/page\">/page</a>\n"), "{answer}");
}

#[test]
fn a_stop_closes_the_port_and_open_connections() {
    let stop = Stop::new();
    let server = start("127.0.0.1", 0, Routes::new().checks(Checks::new()), &stop).unwrap();
    let addr = server.addr();
    let mut silent = TcpStream::connect(addr).unwrap();
    assert_eq!(get(addr, "/livez").0, 200);
    stop.stop();
    drop(server);
    assert!(TcpStream::connect(addr).is_err());
    let mut rest = Vec::new();
    // The stream ends or is reset, without a wait.
    let _ = silent.read_to_end(&mut rest);
    assert!(rest.is_empty());
}

#[test]
fn a_taken_port_is_an_error() {
    let first = start("127.0.0.1", 0, Routes::new(), &Stop::new()).unwrap();
    assert!(start("127.0.0.1", first.addr().port(), Routes::new(), &Stop::new()).is_err());
    assert!(start("not an address", 0, Routes::new(), &Stop::new()).is_err());
}
