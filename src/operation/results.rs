//! What tasks leave for later ones.

use serde_json::Value;

use crate::base::clock::Mono;
use crate::config::control_plane::EtcdMode;
use crate::flow::Failed;
use crate::osc::PoolConfig;
use crate::shoot::Outside;
use crate::shoot::secrets::ShootSecrets;

use super::components::kube_apiserver;

/// The result of a task, once it is there.
#[derive(Clone, Debug)]
pub(super) struct Slot<T>(Option<T>);

impl<T> Default for Slot<T> {
    fn default() -> Self {
        Self(None)
    }
}

impl<T> Slot<T> {
    /// The result. Errors: it does not exist yet; `lack` says so, and names it.
    pub(super) fn need(&self, lack: &str) -> Result<&T, Failed> {
        self.0.as_ref().ok_or_else(|| Failed::new(lack))
    }

    pub(super) const fn get(&self) -> Option<&T> {
        self.0.as_ref()
    }

    pub(super) fn set(&mut self, result: T) -> &mut T {
        self.0.insert(result)
    }
}

/// The results that later tasks need.
#[derive(Default)]
pub(super) struct Results {
    /// The Secrets of the control plane.
    pub(super) secrets: Slot<ShootSecrets>,
    /// Who runs the etcds.
    pub(super) etcd: Slot<EtcdMode>,
    /// The Job that takes the last snapshot before a move is there.
    pub(super) last_snapshot: Slot<()>,
    /// The last revision in the copied backups.
    pub(super) copied: Slot<u64>,
    /// The address of the API server outside the seed.
    pub(super) outside: Slot<Outside>,
    /// The port at which agents of the tunnel to the nodes connect, at the same address.
    pub(super) tunnel_port: Slot<u16>,
    /// What the provider says about the infrastructure, for its other objects; null for nothing.
    pub(super) infrastructure: Slot<Value>,
    /// How the API server presents itself within the Shoot.
    pub(super) endpoint: Slot<Endpoint>,
    /// What the nodes of each pool apply, as extensions have left it.
    pub(super) pools: Slot<Vec<PoolConfig>>,
    /// Since when the nodes can read what they have to apply.
    pub(super) nodes_told: Slot<Mono>,
    /// The garden objects that the settings of the API server refer to.
    pub(super) texts: Slot<kube_apiserver::Texts>,
}

/// How the API server presents itself within the Shoot.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Endpoint {
    /// The address that it advertises.
    pub(super) advertise_address: Option<String>,
    /// It writes the endpoints of the Service `kubernetes`.
    pub(super) is_written_by_server: bool,
}
