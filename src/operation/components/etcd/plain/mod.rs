//! An etcd 3.5 without a druid: one member, with [`snapshots`] if they are enabled. ServerNames, labels and paths are the
//! same as an etcd-druid's, so that a druid can take the objects over. Probes use the metrics listener, because a
//! kubelet has no client certificate.

use serde_json::Value;

use super::{Input, Role};
use crate::api::core::{CONFIG_MAP, POD_DISRUPTION_BUDGET, SERVICE, STATEFUL_SET};
use crate::api::meta::{Key, Resource, text};
use crate::base::json::json;
use crate::components::apply::apply;
use crate::components::managed::sha256_hex;
use crate::kube::{Error, Seed};
use crate::runtime::write;

pub(crate) mod ended;
pub(crate) mod moving;
pub(crate) mod refused;
pub mod snapshots;

use snapshots::Snapshots;

/// The label that names the manager of the objects.
const MANAGED_BY: &str = "app.kubernetes.io/managed-by";
/// The value that a druid looks for.
const DRUID: &str = "etcd-druid";
/// The value that is used where a druid would refuse our writes.
const AGENT: &str = "gardenlet";

/// The objects of an etcd, in the order in which they are written.
pub(crate) type Objects = [(Resource, Value); 5];

/// Writes what differs, and returns the StatefulSet. `finish` may add to it. `may_label` is called only for a new etcd
/// and returns whether its objects may have a druid's labels ([`super::druid::may_label`]). The labels of a live
/// StatefulSet stay, because its selector is immutable. If snapshots are off, the snapshot objects are deleted before
/// the StatefulSet is written.
pub(crate) fn deploy(
    seed: &Seed,
    input: &Input<'_>,
    image: &str,
    snapshots: Option<&Snapshots<'_>>,
    finish: &dyn Fn(&mut Value),
    may_label: &dyn Fn() -> Result<bool, Error>,
) -> Result<Value, Error> {
    let live: Option<Value> = seed.find(&STATEFUL_SET, &Key::new(input.namespace, input.role.name()))?;
    let manager = match live.as_ref().map(|live| text(&live["spec"]["selector"]["matchLabels"][MANAGED_BY])) {
        Some(manager) if !manager.is_empty() => manager.to_owned(),
        _ if may_label()? => DRUID.to_owned(),
        _ => AGENT.to_owned(),
    };
    if snapshots.is_none() && live.as_ref().is_some_and(snapshots::are_on) {
        snapshots::delete(seed, input.namespace)?;
    }
    let mut written = Value::Null;
    for (resource, mut desired) in objects(input, image, &manager) {
        if resource == STATEFUL_SET {
            snapshots.into_iter().for_each(|snapshots| snapshots.add_to(&mut desired));
            finish(&mut desired);
        }
        written = apply(seed, &resource, &desired)?;
    }
    if let Some(snapshots) = snapshots {
        snapshots::deploy(seed, input, snapshots)?;
    }
    Ok(written)
}

/// Deletes an etcd, starting with its snapshot objects. Its other objects are deleted with the namespace.
/// Errors: a request fails. A missing object is no error.
pub(crate) fn delete(seed: &Seed, namespace: &str, role: Role) -> Result<(), Error> {
    let key = Key::new(namespace, role.name());
    let live: Option<Value> = seed.find(&STATEFUL_SET, &key)?;
    let Some(live) = live else { return Ok(()) };
    if snapshots::are_on(&live) {
        snapshots::delete(seed, namespace)?;
    }
    write::delete(seed, &STATEFUL_SET, &key).map(drop)
}

/// The objects; the StatefulSet is the last one.
fn objects(input: &Input<'_>, image: &str, manager: &str) -> Objects {
    let manifest = |file: &str| {
        input.manifest(&format!("etcd/plain/{file}.yaml"), &[("manager", manager), ("image", image)])
    };
    let config = manifest("config-map");
    let checksum = sha256_hex(text(&config["data"]["etcd.conf.yaml"]).as_bytes());
    let mut budget = manifest("pdb");
    let mut set = manifest("stateful-set");
    set["spec"]["replicas"] = json!(input.replicas);
    let template = &mut set["spec"]["template"];
    template["metadata"]["annotations"]["checksum/etcd-configmap"] = json!(checksum);
    template["spec"]["containers"][0]["resources"]["requests"] = input.role.requests();
    match input.role {
        Role::Main => {
            let annotations = &mut template["metadata"]["annotations"];
            annotations["cluster-autoscaler.kubernetes.io/safe-to-evict"] = json!("false");
        }
        Role::Events => budget["spec"]["unhealthyPodEvictionPolicy"] = json!("AlwaysAllow"),
    }
    if let Some(class) = &input.volume.storage_class {
        set["spec"]["volumeClaimTemplates"][0]["spec"]["storageClassName"] = json!(class);
    }
    [
        (CONFIG_MAP, config),
        (SERVICE, manifest("service-client")),
        (SERVICE, manifest("service-peer")),
        (POD_DISRUPTION_BUDGET, budget),
        (STATEFUL_SET, set),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::components::apply::{Keep, patch};
    use crate::components::archive;
    use crate::config::control_plane::EtcdVolume;
    use crate::operation::components::etcd::tests::input;

    /// Settings for snapshots of the Shoot of [`input`].
    pub(super) fn settings(store: snapshots::Store<'_>) -> Snapshots<'_> {
        Snapshots {
            store,
            entry: "shoot--p--s2--0a1b",
            image: "registry.example.org/gardenlet:1",
            keep: 7,
            schedule: "12 22 * * *",
            window: ("220000+0000", "230000+0000"),
            is_suspended: false,
            now: crate::base::clock::Timestamp::default(),
        }
    }

    const IMAGE: &str = "gcr.io/etcd-development/etcd:v3.5.27";

    #[test]
    fn is_as_in_the_golden_files() {
        let main = EtcdVolume { storage_class: None, size: "25Gi".to_owned() };
        let events = EtcdVolume { storage_class: Some("local".to_owned()), size: "2Gi".to_owned() };
        let main = objects(&input(Role::Main, &main), IMAGE, DRUID);
        let events = objects(&input(Role::Events, &events), IMAGE, AGENT);
        let all: Vec<Value> = main.into_iter().chain(events).map(|(_, object)| object).collect();
        let golden = include_str!("../../../../../tests/fixtures/components/etcd-plain.yaml");
        assert_eq!(archive::golden(&all), golden);
    }

    #[test]
    fn snapshots_are_as_in_the_golden_files() {
        let volume = EtcdVolume { storage_class: None, size: "25Gi".to_owned() };
        let input = input(Role::Main, &volume);
        let mut all = Vec::new();
        for store in [snapshots::Store::Directory("/var/lib/snapshots/"), snapshots::Store::Bucket] {
            let snapshots = settings(store);
            let [.., (_, mut set)] = objects(&input, IMAGE, DRUID);
            assert!(!snapshots::are_on(&set));
            let plain = set.clone();
            snapshots.add_to(&mut set);
            assert!(snapshots::are_on(&set));
            let back = patch(&set, &plain, Keep::default()).unwrap();
            assert_eq!(back["spec"]["template"]["spec"]["initContainers"], Value::Null);
            let asleep = Snapshots { is_suspended: true, ..snapshots };
            let (awake, asleep) = (snapshots.cron_job(&input), asleep.cron_job(&input));
            let expected = json!({"spec": {"suspend": true}});
            assert_eq!(patch(&awake, &asleep, Keep::default()), Some(expected));
            all.extend([set, awake]);
        }
        let golden = include_str!("../../../../../tests/fixtures/components/etcd-plain-snapshots.yaml");
        assert_eq!(archive::golden(&all), golden);
    }

    #[test]
    fn a_bucket_needs_a_key_of_its_own() {
        let secret = |keys: &[&str]| {
            let data: serde_json::Map<_, _> =
                keys.iter().map(|key| ((*key).to_owned(), json!("eA=="))).collect();
            json!({"data": data})
        };
        let with = |more: &str| {
            snapshots::unfit(&secret(&["accessKeyID", "secretAccessKey", "bucketName", more]))
                .unwrap_or_default()
        };
        assert_eq!((with("region"), with("endpoint")), (String::new(), String::new()));
        assert!(with("s3ForcePathStyle").starts_with("has no region: "));
        let why =
            snapshots::unfit(&secret(&["accessKeyID", "secretAccessKey", "bucketName", "region", "roleARN"]))
                .unwrap();
        assert!(why.starts_with("has roleARN, which is not supported: "), "{why}");
        let why = snapshots::unfit(&secret(&["bucketName", "token"])).unwrap();
        assert!(why.starts_with("has no accessKeyID, secretAccessKey, region: "), "{why}");
    }

    #[test]
    fn labels_are_those_of_a_druid_and_selectors_match_pods() {
        let volume = EtcdVolume { storage_class: None, size: "25Gi".to_owned() };
        for manager in ["etcd-druid", "gardenlet"] {
            let objects = objects(&input(Role::Main, &volume), IMAGE, manager);
            let [.., (_, set)] = &objects;
            let selector =
                json!({"app.kubernetes.io/managed-by": manager, "app.kubernetes.io/part-of": "etcd-main"});
            assert_eq!(set["spec"]["selector"]["matchLabels"], selector);
            let labels = &set["spec"]["template"]["metadata"]["labels"];
            for (key, value) in selector.as_object().unwrap() {
                assert_eq!(&labels[key], value);
            }
            for (_, object) in &objects {
                assert_eq!(object["metadata"]["labels"][MANAGED_BY], manager);
                assert!(!object.to_string().contains("${"), "{object}");
            }
        }
    }

    #[test]
    fn a_live_volume_stays_and_a_hibernated_etcd_has_no_pod() {
        let volume = EtcdVolume { storage_class: None, size: "25Gi".to_owned() };
        let live = objects(&input(Role::Main, &volume), IMAGE, DRUID);
        let other = EtcdVolume { storage_class: Some("fast".to_owned()), size: "50Gi".to_owned() };
        let asleep = Input { replicas: 0, ..input(Role::Main, &other) };
        let changes: Vec<Value> = live
            .iter()
            .zip(objects(&asleep, IMAGE, DRUID))
            .filter_map(|((_, live), (_, desired))| patch(live, &desired, Keep::default()))
            .collect();
        assert_eq!(changes, [json!({"spec": {"replicas": 0}})]);
    }
}
