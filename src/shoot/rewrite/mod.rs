//! Rewrites the objects of a Shoot, so that its API server encrypts them with its present key, or according to its
//! present list of encrypted resources. Each object gets a label with the name of the key, which is removed at the end.
//!
//! Only the label is stored: a restarted rewrite skips objects that already have it.

use serde_json::Value;

use super::view::{RotationPhase, ShootView};
use crate::base::json::json;
use crate::base::sorted::SortedSet;
use crate::flow::{Failed, TaskStep};
use crate::kube::{Client, Patch};

pub(crate) mod accounts;
mod kinds;
mod refused;
mod rounds;
mod walk;

use refused::Refused;
use rounds::Rounds;
use walk::{Item, Walk};

/// The label of rewritten objects. Its value is the name of the key's Secret.
pub(crate) const KEY_NAME: &str = "credentials.gardener.cloud/key-name";

/// Creates a client of the Shoot.
pub(crate) type Connect<'a> = &'a dyn Fn() -> Result<Client, Failed>;

/// The work of one flow, over many turns.
#[derive(Debug, Default)]
pub(crate) struct EncryptionRewrite(Rounds);

impl EncryptionRewrite {
    /// Adds the label to all objects of these resources. Errors: what could not be written, and what the
    /// owner of the Shoot can do.
    pub(crate) fn label(
        &mut self,
        connect: Connect<'_>,
        resources: &[String],
        key: &str,
    ) -> Result<TaskStep, Failed> {
        self.go_on(connect, resources, &format!("{KEY_NAME}!={key}"), &json!(key))
    }

    /// Removes the label. Errors: like [`EncryptionRewrite::label`].
    pub(crate) fn unlabel(&mut self, connect: Connect<'_>, resources: &[String]) -> Result<TaskStep, Failed> {
        self.go_on(connect, resources, KEY_NAME, &Value::Null)
    }

    fn go_on(
        &mut self,
        connect: Connect<'_>,
        resources: &[String],
        selector: &str,
        value: &Value,
    ) -> Result<TaskStep, Failed> {
        let begin = |shoot: &Client| {
            let (kinds, troubles) = kinds::find(shoot, resources)?;
            Ok(Walk::new(kinds, selector, troubles))
        };
        let patch = Patch::Merge(json!({"metadata": {"labels": {KEY_NAME: value}}}));
        let write = |shoot: &Client, item: &Item| {
            shoot.patch_blindly(&item.resource, &item.key, &patch)?;
            Ok(true)
        };
        self.0.go_on(connect, &begin, &write, Refused::failed)
    }
}

/// The resources to rewrite: with another key, all encrypted ones; otherwise those that were added to or
/// removed from the list.
pub(crate) fn resources(view: &ShootView) -> Vec<String> {
    let set = |list: &[String]| list.iter().map(|name| plain(name).to_owned()).collect::<SortedSet<_>>();
    let (mut after, mut before) = (set(&view.encrypted), set(&view.encrypted_before));
    for list in [&mut after, &mut before] {
        list.insert("secrets".to_owned());
    }
    let is_other_key = matches!(
        view.rotations.encryption_key.phase,
        RotationPhase::Preparing | RotationPhase::PreparingWithoutWorkersRollout | RotationPhase::Completing
    );
    if is_other_key || after == before {
        after.union(&before).cloned().collect()
    } else {
        after.symmetric_difference(&before).cloned().collect()
    }
}

/// Resources without a group may end with a dot.
fn plain(name: &str) -> &str {
    name.strip_suffix('.').filter(|name| *name != "*").unwrap_or(name)
}

#[cfg(test)]
mod tests;
