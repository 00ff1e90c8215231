//! Unusual certificates of private installations: which of them the agent accepts, and what the message of a refusal
//! contains.
//!
//! `doctor` connects to an API server and to a registry as the agent does, over a real TLS handshake with the in-process
//! server.

use std::collections::BTreeMap;
use std::time::Duration;

use gardenlet::base::clock::Clock;
use gardenlet::base::random;
use rcgen::{
    BasicConstraints, CertificateParams, CustomExtension, DnType, ExtendedKeyUsagePurpose, GeneralSubtree,
    IsCa, Issuer, KeyPair, KeyUsagePurpose, NameConstraints, SanType, date_time_ymd,
};
use serde_json::{Value, json};

use crate::certificates::{
    Ca, HOST, JUNK, below, ca_params, fixture, issued, key, named, only, root, server, until_2021, with_key,
};
use crate::commands::command;
use crate::world::{self, BUILT, World};
use support::encoding::base64;
use support::garden::prepare;
use support::json::text;
use support::pki::Identity;
use support::{Options, TestCluster};

/// The result of a handshake.
#[derive(Clone, Copy)]
enum Outcome {
    Taken,
    /// Parts of the message and of its remedy.
    Refused(&'static str, &'static str),
    /// The same, but this hop is broken and not the certificate.
    Stopped(&'static str, &'static str, &'static str),
}

use Outcome::{Refused, Stopped, Taken};

const ADD_CA: &str = "put the CA of the server's certificate into certificate-authority-data";
const ANOTHER: &str = "replace the server's certificate";
const OTHER_NAME: &str = "use a name that the certificate contains, or set tls-server-name";
const RENEW: &str = "check the clock of this host; if it is right, renew the server's certificate";
const CORRECT: &str = "correct what the message names";

struct Case {
    what: &'static str,
    /// The server's name in the request; its address if empty.
    name: &'static str,
    shown: Identity,
    trusted: String,
    outcome: Outcome,
}

fn case(what: &'static str, shown: Identity, trusted: &str, outcome: Outcome) -> Case {
    Case { what, name: "", shown, trusted: trusted.to_owned(), outcome }
}

/// A server with any certificate, and `doctor` as its client.
struct Counter {
    cluster: TestCluster,
    folder: std::path::PathBuf,
}

impl Counter {
    fn open(name: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("gardenlet-{name}-{}", random::hex(8)));
        std::fs::create_dir_all(&folder).unwrap();
        Self { cluster: TestCluster::start(Options::new(name, &Clock::system())), folder }
    }

    /// The findings of `doctor` on its way to the server, as API server of the seed and as a registry.
    fn doctor(&self, user: &Value, name: &str, trusted: &str) -> Vec<Value> {
        let address = self.cluster.url().replace("https://", "");
        let write = |file: &str, text: &str| {
            let path = self.folder.join(file);
            std::fs::write(&path, text).unwrap();
            path.display().to_string()
        };
        let mut cluster =
            json!({"server": self.cluster.url(), "certificate-authority-data": base64(trusted.as_bytes())});
        if !name.is_empty() {
            cluster["tls-server-name"] = json!(name);
        }
        let kubeconfig = json!({"apiVersion": "v1", "kind": "Config", "current-context": "c",
            "clusters": [{"name": "c", "cluster": cluster}], "users": [{"name": "c", "user": user}],
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "c"}}]});
        let mut config = prepare::configuration("odd");
        config["edge"] = json!({"stateDir": self.folder.join("state"),
            "registries": [{"host": address, "caFile": write("ca.pem", trusted)}]});
        let config = write("config.yaml", &config.to_string());
        let variables =
            BTreeMap::from([("KUBECONFIG".to_owned(), write("kubeconfig", &kubeconfig.to_string()))]);
        let (_, output, errors) = command(&["doctor", "--config", &config, "-o", "json"], &variables);
        assert_eq!(errors, "");
        let found: Value = serde_json::from_str(&output).unwrap();
        found["checks"].as_array().unwrap().clone()
    }
}

impl Drop for Counter {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// The broken hop at a place, as `hop: text (remedy)`; none if the certificates were accepted.
fn broken(found: &[Value], place: &str) -> Option<[String; 3]> {
    let check =
        found.iter().find(|check| text(check, "/place").starts_with(place) && check["state"] == "broken")?;
    let parts = ["/hop", "/text", "/remedy"].map(|part| text(check, part).to_owned());
    // The identity for the server comes after its certificate.
    (!["authentication", "permissions"].contains(&&*parts[0])).then_some(parts)
}

/// Shows each certificate to the agent, as an API server and, by its address, as a registry.
fn show(cases: impl IntoIterator<Item = Case>) {
    let counter = Counter::open("odd-servers");
    let host = counter.cluster.url().replace("https://", "");
    for Case { what, name, shown, trusted, outcome } in cases {
        counter.cluster.server().set_identity(&shown);
        let found = counter.doctor(&json!({"token": "nobody's"}), name, &trusted);
        let places = ["seed", "registry"];
        for place in &places[..if name.is_empty() { 2 } else { 1 }] {
            let broken = broken(&found, place);
            let (hop, words, remedy) = match outcome {
                Taken => {
                    assert_eq!(broken, None, "{what}, {place}");
                    continue;
                }
                Refused(words, remedy) => ("certificate", words, remedy),
                Stopped(hop, words, remedy) => (hop, words, remedy),
            };
            let [at, message, advice] = broken.unwrap_or_else(|| panic!("{what}, {place}: accepted"));
            assert_eq!(at, hop, "{what}, {place}: {message}");
            assert!(
                message.contains(words) && advice.starts_with(remedy),
                "{what}, {place}: {message} ({advice})"
            );
            // A message has no internals of libraries. The place of a registry is its host.
            assert!(!message.contains(['{', '[']), "{what}, {place}: {message}");
            let told = if *place == "seed" { message.contains(&host) } else { true };
            assert!(told, "{what}, {place}: {message} does not name {host}");
        }
    }
}

#[test]
fn names_and_addresses_of_servers() {
    let ca = root(ca_params("ca"));
    let shows = |name: &'static str, what, params: &CertificateParams, outcome| Case {
        name,
        ..case(what, issued(&ca, params), &ca.pem(), outcome)
    };
    let usual = server(|_| {});
    let wrong = |words| Refused(words, OTHER_NAME);
    let ten = SanType::IpAddress([10, 0, 0, 1].into());
    show([
        shows("", "its address", &usual, Taken),
        shows(HOST, "its name", &usual, Taken),
        shows("API.Garden.test", "its name in another case", &usual, Taken),
        shows(
            "kube.example.org",
            "another name",
            &usual,
            wrong("valid for 127.0.0.1, api.garden.test, not for kube.example.org"),
        ),
        shows(HOST, "a wildcard", &only("*.garden.test"), Taken),
        shows(
            HOST,
            "a wildcard for fewer labels",
            &only("*.test"),
            wrong("valid for *.test, not for api.garden.test"),
        ),
        shows(
            "garden.test",
            "a wildcard for more labels",
            &only("*.garden.test"),
            wrong("valid for *.garden.test, not for garden.test"),
        ),
        shows(
            "",
            "an address, only names",
            &only(HOST),
            wrong("valid for api.garden.test, not for 127.0.0.1"),
        ),
        shows(
            "",
            "an address as a DNS name",
            &only("127.0.0.1"),
            wrong("valid for 127.0.0.1, not for 127.0.0.1 as an IP address"),
        ),
        shows(
            "",
            "another address",
            &server(|p| p.subject_alt_names = vec![ten]),
            wrong("valid for 10.0.0.1, not for 127.0.0.1"),
        ),
        shows(
            "",
            "only a common name",
            &server(|p| p.subject_alt_names.clear()),
            wrong("no subject alternative name"),
        ),
    ]);
}

#[test]
fn chains_and_cas_of_servers() {
    let ca = root(ca_params("ca"));
    let (usual, trusted) = (server(|_| {}), ca.pem());
    let middle = below(&ca, ca_params("middle"));
    let low = below(&middle, ca_params("low"));
    let other = root(ca_params("other"));
    let leaf = || issued(&low, &usual);
    let (old, old_root) = (below(&ca, until_2021(ca_params("old"))), root(until_2021(ca_params("old root"))));
    let (no_ca, strict) = (
        below(&ca, usual.clone()),
        below(&ca, {
            let mut params = ca_params("strict");
            params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
            params
        }),
    );
    let deep = below(&strict, ca_params("deep"));
    let chain = |length: usize| {
        let mut all = vec![root(ca_params("top"))];
        for n in 0..length {
            all.push(below(&all[n], ca_params(&format!("step {n}"))));
        }
        let between: Vec<String> = all[1..].iter().rev().map(rcgen::CertifiedIssuer::pem).collect();
        (issued(&all[length], &usual).then(&between), all[0].pem())
    };
    let (six, twelve) = (chain(6), chain(12));
    let (before, after) = (root(ca_params("same")), root(ca_params("same")));
    let alone = |params: &CertificateParams| {
        let key = key();
        Identity { certificate: params.self_signed(&key).unwrap().pem(), key: key.serialize_pem() }
    };
    let lonely = alone(&usual);
    let as_ca = alone(&server(|p| p.is_ca = IsCa::Ca(BasicConstraints::Unconstrained)));
    let unknown = Refused("issued by none of the trusted CAs", ADD_CA);
    let of_ca = Refused("the first of its chain, is a CA certificate", ANOTHER);
    let too_long = Refused("the chain is too long", ANOTHER);
    let leaf_second = Identity { certificate: low.pem() + &leaf().certificate, key: key().serialize_pem() };
    show([
        case("intermediates", leaf().then(&[low.pem(), middle.pem()]), &trusted, Taken),
        case("in the wrong order", leaf().then(&[ca.pem(), middle.pem(), low.pem()]), &trusted, Taken),
        case(
            "with strangers",
            leaf().then(&[other.pem(), low.pem(), old.pem(), middle.pem()]),
            &trusted,
            Taken,
        ),
        case("one missing", leaf().then(&[low.pem()]), &trusted, unknown),
        case("all missing", leaf(), &trusted, unknown),
        case("all missing, the last of them trusted", leaf(), &low.pem(), Taken),
        case("the server's own not first", leaf_second, &trusted, of_ca),
        case(
            "an expired intermediate",
            issued(&old, &usual).then(&[old.pem()]),
            &trusted,
            Refused("expired at 2021-01-01", RENEW),
        ),
        case("an expired CA", issued(&old_root, &usual), &old_root.pem(), Taken),
        case("another CA", issued(&ca, &usual), &other.pem(), unknown),
        case(
            "an old and a new CA of one name",
            issued(&after, &usual),
            &(before.pem() + &after.pem()),
            Taken,
        ),
        case(
            "the old CA of that name",
            issued(&after, &usual),
            &before.pem(),
            Refused("has another key", ADD_CA),
        ),
        case("six intermediates", six.0, &six.1, Taken),
        case("twelve intermediates", twelve.0, &twelve.1, too_long),
        case(
            "more than a CA allows",
            issued(&deep, &usual).then(&[deep.pem(), strict.pem()]),
            &trusted,
            too_long,
        ),
        case(
            "issued by a server",
            issued(&no_ca, &usual).then(&[no_ca.pem()]),
            &trusted,
            Refused("EndEntityUsedAsCa", ANOTHER),
        ),
        case("signed by itself", lonely.clone(), &trusted, unknown),
        case("signed by itself, and trusted", lonely.clone(), &lonely.certificate, Taken),
        case("that of a CA", as_ca.clone(), &trusted, of_ca),
        case("that of a CA, and trusted", as_ca.clone(), &as_ca.certificate, Taken),
        case(
            "junk among the CAs",
            issued(&ca, &usual),
            JUNK,
            Stopped("configuration", "CA bundle: unusable certificate", CORRECT),
        ),
        case(
            "no CA at all",
            issued(&ca, &usual),
            "x",
            Stopped("configuration", "CA bundle: no PEM certificate in it", CORRECT),
        ),
    ]);
}

#[test]
fn keys_and_contents_of_server_certificates() {
    let ca = root(ca_params("ca"));
    let (usual, trusted) = (server(|_| {}), ca.pem());
    let of = |algorithm| KeyPair::generate_for(algorithm).unwrap();
    let read = |pem: &str| KeyPair::from_pem(pem).unwrap();
    let kinds = [&rcgen::PKCS_ECDSA_P256_SHA256, &rcgen::PKCS_ECDSA_P384_SHA384, &rcgen::PKCS_ED25519];
    show(kinds.map(|kind| {
        let ca = Ca::self_signed(ca_params("of this kind"), of(kind)).unwrap();
        case("a kind of key", with_key(&ca, &usual, &of(kind)), &ca.pem(), Taken)
    }));
    show([fixture!("rsa-2048.key"), fixture!("rsa-4096.key")].map(|pem| {
        let ca = Ca::self_signed(ca_params("of RSA"), read(pem)).unwrap();
        case("a key of RSA", with_key(&ca, &usual, &read(pem)), &ca.pem(), Taken)
    }));
    let v1_ca = Issuer::new(named("v1-ca"), read(fixture!("v1-ca.key")));
    let made = |pem: &str| Identity { certificate: pem.to_owned(), key: fixture!("leaf.key").to_owned() };
    let odd_kind = Refused("SHA-1, P-521", ANOTHER);
    let shows = |what, change: &dyn Fn(&mut CertificateParams), outcome| {
        case(what, issued(&ca, &server(change)), &trusted, outcome)
    };
    let between = |what, from, until, outcome| {
        let years = move |p: &mut CertificateParams| {
            (p.not_before, p.not_after) = (date_time_ymd(from, 1, 1), date_time_ymd(until, 1, 1));
        };
        shows(what, &years, outcome)
    };
    let usages = |what, usages: &[ExtendedKeyUsagePurpose], outcome| {
        shows(what, &|p| p.extended_key_usages = usages.to_vec(), outcome)
    };
    let encipherment = |p: &mut CertificateParams| p.key_usages = vec![KeyUsagePurpose::KeyEncipherment];
    let critical = |p: &mut CertificateParams| {
        let mut extension = CustomExtension::from_oid_content(&[1, 2, 3, 4], vec![5, 0]);
        extension.set_criticality(true);
        p.custom_extensions = vec![extension];
    };
    let constrained = |what, permitted: &str, excluded: &str, outcome| {
        let trees =
            |name: &str| Vec::from_iter((!name.is_empty()).then(|| GeneralSubtree::DnsName(name.to_owned())));
        let mut params = ca_params("constrained");
        let (permitted_subtrees, excluded_subtrees) = (trees(permitted), trees(excluded));
        params.name_constraints = Some(NameConstraints { permitted_subtrees, excluded_subtrees });
        let ca = root(params);
        Case { name: HOST, ..case(what, issued(&ca, &only(HOST)), &ca.pem(), outcome) }
    };
    let no_use = "does not allow extended key usage for server authentication";
    let outside = Refused("may not issue for these names", ANOTHER);
    let stolen = Identity { key: key().serialize_pem(), ..issued(&ca, &usual) };
    let nothing = Identity { certificate: String::new(), key: key().serialize_pem() };
    show([
        case("a CA of X.509 v1", issued(&v1_ca, &usual), fixture!("v1-ca.pem"), Taken),
        case(
            "X.509 v1",
            made(fixture!("v1-leaf.pem")),
            fixture!("v1-ca.pem"),
            Refused("not X.509 v3", ANOTHER),
        ),
        case("SHA-1", made(fixture!("sha1-leaf.pem")), fixture!("sha1-ca.pem"), odd_kind),
        case("P-521", made(fixture!("p521-leaf.pem")), fixture!("p521-ca.pem"), odd_kind),
        case(
            "RSA 1024",
            made(fixture!("rsa1024-leaf.pem")),
            fixture!("rsa1024-ca.pem"),
            Refused("RSA key below 2048 bits", ADD_CA),
        ),
        between("expired", 2020, 2021, Refused("expired at 2021-01-01", RENEW)),
        between("not yet valid", 2100, 2101, Refused("valid from 2100-01-01", RENEW)),
        between("never valid", 2031, 2021, Refused("Expired", ANOTHER)),
        usages("for clients", &[ExtendedKeyUsagePurpose::ClientAuth], Refused(no_use, ANOTHER)),
        usages(
            "for both",
            &[ExtendedKeyUsagePurpose::ClientAuth, ExtendedKeyUsagePurpose::ServerAuth],
            Taken,
        ),
        usages("for nothing special", &[], Taken),
        usages("for everything, which Go takes", &[ExtendedKeyUsagePurpose::Any], Refused(no_use, ANOTHER)),
        shows("no signatures", &encipherment, Taken),
        shows("something critical", &critical, Refused("UnsupportedCriticalExtension", ANOTHER)),
        constrained("within its constraints", "garden.test", "", Taken),
        constrained("out of its constraints", "example.org", "", outside),
        constrained("excluded", "", "garden.test", outside),
        case(
            "without its key",
            stolen,
            &trusted,
            Refused("does not have the key of its certificate", ANOTHER),
        ),
        case("nothing", nothing, &trusted, Refused("shows no certificate", ANOTHER)),
    ]);
}

/// The agent's own certificate, which the server may not accept.
#[test]
fn certificates_of_clients() {
    let counter = Counter::open("odd-clients");
    let host = counter.cluster.url().replace("https://", "");
    let ca = root(ca_params("clients"));
    let middle = below(&ca, ca_params("middle"));
    counter.cluster.server().set_client_authorities(&[ca.pem()]);
    let admin = || {
        let mut params = named("admin");
        params.distinguished_name.push(DnType::OrganizationName, "system:masters");
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        params
    };
    let usual = || issued(&ca, &admin());
    let of = |algorithm| KeyPair::generate_for(algorithm).unwrap();
    let read = |pem: &str| KeyPair::from_pem(pem).unwrap();
    let mut unborn = admin();
    unborn.not_before = date_time_ymd(2100, 1, 1);
    let mut serving = admin();
    serving.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    let rsa = with_key(&ca, &admin(), &read(fixture!("rsa-2048.key")));
    let keyed = |key: &str| Identity { key: key.to_owned(), ..rsa.clone() };
    let second = usual();
    let behind = Identity { certificate: ca.pem() + &second.certificate, ..second };
    let unknown = Stopped(
        "authentication",
        "401 Unauthorized",
        "the server rejects the token or certificate (expired, or of another cluster)",
    );
    let unusable = |words| Stopped("configuration", words, CORRECT);
    let table = [
        ("usual", usual(), Taken),
        ("P-384", with_key(&ca, &admin(), &of(&rcgen::PKCS_ECDSA_P384_SHA384)), Taken),
        ("Ed25519", with_key(&ca, &admin(), &of(&rcgen::PKCS_ED25519)), Taken),
        ("RSA 2048", rsa.clone(), Taken),
        ("RSA 2048, PKCS#1", keyed(fixture!("rsa-2048-pkcs1.key")), Taken),
        ("RSA 4096", with_key(&ca, &admin(), &read(fixture!("rsa-4096.key"))), Taken),
        ("an intermediate", issued(&middle, &admin()).then(&[middle.pem()]), Taken),
        ("strangers behind it", usual().then(&[middle.pem(), ca.pem()]), Taken),
        ("an intermediate is missing", issued(&middle, &admin()), unknown),
        ("expired", issued(&ca, &until_2021(admin())), unknown),
        ("not yet valid", issued(&ca, &unborn), unknown),
        ("of another CA", issued(&root(ca_params("clients")), &admin()), unknown),
        ("for servers", issued(&ca, &serving), unknown),
        (
            "behind its CA's",
            behind,
            unusable("client certificate: it is for another key than the client key"),
        ),
        (
            "the key of another certificate",
            Identity { key: key().serialize_pem(), ..usual() },
            unusable("client certificate: it is for another key than the client key"),
        ),
        (
            "a key of P-521",
            keyed(fixture!("p521.key")),
            unusable("client key: it is broken, or of another kind"),
        ),
        (
            "an encrypted key",
            keyed(fixture!("encrypted.key")),
            unusable("client key: no PEM private key, or an encrypted one"),
        ),
        ("no key", keyed("x"), unusable("client key: no PEM private key")),
        ("junk", Identity { certificate: JUNK.to_owned(), ..usual() }, unusable("client certificate: ")),
        (
            "no certificate",
            Identity { certificate: "x".to_owned(), ..usual() },
            unusable("client certificate: no PEM certificate in it"),
        ),
    ];
    for (what, identity, outcome) in table {
        let user = json!({"client-certificate-data": base64(identity.certificate.as_bytes()),
            "client-key-data": base64(identity.key.as_bytes())});
        let found = counter.doctor(&user, "", &counter.cluster.ca());
        let first = found.iter().find(|check| check["place"] == "seed" && check["state"] == "broken");
        let told = first.map(|check| ["/hop", "/text", "/remedy"].map(|part| text(check, part)));
        match (told, outcome) {
            (None, Taken) => {}
            (Some([at, message, advice]), Stopped(hop, words, remedy)) => {
                let fits = at == hop && message.contains(words) && advice.starts_with(remedy);
                assert!(fits && message.contains(&host), "{what}: {at}: {message} ({advice})");
            }
            _ => panic!("{what}: {told:?}"),
        }
        assert!(!format!("{found:?}").contains("PRIVATE KEY"), "{what}");
    }
}

/// Whatever certificate the garden shows, the agent reports what is wrong with it, and continues when it is right.
#[test]
fn an_agent_waits_until_its_garden_shows_a_valid_certificate() {
    let world = World::start(&world::Options::new("odd-garden"));
    let until = BUILT.plus(Duration::from_secs(3_650 * 86_400));
    let good = world.garden.authority().server(&[], BUILT, until);
    let stolen = Identity { key: key().serialize_pem(), ..good.clone() };
    world.garden.server().set_identity(&stolen);
    let agent = world.agent();
    let address = World::address(&world.garden);
    agent.wait_for_problem(
        "garden",
        &["get an identity", &address, "does not have the key of its certificate"],
    );
    let nothing = Identity { certificate: String::new(), key: key().serialize_pem() };
    world.garden.server().set_identity(&nothing);
    agent.wait_for_problem("garden", &["get an identity", &address, "shows no certificate"]);
    world.garden.server().set_identity(&issued(&root(ca_params("foreign")), &server(|_| {})));
    agent.wait_for_problem("garden", &["get an identity", &address, "issued by none of the trusted CAs"]);
    assert!(agent.is_alive());
    world.garden.server().set_identity(&good);
    world.wait_until_ready();
    assert_eq!(world.requests().len(), 1);
    agent.stop();
}
