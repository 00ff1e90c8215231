//! The desired `Extension` objects: those that a Seed or Shoot names, and those of types that are enabled for all.
//! Pure.

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;

use crate::api::extensions::EXTENSION;
use crate::api::gardener::{ControllerRegistration, ControllerResource, has_workers};
use crate::api::meta::text;
use crate::base::json::json;
use crate::base::sorted::SortedSet;
use crate::flow::{Failed, TaskStep};
use crate::format::duration;

use super::{DesiredExtension, ExtensionPatience};

/// The owner of an extension.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ExtensionClass {
    Seed,
    /// A Shoot without workers.
    Workerless,
    /// A Shoot with workers.
    Shoot,
}

impl ExtensionClass {
    /// The class of a Shoot's extensions.
    pub(crate) fn of(shoot: &Value) -> Self {
        if has_workers(shoot) { Self::Shoot } else { Self::Workerless }
    }

    /// The value of `spec.class`.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Seed => "seed",
            Self::Workerless | Self::Shoot => "shoot",
        }
    }

    /// Whether objects of this type exist unless they are disabled.
    fn is_enabled(self, resource: &ControllerResource) -> bool {
        let listed = resource.auto_enable.iter().any(|class| class == self.as_str());
        match self {
            Self::Seed => listed,
            Self::Workerless | Self::Shoot => {
                let is_global = resource.globally_enabled && resource.auto_enable.is_empty();
                (listed || is_global) && (self == Self::Shoot || resource.workerless_supported)
            }
        }
    }
}

/// When an extension is reconciled, relative to the Shoot's kube-apiserver.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ReconcileMoment {
    /// `BeforeKubeAPIServer`.
    Before,
    /// `AfterKubeAPIServer`.
    After,
    /// `AfterWorker`: never for a Shoot without workers.
    AfterWorker,
}

/// A desired `Extension` object.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct EnabledExtension {
    /// Its type, and its name.
    pub(crate) name: String,
    /// `providerConfig`; null for none.
    pub(crate) config: Value,
    /// How long the extension may take, if its registration defines it.
    pub(crate) timeout: Option<Duration>,
    /// When it is reconciled.
    pub(crate) moment: ReconcileMoment,
    /// When it is deleted.
    pub(crate) deleted: ReconcileMoment,
    /// When a migration releases it.
    pub(crate) migrated: ReconcileMoment,
}

impl EnabledExtension {
    pub(crate) fn desired(&self, class: ExtensionClass) -> DesiredExtension {
        let mut spec = json!({"type": self.name, "class": class.as_str()});
        if !self.config.is_null() {
            spec["providerConfig"] = self.config.clone();
        }
        DesiredExtension::new(spec)
    }

    /// How long to wait for the extension.
    pub(crate) fn patience(&self) -> ExtensionPatience {
        let usual = ExtensionPatience::of(&EXTENSION);
        ExtensionPatience { timeout: self.timeout.unwrap_or(usual.timeout), ..usual }
    }
}

/// The types that are named in `spec.extensions` or enabled for all, without those that are disabled.
pub(super) fn types(
    named: &Value,
    registrations: &[Arc<ControllerRegistration>],
    class: ExtensionClass,
) -> SortedSet<String> {
    let mut all = SortedSet::new();
    for resource in registrations.iter().flat_map(|registration| &registration.spec.resources) {
        if *resource.kind == *EXTENSION.kind && class.is_enabled(resource) {
            all.insert(resource.type_name.clone());
        }
    }
    for extension in named.as_array().map(Vec::as_slice).unwrap_or_default() {
        let name = text(&extension["type"]);
        if extension["disabled"] == true {
            all.remove(name);
        } else {
            all.insert(name.to_owned());
        }
    }
    all
}

/// The objects, from `spec.extensions` and the registrations. A type without registration has none, because no
/// extension would handle it.
pub(crate) fn enabled(
    named: &Value,
    registrations: &[Arc<ControllerRegistration>],
    class: ExtensionClass,
) -> Vec<EnabledExtension> {
    let items = named.as_array().map(Vec::as_slice).unwrap_or_default();
    let wanted = types(named, registrations, class).into_iter().filter_map(|name| {
        let serves =
            |resource: &&ControllerResource| *resource.kind == *EXTENSION.kind && resource.type_name == name;
        let resource = registrations.iter().flat_map(|r| &r.spec.resources).find(serves)?;
        let timeout = duration::parse(&resource.reconcile_timeout).ok();
        let ends = |moment: &str| match moment {
            "AfterKubeAPIServer" => ReconcileMoment::After,
            _ => ReconcileMoment::Before,
        };
        let deleted = ends(resource.lifecycle.as_ref().map_or("", |lifecycle| &lifecycle.delete));
        let migrated = ends(resource.lifecycle.as_ref().map_or("", |lifecycle| &lifecycle.migrate));
        let moment = match resource.lifecycle.as_ref().map_or("", |lifecycle| &lifecycle.reconcile) {
            "BeforeKubeAPIServer" => ReconcileMoment::Before,
            "AfterWorker" => ReconcileMoment::AfterWorker,
            _ => ReconcileMoment::After,
        };
        let config = items.iter().rfind(|extension| text(&extension["type"]) == name);
        let config = config.map(|extension| extension["providerConfig"].clone()).unwrap_or_default();
        Some(EnabledExtension { name, config, timeout, moment, deleted, migrated })
    });
    wanted.collect()
}

/// Combines the results of several checks: an error of one is an error, and all pending objects are named.
pub(crate) fn together(looks: Vec<Result<TaskStep, Failed>>) -> Result<TaskStep, Failed> {
    let (mut errors, mut missing, mut pause) = (Vec::new(), Vec::new(), Duration::MAX);
    for look in looks {
        match look {
            Ok(TaskStep::Done) => {}
            Ok(TaskStep::Again { after, why }) => {
                pause = pause.min(after);
                missing.push(why);
            }
            // Nothing was sent, and further requests would not be sent either.
            Err(failed) if failed.postponed.is_some() => return Err(failed),
            Err(failed) => errors.push(failed),
        }
    }
    Ok(match (errors.is_empty(), missing.is_empty()) {
        (false, _) => return Err(joined(errors)),
        (true, false) => TaskStep::again(pause, joined(missing)),
        (true, true) => TaskStep::Done,
    })
}

fn joined(all: Vec<Failed>) -> Failed {
    let mut codes: Vec<String> = all.iter().flat_map(|failed| failed.codes.clone()).collect();
    codes.sort_unstable();
    codes.dedup();
    let texts: Vec<String> = all.into_iter().map(|failed| failed.text).collect();
    Failed { codes, ..Failed::new(texts.join("; ")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn registration(resources: &Value) -> Arc<ControllerRegistration> {
        let object = json!({"metadata": {"name": "r"}, "spec": {"resources": resources}});
        Arc::new(serde_json::from_value(object).unwrap())
    }

    #[test]
    fn which_objects_a_seed_has() {
        let registrations = [
            registration(&json!([
                {"kind": "Extension", "type": "auto", "autoEnable": ["seed"], "reconcileTimeout": "1m30s"},
                {"kind": "Extension", "type": "off", "autoEnable": ["seed"]},
                {"kind": "Extension", "type": "shoots", "autoEnable": ["shoot"]},
                {"kind": "Extension", "type": "asked", "reconcileTimeout": "soon"},
            ])),
            registration(&json!([{"kind": "Network", "type": "net"}])),
        ];
        let named = json!([
            {"type": "asked", "providerConfig": {"a": 1}},
            {"type": "auto", "providerConfig": {"b": 2}},
            {"type": "off", "disabled": true},
            {"type": "net"},
            {"type": "nobody-serves-it"},
        ]);
        let auto = ("auto", Value::Null, 90);
        let table = [
            (&Value::Null, vec![auto, ("off", Value::Null, 180)]),
            (&named, vec![("asked", json!({"a": 1}), 180), ("auto", json!({"b": 2}), 90)]),
        ];
        for (named, expected) in table {
            let found = enabled(named, &registrations, ExtensionClass::Seed);
            let found: Vec<_> = found
                .iter()
                .map(|w| (w.name.as_str(), w.config.clone(), w.patience().timeout.as_secs()))
                .collect();
            assert_eq!(found, expected);
        }
        assert_eq!(enabled(&named, &[], ExtensionClass::Seed), []);
    }

    #[test]
    fn which_objects_a_shoot_without_workers_has() {
        let moment = |reconcile: &str| json!({ "reconcile": reconcile });
        let registrations = [registration(&json!([
            {"kind": "Extension", "type": "all", "autoEnable": ["seed", "shoot"], "workerlessSupported": true},
            {"kind": "Extension", "type": "before", "globallyEnabled": true, "workerlessSupported": true,
                "lifecycle": moment("BeforeKubeAPIServer")},
            {"kind": "Extension", "type": "late", "lifecycle": {"reconcile": "AfterWorker", "delete": "AfterKubeAPIServer"}},
            {"kind": "Extension", "type": "not-global", "globallyEnabled": true, "autoEnable": ["seed"], "workerlessSupported": true},
            {"kind": "Extension", "type": "off", "autoEnable": ["shoot"], "workerlessSupported": true},
            {"kind": "Extension", "type": "workers", "autoEnable": ["shoot"]},
        ]))];
        let named = json!([{"type": "off", "disabled": true}, {"type": "late"}]);
        let found: Vec<_> = enabled(&named, &registrations, ExtensionClass::Workerless)
            .into_iter()
            .map(|extension| (extension.name, extension.moment, extension.deleted))
            .collect();
        let expected = [
            ("all", ReconcileMoment::After, ReconcileMoment::Before),
            ("before", ReconcileMoment::Before, ReconcileMoment::Before),
            ("late", ReconcileMoment::AfterWorker, ReconcileMoment::After),
        ];
        assert_eq!(found, expected.map(|(name, moment, deleted)| (name.to_owned(), moment, deleted)));
        let with_workers = enabled(&named, &registrations, ExtensionClass::Shoot);
        let names: Vec<&str> = with_workers.iter().map(|extension| extension.name.as_str()).collect();
        assert_eq!(names, ["all", "before", "late", "workers"]);
    }

    #[test]
    fn workers_decide_about_the_class_of_a_shoot() {
        let shoot = |workers: Value| json!({"spec": {"provider": {"workers": workers}}});
        assert_eq!(ExtensionClass::of(&shoot(json!([{"name": "a"}]))), ExtensionClass::Shoot);
        assert_eq!(ExtensionClass::of(&shoot(json!([]))), ExtensionClass::Workerless);
        assert_eq!(ExtensionClass::of(&shoot(Value::Null)), ExtensionClass::Workerless);
    }

    #[test]
    fn an_object_has_type_class_and_configuration() {
        let (name, moment) = ("x".to_owned(), ReconcileMoment::After);
        let mut wanted = EnabledExtension {
            name,
            config: Value::Null,
            timeout: None,
            moment,
            deleted: ReconcileMoment::Before,
            migrated: ReconcileMoment::Before,
        };
        assert_eq!(
            wanted.desired(ExtensionClass::Seed),
            DesiredExtension::new(json!({"type": "x", "class": "seed"}))
        );
        wanted.config = json!({"a": 1});
        let spec = json!({"type": "x", "class": "shoot", "providerConfig": {"a": 1}});
        assert_eq!(wanted.desired(ExtensionClass::Shoot), DesiredExtension::new(spec));
    }

    #[test]
    fn several_checks_give_one_result() {
        let second = Duration::from_secs(1);
        let waits = |text: &str| Ok(TaskStep::again(second, text));
        let fails = |text: &str, code: &str| Err(Failed { codes: vec![code.into()], ..Failed::new(text) });
        let postponed = Failed { postponed: Some(second), ..Failed::new("closed") };
        let both = Failed { codes: vec!["A".into(), "B".into()], ..Failed::new("x; y; z") };
        let table = [
            (vec![], Ok(TaskStep::Done)),
            (vec![Ok(TaskStep::Done), waits("a"), waits("b")], Ok(TaskStep::again(second, "a; b"))),
            (vec![fails("x", "B"), waits("a"), fails("y", "A"), fails("z", "B")], Err(both)),
            (vec![fails("x", "B"), Err(postponed.clone())], Err(postponed)),
        ];
        for (looks, expected) in table {
            assert_eq!(together(looks), expected);
        }
    }
}
