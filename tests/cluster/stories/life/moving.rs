//! A Shoot moves between two seeds of this agent: its control plane in the node of one, then in that of the other. The garden
//! is that of the real Gardener, and the buckets are those of a real server of S3.

use std::sync::Mutex;

use gardenlet::api::core::{NAMESPACE, SECRET};
use gardenlet::api::gardener::{BACKUP_ENTRY, SEED as SEEDS, SHOOT};
use gardenlet::api::meta::{Key, text};
use gardenlet::backup::garden::entry_name;
use gardenlet::base::clock::Clock;
use gardenlet::base::stop::Stop;
use gardenlet::format::base64;
use gardenlet::kube::{Client, ListParams, Method, Options, Patch};
use serde_json::{Value, json};

use super::end;
use super::garden::{self, Garden, Joining, Peer};
use super::owner::Owner;
use super::rotation::{fill, many};
use super::writer;
use super::{COMPONENTS, ONE, PROJECT, SUCCEEDED_WITHIN_S, explained, shoot};
use crate::agent::Agent;
use crate::audit::Audit;
use crate::cluster::Cluster;
use crate::failure::{Failure, Result, ensure, equal};
use crate::gateway::Gateway;
use crate::image;
use crate::lab::Lab;
use crate::outside;
use crate::second::{NODE_ADDRESS, SecondSeed};
use crate::site::Site;
use crate::snapshot::Snapshot;
use crate::stories::role;
use crate::stories::steps::{self, while_running};
use crate::wait;
use crate::world;
use support::backups;
use support::garden::prepare::{self, Preparation};
use support::player::{Deed, Manners, Player, Playing};

const FIRST: &str = world::SEED;
const SECOND: &str = "edge-2";
/// What an operator changes in the packaged configuration for the second seed.
const EDITS: &[(&str, &str)] = &[
    ("edge-1", SECOND),
    ("10.50.0.0/16", "10.88.0.0/16"),
    ("10.42.0.0/16", "10.98.0.0/16"),
    ("10.43.0.0/16", "10.3.0.0/16"),
];
const IMAGE: &str = concat!("docker.io/library/gardenlet:", env!("CARGO_PKG_VERSION"));
const OBJECTS: usize = 2_000;
const READY_WITHIN_S: u64 = 120;
const BOUND_WITHIN_S: u64 = 10;
const MOVED_WITHIN_S: u64 = 600;
/// The goal for the time without an API server.
const AWAY_S: f64 = 60.0;
/// Acknowledged writes before and after a move.
const WRITES: usize = 30;

/// Everything that takes part. Dropped in this order.
struct Cast {
    agents: [Agent; 2],
    _playing: [Playing; 2],
    _peer: Garden,
    gateway: Gateway,
    second: SecondSeed,
    garden: Client,
}

/// A Shoot with 2,000 objects moves while somebody writes, and keeps its CAs, the tokens of its ServiceAccounts and all
/// acknowledged writes. It moves back while it is hibernated, wakes up, and is deleted. Nothing of it stays on the seed that it
/// has left.
pub(crate) fn there_and_back(lab: &mut Lab) -> Result<()> {
    // Ends after the cast.
    let site = Site::start(lab, &COMPONENTS)?;
    let mut cast = Cast::gather(lab, &site)?;
    let before = end::look(lab)?;
    let mut object = shoot(ONE, image::API_SERVER.version());
    object["spec"]["seedName"] = json!(FIRST);
    lab.garden.apply(&object)?;
    cast.reaches(lab, FIRST, "Create Succeeded", SUCCEEDED_WITHIN_S)?;
    let owner = Owner::new(lab, &cast.garden, ONE, &site.outside)?;
    owner.gets_in(image::API_SERVER.version())?;
    owner.keeps_a_secret()?;
    fill(&owner.client()?, OBJECTS)?;
    let known = Known::look(&cast.garden, &owner)?;

    cast.moves_under_a_writer(lab, &site, &owner)?;
    let owner = Owner::new(lab, &cast.garden, ONE, &site.outside)?;
    owner.gets_in(image::API_SERVER.version())?;
    known.is_unchanged(&cast.garden, &owner)?;
    cast.has_left(&lab.seed, (FIRST, SECOND))?;

    cast.patch(&json!({"spec": {"hibernation": {"enabled": true}}}))?;
    cast.reaches(lab, SECOND, "Reconcile Succeeded", SUCCEEDED_WITHIN_S)?;
    let began = wait::now();
    cast.bind(FIRST)?;
    let moved = cast.reaches(lab, FIRST, "Reconcile Succeeded", MOVED_WITHIN_S)?;
    println!("       {:6.1} s  moved back while it is hibernated", wait::seconds_since(began));
    equal("status.hibernated", &moved["status"]["hibernated"], &json!(true))?;
    cast.has_left(&cast.second.cluster, (SECOND, FIRST))?;
    cast.patch(&json!({"spec": {"hibernation": {"enabled": false}}}))?;
    cast.reaches(lab, FIRST, "Reconcile Succeeded", SUCCEEDED_WITHIN_S)?;
    let owner = Owner::new(lab, &cast.garden, ONE, &site.outside)?;
    owner.gets_in(image::API_SERVER.version())?;
    known.is_unchanged(&cast.garden, &owner)?;
    end::goes(lab, &cast.garden, &mut cast.agents[0], (&before, ONE))?;
    role::allows_with_shoots(&mut Audit::of_all(&cast.second.cluster.audit_log())).map(drop)
}

/// What a move does not change.
struct Known {
    authorities: Value,
    token: String,
    uid: Value,
}

impl Known {
    fn look(garden: &Client, owner: &Owner<'_>) -> Result<Self> {
        let shoot: Value = garden.get(&SHOOT, &Key::new(PROJECT, ONE.0))?;
        let token = owner.kubectl(&["create", "token", "default", "--duration=24h"])?.trim().to_owned();
        let authorities = authorities(garden)?;
        Ok(Self { authorities, token, uid: shoot["status"]["uid"].clone() })
    }

    fn is_unchanged(&self, garden: &Client, owner: &Owner<'_>) -> Result<()> {
        equal("the CAs", &authorities(garden)?, &self.authorities)?;
        let shoot: Value = garden.get(&SHOOT, &Key::new(PROJECT, ONE.0))?;
        equal("status.uid", &shoot["status"]["uid"], &self.uid)?;
        owner.finds_everything()?;
        let client = owner.client()?;
        let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": self.token}});
        let path = "/apis/authentication.k8s.io/v1/tokenreviews";
        let answer =
            client.raw(Method::Post, path, Some(review.to_string().as_bytes()), "application/json")?;
        let answer: Value = serde_json::from_slice(&answer.body)?;
        equal("whether its tokens are valid", &answer["status"]["authenticated"], &json!(true))?;
        let mut wrong = Vec::new();
        let mut count = 0;
        client.list_all::<Value>(&SECRET, "default", &ListParams::default(), &mut |secret| {
            let name = text(&secret["metadata"]["name"]);
            if name.starts_with("many-") {
                let number = base64::decode(text(&secret["data"]["n"]).as_bytes()).unwrap_or_default();
                let number = String::from_utf8_lossy(&number).parse().unwrap_or(usize::MAX);
                count += 1;
                wrong.extend((many(number) != name).then(|| name.to_owned()));
            }
        })?;
        equal("Secrets with another value", &wrong, &Vec::new())?;
        equal("Secrets", &count, &OBJECTS)
    }
}

/// The bundle of CAs that clients trust.
fn authorities(garden: &Client) -> Result<Value> {
    let key = Key::new(PROJECT, format!("{}.ca-cluster", ONE.0));
    Ok(garden.get::<Value>(&gardenlet::api::core::CONFIG_MAP, &key)?["data"].clone())
}

impl Cast {
    /// Starts both seeds and their agents, and waits until Shoots can move.
    fn gather(lab: &mut Lab, site: &Site) -> Result<Self> {
        let began = wait::now();
        let second = SecondSeed::start(lab, &COMPONENTS)?;
        let archive = image::of_the_agent(&lab.place)?;
        site.node.import(&archive)?;
        second.node.import(&archive)?;
        site.outside.knows(NODE_ADDRESS)?;
        let gateway = Gateway::start(lab)?;
        let peer = Garden::prepare(lab, Peer::Gardener)?;
        let preparation = Preparation::new(SECOND, Clock::system().now());
        let data: serde_json::Map<String, Value> =
            Gateway::credentials().into_iter().map(|(name, value)| (name.to_owned(), json!(value))).collect();
        let mut objects = prepare::backups();
        objects.push(preparation.bootstrap_token());
        objects.push(json!({"apiVersion": "v1", "kind": "Secret", "stringData": data,
            "metadata": {"namespace": "garden", "name": "backup"}}));
        lab.garden.apply(&world::list(&objects))?;
        garden::apply(&second.cluster, "rbac.yaml")?;
        let playing = [play(&lab.seed, &gateway)?, play(&second.cluster, &gateway)?];
        let change = |config: &mut Value| {
            config["seedConfig"]["spec"]["backup"] = json!({"provider": "local", "region": "north",
                "credentialsRef": {"apiVersion": "v1", "kind": "Secret", "namespace": "garden", "name": "backup"}});
            config["edge"]["etcd"] = json!({"snapshots": {"store": "S3", "image": IMAGE}});
            Ok(())
        };
        let one = Joining::first(lab);
        let two = Joining {
            name: "second",
            seed: &second.cluster,
            edits: EDITS,
            address: NODE_ADDRESS,
            network: Some(second.network.clone()),
        };
        two.write_credentials(lab, &preparation)?;
        let mut agents = [one.join(lab, change)?, two.join(lab, change)?];
        let garden = lab.garden.client()?;
        for (agent, seed) in agents.iter_mut().zip([FIRST, SECOND]) {
            while_running(&format!("Seed {seed} to be ready"), READY_WITHIN_S, agent, || {
                steps::is_seed_ready(&garden, seed)
            })?;
        }
        println!("       {:6.1} s  two seeds that store backups", wait::seconds_since(began));
        Ok(Self { agents, _playing: playing, _peer: peer, gateway, second, garden })
    }

    fn patch(&self, patch: &Value) -> Result<()> {
        let patch = Patch::Merge(patch.clone());
        self.garden.patch::<Value>(&SHOOT, &Key::new(PROJECT, ONE.0), &patch)?;
        Ok(())
    }

    /// What the operator does, again if another writer comes first.
    fn bind(&self, seed: &str) -> Result<()> {
        let path = SHOOT.subresource_path(&Key::new(PROJECT, ONE.0), "binding");
        wait::until("the binding", BOUND_WITHIN_S, || {
            let mut object = self.garden.get::<Value>(&SHOOT, &Key::new(PROJECT, ONE.0))?;
            object["spec"]["seedName"] = json!(seed);
            let body = object.to_string();
            let answer = self.garden.raw(Method::Put, &path, Some(body.as_bytes()), "application/json")?;
            let said = String::from_utf8_lossy(&answer.body);
            ensure(answer.is_success() || answer.status == 409, || {
                format!("the garden refuses the move: {said}")
            })?;
            Ok::<_, Failure>(answer.is_success().then_some(()))
        })
    }

    /// Waits until the Shoot is on a seed, and its last operation is so.
    fn reaches(&mut self, lab: &Lab, seed: &str, line: &str, seconds: u64) -> Result<Value> {
        let Self { agents: [one, two], garden, second, .. } = self;
        let result = while_running(&format!("{line} on {seed}"), seconds, one, || {
            two.ensure_running()?;
            let shoot = garden.get::<Value>(&SHOOT, &Key::new(PROJECT, ONE.0))?;
            let (status, last) = (&shoot["status"], &shoot["status"]["lastOperation"]);
            let now = format!("{} {}", text(&last["type"]), text(&last["state"]));
            let is_observed = status["observedGeneration"] == shoot["metadata"]["generation"];
            if is_observed && now == line && status["seedName"] == seed {
                return Ok(Some(shoot));
            }
            Err(Failure::new(format!("{last} {}", status["lastErrors"])))
        });
        result.map_err(|failure| {
            let failure = explained(&lab.seed, garden, (ONE, &failure));
            explained(&second.cluster, garden, (ONE, &failure))
        })
    }

    /// The first move. The writer knows the addresses of both seeds, and the port that the Shoot keeps.
    fn moves_under_a_writer(&mut self, lab: &Lab, site: &Site, owner: &Owner<'_>) -> Result<()> {
        let places = [owner.connection_to(outside::INSIDE_ADDRESS)?, owner.connection_to(NODE_ADDRESS)?];
        let clients = || -> Result<Vec<Client>> {
            let client = |place: &gardenlet::kube::Connection| Client::new(place.clone(), Options::default());
            Ok(places.iter().map(client).collect::<std::result::Result<_, _>>()?)
        };
        let (over, writes) = (Stop::new(), Mutex::new(Vec::new()));
        let enough = |count: usize| {
            wait::until_true("acknowledged writes", READY_WITHIN_S, || {
                let writes = writes.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
                writes.iter().filter(|write: &&writer::Write| write.is_acknowledged()).count() >= count
            })
        };
        let began = wait::now();
        let result = std::thread::scope(|scope| {
            scope.spawn(|| writer::until(&over, "moved", &writes, &clients));
            let result = enough(WRITES).and_then(|()| {
                self.bind(SECOND)?;
                self.reaches(lab, SECOND, "Restore Succeeded", MOVED_WITHIN_S)?;
                let acknowledged = writes.lock().map_or(0, |writes| {
                    writes.iter().filter(|write: &&writer::Write| write.is_acknowledged()).count()
                });
                enough(acknowledged + WRITES)
            });
            over.stop();
            result
        });
        result?;
        println!("       {:6.1} s  moved: Restore Succeeded", wait::seconds_since(began));
        let writes = writes.into_inner().unwrap_or_default();
        let new = Owner::new(lab, &self.garden, owner.name, &site.outside)?;
        let gap = writer::judge(&writes, (&new, "moved"))?;
        println!(
            "       {:6.1} s  without an API server; the goal is {AWAY_S} s on a machine that does nothing else",
            gap.seconds
        );
        Ok(())
    }

    /// Nothing of the Shoot is on the seed that it has left, and its backups are those of the other seed.
    fn has_left(&self, cluster: &Cluster, (from, to): (&str, &str)) -> Result<()> {
        let plane = ONE.plane();
        ensure(cluster.client()?.find::<Value>(&NAMESPACE, &Key::cluster(&plane))?.is_none(), || {
            format!("{from} still has namespace {plane}")
        })?;
        let left = Snapshot::take(cluster)?.since(&Snapshot::default());
        let left: Vec<&str> = left.keys().into_iter().filter(|key| key.contains(&plane)).collect();
        // The provisioner of a volume removes it when it notices.
        let left: Vec<&&str> = left.iter().filter(|key| !key.starts_with("/PersistentVolume ")).collect();
        equal(&format!("left on {from}"), &left, &Vec::new())?;
        let uid = |seed: &str| -> Result<String> {
            let seed: Value = self.garden.get(&SEEDS, &Key::cluster(seed))?;
            Ok(text(&seed["metadata"]["uid"]).to_owned())
        };
        let shoot: Value = self.garden.get(&SHOOT, &Key::new(PROJECT, ONE.0))?;
        let name = entry_name(&plane, text(&shoot["status"]["uid"]));
        let entry: Value = self.garden.get(&BACKUP_ENTRY, &Key::new(PROJECT, &name))?;
        equal("the bucket of its entry", &entry["spec"]["bucketName"], &json!(uid(to)?))?;
        equal("the seed of its entry", &entry["status"]["seedName"], &json!(to))?;
        equal("its state", &entry["status"]["lastOperation"]["state"], &json!("Succeeded"))?;
        wait::until("the end of the old backups", READY_WITHIN_S, || {
            let entries = self.garden.list::<Value>(&BACKUP_ENTRY, PROJECT, &ListParams::default())?.items;
            let source = entries.iter().any(|entry| text(&entry["metadata"]["name"]).starts_with("source-"));
            let old = self.gateway.bucket(&uid(from)?).join(&name);
            Ok::<_, Failure>((!source && !old.exists()).then_some(()))
        })
    }
}

/// The extension for backups of a seed.
fn play(seed: &Cluster, gateway: &Gateway) -> Result<Playing> {
    let player = Player::default();
    let root = gateway.bucket("");
    let buckets = root.clone();
    let make = Deed::new(move |bucket, operation| {
        operation == "delete"
            || std::fs::create_dir_all(buckets.join(text(&bucket["metadata"]["name"]))).is_ok()
    });
    player.behave("backupbuckets", Manners { deed: Some(make), ..Manners::default() });
    let remove = move |bucket: &str, entry: &str| {
        // There may be no backups.
        let _ = std::fs::remove_dir_all(root.join(bucket).join(entry));
    };
    player.behave("backupentries", backups::manners_with(seed.client()?, remove));
    Ok(player.start(seed.client()?))
}
