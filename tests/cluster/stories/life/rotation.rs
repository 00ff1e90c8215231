//! The credentials of a Shoot are rotated while its owner uses it.

use std::collections::BTreeMap;

use gardenlet::api::core::{CONFIG_MAP, SECRET};
use gardenlet::api::gardener::SHOOT;
use gardenlet::api::meta::Key;
use gardenlet::format::base64;
use gardenlet::kube::{Client, Connection, ListParams, Method, Options, Patch};
use serde_json::{Value, json};

use super::owner::Owner;
use super::stored::raw;
use super::{Name, PROJECT, explained};
use crate::agent::Agent;
use crate::failure::{Doing, Failure, Result, ensure, equal};
use crate::lab::Lab;
use crate::outside::Outside;
use crate::stories::steps::{self, while_running};
use crate::wait;

/// The Secrets that are written again: how many, and after how many of them the agent is killed. That is after the
/// first page of its list (`REWRITE_PAGE_ITEMS`), and while at least three seconds of work at the limited rate remain.
#[derive(Clone, Copy, Debug)]
pub(super) struct Amount {
    pub(super) all: usize,
    kill_at: usize,
}

const FEW: Amount = Amount { all: 600, kill_at: 270 };
/// With `--long`.
const MANY: Amount = Amount { all: 2_000, kill_at: 700 };

const KEY_NAME: &str = "credentials.gardener.cloud/key-name";
/// Two operations: the rotation of the encryption key is completed automatically.
const PREPARED_WITHIN_S: u64 = 900;
const COMPLETED_WITHIN_S: u64 = 600;

/// All credentials get a successor. Old and new clients have access. Hundreds of Secrets are written again, at most a
/// hundred a second, although the agent is killed meanwhile; then etcd stores them with the new key. With `--long` there
/// are 2,000.
pub(super) fn begins(
    lab: &Lab,
    garden: &Client,
    agent: &mut Agent,
    (name, owner): (Name, &Owner<'_>),
) -> Result<()> {
    let (shoot, amount) = (owner.client()?, Amount::of(lab));
    fill(&shoot, amount.all)?;
    let ends = [many(0), many(amount.all - 1)];
    let before = stored_with(lab, name, &ends)?;
    equal("PEM texts", &authorities(garden, name)?, &1)?;
    let began = wait::now();
    ask_for(garden, name, "rotate-credentials-start")?;
    let labelled = || -> Result<Vec<Value>> {
        let params =
            ListParams { label_selector: KEY_NAME.to_owned(), metadata_only: true, ..ListParams::default() };
        Ok(shoot.list::<Value>(&SECRET, "default", &params)?.items)
    };
    let count = while_running("Secrets that were written again", PREPARED_WITHIN_S, agent, || {
        Ok(Some(labelled()?.len()).filter(|count| *count >= amount.kill_at))
    })?;
    agent.kill();
    println!("       {:6.1} s  killed after {count} Secrets", wait::seconds_since(began));
    ensure(count < amount.all, || "all Secrets were written before the agent could be killed".to_owned())?;
    agent.restart()?;
    steps::ready(lab, agent)?;
    while_running("all Secrets", PREPARED_WITHIN_S, agent, || {
        Ok((labelled()?.len() >= amount.all).then_some(()))
    })?;
    at_a_pace(&shoot)?;
    let phases = [
        ("certificateAuthorities", "Prepared"),
        ("serviceAccountKey", "Prepared"),
        ("etcdEncryptionKey", "Completed"),
    ];
    reached(lab, garden, agent, (name, &phases, PREPARED_WITHIN_S))?;
    println!("       {:6.1} s  Prepared", wait::seconds_since(began));
    equal("PEM texts", &authorities(garden, name)?, &2)?;
    equal("Secrets with a label", &labelled()?.len(), &0)?;
    // With the old kubeconfig.
    owner.finds_everything()?;
    let after = stored_with(lab, name, &ends)?;
    ensure(before != after, || format!("etcd still has {after:?}"))
}

/// The old credentials are removed. A client that still uses them loses access: it does not trust the server, and is
/// not trusted.
pub(super) fn completes(
    lab: &Lab,
    garden: &Client,
    agent: &mut Agent,
    (owner, outside, version): (&Owner<'_>, &Outside, &str),
) -> Result<()> {
    let (name, old, began) = (owner.name, owner.client()?, wait::now());
    ask_for(garden, name, "rotate-credentials-complete")?;
    let phases = [("certificateAuthorities", "Completed"), ("serviceAccountKey", "Completed")];
    reached(lab, garden, agent, (name, &phases, COMPLETED_WITHIN_S))?;
    println!("       {:6.1} s  Completed", wait::seconds_since(began));
    equal("PEM texts", &authorities(garden, name)?, &1)?;
    ensure(old.version().is_err(), || "a client with the old credentials still has access".to_owned())?;
    ensure(owner.kubectl(&["get", "namespaces"]).is_err(), || "the old kubeconfig still works".to_owned())?;
    let new = Owner::new(lab, garden, name, outside)?;
    is_not_believed(&old, &new.client()?)?;
    new.gets_in(version)?;
    new.finds_everything()
}

/// Old credentials do not work with the new CA, either.
fn is_not_believed(old: &Client, new: &Client) -> Result<()> {
    let late = Connection { trust: new.connection().trust.clone(), ..(*old.connection()).clone() };
    let late = Client::new(late, Options::default()).doing(|| "client with old credentials".to_owned())?;
    let answer = late.raw(Method::Get, "/api/v1/namespaces/kube-system", None, "")?;
    equal("the answer to a client with old credentials", &answer.status, &401)
}

impl Amount {
    pub(super) fn of(lab: &Lab) -> Self {
        if lab.environment.long { MANY } else { FEW }
    }
}

/// Creates the Secrets, unless an earlier act has done so.
pub(super) fn fill(shoot: &Client, count: usize) -> Result<()> {
    if shoot.find::<Value>(&SECRET, &Key::new("default", many(0)))?.is_some() {
        return Ok(());
    }
    for n in 0..count {
        let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": many(n)},
            "stringData": {"n": n.to_string()}});
        shoot.create::<Value>(&SECRET, "default", &secret)?;
    }
    Ok(())
}

pub(super) fn many(n: usize) -> String {
    format!("many-{n:04}")
}

pub(super) fn ask_for(garden: &Client, name: Name, operation: &str) -> Result<()> {
    let patch = json!({"metadata": {"annotations": {"gardener.cloud/operation": operation}}});
    Ok(garden.patch::<Value>(&SHOOT, &Key::new(PROJECT, name.0), &Patch::Merge(patch)).map(drop)?)
}

/// Waits until the rotations have reached this phase, and no operation is running.
pub(super) fn reached(
    lab: &Lab,
    garden: &Client,
    agent: &mut Agent,
    (name, phases, seconds): (Name, &[(&str, &str)], u64),
) -> Result<()> {
    let result = while_running(&format!("{phases:?}"), seconds, agent, || {
        let shoot = garden.get::<Value>(&SHOOT, &Key::new(PROJECT, name.0))?;
        let (status, rotation) = (&shoot["status"], &shoot["status"]["credentials"]["rotation"]);
        let has_come = phases.iter().all(|(what, phase)| rotation[*what]["phase"] == *phase);
        let is_over = status["lastOperation"]["state"] == "Succeeded"
            && status["observedGeneration"] == shoot["metadata"]["generation"];
        if has_come && is_over {
            return Ok(Some(()));
        }
        Err(Failure::new(format!("{rotation} {} {}", status["lastOperation"], status["lastErrors"])))
    });
    result.map_err(|failure| explained(&lab.seed, garden, (name, &failure)))
}

/// The number of CAs in the bundle for clients.
fn authorities(garden: &Client, name: Name) -> Result<usize> {
    let map: Value = garden.get(&CONFIG_MAP, &Key::new(PROJECT, format!("{}.ca-cluster", name.0)))?;
    Ok(map["data"]["ca.crt"].as_str().unwrap_or_default().matches("BEGIN CERTIFICATE").count())
}

/// The seconds in which the Secrets got their labels: never more than a hundred in one. The client's own lists leave out
/// the fields that name them.
fn at_a_pace(shoot: &Client) -> Result<()> {
    let mut seconds: BTreeMap<&str, usize> = BTreeMap::new();
    let path = format!("/api/v1/namespaces/default/secrets?labelSelector={}", KEY_NAME.replace('/', "%2F"));
    let answer = shoot.raw(Method::Get, &path, None, "")?;
    equal("the answer to a list", &answer.status, &200)?;
    let list: Value = serde_json::from_slice(&answer.body).doing(|| format!("GET {path}"))?;
    let objects = list["items"].as_array().map(Vec::as_slice).unwrap_or_default();
    ensure(!objects.is_empty(), || "no Secret has the label".to_owned())?;
    for object in objects {
        let fields = object["metadata"]["managedFields"].as_array().into_iter().flatten();
        let of_label = |entry: &&Value| {
            let labels = &entry["fieldsV1"]["f:metadata"]["f:labels"];
            labels.as_object().is_some_and(|labels| labels.contains_key(&format!("f:{KEY_NAME}")))
        };
        let time = fields.into_iter().find(of_label).and_then(|entry| entry["time"].as_str());
        let time = time.ok_or_else(|| Failure::new(format!("the label of {object} was never set")))?;
        *seconds.entry(time).or_default() += 1;
    }
    let most = seconds.values().max().copied().unwrap_or_default();
    println!("                 {} Secrets within {} seconds, {most} in one", objects.len(), seconds.len());
    ensure(most <= 100, || format!("{most} Secrets were written in one second: {seconds:?}"))
}

/// The key with which etcd stores these Secrets; it is the current one.
pub(super) fn stored_with(lab: &Lab, name: Name, secrets: &[String]) -> Result<String> {
    let seed = lab.seed.client()?;
    let label_selector = "name=kube-apiserver-etcd-encryption-key".to_owned();
    let params = ListParams { label_selector, ..ListParams::default() };
    let keys = seed.list::<Value>(&SECRET, &name.plane(), &params)?.items;
    equal("encryption keys", &keys.len(), &1)?;
    let key = base64::decode(keys[0]["data"]["key"].as_str().unwrap_or_default().as_bytes());
    let key = key.map_err(|_| Failure::new(format!("the key has no name: {}", keys[0]["metadata"])))?;
    let key = String::from_utf8_lossy(&key).into_owned();
    for secret in secrets {
        let value = raw(lab, name, &format!("/registry/secrets/default/{secret}"))?;
        ensure(begins_with(&value, &key), || {
            let begin = String::from_utf8_lossy(&value[..value.len().min(60)]);
            format!("in etcd {secret} begins with {begin:?}, and the key is {key}")
        })?;
    }
    Ok(key)
}

/// Whether etcd stores a value with that key.
pub(super) fn begins_with(value: &[u8], key: &str) -> bool {
    value.starts_with(format!("k8s:enc:aescbc:v1:{key}:").as_bytes())
}
