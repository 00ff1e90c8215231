//! The storage of a cluster, key by key, without its API server: resets a running cluster to an earlier state in less
//! than a second, while a new start takes nine.
//!
//! Server and controllers see this as deletions and changes of objects, regardless of finalizers. etcd also serves its
//! API as JSON, with keys and values in base64.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use gardenlet::format::base64;
use serde_json::{Value, json};

use crate::failure::{Doing, Failure, Result};
use crate::wait;

/// The prefix of all objects, also of those of a gardener-apiserver; the end of the range is the first key after them.
const RANGE: (&str, &str) = ("/registry-gardener/", "/registry0");
/// Keys that change independently: leases of servers, and accounts that their controllers create at first use.
const OF_SERVERS: &[&str] = &[
    "/registry/events/",
    "/registry/masterleases/",
    "/registry/leases/kube-system/apiserver-",
    "/registry/serviceaccounts/kube-system/",
];
/// Keys to delete first: without a namespace or a definition none of its objects is created again.
const FIRST: &[&str] = &[
    "/registry/namespaces/",
    "/registry/apiextensions.k8s.io/customresourcedefinitions/",
    "/registry/apiregistration.k8s.io/apiservices/",
];
/// The number of reads in a row without a change until a state counts as settled: controllers react within
/// milliseconds.
const QUIET_LOOKS: u32 = 10;
const SETTLING_S: u64 = 30;

/// All keys and values, in base64, without those that change independently.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Stored(BTreeMap<String, String>);

/// etcd on a port of loopback.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Etcd(pub(crate) u16);

impl Etcd {
    /// The stored data, once nothing changes any longer.
    pub(crate) fn settled(self) -> Result<Stored> {
        let (mut before, mut quiet) = (Stored::default(), 0);
        wait::until("the cluster to settle", SETTLING_S, || {
            let now = self.read()?;
            quiet = if now == before { quiet + 1 } else { 0 };
            before = now;
            Ok::<_, Failure>((quiet >= 2 * QUIET_LOOKS).then(|| before.clone()))
        })
    }

    /// Restores a state, again and again until no controller changes it any longer. The failure names the last changes.
    pub(crate) fn rewind(self, to: &Stored) -> Result<()> {
        let mut quiet = 0;
        let mut last = String::new();
        wait::until("the cluster to be as it was", SETTLING_S, || {
            let now = self.read()?;
            let steps = steps(&now, to);
            if steps.is_empty() {
                quiet += 1;
                return if quiet < QUIET_LOOKS { Err(Failure::new(last.clone())) } else { Ok(Some(())) };
            }
            quiet = 0;
            last = steps.iter().map(|(key, _)| text(key)).collect::<Vec<_>>().join(", ");
            steps.iter().try_for_each(|(key, value)| self.write(key, *value))?;
            Ok(None)
        })
    }

    /// Forgets all revisions but the last one.
    pub(crate) fn compact(self) -> Result<()> {
        let now = self.call("range", &json!({"key": base64::encode(b"compact_rev_key")}))?;
        self.call("compaction", &json!({"revision": now["header"]["revision"], "physical": true})).map(drop)
    }

    fn read(self) -> Result<Stored> {
        let (begin, end) = (base64::encode(RANGE.0.as_bytes()), base64::encode(RANGE.1.as_bytes()));
        let answer = self.call("range", &json!({"key": begin, "range_end": end}))?;
        let entry = |entry: &Value| {
            let field = |name: &str| entry[name].as_str().unwrap_or_default().to_owned();
            (field("key"), field("value"))
        };
        let all = answer["kvs"].as_array().into_iter().flatten().map(entry);
        Ok(Stored(all.filter(|(key, _)| !begins(&text(key), OF_SERVERS)).collect()))
    }

    /// Each key is a separate revision, as with an API server.
    fn write(self, key: &str, value: Option<&str>) -> Result<()> {
        match value {
            Some(value) => self.call("put", &json!({"key": key, "value": value})),
            None => self.call("deleterange", &json!({"key": key})),
        }
        .map(drop)
    }

    /// Calls a method of the key-value service.
    pub(crate) fn call(self, method: &str, body: &Value) -> Result<Value> {
        self.ask(&format!("kv/{method}"), body)
    }

    /// Calls a method of any service.
    pub(crate) fn ask(self, method: &str, body: &Value) -> Result<Value> {
        let doing = || format!("ask etcd on port {} for {method}", self.0);
        let mut stream = TcpStream::connect(("127.0.0.1", self.0)).doing(doing)?;
        stream.set_read_timeout(Some(Duration::from_secs(10))).doing(doing)?;
        let body = body.to_string();
        // With HTTP/1.0 the answer is one piece that ends with the connection.
        let head = format!("POST /v3/{method} HTTP/1.0\r\nContent-Length: {}\r\n\r\n", body.len());
        stream.write_all((head + &body).as_bytes()).doing(doing)?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).doing(doing)?;
        let body = answer.split_once("\r\n\r\n").filter(|(head, _)| head.contains(" 200 "));
        let (_, body) = body.ok_or_else(|| Failure::new(format!("{}: {answer}", doing())))?;
        serde_json::from_str(body).doing(doing)
    }
}

/// The keys to write, with their values, and the keys to delete, which come first.
fn steps<'a>(now: &'a Stored, to: &'a Stored) -> Vec<(&'a str, Option<&'a str>)> {
    let foreign = now.0.keys().filter(|key| !to.0.contains_key(*key)).map(|key| (key.as_str(), None));
    let mut steps: Vec<_> = foreign.collect();
    steps.sort_by_key(|(key, _)| !begins(&text(key), FIRST));
    let changed = to.0.iter().filter(|(key, value)| now.0.get(*key) != Some(value));
    steps.extend(changed.map(|(key, value)| (key.as_str(), Some(value.as_str()))));
    steps
}

fn begins(key: &str, with: &[&str]) -> bool {
    with.iter().any(|prefix| key.starts_with(prefix))
}

fn text(key: &str) -> String {
    String::from_utf8_lossy(&base64::decode(key.as_bytes()).unwrap_or_default()).into_owned()
}
