//! Two seeds of one garden, each with its agent, its site and its extensions, and what they share: time, buckets, names of the
//! DNS, and a ledger of the data of Shoots.
//!
//! An address leads to one site only, so a name shows to which seed it points. A [`Writer`] is a client of the Shoot that knows
//! its name alone: it writes as long as somebody answers, and remembers what was acknowledged.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use gardenlet::api::core::CONFIG_MAP;
use gardenlet::api::gardener::SHOOT;
use gardenlet::api::meta::Key;
use gardenlet::base::stop::Stop;
use gardenlet::base::{clock::Clock, thread};
use gardenlet::kube::request::ApiRequest;
use gardenlet::kube::{self, Client, Patch};
use serde_json::{Value, json};

use crate::player::{Manners, Player};
use crate::story_backups;
use crate::story_shoot_others::register;
use crate::world::{Agent, CORE, Options, World};
use support::TestCluster;
use support::backups;
use support::cluster::PATIENCE;
use support::garden::prepare;
use support::json::{entry, list, text};
use support::names::Names;
use support::pace;
use support::player::{GROUP, Playing};
use support::shoot::buckets::Snapshot;
use support::shoot::etcd::Etcds;
use support::shoot::history::Operation;
use support::shoot::object::{PROJECT_NAMESPACE, SERVICES, technical_id};
use support::shoot::owner;
use support::shoot::{Options as SiteOptions, Site};

pub(crate) const NAME: &str = "s1";
pub(crate) const PLACE: (&str, &str) = (PROJECT_NAMESPACE, NAME);
/// The name of the Shoot's API server, for its owner.
pub(crate) const HOST: &str = "api.s1.p.shoots.example.org";
pub(crate) const BEFORE: &str = "BeforeKubeAPIServer";
const AFTER: &str = "AfterKubeAPIServer";
/// The extensions of each Shoot, and when they act in a reconciliation, in a migration and in a deletion. No two of these have the same
/// moment for all extensions.
pub(crate) const EXTENSIONS: [(&str, [&str; 3]); 3] = [
    ("early", [BEFORE, BEFORE, AFTER]),
    ("late", [AFTER, AFTER, BEFORE]),
    ("mixed", [AFTER, BEFORE, BEFORE]),
];
const IMAGE: &str = "registry.example.org/gardenlet:1";

/// One seed. The world ends last.
pub(crate) struct Side {
    playing: Playing,
    pub(crate) agent: Arc<Agent>,
    pub(crate) site: Site,
    pub(crate) player: Player,
    /// The configuration of its agent.
    pub(crate) config: Value,
    /// The address of its nodes.
    pub(crate) address: &'static str,
    pub(crate) world: World,
}

impl Side {
    fn start(world: World, address: &'static str, shared: &Shared, change: impl Fn(&mut Value)) -> Self {
        let node_addresses = vec![address.to_owned()];
        let etcds = Some(shared.etcds.at(world.name));
        let site = world.site_with(SiteOptions { node_addresses, etcds, ..SiteOptions::default() });
        let mut config = config(&world, address);
        change(&mut config);
        let agent = Arc::new(world.agent_of(&site, &config));
        let player = Player::of(&["backupbuckets"]);
        let leaving = |what: &str| json!({"state": {"of": what}});
        player.behave("extensions", Manners { status: leaving("the extension"), ..Manners::default() });
        let records = Manners { status: leaving("the record"), ..shared.names.manners() };
        player.behave("dnsrecords", records);
        player.behave(
            "backupentries",
            Manners {
                status: leaving("the entry"),
                ..backups::manners(world.seed.client(), &shared.etcds.buckets)
            },
        );
        let playing = player.start(world.seed.client());
        agent.launch();
        world.wait_until_ready();
        Self { playing, agent, site, player, config, address, world }
    }

    pub(crate) fn name(&self) -> &'static str {
        self.world.name
    }

    pub(crate) fn seed(&self) -> &TestCluster {
        &self.world.seed
    }

    /// The bucket of the Seed.
    pub(crate) fn bucket(&self) -> String {
        text(&self.world.garden.seed(self.name()).unwrap(), "/metadata/uid").to_owned()
    }

    /// The data of the Secrets that move with a Shoot, by their names.
    pub(crate) fn persisted(&self) -> BTreeMap<String, Value> {
        let all = self.seed().store().list("", "secrets", &technical_id(NAME));
        let kept = all.iter().filter(|secret| entry(secret, "/metadata/labels", "persist") == Some("true"));
        kept.map(|secret| (text(secret, "/metadata/name").to_owned(), secret["data"].clone())).collect()
    }

    /// Ends its agent in order. Nobody complained.
    pub(crate) fn end(self) {
        self.agent.stop();
        drop(self.playing);
        assert_eq!(self.site.complaints(), Vec::<String>::new());
    }

    /// What is left of the Shoot in the seed, except events.
    pub(crate) fn left(&self) -> Vec<String> {
        let (store, plane) = (self.seed().store(), technical_id(NAME));
        let state = store.read();
        let is_of_shoot = |namespace: &str, name: &str| {
            namespace == plane || name == plane || name.contains(&format!("{plane}--"))
        };
        let ids =
            state.objects.keys().filter(|id| id.plural != "events" && is_of_shoot(&id.namespace, &id.name));
        ids.map(|id| format!("{} {}/{}", id.plural, id.namespace, id.name)).collect()
    }

    /// The Shoot's storage, as soon as its API server has begun here.
    pub(crate) fn stored(&self, group: &str, plural: &str, place: (&str, &str)) -> Option<Value> {
        self.site.server(&technical_id(NAME))?.cluster.get(group, plural, place.0, place.1)
    }
}

/// What the seeds share.
struct Shared {
    etcds: Etcds,
    names: Names,
}

/// See the module.
pub(crate) struct Stage {
    pub(crate) a: Side,
    pub(crate) b: Side,
    pub(crate) etcds: Etcds,
    pub(crate) names: Names,
}

fn config(world: &World, address: &str) -> Value {
    let mut config = world.config();
    let spec = &mut config["seedConfig"]["spec"];
    spec["networks"]["shootDefaults"] = json!({"services": SERVICES});
    let mut domain = spec["dns"]["internal"].clone();
    domain["domain"] = json!("shoots.example.org");
    spec["dns"]["defaults"] = json!([domain]);
    spec["backup"] = story_backups::section();
    config["edge"]["exposure"] = json!({"type": "NodePort", "address": address});
    config["edge"]["etcd"]["snapshots"] = json!({"store": "S3", "image": IMAGE});
    config["controllers"]["shoot"]["progressReportPeriod"] = json!("2s");
    // Longer than the jumps of the clock.
    config["leaderElection"] =
        json!({"leaderElect": true, "leaseDuration": "60h", "renewDeadline": "50h", "retryPeriod": "2s"});
    config
}

fn secret(name: &str, data: &Value) -> Value {
    json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name, "namespace": "garden"}, "data": data})
}

impl Stage {
    /// Starts both seeds, and waits until Shoots can move between them.
    pub(crate) fn start(a: &'static str, b: &'static str) -> Self {
        Self::start_with(a, b, |_| {})
    }

    /// The same, with a change of the configuration of both agents.
    pub(crate) fn start_with(a: &'static str, b: &'static str, change: impl Fn(&mut Value)) -> Self {
        let first = World::start(&Options::new(a));
        first
            .garden
            .apply(&[secret("dns", &json!({"token": "dHdv"})), secret("backup", &backups::credentials())]);
        first.garden.apply(&prepare::backups("local"));
        for (name, [reconcile, migrate, delete]) in EXTENSIONS {
            let lifecycle = json!({"reconcile": reconcile, "migrate": migrate, "delete": delete});
            register(&first, name, &json!({"autoEnable": ["shoot"], "lifecycle": lifecycle}));
        }
        let second = first.beside(b);
        let shared = Shared { etcds: Etcds::default(), names: Names::default() };
        let a = Side::start(first, "10.50.0.1", &shared, &change);
        let b = Side::start(second, "10.50.0.2", &shared, &change);
        for side in [&a, &b] {
            side.world.wait_for_condition("SeedSystemComponentsHealthy", "True");
        }
        Self { a, b, etcds: shared.etcds, names: shared.names }
    }

    /// Starts one more seed to which the Shoot can move.
    pub(crate) fn third(&self, name: &'static str) -> Side {
        let shared = Shared { etcds: self.etcds.clone(), names: self.names.clone() };
        let side = Side::start(self.a.world.beside(name), "10.50.0.3", &shared, |_| {});
        side.world.wait_for_condition("SeedSystemComponentsHealthy", "True");
        side
    }

    pub(crate) fn garden(&self) -> &TestCluster {
        &self.a.world.garden
    }

    pub(crate) fn shoot(&self) -> Value {
        self.garden().get(CORE, "shoots", PLACE.0, PLACE.1).unwrap()
    }

    /// The name of the Shoot's BackupEntry.
    pub(crate) fn entry_name(&self) -> String {
        format!("{}--{}", technical_id(NAME), text(&self.shoot(), "/status/uid"))
    }

    pub(crate) fn entry(&self, name: &str) -> Option<Value> {
        self.garden().get(CORE, "backupentries", PLACE.0, name)
    }

    /// The snapshots of the Shoot in the bucket of a seed.
    pub(crate) fn snapshots(&self, of: &Side) -> Vec<String> {
        let prefix = format!("{}/etcd-main", self.entry_name());
        self.etcds.buckets.all(&of.bucket(), &prefix).iter().map(Snapshot::file).collect()
    }

    /// Lets the Shoot move: what its operator does.
    pub(crate) fn bind(&self, to: &Side) {
        let path = SHOOT.subresource_path(&Key::new(PLACE.0, PLACE.1), "binding");
        let patch = Patch::Strategic(json!({"spec": {"seedName": to.name()}}));
        self.garden().client().fetch::<Value>(&ApiRequest::patch(path, &patch)).unwrap();
    }

    /// Nothing is wrong with the data, now and before.
    pub(crate) fn check(&self) {
        assert_eq!(self.etcds.ledger.problems(), Vec::<String>::new());
    }

    /// Waits until the last operation is so and nothing waits for the agent. The Shoot as it is then.
    pub(crate) fn until(&self, line: &str) -> Value {
        self.wait_for(line, |shoot| {
            Operation::of(shoot).is_some_and(|operation| operation.line() == line) && is_observed(shoot)
        })
    }

    /// Waits until the Shoot is so, and checks the data after each change of the garden. The Shoot as it is then.
    pub(crate) fn wait_for(&self, what: &str, is_so: impl Fn(&Value) -> bool) -> Value {
        let found = self.garden().wait_on(&pace::clock(), 2 * PATIENCE, |_| {
            self.check();
            Some(self.shoot()).filter(&is_so)
        });
        found.unwrap_or_else(|| panic!("waited in vain for {what}: {}", self.shoot()["status"]))
    }

    /// A client of the Shoot with the credentials that the garden gives to its owner. It knows the name of the API server.
    pub(crate) fn owner(&self) -> Client {
        let dialer = self.names.dialer(&[self.a.site.routes(), self.b.site.routes()]);
        let options = kube::Options {
            clock: self.a.world.clock.clone(),
            dialer: Arc::new(dialer),
            timeout: Duration::from_secs(5),
            qps: 0.0,
            ..kube::Options::default()
        };
        let client = owner::client(self.garden(), &Key::new(PLACE.0, PLACE.1), options);
        assert!(client.connection().server.contains(HOST), "{}", client.connection().server);
        client
    }

    /// The reasons of the events of the Shoot.
    pub(crate) fn events(&self) -> Vec<String> {
        let all = self.garden().store().list("events.k8s.io", "events", PLACE.0);
        let of_shoot = all.iter().filter(|event| event["regarding"]["name"] == NAME);
        of_shoot.map(|event| text(event, "/reason").to_owned()).collect()
    }

    /// Whether the constraint `ReadyForMigration` had this status at some time.
    pub(crate) fn was_ready(&self, status: &str) -> bool {
        let state = self.garden().store().read();
        let mut shoots = state.since(state.compacted).filter(|change| change.id.is_of(CORE, "shoots"));
        shoots.any(|change| {
            let mut all = list(&change.after, "/status/constraints").iter();
            all.any(|constraint| constraint["type"] == "ReadyForMigration" && constraint["status"] == status)
        })
    }

    /// An object of an extension of the Shoot in a seed.
    pub(crate) fn object(&self, of: &Side, plural: &str, name: &str) -> Option<Value> {
        let namespace = if plural == "backupentries" { String::new() } else { technical_id(NAME) };
        of.seed().get(GROUP, plural, &namespace, name)
    }

    /// Ends both agents in order. Nobody complained.
    pub(crate) fn end(self) {
        self.check();
        [self.a, self.b].into_iter().for_each(Side::end);
    }
}

/// Nothing waits for the agent.
pub(crate) fn is_observed(shoot: &Value) -> bool {
    shoot["status"]["observedGeneration"] == shoot["metadata"]["generation"]
}

/// What was acknowledged: the name of an object, and its UID.
pub(crate) type Acknowledged = Vec<(String, String)>;

/// A client that writes to the Shoot all the time, on a thread of its own.
pub(crate) struct Writer {
    stop: Stop,
    written: Arc<Mutex<Acknowledged>>,
    thread: Option<JoinHandle<()>>,
}

impl Writer {
    pub(crate) fn start(client: Client) -> Self {
        let (stop, written) = (Stop::new(), Arc::new(Mutex::new(Vec::new())));
        let (stopped, list) = (stop.clone(), written.clone());
        let thread = thread::spawn("writer", 1 << 20, move || {
            let mut number = 0;
            while !stopped.is_stopped() {
                let name = format!("written-{number}");
                let map = json!({"metadata": {"name": name}, "data": {"number": number.to_string()}});
                // A write whose answer is lost may be there or not. Its name is not used again.
                if let Ok(made) = client.create::<Value>(&CONFIG_MAP, "default", &map) {
                    list.lock().unwrap().push((name, text(&made, "/metadata/uid").to_owned()));
                }
                number += 1;
                stopped.wait(&Clock::system(), Duration::from_millis(20));
            }
        });
        Self { stop, written, thread: Some(thread.unwrap()) }
    }

    /// How many writes were acknowledged so far.
    pub(crate) fn count(&self) -> usize {
        self.written.lock().unwrap().len()
    }

    /// Ends it: everything that was acknowledged.
    pub(crate) fn end(mut self) -> Acknowledged {
        self.stop.stop();
        self.thread.take().unwrap().join().unwrap();
        std::mem::take(&mut *self.written.lock().unwrap())
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.stop.stop();
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

/// What was acknowledged and is not in the storage of the Shoot on this seed.
pub(crate) fn missing(side: &Side, written: &Acknowledged) -> Vec<String> {
    let is_there = |(name, uid): &&(String, String)| {
        let found = side.stored("", "configmaps", ("default", name));
        found.is_some_and(|found| text(&found, "/metadata/uid") == uid)
    };
    written.iter().filter(|one| !is_there(one)).map(|(name, _)| name.clone()).collect()
}
