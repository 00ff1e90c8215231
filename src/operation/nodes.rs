//! Extension objects that make the nodes of a Shoot: for each pool two OperatingSystemConfigs, and one Worker for all pools.

use serde_json::Value;

use crate::api::core::SECRET;
use crate::api::extensions::{OPERATING_SYSTEM_CONFIG, WORKER};
use crate::api::meta::{Key, text};
use crate::base::json::json;
use crate::base::sorted::{SortedMap, SortedSet};
use crate::extension::ExtensionObject;
use crate::flow::{Attempt, Failed, TaskStep};
use crate::osc::{self, NodeImages, NodePool, NodeSources, PoolConfig};
use crate::shoot::has_foreign_workers;
use crate::shoot::pools::POOL;
use crate::shoot::rotation::{CA_KUBELET, SSH_KEYPAIR};
use crate::shoot::view::dns_addresses;

use super::cloud_provider;
use super::objects::{Desired, Leaving, ObjectRow, trigger};
use super::providers::{add, add_ssh_key, all, find, live, object, one};
use super::work::Work;

/// Webhooks of extensions change the objects that have it.
const CHANGED_BY_WEBHOOKS: &str = "provider.extensions.gardener.cloud/mutated-by-controlplane-webhook";

/// What the nodes of each pool need to join, and what they apply then.
pub(super) const CONFIGS: ObjectRow = ObjectRow {
    desired: configs,
    write: trigger,
    leaving: |work| all(work, &OPERATING_SYSTEM_CONFIG),
    moving: |work| all(work, &OPERATING_SYSTEM_CONFIG),
    ..ObjectRow::NONE
};

/// The objects of pools that are gone.
pub(super) const STALE_CONFIGS: ObjectRow = ObjectRow {
    leaving: |work| {
        let wanted: SortedSet<String> = pools(work).flat_map(|pool| names(pool)).collect();
        let mut found = all(work, &OPERATING_SYSTEM_CONFIG)?;
        found.retain(|leaving: &Leaving| !wanted.contains(&leaving.target.key.name));
        Ok(found)
    },
    ..ObjectRow::NONE
};

/// The nodes of all pools.
pub(super) const WORKER_OBJECT: ObjectRow = ObjectRow {
    desired: |work| Ok(one(work, &WORKER, text(&work.shoot["spec"]["provider"]["type"]), worker(work)?)),
    write: trigger,
    leaving: |work| live(work, &WORKER),
    moving: |work| live(work, &WORKER),
    ..ObjectRow::NONE
};

/// Whether the nodes are hosts of the site.
pub(super) fn has_hosts(work: &Work) -> bool {
    !has_foreign_workers(&work.shoot, &work.env.settings.edge.host_types)
}

pub(super) fn pools(work: &Work) -> impl Iterator<Item = NodePool<'_>> {
    let workers = work.shoot["spec"]["provider"]["workers"].as_array();
    let has_hosts = has_hosts(work);
    workers.into_iter().flatten().map(move |worker| NodePool { shoot: &work.shoot, worker, has_hosts })
}

/// The names of a pool's objects: what a new node needs, and what it applies then.
fn names(pool: NodePool<'_>) -> [String; 2] {
    let key = pool.key();
    [format!("{key}-init"), format!("{key}-original")]
}

fn configs(work: &Work) -> Result<Vec<Desired>, Failed> {
    let made = work.secrets()?;
    let outside = work.results.outside.need("the API server has no address yet")?;
    let server = format!("https://{}", outside.authority());
    let keys = work.view.has_ssh.then(|| {
        let all = [made.data(SSH_KEYPAIR), made.old_data(SSH_KEYPAIR)].into_iter().flatten();
        let texts = all.filter_map(|pair| pair.get("id_rsa.pub"));
        texts.map(|key| String::from_utf8_lossy(key).into_owned()).collect::<Vec<_>>()
    });
    let (dns, profile) = (dns_addresses(&work.view.services), &work.inputs.profile["spec"]);
    let mut all = Vec::new();
    for pool in pools(work) {
        let image = |name| work.env.images.find_for(name, pool.version(), pool.architecture());
        let images = NodeImages {
            agent: image("gardener-node-agent")?,
            kubelet: image("hyperkube")?,
            pause: image("pause-container")?,
        };
        let sources = NodeSources {
            pool,
            server: &server,
            ca: made.ca_bundle(),
            kubelet_ca: made.bundle_of(CA_KUBELET),
            profile_ca: text(&profile["caBundle"]),
            ssh_keys: keys.as_deref(),
            dns: &dns,
            memory: pool.machine_type(profile).and_then(|machine| machine["memory"].as_str()),
            images: &images,
        };
        for (name, spec) in names(pool).into_iter().zip([osc::init(&sources), osc::original(&sources)]) {
            let mut desired = object(work, &OPERATING_SYSTEM_CONFIG, &name, spec);
            desired.content.labels = [(POOL, pool.name()), (CHANGED_BY_WEBHOOKS, "true")]
                .map(|(label, value)| (label.to_owned(), json!(value)))
                .into_iter()
                .collect();
            all.push(desired);
        }
    }
    Ok(all)
}

/// Waits until extensions have changed the objects, and takes over what they have become.
pub(super) fn wait_configs(work: &mut Work, attempt: &Attempt) -> Result<TaskStep, Failed> {
    let step = CONFIGS.wait(work, attempt)?;
    if step == TaskStep::Done {
        let found = pools(work).map(|pool| read(work, pool)).collect::<Result<_, _>>()?;
        work.results.pools.set(found);
    }
    Ok(step)
}

/// Reads what became of a pool's objects.
fn read(work: &Work, pool: NodePool<'_>) -> Result<PoolConfig, Failed> {
    let seed = &work.env.seed;
    let find = |name: &str| -> Result<Value, Failed> {
        let key = Key::new(work.plane(), name);
        let target = ExtensionObject { resource: OPERATING_SYSTEM_CONFIG, key };
        target.find(seed)?.ok_or_else(|| Failed::new(format!("OperatingSystemConfig {name} is gone")))
    };
    let [init, original] = names(pool);
    let begun = find(&init)?;
    let reference = &begun["status"]["cloudConfig"]["secretRef"];
    let user_data = reference["name"].as_str().ok_or_else(|| {
        Failed::new(format!("no cloud config information provided in status of OperatingSystemConfig {init}"))
    })?;
    let object = find(&original)?;
    let mut secrets = SortedMap::new();
    for name in osc::referenced(&object) {
        if let Some(secret) = seed.find::<Value>(&SECRET, &Key::new(work.plane(), name.as_str()))? {
            secrets.insert(name, secret);
        }
    }
    let (pool, key) = (pool.name().to_owned(), pool.key());
    Ok(PoolConfig { pool, key, object, secrets, user_data: user_data.to_owned() })
}

fn worker(work: &Work) -> Result<Value, Failed> {
    let configs = work.results.pools.need("the operating systems of the pools are not ready yet")?;
    let mut spec = json!({
        "region": work.view.region,
        "secretRef": {"name": cloud_provider::NAME, "namespace": work.plane()},
    });
    add_ssh_key(work, &mut spec);
    if let Some(status) = work.results.infrastructure.get() {
        add(&mut spec, "infrastructureProviderStatus", status);
    }
    let live = find(work, &WORKER)?.unwrap_or_default();
    let profile = &work.inputs.profile["spec"];
    let mut all = Vec::new();
    for pool in pools(work) {
        let config = configs.iter().find(|config| config.pool == pool.name());
        let user_data = config.map(|config| config.user_data.as_str()).ok_or_else(|| {
            Failed::new(format!("missing operating system config for worker pool {}", pool.name()))
        })?;
        all.push(osc::worker_pool(pool, user_data, profile, &live));
    }
    spec["pools"] = json!(all);
    Ok(spec)
}
