//! Tokens on real servers: accounts with tokens that the garden really issues, and the WorkloadIdentity of a bucket.

use std::collections::BTreeMap;

use gardenlet::api::core::{NAMESPACE, SECRET, SERVICE_ACCOUNT};
use gardenlet::api::gardener::{BACKUP_BUCKET, SEED, WORKLOAD_IDENTITY};
use gardenlet::api::meta::{CLUSTER_SCOPED, Key, Resource};
use gardenlet::format::base64;
use gardenlet::kube::{Client, ListParams, Patch};
use serde_json::{Value, json};

use crate::agent::Agent;
use crate::failure::{Failure, Result, ensure, equal};
use crate::lab::Lab;
use crate::stories::steps::{ready, while_running};
use crate::wait;
use crate::world::{self, World};
use support::garden::identity::claims;
use support::garden::prepare;
use support::player::Player;

const TOKEN_REVIEW: Resource =
    Resource::new("authentication.k8s.io", "v1", "TokenReview", "tokenreviews", false);
const PLACE: &str = "extension-crowd";
const COUNT: usize = 40;
/// The highest number of token requests in a second.
const RATE: usize = 5;
/// The number of tokens whose renewal is due when the agent comes back.
const DUE: usize = 8;
const RENEW_AT: &str = "serviceaccount.resources.gardener.cloud/token-renew-timestamp";

fn name(n: usize) -> String {
    format!("access-{n:02}")
}

fn access(n: usize) -> Value {
    json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"namespace": PLACE, "name": name(n),
        "labels": {"resources.gardener.cloud/purpose": "token-requestor", "resources.gardener.cloud/class": "garden"},
        "annotations": {"serviceaccount.resources.gardener.cloud/name": name(n)}}})
}

fn identity() -> Value {
    json!({"apiVersion": WORKLOAD_IDENTITY.api_version(), "kind": WORKLOAD_IDENTITY.kind,
        "metadata": {"namespace": "garden", "name": "cloud"},
        "spec": {"audiences": ["lab"], "targetSystem": {"type": "local", "providerConfig": {"role": "r"}}}})
}

fn token(secret: &Value) -> Option<String> {
    String::from_utf8(base64::decode(secret["data"]["token"].as_str()?.as_bytes()).ok()?).ok()
}

/// The names and clients of the story.
struct Place {
    garden: Client,
    seed: Client,
    /// The namespace of the accounts.
    accounts: String,
}

impl Place {
    /// The current tokens.
    fn tokens(&self) -> Result<BTreeMap<String, String>> {
        let all = self.seed.list::<Value>(&SECRET, PLACE, &ListParams::default())?.items;
        let named = all
            .iter()
            .filter_map(|secret| Some((secret["metadata"]["name"].as_str()?.to_owned(), token(secret)?)));
        Ok(named.collect())
    }

    /// The garden's user name for the bearer of a token.
    fn user(&self, token: &str) -> Result<String> {
        let review = json!({"apiVersion": TOKEN_REVIEW.api_version(), "kind": "TokenReview", "spec": {"token": token}});
        let answer = self.garden.create::<Value>(&TOKEN_REVIEW, CLUSTER_SCOPED, &review)?;
        Ok(answer["status"]["user"]["username"].as_str().unwrap_or_default().to_owned())
    }
}

/// Forty Secrets get tokens that the garden accepts, five in a second. The agent is killed; after its restart it
/// replaces the tokens that became due or invalid meanwhile, and no others. A bucket has the token of its
/// WorkloadIdentity.
pub(crate) fn are_requested(lab: &mut Lab) -> Result<()> {
    let _world = World::build(lab)?;
    lab.garden.apply(&identity())?;
    let mut options = world::agent(lab, "agent")?;
    lab.garden.apply(&prepare::promised_backups())?;
    options.config["seedConfig"]["spec"]["backup"] = json!({"provider": "local", "region": "north", "credentialsRef": {
        "apiVersion": WORKLOAD_IDENTITY.api_version(), "kind": WORKLOAD_IDENTITY.kind, "namespace": "garden", "name": "cloud"}});
    let mut agent = Agent::start(lab, options)?;
    let _playing = Player::of(&["backupbuckets", "backupentries"]).start(lab.seed.client()?);
    ready(lab, &mut agent)?;
    let accounts = format!("seed-{}", world::SEED);
    let place = Place { garden: lab.garden.client()?, seed: lab.seed.client()?, accounts };
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": PLACE}});
    place.seed.create::<Value>(&NAMESPACE, CLUSTER_SCOPED, &namespace)?;
    let begun = wait::now();
    let items: Vec<Value> = (0..COUNT).map(access).collect();
    lab.seed.apply(&json!({"apiVersion": "v1", "kind": "List", "items": items}))?;
    has_the_token_of_its_identity(&place, &mut agent)?;
    let first = while_running("all tokens", 60, &mut agent, || {
        let all = place.tokens()?;
        if all.len() == COUNT { Ok(Some(all)) } else { Err(Failure::new(format!("{} of them", all.len()))) }
    })?;
    let lasted = wait::seconds_since(begun);
    let least = (COUNT / RATE - 1) as f64;
    ensure(lasted >= least, || format!("{COUNT} tokens in {lasted:.1} seconds"))?;
    came_one_after_the_other(&place)?;
    for n in [0, COUNT - 1] {
        let expected = format!("system:serviceaccount:{}:{}", place.accounts, name(n));
        equal("the bearer of a token", &place.user(&first[&name(n)])?, &expected)?;
    }

    agent.kill();
    for n in 0..DUE {
        let patch = json!({"metadata": {"annotations": {RENEW_AT: "2020-01-01T00:00:00Z"}}});
        place.seed.patch::<Value>(&SECRET, &Key::new(PLACE, name(n)), &Patch::Merge(patch))?;
    }
    let lost = name(COUNT - 1);
    let patch = json!({"data": {"token": base64::encode(b"no token of anybody")}});
    place.seed.patch::<Value>(&SECRET, &Key::new(PLACE, &lost), &Patch::Merge(patch))?;
    agent.restart()?;
    let replaced = |n: &usize| *n < DUE || *n == COUNT - 1;
    let second = while_running("the replacement of tokens that are due", 60, &mut agent, || {
        let all = place.tokens()?;
        let is_left = |n: &usize| all[&name(*n)] == first[&name(*n)] || !all[&name(*n)].contains('.');
        let missing = (0..COUNT).filter(replaced).filter(is_left).count();
        if missing == 0 { Ok(Some(all)) } else { Err(Failure::new(format!("{missing} are left"))) }
    })?;
    let kept = (0..COUNT).filter(|n| !replaced(n)).all(|n| second[&name(n)] == first[&name(n)]);
    ensure(kept, || "a good token was replaced".to_owned())?;
    let expected = format!("system:serviceaccount:{}:{lost}", place.accounts);
    equal("the bearer of a replaced invalid token", &place.user(&second[&lost])?, &expected)?;
    agent.ensure_running()
}

/// In no second were many more accounts created than the rate allows: they are created just before their tokens.
fn came_one_after_the_other(place: &Place) -> Result<()> {
    let accounts =
        place.garden.list::<Value>(&SERVICE_ACCOUNT, &place.accounts, &ListParams::default())?.items;
    let mut made = BTreeMap::<&str, usize>::new();
    for account in
        accounts.iter().filter(|a| a["metadata"]["name"].as_str().is_some_and(|n| n.starts_with("access-")))
    {
        *made.entry(account["metadata"]["creationTimestamp"].as_str().unwrap_or_default()).or_default() += 1;
    }
    let most = made.values().max().copied().unwrap_or(0);
    ensure((1..=2 * RATE).contains(&most), || format!("{most} accounts within a second: {made:?}"))
}

fn has_the_token_of_its_identity(place: &Place, agent: &mut Agent) -> Result<()> {
    let uid = place.garden.get::<Value>(&SEED, &Key::cluster(world::SEED))?["metadata"]["uid"].clone();
    let bucket = uid.as_str().unwrap_or_default().to_owned();
    let said = while_running("the token of the bucket", 60, agent, || {
        let secret = place.seed.find::<Value>(&SECRET, &Key::new("garden", format!("bucket-{bucket}")))?;
        Ok(secret.as_ref().and_then(token).and_then(|token| claims(&token)))
    })?;
    equal("the identity of the token", &said["gardener.cloud"]["workloadIdentity"]["name"], &json!("cloud"))?;
    equal("the context of the token", &said["gardener.cloud"]["context"], &json!(bucket))?;
    let identity = place.garden.get::<Value>(&WORKLOAD_IDENTITY, &Key::new("garden", "cloud"))?;
    let holders = &identity["metadata"]["finalizers"];
    equal("the finalizers of the identity", holders, &json!(["core.gardener.cloud/backupbucket"]))?;
    while_running("the bucket", 60, agent, || {
        let bucket = place.garden.get::<Value>(&BACKUP_BUCKET, &Key::cluster(&bucket))?;
        Ok((bucket["status"]["lastOperation"]["state"] == "Succeeded").then_some(()))
    })
}
