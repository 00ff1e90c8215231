//! The stories, in the order in which they run.

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
mod extension;
mod faults;
mod identity;
mod inside;
mod kustomize;
mod life;
mod link;
mod managed_seed;
mod many;
mod moves;
mod objects;
mod oci;
mod own;
mod pod;
mod policies;
mod resources;
mod role;
mod seed;
mod semantics;
mod servers;
mod shoots;
mod snapshots;
mod steps;
mod tokens;
mod trouble;
mod two;
mod upgrade;
mod vpa;

use crate::environment::Environment;
use crate::failure::{Failure, Result};
use crate::lab::Lab;

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
    /// A node, and the program of an extension.
    Extension,
}

#[derive(Debug)]
pub(crate) struct Story {
    /// A sentence that is true if the story passes.
    pub(crate) name: &'static str,
    needs: Needs,
    run: fn(&mut Lab) -> Result<()>,
    /// Other stories show the same in another way: it runs with `--long`, or if it is named.
    is_long: bool,
}

pub(crate) const STORIES: &[Story] = &[
    story("servers crash and come back", Needs::Clusters, servers::crash),
    story("the audit log names what agents ask for", Needs::Clusters, servers::audit),
    story("a garden and a seed are prepared", Needs::FreshClusters, servers::prepared),
    story("a snapshot shows exactly what changed", Needs::Clusters, servers::snapshot),
    story(
        "client: objects are created, listed, patched, replaced, deleted",
        Needs::Clusters,
        client::objects,
    ),
    story("client: refusals arrive as verdicts", Needs::Clusters, client::verdicts),
    story("client: watches resume, end and expire", Needs::Clusters, client::watches),
    story("client: a bootstrap token becomes a certificate", Needs::FreshClusters, client::identity),
    story("client: a certificate's own names are kept", Needs::Clusters, client::own_names),
    story("client: a service account gets a token", Needs::Clusters, client::tokens),
    story("the API server does what the stand-in claims", Needs::Clusters, semantics::agree),
    story(
        "etcd: lost data is restored from the newest whole snapshot, and etcd does not start without the store",
        Needs::Snapshots,
        snapshots::directory,
    ),
    story("etcd: killed while it restores or takes a snapshot", Needs::Snapshots, snapshots::killed),
    story("etcd: a snapshot is restored from a bucket", Needs::Snapshots, snapshots::bucket),
    story("a reset removes all objects of an earlier story", Needs::Clusters, servers::reset),
    story("the definitions are installed and repaired", Needs::Clusters, components::definitions),
    story(
        "each extension kind accepts valid objects and refuses invalid ones",
        Needs::Clusters,
        components::samples,
    ),
    story("the manifests of the components are accepted", Needs::Clusters, components::manifests),
    story(
        "applier: objects of twenty kinds are created, repaired, replaced and removed",
        Needs::Clusters,
        resources::whole_life,
    ),
    story(
        "applier: webhooks without a server are recognized and removed",
        Needs::Clusters,
        resources::webhooks_left_behind,
    ),
    story("agent: a seed joins its garden", Needs::FreshClusters, agent::joins),
    story("agent: a seed has its own CA and its own extension", Needs::FreshClusters, own::extension),
    story("agent: an extension is installed, changed and removed", Needs::FreshClusters, agent::installs),
    story(
        "agent: a chart comes from a registry, by reference, tag and digest",
        Needs::Registry,
        oci::installs,
    ),
    story(
        "agent: it replaces a resource manager, whose account is created again",
        Needs::FreshClusters,
        applier::takes_the_place,
    ),
    story(
        "agent: it upgrades itself to a version whose roles allow more",
        Needs::Registry,
        upgrade::to_more_rights,
    ),
    story("agent: a registry sends it to a token service", Needs::Registry, oci::gets_tokens),
    story(
        "agent: a bundle carries a chart from a registry to a seed without one",
        Needs::Registry,
        bundle::carries,
    ),
    story("agent: an extension has access to the garden", Needs::FreshClusters, agent::reaches_the_garden),
    story("agent: a Shoot is bound once its seed is registered", Needs::FreshClusters, shoots::bound),
    story(
        "agent: many Shoots are created at once, and one whose packets are dropped delays no other",
        Needs::FreshClusters,
        many::come_up,
    ),
    story(
        "agent: a Seed's bucket and twenty entries are created and deleted",
        Needs::FreshClusters,
        backups::live_and_die,
    ),
    story("agent: NetworkPolicies follow the objects of a seed", Needs::FreshClusters, policies::come_and_go),
    story("agent: tokens are requested one after the other", Needs::FreshClusters, tokens::are_requested),
    story(
        "agent: a Seed is deleted completely, and its objects are protected before",
        Needs::FreshClusters,
        deletion::in_full,
    ),
    story("agent: pods become smaller in their window or never", Needs::FreshClusters, vpa::restricts),
    story("agent: fifty Bastions at once are created and deleted", Needs::FreshClusters, bastions::fifty),
    story(
        "agent: a Shoot becomes a seed and the seed is deleted",
        Needs::FreshClusters,
        managed_seed::lives_and_goes,
    ),
    story(
        "agent: five hundred objects of extensions at once are created and deleted",
        Needs::FreshClusters,
        objects::five_hundred,
    ),
    story("agent: both kubeconfigs come from files", Needs::FreshClusters, identity::from_files),
    story("agent: its certificate is renewed while it runs", Needs::FreshClusters, identity::rotates),
    story(
        "agent: a renewal that was asked for survives a new CA",
        Needs::FreshClusters,
        identity::renews_with_new_authority,
    ),
    story("agent: an expired certificate is replaced", Needs::FreshClusters, identity::bootstraps_again),
    story("agent: killed twenty times, the end is the same", Needs::FreshClusters, crash::sigkill),
    story("agent: a crowd of extensions is installed", Needs::FreshClusters, crowd::arrives),
    story("trouble: wrong token", Needs::FreshClusters, trouble::wrong_token),
    story("trouble: no approval", Needs::FreshClusters, trouble::never_approved),
    story("trouble: the request is denied", Needs::FreshClusters, trouble::denied),
    story("trouble: the garden is down", Needs::FreshClusters, trouble::garden_down),
    story("trouble: the seed is down", Needs::FreshClusters, trouble::seed_down),
    story("trouble: servers fall silent", Needs::FreshClusters, trouble::silence),
    story("trouble: the link to the garden is dead", Needs::Filter, link::dead),
    story("trouble: a dead link does not delay a stop", Needs::Filter, link::stop),
    story("trouble: no namespace, no permissions", Needs::FreshClusters, trouble::namespace_and_rights),
    story("trouble: invalid charts", Needs::FreshClusters, trouble::bad_charts),
    story("trouble: a definition and a PriorityClass of another owner", Needs::FreshClusters, seed::trouble),
    story("agent: it continues an interrupted Seed flow", Needs::FreshClusters, seed::halfway),
    story("faults: a change arrives after each of them", Needs::FreshClusters, faults::bad_day),
    story("faults: the address of the garden changes or disappears", Needs::Filter, moves::garden_moves),
    story("two agents: one of them always works", Needs::FreshClusters, two::take_turns),
    story(
        "kustomize: the example is applied, and equals the output of the chart",
        Needs::FreshClusters,
        kustomize::is_the_chart,
    ),
    story("a node runs a container", Needs::Node, inside::node),
    story(
        "agent: its image and its chart run it in the seed, an extension's container runs",
        Needs::Image,
        pod::pod,
    ),
    story(
        "agent: a seed waits for its provider and a real extension, and reports when the extension hangs",
        Needs::Extension,
        extension::lives,
    ),
    long(
        "a control plane starts in the node and answers from outside",
        Needs::ControlPlane,
        control_plane::comes_up,
    ),
    story("the role of agents allows all their requests to the seed", Needs::Clusters, role::is_enough),
    story(
        "agent: a Shoot is created in the node, gives its owner access, survives failures, and reports problems",
        Needs::ControlPlane,
        life::comes_up,
    ),
    story("agent: a Shoot is operated and deleted in the node", Needs::ControlPlane, life::lives),
];

const fn story(name: &'static str, needs: Needs, run: fn(&mut Lab) -> Result<()>) -> Story {
    Story { name, needs, run, is_long: false }
}

const fn long(name: &'static str, needs: Needs, run: fn(&mut Lab) -> Result<()>) -> Story {
    Story { name, needs, run, is_long: true }
}

impl Story {
    /// Whether it is to run.
    pub(crate) fn is_wanted(&self, environment: &Environment) -> bool {
        environment.wants(self.name, self.needs == Needs::ControlPlane)
            && (!self.is_long || environment.long || !environment.wants_all())
    }

    /// The requirements that this machine lacks.
    pub(crate) fn missing(&self, environment: &Environment) -> Option<String> {
        match self.needs {
            Needs::Node => environment.missing_node(),
            Needs::Image => environment.missing_node().or_else(|| environment.missing_image()),
            Needs::ControlPlane => environment.missing_control_plane(),
            Needs::Extension => environment.missing_extension(),
            Needs::Registry => environment.missing_registry(),
            Needs::Snapshots => environment.missing_snapshots(),
            Needs::Filter => environment.missing_filter(),
            Needs::Clusters | Needs::FreshClusters => None,
        }
    }
}

/// Runs a story; a panic in it is a failure like any other.
pub(crate) fn run(story: &Story, lab: &mut Lab) -> Result<()> {
    if !matches!(story.needs, Needs::Clusters | Needs::Snapshots) {
        lab.fresh()?;
    }
    lab.begin()?;
    let run = std::panic::AssertUnwindSafe(|| (story.run)(lab));
    std::panic::catch_unwind(run).unwrap_or_else(|_| Err(Failure::new("panicked, see above")))
}
