//! Writes the objects of a Shoot anew, so that its API server encrypts them with its present key, or as its present list of
//! encrypted resources says. A label with the name of the key is put on each of them, and taken off at the end.
//!
//! The label is all that is remembered: whoever begins anew passes over what has it already.

use serde_json::{Value, json};

use super::view::{Phase, View};
use crate::base::sorted::SortedSet;
use crate::flow::{Failed, Step};
use crate::kube::{Client, Patch};

pub mod accounts;
mod kinds;
mod refused;
mod rounds;
mod walk;

use refused::Refused;
use rounds::Rounds;
use walk::{Item, Walk};

/// The label of what was written anew. Its value is the name of the key's Secret.
pub const KEY_NAME: &str = "credentials.gardener.cloud/key-name";

/// How a client of the Shoot is made.
pub type Connect<'a> = &'a dyn Fn() -> Result<Client, Failed>;

/// The work of one flow. It lasts over many turns.
#[derive(Debug, Default)]
pub struct Rewrite(Rounds);

impl Rewrite {
    /// Puts the label on all objects of these resources.
    ///
    /// # Errors
    /// What could not be written, and what the owner of the Shoot can do.
    pub fn label(&mut self, connect: Connect<'_>, resources: &[String], key: &str) -> Result<Step, Failed> {
        self.go_on(connect, resources, &format!("{KEY_NAME}!={key}"), &json!(key))
    }

    /// Takes the label off them.
    ///
    /// # Errors
    /// As for [`Rewrite::label`].
    pub fn unlabel(&mut self, connect: Connect<'_>, resources: &[String]) -> Result<Step, Failed> {
        self.go_on(connect, resources, KEY_NAME, &Value::Null)
    }

    fn go_on(
        &mut self,
        connect: Connect<'_>,
        resources: &[String],
        selector: &str,
        value: &Value,
    ) -> Result<Step, Failed> {
        let begin = |shoot: &Client| {
            let (kinds, troubles) = kinds::find(shoot, resources)?;
            Ok(Walk::new(kinds, selector, troubles))
        };
        let patch = Patch::Merge(json!({"metadata": {"labels": {KEY_NAME: value}}}));
        let write = |shoot: &Client, item: &Item| {
            shoot.patch_blindly(&item.resource, &item.key.namespace, &item.key.name, "", &patch)?;
            Ok(true)
        };
        self.0.go_on(connect, &begin, &write, Refused::failed)
    }
}

/// What is to be written anew: with another key everything that is encrypted, else the resources that are new in the list,
/// or not in it any more.
pub fn resources(view: &View) -> Vec<String> {
    let set = |list: &[String]| list.iter().map(|name| plain(name).to_owned()).collect::<SortedSet<_>>();
    let (mut after, mut before) = (set(&view.encrypted), set(&view.encrypted_before));
    for list in [&mut after, &mut before] {
        list.insert("secrets".to_owned());
    }
    let is_other_key = matches!(
        view.rotations.encryption_key.phase,
        Phase::Preparing | Phase::PreparingWithoutWorkersRollout | Phase::Completing
    );
    if is_other_key || after == before {
        after.union(&before).cloned().collect()
    } else {
        after.symmetric_difference(&before).cloned().collect()
    }
}

/// Resources without a group may be written with a dot at their end.
fn plain(name: &str) -> &str {
    name.strip_suffix('.').filter(|name| *name != "*").unwrap_or(name)
}

#[cfg(test)]
mod tests;
