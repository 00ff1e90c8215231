//! The kinds of gardener-apiserver.

use super::bastion::Bastion;
use super::rules::{
    Bucket, Confirmed, Deployment, Installation, Managed, Operations, Plain, Profile, Project, Registration,
    SeedNames,
};
use super::seed::Seed;
use super::shoot::{Shoot, kubeconfig};
use super::{columns, fields, identity};
use crate::api::kinds::Kind;
use crate::api::rules::Frozen;

pub const CORE: &str = "core.gardener.cloud";
pub const SEED_MANAGEMENT: &str = "seedmanagement.gardener.cloud";
pub const OPERATIONS: &str = "operations.gardener.cloud";
pub const SECURITY: &str = "security.gardener.cloud";

type Fields = &'static [(&'static str, &'static str)];

const SHOOT_FIELDS: Fields = &[
    ("spec.seedName", "/spec/seedName"),
    ("status.seedName", "/status/seedName"),
    ("spec.cloudProfileName", "/spec/cloudProfileName"),
    ("spec.cloudProfile.Name", "/spec/cloudProfile/name"),
    ("spec.cloudProfile.Kind", "/spec/cloudProfile/kind"),
];
const INSTALLATION_FIELDS: Fields = &[
    ("spec.seedRef.name", "/spec/seedRef/name"),
    ("spec.registrationRef.name", "/spec/registrationRef/name"),
    ("spec.shootRef.name", "/spec/shootRef/name"),
    ("spec.shootRef.namespace", "/spec/shootRef/namespace"),
];
const BUCKET_FIELDS: Fields = &[
    ("spec.seedName", "/spec/seedName"),
    ("spec.shootRef.name", "/spec/shootRef/name"),
    ("spec.shootRef.namespace", "/spec/shootRef/namespace"),
];
const ENTRY_FIELDS: Fields = &[
    ("spec.seedName", "/spec/seedName"),
    ("spec.shootRef.name", "/spec/shootRef/name"),
    ("spec.shootRef.namespace", "/spec/shootRef/namespace"),
    ("spec.bucketName", "/spec/bucketName"),
];
const BASTION_FIELDS: Fields =
    &[("spec.seedName", "/spec/seedName"), ("spec.shootRef.name", "/spec/shootRef/name")];

/// What `kubectl get all` shows.
const IN_ALL: [&str; 8] = [
    "BackupBucket",
    "BackupEntry",
    "Bastion",
    "ControllerDeployment",
    "ControllerInstallation",
    "ControllerRegistration",
    "Shoot",
    "ShootState",
];

/// All of them.
pub fn kinds() -> Vec<Kind> {
    let mut all: Vec<Kind> = core().into_iter().chain(others()).collect();
    for kind in &mut all {
        kind.columns = columns::of(&kind.kind);
        kind.status_metadata = true;
        kind.is_in_all = IN_ALL.contains(&kind.kind.as_str());
        kind.shape = Some(fields::shape);
    }
    all
}

fn core() -> Vec<Kind> {
    let kind = |kind, plural, namespaced| Kind::new(CORE, "v1beta1", kind, plural, namespaced).rules(Plain);
    let mut deployments = kind("ControllerDeployment", "controllerdeployments", false).rules(Deployment);
    deployments.versions = vec!["v1".to_owned(), "v1beta1".to_owned()];
    "v1".clone_into(&mut deployments.storage);
    vec![
        kind("BackupBucket", "backupbuckets", false)
            .short(&["bbc"])
            .flags("sgr")
            .fields(BUCKET_FIELDS)
            .rules(Bucket { operations: Operations { bumping: &["reconcile"], stripped: &["reconcile"] } }),
        kind("BackupEntry", "backupentries", true)
            .short(&["bec"])
            .flags("sgr")
            .fields(ENTRY_FIELDS)
            .rules(SeedNames),
        kind("CloudProfile", "cloudprofiles", false).short(&["cprofile", "cpfl"]).flags("s").rules(Profile),
        kind("NamespacedCloudProfile", "namespacedcloudprofiles", true)
            .short(&["nsprofile", "nscpfl"])
            .flags("sg"),
        deployments.short(&["ctrldeploy"]),
        kind("ControllerInstallation", "controllerinstallations", false)
            .short(&["ctrlinst"])
            .flags("sgr")
            .fields(INSTALLATION_FIELDS)
            .rules(Installation),
        kind("ControllerRegistration", "controllerregistrations", false)
            .short(&["ctrlreg"])
            .flags("gr")
            .rules(Registration),
        kind("ExposureClass", "exposureclasses", false).short(&["expclass", "expcls"]),
        kind("InternalSecret", "internalsecrets", true)
            .short(&["ins"])
            .fields(&[("type", "/type")])
            .rules(Frozen { secret: true }),
        kind("Project", "projects", false)
            .flags("sgr")
            .fields(&[("spec.namespace", "/spec/namespace")])
            .rules(Project),
        kind("Quota", "quotas", true).short(&["squota"]),
        kind("SecretBinding", "secretbindings", true).short(&["sb"]),
        kind("Seed", "seeds", false).flags("sgr").rules(Seed),
        kind("Shoot", "shoots", true)
            .flags("sbgr")
            .connects(kubeconfig::SUBRESOURCES)
            .fields(SHOOT_FIELDS)
            .rules(Shoot),
        kind("ShootState", "shootstates", true).flags("gr").rules(Confirmed),
    ]
}

fn others() -> Vec<Kind> {
    let management = |kind, plural| Kind::new(SEED_MANAGEMENT, "v1alpha1", kind, plural, true).flags("sgr");
    let security = |kind, plural| Kind::new(SECURITY, "v1alpha1", kind, plural, true).rules(Plain);
    vec![
        management("Gardenlet", "gardenlets").short(&["gl", "glet"]).rules(Operations {
            bumping: &["reconcile", "force-redeploy", "renew-kubeconfig"],
            stripped: &["reconcile"],
        }),
        management("ManagedSeed", "managedseeds")
            .short(&["ms"])
            .fields(&[("spec.shoot.name", "/spec/shoot/name")])
            .rules(Managed {
                operations: Operations {
                    bumping: &["reconcile", "renew-kubeconfig"],
                    stripped: &["reconcile"],
                },
            }),
        management("ManagedSeedSet", "managedseedsets").flags("scgr").short(&["mss"]),
        Kind::new(OPERATIONS, "v1alpha1", "Bastion", "bastions", true)
            .flags("sgr")
            .fields(BASTION_FIELDS)
            .rules(Bastion { operations: Operations { bumping: &["reconcile"], stripped: &["keepalive"] } }),
        security("CredentialsBinding", "credentialsbindings").short(&["cb"]),
        security("WorkloadIdentity", "workloadidentities").short(&["wi"]).connects(identity::SUBRESOURCES),
    ]
}
