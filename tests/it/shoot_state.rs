//! A ShootState on its way from one seed to another: what is written, what is refused, and what the other seed makes of it.

use std::sync::Arc;
use std::time::Duration;

use gardenlet::api::core::SECRET;
use gardenlet::api::meta::Key;
use gardenlet::base::clock::{Clock, Simulated, Timestamp};
use gardenlet::components::crds::{self, Foreign};
use gardenlet::kube::{self, Seed};
use gardenlet::secrets::{Options, SecretConfig, Secrets, SecretsLocation, SecretsRotation, TokenUser};
use gardenlet::shoot::state;
use serde_json::{Value, json};

use crate::world::CORE;
use support::TestCluster;
use support::cluster::Options as ClusterOptions;
use support::garden::Garden;
use support::http::record::Recorded;
use support::json::{list, text};
use support::keys::FixtureKeys;

const GROUP: &str = "extensions.gardener.cloud";
const MACHINES: &str = "machine.sapcloud.io";
const PROJECT: &str = "garden-p";
const NAME: &str = "s1";
const PLANE: &str = "shoot--p--s1";
const ENTRY: &str = "shoot--p--s1--uid-1";
/// Kind, plural, name and purpose of an object for each kind with a state.
const OBJECTS: [(&str, &str, &str, Option<&str>); 10] = [
    ("BackupEntry", "backupentries", ENTRY, None),
    ("ContainerRuntime", "containerruntimes", "gvisor", None),
    ("ControlPlane", "controlplanes", NAME, None),
    ("DNSRecord", "dnsrecords", "s1-external", None),
    ("Extension", "extensions", "lab", None),
    ("Infrastructure", "infrastructures", NAME, None),
    ("Network", "networks", NAME, None),
    ("OperatingSystemConfig", "operatingsystemconfigs", "pool", Some("reconcile")),
    ("SelfHostedShootExposure", "selfhostedshootexposures", NAME, None),
    ("Worker", "workers", NAME, None),
];

/// A garden and the seed that a Shoot leaves.
struct Lab {
    clock: Clock,
    time: Arc<Simulated>,
    garden: Garden,
    seed: TestCluster,
}

impl Lab {
    fn new(name: &str) -> Self {
        let time = Simulated::new(Timestamp::from_unix(1_795_352_540), 1);
        let clock = Clock::new(time.clone());
        let garden = Garden::start(&clock);
        garden.create("v1", "namespaces", &json!({"metadata": {"name": PROJECT}}));
        let seed = seed(name, &clock);
        Self { clock, time, garden, seed }
    }

    fn garden(&self) -> kube::Garden {
        kube::Garden(self.garden.client())
    }

    fn seed(&self) -> Seed {
        Seed(self.seed.client())
    }

    fn persist(&self, shoot: &Value) -> Result<(), String> {
        let now = self.clock.now();
        state::persist(&self.garden(), &self.seed(), shoot, now).map_err(|failed| failed.text)
    }

    fn verify(&self, shoot: &Value) -> Result<(), String> {
        state::verify(&self.garden(), &self.seed(), shoot).map_err(|failed| failed.text)
    }

    fn stored(&self) -> Value {
        self.garden.get(CORE, "shootstates", PROJECT, NAME).unwrap()
    }

    /// Changes the spec of the ShootState.
    fn spoil(&self, change: impl Fn(&mut Value)) {
        let mut spec = self.stored()["spec"].clone();
        change(&mut spec);
        self.garden.merge(CORE, "shootstates", (PROJECT, NAME), &json!({"spec": spec}));
    }

    fn put(&self, api_version: &str, plural: &str, object: &Value) {
        self.seed.create(api_version, plural, object);
    }

    /// An object with a state.
    fn put_extension(&self, (kind, plural, name, purpose): (&str, &str, &str, Option<&str>), status: &Value) {
        let namespace = if kind == "BackupEntry" { "" } else { PLANE };
        let mut object = json!({"apiVersion": format!("{GROUP}/v1alpha1"), "kind": kind, "metadata": {"name": name},
            "spec": spec(kind)});
        if !namespace.is_empty() {
            object["metadata"]["namespace"] = json!(namespace);
        }
        if let Some(purpose) = purpose {
            object["spec"]["purpose"] = json!(purpose);
        }
        self.put(&format!("{GROUP}/v1alpha1"), plural, &object);
        self.seed.merge_status(GROUP, plural, (namespace, name), &json!({"status": status}));
    }

    /// The lists of the seed since a mark, by resource.
    fn lists(&self, mark: usize) -> Vec<String> {
        let requests = self.seed.requests_since(mark);
        let lists = requests.iter().filter(|r| r.info.verb == "list");
        lists.map(|r| r.info.resource.clone()).collect()
    }
}

fn seed(name: &str, clock: &Clock) -> TestCluster {
    let seed = TestCluster::start(ClusterOptions::new(name, clock));
    seed.apply(&crds::extensions().collect::<Vec<_>>());
    for (_, plural, ..) in OBJECTS {
        seed.wait_for("a kind of extensions", |seed| seed.api().kind(GROUP, plural).map(drop));
    }
    seed.create("v1", "namespaces", &json!({"metadata": {"name": PLANE}}));
    seed
}

/// The fields that the kind requires.
fn spec(kind: &str) -> Value {
    let secret = json!({"name": "cloudprovider", "namespace": PLANE});
    match kind {
        "BackupEntry" => json!({"type": "lab", "region": "r", "bucketName": "b", "secretRef": secret}),
        "ContainerRuntime" => {
            json!({"type": "lab", "binaryPath": "/bin", "workerPool": {"name": "pool", "selector": {}}})
        }
        "ControlPlane" => json!({"type": "lab", "region": "r", "secretRef": secret}),
        "DNSRecord" => {
            json!({"type": "lab", "secretRef": secret, "name": "api.s1.example.org", "recordType": "A",
            "values": ["192.0.2.1"]})
        }
        "Infrastructure" => json!({"type": "lab", "region": "r", "secretRef": secret}),
        "Network" => json!({"type": "lab", "podCIDR": "10.0.0.0/16", "serviceCIDR": "10.1.0.0/16"}),
        "OperatingSystemConfig" => json!({"type": "lab", "purpose": "reconcile"}),
        "SelfHostedShootExposure" => json!({"type": "lab", "endpoints": [], "port": 443}),
        "Worker" => json!({"type": "lab", "region": "r", "secretRef": secret, "pools": []}),
        _ => json!({"type": "lab"}),
    }
}

fn shoot(workers: &Value) -> Value {
    json!({"metadata": {"name": NAME, "namespace": PROJECT}, "spec": {"provider": {"type": "lab", "workers": workers}},
        "status": {"technicalID": PLANE, "uid": "uid-1"}})
}

fn workerless() -> Value {
    shoot(&Value::Null)
}

fn kept() -> Options {
    Options { persist: true, keep_old: true, ..Options::default() }
}

/// Keys of each kind that a migration keeps.
fn wanted() -> [(SecretConfig, Options); 5] {
    let name = str::to_owned;
    let authority = |of: &str| SecretConfig::Ca { name: name(of), common_name: name(of), validity: None };
    let user = TokenUser { username: name("probe"), user_id: name("probe"), groups: vec![] };
    [
        (authority("ca"), kept()),
        (authority("ca-client"), kept()),
        (SecretConfig::RsaKey { name: name("service-account-key"), bits: 4_096, for_ssh: false }, kept()),
        (
            SecretConfig::EncryptionKey { name: name("encryption-key"), provider: String::new(), length: 32 },
            kept(),
        ),
        (
            SecretConfig::StaticToken { name: name("static-token"), tokens: [(name("probe"), user)].into() },
            Options { persist: true, ..Options::default() },
        ),
    ]
}

fn location(seed: &TestCluster, clock: &Clock, keys: &Arc<FixtureKeys>) -> SecretsLocation {
    SecretsLocation {
        client: Seed(seed.client()),
        namespace: PLANE.to_owned(),
        identity: "gardenlet".to_owned(),
        keys: keys.clone(),
        clock: clock.clone(),
    }
}

/// Asks the secrets manager for all keys. Returns current and previous ones.
fn ask(location: SecretsLocation, initiated: &[(&str, Timestamp)]) -> Vec<Value> {
    let initiated = initiated.iter().map(|(name, at)| ((*name).to_owned(), *at)).collect();
    let rotation = SecretsRotation { initiated, ..SecretsRotation::default() };
    let mut secrets = Secrets::load(location, &rotation).unwrap();
    let all = wanted().map(|(config, options)| {
        secrets.ensure(&config, &options).unwrap().unwrap();
        let set = secrets.get(config.name()).unwrap();
        let content =
            |secret: &gardenlet::secrets::StoredSecret| json!([secret.name, secret.labels, secret.data]);
        json!([content(&set.current), set.old.as_deref().map(content)])
    });
    all.into()
}

#[test]
fn another_seed_adopts_all_keys_and_makes_none() {
    let lab = Lab::new("shoot-state-keys");
    let keys = Arc::new(FixtureKeys::default());
    ask(location(&lab.seed, &lab.clock, &keys), &[]);
    // In the middle of a rotation there are two of some.
    lab.time.advance(Duration::from_secs(3_600));
    let now = lab.clock.now();
    let rotated = [("ca", now), ("service-account-key", now), ("encryption-key", now)];
    let before = ask(location(&lab.seed, &lab.clock, &keys), &rotated);
    assert_eq!(before.iter().filter(|set| !set[1].is_null()).count(), 3, "{before:?}");
    // Certificates are signed again, and others have Secrets, too.
    lab.put(
        "v1",
        "secrets",
        &json!({"metadata": {"name": "leaf", "namespace": PLANE}, "data": {"a": "Yg=="}}),
    );
    lab.persist(&workerless()).unwrap();
    assert_eq!(list(&lab.stored(), "/spec/gardener").len(), 8);

    let target = seed("shoot-state-target", &lab.clock);
    let state = state::needed(&lab.garden(), &Key::new(PROJECT, NAME)).unwrap();
    let create =
        || state::create_secrets(&Seed(target.client()), PLANE, &state).map_err(|failed| failed.text);
    lab.time.advance(Duration::from_secs(3_600));
    create().unwrap();
    assert_eq!(target.store().list("", "secrets", PLANE).len(), 8);
    let (mark, others) = (target.request_count(), Arc::new(FixtureKeys::default()));
    let after = ask(location(&target, &lab.clock, &others), &rotated);
    assert_eq!(after, before);
    let created = |r: &&Recorded| r.is_write() && r.status < 300;
    let written: Vec<String> =
        target.requests_since(mark).iter().filter(created).map(|r| r.path.clone()).collect();
    // A bundle only repeats what is there. Nothing else is created, labelled or replaced.
    assert_eq!(written.len(), 3, "{written:?}");
    let bundles: Vec<Value> = target.store().list("", "secrets", PLANE);
    let is_bundle = |s: &&Value| text(s, "/metadata/name").contains("-bundle-");
    assert_eq!((bundles.iter().filter(is_bundle).count(), others.taken()), (3, 0));

    // A second time, nothing is created. A CA of somebody else is neither used nor replaced.
    create().unwrap();
    let name = text(&before[1], "/0/0").to_owned();
    target.delete("", "secrets", PLANE, &name);
    let other = json!({"metadata": {"name": name, "namespace": PLANE}, "data": {"ca.crt": "YQ=="}});
    target.create("v1", "secrets", &other);
    let error = create().unwrap_err();
    assert!(error.contains(&format!("Secret {PLANE}/{name} of the seed has other data")), "{error}");
}

#[test]
fn a_shoot_without_a_state_is_not_restored() {
    let lab = Lab::new("shoot-state-none");
    let key = Key::new(PROJECT, NAME);
    assert!(state::find(&lab.garden(), &key).unwrap().is_none());
    let error = state::needed(&lab.garden(), &key).unwrap_err().text;
    assert!(error.contains("no ShootState garden-p/s1") && error.contains("from a backup"), "{error}");
    let error = lab.verify(&workerless()).unwrap_err();
    assert!(error.contains("no ShootState garden-p/s1"), "{error}");

    // What an older Gardener has written is refused before anything is created.
    let entry = |name: &str, data: Value| json!({"name": name, "type": "secret", "labels": {}, "data": data});
    let entries = [entry("a", json!({"data": {"k": "dg=="}})), entry("ca", json!({"ca.crt": "YQ=="}))];
    let object = json!({"metadata": {"name": NAME, "namespace": PROJECT}, "spec": {"gardener": entries}});
    lab.garden.create(&format!("{CORE}/v1beta1"), "shootstates", &object);
    let state = state::needed(&lab.garden(), &key).unwrap();
    let error = state::create_secrets(&lab.seed(), PLANE, &state).unwrap_err().text;
    assert!(error.contains("Secret \"ca\" of ShootState garden-p/s1"), "{error}");
    assert!(lab.seed.store().list("", "secrets", PLANE).is_empty());
}

#[test]
fn states_of_all_kinds_are_kept_and_read_back() {
    let lab = Lab::new("shoot-state-kinds");
    let shoot = workerless();
    for (index, object) in OBJECTS.into_iter().enumerate() {
        lab.put_extension(object, &json!({"state": {"number": index}}));
    }
    // Others of the seed, and one that says nothing.
    lab.put_extension(
        ("BackupEntry", "backupentries", "shoot--p--s2--uid-2", None),
        &json!({"state": {"number": 1}}),
    );
    lab.put_extension(("Extension", "extensions", "quiet", None), &json!({"conditions": []}));
    let ca = json!({"metadata": {"name": "ca", "namespace": PLANE, "labels": {"persist": "true"}}, "data": {"a": "Yg=="}});
    lab.put("v1", "secrets", &ca);
    lab.persist(&shoot).unwrap();
    let stored = lab.stored();
    let found: Vec<(&str, &str, Option<&str>)> = list(&stored, "/spec/extensions")
        .iter()
        .map(|entry| (text(entry, "/kind"), text(entry, "/name"), entry["purpose"].as_str()))
        .collect();
    let expected: Vec<_> = OBJECTS.iter().map(|(kind, _, name, purpose)| (*kind, *name, *purpose)).collect();
    assert_eq!(found, expected);
    lab.verify(&shoot).unwrap();

    // Each difference is named.
    type Change = fn(&mut Value);
    let changes: [(Change, &str); 4] = [
        (|spec| drop(spec["extensions"].as_array_mut().unwrap().remove(3)), "DNSRecord s1-external"),
        (|spec| spec["extensions"][4]["state"] = json!({}), "the state of Extension lab"),
        (|spec| spec["gardener"][0]["data"]["data"]["a"] = json!("Yw=="), "the data of secret ca"),
        (|spec| spec["gardener"] = json!([]), "secret ca"),
    ];
    for (change, expected) in changes {
        lab.spoil(change);
        let error = lab.verify(&shoot).unwrap_err();
        assert!(error.contains(&format!(": {expected};")), "{error}");
        lab.persist(&shoot).unwrap();
    }

    // A try before this one has deleted objects: their states stay.
    lab.seed.delete(GROUP, "dnsrecords", PLANE, "s1-external");
    lab.seed.delete("", "secrets", PLANE, "ca");
    lab.seed.merge_status(GROUP, "extensions", (PLANE, "lab"), &json!({"status": {"state": {"number": 99}}}));
    assert!(lab.verify(&shoot).unwrap_err().contains("the state of Extension lab"));
    lab.persist(&shoot).unwrap();
    let again = lab.stored();
    assert_eq!(again["spec"]["gardener"], stored["spec"]["gardener"]);
    let (before, after) = (list(&stored, "/spec/extensions"), list(&again, "/spec/extensions"));
    assert_eq!((after.len(), &after[3], &after[4]["state"]), (10, &before[3], &json!({"number": 99})));
}

/// A control plane that was made anew has keys with the same names.
#[test]
fn a_key_of_the_shoot_state_is_never_replaced() {
    let lab = Lab::new("shoot-state-keys");
    let key = |data: &str| {
        json!({"metadata": {"name": "ca", "namespace": PLANE, "labels": {"name": "ca", "persist": "true"}},
            "data": {"ca.key": data}, "immutable": true})
    };
    lab.put("v1", "secrets", &key("Yg=="));
    lab.persist(&workerless()).unwrap();
    let before = lab.stored();
    lab.seed.delete("", "secrets", PLANE, "ca");
    lab.put("v1", "secrets", &key("Yw=="));
    let error = lab.persist(&workerless()).unwrap_err();
    for words in [PLANE, "ShootState garden-p/s1", ": ca; ", "bind the Shoot to this seed again"] {
        assert!(error.contains(words), "{words}: {error}");
    }
    assert_eq!(lab.stored(), before);
    // The other remedy: those of the seed are right.
    lab.spoil(|spec| spec["gardener"] = json!([]));
    lab.persist(&workerless()).unwrap();
    assert_eq!(lab.stored()["spec"]["gardener"][0]["data"]["data"]["ca.key"], "Yw==");
}

#[test]
fn kinds_that_the_seed_does_not_serve_have_no_states() {
    let lab = Lab::new("shoot-state-few");
    for (_, plural, ..) in OBJECTS.iter().filter(|(kind, ..)| *kind != "Extension") {
        lab.seed.delete(
            "apiextensions.k8s.io",
            "customresourcedefinitions",
            "",
            &format!("{plural}.{GROUP}"),
        );
    }
    lab.put_extension(("Extension", "extensions", "lab", None), &json!({"state": {"number": 1}}));
    lab.persist(&shoot(&json!([{"name": "pool"}]))).unwrap();
    assert_eq!(list(&lab.stored(), "/spec/extensions").len(), 1);
}

#[test]
fn an_incomplete_state_stops_the_migration() {
    let lab = Lab::new("shoot-state-incomplete");
    let refer = |version: &str, kind: &str, name: &str| {
        let resources =
            json!([{"name": "own", "resourceRef": {"apiVersion": version, "kind": kind, "name": name}}]);
        let status = json!({"status": {"state": {"all": null, "number": 1}, "resources": resources}});
        lab.seed.merge_status(GROUP, "extensions", (PLANE, "lab"), &status);
        lab.persist(&workerless())
    };
    lab.put_extension(
        ("Extension", "extensions", "lab", None),
        &json!({"state": {"all": "x".repeat(1_400_000)}}),
    );
    let error = lab.persist(&workerless()).unwrap_err();
    assert!(
        error.contains("the state of Extension lab: it has 14") && error.contains("make room"),
        "{error}"
    );
    let error = refer("apps/v1", "Deployment", "d").unwrap_err();
    assert!(error.contains("Deployment d") && error.contains("only Secrets and ConfigMaps"), "{error}");
    let error = refer("v1", "Secret", "own").unwrap_err();
    assert!(error.contains("Secret own: it is not in namespace shoot--p--s1"), "{error}");
    assert_eq!(lab.garden.get(CORE, "shootstates", PROJECT, NAME), None);

    // The Secret exists, and another seed creates it for the extension.
    let metadata = json!({"name": "own", "namespace": PLANE, "labels": {"of": "lab"}});
    lab.put("v1", "secrets", &json!({"metadata": metadata, "data": {"a": "Yg=="}}));
    refer("v1", "Secret", "own").unwrap();
    let target = seed("shoot-state-other", &lab.clock);
    let client = Seed(target.client());
    target.create("v1", "namespaces", &json!({"metadata": {"name": "elsewhere"}}));
    let state = state::needed(&lab.garden(), &Key::new(PROJECT, NAME)).unwrap();
    let memory = state::extension_state(&state, "Extension", "lab", None);
    for _ in 0..2 {
        state::create_resources(&client, "elsewhere", &state, &memory).unwrap();
    }
    let own = client.get::<Value>(&SECRET, &Key::new("elsewhere", "own")).unwrap();
    assert_eq!((&own["data"], &own["metadata"]["labels"]), (&json!({"a": "Yg=="}), &json!({"of": "lab"})));

    // An extension may have changed it since.
    target.merge("", "secrets", ("elsewhere", "own"), &json!({"data": {"a": "Yw=="}}));
    state::create_resources(&client, "elsewhere", &state, &memory).unwrap();
    assert_eq!(target.get("", "secrets", "elsewhere", "own").unwrap()["data"], json!({"a": "Yw=="}));
}

#[test]
fn the_state_of_machines_is_never_dropped() {
    let lab = Lab::new("shoot-state-machines");
    let workers = shoot(&json!([{"name": "pool"}]));
    let machine_state = |state: &Value| {
        list(state, "/spec/gardener").iter().find(|entry| entry["type"] == "machine-state").cloned()
    };
    // Without the kinds there is none.
    lab.persist(&workers).unwrap();
    assert_eq!(machine_state(&lab.stored()), None);
    let kinds = Foreign { is_garden: false, vpa: false, machines: true, etcd: false };
    lab.seed.apply(&crds::foreign(kinds).collect::<Vec<_>>());
    let version = format!("{MACHINES}/v1alpha1");
    for plural in ["machinedeployments", "machinesets", "machines"] {
        lab.seed.wait_for("a kind of machines", |seed| seed.api().kind(MACHINES, plural).map(drop));
    }
    lab.persist(&workers).unwrap();
    assert_eq!(machine_state(&lab.stored()), None);
    let put = |kind: &str, plural: &str, name: &str, labels: Value, spec: Value| {
        let metadata = json!({"name": name, "namespace": PLANE, "labels": labels});
        let object = json!({"apiVersion": version, "kind": kind, "metadata": metadata, "spec": spec});
        lab.put(&version, plural, &object);
    };
    put("MachineDeployment", "machinedeployments", "pool-z1", json!({}), json!({"replicas": 1}));
    put("MachineSet", "machinesets", "pool-z1-abc", json!({"name": "pool-z1"}), json!({"replicas": 1}));
    let labels = json!({"name": "pool-z1", "node": "node-1"});
    put("Machine", "machines", "pool-z1-abc-1", labels, json!({"providerID": "lab:///1"}));
    // A Shoot without workers has no machines, and nobody looks for them.
    let mark = lab.seed.request_count();
    lab.persist(&workerless()).unwrap();
    assert!(!lab.lists(mark).iter().any(|resource| resource.starts_with("machine")));
    assert_eq!(machine_state(&lab.stored()), None);
    lab.persist(&workers).unwrap();
    let entry = machine_state(&lab.stored()).unwrap();
    assert!(!text(&entry, "/data/state").is_empty(), "{entry}");
    lab.verify(&workers).unwrap();
    // They are gone from the seed, but the other seed must know them.
    lab.seed.delete(MACHINES, "machinedeployments", PLANE, "pool-z1");
    lab.persist(&workers).unwrap();
    assert_eq!(machine_state(&lab.stored()), Some(entry));
}
