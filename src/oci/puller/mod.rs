//! Pulls a chart from the cache, or from the sources of its registry in turn.

mod download;
mod patience;

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::base::clock::{Clock, Mono};
use crate::base::error::chain;
use crate::base::metrics::Metrics;
use crate::base::sorted::SortedMap;
use crate::base::stop::Stop;
use crate::base::workers::{ChartTurn, Workers};
use crate::config::settings::Registry;
use crate::limits;
use crate::net;

use super::cache::{Cache, VerifiedContent};
use super::digest::Digest;
use super::error::{Error, PullVerdict};
use super::layout::Layout;
use super::manifest::{self, ArtifactProblem, Next};
use super::reference::TagOrDigest;
use super::session::{Question, Session};
use super::source::{self, Endpoint, RegistrySource};
use super::wire::{RegistryNetwork, RunningPools, Wire};
use super::{PullOrder, check_size};

/// How long a pull waits for its turn, and how often it checks.
const TURN_PATIENCE: Duration = Duration::from_secs(1);
const TURN_LOOK: Duration = Duration::from_millis(50);

/// Pulls charts. Pulls share the cache, and the pauses that registries requested.
#[derive(Debug)]
pub struct Puller {
    network: RegistryNetwork,
    registries: Vec<Registry>,
    cache: Cache,
    running: RunningPools,
    quiet: Mutex<SortedMap<String, Mono>>,
    /// Whether all parts of an artifact should be cached.
    whole: bool,
    /// Whether sources are only asked whether they have a chart.
    asks: bool,
    under_way: AtomicUsize,
    /// The workers that pulls use.
    workers: Option<Workers>,
    /// Connections wait in real time.
    clock: Clock,
    metrics: Metrics,
}

/// The result of a pull.
#[derive(Debug)]
pub(crate) struct PulledChart {
    /// The digest that the reference resolves to, of a manifest or an index.
    pub(crate) digest: Digest,
    /// The chart's archive (`.tgz`).
    pub(crate) chart: VerifiedContent,
}

/// A turn to pull, until dropped.
struct PullTurn<'a> {
    under_way: &'a AtomicUsize,
    _worker: Option<ChartTurn>,
}

impl Drop for PullTurn<'_> {
    fn drop(&mut self) {
        self.under_way.fetch_sub(1, Ordering::SeqCst);
    }
}

/// One pull: its deadline and its stop signal.
#[derive(Clone, Copy)]
struct Errand<'a> {
    order: &'a PullOrder,
    stop: &'a Stop,
    deadline: Mono,
}

impl Errand<'_> {
    const fn is_pinned(&self) -> bool {
        matches!(self.order.reference.target, TagOrDigest::Digest(_))
    }
}

impl Puller {
    /// A puller whose pulls end when `stop` is pulled.
    pub fn new(network: RegistryNetwork, registries: Vec<Registry>, cache: Cache, stop: &Stop) -> Self {
        let (running, quiet) = (RunningPools::until(stop), Mutex::default());
        let (under_way, clock, metrics) = (AtomicUsize::new(0), Clock::system(), Metrics::new());
        Self {
            network,
            registries,
            cache,
            running,
            quiet,
            whole: false,
            asks: false,
            under_way,
            workers: None,
            clock,
            metrics,
        }
    }

    /// Caches all parts of an artifact. Registries and mirrors are asked each time which parts it has;
    /// layout directories are not.
    #[must_use]
    pub(crate) fn whole(self) -> Self {
        Self { whole: true, ..self }
    }

    /// Asks each source once whether it has the chart; fetches at most its last byte.
    pub fn ask(mut self, order: &PullOrder, stop: &Stop) -> Vec<(String, Option<Error>)> {
        self.asks = true;
        let errand = self.errand(order, stop);
        let ask = |source| {
            let (name, result) = self.pull_from(errand, &source);
            (name, result.err())
        };
        source::sources(&order.reference, &self.registries).into_iter().map(ask).collect()
    }

    /// Shares these workers with other tasks.
    #[must_use]
    pub(crate) fn sharing(self, workers: Workers) -> Self {
        Self { workers: Some(workers), ..self }
    }

    /// Measures the time of a pull with another clock.
    #[must_use]
    pub fn on_clock(self, clock: Clock) -> Self {
        Self { clock, ..self }
    }

    /// Counts pulls, bytes and cache hits in these metrics.
    #[must_use]
    pub(crate) fn counting(self, metrics: Metrics) -> Self {
        Self { metrics, ..self }
    }

    /// The chart's archive (`.tgz`). Errors: [`Error`]; its verdict names the remedy.
    pub fn pull(&self, order: &PullOrder, stop: &Stop) -> Result<VerifiedContent, Error> {
        self.fetch(order, stop).map(|pulled| pulled.chart)
    }

    /// The chart's archive, and the digest behind the reference. Errors: [`Error`]; its
    /// verdict names the remedy.
    pub(crate) fn fetch(&self, order: &PullOrder, stop: &Stop) -> Result<PulledChart, Error> {
        let pulled = self.obtain(order, stop);
        // The traffic with the registry, its mirrors, token services, and the targets of redirects.
        self.running.traffic.count(&self.metrics, "registry");
        let result = pulled.as_ref().map_or_else(|error| error.verdict().label(), |_| "success");
        let help = "Charts of registries that were asked for, by result: success, or what helps.";
        self.metrics.add("gardenlet_chart_pulls_total", help, &[("result", result)], 1.0);
        pulled
    }

    fn obtain(&self, order: &PullOrder, stop: &Stop) -> Result<PulledChart, Error> {
        if !self.whole
            && let TagOrDigest::Digest(digest) = order.reference.target
            && let Some(found) = self.cached(digest, true)
        {
            return found;
        }
        let _turn = self.turn(stop)?;
        let errand = self.errand(order, stop);
        let mut failures = Vec::new();
        let mut sources = source::sources(&order.reference, &self.registries);
        sources.retain(|source| !self.whole || !matches!(source, RegistrySource::Layout(_)));
        let last = sources.len().saturating_sub(1);
        for (index, source) in sources.into_iter().enumerate() {
            let (name, result) = self.pull_from(errand, &source);
            match result {
                Ok(pulled) => return Ok(pulled),
                Err(Error::Stopped) => return Err(Error::Stopped),
                Err(error) => {
                    if index < last {
                        let (reference, err) = (order.reference.to_string(), chain(&error));
                        log::warn!(reference = reference.as_str(), source = name.as_str(), err = err.as_str(); "A source of charts failed; trying the next one");
                    }
                    failures.push((name, error));
                }
            }
        }
        match failures.len() {
            1 => Err(failures.remove(0).1),
            _ => Err(Error::Sources(failures)),
        }
    }

    fn errand<'e>(&self, order: &'e PullOrder, stop: &'e Stop) -> Errand<'e> {
        let deadline = self.clock.mono().saturating_add(Duration::from_secs(limits::OCI_PULL_S_MAX));
        Errand { order, stop, deadline }
    }

    /// Pulls from one source; returns its name too.
    fn pull_from(&self, errand: Errand<'_>, source: &RegistrySource) -> (String, Result<PulledChart, Error>) {
        match source {
            RegistrySource::Layout(dir) => (dir.display().to_string(), pull_from_layout(errand, dir)),
            RegistrySource::Mirror(endpoint) => {
                (endpoint.host.clone(), self.pull_from_registry(errand, endpoint, false))
            }
            RegistrySource::Registry(endpoint) => {
                (endpoint.host.clone(), self.pull_from_registry(errand, endpoint, true))
            }
        }
    }

    /// A turn to use the network. A longer wait would block a thread that others need; the key is retried instead.
    fn turn(&self, stop: &Stop) -> Result<PullTurn<'_>, Error> {
        let until = self.clock.mono().saturating_add(TURN_PATIENCE);
        loop {
            if let Some(turn) = self.turn_now() {
                return Ok(turn);
            }
            if self.clock.mono() >= until {
                return Err(Error::Busy);
            }
            if stop.wait(&self.clock, TURN_LOOK) {
                return Err(Error::Stopped);
            }
        }
    }

    fn turn_now(&self) -> Option<PullTurn<'_>> {
        let worker = match &self.workers {
            Some(workers) => Some(workers.chart()?),
            None => None,
        };
        let take = |now| (now < limits::OCI_PULLS_MAX).then_some(now + 1);
        self.under_way.fetch_update(Ordering::SeqCst, Ordering::SeqCst, take).ok()?;
        Some(PullTurn { under_way: &self.under_way, _worker: worker })
    }

    /// The cached chart of a manifest; `None` if any part is missing.
    fn cached(&self, digest: Digest, is_pinned: bool) -> Option<Result<PulledChart, Error>> {
        let mut next = digest;
        for _ in 0..=limits::OCI_INDEX_DEPTH_MAX {
            let content = self.cache.find(next)?.read_all(limits::OCI_MANIFEST_BYTES_MAX).ok()?;
            match manifest::read(&content) {
                Ok(Next::Chart(blob)) => {
                    let found = self.cache.find(blob.digest)?;
                    return Some(Ok(PulledChart { digest, chart: self.hit(found) }));
                }
                Ok(Next::Manifest(digest)) => next = digest,
                Err(problem) => return Some(Err(Error::Manifest { problem, is_pinned })),
            }
        }
        None
    }

    fn hit(&self, found: VerifiedContent) -> VerifiedContent {
        let help = "Charts of registries that were in the cache already.";
        self.metrics.add("gardenlet_chart_cache_hits_total", help, &[], 1.0);
        found
    }

    fn pull_from_registry(
        &self,
        errand: Errand<'_>,
        endpoint: &Endpoint,
        is_itself: bool,
    ) -> Result<PulledChart, Error> {
        let order = errand.order;
        self.respect_pause(&endpoint.host)?;
        let login = order.keychain.find(&endpoint.host, &endpoint.repository).cloned();
        // The CAs of an order are for its registry, not for a mirror of it.
        let bundle = order.ca_bundle.clone().filter(|_| is_itself);
        let (running, host) = (self.running.clone(), endpoint.host.clone());
        let wire = Wire::new(&self.network, &self.registries, running, host, bundle);
        let mut session = Session::new(wire, endpoint.clone(), login);
        if !self.whole
            && let TagOrDigest::Tag(tag) = &order.reference.target
            && let Some(digest) = self.patiently(errand, || resolve(&mut session, tag))?
            && let Some(found) = self.cached(digest, false)
        {
            return found;
        }
        let (mut target, mut root) = (order.reference.target.clone(), None);
        for _ in 0..=limits::OCI_INDEX_DEPTH_MAX {
            let (digest, content) = self.patiently(errand, || fetch_manifest(&mut session, &target))?;
            let next = manifest::read(&content);
            let next = next.map_err(|problem| Error::Manifest { problem, is_pinned: errand.is_pinned() })?;
            self.cache.put(digest, &content);
            let root = *root.get_or_insert(digest);
            match next {
                Next::Manifest(digest) => target = TagOrDigest::Digest(digest),
                Next::Chart(blob) => {
                    if self.whole {
                        self.parts(errand, &mut session, &content)?;
                    }
                    let chart = self.chart(errand, &mut session, blob)?;
                    return Ok(PulledChart { digest: root, chart });
                }
            }
        }
        Err(Error::Manifest { problem: ArtifactProblem::DeepIndex, is_pinned: errand.is_pinned() })
    }

    /// Fetches everything that a manifest names into the cache.
    fn parts(&self, errand: Errand<'_>, session: &mut Session<'_>, manifest: &[u8]) -> Result<(), Error> {
        let bad = |problem| Error::Manifest { problem, is_pinned: errand.is_pinned() };
        let parts = manifest::parts(manifest).map_err(bad)?;
        parts.into_iter().try_for_each(|part| self.chart(errand, session, part).map(drop))
    }
}

fn pull_from_layout(errand: Errand<'_>, dir: &std::path::Path) -> Result<PulledChart, Error> {
    let reference = &errand.order.reference;
    let layout = Layout::open(dir, &reference.repository);
    let root = layout.resolve(reference)?;
    let mut digest = root;
    let is_pinned = errand.is_pinned();
    for _ in 0..=limits::OCI_INDEX_DEPTH_MAX {
        let content = layout.manifest(digest)?;
        match manifest::read(&content).map_err(|problem| Error::Manifest { problem, is_pinned })? {
            Next::Manifest(next) => digest = next,
            Next::Chart(blob) => {
                check_size(blob)?;
                return layout.chart(blob).map(|chart| PulledChart { digest: root, chart });
            }
        }
    }
    Err(Error::Manifest { problem: ArtifactProblem::DeepIndex, is_pinned })
}

/// The digest that a tag points to now, if the registry sends it in a header.
fn resolve(session: &mut Session<'_>, tag: &str) -> Result<Option<Digest>, Error> {
    let path = format!("manifests/{tag}");
    match session.ask(Question::small("HEAD", &path, manifest::ACCEPT)) {
        Ok(response) => Ok(response.header("docker-content-digest").and_then(Digest::parse)),
        // Not every registry supports HEAD; the response to GET tells why.
        Err(error @ Error::Status { .. }) if error.verdict() != PullVerdict::Retry => Ok(None),
        Err(error) => Err(error),
    }
}

/// Fetches and verifies a manifest.
fn fetch_manifest(session: &mut Session<'_>, target: &TagOrDigest) -> Result<(Digest, Vec<u8>), Error> {
    let path = format!("manifests/{target}");
    let mut response = session.ask(Question::small("GET", &path, manifest::ACCEPT))?;
    let announced = response.header("docker-content-digest").and_then(Digest::parse);
    let content = response.body.read_all(limits::OCI_MANIFEST_BYTES_MAX).map_err(|source| match source {
        net::Error::Closed => Error::Stopped,
        net::Error::TooLarge { bytes_max, .. } => {
            Error::Large { what: "manifest", bytes_max: u64::try_from(bytes_max).unwrap_or(u64::MAX) }
        }
        source => Error::Net { host: session.host().to_owned(), source },
    })?;
    let found = Digest::of(&content);
    let expected = if let TagOrDigest::Digest(digest) = target { Some(*digest) } else { announced };
    match expected {
        Some(expected) if expected != found => Err(Error::Digest { what: "manifest", expected, found }),
        _ => Ok((found, content)),
    }
}
