//! The secrets manager with a real API server and real keys, used as an agent does for a Shoot.

use std::collections::BTreeMap;
use std::sync::Arc;

use gardenlet::base::clock::Clock;
use gardenlet::base::stop::Stop;
use gardenlet::kube::{Client, Seed};
use gardenlet::pki::keys::RsaKeyStock;
use gardenlet::secrets::{self, Options, SecretConfig, SecretsLocation, SecretsRotation};

use crate::failure::{Failure, Result};
use crate::wait;

/// Secrets of one namespace.
#[derive(Debug)]
pub(crate) struct Secrets {
    run: secrets::Secrets,
    configs: Vec<String>,
}

impl Secrets {
    /// Starts a run of the manager.
    pub(crate) fn new(client: Client, namespace: &str) -> Result<Self> {
        let place = SecretsLocation {
            client: Seed(client),
            namespace: namespace.to_owned(),
            identity: "gardenlet".to_owned(),
            keys: Arc::new(RsaKeyStock::new(&Stop::new())),
            clock: Clock::system(),
        };
        let run = secrets::Secrets::load(place, &SecretsRotation::default())?;
        Ok(Self { run, configs: Vec::new() })
    }

    /// A CA or a key, and its bundle.
    pub(crate) fn with_bundle(&mut self, config: &SecretConfig) -> Result<()> {
        self.one(config, &Options { plain_name: true, keep_old: true, persist: true, ..Options::default() })
    }

    /// A certificate that a CA signs.
    pub(crate) fn signed(&mut self, config: &SecretConfig, ca: &str) -> Result<()> {
        self.one(config, &Options { signed_by: Some(ca.to_owned()), ..Options::default() })
    }

    /// Waits until a Secret exists.
    pub(crate) fn one(&mut self, config: &SecretConfig, options: &Options) -> Result<()> {
        self.configs.push(config.name().to_owned());
        let run = &mut self.run;
        wait::until(&format!("Secret {}", config.name()), 120, || run.ensure(config, options)).map(drop)
    }

    /// The name of each Secret, by the name of its configuration.
    pub(crate) fn names(&self) -> BTreeMap<String, String> {
        let mut names = BTreeMap::new();
        for config in &self.configs {
            let Some(set) = self.run.get(config) else { continue };
            names.insert(config.clone(), set.current.name.clone());
            if let Some(bundle) = &set.bundle {
                names.insert(format!("{config}-bundle"), bundle.name.clone());
            }
        }
        names
    }

    /// One entry of the current Secret of a configuration, or of its bundle.
    pub(crate) fn entry(&self, config: &str, key: &str) -> Result<String> {
        let set = |name| self.run.get(name);
        let bundle = || set(config.strip_suffix("-bundle")?)?.bundle.clone();
        let secret = set(config).map(|set| Arc::clone(&set.current)).or_else(bundle);
        let secret = secret.ok_or_else(|| Failure::new(format!("there is no Secret of {config}")))?;
        Ok(String::from_utf8_lossy(secret.get(key)).into_owned())
    }
}
