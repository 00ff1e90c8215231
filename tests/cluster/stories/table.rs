//! The table of all stories. The stories of a part run in this order.

use std::collections::BTreeSet;

use super::life::scene::{Scene, State};
use super::{
    Needs, Part, Play, Story, agent, applier, backups, bastions, bundle, client, components, control_plane,
    crash, crowd, deletion, deltas, extension, families, faults, gardener, identity, inside, kustomize, life,
    link, managed_seed, many, moves, objects, oci, own, peers, pod, policies, requests, resources, role,
    seed, semantics, servers, shoots, snapshots, system_host, tokens, trouble, two, upgrade, vpa,
};
use crate::failure::{Result, ensure};
use crate::lab::Lab;

/// The normal run stays short, and still shows what only real servers can show.
const RUN_MIN: usize = 15;
const RUN_MAX: usize = 25;

pub(crate) const STORIES: &[Story] = &[
    run("servers crash and come back", Needs::Clusters, servers::crash),
    run("client: a bootstrap token becomes a certificate", Needs::FreshClusters, client::identity),
    run("the API server does what the stand-in claims", Needs::Clusters, semantics::agree),
    run(
        "etcd: lost data is restored from the newest whole snapshot, and etcd does not start without the store",
        Needs::Snapshots,
        snapshots::directory,
    ),
    run("the definitions are installed and repaired", Needs::Clusters, components::definitions),
    run(
        "each extension kind accepts valid objects and refuses invalid ones",
        Needs::Clusters,
        components::samples,
    ),
    run("the manifests of the components are accepted", Needs::Clusters, components::manifests),
    run(
        "applier: objects of twenty kinds are created, repaired, replaced and removed",
        Needs::Clusters,
        resources::whole_life,
    ),
    run("agent: a seed joins its garden", Needs::FreshClusters, agent::joins),
    run("agent: an extension is installed, changed and removed", Needs::FreshClusters, agent::installs),
    run("agent: a chart comes from a registry, by reference, tag and digest", Needs::Registry, oci::installs),
    run("agent: an extension has access to the garden", Needs::FreshClusters, agent::reaches_the_garden),
    run(
        "agent: a Seed is deleted completely, and its objects are protected before",
        Needs::FreshClusters,
        deletion::in_full,
    ),
    run("agent: killed twenty times, the end is the same", Needs::FreshClusters, crash::sigkill),
    run("trouble: the link to the garden is dead", Needs::Filter, link::dead),
    run("faults: the address of the garden changes or disappears", Needs::Filter, moves::garden_moves),
    run("two agents: one of them always works", Needs::FreshClusters, two::take_turns),
    run(
        "kustomize: the example is applied, and equals the output of the chart",
        Needs::FreshClusters,
        kustomize::is_the_chart,
    ),
    run(
        "agent: its image and its chart run it in the seed, an extension's container runs",
        Needs::Image,
        pod::pod,
    ),
    run("the role of agents allows all their requests to the seed", Needs::Clusters, role::is_enough),
    act(
        (Part::Run, Needs::ControlPlane),
        "Shoot: it is created in the node, its owner gets in, and it is deleted",
        (State::Seed, None),
        life::comes_and_goes,
    ),
    act(
        (Part::Shoots, Needs::Nodes),
        "Shoot: a pod runs on a host, and its log comes through the tunnel",
        (State::Seed, None),
        life::has_a_host,
    ),
    act(
        (Part::Run, Needs::JoiningHost),
        "Shoot: a host joins by the script that the agent prints",
        (State::Seed, None),
        life::has_a_host_that_joins,
    ),
    servers(
        "a host with systemd boots, pulls an image through a mirror, and keeps its files",
        Needs::SystemHost,
        system_host::lives,
    ),
    servers(
        "API servers of Shoots start on seeds of each address family",
        Needs::Clusters,
        families::servers_start,
    ),
    servers("the audit log names what agents ask for", Needs::Clusters, servers::audit),
    servers("a garden and a seed are prepared", Needs::FreshClusters, servers::prepared),
    servers("a snapshot shows exactly what changed", Needs::Clusters, servers::snapshot),
    servers(
        "client: objects are created, listed, patched, replaced, deleted",
        Needs::Clusters,
        client::objects,
    ),
    servers("client: refusals arrive as verdicts", Needs::Clusters, client::verdicts),
    servers("client: watches resume, end and expire", Needs::Clusters, client::watches),
    servers("client: a certificate's own names are kept", Needs::Clusters, client::own_names),
    servers("client: a service account gets a token", Needs::Clusters, client::tokens),
    servers("etcd: killed while it restores or takes a snapshot", Needs::Snapshots, snapshots::killed),
    servers("etcd: deltas are restored, or refused with a remedy", Needs::Snapshots, deltas::restored),
    servers("etcd: killed while it restores deltas", Needs::Snapshots, deltas::killed),
    servers(
        "etcd: etcd-backup-restore and this program restore the same sets, and refuse the same",
        Needs::BackupRestore,
        peers::agree,
    ),
    servers(
        "etcd: large deltas of etcd-backup-restore are restored with little memory",
        Needs::BackupRestore,
        peers::large,
    ),
    servers("etcd: a snapshot is restored from a bucket", Needs::Snapshots, snapshots::bucket),
    servers(
        "etcd: a snapshot is restored from a bucket of a real server",
        Needs::Bucket,
        snapshots::real_bucket,
    ),
    servers("a reset removes all objects of an earlier story", Needs::Clusters, servers::reset),
    servers(
        "applier: webhooks without a server are recognized and removed",
        Needs::Clusters,
        resources::webhooks_left_behind,
    ),
    servers(
        "agent: it upgrades itself to a version whose roles allow more",
        Needs::Registry,
        upgrade::to_more_rights,
    ),
    servers("agent: a registry sends it to a token service", Needs::Registry, oci::gets_tokens),
    servers(
        "agent: a bundle carries a chart from a registry to a seed without one",
        Needs::Registry,
        bundle::carries,
    ),
    servers("agent: both kubeconfigs come from files", Needs::FreshClusters, identity::from_files),
    servers("agent: its certificate is renewed while it runs", Needs::FreshClusters, identity::rotates),
    servers(
        "agent: a renewal that was asked for survives a new CA",
        Needs::FreshClusters,
        identity::renews_with_new_authority,
    ),
    servers("agent: an expired certificate is replaced", Needs::FreshClusters, identity::bootstraps_again),
    servers("trouble: wrong token", Needs::FreshClusters, trouble::wrong_token),
    servers("trouble: no approval", Needs::FreshClusters, trouble::never_approved),
    servers("trouble: the request is denied", Needs::FreshClusters, trouble::denied),
    servers("trouble: the garden is down", Needs::FreshClusters, trouble::garden_down),
    servers("trouble: the seed is down", Needs::FreshClusters, trouble::seed_down),
    servers("trouble: servers fall silent", Needs::FreshClusters, trouble::silence),
    servers("trouble: a dead link does not delay a stop", Needs::Filter, link::stop),
    servers("trouble: no namespace, no permissions", Needs::FreshClusters, trouble::namespace_and_rights),
    servers("trouble: invalid charts", Needs::FreshClusters, trouble::bad_charts),
    servers("faults: a change arrives after each of them", Needs::FreshClusters, faults::bad_day),
    servers("a node runs a container", Needs::Node, inside::node),
    of_seed("agent: a seed has its own CA and its own extension", Needs::FreshClusters, own::extension),
    of_seed(
        "agent: it replaces a resource manager, whose account is created again",
        Needs::FreshClusters,
        applier::takes_the_place,
    ),
    of_seed("agent: a Shoot is bound once its seed is registered", Needs::FreshClusters, shoots::bound),
    of_seed(
        "agent: many Shoots are created at once, and one whose packets are dropped delays no other",
        Needs::FreshClusters,
        many::come_up,
    ),
    of_seed(
        "agent: a Seed's bucket and twenty entries are created and deleted",
        Needs::FreshClusters,
        backups::live_and_die,
    ),
    of_seed(
        "agent: NetworkPolicies follow the objects of a seed",
        Needs::FreshClusters,
        policies::come_and_go,
    ),
    of_seed("agent: tokens are requested one after the other", Needs::FreshClusters, tokens::are_requested),
    of_seed("agent: pods become smaller in their window or never", Needs::FreshClusters, vpa::restricts),
    of_seed("agent: fifty Bastions at once are created and deleted", Needs::FreshClusters, bastions::fifty),
    of_seed(
        "agent: a Shoot becomes a seed and the seed is deleted",
        Needs::FreshClusters,
        managed_seed::lives_and_goes,
    ),
    of_seed(
        "agent: five hundred objects of extensions at once are created and deleted",
        Needs::FreshClusters,
        objects::five_hundred,
    ),
    of_seed("agent: a crowd of extensions is installed", Needs::FreshClusters, crowd::arrives),
    of_seed(
        "trouble: a definition and a PriorityClass of another owner",
        Needs::FreshClusters,
        seed::trouble,
    ),
    of_seed("agent: it continues an interrupted Seed flow", Needs::FreshClusters, seed::halfway),
    of_seed(
        "agent: a seed waits for its provider and a real extension, and reports when the extension hangs",
        Needs::Extension,
        extension::lives,
    ),
    story(
        (Part::Shoots, Needs::ControlPlane),
        "a control plane starts in the node and answers from outside",
        control_plane::comes_up,
    ),
    in_node(
        "Shoot: it is created on a seed that stores backups, with the objects of the Go gardenlet",
        (State::SeedWithBackups, Some(State::Up)),
        life::is_created,
    ),
    in_node("Shoot: a Secret is encrypted in etcd", (State::Up, Some(State::Up)), life::is_encrypted),
    in_node(
        "Shoot: another reconciliation changes nothing",
        (State::Up, Some(State::Up)),
        life::stays_as_it_is,
    ),
    in_node(
        "Shoot: killed pods come back without an agent",
        (State::Up, Some(State::Up)),
        life::survives_killed_pods,
    ),
    in_node(
        "Shoot: it comes back after a power cut without a garden and an agent",
        (State::Up, Some(State::Up)),
        life::survives_a_power_cut,
    ),
    in_node(
        "Shoot: the agent is killed four times while it creates one, the result is the same",
        (State::Up, Some(State::TwoUp)),
        life::is_created_with_kills,
    ),
    in_node(
        "Shoot: it is deleted by force without its API server",
        (State::TwoUp, Some(State::Up)),
        life::is_deleted_by_force,
    ),
    in_node("Shoot: what prevents its creation is explained", (State::Up, None), life::is_explained),
    in_node(
        "Shoot: it is created with extensions, whose states are kept in the garden",
        (State::Seed, Some(State::Extended)),
        life::is_created_with_extensions,
    ),
    in_node(
        "Shoot: an extension reports an error with a code",
        (State::Extended, Some(State::Extended)),
        life::reports_an_error_of_an_extension,
    ),
    in_node(
        "Shoot: the report of a silent extension no longer counts",
        (State::Extended, Some(State::Extended)),
        life::reports_a_silent_extension,
    ),
    in_node(
        "Shoot: an extension that no seed has is reported",
        (State::Extended, Some(State::Extended)),
        life::reports_an_unknown_extension,
    ),
    in_node(
        "Shoot: its conditions follow a cut of its API server",
        (State::Extended, Some(State::Extended)),
        life::follows_a_cut,
    ),
    in_node(
        "Shoot: its conditions follow a cut after a threshold",
        (State::Extended, Some(State::Extended)),
        life::follows_a_cut_after_a_threshold,
    ),
    in_node("Shoot: it is hibernated", (State::Extended, Some(State::Asleep)), life::falls_asleep),
    in_node(
        "Shoot: it wakes up with its data at its address",
        (State::Asleep, Some(State::Extended)),
        life::wakes_up,
    ),
    act(
        (Part::Shoots, Needs::ControlPlaneAndImage),
        "Shoot: lost data is restored from a snapshot",
        (State::Extended, Some(State::Extended)),
        life::is_restored,
    ),
    in_node(
        "Shoot: its credentials are rotated while its owner uses it",
        (State::Extended, Some(State::Extended)),
        life::gets_new_credentials,
    ),
    in_node(
        "Shoot: its encryption key is replaced while a client writes",
        (State::Extended, Some(State::Extended)),
        life::gets_another_key,
    ),
    in_node("Shoot: it is deleted with everything in it", (State::Extended, None), life::is_deleted),
    act(
        (Part::Shoots, Needs::WholeJoiningHost),
        "Shoot: a host that joined comes back after it was off, leaves no trace, and joins again",
        (State::Seed, None),
        life::has_a_host_that_leaves,
    ),
    act(
        (Part::Shoots, Needs::WholeNodes),
        "Shoot: its owner uses a pod on a host in every way",
        (State::Seed, Some(State::OnHost)),
        life::uses_its_host,
    ),
    act(
        (Part::Shoots, Needs::WholeNodes),
        "Shoot: calls to a host and to a webhook on it survive restarts of the servers",
        (State::OnHost, Some(State::OnHost)),
        life::reaches_its_host_across_restarts,
    ),
    act(
        (Part::Shoots, Needs::WholeNodes),
        "Shoot: a host is reached again after bad days of the tunnel",
        (State::OnHost, Some(State::OnHost)),
        life::reaches_its_host_after_bad_days,
    ),
    act(
        (Part::Shoots, Needs::WholeNodes),
        "Shoot: two hosts that cannot reach each other are reached, also while one is cut off",
        (State::OnHost, Some(State::OnHost)),
        life::reaches_each_of_two_hosts,
    ),
    act(
        (Part::Shoots, Needs::WholeNodes),
        "Shoot: a host without memory is reached",
        (State::OnHost, Some(State::OnHost)),
        life::reaches_a_host_without_memory,
    ),
    act(
        (Part::Shoots, Needs::WholeNodes),
        "Shoot: its host is reached while it has two API servers, and one again",
        (State::OnHost, Some(State::OnHost)),
        life::reaches_its_host_from_two_servers,
    ),
    act(
        (Part::Shoots, Needs::WholeNodes),
        "Shoot: it is hibernated and wakes up, and its host is ready again",
        (State::OnHost, Some(State::OnHost)),
        life::keeps_its_host_asleep,
    ),
    act(
        (Part::Shoots, Needs::WholeNodes),
        "Shoot: its CAs are rotated while a host is asked each second",
        (State::OnHost, Some(State::OnHost)),
        life::reaches_its_host_with_new_authorities,
    ),
    act(
        (Part::Shoots, Needs::WholeNodes),
        "Shoot: it is deleted with a host",
        (State::OnHost, None),
        life::leaves_its_host,
    ),
    act(
        (Part::Shoots, Needs::WholeNodes),
        "Shoot: it is deleted by force with a host",
        (State::OnHost, None),
        life::leaves_its_host_by_force,
    ),
    story(
        (Part::Kubernetes, Needs::NextVersion),
        "a control plane in the node gets the next minor version",
        control_plane::changes_its_version,
    ),
    act(
        (Part::Kubernetes, Needs::NextVersion),
        "Shoot: another one is created with the next minor version",
        (State::Extended, Some(State::Extended)),
        life::has_the_next_version,
    ),
    act(
        (Part::Kubernetes, Needs::NextVersion),
        "Shoot: an upgrade to the next minor version loses no write",
        (State::Extended, Some(State::Upgraded)),
        life::gets_the_next_version,
    ),
    act(
        (Part::Kubernetes, Needs::NextVersion),
        "Shoot: its credentials are rotated after an upgrade",
        (State::Upgraded, Some(State::Upgraded)),
        life::gets_new_credentials,
    ),
    act(
        (Part::Kubernetes, Needs::NewestVersion),
        "Shoot: an upgrade to the newest minor version loses no write",
        (State::Upgraded, Some(State::Upgraded)),
        life::gets_the_newest_version,
    ),
    act(
        (Part::Kubernetes, Needs::NextVersion),
        "Shoot: it is deleted with everything in it after an upgrade",
        (State::Upgraded, None),
        life::is_deleted,
    ),
    act(
        (Part::Kubernetes, Needs::NextVersionAndNodes),
        "Shoot: it gets the next minor version while a host of the old one is asked each second, and is deleted",
        (State::OnHost, None),
        life::gets_ahead_of_its_host,
    ),
    story(
        (Part::Gardener, Needs::Gardener),
        "Gardener: its garden guards what belongs to other seeds",
        gardener::guards,
    ),
    story(
        (Part::Gardener, Needs::Gardener),
        "Gardener: it answers the requests of agents and extensions as their rows say",
        requests::real,
    ),
    story(
        (Part::Gardener, Needs::FreshClusters),
        "Gardener: the stand-in behind a real API server answers them, too",
        requests::behind,
    ),
    with_gardener(
        "Gardener: an agent joins as README.md says",
        (State::Seed, Some(State::Seed)),
        life::garden::is_joined,
    ),
    with_gardener(
        "Gardener: a Shoot is created, its owner gets in, and it is deleted",
        (State::Seed, Some(State::Seed)),
        life::comes_and_goes,
    ),
    with_gardener(
        "Gardener: a Shoot is created with extensions, whose states are kept in the garden",
        (State::Seed, Some(State::Extended)),
        life::is_created_with_extensions,
    ),
    with_gardener(
        "Gardener: a Shoot is hibernated",
        (State::Extended, Some(State::Asleep)),
        life::falls_asleep,
    ),
    with_gardener(
        "Gardener: a Shoot wakes up with its data at its address",
        (State::Asleep, Some(State::Extended)),
        life::wakes_up,
    ),
    with_gardener(
        "Gardener: a Shoot is reconciled although the agent, the garden and its authorizer are down for a while",
        (State::Extended, Some(State::Extended)),
        life::garden::is_down_for_a_while,
    ),
    with_gardener(
        "Gardener: the credentials of a Shoot are rotated while its owner uses it",
        (State::Extended, Some(State::Extended)),
        life::gets_new_credentials,
    ),
    with_gardener(
        "Gardener: a Shoot is deleted with everything in it",
        (State::Extended, Some(State::Seed)),
        life::is_deleted,
    ),
    with_gardener(
        "Gardener: a Seed is deleted, the agent is uninstalled, and nothing is left",
        (State::Seed, None),
        life::garden::is_left,
    ),
    story(
        (Part::Gardener, Needs::TwoSites),
        "Gardener: a Shoot moves to another seed under a writer, and back while it is hibernated",
        life::moving::there_and_back,
    ),
    story(
        (Part::Gardener, Needs::TwoSitesAndDruids),
        "Gardener: a Shoot whose etcds an etcd-druid runs moves to another seed under a writer, and is deleted",
        life::druids::move_a_shoot,
    ),
    story(
        (Part::Gardener, Needs::TwoSites),
        "Gardener: a Shoot with a host moves to another seed, with its node and its pod",
        life::hosts::moving::keeps_its_node,
    ),
    story(
        (Part::Gardener, Needs::TwoSites),
        "Gardener: a Shoot of a lost site comes back on another seed from its last snapshot",
        life::lost::comes_back,
    ),
];

/// The table itself is right.
pub(crate) fn check() -> Result<()> {
    let mut names = BTreeSet::new();
    let twice: Vec<&str> =
        STORIES.iter().map(|story| story.name).filter(|name| !names.insert(*name)).collect();
    ensure(twice.is_empty(), || format!("two stories have the same name: {twice:?}"))?;
    let run = STORIES.iter().filter(|story| story.part == Part::Run).count();
    ensure((RUN_MIN..=RUN_MAX).contains(&run), || {
        format!("the part `run` has {run} stories instead of {RUN_MIN} to {RUN_MAX}")
    })
}

const fn run(name: &'static str, needs: Needs, play: fn(&mut Lab) -> Result<()>) -> Story {
    story((Part::Run, needs), name, play)
}

const fn servers(name: &'static str, needs: Needs, play: fn(&mut Lab) -> Result<()>) -> Story {
    story((Part::Servers, needs), name, play)
}

const fn of_seed(name: &'static str, needs: Needs, play: fn(&mut Lab) -> Result<()>) -> Story {
    story((Part::Seed, needs), name, play)
}

const fn story((part, needs): (Part, Needs), name: &'static str, play: fn(&mut Lab) -> Result<()>) -> Story {
    Story { name, part, needs, play: Play::Alone(play) }
}

/// An act in the node with the oldest minor version of Kubernetes.
const fn in_node(
    name: &'static str,
    states: (State, Option<State>),
    play: fn(&mut Lab, &mut Scene) -> Result<()>,
) -> Story {
    act((Part::Shoots, Needs::ControlPlane), name, states, play)
}

/// An act in the node, in a garden of the real Gardener.
const fn with_gardener(
    name: &'static str,
    states: (State, Option<State>),
    play: fn(&mut Lab, &mut Scene) -> Result<()>,
) -> Story {
    act((Part::Gardener, Needs::GardenerAndControlPlane), name, states, play)
}

/// A story that begins in one state of a scene, and ends in another one or leaves nothing.
const fn act(
    (part, needs): (Part, Needs),
    name: &'static str,
    (from, to): (State, Option<State>),
    play: fn(&mut Lab, &mut Scene) -> Result<()>,
) -> Story {
    Story { name, part, needs, play: Play::Act(from, to, play) }
}
