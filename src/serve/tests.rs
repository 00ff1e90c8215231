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
    let response = send(addr, &format!("GET {target} HTTP/1.1\r\nHost: x\r\n\r\n"));
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

#[test]
fn silent_clients_do_not_lock_others_out_for_long_and_their_number_is_bounded() {
    let stop = Stop::new();
    let server = start("127.0.0.1", 0, Routes::new().checks(Checks::new()), &stop).unwrap();
    let silent: Vec<TcpStream> = (0..15).map(|_| TcpStream::connect(server.addr()).unwrap()).collect();
    assert_eq!(get(server.addr(), "/livez").0, 200);
    // The answered connection may still be counted; one of these two is the seventeenth.
    let more: Vec<TcpStream> = (0..2).map(|_| TcpStream::connect(server.addr()).unwrap()).collect();
    assert_eq!(get(server.addr(), "/livez").0, 503);
    drop((silent, more));
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
    // End of stream or a reset, but no waiting.
    let _ = silent.read_to_end(&mut rest);
    assert!(rest.is_empty());
}

#[test]
fn a_taken_port_is_an_error() {
    let first = start("127.0.0.1", 0, Routes::new(), &Stop::new()).unwrap();
    assert!(start("127.0.0.1", first.addr().port(), Routes::new(), &Stop::new()).is_err());
    assert!(start("not an address", 0, Routes::new(), &Stop::new()).is_err());
}
