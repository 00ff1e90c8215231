//! What becomes a seed: a ManagedSeed, or a Shoot with the older annotation, which acts as one. Pure.

use serde::Deserialize;
use serde_json::Value;

use crate::api::meta::{Key, ObjectMeta, Resource, text};
use crate::base::json::json;
use crate::extension::problem;
use crate::flow::Failed;

/// The older annotation of Shoots in namespace `garden`.
pub(super) const USE_AS_SEED: &str = "shoot.gardener.cloud/use-as-seed";

/// The part of a ManagedSeed that is kept in memory.
#[derive(Clone, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct ManagedSeedHead {
    pub(super) metadata: ObjectMeta,
    spec: Spec,
    status: ManagedSeedStatus,
}

#[derive(Clone, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(default)]
struct Spec {
    shoot: Name,
}

#[derive(Clone, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(default)]
struct Name {
    name: String,
}

#[derive(Clone, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ManagedSeedStatus {
    observed_generation: i64,
}

impl ManagedSeedHead {
    /// The values whose change requires a reconciliation.
    pub(super) fn asks(&self) -> (&str, i64, bool) {
        (&self.metadata.uid, self.metadata.generation, self.is_deleting())
    }

    pub(super) const fn is_deleting(&self) -> bool {
        self.metadata.deletion_timestamp.is_some()
    }

    /// Whether its present generation was deployed.
    pub(super) const fn is_observed(&self) -> bool {
        self.metadata.generation == self.status.observed_generation
    }

    /// The name of its Shoot, which is in the same namespace.
    pub(super) fn shoot(&self) -> &str {
        &self.spec.shoot.name
    }
}

/// The subject of a reconciliation.
#[derive(Clone, Debug)]
pub(super) struct Subject {
    /// The kind of the object that gets events and conditions.
    pub(super) resource: Resource,
    /// A ManagedSeed. One that only this agent knows has the metadata of its Shoot.
    pub(super) object: Value,
    pub(super) shoot: Value,
}

impl Subject {
    pub(super) fn key(&self) -> Key {
        Key::of(&self.object)
    }

    /// The name of the Seed.
    pub(super) fn name(&self) -> &str {
        text(&self.object["metadata"]["name"])
    }

    /// The namespace of the Shoot's control plane.
    pub(super) fn plane(&self) -> &str {
        text(&self.shoot["status"]["technicalID"])
    }

    /// Whether the configuration of this agent is merged into the new one.
    pub(super) fn merges(&self) -> bool {
        self.object["spec"]["gardenlet"]["mergeWithParent"].as_bool().unwrap_or(true)
    }

    /// `BootstrapToken`, `ServiceAccount` or `None`.
    pub(super) fn bootstrap(&self) -> &str {
        self.object["spec"]["gardenlet"]["bootstrap"].as_str().unwrap_or("BootstrapToken")
    }

    /// The configuration of the new agent. Errors: it is missing.
    pub(super) fn config(&self) -> Result<&Value, Failed> {
        let config = &self.object["spec"]["gardenlet"]["config"];
        if config["seedConfig"].is_object() {
            return Ok(config);
        }
        Err(problem(
            "spec.gardenlet.config.seedConfig is missing: nothing is deployed; write a gardenlet section with the \
             configuration of the new seed",
        ))
    }
}

/// Whether the last operation of the Shoot has succeeded for its present generation.
pub(super) fn is_reconciled(shoot: &Value) -> bool {
    let (status, generation) = (&shoot["status"], shoot["metadata"]["generation"].as_i64().unwrap_or(0));
    status["observedGeneration"].as_i64().unwrap_or(0) == generation
        && status["lastOperation"]["state"] == "Succeeded"
}

/// The requests of the older annotation.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct AnnotationRequests {
    /// Deploy an agent, which registers the Seed.
    pub(super) has_agent: bool,
    /// Hide the Seed from the scheduler.
    pub(super) is_invisible: bool,
}

/// Reads the annotation, and its unknown words. `None`: it requests nothing.
pub(super) fn read(annotation: &str) -> (Option<AnnotationRequests>, Vec<&str>) {
    let mut asked = AnnotationRequests { has_agent: true, is_invisible: false };
    let (mut is_asked, mut unknown) = (false, Vec::new());
    for word in annotation.split(',').map(str::trim).filter(|word| !word.is_empty()) {
        match word {
            "true" => is_asked = true,
            "no-gardenlet" => (is_asked, asked.has_agent) = (true, false),
            "invisible" => asked.is_invisible = true,
            "false" => return (None, unknown),
            _ => unknown.push(word),
        }
    }
    (is_asked.then_some(asked), unknown)
}

/// The ManagedSeed for a Shoot with the older annotation. Its Seed equals the parent's, except for
/// what the Shoot defines.
pub(super) fn stand_in(shoot: &Value, parent: &Value, asked: AnnotationRequests) -> Value {
    let (metadata, wanted) = (&shoot["metadata"], &shoot["spec"]);
    let mut spec = parent["seedConfig"]["spec"].clone();
    spec["provider"] = json!({"type": wanted["provider"]["type"], "region": wanted["region"]});
    let zones: crate::base::sorted::SortedSet<&str> = wanted["provider"]["workers"]
        .as_array()
        .into_iter()
        .flatten()
        .flat_map(|worker| worker["zones"].as_array().into_iter().flatten())
        .filter_map(Value::as_str)
        .collect();
    spec["provider"]["zones"] = if zones.is_empty() {
        parent["seedConfig"]["spec"]["provider"]["zones"].clone()
    } else {
        json!(zones)
    };
    for network in ["nodes", "pods", "services"] {
        if wanted["networking"][network].is_string() {
            spec["networks"][network] = wanted["networking"][network].clone();
        }
    }
    let domain = text(&wanted["dns"]["domain"]);
    if !domain.is_empty() && spec["ingress"].is_object() {
        spec["ingress"]["domain"] = json!(format!("ingress.{domain}"));
    }
    spec["settings"]["scheduling"]["visible"] = json!(!asked.is_invisible);
    json!({
        "metadata": {"namespace": metadata["namespace"], "name": metadata["name"], "uid": metadata["uid"],
            "generation": metadata["generation"], "deletionTimestamp": metadata["deletionTimestamp"]},
        "spec": {"shoot": {"name": metadata["name"]}, "gardenlet": {"mergeWithParent": true,
            "config": {"seedConfig": {"metadata": {"name": metadata["name"]}, "spec": spec}}}},
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::extension::CONFIGURATION_PROBLEM;

    #[test]
    fn words_of_the_older_annotation() {
        let asked = |has_agent, is_invisible| Some(AnnotationRequests { has_agent, is_invisible });
        let table = [
            ("", None, vec![]),
            ("true", asked(true, false), vec![]),
            ("true,invisible", asked(true, true), vec![]),
            (" true , no-gardenlet ", asked(false, false), vec![]),
            ("no-gardenlet,invisible", asked(false, true), vec![]),
            ("true,protected,x=1", asked(true, false), vec!["protected", "x=1"]),
            ("invisible", None, vec![]),
            ("false", None, vec![]),
            ("yes", None, vec!["yes"]),
        ];
        for (annotation, expected, unknown) in table {
            assert_eq!(read(annotation), (expected, unknown), "{annotation}");
        }
    }

    #[test]
    fn a_shoot_acts_as_a_managed_seed() {
        let parent = json!({"seedConfig": {"metadata": {"name": "p"}, "spec": {"provider": {"type": "a", "region": "b", "zones": ["z"]},
            "networks": {"nodes": "10.0.0.0/16", "pods": "10.1.0.0/16", "services": "10.2.0.0/16"},
            "dns": {"provider": {"type": "d"}}, "ingress": {"domain": "i.p", "controller": {"kind": "nginx"}}}}});
        let shoot = json!({"metadata": {"namespace": "garden", "name": "s", "uid": "u", "generation": 3},
            "spec": {"region": "r", "provider": {"type": "t", "workers": [{"zones": ["2", "1"]}, {"zones": ["2"]}]},
                "networking": {"pods": "100.0.0.0/16"}, "dns": {"domain": "s.example.org"}}});
        let made = stand_in(&shoot, &parent, AnnotationRequests { has_agent: true, is_invisible: true });
        let config = &made["spec"]["gardenlet"]["config"]["seedConfig"];
        let expected = json!({"provider": {"type": "t", "region": "r", "zones": ["1", "2"]},
            "networks": {"nodes": "10.0.0.0/16", "pods": "100.0.0.0/16", "services": "10.2.0.0/16"},
            "dns": {"provider": {"type": "d"}},
            "ingress": {"domain": "ingress.s.example.org", "controller": {"kind": "nginx"}},
            "settings": {"scheduling": {"visible": false}}});
        assert_eq!(config["spec"], expected);
        assert_eq!(config["metadata"]["name"], "s");
        let subject = Subject { resource: crate::api::gardener::SHOOT, object: made, shoot };
        assert!(subject.merges() && subject.config().is_ok());
        assert_eq!((subject.name(), subject.bootstrap()), ("s", "BootstrapToken"));
    }

    #[test]
    fn a_managed_seed_without_a_configuration_is_a_problem() {
        for gardenlet in
            [Value::Null, json!({}), json!({"config": {}}), json!({"config": {"logLevel": "info"}})]
        {
            let object = json!({"spec": {"gardenlet": gardenlet}});
            let subject =
                Subject { resource: crate::api::gardener::MANAGED_SEED, object, shoot: Value::Null };
            let failed = subject.config().unwrap_err();
            assert_eq!(failed.codes, [CONFIGURATION_PROBLEM]);
        }
    }

    #[test]
    fn a_shoot_is_ready_when_its_last_change_has_succeeded() {
        let table = [
            (
                json!({"metadata": {"generation": 2}, "status": {"observedGeneration": 2, "lastOperation": {"state": "Succeeded"}}}),
                true,
            ),
            (
                json!({"metadata": {"generation": 2}, "status": {"observedGeneration": 1, "lastOperation": {"state": "Succeeded"}}}),
                false,
            ),
            (
                json!({"metadata": {"generation": 2}, "status": {"observedGeneration": 2, "lastOperation": {"state": "Error"}}}),
                false,
            ),
            (json!({"metadata": {"generation": 2}, "status": {"observedGeneration": 2}}), false),
        ];
        for (shoot, expected) in table {
            assert_eq!(is_reconciled(&shoot), expected, "{shoot}");
        }
    }
}
