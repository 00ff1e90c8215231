//! Bastions: created, changed, refused, orphaned and deleted. Their Shoots are only objects, since a Shoot without
//! workers has no nodes to reach. The test plays the extension.

use std::cell::Cell;
use std::sync::Arc;
use std::time::Duration;

use gardenlet::api::gardener::OPERATION;
use serde_json::{Value, json};

use crate::player::{GROUP, Manners, Player};
use crate::story_operating::Desk;
use crate::world::{Agent, CORE, Options, World, wait_for};
use support::api::failure::Failure;
use support::api::store::Id;
use support::encoding::{from_base64, rfc3339};
use support::garden::prepare;
use support::http::faults::{Action, Seen};
use support::http::record::Recorded;
use support::json::{entry, text};
use support::shoot::object;

pub(crate) const OPERATIONS: &str = "operations.gardener.cloud";
pub(crate) const PROJECT: &str = object::PROJECT_NAMESPACE;
const FORCE: &str = "confirmation.gardener.cloud/force-deletion";
const KEY: &str = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5 someone's laptop";
const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);

/// A seed with a Shoot, its agent and the extension for Bastions.
pub(crate) struct Lab {
    pub(crate) world: World,
    pub(crate) agent: Arc<Agent>,
    pub(crate) player: Player,
}

/// A Shoot with nodes, as the API server stores it.
fn shoot(name: &str, seed: &str, plane: &str) -> Value {
    let mut shoot = prepare::shoot(name);
    shoot["metadata"]["uid"] = json!(format!("uid-of-{name}"));
    shoot["metadata"]["labels"] = json!({format!("name.seed.gardener.cloud/{seed}"): "true"});
    shoot["spec"]["seedName"] = json!(seed);
    shoot["spec"]["provider"]["workers"] = json!([{"name": "pool"}]);
    shoot["status"] = json!({"seedName": seed});
    if !plane.is_empty() {
        shoot["status"]["technicalID"] = json!(plane);
    }
    shoot
}

impl Lab {
    pub(crate) fn start(name: &'static str, begin: impl FnOnce(&World, &Arc<Agent>)) -> Self {
        let world = World::start(&Options::new(name));
        object::prepare_garden(&world.garden);
        object::prepare_seed(&world.seed);
        let mut config = world.config();
        config["leaderElection"] = json!({"leaderElect": false});
        let agent = Arc::new(Agent::new(&world, "host-1", &config, world.pod()));
        begin(&world, &agent);
        agent.launch();
        world.wait_until_ready();
        let lab = Self { world, agent, player: Player::of(&["bastions"]) };
        lab.put_shoot("s1", name, &plane("s1"));
        lab
    }

    /// A Shoot, and the namespace of its control plane.
    pub(crate) fn put_shoot(&self, name: &str, seed: &str, plane: &str) {
        self.put_shoot_with(name, seed, plane, |_| {});
    }

    /// The same with changes. They are part of the same write, because the agent may act between two.
    fn put_shoot_with(&self, name: &str, seed: &str, plane: &str, change: impl FnOnce(&mut Value)) {
        let mut object = shoot(name, seed, plane);
        change(&mut object);
        let id = Id::new(CORE, "shoots", PROJECT, name);
        self.world.garden.store().write(|state| drop(state.put(id, object)));
        if !plane.is_empty() && self.world.seed.get("", "namespaces", "", plane).is_none() {
            self.world.seed.create("v1", "namespaces", &json!({"metadata": {"name": plane}}));
        }
    }

    pub(crate) fn make(&self, name: &str, more: impl FnOnce(&mut Value)) {
        let mut bastion = json!({"metadata": {"namespace": PROJECT, "name": name},
            "spec": {"shootRef": {"name": "s1"}, "seedName": self.world.name, "providerType": "local",
                "sshPublicKey": KEY, "ingress": [{"ipBlock": {"cidr": "192.0.2.0/24"}}]}});
        more(&mut bastion);
        let shoot = text(&bastion, "/spec/shootRef/name");
        let shoot = self.world.garden.get(CORE, "shoots", PROJECT, shoot).unwrap_or_default();
        let seed = text(&bastion, "/spec/seedName").to_owned();
        if text(&shoot, "/spec/seedName") != seed {
            // The garden takes the seed from the Shoot. This one was made when it was another.
            bastion["apiVersion"] = json!("operations.gardener.cloud/v1alpha1");
            bastion["kind"] = json!("Bastion");
            bastion["metadata"]["uid"] = json!(format!("uid-of-{name}"));
            bastion["metadata"]["generation"] = json!(1);
            bastion["metadata"]["creationTimestamp"] = json!(rfc3339(self.world.clock.now()));
            let id = Id::new(OPERATIONS, "bastions", PROJECT, name);
            self.world.garden.store().write(|state| drop(state.put(id, bastion)));
            return;
        }
        self.world.garden.create("operations.gardener.cloud/v1alpha1", "bastions", &bastion);
    }

    pub(crate) fn bastion(&self, name: &str) -> Option<Value> {
        self.world.garden.get(OPERATIONS, "bastions", PROJECT, name)
    }

    /// The object of the extension.
    pub(crate) fn object(&self, name: &str) -> Option<Value> {
        self.world.seed.get(GROUP, "bastions", &plane("s1"), name)
    }

    pub(crate) fn change(&self, name: &str, patch: &Value) {
        self.world.garden.merge(OPERATIONS, "bastions", (PROJECT, name), patch);
    }

    /// Waits in the garden while the extension works.
    pub(crate) fn wait_for<T>(&self, what: &str, condition: impl Fn() -> Option<T>) -> T {
        self.player.wait_for(&self.world.seed, &self.world.garden, what, |_| condition())
    }

    pub(crate) fn wait_for_condition(&self, name: &str, reason: &str, words: &str) -> Value {
        self.wait_for(&format!("{reason} of {name}"), || {
            ready(&self.bastion(name)?)
                .filter(|it| it["reason"] == reason && text(it, "/message").contains(words))
                .cloned()
        })
    }

    pub(crate) fn wait_until_works(&self, name: &str) -> Value {
        self.wait_for(&format!("{name} to work"), || self.bastion(name).filter(works))
    }

    pub(crate) fn wait_until_gone(&self, name: &str) {
        self.wait_for(&format!("the end of {name}"), || self.bastion(name).is_none().then_some(()));
        assert_eq!(self.object(name), None);
    }

    pub(crate) fn end(self) {
        self.agent.stop();
    }
}

/// The namespace of a Shoot's control plane.
pub(crate) fn plane(shoot: &str) -> String {
    object::technical_id(shoot)
}

pub(crate) fn ready(bastion: &Value) -> Option<&Value> {
    bastion["status"]["conditions"].as_array()?.iter().find(|it| it["type"] == "BastionReady")
}

/// Whether it can be used in its current state.
pub(crate) fn works(bastion: &Value) -> bool {
    ready(bastion).is_some_and(|it| it["status"] == "True")
        && bastion["status"]["observedGeneration"] == bastion["metadata"]["generation"]
}

pub(crate) fn reached_at(ip: &str) -> Manners {
    Manners { status: json!({"ingress": {"ip": ip}}), ..Manners::default() }
}

/// The agent's writes for Bastions, and its reads of them.
fn requests(all: &[Recorded]) -> (Vec<String>, usize) {
    let ours = all.iter().filter(|r| r.info.resource == "bastions" && r.user_agent.starts_with("gardenlet/"));
    let (writes, reads): (Vec<&Recorded>, Vec<_>) = ours.partition(|r| r.is_write());
    (writes.into_iter().map(Recorded::line).collect(), reads.len())
}

#[test]
fn a_bastion_is_created_and_deleted() {
    let lab = Lab::start("basic", |_, _| {});
    lab.player.behave("bastions", reached_at("192.0.2.10"));
    lab.make("b1", |_| {});
    let bastion = lab.wait_until_works("b1");
    let condition = ready(&bastion).unwrap();
    assert_eq!(condition["reason"], "SuccessfullyReconciled");
    assert_eq!(condition["message"], "The bastion has been reconciled successfully.");
    assert_eq!(bastion["status"]["ingress"], json!({"ip": "192.0.2.10"}));
    assert_eq!(bastion["metadata"]["finalizers"], json!(["gardener"]));
    let object = lab.object("b1").unwrap();
    assert_eq!(object["spec"]["type"], "local");
    assert_eq!(object["spec"]["ingress"], json!([{"ipBlock": {"cidr": "192.0.2.0/24"}}]));
    let script = from_base64(text(&object, "/spec/userData")).unwrap();
    script_lets_its_user_in(&lab, &String::from_utf8(script).unwrap());

    // A quarter of an hour without changes: one check a minute, no writes.
    let (marks, begun) =
        ((lab.world.garden.request_count(), lab.world.seed.request_count()), lab.world.clock.mono());
    let looks = || requests(&lab.world.seed.requests_since(marks.1));
    lab.world.skip_in_turns(12, 75 * SECOND, "a look a minute", || looks().1);
    let (writes, reads) = looks();
    let minutes = lab.world.minutes_since(begun);
    assert!(writes.is_empty() && reads <= minutes + 3, "{writes:?}, {reads} reads in {minutes} minutes");
    let (writes, reads) = requests(&lab.world.garden.requests_since(marks.0));
    assert!(writes.is_empty() && reads <= minutes / 5 + 2, "{writes:?}, {reads} reads in {minutes} minutes");

    // Other addresses are allowed, and the machine has another address.
    lab.player.behave("bastions", reached_at("192.0.2.11"));
    let blocks = json!([{"ipBlock": {"cidr": "198.51.100.0/24"}}, {"ipBlock": {"cidr": "2001:db8::/64"}}]);
    lab.change("b1", &json!({"spec": {"ingress": blocks}}));
    let bastion = lab.wait_for("the other address", || {
        lab.bastion("b1").filter(works).filter(|it| it["status"]["ingress"]["ip"] == "192.0.2.11")
    });
    assert_eq!(bastion["status"]["observedGeneration"], 2);
    assert_eq!(lab.object("b1").unwrap()["spec"]["ingress"], blocks);
    let named = json!({"status": {"ingress": {"ip": null, "hostname": "b.example.org"}}});
    lab.world.seed.merge_status(GROUP, "bastions", (&plane("s1"), "b1"), &named);
    let since = lab.world.clock.mono();
    lab.wait_for("the name", || {
        let ingress = lab.bastion("b1")?["status"]["ingress"].clone();
        (ingress == json!({"hostname": "b.example.org"})).then_some(())
    });
    let took = lab.world.clock.mono().saturating_sub(since);
    lab.world.measured("until a bastion has its new address", took, 3 * MINUTE / 2);
    // A client deletes the object: the agent creates another one.
    let uid = lab.object("b1").unwrap()["metadata"]["uid"].clone();
    lab.world.seed.delete(GROUP, "bastions", &plane("s1"), "b1");
    lab.wait_for("another object", || lab.object("b1").filter(|it| it["metadata"]["uid"] != uid));
    lab.wait_until_works("b1");

    lab.player.behave("bastions", Manners { is_silent: true, ..Manners::default() });
    let mark = lab.world.seed.request_count();
    lab.world.garden.delete(OPERATIONS, "bastions", PROJECT, "b1");
    let condition = lab.wait_for_condition("b1", "DeletionInProgress", "The bastion is being deleted.");
    assert_eq!(condition["status"], "False");
    lab.world.skip(MINUTE);
    assert!(lab.bastion("b1").is_some());
    lab.player.behave("bastions", Manners::default());
    lab.wait_until_gone("b1");
    let (writes, _) = requests(&lab.world.seed.requests_since(mark));
    assert_eq!(writes.len(), 1, "one request to delete, no confirmation: {writes:?}");
    lab.end();
}

/// Runs the script on a machine of stubs. The result equals the one of a Go gardenlet's script.
fn script_lets_its_user_in(lab: &Lab, script: &str) {
    let root = lab.world.path("machine");
    let place = root.to_str().unwrap();
    for folder in ["bin", "home", "etc/sudoers.d"] {
        std::fs::create_dir_all(root.join(folder)).unwrap();
    }
    let stub = |name: &str, code: &str| {
        use std::os::unix::fs::PermissionsExt as _;
        let text = format!("#!/bin/bash\necho \"{name} $*\" >> {place}/calls\n{code}\n");
        let path = root.join("bin").join(name);
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    };
    stub("id", "exit 1");
    stub("useradd", "");
    stub("chown", "");
    // As on systems where the unit is called ssh.
    stub("systemctl", r#"[ "$2" = ssh ]"#);
    let script =
        script.replace("/home/", &format!("{place}/home/")).replace("/etc/", &format!("{place}/etc/"));
    let file = lab.world.file("user-data", &script);
    let path = format!("{place}/bin:{}", support::options::variable("PATH").unwrap());
    let done =
        std::process::Command::new("/bin/bash").arg("-eu").arg(file).env("PATH", path).output().unwrap();
    assert!(done.status.success(), "{done:?}");
    let read = |name: &str| std::fs::read_to_string(root.join(name)).unwrap();
    assert_eq!(read("home/gardener/.ssh/authorized_keys"), format!("{KEY}\n"));
    assert_eq!(read("etc/sudoers.d/99-gardener-user"), "gardener ALL=(ALL) NOPASSWD:ALL\n");
    let calls = read("calls");
    let keys = format!("chown gardener:gardener {place}/home/gardener/.ssh/authorized_keys");
    let expected =
        ["id gardener", "useradd -m -U gardener", &keys, "systemctl start sshd", "systemctl start ssh"];
    assert_eq!(calls.lines().collect::<Vec<_>>(), expected);
}

#[test]
fn errors_of_a_bastion_are_reported_with_their_code() {
    let lab = Lab::start("troubled-bastions", |_, _| {});
    let refused = json!({"description": "no quota left", "codes": ["ERR_INFRA_QUOTA_EXCEEDED"]});
    lab.player.behave("bastions", Manners { error: Some(("Error", refused.clone())), ..Manners::default() });
    lab.make("b1", |_| {});
    let condition = lab.wait_for_condition("b1", "FailedReconciling", "no quota left");
    let place = format!("Error while waiting for Bastion {}/b1 to become ready: error during", plane("s1"));
    assert!(text(&condition, "/message").starts_with(&place), "{condition}");
    assert_eq!(
        (&condition["status"], &condition["codes"]),
        (&json!("False"), &json!(["ERR_INFRA_QUOTA_EXCEEDED"]))
    );
    // The extension tries again and succeeds.
    lab.player.behave("bastions", reached_at("192.0.2.10"));
    let again = json!({"metadata": {"annotations": {OPERATION: "reconcile"}}});
    lab.world.seed.merge(GROUP, "bastions", (&plane("s1"), "b1"), &again);
    let bastion = lab.wait_until_works("b1");
    assert_eq!(ready(&bastion).unwrap()["codes"], Value::Null);

    // If it has given up, the agent requests the operation again once a minute, and not more often.
    lab.player.behave("bastions", Manners { error: Some(("Failed", refused)), ..Manners::default() });
    lab.player.asked();
    lab.make("b2", |_| {});
    lab.wait_for_condition("b2", "FailedReconciling", "no quota left");
    let since = lab.world.clock.mono();
    let asked = Cell::new(0);
    lab.wait_for("five requests", || {
        lab.world.time.advance(2 * SECOND);
        asked.set(asked.get() + lab.player.asked().iter().filter(|(_, name, _)| name == "b2").count());
        (asked.get() >= 5).then_some(())
    });
    let took = lab.world.clock.mono().saturating_sub(since);
    assert!(took > 3 * MINUTE, "{} requests in {took:?}", asked.get());
    lab.player.behave("bastions", reached_at("192.0.2.10"));
    lab.wait_until_works("b2");

    // No extension serves this type.
    lab.player.behave("bastions", Manners { is_silent: true, ..Manners::default() });
    lab.put_shoot_with("s1", lab.world.name, &plane("s1"), |shoot| {
        shoot["spec"]["provider"]["type"] = json!("nobody");
    });
    lab.make("b3", |_| {});
    let condition = lab.wait_for_condition("b3", "FailedReconciling", "did not record a last operation yet");
    let words = text(&condition, "/message");
    assert!(words.contains("no ControllerInstallation of this seed supports Bastion/nobody"), "{words}");
    assert_eq!(condition["codes"], json!(["ERR_CONFIGURATION_PROBLEM"]));
    let desk = Desk::new(&lab.world, |_| {});
    let told = desk.explain(&["bastion", "b3", "-n", PROJECT]);
    let object = format!("- its Bastion for the extension in the seed, {}/b3: ", plane("s1"));
    let why = "- extension did not record a last operation yet; extension controllers missing or unready: no \
        ControllerInstallation of this seed supports Bastion/nobody: register an extension";
    assert!(
        told.contains(&object) && told.contains(why) && told.contains("- its Shoot garden-p/s1: "),
        "{told}"
    );
    // It requests Events, which only people may read.
    lab.world.expect_refusals();
    let of_seed = ["bastions.extensions.gardener.cloud", "b3", "-n", &plane("s1")];
    let told = desk.explain(&of_seed);
    assert!(told.starts_with(&format!("Bastion {}/b3 (seed): ", plane("s1"))), "{told}");
    lab.put_shoot_with("s1", lab.world.name, &plane("s1"), |shoot| {
        shoot["spec"]["provider"]["type"] = json!("");
    });
    lab.make("b4", |_| {});
    let condition = lab.wait_for_condition("b4", "FailedReconciling", "spec.providerType is empty");
    assert_eq!(condition["codes"], json!(["ERR_CONFIGURATION_PROBLEM"]));
    assert_eq!(lab.object("b4"), None);
    lab.end();
}

#[test]
fn a_bastion_without_its_shoot_waits_and_can_be_deleted() {
    let lab = Lab::start("lonely", |_, _| {});
    let of =
        |shoot: &'static str| move |bastion: &mut Value| bastion["spec"]["shootRef"]["name"] = json!(shoot);
    lab.make("missing", of("s2"));
    let condition = lab.wait_for_condition("missing", "FailedReconciling", "could not get shoot garden-p/s2");
    assert_eq!(condition["codes"], json!(["ERR_CONFIGURATION_PROBLEM"]));
    lab.put_shoot("s3", "lonely", "");
    lab.make("early", of("s3"));
    lab.wait_for_condition("early", "FailedReconciling", "Shoot garden-p/s3 has no control plane yet");
    lab.put_shoot("s4", "elsewhere", &plane("s4"));
    lab.make("moved", of("s4"));
    lab.wait_for_condition("moved", "FailedReconciling", "could not get shoot garden-p/s4");
    // The agent can still read one that is about to move.
    lab.put_shoot_with("s5", "lonely", &plane("s5"), |shoot| {
        shoot["status"]["seedName"] = json!("elsewhere");
    });
    lab.make("leaving", of("s5"));
    lab.wait_for_condition(
        "leaving",
        "FailedReconciling",
        "is on seed elsewhere, but the Bastion names lonely",
    );
    // A Bastion of another seed is not handled, whatever Shoot it names.
    lab.make("other", |bastion| bastion["spec"]["seedName"] = json!("elsewhere"));
    assert_eq!(lab.world.seed.store().all(GROUP, "bastions", "").len(), 0);

    // The control plane is created.
    lab.put_shoot("s3", "lonely", &plane("s3"));
    lab.wait_until_works("early");
    // The Bastion and its Shoot are deleted; the agent finds the extension's object by its Cluster.
    let cluster = json!({"apiVersion": "extensions.gardener.cloud/v1alpha1", "kind": "Cluster", "metadata": {"name": plane("s3")},
        "spec": {"cloudProfile": {}, "seed": {}, "shoot": {"metadata": {"namespace": PROJECT, "name": "s3"}}}});
    lab.world.seed.apply(&[cluster]);
    for name in ["s3", "s4", "s5"] {
        let id = Id::new(CORE, "shoots", PROJECT, name);
        lab.world.garden.store().write(|state| drop(state.take(&id)));
    }
    for name in ["early", "missing", "moved", "leaving"] {
        lab.world.garden.delete(OPERATIONS, "bastions", PROJECT, name);
    }
    for name in ["early", "missing", "moved", "leaving"] {
        lab.wait_until_gone(name);
    }
    assert_eq!(lab.world.seed.store().all(GROUP, "bastions", "").len(), 0);
    let other = lab.bastion("other").unwrap();
    assert_eq!(
        (&other["metadata"]["finalizers"], &other["status"]["conditions"]),
        (&Value::Null, &Value::Null)
    );
    lab.end();
}

#[test]
fn a_forced_deletion_reaches_the_extension_and_waits_for_foreign_finalizers() {
    let lab = Lab::start("forced", |_, _| {});
    lab.make("b1", |bastion| bastion["metadata"]["finalizers"] = json!(["example.org/mine"]));
    lab.wait_until_works("b1");
    let stuck = json!({"description": "the cloud does not answer", "codes": ["ERR_INFRA_DEPENDENCIES"]});
    lab.player.behave("bastions", Manners { error: Some(("Error", stuck)), ..Manners::default() });
    lab.world.garden.delete(OPERATIONS, "bastions", PROJECT, "b1");
    let condition = lab.wait_for_condition("b1", "DeletionInProgress", "the cloud does not answer");
    assert_eq!(condition["codes"], json!(["ERR_INFRA_DEPENDENCIES"]));
    let object = lab.object("b1").unwrap();
    assert_eq!(entry(&object, "/metadata/annotations", FORCE), None);
    lab.change("b1", &json!({"metadata": {"annotations": {FORCE: "true"}}}));
    lab.wait_for("the force", || {
        (entry(&lab.object("b1")?, "/metadata/annotations", FORCE) == Some("true")).then_some(())
    });
    lab.world.seed.merge(GROUP, "bastions", (&plane("s1"), "b1"), &json!({"metadata": {"finalizers": null}}));
    let bastion = lab.wait_for("our finalizer to go", || {
        lab.bastion("b1").filter(|it| it["metadata"]["finalizers"] == json!(["example.org/mine"]))
    });
    assert!(!bastion["metadata"]["deletionTimestamp"].is_null());
    // Nothing happens until its owner removes the finalizer.
    let mark = lab.world.garden.request_count();
    lab.world.skip(5 * MINUTE);
    let (writes, reads) = requests(&lab.world.garden.requests_since(mark));
    assert!(writes.is_empty() && reads <= 4, "{writes:?}, {reads} reads");
    lab.change("b1", &json!({"metadata": {"finalizers": null}}));
    lab.wait_until_gone("b1");
    lab.end();
}

#[test]
fn a_garden_without_bastions_is_no_trouble() {
    let lab = Lab::start("plain", |world, _| {
        let is_it = |seen: &Seen| seen.info.group == OPERATIONS;
        world.garden.faults().when(is_it).then(Action::Refuse(Failure::no_resource()));
    });
    let looks = || lab.world.garden.requests().iter().filter(|r| r.info.resource == "bastions").count();
    wait_for("the first look", || (looks() > 0).then_some(()));
    lab.world.skip(10 * MINUTE);
    assert!(looks() <= 9, "{} looks", looks());
    let tells = |line: &String| line.contains("garden/bastions");
    let told: Vec<String> = lab.world.own_log(0).into_iter().filter(tells).collect();
    assert_eq!(told, Vec::<String>::new());
    let (_, reads) = requests(&lab.world.seed.requests());
    assert_eq!(reads, 0, "a missing kind is not listed");
    assert_eq!(lab.agent.get(2728, "/readyz").0, 200);
    lab.end();
}
