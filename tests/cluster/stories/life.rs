//! Shoots in the node of the seed, created by the agent: from the object in the garden to an API server to which its
//! owner has access, their recovery from failures, and their operations. Each act begins with a state of a scene.

use gardenlet::api::core::NAMESPACE;
use gardenlet::api::gardener::{BACKUP_ENTRY, SEED, SHOOT};
use gardenlet::api::meta::Key;
use gardenlet::backup::garden::entry_name;
use gardenlet::kube::{Client, Patch};
use serde_json::{Value, json};

use crate::agent::Agent;
use crate::cluster::Cluster;
use crate::failure::{Failure, Result, ensure, equal};
use crate::image::{self, Component};
use crate::lab::Lab;
use crate::outside;
use crate::stories::role;
use crate::stories::steps::{self, while_running};
use crate::wait;
use crate::world;
use support::garden::prepare;

mod crashes;
pub(crate) mod druids;
mod end;
mod extensions;
pub(crate) mod garden;
mod health;
pub(crate) mod hosts;
mod key;
pub(crate) mod lost;
pub(crate) mod moving;
mod names;
mod outages;
mod owner;
mod rotation;
pub(crate) mod scene;
mod seeds;
mod sleep;
mod snapshots;
mod stored;
mod trouble;
mod upgrade;
mod watch;
mod writer;

use owner::Owner;
use scene::Scene;

const PROJECT: &str = "garden-p";
/// The longest time from the object to its success, on a machine that does nothing else.
const CREATED_IN_S: f64 = 180.0;
/// An operation ends within this time.
const SUCCEEDED_WITHIN_S: u64 = 360;

/// The programs in the node.
const COMPONENTS: [Component; 3] = [image::ETCD, image::API_SERVER, image::CONTROLLERS];

/// The Shoots of the acts (`scene`), and a third one beside the one with extensions.
const ONE: Name = Name("s1");
const TWO: Name = Name("s2");
const EXTENDED: Name = Name("l1");
const THREE: Name = Name("s3");

/// A Shoot of the project.
#[derive(Clone, Copy, Debug)]
struct Name(&'static str);

impl Name {
    /// The namespace of its control plane.
    fn plane(self) -> String {
        format!("shoot--p--{}", self.0)
    }
}

/// The whole life of a Shoot without other events. Its owner has access from outside with the kubeconfig that the
/// garden issues, and nothing of it is left.
pub(crate) fn comes_and_goes(lab: &mut Lab, scene: &mut Scene) -> Result<()> {
    create(lab, &scene.garden, &mut scene.agent, (ONE, image::API_SERVER.version()))?;
    scene.owner(lab, ONE)?.gets_in(image::API_SERVER.version())?;
    end::goes(lab, &scene.garden, &mut scene.agent, (&scene.before, ONE))
}

/// A Shoot with a pool, a host, and a pod on it.
pub(crate) fn has_a_host(lab: &mut Lab, scene: &mut Scene) -> Result<()> {
    hosts::run_a_pod(lab, scene)
}

/// A host joins by the printed script.
pub(crate) fn has_a_host_that_joins(lab: &mut Lab, scene: &mut Scene) -> Result<()> {
    hosts::script::joins(lab, scene)
}

/// The same host is off for a while, leaves, and joins again.
pub(crate) fn has_a_host_that_leaves(lab: &mut Lab, scene: &mut Scene) -> Result<()> {
    hosts::script::stays_and_leaves(lab, scene)
}

pub(crate) fn uses_its_host(lab: &mut Lab, scene: &mut Scene) -> Result<()> {
    hosts::is_used(lab, scene)
}

pub(crate) fn reaches_its_host_across_restarts(lab: &mut Lab, scene: &mut Scene) -> Result<()> {
    hosts::restarts::interrupt_little(lab, scene)
}

pub(crate) fn reaches_its_host_after_bad_days(lab: &mut Lab, scene: &mut Scene) -> Result<()> {
    hosts::days::pass(lab, scene)
}

pub(crate) fn reaches_each_of_two_hosts(lab: &mut Lab, scene: &mut Scene) -> Result<()> {
    hosts::pair::answers_for_itself(lab, scene)
}

pub(crate) fn reaches_a_host_without_memory(lab: &mut Lab, scene: &mut Scene) -> Result<()> {
    hosts::pair::lacks_memory(lab, scene)
}

pub(crate) fn reaches_its_host_from_two_servers(lab: &mut Lab, scene: &mut Scene) -> Result<()> {
    hosts::pair::gets_a_second_server(lab, scene)
}

pub(crate) fn keeps_its_host_asleep(lab: &mut Lab, scene: &mut Scene) -> Result<()> {
    hosts::days::sleeps_and_wakes(lab, scene)
}

pub(crate) fn reaches_its_host_with_new_authorities(lab: &mut Lab, scene: &mut Scene) -> Result<()> {
    hosts::days::gets_new_authorities(lab, scene)
}

pub(crate) fn gets_ahead_of_its_host(lab: &mut Lab, scene: &mut Scene) -> Result<()> {
    hosts::versions::get_ahead_of_a_host(lab, scene)
}

pub(crate) fn leaves_its_host_by_force(lab: &mut Lab, scene: &mut Scene) -> Result<()> {
    hosts::goes_by_force(lab, scene)
}

pub(crate) fn leaves_its_host(lab: &mut Lab, scene: &mut Scene) -> Result<()> {
    hosts::goes(lab, scene)
}

/// Its owner gets in, its place for backups exists, and its objects are those of the Go gardenlet.
pub(crate) fn is_created(lab: &mut Lab, scene: &mut Scene) -> Result<()> {
    scene.create(lab)?;
    print_where_the_time_went(&scene.agent.log());
    has_its_place_for_backups(&scene.garden, ONE)?;
    scene.owner(lab, ONE)?.gets_in(image::API_SERVER.version())?;
    names::are_golden(lab, ONE)?;
    let asked = role::allows_with_shoots(&mut scene.audit)?;
    ensure(asked > 100, || format!("the agent made only {asked} different requests"))
}

pub(crate) fn is_encrypted(lab: &mut Lab, scene: &mut Scene) -> Result<()> {
    stored::is_encrypted(lab, &scene.garden, ONE)
}

pub(crate) fn stays_as_it_is(lab: &mut Lab, scene: &mut Scene) -> Result<()> {
    let Scene { garden, agent, site, .. } = scene;
    let owner = Owner::new(lab, garden, ONE, &site.outside)?;
    stored::stays_as_it_is(lab, garden, agent, (ONE, &owner))
}

pub(crate) fn survives_killed_pods(lab: &mut Lab, scene: &mut Scene) -> Result<()> {
    scene.agent.kill();
    outages::pods_come_back(&scene.site.node, &lab.seed, (ONE, &scene.owner(lab, ONE)?))?;
    starts_again(lab, &mut scene.agent, |_| ())
}

pub(crate) fn survives_a_power_cut(lab: &mut Lab, scene: &mut Scene) -> Result<()> {
    let Scene { garden, agent, site, .. } = scene;
    let owner = Owner::new(lab, garden, ONE, &site.outside)?;
    agent.kill();
    outages::power_comes_back(&mut site.node, lab, (ONE, &owner))?;
    starts_again(lab, agent, |_| ())
}

pub(crate) fn is_created_with_kills(lab: &mut Lab, scene: &mut Scene) -> Result<()> {
    let Scene { garden, agent, site, .. } = scene;
    let one = Owner::new(lab, garden, ONE, &site.outside)?;
    crashes::lead_to_the_same(lab, garden, agent, (&one, &site.outside, TWO))
}

pub(crate) fn is_deleted_by_force(lab: &mut Lab, scene: &mut Scene) -> Result<()> {
    end::force_needs_no_server(lab, &scene.garden, &mut scene.agent, (&scene.before, TWO))
}

pub(crate) fn is_explained(lab: &mut Lab, scene: &mut Scene) -> Result<()> {
    trouble::is_explained(lab, &scene.garden, &mut scene.agent, &scene.site)
}

pub(crate) fn is_created_with_extensions(lab: &mut Lab, scene: &mut Scene) -> Result<()> {
    scene.create_extended(lab)?;
    scene.owner(lab, EXTENDED)?.gets_in(image::API_SERVER.version())?;
    let Scene { garden, agent, site, .. } = scene;
    extensions::Place { lab, garden, node: &site.node, name: EXTENDED }.are_kept_in_the_garden(agent)
}

pub(crate) fn reports_an_error_of_an_extension(lab: &mut Lab, scene: &mut Scene) -> Result<()> {
    let Scene { garden, agent, site, .. } = scene;
    extensions::Place { lab, garden, node: &site.node, name: EXTENDED }.fail_with_a_code(agent)
}

/// The agent notices a silent extension earlier than usual.
pub(crate) fn reports_a_silent_extension(lab: &mut Lab, scene: &mut Scene) -> Result<()> {
    let Scene { garden, agent, site, .. } = scene;
    starts_again(lab, agent, extensions::be_impatient)?;
    extensions::Place { lab, garden, node: &site.node, name: EXTENDED }.are_silent(agent)?;
    starts_again(lab, agent, extensions::be_as_usual)
}

pub(crate) fn reports_an_unknown_extension(lab: &mut Lab, scene: &mut Scene) -> Result<()> {
    let Scene { garden, agent, site, .. } = scene;
    extensions::Place { lab, garden, node: &site.node, name: EXTENDED }.are_unknown(agent)
}

pub(crate) fn follows_a_cut(lab: &mut Lab, scene: &mut Scene) -> Result<()> {
    let Scene { garden, agent, site, .. } = scene;
    health::is_told_to_be_good(garden, agent, EXTENDED)?;
    health::follows_a_cut(&site.node, &lab.seed, (garden, agent), (EXTENDED, false))
}

pub(crate) fn follows_a_cut_after_a_threshold(lab: &mut Lab, scene: &mut Scene) -> Result<()> {
    let Scene { garden, agent, site, .. } = scene;
    starts_again(lab, agent, health::be_patient)?;
    health::is_told_to_be_good(garden, agent, EXTENDED)?;
    health::follows_a_cut(&site.node, &lab.seed, (garden, agent), (EXTENDED, true))?;
    starts_again(lab, agent, extensions::be_as_usual)
}

pub(crate) fn falls_asleep(lab: &mut Lab, scene: &mut Scene) -> Result<()> {
    let Scene { garden, agent, site, .. } = scene;
    let owner = Owner::new(lab, garden, EXTENDED, &site.outside)?;
    owner.finds_everything()?;
    sleep::falls_asleep(lab, garden, agent, EXTENDED)?;
    ensure(owner.finds_everything().is_err(), || "a hibernated Shoot answers".to_owned())
}

pub(crate) fn wakes_up(lab: &mut Lab, scene: &mut Scene) -> Result<()> {
    let Scene { garden, agent, site, .. } = scene;
    let owner = Owner::new(lab, garden, EXTENDED, &site.outside)?;
    sleep::wakes_up(lab, garden, agent, (EXTENDED, &owner))
}

pub(crate) fn is_restored(lab: &mut Lab, scene: &mut Scene) -> Result<()> {
    let Scene { garden, agent, site, .. } = scene;
    let owner = Owner::new(lab, garden, EXTENDED, &site.outside)?;
    let cast = snapshots::Cast { lab, garden, node: &site.node, owner: &owner, name: EXTENDED };
    snapshots::bring_everything_back(&cast, agent)
}

pub(crate) fn gets_new_credentials(lab: &mut Lab, scene: &mut Scene) -> Result<()> {
    let Scene { garden, agent, site, version, .. } = scene;
    let owner = Owner::new(lab, garden, EXTENDED, &site.outside)?;
    rotation::begins(lab, garden, agent, (EXTENDED, &owner))?;
    rotation::completes(lab, garden, agent, (&owner, &site.outside, version))
}

pub(crate) fn gets_another_key(lab: &mut Lab, scene: &mut Scene) -> Result<()> {
    let Scene { garden, agent, site, .. } = scene;
    let owner = Owner::new(lab, garden, EXTENDED, &site.outside)?;
    key::is_replaced_while_somebody_writes(lab, garden, agent, &owner)
}

pub(crate) fn is_deleted(lab: &mut Lab, scene: &mut Scene) -> Result<()> {
    let Scene { garden, agent, site, before, .. } = scene;
    let owner = Owner::new(lab, garden, EXTENDED, &site.outside)?;
    end::everything_goes(lab, garden, agent, (before, &owner))
}

pub(crate) fn has_the_next_version(lab: &mut Lab, scene: &mut Scene) -> Result<()> {
    scene.import(lab, &[image::NEXT_API_SERVER, image::NEXT_CONTROLLERS])?;
    create(lab, &scene.garden, &mut scene.agent, (THREE, image::NEXT_API_SERVER.version()))?;
    scene.owner(lab, THREE)?.gets_in(image::NEXT_API_SERVER.version())?;
    lab.seed.rolled_out(&THREE.plane(), "deployment/kube-controller-manager", 120)?;
    end::goes(lab, &scene.garden, &mut scene.agent, (&scene.before, THREE))
}

pub(crate) fn gets_the_next_version(lab: &mut Lab, scene: &mut Scene) -> Result<()> {
    scene.import(lab, &[image::NEXT_API_SERVER, image::NEXT_CONTROLLERS])?;
    scene.version = image::NEXT_API_SERVER.version();
    let Scene { garden, agent, site, version, .. } = scene;
    let owner = Owner::new(lab, garden, EXTENDED, &site.outside)?;
    upgrade::loses_nothing(lab, garden, agent, (&owner, version, "next"))
}

pub(crate) fn gets_the_newest_version(lab: &mut Lab, scene: &mut Scene) -> Result<()> {
    scene.import(lab, &[image::NEWEST_API_SERVER, image::NEWEST_CONTROLLERS])?;
    scene.version = image::NEWEST_API_SERVER.version();
    let Scene { garden, agent, site, version, .. } = scene;
    upgrade::offer(garden, upgrade::PROFILE, version)?;
    let owner = Owner::new(lab, garden, EXTENDED, &site.outside)?;
    upgrade::loses_nothing(lab, garden, agent, (&owner, version, "newest"))
}

/// Starts the agent again with a changed configuration. At each start it reconciles the Shoot, which the next step must not
/// meet.
fn starts_again(lab: &Lab, agent: &mut Agent, change: impl FnOnce(&mut Value)) -> Result<()> {
    agent.skip_log();
    agent.reconfigure(change)?;
    steps::ready(lab, agent)?;
    agent.wait_log("The Shoot is up to date", SUCCEEDED_WITHIN_S).map(drop)
}

/// Its BackupEntry is in the bucket of the Seed, and the extension has completed the request.
fn has_its_place_for_backups(garden: &Client, name: Name) -> Result<()> {
    let uid = garden.get::<Value>(&SHOOT, &Key::new(PROJECT, name.0))?["status"]["uid"].clone();
    let entry = entry_name(&name.plane(), uid.as_str().unwrap_or_default());
    let entry = garden.get::<Value>(&BACKUP_ENTRY, &Key::new(PROJECT, &entry))?;
    let bucket = &garden.get::<Value>(&SEED, &Key::cluster(world::SEED))?["metadata"]["uid"];
    equal("the bucket", &entry["spec"]["bucketName"], bucket)?;
    equal("its entry", &entry["status"]["lastOperation"]["state"], &json!("Succeeded"))
}

/// A garden with a project, and an agent whose Seed is ready for Shoots. `change` changes the Seed's spec.
fn begin(lab: &Lab, garden: &Client, change: impl FnOnce(&mut Value) -> Result<()>) -> Result<Agent> {
    let list = |items: Vec<Value>| json!({"apiVersion": "v1", "kind": "List", "items": items});
    lab.seed.apply(&list(prepare::access().1))?;
    lab.garden.apply(&list(prepare::for_shoots()))?;
    wait::until("the namespace of the project", 30, || {
        garden.find::<Value>(&NAMESPACE, &Key::cluster(PROJECT))
    })?;
    let mut options = world::agent(lab, "agent")?;
    options.config["seedConfig"]["spec"]["dns"]["internal"]["type"] = json!("unmanaged");
    options.config["seedConfig"]["spec"]["networks"]["shootDefaults"] = json!({"services": "100.64.0.0/13"});
    options.config["edge"]["exposure"] = json!({"type": "NodePort", "address": outside::INSIDE_ADDRESS});
    change(&mut options.config["seedConfig"]["spec"])?;
    let mut agent = Agent::start(lab, options)?;
    steps::ready(lab, &mut agent)?;
    Ok(agent)
}

/// Creates a Shoot of that version (with a `v`), and waits until it is ready.
fn create(lab: &Lab, garden: &Client, agent: &mut Agent, (name, version): (Name, &str)) -> Result<()> {
    apply(lab, name, version)?;
    let began = wait::now();
    let shoot = succeeded(lab, garden, agent, (name, "Create"))?;
    let took = wait::seconds_since(began);
    println!("       {took:6.1} s  {version}: Create Succeeded");
    wait::measured("seconds until a Shoot is created", took, CREATED_IN_S)?;
    equal("progress", &shoot["status"]["lastOperation"]["progress"], &json!(100))?;
    equal("errors", &shoot["status"]["lastErrors"], &Value::Null)
}

fn apply(lab: &Lab, name: Name, version: &str) -> Result<()> {
    lab.garden.apply(&shoot(name, version))
}

fn shoot(name: Name, version: &str) -> Value {
    let mut shoot = prepare::shoot(name.0);
    shoot["spec"]["kubernetes"]["version"] = json!(version.trim_start_matches('v'));
    // Otherwise the garden picks one at random.
    shoot["spec"]["maintenance"] = json!({"timeWindow": {"begin": "030000+0000", "end": "040000+0000"}});
    shoot
}

/// The Shoot, once an operation of that type has reconciled its spec. An earlier operation does not count: a change of
/// the spec or an annotation for another operation increases the generation.
fn succeeded(
    lab: &Lab,
    garden: &Client,
    agent: &mut Agent,
    (name, operation): (Name, &str),
) -> Result<Value> {
    let result = while_running(&format!("{operation} Succeeded"), SUCCEEDED_WITHIN_S, agent, || {
        let shoot = garden.get::<Value>(&SHOOT, &Key::new(PROJECT, name.0))?;
        let (last, status) = (&shoot["status"]["lastOperation"], &shoot["status"]);
        let is_observed = status["observedGeneration"] == shoot["metadata"]["generation"];
        if is_observed && last["type"] == operation && last["state"] == "Succeeded" {
            return Ok(Some(shoot));
        }
        Err(Failure::new(format!("{last} {}", status["lastErrors"])))
    });
    result.map_err(|failure| explained(&lab.seed, garden, (name, &failure)))
}

/// Requests another reconciliation. The garden removes the annotation and increases the generation, for which
/// [`succeeded`] waits. It does not do so if the last operation has failed for good.
fn ask_for_another(garden: &Client, name: Name) -> Result<()> {
    let patch = json!({"metadata": {"annotations": {"gardener.cloud/operation": "reconcile"}}});
    let shoot = garden.patch::<Value>(&SHOOT, &Key::new(PROJECT, name.0), &Patch::Merge(patch))?;
    let (wanted, status) = (&shoot["metadata"]["generation"], &shoot["status"]);
    ensure(status["observedGeneration"] != *wanted, || {
        format!("the garden requests no other operation: {wanted} {}", status["lastOperation"])
    })
}

/// Prints the slowest tasks from the log.
fn print_where_the_time_went(log: &str) {
    for line in log.lines().filter(|line| line.contains("The task is done")) {
        println!("                 {line}");
    }
}

/// A failure, with the output of the pods.
fn explained(seed: &Cluster, garden: &Client, (name, failure): (Name, &Failure)) -> Failure {
    let ask = |arguments: &[&str]| seed.kubectl(arguments).unwrap_or_else(|other| other.to_string());
    let namespace = format!("--namespace={}", name.plane());
    let pods =
        ask(&["get", "pods,persistentvolumeclaims,services,managedresources", "--output=wide", &namespace]);
    let events = ask(&["events", "--types=Warning", &namespace]);
    let mut logs = String::new();
    for name in ask(&["get", "pods", "--output=name", &namespace]).lines() {
        logs += &format!("{name}:\n{}\n", ask(&["logs", name, "--tail=12", &namespace]));
    }
    let shoot =
        garden.get::<Value>(&SHOOT, &Key::new(PROJECT, name.0)).map(|shoot| shoot["status"].to_string());
    let shoot = shoot.unwrap_or_else(|error| error.to_string());
    Failure::new(format!("{failure}\n{shoot}\n{pods}\n{events}\n{logs}"))
}
