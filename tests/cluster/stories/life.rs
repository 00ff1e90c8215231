//! Shoots in the node of the seed, created by the agent: from the object in the garden to an API server to which its
//! owner has access, and their recovery from failures.

use gardenlet::api::core::NAMESPACE;
use gardenlet::api::gardener::{BACKUP_ENTRY, SEED, SHOOT};
use gardenlet::backup::garden::entry_name;
use gardenlet::kube::{Client, Patch};
use serde_json::{Value, json};

use crate::agent::Agent;
use crate::environment::Environment;
use crate::failure::{Failure, Result, ensure, equal};
use crate::image::{self, Component};
use crate::lab::Lab;
use crate::outside;
use crate::site::Site;
use crate::stories::steps::{self, while_running};
use crate::stories::{backups, role};
use crate::wait;
use crate::world::{self, World};
use support::garden::prepare;
use support::player::Player;

mod crashes;
mod end;
mod extensions;
mod health;
mod key;
mod names;
mod outages;
mod owner;
mod rotation;
mod sleep;
mod snapshots;
mod stored;
mod trouble;
mod upgrade;
mod watch;

use owner::Owner;

const PROJECT: &str = "garden-p";
/// The longest time from the object to its success.
const CREATED_WITHIN_S: u64 = 180;

/// The programs in the node.
const COMPONENTS: [Component; 5] =
    [image::ETCD, image::API_SERVER, image::CONTROLLERS, image::NEXT_API_SERVER, image::NEXT_CONTROLLERS];
/// The additional programs with `--long`.
const NEWEST: [Component; 2] = [image::NEWEST_API_SERVER, image::NEWEST_CONTROLLERS];

/// A Shoot of the project.
#[derive(Clone, Copy, Debug)]
struct Name(&'static str);

impl Name {
    /// The namespace of its control plane.
    fn plane(self) -> String {
        format!("shoot--p--{}", self.0)
    }
}

/// A Shoot is created within three minutes, on a seed that stores backups. Its owner has access from outside with the
/// kubeconfig that the garden issues. A Secret is encrypted in etcd. A second reconciliation changes nothing. Without
/// an agent its killed pods restart, and without a garden all of them restart after a power cut. The creation of
/// another Shoot has the same result although the agent is killed again and again meanwhile. `explain` reports why
/// Shoots cannot be created. With `--long` another one has the next minor version of Kubernetes.
pub(crate) fn comes_up(lab: &mut Lab) -> Result<()> {
    let (one, two, three) = (Name("s1"), Name("s2"), Name("s3"));
    let mut site = Site::start(lab, &COMPONENTS)?;
    let _world = World::build(lab)?;
    let mut audit = lab.seed.audit();
    let garden = lab.garden.client()?;
    let player = Player::of(&["backupbuckets", "backupentries"]);
    let _playing = player.start(lab.seed.client()?);
    let mut agent = begin_with(lab, &garden, |seed| {
        seed["backup"] = backups::section(lab)?;
        lab.garden.apply(&json!({"apiVersion": "v1", "kind": "List", "items": prepare::backups()}))?;
        Ok(())
    })?;
    create(lab, &garden, &mut agent, (one, image::API_SERVER.version()))?;
    print_where_the_time_went(&agent.log());
    let owner = Owner::new(lab, &garden, one, &site.outside)?;
    has_its_place_for_backups(&garden, one)?;
    owner.gets_in(image::API_SERVER.version())?;
    owner.keeps_a_secret()?;
    names::are_golden(lab, one)?;
    stored::is_encrypted(lab, &garden, one)?;
    stored::stays_as_it_is(lab, &garden, &mut agent, (one, &owner))?;
    agent.ensure_running()?;
    agent.kill();
    outages::pods_come_back(&site.node, &lab.seed, (one, &owner))?;
    outages::power_comes_back(&mut site.node, lab, (one, &owner))?;
    agent.restart()?;
    steps::ready(lab, &mut agent)?;
    let before = end::look(lab)?;
    crashes::lead_to_the_same(lab, &garden, &mut agent, (&owner, &site.outside, two))?;
    end::force_needs_no_server(lab, &garden, &mut agent, (&before, two))?;
    trouble::is_explained(lab, &garden, &mut agent, &site)?;
    if lab.environment.long {
        create(lab, &garden, &mut agent, (three, image::NEXT_API_SERVER.version()))?;
        Owner::new(lab, &garden, three, &site.outside)?.gets_in(image::NEXT_API_SERVER.version())?;
        let manager = "deployment/kube-controller-manager";
        lab.seed.rolled_out(&three.plane(), manager, 120)?;
    }
    agent.ensure_running()?;
    role::allows_with_shoots(&mut audit)
}

/// A Shoot with extensions is created, and reports their errors. Its conditions are good, except while its API server
/// is cut off. It is hibernated and woken up, restores lost data from a snapshot, gets the next minor version of
/// Kubernetes and new credentials, and is deleted with everything in it. With `--long` it also gets the minor version
/// after that, and another encryption key while a client writes.
pub(crate) fn lives(lab: &mut Lab) -> Result<()> {
    let name = Name("l1");
    let components = components(&lab.environment);
    let site = Site::start(lab, &components)?;
    let _world = World::build(lab)?;
    let mut audit = lab.seed.audit();
    let garden = lab.garden.client()?;
    let mut agent = begin(lab, &garden)?;
    let before = end::look(lab)?;
    extensions::work(&extensions::Place { lab, garden: &garden, node: &site.node, name }, &mut agent)?;
    agent.reconfigure(extensions::be_as_usual)?;
    let owner = Owner::new(lab, &garden, name, &site.outside)?;
    owner.gets_in(image::API_SERVER.version())?;
    owner.keeps_a_secret()?;
    health::is_told_to_be_good(&garden, &mut agent, name)?;
    health::follows_a_cut(&site.node, &lab.seed, (&garden, &mut agent), (name, false))?;
    if lab.environment.long {
        agent.reconfigure(health::be_patient)?;
        health::follows_a_cut(&site.node, &lab.seed, (&garden, &mut agent), (name, true))?;
    }
    sleep::sleeps_and_wakes_up(lab, &garden, &mut agent, (name, &owner))?;
    if image::can_be_made() {
        let cast = snapshots::Cast { lab, garden: &garden, node: &site.node, owner: &owner, name };
        snapshots::bring_everything_back(&cast, &mut agent)?;
    } else {
        println!("       no snapshots: no static program for the image of the agent (cross/build makes one)");
    }
    let version = upgrade::all_lose_nothing(lab, &garden, &mut agent, &owner)?;
    rotation::begins(lab, &garden, &mut agent, (name, &owner))?;
    rotation::completes(lab, &garden, &mut agent, (&owner, &site.outside, version))?;
    let owner = Owner::new(lab, &garden, name, &site.outside)?;
    if lab.environment.long {
        key::is_replaced_while_somebody_writes(lab, &garden, &mut agent, &owner)?;
    }
    end::everything_goes(lab, &garden, &mut agent, (&before, &owner))?;
    agent.ensure_running()?;
    role::allows_with_shoots(&mut audit)
}

/// The programs that [`lives`] needs in the node.
fn components(environment: &Environment) -> Vec<Component> {
    let newest: &[Component] = if environment.long { &NEWEST } else { &[] };
    [&COMPONENTS, newest].concat()
}

/// Its BackupEntry is in the bucket of the Seed, and the extension has completed the request.
fn has_its_place_for_backups(garden: &Client, name: Name) -> Result<()> {
    let uid = garden.get::<Value>(&SHOOT, PROJECT, name.0)?["status"]["uid"].clone();
    let entry = entry_name(&name.plane(), uid.as_str().unwrap_or_default());
    let entry = garden.get::<Value>(&BACKUP_ENTRY, PROJECT, &entry)?;
    let bucket = &garden.get::<Value>(&SEED, "", world::SEED)?["metadata"]["uid"];
    equal("the bucket", &entry["spec"]["bucketName"], bucket)?;
    equal("its entry", &entry["status"]["lastOperation"]["state"], &json!("Succeeded"))
}

/// A garden with a project, and an agent whose Seed is ready for Shoots.
fn begin(lab: &Lab, garden: &Client) -> Result<Agent> {
    begin_with(lab, garden, |_| Ok(()))
}

/// The same, with a change of the Seed's spec.
fn begin_with(lab: &Lab, garden: &Client, change: impl FnOnce(&mut Value) -> Result<()>) -> Result<Agent> {
    let list = |items: Vec<Value>| json!({"apiVersion": "v1", "kind": "List", "items": items});
    lab.seed.apply(&list(prepare::access().1))?;
    lab.garden.apply(&list(prepare::for_shoots()))?;
    wait::until("the namespace of the project", 30, || garden.find::<Value>(&NAMESPACE, "", PROJECT))?;
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
    println!("       {:6.1} s  {version}: Create Succeeded", wait::seconds_since(began));
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
    let result = while_running(&format!("{operation} Succeeded"), CREATED_WITHIN_S, agent, || {
        let shoot = garden.get::<Value>(&SHOOT, PROJECT, name.0)?;
        let (last, status) = (&shoot["status"]["lastOperation"], &shoot["status"]);
        let is_observed = status["observedGeneration"] == shoot["metadata"]["generation"];
        if is_observed && last["type"] == operation && last["state"] == "Succeeded" {
            return Ok(Some(shoot));
        }
        Err(Failure::new(format!("{last} {}", status["lastErrors"])))
    });
    result.map_err(|failure| explained(lab, garden, (name, &failure)))
}

/// Requests another reconciliation. The garden removes the annotation and increases the generation, for which
/// [`succeeded`] waits. It does not do so if the last operation has failed for good.
fn ask_for_another(garden: &Client, name: Name) -> Result<()> {
    let patch = json!({"metadata": {"annotations": {"gardener.cloud/operation": "reconcile"}}});
    let shoot = garden.patch::<Value>(&SHOOT, PROJECT, name.0, "", &Patch::Merge(patch))?;
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
fn explained(lab: &Lab, garden: &Client, (name, failure): (Name, &Failure)) -> Failure {
    let ask = |arguments: &[&str]| lab.seed.kubectl(arguments).unwrap_or_else(|other| other.to_string());
    let namespace = format!("--namespace={}", name.plane());
    let pods =
        ask(&["get", "pods,persistentvolumeclaims,services,managedresources", "--output=wide", &namespace]);
    let events = ask(&["events", "--types=Warning", &namespace]);
    let mut logs = String::new();
    for name in ask(&["get", "pods", "--output=name", &namespace]).lines() {
        logs += &format!("{name}:\n{}\n", ask(&["logs", name, "--tail=12", &namespace]));
    }
    let shoot = garden.get::<Value>(&SHOOT, PROJECT, name.0).map(|shoot| shoot["status"].to_string());
    let shoot = shoot.unwrap_or_else(|error| error.to_string());
    Failure::new(format!("{failure}\n{shoot}\n{pods}\n{events}\n{logs}"))
}
