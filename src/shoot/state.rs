//! The ShootState of a Shoot: the garden's copy of everything that cannot be recreated. It has the name of its Shoot.

use serde_json::Value;

use crate::api::gardener::SHOOT_STATE;
use crate::api::meta::Key;
use crate::extension::CONFIRMATION;
use crate::kube::{Error, Garden, Patch};
use crate::runtime::write;

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
