//! The secrets manager of a namespace: reads its Secrets once, and performs the decisions of [`SecretsManager`].

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;

use super::config::SecretConfig;
use super::manager::{Options, SecretPlan, SecretSet, SecretStep, SecretsManager, SecretsRotation};
use super::stored::{SecretEntries, StoredSecret};
use super::{Error, labels};
use crate::api::core::{SECRET, Secret};
use crate::api::meta::Key;
use crate::base::clock::Clock;
use crate::base::json::json;
use crate::base::sorted::{SortedMap, SortedSet};
use crate::format::base64;
use crate::kube::request::ListParams;
use crate::kube::{self, DeleteParams, Patch, Seed};
use crate::pki::AnyKey;
use crate::pki::keys::RsaKeys;

/// When to ask again for a Secret whose RSA key is being generated.
pub(crate) const KEY_AGAIN: Duration = Duration::from_millis(500);

/// The maximum number of steps for one Secret: read, create, label. If a server undoes each of them,
/// the manager gives up.
const STEPS_MAX: usize = 8;

/// The location of the Secrets, and what is needed to create them.
#[derive(Clone)]
pub struct SecretsLocation {
    /// The seed, through a client that checks the lease before it writes.
    pub client: Seed,
    /// The namespace.
    pub namespace: String,
    /// Label `manager-identity`: `gardenlet`.
    pub identity: String,
    /// It generates the RSA keys.
    pub keys: Arc<dyn RsaKeys>,
    /// Time.
    pub clock: Clock,
}

impl fmt::Debug for SecretsLocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { namespace, identity, .. } = self;
        f.debug_struct("SecretsLocation")
            .field("namespace", namespace)
            .field("identity", identity)
            .finish_non_exhaustive()
    }
}

/// The Secrets of one run of a flow. The flow's context holds it from [`Secrets::load`] to [`Secrets::clean_up`]:
///
/// ```text
/// let mut secrets = Secrets::load(place, &SecretsRotation { renews_cas: true, ..SecretsRotation::default() })?;
/// // In a task:
/// match secrets.ensure(&ca_seed, &options)? {
///     Some(ca) => ...
///     None => return Ok(TaskStep::again(KEY_AGAIN, "an RSA key is being generated")),
/// }
/// ```
///
/// CAs come before what they sign. An [`Error`] becomes a [`crate::flow::Failed`] with `?`.
#[derive(Debug)]
pub struct Secrets {
    place: SecretsLocation,
    manager: SecretsManager,
    /// Names that were looked up and do not exist, remembered while a key is being generated.
    absent: SortedSet<String>,
    /// Keys that belonged to requests that were not sent, by length.
    taken: SortedMap<usize, AnyKey>,
}

impl Secrets {
    /// Lists the Secrets of the manager. Errors: a request to the seed fails; or a label is not a valid time.
    pub fn load(place: SecretsLocation, rotation: &SecretsRotation) -> Result<Self, Error> {
        let all = place.list(labels::selector(&place.identity))?;
        let manager = SecretsManager::new(&place.identity, all, rotation, place.clock.now())
            .map_err(|error| error.within(&place.namespace))?;
        Ok(Self { place, manager, absent: SortedSet::new(), taken: SortedMap::new() })
    }

    /// The Secret of a configuration: found, labelled or created; its bundle too, if it has one. `None` while
    /// its RSA key is being generated: ask again after [`KEY_AGAIN`]. It never blocks. Errors: a request to
    /// the seed fails; or a Secret is damaged or belongs to another owner, see the module.
    pub fn ensure(
        &mut self,
        config: &SecretConfig,
        options: &Options,
    ) -> Result<Option<Arc<StoredSecret>>, Error> {
        let Some(secret) = self.ensure_one(config, options)? else { return Ok(None) };
        if let Some(bundle) = self.manager.bundle_of(config) {
            // It needs no key.
            self.ensure_one(&bundle, &Options::default())?;
        }
        Ok(Some(secret))
    }

    /// The Secrets of a requested configuration: current, old, bundle.
    pub fn get(&self, config: &str) -> Option<&SecretSet> {
        self.manager.get(config)
    }

    /// Whether a configuration has a Secret, whatever its age.
    pub(crate) fn has(&self, config: &str) -> bool {
        self.manager.has(config)
    }

    /// Deletes Secrets that were not requested in this run, at the end of a flow that has requested
    /// everything. Errors: the first request that fails; the others are deleted nevertheless.
    pub fn clean_up(&mut self) -> Result<(), Error> {
        self.delete_all(self.manager.unwanted())
    }

    /// The same for a namespace in which another gardenlet may have created Secrets that this program does
    /// not request: they stay, because they are in use. Deletes only older Secrets of the requested
    /// configurations. Errors: the first request that fails; the others are deleted nevertheless.
    pub(crate) fn clean_up_asked(&mut self) -> Result<(), Error> {
        self.delete_all(self.manager.outdated())
    }

    fn delete_all(&mut self, unwanted: Vec<String>) -> Result<(), Error> {
        let mut first = Ok(());
        for name in unwanted {
            let SecretsLocation { client, namespace, .. } = &self.place;
            match client.delete(&SECRET, &Key::new(namespace, &name), &DeleteParams::default()) {
                Err(error) if !error.is_not_found() => {
                    first = first.and(Err(self.place.failed("delete", &name)(error)));
                }
                _ => self.manager.forget(&name),
            }
        }
        first
    }

    fn ensure_one(
        &mut self,
        config: &SecretConfig,
        options: &Options,
    ) -> Result<Option<Arc<StoredSecret>>, Error> {
        for _ in 0..STEPS_MAX {
            let now = self.place.clock.now();
            let step = self.manager.ask(config, options, now);
            match step.map_err(|error| error.within(&self.place.namespace))? {
                SecretStep::Ready(secret) => return Ok(Some(secret)),
                SecretStep::Label { name, labels } => self.label(&name, &labels)?,
                SecretStep::Make(plan) => {
                    if !self.adopt(&plan)? && !self.make(config, options, plan)? {
                        return Ok(None);
                    }
                }
            }
        }
        Err(Error::Unsettled { config: config.name().to_owned(), namespace: self.place.namespace.clone() })
    }

    /// Sets all labels, and makes the data immutable.
    fn label(&mut self, name: &str, wanted: &SortedMap<String, String>) -> Result<(), Error> {
        let Some(known) = self.manager.known(name).cloned() else { return Ok(()) };
        let mut changes: serde_json::Map<String, Value> =
            wanted.iter().map(|(key, value)| (key.clone(), json!(value))).collect();
        changes.retain(|key, value| known.labels.get(key).map(String::as_str) != value.as_str());
        let gone = known.labels.keys().filter(|key| !wanted.contains_key(*key));
        changes.extend(gone.map(|key| (key.clone(), Value::Null)));
        let mut patch = json!({"metadata": {"labels": changes}});
        if !known.is_immutable {
            patch["immutable"] = json!(true);
        }
        let SecretsLocation { client, namespace, .. } = &self.place;
        match client.patch_blindly(&SECRET, &Key::new(namespace, name), &Patch::Merge(patch)) {
            Ok(()) => {
                self.manager.put(StoredSecret { labels: wanted.clone(), is_immutable: true, ..known });
                Ok(())
            }
            // Deleted since it was listed: it is created again.
            Err(error) if error.is_not_found() => {
                self.manager.forget(name);
                Ok(())
            }
            Err(error) => Err(self.place.failed("label", name)(error)),
        }
    }

    /// Whether a Secret with the plan's name exists.
    fn adopt(&mut self, plan: &SecretPlan) -> Result<bool, Error> {
        if self.absent.contains(&plan.name) {
            return Ok(false);
        }
        let Some(found) = self.place.find(&plan.name)? else {
            self.absent.insert(plan.name.clone());
            return Ok(false);
        };
        self.manager.put(found);
        Ok(true)
    }

    /// Returns whether it was created: its key may not be ready yet.
    fn make(&mut self, config: &SecretConfig, options: &Options, plan: SecretPlan) -> Result<bool, Error> {
        let SecretsLocation { client, namespace, keys, clock, .. } = &self.place;
        let lenders = self.place.list(format!("{}={}", labels::USE_DATA_FOR, config.name()))?;
        let plan = plan.lent(config, lenders).map_err(|error| error.within(namespace))?;
        let bits = config.rsa_bits().filter(|_| plan.source.is_none());
        let key = bits.and_then(|bits| self.taken.remove(&bits).or_else(|| keys.take(bits)));
        if bits.is_some() && key.is_none() {
            return Ok(false);
        }
        let now = clock.now();
        let data = plan.fill(config, key.as_ref(), now);
        let data =
            data.map_err(|source| Error::Make { secret: plan.name.clone(), source }.within(namespace))?;
        let secret = plan.secret(config, options, data, now).map_err(|error| error.within(namespace))?;
        self.absent.remove(&secret.name);
        match client.create::<Secret>(&SECRET, namespace, &object(namespace, &secret)) {
            Ok(created) => self.manager.put(self.place.stored(created)?),
            // Another client was faster: the next step finds it.
            Err(error) if error.is_already_exists() => {}
            Err(error) => {
                // Only a key that was never sent may be reused for another Secret.
                if error.postponed().is_some() {
                    self.taken.extend(bits.zip(key));
                }
                return Err(self.place.failed("create", &secret.name)(error));
            }
        }
        Ok(true)
    }
}

impl SecretsLocation {
    fn list(&self, label_selector: String) -> Result<Vec<StoredSecret>, Error> {
        let params = ListParams { label_selector, ..ListParams::default() };
        let mut all = Vec::new();
        self.client
            .list_all::<Secret>(&SECRET, &self.namespace, &params, &mut |secret| all.push(secret))
            .map_err(self.failed("list", ""))?;
        all.into_iter().map(|secret| self.stored(secret)).collect()
    }

    fn find(&self, name: &str) -> Result<Option<StoredSecret>, Error> {
        let found = self.client.find::<Secret>(&SECRET, &Key::new(&self.namespace, name));
        found.map_err(self.failed("read", name))?.map(|secret| self.stored(secret)).transpose()
    }

    fn stored(&self, secret: Secret) -> Result<StoredSecret, Error> {
        let Secret { metadata, data, immutable, kind } = secret;
        let mut decoded = SecretEntries::new();
        for (key, text) in data {
            let bytes = base64::decode(text.as_bytes()).map_err(|_| {
                let why = format!("{key} is not base64");
                Error::Damaged { secret: metadata.name.clone(), why }.within(&self.namespace)
            })?;
            decoded.insert(key, bytes);
        }
        Ok(StoredSecret {
            name: metadata.name,
            labels: metadata.labels,
            data: decoded,
            created: metadata.creation_timestamp.unwrap_or_default(),
            is_immutable: immutable,
            kind,
        })
    }

    fn failed(&self, verb: &str, name: &str) -> impl FnOnce(kube::Error) -> Error + use<> {
        let operation = match name {
            "" => format!("{verb} secrets of namespace {}", self.namespace),
            name => format!("{verb} secret {}/{name}", self.namespace),
        };
        move |source| Error::Kube { operation, source }
    }
}

fn object(namespace: &str, secret: &StoredSecret) -> Value {
    let data: serde_json::Map<String, Value> =
        secret.data.iter().map(|(key, value)| (key.clone(), json!(base64::encode(value)))).collect();
    json!({
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": secret.name, "namespace": namespace, "labels": secret.labels},
        "type": secret.kind,
        "immutable": true,
        "data": data,
    })
}
