//! The SeedRestriction webhook: which objects an agent or an extension may create, and which it may delete. Objects that exist
//! already pass, so that the request ends with AlreadyExists.

use serde_json::Value;

use super::authorizer::{ACCOUNT_PREFIX, BINDING_PREFIX, SEEDS, managed_seed_of, seed_of};
use super::kinds::{CORE, OPERATIONS, SEED_MANAGEMENT};
use super::references::COPIES;
use super::requests::{self, Refusal};
use super::rules::operation;
use crate::api::failure::{Failure, qualified};
use crate::api::store::State;
use crate::api::{Operation, Review};
use crate::encoding::{base64, from_base64};
use crate::json::{list, text};

/// Allowed, or code and text of the refusal.
pub type Verdict = Result<(), (u16, String)>;

fn deny(why: impl Into<String>) -> Verdict {
    Err((403, why.into()))
}

/// Judges an object about to be created, changed or deleted.
pub fn admit(review: &Review<'_>) -> Result<(), Failure> {
    judge(review).map_err(|(code, why)| {
        let by = "admission webhook \"seed-restriction.gardener.cloud\" denied the request";
        Failure::new(code, "", format!("{by}: {why}"))
    })
}

/// The same; a refusal is code and text.
pub fn judge(review: &Review<'_>) -> Verdict {
    let Some(seed) = seed_of(review.user) else { return Ok(()) };
    Guarded { review, seed: &seed, is_agent: review.user.is_in(SEEDS) }.judge()
}

struct Guarded<'a> {
    review: &'a Review<'a>,
    seed: &'a str,
    is_agent: bool,
}

impl<'a> Guarded<'a> {
    fn judge(&self) -> Verdict {
        let kind = &self.review.target.kind;
        let resource = (kind.group.as_str(), kind.plural.as_str());
        match (self.review.operation, resource) {
            (Operation::Create, _) => self.creates(resource),
            (Operation::Update, (CORE, "seeds")) => self.is_own(&[self.name()]),
            (Operation::Delete, (CORE, "seeds")) => self.deletes_seed(),
            (Operation::Delete, (CORE, "backupbuckets")) => self.deletes_bucket(),
            _ => Ok(()),
        }
    }

    fn state(&self) -> &'a State {
        self.review.state
    }

    fn name(&self) -> &str {
        text(self.review.object, "/metadata/name")
    }

    fn namespace(&self) -> &str {
        text(self.review.object, "/metadata/namespace")
    }

    fn is_own(&self, seeds: &[&str]) -> Verdict {
        if seeds.contains(&self.seed) {
            return Ok(());
        }
        deny(format!("object does not belong to seed {:?}", self.seed))
    }

    /// An object that must be there; `code` of the refusal if it is not.
    fn find(
        &self,
        code: u16,
        (group, plural, kind): (&str, &str, &str),
        (namespace, name): (&str, &str),
    ) -> Result<&'a Value, (u16, String)> {
        let found = self.state().get(group, plural, namespace, name);
        found.map(|o| &**o).ok_or_else(|| (code, format!("{} {name:?} not found", qualified(group, kind))))
    }

    fn shoot(&self, code: u16, namespace: &str, name: &str) -> Result<&'a Value, (u16, String)> {
        self.find(code, (CORE, "shoots", "Shoot"), (namespace, name))
    }

    fn creates(&self, resource: (&str, &str)) -> Verdict {
        let (object, namespace, name) = (self.review.object, self.namespace(), self.name());
        match resource {
            (CORE, "seeds") => self.is_own(&[name]),
            (CORE, "backupbuckets") | (OPERATIONS, "bastions") => {
                self.is_own(&[text(object, "/spec/seedName")])
            }
            (CORE, "backupentries") => self.creates_entry(),
            (CORE, "shootstates") => {
                let shoot = self.shoot(500, namespace, name)?;
                self.is_own(&[text(shoot, "/spec/seedName"), text(shoot, "/status/seedName")])
            }
            ("", "secrets") => self.creates_secret(),
            ("", "configmaps") | (CORE, "internalsecrets") => match self.copied_shoot(resource.1)? {
                Some(shoot) => self.is_own(&[text(shoot, "/spec/seedName")]),
                None => self.is_own(&[]),
            },
            ("", "serviceaccounts") => self.creates_account(),
            ("coordination.k8s.io", "leases") => self.creates_lease(),
            ("certificates.k8s.io", "certificatesigningrequests") => self.creates_request(),
            ("rbac.authorization.k8s.io", "clusterrolebindings") => self.creates_binding(),
            _ => Ok(()),
        }
    }

    /// The Shoot of a copy for its owner, if the name is that of one.
    fn copied_shoot(&self, plural: &str) -> Result<Option<&'a Value>, (u16, String)> {
        let ends = COPIES.iter().find(|(of, _)| *of == plural).map_or(&[][..], |(_, ends)| ends);
        let shoot = ends.iter().find_map(|end| self.name().strip_suffix(end));
        shoot.map(|name| self.shoot(403, self.namespace(), name)).transpose()
    }

    fn creates_entry(&self) -> Verdict {
        let entry = self.review.object;
        self.is_own(&[text(entry, "/spec/seedName")])?;
        if let Some(original) = self.name().strip_prefix("source-") {
            return self.creates_source_entry(original);
        }
        let bucket = (CORE, "backupbuckets", "BackupBucket");
        let bucket = self.find(500, bucket, ("", text(entry, "/spec/bucketName")))?;
        self.is_own(&[text(bucket, "/spec/seedName")])
    }

    /// Only while its Shoot is restored.
    fn creates_source_entry(&self, original: &str) -> Verdict {
        let entry = self.review.object;
        let owner = list(entry, "/metadata/ownerReferences").iter().find(|o| o["kind"] == "Shoot");
        let name = owner.map_or("", |o| text(o, "/name"));
        let last = &self.shoot(500, self.namespace(), name)?["status"]["lastOperation"];
        if last["type"] != "Restore" || last["state"] != "Processing" {
            return deny(format!(
                "creation of source BackupEntry is only allowed during shoot Restore operation (shoot: {name})"
            ));
        }
        let kind = (CORE, "backupentries", "BackupEntry");
        let stored = self.find(403, kind, (self.namespace(), original)).map_err(|(code, why)| {
            (code, format!("could not find original BackupEntry {original}: {why}"))
        })?;
        if stored["spec"] != entry["spec"] {
            return deny(format!(
                "specification of source BackupEntry must equal specification of original BackupEntry {original}"
            ));
        }
        Ok(())
    }

    fn creates_request(&self) -> Verdict {
        if !self.is_agent {
            return deny("extension client may not create CertificateSigningRequests");
        }
        match requests::seed_of(self.review.object) {
            Ok(seed) => self.is_own(&[&seed]),
            Err(Refusal::Other(why)) => deny(format!("can only create CSRs for seed clusters: {why}")),
            Err(Refusal::Unreadable) => Err((400, "PEM block type must be CERTIFICATE REQUEST".to_owned())),
        }
    }

    fn creates_lease(&self) -> Verdict {
        let (namespace, name) = (self.namespace(), self.name());
        if !self.is_agent {
            if namespace == format!("seed-{}", self.seed) {
                return Ok(());
            }
            return deny(format!(
                "extension client can only create leases in the namespace for seed {:?}",
                self.seed
            ));
        }
        match (namespace, name) {
            (_, "gardenlet-leader-election") => Ok(()),
            ("gardener-system-seed-lease", name) => self.is_own(&[name]),
            _ => self.is_own(&[]),
        }
    }

    fn creates_account(&self) -> Verdict {
        if !self.is_agent {
            return deny("extension client may not create ServiceAccounts");
        }
        if let Some(managed) = self.name().strip_prefix(ACCOUNT_PREFIX) {
            return self.bootstraps_managed(self.namespace(), managed);
        }
        if self.namespace() == format!("seed-{}", self.seed) { Ok(()) } else { self.is_own(&[]) }
    }

    fn creates_binding(&self) -> Verdict {
        if !self.is_agent {
            return deny("extension client may not create ClusterRoleBindings");
        }
        let Some(rest) = self.name().strip_prefix(BINDING_PREFIX) else { return self.is_own(&[]) };
        let role = &self.review.object["roleRef"];
        let is_bootstrapper = role["apiGroup"] == "rbac.authorization.k8s.io"
            && role["kind"] == "ClusterRole"
            && role["name"] == "gardener.cloud:system:seed-bootstrapper";
        if !is_bootstrapper {
            return deny("can only bindings referring to the bootstrapper role");
        }
        let (namespace, name) = managed_seed_of(rest);
        self.bootstraps_managed(&namespace, &name)
    }

    fn creates_secret(&self) -> Verdict {
        let (namespace, name) = (self.namespace(), self.name());
        if let Some(bucket) = name.strip_prefix("generated-bucket-") {
            let bucket = self.find(403, (CORE, "backupbuckets", "BackupBucket"), ("", bucket))?;
            return self.is_own(&[text(bucket, "/spec/seedName")]);
        }
        if let Some(shoot) = self.copied_shoot("secrets")? {
            return self.is_own(&[text(shoot, "/spec/seedName")]);
        }
        if namespace == "gardener-system-shoot-issuer" {
            return self.creates_public_keys();
        }
        if namespace == "kube-system" && name.starts_with("bootstrap-token-") {
            return self.creates_token();
        }
        for (_, managed) in self.state().of(SEED_MANAGEMENT, "managedseeds", "") {
            let (of, shoot) = (text(managed, "/metadata/namespace"), text(managed, "/spec/shoot/name"));
            let shoot = self.shoot(500, of, shoot)?;
            let backup =
                &managed["spec"]["gardenlet"]["config"]["seedConfig"]["spec"]["backup"]["credentialsRef"];
            let is_it = backup["apiVersion"] == "v1"
                && backup["kind"] == "Secret"
                && (text(backup, "/namespace"), text(backup, "/name")) == (namespace, name);
            if is_it && text(shoot, "/spec/seedName") == self.seed {
                return Ok(());
            }
        }
        self.is_own(&[])
    }

    fn creates_public_keys(&self) -> Verdict {
        let label = |key: &str| {
            let label = self.review.object["metadata"]["labels"][key].as_str();
            label.ok_or_else(|| (422, format!("label {key:?} is missing")))
        };
        let (name, namespace) =
            (label("shoot.gardener.cloud/name")?, label("shoot.gardener.cloud/namespace")?);
        let public = "discovery.gardener.cloud/public";
        if label(public)? != "serviceaccount" {
            return Err((422, format!("label {public:?} value must be set to \"serviceaccount\"")));
        }
        let shoot = self.shoot(403, namespace, name)?;
        self.is_own(&[text(shoot, "/spec/seedName")])
    }

    fn creates_token(&self) -> Verdict {
        let secret = self.review.object;
        if secret["type"] != "bootstrap.kubernetes.io/token" {
            return Err((422, format!("unexpected secret type: {}", secret["type"])));
        }
        for key in ["usage-bootstrap-authentication", "usage-bootstrap-signing"] {
            if secret["data"][key] != base64(b"true") {
                return Err((422, format!("{key:?} must be set to 'true'")));
            }
        }
        if !secret["data"]["auth-extra-groups"].is_null() {
            return Err((422, "\"auth-extra-groups\" must not be set".to_owned()));
        }
        let description = from_base64(text(secret, "/data/description")).unwrap_or_default();
        let description = String::from_utf8_lossy(&description).into_owned();
        match bootstrapped(&description) {
            Some(("ManagedSeed", namespace, name)) => self.bootstraps_managed(namespace, name),
            Some((_, namespace, name)) => self.bootstraps_gardenlet(namespace, name),
            None => {
                let why =
                    format!("unknown kind \"\" found in bootstrap token secret description {description:?}");
                Err((400, why))
            }
        }
    }

    /// Whether the certificate of a Seed's agent has ended.
    fn is_expired(&self, seed: &Value) -> bool {
        let until = text(seed, "/status/clientCertificateExpirationTimestamp");
        !until.is_empty() && until < self.review.now
    }

    fn bootstraps_managed(&self, namespace: &str, name: &str) -> Verdict {
        let kind = (SEED_MANAGEMENT, "managedseeds", "ManagedSeed");
        let managed = self.find(403, kind, (namespace, name))?;
        let shoot = self.shoot(500, namespace, text(managed, "/spec/shoot/name"))?;
        self.is_own(&[text(shoot, "/spec/seedName")])?;
        let Some(seed) = self.state().get(CORE, "seeds", "", name) else { return Ok(()) };
        if self.is_expired(seed) || operation(managed) == "renew-kubeconfig" {
            return Ok(());
        }
        Err((400, format!("managed seed {namespace}/{name} is already bootstrapped")))
    }

    fn bootstraps_gardenlet(&self, namespace: &str, name: &str) -> Verdict {
        if (namespace, name) != ("garden", self.seed) {
            return deny(format!("gardenlet {namespace}/{name} does not belong to seed {:?}", self.seed));
        }
        let kind = (SEED_MANAGEMENT, "gardenlets", "Gardenlet");
        let gardenlet = self.find(403, kind, (namespace, name))?;
        let seed = self.find(403, (CORE, "seeds", "Seed"), ("", name))?;
        if self.is_expired(seed) || operation(gardenlet) == "renew-kubeconfig" {
            return Ok(());
        }
        Err((400, format!("gardenlet {namespace}/{name} is already bootstrapped")))
    }

    fn deletes_bucket(&self) -> Verdict {
        let seed = self.find(500, (CORE, "seeds", "Seed"), ("", self.seed))?;
        if text(seed, "/metadata/uid") == self.name() {
            return Ok(());
        }
        deny("cannot delete unrelated BackupBucket")
    }

    /// Its own, or one of a ManagedSeed in deletion whose Shoot is on it.
    fn deletes_seed(&self) -> Verdict {
        let own = self.is_own(&[self.name()]);
        let Some(managed) = self.state().get(SEED_MANAGEMENT, "managedseeds", "garden", self.name()) else {
            return own;
        };
        if own.is_ok() {
            return own;
        }
        if text(managed, "/metadata/deletionTimestamp").is_empty() {
            return deny("object can only be deleted if corresponding ManagedSeed has a deletion timestamp");
        }
        let shoot = self.shoot(500, "garden", text(managed, "/spec/shoot/name"))?;
        self.is_own(&[text(shoot, "/spec/seedName")])
    }
}

/// Kind, namespace and name in the description of a bootstrap token.
fn bootstrapped(description: &str) -> Option<(&'static str, &str, &str)> {
    let kinds = ["ManagedSeed", "Gardenlet"];
    kinds.into_iter().find_map(|kind| {
        let group = format!("seedmanagement.gardener.cloud/v1alpha1.{kind} resource ");
        let (_, rest) = description.split_once(&group)?;
        let (namespace, name) = rest.trim_end_matches('.').split_once('/')?;
        Some((kind, namespace, name))
    })
}
