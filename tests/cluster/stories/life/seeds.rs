//! Two seeds of this agent between which a Shoot goes: each has its own node. The garden is that of the real Gardener, and the
//! buckets are those of a real server of S3.

use gardenlet::api::core::{CONFIG_MAP, SECRET};
use gardenlet::api::gardener::{BACKUP_ENTRY, SEED as SEEDS, SHOOT};
use gardenlet::api::meta::{Key, text};
use gardenlet::backup::garden::entry_name;
use gardenlet::base::clock::Clock;
use gardenlet::format::base64;
use gardenlet::kube::{Client, ListParams, Method, Patch};
use serde_json::{Value, json};

use super::garden::{self, Garden, Joining, Peer};
use super::owner::Owner;
use super::rotation::many;
use super::{COMPONENTS, Name, ONE, PROJECT, SUCCEEDED_WITHIN_S, explained, shoot};
use crate::agent::Agent;
use crate::cluster::Cluster;
use crate::failure::{Failure, Result, ensure, equal};
use crate::gateway::Gateway;
use crate::image;
use crate::lab::Lab;
use crate::second::{NODE_ADDRESS, SecondSeed};
use crate::site::Site;
use crate::stories::steps::{self, while_running};
use crate::wait;
use crate::world;
use support::backups;
use support::garden::prepare::{self, Preparation};
use support::player::{Deed, Manners, Player, Playing};

pub(super) const FIRST: &str = world::SEED;
pub(super) const SECOND: &str = "edge-2";
/// What an operator changes in the packaged configuration for the second seed.
const EDITS: &[(&str, &str)] = &[
    ("edge-1", SECOND),
    ("10.50.0.0/16", "10.88.0.0/16"),
    ("10.42.0.0/16", "10.98.0.0/16"),
    ("10.43.0.0/16", "10.3.0.0/16"),
];
const IMAGE: &str = concat!("docker.io/library/gardenlet:", env!("CARGO_PKG_VERSION"));
pub(super) const READY_WITHIN_S: u64 = 120;
const BOUND_WITHIN_S: u64 = 10;

/// How both seeds keep backups.
pub(super) struct Backups {
    /// The type of their buckets.
    pub(super) provider: &'static str,
    /// The setting `edge.etcd` of both agents.
    pub(super) etcd: fn() -> Value,
}

/// The agents run the etcds, and take snapshots.
pub(super) const OF_THE_AGENTS: Backups =
    Backups { provider: "local", etcd: || json!({"snapshots": {"store": "S3", "image": IMAGE}}) };

/// Everything that takes part. Dropped in this order.
pub(super) struct Cast {
    pub(super) agents: [Agent; 2],
    _playing: [Playing; 2],
    _peer: Garden,
    gateway: Gateway,
    pub(super) second: SecondSeed,
    pub(super) garden: Client,
    /// The Shoot that moves.
    pub(super) name: Name,
    /// The first agent runs.
    pub(super) has_first: bool,
}

impl Cast {
    /// Starts both seeds and their agents, and waits until Shoots can move.
    pub(super) fn gather(lab: &mut Lab, site: &Site, backups: &Backups) -> Result<Self> {
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
        let mut objects = prepare::backups(backups.provider);
        objects.push(preparation.bootstrap_token());
        objects.push(json!({"apiVersion": "v1", "kind": "Secret", "stringData": data,
            "metadata": {"namespace": "garden", "name": "backup"}}));
        lab.garden.apply(&world::list(&objects))?;
        garden::apply(&second.cluster, "rbac.yaml")?;
        let playing = [play(&lab.seed, &gateway)?, play(&second.cluster, &gateway)?];
        let change = |config: &mut Value| {
            config["seedConfig"]["spec"]["backup"] = json!({"provider": backups.provider, "region": "north",
                "credentialsRef": {"apiVersion": "v1", "kind": "Secret", "namespace": "garden", "name": "backup"}});
            config["edge"]["etcd"] = (backups.etcd)();
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
        Ok(Self {
            agents,
            _playing: playing,
            _peer: peer,
            gateway,
            second,
            garden,
            name: ONE,
            has_first: true,
        })
    }

    /// Creates the Shoot on the first seed, and waits until it is ready.
    pub(super) fn create(&mut self, lab: &Lab) -> Result<()> {
        self.create_this(lab, shoot(self.name, image::API_SERVER.version()))
    }

    /// The same with this object, which becomes the Shoot that moves.
    pub(super) fn create_this(&mut self, lab: &Lab, mut object: Value) -> Result<()> {
        object["spec"]["seedName"] = json!(FIRST);
        lab.garden.apply(&object)?;
        self.reaches(lab, FIRST, "Create Succeeded", SUCCEEDED_WITHIN_S).map(drop)
    }

    /// The Shoot in the garden.
    pub(super) fn shoot(&self) -> Result<Value> {
        Ok(self.garden.get(&SHOOT, &Key::new(PROJECT, self.name.0))?)
    }

    pub(super) fn patch(&self, patch: &Value) -> Result<()> {
        let patch = Patch::Merge(patch.clone());
        self.garden.patch::<Value>(&SHOOT, &Key::new(PROJECT, self.name.0), &patch)?;
        Ok(())
    }

    /// What the operator does, again if another writer comes first.
    pub(super) fn bind(&self, seed: &str) -> Result<()> {
        let path = SHOOT.subresource_path(&Key::new(PROJECT, self.name.0), "binding");
        wait::until("the binding", BOUND_WITHIN_S, || {
            let mut object = self.garden.get::<Value>(&SHOOT, &Key::new(PROJECT, self.name.0))?;
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
    pub(super) fn reaches(&mut self, lab: &Lab, seed: &str, line: &str, seconds: u64) -> Result<Value> {
        let Self { agents: [one, two], garden, second, has_first, name, .. } = self;
        let result = while_running(&format!("{line} on {seed}"), seconds, two, || {
            if *has_first {
                one.ensure_running()?;
            }
            let shoot = garden.get::<Value>(&SHOOT, &Key::new(PROJECT, name.0))?;
            let (status, last) = (&shoot["status"], &shoot["status"]["lastOperation"]);
            let now = format!("{} {}", text(&last["type"]), text(&last["state"]));
            let is_observed = status["observedGeneration"] == shoot["metadata"]["generation"];
            if is_observed && now == line && status["seedName"] == seed {
                return Ok(Some(shoot));
            }
            Err(Failure::new(format!("{last} {}", status["lastErrors"])))
        });
        result.map_err(|failure| {
            let failure = explained(&lab.seed, garden, (*name, &failure));
            explained(&second.cluster, garden, (*name, &failure))
        })
    }

    /// The backups of the Shoot are those of the seed `to`, and no longer those of `from`.
    pub(super) fn has_its_backups(&self, (from, to): (&str, &str)) -> Result<()> {
        let plane = self.name.plane();
        let uid = |seed: &str| -> Result<String> {
            let seed: Value = self.garden.get(&SEEDS, &Key::cluster(seed))?;
            Ok(text(&seed["metadata"]["uid"]).to_owned())
        };
        let shoot = self.shoot()?;
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

/// What stays when a Shoot gets another seed.
pub(super) struct Known {
    authorities: Value,
    token: String,
    uid: Value,
    /// The Secrets of [`fill`](super::rotation::fill).
    secrets: usize,
}

impl Known {
    /// `secrets` are the Secrets of [`fill`](super::rotation::fill).
    pub(super) fn look(garden: &Client, owner: &Owner<'_>, secrets: usize) -> Result<Self> {
        let shoot: Value = garden.get(&SHOOT, &Key::new(PROJECT, ONE.0))?;
        let token = owner.kubectl(&["create", "token", "default", "--duration=24h"])?.trim().to_owned();
        let authorities = authorities(garden)?;
        Ok(Self { authorities, token, uid: shoot["status"]["uid"].clone(), secrets })
    }

    pub(super) fn is_unchanged(&self, garden: &Client, owner: &Owner<'_>) -> Result<()> {
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
        equal("Secrets", &count, &self.secrets)
    }
}

/// The bundle of CAs that clients trust.
fn authorities(garden: &Client) -> Result<Value> {
    let key = Key::new(PROJECT, format!("{}.ca-cluster", ONE.0));
    Ok(garden.get::<Value>(&CONFIG_MAP, &key)?["data"].clone())
}
