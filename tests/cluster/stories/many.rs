//! Many Shoots at once, without a node: the story plays the kubelets and starts an API server of this process for
//! each Shoot. One of these servers is not reachable, at the beginning and again at the end.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use gardenlet::api::core::{NAMESPACE, SECRET, SERVICE};
use gardenlet::api::gardener::SHOOT;
use gardenlet::api::meta::Key;
use gardenlet::base::clock::Clock;
use gardenlet::format::base64;
use gardenlet::kube::{Client, ListParams, Patch, Seed};
use gardenlet::secrets::{Options, SecretConfig, SecretEntries, Secrets, SecretsLocation, SecretsRotation};
use serde_json::{Value, json};

use crate::agent::Agent;
use crate::failure::{Failure, Result};
use crate::lab::Lab;
use crate::size::{Bounds, Size};
use crate::stories::steps::{ready, while_running};
use crate::wait;
use crate::world::{self, World};
use support::garden::prepare;
use support::keys::FixtureKeys;
use support::proxy::{Mode, Proxy};
use support::shoot::object::{PROJECT_NAMESPACE, make_edge, technical_id};
use support::shoot::{Listen, Manager, Options as SiteOptions, Site};

/// The number of Shoots, and that with `--long`. Both are more than the agent has workers.
const SHOOTS: usize = 12;
const SHOOTS_LONG: usize = 20;
/// The Shoot whose API server cannot be reached.
const LOST: &str = "s7";
/// How much longer the others may take because of it. A machine may also be slower for a while.
const DELAY_S_MAX: f64 = 10.0;
const SLOWER_MAX: f64 = 1.5;
/// Limits for the whole agent, at any moment.
const MOST: Bounds = Bounds { threads: 44, bytes: 20 << 20 };
/// The time until all reachable ones are created: the pods of all of them start on one node.
const CREATED_WITHIN_S: u64 = 300;
const RECONCILED_WITHIN_S: u64 = 120;
/// Secrets with RSA keys. They exist before the agent starts, because the generation of dozens of keys would take a
/// machine many minutes and prove nothing.
const AUTHORITIES: [&str; 6] =
    ["ca", "ca-client", "ca-etcd", "ca-etcd-peer", "ca-front-proxy", "ca-istio-basic-auth-server"];
const ACCOUNTS: &str = "service-account-key";

/// All Shoots except the lost one are created, and the lost one as soon as it is reachable. Then all are reconciled at
/// once, first without a lost one and then with one: the others may take a few seconds longer. The agent's threads and
/// memory are measured all the time. Set `GARDENLET_BINARY` to a released program to check the whole of its memory.
pub(crate) fn come_up(lab: &mut Lab) -> Result<()> {
    let _world = World::build(lab)?;
    let names = names(lab);
    let others: Vec<String> = names.iter().filter(|name| *name != LOST).cloned().collect();
    let (garden, seed) = (lab.garden.client()?, lab.seed.client()?);
    lab.seed.apply(&list(&prepare::access().1))?;
    lab.garden.apply(&list(&prepare::for_shoots()))?;
    wait::until("the namespace of the project", 30, || {
        garden.find::<Value>(&NAMESPACE, &Key::cluster(PROJECT_NAMESPACE))
    })?;
    lend_keys(lab, &names)?;
    let site = Site::start(
        lab.seed.client()?,
        SiteOptions {
            manager: Manager::Theirs,
            listen: Listen::NodePort,
            elsewhere: technical_id(LOST),
            ..SiteOptions::default()
        },
    );
    let mut options = world::agent(lab, "agent")?;
    make_edge(&mut options.config);
    options.config["edge"]["exposure"] = json!({"type": "NodePort", "address": "127.0.0.1"});
    let mut agent = Agent::start(lab, options)?;
    ready(lab, &mut agent)?;
    let size = Size::watch(agent.id())?;

    let began = wait::now();
    lab.garden.apply(&list(&names.iter().map(|name| prepare::shoot(name)).collect::<Vec<_>>()))?;
    let proxy =
        while_running("the port of the lost Shoot", CREATED_WITHIN_S, &mut agent, || lost(&seed, &site))?;
    let created = succeeded(&garden, &mut agent, CREATED_WITHIN_S, &others)?;
    println!("                         created in {} s", times(&created));
    size.print("they were created");
    proxy.set(Mode::Pass);
    succeeded(&garden, &mut agent, CREATED_WITHIN_S, &names)?;
    println!("                         with the lost one: {:.1} s", wait::seconds_since(began));

    let mut last = [0.0; 2];
    for (last, (mode, words)) in last.iter_mut().zip([(Mode::Pass, "without"), (Mode::Hole, "with")]) {
        proxy.set(mode);
        reconcile(&garden, &names)?;
        let times_of_all = succeeded(&garden, &mut agent, RECONCILED_WITHIN_S, &others)?;
        *last = times_of_all.values().copied().fold(0.0, f64::max);
        println!("                         reconciled {words} a lost one in {} s", times(&times_of_all));
    }
    size.print("the end");
    let limit = last[0] * SLOWER_MAX + DELAY_S_MAX;
    wait::measured("seconds until all others are reconciled, with a lost one", last[1], limit)?;
    size.ensure_small(&MOST, lab.environment.has_agent())?;
    agent.ensure_running()
}

fn list(items: &[Value]) -> Value {
    json!({"apiVersion": "v1", "kind": "List", "items": items})
}

fn names(lab: &Lab) -> Vec<String> {
    let count = if lab.environment.long { SHOOTS_LONG } else { SHOOTS };
    (0..count).map(|n| format!("s{n}")).collect()
}

/// The route to the API server of the lost Shoot, once its port is known. It drops all packets at first.
fn lost(seed: &Client, site: &Site) -> Result<Option<Proxy>> {
    let namespace = technical_id(LOST);
    let service =
        seed.find::<Value>(&SERVICE, &Key::new(&namespace, "kube-apiserver-exposure"))?.unwrap_or_default();
    let port = service["spec"]["ports"][0]["nodePort"].as_u64().and_then(|port| u16::try_from(port).ok());
    let (Some(port), Some(server)) = (port, site.server(&namespace)) else { return Ok(None) };
    let proxy = Proxy::at(SocketAddr::from((Ipv4Addr::LOCALHOST, port)), server.address())?;
    proxy.set(Mode::Hole);
    Ok(Some(proxy))
}

/// Requests a reconciliation of each Shoot.
fn reconcile(garden: &Client, names: &[String]) -> Result<()> {
    let patch = json!({"metadata": {"annotations": {"gardener.cloud/operation": "reconcile"}}});
    for name in names {
        garden.patch::<Value>(&SHOOT, &Key::new(PROJECT_NAMESPACE, name), &Patch::Merge(patch.clone()))?;
    }
    Ok(())
}

/// Waits until the last operations of some Shoots have succeeded; returns the seconds that each took.
fn succeeded(
    garden: &Client,
    agent: &mut Agent,
    within_s: u64,
    wanted: &[String],
) -> Result<BTreeMap<String, f64>> {
    let began = wait::now();
    let mut done = BTreeMap::new();
    while_running("the Shoots", within_s, agent, || {
        let mut waits = BTreeMap::new();
        for shoot in garden.list::<Value>(&SHOOT, PROJECT_NAMESPACE, &ListParams::default())?.items {
            let (metadata, status) = (&shoot["metadata"], &shoot["status"]);
            let name = metadata["name"].as_str().unwrap_or_default().to_owned();
            let is_done = status["lastOperation"]["state"] == "Succeeded"
                && status["observedGeneration"] == metadata["generation"];
            if is_done && wanted.contains(&name) {
                done.entry(name).or_insert_with(|| wait::seconds_since(began));
            } else if wanted.contains(&name) {
                waits.insert(name, (status["lastOperation"].to_string(), status["lastErrors"].to_string()));
            }
        }
        if done.len() == wanted.len() {
            return Ok(Some(()));
        }
        wait::pause(Duration::from_millis(200));
        Err(Failure::new(format!("{waits:#?}")))
    })?;
    Ok(done)
}

/// `3.1 to 4.0`
fn times(all: &BTreeMap<String, f64>) -> String {
    let least = all.values().copied().fold(f64::MAX, f64::min);
    format!("{least:.1} to {:.1}", all.values().copied().fold(0.0, f64::max))
}

/// Creates the namespaces, with Secrets that the secrets manager takes over.
fn lend_keys(lab: &Lab, names: &[String]) -> Result<()> {
    let namespace = |name: &str| json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
    let scratch = "made-ahead";
    lab.seed.apply(&namespace(scratch))?;
    let client = lab.seed.client()?;
    let place = SecretsLocation {
        client: Seed(client.clone()),
        namespace: scratch.to_owned(),
        identity: "story".to_owned(),
        keys: Arc::new(FixtureKeys::default()),
        clock: Clock::system(),
    };
    let mut secrets = Secrets::load(place, &SecretsRotation::default())?;
    let own = |name: &str| name.to_owned();
    let authorities =
        AUTHORITIES.map(|name| SecretConfig::Ca { name: own(name), common_name: own(name), validity: None });
    let accounts = SecretConfig::RsaKey { name: own(ACCOUNTS), bits: 4_096, for_ssh: false };
    let mut lenders = Vec::new();
    for config in authorities.iter().chain([&accounts]) {
        let made = secrets.ensure(config, &Options::default())?;
        let made = made.ok_or_else(|| Failure::new(format!("no key for {}", config.name())))?;
        lenders.push((config.name(), lender(config.name(), &made.data)));
    }
    lab.seed.apply(&list(&names.iter().map(|name| namespace(&technical_id(name))).collect::<Vec<_>>()))?;
    for name in names {
        for (_, lender) in &lenders {
            client.create::<Value>(&SECRET, &technical_id(name), lender)?;
        }
    }
    Ok(())
}

fn lender(config: &str, data: &SecretEntries) -> Value {
    let data: BTreeMap<&str, String> =
        data.iter().map(|(key, value)| (key.as_str(), base64::encode(value))).collect();
    json!({"apiVersion": "v1", "kind": "Secret", "data": data, "metadata": {"name": format!("lent-{config}"),
        "labels": {"secrets-manager-use-data-for-name": config}}})
}
