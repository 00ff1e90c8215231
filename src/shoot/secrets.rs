//! The Secrets of a control plane: CAs, keys, tokens, certificates, and the kubeconfig that its pods share. Names and
//! labels are those of Gardener's secrets manager.

use std::sync::Arc;

use super::addresses::{Outside, server_names, service_names};
use super::rotation::{
    AUTHORITIES, CA_CLIENT, ENCRYPTION_KEY, SERVICE_ACCOUNT_KEY, STATIC_TOKEN, of_authority, of_key,
};
use super::view::ShootView;
use crate::base::sorted::SortedMap;
use crate::flow::Failed;
use crate::pki::issue::{KeyUsage, ServerNames};
use crate::secrets::{
    Error, Options, SecretConfig, SecretEntries, SecretSet, Secrets, StoredSecret, TokenUser,
};

/// The kubeconfig that pods of the control plane share. Each pod has its own token.
pub const GENERIC_KUBECONFIG: &str = "generic-token-kubeconfig";
/// The folder of kubeconfig and token in a pod.
pub const KUBECONFIG_FOLDER: &str = "/var/run/secrets/gardener.cloud/shoot/generic-kubeconfig";
/// The user of the token for the kube-apiserver's probes.
const HEALTH_CHECK: &str = "health-check";
/// The certificate of the API server.
const SERVER: &str = "kube-apiserver";
/// The API server's host name for pods beside it.
const SERVER_HOST: &str = "kube-apiserver";

/// The present Secrets of a control plane.
#[derive(Clone, Debug)]
pub struct ShootSecrets(SortedMap<String, SecretSet>);

impl ShootSecrets {
    /// The name of a configuration's current Secret. Empty until it was requested: the API server's certificate is
    /// requested once the exposure has an address.
    pub fn current(&self, config: &str) -> &str {
        self.0.get(config).map_or("", |set| &set.current.name)
    }

    /// The name of the bundle for a CA, or for the key of ServiceAccounts.
    pub fn bundle(&self, config: &str) -> &str {
        self.0.get(config).and_then(|set| set.bundle.as_ref()).map_or("", |bundle| &bundle.name)
    }

    /// The content of a configuration's current Secret.
    pub fn data(&self, config: &str) -> Option<&SecretEntries> {
        self.0.get(config).map(|set| &set.current.data)
    }

    /// The content of the previous one, while it is valid.
    pub fn old_data(&self, config: &str) -> Option<&SecretEntries> {
        self.0.get(config)?.old.as_ref().map(|old| &old.data)
    }

    /// PEM texts of the CAs that verify the API server.
    pub fn ca_bundle(&self) -> &[u8] {
        let bundle = self.0.get("ca").and_then(|set| set.bundle.as_ref());
        bundle.map_or(&[], |bundle| bundle.get("bundle.crt"))
    }

    /// The token of probes.
    pub fn health_check_token(&self) -> &str {
        let table = self.data(STATIC_TOKEN).and_then(|data| data.get("static_tokens.csv"));
        let lines = table.and_then(|table| str::from_utf8(table).ok()).unwrap_or_default().lines();
        let tokens = lines.filter_map(|line| line.split_once(','));
        let own = |(_, user): &(&str, &str)| user.split(',').next() == Some(HEALTH_CHECK);
        tokens.into_iter().find(own).map_or("", |(token, _)| token)
    }

    /// Names by volume of the kube-apiserver's Deployment.
    pub fn of_kube_apiserver(&self) -> SortedMap<&'static str, String> {
        [
            ("ca", self.bundle("ca")),
            (CA_CLIENT, self.bundle(CA_CLIENT)),
            ("ca-front-proxy", self.bundle("ca-front-proxy")),
            ("ca-etcd", self.bundle("ca-etcd")),
            ("service-account-key-bundle", self.bundle(SERVICE_ACCOUNT_KEY)),
            (SERVICE_ACCOUNT_KEY, self.current(SERVICE_ACCOUNT_KEY)),
            ("static-token", self.current(STATIC_TOKEN)),
            ("kube-aggregator", self.current("kube-aggregator")),
            ("etcd-client", self.current("etcd-client")),
            ("server", self.current(SERVER)),
        ]
        .map(|(volume, name)| (volume, name.to_owned()))
        .into()
    }

    /// Names by volume of the kube-controller-manager's Deployment, without the kubeconfig.
    pub fn of_kube_controller_manager(&self) -> SortedMap<&'static str, String> {
        [
            ("ca", self.bundle("ca")),
            (CA_CLIENT, self.current(CA_CLIENT)),
            (SERVICE_ACCOUNT_KEY, self.current(SERVICE_ACCOUNT_KEY)),
            ("server", self.current("kube-controller-manager-server")),
        ]
        .map(|(volume, name)| (volume, name.to_owned()))
        .into()
    }

    /// Names of the Secrets of an etcd (`main` or `events`): the bundle of its CA, its own certificate, its clients'
    /// certificate.
    pub fn of_etcd(&self, role: &str) -> [&str; 3] {
        [self.bundle("ca-etcd"), self.current(&format!("etcd-server-{role}")), self.current("etcd-client")]
    }

    /// The name of the kubeconfig's Secret, for annotation `generic-token-kubeconfig.secret.gardener.cloud/name` of the
    /// `Cluster`.
    pub fn generic_kubeconfig(&self) -> &str {
        self.current(GENERIC_KUBECONFIG)
    }
}

/// The result of [`ensure`].
#[derive(Debug)]
pub enum EnsuredSecrets {
    /// All are there.
    All(ShootSecrets),
    /// An RSA key is being made: ask again after [`crate::secrets::KEY_AGAIN`].
    Making(Failed),
}

/// The part of a text about keys that are made.
pub const MAKING: &str = "making RSA keys, ";

/// Which of the keys is being made, if it is that of the last of these configurations.
fn making(begun: &[(SecretConfig, Options)], all: usize) -> Failed {
    Failed::progress(format!("{MAKING}{} of {all}", count_of_keys(begun)))
}

fn count_of_keys(configs: &[(SecretConfig, Options)]) -> usize {
    configs.iter().filter(|(config, _)| config.rsa_bits().is_some()).count()
}

/// Finds all Secrets, or creates missing ones.
///
/// The certificate of the API server contains the address of the exposure, so it is created once `outside` is known.
///
/// # Errors
/// The secrets manager fails.
pub fn ensure(
    secrets: &mut Secrets,
    view: &ShootView,
    outside: Option<&Outside>,
) -> Result<EnsuredSecrets, Failed> {
    let first: Vec<_> = authorities(view).into_iter().chain(keys(view)).collect();
    for (index, (config, options)) in first.iter().enumerate() {
        if secrets.ensure(config, options)?.is_none() {
            return Ok(EnsuredSecrets::Making(making(&first[..=index], count_of_keys(&first))));
        }
    }
    let bundle: Option<Arc<StoredSecret>> = secrets.get("ca").and_then(|set| set.bundle.clone());
    let bundle = bundle.as_ref().map_or(&[][..], |bundle| bundle.get("bundle.crt"));
    let (kubeconfig, options) = generic_kubeconfig(view, bundle);
    secrets.ensure(&kubeconfig, &options)?;
    for (config, ca) in certificates(view, outside) {
        secrets.ensure(&config, &signed_by(ca))?;
    }
    let all = names(view, outside);
    let sets = all.into_iter().filter_map(|name| secrets.get(&name).cloned().map(|set| (name, set)));
    Ok(EnsuredSecrets::All(ShootSecrets(sets.collect())))
}

/// Deletes unused Secrets. A flow calls it after it has succeeded.
///
/// # Errors
/// The first one of the seed.
pub fn clean_up(secrets: &mut Secrets) -> Result<(), Error> {
    // The certificate is in use even if it was not requested because no address was known.
    let is_complete = secrets.get(SERVER).is_some();
    if is_complete { secrets.clean_up() } else { secrets.clean_up_asked() }
}

/// The name of each configuration.
fn names(view: &ShootView, outside: Option<&Outside>) -> Vec<String> {
    let first = authorities(view).into_iter().chain(keys(view)).map(|(config, _)| config);
    let leaves = certificates(view, outside).into_iter().map(|(config, _)| config);
    let mut all: Vec<String> = first.chain(leaves).map(|config| config.name().to_owned()).collect();
    all.push(GENERIC_KUBECONFIG.to_owned());
    all
}

fn authorities(view: &ShootView) -> Vec<(SecretConfig, Options)> {
    let authority = |name: &str| {
        let common_name = match name {
            "ca" => "kubernetes",
            CA_CLIENT => "kubernetes-client",
            other => other.trim_start_matches("ca-"),
        };
        let config =
            SecretConfig::Ca { name: name.to_owned(), common_name: common_name.to_owned(), validity: None };
        (config, of_authority(view, name))
    };
    AUTHORITIES.map(authority).into()
}

fn keys(view: &ShootView) -> Vec<(SecretConfig, Options)> {
    let own = |name: &str| name.to_owned();
    let user = TokenUser { username: own(HEALTH_CHECK), user_id: own(HEALTH_CHECK), groups: Vec::new() };
    // Upstream omits the provider that was once the only one.
    let provider = Some(view.encryption_provider()).filter(|provider| *provider != "aescbc");
    let provider = provider.unwrap_or_default().to_owned();
    vec![
        (
            SecretConfig::EncryptionKey { name: own(ENCRYPTION_KEY), provider, length: 32 },
            of_key(view.rotations.encryption_key),
        ),
        (
            SecretConfig::RsaKey { name: own(SERVICE_ACCOUNT_KEY), bits: 4_096, for_ssh: false },
            of_key(view.rotations.service_account_key),
        ),
        (
            SecretConfig::StaticToken { name: own(STATIC_TOKEN), tokens: [(own(HEALTH_CHECK), user)].into() },
            Options { persist: true, ..Options::default() },
        ),
    ]
}

fn generic_kubeconfig(view: &ShootView, ca: &[u8]) -> (SecretConfig, Options) {
    let config = SecretConfig::Kubeconfig {
        name: GENERIC_KUBECONFIG.to_owned(),
        context: view.technical_id.clone(),
        server: SERVER_HOST.to_owned(),
        ca: ca.to_vec(),
        token_file: format!("{KUBECONFIG_FOLDER}/token"),
        namespace: String::new(),
    };
    // Pods that were not replaced yet mount the previous one.
    (config, Options { keep_old: true, ..Options::default() })
}

fn signed_by(ca: &str) -> Options {
    Options { signed_by: Some(ca.to_owned()), ..Options::default() }
}

/// Certificates with the CA that signs each of them.
fn certificates(view: &ShootView, outside: Option<&Outside>) -> Vec<(SecretConfig, &'static str)> {
    let namespace = &view.technical_id;
    let leaf = |name: &str, common_name: &str, usage: KeyUsage, names: ServerNames| SecretConfig::Leaf {
        name: name.to_owned(),
        common_name: common_name.to_owned(),
        organizations: Vec::new(),
        usage,
        names,
        validity: None,
        skip_ca: true,
        with_chain: name == SERVER,
    };
    let service = |name: &str| ServerNames { dns: service_names(name, namespace), addresses: Vec::new() };
    let etcd = |role: &str| {
        leaf(&format!("etcd-server-{role}"), "etcd-server", KeyUsage::Both, etcd_names(role, namespace))
    };
    let manager = "kube-controller-manager";
    let mut all = vec![
        (etcd("main"), "ca-etcd"),
        (etcd("events"), "ca-etcd"),
        (leaf("etcd-client", "etcd-client", KeyUsage::Client, ServerNames::default()), "ca-etcd"),
        (
            leaf("kube-aggregator", "system:kube-aggregator", KeyUsage::Client, ServerNames::default()),
            "ca-front-proxy",
        ),
        (leaf("kube-controller-manager-server", manager, KeyUsage::Server, service(manager)), "ca"),
    ];
    if outside.is_some() {
        all.push((leaf(SERVER, SERVER, KeyUsage::Server, server_names(view, outside)), "ca"));
    }
    all
}

fn etcd_names(role: &str, namespace: &str) -> ServerNames {
    let mut dns = vec![format!("etcd-{role}-local")];
    dns.extend(service_names(&format!("etcd-{role}-client"), namespace));
    dns.extend(service_names(&format!("*.etcd-{role}-peer"), namespace));
    ServerNames { dns, addresses: vec![[127, 0, 0, 1].into(), [0, 0, 0, 0, 0, 0, 0, 1].into()] }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::super::rotation::rotation;
    use super::super::view::tests::golden;
    use super::*;
    use crate::base::clock::Timestamp;
    use crate::secrets::{SecretStep, SecretsManager};

    const NOW: Timestamp = Timestamp::from_unix(1_795_352_540);

    fn secrets(part: &str) -> Vec<Value> {
        let text = include_str!("../../tests/fixtures/golden-secrets.json");
        serde_json::from_str::<Value>(text).unwrap()[part].as_array().unwrap().clone()
    }

    #[test]
    fn all_secrets_of_a_go_gardenlet_are_created_with_its_names() {
        for (shoot, part) in [("s1", "created"), ("s1-prepared", "rotated")] {
            let view = golden(shoot);
            let mut manager = SecretsManager::new("gardenlet", vec![], &rotation(&view), NOW).unwrap();
            let golden = secrets(part);
            for (config, options) in authorities(&view).into_iter().chain(keys(&view)) {
                let Ok(SecretStep::Make(plan)) = manager.ask(&config, &options, NOW) else {
                    panic!("{config:?}")
                };
                let Some(same) = golden.iter().find(|secret| secret["labels"]["name"] == config.name())
                else {
                    assert_eq!(part, "rotated", "{config:?}");
                    continue;
                };
                assert_eq!(same["name"], plan.name);
                let mut labels = same["labels"].as_object().unwrap().clone();
                labels.retain(|key, _| !["issued-at-time", "valid-until-time"].contains(&key.as_str()));
                assert_eq!(serde_json::to_value(&plan.labels).unwrap(), Value::Object(labels), "{config:?}");
            }
        }
        let mut ours = names(&golden("s2"), Some(&Outside { host: "192.0.2.1".into(), port: 443 }));
        ours.sort();
        // Only gardener-resource-manager's are missing from the golden list, because the agent does its work.
        let expected = "ca,ca-client,ca-etcd,ca-etcd-peer,ca-front-proxy,ca-istio-basic-auth-server,etcd-client,\
                        etcd-server-events,etcd-server-main,generic-token-kubeconfig,kube-aggregator,kube-apiserver,\
                        kube-apiserver-etcd-encryption-key,kube-apiserver-static-token,kube-controller-manager-server,\
                        service-account-key";
        assert_eq!(ours.join(","), expected);
        assert!(!names(&golden("s2"), None).contains(&SERVER.to_owned()));
    }

    #[test]
    fn a_key_that_is_made_is_counted() {
        let view = golden("s1");
        let all: Vec<_> = authorities(&view).into_iter().chain(keys(&view)).collect();
        let told = |begun: usize| making(&all[..begun], count_of_keys(&all));
        assert_eq!(told(3), Failed::progress("making RSA keys, 3 of 7"));
        // The key of the encryption comes before the last one, and is no RSA key.
        assert_eq!(told(8).text, "making RSA keys, 7 of 7");
    }

    #[test]
    fn certificates_have_the_names_of_the_golden_ones() {
        let names = etcd_names("main", "shoot--p--s2");
        assert_eq!(
            names.dns.join(","),
            "etcd-main-local,etcd-main-client,etcd-main-client.shoot--p--s2,etcd-main-client.shoot--p--s2.svc,\
             etcd-main-client.shoot--p--s2.svc.cluster.local,*.etcd-main-peer,*.etcd-main-peer.shoot--p--s2,\
             *.etcd-main-peer.shoot--p--s2.svc,*.etcd-main-peer.shoot--p--s2.svc.cluster.local"
        );
        let (config, options) = generic_kubeconfig(&golden("s2"), b"AB");
        assert!(options.keep_old && !options.persist);
        let SecretConfig::Kubeconfig { server, context, .. } = config else { panic!() };
        assert_eq!((server.as_str(), context.as_str()), ("kube-apiserver", "shoot--p--s2"));
    }

    #[test]
    fn created_secrets_are_found_by_volume() {
        let stored = |name: &str, entries: &[(&str, &str)]| {
            let data = entries.iter().map(|(k, v)| ((*k).to_owned(), v.as_bytes().to_vec())).collect();
            Arc::new(StoredSecret { name: name.to_owned(), data, ..StoredSecret::default() })
        };
        let set = |name: &str, entries: &[(&str, &str)]| SecretSet {
            current: stored(name, entries),
            old: Some(stored("old", &[("secret", "o")])),
            bundle: Some(stored(&format!("{name}-bundle"), &[("bundle.crt", "PEM")])),
        };
        let made = ShootSecrets(
            [
                ("ca", set("ca", &[])),
                (CA_CLIENT, set("ca-client-1", &[])),
                (
                    STATIC_TOKEN,
                    set("t-1", &[("static_tokens.csv", "x,other,other,\nabc,health-check,health-check,")]),
                ),
            ]
            .map(|(name, set)| (name.to_owned(), set))
            .into(),
        );
        assert_eq!(made.health_check_token(), "abc");
        assert_eq!(made.ca_bundle(), b"PEM");
        assert_eq!((made.current(CA_CLIENT), made.bundle(CA_CLIENT)), ("ca-client-1", "ca-client-1-bundle"));
        assert_eq!(made.of_kube_apiserver()[CA_CLIENT], "ca-client-1-bundle");
        assert_eq!(made.of_kube_controller_manager()[CA_CLIENT], "ca-client-1");
        assert_eq!(made.of_kube_apiserver()["server"], "");
        assert_eq!(made.old_data("ca").map(SortedMap::len), Some(1));
    }
}
