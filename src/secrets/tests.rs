use std::sync::OnceLock;
use std::time::Duration;

use super::manager::{SecretPlan, Signer};
use super::*;
use crate::base::clock::Timestamp;
use crate::base::sorted::SortedMap;
use crate::pki::issue::{KeyUsage, ServerNames};
use crate::pki::{AnyKey, Certificate};

const NOW: Timestamp = Timestamp::from_unix(1_795_352_540);
const DAY: Duration = Duration::from_secs(24 * 3_600);

/// Generating them takes a second each.
fn key(index: usize) -> &'static AnyKey {
    static KEYS: OnceLock<[AnyKey; 2]> = OnceLock::new();
    &KEYS.get_or_init(|| [0, 1].map(|_| AnyKey::new_rsa(2_048, &|| false).unwrap()))[index]
}

fn later(time: Duration) -> Timestamp {
    Timestamp::from_unix(NOW.unix() + i64::try_from(time.as_secs()).unwrap())
}

fn ca(name: &str) -> SecretConfig {
    SecretConfig::Ca { name: name.to_owned(), common_name: "kubernetes".to_owned(), validity: None }
}

fn month_ca() -> SecretConfig {
    SecretConfig::Ca {
        name: "ca-seed".to_owned(),
        common_name: "kubernetes".to_owned(),
        validity: Some(30 * DAY),
    }
}

fn leaf(name: &str, usage: KeyUsage) -> SecretConfig {
    SecretConfig::Leaf {
        name: name.to_owned(),
        common_name: "someone".to_owned(),
        organizations: vec!["system:masters".to_owned()],
        usage,
        names: ServerNames { dns: vec!["kube-apiserver".to_owned()], addresses: vec![[127, 0, 0, 1].into()] },
        validity: None,
        skip_ca: false,
        with_chain: false,
    }
}

fn signed_by(ca: &str) -> Options {
    Options { signed_by: Some(ca.to_owned()), ..Options::default() }
}

fn keeping() -> Options {
    Options { keep_old: true, persist: true, ..Options::default() }
}

fn manager(all: Vec<StoredSecret>, rotation: &SecretsRotation, now: Timestamp) -> SecretsManager {
    SecretsManager::new("gardenlet", all, rotation, now).unwrap()
}

fn rotated(config: &str, at: Timestamp) -> SecretsRotation {
    SecretsRotation { initiated: [(config.to_owned(), at)].into(), ..SecretsRotation::default() }
}

/// Acts as the server: creates and labels until the Secret is ready. Returns the steps too.
fn generate(
    manager: &mut SecretsManager,
    config: &SecretConfig,
    options: &Options,
    rsa: &AnyKey,
    now: Timestamp,
) -> (std::sync::Arc<StoredSecret>, Vec<&'static str>) {
    let mut steps = Vec::new();
    for _ in 0..4 {
        match manager.ask(config, options, now).unwrap() {
            SecretStep::Ready(secret) => return (secret, steps),
            SecretStep::Label { name, labels } => {
                steps.push("label");
                let old = manager.known(&name).unwrap().clone();
                manager.put(StoredSecret { labels, is_immutable: true, ..old });
            }
            SecretStep::Make(plan) => {
                steps.push("make");
                let data = plan.fill(config, Some(rsa), now).unwrap();
                manager.put(plan.secret(config, options, data, now).unwrap());
            }
        }
    }
    panic!("{} does not become ready: {steps:?}", config.name());
}

fn all(manager: &SecretsManager) -> Vec<StoredSecret> {
    manager.all().cloned().collect()
}

#[test]
fn a_ca_a_certificate_and_their_bundle() {
    let mut secrets = manager(vec![], &SecretsRotation::default(), NOW);
    let plain = Options { plain_name: true, ..keeping() };
    let (ca_secret, steps) = generate(&mut secrets, &ca("ca"), &plain, key(0), NOW);
    assert_eq!((ca_secret.name.as_str(), steps), ("ca", vec!["make"]));
    let expected: SortedMap<String, String> = [
        ("checksum-of-config", "12627284116289067259"),
        ("issued-at-time", "1795352480"),
        ("last-rotation-initiation-time", ""),
        ("managed-by", "secrets-manager"),
        ("manager-identity", "gardenlet"),
        ("name", "ca"),
        ("persist", "true"),
        ("valid-until-time", "2110971740"),
    ]
    .map(|(key, value)| (key.to_owned(), value.to_owned()))
    .into();
    assert_eq!(ca_secret.labels, expected, "as a Go gardenlet wrote them at the same second");
    let certificate = Certificate::parse_pem(str::from_utf8(ca_secret.get("ca.crt")).unwrap()).unwrap();
    assert!(certificate.is_ca && certificate.subject.common_name == "ca");

    let bundle = secrets.bundle_of(&ca("ca")).unwrap();
    let (bundle, _) = generate(&mut secrets, &bundle, &Options::default(), key(0), NOW);
    assert_eq!(bundle.get("bundle.crt"), ca_secret.get("ca.crt"));
    assert_eq!(bundle.labels["bundle-for"], "ca");
    assert_eq!(secrets.get("ca").unwrap().bundle.as_ref().unwrap().name, bundle.name);

    let (server, _) =
        generate(&mut secrets, &leaf("server", KeyUsage::Server), &signed_by("ca"), key(0), NOW);
    assert_eq!(server.labels["checksum-of-signing-ca"].len(), 63);
    assert_eq!(server.get("ca.crt"), ca_secret.get("ca.crt"));
    assert!(server.get("tls.key").starts_with(b"-----BEGIN EC PRIVATE KEY-----"));
    assert!(secrets.unwanted().is_empty());

    // The next run finds everything as it is.
    let mut again = manager(all(&secrets), &SecretsRotation::default(), later(DAY));
    for (config, options) in [(ca("ca"), plain), (leaf("server", KeyUsage::Server), signed_by("ca"))] {
        assert!(generate(&mut again, &config, &options, key(0), later(DAY)).1.is_empty());
    }
    assert_eq!(again.unwanted(), [bundle.name.as_str()], "it was not requested");
}

#[test]
fn a_rotation_in_all_its_phases() {
    let mut secrets = manager(vec![], &SecretsRotation::default(), NOW);
    let first = generate(&mut secrets, &ca("ca"), &keeping(), key(0), NOW).0;
    let server = generate(&mut secrets, &leaf("server", KeyUsage::Server), &signed_by("ca"), key(0), NOW).0;
    // Started: a second CA, which signs client certificates. Servers keep the first one until clients trust both.
    let (at, rotation) = (later(DAY), rotated("ca", later(DAY)));
    let mut secrets = manager(all(&secrets), &rotation, at);
    let (second, steps) = generate(&mut secrets, &ca("ca"), &keeping(), key(1), at);
    assert_eq!(steps, ["make"]);
    assert!(second.name.starts_with(&first.name) && second.name.len() == first.name.len() + 6);
    assert_eq!(secrets.get("ca").unwrap().old.as_ref().unwrap().name, first.name);
    let bundle = secrets.bundle_of(&ca("ca")).unwrap();
    let bundle = generate(&mut secrets, &bundle, &Options::default(), key(0), at).0;
    assert_eq!(bundle.get("bundle.crt"), [second.get("ca.crt"), first.get("ca.crt")].concat());
    let (same, _) = generate(&mut secrets, &leaf("server", KeyUsage::Server), &signed_by("ca"), key(0), at);
    assert_eq!(same.name, server.name);
    let client = generate(&mut secrets, &leaf("client", KeyUsage::Client), &signed_by("ca"), key(0), at).0;
    assert_eq!(client.get("ca.crt"), second.get("ca.crt"));
    let forced = Options { signer: Signer::Current, ..signed_by("ca") };
    let forced = generate(&mut secrets, &leaf("other", KeyUsage::Server), &forced, key(0), at).0;
    assert_eq!(forced.get("ca.crt"), second.get("ca.crt"));
    assert!(secrets.unwanted().is_empty());
    // Being completed: the first CA is ignored, and servers get certificates of the second.
    let mut secrets = manager(all(&secrets), &rotation, later(2 * DAY));
    let done = Options { ignore_old: true, ..keeping() };
    assert_eq!(generate(&mut secrets, &ca("ca"), &done, key(0), at).0.name, second.name);
    let moved = generate(&mut secrets, &leaf("server", KeyUsage::Server), &signed_by("ca"), key(0), at).0;
    assert_eq!(moved.get("ca.crt"), second.get("ca.crt"));
    let mut unwanted = secrets.unwanted();
    unwanted.sort_unstable();
    let mut expected = [first.name.as_str(), &bundle.name, &client.name, &forced.name, &server.name];
    expected.sort_unstable();
    assert_eq!(unwanted, expected);
    let mut outdated = secrets.outdated();
    outdated.sort_unstable();
    let mut expected = [first.name.as_str(), &server.name];
    expected.sort_unstable();
    assert_eq!(outdated, expected, "other programs may need Secrets without a request");
}

#[test]
fn certificates_are_renewed_in_time() {
    let renews = SecretsRotation { renews_cas: true, ..SecretsRotation::default() };
    let day_of = |options: &Options, config: &SecretConfig, rotation: &SecretsRotation, days: u32| {
        let mut secrets = manager(vec![], &SecretsRotation::default(), NOW);
        generate(&mut secrets, &ca("ca"), &keeping(), key(0), NOW);
        let first = generate(&mut secrets, config, options, key(0), NOW).0;
        let at = later(days * DAY);
        let mut secrets = manager(all(&secrets), rotation, at);
        generate(&mut secrets, &ca("ca"), &keeping(), key(0), at);
        generate(&mut secrets, config, options, key(1), at).0.name != first.name
    };
    let short = |days: u32| {
        let mut config = leaf("server", KeyUsage::Server);
        let SecretConfig::Leaf { validity, .. } = &mut config else { panic!() };
        *validity = Some(days * DAY);
        config
    };
    // 80 % of the validity, or ten days before its expiry, whichever is earlier.
    let table = [
        (month_ca(), keeping(), &renews, 19, false),
        (month_ca(), keeping(), &renews, 21, true),
        (month_ca(), keeping(), &SecretsRotation::default(), 29, false),
        (short(100), signed_by("ca"), &SecretsRotation::default(), 79, false),
        (short(100), signed_by("ca"), &SecretsRotation::default(), 81, true),
        (short(40), signed_by("ca"), &SecretsRotation::default(), 29, false),
        (short(40), signed_by("ca"), &SecretsRotation::default(), 31, true),
    ];
    for (config, options, rotation, days, expected) in table {
        assert_eq!(
            day_of(&options, &config, rotation, days),
            expected,
            "{} after {days} days",
            config.name()
        );
    }
    let half = Options { renew_after_percent: Some(50), ..signed_by("ca") };
    assert!(day_of(&half, &short(100), &SecretsRotation::default(), 51));
    assert!(!day_of(&half, &short(100), &SecretsRotation::default(), 49));
}

#[test]
fn an_old_ca_is_ignored_after_its_time() {
    let renews = SecretsRotation { renews_cas: true, ..SecretsRotation::default() };
    let options = Options { ignore_old_after: Some(DAY), ..keeping() };
    let mut secrets = manager(vec![], &renews, NOW);
    generate(&mut secrets, &month_ca(), &options, key(0), NOW);
    let at = later(25 * DAY);
    let mut secrets = manager(all(&secrets), &renews, at);
    generate(&mut secrets, &month_ca(), &options, key(1), at);
    assert!(secrets.get("ca-seed").unwrap().old.is_some());
    let at = later(26 * DAY);
    let mut secrets = manager(all(&secrets), &renews, at);
    let (_, steps) = generate(&mut secrets, &month_ca(), &options, key(0), at);
    assert!(steps.is_empty() && secrets.get("ca-seed").unwrap().old.is_none());
    assert_eq!(secrets.unwanted().len(), 1);
}

#[test]
fn a_damaged_ca_is_named_and_never_replaced() {
    let mut secrets = manager(vec![], &SecretsRotation::default(), NOW);
    let good = generate(&mut secrets, &ca("ca"), &keeping(), key(0), NOW).0;
    let mut other = manager(vec![], &SecretsRotation::default(), NOW);
    let foreign = generate(&mut other, &ca("ca"), &keeping(), key(1), NOW).0;
    let damages: [(&str, SecretEntries, &str); 4] = [
        ("no certificate", [("ca.key".to_owned(), good.get("ca.key").to_vec())].into(), "ca.crt"),
        (
            "the key of another",
            [
                ("ca.crt".to_owned(), good.get("ca.crt").to_vec()),
                ("ca.key".to_owned(), foreign.get("ca.key").to_vec()),
            ]
            .into(),
            "ca.key does not belong to ca.crt",
        ),
        ("no key", [("ca.crt".to_owned(), good.get("ca.crt").to_vec())].into(), "ca.key"),
        ("nothing", SecretEntries::new(), "ca.crt"),
    ];
    for (name, data, words) in damages {
        let damaged = StoredSecret { data, ..(*good).clone() };
        let mut secrets = manager(vec![damaged], &SecretsRotation::default(), NOW);
        let error = secrets.ask(&ca("ca"), &keeping(), NOW).unwrap_err();
        let Error::Damaged { secret, why } = &error else { panic!("{name}: {error}") };
        assert!(secret == &good.name && why.contains(words), "{name}: {why}");
    }
    // Neither a rotation nor the time of renewal replaces it.
    let without_key = || StoredSecret {
        data: [("ca.crt".to_owned(), good.get("ca.crt").to_vec())].into(),
        ..(*good).clone()
    };
    let renews = SecretsRotation { renews_cas: true, ..SecretsRotation::default() };
    let late = later(9 * 365 * DAY);
    for (rotation, at) in [(rotated("ca", later(DAY)), later(DAY)), (renews, late)] {
        let mut secrets = manager(vec![without_key()], &rotation, at);
        assert!(matches!(secrets.ask(&ca("ca"), &keeping(), at), Err(Error::Damaged { .. })));
    }
    let mut secrets = manager(vec![without_key()], &SecretsRotation::default(), late);
    assert!(matches!(secrets.ask(&ca("ca"), &keeping(), late), Err(Error::Damaged { .. })));
    let mut secrets = manager(vec![], &SecretsRotation::default(), NOW);
    let error = secrets.ask(&leaf("server", KeyUsage::Server), &signed_by("ca"), NOW).unwrap_err();
    assert_eq!(error.to_string(), "there is no CA \"ca\" yet");
}

#[test]
fn a_kubeconfig_with_a_certificate() {
    let mut secrets = manager(vec![], &SecretsRotation::default(), NOW);
    generate(&mut secrets, &ca("ca-client"), &keeping(), key(0), NOW);
    let name = "shoot-access-gardener-resource-manager-bootstrap";
    let of = |server: &str| SecretConfig::ClientKubeconfig {
        name: name.to_owned(),
        common_name: "gardener.cloud:system:gardener-resource-manager".to_owned(),
        organizations: vec!["system:masters".to_owned()],
        validity: Some(Duration::from_secs(600)),
        context: "shoot--p--s".to_owned(),
        server: server.to_owned(),
        ca: b"AB".to_vec(),
    };
    let config = of("kube-apiserver");
    let made = generate(&mut secrets, &config, &signed_by("ca-client"), key(0), NOW).0;
    let expected =
        ["ca.crt", "kubeconfig", &format!("{name}.crt"), &format!("{name}.key")].map(str::to_owned);
    assert_eq!(made.data.keys().cloned().collect::<Vec<_>>(), expected);
    assert_eq!((made.kind.as_str(), made.labels["valid-until-time"].as_str()), ("Opaque", "1795353140"));
    let current = secrets.get("ca-client").unwrap().current.clone();
    assert_eq!(made.get("ca.crt"), current.get("ca.crt"), "who signed it");
    let kubeconfig = crate::format::yaml::parse(str::from_utf8(made.get("kubeconfig")).unwrap()).unwrap();
    let base64 = |key: &str| crate::format::base64::encode(made.get(key));
    let user = &kubeconfig["users"][0]["user"];
    assert_eq!(user["client-certificate-data"], base64(&format!("{name}.crt")));
    assert_eq!(user["client-key-data"], base64(&format!("{name}.key")));
    let cluster = &kubeconfig["clusters"][0]["cluster"];
    assert_eq!(
        (cluster["server"].as_str(), cluster["certificate-authority-data"].as_str()),
        (Some("https://kube-apiserver"), Some("QUI=")),
        "the server is verified with another CA"
    );
    let text = str::from_utf8(made.get(&format!("{name}.crt"))).unwrap();
    let subject = Certificate::parse_pem(text).unwrap().subject;
    assert_eq!(subject.organizations, ["system:masters"]);
    assert_ne!(of("other").checksum(), config.checksum());
    // Ten minutes are always less than ten days, so each run creates another one, as in upstream.
    let at = later(Duration::from_secs(60));
    let mut secrets = manager(all(&secrets), &SecretsRotation::default(), at);
    generate(&mut secrets, &ca("ca-client"), &keeping(), key(0), at);
    assert_ne!(generate(&mut secrets, &config, &signed_by("ca-client"), key(0), at).0.name, made.name);
}

#[test]
fn nothing_secret_is_formatted() {
    let bundle = SecretConfig::KeyBundle { name: "b".to_owned(), pems: vec![b"secret".to_vec()] };
    let Ok(SecretStep::Make(plan)) =
        manager(vec![], &SecretsRotation::default(), NOW).ask(&bundle, &Options::default(), NOW)
    else {
        panic!()
    };
    let stored =
        plan.secret(&bundle, &Options::default(), plan.fill(&bundle, None, NOW).unwrap(), NOW).unwrap();
    assert_eq!(stored.get("bundle.key"), b"secret");
    let text = format!(
        "{bundle:?} {stored:?} {plan:?} {:?}",
        manager(vec![stored.clone()], &SecretsRotation::default(), NOW)
    );
    assert!(!text.contains("secret\"") && !text.contains("115, 101, 99"), "{text}");
}

#[test]
fn labels_are_set_and_foreign_ones_vanish() {
    let mut secrets = manager(vec![], &SecretsRotation::default(), NOW);
    let made = generate(&mut secrets, &ca("ca"), &keeping(), key(0), NOW).0;
    let mut labels = made.labels.clone();
    labels.insert("foreign".to_owned(), "x".to_owned());
    labels.remove("persist");
    let changed = StoredSecret { labels, is_immutable: false, ..(*made).clone() };
    let mut secrets = manager(vec![changed], &SecretsRotation::default(), NOW);
    let (found, steps) = generate(&mut secrets, &ca("ca"), &keeping(), key(0), NOW);
    assert_eq!((found.labels == made.labels, steps), (true, vec!["label"]));
}

#[test]
fn data_of_another_secret_is_taken_over() {
    let lender = StoredSecret {
        name: "older".to_owned(),
        labels: [("secrets-manager-use-data-for-name".to_owned(), "token".to_owned())].into(),
        data: [("static_tokens.csv".to_owned(), b"x,y,z,".to_vec())].into(),
        kind: "Opaque".to_owned(),
        ..StoredSecret::default()
    };
    let plan = |config: &SecretConfig| match manager(vec![], &SecretsRotation::default(), NOW).ask(
        config,
        &Options::default(),
        NOW,
    ) {
        Ok(SecretStep::Make(plan)) => plan,
        other => panic!("{other:?}"),
    };
    let config = SecretConfig::StaticToken { name: "token".to_owned(), tokens: SortedMap::new() };
    let lent = plan(&config).lent(&config, vec![lender.clone()]).unwrap();
    assert_eq!(lent.fill(&config, None, NOW).unwrap()["static_tokens.csv"], b"x,y,z,");
    let made = plan(&config).lent(&config, vec![]).unwrap().fill(&config, None, NOW).unwrap();
    assert_ne!(made, lender.data, "nobody lends");
    let other = StoredSecret { name: "other".to_owned(), ..lender.clone() };
    let error = plan(&config).lent(&config, vec![lender.clone(), other]).unwrap_err();
    assert!(error.to_string().starts_with("secrets older, other all have label"), "{error}");
    let error = plan(&ca("ca")).lent(&ca("ca"), vec![lender]).unwrap_err();
    assert!(matches!(error, Error::Damaged { .. }), "lent data must be a CA: {error}");
}

#[test]
fn content_of_secrets() {
    let plan = SecretPlan { name: "n".to_owned(), labels: SortedMap::new(), source: None, ca: None };
    let of = |config: &SecretConfig| plan.fill(config, None, NOW).unwrap();
    let encryption =
        of(&SecretConfig::EncryptionKey { name: "e".into(), provider: String::new(), length: 32 });
    assert_eq!((encryption["secret"].len(), encryption["encoding"].as_slice()), (32, &b"none"[..]));
    assert_eq!(
        (encryption["key"].as_slice(), encryption["provider"].as_slice()),
        (&b"key1795352540"[..], &b""[..])
    );
    let user = |groups: &[&str]| TokenUser {
        username: "u".into(),
        user_id: "i".into(),
        groups: groups.iter().map(|group| (*group).to_owned()).collect(),
    };
    for (groups, end) in [(&[][..], ",u,i,"), (&["a"], ",u,i,a"), (&["a", "b"], ",u,i,\"a,b\"")] {
        let tokens = [("k".to_owned(), user(groups))].into();
        let data = of(&SecretConfig::StaticToken { name: "t".into(), tokens });
        let line = str::from_utf8(&data["static_tokens.csv"]).unwrap();
        let (token, rest) = line.split_at(128);
        assert!(token.bytes().all(|b| b.is_ascii_alphanumeric()) && rest == end, "{line}");
    }
    let kubeconfig = of(&SecretConfig::Kubeconfig {
        name: "k".into(),
        context: "shoot--p--s".into(),
        server: "kube-apiserver".into(),
        ca: b"AB".to_vec(),
        token_file: "/token".into(),
        namespace: String::new(),
    });
    let text = str::from_utf8(&kubeconfig["kubeconfig"]).unwrap();
    let expected = "apiVersion: v1\nclusters:\n- cluster:\n    certificate-authority-data: QUI=\n    server: https://kube-apiserver\n  name: shoot--p--s\ncontexts:\n- context:\n    cluster: shoot--p--s\n    user: shoot--p--s\n  name: shoot--p--s\ncurrent-context: shoot--p--s\nkind: Config\nusers:\n- name: shoot--p--s\n  user:\n    tokenFile: /token\n";
    assert_eq!(text, expected);
    let basic = of(&SecretConfig::BasicAuth {
        name: "b".into(),
        format: "normal".into(),
        username: "admin".into(),
        password_length: 32,
    });
    assert!(basic["password"].len() == 32 && basic["auth"].starts_with(b"admin:$2a$10$"));
    let ssh = SecretConfig::RsaKey { name: "ssh-keypair".into(), bits: 4_096, for_ssh: true };
    let pair = plan.fill(&ssh, Some(key(0)), NOW).unwrap();
    // The length of the name, the name, the length of the exponent, and the exponent.
    assert!(pair["id_rsa.pub"].starts_with(b"ssh-rsa AAAAB3NzaC1yc2EAAAADAQABAAABA"), "{pair:?}");
}

/// `created` or `rotated` Secrets that a Go gardenlet wrote for a Shoot.
fn golden(part: &str) -> Vec<serde_json::Value> {
    let text = include_str!("../../tests/fixtures/golden-secrets.json");
    let all: serde_json::Value = serde_json::from_str(text).unwrap();
    all[part].as_array().unwrap().clone()
}

#[test]
fn a_go_gardenlets_secrets_have_the_names_and_labels_of_ours() {
    let find = |part: &str, config: &str| {
        let all = golden(part);
        all.into_iter()
            .find(|secret| secret["labels"]["name"] == config)
            .unwrap_or_else(|| panic!("{config}"))
    };
    let pem = |part: &str, ca: &str| find(part, ca)["data"]["ca.crt"].as_str().unwrap().as_bytes().to_vec();
    // Fields that depend on data and time are compared elsewhere.
    let check = |config: &SecretConfig, options: &Options, rotation: &SecretsRotation, part: &str| {
        let mut secrets = manager(vec![], rotation, NOW);
        let Ok(SecretStep::Make(plan)) = secrets.ask(config, options, NOW) else { panic!("{config:?}") };
        let golden = find(part, config.name());
        let mut labels: SortedMap<String, String> = serde_json::from_value(golden["labels"].clone()).unwrap();
        labels.retain(|key, _| !["issued-at-time", "valid-until-time"].contains(&key.as_str()));
        assert_eq!(
            (golden["name"].as_str(), &labels),
            (Some(plan.name.as_str()), &plan.labels),
            "{config:?}"
        );
    };
    let (never, persist) = (SecretsRotation::default(), Options { persist: true, ..Options::default() });
    let plain = Options { plain_name: true, ..keeping() };
    let bundle = |name: &str, pems| SecretConfig::CertificateBundle { name: format!("{name}-bundle"), pems };
    for name in ["ca", "ca-client", "ca-etcd", "ca-etcd-peer", "ca-front-proxy", "ca-istio-basic-auth-server"]
    {
        let common_name = match name {
            "ca" => "kubernetes",
            "ca-client" => "kubernetes-client",
            other => other.trim_start_matches("ca-"),
        };
        let config =
            SecretConfig::Ca { name: name.to_owned(), common_name: common_name.to_owned(), validity: None };
        let options = if name == "ca-client" { keeping() } else { plain.clone() };
        check(&config, &options, &never, "created");
        check(&bundle(name, vec![pem("created", name)]), &Options::default(), &never, "created");
    }
    check(
        &SecretConfig::RsaKey { name: "service-account-key".into(), bits: 4_096, for_ssh: false },
        &keeping(),
        &never,
        "created",
    );
    let name = "kube-apiserver-etcd-encryption-key".to_owned();
    check(
        &SecretConfig::EncryptionKey { name, provider: String::new(), length: 32 },
        &keeping(),
        &never,
        "created",
    );
    let health =
        TokenUser { username: "health-check".into(), user_id: "health-check".into(), groups: vec![] };
    let tokens = [("health-check".to_owned(), health)].into();
    let name = "kube-apiserver-static-token".to_owned();
    check(&SecretConfig::StaticToken { name, tokens }, &persist, &never, "created");
    let kubeconfig = |pems: &[Vec<u8>]| SecretConfig::Kubeconfig {
        name: "generic-token-kubeconfig".into(),
        context: "shoot--p--s1".into(),
        server: "api.s1.p.internal.lab.local".into(),
        ca: pems.concat(),
        token_file: "/var/run/secrets/gardener.cloud/shoot/generic-kubeconfig/token".into(),
        namespace: String::new(),
    };
    check(&kubeconfig(&[pem("created", "ca")]), &Options::default(), &never, "created");
    // After a rotation has started.
    let began = find("rotated", "ca")["labels"]["last-rotation-initiation-time"].as_str().unwrap().parse();
    check(&ca("ca"), &keeping(), &rotated("ca", Timestamp::from_unix(began.unwrap())), "rotated");
    let both = vec![pem("rotated", "ca"), pem("created", "ca")];
    check(&bundle("ca", both.clone()), &Options::default(), &never, "rotated");
    check(&kubeconfig(&both), &Options::default(), &never, "rotated");
}
