//! `Extension` objects of class `seed`: what extensions do for the seed itself, not for one of its Shoots.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use crate::api::extensions::EXTENSION;
use crate::api::gardener::{ControllerRegistration, ControllerResource};
use crate::api::meta::text;
use crate::api::resources::GARDEN_NAMESPACE;
use crate::extension::{Patience, Target, Wish};
use crate::flow::{Attempt, Failed, Step};
use crate::format::duration;

use super::flow::Work;
use super::required;

/// The class of the objects.
pub(super) const CLASS: &str = "seed";

/// An object that is to be there.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Wanted {
    /// Its type, and its name.
    name: String,
    /// `providerConfig`; null for none.
    config: Value,
    /// How long the extension may take, if its registration says so.
    timeout: Option<Duration>,
}

/// The objects of a Seed. A type that nobody has registered has none: no extension would look at it.
pub(super) fn wanted(seed: &Value, registrations: &[Arc<ControllerRegistration>]) -> Vec<Wanted> {
    let named = seed["spec"]["extensions"].as_array().map(Vec::as_slice).unwrap_or_default();
    let types = required::extension_types(seed, registrations);
    let wanted = types.into_iter().filter_map(|name| {
        let serves =
            |resource: &&ControllerResource| *resource.kind == *EXTENSION.kind && resource.type_name == name;
        let resource = registrations.iter().flat_map(|r| &r.spec.resources).find(serves)?;
        let timeout = duration::parse(&resource.reconcile_timeout).ok();
        let config = named.iter().rfind(|extension| text(&extension["type"]) == name);
        let config = config.map(|extension| extension["providerConfig"].clone()).unwrap_or_default();
        Some(Wanted { name, config, timeout })
    });
    wanted.collect()
}

impl Wanted {
    fn target(&self) -> Target {
        Target { resource: EXTENSION, namespace: GARDEN_NAMESPACE.to_owned(), name: self.name.clone() }
    }

    fn wish(&self) -> Wish {
        let mut spec = json!({"type": self.name, "class": CLASS});
        if !self.config.is_null() {
            spec["providerConfig"] = self.config.clone();
        }
        Wish::new(spec)
    }

    fn patience(&self) -> Patience {
        let usual = Patience::of(&EXTENSION);
        Patience { timeout: self.timeout.unwrap_or(usual.timeout), ..usual }
    }
}

/// Writes the objects, and asks their extensions to reconcile them.
pub(super) fn deploy(work: &mut Work) -> Result<Step, Failed> {
    work.wanted = wanted(&work.live, &work.registered());
    let now = work.place.clock.now();
    for wanted in &work.wanted {
        wanted.target().deploy(&work.seed, &wanted.wish(), now)?;
    }
    Ok(Step::Done)
}

/// Waits until all extensions have done what they were asked for.
pub(super) fn wait(work: &Work, attempt: &Attempt) -> Result<Step, Failed> {
    let looks = work.wanted.iter().map(|w| w.target().wait_ready(&work.seed, w.patience(), attempt));
    together(looks.collect())
}

/// Deletes the objects of this class that nobody asks for any more.
pub(super) fn delete_stale(work: &mut Work) -> Result<Step, Failed> {
    let all = Target::of_class(&work.seed, &EXTENSION, GARDEN_NAMESPACE, CLASS)?;
    let is_wanted = |name: &str| work.wanted.iter().any(|wanted| wanted.name == name);
    let now = work.place.clock.now();
    let mut stale = Vec::new();
    for target in all.into_iter().filter(|target| !is_wanted(&target.name)) {
        // The type counts. Somebody may have given an object another name.
        let Some(object) = target.find(&work.seed)? else { continue };
        if !is_wanted(text(&object["spec"]["type"])) {
            target.delete(&work.seed, now)?;
            stale.push(target);
        }
    }
    work.stale = stale;
    Ok(Step::Done)
}

/// Waits until they are gone.
pub(super) fn wait_gone(work: &Work, attempt: &Attempt) -> Result<Step, Failed> {
    let patience = Patience::of(&EXTENSION);
    together(work.stale.iter().map(|target| target.wait_gone(&work.seed, patience, attempt)).collect())
}

/// What several looks come to: an error of one is an error, and all that is missing is named.
fn together(looks: Vec<Result<Step, Failed>>) -> Result<Step, Failed> {
    let (mut errors, mut missing, mut pause) = (Vec::new(), Vec::new(), Duration::MAX);
    for look in looks {
        match look {
            Ok(Step::Done) => {}
            Ok(Step::Again { after, why }) => {
                pause = pause.min(after);
                missing.push(why);
            }
            // Nothing was sent, and nothing would be.
            Err(failed) if failed.postponed.is_some() => return Err(failed),
            Err(failed) => errors.push(failed),
        }
    }
    Ok(match (errors.is_empty(), missing.is_empty()) {
        (false, _) => return Err(joined(errors)),
        (true, false) => Step::again(pause, joined(missing)),
        (true, true) => Step::Done,
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
        let none = json!({"spec": {}});
        let named = json!({"spec": {"extensions": [
            {"type": "asked", "providerConfig": {"a": 1}},
            {"type": "auto", "providerConfig": {"b": 2}},
            {"type": "off", "disabled": true},
            {"type": "net"},
            {"type": "nobody-serves-it"},
        ]}});
        let auto = ("auto", Value::Null, 90);
        let table = [
            (&none, vec![auto, ("off", Value::Null, 180)]),
            (&named, vec![("asked", json!({"a": 1}), 180), ("auto", json!({"b": 2}), 90)]),
        ];
        for (seed, expected) in table {
            let found = wanted(seed, &registrations);
            let found: Vec<_> = found
                .iter()
                .map(|w| (w.name.as_str(), w.config.clone(), w.patience().timeout.as_secs()))
                .collect();
            assert_eq!(found, expected);
        }
        assert_eq!(wanted(&named, &[]), []);
    }

    #[test]
    fn an_object_says_its_type_class_and_configuration() {
        let mut wanted = Wanted { name: "x".into(), config: Value::Null, timeout: None };
        assert_eq!(wanted.wish(), Wish::new(json!({"type": "x", "class": "seed"})));
        wanted.config = json!({"a": 1});
        let spec = json!({"type": "x", "class": "seed", "providerConfig": {"a": 1}});
        assert_eq!(wanted.wish(), Wish::new(spec));
        let target = wanted.target();
        assert_eq!((target.namespace.as_str(), target.name.as_str()), ("garden", "x"));
    }

    #[test]
    fn several_looks_make_one_answer() {
        let second = Duration::from_secs(1);
        let waits = |text: &str| Ok(Step::again(second, text));
        let fails = |text: &str, code: &str| Err(Failed { codes: vec![code.into()], ..Failed::new(text) });
        let postponed = Failed { postponed: Some(second), ..Failed::new("closed") };
        let both = Failed { codes: vec!["A".into(), "B".into()], ..Failed::new("x; y; z") };
        let table = [
            (vec![], Ok(Step::Done)),
            (vec![Ok(Step::Done), waits("a"), waits("b")], Ok(Step::again(second, "a; b"))),
            (vec![fails("x", "B"), waits("a"), fails("y", "A"), fails("z", "B")], Err(both)),
            (vec![fails("x", "B"), Err(postponed.clone())], Err(postponed)),
        ];
        for (looks, expected) in table {
            assert_eq!(together(looks), expected);
        }
    }
}
