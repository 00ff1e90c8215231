//! What a component says about itself.

use crate::shoot::secrets::Certificate;
use crate::shoot::{Outside, ShootView};

use super::super::row::Row;
use super::workload::Workload;

/// A part of a Shoot: a workload of its control plane, or objects that the applier writes to its cluster. It is a folder with
/// manifests, tasks and one `COMPONENT`, which is listed in [`COMPONENTS`](super::COMPONENTS).
#[derive(Debug)]
pub(crate) struct Component {
    /// The names of its images in the image vector.
    pub(crate) images: &'static [&'static str],
    /// Its certificates. `Outside` is the address of the API server, once it is known.
    pub(crate) certificates: fn(&ShootView, Option<&Outside>) -> Vec<Certificate>,
    /// Its workloads in the namespace of the control plane.
    pub(crate) workloads: &'static [Workload],
    /// When its workloads stop for a hibernation.
    pub(crate) stops: Turn,
    /// Whether condition `ControlPlaneHealthy` demands its workloads. Its ManagedResources count by their class and label, like
    /// those of extensions.
    pub(crate) is_required: fn(Duty) -> bool,
    /// Its tasks when a Shoot is created, reconciled or restored.
    pub(crate) create: &'static [Row],
    /// Its tasks when a Shoot leaves for another seed. What only the API server of the Shoot can write stays in its etcd.
    pub(crate) migrate: &'static [Row],
    /// Its tasks when a Shoot is deleted.
    pub(crate) delete: &'static [Row],
    /// Its tasks when a Shoot is deleted by force, which uses no API server of the Shoot.
    pub(crate) force_delete: &'static [Row],
}

/// The turn in which workloads of a control plane stop. Each turn waits until the pods of the turns before it are gone, so that
/// no acknowledged write is lost.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Turn {
    /// The clients of the API server.
    Client,
    /// The API server: what answers the requests to the cluster of the Shoot. Care asks it while it has replicas.
    Server,
    /// The etcds.
    Store,
}

impl Turn {
    /// All turns, in their order.
    pub(crate) const ALL: [Self; 3] = [Self::Client, Self::Server, Self::Store];
}

/// What decides which workloads a control plane must have.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Duty {
    /// A gardener-resource-manager in the namespace applies the ManagedResources, not this agent.
    pub(crate) has_own_applier: bool,
}

impl Component {
    /// A component without images, certificates, workloads and tasks.
    pub(super) const NONE: Self = Self {
        images: &[],
        certificates: |_, _| Vec::new(),
        workloads: &[],
        stops: Turn::Client,
        is_required: |_| true,
        create: &[],
        migrate: &[],
        delete: &[],
        force_delete: &[],
    };
}
