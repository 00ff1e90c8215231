//! What a component says about itself.

use crate::shoot::secrets::Certificate;
use crate::shoot::{Outside, View};

use super::super::row::Row;
use super::workload::Workload;

/// A part of a Shoot: a workload of its control plane, or objects that the applier writes to its cluster. It is a folder with
/// manifests, tasks and one `COMPONENT`, which is listed in [`COMPONENTS`](super::COMPONENTS).
#[derive(Debug)]
pub struct Component {
    /// Its name, as in upstream.
    pub name: &'static str,
    /// The names of its images in the image vector.
    pub images: &'static [&'static str],
    /// Its certificates. `Outside` is the address of the API server, once it is known.
    pub certificates: fn(&View, Option<&Outside>) -> Vec<Certificate>,
    /// Its workloads in the namespace of the control plane.
    pub workloads: &'static [Workload],
    /// When its workloads stop for a hibernation.
    pub stops: Turn,
    /// Whether condition `ControlPlaneHealthy` demands its workloads.
    pub is_required: fn(Duty) -> bool,
    /// Its tasks when a Shoot is created or reconciled.
    pub create: &'static [Row],
    /// Its tasks when a Shoot is deleted.
    pub delete: &'static [Row],
    /// Its tasks when a Shoot is deleted by force, which uses no API server of the Shoot.
    pub force_delete: &'static [Row],
}

/// The turn in which workloads of a control plane stop. Each turn waits until the pods of the turns before it are gone, so that
/// no acknowledged write is lost.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Turn {
    /// The clients of the API server.
    Client,
    /// The API server.
    Server,
    /// The etcds.
    Store,
}

impl Turn {
    /// All turns, in their order.
    pub const ALL: [Self; 3] = [Self::Client, Self::Server, Self::Store];
}

/// What decides which workloads a control plane must have.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Duty {
    /// A gardener-resource-manager in the namespace applies the ManagedResources, not this agent.
    pub has_own_applier: bool,
}

impl Component {
    /// A component without images, certificates, workloads and tasks.
    pub const fn new(name: &'static str) -> Self {
        Self {
            name,
            images: &[],
            certificates: |_, _| Vec::new(),
            workloads: &[],
            stops: Turn::Client,
            is_required: |_| true,
            create: &[],
            delete: &[],
            force_delete: &[],
        }
    }
}
