//! Faults that a test orders from the server: the client sees each of them as intended.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use gardenlet::api::core::{CONFIG_MAP, NAMESPACE};
use gardenlet::api::meta::{ALL_NAMESPACES, Key, Metadata};
use gardenlet::base::clock::{Clock, Simulated, Timestamp};
use gardenlet::kube::{Client, Error, ErrorVerdict, ListParams, Method, Patch, WatchEvent, WatchParams};
use serde_json::{Value, json};

use support::http::faults::{Action, failure};
use support::options::patience;
use support::{Options, TestCluster};

const TIME: Timestamp = Timestamp::from_unix(1_750_000_000);

fn cluster() -> (TestCluster, Client, Arc<Simulated>) {
    let simulated = Simulated::new(TIME, 1);
    let cluster = TestCluster::start(Options::new("faulty", &Clock::new(simulated.clone())));
    cluster.create(
        "v1",
        "configmaps",
        &json!({"metadata": {"name": "a", "namespace": "default"}, "data": {"k": "1"}}),
    );
    let client = cluster.client().with_deadline(patience(Duration::from_secs(30)));
    (cluster, client, simulated)
}

fn get(client: &Client) -> Result<Value, Error> {
    client.get(&CONFIG_MAP, &Key::new("default", "a"))
}

fn write(client: &Client, value: &str) -> Result<Value, Error> {
    client.patch(&CONFIG_MAP, &Key::new("default", "a"), &Patch::Merge(json!({"data": {"k": value}})))
}

fn stored(cluster: &TestCluster) -> String {
    let object = cluster.get("", "configmaps", "default", "a").unwrap();
    object["data"]["k"].as_str().unwrap().to_owned()
}

#[test]
fn refusals_carry_their_status() {
    let (cluster, client, _) = cluster();
    let table = [
        (409, ErrorVerdict::Conflict),
        (403, ErrorVerdict::Denied),
        (401, ErrorVerdict::Denied),
        (500, ErrorVerdict::Unreachable),
    ];
    for (status, verdict) in table {
        let fault = cluster.faults().on("GET", "/configmaps/a").once().answer(status);
        assert_eq!(get(&client).unwrap_err().verdict(), verdict, "{status}");
        assert_eq!(fault.hits(), 1);
        get(&client).unwrap();
    }
    cluster.faults().on("GET", "/configmaps/a").once().answer_later(429, 7);
    let verdict = get(&client).unwrap_err().verdict();
    assert_eq!(verdict, ErrorVerdict::Throttled(Some(Duration::from_secs(7))));
}

#[test]
fn a_fault_happens_as_often_as_ordered() {
    let (cluster, client, _) = cluster();
    let fault = cluster.faults().on("", "/configmaps/a").skip(2).times(2).answer(500);
    let outcomes: Vec<bool> = (0..6).map(|_| get(&client).is_ok()).collect();
    assert_eq!(outcomes, [true, true, false, false, true, true]);
    assert_eq!(fault.hits(), 2);
    let always = cluster.faults().on("", "/configmaps/a").answer(500);
    assert!(get(&client).is_err());
    always.cancel();
    assert!(get(&client).is_ok());
}

#[test]
fn connections_break_before_and_after_the_effect() {
    let (cluster, client, _) = cluster();
    for (number, (action, takes_effect)) in
        [(Action::Reset, false), (Action::DropAfter, true), (Action::Half, true), (Action::BrokenJson, true)]
            .into_iter()
            .enumerate()
    {
        let (before, value) = (stored(&cluster), format!("v{number}"));
        cluster.faults().on("PATCH", "/configmaps/a").once().then(action);
        let error = write(&client, &value).unwrap_err();
        assert!(
            matches!(error.verdict(), ErrorVerdict::Unreachable | ErrorVerdict::Invalid),
            "{number}: {error:?}"
        );
        assert_eq!(stored(&cluster), if takes_effect { value } else { before }, "{number}");
    }
    cluster.faults().on("PATCH", "/configmaps/a").once().then(Action::Html(502));
    assert_eq!(write(&client, "html").unwrap_err().verdict(), ErrorVerdict::Unreachable);
    let broken = cluster.requests().into_iter().filter(|r| r.fault.is_some()).count();
    assert_eq!(broken, 5);
}

#[test]
fn silence_and_delay_follow_the_clock_of_the_server() {
    let (cluster, client, simulated) = cluster();
    cluster.faults().on("GET", "/configmaps/a").once().then(Action::Silence(Duration::from_secs(3_600)));
    assert_eq!(
        get(&client.with_deadline(Duration::from_millis(200))).unwrap_err().verdict(),
        ErrorVerdict::Unreachable
    );
    let advancing = simulated.clone();
    let action = Action::Tell(Arc::new(move |_| advancing.advance(Duration::from_secs(60))));
    cluster.faults().on("GET", "/configmaps/a").once().then(Action::Delay(Duration::from_millis(20)));
    cluster.faults().on("GET", "/configmaps/a").once().then(action);
    get(&client).unwrap();
}

#[test]
fn reads_can_be_stale_and_dates_wrong() {
    let (cluster, client, _) = cluster();
    let revision = cluster.store().read().revision;
    write(&client, "2").unwrap();
    cluster.faults().on("GET", "/configmaps").times(2).then(Action::Stale(revision));
    assert_eq!(get(&client).unwrap()["data"]["k"], "1");
    let list = client.list::<Value>(&CONFIG_MAP, "default", &ListParams::default()).unwrap();
    assert_eq!(list.metadata.resource_version, revision.to_string());
    assert_eq!(get(&client).unwrap()["data"]["k"], "2");
    cluster.faults().on("GET", "/version").then(Action::WrongDate(-86_400));
    client.version().unwrap();
}

fn watch(client: &Client, version: &str) -> gardenlet::kube::Watch<Metadata> {
    let params =
        WatchParams { resource_version: version.to_owned(), timeout_seconds: 5, ..WatchParams::default() };
    client.watch(&NAMESPACE, ALL_NAMESPACES, &params).unwrap()
}

fn now(cluster: &TestCluster) -> String {
    cluster.store().read().revision.to_string()
}

fn namespace(cluster: &TestCluster, name: &str) {
    cluster.create("v1", "namespaces", &json!({"metadata": {"name": name}}));
}

fn added(watch: &mut gardenlet::kube::Watch<Metadata>) -> String {
    match watch.next() {
        Some(Ok(WatchEvent::Added(object))) => object.metadata.name,
        other => panic!("{other:?}"),
    }
}

#[test]
fn watches_lose_events_end_and_expire() {
    let (cluster, client, _) = cluster();
    let version = now(&cluster);
    cluster.faults().on("GET", "/namespaces").once().then(Action::SkipEvent(1));
    let mut first = watch(&client, &version);
    ["x", "y", "z"].iter().for_each(|name| namespace(&cluster, name));
    assert_eq!(added(&mut first), "x");
    assert_eq!(added(&mut first), "z");
    cluster.faults().on("GET", "/namespaces").once().then(Action::EndAfterEvents(1));
    let mut second = watch(&client, &version);
    assert_eq!(added(&mut second), "x");
    assert!(second.next().is_none());
    cluster.faults().on("GET", "/namespaces").once().then(Action::HalfEvent(1));
    let mut third = watch(&client, &version);
    assert_eq!(added(&mut third), "x");
    assert!(matches!(third.next(), Some(Err(_))));
    cluster.faults().on("GET", "/namespaces").once().then(Action::WatchError(failure(410, None)));
    assert!(matches!(watch(&client, &version).next(), Some(Err(e)) if e.is_gone()));
    cluster.compact();
    assert!(matches!(watch(&client, &version).next(), Some(Err(e)) if e.is_gone()));
}

#[test]
fn the_server_goes_down_and_comes_back() {
    let (cluster, client, _) = cluster();
    get(&client).unwrap();
    cluster.server().down();
    assert_eq!(get(&client).unwrap_err().verdict(), ErrorVerdict::Unreachable);
    cluster.server().up().unwrap();
    get(&client).unwrap();
    cluster.server().set_healthy(false);
    assert_eq!(client.raw(Method::Get, "/healthz", None, "").unwrap().status, 500);
}

#[test]
fn certificates_expire_on_both_sides() {
    let (cluster, client, simulated) = cluster();
    let short = cluster.authority().client(
        "admin",
        &["system:masters".to_owned()],
        TIME,
        TIME.plus(Duration::from_secs(60)),
    );
    let connection = (*client.connection()).clone().with_certificate(short.certificate, short.key);
    client.replace(connection).unwrap();
    get(&client).unwrap();
    simulated.advance(Duration::from_secs(120));
    cluster.server().cut();
    // The handshake works and the request is refused, as with a real server.
    assert_eq!(get(&client).unwrap_err().status_code(), Some(401));
    let client = cluster.client();
    get(&client).unwrap();
    cluster.serve_certificate(TIME.minus(Duration::from_secs(60)), TIME);
    cluster.server().cut();
    assert_eq!(get(&client).unwrap_err().verdict(), ErrorVerdict::Unreachable);
    cluster.rotate_ca();
    assert!(get(&client).is_err());
    get(&cluster.client()).unwrap();
}

#[test]
fn a_test_can_observe_requests() {
    let (cluster, client, _) = cluster();
    let writes = Arc::new(AtomicU32::new(0));
    let counter = writes.clone();
    let tell = Action::Tell(Arc::new(move |_| {
        counter.fetch_add(1, Ordering::SeqCst);
    }));
    cluster.faults().when(support::http::faults::Seen::is_write).then(tell);
    get(&client).unwrap();
    write(&client, "2").unwrap();
    assert_eq!(writes.load(Ordering::SeqCst), 1);
    let last = cluster.requests().pop().unwrap();
    assert_eq!((last.user.as_str(), last.status), ("admin", 200));
    assert_eq!(last.body, Some(json!({"data": {"k": "2"}})));
    assert_eq!(last.info.verb, "patch");
}
