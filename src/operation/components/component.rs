//! What a component says about itself.

use crate::flow::Failed;
use crate::shoot::secrets::Certificate;
use crate::shoot::{Outside, ShootView};

use super::super::row::Row;
use super::super::work::Work;
use super::server_addition::ServerAddition;
use super::workload::Workload;

/// A part of a Shoot: a workload of its control plane, or objects that the applier writes to its cluster. It is a folder with
/// manifests, tasks and one `COMPONENT`, which is listed in [`COMPONENTS`](super::COMPONENTS).
#[derive(Debug)]
pub(crate) struct Component {
    /// Only Shoots with workers have it.
    pub(crate) needs_workers: bool,
    /// The word in option `edge.components.nodes` that asks for it; none if each Shoot has it.
    pub(crate) option: Option<&'static str>,
    /// The names of its images in the image vector.
    pub(crate) images: &'static [&'static str],
    /// Its certificates. `Outside` is the address of the API server, once it is known.
    pub(crate) certificates: fn(&ShootView, Option<&Outside>) -> Vec<Certificate>,
    /// Its workloads in the namespace of the control plane.
    pub(crate) workloads: &'static [Workload],
    /// When its workloads stop for a hibernation.
    pub(crate) stops: Turn,
    /// Whether condition `ControlPlaneHealthy` demands its workloads, if the Shoot has the component. Its ManagedResources count
    /// by their class and label, like those of extensions.
    pub(crate) is_required: fn(Duty) -> bool,
    /// What it adds to each pod of the API server of a Shoot with workers. The number is that of its replicas.
    pub(crate) beside_server: fn(&Work, i64) -> Result<Option<ServerAddition>, Failed>,
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
    /// The Shoot has workers.
    pub(crate) has_workers: bool,
}

impl Component {
    /// Whether condition `ControlPlaneHealthy` demands its workloads.
    pub(crate) fn is_demanded(&self, duty: Duty) -> bool {
        (duty.has_workers || !self.needs_workers) && (self.is_required)(duty)
    }

    /// A component without images, certificates, workloads and tasks.
    pub(super) const NONE: Self = Self {
        needs_workers: false,
        option: None,
        images: &[],
        certificates: |_, _| Vec::new(),
        workloads: &[],
        stops: Turn::Client,
        is_required: |_| true,
        beside_server: |_, _| Ok(None),
        create: &[],
        migrate: &[],
        delete: &[],
        force_delete: &[],
    };
}
