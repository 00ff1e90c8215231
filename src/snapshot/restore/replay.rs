//! Restores a full snapshot and the deltas after it: an etcd of its own, which nobody else reaches, holds the full snapshot while
//! the deltas are applied. Its database is what is restored.

use std::fs::{self, File};
use std::io::Read as _;
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use super::apply::{self, DeltaProgress, Mismatch};
use super::leases::LeaseKeeper;
use super::paths::EtcdPaths;
use super::program::{self, RunningProgram};
use super::target::EtcdTarget;
use crate::base::clock::Clock;
use crate::format::view;
use crate::limits;
use crate::net::{AnonymousParty, SystemCas, SystemDialer};
use crate::snapshot::check;
use crate::snapshot::delta::{DIGEST_BYTES, DeltaReader};
use crate::snapshot::error::Error;
use crate::snapshot::gateway::EtcdGateway;
use crate::snapshot::name::Snapshot;
use crate::snapshot::store::SnapshotStore;

/// What an operator can do about deltas that cannot be restored.
pub(super) const REMEDY: &str = "This etcd does not start with a part of its data: put good snapshots back, or move this one and all \
                      deltas after it away to lose what they contain";

/// The name of the member. It is not in the database, so the restored etcd does not know it.
const NAME: &str = "replay";
/// How long etcd may need to open the database and to elect itself.
const START_PATIENCE: Duration = Duration::from_secs(600);
/// How often it is asked meanwhile.
const LOOK: Duration = Duration::from_millis(100);
/// How long etcd may need to write what it holds in memory, and to end.
const END_PATIENCE: Duration = Duration::from_secs(300);
/// Another process may take a port between its choice and its use.
const STARTS_MAX: u32 = 3;
/// etcd keeps the requests since its last snapshot in memory. By default these are 100,000.
const SNAPSHOT_COUNT: u32 = 5_000;

/// The deltas of a full snapshot.
#[derive(Clone, Copy, Debug)]
pub(super) struct Replay<'a> {
    pub(super) place: &'a EtcdPaths,
    pub(super) store: &'a dyn SnapshotStore,
    pub(super) deltas: &'a [&'a Snapshot],
    /// The limit of the database in etcd's configuration; empty if it has none.
    pub(super) quota: &'a str,
    /// The working directory.
    pub(super) work: &'a Path,
}

/// A database, and its last revision.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Replayed {
    pub(super) database: PathBuf,
    pub(super) revision: u64,
}

impl Replay<'_> {
    /// Restores an unpacked full snapshot, applies the deltas, and removes the snapshot. Errors: the deltas cannot be applied, or a
    /// program fails; no etcd is left running.
    pub(super) fn run(&self, full: &Path, say: &mut dyn FnMut(&str)) -> Result<Replayed, Error> {
        let data = self.work.join(NAME);
        let peer = format!("http://{}:1", Ipv4Addr::LOCALHOST);
        let flags = [
            format!("--name={NAME}"),
            format!("--initial-cluster={NAME}={peer}"),
            format!("--initial-advertise-peer-urls={peer}"),
        ];
        program::restore(&self.place.etcdutl, full, &data, &flags)?;
        fs::remove_file(full).map_err(Error::io(format!("remove {}", full.display())))?;
        let (etcd, port) = self.start(&data, say)?;
        let keeper = LeaseKeeper::start(gateway(port), Clock::system())?;
        let revision = self.apply_all(&mut EtcdTarget::new(gateway(port)), say)?;
        drop(keeper);
        let status = etcd.end(END_PATIENCE)?;
        let database = data.join("member/snap/db");
        // It ended by the signal, after it had written everything. The database itself says whether this is true.
        let found = revision_of(&self.place.etcdutl, &database)?;
        if found != revision {
            let why =
                format!("its database has revision {found} instead of {revision}; it ended with {status}");
            return Err(Error::Refused { doing: "apply delta snapshots with etcd".to_owned(), why });
        }
        Ok(Replayed { database, revision })
    }

    fn apply_all(&self, target: &mut EtcdTarget, say: &mut dyn FnMut(&str)) -> Result<u64, Error> {
        let mut progress = DeltaProgress { reached: target.revision()?, has_changed: false };
        let unpacked = self.work.join("delta");
        for (number, delta) in self.deltas.iter().enumerate() {
            let name = &delta.name.text;
            say(&format!("applying {name} ({} of {})", number + 1, self.deltas.len()));
            let before = progress.reached;
            let applied = self.apply_one(target, delta, &unpacked, &mut progress);
            applied.map_err(|mismatch| match mismatch {
                Mismatch::Other(error) => error,
                Mismatch::Content(why) => Error::Unusable(format!(
                    "delta snapshot {name} of {} cannot be restored: {why}. {REMEDY}; without this one and all deltas after it, it \
                     restores revision {before}",
                    self.store.place()
                )),
            })?;
            target.clean_up(progress.reached)?;
        }
        Ok(progress.reached)
    }

    /// The whole delta is on the disk, and its digest is right, before anything of it is applied.
    fn apply_one(
        &self,
        target: &mut EtcdTarget,
        delta: &Snapshot,
        unpacked: &Path,
        progress: &mut DeltaProgress,
    ) -> Result<(), Mismatch> {
        let path = unpacked.display().to_string();
        let mut file = File::create(unpacked).map_err(Error::io(format!("write {path}")))?;
        check::unpack(self.store, delta, &mut file, &path)?;
        let events = || -> std::io::Result<_> {
            let bytes = fs::metadata(unpacked)?.len().saturating_sub(DIGEST_BYTES);
            Ok(File::open(unpacked)?.take(bytes))
        };
        let events = events().map_err(Error::io(format!("read {path}")))?;
        let mut reader = DeltaReader::new(events, &delta.name.text);
        apply::apply(target, &mut reader, delta.name.revision, progress)
    }

    /// Starts etcd, and waits until it answers. Returns its port, too.
    fn start(&self, data: &Path, say: &mut dyn FnMut(&str)) -> Result<(RunningProgram, u16), Error> {
        let doing = format!("apply delta snapshots with {}", self.place.etcd.display());
        let clock = Clock::system();
        let refused = |why: String| Error::Refused { doing: doing.clone(), why };
        for attempt in 1..=STARTS_MAX {
            let [client, peer] = free_ports().map_err(Error::io("find a free port"))?;
            let mut etcd = RunningProgram::start(&mut self.command(data, client, peer), &doing)?;
            let (gateway, begun) = (gateway(client), clock.mono());
            loop {
                if gateway.status().is_ok() {
                    return Ok((etcd, client));
                }
                match etcd.wait(LOOK)? {
                    Some(status) if attempt == STARTS_MAX => {
                        return Err(refused(format!("it ended with {status}")));
                    }
                    Some(status) => {
                        say(&format!("{doing}: it ended with {status}; it starts again"));
                        break;
                    }
                    None if clock.mono().saturating_sub(begun) > START_PATIENCE => {
                        return Err(refused(format!("no answer within {} s", START_PATIENCE.as_secs())));
                    }
                    None => {}
                }
            }
        }
        Err(refused("it does not start".to_owned()))
    }

    fn command(&self, data: &Path, client: u16, peer: u16) -> Command {
        let mut command = Command::new(&self.place.etcd);
        // Variables of etcd have precedence over its defaults, and one over all flags.
        command.env_clear().arg(format!("--name={NAME}")).arg("--data-dir").arg(data).args([
            format!("--listen-client-urls={}", url(client)),
            format!("--advertise-client-urls={}", url(client)),
            format!("--listen-peer-urls={}", url(peer)),
            format!("--initial-advertise-peer-urls={}", url(peer)),
            format!("--initial-cluster={NAME}={}", url(peer)),
            // A start that is cut off begins with the snapshots again.
            "--unsafe-no-fsync".to_owned(),
            format!("--snapshot-count={SNAPSHOT_COUNT}"),
            format!("--max-txn-ops={}", 2 * limits::SNAPSHOT_REVISION_EVENTS_MAX),
            format!("--max-request-bytes={}", limits::SNAPSHOT_REVISION_BYTES_MAX),
            "--log-level=error".to_owned(),
        ]);
        if !self.quota.is_empty() {
            command.arg(format!("--quota-backend-bytes={}", self.quota));
        }
        command.stdout(Stdio::null());
        command
    }
}

fn gateway(port: u16) -> EtcdGateway {
    let party = Arc::new(AnonymousParty { system_cas: SystemCas::default() });
    EtcdGateway::new(&url(port), party, Arc::new(SystemDialer), Clock::system())
}

fn url(port: u16) -> String {
    format!("http://{}:{port}", Ipv4Addr::LOCALHOST)
}

/// Two ports of this machine that nobody listens on.
fn free_ports() -> std::io::Result<[u16; 2]> {
    let bind = || TcpListener::bind((Ipv4Addr::LOCALHOST, 0));
    let (one, other) = (bind()?, bind()?);
    Ok([one.local_addr()?.port(), other.local_addr()?.port()])
}

fn revision_of(etcdutl: &Path, database: &Path) -> Result<u64, Error> {
    let text = program::describe(etcdutl, database)?;
    let status = view::json(&text).map_err(|error| Error::Refused {
        doing: format!("check a database with {}", etcdutl.display()),
        why: format!("its output is not JSON: {error}"),
    })?;
    Ok(status["revision"].as_u64().unwrap_or_default())
}
