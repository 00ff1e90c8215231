//! Keeps the leases of a full snapshot alive while deltas are applied: a lease that expires deletes its keys, and this makes a revision
//! that the deltas do not know. A kube-apiserver has a lease of 15 s, and a download takes longer.

use std::thread::JoinHandle;
use std::time::Duration;

use serde_json::Value;

use crate::api::meta::text;
use crate::base::clock::{Clock, Mono};
use crate::base::json::json;
use crate::base::stop::Stop;
use crate::base::thread;
use crate::limits;
use crate::snapshot::error::Error;
use crate::snapshot::gateway::EtcdGateway;

/// A lease is renewed after this part of its time.
const PART: u32 = 3;
/// The pause of a thread without leases, and after a failed renewal.
const PAUSE: Duration = Duration::from_millis(500);
const STACK_BYTES: usize = 256 << 10;

/// Renews leases until it is dropped.
#[derive(Debug)]
pub(super) struct LeaseKeeper {
    stop: Stop,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct KeptLease {
    id: String,
    due: Mono,
}

impl LeaseKeeper {
    /// Renews all leases of an etcd once, and starts the thread that repeats it. An etcd without leases needs no thread. Errors: etcd
    /// does not answer, or the thread does not start.
    pub(super) fn start(etcd: EtcdGateway, clock: Clock) -> Result<Self, Error> {
        let doing = "ask etcd for its leases";
        let answer = etcd.ask("lease/leases", b"{}", doing, limits::ETCD_LEASES_BYTES_MAX)?;
        let mut leases = Vec::new();
        for id in answer["leases"].as_array().into_iter().flatten().map(|lease| text(&lease["ID"])) {
            if let Some(time) = renew(&etcd, id)? {
                let id = id.to_owned();
                leases.push(KeptLease { id, due: clock.mono().saturating_add(time / PART) });
            }
        }
        let stop = Stop::new();
        let mut keeper = Self { stop: stop.clone(), thread: None };
        if !leases.is_empty() {
            let thread = thread::spawn("leases", STACK_BYTES, move || keep(&etcd, leases, &stop, &clock));
            keeper.thread = Some(thread.map_err(Error::io("start a thread"))?);
        }
        Ok(keeper)
    }
}

impl Drop for LeaseKeeper {
    fn drop(&mut self) {
        self.stop.stop();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// A failure is not reported: if a lease expires, the revisions say so.
fn keep(etcd: &EtcdGateway, mut leases: Vec<KeptLease>, stop: &Stop, clock: &Clock) {
    let mut pause = Duration::ZERO;
    while !stop.wait(clock, pause) {
        let now = clock.mono();
        leases.retain_mut(|lease| {
            if lease.due > now || stop.is_stopped() {
                return true;
            }
            let renewed = renew(etcd, &lease.id);
            let next = match &renewed {
                Ok(Some(time)) => *time / PART,
                _ => PAUSE,
            };
            lease.due = clock.mono().saturating_add(next);
            !matches!(renewed, Ok(None))
        });
        let next = leases.iter().map(|lease| lease.due).min();
        pause = next.map_or(PAUSE, |next| next.saturating_sub(clock.mono()));
    }
}

/// Renews a lease. Returns its whole time; `None` if it is gone.
fn renew(etcd: &EtcdGateway, id: &str) -> Result<Option<Duration>, Error> {
    let doing = "renew a lease of etcd";
    let body = json!({ "ID": id }).to_string();
    let answer = etcd.ask("lease/keepalive", body.as_bytes(), doing, limits::SNAPSHOT_ANSWER_BYTES_MAX)?;
    time_of(&answer).map_err(|why| Error::Refused { doing: doing.to_owned(), why: why.to_owned() })
}

/// A lease that is gone has no time.
fn time_of(answer: &Value) -> Result<Option<Duration>, &'static str> {
    const BAD: &str = "its answer has no time";
    let renewal = answer["result"].as_object().ok_or(BAD)?;
    let Some(ttl) = renewal.get("TTL") else { return Ok(None) };
    let seconds: i64 = text(ttl).parse().map_err(|_| BAD)?;
    Ok(u64::try_from(seconds).ok().filter(|seconds| *seconds > 0).map(Duration::from_secs))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::view;

    #[test]
    fn a_renewal_tells_the_time_of_a_lease() {
        let table = [
            (
                r#"{"result":{"header":{"revision":"2"},"ID":"7","TTL":"15"}}"#,
                Ok(Some(Duration::from_secs(15))),
            ),
            (r#"{"result":{"header":{"revision":"2"},"ID":"7"}}"#, Ok(None)),
            (r#"{"result":{"ID":"7","TTL":"-1"}}"#, Ok(None)),
            (r#"{"result":{"ID":"7","TTL":"x"}}"#, Err("its answer has no time")),
        ];
        for (answer, expected) in table {
            assert_eq!(time_of(&view::json(answer.as_bytes()).unwrap()), expected, "{answer}");
        }
        assert!(time_of(&json!({})).is_err());
    }
}
