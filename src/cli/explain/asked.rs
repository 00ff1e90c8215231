//! Objects of the garden that wait for an extension of the seed or for another agent.

use std::sync::Arc;

use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::api::extensions;
use crate::api::gardener::{
    BACKUP_BUCKET, BACKUP_ENTRY, BASTION, CONTROLLER_INSTALLATION, CONTROLLER_REGISTRATION, MANAGED_SEED,
    OPERATION, SEED, SHOOT,
};
use crate::api::meta::{ALL_NAMESPACES, Key, Resource, text};
use crate::base::error::chain;
use crate::extension::credentials::CredentialsReference;
use crate::extension::required::unheard;
use crate::format::view;
use crate::kube::{Client, ListParams};

use super::decide::Related;
use super::{Explainer, objects, unread, with_seed_ref};

/// The kinds that this module explains.
pub(super) const KINDS: [Resource; 4] = [BACKUP_BUCKET, BACKUP_ENTRY, BASTION, MANAGED_SEED];

impl Explainer<'_> {
    pub(super) fn asked(&mut self, seed: &Client, garden: &Client, resource: &Resource, object: &Value) {
        let (metadata, spec) = (&object["metadata"], &object["spec"]);
        let (namespace, name) = (text(&metadata["namespace"]), text(&metadata["name"]));
        let ours = self.settings.seed_config.name.clone();
        let place = if *resource == BACKUP_ENTRY && object["status"]["seedName"].is_string() {
            &object["status"]["seedName"]
        } else {
            &spec["seedName"]
        };
        if *resource != MANAGED_SEED && place != ours.as_str() {
            return self.tell(format!(
                "it belongs to seed {:?}, and this agent to seed {ours:?}: run explain with that seed's configuration",
                text(place)
            ));
        }
        if *resource == BACKUP_BUCKET {
            let reference = CredentialsReference::read(&spec["credentialsRef"]);
            if let Err(failed) = reference.and_then(|it| it.find(garden, "spec.credentialsRef")) {
                self.lack(format!("its credentials: {}", failed.text));
            }
            self.extension(seed, garden, &extensions::BACKUP_BUCKET, "BackupBucket", &Key::cluster(name));
        } else if *resource == BACKUP_ENTRY {
            self.other(garden, &BACKUP_BUCKET, &Key::cluster(text(&spec["bucketName"])), "create it");
            self.extension(seed, garden, &extensions::BACKUP_ENTRY, "BackupEntry", &Key::cluster(name));
        } else if *resource == BASTION {
            let shoot = Key::new(namespace, text(&spec["shootRef"]["name"]));
            let shoot = self.other(garden, &SHOOT, &shoot, "delete the Bastion");
            let plane = text(&shoot.unwrap_or_default()["status"]["technicalID"]).to_owned();
            if !plane.is_empty() {
                self.extension(seed, garden, &extensions::BASTION, "Bastion", &Key::new(plane, name));
            }
        } else if *resource == MANAGED_SEED {
            let shoot = Key::new(namespace, text(&spec["shoot"]["name"]));
            self.other(garden, &SHOOT, &shoot, "create it");
            let remedy = "the agent in the Shoot registers it; look at its log";
            self.other(garden, &SEED, &Key::cluster(name), remedy);
        }
    }

    /// Adds another object of the garden, if it exists.
    fn other(&mut self, garden: &Client, resource: &Resource, key: &Key, remedy: &str) -> Option<Value> {
        let what = format!("its {}", resource.kind);
        match garden.find::<Value>(resource, key) {
            Ok(Some(object)) => {
                self.related.push(Related::object(what, object.clone()));
                return Some(object);
            }
            Ok(None) => self.lack(format!("{what} {:?} is not in the garden: {remedy}", key.name)),
            Err(error) => self.unread.push(unread(&what, &error)),
        }
        None
    }

    /// Adds the extension's object in the seed, and checks whether an extension for it exists.
    fn extension(
        &mut self,
        seed: &Client,
        garden: &Client,
        resource: &Resource,
        kind: &'static str,
        key: &Key,
    ) {
        match seed.find::<Value>(resource, key) {
            Ok(Some(object)) => {
                let is_unheard = object["status"]["lastOperation"].is_null()
                    || object["metadata"]["annotations"][OPERATION] == "reconcile";
                let type_name = text(&object["spec"]["type"]).to_owned();
                let what = format!("its {kind} for the extension in the seed,");
                self.related.push(Related::object(what, object));
                if is_unheard {
                    self.unheard(garden, kind, &type_name);
                }
            }
            Ok(None) => self.lack(format!(
                "the seed has no {kind} {} for the extension: the agent creates it when the problems above are solved",
                key.name
            )),
            Err(error) => self.unread.push(format!("{kind} of the extension: {}", chain(&error))),
        }
    }

    /// Explains why the extension's object does not exist yet.
    fn unheard(&mut self, garden: &Client, kind: &'static str, type_name: &str) {
        let registrations = all(garden, &CONTROLLER_REGISTRATION, &ListParams::default());
        let of_seed = with_seed_ref(&self.settings.seed_config.name);
        match (registrations, all(garden, &CONTROLLER_INSTALLATION, &of_seed)) {
            (Ok(registrations), Ok(installations)) => {
                let failed = unheard(kind, type_name, &registrations, &installations);
                self.lack(failed.text);
            }
            (Err(why), _) | (_, Err(why)) => self.unread.push(format!("extensions: {why}")),
        }
    }
}

fn all<T: DeserializeOwned>(
    client: &Client,
    resource: &Resource,
    params: &ListParams,
) -> Result<Vec<Arc<T>>, String> {
    let mut found = Vec::new();
    let listed = objects(client, resource, ALL_NAMESPACES, params, &mut |object| {
        found.extend(view::read(object).map(Arc::new));
    });
    listed.map(|()| found).map_err(|error| chain(&error))
}
