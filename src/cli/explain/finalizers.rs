//! Which program removes which finalizer.

/// Finalizers, or prefixes of finalizers (with `*` at the end), and which program removes them under which condition.
const KNOWN: [(&str, &str); 17] = [
    (
        "gardener",
        "gardener-controller-manager or the gardenlet of the seed, when nothing needs the object any more",
    ),
    ("gardener.cloud/reference-protection", "gardener-controller-manager, when nothing refers to it"),
    (
        "core.gardener.cloud/controllerinstallation",
        "the gardenlet of the seed, when the ManagedResource is gone",
    ),
    (
        "core.gardener.cloud/controllerregistration",
        "gardener-controller-manager, when no ControllerInstallation is left",
    ),
    (
        "core.gardener.cloud/controllerdeployment",
        "gardener-controller-manager, when no ControllerRegistration names it",
    ),
    ("core.gardener.cloud/backupbucket", "the gardenlet of the seed, when the BackupBucket is gone"),
    ("gardener.cloud/gardener", "the Gardener component that uses it, when it no longer uses it"),
    (
        "resources.gardener.cloud/gardener-resource-manager*",
        "the applier of ManagedResources (the gardenlet, or gardener-resource-manager), when all its objects are gone",
    ),
    ("extensions.gardener.cloud/*", "the extension controller of that name"),
    ("machine.sapcloud.io/*", "machine-controller-manager"),
    ("druid.gardener.cloud*", "etcd-druid"),
    ("kubernetes", "kube-controller-manager, when the namespace is empty"),
    ("foregroundDeletion", "kube-controller-manager, when all objects that it owns are gone"),
    ("orphan", "kube-controller-manager"),
    ("kubernetes.io/*", "kube-controller-manager, when nothing uses the volume"),
    (
        "service.kubernetes.io/load-balancer-cleanup",
        "the cloud controller manager, when the load balancer is gone",
    ),
    ("customresourcecleanup.apiextensions.k8s.io", "kube-apiserver, when no object of the kind is left"),
];

/// Describes which program removes the finalizer.
pub(super) fn remover(finalizer: &str) -> &'static str {
    let fits = |known: &str| match known.strip_suffix('*') {
        Some(beginning) => finalizer.starts_with(beginning),
        None => finalizer == known,
    };
    KNOWN
        .iter()
        .find(|(known, _)| fits(known))
        .map_or("the program that set it: see the finalizer's name", |(_, who)| who)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finalizers_have_owners() {
        let table = [
            ("gardener", "gardener-controller-manager or the gardenlet"),
            ("resources.gardener.cloud/gardener-resource-manager-seed", "the applier of ManagedResources"),
            ("extensions.gardener.cloud/os-x", "the extension controller"),
            ("kubernetes", "kube-controller-manager, when the namespace"),
            ("kubernetes.io/pvc-protection", "kube-controller-manager, when nothing uses"),
            ("example.org/mine", "the program that set it"),
        ];
        for (finalizer, who) in table {
            assert!(remover(finalizer).starts_with(who), "{finalizer}: {}", remover(finalizer));
        }
        let known = |finalizer| KNOWN.iter().any(|(known, _)| *known == finalizer);
        assert!(known(crate::controllers::seed::FINALIZER));
        assert!(known(crate::controllers::controller_installation::FINALIZER));
    }
}
