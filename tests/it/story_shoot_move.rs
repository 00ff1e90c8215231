//! A Shoot moves from one seed to another and back, awake and hibernated, with its data and its identities. All the time a checker
//! looks at the data of both seeds.

use gardenlet::api::core::SERVICE_ACCOUNT;
use gardenlet::api::meta::Key;
use serde_json::{Value, json};

use crate::move_stage::{BEFORE, EXTENSIONS, HOST, NAME, PLACE, Side, Stage, Writer, missing};
use crate::world::{AGENT, CORE, wait_for};
use support::TestCluster;
use support::api::store::Id;
use support::http::record::Recorded;
use support::json::{list, text};
use support::options::is_long;
use support::shoot::buckets::RAISE;
use support::shoot::object::{ShootObject, technical_id};
use support::shoot::owner;

const MIGRATED: &str = "Migrate Succeeded 100";
pub(crate) const RESTORED: &str = "Restore Succeeded 100";

/// What a Shoot is for its owner: its CA, what it holds, and a token of an account.
pub(crate) struct Identity {
    ca: Value,
    secrets: Vec<(String, Value)>,
    cluster: Value,
    token: String,
}

impl Identity {
    /// The same with the keys and CAs that it has now.
    pub(crate) fn renewed(self, stage: &Stage, side: &Side) -> Self {
        Self { token: self.token, ..identity(stage, side) }
    }

    /// The Secrets that move with it, by their names.
    pub(crate) fn secrets(&self) -> &[(String, Value)] {
        &self.secrets
    }
}

/// A Shoot on the first seed, with objects of its owner.
pub(crate) fn created(stage: &Stage) -> Identity {
    created_of(stage, ShootObject::workerless(NAME))
}

/// The same of another Shoot.
pub(crate) fn created_of(stage: &Stage, shoot: ShootObject) -> Identity {
    stage.garden().apply(&[shoot.bound_to(stage.a.name()).build()]);
    stage.until("Create Succeeded 100");
    let owner = stage.owner();
    owner::wait_until_admitted(stage.garden(), &owner);
    let account = json!({"metadata": {"name": "app"}});
    // The owner gets rights after the Shoot is created.
    wait_for("the rights of the owner", || {
        owner.create::<Value>(&SERVICE_ACCOUNT, "default", &account).ok().map(drop)
    });
    let request = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest",
        "spec": {"expirationSeconds": 86_400}});
    let key = Key::new("default", "app");
    let answer: Value = owner.create_sub(&SERVICE_ACCOUNT, &key, "token", &request).unwrap();
    let mut identity = identity(stage, &stage.a);
    identity.token = text(&answer, "/status/token").to_owned();
    identity
}

fn identity(stage: &Stage, side: &Side) -> Identity {
    let ca = stage.garden().get("", "configmaps", PLACE.0, "s1.ca-cluster").unwrap();
    let cluster = side.stored("", "namespaces", ("", "kube-system")).unwrap();
    Identity {
        ca: ca["data"].clone(),
        secrets: side.persisted().into_iter().collect(),
        cluster: cluster["metadata"]["uid"].clone(),
        token: String::new(),
    }
}

/// The Shoot is on a seed with everything that it was.
pub(crate) fn is_at(stage: &Stage, side: &Side, before: &Identity) {
    let shoot = stage.shoot();
    assert_eq!(
        (text(&shoot, "/spec/seedName"), text(&shoot, "/status/seedName")),
        (side.name(), side.name())
    );
    assert_eq!(shoot["status"]["lastErrors"], Value::Null);
    let now = identity(stage, side);
    assert_eq!((&now.ca, &now.cluster), (&before.ca, &before.cluster));
    assert_eq!(now.secrets, before.secrets);
    let server = side.site.server(&technical_id(NAME)).unwrap();
    let user = server.cluster.server().shared.user_of(&before.token).map(|user| user.name);
    assert_eq!(user.as_deref(), Some("system:serviceaccount:default:app"));
    assert_eq!(stage.names.of(HOST), [side.address]);
    for (name, _) in EXTENSIONS {
        let object = stage.object(side, "extensions", name).unwrap();
        assert_eq!(object["status"]["state"], json!({"of": "the extension"}), "{name}");
    }

    // The backups are in the bucket of this seed, and only there.
    let name = stage.entry_name();
    let entry = stage.entry(&name).unwrap();
    assert_eq!(entry["spec"], json!({"bucketName": side.bucket(), "seedName": side.name()}));
    assert_eq!(
        (text(&entry, "/status/seedName"), &entry["status"]["lastError"]),
        (side.name(), &Value::Null)
    );
    assert!(stage.object(side, "backupentries", &name).is_some());
    wait_for("the end of the source's entry", || {
        stage.entry(&format!("source-{name}")).is_none().then_some(())
    });
}

/// Nothing of the Shoot is left on the seed that it has left, nor in its bucket.
pub(crate) fn has_left(stage: &Stage, side: &Side) {
    assert_eq!(side.left(), [""; 0]);
    wait_for("the end of the old snapshots", || stage.snapshots(side).is_empty().then_some(()));
    assert!(side.site.server(&technical_id(NAME)).is_none());
}

/// Moves it, and returns when it is restored. Looks at the border between both operations.
pub(crate) fn moved(stage: &Stage, from: &Side, to: &Side) {
    stage.bind(to);
    let migrated = stage.garden().wait_for("the end of the migration", |_| {
        stage.check();
        let state = stage.garden().store().read();
        let mut shoots = state.since(state.compacted).filter(|change| change.id.is_of(CORE, "shoots"));
        let is_it = |shoot: &Value| {
            let last = support::shoot::history::Operation::of(shoot);
            last.is_some_and(|last| last.line() == MIGRATED) && text(shoot, "/status/seedName") == to.name()
        };
        shoots.find(|change| is_it(&change.after)).map(|change| change.after.clone())
    });
    assert_eq!(
        text(&migrated, "/status/lastOperation/description"),
        "Shoot cluster has been successfully prepared for migration."
    );
    let restored = stage.until(RESTORED);
    assert_eq!(
        text(&restored, "/status/lastOperation/description"),
        "Shoot cluster has been successfully restored."
    );
    assert!(stage.was_ready("True"));
    for reason in ["PrepareMigration", "MigrationPrepared"] {
        let is_told = || stage.events().iter().any(|event| event == reason).then_some(());
        wait_for(&format!("event {reason} of {}", from.name()), is_told);
    }
    // Nothing keeps the ShootState any longer.
    let is_free = || {
        let state = stage.garden().get(CORE, "shootstates", PLACE.0, PLACE.1);
        state.is_none_or(|state| list(&state, "/metadata/finalizers").is_empty()).then_some(())
    };
    wait_for("the end of the finalizer of the ShootState", is_free);
}

/// What the agent does with extensions and with the API server in an operation: the place in the moments of [`EXTENSIONS`], the request
/// for an extension, its annotation, and the request for the Deployment.
struct Moment(usize, &'static str, &'static str, &'static str);

const RESTORES: Moment = Moment(0, "POST", "wait-for-state", "POST");
const MIGRATES: Moment = Moment(1, "PATCH", "migrate", "DELETE");
const DELETES: Moment = Moment(2, "DELETE", "", "DELETE");

/// Each extension has acted at its moment since a mark: before the API server began or ended, or after that.
fn acted_in_order(seed: &TestCluster, mark: usize, moment: &Moment) {
    let Moment(place, method, asks, server) = moment;
    let all = seed.requests_since(mark);
    let first = |method: &str, resource: &str, name: &str, asks: &str| {
        let is_it = |seen: &Recorded| {
            let of_body = |field: &str| seen.body.as_ref().map_or("", |body| text(body, field));
            let named = [&seen.info.name, of_body("/metadata/name")].contains(&name);
            let is_own = seen.user == AGENT && seen.info.subresource.is_empty();
            let asked = of_body("/metadata/annotations/gardener.cloud~1operation");
            is_own && named && seen.method == method && seen.info.resource == resource && asked == asks
        };
        let found = all.iter().position(is_it);
        found.unwrap_or_else(|| panic!("{method} {resource} {name} {asks}"))
    };
    let server = first(server, "deployments", "kube-apiserver", "");
    for (name, moments) in EXTENSIONS {
        let is_before = first(method, "extensions", name, asks) < server;
        assert_eq!(is_before, moments[*place] == BEFORE, "{name} {method} {asks}");
    }
}

#[test]
fn a_moving_shoot_keeps_its_data_and_comes_back() {
    let stage = Stage::start("move-there", "move-back");
    let before = created(&stage);
    let (a, b) = (&stage.a, &stage.b);
    let writer = Writer::start(stage.owner());
    wait_for("some writes", || (writer.count() > 20).then_some(()));
    let mark = a.seed().request_count();
    moved(&stage, a, b);
    let count = writer.count();
    wait_for("writes to the new place", || (writer.count() > count + 20).then_some(()));
    is_at(&stage, b, &before);
    has_left(&stage, a);
    acted_in_order(a.seed(), mark, &MIGRATES);
    acted_in_order(b.seed(), 0, &RESTORES);
    let last = b.site.server(&technical_id(NAME)).unwrap().cluster.store().read().revision;
    assert!(last > RAISE, "{last}");

    moved(&stage, b, a);
    let count = writer.count();
    wait_for("writes to the first place", || (writer.count() > count + 20).then_some(()));
    is_at(&stage, a, &before);
    has_left(&stage, b);
    let written = writer.end();
    assert_eq!(missing(a, &written), [""; 0]);

    let mark = a.seed().request_count();
    let confirmed = json!({"metadata": {"annotations": {"confirmation.gardener.cloud/deletion": "true"}}});
    stage.garden().merge(CORE, "shoots", PLACE, &confirmed);
    stage.garden().delete(CORE, "shoots", PLACE.0, PLACE.1);
    stage.garden().wait_for("the end of the Shoot", |garden| {
        garden.get(CORE, "shoots", PLACE.0, PLACE.1).is_none().then_some(())
    });
    acted_in_order(a.seed(), mark, &DELETES);
    stage.end();
}

#[test]
fn a_hibernated_shoot_keeps_its_data() {
    if !is_long() {
        return;
    }
    let stage = Stage::start("move-asleep", "move-dream");
    let before = created(&stage);
    let writer = Writer::start(stage.owner());
    wait_for("some writes", || (writer.count() > 20).then_some(()));
    let written = writer.end();
    let sleep = |hibernated: bool| {
        let spec = json!({"spec": {"hibernation": {"enabled": hibernated}}});
        stage.garden().merge(CORE, "shoots", PLACE, &spec);
        stage.until("Reconcile Succeeded 100");
    };
    sleep(true);
    moved(&stage, &stage.a, &stage.b);
    // It is awake when it has arrived, and is hibernated again at once.
    let asleep = stage.until("Reconcile Succeeded 100");
    assert_eq!(asleep["status"]["hibernated"], true);
    let pods = stage.b.seed().store().names("", "pods", &technical_id(NAME));
    assert_eq!(pods, [""; 0]);
    has_left(&stage, &stage.a);
    sleep(false);
    is_at(&stage, &stage.b, &before);
    assert_eq!(missing(&stage.b, &written), [""; 0]);
    stage.end();
}

/// Whatever the agents do with the request.
#[test]
fn two_agents_serve_one_garden() {
    if !is_long() {
        return;
    }
    let stage = Stage::start("side-a", "side-b");
    let before = created(&stage);
    let (a, b) = (&stage.a, &stage.b);
    is_at(&stage, a, &before);
    assert_ne!(a.bucket(), b.bucket());
    let versions = [a, b].map(|side| {
        let seed = stage.garden().get(CORE, "seeds", "", side.name()).unwrap();
        text(&seed, "/status/gardener/version").to_owned()
    });
    assert_eq!(versions[0], versions[1]);
    assert_eq!(b.left(), [""; 0]);
    let secret = a.seed().get("", "secrets", &technical_id(NAME), "etcd-backup").unwrap();
    let bucket = support::encoding::from_base64(text(&secret, "/data/bucketName")).unwrap();
    assert_eq!(String::from_utf8(bucket).unwrap(), a.bucket());

    let writer = Writer::start(stage.owner());
    wait_for("some writes", || (writer.count() > 5).then_some(()));
    let written = writer.end();
    assert_eq!(missing(a, &written), [""; 0]);
    assert_eq!(stage.etcds.ledger.serving(text(&stage.shoot(), "/status/uid")).len(), 1);

    // The other Seed is ready for it, and both agents see it. But a Bastion belongs to its seed.
    let bastion = json!({"apiVersion": "operations.gardener.cloud/v1alpha1", "kind": "Bastion", "metadata": {"name": "b1", "namespace": PLACE.0},
        "spec": {"shootRef": {"name": NAME}, "seedName": a.name()}});
    let id = Id::new("operations.gardener.cloud", "bastions", PLACE.0, "b1");
    stage.garden().store().write(|state| drop(state.put(id, bastion)));
    stage.bind(b);
    stage.garden().wait_for("the constraint", |_| stage.was_ready("True").then_some(()));
    for side in [a, b] {
        let label = format!("name.seed.gardener.cloud/{}", side.name());
        assert_eq!(stage.shoot()["metadata"]["labels"][label], "true");
    }
    stage.wait_for("the refusal of the move", |shoot| {
        let mut errors = list(shoot, "/status/lastErrors").iter();
        errors.any(|error| {
            text(error, "/description").contains("shoot has still Bastions: delete b1")
                && text(error, "/taskID") == "initializeOperation"
        })
    });
    wait_for("the event of the refusal", || {
        stage.events().iter().any(|event| event == "MigrationPreparationFailed").then_some(())
    });
    assert_eq!(b.left(), [""; 0]);
    assert!(stage.entry(&stage.entry_name()).unwrap()["spec"]["seedName"] == a.name());
    stage.check();
}
