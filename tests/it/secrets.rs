//! The secrets manager of a namespace against the in-process server: what it writes, and what it does not touch.

// Test code outside of test functions.
#![allow(clippy::panic, clippy::unwrap_used)]

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use gardenlet::base::clock::{Clock, Simulated, Timestamp};
use gardenlet::flow::Failed;
use gardenlet::format::base64;
use gardenlet::kube::{Client, Connection, Options as ClientOptions, Seed};
use gardenlet::pki::issue::{
    Authority, CertificateIssuer, CertificateTemplate, KeyUsage, ServerNames, common_name,
};
use gardenlet::pki::keys::RsaKeys;
use gardenlet::pki::{AnyKey, Certificate};
use gardenlet::runtime::fence::Fence;
use gardenlet::secrets::{
    Error, Options, SecretConfig, Secrets, SecretsLocation, SecretsRotation, StoredSecret, TokenUser,
};
use serde_json::{Value, json};

use support::http::record::Recorded;
use support::json::text;
use support::keys::FixtureKeys;
use support::{Options as ClusterOptions, TestCluster};

const NAMESPACE: &str = "garden";
const HOUR: Duration = Duration::from_secs(3_600);
const DAY: Duration = Duration::from_secs(24 * 3_600);

struct Rig {
    seed: TestCluster,
    time: Arc<Simulated>,
    keys: Arc<FixtureKeys>,
    place: SecretsLocation,
}

impl Rig {
    fn new(name: &str) -> Self {
        let time = Simulated::new(Timestamp::from_unix(1_795_352_540), 1);
        let clock = Clock::new(time.clone());
        let seed = TestCluster::start(ClusterOptions::new(name, &clock));
        seed.create("v1", "namespaces", &json!({"metadata": {"name": NAMESPACE}}));
        let keys = Arc::new(FixtureKeys::default());
        let place = SecretsLocation {
            client: client(&seed, &clock, None),
            namespace: NAMESPACE.to_owned(),
            identity: "gardenlet".to_owned(),
            keys: keys.clone(),
            clock,
        };
        Self { seed, time, keys, place }
    }

    fn load(&self) -> Secrets {
        let rotation = SecretsRotation { renews_cas: true, ..SecretsRotation::default() };
        Secrets::load(self.place.clone(), &rotation).unwrap()
    }

    /// One run of a flow that needs a CA, a server and a client; returns the names of the Secrets by configuration.
    fn run(&self) -> BTreeMap<&'static str, String> {
        let mut secrets = self.load();
        let mut names = BTreeMap::new();
        for (key, config, options) in wanted() {
            let secret = secrets.ensure(&config, &options).unwrap().unwrap();
            names.insert(key, secret.name.clone());
        }
        let set = secrets.get("ca-seed").unwrap();
        names.insert("bundle", set.bundle.as_ref().unwrap().name.clone());
        names.extend(set.old.as_ref().map(|old| ("old", old.name.clone())));
        secrets.clean_up().unwrap();
        names
    }

    fn secret(&self, name: &str) -> Value {
        self.seed.get("", "secrets", NAMESPACE, name).unwrap_or_else(|| panic!("no secret {name}"))
    }

    fn data(&self, name: &str, key: &str) -> String {
        String::from_utf8(
            base64::decode(text(&self.secret(name), &format!("/data/{key}")).as_bytes()).unwrap(),
        )
        .unwrap()
    }

    fn certificate(&self, name: &str) -> Certificate {
        Certificate::parse_pem(&self.data(name, "tls.crt")).unwrap()
    }

    fn names(&self) -> BTreeSet<String> {
        let all = self.place.client.list::<Value>(
            &gardenlet::api::core::SECRET,
            NAMESPACE,
            &gardenlet::kube::request::ListParams::default(),
        );
        all.unwrap().items.iter().map(|secret| text(secret, "/metadata/name").to_owned()).collect()
    }

    /// The requests since a mark: method and the last part of the path.
    fn asked_since(&self, mark: usize) -> Vec<String> {
        let last = |path: &str| path.rsplit('/').next().unwrap_or_default().to_owned();
        let requests = self.seed.requests_since(mark);
        requests.iter().map(|request| format!("{} {}", request.method, last(&request.path))).collect()
    }

    fn create(&self, name: &str, kind: &str, labels: &Value, data: &[(&str, &[u8])]) {
        let data: serde_json::Map<String, Value> =
            data.iter().map(|(key, bytes)| ((*key).to_owned(), json!(base64::encode(bytes)))).collect();
        let metadata = json!({"name": name, "namespace": NAMESPACE, "labels": labels});
        self.seed.create("v1", "secrets", &json!({"metadata": metadata, "type": kind, "data": data}));
    }
}

fn client(seed: &TestCluster, clock: &Clock, lease: Option<&Fence>) -> Seed {
    let identity = seed.client_identity("gardenlet", &["system:masters"]);
    let connection =
        Connection::new(seed.url()).with_ca(seed.ca()).with_certificate(identity.certificate, identity.key);
    let permit = lease.map(|lease| lease.permit(Duration::from_secs(5)));
    let options = ClientOptions { clock: clock.clone(), qps: 0.0, permit, ..ClientOptions::default() };
    Seed(Client::new(connection, options).unwrap())
}

fn ca_seed() -> SecretConfig {
    SecretConfig::Ca {
        name: "ca-seed".to_owned(),
        common_name: "kubernetes".to_owned(),
        validity: Some(30 * DAY),
    }
}

fn ca_options() -> Options {
    Options { persist: true, keep_old: true, ignore_old_after: Some(DAY), ..Options::default() }
}

fn leaf(name: &str, usage: KeyUsage) -> SecretConfig {
    SecretConfig::Leaf {
        name: name.to_owned(),
        common_name: name.to_owned(),
        organizations: vec![],
        usage,
        names: ServerNames::default(),
        validity: Some(100 * DAY),
        skip_ca: false,
        with_chain: false,
    }
}

fn wanted() -> [(&'static str, SecretConfig, Options); 3] {
    let signed = Options { signed_by: Some("ca-seed".to_owned()), ..Options::default() };
    [
        ("ca", ca_seed(), ca_options()),
        ("server", leaf("server", KeyUsage::Server), signed.clone()),
        ("client", leaf("client", KeyUsage::Client), signed),
    ]
}

fn token() -> SecretConfig {
    let user = TokenUser { username: "u".to_owned(), user_id: "u".to_owned(), groups: vec![] };
    SecretConfig::StaticToken { name: "token".to_owned(), tokens: [("u".to_owned(), user)].into() }
}

/// A CA Secret of another program, with the name that the manager gives to a CA without options, and its content.
fn made_elsewhere(config: &SecretConfig) -> StoredSecret {
    let other = Rig::new("secrets-elsewhere");
    let made = other.load().ensure(config, &ca_options()).unwrap().unwrap();
    (*made).clone()
}

#[test]
fn each_secret_is_written_once_and_a_second_run_only_reads() {
    let rig = Rig::new("secrets-made");
    rig.keys.keep_waiting(3);
    let mut secrets = rig.load();
    let mark = rig.seed.request_count();
    for _ in 0..3 {
        assert!(secrets.ensure(&ca_seed(), &ca_options()).unwrap().is_none(), "the key is being generated");
    }
    assert_eq!(rig.keys.taken(), 0);
    let ca = secrets.ensure(&ca_seed(), &ca_options()).unwrap().unwrap();
    let name = ca.name.as_str();
    assert_eq!(name, "ca-seed-fc28a8dd");
    let reads = rig.asked_since(mark).iter().filter(|line| **line == format!("GET {name}")).count();
    assert_eq!(reads, 1, "one read is enough for a wait: {:?}", rig.asked_since(mark));
    let stored = rig.secret(name);
    assert_eq!(stored["metadata"]["labels"], json!(ca.labels));
    let kind = |name: &str| (rig.secret(name)["type"].clone(), rig.secret(name)["immutable"].clone());
    assert_eq!(kind(name), (json!("Opaque"), json!(true)));

    let first = rig.run();
    assert_eq!(kind(&first["server"]), (json!("kubernetes.io/tls"), json!(true)));
    assert_eq!(rig.data(&first["bundle"], "bundle.crt"), rig.data(name, "ca.crt"));
    let writes = rig.seed.requests().iter().filter(|r| r.is_write() && r.path.contains("/secrets")).count();
    assert_eq!((writes, rig.names().len()), (4, 4), "{:?}", rig.asked_since(mark));

    let mark = rig.seed.request_count();
    assert_eq!(rig.run(), first);
    assert_eq!(rig.asked_since(mark), ["GET secrets"]);
    assert_eq!(rig.keys.taken(), 1);
}

#[test]
fn certificates_and_cas_are_renewed_in_time_and_old_cas_removed() {
    let rig = Rig::new("secrets-renewed");
    let first = rig.run();
    rig.time.advance(20 * DAY - HOUR);
    assert_eq!(rig.run(), first, "more than ten days remain, and less than 80 % of 30 days have passed");
    rig.time.advance(2 * HOUR);
    // Two CAs: verifiers trust both, servers keep the certificate of the one that all trust, clients use the new one.
    let second = rig.run();
    assert_eq!(second["old"], first["ca"]);
    assert!(second["ca"].starts_with(&first["ca"]) && second["ca"].len() == first["ca"].len() + 6);
    let both = rig.data(&second["ca"], "ca.crt") + &rig.data(&first["ca"], "ca.crt");
    assert_eq!(rig.data(&second["bundle"], "bundle.crt"), both);
    assert_eq!(second["server"], first["server"]);
    assert_ne!(second["client"], first["client"]);
    let expected = ["ca", "old", "server", "client", "bundle"].map(|key| second[key].clone());
    assert_eq!(rig.names(), expected.into(), "unused Secrets are deleted");
    let mark = rig.seed.request_count();
    rig.time.advance(DAY - 2 * HOUR);
    assert_eq!(rig.run(), second);
    assert_eq!(rig.asked_since(mark), ["GET secrets"]);
    // A day after the renewal the old one is no longer used.
    rig.time.advance(2 * HOUR);
    let third = rig.run();
    assert_eq!((third.get("old"), &third["ca"], &third["client"]), (None, &second["ca"], &second["client"]));
    assert_ne!(third["server"], second["server"]);
    assert_eq!(rig.data(&third["bundle"], "bundle.crt"), rig.data(&third["ca"], "ca.crt"));
    assert_eq!(rig.names().len(), 4);
    // A certificate of 100 days has its own time of renewal, while CAs come and go.
    let mut ends = BTreeSet::new();
    for _ in 0..90 {
        rig.time.advance(DAY);
        let now = rig.place.clock.now();
        let names = rig.run();
        for key in ["server", "client"] {
            assert!(rig.certificate(&names[key]).not_after.since(now) > 10 * DAY, "{key} at {now:?}");
        }
        ends.insert(names["ca"].clone());
    }
    assert_eq!(ends.len(), 5, "one each 20 days: {ends:?}");
}

#[test]
fn a_leaf_is_renewed_while_its_ca_stays() {
    let rig = Rig::new("secrets-leaf");
    let ca = SecretConfig::Ca { name: "ca".to_owned(), common_name: "kubernetes".to_owned(), validity: None };
    let signed = Options { signed_by: Some("ca".to_owned()), ..Options::default() };
    let run = || {
        let mut secrets = rig.load();
        let ca = secrets.ensure(&ca, &ca_options()).unwrap().unwrap();
        let server = secrets.ensure(&leaf("server", KeyUsage::Server), &signed).unwrap().unwrap();
        secrets.clean_up().unwrap();
        (ca.name.clone(), server.name.clone())
    };
    let first = run();
    rig.time.advance(80 * DAY - HOUR);
    assert_eq!(run(), first);
    rig.time.advance(2 * HOUR);
    let second = run();
    assert_eq!((second.0.as_str(), second.1.len()), (first.0.as_str(), first.1.len() + 6));
    rig.time.advance(70 * DAY);
    assert_eq!(run(), second);
    assert_eq!(rig.names().len(), 3);
}

#[test]
fn a_damaged_or_foreign_ca_is_reported_and_not_touched() {
    let good = made_elsewhere(&ca_seed());
    let other = made_elsewhere(&SecretConfig::Ca {
        name: "ca-other".to_owned(),
        common_name: "other".to_owned(),
        validity: None,
    });
    let other_key = include_str!("../fixtures/keys/rsa-3072-4.pem").as_bytes();
    let (labels, crt, key) = (json!(good.labels), good.get("ca.crt"), good.get("ca.key"));
    let table = [
        ("no key", "Opaque", &labels, vec![("ca.crt", crt)], "ca.key: no PEM data"),
        ("no certificate", "Opaque", &labels, vec![("ca.key", key)], "ca.crt: "),
        ("text", "Opaque", &labels, vec![("ca.crt", &b"x"[..]), ("ca.key", key)], "ca.crt: "),
        ("bytes", "Opaque", &labels, vec![("ca.crt", &b"\xff"[..]), ("ca.key", key)], "ca.crt is not text"),
        (
            "another key",
            "Opaque",
            &labels,
            vec![("ca.crt", crt), ("ca.key", other_key)],
            "ca.key does not belong to ca.crt",
        ),
        (
            "another type",
            "example.org/ca",
            &labels,
            vec![("ca.crt", crt), ("ca.key", key)],
            "its type is \"example.org/ca\"",
        ),
        (
            "no labels",
            "Opaque",
            &Value::Null,
            vec![("ca.crt", crt), ("ca.key", key)],
            "label it with name=ca-seed,managed-by=secrets-manager,manager-identity=gardenlet",
        ),
        (
            "labels of another CA",
            "Opaque",
            &json!(other.labels),
            vec![("ca.crt", crt), ("ca.key", key)],
            "has the name of a CA of the secrets manager",
        ),
    ];
    for (case, kind, labels, data, words) in table {
        let rig = Rig::new("secrets-damaged");
        rig.create(&good.name, kind, labels, &data);
        let before = rig.secret(&good.name);
        let mark = rig.seed.request_count();
        for _ in 0..2 {
            let error = rig.load().ensure(&ca_seed(), &ca_options()).unwrap_err();
            let failed = Failed::from(error);
            assert!(failed.text.contains("secret garden/ca-seed-fc28a8dd "), "{case}: {failed}");
            assert!(
                failed.text.contains(words) && failed.text.contains("delete it to get"),
                "{case}: {failed}"
            );
            assert!(failed.postponed.is_none());
        }
        assert!(!rig.seed.requests_since(mark).iter().any(Recorded::is_write), "{case}");
        assert_eq!(rig.secret(&good.name), before, "{case}");
        // As the remedy in the message says.
        rig.seed.delete("", "secrets", NAMESPACE, &good.name);
        rig.load().ensure(&ca_seed(), &ca_options()).unwrap().unwrap();
    }
}

#[test]
fn other_secrets_that_lost_their_labels_are_taken_over_as_upstream_does() {
    let rig = Rig::new("secrets-adopted");
    let mut secrets = rig.load();
    let name = secrets.ensure(&token(), &Options::default()).unwrap().unwrap().name.clone();
    let made = rig.data(&name, "static_tokens.csv");
    rig.seed.delete("", "secrets", NAMESPACE, &name);
    // By its name, without labels, mutable, as from a backup.
    rig.create(&name, "Opaque", &json!({"foreign": "x"}), &[("static_tokens.csv", b"t,u,u,")]);
    let found = rig.load().ensure(&token(), &Options::default()).unwrap().unwrap();
    assert_eq!((found.get("static_tokens.csv"), made == "t,u,u,"), (&b"t,u,u,"[..], false));
    let stored = rig.secret(&name);
    assert_eq!((&stored["immutable"], &stored["metadata"]["labels"]), (&json!(true), &json!(found.labels)));
    assert!(stored["metadata"]["labels"].get("foreign").is_none());
    // Deleted after it was listed, when the agent was about to repair its labels.
    let labels = json!({"metadata": {"labels": {"persist": "true"}}});
    rig.seed.merge("", "secrets", (NAMESPACE, &name), &labels);
    let mut secrets = rig.load();
    rig.seed.delete("", "secrets", NAMESPACE, &name);
    let anew = secrets.ensure(&token(), &Options::default()).unwrap().unwrap();
    assert_eq!(rig.data(&name, "static_tokens.csv").as_bytes(), anew.get("static_tokens.csv"));
    // Another Secret has the data.
    rig.seed.delete("", "secrets", NAMESPACE, &name);
    let lends = json!({"secrets-manager-use-data-for-name": "token"});
    rig.create("older", "Opaque", &lends, &[("static_tokens.csv", b"a,b,c,")]);
    let lent = rig.load().ensure(&token(), &Options::default()).unwrap().unwrap();
    assert_eq!(lent.get("static_tokens.csv"), b"a,b,c,");
    rig.create("oldest", "Opaque", &lends, &[("static_tokens.csv", b"a,b,c,")]);
    rig.seed.delete("", "secrets", NAMESPACE, &name);
    let error = rig.load().ensure(&token(), &Options::default()).unwrap_err();
    assert!(error.to_string().starts_with("secrets garden/older, garden/oldest all have"), "{error}");
}

/// Lets another writer create the Secret, just before the first key is returned.
#[derive(Debug)]
struct Rival {
    place: SecretsLocation,
    keys: FixtureKeys,
    was_quicker: AtomicBool,
    made: Mutex<Option<Arc<StoredSecret>>>,
}

impl RsaKeys for Rival {
    fn take(&self, bits: usize) -> Option<AnyKey> {
        if !self.was_quicker.swap(true, Ordering::SeqCst) {
            let mut secrets = Secrets::load(self.place.clone(), &SecretsRotation::default()).unwrap();
            *self.made.lock().unwrap() = secrets.ensure(&ca_seed(), &ca_options()).unwrap();
        }
        self.keys.take(bits)
    }
}

#[test]
fn the_secret_of_a_quicker_writer_is_used() {
    let rig = Rig::new("secrets-rival");
    let rival = Arc::new(Rival {
        place: rig.place.clone(),
        keys: FixtureKeys::default(),
        was_quicker: AtomicBool::new(false),
        made: Mutex::default(),
    });
    let place = SecretsLocation { keys: rival.clone(), ..rig.place.clone() };
    let ours = Secrets::load(place, &SecretsRotation::default()).unwrap().ensure(&ca_seed(), &ca_options());
    let theirs = rival.made.lock().unwrap().clone().unwrap();
    assert_eq!(ours.unwrap().unwrap(), theirs);
    assert_eq!(rig.names().len(), 2, "the CA and its bundle");
}

#[test]
fn without_the_lease_nothing_is_written_and_no_key_is_lost() {
    let rig = Rig::new("secrets-fenced");
    let lease = Fence::new(rig.place.clock.clone(), "garden/gardenlet-leader-election");
    let client = client(&rig.seed, &rig.place.clock, Some(&lease));
    let place = SecretsLocation { client, ..rig.place.clone() };
    let mut secrets = Secrets::load(place, &SecretsRotation::default()).unwrap();
    for _ in 0..3 {
        let error = secrets.ensure(&ca_seed(), &ca_options()).unwrap_err();
        assert!(matches!(error, Error::Kube { .. }), "{error}");
        let failed = Failed::from(error);
        assert!(failed.text.contains("create secret garden/ca-seed-fc28a8dd"), "{failed}");
        assert_eq!(failed.postponed, Some(Duration::from_secs(1)));
    }
    assert!(rig.names().is_empty());
    lease.extend(rig.place.clock.mono() + 60 * Duration::from_secs(1));
    secrets.ensure(&ca_seed(), &ca_options()).unwrap().unwrap();
    assert_eq!(rig.keys.taken(), 1);
}

/// Secrets that a Go gardenlet wrote for a Shoot, with other keys, and their configurations.
fn golden(rig: &Rig) -> Vec<(String, SecretConfig, Options)> {
    let all: Value = serde_json::from_str(include_str!("../fixtures/golden-secrets.json")).unwrap();
    let mut found = Vec::new();
    for secret in all["created"].as_array().unwrap() {
        let (name, labels) = (text(secret, "/name"), &secret["labels"]);
        let config = labels["name"].as_str().unwrap().to_owned();
        let keeping = Options { persist: true, keep_old: true, ..Options::default() };
        let (config, data, options) = match config.as_str() {
            "service-account-key" => {
                let key = rig.keys.take(4_096).unwrap().to_pem();
                let data = vec![("id_rsa", key)];
                (SecretConfig::RsaKey { name: config, bits: 4_096, for_ssh: false }, data, keeping)
            }
            "kube-apiserver-static-token" => {
                let user = "health-check".to_owned();
                let health = TokenUser { username: user.clone(), user_id: user.clone(), groups: vec![] };
                let data = vec![("static_tokens.csv", "t,health-check,health-check,".to_owned())];
                let tokens = [(user, health)].into();
                let options = Options { persist: true, ..Options::default() };
                (SecretConfig::StaticToken { name: config, tokens }, data, options)
            }
            "kube-apiserver-etcd-encryption-key" => {
                let data = vec![("key", "key1"), ("secret", "s"), ("encoding", "none"), ("provider", "")];
                let data = data.into_iter().map(|(key, value)| (key, value.to_owned())).collect();
                (
                    SecretConfig::EncryptionKey { name: config, provider: String::new(), length: 32 },
                    data,
                    keeping,
                )
            }
            ca if ca.starts_with("ca") && !ca.ends_with("-bundle") => {
                let common_name = match ca {
                    "ca" => "kubernetes",
                    "ca-client" => "kubernetes-client",
                    other => other.trim_start_matches("ca-"),
                };
                let common_name = common_name.to_owned();
                let options = Options { plain_name: ca != "ca-client", ..keeping };
                (
                    SecretConfig::Ca { name: config, common_name, validity: None },
                    ca_pair(rig, secret),
                    options,
                )
            }
            // Other keys give other bundles.
            _ => continue,
        };
        let data: Vec<(&str, &[u8])> = data.iter().map(|(key, value)| (*key, value.as_bytes())).collect();
        rig.create(name, text(secret, "/type"), labels, &data);
        rig.seed.merge("", "secrets", (NAMESPACE, name), &json!({"immutable": true}));
        found.push((name.to_owned(), config, options));
    }
    found
}

/// A CA of the same name and validity.
fn ca_pair(rig: &Rig, secret: &Value) -> Vec<(&'static str, String)> {
    let key = rig.keys.take(3_072).unwrap();
    let time = |label: &str| secret["labels"][label].as_str().unwrap().parse().unwrap();
    let template = CertificateTemplate {
        subject: common_name(text(secret, "/name")),
        names: ServerNames::default(),
        not_before_unix_s: time("issued-at-time"),
        not_after_unix_s: time("valid-until-time"),
        usage: None,
        authority: Authority::CertificatesAndRevocations,
    };
    let certificate = template.sign(&key, &CertificateIssuer::itself(&template, &key).unwrap()).unwrap();
    vec![("ca.crt", certificate), ("ca.key", key.to_pem())]
}

#[test]
fn the_secrets_of_a_go_gardenlet_are_taken_over_unchanged() {
    let rig = Rig::new("secrets-golden");
    let golden = golden(&rig);
    assert_eq!(golden.len(), 9);
    let (keys, mark) = (rig.keys.taken(), rig.seed.request_count());
    let before: Vec<Value> = golden.iter().map(|(name, ..)| rig.secret(name)).collect();
    for _ in 0..2 {
        let mut secrets = Secrets::load(rig.place.clone(), &SecretsRotation::default()).unwrap();
        for (name, config, options) in &golden {
            assert_eq!(secrets.ensure(config, options).unwrap().unwrap().name, *name);
        }
        secrets.clean_up().unwrap();
    }
    let after: Vec<Value> = golden.iter().map(|(name, ..)| rig.secret(name)).collect();
    assert_eq!(before, after);
    assert_eq!(rig.keys.taken(), keys, "no key is generated");
    let writes: Vec<_> = rig.seed.requests_since(mark).into_iter().filter(Recorded::is_write).collect();
    assert_eq!(writes.len(), 7, "the bundles of other keys: {writes:?}");
    assert!(writes.iter().all(|request| request.method == "POST"));
    assert_eq!(rig.names().len(), 9 + 7);
}
