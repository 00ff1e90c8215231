//! `gardenlet etcd`: the commands that run in the pods of an etcd and next to them.

use std::ffi::OsString;
use std::fs;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;

use super::clusters::{proxy_env, system_cas};
use super::{Io, SUCCESS, Variable, fail_as, help, print, refuse, say};
use crate::base::clock::{Clock, Timestamp};
use crate::base::cut::head;
use crate::base::error::chain;
use crate::base::json::json;
use crate::base::stop::Stop;
use crate::format::human;
use crate::format::time::rfc3339;
use crate::net::{AnonymousParty, ProxyPolicy, SystemDialer, TlsParty};
use crate::operation::components::etcd::plain::moving::{ACCEPT_LOSS, AT_LEAST, NEVER_EMPTY, RESULT};
use crate::operation::components::etcd::plain::refused::UNUSABLE;
use crate::snapshot::copy::{self, CopyEnd, CopyOutcome, Waiting};
use crate::snapshot::directory::DirectoryStore;
use crate::snapshot::gateway::EtcdGateway;
use crate::snapshot::last;
use crate::snapshot::name::{Kind, Snapshot};
use crate::snapshot::restore::{self, PreparedData, SnapshotDemand};
use crate::snapshot::s3::credentials::Bucket;
use crate::snapshot::s3::{S3, StoreNetwork};
use crate::snapshot::take::{self, TakeOutcome};
use crate::snapshot::{Error, SnapshotStore};

mod arguments;
mod install;

use arguments::{EtcdCommand, EtcdRun, RunOrder, SnapshotCopy, Start, StorePlace, parse};

/// The pause between requests to an etcd that does not answer.
const LOOK: Duration = Duration::from_secs(5);
/// The part of the reason that a kubelet shows.
const REASON_BYTES_MAX: usize = 1_000;

/// Runs the command and returns the exit code.
pub(super) fn main(io: &mut Io<'_>, args: Vec<OsString>, variable: Variable<'_>) -> u8 {
    let mut wants_json = false;
    let done = match parse(args) {
        Err(usage) => return refuse(io, &usage),
        Ok(EtcdCommand::Help(about)) => return print(io, &help::page(about)),
        Ok(EtcdCommand::Install { directory, give }) => install(io, &directory, give.as_deref()),
        Ok(EtcdCommand::Start(task)) => start(io, &task, variable),
        Ok(EtcdCommand::Snapshot(task)) => snapshot(io, &task, variable),
        Ok(EtcdCommand::Copy(task)) => copy(io, &task, variable),
        Ok(EtcdCommand::List { place, as_json }) => {
            wants_json = as_json;
            list(io, &place, as_json, variable)
        }
    };
    done.unwrap_or_else(|error| fail_as(io, wants_json, "etcd", &chain(&error)))
}

fn install(io: &mut Io<'_>, directory: &Path, give: Option<&Path>) -> Result<u8, Error> {
    install::install(directory)?;
    // An etcd with data needs no store: it must also start if the disk of the snapshots is broken.
    if let Some(Err(error)) = give.map(install::give) {
        say(io, format_args!("gardenlet etcd install: {}\n", chain(&error)));
    }
    Ok(SUCCESS)
}

fn store(place: &StorePlace, variable: Variable<'_>) -> Result<Box<dyn SnapshotStore>, Error> {
    match place {
        StorePlace::Directory { root, prefix } => Ok(Box::new(DirectoryStore::new(root.clone(), prefix))),
        StorePlace::S3 { credentials, prefix } => {
            let network = StoreNetwork {
                dialer: Arc::new(SystemDialer),
                proxy: ProxyPolicy::from_env(&proxy_env(variable)).map_err(Error::Unusable)?,
                system_cas: system_cas(variable),
                clock: Clock::system(),
                stop: Stop::new(),
            };
            Ok(Box::new(S3::new(Bucket::read(credentials)?, prefix, &network)))
        }
    }
}

/// A store that is needed because there are no data. Errors: it has no snapshots, and etcd must not start empty.
fn filled(store: Box<dyn SnapshotStore>, is_never_empty: bool) -> Result<Box<dyn SnapshotStore>, Error> {
    if !is_never_empty || !store.list()?.is_empty() {
        return Ok(store);
    }
    Err(Error::Unusable(format!(
        "there are no data that etcd could start with, and {} has no snapshots: etcd does not start empty while its Shoot moves \
         ({NEVER_EMPTY}); bring the snapshots there, or annotate the Shoot with {ACCEPT_LOSS}=true to begin with nothing",
        store.place()
    )))
}

/// Whether a store answers, and what it has cannot be restored. Another copy of its snapshots may help.
const fn is_of_snapshots(error: &Error) -> bool {
    match error {
        Error::Unusable(_) | Error::Broken { .. } => true,
        Error::Io { .. } | Error::Net { .. } | Error::Refused { .. } => false,
    }
}

/// Which snapshot may be restored. Errors: the variable with the revision has no number.
fn demand(variable: Variable<'_>, is_never_empty: bool) -> Result<SnapshotDemand, Error> {
    if !is_never_empty {
        return Ok(SnapshotDemand::NewestWhole);
    }
    let Some(text) = variable(AT_LEAST) else { return Ok(SnapshotDemand::OnlyNewest { revision: 0 }) };
    let revision =
        text.parse().map_err(|_| Error::Unusable(format!("{AT_LEAST}={text}: expected a revision")))?;
    Ok(SnapshotDemand::OnlyNewest { revision })
}

/// Prepares the data directory and replaces this process by etcd.
fn start(io: &mut Io<'_>, task: &Start, variable: Variable<'_>) -> Result<u8, Error> {
    let mut tell = |text: &str| say(io, format_args!("gardenlet etcd start: {text}\n"));
    let is_never_empty = variable(NEVER_EMPTY).is_some_and(|value| value == "true");
    let begun = Clock::system().now();
    let open = || filled(store(&task.store, variable)?, is_never_empty);
    let accepted = demand(variable, is_never_empty);
    let is_demand_clear = accepted.is_ok();
    let prepared = accepted.and_then(|accepted| restore::prepare(&task.place, accepted, open, &mut tell));
    if let Err(error) = &prepared {
        let mut result = failure(&chain(error), begun);
        result[UNUSABLE] = json!(is_demand_clear && is_of_snapshots(error));
        leave(io, "start", variable(RESULT).as_deref().map(Path::new), &result);
    }
    let mut tell = |text: &str| say(io, format_args!("gardenlet etcd start: {text}\n"));
    let ready = prepared?;
    if let PreparedData::Restored { snapshot, deltas, revision } = ready {
        let and =
            if deltas == 0 { String::new() } else { format!(" with {}", human::counted(deltas, "delta")) };
        tell(&format!("{snapshot}{and} (revision {revision}) is restored"));
    }
    let mut etcd = Command::new(&task.place.etcd);
    etcd.arg(format!("--config-file={}", task.place.config.display()));
    // `exec` returns only if it failed.
    let source = etcd.exec();
    Err(Error::Io { doing: format!("start {}", task.place.etcd.display()), source })
}

fn snapshot(io: &mut Io<'_>, task: &EtcdRun, variable: Variable<'_>) -> Result<u8, Error> {
    let clock = Clock::system();
    let begun = clock.now();
    let taken = take_one(task, variable, &clock);
    let result = match &taken {
        Ok(outcome) => told(outcome, begun),
        Err(error) => failure(&chain(error), begun),
    };
    leave(io, "snapshot", task.result.as_deref(), &result);
    let outcome = taken?;
    for warning in &outcome.warnings {
        say(io, format_args!("gardenlet etcd snapshot: {warning}\n"));
    }
    Ok(print(io, &format!("{result}\n")))
}

/// What the agent reads about a run that failed.
fn failure(why: &str, begun: Timestamp) -> Value {
    json!({"error": cut(why), "time": rfc3339(begun)})
}

/// Leaves the result where the agent finds it.
fn leave(io: &mut Io<'_>, verb: &str, path: Option<&Path>, result: &Value) {
    if let Some(path) = path
        && let Err(error) = fs::write(path, result.to_string())
    {
        say(io, format_args!("gardenlet etcd {verb}: cannot write {}: {error}\n", path.display()));
    }
}

fn copy(io: &mut Io<'_>, task: &SnapshotCopy, variable: Variable<'_>) -> Result<u8, Error> {
    let (clock, stop) = (Clock::system(), Stop::new());
    let begun = clock.now();
    let mut tell = |text: &str| say(io, format_args!("gardenlet etcd copy: {text}\n"));
    let ended = store(&task.from, variable).and_then(|from| {
        let to = store(&task.to, variable)?;
        copy::run(&*from, &*to, task.order, Waiting { clock: &clock, stop: &stop }, &mut tell)
    });
    let result = match &ended {
        Ok(CopyEnd::Done(outcome)) => told_of_copy(outcome, begun),
        Ok(CopyEnd::Refused(refusal)) => {
            let mut result = failure(&refusal.why, begun);
            result["acceptable"] = json!(refusal.is_loss);
            result
        }
        Err(error) => failure(&chain(error), begun),
    };
    leave(io, "copy", task.result.as_deref(), &result);
    match ended? {
        CopyEnd::Done(_) => Ok(print(io, &format!("{result}\n"))),
        CopyEnd::Refused(refusal) => {
            let advice = if refusal.is_loss { "; --accept-loss copies what can be restored" } else { "" };
            Err(Error::Unusable(format!("{}{advice}", refusal.why)))
        }
    }
}

fn told_of_copy(outcome: &CopyOutcome, begun: Timestamp) -> Value {
    let mut told = json!({
        "snapshot": outcome.full.as_ref().map(|name| &name.text),
        "revision": outcome.revision,
        "deltas": outcome.deltas,
        "copied": outcome.copied,
        "bytes": outcome.bytes,
        "startsEmpty": outcome.starts_empty,
        "time": rfc3339(begun),
    });
    if let Some(lost) = &outcome.lost {
        told["lost"] = json!(cut(lost));
    }
    told
}

fn take_one(task: &EtcdRun, variable: Variable<'_>, clock: &Clock) -> Result<TakeOutcome, Error> {
    let store = store(&task.store, variable)?;
    let party: Arc<dyn TlsParty> = match &task.files {
        Some(files) => Arc::new(files.clone()),
        None => Arc::new(AnonymousParty { system_cas: system_cas(variable) }),
    };
    let etcd = EtcdGateway::new(&task.endpoint, party, Arc::new(SystemDialer), clock.clone());
    wait_for(&etcd, task.patience, clock);
    match task.order {
        RunOrder::Final => last::run(&etcd, &*store, clock),
        RunOrder::Regular { keep, window } => {
            let may_defragment = window.is_some_and(|window| window.contains(clock.now()));
            take::run(&etcd, &*store, take::TakeOrder { keep, may_defragment }, clock)
        }
    }
}

/// Waits until etcd answers, but not longer than this: it may be starting.
fn wait_for(etcd: &EtcdGateway, patience: Duration, clock: &Clock) {
    let begun = clock.mono();
    while clock.mono().saturating_sub(begun) < patience && etcd.status().is_err() {
        Stop::new().wait(clock, LOOK);
    }
}

/// The result for the agent.
fn told(outcome: &TakeOutcome, begun: Timestamp) -> Value {
    json!({
        "snapshot": outcome.snapshot.text,
        "revision": outcome.snapshot.revision,
        "bytes": outcome.bytes,
        "databaseBytes": outcome.status.bytes,
        "databaseBytesInUse": outcome.status.bytes_in_use,
        "time": rfc3339(begun),
        "kept": outcome.kept,
        "taken": outcome.is_taken,
        "defragmented": outcome.is_defragmented,
        "final": outcome.snapshot.is_final,
    })
}

fn cut(text: &str) -> String {
    head(&text.replace('\n', " "), REASON_BYTES_MAX).to_owned()
}

fn list(io: &mut Io<'_>, place: &StorePlace, as_json: bool, variable: Variable<'_>) -> Result<u8, Error> {
    let store = store(place, variable)?;
    let all = store.list()?;
    let kind = |snapshot: &Snapshot| if snapshot.name.kind == Kind::Full { "full" } else { "delta" };
    if as_json {
        let item = |snapshot: &Snapshot| {
            json!({"name": snapshot.name.text, "kind": kind(snapshot), "revision": snapshot.name.revision,
                "time": rfc3339(snapshot.name.time), "bytes": snapshot.bytes})
        };
        return Ok(print(io, &format!("{}\n", Value::from_iter(all.iter().map(item)))));
    }
    let mut text = format!("{} in {}\n", human::counted(all.len(), "snapshot"), store.place());
    for snapshot in &all {
        let (name, kind) = (&snapshot.name, kind(snapshot));
        text += &format!(
            "{} {kind} revision {} {} bytes {}\n",
            rfc3339(name.time),
            name.revision,
            snapshot.bytes,
            name.text
        );
    }
    Ok(print(io, &text))
}

#[cfg(test)]
mod tests;
