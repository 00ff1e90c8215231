//! The stored data of a Shoot: encrypted in its etcd, and not written again without need.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use gardenlet::api::core::{SECRET, SERVICE};
use gardenlet::api::gardener::SHOOT;
use gardenlet::api::meta::Key;
use gardenlet::format::base64;
use gardenlet::kube::{Client, Connection, ListParams, Method, Options};
use serde_json::{Value, json};

use super::owner::{Owner, WORDS};
use super::{Name, PROJECT, ask_for_another, succeeded};
use crate::agent::Agent;
use crate::audit::Request;
use crate::failure::{Doing, Failure, Result, ensure};
use crate::lab::Lab;
use crate::snapshot::versions;
use crate::storage::FOLDERS;
use crate::wait;

/// The owner's Secret in etcd starts with the name of the encryption provider in the Shoot's status. Its words are in
/// no file of the volumes, while those of a ConfigMap are.
pub(super) fn is_encrypted(lab: &Lab, garden: &Client, name: Name) -> Result<()> {
    let shoot: Value = garden.get(&SHOOT, &Key::new(PROJECT, name.0))?;
    let provider = shoot["status"]["credentials"]["encryptionAtRest"]["provider"]["type"].as_str();
    let prefix = format!("k8s:enc:{}:v1:", provider.unwrap_or("nothing"));
    let value = raw(lab, name, "/registry/secrets/default/kept")?;
    let begin = String::from_utf8_lossy(&value[..value.len().min(40)]).into_owned();
    ensure(begin.starts_with(&prefix), || {
        format!("in etcd the Secret begins with {begin:?} instead of {prefix}")
    })?;
    let open = raw(lab, name, "/registry/configmaps/default/open")?;
    ensure(contains(&open, b"open-words"), || "etcd does not have the words of the ConfigMap".to_owned())?;
    let holding = |words: &str| -> Result<usize> {
        let mut files = Vec::new();
        collect(Path::new(FOLDERS), &mut files)?;
        Ok(files.iter().filter(|bytes| contains(bytes, words.as_bytes())).count())
    };
    ensure(holding("open-words")? > 0, || "no file of a volume has the words of the ConfigMap".to_owned())?;
    for words in [WORDS, &base64::encode(WORDS.as_bytes())] {
        ensure(holding(words)? == 0, || format!("a file of a volume has {words:?}"))?;
    }
    Ok(())
}

/// The value of a key in etcd-main.
pub(super) fn raw(lab: &Lab, name: Name, key: &str) -> Result<Vec<u8>> {
    let mut found = range(lab, name, &json!({"key": base64::encode(key.as_bytes())}))?;
    found.pop().map(|(_, value)| value).ok_or_else(|| Failure::new(format!("etcd has no {key}")))
}

/// Keys and values in etcd-main below a folder.
pub(super) fn raw_below(lab: &Lab, name: Name, folder: &str) -> Result<Vec<(String, Vec<u8>)>> {
    // The character after the slash.
    let ends = [format!("{folder}/"), format!("{folder}0")].map(|end| base64::encode(end.as_bytes()));
    range(lab, name, &json!({"key": ends[0], "range_end": ends[1]}))
}

/// The answer of etcd-main to a request like those of kube-apiserver.
fn range(lab: &Lab, name: Name, request: &Value) -> Result<Vec<(String, Vec<u8>)>> {
    let client = etcd(lab, name)?;
    let answer =
        client.raw(Method::Post, "/v3/kv/range", Some(request.to_string().as_bytes()), "application/json")?;
    ensure(answer.is_success(), || format!("etcd: {}", String::from_utf8_lossy(&answer.body)))?;
    let answer: Value = serde_json::from_slice(&answer.body)?;
    let bytes = |entry: &Value, field: &str| {
        let text = entry[field].as_str().unwrap_or_default();
        base64::decode(text.as_bytes()).map_err(|_| Failure::new(format!("etcd: bad {field}")))
    };
    let pair = |entry: &Value| -> Result<(String, Vec<u8>)> {
        Ok((String::from_utf8_lossy(&bytes(entry, "key")?).into_owned(), bytes(entry, "value")?))
    };
    answer["kvs"].as_array().into_iter().flatten().map(pair).collect()
}

/// A client of etcd-main with the certificate of kube-apiserver.
fn etcd(lab: &Lab, name: Name) -> Result<Client> {
    let seed = lab.seed.client()?;
    let secret = |label: &str, entry: &str| -> Result<Vec<u8>> {
        let params = ListParams { label_selector: label.to_owned(), ..ListParams::default() };
        let found = seed.list::<Value>(&SECRET, &name.plane(), &params)?.items;
        let text = found.first().and_then(|secret| secret["data"][entry].as_str()).unwrap_or_default();
        base64::decode(text.as_bytes()).map_err(|_| Failure::new(format!("Secret {label}: bad {entry}")))
    };
    let (certificate, private) =
        (secret("name=etcd-client", "tls.crt")?, secret("name=etcd-client", "tls.key")?);
    let service: Value = seed.get(&SERVICE, &Key::new(name.plane(), "etcd-main-client"))?;
    let address = service["spec"]["clusterIP"].as_str().unwrap_or_default();
    let mut connection = Connection::new(format!("https://{address}:2379"));
    connection = connection.with_ca(secret("bundle-for=ca-etcd", "bundle.crt")?);
    connection = connection.with_certificate(certificate, private);
    connection.tls_server_name = Some("etcd-main-client".to_owned());
    Client::new(connection, Options::default()).doing(|| "client of etcd".to_owned())
}

/// All files below a folder.
fn collect(folder: &Path, files: &mut Vec<Vec<u8>>) -> Result<()> {
    for entry in fs::read_dir(folder).doing(|| format!("read {}", folder.display()))?.flatten() {
        let path = entry.path();
        if path.is_dir() {
            collect(&path, files)?;
        } else {
            files.push(fs::read(&path).doing(|| format!("read {}", path.display()))?);
        }
    }
    Ok(())
}

fn contains(bytes: &[u8], words: &[u8]) -> bool {
    bytes.windows(words.len()).any(|window| window == words)
}

/// Writes that happen without a change, and why: the beginning of their key, and the reason.
const WRITTEN: [(&str, &str); 2] = [
    ("coordination.k8s.io/Lease ", "leaders renew it"),
    (
        "extensions.gardener.cloud/Cluster ",
        "it is a copy of the Shoot, which has the time of its reconciliation",
    ),
];

/// Another reconciliation repeats no write of a correct object in the seed and in the Shoot, not even one without an
/// effect.
pub(super) fn stays_as_it_is(
    lab: &Lab,
    garden: &Client,
    agent: &mut Agent,
    (name, owner): (Name, &Owner<'_>),
) -> Result<()> {
    let plane = name.plane();
    lab.seed.rolled_out(&plane, "deployment/kube-controller-manager", 120)?;
    let (seed, shoot) = (lab.seed.client()?, owner.client()?);
    let counts = |key: &str| !WRITTEN.iter().any(|(begin, _)| key.starts_with(begin));
    let look = || -> Result<[BTreeMap<String, String>; 2]> {
        let mut both = [versions(&seed)?, versions(&shoot)?];
        both[0].retain(|key, _| key.contains(&plane));
        both.iter_mut().for_each(|all| all.retain(|key, _| counts(key)));
        Ok(both)
    };
    let before = settled(&look)?;
    let [mut of_seed, mut of_garden] = [lab.seed.audit(), lab.garden.audit()];
    let began = wait::now();
    ask_for_another(garden, name)?;
    succeeded(lab, garden, agent, (name, "Reconcile"))?;
    let took = wait::seconds_since(began);
    let after = settled(&look)?;
    let (of_seed, of_garden) = (of_seed.requests()?, of_garden.requests()?);
    let (in_seed, in_garden) = (count("seed", &of_seed), count("garden", &of_garden));
    println!("       {took:6.1} s  another reconciliation; with the time after it {in_seed}, {in_garden}");
    for (cluster, (before, after)) in ["seed", "Shoot"].iter().zip(before.iter().zip(&after)) {
        let keys: BTreeSet<_> = before.keys().chain(after.keys()).collect();
        let changed: Vec<_> = keys.into_iter().filter(|key| before.get(*key) != after.get(*key)).collect();
        ensure(changed.is_empty(), || {
            format!("another reconciliation changed in the {cluster}: {changed:#?}")
        })?;
    }
    let needless = of_seed.iter().filter(|request| {
        request.is_write() && request.uri.contains(&plane) && !request.uri.contains("/clusters/")
    });
    let needless: Vec<_> = needless.map(|request| format!("{} {}", request.verb, request.uri)).collect();
    ensure(needless.is_empty(), || format!("another reconciliation wrote without need: {needless:#?}"))
}

/// The stored objects, after three seconds without a write.
fn settled<T: PartialEq>(look: &dyn Fn() -> Result<T>) -> Result<T> {
    let (mut found, mut since) = (look()?, wait::now());
    wait::until_true("writes to end", 60, || {
        match look() {
            Ok(now) if now == found => {}
            Ok(now) => (found, since) = (now, wait::now()),
            Err(_) => since = wait::now(),
        }
        wait::seconds_since(since) > 3.0
    })?;
    Ok(found)
}

fn count(cluster: &str, requests: &[Request]) -> String {
    let writes = requests.iter().filter(|request| request.is_write()).count();
    format!("{} requests to the {cluster}, of which {writes} write", requests.len())
}
