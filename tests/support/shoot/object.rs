//! Shoots, and what a garden and a seed at the edge need for them: unmanaged internal DNS and no external domain.

use serde_json::{Value, json};

use crate::TestCluster;
use crate::garden::prepare;
use crate::json::{map, set};

/// The namespace of the project of [`prepare::for_shoots`].
pub const PROJECT_NAMESPACE: &str = "garden-p";
/// Where Shoots have their Services.
pub const SERVICES: &str = "100.64.0.0/13";
/// The domain of [`make_edge`]. No DNS server knows it.
pub const INTERNAL_DOMAIN: &str = "internal.example.org";

/// The ManagedResources `shoot-core-*` of a Shoot without workers, except that of gardener-resource-manager.
pub const MANAGED: [&str; 5] = [
    "shoot-core-cluster-identity",
    "shoot-core-gardeneraccess",
    "shoot-core-kube-controller-manager",
    "shoot-core-namespaces",
    "shoot-core-system",
];

/// A Shoot to apply.
#[derive(Clone, Debug)]
pub struct ShootObject(Value);

impl ShootObject {
    /// A minimal Shoot: without workers, Kubernetes 1.34.3, purpose testing.
    pub fn workerless(name: &str) -> Self {
        Self(prepare::shoot(name))
    }

    /// The same with a pool of hosts, on a Seed of another type: the garden's scheduler would look for one of theirs.
    pub fn of_hosts(name: &str, seed: &str) -> Self {
        Self(prepare::shoot_of_hosts(name)).bound_to(seed)
    }

    #[must_use]
    pub fn version(self, version: &str) -> Self {
        self.with("/spec/kubernetes/version", version)
    }

    #[must_use]
    pub fn purpose(self, purpose: &str) -> Self {
        self.with("/spec/purpose", purpose)
    }

    /// Bound at its creation, which only some users may do.
    #[must_use]
    pub fn bound_to(self, seed: &str) -> Self {
        self.with("/spec/seedName", seed)
    }

    #[must_use]
    pub fn hibernated(self) -> Self {
        self.with("/spec/hibernation", json!({"enabled": true}))
    }

    #[must_use]
    pub fn extension(mut self, kind: &str) -> Self {
        let mut all = self.0["spec"]["extensions"].as_array().cloned().unwrap_or_default();
        all.push(json!({"type": kind}));
        set(&mut self.0, "/spec/extensions", all);
        self
    }

    #[must_use]
    pub fn annotated(mut self, key: &str, value: &str) -> Self {
        map(&mut self.0, "/metadata/annotations").insert(key.to_owned(), value.into());
        self
    }

    /// Any other field, by its JSON pointer.
    #[must_use]
    pub fn with(mut self, pointer: &str, value: impl Into<Value>) -> Self {
        set(&mut self.0, pointer, value);
        self
    }

    pub fn build(self) -> Value {
        self.0
    }
}

/// Project and CloudProfile; returns when the namespace of the project is there.
pub fn prepare_garden(garden: &TestCluster) {
    garden.apply(&prepare::for_shoots());
    garden.wait_for("the namespace of the project", |g| g.get("", "namespaces", "", PROJECT_NAMESPACE));
}

/// Lets the agent of a seed write control planes.
pub fn prepare_seed(seed: &TestCluster) {
    seed.apply(&prepare::access().1);
}

/// Changes a configuration to that of a seed at the edge, except how it exposes API servers.
pub fn make_edge(config: &mut Value) {
    let spec = "/seedConfig/spec";
    set(config, &format!("{spec}/networks/shootDefaults"), json!({"services": SERVICES}));
    set(config, &format!("{spec}/dns/internal/type"), "unmanaged");
    set(config, &format!("{spec}/dns/internal/domain"), INTERNAL_DOMAIN);
}

/// The namespace of the control plane of a Shoot of [`PROJECT_NAMESPACE`].
pub fn technical_id(name: &str) -> String {
    format!("{}p--{name}", super::PREFIX)
}
