//! The namespace of a control plane in the seed.

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;

use super::view::ShootView;
use crate::api::core::NAMESPACE;
use crate::api::extensions::EXTENSION;
use crate::api::gardener::ControllerRegistration;
use crate::api::meta::{Key, text};
use crate::base::json::json;
use crate::base::random;
use crate::flow::{Failed, TaskStep};
use crate::kube::Seed;
use crate::runtime::write;

/// The label with the type of the Shoot's infrastructure.
pub(crate) const PROVIDER: &str = "shoot.gardener.cloud/provider";
const TOLERANCE: &str = "high-availability-config.resources.gardener.cloud/failure-tolerance-type";
const ZONES: &str = "high-availability-config.resources.gardener.cloud/zones";
const EXTENSIONS: &str = "extensions.gardener.cloud/";
/// The number of zones of a control plane that must survive the loss of one.
const ZONES_OF_MANY: usize = 3;
const TERMINATING_AGAIN: Duration = Duration::from_secs(5);

/// Creates the namespace, or sets our labels and annotations.
pub(crate) fn ensure(
    seed: &Seed,
    view: &ShootView,
    registrations: &[Arc<ControllerRegistration>],
) -> Result<TaskStep, Failed> {
    let key = Key::cluster(view.technical_id.as_str());
    let types = extension_types(&view.extensions, registrations);
    let chance = random::unit();
    let namespace = write::ensure(seed, &NAMESPACE, &key, &|object| set(object, view, &types, chance))?;
    if namespace["metadata"]["deletionTimestamp"].is_string() {
        let why = format!("namespace {} of the seed is being deleted", view.technical_id);
        return Ok(TaskStep::again(TERMINATING_AGAIN, why));
    }
    Ok(TaskStep::Done)
}

/// Types of Extensions for the namespace's labels: listed ones, and those that are enabled for all Shoots. As in
/// upstream, it does not matter whether they support Shoots without workers.
fn extension_types(listed: &Value, registrations: &[Arc<ControllerRegistration>]) -> Vec<String> {
    let listed = listed.as_array().map(Vec::as_slice).unwrap_or_default();
    let is_disabled = |name: &str| {
        listed.iter().any(|extension| text(&extension["type"]) == name && extension["disabled"] == true)
    };
    let for_all =
        registrations.iter().flat_map(|registration| &registration.spec.resources).filter(|resource| {
            let is_global = resource.globally_enabled && resource.auto_enable.is_empty();
            *resource.kind == *EXTENSION.kind
                && (is_global || resource.auto_enable.iter().any(|class| class == "shoot"))
        });
    let mut all: Vec<String> = for_all.map(|resource| resource.type_name.clone()).collect();
    all.extend(listed.iter().map(|extension| text(&extension["type"]).to_owned()));
    all.retain(|name| !is_disabled(name));
    all.sort();
    all.dedup();
    all
}

/// `chance` picks the zone, in `0.0..1.0`.
fn set(object: &mut Value, view: &ShootView, extensions: &[String], chance: f64) {
    let metadata = &mut object["metadata"];
    let backup = view.backup["provider"].as_str().unwrap_or(&view.seed_provider);
    if let Some(labels) = metadata["labels"].as_object_mut() {
        let is_stale = |key: &str| {
            key.strip_prefix(EXTENSIONS).is_some_and(|name| !extensions.iter().any(|known| known == name))
        };
        labels.retain(|key, _| !is_stale(key));
    }
    let labels = [
        ("gardener.cloud/role", "shoot"),
        ("seed.gardener.cloud/provider", &view.seed_provider),
        (PROVIDER, &view.provider),
        ("backup.gardener.cloud/provider", backup),
        ("pod-security.kubernetes.io/enforce", "privileged"),
        ("high-availability-config.resources.gardener.cloud/consider", "true"),
    ];
    for (key, value) in labels {
        metadata["labels"][key] = json!(value);
    }
    for name in extensions {
        metadata["labels"][format!("{EXTENSIONS}{name}")] = json!("true");
    }
    let annotations = &mut metadata["annotations"];
    if !view.zones.is_empty() && annotations[TOLERANCE].as_str() != Some(&view.failure_tolerance) {
        let present = text(&annotations[ZONES]).split(',').filter(|zone| !zone.is_empty());
        let zones = zones(present.map(str::to_owned).collect(), view, chance);
        annotations[ZONES] = json!(zones.join(","));
    }
    annotations[TOLERANCE] = json!(view.failure_tolerance);
    annotations["shoot.gardener.cloud/uid"] = json!(view.status_uid);
}

/// Zones in use stay, because volumes may be in them.
fn zones(mut present: Vec<String>, view: &ShootView, chance: f64) -> Vec<String> {
    let wanted = if view.failure_tolerance == "zone" { ZONES_OF_MANY } else { 1 };
    let mut free: Vec<String> = view.zones.iter().filter(|zone| !present.contains(zone)).cloned().collect();
    while present.len() < wanted && !free.is_empty() {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, clippy::cast_precision_loss)]
        let index = (chance * free.len() as f64) as usize;
        present.push(free.remove(index.min(free.len() - 1)));
    }
    present.sort();
    present
}

#[cfg(test)]
mod tests {
    use super::super::view::tests::golden;
    use super::*;
    use crate::format::view;

    #[test]
    fn the_namespace_is_that_of_a_go_gardenlet() {
        // `metadata` of the golden namespace, without the label that the API server adds.
        let mut namespace = json!({"metadata": {"name": "shoot--p--s2"}});
        set(&mut namespace, &golden("s2"), &[], 0.99);
        let expected = json!({"metadata": {
            "name": "shoot--p--s2",
            "annotations": {
                "high-availability-config.resources.gardener.cloud/failure-tolerance-type": "",
                "high-availability-config.resources.gardener.cloud/zones": "a",
                "shoot.gardener.cloud/uid": "6fedff37-803d-40b4-80ba-66e284a593e8",
            },
            "labels": {
                "backup.gardener.cloud/provider": "lab",
                "gardener.cloud/role": "shoot",
                "high-availability-config.resources.gardener.cloud/consider": "true",
                "pod-security.kubernetes.io/enforce": "privileged",
                "seed.gardener.cloud/provider": "lab",
                "shoot.gardener.cloud/provider": "lab",
            },
        }});
        assert_eq!(namespace, expected);
        let before = namespace.clone();
        set(&mut namespace, &golden("s2"), &[], 0.0);
        assert_eq!(namespace, before);
    }

    #[test]
    fn labels_of_extensions_change_and_labels_of_others_stay() {
        let mut namespace = json!({"metadata": {"labels": {
            "extensions.gardener.cloud/old": "true", "mine": "x"}, "annotations": {"mine": "y"}}});
        let mut shoot = golden("s2");
        shoot.backup = json!({"provider": "s3"});
        set(&mut namespace, &shoot, &["new".to_owned()], 0.0);
        let labels = namespace["metadata"]["labels"].as_object().unwrap();
        assert!(!labels.contains_key("extensions.gardener.cloud/old"));
        assert_eq!(
            (
                &labels["extensions.gardener.cloud/new"],
                &labels["mine"],
                &labels["backup.gardener.cloud/provider"]
            ),
            (&json!("true"), &json!("x"), &json!("s3"))
        );
        assert_eq!(namespace["metadata"]["annotations"]["mine"], "y");

        let registration = json!({"spec": {"resources": [
            {"kind": "Extension", "type": "all", "autoEnable": ["shoot"]},
            {"kind": "Extension", "type": "seed", "autoEnable": ["seed"]},
            {"kind": "Extension", "type": "older", "globallyEnabled": true},
            {"kind": "Extension", "type": "off", "globallyEnabled": true},
            {"kind": "DNSRecord", "type": "lab"}]}});
        let registration: Arc<ControllerRegistration> = Arc::new(view::read(registration).unwrap());
        let listed = json!([{"type": "off", "disabled": true}, {"type": "own"}]);
        assert_eq!(extension_types(&listed, &[registration]), ["all", "older", "own"]);
    }

    #[test]
    fn zones_are_chosen_once_and_kept() {
        let mut shoot = golden("s2");
        shoot.zones = ["a", "b", "c", "d"].map(str::to_owned).into();
        let of = |present: &[&str], shoot: &ShootView, chance| {
            zones(present.iter().map(|zone| (*zone).to_owned()).collect(), shoot, chance).join(",")
        };
        assert_eq!((of(&[], &shoot, 0.0), of(&[], &shoot, 0.99)), ("a".into(), "d".into()));
        assert_eq!(of(&["c"], &shoot, 0.0), "c");
        shoot.failure_tolerance = "zone".to_owned();
        assert_eq!(of(&["c"], &shoot, 0.0), "a,b,c");
        shoot.zones.clear();
        assert_eq!(of(&[], &shoot, 0.5), "");
    }
}
