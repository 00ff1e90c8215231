//! The resource graph: whether an object belongs to a Seed. The real one reads informers and lags behind; this one is exact.

use std::sync::Arc;

use serde_json::Value;

use super::authorizer::bootstrap_token_id;
use super::kinds::{CORE, OPERATIONS, SECURITY, SEED_MANAGEMENT};
use super::rules::operation;
use crate::api::store::State;
use crate::encoding::from_base64;
use crate::json::{entry, list, text};
use crate::pki;

/// Group, resource, namespace, name.
pub type Place<'a> = (&'a str, &'a str, &'a str, &'a str);

/// A view of the storage as a graph.
pub struct Graph<'a>(&'a State);

impl<'a> Graph<'a> {
    pub fn of(state: &'a State) -> Self {
        Self(state)
    }

    fn get(&self, (group, resource, namespace, name): Place<'_>) -> Option<&'a Arc<Value>> {
        self.0.get(group, resource, namespace, name)
    }

    /// Whether the object exists.
    pub fn knows(&self, place: Place<'_>) -> bool {
        self.get(place).is_some()
    }

    /// Whether there is a path from the object to the Seed.
    pub fn reaches(&self, place: Place<'_>, seed: &str) -> bool {
        let (group, resource, namespace, name) = place;
        let seed_exists = self.get((CORE, "seeds", "", seed)).is_some();
        let own =
            |pointers: &[&str]| self.get(place).is_some_and(|o| pointers.iter().any(|p| text(o, p) == seed));
        match (group, resource) {
            // A ManagedSeed in deletion may delete its Seed.
            (CORE, "seeds") => {
                let mut managed = self.managed(seed);
                name == seed
                    || managed.any(|m| {
                        text(m, "/metadata/name") == name && !m["metadata"]["deletionTimestamp"].is_null()
                    })
            }
            (SEED_MANAGEMENT, "gardenlets") => name == seed,
            (CORE, "shoots" | "backupentries") => own(&["/spec/seedName", "/status/seedName"]),
            (CORE, "backupbuckets") | (OPERATIONS, "bastions") => own(&["/spec/seedName"]),
            (CORE, "controllerinstallations") => own(&["/spec/seedRef/name"]),
            (CORE, "controllerdeployments") => self.deployments(seed).any(|d| d == name),
            (CORE, "controllerregistrations" | "cloudprofiles" | "exposureclasses") => true,
            (CORE, "shootstates") => self.reaches((CORE, "shoots", namespace, name), seed),
            (CORE, "internalsecrets") => self.shoots(seed).any(|s| belongs_to_shoot(s, namespace, name)),
            (CORE, "projects") => self.shoots(seed).any(|shoot| self.is_namespace_of_project(shoot, name)),
            (SEED_MANAGEMENT, "managedseeds") => {
                let shoot =
                    self.get(place).map(|o| text(o, "/spec/shoot/name").to_owned()).unwrap_or_default();
                self.reaches((CORE, "shoots", namespace, &shoot), seed)
            }
            ("", "namespaces") => {
                (seed_exists && name == format!("seed-{seed}"))
                    || self.shoots(seed).any(|s| text(s, "/metadata/namespace") == name)
            }
            ("coordination.k8s.io", "leases") => {
                seed_exists && namespace == "gardener-system-seed-lease" && name == seed
            }
            ("", "configmaps") if (namespace, name) == ("kube-system", "cluster-identity") => seed_exists,
            ("", "secrets" | "configmaps") | (SECURITY, "workloadidentities") => {
                self.is_referenced(place, seed)
            }
            ("certificates.k8s.io", _) => self.is_request_of(name, seed),
            _ => false,
        }
    }

    fn installations(&self, seed: &str) -> impl Iterator<Item = &'a Arc<Value>> {
        let all = self.0.of(CORE, "controllerinstallations", "").map(|(_, o)| o);
        all.filter(move |o| text(o, "/spec/seedRef/name") == seed)
    }

    fn deployments(&self, seed: &str) -> impl Iterator<Item = &'a str> {
        self.installations(seed).map(|o| text(o, "/spec/deploymentRef/name"))
    }

    fn shoots(&self, seed: &str) -> impl Iterator<Item = &'a Arc<Value>> {
        let all = self.0.of(CORE, "shoots", "").map(|(_, o)| o);
        all.filter(move |o| text(o, "/spec/seedName") == seed || text(o, "/status/seedName") == seed)
    }

    /// ManagedSeeds whose Shoots are on the seed.
    fn managed(&self, seed: &str) -> impl Iterator<Item = &'a Arc<Value>> {
        let all = self.0.of(SEED_MANAGEMENT, "managedseeds", "").map(|(_, o)| o);
        all.filter(move |m| {
            let (namespace, shoot) = (text(m, "/metadata/namespace"), text(m, "/spec/shoot/name"));
            self.reaches((CORE, "shoots", namespace, shoot), seed)
        })
    }

    /// Whether it is the bootstrap token of a ManagedSeed that needs one, or its credentials for backups.
    fn is_of_managed(
        &self,
        m: &Value,
        is_it: &dyn Fn(&Value) -> bool,
        (namespace, name): (&str, &str),
    ) -> bool {
        let (of, managed) = (text(m, "/metadata/namespace"), text(m, "/metadata/name"));
        let needs = self.get((CORE, "seeds", "", managed)).is_none() || operation(m) == "renew-kubeconfig";
        let token = format!("bootstrap-token-{}", bootstrap_token_id(of, managed));
        let backup = "/spec/gardenlet/config/seedConfig/spec/backup/credentialsRef";
        (needs && (namespace, name) == ("kube-system", &token)) || m.pointer(backup).is_some_and(is_it)
    }

    fn is_namespace_of_project(&self, shoot: &Value, project: &str) -> bool {
        let namespace = text(shoot, "/metadata/namespace");
        self.get((CORE, "projects", "", project)).is_some_and(|p| text(p, "/spec/namespace") == namespace)
    }

    /// Secrets, ConfigMaps and WorkloadIdentities that the Seed, its installations, its buckets or its shoots name.
    fn is_referenced(&self, (_, resource, namespace, name): Place<'_>, seed: &str) -> bool {
        let kind = match resource {
            "secrets" => "Secret",
            "configmaps" => "ConfigMap",
            _ => "WorkloadIdentity",
        };
        let is_it = |reference: &Value| {
            let of = text(reference, "/namespace");
            (text(reference, "/kind") == kind
                || reference.get("kind").is_none() && kind != "WorkloadIdentity")
                && text(reference, "/name") == name
                && (of == namespace || (of.is_empty() && namespace == "garden"))
        };
        let by_seed = self
            .get((CORE, "seeds", "", seed))
            .is_some_and(|s| references_of_seed(s).iter().any(|r| is_it(r)));
        by_seed
            || self.installations(seed).any(|i| {
                list(i, "/spec/resourceRefs").iter().any(is_it)
                    || self
                        .get((CORE, "controllerdeployments", "", text(i, "/spec/deploymentRef/name")))
                        .is_some_and(|d| references_of_deployment(d).iter().any(|r| is_it(r)))
            })
            || self
                .get((SEED_MANAGEMENT, "gardenlets", "garden", seed))
                .is_some_and(|g| references_of_gardenlet(g).iter().any(|r| is_it(r)))
            || self.managed(seed).any(|m| self.is_of_managed(m, &is_it, (namespace, name)))
            || self.buckets(seed).any(|b| {
                ["/spec/credentialsRef", "/status/generatedSecretRef"]
                    .iter()
                    .any(|p| b.pointer(p).is_some_and(is_it))
            })
            || self.shoots(seed).any(|s| {
                resource != "workloadidentities"
                    && (belongs_to_shoot(s, namespace, name) || has_keys_in(s, namespace, name))
            })
    }

    fn buckets(&self, seed: &str) -> impl Iterator<Item = &'a Arc<Value>> {
        let all = self.0.of(CORE, "backupbuckets", "").map(|(_, o)| o);
        all.filter(move |o| text(o, "/spec/seedName") == seed)
    }

    fn is_request_of(&self, name: &str, seed: &str) -> bool {
        let place = ("certificates.k8s.io", "certificatesigningrequests", "", name);
        let Some(request) = self.get(place) else { return false };
        let pem = from_base64(text(request, "/spec/request")).unwrap_or_default();
        let subject = pki::request_subject(&String::from_utf8_lossy(&pem));
        subject.is_some_and(|(s, _)| s.common_name == format!("gardener.cloud:system:seed:{seed}"))
    }
}

/// Whether the public keys of the Shoot are in this Secret.
fn has_keys_in(shoot: &Value, namespace: &str, name: &str) -> bool {
    entry(shoot, "/metadata/annotations", "authentication.gardener.cloud/issuer") == Some("managed")
        && namespace == "gardener-system-shoot-issuer"
        && name.ends_with(&format!("--{}", text(shoot, "/metadata/uid")))
}

fn references_of_seed(seed: &Value) -> Vec<&Value> {
    let single = [
        "/spec/backup/credentialsRef",
        "/spec/dns/provider/credentialsRef",
        "/spec/dns/internal/credentialsRef",
    ];
    let mut all: Vec<&Value> = single.iter().filter_map(|p| seed.pointer(p)).collect();
    all.extend(list(seed, "/spec/dns/defaults").iter().filter_map(|d| d.get("credentialsRef")));
    all.extend(list(seed, "/spec/resources").iter().filter_map(|r| r.get("resourceRef")));
    all
}

fn references_of_deployment(deployment: &Value) -> Vec<&Value> {
    let single = ["/helm/ociRepository/pullSecretRef", "/helm/ociRepository/caBundleSecretRef"];
    let mut all: Vec<&Value> = single.iter().filter_map(|p| deployment.pointer(p)).collect();
    all.extend(list(deployment, "/resources").iter().filter_map(|r| r.get("resourceRef")));
    all
}

fn references_of_gardenlet(gardenlet: &Value) -> Vec<&Value> {
    let all = [
        "/spec/deployment/helm/ociRepository/pullSecretRef",
        "/spec/deployment/helm/ociRepository/caBundleSecretRef",
        "/spec/config/seedConfig/spec/backup/credentialsRef",
    ];
    all.iter().filter_map(|p| gardenlet.pointer(p)).collect()
}

fn belongs_to_shoot(shoot: &Value, namespace: &str, name: &str) -> bool {
    let (of, shoot_name) = (text(shoot, "/metadata/namespace"), text(shoot, "/metadata/name"));
    let suffixes = ["ca-cluster", "ssh-keypair", "ssh-keypair.old", "monitoring", "ca-kubelet", "ca-client"];
    let derived = name.strip_prefix(shoot_name).and_then(|rest| rest.strip_prefix('.'));
    let named = list(shoot, "/spec/resources").iter().any(|r| text(r, "/resourceRef/name") == name);
    let named = named || is_setting(&shoot["spec"]["kubernetes"]["kubeAPIServer"], name);
    of == namespace && (named || derived.is_some_and(|d| suffixes.contains(&d)))
}

/// What the API server of a Shoot reads, whether or not it is there.
fn is_setting(server: &Value, name: &str) -> bool {
    let maps = [
        "/auditConfig/auditPolicy/configMapRef/name",
        "/structuredAuthentication/configMapName",
        "/structuredAuthorization/configMapName",
    ];
    let kubeconfigs = list(server, "/structuredAuthorization/kubeconfigs");
    maps.iter().any(|map| text(server, map) == name)
        || kubeconfigs.iter().any(|entry| text(entry, "/secretName") == name)
}
