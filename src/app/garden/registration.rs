//! The Seed object and its namespace in the garden: created, found, or waited for.

use std::time::Duration;

use serde_json::Value;

use crate::api::core::{NAMESPACE, SECRET};
use crate::api::gardener::{SEED, seed_namespace};
use crate::api::meta::{CLUSTER_SCOPED, Key, Metadata};
use crate::base::error::chain;
use crate::base::json::json;
use crate::controllers::seed::register::{self, Action};
use crate::controllers::seed::{self, GET_NAMESPACE, SeedAbsence, without_namespace};
use crate::kube::request::ListParams;
use crate::kube::{self, Patch};

use super::{BringUp, Error, StageResult, failed};

/// How often to check for the seed's namespace.
const NAMESPACE_POLL: Duration = Duration::from_millis(500);
/// As in upstream: how long the garden may take to create the namespace before the Seed shows an error, and how often the
/// agent compares what the Seed shows.
const NAMESPACE_GRACE: Duration = Duration::from_secs(5);
/// How often to check for a deleted Seed, and that a Seed that waits for its namespace still exists.
const SEED_POLL: Duration = Duration::from_secs(10);

impl BringUp {
    /// Creates the Seed, or updates it to its configuration. A Seed that was deleted while the agent served
    /// it is not created again.
    pub(super) fn register(&mut self) -> Result<StageResult, Error> {
        let shared = self.shared.clone();
        let config = &shared.settings.seed_config;
        let (name, garden) = (config.name.as_str(), &self.garden()?.controllers);
        let (key, wrong) = (Key::cluster(name), || failed(format!("register Seed {name}")));
        let live = garden.find::<Value>(&SEED, &key).map_err(wrong())?;
        if live.is_none() {
            match shared.registration.absence() {
                SeedAbsence::Never => {}
                SeedAbsence::Lost => {
                    log::warn!(seed = name; "The garden has lost the Seed; registering it again");
                }
                SeedAbsence::Deleted => return Ok(self.deleted()),
            }
        }
        let seed = match (register::decide(live.as_ref(), config), live) {
            (Action::Create(object), _) => {
                let seed = garden.create::<Value>(&SEED, CLUSTER_SCOPED, &object).map_err(wrong())?;
                log::info!(seed = name; "Registered the Seed");
                seed
            }
            (Action::Patch(patch), _) => {
                let patch = Patch::Merge(patch);
                let seed = garden.patch::<Value>(&SEED, &key, &patch).map_err(wrong())?;
                log::info!(seed = name; "Updated the Seed to its configuration");
                seed
            }
            (Action::Nothing, seed) => seed.unwrap_or_default(),
        };
        let metadata = &seed["metadata"];
        let uid = metadata["uid"].as_str().unwrap_or_default();
        shared.registration.serves(uid, !metadata["deletionTimestamp"].is_null());
        shared.status.seed_is_gone(false);
        self.registered_at = shared.env.clock.mono();
        Ok(StageResult::Done)
    }

    fn seed_key(&self) -> Key {
        Key::cluster(self.seed_name())
    }

    fn deleted(&self) -> StageResult {
        let name = self.seed_name();
        if self.shared.status.seed_is_gone(true) {
            log::warn!(seed = name; "The Seed was deleted; the agent does not create it again, but joins when it is created");
        }
        let why = format!(
            "Seed {name} was deleted in the garden: create it again or restart the agent to join, or remove the agent"
        );
        StageResult::Waiting(why, SEED_POLL)
    }

    /// The garden creates the namespace. Until its authorizer knows the new Seed, it answers 403.
    pub(super) fn await_namespace(&mut self) -> Result<StageResult, Error> {
        let name = seed_namespace(self.seed_name());
        let garden = &self.garden()?.controllers;
        match garden.get::<Metadata>(&NAMESPACE, &Key::cluster(&name)) {
            Ok(_) => self.default_domains(&name).map(|()| StageResult::Done),
            Err(e) if e.is_not_found() || e.is_denied() => {
                let why = why_without_namespace(&name, e);
                // Without the Seed, the namespace would never be created.
                if self.shared.env.clock.mono() >= self.registered_at.saturating_add(SEED_POLL)
                    && let waiting @ StageResult::Waiting(..) = self.register()?
                {
                    return Ok(waiting);
                }
                self.tell_that_namespace_is_missing(&why)?;
                Ok(StageResult::Waiting(why, NAMESPACE_POLL))
            }
            Err(e) => Err(failed(format!("read namespace {name} of the garden"))(e)),
        }
    }

    /// The Seed's last operation says it, as upstream's does.
    fn tell_that_namespace_is_missing(&mut self, why: &str) -> Result<(), Error> {
        let now = self.shared.env.clock.mono();
        if now < self.told_at.max(self.registered_at).saturating_add(NAMESPACE_GRACE) {
            return Ok(());
        }
        self.told_at = now;
        let garden = &self.garden()?.controllers;
        let (key, wrong) = (self.seed_key(), || failed("write the Seed's last operation"));
        let Some(live) = garden.find::<Value>(&SEED, &key).map_err(wrong())? else { return Ok(()) };
        let Some(patch) = without_namespace(&live, why, self.shared.env.clock.now()) else { return Ok(()) };
        garden.patch_status::<Value>(&SEED, &key, &Patch::Strategic(patch)).map_err(wrong()).map(drop)
    }

    /// If the configuration has no `dns.defaults`, the garden's default domains are copied to the Seed at each start.
    fn default_domains(&self, namespace: &str) -> Result<(), Error> {
        let configured = &self.shared.settings.seed_config.spec["dns"]["defaults"];
        if configured.as_array().is_some_and(|domains| !domains.is_empty()) {
            return Ok(());
        }
        let garden = &self.garden()?.controllers;
        let (key, wrong) = (self.seed_key(), || failed("fill in the Seed's default domains"));
        let params = ListParams {
            label_selector: "gardener.cloud/role=default-domain".to_owned(),
            metadata_only: true,
            ..ListParams::default()
        };
        let mut secrets = Vec::new();
        garden
            .list_all::<Metadata>(&SECRET, namespace, &params, &mut |secret| secrets.push(secret))
            .map_err(wrong())?;
        let defaults = domains(secrets).map_err(|why| {
            Error::Config(format!("the garden's default domains: Secret {namespace}/{why}"))
        })?;
        // A Seed that already has domains keeps them, because the garden does not allow removing them.
        let seed = garden.get::<Value>(&SEED, &key).map_err(wrong())?;
        if defaults.is_empty() || seed["spec"]["dns"]["defaults"] == Value::Array(defaults.clone()) {
            return Ok(());
        }
        let patch = Patch::Merge(json!({"spec": {"dns": {"defaults": defaults}}}));
        garden.patch::<Value>(&SEED, &key, &patch).map_err(wrong()).map(drop)
    }
}

/// Upstream's text.
fn why_without_namespace(name: &str, error: kube::Error) -> String {
    let error = if error.is_not_found() {
        seed::Error::NoNamespace(name.to_owned())
    } else {
        seed::Error::Kube { operation: GET_NAMESPACE, source: error }
    };
    chain(&error)
}

/// Default domains from the garden's Secrets, ordered by priority; or which Secret is invalid and why.
fn domains(mut secrets: Vec<Metadata>) -> Result<Vec<Value>, String> {
    let annotation =
        |m: &Metadata, name: &str| m.metadata.annotations.get(&format!("dns.gardener.cloud/{name}")).cloned();
    let priority = |m: &Metadata| {
        annotation(m, "domain-default-priority").and_then(|p| p.parse::<i64>().ok()).unwrap_or(0)
    };
    secrets.sort_by(|a, b| priority(b).cmp(&priority(a)).then_with(|| a.metadata.name.cmp(&b.metadata.name)));
    let required = |m: &Metadata, name: &str| {
        let value = annotation(m, name).filter(|value| !value.is_empty());
        value.ok_or_else(|| format!("{} has no annotation dns.gardener.cloud/{name}", m.metadata.name))
    };
    let entry = |m: &Metadata| {
        let mut entry = json!({
            "type": required(m, "provider")?,
            "domain": required(m, "domain")?,
            "credentialsRef": {"apiVersion": "v1", "kind": "Secret", "namespace": "garden", "name": m.metadata.name},
        });
        if let Some(zone) = annotation(m, "zone").filter(|zone| !zone.is_empty()) {
            entry["zone"] = json!(zone);
        }
        Ok(entry)
    };
    secrets.iter().map(entry).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn default_domains_come_by_priority() {
        let secret = |name: &str, priority: &str, zone: Option<&str>| {
            let mut secret = Metadata::default();
            secret.metadata.name = name.to_owned();
            let mut set = |key: &str, value: &str| {
                secret.metadata.annotations.insert(format!("dns.gardener.cloud/{key}"), value.to_owned());
            };
            set("provider", "local");
            set("domain", &format!("{name}.example.org"));
            set("domain-default-priority", priority);
            if let Some(zone) = zone {
                set("zone", zone);
            }
            secret
        };
        let found = domains(vec![secret("a", "1", None), secret("b", "10", Some("z"))]).unwrap();
        let reference =
            |name: &str| json!({"apiVersion": "v1", "kind": "Secret", "namespace": "garden", "name": name});
        assert_eq!(
            found,
            [
                json!({"type": "local", "domain": "b.example.org", "zone": "z", "credentialsRef": reference("b")}),
                json!({"type": "local", "domain": "a.example.org", "credentialsRef": reference("a")}),
            ]
        );
        let mut broken = secret("c", "5", None);
        broken.metadata.annotations.insert("dns.gardener.cloud/domain".to_owned(), String::new());
        let wrong = domains(vec![secret("a", "1", None), broken]);
        assert_eq!(wrong, Err("c has no annotation dns.gardener.cloud/domain".to_owned()));
    }
}
