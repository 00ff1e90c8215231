//! A pool of nodes, and its key.

use serde_json::Value;

use crate::api::meta::text;
use crate::components::managed::sha256_hex;
use crate::format::quantity::Quantity;
use crate::format::semver::Version;
use crate::format::time::{parse_rfc3339, rfc3339};

/// The key has so many digits of a hash.
const DIGITS: usize = 16;
/// From this minor version on, kube-proxy finds the DNS server of a node by itself, except in mode IPVS.
const WITHOUT_DNS_FLAG: (u64, u64) = (1, 34);

/// A pool, as an entry of `spec.provider.workers` describes it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NodePool<'a> {
    pub(crate) shoot: &'a Value,
    /// The entry of the Shoot's spec.
    pub(crate) worker: &'a Value,
    /// Its nodes are hosts of the site.
    pub(crate) has_hosts: bool,
}

impl<'a> NodePool<'a> {
    pub(crate) fn name(self) -> &'a str {
        text(&self.worker["name"])
    }

    /// The version of its kubelets.
    pub(crate) fn version(self) -> &'a str {
        [&self.worker["kubernetes"]["version"], &self.shoot["spec"]["kubernetes"]["version"]]
            .into_iter()
            .find_map(Value::as_str)
            .unwrap_or_default()
    }

    /// The settings of its kubelets. Those of the pool replace those of the Shoot as a whole.
    pub(crate) fn kubelet(self) -> &'a Value {
        let own = &self.worker["kubernetes"]["kubelet"];
        if own.is_object() { own } else { &self.shoot["spec"]["kubernetes"]["kubelet"] }
    }

    pub(crate) fn architecture(self) -> &'a str {
        self.worker["machine"]["architecture"].as_str().unwrap_or("amd64")
    }

    /// Its machine type, as the spec of a CloudProfile describes it.
    pub(crate) fn machine_type(self, profile: &Value) -> Option<&Value> {
        let name = &self.worker["machine"]["type"];
        profile["machineTypes"].as_array()?.iter().find(|known| known["name"] == *name)
    }

    pub(super) fn has_local_dns(self) -> bool {
        self.shoot["spec"]["systemComponents"]["nodeLocalDNS"]["enabled"] == true
    }

    /// Whether kube-proxy is said to run, and in mode IPVS.
    pub(super) fn has_ipvs(self) -> bool {
        let proxy = &self.shoot["spec"]["kubernetes"]["kubeProxy"];
        proxy["enabled"] == true && proxy["mode"] == "IPVS"
    }

    /// Its nodes are changed where they are, and never replaced.
    pub(crate) fn is_updated_in_place(self) -> bool {
        let strategy = text(&self.worker["updateStrategy"]);
        self.has_hosts || matches!(strategy, "AutoInPlaceUpdate" | "ManualInPlaceUpdate")
    }

    /// The start of its objects' names: nodes of a pool with another key are other nodes.
    ///
    /// Source: `operatingsystemconfig.Key`. It must be equal byte by byte, because another key replaces each node of a pool.
    pub(crate) fn key(self) -> String {
        let name = format!("gardener-node-agent-{}", self.name());
        if self.is_updated_in_place() {
            return name;
        }
        let digests: String = self.distinctions().iter().map(|each| sha256_hex(each.as_bytes())).collect();
        let mut digest = sha256_hex(digests.as_bytes());
        digest.truncate(DIGITS);
        format!("{name}-{digest}")
    }

    /// What a node cannot change without being replaced, in upstream's order.
    fn distinctions(self) -> Vec<String> {
        let own = |value: &Value| value.as_str().map(str::to_owned);
        let machine = &self.worker["machine"];
        let image = &machine["image"];
        let minor = Version::parse(self.version()).ok();
        let is_early =
            minor.as_ref().is_some_and(|version| (version.major, version.minor) < WITHOUT_DNS_FLAG);
        let mut all = vec![
            minor.map(|version| format!("{}.{}", version.major, version.minor)),
            own(&machine["type"]),
            image.is_object().then(|| format!("{}{}", text(&image["name"]), text(&image["version"]))),
            own(&self.worker["volume"]["size"]),
            own(&self.worker["volume"]["type"]),
            own(&self.worker["cri"]["name"]),
        ];
        all.extend(
            ["certificateAuthorities", "serviceAccountKey"].map(|kind| self.rotated(kind).map(go_text)),
        );
        let names_dns = self.has_local_dns() && (is_early || self.has_ipvs());
        all.push(names_dns.then(|| "node-local-dns".to_owned()));
        let kubelet = self.kubelet();
        all.push(reserved(&kubelet["kubeReserved"]));
        all.push(evicted(&kubelet["evictionHard"]));
        all.push(own(&kubelet["cpuManagerPolicy"]));
        all.into_iter().flatten().collect()
    }

    /// When the rotation began that its nodes have followed, in RFC 3339. A pool that follows later has the time of the rotation before.
    pub(super) fn rotated(self, kind: &str) -> Option<&'a str> {
        let rotation = &self.shoot["status"]["credentials"]["rotation"][kind];
        let pending = rotation["pendingWorkersRollouts"].as_array();
        let own = pending.into_iter().flatten().find(|pending| pending["name"] == self.name());
        own.unwrap_or(rotation)["lastInitiationTime"].as_str()
    }
}

/// A time as Go prints it.
fn go_text(time: &str) -> String {
    match parse_rfc3339(time) {
        Ok(time) => rfc3339(time).replace('T', " ").replace('Z', " +0000 UTC"),
        Err(_) => time.to_owned(),
    }
}

pub(super) fn reserved(own: &Value) -> Option<String> {
    let quantity = |field: &str| match own[field].as_str() {
        Some(text) => Quantity::parse(text).map_or_else(|_| text.to_owned(), |quantity| quantity.to_string()),
        None => "<nil>".to_owned(),
    };
    own.is_object().then(|| ["cpu", "memory", "pid", "ephemeralStorage"].map(quantity).join("-"))
}

pub(super) fn evicted(own: &Value) -> Option<String> {
    let fields =
        ["imageFSAvailable", "imageFSInodesFree", "memoryAvailable", "nodeFSAvailable", "nodeFSInodesFree"];
    own.is_object().then(|| fields.map(|field| text(&own[field])).join("-"))
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::base::json::json;

    fn key(shoot: &Value, worker: &Value) -> String {
        NodePool { shoot, worker, has_hosts: false }.key()
    }

    fn shoot(version: &str, local_dns: bool) -> Value {
        json!({"spec": {"kubernetes": {"version": version, "kubeProxy": {}},
            "systemComponents": {"nodeLocalDNS": {"enabled": local_dns}}}})
    }

    /// What the Go gardenlet's function returns.
    #[test]
    fn keys_are_those_of_upstream() {
        let worker = json!({"name": "pool1", "machine": {"type": "lab", "image": {"name": "lab", "version": "1.0.0"}},
            "cri": {"name": "containerd"}});
        let of = |shoot: &Value, own: Value| {
            let mut worker = worker.clone();
            for (field, value) in own.as_object().into_iter().flatten() {
                worker[field] = value.clone();
            }
            key(shoot, &worker)
        };
        let none = json!({});
        let kubelet = |own: Value| json!({"kubernetes": {"kubelet": own}});
        let mut ipvs = shoot("1.34.3", true);
        ipvs["spec"]["kubernetes"]["kubeProxy"]["mode"] = json!("IPVS");
        let rotated = |authorities: Value, service_account_key: Value| {
            let mut shoot = shoot("1.34.3", false);
            shoot["status"]["credentials"]["rotation"] =
                json!({"certificateAuthorities": authorities, "serviceAccountKey": service_account_key});
            shoot
        };
        let at = json!({"lastInitiationTime": "2026-11-27T10:00:00Z"});
        let pending = |entry: Value| json!({"lastInitiationTime": "2026-11-27T10:00:00Z", "pendingWorkersRollouts": [entry]});
        let waits = pending(json!({"name": "pool1"}));
        let waited = pending(json!({"name": "pool1", "lastInitiationTime": "2026-01-02T03:04:05Z"}));
        let table = [
            (of(&shoot("1.34.3", true), none.clone()), "7503ebb3d335760f"),
            (of(&shoot("1.34.9", true), none.clone()), "7503ebb3d335760f"),
            (of(&shoot("1.33.5", true), none.clone()), "7568274d577c360a"),
            (of(&shoot("1.33.5", false), none.clone()), "3ce0d17262523293"),
            (of(&ipvs, none.clone()), "7503ebb3d335760f"),
            (of(&shoot("1.34.3", false), kubelet(json!({}))), "7503ebb3d335760f"),
            (
                of(
                    &shoot("1.34.3", false),
                    json!({"volume": {"size": "50Gi", "type": "fast"}, "kubernetes": {"kubelet": {
                        "kubeReserved": {"cpu": "80m", "memory": "1Gi", "pid": "20k"},
                        "evictionHard": {"memoryAvailable": "100Mi"}, "cpuManagerPolicy": "static"}}}),
                ),
                "c124793599025a0d",
            ),
            (
                of(
                    &shoot("1.34.3", false),
                    kubelet(json!({"kubeReserved": {"cpu": "0.08", "memory": "1024Mi", "pid": "20000"}})),
                ),
                "158ac425bcb432f3",
            ),
            (of(&rotated(at.clone(), at.clone()), none.clone()), "eae7a4437c660ae0"),
            (of(&rotated(waits.clone(), waits.clone()), none.clone()), "7503ebb3d335760f"),
            (of(&rotated(waited, waits), none), "3949999241ee12e3"),
        ];
        for (number, (found, expected)) in table.iter().enumerate() {
            assert_eq!(*found, format!("gardener-node-agent-pool1-{expected}"), "row {number}");
        }
    }

    /// What the Go gardenlet named the objects of pools with everything.
    #[test]
    fn pools_with_everything_have_the_keys_of_upstream() {
        let pool1 = json!({"name": "pool1", "machine": {"type": "lab", "image": {"name": "lab", "version": "1.0.0"}},
            "volume": {"size": "50Gi", "type": "fast"}, "cri": {"name": "containerd"}});
        let pool2 = json!({"name": "pool2", "machine": {"type": "lab-big", "image": {"name": "lab", "version": "1.1.0"}},
            "volume": {"size": "60Gi", "type": "fast"}, "cri": {"name": "containerd"}, "kubernetes": {"version": "1.33.5", "kubelet": {
                "kubeReserved": {"cpu": "100m", "memory": "2Gi", "pid": "20k"}, "evictionHard": {"memoryAvailable": "200Mi"},
                "cpuManagerPolicy": "static"}}});
        let mut shoot = shoot("1.34.3", true);
        shoot["spec"]["kubernetes"]["kubelet"] =
            json!({"kubeReserved": {"cpu": "80m", "memory": "1Gi", "pid": "20k"}});
        assert_eq!(key(&shoot, &pool1), "gardener-node-agent-pool1-0157e2ac9768c50d");
        assert_eq!(key(&shoot, &pool2), "gardener-node-agent-pool2-f1838f06af567a4c");
        let time = json!({"lastInitiationTime": "2026-11-27T10:55:10Z"});
        shoot["status"]["credentials"]["rotation"] =
            json!({"certificateAuthorities": time, "serviceAccountKey": time});
        assert_eq!(key(&shoot, &pool1), "gardener-node-agent-pool1-de8d4d1cbbfe7119");
        assert_eq!(key(&shoot, &pool2), "gardener-node-agent-pool2-677eb996d9d59090");
    }

    #[test]
    fn nodes_that_are_never_replaced_have_a_constant_key() {
        let worker = json!({"name": "a", "machine": {"type": "host"}});
        let shoot = shoot("1.34.3", false);
        assert_eq!(
            NodePool { shoot: &shoot, worker: &worker, has_hosts: true }.key(),
            "gardener-node-agent-a"
        );
        for strategy in ["AutoInPlaceUpdate", "ManualInPlaceUpdate"] {
            let mut worker = worker.clone();
            worker["updateStrategy"] = json!(strategy);
            assert_eq!(key(&shoot, &worker), "gardener-node-agent-a");
        }
    }
}
