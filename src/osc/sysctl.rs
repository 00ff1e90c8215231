//! The settings of the kernel of a node.

use serde_json::Value;

use crate::api::meta::text;
use crate::base::sorted::SortedMap;
use crate::components::archive;

use super::pool::NodePool;

/// The text of the file with the settings, sorted.
pub(super) fn file(pool: NodePool<'_>) -> String {
    let known = archive::object("osc/sysctl.yaml");
    let mut all: SortedMap<String, String> = SortedMap::new();
    let mut add = |settings: &Value| {
        for (name, value) in settings.as_object().into_iter().flatten() {
            all.insert(name.clone(), text(value).to_owned());
        }
    };
    add(&known["always"]);
    if pool.shoot["spec"]["kubernetes"]["kubeProxy"]["enabled"] == false {
        add(&known["without-proxy"]);
    }
    if pool.kubelet()["protectKernelDefaults"] != false {
        add(&known["protected"]);
    }
    add(&pool.worker["sysctls"]);
    all.iter().map(|(name, value)| format!("{name} = {value}\n")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::json::json;

    #[test]
    fn a_pool_sets_them_anew() {
        let shoot = json!({"spec": {"kubernetes": {"kubeProxy": {"enabled": false}}}});
        let worker = json!({"sysctls": {"fs.file-max": "7", "z.own": "1"},
            "kubernetes": {"kubelet": {"protectKernelDefaults": false}}});
        let text = file(NodePool { shoot: &shoot, worker: &worker, has_hosts: false });
        for line in ["fs.file-max = 7", "z.own = 1", "net.netfilter.nf_conntrack_max = 1048576"] {
            assert!(text.lines().any(|known| known == line), "{line}: {text}");
        }
        assert!(!text.contains("panic_on_oom") && text.lines().is_sorted(), "{text}");
    }
}
