//! Decides which Secret a configuration refers to, and what is missing. Pure: the caller reads the Secrets, performs
//! the decided writes, and reports them back.

use std::sync::Arc;
use std::time::Duration;

use super::config::SecretConfig;
use super::make;
use super::name::{checksum_of_data, secret_name, suffix_of_config};
use super::stored::{SecretEntries, StoredSecret};
use super::{Error, labels};
use crate::base::clock::Timestamp;
use crate::base::sorted::{SortedMap, SortedSet};
use crate::pki::Certificate;

/// When Secrets are renewed.
#[derive(Clone, Debug, Default)]
pub struct SecretsRotation {
    /// Whether CAs are renewed automatically too.
    pub renews_cas: bool,
    /// When a rotation was last requested, by name of the configuration.
    pub initiated: SortedMap<String, Timestamp>,
}

/// The CA that signs a certificate, if there are two.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Signer {
    /// The old one signs server certificates, the current one client certificates.
    #[default]
    ByUsage,
    /// The current one.
    Current,
    /// The old one.
    Old,
}

/// Options of a Secret.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Options {
    /// A migration copies it.
    pub persist: bool,
    /// The previous Secret is kept after a rotation.
    pub keep_old: bool,
    /// The previous Secret is ignored.
    pub ignore_old: bool,
    /// The previous Secret is ignored after this time.
    pub ignore_old_after: Option<Duration>,
    /// Configuration of the CA that signs it.
    pub signed_by: Option<String>,
    /// Which of the CA's Secrets signs it.
    pub signer: Signer,
    /// When a certificate is renewed, in percent of its validity; 80 if unset.
    pub renew_after_percent: Option<u32>,
    /// The name contains no checksum.
    pub plain_name: bool,
    /// The validity of content other than certificates.
    pub validity: Option<Duration>,
    /// Additional labels besides the manager's own.
    pub labels: SortedMap<String, String>,
}

/// The Secrets of one configuration.
#[derive(Clone, Debug)]
pub struct SecretSet {
    /// The current one.
    pub current: Arc<StoredSecret>,
    /// The previous one.
    pub old: Option<Arc<StoredSecret>>,
    /// Both, for verification.
    pub bundle: Option<Arc<StoredSecret>>,
}

/// The next step for a configuration.
#[derive(Clone, Debug)]
pub(crate) enum SecretStep {
    /// The Secret is correct.
    Ready(Arc<StoredSecret>),
    /// Set its labels, or make it immutable.
    Label { name: String, labels: SortedMap<String, String> },
    /// No Secret is known. The caller first reads the Secret with that name, and reports an existing one with
    /// [`SecretsManager::put`]: a Secret that has lost its labels is not in the list.
    Make(SecretPlan),
}

/// A Secret to create.
#[derive(Clone, Debug)]
pub(crate) struct SecretPlan {
    pub(crate) name: String,
    /// Labels, without those that depend on the data.
    pub(crate) labels: SortedMap<String, String>,
    /// The Secret whose data is reused.
    pub(crate) source: Option<Arc<StoredSecret>>,
    /// The CA that signs it.
    pub(crate) ca: Option<Arc<StoredSecret>>,
}

#[derive(Debug)]
pub(crate) struct SecretsManager {
    identity: String,
    known: SortedMap<String, Arc<StoredSecret>>,
    /// When the last rotation started, by name of the configuration.
    rotations: SortedMap<String, Timestamp>,
    sets: SortedMap<String, SecretSet>,
    asked: SortedSet<String>,
}

/// A certificate is renewed at the latest when this much of its validity is left.
const RENEW_BEFORE: Duration = Duration::from_secs(10 * 24 * 3_600);
const RENEW_AFTER_PERCENT: i64 = 80;

impl SecretsManager {
    /// From all Secrets that [`labels::selector`] selects. Errors: a label is not a valid time.
    pub(crate) fn new(
        identity: &str,
        all: Vec<StoredSecret>,
        rotation: &SecretsRotation,
        now: Timestamp,
    ) -> Result<Self, Error> {
        let known: SortedMap<_, _> = all.into_iter().map(|s| (s.name.clone(), Arc::new(s))).collect();
        let mut newest: SortedMap<&str, &StoredSecret> = SortedMap::new();
        for secret in known.values() {
            let place = newest.entry(secret.label(labels::NAME)).or_insert(secret);
            if place.age() < secret.age() {
                *place = secret;
            }
        }
        let mut rotations = SortedMap::new();
        for (config, secret) in newest {
            let text = secret.label(labels::LAST_ROTATION);
            let malformed = |key| Error::Label { secret: secret.name.clone(), key };
            if !text.is_empty() {
                let at = text.parse().map_err(|_| malformed(labels::LAST_ROTATION))?;
                rotations.insert(config.to_owned(), Timestamp::from_unix(at));
            }
            if (rotation.renews_cas || !secret.is_ca()) && wants_renewal(secret, now)? {
                rotations.insert(config.to_owned(), now);
            }
        }
        rotations.extend(rotation.initiated.iter().map(|(config, at)| (config.clone(), *at)));
        Ok(Self {
            identity: identity.to_owned(),
            known,
            rotations,
            sets: SortedMap::new(),
            asked: SortedSet::new(),
        })
    }

    /// Returns the next step for a configuration. The caller performs it, reports it with [`SecretsManager::put`],
    /// and asks again until the result is [`SecretStep::Ready`]. Errors: a CA was not requested before; or the
    /// content of a Secret does not match its name, in which case it is never replaced.
    pub(crate) fn ask(
        &mut self,
        config: &SecretConfig,
        options: &Options,
        now: Timestamp,
    ) -> Result<SecretStep, Error> {
        let ca = options.signed_by.as_deref().map(|ca| self.signer(ca, config, options)).transpose()?;
        let signing = ca.as_ref().map(|ca| checksum_of_data(&ca.data));
        let rotated = self.rotations.get(config.name()).copied();
        let suffix = suffix_of_config(config.checksum(), signing.as_deref().unwrap_or_default());
        let is_plain = options.plain_name && config.is_ca();
        let name = secret_name(config.name(), (!is_plain).then_some(suffix.as_str()), rotated);
        let mut labels = self.labels(config, options, signing, rotated);
        let Some(found) = self.known.get(&name).cloned() else {
            if config.is_ca()
                && let Some(before) = self.newest_other(config.name(), &name)
            {
                intact(before)?;
            }
            return Ok(SecretStep::Make(SecretPlan { name, labels, source: None, ca }));
        };
        if config.is_ca() {
            self.own(config, &found)?;
        }
        lifetime(&mut labels, config, options, &found, now)?;
        if found.labels != labels || !found.is_immutable {
            return Ok(SecretStep::Label { name, labels });
        }
        self.keep(config, options, &found, now)?;
        Ok(SecretStep::Ready(found))
    }

    /// A Secret was deleted.
    pub(crate) fn forget(&mut self, name: &str) {
        self.known.remove(name);
    }

    /// The present state of a Secret.
    pub(crate) fn put(&mut self, secret: StoredSecret) {
        self.known.insert(secret.name.clone(), Arc::new(secret));
    }

    /// The Secret with this name.
    pub(crate) fn known(&self, name: &str) -> Option<&StoredSecret> {
        self.known.get(name).map(|secret| &**secret)
    }

    /// Whether a configuration has a Secret, whatever its age.
    pub(crate) fn has(&self, config: &str) -> bool {
        self.known.values().any(|secret| secret.label(labels::NAME) == config)
    }

    #[cfg(test)]
    pub(crate) fn all(&self) -> impl Iterator<Item = &StoredSecret> {
        self.known.values().map(|secret| &**secret)
    }

    /// The configuration of the bundle for a requested CA or key.
    pub(crate) fn bundle_of(&self, config: &SecretConfig) -> Option<SecretConfig> {
        let set = self.sets.get(config.name())?;
        let pems = |key: &str| {
            let both = [Some(&set.current), set.old.as_ref()];
            both.into_iter().flatten().map(|secret| secret.get(key).to_vec()).collect()
        };
        let name = format!("{}{BUNDLE}", config.name());
        match config {
            SecretConfig::Ca { .. } => Some(SecretConfig::CertificateBundle { name, pems: pems("ca.crt") }),
            SecretConfig::RsaKey { for_ssh: false, .. } => {
                Some(SecretConfig::KeyBundle { name, pems: pems("id_rsa") })
            }
            _ => None,
        }
    }

    /// The Secrets of a requested configuration.
    pub(crate) fn get(&self, config: &str) -> Option<&SecretSet> {
        self.sets.get(config)
    }

    /// Secrets that were not requested in this run.
    pub(crate) fn unwanted(&self) -> Vec<String> {
        self.known.keys().filter(|name| !self.asked.contains(*name)).cloned().collect()
    }

    /// Secrets that were not requested in this run, although their configuration was.
    pub(crate) fn outdated(&self) -> Vec<String> {
        let mut all = self.unwanted();
        all.retain(|name| {
            self.known.get(name).is_some_and(|secret| self.sets.contains_key(secret.label(labels::NAME)))
        });
        all
    }

    /// A CA must have our labels, because everything will trust its certificates.
    fn own(&self, config: &SecretConfig, ca: &StoredSecret) -> Result<(), Error> {
        let own = [
            (labels::NAME, config.name()),
            (labels::MANAGED_BY, labels::SECRETS_MANAGER),
            (labels::IDENTITY, &self.identity),
        ];
        if own.iter().all(|(key, value)| ca.label(key) == *value) {
            return Ok(());
        }
        let labels = own.map(|(key, value)| format!("{key}={value}")).join(",");
        Err(Error::Foreign { secret: ca.name.clone(), labels })
    }

    fn labels(
        &self,
        config: &SecretConfig,
        options: &Options,
        signing: Option<String>,
        rotated: Option<Timestamp>,
    ) -> SortedMap<String, String> {
        let rotated = rotated.map(|at| at.unix().to_string()).unwrap_or_default();
        let bundle_for = match config {
            SecretConfig::CertificateBundle { name, .. } | SecretConfig::KeyBundle { name, .. } => {
                name.strip_suffix(BUNDLE).map(str::to_owned)
            }
            _ => None,
        };
        let all = [
            (labels::NAME, Some(config.name().to_owned())),
            (labels::MANAGED_BY, Some(labels::SECRETS_MANAGER.to_owned())),
            (labels::IDENTITY, Some(self.identity.clone())),
            (labels::CHECKSUM, Some(config.checksum().to_string())),
            (labels::CHECKSUM_OF_CA, signing),
            (labels::LAST_ROTATION, Some(rotated)),
            (labels::PERSIST, options.persist.then(|| "true".to_owned())),
            (labels::BUNDLE_FOR, bundle_for),
            (labels::RENEW_AFTER, options.renew_after_percent.map(|percent| percent.to_string())),
        ];
        let own = all.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value?)));
        let mut labels = options.labels.clone();
        labels.extend(own);
        labels
    }

    fn signer(&self, ca: &str, config: &SecretConfig, options: &Options) -> Result<Arc<StoredSecret>, Error> {
        let set = self.sets.get(ca).ok_or_else(|| Error::NoCa { ca: ca.to_owned() })?;
        let is_server = matches!(config, SecretConfig::Leaf { usage, .. } if usage.is_server());
        let wants_old = match options.signer {
            Signer::ByUsage => is_server,
            Signer::Current => false,
            Signer::Old => true,
        };
        let old = set.old.as_ref().filter(|_| wants_old);
        Ok(Arc::clone(old.unwrap_or(&set.current)))
    }

    fn keep(
        &mut self,
        config: &SecretConfig,
        options: &Options,
        current: &Arc<StoredSecret>,
        now: Timestamp,
    ) -> Result<(), Error> {
        self.asked.insert(current.name.clone());
        if let SecretConfig::CertificateBundle { name, .. } | SecretConfig::KeyBundle { name, .. } = config
            && let Some(set) = name.strip_suffix(BUNDLE).and_then(|of| self.sets.get_mut(of))
        {
            set.bundle = Some(Arc::clone(current));
        }
        let issued = current.time(labels::ISSUED_AT).unwrap_or(current.created);
        let is_over = options.ignore_old_after.is_some_and(|after| now.since(issued) >= after);
        let wants_old = options.keep_old && !options.ignore_old && !is_over;
        let old = wants_old.then(|| self.newest_other(config.name(), &current.name)).flatten();
        let is_valid =
            |old: &&Arc<StoredSecret>| old.time(labels::VALID_UNTIL).is_none_or(|until| now < until);
        let old = old.filter(is_valid).cloned();
        if let Some(old) = &old {
            if config.is_ca() {
                intact(old)?;
            }
            self.asked.insert(old.name.clone());
        }
        let bundle = self.sets.get(config.name()).and_then(|set| set.bundle.clone());
        self.sets.insert(config.name().to_owned(), SecretSet { current: Arc::clone(current), old, bundle });
        Ok(())
    }

    /// The newest Secret of a configuration, except for one.
    fn newest_other(&self, config: &str, name: &str) -> Option<&Arc<StoredSecret>> {
        let same = |other: &&Arc<StoredSecret>| other.name != name && other.label(labels::NAME) == config;
        self.known.values().filter(same).max_by_key(|other| other.age())
    }
}

impl SecretPlan {
    /// The same, with the data of another Secret. `lenders` are the Secrets with the label
    /// [`labels::USE_DATA_FOR`] for the configuration. Errors: there are several; or the lent CA is damaged.
    pub(crate) fn lent(
        mut self,
        config: &SecretConfig,
        mut lenders: Vec<StoredSecret>,
    ) -> Result<Self, Error> {
        if lenders.len() > 1 {
            let secrets = lenders.into_iter().map(|secret| secret.name).collect();
            return Err(Error::Lenders { config: config.name().to_owned(), secrets });
        }
        self.source = lenders.pop().map(Arc::new);
        if let (Some(source), true) = (&self.source, config.is_ca()) {
            intact(source)?;
        }
        Ok(self)
    }

    /// The Secret, with the labels that depend on its data. Errors: the data does
    /// not match the configuration.
    pub(crate) fn secret(
        &self,
        config: &SecretConfig,
        options: &Options,
        data: SecretEntries,
        now: Timestamp,
    ) -> Result<StoredSecret, Error> {
        let is_tls = ["tls.crt", "tls.key"].iter().all(|key| data.contains_key(*key));
        let kind = if is_tls { TLS } else { OPAQUE };
        let mut secret = StoredSecret {
            name: self.name.clone(),
            labels: self.labels.clone(),
            data,
            created: now,
            is_immutable: true,
            kind: kind.to_owned(),
        };
        let mut labels = self.labels.clone();
        lifetime(&mut labels, config, options, &secret, now)?;
        secret.labels = labels;
        Ok(secret)
    }
}

/// The suffix of a bundle's name.
const BUNDLE: &str = "-bundle";

const OPAQUE: &str = "Opaque";
const TLS: &str = "kubernetes.io/tls";

/// A damaged CA is neither replaced nor trusted.
fn intact(ca: &StoredSecret) -> Result<(), Error> {
    if ca.kind != OPAQUE {
        let why = format!("its type is {:?} instead of {OPAQUE}", ca.kind);
        return Err(Error::Damaged { secret: ca.name.clone(), why });
    }
    make::check_ca(ca).map_err(|why| Error::Damaged { secret: ca.name.clone(), why })
}

/// Adds the labels with the validity of a Secret.
fn lifetime(
    labels: &mut SortedMap<String, String>,
    config: &SecretConfig,
    options: &Options,
    secret: &StoredSecret,
    now: Timestamp,
) -> Result<(), Error> {
    let mut set = |issued: Timestamp, until: Option<i64>| {
        labels.insert(labels::ISSUED_AT.to_owned(), issued.unix().to_string());
        if let Some(until) = until {
            labels.insert(labels::VALID_UNTIL.to_owned(), until.to_string());
        }
    };
    let key = match config {
        SecretConfig::Ca { .. } => "ca.crt",
        SecretConfig::Leaf { .. } => "tls.crt",
        SecretConfig::ClientKubeconfig { name, .. } => &format!("{name}.crt"),
        _ => {
            let issued = secret.time(labels::ISSUED_AT).unwrap_or(now);
            let validity = options.validity.and_then(|time| i64::try_from(time.as_secs()).ok());
            set(issued, validity.map(|time| issued.unix().saturating_add(time)));
            return Ok(());
        }
    };
    let damaged = |why: String| Error::Damaged { secret: secret.name.clone(), why };
    let text = str::from_utf8(secret.get(key)).map_err(|_| damaged(format!("{key} is not text")))?;
    let certificate = Certificate::parse_pem(text).map_err(|e| damaged(format!("{key}: {e}")))?;
    if config.is_ca() {
        intact(secret)?;
    }
    set(certificate.not_before, Some(certificate.not_after.unix()));
    Ok(())
}

/// Whether a certificate must be renewed.
fn wants_renewal(secret: &StoredSecret, now: Timestamp) -> Result<bool, Error> {
    let number = |key: &'static str| -> Result<Option<i64>, Error> {
        let text = secret.label(key);
        let malformed = || Error::Label { secret: secret.name.clone(), key };
        if text.is_empty() { Ok(None) } else { text.parse().map(Some).map_err(|_| malformed()) }
    };
    let (issued, until) = (number(labels::ISSUED_AT)?, number(labels::VALID_UNTIL)?);
    let (Some(issued), Some(until)) = (issued, until) else { return Ok(false) };
    let percent = number(labels::RENEW_AFTER)?.unwrap_or(RENEW_AFTER_PERCENT);
    let at = issued.saturating_add(until.saturating_sub(issued).saturating_mul(percent) / 100);
    let latest = until.saturating_sub(i64::try_from(RENEW_BEFORE.as_secs()).unwrap_or(i64::MAX));
    Ok(now.unix() > at || now.unix() > latest)
}
