//! Patches of a Shoot's status. Pure.

use serde_json::Value;

use crate::api::meta::text;
use crate::api::patch::difference;
use crate::base::json::json;

/// The status patch with the identity of the cluster, which never changes. `identity` contains the garden's.
pub(super) fn cluster_identity(shoot: &Value, identity: &str) -> Option<Value> {
    let known = text(&shoot["status"]["clusterIdentity"]);
    known.is_empty().then(|| json!({"status": {"clusterIdentity": identity}}))
}

/// The status patch after everything in etcd has been encrypted as desired, if it changes the status. `resources` are
/// the kinds besides Secrets.
pub(crate) fn encrypted(shoot: &Value, provider: &str, resources: &[String]) -> Option<Value> {
    let before = &shoot["status"]["credentials"]["encryptionAtRest"];
    let mut after = json!({"provider": {"type": provider}});
    if !resources.is_empty() {
        after["resources"] = json!(resources);
    }
    let changed = difference(before, &after)?;
    Some(json!({"status": {"credentials": {"encryptionAtRest": changed}}}))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_once() {
        let mut shoot = json!({"status": {"technicalID": "shoot--p--s", "uid": "u"}});
        let identity = cluster_identity(&shoot, "shoot--p--s-u-garden").unwrap();
        assert_eq!(identity["status"]["clusterIdentity"], "shoot--p--s-u-garden");
        shoot["status"]["clusterIdentity"] = json!("x");
        assert_eq!(cluster_identity(&shoot, "shoot--p--s-u-garden"), None);
        let at_rest =
            |patch: Option<Value>| patch.map(|p| p["status"]["credentials"]["encryptionAtRest"].clone());
        let more = ["configmaps".to_owned()];
        assert_eq!(at_rest(encrypted(&shoot, "aescbc", &[])), Some(json!({"provider": {"type": "aescbc"}})));
        shoot["status"]["credentials"] = json!({"encryptionAtRest": {"provider": {"type": "aescbc"}}});
        assert_eq!(encrypted(&shoot, "aescbc", &[]), None);
        assert_eq!(at_rest(encrypted(&shoot, "aescbc", &more)), Some(json!({"resources": ["configmaps"]})));
        shoot["status"]["credentials"]["encryptionAtRest"]["resources"] = json!(["configmaps"]);
        assert_eq!(at_rest(encrypted(&shoot, "aescbc", &[])), Some(json!({"resources": null})));
    }
}
