//! The site of a Shoot is lost: its agent, its servers and its node. An administrator of the garden follows docs/moving.md, and
//! another seed restores the Shoot from its last snapshot. Then the machines come back after all.

use std::collections::BTreeMap;

use gardenlet::api::core::{
    CONFIG_MAP, DEPLOYMENT, NAMESPACE, PERSISTENT_VOLUME_CLAIM, SECRET, SERVICE_ACCOUNT, STATEFUL_SET,
};
use gardenlet::api::gardener::SHOOT_STATE;
use gardenlet::api::meta::{ALL_NAMESPACES, Key, Resource, text};
use gardenlet::kube::{Client, ListParams, Options};
use serde_json::{Value, json};

use super::owner::Owner;
use super::rotation::{fill, many};
use super::seeds::{Cast, FIRST, Known, OF_THE_AGENTS, READY_WITHIN_S, SECOND};
use super::{COMPONENTS, ONE, PROJECT, end, snapshots};
use crate::audit::Audit;
use crate::failure::{Doing, Failure, Result, ensure, equal};
use crate::image;
use crate::lab::Lab;
use crate::node::Node;
use crate::outside;
use crate::site::Site;
use crate::stories::role;
use crate::stories::steps::while_running;
use crate::wait;

const DOCUMENT: &str = include_str!("../../../../docs/moving.md");
const SECTION: &str = "\n## A site is lost\n";
const OBJECTS: usize = 200;
/// The garden notices a silent agent within a minute.
const RESCUED_WITHIN_S: u64 = 180;
const RESTORED_WITHIN_S: u64 = 600;
/// After a power cut, kubelet starts the pods again.
const BACK_WITHIN_S: u64 = 240;
const STOPPED_WITHIN_S: u64 = 240;
/// What runs of a Shoot, in the order of its end.
const WORKLOADS: [(Resource, &str); 4] = [
    (DEPLOYMENT, "kube-controller-manager"),
    (DEPLOYMENT, "kube-apiserver"),
    (STATEFUL_SET, "etcd-main"),
    (STATEFUL_SET, "etcd-events"),
];

/// A Shoot of a lost site comes back on another seed by the commands of the documents: with its CAs, the tokens of its
/// ServiceAccounts and exactly the objects of its last snapshot. An Event says up to when they go. When the machines of the site come
/// back, their agent stops what they still run of the Shoot, and changes nothing of it in the garden.
pub(crate) fn comes_back(lab: &mut Lab) -> Result<()> {
    // Ends after the cast.
    let mut site = Site::start(lab, &COMPONENTS)?;
    let mut cast = Cast::gather(lab, &site, &OF_THE_AGENTS)?;
    cast.create(lab)?;
    let owner = Owner::new(lab, &cast.garden, ONE, &site.outside)?;
    owner.gets_in(image::API_SERVER.version())?;
    owner.keeps_a_secret()?;
    fill(&owner.client()?, OBJECTS)?;
    let known = Known::look(&cast.garden, &owner, OBJECTS)?;
    has_a_state(&mut cast)?;
    let kept = Stored::look(&owner.client()?)?;
    let told = snapshots::taken(&lab.seed, ONE, "by-hand")?;
    changes(&owner)?;
    ensure(Stored::look(&owner.client()?)? != kept, || "nothing was written after the snapshot".to_owned())?;
    let robbed = operator(lab, line("gardenlet rescue ")?);
    ensure(robbed.as_ref().is_err_and(|refused| says(refused, "GardenletReady is True")), || {
        format!("the rescue from a seed that works: {robbed:?}")
    })?;

    let connection = owner.connection_to(outside::INSIDE_ADDRESS)?;
    let old = Client::new(connection, Options::default())?;
    cast.lose_the_first(lab, &mut site.node)?;
    ensure(old.version().is_err(), || "a lost Shoot answers".to_owned())?;
    is_rescued(lab)?;
    let began = wait::now();
    let shoot = cast.reaches(lab, SECOND, "Restore Succeeded", RESTORED_WITHIN_S)?;
    println!("       {:6.1} s  after the command: Restore Succeeded", wait::seconds_since(began));
    equal(
        "its annotation",
        &shoot["metadata"]["annotations"]["edge.gardenlet/accept-data-loss"],
        &Value::Null,
    )?;
    tells_the_loss(lab, &told)?;
    let owner = Owner::new(lab, &cast.garden, ONE, &site.outside)?;
    kept.is_all_of(&owner.client()?)?;
    known.is_unchanged(&cast.garden, &owner)?;
    owner.gets_in(image::API_SERVER.version())?;
    cast.has_its_backups((FIRST, SECOND))?;

    cast.finds_itself_replaced(lab, &mut site.node, &old)?;
    owner.finds_everything()?;
    let Cast { agents: [_, two], garden, second, .. } = &mut cast;
    end::deletes(garden, two, ONE)?;
    let plane = Key::cluster(ONE.plane());
    ensure(second.cluster.client()?.find::<Value>(&NAMESPACE, &plane)?.is_none(), || {
        format!("{SECOND} still has namespace {plane}")
    })?;
    role::allows_with_shoots(&mut Audit::of_all(&second.cluster.audit_log())).map(drop)
}

/// The only line of the document's section that begins so.
fn line(begin: &str) -> Result<&'static str> {
    let section = DOCUMENT.split_once(SECTION).map_or("", |(_, rest)| rest);
    let section = section.split("\n## ").next().unwrap_or_default();
    let all: Vec<&str> = section.lines().filter(|line| line.starts_with(begin)).collect();
    let [line] = all[..] else {
        return Err(Failure::new(format!("docs/moving.md has {} lines with {begin:?}", all.len())));
    };
    Ok(line)
}

/// What a line of the document says to an administrator of the garden. He sits at a terminal, in a folder with `garden.kubeconfig`, and
/// enters the name of the Shoot.
fn operator(lab: &Lab, line: &str) -> Result<String> {
    let mut command = lab.command("sh")?;
    let program = lab.environment.agent();
    let mut path = program.parent().map(std::ffi::OsString::from).unwrap_or_default();
    path.push(":");
    path.push(lab.environment.search_path());
    command.args(["-c", "echo s1 | script --quiet --return --command \"$1\" /dev/null", "sh", line]);
    command.env("PATH", path).env("KUBECACHEDIR", lab.place.join("operator-cache")).current_dir(&lab.state);
    let output = command.output().doing(|| line.to_owned())?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    if output.status.success() { Ok(said) } else { Err(Failure::new(format!("{line}: {said}"))) }
}

fn says(failure: &Failure, words: &str) -> bool {
    failure.to_string().contains(words)
}

/// The garden notices that the seed is silent; until then the command refuses.
fn is_rescued(lab: &Lab) -> Result<()> {
    let command = line("gardenlet rescue ")?;
    let said = wait::until("the rescue", RESCUED_WITHIN_S, || operator(lab, command).map(Some))?;
    let writes = said.matches("Written: ").count();
    ensure(writes == 5 && said.contains(&format!("belongs to seed {SECOND}")), || {
        format!("the command said {said}")
    })
}

/// The garden has what another seed needs besides the snapshot.
fn has_a_state(cast: &mut Cast) -> Result<()> {
    let Cast { agents: [one, _], garden, .. } = cast;
    while_running("the ShootState", READY_WITHIN_S, one, || {
        Ok(garden.find::<Value>(&SHOOT_STATE, &Key::new(PROJECT, ONE.0))?.map(drop))
    })
}

/// What no snapshot has: new objects, another value, a deletion.
fn changes(owner: &Owner<'_>) -> Result<()> {
    owner.kubectl(&["create", "namespace", "late"])?;
    owner.kubectl(&["create", "secret", "generic", "late", "--from-literal=a=b"])?;
    owner.kubectl(&["patch", "configmap", "open", "--patch", r#"{"data":{"a":"late"}}"#])?;
    owner.kubectl(&["delete", "secret", &many(7)]).map(drop)
}

/// What an etcd stores: objects of some kinds with their uids, and those of namespace `default` in full.
#[derive(Debug, PartialEq)]
struct Stored(BTreeMap<String, Value>);

impl Stored {
    fn look(shoot: &Client) -> Result<Self> {
        let mut all = BTreeMap::new();
        for kind in [NAMESPACE, SECRET, CONFIG_MAP, SERVICE_ACCOUNT] {
            shoot.list_all::<Value>(&kind, ALL_NAMESPACES, &ListParams::default(), &mut |object| {
                let metadata = &object["metadata"];
                let (namespace, name) = (text(&metadata["namespace"]), text(&metadata["name"]));
                let value = if namespace == "default" { object.clone() } else { metadata["uid"].clone() };
                all.insert(format!("{} {namespace}/{name}", kind.kind), value);
            })?;
        }
        Ok(Self(all))
    }

    /// A Shoot has exactly these objects.
    fn is_all_of(&self, shoot: &Client) -> Result<()> {
        let Self(found) = Self::look(shoot)?;
        let keys = self.0.keys().chain(found.keys());
        let mut wrong: Vec<_> = keys.filter(|key| self.0.get(*key) != found.get(*key)).collect();
        wrong.dedup();
        ensure(wrong.is_empty(), || {
            let shown = wrong
                .iter()
                .take(5)
                .map(|key| format!("{key}: {:?} {:?}", self.0.get(*key), found.get(*key)));
            format!("{} objects differ: {}", wrong.len(), shown.collect::<Vec<_>>().join("; "))
        })
    }
}

/// The Event of the Shoot names the snapshot, its revision, and that what came later is lost.
fn tells_the_loss(lab: &Lab, told: &Value) -> Result<()> {
    let (name, revision) = (text(&told["snapshot"]), &told["revision"]);
    let wanted = format!("{name} is not final; changes after revision {revision} of ");
    wait::until("the Event about the loss", READY_WITHIN_S, || {
        let said =
            operator(lab, line("kubectl --kubeconfig garden.kubeconfig --namespace garden-p get events ")?)?;
        ensure(said.contains("DataLost") && said.contains(&wanted), || {
            format!("{wanted:?} is not in {said}")
        })?;
        Ok::<_, Failure>(Some(()))
    })
}

impl Cast {
    /// Everything of the site ends at once.
    fn lose_the_first(&mut self, lab: &mut Lab, node: &mut Node) -> Result<()> {
        self.agents[0].kill();
        self.has_first = false;
        lab.seed.stop();
        node.cut_power(lab)
    }

    /// Servers and node of the lost site come back, and serve what the garden has given to another seed. Then their agent comes back.
    fn finds_itself_replaced(&mut self, lab: &mut Lab, node: &mut Node, old: &Client) -> Result<()> {
        lab.seed.start_servers()?;
        lab.seed.wait_ready()?;
        node.start_again(lab, &lab.seed)?;
        wait::until("the old API server", BACK_WITHIN_S, || {
            old.get::<Value>(&SECRET, &Key::new("default", "late")).map(Some)
        })?;
        let (before, mut asked) = (self.shoot()?, lab.garden.audit());
        let began = wait::now();
        self.agents[0].skip_log();
        self.agents[0].restart()?;
        self.has_first = true;
        self.agents[0].wait_log("Another seed has restored this Shoot", STOPPED_WITHIN_S)?;
        let (plane, seed) = (ONE.plane(), lab.seed.client()?);
        while_running("the end of the old control plane", STOPPED_WITHIN_S, &mut self.agents[0], || {
            for (kind, name) in WORKLOADS {
                let live: Value = seed.get(&kind, &Key::new(&plane, name))?;
                equal(name, &live["spec"]["replicas"], &json!(0))?;
            }
            Ok(old.version().is_err().then_some(()))
        })?;
        println!(
            "       {:6.1} s  after the agent came back: the old control plane has ended",
            wait::seconds_since(began)
        );
        // A person can look there for what was lost.
        let claim = Key::new(&plane, "main-etcd-etcd-main-0");
        let claim: Value = seed.get(&PERSISTENT_VOLUME_CLAIM, &claim)?;
        equal("the volume of the old etcd", &claim["status"]["phase"], &json!("Bound"))?;
        let after = self.shoot()?;
        for field in ["seedName", "lastOperation", "lastErrors"] {
            equal(field, &after["status"][field], &before["status"][field])?;
        }
        let user = format!("gardener.cloud:system:seed:{FIRST}");
        let all = asked.requests()?;
        let own = all.iter().filter(|request| request.user.username == user && request.is_write());
        let wrong: Vec<&str> =
            own.map(|request| request.uri.as_str()).filter(|uri| uri.contains(PROJECT)).collect();
        equal("writes about the Shoot", &wrong, &Vec::new())
    }
}
