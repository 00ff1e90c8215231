//! Whether the cluster of a seed is a self-hosted shoot. Another gardenlet then installs there what the agent would
//! install. The rule is upstream's (`ClusterIsSelfHostedShoot`).

use crate::api::core::NAMESPACE;
use crate::api::meta::{Key, Metadata, ObjectMeta};
use crate::kube::{Client, Error};

/// Why such a seed is refused.
pub(crate) const SELF_HOSTED: &str = "the seed is a self-hosted shoot (label gardener.cloud/role=shoot of its namespace kube-system): \
                               its own gardenlet installs extensions there; seeds of this kind are not supported";

/// Whether the cluster is a shoot that hosts its own control plane. Errors: all of [`Error`].
pub(crate) fn is_self_hosted_shoot(seed: &Client) -> Result<bool, Error> {
    let namespace = seed.find::<Metadata>(&NAMESPACE, &Key::cluster("kube-system"))?;
    Ok(namespace.is_some_and(|namespace| has_role_shoot(&namespace.metadata)))
}

/// Whether this namespace `kube-system` belongs to such a cluster.
pub(crate) fn has_role_shoot(namespace: &ObjectMeta) -> bool {
    namespace.labels.get("gardener.cloud/role").is_some_and(|role| role == "shoot")
}

#[cfg(test)]
mod tests {
    use crate::base::sorted::SortedMap;

    use super::*;

    #[test]
    fn the_label_marks_a_self_hosted_shoot() {
        for (key, value, expected) in [
            ("gardener.cloud/role", "shoot", true),
            ("gardener.cloud/role", "kube-system", false),
            ("role", "shoot", false),
        ] {
            let labels = SortedMap::from([(key.to_owned(), value.to_owned())]);
            assert_eq!(
                has_role_shoot(&ObjectMeta { labels, ..ObjectMeta::default() }),
                expected,
                "{key}={value}"
            );
        }
        assert!(!has_role_shoot(&ObjectMeta::default()));
    }
}
