use super::*;
use crate::api::meta::ObjectMeta;
use crate::base::clock::{Simulated, Timestamp};
use crate::net::testing::{Act, TestServer, chunk, chunked_head};
use crate::runtime::marks::Marks;
use crate::runtime::source::{Listening, WatchSource};

/// Returns a list of results and records the requests.
struct Script {
    results: Vec<Result<(), Error>>,
    asked: Vec<String>,
    stop: Stop,
    /// Whether each watch gets an event.
    moves: bool,
    /// Whether the kind is optional.
    is_optional: bool,
}

impl Script {
    fn next(&mut self, what: String) -> Result<(), Error> {
        self.asked.push(what);
        if self.results.len() == 1 {
            self.stop.stop();
        }
        self.results.remove(0)
    }
}

impl Feed for Script {
    fn name(&self) -> &'static str {
        "script"
    }

    fn is_optional(&self) -> bool {
        self.is_optional
    }

    fn list(&mut self) -> Result<String, Error> {
        self.next("list".to_owned()).map(|()| "7".to_owned())
    }

    fn follow(&mut self, version: &mut String) -> Result<(), Error> {
        let from = version.clone();
        if self.moves {
            *version = format!("{from}+");
        }
        self.next(format!("follow {from}"))
    }
}

fn gone() -> Error {
    Error::Api(Box::new(StatusFailure { code: 410, ..Default::default() }))
}

#[test]
fn it_resumes_after_an_end_and_lists_again_only_when_the_version_is_gone() {
    let sim = Simulated::new(Timestamp::from_unix(0), 10_000);
    let stop = Stop::new();
    let results =
        vec![Err(Error::Limited), Ok(()), Ok(()), Err(Error::Limited), Ok(()), Err(gone()), Ok(()), Ok(())];
    let mut script =
        Script { results, asked: Vec::new(), stop: stop.clone(), moves: true, is_optional: false };
    run(&mut script, &Clock::new(sim), &stop);
    let expected = ["list", "list", "follow 7", "follow 7+", "follow 7++", "follow 7+++", "list", "follow 7"];
    assert_eq!(script.asked, expected);
}

/// An interrupted connection, then a server that has dropped the version: both are normal and need no action.
#[test]
fn an_interrupted_watch_is_resumed_silently() {
    let broken = || {
        let source = crate::net::Error::from_io("read", io::ErrorKind::ConnectionReset.into());
        Err(Error::Transport { request: "GET /watch".to_owned(), source })
    };
    let lines = |moves, results: Vec<Result<(), Error>>| {
        let (clock, stop) = (Clock::new(Simulated::new(Timestamp::from_unix(0), 1_000)), Stop::new());
        let mut script = Script { results, asked: Vec::new(), stop: stop.clone(), moves, is_optional: false };
        let mut failures = 0;
        run_telling(&mut script, &clock, &stop, &mut |_| failures += 1);
        (script.asked.len(), failures)
    };
    assert_eq!(lines(true, vec![Ok(()), broken(), Err(gone()), Ok(()), Ok(())]), (5, 0));
    // It is interrupted before any event, again and again: that is worth a log line.
    assert_eq!(lines(false, vec![Ok(()), broken(), broken(), Ok(()), Ok(())]), (5, 1));
}

#[test]
fn a_new_kind_is_no_failure_and_a_missing_one_is() {
    let absent = || Err(Error::Api(Box::new(StatusFailure { code: 404, ..Default::default() })));
    let told = |results: Vec<Result<(), Error>>| {
        let (clock, stop) = (Clock::new(Simulated::new(Timestamp::from_unix(0), 10_000)), Stop::new());
        let mut script =
            Script { results, asked: Vec::new(), stop: stop.clone(), moves: true, is_optional: false };
        let mut told = 0;
        run_telling(&mut script, &clock, &stop, &mut |_| told += 1);
        told
    };
    for (times, expected) in [(1, 0), (4, 0), (5, 1), (7, 1)] {
        let mut results: Vec<_> = (0..times).map(|_| absent()).collect();
        results.extend([Ok(()), Ok(())]);
        assert_eq!(told(results), expected, "{times} times");
    }
    // It was served before.
    assert_eq!(told(vec![Ok(()), absent(), Ok(())]), 1);
}

#[test]
fn an_optional_kind_is_checked_periodically_and_silently() {
    for code in [404, 403] {
        let absent = || Err(Error::Api(Box::new(StatusFailure { code, ..Default::default() })));
        let clock = Clock::new(Simulated::new(Timestamp::from_unix(0), 20_000));
        let (stop, mut told) = (Stop::new(), 0);
        let results = (0..8).map(|_| absent()).chain([Ok(()), Ok(())]).collect();
        let mut script =
            Script { results, asked: Vec::new(), stop: stop.clone(), moves: true, is_optional: true };
        let begun = clock.mono();
        run_telling(&mut script, &clock, &stop, &mut |_| told += 1);
        assert_eq!((told, script.asked.last().map(String::as_str)), (0, Some("follow 7")), "{code}");
        assert!(clock.mono().saturating_sub(begun) > 3 * ABSENT_PERIOD, "{code}");
    }
}

/// The duration of a script, in the time of its clock.
fn time_of(factor: u32, results: Vec<Result<(), Error>>) -> Duration {
    let (clock, stop) = (Clock::new(Simulated::new(Timestamp::from_unix(0), factor)), Stop::new());
    let mut script =
        Script { results, asked: Vec::new(), stop: stop.clone(), moves: false, is_optional: false };
    let begun = clock.mono();
    run(&mut script, &clock, &stop);
    clock.mono().saturating_sub(begun)
}

#[test]
fn a_server_without_watches_is_asked_with_pauses() {
    let ends_at_once = vec![Ok(()), Ok(()), Ok(()), Ok(()), Ok(()), Ok(())];
    let forgets_at_once =
        vec![Ok(()), Err(gone()), Ok(()), Err(gone()), Ok(()), Err(gone()), Ok(()), Err(gone()), Ok(())];
    for results in [ends_at_once, forgets_at_once] {
        let time = time_of(100, results);
        assert!(time > Duration::from_secs(3), "{time:?}");
    }
}

#[test]
fn a_server_cannot_send_a_watch_to_sleep() {
    let throttled = |s| {
        let retry_after = Some(Duration::from_secs(s));
        Err(Error::Api(Box::new(StatusFailure { code: 429, retry_after, ..Default::default() })))
    };
    let time = time_of(5_000, vec![throttled(86_400), Ok(())]);
    assert!(time > Duration::from_secs(100) && time < Duration::from_secs(3_600), "{time:?}");
}

fn feed(server: &TestServer, kept: Arc<dyn InformerCache>) -> KindFeed {
    let connection = crate::kube::Connection::new(server.url());
    let client = Client::new(connection, crate::kube::Options::default()).unwrap();
    let options = Options::all("test", crate::api::core::NAMESPACE);
    KindFeed::new(client, options, kept, RunningWatch::default(), Stop::new())
}

/// `ADDED a 5` as a line of a watch.
fn line(event: &str) -> String {
    let words: Vec<&str> = event.split(' ').collect();
    let [kind, name, version] = words[..] else { panic!("{event}") };
    let metadata = format!(r#"{{"name":"{name}","resourceVersion":"{version}"}}"#);
    format!("{{\"type\":\"{kind}\",\"object\":{{\"metadata\":{metadata}}}}}\n")
}

fn answer(events: &[&str]) -> Vec<Act> {
    let text: String = events.iter().map(|event| line(event)).collect();
    [chunked_head(), chunk(text.as_bytes())].map(Act::Raw).into()
}

/// A source that records the keys and types of its changes.
fn telling() -> (WatchSource<Plain>, Arc<Mutex<Vec<String>>>, Listening) {
    let told = Arc::<Mutex<Vec<String>>>::default();
    let telling = Arc::clone(&told);
    let source = WatchSource::<Plain>::default();
    let listening = source.listen(move |change| {
        let sign = match (&change.old, &change.new) {
            (None, Some(_)) => "+",
            (Some(_), Some(_)) => "~",
            (_, None) => "-",
        };
        telling.lock().unwrap().push(format!("{sign}{}", change.key.name));
    });
    (source, told, listening)
}

#[test]
fn events_of_a_watch() {
    let table: &[(&str, &[&str], &[&str], &str)] = &[
        ("nothing", &[], &[], "4"),
        ("a bookmark alone", &["BOOKMARK - 9"], &[], "9"),
        ("no bookmark", &["ADDED a 5", "ADDED b 7"], &["+a", "+b"], "7"),
        ("the same twice", &["ADDED a 5", "ADDED a 5", "MODIFIED a 6", "MODIFIED a 6"], &["+a", "~a"], "6"),
        ("modified before added", &["MODIFIED a 5", "ADDED b 6"], &["+a", "+b"], "6"),
        ("gone and back", &["ADDED a 5", "DELETED a 6", "ADDED a 7"], &["+a", "-a", "+a"], "7"),
        ("gone twice", &["ADDED a 5", "DELETED a 6", "DELETED a 6"], &["+a", "-a", "-a"], "6"),
        ("a version that goes back", &["ADDED a 9", "ADDED b 5"], &["+a", "+b"], "5"),
        ("a bookmark that goes back", &["ADDED a 9", "BOOKMARK - 8"], &["+a"], "8"),
        ("no versions", &["ADDED a 5", "MODIFIED b ", "BOOKMARK - ", "DELETED a "], &["+a", "+b", "-a"], "5"),
    ];
    for (name, events, expected, at) in table {
        let events: Vec<String> = events.iter().map(|event| (*event).to_owned()).collect();
        let server = TestServer::plain(move |_| {
            let events: Vec<&str> = events.iter().map(String::as_str).collect();
            let mut acts = if events.is_empty() { vec![Act::Raw(chunked_head())] } else { answer(&events) };
            acts.push(Act::Raw(chunk(b"")));
            acts
        });
        let (source, told, _listening) = telling();
        let mut feed = feed(&server, Arc::new(source));
        let mut version = "4".to_owned();
        feed.follow(&mut version).unwrap();
        let owned: Vec<String> = expected.iter().map(|told| (*told).to_owned()).collect();
        assert_eq!((&told.lock().unwrap()[..], version.as_str()), (&owned[..], *at), "{name}");
    }
}

/// After an interrupted watch, the server's version is checked to detect a restore. The same version may then mean
/// another object.
#[test]
fn a_restored_server_is_listed_again() {
    let server = TestServer::plain(|seen| {
        if seen.path.contains("watch=") {
            let mut acts = answer(&["ADDED a 5", "ADDED b 6"]);
            acts.push(Act::Hangup);
            return acts;
        }
        let version = if seen.path.contains("limit=1&") || seen.path.ends_with("limit=1") { 3 } else { 7 };
        let page = format!(
            r#"{{"metadata":{{"resourceVersion":"{version}"}},"items":[{{"metadata":{{"name":"a","resourceVersion":"5"}}}}]}}"#
        );
        Act::json(200, &page)
    });
    let (source, told, _listening) = telling();
    let mut feed = feed(&server, Arc::new(source));
    let mut version = "4".to_owned();
    assert_eq!(feed.follow(&mut version).unwrap_err().verdict(), ErrorVerdict::Unreachable);
    assert_eq!(feed.follow(&mut version).unwrap_err().verdict(), ErrorVerdict::Gone);
    assert_eq!(feed.list().unwrap(), "7");
    assert_eq!(told.lock().unwrap()[..], ["+a", "+b", "~a", "-b"]);
    // Once it is known again, an equal version is equal.
    feed.list().unwrap();
    assert_eq!(told.lock().unwrap().len(), 4);
}

/// A restore is detected while the informer checks the server's version. The following watch would send nothing for as
/// long as servers allow it.
#[test]
fn a_restored_server_is_noticed_while_a_watch_starts() {
    let client = Arc::<std::sync::OnceLock<Client>>::default();
    let known = Arc::clone(&client);
    let server = TestServer::plain(move |seen| {
        if seen.path.contains("watch=") {
            return vec![Act::Raw(chunked_head()), Act::Silence];
        }
        known.get().unwrap().begin_anew().unwrap();
        Act::json(200, r#"{"metadata":{"resourceVersion":"7"},"items":[]}"#)
    });
    let mut feed = feed(&server, Arc::new(WatchSource::<Plain>::default()));
    client.set(feed.client.clone()).unwrap();
    feed.doubtful = true;
    assert_eq!(feed.follow(&mut "4".to_owned()).unwrap_err().verdict(), ErrorVerdict::Gone);
}

#[test]
fn one_invalid_object_does_not_break_the_list() {
    let page = r#"{"metadata":{"resourceVersion":"9"},"items":[{"metadata":{"name":"a"}},
        {"metadata":{"name":"b","labels":7}},{"metadata":{"name":"c"}}]}"#;
    let server = TestServer::plain(move |_| Act::json(200, page));
    let source = WatchSource::<Plain>::default();
    let known = ObjectMeta { resource_version: "1".to_owned(), ..ObjectMeta::default() };
    source.store().put(Key::cluster("b"), Plain { metadata: known });
    let mut feed = feed(&server, Arc::new(source.clone()));
    assert_eq!(feed.list().unwrap(), "9");
    // The old state of the invalid object stays: it is not gone.
    let store = source.store();
    let names: Vec<String> = store.all().into_iter().map(|(key, _)| key.name).collect();
    assert_eq!(names, ["a", "b", "c"]);
    assert!(store.is_synced());
}

#[test]
fn the_head_of_an_object_that_is_too_large_is_kept() {
    let many = vec!["0"; limits::STREAMED_NODES_MAX].join(",");
    let large = |version: u32| {
        format!(r#"{{"metadata":{{"name":"large","resourceVersion":"{version}"}},"spec":[{many}]}}"#)
    };
    let page = format!(r#"{{"metadata":{{"resourceVersion":"4"}},"items":[{}]}}"#, large(3));
    let deleted = format!("{{\"type\":\"DELETED\",\"object\":{}}}\n", large(6));
    let changed = format!("{{\"type\":\"MODIFIED\",\"object\":{}}}\n", large(5));
    let server = TestServer::plain(move |request| {
        if !request.path.contains("watch=") {
            return Act::json(200, &page);
        }
        vec![
            Act::Raw(chunked_head()),
            Act::Raw(chunk(changed.as_bytes())),
            Act::Raw(chunk(deleted.as_bytes())),
            Act::Raw(chunk(b"")),
        ]
    });
    let (source, told, _listening) = telling();
    let mut feed = feed(&server, Arc::new(source));
    let mut version = feed.list().unwrap();
    feed.follow(&mut version).unwrap();
    assert_eq!((told.lock().unwrap().join(" ").as_str(), version.as_str()), ("+large ~large -large", "6"));
}

#[test]
fn an_object_that_becomes_too_long_is_not_gone() {
    let text = "x".repeat(limits::OBJECT_BYTES_MAX);
    let long = |version: u32| {
        format!(r#"{{"metadata":{{"name":"long","resourceVersion":"{version}","labels":{{"a":"{text}"}}}}}}"#)
    };
    let small = r#"{"metadata":{"name":"long","resourceVersion":"3"}}"#.to_owned();
    // It grows, shrinks, is deleted; in the end it begins with something else than its name.
    let pages =
        [small.clone(), long(4), format!(r#"{{"data":"{text}","metadata":{{"name":"long"}}}}"#), small];
    let lists = std::sync::atomic::AtomicUsize::new(0);
    let events = [("MODIFIED", 5), ("DELETED", 6)]
        .map(|(kind, version)| format!("{{\"type\":\"{kind}\",\"object\":{}}}\n", long(version)));
    let server = TestServer::plain(move |request| {
        if request.path.contains("watch=") {
            let mut acts = vec![Act::Raw(chunked_head())];
            acts.extend(events.iter().map(|event| Act::Raw(chunk(event.as_bytes()))));
            acts.push(Act::Raw(chunk(b"")));
            return acts;
        }
        let page = &pages[lists.fetch_add(1, std::sync::atomic::Ordering::SeqCst)];
        let other = r#"{"metadata":{"name":"other","resourceVersion":"2"}}"#;
        Act::json(200, &format!(r#"{{"metadata":{{"resourceVersion":"4"}},"items":[{other},{page}]}}"#))
    });
    let (source, told, _listening) = telling();
    let mut feed = feed(&server, Arc::new(source));
    let told = || std::mem::take(&mut *told.lock().unwrap()).join(" ");
    feed.list().unwrap();
    assert_eq!(told(), "+other +long");
    // The kind keeps what is known of it.
    let mut version = feed.list().unwrap();
    assert_eq!(told(), "~long");
    let error = feed.list().unwrap_err();
    assert!(chain(&error).contains("too long, and no name at the beginning: 1 object"), "{error}");
    assert_eq!(told(), "");
    feed.follow(&mut version).unwrap();
    assert_eq!((told().as_str(), version.as_str()), ("~long -long", "6"));
    feed.list().unwrap();
    assert_eq!(told(), "+long");
}

#[derive(serde::Deserialize)]
struct Plain {
    metadata: ObjectMeta,
}

impl PartialObject for Plain {
    fn metadata(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn of_head(head: &Value) -> Option<Self> {
        serde_json::from_value(head["metadata"].clone()).ok().map(|metadata| Self { metadata })
    }
}

/// The memory limit for the marks of tens of thousands of objects; their names alone are longer.
#[test]
fn marks_notice_versions_and_take_few_bytes() {
    const OBJECTS: usize = 20_000;
    let item = |n: usize, version: usize| {
        format!(
            r#"{{"metadata":{{"name":"component-server-{n}-5b2f1c3d","namespace":"shoot--team--cluster-{}","resourceVersion":"{version}",
            "labels":{{"managed-by":"secrets-manager","checksum-of-config":"13498283712004218231"}}}}}}"#,
            n % 50
        )
    };
    let page = |items: Vec<String>| {
        Act::json(200, &format!(r#"{{"metadata":{{"resourceVersion":"9"}},"items":[{}]}}"#, items.join(",")))
    };
    let lists = std::sync::atomic::AtomicUsize::new(0);
    let server = TestServer::plain(move |_| match lists.fetch_add(1, std::sync::atomic::Ordering::SeqCst) {
        0 => page((0..OBJECTS).map(|n| item(n, 5)).collect()),
        // One object is gone, one has changed, one is new.
        _ => page((1..=OBJECTS).map(|n| item(n, if n == 7 { 6 } else { 5 })).collect()),
    });
    let (marks, seen) = (Marks::default(), Arc::<Mutex<Vec<(String, bool)>>>::default());
    let seeing = Arc::clone(&seen);
    let _listening = marks.listen(move |s| seeing.lock().unwrap().push((s.key.name.clone(), s.is_new)));
    let mut feed = feed(&server, Arc::new(marks.clone()));
    feed.list().unwrap();
    assert_eq!((marks.view().objects, marks.view().synced), (OBJECTS, true));
    assert!(seen.lock().unwrap().drain(..).all(|(_, is_new)| is_new));
    feed.list().unwrap();
    let name = |n: usize| format!("component-server-{n}-5b2f1c3d");
    assert_eq!(*seen.lock().unwrap(), [(name(7), false), (name(OBJECTS), true)]);
    assert_eq!(marks.view().objects, OBJECTS);
    marks.clear();
    assert_eq!((marks.view().objects, marks.view().synced), (0, false));
}
