use std::io;
use std::net::TcpStream;
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::channel;

use serde_json::json;

use super::*;
use crate::api::core::{NAMESPACE, SECRET, SERVICE_ACCOUNT};
use crate::api::meta::{ALL_NAMESPACES, Metadata};
use crate::base::clock::{Simulated, Timestamp};
use crate::base::error::chain;
use crate::base::random::hex;
use crate::base::thread;
use crate::base::workers::Workers;
use crate::kube::connection::Identity;
use crate::kube::pages::SKIPPED;
use crate::kube::request::{List, ListItem, WatchParams};
use crate::kube::watch::Watch;
use crate::kube::{AuthorizationSource, ErrorVerdict, InlineOrFile, RequestGates, ServerTrust, WatchEvent};
use crate::net::testing::{Act, Ca, Pair, SeenRequest, ServerTls, TestServer, chunk, chunked_head, feed};

fn client(server: &TestServer) -> Client {
    Client::new(Connection::new(server.url()), Options::default()).unwrap()
}

fn answering(handler: impl Fn(&SeenRequest) -> Vec<Act> + Send + Sync + 'static) -> (TestServer, Client) {
    let server = TestServer::plain(handler);
    let client = client(&server);
    (server, client)
}

fn names(list: &[Metadata]) -> Vec<&str> {
    list.iter().map(|object| object.metadata.name.as_str()).collect()
}

#[test]
fn a_server_that_cannot_be_used_is_named_without_its_password() {
    for server in ["https://me:hunter2@garden:1:2", "https://me:hunter2@garden", "ftp://me:hunter2@garden"] {
        let connection = Connection::new(server);
        assert!(!format!("{connection:?}").contains("hunter2"));
        let error = Client::new(connection, Options::default()).unwrap_err().to_string();
        assert!(!error.contains("hunter2"), "{error}");
    }
}

#[test]
fn each_call_is_the_request_that_the_api_knows() {
    let (server, client) = answering(|_| Act::json(200, r#"{"metadata":{"name":"n"},"items":[]}"#));
    let (key, object) = (Key::new("a", "n"), json!({"metadata": {"name": "n"}}));
    let _: Value = client.get(&SECRET, &key).unwrap();
    let _: List<Value> = client.list(&NAMESPACE, ALL_NAMESPACES, &ListParams::default()).unwrap();
    let _: Value = client.create(&SECRET, "a", &object).unwrap();
    let _: Value = client.create_sub(&SERVICE_ACCOUNT, &key, "token", &object).unwrap();
    let _: Value = client.replace_status(&SECRET, &key, &object).unwrap();
    let _: Value = client.patch(&SECRET, &key, &Patch::Merge(json!({"x": null}))).unwrap();
    client.delete(&SECRET, &key, &DeleteParams { uid: Some("u".into()), ..DeleteParams::default() }).unwrap();
    client.delete_collection(&SECRET, "a", &ListParams::default(), &DeleteParams::default()).unwrap();
    client.version().unwrap();
    let raw = client.get_raw("/healthz").unwrap();
    assert!(raw.is_success());
    let seen: Vec<String> =
        server.seen().iter().map(|s| format!("{} {} {}", s.method, s.path, s.body)).collect();
    let expected = [
        "GET /api/v1/namespaces/a/secrets/n ",
        "GET /api/v1/namespaces ",
        r#"POST /api/v1/namespaces/a/secrets {"metadata":{"name":"n"}}"#,
        r#"POST /api/v1/namespaces/a/serviceaccounts/n/token {"metadata":{"name":"n"}}"#,
        r#"PUT /api/v1/namespaces/a/secrets/n/status {"metadata":{"name":"n"}}"#,
        r#"PATCH /api/v1/namespaces/a/secrets/n {"x":null}"#,
        r#"DELETE /api/v1/namespaces/a/secrets/n {"apiVersion":"v1","kind":"DeleteOptions","preconditions":{"uid":"u"}}"#,
        "DELETE /api/v1/namespaces/a/secrets ",
        "GET /version ",
        "GET /healthz ",
    ];
    assert_eq!(seen, expected);
    let patch = &server.seen()[5];
    assert_eq!(patch.header("content-type"), Some("application/merge-patch+json"));
    assert_eq!(patch.header("accept"), Some("application/json"));
    assert!(patch.header("user-agent").unwrap().starts_with("gardenlet/"));
    assert_eq!(server.connections(), 1);
    let count = |code, method| {
        client
            .shared
            .options
            .metrics
            .value("rest_client_requests_total", &[("code", code), ("method", method), ("host", "")])
    };
    assert_eq!((count("200", "GET"), count("200", "DELETE")), (Some(4.0), Some(2.0)));
}

#[test]
fn an_object_without_a_name_causes_no_request() {
    let (server, client) = answering(|_| Act::json(200, r#"{"items":[]}"#));
    let found = |resource: &Resource, namespace, name| {
        client.find::<Value>(resource, &Key::new(namespace, name)).unwrap()
    };
    assert_eq!(found(&SECRET, "a", ""), None);
    assert_eq!(found(&SECRET, "", "n"), None);
    assert_eq!(found(&NAMESPACE, "", ""), None);
    assert_eq!(server.seen().len(), 0);
    assert!(found(&NAMESPACE, "", "n").is_some());
}

#[test]
fn failures_become_errors_with_a_verdict() {
    let (server, client) = answering(|seen| match seen.path.rsplit('/').next().unwrap() {
        "gone" => Act::json(404, r#"{"kind":"Status","status":"Failure","reason":"NotFound","code":404}"#),
        "busy" => vec![Act::ReplyWith(429, "Retry-After: 7\r\n".into(), "slow down".into())],
        "html" => vec![Act::Reply(200, "text/html", "<html><title>Please log in</title>".into())],
        "shape" => Act::json(200, r#"{"metadata":{"name":["n"]}}"#),
        "half" => Act::json(200, r#"{"metadata":"#),
        _ => vec![Act::Reply(502, "text/plain", "bad gateway".into())],
    });
    let get = |name: &str| client.get::<Metadata>(&SECRET, &Key::new("a", name)).unwrap_err();
    let table = [
        ("gone", ErrorVerdict::NotFound, "404 NotFound"),
        ("busy", ErrorVerdict::Throttled(Some(Duration::from_secs(7))), "429: slow down"),
        ("html", ErrorVerdict::Unreachable, "not JSON: a page in HTML: Please log in"),
        ("shape", ErrorVerdict::Invalid, "decode /api/v1/namespaces/a/secrets/shape"),
        ("half", ErrorVerdict::Unreachable, "not JSON: {\"metadata\":"),
        ("other", ErrorVerdict::Unreachable, "502: bad gateway"),
    ];
    for (name, verdict, text) in table {
        let error = get(name);
        assert_eq!(error.verdict(), verdict, "{name}");
        assert!(error.to_string().ends_with(text), "{name}: {error}");
    }
    assert_eq!(client.find::<Metadata>(&SECRET, &Key::new("a", "gone")).unwrap(), None);
    assert_eq!(client.get_raw("/x").unwrap().status, 502);
    let url = server.url();
    drop(server);
    let error = get("anything");
    assert_eq!(
        (error.verdict(), error.to_string()),
        (ErrorVerdict::Unreachable, format!("GET {url}/api/v1/namespaces/a/secrets/anything"))
    );
    let count = client
        .shared
        .options
        .metrics
        .value("rest_client_requests_total", &[("code", "<error>"), ("method", "GET"), ("host", "")]);
    assert_eq!(count, Some(1.0));
}

#[test]
fn a_call_ends_with_its_deadline_and_with_the_program() {
    let (started, wait_started) = channel();
    let server = TestServer::plain(move |_| {
        started.send(()).unwrap();
        vec![Act::Silence]
    });
    let stop = Stop::new();
    let options = Options { stop: stop.clone(), ..Options::default() };
    let client = Client::new(Connection::new(server.url()), options).unwrap();
    let clock = Clock::system();
    let error = client.with_deadline(Duration::from_millis(100)).version().unwrap_err();
    assert_eq!(error.verdict(), ErrorVerdict::Unreachable);
    assert!(clock.mono() < Duration::from_secs(10));
    wait_started.recv().unwrap();
    let other = client.clone();
    let call = thread::spawn("call", 256 << 10, move || other.version()).unwrap();
    wait_started.recv().unwrap();
    stop.stop();
    assert!(matches!(call.join().unwrap(), Err(Error::Stopped)));
    assert!(matches!(client.version(), Err(Error::Stopped)));
}

#[test]
fn a_write_ends_with_its_own_deadline() {
    let (server, _) =
        answering(|seen| if seen.method == "GET" { Act::json(200, "{}") } else { vec![Act::Silence] });
    let options = Options { write_timeout: Duration::from_millis(100), ..Options::default() };
    let client = Client::new(Connection::new(server.url()), options).unwrap();
    let clock = Clock::system();
    let object = json!({"metadata": {"name": "n"}});
    assert!(client.create::<Value>(&SECRET, "a", &object).is_err());
    assert!(client.delete(&SECRET, &Key::new("a", "n"), &DeleteParams::default()).is_err());
    assert!(clock.mono() < Duration::from_secs(10));
    assert!(client.get::<Value>(&SECRET, &Key::new("a", "n")).is_ok());
}

#[test]
fn a_write_asks_for_its_permit() {
    #[derive(Debug)]
    struct Never;
    impl WritePermit for Never {
        fn may_write(&self) -> Result<(), String> {
            Err("not now".to_owned())
        }
    }
    let (server, _) = answering(|_| Act::json(200, "{}"));
    let options = Options { permit: Some(Arc::new(Never)), ..Options::default() };
    let client = Client::new(Connection::new(server.url()), options).unwrap();
    let (key, object) = (Key::new("a", "n"), json!({"metadata": {"name": "n"}}));
    assert!(client.get::<Value>(&SECRET, &key).is_ok());
    let refused = [
        client.create::<Value>(&SECRET, "a", &object).map(drop),
        client.replace_object::<Value>(&SECRET, &key, &object).map(drop),
        client.patch::<Value>(&SECRET, &key, &Patch::Merge(object)).map(drop),
        client.delete(&SECRET, &key, &DeleteParams::default()),
        client.delete_collection(&SECRET, "a", &ListParams::default(), &DeleteParams::default()),
    ];
    for result in refused {
        let error = result.unwrap_err();
        assert_eq!((error.verdict(), error.to_string().as_str()), (ErrorVerdict::Fenced, "not now"));
    }
    assert_eq!(server.seen().len(), 1);
}

/// A network link to a server that can be cut.
#[derive(Debug, Default)]
struct Road {
    closed: AtomicBool,
    dialled: AtomicUsize,
}

impl Dial for Road {
    fn dial(&self, host: &str, port: u16, timeout: Duration) -> io::Result<TcpStream> {
        self.dialled.fetch_add(1, Ordering::SeqCst);
        if self.closed.load(Ordering::SeqCst) {
            return Err(io::ErrorKind::HostUnreachable.into());
        }
        SystemDialer.dial(host, port, timeout)
    }
}

#[test]
fn an_unreachable_server_gets_only_probes() {
    let server = TestServer::plain(|_| Act::json(200, "{}"));
    let road = Arc::new(Road::default());
    let sim = Simulated::new(Timestamp::from_unix(0), 1);
    let options = Options {
        gate: Some(RequestGates::new(&Workers::new(4)).gate()),
        clock: Clock::new(sim.clone()),
        dialer: road.clone(),
        ..Options::default()
    };
    let worker = Client::new(Connection::new(server.url()), options).unwrap();
    let heartbeat = worker.ungated();
    let ask = |client: &Client| client.version().map(drop);
    road.closed.store(true, Ordering::SeqCst);
    let failure = ask(&worker).unwrap_err();
    assert_eq!((failure.postponed(), road.dialled.load(Ordering::SeqCst)), (None, 1));
    for _ in 0..20 {
        let refused = ask(&worker).unwrap_err();
        let after = refused.postponed().unwrap();
        assert!(after > Duration::ZERO && after < Duration::from_secs(1), "{after:?}");
        assert_eq!((refused.verdict(), chain(&refused)), (ErrorVerdict::Unreachable, chain(&failure)));
    }
    assert_eq!(road.dialled.load(Ordering::SeqCst), 1);
    // One request probes for all. A client without the gate probes too.
    sim.advance(Duration::from_secs(1));
    assert_eq!(ask(&worker).unwrap_err().postponed(), None);
    assert!(ask(&worker).unwrap_err().postponed().is_some());
    assert_eq!(ask(&heartbeat).unwrap_err().postponed(), None);
    assert_eq!(road.dialled.load(Ordering::SeqCst), 3);
    road.closed.store(false, Ordering::SeqCst);
    ask(&heartbeat).unwrap();
    ask(&worker).unwrap();
    // The heartbeat has priority.
    heartbeat.go_first(Some(Clock::new(sim).mono() + Duration::from_secs(60)));
    assert!(ask(&worker).unwrap_err().postponed().is_some());
    ask(&heartbeat).unwrap();
    heartbeat.go_first(None);
    ask(&worker).unwrap();
}

#[test]
fn a_silent_server_cannot_hold_all_workers() {
    let (asked, questions) = channel();
    let asked = Mutex::new(asked);
    let server = TestServer::plain(move |_| {
        asked.lock().unwrap().send(()).unwrap();
        vec![Act::Silence]
    });
    let options = Options { gate: Some(RequestGates::new(&Workers::new(3)).gate()), ..Options::default() };
    let client = Client::new(Connection::new(server.url()), options).unwrap();
    std::thread::scope(|scope| {
        let held: Vec<_> = (0..2).map(|_| scope.spawn(|| client.version().map(drop))).collect();
        (0..2).for_each(|_| questions.recv_timeout(Duration::from_secs(20)).unwrap());
        let refused = client.version().unwrap_err();
        assert!(refused.postponed().is_some(), "{refused}");
        assert!(questions.try_recv().is_err());
        client.cut_off();
        assert!(held.into_iter().all(|thread| thread.join().unwrap().is_err()));
    });
}

#[test]
fn a_body_beyond_the_limit_is_refused() {
    let (_server, client) = answering(|_| Act::json(200, &" ".repeat((4 << 20) + 1)));
    let error = client.version().unwrap_err();
    assert_eq!(error.verdict(), ErrorVerdict::Invalid);
}

/// Three pages of one object each; the token for the third expires `failures` times.
fn pages(failures: usize) -> (TestServer, Client) {
    let left = AtomicUsize::new(failures);
    answering(move |seen| {
        let page = |name: &str, next: &str| {
            let body = json!({"metadata": {"resourceVersion": "9", "continue": next}, "items": [{"metadata": {"name": name}}]});
            Act::json(200, &body.to_string())
        };
        if !seen.path.contains("limit=") {
            let names: Vec<Value> =
                ["a", "b", "c"].iter().map(|n| json!({"metadata": {"name": n}})).collect();
            return Act::json(
                200,
                &json!({"metadata": {"resourceVersion": "10"}, "items": names}).to_string(),
            );
        }
        if seen.path.contains("continue=2") {
            if left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |n| n.checked_sub(1)).is_ok() {
                return Act::json(410, r#"{"kind":"Status","reason":"Expired","code":410}"#);
            }
            return page("c", "");
        }
        if seen.path.contains("continue=1") { page("b", "2") } else { page("a", "1") }
    })
}

#[test]
fn lists_are_read_page_by_page_and_begin_again_when_they_expire() {
    for (failures, requests, version) in [(0, 3, "9"), (1, 6, "9"), (9, 10, "10")] {
        let (server, client) = pages(failures);
        let mut all: Vec<Metadata> = Vec::new();
        let found =
            client.list_all(&SECRET, "a", &ListParams::default(), &mut |object| all.push(object)).unwrap();
        assert_eq!((found.as_str(), names(&all)), (version, vec!["a", "b", "c"]), "{failures}");
        assert_eq!(server.seen().len(), requests);
        assert!(server.seen()[0].path.ends_with("?limit=250"));
        let mut restarts = 0;
        let (_server, client) = pages(failures);
        let count =
            &mut |item: ListItem<Metadata>| restarts += usize::from(matches!(item, ListItem::Restart));
        client.list_each(&SECRET, "a", &ListParams::default(), count).unwrap();
        assert_eq!(restarts, failures.min(3));
    }
}

#[test]
fn a_list_with_an_object_that_cannot_be_read_is_an_error() {
    let (_server, client) = answering(|_| {
        Act::json(200, r#"{"metadata":{},"items":[{"metadata":{"name":"a"}},{"metadata":7}]}"#)
    });
    let mut seen = 0;
    let error = client
        .list_all(&SECRET, ALL_NAMESPACES, &ListParams::default(), &mut |_: Metadata| seen += 1)
        .unwrap_err();
    assert_eq!((error.verdict(), seen), (ErrorVerdict::Invalid, 0));
    let mut values = Vec::new();
    client
        .list_all(&SECRET, ALL_NAMESPACES, &ListParams::default(), &mut |value: Value| values.push(value))
        .unwrap();
    assert_eq!(values[0]["kind"], "Secret");
    // A caller that takes them one by one learns which one it is.
    let mut told = Vec::new();
    let each = &mut |item: ListItem<Metadata>| {
        told.push(match item {
            ListItem::Object(object) => object.metadata.name,
            ListItem::Undecodable(object) => format!("undecodable {:?}", object.key),
            ListItem::Restart => "restart".to_owned(),
        });
    };
    client.list_each(&SECRET, ALL_NAMESPACES, &ListParams::default(), each).unwrap();
    assert_eq!(told[0], "a");
    assert!(told[1].starts_with("undecodable"), "{told:?}");
}

#[test]
fn a_list_without_end_is_given_up() {
    let (server, client) = answering(|_| Act::json(200, r#"{"metadata":{"continue":"again"},"items":[]}"#));
    let options = Options { qps: 0.0, ..Options::default() };
    let client = Client::new((*client.connection()).clone(), options).unwrap();
    let error =
        client.list_all(&SECRET, ALL_NAMESPACES, &ListParams::default(), &mut |_: Value| {}).unwrap_err();
    assert_eq!(error.verdict(), ErrorVerdict::Unreachable);
    assert_eq!(server.seen().len(), 4_000);
}

fn event(kind: &str, name: &str) -> String {
    format!(r#"{{"type":"{kind}","object":{{"metadata":{{"name":"{name}","managedFields":[1]}}}}}}"#) + "\n"
}

fn watching(chunks: Vec<Vec<u8>>) -> (TestServer, Client) {
    answering(move |_| {
        let body = chunks.iter().map(|bytes| chunk(bytes)).chain([chunk(b"")]);
        std::iter::once(chunked_head()).chain(body).map(Act::Raw).collect()
    })
}

fn all_events(client: &Client) -> (Vec<String>, Option<Error>) {
    let mut watch = client.watch::<Metadata>(&SECRET, "a", &WatchParams::default()).unwrap();
    let mut out = Vec::new();
    while let Some(event) = watch.next() {
        out.push(match event {
            Ok(WatchEvent::Added(object)) => format!("+{}", object.metadata.name),
            Ok(WatchEvent::Modified(object)) => format!("~{}", object.metadata.name),
            Ok(WatchEvent::Deleted(last)) => format!("-{}", last.name),
            Ok(WatchEvent::Bookmark(version)) => format!("@{version}"),
            Ok(WatchEvent::Undecodable(object)) => format!("?{}", object.key),
            Err(error) => {
                assert!(watch.next().is_none());
                return (out, Some(error));
            }
        });
    }
    (out, None)
}

#[test]
fn a_watch_yields_its_events_however_they_are_cut() {
    let text = [
        event("ADDED", "ä"),
        "\n \n".to_owned(),
        event("MODIFIED", "b"),
        "{\"type\":\"BOOKMARK\",\"object\":{\"metadata\":{\"resourceVersion\":\"7\"}}}\n".to_owned(),
        "{\"type\":\"ADDED\",\"object\":{\"metadata\":{\"namespace\":\"x\",\"name\":\"odd\",\"labels\":7}}}\n".to_owned(),
        event("NEW", "later"),
        event("DELETED", "c"),
    ]
    .concat();
    for size in [1, 2, 7, 4_096, text.len()] {
        let (server, client) = watching(text.as_bytes().chunks(size).map(<[u8]>::to_vec).collect());
        let (events, error) = all_events(&client);
        assert_eq!(events, ["+ä", "~b", "@7", "?x/odd", "?later", "-c"], "{size}");
        assert!(error.is_none(), "{error:?}");
        let path = &server.seen()[0].path;
        let seconds: u32 = path.split("timeoutSeconds=").nth(1).unwrap().parse().unwrap();
        assert!((300..=600).contains(&seconds), "{path}");
    }
}

#[test]
fn a_watch_that_goes_wrong_says_how() {
    let gone =
        r#"{"type":"ERROR","object":{"kind":"Status","code":410,"reason":"Expired","message":"too old"}}"#;
    let table = [
        (format!("{}{gone}\n", event("ADDED", "a")), ErrorVerdict::Gone, "410 Expired: too old"),
        (
            event("ADDED", "a") + "{\"type\":\"ADD",
            ErrorVerdict::Unreachable,
            "the stream ended inside an event",
        ),
        (
            event("ADDED", "a") + "<html><title>Down</title>",
            ErrorVerdict::Unreachable,
            "not an event: a page in HTML: Down",
        ),
        (event("ADDED", "a") + "{}\n", ErrorVerdict::Unreachable, "not an event: {}"),
        (
            event("ADDED", "a") + "{\"type\":\"ERROR\",\"object\":{}}\n",
            ErrorVerdict::Unreachable,
            "500: an ERROR event without Status",
        ),
    ];
    for (text, verdict, problem) in table {
        let (_server, client) = watching(vec![text.into_bytes()]);
        let (events, error) = all_events(&client);
        let error = error.unwrap();
        assert_eq!((events, error.verdict()), (vec!["+a".to_owned()], verdict));
        assert!(error.to_string().ends_with(problem), "{error}");
    }
    let (_server, client) = answering(|_| Act::json(410, r#"{"kind":"Status","code":410,"reason":"Gone"}"#));
    assert!(client.watch::<Value>(&SECRET, ALL_NAMESPACES, &WatchParams::default()).unwrap_err().is_gone());
    // The server disconnects between two events.
    let (_server, client) = answering(|_| {
        vec![Act::Raw(chunked_head()), Act::Raw(chunk(event("ADDED", "a").as_bytes())), Act::Hangup]
    });
    let (events, error) = all_events(&client);
    assert_eq!((events.len(), error.unwrap().verdict()), (1, ErrorVerdict::Unreachable));
}

/// An event about an object of more than this many bytes.
fn long_event(kind: &str, name: &str, bytes: usize) -> String {
    event(kind, name).replace("[1]", &format!("[\"{}\"]", "x".repeat(bytes)))
}

#[test]
fn an_event_that_is_too_long_does_not_break_the_watch() {
    let text = [
        event("ADDED", "a"),
        long_event("ADDED", "b", 5 << 20),
        long_event("MODIFIED", "c", 9 << 20),
        long_event("DELETED", "d", 5 << 20),
        event("MODIFIED", "e"),
        // A long event that is short enough.
        long_event("ADDED", "f", 3 << 20),
    ]
    .concat();
    for size in [4_096, 1 << 20, text.len()] {
        let (_server, client) = watching(text.as_bytes().chunks(size).map(<[u8]>::to_vec).collect());
        let (events, error) = all_events(&client);
        assert_eq!(
            (events, error.is_none()),
            (["+a", "?b", "?c", "-d", "~e", "+f"].map(str::to_owned).into(), true),
            "{size}"
        );
        assert_eq!(client.shared.options.metrics.value(SKIPPED, &[("peer", "")]), Some(3.0));
    }
    // Nobody knows which object it is about: the list tells.
    let nameless = format!("{{\"type\":\"ADDED\",\"object\":{{\"data\":\"{}\"}}}}\n", "x".repeat(5 << 20));
    let (_server, client) = watching(vec![event("ADDED", "a").into_bytes(), nameless.into_bytes()]);
    let (events, error) = all_events(&client);
    assert_eq!((events, error.unwrap().verdict()), (vec!["+a".to_owned()], ErrorVerdict::Gone));
    // The stream ends before it does.
    let mut half = long_event("ADDED", "b", 5 << 20).into_bytes();
    half.truncate(5 << 20);
    let (_server, client) = watching(vec![half]);
    let (events, error) = all_events(&client);
    assert_eq!((events.len(), error.unwrap().verdict()), (0, ErrorVerdict::Unreachable));
}

/// The answer to a list: an object that is too long between others.
fn with_long_object(bytes: usize) -> String {
    let long = format!(r#"{{"metadata":{{"name":"long","namespace":"n"}},"data":"{}"}}"#, "x".repeat(bytes));
    format!(
        r#"{{"items":[{{"metadata":{{"name":"a"}}}},{long},{{"metadata":{{"name":"c"}}}}],"metadata":{{"resourceVersion":"7"}}}}"#
    )
}

#[test]
fn an_object_that_is_too_long_is_skipped_and_never_looks_deleted() {
    let (_server, client) = answering(|_| Act::json(200, &with_long_object(5 << 20)));
    let mut told = Vec::new();
    let each = &mut |item: ListItem<Value>| {
        told.push(match item {
            ListItem::Object(object) => object["metadata"]["name"].as_str().unwrap().to_owned(),
            ListItem::Undecodable(object) => format!("{}: {}", object.key, object.why),
            ListItem::Restart => "restart".to_owned(),
        });
    };
    assert_eq!(client.list_each(&SECRET, ALL_NAMESPACES, &ListParams::default(), each).unwrap(), "7");
    assert_eq!(told, ["a", "n/long: the object is too long", "c"]);
    assert_eq!(client.shared.options.metrics.value(SKIPPED, &[("peer", "")]), Some(1.0));
    // Callers that hold all objects at once must not miss one.
    let mut seen = 0;
    let all = client.list_all(&SECRET, ALL_NAMESPACES, &ListParams::default(), &mut |_: Metadata| seen += 1);
    let page = client.list::<Metadata>(&SECRET, ALL_NAMESPACES, &ListParams::default()).map(drop);
    for error in [all.map(drop).unwrap_err(), page.unwrap_err()] {
        assert_eq!(error.verdict(), ErrorVerdict::Invalid);
        assert_eq!(chain(&error), "decode n/long of /api/v1/secrets: the object is too long");
    }
    assert_eq!(seen, 0);
}

/// A client of the API server of a Shoot. Its limits are those of sizes only: in an emulator, megabytes take a while.
fn of_shoot(server: &TestServer) -> Client {
    let time = Duration::from_secs(300);
    let bounds = Bounds { list_time_max: time, ..Bounds::default().of_shoot(&crate::kube::Permits::new(1)) };
    let options = Options { bounds, timeout: time, ..Options::default() };
    Client::new(Connection::new(server.url()), options).unwrap()
}

#[test]
fn an_answer_of_a_shoot_has_limits() {
    // More megabytes than any answer may have.
    let much = |text: &'static str, megabytes: usize| {
        let part = text.repeat((1 << 20) / text.len());
        let parts = (0..megabytes).map(|_| Act::Raw(chunk(part.as_bytes())));
        std::iter::once(Act::Raw(chunked_head())).chain(parts).collect::<Vec<_>>()
    };
    let server = TestServer::plain(move |seen| match seen.path.split('?').next().unwrap() {
        "/api/v1/secrets" => Act::json(200, &with_long_object(3 << 20)),
        // Short objects.
        "/api/v1/namespaces" => {
            let mut acts = much(r#"{"metadata":{"name":"a","labels":{"a":"b"}}},"#, 4);
            acts.insert(1, Act::Raw(chunk(b"{\"items\":[")));
            acts
        }
        "/api/v1/nodes" => much(" ", 40),
        _ => much(" ", 4),
    });
    let client = of_shoot(&server);
    let mut names = Vec::new();
    let each = &mut |item: ListItem<Value>| {
        if let ListItem::Undecodable(object) = item {
            names.push(object.key.to_string());
        }
    };
    client.list_each(&SECRET, ALL_NAMESPACES, &ListParams::default(), each).unwrap();
    assert_eq!(names, ["n/long"]);
    for resource in [&NAMESPACE, &crate::api::core::NODE] {
        let all = client.list_each::<Value>(resource, ALL_NAMESPACES, &ListParams::default(), &mut |_| {});
        assert!(all.unwrap_err().is_too_large());
    }
    // Fewer objects are requested as long as the page is too large for the memory.
    let params = ListParams { limit: 250, ..ListParams::default() };
    assert!(client.list::<Metadata>(&NAMESPACE, ALL_NAMESPACES, &params).unwrap_err().is_too_large());
    let asked: Vec<String> = server
        .seen()
        .iter()
        .filter_map(|seen| Some(seen.path.split_once("namespaces?limit=")?.1.to_owned()))
        .collect();
    assert_eq!(asked, ["250", "250", "125", "62", "31", "15", "7", "3", "1"]);
    assert!(client.get::<Value>(&SECRET, &Key::new("n", "a")).unwrap_err().is_too_large());
    assert!(client.version().unwrap_err().is_too_large());
}

#[test]
fn the_answer_to_a_blind_write_may_be_long() {
    let (server, _) = answering(|seen| match seen.path.ends_with("/bad") {
        true => Act::json(404, r#"{"kind":"Status","reason":"NotFound","code":404}"#),
        false => Act::json(200, &with_long_object(3 << 20)),
    });
    let client = of_shoot(&server);
    let patch = Patch::Merge(json!({}));
    for _ in 0..3 {
        client.patch_blindly(&SECRET, &Key::new("n", "long"), &patch).unwrap();
        client.delete(&SECRET, &Key::new("n", "long"), &DeleteParams::default()).unwrap();
    }
    assert!(client.patch_blindly(&SECRET, &Key::new("n", "bad"), &patch).unwrap_err().is_not_found());
    assert_eq!(server.connections(), 1);
}

/// A byte now and then keeps a connection alive, but not a list of a Shoot.
#[test]
fn a_list_of_a_shoot_has_a_time() {
    let (sender, receiver) = channel::<Vec<u8>>();
    let receiver = Mutex::new(Some(receiver));
    let server = TestServer::plain(move |_| {
        let feed = receiver.lock().unwrap().take().map(Act::Feed);
        [Act::Raw(chunked_head())].into_iter().chain(feed).chain([Act::Silence]).collect()
    });
    let client = of_shoot(&server).with_deadline(Duration::from_millis(600));
    let (stop, clock) = (Stop::new(), Clock::system());
    let ticks = stop.clone();
    let feeder = thread::spawn("feeder", 256 << 10, move || {
        sender.send(chunk(b"{\"items\":[")).unwrap();
        while !ticks.wait(&Clock::system(), Duration::from_millis(50)) && sender.send(chunk(b" ")).is_ok() {}
    });
    let error = client
        .list_each::<Value>(&NAMESPACE, ALL_NAMESPACES, &ListParams::default(), &mut |_| {})
        .unwrap_err();
    stop.stop();
    feeder.unwrap().join().unwrap();
    assert!(error.is_late(), "{error:?}");
    assert!(clock.mono() < Duration::from_secs(10));
}

#[test]
fn all_pages_of_a_list_of_a_shoot_have_a_time() {
    let (server, _) = answering(|_| Act::json(200, r#"{"metadata":{"continue":"again"},"items":[]}"#));
    let mut bounds = Bounds::default().of_shoot(&crate::kube::Permits::new(1));
    bounds.list_time_max = Duration::from_millis(20);
    let options = Options { bounds, qps: 0.0, ..Options::default() };
    let client = Client::new(Connection::new(server.url()), options).unwrap();
    let error = client
        .list_each::<Value>(&NAMESPACE, ALL_NAMESPACES, &ListParams::default(), &mut |_| {})
        .unwrap_err();
    assert!(error.is_late(), "{error:?}");
    assert!(server.seen().len() < 4_000);
}

fn waiting_watch(client: &Client) -> Watch<Metadata> {
    let mut watch = client.watch(&SECRET, "a", &WatchParams::default()).unwrap();
    assert!(matches!(watch.next(), Some(Ok(WatchEvent::Added(_)))));
    watch
}

#[test]
fn a_waiting_watch_is_ended_from_another_thread() {
    type End = fn(&Client, &crate::kube::watch::WatchHandle);
    let silent = |_: &SeenRequest| {
        vec![Act::Raw(chunked_head()), Act::Raw(chunk(event("ADDED", "a").as_bytes())), Act::Silence]
    };
    let (server, client) = answering(silent);
    let ends: [(&str, End); 3] = [
        ("close", |_, handle| handle.close()),
        ("replace", |client, _| client.replace((*client.connection()).clone()).unwrap()),
        ("stop", |client, _| client.shared.options.stop.stop()),
    ];
    for (name, end) in ends {
        let mut watch = waiting_watch(&client);
        let handle = watch.handle();
        let waiter =
            thread::spawn("watch", 256 << 10, move || (watch.next(), watch.next().is_none())).unwrap();
        end(&client, &handle);
        let (result, over) = waiter.join().unwrap();
        // A watch over a replaced connection ends regularly and continues over the new one.
        assert_eq!(matches!(result, Some(Err(Error::Stopped))), name != "replace", "{name}: {result:?}");
        assert!(over && (name != "replace" || result.is_none()), "{name}");
    }
    assert_eq!(server.connections(), 3, "each watch has a connection of its own");
}

#[test]
fn events_arrive_when_they_are_sent() {
    let slot = Mutex::new(None);
    let (sender, act) = feed();
    *slot.lock().unwrap() = Some(act);
    let (_server, client) =
        answering(move |_| vec![Act::Raw(chunked_head()), slot.lock().unwrap().take().unwrap()]);
    let mut watch = client.watch::<Metadata>(&SECRET, "a", &WatchParams::default()).unwrap();
    for name in ["a", "b"] {
        sender.send(chunk(event("ADDED", name).as_bytes())).unwrap();
        let Some(Ok(WatchEvent::Added(object))) = watch.next() else { panic!() };
        assert_eq!(object.metadata.name, name);
    }
}

fn secure(server: &TestServer, ca: &Ca, pair: &Pair) -> Connection {
    Connection::new(server.url()).with_ca(ca.pem()).with_certificate(pair.chain.clone(), pair.key.clone())
}

#[test]
fn the_identity_changes_while_the_client_runs() {
    let (ca, clients) = (Ca::new("ca"), Ca::new("clients"));
    let tls = ServerTls { pair: ca.server(), client_ca: Some(clients.pem()) };
    let (started, wait_started) = channel();
    let server = TestServer::tls(&tls, move |seen| {
        if seen.path == "/version" {
            started.send(()).unwrap();
        }
        if seen.path.contains("watch=true") {
            return vec![
                Act::Raw(chunked_head()),
                Act::Raw(chunk(event("ADDED", "a").as_bytes())),
                Act::Silence,
            ];
        }
        Act::json(200, "{}")
    });
    let (one, two) = (clients.issue("one", &[], 2020..2120), clients.issue("two", &[], 2020..2120));
    let client = Client::new(secure(&server, &ca, &one), Options::default()).unwrap();
    client.version().unwrap();
    wait_started.recv().unwrap();
    let mut watch = waiting_watch(&client);
    client.replace(secure(&server, &ca, &two)).unwrap();
    assert!(watch.next().is_none());
    client.clone().version().unwrap();
    let mut watch = waiting_watch(&client);
    let leaves: Vec<Vec<u8>> = server.seen().into_iter().filter_map(|seen| seen.certificate).collect();
    assert_eq!(leaves.len(), 4);
    assert!(leaves[0] == leaves[1] && leaves[2] == leaves[3] && leaves[1] != leaves[2]);
    // An unusable connection changes nothing.
    let bad = Connection::new("https://[broken");
    assert_eq!(client.replace(bad).unwrap_err().verdict(), ErrorVerdict::Invalid);
    client.version().unwrap();
    assert_eq!(client.connection().server, server.url());
    watch.handle().close();
    assert!(matches!(watch.next(), Some(Err(Error::Stopped))));
}

fn temporary(name: &str, content: &str) -> PathBuf {
    let path = std::env::temp_dir().join(format!("gardenlet-test-{}-{name}", hex(12)));
    std::fs::write(&path, content).unwrap();
    path
}

#[test]
fn a_token_file_is_read_again_each_minute_and_after_a_401() {
    let (server, client) = answering(|seen| {
        let refused = seen.header("authorization") == Some("Bearer old");
        Act::json(if refused { 401 } else { 200 }, "{}")
    });
    let path = temporary("token", "first\n");
    let sim = Simulated::new(Timestamp::from_unix(0), 1);
    let options = Options { clock: Clock::new(sim.clone()), ..Options::default() };
    let identity = Identity { certificate: None, credentials: AuthorizationSource::TokenFile(path.clone()) };
    let client = Client::new(Connection { identity, ..(*client.connection()).clone() }, options).unwrap();
    let token = || {
        let result = client.version().map(drop);
        let seen = server.seen().pop().unwrap();
        (result.is_ok(), seen.header("authorization").unwrap().to_owned())
    };
    let good = |text: &str| (true, format!("Bearer {text}"));
    assert_eq!(token(), good("first"));
    std::fs::write(&path, "second").unwrap();
    assert_eq!(token(), good("first"));
    sim.advance(Duration::from_secs(61));
    assert_eq!(token(), good("second"));
    // An unreadable file keeps the last good token.
    std::fs::write(&path, "").unwrap();
    sim.advance(Duration::from_secs(61));
    assert_eq!(token(), good("second"));
    std::fs::write(&path, "old").unwrap();
    sim.advance(Duration::from_secs(61));
    assert_eq!(token(), (false, "Bearer old".to_owned()));
    // The server refuses the cached token, but the file has a newer one.
    std::fs::write(&path, "new").unwrap();
    let before = server.seen().len();
    assert_eq!(token(), good("new"));
    assert_eq!(server.seen().len(), before + 2, "refused once, then sent again");
    std::fs::remove_file(&path).unwrap();
}

#[test]
fn user_and_password_become_a_header() {
    let (server, client) = answering(|_| Act::json(200, "{}"));
    let credentials = AuthorizationSource::Basic { username: "u".into(), password: "p:w".to_owned().into() };
    let identity = Identity { certificate: None, credentials };
    client.replace(Connection { identity, ..(*client.connection()).clone() }).unwrap();
    client.version().unwrap();
    client.replace((*client.connection()).clone().with_token("t")).unwrap();
    client.version().unwrap();
    let headers: Vec<_> =
        server.seen().iter().map(|s| s.header("authorization").unwrap().to_owned()).collect();
    assert_eq!(headers, ["Basic dTpwOnc=", "Bearer t"]);
}

#[test]
fn a_refused_token_without_a_newer_one_is_denied() {
    let (server, client) =
        answering(|_| Act::json(401, r#"{"kind":"Status","reason":"Unauthorized","code":401}"#));
    client.replace((*client.connection()).clone().with_token("t")).unwrap();
    assert!(client.version().unwrap_err().is_denied());
    assert_eq!(server.seen().len(), 1);
    // A token that would break the header is refused and not shown.
    client.replace((*client.connection()).clone().with_token("hunter2\r\nX: y")).unwrap();
    let error = client.version().unwrap_err();
    assert_eq!(error.verdict(), ErrorVerdict::Invalid);
    assert!(!format!("{error:?} {error}").contains("hunter2"));
}

#[test]
fn servers_are_named_as_in_other_tools() {
    let (_server, client) =
        answering(|seen| Act::json(if seen.path == "/k8s/x/version" { 200 } else { 404 }, "{}"));
    let plain = client.connection().server.clone();
    let bare = plain.trim_start_matches("http://");
    for server in [format!("{plain}/k8s/x"), format!("{plain}/k8s/x/"), format!("{bare}/k8s/x")] {
        client.replace(Connection::new(&server)).unwrap();
        client.version().unwrap();
    }
    for server in ["", "https://", "ftp://x", "https://user@host", "https://a:b:c"] {
        assert!(client.replace(Connection::new(server)).is_err(), "{server:?}");
    }
}

#[test]
fn our_own_rate_limit_holds_calls_back() {
    let (_server, client) = answering(|_| Act::json(200, "{}"));
    let options = Options { qps: 0.01, burst: 1, timeout: Duration::from_secs(5), ..Options::default() };
    let client = Client::new((*client.connection()).clone(), options).unwrap();
    client.version().unwrap();
    let error = client.version().unwrap_err();
    assert_eq!((matches!(error, Error::Limited), error.verdict()), (true, ErrorVerdict::Throttled(None)));
}

#[test]
fn a_file_of_cas_is_read_at_each_handshake() {
    let (old, new) = (Ca::new("old"), Ca::new("new"));
    let tls = ServerTls { pair: new.server(), client_ca: None };
    let server = TestServer::tls(&tls, |_| Act::json(200, "{}"));
    let path = std::env::temp_dir().join(format!("gardenlet-cas-{}", hex(12)));
    let trust = ServerTrust::Bundle(InlineOrFile::File(path.clone()));
    let client = Client::new(Connection::new(server.url()).with_trust(trust), Options::default()).unwrap();
    let works = |pem: &str| {
        std::fs::write(&path, pem).unwrap();
        server.cut();
        client.version().is_ok()
    };
    assert!(!works(&old.pem()));
    assert!(works(&(old.pem() + &new.pem())));
    assert!(works(&new.pem()));
    assert!(!works(&old.pem()));
    std::fs::remove_file(path).unwrap();
}

/// Only a garden with a verified certificate sets the time.
#[test]
fn the_gardens_clock_is_learned() {
    let ca = Ca::new("ca");
    let tls = ServerTls { pair: ca.issue("server", &["127.0.0.1"], 2020..2060), client_ca: None };
    let answer = |_: &SeenRequest| {
        vec![Act::ReplyWith(200, "Date: Thu, 01 Jan 2026 01:00:00 GMT\r\n".into(), "{}".into())]
    };
    let (plain, secure) = (TestServer::plain(answer), TestServer::tls(&tls, answer));
    let trusting = Connection::new(secure.url()).with_ca(ca.pem());
    let table = [
        (trusting.clone(), true, true),
        (trusting.clone(), false, false),
        (trusting.with_trust(ServerTrust::Insecure), true, false),
        (Connection::new(plain.url()), true, false),
    ];
    for (connection, tells_time, learns) in table {
        // 2026-01-01, an hour too early.
        let clock = Clock::new(Simulated::new(Timestamp::from_unix(1_767_225_600), 1));
        let time = GardenTime::new(clock.clone(), Timestamp::default(), None);
        let options = Options { clock, time: Some(time.clone()), tells_time, ..Options::default() };
        let client = Client::new(connection.clone(), options).unwrap();
        assert_eq!(time.skew_nanos(), None);
        client.version().unwrap();
        let skew_s = time.skew_nanos().map(|nanos| nanos / 1_000_000_000);
        assert_eq!(skew_s.is_some_and(|s| (3_590..=3_601).contains(&s)), learns, "{connection:?} {skew_s:?}");
        assert_eq!(skew_s.is_some(), learns);
    }
}

#[test]
fn nothing_that_formats_shows_a_secret() {
    let connection = Connection {
        proxy_url: Some("http://u:hunter2@proxy".to_owned().into()),
        ..Connection::new("https://h").with_certificate("hunter2", "hunter2")
    };
    let basic = AuthorizationSource::Basic { username: "u".into(), password: "hunter2".to_owned().into() };
    let client = Client::new(connection.clone().with_token("hunter2"), Options::default()).unwrap();
    let text = format!(
        "{connection:?} {:?} {basic:?} {client:?} {:?}",
        connection.clone().with_token("hunter2"),
        client.shared.session()
    );
    assert!(!text.contains("hunter2") && !text.contains("104, 117"), "{text}");
}
