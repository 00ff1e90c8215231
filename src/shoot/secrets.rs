//! The Secrets of a control plane: CAs, keys, tokens, certificates, and the kubeconfig that its pods share. Names and
//! labels are those of Gardener's secrets manager.

use std::sync::Arc;

use super::rotation::{
    self, CA_CLIENT, ENCRYPTION_KEY, SERVICE_ACCOUNT_KEY, SSH_KEYPAIR, STATIC_TOKEN, of_authority, of_key,
};
use super::view::ShootView;
use crate::base::sorted::SortedMap;
use crate::components::exposure::KUBE_APISERVER;
use crate::flow::Failed;
use crate::pki::issue::{KeyUsage, ServerNames};
use crate::secrets::{
    Error, Options, SecretConfig, SecretEntries, SecretSet, Secrets, Signer, StoredSecret, TokenUser,
};

/// The kubeconfig that pods of the control plane share. Each pod has its own token.
pub(crate) const GENERIC_KUBECONFIG: &str = "generic-token-kubeconfig";
/// The folder of kubeconfig and token in a pod.
pub(crate) const KUBECONFIG_FOLDER: &str = "/var/run/secrets/gardener.cloud/shoot/generic-kubeconfig";
/// The user of the token for the kube-apiserver's probes.
const HEALTH_CHECK: &str = "health-check";

/// The present Secrets of a control plane.
#[derive(Clone, Debug)]
pub struct ShootSecrets(SortedMap<String, SecretSet>);

impl ShootSecrets {
    /// The name of a configuration's current Secret. Empty until it was requested: the API server's certificate is
    /// requested once the exposure has an address.
    pub(crate) fn current(&self, config: &str) -> &str {
        self.0.get(config).map_or("", |set| &set.current.name)
    }

    /// The name of the bundle for a CA, or for the key of ServiceAccounts.
    pub(crate) fn bundle(&self, config: &str) -> &str {
        self.0.get(config).and_then(|set| set.bundle.as_ref()).map_or("", |bundle| &bundle.name)
    }

    /// The content of a configuration's current Secret.
    pub fn data(&self, config: &str) -> Option<&SecretEntries> {
        self.0.get(config).map(|set| &set.current.data)
    }

    /// Certificate and key of a configuration's current Secret, by the names of their files.
    pub(crate) fn tls_files(&self, config: &str) -> Option<SortedMap<String, Vec<u8>>> {
        let files = self.data(config)?.iter().filter(|(file, _)| file.starts_with("tls."));
        Some(files.map(|(file, bytes)| (file.clone(), bytes.clone())).collect())
    }

    /// The content of the previous one, while it is valid.
    pub(crate) fn old_data(&self, config: &str) -> Option<&SecretEntries> {
        self.0.get(config)?.old.as_ref().map(|old| &old.data)
    }

    /// PEM texts of the CAs that verify the API server.
    pub fn ca_bundle(&self) -> &[u8] {
        self.bundle_of("ca")
    }

    /// PEM texts of a CA and of the previous one, while that is valid.
    pub(crate) fn bundle_of(&self, config: &str) -> &[u8] {
        let bundle = self.0.get(config).and_then(|set| set.bundle.as_ref());
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
pub(crate) const MAKING: &str = "making RSA keys, ";

/// Which of the keys is being made, if it is that of the last of these configurations.
fn making(begun: &[(SecretConfig, Options)], all: usize) -> Failed {
    Failed::progress(format!("{MAKING}{} of {all}", count_of_keys(begun)))
}

fn count_of_keys(configs: &[(SecretConfig, Options)]) -> usize {
    configs.iter().filter(|(config, _)| config.rsa_bits().is_some()).count()
}

/// Finds all Secrets, or creates missing ones.
///
/// # Errors
/// The secrets manager fails.
pub fn ensure(
    secrets: &mut Secrets,
    view: &ShootView,
    certificates: &[Certificate],
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
    let mut names: Vec<String> = first.iter().map(|(config, _)| config.name().to_owned()).collect();
    names.push(GENERIC_KUBECONFIG.to_owned());
    for certificate in certificates {
        secrets.ensure(&certificate.config, &certificate.options())?;
        names.push(certificate.config.name().to_owned());
    }
    let sets = names.into_iter().filter_map(|name| secrets.get(&name).cloned().map(|set| (name, set)));
    Ok(EnsuredSecrets::All(ShootSecrets(sets.collect())))
}

/// The keys, CAs and tokens that a move must not change, and of which there is no Secret.
pub(crate) fn lost(view: &ShootView, has: impl Fn(&str) -> bool) -> Vec<String> {
    let kept = authorities(view).into_iter().chain(keys(view)).filter(|(_, options)| options.persist);
    kept.map(|(config, _)| config.name().to_owned()).filter(|name| !has(name)).collect()
}

/// Deletes unused Secrets. A flow calls it after it has succeeded. Errors: the first one of the seed.
pub(crate) fn clean_up(secrets: &mut Secrets) -> Result<(), Error> {
    // The certificate is in use even if it was not requested because no address was known.
    let is_complete = secrets.get(KUBE_APISERVER).is_some();
    if is_complete { secrets.clean_up() } else { secrets.clean_up_asked() }
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
    rotation::authorities(view).map(authority).collect()
}

fn keys(view: &ShootView) -> Vec<(SecretConfig, Options)> {
    let own = |name: &str| name.to_owned();
    let user = TokenUser { username: own(HEALTH_CHECK), user_id: own(HEALTH_CHECK), groups: Vec::new() };
    // Upstream omits the provider that was once the only one.
    let provider = Some(view.encryption_provider()).filter(|provider| *provider != "aescbc");
    let provider = provider.unwrap_or_default().to_owned();
    let mut all = vec![
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
    ];
    if view.has_ssh {
        let config = SecretConfig::RsaKey { name: own(SSH_KEYPAIR), bits: 4_096, for_ssh: true };
        // Nodes accept the previous key until the next rotation.
        all.push((config, Options { persist: true, keep_old: true, ..Options::default() }));
    }
    all
}

fn generic_kubeconfig(view: &ShootView, ca: &[u8]) -> (SecretConfig, Options) {
    let config = SecretConfig::Kubeconfig {
        name: GENERIC_KUBECONFIG.to_owned(),
        context: view.technical_id.clone(),
        server: KUBE_APISERVER.to_owned(),
        ca: ca.to_vec(),
        token_file: format!("{KUBECONFIG_FOLDER}/token"),
        namespace: String::new(),
    };
    // Pods that were not replaced yet mount the previous one.
    (config, Options { keep_old: true, ..Options::default() })
}

/// A certificate of a control plane.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Certificate {
    /// Its configuration.
    pub(crate) config: SecretConfig,
    /// The CA that signs it.
    pub(crate) authority: &'static str,
    /// Which of the CA's Secrets signs it.
    signer: Signer,
}

impl Certificate {
    /// A certificate of this name that a CA signs.
    pub(crate) fn new(
        authority: &'static str,
        name: &str,
        common_name: &str,
        usage: KeyUsage,
        names: ServerNames,
    ) -> Self {
        let config = SecretConfig::Leaf {
            name: name.to_owned(),
            common_name: common_name.to_owned(),
            organizations: Vec::new(),
            usage,
            names,
            validity: None,
            skip_ca: true,
            with_chain: false,
        };
        Self { config, authority, signer: Signer::ByUsage }
    }

    fn options(&self) -> Options {
        let signed_by = Some(self.authority.to_owned());
        Options { signed_by, signer: self.signer, ..Options::default() }
    }

    /// The previous CA signs it while that one is valid.
    #[must_use]
    pub(crate) const fn by_previous_authority(mut self) -> Self {
        self.signer = Signer::Old;
        self
    }

    /// The current CA signs it, although it is a server's: its clients get the new CA together with it.
    #[must_use]
    pub(crate) const fn by_current_authority(mut self) -> Self {
        self.signer = Signer::Current;
        self
    }

    /// Which of the CA's Secrets signs it.
    #[cfg(test)]
    pub(crate) const fn signer(&self) -> Signer {
        self.signer
    }

    /// The CA follows the certificate in `tls.crt`.
    #[must_use]
    pub(crate) fn with_chain(mut self) -> Self {
        if let SecretConfig::Leaf { with_chain, .. } = &mut self.config {
            *with_chain = true;
        }
        self
    }
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
        for (shoot, part) in [("s1", "created"), ("s1-prepared", "rotated"), ("w4", "workers")] {
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
        // Certificates and the kubeconfig are missing: their names do not depend on the rotation.
        let ours = authorities(&golden("s2")).into_iter().chain(keys(&golden("s2")));
        let mut ours: Vec<String> = ours.map(|(config, _)| config.name().to_owned()).collect();
        ours.sort();
        let expected = "ca,ca-client,ca-etcd,ca-etcd-peer,ca-front-proxy,ca-istio-basic-auth-server,\
                        kube-apiserver-etcd-encryption-key,kube-apiserver-static-token,service-account-key";
        assert_eq!(ours.join(","), expected);
    }

    #[test]
    fn a_move_must_not_make_keys_anew() {
        let view = golden("s1");
        let all = lost(&view, |_| false);
        assert_eq!(all.len(), 6 + 3);
        let of_nodes = lost(&golden("w4"), |name| all.iter().any(|known| known == name));
        assert_eq!(of_nodes.join(" "), "ca-kubelet ca-metrics-server ca-vpn ssh-keypair");
        let table: [(&[&str], &[&str]); 3] = [
            (&[], &[]),
            (&["ca"], &["ca"]),
            (&[SERVICE_ACCOUNT_KEY, CA_CLIENT], &[CA_CLIENT, SERVICE_ACCOUNT_KEY]),
        ];
        for (missing, expected) in table {
            assert_eq!(lost(&view, |name| !missing.contains(&name)), expected);
        }
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
    fn the_kubeconfig_names_the_server_as_pods_see_it() {
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
        assert_eq!(made.current("not requested yet"), "");
        assert_eq!(made.old_data("ca").map(SortedMap::len), Some(1));
    }
}
