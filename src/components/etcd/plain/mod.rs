//! An etcd 3.5 without a druid: one member, without backups. Names, labels and paths are those that an etcd-druid gives its
//! own objects, so that one can take them over. Probes use the listener for metrics, because a kubelet has no client
//! certificate.

use serde_json::{Value, json};

use super::{Input, Role};
use crate::api::core::{CONFIG_MAP, POD_DISRUPTION_BUDGET, SERVICE, STATEFUL_SET};
use crate::api::meta::{Resource, text};
use crate::components::bring::bring;
use crate::components::managed::sha256_hex;
use crate::kube::{Error, Seed};

/// Who manages the objects, as their labels say.
const MANAGED_BY: &str = "app.kubernetes.io/managed-by";
/// The value that a druid looks for.
const DRUID: &str = "etcd-druid";
/// The value where a druid would refuse our writes.
const AGENT: &str = "gardenlet";

/// The objects of an etcd, in the order in which they are written.
pub type Objects = [(Resource, Value); 5];

/// Writes what differs, and returns the StatefulSet. `finish` may add to it. `may_label` is asked only for an etcd that is not there yet: whether its
/// objects can have the labels of a druid ([`super::druid::may_label`]). The labels of a live StatefulSet stay, because its
/// selector cannot change.
///
/// # Errors
/// The client's.
pub fn deploy(
    seed: &Seed,
    input: &Input<'_>,
    image: &str,
    finish: &dyn Fn(&mut Value),
    may_label: &dyn Fn() -> Result<bool, Error>,
) -> Result<Value, Error> {
    let live: Option<Value> = seed.find(&STATEFUL_SET, input.namespace, input.role.name())?;
    let manager = match live.as_ref().map(|live| text(&live["spec"]["selector"]["matchLabels"][MANAGED_BY])) {
        Some(manager) if !manager.is_empty() => manager.to_owned(),
        _ if may_label()? => DRUID.to_owned(),
        _ => AGENT.to_owned(),
    };
    let mut written = Value::Null;
    for (resource, mut desired) in objects(input, image, &manager) {
        if resource == STATEFUL_SET {
            finish(&mut desired);
        }
        written = bring(seed, &resource, &desired)?;
    }
    Ok(written)
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
    use crate::components::archive;
    use crate::components::bring::{Keep, patch};
    use crate::components::etcd::tests::input;
    use crate::config::control_plane::Volume;

    const IMAGE: &str = "gcr.io/etcd-development/etcd:v3.5.27";

    #[test]
    fn is_as_in_the_golden_files() {
        let main = Volume { storage_class: None, size: "25Gi".to_owned() };
        let events = Volume { storage_class: Some("local".to_owned()), size: "2Gi".to_owned() };
        let main = objects(&input(Role::Main, &main), IMAGE, DRUID);
        let events = objects(&input(Role::Events, &events), IMAGE, AGENT);
        let all: Vec<Value> = main.into_iter().chain(events).map(|(_, object)| object).collect();
        let golden = include_str!("../../../../tests/fixtures/components/etcd-plain.yaml");
        assert_eq!(archive::golden(&all), golden);
    }

    #[test]
    fn a_druid_finds_its_labels_and_pods_have_those_of_the_selectors() {
        let volume = Volume { storage_class: None, size: "25Gi".to_owned() };
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
    fn a_live_volume_stays_and_a_hibernated_etcd_only_has_no_pod() {
        let volume = Volume { storage_class: None, size: "25Gi".to_owned() };
        let live = objects(&input(Role::Main, &volume), IMAGE, DRUID);
        let other = Volume { storage_class: Some("fast".to_owned()), size: "50Gi".to_owned() };
        let asleep = Input { replicas: 0, ..input(Role::Main, &other) };
        let changes: Vec<Value> = live
            .iter()
            .zip(objects(&asleep, IMAGE, DRUID))
            .filter_map(|((_, live), (_, desired))| patch(live, &desired, Keep::default()))
            .collect();
        assert_eq!(changes, [json!({"spec": {"replicas": 0}})]);
    }
}
