//! A garden, a seed and the agent between them, all in this process, on a clock that runs fast and can jump.
//!
//! An [`Agent`] is the whole program behind `app::run_reloading`, with its own threads, connections and state
//! directory. It ends in order ([`Agent::stop`]) or at any point ([`Agent::crash`]), and can be started again.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};
use std::thread::JoinHandle;
use std::time::Duration;

use gardenlet::app::{self, AgentStatus, Environment, Reloader, Service};
use gardenlet::base::clock::{Clock, Mono, Simulated, Timestamp};
use gardenlet::base::metrics::Metrics;
use gardenlet::base::sorted::SortedMap;
use gardenlet::base::stop::Stop;
use gardenlet::base::{log as logging, thread};
use gardenlet::chart::child::Renderer;
use gardenlet::config;
use gardenlet::net::Dial;
use gardenlet::pki::Certificate;
use serde_json::{Value, json};

use support::api::store::Id;
use support::api::write::Patch;
use support::api::{Target, User};
use support::cluster::{Authorization, PATIENCE};
use support::controllers::Share;
use support::encoding::{from_base64, from_rfc3339};
use support::garden::Garden;
use support::garden::prepare::{self, Preparation};
use support::http::faults::Seen;
use support::http::record::Recorded;
use support::json::text;
use support::keys::FixtureKeys;
use support::options::{measured, patience};
use support::pace;
use support::shoot::{Listen, Options as SiteOptions, Routes, Site, object};
use support::{Options as ClusterOptions, TestCluster};

pub const CORE: &str = "core.gardener.cloud";
pub const LEASES: &str = "coordination.k8s.io";
pub const CSRS: &str = "certificates.k8s.io";
pub const MANAGED_RESOURCES: &str = "resources.gardener.cloud";
/// The identity of the agent in the seed.
pub const AGENT: &str = "system:serviceaccount:garden:gardenlet";
const ACCOUNT_DIRECTORY: &str = "serviceaccount";

/// The options of a world.
pub struct Options {
    /// Name of the seed.
    pub seed: &'static str,
    /// How fast time passes while the machine is not busy.
    pub factor: u32,
    /// The start of time.
    pub begin: Timestamp,
}

/// The build time of the program in the stories: before they start.
pub const BUILT: Timestamp = Timestamp::from_unix(1_760_000_000);

const BEGIN: Timestamp = Timestamp::from_unix(1_767_600_000);

impl Options {
    pub fn new(seed: &'static str) -> Self {
        Self { seed, factor: 20, begin: BEGIN }
    }

    /// A world in which time passes slowly except where a story lets it pass: for stories in which no part may be late,
    /// however busy the machine is.
    pub fn calm(seed: &'static str) -> Self {
        Self { seed, factor: 4, begin: BEGIN }
    }

    /// A world in real time, for the program as a separate process.
    pub fn real(seed: &'static str) -> Self {
        Self { seed, factor: 1, begin: Clock::system().now() }
    }
}

/// Garden, seed, time, and a directory for files.
pub struct World {
    pub name: &'static str,
    pub time: Arc<Simulated>,
    pub clock: Clock,
    pub garden: Arc<Garden>,
    pub seed: TestCluster,
    pub preparation: Preparation,
    directory: PathBuf,
    log_begin: usize,
    refusals_expected: AtomicBool,
}

/// The log of the whole process. Worlds share it, so searched text should name a server or a seed.
fn log() -> &'static logging::LogCapture {
    static LOG: OnceLock<logging::LogCapture> = OnceLock::new();
    LOG.get_or_init(|| {
        let capture = logging::capture();
        logging::start(logging::Options {
            level: log::LevelFilter::Info,
            format: logging::LogFormat::Text,
            is_journal: false,
            clock: Clock::system(),
        });
        capture
    })
}

/// A number that no other world of this process has.
fn serial() -> u32 {
    static NEXT: AtomicU32 = AtomicU32::new(1);
    NEXT.fetch_add(1, Ordering::SeqCst)
}

fn seed_cluster(clock: &Clock) -> TestCluster {
    let mut seed = ClusterOptions::new("seed", clock);
    seed.authorization = Authorization::Rbac;
    TestCluster::start(seed)
}

/// A directory that no other world uses, with one for the account of the agent.
fn new_directory() -> PathBuf {
    let directory = std::env::temp_dir().join(format!("gardenlet-it-{}-{}", std::process::id(), serial()));
    std::fs::create_dir_all(directory.join(ACCOUNT_DIRECTORY)).unwrap();
    directory
}

impl World {
    /// A garden and a seed that are ready for the agent of `seed`.
    pub fn start(options: &Options) -> Self {
        let log_begin = log().count();
        let pace = if options.factor == 1 { Clock::system() } else { pace::clock() };
        let time = Simulated::paced(pace, options.begin, options.factor);
        let clock = Clock::new(time.clone());
        let garden = Arc::new(Garden::start(&clock));
        let preparation = Preparation::new(options.seed, clock.now());
        garden.apply(&preparation.garden());
        garden.apply(&prepare::provider());
        garden.apply(&[prepare::promised_backups()]);
        Self::of(Self {
            name: options.seed,
            seed: seed_cluster(&clock),
            time,
            clock,
            garden,
            preparation,
            directory: new_directory(),
            log_begin,
            refusals_expected: AtomicBool::new(false),
        })
    }

    /// Another seed of the same garden, on the same clock, ready for an agent of its own.
    pub fn beside(&self, seed: &'static str) -> Self {
        let preparation = Preparation::new(seed, self.clock.now());
        self.garden.apply(&[preparation.bootstrap_token()]);
        Self::of(Self {
            name: seed,
            seed: seed_cluster(&self.clock),
            time: self.time.clone(),
            clock: self.clock.clone(),
            garden: self.garden.clone(),
            preparation,
            directory: new_directory(),
            log_begin: self.log_begin,
            refusals_expected: AtomicBool::new(false),
        })
    }

    fn of(world: Self) -> Self {
        world.prepare_seed();
        world
    }

    /// Gives an object to seed `elsewhere` behind the back of the garden, which allows nobody to do that.
    pub(crate) fn move_in_storage(&self, (group, plural): (&str, &str), (namespace, name): (&str, &str)) {
        let mut object = self.garden.get(group, plural, namespace, name).unwrap();
        object["spec"]["seedName"] = json!("elsewhere");
        let generation = object["metadata"]["generation"].as_i64().unwrap_or(0) + 1;
        object["metadata"]["generation"] = json!(generation);
        let id = Id::new(group, plural, namespace, name);
        self.garden.store().write(|state| drop(state.put(id, object)));
    }

    fn prepare_seed(&self) {
        let kubeconfig = self.garden.bootstrap_kubeconfig(&self.preparation.token());
        self.seed.apply(&[cluster_admin()]);
        self.seed.apply(&prepare::seed(&kubeconfig));
        let account = self.seed.get("", "serviceaccounts", "garden", "gardenlet").unwrap();
        let token = self.seed.server().shared.tokens().issue(&account, &[], self.clock.now(), 30 * 86_400);
        let files = self.path(ACCOUNT_DIRECTORY);
        std::fs::write(files.join("token"), token).unwrap();
        std::fs::write(files.join("ca.crt"), self.seed.ca()).unwrap();
    }

    /// A path in the world's directory.
    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    /// Writes a file into the world's directory.
    pub fn file(&self, name: &str, content: &str) -> PathBuf {
        let path = self.path(name);
        std::fs::write(&path, content).unwrap();
        path
    }

    /// The configuration of the agent, as a chart would write it.
    pub fn config(&self) -> Value {
        let mut config = prepare::configuration(self.name);
        config["logFormat"] = json!("text");
        config["resources"] = json!({"capacity": {"shoots": "50"}, "reserved": {"shoots": "5"}});
        config["seedConfig"]["metadata"]["labels"] = json!({"site": "north"});
        config["seedConfig"]["metadata"]["annotations"] = json!({"owner": "me"});
        config["edge"] = json!({"workers": 4});
        config
    }

    /// Starts an agent in a pod of the seed.
    pub fn agent(&self) -> Agent {
        self.agent_with(&self.config())
    }

    /// Starts an agent in a pod of the seed, with another configuration.
    pub fn agent_with(&self, config: &Value) -> Agent {
        let agent = Agent::new(self, "host-1", config, self.pod());
        agent.launch();
        agent
    }

    /// The objects in garden and seed that Shoots without workers need, and a simulation of the seed's nodes. An agent
    /// finds the API servers of Shoots with [`World::agent_of`].
    pub fn site(&self) -> Site {
        self.site_with(SiteOptions::default())
    }

    /// The same with options.
    pub fn site_with(&self, options: SiteOptions) -> Site {
        // Another seed of the same garden may have done it.
        if self.garden.get(CORE, "cloudprofiles", "", "local").is_none() {
            object::prepare_garden(&self.garden);
        }
        object::prepare_seed(&self.seed);
        Site::in_process_with(&self.seed, Share::default(), options)
    }

    /// The same; API servers of Shoots can be reached on their node ports, also by commands. Only one story at a time
    /// may have such a Shoot of a given name, since the port depends on the name.
    pub fn reachable_site(&self) -> Site {
        self.site_with(SiteOptions { listen: Listen::NodePort, ..SiteOptions::default() })
    }

    /// An agent that is not started, in a seed at the edge with the site's Shoots.
    pub fn agent_of(&self, site: &Site, config: &Value) -> Agent {
        let mut agent = Agent::new(self, "host-1", config, self.pod());
        agent.site = site.routes();
        agent
    }

    /// The configuration of the agent of a seed at the edge, which accepts Shoots without workers.
    pub fn edge_config(&self) -> Value {
        let mut config = self.config();
        object::make_edge(&mut config);
        config
    }

    /// The environment of a pod in the seed.
    pub fn pod(&self) -> SortedMap<String, String> {
        let (host, port) =
            self.seed.url().strip_prefix("https://").and_then(|a| a.split_once(':').map(owned)).unwrap();
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        [
            pair("KUBERNETES_SERVICE_HOST", &host),
            pair("KUBERNETES_SERVICE_PORT", &port),
            pair("NAMESPACE", "garden"),
        ]
        .into()
    }

    /// The state of a condition of the Seed: status, reason, message.
    pub fn seed_condition(&self, kind: &str) -> Option<(String, String, String)> {
        self.garden.seed_condition(self.name, kind).map(|c| condition_texts(&c))
    }

    /// Waits for a condition of the Seed.
    pub fn wait_for_condition(&self, kind: &str, status: &str) {
        self.garden.wait_for(&format!("{kind}={status} of {}", self.name), |_| {
            self.seed_condition(kind).filter(|c| c.0 == status)
        });
    }

    /// Waits until the agent is ready: registered, reconciled, with heartbeats.
    pub fn wait_until_ready(&self) {
        self.garden.wait_for(&format!("seed {} to be ready", self.name), |_| {
            let seed = self.garden.seed(self.name)?;
            let done = seed["status"]["lastOperation"]["state"] == "Succeeded"
                && seed["status"]["observedGeneration"] == seed["metadata"]["generation"];
            let ready = condition(&seed, "GardenletReady").is_some_and(|c| c.0 == "True");
            (done && ready).then_some(())
        });
    }

    /// The time of the last renewal of the seed's Lease in the garden.
    pub fn beat(&self) -> Option<Timestamp> {
        let lease = self.garden.get(LEASES, "leases", "gardener-system-seed-lease", self.name)?;
        from_rfc3339(text(&lease, "/spec/renewTime"))
    }

    /// Lets time pass faster than the clock does, in step with the heartbeat and the leader's lease: a step starts only
    /// after both were renewed. Returns the longest time between two renewals.
    pub fn pass(&self, total: Duration) -> Duration {
        self.pass_by(Duration::from_secs(2), total)
    }

    /// The same with other steps, for an agent with fewer heartbeats.
    pub fn pass_by(&self, step: Duration, total: Duration) -> Duration {
        let until = self.clock.mono() + total;
        let (mut last, mut longest) = (self.beat().unwrap(), Duration::ZERO);
        while self.clock.mono() < until {
            let left = until.saturating_sub(self.clock.mono());
            self.time.advance(left.min(step));
            let now = self.clock.now().minus(step);
            self.garden.wait_for("the next heartbeat", |_| self.beat().filter(|beat| *beat > now));
            // Renewed every four seconds; the agent may write for four more.
            let recently = self.clock.now().minus(step.max(Duration::from_secs(3)));
            self.seed.wait_for("the next renewal of the leader's lease", |seed| {
                leader_renewed(seed).filter(|renewed| *renewed > recently)
            });
            let beat = self.beat().unwrap();
            longest = longest.max(beat.since(last));
            last = beat;
        }
        longest
    }

    /// Lets so much time pass by itself: the agent has time for all its work. [`World::pass`] and [`World::skip`] would end
    /// pauses before a slow machine has sent what belongs to them.
    pub fn let_pass(&self, time: Duration) {
        let until = self.clock.mono() + time;
        let passed = self
            .seed
            .wait_on(&pace::clock(), time + PATIENCE, |_| (self.clock.mono() >= until).then_some(()));
        assert!(passed.is_some(), "the time stands still");
    }

    /// The minutes since a point in time, rounded up. What an agent does every now and then is counted by them: on a busy
    /// machine, more time passes than a story lets pass.
    pub fn minutes_since(&self, begun: Mono) -> usize {
        usize::try_from((self.clock.mono() - begun).as_secs().div_ceil(60)).unwrap()
    }

    /// Prints how long something took by the clock of this world, which depends on the speed of the machine. Only a long run
    /// demands the limit.
    pub fn measured(&self, what: &str, took: Duration, limit: Duration) {
        let what = format!("{}: {what}, in seconds of its world", self.name);
        measured(&what, took.as_secs_f64(), limit.as_secs_f64()).unwrap();
    }

    /// Lets time pass without waiting.
    pub fn skip(&self, total: Duration) {
        let until = self.clock.mono() + total;
        while self.clock.mono() < until {
            self.time.advance(until.saturating_sub(self.clock.mono()).min(Duration::from_secs(1)));
            pause(Duration::from_millis(2));
        }
    }

    /// Lets time pass in turns. In each turn `count` grows, however slow the machine is.
    pub fn skip_in_turns(&self, turns: usize, each: Duration, what: &str, count: impl Fn() -> usize) {
        for _ in 0..turns {
            let before = count();
            self.skip(each);
            wait_for(what, || (count() > before).then_some(()));
        }
    }

    /// The log lines of all worlds since this world started.
    pub fn log(&self) -> Vec<String> {
        log().since(self.log_begin)
    }

    /// The lines since a position that name this world or one of its servers, at the default level: another story may
    /// switch the log of the whole process to the debug level for a while.
    pub fn own_log(&self, since: usize) -> Vec<String> {
        let names = [Self::address(&self.garden), Self::address(&self.seed), self.name.to_owned()];
        let is_own = |line: &String| names.iter().any(|name| line.contains(name.as_str()));
        let is_told = |line: &String| ![" DEBUG ", " TRACE "].iter().any(|level| line.contains(level));
        self.log().split_off(since).into_iter().filter(|line| is_told(line) && is_own(line)).collect()
    }

    /// Waits for a line with all these parts.
    pub fn wait_for_log(&self, parts: &[&str]) -> String {
        wait_for(&format!("a log line with {parts:?}"), || {
            self.log().into_iter().find(|line| parts.iter().all(|part| line.contains(part)))
        })
    }

    /// All certificate requests in the garden, the oldest first.
    pub fn requests(&self) -> Vec<Value> {
        let mut all = self.garden.store().list(CSRS, "certificatesigningrequests", "");
        all.sort_by_key(|request| text(request, "/metadata/creationTimestamp").to_owned());
        all
    }

    /// The one pending certificate request, once it exists.
    pub fn wait_for_request(&self) -> String {
        self.garden.wait_for("a pending certificate request", |_| {
            let open =
                self.requests().into_iter().find(|request| request["status"].get("conditions").is_none())?;
            Some(text(&open, "/metadata/name").to_owned())
        })
    }

    /// Approves or denies a certificate request, as an administrator does.
    pub fn decide(&self, request: &str, kind: &str, message: &str) {
        let condition = json!({"type": kind, "status": "True", "reason": "ByHand", "message": message});
        let kinds = self.garden.api().kind(CSRS, "certificatesigningrequests").unwrap();
        let target = Target::new(kinds, "", request).subresource("approval");
        let patch = Patch::Merge(json!({"status": {"conditions": [condition]}}));
        self.garden.api().patch(&target, &patch, &User::system()).unwrap();
    }

    /// The agent's certificate for the garden, from its Secret in the seed.
    pub fn certificate(&self) -> Option<Certificate> {
        Some(Certificate::parse_pem(&self.certificate_pem()?).unwrap())
    }

    /// The same as text.
    pub fn certificate_pem(&self) -> Option<String> {
        let secret = self.seed.get("", "secrets", "garden", "gardenlet-kubeconfig")?;
        let kubeconfig = from_base64(secret["data"]["kubeconfig"].as_str()?)?;
        let kubeconfig = gardenlet::format::yaml::parse(&String::from_utf8(kubeconfig).unwrap()).unwrap();
        let pem = from_base64(text(&kubeconfig, "/users/0/user/client-certificate-data"))?;
        Some(String::from_utf8(pem).unwrap())
    }

    /// Registers an extension in the garden.
    pub fn extend(&self, name: &str, chart: &[u8], values: &Value) {
        self.garden.apply(&prepare::extension(name, chart, values));
    }

    /// A condition of the installation of a registration.
    pub fn installation_condition(&self, registration: &str, kind: &str) -> Option<(String, String, String)> {
        condition(&self.garden.installations(registration).pop()?, kind)
    }

    /// Declares that the story removes permissions, or makes requests that are not allowed.
    pub fn expect_refusals(&self) {
        self.refusals_expected.store(true, Ordering::SeqCst);
    }

    /// Requests of the agent that its role in the seed does not allow. They would show that the role is too small.
    fn refusals(&self) -> Vec<String> {
        let requests = self.seed.requests();
        let refused = requests.iter().filter(|r| r.user == AGENT && r.status == 403 && r.fault.is_none());
        // A terminating namespace accepts no new objects from any client.
        let ends = |r: &&Recorded| {
            let namespace = self.seed.get("", "namespaces", "", &r.info.namespace);
            r.method == "POST"
                && !r.info.namespace.is_empty()
                && namespace.is_none_or(|namespace| !namespace["metadata"]["deletionTimestamp"].is_null())
        };
        refused.filter(|r| !ends(r)).map(Recorded::line).collect()
    }

    /// Writes the requests of the agent's own account for `packaging/roles --unused`, if tests/run asks for it.
    fn record_uses(&self) {
        let Some(folder) = std::env::var_os("GARDENLET_ROLE_USES") else { return };
        let requests = self.seed.requests();
        let used = requests.iter().filter(|r| r.user == AGENT && r.status != 403).map(crate::role::use_of);
        let lines: Vec<String> = used.collect::<BTreeSet<_>>().into_iter().collect();
        let file = Path::new(&folder).join(self.directory.file_name().unwrap());
        std::fs::write(file, lines.join("\n")).unwrap();
    }

    /// `127.0.0.1:<port>` of a server, as in messages.
    pub fn address(cluster: &TestCluster) -> String {
        cluster.url().trim_start_matches("https://").to_owned()
    }
}

impl Drop for World {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let lines = self.log();
            let told: Vec<&String> = lines.iter().filter(|l| !l.contains("result=requeue_after")).collect();
            let tail = &told[told.len().saturating_sub(120)..];
            let tail: Vec<&str> = tail.iter().map(|l| l.as_str()).collect();
            eprintln!("---- the last log lines, of all worlds:\n{}", tail.join("\n"));
            for cluster in [&**self.garden, &self.seed] {
                let all = cluster.requests();
                let tail = &all[all.len().saturating_sub(25)..];
                let lines: Vec<String> = tail.iter().map(|r| format!("{} ({})", r.line(), r.user)).collect();
                eprintln!("---- the last requests to {}:\n{}", cluster.name, lines.join("\n"));
            }
        }
        let _ = std::fs::remove_dir_all(&self.directory);
        if !std::thread::panicking() {
            self.record_uses();
        }
        if !std::thread::panicking() && !self.refusals_expected.load(Ordering::SeqCst) {
            assert_eq!(self.refusals(), Vec::<String>::new(), "refused by the agent's own role");
        }
    }
}

/// When the leader of a seed has renewed its Lease.
pub fn leader_renewed(seed: &TestCluster) -> Option<Timestamp> {
    renewed(seed, "gardenlet-leader-election")
}

/// When a Lease of the seed was renewed.
pub fn renewed(seed: &TestCluster, lease: &str) -> Option<Timestamp> {
    let lease = seed.get(LEASES, "leases", "garden", lease)?;
    from_rfc3339(text(&lease, "/spec/renewTime"))
}

fn owned((a, b): (&str, &str)) -> (String, String) {
    (a.to_owned(), b.to_owned())
}

/// Status, reason and message.
pub fn condition_texts(condition: &Value) -> (String, String, String) {
    let get = |key: &str| text(condition, key).to_owned();
    (get("/status"), get("/reason"), get("/message"))
}

/// A condition of any object.
pub fn condition(object: &Value, kind: &str) -> Option<(String, String, String)> {
    let all = support::json::list(object, "/status/conditions");
    all.iter().find(|c| c["type"] == kind).map(condition_texts)
}

/// Waits until `condition` returns a value.
pub fn wait_for<T>(what: &str, condition: impl Fn() -> Option<T>) -> T {
    let clock = pace::clock();
    let deadline = clock.mono() + patience(PATIENCE);
    loop {
        if let Some(found) = condition() {
            return found;
        }
        assert!(clock.mono() < deadline, "waited in vain for {what}");
        pause(Duration::from_millis(5));
    }
}

/// Real time for other threads; nothing may depend on its length.
fn pause(real: Duration) {
    Stop::new().wait(&Clock::system(), real);
}

/// Opens connections and can cut all of them at once: the network of one process.
#[derive(Debug, Default)]
pub struct Cable {
    cut: AtomicBool,
    open: Mutex<Vec<Weak<TcpStream>>>,
    /// The real addresses behind some addresses (`host:port`).
    routes: BTreeMap<String, SocketAddr>,
    asked: Mutex<BTreeSet<String>>,
    /// The addresses of the API servers of Shoots.
    site: Routes,
    /// Where packets are dropped: `host:port`.
    lost: Mutex<Option<String>>,
}

impl Cable {
    /// Connections to this address (`host:port`) are neither established nor refused.
    pub fn lose(&self, address: Option<&str>) {
        *self.lost.lock().unwrap() = address.map(str::to_owned);
    }

    /// Ends all connections and opens no more.
    pub fn cut(&self) {
        self.cut.store(true, Ordering::SeqCst);
        self.break_off();
    }

    /// Ends all connections; new ones may be opened.
    pub fn break_off(&self) {
        for stream in self.open.lock().unwrap_or_else(PoisonError::into_inner).drain(..) {
            let _ = stream.upgrade().map(|stream| stream.shutdown(Shutdown::Both));
        }
    }

    /// The destinations of connections: `host:port`.
    pub fn asked(&self) -> BTreeSet<String> {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Dial for Cable {
    fn dial(&self, host: &str, port: u16, timeout: Duration) -> io::Result<TcpStream> {
        let refused = || io::Error::from(io::ErrorKind::ConnectionRefused);
        if self.cut.load(Ordering::SeqCst) {
            return Err(refused());
        }
        let name = format!("{host}:{port}");
        let (clock, is_lost) = (Clock::system(), || self.lost.lock().unwrap().as_ref() == Some(&name));
        while is_lost() {
            if clock.mono() >= timeout {
                return Err(io::ErrorKind::TimedOut.into());
            }
            pause(Duration::from_millis(20));
        }
        let stream = match self.routes.get(&name) {
            Some(address) => TcpStream::connect_timeout(address, timeout)?,
            None => self.site.dial(host, port, timeout)?,
        };
        self.asked.lock().unwrap_or_else(PoisonError::into_inner).insert(name);
        Ok(stream)
    }

    fn opened(&self, socket: &Arc<TcpStream>) {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        // Under the lock: a cut between dial and here must not leave a connection behind.
        if self.cut.load(Ordering::SeqCst) {
            let _ = socket.shutdown(Shutdown::Both);
            return;
        }
        open.retain(|other| other.strong_count() > 0);
        open.push(Arc::downgrade(socket));
    }
}

/// One life of the program.
struct Life {
    stop: Stop,
    cable: Arc<Cable>,
    reloader: Reloader,
    thread: JoinHandle<Result<(), app::Error>>,
}

/// The program, over several lives with one state directory and one configuration.
pub struct Agent {
    hostname: String,
    settings: config::Settings,
    state: String,
    variables: SortedMap<String, String>,
    account: PathBuf,
    clock: Clock,
    built: Timestamp,
    renderer: Renderer,
    pub keys: Arc<FixtureKeys>,
    /// Those of the current life.
    pub status: Mutex<AgentStatus>,
    pub metrics: Mutex<Metrics>,
    life: Mutex<Option<Life>>,
    /// See [`Cable`].
    pub routes: BTreeMap<String, SocketAddr>,
    /// The route to the API servers of Shoots, if the seed has a site for them.
    pub site: Routes,
    /// `127.x.y.z`, the address of its probes (2728) and metrics (2729).
    pub probes: String,
}

impl Agent {
    /// An agent that is not started.
    pub fn new(world: &World, hostname: &str, config: &Value, variables: SortedMap<String, String>) -> Self {
        let probes = own_address();
        let state = world.path(&format!("state-{hostname}")).to_str().unwrap().to_owned();
        Self {
            hostname: hostname.to_owned(),
            settings: settings(config, &probes, &state, &variables),
            state,
            variables,
            account: world.path(ACCOUNT_DIRECTORY),
            clock: world.clock.clone(),
            built: BUILT,
            renderer: Renderer::Child { program: env!("CARGO_BIN_EXE_gardenlet").into() },
            keys: Arc::default(),
            status: Mutex::new(AgentStatus::new(world.clock.clone())),
            metrics: Mutex::new(Metrics::new()),
            life: Mutex::new(None),
            routes: BTreeMap::new(),
            site: Routes::default(),
            probes,
        }
    }

    /// The same on a machine with another clock.
    #[must_use]
    pub fn with_clock(mut self, clock: Clock) -> Self {
        self.clock = clock;
        self
    }

    /// The same in a pod with another account, whose files are in this folder.
    #[must_use]
    pub fn with_account(mut self, folder: PathBuf) -> Self {
        self.account = folder;
        self
    }

    /// Its settings.
    pub fn settings(&self) -> config::Settings {
        self.settings.clone()
    }

    /// Starts a life.
    pub fn launch(&self) {
        let (routes, site) = (self.routes.clone(), self.site.clone());
        let (stop, cable) = (Stop::new(), Arc::new(Cable { routes, site, ..Cable::default() }));
        let (metrics, status) = (Metrics::new(), AgentStatus::new(self.clock.clone()));
        let env = Environment {
            clock: self.clock.clone(),
            built: self.built,
            dialer: cable.clone(),
            stop: stop.clone(),
            metrics: metrics.clone(),
            variables: self.variables.clone(),
            hostname: self.hostname.clone(),
            renderer: self.renderer.clone(),
            keys: self.keys.clone(),
            service_account_dir: self.account.clone(),
        };
        *self.status.lock().unwrap() = status.clone();
        *self.metrics.lock().unwrap() = metrics;
        let settings = self.settings.clone();
        let reloader = Reloader::new();
        let reloading = reloader.clone();
        let run = move || {
            let result =
                app::run_reloading(Arc::new(settings), &env, &status, &reloading, &Service::default());
            if let Err(error) = &result {
                log::error!(err = gardenlet::base::error::chain(error).as_str(); "The agent could not start");
            }
            result
        };
        let thread = thread::spawn("agent", 1 << 20, run).unwrap();
        let before = self.life.lock().unwrap().replace(Life { stop, cable, reloader, thread });
        assert!(before.is_none(), "the agent runs already");
    }

    /// Gives the running program another configuration, as SIGHUP does.
    pub fn reload(&self, config: &Value) {
        let settings = settings(config, &self.probes, &self.state, &self.variables);
        self.life.lock().unwrap().as_ref().unwrap().reloader.offer(Arc::new(settings));
    }

    /// The network of the current life.
    pub fn cable(&self) -> Arc<Cable> {
        self.present_cable().unwrap()
    }

    /// The same, if there is one.
    pub fn present_cable(&self) -> Option<Arc<Cable>> {
        self.life.lock().unwrap().as_ref().map(|life| life.cable.clone())
    }

    /// Whether the program still runs.
    pub fn is_alive(&self) -> bool {
        self.life.lock().unwrap().as_ref().is_some_and(|life| !life.thread.is_finished())
    }

    /// The state and the problem of each part.
    pub fn problem(&self, part: &str) -> Option<String> {
        self.status.lock().unwrap().parts().get(part).and_then(|part| part.problem.clone())
    }

    /// Waits until a part names a problem with all these words.
    pub fn wait_for_problem(&self, part: &str, words: &[&str]) -> String {
        wait_for(&format!("a problem of part {part} with {words:?}, not {:?}", self.problem(part)), || {
            self.problem(part).filter(|problem| words.iter().all(|word| problem.contains(word)))
        })
    }

    /// Waits until a part has no problem.
    pub fn wait_until_no_problem(&self, part: &str) {
        wait_for(&format!("part {part} to have no problem"), || self.problem(part).is_none().then_some(()));
    }

    /// Waits until ManagedResources are applied, which needs no garden.
    pub fn wait_until_the_seed_side_runs(&self) {
        wait_for("the applier", || {
            let parts = self.status.lock().unwrap().parts();
            (parts.get("managedresource-applier")?.stage == "running").then_some(())
        });
    }

    /// Ends the life in order: leases are released.
    pub fn stop(&self) {
        let result = self.end();
        assert!(result.is_ok(), "{result:?}");
    }

    /// Ends the life like a power cut: no request is sent any longer.
    pub fn crash(&self) {
        self.cable().cut();
        let _ = self.end();
    }

    /// A power cut, and the next life.
    pub fn crash_and_restart(&self) {
        self.crash();
        self.launch();
    }

    fn end(&self) -> Result<(), app::Error> {
        let Some(life) = self.life.lock().unwrap().take() else { return Ok(()) };
        life.stop.stop();
        life.thread.join().unwrap()
    }

    /// It runs, and its threads make progress once they have noticed a jump of the clock.
    pub fn lives(&self) {
        assert!(self.is_alive());
        wait_for("/livez", || (self.get(2728, "/livez").0 == 200).then_some(()));
    }

    /// A GET to the probes, or to the metrics (port 2729): status and body.
    pub fn get(&self, port: u16, path: &str) -> (u16, String) {
        use std::io::{Read as _, Write as _};
        let mut stream = TcpStream::connect((self.probes.as_str(), port)).unwrap();
        stream.write_all(format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n").as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
    }
}

/// The settings of an agent with its own state directory (none if it is null) and its own address, unless the
/// configuration has one.
fn settings(
    config: &Value,
    probes: &str,
    state: &str,
    variables: &SortedMap<String, String>,
) -> config::Settings {
    let mut config = config.clone();
    if config["edge"].get("stateDir").is_none() {
        config["edge"]["stateDir"] = json!(state);
    }
    if config.get("server").is_none() {
        config["server"] =
            json!({"healthProbes": {"bindAddress": probes}, "metrics": {"bindAddress": probes}});
    }
    let mut loaded = config::load(&config.to_string(), "config.yaml").unwrap();
    // Shoots of stories are at addresses of loopback.
    let is_meant = |warning: &config::ConfigProblem| {
        warning.message.starts_with("has no effect: ") || warning.path == "edge.exposure.address"
    };
    assert!(loaded.warnings.iter().all(is_meant), "{:?}", loaded.warnings);
    loaded.settings.apply_environment(|name| variables.get(name).cloned()).unwrap();
    loaded.settings.check_garden_access().unwrap();
    loaded.settings
}

impl Drop for Agent {
    fn drop(&mut self) {
        if let Some(life) = self.life.lock().unwrap_or_else(PoisonError::into_inner).take() {
            life.stop.stop();
            life.cable.cut();
            let _ = life.thread.join();
        }
    }
}

/// A loopback address that is not in use: 64,000 for each process, since many agents have ended and one of the first
/// may still run.
pub fn own_address() -> String {
    let (pid, serial) = (std::process::id(), serial());
    format!("127.{}.{}.{}", 1 + pid % 254, serial / 250 % 256, 1 + serial % 250)
}

/// Whether a request is a write of an agent.
pub fn is_write_of_agent(seen: &Seen) -> bool {
    seen.is_write() && seen.user_agent.starts_with("gardenlet/")
}

/// Reads a file of the state directory of `host-1`.
pub fn state_file(world: &World, name: &str) -> Option<Vec<u8>> {
    std::fs::read(Path::new(&world.path("state-host-1")).join(name)).ok()
}

/// A role that every real cluster has.
pub fn cluster_admin() -> Value {
    json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "cluster-admin"},
        "rules": [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}, {"nonResourceURLs": ["*"], "verbs": ["*"]}]})
}
