//! Who runs the etcds of a Shoot: the agent, or an etcd-druid.
//!
//! An Etcd object belongs to a druid, also if the configuration has changed since, or another gardenlet created the Shoot.
//! Without one, the choice was written to the namespace when the Shoot was created: while a Shoot is created or restored, there
//! is no Etcd object yet.

use serde_json::Value;

use super::{Role, druid};
use crate::api::core::{NAMESPACE, STATEFUL_SET};
use crate::api::meta::{Key, Metadata, ObjectMeta, annotation};
use crate::base::json::json;
use crate::config::control_plane::EtcdMode;
use crate::kube::{Error, Patch, Seed};

/// The annotation of a control plane's namespace with the choice.
pub(crate) const ANNOTATION: &str = "edge.gardenlet/etcd";

/// The value of the annotation, which is that of `edge.etcd.mode`.
const fn word(mode: EtcdMode) -> &'static str {
    match mode {
        EtcdMode::Plain => "Plain",
        EtcdMode::Druid => "Druid",
    }
}

/// What the seed says about the etcds of a Shoot.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Trace<'a> {
    /// There is an Etcd object.
    has_etcd: bool,
    /// The annotation of the namespace; empty without it.
    choice: &'a str,
    /// There is a StatefulSet.
    has_stateful_set: bool,
}

/// Decides who runs the etcds. `configured` is for Shoots that have none yet.
fn decide(trace: Trace<'_>, configured: EtcdMode) -> EtcdMode {
    match trace {
        Trace { has_etcd: true, .. } | Trace { choice: "Druid", .. } => EtcdMode::Druid,
        Trace { choice: "Plain", .. } | Trace { has_stateful_set: true, .. } => EtcdMode::Plain,
        _ => configured,
    }
}

/// Looks for the choice, and for the namespace's record of it.
fn look(seed: &Seed, namespace: &str, configured: EtcdMode) -> Result<(EtcdMode, String), Error> {
    let of_namespace = seed.find::<Value>(&NAMESPACE, &Key::cluster(namespace))?;
    let choice = of_namespace.map(|found| annotation(&found, ANNOTATION).to_owned()).unwrap_or_default();
    // A choice for a druid needs no other witness.
    if choice == word(EtcdMode::Druid) {
        return Ok((EtcdMode::Druid, choice));
    }
    let key = Key::new(namespace, Role::Main.name());
    let has_etcd = druid::runs(seed, &key)?;
    let has_stateful_set =
        choice.is_empty() && !has_etcd && seed.find::<Metadata>(&STATEFUL_SET, &key)?.is_some();
    let mode = decide(Trace { has_etcd, choice: &choice, has_stateful_set }, configured);
    Ok((mode, choice))
}

/// Whether a namespace has the choice for a druid.
pub(crate) fn is_druids(namespace: &ObjectMeta) -> bool {
    namespace.annotations.get(ANNOTATION).is_some_and(|choice| choice == word(EtcdMode::Druid))
}

/// Who runs the etcds of the Shoot with this namespace.
pub(crate) fn of(seed: &Seed, namespace: &str, configured: EtcdMode) -> Result<EtcdMode, Error> {
    look(seed, namespace, configured).map(|(mode, _)| mode)
}

/// The same, and writes it to the namespace unless it is there.
pub(super) fn choose(seed: &Seed, namespace: &str, configured: EtcdMode) -> Result<EtcdMode, Error> {
    let (mode, written) = look(seed, namespace, configured)?;
    if written != word(mode) {
        let patch = Patch::Merge(json!({"metadata": {"annotations": {ANNOTATION: word(mode)}}}));
        seed.patch_blindly(&NAMESPACE, &Key::cluster(namespace), &patch)?;
    }
    Ok(mode)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_etcd_object_decides_then_the_choice_then_the_configuration() {
        use EtcdMode::{Druid, Plain};
        let trace = |has_etcd, choice, has_stateful_set| Trace { has_etcd, choice, has_stateful_set };
        let table = [
            (trace(false, "", false), [Plain, Druid]),
            (trace(false, "Plain", false), [Plain, Plain]),
            (trace(false, "Druid", false), [Druid, Druid]),
            // A Shoot of an older version has no annotation.
            (trace(false, "", true), [Plain, Plain]),
            // Another gardenlet gave the etcd to a druid.
            (trace(true, "Plain", true), [Druid, Druid]),
            (trace(true, "", true), [Druid, Druid]),
            (trace(false, "other", false), [Plain, Druid]),
        ];
        for (trace, expected) in table {
            assert_eq!([Plain, Druid].map(|configured| decide(trace, configured)), expected, "{trace:?}");
        }
    }

    #[test]
    fn a_namespace_says_who_was_chosen() {
        let named = |name: &str, choice: &str| ObjectMeta {
            annotations: [(name.to_owned(), choice.to_owned())].into(),
            ..ObjectMeta::default()
        };
        for (name, choice, expected) in
            [(ANNOTATION, "Druid", true), (ANNOTATION, "Plain", false), ("other", "Druid", false)]
        {
            assert_eq!(is_druids(&named(name, choice)), expected, "{name}: {choice}");
        }
    }
}
