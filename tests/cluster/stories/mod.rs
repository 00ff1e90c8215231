//! The stories, and how one of them runs.

mod agent;
mod applier;
pub(crate) mod backups;
mod bastions;
mod bundle;
mod client;
mod components;
mod control_plane;
mod crash;
mod crowd;
mod deletion;
mod deltas;
mod extension;
mod families;
mod faults;
mod gardener;
mod identity;
pub(crate) mod inside;
mod kustomize;
mod life;
mod link;
mod managed_seed;
mod many;
mod moves;
mod objects;
mod oci;
mod own;
mod peers;
mod pod;
mod policies;
mod requests;
mod resources;
mod role;
mod seed;
mod semantics;
mod servers;
mod shoots;
mod snapshots;
mod steps;
mod system_host;
pub(crate) mod table;
mod tokens;
mod trouble;
mod two;
mod upgrade;
mod vpa;

use std::panic::AssertUnwindSafe;

use crate::environment::Environment;
use crate::failure::{Failure, Result};
use crate::lab::Lab;
use life::garden::Peer;
use life::scene::{Scene, State};

/// What runs together. A part takes at most an hour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// The normal run: what only real servers can show.
    Run,
    /// Clients, identities, failures of servers, and charts that come from registries.
    Servers,
    /// What an agent does for its seed.
    Seed,
    /// Shoots whose control planes run in the node.
    Shoots,
    /// The same with other minor versions of Kubernetes.
    Kubernetes,
    /// In a garden with Gardener's own programs.
    Gardener,
}

impl Part {
    pub(crate) const ALL: [Self; 6] =
        [Self::Run, Self::Servers, Self::Seed, Self::Shoots, Self::Kubernetes, Self::Gardener];

    /// Its name on the command line.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Run => "run",
            Self::Servers => "servers",
            Self::Seed => "seed",
            Self::Shoots => "shoots",
            Self::Kubernetes => "kubernetes",
            Self::Gardener => "gardener",
        }
    }

    /// The garden of its scenes.
    const fn peer(self) -> Peer {
        match self {
            Self::Gardener => Peer::Gardener,
            _ => Peer::StandIn,
        }
    }
}

/// The requirements of a story besides the two clusters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Needs {
    /// The clusters in their current state; a story removes the objects it creates, or gives them names that disturb no
    /// other story.
    Clusters,
    /// Fresh clusters without objects of earlier stories.
    FreshClusters,
    /// Its own etcd, and the tool that restores its snapshots.
    Snapshots,
    /// The same, and a server of S3.
    Bucket,
    /// The same, and the program of others that takes snapshots.
    BackupRestore,
    /// Fresh clusters, helm and a registry.
    Registry,
    /// Fresh clusters, and a packet filter.
    Filter,
    /// Fresh clusters, and a node in the seed.
    Node,
    /// The same, and a program for an image.
    Image,
    /// A node, and the programs of a control plane in it.
    ControlPlane,
    /// The same, and the programs of a Shoot with nodes.
    Nodes,
    /// The same, and the programs that only long runs have.
    WholeNodes,
    /// A node with the programs of a control plane, and a program for an image.
    ControlPlaneAndImage,
    /// The same without an image, and the next minor version of Kubernetes.
    NextVersion,
    /// The same, and what the nodes of a Shoot need.
    NextVersionAndNodes,
    /// Without nodes, and with the newest minor version of Kubernetes as well.
    NewestVersion,
    /// Fresh clusters, a host with systemd, and Gardener's agent of a node.
    SystemHost,
    /// The same, for a Shoot whose nodes are such hosts.
    JoiningHost,
    /// The same, with the programs that only long runs have.
    WholeJoiningHost,
    /// A node, and the program of an extension.
    Extension,
    /// Fresh clusters, and Gardener's own programs.
    Gardener,
    /// The same, a node, and the programs of a control plane in it.
    GardenerAndControlPlane,
    /// The same, a program for an image, a server of S3, and a terminal.
    TwoSites,
    /// The same, and etcd-druid with what its etcds need.
    TwoSitesAndDruids,
}

#[derive(Debug)]
pub(crate) struct Story {
    /// A sentence that is true if the story passes.
    pub(crate) name: &'static str,
    pub(crate) part: Part,
    needs: Needs,
    play: Play,
}

#[derive(Clone, Copy, Debug)]
enum Play {
    /// It prepares everything itself.
    Alone(fn(&mut Lab) -> Result<()>),
    /// It continues a scene in a state, and leaves it in another one, or nothing for the next story.
    Act(State, Option<State>, fn(&mut Lab, &mut Scene) -> Result<()>),
}

/// The two clusters, and what the last act has left in them.
pub(crate) struct Stage {
    // Dropped in this order.
    scene: Option<Scene>,
    pub(crate) lab: Lab,
}

impl Story {
    /// The requirements that this machine lacks.
    pub(crate) fn missing(&self, environment: &Environment) -> Option<String> {
        match self.needs {
            Needs::Node => environment.missing_node(),
            Needs::Image => environment.missing_node().or_else(|| environment.missing_image()),
            Needs::ControlPlane => environment.missing_control_plane(),
            Needs::ControlPlaneAndImage => {
                environment.missing_control_plane().or_else(|| environment.missing_image())
            }
            Needs::Nodes => environment.missing_nodes(),
            Needs::WholeNodes => environment.missing_whole_nodes(),
            Needs::NextVersion => environment.missing_control_plane().or_else(|| environment.missing_next()),
            Needs::NextVersionAndNodes => {
                environment.missing_whole_nodes().or_else(|| environment.missing_next())
            }
            Needs::NewestVersion => {
                let next = environment.missing_control_plane().or_else(|| environment.missing_next());
                next.or_else(|| environment.missing_newest())
            }
            Needs::SystemHost => environment.missing_system_host(),
            Needs::WholeJoiningHost => {
                environment.missing_whole_nodes().or_else(|| environment.missing_system_host())
            }
            Needs::JoiningHost => environment.missing_nodes().or_else(|| environment.missing_system_host()),
            Needs::Extension => environment.missing_extension(),
            Needs::Gardener => environment.missing_gardener(),
            Needs::GardenerAndControlPlane => {
                environment.missing_gardener().or_else(|| environment.missing_control_plane())
            }
            Needs::TwoSites => environment.missing_sites(),
            Needs::TwoSitesAndDruids => environment.missing_sites().or_else(|| environment.missing_druid()),
            Needs::Registry => environment.missing_registry(),
            Needs::Snapshots => environment.missing_snapshots(),
            Needs::Bucket => environment.missing_snapshots().or_else(|| environment.missing_bucket()),
            Needs::BackupRestore => {
                environment.missing_snapshots().or_else(|| environment.missing_backup_restore())
            }
            Needs::Filter => environment.missing_filter(),
            Needs::Clusters | Needs::FreshClusters => None,
        }
    }

    fn needs_fresh_clusters(&self) -> bool {
        !matches!(self.needs, Needs::Clusters | Needs::Snapshots | Needs::BackupRestore | Needs::Bucket)
    }
}

impl Stage {
    pub(crate) fn new(lab: Lab) -> Self {
        Self { scene: None, lab }
    }

    /// Runs a story; a panic in it is a failure like any other. After a failure, nothing of its scene is left.
    pub(crate) fn run(&mut self, story: &Story) -> Result<()> {
        let run = AssertUnwindSafe(|| match story.play {
            Play::Alone(play) => self.run_alone(story, play),
            Play::Act(from, to, play) => self.run_act((story.part.peer(), from), to, play),
        });
        std::panic::catch_unwind(run).unwrap_or_else(|_| Err(Failure::new("panicked, see above")))
    }

    fn run_alone(&mut self, story: &Story, play: fn(&mut Lab) -> Result<()>) -> Result<()> {
        self.scene = None;
        if story.needs_fresh_clusters() {
            self.lab.fresh()?;
        }
        self.lab.begin()?;
        let mut audit = self.lab.seed.audit();
        play(&mut self.lab)?;
        let allows = if matches!(story.needs, Needs::TwoSites | Needs::TwoSitesAndDruids) {
            role::allows_with_shoots
        } else {
            role::allows
        };
        allows(&mut audit).map(drop)
    }

    /// The scene is built anew if the last story did not leave it in the state that the act begins with.
    fn run_act(
        &mut self,
        (peer, from): (Peer, State),
        to: Option<State>,
        play: fn(&mut Lab, &mut Scene) -> Result<()>,
    ) -> Result<()> {
        let mut scene = match self.scene.take().filter(|scene| scene.is(peer, from)) {
            Some(scene) => scene,
            None => {
                self.lab.fresh()?;
                self.lab.begin()?;
                Scene::build(&mut self.lab, (peer, from))?
            }
        };
        play(&mut self.lab, &mut scene)?;
        scene.ensure_running()?;
        role::allows_with_shoots(&mut scene.audit)?;
        self.scene = to.map(|state| {
            scene.state = state;
            scene
        });
        Ok(())
    }
}
