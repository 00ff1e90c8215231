//! Checks that the configured networks match the seed's before anything is registered, because a Seed with wrong ranges
//! breaks every shoot on it (Gardener `pkg/gardenlet/bootstrappers/seed_config.go`).

use std::net::IpAddr;

use serde_json::Value;

use crate::api::core::{CONFIG_MAP, ConfigMap, NODE, POD, SERVICE};
use crate::api::meta::{ALL_NAMESPACES, Key, Resource, text};
use crate::format::cidr::Cidr;
use crate::kube::request::ListParams;
use crate::kube::{self, Client};

/// How many objects of each kind are checked.
const SAMPLE: u32 = 100;

/// Why the check failed.
pub(crate) enum Mismatch {
    /// The seed does not answer.
    Kube(&'static str, kube::Error),
    /// The networks differ. The text contains the remedy.
    Differs(String),
}

/// Compares `seedConfig.spec.networks` with the seed: exactly if the seed is a shoot, otherwise by a
/// sample of its addresses.
pub(crate) fn check(seed: &Client, networks: &Value) -> Result<(), Mismatch> {
    let info = seed
        .find::<ConfigMap>(&CONFIG_MAP, &Key::new("kube-system", "shoot-info"))
        .map_err(|e| Mismatch::Kube("read config map kube-system/shoot-info of the seed", e))?;
    if let Some(info) = info {
        return compare(networks, &info).map_err(Mismatch::Differs);
    }
    for (kind, field, resource) in
        [("Node", "nodes", &NODE), ("Pod", "pods", &POD), ("Service", "services", &SERVICE)]
    {
        let Some(range) = networks[field].as_str().and_then(Cidr::parse) else { continue };
        let sample = list(seed, resource).map_err(|e| Mismatch::Kube("list addresses in the seed", e))?;
        if let Some((name, address)) = sample.iter().find_map(|object| outside(object, range)) {
            return Err(Mismatch::Differs(format!(
                "seedConfig.spec.networks.{field} is {}, but {kind} {name} of the seed has the address {address}",
                networks[field]
            )));
        }
    }
    Ok(())
}

fn list(seed: &Client, resource: &Resource) -> Result<Vec<Value>, kube::Error> {
    let params = ListParams { limit: SAMPLE, ..ListParams::default() };
    Ok(seed.list::<Value>(resource, ALL_NAMESPACES, &params)?.items)
}

/// The first address of a Node, Pod or Service that has the range's family but lies outside it, with the object's key.
fn outside(object: &Value, range: Cidr) -> Option<(String, IpAddr)> {
    let (metadata, spec, status) = (&object["metadata"], &object["spec"], &object["status"]);
    // Pods with their own IP pool, and pods on the host's network, use addresses of other ranges.
    let own_pool = |key: &String| {
        key.starts_with("cni.projectcalico.org/ipv4pools")
            || key.starts_with("cni.projectcalico.org/ipv6pools")
    };
    let has_own_pool = metadata["annotations"].as_object().is_some_and(|all| all.keys().any(own_pool));
    if spec["hostNetwork"] == true || has_own_pool {
        return None;
    }
    let nodes = status["addresses"].as_array().map(Vec::as_slice).unwrap_or_default();
    let internal = nodes.iter().filter(|a| a["type"] == "InternalIP").map(|a| &a["address"]);
    let all = internal.chain([&status["podIP"], &spec["clusterIP"]]);
    let mut addresses = all.filter_map(|address| text(address).parse::<IpAddr>().ok());
    let outside =
        addresses.find(|address| address.is_ipv4() == range.is_v4() && !range.contains(*address))?;
    Some((Key::of(object).to_string(), outside))
}

/// `shoot-info` of a seed that is a shoot.
fn compare(networks: &Value, info: &ConfigMap) -> Result<(), String> {
    let fields =
        [("podNetwork", "pods", true), ("serviceNetwork", "services", true), ("nodeNetwork", "nodes", false)];
    for (theirs, ours, required) in fields {
        let (have, want) = (info.data.get(theirs), networks[ours].as_str());
        match (have.map(String::as_str), want) {
            (Some(have), Some(want)) if have == want => {}
            (None, _) | (_, None) if !required => {}
            (have, want) => {
                let (have, want) = (have.unwrap_or("absent"), want.unwrap_or("absent"));
                return Err(format!(
                    "seedConfig.spec.networks.{ours} is {want}, but {theirs} in the seed's config map \
                     kube-system/shoot-info is {have}"
                ));
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn networks_of_a_shoot_must_be_the_configured_ones() {
        let networks = json!({"pods": "10.1.0.0/16", "services": "10.2.0.0/16", "nodes": "10.3.0.0/16"});
        let info = |pairs: &[(&str, &str)]| ConfigMap {
            data: pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect(),
            ..ConfigMap::default()
        };
        let good = [("podNetwork", "10.1.0.0/16"), ("serviceNetwork", "10.2.0.0/16")];
        assert_eq!(compare(&networks, &info(&good)), Ok(()));
        let other_nodes = [good[0], good[1], ("nodeNetwork", "10.9.0.0/16")];
        assert!(compare(&networks, &info(&other_nodes)).unwrap_err().contains("networks.nodes"));
        let other_pods = [("podNetwork", "10.9.0.0/16"), good[1]];
        assert!(compare(&networks, &info(&other_pods)).unwrap_err().contains("networks.pods"));
        assert!(compare(&networks, &info(&good[..1])).is_err());
    }

    #[test]
    fn which_addresses_contradict_a_range() {
        let range = Cidr::parse("10.1.0.0/16").unwrap();
        let pod = |ip: &str| json!({"metadata": {"namespace": "n", "name": "p"}, "status": {"podIP": ip}});
        let node = |kind: &str, ip: &str| json!({"metadata": {"name": "n"}, "status": {"addresses": [{"type": kind, "address": ip}]}});
        let mut host = pod("10.9.0.1");
        host["spec"] = json!({"hostNetwork": true});
        let mut pool = pod("10.9.0.1");
        pool["metadata"]["annotations"] = json!({"cni.projectcalico.org/ipv4pools": "[]"});
        let table = [
            (pod("10.1.2.3"), None),
            (pod("10.9.0.1"), Some("n/p")),
            (pod("fd00::1"), None),
            (pod(""), None),
            (host, None),
            (pool, None),
            (node("InternalIP", "10.9.0.1"), Some("n")),
            (node("ExternalIP", "10.9.0.1"), None),
            (json!({"metadata": {"namespace": "n", "name": "s"}, "spec": {"clusterIP": "None"}}), None),
            (
                json!({"metadata": {"namespace": "n", "name": "s"}, "spec": {"clusterIP": "10.9.0.1"}}),
                Some("n/s"),
            ),
        ];
        for (object, expected) in table {
            assert_eq!(outside(&object, range).map(|(key, _)| key).as_deref(), expected, "{object}");
        }
    }
}
