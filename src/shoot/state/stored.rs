//! The ShootState in the garden.

use std::fmt;

use serde_json::Value;

use crate::api::gardener::SHOOT_STATE;
use crate::api::meta::{Key, text};
use crate::extension::CONFIRMATION;
use crate::flow::Failed;
use crate::kube::{Error, Garden, Patch};
use crate::runtime::write;
use crate::secrets::labels;
use crate::shoot::rotation::{CA_CLIENT, ENCRYPTION_KEY, SERVICE_ACCOUNT_KEY};

/// A ShootState as the garden has it.
#[derive(Clone, PartialEq)]
pub struct ShootState(pub(super) Value);

impl fmt::Debug for ShootState {
    /// It contains keys.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ShootState").field(&self.key()).finish()
    }
}

impl ShootState {
    /// Its namespace and name.
    pub(crate) fn key(&self) -> Key {
        Key::of(&self.0)
    }

    /// The entries of a list of its spec.
    pub(super) fn entries(&self, list: &str) -> &[Value] {
        self.0["spec"][list].as_array().map_or(&[], Vec::as_slice)
    }

    pub(crate) fn spec(&self) -> &Value {
        &self.0["spec"]
    }

    /// The resourceVersion that was read.
    pub(crate) fn version(&self) -> &str {
        text(&self.0["metadata"]["resourceVersion"])
    }

    /// Its value of an annotation, or an empty text.
    pub(crate) fn annotation(&self, name: &str) -> &str {
        crate::api::meta::annotation(&self.0, name)
    }
}

/// The keys without which a restored Shoot would be another cluster for its clients, or could not read its data.
const KEYS: [&str; 4] = ["ca", CA_CLIENT, ENCRYPTION_KEY, SERVICE_ACCOUNT_KEY];

/// Which of these keys the spec of a ShootState lacks.
pub(crate) fn lacking_keys(spec: &Value) -> Vec<&'static str> {
    let entries = spec["gardener"].as_array().map_or(&[][..], Vec::as_slice);
    let has = |key: &str| entries.iter().any(|entry| entry["labels"][labels::NAME] == key);
    KEYS.into_iter().filter(|key| !has(key)).collect()
}

/// Reads the ShootState of a Shoot. Errors: a request to the garden fails.
pub fn find(garden: &Garden, shoot: &Key) -> Result<Option<ShootState>, Error> {
    Ok(garden.find(&SHOOT_STATE, shoot)?.map(ShootState))
}

/// Reads the ShootState from which a Shoot is restored. Errors: a request to the garden fails; or it is missing, and then
/// nothing may be restored, because the Shoot would get other keys.
pub fn needed(garden: &Garden, shoot: &Key) -> Result<ShootState, Failed> {
    find(garden, shoot)?.ok_or_else(|| {
        Failed::new(format!(
            "the garden has no ShootState {shoot}, from which the Shoot is to be restored: the seed that it has left wrote \
             it; create it again from a backup of the garden"
        ))
    })
}

/// Confirms the deletion and deletes it; returns true if it was already gone. Errors: a request
/// to the garden fails.
pub fn delete(garden: &Garden, key: &Key) -> Result<bool, Error> {
    let confirmed = Patch::annotation(CONFIRMATION, "true");
    match garden.patch::<Value>(&SHOOT_STATE, key, &confirmed) {
        Ok(_) => write::delete(garden, &SHOOT_STATE, key),
        Err(e) if e.is_not_found() => Ok(true),
        Err(e) => Err(e),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn keys_are_not_printed() {
        let spec = json!({"gardener": [{"name": "ca", "data": {"data": {"ca.key": "c2VjcmV0"}}}]});
        let state = ShootState(json!({"metadata": {"namespace": "garden-p", "name": "s1"}, "spec": spec}));
        let text = format!("{state:?}");
        assert!(text.contains("garden-p") && !text.contains("c2VjcmV0"), "{text}");
    }
}
