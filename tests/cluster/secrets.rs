//! The secrets manager with a real API server: what an agent does with it for a Seed or a Shoot.

use std::collections::BTreeMap;
use std::sync::Arc;

use gardenlet::api::core::SECRET;
use gardenlet::base::clock::{Clock, Timestamp};
use gardenlet::format::base64;
use gardenlet::kube::Client;
use gardenlet::pki::Key;
use gardenlet::secrets::{Config, Manager, Options, Rotation, Step, Stored};
use serde_json::{Value, json};

use crate::failure::{Failure, Result};

/// Secrets of one namespace.
#[derive(Debug)]
pub(crate) struct Secrets {
    manager: Manager,
    client: Client,
    namespace: String,
    now: Timestamp,
}

impl Secrets {
    /// For a namespace without Secrets.
    pub(crate) fn new(client: Client, namespace: &str) -> Result<Self> {
        let now = Clock::system().now();
        let manager = Manager::new("gardenlet", Vec::new(), Vec::new(), &Rotation::default(), now)?;
        Ok(Self { manager, client, namespace: namespace.to_owned(), now })
    }

    /// A CA or a key, and its bundle.
    pub(crate) fn with_bundle(&mut self, config: &Config) -> Result<()> {
        self.one(config, &Options { plain_name: true, keep_old: true, persist: true, ..Options::default() })?;
        let bundle = self.manager.bundle_of(config);
        let bundle = bundle.ok_or_else(|| Failure::new(format!("{} has no bundle", config.name())))?;
        self.one(&bundle, &Options::default()).map(drop)
    }

    /// A certificate that a CA signs.
    pub(crate) fn signed(&mut self, config: &Config, ca: &str) -> Result<Arc<Stored>> {
        self.one(config, &Options { signed_by: Some(ca.to_owned()), ..Options::default() })
    }

    /// Makes a Secret, or whatever else the manager finds to do, until it is as it should be; then writes it.
    pub(crate) fn one(&mut self, config: &Config, options: &Options) -> Result<Arc<Stored>> {
        loop {
            match self.manager.ask(config, options, self.now)? {
                Step::Make(plan) => {
                    let key = config.rsa_bits().map(Key::new_rsa).transpose().map_err(Failure::new)?;
                    let data = plan.fill(config, key.as_ref(), self.now)?;
                    let (name, labels) = (plan.name, plan.labels);
                    self.manager.put(Stored { name, labels, data, created: self.now, is_immutable: false });
                }
                Step::Label { name, labels } => {
                    let old = self.manager.known(&name).cloned().unwrap_or_default();
                    self.manager.put(Stored { labels, is_immutable: true, ..old });
                }
                Step::Ready(secret) => {
                    self.client.create::<Value>(&SECRET, &self.namespace, &self.object(&secret))?;
                    return Ok(secret);
                }
            }
        }
    }

    fn object(&self, secret: &Stored) -> Value {
        let data: BTreeMap<&str, String> =
            secret.data.iter().map(|(key, value)| (key.as_str(), base64::encode(value))).collect();
        json!({
            "apiVersion": "v1",
            "kind": "Secret",
            "type": if data.contains_key("tls.crt") { "kubernetes.io/tls" } else { "Opaque" },
            "metadata": {"name": secret.name, "namespace": self.namespace, "labels": secret.labels},
            "immutable": secret.is_immutable,
            "data": data,
        })
    }

    /// The name of each Secret, by the name of its configuration.
    pub(crate) fn names(&self) -> BTreeMap<String, String> {
        let label = |secret: &Stored| secret.labels.get(gardenlet::secrets::labels::NAME).cloned();
        self.manager.all().filter_map(|secret| Some((label(secret)?, secret.name.clone()))).collect()
    }

    /// One entry of the Secret in use of a configuration.
    pub(crate) fn entry(&self, config: &str, key: &str) -> Result<String> {
        let set =
            self.manager.get(config).map(|set| String::from_utf8_lossy(set.current.get(key)).into_owned());
        set.ok_or_else(|| Failure::new(format!("there is no Secret of {config}")))
    }
}
