//! Sets of snapshots of the real etcd-backup-restore and of this program: both restore the same from a set, or both refuse it.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::{fs, io};

use flate2::read::GzDecoder;
use gardenlet::base::random;
use gardenlet::format::base64;
use serde_json::{Value, json};

use super::deltas::{
    Contents, KEYS, change, contents, deleted, events, keep, name_of, packed, put, revision_of,
};
use super::snapshots::{PATIENCE_S, PORT, Site, call, key, lease, number, revision};
use crate::environment::Environment;
use crate::etcd::Etcd;
use crate::failure::{Doing, Failure, Result, ensure, equal};
use crate::gateway::Gateway;
use crate::lab::Lab;
use crate::process::{Process, run};
use crate::wait;
use support::s3::BUCKET;

const PROGRAM: &str = "etcd-backup-restore";
/// A full snapshot when it starts, and changes every two seconds.
const TAKES: [&str; 4] =
    ["snapshot", "--schedule=0 0 1 1 *", "--delta-snapshot-period=2s", "--garbage-collection-period=24h"];
const LEASE_S: u64 = 600;
/// A large set: transactions, and the keys that each of them writes.
const TRANSACTIONS: usize = 400;
const KEYS_EACH: usize = 100;
const VALUE_BYTES: usize = 4 << 10;
const DELTA_BYTES_MIN: u64 = 150 << 20;
const LARGE_PATIENCE_S: u64 = 300;
/// Of this program, while it restores the large set.
const MEMORY_MAX: u64 = 8 << 20;
/// The ports of the etcd of the other program's restoration are those of the first one, which has ended.
const NAME: &str = "default";

/// Whether a compressed file has its end.
fn is_whole(path: &Path) -> Result<bool> {
    let file = fs::File::open(path).doing(|| format!("open {}", path.display()))?;
    Ok(io::copy(&mut GzDecoder::new(file), &mut io::sink()).is_ok())
}

/// What a program makes of a set.
#[derive(Debug, PartialEq)]
enum Outcome {
    Restored(Contents),
    Refused,
}

/// The other program. Its store is that of the site.
struct Peer<'a> {
    environment: &'a Environment,
    site: Site,
}

/// A set, and whether both programs restore it.
struct Case {
    name: &'static str,
    change: fn(&Site, &Set) -> Result<()>,
    is_restored: bool,
}

/// The deltas of a set in the order of their revisions, and the event of the last change before its full snapshot.
struct Set {
    deltas: Vec<String>,
    contained: Value,
}

const CASES: [Case; 8] = [
    Case { name: "whole", change: |_, _| Ok(()), is_restored: true },
    Case {
        name: "without the last delta",
        change: |site, set| remove(site, set.deltas.last()),
        is_restored: true,
    },
    Case {
        name: "without the first delta",
        change: |site, set| remove(site, set.deltas.first()),
        is_restored: false,
    },
    Case { name: "whose first delta overlaps the full snapshot", change: overlap_full, is_restored: true },
    Case { name: "whose deltas overlap", change: overlap_delta, is_restored: false },
    Case { name: "with a damaged delta", change: damage, is_restored: false },
    Case { name: "with a delta that is cut off", change: cut, is_restored: false },
    Case { name: "with a delta of another history", change: add_foreign, is_restored: false },
];

/// A set that etcd-backup-restore has taken while clients wrote, deleted, and lost leases, the same set with faults, and in a
/// bucket. Then a full snapshot of this program.
pub(crate) fn agree(lab: &mut Lab) -> Result<()> {
    let mut peer = Peer { environment: &lab.environment, site: Site::new(lab)? };
    let mut etcd = peer.site.start()?;
    let (all, contained) = peer.take()?;
    etcd.kill();
    peer.site.wipe()?;
    let kept = peer.site.place.join("kept");
    copy(&folder(&peer.site), &kept)?;
    for case in CASES {
        fs::remove_dir_all(folder(&peer.site))?;
        copy(&kept, &folder(&peer.site))?;
        let deltas = names(&peer.site, "Incr-")?;
        ensure(deltas.len() > 1, || format!("{PROGRAM} has taken only {deltas:?}"))?;
        (case.change)(&peer.site, &Set { deltas, contained: contained.clone() })?;
        let (ours, theirs) = (peer.ours()?, peer.theirs()?);
        let is_restored = ours != Outcome::Refused;
        ensure(ours == theirs && is_restored == case.is_restored, || {
            format!("a set {}: this program {}, {PROGRAM} {}", case.name, said(&ours), said(&theirs))
        })?;
        if ["whole", "whose first delta overlaps the full snapshot"].contains(&case.name) {
            equal("the contents", &ours, &Outcome::Restored(all.clone()))?;
        }
        println!("                 a set {}: both programs {}", case.name, said(&ours));
    }
    fs::remove_dir_all(folder(&peer.site))?;
    full_snapshots_too(&mut peer)?;
    let gateway = Gateway::start(lab)?;
    peer.site.use_bucket(&gateway.with_bucket(BUCKET)?)?;
    let place = gateway.bucket(BUCKET).join("entry/etcd-main");
    fs::create_dir_all(&place).doing(|| format!("create {}", place.display()))?;
    copy(&kept, &place.join("v2"))?;
    equal("the whole set, restored from a bucket", &peer.ours()?, &Outcome::Restored(all))
}

/// Deltas of a busy day, as the other program takes them: this program restores them with little memory.
pub(crate) fn large(lab: &mut Lab) -> Result<()> {
    let mut peer = Peer { environment: &lab.environment, site: Site::new(lab)? };
    let mut etcd = peer.site.start()?;
    put("first", b"1", 0)?;
    let mut taking = peer.taking()?;
    peer.wait_for(&mut taking, "Full-")?;
    for n in 0..TRANSACTIONS {
        let put = |i| json!({"requestPut": {"key": key(&format!("{n:04}-{i:03}")), "value": base64::encode(&random::vec(VALUE_BYTES))}});
        call("txn", &json!({"success": (0..KEYS_EACH).map(put).collect::<Vec<_>>()}))?;
    }
    peer.wait_for(&mut taking, "Incr-")?;
    taking.kill();
    let of_all = json!({"key": "AA==", "range_end": "AA==", "count_only": true});
    let count = || Ok::<_, Failure>(number(&call("range", &of_all)?["count"]));
    let last =
        || call("range", &json!({"key": key(&format!("{:04}-{:03}", TRANSACTIONS - 1, KEYS_EACH - 1))}));
    let (all, newest) = (count()?, last()?["kvs"].clone());
    etcd.kill();
    peer.site.wipe()?;
    let deltas = names(&peer.site, "Incr-")?;
    let sizes = deltas.iter().map(|name| Ok(fs::metadata(peer.site.file(name))?.len()));
    let bytes: u64 = sizes.sum::<Result<u64>>()?;
    ensure(bytes > DELTA_BYTES_MIN, || format!("the deltas have only {bytes} bytes"))?;
    let begun = wait::now();
    let (mut started, mut most) = (peer.site.begin()?, 0);
    wait::until("the etcd with the deltas", LARGE_PATIENCE_S, || {
        started.ensure_running()?;
        most = most.max(memory_of_agent(started.id())?);
        Ok::<_, Failure>(revision().is_ok().then_some(()))
    })?;
    println!(
        "                 {} deltas with {} MB are restored in {:.1} s with {:.1} MB of memory",
        deltas.len(),
        bytes >> 20,
        wait::seconds_since(begun),
        most as f64 / f64::from(1 << 20)
    );
    ensure(most > 0 && most <= MEMORY_MAX, || format!("the program needed {} kB", most >> 10))?;
    equal("the number of keys", &count()?, &all)?;
    equal("the last key", &last()?["kvs"], &newest)?;
    started.kill();
    Ok(())
}

/// The memory without files that a process uses now, in bytes; 0 once it has become etcd.
fn memory_of_agent(process: u32) -> Result<u64> {
    let status = fs::read_to_string(format!("/proc/{process}/status"))?;
    let field =
        |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default().trim();
    if field("Name:") != "gardenlet" {
        return Ok(0);
    }
    let kilobytes = field("RssAnon:").split(' ').next().unwrap_or_default();
    kilobytes
        .parse::<u64>()
        .map(|kilobytes| kilobytes << 10)
        .doing(|| format!("read RssAnon of process {process}"))
}

/// Both programs restore a full snapshot that this program has taken.
fn full_snapshots_too(peer: &mut Peer<'_>) -> Result<()> {
    let mut etcd = peer.site.start()?;
    change()?;
    peer.site.snapshot()?;
    let all = contents()?;
    etcd.kill();
    peer.site.wipe()?;
    equal("a full snapshot of this program, restored by it", &peer.ours()?, &Outcome::Restored(all.clone()))?;
    equal("the same, restored by the other program", &peer.theirs()?, &Outcome::Restored(all))
}

fn said(outcome: &Outcome) -> &'static str {
    if *outcome == Outcome::Refused { "refuse it" } else { "restore it" }
}

/// The folder of the snapshots.
fn folder(site: &Site) -> PathBuf {
    site.file("").components().collect()
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    run(Command::new("cp").arg("-a").arg(from).arg(to)).map(drop)
}

/// Names that begin so, in the order of their revisions.
fn names(site: &Site, begin: &str) -> Result<Vec<String>> {
    let place = folder(site);
    let entries = fs::read_dir(&place).doing(|| format!("read {}", place.display()))?.flatten();
    let mut all: Vec<String> =
        entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    all.retain(|name| name.starts_with(begin));
    all.sort();
    Ok(all)
}

fn remove(site: &Site, name: Option<&String>) -> Result<()> {
    Ok(fs::remove_file(site.file(name.map_or("", String::as_str)))?)
}

fn damage(site: &Site, set: &Set) -> Result<()> {
    let path = site.file(&set.deltas[1]);
    let mut bytes = fs::read(&path)?;
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    Ok(fs::write(path, bytes)?)
}

fn cut(site: &Site, set: &Set) -> Result<()> {
    let path = site.file(&set.deltas[1]);
    let bytes = fs::read(&path)?;
    Ok(fs::write(path, &bytes[..bytes.len() / 2])?)
}

/// It deletes what is not there.
fn add_foreign(site: &Site, set: &Set) -> Result<()> {
    let next = revision_of(set.deltas.last().map_or("", String::as_str))? + 1;
    keep(site, &[deleted("never", next)], next, next, 3).map(drop)
}

/// The first delta begins with the last change that the full snapshot contains.
fn overlap_full(site: &Site, set: &Set) -> Result<()> {
    overlap(site, &set.deltas[0], vec![set.contained.clone()])
}

/// The second delta begins with the last changes of the first one, among them the last one that writes a key. A deletion alone
/// would not show: whoever deletes a key once more makes no revision.
fn overlap_delta(site: &Site, set: &Set) -> Result<()> {
    let mut last = events(site, &set.deltas[0])?;
    let is_write = |event: &Value| event["etcdEvent"]["type"].is_null();
    let write = last.iter().rfind(|event| is_write(event)).map(revision_in).unwrap_or_default();
    last.retain(|event| revision_in(event) >= write);
    overlap(site, &set.deltas[1], last)
}

fn revision_in(event: &Value) -> u64 {
    number(&event["etcdEvent"]["kv"]["mod_revision"])
}

/// A delta gets events before its own, and a name that says so.
fn overlap(site: &Site, delta: &str, earlier: Vec<Value>) -> Result<()> {
    let first = earlier.first().map(revision_in).unwrap_or_default();
    let mut parts: Vec<String> = delta.split('-').map(str::to_owned).collect();
    parts[1] = format!("{first:08}");
    let events = [earlier, events(site, delta)?].concat();
    fs::write(site.file(&parts.join("-")), packed(&events)?)?;
    Ok(fs::remove_file(site.file(delta))?)
}

impl Peer<'_> {
    /// A command of the other program, whose store is below its home folder.
    fn command(&self, words: &[&str]) -> Result<Command> {
        let mut command = self.environment.command(PROGRAM)?;
        command.args(words).args([
            "--storage-provider=Local",
            "--store-container=store",
            "--store-prefix=entry/etcd-main",
        ]);
        command
            .env("HOME", &self.site.place)
            .env("POD_NAMESPACE", "shoot--p--s1")
            .env("POD_NAME", "etcd-main-0");
        Ok(command)
    }

    /// It takes a full snapshot and at least two deltas of the running etcd. The contents then, and the last change before the full one.
    fn take(&self) -> Result<(Contents, Value)> {
        for n in 0..KEYS {
            put(&name_of(n), b"before", 0)?;
        }
        let short = lease(LEASE_S)?;
        let contained = put("leased", b"short", short)?;
        let mut taking = self.taking()?;
        self.wait_for(&mut taking, "Full-")?;
        change()?;
        self.wait_for(&mut taking, "Incr-")?;
        Etcd(PORT).ask("lease/revoke", &json!({"ID": short}))?;
        change()?;
        self.wait_for(&mut taking, "Incr-")?;
        taking.kill();
        Ok((contents()?, contained))
    }

    /// It takes snapshots until it is killed.
    fn taking(&self) -> Result<Process> {
        let mut command = self.command(&TAKES)?;
        command.arg(format!("--endpoints=http://127.0.0.1:{PORT}"));
        Process::start(PROGRAM, &self.site.place, command)
    }

    /// Waits until all changes are in its snapshots. A file has its name before it is whole.
    fn wait_for(&self, taking: &mut Process, begin: &str) -> Result<()> {
        let now = revision()?;
        wait::until(&format!("{begin} with revision {now}"), PATIENCE_S, || {
            taking.ensure_running()?;
            let names = names(&self.site, begin).unwrap_or_default();
            let Some(newest) = names.last() else { return Ok(None) };
            let is_new = revision_of(newest)? >= now;
            Ok::<_, Failure>((is_new && is_whole(&self.site.file(newest))?).then_some(()))
        })
    }

    fn ours(&mut self) -> Result<Outcome> {
        let mut started = self.site.begin()?;
        let outcome = outcome(&mut started)?;
        started.kill();
        if self.site.data().exists() {
            self.site.wipe()?;
        }
        Ok(outcome)
    }

    fn theirs(&self) -> Result<Outcome> {
        let data = self.site.place.join("peer.etcd");
        let (option, log) =
            (format!("--data-dir={}", data.display()), self.site.place.join("peer.temporary"));
        let mut command = self.command(&["restore", &option])?;
        command.arg(format!("--restoration-temp-snapshots-dir={}", log.display()));
        let mut restoring = Process::start("restoring", &self.site.place, command)?;
        let ended = wait::until("its restoration", PATIENCE_S, || Ok::<_, Failure>(restoring.ended()))?;
        let outcome = match ended.success() {
            false => Outcome::Refused,
            true => self.contents_of(&data)?,
        };
        for folder in [data, log] {
            let _ = fs::remove_dir_all(folder);
        }
        Ok(outcome)
    }

    /// What an etcd finds in a data directory.
    fn contents_of(&self, data: &Path) -> Result<Outcome> {
        ensure(data.exists(), || format!("{PROGRAM} has restored nothing"))?;
        let mut command = self.environment.command("etcd-3.5")?;
        let (clients, peers) = (format!("http://127.0.0.1:{PORT}"), format!("http://127.0.0.1:{}", PORT + 2));
        command.arg(format!("--data-dir={}", data.display())).args(["--name", NAME]);
        command.args(["--listen-client-urls", &clients, "--advertise-client-urls", &clients]);
        command.args(["--listen-peer-urls", &peers, "--initial-advertise-peer-urls", &peers]);
        command.args(["--initial-cluster", &format!("{NAME}={peers}")]);
        let mut etcd = Process::start("restored", &self.site.place, command)?;
        let outcome = outcome(&mut etcd);
        etcd.kill();
        outcome
    }
}

/// What it contains as soon as it answers, unless it ends before.
fn outcome(etcd: &mut Process) -> Result<Outcome> {
    wait::until("etcd to answer or to end", PATIENCE_S, || {
        if etcd.ended().is_some_and(|status: ExitStatus| !status.success()) {
            return Ok(Some(Outcome::Refused));
        }
        Ok::<_, Failure>(revision().is_ok().then(contents).transpose()?.map(Outcome::Restored))
    })
}
