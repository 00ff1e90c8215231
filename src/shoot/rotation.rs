//! The effect of credential rotations on the Secrets: when they started, and whether the previous ones are still valid.
//! Pure.

use serde_json::Value;

use super::view::{Rotated, RotationPhase, ShootView};
use crate::api::meta::text;
use crate::base::sorted::SortedSet;
use crate::secrets::{Options, SecretsRotation};

/// The CAs of each Shoot, in the order of their creation.
const AUTHORITIES: [&str; 6] =
    ["ca", CA_CLIENT, "ca-etcd", "ca-etcd-peer", "ca-front-proxy", "ca-istio-basic-auth-server"];
/// Those of a Shoot with workers in addition.
const AUTHORITIES_OF_NODES: [&str; 3] = [CA_KUBELET, CA_METRICS_SERVER, CA_TUNNEL];

/// All CAs of the Shoot, in the order of their creation.
pub(crate) fn authorities(view: &ShootView) -> impl Iterator<Item = &'static str> {
    let of_nodes = if view.has_workers { &AUTHORITIES_OF_NODES[..] } else { &[] };
    AUTHORITIES.iter().chain(of_nodes).copied()
}

/// The client CA. Its name has a checksum from the start.
pub(crate) const CA_CLIENT: &str = "ca-client";
/// The CA of the certificates that kubelets serve with, and of the API server's certificate for them.
pub(crate) const CA_KUBELET: &str = "ca-kubelet";
/// The CA of the server that says what nodes and pods use.
pub(crate) const CA_METRICS_SERVER: &str = "ca-metrics-server";
/// The CA of the tunnel to the nodes. The name is upstream's, so that a migration and another gardenlet find it.
pub(crate) const CA_TUNNEL: &str = "ca-vpn";
/// The key that opens nodes by SSH.
pub(crate) const SSH_KEYPAIR: &str = "ssh-keypair";
/// The token of probes. It is rotated together with the CAs.
pub(crate) const STATIC_TOKEN: &str = "kube-apiserver-static-token";
/// The key that signs the tokens of ServiceAccounts.
pub(crate) const SERVICE_ACCOUNT_KEY: &str = "service-account-key";
/// The key that encrypts objects in etcd.
pub const ENCRYPTION_KEY: &str = "kube-apiserver-etcd-encryption-key";

/// For [`crate::secrets::Secrets::load`].
pub fn rotation(view: &ShootView) -> SecretsRotation {
    let of = &view.rotations;
    let with_authorities = authorities(view).chain([STATIC_TOKEN]).map(|name| (name, of.authorities));
    let keys = [
        (SERVICE_ACCOUNT_KEY, of.service_account_key),
        (ENCRYPTION_KEY, of.encryption_key),
        (SSH_KEYPAIR, of.ssh_keypair),
    ];
    let begun = |(name, rotated): (&str, Rotated)| Some((name.to_owned(), rotated.initiated?));
    SecretsRotation { renews_cas: false, initiated: with_authorities.chain(keys).filter_map(begun).collect() }
}

/// The options of a CA.
pub(crate) fn of_authority(view: &ShootView, name: &str) -> Options {
    let rotated = view.rotations.authorities;
    Options { plain_name: name != CA_CLIENT && !rotated.is_known, ..of_key(rotated) }
}

/// The options of a key: the previous one stays valid until the rotation is completed.
pub(crate) fn of_key(rotated: Rotated) -> Options {
    Options {
        persist: true,
        keep_old: true,
        ignore_old: rotated.phase == RotationPhase::Completing,
        ..Options::default()
    }
}

/// Whether the Shoot requests encryption of other resources than the present ones. Their order does not matter.
pub(crate) fn encrypts_others(shoot: &Value) -> bool {
    let present = &shoot["status"]["credentials"]["encryptionAtRest"];
    let wanted = &shoot["spec"]["kubernetes"]["kubeAPIServer"]["encryptionConfig"];
    // Without a provider, the status does not record yet what is encrypted.
    !text(&present["provider"]["type"]).is_empty() && set(&present["resources"]) != set(&wanted["resources"])
}

fn set(list: &Value) -> SortedSet<&str> {
    list.as_array().into_iter().flatten().map(text).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::view::tests::golden;
    use super::*;

    #[test]
    fn related_rotations_start_together() {
        assert!(rotation(&golden("s1")).initiated.is_empty());
        let begun = rotation(&golden("s1-prepared")).initiated;
        assert_eq!(begun.len(), AUTHORITIES.len() + 3);
        assert_eq!(authorities(&golden("w4")).count(), AUTHORITIES.len() + AUTHORITIES_OF_NODES.len());
        assert!(begun.values().all(|at| at.unix() == 1_795_353_089), "{begun:?}");
    }

    #[test]
    fn names_get_checksums_with_the_first_rotation() {
        let mut view = golden("s2");
        assert!(of_authority(&view, "ca").plain_name);
        assert!(!of_authority(&view, CA_CLIENT).plain_name);
        for (phase, ignores) in [
            (RotationPhase::Preparing, false),
            (RotationPhase::Prepared, false),
            (RotationPhase::Completing, true),
        ] {
            view.rotations.authorities = Rotated { phase, initiated: None, is_known: true };
            let options = of_authority(&view, "ca");
            assert!(!options.plain_name && options.keep_old && options.persist);
            assert_eq!(options.ignore_old, ignores, "{phase:?}");
        }
    }

    #[test]
    fn changed_resources_need_encryption() {
        let of = |wanted: &Value, present: &Value| {
            json!({"spec": {"kubernetes": {"kubeAPIServer": {"encryptionConfig": {"resources": wanted}}}},
                "status": {"credentials": {"encryptionAtRest": {"provider": {"type": "aescbc"}, "resources": present}}}})
        };
        let (ab, ba, a) = (json!(["a", "b"]), json!(["b", "a"]), json!(["a"]));
        let table = [
            (&ab, &ba, false),
            (&json!([]), &Value::Null, false),
            (&a, &ab, true),
            (&ab, &a, true),
            (&a, &Value::Null, true),
        ];
        for (wanted, present, expected) in table {
            assert_eq!(encrypts_others(&of(wanted, present)), expected, "{wanted} {present}");
        }
        let mut unknown = of(&a, &Value::Null);
        unknown["status"] = json!({});
        assert!(!encrypts_others(&unknown), "the status has no provider yet");
    }
}
