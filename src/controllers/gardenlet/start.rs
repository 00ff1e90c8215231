//! What the chart leaves for the first start: a ConfigMap with the Gardenlet object, which the agent creates in the
//! garden.

use serde_json::Value;

use crate::api::core::CONFIG_MAP;
use crate::api::gardener::GARDENLET;
use crate::api::meta::{Key, text};
use crate::base::error::chain;
use crate::format::yaml;
use crate::runtime::controller::{ReconcileFailure, ReconcileOutcome};
use crate::runtime::write;

use super::{GardenletReconciler, KEY_NAMESPACE, LONG_PERIOD};

const NAME: &str = "gardenlet-selfupgrade-config";
const FILE: &str = "gardenlet.yaml";

/// Creates the object if there is one, and deletes the ConfigMap. Returns `None` if nothing is left to do;
/// otherwise it is retried.
pub(super) fn hand_over(base: &GardenletReconciler) -> Result<Option<ReconcileOutcome>, ReconcileFailure> {
    let parent = &base.site.parent;
    let Some(namespace) = parent.namespace.as_deref().filter(|namespace| !namespace.is_empty()) else {
        return Ok(None);
    };
    let key = Key::new(namespace, NAME);
    let map = match base.site.seed.find::<Value>(&CONFIG_MAP, &key) {
        Ok(Some(map)) => map,
        Ok(None) => return Ok(None),
        Err(error) if error.is_denied() => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    let warn = |why: &str| {
        log::warn!(
            configmap:% = key, err = why;
            "The Gardenlet object of the ConfigMap was not created: correct the values selfUpgrade of the chart, delete the ConfigMap, and \
             upgrade the release"
        );
    };
    let object = match read(text(&map["data"][FILE]), base.site.seed_name()) {
        Ok(object) => object,
        Err(why) => {
            warn(&why);
            return Ok(None);
        }
    };
    let known = Key::new(KEY_NAMESPACE, base.site.seed_name());
    let is_there = match base.site.garden.find::<Value>(&GARDENLET, &known) {
        Err(error) if error.is_denied() => false,
        found => found?.is_some(),
    };
    if !is_there {
        match base.site.garden.create::<Value>(&GARDENLET, KEY_NAMESPACE, &object) {
            Ok(_) => {
                let name = base.site.seed_name();
                log::info!(gardenlet = name; "Created the Gardenlet object for self-upgrades of this agent");
            }
            Err(error) if error.is_already_exists() => {}
            Err(error) if error.is_not_found() || error.is_denied() => {
                warn(&format!("the garden refuses Gardenlet objects: {}", chain(&error)));
                return Ok(Some(ReconcileOutcome::After(LONG_PERIOD)));
            }
            Err(error) if matches!(error.status_code(), Some(400 | 422)) => {
                warn(&chain(&error));
                return Ok(None);
            }
            Err(error) => return Err(error.into()),
        }
    }
    match write::delete(&base.site.seed, &CONFIG_MAP, &key) {
        // It is read again at the next start, without effect.
        Err(error) if error.is_denied() => {
            let err = chain(&error);
            log::warn!(configmap:% = key, err = err.as_str(); "Cannot delete the ConfigMap of the created Gardenlet object: delete it");
        }
        other => drop(other?),
    }
    Ok(None)
}

/// The object, if it belongs to this agent.
fn read(file: &str, name: &str) -> Result<Value, String> {
    if file.is_empty() {
        return Err(format!("it has no {FILE}"));
    }
    let object = yaml::parse(file).map_err(|error| format!("{FILE} is not valid YAML: {error}"))?;
    let resource = GARDENLET;
    let version = resource.api_version();
    if object["apiVersion"] != version.as_str() || object["kind"] != resource.kind.as_ref() {
        return Err(format!("{FILE} is no {} of {version}", resource.kind));
    }
    let found = (text(&object["metadata"]["namespace"]), text(&object["metadata"]["name"]));
    if found != (KEY_NAMESPACE, name) {
        return Err(format!("{FILE} is {}/{}, and not {KEY_NAMESPACE}/{name}", found.0, found.1));
    }
    Ok(object)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_own_object_is_created() {
        let good = "apiVersion: seedmanagement.gardener.cloud/v1alpha1\nkind: Gardenlet\nmetadata: {name: s, namespace: garden}\n";
        assert!(read(good, "s").is_ok());
        let table = [
            (String::new(), "it has no gardenlet.yaml"),
            ("a: [".to_owned(), "gardenlet.yaml is not valid YAML: "),
            (
                "just words".to_owned(),
                "gardenlet.yaml is no Gardenlet of seedmanagement.gardener.cloud/v1alpha1",
            ),
            (good.replace("Gardenlet", "Seed"), "gardenlet.yaml is no Gardenlet of "),
            (good.replace("name: s,", "name: t,"), "gardenlet.yaml is garden/t, and not garden/s"),
        ];
        for (file, expected) in table {
            let found = read(&file, "s").unwrap_err();
            assert!(found.starts_with(expected), "{found}");
        }
    }
}
